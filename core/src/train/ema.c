/* SPDX-License-Identifier: Apache-2.0 */
/* torch/optim/swa_utils.py: AveragedModel; diffusers/training_utils.py: EMAModel. */
#include "train/ema.h"

#include <string.h>

struct tide_ema {
    tide_model *model;
    tide_ema_choice kind;
    tide_tensor **averages; /* one per parameter */
    bool is_begun;          /* AveragedModel copies the weights at the first update */
};

static tide_tensor *copy_of(tide_machine *m, const tide_tensor *t) {
    return tide_empty_like(m, t, t->dtype);
}

/* copy.deepcopy(model): a module's parameters, then its buffers, then its children. Tensor.__deepcopy__ makes an empty
 * tensor for each buffer, which takes over the copied storage. */
static void copy_model(tide_ema *ema) {
    tide_model *model = ema->model;
    tide_machine *m = model->m;
    uint32_t count, next = 0, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count; i++) {
        const tide_instance *of = &model->instances[modules[i]];
        m->module = modules[i];
        for (; next < model->parameter_count && model->parameters[next].module == modules[i]; next++)
            ema->averages[next] = copy_of(m, model->parameters[next].tensor);
        for (uint32_t k = of->of->parameter_count; k < of->of->parameter_count + of->of->member_count; k++) {
            const tide_value *v = &of->slots[k];
            if (v->kind == TIDE_VALUE_TENSOR && !v->tensor->is_parameter && !v->tensor->storage->is_untracked)
                copy_of(m, v->tensor);
        }
    }
    for (; next < model->parameter_count; next++) ema->averages[next] = copy_of(m, model->parameters[next].tensor);
}

tide_ema *tide_ema_new(tide_model *model, tide_ema_choice kind) {
    tide_machine *m = model->m;
    if (kind == TIDE_ema_none) return NULL;
    tide_ema *ema = TIDE_NEW(m->arena, tide_ema, 1);
    *ema = (tide_ema){model, kind, TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1), false};
    m->op = "EMA";
    m->state.factor = TIDE_FACTOR_OPTIMIZER;
    if (kind == TIDE_ema_swa_utils) {
        copy_model(ema);
    } else {
        for (uint32_t i = 0; i < model->parameter_count; i++) {
            m->module = model->parameters[i].module;
            ema->averages[i] = copy_of(m, model->parameters[i].tensor);
        }
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->module = 0;
    return ema;
}

/* multi_avg_fn: torch._foreach_lerp_ for each dtype, in place; meanwhile n_averaged has a copy on the device. */
static void lerp(const tide_ema *ema) {
    bool is_known[TIDE_DTYPE_COUNT] = {false};
    tide_shape scalar = {.dims = 0};
    for (uint32_t i = 0; i < ema->model->parameter_count; i++) {
        bool *known = &is_known[ema->averages[i]->dtype];
        if (!*known) tide_release(ema->model->m, tide_empty(ema->model->m, &scalar, TIDE_INT64));
        *known = true;
    }
}

/* s_param.sub_(one_minus_decay * (s_param - param)) */
static void subtract_each(const tide_ema *ema) {
    tide_machine *m = ema->model->m;
    for (uint32_t i = 0; i < ema->model->parameter_count; i++) {
        if (!ema->model->parameters[i].tensor->requires_grad) continue; /* copied */
        m->module = ema->model->parameters[i].module;
        tide_tensor *difference = copy_of(m, ema->averages[i]), *scaled = copy_of(m, ema->averages[i]);
        tide_release(m, difference);
        tide_release(m, scaled);
    }
}

/* torch._foreach_sub_(s_params, torch._foreach_sub(s_params, params)) */
static void subtract_all(const tide_ema *ema) {
    tide_machine *m = ema->model->m;
    uint32_t count = 0;
    tide_tensor **made = TIDE_NEW(m->arena, tide_tensor *, ema->model->parameter_count + 1);
    for (uint32_t i = 0; i < ema->model->parameter_count; i++) {
        if (!ema->model->parameters[i].tensor->requires_grad) continue;
        m->module = ema->model->parameters[i].module;
        made[count++] = copy_of(m, ema->averages[i]);
    }
    while (count) tide_release(m, made[--count]);
}

void tide_ema_update(tide_ema *ema) {
    if (!ema) return;
    ema->model->m->op = "EMA";
    if (ema->kind == TIDE_ema_diffusers)
        subtract_each(ema);
    else if (ema->kind == TIDE_ema_diffusers_foreach)
        subtract_all(ema);
    else if (ema->is_begun)
        lerp(ema);
    ema->is_begun = true;
    ema->model->m->module = 0;
}
