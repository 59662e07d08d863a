/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the caching allocator, and the functions that its files share. Private to allocator/. */
#ifndef TIDE_ALLOCATOR_CACHING_STATE_H
#define TIDE_ALLOCATOR_CACHING_STATE_H

#include "allocator/caching_blocks.h"

/* c10/core/AllocatorConfig.h: kSmallSize, kSmallBuffer */
#define CACHING_SMALL_SIZE (UINT64_C(1) << 20)
#define CACHING_SMALL_BUFFER (UINT64_C(2) << 20)
/* "Tried to allocate more than 1EB memory." */
#define CACHING_ONE_EB (UINT64_C(1) << 60)

/* Granularity of the driver. */
#define CACHING_PAGE_2M (UINT64_C(2) << 20)
/* One cudaMalloc, or one expandable range. Numbered from 1. */
typedef struct caching_segment {
    uint64_t address, size;
    uint32_t head; /* the block at the lowest address; spare records are linked through it */
    uint32_t flags;
} caching_segment;

#define SEGMENT_SMALL UINT32_C(0x80000000)

/* A stream that uses a block: listed with the block while that is live, then queued with the stream. */
typedef struct caching_use {
    uint32_t block, next, stream;
    uint64_t ordinal; /* position among the events of the stream */
} caching_use;

typedef struct caching_stream {
    free_set free[2];     /* by tide_pool_kind */
    uint32_t unmapped[2]; /* treaps by address */
    uint32_t first_event, last_event;
    uint64_t issued, synchronized; /* ordinals: the next one, and the first not known complete */
} caching_stream;

typedef struct caching_counter {
    uint64_t current, peak, allocated, base; /* freed = allocated + base - current */
} caching_counter;

struct tide_caching_allocator {
    caching_block *blocks;
    uint32_t block_capacity, block_used, spare_block, spare_blocks;
    caching_segment *segments;
    uint32_t *order; /* segments by address; those of the small pool have SEGMENT_SMALL */
    uint32_t segment_capacity, order_capacity, segment_used, spare_segment, segment_count;
    uint32_t births; /* segments created so far */
    uint32_t packed; /* the first `packed` of order leave no gap for cudaMalloc */
    uint32_t range_count;
    uint64_t range_bytes; /* address space handed out to ranges so far */
    caching_use *uses;
    uint32_t use_capacity, use_used, spare_use;
    uint32_t pending_events;
    bool holds_events, is_lean;
    caching_stream **streams; /* NULL until the stream is first used */
    uint32_t stream_capacity;
    uint32_t expandable_free; /* blocks in free sets that belong to ranges */

    tide_alloc_conf conf;
    uint64_t device_bytes, outside_bytes;
    uint64_t limit_bytes;   /* UINT64_MAX: none */
    uint64_t collect_bytes; /* reserved bytes above which garbage is collected; UINT64_MAX: never */
    uint64_t lookups[2];    /* get_free_blocks_call_count, by pool */
    uint64_t async_requested;

    caching_counter stat[3][TIDE_STAT_COUNT]; /* by tide_pool_kind */
    caching_counter oversize_allocations, oversize_segments;
    uint64_t alloc_retries, ooms, oom_rejections, sync_all_streams, device_alloc, device_free;
    tide_caching_oom oom;

    tide_device_call_fn *on_call;
    void *on_call_user;
    tide_allocator memory;
};

/* ---- statistics ---- */

static inline void counter_rise(caching_counter *c, uint64_t amount) {
    c->current += amount;
    c->allocated += amount;
    if (c->current > c->peak) c->peak = c->current;
}

static inline bool stat_is_kept(const tide_caching_allocator *a, tide_statistic s) {
    return !a->is_lean || s == TIDE_STAT_RESERVED_BYTES || s == TIDE_STAT_ALLOCATED_BYTES;
}

/* Totals of TIDE_POOL_ALL are the sums over both pools, which tide_caching_stat computes. A lean allocator keeps no
 * figures by pool. */
static inline void stat_rise(tide_caching_allocator *a, unsigned pool, tide_statistic s, uint64_t amount) {
    if (!stat_is_kept(a, s)) return;
    caching_counter *all = &a->stat[TIDE_POOL_ALL][s];
    if (!a->is_lean) counter_rise(&a->stat[pool][s], amount);
    all->current += amount;
    if (all->current > all->peak) all->peak = all->current;
}

static inline void stat_fall(tide_caching_allocator *a, unsigned pool, tide_statistic s, uint64_t amount) {
    if (!stat_is_kept(a, s)) return;
    if (!a->is_lean) a->stat[pool][s].current -= amount;
    a->stat[TIDE_POOL_ALL][s].current -= amount;
}

static inline uint64_t caching_reserved(const tide_caching_allocator *a) {
    return a->stat[TIDE_POOL_ALL][TIDE_STAT_RESERVED_BYTES].current;
}

/* ---- questions ---- */

static inline unsigned block_pool(const caching_block *b) {
    return b->flags & BLOCK_SMALL ? TIDE_POOL_SMALL : TIDE_POOL_LARGE;
}

static inline bool block_is_split(const caching_block *b) {
    return b->prev || b->next;
}

/* Free or unmapped, and no event outstanding. */
static inline bool block_is_idle(const tide_caching_allocator *a, uint32_t n) {
    return n && !(a->blocks[n].flags & BLOCK_ALLOCATED) && !a->blocks[n].events;
}

static inline const caching_segment *segment_at(const tide_caching_allocator *a, uint32_t position) {
    return &a->segments[a->order[position] & ~SEGMENT_SMALL];
}

static inline bool caching_is_live(const tide_caching_allocator *a, tide_block block) {
    return block && block < a->block_used && a->blocks[block].flags & BLOCK_ALLOCATED;
}

static inline void caching_tell(const tide_caching_allocator *a, tide_device_call call, uint64_t address,
                                uint64_t bytes, uint32_t stream) {
    if (a->on_call) a->on_call(a->on_call_user, call, address, bytes, stream);
}

static inline uint64_t caching_page(const tide_caching_allocator *a, unsigned pool) {
    return pool == TIDE_POOL_SMALL ? CACHING_SMALL_BUFFER : a->conf.large_segment_size_bytes;
}

/* ---- block records ---- */

static inline uint32_t block_new(tide_caching_allocator *a) {
    uint32_t n = a->spare_block;
    if (n) {
        a->spare_block = a->blocks[n].left;
        a->spare_blocks--;
        CACHING_FETCH(&a->blocks[a->blocks[n].next]);
    } else {
        n = a->block_used++;
    }
    return n;
}

/* A spare record has the next four: left, right, prev and next. They lie apart, so the last of them is fetched ahead.
 */
static inline void block_delete(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    const caching_block *spare = &a->blocks[a->spare_block];
    b->flags = 0;
    b->left = a->spare_block;
    b->right = spare->left;
    b->prev = spare->right;
    b->next = spare->prev;
    a->spare_block = n;
    a->spare_blocks++;
}

/* A new free block with the properties of `like`, linked between two neighbours of its segment. */
static inline uint32_t block_new_between(tide_caching_allocator *a, const caching_block *like, uint64_t address,
                                         uint64_t size, uint32_t prev, uint32_t next) {
    caching_block made = {.address = address,
                          .size = size,
                          .prev = prev,
                          .next = next,
                          .segment = like->segment,
                          .born = like->born,
                          .stream = like->stream,
                          .flags = (uint8_t)(like->flags & (BLOCK_SMALL | BLOCK_EXPANDABLE | BLOCK_USED))};
    uint32_t n = block_new(a);
    a->blocks[n] = made;
    if (prev) a->blocks[prev].next = n;
    if (next) a->blocks[next].prev = n;
    if (!prev) a->segments[made.segment].head = n;
    return n;
}

static inline void block_put_free(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    unsigned pool = block_pool(b);
    b->free_since = (uint32_t)a->lookups[pool];
    a->expandable_free += (b->flags & BLOCK_EXPANDABLE) != 0;
    free_insert(&a->streams[b->stream]->free[pool], a->blocks, n);
}

static inline void block_take_free(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    a->expandable_free -= (b->flags & BLOCK_EXPANDABLE) != 0;
    free_remove(&a->streams[b->stream]->free[block_pool(b)], a->blocks, n);
}

static inline void block_put_unmapped(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    b->flags |= BLOCK_UNMAPPED;
    tree_insert(a->blocks, &a->streams[b->stream]->unmapped[block_pool(b)], n, false);
}

static inline void block_take_unmapped(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    tree_remove(a->blocks, &a->streams[b->stream]->unmapped[block_pool(b)], n, false);
}

/* try_merge_blocks: absorbs the neighbour `from` if it is idle and of the same kind; returns the bytes gained. */
static inline uint64_t block_merge(tide_caching_allocator *a, uint32_t n, uint32_t from) {
    if (!block_is_idle(a, from)) return 0;
    caching_block *b = &a->blocks[n], *f = &a->blocks[from];
    if ((b->flags ^ f->flags) & BLOCK_UNMAPPED) return 0;
    if (f->flags & BLOCK_UNMAPPED) {
        block_take_unmapped(a, from);
    } else {
        block_take_free(a, from);
    }
    if (b->prev == from) {
        b->address = f->address;
        b->prev = f->prev;
        if (b->prev) {
            a->blocks[b->prev].next = n;
        } else {
            a->segments[b->segment].head = n;
        }
    } else {
        b->next = f->next;
        if (b->next) a->blocks[b->next].prev = n;
    }
    b->size += f->size;
    uint64_t gained = f->size;
    block_delete(a, from);
    return gained;
}

/* ---- one request ---- */

typedef struct caching_request {
    uint64_t requested, size; /* as requested, and rounded */
    uint64_t segment;         /* size of a new segment for it */
    uint32_t stream;
    unsigned pool;
} caching_request;

/* ---- caching_segments.c ---- */

bool tide_caching_device_has_room(const tide_caching_allocator *a, uint64_t bytes);
uint64_t tide_caching_device_free_bytes(const tide_caching_allocator *a);
/* The lowest free address with room for `size`, a multiple of 2 MiB. */
uint64_t tide_caching_lowest_address(tide_caching_allocator *a, uint64_t size);
/* Adds a segment with its only block, which it returns. */
uint32_t tide_caching_segment_new(tide_caching_allocator *a, uint64_t address, uint64_t size, uint32_t stream,
                                  unsigned flags);
void tide_caching_segment_delete(tide_caching_allocator *a, uint32_t s);
/* try_allocate_expandable_block: a free block of at least the request's size, in its free set;
 * 0: none. */
uint32_t tide_caching_range_grow(tide_caching_allocator *a, const caching_request *r);
/* unmap_block: returns the whole pages inside a free block. Needs two spare records. */
void tide_caching_range_unmap(tide_caching_allocator *a, uint32_t n);

/* ---- caching_release.c ---- */

/* process_events; with `all`, synchronize_and_free_events. */
void tide_caching_process_events(tide_caching_allocator *a, bool all);
/* release_cached_blocks; after caching_prepare_release. */
void tide_caching_release_all(tide_caching_allocator *a);
/* release_available_cached_blocks: oversize blocks, which serve only requests near their size. */
bool tide_caching_release_oversize(tide_caching_allocator *a, const caching_request *r);
/* garbage_collect_cached_blocks: releases unsplit blocks of the large pool that are at least as old as the mean, until
 * enough is free. */
void tide_caching_collect_garbage(tide_caching_allocator *a);

/* ---- caching_allocator.c ---- */

#endif
