/* peft's adapters: adapter_config.json as settings, and the settings adapter.KEY as a job has them. */
#include "job/settings.h"

#include "base/units.h"

#include <string.h>

typedef struct adapter_reader {
    tide_arguments *words;
    tide_arena *arena;
    const char *place, *name; /* of the file */
} adapter_reader;

static void refuse(const adapter_reader *r, tide_status status, const char *message, const char *remedy) {
    tide_error(r->words->diags, status, r->place, tide_format(r->arena, "%s %s", r->name, message), remedy);
}

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
static void read_key(const adapter_reader *r, const tide_json *entry) {
    const char *key = entry->key.at;
    for (size_t i = 0; i < TIDE_COUNT_OF(renamed); i++)
        if (tide_text_is(entry->key, renamed[i].key)) key = renamed[i].setting;
    if (is_neutral(entry->key) || !is_set(entry)) return;
    const char *setting = tide_format(r->arena, "adapter.%s", key), *text = tide_argument_value_or_map(r->arena, entry);
    if (tide_setting_find(tide_text_of(setting)) == TIDE_SET_COUNT || !text)
        refuse(
            r, TIDE_ERR_UNSUPPORTED,
            tide_format(r->arena, "has \"%s\", which this version does not express", tide_shown(r->arena, entry->key)),
            NULL);
    else
        tide_setting_put(r->words, tide_text_of(setting), tide_text_of(text), TIDE_ORIGIN_FILE);
}

/* What peft takes where a saved configuration does not say, which is not what people are asked for here. */
static void put_default(const adapter_reader *r, const tide_json *root, const char *key, tide_setting_id id,
                        const char *value) {
    if (!tide_json_at(root, key))
        tide_setting_put(r->words, tide_text_of(tide_settings[id].name), tide_text_of(value), TIDE_ORIGIN_FILE);
}

void tide_adapter_read(tide_arguments *words, const tide_json *root, const char *place, const char *name) {
    adapter_reader r = {words, words->arena, place, name};
    const tide_json *type = tide_json_at(root, "peft_type");
    const tide_setting *methods = &tide_settings[TIDE_SET_adapter];
    bool is_text = type->kind == TIDE_JSON_STRING;
    const char *method = is_text ? tide_lowered(r.arena, type->text) : "";
    if (!is_text || strcmp(method, "none") == 0 || !tide_setting_has_choice(methods, tide_text_of(method))) {
        refuse(&r, TIDE_ERR_UNSUPPORTED,
               tide_format(r.arena, "is a PEFT configuration of %s, which this version does not express",
                           is_text ? tide_shown(r.arena, type->text) : "an unknown type"),
               "LORA, IA3, PROMPT_TUNING, PREFIX_TUNING and P_TUNING are read");
        return;
    }
    tide_setting_put(words, TIDE_TEXT("adapter"), tide_text_of(method), TIDE_ORIGIN_FILE);
    for (const tide_json *entry = root->first; entry; entry = entry->next) read_key(&r, entry);
    bool is_lora = strcmp(method, "lora") == 0, has_targets = is_lora || strcmp(method, "ia3") == 0;
    if (is_lora) put_default(&r, root, "r", TIDE_SET_adapter_r, "8");
    if (has_targets && !is_set(tide_json_at(root, "target_modules")) &&
        !is_set(tide_json_at(root, "target_parameters")))
        refuse(&r, TIDE_ERR_FIELD_MISSING, "has no \"target_modules\"", "peft writes them when it saves an adapter");
    if (!has_targets && !is_set(tide_json_at(root, "num_virtual_tokens")))
        refuse(&r, TIDE_ERR_FIELD_MISSING, "has no \"num_virtual_tokens\"",
               "peft writes them when it saves an adapter");
}

/* ---- settings ---- */

/* The method that the settings given need, where none is: the first that reads all of them. */
static const char *implied_method(const tide_arguments *words) {
    if (words->method) return words->method;
    for (unsigned id = TIDE_SET_adapter_r; id <= TIDE_SET_adapter_merged; id++) {
        tide_text kinds = tide_text_of(tide_settings[id].kinds), first, choice;
        if (!words->is_given[id] || !tide_piece_next(&kinds, '|', &first)) continue;
        for (uint32_t i = 0; (choice = tide_setting_choice(&tide_settings[TIDE_SET_adapter], i)).length; i++)
            if (tide_text_starts(choice, first)) return tide_text_copy(words->arena, choice);
    }
    return "none";
}

static tide_name_list list_of(const tide_arguments *words, tide_setting_id id) {
    return tide_names_of(words->arena, words->values[id]);
}

static bool is_true(const tide_arguments *words, tide_setting_id id) {
    return strcmp(words->values[id], "true") == 0;
}

static int64_t int_of(const tide_arguments *words, tide_setting_id id) {
    int64_t value = 0;
    tide_text_to_i64(&value, tide_text_of(words->values[id]));
    return value;
}

void tide_adapter_fill(tide_arguments *words, tide_adapter *a) {
    int64_t dropout = 0;
    if (!words->is_given[TIDE_SET_adapter]) words->values[TIDE_SET_adapter] = implied_method(words);
    tide_decimal_read(&dropout, tide_text_of(words->values[TIDE_SET_adapter_dropout]));
    *a = (tide_adapter){.method = words->values[TIDE_SET_adapter],
                        .r = int_of(words, TIDE_SET_adapter_r),
                        .virtual_tokens = int_of(words, TIDE_SET_adapter_num_virtual_tokens),
                        .encoder_hidden_size = int_of(words, TIDE_SET_adapter_encoder_hidden_size),
                        .dropout = (double)dropout / (double)TIDE_PICO,
                        .target_modules = words->values[TIDE_SET_adapter_target_modules],
                        .feedforward_modules = words->values[TIDE_SET_adapter_feedforward_modules],
                        .exclude_modules = words->values[TIDE_SET_adapter_exclude_modules],
                        .layers_to_transform = list_of(words, TIDE_SET_adapter_layers_to_transform),
                        .layers_pattern = list_of(words, TIDE_SET_adapter_layers_pattern),
                        .rank_pattern = list_of(words, TIDE_SET_adapter_rank_pattern),
                        .modules_to_save = list_of(words, TIDE_SET_adapter_modules_to_save),
                        .also_train = list_of(words, TIDE_SET_adapter_also_train),
                        .bias = words->values[TIDE_SET_adapter_bias],
                        .lora_bias = is_true(words, TIDE_SET_adapter_lora_bias),
                        .dora = is_true(words, TIDE_SET_adapter_dora),
                        .prefix_projection = is_true(words, TIDE_SET_adapter_prefix_projection),
                        .autocast_adapter_dtype = is_true(words, TIDE_SET_adapter_autocast_adapter_dtype),
                        .merged = is_true(words, TIDE_SET_adapter_merged)};
    if (strcmp(a->method, "lora") == 0 && !*a->target_modules) a->target_modules = "all-linear";
}
