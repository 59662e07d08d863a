/* SPDX-License-Identifier: Apache-2.0 */
/* What FullyShardedDataParallel and fully_shard have in common. */
#include "parallel/parallel.h"

#include <string.h>

#include "tensor/ops/ops.h"

void tide_unit_hook_add(tide_unit_hooks *hooks, tide_machine *m, tide_node *node, uint32_t unit) {
    TIDE_ROOM(m->arena, hooks->list, hooks->count, hooks->capacity);
    hooks->list[hooks->count++] = (tide_unit_hook){unit, node->hook};
    node->hook = hooks->count;
}

void tide_unit_hooks_run(const tide_unit_hooks *hooks, tide_machine *m, const tide_node *node,
                         void (*run)(void *state, uint32_t unit)) {
    uint32_t module = m->module, statement = m->statement;
    const char *op = m->op;
    for (uint32_t at = node->hook; at; at = hooks->list[at - 1].next) run(m->wrapper, hooks->list[at - 1].unit);
    m->module = module;
    m->statement = statement;
    m->op = op;
}

uint32_t tide_unit_of_module(const tide_model *model, const uint32_t *unit_of, uint32_t unit_count, uint32_t instance) {
    while (instance && !unit_of[instance]) instance = model->instances[instance].parent;
    return instance ? unit_of[instance] - 1 : unit_count - 1;
}

void tide_backward_with_callback(tide_wrapper *w, tide_tensor *loss, void (*callback)(void *state)) {
    tide_machine *m = w->model->m;
    m->op = "div";
    tide_tensor *scaled = w->job->grad_accum > 1 ? tide_scale(m, loss) : tide_retain(loss);
    m->op = "ones_like";
    tide_tensor *one = tide_empty_like(m, scaled, (tide_dtype)scaled->dtype);
    tide_run_backward_from(m, &scaled, &one, 1);
    if (!m->has_failed) callback(w->state);
    tide_release(m, one);
    tide_release(m, scaled);
}

void tide_backward_divided(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = "div";
    tide_tensor *scaled = w->job->grad_accum > 1 ? tide_scale(m, loss) : tide_retain(loss);
    tide_run_backward(m, scaled);
    tide_del(m, "del loss", scaled);
}

void tide_update_members(tide_wrapper *w) {
    if (w->job->clip > 0) tide_release(w->model->m, tide_clip_grad_norm(w->optimizer));
    tide_optimizer_step(w->optimizer);
    tide_zero_grad(w->optimizer, w->job->zero_grad == TIDE_zero_grad_none);
}
