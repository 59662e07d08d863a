/* A tape through the allocator. */
#ifndef TIDE_PLAY_H
#define TIDE_PLAY_H

#include "../recording/tape.h"
#include "replay.h"

/* Called for every block that is live where the play stopped. It must not use the tape's arena. */
typedef void tide_live_fn(void *user, const tide_site *site, uint64_t block_bytes);

typedef struct tide_column {
    uint32_t from;                /* its first event */
    uint64_t allocated, reserved; /* the most in it */
    uint64_t microseconds;        /* when, as far as recorded */
} tide_column;

typedef struct tide_play_wants {
    uint32_t stop;         /* events to play; UINT32_MAX: all */
    tide_live_fn *on_live; /* may be NULL */
    void *user;
    bool settles;          /* find out which give_backs were empty_cache(), and note it on the tape */
    tide_column *columns;  /* NULL, or column_count of them */
    uint32_t column_count;
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
    uint64_t allocated_then, split_then; /* split: cached in segments that are in use, so that no one can give it back */
} tide_play;

/* False when memory ran out. */
bool tide_play_tape(tide_play *play, const tide_tape *tape, const tide_replay_config *config, const tide_play_wants *wants);

#endif
