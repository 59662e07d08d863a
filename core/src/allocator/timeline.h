/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: every allocation and free of a run, in order, predicted or recorded. */
#ifndef TIDE_ALLOCATOR_TIMELINE_H
#define TIDE_ALLOCATOR_TIMELINE_H

#include <stdbool.h>

#include "base/arena.h"

/* Whose memory it is, and so in which row of the report it is counted. */
typedef enum tide_factor {
#define TIDE_FACTOR(name, text, title) TIDE_FACTOR_##name,
#include "allocator/factor.def"
#undef TIDE_FACTOR
    TIDE_FACTOR_COUNT
} tide_factor;

extern const char *const tide_factor_names[TIDE_FACTOR_COUNT];

typedef enum tide_phase {
#define TIDE_PHASE(name, text, title, after, after_title) TIDE_PHASE_##name,
#include "allocator/phase.def"
#undef TIDE_PHASE
    TIDE_PHASE_COUNT
} tide_phase;

extern const char *const tide_phase_names[TIDE_PHASE_COUNT];

/* How a phase is reported: the names of its figures, and their titles in tables. */
typedef struct tide_phase_figures {
    const char *peak, *title, *after, *after_title;
} tide_phase_figures;

extern const tide_phase_figures tide_phases[TIDE_PHASE_COUNT];

enum { TIDE_NEVER = INT32_MAX };

/* What released the last reference to an allocation. */
typedef enum tide_freed_by {
    TIDE_FREED_BY_NONE,       /* still alive at the end of the run */
    TIDE_FREED_BY_OPERATION,  /* the last operation that used it */
    TIDE_FREED_BY_BACKWARD,   /* an autograd node that was done: what it saved, and its incoming gradients */
    TIDE_FREED_BY_ASSIGNMENT, /* a name was rebound or deleted */
    TIDE_FREED_BY_RETURN,     /* a function returned, and its names went out of scope */
    TIDE_FREED_BY_LOOP,       /* the training loop or a framework: zero_grad(), del */
    TIDE_FREED_BY_COUNT
} tide_freed_by;

extern const char *const tide_freed_by_names[TIDE_FREED_BY_COUNT];

/* How an allocation was freed. */
typedef struct tide_freeing {
    const char *op;             /* the operation or autograd node: "MulBackward0" */
    uint32_t module, statement; /* as in tide_allocation */
    tide_freed_by by;
} tide_freeing;

/* One request to the allocator, and where it came from. */
typedef struct tide_allocation {
    uint64_t bytes;      /* requested */
    uint32_t born, died; /* indices of its events; died is TIDE_NEVER while it is alive: read by tide_timeline_died */
    uint32_t module;     /* the module instance that was running; 0: none */
    uint32_t statement;  /* the line of the description; 0: none */
    uint32_t shape;      /* index of the first dimension in timeline->dims */
    uint8_t dims, dtype;
    uint8_t factor, stream;
    uint8_t used_by;  /* one plus the stream that it waits for when freed (record_stream); 0: none */
    uint8_t freed_by; /* tide_freed_by, with the fields of tide_freeing: */
    uint32_t freed_module, freed_statement;
    const char *op, *freed_op;
} tide_allocation;

/* One dimension of a shape: its size, and its name as an index into the names of dimensions. */
typedef struct tide_dim {
    int64_t size;
    uint32_t name;
} tide_dim;

/* Where a phase ends. */
typedef struct tide_mark {
    uint32_t event; /* the first event after the phase */
    uint16_t step;  /* from 1; 0 while loading */
    uint8_t phase;
} tide_mark;

/* A forward pass inside of another phase. */
typedef struct tide_forward_pass {
    uint32_t first, last; /* its allocations; `last` excluded */
    uint32_t event;       /* the first event after it */
} tide_forward_pass;

/* A range of events that is stored once and played `times` more. If it frees allocation a from before its start, the
 * next iteration frees a + own: what this one left alive. */
typedef struct tide_repetition {
    uint32_t first_event, last_event; /* last excluded */
    uint32_t first_allocation, own;   /* the allocations that it makes: the first, and how many */
    uint32_t first_mark, last_mark;   /* the marks inside of it; last excluded */
    uint32_t times;
    uint16_t steps;         /* steps per iteration, by which the marks of the next one are later */
    const uint64_t *growth; /* by how many bytes each of its requests grows from one iteration to the next; the stored
                               iteration is the last. NULL: requests do not grow. Belongs to the arena */
    bool settles;           /* with growth: the small pool is assumed to stop growing after some iterations */
    const uint32_t *held;   /* of its allocations, relative to the first, those that outlive the next iteration; belongs
                               to the arena */
    uint32_t held_count;
    uint32_t first_held;  /* those of all iterations but the last become allocations from here on: tide_held_slot */
    uint32_t saved_count; /* the first so many of `held` are freed by a later repetition, its backward, whose first
                             iteration frees those of the last one, and so on */
    uint32_t inner;       /* how many repetitions before it are inside of it; these have none inside */
    uint32_t unwinds; /* for a backward: how many places before it the repetition is whose saved allocations it frees;
                         0: none */
    const uint8_t *lags; /* for each saved allocation: 1 if an iteration frees that of the iteration before. Belongs to
                            the arena */
    bool is_unwound;     /* has a backward */
    bool is_in_order;    /* whose first iteration frees what the first one saved, and the last what the last one saved;
                            then there are no lags */
} tide_repetition;

/* Adjacent allocations: with a record each, or, if all are held by iterations of a repetition, with a record for each
 * one that an iteration holds. What backward frees has the same record in every iteration; the rest is freed one by
 * one. */
typedef struct tide_allocation_page {
    tide_allocation *records;
    uint32_t *died;       /* of each allocation; NULL: as its record says */
    uint32_t first, held; /* of a repetition: its first allocation, and how many an iteration holds; 0: a record each */
} tide_allocation_page;

enum { TIDE_PAGE_ALLOCATIONS = 512 };

typedef struct tide_timeline {
    tide_arena *arena;
    tide_allocation_page *pages;
    uint32_t page_count, page_capacity;
    uint32_t allocation_count;
    uint32_t *events; /* index of an allocation; the top bit marks its free */
    uint32_t event_count, event_capacity;
    tide_dim *dims;
    uint32_t dim_count, dim_capacity;
    tide_mark *marks;
    uint32_t mark_count, mark_capacity;
    tide_forward_pass *forward_passes;
    uint32_t forward_pass_count, forward_pass_capacity;
    tide_repetition *repetitions; /* by their ends: inner ones come before the outer one */
    uint32_t repetition_count, repetition_capacity;
} tide_timeline;

#define TIDE_FREE_BIT UINT32_C(0x80000000)
/* The event of torch.cuda.empty_cache(), which has no allocation. */
#define TIDE_EMPTY_CACHE UINT32_C(0x7fffffff)

void tide_timeline_init(tide_timeline *timeline, tide_arena *arena);

/* Stores the dimensions of a shape, to be shared by any number of allocations; returns tide_allocation.shape. */
uint32_t tide_timeline_shape(tide_timeline *timeline, const tide_dim *dims, unsigned count);

/* Adds an allocation and returns its index; sets `born` and `died`. */
uint32_t tide_timeline_alloc(tide_timeline *timeline, const tide_allocation *allocation);
void tide_timeline_free(tide_timeline *timeline, uint32_t allocation, const tide_freeing *freeing);
/* Makes room for so many events in total. */
void tide_timeline_reserve(tide_timeline *timeline, uint32_t events);
/* Appends a range of events again for new allocations, whose indices are `moved` higher. `modules` maps module numbers;
 * NULL: they stay. */
void tide_timeline_repeat(tide_timeline *timeline, uint32_t first_event, uint32_t last_event, uint32_t moved,
                          const uint32_t *modules);
/* A position in the timeline. */
typedef struct tide_timeline_place {
    uint32_t event, allocation, mark;
} tide_timeline_place;

static inline tide_allocation *tide_timeline_at(const tide_timeline *t, uint32_t allocation) {
    const tide_allocation_page *page = &t->pages[allocation / TIDE_PAGE_ALLOCATIONS];
    return &page->records[page->held ? (allocation - page->first) % page->held : allocation % TIDE_PAGE_ALLOCATIONS];
}

/* The event that frees an allocation; TIDE_NEVER while it is alive. */
static inline uint32_t *tide_timeline_died(const tide_timeline *t, uint32_t allocation) {
    const tide_allocation_page *page = &t->pages[allocation / TIDE_PAGE_ALLOCATIONS];
    return page->died ? &page->died[allocation % TIDE_PAGE_ALLOCATIONS] : &tide_timeline_at(t, allocation)->died;
}

/* The slot of the `which`th allocation held by an iteration, which is not the last. What is saved comes first,
 * iteration by iteration, then the rest. */
static inline uint32_t tide_held_slot(const tide_repetition *of, uint32_t which, uint32_t iteration) {
    uint32_t saved = of->saved_count, others = of->held_count - saved;
    if (which < saved) return of->first_held + iteration * saved + which;
    return of->first_held + of->times * saved + iteration * others + (which - saved);
}

/* The slot of the `which`th allocation saved by an iteration: of the last one its own slot, of those before it the one
 * where it was set aside, and for -1 that of the iteration before the repetition. */
static inline uint32_t tide_saved_slot(const tide_repetition *of, uint32_t which, int64_t iteration) {
    uint32_t own = of->first_allocation + of->held[which];
    if (iteration < 0) return own - of->own;
    return iteration == of->times ? own : tide_held_slot(of, which, (uint32_t)iteration);
}

/* Where iteration `iteration` of a backward, from 1 on, finds what it frees. In order, the first iteration's place is
 * the one that events name, instead of the last one's. */
static inline uint32_t tide_unwound_slot(const tide_repetition *of, uint32_t which, int64_t iteration) {
    const tide_repetition *saving = of - of->unwinds;
    if (!saving->is_in_order)
        return tide_saved_slot(saving, which, (int64_t)saving->times - of->lags[which] - iteration);
    return tide_held_slot(saving, which, iteration == saving->times ? 0 : (uint32_t)iteration);
}

static inline tide_timeline_place tide_timeline_here(const tide_timeline *t) {
    return (tide_timeline_place){t->event_count, t->allocation_count, t->mark_count};
}

/* Whether the events from `second` to the end repeat those from `first` to `second`: the same requests, and frees of
 * their own allocations or of what earlier iterations left alive, the oldest of which starts at `oldest`. As many are
 * left alive again, and `held` are never freed. Contained repetitions are equal too. */
bool tide_timeline_repeats(const tide_timeline *timeline, tide_timeline_place oldest, tide_timeline_place first,
                           tide_timeline_place second, uint32_t held);
/* Whether the events from `from` to the end free all that they allocate, and nothing else. */
bool tide_timeline_is_closed(const tide_timeline *timeline, tide_timeline_place from);
/* Whether the events from `second` to the end repeat those from `first` to event `last`, `times` iterations later, with
 * requests that grow by `growth` per iteration. What was allocated before must be left by the previous iteration, and
 * as many allocations are left alive again. times 0: it is the next iteration, and growth is recorded. */
bool tide_timeline_grows(const tide_timeline *timeline, tide_timeline_place first, uint32_t last,
                         tide_timeline_place second, uint64_t *growth, int64_t times);
/* Removes everything that was appended after `from`. */
void tide_timeline_take_back(tide_timeline *timeline, tide_timeline_place from);
/* Makes the events from `from` to the end a repetition of `times` more iterations, each `steps` steps later. */
void tide_timeline_play_again(tide_timeline *timeline, tide_timeline_place from, uint32_t times, unsigned steps);
/* The same, where each iteration holds the allocations `held`; the first `saved_count` of them are for its backward. */
const tide_repetition *tide_timeline_play_again_holding(tide_timeline *timeline, tide_timeline_place from,
                                                        uint32_t times, const uint32_t *held, uint32_t held_count,
                                                        uint32_t saved_count);
/* Makes the events from `from` on a repetition, the backward of a loop with so many `times`, if they do for the loop's
 * last iteration what those from `before` on did for the iteration after that; each frees what its own iteration saved,
 * or the one before. False: they do not. */
bool tide_timeline_unwind(tide_timeline *timeline, tide_timeline_place before, tide_timeline_place from,
                          uint32_t times);
/* The same for backward passes in the order of their forward passes, all of which come first: the events from `from` on
 * are for the last iteration of the repetition that saved. Each iteration holds `held`. */
bool tide_timeline_unwind_in_order(tide_timeline *timeline, tide_timeline_place before, tide_timeline_place from,
                                   uint32_t times, const uint32_t *held, uint32_t held_count);
void tide_timeline_empty_cache(tide_timeline *timeline);
void tide_timeline_mark(tide_timeline *timeline, unsigned step, tide_phase phase);
/* Ends a forward pass inside of another phase, which began with allocation `from`: what it leaves alive are
 * activations. */
void tide_timeline_end_forward(tide_timeline *timeline, uint32_t from);

#endif
