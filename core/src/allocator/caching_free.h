/* SPDX-License-Identifier: Apache-2.0 */
/* How a block becomes reusable: by free() and by completed events. Private to allocator/. */
#ifndef TIDE_ALLOCATOR_CACHING_FREE_H
#define TIDE_ALLOCATOR_CACHING_FREE_H

#include "allocator/caching_state.h"

/* Whether a mapped block can merge with its neighbour. */
static inline bool block_joins(const tide_caching_allocator *a, uint32_t neighbour) {
    return block_is_idle(a, neighbour) && !(a->blocks[neighbour].flags & BLOCK_UNMAPPED);
}

/* Merges neighbour n, which is in no set, into a block of the free set. */
static inline void block_join(tide_caching_allocator *a, uint32_t into, uint32_t n) {
    caching_block *b = &a->blocks[into], *f = &a->blocks[n];
    uint64_t address = b->address;
    if (f->next == into) {
        address = f->address;
        b->prev = f->prev;
        if (b->prev) {
            a->blocks[b->prev].next = into;
        } else {
            a->segments[b->segment].head = into;
        }
    } else {
        b->next = f->next;
        if (b->next) a->blocks[b->next].prev = into;
    }
    b->requested = f->requested;
    b->free_since = (uint32_t)a->lookups[block_pool(b)];
    free_move(&a->streams[b->stream]->free[block_pool(b)], a->blocks, into, address, b->size + f->size);
    block_delete(a, n);
}

/* free_block: the block becomes reusable, merged with its idle neighbours. A neighbour's place in the free set usually
 * suits the merged block too. */
static inline void caching_give_block(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    unsigned pool = block_pool(b);
    uint32_t prev = b->prev, next = b->next, whole = n;
    uint64_t size = b->size, requested = b->requested;
    uint64_t gained_before = block_joins(a, prev) ? a->blocks[prev].size : 0;
    uint64_t gained_after = block_joins(a, next) ? a->blocks[next].size : 0;
    if (gained_after) {
        if (gained_before) block_merge(a, n, prev);
        whole = next;
    } else if (gained_before) {
        whole = prev;
    }
    if (whole == n) {
        block_put_free(a, n);
    } else {
        block_join(a, whole, n);
    }
    b = &a->blocks[whole];
    if (!(b->flags & BLOCK_EXPANDABLE)) {
        /* The net change: a merged neighbour leaves, this block enters if it is still split. */
        int count = -(gained_before > 0) - (gained_after > 0);
        if (block_is_split(b)) {
            count++;
            stat_rise(a, pool, TIDE_STAT_INACTIVE_SPLIT_BYTES, size);
        } else {
            stat_fall(a, pool, TIDE_STAT_INACTIVE_SPLIT_BYTES, gained_before + gained_after);
        }
        if (count > 0) stat_rise(a, pool, TIDE_STAT_INACTIVE_SPLIT, 1);
        if (count < 0) stat_fall(a, pool, TIDE_STAT_INACTIVE_SPLIT, (uint64_t)-count);
    }
    stat_fall(a, pool, TIDE_STAT_ACTIVE, 1);
    stat_fall(a, pool, TIDE_STAT_ACTIVE_BYTES, size);
    stat_fall(a, pool, TIDE_STAT_REQUESTED_BYTES, requested);
}

#endif
