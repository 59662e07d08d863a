/* SPDX-License-Identifier: Apache-2.0 */
/* axolotl's configuration: utils/schemas/config.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"

/* utils/schemas/trl.py */
static const tide_key_row axolotl_trl_rows[] = {
    KEY_REFUSED("rollout_func|use_data_producer|async_prefetch", "generates in another way", ""),
    KEY_REFUSED("replay_buffer_size|streaming_partial_batch", "trains on other rows than it generates", "0"),
    KEY_NEUTRAL("scale_rewards|multi_objective_aggregation"),
    KEY_NEUTRAL("prefetch_depth|streaming_*|replay_*|reroll_*|skip_zero_advantage_batches|reward_num_workers"),
};

static const tide_key_table axolotl_trl_keys = {
    .rows = axolotl_trl_rows, .count = TIDE_COUNT_OF(axolotl_trl_rows), .more = &tide_trainer_keys};

static const tide_key_row axolotl_rows[] = {
#include "job/readers/keys/parallel_sizes.def"

#include "job/readers/keys/axolotl.def" /* expert_parallel_* otherwise */
};

static const tide_key_table axolotl_keys = {
    .rows = axolotl_rows, .count = TIDE_COUNT_OF(axolotl_rows), .more = &tide_trainer_keys};

static const tide_json *axolotl_root(const tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file->reader->program != TIDE_PROGRAM_axolotl) file = file->next;
    return file->root;
}

static bool is_given_in(const tide_json *root, const char *key) {
    const tide_json *value = tide_json_at(root, key);
    return value && value->kind != TIDE_JSON_NULL;
}

/* utils/config/__init__.py, normalize_config: checkpoints are reentrant unless a key suggests otherwise. */
static void settle_axolotl_checkpoints(tide_claims *c) {
    const tide_json *root = axolotl_root(c);
    if (tide_fact_is(c, TIDE_FACT_checkpointing, "true") && !is_given_in(root, "gradient_checkpointing_kwargs") &&
        !is_given_in(root, "unfrozen_parameters") && !is_given_in(root, "rl"))
        tide_imply_fact(c, TIDE_FACT_reentrant, "use_reentrant", "true");
    if (c->facts[TIDE_FACT_unfrozen] && tide_fact_is(c, TIDE_FACT_reentrant, "true")) /* schemas/validation.py */
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_reentrant],
                   "axolotl refuses it: \"`use_reentrant` must be false when used with partially frozen model.\"",
                   NULL);
}

/* schemas/validation.py, check_fsdp_version_in_fsdp_config and set_reward_model_defaults. */
void tide_axolotl_facts(tide_claims *c) {
    const tide_json *fsdp = tide_json_at(axolotl_root(c), "fsdp_config");
    tide_file_key *head = c->facts[TIDE_FACT_head];
    settle_axolotl_checkpoints(c);
    if (tide_json_is(fsdp, TIDE_JSON_OBJECT) && fsdp->first)
        tide_imply_fact(c, TIDE_FACT_fsdp_version, "fsdp_version", "1");
    if (!head) return;
    if (tide_fact_is(c, TIDE_FACT_trl, "reward") && strcmp(head->value, "AutoModelForSequenceClassification") == 0)
        return;
    head->effect = TIDE_KEY_UNSUPPORTED;
    tide_report(
        c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_head],
        tide_format(c->arena, "%s is not described and may matter: it makes a model with another head", head->key),
        NULL);
}

/* config/__init__.py, normalize_config: rows per step. */
static void settle_axolotl_accumulation(tide_claims *c) {
    int64_t rows = tide_fact_int(c, TIDE_FACT_step_batch, 0), batch = 1;
    if (rows < 1 || !c->settings[TIDE_SET_batch]) return;
    tide_text_to_i64(&batch, tide_text_of(c->settings[TIDE_SET_batch]->taken));
    if (c->settings[TIDE_SET_grad_accum])
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_step_batch],
                   "axolotl refuses it: \"please set only one of gradient_accumulation_steps or batch_size\"", NULL);
    else
        tide_settle(c, TIDE_FACT_step_batch, TIDE_SET_grad_accum,
                    tide_format(c->arena, "%" PRId64, batch > 0 && rows > batch ? rows / batch : 1));
}

/* integrations/cut_cross_entropy/args.py: enabled by the plugin unless a key disables it. */
static void settle_axolotl_loss(tide_claims *c) {
    const tide_json *root = axolotl_root(c), *plugins = tide_json_at(root, "plugins");
    if (tide_json_at(root, "cut_cross_entropy")) return;
    for (const tide_json *name = tide_json_is(plugins, TIDE_JSON_ARRAY) ? plugins->first : NULL; name;
         name = name->next)
        if (name->kind == TIDE_JSON_STRING && tide_text_matches(name->text, TIDE_TEXT("*.CutCrossEntropyPlugin")))
            tide_imply(c, TIDE_SET_loss, "cut_cross_entropy");
}

static bool is_true_of(const tide_json *root, const char *const *keys, size_t count) {
    bool is = false;
    for (size_t i = 0; i < count; i++) is = is || tide_json_is_true(tide_json_at(root, keys[i]));
    return is;
}

/* loaders/model.py, _configure_embedding_dtypes: norms, embeddings and the head are cast to fp32, and back with
 * adapters, with attention kernels other than eager and sdpa, and with cut cross-entropy. */
static void settle_axolotl_types(tide_claims *c) {
    static const char *const kernels[] = {"flash_attention", "xformers_attention", "flex_attention", "sage_attention"};
    const tide_json *root = axolotl_root(c), *said = tide_json_at(root, "attn_implementation");
    const tide_file_key *loss = c->settings[TIDE_SET_loss];
    bool has_kernel = is_true_of(root, kernels, TIDE_COUNT_OF(kernels)) ||
                      (tide_json_is(said, TIDE_JSON_STRING) && !tide_text_matches_one(said->text, "eager|sdpa"));
    bool is_cut = loss && strcmp(loss->taken, "cut_cross_entropy") == 0;
    if (c->settings[TIDE_SET_adapter] && c->settings[TIDE_SET_quant])
        tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/kbit_prepare",
                    "axolotl casts norms and embeddings back from fp32 after prepare_model_for_kbit_training(); "
                    "biases and routers, which stay in fp32, are not accounted for",
                    NULL);
    bool is_spread = c->facts[TIDE_FACT_fsdp_version] || c->facts[TIDE_FACT_deepspeed]; /* of a single dtype */
    if (c->settings[TIDE_SET_adapter] || c->arguments->asked_trainer || is_spread || has_kernel || is_cut) return;
    tide_claims_note(c, "attn_implementation", TIDE_KEY_UNSUPPORTED, NULL, "leaves parts of the model in fp32");
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "attn_implementation"),
                "axolotl leaves norms, embeddings and the head in fp32 with eager attention and sdpa, which is not "
                "described",
                NULL);
}

/* utils/freeze.py, _parse_pattern: rows, such as [:32000], follow a name; without them the length of the name. */
static size_t without_rows(tide_text pattern) {
    const char *end = pattern.at + pattern.length;
    if (!pattern.length || end[-1] != ']') return pattern.length;
    const char *at = end - 2;
    while (at > pattern.at && (*at == ':' || (*at >= '0' && *at <= '9'))) at--;
    size_t colons = 0;
    for (const char *c = at + 1; c < end - 1; c++) colons += *c == ':';
    return *at == '[' && at > pattern.at && colons < 2 ? (size_t)(at - pattern.at) : pattern.length;
}

/* LayerNamePattern: a regular expression for re.match(), in which a period is one, except before "+". */
static const char *pattern_of_name(tide_claims *c, tide_text pattern) {
    char *out = tide_arena_alloc(c->arena, 2 * pattern.length + 8), *to = out;
    bool has_alternatives = memchr(pattern.at, '|', pattern.length) != NULL;
    size_t length = without_rows(pattern);
    *to++ = '^';
    if (has_alternatives) memcpy(to, "(?:", 3), to += 3;
    for (size_t i = 0; i < length; i++) {
        if (i == 0 && pattern.at[i] == '^' && !has_alternatives) continue;
        if (pattern.at[i] == '.' && (i + 1 == length || pattern.at[i + 1] != '+')) *to++ = '\\';
        *to++ = pattern.at[i];
    }
    if (has_alternatives) *to++ = ')';
    *to = 0;
    return out;
}

/* train.py, setup_model_and_tokenizer: with these patterns the embeddings' output requires gradients, as it does with
 * checkpointing anyway. Gradients of rows that do not train are zeroed in place. */
static void settle_axolotl_inputs(tide_claims *c, const char *patterns) {
    bool is_named = strstr(patterns, "lm_head") || strstr(patterns, "embed_tokens");
    if (!is_named || tide_fact_is(c, TIDE_FACT_checkpointing, "true")) return;
    c->facts[TIDE_FACT_unfrozen]->effect = TIDE_KEY_UNSUPPORTED;
    tide_report(
        c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_unfrozen],
        "with lm_head or embed_tokens in unfrozen_parameters, axolotl lets gradients reach the embeddings, which "
        "is described with checkpointing only",
        "gradient_checkpointing: true");
}

/* utils/freeze.py, freeze_layers_except: patterns are matched from the beginning of names, which peft's wrapper
 * changes. */
static void settle_axolotl_freezing(tide_claims *c) {
    const tide_json *given = tide_json_at(axolotl_root(c), "unfrozen_parameters");
    const char *place = c->fact_places[TIDE_FACT_unfrozen], *list = "", *name = c->at->summary->name;
    if (!c->facts[TIDE_FACT_unfrozen]) return;
    if (c->settings[TIDE_SET_adapter]) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, place,
                   tide_format(c->arena,
                               "%s: unfrozen_parameters freezes the adapters too, whose names begin with "
                               "base_model.model: nothing trains",
                               name),
                   "remove it: with an adapter, the model itself does not train");
        return;
    }
    bool is_list = given->kind == TIDE_JSON_ARRAY;
    for (const tide_json *one = is_list ? given->first : given; one; one = is_list ? one->next : NULL) {
        if (!tide_json_is(one, TIDE_JSON_STRING) || !one->text.length || memchr(one->text.at, ',', one->text.length)) {
            tide_error(c->diags, TIDE_ERR_UNSUPPORTED, place,
                       tide_format(c->arena, "%s: unfrozen_parameters has \"%s\", which is not described", name,
                                   tide_json_is(one, TIDE_JSON_STRING) ? tide_shown(c->arena, one->text)
                                                                       : tide_json_kind_name(one)),
                       "remove it, and say train_only=PREFIXES of the names of the parameters that train");
            return;
        }
        list = tide_format(c->arena, "%s%s%s", list, *list ? "," : "", pattern_of_name(c, one->text));
    }
    tide_settle(c, TIDE_FACT_unfrozen, TIDE_SET_train_only, list);
    settle_axolotl_inputs(c, list);
}

/* core/builders/causal.py, build_collator. */
static void settle_axolotl_processor(tide_claims *c) {
    c->inputs->has_processor = c->facts[TIDE_FACT_processor];
    if (c->inputs->has_processor) c->facts[TIDE_FACT_processor]->effect = TIDE_KEY_USED;
}

/* loaders/model.py, _resize_token_embeddings. */
static void settle_axolotl_embeddings(tide_claims *c) {
    c->inputs->resizes = c->facts[TIDE_FACT_resizes];
    c->inputs->resizes_place = c->fact_places[TIDE_FACT_resizes];
    if (c->inputs->resizes) c->facts[TIDE_FACT_resizes]->effect = TIDE_KEY_IGNORED;
}

/* loaders/model.py, _set_quantization_config. */
static void settle_axolotl_storage(tide_claims *c) {
    const tide_file_key *quant = c->settings[TIDE_SET_quant];
    bool is_sharded = c->facts[TIDE_FACT_fsdp_version] != NULL; /* otherwise it does not matter */
    if (is_sharded && quant && strcmp(quant->taken, "nf4") == 0) tide_imply(c, TIDE_SET_quant_storage, "bf16");
}

/* utils/schemas/config.py, check_quantize_moe_experts. */
static void settle_axolotl_experts(tide_claims *c) {
    const tide_json *root = axolotl_root(c);
    const char *why = tide_json_is_true(tide_json_at(root, "lora_target_linear"))
                          ? "lora_target_linear is not compatible with quantize_moe_experts."
                      : !c->settings[TIDE_SET_adapter] ? "quantize_moe_experts requires adapter: lora or qlora"
                      : !c->settings[TIDE_SET_quant]   ? "quantize_moe_experts requires load_in_4bit or load_in_8bit"
                                                       : NULL;
    if (why && tide_json_is_true(tide_json_at(root, "quantize_moe_experts")))
        tide_error(c->diags, TIDE_ERR_CONFLICT, tide_claims_place(c, "quantize_moe_experts"),
                   tide_format(c->arena, "axolotl refuses it: \"%s\"", why), NULL);
}

/* loaders/adapter.py, load_lora: the layers that lora_target_modules names, and all linear ones. */
static void settle_axolotl_targets(tide_claims *c) {
    tide_file_key *named = c->settings[TIDE_SET_adapter_target_modules];
    if (!tide_fact_is(c, TIDE_FACT_target_linear, "true")) return;
    if (named) named->taken = tide_format(c->arena, "all-linear-names,%s", named->taken);
    tide_settle(c, TIDE_FACT_target_linear, TIDE_SET_adapter_target_modules, "all-linear-names");
}

void tide_axolotl_settings(tide_claims *c) {
    settle_axolotl_targets(c);
    settle_axolotl_experts(c);
    settle_axolotl_accumulation(c);
    settle_axolotl_loss(c);
    settle_axolotl_storage(c);
    settle_axolotl_types(c);
    settle_axolotl_freezing(c);
    settle_axolotl_processor(c);
    settle_axolotl_embeddings(c);
}

const tide_reader tide_axolotl_reader = {.title = "an axolotl configuration",
                                         .marks = "micro_batch_size|sequence_len|base_model",
                                         .keys = &axolotl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .program = TIDE_PROGRAM_axolotl};
