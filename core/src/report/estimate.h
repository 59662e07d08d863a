/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about one job. Functions write members of the open object, and return false when host memory ran out. */
#ifndef TIDE_REPORT_ESTIMATE_H
#define TIDE_REPORT_ESTIMATE_H

#include "base/json_write.h"
#include "report/queries.h"
#include "train/train.h"

/* Parts of an estimate that require playing more than the job: the smallest device and other allocator options, some
 * twenty times the events; and the effect of other flags on a server. */
enum { TIDE_WITH_OPTIONS = 1, TIDE_WITH_FLAGS = 2 };
/* To "estimate". plainer: the query, for playing the job without its adapter; NULL: not played. */
bool tide_write_estimate(tide_writer *w, tide_run *run, const tide_job *job, tide_diagnostics *diags, unsigned parts,
                         const tide_query *plainer);

/* To "measure": only the peak and the verdict. */
bool tide_write_measure(tide_writer *w, tide_run *run, const tide_job *job);

/* The same without the place of the peak. */
bool tide_write_cell(tide_writer *w, tide_run *run, const tide_job *job);

/* To "verify": the figures of a recorded result. */
bool tide_write_figures(tide_writer *w, tide_run *run, const tide_job *job);

/* The job's result on its device, as recorded in a link: "69.3_0.1.0". NULL when host memory ran out. */
const char *tide_peak_note(tide_arena *arena, tide_run *run, const tide_job *job);

#endif
