/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine reads from config.json: transformers_utils/config.py and config/model.py of vLLM 0.32.0. */
#include "serve/config.h"

#include <string.h>

#include "base/units.h"
#include "serve/serve.h"

const tide_json *tide_serve_text_config(const tide_json *config) {
    static const char *const names[] = {"text_config", "llm_config", "language_config", "thinker_config"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++) {
        const tide_json *found = tide_json_at(config, names[i]);
        if (found && found->kind == TIDE_JSON_OBJECT && found->first) return found;
    }
    return config;
}

/* The first of these keys found in the language model's configuration or in the whole one. */
int64_t tide_serve_number(const tide_json *config, const char *const *keys, int64_t otherwise) {
    const tide_json *places[2] = {tide_serve_text_config(config), config};
    for (int place = 0; place < 2; place++)
        for (const char *const *key = keys; *key; key++) {
            const tide_json *found = tide_json_at(places[place], *key);
            if (found && found->kind == TIDE_JSON_NUMBER && found->is_integer) return found->integer;
        }
    return otherwise;
}

int64_t tide_serve_vocabulary(const tide_json *config) {
    return TIDE_SERVE_NUMBER(config, 0, "vocab_size");
}

int64_t tide_serve_layers(const tide_json *config) {
    return TIDE_SERVE_NUMBER(config, 0, "num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers");
}

/* rope_parameters of transformers 5, or rope_scaling of earlier versions. */
static const tide_json *rope_parameters(const tide_json *text) {
    const tide_json *found = tide_json_at(text, "rope_parameters");
    return found && found->kind == TIDE_JSON_OBJECT ? found : tide_json_at(text, "rope_scaling");
}

static bool has_rope_type(const tide_json *text, const char *word) {
    const tide_json *type = tide_json_at(rope_parameters(text), "rope_type");
    if (!type) type = tide_json_at(rope_parameters(text), "type");
    return type && type->kind == TIDE_JSON_STRING && tide_text_is(type->text, word);
}

static bool is_gemma3(const tide_json *text) {
    const tide_json *type = tide_json_at(text, "model_type");
    return type && type->kind == TIDE_JSON_STRING && tide_text_contains(type->text, TIDE_TEXT("gemma3"));
}

/* config/model.py, _get_and_verify_max_len: the keys and their scaling. */
int64_t tide_serve_derived_length(const tide_json *config, const char **key) {
    int64_t least = TIDE_ENDLESS;
    static const char *const keys[] = {
        "max_position_embeddings", "n_positions",         "max_seq_len",    "seq_length", "model_max_length",
        "max_target_positions",    "max_sequence_length", "max_seq_length", "seq_len"};
    const tide_json *text = tide_serve_text_config(config);
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *found = tide_json_at(text, keys[i]);
        if (found && found->kind == TIDE_JSON_NUMBER && found->is_integer && found->integer > 0 &&
            found->integer < least) {
            least = found->integer;
            if (key) *key = keys[i];
        }
    }
    if (least == TIDE_ENDLESS) return least;
    const tide_json *factor = tide_json_at(rope_parameters(text), "factor");
    static const char *const unscaled[] = {"su",   "longrope",      "llama3",
                                           "yarn", "deepseek_yarn", "deepseek_llama_scaling"};
    if (!factor || factor->kind != TIDE_JSON_NUMBER || is_gemma3(text)) return least;
    for (size_t i = 0; i < TIDE_COUNT_OF(unscaled); i++)
        if (has_rope_type(text, unscaled[i])) return least;
    double scaled = (double)least * factor->number;
    return scaled >= 1 && scaled < (double)INT32_MAX ? (int64_t)scaled : least;
}

/* The default of max_model_len. */
int64_t tide_serve_default_length(const tide_json *config) {
    const tide_json *text = tide_serve_text_config(config),
                    *original = tide_json_at(text, "original_max_position_embeddings");
    if (has_rope_type(text, "longrope") && original && original->is_integer) return original->integer;
    int64_t derived = tide_serve_derived_length(config, NULL);
    return derived == TIDE_ENDLESS ? 2048 : derived;
}

/* config/model.py, _SUFFIX_TO_DEFAULTS. */
bool tide_serve_generates(tide_text architecture) {
    static const char *const suffixes[] = {"ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t length = strlen(suffixes[i]);
        if (architecture.length >= length &&
            memcmp(architecture.at + architecture.length - length, suffixes[i], length) == 0)
            return true;
    }
    return false;
}

bool tide_serve_bars_fp16(const tide_json *config) {
    static const char *const types[] = {"gemma2", "gemma3", "gemma3_text", "glm4"};
    const tide_json *type = tide_json_at(config, "model_type");
    for (size_t i = 0; tide_json_is(type, TIDE_JSON_STRING) && i < sizeof types / sizeof *types; i++)
        if (tide_text_is(type->text, types[i])) return true;
    return false;
}
