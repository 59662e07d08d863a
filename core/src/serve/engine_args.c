/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's arguments: those of the job, and the defaults for this GPU and model. vllm/engine/arg_utils.py of
 * 0.32.0. */
#include "serve/engine_args.h"

#include <string.h>

#include "base/decimal.h"
#include "serve/config.h"
#include "serve/drafts.h"

enum { SETTING_LIMIT = 96 };

static bool read_option_object(const tide_json **object, const tide_job *job, tide_setting_id id, const char *name,
                               tide_arena *arena, tide_diagnostics *diags) {
    const char *place = tide_format(arena, "/settings/%s", name);
    *object = NULL;
    if (!tide_job_sets(job, id)) return true;
    if (!strchr("[{", job->values[id][0]))
        return tide_error(
            diags, TIDE_ERR_FIELD_TYPE, place,
            tide_format(arena, "is \"%s\"; must be a JSON object", tide_shown(arena, tide_text_of(job->values[id]))),
            id == TIDE_SET_limit_mm_per_prompt ? "write {\"image\": 2}" : "write {\"NAME\": VALUE, ...}");
    *object = tide_json_parse(arena, tide_text_of(job->values[id]), place, diags);
    if (!*object) return false;
    return (*object)->kind == TIDE_JSON_OBJECT ||
           tide_error(diags, TIDE_ERR_FIELD_TYPE, place,
                      tide_format(arena, "is %s; must be a JSON object", tide_json_kind_name(*object)), NULL);
}

bool tide_serve_take_args(tide_serve_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *drafts, *compilation;
    run->job = *job;
    return read_option_object(&run->limits, job, TIDE_SET_limit_mm_per_prompt, "limit_mm_per_prompt", arena, diags) &&
           read_option_object(&drafts, job, TIDE_SET_speculative_config, "speculative_config", arena, diags) &&
           read_option_object(&compilation, job, TIDE_SET_compilation_config, "compilation_config", arena, diags) &&
           tide_serve_read_graph_sizes(run, compilation, arena, diags) &&
           tide_serve_read_drafts(run, drafts, arena, diags);
}

/* arg_utils.py, _set_default_chunked_prefill_and_prefix_caching_args. */
bool tide_serve_chunks_prefill(const tide_serve_run *run) {
    return run->job.enable_chunked_prefill && !run->is_pooling;
}

/* arg_utils.py, get_batch_defaults: by memory and name of the GPU. */
static void batch_defaults(tide_serve_run *run) {
    tide_job *job = &run->job;
    uint64_t gib = run->device.total_bytes >> 30;
    int64_t tokens = job->usage == TIDE_usage_llm ? 8192 : 2048, requests = 256;
    bool is_a100 = tide_text_contains(tide_text_of(run->device.name), TIDE_TEXT("A100"));
    if (gib >= 160) {
        tokens = 16384;
        requests = 1024;
    } else if (gib >= 70 && !is_a100) {
        tokens = job->usage == TIDE_usage_llm ? 16384 : 8192;
        requests = 1024;
    }
    if (job->performance_mode == TIDE_performance_mode_throughput) {
        tokens *= 2;
        requests *= 2;
    }
    run->asked_requests = job->max_num_seqs;
    if (!job->max_num_seqs) job->max_num_seqs = requests;
    if (!job->max_num_batched_tokens) {
        job->max_num_batched_tokens = tokens;
        if (!tide_serve_chunks_prefill(run) && run->figures.max_model_len > tokens)
            job->max_num_batched_tokens = run->figures.max_model_len;
        if (job->max_num_seqs < tokens / run->figures.max_model_len + 1 &&
            job->max_num_seqs * run->figures.max_model_len < tokens)
            job->max_num_batched_tokens = job->max_num_seqs * run->figures.max_model_len;
    }
    if (job->max_num_seqs > job->max_num_batched_tokens) job->max_num_seqs = job->max_num_batched_tokens;
}

tide_dtype tide_serve_dtype(const tide_serve_run *run) {
    tide_text given = tide_model_dtype(run->job.config, NULL);
    tide_dtype dtype, preferred = run->is_pooling ? TIDE_FP16 : TIDE_BF16;
    if (run->job.dtype.is_set) return run->job.dtype.dtype;
    if (!given.length) given = tide_model_dtype(tide_serve_text_config(run->job.config), run->job.checkpoint);
    if (run->device.capability < 80) /* platforms/cuda.py, supported_dtypes */
        preferred = tide_serve_bars_fp16(run->job.config) ? TIDE_FP32 : TIDE_FP16;
    if (tide_dtype_named(given, &dtype) && dtype != TIDE_FP32)
        return dtype == TIDE_BF16 && run->device.capability < 80 ? preferred : dtype;
    return preferred; /* for float32, and if none is given; config/model.py, _resolve_auto_dtype */
}

bool tide_serve_has_fp8_cache(const tide_job *job) {
    return job->kv_cache_dtype == TIDE_kv_cache_dtype_fp8 || job->kv_cache_dtype == TIDE_kv_cache_dtype_fp8_e4m3;
}

/* v1/kv_cache_interface.py, KVQuantMode; attention/backends/triton_attn.py, customize_spec: an fp32 scale after the
 * keys of each head and token, and one after its values. */
static const struct {
    int64_t bits; /* 0: the model's dtype */
    int64_t scale_bytes;
} cache_types[] = {
    [TIDE_kv_cache_dtype_auto] = {0, 0},
    [TIDE_kv_cache_dtype_bfloat16] = {16, 0},
    [TIDE_kv_cache_dtype_float16] = {16, 0},
    [TIDE_kv_cache_dtype_fp8] = {8, 0},
    [TIDE_kv_cache_dtype_fp8_e4m3] = {8, 0},
    [TIDE_kv_cache_dtype_fp8_e5m2] = {8, 0},
    [TIDE_kv_cache_dtype_fp8_per_token_head] = {8, 4},
    [TIDE_kv_cache_dtype_int8_per_token_head] = {8, 4},
    [TIDE_kv_cache_dtype_int4_per_token_head] = {4, 4},
};

int64_t tide_serve_cached_bytes(const tide_serve_run *run, int64_t values) {
    int64_t bits = cache_types[run->job.kv_cache_dtype].bits;
    if (!bits) bits = 8 * tide_dtype_bytes(run->model.state.dtype);
    return values * bits / 8 + (values ? cache_types[run->job.kv_cache_dtype].scale_bytes : 0);
}

bool tide_serve_scales_heads(const tide_job *job) {
    return cache_types[job->kv_cache_dtype].scale_bytes > 0;
}

enum {
    DEFAULT_ITEM_LIMIT = 999, /* config/multimodal.py */
    MAX_PIXELS = 12845056     /* transformers, models/qwen2_vl/image_processing_qwen2_vl.py */
};

/* limit_mm_per_prompt for a modality: a number, or an object with a count. */
static int64_t item_limit(const tide_serve_run *run, const char *modality) {
    if (run->job.language_model_only) return 0;
    const tide_json *given = tide_json_at(run->limits, modality), *count = tide_json_at(given, "count");
    if (count) given = count;
    return given && given->kind == TIDE_JSON_NUMBER && given->is_integer && given->integer >= 0 ? given->integer
                                                                                                : DEFAULT_ITEM_LIMIT;
}

static bool supports_media(const tide_serve_run *run) {
    const tide_json *config = run->job.config;
    if (tide_json_at(config, "num_mel_bins")) return item_limit(run, "audio") > 0;
    return tide_json_at(config, "vision_config") &&
           (item_limit(run, "image") > 0 || (tide_json_at(config, "video_token_id") && item_limit(run, "video") > 0));
}

/* transformers_utils/model_arch_config_convertor.py, is_mm_prefix_lm: images attend to all of themselves. */
static bool has_image_prefix(const tide_serve_run *run) {
    const tide_json *said = tide_json_at(run->job.config, "is_mm_prefix_lm"),
                    *type = tide_json_at(run->job.config, "model_type");
    if (!supports_media(run)) return false;
    if (said) return tide_json_is_true(said);
    return tide_json_is_text(type, "gemma3") || tide_json_is_text(type, "paligemma");
}

/* attention/backends/triton_flashinfer.py: on Blackwell it has its own block size for heads of these sizes. */
static int64_t attention_block_size(const tide_serve_run *run) {
    int64_t head = TIDE_SERVE_NUMBER(run->job.config, 256, "head_dim"); /* Gemma3TextConfig's default */
    bool is_composite = run->device.capability / 10 == 10 && has_image_prefix(run) && (head == 256 || head == 512) &&
                        !tide_serve_scales_heads(&run->job);
    return is_composite ? 64 : 16;
}

/* The smallest block of the first backend in cuda.py, _get_backend_priorities: that of FlashInfer, FlashMLA, or others.
 */
static int64_t latent_block_size(int capability, bool is_fp8) {
    if (capability == 100) return 32;
    return is_fp8 && capability == 90 ? 64 : 16;
}

void tide_serve_take_defaults(tide_serve_run *run) {
    tide_job *job = &run->job;
    if (!job->gpu_memory_utilization) job->gpu_memory_utilization = TIDE_PICO / 100 * 92;
    bool is_latent = tide_json_at(job->config, "kv_lora_rank") != NULL;
    bool is_fp8 = tide_serve_has_fp8_cache(job);
    if (!job->block_size)
        job->block_size = is_latent ? latent_block_size(run->device.capability, is_fp8) : attention_block_size(run);
    run->figures.max_model_len = job->max_model_len > 0 ? job->max_model_len : tide_serve_default_length(job->config);
    batch_defaults(run);
    run->figures.max_num_seqs = job->max_num_seqs;
    run->figures.max_num_batched_tokens = job->max_num_batched_tokens;
    run->figures.tokens_in_flight = job->max_num_batched_tokens * (job->pipeline_parallel_size + job->async_scheduling);
}

/* ---- what descriptions may ask for ---- */

static void set_int(tide_serve_run *run, const char *name, int64_t value) {
    tide_model *model = &run->model;
    model->settings[model->setting_count++] = (tide_setting_value){
        .name = name,
        .value = {
            .kind = TIDE_VALUE_INT, .symbol = tide_symbol_name(&run->machine, tide_text_of(name)), .integer = value}};
}

static void set_truth(tide_serve_run *run, const char *name, bool value) {
    run->model.settings[run->model.setting_count++] = (tide_setting_value){.name = name, .value = tide_of_bool(value)};
}

static void set_value(tide_serve_run *run, const char *name, tide_value value) {
    run->model.settings[run->model.setting_count++] = (tide_setting_value){.name = name, .value = value};
}

/* distributed/utils.py, get_pp_indices. */
static void layers_of_stage(int64_t layers, int64_t stage, int64_t stages, int64_t *start, int64_t *end) {
    *start = 0;
    for (int64_t i = 0; i <= stage; i++) {
        int64_t from_last = stages - i;
        int64_t here = layers / stages + (from_last >= 2 && from_last < layers % stages + 2);
        *end = *start + here;
        if (i < stage) *start = *end;
    }
}

/* config/vllm.py, with_hf_config: for a composite model, the whole configuration says whether embeddings are tied. */
static tide_value composite_ties(const tide_serve_run *run) {
    const tide_json *config = run->job.config, *ties = tide_json_at(config, "tie_word_embeddings");
    bool is_said = tide_json_at(config, "text_config") && tide_json_is(ties, TIDE_JSON_BOOL);
    return is_said ? tide_of_bool(ties->is_true) : tide_none();
}

/* Number of tiles of the largest image: transformers, models/got_ocr2/image_processing_got_ocr2.py. */
static int64_t max_patches(const tide_serve_run *run) {
    const tide_json *crops = tide_json_at(run->job.preprocessor, "crop_to_patches");
    if (!crops || !crops->is_true) return 1;
    const tide_json *given = tide_json_at(run->job.preprocessor, "max_patches");
    return given && given->is_integer && given->integer > 0 && given->integer <= 4096 ? given->integer : 12;
}

/* Of the largest image, from the processor's file, or the default of Qwen2VLImageProcessor. */
static int64_t max_pixels(const tide_serve_run *run) {
    const tide_json *given = tide_json_at(run->job.preprocessor, "max_pixels"),
                    *size = tide_json_at(run->job.preprocessor, "size");
    if (!given) given = tide_json_at(size, "longest_edge");
    return given && given->is_integer && given->integer > 0 ? given->integer : MAX_PIXELS;
}

/* From the processor's file; 0: not given there. */
static int64_t longest_edge(const tide_serve_run *run) {
    const tide_json *given = tide_json_at(tide_json_at(run->job.preprocessor, "size"), "longest_edge");
    return given && given->is_integer && given->integer > 0 && given->integer <= MAX_PIXELS ? given->integer : 0;
}

static void set_media_limits(tide_serve_run *run) {
    set_int(run, "image_limit", item_limit(run, "image"));
    set_int(run, "video_limit", item_limit(run, "video"));
    set_int(run, "audio_limit", item_limit(run, "audio"));
    set_int(run, "max_pixels", max_pixels(run));
    set_int(run, "max_patches", max_patches(run));
    set_int(run, "longest_edge", longest_edge(run));
}

static void set_drafts(tide_serve_run *run) {
    set_int(run, "num_speculative_tokens", run->drafts.tokens);
    set_truth(run, "speculates_ngrams", run->drafts.are_ngrams);
    set_truth(run, "has_draft", run->drafts.config != NULL);
    set_value(run, "aux_layers", tide_serve_aux_layers(run));
    set_value(run, "aux_hidden_states", (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(&run->machine)});
}

static void set_text(tide_serve_run *run, const char *name, const char *text) {
    set_value(run, name, (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(text ? text : "none")});
}

void tide_serve_set_settings(tide_serve_run *run) {
    const tide_job *job = &run->job;
    tide_machine *m = &run->machine;
    int64_t stage = job->worker_rank / job->tensor_parallel_size, start = 0, end = 0;
    layers_of_stage(tide_serve_layers(job->config), stage, job->pipeline_parallel_size, &start, &end);
    run->model.settings = TIDE_NEW(m->arena, tide_setting_value, SETTING_LIMIT);
    set_int(run, "tp_size", job->tensor_parallel_size);
    set_int(run, "tp_rank", job->worker_rank % job->tensor_parallel_size);
    set_int(run, "dp_size", job->data_parallel_size);
    set_int(run, "start_layer", start);
    set_int(run, "end_layer", end);
    set_truth(run, "is_first_rank", stage == 0);
    set_truth(run, "is_last_rank", stage == job->pipeline_parallel_size - 1);
    set_int(run, "max_num_seqs", job->max_num_seqs);
    set_int(run, "max_num_batched_tokens", job->max_num_batched_tokens);
    set_int(run, "max_model_len", run->figures.max_model_len);
    set_drafts(run);
    set_truth(run, "enable_lora", job->enable_lora);
    set_truth(run, "takes_lora_pointers", true); /* lora/ops/triton_ops/utils.py: created once, by the profile run */
    set_value(run, "lora_pointers", (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)});
    set_int(run, "max_loras", job->max_loras);
    set_int(run, "max_lora_rank", job->max_lora_rank);
    set_int(run, "capability", run->device.capability);
    set_int(run, "cache_block_size", job->block_size);
    set_truth(run, "has_fp8_cache", tide_serve_has_fp8_cache(job));
    run->weights = tide_serve_weights_of(run);
    set_text(run, "weight_format", run->weights.format);
    set_value(run, "language_format", *tide_model_setting(&run->model, "weight_format"));
    set_text(run, "tower_format", run->weights.tower_format);
    set_int(run, "group_size", run->weights.group_size);
    set_int(run, "values_per_int32", 32 / run->weights.bits);
    set_truth(run, "keeps_gates", run->weights.keeps_gates);
    set_truth(run, "has_cache_scales", run->weights.has_cache_scales);
    bool is_alone = job->tensor_parallel_size * job->pipeline_parallel_size * job->data_parallel_size == 1;
    bool is_imported = run->drafts.config && !run->drafts.is_head; /* before the model */
    set_truth(run, "imports_flashinfer", is_alone && !is_imported);
    set_value(run, "flashinfer", tide_none());
    set_value(run, "online_quantization", tide_none()); /* layers/quantization/online: created on import */
    set_value(run, "cutlass_workspace", tide_none()); /* v1/attention/backends/mla/cutlass_mla.py: created on import */
    set_value(run, "marlin_workspace", tide_none());  /* v1/worker/workspace.py: created once */
    set_truth(run, "is_compiled", !job->enforce_eager);
    set_truth(run, "attention_runs", false);  /* not in the profile run: there is no cache */
    set_truth(run, "captures_pieces", false); /* between which attention runs eagerly */
    set_media_limits(run);
    set_int(run, "multiprocessors", run->device.sms);
    set_truth(run, "supports_mm_inputs", supports_media(run));
    set_value(run, "composite_ties", composite_ties(run));
    set_value(run, "rope_by_thw", tide_none()); /* of the vision tower: cached by grid */
    set_truth(run, "enable_expert_parallel", job->enable_expert_parallel);
    set_value(run, "model_dtype", (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype});
    set_int(run, "pp_size", job->pipeline_parallel_size);
    set_value(run, "workspace", tide_none()); /* v1/worker/workspace.py */
    set_int(run, "workspace_bytes", 0);
    set_value(run, "rope_cache", tide_none()); /* kept in fp32 until it is first used */
    set_value(run, "capture_workspace", tide_none());
    set_value(run, "capture_output", tide_none());
    set_value(run, "rope_keys", (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)});
}

int64_t tide_serve_utilization_ppm(const tide_serve_run *run) {
    return run->job.gpu_memory_utilization / (TIDE_PICO / 1000000);
}

int64_t tide_serve_positions(const tide_serve_run *run) {
    int64_t derived = tide_serve_derived_length(run->job.config, NULL);
    return derived == TIDE_ENDLESS ? run->figures.max_model_len : derived;
}

tide_serve_device tide_serve_device_of(const tide_job *job, tide_arena *arena) {
    return (tide_serve_device){.name = tide_format(arena, "NVIDIA %s", job->gpu.title),
                               .total_bytes = job->device_bytes,
                               .used_bytes =
                                   job->context_mib ? (uint64_t)job->context_mib << 20 : job->gpu.context_bytes,
                               .capability = (int)job->capability,
                               .sms = job->gpu.sms};
}
