/* SPDX-License-Identifier: Apache-2.0 */
/* What each stage of an answer made, as a table: job, modules, parameters, events, blocks. A wrong number is found by
 * looking at them in this order. */
#ifndef TIDE_REPORT_STAGES_H
#define TIDE_REPORT_STAGES_H

#include "base/json_write.h"
#include "train/train.h"

/* "job, modules, parameters, events, blocks" */
extern const char tide_stage_names[];

/* Members "stage", "columns" and "rows" (arrays of texts and numbers) of the answer to "explain"; `filter` keeps the
 * rows with a text that contains it. *is_known: there is such a stage. False when memory ran out. */
bool tide_write_stage(tide_writer *w, tide_run *run, const tide_job *job, tide_text stage, tide_text filter,
                      bool *is_known);

#endif
