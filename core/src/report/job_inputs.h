/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer about a job was asked. */
#ifndef TIDE_REPORT_JOB_INPUTS_H
#define TIDE_REPORT_JOB_INPUTS_H

#include "base/json_write.h"
#include "job/job.h"

/* "link" and "settings": each with its value and where that comes from. */
void tide_write_settings(tide_writer *w, const tide_job *job);
/* "files", where there are any that start training: what became of each key. */
void tide_write_files(tide_writer *w, const tide_job *job);
/* "gpu": null without one. */
void tide_write_gpu(tide_writer *w, const tide_job *job);
/* "versions" of the libraries that take part: what the answer is exact for. */
void tide_write_libraries(tide_writer *w, const tide_job *job);
/* "assumptions": settings that were not given, and what was taken for each. */
void tide_write_assumptions(tide_writer *w, const tide_job *job, const tide_diagnostics *diags);

#endif
