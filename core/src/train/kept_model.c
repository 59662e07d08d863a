/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that differ only in settings of the step share a loaded model. */
#include "train/run.h"

#include <string.h>

/* Whether two jobs have the same settings, except those of the step. */
static bool jobs_are_alike(const tide_job *one, const tide_job *job) {
    if (one->row_count != job->row_count) return false;
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i], *other = &one->rows[i];
        bool may_differ = tide_setting_read_at(row->id) == TIDE_READ_STEP;
        if (other->id != row->id || other->origin != row->origin || strcmp(other->name, row->name) != 0 ||
            (!may_differ && strcmp(other->value, row->value) != 0))
            return false;
    }
    return true;
}

/* Loads the model in the cache's arena, and keeps it if nothing in it depends on a setting of the step. */
static bool load_kept(tide_description_cache *cache, const tide_job *job, bool plays_loops, tide_diagnostics *diags) {
    tide_arena *arena = &cache->loaded;
    tide_run *run = cache->run = TIDE_NEW(arena, tide_run, 1);
    run->cache = cache;
    run->plays_loops = plays_loops;
    if (!tide_load(run, job, arena, diags)) return false;
    bool may_keep = !job->description && run->model.step_reads == 0 && !plays_loops;
    cache->loaded_for = may_keep ? job : NULL;
    if (may_keep) tide_arena_keep(arena);
    return true;
}

/* Makes the loaded model that of a job which differs only in settings of the step. */
static bool take_kept(tide_description_cache *cache, const tide_job *job, tide_diagnostics *diags) {
    tide_run *run = cache->run;
    uint32_t events = run->machine.timeline.event_count; /* of the previous run */
    tide_arena_return(&cache->loaded);
    tide_timeline_reserve(&run->machine.timeline, events);
    tide_setting_value *of_step = run->model.settings;
    tide_finder *found = run->model.user;
    found->job = job;
    found->diags = run->machine.diags = diags;
    run->descriptions = cache->descriptions; /* more of their functions have been read by now */
    run->descriptions.diags = diags;
    run->descriptions.user = found;
    run->model.size_names = cache->size_names;
    cache->is_filled = false;
    tide_set_model_settings(run, job, false);
    for (uint32_t i = 0; i < run->model.setting_count; i++)
        if (run->model.settings[i].is_of_step) of_step[i] = run->model.settings[i];
    run->model.settings = of_step;
    return tide_model_resize(&run->model);
}

tide_run *tide_run_next(tide_description_cache *cache, const tide_job *job, tide_arena *arena,
                        tide_diagnostics *diags) {
    const tide_job *before = cache->loaded_for;
    if (before && cache->is_filled && jobs_are_alike(before, job)) {
        tide_diagnostics unheard;
        tide_diagnostics_init(&unheard, arena);
        cache->loaded.escape = cache->arena.escape = arena->escape;
        if (take_kept(cache, job, &unheard) && tide_play(cache->run, job)) {
            cache->run->machine.diags = diags;
            tide_put_descriptions(cache->run, job);
            return cache->run;
        }
    }
    tide_arena_free(&cache->loaded);
    cache->loaded_for = NULL;
    cache->loaded = *arena;
    tide_arena_init(arena, cache->loaded.memory, cache->loaded.escape);
    diags->arena = &cache->loaded;
    const tide_diagnostics said = *diags;
    bool is_played = load_kept(cache, job, false, diags) && tide_play(cache->run, job);
    if (tide_must_play_loops(cache->run, &said, diags)) {
        cache->loaded_for = NULL;
        is_played = load_kept(cache, job, true, diags) && tide_play(cache->run, job);
    }
    if (!is_played) {
        cache->loaded_for = NULL;
        return NULL;
    }
    tide_put_descriptions(cache->run, job);
    return cache->run;
}
