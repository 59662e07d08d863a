/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of CUDA graphs: config/compilation.py, and config/vllm.py, _set_cudagraph_sizes. */
#include <stdlib.h>

#include "base/units.h"
#include "serve/engine_args.h"

enum {
    BLACKWELL_SIZES = 1024, /* max_cudagraph_capture_size at capability 10.x */
    SIZES = 512,            /* at others */
    SIZE_MOST = 1 << 20,    /* tokens */
    VLLM_COMPILE = 3        /* CompilationMode */
};

static const char SIZES_PLACE[] = "/settings/cudagraph_capture_sizes", CONFIG_PLACE[] = "/settings/compilation_config";

static bool add_graph_size(tide_serve_run *run, int64_t size, const char *place, tide_diagnostics *diags) {
    tide_graph_sizes *g = &run->graphs;
    if (size < 1 || size > SIZE_MOST)
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, place, "sizes are whole numbers from 1 to 1048576", NULL);
    if (g->count == TIDE_GRAPH_SIZES)
        return tide_error(diags, TIDE_ERR_LIMIT, place, "more than 256 sizes are not played", NULL);
    g->sizes[g->count++] = size;
    return true;
}

/* 1,2,4 or [1, 2, 4] or 1 2 4. */
static bool read_size_words(tide_serve_run *run, const char *text, tide_diagnostics *diags) {
    while (*text) {
        char *end;
        if (*text == ',' || *text == ' ' || *text == '[' || *text == ']') {
            text++;
            continue;
        }
        long long size = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ',' && *end != ' ' && *end != ']')) size = 0;
        if (!add_graph_size(run, size, SIZES_PLACE, diags)) return false;
        text = end;
    }
    return run->graphs.count || tide_error(diags, TIDE_ERR_FIELD_RANGE, SIZES_PLACE,
                                           "cudagraph_capture_sizes should contain at least one element when using "
                                           "cuda graph.",
                                           NULL);
}

/* arg_utils.py: given twice. */
static bool is_said_twice(tide_serve_run *run, tide_setting_id id, const char *name, tide_arena *arena,
                          tide_diagnostics *diags) {
    if (!tide_job_sets(&run->job, id)) return false;
    tide_error(diags, TIDE_ERR_FIELD_RANGE, CONFIG_PLACE,
               tide_format(arena, "%s and compilation_config.%s are mutually exclusive", name, name), NULL);
    return true;
}

static bool read_graph_mode(tide_serve_run *run, const tide_json *given, tide_arena *arena, tide_diagnostics *diags) {
    static const char *const modes[] = {"FULL_AND_PIECEWISE", "PIECEWISE", "FULL_DECODE_ONLY", "FULL", "NONE"};
    for (size_t i = 0; given->kind == TIDE_JSON_STRING && i < TIDE_COUNT_OF(modes); i++)
        if (tide_text_same(given->text, tide_text_of(modes[i]))) {
            run->job.cudagraph_mode = (enum tide_cudagraph_mode_choice)i;
            return true;
        }
    return tide_error(diags, TIDE_ERR_FIELD_RANGE, CONFIG_PLACE,
                      tide_format(arena, "cudagraph_mode must be one of FULL_AND_PIECEWISE, PIECEWISE, "
                                         "FULL_DECODE_ONLY, FULL, NONE"),
                      NULL);
}

static bool read_compilation_entry(tide_serve_run *run, const tide_json *entry, tide_arena *arena,
                                   tide_diagnostics *diags) {
    if (tide_text_is(entry->key, "cudagraph_mode"))
        return !tide_job_sets(&run->job, TIDE_SET_cudagraph_mode)
                   ? read_graph_mode(run, entry, arena, diags)
                   : !is_said_twice(run, TIDE_SET_cudagraph_mode, "cudagraph_mode", arena, diags);
    if (tide_text_is(entry->key, "max_cudagraph_capture_size") && entry->is_integer && entry->integer > 0) {
        if (entry->integer <= SIZE_MOST) run->job.max_cudagraph_capture_size = entry->integer;
        return !is_said_twice(run, TIDE_SET_max_cudagraph_capture_size, "max_cudagraph_capture_size", arena, diags);
    }
    if (tide_text_is(entry->key, "cudagraph_capture_sizes") && entry->kind == TIDE_JSON_ARRAY) {
        if (is_said_twice(run, TIDE_SET_cudagraph_capture_sizes, "cudagraph_capture_sizes", arena, diags)) return false;
        for (const tide_json *size = entry->first; size; size = size->next)
            if (!add_graph_size(run, size->is_integer ? size->integer : 0, CONFIG_PLACE, diags)) return false;
        run->graphs.are_given = true;
        return true;
    }
    if ((tide_text_is(entry->key, "mode") || tide_text_is(entry->key, "level")) && entry->is_integer &&
        entry->integer == VLLM_COMPILE)
        return true;
    return tide_error(diags, TIDE_ERR_UNSUPPORTED, CONFIG_PLACE,
                      tide_format(arena, "\"%s\" with this value is not described", tide_shown(arena, entry->key)),
                      "leave it out, or start the engine by `tidemark dry-run -- vllm serve ...`, which needs no "
                      "description");
}

bool tide_serve_read_graph_sizes(tide_serve_run *run, const tide_json *config, tide_arena *arena,
                                 tide_diagnostics *diags) {
    run->graphs = (tide_graph_sizes){.are_given = tide_job_sets(&run->job, TIDE_SET_cudagraph_capture_sizes)};
    for (const tide_json *entry = config ? config->first : NULL; entry; entry = entry->next)
        if (!read_compilation_entry(run, entry, arena, diags)) return false;
    if (tide_job_sets(&run->job, TIDE_SET_cudagraph_capture_sizes) &&
        !read_size_words(run, run->job.cudagraph_capture_sizes, diags))
        return false;
    if (run->job.cudagraph_mode == TIDE_cudagraph_mode_FULL)
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, "/settings/cudagraph_mode",
                          "whole passes of batches that do not only decode are not described",
                          "give FULL_AND_PIECEWISE, PIECEWISE, FULL_DECODE_ONLY or NONE");
    if (run->job.enforce_eager && (config || run->graphs.are_given || run->job.max_cudagraph_capture_size ||
                                   tide_job_sets(&run->job, TIDE_SET_cudagraph_mode)))
        tide_report(diags, TIDE_WARNING, TIDE_OK, "/settings/enforce_eager",
                    "no CUDA graph is captured: what is said of them has no effect", NULL);
    return true;
}

static int compare_sizes(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts, removes duplicates, and drops sizes above `tokens`. */
static void sort_graph_sizes(tide_graph_sizes *g, int64_t tokens) {
    uint32_t kept = 0;
    qsort(g->sizes, g->count, sizeof *g->sizes, compare_sizes);
    for (uint32_t i = 0; i < g->count; i++)
        if (g->sizes[i] <= tokens && (!kept || g->sizes[i] != g->sizes[kept - 1])) g->sizes[kept++] = g->sizes[i];
    g->count = kept;
}

static void default_graph_sizes(tide_serve_run *run) {
    tide_graph_sizes *g = &run->graphs;
    int64_t tokens = run->job.max_num_batched_tokens, requests = run->job.max_num_seqs,
            most = run->device.capability / 10 == 10 ? BLACKWELL_SIZES : SIZES;
    if (2 * requests < most) most = 2 * requests;
    bool has_decode = !run->job.max_cudagraph_capture_size && requests <= most;
    if (run->job.max_cudagraph_capture_size) most = run->job.max_cudagraph_capture_size;
    if (tokens < most) most = tokens;
    for (int64_t n = 1; n <= most && g->count + 2 < TIDE_GRAPH_SIZES; n = n < 8 ? 2 * n : n < 256 ? n + 8 : n + 16)
        g->sizes[g->count++] = n;
    if (tokens <= most) g->sizes[g->count++] = tokens;
    if (has_decode) g->sizes[g->count++] = requests;
}

bool tide_serve_find_graph_sizes(tide_serve_run *run) {
    tide_graph_sizes *g = &run->graphs;
    tide_arena *arena = run->machine.arena;
    int64_t asked = run->job.max_cudagraph_capture_size;
    g->has_pieces = run->job.cudagraph_mode == TIDE_cudagraph_mode_FULL_AND_PIECEWISE ||
                    run->job.cudagraph_mode == TIDE_cudagraph_mode_PIECEWISE;
    g->has_whole = run->job.cudagraph_mode == TIDE_cudagraph_mode_FULL_AND_PIECEWISE ||
                   run->job.cudagraph_mode == TIDE_cudagraph_mode_FULL_DECODE_ONLY;
    g->cases = run->job.enable_lora ? 2 : 1; /* lora_utils.py, get_lora_capture_cases */
    if (!g->are_given) default_graph_sizes(run);
    sort_graph_sizes(g, run->job.max_num_batched_tokens);
    g->most = g->count ? g->sizes[g->count - 1] : 0;
    if (g->are_given && asked && asked != g->most)
        return tide_error(run->machine.diags, TIDE_ERR_FIELD_RANGE, "/settings/max_cudagraph_capture_size",
                          tide_format(arena,
                                      "customized max_cudagraph_capture_size(=%lld) should be consistent with the max "
                                      "value of cudagraph_capture_sizes(=%lld)",
                                      (long long)asked, (long long)g->most),
                          NULL);
    if (!g->has_pieces && !g->has_whole) g->count = 0;
    return true;
}
