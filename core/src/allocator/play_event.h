/* SPDX-License-Identifier: Apache-2.0 */
/* Playing one event. Private to allocator/. */
#ifndef TIDE_ALLOCATOR_PLAY_EVENT_H
#define TIDE_ALLOCATOR_PLAY_EVENT_H

#include "allocator/player.h"
#include "base/invariant.h"

/* A pending free is modelled as the use of a stream of its own, one of this many at the top of the range. */
enum { PENDING_STREAMS = 256, FIRST_PENDING_STREAM = TIDE_CACHING_STREAM_LIMIT - PENDING_STREAMS };

enum { SMALL_BLOCK = 1 << 20 }; /* c10/core/AllocatorConfig.h: kSmallSize */

/* A slot received its block. */
static inline void rise(tide_player *p, uint32_t slot, uint64_t block_bytes, uint64_t bytes) {
    tide_replay *r = &p->figures;
    r->block_bytes[slot] = block_bytes;
    r->allocated += block_bytes;
    r->requested += bytes;
    r->reserved = tide_caching_reserved(p->allocator);
    if (r->requested > r->requested_peak) r->requested_peak = r->requested;
    if (r->allocated > r->allocated_peak || (r->allocated == r->allocated_peak && r->reserved > r->peak_reserved)) {
        r->allocated_peak = r->allocated;
        r->peak_reserved = r->reserved;
        r->peak_event = r->events;
        r->peak_iteration = p->repeating.iteration;
        r->peak_outer = p->outer.iteration;
    }
    if (r->reserved > r->reserved_peak) {
        r->reserved_peak = r->reserved;
        r->reserved_event = r->events;
        r->allocated_then = r->allocated;
        r->split_then = tide_caching_stat(p->allocator, TIDE_STAT_INACTIVE_SPLIT_BYTES, TIDE_POOL_ALL).current;
    }
}

/* The slots below this one hold what the repetition's backward frees; 0: it is none. */
static inline uint32_t end_of_saved(const tide_repetition *of) {
    const tide_repetition *saving = of - of->unwinds;
    return of->unwinds ? saving->first_held + saving->times * saving->held_count : 0;
}

/* Moves a block to another slot. */
static inline void move_block(tide_player *p, uint32_t from, uint32_t to) {
    p->blocks[to] = p->blocks[from];
    p->figures.block_bytes[to] = p->figures.block_bytes[from];
    p->blocks[from] = 0;
}

static inline tide_caching_status play_request(tide_player *p, uint32_t slot, uint32_t stream, uint64_t bytes) {
    TIDE_INVARIANT(slot < p->source->slot_count && !p->blocks[slot]);
    tide_caching_status status = tide_caching_malloc(p->allocator, bytes, stream, &p->blocks[slot]);
    if (status == TIDE_CACHING_OK) rise(p, slot, tide_caching_block_bytes(p->allocator, p->blocks[slot]), bytes);
    return status;
}

static inline void give(tide_player *p, uint32_t slot) {
    tide_block block = p->blocks[slot];
    if (!block) return;
    p->blocks[slot] = 0;
    TIDE_INVARIANT(p->figures.allocated >= p->figures.block_bytes[slot]);
    p->figures.allocated -= p->figures.block_bytes[slot];
    p->figures.requested -= tide_caching_requested_bytes(p->allocator, block);
    tide_caching_free(p->allocator, block);
}

/* If all streams are taken, the block is free at once. */
static inline tide_caching_status free_pending(tide_player *p, const tide_event *e) {
    tide_caching_status status = TIDE_CACHING_OK;
    if (p->free_stream_count && p->blocks[e->slot]) {
        uint16_t stream = p->free_streams[--p->free_stream_count];
        p->pending_streams[e->pending] = stream;
        status = tide_caching_record_stream(p->allocator, p->blocks[e->slot], stream);
    }
    if (status == TIDE_CACHING_OK) give(p, e->slot);
    return status == TIDE_CACHING_OK ? status : TIDE_CACHING_NO_MEMORY;
}

static inline void free_completed(tide_player *p, uint32_t pending) {
    TIDE_INVARIANT(pending < p->source->pending_count);
    if (!p->pending_streams[pending]) return;
    tide_caching_synchronize(p->allocator, p->pending_streams[pending]);
    p->free_streams[p->free_stream_count++] = p->pending_streams[pending];
    p->pending_streams[pending] = 0;
}

/* A request that failed in the recorded run, which went on without it. */
static inline tide_caching_status fail(tide_player *p, const tide_event *e) {
    tide_block block;
    tide_caching_status status = tide_caching_malloc(p->allocator, e->bytes, e->stream, &block);
    tide_caching_free(p->allocator, block);
    p->figures.reserved = tide_caching_reserved(p->allocator);
    return status == TIDE_CACHING_OOM ? TIDE_CACHING_OK : status;
}

static inline tide_caching_status release(tide_player *p, const tide_event *e) {
    tide_caching_status status = e->is_retry ? TIDE_CACHING_OK : tide_caching_empty_cache(p->allocator);
    p->figures.reserved = tide_caching_reserved(p->allocator);
    return status;
}

static inline tide_caching_status play_event(tide_player *p, const tide_event *e) {
    switch ((tide_event_kind)e->kind) {
    case TIDE_EVENT_ALLOC:
        return play_request(p, e->slot, e->stream, e->bytes);
    case TIDE_EVENT_FREE:
        if (e->used_by) tide_caching_record_stream(p->allocator, p->blocks[e->slot], e->used_by - 1u);
        give(p, e->slot);
        return TIDE_CACHING_OK;
    case TIDE_EVENT_FREE_PENDING:
        return free_pending(p, e);
    case TIDE_EVENT_FREE_COMPLETED:
        free_completed(p, e->pending);
        return TIDE_CACHING_OK;
    case TIDE_EVENT_OOM:
        return fail(p, e);
    case TIDE_EVENT_RELEASE:
        return release(p, e);
    }
    return TIDE_CACHING_OK;
}

/* A request that the next event frees, up to that free; returns the size of its block. */
static inline tide_caching_status take_transient(tide_player *p, const tide_event *e, uint64_t *block_bytes) {
    *block_bytes = 0;
    tide_caching_status status = tide_caching_malloc_and_free(p->allocator, e->bytes, e->stream, block_bytes);
    if (status == TIDE_CACHING_OK) rise(p, e->slot, *block_bytes, e->bytes);
    return status;
}

static inline void give_transient(tide_player *p, const tide_event *e, uint64_t block_bytes) {
    p->figures.allocated -= block_bytes;
    p->figures.requested -= e->bytes;
}

#endif
