/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of NeMo-RL: examples/configs, nemo_rl/models/policy/__init__.py. */
#include "job/readers/claims.h"
#include "job/readers/rl_programs.h"

#include <string.h>

#include "base/units.h"

static const tide_key_row nemo_rl_packing_rows[] = {
    KEY_MATTERS("enabled", "packs rows of other lengths", ""),
    KEY_NEUTRAL("train_mb_tokens|logprob_mb_tokens|algorithm|microbatch_order|sequence_length_round|fuse_loss"),
};
RL_SWITCHED(nemo_rl_packing);

/* ---- policy/dtensor_cfg ---- */

static const tide_key_row nemo_rl_lora_rows[] = {
    KEY_SETS("dim", adapter_r, ""),
    KEY_SETS("alpha", adapter_alpha, ""),
    KEY_SETS("dropout", adapter_dropout, ""),
    KEY_SETS("match_all_linear", adapter_target_modules, "true=all-linear|false="),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_SETS("exclude_modules", adapter_exclude_modules, ""),
    KEY_MATTERS("use_triton", "runs adapters with separate kernels", ""),
    KEY_NEUTRAL("enabled|dropout_position|lora_A_init"),
};
RL_SWITCHED(nemo_rl_lora);

static const tide_key_row nemo_rl_backend_rows[] = {
    KEY_MATTERS("attn|linear|rms_norm|experts|dispatcher|enable_deepep", "runs layers with other kernels",
                "torch|sdpa"),
    KEY_NEUTRAL("fake_balanced_gate|enable_hf_state_dict_adapter|enable_fsdp_optimizations|gate_precision|rope_fusion"),
    KEY_NEUTRAL("_target_"),
};
RL_SECTION(nemo_rl_backend);

static const tide_key_row nemo_rl_automodel_rows[] = {
    KEY_SETS("attn_implementation", attention, KEY_ATTENTION),
    KEY_HOLDS("backend", nemo_rl_backend_keys),
    KEY_MATTERS("use_liger_kernel", "replaces kernels", ""),
    KEY_MATTERS("freeze_config", "freezes modules: name them in freeze", ""),
    KEY_NEUTRAL("force_hf|use_sdpa_patching"),
};
RL_SECTION(nemo_rl_automodel);

static const tide_key_row nemo_rl_dtensor_rows[] = {
    KEY_SETS("activation_checkpointing", checkpointing, "true=full|false=none"),
    KEY_SETS("cpu_offload", parallel_offload, ""),
    KEY_HOLDS("lora_cfg", nemo_rl_lora_keys),
    KEY_HOLDS("automodel_kwargs", nemo_rl_automodel_keys),
    KEY_MATTERS("dp_replicate_size", "shards over some of the ranks, with replicas across groups", "1"),
    KEY_MATTERS("moe_parallelizer", "shards experts differently", ""),
    KEY_NEUTRAL("_v2|enabled|env_vars|sequence_parallel|custom_parallel_plan|defer_fsdp_grad_sync"),
    KEY_NEUTRAL("clear_cache_every_n_steps"),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(nemo_rl_dtensor);

static const tide_key_row nemo_rl_megatron_rows[] = {
    KEY_REFUSED("enabled", "trains with Megatron-Core", ""), KEY_NEUTRAL("*"), /* after those that are refused */
};
RL_SWITCHED(nemo_rl_megatron);

/* ---- policy/generation ---- */

static const tide_key_row nemo_rl_engine_rows[] = {
    KEY_SETS("gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("tensor_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_SETS("max_model_len", trainer_vllm_max_model_length, ""),
    KEY_MATTERS("pipeline_parallel_size|expert_parallel_size", "shards the engine over ranks", "1"),
    KEY_MATTERS("kv_cache_dtype", "caches in another type", "auto"),
    KEY_MATTERS("precision", "generates in another type", "bfloat16"),
    KEY_MATTERS("enforce_eager", "leaves out CUDA graphs", ""),
    KEY_MATTERS("max_num_seqs", "changes the size of the engine's steps", ""),
    KEY_MATTERS("is_mx|quantization_ignored_layer_kws", "generates with quantised weights", ""),
    KEY_NEUTRAL("async_engine|cap_max_tokens_to_context|distributed_executor_backend|enable_*|enforce_monotonicity"),
    KEY_NEUTRAL(
        "env_vars|expose_http_server|http_*|limit_mm_per_prompt|load_format|logprobs_mode|num_*_layers_in_bf16"),
    KEY_NEUTRAL("reasoning_parser_plugin|reset_encoder_cache_after_weight_update|skip_tokenizer_init|use_deep_gemm"),
    KEY_NEUTRAL("use_tqdm|video|vllm_metrics_logger_interval|zmq_refit_server_port"),
};
RL_SECTION(nemo_rl_engine);

static const tide_key_row nemo_rl_colocated_rows[] = {
    KEY_SETS("enabled", trainer_vllm_mode, "true=colocate|false=server"),
    KEY_NEUTRAL("resources"),
};
RL_SECTION(nemo_rl_colocated);

static const tide_key_row nemo_rl_generation_rows[] = {
    KEY_SETS("backend", trainer_use_vllm, "vllm=true|*~true"),
    KEY_SAYS("max_new_tokens", completion, ""),
    KEY_HOLDS("vllm_cfg", nemo_rl_engine_keys),
    KEY_HOLDS("colocated", nemo_rl_colocated_keys),
    KEY_MATTERS("vllm_kwargs", "changes the engine that generates", ""),
    KEY_MATTERS("quant_cfg|real_quant", "generates with quantised weights", ""),
    KEY_NEUTRAL("bad_words|port_range_*|stop_strings|stop_token_ids|temperature|top_k|top_p|val_*|use_async_rollouts"),
    KEY_NEUTRAL("dynamo_cfg|mcore_generation_config|sglang_cfg|trtllm_cfg|trtllm_kwargs"), /* of other backends */
    KEY_NEUTRAL("refit_cfg|refit_transport|real_quant_*"),
};
RL_SECTION(nemo_rl_generation);

/* ---- policy ---- */

/* torch.optim's own: with foreach and fused false it processes one tensor after the other. */
static const tide_key_row nemo_rl_optimizer_kwargs_rows[] = {
    KEY_SETS("foreach", optimizer, "false=adamw_single|true="),
    KEY_SETS("fused", optimizer, "true=adamw_fused|false="),
    KEY_MATTERS("exp_avg_dtype|exp_avg_sq_dtype|master_weights|store_param_remainders", "keeps states in other dtypes",
                "float32"),
    KEY_NEUTRAL("lr|betas|eps|weight_decay"),
};
RL_SECTION(nemo_rl_optimizer_kwargs);

static const tide_key_row nemo_rl_optimizer_rows[] = {
    KEY_HOLDS("kwargs", nemo_rl_optimizer_kwargs_keys),
    KEY_MATTERS("name", "is another optimizer", "torch.optim.AdamW"),
};
RL_SECTION(nemo_rl_optimizer);

static const tide_key_row nemo_rl_switched_rows[] = {
    KEY_MATTERS("enabled", "trains additional parts", ""),
    KEY_NEUTRAL("aux_layer_indices|loss_weight|model_name|num_layers|reward_model_type"),
};
RL_SWITCHED(nemo_rl_switched);

static const tide_key_row nemo_rl_replay_rows[] = {KEY_MATTERS("enabled", "keeps the routing of experts", "")};
RL_SWITCHED(nemo_rl_replay);

static const tide_key_row nemo_rl_overrides_rows[] = {
    KEY_NEUTRAL("router_aux_loss_coef"),
    KEY_MATTERS("*", "changes the model's configuration", ""),
};
RL_SECTION(nemo_rl_overrides);

static const tide_key_row nemo_rl_policy_rows[] = {
    KEY_SAYS("model_name", model, ""),
    KEY_SETS("train_micro_batch_size", batch, ""),
    KEY_SETS("max_total_sequence_length", seq, ""),
    KEY_SETS("max_grad_norm", clip, ""),
    KEY_SETS("precision", parallel_param_dtype, "bfloat16=bf16|float16=fp16|float32=fp32"),
    KEY_HOLDS("dtensor_cfg", nemo_rl_dtensor_keys),
    KEY_HOLDS("megatron_cfg", nemo_rl_megatron_keys),
    KEY_HOLDS("generation", nemo_rl_generation_keys),
    KEY_HOLDS("sequence_packing|dynamic_batching", nemo_rl_packing_keys),
    KEY_HOLDS("optimizer", nemo_rl_optimizer_keys),
    KEY_HOLDS("draft|reward_model_cfg", nemo_rl_switched_keys),
    KEY_HOLDS("router_replay", nemo_rl_replay_keys),
    KEY_HOLDS("hf_config_overrides", nemo_rl_overrides_keys),
    KEY_MATTERS("activation_checkpointing_enabled", "checkpoints: say checkpointing", ""),
    KEY_MATTERS("quant_cfg", "trains quantised weights", ""),
    KEY_NEUTRAL("tokenizer|is_vlm|train_global_batch_size|generation_batch_size|logprob_batch_size|logprob_chunk_size"),
    KEY_NEUTRAL("make_sequence_length_divisible_by|offload_optimizer_for_logprob|refit_buffer_size_gb|scheduler"),
    KEY_NEUTRAL("dequantize_base_checkpoint|disable_modelopt_layer_spec|quant_*"),
};
RL_SECTION(nemo_rl_policy);

static const tide_key_row nemo_rl_grpo_rows[] = {
    KEY_SETS("num_generations_per_prompt", trainer_num_generations, ""),
    KEY_NEUTRAL("num_prompts_per_step|max_*|normalize_rewards|use_*|val_*|overlong_filtering|advantage_clip_*|seed"),
    KEY_NEUTRAL("dynamic_sampling_max_gen_batches|batch_multiplier|reward_shaping|reward_scaling|adv_estimator|"
                "seq_logprob_error_threshold|invalid_tool_call_advantage|malformed_thinking_advantage|async_grpo|"
                "stop_at_*|num_val_generations_per_prompt|debug_payload_metrics|deduplicate_multimodal_data|"
                "skip_reference_policy_logprobs_calculation|zero_variance_prompt_filtering"),
};
RL_SECTION(nemo_rl_grpo);

static const tide_key_row nemo_rl_rows[] = {
    KEY_HOLDS("policy", nemo_rl_policy_keys),
    KEY_HOLDS("grpo", nemo_rl_grpo_keys),
    KEY_NEUTRAL("sft|dpo|rm|ppo|distillation|loss_fn|value|value_loss_fn|teacher|teachers|on_policy_distillation"),
    KEY_NEUTRAL("data|data_plane|async_rl|cluster|checkpointing|logger|env|reward_penalties|defaults"),
};
RL_SECTION(nemo_rl);

/* The base of a recipe: "defaults", one name or a list with one name; NULL: none. */
static const tide_json *nemo_rl_base(const tide_json *root) {
    const tide_json *base = tide_json_at(root, "defaults");
    if (tide_json_is(base, TIDE_JSON_ARRAY) && base->count == 1) base = base->first;
    bool is_file = tide_json_is(base, TIDE_JSON_STRING) && tide_text_matches_one(base->text, "*.yaml|*.yml");
    return is_file ? base : NULL;
}

static bool is_of_nemo_rl(const tide_json *root) {
    static const char *const algorithms[] = {"grpo", "sft", "dpo", "rm", "ppo", "loss_fn", "distillation"};
    bool has_one = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(algorithms); i++) has_one |= tide_json_at(root, algorithms[i]) != NULL;
    static const char *const sections[] = {"policy", "cluster", "data_plane", "async_rl", "logger"};
    bool has_section = has_one;
    for (size_t i = 0; i < TIDE_COUNT_OF(sections); i++) has_section |= tide_json_at(root, sections[i]) != NULL;
    return (nemo_rl_base(root) && has_section) || (has_one && tide_json_at(tide_json_at(root, "policy"), "model_name"));
}

/* A recipe merged into its base (nemo_rl/utils/config.py, load_config_with_inheritance). */
static tide_json *nemo_rl_merged(tide_arena *arena, const tide_json *base, const tide_json *over) {
    tide_json *merged = tide_json_new(arena, TIDE_JSON_OBJECT);
    for (const tide_json *entry = base->first; entry; entry = entry->next) {
        const tide_json *other = tide_json_find(over, entry->key);
        bool both = tide_json_is(entry, TIDE_JSON_OBJECT) && tide_json_is(other, TIDE_JSON_OBJECT);
        bool is_defaults = tide_text_equal(entry->key, TIDE_TEXT("defaults"));
        tide_json_put(arena, merged, entry->key,
                      both ? nemo_rl_merged(arena, entry, other)
                           : tide_json_clone(arena, other && !is_defaults ? other : entry));
    }
    for (const tide_json *entry = over->first; entry; entry = entry->next)
        if (!tide_json_find(base, entry->key) && !tide_text_equal(entry->key, TIDE_TEXT("defaults")))
            tide_json_put(arena, merged, entry->key, tide_json_clone(arena, entry));
    return merged;
}

/* `name` as it is shown. */
static bool nemo_rl_builds_on(tide_arena *arena, const tide_json *root, const char *name) {
    const tide_json *base = nemo_rl_base(root);
    return base && strcmp(tide_shown(arena, tide_base_name(base->text)), name) == 0;
}

/* A complete file, or the base of another. */
static void read_nemo_rl(tide_reading *r, tide_json *root) {
    for (tide_claims_file *file = r->claims->first; file; file = file->next) {
        if (file->reader != &tide_nemo_rl_reader) continue;
        bool is_base = nemo_rl_builds_on(r->arena, file->root, r->name);
        if (!is_base && !nemo_rl_builds_on(r->arena, root, file->summary->name)) continue;
        file->root = is_base ? nemo_rl_merged(r->arena, root, file->root) : nemo_rl_merged(r->arena, file->root, root);
        file->summary->name = tide_format(r->arena, "%s, %s", file->summary->name, r->name);
        return;
    }
    tide_claims_add(r->claims, &tide_nemo_rl_reader, root, r->name, r->place);
}

/* nemo_automodel/components/_peft/module_matcher.py: "*" matches any characters. */
static void settle_nemo_rl_names(tide_claims *c, tide_setting_id setting) {
    tide_file_key *said = c->settings[setting];
    if (!said || !strchr(said->taken, '*')) return;
    const char *pattern = "";
    tide_text rest = tide_text_of(said->taken), name;
    while (tide_piece_next(&rest, ',', &name)) {
        pattern = tide_format(c->arena, "%s%s", pattern, *pattern ? "|" : "");
        if (!memchr(name.at, '*', name.length)) pattern = tide_format(c->arena, "%s(.*\\.)?", pattern);
        for (size_t i = 0; i < name.length; i++)
            pattern = tide_format(c->arena, "%s%s%c", pattern,
                                  name.at[i] == '*'   ? "."
                                  : name.at[i] == '.' ? "\\"
                                                      : "",
                                  name.at[i]);
    }
    said->taken = pattern;
}

static void settle_nemo_rl(tide_claims *c) {
    const tide_json *base = nemo_rl_base(c->first->root);
    settle_nemo_rl_names(c, TIDE_SET_adapter_target_modules);
    settle_nemo_rl_names(c, TIDE_SET_adapter_exclude_modules);
    if (base)
        tide_claims_refuse(
            c, TIDE_ERR_FIELD_MISSING, "defaults",
            tide_format(c->arena, "%s builds on %s", c->first->summary->name, tide_shown(c->arena, base->text)),
            "give that file too");
    else
        tide_rl_settle(c);
}

const tide_reader tide_nemo_rl_reader = {.title = "NeMo-RL",
                                         .recognises = is_of_nemo_rl,
                                         .read = read_nemo_rl,
                                         .interpolates = true,
                                         .keys = &nemo_rl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .program = TIDE_PROGRAM_nemo_rl,
                                         .settle = settle_nemo_rl};
