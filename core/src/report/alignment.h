/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a prediction with a recording. */
#ifndef TIDE_REPORT_ALIGNMENT_H
#define TIDE_REPORT_ALIGNMENT_H

#include "trace/trace.h"
#include "train/train.h"

/* Members of the answer to "align": requests and frees in order, what only one side has, and the peaks of both on the
 * recorded device. `device` as for recordings. False after an error, which is reported, or when host memory ran out
 * (not reported). */
bool tide_write_alignment(tide_writer *w, tide_run *run, tide_recording *r, const tide_job *job, int64_t device,
                          tide_diagnostics *diags);

#endif
