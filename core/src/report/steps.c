/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of each step, as a training script would read them from torch.cuda. */
#include "report/batches.h"
#include "report/verdict.h"

static void write_batches_of(tide_writer *w, const tide_job *job, uint32_t step) {
    if (!tide_job_has_lengths(job)) return;
    tide_step_batches of = tide_batches_of_step(job, step);
    tide_write_int_at(w, "seq", of.seq);
    tide_write_int_at(w, "padded", of.padded);
}

static void write_phases(tide_writer *w, const tide_step_figures *s) {
    for (uint32_t i = 0; i < TIDE_PHASE_COUNT; i++) {
        if (!(s->passed & 1u << i)) continue;
        if (tide_phases[i].title) tide_write_bytes_at(w, tide_phases[i].peak, s->peak[i]);
        if (tide_phases[i].after) tide_write_bytes_at(w, tide_phases[i].after, s->after[i]);
    }
}

static void write_step_column(tide_writer *w, const char *name, const char *title) {
    if (!name || !title) return;
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name);
    tide_write_string_at(w, "title", title);
    tide_write_close(w, '}');
}

/* The columns of a table of steps. */
static void write_step_columns(tide_writer *w, const tide_replay *r) {
    uint32_t passed = 0;
    for (uint32_t i = 0; i < r->step_count; i++) passed |= r->steps[i].passed;
    tide_write_open_at(w, "step_columns", '[');
    write_step_column(w, "before", "Before");
    for (uint32_t i = 0; i < TIDE_PHASE_COUNT; i++) {
        if (!(passed & 1u << i)) continue;
        write_step_column(w, tide_phases[i].peak, tide_phases[i].title);
        write_step_column(w, tide_phases[i].after, tide_phases[i].after_title);
    }
    write_step_column(w, "reserved_peak", "Reserved");
    tide_write_close(w, ']');
}

void tide_write_steps(tide_job_report *report) {
    tide_writer *w = report->w;
    const tide_replay *r = &report->replay;
    tide_write_open_at(w, "steps", '[');
    for (uint32_t i = 0; i < r->step_count; i++) {
        const tide_step_figures *s = &r->steps[i];
        tide_write_open(w, '{');
        write_batches_of(w, report->job, i + 1);
        tide_write_bytes_at(w, "before", s->before);
        write_phases(w, s);
        tide_write_bytes_at(w, "allocated_peak", s->allocated_peak);
        tide_write_bytes_at(w, "reserved_peak", s->reserved_peak);
        tide_write_bytes_at(w, "reserved", s->reserved);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    write_step_columns(w, r);
}
