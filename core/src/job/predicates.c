/* SPDX-License-Identifier: Apache-2.0 */
/* Properties that depend on several fields of a job. */
#include "job/job.h"
#include "job/settings.h"

bool tide_job_sets(const tide_job *job, tide_setting_id id) {
    return job->values[id][0] != 0;
}

bool tide_job_prompts(const tide_job *job) {
    return job->adapter == TIDE_adapter_prompt_tuning || job->adapter == TIDE_adapter_prefix_tuning ||
           job->adapter == TIDE_adapter_p_tuning;
}

bool tide_job_packs_weights(const tide_job *job) {
    return job->quant == TIDE_quant_gptq || job->quant == TIDE_quant_awq || job->quant == TIDE_quant_fp8 ||
           job->quant == TIDE_quant_compressed_tensors;
}

bool tide_job_has_auto_plan(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_tp && job->parallel_tp_plan == TIDE_parallel_tp_plan_auto;
}

bool tide_job_cuts_experts(const tide_job *job) {
    return tide_job_has_auto_plan(job) && job->parallel_ep > 1;
}

bool tide_job_has_torchtitan_models(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_native && job->parallel_models == TIDE_parallel_models_torchtitan;
}

bool tide_job_shards_sequence(const tide_job *job) {
    return job->parallel_sequence_parallel || (tide_job_has_torchtitan_models(job) && job->parallel_tp > 1);
}

bool tide_job_autocasts_torchtitan(const tide_job *job) {
    bool is_alone = job->parallel_dp * job->parallel_cp * job->parallel_tp * job->parallel_pp == 1;
    return tide_job_has_torchtitan_models(job) && is_alone;
}

int64_t tide_torchtitan_layers_before(int64_t layers, int64_t first, int64_t last, int64_t stages, int64_t stage) {
    int64_t all = layers + first + last, more = all % stages;
    if (stage == 0 || stage == stages) return stage ? layers : 0;
    return stage * (all / stages) + (stage < more ? stage : more) - first;
}

int64_t tide_job_checkpoint_period(const tide_job *job) {
    static const int64_t periods[] = {[TIDE_parallel_ac_full] = 1,
                                      [TIDE_parallel_ac_op] = 1,
                                      [TIDE_parallel_ac_every2] = 2,
                                      [TIDE_parallel_ac_every3] = 3,
                                      [TIDE_parallel_ac_every4] = 4};
    return periods[job->parallel_ac];
}

bool tide_job_has_torchtitan_experts(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_native && job->parallel_ep > 1 &&
           !tide_job_has_torchtitan_models(job);
}

bool tide_job_cuts_torchtitan_experts(const tide_job *job) {
    return tide_job_has_torchtitan_models(job) && job->parallel_ep > 1;
}

int64_t tide_job_expert_tensor_ranks(const tide_job *job) {
    return job->parallel_etp ? job->parallel_etp : 1;
}

bool tide_job_has_trainer(const tide_job *job) {
    return job->trainer >= TIDE_trainer_hf;
}

bool tide_job_is_sgd(const tide_job *job) {
    return job->optimizer == TIDE_optimizer_sgd || job->optimizer == TIDE_optimizer_sgd_momentum;
}

bool tide_job_is_adagrad(const tide_job *job) {
    return job->optimizer == TIDE_optimizer_adagrad || job->optimizer == TIDE_optimizer_adagrad_fused ||
           job->optimizer == TIDE_optimizer_adagrad_single;
}

bool tide_job_is_on_meta(const tide_job *job) {
    tide_parallel_kind_choice kind = job->parallel_kind;
    if (tide_job_has_auto_plan(job)) return true;
    if (tide_job_has_trainer(job) && job->quant != TIDE_quant_none) return false; /* fsdp2_prepare_model() */
    if (tide_job_sets(job, TIDE_SET_parallel_meta_init))
        return job->parallel_meta_init && (kind == TIDE_parallel_kind_fsdp2 || kind == TIDE_parallel_kind_tp ||
                                           kind == TIDE_parallel_kind_pp || kind == TIDE_parallel_kind_native);
    return kind == TIDE_parallel_kind_native && job->adapter == TIDE_adapter_none && job->quant == TIDE_quant_none;
}

int64_t tide_data_ranks(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_none ? 1 : job->parallel_dp;
}

bool tide_trainer_cuts_sequences(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_fsdp2 && job->parallel_cp > 1;
}

int64_t tide_job_reduction_ranks(const tide_job *job) {
    int64_t ranks_of_sequence =
        tide_trainer_cuts_sequences(job) ? job->parallel_cp : job->parallel_sequence_parallel_size;
    return job->parallel_dp * ranks_of_sequence;
}

int64_t tide_job_world(const tide_job *job) {
    return job->parallel_dp * job->parallel_sequence_parallel_size * job->parallel_tp * job->parallel_pp *
           job->parallel_cp;
}

bool tide_job_has_deepspeed(const tide_job *job) {
    return job->parallel_kind >= TIDE_parallel_kind_zero0 && job->parallel_kind <= TIDE_parallel_kind_zero3;
}

bool tide_job_is_of_diffusers(const tide_job *job) {
    return !job->description && tide_json_at(job->config, "_class_name");
}

bool tide_job_is_of_timm(const tide_job *job) {
    return !job->description && tide_json_at(job->config, "architecture");
}

bool tide_job_is_of_transformers(const tide_job *job) {
    return !job->description && !tide_job_is_of_diffusers(job) && !tide_job_is_of_timm(job) &&
           job->mode != TIDE_mode_serve && job->parallel_kind != TIDE_parallel_kind_megatron &&
           !tide_job_has_torchtitan_models(job);
}
