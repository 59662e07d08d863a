/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline as a source of events. */
#include "allocator/events.h"

static void read_timeline(tide_event_cursor *cursor, tide_event *restrict events, uint32_t count) {
    const tide_timeline *t = cursor->source->of;
    const uint32_t *from = t->events + cursor->event;
    cursor->event += count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t event = from[i], which = event & ~TIDE_FREE_BIT;
        if (event == TIDE_EMPTY_CACHE) {
            events[i] = (tide_event){
                .kind = TIDE_EVENT_RELEASE, .slot = TIDE_NO_SLOT, .request = TIDE_NO_REQUEST, .other = TIDE_NEVER};
            continue;
        }
        const tide_allocation *a = tide_timeline_at(t, which);
        bool is_free = event & TIDE_FREE_BIT;
        events[i] = (tide_event){.kind = is_free ? TIDE_EVENT_FREE : TIDE_EVENT_ALLOC,
                                 .bytes = a->bytes,
                                 .slot = which,
                                 .request = which,
                                 .other = is_free ? a->born : TIDE_NEVER,
                                 .stream = a->stream,
                                 .used_by = a->used_by};
        const tide_repetition *growing = cursor->growing;
        if (growing && !is_free)
            events[i].bytes -= growing->growth[which - growing->first_allocation] * cursor->to_come;
    }
}

static uint32_t allocation_of_slot(const tide_event_cursor *cursor, uint32_t slot) {
    (void)cursor;
    return slot;
}

static uint32_t allocation_born(const tide_event_cursor *cursor, uint32_t slot) {
    const tide_timeline *t = cursor->source->of;
    return tide_timeline_at(t, slot)->born;
}

static const tide_event_reader timeline_reader = {
    .read = read_timeline, .request_of = allocation_of_slot, .born = allocation_born};

tide_event_source tide_timeline_events(const tide_timeline *t) {
    return (tide_event_source){.reader = &timeline_reader,
                               .of = t,
                               .event_count = t->event_count,
                               .slot_count = t->allocation_count,
                               .marks = t->marks,
                               .mark_count = t->mark_count,
                               .repetitions = t->repetitions,
                               .repetition_count = t->repetition_count};
}
