/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism by DTensor, inside of fully_shard if there are several data parallel ranks. The ranks of a data
 * parallel replica are adjacent. */
#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"

/* Computes the loss of logits and labels by a library function, which replaces the model's output. */
static void loss_outside(tide_wrapper *w, tide_value *output, const char *function) {
    tide_model *model = w->model;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output, logits = tide_none();
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    for (uint32_t i = 0; i < count && logits.kind != TIDE_VALUE_TENSOR; i++) logits = items[i];
    tide_function *loss_fn = tide_function_find(model->descriptions, NULL, tide_text_of(function));
    if (!loss_fn || logits.kind != TIDE_VALUE_TENSOR || w->labels.kind != TIDE_VALUE_TENSOR) {
        tide_fail(model->m, TIDE_ERR_CONFLICT, "a loss outside of the model needs logits and labels");
        return;
    }
    tide_value_retain(logits);
    tide_value_release(model->m, *output);
    tide_value loss = tide_model_run(model, loss_fn, (tide_value[]){logits, w->labels}, 2);
    tide_value_release(model->m, logits);
    *output = loss;
}

/* DistributedConfig(tp_size=...) of from_pretrained(). */
static bool check_auto_plan(tide_wrapper *w, tide_tensor_parallel_plan *plan) {
    tide_machine *m = w->model->m;
    if (plan->sequence_parallel || plan->loss_parallel)
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                          "transformers' plans are not described with %s; leave it out, or use none",
                          plan->sequence_parallel ? "parallel.sequence_parallel" : "parallel.loss_parallel");
    else if (plan->is_sharded && tide_dtype_or(w->job->parallel_param_dtype, TIDE_BF16) != TIDE_BF16)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.param_dtype",
                          "transformers' fsdp_mixed_precision gathers in bf16 alone; give bf16, or leave it out");
    else
        return tide_tp_plan_of(w, plan);
    return false;
}

static void tp_wrap(tide_wrapper *w) {
    const tide_job *job = w->job;
    tide_tensor_parallel_plan plan = {.ranks = job->parallel_tp,
                                      .rank = job->parallel_rank % job->parallel_tp,
                                      .sequence_parallel = job->parallel_sequence_parallel,
                                      .loss_parallel = job->parallel_loss_parallel,
                                      .is_sharded = job->parallel_dp > 1};
    if (job->parallel_ep > 1 && !tide_job_has_auto_plan(job)) {
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.ep",
                          "experts over ranks are described by transformers' plan alone; give "
                          "parallel.tp_plan=auto");
        return;
    }
    if (tide_job_has_auto_plan(job) && !check_auto_plan(w, &plan)) return;
    if (!tide_parallelize_module(w, &plan)) return;
    if (plan.of_experts) *tide_model_setting(w->model, "experts_are_cut") = tide_of_bool(true);
    w->computes_loss = job->parallel_loss_parallel;
    w->rank = job->parallel_rank / job->parallel_tp;
    if (job->parallel_dp > 1) tide_fsdp2_strategy.wrap(w);
    if (plan.of_configuration)
        tide_read_parts(w, &plan);
    else if (w->model->state.is_on_meta)
        tide_to_empty(w->model, tide_empty_param, NULL);
    tide_tensor_parallel_around(w->model);
    tide_separate_kinds(w);
}

/* fully_shard() reduces after every pass: set_requires_gradient_sync() was not called. */
static void tp_before_forward(tide_wrapper *w) {
    if (w->job->parallel_dp == 1) return;
    tide_fsdp2_strategy.before_forward(w);
    ((fsdp2 *)w->state)->reduce_grads = true;
    /* FSDPState._lazy_init: pads what from_pretrained() has read */
    for (uint32_t i = 0; i < w->model->instance_count && tide_job_has_auto_plan(w->job); i++)
        tide_fsdp2_reset_sharded_params(w->model, i);
}

/* F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()) under loss_parallel(); the logits live that long. */
static void tp_after_forward(tide_wrapper *w, tide_value *output) {
    if (w->computes_loss) loss_outside(w, output, "loss_parallel");
}

static void tp_backward(tide_wrapper *w, tide_tensor *loss) {
    if (w->job->parallel_dp > 1)
        tide_fsdp2_strategy.backward(w, loss);
    else
        tide_backward_divided(w, loss);
}

static void tp_update(tide_wrapper *w) {
    if (w->job->optimizer != TIDE_optimizer_none) tide_update_members(w);
}

const tide_strategy tide_tp_strategy = {.load = tide_load_on_meta,
                                        .wrap = tp_wrap,
                                        .before_forward = tp_before_forward,
                                        .after_forward = tp_after_forward,
                                        .backward = tp_backward,
                                        .update = tp_update};
