/* SPDX-License-Identifier: Apache-2.0 */
/* What else a server's start is asked: flags to paste, what flags buy, how many GPUs. Private to report/. */
#ifndef TIDE_REPORT_SERVING_ANSWERS_H
#define TIDE_REPORT_SERVING_ANSWERS_H

#include "base/json_write.h"
#include "report/serving_start.h"

/* "command": `vllm serve` with what the job sets. */
void tide_write_serving_command(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

/* "levers": each flag is a start that is played; what changes nothing or is refused is left out. */
void tide_write_levers(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

/* "smallest": how many of this GPU hold max_concurrency, as servers of tensor_parallel_size ranks. NULL where none
 * of 1 to 16 ranks starts. Written where max_concurrency is given. */
void tide_write_smallest(tide_writer *writer, const tide_serving *serving, tide_arena *arena);

#endif
