/* SPDX-License-Identifier: Apache-2.0 */
/* peft/tuners/lora/model.py: adapters of layers that a configuration's plan shards (add_lora_tp_hooks_dtensor). An
 * adapter has the sizes of its rank's part of the layer: lora_B is sharded like the columns that it is added to. */
#include <string.h>

#include "parallel/tensor_parallel.h"

bool tide_is_adapter(const tide_model *model, uint32_t instance) {
    return instance && tide_method_find(model->instances[instance].of, TIDE_TEXT("cast"));
}

/* The adapter that an instance is part of; 0: none. */
static uint32_t adapter_of(const tide_model *model, uint32_t instance) {
    uint32_t parent = instance ? model->instances[instance].parent : 0;
    return tide_is_adapter(model, parent) ? parent : 0;
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

static bool is_rotation(const tide_model *model, uint32_t instance) {
    return tide_text_is(model->instances[instance].name, "oft_R");
}

/* Of a part's blocks where a layer's inputs are cut: its own weight; NULL: the adapter is another. */
static const tide_tensor *rotation_of(const tide_model *model, uint32_t adapter) {
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        uint32_t of = model->parameters[i].module;
        if (is_rotation(model, of) && adapter_of(model, of) == adapter) return model->parameters[i].tensor;
    }
    return NULL;
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

static bool check_lora_target(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, const char *path,
                              tide_text style) {
    if (tide_text_ends(tide_text_of(path), TIDE_TEXT("embed_tokens")))
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "adapter.target_modules",
                          "an adapter of %s, which is cut along the vocabulary, is not described; adapt other layers",
                          path);
    else if (tide_text_is(style, "rowwise"))
        refuse_shape(
            w, path,
            "adapt columns alone, as adapter.target_modules=q_proj,k_proj,v_proj, or use parallel.kind=fsdp2 or zero3, "
            "which take all");
    else if (tide_text_is(style, "colwise_gather_output"))
        tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, "adapter.target_modules",
                          "%s gives whole outputs, and its adapter those of a part: \"The size of tensor a must match "
                          "the size of tensor b at non-singleton dimension 2\"; adapt other layers",
                          path);
    else if (!tide_text_is(style, "colwise"))
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                          "an adapter of %s, which is \"%.*s\" in the configuration's plan, is not described; "
                          "adapt other layers",
                          path, (int)style.length, style.at);
    else if (plan->is_sharded)
        refuse_shape(w, path, "use parallel.dp=1, or parallel.kind=fsdp2 or zero3");
    return !w->model->m->has_failed;
}

/* IA3 scales the whole of what a layer takes or gives. */
static bool check_ia3_target(const tide_wrapper *w, uint32_t adapter, tide_text style) {
    const tide_instance *of = &w->model->instances[adapter];
    bool scales_input = of->slots[tide_attribute_slot(of->of, TIDE_TEXT("is_feedforward"))].truth;
    if (!tide_text_is(style, scales_input ? "rowwise" : "colwise")) return true;
    tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, "adapter.target_modules",
                      "%s is cut over ranks, and peft's vector is of the whole: \"The size of tensor a must match the "
                      "size of tensor b at non-singleton dimension 2\"; adapt layers whose %s are whole, as %s, or use "
                      "parallel.kind=fsdp2",
                      of->path, scales_input ? "inputs" : "outputs", scales_input ? "gate_proj" : "o_proj");
    return false;
}

/* OFT rotates what a layer takes: each rank the blocks of its part. */
static bool check_oft_target(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, const char *path,
                             tide_text style, const tide_tensor *rotation) {
    bool is_row = tide_text_is(style, "rowwise");
    if (!is_row && !tide_text_is(style, "colwise") && !tide_text_is(style, "colwise_gather_output"))
        return check_lora_target(w, plan, path, style);
    if (is_row && rotation->shape->dim[0].size % plan->ranks)
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "adapter.oft_block_size",
                          "does not divide the inputs of a rank's part of %s, where peft takes another: not described",
                          path);
    return !w->model->m->has_failed;
}

static bool check_target(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, uint32_t adapter) {
    const char *path = w->model->instances[adapter].path;
    tide_text style = tide_style_at(plan->of_configuration, w->model, adapter, path);
    if (plan->ranks == 1) return true;
    if (!style.length && !tide_text_ends(tide_text_of(path), TIDE_TEXT("embed_tokens"))) return true;
    if (w->job->adapter == TIDE_adapter_oft)
        return check_oft_target(w, plan, path, style, rotation_of(w->model, adapter));
    return w->job->adapter == TIDE_adapter_ia3 ? check_ia3_target(w, adapter, style)
                                               : check_lora_target(w, plan, path, style);
}

/* apply() of a parallel style replaces module.forward by a function over the module, which deepcopy() keeps. */
static bool check_saved(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, uint32_t saved) {
    const tide_instance *of = &w->model->instances[saved];
    if (!tide_text_is(of->of->name, "ModulesToSaveWrapper") || plan->ranks == 1) return true;
    if (!tide_style_at(plan->of_configuration, w->model, saved, of->path).length &&
        !tide_text_is(of->name, "embed_tokens"))
        return true;
    tide_fail_setting(
        w->model->m, TIDE_ERR_CONFLICT, "adapter.modules_to_save",
        "the forward() of %s, which is cut over ranks, is a function over the original module, and peft's "
        "copy keeps it: the copy would not be trained; leave it out, or use parallel.kind=fsdp2",
        of->path);
    return false;
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
    if (!plan->of_configuration) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "adapter",
                          "beside tensor parallelism adapters are described with transformers' own plan; near to it "
                          "are parallel.kind=tp parallel.tp_plan=auto adapter=lora "
                          "adapter.target_modules=q_proj,k_proj,v_proj, and parallel.kind=fsdp2");
        return false;
    }
    if (job->adapter_dora) {
        tide_fail_setting(model->m, TIDE_ERR_CONFLICT, "adapter.dora",
                          "\"aten.add.Tensor got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
                          "DTensor before calling distributed operators!\"; leave it out, or use parallel.kind=fsdp2");
        return false;
    }
    if (plan->is_sharded && (plan->ranks == 1 || job->adapter != TIDE_adapter_lora)) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "adapter",
                          "peft adds adapters to a model that fully_shard() has cut by transformers' plan, whole and "
                          "in none of its units: not described; use parallel.kind=fsdp2 or zero3");
        return false;
    }
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (!check_saved(w, plan, i)) return false;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (tide_is_base_layer(model, i) && !check_target(w, plan, adapter_of(model, i))) return false;
    return true;
}

/* update_layer(): of a layer that has a part of the inputs. */
static void take_part(const tide_wrapper *w, const tide_tensor_parallel_plan *plan, const tide_parameter_row *row) {
    const tide_model *model = w->model;
    if (!is_rotation(model, row->module)) return;
    uint32_t adapter = adapter_of(model, row->module);
    tide_text style = tide_style_at(plan->of_configuration, model, adapter, model->instances[adapter].path);
    if (!tide_text_is(style, "rowwise")) return;
    tide_dtensor_distribute(model->m, row->tensor,
                            &(tide_distribute){.ranks = plan->ranks, .rank = plan->rank, .is_on_meta = true});
    row->tensor->is_dtensor = false;
}

/* get_peft_model() of a model that has been read: _move_adapter_to_device_of_base_layer(), in the type of the weights,
 * then cast_adapter_dtype(). */
void tide_place_adapters(tide_wrapper *w, const tide_tensor_parallel_plan *plan) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    tide_tensor **placed = TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (!tide_is_of_adapter(model, row->module) && !tide_is_adapter(model, row->module)) continue;
        take_part(w, plan, row);
        m->op = "to";
        m->module = row->module;
        if ((tide_dtype)row->tensor->dtype == model->state.dtype)
            tide_empty_param(model, row->module, row->tensor);
        else
            placed[i] = tide_empty(m, row->tensor->shape, model->state.dtype);
        if (tide_is_of_adapter(model, row->module)) tide_model_place_buffers(model, row->module);
    }
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        if (!placed[i]) continue;
        tide_empty_param(model, model->parameters[i].module, model->parameters[i].tensor);
        tide_release(m, placed[i]);
    }
    m->module = 0;
}
