/* SPDX-License-Identifier: Apache-2.0 */
/* The job with other settings, many times, for a table. */
#include <setjmp.h>

#include "report/estimate.h"
#include "report/members.h"
#include "report/queries.h"
#include "report/ranks.h"

/* False when host memory ran out. */
static bool play_cell(tide_writer *w, const tide_query *q, const tide_json *cell, tide_arena *arena) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, arena);
    tide_text *given = TIDE_NEW(arena, tide_text, cell->count + 1), *all;
    uint32_t count = 0;
    for (const tide_json *argument = cell->first; argument; argument = argument->next) given[count++] = argument->text;
    count = tide_words_join(arena, q->arguments, q->argument_count, given, count, &all);
    if (count) all = tide_phrases_read(arena, all, &count, &diags, NULL);
    tide_job *job = diags.error_count ? NULL : tide_job_build(arena, all, count, q->files, q->file_count, &diags);
    tide_run *run = job ? tide_run_what_if(q->cache, job, arena, &diags) : NULL;
    tide_write_bool_at(w, "ok", run != NULL);
    if (run) return tide_write_cell(w, run, job);
    tide_write_diagnostics(w, &diags, false);
    return true;
}

static bool write_cell(tide_writer *w, const tide_query *q, const tide_json *cell) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, q->arena->memory, &escape);
    jmp_buf *outside = q->arena->escape;
    q->arena->escape = &escape; /* the answer grows there */
    bool ok = setjmp(escape) == 0 && play_cell(w, q, cell, &arena);
    q->arena->escape = outside;
    tide_arena_free(&arena);
    return ok;
}

bool tide_write_cells(tide_writer *w, const tide_query *q, const tide_json *cells, tide_diagnostics *diags) {
    for (const tide_json *cell = cells->first; cell; cell = cell->next) {
        bool is_list = cell->kind == TIDE_JSON_ARRAY;
        for (const tide_json *argument = cell->first; argument && is_list; argument = argument->next)
            is_list = argument->kind == TIDE_JSON_STRING;
        if (!is_list)
            return tide_error(diags, TIDE_ERR_REQUEST, tide_json_place(q->arena, cell, ""),
                              "a cell is an array of words like \"batch=4\"", NULL);
    }
    tide_write_open_at(w, "cells", '[');
    for (const tide_json *cell = cells->first; cell; cell = cell->next) {
        tide_write_open(w, '{');
        if (!write_cell(w, q, cell)) tide_arena_fail(q->arena);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    return true;
}
