/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of LLaMA-Factory's v1 trainer (USE_V1=1): llamafactory/v1/config, and the parameters of its plugins. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

static const tide_key_row factory_v1_peft_rows[] = {
    KEY_SETS("name", adapter, "freeze="),
    KEY_SETS("r", adapter_r, ""),
    KEY_SETS("lora_dropout", adapter_dropout, ""),
    KEY_SETS("target_modules", adapter_target_modules, "all=all-linear"),
    KEY_SETS("modules_to_save", adapter_modules_to_save, ""),
    KEY_SETS("use_rslora", adapter_rslora, ""),
    KEY_SETS("use_dora", adapter_dora, ""),
    KEY_SAYS("freeze_trainable_layers", trainable_layers, ""),
    KEY_SAYS("freeze_trainable_modules", trainable_modules, ""),
    KEY_SAYS("freeze_extra_modules", extra_modules, ""),
    KEY_NEUTRAL("lora_alpha|adapter_name_or_path|export_*|infer_dtype|cast_trainable_params_to_fp32"),
};

static const tide_key_row factory_v1_quant_rows[] = {
    KEY_MATTERS("name", "quantises in another way than bitsandbytes", "bnb|auto"),
    KEY_SETS("quantization_bit", quant, "4=nf4|8=int8"),
    KEY_SETS("compute_dtype", quant_compute_dtype, ""),
    KEY_SETS("double_quantization", quant_double, ""),
    KEY_REFUSED("quantization_type", "quantises to another type", "nf4"),
};

static const tide_key_row factory_v1_dist_rows[] = {
    KEY_REFUSED("name", "shards the model in another way", "fsdp2|ddp"),
    KEY_SETS("reshard_after_forward", parallel_reshard_after_forward, ""),
    KEY_SETS("offload_params", parallel_offload, ""),
    KEY_NEUTRAL("dcp_path|pin_memory|config_file|ep_*|fsdp_*|hook_modules"),
};

static const tide_key_row factory_v1_kernel_rows[] = {
    KEY_REFUSED("name", "replaces kernels", "auto|liger_kernel"),
    KEY_NEUTRAL("*"),
};

static const tide_key_row factory_v1_init_rows[] = {
    KEY_MATTERS("name", "loads the model on the host or on the meta device: the peak of loading is another",
                "init_on_default"),
};

static const tide_key_row factory_v1_optim_rows[] = {
    KEY_REFUSED("name", "steps with LLaMA-Factory's own optimizer", "adamw"),
    KEY_NEUTRAL("*"),
};

static const tide_key_row factory_v1_scheduler_rows[] = {KEY_NEUTRAL("*")};

#define SECTION(name)                                                                                                  \
    static const tide_key_table factory_v1_##name##_keys = {.rows = factory_v1_##name##_rows,                          \
                                                            .count = TIDE_COUNT_OF(factory_v1_##name##_rows)}
SECTION(peft);
SECTION(quant);
SECTION(dist);
SECTION(kernel);
SECTION(init);
SECTION(optim);
SECTION(scheduler);
#undef SECTION

static const tide_key_row factory_v1_rows[] = {
    KEY_SAYS("model", model, ""),
    KEY_REFUSED("model_class", "makes a model with another head", "llm"),
    KEY_HOLDS("peft_config", factory_v1_peft_keys),
    KEY_HOLDS("quant_config", factory_v1_quant_keys),
    KEY_HOLDS("dist_config", factory_v1_dist_keys),
    KEY_HOLDS("kernel_config", factory_v1_kernel_keys),
    KEY_HOLDS("init_config", factory_v1_init_keys),
    KEY_HOLDS("optim_config", factory_v1_optim_keys),
    KEY_HOLDS("lr_scheduler_config", factory_v1_scheduler_keys),
    KEY_SETS("micro_batch_size", batch, ""),
    KEY_SAYS("global_batch_size", step_batch, ""),
    KEY_SETS("cutoff_len", seq, ""),
    KEY_SETS("flash_attn", attention, ""),
    KEY_SETS("enable_activation_checkpointing", checkpointing, "true=full|false=none"),
    KEY_SETS("bf16", parallel_param_dtype, "true=bf16|false=fp32"),
    /* rows of cutoff_len tokens fill the budget of dynamic_batching: as many as micro_batch_size */
    KEY_REFUSED("batching_strategy", "concatenates the samples of a micro-batch into one row",
                "normal|dynamic_batching"),
    KEY_REFUSED("cp_size", "shares each sequence over ranks", "1"),
    KEY_REFUSED("mp_replicate_size", "replicates over ranks", "1"),
    KEY_REFUSED("pref_*|simpo_gamma|dpo_*|ld_alpha", "trains on preferences", "false"),
    KEY_MATTERS("full_determinism", "takes other kernels", ""),
    KEY_NEUTRAL("custom_chat_template|trust_remote_code|output_dir|learning_rate|num_train_epochs|max_steps"),
    KEY_NEUTRAL("max_grad_norm|batching_workers|dp_size|cp_mode|mp_shard_size|dist_timeout|seed|logging_steps"),
    KEY_NEUTRAL("resume_from_checkpoint|save_*|train_dataset|eval_dataset|sample_backend|max_new_tokens"),
};

static const tide_key_table factory_v1_keys = {.rows = factory_v1_rows, .count = TIDE_COUNT_OF(factory_v1_rows)};

static const tide_claims_file *factory_v1_file(const tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_llama_factory_v1_reader) file = file->next;
    return file;
}

/* Which trainer is used is said by the command: llamafactory-cli dpo, rm; the data of one have its name. */
static bool refuse_other_trainers(tide_claims *c, const tide_claims_file *file) {
    const tide_json *data = tide_json_at(file->root, "train_dataset");
    const char *word = tide_preference_word(c->arena, tide_text_of(file->summary->name));
    if (!word && tide_json_is(data, TIDE_JSON_STRING)) word = tide_preference_word(c->arena, data->text);
    if (!word || c->arguments->asked_trainer) return false;
    return !tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, "train_dataset",
                               tide_format(c->arena,
                                           "%s: its name, or that of its data, is of %s, which LLaMA-Factory's v1 "
                                           "trainers do in another way: not described",
                                           file->summary->name, word),
                               "give trainer=llama_factory_v1 if it is supervised");
}

static void settle_defaults(tide_claims *c, const tide_json *root) {
    if (tide_known_of(c, TIDE_SET_adapter)) { /* LoraParams */
        tide_imply(c, TIDE_SET_adapter_r, "8");
        tide_imply(c, TIDE_SET_adapter_dropout, "0.05");
        tide_imply(c, TIDE_SET_adapter_target_modules, "all-linear");
    }
    if (tide_known_of(c, TIDE_SET_quant)) { /* BnbParams; bnb_4bit_quant_storage is compute_dtype */
        tide_imply(c, TIDE_SET_quant_compute_dtype, "fp16");
        tide_imply(c, TIDE_SET_quant_storage, tide_known_of(c, TIDE_SET_quant_compute_dtype));
    }
    if (tide_json_is_text(tide_json_at(tide_json_at(root, "kernel_config"), "name"), "liger_kernel"))
        tide_imply(c, TIDE_SET_use_liger_kernel, "true");
    tide_imply(c, TIDE_SET_checkpointing, "full"); /* TrainingArguments */
    tide_imply(c, TIDE_SET_seq, "2048");
    tide_imply(c, TIDE_SET_load, "warmup");
}

/* DistributedInterface: there is a mesh on several ranks alone. */
static int64_t settle_ranks(tide_claims *c, const tide_json *root) {
    const tide_json *name = tide_json_at(tide_json_at(root, "dist_config"), "name");
    const char *dp = tide_known_of(c, TIDE_SET_parallel_dp), *world = c->arguments->asked_world_size,
               *given = world ? world : dp;
    int64_t ranks = 1;
    if (given) tide_text_to_i64(&ranks, tide_text_of(given));
    if (ranks > 1)
        tide_imply(c, TIDE_SET_parallel_kind, tide_json_is_text(name, "fsdp2") ? "fsdp2" : "ddp");
    else if (name)
        tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.kind",
                    "one GPU, on which the trainer shards nothing and computes in the weights' dtype: gpus=N plays one "
                    "of N ranks",
                    NULL);
    return ranks;
}

/* PeftPlugin("freeze"): FreezeParams. True after an error. */
static bool settle_freezing(tide_claims *c, const tide_json *root, int64_t ranks) {
    const tide_json *peft = tide_json_at(root, "peft_config"),
                    *casts = tide_json_at(peft, "cast_trainable_params_to_fp32");
    bool is_cast = !casts || tide_json_is_true(casts);
    if (!tide_json_is_text(tide_json_at(peft, "name"), "freeze")) return false;
    if (is_cast && ranks == 1)
        return !tide_claims_refuse(
            c, TIDE_ERR_CONFLICT, "peft_config/name",
            "freeze trains layers in fp32 beside frozen ones in half precision, which fails on "
            "one GPU: \"expected mat1 and mat2 to have the same dtype\"",
            "give gpus=N with dist_config's name: fsdp2, or cast_trainable_params_to_fp32: false");
    if (!is_cast)
        return !tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, "peft_config/cast_trainable_params_to_fp32",
                                   "false leaves what trains in half precision, which is not described", "true is");
    tide_freeze_tuning_settle(c, tide_format(c->arena, "%s/peft_config", c->at->place));
    return false;
}

static void settle_factory_v1(tide_claims *c) {
    const tide_claims_file *file = factory_v1_file(c);
    if (!file) return;
    c->at = file;
    c->inputs->program = "LLaMA-Factory";
    if (refuse_other_trainers(c, file)) return;
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    if (!c->arguments->asked_trainer) tide_imply(c, TIDE_SET_trainer, "llama_factory_v1");
    settle_defaults(c, file->root);
    int64_t ranks = settle_ranks(c, file->root), rows = tide_fact_int(c, TIDE_FACT_step_batch, 0), batch = 1;
    if (settle_freezing(c, file->root, ranks)) return;
    const char *micro = tide_known_of(c, TIDE_SET_batch);
    if (micro) tide_text_to_i64(&batch, tide_text_of(micro));
    if (rows > 0 && batch > 0 && rows % (ranks * batch) == 0)
        tide_settle(c, TIDE_FACT_step_batch, TIDE_SET_grad_accum,
                    tide_format(c->arena, "%" PRId64, rows / (ranks * batch)));
    else if (rows > 0)
        tide_claims_refuse(c, TIDE_ERR_CONFLICT, "global_batch_size",
                           "\"Global batch size must be divisible by DP size and micro batch size.\"",
                           "give gpus=N for as many ranks");
}

static bool is_of_factory_v1(const tide_json *root) {
    static const char *const keys[] = {"dist_config", "peft_config", "kernel_config", "quant_config", "model_class"};
    bool is = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) is = is || tide_json_at(root, keys[i]);
    bool is_v1 = tide_json_at(root, "micro_batch_size") || tide_json_at(root, "dist_config") ||
                 tide_json_is(tide_json_at(root, "model"), TIDE_JSON_STRING);
    return is && is_v1 && !tide_json_at(root, "model_name_or_path") && !tide_json_at(root, "model_type");
}

static void read_factory_v1(tide_reading *r, tide_json *root) {
    if (tide_json_at(tide_json_at(root, "peft_config"), "export_dir"))
        tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, "merges or exports a model; it trains nothing",
                         "give the file that trains, or mode=infer");
    else
        tide_claims_add(r->claims, &tide_llama_factory_v1_reader, root, r->name, r->place);
}

const tide_reader tide_llama_factory_v1_reader = {.title = "a configuration of LLaMA-Factory's v1 trainer",
                                                  .recognises = is_of_factory_v1,
                                                  .read = read_factory_v1,
                                                  .keys = &factory_v1_keys,
                                                  .trains = true,
                                                  .precedence = 2,
                                                  .settle = settle_factory_v1};
