/* The events of a job one by one, and the allocator at one of them: as of a recording. */
#ifndef TIDE_JOB_EVENTS_H
#define TIDE_JOB_EVENTS_H

#include "report/report.h"
#include "report/segments.h"

/* Members of the answer to "events". False when memory ran out. */
bool tide_write_job_events(tide_writer *w, tide_run *run, const tide_job *job, const tide_window *window);

/* Members of the answer to "state", after event `at` (TIDE_NEVER: the peak). False when memory ran out. */
bool tide_write_job_state(tide_writer *w, tide_run *run, const tide_job *job, uint32_t at,
                          const tide_state_wants *wants, tide_text filter);

#endif
