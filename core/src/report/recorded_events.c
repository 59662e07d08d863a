/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the events of a recording. */
#include "report/recorded_events.h"

enum { STACK_FRAMES = 40 };

uint32_t tide_frame_name(const tide_recording *r, uint32_t stack) {
    uint32_t outermost = 0;
    for (; stack; stack = r->stacks[stack].parent) {
        tide_text text = r->names.names[r->stacks[stack].frame];
        bool is_torch = tide_text_contains(text, TIDE_TEXT("/torch/")) || tide_text_starts(text, TIDE_TEXT("torch/"));
        bool is_python = tide_text_contains(text, TIDE_TEXT(".py:")) || tide_text_contains(text, TIDE_TEXT(".py("));
        if (!tide_text_contains(text, TIDE_TEXT("??")))
            outermost = r->stacks[stack].frame; /* else an unresolved symbol */
        if (is_python && !is_torch) break;
    }
    return outermost;
}

tide_text tide_frame_of(const tide_recording *r, uint32_t stack) {
    uint32_t frame = tide_frame_name(r, stack);
    return frame ? r->names.names[frame] : TIDE_TEXT("");
}

void tide_write_frames(tide_writer *w, const tide_recording *r, uint32_t stack, int most) {
    tide_write_open(w, '[');
    for (int i = 0; stack && i < most; i++, stack = r->stacks[stack].parent)
        tide_write_text(w, r->names.names[r->stacks[stack].frame]);
    tide_write_close(w, ']');
}

bool tide_time_at(const tide_tape *t, uint32_t event, uint64_t *microseconds) {
    uint32_t low = 0, high = t->time_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->times[middle].event <= event)
            low = middle + 1;
        else
            high = middle;
    }
    *microseconds = low ? t->times[low - 1].microseconds - t->times[0].microseconds : 0;
    return low > 0;
}

static const tide_tape *tape_of(const tide_described_events *events) {
    return events->source.of;
}

static uint32_t stack_of_site(const tide_described_events *events, uint32_t site) {
    return tape_of(events)->sites[site].stack;
}

static void write_frame(tide_writer *w, const tide_recording *r, uint32_t stack) {
    tide_write_key(w, "frame");
    tide_write_text(w, tide_frame_of(r, stack));
}

/* A stack passes if one of its frames does. */
static void filter_stacks(tide_event_filter *filter, tide_arena *arena) {
    const tide_recording *r = filter->events->of;
    filter->by_stack = TIDE_NEW(arena, bool, r->stack_count + 1);
    for (uint32_t i = 1; i < r->stack_count; i++)
        filter->by_stack[i] = filter->by_stack[r->stacks[i].parent] ||
                              tide_text_contains(r->names.names[r->stacks[i].frame], filter->text);
}

static bool site_passes(const tide_event_filter *filter, uint32_t site) {
    return filter->by_stack[stack_of_site(filter->events, site)];
}

static tide_asked site_asked(const tide_described_events *events, uint32_t site) {
    return (tide_asked){tape_of(events)->sites[site].bytes, tape_of(events)->sites[site].stream};
}

static uint64_t site_kind(const tide_described_events *events, uint32_t site) {
    (void)events;
    return site;
}

static void write_site_brief(tide_writer *w, const tide_described_events *events, uint32_t site) {
    if (stack_of_site(events, site)) write_frame(w, events->of, stack_of_site(events, site));
}

static void write_site(tide_writer *w, const tide_described_events *events, uint32_t site) {
    write_site_brief(w, events, site);
    tide_write_key(w, "frames");
    tide_write_frames(w, events->of, stack_of_site(events, site), STACK_FRAMES);
}

/* Rows with the same stack share it. */
static void write_tape_row(tide_writer *w, const tide_described_events *events, uint32_t number,
                           const tide_event *event, tide_stack_list *list) {
    uint32_t stack = event->request == TIDE_NO_REQUEST ? 0 : stack_of_site(events, event->request), at = 0;
    uint64_t us;
    if (tide_time_at(tape_of(events), number, &us)) tide_write_bytes_at(w, "us", us);
    if (!stack) return;
    while (at < list->count && list->stacks[at] != stack) at++;
    if (at == list->count) list->stacks[list->count++] = stack;
    write_frame(w, events->of, stack);
    tide_write_int_at(w, "stack", at);
}

static void write_stacks(tide_writer *w, const tide_described_events *events, const tide_stack_list *list) {
    tide_write_open_at(w, "stacks", '[');
    for (uint32_t i = 0; i < list->count; i++) tide_write_frames(w, events->of, list->stacks[i], STACK_FRAMES);
    tide_write_close(w, ']');
}

static const tide_event_description site_description = {.filter = filter_stacks,
                                                        .passes = site_passes,
                                                        .asked = site_asked,
                                                        .kind = site_kind,
                                                        .write_brief = write_site_brief,
                                                        .write = write_site,
                                                        .write_row = write_tape_row,
                                                        .write_stacks = write_stacks};

tide_described_events tide_recorded_events(tide_recording *r, const tide_tape *t) {
    return (tide_described_events){tide_tape_events(t), &site_description, r};
}
