/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: v1/worker/gpu/cudagraph_utils.py, profile_cudagraph_memory. Every piecewise graph and the two largest
 * full ones are captured; what that leaves in the allocator is measured, and the other full graphs are extrapolated.
 *
 * A capture has a private pool, whose segments stay while a graph lives, and a stream of its own, whose cache is
 * emptied before each graph. Two allocators play them. */
#include "allocator/allocator.h"
#include "serve/serve.h"

enum {
    FULL_SAMPLES = 2,          /* _FULL_GRAPH_PROFILING_SAMPLES */
    MIN_GRAPH_BYTES = 1 << 20, /* _MIN_PER_GRAPH_BYTES */
    SIZE_LIMIT = 128,          /* of sizes that are captured */
    BLACKWELL_SIZES = 1024,    /* max_cudagraph_capture_size of capability 10.x */
    SIZES = 512                /* of others */
};

int64_t tide_serve_most_captured(const tide_serve_run *run) {
    int64_t most = run->device.capability / 10 == 10 ? BLACKWELL_SIZES : SIZES,
            tokens = run->job.max_num_batched_tokens;
    if (2 * run->job.max_num_seqs < most) most = 2 * run->job.max_num_seqs;
    return tokens < most ? tokens : most;
}

/* config/vllm.py, _set_cudagraph_sizes: from the smallest to the largest. */
static uint32_t capture_sizes(const tide_serve_run *run, int64_t *sizes) {
    int64_t most = tide_serve_most_captured(run), tokens = run->job.max_num_batched_tokens;
    uint32_t count = 0;
    for (int64_t n = 1; n <= most; n = n < 8 ? 2 * n : n < 256 ? n + 8 : n + 16) sizes[count++] = n;
    if (count && tokens == most && sizes[count - 1] != tokens) sizes[count++] = tokens;
    return count;
}

static void capture_graph(tide_serve_run *run, tide_serve_forward *forward, int64_t tokens, tide_capture_kind kind) {
    tide_serve_capture *c = &run->captures[run->capture_count++];
    tide_timeline *t = &run->machine.timeline;
    *c = (tide_serve_capture){.from = t->event_count, .kind = kind};
    tide_model_setting(&run->model, "attention_runs")->truth = kind != TIDE_CAPTURE_PIECEWISE;
    forward(run, tokens, kind == TIDE_CAPTURE_FIRST_RUN);
    c->to = t->event_count;
}

/* Whether another start has captured the same sizes: more tokens in a batch change none of the graphs. */
static bool has_captured(const tide_serve_run *like, const int64_t *sizes, uint32_t count) {
    int64_t others[SIZE_LIMIT];
    if (!like || !like->captured_bytes || capture_sizes(like, others) != count) return false;
    for (uint32_t i = 0; i < count; i++)
        if (sizes[i] != others[i]) return false;
    return true;
}

void tide_serve_capture_graphs(tide_serve_run *run, tide_serve_forward *forward) {
    int64_t sizes[SIZE_LIMIT];
    uint32_t count = capture_sizes(run, sizes), full = 0;
    if (has_captured(run->like, sizes, count)) {
        run->captures = run->like->captures;
        run->capture_count = run->like->capture_count;
        run->captured_bytes = run->like->captured_bytes;
        return;
    }
    run->captures = TIDE_NEW(run->machine.arena, tide_serve_capture, count + 2 * FULL_SAMPLES + 1);
    if (!count) return;
    capture_graph(run, forward, sizes[count - 1], TIDE_CAPTURE_FIRST_RUN);
    for (uint32_t i = count; i-- > 0;) capture_graph(run, forward, sizes[i], TIDE_CAPTURE_PIECEWISE);
    for (uint32_t i = count; i-- > 0;) {
        if (sizes[i] > run->job.max_num_seqs) continue;
        if (full++ >= FULL_SAMPLES) continue;
        capture_graph(run, forward, sizes[i], TIDE_CAPTURE_RUN);
        capture_graph(run, forward, sizes[i], TIDE_CAPTURE_FULL);
    }
    run->full_graphs = full;
}

/* The events of a capture; false: out of memory. */
static bool play_capture(tide_serve_run *run, const tide_serve_capture *c, tide_caching_allocator *a,
                         tide_block *blocks) {
    const tide_timeline *t = &run->machine.timeline;
    for (uint32_t i = c->from; i < c->to; i++) {
        uint32_t event = t->events[i], allocation = event & ~TIDE_FREE_BIT;
        if (event == TIDE_EMPTY_CACHE || t->allocations[allocation].born < run->profiled_event) continue;
        bool is_touch = i + 1 < c->to && t->events[i + 1] == (allocation | TIDE_FREE_BIT);
        uint64_t taken;
        if (event & TIDE_FREE_BIT)
            tide_caching_free(a, blocks[allocation]);
        else if (is_touch && tide_caching_touch(a, t->allocations[allocation].bytes, 0, &taken) == TIDE_CACHING_OK)
            i++;
        else if (tide_caching_malloc(a, t->allocations[allocation].bytes, 0, &blocks[allocation]) != TIDE_CACHING_OK)
            return false;
    }
    return true;
}

/* What a full graph took of the device: its pool's growth, less what emptying the cache before it gave back. */
static int64_t sample(tide_caching_allocator *stream, uint64_t cached_before, uint64_t pool_before,
                      uint64_t pool_after) {
    return (int64_t)(pool_after - pool_before) - (int64_t)(cached_before - tide_caching_reserved(stream));
}

static bool play_all(tide_serve_run *run, tide_caching_allocator *stream, tide_caching_allocator *pool) {
    tide_block *blocks = TIDE_NEW(run->machine.arena, tide_block, run->machine.timeline.allocation_count + 1);
    int64_t samples[FULL_SAMPLES] = {0}, sampled = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < run->capture_count; i++) {
        const tide_serve_capture *c = &run->captures[i];
        bool is_captured = c->kind == TIDE_CAPTURE_PIECEWISE || c->kind == TIDE_CAPTURE_FULL;
        uint64_t cached = tide_caching_reserved(stream), before = tide_caching_reserved(pool);
        if (is_captured) tide_caching_empty_cache(stream);
        if (!play_capture(run, c, is_captured ? pool : stream, blocks)) return false;
        if (c->kind == TIDE_CAPTURE_FULL)
            sampled += samples[taken++] = sample(stream, cached, before, tide_caching_reserved(pool));
    }
    int64_t measured = (int64_t)(tide_caching_reserved(stream) + tide_caching_reserved(pool));
    int64_t each = samples[1] > MIN_GRAPH_BYTES ? samples[1] : MIN_GRAPH_BYTES;
    int64_t full = taken ? samples[0] + (taken > 1 ? (int64_t)(run->full_graphs - 1) * each : 0) : 0;
    int64_t estimate = measured - sampled + full;
    run->captured_bytes = estimate > 0 ? (uint64_t)estimate : 0;
    return true;
}

bool tide_serve_graphs(tide_serve_run *run) {
    const tide_caching_config config = {.memory = tide_default_allocator(),
                                        .conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                        .device_bytes = run->device.total_bytes,
                                        .is_lean = true};
    tide_caching_allocator *stream = NULL, *pool = NULL;
    if (!run->capture_count) return true;
    /* Inductor chooses its buffers: a segment more or less in the pool, on the stream and at the profile run's peak,
     * and one that compiling leaves. */
    run->figures.uncertain += UINT64_C(4) * TIDE_SERVE_SEGMENT;
    run->figures.graph_bytes = run->captured_bytes;
    if (run->captured_bytes) return true;
    bool ok = tide_caching_create(&stream, &config) == TIDE_CACHING_OK &&
              tide_caching_create(&pool, &config) == TIDE_CACHING_OK && play_all(run, stream, pool);
    tide_caching_destroy(stream);
    tide_caching_destroy(pool);
    run->figures.graph_bytes = run->captured_bytes;
    return ok ||
           tide_error(run->machine.diags, TIDE_ERR_NO_MEMORY, "/model", "no memory for the capture of graphs", NULL);
}
