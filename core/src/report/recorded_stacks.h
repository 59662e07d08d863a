/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds the memory of a recording: allocations over its events, live blocks by stack at one event, and growth from
 * step to step. Functions write members of the open object, as in recording_report.h. Stacks are written once, as
 * "stacks": lists of indices into "names", innermost frame first. */
#ifndef TIDE_REPORT_RECORDED_STACKS_H
#define TIDE_REPORT_RECORDED_STACKS_H

#include "report/recording_report.h"

enum { TIDE_BANDS = 400, TIDE_BANDS_MOST = 2000 };

/* To "recorded_bands": the `most` allocations with the largest product of bytes and lifetime within the events [from,
 * to), and columns of these events with their maximum of allocated memory. */
bool tide_write_recorded_bands(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                               uint32_t to, uint32_t most, tide_diagnostics *diags);

/* To "recorded_live": what is live after event `at` (TIDE_NEVER: at the peak), by stack. */
bool tide_write_recorded_live(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t at,
                              tide_diagnostics *diags);

/* To "recorded_growth": the steps of the run, and stacks that hold more from step to step. */
bool tide_write_recorded_growth(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                tide_diagnostics *diags);

#endif
