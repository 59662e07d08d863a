/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the caching allocator: statistics by name, segments and blocks by address, invariants. */
#include <string.h>

#include "allocator/caching_state.h"
#include "base/units.h"

/* ---- what is read ---- */

static tide_stat caching_stat_of(const caching_counter *c) {
    return (tide_stat){c->current, c->peak, c->allocated, c->allocated + c->base - c->current};
}

tide_stat tide_caching_stat(const tide_caching_allocator *a, tide_statistic statistic, tide_pool_kind pool) {
    caching_counter c = a->stat[pool][statistic];
    if (pool == TIDE_POOL_ALL) {
        const caching_counter *large = &a->stat[TIDE_POOL_LARGE][statistic];
        const caching_counter *small = &a->stat[TIDE_POOL_SMALL][statistic];
        c.allocated = large->allocated + small->allocated;
        c.base = large->base + small->base;
    }
    return caching_stat_of(&c);
}

uint64_t tide_caching_reserved(const tide_caching_allocator *a) {
    return caching_reserved(a);
}

static void counter_reset(caching_counter *c, bool peak) {
    if (peak) {
        c->peak = c->current;
    } else {
        c->allocated = 0;
        c->base = c->current;
    }
}

static void caching_reset(tide_caching_allocator *a, bool peak) {
    for (int pool = 0; pool < 3; pool++)
        for (int s = 0; s < TIDE_STAT_COUNT; s++) counter_reset(&a->stat[pool][s], peak);
    counter_reset(&a->oversize_allocations, peak);
    counter_reset(&a->oversize_segments, peak);
}

void tide_caching_reset_peaks(tide_caching_allocator *a) {
    caching_reset(a, true);
}

void tide_caching_reset_accumulated(tide_caching_allocator *a) {
    caching_reset(a, false);
    a->alloc_retries = a->ooms = a->oom_rejections = a->sync_all_streams = a->device_alloc = a->device_free = 0;
}

uint64_t tide_caching_address(const tide_caching_allocator *a, tide_block block) {
    return caching_is_live(a, block) ? a->blocks[block].address : 0;
}

uint64_t tide_caching_block_bytes(const tide_caching_allocator *a, tide_block block) {
    return caching_is_live(a, block) ? a->blocks[block].size : 0;
}

uint64_t tide_caching_requested_bytes(const tide_caching_allocator *a, tide_block block) {
    return caching_is_live(a, block) ? a->blocks[block].requested : 0;
}

void tide_caching_fetch(const tide_caching_allocator *a, tide_block block) {
    CACHING_FETCH(&a->blocks[block]);
}

void tide_caching_fetch_neighbours(const tide_caching_allocator *a, tide_block block) {
    CACHING_FETCH(&a->blocks[a->blocks[block].prev]);
    CACHING_FETCH(&a->blocks[a->blocks[block].next]);
}

tide_caching_counts tide_caching_counters(const tide_caching_allocator *a) {
    return (tide_caching_counts){.alloc_retries = a->alloc_retries,
                                 .ooms = a->ooms,
                                 .oom_rejections = a->oom_rejections,
                                 .sync_all_streams = a->sync_all_streams,
                                 .device_alloc = a->device_alloc,
                                 .device_free = a->device_free,
                                 .oversize_allocations = caching_stat_of(&a->oversize_allocations),
                                 .oversize_segments = caching_stat_of(&a->oversize_segments),
                                 .max_split_size_bytes = a->conf.max_split_size_bytes};
}

tide_caching_oom tide_caching_oom_info(const tide_caching_allocator *a) {
    return a->oom;
}

static const char *const caching_statistic_names[TIDE_STAT_COUNT] = {
#define TIDE_STATISTIC_NAME(name, text) text,
    TIDE_STATISTICS(TIDE_STATISTIC_NAME)
#undef TIDE_STATISTIC_NAME
};

const char *tide_statistic_name(tide_statistic statistic) {
    return caching_statistic_names[statistic];
}

/* What follows `prefix` in key, or NULL. */
static const char *caching_after(const char *key, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 ? key + n : NULL;
}

static bool caching_stat_field(tide_stat s, const char *field, uint64_t *value) {
    const char *const names[] = {".current", ".peak", ".allocated", ".freed"};
    const uint64_t values[] = {s.current, s.peak, s.allocated, s.freed};
    for (int i = 0; i < 4; i++)
        if (strcmp(field, names[i]) == 0) {
            *value = values[i];
            return true;
        }
    return false;
}

bool tide_caching_stat_named(const tide_caching_allocator *a, const char *key, uint64_t *value) {
    static const char *const pools[3] = {".large_pool", ".small_pool", ".all"};
    const struct {
        const char *name;
        uint64_t value;
    } scalars[] = {{"num_alloc_retries", a->alloc_retries},         {"num_ooms", a->ooms},
                   {"num_oom_rejections", a->oom_rejections},       {"num_sync_all_streams", a->sync_all_streams},
                   {"num_device_alloc", a->device_alloc},           {"num_device_free", a->device_free},
                   {"max_split_size", a->conf.max_split_size_bytes}};
    const char *rest;
    for (size_t i = 0; i < TIDE_COUNT_OF(scalars); i++)
        if (strcmp(key, scalars[i].name) == 0) {
            *value = scalars[i].value;
            return true;
        }
    if ((rest = caching_after(key, "oversize_allocations")))
        return caching_stat_field(caching_stat_of(&a->oversize_allocations), rest, value);
    if ((rest = caching_after(key, "oversize_segments")))
        return caching_stat_field(caching_stat_of(&a->oversize_segments), rest, value);
    for (int s = 0; s < TIDE_STAT_COUNT; s++)
        for (int pool = 0; pool < 3; pool++)
            if ((rest = caching_after(key, caching_statistic_names[s])) && (rest = caching_after(rest, pools[pool])))
                return caching_stat_field(tide_caching_stat(a, (tide_statistic)s, (tide_pool_kind)pool), rest, value);
    return false;
}

/* ---- segments and blocks by address ---- */

static uint32_t caching_next_mapped(const tide_caching_allocator *a, uint32_t n) {
    while (n && a->blocks[n].flags & BLOCK_UNMAPPED) n = a->blocks[n].next;
    return n;
}

bool tide_caching_next_segment(const tide_caching_allocator *a, tide_caching_cursor *cursor,
                               tide_segment_info *segment) {
    uint32_t n = caching_next_mapped(a, cursor->end);
    while (!n) {
        if (cursor->position == a->segment_count) return false;
        n = caching_next_mapped(a, segment_at(a, cursor->position++)->head);
    }
    const caching_block *b = &a->blocks[n];
    *segment = (tide_segment_info){.address = b->address,
                                   .stream = b->stream,
                                   .is_small = (b->flags & BLOCK_SMALL) != 0,
                                   .is_expandable = (b->flags & BLOCK_EXPANDABLE) != 0};
    cursor->block = n;
    for (; n && !(a->blocks[n].flags & BLOCK_UNMAPPED); n = a->blocks[n].next) segment->bytes += a->blocks[n].size;
    cursor->end = n;
    return true;
}

bool tide_caching_next_block(const tide_caching_allocator *a, tide_caching_cursor *cursor, tide_block_info *block) {
    uint32_t n = cursor->block;
    if (!n || n == cursor->end) return false;
    const caching_block *b = &a->blocks[n];
    *block = (tide_block_info){.address = b->address,
                               .bytes = b->size,
                               .requested_bytes = b->requested,
                               .block = n,
                               .stream = b->stream,
                               .state = b->flags & BLOCK_ALLOCATED ? TIDE_BLOCK_LIVE
                                        : b->events                ? TIDE_BLOCK_PENDING
                                                                   : TIDE_BLOCK_FREE};
    cursor->block = b->next;
    return true;
}

/* ---- invariants ---- */

typedef struct caching_census {
    uint64_t live, live_bytes, active, active_bytes, requested, mapped_bytes;
    uint64_t free, split, split_bytes, unmapped, native_segments;
} caching_census;

static const char *caching_check_block(const tide_caching_allocator *a, uint32_t n, caching_census *c) {
    const caching_block *b = &a->blocks[n];
    bool is_live = b->flags & BLOCK_ALLOCATED, is_unmapped = b->flags & BLOCK_UNMAPPED;
    bool is_idle = block_is_idle(a, n);
    if (!(b->flags & BLOCK_USED)) return "a segment holds a spare record";
    if (b->size == 0 || b->size % CACHING_MIN_BLOCK) return "a block's size is not a multiple of 512";
    if (b->next) {
        const caching_block *next = &a->blocks[b->next];
        if (next->prev != n) return "neighbours disagree";
        if (next->address != b->address + b->size) return "neighbours do not touch";
        if (is_idle && block_is_idle(a, b->next) && !((b->flags ^ next->flags) & BLOCK_UNMAPPED))
            return "two adjacent free blocks";
    }
    if (!is_unmapped) c->mapped_bytes += b->size;
    if (is_unmapped) c->unmapped++;
    if (is_live) {
        c->live++;
        c->live_bytes += b->size;
    }
    if (!is_idle) {
        c->active++;
        c->active_bytes += b->size;
        c->requested += b->requested;
    } else if (!is_unmapped) {
        c->free++;
        if (block_is_split(b) && !(b->flags & BLOCK_EXPANDABLE)) {
            c->split++;
            c->split_bytes += b->size;
        }
    }
    return NULL;
}

/* Whether every free set is in order, and all of them hold `free` blocks in total. */
static const char *caching_check_sets(const tide_caching_allocator *a, const caching_census *c) {
    uint64_t free = 0, unmapped = 0;
    const caching_block *b = a->blocks;
    for (uint32_t s = 0; s < a->stream_capacity; s++)
        for (unsigned pool = 0; a->streams[s] && pool < 2; pool++) {
            const free_set *set = &a->streams[s]->free[pool];
            uint32_t last = 0, root = a->streams[s]->unmapped[pool];
            for (uint32_t n = free_from_bin(set, b, 0); n; last = n, n = free_after(set, b, n), free++) {
                if (b[n].stream != s || block_pool(&b[n]) != pool) return "a block is in another's free set";
                if (last && !tree_before(&b[last], &b[n], true)) return "a free set is out of order";
                if (!block_is_idle(a, n) || b[n].flags & BLOCK_UNMAPPED) return "a free set holds a used block";
            }
            if (last != free_last(set, b)) return "a free set has two ends";
            for (uint32_t n = tree_first(b, root); n; n = tree_after(b, root, n, false)) unmapped++;
        }
    if (free != c->free || unmapped != c->unmapped) return "a free block is in no set";
    return NULL;
}

static const char *caching_check_stats(const tide_caching_allocator *a, const caching_census *c) {
    const caching_counter *all = a->stat[TIDE_POOL_ALL];
    if (c->live != all[TIDE_STAT_ALLOCATION].current) return "live blocks do not add up to allocations";
    if (c->active != all[TIDE_STAT_ACTIVE].current || c->active_bytes != all[TIDE_STAT_ACTIVE_BYTES].current)
        return "blocks in use do not add up to active_bytes";
    if (c->requested != all[TIDE_STAT_REQUESTED_BYTES].current) return "requests do not add up";
    if (c->split != all[TIDE_STAT_INACTIVE_SPLIT].current ||
        c->split_bytes != all[TIDE_STAT_INACTIVE_SPLIT_BYTES].current)
        return "split free blocks do not add up to inactive_split_bytes";
    if (c->native_segments != all[TIDE_STAT_SEGMENT].current) return "segments do not add up";
    if (all[TIDE_STAT_ALLOCATED_BYTES].current > caching_reserved(a)) return "allocated exceeds reserved";
    for (int s = 0; s < TIDE_STAT_COUNT; s++)
        if (a->stat[TIDE_POOL_SMALL][s].current + a->stat[TIDE_POOL_LARGE][s].current != all[s].current)
            return "the pools do not add up to all";
    return NULL;
}

const char *tide_caching_check(const tide_caching_allocator *a) {
    caching_census c = {0};
    uint64_t end = 0;
    if (a->conf.backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) return NULL;
    for (uint32_t i = 0; i < a->segment_count; i++) {
        const caching_segment *s = segment_at(a, i);
        uint64_t size = 0;
        if (s->address < end) return "segments overlap";
        if (a->blocks[s->head].prev || a->blocks[s->head].address != s->address) return "a segment lost its head";
        for (uint32_t n = s->head; n; n = a->blocks[n].next) {
            const char *what = caching_check_block(a, n, &c);
            if (what) return what;
            size += a->blocks[n].size;
        }
        if (size != s->size) return "blocks do not fill their segment";
        end = s->address + s->size;
        c.native_segments += !(s->flags & BLOCK_EXPANDABLE);
    }
    const caching_counter *all = a->stat[TIDE_POOL_ALL];
    if (c.mapped_bytes != caching_reserved(a)) return "segments do not add up to reserved_bytes";
    if (c.live_bytes != all[TIDE_STAT_ALLOCATED_BYTES].current) return "live blocks do not add up to allocated_bytes";
    const char *what = a->is_lean ? NULL : caching_check_stats(a, &c);
    return what ? what : caching_check_sets(a, &c);
}
