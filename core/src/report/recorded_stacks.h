/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds the memory of a recording: allocations over its events, live blocks by stack at one, and what grows from
 * step to step. Members of the open object, as in recording_report.h. Stacks are told once, as "stacks": lists of
 * numbers of "names", the frame that asked first. */
#ifndef TIDE_REPORT_RECORDED_STACKS_H
#define TIDE_REPORT_RECORDED_STACKS_H

#include "report/recording_report.h"

enum { TIDE_BANDS = 400, TIDE_BANDS_MOST = 2000 };

/* To "recorded_bands": the `most` allocations that hold most bytes for most of the events [from, to), and columns of
 * these events: allocated memory where it is highest in each. */
bool tide_write_recorded_bands(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                               uint32_t to, uint32_t most, tide_diagnostics *diags);

/* To "recorded_live": what lives after event `at` (TIDE_NEVER: the peak), by stack. */
bool tide_write_recorded_live(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t at,
                              tide_diagnostics *diags);

/* To "recorded_growth": the steps of the run, and the stacks that hold more from step to step. */
bool tide_write_recorded_growth(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                tide_diagnostics *diags);

#endif
