/* SPDX-License-Identifier: Apache-2.0 */
/* `python -m sglang.launch_server ...`, `sglang serve ...`, and the YAML file of --config: srt/arg_groups/fields of
 * SGLang. */
#include "job/readers/sglang.h"

#include <string.h>

#include "base/units.h"
#include "job/readers/server_command.h"

static const tide_key_row sglang_rows[] = {
    KEY_SAYS("model_path|model", model, ""),
    KEY_SETS("dtype", dtype, "half=fp16|float=fp32"),
    KEY_SETS("mem_fraction_static", mem_fraction_static, ""),
    KEY_SETS("max_total_tokens", max_total_tokens, ""),
    KEY_SETS("max_running_requests", max_running_requests, ""),
    KEY_SETS("chunked_prefill_size", chunked_prefill_size, ""),
    KEY_SETS("cuda_graph_max_bs_decode|cuda_graph_max_bs", cuda_graph_max_bs_decode, ""),
    KEY_SETS("disable_cuda_graph", disable_cuda_graph, ""),
    KEY_SETS("page_size", page_size, ""),
    KEY_SETS("context_length", context_length, ""),
    KEY_SETS("tp_size|tensor_parallel_size", tp_size, ""),
    KEY_MATTERS("kv_cache_dtype", "changes the dtype of the cache", "auto"),
    KEY_MATTERS("quantization", "stores weights in another dtype", ""),
    KEY_MATTERS("*torchao_config", "stores weights in another dtype", ""),
    KEY_MATTERS("json_model_override_args", "changes the model's configuration: use overrides", "{}"),
    KEY_MATTERS("load_format", "loads in another way", "auto|safetensors|pt|dummy"),
    KEY_MATTERS("pp_size|pipeline_parallel_size|dp_size|data_parallel_size|attn_*_size|moe_*_size|dcp_size",
                "shards the model differently", "1"),
    KEY_MATTERS("ep_size|expert_parallel_size|ep|enable_eplb|ep_num_redundant_experts", "cuts experts over ranks",
                "1|0"),
    KEY_MATTERS("enable_dp_attention|enable_dp_lm_head|enable_prefill_cp", "shards attention differently", ""),
    KEY_MATTERS("speculative_*", "drafts tokens", ""),
    KEY_MATTERS("enable_lora|lora_*|max_lora*|max_loaded_loras", "keeps slots for adapters", ""),
    KEY_MATTERS("cpu_offload_gb|offload_*|ple_offload*|kt_*", "keeps weights on the host", "0|-1"),
    KEY_MATTERS("disaggregation_mode|encoder_only|language_only|language_model_only", "runs a part of the model",
                "null"),
    KEY_MATTERS("*attention_backend", "replaces attention, and may ask for pages of its own", ""),
    KEY_MATTERS("cuda_graph_*|disable_*_cuda_graph*|disable_cuda_graph_padding",
                "changes what CUDA graphs are captured", ""),
    KEY_MATTERS("enable_torch_compile", "compiles the model", ""),
    KEY_MATTERS("enable_memory_saver|enable_symm_mem|enable_unified_memory|enable_kv_cache_sharding|enable_hisparse",
                "sizes the pool differently", ""),
    KEY_MATTERS("swa_full_tokens_ratio|disable_hybrid_swa_memory|max_mamba_cache_size|mamba_*",
                "splits the pool between kinds of layers", ""),
    KEY_MATTERS("moe_a2a_backend|moe_runner_backend|deepep_mode", "replaces kernels of experts", "none|auto"),
    KEY_MATTERS("is_embedding|enable_multimodal", "runs the model for other purposes", ""),
    KEY_MATTERS("max_prefill_tokens", "sizes batches differently", "16384"),
    KEY_NEUTRAL(
        "host|port|nccl_port|dist_*|nnodes|node_rank|api_key|admin_api_key|served_model_name|trust_remote_code"),
    KEY_NEUTRAL("tokenizer*|skip_tokenizer_init|revision|download_dir|chat_template|completion_template|random_seed"),
    KEY_NEUTRAL("*log*|*metrics*|enable_trace|trace_*|otlp_*|*watchdog_timeout|show_time_cost|crash_dump_folder"),
    KEY_NEUTRAL("schedule_policy|schedule_conservativeness|enable_priority_scheduling|stream_interval|sampling_*"),
    KEY_NEUTRAL("reasoning_parser|tool_call_parser|grammar_backend|constrained_json_*|disable_radix_cache"),
    KEY_NEUTRAL("disable_overlap_schedule|num_continuous_decode_steps|enable_mixed_chunk|disable_custom_all_reduce"),
    KEY_NEUTRAL("skip_server_warmup|warmups|ssl_*|enable_cache_report|enable_hierarchical_cache|hicache_*"),
    KEY_NEUTRAL(
        "model_loader_extra_config|model_impl|device|base_gpu_id|gpu_id_step|enable_p2p_check|max_queued_requests"),
};

static const tide_key_table sglang_keys = {.rows = sglang_rows, .count = TIDE_COUNT_OF(sglang_rows)};

static void settle_sglang(tide_claims *c) {
    tide_imply(c, TIDE_SET_mode, "serve");
    tide_imply(c, TIDE_SET_engine, "sglang");
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
}

/* Names with `-` or `_`. */
static void put_sglang(tide_arena *arena, tide_json *options, tide_text name, const char *text) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    char *key = tide_text_copy(arena, name);
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    value->text = tide_text_of(text);
    tide_json_put(arena, options, tide_text_of(key), value);
}

/* ---- the YAML file ---- */

static bool is_sglang(const tide_json *root) {
    static const char *const marks[] = {"mem-fraction-static",  "mem_fraction_static",  "chunked-prefill-size",
                                        "chunked_prefill_size", "max-running-requests", "max_running_requests"};
    for (size_t i = 0; i < TIDE_COUNT_OF(marks); i++)
        if (tide_json_at(root, marks[i])) return true;
    return false;
}

static void read_sglang(tide_reading *r, tide_json *root) {
    tide_json *options = tide_json_new(r->arena, TIDE_JSON_OBJECT);
    for (const tide_json *entry = root->first; entry; entry = entry->next) {
        const char *text = entry->kind == TIDE_JSON_OBJECT ? NULL : tide_argument_value(r->arena, entry);
        if (entry->kind != TIDE_JSON_NULL)
            put_sglang(r->arena, options, entry->key, text ? text : tide_argument_json_text(r->arena, entry));
    }
    tide_claims_add(r->claims, &tide_sglang_reader, options, r->name, r->place);
}

const tide_reader tide_sglang_reader = {.title = "an SGLang configuration",
                                        .recognises = is_sglang,
                                        .read = read_sglang,
                                        .keys = &sglang_keys,
                                        .trains = true,
                                        .precedence = 1,
                                        .settle = settle_sglang};

/* ---- the command ---- */

static uint32_t find_sglang(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        if (strcmp(l->tokens[i], "sglang.launch_server") == 0) return i + 1;
        if (i + 1 < l->count && tide_shell_runs(l->tokens[i], "sglang") && strcmp(l->tokens[i + 1], "serve") == 0)
            return i + 2;
    }
    return l->count;
}

static const tide_key_row sglang_command_rows[] = {KEY_HOLDS("config", sglang_keys)};

static const tide_key_table sglang_command_keys = {
    .rows = sglang_command_rows, .count = TIDE_COUNT_OF(sglang_command_rows), .more = &sglang_keys};

const tide_reader tide_sglang_command_reader = {
    .title = "a command line of SGLang", .keys = &sglang_command_keys, .precedence = 2, .settle = settle_sglang};

static const char *const sglang_names[][2] = {{"--tp", "tp_size"}, {"--dp", "dp_size"}, {"--pp", "pp_size"}, {NULL}};

const tide_server tide_sglang_server = {.reader = &tide_sglang_command_reader,
                                        .library = "SGLang",
                                        .images = "sglang:",
                                        .marks = "sglang.launch_server|sglang serve|sglang:server",
                                        .model = "model_path",
                                        .image = "*sglang:server*",
                                        .switches = "trust_remote_code|enable_torch_compile|enable_metrics|"
                                                    "enable_dp_attention|disable_radix_cache|skip_server_warmup|"
                                                    "enable_mixed_chunk|log_requests|enable_lora|is_embedding",
                                        .names = sglang_names,
                                        .find = find_sglang,
                                        .put = put_sglang};
