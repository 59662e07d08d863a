/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of torch.distributed.pipelining as data: what a rank does, in order. Private to parallel/.
 *
 * Note [Actions], torch/distributed/pipelining/schedules.py: a schedule class lists the passes of each rank
 * (pipeline_order). _PipelineScheduleRuntime adds what fully_shard needs around them, and what is sent, received and
 * waited for (pipeline_order_with_comms): a rank's list of those depends on the other ranks' lists. */
#ifndef TIDE_PARALLEL_PIPELINE_ACTIONS_H
#define TIDE_PARALLEL_PIPELINE_ACTIONS_H

#include "base/arena.h"
#include "job/job.h"

/* _ComputationType, in the letters of _Action.__str__ */
typedef enum tide_action_type {
#define ACTION(name, letters) TIDE_ACTION_##name,
#include "parallel/pipeline_actions.def"
#undef ACTION
} tide_action_type;

#define TIDE_NO_MICROBATCH UINT32_MAX

typedef struct tide_action {
    uint8_t type;
    bool with_next; /* OVERLAP_F_B: this one and the one after it are one action */
    uint32_t stage, microbatch;
} tide_action;

typedef struct tide_actions {
    tide_action *list;
    uint32_t count, capacity;
} tide_actions;

typedef struct tide_pipeline_sizes {
    tide_parallel_schedule_choice schedule;
    uint32_t ranks, chunks, microbatches; /* chunks: stages of a rank */
} tide_pipeline_sizes;

/* Why the schedule does not take these sizes, in PyTorch's words, and of which setting; NULL: it does. */
const char *tide_pipeline_refusal(const tide_pipeline_sizes *of, const char **setting, tide_arena *arena);

/* Whether it has BACKWARD_INPUT and BACKWARD_WEIGHT. */
bool tide_pipeline_splits_backward(tide_parallel_schedule_choice schedule);

/* generate_stage_to_rank_mapping(), and the stage that is a rank's nth. */
uint32_t tide_pipeline_rank_of(const tide_pipeline_sizes *of, uint32_t stage);
uint32_t tide_pipeline_stage_of(const tide_pipeline_sizes *of, uint32_t rank, uint32_t chunk);

/* pipeline_order[rank], without the steps in which a rank does nothing. */
tide_actions tide_pipeline_order(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena);

/* pipeline_order_with_comms[rank], of a schedule that _PipelineScheduleRuntime runs. */
tide_actions tide_pipeline_order_with_comms(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena);

/* The most micro-batches, counted for each stage, that have gone forward on a rank and not backward to the weights. */
uint32_t tide_actions_in_flight(const tide_actions *passes);

/* _Action.__str__ */
const char *tide_action_text(tide_action action, tide_arena *arena);

#endif
