/* SPDX-License-Identifier: Apache-2.0 */
/* The number of sectors in the paged cache: generation/continuous_batching/cache.py, PagedAttentionCache and
 * PagedAttentionMemoryHandler; cache_allocators/ has blocks and pages. */
#include "serve/paged.h"

#include <inttypes.h>
#include <math.h>

#include "base/rounding.h"
#include "base/units.h"

enum {
    SECTOR_ALIGNMENT = 128, /* of a sector, in bytes */
    TRASH_SECTORS = 2,      /* that padding reads and writes */
    INPUT_ROWS = 7,         /* bulk_input */
    INDEX_BYTES = 8,        /* of read_index and write_index */
    ID_BYTES = 4            /* of other inputs */
};

static int64_t paged_greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Python's
 *
 * for a positive divisor; else 0. */
static int64_t floor_div(int64_t a, int64_t b) {
    return b > 0 ? a / b - (a % b < 0) : 0;
}

static void size_sector(tide_paged_cache *c) {
    c->page_bytes = 2 * c->kv_heads * c->head_dim * c->item * c->page_size;
    c->sector_bytes = SECTOR_ALIGNMENT;
    for (uint32_t i = 0; i < c->group_count; i++) {
        int64_t bytes = c->groups[i].block_bytes = c->page_bytes * c->groups[i].layers;
        c->sector_bytes = c->sector_bytes / tide_gcd(c->sector_bytes, bytes) * bytes;
    }
    c->tokens_per_sector = 0;
    for (uint32_t i = 0; i < c->group_count; i++) {
        c->groups[i].blocks_per_sector = c->sector_bytes / paged_greater(c->groups[i].block_bytes, 1);
        c->tokens_per_sector = paged_greater(c->tokens_per_sector, c->groups[i].blocks_per_sector * c->page_size);
    }
}

/* Keys and values per token where attention has the most of them, in heads: kv_heads_at_peak. */
static int64_t heads_at_peak(const tide_paged_cache *c) {
    return c->has_masks ? 2 * c->heads + c->kv_heads : 2 * c->kv_heads;
}

/* bytes_per_batch_token */
static int64_t batch_token(const tide_paged_cache *c) {
    int64_t groups = c->group_count;
    int64_t head = c->slices_logits ? 0 : c->hidden * c->item + 4 * c->vocabulary;
    int64_t attention = c->item * (c->hidden + (c->heads + 2 * c->kv_heads + heads_at_peak(c)) * c->head_dim);
    int64_t inputs = c->inputs * (INPUT_ROWS * ID_BYTES + c->output_rows * ID_BYTES +
                                  groups * c->max_blocks_per_request * ID_BYTES + 2 * groups * INDEX_BYTES);
    return paged_greater(head, attention) + inputs;
}

/* bytes_per_cache_sector */
static int64_t cache_sector(const tide_paged_cache *c) {
    int64_t token = heads_at_peak(c) * c->head_dim * c->item + c->inputs * c->group_count * INDEX_BYTES;
    return c->sector_bytes + c->tokens_per_sector * token;
}

/* fixed_overhead_bytes */
static int64_t fixed_overhead(const tide_paged_cache *c) {
    int64_t row = c->hidden * c->item + 4 * c->vocabulary;
    return TRASH_SECTORS * c->sector_bytes + (c->slices_logits ? c->max_requests_per_batch * row : 0);
}

/* attention_mask_bytes; in floating point, because sizes come from the user. */
static double mask_bytes(const tide_paged_cache *c, int64_t sectors) {
    int64_t masks = c->has_masks ? c->group_count == 1 && !c->groups[0].slides ? 1 : 2 : 0;
    double readable = (double)sectors * (double)c->tokens_per_sector;
    return (double)(c->inputs * masks * c->item) * (double)c->max_batch_tokens *
           (readable + (double)c->max_batch_tokens);
}

/* infer_max_batch_tokens_and_num_sectors */
static void count_sectors(tide_paged_cache *c, int64_t available, int64_t num_blocks, int64_t layers) {
    if (num_blocks) {
        double target = (double)num_blocks * (double)(layers * c->page_bytes);
        c->sectors = paged_greater(1, (int64_t)ceil(target / (double)c->sector_bytes));
        return;
    }
    int64_t memory = available - fixed_overhead(c) - c->max_batch_tokens * batch_token(c);
    c->sectors = floor_div(memory, cache_sector(c));
    double masks = mask_bytes(c, c->sectors), more = mask_bytes(c, c->sectors + 1) - masks;
    c->sectors -= (int64_t)ceil(masks / ((double)cache_sector(c) + more));
}

const char *tide_paged_size(tide_paged_cache *c, int64_t available, int64_t num_blocks, tide_arena *arena) {
    int64_t layers = 0;
    size_sector(c);
    for (uint32_t i = 0; i < c->group_count; i++) layers += c->groups[i].layers;
    count_sectors(c, available, num_blocks, layers);
    double footprint = (double)fixed_overhead(c) + (double)c->max_batch_tokens * (double)batch_token(c) +
                       (double)c->sectors * (double)cache_sector(c) + mask_bytes(c, c->sectors);
    if (footprint > (double)available)
        return tide_format(arena, "MemoryError: Memory footprint %.0f is more than available memory %" PRId64,
                           footprint, available);
    if (c->sectors <= 0)
        return tide_format(arena, "ValueError: Invalid values: max_batch_tokens = %" PRId64 ", num_sectors = %" PRId64,
                           c->max_batch_tokens, c->sectors);
    for (uint32_t i = 0; i < c->group_count; i++)
        c->readable = paged_greater(c->readable, c->sectors * c->groups[i].blocks_per_sector * c->page_size);
    return NULL;
}

int64_t tide_paged_sectors_of(const tide_paged_cache *c, int64_t requests, int64_t tokens) {
    int64_t sectors = 0;
    for (uint32_t i = 0; i < c->group_count; i++) {
        const tide_paged_group *g = &c->groups[i];
        int64_t kept = g->slides && tokens > c->window ? c->window : tokens;
        sectors += TIDE_CEIL_DIV(requests * TIDE_CEIL_DIV(kept, c->page_size), g->blocks_per_sector);
    }
    return sectors;
}

int64_t tide_paged_longest(const tide_paged_cache *c) {
    int64_t low = 0, high = c->readable;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (tide_paged_sectors_of(c, 1, middle) <= c->sectors)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
