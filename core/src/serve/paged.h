/* SPDX-License-Identifier: Apache-2.0 */
/* The paged cache of transformers' continuous batching: generation/continuous_batching/cache.py of transformers 5.23.
 * Private to serve/. */
#ifndef TIDE_SERVE_PAGED_H
#define TIDE_SERVE_PAGED_H

#include "serve/serve.h"

enum { TIDE_PAGED_KINDS = 2 }; /* sliding_attention, full_attention */

/* Layers of one kind: CacheAllocator. */
typedef struct tide_paged_group {
    bool slides;
    int64_t layers, block_bytes, blocks_per_sector;
} tide_paged_group;

typedef struct tide_paged_cache {
    int64_t heads, kv_heads, head_dim, hidden, vocabulary, window; /* from the language model's configuration */
    int64_t item;                                                  /* bytes per value */
    tide_paged_group groups[TIDE_PAGED_KINDS];
    uint32_t group_count;
    bool has_masks, slices_logits;
    int64_t page_size, max_batch_tokens, max_requests_per_batch, max_blocks_per_request;
    int64_t inputs;      /* number of sets: two with asynchronous batching */
    int64_t output_rows; /* two with log-probabilities */
    int64_t page_bytes;  /* per layer */
    int64_t sector_bytes, tokens_per_sector, sectors;
    int64_t readable; /* tokens: max_tokens_read */
} tide_paged_cache;

/* Sizes the cache for so many available bytes; num_blocks 0: as many as fit. Returns transformers' refusal; NULL: there
 * is none. */
const char *tide_paged_size(tide_paged_cache *cache, int64_t available, int64_t num_blocks, tide_arena *arena);

/* The most sectors that requests of `tokens` hold. */
int64_t tide_paged_sectors_of(const tide_paged_cache *cache, int64_t requests, int64_t tokens);

/* The longest single request in tokens: infer_max_single_request_tokens. */
int64_t tide_paged_longest(const tide_paged_cache *cache);

#endif
