/* SPDX-License-Identifier: Apache-2.0 */
/* Further answers about a server's start: the command line, the effect of flags, how many GPUs are needed. Private to
 * report/. */
#ifndef TIDE_REPORT_SERVING_ANSWERS_H
#define TIDE_REPORT_SERVING_ANSWERS_H

#include "base/json_write.h"
#include "report/serving_start.h"

/* "command": `vllm serve` with the settings of the job. */
void tide_write_serving_command(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

/* "levers": a start is played for each flag; those without effect or refused are left out. */
void tide_write_levers(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

/* "smallest": how many of this GPU hold max_concurrency, as servers of tensor_parallel_size ranks. null if none of 1 to
 * 16 ranks starts. Written if max_concurrency is given. */
void tide_write_smallest(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

#endif
