/* SPDX-License-Identifier: Apache-2.0 */
/* A job's run, played: what the parts of an answer about it read. */
#ifndef TIDE_REPORT_JOB_REPORT_H
#define TIDE_REPORT_JOB_REPORT_H

#include "allocator/allocator.h"
#include "report/allocator_state.h"
#include "report/event_rows.h"
#include "train/train.h"

typedef struct tide_job_report {
    tide_writer *w;
    tide_run *run;
    const tide_job *job;
    tide_event_source source;
    tide_replay replay;  /* without the GPU's limits */
    tide_replay on_card; /* another one where these come into play */
} tide_job_report;

/* How a job's events are played for its figures: without the GPU's limits. */
tide_replay_config tide_job_config(const tide_job *job);
/* The same on the GPU. */
tide_replay_config tide_job_config_on_card(const tide_job *job);

/* Device bytes in use outside of the allocator. */
uint64_t tide_job_context(const tide_job *job);
/* What the device holds at the most: reserved, and what is outside of the allocator. */
uint64_t tide_job_device_bytes(const tide_job *job, const tide_replay *replay);

/* Plays the run. False when memory ran out, here and below. */
bool tide_job_report_open(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
/* The same for its figures alone, without what each slot holds at the peak. */
bool tide_job_report_peaks(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
/* The same in two: what it is of, and the play, which fills columns up to event `until`, of which `from` is given. */
void tide_job_report_init(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
bool tide_job_report_play(tide_job_report *r, tide_column *columns, uint32_t count, uint32_t until);
/* The figure of the verdict: of a server, what it holds once it has started. */
uint64_t tide_job_report_need(const tide_job_report *r);
/* Fills on_card. */
bool tide_job_report_on_card(tide_job_report *r);

/* Whether a job fits its GPU. Of a model without a description of its own, and of versions that no run is recorded of,
 * the figure is a range, which may cross what the GPU has. */
typedef enum tide_fit { TIDE_FITS, TIDE_FITS_NOT, TIDE_CANNOT_TELL } tide_fit;

/* Of on_card; without a GPU it fits. By the figures, whatever they leave out. */
tide_fit tide_job_report_fit(const tide_job_report *r);
/* The same as it is told: nothing can be of a job from whose figures something is left out. */
tide_fit tide_job_report_verdict(const tide_job_report *r);
/* How far the truth and what is said may be apart, percent of the smaller of them; 0: it is exact. */
int64_t tide_range_percent(const tide_run *run, const tide_job *job);
/* What the device holds, at the least and at the most. */
uint64_t tide_range_low(const tide_run *run, const tide_job *job, uint64_t device);
uint64_t tide_range_high(const tide_run *run, const tide_job *job, uint64_t device);
/* Why it is a range; NULL: it is exact. */
const char *tide_range_reason(tide_arena *arena, const tide_run *run, const tide_job *job);
/* What a file asks for that figures leave out ("fp8, which is not described"); NULL: nothing. */
const char *tide_left_out(tide_arena *arena, const tide_job *job);
/* "fits": true, false, or null where it cannot be told. */
void tide_write_fit_at(tide_writer *w, tide_fit fit);

/* Members that say where an event is: step, phase, module, operation, line, event. */
void tide_write_event_place(tide_job_report *r, uint32_t event);

/* Members of the answers to "events", a window of them, and to "state". */
bool tide_write_job_events(tide_writer *w, tide_run *run, const tide_job *job, const tide_window *window);
bool tide_write_job_state(tide_writer *w, tide_run *run, const tide_job *job, const tide_state_query *query);

/* Whether 3 % of the GPU are left beside what is needed: another driver or kernel takes more. */
static inline bool tide_leaves_spare(uint64_t need, uint64_t there) {
    return need <= there - there / 100 * 3;
}

static inline bool tide_is_live(const tide_allocation *a, uint32_t event) {
    return a->born <= event && event < a->died;
}

#endif
