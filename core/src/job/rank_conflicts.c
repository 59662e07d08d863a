/* SPDX-License-Identifier: Apache-2.0 */
/* Settings checked against the kind of parallelism: what its loop does not take, and what changes nothing there. */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"

enum {
    TP = 1 << TIDE_parallel_kind_tp,
    PP = 1 << TIDE_parallel_kind_pp,
    NATIVE = 1 << TIDE_parallel_kind_native,
    MEGATRON = 1 << TIDE_parallel_kind_megatron,
    ALL_KINDS = ~0
};

/* Whether it is given, with another value than the default. */
static bool is_changed(const tide_job_builder *b, tide_setting_id id) {
    return b->arguments.is_given[id] && strcmp(b->job->values[id], tide_setting_default(id)) != 0;
}

static bool is_of_kind(const tide_job *job, int kinds) {
    return kinds & 1 << job->parallel_kind;
}

static bool is_of_one_gpu(tide_optimizer_choice optimizer) {
    return optimizer == TIDE_optimizer_muon || optimizer == TIDE_optimizer_adamw_schedulefree ||
           optimizer == TIDE_optimizer_adamw_schedulefree_single || optimizer == TIDE_optimizer_sgd_schedulefree;
}

/* bitsandbytes/optim: which of its operations an optimizer calls, and what DTensor says of it: states in 8 bits have
 * tables, and paged ones lie in memory of their own, both plain tensors. */
static const char *refusal_of_bits_and_bytes(tide_arena *arena, tide_optimizer_choice optimizer, const char *name) {
    bool is_of_8_bits = strstr(name, "8bit") != NULL, is_paged = strncmp(name, "paged_", 6) == 0;
    const char *operation = is_of_8_bits ? "optimizer_update_8bit_blockwise" : "optimizer_update_32bit";
    if (optimizer < TIDE_optimizer_adamw32bit || optimizer > TIDE_optimizer_paged_ademamix8bit) return NULL;
    if (is_of_8_bits || is_paged)
        return tide_format(arena, "\"bitsandbytes.%s.default got mixed torch.Tensor and DTensor\"", operation);
    return tide_format(arena, "\"Operator bitsandbytes.%s.default does not have a sharding strategy registered\"",
                       operation);
}

/* What torch.distributed.tensor has no rule for. */
static void check_dtensors(tide_job_builder *b) {
    static const struct {
        tide_optimizer_choice optimizer;
        const char *words, *remedy;
    } without_rule[] = {
        {TIDE_optimizer_sgd_fused, "\"Operator aten._fused_sgd_.default does not have a sharding strategy registered\"",
         "use sgd_momentum"},
        {TIDE_optimizer_adagrad_fused,
         "\"Operator aten._fused_adagrad_.default does not have a sharding strategy registered\"", "use adagrad"},
        {TIDE_optimizer_adafactor,
         "\"aten.pow_.Scalar: in-place operations that require placement changes are not supported\"",
         "use adamw_fused, or parallel.kind=fsdp1"}};
    const tide_job *job = b->job;
    bool has_dtensors =
        job->parallel_kind == TIDE_parallel_kind_fsdp2 || job->parallel_kind == TIDE_parallel_kind_tp ||
        (job->parallel_kind == TIDE_parallel_kind_native && job->parallel_dp * job->parallel_cp * job->parallel_tp > 1);
    if (!has_dtensors || job->mode != TIDE_mode_train) return;
    const char *words = refusal_of_bits_and_bytes(b->arena, job->optimizer, job->values[TIDE_SET_optimizer]),
               *remedy = "use adamw_fused, or parallel.kind=fsdp1 or zero2";
    for (unsigned i = 0; i < TIDE_COUNT_OF(without_rule); i++)
        if (job->optimizer == without_rule[i].optimizer) words = without_rule[i].words, remedy = without_rule[i].remedy;
    if (words) tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_optimizer, words, remedy);
}

static void check_rank(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t dp = job->parallel_dp, rank = job->parallel_rank,
            ranks = dp * job->parallel_tp * job->parallel_cp * job->parallel_pp;
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none;
    if (rank >= ranks)
        tide_builder_refuse(b, TIDE_ERR_FIELD_RANGE, TIDE_SET_parallel_rank,
                            ranks == dp ? tide_format(b->arena, "is %lld; ranks of parallel.dp=%lld go from 0 to %lld",
                                                      (long long)rank, (long long)dp, (long long)(dp - 1))
                                        : tide_format(b->arena, "is %lld; %lld ranks go from 0 to %lld",
                                                      (long long)rank, (long long)ranks, (long long)(ranks - 1)),
                            NULL);
    if (is_alone && dp > 1 && job->mode == TIDE_mode_train)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_dp, "several GPUs need a kind of parallelism",
            "add parallel.kind=fsdp2 or zero3, which shard the model, ddp, a whole copy on each, or tp, "
            "pp, native, megatron");
    if (!is_alone && is_of_one_gpu(job->optimizer))
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_optimizer,
            tide_format(b->arena, "%s is not described with parallel.kind", job->values[TIDE_SET_optimizer]),
            "use another optimizer, or one GPU");
    if (!is_alone && job->scaler)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_scaler,
                            "a GradScaler is not described with parallel.kind", "use bf16");
}

/* What the loop of a kind does not take, or takes by another name. */
static const struct {
    int kinds;
    tide_setting_id id;
    const char *remedy;
} refused[] = {{MEGATRON, TIDE_SET_optimizer, "use adamw, which is its FusedAdam"},
               {MEGATRON, TIDE_SET_autocast, "leave it out"},
               {PP, TIDE_SET_autocast, "leave it out, or give parallel.param_dtype with parallel.kind=native"},
               {NATIVE, TIDE_SET_autocast, "give parallel.param_dtype, which fully_shard casts to"},
               {PP | NATIVE | MEGATRON, TIDE_SET_grad_accum, "give parallel.microbatches"},
               {MEGATRON, TIDE_SET_checkpointing,
                "give parallel.recompute=selective, or parallel.recompute=full parallel.recompute_method=uniform "
                "parallel.recompute_layers=1"},
               {MEGATRON, TIDE_SET_attention, "give parallel.attention_backend"},
               {PP | NATIVE, TIDE_SET_padding, "leave it out: stages are called without a mask"},
               {MEGATRON, TIDE_SET_padding, "leave it out"},
               {PP | NATIVE | MEGATRON, TIDE_SET_packing, "leave it out"},
               {MEGATRON, TIDE_SET_loss, "leave it out"},
               {PP | NATIVE, TIDE_SET_loss, "leave it out: the loss of a stage's logits is cross entropy in fp32"},
               {PP | NATIVE, TIDE_SET_use_liger_kernel, "leave it out, or use parallel.kind=fsdp2"},
               {PP | NATIVE | MEGATRON, TIDE_SET_labels, "leave it out: the loss is that of labels"},
               {PP | NATIVE, TIDE_SET_hold_outputs, "leave it out: stages return no output object"},
               {MEGATRON, TIDE_SET_param_groups, "leave it out"},
               {MEGATRON, TIDE_SET_freeze, "train all of it"},
               {MEGATRON, TIDE_SET_train_only, "train all of it"},
               {MEGATRON, TIDE_SET_quant, "leave it out"},
               {MEGATRON, TIDE_SET_adapter, "leave it out, or use parallel.kind=fsdp2"},
               {MEGATRON, TIDE_SET_load, "leave it out"}};

static void check_refused(tide_job_builder *b) {
    for (unsigned i = 0; i < TIDE_COUNT_OF(refused); i++) {
        tide_setting_id id = refused[i].id;
        if (is_of_kind(b->job, refused[i].kinds) && is_changed(b, id))
            tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, id,
                                tide_format(b->arena, "%s is not described with parallel.kind=%s", b->job->values[id],
                                            b->job->values[TIDE_SET_parallel_kind]),
                                refused[i].remedy);
    }
}

/* ---- what changes nothing ---- */

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
static bool has_tensor_ranks(const tide_job *job) {
    return job->parallel_tp > 1;
}
static bool has_own_plan(const tide_job *job) {
    return !tide_job_has_auto_plan(job);
}
static bool has_data_ranks(const tide_job *job) {
    return job->parallel_dp > 1;
}
static bool is_sharded(const tide_job *job) {
    return job->parallel_dp * job->parallel_cp > 1;
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
static bool groups_experts(const tide_job *job) {
    return has_experts(job) && job->parallel_router_groups > 0;
}
static bool never(const tide_job *job) {
    (void)job;
    return false;
}

/* Options that are read where something else holds; `without` says where they are not. */
static const struct {
    int kinds;
    tide_setting_id id;
    bool (*is_read)(const tide_job *);
    const char *without;
} read_where[] = {
    {ALL_KINDS, TIDE_SET_parallel_local_world, never, ": nodes do not matter to what a rank allocates"},
    {PP | NATIVE | MEGATRON, TIDE_SET_use_cache, never, ": layers are called without a cache"},
    {TP, TIDE_SET_parallel_param_dtype, has_data_ranks, " with parallel.dp=1: fully_shard casts"},
    {TP, TIDE_SET_parallel_reduce_dtype, has_data_ranks, " with parallel.dp=1: fully_shard casts"},
    {TP, TIDE_SET_parallel_meta_init, has_own_plan, " with parallel.tp_plan=auto: each rank reads its own parts"},
    {TP, TIDE_SET_load, has_own_plan, " with parallel.tp_plan=auto: from_pretrained() begins with one block of all"},
    {TP, TIDE_SET_parallel_wrap, has_data_ranks, " with parallel.dp=1"},
    {TP, TIDE_SET_parallel_wrap, has_own_plan, " with parallel.tp_plan=auto, which has units of its own"},
    {TP, TIDE_SET_parallel_ep_implementation, tide_job_cuts_experts, " without parallel.ep"},
    {TP, TIDE_SET_parallel_imbalance, tide_job_cuts_experts, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_imbalance, tide_job_has_torchtitan_experts, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_spmd_backend, tide_job_has_torchtitan_experts, " without parallel.ep"},
    {NATIVE, TIDE_SET_parallel_param_dtype, is_sharded, " with one data and context parallel rank: fully_shard casts"},
    {NATIVE, TIDE_SET_parallel_reduce_dtype, is_sharded, " with one data and context parallel rank: fully_shard casts"},
    {NATIVE, TIDE_SET_parallel_reshard_after_forward, is_sharded, " with one data and context parallel rank"},
    {NATIVE, TIDE_SET_parallel_sync_each, is_not_pipelined, " with a pipeline, which reduces after its last pass"},
    {NATIVE, TIDE_SET_parallel_schedule, is_pipelined, " with parallel.pp=1"},
    {NATIVE | MEGATRON, TIDE_SET_parallel_stage_layers, is_pipelined, " with parallel.pp=1"},
    {NATIVE, TIDE_SET_parallel_rotate, has_context_ranks, " with parallel.cp=1"},
    {MEGATRON, TIDE_SET_sdpa_backend, never, ": give parallel.attention_backend"},
    {MEGATRON, TIDE_SET_hold_outputs, never, " with parallel.kind=megatron"},
    {MEGATRON, TIDE_SET_zero_grad, never, ": gradients are buffers, which are zeroed"},
    {MEGATRON, TIDE_SET_clip, never, ": gradients are clipped in place"},
    {MEGATRON, TIDE_SET_parallel_sequence_parallel, has_tensor_ranks,
     " with parallel.tp=1: \"Disabling sequence parallelism because tensor model parallelism is disabled\""},
    {MEGATRON, TIDE_SET_parallel_cp_comm_type, has_context_ranks, " with parallel.cp=1"},
    {MEGATRON, TIDE_SET_parallel_overlap_p2p, is_interleaved, " without parallel.virtual_stages"},
    {MEGATRON, TIDE_SET_parallel_account_embedding, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_account_loss, is_pipelined, " with parallel.pp=1"},
    {MEGATRON, TIDE_SET_parallel_recompute_method, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_recompute_layers, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_distribute_saved_activations, recomputes_all, " without parallel.recompute=full"},
    {MEGATRON, TIDE_SET_parallel_recompute_modules, recomputes_modules, " without parallel.recompute=selective"},
    {MEGATRON, TIDE_SET_parallel_overlap_param_gather, never, ": parameters are gathered where they lie"},
    {MEGATRON, TIDE_SET_parallel_align_grad_reduce, never, ": it is about when gradients are reduced"},
    {MEGATRON, TIDE_SET_parallel_bucket_size, has_buckets, " without parallel.overlap_grad_reduce"},
    {MEGATRON, TIDE_SET_parallel_main_grads_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_main_params_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_exp_avg_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_exp_avg_sq_dtype, is_precision_aware, " without parallel.precision_aware"},
    {MEGATRON, TIDE_SET_parallel_softmax_fp32, is_unfused, " with Transformer Engine's attention"},
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
    {MEGATRON, TIDE_SET_parallel_router_group_topk, groups_experts, " without parallel.router_groups"},
    {MEGATRON, TIDE_SET_parallel_imbalance, has_experts, ": the model has no experts"}};

static void check_changes_nothing(tide_job_builder *b) {
    for (unsigned i = 0; i < TIDE_COUNT_OF(read_where); i++) {
        tide_setting_id id = read_where[i].id;
        if (is_of_kind(b->job, read_where[i].kinds) && is_changed(b, id) && !read_where[i].is_read(b->job) &&
            b->arguments.origins[id] == TIDE_ORIGIN_USER)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, tide_builder_place(b, id),
                        tide_format(b->arena, "changes nothing%s", read_where[i].without), NULL);
    }
}

bool tide_kind_reads(const tide_job *job, tide_setting_id id) {
    for (unsigned i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].id == id && is_of_kind(job, refused[i].kinds)) return false;
    for (unsigned i = 0; i < TIDE_COUNT_OF(read_where); i++)
        if (read_where[i].id == id && is_of_kind(job, read_where[i].kinds) && !read_where[i].is_read(job)) return false;
    return true;
}

void tide_check_rank_conflicts(tide_job_builder *b) {
    check_rank(b);
    check_dtensors(b);
    check_refused(b);
    check_changes_nothing(b);
}
