/* What a file is, by its content: a configuration, a preprocessor's, a description, a job, or
 * something else that is named. */
#include "job/readers/trainer_config.h"

#include "base/units.h"

#include <string.h>

enum { FILE_LIMIT = 512, JOB_VERSION = 1 };

typedef struct file_reader {
    tide_inputs *given;
    tide_arguments *words;
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place, *name; /* name as shown */
    tide_text text;
    tide_trainer_config *launch;
} file_reader;

static bool file_refuse(const file_reader *r, tide_status status, const char *message, const char *remedy) {
    return tide_error(r->diags, status, r->place, tide_format(r->arena, "%s %s", r->name, message), remedy);
}

/* ---- what else a file may be ---- */

/* An object with both keys (the second may be empty). */
typedef struct file_kind {
    const char *key, *other, *what, *remedy;
} file_kind;

#define GIVE_CONFIG "give the model's config.json"

static const file_kind before_config[] = {
    {"tokenizer_class", "model_max_length", "is a tokenizer configuration", GIVE_CONFIG ", next to it"},
    {"tokenizer_class", "added_tokens_decoder", "is a tokenizer configuration", GIVE_CONFIG ", next to it"},
};

static const file_kind after_config[] = {
    {"_diffusers_version", "", "is a diffusers configuration without \"_class_name\"",
     "give the config.json of the network, as in unet/config.json"},
    {"added_tokens", "model", "is a tokenizer", GIVE_CONFIG ", next to it"},
    {"bos_token", "eos_token", "is a map of special tokens", GIVE_CONFIG ", next to it"},
    {"tokenizer_class", "", "is a tokenizer configuration", GIVE_CONFIG ", next to it"},
    {"chat_template", "", "is a chat template", GIVE_CONFIG ", next to it"},
    {"_from_model_config", "", "is a generation configuration", GIVE_CONFIG ", next to it"},
    {"eos_token_id", "", "is a generation configuration", GIVE_CONFIG ", next to it"},
    {"do_sample", "", "is a generation configuration", GIVE_CONFIG ", next to it"},
    {"processor_class", "", "is a processor configuration without an image processor",
     GIVE_CONFIG " and its preprocessor_config.json"},
    {"dim", "n_layers", "is a params.json of Meta's own format", "give the config.json of the transformers version"},
    {"log_history", "", "is the state of a trainer", GIVE_CONFIG},
    {"traceEvents", "", "is a profiler's trace", "open it alone, or play it with `tidemark replay`"},
    {"device_traces", "", "is a memory snapshot", "open it alone, or play it with `tidemark replay`"},
    {"nbformat", "cells", "is a notebook", GIVE_CONFIG " of the model that it trains"},
    {"lockfileVersion", "", "is a lock file of npm", GIVE_CONFIG},
    {"dependencies", "", "is a package.json", GIVE_CONFIG},
    {"devDependencies", "", "is a package.json", GIVE_CONFIG},
    {"scripts", "version", "is a package.json", GIVE_CONFIG},
    {"compilerOptions", "", "is a TypeScript configuration", GIVE_CONFIG},
    {"$schema", "", "is a JSON schema or a file that follows one", GIVE_CONFIG},
};

static bool file_has(const tide_json *object, const char *key) {
    return tide_json_at(object, key) != NULL;
}

/* Reports and returns true if the object is one of the kinds. */
static bool file_is_other(const file_reader *r, const tide_json *root, const file_kind *kinds, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (file_has(root, kinds[i].key) && (!kinds[i].other[0] || file_has(root, kinds[i].other))) {
            file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, kinds[i].what, kinds[i].remedy);
            return true;
        }
    return false;
}

/* Requests are JSON, which carries text alone: bytes that are none come as U+FFFD. */
#define BYTE "\xef\xbf\xbd"
#define NO_PICKLE                                                                                                      \
    "save training_args.bin as JSON: print(training_args.to_json_string()); of a checkpoint, " GIVE_CONFIG             \
    ", next to it"
#define PICKLE "is a Python pickle; opening it would mean running code", NO_PICKLE
#define ONNX "is an ONNX model", "give the config.json of the PyTorch model that it was made from"

/* Beginnings of what is no JSON. */
static bool file_is_no_json(const file_reader *r) {
    static const struct {
        tide_text magic;
        const char *what, *remedy;
    } kinds[] = {
        {{"GGUF", 4}, "is a GGUF checkpoint", "give the config.json of the original model"},
        {{"PK\x03\x04", 4}, "is a zip archive or a PyTorch checkpoint", NO_PICKLE},
        {{BYTE "\x02", 4}, PICKLE},
        {{BYTE "\x03", 4}, PICKLE},
        {{BYTE "\x04", 4}, PICKLE},
        {{BYTE "\x05", 4}, PICKLE},
        {{"\x08\x03\x12", 3}, ONNX},
        {{"\x08\x04\x12", 3}, ONNX},
        {{"\x08\x06\x12", 3}, ONNX},
        {{"\x08\x07\x12", 3}, ONNX},
        {{"\x08\x08\x12", 3}, ONNX},
        {{"\x08\x09\x12", 3}, ONNX},
        {{"\x08\x0a\x12", 3}, ONNX},
        {{BYTE "HDF", 6}, "is an HDF5 file, as Keras writes weights", GIVE_CONFIG " of the PyTorch version"},
        {{BYTE "NUMPY", 8}, "is a NumPy array", GIVE_CONFIG},
        {{BYTE "PNG", 6}, "is a picture", GIVE_CONFIG},
        {{"%PDF", 4}, "is a PDF", GIVE_CONFIG},
        {{"\x7f"
          "ELF",
          4},
         "is a program",
         GIVE_CONFIG},
        {{"\x1f" BYTE, 4}, "is a gzip archive", "unpack it first"},
        {{BYTE BYTE, 6}, "is UTF-16 text or no text at all", "save it as UTF-8"},
        {{"version https://git-lfs", 23},
         "is a Git LFS pointer, not the file itself",
         "fetch the file with git lfs pull"},
        {{"<!DOCTYPE", 9}, "is a web page", "download the raw file"},
        {{"<!doctype", 9}, "is a web page", "download the raw file"},
        {{"<html", 5}, "is a web page", "download the raw file"},
        {{"import ", 7}, "is Python source", GIVE_CONFIG},
        {{"from ", 5}, "is Python source", GIVE_CONFIG},
    };
    tide_text text = tide_trimmed(r->text);
    if (text.length == 0) {
        file_refuse(r, TIDE_ERR_FILE, "is empty", GIVE_CONFIG);
        return true;
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(kinds); i++)
        if (tide_text_starts(text, kinds[i].magic)) {
            file_refuse(r, TIDE_ERR_FILE, kinds[i].what, kinds[i].remedy);
            return true;
        }
    /* safetensors: eight bytes of length, then a JSON header. */
    if (r->text.length > 9 && r->text.at[8] == '{' && memchr(r->text.at, 0, 8)) {
        file_refuse(r, TIDE_ERR_FILE, "is a safetensors file as a whole",
                    "give its header: the JSON that follows the first eight bytes");
        return true;
    }
    return false;
}

/* ---- what a file may be ---- */

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
        if (file_has(root, keys[i])) return true;
    return false;
}

const tide_json *tide_config_type(const tide_json *config) {
    static const char *const keys[] = {"model_type", "_class_name", "architecture"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_json_is(tide_json_at(config, keys[i]), TIDE_JSON_STRING)) return tide_json_at(config, keys[i]);
    return tide_json_at(config, "model_type");
}

static bool is_config(const tide_json *root) {
    return tide_config_type(root) || tide_json_is(tide_json_at(root, "architectures"), TIDE_JSON_ARRAY);
}

/* Nested configurations must be objects. */
static bool config_check(tide_arena *arena, const tide_json *config, const char *place, tide_diagnostics *diags) {
    static const char *const nested[] = {"text_config", "vision_config", "audio_config", "llm_config"};
    bool is_sane = true;
    if (config->kind != TIDE_JSON_OBJECT)
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, place,
                          tide_format(arena, "the configuration is %s; must be an object", tide_json_kind_name(config)),
                          GIVE_CONFIG);
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

bool tide_entry_read(tide_inputs *given, tide_arena *arena, const tide_json *entry, const char *place,
                     tide_diagnostics *diags) {
    const tide_json *config = tide_json_at(entry, "config"), *count = tide_json_at(entry, "parameters");
    const tide_json *preprocessor = tide_json_at(entry, "preprocessor");
    if (!config)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, tide_format(arena, "%s/config", place), "is absent", NULL);
    if (!config_check(arena, config, tide_format(arena, "%s/config", place), diags)) return false;
    if (preprocessor && preprocessor->kind != TIDE_JSON_OBJECT && preprocessor->kind != TIDE_JSON_NULL)
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(arena, "%s/preprocessor", place),
                          tide_format(arena, "is %s; must be an object", tide_json_kind_name(preprocessor)), NULL);
    given->config = tide_json_clone(arena, config);
    given->config_name = file_string(entry, "name");
    given->title = file_string(entry, "title");
    given->source = file_string(entry, "source");
    given->published_parameters =
        tide_json_is(count, TIDE_JSON_NUMBER) && count->is_integer && count->integer > 0 ? count->integer : 0;
    if (tide_json_is(preprocessor, TIDE_JSON_OBJECT) && !given->preprocessor)
        given->preprocessor = tide_json_clone(arena, preprocessor);
    return true;
}

static tide_text base_name(tide_text path) {
    tide_text piece, last = path;
    while (tide_piece_next(&path, '/', &piece))
        if (piece.length) last = piece;
    return last;
}

/* The last part of `_name_or_path`, the file's own name unless it is the usual one, or the
 * model_type. */
static const char *config_name(const file_reader *r, const tide_json *config) {
    const char *path = file_string(config, "_name_or_path"),
               *type = tide_config_type(config) ? tide_config_type(config)->text.at : NULL;
    if (path) {
        tide_text last = base_name(tide_text_of(path));
        if (last.length > 1) return tide_shown(r->arena, last);
    }
    size_t length = strlen(r->name);
    if (length > 5 && strcmp(r->name + length - 5, ".json") == 0) length -= 5;
    bool is_usual = length == 0 || strncmp(r->name, "config", 6) == 0 || strncmp(r->name, "pasted", 6) == 0;
    if (!is_usual || !type) return tide_text_copy(r->arena, (tide_text){r->name, length});
    return tide_shown(r->arena, tide_text_of(type));
}

static bool has_config(const file_reader *r) {
    if (!r->given->config) return false;
    return !file_refuse(r, TIDE_ERR_CONFLICT,
                        tide_format(r->arena, "is a configuration, and so is %s", r->given->config_file),
                        "give one model's config.json");
}

static void read_config(const file_reader *r, tide_json *root) {
    if (has_config(r) || !config_check(r->arena, root, r->place, r->diags)) return;
    r->given->config = root;
    r->given->config_file = r->name;
    r->given->config_text = r->text;
    r->given->config_name = r->given->title = config_name(r, root);
    r->given->source = r->name;
}

static void read_entry(const file_reader *r, const tide_json *root) {
    if (has_config(r) || !tide_entry_read(r->given, r->arena, root, r->place, r->diags)) return;
    r->given->config_file = r->name;
    r->given->config_text = r->text;
    if (!r->given->config_name) r->given->config_name = config_name(r, r->given->config);
    if (!r->given->source) r->given->source = r->name;
    if (!r->given->title) r->given->title = r->given->config_name;
}

static void read_preprocessor(const file_reader *r, tide_json *root) {
    if (r->given->preprocessor)
        file_refuse(r, TIDE_ERR_CONFLICT, "is a second preprocessor configuration", "give one");
    else
        r->given->preprocessor = root, r->given->preprocessor_text = r->text;
}

static void read_description(const file_reader *r, const tide_json *root) {
    if (r->given->description)
        file_refuse(r, TIDE_ERR_CONFLICT, "is a second description of a model", "give one");
    else {
        r->given->description = root;
        r->given->description_text = r->text;
    }
}

static void read_job(const file_reader *r, const tide_json *root) {
    const tide_json *version = tide_json_at(root, "tidemark"), *settings = tide_json_at(root, "settings");
    if (!tide_json_is(version, TIDE_JSON_NUMBER) || !version->is_integer || version->integer < 1)
        file_refuse(r, TIDE_ERR_FIELD_TYPE, "has no version that can be read in \"tidemark\"", "write \"tidemark\": 1");
    else if (version->integer > JOB_VERSION)
        file_refuse(r, TIDE_ERR_UNSUPPORTED, "was made by a newer tidemark", "update tidemark");
    else if (!settings || (settings->kind != TIDE_JSON_OBJECT && settings->kind != TIDE_JSON_ARRAY))
        file_refuse(r, TIDE_ERR_FIELD_TYPE, "has no \"settings\" that can be read",
                    "write \"settings\": {\"model\": ..., \"batch\": ...}");
    else
        tide_arguments_of_json(r->words, settings, TIDE_ORIGIN_FILE);
}

static void read_object(const file_reader *r, tide_json *root) {
    if (tide_json_is(tide_json_at(root, "architecture"), TIDE_JSON_STRING) &&
        tide_json_is(tide_json_at(root, "modules"), TIDE_JSON_OBJECT)) {
        read_description(r, root);
        return;
    }
    if (tide_is_safetensors(root)) {
        tide_safetensors_read(&r->given->checkpoint, r->arena, root, r->place, r->name, r->diags);
        return;
    }
    if (tide_is_safetensors_index(root)) {
        tide_safetensors_read_index(&r->given->checkpoint, r->arena, root, r->place, r->name, r->diags);
        return;
    }
    if (file_has(root, "tidemark")) {
        read_job(r, root);
        return;
    }
    if (file_has(root, "peft_type")) {
        tide_adapter_read(r->words, root, r->place, r->name);
        return;
    }
    const tide_json *config = tide_json_at(root, "config");
    if (config && tide_json_is(tide_json_at(root, "name"), TIDE_JSON_STRING) &&
        (!file_has(root, "version") || is_config(config))) {
        read_entry(r, root);
        return;
    }
    if (file_is_other(r, root, before_config, TIDE_COUNT_OF(before_config))) return;
    if (is_config(root)) {
        read_config(r, root);
        return;
    }
    const tide_json *nested = tide_json_at(root, "image_processor");
    if (tide_json_is(nested, TIDE_JSON_OBJECT)) {
        read_preprocessor(r, tide_json_clone(r->arena, nested));
        return;
    }
    if (is_preprocessor(root)) {
        read_preprocessor(r, root);
        return;
    }
    tide_trainer_config_file launch = tide_trainer_config_kind_of(root);
    if (launch != TIDE_LAUNCH_NONE) {
        tide_trainer_config_add(r->launch, launch, root, r->name, r->place);
        return;
    }
    if (file_is_other(r, root, after_config, TIDE_COUNT_OF(after_config))) return;
    file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, "is JSON, but no configuration: it has no \"model_type\"", GIVE_CONFIG);
}

void tide_files_read(tide_inputs *given, tide_arguments *words, const tide_file *files, uint32_t count) {
    tide_trainer_config *launch = TIDE_NEW(words->arena, tide_trainer_config, 1);
    *launch = (tide_trainer_config){.words = words, .given = given};
    file_reader r = {.given = given, .words = words, .arena = words->arena, .diags = words->diags, .launch = launch};
    if (count > FILE_LIMIT) {
        tide_error(r.diags, TIDE_ERR_LIMIT, "/files", "more than 512 files",
                   "give config.json and preprocessor_config.json");
        count = FILE_LIMIT;
    }
    for (uint32_t i = 0; i < count; i++) {
        r.place = tide_format(r.arena, "/files/%u", (unsigned)i);
        tide_text name = base_name(files[i].name);
        r.name = name.length ? tide_shown(r.arena, name) : tide_format(r.arena, "file %u", (unsigned)i + 1);
        r.text = files[i].text;
        if (file_is_no_json(&r)) continue;
        tide_diagnostics scratch;
        tide_diagnostics_init(&scratch, r.arena);
        tide_json *root = tide_json_parse(r.arena, r.text, r.place, &scratch);
        if (!root) {
            const tide_diagnostic *d = &scratch.items[0];
            tide_error(r.diags, d->status, d->place, tide_format(r.arena, "%s: %s", r.name, d->message), d->remedy);
        } else if (root->kind != TIDE_JSON_OBJECT) {
            file_refuse(&r, TIDE_ERR_FIELD_TYPE,
                        tide_format(r.arena, "holds %s; must be an object", tide_json_kind_name(root)), GIVE_CONFIG);
        } else {
            read_object(&r, root);
        }
    }
    tide_trainer_config_resolve(launch);
    tide_checkpoint_settle(&given->checkpoint, words->arena, words->diags);
}
