/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer Engine 2.20.2: pytorch/optimizers/fused_adam.py, as Megatron-Core's optimizers call it.
 *
 * States of another type than fp32 have a scale, and are widened for the kernel: bf16 moments only where they are not
 * both of that type. A state in fp8 is a Float8Tensor with a transposed copy. */
#include "parallel/megatron.h"

static const char step_op[] = "FusedAdam.step";

static tide_tensor *of_param(const tide_megatron *g, const tide_megatron_main *p, tide_dtype dtype,
                             tide_factor factor) {
    tide_machine *m = g->w->model->m;
    m->module = g->w->model->parameters[p->row].module;
    return tide_flat_of(m, step_op, p->count, dtype, factor);
}

/* One number that stays. */
static tide_tensor *make_scalar(const tide_megatron *g) {
    return tide_flat_of(g->w->model->m, step_op, 1, TIDE_FP32, TIDE_FACTOR_OPTIMIZER);
}

static void release(const tide_megatron *g, tide_tensor *t) {
    tide_release(g->w->model->m, t);
}

/* name_to_dtype_map */
static tide_dtype dtype_of(const tide_megatron *g, tide_megatron_state_name name) {
    const tide_job *job = g->w->job;
    const tide_optional_dtype dtypes[] = {job->parallel_exp_avg_dtype, job->parallel_exp_avg_sq_dtype,
                                          job->parallel_main_params_dtype};
    return g->is_precision_aware && !g->offloads ? tide_dtype_or(dtypes[name], TIDE_FP32) : TIDE_FP32;
}

/* The 16 bits that bf16 parameters lack of fp32. */
static bool stores_param_remainders(const tide_megatron *g) {
    return g->w->model->state.dtype == TIDE_BF16 && dtype_of(g, MASTER_PARAM) == TIDE_FP32;
}

/* _initialize_state */
static void initialize_one(const tide_megatron *g, tide_megatron_main *p, tide_megatron_state_name name) {
    tide_dtype dtype = dtype_of(g, name);
    bool is_remainder = name == MASTER_PARAM && stores_param_remainders(g);
    if (dtype != TIDE_FP8) {
        p->states[name] = of_param(g, p, is_remainder ? TIDE_INT16 : dtype, TIDE_FACTOR_OPTIMIZER);
    } else {
        tide_tensor *data = of_param(g, p, TIDE_UINT8, TIDE_FACTOR_TEMPORARY);
        make_scalar(g); /* scale, amax, _scale_inv */
        make_scalar(g);
        make_scalar(g);
        p->states[name] = of_param(g, p, TIDE_UINT8, TIDE_FACTOR_OPTIMIZER);
        of_param(g, p, TIDE_UINT8, TIDE_FACTOR_OPTIMIZER); /* _transpose */
        release(g, of_param(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        make_scalar(g);
        release(g, data);
        return;
    }
    if (dtype != TIDE_FP32) make_scalar(g);
}

/* _apply_scale, but for numbers that live within it */
static void apply_scale(const tide_megatron *g, const tide_megatron_main *p, tide_dtype dtype) {
    if (dtype == TIDE_BF16) release(g, of_param(g, p, TIDE_BF16, TIDE_FACTOR_TEMPORARY));
}

/* initialize_state */
static void initialize_state(const tide_megatron *g, tide_megatron_main *p) {
    initialize_one(g, p, EXP_AVG);
    initialize_one(g, p, EXP_AVG_SQ);
    if (!g->is_precision_aware || g->offloads || g->w->model->state.dtype == TIDE_FP32) return;
    initialize_one(g, p, MASTER_PARAM);
    if (stores_param_remainders(g)) return;
    tide_tensor *clone = of_param(g, p, g->w->model->state.dtype, TIDE_FACTOR_TEMPORARY);
    tide_tensor *master = of_param(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    release(g, clone);
    apply_scale(g, p, dtype_of(g, MASTER_PARAM));
    release(g, master);
}

/* get_unscaled_state: NULL where the state itself is taken. */
static tide_tensor *unscaled(const tide_megatron *g, const tide_megatron_main *p, tide_megatron_state_name name) {
    bool fuses = dtype_of(g, EXP_AVG) == TIDE_BF16 && dtype_of(g, EXP_AVG_SQ) == TIDE_BF16;
    tide_dtype dtype = dtype_of(g, name);
    if (!p->states[name] || dtype == TIDE_FP32 || (dtype == TIDE_BF16 && fuses)) return NULL;
    return of_param(g, p, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
}

typedef struct widened {
    tide_tensor *states[STATE_COUNT];
} widened;

/* What is widened lives until the next group. */
static void step_group(const tide_megatron *g, tide_megatron_optimizer *o, uint32_t from, uint32_t to) {
    tide_machine *m = g->w->model->m;
    widened *wide = TIDE_NEW(m->arena, widened, to - from + 1);
    for (uint32_t i = from; i < to; i++) {
        tide_megatron_main *p = &o->mains[i];
        if (p->is_on_host) continue;
        if (!p->states[EXP_AVG]) initialize_state(g, p);
        for (int name = 0; name < STATE_COUNT; name++)
            wide[i - from].states[name] = unscaled(g, p, (tide_megatron_state_name)name);
    }
    for (int name = 0; name < STATE_COUNT; name++)
        for (uint32_t i = from; i < to; i++)
            if (wide[i - from].states[name]) apply_scale(g, &o->mains[i], dtype_of(g, (tide_megatron_state_name)name));
    for (uint32_t i = from; i < to; i++)
        for (int name = 0; name < STATE_COUNT; name++) release(g, wide[i - from].states[name]);
}

void tide_megatron_fused_adam(const tide_megatron *g, tide_megatron_optimizer *o) {
    step_group(g, o, 0, o->first_group);
    step_group(g, o, o->first_group, o->count);
}
