#include "report/curve.h"

#include <string.h>

enum { COLUMNS = 400 };

/* Takes an event into the bytes by factor. */
static void count_event(uint64_t *factors, const tide_timeline *t, const tide_replay *r, uint32_t i) {
    uint32_t event = t->events[i], which = event & ~TIDE_FREE_BIT;
    if (event == TIDE_EMPTY_CACHE) return;
    if (event & TIDE_FREE_BIT)
        factors[t->allocations[which].factor] -= r->block_bytes[which];
    else
        factors[t->allocations[which].factor] += r->block_bytes[which];
}

static void write_event(tide_writer *w, const tide_run *run, const tide_replay *r, uint32_t i) {
    const tide_timeline *t = &run->machine.timeline;
    if (t->events[i] == TIDE_EMPTY_CACHE) {
        tide_write_string_at(w, "op", "empty_cache");
        return;
    }
    uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
    const tide_allocation *a = &t->allocations[which];
    const char *line = tide_report_line(run, a->statement);
    tide_write_int_at(w, "change",
                      t->events[i] & TIDE_FREE_BIT ? -(int64_t)r->block_bytes[which] : (int64_t)r->block_bytes[which]);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "op", a->op);
    tide_write_string_at(w, "module", run->model.instances[a->module].path);
    if (line) tide_write_string_at(w, "line", line);
}

void tide_write_timeline(tide_writer *w, const tide_run *run, const tide_replay *r, uint32_t first, uint32_t end) {
    const tide_timeline *t = &run->machine.timeline;
    uint32_t events = end - first, columns = events < COLUMNS ? events : COLUMNS, peak_column = 0;
    uint64_t factors[TIDE_FACTOR_COUNT] = {0}, best[TIDE_FACTOR_COUNT] = {0}, highest_of_all = 0;
    bool is_whole = events == r->events;
    for (uint32_t i = 0; i < first; i++) count_event(factors, t, r, i);
    tide_write_key(w, "timeline");
    tide_write_open(w, '{');
    tide_write_int_at(w, "events", r->events);
    if (!is_whole) {
        tide_write_int_at(w, "from", first);
        tide_write_int_at(w, "to", end);
    }
    tide_write_key(w, "columns");
    tide_write_open(w, '[');
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t from = first + (uint32_t)((uint64_t)events * c / columns),
                 to = first + (uint32_t)((uint64_t)events * (c + 1) / columns);
        uint64_t highest = 0, reserved = 0;
        uint32_t at = from;
        for (uint32_t i = from; i < to; i++) {
            count_event(factors, t, r, i);
            if (r->reserved[i] > reserved) reserved = r->reserved[i];
            if (i == from || r->allocated[i] > highest) {
                highest = r->allocated[i];
                at = i;
                memcpy(best, factors, sizeof best);
            }
        }
        if (highest > highest_of_all) {
            highest_of_all = highest;
            peak_column = c;
        }
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", from);
        tide_write_int_at(w, "peak", at);
        tide_write_bytes_at(w, "allocated", highest);
        tide_write_bytes_at(w, "reserved", reserved);
        tide_write_key(w, "factors");
        tide_write_open(w, '[');
        for (int f = 0; f < TIDE_FACTOR_COUNT; f++) tide_write_int(w, (int64_t)best[f]);
        tide_write_close(w, ']');
        if (!is_whole && columns == events) write_event(w, run, r, from);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_key(w, "marks");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < t->mark_count; i++) {
        if (t->marks[i].step > 0 && t->marks[i].phase == TIDE_PHASE_LOAD) continue;
        tide_write_open(w, '{');
        tide_write_int_at(w, "event", t->marks[i].event);
        tide_write_int_at(w, "step", t->marks[i].step);
        tide_write_string_at(w, "phase", tide_phase_names[t->marks[i].phase]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_int_at(w, "peak_column", peak_column);
    tide_write_close(w, '}');
}
