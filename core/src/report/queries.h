/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that play a job several times: members of the open object; false after an error, which is reported. */
#ifndef TIDE_REPORT_QUERIES_H
#define TIDE_REPORT_QUERIES_H

#include "report/what_if.h"

/* The job with the arguments of each of an array of arrays: what tide_write_cell() has to say, or the diagnostics. */
bool tide_write_cells(tide_writer *w, const tide_query *q, const tide_json *cells, tide_diagnostics *diags);

/* The largest value of a whole-numbered setting for which the job fits its GPU; with `by` ("seq=1024,2048") for each
 * value of another one. */
bool tide_write_fit(tide_writer *w, const tide_query *q, tide_text knob, tide_text by, tide_diagnostics *diags);

/* Every GPU: whether the job fits, and with parallel.kind on how many. */
bool tide_write_cards(tide_writer *w, const tide_query *q, tide_diagnostics *diags);

/* Changes to the job, each played: what it saves or costs, the largest saving first. */
bool tide_write_advice(tide_writer *w, const tide_query *q, tide_diagnostics *diags);

/* Two jobs: figures, factors and parts of the model, and the settings that differ, each with what it changes: they are
 * played one after the other, from the first job to the second one, so that the changes add up to the whole difference.
 */
bool tide_write_comparison(tide_writer *w, const tide_query *one, const tide_query *other, tide_diagnostics *diags);

#endif
