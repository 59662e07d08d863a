/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose batches differ: which step needs the most, and why. */
#include "report/batches.h"

#include "base/units.h"
#include "report/allocations.h"

tide_step_batches tide_batches_of_step(const tide_job *job, uint32_t step) {
    tide_step_batches of = {.padded = 0};
    uint64_t first = (uint64_t)(step - 1) * (uint64_t)job->grad_accum;
    bool is_flat = tide_sequences_of_row(job) > 0;
    for (int64_t i = 0; i < job->grad_accum; i++) {
        tide_micro_batch one = tide_job_micro_batch(job, first + (uint64_t)i);
        int64_t tokens = is_flat ? one.tokens : one.seq;
        if (one.is_padded && !is_flat) of.padded++;
        if (tokens <= of.seq) continue;
        of.seq = tokens;
        of.shortest = one.shortest;
        of.is_padded = one.is_padded && !is_flat;
    }
    return of;
}

/* The step with the most allocated, among those with a padding mask or those without; 0: there is none. */
static uint32_t highest(const tide_job_report *r, bool is_padded, uint32_t *steps) {
    uint32_t found = 0;
    *steps = 0;
    for (uint32_t i = 1; i <= r->replay.step_count; i++) {
        if ((tide_batches_of_step(r->job, i).padded > 0) != is_padded) continue;
        ++*steps;
        if (!found || r->replay.steps[i - 1].allocated_peak > r->replay.steps[found - 1].allocated_peak) found = i;
    }
    return found;
}

/* The last of those with the longest batch: the first step has no optimizer states yet. */
static uint32_t longest_step(const tide_job_report *r) {
    uint32_t found = 1;
    for (uint32_t i = 2; i <= r->replay.step_count; i++)
        if (tide_batches_of_step(r->job, i).seq >= tide_batches_of_step(r->job, found).seq) found = i;
    return found;
}

static const char *rows_text(const tide_job_report *r, const tide_step_batches *of) {
    tide_arena *arena = r->w->arena;
    if (tide_sequences_of_row(r->job)) return tide_format(arena, "one row of %lld tokens", (long long)of->seq);
    int64_t rows = tide_job_rows(r->job);
    const char *text =
        tide_format(arena, "%lld %s of %lld tokens", (long long)rows, rows == 1 ? "row" : "rows", (long long)of->seq);
    return of->is_padded ? tide_format(arena, "%s, padded from as few as %lld", text, (long long)of->shortest) : text;
}

/* Why the peak is in this step rather than in the one with the longest batch. */
static const char *reason_of(const tide_job_report *r, uint32_t step, tide_phase phase) {
    tide_arena *arena = r->w->arena;
    uint32_t longest = longest_step(r);
    tide_step_batches here = tide_batches_of_step(r->job, step), there = tide_batches_of_step(r->job, longest);
    const char *rows = rows_text(r, &here);
    if (phase == TIDE_PHASE_EVALUATE)
        return tide_format(arena, "the evaluation after it, with %lld samples per batch",
                           (long long)r->job->trainer_per_device_eval_batch_size);
    if (phase == TIDE_PHASE_SAVE) return "the checkpoint after it, for which sharded tensors are gathered";
    if (phase == TIDE_PHASE_OPTIMIZER || phase == TIDE_PHASE_LOAD)
        return tide_format(arena, "%s; it is not reached in a forward or backward pass, so lengths matter little",
                           rows);
    if (here.seq == there.seq) return tide_format(arena, "%s, the longest batch of the run", rows);
    const char *other = tide_format(arena, "%s; the longest batch, %s, comes in step %u", rows, rows_text(r, &there),
                                    (unsigned)longest);
    if (longest == 1) return tide_format(arena, "%s, before there are optimizer states", other);
    if (here.is_padded && !there.is_padded)
        return tide_format(arena, "%s and is full: no mask is kept, and attention runs without one", other);
    return tide_format(arena, "%s and needs %s less: the peak consists of memory that does not grow with the length",
                       other, tide_mib(arena, r->replay.allocated_peak - r->replay.steps[longest - 1].allocated_peak));
}

static void write_highest(const tide_job_report *r, const char *name, bool is_padded) {
    tide_writer *w = r->w;
    uint32_t steps, step = highest(r, is_padded, &steps);
    if (!step) return;
    tide_write_open_at(w, name, '{');
    tide_write_int_at(w, "steps", steps);
    tide_write_int_at(w, "step", step);
    tide_write_int_at(w, "seq", tide_batches_of_step(r->job, step).seq);
    tide_write_bytes_at(w, "allocated", r->replay.steps[step - 1].allocated_peak);
    tide_write_close(w, '}');
}

void tide_write_batches(tide_job_report *r) {
    const tide_mark *end = tide_phase_end(&r->run->machine.timeline, r->replay.peak_event);
    tide_writer *w = r->w;
    tide_arena *arena = w->arena;
    if (!tide_job_has_lengths(r->job) || !end || !r->replay.step_count) return;
    uint32_t step = end->step ? end->step : 1, last = r->replay.step_count;
    int64_t completion = tide_trainer_generates(r->job) ? r->job->trainer_max_completion_length : 0,
            longest = tide_lengths_longest(&r->job->lengths) + completion,
            may_be = longest < r->job->seq ? longest : r->job->seq,
            most = tide_batches_of_step(r->job, longest_step(r)).seq;
    const char *text = tide_format(arena, "Step %u of %u: %s.", (unsigned)step, (unsigned)last,
                                   reason_of(r, step, (tide_phase)end->phase));
    if (r->job->lengths.quantile_count && may_be > most && !tide_sequences_of_row(r->job))
        text =
            tide_format(arena, "%s A sample may have %lld tokens; none that long was drawn.", text, (long long)may_be);
    tide_write_open_at(w, "batches", '{');
    tide_write_string_at(w, "sentence", text);
    write_highest(r, "padded", true);
    write_highest(r, "full", false);
    tide_write_close(w, '}');
}
