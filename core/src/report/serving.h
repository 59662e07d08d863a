/* SPDX-License-Identifier: Apache-2.0 */
/* What the start of an inference server comes to. */
#ifndef TIDE_REPORT_SERVING_H
#define TIDE_REPORT_SERVING_H

#include "base/json_write.h"
#include "report/serving_start.h"

/* The engine's own line, or its refusal. */
const char *tide_serving_sentence(const tide_serving *serving, tide_arena *arena);

/* "serving": with_flags also what flags buy and how many GPUs hold what is asked for, which plays more starts. */
void tide_write_serving(tide_writer *writer, const tide_serving *serving, const tide_job *job, bool with_flags);
/* The same in short. */
void tide_write_serving_brief(tide_writer *writer, const tide_serving *serving);

/* The figures alone, as the recorded runs have them. */
void tide_write_serving_figures(tide_writer *writer, const tide_serve_run *run);

#endif
