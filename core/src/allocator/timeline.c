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
    "load", "sync", "generate", "score", "forward", "backward", "optimizer", "evaluate", "prefill", "decode", "end"};

const char *const tide_freed_by_names[TIDE_FREED_BY_COUNT] = {"end",        "operation", "backward",
                                                              "assignment", "return",    "loop"};

enum { FIRST_ALLOCATIONS = 4096 }; /* what a small model's step makes */

void tide_timeline_init(tide_timeline *timeline, tide_arena *arena) {
    *timeline = (tide_timeline){
        .arena = arena, .allocation_capacity = FIRST_ALLOCATIONS, .event_capacity = 2 * FIRST_ALLOCATIONS};
    timeline->allocations = tide_arena_grow(arena, NULL, 0, FIRST_ALLOCATIONS * sizeof *timeline->allocations);
    timeline->events = tide_arena_grow(arena, NULL, 0, 2 * FIRST_ALLOCATIONS * sizeof *timeline->events);
}

static void append_event(tide_timeline *timeline, uint32_t event) {
    TIDE_ROOM(timeline->arena, timeline->events, timeline->event_count, timeline->event_capacity);
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
    TIDE_ROOM(timeline->arena, timeline->allocations, timeline->allocation_count, timeline->allocation_capacity);
    uint32_t index = timeline->allocation_count++;
    tide_allocation *made = &timeline->allocations[index];
    *made = *allocation;
    made->born = timeline->event_count;
    made->died = TIDE_NEVER;
    append_event(timeline, index);
    return index;
}

void tide_timeline_free(tide_timeline *timeline, uint32_t allocation, const tide_freeing *freeing) {
    tide_allocation *a = &timeline->allocations[allocation];
    a->died = timeline->event_count;
    a->freed_by = (uint8_t)freeing->by;
    a->freed_op = freeing->op;
    a->freed_module = freeing->module;
    a->freed_statement = freeing->statement;
    append_event(timeline, allocation | TIDE_FREE_BIT);
}

/* As far as TIDE_ROOM would have come. */
static uint32_t roomy(uint32_t capacity, uint32_t wanted) {
    while (capacity < wanted) capacity *= 2;
    return capacity;
}

void tide_timeline_reserve(tide_timeline *t, uint32_t events, uint32_t allocations) {
    uint32_t event_capacity = roomy(t->event_capacity, events),
             allocation_capacity = roomy(t->allocation_capacity, allocations);
    if (event_capacity > t->event_capacity)
        t->events = tide_arena_resize(t->arena, t->events, t->event_count * sizeof *t->events,
                                      event_capacity * sizeof *t->events);
    if (allocation_capacity > t->allocation_capacity)
        t->allocations = tide_arena_resize(t->arena, t->allocations, t->allocation_count * sizeof *t->allocations,
                                           allocation_capacity * sizeof *t->allocations);
    t->event_capacity = event_capacity;
    t->allocation_capacity = allocation_capacity;
}

void tide_timeline_repeat(tide_timeline *t, uint32_t first_event, uint32_t last_event, uint32_t moved,
                          const uint32_t *modules) {
    uint32_t count = last_event - first_event;
    tide_timeline_reserve(t, t->event_count + count, t->allocation_count + count);
    for (uint32_t i = first_event; i < last_event; i++) {
        uint32_t event = t->events[i], at = t->event_count++;
        tide_allocation *made = &t->allocations[(event & ~TIDE_FREE_BIT) + moved];
        t->events[at] = event + moved;
        const tide_allocation *of = &t->allocations[event & ~TIDE_FREE_BIT];
        if (event & TIDE_FREE_BIT) {
            made->died = at;
            made->freed_by = of->freed_by;
            made->freed_op = of->freed_op;
            made->freed_module = modules ? modules[of->freed_module] : of->freed_module;
            made->freed_statement = of->freed_statement;
            continue;
        }
        *made = *of;
        made->born = at;
        made->died = TIDE_NEVER;
        made->freed_by = TIDE_FREED_BY_NONE;
        made->freed_op = NULL;
        made->freed_module = made->freed_statement = 0;
        if (modules) made->module = modules[made->module];
        t->allocation_count++;
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

static bool same_request(const tide_allocation *a, const tide_allocation *b) {
    return a->bytes == b->bytes && a->stream == b->stream && a->used_by == b->used_by;
}

/* What stretches of `own` allocations have left alive from this one of an earlier stretch on. */
static bool is_handed_on(const tide_timeline *t, uint32_t which, uint32_t own, uint32_t end) {
    for (uint32_t next = which + own; next < end; next += own)
        if (!same_request(&t->allocations[which], &t->allocations[next]) || t->allocations[next].died != TIDE_NEVER)
            return false;
    return true;
}

bool tide_timeline_repeats(const tide_timeline *t, tide_timeline_place oldest, tide_timeline_place first,
                           tide_timeline_place second, uint32_t held) {
    uint32_t events = second.event - first.event, own = second.allocation - first.allocation, left = held;
    if (t->event_count - second.event != events || t->allocation_count - second.allocation != own) return false;
    for (uint32_t i = 0; i < events; i++) {
        uint32_t before = t->events[first.event + i], now = t->events[second.event + i], which = now & ~TIDE_FREE_BIT;
        if (before == TIDE_EMPTY_CACHE && now == TIDE_EMPTY_CACHE) continue;
        if (now != before + own || which < oldest.allocation) return false;
        if (which < second.allocation) { /* what a stretch before left */
            if (!is_handed_on(t, which, own, t->allocation_count)) return false;
            left++;
        }
        if (!(now & TIDE_FREE_BIT) && !same_request(&t->allocations[which - own], &t->allocations[which])) return false;
    }
    for (uint32_t i = second.allocation; i < t->allocation_count; i++) left -= t->allocations[i].died == TIDE_NEVER;
    return left == 0;
}

/* Whether a request is another that grew. */
static bool has_grown(const tide_allocation *a, const tide_allocation *b, uint64_t *growth, int64_t times) {
    if (b->stream != a->stream || b->used_by != a->used_by || b->bytes < a->bytes) return false;
    if (!times) *growth = b->bytes - a->bytes;
    return b->bytes == a->bytes + *growth * (times ? (uint64_t)times : 1);
}

bool tide_timeline_grows(const tide_timeline *t, tide_timeline_place first, uint32_t last, tide_timeline_place second,
                         uint64_t *growth, int64_t times) {
    uint32_t events = last - first.event, own = t->allocation_count - second.allocation, left = 0,
             moved = second.allocation - first.allocation;
    if (t->event_count - second.event != events) return false;
    for (uint32_t i = 0; i < events; i++) {
        uint32_t before = t->events[first.event + i], now = t->events[second.event + i], from = before & ~TIDE_FREE_BIT;
        if (before == TIDE_EMPTY_CACHE || now == TIDE_EMPTY_CACHE) return false;
        bool is_older = from < first.allocation; /* freed of what stretches before left */
        if (now != before + (is_older ? own : moved)) return false;
        left += is_older;
        if (!(now & TIDE_FREE_BIT) &&
            !has_grown(&t->allocations[from], &t->allocations[now], &growth[now - second.allocation], times))
            return false;
    }
    for (uint32_t i = second.allocation; i < t->allocation_count; i++) left -= t->allocations[i].died == TIDE_NEVER;
    return left == 0;
}

void tide_timeline_take_back(tide_timeline *t, tide_timeline_place from) {
    for (uint32_t i = from.event; i < t->event_count; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        if (!(t->events[i] & TIDE_FREE_BIT) || which >= from.allocation) continue;
        tide_allocation *a = &t->allocations[which];
        a->died = TIDE_NEVER;
        a->freed_by = TIDE_FREED_BY_NONE;
        a->freed_op = NULL;
        a->freed_module = a->freed_statement = 0;
    }
    t->event_count = from.event;
    t->allocation_count = from.allocation;
    t->mark_count = from.mark;
}

bool tide_timeline_is_closed(const tide_timeline *t, tide_timeline_place from) {
    for (uint32_t i = from.event; i < t->event_count; i++)
        if ((t->events[i] & ~TIDE_FREE_BIT) < from.allocation) return false;
    for (uint32_t i = from.allocation; i < t->allocation_count; i++)
        if (t->allocations[i].died == TIDE_NEVER) return false;
    return true;
}

void tide_timeline_play_again(tide_timeline *t, tide_timeline_place from, uint32_t times, unsigned steps) {
    TIDE_ROOM(t->arena, t->repetitions, t->repetition_count, t->repetition_capacity);
    t->repetitions[t->repetition_count++] = (tide_repetition){.first_event = from.event,
                                                              .last_event = t->event_count,
                                                              .first_allocation = from.allocation,
                                                              .own = t->allocation_count - from.allocation,
                                                              .first_mark = from.mark,
                                                              .last_mark = t->mark_count,
                                                              .times = times,
                                                              .steps = (uint16_t)steps};
}

uint32_t tide_timeline_play_again_holding(tide_timeline *t, tide_timeline_place from, uint32_t times,
                                          const uint32_t *held, uint32_t held_count) {
    uint32_t first = t->allocation_count, *kept = TIDE_NEW(t->arena, uint32_t, held_count + 1u);
    tide_timeline_play_again(t, from, times, 0);
    tide_repetition *of = &t->repetitions[t->repetition_count - 1];
    for (uint32_t i = 0; i < held_count; i++) kept[i] = held[i];
    of->held = kept;
    of->held_count = held_count;
    of->first_held = first;
    tide_timeline_reserve(t, t->event_count, first + times * held_count);
    for (uint32_t i = 0; i < times * held_count; i++) {
        tide_allocation *made = &t->allocations[t->allocation_count++];
        *made = t->allocations[held[i % held_count]];
        made->born = from.event; /* some of them later; until then they hold no block */
    }
    return first;
}
