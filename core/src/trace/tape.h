/* SPDX-License-Identifier: Apache-2.0 */
/* A tape: what one device's allocator was asked, in order, four bytes an event, made to be played many times.
 *
 * Readers put addresses in; the tape holds slots. A block takes the slot that was given back last, or a new one, so a
 * play keeps one block number a slot and the tape needs no table of allocations: its memory is the live set, the
 * distinct sites and four bytes an event. */
#ifndef TIDE_TRACE_TAPE_H
#define TIDE_TRACE_TAPE_H

#include "allocator/allocator.h"

/* What asks: requests of one size from one place in the program. */
typedef struct tide_call_site {
    uint64_t bytes;
    uint32_t stream, stack;
} tide_call_site;

enum { TIDE_TAPE_SHIFT = 29, TIDE_TAPE_STREAMS = 1024 };
#define TIDE_TAPE_MASK ((UINT32_C(1) << TIDE_TAPE_SHIFT) - 1)

/* Note [Who released segments]
 * Recordings show segments that were released, not why: empty_cache() was called, or a request found no room and the
 * allocator emptied its cache by itself. Where no request follows at once it was empty_cache(). Where one does that
 * needed a new segment: reserved memory was then about to become `need`; if it was ever as large as that, there was
 * room, and it was empty_cache() as well; so it was if the cache could have served the request (report/recording.c
 * finds out). Else the device was full, and the allocator does the same again when the tape is played on a device of
 * that size. */
typedef struct tide_cache_release {
    uint64_t need; /* 0: nothing followed */
    bool is_followed;
} tide_cache_release;

/* A block that was there before the recording began. */
typedef struct tide_older_block {
    uint64_t address;
    uint32_t slot, site;
} tide_older_block;

/* A segment that was there before the recording began, where the recording says so. */
typedef struct tide_older_segment {
    uint64_t address, bytes;
    uint32_t stream;
} tide_older_segment;

/* A free whose block came back later: the event of the free, and the number that its completion has. */
typedef struct tide_pending_free {
    uint32_t event, number;
} tide_pending_free;

typedef struct tide_tape_time {
    uint32_t event;
    uint64_t microseconds;
} tide_tape_time;

typedef struct tide_live_block {
    uint64_t address;
    uint32_t what;  /* its slot, or the number of its pending free */
    uint32_t state; /* 0: the entry is empty */
} tide_live_block;

typedef struct tide_freed_block {
    uint64_t address;
    uint32_t event, slot;
} tide_freed_block;

typedef struct tide_tape {
    tide_arena *arena;
    /* kind << TIDE_TAPE_SHIFT | index. Of ALLOC and OOM a site (ALLOC takes the next slot), of FREE and FREE_PENDING a
     * slot, of FREE_COMPLETED the number of the pending free, of RELEASE that of the release. */
    uint32_t *events;
    uint32_t event_count, event_capacity;
    tide_call_site *sites;
    uint32_t site_count, site_capacity;
    uint32_t *site_table, site_table_count; /* open addressing; site + 1 */
    uint32_t workspace_site;        /* plus one: that of cuBLAS's workspace, whose bytes the GPU decides on; 0: none */
    tide_older_block *older_blocks; /* by slot */
    uint32_t *by_address;           /* indices of older_blocks; once closed */
    uint32_t older_block_count, older_block_capacity;
    tide_older_segment *older_segments; /* by address; all of those there were, or none */
    uint32_t older_segment_count, older_segment_capacity;
    tide_cache_release *releases;
    uint32_t release_count, release_capacity;
    tide_pending_free *pending;
    uint32_t pending_count, pending_capacity;
    tide_tape_time *times; /* one in about two hundred events */
    uint32_t time_count, time_capacity;
    uint32_t slot_count, *spare, spare_count, spare_capacity;

    /* while it is made */
    tide_live_block *live;
    uint32_t live_count, live_capacity; /* a power of two */
    tide_freed_block *freed;            /* the latest frees, by address */
    uint64_t *streams;                  /* handles by number */
    uint32_t stream_count;
    int64_t reserved, least_reserved,
        group_reserved; /* of segments, less what there was before; before a run of segment records */
    uint64_t group_new;
    bool group_releases;

    /* what the recording itself says */
    uint64_t requests, frees, unknown_frees, doubled, ooms;
    uint64_t reserved_peak; /* of its segments */
    uint64_t oom_room;      /* at the first OOM: reserved and free bytes together; 0: there was none */
    bool is_limited;        /* it failed with room left on the device: the process had a limit */
    bool has_segments;
} tide_tape;

void tide_tape_init(tide_tape *tape, tide_arena *arena);

/* Streams are given by handle, and numbered in order of first use. 0 bytes are no request. False: a limit is reached.
 */
bool tide_tape_alloc(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack);
/* `bytes`: the size, if the record has it, for a block that was there before; 0: none. */
void tide_tape_free(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
/* A free whose block waits for other streams. */
void tide_tape_free_pending(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
/* Its block comes back; if its free was an ordinary one, that turns out to have been pending. */
void tide_tape_free_completed(tide_tape *tape, uint64_t address);
bool tide_tape_oom(tide_tape *tape, uint64_t free_bytes, uint64_t bytes, uint64_t stream, uint32_t stack);
/* A segment was made, or released. */
void tide_tape_segment(tide_tape *tape, bool is_released, uint64_t bytes);
void tide_tape_empty_cache(tide_tape *tape);
void tide_tape_time_is(tide_tape *tape, uint64_t microseconds);
/* A block that is live from the beginning, and may have been freed since. */
void tide_tape_older_block(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack);
/* A segment that was there, in order of addresses. */
void tide_tape_older_segment(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
bool tide_tape_is_live(const tide_tape *tape, uint64_t address);

/* The recording never says when blocks came back: they were back at once. */
void tide_tape_no_pending_frees(tide_tape *tape);

/* The slots of a tape's requests, as one walks along it: each takes the one that was given back last, else a new one;
 * those of blocks from before the recording are passed over. */
typedef struct tide_tape_slots {
    const tide_tape *tape;
    uint32_t *spare, spare_count, fresh, before;
} tide_tape_slots;

/* `spare` has room for tape->slot_count. */
void tide_tape_slots_init(tide_tape_slots *slots, const tide_tape *tape, uint32_t *spare);
uint32_t tide_tape_next_slot(tide_tape_slots *slots);
void tide_tape_give_slot(tide_tape_slots *slots, uint32_t slot);

/* No event follows: drops what only making it needs. */
void tide_tape_close(tide_tape *tape);

#endif
