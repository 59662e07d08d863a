/* A server's start: what the engine prints, how many requests fit, what the card holds, and what changes buy. */
#include "report/serving.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static const char *const kind_names[] = {"full", "sliding", "chunked", "latent", "state", "cross"};

void tide_write_serving_figures(tide_writer *w, const tide_serve_run *run) {
    const tide_serve_figures *f = &run->figures;
    tide_write_string_at(w, "outcome", f->refusal ? "refused" : "ok");
    if (f->refusal) tide_write_string_at(w, "message", f->refusal);
    tide_write_int_at(w, "weights", (int64_t)f->weight_bytes);
    tide_write_int_at(w, "model_bytes", (int64_t)f->model_bytes);
    tide_write_int_at(w, "requested", (int64_t)f->requested);
    tide_write_int_at(w, "consumed", (int64_t)f->consumed);
    tide_write_int_at(w, "transient", (int64_t)f->transient);
    tide_write_int_at(w, "graphs", (int64_t)f->graph_bytes);
    tide_write_int_at(w, "available", f->available);
    tide_write_int_at(w, "block_bytes", f->block_bytes);
    tide_write_int_at(w, "blocks", f->num_blocks);
    if (f->blocks_at_least != f->blocks_at_most) {
        tide_write_int_at(w, "blocks_at_least", f->blocks_at_least);
        tide_write_int_at(w, "blocks_at_most", f->blocks_at_most);
    }
    tide_write_int_at(w, "blocks_per_request", f->blocks_per_request);
    tide_write_int_at(w, "tokens", f->capacity_tokens);
    /* "Maximum concurrency for M tokens per request", in hundredths */
    tide_write_int_at(w, "concurrency_percent",
                      f->blocks_per_request ? (f->num_blocks * 100 + f->blocks_per_request / 2) / f->blocks_per_request
                                            : 0);
}

/* Requests of `length` tokens that are admitted at once for sure: one block is the null block. */
static int64_t requests_of(const tide_serve_run *run, int64_t length) {
    int64_t each = tide_cache_blocks_of(run, length), usable = run->figures.blocks_at_least - 1;
    int64_t fit = each > 0 && usable > 0 ? usable / each : 0;
    if (fit > run->figures.max_num_seqs) fit = run->figures.max_num_seqs;
    return fit * run->settings.data_parallel_size;
}

/* Block tables and slots, made once the cache is there: v1/worker/gpu/block_table.py. */
static int64_t tables_of(const tide_serve_run *run) {
    int64_t bytes = 0, slots = run->figures.max_num_seqs;
    for (uint32_t i = 0; i < run->figures.group_count; i++) {
        const tide_cache_group *g = &run->figures.groups[i];
        int64_t width = g->spec.kind == TIDE_CACHE_STATE
                            ? g->blocks_per_request
                            : (run->figures.max_model_len + g->spec.block_size - 1) / g->spec.block_size;
        bytes += 2 * 4 * slots * width;
    }
    return bytes + 8 * (int64_t)run->figures.group_count * run->figures.max_num_batched_tokens;
}

static bool start(tide_serve_run **run, const tide_serve_settings *s, const tide_serve_device *d, tide_arena *arena,
                  tide_diagnostics *diags) {
    *run = TIDE_NEW(arena, tide_serve_run, 1);
    return tide_serve_start(*run, s, d, arena, diags);
}

/* The stage of the pipeline with the fewest blocks decides for all. */
static bool start_all(tide_serve_run **run, const tide_serve_settings *s, const tide_serve_device *d, tide_arena *arena,
                      tide_diagnostics *diags) {
    tide_serve_settings of_stage = *s;
    tide_serve_run *fewest = NULL;
    for (int64_t stage = 0; stage < s->pipeline_parallel_size; stage++) {
        of_stage.rank = s->rank ? s->rank : stage * s->tensor_parallel_size;
        if (!start(run, &of_stage, d, arena, diags)) return false;
        if (!fewest || (*run)->figures.refusal || (*run)->figures.num_blocks < fewest->figures.num_blocks)
            fewest = *run;
        if (s->rank || fewest->figures.refusal) break;
    }
    *run = fewest;
    return true;
}

enum { STAGE_LIMIT = 32 }; /* each is played */

static bool check_ranks(const tide_serve_settings *s, tide_arena *arena, tide_diagnostics *diags) {
    int64_t ranks = s->tensor_parallel_size * s->pipeline_parallel_size;
    if (s->pipeline_parallel_size > STAGE_LIMIT)
        return tide_error(diags, TIDE_ERR_LIMIT, "/settings/pipeline_parallel_size",
                          tide_format(arena, "more than %d stages are not played", STAGE_LIMIT), NULL);
    return s->rank < ranks ||
           tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/worker_rank",
                      tide_format(arena, "is %" PRId64 "; ranks go from 0 to %" PRId64, s->rank, ranks - 1), NULL);
}

bool tide_run_serving(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    tide_serving *serving = TIDE_NEW(arena, tide_serving, 1);
    serving->device = tide_serve_device_of(job, arena);
    serving->asked_len = job->input_len + job->output_len;
    serving->max_concurrency = job->max_concurrency;
    if (!tide_serve_settings_of(&serving->settings, job, arena, diags) ||
        !check_ranks(&serving->settings, arena, diags) ||
        !start_all(&serving->run, &serving->settings, &serving->device, arena, diags))
        return false;
    run->serving = serving;
    run->machine = serving->run->machine;
    run->model = serving->run->model;
    run->descriptions = serving->run->descriptions;
    tide_model_list_parameters(&run->model); /* of the model, not of the runner's state */
    for (uint32_t i = 0; i < run->model.parameter_count; i++)
        run->parameters += tide_model_count(&run->model, &run->model.parameters[i]);
    return true;
}

/* Tokens of the requests that are asked for. */
static int64_t request_length(const tide_serving *serving) {
    return serving->asked_len ? serving->asked_len : serving->run->figures.max_model_len;
}

int64_t tide_serving_requests(const tide_serving *serving) {
    int64_t length = request_length(serving);
    return length <= serving->run->figures.max_model_len ? requests_of(serving->run, length) : 0;
}

bool tide_serving_fits(const tide_serving *serving) {
    if (serving->run->figures.refusal) return false;
    int64_t least = serving->max_concurrency ? serving->max_concurrency : serving->asked_len ? 1 : 0;
    return tide_serving_requests(serving) >= least;
}

uint64_t tide_serving_bytes(const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    uint64_t cache = f->refusal ? 0 : (uint64_t)(f->num_blocks * f->block_bytes);
    return serving->device.used_bytes + f->consumed + f->transient + f->graph_bytes + cache;
}

/* 131,072 */
static const char *count_text(tide_arena *arena, int64_t n) {
    const char *text = tide_format(arena, "%" PRId64, n % 1000);
    for (int64_t left = n; left >= 1000;) {
        text = tide_format(arena, "%03d%s", (int)(left % 1000), strchr(text, ',') ? strchr(text, ',') : "");
        left /= 1000;
        text = tide_format(arena, "%" PRId64 ",%s", left % 1000, text);
    }
    return text;
}

const char *tide_serving_sentence(const tide_serving *serving, tide_arena *arena) {
    const tide_serve_figures *f = &serving->run->figures;
    int64_t percent =
        f->blocks_per_request ? (f->num_blocks * 100 + f->blocks_per_request / 2) / f->blocks_per_request : 0;
    if (f->refusal) return tide_format(arena, "The engine refuses: %s", f->refusal);
    const char *cache = tide_format(arena,
                                    "GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: "
                                    "%" PRId64 ".%02" PRId64 "x",
                                    count_text(arena, f->capacity_tokens), count_text(arena, f->max_model_len),
                                    percent / 100, percent % 100);
    if (!serving->asked_len && !serving->max_concurrency) return cache;
    return tide_format(
        arena, "%s requests of %s tokens fit at once%s. %s", count_text(arena, tide_serving_requests(serving)),
        count_text(arena, request_length(serving)),
        !serving->max_concurrency ? ""
        : tide_serving_fits(serving)
            ? tide_format(arena, ", %s are asked for", count_text(arena, serving->max_concurrency))
            : tide_format(arena, ": not the %s that are asked for", count_text(arena, serving->max_concurrency)),
        cache);
}

static void write_groups(tide_writer *w, const tide_serve_run *run) {
    tide_write_key(w, "groups");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < run->figures.group_count; i++) {
        const tide_cache_group *g = &run->figures.groups[i];
        tide_write_open(w, '{');
        tide_write_string_at(w, "kind", kind_names[g->spec.kind]);
        tide_write_int_at(w, "layers", g->layers);
        tide_write_int_at(w, "block_size", g->spec.block_size);
        tide_write_int_at(w, "page_bytes", g->spec.page_bytes);
        if (g->spec.window && g->spec.kind != TIDE_CACHE_STATE) tide_write_int_at(w, "window", g->spec.window);
        tide_write_int_at(w, "blocks_per_request", g->blocks_per_request);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void write_settings(tide_writer *w, const tide_serve_run *run) {
    const tide_serve_settings *s = &run->settings;
    tide_write_open_at(w, "engine_args", '{');
    tide_write_string_at(w, "dtype", run->figures.dtype);
    tide_write_int_at(w, "max_model_len", run->figures.max_model_len);
    tide_write_int_at(w, "max_num_seqs", run->figures.max_num_seqs);
    tide_write_int_at(w, "max_num_batched_tokens", run->figures.max_num_batched_tokens);
    tide_write_int_at(w, "gpu_memory_utilization_ppm", s->utilization_ppm);
    tide_write_int_at(w, "tensor_parallel_size", s->tensor_parallel_size);
    tide_write_int_at(w, "pipeline_parallel_size", s->pipeline_parallel_size);
    tide_write_int_at(w, "data_parallel_size", s->data_parallel_size);
    tide_write_bool_at(w, "enforce_eager", s->enforce_eager);
    tide_write_close(w, '}');
}

/* What requests of the asked lengths come to; without lengths, of a ladder of them. */
static void write_requests(tide_writer *w, const tide_serving *serving) {
    const tide_serve_run *run = serving->run;
    int64_t ladder[16], count = 0, asked = serving->asked_len;
    if (asked) {
        ladder[count++] = asked;
    } else {
        for (int64_t length = 1024; length < run->figures.max_model_len && count < 12; length *= 2)
            ladder[count++] = length;
        ladder[count++] = run->figures.max_model_len;
    }
    tide_write_key(w, "requests");
    tide_write_open(w, '[');
    for (int64_t i = 0; i < count; i++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "tokens", ladder[i]);
        tide_write_int_at(w, "fit", ladder[i] <= run->figures.max_model_len ? requests_of(run, ladder[i]) : 0);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

typedef struct lever {
    const char *flag;
    size_t offset;
    int64_t value;
} lever;

/* Each is played; what changes nothing or is refused is left out. */
static void write_levers(tide_writer *w, const tide_serving *serving, tide_arena *arena) {
    static const lever levers[] = {
        {"--max-num-seqs 128", offsetof(tide_serve_settings, max_num_seqs), 128},
        {"--max-num-batched-tokens 2048", offsetof(tide_serve_settings, max_num_batched_tokens), 2048},
        {"--gpu-memory-utilization 0.95", offsetof(tide_serve_settings, utilization_ppm), 950000}};
    const tide_serve_run *run = serving->run;
    int64_t length = request_length(serving);
    tide_write_open_at(w, "levers", '[');
    for (size_t i = 0; i < 5; i++) {
        tide_serve_settings changed = serving->settings;
        tide_serve_run *other = NULL;
        tide_diagnostics unheard;
        tide_diagnostics_init(&unheard, arena);
        const char *flag = i < 3 ? levers[i].flag : i == 3 ? "--kv-cache-dtype fp8" : NULL;
        if (i < 3) *(int64_t *)(void *)((char *)&changed + levers[i].offset) = levers[i].value;
        if (i == 3) changed.kv_cache_dtype = "fp8";
        if (i == 4) {
            changed.tensor_parallel_size *= 2;
            flag = tide_format(arena, "--tensor-parallel-size %lld", (long long)changed.tensor_parallel_size);
        }
        if (!start_all(&other, &changed, &serving->device, arena, &unheard) || other->figures.refusal) continue;
        int64_t gained =
            other->figures.num_blocks * other->figures.block_bytes - run->figures.num_blocks * run->figures.block_bytes;
        int64_t fit = requests_of(other, length);
        if (!run->figures.refusal && gained == 0 && fit == requests_of(run, length)) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "flag", flag);
        tide_write_int_at(w, "cache_bytes", gained);
        tide_write_int_at(w, "tokens", other->figures.capacity_tokens);
        tide_write_int_at(w, "fit", fit);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

void tide_write_serving_brief(tide_writer *w, const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    tide_write_open_at(w, "serving", '{');
    tide_write_int_at(w, "tokens", f->capacity_tokens);
    tide_write_int_at(w, "blocks", f->num_blocks);
    tide_write_int_at(w, "available", f->available);
    tide_write_int_at(w, "requests", tide_serving_requests(serving));
    tide_write_int_at(w, "request_tokens", request_length(serving));
    if (f->refusal) tide_write_string_at(w, "message", f->refusal);
    tide_write_close(w, '}');
}

void tide_write_serving(tide_writer *w, const tide_serving *serving, const tide_job *job, tide_arena *arena) {
    const tide_serve_run *run = serving->run;
    const tide_serve_device *device = &serving->device;
    tide_write_open_at(w, "serving", '{');
    tide_write_string_at(w, "engine", "vLLM 0.32.0 on PyTorch 2.13");
    write_settings(w, run);
    tide_write_serving_figures(w, run);
    write_groups(w, run);
    write_requests(w, serving);
    tide_write_open_at(w, "card", '{');
    tide_write_int_at(w, "total", (int64_t)device->total_bytes);
    tide_write_int_at(w, "context", (int64_t)device->used_bytes);
    tide_write_int_at(w, "block_tables", tables_of(run));
    tide_write_int_at(w, "logits_fp32", 4 * run->figures.max_num_seqs * tide_serve_vocabulary(job->config));
    tide_write_close(w, '}');
    write_levers(w, serving, arena);
    tide_write_close(w, '}');
}
