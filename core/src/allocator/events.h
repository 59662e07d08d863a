/* SPDX-License-Identifier: Apache-2.0 */
/* What is played: requests and frees, in order, of a job's timeline or of a recording's tape. */
#ifndef TIDE_ALLOCATOR_EVENTS_H
#define TIDE_ALLOCATOR_EVENTS_H

#include <stdbool.h>

#include "allocator/caching_allocator.h"
#include "allocator/timeline.h"

typedef enum tide_event_kind {
    TIDE_EVENT_ALLOC,
    TIDE_EVENT_FREE,
    TIDE_EVENT_FREE_PENDING,   /* freed, its block waits for other streams */
    TIDE_EVENT_FREE_COMPLETED, /* its block came back */
    TIDE_EVENT_OOM,            /* a request that could not be had */
    TIDE_EVENT_RELEASE         /* cached segments went to the driver */
} tide_event_kind;

enum { TIDE_NO_SLOT = INT32_MAX, TIDE_NO_REQUEST = INT32_MAX };

typedef struct tide_event {
    uint64_t bytes;   /* of ALLOC and OOM: asked for */
    uint32_t slot;    /* of ALLOC, FREE, FREE_PENDING: the block's, from the one to the other; else TIDE_NO_SLOT */
    uint32_t request; /* what asked for the block: an allocation, a call site; TIDE_NO_REQUEST: of none */
    uint32_t pending; /* of FREE_PENDING and FREE_COMPLETED: the number of the pending free */
    uint32_t other;   /* of frees: the event that took the block; of FREE_COMPLETED: its free; TIDE_NEVER: none */
    uint16_t stream;
    uint8_t kind;    /* tide_event_kind */
    uint8_t used_by; /* of FREE: one more than a stream that its block waits for (record_stream); 0: none */
    bool is_retry;   /* of RELEASE: a request found no room, as it will again: nothing is played */
} tide_event;

typedef struct tide_event_source tide_event_source;
struct tide_player;
struct tide_replay_config;

/* A walk along the events. */
typedef struct tide_event_cursor {
    const tide_event_source *source;
    uint32_t event; /* the next one */
    /* Of a repetition that grows, while the walk is in it: how many playings are to come; NULL: the last one is read.
     */
    const tide_repetition *growing;
    uint32_t to_come;
    void *state; /* the source's */
} tide_event_cursor;

/* What a source does. */
typedef struct tide_event_reader {
    /* NULL where a walk needs no state. */
    void *(*open)(const tide_event_source *source, tide_arena *arena);
    void (*close)(void *state, tide_arena *arena);
    /* The next events, `count` of them, which there are. */
    void (*read)(tide_event_cursor *cursor, tide_event *events, uint32_t count);
    /* Of a live slot where the walk stands: what asked for its block, and the event that took it; TIDE_NEVER: it is
     * older than the first. */
    uint32_t (*request_of)(const tide_event_cursor *cursor, uint32_t slot);
    uint32_t (*born)(const tide_event_cursor *cursor, uint32_t slot);
    /* Takes the blocks that are older than the first event; NULL: there are none. */
    tide_caching_status (*take_older)(struct tide_player *player, const struct tide_replay_config *config);
} tide_event_reader;

struct tide_event_source {
    const tide_event_reader *reader;
    const void *of; /* the reader's */
    uint32_t event_count, slot_count, pending_count;
    const tide_mark *marks; /* where phases end */
    uint32_t mark_count;
    const tide_repetition *repetitions; /* a slot is an allocation where there are any */
    uint32_t repetition_count;
};

/* The events of a timeline: a slot and a request are an allocation. */
tide_event_source tide_timeline_events(const tide_timeline *timeline);

static inline void tide_cursor_open(tide_event_cursor *cursor, const tide_event_source *source, tide_arena *arena) {
    *cursor = (tide_event_cursor){.source = source};
    if (source->reader->open) cursor->state = source->reader->open(source, arena);
}

static inline void tide_cursor_close(tide_event_cursor *cursor, tide_arena *arena) {
    if (cursor->source->reader->close) cursor->source->reader->close(cursor->state, arena);
}

/* The next event. */
static inline tide_event tide_cursor_next(tide_event_cursor *cursor) {
    tide_event event;
    cursor->source->reader->read(cursor, &event, 1);
    return event;
}

#endif
