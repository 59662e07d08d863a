/* SPDX-License-Identifier: Apache-2.0 */
/* What files that start training mean together, as interpreted by HF Trainer (transformers 5.23) and Accelerate (1.15).
 */
#include "job/readers/claims.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"

/* FSDP2 as `accelerate launch` says it: FSDP_VERSION. */
static bool launches_fsdp2(const tide_claims *c) {
    return tide_fact_is(c, TIDE_FACT_distributed, "fsdp") && tide_fact_int(c, TIDE_FACT_fsdp_version, 1) == 2;
}

static void settle_checkpointing(tide_claims *c) {
    bool is_on = tide_fact_is(c, TIDE_FACT_checkpointing, "true");
    const char *said = tide_fact_of(c, TIDE_FACT_checkpointing);
    if (tide_trl_kind(c) && !said) is_on = true; /* trl/trainer/base_config.py, like bf16 in tide_mixed_precision() */
    if (said && !is_on && !tide_fact_is(c, TIDE_FACT_checkpointing, "false"))
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/checkpointing",
                    tide_format(c->arena, "gradient_checkpointing: %s is not described; it is treated as true", said),
                    NULL);
    bool is_named = said && !tide_fact_is(c, TIDE_FACT_checkpointing, "false");
    if (tide_fact_is(c, TIDE_FACT_fsdp_checkpointing, "true")) {
        tide_settle(c, TIDE_FACT_fsdp_checkpointing, TIDE_SET_checkpointing, "full");
    } else if (is_on || is_named) {
        bool is_turned = tide_claims_have(c, TIDE_PROGRAM_llama_factory) && launches_fsdp2(c), /* checkpointing.py */
            is_reentrant = tide_fact_is(c, TIDE_FACT_reentrant, "true") && !is_turned;
        bool is_selective = tide_trl_kind(c) && tide_fact_is(c, TIDE_FACT_selective, "true");
        if (is_selective) tide_settle(c, TIDE_FACT_selective, TIDE_SET_checkpointing, "selective");
        tide_settle(c, TIDE_FACT_checkpointing, TIDE_SET_checkpointing, is_reentrant ? "full_reentrant" : "full");
        if (c->facts[TIDE_FACT_reentrant])
            tide_settle(c, TIDE_FACT_reentrant, TIDE_SET_checkpointing, is_reentrant ? "full_reentrant" : "full");
    } else if (said) {
        tide_settle(c, TIDE_FACT_checkpointing, TIDE_SET_checkpointing, "none");
    }
}

void tide_freeze_tuning_settle(tide_claims *c, const char *place) {
    static const tide_fact facts[] = {TIDE_FACT_finetuning, TIDE_FACT_trainable_layers, TIDE_FACT_trainable_modules,
                                      TIDE_FACT_extra_modules, TIDE_FACT_llama_pro};
    const char *modules = tide_fact_of(c, TIDE_FACT_trainable_modules);
    c->inputs->freeze_tuning = (tide_freeze_tuning){.is_asked = true,
                                                    .is_llama_pro = tide_fact_is(c, TIDE_FACT_llama_pro, "true"),
                                                    .layers = tide_fact_int(c, TIDE_FACT_trainable_layers, 2),
                                                    .place = place,
                                                    .modules = modules ? modules : "all",
                                                    .extra_modules = tide_fact_of(c, TIDE_FACT_extra_modules)};
    for (size_t i = 0; i < TIDE_COUNT_OF(facts); i++)
        if (c->facts[facts[i]]) c->facts[facts[i]]->effect = TIDE_KEY_USED;
    if (tide_known_of(c, TIDE_SET_quant))
        tide_error(c->diags, TIDE_ERR_CONFLICT, place,
                   "\"Quantized models can only be used for the LoRA or OFT tuning.\"", NULL);
}

static void settle_finetuning(tide_claims *c) {
    const char *said = tide_fact_of(c, TIDE_FACT_finetuning);
    bool is_lora = tide_fact_is(c, TIDE_FACT_finetuning, "lora"),
         is_qlora = tide_fact_is(c, TIDE_FACT_finetuning, "qlora");
    bool is_of_factory = tide_claims_have(c, TIDE_PROGRAM_llama_factory),
         is_oft = is_of_factory && tide_fact_is(c, TIDE_FACT_finetuning, "oft"),
         is_freeze = is_of_factory && tide_fact_is(c, TIDE_FACT_finetuning, "freeze");
    if (said && !is_lora && !is_qlora && !is_oft && !is_freeze && !tide_fact_is(c, TIDE_FACT_finetuning, "full")) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_finetuning],
                   tide_format(c->arena, "%s=%s is not described", c->facts[TIDE_FACT_finetuning]->key, said),
                   "lora, qlora and full are");
        return;
    }
    if (is_lora || is_qlora) tide_settle(c, TIDE_FACT_finetuning, TIDE_SET_adapter, "lora");
    if (is_oft) tide_settle(c, TIDE_FACT_finetuning, TIDE_SET_adapter, "oft");
    if (is_qlora) tide_settle(c, TIDE_FACT_finetuning, TIDE_SET_quant, "nf4");
    if (is_freeze) tide_freeze_tuning_settle(c, c->fact_places[TIDE_FACT_finetuning]);
    if (is_lora || is_qlora || is_oft) return;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) /* options of adapters that are not created */
        if (c->settings[id] && !c->settings[TIDE_SET_adapter] && strncmp(tide_settings[id].name, "adapter.", 8) == 0) {
            c->settings[id]->effect = TIDE_KEY_IGNORED;
            c->settings[id] = NULL;
        }
}

static void settle_quant_type(tide_claims *c) {
    const tide_file_key *quant = c->settings[TIDE_SET_quant];
    const char *type = tide_fact_of(c, TIDE_FACT_quant_type);
    if (!type || !quant || strcmp(quant->taken, "nf4") != 0) return;
    c->settings[TIDE_SET_quant] = NULL;
    tide_settle(c, TIDE_FACT_quant_type, TIDE_SET_quant, tide_lowered(c->arena, tide_text_of(type)));
}

static void settle_model(tide_claims *c) {
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
}

/* LLaMA-Factory's hparams/finetuning_args.py, swift/arguments/tuner_args.py: by default the vision tower and the
 * projector are frozen. */
static void settle_parts(tide_claims *c) {
    static const tide_fact facts[] = {TIDE_FACT_freezes_vision, TIDE_FACT_freezes_projector,
                                      TIDE_FACT_freezes_language};
    bool has_parts = tide_claims_have(c, TIDE_PROGRAM_llama_factory) || tide_claims_have(c, TIDE_PROGRAM_ms_swift);
    for (unsigned i = 0; i < TIDE_COUNT_OF(facts) && has_parts; i++) {
        bool is_frozen =
            c->facts[facts[i]] ? tide_fact_is(c, facts[i], "true") : facts[i] != TIDE_FACT_freezes_language;
        if (is_frozen) c->inputs->frozen_parts |= 1u << i;
        if (c->facts[facts[i]]) c->facts[facts[i]]->effect = TIDE_KEY_USED;
    }
    c->inputs->image_max_pixels = tide_fact_int(c, TIDE_FACT_image_max_pixels, 0);
    if (c->facts[TIDE_FACT_image_max_pixels]) c->facts[TIDE_FACT_image_max_pixels]->effect = TIDE_KEY_USED;
}

/* Defaults of TrainingArguments. */
static void settle_trainer(tide_claims *c) {
    tide_imply(c, TIDE_SET_batch, "8");
    tide_imply(c, TIDE_SET_optimizer, "adamw_fused");
    tide_imply(c, TIDE_SET_param_groups, "trainer");
    tide_imply(c, TIDE_SET_use_cache, "false");
}

static void settle_clip(tide_claims *c) {
    const char *clip = tide_fact_of(c, TIDE_FACT_clip);
    int64_t pico = 0;
    if (!clip && !tide_claims_train(c)) return;
    if (!clip) clip = "1.0";
    if (tide_decimal_read(&pico, tide_text_of(clip)) != TIDE_DECIMAL_OK || pico <= 0) return;
    tide_settle(c, TIDE_FACT_clip, TIDE_SET_clip, clip);
}

static bool is_known_as(const tide_claims *c, tide_setting_id id, const char *value) {
    const char *known = tide_known_of(c, id);
    return known && strcmp(known, value) == 0;
}

static bool trains_adapters(const tide_claims *c) {
    return tide_known_of(c, TIDE_SET_adapter) && !is_known_as(c, TIDE_SET_adapter, "none");
}

/* LLaMA-Factory: model/loader.py (torch_dtype: auto), model/adapter.py (cast_trainable_params_to_fp32). */
static void settle_factory_loading(tide_claims *c, bool is_mapped) {
    const char *asked = c->arguments->asked_trainer;
    bool is_played = !asked || tide_text_matches_one(tide_text_of(asked), "hf|dpo|kto");
    if (!is_played || !tide_claims_have(c, TIDE_PROGRAM_llama_factory)) return;
    tide_imply(c, TIDE_SET_dtype, "auto");
    tide_imply(c, TIDE_SET_trainer_program, "llama_factory");
    if (is_mapped) tide_imply(c, TIDE_SET_load, "warmup"); /* model/patcher.py, patch_config(): device_map */
    if (tide_fact_is(c, TIDE_FACT_pure, "true")) tide_settle(c, TIDE_FACT_pure, TIDE_SET_trainer_pure_bf16, "true");
}

/* Without sharding: weights as they are loaded, products in half precision. */
static void settle_autocast(tide_claims *c) {
    const char *mixed = tide_mixed_precision(c);
    settle_factory_loading(c, true);
    if (!mixed || strcmp(mixed, "none") == 0 || strcmp(mixed, "no") == 0) return;
    if (tide_fact_is(c, TIDE_FACT_pure, "true")) {
        tide_settle(c, TIDE_FACT_pure, TIDE_SET_dtype, "bf16");
        return;
    }
    if (strcmp(mixed, "bf16") != 0 && strcmp(mixed, "fp16") != 0) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[tide_mixed_precision_fact(c)],
                   tide_format(c->arena, "mixed precision in %s is not described", mixed), "bf16 and fp16 are");
        return;
    }
    tide_settle(c, tide_mixed_precision_fact(c), TIDE_SET_autocast, mixed);
    if (tide_claims_have(c, TIDE_PROGRAM_llama_factory)) /* without its trainer */
        tide_imply(c, TIDE_SET_dtype, c->settings[TIDE_SET_adapter] ? mixed : "fp32");
    bool scales_gradients = strcmp(mixed, "fp16") == 0 && !trains_adapters(c); /* which are in fp32 */
    if (!scales_gradients || c->settings[TIDE_SET_dtype]) return;
    tide_imply(c, TIDE_SET_dtype, "fp32");
    tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/dtype",
                "fp32 weights, the only ones with which GradScaler supports fp16: the script must load them like that",
                NULL);
}

/* FullyShardedDataParallelPlugin: FSDP_CPU_RAM_EFFICIENT_LOADING, which `accelerate launch` sets, to true by default,
 * and TrainingArguments.fsdp_config, to false. */
static bool loads_on_one_rank(const tide_claims *c) {
    return c->facts[TIDE_FACT_fsdp_ram_efficient] ? tide_fact_is(c, TIDE_FACT_fsdp_ram_efficient, "true")
                                                  : !c->facts[TIDE_FACT_fsdp] && c->facts[TIDE_FACT_distributed];
}

/* fsdp2_prepare_model(), for a Trainer's model. */
static void settle_ram_efficiency(tide_claims *c) {
    const tide_file_key *kind = c->settings[TIDE_SET_parallel_kind], *trainer = c->settings[TIDE_SET_trainer];
    const char *asked = c->arguments->asked_trainer, *played = asked ? asked : trainer ? trainer->taken : "none";
    bool is_read = kind && strcmp(kind->taken, "fsdp2") == 0 && strcmp(played, "none") != 0 &&
                   strcmp(played, "llama_factory_v1") != 0 && !tide_known_of(c, TIDE_SET_quant);
    if (is_read && loads_on_one_rank(c)) tide_imply(c, TIDE_SET_parallel_meta_init, "true");
    if (c->facts[TIDE_FACT_fsdp_ram_efficient])
        c->facts[TIDE_FACT_fsdp_ram_efficient]->effect = is_read ? TIDE_KEY_USED : TIDE_KEY_IGNORED;
}

/* The words in TrainingArguments.fsdp besides auto_wrap: offload, and a strategy, which is returned. */
static const char *settle_fsdp_words(tide_claims *c, const char *strategy) {
    const char *words = tide_fact_of(c, TIDE_FACT_fsdp);
    tide_text rest = tide_text_of(words && strcmp(words, "true") != 0 ? words : ""), piece;
    char separator = memchr(rest.at, ',', rest.length) ? ',' : ' ';
    while (tide_piece_next(&rest, separator, &piece)) {
        const char *word = tide_lowered(c->arena, tide_trimmed(piece));
        if (!word[0] || strcmp(word, "auto_wrap") == 0) continue;
        if (strcmp(word, "offload") == 0)
            tide_imply(c, TIDE_SET_parallel_offload, "true");
        else
            strategy = tide_text_copy(c->arena, tide_trimmed(piece));
    }
    return strategy;
}

/* The name of a strategy, given by name or number, in torch.distributed.fsdp's spelling. */
static const char *sharding_strategy(tide_claims *c, const char *given) {
    static const char *const numbered[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                           "_HYBRID_SHARD_ZERO2"};
    char *upper = tide_text_copy(c->arena, tide_text_of(given));
    for (char *at = upper; *at; at++)
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    int64_t number = 0;
    if (tide_text_to_i64(&number, tide_text_of(upper)) && number >= 1 && number <= 5) return numbered[number - 1];
    return strcmp(upper, "HYBRID_SHARD_ZERO2") == 0 ? numbered[4] : upper;
}

/* FullyShardedDataParallelPlugin.__post_init__ uses FSDP_SHARDING_STRATEGY, which `accelerate launch` sets from
 * fsdp_sharding_strategy, or FULL_SHARD; it ignores reshard_after_forward and TrainingArguments. */
static const char *strategy_of_plugin(tide_claims *c, const char *words) {
    bool is_launched = c->facts[TIDE_FACT_distributed] && tide_fact_of(c, TIDE_FACT_fsdp_strategy);
    tide_fact said = is_launched || !c->facts[TIDE_FACT_fsdp_reshard]
                         ? c->facts[TIDE_FACT_fsdp_strategy] ? TIDE_FACT_fsdp_strategy : TIDE_FACT_fsdp
                         : TIDE_FACT_fsdp_reshard;
    const char *other = said == TIDE_FACT_fsdp_reshard ? tide_fact_of(c, said) : words;
    if (is_launched) return sharding_strategy(c, words);
    if (other && strcmp(sharding_strategy(c, other), "FULL_SHARD") != 0 && c->facts[said])
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, c->fact_places[said],
                    tide_format(c->arena,
                                "%s has no effect: for FSDP1 accelerate 1.15 uses FSDP_SHARDING_STRATEGY, or "
                                "FULL_SHARD",
                                other),
                    "give fsdp_sharding_strategy in a file of `accelerate launch`");
    return "FULL_SHARD";
}

static void settle_fsdp1(tide_claims *c, const char *words, bool of_trainer) {
    tide_fact said = c->facts[TIDE_FACT_fsdp_strategy]  ? TIDE_FACT_fsdp_strategy
                     : c->facts[TIDE_FACT_fsdp_reshard] ? TIDE_FACT_fsdp_reshard
                                                        : TIDE_FACT_fsdp;
    const char *strategy = strategy_of_plugin(c, words);
    if (c->facts[said]) tide_settle(c, said, TIDE_SET_parallel_sharding_strategy, strategy);
    tide_imply(c, TIDE_SET_parallel_use_orig_params, of_trainer ? "true" : "false");
    if (of_trainer) tide_imply(c, TIDE_SET_parallel_sync_module_states, "true"); /* training_args.py */
    tide_imply(c, TIDE_SET_parallel_backward_prefetch, "none");
    bool is_hybrid = strstr(strategy, "HYBRID") != NULL;
    int64_t processes = tide_fact_int(c, TIDE_FACT_processes, 0), machines = tide_fact_int(c, TIDE_FACT_machines, 1);
    if (is_hybrid && machines > 0 && processes > 0 && processes % machines == 0) /* shards within a node */
        tide_settle(c, TIDE_FACT_machines, TIDE_SET_parallel_hybrid,
                    tide_format(c->arena, "%" PRId64, processes / machines));
}

/* torchao's optimizers accept DTensors; bitsandbytes', which are similar otherwise, do not. */
static void settle_fsdp2_optimizer(tide_claims *c) {
    tide_file_key *said = c->settings[TIDE_SET_optimizer];
    const char *value = said && said->value ? said->value : "";
    if (!tide_text_matches_one(tide_text_of(value), "adamw_torch_8bit|adamw_torch_4bit|ao_adamw_*")) return;
    said->taken = "adamw_fused";
    tide_report(
        c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/optimizer",
        tide_format(c->arena, "%s under FSDP2 is treated as adamw_fused, whose states are not quantised", value), NULL);
}

static void settle_fsdp2(tide_claims *c, const char *strategy) {
    settle_fsdp2_optimizer(c);
    bool keeps = strategy && tide_text_same(tide_text_of(strategy), TIDE_TEXT("shard_grad_op"));
    tide_settle(c, TIDE_FACT_fsdp_reshard, TIDE_SET_parallel_reshard_after_forward,
                tide_fact_is(c, TIDE_FACT_fsdp_reshard, "false") || keeps ? "false" : "true");
}

enum { MOST_PROCESSES = 65536 };

static int64_t context_ranks(const tide_claims *c) {
    int64_t ranks = tide_fact_int(c, TIDE_FACT_context_ranks, 1);
    return ranks > 1 && ranks <= MOST_PROCESSES ? ranks : 1;
}

/* The first size of a ParallelismConfig in the files; TIDE_FACT_NONE: there is none. */
static tide_fact parallelism_size(const tide_claims *c) {
    static const tide_fact sizes[] = {TIDE_FACT_dp_replicate, TIDE_FACT_dp_shard, TIDE_FACT_sequence_ranks,
                                      TIDE_FACT_context_ranks};
    for (size_t i = 0; i < TIDE_COUNT_OF(sizes); i++)
        if (c->facts[sizes[i]] && strstr(c->fact_places[sizes[i]], "parallelism_config")) return sizes[i];
    return TIDE_FACT_NONE;
}

/* accelerate/parallelism_config.py, _validate_accelerator(): whether the sizes are not those of the ranks. */
static bool refuses_sizes(tide_claims *c) {
    int64_t copies = tide_fact_int(c, TIDE_FACT_dp_replicate, 1), shards = tide_fact_int(c, TIDE_FACT_dp_shard, 1),
            processes = tide_fact_int(c, TIDE_FACT_processes, 0);
    tide_fact said = parallelism_size(c);
    bool is_sane = copies <= MOST_PROCESSES && shards <= MOST_PROCESSES;
    int64_t total = is_sane ? copies * shards * context_ranks(c) : 0;
    if (!said) return false;
    if (tide_fact_int(c, TIDE_FACT_sequence_ranks, 1) > 1) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_sequence_ranks],
                   "sp_size cuts the sequence by DeepSpeed's Ulysses; what accelerate does with it under FSDP and DDP "
                   "is not described",
                   "distributed_type: DEEPSPEED, or cp_size with FSDP");
        return true;
    }
    if (processes < 1 || total == 1 || total == processes) return false;
    tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[said],
               tide_format(c->arena,
                           "\"ParallelismConfig total_size (%" PRId64 ") does not match num_processes (%" PRId64 ").\"",
                           total, processes),
               "\"Please adjust dp_replicate_size/ dp_shard_size/tp_size/cp_size/sp_size.\"");
    return true;
}

/* Shards within a group, over the joint mesh of dp_shard and cp, and replicas across groups. */
static void settle_groups(tide_claims *c) {
    int64_t copies = tide_fact_int(c, TIDE_FACT_dp_replicate, 1),
            ranks = tide_fact_int(c, TIDE_FACT_dp_shard, 1) * context_ranks(c);
    tide_fact said = parallelism_size(c);
    if (!said || refuses_sizes(c)) return;
    if (ranks <= 1 && (copies > 1 || tide_fact_int(c, TIDE_FACT_processes, 0) > 1))
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[said],
                   "\"FSDP is enabled but the parallelism config has no dimension for FSDP to shard across\"",
                   "give dp_shard_size, or parallel.kind=ddp for replicas only");
    else if (copies > 1)
        tide_settle(c, TIDE_FACT_dp_replicate, TIDE_SET_parallel_hybrid, tide_format(c->arena, "%" PRId64, ranks));
}

static void settle_fsdp_units(tide_claims *c, bool of_trainer) {
    if (tide_fact_is(c, TIDE_FACT_fsdp_policy, "size_based_wrap"))
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/parallel.wrap",
                    "units by size are not described: each block is treated as one", NULL);
    bool wraps =
        tide_fact_of(c, TIDE_FACT_fsdp_policy) ? !tide_fact_is(c, TIDE_FACT_fsdp_policy, "no_wrap") : of_trainer;
    tide_settle(c, TIDE_FACT_fsdp_policy, TIDE_SET_parallel_wrap, wraps ? "layer" : "root");
}

/* Accelerator.prepare_model and fsdp2_prepare_model: with mixed precision, trainable parameters are kept in fp32. */
static void settle_fsdp(tide_claims *c) {
    bool of_trainer = c->facts[TIDE_FACT_fsdp] != NULL;
    bool is_two = tide_fact_int(c, TIDE_FACT_fsdp_version, of_trainer ? 2 : 1) == 2;
    const char *mixed = tide_mixed_precision(c), *kind = is_two ? "fsdp2" : "fsdp1";
    const char *strategy = settle_fsdp_words(c, tide_fact_of(c, TIDE_FACT_fsdp_strategy));
    tide_settle(c, of_trainer ? TIDE_FACT_fsdp : TIDE_FACT_distributed, TIDE_SET_parallel_kind, kind);
    if (c->facts[TIDE_FACT_fsdp_version]) tide_settle(c, TIDE_FACT_fsdp_version, TIDE_SET_parallel_kind, kind);
    if (tide_claims_have(c, TIDE_PROGRAM_llama_factory) && !is_two && !loads_on_one_rank(c))
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[of_trainer ? TIDE_FACT_fsdp : TIDE_FACT_distributed],
                   "LLaMA-Factory loads the model on the device before FSDP1 shards it, which is not described",
                   "fsdp_cpu_ram_efficient_loading: true, fsdp_version: 2, or DeepSpeed");
    settle_factory_loading(c, is_two && !loads_on_one_rank(c));
    if (context_ranks(c) > 1 && !is_two)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_context_ranks],
                   "\"ParallelismConfig is only compatible DistributedType.FSDP (version 2)\"", "fsdp_version: 2");
    if (is_two) settle_groups(c);
    if (is_two)
        settle_fsdp2(c, strategy);
    else
        settle_fsdp1(c, strategy, of_trainer);
    settle_fsdp_units(c, of_trainer);
    if (!mixed || (strcmp(mixed, "bf16") != 0 && strcmp(mixed, "fp16") != 0)) return;
    tide_settle(c, tide_mixed_precision_fact(c), TIDE_SET_parallel_param_dtype, mixed);
    tide_imply(c, TIDE_SET_parallel_reduce_dtype, mixed);
    tide_imply(c, is_two ? TIDE_SET_parallel_output_dtype : TIDE_SET_parallel_buffer_dtype, mixed);
    tide_imply(c, TIDE_SET_autocast, mixed);
    /* FSDP1 leaves frozen parameters as they were loaded, packed weights included */
    tide_imply(c, TIDE_SET_dtype, !is_two && c->settings[TIDE_SET_quant_storage] ? mixed : "fp32");
}

/* accelerate/parallelism_config.py: for a model that from_pretrained() has sharded by its plan. */
static void settle_tensor_parallel(tide_claims *c, int64_t ranks) {
    int64_t processes = tide_fact_int(c, TIDE_FACT_processes, ranks);
    tide_settle(c, TIDE_FACT_tensor_ranks, TIDE_SET_parallel_tp, tide_format(c->arena, "%" PRId64, ranks));
    tide_imply(c, TIDE_SET_parallel_kind, "tp");
    tide_imply(c, TIDE_SET_parallel_tp_plan, "auto");
    if (c->facts[TIDE_FACT_processes]) c->facts[TIDE_FACT_processes]->effect = TIDE_KEY_USED;
    if (processes != ranks || tide_fact_int(c, TIDE_FACT_dp_shard, 1) > 1 ||
        tide_fact_int(c, TIDE_FACT_dp_replicate, 1) > 1)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_tensor_ranks],
                   "accelerate 1.15 cannot fully_shard() what transformers 5.23 has sharded: \"cannot import name "
                   "'ReplicateParallel' from 'transformers.integrations.tensor_parallel'\"",
                   "similar: parallel.kind=tp parallel.tp_plan=auto with parallel.tp and parallel.dp, which "
                   "from_pretrained() combines by DistributedConfig(tp_size=..., fsdp_size=...)");
    settle_autocast(c);
    settle_clip(c);
}

static void settle_processes(tide_claims *c) {
    int64_t processes = tide_fact_int(c, TIDE_FACT_processes, 0);
    const tide_json *autotp = tide_json_at(tide_json_at(c->of_deepspeed.root, "tensor_parallel"), "autotp_size");
    int64_t sequence_ranks = tide_fact_int(c, TIDE_FACT_sequence_ranks, 1),
            ranks = tide_json_is(autotp, TIDE_JSON_NUMBER) && autotp->integer > 1 ? autotp->integer : 1;
    if (sequence_ranks > 1 && sequence_ranks <= MOST_PROCESSES) {
        ranks *= sequence_ranks;
        tide_settle(c, TIDE_FACT_sequence_ranks, TIDE_SET_parallel_sequence_parallel_size,
                    tide_format(c->arena, "%" PRId64, sequence_ranks));
    }
    if (context_ranks(c) > 1) {
        ranks *= context_ranks(c);
        tide_settle(c, TIDE_FACT_context_ranks, TIDE_SET_parallel_cp,
                    tide_format(c->arena, "%" PRId64, context_ranks(c)));
    }
    if (processes < 1) return;
    tide_settle(c, TIDE_FACT_processes, TIDE_SET_parallel_dp, tide_format(c->arena, "%" PRId64, processes / ranks));
    if (processes % ranks)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_processes],
                   tide_format(c->arena, "%" PRId64 " processes are not a multiple of %s=%" PRId64, processes,
                               context_ranks(c) > 1 ? "cp_size"
                               : sequence_ranks > 1 ? "sp_size"
                                                    : "autotp_size",
                               ranks),
                   NULL);
    int64_t machines = tide_fact_int(c, TIDE_FACT_machines, 1);
    if (machines > 1 && processes % machines)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_machines],
                   tide_format(c->arena, "num_processes=%" PRId64 " is not a multiple of num_machines=%" PRId64,
                               processes, machines),
                   NULL);
    else if (machines > 1)
        tide_settle(c, TIDE_FACT_machines, TIDE_SET_parallel_local_world,
                    tide_format(c->arena, "%" PRId64, processes / machines));
}

/* DeepSpeedPlugin without a DeepSpeed file: sizes have DeepSpeed's defaults. */
static void settle_deepspeed_plugin(tide_claims *c) {
    int64_t stage = tide_fact_int(c, TIDE_FACT_zero_stage, 2);
    const char *mixed = tide_mixed_precision(c), *clip = tide_fact_of(c, TIDE_FACT_zero_clip);
    tide_settle(c, c->facts[TIDE_FACT_zero_stage] ? TIDE_FACT_zero_stage : TIDE_FACT_distributed,
                TIDE_SET_parallel_kind, tide_format(c->arena, "zero%" PRId64, stage));
    if (mixed)
        tide_settle(c, tide_mixed_precision_fact(c), TIDE_SET_parallel_half, strcmp(mixed, "no") == 0 ? "none" : mixed);
    if (clip && strcmp(clip, "none") != 0 && strcmp(clip, "auto") != 0)
        tide_settle(c, TIDE_FACT_zero_clip, TIDE_SET_clip, clip);
    else if (!clip || strcmp(clip, "auto") == 0)
        tide_settle(c, TIDE_FACT_clip, TIDE_SET_clip,
                    tide_claims_train(c) && tide_fact_of(c, TIDE_FACT_clip) ? tide_fact_of(c, TIDE_FACT_clip) : "1.0");
    if (stage == 3) tide_imply(c, TIDE_SET_parallel_zero_init, "true");
}

/* A path that refers to a missing file. */
static bool lacks_deepspeed(tide_claims *c) {
    const char *path = tide_fact_of(c, TIDE_FACT_deepspeed);
    if (!path || c->of_deepspeed.root || tide_published_take(c, path)) return false;
    tide_text name = tide_base_name(tide_text_of(path));
    return !tide_error(c->diags, TIDE_ERR_FIELD_MISSING, c->fact_places[TIDE_FACT_deepspeed],
                       tide_format(c->arena, "%s refers to %s", c->facts[TIDE_FACT_deepspeed]->key,
                                   tide_shown(c->arena, tide_text_of(path))),
                       tide_format(c->arena, "give %s too", tide_shown(c->arena, name)));
}

/* transformers/trainer.py, _build_accelerator_args; LLaMA-Factory: hparams/parser.py, get_train_args(). */
static void settle_ddp(tide_claims *c, bool is_said) {
    bool recomputes =
             c->settings[TIDE_SET_checkpointing] && strcmp(c->settings[TIDE_SET_checkpointing]->taken, "none") != 0,
         is_settled = tide_claims_have(c, TIDE_PROGRAM_llama_factory) && trains_adapters(c);
    if (is_said)
        tide_settle(c, TIDE_FACT_distributed, TIDE_SET_parallel_kind, "ddp");
    else
        tide_imply(c, TIDE_SET_parallel_kind, "ddp");
    if (tide_claims_train(c))
        tide_imply(c, TIDE_SET_parallel_find_unused_parameters, recomputes || is_settled ? "false" : "true");
}

/* llamafactory/launcher.py: torchrun with a process for each GPU. */
static bool is_launched_by_factory(const tide_claims *c) {
    int64_t ranks = 1;
    const char *asked = c->arguments->asked_world_size;
    return tide_claims_have(c, TIDE_PROGRAM_llama_factory) && asked && tide_text_to_i64(&ranks, tide_text_of(asked)) &&
           ranks > 1;
}

static void settle_strategy(tide_claims *c) {
    bool with_fsdp = tide_fact_of(c, TIDE_FACT_fsdp) && !tide_fact_is(c, TIDE_FACT_fsdp, "false");
    if (tide_claims_have(c, TIDE_PROGRAM_axolotl) && !c->facts[TIDE_FACT_fsdp]) /* also with only fsdp_config */
        with_fsdp = c->facts[TIDE_FACT_fsdp_version] || c->facts[TIDE_FACT_fsdp_policy];
    const char *type = tide_fact_of(c, TIDE_FACT_distributed);
    if (lacks_deepspeed(c)) return;
    if (c->facts[TIDE_FACT_deepspeed]) c->facts[TIDE_FACT_deepspeed]->effect = TIDE_KEY_USED;
    int64_t tensor_ranks = tide_fact_int(c, TIDE_FACT_tensor_ranks, 1);
    if (tensor_ranks > 1) {
        settle_tensor_parallel(c, tensor_ranks);
        return;
    }
    settle_processes(c);
    if (c->of_deepspeed.root) {
        tide_deepspeed_read(c);
        settle_factory_loading(c, !is_known_as(c, TIDE_SET_parallel_kind, "zero3"));
    } else if (with_fsdp || tide_fact_is(c, TIDE_FACT_distributed, "fsdp")) {
        settle_fsdp(c);
        settle_clip(c);
    } else if (tide_fact_is(c, TIDE_FACT_distributed, "deepspeed")) {
        settle_deepspeed_plugin(c);
        settle_factory_loading(c, !is_known_as(c, TIDE_SET_parallel_kind, "zero3"));
    } else if (type && !tide_fact_is(c, TIDE_FACT_distributed, "no") &&
               !tide_fact_is(c, TIDE_FACT_distributed, "multi_gpu")) {
        tide_error(
            c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_distributed],
            tide_format(c->arena, "distributed_type: %s is not described", tide_shown(c->arena, tide_text_of(type))),
            "NO, MULTI_GPU, DEEPSPEED and FSDP are");
    } else if (context_ranks(c) > 1) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_context_ranks],
                   "context parallel ranks are described with FSDP2, which shards the model over them too",
                   "distributed_type: FSDP with fsdp_version: 2");
    } else {
        /* accelerate launch, and Ray Train: several processes are DDP unless something else is said */
        bool is_ddp = type ? tide_fact_is(c, TIDE_FACT_distributed, "multi_gpu")
                           : tide_fact_int(c, TIDE_FACT_processes, 1) > 1 || is_launched_by_factory(c);
        if (is_ddp) refuses_sizes(c);
        if (is_ddp) settle_ddp(c, type != NULL);
        settle_autocast(c);
        settle_clip(c);
    }
}

/* Without a trainer, the loop scales losses in fp16; the Trainer does so itself. */
static void settle_scaler(tide_claims *c) {
    const tide_file_key *autocast = c->settings[TIDE_SET_autocast], *trainer = c->settings[TIDE_SET_trainer];
    const char *asked = c->arguments->asked_trainer, *played = asked ? asked : trainer ? trainer->taken : "none";
    bool is_fp16 = autocast && strcmp(autocast->taken, "fp16") == 0;
    if (is_fp16 && strcmp(played, "none") == 0) tide_imply(c, TIDE_SET_scaler, "true");
}

/* transformers/trainer.py, _get_train_sampler(): LengthGroupedSampler */
static void settle_sampler(tide_claims *c) {
    tide_file_key *key = c->facts[TIDE_FACT_groups_by_length];
    bool has_lengths = c->arguments->asked[TIDE_SET_lengths];
    if (!tide_fact_is(c, TIDE_FACT_groups_by_length, "true")) return;
    key->effect = has_lengths ? TIDE_KEY_UNSUPPORTED : TIDE_KEY_IGNORED;
    if (has_lengths)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_groups_by_length],
                    "puts samples of similar lengths into a batch, which is not described: batches take the lengths "
                    "in their order",
                    "give lengths in the order in which batches take them, and leave it out");
}

void tide_training_settle(tide_claims *c) {
    for (const tide_claims_file *file = c->first; file; file = file->next)
        if (tide_is_of_rl(file->reader)) return; /* whose launcher determines the number of processes */
    if (tide_claims_have(c, TIDE_PROGRAM_megatron_lm) || tide_claims_have(c, TIDE_PROGRAM_torchtitan))
        return; /* likewise */
    tide_default_facts(c);
    settle_model(c);
    settle_parts(c);
    settle_finetuning(c);
    settle_quant_type(c);
    tide_default_settings(c);
    settle_checkpointing(c);
    if (tide_claims_train(c)) settle_trainer(c);
    settle_strategy(c);
    if (tide_claims_train(c)) tide_trl_settle(c);
    settle_ram_efficiency(c);
    settle_scaler(c);
    settle_sampler(c);
}
