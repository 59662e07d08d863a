/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their groups. */
#include "parallel/topology.h"

/* Refused in the words of parallel_state.initialize_model_parallel(). */
static bool check(const tide_topology *t, tide_machine *m) {
    int64_t stage = t->world / t->pp;
    if (t->world > TIDE_RANKS_MOST)
        tide_fail_setting(m, TIDE_ERR_LIMIT, "parallel.dp", "a world of %lld ranks is more than tidemark plays (%d)",
                          (long long)t->world, TIDE_RANKS_MOST);
    else if (stage % (t->ep * t->etp))
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ep",
                          "decoder world_size (%lld) is not divisible by expert_tensor_model_pipeline_parallel size "
                          "(%lld); experts lie on dp x cp x tp ranks of a stage: %lld",
                          (long long)t->world, (long long)(t->ep * t->etp * t->pp), (long long)stage);
    else if (t->rank >= t->world)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.rank", "rank %lld of a world of %lld", (long long)t->rank,
                          (long long)t->world);
    return !m->has_failed;
}

bool tide_topology_of(tide_topology *t, tide_machine *m, const tide_job *job, int64_t rank) {
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
    if (!check(t, m)) return false;
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
