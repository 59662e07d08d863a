/* SPDX-License-Identifier: Apache-2.0 */
/* torch/amp/grad_scaler.py */
#include "train/grad_scaler.h"

bool tide_scaler_takes(tide_model *model, const tide_scaler *scaler, const tide_optimizer *optimizer, bool clips) {
    tide_machine *m = model->m;
    uint32_t count = tide_optimizer_members(optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    const char *what = NULL, *remedy = "use dtype=fp32 with autocast=fp16, or bf16";
    tide_optimizer_members(optimizer, members);
    if (scaler->is_sharded && !scaler->has_dtensors && tide_optimizer_is_fused(optimizer))
        what =
            "fused optimizers fail with FSDP1's ShardedGradScaler: \"output with shape [] doesn't match the broadcast "
            "shape [1]\"",
        remedy = "use optimizer=adamw, or bf16";
    for (uint32_t i = 0; i < count && !what; i++) {
        tide_dtype dtype = (tide_dtype)members[i].tensor->dtype;
        if (dtype == TIDE_BF16)
            what = "GradScaler cannot unscale the gradients of bf16 weights; bf16 needs no scaler";
        else if (dtype == TIDE_FP16 && !scaler->is_sharded && (!tide_optimizer_is_fused(optimizer) || clips))
            what = "GradScaler refuses fp16 weights that train: \"Attempting to unscale FP16 gradients\"";
    }
    if (!what) return true;
    m->has_failed = true;
    return tide_error(m->diags, TIDE_ERR_CONFLICT, scaler->is_sharded ? "/settings/autocast" : "/settings/scaler", what,
                      remedy);
}

void tide_scaler_values(const tide_scaler *scaler, tide_value values[TIDE_SCALER_VALUES]) {
    values[0] = tide_of_tensor(scaler->scale);
    values[1] = tide_of_tensor(scaler->growth);
    values[2] = tide_of_tensor(scaler->found_inf);
    values[3] = tide_of_bool(scaler->is_unscaled);
}

tide_tensor *tide_scaler_scale(tide_model *model, tide_scaler *scaler, tide_tensor *loss) {
    tide_machine *m = model->m;
    m->op = "GradScaler.scale";
    if (!scaler->scale) {
        m->state.factor = TIDE_FACTOR_OPTIMIZER;
        scaler->scale = tide_scalar(m, TIDE_FP32);
        scaler->growth = tide_scalar(m, TIDE_INT32);
        m->state.factor = TIDE_FACTOR_TEMPORARY;
    }
    tide_tensor *scaled = tide_mul(m, loss, scaler->scale);
    if (!scaler->is_sharded || !scaled || scaled->dtype == loss->dtype) return scaled;
    tide_tensor *cast = tide_to(m, scaled, (tide_dtype)loss->dtype);
    tide_release(m, scaled);
    return cast;
}

/* torch/distributed/fsdp/sharded_grad_scaler.py, unscale_(): ranks reduce found_inf. With DTensors that is done for
 * each dtype of theirs, where _amp_foreach_non_finite_check_and_unscale_ is dispatched
 * (torch/distributed/tensor/_dispatch.py, found_inf_reduce_handler). */
static void reduce_found_inf(tide_machine *m, const tide_scaler *scaler, const tide_optimizer *optimizer) {
    bool is_reduced[TIDE_DTYPE_COUNT] = {false};
    if (scaler->is_on_host) tide_release(m, tide_scalar(m, TIDE_FP32));
    if (!scaler->has_dtensors || scaler->is_on_host) return;
    uint32_t count = tide_optimizer_members(optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(optimizer, members);
    for (uint32_t i = 0; i < count; i++) {
        const tide_tensor *grad = members[i].tensor->grad;
        if (!grad || is_reduced[grad->dtype]) continue;
        is_reduced[grad->dtype] = true;
        tide_release(m, tide_scalar(m, TIDE_FP32));
    }
}

void tide_scaler_unscale(tide_model *model, tide_scaler *scaler, const tide_optimizer *optimizer) {
    tide_machine *m = model->m;
    m->op = "GradScaler.unscale_";
    if (scaler->is_unscaled) return;
    scaler->is_unscaled = true;
    tide_tensor *wide = tide_scalar(m, TIDE_FP64), *inverse = tide_scalar(m, TIDE_FP64);
    tide_release(m, wide);
    tide_tensor *narrow = tide_scalar(m, TIDE_FP32);
    tide_release(m, inverse);
    tide_tensor *found = tide_scalar(m, TIDE_FP32);
    /* _MultiDeviceReplicator copies both to the device of the gradients */
    tide_tensor *replica = NULL;
    if (!scaler->is_on_host) {
        scaler->found_inf = tide_scalar(m, TIDE_FP32);
        replica = tide_scalar(m, TIDE_FP32);
    }
    reduce_found_inf(m, scaler, optimizer);
    tide_release(m, narrow);
    tide_release(m, found);
    tide_release(m, replica);
}

/* Fused optimizers unscale in their kernels: GradScaler.step() passes them the scale and the result of
 * _check_inf_per_device, or found_inf of an earlier unscale_(). */
static void step_fused(tide_model *model, tide_scaler *scaler, tide_optimizer *optimizer) {
    tide_machine *m = model->m;
    tide_tensor *scale = NULL;
    m->op = "GradScaler.step";
    if (!scaler->is_unscaled) {
        tide_tensor *dummy_inv_scale = tide_scalar(m, TIDE_FP32), *found = tide_scalar(m, TIDE_FP32);
        scaler->found_inf = tide_scalar(m, TIDE_FP32);
        tide_tensor *replica = tide_scalar(m, TIDE_FP32);
        if (!scaler->is_on_host) reduce_found_inf(m, scaler, optimizer);
        tide_release(m, replica);
        tide_release(m, dummy_inv_scale);
        tide_release(m, found);
    }
    tide_tensor *found_inf = tide_scalar(m, TIDE_FP32); /* the sum over devices */
    if (!scaler->is_unscaled) scale = tide_scalar(m, TIDE_FP32);
    tide_optimizer_step(optimizer);
    tide_release(m, scale);
    tide_release(m, found_inf);
}

void tide_scaler_update(tide_model *model, tide_scaler *scaler) {
    if (scaler->is_on_host) tide_release(model->m, tide_scalar(model->m, TIDE_FP32)); /* found_inf.to(scale.device) */
    tide_release_at(model->m, &scaler->found_inf);
    scaler->is_unscaled = false;
}

void tide_scaled_step(tide_model *model, tide_scaler *scaler, tide_optimizer *optimizer) {
    if (scaler && tide_optimizer_is_fused(optimizer)) {
        step_fused(model, scaler, optimizer);
    } else {
        if (scaler) tide_scaler_unscale(model, scaler, optimizer);
        tide_optimizer_step(optimizer);
    }
    if (scaler) tide_scaler_update(model, scaler);
}
