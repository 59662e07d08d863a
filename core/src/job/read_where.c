/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that are only read under a condition: given without it, they are reported. A condition on a single other
 * setting is `.when` in settings.def. */
#include "job/builder.h"
#include "job/trainers.h"

#include <string.h>

#include "base/units.h"

static bool has_experts(const tide_job *job) {
    static const char *const keys[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"};
    bool has = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) has = has || tide_json_at(job->config, keys[i]);
    return has;
}

static bool is_pipelined(const tide_job *job) {
    return job->parallel_pp > 1;
}
static bool is_not_pipelined(const tide_job *job) {
    return job->parallel_pp == 1;
}
static bool has_context_ranks(const tide_job *job) {
    return job->parallel_cp > 1;
}
static bool shares_sequences(const tide_job *job) {
    return job->parallel_sequence_parallel_size > 1;
}

static bool has_whole_sequences(const tide_job *job) {
    return !shares_sequences(job);
}

static bool has_tensor_ranks(const tide_job *job) {
    return job->parallel_tp > 1;
}
static bool has_own_plan(const tide_job *job) {
    return !tide_job_has_auto_plan(job);
}
static bool has_data_ranks(const tide_job *job) {
    return job->parallel_dp > 1;
}
static bool has_trainer(const tide_job *job) {
    return tide_job_has_trainer(job);
}
static bool may_be_of_trl(const tide_job *job) {
    return job->trainer != TIDE_trainer_hf && !tide_trainer_is_of_factory(job);
}
static bool wraps_layers(const tide_job *job) {
    return strcmp(job->parallel_wrap, "layer") == 0;
}
static bool is_sharded(const tide_job *job) {
    return job->parallel_dp * job->parallel_cp > 1;
}
static bool has_modules_of_transformers(const tide_job *job) {
    return !tide_job_has_torchtitan_models(job);
}
static bool has_expert_ranks(const tide_job *job) {
    return tide_job_has_torchtitan_experts(job) || tide_job_cuts_torchtitan_experts(job);
}

static bool casts_parameters(const tide_job *job) {
    return is_sharded(job) || tide_job_autocasts_torchtitan(job);
}
static bool is_interleaved(const tide_job *job) {
    return job->parallel_pp > 1 && job->parallel_virtual_stages > 0;
}
static bool recomputes_all(const tide_job *job) {
    return job->parallel_recompute == TIDE_parallel_recompute_full;
}
static bool recomputes_modules(const tide_job *job) {
    return job->parallel_recompute == TIDE_parallel_recompute_selective;
}
static bool is_precision_aware(const tide_job *job) {
    return job->parallel_precision_aware;
}
static bool has_buckets(const tide_job *job) {
    return job->parallel_overlap_grad_reduce;
}
static bool is_unfused(const tide_job *job) {
    return job->parallel_impl == TIDE_parallel_impl_local;
}
/* backends.py, UnfusedDotProductAttention: apply_qk_layer_scaling. */
static bool can_scale_by_layer(const tide_job *job) {
    return is_unfused(job) || (job->parallel_attention_backend == TIDE_parallel_attention_backend_unfused &&
                               tide_dtype_or(job->dtype, TIDE_BF16) == TIDE_FP16);
}
static bool is_compiled(const tide_job *job) {
    return job->parallel_jit;
}
static bool groups_experts(const tide_job *job) {
    return has_experts(job) && job->parallel_router_groups > 0;
}
static bool limits_groups(const tide_job *job) {
    return job->parallel_router_group_topk > 0;
}
static bool is_fp8_delayed(const tide_job *job) {
    return job->parallel_fp8 == TIDE_parallel_fp8_delayed;
}
static bool is_trained(const tide_job *job) {
    return job->mode == TIDE_mode_train;
}
static bool is_not_gguf(const tide_job *job) {
    return job->mode != TIDE_mode_serve || strcmp(job->values[TIDE_SET_engine], "llama_cpp") != 0;
}
static bool is_plain_loop(const tide_job *job) {
    return !tide_job_has_trainer(job);
}
static bool clips(const tide_job *job) { /* with a GradScaler, gradients are unscaled for it */
    return is_plain_loop(job) || (job->autocast.is_set && job->autocast.dtype == TIDE_FP16);
}
static bool keeps_head(const tide_job *job) {
    return !tide_trainer_traits_of(job)->scores_rows;
}
static bool has_model_loss(const tide_job *job) {
    return !tide_trainer_is_of_trl(job);
}
static bool reads_beta(const tide_job *job) {
    return tide_trainer_generates(job) || tide_trainer_distils(job);
}
static bool has_kl_term(const tide_job *job) {
    return !tide_trainer_generates(job) || tide_keeps_reference(job);
}
static bool packs_rows(const tide_job *job) {
    return job->packing;
}
static bool accumulates(const tide_job *job) {
    return job->grad_accum > 1;
}
static bool saves_checkpoints(const tide_job *job) {
    return job->trainer_save_strategy != TIDE_trainer_save_strategy_no && !is_plain_loop(job);
}
static bool keeps_all(const tide_job *job) {
    return job->mode != TIDE_mode_train || job->checkpointing == TIDE_checkpointing_none;
}
static bool has_cache(const tide_job *job) {
    return is_trained(job) || job->cache != TIDE_cache_none;
}
static bool is_zero3(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_zero3;
}
static bool is_not_zero3(const tide_job *job) {
    return !is_zero3(job);
}
static bool is_on_host(const tide_job *job) {
    return job->parallel_offload_optimizer != TIDE_parallel_offload_optimizer_none ||
           job->parallel_offload_param != TIDE_parallel_offload_param_none;
}
static bool makes_prompts(const tide_job *job) {
    return job->adapter != TIDE_adapter_prefix_tuning || job->adapter_prefix_projection;
}
static bool has_no_prompts(const tide_job *job) {
    return !tide_job_prompts(job);
}
static bool has_no_prefix(const tide_job *job) {
    return job->adapter != TIDE_adapter_prefix_tuning;
}
/* Decoupled decay multiplies the weights in place; other optimizers add it to the gradients. */
static bool adds_decay(const tide_job *job) {
    return !strstr(job->values[TIDE_SET_optimizer], "adamw");
}
/* axolotl: patch_moe_quantization_on_load() disables caching_allocator_warmup(). */
static bool warms_up(const tide_job *job) {
    return !job->quant_experts;
}
static bool never(const tide_job *job) {
    (void)job;
    return false;
}

/* Settings that are read under a condition; `without` says when they are not. */
static const struct {
    int kinds;
    tide_setting_id id;
    bool (*is_read)(const tide_job *);
    const char *without;
} read_where[] = {
    {ALL_KINDS, TIDE_SET_purpose, never, ": training and fine-tuning are the same allocations"},
    {ALL_KINDS, TIDE_SET_dtype, is_not_gguf, " with engine=llama_cpp: ftype is what weights are kept in"},
    {ALL_KINDS, TIDE_SET_head, keeps_head, " with trainer=reward, which makes a head of one score"},
    {ALL_KINDS, TIDE_SET_labels, has_model_loss, ": TRL's trainers compute the loss themselves"},
    {ALL_KINDS, TIDE_SET_param_groups, is_plain_loop, " with a trainer, which makes groups of its own"},
    {ALL_KINDS, TIDE_SET_clip, clips, " with a trainer, which computes the norm in any case"},
    {ALL_KINDS, TIDE_SET_use_cache, is_trained, " in inference: cache=none leaves it out"},
    {ALL_KINDS, TIDE_SET_use_cache, keeps_all, " with checkpointing, which switches the cache off"},
    {ALL_KINDS, TIDE_SET_use_cache, is_plain_loop, " with a trainer, which sets it itself"},
    {ALL_KINDS, TIDE_SET_use_cache, has_no_prefix, " with prefix_tuning: the prefix is a cache"},
    {ALL_KINDS, TIDE_SET_decode, has_cache, " with cache=none, where nothing is generated"},
    {ALL_KINDS, TIDE_SET_logits_to_keep, has_cache, " with cache=none, where nothing is generated"},
    {ALL_KINDS, TIDE_SET_adapter_alpha, has_experts, ": the model has no experts, and the scaling is a number"},
    {ALL_KINDS, TIDE_SET_adapter_rslora, has_experts, ": the model has no experts, and the scaling is a number"},
    {ALL_KINDS, TIDE_SET_adapter_alpha_pattern, has_experts, ": the model has no experts, and scalings are numbers"},
    {ALL_KINDS, TIDE_SET_adapter_task_type, is_zero3, " without parallel.kind=zero3"},
    {ALL_KINDS, TIDE_SET_adapter_encoder_hidden_size, makes_prompts, " without adapter.prefix_projection"},
    {ALL_KINDS, TIDE_SET_adapter_autocast_adapter_dtype, has_no_prompts, ": prompts are of the model's type"},
    {ALL_KINDS, TIDE_SET_load, warms_up, " with quant.experts: experts are quantised one by one"},
    {ALL_KINDS, TIDE_SET_trainer_sequences_per_row, packs_rows, " without packing"},
    {ALL_KINDS, TIDE_SET_trainer_beta, reads_beta, ": it is a number in the loss"},
    {ALL_KINDS, TIDE_SET_trainer_label_smoothing, never, ": it is a number in the loss"},
    {ALL_KINDS, TIDE_SET_trainer_simpo_gamma, never, ": it is a number in the loss"},
    {ALL_KINDS, TIDE_SET_trl, may_be_of_trl, ": no trainer of TRL is played"},
    {ALL_KINDS, TIDE_SET_trainer_sync_ref_model, never, ": the reference follows in place"},
    {ALL_KINDS, TIDE_SET_trainer_use_bias_correction_kl, has_kl_term, " with trainer.beta=0: there is no KL term"},
    {ALL_KINDS, TIDE_SET_trainer_weight_decay, adds_decay, ": AdamW decays the weights in place"},
    {ALL_KINDS & ~(PP | NATIVE | MEGATRON), TIDE_SET_parallel_sync_each, accumulates, " with grad_accum=1"},
    {ALL_KINDS, TIDE_SET_parallel_state_dict_type, saves_checkpoints,
     " without trainer.save_strategy: nothing is saved"},
    {ZERO3, TIDE_SET_parallel_stage3_gather_16bit_weights_on_model_save, saves_checkpoints,
     " without trainer.save_strategy: nothing is saved"},
    {ZERO, TIDE_SET_parallel_seq_parallel_communication_data_type, shares_sequences,
     " with parallel.sequence_parallel_size=1"},
    {ZERO, TIDE_SET_parallel_communication_data_type, has_whole_sequences,
     " with Ulysses, whose is parallel.seq_parallel_communication_data_type"},
    {ZERO, TIDE_SET_parallel_pin_memory, is_on_host, ": nothing is offloaded"},
    {ZERO, TIDE_SET_clip, never, ": DeepSpeed's engine computes the norm in any case"},
    {ZERO, TIDE_SET_zero_grad, never, ": DeepSpeed's engine frees gradients itself"},
    {ZERO, TIDE_SET_parallel_allgather_bucket_size, never, ": what is gathered is views of one buffer"},
    {ZERO, TIDE_SET_parallel_allgather_partitions, never, ": what is gathered is views of one buffer"},
    {ZERO, TIDE_SET_parallel_check_grad_overflow, never, ": what it takes is there and gone before the peak"},
    {ZERO, TIDE_SET_parallel_round_robin_gradients, is_not_zero3, " in stage 3"},
    {ZERO, TIDE_SET_parallel_use_multi_rank_bucket_allreduce, is_not_zero3, " in stage 3"},
    {ALL_KINDS, TIDE_SET_parallel_transformer_cls_names_to_wrap, has_trainer, " without a trainer"},
    {ALL_KINDS, TIDE_SET_parallel_transformer_cls_names_to_wrap, wraps_layers, " with parallel.wrap=root"},
    {FSDP1, TIDE_SET_parallel_limit_all_gathers, never, ": it is about when the CPU waits"},
    {MEGATRON, TIDE_SET_parallel_fp8_amax_history_len, is_fp8_delayed, " without parallel.fp8=delayed"},
    {ALL_KINDS, TIDE_SET_parallel_local_world, never, ": nodes do not matter to what a rank allocates"},
    {PP | NATIVE | MEGATRON, TIDE_SET_use_cache, never, ": layers are called without a cache"},
    {TP, TIDE_SET_parallel_param_dtype, has_data_ranks, " with parallel.dp=1: fully_shard casts"},
    {TP, TIDE_SET_parallel_reduce_dtype, has_data_ranks, " with parallel.dp=1: fully_shard casts"},
    {TP, TIDE_SET_parallel_reduce_dtype, has_own_plan,
     " with parallel.tp_plan=auto: transformers' fsdp_mixed_precision is bf16, reduced in fp32"},
    {TP, TIDE_SET_parallel_meta_init, has_own_plan, " with parallel.tp_plan=auto: each rank reads its own parts"},
    {TP, TIDE_SET_load, has_own_plan, " with parallel.tp_plan=auto: from_pretrained() begins with one block of all"},
    {TP, TIDE_SET_parallel_wrap, has_data_ranks, " with parallel.dp=1"},
    {TP, TIDE_SET_parallel_wrap, has_own_plan, " with parallel.tp_plan=auto, which has units of its own"},
    {TP, TIDE_SET_parallel_ep_implementation, tide_job_cuts_experts, " without parallel.ep"},
    {TP, TIDE_SET_parallel_imbalance, tide_job_cuts_experts, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_imbalance, has_expert_ranks, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_etp, tide_job_cuts_torchtitan_experts,
     " without parallel.ep of parallel.models=torchtitan"},
    {NATIVE, TIDE_SET_parallel_spmd_backend, tide_job_has_torchtitan_experts, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_param_dtype, casts_parameters,
     " with one data and context parallel rank: fully_shard casts"},
    {NATIVE, TIDE_SET_parallel_reduce_dtype, is_sharded, " with one data and context parallel rank: fully_shard casts"},
    {NATIVE, TIDE_SET_parallel_reshard_after_forward, is_sharded, " with one data and context parallel rank"},
    {NATIVE, TIDE_SET_parallel_sync_each, is_not_pipelined, " with a pipeline, which reduces after its last pass"},
    {NATIVE, TIDE_SET_parallel_schedule, is_pipelined, " with parallel.pp=1"},
    {NATIVE | MEGATRON, TIDE_SET_parallel_stage_layers, is_pipelined, " with parallel.pp=1"},
    {FSDP2 | NATIVE, TIDE_SET_parallel_rotate, has_context_ranks, " with parallel.cp=1"},
    {NATIVE, TIDE_SET_parallel_rotate, has_modules_of_transformers, ": torchtitan's trainer leaves it at allgather"},
    {NATIVE, TIDE_SET_zero_grad, has_modules_of_transformers, ": torchtitan's trainer sets gradients to none"},
    {MEGATRON, TIDE_SET_sdpa_backend, never, ": give parallel.attention_backend"},
    {MEGATRON, TIDE_SET_hold_outputs, never, " with parallel.kind=megatron"},
    {MEGATRON, TIDE_SET_zero_grad, never, ": gradients are buffers, which are zeroed"},
    {MEGATRON, TIDE_SET_clip, never, ": gradients are clipped in place"},
    {MEGATRON, TIDE_SET_parallel_sequence_parallel, has_tensor_ranks,
     " with parallel.tp=1: \"Disabling sequence parallelism because tensor model parallelism is disabled\""},
    {MEGATRON, TIDE_SET_parallel_cp_comm_type, has_context_ranks, " with parallel.cp=1"},
    {MEGATRON, TIDE_SET_parallel_overlap_p2p, is_interleaved, " without parallel.virtual_stages"},
    {MEGATRON, TIDE_SET_parallel_microbatch_group, is_interleaved, " without parallel.virtual_stages"},
    {MEGATRON, TIDE_SET_parallel_account_embedding, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_deallocate_pipeline_outputs, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_first_stage_layers, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_last_stage_layers, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_account_loss, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_recompute_method, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_recompute_layers, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_distribute_saved_activations, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_recompute_modules, recomputes_modules, " without parallel.recompute=selective"},
    {MEGATRON, TIDE_SET_parallel_overlap_param_gather, never, ": parameters are gathered where they lie"},
    {MEGATRON, TIDE_SET_adapter_autocast_adapter_dtype, never, ": adapters are of the model's type"},
    {MEGATRON, TIDE_SET_parallel_align_grad_reduce, never, ": it is about when gradients are reduced"},
    {MEGATRON, TIDE_SET_parallel_bucket_size, has_buckets, " without parallel.overlap_grad_reduce"},
    {MEGATRON, TIDE_SET_parallel_main_grads_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_main_params_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_exp_avg_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_exp_avg_sq_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_softmax_fp32, is_unfused, " with Transformer Engine's attention"},
    {MEGATRON, TIDE_SET_parallel_query_key_layer_scaling, can_scale_by_layer,
     " with Transformer Engine's attention, except unfused in fp16"},
    {MEGATRON, TIDE_SET_parallel_bias_dropout_fusion, is_compiled, " without parallel.jit: it is computed alike"},
    {MEGATRON, TIDE_SET_parallel_etp, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_grouped_gemm, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_dispatcher, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_capacity_factor, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_pad_to_capacity, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_permute_fusion, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_load_balancing, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_aux_loss_coeff, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_router_dtype, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_router_groups, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_router_groups, limits_groups, " without parallel.router_group_topk"},
    {MEGATRON, TIDE_SET_parallel_router_group_topk, groups_experts, " without parallel.router_groups"},
    {MEGATRON, TIDE_SET_parallel_shared_expert_overlap, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_input_jitter_eps, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_force_load_balancing, has_experts, ": the model has no experts"},
    {MEGATRON, TIDE_SET_parallel_imbalance, has_experts, ": the model has no experts"}};

void tide_check_read_where(tide_job_builder *b) {
    bool is_said[TIDE_SET_COUNT] = {false};
    for (unsigned i = 0; i < TIDE_COUNT_OF(read_where); i++) {
        tide_setting_id id = read_where[i].id;
        if (is_said[id] || !tide_is_of_kinds(b->job, read_where[i].kinds) || !tide_builder_changes(b, id) ||
            read_where[i].is_read(b->job) || b->arguments.origins[id] != TIDE_ORIGIN_USER)
            continue;
        is_said[id] = true;
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, id),
                    tide_format(b->arena, "has no effect%s", read_where[i].without), NULL);
    }
}

bool tide_setting_is_read(const tide_job *job, tide_setting_id id) {
    if (tide_kind_refuses(job, id)) return false;
    for (unsigned i = 0; i < TIDE_COUNT_OF(read_where); i++)
        if (read_where[i].id == id && tide_is_of_kinds(job, read_where[i].kinds) && !read_where[i].is_read(job))
            return false;
    return true;
}
