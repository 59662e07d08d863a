/* SPDX-License-Identifier: Apache-2.0 */
/* Answers for which a job is played several times. Functions write members of the open object, and return false after
 * an error, which is reported. */
#ifndef TIDE_REPORT_QUERIES_H
#define TIDE_REPORT_QUERIES_H

#include "report/what_if.h"

/* For each array of further arguments, the job with these: the members of tide_write_cell(), or the diagnostics. */
bool tide_write_cells(tide_writer *w, const tide_query *q, const tide_json *cells, tide_diagnostics *diags);

/* The largest value of an integer setting for which the job fits its GPU; with `by` ("seq=1024,2048") for each value of
 * another one. */
bool tide_write_fit(tide_writer *w, const tide_query *q, tide_text knob, tide_text by, tide_diagnostics *diags);

/* Every GPU: whether the job fits, and with parallel.kind on how many of them. */
bool tide_write_cards(tide_writer *w, const tide_query *q, tide_diagnostics *diags);

/* Changes to the job, each played: what they save or cost, the largest saving first. */
bool tide_write_advice(tide_writer *w, const tide_query *q, tide_diagnostics *diags);

/* Two jobs: figures, factors and parts of the model, and the settings that differ, each with its effect: they are
 * changed one after the other from the first job to the second, so that the effects add up to the total difference. */
bool tide_write_comparison(tide_writer *w, const tide_query *one, const tide_query *other, tide_diagnostics *diags);

#endif
