/* SPDX-License-Identifier: Apache-2.0 */
/* The player: events of any source through the caching allocator, and the figures that they come to.
 *
 *     tide_event_source source = tide_timeline_events(timeline);
 *     tide_player player;
 *     tide_player_open(&player, &source, &config, arena);
 *     tide_player_run(&player, source.event_count);
 *     tide_player_close(&player);                         (player.figures stay) */
#ifndef TIDE_ALLOCATOR_PLAYER_H
#define TIDE_ALLOCATOR_PLAYER_H

#include "allocator/events.h"

/* What events are played on. */
typedef struct tide_replay_config {
    tide_alloc_conf conf;
    uint64_t device_bytes;  /* 0: more than anything needs */
    uint64_t outside_bytes; /* in use outside of the allocator: the context */
    int64_t fraction_ppm;   /* set_per_process_memory_fraction, parts per million; 0: none */
    uint64_t growing_by;    /* not 0: a device that is too small grows by pages of so many bytes */
    uint64_t most_events;   /* not 0: where more are to be played, the replay is cut */
    bool keeps_statistics;  /* all of the allocator's; else those alone that figures need */
} tide_replay_config;

/* The figures of one step, as a training script would read them from torch.cuda. Bytes. */
typedef struct tide_step_figures {
    uint64_t before, peak[TIDE_PHASE_COUNT], after[TIDE_PHASE_COUNT];
    uint64_t allocated_peak, reserved_peak, reserved;
    uint32_t passed; /* bits of the phases that it has */
} tide_step_figures;

enum { TIDE_STEP_LIMIT = 1000 };

typedef struct tide_replay {
    uint32_t events;   /* played: all, or those before the request that could not be had */
    uint64_t replayed; /* events of later playings of repetitions, of those that were not left out */
    bool is_oom;       /* the replay ends there */
    bool is_cut;       /* by most_events: it ends where a repetition was to be played again */
    tide_caching_oom oom;
    uint32_t oom_request; /* what could not be had */
    uint64_t allocated_peak, reserved_peak, requested_peak;
    uint32_t peak_event;    /* that reaches allocated_peak; of several, the first with the most reserved */
    uint64_t peak_reserved; /* after it */
    uint32_t peak_playing;  /* of the repetition that peak_event is in: how often it was played before; else 0 */
    uint32_t peak_around;   /* likewise of one that has others within it */
    uint32_t reserved_event;
    /* when the reserved peak was reached first */
    uint64_t allocated_then, split_then; /* split: cached in segments that are in use, so that no one can release it;
                                            with keeps_statistics */
    uint64_t allocated, reserved, requested; /* at the end */
    uint64_t retries, ooms;
    uint64_t device_bytes;                                             /* of a device that grows: what it came to */
    uint64_t small_segments, small_bytes, large_segments, large_bytes; /* held at the end */
    tide_step_figures *steps;                                          /* the arena's */
    uint32_t step_count;
    uint64_t *block_bytes; /* by slot: the block that it holds, or held last */
} tide_replay;

/* A stretch of events, and the most in it. */
typedef struct tide_column {
    uint32_t from;                /* its first event */
    uint32_t peak;                /* of those with most allocated the first, or the peak of the replay */
    uint64_t allocated, reserved; /* 0: it was not played */
} tide_column;

/* A slot older than a repetition that this frees, and the block that it held before. */
typedef struct tide_carried {
    uint32_t slot;
    uint64_t block_bytes;
} tide_carried;

/* Where a player is in the repetitions of its source. Note [Repetitions] in repeating.c */
typedef struct tide_repeating {
    uint32_t playing;      /* how often the repetition was played before; 0 also where the player is in none */
    tide_carried *carried; /* what it frees of before */
    uint32_t carried_count, carried_capacity;
    tide_words now, then;  /* the state after a playing, and after an earlier one */
    uint32_t then_playing; /* which that was; 0: none */
    uint64_t then_key;     /* and a digest of a part of its state */
    uint64_t then_retries; /* and the allocator's retries by then */
    uint64_t unplayed;     /* retries of playings that were left out, as they end where they began */
    /* Note [Skipping]: */
    struct tide_kept_event *kept; /* the events that are played of one playing */
    uint32_t kept_count, kept_capacity;
    uint64_t kept_bytes;       /* of the segments that they may ask for */
    uint32_t large_from;       /* from this playing on all that grows is in the large pool */
    tide_caching_saved before; /* a round that may not go through, */
    tide_block *blocks_before; /* and what it changes in the player: of its own slots, and of those carried */
    uint64_t *bytes_before;
    uint32_t looked_from; /* the state is compared from this playing on */
    bool is_known, can_skip;
} tide_repeating;

/* Note [Blocks at the peak] in peak_blocks.c: what slots held there that hold something else by now. */
typedef struct tide_peak_blocks {
    uint32_t event, playing, around; /* of the peak that they are noted for */
    uint32_t playings;               /* notes of whole playings, of repetitions that the peak is in */
    tide_carried *at;
    uint32_t count, capacity;
} tide_peak_blocks;

typedef struct tide_player {
    const tide_event_source *source;
    tide_arena *arena;
    tide_caching_allocator *allocator;
    tide_alloc_conf conf;
    uint32_t stop_event, stop_playing; /* where it is to stop */
    tide_event_cursor cursor;
    tide_replay figures;
    tide_block *blocks;  /* by slot; 0: none */
    tide_column column;  /* since tide_player_columns began it */
    uint64_t growing_by; /* of tide_replay_config */
    uint64_t left;       /* events until it is cut */
    bool may_touch;      /* a request and its free are one step: not where statistics are looked at between them */
    uint32_t mark;       /* the next one */
    uint64_t phase_peak;
    tide_peak_blocks at_peak;
    uint32_t next; /* the repetition that is reached next, or is being played */
    tide_repeating repeating;
    tide_repeating around;     /* of one that has others within it */
    uint16_t *pending_streams; /* by number of a pending free; 0: its block is back */
    uint16_t *free_streams;
    uint32_t free_stream_count;
} tide_player;

/* False when memory ran out, here and below. Arrays are the arena's, and so is what the allocator takes: control may
 * leave by the arena while a player is open. */
bool tide_player_open(tide_player *p, const tide_event_source *source, const tide_replay_config *config,
                      tide_arena *arena);
/* Plays on up to event `until` or the last one, or to the request that cannot be had. In a repetition that grows, it is
 * that event of the last playing. */
bool tide_player_run(tide_player *p, uint32_t until);
/* The same; of a repetition that event `until` is in, so many playings are behind it then, and so many `around` of one
 * that has that within it. */
bool tide_player_run_to(tide_player *p, uint32_t until, uint32_t playing, uint32_t around);
/* repeating.c. At the end of a repetition, whether the player has gone back to its beginning for another playing. */
bool tide_player_repeats(tide_player *p);
/* skipping.c. Whether one pool's events may be played alone from the next playing on, where the other pool's state
 * comes round; and playing them, in rounds of so many, to before the last playing at most. */
bool tide_player_may_skip(tide_player *p, const tide_repetition *of);
void tide_player_skip(tide_player *p, const tide_repetition *of, uint32_t round);
void tide_player_forget_skipping(tide_player *p);
/* What the stretch left alive takes the slots of what it frees of before. */
void tide_player_hand_on(tide_player *p, const tide_repetition *of, tide_pool_kind pool);
/* What a playing leaves alive for longer has slots of its own from the next one on. */
void tide_player_set_aside(tide_player *p, const tide_repetition *of);
/* Whether the block that a slot holds, or held last, is of the small pool. */
bool tide_player_is_small(const tide_player *p, uint32_t slot);
/* Plays on through columns, of which `from` is given, up to event `until`, and fills them. */
bool tide_player_columns(tide_player *p, tide_column *columns, uint32_t count, uint32_t until);
/* Moves the cursor to where the player stands, also where a request could not be had: it is asked what slots hold. */
void tide_player_catch_up(tide_player *p);
/* The slot that holds each live block, by block, plus one; 0: none is known. */
uint32_t *tide_player_slots(const tide_player *p, uint32_t *block_count, tide_arena *arena);
/* Takes bytes into a slot: for what is older than the events. */
tide_caching_status tide_player_take(tide_player *p, uint32_t slot, uint32_t stream, uint64_t bytes);
/* Completes the figures, but leaves the allocator as it is. */
void tide_player_finish(tide_player *p);
/* Finishes, and gives back all but figures.block_bytes. */
void tide_player_close(tide_player *p);

/* peak_blocks.c. At the end of a playing, and of a repetition. */
void tide_player_note_playing(tide_player *p, const tide_repetition *of);
void tide_player_note_older(tide_player *p, const tide_repetition *of);
/* Before a slot that is set aside by the first playing gets the block of another. */
void tide_player_note_exchanged(tide_player *p, const tide_repetition *of, uint32_t slot);
/* Whether block_bytes of what lives at the peak could be made what they are then. */
bool tide_player_knows_peak(tide_player *p);
/* Closes a player that has played all; block_bytes of what lives at the peak are what they are then. */
bool tide_player_close_at_peak(tide_player *p, const tide_replay_config *config);
/* Plays all events, and closes so. */
bool tide_replay_all(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                     tide_arena *arena);
/* The same without block_bytes. */
bool tide_replay_peaks(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                       tide_arena *arena);

#endif
