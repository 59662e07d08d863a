/* SPDX-License-Identifier: Apache-2.0 */
/* Experts whose weights are parameters of a module that is no layer: peft/utils/transformers_weight_conversion.py and
 * lora/layer.py, ParamWrapper. */
#include <math.h>
#include <string.h>

#include "base/decimal.h"
#include "base/units.h"
#include "train/adapter_targets.h"

/* transformers_weight_conversion.py, _resolve_string_target_modules: for these models a regular expression is replaced
 * by the last names of the modules and parameters that it matches, and by the names that projections of experts had
 * before they were fused. */
static const char *names_covered(tide_model *model, const tide_targets *t, tide_text projections) {
    const char *names = "";
    uint32_t count, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        tide_text path = tide_text_of(model->instances[modules[i]].path);
        if (path.length && tide_is_aimed_at(model, TIDE_TARGET_MODULES, t->modules, path))
            names = tide_with_name(model, names, tide_last_name(path));
    }
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++) {
        tide_text path = tide_text_of(model->parameters[i].name), leaf = tide_last_name(path), rest = projections, name;
        if (tide_is_aimed_at(model, TIDE_TARGET_MODULES, t->modules, path)) names = tide_with_name(model, names, leaf);
        if (tide_text_is(leaf, "weight") || tide_text_is(leaf, "bias")) continue;
        while (tide_next_name(&rest, &name)) {
            const char *was = tide_format(model->m->arena, "%.*s%.*s", (int)(path.length - leaf.length), path.at,
                                          (int)name.length, name.at);
            if (tide_is_aimed_at(model, TIDE_TARGET_MODULES, t->modules, tide_text_of(was)))
                names = tide_with_name(model, names, name);
        }
    }
    return names;
}

/* all-linear for such a model: last names of linear layers except the output head, and all projections that experts
 * had. */
static const char *names_of_all(tide_model *model, tide_text projections) {
    const char *names = projections.at;
    uint32_t count, head = tide_output_head(model), *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count; i++)
        if (modules[i] != head && tide_is_linear_layer(model->instances[modules[i]].of))
            names = tide_with_name(model, names, tide_last_name(tide_text_of(model->instances[modules[i]].path)));
    return names;
}

/* _convert_peft_config_moe, _MOE_TARGET_MODULE_MAPPING: targets that become target_parameters, and which ones, by the
 * position of their names in "fused_experts". */
enum { ROUTER = 1, GATE = 2, UP = 4, DOWN = 8 };

uint32_t tide_take_experts(tide_model *model, tide_targets *t) {
    const tide_json *names = tide_table_of_type(model, t->job, "fused_experts");
    if (!names || names->kind != TIDE_JSON_STRING || t->job->adapter != TIDE_adapter_lora) return 0;
    if (t->job->experts == TIDE_experts_modules) return 0;
    if (strcmp(t->modules, "all-linear") == 0)
        t->modules = names_of_all(model, names->text);
    else if (tide_is_pattern(t->modules))
        t->modules = names_covered(model, t, names->text);
    tide_text targets = tide_text_of(t->modules), target;
    const char *rest = "";
    uint32_t taken = 0;
    while (tide_next_name(&targets, &target)) {
        tide_text all = names->text, one;
        uint32_t place = ROUTER, is = 0;
        for (; tide_next_name(&all, &one); place *= 2)
            if (tide_text_equal(one, tide_last_name(target))) is = place;
        if (!is) rest = tide_with_name(model, rest, target);
        taken |= is;
    }
    if (taken) t->modules = rest;
    return taken;
}

/* tuners_utils.py, _inject_parameters: a name is the whole path, or its end after a dot. */
static bool is_parameter_named(const tide_job *job, tide_text path) {
    for (uint32_t i = 0; i < job->adapter_target_parameters.count; i++) {
        tide_text name = tide_text_of(job->adapter_target_parameters.names[i]);
        bool ends =
            path.length > name.length && tide_text_ends(path, name) && path.at[path.length - name.length - 1] == '.';
        if (ends || tide_text_equal(path, name)) return true;
    }
    return false;
}

/* lora/layer.py, ParamWrapper.__init__; _MOE_FUSED_TARGETS. */
static bool may_adapt_parameters(tide_model *model, const tide_job *job, uint32_t taken) {
    const char *remedy = "leave it out, or name only linear layers: adapter.target_modules=q_proj,k_proj,v_proj,o_proj";
    const struct {
        bool is_asked;
        const char *setting, *words;
    } refused[] = {
        {job->adapter_dropout > 0, "/settings/adapter.dropout",
         "lora.ParamWrapper does not work with lora_dropout != 0"},
        {job->adapter_lora_bias, "/settings/adapter.lora_bias", "lora.ParamWrapper does not work with lora_bias=True"},
        {job->adapter_dora, "/settings/adapter.dora", "lora.ParamWrapper does not work with use_dora=True"},
        {(taken & GATE) && !(taken & UP), TIDE_TARGET_MODULES,
         "the gate projection of experts cannot be converted without the one that is fused with it in gate_up_proj"},
        {(taken & UP) && !(taken & GATE), TIDE_TARGET_MODULES,
         "a projection of experts cannot be converted without the gate projection that is fused with it in "
         "gate_up_proj"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].is_asked)
            return tide_refuse_targets(model, refused[i].setting,
                                       tide_format(model->m->arena, "%s; peft refuses this too", refused[i].words),
                                       remedy);
    return true;
}

/* Wraps a parameter of a module, or of an existing wrapper, in a ParamWrapper; 0 after an error. */
static uint32_t wrap_parameter(tide_model *model, const tide_targets *t, const tide_parameter_row *p, uint32_t wrapper,
                               bool is_fused) {
    tide_text path = tide_text_of(p->name), name = tide_last_name(path);
    const tide_json *class_name = tide_adapter_class(model, "lora_parameter", model->instances[p->module].of);
    if (!class_name || !class_name->text.length) {
        tide_refuse_targets(
            model, TIDE_TARGET_MODULES,
            tide_format(model->m->arena, "targets %s of a module for which no adapter is described", p->name),
            "name linear layers, such as adapter.target_modules=q_proj,k_proj,v_proj,o_proj");
        return 0;
    }
    int64_t rank = tide_adapter_rank(model, t, path), fused = is_fused && rank == t->job->adapter_r ? 2 : 1;
    double r = (double)(rank * fused), alpha = (double)t->job->adapter_alpha / TIDE_PICO * (double)fused;
    tide_value more[] = {tide_of_int(rank * fused),
                         {.kind = TIDE_VALUE_FLOAT, .number = alpha / (t->job->adapter_rslora ? sqrt(r) : r)},
                         {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(tide_text_copy(model->m->arena, name))},
                         tide_of_bool(wrapper != p->module)};
    more[0].symbol = tide_symbol_name(model->m, TIDE_TEXT("r"));
    uint32_t made = tide_model_wrap(model, wrapper, class_name->text, more, TIDE_COUNT_OF(more));
    if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
    return made;
}

/* tuners_utils.py, _inject_parameters: in module order. */
bool tide_adapt_parameters(tide_model *model, const tide_targets *t, uint32_t taken) {
    uint32_t wrapper = 0, wrapped = 0;
    uint64_t adapted = 0;
    if (!taken && !t->job->adapter_target_parameters.count) return true;
    if (!may_adapt_parameters(model, t->job, taken)) return false;
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++) {
        const tide_parameter_row *p = &model->parameters[i];
        tide_text path = tide_text_of(p->name);
        bool is_fused = (taken & GATE) && tide_text_ends(path, TIDE_TEXT(".gate_up_proj")),
             is_aimed_at = is_fused || ((taken & DOWN) && tide_text_ends(path, TIDE_TEXT(".down_proj"))) ||
                           ((taken & ROUTER) && tide_text_ends(path, TIDE_TEXT(".gate.weight"))) ||
                           is_parameter_named(t->job, path);
        if (!is_aimed_at) continue;
        wrapper = wrap_parameter(model, t, p, p->module == wrapped ? wrapper : p->module, is_fused);
        wrapped = p->module;
        adapted += (uint64_t)tide_bytes(p->tensor);
    }
    if (!adapted && !model->m->has_failed)
        return tide_refuse_targets(model, "/settings/adapter.target_parameters", "names no parameter of this model",
                                   "names are ends of paths, such as mlp.experts.down_proj; in transformers before 5 "
                                   "experts are layers");
    tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, TIDE_TARGET_MODULES,
                tide_format(model->m->arena,
                            "targets experts: each forward pass computes their full adapted weights, %s over all "
                            "layers, which are kept for backward without checkpointing",
                            tide_gib(model->m->arena, adapted)),
                "adapter.target_modules=q_proj,k_proj,v_proj,o_proj leaves out the experts; checkpointing=full "
                "keeps one layer of them at a time");
    return !model->m->has_failed;
}
