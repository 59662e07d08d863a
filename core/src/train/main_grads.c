/* SPDX-License-Identifier: Apache-2.0 */
/* megatron/core: distributed/param_and_grad_buffer.py, optimizer/optimizer.py. */
#include "train/main_grads.h"

struct tide_main_grads {
    tide_model *model;
    tide_optimizer *optimizer;
    tide_optimized *mains; /* updated by the optimizer */
    uint32_t count;
    tide_tensor *buffer;
};

/* The hook after AccumulateGrad: param.main_grad.add_(param.grad.data); param.grad = None */
static void add_to_main_grad(tide_machine *m, tide_tensor *leaf) {
    tide_set_factor(m, leaf->grad, TIDE_FACTOR_TEMPORARY);
    tide_release_at(m, &leaf->grad);
}

tide_main_grads *tide_main_grads_new(tide_model *model, tide_optimizer *optimizer) {
    tide_machine *m = model->m;
    tide_main_grads *main = TIDE_NEW(m->arena, tide_main_grads, 1);
    *main = (tide_main_grads){.model = model, .optimizer = optimizer, .count = tide_optimizer_members(optimizer, NULL)};
    main->mains = TIDE_NEW(m->arena, tide_optimized, main->count + 1);
    tide_optimizer_members(optimizer, main->mains);
    int64_t elements = 0;
    for (uint32_t i = 0; i < main->count; i++) elements += tide_count(main->mains[i].tensor);
    tide_shape flat = tide_shape1((tide_dim){elements, 0});
    m->op = "main_grad";
    m->state.factor = TIDE_FACTOR_GRADIENT;
    main->buffer = tide_empty(m, &flat, TIDE_FP32);
    /* param.detach().clone().float(), in the order of parameters */
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        tide_tensor *p = model->parameters[i].tensor;
        if (!p->requires_grad || p->dtype == TIDE_FP32) continue;
        m->module = model->parameters[i].module;
        m->state.factor = TIDE_FACTOR_TEMPORARY;
        tide_tensor *clone = tide_empty_like(m, p, p->dtype);
        m->state.factor = TIDE_FACTOR_MASTER;
        tide_tensor *copy = tide_empty_like(m, p, TIDE_FP32);
        tide_release(m, clone);
        for (uint32_t k = 0; k < main->count; k++)
            if (main->mains[k].tensor == p) main->mains[k].tensor = copy;
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->module = 0;
    tide_optimizer_replace(optimizer, main->mains, main->count);
    m->gradient_ready = add_to_main_grad;
    return main;
}

void tide_main_grads_step(tide_main_grads *main, bool clips) {
    tide_machine *m = main->model->m;
    for (uint32_t i = 0; i < main->count; i++)
        main->mains[i].tensor->grad = tide_view_as(m, main->buffer, main->mains[i].tensor->layout);
    if (clips) tide_release(m, tide_clip_grad_norm(main->optimizer));
    tide_optimizer_step(main->optimizer);
    for (uint32_t i = 0; i < main->count; i++) tide_release_at(m, &main->mains[i].tensor->grad);
}
