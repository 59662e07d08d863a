/* SPDX-License-Identifier: Apache-2.0 */
/* `llama-server -m FILE ...`, llama-cli and llama-bench: common/arg.cpp and tools/llama-bench of llama.cpp. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/server_command.h"

static const char *const llama_programs[] = {"llama-server", "llama-cli", "llama-bench", "llama-completion",
                                             "llama-mtmd-cli"};

static const char *program_of(const char *token) {
    for (size_t i = 0; i < TIDE_COUNT_OF(llama_programs); i++)
        if (tide_shell_runs(token, llama_programs[i])) return llama_programs[i];
    return NULL;
}

static uint32_t find_llama(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++)
        if (program_of(l->tokens[i])) return i + 1;
    return l->count;
}

static void put_option(tide_arena *arena, tide_json *options, tide_text key, const char *text) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    value->text = tide_text_of(text);
    tide_json_put(arena, options, key, value);
}

/* Some options have other meanings in llama-bench: -p is the length of its prompt. */
static void begin_llama(tide_arena *arena, tide_json *options, const tide_command_line *l, uint32_t from) {
    const char *program = from ? program_of(l->tokens[from - 1]) : NULL;
    put_option(arena, options, TIDE_TEXT("program"), program ? program : "llama-server");
}

static bool is_bench(const tide_json *options) {
    return tide_json_is_text(tide_json_at(options, "program"), "llama-bench");
}

/* -ot may be repeated; of a list that llama-bench processes one by one, the first item is taken. */
static void put_llama(tide_arena *arena, tide_json *options, tide_text key, const char *text) {
    static const char *const of_bench[][2] = {{"p", "n_prompt"}, {"n", "n_gen"}, {"d", "n_depth"}};
    const tide_json *given = tide_json_find(options, key);
    for (size_t i = 0; is_bench(options) && i < TIDE_COUNT_OF(of_bench); i++)
        if (tide_text_is(key, of_bench[i][0])) key = tide_text_of(of_bench[i][1]);
    if (tide_text_is(key, "override_tensor") && tide_json_is(given, TIDE_JSON_STRING))
        text = tide_format(arena, "%.*s,%s", (int)given->text.length, given->text.at, text);
    put_option(arena, options, key, text);
}

/* ---- the options ---- */

static const tide_key_row llama_rows[] = {
    KEY_SAYS("program", llama_program, ""),
    KEY_SAYS("model", gguf, ""),
    KEY_SAYS("hf_repo", gguf_repo, ""),
    KEY_SAYS("n_prompt", bench_prompt, ""),
    KEY_SAYS("n_gen", bench_generated, ""),
    KEY_SAYS("pg", bench_both, ""),
    KEY_SAYS("n_depth", bench_depth, ""),
    KEY_SETS("n_gpu_layers", n_gpu_layers, "all=|auto=|-1=|-2="),
    KEY_SETS("ctx_size", ctx_size, "0="),
    KEY_SETS("n_parallel", n_parallel, "-1="),
    KEY_SETS("kv_unified", kv_unified, ""),
    KEY_SETS("n_batch", n_batch, ""),
    KEY_SETS("n_ubatch", n_ubatch, ""),
    KEY_SETS("cache_type_k", cache_type_k, ""),
    KEY_SETS("cache_type_v", cache_type_v, ""),
    KEY_SETS("flash_attn", flash_attn, "enabled=on|disabled=off|-1=auto"),
    KEY_SETS("swa_full", swa_full, ""),
    KEY_SETS("no_kv_offload", no_kv_offload, "1=true|0=false"),
    KEY_SETS("kv_offload", no_kv_offload, "true=false|false=true"),
    KEY_SETS("n_cpu_moe", n_cpu_moe, ""),
    KEY_SETS("cpu_moe", n_cpu_moe, "true=100000|false="),
    KEY_SETS("override_tensor", override_tensor, ""),
    KEY_MATTERS("n_cpu_ffn", "keeps feed forward layers on the host", "0"),
    KEY_MATTERS("mmproj*", "loads a projector of media", ""),
    KEY_MATTERS("no_mmproj*", "leaves the projector of media out", "true"),
    KEY_MATTERS("spec_draft_model|model_draft|spec_draft_hf|hf_repo_draft|spec_default",
                "loads a draft model, with a cache of its own", ""),
    KEY_MATTERS("lora*", "loads adapters", ""),
    KEY_MATTERS("control_vector*", "loads control vectors", ""),
    KEY_MATTERS("device|split_mode|tensor_split|main_gpu|rpc", "places the model on other devices", "layer|0"),
    KEY_MATTERS("embedding|embeddings|rerank|reranking|pooling", "keeps outputs of every token", ""),
    KEY_MATTERS("op_offload|no_op_offload", "keeps products with weights of the host there", "op_offload"),
    KEY_MATTERS("no_host|repack|no_repack", "chooses other buffers on the host", ""),
    KEY_MATTERS("kv_unified_per_slot", "gives slots a length of their own", ""),
    KEY_MATTERS("override_kv", "changes the model's metadata", ""),
    KEY_MATTERS("models_*", "serves several models", ""),
    KEY_MATTERS("backend_sampling", "samples on the GPU", "false"),
    KEY_MATTERS("*_default|*_spec", "is a preset, which sets others", ""),
    KEY_NEUTRAL("fit|fit_*"),
    KEY_NEUTRAL("threads*|cpu_*|prio*|poll*|numa|no_mmap|mmap|mlock|direct_io|load_mode|lazy_mode|check_tensors"),
    KEY_NEUTRAL("p|n|predict|prompt|file|binary_file|system_prompt*|keep|escape|no_escape|reverse_prompt|special"),
    KEY_NEUTRAL(
        "conversation|no_conversation|no_cnv|single_turn|interactive*|multiline_input|in_prefix*|in_suffix|color"),
    KEY_NEUTRAL(
        "simple_io|verbose*|verbosity|log_*|perf|no_perf|show_timings|display_prompt|no_display_prompt|offline"),
    KEY_NEUTRAL("warmup|no_warmup|context_shift|no_context_shift|cache_prompt|no_cache_prompt|cache_reuse|cache_ram"),
    KEY_NEUTRAL("ctx_checkpoints|swa_checkpoints|checkpoint_min_step|cache_idle_slots|cont_batching|no_cont_batching"),
    KEY_NEUTRAL(
        "defrag_thold|slots|no_slots|slot_*|metrics|props|host|port|reuse_port|path|cors_*|api_*|ui*|no_ui|webui*"),
    KEY_NEUTRAL("no_webui|ssl_*|timeout|threads_http|sse_ping_interval|tools*|mcp_*|agent|media_path|tags|alias"),
    KEY_NEUTRAL("sleep_idle_seconds|jinja|no_jinja|chat_template*|reasoning*|skip_chat_parsing|prefill_assistant"),
    KEY_NEUTRAL(
        "samplers|sampl*_seq|seed|ignore_eos|temp|temperature|top_*|min_p|typical*|xtc_*|repeat_*|presence_penalty"),
    KEY_NEUTRAL("frequency_penalty|dry_*|dynatemp_*|mirostat*|adaptive_*|logit_bias|grammar*|json_schema*"),
    KEY_NEUTRAL(
        "rope_*|yarn_*|spec_*|draft*|hf_*|model_url|docker_repo|repetitions|delay|output*|progress|image|video*"),
};

static const tide_key_table llama_keys = {.rows = llama_rows, .count = TIDE_COUNT_OF(llama_rows)};

static const char *const llama_names[][2] = {{"-m", "model"},
                                             {"-hf", "hf_repo"},
                                             {"-hfr", "hf_repo"},
                                             {"-ngl", "n_gpu_layers"},
                                             {"--gpu-layers", "n_gpu_layers"},
                                             {"-c", "ctx_size"},
                                             {"-np", "n_parallel"},
                                             {"--parallel", "n_parallel"},
                                             {"-kvu", "kv_unified"},
                                             {"-no-kvu", "no_kv_unified"},
                                             {"-b", "n_batch"},
                                             {"--batch-size", "n_batch"},
                                             {"-ub", "n_ubatch"},
                                             {"--ubatch-size", "n_ubatch"},
                                             {"-ctk", "cache_type_k"},
                                             {"-ctv", "cache_type_v"},
                                             {"-fa", "flash_attn"},
                                             {"-nkvo", "no_kv_offload"},
                                             {"-kvo", "kv_offload"},
                                             {"-ncmoe", "n_cpu_moe"},
                                             {"-cmoe", "cpu_moe"},
                                             {"-ncffn", "n_cpu_ffn"},
                                             {"-ot", "override_tensor"},
                                             {"-md", "model_draft"},
                                             {"-mm", "mmproj"},
                                             {"-dev", "device"},
                                             {"-sm", "split_mode"},
                                             {"-ts", "tensor_split"},
                                             {"-mg", "main_gpu"},
                                             {"-t", "threads"},
                                             {"-tb", "threads_batch"},
                                             {"-C", "cpu_mask"},
                                             {"-s", "seed"},
                                             {"-l", "logit_bias"},
                                             {"-a", "alias"},
                                             {"-to", "timeout"},
                                             {"-cb", "cont_batching"},
                                             {"-nocb", "no_cont_batching"},
                                             {"-cnv", "conversation"},
                                             {"-no-cnv", "no_cnv"},
                                             {"-st", "single_turn"},
                                             {"-f", "file"},
                                             {"-sys", "system_prompt"},
                                             {"-co", "color"},
                                             {"-i", "interactive"},
                                             {"-e", "escape"},
                                             {"-v", "verbose"},
                                             {"-lv", "verbosity"},
                                             {"-r", "repetitions"},
                                             {"-o", "output"},
                                             {"-n", "n"},
                                             {"-p", "p"},
                                             {"-d", "d"},
                                             {"--n-predict", "predict"},
                                             {"--embeddings", "embedding"},
                                             {"-nopo", "no_op_offload"},
                                             {"-fit", "fit"},
                                             {"-fitt", "fit_target"},
                                             {"-fitc", "fit_ctx"},
                                             {"-cram", "cache_ram"},
                                             {"-ctxcp", "ctx_checkpoints"},
                                             {"-dt", "defrag_thold"},
                                             {"-rea", "reasoning"},
                                             {"-lm", "load_mode"},
                                             {"-bs", "backend_sampling"},
                                             {NULL}};

/* ---- the model ---- */

static bool is_file_type(tide_text word) {
    return tide_setting_has_choice(&tide_settings[TIDE_SET_ftype], word);
}

/* Cuts "Q4_K_M" off a name that ends in it, after `-`, `.`, `_` or `:`. NULL: it does not. */
static const char *cut_file_type(tide_claims *c, char *name) {
    for (char *at = name; *at; at++) {
        if (!strchr("-._:", *at) || !at[1]) continue;
        char *type = tide_text_copy(c->arena, tide_text_of(at + 1));
        for (char *letter = type; *letter; letter++)
            if (*letter >= 'a' && *letter <= 'z') *letter = (char)(*letter - 'a' + 'A');
        const char *plain = strncmp(type, "UD-", 3) == 0 ? type + 3 : type;
        if (!is_file_type(tide_text_of(plain))) continue;
        *at = 0;
        return plain;
    }
    return NULL;
}

static void cut_ending(char *name, const char *ending) {
    size_t length = strlen(name), of_ending = strlen(ending);
    if (length > of_ending && tide_text_same(tide_text_of(name + length - of_ending), tide_text_of(ending)))
        name[length - of_ending] = 0;
}

/* -00001-of-00003, as written by llama-gguf-split. */
static void cut_part(char *name) {
    size_t length = strlen(name);
    const size_t part = strlen("-00001-of-00003");
    if (length > part && strncmp(name + length - part + 6, "-of-", 4) == 0) name[length - part] = 0;
}

/* Without the file itself: the model and the type from its name. */
static void settle_file(tide_claims *c, tide_fact fact) {
    const char *given = tide_fact_of(c, fact);
    tide_text base = tide_base_name(tide_text_of(given));
    char *name = tide_text_copy(c->arena, base);
    cut_ending(name, ".gguf");
    cut_part(name);
    const char *type = cut_file_type(c, name);
    cut_ending(name, "-gguf");
    if (type)
        tide_settle(c, fact, TIDE_SET_ftype, type);
    else
        c->facts[fact]->effect = TIDE_KEY_USED;
    c->inputs->asked_model = name;
    c->inputs->asked_place = c->fact_places[fact];
}

static int64_t largest_of(const char *list) {
    int64_t largest = 0, value;
    tide_text rest = tide_text_of(list), one;
    while (tide_piece_next(&rest, ',', &one))
        if (tide_text_to_i64(&value, one) && value > largest && value < INT32_MAX) largest = value;
    return largest;
}

/* Each test of llama-bench has a context of its own: takes the largest. */
static void settle_bench(tide_claims *c) {
    static const struct {
        tide_fact fact;
        int64_t otherwise;
    } parts[] = {{TIDE_FACT_bench_prompt, 512}, {TIDE_FACT_bench_generated, 128}, {TIDE_FACT_bench_depth, 0}};
    int64_t tokens[3], both = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(parts); i++) {
        const char *given = tide_fact_of(c, parts[i].fact);
        tokens[i] = given ? largest_of(given) : parts[i].otherwise;
        if (given) c->facts[parts[i].fact]->effect = TIDE_KEY_USED;
    }
    const char *pair = tide_fact_of(c, TIDE_FACT_bench_both);
    tide_text rest = tide_text_of(pair ? pair : ""), one;
    int64_t value;
    while (tide_piece_next(&rest, ',', &one))
        if (tide_text_to_i64(&value, one) && value > 0 && value < INT32_MAX) both += value;
    int64_t most = tokens[0] > tokens[1] ? tokens[0] : tokens[1];
    if (pair) c->facts[TIDE_FACT_bench_both]->effect = TIDE_KEY_USED;
    tide_imply(c, TIDE_SET_ctx_size, tide_format(c->arena, "%" PRId64, (both > most ? both : most) + tokens[2]));
    tide_imply(c, TIDE_SET_kv_unified, "false");
}

static void settle_llama(tide_claims *c) {
    tide_imply(c, TIDE_SET_mode, "serve");
    tide_imply(c, TIDE_SET_engine, "llama_cpp");
    if (!tide_fact_is(c, TIDE_FACT_llama_program, "llama-server")) {
        tide_imply(c, TIDE_SET_n_parallel, "1");
        tide_imply(c, TIDE_SET_kv_unified, "false");
    }
    if (tide_fact_is(c, TIDE_FACT_llama_program, "llama-bench")) settle_bench(c);
    if (tide_fact_of(c, TIDE_FACT_llama_program)) c->facts[TIDE_FACT_llama_program]->effect = TIDE_KEY_USED;
    tide_fact fact = tide_fact_of(c, TIDE_FACT_gguf) ? TIDE_FACT_gguf : TIDE_FACT_gguf_repo;
    if (!tide_fact_of(c, fact)) return;
    if (tide_json_at(c->inputs->config, "gguf"))
        c->facts[fact]->effect = TIDE_KEY_USED;
    else
        settle_file(c, fact);
}

const tide_reader tide_llama_command_reader = {
    .title = "a command line of llama.cpp", .keys = &llama_keys, .precedence = 2, .settle = settle_llama};

const tide_server tide_llama_server = {
    .reader = &tide_llama_command_reader,
    .library = "llama.cpp",
    .images = "llama.cpp:",
    .marks = "llama-server|llama-cli|llama-bench|llama-completion|llama-mtmd-cli|llama.cpp:server",
    .model = "model",
    .image = "*llama.cpp:server*",
    .switches = "cpu_moe|kv_offload|kv_unified|no_kv_unified|conversation|single_turn|escape|color|interactive|metrics|"
                "props|jinja|verbose|offline|mlock|embedding|rerank|reranking|slots|warmup|context_shift|cont_batching|"
                "no_cnv|op_offload|repack|agent|perf|special|ignore_eos|check_tensors|spec_default",
    .names = llama_names,
    .find = find_llama,
    .begin = begin_llama,
    .put = put_llama};
