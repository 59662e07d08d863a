/* SPDX-License-Identifier: Apache-2.0 */
/* The result of starting an inference server. */
#ifndef TIDE_REPORT_SERVING_H
#define TIDE_REPORT_SERVING_H

#include "base/json_write.h"
#include "report/serving_start.h"

/* The engine's own line, or its refusal. */
const char *tide_serving_sentence(const tide_serving *serving, tide_arena *arena);

/* "serving": with_flags also the effect of flags and how many GPUs are needed, for which more starts are played. */
void tide_write_serving(tide_writer *writer, const tide_serving *serving, const tide_job *job, bool with_flags);
/* A shorter form. */
void tide_write_serving_brief(tide_writer *writer, const tide_serving *serving);

/* Only the figures that recorded runs have. */
void tide_write_serving_figures(tide_writer *writer, const tide_serve_run *run);

#endif
