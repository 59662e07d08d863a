/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/fully_sharded_data_parallel.py, clip_grad_norm_(). */
#include "parallel/fsdp1.h"
#include "tensor/ops/ops.h"

/* The gradient of a handle's parameter i: its own, or that of the flat parameter, which comes first. */
static const tide_tensor *grad_of(const fsdp1 *f, const flat_param_handle *u, uint32_t i) {
    const tide_tensor *of = f->use_orig_params ? u->param_infos[i].orig_param : i ? NULL : u->local_shard;
    return of ? of->grad : NULL;
}

/* _get_grad_norm(): the norm of each gradient in fp32, and the norm of these. NULL: there is no gradient. */
static tide_tensor *get_grad_norm(const fsdp1 *f, tide_dtype *widest) {
    tide_machine *m = fsdp1_machine(f);
    uint32_t count = 0, most = f->w->model->parameter_count + f->count;
    tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, most + 1);
    for (uint32_t k = 0; k < f->count; k++) {
        const flat_param_handle *u = &f->handles[f->all_handles[k]];
        for (uint32_t i = 0; i < u->count; i++) {
            const tide_tensor *grad = grad_of(f, u, i);
            if (!grad) continue;
            *widest = count && *widest != grad->dtype ? TIDE_FP32 : (tide_dtype)grad->dtype;
            norms[count++] = tide_sum_plain(m, grad, (1u << grad->shape->dims) - 1, false, TIDE_FP32);
        }
    }
    if (!count) return NULL;
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    tide_tensor *stacked = tide_empty(m, &shape, TIDE_FP32);
    while (count) tide_release(m, norms[--count]);
    tide_tensor *norm = tide_sum_plain(m, stacked, 1, false, TIDE_FP32);
    tide_release(m, stacked);
    return norm;
}

/* grad.mul_(clip_coef_clamped.to(grad.device, grad.dtype)) */
static void scale_grads(const fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    for (uint32_t k = 0; k < f->count; k++) {
        const flat_param_handle *u = &f->handles[f->all_handles[k]];
        for (uint32_t i = 0; i < u->count; i++) {
            const tide_tensor *grad = grad_of(f, u, i);
            if (grad && grad->dtype != TIDE_FP32) tide_release(m, tide_scalar(m, (tide_dtype)grad->dtype));
        }
    }
}

tide_tensor *tide_fsdp1_clip_grad_norm(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    tide_dtype widest = TIDE_FP32;
    m->op = "clip_grad_norm_";
    if (!f->zero_scalar) f->zero_scalar = tide_flat_of(m, m->op, 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    if (!fsdp1_uses_sharded_strategy(f)) return tide_clip_grad_norm(f->w->optimizer);
    bool has_grad = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *local = get_grad_norm(f, &widest), *sum = tide_scalar(m, TIDE_FP32),
                *total = tide_scalar(m, TIDE_FP32);
    tide_release(m, sum);
    tide_tensor *added = tide_scalar(m, TIDE_FP32), *inverse = tide_scalar(m, TIDE_FP32),
                *coefficient = tide_scalar(m, TIDE_FP32);
    tide_release(m, inverse);
    tide_release(m, added);
    tide_tensor *clamped = tide_scalar(m, TIDE_FP32);
    scale_grads(f);
    if (widest != TIDE_FP32) {
        tide_tensor *half = tide_scalar(m, widest);
        tide_release(m, total);
        total = half;
    }
    tide_release(m, local);
    tide_release(m, coefficient);
    tide_release(m, clamped);
    m->state.grad_enabled = has_grad;
    return total;
}

void tide_fsdp1_clip_on_host(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    m->op = "clip_grad_norm_";
    if (!f->zero_scalar) f->zero_scalar = tide_flat_of(m, m->op, 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    if (!fsdp1_uses_sharded_strategy(f)) return;
    tide_tensor *parts[3];
    for (int i = 0; i < 3; i++) parts[i] = tide_scalar(m, TIDE_FP32);
    for (int i = 0; i < 3; i++) tide_release(m, parts[i]);
}
