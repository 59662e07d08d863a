/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations and command lines of verl: verl/trainer/config/ppo_trainer.yaml, sft_trainer.yaml and
 * sft_trainer_engine.yaml with their sections. */
#include "job/readers/claims.h"
#include "job/readers/rl_programs.h"

#include "base/units.h"

#define OFFLOADS "moves the policy to the host"
#define PACKS "packs rows of other lengths"
#define UNPADS "removes padding from rows"
#define OTHER_LOGITS "computes the entropy differently"

/* ---- engine/fsdp.yaml, optim/fsdp.yaml ---- */

static const tide_key_row verl_mixed_precision_rows[] = {
    KEY_SETS("param_dtype", parallel_param_dtype, ""),
    KEY_SETS("reduce_dtype", parallel_reduce_dtype, ""),
    KEY_SETS("buffer_dtype", parallel_buffer_dtype, ""),
};
RL_SECTION(verl_mixed_precision);

static const tide_key_row verl_wrap_policy_rows[] = {
    KEY_MATTERS("min_num_params", "wraps by size", ""),
    KEY_MATTERS("transformer_layer_cls_to_wrap", "wraps other layers", ""),
    KEY_NEUTRAL("disable"),
};
RL_SECTION(verl_wrap_policy);

static const tide_key_row verl_quantised_training_rows[] = {
    KEY_MATTERS("enable", "trains quantised weights", ""),
    KEY_NEUTRAL("mode|group_size|ignore_patterns|activation_observer|quantization_config_path|_target_"),
};
RL_SWITCHED(verl_quantised_training);

static const tide_key_row verl_fsdp_rows[] = {
    KEY_SETS("model_dtype", dtype, ""),
    KEY_SETS("dtype", parallel_param_dtype, "bfloat16=bf16|float16=fp16|float32=fp32"),
    KEY_HOLDS("mixed_precision", verl_mixed_precision_keys),
    KEY_HOLDS("wrap_policy", verl_wrap_policy_keys),
    KEY_HOLDS("qat", verl_quantised_training_keys),
    KEY_SETS("offload_policy", parallel_offload, ""),
    KEY_MATTERS("param_offload|optimizer_offload|cpu_offload|offload_params", OFFLOADS, ""),
    KEY_SETS("fsdp_size", parallel_hybrid, "-1="),
    KEY_MATTERS("entropy_from_logits_with_chunking|entropy_checkpointing", OTHER_LOGITS, ""),
    KEY_SETS("forward_prefetch", parallel_forward_prefetch, ""),
    KEY_SETS("use_orig_params", parallel_use_orig_params, ""),
    KEY_MATTERS("use_no_sync_for_gradient_accumulation", "keeps full gradients between micro-batches", ""),
    KEY_MATTERS("pad_to_length", "pads rows to full buckets", ""),
    KEY_SETS("reshard_after_forward", parallel_reshard_after_forward, ""),
    KEY_REFUSED("strategy", "trains with an engine other than FSDP", "fsdp|fsdp2"), /* settle() finds out which */
    KEY_REFUSED("tensor_model_parallel_size|pipeline_model_parallel_size|virtual_pipeline_model_parallel_size|"
                "context_parallel_size|expert_*_parallel_size|use_mbridge|vanilla_mbridge|use_megatron_fsdp|"
                "override_transformer_config|use_dist_checkpointing",
                "trains with Megatron-Core", ""),
    KEY_REFUSED("distributed_strategy|tp_size|pp_size|cp_size|ep_size", "trains by NeMo AutoModel", ""),
    KEY_NEUTRAL("seed|full_determinism|entropy_from_logits_chunk_size|use_torch_compile"),
    KEY_NEUTRAL("pad_to_length_bucket|forward_only|turbo_config|_target_"),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(verl_fsdp);

static const tide_key_row verl_optim_rows[] = {
    KEY_SETS("clip_grad", clip, ""),
    KEY_SETS("optimizer", optimizer, "adamw=adamw|adam=adam|sgd=sgd"),
    KEY_MATTERS("optimizer_impl", "uses an optimizer from another package", "torch.optim"),
    KEY_MATTERS("override_optimizer_config", "changes the optimizer", ""),
    KEY_NEUTRAL("lr|betas|weight_decay|lr_warmup_steps_ratio|lr_warmup_steps|total_training_steps|min_lr_ratio|min_lr"),
    KEY_NEUTRAL("num_cycles|lr_scheduler|lr_scheduler_type|zero_indexed_step|warmup_style|lr_warmup_init|"
                "lr_decay_style|_target_"),
};
RL_SECTION(verl_optim);

/* ---- model/hf_model.yaml ---- */

static const tide_key_row verl_tiled_rows[] = {
    KEY_MATTERS("enabled", "computes the MLP in pieces of the sequence", ""),
    KEY_NEUTRAL("num_shards"),
};
RL_SWITCHED(verl_tiled);

static const tide_key_row verl_mtp_rows[] = {
    KEY_MATTERS("enable", "trains or drafts with heads for further tokens", ""),
    KEY_NEUTRAL("enable_*|detach_encoder|mtp_loss_scaling_factor|speculative_*|method|num_speculative_tokens|_target_"),
};
RL_SWITCHED(verl_mtp);

/* For Megatron-Core. */
static const tide_key_row verl_megatron_lora_rows[] = {
    KEY_MATTERS("rank", "adapts layers of Megatron-Core", ""),
    KEY_NEUTRAL("type|merge|alpha|dropout|target_modules|exclude_modules|dropout_position|lora_*_init_method|dtype"),
    KEY_NEUTRAL("a2a_experimental|adapter_path|freeze_*"),
};
RL_SECTION(verl_megatron_lora);

static const tide_key_row verl_override_rows[] = {
    KEY_SETS("attn_implementation", attention, KEY_ATTENTION),
    KEY_MATTERS("*", "changes the model's configuration", ""),
};
RL_SECTION(verl_override);

static const tide_key_row verl_model_rows[] = {
    KEY_SAYS("path|partial_pretrain", model, ""),
    KEY_SETS("enable_gradient_checkpointing", checkpointing, "true=full|false=none"),
    KEY_SETS("lora_rank", adapter_r, "0="),
    KEY_SETS("lora_alpha", adapter_alpha, ""),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_SETS("exclude_modules", adapter_exclude_modules, ""),
    KEY_REFUSED("strategy", "trains with an engine other than FSDP", "fsdp|fsdp2"),
    KEY_HOLDS("fsdp_config", verl_fsdp_keys),
    KEY_HOLDS("override_config", verl_override_keys),
    KEY_HOLDS("tiled_mlp", verl_tiled_keys),
    KEY_HOLDS("mtp", verl_mtp_keys),
    KEY_HOLDS("lora", verl_megatron_lora_keys),
    KEY_MATTERS("use_remove_padding", UNPADS, ""),
    KEY_MATTERS("enable_activation_offload", "moves saved activations to the host", ""),
    KEY_MATTERS("use_liger|use_fused_kernels", "replaces kernels", ""),
    KEY_MATTERS("lora_adapter_path", "continues with a saved adapter: give its adapter_config.json", ""),
    KEY_MATTERS("hf_config_path", "uses another configuration for the model: give its config.json", ""),
    KEY_NEUTRAL("tokenizer_path|use_shm|trust_remote_code|custom_chat_template|external_lib|fused_kernel_options"),
    KEY_NEUTRAL("_target_"),
};
RL_SECTION(verl_model);

/* ---- actor/actor.yaml, actor/dp_actor.yaml ---- */

static const tide_key_row verl_replay_rows[] = {
    KEY_MATTERS("mode", "keeps the routing of experts", "disabled"),
    KEY_NEUTRAL("record_file|replay_file|_target_"),
};
RL_SECTION(verl_replay);

static const tide_key_row verl_actor_rows[] = {
    KEY_SETS("ppo_micro_batch_size_per_gpu", batch, ""),
    KEY_MATTERS("ppo_micro_batch_size", "applies to all GPUs together: give batch", ""),
    KEY_SETS("grad_clip", clip, ""),
    KEY_HOLDS("fsdp_config", verl_fsdp_keys),
    KEY_HOLDS("optim", verl_optim_keys),
    KEY_HOLDS("qat", verl_quantised_training_keys),
    KEY_HOLDS("router_replay", verl_replay_keys),
    KEY_MATTERS("use_dynamic_bsz", PACKS, ""),
    KEY_MATTERS("use_remove_padding", UNPADS, ""),
    KEY_MATTERS("use_prefix_grouper", "processes a common prompt once", ""),
    KEY_MATTERS("use_fused_kernels", "replaces kernels", ""),
    KEY_MATTERS("pad_to_length", "pads rows to full buckets", ""),
    KEY_MATTERS("freeze_vision_tower", "freezes modules: name them in freeze", ""),
    KEY_MATTERS("entropy_coeff|calculate_entropy|calculate_sum_pi_squared", "computes the entropy of every position",
                ""),
    KEY_MATTERS("entropy_from_logits_with_chunking|entropy_checkpointing|sum_pi_squared_checkpointing", OTHER_LOGITS,
                ""),
    KEY_REFUSED("strategy", "trains with an engine other than FSDP", "fsdp|fsdp2"),
    KEY_REFUSED("megatron", "trains with Megatron-Core", ""),
    KEY_NEUTRAL("ppo_mini_batch_size|ppo_max_token_len_per_gpu|ppo_epochs|rollout_n|shuffle|data_loader_seed|clip_*"),
    KEY_NEUTRAL("tau_pos|tau_neg|policy_loss|loss_agg_mode|loss_scale_factor|use_kl_loss|kl_loss_coef|kl_loss_type"),
    KEY_NEUTRAL("use_torch_compile|entropy_from_logits_chunk_size|checkpoint|profiler|_target_"),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(verl_actor);

/* ---- ref/ref.yaml, ref/dp_ref.yaml: the reference gives probabilities before the update ---- */

static const tide_key_row verl_ref_rows[] = {
    KEY_REFUSED("strategy", "trains with an engine other than FSDP", "fsdp|fsdp2"),
    KEY_REFUSED("megatron", "trains with Megatron-Core", ""),
    KEY_NEUTRAL("log_prob_micro_batch_size|log_prob_micro_batch_size_per_gpu|log_prob_use_dynamic_bsz|rollout_n"),
    KEY_NEUTRAL("log_prob_max_token_len_per_gpu|use_torch_compile|fsdp_config|ulysses_sequence_parallel_size|model"),
    KEY_NEUTRAL("entropy_from_logits_with_chunking|entropy_from_logits_chunk_size|entropy_checkpointing|pad_to_length"),
    KEY_NEUTRAL("profiler|router_replay|_target_"),
};
RL_SECTION(verl_ref);

/* ---- rollout/rollout.yaml ---- */

static const tide_key_row verl_engine_rows[] = {KEY_MATTERS("*", "changes the engine that generates", "")};
RL_SECTION(verl_engine);

static const tide_key_row verl_engines_rows[] = {KEY_HOLDS("vllm|sglang|trtllm", verl_engine_keys)};
RL_SECTION(verl_engines);

static const tide_key_row verl_parted_rows[] = {
    KEY_MATTERS("enabled", "parts prefill from decoding", ""),
    KEY_NEUTRAL("prefill_replicas|decode_*|transfer_backend|bootstrap_port|ib_device"),
};
RL_SWITCHED(verl_parted);

static const tide_key_row verl_rollout_rows[] = {
    KEY_SETS("name", trainer_use_vllm, "vllm=true|hf=false|*~true"),
    KEY_SETS("gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("n", trainer_num_generations, ""),
    KEY_SETS("free_cache_engine", trainer_vllm_enable_sleep_mode, ""),
    KEY_SETS("max_model_len", trainer_vllm_max_model_length, ""),
    KEY_SETS("tensor_model_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_SAYS("prompt_length", prompt, ""),
    KEY_SAYS("response_length", completion, ""),
    KEY_HOLDS("engine_kwargs", verl_engines_keys),
    KEY_HOLDS("disaggregation", verl_parted_keys),
    KEY_MATTERS("data_parallel_size|expert_parallel_size|pipeline_model_parallel_size", "shards the engine over ranks",
                "1"),
    KEY_MATTERS("quantization|quantization_config_file", "generates with quantised weights", ""),
    KEY_MATTERS("enforce_eager", "leaves out CUDA graphs", ""),
    KEY_MATTERS("max_num_batched_tokens", "changes the size of the engine's steps", "8192"),
    KEY_MATTERS("max_num_seqs", "changes the size of the engine's steps", "256|1024"),
    KEY_MATTERS("cudagraph_capture_sizes", "captures other CUDA graphs", ""),
    KEY_MATTERS("dtype", "generates in another type", "bfloat16"),
    KEY_NEUTRAL("mode|nnodes|n_gpus_per_node|temperature|top_k|top_p|full_determinism|seed|ignore_eos|do_sample"),
    KEY_NEUTRAL("enable_chunked_prefill|enable_prefix_caching|logprobs_mode|scheduling_policy|load_format|"
                "layered_summon|disable_log_stats|over_sample_rate|multi_stage_wake_up|val_kwargs|router_config_path"),
    KEY_NEUTRAL("log_prob_*|multi_turn|calculate_log_probs|agent|checkpoint_engine|trace|skip_*|profiler|prometheus|"
                "enable_rollout_routing_replay|moe_load_balance_metrics_interval|mtp|qat|limit_images|_target_"),
};
RL_SECTION(verl_rollout);

static const tide_key_row verl_roles_rows[] = {
    KEY_HOLDS("model", verl_model_keys),     KEY_HOLDS("actor", verl_actor_keys),       KEY_HOLDS("ref", verl_ref_keys),
    KEY_HOLDS("rollout", verl_rollout_keys), KEY_NEUTRAL("hybrid_engine|nccl_timeout"),
};
RL_SECTION(verl_roles);

/* ---- data, algorithm and what stands beside ---- */

static const tide_key_row verl_data_rows[] = {
    KEY_SETS("micro_batch_size_per_gpu", batch, ""),
    KEY_MATTERS("micro_batch_size", "applies to all GPUs together: give batch", ""),
    KEY_SETS("max_length", seq, ""),
    KEY_SAYS("max_prompt_length", prompt, ""),
    KEY_SAYS("max_response_length", completion, ""),
    KEY_MATTERS("use_dynamic_bsz", PACKS, ""),
    KEY_NEUTRAL("max_token_len_per_gpu|pad_mode|balance_dp_token|train_batch_size|gen_batch_size|val_batch_size"),
    KEY_NEUTRAL("train_files|val_files|train_max_samples|val_max_samples|*_key|*_keys|enable_thinking_default|"
                "multiturn|truncation|custom_cls|use_shm|apply_chat_template_kwargs|num_workers|chat_template"),
    KEY_NEUTRAL("ignore_input_ids_mismatch|tokenizer|tool_config_path|function_tool_path|return_*|shuffle|seed|"
                "dataloader_num_workers|image_patch_size|validation_shuffle|filter_overlong_prompts*|"
                "trust_remote_code|mm_processor_kwargs|sampler|datagen"),
};
RL_SECTION(verl_data);

static const tide_key_row verl_algorithm_rows[] = {
    KEY_SAYS("adv_estimator", trl,
             "gae=ppo|grpo*=grpo|rloo*=rloo|gdpo=grpo|opo=reinforce|gpg=reinforce|remax=reinforce|reinforce*="
             "reinforce|*optimal_token_baseline=reinforce"),
    KEY_NEUTRAL("gamma|lam|norm_adv_by_std_in_grpo|use_kl_in_reward|kl_penalty|kl_ctrl|use_pf_ppo|pf_ppo"),
    KEY_NEUTRAL("rollout_correction|filter_groups|_target_"),
};
RL_SECTION(verl_algorithm);

static const tide_key_row verl_reward_rows[] = {
    KEY_MATTERS("enable", "loads a reward model", ""),
    KEY_NEUTRAL("*"),
};
RL_SWITCHED(verl_reward);

static const tide_key_row verl_rewards_rows[] = {
    KEY_HOLDS("reward_model", verl_reward_keys),
    KEY_NEUTRAL("num_workers|custom_reward_function|reward_manager|sandbox_fusion|_target_"),
};
RL_SECTION(verl_rewards);

static const tide_key_row verl_distilled_rows[] = {
    KEY_REFUSED("enabled", "learns from a teacher", ""),
    KEY_NEUTRAL("*"),
};
RL_SWITCHED(verl_distilled);

static const tide_key_row verl_rows[] = {
    KEY_HOLDS("actor_rollout_ref", verl_roles_keys),
    KEY_HOLDS("model", verl_model_keys),
    KEY_HOLDS_OR("engine", verl_fsdp_keys, "fsdp|fsdp2", "trains with an engine other than FSDP"),
    KEY_HOLDS("data", verl_data_keys),
    KEY_HOLDS("algorithm", verl_algorithm_keys),
    KEY_HOLDS("optim", verl_optim_keys),
    KEY_HOLDS("reward_model", verl_reward_keys),
    KEY_HOLDS("reward", verl_rewards_keys),
    KEY_HOLDS("distillation", verl_distilled_keys),
    KEY_MATTERS("use_remove_padding", UNPADS, ""),
    KEY_MATTERS("config_name", "has defaults of its own", "ppo_trainer|sft_trainer|sft_trainer_engine"),
    KEY_NEUTRAL("trainer|critic|custom_reward_function|reward_manager|sandbox_fusion|hydra|ray_kwargs|ray_init|"
                "global_profiler|profiler|transfer_queue|checkpoint|skip|defaults"),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(verl);

static bool is_of_verl(const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model"), *data = tide_json_at(root, "data");
    bool is_of_engine = tide_json_at(model, "path") && tide_json_at(data, "train_files");
    return tide_json_at(root, "actor_rollout_ref") || tide_json_at(model, "partial_pretrain") || is_of_engine;
}

const tide_reader tide_verl_reader = {.title = "verl",
                                      .recognises = is_of_verl,
                                      .interpolates = true,
                                      .keys = &verl_keys,
                                      .trains = true,
                                      .precedence = 2,
                                      .program = TIDE_PROGRAM_verl,
                                      .settle = tide_rl_settle};
#undef OFFLOADS
#undef PACKS
#undef UNPADS
#undef OTHER_LOGITS
