/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer Engine 2.20.2: pytorch/optimizers/fused_adam.py, as called by Megatron-Core's optimizers, and
 * fused_sgd.py, whose momentum takes the place of the first moment.
 *
 * States in another dtype than fp32 have a scale and are widened for the kernel; bf16 moments only if they are not both
 * bf16. A state in fp8 is a Float8Tensor with a transposed copy. */
#include "parallel/megatron.h"
#include "tensor/ops/ops.h"

static const char *adam_op(const tide_megatron *g) {
    return g->is_sgd ? "FusedSGD.step" : "FusedAdam.step";
}

static tide_tensor *adam_tensor(const tide_megatron *g, const tide_megatron_main *p, tide_dtype dtype,
                                tide_factor factor) {
    tide_machine *m = g->w->model->m;
    m->module = g->w->model->parameters[p->row].module;
    return tide_flat_of(m, adam_op(g), p->count, dtype, factor);
}

/* One number, which is kept. */
static tide_tensor *adam_scalar(const tide_megatron *g) {
    return tide_flat_of(g->w->model->m, adam_op(g), 1, TIDE_FP32, TIDE_FACTOR_OPTIMIZER);
}

static void adam_drop(const tide_megatron *g, tide_tensor *t) {
    tide_release(g->w->model->m, t);
}

/* name_to_dtype_map */
static tide_dtype adam_dtype(const tide_megatron *g, tide_megatron_state_name name) {
    const tide_job *job = g->w->job;
    const tide_optional_dtype dtypes[] = {job->parallel_exp_avg_dtype, job->parallel_exp_avg_sq_dtype,
                                          job->parallel_main_params_dtype};
    return g->is_precision_aware && !g->offloads ? tide_dtype_or(dtypes[name], TIDE_FP32) : TIDE_FP32;
}

/* The 16 bits by which fp32 extends bf16 parameters. */
static bool stores_param_remainders(const tide_megatron *g) {
    return g->w->model->state.dtype == TIDE_BF16 && adam_dtype(g, MASTER_PARAM) == TIDE_FP32;
}

/* _initialize_state */
static void adam_initialize_one(const tide_megatron *g, tide_megatron_main *p, tide_megatron_state_name name) {
    tide_dtype dtype = adam_dtype(g, name);
    bool is_remainder = name == MASTER_PARAM && stores_param_remainders(g);
    if (dtype != TIDE_FP8) {
        p->states[name] = adam_tensor(g, p, is_remainder ? TIDE_INT16 : dtype, TIDE_FACTOR_OPTIMIZER);
    } else {
        tide_tensor *data = adam_tensor(g, p, TIDE_UINT8, TIDE_FACTOR_TEMPORARY);
        adam_scalar(g); /* scale, amax, _scale_inv */
        adam_scalar(g);
        adam_scalar(g);
        p->states[name] = adam_tensor(g, p, TIDE_UINT8, TIDE_FACTOR_OPTIMIZER);
        adam_tensor(g, p, TIDE_UINT8, TIDE_FACTOR_OPTIMIZER); /* _transpose */
        adam_drop(g, adam_tensor(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        adam_scalar(g);
        adam_drop(g, data);
        return;
    }
    if (dtype != TIDE_FP32) adam_scalar(g);
}

static tide_tensor *adam_number(const tide_megatron *g) {
    return tide_flat_of(g->w->model->m, adam_op(g), 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
}

/* min_val, max_val = torch.aminmax(unscaled_state), and what the scale is computed from; kept: what lives until the
 * function returns. */
static void adam_largest(const tide_megatron *g, const tide_tensor *unscaled, tide_tensor *kept[3]) {
    kept[0] = adam_number(g);
    kept[1] = adam_number(g);
    tide_reduction_scratch(g->w->model->m, unscaled, 1, 2 * (int64_t)sizeof(float));
    tide_tensor *negative = adam_number(g);
    kept[2] = adam_number(g); /* torch.maximum(-min_val, max_val) */
    adam_drop(g, negative);
}

/* _apply_scale. dtype_to_range_map caches a range on the device under the dtype of the state, but a Float8Tensor looks
 * it up under another one, and so moves it each time. */
static void apply_scale(const tide_megatron *g, tide_megatron_optimizer *o, const tide_megatron_main *p,
                        const tide_tensor *unscaled, tide_dtype dtype) {
    bool is_fp8 = dtype == TIDE_FP8;
    tide_tensor **range = is_fp8 ? &o->fp8_range : &o->fp16_range, *before = *range, *kept[3], *one, *other;
    if (dtype == TIDE_BF16) adam_drop(g, adam_tensor(g, p, TIDE_BF16, TIDE_FACTOR_TEMPORARY));
    if (dtype == TIDE_BF16) return;
    if (!before || is_fp8) {
        *range = adam_scalar(g);
        adam_drop(g, before);
    }
    adam_largest(g, unscaled, kept);
    tide_tensor *is_positive = is_fp8 ? NULL : adam_number(g); /* torch.where(scale > 0, scale.reciprocal(), 0.0) */
    one = adam_number(g);                                      /* reciprocal */
    other = adam_number(g);
    tide_tensor *rscale = is_fp8 ? NULL : adam_number(g);
    adam_drop(g, is_fp8 ? one : other);
    adam_drop(g, is_positive);
    adam_drop(g, is_fp8 ? other : one);
    for (unsigned i = 0; i < 3; i++) adam_drop(g, kept[i]);
    adam_drop(g, rscale);
}

/* initialize_state */
static void adam_initialize(const tide_megatron *g, tide_megatron_optimizer *o, tide_megatron_main *p) {
    adam_initialize_one(g, p, EXP_AVG);
    if (g->is_sgd) return; /* momentum_buffer */
    adam_initialize_one(g, p, EXP_AVG_SQ);
    if (!g->has_decoupled_grad || g->offloads) return;
    adam_initialize_one(g, p, MASTER_PARAM);
    if (stores_param_remainders(g)) return;
    const tide_dtype dtype = g->w->model->state.dtype, kept = adam_dtype(g, MASTER_PARAM);
    tide_tensor *master = adam_tensor(g, p, dtype, TIDE_FACTOR_TEMPORARY); /* clone().detach().float() */
    if (dtype != TIDE_FP32) {
        tide_tensor *clone = master;
        master = adam_tensor(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
        adam_drop(g, clone);
    }
    if (kept != TIDE_FP32) apply_scale(g, o, p, master, kept);
    adam_drop(g, master);
}

/* get_unscaled_state: NULL if the state itself is used. */
static tide_tensor *adam_unscaled(const tide_megatron *g, const tide_megatron_main *p, tide_megatron_state_name name) {
    bool fuses = adam_dtype(g, EXP_AVG) == TIDE_BF16 && adam_dtype(g, EXP_AVG_SQ) == TIDE_BF16;
    tide_dtype dtype = adam_dtype(g, name);
    if (!p->states[name] || dtype == TIDE_FP32 || (dtype == TIDE_BF16 && fuses)) return NULL;
    return adam_tensor(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
}

typedef struct adam_widened {
    tide_tensor *states[STATE_COUNT];
} adam_widened;

/* The states of the mains from `from` to `to`, widened. */
static adam_widened *adam_widen(const tide_megatron *g, tide_megatron_optimizer *o, uint32_t from, uint32_t to) {
    adam_widened *wide = TIDE_NEW(g->w->model->m->arena, adam_widened, to - from + 1);
    for (uint32_t i = from; i < to; i++) {
        tide_megatron_main *p = &o->mains[i];
        if (p->is_on_host) continue;
        if (!p->states[EXP_AVG]) adam_initialize(g, o, p);
        for (int name = 0; name < STATE_COUNT; name++)
            wide[i - from].states[name] = adam_unscaled(g, p, (tide_megatron_state_name)name);
    }
    return wide;
}

static void adam_scale(const tide_megatron *g, tide_megatron_optimizer *o, const adam_widened *wide, uint32_t from,
                       uint32_t to) {
    for (int name = 0; name < STATE_COUNT; name++)
        for (uint32_t i = from; i < to; i++)
            if (wide[i - from].states[name])
                apply_scale(g, o, &o->mains[i], wide[i - from].states[name],
                            adam_dtype(g, (tide_megatron_state_name)name));
}

static void adam_drop_widened(const tide_megatron *g, adam_widened *wide, uint32_t count) {
    for (int name = STATE_COUNT; name-- > 0;)
        for (uint32_t i = count; i-- > 0;) adam_drop(g, wide[i].states[name]);
}

/* HybridDeviceOptimizer.step: param_copy_back_gpu_hook: copies fp32 parameters from the host into those of another
 * dtype. */
static void adam_copy_back(const tide_megatron *g, const tide_megatron_optimizer *o) {
    if (!g->has_decoupled_grad || g->w->model->state.dtype == TIDE_FP32) return;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->mains[i].is_on_host) adam_drop(g, adam_tensor(g, &o->mains[i], TIDE_FP32, TIDE_FACTOR_TEMPORARY));
}

/* HybridDeviceOptimizer._set_sub_optimizer_grads: gradients in another dtype than fp32 are converted, on the device
 * permanently, for the host through a temporary copy on the device. */
static void hybrid_grads(const tide_megatron *g, const tide_megatron_optimizer *o) {
    bool is_fp32 = !g->buffer_count || g->buffers[0].grad_data->dtype == TIDE_FP32;
    if (!g->offloads || !g->has_decoupled_grad || is_fp32) return;
    for (uint32_t i = 0; i < o->count; i++) {
        tide_megatron_main *p = &o->mains[i];
        if (p->is_on_host) continue;
        tide_tensor *before = p->fp32_grad;
        p->fp32_grad = adam_tensor(g, p, TIDE_FP32, TIDE_FACTOR_GRADIENT);
        adam_drop(g, before);
    }
    for (uint32_t i = 0; i < o->count; i++)
        if (o->mains[i].is_on_host) adam_drop(g, adam_tensor(g, &o->mains[i], TIDE_FP32, TIDE_FACTOR_TEMPORARY));
}

void tide_megatron_fused_step(const tide_megatron *g, tide_megatron_optimizer *o) {
    adam_widened *before = NULL;
    uint32_t from = 0, count_before = 0;
    hybrid_grads(g, o);
    for (int group = 0; group < GROUP_COUNT; from = o->group_ends[group++]) {
        uint32_t to = o->group_ends[group];
        if (from == to) continue;
        adam_widened *wide = adam_widen(g, o, from, to);
        if (before) adam_drop_widened(g, before, count_before); /* tensor_lists referred to them until it was rebound */
        adam_scale(g, o, wide, from, to);
        before = wide;
        count_before = to - from;
    }
    if (before) adam_drop_widened(g, before, count_before);
    adam_copy_back(g, o);
}
