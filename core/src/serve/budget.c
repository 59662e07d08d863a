/* SPDX-License-Identifier: Apache-2.0 */
/* Plays the engine's events through the caching allocator, and computes what is left for the cache. */
#include "allocator/allocator.h"
#include "serve/serve.h"

/* gpu_worker.py, _scoped_allocator_max_split: during loading and profiling no block above 20 MiB is split. */
enum { MAX_SPLIT = 20 << 20, SLEEPING_POOL = 1 };

/* format_size */
static const char *size_text(tide_arena *arena, uint64_t bytes) {
    if (bytes <= 1 << 10) return tide_format(arena, "%llu bytes", (unsigned long long)bytes);
    if (bytes <= 1 << 20) return tide_format(arena, "%.2f KiB", (double)bytes / (1 << 10));
    if (bytes <= 1 << 30) return tide_format(arena, "%.2f MiB", (double)bytes / (1 << 20));
    return tide_format(arena, "%.2f GiB", (double)bytes / (1 << 30));
}

/* c10/cuda/CUDACachingAllocator.cpp: the message of OutOfMemoryError. */
const char *tide_serve_oom_text(tide_arena *arena, const tide_caching_oom *oom) {
    return tide_format(arena,
                       "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is "
                       "free. Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but "
                       "unallocated.",
                       size_text(arena, oom->tried_bytes), size_text(arena, oom->total_bytes),
                       size_text(arena, oom->free_bytes), size_text(arena, oom->allocated_bytes),
                       size_text(arena, oom->unallocated_bytes));
}

static uint64_t requested_bytes(const tide_serve_run *run) {
    uint64_t ppm = (uint64_t)tide_serve_utilization_ppm(run), total = run->device.total_bytes;
    return total / 1000000 * ppm + (total % 1000000 * ppm + 999999) / 1000000;
}

/* CUDAGraph::capture_begin: seed and offset of the generator, for each graph. */
static void register_graphs(tide_serve_run *run, tide_caching_allocator *a) {
    uint64_t reserved = tide_caching_reserved(a);
    int64_t pieces = 1 + run->spec_count, count = 0;
    for (uint32_t i = 0; i < run->capture_count; i++)
        count += run->captures[i].kind == TIDE_CAPTURE_PIECEWISE ? pieces : run->captures[i].kind == TIDE_CAPTURE_FULL;
    for (int64_t i = 0; i < 2 * count; i++) {
        tide_block block;
        if (tide_caching_malloc(a, sizeof(int64_t), 0, &block) != TIDE_CACHING_OK) return;
    }
    run->figures.graph_bytes += tide_caching_reserved(a) - reserved;
}

/* device_allocator/cumem.py, use_memory_pool("weights"): weights are in a separate pool, like on another stream. */
static void pool_weights(tide_serve_run *run) {
    const tide_timeline *t = &run->machine.timeline;
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (tide_timeline_at(t, i)->born >= run->load_event && tide_timeline_at(t, i)->born < run->profile_event)
            tide_timeline_at(t, i)->stream = SLEEPING_POOL;
}

/* Whether that much memory is free at all; v1/worker/utils.py, request_memory. */
static bool may_request(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    f->requested = requested_bytes(run);
    uint64_t free_at_start = run->device.total_bytes - run->device.used_bytes;
    if (free_at_start >= f->requested) return true;
    f->refusal = tide_format(run->machine.arena,
                             "Free memory on device cuda:0 (%.2f/%.2f GiB) on startup is less than desired GPU "
                             "memory utilization (%g, %.2f GiB). Decrease GPU memory utilization or reduce GPU "
                             "memory used by other processes.",
                             (double)free_at_start / (1 << 30), (double)run->device.total_bytes / (1 << 30),
                             (double)tide_serve_utilization_ppm(run) / 1e6, (double)f->requested / (1 << 30));
    return false;
}

static void find_available(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    f->available = run->job.kv_cache_memory_bytes
                       ? run->job.kv_cache_memory_bytes
                       : (int64_t)(f->requested - f->consumed - f->transient - f->graph_bytes);
    if (run->is_pooling) f->available = 0;
}

bool tide_serve_budget(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    const tide_timeline *t = &run->machine.timeline;
    tide_arena *arena = run->machine.arena;
    tide_replay_config config = {.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                 .device_bytes = run->device.total_bytes,
                                 .outside_bytes = run->device.used_bytes};
    tide_event_source source = tide_timeline_events(t);
    tide_player p;
    if (!may_request(run)) return false;
    if (run->job.enable_sleep_mode) pool_weights(run);
    if (!tide_player_open(&p, &source, &config, arena) || !tide_player_run(&p, run->load_event)) return false;
    f->before_load = p.figures.allocated;
    tide_caching_set_max_split(p.allocator, MAX_SPLIT);
    if (!tide_player_run(&p, run->loaded_event)) return false;
    f->model_bytes = p.figures.allocated - f->before_load;
    if (!tide_player_run(&p, run->profile_event)) return false;
    f->after_load = p.figures.allocated;
    p.phase_peak = p.figures.allocated;
    if (!tide_player_run(&p, run->profiled_event)) return false;
    tide_caching_empty_cache(p.allocator);
    f->consumed = tide_caching_reserved(p.allocator);
    f->transient = p.phase_peak - p.figures.allocated;
    register_graphs(run, p.allocator);
    if (p.figures.is_oom) f->refusal = tide_serve_oom_text(arena, &p.figures.oom);
    tide_player_close(&p);
    find_available(run);
    return !p.figures.is_oom;
}

bool tide_serve_with_utilization(tide_serve_run *run, const tide_serve_run *like, int64_t utilization) {
    bool is_alone = like->job.engine == TIDE_engine_vllm && like->job.pipeline_parallel_size == 1;
    if (!is_alone || !like->figures.num_blocks || like->job.max_model_len == TIDE_SERVE_AUTO) return false;
    *run = *like;
    run->job.gpu_memory_utilization = utilization;
    if (!may_request(run)) return true;
    find_available(run);
    tide_cache_blocks(run);
    return true;
}
