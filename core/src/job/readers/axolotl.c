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

/* schemas/validation.py, check_fsdp_version_in_fsdp_config and set_reward_model_defaults. */
void tide_axolotl_facts(tide_claims *c) {
    const tide_json *fsdp = tide_json_at(axolotl_root(c), "fsdp_config");
    tide_file_key *head = c->facts[TIDE_FACT_head];
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

/* utils/freeze.py, freeze_layers_except: patterns are matched from the beginning of names, which peft's wrapper
 * changes. */
static void settle_axolotl_freezing(tide_claims *c) {
    if (!c->facts[TIDE_FACT_unfrozen]) return;
    bool adapts = c->settings[TIDE_SET_adapter] != NULL;
    const char *name = c->at->summary->name;
    tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_unfrozen],
               adapts ? tide_format(c->arena,
                                    "%s: unfrozen_parameters freezes the adapters too, whose names begin with "
                                    "base_model.model: nothing trains",
                                    name)
                      : tide_format(c->arena, "%s: unfrozen_parameters has patterns, which are not described", name),
               adapts ? "remove it: with an adapter, the model itself does not train"
                      : "remove it, and say train_only=PREFIXES of the names of the parameters that train");
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

void tide_axolotl_settings(tide_claims *c) {
    settle_axolotl_accumulation(c);
    settle_axolotl_loss(c);
    settle_axolotl_storage(c);
    settle_axolotl_types(c);
    settle_axolotl_freezing(c);
    settle_axolotl_embeddings(c);
}

const tide_reader tide_axolotl_reader = {.title = "an axolotl configuration",
                                         .marks = "micro_batch_size|sequence_len|base_model",
                                         .keys = &axolotl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .program = TIDE_PROGRAM_axolotl};
