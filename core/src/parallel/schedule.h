/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline schedules as tables: the actions of each rank, in order. */
#ifndef TIDE_PARALLEL_SCHEDULE_H
#define TIDE_PARALLEL_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* One entry of Megatron-Core's table: the next micro-batch and chunk; backward passes take the chunks in reverse. */
typedef struct tide_schedule_entry {
    uint32_t microbatch, chunk;
} tide_schedule_entry;

/* megatron/core/pipeline_parallel/schedules.py: get_schedule_table(), microbatches x chunks entries. */
void tide_schedule_table(tide_schedule_entry *table, uint32_t microbatches, uint32_t chunks, uint32_t group);

/* get_pp_rank_microbatches(): forward passes of a rank before its first backward pass; is_interleaved: for the schedule
 * with chunks. */
uint32_t tide_schedule_warmup(uint32_t pp, uint32_t pp_rank, uint32_t microbatches, uint32_t chunks, uint32_t group,
                              bool is_interleaved);

#endif
