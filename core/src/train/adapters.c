/* SPDX-License-Identifier: Apache-2.0 */
/* peft: which modules get an adapter. The adapters themselves are in models/architectures/library/adapters.json. */
#include "train/adapters.h"

#include <math.h>
#include <string.h>

#include "base/decimal.h"
#include "base/regex.h"
#include "base/units.h"

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

/* ---- which modules ---- */

/* Splits off what comes before the next mark; false at the end. */
static bool next_before(char mark, tide_text *rest, tide_text *piece) {
    if (!rest->length) return false;
    const char *end = memchr(rest->at, mark, rest->length);
    *piece = (tide_text){rest->at, end ? (size_t)(end - rest->at) : rest->length};
    size_t skip = piece->length + (end != NULL);
    *rest = (tide_text){rest->at + skip, rest->length - skip};
    return true;
}

static bool next_name(tide_text *rest, tide_text *name) {
    return next_before(',', rest, name);
}

static bool next_part(tide_text *rest, tide_text *part) {
    return next_before('.', rest, part);
}

static bool is_pattern(const char *targets) {
    return strpbrk(targets, "*^$|()[]+?\\") != NULL;
}

/* tuners_utils.py, check_target_module_exists: a regular expression must match the whole path; a name is the path or
 * its last component. */
static bool is_aimed_at(tide_model *model, const char *setting, const char *targets, tide_text path) {
    tide_text rest = tide_text_of(targets), name;
    if (is_pattern(targets)) {
        tide_match match = tide_regex_covers(rest, path);
        if (match == TIDE_MATCH_WRONG && !model->m->has_failed) {
            model->m->has_failed = true;
            tide_error(model->m->diags, TIDE_ERR_FIELD_TYPE, setting,
                       "is not a supported regular expression, or takes too long",
                       "give names of modules, such as q_proj,v_proj");
        }
        return match == TIDE_MATCH_YES;
    }
    while (next_name(&rest, &name)) {
        if (tide_text_equal(name, path)) return true;
        if (name.length && tide_text_ends(path, name) && path.length > name.length &&
            path.at[path.length - name.length - 1] == '.')
            return true;
    }
    return false;
}

/* tuners_utils.py, check_target_module_exists: the number of a layer is the last one in a path with at least two names
 * before it ("model.layers.3.mlp": 3), below a list with one of these names; empty if there is none. */
static tide_text layer_number(tide_text path, const tide_name_list *lists) {
    tide_text rest = path, part, before = {"", 0}, found = {"", 0};
    for (uint32_t depth = 0; next_part(&rest, &part) && rest.length; depth++, before = part) {
        bool is_number = part.length > 0, is_listed = lists->count == 0;
        for (size_t i = 0; i < part.length; i++) is_number = is_number && part.at[i] >= '0' && part.at[i] <= '9';
        for (uint32_t i = 0; i < lists->count; i++) is_listed = is_listed || tide_text_is(before, lists->names[i]);
        if (is_number && is_listed && depth > 1) found = part;
    }
    return found;
}

/* The targets of a job's adapters, including peft's own choice if the job gives none. */
typedef struct aim {
    const tide_job *job;
    const char *target_modules, *feedforward_modules;
} aim;

static const char TARGETS[] = "/settings/adapter.target_modules";

static bool is_in_layers(const aim *a, tide_text path) {
    tide_text number = layer_number(path, &a->job->adapter_layers_pattern);
    for (uint32_t i = 0; i < a->job->adapter_layers_to_transform.count; i++)
        if (number.length && tide_text_is(number, a->job->adapter_layers_to_transform.names[i])) return true;
    return a->job->adapter_layers_to_transform.count == 0;
}

/* Whether a path is a module to save or inside of one: re.match("(^|.*\.)NAME($|\..*)"). */
static bool is_saved(const aim *a, tide_text path) {
    for (uint32_t i = 0; i < a->job->adapter_modules_to_save.count; i++) {
        tide_text name = tide_text_of(a->job->adapter_modules_to_save.names[i]);
        for (size_t at = 0; at + name.length <= path.length; at++) {
            bool begins = !at || path.at[at - 1] == '.',
                 ends = at + name.length == path.length || path.at[at + name.length] == '.';
            if (begins && ends && memcmp(path.at + at, name.at, name.length) == 0) return true;
        }
    }
    return false;
}

const tide_json *tide_adapter_class_for(const tide_model *model, const char *method, tide_text class_name) {
    for (const tide_description *d = model->descriptions->first; d; d = d->next) {
        const tide_json *found = tide_json_find(tide_json_at(tide_json_at(d->json, "adapters"), method), class_name);
        if (found && found->kind == TIDE_JSON_STRING) return found;
    }
    return NULL;
}

/* The adapter class for a module of this class or of one that it extends (isinstance()); NULL: none is described. */
static const tide_json *adapter_class(const tide_model *model, const char *method, const tide_class *of) {
    enum { DEPTH_LIMIT = 8 };
    for (int depth = 0; of && depth < DEPTH_LIMIT; depth++) {
        const tide_json *found = tide_adapter_class_for(model, method, of->name);
        if (found) return found;
        of = of->base.length ? tide_class_find(model->descriptions, of->description, of->base) : NULL;
    }
    return NULL;
}

uint32_t tide_output_head(tide_model *model) {
    tide_text path = model->instances[model->root].of->output_embeddings;
    return tide_model_find(model, path.length ? path : TIDE_TEXT("lm_head"));
}

/* all-linear: every linear layer except the output head; replacements of nn.Linear count by their names (Linear4bit).
 */
static bool is_linear(const tide_class *of) {
    return tide_text_starts(of->name, TIDE_TEXT("Linear")) || tide_text_is(of->name, "Conv1D") ||
           tide_text_is(of->base, "Linear");
}

static bool is_target(tide_model *model, const aim *a, uint32_t instance, uint32_t head) {
    tide_text path = tide_text_of(model->instances[instance].path);
    if (!path.length || is_saved(a, path)) return false;
    if (*a->job->adapter_exclude_modules &&
        is_aimed_at(model, "/settings/adapter.exclude_modules", a->job->adapter_exclude_modules, path))
        return false;
    if (strcmp(a->target_modules, "all-linear") == 0) {
        if (!is_linear(model->instances[instance].of) || instance == head) return false;
    } else if (!is_aimed_at(model, TARGETS, a->target_modules, path)) {
        return false;
    }
    return is_in_layers(a, path);
}

/* rank_pattern: re.match("(.*\.)?(PATTERN)$") */
static int64_t rank_of(tide_model *model, const aim *a, tide_text path) {
    for (uint32_t i = 0; i < a->job->adapter_rank_pattern.count; i++) {
        const char *equals = strrchr(a->job->adapter_rank_pattern.names[i], '=');
        int64_t rank = 0;
        if (!equals || !tide_text_to_i64(&rank, tide_text_of(equals + 1)) || rank < 1 || rank > 100000) {
            model->m->has_failed = true;
            tide_error(model->m->diags, TIDE_ERR_FIELD_TYPE, "/settings/adapter.rank_pattern",
                       "contains something that is not PATTERN=RANK", "write down_proj=8");
            return a->job->adapter_r;
        }
        const char *pattern =
            tide_format(model->m->arena, "(.*\\.)?(%.*s)", (int)(equals - a->job->adapter_rank_pattern.names[i]),
                        a->job->adapter_rank_pattern.names[i]);
        if (tide_regex_covers(tide_text_of(pattern), path) == TIDE_MATCH_YES) return rank;
    }
    return a->job->adapter_r;
}

/* ---- adapters ---- */

static void freeze_all(tide_model *model) {
    for (uint32_t i = 0; i < model->parameter_count; i++) model->parameters[i].tensor->requires_grad = false;
}

/* Lists every path with its class, for a message when nothing matches the targets. */
static bool refuse_targets(tide_model *model, const char *setting, const char *what, const char *remedy) {
    model->m->has_failed = true;
    return tide_error(model->m->diags, TIDE_ERR_FIELD_RANGE, setting, what, remedy);
}

/* The entry of a library's table for the job's model_type; NULL: there is none. */
static const tide_json *of_model_type(const tide_model *model, const tide_job *job, const char *table) {
    const tide_json *type = tide_json_at(job->config, "model_type"), *found = NULL;
    for (const tide_description *d = model->descriptions->first; d && type && !found; d = d->next)
        found = tide_json_find(tide_json_at(d->json, table), type->text);
    return found;
}

/* peft's default targets for LoraConfig, by model_type. */
static bool choose_lora(tide_model *model, aim *a) {
    const tide_json *names = of_model_type(model, a->job, "lora_targets");
    if (!names || names->kind != TIDE_JSON_STRING)
        return refuse_targets(model, TARGETS, "is not given, and peft names no modules for LoRA of this model_type",
                              "name linear layers, such as adapter.target_modules=q_proj,v_proj");
    a->target_modules = names->text.at;
    return true;
}

/* peft's default targets for IA3, by model_type. */
static bool choose_ia3(tide_model *model, aim *a) {
    const tide_json *pair = of_model_type(model, a->job, "ia3_targets");
    bool is_known = pair && pair->kind == TIDE_JSON_ARRAY && pair->count == 2,
         is_said = tide_job_sets(a->job, TIDE_SET_adapter_feedforward_modules);
    if (!is_known && (!*a->target_modules || !is_said))
        return refuse_targets(
            model, *a->target_modules ? "/settings/adapter.feedforward_modules" : TARGETS,
            "must be given: peft names no modules for IA3 of this model_type",
            "name linear layers, such as target_modules=k_proj,v_proj,down_proj with feedforward_modules=down_proj");
    if (!is_said) a->feedforward_modules = pair->first->next->text.at;
    if (!*a->target_modules) a->target_modules = pair->first->text.at;
    return true;
}

/* ia3/model.py, _check_feedforward: by the end of the path, with or without a dot. */
static bool is_feedforward(const aim *a, tide_text path) {
    tide_text rest = tide_text_of(a->feedforward_modules), name;
    if (tide_text_is(rest, "none")) return false;
    if (is_pattern(rest.at)) return tide_regex_covers(rest, path) == TIDE_MATCH_YES;
    while (next_name(&rest, &name))
        if (name.length && tide_text_ends(path, name)) return true;
    return false;
}

/* The constructor argument of an adapter besides the module: its rank, or for IA3 whether it rescales the input. */
static tide_value argument_of(tide_model *model, const aim *a, tide_text path) {
    if (a->job->adapter == TIDE_adapter_ia3) return tide_of_bool(is_feedforward(a, path));
    if (a->job->adapter == TIDE_adapter_oft) return tide_of_int(a->job->adapter_oft_block_size);
    tide_value rank = tide_of_int(rank_of(model, a, path));
    rank.symbol = tide_symbol_name(model->m, TIDE_TEXT("r"));
    return rank;
}

/* ---- experts whose weights are parameters of a module that is no layer ---- */

static tide_text leaf_of(tide_text path) {
    for (size_t i = path.length; i > 0; i--)
        if (path.at[i - 1] == '.') return (tide_text){path.at + i, path.length - i};
    return path;
}

static bool has_name(tide_text names, tide_text name) {
    tide_text one;
    while (next_name(&names, &one))
        if (tide_text_equal(one, name)) return true;
    return false;
}

static const char *with_name(tide_model *model, const char *names, tide_text name) {
    if (has_name(tide_text_of(names), name)) return names;
    return tide_format(model->m->arena, "%s%s%.*s", names, *names ? "," : "", (int)name.length, name.at);
}

/* transformers_weight_conversion.py, _resolve_string_target_modules: for these models a regular expression is replaced
 * by the last names of the modules and parameters that it matches, and by the names that projections of experts had
 * before they were fused. */
static const char *names_covered(tide_model *model, const aim *a, tide_text projections) {
    const char *names = "";
    uint32_t count, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        tide_text path = tide_text_of(model->instances[modules[i]].path);
        if (path.length && is_aimed_at(model, TARGETS, a->target_modules, path))
            names = with_name(model, names, leaf_of(path));
    }
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++) {
        tide_text path = tide_text_of(model->parameters[i].name), leaf = leaf_of(path), rest = projections, name;
        if (is_aimed_at(model, TARGETS, a->target_modules, path)) names = with_name(model, names, leaf);
        if (tide_text_is(leaf, "weight") || tide_text_is(leaf, "bias")) continue;
        while (next_name(&rest, &name)) {
            const char *was = tide_format(model->m->arena, "%.*s%.*s", (int)(path.length - leaf.length), path.at,
                                          (int)name.length, name.at);
            if (is_aimed_at(model, TARGETS, a->target_modules, tide_text_of(was)))
                names = with_name(model, names, name);
        }
    }
    return names;
}

/* axolotl's find_all_linear_names, LLaMA-Factory's find_all_linear_modules and ms-swift's find_all_linears: the last
 * names of layers whose class is called linear, except for the output head and for exclusions. */
static const char *linear_names(tide_model *model, const tide_job *job) {
    const char *names = "", *left_out = job->adapter_exclude_modules;
    uint32_t count, head = tide_output_head(model), *modules = tide_model_modules(model, &count);
    tide_text last = head ? leaf_of(tide_text_of(model->instances[head].path)) : TIDE_TEXT("");
    for (uint32_t i = 0; i < count; i++) {
        tide_text path = tide_text_of(model->instances[modules[i]].path), name = leaf_of(path);
        if (*left_out && is_aimed_at(model, "/settings/adapter.exclude_modules", left_out, path)) continue;
        const tide_class *of = model->instances[modules[i]].of;
        bool is_called_so = tide_text_contains(of->name, TIDE_TEXT("Linear")) || tide_text_is(of->name, "Conv1D");
        if (is_called_so && !tide_text_equal(name, last)) names = with_name(model, names, name);
    }
    return names;
}

/* The same beside other names: axolotl's lora_target_linear and lora_target_modules. */
static const char *with_linear_names(tide_model *model, const tide_job *job, const char *targets) {
    const char *names = NULL;
    tide_text rest = tide_text_of(targets), name;
    while (tide_piece_next(&rest, ',', &name))
        if (tide_text_is(name, "all-linear-names")) names = linear_names(model, job);
    rest = tide_text_of(targets);
    while (names && tide_piece_next(&rest, ',', &name))
        if (!tide_text_is(name, "all-linear-names")) names = with_name(model, names, name);
    return names ? names : targets;
}

/* all-linear for such a model: last names of linear layers except the output head, and all projections that experts
 * had. */
static const char *names_of_all(tide_model *model, tide_text projections) {
    const char *names = projections.at;
    uint32_t count, head = tide_output_head(model), *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count; i++)
        if (modules[i] != head && is_linear(model->instances[modules[i]].of))
            names = with_name(model, names, leaf_of(tide_text_of(model->instances[modules[i]].path)));
    return names;
}

/* _convert_peft_config_moe, _MOE_TARGET_MODULE_MAPPING: targets that become target_parameters, and which ones, by the
 * position of their names in "fused_experts". */
enum { ROUTER = 1, GATE = 2, UP = 4, DOWN = 8 };

static uint32_t take_experts(tide_model *model, aim *a) {
    const tide_json *names = of_model_type(model, a->job, "fused_experts");
    if (!names || names->kind != TIDE_JSON_STRING || a->job->adapter != TIDE_adapter_lora) return 0;
    if (a->job->experts == TIDE_experts_modules) return 0;
    if (strcmp(a->target_modules, "all-linear") == 0)
        a->target_modules = names_of_all(model, names->text);
    else if (is_pattern(a->target_modules))
        a->target_modules = names_covered(model, a, names->text);
    tide_text targets = tide_text_of(a->target_modules), target;
    const char *rest = "";
    uint32_t taken = 0;
    while (next_name(&targets, &target)) {
        tide_text all = names->text, one;
        uint32_t place = ROUTER, is = 0;
        for (; next_name(&all, &one); place *= 2)
            if (tide_text_equal(one, leaf_of(target))) is = place;
        if (!is) rest = with_name(model, rest, target);
        taken |= is;
    }
    if (taken) a->target_modules = rest;
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
        {(taken & GATE) && !(taken & UP), TARGETS,
         "the gate projection of experts cannot be converted without the one that is fused with it in gate_up_proj"},
        {(taken & UP) && !(taken & GATE), TARGETS,
         "a projection of experts cannot be converted without the gate projection that is fused with it in "
         "gate_up_proj"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].is_asked)
            return refuse_targets(model, refused[i].setting,
                                  tide_format(model->m->arena, "%s; peft refuses this too", refused[i].words), remedy);
    return true;
}

/* Wraps a parameter of a module, or of an existing wrapper, in a ParamWrapper; 0 after an error. */
static uint32_t wrap_parameter(tide_model *model, const aim *a, const tide_parameter_row *p, uint32_t wrapper,
                               bool is_fused) {
    tide_text path = tide_text_of(p->name), name = leaf_of(path);
    const tide_json *class_name = adapter_class(model, "lora_parameter", model->instances[p->module].of);
    if (!class_name || !class_name->text.length) {
        refuse_targets(
            model, TARGETS,
            tide_format(model->m->arena, "targets %s of a module for which no adapter is described", p->name),
            "name linear layers, such as adapter.target_modules=q_proj,k_proj,v_proj,o_proj");
        return 0;
    }
    int64_t rank = rank_of(model, a, path), fused = is_fused && rank == a->job->adapter_r ? 2 : 1;
    double r = (double)(rank * fused), alpha = (double)a->job->adapter_alpha / TIDE_PICO * (double)fused;
    tide_value more[] = {tide_of_int(rank * fused),
                         {.kind = TIDE_VALUE_FLOAT, .number = alpha / (a->job->adapter_rslora ? sqrt(r) : r)},
                         {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(tide_text_copy(model->m->arena, name))},
                         tide_of_bool(wrapper != p->module)};
    more[0].symbol = tide_symbol_name(model->m, TIDE_TEXT("r"));
    uint32_t made = tide_model_wrap(model, wrapper, class_name->text, more, TIDE_COUNT_OF(more));
    if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
    return made;
}

/* tuners_utils.py, _inject_parameters: in module order. */
static bool adapt_parameters(tide_model *model, const aim *a, uint32_t taken) {
    uint32_t wrapper = 0, wrapped = 0;
    uint64_t adapted = 0;
    if (!taken && !a->job->adapter_target_parameters.count) return true;
    if (!may_adapt_parameters(model, a->job, taken)) return false;
    for (uint32_t i = 0; i < model->parameter_count && !model->m->has_failed; i++) {
        const tide_parameter_row *p = &model->parameters[i];
        tide_text path = tide_text_of(p->name);
        bool is_fused = (taken & GATE) && tide_text_ends(path, TIDE_TEXT(".gate_up_proj")),
             is_aimed_at = is_fused || ((taken & DOWN) && tide_text_ends(path, TIDE_TEXT(".down_proj"))) ||
                           ((taken & ROUTER) && tide_text_ends(path, TIDE_TEXT(".gate.weight"))) ||
                           is_parameter_named(a->job, path);
        if (!is_aimed_at) continue;
        wrapper = wrap_parameter(model, a, p, p->module == wrapped ? wrapper : p->module, is_fused);
        wrapped = p->module;
        adapted += (uint64_t)tide_bytes(p->tensor);
    }
    if (!adapted && !model->m->has_failed)
        return refuse_targets(model, "/settings/adapter.target_parameters", "names no parameter of this model",
                              "names are ends of paths, such as mlp.experts.down_proj; in transformers before 5 "
                              "experts are layers");
    tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, TARGETS,
                tide_format(model->m->arena,
                            "targets experts: each forward pass computes their full adapted weights, %s over all "
                            "layers, which are kept for backward without checkpointing",
                            tide_gib(model->m->arena, adapted)),
                "adapter.target_modules=q_proj,k_proj,v_proj,o_proj leaves out the experts; checkpointing=full "
                "keeps one layer of them at a time");
    return !model->m->has_failed;
}

/* tuners_utils.py, _check_lora_target_modules_mamba: what LoRA may not wrap in models of some types. */
static bool is_refused(const tide_model *model, const aim *a, tide_text name) {
    const tide_json *names = of_model_type(model, a->job, "lora_refused");
    return a->job->adapter == TIDE_adapter_lora && names && has_name(names->text, name);
}

static bool add_adapters(tide_model *model, const aim *a, bool is_loaded) {
    uint32_t count, head = tide_output_head(model), aimed_at = 0, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        const tide_class *of = model->instances[modules[i]].of;
        const char *path = model->instances[modules[i]].path;
        if (!is_target(model, a, modules[i], head)) continue;
        if (is_refused(model, a, leaf_of(tide_text_of(path))))
            return refuse_targets(
                model, TARGETS,
                tide_format(model->m->arena, "targets %s, which peft refuses: \"incompatible with Mamba-based models\"",
                            path),
                "leave it out: adapter.exclude_modules=out_proj,conv1d");
        const tide_json *class_name =
            is_loaded
                ? adapter_class(model, tide_format(model->m->arena, "%s_kbit", a->job->values[TIDE_SET_adapter]), of)
                : NULL;
        if (!class_name) class_name = adapter_class(model, a->job->values[TIDE_SET_adapter], of);
        if (!class_name)
            return refuse_targets(model, TARGETS,
                                  tide_format(model->m->arena,
                                              "targets %s, which is a %s: no adapter is described for it", path,
                                              tide_text_copy(model->m->arena, of->name)),
                                  "target linear layers, convolutions and embeddings");
        tide_value argument = argument_of(model, a, tide_text_of(path));
        uint32_t made = tide_model_wrap(model, modules[i], class_name->text, &argument, 1);
        if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
        aimed_at++;
    }
    if (!aimed_at && !model->m->has_failed)
        return refuse_targets(model, TARGETS, "matches no module of this model",
                              "use all-linear, or names of modules in the model");
    return !model->m->has_failed;
}

/* Names in modules_to_save that end the path of no module: PEFT passes over them. */
static void name_unsaved(tide_model *model, const aim *a, const bool *is_found) {
    tide_arena *arena = model->m->arena;
    const char *names = "";
    for (uint32_t k = 0; k < a->job->adapter_modules_to_save.count; k++)
        if (!is_found[k])
            names = tide_format(arena, "%s%s%s", names, *names ? ", " : "",
                                tide_shown(arena, tide_text_of(a->job->adapter_modules_to_save.names[k])));
    if (*names)
        tide_report(model->m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/adapter.modules_to_save",
                    tide_format(arena, "has no effect with %s, which names no module of this model", names),
                    "names are ends of paths, such as lm_head");
}

/* utils/other.py, _set_trainable: by the end of the path, with or without a dot. */
static bool save_modules(tide_model *model, const aim *a) {
    uint32_t count, *modules = tide_model_modules(model, &count);
    bool *is_found = TIDE_NEW(model->m->arena, bool, a->job->adapter_modules_to_save.count + 1);
    for (uint32_t i = 0; i < count && !model->m->has_failed; i++) {
        if (!model->instances[modules[i]].parent) continue;
        bool is_saved_here = false;
        for (uint32_t k = 0; k < a->job->adapter_modules_to_save.count; k++) {
            bool is_named = tide_text_ends(tide_text_of(model->instances[modules[i]].path),
                                           tide_text_of(a->job->adapter_modules_to_save.names[k]));
            is_found[k] |= is_named;
            is_saved_here |= is_named;
        }
        if (is_saved_here) tide_model_wrap(model, modules[i], TIDE_TEXT("ModulesToSaveWrapper"), NULL, 0);
    }
    name_unsaved(model, a, is_found);
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
static void choose_biases(tide_model *model, const aim *a) {
    bool is_all = a->job->adapter_bias == TIDE_adapter_bias_all,
         is_idle = a->job->adapter_bias != TIDE_adapter_bias_none;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        tide_parameter_row *p = &model->parameters[i];
        bool is_bias = tide_text_ends(tide_text_of(p->name), TIDE_TEXT(".bias"));
        bool is_adapted = is_adapter(model, model->instances[p->module].parent);
        if (is_bias && (is_all || (a->job->adapter_bias == TIDE_adapter_bias_lora_only && is_adapted)))
            p->tensor->requires_grad = true, is_idle = false;
        if (tide_is_named(p->name, a->job->adapter_also_train.names, a->job->adapter_also_train.count))
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

bool tide_adapt(tide_model *model, const tide_job *job) {
    const char *targets = job->adapter_target_modules;
    bool is_prompt = tide_job_prompts(job), is_lora = job->adapter == TIDE_adapter_lora;
    bool is_loaded = job->quant_from_pretrained || tide_trainer_is_of_trl(job); /* TRL: is_loaded_in_4bit is set */
    bool has_parameters = job->adapter_target_parameters.count > 0;
    aim a = {job,
             (is_lora || job->adapter == TIDE_adapter_oft) && !*targets && !has_parameters ? "all-linear" : targets,
             job->adapter_feedforward_modules};
    if (is_lora && strcmp(a.target_modules, "default") == 0 && !choose_lora(model, &a)) return false;
    bool is_text = strcmp(a.target_modules, "all-linear") == 0 || is_pattern(a.target_modules);
    a.target_modules = with_linear_names(model, job, a.target_modules);
    if (is_text && (job->adapter_layers_to_transform.count || job->adapter_layers_pattern.count))
        return refuse_targets(model, TARGETS,
                              "is a text, with which peft takes no layers_to_transform or layers_pattern",
                              "name the layers, such as target_modules=q_proj,v_proj");
    freeze_all(model);
    uint32_t experts = take_experts(model, &a);
    if (job->adapter == TIDE_adapter_ia3 && !choose_ia3(model, &a)) return false;
    bool has_layers = (!experts && !has_parameters) || *a.target_modules;
    if (!(is_prompt ? tide_add_prompt(model, job)
                    : (!has_layers || add_adapters(model, &a, is_loaded)) && adapt_parameters(model, &a, experts) &&
                          save_modules(model, &a)))
        return false;
    if (tide_job_casts_adapters(job)) cast_adapters(model);
    tide_model_list_parameters(model);
    choose_biases(model, &a);
    choose_saved(model);
    if (job->adapter_merged) tide_merge_adapters(model);
    return !model->m->has_failed;
}
