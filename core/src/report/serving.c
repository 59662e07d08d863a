/* SPDX-License-Identifier: Apache-2.0 */
/* A server's start: the engine's own figures, how many requests fit, what the GPU holds, and the effect of changes. */
#include "report/serving.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "report/serving_answers.h"
#include "report/serving_buffers.h"

static const char *const cache_kind_names[] = {"full", "sliding", "chunked", "latent", "state", "cross"};

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
    if (f->started) {
        tide_write_int_at(w, "started", (int64_t)f->started);
        tide_write_int_at(w, "reserved", (int64_t)f->reserved);
    }
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

const char *tide_serving_sentence(const tide_serving *serving, tide_arena *arena) {
    const tide_serve_figures *f = &serving->run->figures;
    int64_t percent =
        f->blocks_per_request ? (f->num_blocks * 100 + f->blocks_per_request / 2) / f->blocks_per_request : 0;
    if (f->refusal && f->may_start)
        return tide_format(arena, "The engine may refuse, because its memory is a range: %s", f->refusal);
    if (f->refusal) return tide_format(arena, "The engine refuses: %s", f->refusal);
    if (f->buffer_count) return tide_buffers_sentence(serving, arena);
    if (serving->run->is_pooling)
        return tide_format(
            arena, "No layer keeps a cache: the engine starts with %.2f GiB and takes up to %s requests at once",
            (double)f->consumed / (1 << 30), tide_count_text(arena, f->max_num_seqs));
    const char *cache = tide_format(arena,
                                    "GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: "
                                    "%" PRId64 ".%02" PRId64 "x",
                                    tide_count_text(arena, f->capacity_tokens),
                                    tide_count_text(arena, f->max_model_len), percent / 100, percent % 100);
    if (f->may_refuse)
        cache = tide_format(arena, "%s; at the lower end of the range, %s, the engine refuses to start", cache,
                            tide_count_text(arena, f->blocks_at_least));
    int64_t asked = serving->job->max_concurrency;
    if (!serving->mix.count && !asked) return cache;
    const char *lengths = serving->mix.count > 1
                              ? "of these lengths"
                              : tide_format(arena, "of %s tokens",
                                            tide_count_text(arena, tide_request_longest(&serving->mix, serving->run)));
    const char *target = "";
    if (asked && tide_serving_fits(serving))
        target = tide_format(arena, " (%s wanted)", tide_count_text(arena, asked));
    else if (asked)
        target = tide_format(arena, ", not %s", tide_count_text(arena, asked));
    int64_t requests = tide_serving_requests(serving);
    return tide_format(arena, requests == 1 ? "%s request %s fits at once%s. %s" : "%s requests %s fit at once%s. %s",
                       tide_count_text(arena, requests), lengths, target, cache);
}

static void write_cache_groups(tide_writer *w, const tide_serve_run *run) {
    tide_write_key(w, "groups");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < run->figures.group_count; i++) {
        const tide_cache_group *g = &run->figures.groups[i];
        tide_write_open(w, '{');
        tide_write_string_at(w, "kind", cache_kind_names[g->spec.kind]);
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
    const tide_job *job = &run->job;
    tide_write_open_at(w, "engine_args", '{');
    tide_write_string_at(w, "dtype", run->figures.dtype);
    tide_write_int_at(w, run->engine->length, run->figures.max_model_len);
    tide_write_int_at(w, run->engine->requests, run->figures.max_num_seqs);
    tide_write_int_at(w, run->engine->tokens, run->figures.max_num_batched_tokens);
    if (run->figures.buffer_count) {
        tide_write_close(w, '}');
        return;
    }
    tide_write_int_at(w, "gpu_memory_utilization_ppm", tide_serve_utilization_ppm(run));
    tide_write_int_at(w, "tensor_parallel_size", job->tensor_parallel_size);
    tide_write_int_at(w, "pipeline_parallel_size", job->pipeline_parallel_size);
    tide_write_int_at(w, "data_parallel_size", job->data_parallel_size);
    tide_write_bool_at(w, "enforce_eager", job->enforce_eager);
    tide_write_close(w, '}');
}

static void write_requests_of(tide_writer *w, const tide_serve_run *run, int64_t tokens) {
    tide_write_open(w, '{');
    tide_write_int_at(w, "tokens", tokens);
    tide_write_int_at(w, "fit", tide_requests_of(run, tokens) * run->job.data_parallel_size * run->job.replicas);
    tide_write_close(w, '}');
}

/* How many requests fit for each given length; without lengths, for a series of them. */
static void write_requests(tide_writer *w, const tide_serving *serving) {
    const tide_serve_run *run = serving->run;
    int64_t longest = run->figures.max_model_len;
    tide_write_key(w, "requests");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < serving->mix.count; i++) write_requests_of(w, run, serving->mix.shares[i].tokens);
    for (int64_t length = 1024; !serving->mix.count && length < longest && length < INT64_C(1) << 22; length *= 2)
        write_requests_of(w, run, length);
    if (!serving->mix.count) write_requests_of(w, run, longest);
    tide_write_close(w, ']');
}

/* The longest request that fits, and the longest for which the requested number fits. */
static void write_longest(tide_writer *w, const tide_serving *serving) {
    const tide_serve_run *run = serving->run;
    int64_t most = tide_serve_positions(run), asked = serving->job->max_concurrency;
    int64_t servers = run->job.data_parallel_size * run->job.replicas;
    tide_write_open_at(w, "longest", '{');
    tide_write_int_at(w, "of_one", tide_requests_longest(run, 1, most));
    if (asked)
        tide_write_int_at(w, "of_max_concurrency", tide_requests_longest(run, TIDE_CEIL_DIV(asked, servers), most));
    tide_write_close(w, '}');
}

void tide_write_serving_brief(tide_writer *w, const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    tide_write_open_at(w, "serving", '{');
    tide_write_int_at(w, "tokens", f->capacity_tokens);
    tide_write_int_at(w, "blocks", f->num_blocks);
    tide_write_int_at(w, "available", f->available);
    tide_write_int_at(w, "requests", tide_serving_requests(serving));
    tide_write_int_at(w, "request_tokens", tide_request_longest(&serving->mix, serving->run));
    if (f->refusal) tide_write_string_at(w, "message", f->refusal);
    tide_write_close(w, '}');
}

void tide_write_serving(tide_writer *w, const tide_serving *serving, const tide_job *job, bool with_flags) {
    tide_arena *arena = w->arena;
    const tide_serve_run *run = serving->run;
    const tide_serve_device *device = &serving->device;
    tide_write_open_at(w, "serving", '{');
    tide_write_string_at(w, "engine", run->engine->title);
    write_settings(w, run);
    if (run->figures.buffer_count) {
        tide_write_buffers(w, serving);
        write_cache_groups(w, run);
        write_requests(w, serving);
        tide_write_serving_command(w, serving, arena);
        tide_write_close(w, '}');
        return;
    }
    tide_write_serving_figures(w, run);
    write_cache_groups(w, run);
    write_requests(w, serving);
    write_longest(w, serving);
    if (with_flags) tide_write_smallest(w, serving, arena);
    tide_write_serving_command(w, serving, arena);
    tide_write_open_at(w, "card", '{');
    tide_write_int_at(w, "total", (int64_t)device->total_bytes);
    int64_t own = (int64_t)tide_serve_device_of(job, arena).used_bytes, used = (int64_t)device->used_bytes;
    tide_write_int_at(w, "context", own);
    if (job->replicas > 1) tide_write_int_at(w, "other_servers", used - own);
    tide_write_int_at(w, "block_tables", tide_serving_tables(run));
    tide_write_int_at(w, "logits_fp32",
                      run->is_pooling ? 0 : 4 * run->figures.max_num_seqs * tide_serve_vocabulary(job->config));
    tide_write_close(w, '}');
    if (with_flags) tide_write_levers(w, serving, arena);
    tide_write_close(w, '}');
}
