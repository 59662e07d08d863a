/* SPDX-License-Identifier: Apache-2.0 */
/* Common to FullyShardedDataParallel and fully_shard. */
#include "parallel/parallel.h"

#include <string.h>

#include "tensor/ops/ops.h"

typedef struct unit_hook {
    tide_tensor_hook hook;
    void (*run)(void *state, uint32_t unit);
    void *state;
    uint32_t unit;
} unit_hook;

static void unit_hook_run(tide_machine *m, tide_tensor_hook *hook) {
    const unit_hook *h = (const unit_hook *)hook;
    uint32_t module = m->module, statement = m->statement;
    const char *op = m->op;
    h->run(h->state, h->unit);
    m->module = module;
    m->statement = statement;
    m->op = op;
}

static void unit_hook_drop(tide_machine *m, tide_tensor_hook *hook) {
    tide_pool_free(m, hook, sizeof(unit_hook));
}

void tide_register_unit_hook(tide_machine *m, tide_node *node, void (*run)(void *state, uint32_t unit), void *state,
                             uint32_t unit) {
    unit_hook *h = tide_pool_alloc(m, sizeof *h);
    *h = (unit_hook){{unit_hook_run, unit_hook_drop, NULL}, run, state, unit};
    tide_register_hook(node, &h->hook);
}

uint32_t tide_unit_of_module(const tide_model *model, const uint32_t *unit_of, uint32_t unit_count, uint32_t instance) {
    while (instance && !unit_of[instance]) instance = model->instances[instance].parent;
    return instance ? unit_of[instance] - 1 : unit_count - 1;
}

/* The keyword argument of a trainer that is a tensor of floating point. */
static tide_value *floating_keyword(tide_wrapper *w) {
    bool is_v1 = w->job->trainer == TIDE_trainer_llama_factory_v1;
    return tide_model_setting(w->model, is_v1 ? "given_loss_weights" : "num_items");
}

void tide_cast_num_items(tide_wrapper *w, tide_cast_items *items, tide_dtype dtype, const char *op) {
    tide_value *num_items = floating_keyword(w);
    tide_release_at(w->model->m, &items->cast);
    items->given = *num_items;
    if (tide_trainer_is_of_trl(w->job) || num_items->kind != TIDE_VALUE_TENSOR || num_items->tensor->dtype == dtype)
        return;
    w->model->m->op = op;
    num_items->tensor = tide_empty_like(w->model->m, items->given.tensor, dtype);
}

void tide_restore_num_items(tide_wrapper *w, tide_cast_items *items) {
    tide_value *num_items = floating_keyword(w);
    if (num_items->kind == TIDE_VALUE_TENSOR && num_items->tensor != items->given.tensor)
        items->cast = num_items->tensor;
    if (!w->model->state.is_checkpointing || w->model->checkpoints_hold_given)
        tide_release_at(w->model->m, &items->cast);
    *num_items = items->given;
}

void tide_backward_with_callback(tide_wrapper *w, tide_tensor *loss, void (*callback)(void *state)) {
    tide_machine *m = w->model->m;
    m->op = "div";
    tide_tensor *divided = w->job->grad_accum > 1 && !w->has_divided ? tide_scale(m, loss) : tide_retain(loss);
    bool is_scaled = w->scaler && !w->has_divided; /* a trainer's loop does both */
    tide_tensor *scaled = is_scaled ? tide_scaler_scale(w->model, w->scaler, divided) : tide_retain(divided);
    m->op = "ones_like";
    tide_tensor *one = tide_empty_like(m, scaled, (tide_dtype)scaled->dtype);
    tide_run_backward_from(m, &scaled, &one, 1);
    if (!m->has_failed) callback(w->state);
    tide_release(m, one);
    tide_release(m, scaled);
    tide_release(m, divided);
}

void tide_backward_divided(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = "div";
    tide_tensor *scaled = w->job->grad_accum > 1 && !w->has_divided ? tide_scale(m, loss) : tide_retain(loss);
    tide_run_backward(m, scaled);
    tide_del(m, "del loss", scaled);
}

void tide_clip_members(tide_wrapper *w) {
    if (w->scaler && (w->has_trainer || w->job->clip > 0)) tide_scaler_unscale(w->model, w->scaler, w->optimizer);
    if (w->has_trainer) { /* _get_grad_norm */
        tide_del(w->model->m, "del grad_norm", w->grad_norm);
        w->grad_norm = tide_clip_grad_norm(w->optimizer);
    } else if (w->job->clip > 0) {
        tide_release(w->model->m, tide_clip_grad_norm(w->optimizer));
    }
}

void tide_update_members(tide_wrapper *w) {
    tide_clip_members(w);
    tide_step_members(w);
}

void tide_step_members(tide_wrapper *w) {
    tide_scaled_step(w->model, w->scaler, w->optimizer);
    tide_zero_grad(w->optimizer, w->job->zero_grad == TIDE_zero_grad_none);
}
