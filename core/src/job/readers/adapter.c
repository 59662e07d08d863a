/* peft's adapters: adapter_config.json as settings, and the settings adapter.KEY as a job has them. */
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

/* Keys that change no memory, for whatever method. */
static const char *const neutral[] = {"peft_type",
                                      "task_type",
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
                                      "ensure_weight_tying"};

/* peft's names of settings that have another here. */
static const struct {
    const char *key, *setting;
} renamed[] = {{"lora_alpha", "alpha"}, {"lora_dropout", "dropout"}, {"use_dora", "dora"}, {"use_rslora", "rslora"}};

static bool is_neutral(tide_text key) {
    for (size_t i = 0; i < TIDE_COUNT_OF(neutral); i++)
        if (tide_text_is(key, neutral[i])) return true;
    return false;
}

/* A key as the setting that it is; one that is set and has no setting is named. */
static void read_key(const tide_reading *r, const tide_json *entry) {
    const char *key = entry->key.at;
    for (size_t i = 0; i < TIDE_COUNT_OF(renamed); i++)
        if (tide_text_is(entry->key, renamed[i].key)) key = renamed[i].setting;
    if (is_neutral(entry->key) || !is_set(entry)) return;
    const char *setting = tide_format(r->arena, "adapter.%s", key), *text = tide_argument_value_or_map(r->arena, entry);
    if (tide_setting_find(tide_text_of(setting)) == TIDE_SET_COUNT || !text)
        tide_file_refuse(
            r, TIDE_ERR_UNSUPPORTED,
            tide_format(r->arena, "has \"%s\", which this version does not express", tide_shown(r->arena, entry->key)),
            NULL);
    else
        tide_setting_put(r->arguments, tide_text_of(setting), tide_text_of(text), TIDE_ORIGIN_FILE);
}

/* What peft takes where a saved configuration does not say, which is not what people are asked for here. */
static void put_default(const tide_reading *r, const tide_json *root, const char *key, tide_setting_id id,
                        const char *value) {
    if (!tide_json_at(root, key))
        tide_setting_put(r->arguments, tide_text_of(tide_settings[id].name), tide_text_of(value), TIDE_ORIGIN_FILE);
}

static void read_adapter(tide_reading *r, tide_json *root) {
    const tide_json *type = tide_json_at(root, "peft_type");
    const tide_setting *methods = &tide_settings[TIDE_SET_adapter];
    bool is_text = type->kind == TIDE_JSON_STRING;
    const char *method = is_text ? tide_lowered(r->arena, type->text) : "";
    if (!is_text || strcmp(method, "none") == 0 || !tide_setting_has_choice(methods, tide_text_of(method))) {
        tide_file_refuse(r, TIDE_ERR_UNSUPPORTED,
                         tide_format(r->arena, "is a PEFT configuration of %s, which this version does not express",
                                     is_text ? tide_shown(r->arena, type->text) : "an unknown type"),
                         "LORA, IA3, PROMPT_TUNING, PREFIX_TUNING and P_TUNING are read");
        return;
    }
    tide_setting_put(r->arguments, TIDE_TEXT("adapter"), tide_text_of(method), TIDE_ORIGIN_FILE);
    for (const tide_json *entry = root->first; entry; entry = entry->next) read_key(r, entry);
    bool is_lora = strcmp(method, "lora") == 0, has_targets = is_lora || strcmp(method, "ia3") == 0;
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

/* ---- settings ---- */

/* The method that the settings given need, where none is: the first that reads all of them. */
static const char *implied_method(const tide_arguments *arguments) {
    if (arguments->method) return arguments->method;
    for (unsigned id = TIDE_SET_adapter_r; id <= TIDE_SET_adapter_merged; id++) {
        tide_text kinds = tide_text_of(tide_setting_wants(&tide_settings[id])), first, choice;
        if (!arguments->is_given[id] || !tide_piece_next(&kinds, '|', &first)) continue;
        for (uint32_t i = 0; (choice = tide_setting_choice(&tide_settings[TIDE_SET_adapter], i)).length; i++)
            if (tide_text_starts(choice, first)) return tide_text_copy(arguments->arena, choice);
    }
    return "none";
}

void tide_adapter_fill(tide_arguments *arguments, tide_adapter *a) {
    int64_t dropout = 0;
    if (!arguments->is_given[TIDE_SET_adapter]) arguments->values[TIDE_SET_adapter] = implied_method(arguments);
    tide_decimal_read(&dropout, tide_text_of(arguments->values[TIDE_SET_adapter_dropout]));
    *a = (tide_adapter){.method = arguments->values[TIDE_SET_adapter],
                        .r = tide_argument_int(arguments, TIDE_SET_adapter_r),
                        .virtual_tokens = tide_argument_int(arguments, TIDE_SET_adapter_num_virtual_tokens),
                        .encoder_hidden_size = tide_argument_int(arguments, TIDE_SET_adapter_encoder_hidden_size),
                        .dropout = (double)dropout / (double)TIDE_PICO,
                        .target_modules = arguments->values[TIDE_SET_adapter_target_modules],
                        .feedforward_modules = arguments->values[TIDE_SET_adapter_feedforward_modules],
                        .exclude_modules = arguments->values[TIDE_SET_adapter_exclude_modules],
                        .layers_to_transform = tide_argument_names(arguments, TIDE_SET_adapter_layers_to_transform),
                        .layers_pattern = tide_argument_names(arguments, TIDE_SET_adapter_layers_pattern),
                        .rank_pattern = tide_argument_names(arguments, TIDE_SET_adapter_rank_pattern),
                        .modules_to_save = tide_argument_names(arguments, TIDE_SET_adapter_modules_to_save),
                        .also_train = tide_argument_names(arguments, TIDE_SET_adapter_also_train),
                        .bias = arguments->values[TIDE_SET_adapter_bias],
                        .lora_bias = tide_argument_is_true(arguments, TIDE_SET_adapter_lora_bias),
                        .dora = tide_argument_is_true(arguments, TIDE_SET_adapter_dora),
                        .prefix_projection = tide_argument_is_true(arguments, TIDE_SET_adapter_prefix_projection),
                        .autocast_adapter_dtype =
                            tide_argument_is_true(arguments, TIDE_SET_adapter_autocast_adapter_dtype),
                        .merged = tide_argument_is_true(arguments, TIDE_SET_adapter_merged)};
    if (strcmp(a->method, "lora") == 0 && !*a->target_modules) a->target_modules = "all-linear";
}
