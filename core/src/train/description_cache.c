/* Descriptions that have been read, kept for the next job of the same model. */
#include "train/run.h"

#include <string.h>

bool tide_settings_alike(const tide_setting_row *rows, uint32_t count, const tide_job *job, tide_read read) {
    if (count != job->row_count) return false;
    for (uint32_t i = 0; i < count; i++) {
        const tide_setting_row *row = &job->rows[i];
        bool may_differ = tide_setting_read_at(row->id) >= read;
        if (rows[i].id != row->id || rows[i].origin != row->origin || strcmp(rows[i].name, row->name) != 0 ||
            (!may_differ && strcmp(rows[i].value, row->value) != 0))
            return false;
    }
    return true;
}

void tide_take_descriptions(tide_run *run, const tide_job *job, tide_finder *found) {
    tide_arena *arena = run->machine.arena;
    tide_diagnostics *diags = run->machine.diags;
    tide_description_cache *shelf = job->description ? NULL : run->shelf;
    if (shelf) shelf->arena.escape = arena->escape;
    if (shelf && shelf->is_filled && tide_settings_alike(shelf->rows, shelf->row_count, job, TIDE_READ_PLAY)) {
        run->descriptions = shelf->descriptions;
        run->descriptions.diags = diags;
        run->descriptions.user = found;
        shelf->is_filled = false;
        return;
    }
    if (shelf) tide_arena_free(&shelf->arena);
    if (shelf) shelf->row_count = 0, shelf->is_filled = false, shelf->loaded_for = NULL;
    tide_descriptions_init(&run->descriptions, shelf ? &shelf->arena : arena, diags, tide_job_source, found);
}

void tide_put_descriptions(tide_run *run, const tide_job *job) {
    tide_description_cache *shelf = job->description ? NULL : run->shelf;
    if (!shelf) return;
    shelf->descriptions = run->descriptions;
    shelf->size_names = run->model.size_names;
    if (!shelf->row_count) {
        tide_setting_row *rows = TIDE_NEW(&shelf->arena, tide_setting_row, job->row_count + 1);
        for (uint32_t i = 0; i < job->row_count; i++)
            rows[i] = (tide_setting_row){
                job->rows[i].id, tide_text_copy(&shelf->arena, tide_text_of(job->rows[i].name)),
                tide_text_copy(&shelf->arena, tide_text_of(job->rows[i].value)), job->rows[i].origin};
        shelf->rows = rows;
        shelf->row_count = job->row_count;
    }
    shelf->is_filled = true;
}
