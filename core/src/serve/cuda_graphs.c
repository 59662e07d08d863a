/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: v1/worker/gpu/cudagraph_utils.py, profile_cudagraph_memory. Every piecewise graph and the two largest
 * full ones are captured; what that leaves in the allocator is measured, and the other full graphs are extrapolated.
 *
 * A capture has a private pool, whose segments stay as long as a graph lives, and a stream of its own, whose cache is
 * emptied before each graph. Two allocators play these. */
#include "allocator/allocator.h"
#include "serve/capture_player.h"
#include "serve/serve.h"

enum {
    FULL_SAMPLES = 2,         /* _FULL_GRAPH_PROFILING_SAMPLES */
    MIN_GRAPH_BYTES = 1 << 20 /* _MIN_PER_GRAPH_BYTES */
};

static void capture_graph(tide_serve_run *run, tide_serve_forward *forward, int64_t tokens, tide_capture_kind kind) {
    tide_serve_capture *c = &run->captures[run->capture_count++];
    tide_timeline *t = &run->machine.timeline;
    *c = (tide_serve_capture){.of = run, .from = t->event_count, .tokens = tokens, .kind = kind};
    tide_model_setting(&run->model, "attention_runs")->truth = kind != TIDE_CAPTURE_PIECEWISE;
    tide_model_setting(&run->model, "captures_pieces")->truth = kind == TIDE_CAPTURE_PIECEWISE;
    forward(run, tokens, kind == TIDE_CAPTURE_FIRST_RUN);
    c->to = t->event_count;
}

/* ---- graphs of another start ---- */

/* The capture of so many tokens; NULL: that start has none. */
static const tide_serve_capture *find_capture(const tide_serve_run *like, int64_t tokens, tide_capture_kind kind) {
    for (uint32_t i = 0; like && i < like->capture_count; i++)
        if (like->captures[i].tokens == tokens && like->captures[i].kind == kind) return &like->captures[i];
    return NULL;
}

/* The first allocation of a capture: lower indices that it frees belong to earlier events. */
static uint32_t first_allocation(const tide_serve_capture *c) {
    const tide_timeline *t = &c->of->machine.timeline;
    for (uint32_t i = c->from; i < c->to; i++)
        if (t->events[i] != TIDE_EMPTY_CACHE && !(t->events[i] & TIDE_FREE_BIT)) return t->events[i];
    return t->allocation_count;
}

/* Whether two captures make the same requests. */
static bool asks_the_same(const tide_serve_capture *a, const tide_serve_capture *b) {
    const tide_timeline *one = &a->of->machine.timeline, *other = &b->of->machine.timeline;
    uint32_t first = first_allocation(a), second = first_allocation(b);
    if (a->to - a->from != b->to - b->from) return false;
    for (uint32_t i = 0; i < a->to - a->from; i++) {
        uint32_t left = one->events[a->from + i], right = other->events[b->from + i];
        if (left == TIDE_EMPTY_CACHE || right == TIDE_EMPTY_CACHE) {
            if (left != right) return false;
            continue;
        }
        uint32_t from = left & ~TIDE_FREE_BIT, to = right & ~TIDE_FREE_BIT;
        if ((left & TIDE_FREE_BIT) != (right & TIDE_FREE_BIT) || from - first != to - second || from < first ||
            tide_timeline_at(one, from)->bytes != tide_timeline_at(other, to)->bytes)
            return false;
    }
    return true;
}

/* Whether a capture frees everything that it allocates, and nothing else. */
static bool leaves_nothing(const tide_serve_capture *c) {
    const tide_timeline *t = &c->of->machine.timeline;
    uint32_t first = first_allocation(c), made = 0, freed = 0;
    for (uint32_t i = c->from; i < c->to; i++) {
        uint32_t event = t->events[i];
        if (event == TIDE_EMPTY_CACHE) continue;
        if ((event & ~TIDE_FREE_BIT) < first) return false;
        made += !(event & TIDE_FREE_BIT);
        freed += (event & TIDE_FREE_BIT) != 0;
    }
    return made == freed;
}

/* Reuses a graph of `like` instead of capturing, if the largest graphs of both starts made the same requests: the model
 * is the same, and the differences between the two did not matter there. */
static bool take_capture(tide_serve_run *run, int64_t tokens) {
    const tide_serve_capture *of = find_capture(run->like, tokens, TIDE_CAPTURE_PIECEWISE);
    if (!of || !leaves_nothing(of)) return false;
    run->captures[run->capture_count++] = *of;
    return true;
}

/* Whether all graphs are those of `like`, in the same order, so that its measurement applies. */
static bool captures_the_same(const tide_serve_run *run) {
    const tide_serve_run *like = run->like;
    if (!like || !like->captured_bytes || like->capture_count != run->capture_count ||
        like->full_graphs != run->full_graphs)
        return false;
    for (uint32_t i = 0; i < run->capture_count; i++) {
        const tide_serve_capture *mine = &run->captures[i], *other = &like->captures[i];
        if (mine->tokens != other->tokens || mine->kind != other->kind ||
            !(mine->of == other->of || asks_the_same(mine, other)))
            return false;
    }
    return true;
}

/* Piecewise graphs for every batch, from the largest to the smallest. */
static void capture_pieces(tide_serve_run *run, tide_serve_forward *forward) {
    const tide_graph_sizes *g = &run->graphs;
    capture_graph(run, forward, g->sizes[g->count - 1], TIDE_CAPTURE_FIRST_RUN);
    capture_graph(run, forward, g->sizes[g->count - 1], TIDE_CAPTURE_PIECEWISE);
    const tide_serve_capture *largest = find_capture(run->like, g->sizes[g->count - 1], TIDE_CAPTURE_PIECEWISE);
    bool is_like = largest && asks_the_same(largest, &run->captures[run->capture_count - 1]);
    for (uint32_t i = g->cases * g->count - 1; i-- > 0;)
        if (!is_like || !take_capture(run, g->sizes[i / g->cases]))
            capture_graph(run, forward, g->sizes[i / g->cases], TIDE_CAPTURE_PIECEWISE);
}

/* Full graphs for batches in which each request decodes one token. */
static void capture_whole(tide_serve_run *run, tide_serve_forward *forward) {
    const tide_graph_sizes *g = &run->graphs;
    for (uint32_t i = g->cases * g->count; i-- > 0;) {
        int64_t tokens = g->sizes[i / g->cases];
        if (tokens > run->job.max_num_seqs) continue;
        if (run->full_graphs++ >= FULL_SAMPLES) continue;
        capture_graph(run, forward, tokens, run->capture_count ? TIDE_CAPTURE_RUN : TIDE_CAPTURE_FIRST_RUN);
        capture_graph(run, forward, tokens, TIDE_CAPTURE_FULL);
    }
}

void tide_serve_capture_graphs(tide_serve_run *run, tide_serve_forward *forward) {
    const tide_graph_sizes *g = &run->graphs;
    if (!g->count) return;
    run->captures = TIDE_NEW(run->machine.arena, tide_serve_capture, g->cases * g->count + 2 * FULL_SAMPLES + 1);
    if (g->has_pieces) capture_pieces(run, forward);
    if (g->has_whole) capture_whole(run, forward);
    if (captures_the_same(run)) run->captured_bytes = run->like->captured_bytes;
}

/* The device memory that a full graph took: the growth of its pool, minus what emptying the cache before it released.
 */
static int64_t sample(tide_caching_allocator *stream, uint64_t cached_before, uint64_t pool_before,
                      uint64_t pool_after) {
    return (int64_t)(pool_after - pool_before) - (int64_t)(cached_before - tide_caching_reserved(stream));
}

static bool play_all(tide_serve_run *run, tide_caching_allocator *stream, tide_caching_allocator *pool) {
    const tide_timeline *own = &run->machine.timeline, *other = run->like ? &run->like->machine.timeline : NULL;
    tide_block *blocks = TIDE_NEW(run->machine.arena, tide_block, own->allocation_count + 1);
    tide_block *taken_blocks = other ? TIDE_NEW(run->machine.arena, tide_block, other->allocation_count + 1) : NULL;
    int64_t samples[FULL_SAMPLES] = {0}, sampled = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < run->capture_count; i++) {
        const tide_serve_capture *c = &run->captures[i];
        bool is_captured = c->kind == TIDE_CAPTURE_PIECEWISE || c->kind == TIDE_CAPTURE_FULL;
        uint64_t cached = tide_caching_reserved(stream), before = tide_caching_reserved(pool);
        if (is_captured) tide_caching_empty_cache(stream);
        tide_capture_player player = {.of = c,
                                      .pool = is_captured ? pool : stream,
                                      .beside = stream,
                                      .blocks = c->of == run ? blocks : taken_blocks};
        if (!tide_play_capture(&player)) return false;
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
    if (!run->capture_count && !run->job.enforce_eager && !run->is_pooling)
        run->figures.uncertain += UINT64_C(2) * TIDE_SERVE_SEGMENT; /* for those below the two that are left */
    if (!run->capture_count) return true;
    /* Inductor chooses its buffers: a segment more or less in the pool, on the stream and at the peak of the profile
     * run, and one left by compilation. */
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
