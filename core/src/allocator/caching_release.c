/* SPDX-License-Identifier: Apache-2.0 */
/* Releasing memory to the driver. Sources as in caching_allocator.c. */
#include "allocator/caching_free.h"

/* release_block: cudaFree of an unsplit block of a native segment. */
static void caching_release_block(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    unsigned pool = block_pool(b);
    caching_tell(a, TIDE_SEGMENT_FREE, b->address, b->size, b->stream);
    stat_fall(a, pool, TIDE_STAT_SEGMENT, 1);
    stat_fall(a, pool, TIDE_STAT_RESERVED_BYTES, b->size);
    if (b->size >= a->conf.max_split_size_bytes) a->oversize_segments.current--;
    a->device_free++;
    block_take_free(a, n);
    tide_caching_segment_delete(a, b->segment);
    block_delete(a, n);
}

static bool block_is_releasable(const caching_block *b) {
    return !block_is_split(b) && !(b->flags & BLOCK_EXPANDABLE);
}

/* release_blocks: every unsplit native block, then the whole pages of every range. */
static void caching_release_pool(tide_caching_allocator *a, unsigned pool) {
    uint32_t next;
    for (uint32_t s = 0; s < a->stream_capacity; s++) {
        if (!a->streams[s]) continue;
        const free_set *set = &a->streams[s]->free[pool];
        for (uint32_t n = free_from_bin(set, a->blocks, 0); n; n = next) {
            next = free_after(set, a->blocks, n);
            if (block_is_releasable(&a->blocks[n])) caching_release_block(a, n);
        }
    }
    if (!a->range_count) return;
    for (uint32_t s = 0; s < a->stream_capacity; s++) {
        if (!a->streams[s]) continue;
        const free_set *set = &a->streams[s]->free[pool];
        /* What unmapping leaves free is smaller than the original block, so the walk never reaches it. */
        for (uint32_t n = free_from_bin(set, a->blocks, 0); n; n = next) {
            next = free_after(set, a->blocks, n);
            if (a->blocks[n].flags & BLOCK_EXPANDABLE) tide_caching_range_unmap(a, n);
        }
    }
}

void tide_caching_process_events(tide_caching_allocator *a, bool all) {
    for (uint32_t s = 0; s < a->stream_capacity && a->pending_events; s++) {
        caching_stream *stream = a->streams[s];
        while (stream && stream->first_event) {
            uint32_t e = stream->first_event, n = a->uses[e].block;
            if (!all && a->holds_events && a->uses[e].ordinal >= stream->synchronized) break;
            stream->first_event = a->uses[e].next;
            if (!stream->first_event) stream->last_event = 0;
            a->uses[e].next = a->spare_use;
            a->spare_use = e;
            a->pending_events--;
            if (--a->blocks[n].events == 0) caching_give_block(a, n);
        }
    }
}

void tide_caching_release_all(tide_caching_allocator *a) {
    a->sync_all_streams++;
    tide_caching_process_events(a, true);
    caching_release_pool(a, TIDE_POOL_LARGE);
    caching_release_pool(a, TIDE_POOL_SMALL);
}

bool tide_caching_release_oversize(tide_caching_allocator *a, const caching_request *r) {
    uint64_t limit = a->conf.max_split_size_bytes;
    if (limit == UINT64_MAX) return false;
    uint64_t key = r->size < limit ? limit : r->size, released = 0;
    const free_set *set = &a->streams[r->stream]->free[r->pool];
    uint32_t n = key < CACHING_ONE_EB ? free_find(set, a->blocks, key) : 0;
    if (n) {
        if (!block_is_releasable(&a->blocks[n])) return false;
        caching_release_block(a, n);
        return true;
    }
    for (n = free_last(set, a->blocks); n && released < key && a->blocks[n].size >= limit;) {
        uint32_t ahead = free_ahead(set, a->blocks, n);
        if (block_is_releasable(&a->blocks[n])) {
            released += a->blocks[n].size;
            caching_release_block(a, n);
        }
        n = ahead;
    }
    return released >= key;
}

void tide_caching_collect_garbage(tide_caching_allocator *a) {
    uint64_t reserved = caching_reserved(a), ages = 0, count = 0, reclaimed = 0;
    if (reserved <= a->collect_bytes) return;
    uint64_t target = reserved - a->collect_bytes, now = a->lookups[TIDE_POOL_LARGE];
    for (uint32_t s = 0; s < a->stream_capacity; s++) {
        if (!a->streams[s]) continue;
        const free_set *set = &a->streams[s]->free[TIDE_POOL_LARGE];
        for (uint32_t n = free_from_bin(set, a->blocks, 0); n; n = free_after(set, a->blocks, n)) {
            if (block_is_split(&a->blocks[n])) continue;
            ages += (uint32_t)(now - a->blocks[n].free_since);
            count++;
        }
    }
    for (bool has_freed = true; reclaimed < target && has_freed && count > 0;) {
        uint64_t mean_of = count, mean_sum = ages; /* age >= sum / count, without the division */
        has_freed = false;
        for (uint32_t s = 0; s < a->stream_capacity; s++) {
            if (!a->streams[s]) continue;
            const free_set *set = &a->streams[s]->free[TIDE_POOL_LARGE];
            uint32_t next;
            for (uint32_t n = free_from_bin(set, a->blocks, 0); n; n = next) {
                const caching_block *b = &a->blocks[n];
                uint64_t age = (uint32_t)(now - b->free_since);
                next = free_after(set, a->blocks, n);
                if (!block_is_releasable(b) || age * mean_of < mean_sum) continue;
                has_freed = true;
                reclaimed += b->size;
                ages -= age;
                count--;
                caching_release_block(a, n);
            }
        }
    }
}
