/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's configuration: vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py. Keys of its YAML file are the
 * names of the options. vllm_command.c finds them in command lines. */
#include "job/readers/vllm.h"

#include <string.h>

#include "base/units.h"

static const tide_key_row vllm_rows[] = {
    KEY_SAYS("model", model, ""),
    KEY_SAYS("model_tag", model, ""),
    KEY_SETS("dtype", dtype, "half=fp16|float=fp32"),
    KEY_SETS("gpu_memory_utilization|device_memory_utilization", gpu_memory_utilization, ""),
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
    KEY_SETS("enable_chunked_prefill", enable_chunked_prefill, ""),
    KEY_SETS("disable_hybrid_kv_cache_manager", disable_hybrid_kv_cache_manager, ""),
    KEY_SETS("num_gpu_blocks_override", num_gpu_blocks_override, ""),
    KEY_SETS("kv_cache_memory_bytes", kv_cache_memory_bytes, ""),
    KEY_SETS("enable_lora", enable_lora, ""),
    KEY_SETS("max_loras", max_loras, ""),
    KEY_SETS("max_lora_rank", max_lora_rank, ""),
    KEY_SETS("speculative_config", speculative_config, ""),
    KEY_SETS("spec_method", spec_method, ""),
    KEY_SETS("spec_model", draft, ""),
    KEY_SETS("spec_tokens", num_speculative_tokens, ""),
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
    KEY_SETS("language_model_only", language_model_only, ""),
    KEY_SETS("skip_mm_profiling", skip_mm_profiling, ""),
    KEY_SETS("performance_mode", performance_mode, ""),
    KEY_MATTERS("disable_sliding_window", "stores no more than a window", ""),
    KEY_MATTERS("mamba_*_dtype", "changes the dtype of states", "auto"),
    KEY_MATTERS("max_num_scheduled_tokens|long_prefill_token_threshold_adaptive", "sizes batches differently", ""),
    KEY_MATTERS("enable_batch_sharded_sampling", "shards the sampler's rows over ranks", ""),
    KEY_MATTERS("hf_overrides|rope_*|model_class_overrides", "changes the model's configuration: use overrides", "{}"),
    KEY_MATTERS("compilation_config.*|optimization_level|*kernel_config*|ir_op_priority", "changes what is compiled",
                ""),
    KEY_MATTERS("attention_backend|*attention_config*|linear_backend|moe_backend|mamba_backend|gdn_prefill_backend|"
                "kda_*_backend|sparse_indexer_topk_backend|mamba_ssu_algorithm|use_replayssm",
                "replaces kernels", "auto"),
    KEY_MATTERS("kv_cache_dtype_skip_layers", "stores the cache of some layers in another dtype", ""),
    KEY_MATTERS("mamba_block_size|mamba_cache_mode|enable_mamba_*", "lays out states differently", "auto"),
    KEY_MATTERS("mm_processor_kwargs", "resizes images", "{}"),
    KEY_MATTERS("mm_encoder_*|mm_processor_device|mm_device_do_normalize|video_pruning_*|enable_mm_embeds",
                "changes what the tower runs", "weights"),
    KEY_MATTERS("mm_ipc_gpu_memory_gb", "keeps memory for media on the GPU", "0"),
    KEY_MATTERS("enable_prompt_embeds", "keeps a buffer of embeddings", ""),
    KEY_REFUSED("*_context_parallel_size", "cuts sequences over ranks", "1"),
    KEY_MATTERS("dcp_q_replicate|dcp_comm_backend|enable_hc_sp", "cuts sequences over ranks", ""),
    KEY_MATTERS("*eplb*|*elastic_ep*|enable_ep_weight_filter|expert_placement_strategy", "places experts differently",
                "linear"),
    KEY_MATTERS("*dbo*|ubatch_size", "splits batches in two", "0"),
    KEY_MATTERS("all2all_backend", "replaces the exchange between experts", ""),
    KEY_MATTERS("disable_custom_all_reduce", "leaves out buffers of the all-reduce", ""),
    KEY_MATTERS("*kv_transfer_config*|*ec_transfer_config*|*ec_manager_config*|*aux_output_config*",
                "keeps buffers for transfers of the cache", ""),
    KEY_MATTERS("kv_sharing_fast_prefill|swa_bounded_replay", "changes the forward pass", ""),
    KEY_MATTERS("kv_offloading_*", "keeps the cache on the host", "native"),
    KEY_MATTERS("offload_*|cpu_offload_params", "keeps other weights on the host", "auto|0"),
    KEY_MATTERS("quantization_config*", "stores weights in another dtype", ""),
    KEY_MATTERS("model_impl", "replaces the model's layers", "auto|vllm"),
    KEY_MATTERS("runner|task|convert|*pooler_config*", "runs the model for other purposes", "auto|generate"),
    KEY_MATTERS("fully_sharded_loras", "cuts adapters over ranks", ""),
    KEY_MATTERS("lora_dtype|lora_target_modules|enable_tower_connector_lora|default_mm_loras|enable_m*_lora*|"
                "max_lora_cls_labels|specialize_active_lora",
                "makes different slots for adapters", "auto"),
    KEY_MATTERS("load_format", "loads in another way",
                "auto|safetensors|pt|hf|dummy|fastsafetensors|runai_streamer|npcache"),
    KEY_MATTERS("additional_config|engram_config|diffusion_config", "is for platforms' own", "{}"),
    KEY_MATTERS("worker_cls|worker_extension_cls|*weight_transfer_config*|scheduler_cls", "runs code of another's",
                "auto"),
    KEY_MATTERS("watermark*|return_sampling_mask|enable_return_routed_experts|use_fp64_gumbel",
                "keeps more of the sampler's memory", "{}"),
    KEY_MATTERS("enable_cumem_allocator|sleep_*|enable_nccl_comm_suspend", "uses another allocator", ""),
    KEY_MATTERS("nnodes", "spreads ranks over machines", "1"),
    KEY_NEUTRAL("lora_modules|max_cpu_loras|swap_space|served_model_name|model_name|device_ids"),
    KEY_NEUTRAL("host|port|uds|grpc*|api_key|api_server_count|headless|*data_parallel_*|master_*|node_rank|dp_*"),
    KEY_NEUTRAL(
        "trust_re*|hf_token|hf_config_path|config_format|revision|code_revision|tokenizer*|skip_tokenizer_init"),
    KEY_NEUTRAL("download_dir|model_loader_extra_config|safetensors_*|pt_load_map_location|use_tqdm_on_load|"
                "ignore_patterns|max_parallel_loading_workers|allow_deprecated_quantization"),
    KEY_NEUTRAL("seed|chat_template*|default_chat_template_kwargs|response_role|*generation_config|logits_processors"),
    KEY_NEUTRAL("enable_auto_tool_choice|*tool_*|*tools_*|*reasoning*|structured_outputs_config*|guided_decoding_*"),
    KEY_NEUTRAL("max_logprobs|logprobs_mode|io_processor_plugin|interleave_mm_strings|cohere_format|anthropic_*"),
    KEY_NEUTRAL(
        "distributed_*|cpu_distributed_*|disable_nccl_for_dp_synchronization|ray_workers_use_nsight|numa_bind*"),
    KEY_NEUTRAL("scheduling_policy|scheduler_reserve_full_isl|long_prefill_token_threshold|max_*_partial_prefills|"
                "max_num_partial_prefills|max_num_active_seqs|max_num_queued_*|prefill_schedule_interval|"
                "stream_interval|disable_chunked_mm_input|disable_cascade_attn"),
    KEY_NEUTRAL(
        "prefix_*|mm_processor_cache_*|mm_shm_cache_*|mm_hasher_algorithm|mm_tensor_ipc|enable_shm_tensor_arena"),
    KEY_NEUTRAL("*media_io_kwargs|allowed_*|allow_credentials|ssl_*|enable_ssl_refresh|root_path|middleware"),
    KEY_NEUTRAL(
        "uvicorn_log_level|*log_*|*logging*|*_metrics*|*histogram*|otlp_*|collect_detailed_traces|jit_monitor_*|"
        "*trace_replay|*profiler_config*|*nvtx*|enable_*_details|kv_events_config*|shutdown_timeout"),
    KEY_NEUTRAL("enable_request_id_headers|disable_fastapi_docs|enable_offline_docs|disable_frontend_multiprocessing|"
                "disable_uvicorn_access_log|return_tokens_as_token_ids|enable_force_include_usage|tokens_only"),
    KEY_NEUTRAL("enable_server_load_tracking|enable_tokenizer_info_endpoint|sse_keep_alive_interval|fingerprint_*|"
                "trust_request_*|enable_flash_late_interaction|enable_scale_out|renderer_num_workers"),
    KEY_NEUTRAL("*fault_tolerance*|fail_on_environ_validation|enable_flashinfer_autotune|cp_kv_cache_interleave_size|"
                "dcp_kv_cache_interleave_size|mamba_cache_philox_rounds|replayssm_buffer_len|help"),
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
    value->text = tide_text_of(text);
    tide_json_put(arena, options, tide_text_of(key), value); /* the last one applies */
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
