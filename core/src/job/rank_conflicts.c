/* SPDX-License-Identifier: Apache-2.0 */
/* Checks settings against the kind of parallelism: what it does not support. */
#include "job/builder.h"

#include <string.h>

#include "base/rounding.h"
#include "base/units.h"

bool tide_builder_changes(const tide_job_builder *b, tide_setting_id id) {
    return b->arguments.is_given[id] && strcmp(b->job->values[id], tide_setting_default(id)) != 0;
}

bool tide_is_of_kinds(const tide_job *job, int kinds) {
    return kinds & 1 << job->parallel_kind;
}

/* Muon multiplies whole matrices, which DDP and stages of a pipeline have; trainers are recorded with neither. */
static bool is_of_one_gpu(const tide_job *job) {
    bool is_muon = job->optimizer == TIDE_optimizer_muon;
    bool is_schedule_free = job->optimizer == TIDE_optimizer_adamw_schedulefree ||
                            job->optimizer == TIDE_optimizer_adamw_schedulefree_single ||
                            job->optimizer == TIDE_optimizer_sgd_schedulefree;
    bool has_matrices = tide_is_of_kinds(job, 1 << TIDE_parallel_kind_ddp | 1 << TIDE_parallel_kind_pp);
    return (is_muon && !has_matrices) || ((is_muon || is_schedule_free) && job->trainer != TIDE_trainer_none);
}

/* bitsandbytes/optim: the operation that an optimizer calls, and DTensor's error for it: 8-bit states have tables, and
 * paged ones have memory of their own, both of which are plain tensors. */
static const char *refusal_of_bits_and_bytes(tide_arena *arena, tide_optimizer_choice optimizer, const char *name) {
    bool is_of_8_bits = strstr(name, "8bit") != NULL, is_paged = strncmp(name, "paged_", 6) == 0;
    const char *operation = is_of_8_bits ? "optimizer_update_8bit_blockwise" : "optimizer_update_32bit";
    if (optimizer < TIDE_optimizer_adamw32bit || optimizer > TIDE_optimizer_paged_ademamix8bit) return NULL;
    if (is_of_8_bits || is_paged)
        return tide_format(arena, "\"bitsandbytes.%s.default got mixed torch.Tensor and DTensor\"", operation);
    return tide_format(arena, "\"Operator bitsandbytes.%s.default does not have a sharding strategy registered\"",
                       operation);
}

/* Operations for which torch.distributed.tensor has no rule. */
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
         "use adamw_fused, or parallel.kind=fsdp1"},
        {TIDE_optimizer_adafactor_hf, "\"aten.add_.Tensor got mixed torch.Tensor and DTensor\": its states are plain",
         "use adamw_fused, or parallel.kind=fsdp1 or zero2"}};
    const tide_job *job = b->job;
    bool has_dtensors =
        job->parallel_kind == TIDE_parallel_kind_fsdp2 || job->parallel_kind == TIDE_parallel_kind_tp ||
        (job->parallel_kind == TIDE_parallel_kind_native && job->parallel_dp * job->parallel_cp * job->parallel_tp > 1);
    if (!has_dtensors || job->mode != TIDE_mode_train) return;
    const char *words = refusal_of_bits_and_bytes(b->arena, job->optimizer, job->values[TIDE_SET_optimizer]),
               *remedy = "use adamw_fused, or parallel.kind=fsdp1 or zero2";
    for (unsigned i = 0; i < TIDE_COUNT_OF(without_rule); i++)
        if (job->optimizer == without_rule[i].optimizer) words = without_rule[i].words, remedy = without_rule[i].remedy;
    if (words && tide_is_undescribed(b, "optimizer"))
        words = tide_format(b->arena, "the file's is not described, and %s, which is similar, has no rule for DTensors",
                            job->values[TIDE_SET_optimizer]),
        remedy = "use adamw_fused, whose states need more";
    if (words) tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_optimizer, words, remedy);
}

/* csrc/distributed/c10d/reducer.cpp, mark_variable_ready: a static graph reduces after the first backward pass, which
 * no_sync() does not expect. */
static void check_static_graph(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->parallel_static_graph && job->grad_accum > 1 && !job->parallel_sync_each)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_static_graph,
                            "DDP cannot have a static graph whose first gradients are not reduced, as with grad_accum: "
                            "\"expect_autograd_hooks_ INTERNAL ASSERT FAILED\"",
                            "leave it out, or give parallel.sync_each=true");
}

/* csrc/distributed/c10d/reducer.cpp: what the outputs do not reach counts as ready before the backward pass, so that
 * the gradients of a reentrant checkpoint, a backward pass of its own, come a second time. */
static void check_ddp(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_reentrant = job->checkpointing == TIDE_checkpointing_full_reentrant;
    if (job->parallel_kind != TIDE_parallel_kind_ddp || job->mode != TIDE_mode_train) return;
    check_static_graph(b);
    if (is_reentrant && tide_finds_unused_parameters(job) && !job->parallel_static_graph)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_checkpointing,
                            tide_job_sets(job, TIDE_SET_parallel_find_unused_parameters)
                                ? "DDP with find_unused_parameters refuses reentrant checkpoints: \"Expected to mark a "
                                  "variable ready only once\""
                                : "DDP refuses reentrant checkpoints with find_unused_parameters, which transformers "
                                  "sets for adapters: \"Expected to mark a variable ready only once\"",
                            "use checkpointing=full (use_reentrant: false), or parallel.find_unused_parameters=false");
}

/* deepspeed/runtime/torch_autocast.py: autocast_if_enabled. */
static void check_engine_autocast(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (!job->autocast.is_set || !tide_job_has_deepspeed(job) || tide_job_has_trainer(job)) return;
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, TIDE_SET_autocast),
                "has no effect: DeepSpeed's engine disables it in forward()",
                "leave it out; parallel.half is the engine's mixed precision");
}

static void check_rank(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t dp = job->parallel_dp, rank = job->parallel_rank, ranks = tide_job_world(job);
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none;
    if (rank >= ranks)
        tide_builder_refuse(b, TIDE_ERR_FIELD_RANGE, TIDE_SET_parallel_rank,
                            ranks == dp ? tide_format(b->arena, "is %lld; the ranks of parallel.dp=%lld are 0 to %lld",
                                                      (long long)rank, (long long)dp, (long long)(dp - 1))
                                        : tide_format(b->arena, "is %lld; %lld ranks are numbered from 0 to %lld",
                                                      (long long)rank, (long long)ranks, (long long)(ranks - 1)),
                            NULL);
    if (is_alone && dp > 1 && job->mode == TIDE_mode_train)
        tide_builder_refuse(
            b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_dp, "several GPUs need a kind of parallelism",
            "add parallel.kind=fsdp2 or zero3, which shard the model, ddp, with a full copy on each GPU, or tp, pp,"
            " native, megatron");
    if (!is_alone && is_of_one_gpu(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_optimizer,
                            tide_format(b->arena, "%s is not described with parallel.kind%s",
                                        job->values[TIDE_SET_optimizer],
                                        job->trainer == TIDE_trainer_none
                                            ? tide_format(b->arena, "=%s", job->values[TIDE_SET_parallel_kind])
                                            : " and a trainer"),
                            "use another optimizer, or one GPU");
    const int with_scaler = 1 << TIDE_parallel_kind_none | 1 << TIDE_parallel_kind_ddp | 1 << TIDE_parallel_kind_fsdp2;
    if (job->scaler && !tide_is_of_kinds(job, with_scaler))
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_scaler,
            tide_format(b->arena, "is not described with parallel.kind=%s", job->values[TIDE_SET_parallel_kind]),
            "use bf16");
    if (job->scaler && job->parallel_offload)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_scaler, "is not described with parallel.offload",
                            "use bf16");
}

/* Of Megatron-Bridge's LoRA. */
#define ONLY_TARGETS "leave it out: adapter.target_modules names modules, such as linear_qkv,linear_proj"

/* What a kind does not support, or calls by another name. */
static const struct {
    int kinds;
    tide_setting_id id;
    const char *remedy;
} refused[] = {{MEGATRON, TIDE_SET_optimizer, "use adamw, its FusedAdam, or sgd_momentum or sgd, its FusedSGD"},
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
               {MEGATRON, TIDE_SET_adapter_exclude_modules, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_target_parameters, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_layers_to_transform, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_layers_pattern, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_rank_pattern, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_alpha_pattern, ONLY_TARGETS},
               {MEGATRON, TIDE_SET_adapter_bias, "leave it out: no bias trains"},
               {MEGATRON, TIDE_SET_adapter_lora_bias, "leave it out"},
               {MEGATRON, TIDE_SET_adapter_dora, "leave it out"},
               {MEGATRON, TIDE_SET_adapter_rslora, "leave it out"},
               {MEGATRON, TIDE_SET_adapter_modules_to_save, "leave it out"},
               {MEGATRON, TIDE_SET_adapter_also_train, "leave it out"},
               {MEGATRON, TIDE_SET_load, "leave it out"}};

/* megatron/core/optimizer: besides adam there is sgd, which is not sharded. */
static bool is_megatron_sgd(const tide_job *job) {
    return tide_is_of_kinds(job, MEGATRON) && tide_job_is_sgd(job);
}

static void check_megatron_sgd(tide_job_builder *b) {
    if (!is_megatron_sgd(b->job)) return;
    if (b->job->parallel_precision_aware)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_precision_aware,
                            "\"--use-precision-aware-optimizer only supported with adam\"", "leave it out");
    if (b->job->parallel_distributed_optimizer && b->job->parallel_offload_fraction == 0)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_optimizer,
                            "Megatron-Core's distributed optimizer: \"Only Adam and HybridDeviceOptimizer currently "
                            "supported\"",
                            "give parallel.distributed_optimizer=false");
}

/* Adapters of Megatron-Core's layers are those of Megatron-Bridge. */
static void check_bridge_adapter(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (!tide_is_of_kinds(job, MEGATRON) || job->adapter == TIDE_adapter_none) return;
    if (job->adapter != TIDE_adapter_lora)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter,
            tide_format(b->arena, "%s is not described with parallel.kind=megatron", job->values[TIDE_SET_adapter]),
            "use lora, as Megatron-Bridge has it");
    if (job->parallel_fp8 != TIDE_parallel_fp8_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_fp8,
                            "is not described with adapters, for which norms return what they made", "leave it out");
    if (job->parallel_impl == TIDE_parallel_impl_local)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_impl,
                            "adapters are described around Transformer Engine's layers", "use te");
    if (strpbrk(job->adapter_target_modules, "*?[|("))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter_target_modules,
                            "patterns of Megatron-Bridge are not described", "name modules: linear_qkv,linear_proj");
    if (job->adapter_r % job->parallel_tp)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_adapter_r,
                            tide_format(b->arena, "\"%lld is not divisible by %lld\", the tensor parallel ranks",
                                        (long long)job->adapter_r, (long long)job->parallel_tp),
                            "give a multiple");
}

static void check_refused(tide_job_builder *b) {
    for (unsigned i = 0; i < TIDE_COUNT_OF(refused); i++) {
        tide_setting_id id = refused[i].id;
        if (id == TIDE_SET_optimizer && is_megatron_sgd(b->job)) continue;
        if (tide_is_of_kinds(b->job, refused[i].kinds) && tide_builder_changes(b, id))
            tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, id,
                                tide_format(b->arena, "%s is not described with parallel.kind=%s", b->job->values[id],
                                            b->job->values[TIDE_SET_parallel_kind]),
                                refused[i].remedy);
    }
}

/* torchtitan's experts are made in the place of the model's, and train whatever was frozen before. */
static void check_torchtitan_experts(tide_job_builder *b) {
    static const tide_setting_id ids[] = {TIDE_SET_adapter, TIDE_SET_train_only};
    if (!tide_job_has_torchtitan_experts(b->job)) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(ids); i++)
        if (tide_builder_changes(b, ids[i]))
            tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, ids[i],
                                "is not described beside torchtitan's experts, which replace those of the model",
                                "leave it out, or use parallel.kind=fsdp2");
}

/* torchtitan's trainer makes and trains its own modules. */
static void check_torchtitan_models(tide_job_builder *b) {
    static const struct {
        tide_setting_id id;
        const char *remedy;
    } rows[] = {{TIDE_SET_adapter, "leave it out, or use parallel.models=transformers"},
                {TIDE_SET_quant, "leave it out, or use parallel.models=transformers"},
                {TIDE_SET_freeze, "train all of it, or use parallel.models=transformers"},
                {TIDE_SET_train_only, "train all of it, or use parallel.models=transformers"},
                {TIDE_SET_attention, "leave it out: sdpa_backend names the kernel"},
                {TIDE_SET_checkpointing, "give parallel.ac"},
                {TIDE_SET_param_groups, "leave it out"},
                {TIDE_SET_load, "leave it out"}};
    const tide_job *job = b->job;
    static const int optimizers = 1 << TIDE_optimizer_adamw | 1 << TIDE_optimizer_adamw_fused |
                                  1 << TIDE_optimizer_adamw_single | 1 << TIDE_optimizer_adam |
                                  1 << TIDE_optimizer_adam_fused | 1 << TIDE_optimizer_adam_single;
    if (!tide_job_has_torchtitan_models(job)) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (tide_builder_changes(b, rows[i].id))
            tide_builder_refuse(
                b, TIDE_ERR_UNSUPPORTED, rows[i].id,
                tide_format(b->arena, "%s is not described with parallel.models=torchtitan", job->values[rows[i].id]),
                rows[i].remedy);
    if ((int)job->optimizer >= 31 || !(optimizers >> job->optimizer & 1))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_optimizer,
                            tide_format(b->arena, "\"Optimizer %s not added.\"", job->values[TIDE_SET_optimizer]),
                            "use adamw, adamw_fused, adamw_single, adam, adam_fused or adam_single");
    if (!tide_job_is_on_meta(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_meta_init,
                            "torchtitan makes its models on the meta device", "leave it out");
    if (tide_job_sets(job, TIDE_SET_parallel_sync_each) && !job->parallel_sync_each)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_parallel_sync_each,
                            "torchtitan's trainer reduces gradients after every micro-batch", "leave it out");
    if (job->sdpa_backend == TIDE_sdpa_backend_efficient)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_sdpa_backend,
                            "torchtitan lists cuDNN, flash and math attention for sdpa_kernel()", "use flash");
}

enum { LEAST_TRANSFORMERS = 4052 }; /* 4.51.3 */

/* A refusal at a setting, with its condition. */
typedef struct refusal {
    bool is_refused;
    tide_setting_id at;
    const char *what, *remedy;
} refusal;

static void refuse_all(tide_job_builder *b, const refusal *refusals, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (refusals[i].is_refused)
            tide_builder_refuse(b, TIDE_ERR_CONFLICT, refusals[i].at, refusals[i].what, refusals[i].remedy);
}

/* deepspeed/runtime/sequence_parallel/ulysses_sp.py; accelerate/big_modeling.py. */
static void check_ulysses(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t ranks = job->parallel_sequence_parallel_size;
    if (ranks == 1 || job->mode != TIDE_mode_train) return;
    const refusal refusals[] = {
        {job->seq % ranks != 0, TIDE_SET_seq,
         tide_format(b->arena, "\"batch's seqlen=%lld isn't divisible by sp-size=%lld\"", (long long)job->seq,
                     (long long)ranks),
         tide_format(b->arena, "write seq=%lld", (long long)((job->seq + ranks - 1) / ranks * ranks))},
        {job->attention == TIDE_attention_eager, TIDE_SET_attention,
         "\"eager attn_implementation isn't currently supported by Ulysses sequence parallelism because it requires a "
         "4D attention_mask\"",
         "use sdpa or flash_attention_2"},
        {job->parallel_tp > 1, TIDE_SET_parallel_tp, "AutoTP beside Ulysses is not described",
         "use one of them: parallel.tp=1, or parallel.sequence_parallel_size=1"},
        {tide_trainer_is_of_trl(job), TIDE_SET_parallel_sequence_parallel_size,
         tide_format(b->arena, "Ulysses is not described with trainer=%s", job->values[TIDE_SET_trainer]),
         "similar: trainer=hf, or trainer=none"},
        {job->trainer_eval_strategy != TIDE_trainer_eval_strategy_no, TIDE_SET_trainer_eval_strategy,
         "evaluation is not described with Ulysses", "leave it out to play only the training"},
        {tide_job_has_lengths(job), TIDE_SET_lengths, "samples of several lengths are not described with Ulysses",
         "give the longest one as seq"},
        {tide_version_number(job->values[TIDE_SET_transformers]) < LEAST_TRANSFORMERS, TIDE_SET_transformers,
         "\"transformers>=4.51.3 is required\" by Ulysses", "use a later one"},
        {!job->labels, TIDE_SET_labels, "the loss that is weighted over the ranks of a sequence is that of labels",
         "leave it out"},
    };
    refuse_all(b, refusals, TIDE_COUNT_OF(refusals));
}

/* accelerate/big_modeling.py, _attach_context_parallel_hooks(): whether all layers have full causal attention. */
static bool has_full_attention(const tide_job *job) {
    const tide_json *text = tide_json_at(job->config, "text_config"), *config = text ? text : job->config,
                    *types = tide_json_at(config, "layer_types"), *window = tide_json_at(config, "sliding_window"),
                    *uses = tide_json_at(config, "use_sliding_window");
    for (const tide_json *type = types ? types->first : NULL; type; type = type->next)
        if (!tide_json_is_text(type, "full_attention")) return false;
    return types || !window || window->kind == TIDE_JSON_NULL || (uses && !uses->is_true);
}

/* torch.distributed.tensor.experimental, trainer.py and accelerate/accelerator.py, _prepare_cp(). */
static void check_context_parallel(tide_job_builder *b) {
    const tide_job *job = b->job;
    int64_t slices = 2 * job->parallel_cp;
    if (!tide_trainer_cuts_sequences(job) || job->mode != TIDE_mode_train) return;
    bool is_played = job->trainer == TIDE_trainer_hf || job->trainer == TIDE_trainer_sft;
    const refusal refusals[] = {
        {!is_played, TIDE_SET_parallel_cp,
         tide_format(b->arena, "context parallel ranks beside fsdp2 are not described with trainer=%s",
                     job->values[TIDE_SET_trainer]),
         "use trainer=hf or sft; similar: parallel.kind=native, ring attention in torchtitan's order"},
        {job->seq % slices != 0, TIDE_SET_seq,
         tide_format(b->arena, "%lld tokens do not divide into two slices for each of %lld context parallel ranks",
                     (long long)job->seq, (long long)job->parallel_cp),
         tide_format(b->arena, "write seq=%lld", (long long)TIDE_ROUND_UP(job->seq, slices))},
        {job->attention != TIDE_attention_sdpa, TIDE_SET_attention,
         tide_format(b->arena, "\"Context parallelism is supported only with SDPA attention, you are using %s.\"",
                     job->values[TIDE_SET_attention]),
         "use sdpa"},
        {job->sdpa_backend == TIDE_sdpa_backend_math, TIDE_SET_sdpa_backend,
         "context_parallel() only supports flash, efficient and cuDNN attention", "use flash"},
        {!has_full_attention(job), TIDE_SET_parallel_cp,
         "\"Context parallelism does not support attention layers of type ['sliding_attention']\"",
         "use a model whose layers all have full attention, or parallel.cp=1"},
        {job->packing, TIDE_SET_packing, "\"Packing is not compatible with context parallelism (`cp_size > 1`)\"",
         "leave it out"},
        {job->trainer_padding_free, TIDE_SET_trainer_padding_free,
         "drops the mask that keeps documents apart, as context parallelism does", "leave it out"},
        {tide_job_has_lengths(job), TIDE_SET_lengths,
         "samples of several lengths are not described with context parallelism", "give the longest one as seq"},
        {job->trainer_eval_strategy != TIDE_trainer_eval_strategy_no, TIDE_SET_trainer_eval_strategy,
         "evaluation is not described with context parallelism", "leave it out to play only the training"},
    };
    refuse_all(b, refusals, TIDE_COUNT_OF(refusals));
}

bool tide_kind_refuses(const tide_job *job, tide_setting_id id) {
    for (unsigned i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].id == id && tide_is_of_kinds(job, refused[i].kinds)) return true;
    return false;
}

void tide_check_rank_conflicts(tide_job_builder *b) {
    check_rank(b);
    check_engine_autocast(b);
    check_ddp(b);
    check_dtensors(b);
    check_refused(b);
    check_megatron_sgd(b);
    check_bridge_adapter(b);
    check_torchtitan_experts(b);
    check_torchtitan_models(b);
    check_ulysses(b);
    check_context_parallel(b);
}
