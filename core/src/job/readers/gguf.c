/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a GGUF file in the form of base/gguf.h: a model for llama.cpp's server. */
#include "job/readers/readers.h"

#include <string.h>

static const char *gguf_name(const tide_reading *r, const tide_json *root) {
    const tide_json *name = tide_json_at(tide_json_at(root, "metadata"), "general.name");
    size_t length = strlen(r->name);
    if (tide_json_is(name, TIDE_JSON_STRING) && name->text.length) return tide_shown(r->arena, name->text);
    if (length > 5 && strcmp(r->name + length - 5, ".gguf") == 0) length -= 5;
    return tide_text_copy(r->arena, (tide_text){r->name, length});
}

static void read_gguf(tide_reading *r, tide_json *root) {
    if (r->inputs->config) {
        tide_file_refuse(r, TIDE_ERR_CONFLICT,
                         tide_format(r->arena, "is a model, and so is %s", r->inputs->config_file),
                         "give one; for a model in several files the first is not enough: merge them with "
                         "llama-gguf-split --merge");
        return;
    }
    r->inputs->config = root;
    r->inputs->config_file = r->name;
    r->inputs->config_text = r->text;
    r->inputs->config_name = r->inputs->title = gguf_name(r, root);
    r->inputs->source = r->name;
    tide_setting_put(r->arguments, TIDE_TEXT("mode"), TIDE_TEXT("serve"), TIDE_ORIGIN_FILE);
    tide_setting_put(r->arguments, TIDE_TEXT("engine"), TIDE_TEXT("llama_cpp"), TIDE_ORIGIN_FILE);
}

const tide_reader tide_gguf_reader = {.title = "the header of a GGUF file", .marks = "gguf", .read = read_gguf};
