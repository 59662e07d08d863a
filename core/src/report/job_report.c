/* SPDX-License-Identifier: Apache-2.0 */
/* Playing a job's run. */
#include "report/job_report.h"

#include "report/allocations.h"
#include "report/job_events.h"
#include "report/serving.h"

tide_replay_config tide_job_config(const tide_job *job) {
    return (tide_replay_config){.conf = job->allocator_conf, .fraction_ppm = job->memory_fraction_ppm};
}

tide_replay_config tide_job_config_on_card(const tide_job *job) {
    tide_replay_config config = tide_job_config(job);
    config.device_bytes = job->device_bytes;
    config.outside_bytes = tide_job_context(job);
    return config;
}

uint64_t tide_job_context(const tide_job *job) {
    return job->has_gpu ? job->gpu.context_bytes : 0;
}

uint64_t tide_job_device_bytes(const tide_job *job, const tide_replay *replay) {
    return replay->reserved_peak + tide_job_context(job);
}

uint64_t tide_job_report_need(const tide_job_report *r) {
    return r->run->serving ? tide_serving_bytes(r->run->serving) : tide_job_device_bytes(r->job, &r->replay);
}

void tide_job_report_init(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job) {
    *r = (tide_job_report){.w = w, .run = run, .job = job, .source = tide_job_events(run).source};
}

bool tide_job_report_play(tide_job_report *r, tide_column *columns, uint32_t count, uint32_t until) {
    tide_replay_config config = tide_job_config(r->job);
    tide_player p;
    if (!tide_player_open(&p, &r->source, &config, r->run->machine.timeline.arena) ||
        !tide_player_columns(&p, columns, count, until) || !tide_player_run(&p, r->source.event_count))
        return false;
    if (!tide_player_close_at_peak(&p, &config)) return false;
    r->replay = p.figures;
    return true;
}

bool tide_job_report_open(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job) {
    tide_job_report_init(r, w, run, job);
    return tide_job_report_play(r, NULL, 0, 0);
}

bool tide_job_report_peaks(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job) {
    tide_replay_config config = tide_job_config(job);
    tide_job_report_init(r, w, run, job);
    r->replay = run->peaks;
    return run->has_peaks || tide_replay_peaks(&r->replay, &r->source, &config, run->machine.timeline.arena);
}

bool tide_job_report_on_card(tide_job_report *r) {
    const tide_job *job = r->job;
    r->on_card = r->replay;
    if (r->run->serving || !job->device_bytes ||
        (tide_job_device_bytes(job, &r->replay) <= job->device_bytes && !job->memory_fraction_ppm))
        return true;
    tide_replay_config config = tide_job_config_on_card(job);
    return tide_replay_peaks(&r->on_card, &r->source, &config, r->run->machine.timeline.arena);
}

int64_t tide_range_percent(const tide_run *run, const tide_job *job) {
    return (run->stand_in_of ? run->stand_in_percent : 0) + job->versions_percent;
}

const char *tide_range_reason(tide_arena *arena, const tide_run *run, const tide_job *job) {
    const char *no_run =
        job->versions_asked ? tide_format(arena, "no run of %s is recorded", job->versions_asked) : NULL;
    if (run->engine_may_refuse) return "at the lower end of its range of blocks the engine refuses to start";
    if (!run->stand_in_of && !no_run && run->margin) return run->margin_reason;
    if (!run->stand_in_of) return no_run;
    return no_run ? tide_format(arena, "the model has no description of its own and %s", no_run)
                  : "the model has no description of its own";
}

const char *tide_left_out(tide_arena *arena, const tide_job *job) {
    enum { SHOWN = 3 };
    const tide_name_list *of = &job->undescribed;
    const char *list = "";
    for (uint32_t i = 0; i < of->count && i < SHOWN; i++)
        list = tide_format(arena, "%s%s%s", list, i == 0 ? "" : i + 1 < of->count ? ", " : " and ", of->names[i]);
    if (of->count > SHOWN) list = tide_format(arena, "%s and %u more", list, of->count - SHOWN);
    return of->count ? tide_format(arena, "%s, which %s not described", list, of->count > 1 ? "are" : "is") : NULL;
}

uint64_t tide_range_low(const tide_run *run, const tide_job *job, uint64_t device) {
    uint64_t percent = (uint64_t)tide_range_percent(run, job);
    uint64_t low = percent ? device / (100 + percent) * 100 : device;
    return low > run->margin ? low - run->margin : low;
}

uint64_t tide_range_high(const tide_run *run, const tide_job *job, uint64_t device) {
    return device + device / 100 * (uint64_t)tide_range_percent(run, job) + run->margin;
}

tide_fit tide_job_report_fit(const tide_job_report *r) {
    const tide_serving *serving = r->run->serving;
    if (serving)
        return tide_serving_fits(serving)      ? TIDE_FITS
               : tide_serving_may_fit(serving) ? TIDE_CANNOT_TELL
                                               : TIDE_FITS_NOT;
    uint64_t device = tide_job_device_bytes(r->job, &r->replay), low = tide_range_low(r->run, r->job, device),
             high = tide_range_high(r->run, r->job, device);
    if (r->on_card.is_oom) return low == device || low > r->job->device_bytes ? TIDE_FITS_NOT : TIDE_CANNOT_TELL;
    bool may_need_more = r->job->device_bytes && high > device && high > r->job->device_bytes;
    return may_need_more || r->run->engine_may_refuse ? TIDE_CANNOT_TELL : TIDE_FITS;
}

tide_fit tide_job_report_verdict(const tide_job_report *r) {
    return r->job->undescribed.count ? TIDE_CANNOT_TELL : tide_job_report_fit(r);
}

void tide_write_fit_at(tide_writer *w, tide_fit fit) {
    if (fit == TIDE_CANNOT_TELL) {
        tide_write_key(w, "fits");
        tide_write_null(w);
    } else {
        tide_write_bool_at(w, "fits", fit == TIDE_FITS);
    }
}

/* If the peak is in a later iteration of a repetition of whole steps: how many steps later. */
static uint32_t later_steps_of(const tide_job_report *r, uint32_t event) {
    const tide_timeline *t = &r->run->machine.timeline;
    uint32_t later = 0;
    for (uint32_t i = 0; event == r->replay.peak_event && i < t->repetition_count; i++) {
        const tide_repetition *of = &t->repetitions[i];
        if (of->first_event <= event && event < of->last_event)
            later += (of->inner ? r->replay.peak_outer : r->replay.peak_iteration) * of->steps;
    }
    return later;
}

void tide_write_event_place(tide_job_report *r, uint32_t event) {
    const tide_timeline *t = &r->run->machine.timeline;
    const tide_mark *end = tide_phase_end(t, event);
    bool is_of_none = !t->event_count || t->events[event] == TIDE_EMPTY_CACHE;
    const tide_allocation *a = is_of_none ? NULL : tide_timeline_at(t, t->events[event] & ~TIDE_FREE_BIT);
    tide_write_int_at(r->w, "step", end ? end->step + later_steps_of(r, event) : 0);
    tide_write_string_at(r->w, "phase", tide_phase_names[end ? end->phase : TIDE_PHASE_LOAD]);
    tide_write_string_at(r->w, "module", a ? tide_module_path(r->run, a) : "");
    tide_write_string_at(r->w, "op", a ? a->op : "");
    if (a) tide_write_line(r->w, r->run, a->statement);
    tide_write_int_at(r->w, "event", event);
}

bool tide_write_job_events(tide_writer *w, tide_run *run, const tide_job *job, const tide_window *window) {
    tide_described_events events = tide_job_events(run);
    tide_replay_config config = tide_job_config(job);
    return tide_write_event_rows(w, &events, &config, window);
}

bool tide_write_job_state(tide_writer *w, tide_run *run, const tide_job *job, const tide_state_query *query) {
    tide_described_events events = tide_job_events(run);
    tide_replay_config config = tide_job_config(job);
    return tide_write_state(w, &events, &config, query);
}
