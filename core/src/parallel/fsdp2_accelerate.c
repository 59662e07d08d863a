/* SPDX-License-Identifier: Apache-2.0 */
/* accelerate/utils/fsdp_utils.py, fsdp2_prepare_model(): for a Trainer's model, which is on the host, or on the device
 * if it is quantised. */
#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"

#include <string.h>

#include "train/adapters.h"

enum { QUANT_MAP = 256 /* values of a byte: bitsandbytes/functional.py, create_dynamic_map */ };

/* ignored_params: Params4bit that are not of a floating point type, as quant_storage has them by default. */
bool tide_is_ignored_by_accelerate(const tide_model *model, uint32_t parameter) {
    return tide_is_params4bit(model, parameter) && !tide_dtype_is_float(model->parameters[parameter].tensor->dtype);
}

static bool has_params4bit(const tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (tide_is_params4bit(model, i)) return true;
    return false;
}

void tide_fsdp2_upcast(fsdp2 *f) {
    const tide_model *model = f->w->model;
    bool upcasts = f->has_param_dtype && !has_params4bit(model);
    for (uint32_t i = 0; i < model->parameter_count && upcasts; i++) {
        tide_tensor *p = model->parameters[i].tensor;
        if (p->requires_grad && tide_dtype_is_float(p->dtype)) p->dtype = TIDE_FP32;
    }
}

/* _find_final_norm: the last norm among the base model's children. Under peft, base_model_prefix leads to the model
 * itself if it is "model", an attribute that LoraModel has. */
static uint32_t final_norm_of(const tide_model *model, const tide_job *job, uint32_t head) {
    uint32_t base = 0, norm = 0;
    for (uint32_t i = 1; i < model->instance_count && !base; i++)
        if (model->instances[i].parent == model->root && i != model->root && i != head) base = i;
    bool is_hidden = job->adapter != TIDE_adapter_none && tide_text_is(model->instances[base].name, "model");
    for (uint32_t i = 1; i < model->instance_count && base && !is_hidden; i++)
        if (model->instances[i].parent == base && tide_text_contains(model->instances[i].of->name, TIDE_TEXT("Norm")))
            norm = i;
    return norm;
}

/* get_module_children_bottom_up(): what is inside of a unit comes before it. */
static bool add_no_split_modules(fsdp2 *f) {
    tide_model *model = f->w->model;
    bool *units = tide_no_split_modules(f->w);
    for (uint32_t i = 1; units && i < model->instance_count; i++) {
        if (!units[i]) continue;
        for (uint32_t k = i + 1; k < model->instance_count; k++) {
            if (!units[k] || !tide_is_below(model, k, i)) continue;
            fsdp2_add_module(f, f->state_count++, k);
            units[k] = false;
        }
        fsdp2_add_module(f, f->state_count++, i);
    }
    return units != NULL;
}

/* Whether modules of two units have a parameter in common. */
static bool units_share(const tide_model *model, uint32_t one, uint32_t other) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        for (uint32_t k = 1; k < model->instance_count && tide_is_below(model, i, one); k++)
            if (tide_is_below(model, k, other) && tide_shares_parameter(model, i, k)) return true;
    return false;
}

/* What fully_shard() refuses of the embeddings' units. */
static bool check_embeddings(fsdp2 *f, uint32_t input, uint32_t output, bool is_tied) {
    tide_model *model = f->w->model;
    const char *refusal = NULL;
    for (uint32_t at = input ? model->instances[input].parent : 0; at; at = model->instances[at].parent)
        if (f->state_of[at])
            refusal = "the input embeddings are in a unit already, and accelerate shards them again: \"Invariant "
                      "encountered: value was None when it should not be\"";
    if (!refusal && is_tied && tide_text_is(model->instances[input].name, "shared"))
        refusal =
            "encoder and decoder share the input embeddings: \"Parameter is shared with a parameter already managed "
            "by another FSDP group\"";
    if (!refusal && output && tide_ties_bias(model))
        refusal =
            "the head's bias has two names: \"Parameter is shared with a parameter already managed by another FSDP "
            "group\"";
    bool is_copied = !is_tied && input && output && units_share(model, input, output);
    if (is_copied)
        tide_fail_setting(
            model->m, TIDE_ERR_CONFLICT, "adapter.modules_to_save",
            "the weight that embeddings and head share gets a copy, and accelerate shards them apart: "
            "\"Parameter is shared with a parameter already managed by another FSDP group\"; leave it out, "
            "or use parallel.kind=zero2 or zero3");
    if (refusal)
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.kind", "FSDP2 refuses this model: %s; use fsdp1",
                          refusal);
    return !refusal && !is_copied;
}

bool tide_fsdp2_accelerate_states(fsdp2 *f) {
    tide_model *model = f->w->model;
    const char *wrap = f->w->job->parallel_wrap;
    bool wraps_blocks = strcmp(wrap, "layer") == 0;
    if (!wraps_blocks && strcmp(wrap, "root") != 0) {
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.wrap",
                          "a trainer's units are those of accelerate: layer (TRANSFORMER_BASED_WRAP) or root "
                          "(NO_WRAP)");
        return false;
    }
    if (wraps_blocks && !add_no_split_modules(f)) return false;
    bool is_hidden = tide_trainer_has_value_head(f->w->job) && f->w->job->adapter != TIDE_adapter_none;
    uint32_t input = is_hidden ? 0 : tide_embeddings_of(model, false),
             output = is_hidden ? 0 : tide_embeddings_of(model, true), norm = final_norm_of(model, f->w->job, output);
    f->embeddings[0] = tide_delegated(model, input, TIDE_TEXT("weight"));
    f->embeddings[1] = tide_delegated(model, output, TIDE_TEXT("weight"));
    bool is_apart = output && tide_head_tied_again(model) == output,
         is_tied = is_apart || (input && output && tide_shares_parameter(model, input, output));
    if (!check_embeddings(f, input, output, is_tied)) return false;
    if (!is_tied && input) fsdp2_add_module(f, f->state_count++, input);
    uint32_t tail[] = {norm, is_tied ? input : 0, is_apart ? 0 : output}, before = f->state_count;
    memcpy(f->states[before].listed, tail, sizeof tail);
    for (size_t i = 0; i < 3; i++)
        if (tail[i]) fsdp2_add_module(f, before, tail[i]), f->state_count = before + 1;
    f->states[before].keeps_full_weight = f->state_count > before;
    return true;
}

void tide_fsdp2_tie_parts(fsdp2 *f) {
    fsdp_param *ends[2] = {NULL, NULL};
    if (!tide_head_tied_again(f->w->model)) return;
    for (uint32_t k = 0; k < f->group_count; k++)
        for (uint32_t i = 0; i < f->groups[k].count; i++)
            for (size_t end = 0; end < 2; end++)
                if (f->groups[k].fsdp_params[i].module == f->embeddings[end]) ends[end] = &f->groups[k].fsdp_params[i];
    if (!ends[0] || !ends[1]) return;
    tide_release(fsdp2_machine(f), ends[1]->sharded_param);
    ends[1]->sharded_param = tide_retain(ends[0]->sharded_param);
    ends[1]->tied_to = ends[0];
    ends[0]->tied_from = ends[1];
}

/* A variable refers to the parameter as it was on the device. */
static void keep_weight(tide_machine *m, tide_tensor **kept, tide_tensor *parameter) {
    tide_tensor *nothing = tide_empty_host(m, parameter->shape, (tide_dtype)parameter->dtype);
    *kept = tide_alias(m, parameter);
    tide_set_data(m, parameter, nothing);
    tide_release(m, nothing);
}

/* The last parameter of the optimizer's last group, to which the loop that swaps them leaves `p`. */
static const tide_tensor *last_swapped(tide_machine *m, const tide_optimizer *optimizer) {
    uint32_t count = tide_optimizer_members(optimizer, NULL), last = 0;
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(optimizer, members);
    for (uint32_t i = 0; i < count; i++)
        if (members[i].group >= members[last].group) last = i;
    return members[last].tensor;
}

void tide_fsdp2_place_state(fsdp2 *f, const uint32_t *params, uint32_t count, uint32_t state) {
    tide_model *model = f->w->model;
    const tide_tensor *last = f->w->optimizer ? last_swapped(model->m, f->w->optimizer) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        const tide_parameter_row *row = &model->parameters[params[i]];
        bool is_weight = tide_text_ends(tide_text_of(row->name), TIDE_TEXT(".weight"));
        tide_model_place(model, row->module, row->tensor, TIDE_FACTOR_TEMPORARY); /* whole, until it is sharded */
        for (size_t k = 0; k < 3; k++) {
            bool is_kept = k < 2 ? is_weight && f->embeddings[k] == row->module : row->tensor == last;
            if (is_kept) keep_weight(model->m, &f->whole_weights[k], row->tensor);
        }
    }
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (tide_unit_of_module(model, f->state_of, f->state_count, i) == state) tide_model_place_buffers(model, i);
}

/* Accelerator._prepare_fsdp2 and fsdp2_prepare_model: torch.empty(1) replaces the optimizer's parameters; and the
 * model's state_dict(), for which bitsandbytes clones nested_quant_map. */
void tide_fsdp2_keep_originals(fsdp2 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    uint32_t count = f->placeholder_count = tide_optimizer_members(f->w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(f->w->optimizer, members);
    f->placeholders = TIDE_NEW(m->arena, tide_tensor *, count + 1);
    f->original_sd = TIDE_NEW(m->arena, tide_tensor *, 2 * model->parameter_count + 1);
    for (uint32_t i = 0; i < count; i++)
        f->placeholders[i] =
            tide_flat_of(m, tide_fsdp2_name, 1, (tide_dtype)members[i].tensor->dtype, TIDE_FACTOR_TEMPORARY);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        m->module = row->module;
        if (!tide_is_ignored_by_accelerate(model, i)) keep_weight(m, &f->original_sd[f->original_count++], row->tensor);
        if (tide_has_quant_state(model, i) && f->w->job->quant_double)
            f->original_sd[f->original_count++] =
                tide_flat_of(m, "state_dict", QUANT_MAP, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    }
    m->module = 0;
}

void tide_fsdp2_drop_weights(fsdp2 *f) {
    tide_machine *m = fsdp2_machine(f);
    for (uint32_t i = 0; i < f->original_count; i++) tide_release_at(m, &f->original_sd[i]);
    for (size_t k = 0; k < 3; k++) tide_release_at(m, &f->whole_weights[k]);
    for (uint32_t i = f->placeholder_count; i-- > 0;) tide_release_at(m, &f->placeholders[i]);
}
