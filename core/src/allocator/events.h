/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the player: the requests and frees of a job's timeline or of a recording's tape, in order. */
#ifndef TIDE_ALLOCATOR_EVENTS_H
#define TIDE_ALLOCATOR_EVENTS_H

#include <stdbool.h>

#include "allocator/caching_allocator.h"
#include "allocator/timeline.h"

typedef enum tide_event_kind {
    TIDE_EVENT_ALLOC,
    TIDE_EVENT_FREE,
    TIDE_EVENT_FREE_PENDING,   /* freed, but its block waits for other streams */
    TIDE_EVENT_FREE_COMPLETED, /* the wait is over */
    TIDE_EVENT_OOM,            /* a request that failed */
    TIDE_EVENT_RELEASE         /* cached segments were released to the driver */
} tide_event_kind;

enum { TIDE_NO_SLOT = INT32_MAX, TIDE_NO_REQUEST = INT32_MAX };

typedef struct tide_event {
    uint64_t bytes;   /* of ALLOC and OOM: requested */
    uint32_t slot;    /* of ALLOC, FREE, FREE_PENDING: holds the block between the two; else TIDE_NO_SLOT */
    uint32_t request; /* what requested the block: an allocation, or a call site; else TIDE_NO_REQUEST */
    uint32_t pending; /* of FREE_PENDING and FREE_COMPLETED: numbers the pending free */
    uint32_t other; /* of frees: the event that took the block; of FREE_COMPLETED: that of the free; TIDE_NEVER: none */
    uint16_t stream;
    uint8_t kind;    /* tide_event_kind */
    uint8_t used_by; /* of FREE: one plus the stream that its block waits for (record_stream); 0: none */
    bool is_retry;   /* of RELEASE: because a request failed, which will happen again when it is played, so there is
                        nothing to play */
} tide_event;

typedef struct tide_event_source tide_event_source;
struct tide_player;
struct tide_replay_config;

/* A position in the events. */
typedef struct tide_event_cursor {
    const tide_event_source *source;
    uint32_t event; /* to be read next */
    /* while inside of a repetition whose requests grow: how many iterations are still to come; NULL: its events are
     * read as those of the last one */
    const tide_repetition *growing;
    uint32_t to_come;
    void *state; /* of the source */
} tide_event_cursor;

/* What a source implements. */
typedef struct tide_event_reader {
    /* NULL if a walk needs no state. */
    void *(*open)(const tide_event_source *source, tide_arena *arena);
    void (*close)(void *state, tide_arena *arena);
    /* Reads the next `count` events, which exist. */
    void (*read)(tide_event_cursor *cursor, tide_event *events, uint32_t count);
    /* For a live slot at the cursor: what requested its block, and the event that took it; TIDE_NEVER: it is older than
     * all events. */
    uint32_t (*request_of)(const tide_event_cursor *cursor, uint32_t slot);
    uint32_t (*born)(const tide_event_cursor *cursor, uint32_t slot);
    /* Allocates the blocks that are older than the first event; NULL: there are none. */
    tide_caching_status (*take_older)(struct tide_player *player, const struct tide_replay_config *config);
} tide_event_reader;

struct tide_event_source {
    const tide_event_reader *reader;
    const void *of; /* for the reader */
    uint32_t event_count, slot_count, pending_count;
    const tide_mark *marks; /* where phases end */
    uint32_t mark_count;
    const tide_repetition *repetitions; /* if there are any, slots are allocations */
    uint32_t repetition_count;
};

/* The events of a timeline: slots and requests are allocations. */
tide_event_source tide_timeline_events(const tide_timeline *timeline);

static inline void tide_cursor_open(tide_event_cursor *cursor, const tide_event_source *source, tide_arena *arena) {
    *cursor = (tide_event_cursor){.source = source};
    if (source->reader->open) cursor->state = source->reader->open(source, arena);
}

static inline void tide_cursor_close(tide_event_cursor *cursor, tide_arena *arena) {
    if (cursor->source->reader->close) cursor->source->reader->close(cursor->state, arena);
}

/* Reads one event. */
static inline tide_event tide_cursor_next(tide_event_cursor *cursor) {
    tide_event event;
    cursor->source->reader->read(cursor, &event, 1);
    return event;
}

#endif
