/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded starts of inference servers, predicted.
 *
 *     test_serve FILE [-v]     a result of the serving oracle per line
 *
 * A start passes where its weights, what it keeps and takes for a moment, its blocks and its refusals are equal to what
 * was recorded; where the answer is a range, the recorded number of blocks is in it. -v: a line for each.
 *
 * And starts that take CUDA graphs of another one measure what they do alone; layers of a graph that are not played
 * leave what they would. */
#define _POSIX_C_SOURCE 200809L
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/arguments.h"
#include "serve/capture_player.h"
#include "serve/serve.h"

static int passed, failed;
static bool is_verbose;

static double number_at(const cJSON *object, const char *key, double otherwise) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

static const char *text_at(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static const tide_json *parse(tide_arena *arena, const cJSON *value, tide_diagnostics *diags) {
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    const tide_json *made =
        text ? tide_json_parse(arena, tide_text_of(tide_text_copy(arena, tide_text_of(text))), "/test", diags) : NULL;
    cJSON_free(text);
    return made;
}

static const tide_job *read_case(tide_arena *arena, const cJSON *of_case, tide_serve_device *d,
                                 tide_diagnostics *diags) {
    const tide_json *given = parse(arena, of_case, diags);
    tide_text *words;
    tide_file *files = NULL;
    uint32_t word_count, file_count = 0;
    if (!tide_serve_device_of_case(given, d)) return NULL;
    tide_job_arguments_of_start(arena, given, &words, &word_count);
    tide_job_add_files_of_case(arena, given, &files, &file_count);
    return tide_job_build(arena, words, word_count, files, file_count, diags);
}

static int differs(const char *id, const char *what, double got, double recorded) {
    if (recorded < 0 || got == recorded) return 0;
    printf("%s: %s is %.0f, recorded %.0f (%+.0f)\n", id, what, got, recorded, got - recorded);
    return 1;
}

static int is_outside(const char *id, const tide_serve_figures *f, double blocks) {
    if (blocks >= (double)f->blocks_at_least && blocks <= (double)f->blocks_at_most) return 0;
    printf("%s: %.0f blocks were recorded, said to be from %lld to %lld\n", id, blocks, (long long)f->blocks_at_least,
           (long long)f->blocks_at_most);
    return 1;
}

static void check(const cJSON *measured) {
    const cJSON *of_case = cJSON_GetObjectItem(measured, "case"), *memory = cJSON_GetObjectItem(measured, "memory"),
                *kv = cJSON_GetObjectItem(measured, "kv"), *profile = cJSON_GetObjectItem(memory, "profile"),
                *weights = cJSON_GetObjectItem(measured, "weights");
    const char *id = text_at(of_case, "id"), *outcome = text_at(measured, "outcome");
    tide_arena arena;
    tide_diagnostics diags;
    jmp_buf escape;
    if (setjmp(escape)) exit(2);
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    tide_diagnostics_init(&diags, &arena);
    tide_serve_device device;
    tide_serve_run *run = TIDE_NEW(&arena, tide_serve_run, 1);
    int wrong = 0;
    const tide_job *job = read_case(&arena, of_case, &device, &diags);
    if (!job || !tide_serve_start(run, job, &device, &arena, &diags)) {
        printf("%s: not expressed: %s: %s\n", id, diags.count ? diags.items[0].place : "",
               diags.count ? diags.items[0].message : "");
        wrong++;
    } else {
        const tide_serve_figures *f = &run->figures;
        wrong += differs(id, "weights", (double)f->weight_bytes, number_at(weights, "bytes", -1));
        if (!f->uncertain && number_at(memory, "model_bytes", -1) > 0)
            wrong += differs(id, "model_bytes", (double)f->model_bytes, number_at(memory, "model_bytes", -1));
        wrong += differs(id, "started", (double)f->started, number_at(measured, "reserved_after_start", -1));
        wrong += differs(id, "reserved", (double)f->reserved, number_at(measured, "reserved_peak", -1));
        if (!f->uncertain) {
            wrong += differs(id, "consumed", (double)f->consumed, number_at(profile, "total_consumed", -1));
            wrong += differs(id, "transient", (double)f->transient, number_at(profile, "transient_peak", -1));
        }
        if (strcmp(outcome, "ok") == 0) {
            wrong += differs(id, "block_bytes", (double)f->block_bytes, number_at(kv, "block_bytes", -1));
            if (f->uncertain) {
                wrong += is_outside(id, f, number_at(kv, "num_blocks", -1));
            } else {
                wrong += differs(id, "num_blocks", (double)f->num_blocks, number_at(kv, "num_blocks", -1));
                wrong += differs(id, "capacity", (double)f->capacity_tokens, number_at(kv, "capacity_tokens", -1));
            }
        }
        const char *message = text_at(measured, "message");
        if ((f->refusal != NULL) != (strcmp(outcome, "refused") == 0)) {
            printf("%s: %s, recorded %s: %s\n", id, f->refusal ? f->refusal : "starts", outcome,
                   message ? message : "");
            wrong++;
        } else if (f->refusal && is_verbose) {
            printf("%s:\n   %s\n   %s\n", id, f->refusal, message);
        }
    }
    if (is_verbose && !wrong) printf("%s: equal\n", id);
    if (wrong)
        failed++;
    else
        passed++;
    tide_arena_free(&arena);
}

/* ---- starts by words ---- */

enum { WORDS = 6 };

static tide_serve_run *start_of(tide_arena *arena, const char *const *words, const tide_serve_run *like) {
    tide_diagnostics diags;
    tide_text given[WORDS];
    uint32_t count = 0;
    for (; count < WORDS && words[count]; count++) given[count] = tide_text_of(words[count]);
    tide_diagnostics_init(&diags, arena);
    const tide_job *job = tide_job_build(arena, given, count, NULL, 0, &diags);
    tide_serve_run *run = TIDE_NEW(arena, tide_serve_run, 1);
    run->like = like;
    if (!job) return NULL;
    tide_serve_device device = tide_serve_device_of(job, arena);
    return tide_serve_start(run, job, &device, arena, &diags) ? run : NULL;
}

/* ---- equal layers of a graph ---- */

static bool play_each(const tide_serve_capture *c, tide_caching_allocator *pool, tide_caching_allocator *beside,
                      tide_block *blocks) {
    const tide_timeline *t = &c->of->machine.timeline;
    bool ok = true;
    for (uint32_t i = c->from; i < c->to && ok; i++) {
        uint32_t event = t->events[i], which = event & ~TIDE_FREE_BIT;
        if (event == TIDE_EMPTY_CACHE || tide_timeline_at(t, which)->born < c->of->profiled_event) continue;
        tide_caching_allocator *a = tide_timeline_at(t, which)->stream == TIDE_SERVE_BESIDE_GRAPHS ? beside : pool;
        ok = event & TIDE_FREE_BIT
                 ? tide_caching_free(a, blocks[which]) == TIDE_CACHING_OK
                 : tide_caching_malloc(a, tide_timeline_at(t, which)->bytes, 0, &blocks[which]) == TIDE_CACHING_OK;
    }
    return ok;
}

static uint64_t requests_of(const tide_caching_allocator *a) {
    return tide_caching_stat(a, TIDE_STAT_ALLOCATION, TIDE_POOL_ALL).allocated;
}

/* What a graph leaves is what its events leave one by one; `most`: of these, in percent, so many are played. */
static void check_equal_layers(const char *model, const char *gpu, uint64_t most) {
    enum { POOL, STREAM, POOL_OF_EACH, STREAM_OF_EACH, ALLOCATORS };
    tide_arena arena;
    jmp_buf escape;
    if (setjmp(escape)) exit(2);
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    const char *words[WORDS] = {"mode=serve", model, gpu, "max_model_len=2048"};
    const tide_serve_run *run = start_of(&arena, words, NULL);
    tide_caching_allocator *a[ALLOCATORS] = {NULL};
    const tide_caching_config config = {.memory = tide_default_allocator(),
                                        .conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                        .device_bytes = UINT64_C(1) << 40};
    bool ok = run && run->capture_count;
    for (int i = 0; i < ALLOCATORS; i++) ok = tide_caching_create(&a[i], &config) == TIDE_CACHING_OK && ok;
    uint32_t count = ok ? run->machine.timeline.allocation_count : 0;
    tide_block *blocks = TIDE_NEW(&arena, tide_block, count + 1), *of_each = TIDE_NEW(&arena, tide_block, count + 1);
    for (uint32_t i = 0; ok && i < run->capture_count; i++) {
        const tide_serve_capture *c = &run->captures[i];
        bool is_captured = c->kind == TIDE_CAPTURE_PIECEWISE || c->kind == TIDE_CAPTURE_FULL;
        tide_capture_player player = {c, a[is_captured ? POOL : STREAM], a[STREAM], blocks};
        ok = tide_play_capture(&player) &&
             play_each(c, a[is_captured ? POOL_OF_EACH : STREAM_OF_EACH], a[STREAM_OF_EACH], of_each) &&
             tide_caching_reserved(a[POOL]) == tide_caching_reserved(a[POOL_OF_EACH]) &&
             tide_caching_reserved(a[STREAM]) == tide_caching_reserved(a[STREAM_OF_EACH]);
        if (!ok) printf("%s: graph %u, of %lld tokens, leaves other segments\n", model, i, (long long)c->tokens);
    }
    uint64_t played = ok ? requests_of(a[POOL]) : 0, each = ok ? requests_of(a[POOL_OF_EACH]) : 0;
    if (ok && played * 100 > each * most) {
        printf("%s: %" PRIu64 " of %" PRIu64 " requests are played\n", model, played, each);
        ok = false;
    }
    for (int i = 0; i < ALLOCATORS; i++) tide_caching_destroy(a[i]);
    *(ok ? &passed : &failed) += 1;
    tide_arena_free(&arena);
}

/* ---- graphs of another start ---- */

static uint32_t taken_of(const tide_serve_run *run) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < run->capture_count; i++) taken += run->captures[i].of != run;
    return taken;
}

static void check_taken_graphs(void) {
    /* Latent attention has max_num_seqs in its graphs, and Hopper's attention the dtype of the cache. */
    static const struct {
        const char *model, *gpu, *change;
        bool is_taken;
    } rows[] = {{"model=llama-3.2-1b", "gpu=l40s", "max_num_seqs=32", true},
                {"model=llama-3.2-1b", "gpu=l40s", "kv_cache_dtype=fp8", true},
                {"model=llama-3.2-1b", "gpu=h100-80", "kv_cache_dtype=fp8", false},
                {"model=llama-3.2-1b", "gpu=h100-80", "max_num_batched_tokens=100", false},
                {"model=qwen1.5-moe-a2.7b", "gpu=h100-80", "max_num_seqs=64", true},
                {"model=gemma-3-1b", "gpu=a100-80", "max_num_seqs=128", true},
                {"model=deepseek-v2-lite", "gpu=h100-80", "max_num_seqs=16", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tide_arena arena;
        jmp_buf escape;
        if (setjmp(escape)) exit(2);
        tide_arena_init(&arena, tide_default_allocator(), &escape);
        const char *words[WORDS] = {"mode=serve", rows[i].model, rows[i].gpu, "max_model_len=2048"};
        const tide_serve_run *like = start_of(&arena, words, NULL);
        words[4] = rows[i].change;
        const tide_serve_run *alone = start_of(&arena, words, NULL), *beside = start_of(&arena, words, like);
        bool is_equal = like && alone && beside && alone->figures.graph_bytes == beside->figures.graph_bytes &&
                        alone->figures.num_blocks == beside->figures.num_blocks &&
                        (taken_of(beside) > 0) == rows[i].is_taken && taken_of(alone) == 0;
        if (!is_equal)
            printf("%s %s %s: graphs of another start: %u taken, %lld bytes, alone %lld\n", rows[i].model, rows[i].gpu,
                   rows[i].change, beside ? taken_of(beside) : 0, beside ? (long long)beside->figures.graph_bytes : -1,
                   alone ? (long long)alone->figures.graph_bytes : -1);
        *(is_equal ? &passed : &failed) += 1;
        tide_arena_free(&arena);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    is_verbose = argc > 2 && strcmp(argv[argc - 1], "-v") == 0;
    for (int i = 1; i < argc - is_verbose; i++) {
        FILE *file = fopen(argv[i], "rb");
        char *line = NULL;
        size_t size = 0;
        while (file && getline(&line, &size, file) > 0) {
            cJSON *measured = cJSON_Parse(line);
            if (cJSON_IsObject(measured)) check(measured);
            cJSON_Delete(measured);
        }
        free(line);
        if (file) fclose(file);
    }
    check_taken_graphs();
    check_equal_layers("model=llama-3.2-1b", "gpu=h100-80", 60);
    check_equal_layers("model=llama-3.1-8b", "gpu=l40s", 40);
    check_equal_layers("model=qwen3-30b-a3b", "gpu=h100-80", 40);
    check_equal_layers("model=gemma-3-1b", "gpu=a100-80", 100);
    check_equal_layers("model=deepseek-v2-lite", "gpu=h100-80", 100);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
