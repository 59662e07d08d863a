/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline parallelism by torch.distributed.pipelining; stages are on adjacent ranks. */
#include "parallel/pipeline.h"

static void pp_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_job *job = w->job;
    tide_pipeline *p = TIDE_NEW(m->arena, tide_pipeline, 1);
    w->state = m->wrapper = p;
    *p = (tide_pipeline){.ranks = (uint32_t)job->parallel_pp,
                         .rank = (uint32_t)(job->parallel_rank % job->parallel_pp),
                         .chunks = (uint32_t)job->parallel_chunks,
                         .microbatches =
                             (uint32_t)(job->parallel_microbatches ? job->parallel_microbatches : 2 * job->parallel_pp),
                         .apart = 1,
                         .length = job->seq,
                         .rows = job->seq,
                         .dtype = w->model->state.dtype,
                         .loss_function = "pipeline_loss"};
    p->batch = job->batch / p->microbatches;
    if (!tide_pipeline_check(w, p) || !tide_pipeline_init(p, w)) return;
    tide_pipeline_drop_others(p);
    if (w->model->state.is_on_meta) tide_pipeline_to_empty(p);
}

static void pp_batch_made(tide_wrapper *w) {
    tide_pipeline_drop_buffers(w->state);
}

static void pp_step(tide_wrapper *w, unsigned step) {
    tide_pipeline *p = w->state;
    tide_timeline *timeline = &w->model->m->timeline;
    p->ids = w->input_ids.tensor;
    p->labels = w->labels.tensor;
    tide_pipeline_step(p);
    tide_timeline_mark(timeline, step, TIDE_PHASE_BACKWARD);
    if (w->job->optimizer != TIDE_optimizer_none) tide_update_members(w);
    tide_timeline_mark(timeline, step, TIDE_PHASE_OPTIMIZER);
}

static uint32_t pp_in_flight(const tide_wrapper *w) {
    return tide_pipeline_most_in_flight(w->state);
}

const tide_strategy tide_pp_strategy = {.load = tide_load_on_meta,
                                        .wrap = pp_wrap,
                                        .batch_made = pp_batch_made,
                                        .step = pp_step,
                                        .other_ranks = tide_ranks_of_stages,
                                        .in_flight = pp_in_flight};
