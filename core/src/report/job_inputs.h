/* SPDX-License-Identifier: Apache-2.0 */
/* The input of an answer about a job. */
#ifndef TIDE_REPORT_JOB_INPUTS_H
#define TIDE_REPORT_JOB_INPUTS_H

#include "base/json_write.h"
#include "job/job.h"

/* "link" and "settings": each with its value and origin. */
void tide_write_settings(tide_writer *w, const tide_job *job);
/* "files", if any of them starts training: the effect of each key. */
void tide_write_files(tide_writer *w, const tide_job *job);
/* "gpu": null if there is none. */
void tide_write_gpu(tide_writer *w, const tide_job *job);
/* "versions" of the libraries involved, for which the answer is exact. */
void tide_write_libraries(tide_writer *w, const tide_job *job);
/* "assumptions": settings that were not given, and the values assumed. */
void tide_write_assumptions(tide_writer *w, const tide_job *job, const tide_diagnostics *diags);

#endif
