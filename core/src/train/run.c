/* SPDX-License-Identifier: Apache-2.0 */
/* A run: loads the model like from_pretrained() and .to("cuda"), then runs the loop. */
#include "train/run.h"

#include <string.h>

#include "base/units.h"
#include "job/trainers.h"
#include "memo/memo.h"
#include "tensor/checkpoint.h"
#include "train/adapters.h"
#include "train/liger.h"
#include "train/weights.h"

static const tide_sdpa_choice sdpa_of[] = {[TIDE_sdpa_backend_default] = TIDE_SDPA_DEFAULT,
                                           [TIDE_sdpa_backend_flash] = TIDE_SDPA_FLASH,
                                           [TIDE_sdpa_backend_efficient] = TIDE_SDPA_EFFICIENT,
                                           [TIDE_sdpa_backend_math] = TIDE_SDPA_MATH,
                                           [TIDE_sdpa_backend_cudnn] = TIDE_SDPA_CUDNN};

/* ScaledDotProductAttentionWrapper of torchtitan lists the kernels itself. */
static tide_sdpa_choice sdpa_choice(const tide_job *job) {
    if (!tide_job_has_torchtitan_models(job) || job->sdpa_backend == TIDE_sdpa_backend_math)
        return sdpa_of[job->sdpa_backend];
    return job->sdpa_backend == TIDE_sdpa_backend_flash ? TIDE_SDPA_TITAN_FLASH : TIDE_SDPA_TITAN;
}

static void prepare(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    tide_machine_init(m, arena, diags);
    run->strategy = run->frameworks ? run->frameworks->strategy_of(job) : NULL;
    m->folding.is_wanted = !run->plays_all && !run->plays_loops;
    m->device = (tide_device){(int)job->capability, job->gpu.sms, job->gpu.threads_per_sm};
    m->sdpa = sdpa_choice(job);
    m->state.keeps_workspaces = job->gemm_workspace == TIDE_gemm_workspace_kept;
    tide_finder *found = TIDE_NEW(arena, tide_finder, 1);
    *found = (tide_finder){job, arena, run, diags, false};
    tide_take_descriptions(run, job, found);
    tide_model_init(&run->model, m, &run->descriptions);
    if (run->descriptions.first) run->model.size_names = run->cache->size_names;
    tide_set_finder(&run->model, found);
    if (!run->plays_all) run->model.call = tide_call_memoized;
    run->model.state.dtype = tide_dtype_or(job->dtype, TIDE_BF16);
    run->model.state.is_checkpointing = job->checkpointing != TIDE_checkpointing_none;
    if (job->checkpointing == TIDE_checkpointing_selective) m->kept_kinds = 1 << TIDE_KEPT_ATTENTION;
    if (job->checkpointing == TIDE_checkpointing_selective_matmuls)
        m->kept_kinds = 1 << TIDE_KEPT_ATTENTION | 1 << TIDE_KEPT_PRODUCT;
    run->model.state.is_reentrant = tide_job_is_reentrant(job);
    const tide_json *cache = tide_json_at(job->config, "use_cache");
    bool uses_cache =
        job->use_cache == TIDE_use_cache_default ? !cache || cache->is_true : job->use_cache == TIDE_use_cache_true_;
    if (job->mode != TIDE_mode_train) run->model.state.is_checkpointing = false;
    if (run->model.state.is_checkpointing) uses_cache = false; /* transformers disables the cache */
    run->model.autocasts = job->mode == TIDE_mode_train && tide_job_autocasts(job);
    run->model.autocast_dtype = job->autocast.dtype;
    run->model.leaves_autocast = tide_job_has_deepspeed(job);
    bool has_text = tide_json_at(job->config, "text_config") != NULL;
    if (tide_job_has_trainer(job)) /* TRL's trainers pass use_cache=False */
        uses_cache = job->trainer == TIDE_trainer_hf && has_text && !run->model.state.is_checkpointing &&
                     tide_copied_use_cache(job);
    tide_set_model_settings(run, job, uses_cache);
    *tide_model_setting(&run->model, "mask_is_full") = tide_of_bool(job->trainer != TIDE_trainer_none && !job->padding);
    if (run->model.autocasts)
        *tide_model_setting(&run->model, "autocast_dtype") = *tide_model_setting(&run->model, "head_dtype") =
            (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = job->autocast.dtype};
    if (job->packing && uses_cache)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/packing",
                    "the model makes a cache, with which transformers treats each row as one text: no mask "
                    "separates its texts",
                    "use_cache=false");
}

tide_description *tide_run_description(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    prepare(run, job, arena, diags);
    ((tide_finder *)run->model.user)->reads_lazily = true;
    return tide_load_given_description(run, job);
}

/* modeling_utils.py, caching_allocator_warmup: one block of the size of the weights as they will be stored. */
static void warm_up(tide_run *run, const tide_job *job) {
    int64_t bytes = 0;
    if (job->load != TIDE_load_warmup || job->quant_experts) return;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const tide_tensor *t = run->model.parameters[i].tensor;
        bytes += tide_is_params4bit(&run->model, i) ? tide_count(t) / 2 : tide_bytes(t); /* two 4-bit values per byte */
    }
    run->machine.op = "caching_allocator_warmup";
    tide_alloc_and_free(&run->machine, bytes / 2 * 2);
}

/* timm's set_grad_checkpointing() and diffusers' enable_gradient_checkpointing() have a single variant: non-reentrant,
 * nothing of a layer kept. */
static bool check_form(const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const char *library = tide_job_is_of_timm(job) ? "timm" : tide_job_is_of_diffusers(job) ? "diffusers" : NULL;
    if (!library || job->checkpointing == TIDE_checkpointing_full) return true;
    if (job->checkpointing != TIDE_checkpointing_full_reentrant)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/checkpointing",
                          tide_format(arena, "is not described as selective for a model of %s", library),
                          "write checkpointing=full");
    tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/checkpointing",
                tide_format(arena, "is full: checkpoints of %s are not reentrant", library),
                "write checkpointing=full");
    return true;
}

/* transformers' modeling_utils.py, gradient_checkpointing_enable() */
static bool check_checkpointing(const tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const tide_model *model = &run->model;
    if (!model->state.is_checkpointing) return true;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].of->is_checkpointed) return check_form(job, arena, diags);
    return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/checkpointing",
                      tide_format(arena, "%s does not support gradient checkpointing", tide_root_name(model)),
                      "leave it out; in your own description, \"@checkpoint\": true marks the layers");
}

/* transformers/trainer.py, validate_quantization_for_training: "You cannot perform fine-tuning on purely quantized
 * models." */
static bool check_quantised_training(const tide_run *run, const tide_job *job, tide_diagnostics *diags) {
    bool is_asked = job->mode == TIDE_mode_train && job->quant != TIDE_quant_none;
    return !is_asked || run->trainable > 0 ||
           tide_error(diags, TIDE_ERR_CONFLICT, "/settings/quant",
                      "quantised weights do not train, and there is nothing else: the Trainer refuses such a job",
                      "adapter=lora trains beside them (QLoRA); mode=infer generates with them");
}

/* param.data = param.data.to(dtype) */
static void cast_parameter(tide_machine *m, tide_parameter_row *row, tide_dtype dtype) {
    m->module = row->module;
    tide_tensor *cast = tide_empty_like(m, row->tensor, dtype);
    tide_set_data(m, row->tensor, cast);
    row->tensor->dtype = (uint8_t)dtype;
    tide_release(m, cast);
}

/* order: of Module.to(); NULL: of named_parameters() */
static void cast_trainable_to_fp32(tide_run *run, const uint32_t *order) {
    tide_machine *m = &run->machine;
    m->op = "param.data.to(torch.float32)";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *row = &run->model.parameters[order ? order[i] : i];
        if (row->tensor->dtype == TIDE_FP32 || !row->tensor->requires_grad) continue;
        cast_parameter(m, row, TIDE_FP32);
        row->is_upcast = true;
    }
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* llamafactory/v1: model_engine.py, _init_model: model.to(torch.float32) without adapters; plugins/model_plugins/
 * peft.py, get_freeze_model: only what trains. */
static void cast_as_factory_v1(tide_run *run, const tide_job *job) {
    bool is_whole = !job->train_only.count && !job->freeze.count;
    if (job->trainer == TIDE_trainer_llama_factory_v1 && job->adapter == TIDE_adapter_none)
        cast_trainable_to_fp32(run, is_whole ? tide_children_first(&run->model) : NULL);
}

/* LLaMA-Factory: model/loader.py, load_model(). */
static bool prepare_as_factory(tide_run *run, const tide_job *job) {
    if (!tide_trainer_is_of_factory(job)) return true;
    if (run->model.state.is_checkpointing) tide_checkpoint_trainable(&run->model);
    bool is_partitioned = job->parallel_kind == TIDE_parallel_kind_zero3 && job->quant == TIDE_quant_none;
    if (!job->trainer_pure_bf16 && !is_partitioned) cast_trainable_to_fp32(run, NULL);
    return !tide_trainer_has_value_head(job) || tide_add_value_head(run, job);
}

/* trl/experimental/utils.py, peft_module_casting_to_bf16: for what prepare_model_for_kbit_training() cast to fp32. */
static void cast_embeddings_to_bf16(tide_run *run, const tide_job *job) {
    static const char *const names[] = {"lm_head", "embed_tokens", "wte", "wpe"};
    if (!tide_trainer_casts_to_bf16(job) || tide_trainer_traits_of(job)->pairs_completions) return;
    tide_machine *m = &run->machine;
    m->op = "peft_module_casting_to_bf16";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *row = &run->model.parameters[i];
        bool is_named = false;
        for (size_t k = 0; k < TIDE_COUNT_OF(names); k++) is_named = is_named || strstr(row->name, names[k]);
        if (is_named && !strstr(row->name, "norm") && row->tensor->dtype == TIDE_FP32)
            cast_parameter(m, row, TIDE_BF16);
    }
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* trl/experimental/utils.py, prepare_peft_model(): what is fp32 beside 4-bit weights, with bf16=True. */
static void cast_all_to_bf16(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    if (!tide_trainer_traits_of(job)->pairs_completions || !tide_trainer_casts_to_bf16(job)) return;
    model->m->op = "param.data.to(torch.bfloat16)";
    model->m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (model->parameters[i].tensor->dtype == TIDE_FP32) cast_parameter(model->m, &model->parameters[i], TIDE_BF16);
    model->m->module = 0;
    model->m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* trl/trainer/sft_trainer.py, __init__: casts adapters on quantised weights to bf16, without DoRA's magnitudes. */
static void cast_adapters_to_bf16(tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    bool casts = tide_trainer_is_of_trl(job) && !tide_trainer_traits_of(job)->prepares_kbit;
    if (!casts || job->quant == TIDE_quant_none || tide_trainer_is_of_factory(job)) return;
    m->op = "param.data.to(torch.bfloat16)";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_tensor *t = run->model.parameters[i].tensor;
        if (!t->requires_grad || t->dtype == TIDE_BF16) continue;
        if (strstr(run->model.parameters[i].name, "lora_magnitude_vector") && !tide_trl_builds_logits(job)) continue;
        cast_parameter(m, &run->model.parameters[i], TIDE_BF16);
    }
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* activation_checkpointing_enable() does so for models whose main_input_name is input_ids, and PeftModel for those that
 * have checkpoints already: not in transformers' Trainer, which enables them later. LLaMA-Factory leaves it to
 * PeftModel, which spares quantised models. */
static void require_input_grads(tide_run *run, const tide_job *job) {
    const tide_model *model = &run->model;
    bool is_of_factory = tide_trainer_is_of_factory(job);
    if (is_of_factory && (job->adapter == TIDE_adapter_none || job->quant != TIDE_quant_none)) return;
    const tide_json *inputs = tide_described_inputs(model);
    bool by_peft = job->adapter != TIDE_adapter_none && (job->trainer != TIDE_trainer_hf || is_of_factory);
    if (by_peft || tide_json_at(inputs, "input_ids"))
        tide_model_require_input_grads(&run->model, job->adapter != TIDE_adapter_none);
}

bool tide_load(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    prepare(run, job, arena, diags);
    tide_machine *m = &run->machine;
    if (!tide_make_model(run, job) || !check_checkpointing(run, job, arena, diags)) return false;
    if (run->model.state.is_checkpointing) tide_skip_layers(&run->model, job->every_n_layers);
    if (job->use_liger_kernel == TIDE_use_liger_kernel_true_ && !tide_apply_liger(run, job)) return false;
    tide_check_unread(run, job);
    if (!tide_compare_weights(&run->model, job, run->stand_in_of != NULL)) return false;
    bool is_quantised = job->quant != TIDE_quant_none;
    if (!job->quant_from_pretrained) warm_up(run, job);
    if (is_quantised && !tide_quantise(&run->model, job)) return false;
    if (job->quant_from_pretrained) warm_up(run, job);
    if (!tide_check_prefixes(run, job)) return false;
    const tide_strategy *strategy = run->strategy;
    if (strategy && strategy->load) strategy->load(&run->model, job);
    bool is_on_host = !tide_trainer_places_model(job);
    run->model.state.is_on_meta = run->model.state.is_on_meta || (is_on_host && !run->model.parameter_made);
    bool is_moved_last = job->parallel_kind == TIDE_parallel_kind_megatron && job->adapter != TIDE_adapter_none;
    if (!is_moved_last) tide_model_to_device(&run->model);
    if (strategy && strategy->loaded) strategy->loaded(&run->model, job);
    /* peft creates adapters where the weights are */
    m->makes_on_host = (is_on_host && !run->model.parameter_made) || run->model.state.is_on_meta;
    tide_choose_trainable(run, job);
    cast_as_factory_v1(run, job);
    if (tide_prepares_kbit(job)) tide_prepare_kbit(&run->model);
    if (run->model.state.is_checkpointing) require_input_grads(run, job);
    if (job->adapter != TIDE_adapter_none && !tide_adapt(&run->model, job)) return false;
    if (is_moved_last) tide_model_to_device(&run->model); /* get_model(): after pre_wrap_hook() */
    if (!prepare_as_factory(run, job)) return false;
    cast_adapters_to_bf16(run, job);
    cast_embeddings_to_bf16(run, job);
    cast_all_to_bf16(run, job);
    tide_count_parameters(run);
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    return !m->has_failed && check_quantised_training(run, job, diags);
}

/* Whether the model computes the given loss, or the one from Liger's kernels. */
static bool check_loss(tide_run *run, const tide_job *job) {
    tide_diagnostics *diags = run->machine.diags;
    tide_text loss = tide_model_setting(&run->model, "loss_function")->text;
    bool is_fused = tide_text_is(loss, "liger") || tide_text_is(loss, "cut_cross_entropy"),
         is_read = tide_model_setting(&run->model, is_fused ? "loss_is_fused" : "loss_is_read")->truth;
    bool is_unused = tide_trainer_is_of_trl(job); /* TRL's trainers have their own losses */
    if (!is_unused && (is_read || tide_text_is(loss, "default"))) return true;
    if (!is_unused && job->use_liger_kernel == TIDE_use_liger_kernel_true_ && job->labels &&
        job->loss == TIDE_loss_default)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED,
                          is_fused ? "/settings/liger.fused_linear_cross_entropy" : "/settings/liger.cross_entropy",
                          "Liger's loss is not described for this model", "false leaves it out");
    if (job->loss != TIDE_loss_default)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/loss",
                    is_unused ? "has no effect: the trainer has a loss of its own"
                              : "has no effect: the model's description does not read it",
                    NULL);
    return true;
}

/* Whether everything saved by folded loops was freed: it is not if a graph remains that no backward has run. */
static bool loops_are_unwound(const tide_timeline *t) {
    for (uint32_t i = 0; i < t->repetition_count; i++)
        if (t->repetitions[i].saved_count && !t->repetitions[i].is_unwound) return false;
    return true;
}

/* Whether all attention is of the kind that Ulysses replaces: library/ulysses.json was reached. */
static bool is_shared_by_ulysses(tide_run *run, const tide_job *job) {
    if (job->parallel_sequence_parallel_size == 1 || tide_model_setting(&run->model, "ulysses_is_read")->truth)
        return true;
    return tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, "/settings/parallel.sequence_parallel_size",
                      "this model's attention is not one that DeepSpeed's Ulysses replaces",
                      "use 1, or a decoder such as llama");
}

bool tide_play(tide_run *run, const tide_job *job) {
    tide_diagnostics *diags = run->machine.diags;
    if (!tide_play_loop(run, job)) return false;
    if (!loops_are_unwound(&run->machine.timeline)) {
        tide_cannot_fold(&run->machine);
        return false;
    }
    if (run->machine.folding.has_folded)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/seq",
                    "equal iterations of a scan are shown once by timeline and events", NULL);
    if (job->mode != TIDE_mode_train) return true;
    if (job->packing && !tide_model_setting(&run->model, "packing_is_read")->truth)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/packing",
                          "the model's description does not take position_ids", "leave it out");
    if (job->attention == TIDE_attention_flash_attention_2 && !tide_model_setting(&run->model, "flash_is_read")->truth)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/attention",
                          "flash_attention_2 is not described for this model", "use sdpa or eager");
    return is_shared_by_ulysses(run, job) && check_loss(run, job);
}

bool tide_must_play_loops(const tide_run *run, const tide_diagnostics *said, tide_diagnostics *diags) {
    if (!run->machine.folding.cannot_fold && !(run->machine.folding.has_folded && run->machine.has_failed))
        return false;
    diags->count = said->count;
    diags->error_count = said->error_count;
    diags->first_error = said->first_error;
    return true;
}

bool tide_run_job(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const tide_run before = *run;
    const tide_diagnostics said = *diags;
    bool is_played = tide_load(run, job, arena, diags) && tide_play(run, job);
    if (tide_must_play_loops(run, &said, diags)) {
        *run = before;
        run->plays_loops = true;
        is_played = tide_load(run, job, arena, diags) && tide_play(run, job);
    }
    if (!is_played) return false;
    tide_check_unused(run, job);
    tide_put_descriptions(run, job);
    return true;
}
