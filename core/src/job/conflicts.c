/* SPDX-License-Identifier: Apache-2.0 */
/* Checks settings against each other: combinations that are impossible, and settings without effect. */
#include "job/builder.h"

#include <string.h>

#include "base/rounding.h"
#include "job/trainers.h"

/* ---- what is read ---- */

/* Whether it is an option from a file for a kind that the user replaced by another. */
static bool was_replaced(const tide_job_builder *b, tide_setting_id id) {
    return b->arguments.origins[id] != TIDE_ORIGIN_USER && b->arguments.is_given[TIDE_SET_parallel_kind] &&
           b->arguments.origins[TIDE_SET_parallel_kind] == TIDE_ORIGIN_USER;
}

/* deepspeed/pipe: PipelineModule, made of layers that take the output of the one before. */
static bool asks_for_pipeline_engine(const tide_job *job, tide_setting_id id) {
    return tide_job_has_deepspeed(job) &&
           (id == TIDE_SET_parallel_pp || id == TIDE_SET_parallel_schedule || id == TIDE_SET_parallel_stage_layers);
}

static void refuse_option(tide_job_builder *b, tide_setting_id id) {
    const char *kind = b->job->values[TIDE_SET_parallel_kind], *wanted = tide_setting_wants(&tide_settings[id]);
    bool is_alone = b->job->parallel_kind == TIDE_parallel_kind_none;
    if (is_alone && b->job->mode != TIDE_mode_train)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, id, "is of training",
                            "leave it out, or choose mode=serve, where vLLM shards the model (tp, pp, gpus)");
    else if (is_alone)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, id, "needs a kind of parallelism",
                            tide_format(b->arena, "choose parallel.kind (%s), or leave it out", wanted));
    else if (asks_for_pipeline_engine(b->job, id))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, id,
                            "DeepSpeed's PipelineEngine runs a PipelineModule, made of layers written for it: no "
                            "model of transformers is one",
                            "similar: parallel.kind=native with parallel.pp and parallel.dp, or megatron");
    else
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, id,
                            tide_format(b->arena, "is not an option of parallel.kind=%s", kind),
                            tide_format(b->arena, "leave it out, or choose a kind that has it (%s)", wanted));
}

/* An option of another kind of parallelism is an error: the job would not be what it says. */
static void check_options(tide_job_builder *b) {
    const char *kind = b->job->values[TIDE_SET_parallel_kind];
    for (unsigned i = TIDE_SET_parallel_kind; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        const char *wanted = tide_setting_wants(&tide_settings[id]);
        if (b->arguments.is_given[id] && !tide_beginning_listed(wanted, kind) && !was_replaced(b, id))
            refuse_option(b, id);
    }
}

/* Given with a value other than the default, and not by a recipe or an older version. */
static bool is_asked_for(const tide_job_builder *b, tide_setting_id id) {
    return b->arguments.is_given[id] && b->arguments.origins[id] != TIDE_ORIGIN_RECIPE &&
           strcmp(b->arguments.values[id], tide_setting_default(id)) != 0;
}

/* Settings from first to last that are asked for, and not read. */
static void check_unread(tide_job_builder *b, tide_setting_id first, tide_setting_id last) {
    for (unsigned i = first; i <= last; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (!is_asked_for(b, id)) continue;
        tide_setting_id by = tide_job_unread_by(b->job, id);
        if (by == TIDE_SET_COUNT) continue;
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, id),
                    tide_format(b->arena, "has no effect with %s=%s", tide_settings[by].name, b->job->values[by]),
                    NULL);
    }
}

/* Settings that the engine does not read. */
static void check_server(tide_job_builder *b) {
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (!is_asked_for(b, id)) continue;
        if (!tide_setting_serves(id))
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_builder_place(b, id),
                        "has no effect with mode=serve", "`describe settings` has the engine's own under Serving");
        else if (!tide_setting_is_of_engine(id, b->job->values[TIDE_SET_engine]))
            tide_builder_refuse(b, TIDE_ERR_CONFLICT, id,
                                tide_format(b->arena, "is not a setting of engine=%s", b->job->values[TIDE_SET_engine]),
                                id == TIDE_SET_tensor_parallel_size
                                    ? "leave it out: this engine is described on one GPU"
                                    : "`describe settings` has each engine's own under Serving");
    }
    if (!b->job->device_bytes && !b->arguments.is_given[TIDE_SET_gpu])
        tide_error(b->diags, TIDE_ERR_FIELD_MISSING, "/settings/gpu", "a server runs on a GPU",
                   "give gpu=NAME, such as gpu=l40s, or gpu_gib=SIZE");
}

static void check_no_server(tide_job_builder *b) {
    if (tide_json_at(b->inputs.config, "gguf")) {
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_mode,
                            "is not described for a GGUF file, which llama.cpp serves",
                            "use mode=serve, or give the config.json of the model");
        return;
    }
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        const char *word = tide_word_remedy(tide_text_of(tide_settings[id].name));
        if (b->arguments.is_given[id] && tide_setting_is_of_server(id))
            tide_builder_refuse(b, TIDE_ERR_CONFLICT, id,
                                tide_format(b->arena, "is not a setting of mode=%s", b->job->values[TIDE_SET_mode]),
                                word ? word : "leave it out, or choose mode=serve, which starts an inference server");
    }
}

/* ---- what no rule describes ---- */

static void leave_open(tide_job_builder *b, const char *name) {
    tide_job *job = b->job;
    const char **names = TIDE_NEW(b->arena, const char *, job->undescribed.count + 1);
    for (uint32_t i = 0; i < job->undescribed.count; i++) names[i] = job->undescribed.names[i];
    names[job->undescribed.count++] = name;
    job->undescribed.names = names;
}

/* NULL: what LLaMA-Factory's plugin for this model makes of an image is not described. */
static const tide_added_image *added_image_of(const tide_json *config) {
    static const struct {
        const char *types;
        tide_added_image image;
    } rows[] = {
#define TIDE_ADDED_IMAGE(types, markers, has_size) {types, {true, has_size, markers}},
#include "job/added_images.def"
#undef TIDE_ADDED_IMAGE
    };
    const tide_json *type = tide_json_at(config, "model_type"), *vision = tide_json_at(config, "vision_config");
    bool is_of_pixtral = tide_json_is_text(tide_json_at(vision, "model_type"), "pixtral");
    for (size_t i = 0; i < TIDE_COUNT_OF(rows) && tide_json_is(type, TIDE_JSON_STRING) && !is_of_pixtral; i++)
        if (tide_text_is_among(type->text, rows[i].types)) return &rows[i].image;
    return NULL;
}

/* LLaMA-Factory: data/collator.py, MultiModalDataCollatorForSeq2Seq: "avoid process hanging in zero3/fsdp case". */
static void add_image(tide_job_builder *b) {
    tide_job *job = b->job;
    if (!tide_trainer_is_of_factory(job) || !tide_json_at(job->config, "vision_config") || job->images ||
        job->video.frames)
        return;
    const tide_added_image *image = added_image_of(job->config);
    if (image) job->added_image = *image;
    if (image) return;
    leave_open(b, "LLaMA-Factory's image beside texts");
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_builder_place(b, TIDE_SET_images),
                "LLaMA-Factory adds an image of 64 x 64 pixels, with its tokens, to a batch without images: the tower "
                "runs for it",
                "near to it with batch=1: images=1 of that size");
}

/* ---- copies of the weights ---- */

/* trl/models/activation_offloading.py, pack_tensor(): storages are told apart by their addresses, and autocast's copy
 * of a frozen weight, which is not contiguous, is freed while its address is known. A tensor that gets this address is
 * taken for it, and stays on the device. */
static void leave_reused_addresses(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_frozen = job->adapter != TIDE_adapter_none || job->freeze.count || job->train_only.count,
         is_copied = job->autocast.is_set && job->autocast.dtype != tide_dtype_or(job->dtype, TIDE_BF16);
    if (!tide_trainer_is_of_trl(job) || !is_frozen || !is_copied || job->quant != TIDE_quant_none) return;
    leave_open(b, "activations at reused addresses");
    tide_report(
        b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_builder_place(b, TIDE_SET_offload_activations),
        "TRL takes an activation for autocast's copy of a frozen weight if it gets the address of that copy, and "
        "leaves it on the device: up to an activation of each linear layer more",
        "load the weights in the dtype of autocast, or use checkpointing=full");
}

static void check_offloading(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->offload_activations == TIDE_offload_activations_none) return;
    leave_reused_addresses(b);
    if (job->parallel_kind != TIDE_parallel_kind_none)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_offload_activations,
                            "is not described with parallel.kind", "use one GPU");
    if (job->checkpointing == TIDE_checkpointing_full_reentrant)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_offload_activations,
                            "is not described with reentrant checkpoints", "use checkpointing=full");
}

static void check_copies(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none, is_quantised = job->quant != TIDE_quant_none,
         averages = job->ema != TIDE_ema_none, has_main_grads = job->main_grads != TIDE_main_grads_none;
    if (!is_alone && averages)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_ema, "is not described with parallel.kind",
                            "use one GPU");
    if (!is_alone && has_main_grads)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_main_grads, "is not described with parallel.kind",
                            "use parallel.kind=zero1 with parallel.grad_accum_dtype=fp32, or one GPU");
    if (!is_alone && job->zero_grad_at != TIDE_zero_grad_at_after_step)
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_zero_grad_at,
            tide_format(b->arena, "%s is not described with parallel.kind", job->values[TIDE_SET_zero_grad_at]),
            "leave it out");
    if (is_quantised && averages)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_ema, "of quantised weights is not described",
                            "use quant=none");
    if (job->scaler && has_main_grads)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_main_grads,
                            "with a torch.amp.GradScaler is not described", "use bf16");
    if (has_main_grads && job->optimizer == TIDE_optimizer_none)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_main_grads,
                            "needs an optimizer, which owns the fp32 "
                            "copies",
                            "name one");
}

/* ---- adapters, packed rows, quantised weights ---- */

/* peft/tuners/lora/config.py, LoraConfig.__post_init__ */
static void check_lora_config(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->adapter == TIDE_adapter_lora && job->adapter_dora && job->adapter_lora_bias)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_adapter_lora_bias,
                            "peft refuses it with DoRA: \"lora_bias=True is not supported for DoRA\"",
                            "leave one of adapter.lora_bias and adapter.dora out");
}

static void check_adapter(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_training = job->mode == TIDE_mode_train;
    const char *method = job->values[TIDE_SET_adapter];
    if (!is_training && tide_job_prompts(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter,
                            tide_format(b->arena, "inference with %s is not expressed", method),
                            "use mode=train, or leave it out and add its virtual tokens to seq");
    if (job->packing && job->padding)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_packing, "packed rows have no padding",
                            "leave one of packing and padding out");
    if (job->trainer_padding_free && job->padding)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_trainer_padding_free, "leaves out all padding",
                            "leave padding out");
    if (job->packing && !is_training)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_packing, "rows are packed for training",
                            "use mode=train, or leave it out");
    if (job->packing && tide_job_prompts(job))
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_packing,
                            tide_format(b->arena, "with %s is not expressed", method), "leave one out");
}

/* transformers: modeling_flash_attention_utils.py, _flash_attention_forward. */
static void check_flash_attention(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->attention != TIDE_attention_flash_attention_2) return;
    if (job->padding)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_attention,
                            "flash_attention_2 removes padding from rows, so its size depends on the batch",
                            "leave padding out");
    if (job->packing && !tide_trainer_traits_of(job)->packs)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_attention,
                            "flash_attention_2 of packed rows is described with trainer=sft",
                            "use it, or attention=sdpa");
    if (job->mode != TIDE_mode_train)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_attention, "flash_attention_2 is described for training",
                            "use attention=sdpa sdpa_backend=flash");
}

/* Strategies that shard weights, combined with bitsandbytes. */
static void check_spread_quant(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_zero3 = job->parallel_kind == TIDE_parallel_kind_zero3,
         is_fsdp2 = job->parallel_kind == TIDE_parallel_kind_fsdp2;
    tide_optional_dtype half = is_fsdp2 && job->parallel_param_dtype.is_set ? job->parallel_param_dtype
                               : is_fsdp2                                   ? job->autocast
                                                                            : job->parallel_half;
    bool is_cast = (is_fsdp2 || tide_job_has_deepspeed(job)) && half.is_set && job->quant_storage.is_set &&
                   job->quant_storage.dtype != half.dtype;
    if (job->quant != TIDE_quant_none && is_cast)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_quant_storage,
                            "is not the dtype of mixed precision, to which packed weights would be cast",
                            "give that of mixed precision");
    if (job->quant == TIDE_quant_none || (!is_zero3 && !is_fsdp2)) return;
    if (job->quant == TIDE_quant_int8)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_quant,
                            is_fsdp2 ? "int8: a parameter sharded by fully_shard() \"has no attribute 'CB'\""
                                     : "int8: bitsandbytes' layers keep their full weights besides ZeRO-3's "
                                       "partitions, which is not described",
                            "use nf4, or parallel.kind=ddp or zero2");
    else if (is_zero3 && b->arguments.is_given[TIDE_SET_parallel_zero_init] && job->parallel_zero_init &&
             b->arguments.origins[TIDE_SET_parallel_zero_init] == TIDE_ORIGIN_USER)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_zero_init,
                            "from_pretrained() makes a quantised model in full, and DeepSpeed partitions it "
                            "afterwards",
                            "leave it out");
}

/* axolotl: monkeypatch/moe_quant.py. */
static void check_quantised_experts(tide_job_builder *b) {
    const tide_job *job = b->job;
    const int kinds = 1 << TIDE_parallel_kind_none | 1 << TIDE_parallel_kind_ddp | 1 << TIDE_parallel_kind_zero0 |
                      1 << TIDE_parallel_kind_zero1 | 1 << TIDE_parallel_kind_zero2 | 1 << TIDE_parallel_kind_fsdp2;
    bool is_8bit = job->quant == TIDE_quant_int8;
    if (!job->quant_experts || job->quant == TIDE_quant_none) return;
    if (!tide_is_of_kinds(job, kinds))
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_quant_experts,
            tide_format(b->arena, "is not described with parallel.kind=%s", job->values[TIDE_SET_parallel_kind]),
            "parallel.kind=ddp has such experts whole on each rank");
    if (is_8bit && job->mode == TIDE_mode_train && job->checkpointing != TIDE_checkpointing_none &&
        !tide_job_is_reentrant(job))
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/quant.experts",
                    "with int8 and checkpoints that are not reentrant, recomputing a layer whose experts come last "
                    "skips the hook that clears PyTorch's cache of parametrizations: the dequantised experts of all "
                    "layers stay, in fp32",
                    "checkpointing=full_reentrant, or quant=nf4");
}

/* peft: tuners/oft. */
static void check_rotations(tide_job_builder *b) {
    const int kinds = 1 << TIDE_parallel_kind_none | 1 << TIDE_parallel_kind_ddp | 1 << TIDE_parallel_kind_zero0 |
                      1 << TIDE_parallel_kind_zero1 | 1 << TIDE_parallel_kind_zero2 | 1 << TIDE_parallel_kind_zero3 |
                      1 << TIDE_parallel_kind_fsdp1 | 1 << TIDE_parallel_kind_fsdp2 | 1 << TIDE_parallel_kind_pp |
                      1 << TIDE_parallel_kind_native | 1 << TIDE_parallel_kind_tp;
    const tide_job *job = b->job;
    if (job->adapter != TIDE_adapter_oft) return;
    if (!tide_is_of_kinds(job, kinds))
        tide_builder_refuse(
            b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter,
            tide_format(b->arena, "oft is not described with parallel.kind=%s", job->values[TIDE_SET_parallel_kind]),
            "parallel.kind=fsdp2, zero3 and ddp are; or use lora");
}

/* transformers' Trainer, and peft's tuners/lora/gptq.py over the layers of GPTQModel (quantizer_gptq.py,
 * quantizer_awq.py). */
static const char *why_packed_is_not_trained(const tide_job_builder *b) {
    const tide_job *job = b->job;
    const char *quant = job->values[TIDE_SET_quant];
    if (job->quant != TIDE_quant_gptq && job->quant != TIDE_quant_awq)
        return tide_format(b->arena, "training over %s is not expressed", quant);
    if (job->adapter == TIDE_adapter_none)
        return tide_format(
            b->arena,
            "weights in %s do not train by themselves: \"You cannot perform fine-tuning on purely quantized models\"",
            quant);
    return tide_format(b->arena,
                       "adapters over %s train through the layers of GPTQModel, whose kernel (Marlin, ExLlama, Triton "
                       "or PyTorch) it chooses by what it finds on the machine: none is recorded",
                       quant);
}

static void check_quant(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_training = job->mode == TIDE_mode_train, is_packed = tide_job_packs_weights(job);
    const char *quant = job->values[TIDE_SET_quant];
    int64_t bits = job->quant_bits;
    if (is_packed && is_training)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_quant, why_packed_is_not_trained(b),
                            "train the model that it was quantised from, with nf4, fp4 or int8 if needed; "
                            "mode=infer generates with it");
    else if (is_packed && job->adapter != TIDE_adapter_none && !job->adapter_merged)
        tide_builder_refuse(b, TIDE_ERR_UNSUPPORTED, TIDE_SET_adapter,
                            tide_format(b->arena, "adapters over %s are not expressed", quant), "leave them out");
    if (is_packed && job->quant != TIDE_quant_fp8 && bits != 2 && bits != 3 && bits != 4 && bits != 8)
        tide_builder_refuse(b, TIDE_ERR_FIELD_RANGE, TIDE_SET_quant_bits, "must be 2, 3, 4 or 8", NULL);
    check_spread_quant(b);
    check_quantised_experts(b);
    if (is_training && job->adapter_merged)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_adapter_merged, "merged adapters do not train",
                            "use mode=infer, or adapter.merged=false");
}

void tide_check_conflicts(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_training = job->mode == TIDE_mode_train;
    if (job->mode == TIDE_mode_serve) {
        check_server(b);
        tide_check_read_where(b);
        return;
    }
    check_no_server(b);
    check_options(b);
    tide_check_rank_conflicts(b);
    check_copies(b);
    check_offloading(b);
    add_image(b);
    check_adapter(b);
    check_lora_config(b);
    check_flash_attention(b);
    check_rotations(b);
    check_quant(b);
    tide_check_trainer_conflicts(b);
    check_unread(b, TIDE_SET_model, TIDE_SET_title);
    tide_check_read_where(b);
    if (!is_training && (job->parallel_kind != TIDE_parallel_kind_none || job->parallel_dp > 1))
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_kind, "inference on several GPUs is not expressed",
                            "choose mode=serve with gpus=2, where vLLM shards the model, or one GPU");
    if (job->steps == 1 && is_training)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/steps",
                    "is 1: optimizer states are created at its end, so later steps may need more", "use steps=2");
}
