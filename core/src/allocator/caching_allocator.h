/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's CUDA caching allocator: requests and frees in; blocks, segments and statistics out.
 *
 * The rules are those of c10/cuda/CUDACachingAllocator.cpp. Addresses come from a model of the driver: cudaMalloc takes
 * the lowest free range, with a granularity of 2 MiB, from TIDE_DEVICE_BASE + 2 MiB upward; virtual ranges of 9/8 of
 * the device are placed downward from TIDE_DEVICE_BASE + 4 TiB. Addresses matter only between free blocks of one size
 * in one segment (in the 2.4 profile, between all of one size).
 *
 *     tide_caching_config config = {.memory = hook, .conf = conf, .device_bytes = total};
 *     if (tide_caching_create(&a, &config) != TIDE_CACHING_OK) ...
 *     tide_caching_malloc(a, bytes, stream, &block);   tide_caching_free(a, block);
 *     tide_caching_destroy(a);
 *
 * Not modelled: CUDA graph capture and private pools (MemPool). */
#ifndef TIDE_ALLOCATOR_CACHING_ALLOCATOR_H
#define TIDE_ALLOCATOR_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/alloc_conf.h"
#include "base/arena.h"

#define TIDE_DEVICE_BASE UINT64_C(0x6c0000000000)

/* A block returned by malloc: the same number until it is freed. 0 is the null pointer. */
typedef uint32_t tide_block;

enum { TIDE_CACHING_STREAM_LIMIT = 4096 };

typedef enum tide_caching_status {
    TIDE_CACHING_OK,
    TIDE_CACHING_OOM,        /* the device is full; tide_caching_oom_info() has the details */
    TIDE_CACHING_NO_MEMORY,  /* the memory hook returned NULL; nothing changed, and the call may be repeated */
    TIDE_CACHING_BAD_BLOCK,  /* not a live block */
    TIDE_CACHING_BAD_STREAM, /* not below TIDE_CACHING_STREAM_LIMIT */
    TIDE_CACHING_BAD_CONFIG  /* device_bytes of 2^59 or more, or a fraction outside [0, 1] */
} tide_caching_status;

/* Calls to the driver, in order. */
typedef enum tide_device_call {
    TIDE_SEGMENT_ALLOC,
    TIDE_SEGMENT_FREE,
    TIDE_SEGMENT_MAP,
    TIDE_SEGMENT_UNMAP,
    TIDE_DEVICE_OOM /* address: free bytes of the device; bytes: the rounded request */
} tide_device_call;

typedef void tide_device_call_fn(void *user, tide_device_call call, uint64_t address, uint64_t bytes, uint32_t stream);

typedef struct tide_caching_config {
    tide_allocator memory; /* must stay valid until destroy */
    tide_alloc_conf conf;
    uint64_t device_bytes;        /* the total that cudaMemGetInfo reports */
    uint64_t outside_bytes;       /* device memory in use outside of the allocator */
    bool is_lean;                 /* keep only allocated_bytes and reserved_bytes of all pools, current and peak */
    tide_device_call_fn *on_call; /* may be NULL; must not call the allocator */
    void *on_call_user;
} tide_caching_config;

/* X(enumerator, name in torch.cuda.memory_stats) */
#define TIDE_STATISTICS(X)                                                                                             \
    X(ALLOCATION, "allocation")                                                                                        \
    X(SEGMENT, "segment")                                                                                              \
    X(ACTIVE, "active")                                                                                                \
    X(INACTIVE_SPLIT, "inactive_split")                                                                                \
    X(ALLOCATED_BYTES, "allocated_bytes")                                                                              \
    X(RESERVED_BYTES, "reserved_bytes")                                                                                \
    X(ACTIVE_BYTES, "active_bytes")                                                                                    \
    X(INACTIVE_SPLIT_BYTES, "inactive_split_bytes")                                                                    \
    X(REQUESTED_BYTES, "requested_bytes")

typedef enum tide_statistic {
#define TIDE_STATISTIC_ENUM(name, text) TIDE_STAT_##name,
    TIDE_STATISTICS(TIDE_STATISTIC_ENUM)
#undef TIDE_STATISTIC_ENUM
        TIDE_STAT_COUNT
} tide_statistic;

typedef enum tide_pool_kind { TIDE_POOL_LARGE, TIDE_POOL_SMALL, TIDE_POOL_ALL } tide_pool_kind;

typedef struct tide_stat {
    uint64_t current, peak;
    uint64_t allocated, freed; /* totals of all increases and of all decreases */
} tide_stat;

typedef struct tide_caching_counts {
    uint64_t alloc_retries, ooms, oom_rejections, sync_all_streams, device_alloc, device_free;
    tide_stat oversize_allocations, oversize_segments;
    uint64_t max_split_size_bytes; /* UINT64_MAX: unlimited */
} tide_caching_counts;

/* The last TIDE_CACHING_OOM, with the figures of its message: "Tried to allocate {tried}. GPU 0 has a total capacity of
 * {total} of which {free} is free. {limit} allowed; Of the allocated memory {allocated} is allocated by PyTorch, and
 * {unallocated} is reserved by PyTorch but unallocated." */
typedef struct tide_caching_oom {
    uint64_t requested_bytes, rounded_bytes;
    uint64_t tried_bytes; /* of the segment that was requested */
    uint64_t total_bytes, free_bytes;
    uint64_t limit_bytes; /* UINT64_MAX: none */
    uint64_t allocated_bytes, unallocated_bytes;
    uint32_t stream;
    bool is_over_1_eb; /* rejected before anything was looked up, so no statistic counts it */
    bool is_rejected;  /* by throw_on_cudamalloc_oom: no cache was released; num_oom_rejections */
} tide_caching_oom;

typedef enum tide_block_state {
    TIDE_BLOCK_FREE,
    TIDE_BLOCK_LIVE,
    TIDE_BLOCK_PENDING /* freed, waiting for another stream's event */
} tide_block_state;

typedef struct tide_block_info {
    uint64_t address, bytes;
    uint64_t requested_bytes; /* of a free block: what its last user requested */
    tide_block block;
    uint32_t stream;
    tide_block_state state;
} tide_block_info;

/* The memory of one cudaMalloc, or one contiguous mapped part of an expandable range. */
typedef struct tide_segment_info {
    uint64_t address, bytes;
    uint32_t stream;
    bool is_small, is_expandable;
} tide_segment_info;

typedef struct tide_caching_allocator tide_caching_allocator;

tide_caching_status tide_caching_create(tide_caching_allocator **out, const tide_caching_config *config);
void tide_caching_destroy(tide_caching_allocator *a);

/* 0 bytes: OK, and the null block. On any other status *block is the null block. */
tide_caching_status tide_caching_malloc(tide_caching_allocator *a, uint64_t bytes, uint32_t stream, tide_block *block);
/* A malloc whose block is freed at once; returns the size of the block. */
tide_caching_status tide_caching_malloc_and_free(tide_caching_allocator *a, uint64_t bytes, uint32_t stream,
                                                 uint64_t *block_bytes);
tide_caching_status tide_caching_free(tide_caching_allocator *a, tide_block block);

/* `stream` uses the block: once freed, the block waits for an event on that stream. */
tide_caching_status tide_caching_record_stream(tide_caching_allocator *a, tide_block block, uint32_t stream);

/* By default events complete before the next malloc. Held events stay pending until resumed, until their stream is
 * synchronized, or until the cache is emptied. */
void tide_caching_hold_events(tide_caching_allocator *a);
void tide_caching_resume_events(tide_caching_allocator *a);
/* Events recorded on the stream so far are complete at the next malloc, held or not. */
void tide_caching_synchronize(tide_caching_allocator *a, uint32_t stream);

tide_caching_status tide_caching_empty_cache(tide_caching_allocator *a);

/* torch.cuda.set_per_process_memory_fraction. */
tide_caching_status tide_caching_set_fraction(tide_caching_allocator *a, double fraction);
/* max_split_size_mb, changed while the allocator is in use; bytes, UINT64_MAX: every block may be split. */
void tide_caching_set_max_split(tide_caching_allocator *a, uint64_t bytes);
/* Device memory in use outside of the allocator: context, NCCL, other processes. */
void tide_caching_set_outside(tide_caching_allocator *a, uint64_t bytes);
/* Changes the size of the device for later requests. */
void tide_caching_set_device(tide_caching_allocator *a, uint64_t bytes);

void tide_caching_reset_peaks(tide_caching_allocator *a);
void tide_caching_reset_accumulated(tide_caching_allocator *a);

/* Queries of a live block. */
uint64_t tide_caching_address(const tide_caching_allocator *a, tide_block block);
uint64_t tide_caching_block_bytes(const tide_caching_allocator *a, tide_block block);
uint64_t tide_caching_requested_bytes(const tide_caching_allocator *a, tide_block block);
/* Fetches the record of a block that is freed soon into the processor's cache; once it is there, those of its
 * neighbours. The block may be 0. */
void tide_caching_fetch(const tide_caching_allocator *a, tide_block block);
void tide_caching_fetch_neighbours(const tide_caching_allocator *a, tide_block block);

/* The size of the block for a request, and of the segment created when nothing cached fits. */
uint64_t tide_caching_round(const tide_alloc_conf *conf, uint64_t bytes);
uint64_t tide_caching_segment_bytes(const tide_alloc_conf *conf, uint64_t rounded_bytes);

tide_stat tide_caching_stat(const tide_caching_allocator *a, tide_statistic statistic, tide_pool_kind pool);
uint64_t tide_caching_reserved(const tide_caching_allocator *a); /* bytes, current */
tide_caching_counts tide_caching_counters(const tide_caching_allocator *a);
tide_caching_oom tide_caching_oom_info(const tide_caching_allocator *a);
/* "allocated_bytes.all.peak", "num_alloc_retries" and so on; false for an unknown key. */
bool tide_caching_stat_named(const tide_caching_allocator *a, const char *key, uint64_t *value);
const char *tide_statistic_name(tide_statistic statistic);

/* Iterates over segments by address, and over the blocks of the segment returned last. Valid until the allocator
 * changes. Start with {0}. Of an expandable range only mapped blocks are returned. */
typedef struct tide_caching_cursor {
    uint32_t position, block, end;
} tide_caching_cursor;

bool tide_caching_next_segment(const tide_caching_allocator *a, tide_caching_cursor *cursor,
                               tide_segment_info *segment);
bool tide_caching_next_block(const tide_caching_allocator *a, tide_caching_cursor *cursor, tide_block_info *block);

/* A growable array of 64-bit words. */
typedef struct tide_words {
    uint64_t *at;
    uint32_t count, capacity;
} tide_words;

static inline void tide_words_add(tide_words *to, uint64_t word, tide_arena *arena) {
    TIDE_ROOM(arena, to->at, to->count, to->capacity);
    to->at[to->count++] = word;
}

/* Appends all that decides how later requests to the pool are served: segments by age, with their blocks. Equal words
 * mean that equal requests are served alike. False: more than that decides (ages for garbage collection, held events).
 */
bool tide_caching_words(const tide_caching_allocator *a, tide_pool_kind pool, tide_words *to, tide_arena *arena);
/* A copy of the state. Zero-initialise before the first use; `at` belongs to the arena. */
typedef struct tide_caching_saved {
    unsigned char *at;
    size_t capacity;
} tide_caching_saved;

void tide_caching_save(tide_caching_saved *to, tide_caching_allocator *a, tide_arena *arena);
void tide_caching_restore(tide_caching_allocator *a, const tide_caching_saved *from);
/* Whether, since the state was saved, memory ran out or cached segments were released. */
bool tide_caching_gave_back(const tide_caching_allocator *a, const tide_caching_saved *since);

/* How many bytes the device can still provide. */
uint64_t tide_caching_room(const tide_caching_allocator *a);
/* backend:cudaMallocAsync: changes the live bytes without blocks of their own. */
void tide_caching_async_live(tide_caching_allocator *a, int64_t change);

/* Checks the invariants of the whole state; NULL when they hold, else a description of the first that does not. */
const char *tide_caching_check(const tide_caching_allocator *a);

#endif
