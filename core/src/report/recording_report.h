/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about a recording. Functions write members of the open object, and return false after an error, which is
 * reported, or when host memory ran out (not reported). `device`: a number, or -1 for the busiest one. */
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
    const char *conf; /* of the recorded allocator */
    tide_described_events events;
    tide_replay_config as_recorded; /* as it was recorded */
    tide_replay_config config;      /* overridden by the job */
} tide_recorded_play;

bool tide_recorded_open(tide_recorded_play *e, tide_recording *r, const tide_job *job, int64_t device,
                        tide_diagnostics *diags);

/* To "replay". */
bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                         tide_diagnostics *diags);

/* To "recorded_timeline": memory over the events [from, to), in the form of "timeline" of "replay". */
bool tide_write_recorded_timeline(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                                  uint32_t to, tide_diagnostics *diags);

/* To "recorded_events": a window of events. */
bool tide_write_recorded_events(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                const tide_window *window, tide_diagnostics *diags);

/* To "recorded_state": the allocator's state after an event. */
bool tide_write_recorded_state(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                               const tide_state_query *query, tide_diagnostics *diags);

#endif
