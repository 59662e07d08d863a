/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about one job. Members of the open object; false when memory ran out. */
#ifndef TIDE_REPORT_ESTIMATE_H
#define TIDE_REPORT_ESTIMATE_H

#include "base/json_write.h"
#include "report/queries.h"
#include "train/train.h"

/* Parts of an estimate for which more is played than the job: the smallest device and other options of the allocator,
 * some twenty times the events; and what other flags make of a server. */
enum { TIDE_WITH_OPTIONS = 1, TIDE_WITH_FLAGS = 2 };
/* To "estimate". plainer: the question, for the job without its adapter; NULL: that is not played. */
bool tide_write_estimate(tide_writer *w, tide_run *run, const tide_job *job, tide_diagnostics *diags, unsigned parts,
                         const tide_query *plainer);

/* To "measure": the peak and the verdict alone. */
bool tide_write_measure(tide_writer *w, tide_run *run, const tide_job *job);

/* The same without where that is: peak, and whether it fits. */
bool tide_write_cell(tide_writer *w, tide_run *run, const tide_job *job);

/* To "verify": the figures of an oracle's result. */
bool tide_write_figures(tide_writer *w, tide_run *run, const tide_job *job);

/* What the job comes to on its device, as a link notes it: "69.3_0.1.0". NULL when memory ran out. */
const char *tide_peak_note(tide_arena *arena, tide_run *run, const tide_job *job);

#endif
