/* SPDX-License-Identifier: Apache-2.0 */
/* The player: feeds the events of a source to the caching allocator and records peaks.
 *
 *     tide_event_source source = tide_timeline_events(timeline);
 *     tide_player player;
 *     tide_player_open(&player, &source, &config, arena);
 *     tide_player_run(&player, source.event_count);
 *     tide_player_close(&player);                         (player.figures stay) */
#ifndef TIDE_ALLOCATOR_PLAYER_H
#define TIDE_ALLOCATOR_PLAYER_H

#include "allocator/events.h"

/* The device and the allocator that events are played on. */
typedef struct tide_replay_config {
    tide_alloc_conf conf;
    uint64_t device_bytes;  /* 0: unlimited */
    uint64_t outside_bytes; /* in use outside of the allocator: the CUDA context */
    int64_t fraction_ppm;   /* set_per_process_memory_fraction in parts per million; 0: none */
    uint64_t growing_by;    /* if not 0: a device that is too small grows in steps of this many bytes */
    uint64_t most_events;   /* if not 0: stop rather than play more events than this */
    bool keeps_statistics;  /* all statistics of the allocator, rather than only those that figures need */
} tide_replay_config;

/* The figures of one step in bytes, as a training script would read them from torch.cuda. */
typedef struct tide_step_figures {
    uint64_t before, peak[TIDE_PHASE_COUNT], after[TIDE_PHASE_COUNT];
    uint64_t allocated_peak, reserved_peak, reserved;
    uint32_t passed; /* a bit for each phase that the step has */
} tide_step_figures;

enum { TIDE_STEP_LIMIT = 1000 };

typedef struct tide_replay {
    uint32_t events;   /* events played: all, or those before the request that failed */
    uint64_t replayed; /* events of further iterations of repetitions, skipped ones not counted */
    bool is_oom;       /* a request failed, and the replay ended there */
    bool is_cut;       /* the replay ended before a further iteration, because of most_events */
    tide_caching_oom oom;
    uint32_t oom_request; /* the request that failed */
    uint64_t allocated_peak, reserved_peak, requested_peak;
    uint32_t
        peak_event; /* where allocated_peak is reached; of several places, the first of those with the most reserved */
    uint64_t peak_reserved;  /* after that event */
    uint32_t peak_iteration; /* if peak_event is in a repetition: the iterations before it; else 0 */
    uint32_t peak_outer;     /* the same for an outer repetition */
    uint32_t reserved_event;
    /* when the reserved peak is first reached */
    uint64_t allocated_then,
        split_then; /* split: cached in segments that are in use and so cannot be released; needs keeps_statistics */
    uint64_t allocated, reserved, requested; /* at the end */
    uint64_t retries, ooms;
    uint64_t device_bytes;                                             /* of a growable device: its final size */
    uint64_t small_segments, small_bytes, large_segments, large_bytes; /* held at the end */
    tide_step_figures *steps;                                          /* belongs to the arena */
    uint32_t step_count;
    uint64_t *block_bytes; /* by slot: the size of its block, or of its last one */
} tide_replay;

/* The maxima of a range of events. */
typedef struct tide_column {
    uint32_t from;                /* its first event */
    uint32_t peak;                /* the first event with the most allocated, or the peak of the whole replay */
    uint64_t allocated, reserved; /* 0: not played */
} tide_column;

/* A loop-carried slot: older than the repetition, which frees it; and the size of its original block. */
typedef struct tide_carried {
    uint32_t slot;
    uint64_t block_bytes;
} tide_carried;

/* The state of a repetition. Note [Repetitions] in repeating.c */
typedef struct tide_repeating {
    uint32_t iteration;    /* iterations done; 0 also outside of repetitions */
    tide_carried *carried; /* the loop-carried slots */
    uint32_t carried_count, carried_capacity;
    tide_words now, then;     /* the allocator's state after this iteration, and after an earlier one */
    bool has_then;            /* there is one */
    uint32_t then_iteration;  /* after how many iterations that was */
    uint64_t then_key;        /* a digest of the carried addresses then */
    uint64_t then_retries;    /* the allocator's retries then */
    uint64_t retries;         /* since then, if the state recurs */
    tide_pool_kind then_pool; /* the pool whose state it is */
    uint64_t unplayed;        /* retries of skipped iterations */
    /* for Note [Skipping]: */
    struct tide_kept_event *kept; /* lists of the events that are still played, one for each iteration of a round */
    uint32_t kept_count, kept_capacity;
    uint32_t round, lists;     /* the iterations of a round whose lists are being made (0: none), and those that are */
    uint64_t kept_bytes;       /* an upper bound of the segments that an iteration requests */
    uint32_t large_from;       /* from this iteration on all growing requests are of the large pool */
    tide_caching_saved before; /* the state before a round that may fail, */
    tide_block *blocks_before; /* with the blocks of its own and of the carried slots */
    uint64_t *bytes_before;
    uint32_t looks; /* states that were compared */
    bool is_known, can_skip;
} tide_repeating;

/* Note [Blocks at the peak] in peak_blocks.c: slots of the peak that have been reused since. */
typedef struct tide_peak_blocks {
    uint32_t event, iteration, outer; /* the peak that they were noted for */
    uint32_t iterations;              /* how many of the repetitions around the peak have been noted */
    tide_carried *at;
    uint32_t count, capacity;
} tide_peak_blocks;

typedef struct tide_player {
    const tide_event_source *source;
    tide_arena *arena;
    tide_caching_allocator *allocator;
    tide_alloc_conf conf;
    uint32_t stop_event, stop_iteration; /* where to stop */
    tide_event_cursor cursor;
    tide_replay figures;
    tide_block *blocks;            /* by slot; 0: none */
    tide_column column;            /* the current one of tide_player_columns */
    uint64_t growing_by;           /* as in tide_replay_config */
    uint64_t left;                 /* events that may still be played */
    bool plays_transients_at_once; /* a request that the next event frees is played as one call; not if statistics are
                                      read in between */
    uint32_t mark;                 /* the next one */
    uint64_t phase_peak;
    tide_peak_blocks at_peak;
    uint32_t next;       /* the next repetition, or the current one */
    uint32_t next_outer; /* where the search for the next one with inner ones goes on */
    tide_repeating repeating;
    tide_repeating outer;      /* the repetition around it */
    uint16_t *pending_streams; /* by pending free; 0: it is complete */
    uint16_t *free_streams;
    uint32_t free_stream_count;
} tide_player;

/* Opens a player. This and the functions below return false when host memory ran out. Arrays and the allocator's memory
 * belong to the arena, so a player may be abandoned by arena->escape. */
bool tide_player_open(tide_player *p, const tide_event_source *source, const tide_replay_config *config,
                      tide_arena *arena);
/* Plays up to event `until`, the last one, or the request that fails. In a repetition whose requests grow, `until` is
 * that event of the last iteration. */
bool tide_player_run(tide_player *p, uint32_t until);
/* The same; in a repetition, stops at event `until` after so many iterations, and after `outer` iterations of the
 * repetition around it. */
bool tide_player_run_to(tide_player *p, uint32_t until, uint32_t iteration, uint32_t outer);
/* recurring.c. Whether the block of a slot, or its last one, is of the small pool. */
bool tide_player_is_small(const tide_player *p, uint32_t slot);
/* Whether it is of this pool. */
bool tide_player_is_of(const tide_player *p, uint32_t slot, tide_pool_kind pool);
/* Reads the state of a pool. False: it cannot be compared. */
bool tide_player_look(tide_player *p, const tide_repetition *of, tide_pool_kind pool);
/* Reads it before the first iteration, for the function below. */
void tide_player_note_start(tide_player *p, tide_pool_kind pool);
/* How many iterations ago the pool's state was the same; 0: it is not known. */
uint32_t tide_player_recurs(tide_player *p, const tide_repetition *of, tide_pool_kind pool);
/* repeating.c. The next repetition with inner ones, if it has not begun; else NULL. */
const tide_repetition *tide_player_next_outer(tide_player *p);
/* At the end of a repetition's events: whether the player went back for another iteration. */
bool tide_player_repeats(tide_player *p);
/* skipping.c. Whether from the next iteration on only one pool has to be played, because the state of the other recurs;
 * and playing on like this, in rounds of so many iterations, up to the last one at most. */
bool tide_player_may_skip(tide_player *p, const tide_repetition *of);
void tide_player_skip(tide_player *p, const tide_repetition *of, uint32_t round);
void tide_player_forget_skipping(tide_player *p);
/* Loop-carried slots receive the blocks that the last iteration left alive. */
void tide_player_hand_on(tide_player *p, const tide_repetition *of, tide_pool_kind pool);
/* Moves the blocks that an iteration holds to slots of their own. */
void tide_player_set_aside(tide_player *p, const tide_repetition *of);
/* Moves the blocks that this iteration of a backward frees to where the first one finds them. */
void tide_player_take_back(tide_player *p, const tide_repetition *of);
/* Plays up to event `until` and fills the columns, of which `from` is given. */
bool tide_player_columns(tide_player *p, tide_column *columns, uint32_t count, uint32_t until);
/* Moves the cursor to the player's position, so that slots can be asked about; also after a request failed. */
void tide_player_catch_up(tide_player *p);
/* For each live block the slot that holds it plus one; 0: unknown. */
uint32_t *tide_player_slots(const tide_player *p, uint32_t *block_count, tide_arena *arena);
/* Allocates a block into a slot, for what is older than the events. */
tide_caching_status tide_player_take(tide_player *p, uint32_t slot, uint32_t stream, uint64_t bytes);
/* Completes the figures without changing the allocator. */
void tide_player_finish(tide_player *p);
/* Finishes and releases everything but figures.block_bytes. */
void tide_player_close(tide_player *p);

/* peak_blocks.c. Called at the end of an iteration, and of a repetition. */
void tide_player_note_iteration(tide_player *p, const tide_repetition *of);
void tide_player_note_older(tide_player *p, const tide_repetition *of);
/* Called before a slot that the first iteration set aside receives another block. */
void tide_player_note_exchanged(tide_player *p, const tide_repetition *of, uint32_t slot);
/* Whether block_bytes can be restored to what they were at the peak. */
bool tide_player_knows_peak(tide_player *p);
/* Closes a player that has played everything, with block_bytes as they were at the peak. */
bool tide_player_close_at_peak(tide_player *p, const tide_replay_config *config);
/* Opens a player, plays all events, and closes it with block_bytes as they were at the peak. */
bool tide_replay_all(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                     tide_arena *arena);
/* The same without block_bytes. */
bool tide_replay_peaks(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                       tide_arena *arena);

#endif
