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

/* Bytes by factor after so many events, and the repetitions done by then. */
typedef struct factor_counts {
    uint64_t bytes[TIDE_FACTOR_COUNT];
    uint32_t events, repetitions;
} factor_counts;

static void count_allocation(factor_counts *c, const tide_job_report *r, uint32_t which, bool is_freed) {
    uint64_t bytes = r->replay.block_bytes[which];
    c->bytes[tide_timeline_at(&r->run->machine.timeline, which)->factor] += is_freed ? 0 - bytes : bytes;
}

/* Counts what folded iterations have set aside, and what they free of another repetition's. */
static void count_repetition(factor_counts *c, const tide_job_report *r, const tide_repetition *of) {
    const tide_repetition *saving = of - of->unwinds;
    for (uint32_t i = 0; i < of->times * of->held_count; i++) count_allocation(c, r, of->first_held + i, false);
    for (int64_t iteration = 1; of->unwinds && iteration <= of->times; iteration++)
        for (uint32_t i = 0; i < saving->saved_count; i++)
            count_allocation(c, r, tide_unwound_slot(of, i, iteration), true);
}

/* Counts events up to this one. */
static void count_events(factor_counts *c, const tide_job_report *r, uint32_t last) {
    const tide_timeline *t = &r->run->machine.timeline;
    for (; c->events <= last; c->events++) {
        uint32_t event = t->events[c->events];
        while (c->repetitions < t->repetition_count && t->repetitions[c->repetitions].last_event <= c->events)
            count_repetition(c, r, &t->repetitions[c->repetitions++]);
        if (event != TIDE_EMPTY_CACHE) count_allocation(c, r, event & ~TIDE_FREE_BIT, event & TIDE_FREE_BIT);
    }
}

static void write_event(tide_job_report *r, uint32_t i) {
    const tide_timeline *t = &r->run->machine.timeline;
    tide_writer *w = r->w;
    if (t->events[i] == TIDE_EMPTY_CACHE) {
        tide_write_string_at(w, "op", "empty_cache");
        return;
    }
    uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
    const tide_allocation *a = tide_timeline_at(t, which);
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

/* Repetitions, which are played more often than they are shown, if there are any. */
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

/* The factor of what folded iterations leave alive besides the stored one: what a loop saves for backward, or the cache
 * that grows with each token. */
static int factor_of_rest(const tide_timeline *t, uint32_t event) {
    for (uint32_t i = t->repetition_count; i > 0; i--) {
        const tide_repetition *of = &t->repetitions[i - 1];
        if (of->first_event > event) continue;
        if (of->held_count) return tide_timeline_at(t, of->first_allocation + of->held[0])->factor;
        if (of->growth) return TIDE_FACTOR_KV_CACHE;
    }
    return TIDE_FACTOR_TEMPORARY;
}

/* Slots have the sizes of one iteration: adds the rest, so that factors add up to what is allocated. */
static void add_rest(const tide_timeline *t, const tide_column *c, uint64_t *factors) {
    uint64_t sum = 0;
    int rest = factor_of_rest(t, c->peak);
    for (int f = 0; f < TIDE_FACTOR_COUNT; f++) sum += factors[f];
    if (sum <= c->allocated) factors[rest] += c->allocated - sum;
    for (int i = 0; sum > c->allocated && i < TIDE_FACTOR_COUNT; i++) {
        int f = (rest + i) % TIDE_FACTOR_COUNT;
        uint64_t over = sum - c->allocated, less = over < factors[f] ? over : factors[f];
        factors[f] -= less;
        sum -= less;
    }
}

/* Advances the bytes by factor to the column's maximum. */
static void write_column(tide_job_report *r, const tide_column *c, factor_counts *counts) {
    tide_writer *w = r->w;
    uint64_t factors[TIDE_FACTOR_COUNT];
    count_events(counts, r, c->peak);
    memcpy(factors, counts->bytes, sizeof factors);
    add_rest(&r->run->machine.timeline, c, factors);
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
    uint32_t events = c->to - c->from, peak_column = 0;
    uint64_t highest = 0;
    factor_counts counts = {0};
    tide_open_columns(w, r->source.event_count, c->from, c->to);
    for (uint32_t i = 0; i < c->count; i++) {
        const tide_column *column = &c->columns[i];
        if (column->allocated > highest || (column->allocated == highest && column->peak == r->replay.peak_event))
            highest = column->allocated, peak_column = i;
        tide_write_open(w, '{');
        write_column(r, column, &counts);
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
