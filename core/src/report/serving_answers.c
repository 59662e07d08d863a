/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, the effect of flags, and how many GPUs are needed. */
#include "report/serving_answers.h"

#include "base/decimal.h"
#include "base/units.h"

enum { MOST_RANKS = 16 };

void tide_write_serving_command(tide_writer *w, const tide_serving *serving, tide_arena *arena) {
    const tide_job *job = serving->job;
    const char *command = tide_job_serve_command(job, arena);
    if (job->replicas > 1 && !job->gpu_memory_utilization)
        command = tide_format(arena, "%s --gpu-memory-utilization %.2f", command,
                              (double)tide_serve_utilization_ppm(serving->run) / 1e6);
    tide_write_string_at(w, "command", command);
}

/* ---- what flags buy ---- */

enum { FEWER_REQUESTS = 128, FEWER_TOKENS = 2048, MORE_PERCENT = 95 };

static const char *fewer_requests(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    job->max_num_seqs = job->max_concurrency ? job->max_concurrency : FEWER_REQUESTS;
    return tide_format(arena, "--max-num-seqs %lld", (long long)job->max_num_seqs);
}

static const char *fewer_tokens(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    job->max_num_batched_tokens = FEWER_TOKENS;
    return tide_format(arena, "--max-num-batched-tokens %d", FEWER_TOKENS);
}

static const char *more_of_the_card(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    if (job->replicas > 1) return NULL;
    job->gpu_memory_utilization = TIDE_PICO / 100 * MORE_PERCENT;
    return tide_format(arena, "--gpu-memory-utilization 0.%d", MORE_PERCENT);
}

static const char *fp8_cache(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    job->kv_cache_dtype = TIDE_kv_cache_dtype_fp8;
    return "--kv-cache-dtype fp8";
}

static const char *fp8_weights(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    if (tide_json_at(job->config, "quantization_config")) return NULL;
    job->quantization = TIDE_quantization_fp8;
    return "--quantization fp8";
}

static const char *no_graphs(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    job->enforce_eager = true;
    return "--enforce-eager";
}

static const char *no_video(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    if (!tide_json_at(job->config, "vision_config") || *job->values[TIDE_SET_limit_mm_per_prompt]) return NULL;
    job->limit_mm_per_prompt = job->values[TIDE_SET_limit_mm_per_prompt] = "{\"image\": 1, \"video\": 0}";
    return "--limit-mm-per-prompt '{\"image\": 1, \"video\": 0}'";
}

static const char *text_alone(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    if (!tide_json_at(job->config, "vision_config") || *job->values[TIDE_SET_limit_mm_per_prompt]) return NULL;
    if (job->language_model_only) return NULL;
    job->language_model_only = true;
    return "--language-model-only";
}

/* The shorter length suggested by the engine's refusal. */
static const char *shorter_requests(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    if (!run->figures.refusal || run->figures.longest < 1) return NULL;
    job->max_model_len = run->figures.longest;
    return tide_format(arena, "--max-model-len %lld", (long long)job->max_model_len);
}

static const char *one_adapter(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    (void)arena;
    if (!job->enable_lora || job->max_loras == 1) return NULL;
    job->max_loras = 1;
    return "--max-loras 1";
}

static const char *more_ranks(const tide_serve_run *run, tide_job *job, tide_arena *arena) {
    (void)run;
    job->tensor_parallel_size *= 2;
    return tide_format(arena, "--tensor-parallel-size %lld", (long long)job->tensor_parallel_size);
}

typedef struct lever {
    /* Returns the flag; NULL: it does not apply. */
    const char *(*change)(const tide_serve_run *run, tide_job *job, tide_arena *arena);
    bool keeps_graphs; /* the same layers are captured, for the same batch sizes or fewer */
    bool is_of_budget; /* only gpu_memory_utilization: nothing is played again */
} lever;

typedef struct gain {
    const char *flag; /* NULL: no effect */
    int64_t cache, tokens, fit;
} gain;

/* Plays a start with a flag and returns what it gains; frees its memory. */
static gain play_lever(const tide_serving *serving, const lever *of, tide_serve_descriptions *kept, tide_arena *arena) {
    const tide_serve_run *run = serving->run;
    tide_job changed = *serving->job;
    gain made = {.flag = of->change(run, &changed, arena)};
    if (!made.flag) return made;
    tide_arena scratch;
    tide_diagnostics unheard;
    tide_arena_init(&scratch, tide_arena_memory(arena), arena->escape);
    tide_diagnostics_init(&unheard, &scratch);
    tide_serve_run again;
    const tide_serve_run *other =
        of->is_of_budget && tide_serve_with_utilization(&again, run, changed.gpu_memory_utilization)
            ? &again
            : tide_serving_play(&changed, of->keeps_graphs ? run : NULL, kept, &scratch, &unheard);
    if (!other || other->figures.refusal) {
        made.flag = NULL;
    } else {
        made.cache =
            other->figures.num_blocks * other->figures.block_bytes - run->figures.num_blocks * run->figures.block_bytes;
        made.tokens = other->figures.capacity_tokens;
        made.fit = tide_serving_requests_of(serving, other);
    }
    tide_arena_free(&scratch);
    return made;
}

void tide_write_levers(tide_writer *w, const tide_serving *serving, tide_arena *arena) {
    static const lever levers[] = {
        {shorter_requests, false, false}, {fewer_requests, true, false},  {fewer_tokens, true, false},
        {one_adapter, false, false},      {more_of_the_card, true, true}, {fp8_cache, true, false},
        {fp8_weights, false, false},      {no_graphs, false, false},      {no_video, false, false},
        {text_alone, false, false},       {more_ranks, false, false}};
    int64_t requests = tide_serving_requests(serving);
    tide_serve_descriptions kept = {.arena = arena};
    tide_write_open_at(w, "levers", '[');
    for (size_t i = 0; i < TIDE_COUNT_OF(levers); i++) {
        gain made = play_lever(serving, &levers[i], &kept, arena);
        if (!made.flag || (!serving->run->figures.refusal && made.cache == 0 && made.fit == requests)) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "flag", made.flag);
        tide_write_int_at(w, "cache_bytes", made.cache);
        tide_write_int_at(w, "tokens", made.tokens);
        tide_write_int_at(w, "fit", made.fit);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* ---- how many GPUs ---- */

typedef struct shape {
    int64_t ranks, servers, requests; /* of one server, and of all */
} shape;

/* Servers with so many ranks that hold `asked` requests; servers 0: none starts. */
static shape serving_shape(const tide_serving *serving, int64_t ranks, int64_t asked, tide_arena *arena) {
    tide_job changed = *serving->job;
    tide_diagnostics unheard;
    tide_diagnostics_init(&unheard, arena);
    changed.tensor_parallel_size = ranks;
    changed.data_parallel_size = 1;
    const tide_serve_run *run = tide_serving_play(&changed, NULL, NULL, arena, &unheard);
    int64_t each = run && !run->figures.refusal ? tide_serving_requests_of(serving, run) : 0;
    int64_t servers = each ? TIDE_CEIL_DIV(asked, each) : 0;
    return (shape){ranks, servers, servers * each};
}

static const char *command_of(const tide_job *job, int64_t ranks, int64_t servers, tide_arena *arena) {
    const char *command = tide_job_serve_command(job, arena);
    if (ranks > 1) command = tide_format(arena, "%s --tensor-parallel-size %lld", command, (long long)ranks);
    return servers > 1 ? tide_format(arena, "%s --data-parallel-size %lld", command, (long long)servers) : command;
}

void tide_write_smallest(tide_writer *w, const tide_serving *serving, tide_arena *arena) {
    const tide_job *job = serving->job;
    shape best = {0};
    int64_t asked = job->max_concurrency ? job->max_concurrency : 1; /* if the engine refuses: only that it starts */
    if ((!job->max_concurrency && !serving->run->figures.refusal) || job->replicas > 1) return;
    for (int64_t ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        shape now = serving_shape(serving, ranks, asked, arena);
        if (now.servers && (!best.servers || now.ranks * now.servers < best.ranks * best.servers)) best = now;
    }
    if (!best.servers) {
        tide_write_key(w, "smallest");
        tide_write_null(w);
        return;
    }
    tide_write_open_at(w, "smallest", '{');
    tide_write_int_at(w, "cards", best.ranks * best.servers * job->pipeline_parallel_size);
    tide_write_int_at(w, "servers", best.servers);
    tide_write_int_at(w, "tensor_parallel_size", best.ranks);
    tide_write_int_at(w, "requests", best.requests);
    if (job->max_concurrency) tide_write_int_at(w, "asked", job->max_concurrency);
    if (!tide_job_sets(job, TIDE_SET_tensor_parallel_size) && !tide_job_sets(job, TIDE_SET_data_parallel_size))
        tide_write_string_at(w, "command", command_of(job, best.ranks, best.servers, arena));
    tide_write_close(w, '}');
}
