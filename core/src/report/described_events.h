/* SPDX-License-Identifier: Apache-2.0 */
/* Events with descriptions of what requested their blocks: a job's allocations, or a recording's call sites. */
#ifndef TIDE_REPORT_DESCRIBED_EVENTS_H
#define TIDE_REPORT_DESCRIBED_EVENTS_H

#include "allocator/allocator.h"
#include "base/json_write.h"

/* The requested bytes. */
typedef struct tide_asked {
    uint64_t bytes;
    uint32_t stream;
} tide_asked;

typedef struct tide_described_events tide_described_events;

/* Selects requests whose description contains a text. */
typedef struct tide_event_filter {
    const tide_described_events *events;
    tide_text text; /* "": all */
    bool *by_stack; /* for a recording */
} tide_event_filter;

/* The stacks mentioned in a list of events, without duplicates. */
typedef struct tide_stack_list {
    uint32_t *stacks, count;
} tide_stack_list;

/* Callbacks, which write members of an open object. */
typedef struct tide_event_description {
    void (*filter)(tide_event_filter *filter, tide_arena *arena); /* prepares the filter; NULL: not needed */
    bool (*passes)(const tide_event_filter *filter, uint32_t request);
    tide_asked (*asked)(const tide_described_events *events, uint32_t request);
    uint64_t (*kind)(const tide_described_events *events,
                     uint32_t request); /* equal for requests to be listed together */
    void (*write_brief)(tide_writer *w, const tide_described_events *events, uint32_t request);
    void (*write)(tide_writer *w, const tide_described_events *events, uint32_t request); /* everything that is known */
    void (*write_row)(tide_writer *w, const tide_described_events *events, uint32_t number, const tide_event *event,
                      tide_stack_list *stacks);
    void (*write_stacks)(tide_writer *w, const tide_described_events *events,
                         const tide_stack_list *stacks); /* or NULL */
} tide_event_description;

struct tide_described_events {
    tide_event_source source;
    const tide_event_description *description;
    void *of; /* for the description: a run, a recording */
};

static inline void tide_filter_open(tide_event_filter *filter, const tide_described_events *events, tide_text text,
                                    tide_arena *arena) {
    *filter = (tide_event_filter){.events = events, .text = text};
    if (text.length && events->description->filter) events->description->filter(filter, arena);
}

static inline bool tide_filter_passes(const tide_event_filter *filter, uint32_t request) {
    return !filter->text.length || (request != TIDE_NO_REQUEST && filter->events->description->passes(filter, request));
}

#endif
