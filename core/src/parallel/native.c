/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's own parallelism, several kinds combined in the order in which torchtitan applies them: the model is split
 * into pipeline stages; each gets tensor parallelism, checkpointing and fully_shard. Pipeline ranks are farthest apart,
 * then data, context and tensor parallel ones. */
#include <string.h>

#include "base/rounding.h"
#include "base/units.h"
#include "parallel/fsdp2.h"
#include "parallel/pipeline.h"
#include "parallel/steady_state.h"
#include "parallel/tensor_parallel.h"
#include "parallel/topology.h"
#include "parallel/torchtitan_experts.h"
#include "parallel/torchtitan_trainer.h"
#include "tensor/checkpoint.h"
#include "tensor/context_parallel.h"

typedef struct native {
    tide_pipeline pipeline;
    tide_topology topology;
    tide_context_parallel context;
    uint32_t blocks; /* of all stages so far: torchtitan's _layer_sac_count */
} native;

static bool refuse_what_is_not_described(tide_wrapper *w) {
    const tide_job *job = w->job;
    tide_machine *m = w->model->m;
    if (job->parallel_ac == TIDE_parallel_ac_op && tide_pipeline_splits_backward(job->parallel_schedule) &&
        job->parallel_pp > 1)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ac",
                          "%s computes gradients of inputs and weights apart, and \"Trying to backward an extra time. "
                          "You are only allowed to backward once on any region computed under selective activation "
                          "checkpoint.\"; use full",
                          job->values[TIDE_SET_parallel_schedule]);
    else if (job->parallel_ac == TIDE_parallel_ac_op && tide_job_cuts_torchtitan_experts(job))
        tide_fail_setting(
            m, TIDE_ERR_CONFLICT, "parallel.ac",
            "\"profiler._record_function_enter_new.default invocation index 3 encountered during backward "
            "but not found in storage.\": fully_shard() of experts runs within their block, which is "
            "recomputed; use full");
    else if (job->parallel_ac != TIDE_parallel_ac_none && job->checkpointing != TIDE_checkpointing_none)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.ac",
                          "checkpoints around those of checkpointing=%s are not described; give one of them",
                          job->values[TIDE_SET_checkpointing]);
    else if (tide_job_has_torchtitan_models(job) && job->parallel_pp > 1 &&
             !tide_model_method(w->model, TIDE_TEXT("has_pipelining_fn"), NULL, NULL, 0).truth)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.pp",
                          "\"Pipeline Parallel is enabled but %s does not support pipelining\"",
                          job->model ? job->model : "it");
    else if (job->parallel_chunks > 1 && job->parallel_pp == 1)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.chunks", "stages of a pipeline; give parallel.pp");
    else if (job->seq % (2 * job->parallel_cp))
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "seq",
                          "%lld tokens do not divide into two slices for each of %lld context parallel "
                          "ranks; write seq=%lld",
                          (long long)job->seq, (long long)job->parallel_cp,
                          (long long)TIDE_ROUND_UP(job->seq, 2 * job->parallel_cp));
    else if (job->parallel_cp > 1 && job->attention == TIDE_attention_sdpa &&
             job->sdpa_backend == TIDE_sdpa_backend_math)
        tide_fail_setting(
            m, TIDE_ERR_CONFLICT, "sdpa_backend",
            "context_parallel() runs flash, efficient and cuDNN attention alone: \"aten.add.Tensor "
            "got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
            "distributed operators!\"; use flash");
    else if (job->parallel_sequence_parallel && job->parallel_tp == 1)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.sequence_parallel",
                          "cuts along tensor parallel ranks; give parallel.tp");
    else if (job->parallel_loss_parallel && job->parallel_tp == 1)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.loss_parallel",
                          "needs tensor parallel ranks; give parallel.tp");
    else if (tide_job_shards_sequence(job) && job->seq % job->parallel_tp)
        tide_fail_setting(
            m, TIDE_ERR_CONFLICT, "seq", "%lld tokens do not divide into %lld tensor parallel ranks; write seq=%lld",
            (long long)job->seq, (long long)job->parallel_tp, (long long)TIDE_ROUND_UP(job->seq, job->parallel_tp));
    return !m->has_failed;
}

/* _backward.py, stage_backward_input(): of submod.parameters(), which are sharded again after forward. */
static bool check_weights_without_gradient(const tide_wrapper *w) {
    const tide_job *job = w->job;
    bool is_resharded = job->parallel_pp > 1 && job->parallel_dp * job->parallel_cp > 1 &&
                        tide_pipeline_splits_backward(job->parallel_schedule) &&
                        tide_job_sets(job, TIDE_SET_parallel_reshard_after_forward) &&
                        strcmp(job->parallel_reshard_after_forward, "false") != 0;
    if (is_resharded && (tide_job_sets(job, TIDE_SET_freeze) || tide_job_sets(job, TIDE_SET_train_only))) {
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.reshard_after_forward",
                          "when frozen parameters are gathered is not described where %s computes gradients of inputs "
                          "and weights apart; leave it out, as torchtitan does with a pipeline",
                          job->values[TIDE_SET_parallel_schedule]);
        return false;
    }
    if (is_resharded)
        tide_report(
            w->model->m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/parallel.reshard_after_forward",
            tide_format(w->model->m->arena,
                        "%s looks for a stage's parameters when they are sharded again, and such a pass computes "
                        "no gradients of their weights",
                        job->values[TIDE_SET_parallel_schedule]),
            "leave it out, as torchtitan does with a pipeline");
    return true;
}

static bool parallelize(tide_wrapper *w, const native *n) {
    const tide_job *job = w->job;
    bool is_sharded = job->parallel_dp * job->parallel_cp > 1 || tide_job_has_torchtitan_experts(job);
    if (job->parallel_tp == 1) return true;
    return tide_parallelize_module(w, &(tide_tensor_parallel_plan){.ranks = job->parallel_tp,
                                                                   .rank = n->topology.tp_rank,
                                                                   .sequence_parallel = tide_job_shards_sequence(job),
                                                                   .loss_parallel = job->parallel_loss_parallel,
                                                                   .is_sharded = is_sharded,
                                                                   .cuts_embedding = true});
}

/* per_op_sac_force_recompute_mm_shapes_by_fqns */
static void recompute_routers(tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (!strstr(row->name, "moe.router.gate") || row->tensor->shape->dims != 2) continue;
        model->m->recomputed_mm[0] = row->tensor->shape->dim[1].size;
        model->m->recomputed_mm[1] = row->tensor->shape->dim[0].size;
    }
}

/* checkpoint_wrapper() of every block of a stage, or of some; without it the model's own checkpointing. torchtitan's
 * models have the last block of a period recomputed, to its end. */
static void checkpoint(tide_wrapper *w, native *n) {
    tide_model *model = w->model;
    bool is_titan = tide_job_has_torchtitan_models(w->job);
    int64_t period = tide_job_checkpoint_period(w->job);
    if (!period) return;
    if (!is_titan) n->blocks = 0;
    model->m->kept_kinds = w->job->parallel_ac == TIDE_parallel_ac_op ? (1 << TIDE_KEPT_COUNT) - 1 : 0;
    model->m->keeps_mm_alone = true;
    if (is_titan) recompute_routers(model);
    model->m->recomputes_to_end = is_titan;
    model->state.is_checkpointing = true;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (!model->instances[i].of->is_checkpointed || (w->is_absent && w->is_absent[i])) continue;
        model->instances[i].skips_checkpoint = (n->blocks + is_titan) % period != 0;
        n->blocks++;
    }
}

enum { MOST_CONTEXTS = 32 / TIDE_STREAM_THIRD }; /* c10/cuda/CUDAStream.cpp: kStreamsPerPool */

/* fully_shard of a stage over data and context parallel ranks. */
static void shard(tide_wrapper *w, const native *n, tide_pipeline_stage *s, uint32_t chunk) {
    if (n->topology.dp_cp == 1 && !tide_job_has_torchtitan_experts(w->job)) return;
    w->ranks = n->topology.dp_cp;
    w->rank = n->topology.dp_cp_rank;
    tide_fsdp2_strategy.wrap(w);
    fsdp2 *f = s->fsdp = w->state;
    if (!f) return;
    f->prefetch = tide_job_has_torchtitan_experts(
        w->job); /* "D2H syncs in EP could interfere with implicit prefetching in FSDP" */
    f->prefetches_experts = tide_job_cuts_torchtitan_experts(w->job);
    f->finalizes_by_hand = n->pipeline.ranks > 1;
    f->first_stream = (uint8_t)(chunk % MOST_CONTEXTS * TIDE_STREAM_THIRD);
    if (w->model->tensor_parallel) tide_tensor_parallel_around(w->model);
}

/* Stage by stage. */
static void wrap_stages(tide_wrapper *w, native *n) {
    tide_pipeline *p = &n->pipeline;
    const bool *absent = w->is_absent;
    for (uint32_t i = 0; i < p->chunks && !w->model->m->has_failed; i++) {
        if (p->ranks > 1) w->is_absent = tide_stage_absent(p, i);
        if (!parallelize(w, n)) break;
        checkpoint(w, n);
        shard(w, n, &p->stages[i], i);
    }
    w->is_absent = absent;
}

/* torchtitan divides the sum by the tokens of all ranks. */
static const char *loss_function_of(const tide_job *job) {
    if (job->parallel_loss_parallel) return tide_job_has_torchtitan_models(job) ? "loss_parallel_sum" : "loss_parallel";
    return "pipeline_loss";
}

/* Shapes that stages are told have parallel.param_dtype; torchtitan's find the dtype that there is. */
static tide_dtype hidden_dtype_of(const tide_wrapper *w) {
    const tide_job *job = w->job;
    bool is_own = tide_job_has_torchtitan_models(job) && job->parallel_dp * job->parallel_cp == 1;
    return is_own ? w->model->state.dtype : tide_dtype_or(job->parallel_param_dtype, w->model->state.dtype);
}

static void native_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_job *job = w->job;
    native *n = TIDE_NEW(m->arena, native, 1);
    if (!refuse_what_is_not_described(w) || !check_weights_without_gradient(w)) return;
    if (!tide_topology_of(&n->topology, m, job, w->rank)) return;
    int64_t micro = job->parallel_microbatches ? job->parallel_microbatches : 2 * job->parallel_pp;
    tide_pipeline *p = &n->pipeline;
    *p = (tide_pipeline){.ranks = (uint32_t)n->topology.pp,
                         .rank = (uint32_t)n->topology.pp_rank,
                         .chunks = (uint32_t)job->parallel_chunks,
                         .microbatches = (uint32_t)micro,
                         .apart = n->topology.world / n->topology.pp,
                         .batch = job->batch,
                         .length = job->seq / n->topology.cp,
                         .rows = job->seq / n->topology.cp,
                         .dtype = hidden_dtype_of(w),
                         .loss_function = loss_function_of(job),
                         .has_optimizers = tide_job_has_torchtitan_models(job),
                         .infers_metadata = tide_job_has_torchtitan_models(job)};
    if (tide_job_shards_sequence(job)) p->rows /= n->topology.tp;
    if (p->ranks > 1 && !tide_pipeline_check(w, p)) return;
    if (!tide_pipeline_init(p, w)) return;
    if (p->ranks > 1) w->is_absent = tide_pipeline_absent(p);
    if (tide_job_has_torchtitan_experts(job) || tide_job_cuts_torchtitan_experts(job))
        tide_torchtitan_distribute_experts(w);
    wrap_stages(w, n);
    if (m->has_failed) return;
    if (p->ranks > 1) tide_pipeline_drop_others(p);
    if (tide_job_has_torchtitan_models(job))
        tide_torchtitan_init_weights(p);
    else if (w->model->state.is_on_meta)
        tide_pipeline_to_empty(p);
    if (!p->stages[0].fsdp && w->model->tensor_parallel) tide_separate_kinds(w);
    w->state = n;
    m->module = 0;
}

/* ---- a step ---- */

/* batch.clone() or repeat(): the names refer to the last ones until both are made. */
static void take_batch(tide_wrapper *w, tide_pipeline *p, int64_t times, const char *op) {
    tide_machine *m = w->model->m;
    tide_tensor *given[2] = {w->input_ids.tensor, w->labels.tensor}, *made[2];
    m->op = op;
    for (int i = 0; i < 2; i++) {
        tide_shape shape = *given[i]->shape;
        shape.dim[0].size *= times;
        made[i] = tide_empty(m, &shape, (tide_dtype)given[i]->dtype);
    }
    tide_release(m, p->ids);
    tide_release(m, p->labels);
    if (w->job->parallel_cp > 1)
        tide_context_parallel_begins(m, &((native *)w->state)->context, w->job->parallel_cp, made, 2);
    p->ids = made[0];
    p->labels = made[1];
}

/* Without a pipeline: one micro-batch after the other. */
static void micro_batches(tide_wrapper *w, native *n) {
    tide_pipeline *p = &n->pipeline;
    tide_machine *m = w->model->m;
    tide_pipeline_stage *s = &p->stages[0];
    fsdp2 *f = s->fsdp;
    bool each = !tide_job_sets(w->job, TIDE_SET_parallel_sync_each) || w->job->parallel_sync_each;
    tide_steady_state rounds = {.w = w};
    uint32_t left = p->microbatches;
    while (left-- && !tide_is_aborting(m)) {
        tide_round_begins(&rounds);
        take_batch(w, p, 1, "clone");
        if (f) f->reduce_grads = each || !left;
        uint32_t from = m->timeline.allocation_count;
        tide_tensor *logits = tide_stage_forward(s, 0);
        tide_stage_compute_loss(s, 0, logits);
        tide_release_at(m, &s->outputs[0]);
        tide_release(m, logits);
        tide_timeline_end_forward(&m->timeline, from);
        tide_stage_backward(s, 0);
        tide_release_at(m, &p->losses[0]);
        tide_context_parallel_ends(m, &n->context);
        if (left) left -= tide_round_ends(&rounds, left - 1, NULL, 0); /* gradients are reduced after the last */
    }
}

/* register_moe_load_balancing_hook: a step_pre_hook of the optimizer. */
static void update_balanced(tide_wrapper *w) {
    tide_clip_members(w);
    if (tide_job_has_torchtitan_experts(w->job)) tide_torchtitan_balance_experts(w);
    tide_step_members(w);
}

static void native_batch_made(tide_wrapper *w) {
    const native *n = w->state;
    if (n->pipeline.ranks > 1) tide_pipeline_drop_buffers(&n->pipeline);
}

static void native_step(tide_wrapper *w, unsigned step) {
    native *n = w->state;
    tide_pipeline *p = &n->pipeline;
    tide_machine *m = w->model->m;
    tide_timeline *timeline = &m->timeline;
    if (w->input_ids.kind != TIDE_VALUE_TENSOR || w->labels.kind != TIDE_VALUE_TENSOR) {
        tide_fail(m, TIDE_ERR_CONFLICT, "parallel.kind=native needs input_ids and labels");
        return;
    }
    if (tide_job_has_torchtitan_models(w->job)) {
        tide_torchtitan_train_step(p, step);
        return;
    }
    if (p->ranks == 1) {
        micro_batches(w, n);
    } else {
        take_batch(w, p, p->microbatches, "repeat");
        for (uint32_t i = 0; i < p->chunks; i++) {
            fsdp2 *f = p->stages[i].fsdp;
            if (!f) continue;
            f->reduce_grads = false;
            f->keeps_after_backward = true;
        }
        tide_pipeline_step(p);
        tide_context_parallel_ends(m, &n->context);
    }
    tide_timeline_mark(timeline, step, TIDE_PHASE_BACKWARD);
    if (w->job->optimizer != TIDE_optimizer_none) update_balanced(w);
    tide_release_at(m, &p->ids);
    tide_release_at(m, &p->labels);
    tide_timeline_mark(timeline, step, TIDE_PHASE_OPTIMIZER);
}

static uint32_t native_in_flight(const tide_wrapper *w) {
    return tide_pipeline_most_in_flight(&((const native *)w->state)->pipeline);
}

static void native_load(tide_model *model, const tide_job *job) {
    tide_load_on_meta(model, job);
    if (tide_job_has_torchtitan_experts(job)) tide_torchtitan_replace_experts(model, job);
    if (tide_job_cuts_torchtitan_experts(job)) tide_torchtitan_tell_rows(model, job);
}

const tide_strategy tide_native_strategy = {.load = native_load,
                                            .wrap = native_wrap,
                                            .batch_made = native_batch_made,
                                            .step = native_step,
                                            .other_ranks = tide_ranks_of_stages,
                                            .in_flight = native_in_flight};
