/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's configuration: vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py. Its YAML file has the names
 * of the options. vllm_command.c finds them in command lines. */
#include "job/readers/vllm.h"

#include <string.h>

#include "base/units.h"

static const tide_key_row vllm_rows[] = {
    KEY_SAYS("model", model, ""),
    KEY_SAYS("model_tag", model, ""),
    KEY_SETS("dtype", dtype, "half=fp16|float=fp32"),
    KEY_SETS("gpu_memory_utilization", gpu_memory_utilization, ""),
    KEY_SETS("max_model_len", max_model_len, ""),
    KEY_SETS("max_num_seqs", max_num_seqs, ""),
    KEY_SETS("max_num_batched_tokens", max_num_batched_tokens, ""),
    KEY_SETS("tensor_parallel_size", tensor_parallel_size, ""),
    KEY_SETS("pipeline_parallel_size", pipeline_parallel_size, ""),
    KEY_SETS("data_parallel_size", data_parallel_size, ""),
    KEY_SETS("enable_expert_parallel", enable_expert_parallel, ""),
    KEY_SETS("kv_cache_dtype", kv_cache_dtype, ""),
    KEY_SETS("block_size", block_size, ""),
    KEY_SETS("quantization", quantization, ""),
    KEY_SETS("enforce_eager", enforce_eager, ""),
    KEY_SETS("async_scheduling", async_scheduling, ""),
    KEY_SETS("enable_prefix_caching", enable_prefix_caching, ""),
    KEY_SETS("disable_hybrid_kv_cache_manager", disable_hybrid_kv_cache_manager, ""),
    KEY_SETS("num_gpu_blocks_override", num_gpu_blocks_override, ""),
    KEY_SETS("kv_cache_memory_bytes", kv_cache_memory_bytes, ""),
    KEY_SETS("enable_lora", enable_lora, ""),
    KEY_SETS("max_loras", max_loras, ""),
    KEY_SETS("max_lora_rank", max_lora_rank, ""),
    KEY_SETS("speculative_config", speculative_config, ""),
    KEY_SETS("cudagraph_capture_sizes", cudagraph_capture_sizes, ""),
    KEY_SETS("cuda_graph_sizes", cudagraph_capture_sizes, ""),
    KEY_SETS("max_cudagraph_capture_size", max_cudagraph_capture_size, ""),
    KEY_SETS("compilation_config", compilation_config, ""),
    KEY_SETS("compilation_config.cudagraph_mode", cudagraph_mode, ""),
    KEY_SETS("compilation_config.cudagraph_capture_sizes", cudagraph_capture_sizes, ""),
    KEY_SETS("compilation_config.max_cudagraph_capture_size", max_cudagraph_capture_size, ""),
    KEY_SETS("enable_sleep_mode", enable_sleep_mode, ""),
    KEY_SETS("cpu_offload_gb", cpu_offload_gb, ""),
    KEY_SETS("limit_mm_per_prompt", limit_mm_per_prompt, ""),
    KEY_MATTERS("no_enable_chunked_prefill", "sizes batches in another way", ""),
    KEY_MATTERS("hf_overrides", "changes the model's configuration: say it in overrides", "{}"),
    KEY_MATTERS("rope_*", "changes the model's configuration: say it in overrides", ""),
    KEY_MATTERS("compilation_config.*", "changes what is compiled", ""),
    KEY_MATTERS("optimization_level", "changes what is compiled", ""),
    KEY_MATTERS("attention_backend", "replaces attention", "auto"),
    KEY_MATTERS("attention_config*", "replaces attention", ""),
    KEY_MATTERS("mamba_*_dtype", "changes the type of states", "auto"),
    KEY_MATTERS("mm_processor_kwargs", "resizes images", ""),
    KEY_MATTERS("skip_mm_profiling", "leaves images out of the profile run", ""),
    KEY_MATTERS("language_model_only", "leaves the vision tower out", ""),
    KEY_MATTERS("*_context_parallel_size", "cuts sequences over ranks", "1"),
    KEY_MATTERS("enable_eplb", "keeps copies of experts", ""),
    KEY_MATTERS("eplb_config*", "keeps copies of experts", ""),
    KEY_MATTERS("enable_dbo", "splits batches in two", ""),
    KEY_MATTERS("all2all_backend", "replaces the exchange between experts", ""),
    KEY_MATTERS("disable_custom_all_reduce", "leaves out buffers of the all-reduce", ""),
    KEY_MATTERS("kv_transfer_config*", "keeps buffers for transfers of the cache", ""),
    KEY_MATTERS("kv_sharing_fast_prefill", "changes the forward pass", ""),
    KEY_MATTERS("kv_offloading_*", "keeps the cache on the host", ""),
    KEY_MATTERS("model_impl", "replaces the model's layers", "auto|vllm"),
    KEY_MATTERS("runner", "runs the model for other purposes", "auto|generate"),
    KEY_MATTERS("task", "runs the model for other purposes", "auto|generate"),
    KEY_MATTERS("convert", "runs the model for other purposes", "auto"),
    KEY_MATTERS("fully_sharded_loras", "cuts adapters over ranks", ""),
    KEY_MATTERS("load_format", "loads in another way", "auto|safetensors|pt|hf|fastsafetensors|runai_streamer"),
    KEY_MATTERS("additional_config", "is for platforms' own", "{}"),
    KEY_MATTERS("max_logprobs", "keeps more logits", "20"),
    KEY_NEUTRAL("lora_modules"),
    KEY_NEUTRAL("max_cpu_loras"),
    KEY_NEUTRAL("swap_space"),
    KEY_NEUTRAL("enable_chunked_prefill"),
    KEY_NEUTRAL("served_model_name"),
    KEY_NEUTRAL("host"),
    KEY_NEUTRAL("port"),
    KEY_NEUTRAL("uds"),
    KEY_NEUTRAL("api_key"),
    KEY_NEUTRAL("api_server_count"),
    KEY_NEUTRAL("headless"),
    KEY_NEUTRAL("trust_remote_code"),
    KEY_NEUTRAL("hf_token"),
    KEY_NEUTRAL("hf_config_path"),
    KEY_NEUTRAL("config_format"),
    KEY_NEUTRAL("revision"),
    KEY_NEUTRAL("code_revision"),
    KEY_NEUTRAL("tokenizer*"),
    KEY_NEUTRAL("skip_tokenizer_init"),
    KEY_NEUTRAL("download_dir"),
    KEY_NEUTRAL("model_loader_extra_config"),
    KEY_NEUTRAL("safetensors_load_strategy"),
    KEY_NEUTRAL("seed"),
    KEY_NEUTRAL("chat_template*"),
    KEY_NEUTRAL("default_chat_template_kwargs"),
    KEY_NEUTRAL("response_role"),
    KEY_NEUTRAL("generation_config"),
    KEY_NEUTRAL("override_generation_config"),
    KEY_NEUTRAL("enable_auto_tool_choice"),
    KEY_NEUTRAL("tool_*"),
    KEY_NEUTRAL("*reasoning*"),
    KEY_NEUTRAL("structured_outputs_config*"),
    KEY_NEUTRAL("guided_decoding_*"),
    KEY_NEUTRAL("logits_processors"),
    KEY_NEUTRAL("distributed_*"),
    KEY_NEUTRAL("data_parallel_*"),
    KEY_NEUTRAL("master_*"),
    KEY_NEUTRAL("nnodes"),
    KEY_NEUTRAL("node_rank"),
    KEY_NEUTRAL("max_parallel_loading_workers"),
    KEY_NEUTRAL("ray_workers_use_nsight"),
    KEY_NEUTRAL("scheduling_policy"),
    KEY_NEUTRAL("long_prefill_token_threshold"),
    KEY_NEUTRAL("max_num_partial_prefills"),
    KEY_NEUTRAL("max_long_partial_prefills"),
    KEY_NEUTRAL("prefix_caching_hash_algo"),
    KEY_NEUTRAL("mm_processor_cache_*"),
    KEY_NEUTRAL("media_io_kwargs"),
    KEY_NEUTRAL("allowed_*"),
    KEY_NEUTRAL("allow_credentials"),
    KEY_NEUTRAL("ssl_*"),
    KEY_NEUTRAL("enable_ssl_refresh"),
    KEY_NEUTRAL("root_path"),
    KEY_NEUTRAL("middleware"),
    KEY_NEUTRAL("uvicorn_log_level"),
    KEY_NEUTRAL("*log_*"),
    KEY_NEUTRAL("enable_request_id_headers"),
    KEY_NEUTRAL("disable_fastapi_docs"),
    KEY_NEUTRAL("disable_frontend_multiprocessing"),
    KEY_NEUTRAL("return_tokens_as_token_ids"),
    KEY_NEUTRAL("enable_*_details"),
    KEY_NEUTRAL("enable_force_include_usage"),
    KEY_NEUTRAL("enable_server_load_tracking"),
    KEY_NEUTRAL("show_hidden_metrics_for_version"),
    KEY_NEUTRAL("otlp_traces_endpoint"),
    KEY_NEUTRAL("collect_detailed_traces"),
    KEY_NEUTRAL("kv_events_config*"),
};

const tide_key_table tide_vllm_keys = {.rows = vllm_rows, .count = TIDE_COUNT_OF(vllm_rows)};

/* ---- names and values as the table has them ---- */

/* "8k" is 8000, "8K" 8192: vllm/engine/arg_utils.py, human_readable_int. */
static const char *whole_number_text(tide_arena *arena, const char *text) {
    static const char units[] = "kmgKMG";
    static const int64_t sizes[] = {1000, 1000000, 1000000000, INT64_C(1) << 10, INT64_C(1) << 20, INT64_C(1) << 30};
    size_t length = strlen(text);
    const char *unit = length > 1 && length < 16 ? strchr(units, text[length - 1]) : NULL;
    int64_t pico;
    if (!unit || tide_decimal_read(&pico, (tide_text){text, length - 1}) != TIDE_DECIMAL_OK || pico < 0) return text;
    int64_t whole = pico / TIDE_PICO, part = pico % TIDE_PICO, size = sizes[unit - units];
    if (whole > (INT64_C(1) << 50) / size) return text;
    return tide_format(arena, "%lld",
                       (long long)(whole * size + (int64_t)((double)part / (double)TIDE_PICO * (double)size)));
}

void tide_vllm_put(tide_arena *arena, tide_json *options, tide_text name, const tide_json *given) {
    static const char *const counted[] = {"max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes"};
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    char *key = tide_text_copy(arena, name);
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    const char *text = given->kind == TIDE_JSON_OBJECT ? NULL : tide_argument_value(arena, given);
    if (!text) text = tide_argument_json_text(arena, given);
    for (size_t i = 0; i < TIDE_COUNT_OF(counted); i++)
        if (strcmp(key, counted[i]) == 0) text = whole_number_text(arena, text);
    bool is_off = strcmp(key, "enable_chunked_prefill") == 0 && tide_text_same(tide_text_of(text), TIDE_TEXT("false"));
    value->text = tide_text_of(is_off ? "true" : text);
    if (is_off) key = "no_enable_chunked_prefill";
    tide_json_put(arena, options, tide_text_of(key), value); /* the last holds */
}

/* ---- the YAML file ---- */

static bool is_vllm(const tide_json *root) {
    static const char *const marks[] = {"max_model_len",          "gpu_memory_utilization", "max_num_seqs",
                                        "max_num_batched_tokens", "enforce_eager",          "kv_cache_dtype",
                                        "served_model_name",      "limit_mm_per_prompt"};
    for (const tide_json *entry = root->first; entry; entry = entry->next)
        for (size_t i = 0; i < TIDE_COUNT_OF(marks); i++) {
            size_t at = 0;
            while (at < entry->key.length && marks[i][at] &&
                   (entry->key.at[at] == marks[i][at] || (entry->key.at[at] == '-' && marks[i][at] == '_')))
                at++;
            if (at == entry->key.length && !marks[i][at]) return true;
        }
    return false;
}

static void read_vllm(tide_reading *r, tide_json *root) {
    tide_json *options = tide_json_new(r->arena, TIDE_JSON_OBJECT);
    for (const tide_json *entry = root->first; entry; entry = entry->next)
        if (entry->kind != TIDE_JSON_NULL) tide_vllm_put(r->arena, options, entry->key, entry);
    tide_claims_add(r->claims, &tide_vllm_reader, options, r->name, r->place);
}

void tide_vllm_settle(tide_claims *c) {
    tide_imply(c, TIDE_SET_mode, "serve");
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
}

const tide_reader tide_vllm_reader = {.title = "a vLLM configuration",
                                      .recognises = is_vllm,
                                      .read = read_vllm,
                                      .keys = &tide_vllm_keys,
                                      .trains = true,
                                      .precedence = 1,
                                      .settle = tide_vllm_settle};
