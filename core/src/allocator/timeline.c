/* SPDX-License-Identifier: Apache-2.0 */
/* Appending to the timeline. */
#include "allocator/timeline.h"

#include <string.h>

const char *const tide_factor_names[TIDE_FACTOR_COUNT] = {
#define TIDE_FACTOR(name, text, title) text,
#include "allocator/factor.def"
#undef TIDE_FACTOR
};

const char *const tide_phase_names[TIDE_PHASE_COUNT] = {
#define TIDE_PHASE(name, text, title, after, after_title) text,
#include "allocator/phase.def"
#undef TIDE_PHASE
};

const tide_phase_figures tide_phases[TIDE_PHASE_COUNT] = {
#define TIDE_PHASE(name, text, title, after, after_title) {"peak_" text, title, after, after_title},
#include "allocator/phase.def"
#undef TIDE_PHASE
};

const char *const tide_freed_by_names[TIDE_FREED_BY_COUNT] = {"end",        "operation", "backward",
                                                              "assignment", "return",    "loop"};

enum { FIRST_EVENTS = 8192 }; /* enough for a step of a small model */

void tide_timeline_init(tide_timeline *timeline, tide_arena *arena) {
    *timeline = (tide_timeline){.arena = arena, .event_capacity = FIRST_EVENTS};
    timeline->events = tide_arena_resize(arena, NULL, 0, FIRST_EVENTS * sizeof *timeline->events);
}

/* ---- records ---- */

static tide_allocation_page *page_at(tide_timeline *t, uint32_t which) {
    while (t->page_count <= which) {
        TIDE_ROOM(t->arena, t->pages, t->page_count, t->page_capacity);
        t->pages[t->page_count++] = (tide_allocation_page){.records = NULL};
    }
    return &t->pages[which];
}

/* Adds an allocation. */
static tide_allocation *make_allocation(tide_timeline *t) {
    uint32_t which = t->allocation_count++;
    tide_allocation_page *page = page_at(t, which / TIDE_PAGE_ALLOCATIONS);
    if (!page->records || page->held)
        *page = (tide_allocation_page){
            .records = tide_arena_resize(t->arena, NULL, 0, TIDE_PAGE_ALLOCATIONS * sizeof *page->records)};
    return &page->records[which % TIDE_PAGE_ALLOCATIONS];
}

/* Adds a page of allocations held by iterations. */
static void make_held_page(tide_timeline *t, tide_allocation_page of) {
    tide_allocation_page *page = page_at(t, t->allocation_count / TIDE_PAGE_ALLOCATIONS);
    if (page->records && !page->held) tide_arena_drop(t->arena, page->records);
    *page = of;
    t->allocation_count += TIDE_PAGE_ALLOCATIONS;
}

/* ---- appending ---- */

static void append_event(tide_timeline *timeline, uint32_t event) {
    tide_timeline_reserve(timeline, timeline->event_count + 1);
    timeline->events[timeline->event_count++] = event;
}

uint32_t tide_timeline_shape(tide_timeline *timeline, const tide_dim *dims, unsigned count) {
    uint32_t first = timeline->dim_count;
    for (unsigned i = 0; i < count; i++) {
        TIDE_ROOM(timeline->arena, timeline->dims, timeline->dim_count, timeline->dim_capacity);
        timeline->dims[timeline->dim_count++] = dims[i];
    }
    return first;
}

uint32_t tide_timeline_alloc(tide_timeline *timeline, const tide_allocation *allocation) {
    uint32_t index = timeline->allocation_count;
    tide_allocation *made = make_allocation(timeline);
    *made = *allocation;
    made->born = timeline->event_count;
    made->died = TIDE_NEVER;
    append_event(timeline, index);
    return index;
}

void tide_timeline_free(tide_timeline *timeline, uint32_t allocation, const tide_freeing *freeing) {
    tide_allocation *a = tide_timeline_at(timeline, allocation);
    *tide_timeline_died(timeline, allocation) = timeline->event_count;
    a->freed_by = (uint8_t)freeing->by;
    a->freed_op = freeing->op;
    a->freed_module = freeing->module;
    a->freed_statement = freeing->statement;
    append_event(timeline, allocation | TIDE_FREE_BIT);
}

void tide_timeline_reserve(tide_timeline *t, uint32_t events) {
    uint32_t capacity = t->event_capacity;
    while (capacity < events) capacity *= 2;
    if (capacity > t->event_capacity)
        t->events =
            tide_arena_resize(t->arena, t->events, t->event_count * sizeof *t->events, capacity * sizeof *t->events);
    t->event_capacity = capacity;
}

/* An allocation that an iteration held, for which there are no events. */
static tide_allocation held_allocation(const tide_timeline *t, const tide_repetition *of, uint32_t which) {
    tide_allocation made = *tide_timeline_at(t, of->first_allocation + of->held[which]);
    made.born = of->first_event; /* for some it is later; until then they have no block */
    made.died = TIDE_NEVER;
    return made;
}

static uint32_t *alive(tide_arena *arena) {
    uint32_t *died = tide_arena_resize(arena, NULL, 0, TIDE_PAGE_ALLOCATIONS * sizeof *died);
    for (uint32_t i = 0; i < TIDE_PAGE_ALLOCATIONS; i++) died[i] = TIDE_NEVER;
    return died;
}

/* Adds `count` allocations of each iteration before the last one: of what it holds, those from `which` on. */
static void hold_of_each(tide_timeline *t, const tide_repetition *of, uint32_t which, uint32_t count, bool is_saved) {
    uint32_t first = t->allocation_count, end = first + of->times * count;
    tide_allocation *records = NULL;
    while (t->allocation_count < end) {
        if (t->allocation_count % TIDE_PAGE_ALLOCATIONS == 0 &&
            t->allocation_count + TIDE_PAGE_ALLOCATIONS + count <= end) {
            if (!records) records = TIDE_NEW(t->arena, tide_allocation, count);
            make_held_page(t, (tide_allocation_page){records, is_saved ? NULL : alive(t->arena), first, count});
        } else {
            uint32_t next = which + (t->allocation_count - first) % count;
            *make_allocation(t) = held_allocation(t, of, next);
        }
    }
    for (uint32_t i = 0; records && i < count; i++) records[i] = held_allocation(t, of, which + i);
}

/* Adds what the iterations before the last one hold. What they saved is freed alike, except by the last one, where it
 * may be as in the stored iteration. */
static void hold_of_iterations(tide_timeline *t, const tide_repetition *of) {
    hold_of_each(t, of, 0, of->saved_count, true);
    hold_of_each(t, of, of->saved_count, of->held_count - of->saved_count, false);
}

/* What a repetition saved is freed by `by`, its backward; except what the stored iteration of that frees. */
static void end_saved(tide_timeline *t, tide_repetition *of, const tide_repetition *by) {
    of->is_unwound = true;
    for (uint32_t i = 0; i < of->saved_count; i++) {
        int64_t kept = (int64_t)of->times - by->lags[i];
        const tide_allocation *last = tide_timeline_at(t, tide_saved_slot(of, i, kept));
        for (int64_t iteration = -(int64_t)by->lags[i]; iteration < kept; iteration++) {
            tide_allocation *a = tide_timeline_at(t, tide_saved_slot(of, i, iteration));
            *tide_timeline_died(t, tide_saved_slot(of, i, iteration)) = by->last_event;
            a->freed_by = last->freed_by;
            a->freed_op = last->freed_op;
            a->freed_module = last->freed_module;
            a->freed_statement = last->freed_statement;
        }
    }
}

/* Copies a repetition along with the events around it, which were appended again further on. */
static void repeat_repetition(tide_timeline *t, uint32_t which, uint32_t events, uint32_t moved) {
    TIDE_ROOM(t->arena, t->repetitions, t->repetition_count, t->repetition_capacity);
    tide_repetition *made = &t->repetitions[t->repetition_count++];
    *made = t->repetitions[which];
    made->first_event += events;
    made->last_event += events;
    made->first_allocation += moved;
    made->first_held += moved;
    made->first_mark = made->last_mark = t->mark_count;
    made->is_unwound = false;
    hold_of_iterations(t, made);
    if (made->unwinds) end_saved(t, made - made->unwinds, made);
}

void tide_timeline_repeat(tide_timeline *t, uint32_t first_event, uint32_t last_event, uint32_t moved,
                          const uint32_t *modules) {
    uint32_t count = last_event - first_event, further = t->event_count - first_event, next = 0,
             repetitions = t->repetition_count;
    while (next < repetitions && t->repetitions[next].first_event < first_event) next++;
    tide_timeline_reserve(t, t->event_count + count);
    for (uint32_t i = first_event; i < last_event; i++) {
        uint32_t event = t->events[i], at = t->event_count++;
        t->events[at] = event + moved;
        const tide_allocation *of = tide_timeline_at(t, event & ~TIDE_FREE_BIT);
        tide_allocation *made =
            event & TIDE_FREE_BIT ? tide_timeline_at(t, (event & ~TIDE_FREE_BIT) + moved) : make_allocation(t);
        if (event & TIDE_FREE_BIT) {
            *tide_timeline_died(t, (event & ~TIDE_FREE_BIT) + moved) = at;
            made->freed_by = of->freed_by;
            made->freed_op = of->freed_op;
            made->freed_module = modules ? modules[of->freed_module] : of->freed_module;
            made->freed_statement = of->freed_statement;
        } else {
            *made = *of;
            made->born = at;
            made->died = TIDE_NEVER;
            made->freed_by = TIDE_FREED_BY_NONE;
            made->freed_op = NULL;
            made->freed_module = made->freed_statement = 0;
            if (modules) made->module = modules[made->module];
        }
        for (; next < repetitions && t->repetitions[next].last_event == i + 1; next++)
            repeat_repetition(t, next, further, moved);
    }
}

void tide_timeline_empty_cache(tide_timeline *timeline) {
    append_event(timeline, TIDE_EMPTY_CACHE);
}

void tide_timeline_mark(tide_timeline *timeline, unsigned step, tide_phase phase) {
    TIDE_ROOM(timeline->arena, timeline->marks, timeline->mark_count, timeline->mark_capacity);
    timeline->marks[timeline->mark_count++] = (tide_mark){timeline->event_count, (uint16_t)step, (uint8_t)phase};
}

void tide_timeline_end_forward(tide_timeline *timeline, uint32_t from) {
    TIDE_ROOM(timeline->arena, timeline->forward_passes, timeline->forward_pass_count, timeline->forward_pass_capacity);
    timeline->forward_passes[timeline->forward_pass_count++] =
        (tide_forward_pass){from, timeline->allocation_count, timeline->event_count};
}

/* Whether there is a repetition at or after an event. */
static bool has_repetition(const tide_timeline *t, uint32_t event) {
    return t->repetition_count && t->repetitions[t->repetition_count - 1].last_event > event;
}

static bool same_bytes(const tide_allocation *a, const tide_allocation *b) {
    return a->bytes == b->bytes && a->stream == b->stream;
}

static bool same_request(const tide_allocation *a, const tide_allocation *b) {
    return same_bytes(a, b) && a->used_by == b->used_by;
}

/* Whether all later iterations, of `own` allocations each, left an allocation like this one alive. */
static bool is_handed_on(const tide_timeline *t, uint32_t which, uint32_t own, uint32_t end) {
    for (uint32_t next = which + own; next < end; next += own)
        if (!same_bytes(tide_timeline_at(t, which), tide_timeline_at(t, next)) ||
            *tide_timeline_died(t, next) != TIDE_NEVER)
            return false;
    return true;
}

/* How many repetitions lie at or after an event. */
static uint32_t repetitions_from(const tide_timeline *t, uint32_t event) {
    uint32_t count = 0;
    while (count < t->repetition_count && t->repetitions[t->repetition_count - 1 - count].first_event >= event) count++;
    return count;
}

/* Whether two ranges of events contain the same repetitions. */
static bool same_repetitions(const tide_timeline *t, tide_timeline_place first, tide_timeline_place second) {
    uint32_t count = repetitions_from(t, second.event), both = repetitions_from(t, first.event);
    if (both != 2 * count || (!count && has_repetition(t, first.event))) return false;
    for (uint32_t i = t->repetition_count - count; i < t->repetition_count; i++) {
        const tide_repetition *a = &t->repetitions[i - count], *b = &t->repetitions[i];
        if (b->growth || b->steps || b->inner || a->times != b->times || a->held_count != b->held_count ||
            a->saved_count != b->saved_count || a->unwinds != b->unwinds || a->is_in_order != b->is_in_order ||
            b->first_event - a->first_event != second.event - first.event ||
            b->last_event - a->last_event != second.event - first.event ||
            b->first_allocation - a->first_allocation != second.allocation - first.allocation ||
            (b->held_count && memcmp(a->held, b->held, b->held_count * sizeof *b->held) != 0) ||
            (b->unwinds && memcmp(a->lags, b->lags, (b - b->unwinds)->saved_count) != 0))
            return false;
    }
    return true;
}

bool tide_timeline_repeats(const tide_timeline *t, tide_timeline_place oldest, tide_timeline_place first,
                           tide_timeline_place second, uint32_t held) {
    uint32_t events = second.event - first.event, own = second.allocation - first.allocation, left = held;
    if (t->event_count - second.event != events || t->allocation_count - second.allocation != own ||
        !same_repetitions(t, first, second))
        return false;
    for (uint32_t i = 0; i < events; i++) {
        uint32_t before = t->events[first.event + i], now = t->events[second.event + i], which = now & ~TIDE_FREE_BIT;
        if (before == TIDE_EMPTY_CACHE && now == TIDE_EMPTY_CACHE) continue;
        if (before == TIDE_EMPTY_CACHE || now != before + own || which < oldest.allocation) return false;
        if (which < second.allocation) { /* left alive by an earlier iteration */
            if (!is_handed_on(t, which, own, t->allocation_count)) return false;
            left++;
        }
        const tide_allocation *a = tide_timeline_at(t, which - own), *b = tide_timeline_at(t, which);
        /* which streams use it is known only when it is freed */
        if (now & TIDE_FREE_BIT ? a->used_by != b->used_by : !same_bytes(a, b)) return false;
    }
    for (uint32_t i = second.allocation; i < t->allocation_count; i++) left -= *tide_timeline_died(t, i) == TIDE_NEVER;
    return left == 0;
}

/* Whether a request is another one that has grown. */
static bool has_grown(const tide_allocation *a, const tide_allocation *b, uint64_t *growth, int64_t times) {
    if (b->stream != a->stream || b->used_by != a->used_by || b->bytes < a->bytes) return false;
    if (!times) *growth = b->bytes - a->bytes;
    return b->bytes == a->bytes + *growth * (times ? (uint64_t)times : 1);
}

bool tide_timeline_grows(const tide_timeline *t, tide_timeline_place first, uint32_t last, tide_timeline_place second,
                         uint64_t *growth, int64_t times) {
    uint32_t events = last - first.event, own = t->allocation_count - second.allocation, left = 0,
             moved = second.allocation - first.allocation;
    if (t->event_count - second.event != events || has_repetition(t, first.event)) return false;
    for (uint32_t i = 0; i < events; i++) {
        uint32_t before = t->events[first.event + i], now = t->events[second.event + i], from = before & ~TIDE_FREE_BIT;
        if (before == TIDE_EMPTY_CACHE || now == TIDE_EMPTY_CACHE) return false;
        bool is_older = from < first.allocation; /* left alive by earlier iterations */
        if (now != before + (is_older ? own : moved)) return false;
        left += is_older;
        if (!(now & TIDE_FREE_BIT) &&
            !has_grown(tide_timeline_at(t, from), tide_timeline_at(t, now), &growth[now - second.allocation], times))
            return false;
    }
    for (uint32_t i = second.allocation; i < t->allocation_count; i++) left -= *tide_timeline_died(t, i) == TIDE_NEVER;
    return left == 0;
}

void tide_timeline_take_back(tide_timeline *t, tide_timeline_place from) {
    for (uint32_t i = from.event; i < t->event_count; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        if (!(t->events[i] & TIDE_FREE_BIT) || which >= from.allocation) continue;
        tide_allocation *a = tide_timeline_at(t, which);
        *tide_timeline_died(t, which) = TIDE_NEVER;
        a->freed_by = TIDE_FREED_BY_NONE;
        a->freed_op = NULL;
        a->freed_module = a->freed_statement = 0;
    }
    t->event_count = from.event;
    t->allocation_count = from.allocation;
    t->mark_count = from.mark;
    while (has_repetition(t, from.event)) t->repetition_count--;
}

bool tide_timeline_is_closed(const tide_timeline *t, tide_timeline_place from) {
    for (uint32_t i = from.event; i < t->event_count; i++)
        if ((t->events[i] & ~TIDE_FREE_BIT) < from.allocation) return false;
    for (uint32_t i = from.allocation; i < t->allocation_count; i++)
        if (*tide_timeline_died(t, i) == TIDE_NEVER) return false;
    return true;
}

void tide_timeline_play_again(tide_timeline *t, tide_timeline_place from, uint32_t times, unsigned steps) {
    uint32_t inner = repetitions_from(t, from.event);
    TIDE_ROOM(t->arena, t->repetitions, t->repetition_count, t->repetition_capacity);
    t->repetitions[t->repetition_count++] = (tide_repetition){.first_event = from.event,
                                                              .last_event = t->event_count,
                                                              .first_allocation = from.allocation,
                                                              .own = t->allocation_count - from.allocation,
                                                              .first_mark = from.mark,
                                                              .last_mark = t->mark_count,
                                                              .times = times,
                                                              .steps = (uint16_t)steps,
                                                              .inner = inner};
}

const tide_repetition *tide_timeline_play_again_holding(tide_timeline *t, tide_timeline_place from, uint32_t times,
                                                        const uint32_t *held, uint32_t held_count,
                                                        uint32_t saved_count) {
    tide_timeline_play_again(t, from, times, 0);
    uint32_t *kept = held_count ? TIDE_NEW(t->arena, uint32_t, held_count) : NULL;
    tide_repetition *of = &t->repetitions[t->repetition_count - 1];
    for (uint32_t i = 0; i < held_count; i++) kept[i] = held[i] - from.allocation;
    of->held = kept;
    of->held_count = held_count;
    of->saved_count = saved_count;
    of->first_held = t->allocation_count;
    hold_of_iterations(t, of);
    return of;
}

/* The repetition of so many iterations that saved an allocation, in its stored iteration or in the one before. */
static uint32_t saving_repetition(const tide_timeline *t, uint32_t which, uint32_t times) {
    for (uint32_t i = t->repetition_count; i-- > 0;) {
        const tide_repetition *r = &t->repetitions[i];
        if (which >= r->first_allocation + r->own) return UINT32_MAX;
        if (which + r->own >= r->first_allocation) return r->times == times && !r->is_unwound ? i : UINT32_MAX;
    }
    return UINT32_MAX;
}

/* Finds which of the saved allocations this is, of the stored iteration or, with a lag, of the one before; false unless
 * the previous iteration of backward freed its counterpart. */
static bool find_saved(const tide_repetition *of, uint32_t which, uint32_t freed_before, uint8_t *lags,
                       uint32_t *found) {
    uint32_t lag = which < of->first_allocation, own = which + lag * of->own;
    uint32_t next = lag ? own : of->first_held + of->times * of->held_count + (own - of->first_allocation);
    for (uint32_t i = 0; i < of->saved_count; i++) {
        if (of->first_allocation + of->held[i] != own || lags[i] != UINT8_MAX) continue;
        lags[i] = (uint8_t)lag;
        *found = i;
        return freed_before == next;
    }
    return false;
}

/* The same for backward in order: the previous iteration freed what the iteration before the stored one saved. */
static bool find_saved_in_order(const tide_repetition *of, uint32_t which, uint32_t freed_before, uint8_t *lags) {
    uint32_t low = 0, high = of->saved_count;
    if (which < of->first_allocation || freed_before + of->own != which) return false;
    while (low < high) { /* sorted by allocation */
        uint32_t middle = (low + high) / 2;
        if (of->first_allocation + of->held[middle] < which)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == of->saved_count || of->first_allocation + of->held[low] != which || lags[low] != UINT8_MAX) return false;
    lags[low] = 0;
    return true;
}

typedef struct unwinding_events {
    uint32_t saving; /* the repetition that saved what is freed; UINT32_MAX: none */
    uint8_t *lags;
    uint32_t carried, saved;
    bool is_in_order;
} unwinding_events;

/* Compares an event with its counterpart in the previous iteration. */
static bool unwinds_alike(tide_timeline *t, unwinding_events *u, uint32_t before, uint32_t now,
                          tide_timeline_place first, tide_timeline_place second, uint32_t times) {
    uint32_t which = now & ~TIDE_FREE_BIT, own = second.allocation - first.allocation, found;
    if (before == TIDE_EMPTY_CACHE || now == TIDE_EMPTY_CACHE) return false;
    if (which >= first.allocation) {
        u->carried += which < second.allocation;
        if (now != before + own) return false;
        return (now & TIDE_FREE_BIT) || same_request(tide_timeline_at(t, which - own), tide_timeline_at(t, which));
    }
    if (u->saving == UINT32_MAX) {
        u->saving = saving_repetition(t, which, times);
        if (u->saving == UINT32_MAX) return false;
        uint32_t count = t->repetitions[u->saving].saved_count;
        u->lags = TIDE_NEW(t->arena, uint8_t, count + 1u);
        memset(u->lags, UINT8_MAX, count);
    }
    u->saved++;
    if (u->is_in_order) return find_saved_in_order(&t->repetitions[u->saving], which, before & ~TIDE_FREE_BIT, u->lags);
    return find_saved(&t->repetitions[u->saving], which, before & ~TIDE_FREE_BIT, u->lags, &found);
}

/* With a lag, the stored iteration of backward frees what the iteration before the last one saved. */
static void free_of_iteration(tide_timeline *t, const tide_repetition *of, const tide_repetition *by) {
    for (uint32_t i = 0; i < of->saved_count; i++) {
        if (!by->lags[i]) continue;
        uint32_t from = tide_saved_slot(of, i, -1), to = tide_saved_slot(of, i, (int64_t)of->times - 1);
        const tide_allocation *was = tide_timeline_at(t, from);
        tide_allocation *is = tide_timeline_at(t, to);
        uint32_t event = *tide_timeline_died(t, from);
        t->events[event] = to | TIDE_FREE_BIT;
        *tide_timeline_died(t, to) = event;
        is->freed_by = was->freed_by;
        is->freed_op = was->freed_op;
        is->freed_module = was->freed_module;
        is->freed_statement = was->freed_statement;
    }
}

/* Whether the events from `second` on repeat the backward before them, and leave so many allocations alive. */
static bool unwinds_as_before(tide_timeline *t, unwinding_events *u, tide_timeline_place first,
                              tide_timeline_place second, uint32_t times, uint32_t held) {
    uint32_t events = second.event - first.event;
    if (t->event_count - second.event != events ||
        t->allocation_count - second.allocation != second.allocation - first.allocation ||
        has_repetition(t, first.event))
        return false;
    for (uint32_t i = 0; i < events; i++)
        if (!unwinds_alike(t, u, t->events[first.event + i], t->events[second.event + i], first, second, times))
            return false;
    u->carried += held;
    for (uint32_t i = second.allocation; i < t->allocation_count; i++)
        u->carried -= *tide_timeline_died(t, i) == TIDE_NEVER;
    return !u->carried && (!u->lags || u->saved == t->repetitions[u->saving].saved_count);
}

/* Links the last repetition to the one whose saved allocations it frees. */
static void unwind_saved(tide_timeline *t, const unwinding_events *u) {
    tide_repetition *made = &t->repetitions[t->repetition_count - 1], *of = &t->repetitions[u->saving];
    made->unwinds = t->repetition_count - 1 - u->saving;
    made->lags = u->lags;
    of->is_in_order = u->is_in_order;
    free_of_iteration(t, of, made);
    end_saved(t, of, made);
}

bool tide_timeline_unwind(tide_timeline *t, tide_timeline_place first, tide_timeline_place second, uint32_t times) {
    unwinding_events u = {.saving = UINT32_MAX};
    if (!unwinds_as_before(t, &u, first, second, times, 0)) return false;
    if (second.event == first.event) return true;
    tide_timeline_play_again(t, second, times, 0);
    if (u.lags) unwind_saved(t, &u);
    return true;
}

bool tide_timeline_unwind_in_order(tide_timeline *t, tide_timeline_place first, tide_timeline_place second,
                                   uint32_t times, const uint32_t *held, uint32_t held_count) {
    unwinding_events u = {.saving = UINT32_MAX, .is_in_order = true};
    if (!unwinds_as_before(t, &u, first, second, times, held_count) || !u.lags) return false;
    tide_timeline_play_again_holding(t, second, times, held, held_count, 0);
    unwind_saved(t, &u);
    return true;
}
