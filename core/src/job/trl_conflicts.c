/* SPDX-License-Identifier: Apache-2.0 */
/* What single trainers of TRL refuse, or are not described with. */
#include "base/units.h"
#include "job/builder.h"
#include "job/trainers.h"

/* trl/trainer/sft_trainer.py, __init__: enable_selective_activation_checkpointing(). Other trainers pass
 * gradient_checkpointing_kwargs on to torch.utils.checkpoint. */
static void check_selective(tide_job_builder *b, const char *kind) {
    const tide_job *job = b->job;
    bool is_sft = tide_trainer_traits_of(job)->selects_checkpoints,
         is_selective = job->checkpointing == TIDE_checkpointing_selective;
    static const char whole[] = "use checkpointing=full";
    if (job->trainer == TIDE_trainer_llama_factory_v1) return;
    if (job->checkpointing == TIDE_checkpointing_selective_matmuls)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_checkpointing,
                            tide_format(b->arena, "%s has no checkpoints that keep products", kind), whole);
    else if (is_selective && !is_sft)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_checkpointing,
            tide_format(b->arena,
                        "selective checkpoints are an option of TRL's SFT: %s passes it on, \"Unexpected "
                        "keyword arguments: selective\"",
                        kind),
            whole);
    else if (is_selective && job->adapter != TIDE_adapter_none && job->parallel_kind == TIDE_parallel_kind_zero3)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_checkpointing,
            "`gradient_checkpointing_kwargs={'selective': True}` is not supported with PEFT + DeepSpeed "
            "ZeRO-3",
            whole);
}

/* trl/experimental/gkd/gkd_trainer.py */
static void check_distillation(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_sharded = job->parallel_kind == TIDE_parallel_kind_fsdp1 || job->parallel_kind == TIDE_parallel_kind_fsdp2;
    if (!tide_trainer_distils(job)) return;
    if (is_sharded)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_kind,
                            "accelerate leaves the teacher on the host: \"Expected all tensors to be on the same "
                            "device\"",
                            "use ddp or zero2");
    if (job->use_cache == TIDE_use_cache_true_)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_use_cache, "is not described with a teacher",
                            "leave it out");
    if (job->offload_activations != TIDE_offload_activations_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_offload_activations, "is not described with a teacher",
                            "leave it out");
    if (job->trainer_beta > TIDE_PICO)
        tide_builder_refuse(b, TIDE_ERR_FIELD_RANGE, TIDE_SET_trainer_beta, "beta must be in the range [0.0, 1.0].",
                            "0 is the forward KL, 1 the reverse KL");
}

/* trl/trainer/dpo_trainer.py and others, __init__. */
static void check_synced_reference(tide_job_builder *b) {
    const tide_job *job = b->job;
    const char *why = job->adapter != TIDE_adapter_none ? "TRL refuses it with an adapter, without which there is no "
                                                          "reference model"
                      : job->trainer_precompute_ref_log_probs ? "TRL refuses it with trainer.precompute_ref_log_probs"
                      : tide_trainer_generates(job) && !tide_keeps_reference(job)
                          ? "TRL refuses it with beta=0, where there is no reference model"
                      : job->parallel_kind == TIDE_parallel_kind_zero3 ? "is not described with zero3"
                                                                       : NULL;
    if (job->trainer_sync_ref_model && why)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_sync_ref_model, why, "leave it out");
}

/* trl/trainer/reward_trainer.py, __init__: with quantised weights all trainable parameters are cast to bf16, including
 * the score, whose input has the dtype of the norm before it. */
static void check_quantised_reward(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_quantised = tide_trainer_traits_of(job)->scores_rows && !tide_trainer_has_value_head(job) &&
                        job->quant != TIDE_quant_none && job->adapter != TIDE_adapter_none,
         is_in_one_type = job->autocast.is_set || tide_job_has_deepspeed(job), is_prepared = tide_prepares_kbit(job);
    bool is_fp32 = is_prepared || (job->dtype.is_set && job->dtype.dtype == TIDE_FP32);
    if (is_quantised && !job->quant_from_pretrained)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_quant_from_pretrained,
                            "false: by hand the score is quantised too, which peft trains: \"only Tensors of floating "
                            "point dtype can require gradients\"",
                            "leave it out: from_pretrained() keeps the score as it is");
    if (!is_quantised || is_in_one_type || !is_fp32) return;
    tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_autocast,
                        tide_format(b->arena,
                                    "none: with a quantised model RewardTrainer keeps the score in bf16, but its "
                                    "input is fp32 (%s); PyTorch refuses their product",
                                    is_prepared ? "kbit_prepare=true" : "dtype=fp32"),
                        "use autocast=bf16, as RewardConfig does");
}

/* trl/experimental/online_dpo/online_dpo_trainer.py */
static void check_online_pairs(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (!tide_trainer_traits_of(job)->pairs_completions) return;
    if (job->parallel_kind == TIDE_parallel_kind_zero3 && job->adapter == TIDE_adapter_none)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_kind,
                            "DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`",
                            "use adapter=lora, which needs no reference model, or zero2");
    if (job->trainer_use_vllm)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_use_vllm,
                            "is not described with trainer=online_dpo, which starts an engine of its own",
                            "leave it out: transformers' generate() is played");
    if (job->use_cache == TIDE_use_cache_true_)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_use_cache, "is not described with trainer=online_dpo",
                            "leave it out");
}

void tide_check_trl_conflicts(tide_job_builder *b, const char *kind) {
    check_quantised_reward(b);
    check_synced_reference(b);
    check_distillation(b);
    check_online_pairs(b);
    check_selective(b, kind);
}
