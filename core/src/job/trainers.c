/* SPDX-License-Identifier: Apache-2.0 */
/* What TRL's generating trainers derive from their arguments (trl/trainer/grpo_config.py, rloo_config.py). */
#include "job/trainers.h"

#include <string.h>

#include "base/rounding.h"
#include "base/units.h"
#include "job/settings.h"

static const tide_trainer_traits trainers[] = {
#define TIDE_TRAINER(name, synonyms, ...) [TIDE_trainer_##name] = {__VA_ARGS__},
#include "job/trainers.def"
#undef TIDE_TRAINER
};

const tide_trainer_traits *tide_trainer_traits_of(const tide_job *job) {
    return &trainers[job->trainer];
}

const char *tide_trainer_of_loss(tide_text loss) {
    const char *found = NULL;
    for (size_t i = 0; i < TIDE_COUNT_OF(trainers); i++) {
        if (!trainers[i].losses || !tide_text_is_among(loss, trainers[i].losses)) continue;
        if (found) return NULL;
        found = tide_settings[TIDE_SET_trainer].choices[i];
    }
    return found;
}

bool tide_trainer_is_of_trl(const tide_job *job) {
    return tide_trainer_traits_of(job)->function != NULL;
}

bool tide_trainer_is_of_factory(const tide_job *job) {
    return job->mode == TIDE_mode_train && tide_trainer_traits_of(job)->is_of_factory &&
           job->trainer_program == TIDE_trainer_program_llama_factory;
}

bool tide_trainer_has_value_head(const tide_job *job) {
    return tide_trainer_is_of_factory(job) && tide_trainer_traits_of(job)->scores_rows;
}

bool tide_trainer_has_odds(const tide_job *job) {
    const char *loss = job->trainer_loss_type;
    return tide_trainer_is_of_factory(job) && job->trainer == TIDE_trainer_dpo && loss &&
           (strcmp(loss, "orpo") == 0 || strcmp(loss, "simpo") == 0);
}

bool tide_trl_builds_logits(const tide_job *job) {
    enum { FUSED_SINCE = 1014 }; /* as tide_version_number() returns it */
    int number = tide_version_number(job->values[TIDE_SET_trl]);
    return tide_trainer_traits_of(job)->built_logits &&
           (tide_trainer_is_of_factory(job) || (number && number < FUSED_SINCE));
}

bool tide_trl_fuses_head(const tide_job *job) {
    return tide_trainer_is_of_trl(job) && !tide_trainer_traits_of(job)->builds_logits && !tide_trl_builds_logits(job);
}

bool tide_trainer_generates(const tide_job *job) {
    return tide_trainer_traits_of(job)->generates;
}

bool tide_trainer_completes(const tide_job *job) {
    return tide_trainer_traits_of(job)->generates || tide_trainer_traits_of(job)->pairs_completions;
}

bool tide_trainer_distils(const tide_job *job) {
    return tide_trainer_traits_of(job)->has_teacher;
}

bool tide_trainer_answers_prompts(const tide_job *job) {
    return tide_trainer_distils(job) && (job->trainer_lmbda > 0 || job->trainer_seq_kd);
}

bool tide_trainer_casts_to_bf16(const tide_job *job) {
    bool is_4bit = job->quant == TIDE_quant_nf4 || job->quant == TIDE_quant_fp4,
         is_bf16 = tide_job_has_deepspeed(job) ? job->parallel_half.is_set && job->parallel_half.dtype == TIDE_BF16
                                               : job->autocast.is_set && job->autocast.dtype == TIDE_BF16;
    return tide_trainer_traits_of(job)->prepares_kbit && is_4bit && is_bf16;
}

bool tide_adapter_has_task(const tide_job *job) {
    bool is_said = job->adapter_task_type != TIDE_adapter_task_type_default;
    return is_said ? job->adapter_task_type != TIDE_adapter_task_type_none
                   : tide_trainer_is_of_trl(job) || job->trainer == TIDE_trainer_llama_factory_v1;
}

bool tide_trainer_prepares_kbit(const tide_job *job) {
    return tide_trainer_traits_of(job)->prepares_kbit && job->adapter != TIDE_adapter_none;
}

bool tide_trainer_leaves_kbit(const tide_job *job) {
    if (job->trainer == TIDE_trainer_llama_factory_v1 || tide_trainer_is_of_factory(job)) return true;
    return tide_trainer_is_of_trl(job) && !tide_trainer_prepares_kbit(job);
}

const char *tide_trainer_default(const tide_job *job, tide_setting_id id) {
    const tide_trainer_traits *traits = tide_trainer_traits_of(job);
    bool is_v1 = job->trainer == TIDE_trainer_llama_factory_v1,
         is_sharded = job->parallel_kind == TIDE_parallel_kind_fsdp2;
    bool is_of_both = tide_trainer_distils(job) && job->trainer_lmbda > 0 && job->trainer_lmbda < TIDE_PICO;
    if (id == TIDE_SET_steps && is_of_both) return "3"; /* each kind with the optimizer's states */
    if (id == TIDE_SET_trainer_max_completion_length) return traits->max_completion_length;
    if (id == TIDE_SET_trainer_temperature) return traits->temperature;
    if (id == TIDE_SET_kbit_prepare && tide_trainer_leaves_kbit(job)) return "false";
    bool has_liger = is_v1 && job->use_liger_kernel == TIDE_use_liger_kernel_true_; /* LigerKernel, require_logits */
    if (id == TIDE_SET_liger_fused_linear_cross_entropy && has_liger) return "false";
    if (id == TIDE_SET_liger_cross_entropy && has_liger) return "true";
    if (id == TIDE_SET_parallel_param_dtype && is_v1 && is_sharded) return "bf16";
    if (id == TIDE_SET_parallel_reduce_dtype && is_v1 && is_sharded) return "fp32";
    return NULL;
}

bool tide_prepares_kbit(const tide_job *job) {
    return job->mode == TIDE_mode_train && job->quant != TIDE_quant_none &&
           ((job->kbit_prepare && job->trainer != TIDE_trainer_llama_factory_v1) || tide_trainer_prepares_kbit(job));
}

bool tide_trainer_places_model(const tide_job *job) {
    bool is_engine = tide_job_has_deepspeed(job) || job->parallel_kind == TIDE_parallel_kind_fsdp1 ||
                     job->parallel_kind == TIDE_parallel_kind_fsdp2;
    /* LLaMA-Factory: model/patcher.py, patch_config(): device_map, unless the strategy loads the model in parts */
    bool is_mapped = tide_trainer_is_of_factory(job) && job->parallel_kind != TIDE_parallel_kind_zero3 &&
                     job->parallel_kind != TIDE_parallel_kind_fsdp1 && !tide_job_is_on_meta(job);
    return !tide_job_has_trainer(job) || !is_engine || is_mapped || job->quant != TIDE_quant_none;
}

bool tide_job_has_zero_init(const tide_job *job) {
    bool is_set = tide_job_sets(job, TIDE_SET_parallel_zero_init);
    bool is_quantised = job->quant != TIDE_quant_none; /* get_init_context() does not partition it */
    bool has_config = tide_job_has_trainer(job);       /* HfDeepSpeedConfig */
    if (has_config && is_quantised) return false;
    return is_set ? job->parallel_zero_init : has_config;
}

/* "PEFT + DeepSpeed ZeRO-3": trl/trainer/sft_trainer.py and others, __init__. */
static bool adapts_under_zero3(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_zero3 && tide_trainer_is_of_trl(job) &&
           job->adapter != TIDE_adapter_none && !tide_trainer_is_of_factory(job);
}

bool tide_job_is_reentrant(const tide_job *job) {
    bool is_forced =
        job->checkpointing == TIDE_checkpointing_full && adapts_under_zero3(job) && !tide_trainer_prepares_kbit(job);
    bool has_choice = !tide_job_is_of_timm(job) && !tide_job_is_of_diffusers(job);
    return has_choice && (job->checkpointing == TIDE_checkpointing_full_reentrant || is_forced);
}

bool tide_job_casts_adapters(const tide_job *job) {
    bool is_told = adapts_under_zero3(job) && job->quant == TIDE_quant_none && /* autocast_adapter_dtype=False */
                   !tide_trainer_traits_of(job)->pairs_completions;
    bool is_of_bridge = job->parallel_kind == TIDE_parallel_kind_megatron;
    return job->adapter_autocast_adapter_dtype && !is_told && !is_of_bridge;
}

bool tide_job_autocasts(const tide_job *job) {
    bool is_of_mixed_precision = tide_job_has_trainer(job) && job->parallel_kind == TIDE_parallel_kind_fsdp2;
    return job->autocast.is_set && !tide_job_has_deepspeed(job) && !is_of_mixed_precision;
}

int64_t tide_sequences_of_row(const tide_job *job) {
    bool flattens = tide_trainer_traits_of(job)->packs && (job->packing || job->trainer_padding_free);
    if (!flattens) return 0;
    return job->batch * (job->packing ? job->trainer_sequences_per_row : 1);
}

int64_t tide_prompt_length(const tide_job *job) {
    return job->trainer_prompt_length > 0 ? job->trainer_prompt_length : job->seq - job->trainer_max_completion_length;
}

int64_t tide_steps_per_generation(const tide_job *job) {
    return job->trainer_steps_per_generation > 0 ? job->trainer_steps_per_generation : job->grad_accum;
}

int64_t tide_least_batch(const tide_job *job) {
    int64_t ranks = tide_data_ranks(job), group = job->trainer_num_generations;
    return group / tide_gcd(group, ranks * tide_steps_per_generation(job));
}

bool tide_keeps_reference(const tide_job *job) {
    const char *beta = job->values[TIDE_SET_trainer_beta];
    return beta && beta[0] ? job->trainer_beta > 0 : tide_trainer_traits_of(job)->has_kl_term;
}

bool tide_corrects_sampling(const tide_job *job) {
    return tide_trainer_traits_of(job)->keeps_sampling_logps && job->trainer_use_vllm &&
           job->trainer_vllm_importance_sampling_correction;
}

/* trl/trainer/sft_trainer.py, __init__, and the same of dpo, kto, grpo and rloo: of a model that sees images, a text
 * alone leaves the tower without gradients. */
static bool may_leave_tower_unused(const tide_job *job) {
    bool has_processor = tide_json_at(job->config, "vision_config") != NULL;
    return has_processor && tide_trainer_traits_of(job)->sees_images &&
           job->checkpointing != TIDE_checkpointing_full_reentrant;
}

/* Default: False; transformers/trainer.py, _build_accelerator_args: True for peft models and without checkpointing.
 * LLaMA-Factory: hparams/parser.py, get_train_args(). */
bool tide_finds_unused_parameters(const tide_job *job) {
    if (tide_job_sets(job, TIDE_SET_parallel_find_unused_parameters)) return job->parallel_find_unused_parameters;
    if (tide_trainer_is_of_factory(job) && job->adapter == TIDE_adapter_lora) return false;
    if (tide_trainer_has_value_head(job)) return true; /* no PreTrainedModel */
    return tide_job_has_trainer(job) && (job->checkpointing == TIDE_checkpointing_none ||
                                         job->adapter != TIDE_adapter_none || may_leave_tower_unused(job));
}

bool tide_has_colocated_engine(const tide_job *job) {
    return tide_trainer_generates(job) && job->trainer_use_vllm &&
           job->trainer_vllm_mode == TIDE_trainer_vllm_mode_colocate;
}

bool tide_keeps_old_logps(const tide_job *job) {
    int64_t generate_every = tide_steps_per_generation(job) * job->trainer_num_iterations;
    return tide_trainer_traits_of(job)->keeps_old_logps || tide_corrects_sampling(job) ||
           job->grad_accum % generate_every != 0;
}
