/* SPDX-License-Identifier: Apache-2.0 */
/* A tape: the requests to one device's allocator, in order, four bytes per event, to be played many times.
 *
 * Readers supply addresses; the tape stores slots. A block takes the slot that was freed last, or a new one, so a
 * player needs one block number per slot and the tape no table of allocations: its memory is the live set, the distinct
 * call sites and four bytes per event. */
#ifndef TIDE_TRACE_TAPE_H
#define TIDE_TRACE_TAPE_H

#include "allocator/allocator.h"

/* The origin of requests: those of one size from one place in the program. */
typedef struct tide_call_site {
    uint64_t bytes;
    uint32_t stream, stack;
} tide_call_site;

enum { TIDE_TAPE_SHIFT = 29, TIDE_TAPE_STREAMS = 1024 };
#define TIDE_TAPE_MASK ((UINT32_C(1) << TIDE_TAPE_SHIFT) - 1)

/* Note [Who released segments] Recordings show that segments were released, but not why: empty_cache() was called, or a
 * request failed and the allocator emptied its cache itself. If no request follows at once, it was empty_cache(). If
 * one follows that needed a new segment, reserved memory was about to become `need`: if it was ever that large, there
 * was room, and it was empty_cache(), too; likewise if the cache could have served the request (report/recording.c
 * finds out). Otherwise the device was full, and the allocator does the same again when the tape is played on a device
 * of that size. */
typedef struct tide_cache_release {
    uint64_t need; /* 0: nothing followed */
    bool is_followed;
} tide_cache_release;

/* A block that existed before the recording began. */
typedef struct tide_older_block {
    uint64_t address;
    uint32_t slot, site;
} tide_older_block;

/* A segment that existed before the recording began, if that is recorded. */
typedef struct tide_older_segment {
    uint64_t address, bytes;
    uint32_t stream;
} tide_older_segment;

/* A free whose wait ended later: the event of the free, and the number that its completion has. */
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
    /* kind << TIDE_TAPE_SHIFT | index. For ALLOC and OOM the index is a site (ALLOC takes the next slot), for FREE and
     * FREE_PENDING a slot, for FREE_COMPLETED the number of the pending free, for RELEASE that of the release. */
    uint32_t *events;
    uint32_t event_count, event_capacity;
    tide_call_site *sites;
    uint32_t site_count, site_capacity;
    uint32_t *site_table, site_table_count; /* open addressing; site + 1 */
    uint32_t workspace_site; /* plus one: the site of cuBLAS's workspace, whose size depends on the GPU; 0: none */
    tide_older_block *older_blocks; /* by slot */
    uint32_t *by_address;           /* indices of older_blocks; after closing */
    uint32_t older_block_count, older_block_capacity;
    tide_older_segment *older_segments; /* by address; all that existed, or none */
    uint32_t older_segment_count, older_segment_capacity;
    tide_cache_release *releases;
    uint32_t release_count, release_capacity;
    tide_pending_free *pending;
    uint32_t pending_count, pending_capacity;
    tide_tape_time *times; /* about one in two hundred events */
    uint32_t time_count, time_capacity;
    uint32_t slot_count, *spare, spare_count, spare_capacity;

    /* while recording */
    tide_live_block *live;
    uint32_t live_count, live_capacity; /* a power of two */
    tide_freed_block *freed;            /* the latest frees, by address */
    uint64_t *streams;                  /* handles, by number */
    uint32_t stream_count;
    int64_t reserved, least_reserved,
        group_reserved; /* of segments, minus what existed before; before a run of segment records */
    uint64_t group_new;
    bool group_releases;

    /* as the recording itself states */
    uint64_t requests, frees, unknown_frees, doubled, ooms;
    uint64_t reserved_peak; /* of its segments */
    uint64_t oom_room;      /* at the first OOM: reserved and free bytes together; 0: there was none */
    bool is_limited;        /* it failed although the device had room: the process had a limit */
    bool has_segments;
} tide_tape;

void tide_tape_init(tide_tape *tape, tide_arena *arena);

/* Streams are given as handles, and numbered in order of first use. Requests of 0 bytes are ignored. False: a limit is
 * reached. */
bool tide_tape_alloc(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack);
/* `bytes`: the size if recorded, for a block that existed before; 0: unknown. */
void tide_tape_free(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
/* A free whose block waits for other streams. */
void tide_tape_free_pending(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
/* The wait of a free is over; if it was recorded as an ordinary free, it turns out to have been pending. */
void tide_tape_free_completed(tide_tape *tape, uint64_t address);
bool tide_tape_oom(tide_tape *tape, uint64_t free_bytes, uint64_t bytes, uint64_t stream, uint32_t stack);
/* A segment was created, or released. */
void tide_tape_segment(tide_tape *tape, bool is_released, uint64_t bytes);
void tide_tape_empty_cache(tide_tape *tape);
void tide_tape_time_is(tide_tape *tape, uint64_t microseconds);
/* A block that is live from the beginning, and may have been freed since. */
void tide_tape_older_block(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack);
/* An existing segment, in order of addresses. */
void tide_tape_older_segment(tide_tape *tape, uint64_t address, uint64_t bytes, uint64_t stream);
bool tide_tape_is_live(const tide_tape *tape, uint64_t address);

/* The recording does not say when waits end: blocks were free at once. */
void tide_tape_no_pending_frees(tide_tape *tape);

/* The slots of a tape's requests during a walk along it: each takes the slot that was freed last, or a new one; those
 * of older blocks are skipped. */
typedef struct tide_tape_slots {
    const tide_tape *tape;
    uint32_t *spare, spare_count, fresh, before;
} tide_tape_slots;

/* `spare` must hold tape->slot_count items. */
void tide_tape_slots_init(tide_tape_slots *slots, const tide_tape *tape, uint32_t *spare);
uint32_t tide_tape_next_slot(tide_tape_slots *slots);
void tide_tape_give_slot(tide_tape_slots *slots, uint32_t slot);

/* No event follows: releases what is only needed for recording. */
void tide_tape_close(tide_tape *tape);

#endif
