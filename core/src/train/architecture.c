/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the architecture of a job's model: the description that came with it, the one for its model_type, or a
 * stand-in chosen by its keys; and the class in it. */
#include "train/run.h"

#include <string.h>

#include "base/rounding.h"
#include "job/trainers.h"
#include "lang/lang.h"

/* ---- descriptions ---- */

/* The name of the description that came with the job, which takes precedence over built-in ones. */
static tide_text given_name(const tide_job *job) {
    const tide_json *name = tide_json_at(job->description, "architecture");
    return name && name->kind == TIDE_JSON_STRING ? name->text : TIDE_TEXT("");
}

tide_source tide_job_source(void *user, tide_text name) {
    const tide_job *job = ((const tide_finder *)user)->job;
    if (job->description && tide_text_equal(name, given_name(job)))
        return (tide_source){.name = given_name(job).at,
                             .text = job->description_text.at,
                             .length = (uint32_t)job->description_text.length,
                             .is_given = !((const tide_finder *)user)->reads_lazily};
    const tide_source *source = tide_architecture_source(name);
    return source ? tide_source_whole(((const tide_finder *)user)->arena, source) : (tide_source){.text = NULL};
}

static bool find_model(void *user, tide_text model_type, tide_text *description, tide_text *class_name) {
    const tide_job *job = ((const tide_finder *)user)->job;
    const tide_json *given = tide_json_find(tide_json_at(job->description, "model_type"), model_type);
    if (given && given->kind == TIDE_JSON_STRING) {
        *description = given_name(job);
        *class_name = given->text;
        return true;
    }
    const tide_model_type *known = tide_model_type_of(model_type);
    if (!known) return false;
    *description = tide_text_of(known->description);
    *class_name = tide_text_of(known->class_name);
    return true;
}

/* Whether a configuration has a key, in which `*` matches any characters. */
static bool has_key(const tide_json *config, const tide_json *key) {
    for (const tide_json *entry = config->first; entry && key->kind == TIDE_JSON_STRING; entry = entry->next)
        if (entry->kind != TIDE_JSON_NULL && tide_text_matches(entry->key, key->text)) return true;
    return false;
}

/* All keys; of keys in an array, any. */
static bool has_keys(const tide_json *config, const tide_json *keys) {
    for (const tide_json *key = keys ? keys->first : NULL; key; key = key->next) {
        bool is_there = has_key(config, key);
        for (const tide_json *one = key->first; one && !is_there; one = one->next) is_there = has_key(config, one);
        if (!is_there) return false;
    }
    return keys && keys->first;
}

static bool name_ends_in(tide_text name, tide_text ending) {
    return name.length >= ending.length && memcmp(name.at + name.length - ending.length, ending.at, ending.length) == 0;
}

/* Whether the class in architectures[0] ends in one of the tasks; true if no tasks are given. */
static bool has_task(const tide_json *config, const tide_json *tasks) {
    const tide_json *architectures = tide_json_at(config, "architectures");
    const tide_json *named = architectures && architectures->kind == TIDE_JSON_ARRAY ? architectures->first : NULL;
    for (const tide_json *task = tasks ? tasks->first : NULL; task; task = task->next)
        if (named && named->kind == TIDE_JSON_STRING && name_ends_in(named->text, task->text)) return true;
    return !tasks;
}

#define STAND_INS "library/stand_ins" /* read if no description covers a configuration */

/* Whether a stand-in is possible for a configuration: an entry of a library's "unranged" with one of its keys, or its
 * task, excludes it, which is reported. */
static bool can_be_ranged(const tide_finder *f, const tide_json *list, const tide_json *config) {
    for (const tide_json *entry = list ? list->first : NULL; entry; entry = entry->next) {
        const tide_json *keys = tide_json_at(entry, "keys"), *tasks = tide_json_at(entry, "tasks"),
                        *what = tide_json_at(entry, "what");
        bool is_it = tasks && tide_json_at(config, "architectures") && has_task(config, tasks);
        for (const tide_json *key = keys ? keys->first : NULL; key && !is_it; key = key->next)
            is_it = has_key(config, key);
        if (is_it && what)
            return tide_error(f->diags, TIDE_ERR_UNSUPPORTED, tide_job_config_place(f->arena, f->job, config),
                              tide_format(f->arena,
                                          "no description covers this model, which %s: nothing is similar enough",
                                          what->text.at),
                              "describe it (models/README.md), or run the program with `tidemark dry-run`");
    }
    return true;
}

/* Finds the first entry of a library's "stand_ins" that fits: the configuration has the keys of "needs", not all of
 * those of "lacks", and one of "tasks". */
static bool find_stand_in(void *user, const tide_json *config, tide_text *description, tide_text *class_name) {
    const tide_finder *f = user;
    if (!tide_description_load(&f->run->descriptions, TIDE_TEXT(STAND_INS))) return false;
    for (const tide_description *d = f->run->descriptions.first; d; d = d->next) {
        const tide_json *list = tide_json_at(d->json, "stand_ins");
        if (!can_be_ranged(f, tide_json_at(d->json, "unranged"), config)) return false;
        for (const tide_json *entry = list ? list->first : NULL; entry; entry = entry->next) {
            const tide_json *type = tide_json_at(entry, "model_type"), *as = tide_json_at(entry, "as"),
                            *own = tide_config_type(config);
            const tide_json *percent = tide_json_at(entry, "percent"), *named = tide_json_at(entry, "description"),
                            *of = tide_json_at(entry, "class");
            if (!has_keys(config, tide_json_at(entry, "needs")) || has_keys(config, tide_json_at(entry, "lacks")) ||
                !has_task(config, tide_json_at(entry, "tasks")) || !percent || !as ||
                !((named && of) || (type && find_model(user, type->text, description, class_name))))
                continue;
            if (named && of) *description = named->text, *class_name = of->text;
            if (f->run->stand_in_of == config) return true;
            f->run->stand_in_of = config;
            if (percent->integer > f->run->stand_in_percent) f->run->stand_in_percent = percent->integer;
            tide_report(
                f->diags, TIDE_ASSUMPTION, TIDE_OK, tide_job_config_place(f->arena, f->job, own ? own : config),
                tide_format(
                    f->arena,
                    "no description covers '%s': by its keys it was played as %s; its peak may differ by %lld %%",
                    own && own->kind == TIDE_JSON_STRING ? own->text.at : "this configuration", as->text.at,
                    (long long)percent->integer),
                "a description makes it exact (models/README.md)");
            return true;
        }
    }
    return false;
}

/* XModel, but not XLMHeadModel. */
static bool is_without_head(tide_text name) {
    return name_ends_in(name, TIDE_TEXT("Model")) && !name_ends_in(name, TIDE_TEXT("HeadModel")) &&
           !name_ends_in(name, TIDE_TEXT("HeadsModel"));
}

/* For a class without a root of its name, the root with the same ending "ForTask", or "Model". */
static const tide_json *root_of_task(const tide_json *roots, tide_text name) {
    tide_text task = is_without_head(name) ? TIDE_TEXT("Model") : (tide_text){0};
    for (size_t i = 0; i + 3 < name.length && !task.length; i++)
        if (strncmp(name.at + i, "For", 3) == 0) task = (tide_text){name.at + i, name.length - i};
    for (const tide_json *root = roots->first; root && task.length; root = root->next)
        if (root->key.length > task.length && name_ends_in(root->key, task)) return root;
    return roots->first;
}

/* Whether XModel, or XTextModel of a model_type "x_text", is the base model of XForTask and XLMHeadModel among the
 * roots: the module of AutoModel. */
static bool is_base_model(const tide_json *config, const tide_json *roots, tide_text name) {
    const tide_json *type = tide_config_type(config);
    bool is_text = type && type->kind == TIDE_JSON_STRING && tide_text_ends(type->text, TIDE_TEXT("_text"));
    if (!is_without_head(name) || (is_text && !tide_text_ends(name, TIDE_TEXT("TextModel")))) return false;
    size_t length = name.length - strlen(is_text ? "TextModel" : "Model");
    for (const tide_json *root = roots->first; root; root = root->next)
        if (root->key.length > length && memcmp(root->key.at, name.at, length) == 0 &&
            (strncmp(root->key.at + length, "For", 3) == 0 || strncmp(root->key.at + length, "LMHead", 6) == 0))
            return true;
    return false;
}

/* Whether a root is this module: then the description of AutoModel includes a head. */
static bool is_of_root(const tide_json *roots, tide_text module) {
    for (const tide_json *root = roots->first; root; root = root->next)
        if (root->kind == TIDE_JSON_STRING && tide_text_equal(root->text, module)) return true;
    return false;
}

/* transformers, utils/output_capturing.py: the model's output refers to the logits of all routers. */
static bool check_router_logits(tide_run *run, const tide_job *job) {
    const tide_json *keeps = tide_json_at(job->config, "output_router_logits");
    if (!keeps || !keeps->is_true) return true;
    return tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, tide_job_config_place(run->machine.arena, job, keeps),
                      "output_router_logits is described for models with a language modelling head",
                      "write overrides.output_router_logits=false");
}

static const char *roots_named(tide_arena *arena, const tide_json *roots) {
    const char *names = roots->first->key.at;
    for (const tide_json *root = roots->first->next; root; root = root->next)
        names = tide_format(arena, "%s, %s", names, root->key.at);
    return names;
}

/* Finds the root for the class in architectures[0]; class_name is that of AutoModel, or "" if unknown. */
static bool root_class(tide_run *run, const tide_job *job, const tide_description *description, tide_text *class_name) {
    tide_diagnostics *diags = run->machine.diags;
    tide_arena *arena = run->machine.arena;
    bool is_stand_in = run->stand_in_of != NULL;
    const tide_json *roots = tide_description_at(description, "roots"),
                    *architectures = tide_json_at(job->config, "architectures");
    const tide_json *named = architectures && architectures->kind == TIDE_JSON_ARRAY ? architectures->first : NULL;
    if (architectures && architectures->kind != TIDE_JSON_NULL &&
        (architectures->kind != TIDE_JSON_ARRAY || (named && named->kind != TIDE_JSON_STRING)))
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_job_config_place(arena, job, architectures),
                          tide_format(arena, "architectures is %s; must be an array of class names",
                                      tide_json_kind_name(architectures)),
                          "write [\"ClassName\"], or leave it out");
    if (!roots || roots->kind != TIDE_JSON_OBJECT || !roots->first)
        return tide_error(diags, TIDE_ERR_DESCRIPTION, "/model", "the description has no \"roots\"", NULL);
    if (named && named->kind == TIDE_JSON_STRING) {
        const tide_json *found = is_stand_in ? root_of_task(roots, named->text) : tide_json_find(roots, named->text);
        bool is_base = !found && class_name->length && !is_of_root(roots, *class_name) &&
                       is_base_model(job->config, roots, named->text);
        if (job->head == TIDE_head_none && found && tide_text_contains(found->text, TIDE_TEXT("For"))) found = NULL;
        if (is_base || (found && !tide_text_contains(named->text, TIDE_TEXT("LM"))))
            if (!check_router_logits(run, job)) return false;
        if (is_base) return run->is_base_model = true;
        if (!found || found->kind != TIDE_JSON_STRING)
            return tide_error(
                diags, TIDE_ERR_UNSUPPORTED, "/config.json/architectures/0",
                tide_format(arena, "'%s' is not described; of this family these are: %s",
                            tide_shown(arena, named->text), roots_named(arena, roots)),
                tide_format(arena, "write overrides.architectures=[\"%s\"], or a description", roots->first->key.at));
        *class_name = found->text;
        return true;
    }
    if (roots->first->kind != TIDE_JSON_STRING)
        return tide_error(diags, TIDE_ERR_DESCRIPTION, "/roots", "a root is \"ClassOfTransformers\": \"Module\"", NULL);
    *class_name = roots->first->text;
    return true;
}

/* NULL: the job has no such setting. */
static const tide_setting_row *setting_row_of(const tide_job *job, tide_text name) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (tide_text_is(name, job->rows[i].name)) return &job->rows[i];
    return NULL;
}

static const char *find_place(void *user, const tide_json *config, tide_text key, bool *is_default) {
    const tide_finder *f = user;
    const char *name = tide_text_copy(f->arena, key);
    const tide_setting_row *row = setting_row_of(f->job, key);
    if (row) {
        bool is_of_longest = tide_text_is(key, "seq") && tide_job_has_lengths(f->job);
        *is_default = row->origin == TIDE_ORIGIN_DEFAULT && !is_of_longest;
        return tide_format(f->arena, "/settings/%s", name);
    }
    *is_default = false;
    const tide_json *entry = tide_json_find(config, key);
    if (entry) return tide_job_config_place(f->arena, f->job, entry);
    return tide_format(f->arena, "%s/%s", tide_job_config_place(f->arena, f->job, config), name);
}

void tide_set_finder(tide_model *model, tide_finder *finder) {
    model->find_model = find_model;
    model->find_stand_in = find_stand_in;
    model->find_place = find_place;
    model->user = finder;
}

/* ---- the library, and the model ---- */

/* Half of the library is about adapters, quantised layers, trainers and parts of layers that few jobs need, and reading
 * it would take a tenth of the time. core/CMakeLists.txt excludes the same files from a page's first download. */
static bool needs(const tide_job *job, tide_text name) {
    if (tide_text_is(name, "library/adapters") || tide_text_is(name, "library/prompts"))
        return job->adapter != TIDE_adapter_none;
    if (tide_text_is(name, "library/quantised")) return job->quant != TIDE_quant_none;
    if (tide_text_is(name, "library/liger")) return job->use_liger_kernel == TIDE_use_liger_kernel_true_;
    if (tide_text_is(name, "library/llama_factory_v1")) return job->trainer == TIDE_trainer_llama_factory_v1;
    if (tide_text_is(name, "library/trainers")) return tide_job_has_trainer(job);
    if (tide_text_is(name, "library/generation"))
        return tide_trainer_completes(job) || tide_trainer_distils(job) || job->trainer_predict_with_generate;
    if (tide_text_is(name, "library/value_head")) return tide_trainer_has_value_head(job);
    if (tide_text_is(name, "library/rewards")) return tide_trainer_generates(job);
    if (tide_text_is(name, "library/online_dpo")) return tide_trainer_traits_of(job)->pairs_completions;
    if (tide_text_is(name, "library/tensor_parallel"))
        return job->parallel_kind == TIDE_parallel_kind_tp || job->parallel_kind == TIDE_parallel_kind_pp ||
               job->parallel_kind == TIDE_parallel_kind_native || tide_trainer_cuts_sequences(job) ||
               (tide_job_has_deepspeed(job) && job->parallel_tp > 1);
    if (tide_text_is(name, "library/torchtitan"))
        return tide_job_has_torchtitan_experts(job) || tide_job_has_torchtitan_models(job);
    if (tide_text_is(name, "library/expert_parallel"))
        return tide_job_has_auto_plan(job) || tide_job_has_torchtitan_experts(job) ||
               tide_job_has_torchtitan_models(job);
    if (tide_text_is(name, STAND_INS)) return false;
    return true;
}

static bool load_library(tide_run *run, const tide_job *job) {
    for (const char *const *library = tide_libraries; *library; library++) {
        tide_text name = tide_text_of(*library);
        if (needs(job, name) && !tide_description_load(&run->descriptions, name)) return false;
    }
    return true;
}

/* An attention that a description lists; NULL: it does not. */
static const tide_json *attention_in(const tide_json *listed, const char *name) {
    while (listed && !tide_json_is_text(listed, name)) listed = listed->next;
    return listed;
}

/* modeling_utils.py, _check_and_adjust_attn_implementation: classes without sdpa, whose descriptions list what they
 * have, begin with their default and refuse what they lack. Files that say flash attention are read as sdpa, whose
 * kernel takes as much. */
static bool take_attention(tide_run *run, const tide_job *job, const tide_description *description, tide_arena *arena,
                           tide_diagnostics *diags) {
    const tide_json *listed = tide_description_at(description, "attention"), *taken = listed ? listed->first : NULL;
    const char *given = job->values[TIDE_SET_attention];
    if (!taken || attention_in(taken, given)) return true;
    const tide_json *flash = attention_in(taken, "flash_attention_2");
    const tide_setting_row *row = setting_row_of(job, TIDE_TEXT("attention"));
    tide_origin origin = row ? row->origin : TIDE_ORIGIN_DEFAULT;
    if (origin == TIDE_ORIGIN_FILE && flash && !job->padding) {
        taken = flash;
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/attention",
                    "that of the files is played as flash_attention_2: the model's class in transformers has no sdpa",
                    "give attention=flash_attention_2, which a link keeps, or attention=eager");
    } else if (origin != TIDE_ORIGIN_DEFAULT) {
        return tide_error(
            diags, TIDE_ERR_CONFLICT, "/settings/attention",
            tide_format(arena, "for this model only %s%s attention is described", taken->text.at,
                        flash ? " and flash_attention_2" : ""),
            tide_format(arena, "give attention=%s%s", taken->text.at,
                        flash ? " or flash_attention_2" : ": flash attention, if the class supports it, needs less"));
    } else {
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/attention",
                    tide_format(arena, "%s: the model's class in transformers has no sdpa", taken->text.at), NULL);
    }
    *tide_model_setting(&run->model, "attention") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = taken->text};
    return true;
}

tide_description *tide_load_given_description(tide_run *run, const tide_job *job) {
    return load_library(run, job) ? tide_description_load(&run->descriptions, given_name(job)) : NULL;
}

/* Why a framework's dialect has no description of an architecture; NULL: the framework does not have that model. */
static const char *why_not_in_dialect(const char *dialect, tide_text architecture) {
    static const struct {
        const char *dialect, *architectures, *why;
    } rows[] = {
#define TIDE_NOT_IN_DIALECT(dialect, architectures, why) {dialect, architectures, why},
#include "train/undescribed_in_dialect.def"
#undef TIDE_NOT_IN_DIALECT
    };
    for (unsigned i = 0; i < TIDE_COUNT_OF(rows); i++) {
        tide_text rest = tide_text_of(rows[i].architectures), one;
        while (strcmp(rows[i].dialect, dialect) == 0 && tide_piece_next(&rest, '|', &one))
            if (tide_text_equal(one, architecture)) return rows[i].why;
    }
    return NULL;
}

static bool refuse_in_dialect(const tide_job *job, const char *dialect, tide_text architecture, tide_arena *arena,
                              tide_diagnostics *diags) {
    const char *described = "", *why = why_not_in_dialect(dialect, architecture);
    for (uint32_t i = 0; i < tide_engine_root_count; i++)
        if (strcmp(tide_engine_roots[i].engine, dialect) == 0)
            described =
                tide_format(arena, "%s%s%s", described, *described ? ", " : "", tide_engine_roots[i].architecture);
    return tide_error(diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/parallel.kind",
                      tide_format(arena, "%s is not described for %s%s%s", job->values[TIDE_SET_parallel_kind],
                                  architecture.length ? tide_shown(arena, architecture) : "this model", why ? ": " : "",
                                  why ? why : ""),
                      tide_format(arena, "it is for %s; parallel.kind=fsdp2, zero3 or ddp play others", described));
}

/* Builds the model as a framework reimplements it, over the same configuration. */
static bool make_dialect(tide_run *run, const tide_job *job, const char *dialect) {
    tide_diagnostics *diags = run->machine.diags;
    tide_arena *arena = run->machine.arena;
    tide_text architecture = tide_config_architecture(arena, diags, job->config);
    const tide_engine_root *root = tide_engine_root_of(dialect, architecture);
    if (!root) return refuse_in_dialect(job, dialect, architecture, arena, diags);
    if (!load_library(run, job) || !tide_job_check_config(arena, job, diags)) return false;
    tide_description *description = tide_description_load(&run->descriptions, tide_text_of(root->description));
    return description && tide_model_build(&run->model, description, tide_text_of(root->class_name), job->config);
}

bool tide_make_model(tide_run *run, const tide_job *job) {
    tide_arena *arena = run->machine.arena;
    tide_diagnostics *diags = run->machine.diags;
    const tide_json *type = tide_config_type(job->config);
    tide_text description_name, class_name = {"", 0};
    uint32_t errors = diags->error_count;
    const tide_json *own_types = tide_json_at(job->description, "model_type");
    bool has_type = type && type->kind == TIDE_JSON_STRING;
    if (job->description && !job->config->first) { /* the description has all sizes */
        description_name = given_name(job);
        if (!load_library(run, job)) return false;
        tide_description *alone = tide_description_load(&run->descriptions, description_name);
        return alone && root_class(run, job, alone, &class_name) && take_attention(run, job, alone, arena, diags) &&
               tide_model_build(&run->model, alone, class_name, job->config);
    }
    if (job->description && has_type && !tide_json_find(own_types, type->text))
        return tide_error(diags, TIDE_ERR_CONFLICT, "/config.json/model_type",
                          tide_format(arena, "%s is '%s', which the given description '%s' does not cover",
                                      type->key.at, type->text.at, given_name(job).at),
                          "name it in the description's \"model_type\", or leave the description out");
    if (!type || type->kind != TIDE_JSON_STRING)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, "/config.json/model_type",
                          "the configuration has no model_type",
                          "give the config.json of a transformers, timm or diffusers model");
    const char *dialect = tide_job_has_torchtitan_models(job) ? "torchtitan"
                          : run->strategy                     ? run->strategy->dialect
                                                              : NULL;
    if (dialect) return make_dialect(run, job, dialect);
    if (!load_library(run, job)) return false;
    if (!find_model(run->model.user, type->text, &description_name, &class_name) &&
        !find_stand_in(run->model.user, job->config, &description_name, &class_name))
        return diags->error_count > errors
                   ? false
                   : tide_error(diags, TIDE_ERR_MODEL_UNKNOWN, "/config.json/model_type",
                                tide_format(arena,
                                            "no description covers %s '%s', and its keys belong to no known "
                                            "family",
                                            type->key.at, type->text.at),
                                "describe it (models/README.md), or run the program with `tidemark dry-run`");
    if (!tide_job_check_config(arena, job, diags) || !tide_job_check_library(arena, job, diags)) return false;
    tide_description *description = tide_description_load(&run->descriptions, description_name);
    if (!description || !root_class(run, job, description, &class_name)) return false;
    return take_attention(run, job, description, arena, diags) &&
           tide_model_build(&run->model, description, class_name, job->config);
}
