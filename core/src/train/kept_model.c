/* Jobs that differ in the step alone: the model is loaded once. */
#include "train/run.h"

/* Loads the model in the shelf's arena for this, and keeps it if nothing in it follows a setting of the step. */
static bool load_kept(tide_description_cache *shelf, const tide_job *job, tide_diagnostics *diags) {
    tide_arena *arena = &shelf->loaded;
    tide_run *run = shelf->run = TIDE_NEW(arena, tide_run, 1);
    run->shelf = shelf;
    if (!tide_load(run, job, arena, diags)) return false;
    bool may_keep = !job->description && run->model.step_reads == 0;
    shelf->loaded_for = may_keep ? job : NULL;
    if (may_keep) tide_arena_keep(arena);
    return true;
}

/* Makes the loaded model that of a job which differs from its own in settings of the step. */
static bool take_kept(tide_description_cache *shelf, const tide_job *job, tide_diagnostics *diags) {
    tide_run *run = shelf->run;
    uint32_t events = run->machine.timeline.event_count,
             allocations = run->machine.timeline.allocation_count; /* of the run before */
    tide_arena_return(&shelf->loaded);
    tide_timeline_reserve(&run->machine.timeline, events, allocations);
    tide_setting_value *of_step = run->model.settings;
    tide_finder *found = run->model.user;
    found->job = job;
    found->diags = run->machine.diags = diags;
    run->descriptions = shelf->descriptions; /* more of their functions have been read since */
    run->descriptions.diags = diags;
    run->descriptions.user = found;
    run->model.size_names = shelf->size_names;
    shelf->is_filled = false;
    tide_set_model_settings(run, job, false);
    for (uint32_t i = 0; i < run->model.setting_count; i++)
        if (run->model.settings[i].is_of_step) of_step[i] = run->model.settings[i];
    run->model.settings = of_step;
    return tide_model_resize(&run->model);
}

tide_run *tide_run_next(tide_description_cache *shelf, const tide_job *job, tide_arena *arena,
                        tide_diagnostics *diags) {
    const tide_job *before = shelf->loaded_for;
    bool is_kept =
        before && shelf->is_filled && tide_settings_alike(before->rows, before->row_count, job, TIDE_READ_STEP);
    if (is_kept) {
        tide_diagnostics unheard;
        tide_diagnostics_init(&unheard, arena);
        shelf->loaded.escape = shelf->arena.escape = arena->escape;
        if (take_kept(shelf, job, &unheard) && tide_play(shelf->run, job)) {
            shelf->run->machine.diags = diags;
            tide_put_descriptions(shelf->run, job);
            return shelf->run;
        }
    }
    tide_arena_free(&shelf->loaded);
    shelf->loaded_for = NULL;
    shelf->loaded = *arena;
    tide_arena_init(arena, shelf->loaded.memory, shelf->loaded.escape);
    diags->arena = &shelf->loaded;
    if (!load_kept(shelf, job, diags) || !tide_play(shelf->run, job)) {
        shelf->loaded_for = NULL;
        return NULL;
    }
    tide_put_descriptions(shelf->run, job);
    return shelf->run;
}
