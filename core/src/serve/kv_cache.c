/* SPDX-License-Identifier: Apache-2.0 */
/* Cache groups, blocks, and how many requests fit: vLLM, v1/core/kv_cache_utils.py, v1/kv_cache_interface.py. */
#include "base/units.h"
#include "serve/serve.h"

#include <string.h>

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* KVCacheSpec.max_memory_usage_bytes, in pages. */
static int64_t blocks_of_spec(const tide_serve_run *run, const tide_cache_spec *s, int64_t length) {
    switch (s->kind) {
    case TIDE_CACHE_SLIDING:
        return tide_ceil_div(least(s->window - 1 + run->figures.tokens_in_flight, length), s->block_size) + 1;
    case TIDE_CACHE_CHUNKED:
        return tide_ceil_div(least(s->window + run->figures.tokens_in_flight, length), s->block_size);
    case TIDE_CACHE_STATE: /* mamba_cache_mode "align": the state, the previous one and a checkpoint */
        return s->window + run->drafts.tokens;
    case TIDE_CACHE_CROSS:
        return tide_ceil_div(s->window, s->block_size);
    case TIDE_CACHE_FULL:
    case TIDE_CACHE_LATENT:
        break;
    }
    return tide_ceil_div(length, s->block_size);
}

static bool same_kind(const tide_cache_spec *a, const tide_cache_spec *b) {
    return a->kind == b->kind && a->window == b->window;
}

static bool same_spec(const tide_cache_spec *a, const tide_cache_spec *b) {
    return same_kind(a, b) && a->block_size == b->block_size && a->page_bytes == b->page_bytes;
}

/* unify_hybrid_kv_cache_specs: layers with sliding windows are stored like full attention. */
static void promote_windows(tide_serve_run *run) {
    bool has_full = false;
    for (uint32_t i = 0; i < run->spec_count; i++)
        has_full = has_full || run->specs[i].kind == TIDE_CACHE_FULL || run->specs[i].kind == TIDE_CACHE_LATENT;
    for (uint32_t i = 0; i < run->spec_count && has_full; i++)
        if (run->specs[i].kind == TIDE_CACHE_SLIDING || run->specs[i].kind == TIDE_CACHE_CHUNKED) {
            run->specs[i].kind = TIDE_CACHE_FULL;
            run->specs[i].window = 0;
        }
}

/* unify_kv_cache_spec_page_size: by larger blocks if page sizes divide each other, else by padding. */
static bool unify_pages(tide_serve_run *run) {
    int64_t most = 0;
    for (uint32_t i = 0; i < run->spec_count; i++)
        if (run->specs[i].page_bytes > most) most = run->specs[i].page_bytes;
    for (uint32_t i = 0; i < run->spec_count; i++) {
        tide_cache_spec *s = &run->specs[i];
        if (s->page_bytes == most) continue;
        if (s->kind != TIDE_CACHE_STATE && most % s->page_bytes == 0) s->block_size *= most / s->page_bytes;
        if (s->kind == TIDE_CACHE_LATENT && most % s->page_bytes != 0)
            return tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, "/model",
                              "latent attention beside layers whose pages it does not divide: how the engine groups "
                              "them is not described",
                              NULL);
        s->page_bytes = most;
    }
    return true;
}

static tide_cache_group *add_cache_group(tide_serve_run *run, const tide_cache_spec *spec, int64_t layers) {
    tide_serve_figures *f = &run->figures;
    if (f->group_count == TIDE_CACHE_GROUP_LIMIT) return NULL;
    tide_cache_group *g = &f->groups[f->group_count++];
    *g = (tide_cache_group){.spec = *spec, .layers = layers};
    return g;
}

/* _get_kv_cache_groups_uniform_page_size: layers of one kind are divided into groups of equal size. */
static bool split_groups(tide_serve_run *run) {
    tide_cache_spec kinds[TIDE_CACHE_GROUP_LIMIT];
    int64_t counts[TIDE_CACHE_GROUP_LIMIT], fewest = INT64_MAX, most = 0;
    uint32_t kind_count = 0;
    for (uint32_t i = 0; i < run->spec_count; i++) {
        uint32_t k = 0;
        while (k < kind_count && !same_spec(&kinds[k], &run->specs[i])) k++;
        if (k == TIDE_CACHE_GROUP_LIMIT)
            return tide_error(run->machine.diags, TIDE_ERR_LIMIT, "/model", "too many kinds of cache", NULL);
        if (k == kind_count) {
            kinds[kind_count] = run->specs[i];
            counts[kind_count++] = 0;
        }
        counts[k]++;
    }
    for (uint32_t k = 0; k < kind_count; k++) {
        if (counts[k] < fewest) fewest = counts[k];
        if (counts[k] > most) most = counts[k];
    }
    int64_t size = 2 * most < 3 * fewest ? most : fewest;
    for (uint32_t k = 0; k < kind_count; k++) {
        int64_t groups = tide_ceil_div(counts[k], size);
        for (int64_t g = 0; g < groups; g++)
            if (!add_cache_group(run, &kinds[k], tide_ceil_div(counts[k] - g, groups)))
                return tide_error(run->machine.diags, TIDE_ERR_LIMIT, "/model", "too many cache groups", NULL);
    }
    run->figures.block_bytes = size * kinds[0].page_bytes;
    return true;
}

/* platforms/interface.py, update_block_size_for_backend: a block of attention is enlarged to the size of a state, which
 * is padded to it. Models with only states have one block per request. */
static void align_states(tide_serve_run *run) {
    int64_t state = 0, token = 0;
    for (uint32_t i = 0; i < run->spec_count; i++) {
        const tide_cache_spec *s = &run->specs[i];
        if (s->kind == TIDE_CACHE_STATE && s->page_bytes > state) state = s->page_bytes;
        if (s->kind != TIDE_CACHE_STATE && s->token_bytes > token) token = s->token_bytes;
    }
    if (!state) return;
    int64_t step = run->job.block_size > 16 ? run->job.block_size : 16;
    int64_t block = token ? step * tide_ceil_div(state, step * token) : run->figures.max_model_len;
    for (uint32_t i = 0; i < run->spec_count; i++) {
        tide_cache_spec *s = &run->specs[i];
        if (s->kind != TIDE_CACHE_STATE) {
            s->block_size = block;
            s->page_bytes = block * s->token_bytes;
            continue;
        }
        bool is_aligned = token && run->job.enable_prefix_caching;
        s->window = is_aligned ? 2 + s->window : 1;
        s->block_size = is_aligned ? block : run->figures.max_model_len;
        if (token) s->page_bytes = block * token;
    }
}

bool tide_cache_groups(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    align_states(run);
    f->group_count = 0;
    f->block_bytes = 0;
    if (run->job.disable_hybrid_kv_cache_manager) promote_windows(run);
    if (!run->spec_count) return true;
    bool is_one_kind = true;
    int64_t pages = 0;
    for (uint32_t i = 0; i < run->spec_count; i++) {
        is_one_kind = is_one_kind && same_kind(&run->specs[i], &run->specs[0]) &&
                      run->specs[i].block_size == run->specs[0].block_size;
        pages += run->specs[i].page_bytes;
    }
    if (is_one_kind) {
        add_cache_group(run, &run->specs[0], run->spec_count);
        f->block_bytes = pages;
        return true;
    }
    return unify_pages(run) && split_groups(run);
}

static int64_t blocks_of_one(const tide_serve_run *run, int64_t length) {
    int64_t blocks = 0;
    for (uint32_t i = 0; i < run->figures.group_count; i++)
        blocks += blocks_of_spec(run, &run->figures.groups[i].spec, length);
    return blocks;
}

int64_t tide_cache_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length) {
    return tide_serve_each(requests, blocks_of_one(run, length));
}

/* The longest request, up to `most`, whose blocks fit into so many bytes; 0: not even one token. */
static int64_t longest_in(const tide_serve_run *run, int64_t bytes, int64_t most) {
    int64_t left = 1, right = most, found = 0;
    while (left <= right) {
        int64_t middle = left + (right - left) / 2;
        if (blocks_of_one(run, middle) * run->figures.block_bytes <= bytes) {
            found = middle;
            left = middle + 1;
        } else {
            right = middle - 1;
        }
    }
    return found;
}

static const char *gib_number(tide_arena *arena, int64_t bytes) {
    return tide_format(arena, "%.2f", (double)bytes / (1 << 30));
}

/* Whether the engine starts with `bytes` available for its cache. */
static bool starts_with(const tide_serve_run *run, int64_t bytes, bool is_auto) {
    const tide_serve_figures *f = &run->figures;
    int64_t checked = bytes - f->block_bytes;
    return checked > 0 && (is_auto ? longest_in(run, checked, f->max_model_len) > 0 : f->one_request_bytes <= checked);
}

static void check_enough(tide_serve_run *run, int64_t checked, bool is_auto) {
    tide_serve_figures *f = &run->figures;
    tide_arena *arena = run->machine.arena;
    if (checked <= 0) {
        f->refusal = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                     "initializing the engine.";
        return;
    }
    f->longest = longest_in(run, checked, f->max_model_len);
    if (is_auto && f->longest > 0) {
        f->max_model_len = f->longest;
        return;
    }
    if (is_auto) {
        f->refusal = "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try "
                     "increasing `gpu_memory_utilization`.";
        return;
    }
    if (f->one_request_bytes <= checked) return;
    const char *estimate = f->longest > 0 ? tide_format(arena,
                                                        "Based on the available memory, the estimated maximum model "
                                                        "length is %lld. ",
                                                        (long long)f->longest)
                                          : "";
    f->refusal = tide_format(arena,
                             "To serve at least one request with the model's max seq len (%lld), (%s GiB KV cache is "
                             "needed, which is larger than the available KV cache memory (%s GiB). %sTry increasing "
                             "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or "
                             "decreasing `max_model_len` when initializing the engine.",
                             (long long)f->max_model_len, gib_number(arena, f->one_request_bytes),
                             gib_number(arena, checked), estimate);
}

void tide_cache_blocks(tide_serve_run *run) {
    tide_serve_figures *f = &run->figures;
    const tide_job *job = &run->job;
    if (!f->block_bytes) { /* no layer caches anything: one block */
        f->num_blocks = 1;
        return;
    }
    int64_t available = job->num_gpu_blocks_override ? job->num_gpu_blocks_override * f->block_bytes : f->available;
    f->one_request_bytes = blocks_of_one(run, f->max_model_len) * f->block_bytes;
    bool is_given = job->num_gpu_blocks_override || job->kv_cache_memory_bytes;
    int64_t doubt = is_given ? 0 : (int64_t)f->uncertain, most = is_given ? 0 : doubt + (int64_t)f->may_take;
    bool is_auto = job->max_model_len == TIDE_SERVE_AUTO;
    f->may_refuse = !starts_with(run, available - most, is_auto);
    f->may_start = starts_with(run, available + doubt, is_auto);
    check_enough(run, available - f->block_bytes, is_auto);
    f->blocks_per_request = blocks_of_one(run, f->max_model_len);
    for (uint32_t i = 0; i < f->group_count; i++)
        f->groups[i].blocks_per_request = blocks_of_spec(run, &f->groups[i].spec, f->max_model_len);
    f->one_request_bytes = f->blocks_per_request * f->block_bytes;
    if (f->refusal) return;
    f->num_blocks = available / f->block_bytes;
    f->blocks_at_least = available > most ? (available - most) / f->block_bytes : 0;
    f->blocks_at_most = (available + doubt) / f->block_bytes;
    /* int(num_blocks / blocks_per_request * max_model_len) */
    f->capacity_tokens = (int64_t)((double)f->num_blocks / (double)f->blocks_per_request * (double)f->max_model_len);
}
