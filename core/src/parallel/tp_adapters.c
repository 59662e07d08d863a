/* SPDX-License-Identifier: Apache-2.0 */
/* peft/tuners/lora/model.py: adapters of layers that a configuration's plan shards (add_lora_tp_hooks_dtensor). An
 * adapter has the sizes of its rank's part of the layer: lora_B is sharded like the columns that it is added to. */
#include <string.h>

#include "parallel/tensor_parallel.h"

/* The adapter that an instance is part of; 0: none. */
static uint32_t adapter_of(const tide_model *model, uint32_t instance) {
    uint32_t parent = instance ? model->instances[instance].parent : 0;
    return parent && tide_method_find(model->instances[parent].of, TIDE_TEXT("cast")) ? parent : 0;
}

bool tide_is_base_layer(const tide_model *model, uint32_t instance) {
    return adapter_of(model, instance) && tide_text_is(model->instances[instance].name, "base_layer");
}

bool tide_is_of_adapter(const tide_model *model, uint32_t instance) {
    return adapter_of(model, instance) && !tide_is_base_layer(model, instance);
}

const char *tide_planned_path(const tide_model *model, uint32_t instance) {
    return model->instances[tide_is_base_layer(model, instance) ? adapter_of(model, instance) : instance].path;
}

tide_text tide_plan_of_adapter(const tide_model *model, const tide_json *const *plans, uint32_t instance) {
    uint32_t adapter = adapter_of(model, instance);
    bool is_last = tide_text_is(model->instances[instance].name, "lora_B");
    return is_last ? tide_style_at(plans, model, adapter, model->instances[adapter].path) : (tide_text){0};
}

/* ---- what peft refuses, and what is not described ---- */

/* view() of the second product of an adapter, which assumes the sizes of a full layer. */
static void refuse_shape(const tide_wrapper *w, const char *path, const char *remedy) {
    tide_fail_setting(
        w->model->m, TIDE_ERR_CONFLICT, "adapter.target_modules",
        "%s is cut over ranks, and peft 0.21 gives its adapter a part's sizes in place of the whole ones: "
        "\"shape '[...]' is invalid for input of size ...\"; %s",
        path, remedy);
}

static bool check_target(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, uint32_t adapter) {
    const char *path = w->model->instances[adapter].path;
    tide_text style = tide_style_at(plan->of_configuration, w->model, adapter, path);
    if (!style.length || plan->ranks == 1) return true;
    if (tide_text_is(style, "rowwise"))
        refuse_shape(
            w, path,
            "adapt columns alone, as adapter.target_modules=q_proj,k_proj,v_proj, or use parallel.kind=fsdp2 or zero3, "
            "which take all");
    else if (!tide_text_is(style, "colwise"))
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                          "an adapter of %s, which is \"%.*s\" in the configuration's plan, is not described; "
                          "adapt other layers",
                          path, (int)style.length, style.at);
    else if (plan->is_sharded)
        refuse_shape(w, path, "use parallel.dp=1, or parallel.kind=fsdp2 or zero3");
    return !w->model->m->has_failed;
}

bool tide_check_adapters(const tide_wrapper *w, const tide_tensor_parallel_plan *plan) {
    const tide_job *job = w->job;
    tide_model *model = w->model;
    if (job->quant != TIDE_quant_none) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "quant",
                          "quantised weights are not described beside tensor parallelism; near to it are "
                          "parallel.kind=fsdp2 with quant.storage, and zero3");
        return false;
    }
    if (job->adapter == TIDE_adapter_none) return true;
    bool is_described = job->adapter == TIDE_adapter_lora && !job->adapter_dora && !job->adapter_modules_to_save.count;
    if (!plan->of_configuration || !is_described) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "adapter",
                          "beside tensor parallelism LoRA is described alone, with transformers' own plan; near to it "
                          "are parallel.kind=tp parallel.tp_plan=auto adapter=lora "
                          "adapter.target_modules=q_proj,k_proj,v_proj, and parallel.kind=fsdp2");
        return false;
    }
    if (plan->is_sharded && plan->ranks == 1) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "adapter",
                          "peft adds adapters to a model that fully_shard() has cut by transformers' plan, whole and "
                          "in none of its units: not described; use parallel.kind=fsdp2 or zero3");
        return false;
    }
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (tide_is_base_layer(model, i) && !check_target(w, plan, adapter_of(model, i))) return false;
    return true;
}

/* get_peft_model() of a model that has been read: _move_adapter_to_device_of_base_layer(), in the type of the weights,
 * then cast_adapter_dtype(). */
void tide_place_adapters(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    tide_tensor **placed = TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (!tide_is_of_adapter(model, row->module)) continue;
        m->op = "to";
        m->module = row->module;
        if ((tide_dtype)row->tensor->dtype == model->state.dtype)
            tide_empty_param(model, row->module, row->tensor);
        else
            placed[i] = tide_empty(m, row->tensor->shape, model->state.dtype);
    }
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        if (!placed[i]) continue;
        tide_empty_param(model, model->parameters[i].module, model->parameters[i].tensor);
        tide_release(m, placed[i]);
    }
    m->module = 0;
}
