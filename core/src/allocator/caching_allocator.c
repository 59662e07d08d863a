/* SPDX-License-Identifier: Apache-2.0 */
/* Serves requests and frees by the rules of PyTorch's CUDA caching allocator.
 *
 * In reading order: caching_blocks.h and caching_state.h, caching_segments.c, caching_release.c, and here host memory,
 * malloc and free. Whatever may need host memory is called before anything changes ("prepare"), so that a failing
 * memory hook leaves the allocator as it was. Source: pytorch c10/cuda/CUDACachingAllocator.cpp; comments name its
 * functions. */
#include <string.h>

#include "allocator/caching_free.h"
#include "base/units.h"

/* c10/core/AllocatorConfig.h: kMinLargeAlloc, kRoundLarge */
static const uint64_t caching_min_large_alloc = (uint64_t)10 << 20;
static const uint64_t caching_round_large = (uint64_t)2 << 20;
/* Growth of the driver's own pool, estimated. */
static const uint64_t caching_async_chunk = (uint64_t)32 << 20;

/* ---- host memory: all growth happens here, before anything changes ---- */

enum { MANY = 1 << 19 }; /* above this many records, capacity no longer doubles */

/* Grows *array to hold at least `wanted` elements; on failure it is unchanged. New elements are uninitialised, except
 * element 0, which means none. */
static bool caching_grow(tide_caching_allocator *a, void *array, uint32_t *capacity, uint64_t wanted, size_t element) {
    void *old;
    uint64_t grown = *capacity ? *capacity : 64;
    if (wanted <= *capacity) return true;
    while (grown < wanted) grown += grown < MANY ? grown : grown / 4;
    if (grown > UINT32_MAX || grown > SIZE_MAX / element) return false;
    memcpy(&old, array, sizeof old);
    char *moved = a->memory.resize(a->memory.user, old, *capacity * element, (size_t)grown * element);
    if (!moved) return false;
    if (!*capacity) memset(moved, 0, element);
    memcpy(array, &moved, sizeof moved);
    *capacity = (uint32_t)grown;
    return true;
}

/* Makes sure that `count` more block records are available. Record 0 is never handed out. */
static inline bool caching_prepare_blocks(tide_caching_allocator *a, uint64_t count) {
    if (a->spare_blocks + (uint64_t)(a->block_capacity - a->block_used) >= count) return true;
    return caching_grow(a, &a->blocks, &a->block_capacity, a->block_used + count, sizeof *a->blocks);
}

static bool caching_prepare_segments(tide_caching_allocator *a, uint32_t count) {
    uint64_t wanted = (uint64_t)a->segment_used + count;
    return caching_grow(a, &a->order, &a->order_capacity, wanted, sizeof *a->order) &&
           caching_grow(a, &a->segments, &a->segment_capacity, wanted, sizeof *a->segments);
}

static tide_caching_status caching_prepare_stream(tide_caching_allocator *a, uint32_t stream) {
    if (stream < a->stream_capacity && a->streams[stream]) return TIDE_CACHING_OK;
    if (stream >= TIDE_CACHING_STREAM_LIMIT) return TIDE_CACHING_BAD_STREAM;
    uint32_t before = a->stream_capacity;
    if (!caching_grow(a, &a->streams, &a->stream_capacity, (uint64_t)stream + 1, sizeof *a->streams))
        return TIDE_CACHING_NO_MEMORY;
    for (uint32_t i = before; i < a->stream_capacity; i++) a->streams[i] = NULL;
    caching_stream *made = a->memory.resize(a->memory.user, NULL, 0, sizeof *made);
    if (!made) return TIDE_CACHING_NO_MEMORY;
    memset(made, 0, sizeof *made);
    a->streams[stream] = made;
    return TIDE_CACHING_OK;
}

/* Unmapping a free block can create two more; before that, `extra` blocks of expandable ranges may become free, and so
 * may blocks whose events complete. */
static bool caching_prepare_release(tide_caching_allocator *a, uint32_t extra) {
    uint64_t free = a->conf.expandable_segments ? (uint64_t)a->expandable_free + a->pending_events : 0;
    return caching_prepare_blocks(a, 2 * (free + extra) + 16);
}

/* ---- sizes ---- */

/* round_size, roundup_power2_next_division */
uint64_t tide_caching_round(const tide_alloc_conf *conf, uint64_t bytes) {
    if (bytes < CACHING_MIN_BLOCK) return CACHING_MIN_BLOCK;
    unsigned log = 63 - (unsigned)__builtin_clzll(bytes), bucket = log > 20 ? log - 20 : 0;
    if (bucket > TIDE_ROUNDUP_BUCKETS - 1) bucket = TIDE_ROUNDUP_BUCKETS - 1;
    uint64_t divisions = conf->roundup_power2_divisions[bucket];
    if (divisions > 1 && bytes > CACHING_MIN_BLOCK * divisions) {
        uint64_t power = (uint64_t)1 << log, step = power / divisions;
        if (bytes == power) return bytes;
        return TIDE_ROUND_UP(bytes, step);
    }
    return TIDE_ROUND_UP(bytes, CACHING_MIN_BLOCK);
}

/* get_allocation_size */
uint64_t tide_caching_segment_bytes(const tide_alloc_conf *conf, uint64_t rounded_bytes) {
    if (rounded_bytes <= CACHING_SMALL_SIZE) return CACHING_SMALL_BUFFER;
    if (rounded_bytes < caching_min_large_alloc) return conf->large_segment_size_bytes;
    return TIDE_ROUND_UP(rounded_bytes, caching_round_large);
}

/* A fraction of a byte count as PyTorch computes it: a double product, truncated. */
static uint64_t caching_share(double share, uint64_t bytes) {
    return (uint64_t)(share * (double)bytes);
}

/* ---- malloc ---- */

static inline uint64_t block_reach(const caching_block *blocks, const caching_block *b) {
    bool can_grow = b->next && blocks[b->next].flags & BLOCK_UNMAPPED;
    return b->size + (can_grow ? blocks[b->next].size : 0);
}

/* get_free_block: the best fit, still in its free set; 0: none that may be used. */
CACHING_HOT uint32_t caching_find_free(tide_caching_allocator *a, const caching_request *r) {
    const caching_block *b = a->blocks;
    const free_set *set = &a->streams[r->stream]->free[r->pool];
    uint64_t limit = a->conf.max_split_size_bytes;
    if (a->collect_bytes != UINT64_MAX) a->lookups[r->pool]++;
    uint32_t n = free_find(set, b, r->size);
    if (!n) return 0;
    if (b[n].flags & BLOCK_EXPANDABLE) {
        /* Best fit by what the block can grow to. */
        for (uint32_t next; b[n].flags & BLOCK_EXPANDABLE; n = next) {
            next = free_after(set, b, n);
            if (!next || block_reach(b, &b[next]) >= block_reach(b, &b[n])) break;
        }
    }
    if (r->size < limit && b[n].size >= limit) return 0;
    if (r->size >= limit && b[n].size - r->size >= a->conf.max_non_split_rounding_bytes) return 0;
    return n;
}

/* alloc_block: a new segment, or an expandable range grown; 0 when the device is full or the limit is reached. */
static uint32_t caching_alloc_new(tide_caching_allocator *a, const caching_request *r) {
    uint64_t reserved = caching_reserved(a);
    if (a->limit_bytes != UINT64_MAX && reserved + r->segment > a->limit_bytes) return 0;
    if (a->conf.expandable_segments) return tide_caching_range_grow(a, r);
    uint64_t take = TIDE_ROUND_UP(r->segment, CACHING_PAGE_2M);
    if (!tide_caching_device_has_room(a, take)) return 0;
    uint32_t n = tide_caching_segment_new(a, tide_caching_lowest_address(a, take), r->segment, r->stream,
                                          r->pool == TIDE_POOL_SMALL ? BLOCK_SMALL : 0u);
    stat_rise(a, r->pool, TIDE_STAT_SEGMENT, 1);
    stat_rise(a, r->pool, TIDE_STAT_RESERVED_BYTES, r->segment);
    if (r->segment >= a->conf.max_split_size_bytes) counter_rise(&a->oversize_segments, 1);
    a->device_alloc++;
    block_put_free(a, n);
    caching_tell(a, TIDE_SEGMENT_ALLOC, a->blocks[n].address, r->segment, r->stream);
    return n;
}

static inline bool caching_should_split(const tide_caching_allocator *a, const caching_request *r, uint64_t size) {
    uint64_t rest = size - r->size;
    if (r->pool == TIDE_POOL_SMALL || a->conf.expandable_segments) return rest >= CACHING_MIN_BLOCK;
    return r->size < a->conf.max_split_size_bytes && rest > CACHING_SMALL_SIZE;
}

/* alloc_found_block: splits off the low end if it may, and hands it out. */
static inline uint32_t caching_hand_out(tide_caching_allocator *a, const caching_request *r, uint32_t n) {
    caching_block *b = &a->blocks[n];
    unsigned pool = r->pool;
    bool was_split = block_is_split(b), is_native = !(b->flags & BLOCK_EXPANDABLE);
    if (caching_should_split(a, r, b->size)) {
        uint32_t rest = n;
        n = block_new_between(a, b, b->address, r->size, b->prev, rest);
        b->free_since = (uint32_t)a->lookups[pool];
        free_move(&a->streams[b->stream]->free[pool], a->blocks, rest, b->address + r->size, b->size - r->size);
        if (was_split && is_native) {
            stat_fall(a, pool, TIDE_STAT_INACTIVE_SPLIT_BYTES, r->size);
        } else if (is_native) {
            stat_rise(a, pool, TIDE_STAT_INACTIVE_SPLIT_BYTES, b->size);
            stat_rise(a, pool, TIDE_STAT_INACTIVE_SPLIT, 1);
        }
        b = &a->blocks[n];
    } else {
        block_take_free(a, n);
        if (was_split && is_native) {
            stat_fall(a, pool, TIDE_STAT_INACTIVE_SPLIT_BYTES, b->size);
            stat_fall(a, pool, TIDE_STAT_INACTIVE_SPLIT, 1);
        }
    }
    b->flags |= BLOCK_ALLOCATED;
    b->requested = r->requested;
    b->uses = 0;
    stat_rise(a, pool, TIDE_STAT_ALLOCATION, 1);
    stat_rise(a, pool, TIDE_STAT_ALLOCATED_BYTES, b->size);
    stat_rise(a, pool, TIDE_STAT_ACTIVE, 1);
    stat_rise(a, pool, TIDE_STAT_ACTIVE_BYTES, b->size);
    stat_rise(a, pool, TIDE_STAT_REQUESTED_BYTES, r->requested);
    if (b->size >= a->conf.max_split_size_bytes) counter_rise(&a->oversize_allocations, 1);
    return n;
}

static void caching_note_oom(tide_caching_allocator *a, const caching_request *r) {
    uint64_t allocated = a->stat[TIDE_POOL_ALL][TIDE_STAT_ALLOCATED_BYTES].current;
    a->oom = (tide_caching_oom){.requested_bytes = r->requested,
                                .rounded_bytes = r->size,
                                .tried_bytes = r->segment,
                                .total_bytes = a->device_bytes,
                                .free_bytes = tide_caching_device_free_bytes(a),
                                .limit_bytes = a->limit_bytes,
                                .allocated_bytes = allocated,
                                .unallocated_bytes = caching_reserved(a) - allocated,
                                .stream = r->stream};
}

static tide_caching_status caching_out_of_memory(tide_caching_allocator *a, const caching_request *r) {
    a->ooms++;
    caching_note_oom(a, r);
    caching_tell(a, TIDE_DEVICE_OOM, a->oom.free_bytes, r->size, r->stream);
    return TIDE_CACHING_OOM;
}

/* The driver's pool keeps what it has taken, and grows when live bytes exceed it. An estimate. */
static tide_caching_status caching_async_malloc(tide_caching_allocator *a, caching_request *r, tide_block *block) {
    uint64_t live = a->stat[TIDE_POOL_ALL][TIDE_STAT_ALLOCATED_BYTES].current + r->size;
    uint64_t reserved = caching_reserved(a);
    uint64_t want = TIDE_ROUND_UP(live, caching_async_chunk);
    r->pool = TIDE_POOL_LARGE;
    r->segment = r->requested;
    if (a->limit_bytes != UINT64_MAX && a->async_requested + r->requested > a->limit_bytes)
        return caching_out_of_memory(a, r);
    if (want > reserved) {
        if (!tide_caching_device_has_room(a, want - reserved)) return caching_out_of_memory(a, r);
        stat_rise(a, r->pool, TIDE_STAT_RESERVED_BYTES, want - reserved);
    }
    uint32_t n = block_new(a);
    a->blocks[n] = (caching_block){.size = r->size,
                                   .requested = r->requested,
                                   .stream = (uint16_t)r->stream,
                                   .flags = BLOCK_ALLOCATED | BLOCK_USED};
    stat_rise(a, r->pool, TIDE_STAT_ALLOCATED_BYTES, r->size);
    stat_rise(a, r->pool, TIDE_STAT_ACTIVE_BYTES, r->size);
    a->async_requested += r->requested;
    *block = n;
    return TIDE_CACHING_OK;
}

void tide_caching_async_live(tide_caching_allocator *a, int64_t change) {
    caching_counter *live = &a->stat[TIDE_POOL_ALL][TIDE_STAT_ALLOCATED_BYTES];
    if (a->conf.backend != TIDE_ALLOC_CUDA_MALLOC_ASYNC) return;
    live->current += (uint64_t)change;
    uint64_t want = TIDE_ROUND_UP(live->current, caching_async_chunk), reserved = caching_reserved(a);
    if (want > reserved) stat_rise(a, TIDE_POOL_LARGE, TIDE_STAT_RESERVED_BYTES, want - reserved);
}

uint64_t tide_caching_room(const tide_caching_allocator *a) {
    uint64_t reserved = caching_reserved(a), free = tide_caching_device_free_bytes(a);
    uint64_t left = a->limit_bytes > reserved ? a->limit_bytes - reserved : 0;
    return left < free ? left : free;
}

/* throw_on_cudamalloc_oom: a request larger than the whole device fails before any cache is released, and does not
 * count as an out-of-memory error. A process with a limit takes the usual path. As measured on 2.15.0. */
static bool caching_is_rejected(const tide_caching_allocator *a, const caching_request *r) {
    return a->conf.throw_on_cudamalloc_oom && a->limit_bytes == UINT64_MAX &&
           caching_reserved(a) + r->segment > a->device_bytes;
}

/* Nothing cached fits: collect garbage, ask the driver, release cached blocks, ask again. */
static tide_caching_status caching_malloc_slow(tide_caching_allocator *a, const caching_request *r, uint32_t *n) {
    if (!caching_prepare_segments(a, 2) || !caching_prepare_release(a, 8)) {
        if (a->collect_bytes != UINT64_MAX) a->lookups[r->pool]--;
        return TIDE_CACHING_NO_MEMORY;
    }
    if (a->collect_bytes != UINT64_MAX) tide_caching_collect_garbage(a);
    if (caching_is_rejected(a, r)) {
        a->oom_rejections++;
        caching_note_oom(a, r);
        a->oom.is_rejected = true;
        return TIDE_CACHING_OOM;
    }
    *n = caching_alloc_new(a, r);
    if (!*n && tide_caching_release_oversize(a, r)) *n = caching_alloc_new(a, r);
    if (*n) return TIDE_CACHING_OK;
    tide_caching_release_all(a);
    a->alloc_retries++;
    *n = caching_alloc_new(a, r);
    return *n ? TIDE_CACHING_OK : caching_out_of_memory(a, r);
}

tide_caching_status tide_caching_malloc(tide_caching_allocator *a, uint64_t bytes, uint32_t stream, tide_block *block) {
    *block = 0;
    if (bytes == 0) return TIDE_CACHING_OK;
    if (bytes >= CACHING_ONE_EB) {
        a->oom = (tide_caching_oom){.requested_bytes = bytes,
                                    .total_bytes = a->device_bytes,
                                    .limit_bytes = a->limit_bytes,
                                    .stream = stream,
                                    .is_over_1_eb = true};
        return TIDE_CACHING_OOM;
    }
    tide_caching_status status = caching_prepare_stream(a, stream);
    if (status != TIDE_CACHING_OK) return status;
    if (!caching_prepare_blocks(a, 16)) return TIDE_CACHING_NO_MEMORY;
    caching_request r = {.requested = bytes, .stream = stream};
    if (a->conf.backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) {
        r.size = TIDE_ROUND_UP(bytes, CACHING_MIN_BLOCK);
        return caching_async_malloc(a, &r, block);
    }
    if (a->pending_events) tide_caching_process_events(a, false);
    r.size = tide_caching_round(&a->conf, bytes);
    r.pool = r.size <= CACHING_SMALL_SIZE ? TIDE_POOL_SMALL : TIDE_POOL_LARGE;
    uint32_t n = caching_find_free(a, &r);
    if (!n) {
        r.segment = tide_caching_segment_bytes(&a->conf, r.size);
        status = caching_malloc_slow(a, &r, &n);
        if (status != TIDE_CACHING_OK) return status;
    }
    *block = caching_hand_out(a, &r, n);
    return TIDE_CACHING_OK;
}

/* ---- free ---- */

/* insert_events: records an event on every stream that used the block; the block waits for all of them. */
static void caching_insert_events(tide_caching_allocator *a, uint32_t n) {
    for (uint32_t u = a->blocks[n].uses, next; u; u = next) {
        caching_stream *stream = a->streams[a->uses[u].stream];
        next = a->uses[u].next;
        a->uses[u].next = 0;
        a->uses[u].ordinal = stream->issued++;
        if (stream->last_event) {
            a->uses[stream->last_event].next = u;
        } else {
            stream->first_event = u;
        }
        stream->last_event = u;
        a->blocks[n].events++;
        a->pending_events++;
    }
    a->blocks[n].uses = 0;
}

tide_caching_status tide_caching_free(tide_caching_allocator *a, tide_block block) {
    if (block == 0) return TIDE_CACHING_OK;
    if (!caching_is_live(a, block)) return TIDE_CACHING_BAD_BLOCK;
    caching_block *b = &a->blocks[block];
    unsigned pool = block_pool(b);
    b->flags &= (uint8_t)~BLOCK_ALLOCATED;
    stat_fall(a, pool, TIDE_STAT_ALLOCATED_BYTES, b->size);
    if (a->conf.backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) {
        stat_fall(a, pool, TIDE_STAT_ACTIVE_BYTES, b->size);
        a->async_requested -= b->requested;
        block_delete(a, block);
        return TIDE_CACHING_OK;
    }
    stat_fall(a, pool, TIDE_STAT_ALLOCATION, 1);
    if (b->size >= a->conf.max_split_size_bytes) a->oversize_allocations.current--;
    if (b->uses) {
        caching_insert_events(a, block);
    } else {
        caching_give_block(a, block);
    }
    return TIDE_CACHING_OK;
}

tide_caching_status tide_caching_malloc_and_free(tide_caching_allocator *a, uint64_t bytes, uint32_t stream,
                                                 uint64_t *block_bytes) {
    tide_block block;
    /* A block served from the cache returns to where it was split from; nothing else changes but totals and ages that
     * nobody reads. */
    if (a->is_lean && !a->on_call && a->collect_bytes == UINT64_MAX && !a->pending_events && bytes &&
        bytes < CACHING_ONE_EB && a->conf.backend != TIDE_ALLOC_CUDA_MALLOC_ASYNC && stream < a->stream_capacity &&
        a->streams[stream]) {
        caching_request r = {.requested = bytes, .stream = stream};
        r.size = tide_caching_round(&a->conf, bytes);
        r.pool = r.size <= CACHING_SMALL_SIZE ? TIDE_POOL_SMALL : TIDE_POOL_LARGE;
        uint32_t n = caching_find_free(a, &r);
        if (n) {
            *block_bytes = caching_should_split(a, &r, a->blocks[n].size) ? r.size : a->blocks[n].size;
            return TIDE_CACHING_OK;
        }
    }
    tide_caching_status status = tide_caching_malloc(a, bytes, stream, &block);
    *block_bytes = status == TIDE_CACHING_OK ? tide_caching_block_bytes(a, block) : 0;
    return status == TIDE_CACHING_OK ? tide_caching_free(a, block) : status;
}

tide_caching_status tide_caching_record_stream(tide_caching_allocator *a, tide_block block, uint32_t stream) {
    if (block == 0) return TIDE_CACHING_OK;
    if (!caching_is_live(a, block)) return TIDE_CACHING_BAD_BLOCK;
    if (a->blocks[block].stream == stream || a->conf.backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) return TIDE_CACHING_OK;
    tide_caching_status status = caching_prepare_stream(a, stream);
    if (status != TIDE_CACHING_OK) return status;
    for (uint32_t u = a->blocks[block].uses; u; u = a->uses[u].next)
        if (a->uses[u].stream == stream) return TIDE_CACHING_OK;
    uint32_t u = a->spare_use;
    if (u) {
        a->spare_use = a->uses[u].next;
    } else {
        if (!caching_grow(a, &a->uses, &a->use_capacity, (uint64_t)a->use_used + 1, sizeof *a->uses))
            return TIDE_CACHING_NO_MEMORY;
        u = a->use_used++;
    }
    a->uses[u] = (caching_use){.block = block, .next = a->blocks[block].uses, .stream = stream};
    a->blocks[block].uses = u;
    return TIDE_CACHING_OK;
}

void tide_caching_hold_events(tide_caching_allocator *a) {
    a->holds_events = true;
}

void tide_caching_resume_events(tide_caching_allocator *a) {
    a->holds_events = false;
}

void tide_caching_synchronize(tide_caching_allocator *a, uint32_t stream) {
    if (stream < a->stream_capacity && a->streams[stream])
        a->streams[stream]->synchronized = a->streams[stream]->issued;
}

tide_caching_status tide_caching_empty_cache(tide_caching_allocator *a) {
    if (a->conf.backend != TIDE_ALLOC_CUDA_MALLOC_ASYNC) {
        if (!caching_prepare_release(a, 0)) return TIDE_CACHING_NO_MEMORY;
        tide_caching_release_all(a);
        return TIDE_CACHING_OK;
    }
    uint64_t live = a->stat[TIDE_POOL_ALL][TIDE_STAT_ALLOCATED_BYTES].current;
    uint64_t kept = TIDE_ROUND_UP(live, caching_async_chunk);
    stat_fall(a, TIDE_POOL_LARGE, TIDE_STAT_RESERVED_BYTES, caching_reserved(a) - kept);
    return TIDE_CACHING_OK;
}

/* ---- limits and life ---- */

tide_caching_status tide_caching_set_fraction(tide_caching_allocator *a, double fraction) {
    if (!(fraction >= 0 && fraction <= 1)) return TIDE_CACHING_BAD_CONFIG;
    a->limit_bytes = a->collect_bytes = UINT64_MAX;
    /* Since 2.10 a fraction of 1 means no limit. */
    if (fraction < 1 || a->conf.profile == TIDE_ALLOC_TORCH_2_4) {
        a->limit_bytes = caching_share(fraction, a->device_bytes);
        if (a->conf.garbage_collection_threshold > 0)
            a->collect_bytes = caching_share(a->conf.garbage_collection_threshold, a->limit_bytes);
    }
    return TIDE_CACHING_OK;
}

void tide_caching_set_max_split(tide_caching_allocator *a, uint64_t bytes) {
    a->conf.max_split_size_bytes = bytes;
}

void tide_caching_set_outside(tide_caching_allocator *a, uint64_t bytes) {
    a->outside_bytes = bytes < a->device_bytes ? bytes : a->device_bytes;
}

void tide_caching_set_device(tide_caching_allocator *a, uint64_t bytes) {
    a->device_bytes = bytes;
}

tide_caching_status tide_caching_create(tide_caching_allocator **out, const tide_caching_config *config) {
    tide_caching_allocator *a;
    *out = NULL;
    if (config->device_bytes >= CACHING_ONE_EB / 2 || config->conf.large_segment_size_bytes >= CACHING_ONE_EB / 2)
        return TIDE_CACHING_BAD_CONFIG;
    a = config->memory.resize(config->memory.user, NULL, 0, sizeof *a);
    if (!a) return TIDE_CACHING_NO_MEMORY;
    memset(a, 0, sizeof *a);
    a->memory = config->memory;
    a->conf = config->conf;
    a->device_bytes = config->device_bytes;
    a->is_lean = config->is_lean;
    a->on_call = config->on_call;
    a->on_call_user = config->on_call_user;
    a->block_used = a->segment_used = a->use_used = 1;
    a->limit_bytes = a->collect_bytes = UINT64_MAX;
    tide_caching_set_outside(a, config->outside_bytes);
    tide_caching_status status = TIDE_CACHING_OK;
    if (config->conf.per_process_memory_fraction != 1)
        status = tide_caching_set_fraction(a, config->conf.per_process_memory_fraction);
    if (status == TIDE_CACHING_OK && !caching_grow(a, &a->blocks, &a->block_capacity, 64, sizeof *a->blocks))
        status = TIDE_CACHING_NO_MEMORY;
    if (status == TIDE_CACHING_OK) status = caching_prepare_stream(a, 0);
    if (status != TIDE_CACHING_OK) {
        tide_caching_destroy(a);
        return status;
    }
    *out = a;
    return TIDE_CACHING_OK;
}

static void caching_drop(tide_caching_allocator *a, void *array, uint32_t capacity, size_t element) {
    if (array) a->memory.resize(a->memory.user, array, capacity * element, 0);
}

void tide_caching_destroy(tide_caching_allocator *a) {
    if (!a) return;
    for (uint32_t s = 0; s < a->stream_capacity; s++) caching_drop(a, a->streams[s], 1, sizeof **a->streams);
    caching_drop(a, a->streams, a->stream_capacity, sizeof *a->streams);
    caching_drop(a, a->blocks, a->block_capacity, sizeof *a->blocks);
    caching_drop(a, a->segments, a->segment_capacity, sizeof *a->segments);
    caching_drop(a, a->order, a->order_capacity, sizeof *a->order);
    caching_drop(a, a->uses, a->use_capacity, sizeof *a->uses);
    tide_allocator memory = a->memory;
    memory.resize(memory.user, a, sizeof *a, 0);
}
