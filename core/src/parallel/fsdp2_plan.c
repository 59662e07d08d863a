/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: what fully_shard() gathers at once by the fsdp_plan of a configuration and its class;
 * mixin.py, _resolve_parallel_plans(), and fsdp.py, apply_fully_sharded_data_parallelism(). */
#include <string.h>

#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"

/* A model whose parts have configurations of their own, such as vision models, has a plan for each part. */
static bool refuse_parts(const fsdp2 *f) {
    const tide_model *model = f->w->model;
    bool has_parts = false;
    for (uint32_t i = 1; i < model->scope_count; i++)
        has_parts = has_parts || model->scopes[i].config != model->scopes[0].config;
    if (has_parts)
        tide_fail_setting(
            model->m, TIDE_ERR_UNSUPPORTED, "parallel.dp",
            "what fully_shard() gathers at once of a model with parts of its own configuration, as a vision "
            "tower, is not described with parallel.tp_plan=auto; use parallel.dp=1, or parallel.kind=fsdp2");
    return has_parts;
}

/* "An EP group holds ep_size / tp_size distinct batches": dispatched experts are sharded over ranks of their own. */
static void add_experts(fsdp2 *f) {
    const tide_model *model = f->w->model;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (tide_has_dispatched_experts(model, i)) fsdp2_add_module(f, f->state_count++, i);
}

static unsigned depth_of(const tide_instance *of) {
    unsigned dots = 0;
    for (const char *c = of->path; *c; c++) dots += *c == '.';
    return dots;
}

static unsigned deepest_of(const tide_model *model) {
    unsigned deepest = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (depth_of(&model->instances[i]) > deepest) deepest = depth_of(&model->instances[i]);
    return deepest;
}

/* "FSDP2 needs one group per dtype: give the modules kept in float32 their own group", inner ones first. */
static void add_fp32_modules(fsdp2 *f) {
    const tide_model *model = f->w->model;
    for (unsigned depth = deepest_of(model) + 1; depth-- > 0 && model->state.dtype != TIDE_FP32;)
        for (uint32_t i = 0; i < model->parameter_count; i++) {
            uint32_t module = model->parameters[i].module;
            bool is_kept = model->parameters[i].tensor->dtype == TIDE_FP32 && !f->state_of[module];
            if (is_kept && depth_of(&model->instances[module]) == depth) fsdp2_add_module(f, f->state_count++, module);
        }
}

static bool is_of_parts(const tide_model *model, uint32_t instance) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (i != instance && model->instances[i].parent == instance) return true;
    return false;
}

/* What base_model_prefix leads to: the first part of a class that has a head; else the class itself. */
static uint32_t base_of(const tide_model *model, uint32_t head) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (i != model->root && i != head && model->instances[i].parent == model->root)
            return is_of_parts(model, i) ? i : model->root;
    return model->root;
}

static bool is_child(const tide_model *model, uint32_t instance, uint32_t parent, const char *name) {
    return instance && model->instances[instance].parent == parent &&
           tide_text_is(model->instances[instance].name, name);
}

static void add_layers(fsdp2 *f, uint32_t base) {
    const tide_model *model = f->w->model;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].parent == base && tide_text_starts(model->instances[i].name, TIDE_TEXT("layers.")))
            fsdp2_add_module(f, f->state_count++, i);
}

/* is_norm_and_head_pair(): the final norm is gathered with the head, or with what the head is tied to; `second` 0: one
 * of them alone. */
static void keep(fsdp2 *f, uint32_t first, uint32_t second) {
    uint32_t state = f->state_count++;
    f->states[state].keeps_full_weight = true;
    fsdp2_add_module(f, state, first);
    if (!second) return;
    f->states[state].listed[0] = first;
    f->states[state].listed[1] = second;
    fsdp2_add_module(f, state, second);
}

/* Other weights that are tied than that of a head without bias, which tide_untie_head() has separated. */
static bool has_other_ties(const tide_model *model) {
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        for (uint32_t k = 0; k < of->of->member_count; k++) {
            const tide_value *slot = &of->slots[of->of->parameter_count + k];
            bool is_own = slot->kind != TIDE_VALUE_TENSOR || !slot->tensor->is_parameter;
            for (uint32_t p = 0; p < model->parameter_count && !is_own; p++)
                is_own = model->parameters[p].module == i && model->parameters[p].tensor == slot->tensor;
            if (!is_own) return true;
        }
    }
    return false;
}

static bool refuse_ties(const tide_model *model) {
    tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                      "how %s's embedding is gathered by transformers' fsdp_plan, where several weights, or one "
                      "beside a bias, are tied, is not described; parallel.kind=fsdp2, zero3 and ddp run it as it is",
                      tide_root_name(model));
    return false;
}

/* init_parallel_plans(): a PreTrainedModel within the base adds embed_tokens and layers.* of its own, as OPT's decoder,
 * and a base whose modules have other names adds nothing. False: there are several, as encoder and decoder. */
static bool find_base(const tide_model *model, uint32_t input, uint32_t *base) {
    uint32_t within = input ? model->instances[input].parent : *base;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        bool is_planned = tide_text_is(of->name, "embed_tokens") || tide_text_starts(of->name, TIDE_TEXT("layers."));
        if (is_planned && of->parent != *base && of->parent != within) return false;
        if (is_planned && of->parent == within) *base = within;
    }
    return true;
}

/* PreTrainedConfig.base_model_fsdp_plan: embed_tokens, layers.* and, kept after forward, norm; most classes with a head
 * add it. _resolve_tied_embed_lm_head_plan(): a head that is tied takes its place in the plan to the embedding. */
bool tide_fsdp2_plan_states(fsdp2 *f) {
    tide_model *model = f->w->model;
    if (refuse_parts(f)) return false;
    add_experts(f);
    add_fp32_modules(f);
    const tide_json *type = tide_json_at(model->scopes[0].config, "model_type"),
                    *plans = tide_plans_of_type(tide_plan_rows(model), type);
    bool is_new = tide_is_new_to_transformers(type), adds_head = is_new || tide_json_at(plans, "fsdp_plan"),
         has_plans = adds_head || tide_json_at(plans, "tp_plan");
    uint32_t input = tide_embeddings_of(model, false), output = tide_embeddings_of(model, true),
             base = base_of(model, output), norm = 0;
    bool is_tied = output && (tide_head_tied_again(model) == output || (input && tide_tied_head(model) == output));
    if (has_other_ties(model) || (!has_plans && !find_base(model, input, &base))) return refuse_ties(model);
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (is_child(model, i, base, "norm")) norm = i;
    f->embeddings[0] = input;
    f->embeddings[1] = output;
    add_layers(f, base);
    if (!is_tied && is_child(model, input, base, "embed_tokens")) fsdp2_add_module(f, f->state_count++, input);
    bool keeps_head = adds_head && is_child(model, output, model->root, "lm_head");
    uint32_t kept = !keeps_head ? 0 : is_tied ? input : output;
    if (kept && is_tied)
        keep(f, kept, norm);
    else if (norm || kept)
        keep(f, norm ? norm : kept, norm ? kept : 0);
    return true;
}
