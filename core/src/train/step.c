/* The training loop that people write, call by call. */
#include "train/step.h"

#include <string.h>

#include "base/units.h"
#include "lang/embedded_models.h"
#include "memo/micro_batch_memo.h"
#include "train/adapters.h"
#include "train/ema.h"
#include "train/infer.h"
#include "train/main_grads.h"
#include "train/strategy.h"
#include "train/weights.h"

/* ---- descriptions ---- */

typedef struct finder {
    const tide_job *job;
    tide_arena *arena;
    tide_run *run;
    tide_diagnostics *diags;
    bool reads_lazily; /* the given description's functions: when they are first called, not when it is loaded */
} finder;

/* The name of the description that came with the job; it goes before one that is built in. */
static tide_text given_name(const tide_job *job) {
    const tide_json *name = tide_json_at(job->description, "architecture");
    return name && name->kind == TIDE_JSON_STRING ? name->text : TIDE_TEXT("");
}

static tide_source find_source(void *user, tide_text name) {
    const tide_job *job = ((const finder *)user)->job;
    if (job->description && tide_text_equal(name, given_name(job)))
        return (tide_source){.name = given_name(job).at,
                             .text = job->description_text.at,
                             .length = (uint32_t)job->description_text.length,
                             .is_given = !((const finder *)user)->reads_lazily};
    const tide_source *source = tide_architecture_source(name);
    return source ? tide_source_whole(((const finder *)user)->arena, source) : (tide_source){.text = NULL};
}

static bool find_model(void *user, tide_text model_type, tide_text *description, tide_text *class_name) {
    const tide_job *job = ((const finder *)user)->job;
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

/* Whether a configuration has every key of a list. */
static bool has_key(const tide_json *config, const tide_json *key) {
    const tide_json *value = key->kind == TIDE_JSON_STRING ? tide_json_find(config, key->text) : NULL;
    return value && value->kind != TIDE_JSON_NULL;
}

/* Every key, or of those in an array any. */
static bool has_keys(const tide_json *config, const tide_json *keys) {
    for (const tide_json *key = keys ? keys->first : NULL; key; key = key->next) {
        bool is_there = has_key(config, key);
        for (const tide_json *one = key->first; one && !is_there; one = one->next) is_there = has_key(config, one);
        if (!is_there) return false;
    }
    return keys && keys->first;
}

/* Whether the class that architectures[0] names ends in one of the tasks; true where there are none. */
static bool has_task(const tide_json *config, const tide_json *tasks) {
    const tide_json *architectures = tide_json_at(config, "architectures");
    const tide_json *named = architectures && architectures->kind == TIDE_JSON_ARRAY ? architectures->first : NULL;
    for (const tide_json *task = tasks ? tasks->first : NULL; task; task = task->next)
        if (named && named->kind == TIDE_JSON_STRING && named->text.length >= task->text.length &&
            memcmp(named->text.at + named->text.length - task->text.length, task->text.at, task->text.length) == 0)
            return true;
    return !tasks;
}

#define STAND_INS "library/stand_ins" /* read where no description covers a configuration */

/* The first entry of a library's "stand_ins" that fits: it has the keys of "needs" and not all of those of "lacks", and
 * is for one of "tasks". */
static bool find_stand_in(void *user, const tide_json *config, tide_text *description, tide_text *class_name) {
    const finder *f = user;
    if (!tide_description_load(&f->run->descriptions, TIDE_TEXT(STAND_INS))) return false;
    for (const tide_description *d = f->run->descriptions.first; d; d = d->next) {
        const tide_json *list = tide_json_at(d->json, "stand_ins");
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
                "a description makes it exact: see 'How to add a model' in the README");
            return true;
        }
    }
    return false;
}

/* Of a class that no root is named after, the root whose name ends in the same "ForTask". */
static const tide_json *root_of_task(const tide_json *roots, tide_text name) {
    for (size_t i = 0; i + 3 < name.length; i++) {
        if (strncmp(name.at + i, "For", 3) != 0) continue;
        tide_text task = {name.at + i, name.length - i};
        for (const tide_json *root = roots->first; root; root = root->next)
            if (root->key.length > task.length && strcmp(root->key.at + root->key.length - task.length, task.at) == 0)
                return root;
    }
    return roots->first;
}

/* The class that the configuration's architectures[0] names. */
static bool root_class(const tide_job *job, bool is_stand_in, const tide_description *description,
                       tide_text *class_name, tide_diagnostics *diags, tide_arena *arena) {
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
        if (!found || found->kind != TIDE_JSON_STRING)
            return tide_error(
                diags, TIDE_ERR_UNSUPPORTED, "/config.json/architectures/0",
                tide_format(arena, "'%s' is not described; known: %s", named->text.at, roots->first->key.at),
                "use the causal language model, or write a description");
        *class_name = found->text;
        return true;
    }
    if (roots->first->kind != TIDE_JSON_STRING)
        return tide_error(diags, TIDE_ERR_DESCRIPTION, "/roots", "a root is \"ClassOfTransformers\": \"Module\"", NULL);
    *class_name = roots->first->text;
    return true;
}

static bool is_default_setting(const tide_job *job, tide_text name, bool *is_default) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (tide_text_is(name, job->rows[i].name)) {
            *is_default = job->rows[i].origin == TIDE_ORIGIN_DEFAULT;
            return true;
        }
    return false;
}

static const char *find_place(void *user, const tide_json *config, tide_text key, bool *is_default) {
    const finder *f = user;
    const char *name = tide_text_copy(f->arena, key);
    if (is_default_setting(f->job, key, is_default)) return tide_format(f->arena, "/settings/%s", name);
    *is_default = false;
    const tide_json *entry = tide_json_find(config, key);
    if (entry) return tide_job_config_place(f->arena, f->job, entry);
    return tide_format(f->arena, "%s/%s", tide_job_config_place(f->arena, f->job, config), name);
}

static tide_dtype dtype_of(const char *name) {
    tide_dtype dtype;
    return tide_dtype_named(tide_text_of(name), &dtype) ? dtype : TIDE_BF16;
}

/* Settings that are read when the model is there already. */
static bool is_of_step(const char *name) {
    static const char *const names[] = {"batch",           "seq",      "target_seq", "grad_accum", "steps",
                                        "memory_fraction", "allocator"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void set_settings(tide_run *run, const tide_job *job, bool uses_cache) {
    tide_machine *m = &run->machine;
    tide_setting_value *s = TIDE_NEW(m->arena, tide_setting_value, 64);
    uint32_t n = 0;
#define NUMBER(name_, value_)                                                                                          \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = {                                                                                      \
            .kind = TIDE_VALUE_INT,                                                                                    \
            .symbol = tide_symbol_name(m, tide_text_of(name_)),                                                        \
            .integer = (value_)                                                                                        \
        }                                                                                                              \
    }
#define TRUTH(name_, value_)                                                                                           \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = tide_of_bool(value_)                                                                   \
    }
#define WORD(name_, value_)                                                                                            \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(value_) }                               \
    }
    NUMBER("batch", job->batch);
    NUMBER("seq", job->seq);
    NUMBER("target_seq", job->target_seq); /* 0: not set */
    NUMBER("images", job->images);
    NUMBER("image_height", job->image_height);
    NUMBER("image_width", job->image_width);
    NUMBER("video_frames", job->video_frames);
    NUMBER("video_height", job->video_height);
    NUMBER("video_width", job->video_width);
    NUMBER("audio_seconds", job->audio_seconds);
    bool is_training = strcmp(job->mode, "train") == 0;
    TRUTH("training", is_training);
    TRUTH("labels", job->labels && is_training);
    WORD("cache", job->cache);
    NUMBER("cache_length", job->seq + job->decode);
    NUMBER("logits_to_keep", is_training || strcmp(job->cache, "none") == 0 ? 0 : job->logits_to_keep);
    NUMBER("past_length", 0);
    s[n++] = (tide_setting_value){.name = "past_key_values", .value = tide_none()};
    s[n++] = (tide_setting_value){.name = "router_logits", .value = tide_none()};
    WORD("loss_function", job->loss);
    TRUTH("loss_is_fused", false);
    TRUTH("loss_is_read", false); /* by the functions of library/losses.json that know loss_function */
    TRUTH("padding", job->padding);
    TRUTH("packing", job->packing);
    TRUTH("packing_is_read", false); /* by library/attention.json, where a model's position_ids come from it */
    s[n++] = (tide_setting_value){.name = "given_positions", .value = tide_none()};
    TRUTH("use_cache", uses_cache);
    TRUTH("checkpointing", run->model.state.is_checkpointing);
    TRUTH("autocast", job->autocast != NULL);
    WORD("attention", job->attention);
    NUMBER("capability", job->capability);
    NUMBER("device_sms", m->device.sms);
    NUMBER("quant_blocksize", job->quant_blocksize);
    NUMBER("quant_bits", job->quant_bits);
    NUMBER("quant_group_size", job->quant_group_size);
    TRUTH("quant_zero_point", job->quant_zero_point);
    TRUTH("quant_is_float", job->quant_is_float);
    TRUTH("quant_double", job->quant_double);
    s[n++] = (tide_setting_value){.name = "quant_dtype",
                                  .value = {.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype}};
    s[n++] = (tide_setting_value){.name = "quant_compute_dtype",
                                  .value = {.kind = TIDE_VALUE_DTYPE, .dtype = dtype_of(job->quant_compute_dtype)}};
    TRUTH("lora_is_dora", job->adapter.dora);
    TRUTH("lora_has_bias", job->adapter.lora_bias);
    s[n++] = (tide_setting_value){.name = "lora_dropout_p",
                                  .value = {.kind = TIDE_VALUE_FLOAT, .number = job->adapter.dropout}};
    s[n++] = (tide_setting_value){.name = "model_dtype",
                                  .value = {.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype}};
    if (job->preprocessor)
        s[n++] = (tide_setting_value){.name = "preprocessor",
                                      .value = {.kind = TIDE_VALUE_CONFIG, .config = job->preprocessor}};
    else
        s[n++] = (tide_setting_value){.name = "preprocessor", .value = tide_none()};
#undef NUMBER
#undef TRUTH
#undef WORD
    for (uint32_t i = 0; i < n; i++) s[i].is_of_step = is_of_step(s[i].name) || strcmp(s[i].name, "cache_length") == 0;
    run->model.settings = s;
    run->model.setting_count = n;
}

/* Half of the library is of adapters and quantised layers, which few jobs have: reading it would take a twentieth of
 * their time. */
static bool needs(const tide_job *job, tide_text name) {
    if (tide_text_is(name, "library/adapters") || tide_text_is(name, "library/prompts"))
        return strcmp(job->adapter.method, "none") != 0;
    if (tide_text_is(name, "library/quantised")) return strcmp(job->quant, "none") != 0;
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

/* modeling_utils.py, _check_and_adjust_attn_implementation: a class with one kind of attention takes it where none was
 * asked for, and refuses another. */
static bool take_attention(tide_run *run, const tide_job *job, const tide_description *description, tide_arena *arena,
                           tide_diagnostics *diags) {
    const tide_json *only = tide_description_at(description, "attention");
    bool is_default = false;
    if (!only || only->kind != TIDE_JSON_STRING || strcmp(job->attention, only->text.at) == 0) return true;
    is_default_setting(job, TIDE_TEXT("attention"), &is_default);
    const char *text = tide_format(arena, "the model's class in transformers has %s attention alone", only->text.at);
    if (!is_default)
        return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/attention", text,
                          tide_format(arena, "leave it out, or give %s", only->text.at));
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/attention", text, NULL);
    *tide_model_setting(&run->model, "attention") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = only->text};
    return true;
}

static bool make_model(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *type = tide_config_type(job->config);
    tide_text description_name, class_name;
    const tide_json *own_types = tide_json_at(job->description, "model_type");
    bool has_type = type && type->kind == TIDE_JSON_STRING;
    if (job->description && !job->config->first) { /* all sizes are in the description */
        description_name = given_name(job);
        if (!load_library(run, job)) return false;
        tide_description *alone = tide_description_load(&run->descriptions, description_name);
        return alone && root_class(job, false, alone, &class_name, diags, arena) &&
               take_attention(run, job, alone, arena, diags) &&
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
    if (!load_library(run, job)) return false;
    if (!find_model(run->model.user, type->text, &description_name, &class_name) &&
        !find_stand_in(run->model.user, job->config, &description_name, &class_name))
        return tide_error(diags, TIDE_ERR_MODEL_UNKNOWN, "/config.json/model_type",
                          tide_format(arena, "no description covers %s '%s', and its keys are those of no family",
                                      type->key.at, type->text.at),
                          "see 'How to add a model' in the README");
    if (!tide_job_check_config(arena, job, diags)) return false;
    tide_description *description = tide_description_load(&run->descriptions, description_name);
    if (!description || !root_class(job, run->stand_in_of != NULL, description, &class_name, diags, arena))
        return false;
    return take_attention(run, job, description, arena, diags) &&
           tide_model_build(&run->model, description, class_name, job->config);
}

/* ---- overrides that nothing reads ---- */

static bool is_word_part(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether a name stands in a text of the description, outside of quotes. */
static bool holds_word(const tide_json *node, tide_text word) {
    for (const tide_json *child = node->first; child; child = child->next)
        if (holds_word(child, word)) return true;
    if (node->kind != TIDE_JSON_STRING) return false;
    bool is_quoted = false;
    for (const char *at = node->text.at; *at; at++) {
        if (*at == '\'') is_quoted = !is_quoted;
        if (is_quoted || strncmp(at, word.at, word.length) != 0 || is_word_part(at[word.length])) continue;
        if (at == node->text.at || !is_word_part(at[-1])) return true;
    }
    return false;
}

static bool description_holds(const tide_description *d, tide_text word) {
    for (; d; d = d->parent)
        if (holds_word(d->json, word)) return true;
    return false;
}

/* Whether a description reads a key of this object: the one played over it, or over an object that holds it. */
static bool is_read(const tide_run *run, const tide_json *object, tide_text key) {
    const tide_json *below = NULL;
    for (const tide_json *node = object; node; below = node, node = node->parent)
        for (uint32_t i = 0; i < run->model.scope_count; i++) {
            const tide_scope *s = &run->model.scopes[i];
            if (s->config == node && description_holds(s->description, key) &&
                (!below || description_holds(s->description, below->key)))
                return true;
        }
    return false;
}

/* Keys that the loop itself reads. */
static bool is_of_loop(tide_text key) {
    static const char *const keys[] = {"model_type", "_class_name", "architecture", "architectures", "use_cache"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_text_is(key, keys[i])) return true;
    return false;
}

static bool is_one_of(tide_text key, const tide_json *patterns) {
    for (const tide_json *p = patterns ? patterns->first : NULL; p; p = p->next)
        if (p->kind == TIDE_JSON_STRING && tide_text_matches(key, p->text)) return true;
    return false;
}

/* Numbers of a configuration that its stand-in does not read may be sizes of parts that it does not have: the range is
 * that of a library's "unread", but for the keys of its "besides". */
static void check_unread(tide_run *run, const tide_job *job) {
    tide_machine *m = run->model.m;
    const tide_json *unread = NULL;
    for (const tide_description *d = run->descriptions.first; d && !unread; d = d->next)
        unread = tide_json_at(d->json, "unread");
    const tide_json *percent = unread ? tide_json_at(unread, "percent") : NULL,
                    *besides = unread ? tide_json_at(unread, "besides") : NULL;
    const char *names = NULL;
    for (const tide_json *entry = percent ? run->stand_in_of->first : NULL; entry; entry = entry->next) {
        bool is_size = entry->kind == TIDE_JSON_NUMBER && entry->is_integer && entry->integer > 1;
        if (!is_size || is_one_of(entry->key, besides) || is_read(run, run->stand_in_of, entry->key)) continue;
        names = names ? tide_format(m->arena, "%s, %s", names, tide_shown(m->arena, entry->key))
                      : tide_shown(m->arena, entry->key);
    }
    if (!names || percent->integer <= run->stand_in_percent) return;
    run->stand_in_percent = percent->integer;
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, tide_job_config_place(m->arena, job, run->stand_in_of),
                tide_format(m->arena,
                            "what stands in for it does not read %s, which may be sizes of parts that it lacks; its "
                            "peak may differ by %lld %%",
                            names, (long long)percent->integer),
                NULL);
}

/* Warns of an override that the model's descriptions do not read: a misspelt key, or one without memory. */
static void check_override(const tide_run *run, const tide_job *job, const char *name) {
    tide_machine *m = run->model.m;
    const tide_json *above = job->config, *at = job->config;
    tide_text key = {"", 0};
    for (const char *part = name + strlen("overrides"); *part == '.';) { /* the last part that is a key */
        tide_text text = {part + 1, strcspn(part + 1, ".")};
        part += 1 + text.length;
        if (!at || at->kind != TIDE_JSON_OBJECT) break;
        above = at;
        key = (tide_text){tide_text_copy(m->arena, text), text.length};
        at = tide_json_find(at, key);
    }
    if (!key.length || is_of_loop(key)) return;
    if (is_read(run, above, key)) return;
    const char **keys = TIDE_NEW(m->arena, const char *, above->count + 1);
    uint32_t count = 0;
    for (const tide_json *child = above->first; child; child = child->next)
        if (!tide_text_equal(child->key, key)) keys[count++] = child->key.at;
    const char *near = tide_nearest(key, keys, count);
    tide_report(m->diags, TIDE_WARNING, TIDE_ERR_FIELD_UNKNOWN, tide_format(m->arena, "/settings/%s", name),
                "changes nothing: the model's description does not read it",
                near ? tide_format(m->arena, "did you mean %s?", near) : NULL);
}

/* Images given to a model that takes none, or another number of them. */
static void check_images(const tide_run *run, const tide_job *job) {
    static const char *const settings[][2] = {
        {"images", "images"}, {"image_size", "image_height"}, {"video", "video_frames"}, {"audio", "audio_seconds"}};
    for (uint32_t i = 0; i < job->row_count; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(settings); k++)
            if (strcmp(job->rows[i].name, settings[k][0]) == 0 && job->rows[i].origin != TIDE_ORIGIN_DEFAULT &&
                strcmp(job->rows[i].value, "1") != 0 &&
                !description_holds(run->model.scopes[0].description, tide_text_of(settings[k][1])))
                tide_report(run->model.m->diags, TIDE_WARNING, TIDE_ERR_FIELD_UNKNOWN,
                            tide_format(run->model.m->arena, "/settings/%s", settings[k][0]),
                            "changes nothing: the model's description does not read it", NULL);
}

static void check_overrides(const tide_run *run, const tide_job *job) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (strncmp(job->rows[i].name, "overrides.", 10) == 0) check_override(run, job, job->rows[i].name);
}

/* ---- what trains ---- */

/* Each prefix is the beginning of some parameter's name. */
static bool check_prefixes(const tide_run *run, const char *setting, const char **prefixes, uint32_t count) {
    tide_machine *m = run->model.m;
    for (uint32_t i = 0; i < count; i++) {
        bool is_found = false;
        for (uint32_t k = 0; k < run->model.parameter_count && !is_found; k++)
            is_found = tide_is_named(run->model.parameters[k].name, &prefixes[i], 1);
        for (uint32_t k = 1; k < run->model.instance_count && !is_found;
             k++) /* of tied parameters, which have another's name */
            is_found = tide_is_named(run->model.instances[k].path, &prefixes[i], 1);
        if (is_found) continue;
        const char **parts = TIDE_NEW(m->arena, const char *, run->model.part_count);
        for (uint32_t k = 0; k < run->model.part_count; k++) parts[k] = run->model.parts[k];
        const char *near = tide_nearest(tide_text_of(prefixes[i]), parts, run->model.part_count);
        tide_text first = tide_text_of(run->model.parameter_count ? run->model.parameters[0].name : "");
        return tide_error(m->diags, TIDE_ERR_FIELD_RANGE, tide_format(m->arena, "/settings/%s", setting),
                          tide_format(m->arena, "no parameter's name begins with \"%.*s\"",
                                      (int)(strlen(prefixes[i]) < 60 ? strlen(prefixes[i]) : 60), prefixes[i]),
                          near && *near ? tide_format(m->arena, "did you mean %s?", near)
                                        : tide_format(m->arena, "names are such as %.*s",
                                                      (int)(first.length < 80 ? first.length : 80), first.at));
    }
    return true;
}

static void choose_trainable(tide_run *run, const tide_job *job) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *p = &run->model.parameters[i];
        if (tide_is_named(p->name, job->freeze.names, job->freeze.count) ||
            (job->train_only.count && !tide_is_named(p->name, job->train_only.names, job->train_only.count)))
            p->tensor->requires_grad = false;
    }
}

static void count_parameters(tide_run *run) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const tide_parameter_row *p = &run->model.parameters[i];
        int64_t count = tide_model_count(&run->model, p);
        run->parameters += count;
        if (p->tensor->requires_grad) run->trainable += count;
    }
}

/* ---- the batch ---- */

static bool make_batch(tide_run *run, const tide_job *job, tide_batch *b, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    const tide_json *inputs = run->model.instances[run->model.root].of->inputs;
    if (!inputs) inputs = tide_description_at(run->model.scopes[0].description, "inputs");
    m->state.factor = TIDE_FACTOR_INPUT;
    m->op = "inputs";
    for (const tide_json *item = inputs ? inputs->first : NULL; item && b->count < TIDE_INPUT_LIMIT;
         item = item->next) {
        if (item->kind != TIDE_JSON_STRING)
            return tide_error(diags, TIDE_ERR_DESCRIPTION, "/inputs", "an input is an expression in quotes", NULL);
        tide_expr *expr =
            tide_parse_expr(m->arena, item->text, tide_format(m->arena, "/inputs/%s", item->key.at), diags);
        if (!expr) return false;
        tide_value value = tide_model_evaluate(&run->model, expr);
        if (m->has_failed) return false;
        if (value.kind == TIDE_VALUE_NONE) continue;
        b->names[b->count] = item->key.at;
        b->values[b->count++] = value;
    }
    if (job->packing)
        tide_model_evaluate(&run->model, tide_parse_expr(m->arena, TIDE_TEXT("lay_positions()"), "/inputs", diags));
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return true;
}

/* ---- one step ---- */

/* The loss that the model computed, or the mean of its first tensor. Owned by the caller. */
static tide_tensor *loss_of(tide_machine *m, tide_value output) {
    tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        tide_tensor *t = items[i].tensor;
        if (t->shape->dims == 0) return tide_retain(t);
        tide_value arguments[3] = {tide_of_tensor(t), tide_none(), tide_of_bool(false)};
        m->op = "mean";
        tide_value mean = tide_op_find(TIDE_TEXT("mean"))->run(m, arguments);
        return mean.kind == TIDE_VALUE_TENSOR ? mean.tensor : NULL;
    }
    tide_fail(m, TIDE_ERR_DESCRIPTION, "forward() returned no tensor");
    return NULL;
}

typedef struct loop {
    tide_run *run;
    const tide_job *job;
    tide_batch batch;
    tide_optimizer *optimizer;
    tide_scaler scaler;
    tide_main_grads *main_grads; /* NULL: gradients are the weights' own */
    tide_ema *ema;               /* NULL: none */
    tide_value held;
    tide_tensor *loss;
    const tide_strategy *strategy;
    tide_wrapper wrapper;
    tide_micro_batch_memo repeats;
} loop;

static const tide_strategy alone;

/* Owned by the caller. */
static tide_tensor *divided(loop *l) {
    l->run->machine.op = "div";
    return l->job->grad_accum > 1 ? tide_scale(&l->run->machine, l->loss) : tide_retain(l->loss);
}

/* What trains and is in no module that is played: its gradient is there once backward has run. */
static void make_extra_grads(tide_model *model) {
    tide_machine *m = model->m;
    m->op = "AccumulateGrad";
    m->state.factor = TIDE_FACTOR_GRADIENT;
    for (uint32_t i = 0; i < model->extra_count; i++) {
        tide_tensor *t = model->extra[i].tensor;
        if (t->requires_grad && !t->grad) t->grad = tide_empty_like(m, t, t->dtype);
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

static void backward(loop *l) {
    tide_machine *m = &l->run->machine;
    if (l->strategy->backward) {
        l->strategy->backward(&l->wrapper, l->loss);
    } else if (l->strategy != &alone) {
        tide_tensor *loss = divided(l); /* the whole one lives on */
        tide_run_backward(m, loss);
        tide_release(m, loss);
    } else if (l->job->scaler) {
        tide_tensor *scaled = tide_scaler_scale(&l->run->model, &l->scaler, l->loss);
        tide_run_backward(m, scaled);
        tide_release(m, scaled);
    } else {
        tide_run_backward(m, l->loss);
    }
    if (l->strategy == &alone) make_extra_grads(&l->run->model);
}

static bool zeroes_at(const loop *l, const char *where) {
    return l->wrapper.micro == 0 && l->optimizer && !l->main_grads && l->strategy == &alone &&
           strcmp(l->job->zero_grad_at, where) == 0;
}

static void zero_grad(loop *l) {
    tide_zero_grad(l->optimizer, strcmp(l->job->zero_grad, "none") == 0);
}

static void micro_batch(loop *l, unsigned step) {
    tide_run *run = l->run;
    tide_machine *m = &run->machine;
    if (l->strategy->before_forward) l->strategy->before_forward(&l->wrapper);
    if (l->job->autocast) tide_autocast_begin(m, dtype_of(l->job->autocast));
    tide_value output = tide_model_forward(&run->model, l->batch.names, l->batch.values, l->batch.count);
    if (m->has_failed) return;
    m->module = m->statement = 0; /* what follows is the loop's */
    if (l->strategy->after_forward) l->strategy->after_forward(&l->wrapper, &output);
    tide_tensor *loss = loss_of(m, output);
    tide_release_at(m, &l->loss);
    l->loss = loss;
    if (l->job->autocast) tide_autocast_end(m);
    if (l->job->hold_outputs) {
        tide_value_release(m, l->held);
        bool is_apart = run->model.instances[run->model.root].of->loss_is_apart && output.kind == TIDE_VALUE_LIST &&
                        output.list->count > 1;
        l->held = tide_value_retain(is_apart ? output.list->items[1] : output);
    }
    tide_value_release(m, output);
    if (l->strategy == &alone && l->loss) {
        loss = divided(l);
        tide_release(m, l->loss);
        l->loss = loss;
    }
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_FORWARD);
    tide_micro_batch_forward_ends(&l->repeats, &run->model);
    if (!l->loss || m->has_failed) return;
    if (zeroes_at(l, "before_backward")) zero_grad(l);
    backward(l);
    if (l->strategy != &alone) tide_release_at(m, &l->loss); /* del loss */
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
    if (l->strategy->after_backward) l->strategy->after_backward(&l->wrapper);
}

static void update(loop *l, unsigned step) {
    tide_run *run = l->run;
    tide_machine *m = &run->machine;
    m->module = m->statement = 0;
    if (l->strategy->update) {
        l->strategy->update(&l->wrapper);
    } else if (l->main_grads) {
        tide_main_grads_step(l->main_grads, l->job->clips);
    } else if (strcmp(l->job->optimizer, "none") != 0 && run->trainable > 0) {
        if (l->job->scaler && l->job->clips) tide_scaler_unscale(&run->model, &l->scaler);
        if (l->job->clips) tide_clip_grad_norm(l->optimizer);
        if (l->job->scaler) {
            tide_scaler_step(&run->model, &l->scaler, l->optimizer);
            tide_scaler_update(&run->model, &l->scaler);
        } else {
            tide_optimizer_step(l->optimizer);
        }
        if (strcmp(l->job->zero_grad_at, "after_step") == 0) zero_grad(l);
    }
    tide_ema_update(l->ema);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}

/* Played, or taken from one that began alike. What strategies and held outputs keep is not looked at. */
static void next_micro_batch(loop *l, unsigned step) {
    tide_model *model = &l->run->model;
    if (l->strategy != &alone || l->job->hold_outputs || l->run->plays_all || zeroes_at(l, "before_backward")) {
        micro_batch(l, step);
        return;
    }
    uint64_t key = tide_micro_batch_key(&l->repeats, model, &l->scaler, l->loss);
    if (tide_micro_batch_replay(&l->repeats, model, key, step, &l->loss)) {
        l->run->repeated++;
        return;
    }
    tide_micro_batch_begin(&l->repeats, model, key, l->loss);
    micro_batch(l, step);
    tide_micro_batch_end(&l->repeats, model, l->loss);
}

/* After the first micro-batch: whether all of them together stay below what is played. */
static bool is_too_long(const loop *l, uint64_t before) {
    tide_machine *m = &l->run->machine;
    uint64_t each = m->op_count - before, all = each * (uint64_t)l->job->grad_accum * (uint64_t)l->job->steps;
    if (all <= m->op_limit) return false;
    tide_error(m->diags, TIDE_ERR_LIMIT, l->job->grad_accum > 1 ? "/settings/grad_accum" : "/settings/steps",
               tide_format(m->arena,
                           "%lld micro-batches in each of %lld steps are more than tidemark plays (%llu statements of "
                           "the model's description)",
                           (long long)l->job->grad_accum, (long long)l->job->steps, (unsigned long long)m->op_limit),
               "lower grad_accum: each micro-batch from the second on needs the same memory");
    m->has_failed = true;
    return true;
}

static bool play(loop *l) {
    tide_machine *m = &l->run->machine;
    uint64_t before = m->op_count;
    for (unsigned step = 1; step <= (unsigned)l->job->steps && !m->has_failed; step++) {
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD); /* where the step begins */
        for (int64_t i = 0; i < l->job->grad_accum && !m->has_failed; i++) {
            l->wrapper.micro = (uint32_t)i;
            l->wrapper.is_last = i == l->job->grad_accum - 1;
            if (zeroes_at(l, "before_forward")) zero_grad(l);
            next_micro_batch(l, step);
            if (step == 1 && i == 0 && !m->has_failed && is_too_long(l, before)) return false;
        }
        if (m->has_failed) break;
        update(l, step);
        tide_release_at(m, &l->loss); /* del loss */
    }
    return !m->has_failed;
}

static tide_sdpa_choice sdpa_of(const char *name) {
    if (strcmp(name, "flash") == 0) return TIDE_SDPA_FLASH;
    if (strcmp(name, "efficient") == 0) return TIDE_SDPA_EFFICIENT;
    if (strcmp(name, "math") == 0) return TIDE_SDPA_MATH;
    if (strcmp(name, "cudnn") == 0) return TIDE_SDPA_CUDNN;
    return TIDE_SDPA_DEFAULT;
}

/* The order of calls of a job over several GPUs: the wrapper and its optimizer stand before the batch is there. */
static bool wrap(loop *l) {
    tide_run *run = l->run;
    const tide_job *job = l->job;
    l->strategy = tide_strategy_find(job);
    if (!l->strategy) l->strategy = &alone;
    if (tide_option_is(job, TIDE_OPTION_kind, "none")) return true;
    if (l->strategy == &alone)
        return tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, "/settings/parallel.kind",
                          tide_format(run->machine.arena, "%s is not described", job->options[TIDE_OPTION_kind]), NULL);
    l->optimizer = tide_optimizer_new(&run->model, job->optimizer, job->param_groups);
    l->wrapper = (tide_wrapper){&run->model,
                                job,
                                l->optimizer,
                                tide_option_int(job, TIDE_OPTION_dp, 1),
                                tide_option_int(job, TIDE_OPTION_rank, 0),
                                true,
                                0,
                                NULL};
    l->strategy->wrap(&l->wrapper);
    if (l->strategy->other_ranks && !run->machine.has_failed)
        run->other_rank_count = l->strategy->other_ranks(&l->wrapper, run->other_ranks);
    run->machine.state.factor = TIDE_FACTOR_TEMPORARY;
    return !run->machine.has_failed;
}

/* ---- descriptions that are there already ---- */

/* Settings that change what is played, but not what a name of a description means or which function is called first. */
static bool is_of_play(const char *name) {
    static const char *const names[] = {"gpu", "gpu_gib", "optimizer"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return is_of_step(name) || strncmp(name, "parallel.", 9) == 0;
}

/* Whether two jobs have the same settings, but for those that `may_differ`. */
static bool are_alike(const tide_setting_row *rows, uint32_t count, const tide_job *job,
                      bool (*may_differ)(const char *name)) {
    if (count != job->row_count) return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, job->rows[i].name) != 0 || rows[i].origin != job->rows[i].origin ||
            (strcmp(rows[i].value, job->rows[i].value) != 0 && !may_differ(job->rows[i].name)))
            return false;
    return true;
}

/* Takes the descriptions from the shelf, or an empty shelf for new ones. Until they are put back it counts as empty: a
 * run that fails may leave a function half read. */
static void take_descriptions(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags,
                              finder *found) {
    tide_description_cache *shelf = job->description ? NULL : run->shelf;
    if (shelf) shelf->arena.escape = arena->escape;
    if (shelf && shelf->is_filled && are_alike(shelf->rows, shelf->row_count, job, is_of_play)) {
        run->descriptions = shelf->descriptions;
        run->descriptions.diags = diags;
        run->descriptions.user = found;
        shelf->is_filled = false;
        return;
    }
    if (shelf) tide_arena_free(&shelf->arena);
    if (shelf) shelf->row_count = 0, shelf->is_filled = false, shelf->loaded_for = NULL;
    tide_descriptions_init(&run->descriptions, shelf ? &shelf->arena : arena, diags, find_source, found);
}

static void put_descriptions(tide_run *run, const tide_job *job) {
    tide_description_cache *shelf = job->description ? NULL : run->shelf;
    if (!shelf) return;
    shelf->descriptions = run->descriptions;
    shelf->size_names = run->model.size_names;
    if (!shelf->row_count) {
        tide_setting_row *rows = TIDE_NEW(&shelf->arena, tide_setting_row, job->row_count + 1);
        for (uint32_t i = 0; i < job->row_count; i++)
            rows[i] = (tide_setting_row){tide_text_copy(&shelf->arena, tide_text_of(job->rows[i].name)),
                                         tide_text_copy(&shelf->arena, tide_text_of(job->rows[i].value)),
                                         job->rows[i].origin};
        shelf->rows = rows;
        shelf->row_count = job->row_count;
    }
    shelf->is_filled = true;
}

static void prepare(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    tide_machine_init(m, arena, diags);
    m->device = (tide_device){job->capability, job->has_gpu ? job->gpu.sms : 132,
                              job->has_gpu ? job->gpu.threads_per_sm : 2048};
    m->sdpa = sdpa_of(job->sdpa_backend);
    m->state.keeps_workspaces = job->keeps_workspaces;
    finder *found = TIDE_NEW(arena, finder, 1);
    *found = (finder){job, arena, run, diags, false};
    take_descriptions(run, job, arena, diags, found);
    tide_model_init(&run->model, m, &run->descriptions);
    if (run->descriptions.first) run->model.size_names = run->shelf->size_names;
    run->model.find_model = find_model;
    run->model.find_stand_in = find_stand_in;
    run->model.find_place = find_place;
    run->model.user = found;
    run->model.state.plays_all = run->plays_all;
    run->model.state.dtype = dtype_of(job->dtype);
    run->model.state.is_checkpointing = strcmp(job->checkpointing, "none") != 0;
    run->model.state.is_reentrant = strcmp(job->checkpointing, "full_reentrant") == 0;
    const tide_json *cache = tide_json_at(job->config, "use_cache");
    bool uses_cache = job->use_cache < 0 ? !cache || cache->is_true : job->use_cache;
    if (strcmp(job->mode, "train") != 0) run->model.state.is_checkpointing = false;
    if (run->model.state.is_checkpointing) uses_cache = false; /* transformers switches the cache off */
    set_settings(run, job, uses_cache);
    if (job->packing && uses_cache)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/packing",
                    "the model makes a cache, with which transformers takes each row for one text: no mask keeps its "
                    "texts apart",
                    "use_cache=false");
}

tide_description *tide_run_description(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    prepare(run, job, arena, diags);
    ((finder *)run->model.user)->reads_lazily = true;
    return load_library(run, job) ? tide_description_load(&run->descriptions, given_name(job)) : NULL;
}

/* modeling_utils.py, caching_allocator_warmup: one block of the size of the weights, as they will be kept. */
static void warm_up(tide_run *run, const tide_job *job) {
    int64_t bytes = 0;
    if (strcmp(job->load, "warmup") != 0) return;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const tide_tensor *t = run->model.parameters[i].tensor;
        bytes += t->dtype == TIDE_UINT8 ? tide_bytes(t) / 2 : tide_bytes(t); /* two of 4 bits in a byte */
    }
    run->machine.op = "caching_allocator_warmup";
    tide_alloc_and_free(&run->machine, bytes / 2 * 2);
}

/* modeling_utils.py, gradient_checkpointing_enable */
static bool check_checkpointing(const tide_run *run, tide_arena *arena, tide_diagnostics *diags) {
    const tide_model *model = &run->model;
    if (!model->state.is_checkpointing) return true;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].of->is_checkpointed) return true;
    return tide_error(
        diags, TIDE_ERR_CONFLICT, "/settings/checkpointing",
        tide_format(arena, "%s does not support gradient checkpointing", model->instances[model->root].of->name.at),
        "leave it out; in a description of one's own, \"@checkpoint\": true marks the layers");
}

/* Up to the model on the device, before its optimizer and its batch. */
static bool load(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    prepare(run, job, arena, diags);
    tide_machine *m = &run->machine;
    if (!make_model(run, job, arena, diags) || !check_checkpointing(run, arena, diags)) return false;
    check_overrides(run, job);
    check_images(run, job);
    if (run->stand_in_of) check_unread(run, job);
    if (!tide_compare_weights(&run->model, job, run->stand_in_of != NULL)) return false;
    bool is_training = strcmp(job->mode, "train") == 0;
    bool is_quantised = strcmp(job->quant, "none") != 0;
    if (!job->quant_loaded) warm_up(run, job);
    if (is_quantised && !tide_quantise(&run->model, job)) return false;
    if (job->quant_loaded) warm_up(run, job);
    if (!check_prefixes(run, "freeze", job->freeze.names, job->freeze.count) ||
        !check_prefixes(run, "train_only", job->train_only.names, job->train_only.count))
        return false;
    const tide_strategy *strategy = tide_strategy_find(job);
    if (strategy && strategy->load) strategy->load(&run->model, job);
    tide_model_to_device(&run->model);
    choose_trainable(run, job);
    if (is_quantised && job->kbit_prepare && is_training) tide_prepare_kbit(&run->model);
    if (run->model.state.is_checkpointing) tide_model_require_input_grads(&run->model);
    if (strcmp(job->adapter.method, "none") != 0 && !tide_adapt(&run->model, job)) return false;
    count_parameters(run);
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    return !m->has_failed;
}

static bool play_steps(tide_run *run, const tide_job *job, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    bool is_training = strcmp(job->mode, "train") == 0;
    loop l = {.run = run, .job = job};
    if (!wrap(&l) || !make_batch(run, job, &l.batch, diags)) return false;
    if (strcmp(job->quant, "none") != 0 && job->kbit_prepare && is_training)
        tide_model_setting(&run->model, "model_dtype")->dtype = TIDE_FP32; /* self.dtype */
    if (!is_training) return tide_infer(run, job, &l.batch);
    m->module = m->statement = 0;
    if (!l.optimizer) l.optimizer = tide_optimizer_new(&run->model, job->optimizer, job->param_groups);
    if (job->has_main_grads && run->trainable > 0) l.main_grads = tide_main_grads_new(&run->model, l.optimizer);
    l.ema = tide_ema_new(&run->model, job->ema);
    if (job->scaler && !tide_scaler_takes(&run->model, l.optimizer, job->clips)) return false;
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    if (!play(&l)) return false;
    if (job->packing && !tide_model_setting(&run->model, "packing_is_read")->truth)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/packing",
                          "the model's description does not take position_ids", "leave it out");
    bool is_liger = strcmp(job->loss, "liger") == 0,
         is_read = tide_model_setting(&run->model, is_liger ? "loss_is_fused" : "loss_is_read")->truth;
    if (strcmp(job->loss, "default") != 0 && !is_read)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/loss",
                    "changes nothing: the model's description does not read it", NULL);
    return true;
}

bool tide_run_job(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    if (!load(run, job, arena, diags) || !play_steps(run, job, diags)) return false;
    put_descriptions(run, job);
    return true;
}

/* ---- jobs that differ in the step alone ---- */

/* Loads the model in the shelf's arena for this, and keeps it if nothing in it follows a setting of the step. */
static bool load_kept(tide_description_cache *shelf, const tide_job *job, tide_diagnostics *diags) {
    tide_arena *arena = &shelf->loaded;
    tide_run *run = shelf->run = TIDE_NEW(arena, tide_run, 1);
    run->shelf = shelf;
    if (!load(run, job, arena, diags)) return false;
    bool may_keep = !job->description && run->model.step_reads == 0;
    shelf->loaded_for = may_keep ? job : NULL;
    if (may_keep) tide_arena_keep(arena);
    return true;
}

/* Makes the loaded model that of a job which differs from its own in settings of the step. */
static bool take_kept(tide_description_cache *shelf, const tide_job *job, tide_diagnostics *diags) {
    tide_run *run = shelf->run;
    uint32_t events = run->machine.timeline.event_count,
             allocations = run->machine.timeline.allocation_count; /* of the run before */
    tide_arena_return(&shelf->loaded);
    tide_timeline_reserve(&run->machine.timeline, events, allocations);
    tide_setting_value *of_step = run->model.settings;
    finder *found = run->model.user;
    found->job = job;
    found->diags = run->machine.diags = diags;
    run->descriptions = shelf->descriptions; /* more of their functions have been read since */
    run->descriptions.diags = diags;
    run->descriptions.user = found;
    run->model.size_names = shelf->size_names;
    shelf->is_filled = false;
    set_settings(run, job, false);
    for (uint32_t i = 0; i < run->model.setting_count; i++)
        if (run->model.settings[i].is_of_step) of_step[i] = run->model.settings[i];
    run->model.settings = of_step;
    return tide_model_resize(&run->model);
}

tide_run *tide_run_next(tide_description_cache *shelf, const tide_job *job, tide_arena *arena,
                        tide_diagnostics *diags) {
    const tide_job *before = shelf->loaded_for;
    bool is_kept = before && shelf->is_filled && are_alike(before->rows, before->row_count, job, is_of_step);
    if (is_kept) {
        tide_diagnostics unheard;
        tide_diagnostics_init(&unheard, arena);
        shelf->loaded.escape = shelf->arena.escape = arena->escape;
        if (take_kept(shelf, job, &unheard) && play_steps(shelf->run, job, &unheard)) {
            shelf->run->machine.diags = diags;
            put_descriptions(shelf->run, job);
            return shelf->run;
        }
    }
    tide_arena_free(&shelf->loaded);
    shelf->loaded_for = NULL;
    shelf->loaded = *arena;
    tide_arena_init(arena, shelf->loaded.memory, shelf->loaded.escape);
    diags->arena = &shelf->loaded;
    if (!load_kept(shelf, job, diags) || !play_steps(shelf->run, job, diags)) {
        shelf->loaded_for = NULL;
        return NULL;
    }
    put_descriptions(shelf->run, job);
    return shelf->run;
}
