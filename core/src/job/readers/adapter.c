/* SPDX-License-Identifier: Apache-2.0 */
/* adapter_config.json: peft's adapters as settings. */
#include "job/readers/readers.h"

#include "base/units.h"

#include <string.h>

/* Not null, false, zero or empty. */
static bool is_set(const tide_json *value) {
    if (!value || value->kind == TIDE_JSON_NULL) return false;
    if (value->kind == TIDE_JSON_BOOL) return value->is_true;
    if (value->kind == TIDE_JSON_STRING) return value->text.length > 0;
    return value->kind == TIDE_JSON_NUMBER ? value->number != 0 : value->first != NULL;
}

/* Keys without effect on memory for any method. */
static const char *const neutral[] = {"peft_type",
                                      "auto_mapping",
                                      "peft_version",
                                      "base_model_name_or_path",
                                      "revision",
                                      "inference_mode",
                                      "fan_in_fan_out",
                                      "init_lora_weights",
                                      "init_ia3_weights",
                                      "init_weights",
                                      "loftq_config",
                                      "eva_config",
                                      "corda_config",
                                      "lora_ga_config",
                                      "megatron_config",
                                      "megatron_core",
                                      "runtime_config",
                                      "qalora_group_size",
                                      "token_dim",
                                      "num_attention_heads",
                                      "num_layers",
                                      "num_transformer_submodules",
                                      "prompt_tuning_init",
                                      "prompt_tuning_init_text",
                                      "tokenizer_name_or_path",
                                      "tokenizer_kwargs",
                                      "encoder_num_layers",
                                      "encoder_dropout",
                                      "eps",
                                      "ensure_weight_tying"};

/* peft's names of settings that have another name here. */
static const struct {
    const char *key, *setting;
} renamed[] = {{"lora_alpha", "alpha"}, {"lora_dropout", "dropout"}, {"use_dora", "dora"}, {"use_rslora", "rslora"}};

/* OFTConfig: the rotations that are described. */
static const struct {
    const char *key, *value;
} of_oft[] = {{"use_cayley_neumann", "true"}, {"num_cayley_neumann_terms", "5"}, {"bias", "none"}, {"r", "0"}};

static bool is_neutral(tide_text key) {
    for (size_t i = 0; i < TIDE_COUNT_OF(neutral); i++)
        if (tide_text_is(key, neutral[i])) return true;
    return false;
}

/* Whether an entry is one of OFT's whose value is fixed; another value is reported. */
static bool is_of_oft(const tide_reading *r, const tide_json *entry) {
    size_t i = 0;
    while (i < TIDE_COUNT_OF(of_oft) && !tide_text_is(entry->key, of_oft[i].key)) i++;
    if (i == TIDE_COUNT_OF(of_oft)) return false;
    const char *text = tide_argument_value_or_map(r->arena, entry);
    if (text && strcmp(text, of_oft[i].value) != 0)
        tide_file_refuse(r, TIDE_ERR_UNSUPPORTED,
                         tide_format(r->arena, "has \"%s\": %s, which is not described for OFT", of_oft[i].key, text),
                         tide_format(r->arena, "give %s, peft's default", of_oft[i].value));
    return true;
}

/* Reads a key as a setting; if it is set and there is no setting for it, it is reported. */
static void read_adapter_key(const tide_reading *r, const tide_json *entry, bool is_oft) {
    const char *key = entry->key.at;
    for (size_t i = 0; i < TIDE_COUNT_OF(renamed); i++)
        if (tide_text_is(entry->key, renamed[i].key)) key = renamed[i].setting;
    if ((is_oft && is_of_oft(r, entry)) || is_neutral(entry->key) || !is_set(entry)) return;
    const char *setting = tide_format(r->arena, "adapter.%s", key), *text = tide_argument_value_or_map(r->arena, entry);
    if (tide_setting_find(tide_text_of(setting)) == TIDE_SET_COUNT || !text)
        tide_file_refuse(r, TIDE_ERR_UNSUPPORTED,
                         tide_format(r->arena, "has \"%s\", which is not described", tide_shown(r->arena, entry->key)),
                         "run the program with `tidemark dry-run`, which needs no description");
    else
        tide_setting_put(r->arguments, tide_text_of(setting), tide_text_of(text), TIDE_ORIGIN_FILE);
}

/* peft's default for a key missing in a saved configuration, if it differs from the default here. */
static void put_default(const tide_reading *r, const tide_json *root, const char *key, tide_setting_id id,
                        const char *value) {
    if (!tide_json_at(root, key))
        tide_setting_put(r->arguments, tide_text_of(tide_settings[id].name), tide_text_of(value), TIDE_ORIGIN_FILE);
}

/* lora/layer.py, update_layer: initialisations that decompose weights, or use gradients, before training. */
static void note_initialisation(const tide_reading *r, const tide_json *init) {
    bool is_kept = !tide_json_is(init, TIDE_JSON_STRING) || tide_text_same(init->text, TIDE_TEXT("true")) ||
                   tide_text_same(init->text, TIDE_TEXT("gaussian")) ||
                   tide_text_same(init->text, TIDE_TEXT("orthogonal"));
    if (!is_kept)
        tide_report(r->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, r->place,
                    tide_format(r->arena, "%s: what init_lora_weights=%s needs before the first step is not described",
                                r->name, tide_shown(r->arena, init->text)),
                    NULL);
}

static void read_adapter(tide_reading *r, tide_json *root) {
    const tide_json *type = tide_json_at(root, "peft_type");
    const tide_setting *methods = &tide_settings[TIDE_SET_adapter];
    bool is_text = type->kind == TIDE_JSON_STRING;
    const char *method = is_text ? tide_lowered(r->arena, type->text) : "";
    if (!is_text || strcmp(method, "none") == 0 || !tide_setting_has_choice(methods, tide_text_of(method))) {
        tide_file_refuse(
            r, TIDE_ERR_UNSUPPORTED,
            tide_format(r->arena, "is a PEFT configuration of %s, which is not described",
                        is_text ? tide_shown(r->arena, type->text) : "an unknown type"),
            "LORA, IA3, OFT, PROMPT_TUNING, PREFIX_TUNING and P_TUNING are; run the program with `tidemark "
            "dry-run`, which needs no description");
        return;
    }
    tide_setting_put(r->arguments, TIDE_TEXT("adapter"), tide_text_of(method), TIDE_ORIGIN_FILE);
    bool is_lora = strcmp(method, "lora") == 0, is_ia3 = strcmp(method, "ia3") == 0,
         is_oft = strcmp(method, "oft") == 0, has_targets = is_lora || is_ia3 || is_oft;
    const tide_json *feedforward = tide_json_at(root, "feedforward_modules");
    for (const tide_json *entry = root->first; entry; entry = entry->next) read_adapter_key(r, entry, is_oft);
    if (is_ia3 && tide_json_is(feedforward, TIDE_JSON_ARRAY) && !feedforward->first)
        tide_setting_put(r->arguments, TIDE_TEXT("adapter.feedforward_modules"), TIDE_TEXT("none"), TIDE_ORIGIN_FILE);
    note_initialisation(r, tide_json_at(root, "init_lora_weights"));
    if (is_lora) put_default(r, root, "r", TIDE_SET_adapter_r, "8");
    if (has_targets && !is_set(tide_json_at(root, "target_modules")) &&
        !is_set(tide_json_at(root, "target_parameters")))
        tide_file_refuse(r, TIDE_ERR_FIELD_MISSING, "has no \"target_modules\"",
                         "peft writes them when it saves an adapter");
    if (!has_targets && !is_set(tide_json_at(root, "num_virtual_tokens")))
        tide_file_refuse(r, TIDE_ERR_FIELD_MISSING, "has no \"num_virtual_tokens\"",
                         "peft writes them when it saves an adapter");
}

const tide_reader tide_adapter_reader = {.title = "a PEFT configuration", .marks = "peft_type", .read = read_adapter};
