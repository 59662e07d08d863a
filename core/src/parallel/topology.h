/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinates of a rank in the process groups of a job. */
#ifndef TIDE_PARALLEL_TOPOLOGY_H
#define TIDE_PARALLEL_TOPOLOGY_H

#include "job/job.h"
#include "tensor/tensor.h"

enum { TIDE_RANKS_MOST = 65536 };

/* Sizes of process groups, and this rank's index in each. Dense ranks are laid out as tensor, context, data, pipeline,
 * from adjacent to farthest apart: Megatron-Core's order "tp-cp-ep-dp-pp" (parallel_state.py: RankGenerator) and
 * torchtitan's. Experts are laid out over the ranks of one pipeline stage: expert tensor, expert, expert data. */
typedef struct tide_topology {
    int64_t tp, cp, dp, pp, ep, etp;
    int64_t world, rank;
    int64_t tp_rank, cp_rank, dp_rank, pp_rank;
    int64_t dp_cp, dp_cp_rank; /* ranks with the same parameters */
    int64_t expert_dp, expert_dp_rank, ep_rank;
} tide_topology;

/* From the options parallel.*; fails if they do not fit together. */
bool tide_topology_of(tide_topology *t, tide_machine *m, const tide_job *job, int64_t rank);

#endif
