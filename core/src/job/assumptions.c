/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults that affect the result, each reported if it was not given. */
#include "job/builder.h"
#include "job/trainers.h"

#include <string.h>

#include "base/decimal.h"
#include "base/units.h"

static void assume(tide_job_builder *b, tide_setting_id id, const char *text) {
    if (!b->arguments.is_given[id] && tide_setting_is_read(b->job, id))
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, id), text, NULL);
}

/* Whether the configuration shows that an assumption concerns the model. */
static bool config_has(const tide_job_builder *b, const char *key) {
    return tide_json_at(b->job->config, key) || tide_json_at(tide_json_at(b->job->config, "text_config"), key);
}

static bool config_generates(const tide_job_builder *b) {
    static const char *const heads[] = {"*CausalLM*", "*LMHead*", "*ConditionalGeneration*"};
    const tide_json *names = tide_json_at(b->job->config, "architectures");
    if (!names || names->kind != TIDE_JSON_ARRAY || !names->first) return config_has(b, "vocab_size");
    for (size_t i = 0; i < TIDE_COUNT_OF(heads); i++)
        if (names->first->kind == TIDE_JSON_STRING && tide_text_matches(names->first->text, tide_text_of(heads[i])))
            return true;
    return false;
}

static void assume_data(tide_job_builder *b) {
    const tide_json *config = b->job->config;
    bool sees_images = tide_json_at(config, "vision_config") || tide_json_at(config, "image_size");
    if (!tide_trainer_generates(b->job))
        assume(b, TIDE_SET_batch, "1 sample per micro-batch");
    else if (b->job->batch > 1)
        assume(b, TIDE_SET_batch,
               tide_format(b->arena,
                           "%lld rows on each GPU: the smallest number that makes complete groups of %lld"
                           " completions",
                           (long long)b->job->batch, (long long)b->job->trainer_num_generations));
    if (config_has(b, "vocab_size")) {
        bool has_lengths = tide_job_has_lengths(b->job);
        if (!tide_trainer_completes(b->job) && !has_lengths) assume(b, TIDE_SET_seq, "512 tokens of text per sample");
        if (!has_lengths) assume(b, TIDE_SET_padding, "no padding mask: every sample fills seq");
    }
    if (tide_json_at(config, "image_token_index") || tide_json_at(config, "image_token_id"))
        assume(b, TIDE_SET_images, "1 image per sample");
    if (sees_images) assume(b, TIDE_SET_image_size, "the size that the model's preprocessor produces");
}

static void assume_precision(tide_job_builder *b) {
    tide_text stated = tide_model_dtype(b->job->config, NULL);
    bool differs = stated.length && !tide_text_is(stated, "bfloat16");
    bool has_main_grads = b->job->parallel_kind == TIDE_parallel_kind_megatron; /* Megatron-Core's buffers */
    const char *what = has_main_grads ? "bf16 weights" : "bf16 weights and gradients";
    assume(b, TIDE_SET_dtype,
           differs ? tide_format(b->arena, "%s (the configuration says %s)", what, tide_shown(b->arena, stated))
                   : what);
    assume(b, TIDE_SET_autocast, "no autocast: operations run in the dtype of the weights");
}

static void assume_quant(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->quant == TIDE_quant_none) return;
    assume(b, TIDE_SET_quant_skip, "every linear layer except the output head is quantised");
    if (tide_job_packs_weights(job))
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_quant),
                    tide_format(b->arena,
                                "%s weights of %lld bits by their packing rules; the kernel of a product takes nothing "
                                "besides its output",
                                job->values[TIDE_SET_quant],
                                job->quant == TIDE_quant_fp8 ? 8LL : (long long)job->quant_bits),
                    NULL);
    if (job->quant == TIDE_quant_int8)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_quant),
                    "int8: no activation exceeds the threshold of 6; columns that do (outliers) are copied", NULL);
}

static void assume_adapter(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (job->adapter == TIDE_adapter_none) return;
    if (tide_job_prompts(job)) assume(b, TIDE_SET_adapter_num_virtual_tokens, "20 trained tokens precede each sample");
    if (job->adapter == TIDE_adapter_ia3)
        assume(b, TIDE_SET_adapter_target_modules,
               "peft's choice for the model_type is rescaled, the last layer of the MLP at its input");
    bool is_of_bridge = job->parallel_kind == TIDE_parallel_kind_megatron;
    if (job->adapter == TIDE_adapter_lora) {
        assume(b, TIDE_SET_adapter_target_modules,
               is_of_bridge
                   ? "adapters on linear_qkv, linear_proj, linear_fc1 and linear_fc2, as Megatron-Bridge has it"
                   : "adapters on every linear layer except the output head");
        assume(b, TIDE_SET_adapter_r, "adapters of rank 16");
        assume(b, TIDE_SET_adapter_dropout, "no dropout before adapters");
    }
    if (!is_of_bridge)
        assume(b, TIDE_SET_adapter_autocast_adapter_dtype,
               "adapters in fp32, as peft makes them for a model in half precision");
}

/* Whether a schedule runs the micro-batches of a step, calling layers itself. */
static bool has_schedule(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_pp || job->parallel_kind == TIDE_parallel_kind_native ||
           job->parallel_kind == TIDE_parallel_kind_megatron;
}

/* torch/utils/checkpoint.py, CheckpointFunction: a layer whose inputs need no gradient gets no gradients itself. */
static void assume_input_grads(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_frozen = job->adapter != TIDE_adapter_none || job->freeze.count || job->train_only.count;
    if (job->mode != TIDE_mode_train || !tide_job_is_reentrant(job) || !is_frozen || tide_trainer_is_of_factory(job))
        return;
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_checkpointing),
                "model.enable_input_require_grads() is called: without it, over frozen embeddings, no layer under a "
                "reentrant checkpoint has a gradient, and PyTorch warns that \"None of the inputs have "
                "requires_grad=True\"",
                job->checkpointing == TIDE_checkpointing_full_reentrant ? "checkpointing=full needs no such call"
                                                                        : NULL);
}

/* modeling_m2m_100.py and others: layers below a random number are skipped in a step, according to layerdrop. */
static void assume_layerdrop(tide_job_builder *b) {
    static const char *const keys[] = {"encoder_layerdrop", "decoder_layerdrop", "layerdrop"};
    bool is_on = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *share = tide_json_at(b->job->config, keys[i]);
        is_on = is_on || (tide_json_is(share, TIDE_JSON_NUMBER) && share->number > 0);
    }
    if (is_on)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/model",
                    "every layer runs: a step in which layerdrop skips some needs less", NULL);
}

/* Defaults of a trainer's configuration: transformers/training_args.py, trl/trainer/base_config.py, max_length of
 * trl/trainer/sft_config.py and others, and create_model_from_path() of trl/trainer/utils.py. Words and links that
 * leave a setting out keep the meaning that they have without a trainer; if the trainer's default differs, that is
 * reported. */
static void assume_trainer(tide_job_builder *b) {
    static const struct {
        tide_setting_id id;
        const char *value;
        bool is_of_trl, is_of_rows;
    } rows[] = {{TIDE_SET_batch, "8", .is_of_rows = true},
                {TIDE_SET_seq, "1024", .is_of_trl = true, .is_of_rows = true},
                {TIDE_SET_dtype, "fp32", .is_of_trl = true},
                {TIDE_SET_autocast, "bf16", .is_of_trl = true},
                {TIDE_SET_checkpointing, "full", .is_of_trl = true},
                {TIDE_SET_optimizer, "adamw_fused", .is_of_trl = false},
                {TIDE_SET_clip, "1", .is_of_trl = false}};
    const tide_job *job = b->job;
    const char *own = "";
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        bool is_own = (!rows[i].is_of_trl || tide_trainer_is_of_trl(job)) &&
                      (!rows[i].is_of_rows || (!tide_trainer_completes(job) && !tide_job_has_lengths(job)));
        if (is_own && !b->arguments.is_given[rows[i].id])
            own = tide_format(b->arena, "%s %s=%s", own, tide_settings[rows[i].id].name, rows[i].value);
    }
    if (tide_job_has_trainer(job) && own[0])
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_trainer),
                    tide_format(b->arena,
                                "settings that are not given have the defaults of a plain loop; the "
                                "trainer's own are%s%s",
                                own,
                                tide_trainer_is_of_trl(job) && !b->arguments.is_given[TIDE_SET_dtype]
                                    ? ", the dtype if the model is given by name"
                                    : ""),
                    NULL);
}

static void assume_images(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (tide_trainer_is_of_factory(job) && job->video.frames)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_video),
                    "LLaMA-Factory resizes videos by video_max_pixels: this is the size that it leaves", NULL);
}

static void assume_training(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool has_steps = job->optimizer != TIDE_optimizer_none;
    assume(b, TIDE_SET_optimizer,
           "torch.optim.AdamW with PyTorch's defaults: foreach, two states per parameter in its dtype");
    if (job->quant != TIDE_quant_none)
        assume(b, TIDE_SET_kbit_prepare,
               tide_trainer_leaves_kbit(job)
                   ? job->trainer == TIDE_trainer_llama_factory_v1 || tide_trainer_is_of_factory(job)
                         ? "LLaMA-Factory does not call peft.prepare_model_for_kbit_training: what is not quantised "
                           "keeps its dtype"
                         : "TRL 1 does not call peft.prepare_model_for_kbit_training: what is not quantised keeps its "
                           "dtype"
                   : "peft.prepare_model_for_kbit_training: what is not quantised is kept in fp32 and frozen");
    if (job->train_only.count == 0 && job->adapter == TIDE_adapter_none)
        assume(b, TIDE_SET_freeze, "nothing is frozen: every parameter trains");
    if (has_schedule(job))
        assume(b, TIDE_SET_parallel_microbatches,
               tide_format(b->arena, "%lld micro-batches for each optimizer step, twice the pipeline's stages",
                           2 * (long long)job->parallel_pp));
    else
        assume(b, TIDE_SET_grad_accum, "1: an optimizer step after every micro-batch");
    if (has_steps) assume(b, TIDE_SET_zero_grad, "gradients are freed after every step (set_to_none)");
    if (has_steps) assume(b, TIDE_SET_clip, "gradients are not clipped");
    if (!has_schedule(job)) assume(b, TIDE_SET_hold_outputs, "the model's output is released before backward");
    assume(b, TIDE_SET_checkpointing, "no checkpointing: everything that backward needs is kept for every layer");
    assume_input_grads(b);
    assume_images(b);
    assume_layerdrop(b);
    assume_trainer(b);
    if (job->trainer == TIDE_trainer_llama_factory_v1 && job->adapter == TIDE_adapter_none)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_dtype),
                    "weights are loaded in this dtype, and those that train are then cast to fp32", NULL);
    if (tide_job_has_trainer(job))
        assume(b, TIDE_SET_trainer_save_strategy,
               "no checkpoint is written; by default Trainer writes one every 500 steps and after the last: "
               "save_strategy=steps plays that");
    bool scores_tokens = tide_trainer_is_of_trl(job) && !tide_trainer_traits_of(job)->scores_rows;
    if (tide_trainer_answers_prompts(job))
        assume(b, TIDE_SET_trainer_prompt_length, "generated answers follow prompts of what they leave of seq");
    else if (tide_trainer_completes(job) && !tide_job_has_lengths(job))
        assume(b, TIDE_SET_trainer_prompt_length, "prompts are what completions leave of seq");
    else if (scores_tokens && !tide_trainer_completes(job) && !b->arguments.is_given[TIDE_SET_trainer_scored_tokens])
        assume(b, TIDE_SET_trainer_prompt_length, "rows without a prompt: every position is scored");
    if (job->trainer_assistant_only_loss)
        tide_report(
            b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_trainer_assistant_only_loss),
            "the data say how many tokens are the assistant's: all but trainer.prompt_length of each sample, or "
            "trainer.scored_tokens",
            NULL);
}

static void assume_versions(tide_job_builder *b) {
    const tide_json *saved = tide_json_at(b->job->config, "transformers_version");
    bool is_older = b->job->config_text.length && tide_json_is(saved, TIDE_JSON_STRING) && saved->text.length &&
                    saved->text.at[0] < '5';
    assume(b, TIDE_SET_torch, "allocations and defaults of PyTorch 2.15, unless an older version is given");
    if (b->job->parallel_kind == TIDE_parallel_kind_megatron) return; /* which has modules of its own */
    assume(b, TIDE_SET_transformers,
           is_older ? tide_format(b->arena,
                                  "modules and defaults of transformers 5.23; the configuration was saved by "
                                  "%s, which need not be what runs it: if it is, give transformers=%s",
                                  tide_shown(b->arena, saved->text), tide_shown(b->arena, saved->text))
                    : "modules and defaults of transformers 5.23");
}

static void assume_inference(tide_job_builder *b) {
    assume(b, TIDE_SET_cache, "a DynamicCache, as created by generate()");
    assume(b, TIDE_SET_decode, "8 tokens after the prompt; the cache grows with each");
    assume(b, TIDE_SET_logits_to_keep, "only logits of the prompt's last token, as generate() computes them");
}

static void assume_kernels(tide_job_builder *b) {
    const tide_job *job = b->job;
    assume(b, TIDE_SET_attention, "sdpa, as transformers chooses where the class has it");
    if (job->attention == TIDE_attention_sdpa)
        assume(b, TIDE_SET_sdpa_backend,
               tide_format(b->arena, "the kernel that PyTorch selects at capability %lld", (long long)job->capability));
    if (config_generates(b) && !has_schedule(job))
        assume(b, TIDE_SET_use_cache, "the model's default: transformers fills a DynamicCache even in training");
}

static void assume_device(tide_job_builder *b) {
    const tide_job *job = b->job;
    if (!job->has_gpu)
        assume(b, TIDE_SET_gpu,
               tide_format(b->arena, "no gpu given: kernels as on an H100 of capability %lld, %s, no context counted",
                           (long long)job->capability,
                           job->device_bytes ? "memory as gpu_gib says" : "memory without limit"));
    assume(b, TIDE_SET_allocator, "PyTorch's own defaults: PYTORCH_CUDA_ALLOC_CONF is not set");
    if (!tide_job_is_on_meta(job))
        assume(b, TIDE_SET_load, "weights reach the device one by one, as .to(\"cuda\") moves them");
    if (!tide_trainer_places_model(job)) return; /* it is on the host */
    if (job->parallel_kind == TIDE_parallel_kind_zero3)
        assume(b, TIDE_SET_parallel_zero_init,
               "the whole model is moved to the device before it is partitioned; true: while it is made, as "
               "from_pretrained() does with a stage 3 configuration");
    if (job->parallel_kind == TIDE_parallel_kind_fsdp2)
        assume(b, TIDE_SET_parallel_meta_init,
               "the whole model is moved to the device before it is sharded; true: it is made on the meta device, and "
               "only parts are allocated");
}

/* Whether a number of GPUs is given. */
static bool says_ranks(const tide_job_builder *b) {
    static const tide_setting_id sizes[] = {TIDE_SET_parallel_dp, TIDE_SET_parallel_tp, TIDE_SET_parallel_pp,
                                            TIDE_SET_parallel_cp, TIDE_SET_parallel_sequence_parallel_size};
    for (size_t i = 0; i < TIDE_COUNT_OF(sizes); i++)
        if (b->arguments.is_given[sizes[i]]) return true;
    return false;
}

static void assume_megatron(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_te = job->parallel_impl == TIDE_parallel_impl_te, has_momentum = job->optimizer != TIDE_optimizer_sgd;
    const char *sgd = !is_te         ? "PyTorch's SGD"
                      : has_momentum ? "FusedSGD"
                                     : "FusedSGD, which keeps momentum buffers without momentum too";
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_parallel_kind),
                tide_format(b->arena,
                            "Megatron-Core's optimizer with %s, and its defaults for parallel settings that are"
                            " not given",
                            tide_job_is_sgd(job) ? sgd : "FusedAdam"),
                NULL);
    assume(b, TIDE_SET_parallel_imbalance, "balanced: the router sends every expert equally many tokens");
    if (job->parallel_offload_fraction > 0 && job->parallel_offload_fraction < TIDE_PICO)
        tide_report(
            b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_parallel_offload_fraction),
            "a first HybridDeviceOptimizer, of whole parameters, is released before more is allocated; Python "
            "does so when it collects its references in circles, and the blocks that are kept may be others: up "
            "to 0.2 % of the peak more or less",
            NULL);
}

/* torch/utils/checkpoint.py, create_selective_checkpoint_contexts(): what is cached lives as long as the graph. */
static void assume_order_of_caches(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_interleaved = job->parallel_pp > 1 && job->parallel_chunks > 1;
    if (job->parallel_kind == TIDE_parallel_kind_native && job->parallel_ac == TIDE_parallel_ac_op && is_interleaved)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_parallel_ac),
                    "stages free what was saved selectively in the order of their passes; the first stage of an "
                    "interleaved schedule may do so in another order, which moves what a phase allocates by up to 1 "
                    "%, and what is reserved by up to 4 %",
                    NULL);
}

static void assume_ranks(tide_job_builder *b) {
    const tide_job *job = b->job;
    tide_parallel_kind_choice kind = job->parallel_kind;
    if (kind != TIDE_parallel_kind_none && tide_job_world(job) == 1) {
        bool is_said = says_ranks(b);
        tide_report(b->diags, is_said ? TIDE_ASSUMPTION : TIDE_WARNING, is_said ? TIDE_OK : TIDE_ERR_FIELD_MISSING,
                    tide_builder_place(b, TIDE_SET_parallel_kind), "a single rank, so nothing is sharded or reduced",
                    is_said ? NULL : "write gpus=8 if there are 8");
    }
    if (kind == TIDE_parallel_kind_megatron) assume_megatron(b);
    assume_order_of_caches(b);
    if (kind == TIDE_parallel_kind_fsdp2 && job->trainer_save_strategy != TIDE_trainer_save_strategy_no &&
        job->parallel_state_dict_type == TIDE_parallel_state_dict_type_sharded)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_parallel_state_dict_type),
                    "each rank writes its own parts, so nothing is gathered on the GPU: not recorded", NULL);
    if (tide_job_cuts_experts(b->job) || tide_job_has_torchtitan_experts(b->job) ||
        tide_job_cuts_torchtitan_experts(b->job))
        assume(b, TIDE_SET_parallel_imbalance, "balanced: the router sends every expert equally many tokens");
    if (tide_is_of_kinds(job, TP | PP | NATIVE))
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_parallel_kind),
                    tide_job_is_on_meta(b->job) ? "made on the meta device: only a rank's parts are allocated"
                                                : "the whole model is moved to the device before it is sharded",
                    NULL);
}

static void assume_server(tide_job_builder *b) {
    assume(b, TIDE_SET_engine, "vLLM 0.32.0 on PyTorch 2.13, with its own defaults on this GPU");
    if (b->job->engine == TIDE_engine_transformers)
        assume(b, TIDE_SET_auto_switch_to_flash,
               "neither flash-attn nor kernels is installed, so sdpa runs with masks; true: flash attention");
    if (b->job->engine == TIDE_engine_transformers)
        assume(b, TIDE_SET_max_memory_percent,
               "0.9: generation without logits processors; with temperature, top_k or top_p it is 0.8, and there "
               "are copies of the logits that are not played");
    if (b->job->engine == TIDE_engine_llama_cpp && !tide_json_at(b->job->config, "gguf"))
        assume(b, TIDE_SET_ftype, "the most common one; a given GGUF file has its own types");
    if (!b->job->has_gpu)
        assume(b, TIDE_SET_gpu,
               tide_format(b->arena, "no gpu given: kernels as on an H100 of capability %lld, no context counted",
                           (long long)b->job->capability));
}

void tide_report_assumptions(tide_job_builder *b) {
    if (b->job->mode == TIDE_mode_serve) {
        assume_server(b);
        return;
    }
    assume_data(b);
    assume_precision(b);
    assume_quant(b);
    assume_adapter(b);
    if (b->job->mode == TIDE_mode_train)
        assume_training(b);
    else
        assume_inference(b);
    assume_kernels(b);
    assume_device(b);
    assume_ranks(b);
    assume_versions(b);
}
