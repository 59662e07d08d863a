/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of OpenRLHF: openrlhf/cli/train_sft.py, train_dpo.py, train_rm.py, train_ppo_ray.py. Since 0.10 options
 * are in sections ("--ds.zero_stage"), before that they had plain names ("--zero_stage"). */
#include "job/readers/claims.h"
#include "job/readers/rl_programs.h"

#include "base/units.h"

#define PACKS "packs rows of other lengths"
#define OTHER_LOOP "trains in another way"
#define ESTIMATORS "group_norm=grpo|dr_grpo=grpo|gae=ppo|reinforce*=reinforce"
#define DECIDES(key, fact) KEY_SAYS(key, fact, "")

/* models/actor.py, utils/deepspeed/deepspeed_utils.py: in both spellings. */
#define OF_ENGINE                                                                                                      \
    DECIDES("zero_stage", zero_stage), KEY_SETS("adam_offload", parallel_offload_optimizer, "true=cpu|false="),        \
        KEY_SETS("load_in_4bit", quant, "true=nf4|false="), KEY_SETS("attn_implementation", attention, KEY_ATTENTION), \
        KEY_SETS("param_dtype", dtype, ""), KEY_MATTERS("packing_samples", PACKS, ""),                                 \
        KEY_MATTERS("use_liger_kernel|deepcompile", "replaces kernels", ""),                                           \
        KEY_MATTERS("experts_implementation", "runs experts with other kernels", "grouped_mm"),                        \
        KEY_MATTERS("zpg", "keeps a second copy of the weights in each group", "1"),                                   \
        KEY_SETS("grad_accum_dtype", parallel_grad_accum_dtype, ""),                                                   \
        KEY_SETS("overlap_comm", parallel_overlap_comm, ""),                                                           \
        KEY_NEUTRAL("ring_attn_head_stride|ring_head_stride|value_head_prefix|use_universal_ckpt|"                     \
                    "use_ds_universal_ckpt")

#define OF_CHECKPOINTS(enable, reentrant)                                                                              \
    KEY_SETS(enable, checkpointing, "true=full|false=none"), KEY_MATTERS(reentrant, "checkpoints in another way", "")

#define OF_LOSS                                                                                                        \
    KEY_MATTERS("aux_loss_coef", "keeps router logits", ""), DECIDES("beta", beta),                                    \
        KEY_MATTERS("nll_loss_coef", "adds a loss", ""),                                                               \
        KEY_MATTERS("compute_fp32_loss|compute_fp32_loss_enable|margin_loss|margin_loss_enable", "changes the loss",   \
                    ""),                                                                                               \
        KEY_NEUTRAL("ipo|ipo_enable|label_smoothing|loss_type|pretrain_mode|pretrain_mode_enable")

static const tide_key_row openrlhf_lora_rows[] = {
    KEY_SETS("rank", adapter_r, "0="),
    KEY_SETS("alpha", adapter_alpha, ""),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_SETS("dropout", adapter_dropout, ""),
};
RL_SECTION(openrlhf_lora);

static const tide_key_row openrlhf_ds_rows[] = {
    OF_ENGINE,
    KEY_HOLDS("lora", openrlhf_lora_keys),
    KEY_MATTERS("enable_sleep", "moves the policy to the host in between", ""),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(openrlhf_ds);

static const tide_key_row openrlhf_train_rows[] = {
    KEY_SETS("micro_batch_size", batch, ""),
    KEY_MATTERS("dynamic_batch_enable", PACKS, ""),
    KEY_REFUSED("full_determinism_enable", OTHER_LOOP, ""),
    KEY_MATTERS("enable_ema", "keeps an average of the weights", ""),
    KEY_SETS("colocate_all", trainer_vllm_mode, "true=colocate|false=server"),
    KEY_NEUTRAL("batch_size|seed|max_epochs|num_episodes|colocate_*|max_tokens_per_gpu|ema_beta|agent_func_path"),
    KEY_NEUTRAL("async_enable|async_queue_size|partial_rollout_enable"),
};
RL_SECTION(openrlhf_train);

static const tide_key_row openrlhf_model_rows[] = {
    DECIDES("model_name_or_path", model),
    OF_CHECKPOINTS("gradient_checkpointing_enable", "gradient_checkpointing_reentrant"),
    OF_LOSS,
};
RL_SECTION(openrlhf_model);

static const tide_key_row openrlhf_actor_rows[] = {
    DECIDES("model_name_or_path", model),
    OF_CHECKPOINTS("gradient_checkpointing_enable", "gradient_checkpointing_reentrant"),
    OF_LOSS,
    KEY_MATTERS("freeze_visual_encoder", "freezes modules: name them in freeze", ""),
    KEY_MATTERS("entropy_coef", "adds the entropy to the loss", ""),
    KEY_SETS("max_norm", clip, ""),
    KEY_NEUTRAL("num_nodes|num_gpus_per_node|eps_clip*|dual_clip|policy_loss_type"),
    KEY_NEUTRAL("optim|adam|lr_scheduler|lr_warmup_ratio|min_lr_ratio"),
};
RL_SECTION(openrlhf_actor);

static const tide_key_row openrlhf_data_rows[] = {
    KEY_SETS("max_len", seq, ""),
    KEY_NEUTRAL("dataset|dataset_probs|dataset_split|max_samples|multiturn|*_key|input_template|apply_chat_template"),
    KEY_NEUTRAL("tokenizer_chat_template|disable_fast_tokenizer|dataloader_num_workers|prompt_dataset|prompt_probs"),
    KEY_NEUTRAL("prompt_split|max_images_per_prompt"),
};
RL_SECTION(openrlhf_data);

static const tide_key_row openrlhf_rollout_rows[] = {
    KEY_SETS("n_samples_per_prompt", trainer_num_generations, ""),
    DECIDES("max_new_tokens", completion),
    KEY_NEUTRAL("batch_size|micro_batch_size|vllm_generate_batch_size|max_tokens_per_gpu|top_p|temperature"),
};
RL_SECTION(openrlhf_rollout);

static const tide_key_row openrlhf_vllm_rows[] = {
    KEY_SETS("num_engines", trainer_use_vllm, "0=false|*=true"),
    KEY_SETS("gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("enable_sleep", trainer_vllm_enable_sleep_mode, ""),
    KEY_SETS("tensor_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_NEUTRAL("sync_backend|sync_with_ray|enable_prefix_caching|enforce_eager"),
};
RL_SECTION(openrlhf_vllm);

static const tide_key_row openrlhf_advantage_rows[] = {
    KEY_SAYS("estimator", trl, ESTIMATORS),
    KEY_NEUTRAL("lambd|gamma|no_std_norm|is_correction_*"),
};
RL_SECTION(openrlhf_advantage);

static const tide_key_row openrlhf_algo_rows[] = {
    KEY_HOLDS("advantage", openrlhf_advantage_keys),
    KEY_NEUTRAL("kl|dynamic_filtering_enable|dynamic_filtering_range"),
};
RL_SECTION(openrlhf_algo);

static const tide_key_row openrlhf_ref_rows[] = {
    KEY_MATTERS("offload", "keeps the reference on the host", ""),
    KEY_MATTERS("model_name_or_path", "uses another model as reference", ""),
    KEY_NEUTRAL("num_nodes|num_gpus_per_node"),
};
RL_SECTION(openrlhf_ref);

static const tide_key_row openrlhf_rows[] = {
    /* in sections */
    KEY_HOLDS("ds", openrlhf_ds_keys),
    KEY_HOLDS("train", openrlhf_train_keys),
    KEY_HOLDS("model", openrlhf_model_keys),
    KEY_HOLDS("actor", openrlhf_actor_keys),
    KEY_HOLDS("data", openrlhf_data_keys),
    KEY_HOLDS("rollout", openrlhf_rollout_keys),
    KEY_HOLDS("vllm", openrlhf_vllm_keys),
    KEY_HOLDS("algo", openrlhf_algo_keys),
    KEY_HOLDS("ref", openrlhf_ref_keys),
    KEY_MATTERS("optim", "changes the optimizer", "adam"),
    KEY_NEUTRAL("ckpt|logger|eval|adam|muon|critic|reward|local_rank|min_lr_ratio|use_ms"),
    /* plain */
    KEY_SAYS("trains", trl, ""),
    KEY_SAYS("advantage_estimator", trl, ESTIMATORS),
    DECIDES("pretrain", model),
    KEY_SETS("micro_train_batch_size", batch, ""),
    KEY_SETS("max_len", seq, ""),
    DECIDES("prompt_max_len", prompt),
    DECIDES("generate_max_len", completion),
    KEY_SETS("n_samples_per_prompt", trainer_num_generations, ""),
    OF_ENGINE,
    OF_CHECKPOINTS("gradient_checkpointing", "gradient_checkpointing_use_reentrant"),
    OF_LOSS,
    KEY_SETS("lora_rank", adapter_r, "0="),
    KEY_SETS("lora_alpha", adapter_alpha, ""),
    KEY_SETS("lora_dropout", adapter_dropout, ""),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_SETS("max_norm", clip, ""),
    KEY_SETS("vllm_num_engines", trainer_use_vllm, "0=false|*=true"),
    KEY_SETS("vllm_gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("vllm_enable_sleep", trainer_vllm_enable_sleep_mode, ""),
    KEY_SETS("vllm_tensor_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_SETS("colocate_all_models", trainer_vllm_mode, "true=colocate|false=server"),
    KEY_MATTERS("use_dynamic_batch", PACKS, ""),
    KEY_MATTERS("enable_ema", "keeps an average of the weights", ""),
    KEY_MATTERS("entropy_loss_coef", "adds the entropy to the loss", ""),
    KEY_MATTERS("ref_pretrain", "uses another model as reference", ""),
    KEY_MATTERS("ref_offload|ref_reward_offload", "keeps the reference on the host", ""),
    KEY_MATTERS("deepspeed_enable_sleep", "moves the policy to the host in between", ""),
    KEY_REFUSED("use_kl_estimator_k3|freezing_actor_steps|full_determinism", OTHER_LOOP, "-1"),
    KEY_NEUTRAL("save_path|save_steps|save_hf_ckpt|save_value_network|disable_ds_ckpt|logging_steps|eval_steps|"
                "ckpt_path|max_ckpt_num|max_ckpt_mem|load_checkpoint|perf"),
    KEY_NEUTRAL("train_batch_size|rollout_batch_size|micro_rollout_batch_size|vllm_generate_batch_size|seed|"
                "max_epochs|num_episodes|flash_attn|bf16|actor_init_on_gpu"),
    KEY_NEUTRAL("learning_rate|actor_learning_rate|critic_learning_rate|lr_warmup_ratio|lr_scheduler|l2|adam_betas"),
    KEY_NEUTRAL("dataset|dataset_probs|dataset_split|eval_dataset|eval_split|train_split|max_samples|multiturn|"
                "input_key|output_key|prompt_key|label_key|chosen_key|rejected_key|input_template|"
                "apply_chat_template|tokenizer_chat_template|disable_fast_tokenizer|prompt_data|prompt_data_probs|"
                "prompt_split|eval_temperature|eval_n_samples_per_prompt"),
    KEY_NEUTRAL("use_wandb|wandb_org|wandb_group|wandb_project|wandb_run_name|use_tensorboard"),
    KEY_NEUTRAL("ref_num_nodes|ref_num_gpus_per_node|reward_num_nodes|reward_num_gpus_per_node|actor_num_nodes|"
                "actor_num_gpus_per_node|critic_num_nodes|critic_num_gpus_per_node|colocate_actor_ref|"
                "colocate_critic_reward"),
    KEY_NEUTRAL("vllm_sync_backend|vllm_sync_with_ray|enable_prefix_caching|enforce_eager|enable_vllm_is_correction|"
                "vllm_is_truncated_threshold|vllm_is_correction_type|async_train|async_queue_size|"
                "rollout_max_tokens_per_gpu|train_max_tokens_per_gpu"),
    KEY_NEUTRAL("ptx_coef|eps_clip|eps_clip_low_high|dual_clip|value_clip|lambd|gamma|normalize_reward|top_p|"
                "temperature|ema_beta|kl_target|kl_horizon|init_kl_coef|policy_loss_type|kl_estimator|"
                "reward_clip_range|use_kl_loss|no_advantage_std_norm|overlong_buffer_len|overlong_penalty_factor|"
                "stop_properly_penalty_coef|reward_pretrain|remote_rm_url|critic_pretrain|agent_func_path|"
                "dynamic_filtering|dynamic_filtering_reward_range|loss"),
#include "job/readers/keys/parallel_sizes.def"
};
RL_SECTION(openrlhf);

const tide_reader tide_openrlhf_reader = {.title = "OpenRLHF",
                                          .keys = &openrlhf_keys,
                                          .trains = true,
                                          .precedence = 2,
                                          .program = TIDE_PROGRAM_openrlhf,
                                          .settle = tide_rl_settle};
#undef PACKS
#undef OTHER_LOOP
#undef ESTIMATORS
#undef DECIDES
#undef OF_ENGINE
#undef OF_CHECKPOINTS
#undef OF_LOSS
