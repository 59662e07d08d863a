/* SPDX-License-Identifier: Apache-2.0 */
/* Which modules peft puts adapters on, and with which rank. */
#include "train/adapter_targets.h"

#include <string.h>

#include "base/decimal.h"
#include "base/regex.h"

/* ---- names ---- */

bool tide_next_name(tide_text *rest, tide_text *name) {
    while (tide_piece_next(rest, ',', name))
        if (name->length) return true;
    return false;
}

tide_text tide_last_name(tide_text path) {
    for (size_t i = path.length; i > 0; i--)
        if (path.at[i - 1] == '.') return (tide_text){path.at + i, path.length - i};
    return path;
}

bool tide_has_name(tide_text names, tide_text name) {
    tide_text one;
    while (tide_next_name(&names, &one))
        if (tide_text_equal(one, name)) return true;
    return false;
}

const char *tide_with_name(tide_model *model, const char *names, tide_text name) {
    if (tide_has_name(tide_text_of(names), name)) return names;
    return tide_format(model->m->arena, "%s%s%.*s", names, *names ? "," : "", (int)name.length, name.at);
}

bool tide_refuse_targets(tide_model *model, const char *setting, const char *what, const char *remedy) {
    model->m->has_failed = true;
    return tide_error(model->m->diags, TIDE_ERR_FIELD_RANGE, setting, what, remedy);
}

const tide_json *tide_table_of_type(const tide_model *model, const tide_job *job, const char *table) {
    const tide_json *type = tide_json_at(job->config, "model_type"), *found = NULL;
    for (const tide_description *d = model->descriptions->first; d && type && !found; d = d->next)
        found = tide_json_find(tide_json_at(d->json, table), type->text);
    return found;
}

/* ---- one module ---- */

bool tide_is_pattern(const char *targets) {
    return strpbrk(targets, "*^$|()[]+?\\") != NULL;
}

/* tuners_utils.py, check_target_module_exists: a regular expression must match the whole path; a name is the path or
 * its last component. */
bool tide_is_aimed_at(tide_model *model, const char *setting, const char *targets, tide_text path) {
    tide_text rest = tide_text_of(targets), name;
    if (tide_is_pattern(targets)) {
        tide_match match = tide_regex_covers(rest, path);
        if (match == TIDE_MATCH_WRONG && !model->m->has_failed) {
            model->m->has_failed = true;
            tide_error(model->m->diags, TIDE_ERR_FIELD_TYPE, setting,
                       "is not a supported regular expression, or takes too long",
                       "give names of modules, such as q_proj,v_proj");
        }
        return match == TIDE_MATCH_YES;
    }
    while (tide_next_name(&rest, &name)) {
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
    for (uint32_t depth = 0; tide_piece_next(&rest, '.', &part) && rest.length; depth++, before = part) {
        bool is_number = part.length > 0, is_listed = lists->count == 0;
        for (size_t i = 0; i < part.length; i++) is_number = is_number && part.at[i] >= '0' && part.at[i] <= '9';
        for (uint32_t i = 0; i < lists->count; i++) is_listed = is_listed || tide_text_is(before, lists->names[i]);
        if (is_number && is_listed && depth > 1) found = part;
    }
    return found;
}

static bool is_in_layers(const tide_targets *t, tide_text path) {
    tide_text number = layer_number(path, &t->job->adapter_layers_pattern);
    for (uint32_t i = 0; i < t->job->adapter_layers_to_transform.count; i++)
        if (number.length && tide_text_is(number, t->job->adapter_layers_to_transform.names[i])) return true;
    return t->job->adapter_layers_to_transform.count == 0;
}

/* Whether a path is a module to save or inside of one: re.match("(^|.*\.)NAME($|\..*)"). */
static bool is_saved(const tide_targets *t, tide_text path) {
    for (uint32_t i = 0; i < t->job->adapter_modules_to_save.count; i++) {
        tide_text name = tide_text_of(t->job->adapter_modules_to_save.names[i]);
        for (size_t at = 0; at + name.length <= path.length; at++) {
            bool begins = !at || path.at[at - 1] == '.',
                 ends = at + name.length == path.length || path.at[at + name.length] == '.';
            if (begins && ends && memcmp(path.at + at, name.at, name.length) == 0) return true;
        }
    }
    return false;
}

uint32_t tide_output_head(tide_model *model) {
    tide_text path = model->instances[model->root].of->output_embeddings;
    return tide_model_find(model, path.length ? path : TIDE_TEXT("lm_head"));
}

/* all-linear: every linear layer except the output head; replacements of nn.Linear count by their names (Linear4bit).
 */
bool tide_is_linear_layer(const tide_class *of) {
    return tide_text_starts(of->name, TIDE_TEXT("Linear")) || tide_text_is(of->name, "Conv1D") ||
           tide_text_is(of->base, "Linear");
}

bool tide_is_target(tide_model *model, const tide_targets *t, uint32_t instance, uint32_t head) {
    tide_text path = tide_text_of(model->instances[instance].path);
    if (!path.length || is_saved(t, path)) return false;
    if (*t->job->adapter_exclude_modules &&
        tide_is_aimed_at(model, "/settings/adapter.exclude_modules", t->job->adapter_exclude_modules, path))
        return false;
    if (strcmp(t->modules, "all-linear") == 0) {
        if (!tide_is_linear_layer(model->instances[instance].of) || instance == head) return false;
    } else if (!tide_is_aimed_at(model, TIDE_TARGET_MODULES, t->modules, path)) {
        return false;
    }
    return is_in_layers(t, path);
}

/* rank_pattern: re.match("(.*\.)?(PATTERN)$") */
int64_t tide_adapter_rank(tide_model *model, const tide_targets *t, tide_text path) {
    for (uint32_t i = 0; i < t->job->adapter_rank_pattern.count; i++) {
        const char *equals = strrchr(t->job->adapter_rank_pattern.names[i], '=');
        int64_t rank = 0;
        if (!equals || !tide_text_to_i64(&rank, tide_text_of(equals + 1)) || rank < 1 || rank > 100000) {
            model->m->has_failed = true;
            tide_error(model->m->diags, TIDE_ERR_FIELD_TYPE, "/settings/adapter.rank_pattern",
                       "contains something that is not PATTERN=RANK", "write down_proj=8");
            return t->job->adapter_r;
        }
        const char *pattern =
            tide_format(model->m->arena, "(.*\\.)?(%.*s)", (int)(equals - t->job->adapter_rank_pattern.names[i]),
                        t->job->adapter_rank_pattern.names[i]);
        if (tide_regex_covers(tide_text_of(pattern), path) == TIDE_MATCH_YES) return rank;
    }
    return t->job->adapter_r;
}

/* ---- defaults ---- */

/* peft's default targets for LoraConfig, by model_type. */
static bool choose_lora(tide_model *model, tide_targets *t) {
    const tide_json *names = tide_table_of_type(model, t->job, "lora_targets");
    if (!names || names->kind != TIDE_JSON_STRING)
        return tide_refuse_targets(model, TIDE_TARGET_MODULES,
                                   "is not given, and peft names no modules for LoRA of this model_type",
                                   "name linear layers, such as adapter.target_modules=q_proj,v_proj");
    t->modules = names->text.at;
    return true;
}

/* peft's default targets for IA3, by model_type. */
static bool choose_ia3(tide_model *model, tide_targets *t) {
    const tide_json *pair = tide_table_of_type(model, t->job, "ia3_targets");
    bool is_known = pair && pair->kind == TIDE_JSON_ARRAY && pair->count == 2,
         is_said = tide_job_sets(t->job, TIDE_SET_adapter_feedforward_modules);
    if (!is_known && (!*t->modules || !is_said))
        return tide_refuse_targets(
            model, *t->modules ? "/settings/adapter.feedforward_modules" : TIDE_TARGET_MODULES,
            "must be given: peft names no modules for IA3 of this model_type",
            "name linear layers, such as target_modules=k_proj,v_proj,down_proj with feedforward_modules=down_proj");
    if (!is_said) t->feedforward = pair->first->next->text.at;
    if (!*t->modules) t->modules = pair->first->text.at;
    return true;
}

/* axolotl's find_all_linear_names, LLaMA-Factory's find_all_linear_modules and ms-swift's find_all_linears: the last
 * names of layers whose class is called linear, except for the output head and for exclusions. */
static const char *linear_names(tide_model *model, const tide_job *job) {
    const char *names = "", *left_out = job->adapter_exclude_modules;
    uint32_t count, head = tide_output_head(model), *modules = tide_model_modules(model, &count);
    tide_text last = head ? tide_last_name(tide_text_of(model->instances[head].path)) : TIDE_TEXT("");
    for (uint32_t i = 0; i < count; i++) {
        tide_text path = tide_text_of(model->instances[modules[i]].path), name = tide_last_name(path);
        if (*left_out && tide_is_aimed_at(model, "/settings/adapter.exclude_modules", left_out, path)) continue;
        const tide_class *of = model->instances[modules[i]].of;
        bool is_called_so = tide_text_contains(of->name, TIDE_TEXT("Linear")) || tide_text_is(of->name, "Conv1D");
        if (is_called_so && !tide_text_equal(name, last)) names = tide_with_name(model, names, name);
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
        if (!tide_text_is(name, "all-linear-names")) names = tide_with_name(model, names, name);
    return names ? names : targets;
}

/* megatron/bridge/peft/lora.py, LoRA.target_modules */
#define BRIDGE_TARGETS "linear_qkv,linear_proj,linear_fc1,linear_fc2"

bool tide_choose_targets(tide_model *model, const tide_job *job, tide_targets *t) {
    const char *modules = job->adapter_target_modules;
    bool is_lora = job->adapter == TIDE_adapter_lora,
         is_all = (is_lora || job->adapter == TIDE_adapter_oft) && !*modules && !job->adapter_target_parameters.count;
    *t = (tide_targets){job, is_all ? "all-linear" : modules, job->adapter_feedforward_modules};
    if (strcmp(t->modules, "all-linear") == 0 && job->parallel_kind == TIDE_parallel_kind_megatron)
        t->modules = BRIDGE_TARGETS;
    if (is_lora && strcmp(t->modules, "default") == 0 && !choose_lora(model, t)) return false;
    if (job->adapter == TIDE_adapter_ia3 && !choose_ia3(model, t)) return false;
    bool is_text = strcmp(t->modules, "all-linear") == 0 || tide_is_pattern(t->modules);
    t->modules = with_linear_names(model, job, t->modules);
    if (is_text && (job->adapter_layers_to_transform.count || job->adapter_layers_pattern.count))
        return tide_refuse_targets(model, TIDE_TARGET_MODULES,
                                   "is a text, with which peft takes no layers_to_transform or layers_pattern",
                                   "name the layers, such as target_modules=q_proj,v_proj");
    return true;
}

/* ---- the adapter of a module ---- */

const tide_json *tide_adapter_class_for(const tide_model *model, const char *method, tide_text class_name) {
    for (const tide_description *d = model->descriptions->first; d; d = d->next) {
        const tide_json *found = tide_json_find(tide_json_at(tide_json_at(d->json, "adapters"), method), class_name);
        if (found && found->kind == TIDE_JSON_STRING) return found;
    }
    return NULL;
}

/* The adapter class for a module of this class or of one that it extends (isinstance()); NULL: none is described. */
const tide_json *tide_adapter_class(const tide_model *model, const char *method, const tide_class *of) {
    enum { DEPTH_LIMIT = 8 };
    for (int depth = 0; of && depth < DEPTH_LIMIT; depth++) {
        const tide_json *found = tide_adapter_class_for(model, method, of->name);
        if (found) return found;
        of = of->base.length ? tide_class_find(model->descriptions, of->description, of->base) : NULL;
    }
    return NULL;
}

/* ia3/model.py, _check_feedforward: by the end of the path, with or without a dot. */
static bool is_feedforward(const tide_targets *t, tide_text path) {
    tide_text rest = tide_text_of(t->feedforward), name;
    if (tide_text_is(rest, "none")) return false;
    if (tide_is_pattern(rest.at)) return tide_regex_covers(rest, path) == TIDE_MATCH_YES;
    while (tide_next_name(&rest, &name))
        if (name.length && tide_text_ends(path, name)) return true;
    return false;
}

/* The constructor argument of an adapter besides the module: its rank, or for IA3 whether it rescales the input. */
tide_value tide_adapter_argument(tide_model *model, const tide_targets *t, tide_text path) {
    if (t->job->adapter == TIDE_adapter_ia3) return tide_of_bool(is_feedforward(t, path));
    if (t->job->adapter == TIDE_adapter_oft) return tide_of_int(t->job->adapter_oft_block_size);
    tide_value rank = tide_of_int(tide_adapter_rank(model, t, path));
    rank.symbol = tide_symbol_name(model->m, TIDE_TEXT("r"));
    return rank;
}
