/* An engine's settings from the job's, which are rows of job/settings/serve.def. */
#include "serve/settings.h"

#include "base/decimal.h"

static bool read_object(const tide_json **object, const tide_job *job, tide_setting_id id, const char *name,
                        tide_arena *arena, tide_diagnostics *diags) {
    const char *place = tide_format(arena, "/settings/%s", name);
    *object = NULL;
    if (!tide_job_sets(job, id)) return true;
    *object = tide_json_parse(arena, tide_text_of(job->values[id]), place, diags);
    if (!*object) return false;
    return (*object)->kind == TIDE_JSON_OBJECT ||
           tide_error(diags, TIDE_ERR_FIELD_TYPE, place,
                      tide_format(arena, "is %s; must be a JSON object", tide_json_kind_name(*object)), NULL);
}

static bool read_drafts(tide_serve_settings *s, const tide_json *config, tide_diagnostics *diags) {
    const tide_json *count = tide_json_at(config, "num_speculative_tokens"), *method = tide_json_at(config, "method");
    if (count) s->num_speculative_tokens = count->is_integer ? count->integer : -1;
    s->speculates_ngrams = tide_json_is(method, TIDE_JSON_STRING) && tide_text_is(method->text, "ngram");
    return (s->num_speculative_tokens >= 0 && s->num_speculative_tokens <= 1024) ||
           tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/speculative_config",
                      "num_speculative_tokens must be a whole number from 0 to 1024", NULL);
}

bool tide_serve_settings_of(tide_serve_settings *settings, const tide_job *job, tide_arena *arena,
                            tide_diagnostics *diags) {
    const tide_json *drafts;
    *settings = (tide_serve_settings){
        .config = job->config,
        .dtype = job->dtype.is_set ? job->values[TIDE_SET_dtype] : NULL,
        .kv_cache_dtype = job->kv_cache_dtype == TIDE_kv_cache_dtype_auto ? NULL : job->values[TIDE_SET_kv_cache_dtype],
        .quantization = job->quantization == TIDE_quantization_none ? NULL : job->values[TIDE_SET_quantization],
        .utilization_ppm = job->gpu_memory_utilization / (TIDE_PICO / 1000000),
        .max_model_len = job->max_model_len,
        .max_num_seqs = job->max_num_seqs,
        .max_num_batched_tokens = job->max_num_batched_tokens,
        .block_size = job->block_size,
        .tensor_parallel_size = job->tensor_parallel_size,
        .pipeline_parallel_size = job->pipeline_parallel_size,
        .data_parallel_size = job->data_parallel_size,
        .rank = job->worker_rank,
        .max_loras = job->max_loras,
        .max_lora_rank = job->max_lora_rank,
        .num_gpu_blocks_override = job->num_gpu_blocks_override,
        .kv_cache_memory_bytes = job->kv_cache_memory_bytes,
        .num_speculative_tokens = job->num_speculative_tokens,
        .enforce_eager = job->enforce_eager,
        .first_start = job->first_start,
        .is_offline = job->usage == TIDE_usage_llm,
        .enable_expert_parallel = job->enable_expert_parallel,
        .no_async_scheduling = !job->async_scheduling,
        .disable_hybrid_kv_cache_manager = job->disable_hybrid_kv_cache_manager,
        .no_prefix_caching = !job->enable_prefix_caching,
        .enable_lora = job->enable_lora,
        .enable_sleep_mode = job->enable_sleep_mode,
        .cpu_offload_gib = (job->cpu_offload_gb + TIDE_PICO - 1) / TIDE_PICO};
    return read_object(&settings->limit_mm_per_prompt, job, TIDE_SET_limit_mm_per_prompt, "limit_mm_per_prompt", arena,
                       diags) &&
           read_object(&drafts, job, TIDE_SET_speculative_config, "speculative_config", arena, diags) &&
           read_drafts(settings, drafts, diags);
}

tide_serve_device tide_serve_device_of(const tide_job *job, tide_arena *arena) {
    return (tide_serve_device){.name = tide_format(arena, "NVIDIA %s", job->gpu.title),
                               .total_bytes = job->device_bytes,
                               .used_bytes =
                                   job->context_mib ? (uint64_t)job->context_mib << 20 : job->gpu.context_bytes,
                               .capability = (int)job->capability,
                               .sms = job->gpu.sms};
}
