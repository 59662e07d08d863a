/* The engine's events through the caching allocator, and what is left for the cache. */
#include "allocator/caching_allocator.h"
#include "report/replay.h"
#include "serve/serve.h"

/* gpu_worker.py, _scoped_allocator_max_split: loading and profiling split no block above 20 MiB. */
enum { MAX_SPLIT = 20 << 20 };

static uint64_t allocated(const tide_caching_allocator *a) {
    return tide_caching_stat(a, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL).current;
}

static const char *gib(tide_arena *arena, uint64_t bytes) {
    return bytes >= 1 << 30 ? tide_format(arena, "%.2f GiB", (double)bytes / (1 << 30))
                            : tide_format(arena, "%.2f MiB", (double)bytes / (1 << 20));
}

/* c10/cuda/CUDACachingAllocator.cpp: the message of OutOfMemoryError. */
static const char *oom_text(tide_arena *arena, const tide_caching_oom *oom) {
    return tide_format(arena,
                       "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is "
                       "free. Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but "
                       "unallocated.",
                       gib(arena, oom->tried_bytes), gib(arena, oom->total_bytes), gib(arena, oom->free_bytes),
                       gib(arena, oom->allocated_bytes), gib(arena, oom->unallocated_bytes));
}

typedef struct player {
    tide_caching_allocator *allocator;
    const tide_timeline *timeline;
    tide_block *blocks;
    uint32_t at;
    bool is_oom;
} player;

static bool play_to(player *p, uint32_t end) {
    for (; p->at < end; p->at++) {
        uint32_t event = p->timeline->events[p->at], which = event & ~TIDE_FREE_BIT;
        if (event == TIDE_EMPTY_CACHE) {
            tide_caching_empty_cache(p->allocator);
        } else if (event & TIDE_FREE_BIT) {
            tide_caching_free(p->allocator, p->blocks[which]);
            p->blocks[which] = 0;
        } else {
            const tide_allocation *a = &p->timeline->allocations[which];
            tide_caching_status status = tide_caching_malloc(p->allocator, a->bytes, a->stream, &p->blocks[which]);
            if (status == TIDE_CACHING_OK) continue;
            p->is_oom = status == TIDE_CACHING_OOM;
            return false;
        }
    }
    return true;
}

static uint64_t requested_bytes(const tide_serve_run *run) {
    uint64_t ppm = (uint64_t)run->settings.utilization_ppm, total = run->device.total_bytes;
    return total / 1000000 * ppm + (total % 1000000 * ppm + 999999) / 1000000;
}

bool tide_serve_budget(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    const tide_timeline *t = &run->machine.timeline;
    tide_arena *arena = run->machine.arena;
    tide_replay_config config = {.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                 .device_bytes = run->device.total_bytes,
                                 .outside_bytes = run->device.used_bytes};
    player p = {.timeline = t, .blocks = TIDE_NEW(arena, tide_block, t->allocation_count + 1)};
    f->requested = requested_bytes(run);
    uint64_t free_at_start = run->device.total_bytes - run->device.used_bytes;
    if (free_at_start < f->requested) {
        f->refusal = tide_format(arena,
                                 "Free memory on device cuda:0 (%.2f/%.2f GiB) on startup is less than desired GPU "
                                 "memory utilization (%g, %.2f GiB). Decrease GPU memory utilization or reduce GPU "
                                 "memory used by other processes.",
                                 (double)free_at_start / (1 << 30), (double)run->device.total_bytes / (1 << 30),
                                 (double)run->settings.utilization_ppm / 1e6, (double)f->requested / (1 << 30));
        return false;
    }
    if (!tide_replay_allocator(&p.allocator, tide_arena_memory(arena), &config, false)) return false;
    bool ok = play_to(&p, run->load_event);
    f->before_load = allocated(p.allocator);
    tide_caching_set_max_split(p.allocator, MAX_SPLIT);
    ok = ok && play_to(&p, run->loaded_event);
    f->model_bytes = allocated(p.allocator) - f->before_load;
    ok = ok && play_to(&p, run->profile_event);
    f->after_load = allocated(p.allocator);
    tide_caching_reset_peaks(p.allocator);
    ok = ok && play_to(&p, t->event_count);
    tide_caching_empty_cache(p.allocator);
    uint64_t peak = tide_caching_stat(p.allocator, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL).peak;
    f->consumed = tide_caching_reserved(p.allocator);
    f->transient = peak - allocated(p.allocator);
    if (f->transient < f->compiling_bytes) f->transient = f->compiling_bytes;
    if (p.is_oom) {
        tide_caching_oom oom = tide_caching_oom_info(p.allocator);
        f->refusal = oom_text(arena, &oom);
    }
    tide_caching_destroy(p.allocator);
    f->available = run->settings.kv_cache_memory_bytes
                       ? run->settings.kv_cache_memory_bytes
                       : (int64_t)(f->requested - f->consumed - f->transient - f->graph_bytes);
    return ok;
}
