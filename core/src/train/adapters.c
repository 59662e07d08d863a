/* SPDX-License-Identifier: Apache-2.0 */
/* peft: adapters around layers, and what trains. The adapters themselves are in
 * models/architectures/library/adapters.json. */
#include "train/adapters.h"

#include <string.h>

#include "base/regex.h"
#include "train/adapter_targets.h"

bool tide_is_named(const char *name, const char **prefixes, uint32_t count) {
    tide_text text = tide_text_of(name), inner = text;
    if (tide_text_starts(text, TIDE_TEXT("model."))) inner = (tide_text){text.at + 6, text.length - 6};
    for (uint32_t i = 0; i < count; i++) {
        tide_text prefix = tide_text_of(prefixes[i]);
        if (prefixes[i][0] == '^' && tide_regex_begins(prefix, text) == TIDE_MATCH_YES) return true;
        if (tide_text_starts(text, prefix) || tide_text_starts(inner, prefix)) return true;
    }
    return false;
}

/* ---- adapters ---- */

/* tuners_utils.py, _check_lora_target_modules_mamba: what LoRA may not wrap in models of some types. */
static bool is_refused(const tide_model *model, const tide_targets *t, tide_text name) {
    const tide_json *names = tide_table_of_type(model, t->job, "lora_refused");
    return t->job->adapter == TIDE_adapter_lora && names && tide_has_name(names->text, name);
}

static bool add_adapters(tide_model *model, const tide_targets *t, bool is_loaded) {
    uint32_t count, head = tide_output_head(model), aimed_at = 0, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        const tide_class *of = model->instances[modules[i]].of;
        const char *path = model->instances[modules[i]].path;
        if (!tide_is_target(model, t, modules[i], head)) continue;
        if (is_refused(model, t, tide_last_name(tide_text_of(path))))
            return tide_refuse_targets(
                model, TIDE_TARGET_MODULES,
                tide_format(model->m->arena, "targets %s, which peft refuses: \"incompatible with Mamba-based models\"",
                            path),
                "leave it out: adapter.exclude_modules=out_proj,conv1d");
        const tide_json *class_name =
            is_loaded ? tide_adapter_class(
                            model, tide_format(model->m->arena, "%s_kbit", t->job->values[TIDE_SET_adapter]), of)
                      : NULL;
        if (!class_name) class_name = tide_adapter_class(model, t->job->values[TIDE_SET_adapter], of);
        if (!class_name)
            return tide_refuse_targets(model, TIDE_TARGET_MODULES,
                                       tide_format(model->m->arena,
                                                   "targets %s, which is a %s: no adapter is described for it", path,
                                                   tide_text_copy(model->m->arena, of->name)),
                                       "target linear layers, convolutions and embeddings");
        tide_value argument = tide_adapter_argument(model, t, tide_text_of(path));
        uint32_t made = tide_model_wrap(model, modules[i], class_name->text, &argument, 1);
        if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
        aimed_at++;
    }
    if (!aimed_at && !model->m->has_failed)
        return tide_refuse_targets(model, TIDE_TARGET_MODULES, "matches no module of this model",
                                   t->job->parallel_kind == TIDE_parallel_kind_megatron
                                       ? "Megatron-Core's are linear_qkv, linear_proj, linear_fc1 and linear_fc2"
                                       : "use all-linear, or names of modules in the model");
    return !model->m->has_failed;
}

/* Names in modules_to_save that end the path of no module: PEFT passes over them. */
static void name_unsaved(tide_model *model, const tide_targets *t, const bool *is_found) {
    tide_arena *arena = model->m->arena;
    const char *names = "";
    for (uint32_t k = 0; k < t->job->adapter_modules_to_save.count; k++)
        if (!is_found[k])
            names = tide_format(arena, "%s%s%s", names, *names ? ", " : "",
                                tide_shown(arena, tide_text_of(t->job->adapter_modules_to_save.names[k])));
    if (*names)
        tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/adapter.modules_to_save",
                    tide_format(arena, "has no effect with %s, which names no module of this model", names),
                    "names are ends of paths, such as lm_head");
}

/* utils/other.py, _set_trainable: by the end of the path, with or without a dot. */
static bool save_modules(tide_model *model, const tide_targets *t) {
    uint32_t count, *modules = tide_model_modules(model, &count);
    bool *is_found = TIDE_NEW(model->m->arena, bool, t->job->adapter_modules_to_save.count + 1);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        if (!model->instances[modules[i]].parent) continue;
        bool is_saved_here = false;
        for (uint32_t k = 0; k < t->job->adapter_modules_to_save.count; k++) {
            bool is_named = tide_text_ends(tide_text_of(model->instances[modules[i]].path),
                                           tide_text_of(t->job->adapter_modules_to_save.names[k]));
            is_found[k] |= is_named;
            is_saved_here |= is_named;
        }
        if (is_saved_here) tide_model_wrap(model, modules[i], TIDE_TEXT("ModulesToSaveWrapper"), NULL, 0);
    }
    name_unsaved(model, t, is_found);
    return !model->m->has_failed;
}

static bool is_adapter(const tide_model *model, uint32_t instance) {
    return instance && tide_method_find(model->instances[instance].of, TIDE_TEXT("cast"));
}

static void cast_adapters(tide_model *model) {
    uint32_t count, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count; i++)
        if (is_adapter(model, modules[i])) tide_model_call(model, modules[i], TIDE_TEXT("cast"), TIDE_FACTOR_PARAMETER);
}

/* Chooses what trains besides the adapters. */
static void choose_biases(tide_model *model, const tide_targets *t) {
    bool is_all = t->job->adapter_bias == TIDE_adapter_bias_all,
         is_idle = t->job->adapter_bias != TIDE_adapter_bias_none;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        tide_parameter_row *p = &model->parameters[i];
        bool is_bias = tide_text_ends(tide_text_of(p->name), TIDE_TEXT(".bias"));
        bool is_adapted = is_adapter(model, model->instances[p->module].parent);
        if (is_bias && (is_all || (t->job->adapter_bias == TIDE_adapter_bias_lora_only && is_adapted)))
            p->tensor->requires_grad = true, is_idle = false;
        if (tide_is_named(p->name, t->job->adapter_also_train.names, t->job->adapter_also_train.count))
            p->tensor->requires_grad = true;
    }
    if (is_idle)
        tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/adapter.bias",
                    "has no effect: none of these layers has a bias", NULL);
}

static bool is_below_module(const char *name, const char *module) {
    const char *at = strstr(name, module);
    return at && (at == name || at[-1] == '.');
}

/* ModulesToSaveWrapper.update(): the copy trains, the original does not, not even its biases. */
static void choose_saved(tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        tide_parameter_row *p = &model->parameters[i];
        if (is_below_module(p->name, "modules_to_save.")) p->tensor->requires_grad = true;
        if (is_below_module(p->name, "original_module.")) p->tensor->requires_grad = false;
    }
}

static void freeze_all(tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count; i++) model->parameters[i].tensor->requires_grad = false;
}

bool tide_adapt(tide_model *model, const tide_job *job) {
    bool is_loaded = job->quant_from_pretrained || tide_trainer_is_of_trl(job); /* TRL: is_loaded_in_4bit is set */
    bool has_parameters = job->adapter_target_parameters.count > 0;
    tide_targets t;
    if (!tide_choose_targets(model, job, &t)) return false;
    freeze_all(model);
    uint32_t experts = tide_take_experts(model, &t);
    bool has_layers = (!experts && !has_parameters) || *t.modules;
    if (!(tide_job_prompts(job) ? tide_add_prompt(model, job)
                                : (!has_layers || add_adapters(model, &t, is_loaded)) &&
                                      tide_adapt_parameters(model, &t, experts) && save_modules(model, &t)))
        return false;
    if (tide_job_casts_adapters(job)) cast_adapters(model);
    tide_model_list_parameters(model);
    choose_biases(model, &t);
    choose_saved(model);
    if (job->adapter_merged) tide_merge_adapters(model);
    return !model->m->has_failed;
}
