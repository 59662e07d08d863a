/* SPDX-License-Identifier: Apache-2.0 */
/* What freed tensors. */
#include "report/freeing.h"

#include <string.h>

/* Assignments and returns are not operations. */
static bool has_op(const tide_allocation *a) {
    return a->freed_by == TIDE_FREED_BY_OPERATION || a->freed_by == TIDE_FREED_BY_BACKWARD ||
           a->freed_by == TIDE_FREED_BY_LOOP;
}

static bool same_freeing(const tide_run *run, const tide_allocation *x, const tide_allocation *y) {
    return x->freed_by == y->freed_by && x->freed_statement == y->freed_statement &&
           (!has_op(x) || strcmp(x->freed_op, y->freed_op) == 0) &&
           tide_same_pattern(tide_path_of(run, x->freed_module), tide_path_of(run, y->freed_module));
}

void tide_freeings_add(tide_freeings *f, const tide_run *run, uint32_t allocation) {
    const tide_timeline *all = &run->machine.timeline;
    uint32_t i = 0;
    while (i < f->kinds && !same_freeing(run, tide_timeline_at(all, f->examples[i]), tide_timeline_at(all, allocation)))
        i++;
    if (i == TIDE_FREEING_KINDS) {
        f->others++;
        return;
    }
    if (i == f->kinds) f->examples[f->kinds++] = allocation;
    f->counts[i]++;
}

static void write_kind(tide_writer *w, const tide_run *run, const tide_allocation *a, uint32_t count) {
    const char *path = tide_path_of(run, a->freed_module);
    tide_write_open(w, '{');
    tide_write_string_at(w, "by", tide_freed_by_names[a->freed_by]);
    if (has_op(a)) tide_write_string_at(w, "op", a->freed_op);
    if (*path) tide_write_string_at(w, "module", count > 1 ? tide_path_pattern(w->arena, path) : path);
    tide_write_line(w, run, a->freed_statement);
    tide_write_int_at(w, "count", count);
    tide_write_close(w, '}');
}

void tide_write_freed(tide_writer *w, const tide_run *run, tide_freeings *f) {
    const tide_timeline *all = &run->machine.timeline;
    tide_write_open_at(w, "freed", '[');
    for (uint32_t written = 0; written < f->kinds; written++) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < f->kinds; i++)
            if (f->counts[i] > f->counts[most]) most = i;
        write_kind(w, run, tide_timeline_at(all, f->examples[most]), f->counts[most]);
        f->counts[most] = 0;
    }
    if (f->others) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "by", "other");
        tide_write_int_at(w, "count", f->others);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}
