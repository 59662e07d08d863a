/* SPDX-License-Identifier: Apache-2.0 */
/* Building the job stage by stage from settings and files. */
#include "job/builder.h"

#include <string.h>

/* ---- rows ---- */

static void row_add(tide_job_builder *b, tide_setting_id id, const char *value, tide_origin origin) {
    b->job->rows[b->job->row_count++] =
        (tide_setting_row){id,     tide_settings[id].name,     value,
                           origin, tide_settings[id].variable, strcmp(value, tide_setting_default(id)) == 0};
}

static void override_row_add(tide_job_builder *b, const tide_override *override) {
    b->job->rows[b->job->row_count++] =
        (tide_setting_row){.id = TIDE_SET_COUNT,
                           .name = tide_format(b->arena, "overrides.%s", override->path),
                           .value = override->text,
                           .origin = override->origin};
}

/* Options of a mode or a kind that is not played would only be noise. */
static bool is_option_read(const tide_job_builder *b, tide_setting_id id) {
    const char *kind = tide_argument_text(&b->arguments, TIDE_SET_parallel_kind);
    if (b->job->mode == TIDE_mode_serve)
        return tide_setting_serves(id) &&
               tide_setting_is_of_engine(id, tide_argument_text(&b->arguments, TIDE_SET_engine));
    if (tide_setting_is_of_server(id)) return false;
    return id <= TIDE_SET_parallel_kind || tide_setting_is_of(&tide_settings[id], kind);
}

static void write_rows(tide_job_builder *b) {
    b->job->rows = TIDE_NEW(b->arena, tide_setting_row, TIDE_SET_COUNT + b->arguments.override_count);
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (id == TIDE_SET_model) {
            row_add(b, id, b->job->model, b->model_is_file ? TIDE_ORIGIN_FILE : b->arguments.origins[id]);
        } else if (id == TIDE_SET_overrides) {
            for (uint32_t k = 0; k < b->arguments.override_count; k++) override_row_add(b, &b->arguments.overrides[k]);
        } else if (is_option_read(b, id)) {
            row_add(b, id, tide_argument_text(&b->arguments, id),
                    b->arguments.is_given[id] ? b->arguments.origins[id] : TIDE_ORIGIN_DEFAULT);
        }
    }
}

/* ---- the whole ---- */

enum { JOB_WORD_LIMIT = 4096 };

tide_job *tide_job_build(tide_arena *arena, const tide_text *words, uint32_t word_count, const tide_file *files,
                         uint32_t file_count, tide_diagnostics *diags) {
    tide_job_builder b = {.arena = arena, .diags = diags, .job = TIDE_NEW(arena, tide_job, 1)};
    uint32_t errors = diags->error_count;
    tide_arguments_init(&b.arguments, arena, diags);
    tide_arguments_foresee(&b.arguments, words, word_count);
    tide_files_read(&b.inputs, &b.arguments, files, file_count);
    b.files_failed = diags->error_count != errors;
    if (word_count > JOB_WORD_LIMIT) {
        tide_error(diags, TIDE_ERR_LIMIT, "/settings", "more than 4096 words", "a job has a few dozen settings");
        word_count = JOB_WORD_LIMIT;
    }
    for (uint32_t i = 0; i < word_count; i++) tide_argument_read(&b.arguments, words[i], TIDE_ORIGIN_USER, i == 0);
    tide_read_recipe(&b);
    tide_find_model(&b);
    tide_load_as_program(&b);
    tide_load_as_factory(&b);
    tide_read_versions(&b);
    tide_change_config(&b);
    tide_find_gpu(&b);
    tide_size_device(&b);
    tide_warn_of_fraction(&b);
    tide_fill_fields(&b);
    tide_read_allocator(&b);
    tide_check_conflicts(&b);
    if (diags->error_count != errors) return NULL;
    tide_report_assumptions(&b);
    tide_warn_of_pins(&b);
    write_rows(&b);
    b.job->names_itself = b.model_is_file;
    b.job->link = tide_link_write(arena, b.job);
    b.job->files = b.inputs.summaries;
    b.job->program = b.inputs.program;
    return b.job;
}

static bool is_of_device(unsigned id) {
    return id == TIDE_SET_gpu || id == TIDE_SET_gpu_gib || id == TIDE_SET_memory_fraction || id == TIDE_SET_allocator;
}

tide_job *tide_job_device(tide_arena *arena, const tide_text *words, uint32_t word_count, tide_diagnostics *diags) {
    tide_job_builder b = {.arena = arena, .diags = diags, .job = TIDE_NEW(arena, tide_job, 1)};
    uint32_t errors = diags->error_count;
    tide_arguments_init(&b.arguments, arena, diags);
    for (uint32_t i = 0; i < word_count; i++) tide_argument_read(&b.arguments, words[i], TIDE_ORIGIN_USER, false);
    b.job->rows = TIDE_NEW(arena, tide_setting_row, TIDE_SET_COUNT);
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (!b.arguments.is_given[id]) continue;
        row_add(&b, id, tide_argument_text(&b.arguments, id), TIDE_ORIGIN_USER);
        if (!is_of_device(i))
            tide_error(diags, TIDE_ERR_CONFLICT, tide_format(arena, "/settings/%s", tide_settings[id].name),
                       "a recording includes its job: this cannot be changed afterwards",
                       "gpu, gpu_gib, memory_fraction and allocator can");
    }
    tide_find_gpu(&b);
    tide_size_device(&b);
    tide_fill_fields(&b);
    tide_read_allocator(&b);
    return diags->error_count == errors ? b.job : NULL;
}
