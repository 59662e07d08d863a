/* SPDX-License-Identifier: Apache-2.0 */
/* Files that describe a model: config.json, an entry of the catalogue, preprocessor_config.json, a description; and a
 * job file. */
#include "job/readers/readers.h"

#include <string.h>

#include "base/units.h"

enum { JOB_VERSION = 1 };

/* ---- configurations ---- */

const tide_json *tide_config_type(const tide_json *config) {
    static const char *const keys[] = {"model_type", "_class_name", "architecture"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_json_is(tide_json_at(config, keys[i]), TIDE_JSON_STRING)) return tide_json_at(config, keys[i]);
    return tide_json_at(config, "model_type");
}

/* A trainer's file, whose model_type is a class or a kind from another list. */
static bool starts_training(const tide_json *root) {
    static const char *const keys[] = {
        "base_model",      "micro_batch_size", "sequence_len", "cutoff_len",
        "finetuning_type", "tuner_type",       "train_type",   "per_device_train_batch_size"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_json_at(root, keys[i])) return !tide_json_at(root, "architectures");
    return false;
}

static bool is_config(const tide_json *root) {
    if (starts_training(root)) return false;
    return tide_config_type(root) || tide_json_is(tide_json_at(root, "architectures"), TIDE_JSON_ARRAY);
}

/* Nested configurations must be objects. */
static bool config_check(tide_arena *arena, const tide_json *config, const char *place, tide_diagnostics *diags) {
    static const char *const nested[] = {"text_config", "vision_config", "audio_config", "llm_config"};
    bool is_sane = true;
    if (config->kind != TIDE_JSON_OBJECT)
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, place,
                          tide_format(arena, "the configuration is %s; must be an object", tide_json_kind_name(config)),
                          TIDE_GIVE_CONFIG);
    const tide_json *type = tide_json_at(config, "model_type");
    if (type && type->kind != TIDE_JSON_STRING && type->kind != TIDE_JSON_NULL)
        is_sane = tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(arena, "%s/model_type", place),
                             tide_format(arena, "is %s; must be a string", tide_json_kind_name(type)), NULL);
    for (size_t i = 0; i < TIDE_COUNT_OF(nested); i++) {
        const tide_json *part = tide_json_at(config, nested[i]);
        if (part && part->kind != TIDE_JSON_OBJECT && part->kind != TIDE_JSON_NULL)
            is_sane = tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(arena, "%s/%s", place, nested[i]),
                                 tide_format(arena, "is %s; must be an object", tide_json_kind_name(part)), NULL);
    }
    return is_sane;
}

static const char *file_string(const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_STRING) && value->text.length ? value->text.at : NULL;
}

/* Whether an entry lists a part of it in "assumed". */
static bool is_assumed(const tide_json *entry, const char *part) {
    const tide_json *assumed = tide_json_at(entry, "assumed");
    bool is_there = false;
    for (const tide_json *item = tide_json_is(assumed, TIDE_JSON_ARRAY) ? assumed->first : NULL; item;
         item = item->next)
        is_there |= tide_json_is(item, TIDE_JSON_STRING) && tide_text_is(item->text, part);
    return is_there;
}

bool tide_entry_read(tide_inputs *inputs, tide_arena *arena, const tide_json *entry, const char *place,
                     tide_diagnostics *diags) {
    const tide_json *config = tide_json_at(entry, "config"), *count = tide_json_at(entry, "parameters");
    const tide_json *preprocessor = tide_json_at(entry, "preprocessor");
    if (!config)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, tide_format(arena, "%s/config", place), "is absent", NULL);
    if (!config_check(arena, config, tide_format(arena, "%s/config", place), diags)) return false;
    if (preprocessor && preprocessor->kind != TIDE_JSON_OBJECT && preprocessor->kind != TIDE_JSON_NULL)
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(arena, "%s/preprocessor", place),
                          tide_format(arena, "is %s; must be an object", tide_json_kind_name(preprocessor)), NULL);
    inputs->config = tide_json_clone(arena, config);
    inputs->config_name = file_string(entry, "name");
    inputs->title = file_string(entry, "title");
    inputs->source = file_string(entry, "source");
    inputs->published_parameters =
        tide_json_is(count, TIDE_JSON_NUMBER) && count->is_integer && count->integer > 0 ? count->integer : 0;
    inputs->assumes_config = is_assumed(entry, "config");
    inputs->assumes_dtype = is_assumed(entry, "torch_dtype");
    if (tide_json_is(preprocessor, TIDE_JSON_OBJECT) && !inputs->preprocessor)
        inputs->preprocessor = tide_json_clone(arena, preprocessor);
    return true;
}

/* The last component of `_name_or_path`, the file's own name unless it is the usual one, or the model_type. */
static const char *config_name(const tide_reading *r, const tide_json *config) {
    const char *path = file_string(config, "_name_or_path"),
               *type = tide_config_type(config) ? tide_config_type(config)->text.at : NULL;
    if (path) {
        tide_text last = tide_base_name(tide_text_of(path));
        if (last.length > 1) return tide_shown(r->arena, last);
    }
    size_t length = strlen(r->name);
    if (length > 5 && strcmp(r->name + length - 5, ".json") == 0) length -= 5;
    bool is_usual = length == 0 || strncmp(r->name, "config", 6) == 0 || strncmp(r->name, "pasted", 6) == 0;
    if (!is_usual || !type) return tide_text_copy(r->arena, (tide_text){r->name, length});
    return tide_shown(r->arena, tide_text_of(type));
}

static bool has_config(const tide_reading *r) {
    if (!r->inputs->config) return false;
    return !tide_file_refuse(r, TIDE_ERR_CONFLICT,
                             tide_format(r->arena, "is a configuration, and so is %s", r->inputs->config_file),
                             "give one model's config.json");
}

static void read_config(tide_reading *r, tide_json *root) {
    if (has_config(r) || !config_check(r->arena, root, r->place, r->diags)) return;
    r->inputs->config = root;
    r->inputs->config_file = r->name;
    r->inputs->config_text = r->text;
    r->inputs->config_name = r->inputs->title = config_name(r, root);
    r->inputs->source = r->name;
}

const tide_reader tide_config_reader = {.title = "a configuration", .recognises = is_config, .read = read_config};

/* As in models/catalogue. */
static bool is_entry(const tide_json *root) {
    const tide_json *config = tide_json_at(root, "config");
    return config && tide_json_is(tide_json_at(root, "name"), TIDE_JSON_STRING) &&
           (!tide_json_at(root, "version") || is_config(config));
}

static void read_entry(tide_reading *r, tide_json *root) {
    if (has_config(r) || !tide_entry_read(r->inputs, r->arena, root, r->place, r->diags)) return;
    r->inputs->config_file = r->name;
    r->inputs->config_text = r->text;
    if (!r->inputs->config_name) r->inputs->config_name = config_name(r, r->inputs->config);
    if (!r->inputs->source) r->inputs->source = r->name;
    if (!r->inputs->title) r->inputs->title = r->inputs->config_name;
}

const tide_reader tide_entry_reader = {.title = "a model's entry", .recognises = is_entry, .read = read_entry};

/* ---- preprocessors ---- */

static bool is_preprocessor(const tide_json *root) {
    static const char *const keys[] = {"image_processor_type",
                                       "feature_extractor_type",
                                       "crop_size",
                                       "min_pixels",
                                       "max_pixels",
                                       "image_mean",
                                       "do_resize",
                                       "do_normalize",
                                       "feature_size",
                                       "image_seq_length",
                                       "max_image_size",
                                       "max_patches",
                                       "size"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_json_at(root, keys[i])) return true;
    return false;
}

static void read_preprocessor(tide_reading *r, tide_json *root) {
    if (r->inputs->preprocessor)
        tide_file_refuse(r, TIDE_ERR_CONFLICT, "is a second preprocessor configuration", "give one");
    else
        r->inputs->preprocessor = root, r->inputs->preprocessor_text = r->text;
}

const tide_reader tide_preprocessor_reader = {
    .title = "a preprocessor configuration", .recognises = is_preprocessor, .read = read_preprocessor};

static bool is_processor(const tide_json *root) {
    return tide_json_is(tide_json_at(root, "image_processor"), TIDE_JSON_OBJECT);
}

static void read_processor(tide_reading *r, tide_json *root) {
    read_preprocessor(r, tide_json_clone(r->arena, tide_json_at(root, "image_processor")));
}

const tide_reader tide_processor_reader = {
    .title = "a processor configuration", .recognises = is_processor, .read = read_processor};

/* ---- descriptions and jobs ---- */

/* Not a configuration of timm, which also has an "architecture". */
static bool is_description(const tide_json *root) {
    return tide_json_is(tide_json_at(root, "architecture"), TIDE_JSON_STRING) && !tide_json_at(root, "settings") &&
           (tide_json_at(root, "tidemark") || tide_json_is(tide_json_at(root, "modules"), TIDE_JSON_OBJECT));
}

static void read_description(tide_reading *r, tide_json *root) {
    if (r->inputs->description)
        tide_file_refuse(r, TIDE_ERR_CONFLICT, "is a second description of a model", "give one");
    else
        r->inputs->description = root, r->inputs->description_text = r->text;
}

const tide_reader tide_description_reader = {
    .title = "a description of a model", .recognises = is_description, .read = read_description};

/* An answer with its job, as printed by estimate --json or saved by the page: the link includes the files. */
static const tide_json *link_of_answer(const tide_json *root) {
    const tide_json *result = tide_json_at(root, "result"), *link = tide_json_at(result ? result : root, "link");
    return tide_json_is(link, TIDE_JSON_STRING) ? link : NULL;
}

static void read_link(tide_reading *r, tide_text text) {
    tide_link *link = TIDE_NEW(r->arena, tide_link, 1);
    tide_link_read(r->arena, text, link, r->diags);
    for (uint32_t i = 0; i < link->word_count; i++)
        tide_argument_read(r->arguments, link->words[i], TIDE_ORIGIN_FILE, false);
    for (uint32_t i = 0; i < link->file_count; i++) {
        tide_reading within = *r;
        within.is_in_link = true;
        within.name = tide_text_copy(r->arena, link->files[i].name);
        within.text = link->files[i].text;
        tide_file_read(&within);
    }
}

static void read_job(tide_reading *r, tide_json *root) {
    const tide_json *version = tide_json_at(root, "tidemark"), *settings = tide_json_at(root, "settings"),
                    *link = link_of_answer(root);
    if (link && !r->is_in_link)
        read_link(r, link->text);
    else if (!tide_json_is(version, TIDE_JSON_NUMBER) || !version->is_integer || version->integer < 1)
        tide_file_refuse(r, TIDE_ERR_FIELD_TYPE, "has no readable version in \"tidemark\"", "write \"tidemark\": 1");
    else if (version->integer > JOB_VERSION)
        tide_file_refuse(r, TIDE_ERR_UNSUPPORTED, "was made by a newer tidemark", "update tidemark");
    else if (!settings || (settings->kind != TIDE_JSON_OBJECT && settings->kind != TIDE_JSON_ARRAY))
        tide_file_refuse(r, TIDE_ERR_FIELD_TYPE, "has no readable \"settings\"",
                         "write \"settings\": {\"model\": ..., \"batch\": ...}");
    else
        tide_arguments_of_json(r->arguments, settings, TIDE_ORIGIN_FILE);
}

const tide_reader tide_job_reader = {.title = "a job", .marks = "tidemark", .read = read_job};
