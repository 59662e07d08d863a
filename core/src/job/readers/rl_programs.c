/* SPDX-License-Identifier: Apache-2.0 */
/* verl (trainer/config), OpenRLHF (openrlhf/cli) and NeMo-RL (examples/configs): loops of their own over transformers'
 * models. Supervised training is played as the plain loop, without their losses, which are not described; preferences
 * and rewards as one of TRL's trainers where that is asked for. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

#define OFFLOADS "moves what trains to the host"
#define CUTS "cuts layers or sequences over ranks"
#define PACKS "packs rows of other lengths"

#define SECTION(name)                                                                                                  \
    static const tide_key_table name##_keys = {.rows = name##_rows, .count = TIDE_COUNT_OF(name##_rows)}

/* ---- verl ---- */

static const tide_key_row verl_fsdp_rows[] = {
    KEY_SETS("model_dtype", dtype, ""),
    KEY_MATTERS("param_offload|optimizer_offload|cpu_offload|offload_params|offload_policy", OFFLOADS, ""),
    KEY_MATTERS("ulysses_sequence_parallel_size", CUTS, "1"),
    KEY_NEUTRAL("*"),
};
SECTION(verl_fsdp);

static const tide_key_row verl_model_rows[] = {
    KEY_SAYS("path|partial_pretrain", model, ""),
    KEY_SETS("enable_gradient_checkpointing", checkpointing, "true=full|false=none"),
    KEY_SETS("lora_rank", adapter_r, "0="),
    KEY_SETS("lora_alpha", adapter_alpha, ""),
    KEY_SETS("target_modules", adapter_target_modules, "all-linear=all-linear"),
    KEY_SETS("strategy", parallel_kind, "fsdp=fsdp1|fsdp2=fsdp2"),
    KEY_HOLDS("fsdp_config", verl_fsdp_keys),
    KEY_MATTERS("use_remove_padding", "takes what is padding out of rows", ""),
    KEY_MATTERS("enable_activation_offload|use_liger|use_fused_kernels", "changes what is kept, or kernels", ""),
    KEY_NEUTRAL("*"),
};
SECTION(verl_model);

static const tide_key_row verl_actor_rows[] = {
    KEY_SETS("ppo_micro_batch_size_per_gpu", batch, ""),
    KEY_SETS("grad_clip", clip, ""),
    KEY_HOLDS("fsdp_config", verl_fsdp_keys),
    KEY_MATTERS("use_dynamic_bsz", PACKS, ""),
    KEY_MATTERS("ulysses_sequence_parallel_size", CUTS, "1"),
    KEY_REFUSED("strategy", "trains with Megatron-Core", "fsdp|fsdp2"),
    KEY_NEUTRAL("*"),
};
SECTION(verl_actor);

static const tide_key_row verl_rollout_rows[] = {
    KEY_SETS("name", trainer_use_vllm, "vllm=true|hf=false|sglang~true"),
    KEY_SETS("gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("n", trainer_num_generations, ""),
    KEY_SETS("free_cache_engine", trainer_vllm_enable_sleep_mode, ""),
    KEY_SETS("max_model_len", trainer_vllm_max_model_length, ""),
    KEY_SETS("tensor_model_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_NEUTRAL("*"),
};
SECTION(verl_rollout);

static const tide_key_row verl_roles_rows[] = {
    KEY_HOLDS("model", verl_model_keys),
    KEY_HOLDS("actor", verl_actor_keys),
    KEY_HOLDS("rollout", verl_rollout_keys),
    KEY_NEUTRAL("*"),
};
SECTION(verl_roles);

static const tide_key_row verl_data_rows[] = {
    KEY_SETS("micro_batch_size_per_gpu", batch, ""),
    KEY_SETS("max_length", seq, ""),
    KEY_SAYS("max_prompt_length", prompt, ""),
    KEY_SAYS("max_response_length", completion, ""),
    KEY_NEUTRAL("*"),
};
SECTION(verl_data);

static const tide_key_row verl_algorithm_rows[] = {
    KEY_SAYS("adv_estimator", trl, "gae=ppo"),
    KEY_NEUTRAL("*"),
};
SECTION(verl_algorithm);

static const tide_key_row verl_optim_rows[] = {
    KEY_SETS("clip_grad", clip, ""),
    KEY_NEUTRAL("*"),
};
SECTION(verl_optim);

static const tide_key_row verl_rows[] = {
    KEY_HOLDS("actor_rollout_ref", verl_roles_keys),
    KEY_HOLDS("model", verl_model_keys),
    KEY_HOLDS("data", verl_data_keys),
    KEY_HOLDS("algorithm", verl_algorithm_keys),
    KEY_HOLDS("optim", verl_optim_keys),
    KEY_MATTERS("ulysses_sequence_parallel_size", CUTS, "1"),
    KEY_MATTERS("use_remove_padding", "takes what is padding out of rows", ""),
    KEY_NEUTRAL("trainer|critic|reward*|custom_reward_function|hydra|ray_*|*profiler|transfer_queue|checkpoint"),
    KEY_NEUTRAL("defaults"),
};
SECTION(verl);

/* ---- OpenRLHF ---- */

static const tide_key_row openrlhf_rows[] = {
    KEY_SAYS("trains", trl, ""),
    KEY_SAYS("advantage_estimator", trl, "group_norm=grpo|dr_grpo=grpo|gae=ppo|reinforce*=reinforce"),
    KEY_SAYS("pretrain", model, ""),
    KEY_SETS("micro_train_batch_size", batch, ""),
    KEY_SETS("max_len", seq, ""),
    KEY_SAYS("prompt_max_len", prompt, ""),
    KEY_SAYS("generate_max_len", completion, ""),
    KEY_SETS("n_samples_per_prompt", trainer_num_generations, ""),
    KEY_SAYS("zero_stage", zero_stage, ""),
    KEY_SETS("adam_offload", parallel_offload_optimizer, "true=cpu|false="),
    KEY_SETS("gradient_checkpointing", checkpointing, "true=full|false=none"),
    KEY_SETS("lora_rank", adapter_r, "0="),
    KEY_SETS("lora_alpha", adapter_alpha, ""),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_SETS("load_in_4bit", quant, "true=nf4|false="),
    KEY_SETS("max_norm", clip, ""),
    KEY_SAYS("beta", beta, ""),
    KEY_SETS("vllm_num_engines", trainer_use_vllm, "0=false|*=true"),
    KEY_SETS("vllm_gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("vllm_enable_sleep", trainer_vllm_enable_sleep_mode, ""),
    KEY_SETS("vllm_tensor_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_SETS("colocate_all_models", trainer_vllm_mode, "true=colocate|false=server"),
    KEY_MATTERS("packing_samples|use_dynamic_batch", PACKS, ""),
    KEY_MATTERS("ring_attn_size|ds_tensor_parallel_size", CUTS, "1"),
    KEY_MATTERS("use_liger_kernel|deepcompile", "replaces kernels", ""),
    KEY_MATTERS("gradient_checkpointing_use_reentrant", "checkpoints in another way", ""),
    KEY_MATTERS("aux_loss_coef", "keeps router logits", ""),
    KEY_REFUSED("use_kl_estimator_k3|freezing_actor_steps|full_determinism", "trains in another way", "-1"),
    KEY_NEUTRAL("dataset*|input_*|output_*|prompt_*|label_*|chosen_key|rejected_key|max_samples|save_*|ckpt_path"),
    KEY_NEUTRAL("logging_*|eval_*|max_epochs|max_ckpt_*|learning_rate|*_learning_rate|lr_*|l2|adam_betas|seed"),
    KEY_NEUTRAL("use_wandb|wandb_*|use_tensorboard|use_ms|load_checkpoint|apply_chat_template|tokenizer_*"),
    KEY_NEUTRAL("flash_attn|attn_implementation|bf16|param_dtype|train_batch_size|rollout_batch_size"),
    KEY_NEUTRAL("micro_rollout_batch_size|*_num_nodes|*_num_gpus_per_node|reward_*|remote_rm_url|critic_*|ref_*"),
    KEY_NEUTRAL("init_kl_coef|kl_*|use_kl_loss|normalize_reward|gamma|lambd|eps_clip*|value_clip|colocate_*|vllm_*"),
    KEY_NEUTRAL("num_episodes|temperature|top_p|overlap_comm|zpg|grad_accum_dtype|enable_ema|ema_beta|async_*"),
    KEY_NEUTRAL("disable_*|local_rank|pretrain_*|ipo|label_smoothing|nll_loss_coef|use_tp|train_split|eval_split"),
};
SECTION(openrlhf);

/* ---- NeMo-RL ---- */

static const tide_key_row switch_rows[] = {
    KEY_MATTERS("enabled", PACKS, ""),
    KEY_NEUTRAL("*"),
};
SECTION(switch);

static const tide_key_row nemo_rl_dtensor_rows[] = {
    KEY_SETS("activation_checkpointing", checkpointing, "true=full|false=none"),
    KEY_MATTERS("cpu_offload", OFFLOADS, ""),
    KEY_MATTERS("tensor_parallel_size|context_parallel_size|expert_parallel_size", CUTS, "1"),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_dtensor);

static const tide_key_row nemo_rl_megatron_rows[] = {
    KEY_REFUSED("enabled", "trains with Megatron-Core", ""),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_megatron);

static const tide_key_row nemo_rl_engine_rows[] = {
    KEY_SETS("gpu_memory_utilization", trainer_vllm_gpu_memory_utilization, ""),
    KEY_SETS("tensor_parallel_size", trainer_vllm_tensor_parallel_size, ""),
    KEY_SETS("max_model_len", trainer_vllm_max_model_length, ""),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_engine);

static const tide_key_row nemo_rl_colocated_rows[] = {
    KEY_SETS("enabled", trainer_vllm_mode, "true=colocate|false=server"),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_colocated);

static const tide_key_row nemo_rl_generation_rows[] = {
    KEY_SETS("backend", trainer_use_vllm, "vllm=true|*~true"),
    KEY_SAYS("max_new_tokens", completion, ""),
    KEY_HOLDS("vllm_cfg", nemo_rl_engine_keys),
    KEY_HOLDS("colocated", nemo_rl_colocated_keys),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_generation);

static const tide_key_row nemo_rl_policy_rows[] = {
    KEY_SAYS("model_name", model, ""),
    KEY_SETS("train_micro_batch_size", batch, ""),
    KEY_SETS("max_total_sequence_length", seq, ""),
    KEY_SETS("max_grad_norm", clip, ""),
    KEY_HOLDS("dtensor_cfg", nemo_rl_dtensor_keys),
    KEY_HOLDS("megatron_cfg", nemo_rl_megatron_keys),
    KEY_HOLDS("generation", nemo_rl_generation_keys),
    KEY_HOLDS("sequence_packing|dynamic_batching", switch_keys),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_policy);

static const tide_key_row nemo_rl_grpo_rows[] = {
    KEY_SETS("num_generations_per_prompt", trainer_num_generations, ""),
    KEY_NEUTRAL("*"),
};
SECTION(nemo_rl_grpo);

static const tide_key_row nemo_rl_rows[] = {
    KEY_HOLDS("policy", nemo_rl_policy_keys),
    KEY_HOLDS("grpo", nemo_rl_grpo_keys),
    KEY_NEUTRAL("sft|dpo|rm|distillation|loss_fn|data|cluster|checkpointing|logger|env|teacher|defaults"),
};
SECTION(nemo_rl);
#undef SECTION

/* ---- what they say together ---- */

static int64_t rl_number_at(const tide_json *root, const char *section, const char *key, int64_t otherwise) {
    const tide_json *value = tide_json_at(section ? tide_json_at(root, section) : root, key);
    bool is_count = tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer && value->integer > 0;
    return is_count && value->integer <= INT32_MAX ? value->integer : otherwise;
}

/* Rows of a step over all ranks, and GPUs; 0: the file does not say. */
typedef struct rl_sizes {
    int64_t step_rows, generation_rows, gpus;
} rl_sizes;

static rl_sizes rl_sizes_of(const tide_claims *c, const tide_json *root) {
    rl_sizes s = {0};
    int64_t copies = 1;
    if (tide_claims_have(c, TIDE_PROGRAM_verl)) {
        const tide_json *roles = tide_json_at(root, "actor_rollout_ref");
        copies = rl_number_at(roles, "rollout", "n", 1);
        s.gpus = rl_number_at(root, "trainer", "n_gpus_per_node", 0) * rl_number_at(root, "trainer", "nnodes", 1);
        s.step_rows = roles ? rl_number_at(roles, "actor", "ppo_mini_batch_size", 0) * copies
                            : rl_number_at(root, "data", "train_batch_size", 0);
        s.generation_rows = rl_number_at(root, "data", "train_batch_size", 0) * copies;
    } else if (tide_claims_have(c, TIDE_PROGRAM_openrlhf)) {
        copies = rl_number_at(root, NULL, "n_samples_per_prompt", 1);
        s.gpus =
            rl_number_at(root, NULL, "actor_num_gpus_per_node", 0) * rl_number_at(root, NULL, "actor_num_nodes", 1);
        s.step_rows = rl_number_at(root, NULL, "train_batch_size", 0);
        s.generation_rows = rl_number_at(root, NULL, "rollout_batch_size", 0) * copies;
    } else {
        s.gpus = rl_number_at(root, "cluster", "gpus_per_node", 0) * rl_number_at(root, "cluster", "num_nodes", 1);
        s.step_rows = rl_number_at(root, "policy", "train_global_batch_size", 0);
        s.generation_rows = rl_number_at(root, "grpo", "num_prompts_per_step", 0) *
                            rl_number_at(root, "grpo", "num_generations_per_prompt", 1);
    }
    if (!s.gpus) s.gpus = tide_fact_int(c, TIDE_FACT_processes, 0); /* of what launches it */
    return s;
}

static void imply_number(tide_claims *c, tide_setting_id id, int64_t number) {
    tide_imply(c, id, tide_format(c->arena, "%" PRId64, number));
}

static void settle_sizes(tide_claims *c, const rl_sizes *s, bool generates) {
    const tide_file_key *said = c->settings[TIDE_SET_batch];
    int64_t batch = 1, ranks = s->gpus ? s->gpus : 1;
    if (said) tide_text_to_i64(&batch, tide_text_of(said->taken));
    if (batch < 1) return;
    if (s->step_rows >= batch * ranks) imply_number(c, TIDE_SET_grad_accum, s->step_rows / (batch * ranks));
    if (generates && s->generation_rows >= batch * ranks)
        imply_number(c, TIDE_SET_trainer_steps_per_generation, s->generation_rows / (batch * ranks));
}

/* DeepSpeed's stage, or FSDP over fp32 weights that are gathered in bf16. */
static void settle_ranks(tide_claims *c, const rl_sizes *s) {
    bool has_deepspeed = tide_claims_have(c, TIDE_PROGRAM_openrlhf), is_alone = s->gpus == 1 && !has_deepspeed;
    if (!s->gpus && !c->arguments->is_spread)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/parallel.dp",
                    "the file does not say over how many GPUs: taken as 8", "give parallel.dp");
    if (has_deepspeed) {
        tide_imply(c, TIDE_SET_dtype, "bf16");
        tide_imply(c, TIDE_SET_parallel_half, "bf16");
        tide_imply(c, TIDE_SET_parallel_kind,
                   tide_format(c->arena, "zero%" PRId64, tide_fact_int(c, TIDE_FACT_zero_stage, 2)));
        if (c->facts[TIDE_FACT_zero_stage]) c->facts[TIDE_FACT_zero_stage]->effect = TIDE_KEY_USED;
    } else {
        tide_imply(c, TIDE_SET_dtype, "fp32");
        if (!is_alone) tide_imply(c, TIDE_SET_parallel_kind, "fsdp2");
        tide_imply(c, is_alone ? TIDE_SET_autocast : TIDE_SET_parallel_param_dtype, "bf16");
        if (!is_alone) tide_imply(c, TIDE_SET_parallel_reduce_dtype, "fp32");
    }
    if (!is_alone) imply_number(c, TIDE_SET_parallel_dp, s->gpus ? s->gpus : 8);
}

static const tide_claims_file *rl_file(const tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && !tide_is_of_rl(file->reader)) file = file->next;
    return file;
}

static const char *kind_of_sections(tide_claims *c, const tide_json *root) {
    static const char *const sections[][2] = {
        {"actor_rollout_ref", "ppo"}, {"grpo", "grpo"}, {"dpo", "dpo"}, {"rm", "rm"}, {"distillation", "distillation"}};
    for (size_t i = 0; i < TIDE_COUNT_OF(sections); i++)
        if (tide_json_at(root, sections[i][0]))
            tide_imply_fact(c, TIDE_FACT_trl, sections[i][0], sections[i][1]); /* where no key says so */
    tide_imply_fact(c, TIDE_FACT_trl, "trains", "sft");
    return tide_fact_of(c, TIDE_FACT_trl);
}

void tide_rl_settle(tide_claims *c) {
    const tide_claims_file *file = rl_file(c);
    const tide_file_key *adapter = c->settings[TIDE_SET_adapter_r];
    c->at = file;
    const char *kind = kind_of_sections(c, file->root);
    rl_sizes s = rl_sizes_of(c, file->root);
    bool is_supervised = strcmp(kind, "sft") == 0, generates = !is_supervised && strcmp(kind, "dpo") != 0;
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    c->facts[TIDE_FACT_trl]->effect = TIDE_KEY_USED;
    if (adapter && adapter->key) tide_imply(c, TIDE_SET_adapter, "lora");
    if (!adapter || !adapter->key)
        c->settings[TIDE_SET_adapter_alpha] = c->settings[TIDE_SET_adapter_target_modules] = NULL;
    tide_imply(c, TIDE_SET_optimizer, tide_claims_have(c, TIDE_PROGRAM_openrlhf) ? "adamw_fused" : "adamw");
    tide_imply(c, TIDE_SET_clip, "1.0");
    tide_imply(c, TIDE_SET_use_cache, "false");
    if (generates && !tide_claims_have(c, TIDE_PROGRAM_openrlhf)) /* a colocated engine sleeps by default */
        tide_imply(c, TIDE_SET_trainer_vllm_enable_sleep_mode, "true");
    if (!is_supervised) tide_own_trainer_settle(c, kind);
    if (!is_supervised && !c->arguments->asked_trainer) return;
    settle_sizes(c, &s, generates);
    settle_ranks(c, &s);
    tide_claims_note(c, is_supervised ? "loss" : "workers", TIDE_KEY_UNSUPPORTED, NULL,
                     is_supervised ? "computes the loss outside of the model" : "trains by workers of its own");
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, file->place,
                is_supervised ? tide_format(c->arena,
                                            "the loss of %s is not described: the model's own, over all positions, is "
                                            "played in a plain loop",
                                            file->reader->title)
                              : tide_format(c->arena, "what the workers of %s do beside the trainer is not described",
                                            file->reader->title),
                NULL);
}

bool tide_is_of_rl(const tide_reader *reader) {
    return reader == &tide_verl_reader || reader == &tide_openrlhf_reader || reader == &tide_nemo_rl_reader;
}

/* ---- readers ---- */

static bool is_of_verl(const tide_json *root) {
    return tide_json_at(root, "actor_rollout_ref") || tide_json_at(tide_json_at(root, "model"), "partial_pretrain");
}

static bool is_of_nemo_rl(const tide_json *root) {
    static const char *const algorithms[] = {"grpo", "sft", "dpo", "rm", "loss_fn", "distillation"};
    bool has_one = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(algorithms); i++) has_one |= tide_json_at(root, algorithms[i]) != NULL;
    return has_one && tide_json_at(tide_json_at(root, "policy"), "model_name");
}

const tide_reader tide_verl_reader = {.title = "verl",
                                      .recognises = is_of_verl,
                                      .keys = &verl_keys,
                                      .trains = true,
                                      .precedence = 2,
                                      .program = TIDE_PROGRAM_verl,
                                      .settle = tide_rl_settle};

const tide_reader tide_openrlhf_reader = {.title = "OpenRLHF",
                                          .keys = &openrlhf_keys,
                                          .trains = true,
                                          .precedence = 2,
                                          .program = TIDE_PROGRAM_openrlhf,
                                          .settle = tide_rl_settle};

const tide_reader tide_nemo_rl_reader = {.title = "NeMo-RL",
                                         .recognises = is_of_nemo_rl,
                                         .keys = &nemo_rl_keys,
                                         .trains = true,
                                         .precedence = 2,
                                         .program = TIDE_PROGRAM_nemo_rl,
                                         .settle = tide_rl_settle};
