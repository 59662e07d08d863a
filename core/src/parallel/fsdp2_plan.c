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

/* A head that is tied and has a bias keeps that as a parameter of its own. */
static bool has_tied_weight_and_bias(const tide_model *model, uint32_t head) {
    bool has_weight = false, has_bias = false;
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (head && model->parameters[i].module == head)
            *(strcmp(strrchr(model->parameters[i].name, '.'), ".weight") ? &has_bias : &has_weight) = true;
    return has_bias && !has_weight;
}

static bool refuse_ties(const tide_model *model) {
    tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                      "how %s's embedding is gathered by transformers' fsdp_plan, which names neither it nor the head "
                      "that is tied to it, is not described; parallel.kind=fsdp2, zero3 and ddp run it as it is",
                      tide_root_name(model));
    return false;
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
    uint32_t input = tide_fsdp2_embeddings_of(model, false), output = tide_fsdp2_embeddings_of(model, true),
             base = base_of(model, output), norm = 0;
    bool is_tied = output && (tide_head_tied_again(model) == output || (input && tide_tied_head(model) == output)),
         is_nested = input && model->instances[input].parent != base;
    if (has_tied_weight_and_bias(model, output) || (!has_plans && (is_tied || is_nested))) return refuse_ties(model);
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
