/* SPDX-License-Identifier: Apache-2.0 */
/* Creating the optimizer of a loop and applying its strategy to the model. */
#include "train/run.h"

const tide_strategy tide_one_gpu;

const tide_strategy *tide_wrap_model(tide_run *run, const tide_job *job, tide_wrapper *w) {
    const tide_strategy *strategy = run->strategy;
    tide_optimizer *optimizer = NULL;
    if (job->parallel_kind != TIDE_parallel_kind_none && !strategy) {
        tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, "/settings/parallel.kind",
                   tide_format(run->machine.arena, "%s is not described", job->values[TIDE_SET_parallel_kind]), NULL);
        return NULL;
    }
    if (strategy || tide_job_has_trainer(job)) optimizer = tide_optimizer_new(&run->model, job);
    *w = (tide_wrapper){.model = &run->model,
                        .job = job,
                        .optimizer = optimizer,
                        .ranks = tide_job_reduction_ranks(job),
                        .rank = job->parallel_rank,
                        .precomputed = w->precomputed,
                        .is_last = true,
                        .plays_all = run->plays_all,
                        .has_barrier = run->has_barrier,
                        .has_divided = job->mode == TIDE_mode_train && job->trainer != TIDE_trainer_none,
                        .has_trainer = job->mode == TIDE_mode_train && tide_job_has_trainer(job)};
    /* DeepSpeed's optimizer and that of a trainer are created with the unwrapped model, except for FSDP1 */
    bool is_made_first =
        tide_job_has_deepspeed(job) || (w->has_trainer && job->parallel_kind != TIDE_parallel_kind_fsdp1);
    if (optimizer && is_made_first) tide_optimizer_construct(optimizer);
    bool is_prepared = optimizer && w->has_trainer && !tide_job_has_deepspeed(job);
    if (!strategy) {
        if (is_prepared) tide_optimizer_prepared(optimizer);
        return &tide_one_gpu;
    }
    if (strategy->wrap) strategy->wrap(w);
    if (!is_made_first && !run->machine.has_failed) tide_optimizer_construct(optimizer);
    if (is_prepared && !run->machine.has_failed) tide_optimizer_prepared(optimizer);
    run->stages = w->stages;
    if (strategy->other_ranks && !run->machine.has_failed)
        run->other_rank_count = strategy->other_ranks(w, run->other_ranks);
    if (strategy->in_flight && !run->machine.has_failed) run->in_flight = strategy->in_flight(w);
    run->machine.state.factor = TIDE_FACTOR_TEMPORARY;
    return run->machine.has_failed ? NULL : strategy;
}
