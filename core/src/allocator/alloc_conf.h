/* SPDX-License-Identifier: Apache-2.0 */
/* PYTORCH_CUDA_ALLOC_CONF: `key:value,key:[a:b,c:d]` turned into numbers, with PyTorch's rules and
 * messages. */
#ifndef TIDE_ALLOCATOR_ALLOC_CONF_H
#define TIDE_ALLOCATOR_ALLOC_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Buckets of roundup_power2_divisions: sizes from 1 MiB, 2 MiB, ... and from 32 GiB up. */
enum { TIDE_ROUNDUP_BUCKETS = 16 };

/* Whose rules apply where releases differ: the `>` of a roundup list, a fraction of 1, newer options. */
typedef enum tide_alloc_profile {
    TIDE_ALLOC_TORCH_MAIN, /* as measured on 2.15.0 */
    TIDE_ALLOC_TORCH_2_4
} tide_alloc_profile;

typedef enum tide_alloc_backend {
    TIDE_ALLOC_NATIVE,
    TIDE_ALLOC_CUDA_MALLOC_ASYNC /* the driver's pool: modelled approximately */
} tide_alloc_backend;

/* Accepted by the parser, but the reader should know about it. */
enum {
    TIDE_ALLOC_CONF_ASYNC_IGNORES = 1 << 0, /* cudaMallocAsync ignores the native options given */
    TIDE_ALLOC_CONF_NOT_MODELLED = 1 << 1,  /* an option that is read and has no effect on the answer */
    TIDE_ALLOC_CONF_TRAILING_TEXT = 1 << 2  /* "512MB": PyTorch reads the digits and drops the rest */
};

typedef struct tide_alloc_conf {
    tide_alloc_profile profile;
    tide_alloc_backend backend;
    bool is_approximate; /* how the pool grows is up to the driver, so reserved is an estimate */
    bool expandable_segments;
    bool throw_on_cudamalloc_oom;
    uint64_t max_split_size_bytes; /* UINT64_MAX: every block may be split */
    uint64_t max_non_split_rounding_bytes;
    uint64_t large_segment_size_bytes;
    uint64_t roundup_power2_divisions[TIDE_ROUNDUP_BUCKETS]; /* 0 and 1: off */
    double garbage_collection_threshold;                     /* of the limit; 0: off */
    double per_process_memory_fraction;                      /* of the device; 1: no limit */
    unsigned warnings;                                       /* TIDE_ALLOC_CONF_ bits */
} tide_alloc_conf;

typedef struct tide_alloc_conf_error {
    size_t offset;     /* bytes into the text where the offending token begins */
    char message[192]; /* one line, terminated */
} tide_alloc_conf_error;

/* The defaults, as for an empty text. */
tide_alloc_conf tide_alloc_conf_default(tide_alloc_profile profile);

/* Parses `length` bytes of text into *conf. On failure returns false, *error says why (may be NULL) and *conf holds the
 * defaults. */
bool tide_alloc_conf_parse(tide_alloc_conf *conf, tide_alloc_profile profile, const char *text, size_t length,
                           tide_alloc_conf_error *error);

#endif
