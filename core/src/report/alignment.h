/* SPDX-License-Identifier: Apache-2.0 */
/* A prediction beside a recording: where they part. */
#ifndef TIDE_REPORT_ALIGNMENT_H
#define TIDE_REPORT_ALIGNMENT_H

#include "trace/trace.h"
#include "train/train.h"

/* Members of the answer to "align": requests and frees in their order, what each has that the other has not, and the
 * peaks of both on the recorded device. `device` as for recordings. False after an error, which is reported, or when
 * memory ran out (no error then). */
bool tide_write_alignment(tide_writer *w, tide_run *run, tide_recording *r, const tide_job *job, int64_t device,
                          tide_diagnostics *diags);

#endif
