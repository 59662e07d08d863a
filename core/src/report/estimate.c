/* SPDX-License-Identifier: Apache-2.0 */
/* Estimate, measure, cell, figures. */
#include "report/estimate.h"

#include <string.h>

#include "base/units.h"
#include "report/batches.h"
#include "report/causes.h"
#include "report/job_events.h"
#include "report/job_inputs.h"
#include "report/members.h"
#include "report/model_parts.h"
#include "report/moves.h"
#include "report/serving.h"
#include "report/tensors.h"
#include "report/timeline_columns.h"
#include "report/verdict.h"
#include "report/what_if.h"
#include "tidemark/tidemark.h"

enum { TENSOR_GROUPS = 20 };

bool tide_write_measure(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_job_report r;
    if (!tide_job_report_open(&r, w, run, job) || !tide_job_report_on_card(&r)) return false;
    tide_write_peak(&r, false);
    tide_write_verdict(&r, false);
    if (run->serving) tide_write_serving_brief(w, run->serving);
    return true;
}

bool tide_write_cell(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_job_report r;
    if (!tide_job_report_peaks(&r, w, run, job)) return false;
    /* whatever its layout */
    bool is_too_much = !run->serving && job->device_bytes && r.replay.requested_peak > job->device_bytes;
    if (is_too_much)
        r.on_card.is_oom = true;
    else if (!tide_job_report_on_card(&r))
        return false;
    tide_write_peak(&r, true);
    tide_write_verdict(&r, true);
    if (run->serving) tide_write_serving_brief(w, run->serving);
    return true;
}

/* Compares with the result that a link recorded when it was made. */
static void warn_of_was(const tide_job_report *r, tide_diagnostics *diags) {
    tide_arena *arena = r->w->arena;
    tide_text was = r->job->was;
    const char *bar = was.length ? memchr(was.at, '_', was.length) : NULL,
               *now = tide_gib_digits(arena, tide_job_report_need(r));
    if (!bar) return;
    tide_text gib = {was.at, (size_t)(bar - was.at)}, version = {bar + 1, was.length - gib.length - 1};
    if (tide_text_is(gib, now)) return;
    tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/link",
                tide_format(arena, "said %s GiB when it was made with %s; it is %s GiB now", tide_text_copy(arena, gib),
                            tide_text_copy(arena, version), now),
                "a rule or a default has changed since; the assumptions list the defaults");
}

const char *tide_peak_note(tide_arena *arena, tide_run *run, const tide_job *job) {
    tide_job_report r;
    if (!tide_job_report_open(&r, NULL, run, job)) return NULL;
    return tide_format(arena, "%s_%s", tide_gib_digits(arena, tide_job_report_need(&r)), TIDEMARK_VERSION);
}

static void write_factors(tide_job_report *r) {
    uint64_t factors[TIDE_FACTOR_COUNT];
    tide_factors_at_peak(r, factors);
    tide_write_open_at(r->w, "factors", '[');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) {
        tide_write_open(r->w, '{');
        tide_write_string_at(r->w, "name", tide_factor_names[i]);
        tide_write_bytes_at(r->w, "bytes", factors[i]);
        tide_write_close(r->w, '}');
    }
    tide_write_close(r->w, ']');
}

static void write_allocator(tide_job_report *r) {
    const tide_replay *replay = &r->replay;
    tide_write_open_at(r->w, "allocator", '{');
    tide_write_int_at(r->w, "segments", (int64_t)(replay->small_segments + replay->large_segments));
    tide_write_int_at(r->w, "retries", (int64_t)replay->retries);
    tide_write_int_at(r->w, "ooms", (int64_t)replay->ooms);
    tide_write_string_at(r->w, "conf", r->job->allocator);
    tide_write_close(r->w, '}');
}

bool tide_write_estimate(tide_writer *w, tide_run *run, const tide_job *job, tide_diagnostics *diags, unsigned parts,
                         const tide_query *plainer) {
    tide_job_report r;
    tide_timeline_columns columns;
    tide_job_report_init(&r, w, run, job);
    if (!tide_timeline_play(&columns, &r, 0, r.source.event_count) || !tide_job_report_on_card(&r)) return false;
    warn_of_was(&r, diags);
    if (plainer) tide_warn_of_more(plainer, run, job, r.replay.allocated_peak, diags);
    tide_write_settings(w, job);
    tide_write_files(w, job);
    tide_write_model(&r);
    tide_write_gpu(w, job);
    tide_write_libraries(w, job);
    tide_write_verdict(&r, false);
    if (run->serving) tide_write_serving(w, run->serving, job, parts & TIDE_WITH_FLAGS);
    if (parts & TIDE_WITH_OPTIONS && !run->serving && !tide_write_card_options(&r, diags)) return false;
    tide_write_peak(&r, false);
    tide_write_ranks(&r);
    if (plainer) tide_write_moves(w, plainer, run, job, tide_job_report_need(&r));
    write_factors(&r);
    tide_write_outside(&r);
    tide_write_besides(&r);
    tide_write_breakdown(&r);
    tide_write_tensors(&r, TENSOR_GROUPS);
    tide_write_timeline(&r, &columns);
    tide_write_steps(&r);
    tide_write_batches(&r);
    write_allocator(&r);
    tide_report_causes(&r, diags);
    tide_write_assumptions(w, job, diags);
    tide_write_diagnostics(w, diags, false);
    return true;
}

bool tide_write_figures(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_job_report r;
    tide_replay_config config = tide_job_config(job);
    config.device_bytes = job->device_bytes;
    tide_job_report_init(&r, w, run, job);
    if (!tide_replay_all(&r.replay, &r.source, &config, w->arena)) return false;
    tide_write_open_at(w, "parameters", '{');
    tide_write_int_at(w, "total", run->parameters);
    tide_write_int_at(w, "trainable", run->trainable);
    tide_write_close(w, '}');
    tide_write_string_at(w, "outcome", r.replay.is_oom ? "oom" : "ok");
    tide_write_int_at(w, "range_percent", tide_range_percent(run, job));
    tide_write_bytes_at(w, "allocated_peak", r.replay.allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", r.replay.reserved_peak);
    tide_write_steps(&r);
    uint64_t factors[TIDE_FACTOR_COUNT];
    tide_factors_at_peak(&r, factors);
    tide_write_open_at(w, "at_peak", '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) tide_write_bytes_at(w, tide_factor_names[i], factors[i]);
    tide_write_close(w, '}');
    tide_write_open_at(w, "segments", '{');
    tide_write_int_at(w, "small", (int64_t)r.replay.small_segments);
    tide_write_int_at(w, "large", (int64_t)r.replay.large_segments);
    tide_write_close(w, '}');
    tide_write_int_at(w, "retries", (int64_t)r.replay.retries);
    tide_write_int_at(w, "ooms", (int64_t)r.replay.ooms);
    return true;
}
