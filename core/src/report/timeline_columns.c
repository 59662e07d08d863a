/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of a job's timeline. */
#include "report/timeline_columns.h"

#include <string.h>

#include "report/allocations.h"

void tide_open_columns(tide_writer *w, uint32_t events, uint32_t from, uint32_t to) {
    tide_write_open_at(w, "timeline", '{');
    tide_write_int_at(w, "events", events);
    if (from > 0 || to < events) {
        tide_write_int_at(w, "from", from);
        tide_write_int_at(w, "to", to);
    }
    tide_write_open_at(w, "columns", '[');
}

/* Takes an event into the bytes by factor. */
static void count_event(uint64_t *factors, const tide_job_report *r, uint32_t i) {
    const tide_timeline *t = &r->run->machine.timeline;
    uint32_t event = t->events[i], which = event & ~TIDE_FREE_BIT;
    if (event == TIDE_EMPTY_CACHE) return;
    uint64_t bytes = r->replay.block_bytes[which];
    factors[t->allocations[which].factor] += event & TIDE_FREE_BIT ? 0 - bytes : bytes;
}

static void write_event(tide_job_report *r, uint32_t i) {
    const tide_timeline *t = &r->run->machine.timeline;
    tide_writer *w = r->w;
    if (t->events[i] == TIDE_EMPTY_CACHE) {
        tide_write_string_at(w, "op", "empty_cache");
        return;
    }
    uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
    const tide_allocation *a = &t->allocations[which];
    int64_t bytes = (int64_t)r->replay.block_bytes[which];
    tide_write_int_at(w, "change", t->events[i] & TIDE_FREE_BIT ? -bytes : bytes);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "op", a->op);
    tide_write_string_at(w, "module", tide_module_path(r->run, a));
    tide_write_line(w, r->run, a->statement);
}

static void write_marks(tide_writer *w, const tide_timeline *t) {
    tide_write_open_at(w, "marks", '[');
    for (uint32_t i = 0; i < t->mark_count; i++) {
        if (t->marks[i].step > 0 && t->marks[i].phase == TIDE_PHASE_LOAD) continue;
        tide_write_open(w, '{');
        tide_write_int_at(w, "event", t->marks[i].event);
        tide_write_int_at(w, "step", t->marks[i].step);
        tide_write_string_at(w, "phase", tide_phase_names[t->marks[i].phase]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* Stretches that are played more often than they are shown, where there are any. */
static void write_repetitions(tide_writer *w, const tide_timeline *t) {
    if (!t->repetition_count) return;
    tide_write_open_at(w, "repetitions", '[');
    for (uint32_t i = 0; i < t->repetition_count; i++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", t->repetitions[i].first_event);
        tide_write_int_at(w, "to", t->repetitions[i].last_event);
        tide_write_int_at(w, "times", t->repetitions[i].times);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* The bytes by factor move on to the column's highest event. */
static void write_column(tide_job_report *r, const tide_column *c, uint64_t *factors, uint32_t *counted) {
    tide_writer *w = r->w;
    for (; *counted <= c->peak; ++*counted) count_event(factors, r, *counted);
    tide_write_int_at(w, "from", c->from);
    tide_write_int_at(w, "peak", c->peak);
    tide_write_bytes_at(w, "allocated", c->allocated);
    tide_write_bytes_at(w, "reserved", c->reserved);
    tide_write_open_at(w, "factors", '[');
    for (int f = 0; f < TIDE_FACTOR_COUNT; f++) tide_write_int(w, (int64_t)factors[f]);
    tide_write_close(w, ']');
}

bool tide_timeline_play(tide_timeline_columns *c, tide_job_report *r, uint32_t from, uint32_t to) {
    uint32_t end = r->source.event_count;
    c->to = to < end ? to : end;
    c->from = from < c->to ? from : c->to ? c->to - 1 : 0;
    uint32_t events = c->to - c->from;
    c->count = events < TIDE_COLUMNS ? events : TIDE_COLUMNS;
    c->columns = TIDE_NEW(r->w->arena, tide_column, c->count + 1);
    for (uint32_t i = 0; i < c->count; i++) c->columns[i].from = c->from + (uint32_t)((uint64_t)events * i / c->count);
    return tide_job_report_play(r, c->columns, c->count, c->to);
}

void tide_write_timeline(tide_job_report *r, const tide_timeline_columns *c) {
    tide_writer *w = r->w;
    uint32_t events = c->to - c->from, peak_column = 0, counted = 0;
    uint64_t factors[TIDE_FACTOR_COUNT] = {0}, highest = 0;
    tide_open_columns(w, r->source.event_count, c->from, c->to);
    for (uint32_t i = 0; i < c->count; i++) {
        const tide_column *column = &c->columns[i];
        if (column->allocated > highest || (column->allocated == highest && column->peak == r->replay.peak_event))
            highest = column->allocated, peak_column = i;
        tide_write_open(w, '{');
        write_column(r, column, factors, &counted);
        if (events < r->source.event_count && c->count == events) write_event(r, column->from);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    write_marks(w, &r->run->machine.timeline);
    write_repetitions(w, &r->run->machine.timeline);
    tide_write_int_at(w, "peak_column", peak_column);
    tide_write_close(w, '}');
}

bool tide_write_events(tide_writer *w, tide_run *run, const tide_job *job, uint32_t from, uint32_t to) {
    tide_job_report r;
    tide_timeline_columns columns;
    tide_job_report_init(&r, w, run, job);
    if (!tide_timeline_play(&columns, &r, from, to)) return false;
    tide_write_timeline(&r, &columns);
    return true;
}
