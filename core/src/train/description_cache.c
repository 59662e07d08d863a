/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions read so far, kept for later jobs. */
#include "train/run.h"

/* How many descriptions a cache holds before it is reset: well below the limit of a set. */
enum { KEPT_MOST = 32 };

/* A built-in description depends only on its text, so any job may reuse what was read and bound. */
void tide_take_descriptions(tide_run *run, const tide_job *job, tide_finder *found) {
    tide_arena *arena = run->machine.arena;
    tide_diagnostics *diags = run->machine.diags;
    tide_description_cache *cache = job->description ? NULL : run->cache;
    if (cache) cache->arena.escape = arena->escape;
    if (cache && cache->is_filled && cache->descriptions.count <= KEPT_MOST) {
        run->descriptions = cache->descriptions;
        run->descriptions.diags = diags;
        run->descriptions.user = found;
        cache->is_filled = false;
        return;
    }
    if (cache) tide_arena_free(&cache->arena);
    if (cache) cache->is_filled = false, cache->loaded_for = NULL;
    tide_descriptions_init(&run->descriptions, cache ? &cache->arena : arena, diags, tide_job_source, found);
}

void tide_put_descriptions(tide_run *run, const tide_job *job) {
    tide_description_cache *cache = job->description ? NULL : run->cache;
    if (!cache) return;
    cache->descriptions = run->descriptions;
    cache->size_names = run->model.size_names;
    cache->is_filled = true;
}
