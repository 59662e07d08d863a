/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA-Factory's v1 trainer: llamafactory/v1, core/base_trainer.py (fit), trainers/sft_trainer.py. Its loss is
 * computed from the logits, beside that of the model; gradients and their norm are referred to until the next step has
 * its own. */
#include "train/trainer_run.h"

#include <string.h>

typedef struct v1_loop {
    tide_run *run;
    const tide_job *job;
    const tide_strategy *strategy;
    tide_wrapper *wrapper;
    tide_tensor *loss;
    tide_tensor **grads, *total_norm;
    uint32_t grad_count;
} v1_loop;

/* A function of library/llama_factory_v1.json. Owned by the caller. */
static tide_value v1_call(v1_loop *v, const char *name, const tide_value *arguments, uint32_t count) {
    tide_machine *m = &v->run->machine;
    tide_function *found =
        m->has_failed ? NULL : tide_function_find(v->run->model.descriptions, NULL, tide_text_of(name));
    m->module = m->statement = 0;
    return found ? tide_model_run(&v->run->model, found, arguments, count) : tide_none();
}

static void v1_compute_valid_tokens(v1_loop *v) {
    tide_value_release(&v->run->machine, v1_call(v, "v1_valid_tokens", NULL, 0));
}

/* DistributedInterface().all_reduce(): a tensor of the values, on several ranks. */
static void v1_all_reduce(v1_loop *v, int64_t values) {
    const tide_value count = tide_of_int(values);
    if (v->job->parallel_kind != TIDE_parallel_kind_none)
        tide_value_release(&v->run->machine, v1_call(v, "v1_reduced", &count, 1));
}

static void v1_add(tide_batch *b, const char *name, tide_value value) {
    b->names[b->count] = name;
    b->values[b->count++] = value;
}

static bool v1_has(const tide_batch *b, const char *name) {
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->names[i], name) == 0) return true;
    return false;
}

/* What the renderer writes: a mask in any case, weights of the tokens, and positions from 1 on; models with mRoPE make
 * their own. Arguments that forward() does not name are kept with the others. */
static bool v1_make_batch(v1_loop *v, tide_batch *b) {
    tide_machine *m = &v->run->machine;
    if (!tide_make_batch(v->run, v->job, b, m->diags)) return false;
    if (b->count + 3 > TIDE_INPUT_LIMIT) return false;
    m->state.factor = TIDE_FACTOR_INPUT;
    if (!v1_has(b, "attention_mask")) v1_add(b, "attention_mask", v1_call(v, "v1_token_ids", NULL, 0));
    tide_value weights = v1_call(v, "v1_token_weights", NULL, 0), positions = v1_call(v, "v1_token_ids", NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    b->values[b->count + b->kept++] = weights;
    b->values[b->count + b->kept++] = positions;
    *tide_model_setting(&v->run->model, "given_loss_weights") = weights;
    *tide_model_setting(&v->run->model, "given_positions") = positions;
    return !m->has_failed;
}

static void v1_forget_given(v1_loop *v) {
    *tide_model_setting(&v->run->model, "given_loss_weights") = tide_none();
    *tide_model_setting(&v->run->model, "given_positions") = tide_none();
}

/* compute_log_probs(). Owned by the caller. */
static tide_value v1_log_probs(v1_loop *v) {
    tide_machine *m = &v->run->machine;
    tide_model *model = &v->run->model;
    tide_batch inputs = {.count = 0};
    tide_value logits = tide_none();
    if (!v1_make_batch(v, &inputs)) return tide_none();
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value labels = v1_call(v, "v1_token_ids", NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    if (v->strategy->before_forward) v->strategy->before_forward(v->wrapper);
    tide_value outputs = tide_model_forward(model, inputs.names, inputs.values, inputs.count);
    m->module = m->statement = 0;
    if (v->strategy->after_forward && !m->has_failed) v->strategy->after_forward(v->wrapper, &outputs);
    for (uint32_t i = 0; outputs.kind == TIDE_VALUE_LIST && i < outputs.list->count; i++)
        if (outputs.list->items[i].kind == TIDE_VALUE_TENSOR && outputs.list->items[i].tensor->shape->dims == 3) {
            logits = outputs.list->items[i];
            break;
        }
    const tide_value arguments[] = {logits, labels};
    if (logits.kind != TIDE_VALUE_TENSOR && !m->has_failed)
        tide_fail(m, TIDE_ERR_DESCRIPTION, "forward() returned no logits");
    tide_value found = v1_call(v, "v1_log_probs", arguments, 2);
    if (!model->state.is_checkpointing) v1_forget_given(v);
    tide_drop_batch(m, &inputs);
    tide_value_release(m, labels);
    tide_value_release(m, outputs);
    return found;
}

/* SFTTrainer.compute_loss(), and its share of the step's tokens. */
static void v1_compute_loss(v1_loop *v) {
    tide_machine *m = &v->run->machine;
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value weights = v1_call(v, "v1_token_weights", NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_value log_probs = v1_log_probs(v);
    const tide_value of_loss[] = {log_probs, weights};
    tide_value loss = v1_call(v, "v1_loss", of_loss, 2);
    tide_value_release(m, log_probs);
    tide_value_release(m, weights);
    tide_del(m, "del loss", v->loss);
    v1_compute_valid_tokens(v);
    tide_value scaled = v1_call(v, "v1_scaled_loss", &loss, 1);
    tide_value_release(m, loss);
    v->loss = scaled.kind == TIDE_VALUE_TENSOR ? scaled.tensor : NULL;
}

static void v1_micro_batch(v1_loop *v, unsigned step) {
    tide_machine *m = &v->run->machine;
    v1_compute_loss(v);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_FORWARD);
    if (!v->loss || m->has_failed) return;
    if (v->strategy->backward)
        v->strategy->backward(v->wrapper, v->loss);
    else
        tide_run_backward(m, v->loss);
    v1_forget_given(v);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
    if (v->strategy->after_backward && !m->has_failed) v->strategy->after_backward(v->wrapper);
}

/* grads = [p.grad for p in ...]: the list of the step before is there until this one is. */
static void v1_take_grads(v1_loop *v) {
    tide_machine *m = &v->run->machine;
    uint32_t count = tide_optimizer_members(v->wrapper->optimizer, NULL), before = v->grad_count;
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_tensor **grads = TIDE_NEW(m->arena, tide_tensor *, count + 1);
    tide_optimizer_members(v->wrapper->optimizer, members);
    v->grad_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].tensor->grad) grads[v->grad_count++] = tide_retain(members[i].tensor->grad);
    tide_freeing freeing = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "del grads");
    for (uint32_t i = 0; i < before; i++) tide_release(m, v->grads[i]);
    tide_freeing_ends(m, freeing);
    v->grads = grads;
}

static void v1_update(v1_loop *v, unsigned step) {
    tide_machine *m = &v->run->machine;
    m->module = m->statement = 0;
    v1_take_grads(v);
    tide_tensor *total_norm = tide_clip_grad_norm(v->wrapper->optimizer);
    tide_del(m, "del total_norm", v->total_norm);
    v->total_norm = total_norm;
    tide_optimizer_step(v->wrapper->optimizer);
    tide_zero_grad(v->wrapper->optimizer, true);
    v1_all_reduce(v, 2); /* step_loss, grad_norm */
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}

static void v1_step(v1_loop *v, unsigned step) {
    tide_machine *m = &v->run->machine;
    tide_alike alike = {.run = v->run, .step = step, .count = (uint32_t)v->job->grad_accum};
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD); /* the start of the step */
    m->module = m->statement = 0;
    v1_compute_valid_tokens(v); /* of one micro-batch after the other */
    v1_all_reduce(v, 1);
    for (uint32_t i = 0; i < alike.count && !m->has_failed; i++) {
        tide_alike_begins(&alike);
        v->wrapper->micro = i;
        v1_micro_batch(v, step);
        i += tide_alike_ends(&alike, i, false);
    }
    if (!m->has_failed) v1_update(v, step);
}

/* torch.nn.utils.clip_grad_norm_ of zeros, before the optimizer is made: FSDP2Engine._warmup_grad_norm() */
static void v1_warm_up_grad_norm(v1_loop *v) {
    tide_machine *m = &v->run->machine;
    uint32_t count = tide_optimizer_members(v->wrapper->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(v->wrapper->optimizer, members);
    m->op = "zeros_like";
    m->state.factor = TIDE_FACTOR_GRADIENT;
    for (uint32_t i = 0; i < count; i++)
        members[i].tensor->grad = tide_empty_like(m, members[i].tensor, members[i].tensor->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_tensor *norm = tide_clip_grad_norm(v->wrapper->optimizer);
    tide_zero_grad(v->wrapper->optimizer, true);
    tide_release(m, norm);
}

bool tide_play_llama_factory_v1(tide_run *run, const tide_job *job, const tide_strategy *strategy, tide_wrapper *w) {
    tide_machine *m = &run->machine;
    v1_loop v = {.run = run, .job = job, .strategy = strategy, .wrapper = w};
    if (tide_json_at(tide_described_inputs(&run->model), "pixel_values"))
        return tide_error(m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                          "LLaMA-Factory's v1 trainer is described for models of text",
                          "give the language model by itself");
    m->module = m->statement = 0;
    if (!w->optimizer) tide_optimizer_construct(w->optimizer = tide_optimizer_new(&run->model, job));
    run->model.checkpoints_hold_given = true;
    if (strategy->wrap) v1_warm_up_grad_norm(&v);
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    tide_alike steps = {.run = run, .count = (uint32_t)job->steps};
    for (unsigned step = 1; step <= steps.count && !m->has_failed; step++) {
        steps.step = step;
        tide_alike_begins(&steps);
        v1_step(&v, step);
        step += tide_alike_step_ends(&steps, steps.count - step);
    }
    return !m->has_failed;
}
