/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the events of a job. */
#include "report/job_events.h"

#include "report/allocations.h"

static const tide_timeline *timeline_of(const tide_described_events *events) {
    const tide_run *run = events->of;
    return &run->machine.timeline;
}

static bool allocation_passes(const tide_event_filter *filter, uint32_t request) {
    const tide_run *run = filter->events->of;
    const tide_allocation *a = tide_timeline_at(&run->machine.timeline, request);
    const char *const texts[] = {a->op, tide_module_path(run, a), tide_factor_names[a->factor]};
    for (int i = 0; i < 3; i++)
        if (tide_text_contains(tide_text_of(texts[i]), filter->text)) return true;
    return false;
}

static tide_asked allocation_asked(const tide_described_events *events, uint32_t request) {
    const tide_allocation *a = tide_timeline_at(timeline_of(events), request);
    return (tide_asked){a->bytes, a->stream};
}

/* Equal for one line of the description, or one operation outside of descriptions, with one factor and size. */
static uint64_t allocation_kind(const tide_described_events *events, uint32_t request) {
    const tide_allocation *a = tide_timeline_at(timeline_of(events), request);
    return (a->bytes * 31 + (a->statement ? a->statement : (uint64_t)tide_text_of(a->op).length << 32)) *
               TIDE_FACTOR_COUNT +
           a->factor;
}

static void write_allocation_brief(tide_writer *w, const tide_described_events *events, uint32_t request) {
    const tide_run *run = events->of;
    const tide_allocation *a = tide_timeline_at(&run->machine.timeline, request);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "op", a->op);
    tide_write_string_at(w, "module", tide_module_path(run, a));
}

static void write_allocation(tide_writer *w, const tide_described_events *events, uint32_t request) {
    tide_run *run = events->of;
    const tide_allocation *a = tide_timeline_at(&run->machine.timeline, request);
    write_allocation_brief(w, events, request);
    tide_write_line(w, run, a->statement);
    tide_write_shape(w, run, a);
}

static void write_timeline_row(tide_writer *w, const tide_described_events *events, uint32_t number,
                               const tide_event *event, tide_stack_list *stacks) {
    const tide_mark *end = tide_phase_end(timeline_of(events), number);
    (void)stacks;
    tide_write_int_at(w, "step", end ? end->step : 0);
    tide_write_string_at(w, "phase", end ? tide_phase_names[end->phase] : "");
    if (event->request != TIDE_NO_REQUEST) write_allocation(w, events, event->request);
}

static const tide_event_description allocation_description = {.passes = allocation_passes,
                                                              .asked = allocation_asked,
                                                              .kind = allocation_kind,
                                                              .write_brief = write_allocation_brief,
                                                              .write = write_allocation,
                                                              .write_row = write_timeline_row};

tide_described_events tide_job_events(tide_run *run) {
    tide_settle_factors(&run->machine.timeline);
    return (tide_described_events){tide_timeline_events(&run->machine.timeline), &allocation_description, run};
}
