/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their groups. */
#include "parallel/topology.h"

bool tide_topology_of(tide_topology *t, const tide_job *job, int64_t rank, const char **why, tide_arena *arena) {
    *t = (tide_topology){.tp = job->parallel_tp,
                         .cp = job->parallel_cp,
                         .dp = job->parallel_dp,
                         .pp = job->parallel_pp,
                         .ep = job->parallel_ep,
                         .rank = rank};
    bool is_titan = job->parallel_kind == TIDE_parallel_kind_native; /* which shards no expert */
    t->etp = is_titan ? 1 : job->parallel_etp ? job->parallel_etp : t->tp;
    int64_t stage = t->tp * t->cp * t->dp;
    t->world = stage * t->pp;
    if (t->world > 65536) {
        *why = tide_format(arena, "a world of %lld ranks is more than tidemark plays (65536)", (long long)t->world);
        return false;
    }
    if (stage % (t->ep * t->etp)) {
        *why = tide_format(arena,
                           "decoder world_size (%lld) is not divisible by expert_tensor_model_pipeline_parallel size "
                           "(%lld)",
                           (long long)t->world, (long long)(t->ep * t->etp * t->pp));
        return false;
    }
    if (rank >= t->world) {
        *why = tide_format(arena, "rank %lld of a world of %lld", (long long)rank, (long long)t->world);
        return false;
    }
    int64_t in_stage = rank % stage;
    t->tp_rank = rank % t->tp;
    t->cp_rank = rank / t->tp % t->cp;
    t->dp_rank = rank / (t->tp * t->cp) % t->dp;
    t->pp_rank = rank / stage;
    t->dp_cp = t->dp * t->cp;
    t->dp_cp_rank = t->cp_rank + t->cp * t->dp_rank;
    t->expert_dp = stage / (t->ep * t->etp);
    t->ep_rank = in_stage / t->etp % t->ep;
    t->expert_dp_rank = in_stage / (t->etp * t->ep);
    return true;
}
