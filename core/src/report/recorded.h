/* What a recording says, played: the answer to "replay". */
#ifndef TIDE_RECORDED_H
#define TIDE_RECORDED_H

#include "job/job.h"
#include "report/replay.h"
#include "report/segments.h"
#include "trace/trace.h"

/* The tape of a device, or of the busiest one (-1), ready to be played as it was recorded on *config. NULL after an
 * error, which is reported, or when memory ran out (no error then). */
const tide_tape *tide_recorded_tape(tide_replay_config *config, tide_recording *r, const tide_job *job, int64_t device,
                                    uint32_t *number, tide_diagnostics *diags);

/* What it is played on: as recorded, with what the job says in its place. */
tide_replay_config tide_recorded_config(const tide_tape *tape, const tide_recording *r, const tide_job *job,
                                        const tide_alloc_conf *recorded);

/* The frame that a stack is told by: the innermost of a Python file that is not PyTorch's own, else the outermost of
 * all. A number of r->names; 0: none. */
uint32_t tide_recorded_frame(const tide_recording *r, uint32_t stack);

/* Members of the answer, written into the open object. `device`: a number, or -1 for the one that reserved most. False
 * after an error, which is reported, or when memory ran out (no error then). */
bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                         tide_diagnostics *diags);

/* Members of the answer to "recorded_timeline": memory over the events [from, to), as "timeline" of "replay" has it
 * over all. */
bool tide_write_recorded_timeline(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                                  uint32_t to, tide_diagnostics *diags);

/* Members of the answer to "recorded_events": a window of them. */
bool tide_write_recorded_events(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                const tide_window *window, tide_diagnostics *diags);

/* Members of the answer to "recorded_state": the allocator after event `at` (TIDE_NEVER: the peak); of the largest
 * blocks those with a frame that contains `filter`. */
bool tide_write_recorded_state(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t at,
                               const tide_state_wants *wants, tide_text filter, tide_diagnostics *diags);

#endif
