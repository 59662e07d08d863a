/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: every allocation and free of a run, in order. What is predicted and what is recorded look alike here.
 */
#ifndef TIDE_ALLOCATOR_TIMELINE_H
#define TIDE_ALLOCATOR_TIMELINE_H

#include <stdbool.h>

#include "base/arena.h"

/* Who holds a storage, and so which row of the report its bytes belong to. */
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

/* What is reported of a phase: its figures in answers and their titles in tables. */
typedef struct tide_phase_figures {
    const char *peak, *title, *after, *after_title;
} tide_phase_figures;

extern const tide_phase_figures tide_phases[TIDE_PHASE_COUNT];

enum { TIDE_NEVER = INT32_MAX };

/* What let go of an allocation at last. */
typedef enum tide_freed_by {
    TIDE_FREED_BY_NONE,       /* it lives at the end of the run */
    TIDE_FREED_BY_OPERATION,  /* the operation that used it last */
    TIDE_FREED_BY_BACKWARD,   /* a node of autograd that has run: what it saved, and the gradients that came to it */
    TIDE_FREED_BY_ASSIGNMENT, /* a name was bound to something else, or deleted */
    TIDE_FREED_BY_RETURN,     /* a function returned: its names */
    TIDE_FREED_BY_LOOP,       /* the loop around the model, or a framework's: zero_grad(), del */
    TIDE_FREED_BY_COUNT
} tide_freed_by;

extern const char *const tide_freed_by_names[TIDE_FREED_BY_COUNT];

/* How an allocation came to be freed. */
typedef struct tide_freeing {
    const char *op;             /* the operation, or the node: "MulBackward0" */
    uint32_t module, statement; /* as of tide_allocation */
    tide_freed_by by;
} tide_freeing;

/* One request to the allocator and where it came from. */
typedef struct tide_allocation {
    uint64_t bytes;      /* asked for */
    uint32_t born, died; /* indices of its events; died is TIDE_NEVER while it lives */
    uint32_t module;     /* the module instance that ran, 0: none */
    uint32_t statement;  /* the line of the description, 0: none */
    uint32_t shape;      /* index of the first dimension in timeline->dims */
    uint8_t dims, dtype;
    uint8_t factor, stream;
    uint8_t used_by;  /* one more than a stream that it waits for when it is freed (record_stream); 0: none */
    uint8_t freed_by; /* tide_freed_by; with it what tide_freeing has: */
    uint32_t freed_module, freed_statement;
    const char *op, *freed_op;
} tide_allocation;

/* One dimension of a shape: its size and, as an index into the names of dimensions, what it is. */
typedef struct tide_dim {
    int64_t size;
    uint32_t name;
} tide_dim;

/* A place in the event stream where a phase ends. */
typedef struct tide_mark {
    uint32_t event; /* events before it belong to the phase */
    uint16_t step;  /* from 1; 0 while loading */
    uint8_t phase;
} tide_mark;

/* A forward pass within another phase: its allocations, and where it ends. */
typedef struct tide_forward_pass {
    uint32_t first, last; /* allocations from `first` on, `last` left out */
    uint32_t event;       /* events before it belong to it */
} tide_forward_pass;

/* A stretch of events that is played `times` more, one playing after the other, and kept once. What it frees of before
 * it began, allocation a, is a + own in the next playing: what the one before left alive. */
typedef struct tide_repetition {
    uint32_t first_event, last_event; /* the last left out */
    uint32_t first_allocation, own;   /* of the allocations that it makes: the first, and how many */
    uint32_t first_mark, last_mark;   /* of those that it passes; the last left out */
    uint32_t times;
    uint16_t steps;         /* that one playing is: marks of the next one are of so many steps later */
    const uint64_t *growth; /* bytes by which each of its allocations grows from one playing to the next, up to what is
                               kept, which is the last of them; NULL: they are alike. The arena's */
    bool settles;           /* of those that grow: the small pool is taken to reserve no more after some playings */
    const uint32_t *held;   /* of its allocations, from the first on, those that each playing leaves alive beyond the
                               next one; the arena's */
    uint32_t held_count;
    uint32_t first_held;  /* those of all playings but the last become the allocations from here on: tide_held_slot */
    uint32_t saved_count; /* so many of `held`, the first, are freed by a later repetition, its backward: by the first
                             playing of that those of the last one, and so on */
    uint32_t within;      /* so many before it are within it, and have none themselves */
    uint32_t unwinds;     /* of that later one: so many places before it is the one whose saved it frees; 0: none */
    const uint8_t *lags;  /* and of each of the saved: 1 where a playing frees what the one before it saved. The
                             arena's */
    bool is_unwound;      /* there is one */
    bool is_in_order;     /* whose first playing frees what the first of this one has saved, and the last what the last
                             has: no lags */
} tide_repetition;

/* Allocations that lie beside each other: a record each, or, where all are what the playings of a repetition have
 * saved, a record for each of those of one playing. */
typedef struct tide_allocation_page {
    tide_allocation *records;
    uint32_t first,
        saved; /* of a repetition: the first that it has saved, and how many one playing saves; 0: of none */
} tide_allocation_page;

enum { TIDE_PAGE_ALLOCATIONS = 512 };

typedef struct tide_timeline {
    tide_arena *arena;
    tide_allocation_page *pages;
    uint32_t page_count, page_capacity;
    uint32_t allocation_count;
    uint32_t *events; /* an allocation's index; with the top bit: its free */
    uint32_t event_count, event_capacity;
    tide_dim *dims;
    uint32_t dim_count, dim_capacity;
    tide_mark *marks;
    uint32_t mark_count, mark_capacity;
    tide_forward_pass *forward_passes;
    uint32_t forward_pass_count, forward_pass_capacity;
    tide_repetition *repetitions; /* in order of their ends, those within another before it */
    uint32_t repetition_count, repetition_capacity;
} tide_timeline;

#define TIDE_FREE_BIT UINT32_C(0x80000000)
/* The event of torch.cuda.empty_cache(), of no allocation. */
#define TIDE_EMPTY_CACHE UINT32_C(0x7fffffff)

void tide_timeline_init(tide_timeline *timeline, tide_arena *arena);

/* Keeps the dimensions of a shape for any number of allocations; what tide_allocation.shape is. */
uint32_t tide_timeline_shape(tide_timeline *timeline, const tide_dim *dims, unsigned count);

/* Index of the new allocation, of which `born` and `died` are filled in; it is not freed yet. */
uint32_t tide_timeline_alloc(tide_timeline *timeline, const tide_allocation *allocation);
void tide_timeline_free(tide_timeline *timeline, uint32_t allocation, const tide_freeing *freeing);
/* Room for so many events in all. */
void tide_timeline_reserve(tide_timeline *timeline, uint32_t events);
/* Appends a stretch of events again, of allocations that are `moved` further on now: the next one is that of its first.
 * What each module is called then, by its number; NULL: as before. */
void tide_timeline_repeat(tide_timeline *timeline, uint32_t first_event, uint32_t last_event, uint32_t moved,
                          const uint32_t *modules);
/* Where a stretch begins: of two in a row, the places before either. */
typedef struct tide_timeline_place {
    uint32_t event, allocation, mark;
} tide_timeline_place;

static inline tide_allocation *tide_timeline_at(const tide_timeline *t, uint32_t allocation) {
    const tide_allocation_page *page = &t->pages[allocation / TIDE_PAGE_ALLOCATIONS];
    return &page->records[page->saved ? (allocation - page->first) % page->saved : allocation % TIDE_PAGE_ALLOCATIONS];
}

/* What playing `playing`, which is not the last one, leaves alive for longer, the `which`th of it: what is saved comes
 * first, playing after playing, and then the others. */
static inline uint32_t tide_held_slot(const tide_repetition *of, uint32_t which, uint32_t playing) {
    uint32_t saved = of->saved_count, others = of->held_count - saved;
    if (which < saved) return of->first_held + playing * saved + which;
    return of->first_held + of->times * saved + playing * others + (which - saved);
}

/* Where what playing `playing` of a repetition has saved is, the `which`th of it: of the last one in its own slot, and
 * of those before it in what is set aside; -1: of what was played before the repetition. */
static inline uint32_t tide_saved_slot(const tide_repetition *of, uint32_t which, int64_t playing) {
    uint32_t own = of->first_allocation + of->held[which];
    if (playing < 0) return own - of->own;
    return playing == of->times ? own : tide_held_slot(of, which, (uint32_t)playing);
}

/* Where playing `playing` of a repetition that unwinds another, from 1 on, finds what it frees of that. In order, the
 * first playing has its own where events name it, in place of the last one's. */
static inline uint32_t tide_unwound_slot(const tide_repetition *of, uint32_t which, int64_t playing) {
    const tide_repetition *saving = of - of->unwinds;
    if (!saving->is_in_order) return tide_saved_slot(saving, which, (int64_t)saving->times - of->lags[which] - playing);
    return tide_held_slot(saving, which, playing == saving->times ? 0 : (uint32_t)playing);
}

static inline tide_timeline_place tide_timeline_here(const tide_timeline *t) {
    return (tide_timeline_place){t->event_count, t->allocation_count, t->mark_count};
}

/* Whether the stretch from `second` to the end does the same as the one before it, from `first` on: the same requests
 * and frees, of its own allocations or of those that stretches like it left alive, the oldest of which begins at
 * `oldest`. It leaves as many alive, and `held`, which none frees. Repetitions within it are the same. */
bool tide_timeline_repeats(const tide_timeline *timeline, tide_timeline_place oldest, tide_timeline_place first,
                           tide_timeline_place second, uint32_t held);
/* Whether the stretch from `from` to the end frees what it makes, and nothing else. */
bool tide_timeline_is_closed(const tide_timeline *timeline, tide_timeline_place from);
/* Whether the stretch from `second` to the end does what that from `first` to event `last` did, `times` stretches
 * later, with requests that have grown by `growth` for each; frees of what was made before are of the stretch before,
 * and as many are left. times 0: it is the next one, and growth is noted. */
bool tide_timeline_grows(const tide_timeline *timeline, tide_timeline_place first, uint32_t last,
                         tide_timeline_place second, uint64_t *growth, int64_t times);
/* What was appended from `from` on was never there. */
void tide_timeline_take_back(tide_timeline *timeline, tide_timeline_place from);
/* The stretch from `from` to the end comes `times` more, each `steps` steps later. */
void tide_timeline_play_again(tide_timeline *timeline, tide_timeline_place from, uint32_t times, unsigned steps);
/* The same, where each playing leaves `held` alive for longer, of which the first `saved_count` are for its backward.
 */
const tide_repetition *tide_timeline_play_again_holding(tide_timeline *timeline, tide_timeline_place from,
                                                        uint32_t times, const uint32_t *held, uint32_t held_count,
                                                        uint32_t saved_count);
/* The backward of a loop's repetition of so many `times`: the stretch from `from` on, of its last playing, comes as
 * often if it does what the one before it, from `before` on, did for the playing behind that repetition; each with what
 * it has saved itself, or the one before it. False: it does not. */
bool tide_timeline_unwind(tide_timeline *timeline, tide_timeline_place before, tide_timeline_place from,
                          uint32_t times);
/* Backward passes in the order of their forward passes, all of which come before: the stretch from `from` on, that of
 * the last playing of the repetition before it that saves, comes as often as that if it does what the stretch before
 * it, from `before` on, did. It leaves `held` alive. */
bool tide_timeline_unwind_in_order(tide_timeline *timeline, tide_timeline_place before, tide_timeline_place from,
                                   uint32_t times, const uint32_t *held, uint32_t held_count);
void tide_timeline_empty_cache(tide_timeline *timeline);
void tide_timeline_mark(tide_timeline *timeline, unsigned step, tide_phase phase);
/* Ends a forward pass within another phase that began with allocation `from`: what it leaves alive are activations. */
void tide_timeline_end_forward(tide_timeline *timeline, uint32_t from);

#endif
