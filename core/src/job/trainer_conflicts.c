/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations of trainer settings, rollouts, evaluation and lengths of samples that are impossible. */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"
#include "job/trainers.h"

static bool are_all_among(const char *given, const char *list) {
    tide_text rest = tide_text_of(given), one;
    while (tide_piece_next(&rest, ',', &one))
        if (!tide_text_is_among(one, list)) return false;
    return true;
}

/* dpo_trainer.py: "Label smoothing must be greater than 0.0 when using 'exo_pair' loss." */
static void check_label_smoothing(tide_job_builder *b) {
    tide_text rest = tide_text_of(b->job->trainer_loss_type ? b->job->trainer_loss_type : ""), one;
    if (b->job->trainer != TIDE_trainer_dpo || b->job->trainer_label_smoothing > 0) return;
    while (tide_piece_next(&rest, ',', &one))
        if (tide_text_is(one, "exo_pair"))
            tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_loss_type,
                                "exo_pair is refused by TRL without label smoothing",
                                "say trainer.label_smoothing, which changes no memory: 0.001 is recommended there");
}

/* dpo_trainer.py: f_divergence_loss_types, whose reward is a difference of two scores. */
static void check_f_divergence(tide_job_builder *b) {
    const tide_job *job = b->job;
    const char *given = job->trainer_loss_type, *types = "sigmoid|sigmoid_norm|hinge|ipo|exo_pair|robust|discopop|sft";
    if (job->trainer != TIDE_trainer_dpo || job->trainer_f_divergence_type == TIDE_trainer_f_divergence_type_reverse_kl)
        return;
    if (given && given[0] && !are_all_among(given, types))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_f_divergence_type,
                            tide_format(b->arena, "TRL refuses it with loss_type=%s", given),
                            tide_format(b->arena, "use losses among %s, or reverse_kl", types));
}

/* The losses of TRL's trainers by name; dpo may have several. */
static void check_loss_type(tide_job_builder *b, const char *kind) {
    const tide_trainer_traits *traits = tide_trainer_traits_of(b->job);
    bool is_of_factory = tide_trainer_is_of_factory(b->job); /* hparams/finetuning_args.py: one of them */
    const char *given = b->job->trainer_loss_type, *played = is_of_factory ? traits->losses_of_factory : traits->losses;
    check_label_smoothing(b);
    check_f_divergence(b);
    if (!given || !given[0] || !played) return;
    if (is_of_factory ? tide_text_is_among(tide_text_of(given), played) : are_all_among(given, played)) return;
    tide_builder_refuse(
        b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_loss_type,
        tide_format(b->arena, "%s is not described with %s", tide_shown(b->arena, tide_text_of(given)), kind),
        tide_format(b->arena, "one of %s", played));
}

/* trl/generation/vllm_generation.py: how the engine starts beside a trainer and receives the weights. */
static void check_vllm_generation(tide_job_builder *b) {
    const tide_job *job = b->job;
    static const tide_setting_id of_colocated[] = {
        TIDE_SET_trainer_vllm_gpu_memory_utilization, TIDE_SET_trainer_vllm_enable_sleep_mode,
        TIDE_SET_trainer_vllm_max_model_length, TIDE_SET_trainer_vllm_tensor_parallel_size};
    bool gathers = job->parallel_kind == TIDE_parallel_kind_zero3 || job->parallel_kind == TIDE_parallel_kind_fsdp2;
    if (!job->trainer_use_vllm) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(of_colocated) && !tide_has_colocated_engine(job); i++)
        if (b->arguments.is_given[of_colocated[i]])
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, of_colocated[i]),
                        "has no effect with trainer.vllm_mode=server", "give it to the server");
    if (tide_has_colocated_engine(job) && !job->device_bytes)
        tide_builder_refuse(b, TIDE_ERR_FIELD_MISSING, TIDE_SET_trainer_use_vllm,
                            "takes a share of a GPU for the colocated engine", "give gpu=NAME, as gpu=h100-80");
    if (job->quant != TIDE_quant_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_use_vllm,
                            "over quantised weights is not described", "leave quant out, or use_vllm");
    if (gathers && job->adapter != TIDE_adapter_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_use_vllm,
                            tide_format(b->arena,
                                        "merges adapters into weights that %s has cut, which is not described",
                                        job->values[TIDE_SET_parallel_kind]),
                            "use ddp or zero2, or train the model itself");
    if (job->adapter_dora)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_use_vllm,
                            "merges adapters: DoRA's are not described", "leave adapter.dora out");
    if (tide_has_colocated_engine(job) && job->trainer_vllm_tensor_parallel_size > 1)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_vllm_tensor_parallel_size,
                            "is only described as 1: an engine on each GPU", "leave it out");
    tide_report(
        b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_trainer_use_vllm),
        tide_has_colocated_engine(job)
            ? "the trainer's loop is that of TRL 1.16, and the engine's start that of vLLM 0.32.0: they are played "
              "together, but were not recorded in one process; a generation needs at most what the engine's profile"
              " run did"
            : "the server is on other GPUs: here it only needs buffers for the transfer of weights, and NCCL",
        NULL);
}

/* TRL's GRPOConfig.__post_init__: the rows generated by all ranks at once must be complete groups. Files of other
 * programs may have groups of one. */
static void check_groups(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t ranks = tide_data_ranks(job), steps = tide_steps_per_generation(job), group = job->trainer_num_generations,
            rows = job->batch * ranks * steps;
    if (group < 2 && b->arguments.origins[TIDE_SET_trainer_num_generations] == TIDE_ORIGIN_USER)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_num_generations,
                            "advantages are taken within a group: TRL requires at least 2 generations per prompt",
                            "write trainer.num_generations=2 or more");
    if (rows % group)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_num_generations,
            tide_format(b->arena,
                        "a generation of %lld rows (batch x GPUs x steps_per_generation) is not a multiple of "
                        "%lld completions per prompt; TRL refuses this too",
                        (long long)rows, (long long)group),
            tide_format(b->arena,
                        "write batch=%lld, or change the number of GPUs (parallel.kind and parallel.dp), grad_accum or "
                        "trainer.num_generations",
                        (long long)tide_least_batch(job)));
}

/* Whether completions leave tokens of the rows to the prompt. */
static bool check_prompt(tide_job_builder *b, int64_t prompt) {
    if (prompt < 1)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_max_completion_length,
                            "leaves no room in seq for the prompt", "give trainer.prompt_length, or a larger seq");
    return prompt > 0;
}

static void check_rollouts(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t prompt = tide_prompt_length(job), total = prompt + job->trainer_max_completion_length;
    if (check_prompt(b, prompt) && b->arguments.is_given[TIDE_SET_seq] && job->seq != total)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_seq,
            tide_format(b->arena, "rows have %lld tokens: trainer.prompt_length and trainer.max_completion_length",
                        (long long)total),
            "leave it out");
    if (tide_trainer_generates(job)) check_groups(b);
    if (tide_trainer_generates(job)) check_vllm_generation(b);
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_trainer),
                job->trainer_use_vllm
                    ? "every completion has the maximum length; rewards are functions without a model on the GPU"
                    : "transformers' generate() makes the completions, all of the maximum length; rewards are "
                      "functions without a model on the GPU",
                NULL);
}

enum { ROWS_MOST = 1000000 };

/* In a file they may be there for a purpose that it does not state. */
static void check_unused_lengths(tide_job_builder *b) {
    static const tide_setting_id ids[] = {TIDE_SET_pad_to_multiple_of, TIDE_SET_data_seed};
    for (size_t i = 0; i < TIDE_COUNT_OF(ids); i++)
        if (b->arguments.is_given[ids[i]] && b->arguments.origins[ids[i]] == TIDE_ORIGIN_USER)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, ids[i]),
                        "has no effect: without lengths every sample fills seq", "give lengths");
}

/* Lengths of prompts, for trainers that complete them. */
static void check_lengths_of_prompts(tide_job_builder *b) {
    static const tide_setting_id sizes[] = {TIDE_SET_seq, TIDE_SET_trainer_prompt_length, TIDE_SET_pad_to_multiple_of};
    const tide_job *job = b->job;
    bool is_described = tide_trainer_generates(job) && !job->trainer_use_vllm;
    if (!is_described)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_lengths,
                            tide_format(b->arena, "is not described with trainer%s=%s",
                                        job->trainer_use_vllm ? ".use_vllm" : "",
                                        job->trainer_use_vllm ? "true" : job->values[TIDE_SET_trainer]),
                            "give trainer.prompt_length, the longest prompt's, and padding=true if prompts differ");
    if (is_described)
        tide_report(
            b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_lengths),
            "prompts in this order; rows of a generation are shuffled, so that each micro-batch has a padded one "
            "if its prompts differ",
            NULL);
    for (size_t i = 0; i < TIDE_COUNT_OF(sizes) && is_described; i++)
        if (b->arguments.is_given[sizes[i]])
            tide_builder_refuse(b, TIDE_ERR_CONFLICT, sizes[i],
                                "lengths are those of prompts, and each generation is as wide as its longest one and "
                                "trainer.max_completion_length",
                                "leave it out");
}

/* Samples of different lengths, and what does not support them. */
static void check_lengths(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t rows = tide_job_rows(job) * job->grad_accum, prompt = job->trainer_prompt_length;
    tide_parallel_kind_choice kind = job->parallel_kind;
    bool is_cut =
        kind == TIDE_parallel_kind_pp || kind == TIDE_parallel_kind_native || kind == TIDE_parallel_kind_megatron;
    if (!tide_job_has_lengths(job)) {
        check_unused_lengths(b);
        return;
    }
    if (is_cut)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_lengths,
            tide_format(b->arena, "is not described with parallel.kind=%s", job->values[TIDE_SET_parallel_kind]),
            "give seq");
    if (job->packing)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_lengths, "packed rows all have seq tokens", "give seq");
    if (tide_trainer_completes(job)) check_lengths_of_prompts(b);
    if (job->pad_to_multiple_of > 1 && tide_trainer_traits_of(job)->prepares_kbit)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_pad_to_multiple_of,
                            tide_format(b->arena, "trainer=%s has no such argument", job->values[TIDE_SET_trainer]),
                            "leave it out");
    bool may_pad = tide_job_rows(job) > 1 || job->pad_to_multiple_of > 1;
    if (job->attention == TIDE_attention_flash_attention_2 && may_pad && !job->trainer_padding_free)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_attention,
                            "flash_attention_2 removes padding from rows, so its size depends on the batch",
                            "use sdpa, or trainer=sft with trainer.padding_free");
    if (job->padding)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_padding, "lengths determine which batches are padded",
                            "leave it out");
    if (job->trainer_scored_tokens > 0)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_scored_tokens,
                            "lengths determine the size of each batch", "leave it out");
    if (tide_trainer_is_of_trl(job) && !tide_trainer_completes(job) &&
        tide_lengths_shortest(&job->lengths) <= (prompt > 1 ? prompt : 1))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_lengths,
                            tide_format(b->arena, "a sample of %lld tokens has nothing left to be scored",
                                        (long long)tide_lengths_shortest(&job->lengths)),
                            "give longer ones, or a shorter trainer.prompt_length");
    if (rows > ROWS_MOST / job->steps)
        tide_builder_refuse(b, TIDE_ERR_LIMIT, TIDE_SET_lengths,
                            tide_format(b->arena,
                                        "%lld rows in each of %lld steps exceed the number that tidemark "
                                        "draws",
                                        (long long)rows, (long long)job->steps),
                            "give fewer steps");
}

/* FullyShardedDataParallel as used by accelerate: what is not described, and what does not run. */
static void check_fsdp1_trainer(tide_job_builder *b, const char *kind) {
    const tide_job *job = b->job;
    bool generates = tide_trainer_generates(job), has_adapter = job->adapter != TIDE_adapter_none;
    if (job->parallel_kind != TIDE_parallel_kind_fsdp1) return;
    if (job->parallel_sharding_strategy == TIDE_parallel_sharding_strategy_NO_SHARD)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_sharding_strategy,
                            tide_format(b->arena, "NO_SHARD is not described with %s", kind),
                            "use parallel.kind=ddp, which keeps full copies too");
    if (generates && job->trainer_use_vllm)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_use_vllm,
                            "sends the engine the weights of fsdp1 unit by unit, which is not described",
                            "use fsdp2, zero3 or ddp");
    else if (generates && has_adapter && job->autocast.is_set)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_adapter,
                            tide_format(b->arena,
                                        "%s generates outside of autocast, where adapters of fsdp1 are bf16 and what "
                                        "they read is fp32: \"expected mat1 and mat2 to have the same dtype\"",
                                        kind),
                            "use fsdp2, zero2 or ddp, or train the model itself");
}

/* trl/trainer/dpo_trainer.py and kto_trainer.py, _precompute_ref_logps(), which runs before the model is prepared. */
static void check_spread_precompute(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_fsdp = job->parallel_kind == TIDE_parallel_kind_fsdp1 || job->parallel_kind == TIDE_parallel_kind_fsdp2;
    if (job->trainer_precompute_ref_log_probs && is_fsdp && job->adapter != TIDE_adapter_none &&
        job->quant == TIDE_quant_none)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_precompute_ref_log_probs,
                            "fails with an adapter and FSDP, whose model is on the host before the training: "
                            "\"Expected all tensors to be on the same device\"",
                            "use ddp or zero2, or leave it out");
}

/* Trainers on several GPUs: what accelerate does to the model is described for some. */
static void check_spread_trainer(tide_job_builder *b, const char *kind) {
    const tide_job *job = b->job;
    const char *strategy = job->values[TIDE_SET_parallel_kind], *plain = "use one GPU, or leave the trainer out";
    bool has_deepspeed = tide_job_has_deepspeed(job), is_zero3 = job->parallel_kind == TIDE_parallel_kind_zero3,
         is_fsdp2 = job->parallel_kind == TIDE_parallel_kind_fsdp2,
         is_ddp = job->parallel_kind == TIDE_parallel_kind_ddp, is_quantised = job->quant != TIDE_quant_none;
    if (job->parallel_kind == TIDE_parallel_kind_none) return;
    if (!is_ddp && !has_deepspeed && !is_fsdp2 && job->parallel_kind != TIDE_parallel_kind_fsdp1)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_kind,
                            tide_format(b->arena, "%s is not described with trainers", strategy),
                            "use ddp, zero1, zero2, zero3, fsdp1 or fsdp2, or leave the trainer out");
    else if (is_zero3 && job->trainer_cast_lm_head_to_fp32)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_cast_lm_head_to_fp32,
                            "is not described with zero3, which keeps the head's partition in its own dtype",
                            "use ddp, zero2 or fsdp2, or leave it out");
    else if (is_zero3 && !tide_job_has_zero_init(job) && !is_quantised)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_zero_init,
            "is false: trainers are only described with models that deepspeed.zero.Init() partitions while loading",
            "write parallel.zero_init=true (accelerate's zero3_init_flag)");
    else if (is_fsdp2 && is_quantised && tide_job_sets(job, TIDE_SET_parallel_meta_init) && job->parallel_meta_init)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, TIDE_SET_parallel_meta_init),
                    "has no effect: accelerate leaves 4-bit models on the device", NULL);
    else if (is_fsdp2 && tide_job_is_adagrad(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_optimizer,
                            "is not described with fsdp2 and trainers: the states that Adagrad makes for whole "
                            "parameters stay on the device",
                            "use adamw, or ddp or zero3");
    else if (is_fsdp2 && job->parallel_offload)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_offload,
                            tide_format(b->arena, "is not described with %s", kind), plain);
    check_spread_precompute(b);
    check_fsdp1_trainer(b, kind);
    if (has_deepspeed && job->autocast.is_set &&
        !(job->parallel_half.is_set && job->parallel_half.dtype == job->autocast.dtype))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_autocast,
                            "differs from DeepSpeed's parallel.half, which Trainer checks", "leave it out");
}

/* An option with which a trainer is not described. */
typedef struct trainer_limit {
    bool is_set;
    tide_setting_id id;
    const char *what, *remedy;
} trainer_limit;

static void refuse_past_limits(tide_job_builder *b, const trainer_limit *limits, size_t count, const char *trainer) {
    for (size_t i = 0; i < count; i++)
        if (limits[i].is_set)
            tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, limits[i].id,
                                tide_format(b->arena, "%s is not described with %s", limits[i].what, trainer),
                                limits[i].remedy);
}

/* Options that TRL had another code for while it built the logits. */
static void check_logits_trainer(tide_job_builder *b) {
    const tide_job *job = b->job;
    tide_text rest = tide_text_of(job->trainer_loss_type ? job->trainer_loss_type : ""), one;
    bool has_sft = false;
    while (tide_piece_next(&rest, ',', &one)) has_sft |= tide_text_is(one, "sft");
    static const char remedy[] = "use another, or give trl=1.16";
    const trainer_limit limits[] = {
        {job->use_liger_kernel == TIDE_use_liger_kernel_true_, TIDE_SET_use_liger_kernel,
         "a preference loss of Liger's", remedy},
        {job->offload_activations != TIDE_offload_activations_none, TIDE_SET_offload_activations,
         "activation_offloading of logits", remedy},
        {job->parallel_kind == TIDE_parallel_kind_fsdp1, TIDE_SET_parallel_kind,
         "fsdp1, whose reference model keeps its logits' dtype,", remedy},
        {has_sft, TIDE_SET_trainer_loss_type, "sft, the cross entropy of the chosen rows' logits,", remedy},
    };
    const char *version = tide_shown(b->arena, tide_text_of(job->values[TIDE_SET_trl]));
    refuse_past_limits(b, limits, TIDE_COUNT_OF(limits), tide_format(b->arena, "TRL %s", version));
}

/* The releases whose trainers are described; compared as sources. From 1.15 on DPO and KTO have the fused head, and
 * KTO's batches hold their labels on the device since 1.9. */
static void check_trl_version(tide_job_builder *b, const char *kind) {
    static const struct {
        tide_trainer_choice trainer;
        int first, last;
    } described[] = {{TIDE_trainer_dpo, 1008, 1013},   {TIDE_trainer_dpo, 1015, 1016},  {TIDE_trainer_kto, 1009, 1013},
                     {TIDE_trainer_kto, 1015, 1016},   {TIDE_trainer_orpo, 1009, 1009}, {TIDE_trainer_cpo, 1009, 1009},
                     {TIDE_trainer_reward, 1009, 1009}};
    const tide_job *job = b->job;
    const char *given = job->values[TIDE_SET_trl];
    int number = tide_version_number(given);
    bool is_described = number == tide_version_number(tide_setting_default(TIDE_SET_trl));
    if (!tide_trainer_is_of_trl(job) || tide_trainer_is_of_factory(job)) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(described); i++)
        is_described |=
            described[i].trainer == job->trainer && number >= described[i].first && number <= described[i].last;
    if (!is_described)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trl,
            tide_format(b->arena, "%s is not described with %s", tide_shown(b->arena, tide_text_of(given)), kind),
            "leave it out for the figures of TRL 1.16; dpo is described from 1.8 to 1.13 as well, kto "
            "from 1.9 to 1.13");
    if (tide_trl_builds_logits(job)) check_logits_trainer(b);
}

/* LLaMA-Factory: train/dpo/workflow.py, train/trainer_utils.py (create_ref_model), train/kto/trainer.py. */
static void check_factory_reference(tide_job_builder *b, const char *who) {
    const tide_job *job = b->job;
    bool has_second = !tide_trainer_has_odds(job), is_fully_sharded = job->parallel_kind == TIDE_parallel_kind_fsdp1 ||
                                                                      job->parallel_kind == TIDE_parallel_kind_fsdp2;
    const trainer_limit limits[] = {
        {has_second && job->adapter == TIDE_adapter_none && is_fully_sharded, TIDE_SET_adapter,
         "none: the second model that LLaMA-Factory loads as reference, under FSDP,", "use adapter=lora, or zero3"},
        {job->trainer_precompute_ref_log_probs, TIDE_SET_trainer_precompute_ref_log_probs, "true", "leave it out"},
        {job->trainer_f_divergence_type != TIDE_trainer_f_divergence_type_reverse_kl,
         TIDE_SET_trainer_f_divergence_type, job->values[TIDE_SET_trainer_f_divergence_type], "leave it out"},
        {tide_job_sets(job, TIDE_SET_trainer_ld_alpha), TIDE_SET_trainer_ld_alpha, "ld_alpha", "leave it out"},
    };
    refuse_past_limits(b, limits, TIDE_COUNT_OF(limits), who);
}

/* LLaMA-Factory: train/rm/trainer.py. The value head's own state_dict() has no names of the model that it is in. */
static void check_value_head(tide_job_builder *b, const char *who) {
    const tide_job *job = b->job;
    bool is_spread = job->parallel_kind != TIDE_parallel_kind_none && job->parallel_kind != TIDE_parallel_kind_ddp,
         saves = job->trainer_save_strategy != TIDE_trainer_save_strategy_no;
    const trainer_limit limits[] = {
        {job->parallel_kind == TIDE_parallel_kind_fsdp2 && job->parallel_meta_init, TIDE_SET_parallel_meta_init,
         "cpu_ram_efficient_loading", "give fsdp_cpu_ram_efficient_loading: false"},
        {is_spread && saves, TIDE_SET_trainer_save_strategy, job->values[TIDE_SET_trainer_save_strategy],
         "leave it out"},
        {tide_job_sets(job, TIDE_SET_trainer_center_rewards_coefficient), TIDE_SET_trainer_center_rewards_coefficient,
         "center_rewards_coefficient", "leave it out"},
    };
    refuse_past_limits(b, limits, TIDE_COUNT_OF(limits), who);
}

static void check_factory(tide_job_builder *b, const char *kind) {
    const tide_job *job = b->job;
    const char *who = tide_format(b->arena, "%s of LLaMA-Factory", kind);
    const trainer_limit limits[] = {
        {job->offload_activations != TIDE_offload_activations_none, TIDE_SET_offload_activations,
         job->values[TIDE_SET_offload_activations], "leave it out"},
        {tide_job_has_lengths(job), TIDE_SET_lengths, "a list of lengths", "give seq, the longest row's"},
        {tide_trainer_has_value_head(job) && job->trainer_eval_strategy != TIDE_trainer_eval_strategy_no,
         TIDE_SET_trainer_eval_strategy, "evaluation", "leave it out"},
    };
    if (!tide_trainer_is_of_factory(job) || job->trainer == TIDE_trainer_hf) return;
    (tide_trainer_has_value_head(job) ? check_value_head : check_factory_reference)(b, who);
    refuse_past_limits(b, limits, TIDE_COUNT_OF(limits), who);
}

/* plugins/model_plugins/kernels/liger_kernel_ops.py: other families stay as they are, and peft's wrapper has no norm.
 */
static bool patches_liger(const tide_job *job) {
    const tide_json *type = tide_json_at(job->config, "model_type");
    return job->adapter == TIDE_adapter_none && tide_json_is(type, TIDE_JSON_STRING) &&
           tide_text_matches_one(type->text, "qwen3|qwen3_moe|qwen3_next|qwen3_5_text|qwen3_5_moe_text");
}

/* LLaMA-Factory's v1 trainer: core/base_trainer.py, core/model_engine.py, plugins/. */
static void check_factory_v1(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->trainer != TIDE_trainer_llama_factory_v1) return;
    bool is_whole = job->adapter == TIDE_adapter_none && !job->train_only.count && !job->freeze.count,
         is_sharded = job->parallel_kind == TIDE_parallel_kind_fsdp2;
    static const char one_gpu[] = "use parallel.kind=fsdp2, or one GPU", out[] = "leave it out";
    const trainer_limit limits[] = {
        {job->parallel_kind != TIDE_parallel_kind_none && !is_sharded, TIDE_SET_parallel_kind,
         job->values[TIDE_SET_parallel_kind], one_gpu},
        {is_sharded && job->parallel_dp < 2, TIDE_SET_parallel_dp, "a group of one rank", "use one GPU without fsdp2"},
        {is_sharded && job->parallel_cp > 1, TIDE_SET_parallel_cp, "context parallelism", out},
        {is_sharded && job->parallel_offload, TIDE_SET_parallel_offload, "offloading", out},
        {is_sharded && job->parallel_meta_init, TIDE_SET_parallel_meta_init, "a model on the meta device", out},
        {is_sharded && job->parallel_hybrid > 0, TIDE_SET_parallel_hybrid, "mp_replicate_size", out},
        {is_sharded && strcmp(job->parallel_wrap, "layer") != 0, TIDE_SET_parallel_wrap,
         job->values[TIDE_SET_parallel_wrap], "leave it out: it has units of its own"},
        {job->optimizer != TIDE_optimizer_adamw, TIDE_SET_optimizer, job->values[TIDE_SET_optimizer], "use adamw"},
        {job->autocast.is_set, TIDE_SET_autocast, "autocast",
         "leave it out: several ranks compute in "
         "parallel.param_dtype, one GPU in the weights' dtype"},
        {job->loss != TIDE_loss_default, TIDE_SET_loss, job->values[TIDE_SET_loss], out},
        {job->use_liger_kernel == TIDE_use_liger_kernel_true_ && !patches_liger(job), TIDE_SET_use_liger_kernel,
         "Liger beside adapters, or for a model other than Qwen 3,", out},
        {job->adapter != TIDE_adapter_none && job->adapter != TIDE_adapter_lora, TIDE_SET_adapter,
         job->values[TIDE_SET_adapter], "use lora"},
        {job->quant != TIDE_quant_none && job->adapter == TIDE_adapter_none, TIDE_SET_quant,
         job->values[TIDE_SET_quant], "use adapter=lora"},
        {!job->labels, TIDE_SET_labels, "labels=false", out},
        {tide_job_has_lengths(job), TIDE_SET_lengths, "a list of lengths", "give seq, the longest row's"},
        {job->offload_activations != TIDE_offload_activations_none, TIDE_SET_offload_activations,
         job->values[TIDE_SET_offload_activations], out},
        {job->scaler, TIDE_SET_scaler, "a GradScaler", out},
        {job->main_grads != TIDE_main_grads_none, TIDE_SET_main_grads, "main_grads", out},
        {job->ema != TIDE_ema_none, TIDE_SET_ema, "ema", out},
        {job->hold_outputs, TIDE_SET_hold_outputs, "hold_outputs", out},
        {job->packing, TIDE_SET_packing, "packing", out},
        {job->checkpointing != TIDE_checkpointing_none && job->checkpointing != TIDE_checkpointing_full,
         TIDE_SET_checkpointing, job->values[TIDE_SET_checkpointing], "use checkpointing=full"},
    };
    refuse_past_limits(b, limits, TIDE_COUNT_OF(limits), "LLaMA-Factory's v1 trainer");
    if (job->mode != TIDE_mode_train)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer, "trainers train",
                            "use mode=train, or leave it out");
    /* get_freeze_model() casts what trains to fp32, and nothing computes in mixed precision on one GPU */
    if (!is_whole && job->adapter == TIDE_adapter_none && !is_sharded &&
        tide_dtype_or(job->dtype, TIDE_BF16) != TIDE_FP32)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_train_only,
                            "trains parts in fp32 beside frozen ones in half precision, which fails on one GPU: "
                            "\"expected mat1 and mat2 to have the same dtype\"",
                            "give gpus=N: fully_shard() computes in one dtype");
}

static void check_trainer(tide_job_builder *b) {
    const tide_job *job = b->job;
    check_factory_v1(b);
    if (!tide_job_has_trainer(job)) return;
    const char *kind = tide_format(b->arena, "trainer=%s", job->values[TIDE_SET_trainer]);
    if (job->mode != TIDE_mode_train)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer, "trainers train",
                            "use mode=train, or leave it out");
    check_spread_trainer(b, kind);
    check_trl_version(b, kind);
    check_factory(b, kind);
    const tide_trainer_traits *traits = tide_trainer_traits_of(job);
    bool scores_tokens = tide_trainer_is_of_trl(job) && !traits->scores_rows && !tide_trainer_completes(job);
    if (scores_tokens && (job->seq < 2 || job->trainer_prompt_length >= job->seq))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_prompt_length,
                            "leaves no room in seq for scored tokens", "give a larger seq");
    else if (job->trainer_scored_tokens > tide_job_rows(job) * (job->seq - 1))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_scored_tokens,
                            "exceeds the number of positions in the micro-batch", "give less, or leave it out");
    if (job->trainer_assistant_only_loss && tide_trainer_cuts_sequences(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_assistant_only_loss,
                            "leaves to the data how many scored tokens each rank of a sequence has",
                            "use parallel.cp=1");
    if (tide_trainer_is_of_trl(job) && tide_job_prompts(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter,
                            tide_format(b->arena, "%s is not described with %s", job->values[TIDE_SET_adapter], kind),
                            "use lora");
    if (job->quant != TIDE_quant_none && !job->kbit_prepare && tide_trainer_prepares_kbit(job))
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, TIDE_SET_kbit_prepare),
                    tide_format(b->arena, "has no effect with %s, which prepares the model itself", kind), NULL);
    tide_check_trl_conflicts(b, kind);
    if (tide_trainer_completes(job)) check_rollouts(b);
    if (tide_trainer_answers_prompts(job)) check_prompt(b, job->trainer_prompt_length);
    check_loss_type(b, kind);
    if (job->offload_activations != TIDE_offload_activations_none && !traits->offloads_activations)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_offload_activations,
                            "is an option of TRL's sft, dpo and reward", "leave it out");
    static const tide_setting_id of_the_plain_loop[] = {TIDE_SET_scaler,       TIDE_SET_main_grads,
                                                        TIDE_SET_ema,          TIDE_SET_zero_grad,
                                                        TIDE_SET_zero_grad_at, TIDE_SET_hold_outputs};
    if (job->packing && !traits->packs)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_packing,
                            tide_format(b->arena, "is not described with %s", kind), "leave it out");
    for (size_t i = 0; i < TIDE_COUNT_OF(of_the_plain_loop); i++) {
        tide_setting_id id = of_the_plain_loop[i];
        if (b->arguments.is_given[id] && strcmp(job->values[id], tide_setting_default(id)) != 0)
            tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, id, tide_format(b->arena, "is not described with %s", kind),
                                "leave it out");
    }
}

enum { EVAL_BATCHES_LIMIT = 10000 };

/* Trainer.evaluate between steps. */
static void check_evaluation(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->trainer_eval_strategy == TIDE_trainer_eval_strategy_no || !tide_job_has_trainer(job)) return;
    const char *kind = tide_format(b->arena, "trainer=%s", job->values[TIDE_SET_trainer]);
    bool keeps = job->trainer_compute_metrics && !job->trainer_prediction_loss_only && !job->trainer_batch_eval_metrics;
    int64_t batch = job->trainer_per_device_eval_batch_size;
    if (tide_trainer_completes(job) || !job->labels)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_eval_strategy,
            tide_format(b->arena, "evaluation is not described with %s", job->labels ? kind : "labels=false"),
            "leave it out to play only the training");
    if (job->trainer_scored_tokens)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_scored_tokens,
                            "applies to training batches: it is not described for those of an evaluation",
                            "leave it out");
    if (job->trainer_compute_metrics && job->trainer != TIDE_trainer_hf)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_compute_metrics,
                            tide_format(b->arena, "is not described with %s", kind), "use trainer=hf");
    else if (keeps && !job->trainer_predict_with_generate && !job->trainer_max_eval_samples)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_compute_metrics,
                            "keeps the predictions of all samples on the device, so their number matters",
                            "give trainer.max_eval_samples, the number of evaluated rows");
    if (job->trainer_predict_with_generate && job->parallel_kind != TIDE_parallel_kind_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_trainer_predict_with_generate,
                            "is not described on several GPUs", "leave it out: then predictions are logits");
    if (job->trainer_predict_with_generate && !keeps)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT,
                    tide_builder_place(b, TIDE_SET_trainer_predict_with_generate),
                    "has no effect without trainer.compute_metrics=true: there are no predictions", NULL);
    if (job->trainer_max_eval_samples / batch > EVAL_BATCHES_LIMIT)
        tide_builder_refuse(b, TIDE_ERR_LIMIT, TIDE_SET_trainer_max_eval_samples,
                            tide_format(b->arena, "more than %d batches are not played", EVAL_BATCHES_LIMIT),
                            keeps ? "give less" : "leave it out: all batches need the same memory");
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_trainer_eval_strategy),
                "evaluated rows are as long as those of training; the last evaluation is after the last step that "
                "is played",
                NULL);
}

void tide_check_trainer_conflicts(tide_job_builder *b) {
    check_trainer(b);
    check_evaluation(b);
    check_lengths(b);
}
