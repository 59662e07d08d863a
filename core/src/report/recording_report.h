/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about a recording. Members of the open object; false after an error, which is reported, or when memory ran
 * out (no error then). `device`: a number, or -1 for the busiest one. */
#ifndef TIDE_REPORT_RECORDING_REPORT_H
#define TIDE_REPORT_RECORDING_REPORT_H

#include "job/job.h"
#include "report/allocator_state.h"
#include "report/event_rows.h"
#include "trace/trace.h"

/* A device's tape, ready to be played. */
typedef struct tide_recorded_play {
    tide_recording *recording;
    const tide_tape *tape;
    uint32_t device;
    const char *conf; /* of the allocator, as recorded */
    tide_described_events events;
    tide_replay_config as_recorded; /* what it was played on */
    tide_replay_config config;      /* with what the job says in its place */
} tide_recorded_play;

bool tide_recorded_open(tide_recorded_play *e, tide_recording *r, const tide_job *job, int64_t device,
                        tide_diagnostics *diags);

/* To "replay". */
bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                         tide_diagnostics *diags);

/* To "recorded_timeline": memory over the events [from, to), as "timeline" of "replay" has it over all. */
bool tide_write_recorded_timeline(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                                  uint32_t to, tide_diagnostics *diags);

/* To "recorded_events": a window of them. */
bool tide_write_recorded_events(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                const tide_window *window, tide_diagnostics *diags);

/* To "recorded_state": the allocator after an event. */
bool tide_write_recorded_state(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                               const tide_state_query *query, tide_diagnostics *diags);

#endif
