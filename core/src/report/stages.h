/* SPDX-License-Identifier: Apache-2.0 */
/* The result of each stage of a computation as a table: job, modules, parameters, events, blocks. To find the cause of
 * a wrong number, look at them in this order. */
#ifndef TIDE_REPORT_STAGES_H
#define TIDE_REPORT_STAGES_H

#include "base/json_write.h"
#include "train/train.h"

/* "job, modules, parameters, events, blocks" */
extern const char tide_stage_names[];

/* Members "stage", "columns" and "rows" (arrays of texts and numbers) of the answer to "explain"; `filter` selects rows
 * with a text that contains it. *is_known: whether there is such a stage. False when host memory ran out. */
bool tide_write_stage(tide_writer *w, tide_run *run, const tide_job *job, tide_text stage, tide_text filter,
                      bool *is_known);

#endif
