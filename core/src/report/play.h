/* A tape through the allocator. */
#ifndef TIDE_PLAY_H
#define TIDE_PLAY_H

#include "report/replay.h"
#include "trace/trace.h"

/* Called for every block that is live where the play stopped. It must not use the tape's arena. */
typedef void tide_live_fn(void *user, const tide_call_site *site, uint64_t block_bytes);

typedef struct tide_column {
    uint32_t from;                /* its first event */
    uint64_t allocated, reserved; /* the most in it */
    uint64_t microseconds;        /* when, as far as recorded */
} tide_column;

/* What an event did. */
typedef struct tide_play_row {
    uint32_t event;
    bool is_played, has_block;
    uint64_t address, bytes;      /* of the block that it took or gave back */
    uint64_t segment;             /* the address of what the block lies in */
    uint64_t allocated, reserved; /* after it */
} tide_play_row;

/* Called where the play stopped; blocks[i] is that of slot i, 0: none. */
typedef void tide_stop_fn(void *user, const tide_caching_allocator *allocator, const tide_block *blocks);

typedef struct tide_play_wants {
    uint32_t stop; /* events to play; UINT32_MAX: all */
    tide_arena
        *arena; /* owns what the allocator takes, so that on_stop may use it; NULL: the tape's memory hook does */
    tide_stop_fn *on_stop; /* may be NULL */
    tide_play_row *rows;   /* row_count of them by event, to be filled */
    uint32_t row_count;
    tide_live_fn *on_live; /* may be NULL */
    void *user;
    bool settles;         /* find out which give_backs were empty_cache(), and note it on the tape */
    tide_column *columns; /* NULL, or column_count of them for the events [from, to) */
    uint32_t column_count, from, to;
} tide_play_wants;

typedef struct tide_play {
    uint32_t events; /* played */
    bool is_oom;     /* a request failed that the recording had; the play ends there */
    tide_caching_oom oom;
    uint32_t oom_stack;
    uint64_t allocated_peak, reserved_peak, requested_peak, allocated, reserved;
    uint64_t retries, ooms;
    uint32_t peak_event, reserved_event;
    /* when the reserved peak was reached first */
    uint64_t allocated_then,
        split_then; /* split: cached in segments that are in use, so that no one can give it back */
} tide_play;

/* False when memory ran out. */
bool tide_play_tape(tide_play *play, const tide_tape *tape, const tide_replay_config *config,
                    const tide_play_wants *wants);

#endif
