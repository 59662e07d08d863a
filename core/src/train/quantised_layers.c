/* SPDX-License-Identifier: Apache-2.0 */
/* bitsandbytes: which modules are quantised. The quantised modules are in models/architectures/library/quantised.json.
 */
#include <string.h>

#include "base/regex.h"
#include "train/adapters.h"

/* quantizers_utils.py, should_convert_module: a pattern matches the path up to a dot, or the path ends in it. */
static bool is_kept(tide_text path, tide_text pattern, tide_arena *arena) {
    if (tide_text_ends(path, pattern)) return true;
    const char *up_to_dot = tide_format(arena, "(%.*s)(\\..*)?", (int)pattern.length, pattern.at);
    return tide_regex_covers(tide_text_of(up_to_dot), path) == TIDE_MATCH_YES;
}

/* quantizers/base.py, get_keys_to_not_convert, if nothing is named: the output head, modules with shared weights, and
 * the last module. In manual quantisation, only the head besides what is named; in diffusers nothing
 * (quantizers/bitsandbytes/bnb_quantizer.py). */
static bool is_left(tide_model *model, const tide_job *job, uint32_t instance, uint32_t head) {
    const tide_instance *of = &model->instances[instance];
    const tide_name_list *skip = &job->quant_skip;
    const tide_parameter_row *last = model->parameter_count ? &model->parameters[model->parameter_count - 1] : NULL;
    bool is_head = instance == head || (!job->quant_from_pretrained && tide_text_is(of->name, "lm_head"));
    for (uint32_t i = 0; i < skip->count; i++)
        if (is_kept(tide_text_of(of->path), tide_text_of(skip->names[i]), model->m->arena)) return true;
    if (tide_job_is_of_diffusers(job)) return false;
    if (!job->quant_from_pretrained || skip->count) return is_head && !job->quant_from_pretrained;
    return is_head ||
           (last && last->module == instance && tide_text_ends(tide_text_of(last->name), TIDE_TEXT(".weight")));
}

/* Experts in one parameter are not layers, so they are not quantised; reported if they are most of the model. */
static void say_whole_experts(const tide_model *model, const tide_job *job) {
    int64_t whole = 0, all = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_tensor *t = model->parameters[i].tensor;
        bool is_of_experts = t->shape->dims == 3 && tide_dtype_is_float(t->dtype) && tide_dtype_bytes(t->dtype) > 1 &&
                             strstr(model->parameters[i].name, "experts");
        int64_t bytes = t->layout->count * tide_dtype_bytes(t->dtype);
        all += bytes;
        whole += is_of_experts ? bytes : 0;
    }
    if (2 * whole <= all) return;
    tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/quant",
                tide_format(model->m->arena,
                            "%s quantises layers, but experts are a single parameter per block: %d %% of the "
                            "weights are not quantised",
                            job->values[TIDE_SET_quant], (int)(100.0 * (double)whole / (double)all)),
                "quant.experts=true quantises them too, as axolotl can; with experts=modules they are layers, as "
                "before transformers 5");
}

/* transformers replaces nn.Linear itself (integrations/bitsandbytes.py, type(module) is nn.Linear): layers of
 * subclasses are not quantised, which is reported if they are most of the model. */
static void say_whole_layers(const tide_model *model, const tide_job *job) {
    tide_text name = TIDE_TEXT("");
    int64_t whole = 0, all = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_tensor *t = model->parameters[i].tensor;
        tide_text of = model->instances[model->parameters[i].module].of->name;
        int64_t bytes = t->layout->count * tide_dtype_bytes(t->dtype);
        bool is_own =
            !tide_text_is(of, "Linear") && tide_text_ends(of, TIDE_TEXT("Linear")) && tide_dtype_bytes(t->dtype) > 1;
        all += bytes;
        whole += is_own ? bytes : 0;
        if (is_own) name = of;
    }
    if (2 * whole <= all) return;
    tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/quant",
                tide_format(model->m->arena,
                            "%s replaces nn.Linear itself, but the model's layers are %.*s: %d %% of the weights "
                            "are not quantised, so it has almost no effect",
                            job->values[TIDE_SET_quant], (int)name.length, name.at,
                            (int)(100.0 * (double)whole / (double)all)),
                "transformers loads it so too: leave quant out");
}

static bool is_of_experts(const tide_parameter_row *row) {
    return row->tensor->shape->dims >= 3 && strstr(row->name, "expert");
}

static bool is_parametrized(const tide_model *model, const tide_parameter_row *row) {
    return tide_text_starts(model->instances[row->module].of->name, TIDE_TEXT("Parametrized"));
}

/* bitsandbytes/nn/parametrize.py, replace_parameter_4bit(), and axolotl's equivalent for 8 bits: monkeypatch/
 * moe_quant.py, which takes parameters of three dimensions with "expert" in their names. */
static bool quantise_experts(tide_model *model, const tide_value *shared) {
    uint32_t count, taken = 0, *modules = tide_model_modules(model, &count);
    tide_diagnostics *diags = model->m->diags;
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        const tide_json *name = tide_adapter_class_for(model, "experts", model->instances[modules[i]].of->name);
        if (name) tide_model_wrap(model, modules[i], name->text, shared, 1);
    }
    tide_model_list_parameters(model);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        tide_parameter_row *row = &model->parameters[i];
        if (!is_of_experts(row)) continue;
        if (!is_parametrized(model, row)) {
            model->m->has_failed = true;
            return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/quant.experts",
                              tide_format(model->m->arena, "is not described for %s", row->name),
                              "leave it out: then experts are not quantised");
        }
        row->tensor->requires_grad = false;
        taken++;
    }
    if (!taken)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/quant.experts",
                    "has no effect: no experts of this model are a single parameter", NULL);
    return !model->m->has_failed;
}

bool tide_quantise(tide_model *model, const tide_job *job) {
    uint32_t count, head = tide_output_head(model), *modules = tide_model_modules(model, &count);
    const char *besides = tide_format(model->m->arena, job->quant_from_pretrained ? "%s_loaded" : "%s_by_hand",
                                      job->values[TIDE_SET_quant]);
    if (!model->quantisation) model->quantisation = tide_list_new(model->m);
    tide_value shared = {.kind = TIDE_VALUE_LIST, .list = model->quantisation};
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        const tide_class *of = model->instances[modules[i]].of;
        const tide_json *class_name = tide_adapter_class_for(model, job->values[TIDE_SET_quant], of->name);
        if (!class_name) class_name = tide_adapter_class_for(model, besides, of->name);
        if (!class_name || is_left(model, job, modules[i], head)) continue;
        uint32_t made = tide_model_wrap(model, modules[i], class_name->text, &shared, 1);
        if (!made) break;
        const tide_instance *quantised = &model->instances[made];
        for (uint32_t k = 0; k < quantised->of->member_count; k++) {
            tide_value v = quantised->slots[quantised->of->parameter_count + k];
            if (v.kind == TIDE_VALUE_TENSOR) v.tensor->requires_grad = false;
        }
    }
    if (job->quant_experts && !quantise_experts(model, &shared)) return false;
    tide_model_list_parameters(model);
    say_whole_experts(model, job);
    say_whole_layers(model, job);
    return !model->m->has_failed;
}

bool tide_is_params4bit(const tide_model *model, uint32_t parameter) {
    const tide_parameter_row *row = &model->parameters[parameter];
    return tide_text_is(model->instances[row->module].of->name, "Linear4bit") &&
           tide_text_ends(tide_text_of(row->name), TIDE_TEXT(".weight"));
}

bool tide_has_quant_state(const tide_model *model, uint32_t parameter) {
    const tide_parameter_row *row = &model->parameters[parameter];
    return tide_is_params4bit(model, parameter) || (row->tensor->dtype == TIDE_UINT8 && is_parametrized(model, row));
}

typedef struct upcast {
    const tide_model *model;
    uint32_t *parameters;
} upcast;

static void next_parameter(void *user, uint32_t turn, tide_value *arguments) {
    const upcast *u = user;
    const tide_parameter_row *p = &u->model->parameters[u->parameters[turn]];
    u->model->m->module = p->module;
    arguments[0] = tide_of_tensor(tide_retain(p->tensor));
}

void tide_prepare_kbit(tide_model *model) {
    tide_function *function = tide_function_find(model->descriptions, NULL, TIDE_TEXT("upcast"));
    upcast u = {model, TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 1)};
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        model->parameters[i].tensor->requires_grad = false;
        if (!tide_is_params4bit(model, i)) u.parameters[count++] = i;
    }
    if (function) tide_model_loop(model, function, count, next_parameter, &u);
    model->m->module = 0;
    tide_timeline_empty_cache(&model->m->timeline);
}
