/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of torch.distributed.pipelining as data: the actions of each rank, in order. Private to parallel/.
 *
 * Note [Actions], torch/distributed/pipelining/schedules.py: a schedule class lists the passes of each rank
 * (pipeline_order). _PipelineScheduleRuntime adds the calls that fully_shard needs, and sends, receives and waits
 * (pipeline_order_with_comms), which depend on the lists of the other ranks. */
#ifndef TIDE_PARALLEL_PIPELINE_ACTIONS_H
#define TIDE_PARALLEL_PIPELINE_ACTIONS_H

#include "base/arena.h"
#include "job/job.h"

/* _ComputationType, with the letters of _Action.__str__ */
typedef enum tide_action_type {
#define ACTION(name, letters) TIDE_ACTION_##name,
#include "parallel/pipeline_actions.def"
#undef ACTION
} tide_action_type;

#define TIDE_NO_MICROBATCH UINT32_MAX

typedef struct tide_action {
    uint8_t type;
    bool with_next; /* OVERLAP_F_B: this and the next form one action */
    uint32_t stage, microbatch;
} tide_action;

typedef struct tide_actions {
    tide_action *list;
    uint32_t count, capacity;
} tide_actions;

typedef struct tide_pipeline_sizes {
    tide_parallel_schedule_choice schedule;
    uint32_t ranks, chunks, microbatches; /* chunks: stages per rank */
} tide_pipeline_sizes;

/* Why the schedule does not allow these sizes, in PyTorch's words, and which setting is to blame; NULL: it does. */
const char *tide_pipeline_refusal(const tide_pipeline_sizes *of, const char **setting, tide_arena *arena);

/* Whether it has BACKWARD_INPUT and BACKWARD_WEIGHT. */
bool tide_pipeline_splits_backward(tide_parallel_schedule_choice schedule);

/* generate_stage_to_rank_mapping(), and a rank's n-th stage. */
uint32_t tide_pipeline_rank_of(const tide_pipeline_sizes *of, uint32_t stage);
uint32_t tide_pipeline_stage_of(const tide_pipeline_sizes *of, uint32_t rank, uint32_t chunk);

/* pipeline_order[rank], without the steps in which a rank is idle. */
tide_actions tide_pipeline_order(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena);

/* pipeline_order_with_comms[rank] for a schedule run by _PipelineScheduleRuntime. */
tide_actions tide_pipeline_order_with_comms(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena);

/* The most micro-batches in flight on a rank, counted per stage: forward done, backward to the weights not. */
uint32_t tide_actions_in_flight(const tide_actions *passes);

/* _Action.__str__ */
const char *tide_action_text(tide_action action, tide_arena *arena);

#endif
