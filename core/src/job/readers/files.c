/* SPDX-License-Identifier: Apache-2.0 */
/* Reads each file with the first reader in readers.def that recognises it; other files are reported. */
#include <string.h>

#include "base/units.h"
#include "job/job.h"
#include "job/readers/launch_command.h"
#include "job/readers/requirements.h"
#include "job/readers/server_command.h"
#include "job/readers/toml.h"

enum { GIVEN_FILE_LIMIT = 512, CONFIGURATION_LIMIT = 4 << 20 };

#define TIDE_READER(name) extern const tide_reader tide_##name##_reader;
#define TIDE_UNREAD(key, other, what, remedy)
#include "job/readers/readers.def"
#undef TIDE_UNREAD
#undef TIDE_READER

static const struct {
    const tide_reader *reader; /* NULL: reported and not read */
    const char *key, *other, *what, *remedy;
} rows[] = {
#define TIDE_READER(name) {.reader = &tide_##name##_reader},
#define TIDE_UNREAD(key_, other_, what_, remedy_) {.key = key_, .other = other_, .what = what_, .remedy = remedy_},
#include "job/readers/readers.def"
#undef TIDE_UNREAD
#undef TIDE_READER
};

/* Requests are JSON, which only contains text: invalid bytes arrive as U+FFFD. */
#define BYTE "\xef\xbf\xbd"
#define NO_PICKLE                                                                                                      \
    "save training_args.bin as JSON: print(training_args.to_json_string()); of a checkpoint, " TIDE_GIVE_CONFIG        \
    ", next to it"
#define PICKLE "is a Python pickle; opening it would mean running code", NO_PICKLE
#define ONNX "is an ONNX model", "give the config.json of the PyTorch model that it was made from"

static bool is_toml(const tide_reading *r) {
    enum { SUFFIX = sizeof ".toml" - 1 };
    size_t length = strlen(r->name);
    return length > SUFFIX && strcmp(r->name + length - SUFFIX, ".toml") == 0;
}

/* Recognises files that are not JSON by their beginnings. */
static bool is_no_json(const tide_reading *r) {
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
        {{BYTE "HDF", 6}, "is an HDF5 file, as Keras writes weights", TIDE_GIVE_CONFIG " of the PyTorch version"},
        {{BYTE "NUMPY", 8}, "is a NumPy array", TIDE_GIVE_CONFIG},
        {{BYTE "PNG", 6}, "is a picture", TIDE_GIVE_CONFIG},
        {{"%PDF", 4}, "is a PDF", TIDE_GIVE_CONFIG},
        {{"\x7f"
          "ELF",
          4},
         "is a program",
         TIDE_GIVE_CONFIG},
        {{"\x1f" BYTE, 4}, "is a gzip archive", "unpack it first"},
        {{BYTE BYTE, 6}, "is UTF-16 text or not text at all", "save it as UTF-8"},
        {{"version https://git-lfs", 23},
         "is a Git LFS pointer, not the file itself",
         "fetch the file with git lfs pull"},
        {{"<!DOCTYPE", 9}, "is a web page", "download the raw file"},
        {{"<!doctype", 9}, "is a web page", "download the raw file"},
        {{"<html", 5}, "is a web page", "download the raw file"},
        {{"import ", 7}, "is Python source", TIDE_GIVE_CONFIG},
        {{"from ", 5}, "is Python source", TIDE_GIVE_CONFIG},
    };
    tide_text text = tide_trimmed(r->text);
    if (text.length == 0) {
        tide_file_refuse(r, TIDE_ERR_FILE, "is empty", TIDE_GIVE_CONFIG);
        return true;
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(kinds); i++)
        if (tide_text_starts(text, kinds[i].magic)) {
            tide_file_refuse(r, TIDE_ERR_FILE, kinds[i].what, kinds[i].remedy);
            return true;
        }
    /* safetensors: eight bytes of length, then a JSON header. */
    if (r->text.length > 9 && r->text.at[8] == '{' && memchr(r->text.at, 0, 8)) {
        tide_file_refuse(r, TIDE_ERR_FILE, "is a complete safetensors file",
                         "give its header: the JSON that follows the first eight bytes");
        return true;
    }
    return false;
}

/* Headers of checkpoints are longer than any configuration. */
static bool is_over_limit(tide_reading *r) {
    static const char headers[] = "*.safetensors|*.safetensors.index.json|*.gguf";
    if (r->text.length <= CONFIGURATION_LIMIT || tide_text_matches_one(tide_text_of(r->name), headers)) return false;
    tide_file_refuse(r, TIDE_ERR_FILE, "is larger than 4 MiB, more than any configuration", TIDE_GIVE_CONFIG);
    return true;
}

/* ---- JSON ---- */

static bool has_mark(const tide_json *root, const char *marks) {
    tide_text rest = tide_text_of(marks), mark;
    while (marks && tide_piece_next(&rest, '|', &mark))
        if (tide_json_find(root, mark)) return true;
    return false;
}

static void read_object(tide_reading *r, tide_json *root) {
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        const tide_reader *reader = rows[i].reader;
        bool is_it = reader ? has_mark(root, reader->marks) || (reader->recognises && reader->recognises(root))
                            : tide_json_at(root, rows[i].key) && (!*rows[i].other || tide_json_at(root, rows[i].other));
        if (!is_it) continue;
        if (!reader)
            tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, rows[i].what, rows[i].remedy);
        else if (reader->read)
            reader->read(r, root);
        else
            tide_claims_add(r->claims, reader, root, r->name, r->place);
        return;
    }
    tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN,
                     "is neither a model's configuration (it has no \"model_type\") nor that of a known program",
                     TIDE_GIVE_CONFIG);
}

void tide_file_read(tide_reading *r) {
    tide_diagnostics scratch;
    if (is_no_json(r) || is_over_limit(r) ||
        (!is_toml(r) && (tide_server_read_script(r) || tide_launch_read_script(r))) || tide_pins_read(r))
        return;
    if (is_toml(r)) {
        tide_json *table = tide_toml_parse(r->arena, r->text, r->place, r->diags);
        if (table) read_object(r, table);
        return;
    }
    if (tide_requirements_read(r)) return;
    tide_diagnostics_init(&scratch, r->arena);
    tide_json *root = tide_json_parse(r->arena, r->text, r->place, &scratch);
    bool is_script = tide_text_starts(tide_trimmed(r->text), TIDE_TEXT("#!")) ||
                     tide_text_ends(tide_text_of(r->name), TIDE_TEXT(".sh")) || tide_is_command(r->arena, r->text);
    if (!root && is_script) {
        tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, "starts no known program",
                         "give the files that the program takes, or model=NAME and its settings");
    } else if (!root) {
        const tide_diagnostic *d = &scratch.items[0];
        tide_error(r->diags, d->status, d->place, tide_format(r->arena, "%s: %s", r->name, d->message), d->remedy);
    } else if (root->kind != TIDE_JSON_OBJECT) {
        tide_file_refuse(r, TIDE_ERR_FIELD_TYPE,
                         tide_format(r->arena, "contains %s; must be an object", tide_json_kind_name(root)),
                         TIDE_GIVE_CONFIG);
    } else {
        read_object(r, root);
    }
}

/* ---- all files ---- */

void tide_files_read(tide_inputs *inputs, tide_job_arguments *arguments, const tide_file *files, uint32_t count) {
    tide_arena *arena = arguments->arena;
    tide_diagnostics *diags = arguments->diags;
    tide_claims *claims = TIDE_NEW(arena, tide_claims, 1);
    *claims = (tide_claims){.arguments = arguments, .inputs = inputs, .arena = arena, .diags = diags};
    if (count > GIVEN_FILE_LIMIT) {
        tide_error(diags, TIDE_ERR_LIMIT, "/files", "more than 512 files",
                   "give config.json and preprocessor_config.json");
        count = GIVEN_FILE_LIMIT;
    }
    for (uint32_t i = 0; i < count; i++) {
        tide_text name = tide_base_name(files[i].name);
        tide_reading r = {.inputs = inputs, .arguments = arguments, .claims = claims, .arena = arena, .diags = diags};
        r.place = tide_format(arena, "/files/%u", (unsigned)i);
        r.name = name.length ? tide_shown(arena, name) : tide_format(arena, "file %u", (unsigned)i + 1);
        r.text = files[i].text;
        tide_file_read(&r);
    }
    tide_claims_resolve(claims);
    tide_checkpoint_settle(&inputs->checkpoint, arena, diags);
}
