/* SPDX-License-Identifier: Apache-2.0 */
/* Describing allocations. */
#include "report/allocations.h"

#include <string.h>

const char *tide_path_of(const tide_run *run, uint32_t module) {
    return module < run->model.instance_count ? run->model.instances[module].path : "";
}

const char *tide_module_path(const tide_run *run, const tide_allocation *a) {
    return tide_path_of(run, a->module);
}

/* Skips a number that is a whole component of a path; NULL: there is none. */
static const char *skip_number(const char *path, const char *at) {
    const char *end = at;
    if (at > path && at[-1] != '.') return NULL;
    while (*end >= '0' && *end <= '9') end++;
    return end > at && (*end == '.' || !*end) ? end : NULL;
}

const char *tide_path_pattern(tide_arena *arena, const char *path) {
    char *out = TIDE_NEW(arena, char, strlen(path) + 1), *at = out;
    for (const char *c = path; *c;) {
        const char *end = skip_number(path, c);
        *at++ = end ? '*' : *c;
        c = end ? end : c + 1;
    }
    *at = 0;
    return out;
}

bool tide_same_pattern(const char *one, const char *other) {
    const char *x = one, *y = other;
    if (one == other) return true;
    while (*x && *y) {
        const char *end = skip_number(one, x), *other_end = skip_number(other, y);
        if (!end != !other_end || (!end && *x != *y)) return false;
        x = end ? end : x + 1;
        y = other_end ? other_end : y + 1;
    }
    return *x == *y;
}

uint32_t tide_part_of(const tide_run *run, uint32_t module) {
    return module < run->model.instance_count ? run->model.instances[module].part : 0;
}

const char *tide_statement_line(const tide_run *run, uint32_t statement) {
    const tide_descriptions *d = &run->descriptions;
    return statement && statement < d->statement_capacity && d->statements[statement]
               ? d->statements[statement]->text.at
               : NULL;
}

void tide_write_line(tide_writer *w, const tide_run *run, uint32_t statement) {
    const char *line = tide_statement_line(run, statement);
    if (line) tide_write_string_at(w, "line", line);
}

const tide_mark *tide_phase_end(const tide_timeline *t, uint32_t event) {
    uint32_t low = 0, high = t->mark_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->marks[middle].event <= event)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->mark_count ? &t->marks[low] : NULL;
}

void tide_write_shape(tide_writer *w, tide_run *run, const tide_allocation *a) {
    const tide_timeline *t = &run->machine.timeline;
    tide_write_string_at(w, "dtype", tide_dtype_names[a->dtype]);
    tide_write_open_at(w, "shape", '[');
    for (unsigned i = 0; i < a->dims; i++) {
        const tide_dim *d = &t->dims[a->shape + i];
        tide_write_open(w, '{');
        tide_write_int_at(w, "n", d->size);
        if (d->name) tide_write_string_at(w, "name", tide_symbol_text(&run->machine, d->name));
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void settle_forward_pass(tide_timeline *t, const tide_forward_pass *pass) {
    for (uint32_t i = pass->first; i < pass->last; i++) {
        tide_allocation *a = tide_timeline_at(t, i);
        if (a->factor == TIDE_FACTOR_TEMPORARY && *tide_timeline_died(t, i) >= pass->event)
            a->factor = TIDE_FACTOR_ACTIVATION;
    }
}

/* What other iterations hold has the same factor as what the last one holds. */
static void settle_held(tide_timeline *t, const tide_repetition *of) {
    for (uint32_t i = 0; i < of->times * of->held_count; i++)
        tide_timeline_at(t, tide_held_slot(of, i % of->held_count, i / of->held_count))->factor =
            tide_timeline_at(t, of->first_allocation + of->held[i % of->held_count])->factor;
}

void tide_settle_factors(tide_timeline *t) {
    uint32_t mark = 0;
    for (uint32_t i = 0; i < t->forward_pass_count; i++) settle_forward_pass(t, &t->forward_passes[i]);
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        tide_allocation *a = tide_timeline_at(t, i);
        while (mark < t->mark_count && t->marks[mark].event <= a->born) mark++;
        if (a->factor != TIDE_FACTOR_TEMPORARY || mark == t->mark_count) continue;
        const tide_mark *end = &t->marks[mark];
        if (end->phase == TIDE_PHASE_FORWARD && *tide_timeline_died(t, i) > end->event)
            a->factor = TIDE_FACTOR_ACTIVATION;
    }
    for (uint32_t i = 0; i < t->repetition_count; i++) settle_held(t, &t->repetitions[i]);
}
