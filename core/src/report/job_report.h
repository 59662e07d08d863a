/* SPDX-License-Identifier: Apache-2.0 */
/* A job's run after playing, which all parts of an answer read. */
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
    tide_replay on_card; /* a separate one if these limits matter */
} tide_job_report;

/* How a job's events are played for its figures: without the GPU's limits. */
tide_replay_config tide_job_config(const tide_job *job);
/* The same on the GPU. */
tide_replay_config tide_job_config_on_card(const tide_job *job);

/* Device memory in use outside of the allocator, in bytes. */
uint64_t tide_job_context(const tide_job *job);
/* The most that the device holds: what is reserved, and what is outside of the allocator. */
uint64_t tide_job_device_bytes(const tide_job *job, const tide_replay *replay);

/* Plays the run. This and the functions below return false when host memory ran out. */
bool tide_job_report_open(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
/* The same for figures only, without block_bytes at the peak. */
bool tide_job_report_peaks(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
/* The same in two parts: initialising, and playing, which fills columns up to event `until`, of which `from` is given.
 */
void tide_job_report_init(tide_job_report *r, tide_writer *w, tide_run *run, const tide_job *job);
bool tide_job_report_play(tide_job_report *r, tide_column *columns, uint32_t count, uint32_t until);
/* The figure for the verdict: for a server, what it holds after its start. */
uint64_t tide_job_report_need(const tide_job_report *r);
/* Fills on_card. */
bool tide_job_report_on_card(tide_job_report *r);

/* Whether a job fits its GPU. For a model without a description of its own, and for versions that no recorded run
 * covers, the figure is a range, which may include the GPU's capacity. */
typedef enum tide_fit { TIDE_FITS, TIDE_FITS_NOT, TIDE_CANNOT_TELL } tide_fit;

/* From on_card; without a GPU it fits. By the figures alone, whatever they leave out. */
tide_fit tide_job_report_fit(const tide_job_report *r);
/* The same as reported: a job whose figures leave something out gets no verdict. */
tide_fit tide_job_report_verdict(const tide_job_report *r);
/* How far the truth and the figure may differ, in percent of the smaller of them; 0: it is exact. */
int64_t tide_range_percent(const tide_run *run, const tide_job *job);
/* What the device holds, lower and upper bound. */
uint64_t tide_range_low(const tide_run *run, const tide_job *job, uint64_t device);
uint64_t tide_range_high(const tide_run *run, const tide_job *job, uint64_t device);
/* Why it is a range; NULL: it is exact. */
const char *tide_range_reason(tide_arena *arena, const tide_run *run, const tide_job *job);
/* What a file asks for and the figures leave out ("fp8, which is not described"); NULL: nothing. */
const char *tide_left_out(tide_arena *arena, const tide_job *job);
/* "fits": true, false, or null if it cannot be told. */
void tide_write_fit_at(tide_writer *w, tide_fit fit);

/* Members for the place of an event: step, phase, module, operation, line, event. */
void tide_write_event_place(tide_job_report *r, uint32_t event);

/* Members of the answers to "events", a window of them, and to "state". */
bool tide_write_job_events(tide_writer *w, tide_run *run, const tide_job *job, const tide_window *window);
bool tide_write_job_state(tide_writer *w, tide_run *run, const tide_job *job, const tide_state_query *query);

/* Whether 3 % of the GPU are left: another driver or kernel may need more. */
static inline bool tide_leaves_spare(uint64_t need, uint64_t there) {
    return need <= there - there / 100 * 3;
}

static inline bool tide_is_live(const tide_timeline *t, uint32_t allocation, uint32_t event) {
    return tide_timeline_at(t, allocation)->born <= event && event < *tide_timeline_died(t, allocation);
}

#endif
