/* SPDX-License-Identifier: Apache-2.0 */
/* SGLang 0.5.23, as its source has it: srt/arg_groups/memory_hook.py and cuda_graph_hook.py (defaults by the card),
 * srt/mem_cache/kv_cache_configurator.py and srt/model_executor/pool_configurator.py (tokens of the pool). Its pool was
 * recorded for one model. Its layers are of vLLM's lineage, so that the model is built by vLLM's descriptions. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/decimal.h"
#include "base/units.h"
#include "serve/config.h"
#include "serve/serve.h"

enum {
    MIB = 1 << 20,
    META_MIB = 512,        /* memory_hook.py, reserved_mem */
    FLOOR_MIB = 10 * 1024, /* of cards above 60 GiB */
    FLOOR_FROM_MIB = 60 * 1024,
    LEAST_TOKENS = 2048, /* that activations are counted of */
    LATENT_GRAPHS_MIB = 1536,
    DRIVER_MIB = 1024,     /* nvidia-smi's memory.total is more than CUDA's by what the driver keeps: at most so much */
    EXTRA_CONTEXT = 4,     /* get_req_to_token_extra_context_len */
    PAGE_MOST = 64,        /* that an attention backend may ask for: arg_groups/attention_hook.py */
    LEAST_REQUESTS = 2048, /* resolve_max_num_reqs */
    MOST_REQUESTS = 4096,
    LOADING = 64 << 20 /* segments that loading leaves behind or not, beside rotary tables in fp32 */
};

typedef struct sglang_start {
    tide_serve_run *run, *model; /* model: of vLLM's layers */
    int64_t cell_bytes, chunk, max_bs, context;
    bool is_latent;
} sglang_start;

/* memory_hook.py, handle_gpu_memory_settings: by the card's memory, MiB. */
static void sglang_defaults(sglang_start *s) {
    static const struct {
        int64_t below, chunk, max_bs, max_bs_wide; /* wide: tp_size of 4 and more */
    } rows[] = {{20 * 1024, 2048, 8, 8},     {35 * 1024, 4096, 48, 160},   {60 * 1024, 4096, 32, 160},
                {90 * 1024, 8192, 256, 512}, {160 * 1024, 8192, 256, 512}, {INT64_MAX, 16384, 512, 512}};
    const tide_job *job = &s->run->job;
    int64_t mib = (int64_t)(s->run->device.total_bytes / MIB);
    size_t at = 0;
    while (mib >= rows[at].below) at++;
    s->chunk = job->chunked_prefill_size ? job->chunked_prefill_size : rows[at].chunk;
    s->max_bs = job->tp_size < 4 ? rows[at].max_bs : rows[at].max_bs_wide;
    if (job->max_running_requests && s->max_bs > job->max_running_requests) s->max_bs = job->max_running_requests;
    if (job->cuda_graph_max_bs_decode) s->max_bs = job->cuda_graph_max_bs_decode;
}

/* generate_prefill_cuda_graph_batch_sizes: how many. */
static int64_t prefill_sizes(int64_t most) {
    static const int64_t steps[][3] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                                       {576, 1024, 64}, {1280, 4096, 256}, {4608, INT64_MAX, 512}};
    int64_t count = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(steps); i++) {
        int64_t last = steps[i][1] < most ? steps[i][1] : most;
        if (last >= steps[i][0]) count += (last - steps[i][0]) / steps[i][2] + 1;
    }
    return count;
}

/* mem_fraction_static where it is not given, for a card of so many MiB. */
static double default_fraction(const sglang_start *s, double mib, bool captures_prefill) {
    const tide_job *job = &s->run->job;
    int64_t tokens = s->chunk > LEAST_TOKENS ? s->chunk : LEAST_TOKENS;
    double reserved = META_MIB + (double)tokens * 1.5 + (double)job->tp_size / 8 * 1024;
    if (!job->disable_cuda_graph) reserved += (double)s->max_bs * 2;
    if (!job->disable_cuda_graph && captures_prefill)
        reserved += s->is_latent ? LATENT_GRAPHS_MIB : (double)prefill_sizes(s->chunk) * 8;
    if (mib > FLOOR_FROM_MIB && reserved < FLOOR_MIB) reserved = FLOOR_MIB;
    return rint((mib - reserved) / mib * 1000) / 1000;
}

/* ---- the model ---- */

static bool refuse_sglang(const sglang_start *s, const char *place, const char *message) {
    return tide_error(s->run->machine.diags, TIDE_ERR_UNSUPPORTED, place, message, "engine=vllm is near to it");
}

/* configs/model_config.py, is_hybrid_swa_model: pools of their own for windows. */
static bool has_window_pool(tide_text architecture) {
    static const char *const beginnings[] = {"Llama4", "GptOss", "GraniteSWA", "GraniteMoeSWA", "IQuestQ1", "MiMoV2",
                                             "Step3p", "Gemma4", "DeepseekV4", "Laguna",        "Mellum",   "Beam"};
    for (size_t i = 0; i < TIDE_COUNT_OF(beginnings); i++)
        if (tide_text_starts(architecture, tide_text_of(beginnings[i]))) return true;
    return false;
}

/* The model on a card without an end, by vLLM's worker, and what its layers keep of a token. */
static bool build_model(sglang_start *s, tide_arena *arena, tide_diagnostics *diags) {
    tide_serve_run *run = s->run;
    const tide_json *quantised = tide_json_at(run->job.config, "quantization_config");
    if (quantised && quantised->kind != TIDE_JSON_NULL)
        return refuse_sglang(s, "/model/quantization_config", "quantised weights are not described for SGLang");
    if (tide_json_at(run->job.config, "vision_config") || tide_json_at(run->job.config, "audio_config"))
        return refuse_sglang(s, "/model", "media are not described for SGLang");
    tide_job job = run->job;
    tide_serve_device device = run->device;
    device.total_bytes = UINT64_C(1) << 46;
    device.used_bytes = 0;
    job.engine = TIDE_engine_vllm;
    job.enforce_eager = true;
    job.tensor_parallel_size = job.tp_size;
    job.max_model_len = job.context_length;
    job.max_num_seqs = 1;
    job.max_num_batched_tokens = LEAST_TOKENS;
    s->model->engine = &tide_vllm_engine;
    if (!tide_vllm_engine.start(s->model, &job, &device, arena, diags)) return false;
    if (has_window_pool(s->model->architecture))
        return refuse_sglang(s, "/model",
                             "layers with windows have a pool of their own in SGLang, which is not described");
    for (uint32_t i = 0; i < s->model->spec_count; i++) {
        const tide_cache_spec *spec = &s->model->specs[i];
        if (spec->kind != TIDE_CACHE_FULL && spec->kind != TIDE_CACHE_SLIDING && spec->kind != TIDE_CACHE_LATENT)
            return refuse_sglang(s, "/model", "states and caches of chunks are not described for SGLang");
        s->is_latent |= spec->kind == TIDE_CACHE_LATENT;
        s->cell_bytes += spec->token_bytes;
    }
    s->context = s->model->figures.max_model_len;
    return s->cell_bytes > 0 || refuse_sglang(s, "/model", "keeps no keys and values");
}

/* Segments that the weights take, by the allocator as PyTorch sets it. False: out of memory, which is the refusal. */
static bool load_weights(sglang_start *s, uint64_t *segments) {
    tide_serve_run *run = s->run;
    const tide_replay_config config = {.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                       .device_bytes = run->device.total_bytes,
                                       .outside_bytes = run->device.used_bytes,
                                       .keeps_statistics = true};
    tide_event_source source = tide_timeline_events(&s->model->machine.timeline);
    tide_player p;
    if (!tide_player_open(&p, &source, &config, run->machine.arena) || !tide_player_run(&p, s->model->loaded_event))
        return false;
    tide_caching_empty_cache(p.allocator);
    *segments = tide_caching_reserved(p.allocator);
    if (p.figures.is_oom)
        run->figures.refusal = tide_format(run->machine.arena, "OutOfMemoryError: %s",
                                           tide_serve_oom_text(run->machine.arena, &p.figures.oom));
    tide_player_close(&p);
    return true;
}

/* ---- the pool ---- */

/* _profile_available_bytes and calculate_pool_sizes. */
static int64_t pool_tokens(const sglang_start *s, double fraction, uint64_t segments, int64_t page) {
    const tide_serve_run *run = s->run;
    double gib = 1 << 30, before = (double)(run->device.total_bytes - run->device.used_bytes) / gib;
    double rest = before - (double)segments / gib - before * (1 - fraction);
    int64_t tokens = rest > 0 && s->cell_bytes > 0 ? (int64_t)(rest * gib) / s->cell_bytes : 0;
    if (run->job.max_total_tokens && tokens > run->job.max_total_tokens) tokens = run->job.max_total_tokens;
    return tokens / page * page;
}

static int64_t requests_of_pool(const sglang_start *s, int64_t tokens) {
    int64_t most = (int64_t)((double)tokens / (double)s->context * 512), asked = s->run->job.max_running_requests;
    most = most < LEAST_REQUESTS ? LEAST_REQUESTS : most > MOST_REQUESTS ? MOST_REQUESTS : most;
    if (asked) most = asked;
    return most < tokens / 2 ? most : tokens / 2;
}

/* _profile_available_bytes: rest_memory is not above 0; MemoryPoolConfig: no page fits. */
static const char *refusal_of(const sglang_start *s, double fraction, uint64_t segments) {
    double before = (double)(s->run->device.total_bytes - s->run->device.used_bytes);
    double least = (double)segments / before;
    if (fraction > least) return "Not enough memory. Please try to increase --mem-fraction-static.";
    return tide_format(s->run->machine.arena,
                       "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=%g. Raise "
                       "--mem-fraction-static above %.3f (minimum viable = 1 - available/pre = %.4f). If using "
                       "speculative decoding, draft weights are now counted.",
                       fraction, ceil(least * 1000) / 1000, least);
}

static double fraction_of(const sglang_start *s, bool is_low) {
    const tide_job *job = &s->run->job;
    double mib = (double)s->run->device.total_bytes / MIB;
    if (job->mem_fraction_static) return (double)job->mem_fraction_static / (double)TIDE_PICO;
    return is_low ? default_fraction(s, mib, true) : default_fraction(s, mib + DRIVER_MIB, false);
}

static void sglang_range(const sglang_start *s, uint64_t segments, int64_t *least, int64_t *most) {
    uint64_t doubt = LOADING + s->model->figures.buffer_bytes;
    int64_t page = s->run->job.page_size;
    *most = pool_tokens(s, fraction_of(s, false), segments > LOADING ? segments - LOADING : 0, page ? page : 1);
    *least = pool_tokens(s, fraction_of(s, true), segments + doubt, page ? page : PAGE_MOST);
}

/* ---- the answer ---- */

static void describe_pool(sglang_start *s, int64_t least, int64_t most) {
    tide_serve_figures *f = &s->run->figures;
    f->max_num_seqs = requests_of_pool(s, least);
    f->block_bytes = s->cell_bytes;
    f->num_blocks = f->blocks_at_least = least;
    f->blocks_at_most = most;
    f->blocks_per_request = f->max_model_len;
    f->capacity_tokens = least;
    f->available = least * s->cell_bytes;
    f->groups[f->group_count++] =
        (tide_cache_group){.spec = {.kind = s->is_latent ? TIDE_CACHE_LATENT : TIDE_CACHE_FULL,
                                    .block_size = 1,
                                    .page_bytes = s->cell_bytes / s->model->spec_count,
                                    .token_bytes = s->cell_bytes / s->model->spec_count},
                           .layers = s->model->spec_count,
                           .blocks_per_request = f->max_model_len};
}

static void add_sglang(sglang_start *s, const char *name, int64_t low, int64_t high, const char *why) {
    tide_serve_add_buffer(s->run, &(tide_serve_buffer){name, false, low, high, why});
}

static void describe_card(sglang_start *s, uint64_t segments, int64_t least, int64_t most) {
    tide_serve_run *run = s->run;
    int64_t row = 4 * (s->context + EXTRA_CONTEXT), doubt = LOADING + (int64_t)s->model->figures.buffer_bytes;
    int64_t at_least = (int64_t)segments > LOADING ? (int64_t)segments - LOADING : 0;
    add_sglang(s, "weights", at_least, (int64_t)segments + doubt, "loading leaves segments behind that are not played");
    if (run->figures.refusal) return;
    add_sglang(s, "token_to_kv_pool", least * s->cell_bytes, most * s->cell_bytes,
               "mem_fraction_static follows nvidia-smi's memory.total, and whether prefill graphs are captured");
    add_sglang(s, "req_to_token_pool", row * (requests_of_pool(s, least) + 1), row * (requests_of_pool(s, most) + 1),
               "a row of the context for each request");
    int64_t held = (int64_t)run->device.used_bytes + at_least + least * s->cell_bytes;
    int64_t rest = (int64_t)run->device.total_bytes - held;
    add_sglang(s, "activations and CUDA graphs", 0, rest > 0 ? rest : 0,
               "SGLang's kernels decide, in what mem_fraction_static leaves: read, not measured");
}

static bool start_sglang(tide_serve_run *run, const tide_job *job, const tide_serve_device *device, tide_arena *arena,
                         tide_diagnostics *diags) {
    sglang_start s = {.run = run, .model = TIDE_NEW(arena, tide_serve_run, 1)};
    uint64_t segments = 0;
    int64_t least = 0, most = 0;
    run->job = *job;
    run->device = *device;
    tide_machine_init(&run->machine, arena, diags);
    tide_descriptions_init(&run->descriptions, arena, diags, NULL, run);
    tide_model_init(&run->model, &run->machine, &run->descriptions);
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/engine",
                "SGLang's rules are read in its source, and three pools of one model are recorded: tokens are a range",
                NULL);
    sglang_defaults(&s);
    if (!build_model(&s, arena, diags) || !load_weights(&s, &segments)) return false;
    tide_serve_figures *f = &run->figures;
    run->architecture = s.model->architecture;
    f->dtype = s.model->figures.dtype;
    f->weight_bytes = s.model->figures.weight_bytes;
    f->max_model_len = s.context;
    f->max_num_batched_tokens = s.chunk;
    run->parameters = (int64_t)f->weight_bytes / tide_dtype_bytes(s.model->model.state.dtype) * job->tp_size;
    if (!f->refusal) sglang_range(&s, segments, &least, &most);
    if (!f->refusal && least <= 0) f->refusal = refusal_of(&s, fraction_of(&s, true), segments);
    if (!f->refusal) describe_pool(&s, least, most);
    describe_card(&s, segments, least, most);
    tide_serve_play_buffers(run);
    return true;
}

static int64_t sglang_blocks_of(const tide_serve_run *run, int64_t requests, int64_t tokens) {
    int64_t page = run->job.page_size ? run->job.page_size : PAGE_MOST;
    return tide_serve_each(requests, TIDE_ROUND_UP(tokens, page));
}

const tide_engine tide_sglang_engine = {.title = "SGLang 0.5.23, by its source",
                                        .start = start_sglang,
                                        .blocks_of = sglang_blocks_of,
                                        .length = "context_length",
                                        .requests = "max_running_requests",
                                        .tokens = "chunked_prefill_size"};
