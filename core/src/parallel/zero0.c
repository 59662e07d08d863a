/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed without ZeRO in half precision: deepspeed/runtime/fp16/unfused_optimizer.py, and engine.py for the
 * reduction. Every parameter has an fp32 copy, whose optimizer states are created at once by a step with zeros. */
#include "parallel/autotp.h"
#include "parallel/ulysses.h"

typedef struct zero0 {
    tide_tensor **params, **masters;
    uint32_t count;
} zero0;

static const char zero0_name[] = "DeepSpeed";

/* engine.py: _do_optimizer_sanity_check, where there is no ZeRO */
static bool has_one_dtype(const tide_wrapper *w) {
    tide_dtype half = tide_dtype_or(w->job->parallel_half, TIDE_FP32),
               accumulated = tide_dtype_or(w->job->parallel_grad_accum_dtype, half);
    if (half == accumulated) return true;
    tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, "parallel.grad_accum_dtype",
                      "DeepSpeed without ZeRO has gradients in the dtype of the model alone: \"unsupported mix of "
                      "model_dtype and grad_accum_dtype\"; leave it out, or use parallel.kind=zero1");
    return false;
}

static void zero0_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    if (!has_one_dtype(w)) return;
    tide_cast_and_place_model(w, tide_dtype_or(w->job->parallel_half, TIDE_FP32));
    if (!tide_autotp(w)) return;
    zero0 *z = TIDE_NEW(m->arena, zero0, 1);
    z->count = tide_optimizer_members(w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, z->count + 1);
    tide_optimizer_members(w->optimizer, members);
    z->params = TIDE_NEW(m->arena, tide_tensor *, z->count + 1);
    z->masters = TIDE_NEW(m->arena, tide_tensor *, z->count + 1);
    w->state = z;
    for (uint32_t i = 0; i < z->count; i++) z->params[i] = members[i].tensor;
    if (tide_dtype_or(w->job->parallel_half, TIDE_FP32) == TIDE_FP32) { /* the plain optimizer */
        z->masters = NULL;
        return;
    }
    for (uint32_t i = 0; i < z->count; i++) {
        m->op = zero0_name;
        m->module = members[i].module;
        tide_tensor *clone = tide_empty_like(m, z->params[i], w->model->state.dtype);
        m->state.factor = TIDE_FACTOR_MASTER;
        z->masters[i] = members[i].tensor = tide_empty_like(m, z->params[i], TIDE_FP32);
        m->state.factor = TIDE_FACTOR_TEMPORARY;
        tide_release(m, clone);
    }
    tide_optimizer_replace(w->optimizer, members, z->count);
    for (uint32_t i = 0; i < z->count; i++)
        z->params[i]->grad = tide_empty_like(m, z->params[i], w->model->state.dtype);
    for (uint32_t i = 0; i < z->count; i++) z->masters[i]->grad = tide_empty_like(m, z->masters[i], TIDE_FP32);
    tide_optimizer_step(w->optimizer);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i]->grad);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->masters[i]->grad);
}

/* engine.py: buffered_allreduce_fallback. */
static void zero0_allreduce_fallback(tide_wrapper *w, const zero0 *z) {
    tide_machine *m = w->model->m;
    tide_dtype as = tide_communication_dtype(w->job);
    int64_t elements = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < z->count; i++) {
        const tide_tensor *grad = z->params[i]->grad;
        if (grad) elements += tide_count(grad), count++;
        if (elements <= TIDE_MEMORY_OPT_ALLREDUCE_SIZE && i + 1 < z->count) continue;
        tide_tensor *flat =
            count > 1 ? tide_flat_of(m, zero0_name, elements, w->model->state.dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
        tide_tensor *sent = count && as != w->model->state.dtype
                                ? tide_flat_of(m, zero0_name, elements, as, TIDE_FACTOR_COMMUNICATION)
                                : NULL;
        tide_release(m, flat);
        tide_release(m, sent);
        elements = count = 0;
    }
}

static void zero0_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = zero0_name;
    /* divided by the number of micro-batches */
    tide_tensor *scaled = w->has_divided ? tide_retain(loss) : tide_scale(m, loss);
    tide_run_backward(m, scaled);
    m->module = m->statement = 0;
    if (w->is_last) zero0_allreduce_fallback(w, w->state);
    tide_release(m, scaled);
}

static void zero0_update(tide_wrapper *w) {
    zero0 *z = w->state;
    tide_machine *m = w->model->m;
    m->op = zero0_name;
    for (uint32_t i = 0; i < z->count && w->model->state.dtype != TIDE_FP32; i++) { /* get_weight_norm */
        if (!z->params[i]->grad) continue;
        tide_tensor *wide = tide_flat(m, tide_count(z->params[i]), TIDE_FP32);
        tide_release(m, tide_sum_plain(m, wide, 1, false, TIDE_FP32));
        tide_release(m, wide);
    }
    m->state.factor = TIDE_FACTOR_GRADIENT;
    for (uint32_t i = 0; i < z->count && z->masters; i++)
        z->masters[i]->grad = tide_empty_like(m, z->masters[i], TIDE_FP32);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_optimizer_step(w->optimizer);
    for (uint32_t i = 0; i < z->count && z->masters; i++) tide_release_at(m, &z->masters[i]->grad);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i]->grad);
}

bool tide_adagrad_is_refused(const tide_wrapper *w, uint32_t groups) {
    if (groups < 2 || !tide_job_is_adagrad(w->job)) return false;
    tide_fail_setting(
        w->model->m, TIDE_ERR_CONFLICT, "optimizer",
        "DeepSpeed makes Adagrad anew with a single group, and these parameters have two (with and without "
        "weight decay): \"list index out of range\"; use adamw, or parallel.kind=zero3");
    return true;
}

const tide_strategy tide_zero0_strategy = {.wrap = zero0_wrap,
                                           .before_forward = tide_ulysses_before_forward,
                                           .after_forward = tide_ulysses_after_forward,
                                           .prepare_reference = tide_prepare_whole_reference,
                                           .backward = zero0_backward,
                                           .update = zero0_update,
                                           .updates_in_backward = true};
