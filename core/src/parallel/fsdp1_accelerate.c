/* SPDX-License-Identifier: Apache-2.0 */
/* FullyShardedDataParallel as accelerate sets it up for a Trainer: accelerator.py, prepare_model(); and with adapters,
 * peft/utils/other.py, fsdp_auto_wrap_policy(). */
#include "parallel/fsdp1.h"

void tide_fsdp1_set_mixed_precision(fsdp1 *f) {
    tide_optional_dtype mixed = f->w->job->autocast;
    if (f->param_dtype != TIDE_DTYPE_COUNT || !mixed.is_set) return;
    f->param_dtype = mixed.dtype;
    if (f->reduce_dtype == TIDE_DTYPE_COUNT) f->reduce_dtype = mixed.dtype;
    if (f->buffer_dtype == TIDE_DTYPE_COUNT) f->buffer_dtype = mixed.dtype;
}

static bool has_children(const tide_model *model, uint32_t instance) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].parent == instance && i != instance) return true;
    return false;
}

bool tide_fsdp1_is_trainable_leaf(const fsdp1 *f, uint32_t instance) {
    const tide_model *model = f->w->model;
    if (!f->w->has_trainer || f->w->job->adapter == TIDE_adapter_none || has_children(model, instance)) return false;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (row->module == instance && tide_text_ends(tide_text_of(row->name), TIDE_TEXT(".weight")))
            return row->tensor->requires_grad;
    }
    return false;
}

/* How many levels a module is below the module of its handle; -1: it belongs to another handle. */
static int depth_below(const fsdp1 *f, uint32_t instance, uint32_t above) {
    int depth = 0;
    for (; instance != above; instance = f->w->model->instances[instance].parent, depth++)
        if (!instance || f->handle_of[instance]) return -1;
    return depth;
}

/* Breadth first: all parameters, then all buffers. */
void tide_fsdp1_move_module_to_device(fsdp1 *f, uint32_t instance) {
    tide_model *model = f->w->model;
    uint32_t count = 0, *modules = tide_model_modules(model, &count);
    bool is_deeper = true;
    for (int depth = 0; is_deeper; depth++) {
        is_deeper = false;
        for (uint32_t i = 0; i < count; i++) {
            int at = depth_below(f, modules[i], instance);
            const tide_instance *of = &model->instances[modules[i]];
            is_deeper |= at > depth;
            for (uint32_t k = 0; k < of->of->member_count && at == depth; k++) {
                tide_value v = of->slots[of->of->parameter_count + k];
                if (v.kind == TIDE_VALUE_TENSOR && v.tensor->is_parameter)
                    tide_model_place(model, modules[i], v.tensor, TIDE_FACTOR_PARAMETER);
            }
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (depth_below(f, modules[i], instance) >= 0) tide_model_place_buffers(model, modules[i]);
    model->m->module = 0;
}

/* param.data = param.data.to(torch.float32). Original parameters are views of the old data until they are first
 * resharded. */
static void upcast_handle(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    tide_shape shape = tide_shape1((tide_dim){u->sharded_numel, 0});
    tide_tensor *upcast = f->offload_params
                              ? tide_empty_host(m, &shape, TIDE_FP32)
                              : tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, TIDE_FP32, TIDE_FACTOR_PARAMETER);
    for (uint32_t i = 0; i < u->count; i++) {
        flat_param_info *p = &u->param_infos[i];
        if (!f->use_orig_params) tide_set_data(m, p->param, upcast);
        if (!p->orig_param) continue;
        tide_tensor *view = tide_view_as(m, upcast, p->orig_param->layout);
        tide_release(m, p->orig_param);
        p->orig_param = view;
    }
    if (f->use_orig_params)
        u->orig_shard = u->local_shard;
    else
        tide_release(m, u->local_shard);
    u->local_shard = upcast;
    u->dtype = TIDE_FP32;
    u->casts = fsdp1_param_dtype(f, u) != TIDE_FP32;
}

void tide_fsdp1_upcast(fsdp1 *f) {
    if (!f->w->job->autocast.is_set) return;
    for (uint32_t i = 0; i < f->count; i++) {
        flat_param_handle *u = &f->handles[f->all_handles[i]];
        if (u->count && u->requires_grad && u->dtype != TIDE_FP32) upcast_handle(f, u);
    }
}
