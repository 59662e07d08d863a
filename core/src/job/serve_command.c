/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a server for the settings of a job: the inverse of readers/vllm_command.c; and that of
 * llama-server. */
#include <string.h>

#include "base/units.h"
#include "job/settings.h"

/* Settings of the group that are not flags of the engine. */
static bool is_flag(tide_setting_id id) {
    static const tide_setting_id others[] = {
        TIDE_SET_engine,   TIDE_SET_input_len, TIDE_SET_output_len,  TIDE_SET_request_lengths, TIDE_SET_max_concurrency,
        TIDE_SET_replicas, TIDE_SET_usage,     TIDE_SET_first_start, TIDE_SET_context_mib,     TIDE_SET_worker_rank};
    for (size_t i = 0; i < TIDE_COUNT_OF(others); i++)
        if (others[i] == id) return false;
    return id == TIDE_SET_dtype || tide_setting_is_of_server(id);
}

/* The engine's names of dtypes. */
static const char *type_named(const char *dtype) {
    return strcmp(dtype, "bf16") == 0 ? "bfloat16" : strcmp(dtype, "fp16") == 0 ? "float16" : "float32";
}

/* [1, 2, 4] and 1,2,4 as words. */
static const char *sizes_as_words(const char *list, tide_arena *arena) {
    char *words = tide_text_copy(arena, tide_text_of(list)), *to = words;
    for (const char *from = words; *from; from++) {
        bool is_digit = *from >= '0' && *from <= '9';
        if (is_digit || (to > words && to[-1] != ' ')) *to++ = is_digit ? *from : ' ';
    }
    if (to > words && to[-1] == ' ') to--;
    *to = 0;
    return words;
}

/* --max-model-len 8192; a switch has no value, and --no-... disables it. */
static const char *flag_of(const tide_job *job, tide_setting_id id, tide_arena *arena) {
    const tide_setting *setting = &tide_settings[id];
    const char *value = job->values[id];
    bool is_switch = setting->type == TIDE_SETTING_BOOL, is_off = is_switch && strcmp(value, "false") == 0;
    bool is_text = strpbrk(value, " {\"") != NULL;
    const char *named = id == TIDE_SET_draft                    ? "spec_model"
                        : id == TIDE_SET_num_speculative_tokens ? "spec_tokens"
                                                                : setting->name;
    char *name = tide_text_copy(arena, tide_text_of(named));
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
    if (id == TIDE_SET_dtype) value = type_named(value);
    if (id == TIDE_SET_draft) value = tide_catalogue_hub_name(arena, value);
    if (id == TIDE_SET_cudagraph_mode) return tide_format(arena, " -cc.%s=%s", setting->name, value);
    if (id == TIDE_SET_cudagraph_capture_sizes) value = sizes_as_words(value, arena);
    if (id == TIDE_SET_cudagraph_capture_sizes) is_text = false;
    if (is_switch) return tide_format(arena, " --%s%s", is_off ? "no-" : "", name);
    return tide_format(arena, is_text ? " --%s '%s'" : " --%s %s", name, value);
}

static const char *model_of(const tide_job *job) {
    static const char hub[] = "huggingface.co/";
    const char *source = job->model_source ? job->model_source : "";
    return strncmp(source, hub, sizeof hub - 1) == 0 ? source + sizeof hub - 1 : "MODEL";
}

/* common/arg.cpp of llama.cpp; a disabled switch has no flag, or one of its own. */
static const char *llama_flag_of(const tide_job *job, tide_setting_id id, tide_arena *arena) {
    static const struct {
        tide_setting_id id;
        const char *flag, *off;
    } flags[] = {{TIDE_SET_n_gpu_layers, "--n-gpu-layers", NULL},
                 {TIDE_SET_ctx_size, "--ctx-size", NULL},
                 {TIDE_SET_n_parallel, "--parallel", NULL},
                 {TIDE_SET_kv_unified, "--kv-unified", " --no-kv-unified"},
                 {TIDE_SET_n_batch, "--batch-size", NULL},
                 {TIDE_SET_n_ubatch, "--ubatch-size", NULL},
                 {TIDE_SET_cache_type_k, "--cache-type-k", NULL},
                 {TIDE_SET_cache_type_v, "--cache-type-v", NULL},
                 {TIDE_SET_flash_attn, "--flash-attn", NULL},
                 {TIDE_SET_swa_full, "--swa-full", ""},
                 {TIDE_SET_no_kv_offload, "--no-kv-offload", ""},
                 {TIDE_SET_n_cpu_moe, "--n-cpu-moe", NULL},
                 {TIDE_SET_override_tensor, "--override-tensor", NULL}};
    for (size_t i = 0; i < TIDE_COUNT_OF(flags); i++) {
        if (flags[i].id != id) continue;
        if (!flags[i].off)
            return tide_format(arena, strpbrk(job->values[id], " |()*\\") ? " %s '%s'" : " %s %s", flags[i].flag,
                               job->values[id]);
        return strcmp(job->values[id], "true") == 0 ? tide_format(arena, " %s", flags[i].flag) : flags[i].off;
    }
    return "";
}

static const char *llama_command(const tide_job *job, tide_arena *arena) {
    const char *command = tide_format(arena, "llama-server --model %s",
                                      tide_json_at(job->config, "gguf") ? job->model_source : "MODEL.gguf");
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i];
        if (row->origin != TIDE_ORIGIN_DEFAULT && row->id < TIDE_SET_COUNT && *row->value)
            command = tide_format(arena, "%s%s", command, llama_flag_of(job, row->id, arena));
    }
    return command;
}

/* The configuration as Python code: model.init_continuous_batching(continuous_batching_config=...). */
static const char *transformers_command(const tide_job *job, tide_arena *arena) {
    const char *command = "ContinuousBatchingConfig(", *comma = "";
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i];
        if (row->origin == TIDE_ORIGIN_DEFAULT || row->id < TIDE_SET_page_size ||
            row->id > TIDE_SET_auto_switch_to_flash || !*row->value)
            continue;
        const char *value = strcmp(row->value, "true") == 0    ? "True"
                            : strcmp(row->value, "false") == 0 ? "False"
                                                               : row->value;
        command = tide_format(arena, "%s%s%s=%s", command, comma, tide_settings[row->id].name, value);
        comma = ", ";
    }
    return tide_format(arena, "%s)", command);
}

static const char *sglang_command(const tide_job *job, tide_arena *arena) {
    const char *command = tide_format(arena, "python -m sglang.launch_server --model-path %s", model_of(job));
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i];
        bool is_own = (row->id >= TIDE_SET_mem_fraction_static && row->id <= TIDE_SET_tp_size) ||
                      row->id == TIDE_SET_page_size || row->id == TIDE_SET_dtype;
        if (row->origin != TIDE_ORIGIN_DEFAULT && is_own && *row->value && strcmp(row->value, "false") != 0)
            command = tide_format(arena, "%s%s", command, flag_of(job, row->id, arena));
    }
    return command;
}

const char *tide_job_serve_command(const tide_job *job, tide_arena *arena) {
    const char *command = tide_format(arena, "vllm serve %s", model_of(job));
    if (job->engine == TIDE_engine_llama_cpp) return llama_command(job, arena);
    if (job->engine == TIDE_engine_sglang) return sglang_command(job, arena);
    if (job->engine == TIDE_engine_transformers) return transformers_command(job, arena);
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i];
        bool is_given = row->origin != TIDE_ORIGIN_DEFAULT && row->id < TIDE_SET_COUNT && *row->value;
        if (is_given && is_flag(row->id)) command = tide_format(arena, "%s%s", command, flag_of(job, row->id, arena));
    }
    return command;
}
