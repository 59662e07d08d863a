/* SPDX-License-Identifier: Apache-2.0 */
/* `vllm serve MODEL --option ...`: vllm/engine/arg_utils.py. */
#include <string.h>

#include "base/units.h"
#include "job/readers/server_command.h"
#include "job/readers/vllm.h"

/* The first word after `vllm serve` or the module of its server. */
static uint32_t find_vllm(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        if (i + 1 < l->count && tide_shell_runs(l->tokens[i], "vllm") && strcmp(l->tokens[i + 1], "serve") == 0)
            return i + 2;
        if (strcmp(l->tokens[i], "vllm.entrypoints.openai.api_server") == 0 ||
            strcmp(l->tokens[i], "vllm.entrypoints.api_server") == 0)
            return i + 1;
    }
    return l->count;
}

static void put_vllm(tide_arena *arena, tide_json *options, tide_text key, const char *text) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    value->text = tide_text_of(text);
    tide_vllm_put(arena, options, key, value);
}

static const tide_key_row vllm_command_rows[] = {KEY_HOLDS("config", tide_vllm_keys)};

static const tide_key_table vllm_command_keys = {
    .rows = vllm_command_rows, .count = TIDE_COUNT_OF(vllm_command_rows), .more = &tide_vllm_keys};

const tide_reader tide_vllm_command_reader = {
    .title = "a command line of vLLM", .keys = &vllm_command_keys, .precedence = 2, .settle = tide_vllm_settle};

static const char *const vllm_names[][2] = {{"-tp", "tensor_parallel_size"},   {"-pp", "pipeline_parallel_size"},
                                            {"-dp", "data_parallel_size"},     {"-q", "quantization"},
                                            {"-ep", "enable_expert_parallel"}, {"-O", "optimization_level"},
                                            {"-sc", "speculative_config"},     {"-cc", "compilation_config"},
                                            {"--model_id", "model"},           {NULL}};

const tide_server tide_vllm_server = {.reader = &tide_vllm_command_reader,
                                      .library = "vLLM",
                                      .images = "vllm-openai:",
                                      .marks = "vllm serve|vllm.entrypoints|vllm-openai",
                                      .model = "model",
                                      .image = "*vllm-openai*",
                                      .switches = "trust_remote_code|enable_auto_tool_choice|disable_log_requests|"
                                                  "disable_log_stats",
                                      .lists = "cudagraph_capture_sizes|cuda_graph_sizes",
                                      .names = vllm_names,
                                      .find = find_vllm,
                                      .put = put_vllm};
