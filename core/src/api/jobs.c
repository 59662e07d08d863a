/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about a job. */
#include <string.h>

#include "api/calls.h"
#include "lang/lang.h"
#include "parallel/strategies.h"
#include "tidemark/tidemark.h"
#include "train/lint.h"

enum { CELL_LIMIT = 4096 };

/* What the interpreter knows: operations with their arguments, and the model types of all descriptions. */
static void write_vocabulary(call *c) {
    tide_write_key(&c->writer, "ops");
    tide_write_open(&c->writer, '[');
    for (int t = 0; t < TIDE_OP_TABLES; t++)
        for (uint32_t i = 0; i < tide_op_tables[t]->count; i++) {
            tide_write_open(&c->writer, '{');
            tide_write_string_at(&c->writer, "name", tide_op_tables[t]->ops[i].name);
            tide_write_string_at(&c->writer, "signature", tide_op_tables[t]->ops[i].signature);
            tide_write_close(&c->writer, '}');
        }
    tide_write_close(&c->writer, ']');
    tide_write_key(&c->writer, "model_types");
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < tide_model_type_count; i++) tide_write_string(&c->writer, tide_model_types[i].model_type);
    tide_write_close(&c->writer, ']');
}

/* "of": "form" leaves out what a form does not need until a list is opened. */
static bool answer_describe(call *c) {
    const tide_json *check = tide_json_at(c->request, "check");
    call_open_answer(c);
    if (check && check->kind == TIDE_JSON_STRING) { /* the text of a description */
        tide_write_key(&c->writer, "check");
        tide_write_lint(&c->writer, &c->arena, check->text);
        return true;
    }
    const bool is_form = tide_text_is(call_text_at(c, "of"), "form");
    tide_job_describe(&c->arena, &c->writer, is_form);
    if (!is_form) write_vocabulary(c);
    return true;
}

static bool read_question(call *c, tide_query *q, const char *key) {
    tide_text *words;
    tide_file *files;
    *q = (tide_query){.arena = &c->arena, .cache = &c->cache};
    bool is_job = strcmp(key, "settings") == 0;
    if (!(is_job ? call_read_words(c, &words, &q->argument_count)
                 : call_read_words_at(c, key, &words, &q->argument_count)) ||
        !call_read_files(c, &files, &q->file_count))
        return false;
    q->arguments = words;
    q->files = files;
    return true;
}

static bool is_asked(const call *c, const char *key) {
    const tide_json *member = tide_json_at(c->request, key);
    return member && member->is_true;
}

/* "brief": true leaves out what requires playing other jobs, and is in the answer if something was left out. */
static bool answer_estimate(call *c) {
    tide_job *job = call_build_job(c);
    tide_query q;
    tide_run *run = call_run_job(c, job);
    if (!run || !read_question(c, &q, "settings")) return false;
    q.cache = NULL; /* the run still uses its descriptions */
    bool is_brief = is_asked(c, "brief") && tide_plays_others(run, job);
    if (!is_brief && !tide_run_stages(run, job, &c->arena)) return !c->diags.error_count && call_out_of_memory(c);
    call_open_answer(c);
    if (is_brief) tide_write_bool_at(&c->writer, "brief", true);
    unsigned parts = (is_asked(c, "options") ? TIDE_WITH_OPTIONS : 0U) | (is_brief ? 0U : TIDE_WITH_FLAGS);
    return tide_write_estimate(&c->writer, run, job, &c->diags, parts, is_brief ? NULL : &q) || call_out_of_memory(c);
}

/* "cells": the job with other words, several times; {"cells": [the answer of measure to each, without the place of the
 * peak and of what does not fit]}. */
static bool answer_cells(call *c, const tide_json *cells) {
    tide_query q;
    if (cells->kind != TIDE_JSON_ARRAY || cells->count > CELL_LIMIT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/cells",
                          "cells is an array of at most 4096 arrays of words like \"batch=4\"", NULL);
    if (!read_question(c, &q, "settings")) return false;
    call_open_answer(c);
    return tide_write_cells(&c->writer, &q, cells, &c->diags);
}

static bool answer_measure(call *c) {
    const tide_json *cells = tide_json_at(c->request, "cells");
    if (cells) return answer_cells(c, cells);
    tide_job *job = call_build_job(c);
    tide_run *run = call_run_job(c, job);
    if (!run) return false;
    call_open_answer(c);
    return tide_write_measure(&c->writer, run, job) || call_out_of_memory(c);
}

/* NULL: not given. */
static const char *name_at(call *c, const char *key) {
    const tide_json *found = tide_json_at(c->request, key);
    return found && found->kind == TIDE_JSON_STRING ? tide_text_copy(&c->arena, found->text) : NULL;
}

static bool answer_explain(call *c) {
    tide_job *job = call_build_job(c);
    tide_run *run = call_run_job(c, job);
    if (!run) return false;
    const tide_json *stage = tide_json_at(c->request, "stage");
    tide_filter look = {.event = call_event_at(c, "event", TIDE_AT_PEAK), .of = call_text_at(c, "of")};
    look.factor = name_at(c, "factor");
    look.part = name_at(c, "part");
    look.layer = name_at(c, "layer");
    call_open_answer(c);
    if (!stage) return tide_write_explanation(&c->writer, run, job, &look) || call_out_of_memory(c);
    bool is_known = false;
    if (stage->kind == TIDE_JSON_STRING && !tide_write_stage(&c->writer, run, job, stage->text, look.of, &is_known))
        return call_out_of_memory(c);
    return is_known || tide_error(&c->diags, TIDE_ERR_REQUEST, "/stage", "no such stage",
                                  tide_format(&c->arena, "there are %s", tide_stage_names));
}

static bool answer_timeline(call *c) {
    tide_job *job = call_build_job(c);
    tide_run *run = call_run_job(c, job);
    if (!run) return false;
    call_open_answer(c);
    return tide_write_events(&c->writer, run, job, call_event_at(c, "from", 0), call_event_at(c, "to", UINT32_MAX)) ||
           call_out_of_memory(c);
}

static bool answer_events(call *c) {
    tide_job *job = call_build_job(c);
    tide_window window = call_window(c);
    tide_run *run = call_run_job(c, job);
    if (!run) return false;
    call_open_answer(c);
    return tide_write_job_events(&c->writer, run, job, &window) || call_out_of_memory(c);
}

static bool answer_state(call *c) {
    tide_job *job = call_build_job(c);
    tide_state_query query = call_state_query(c);
    tide_run *run = call_run_job(c, job);
    if (!run) return false;
    call_open_answer(c);
    return tide_write_job_state(&c->writer, run, job, &query) || call_out_of_memory(c);
}

/* "view", "sel", "sweep", or those of the link. A selection belongs to the job of the link, and may not exist in
 * another one. */
static tide_link_view view_of(call *c, bool is_other_job) {
    tide_link_view view = c->link ? c->link->view : (tide_link_view){TIDE_TEXT(""), TIDE_TEXT(""), TIDE_TEXT("")};
    if (is_other_job) view.sel = TIDE_TEXT("");
    if (tide_json_at(c->request, "view")) view.view = call_text_at(c, "view");
    if (tide_json_at(c->request, "sel")) view.sel = call_text_at(c, "sel");
    if (tide_json_at(c->request, "sweep")) view.sweep = call_text_at(c, "sweep");
    return view;
}

/* "with": the words of a baseline, or that of the link; "was": true records its current result; and the view. */
static bool answer_link(call *c) {
    tide_job *job = call_build_job(c), *baseline = NULL;
    tide_text *words, was = TIDE_TEXT("");
    tide_file *files;
    uint32_t word_count, file_count;
    const tide_json *settings = tide_json_at(c->request, "settings");
    uint32_t given = settings ? settings->count : 0;
    if (!job || !call_read_words_at(c, "with", &words, &word_count) || !call_read_files(c, &files, &file_count))
        return false;
    if (!word_count && c->link) words = c->link->baseline, word_count = c->link->baseline_count;
    if (word_count) {
        tide_diagnostics scratch; /* its remarks are those of the job */
        tide_diagnostics_init(&scratch, &c->arena);
        baseline = tide_job_build(&c->arena, words, word_count, files, file_count, &scratch);
        if (!baseline)
            return tide_error(&c->diags, TIDE_ERR_REQUEST, "/with", scratch.items[0].message, scratch.items[0].remedy);
    }
    if (is_asked(c, "was")) {
        tide_run *run = call_run_job(c, job);
        if (!run) return false;
        const char *note = tide_peak_note(&c->arena, run, job);
        if (!note) return call_out_of_memory(c);
        was = tide_text_of(note);
    }
    call_open_answer(c);
    tide_link_view view = view_of(c, given > 0);
    tide_write_string_at(&c->writer, "link", tide_link_write_more(&c->arena, job, baseline, &view, was));
    return true;
}

static void write_words(call *c, const char *key, const tide_text *words, uint32_t count) {
    tide_write_key(&c->writer, key);
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < count; i++) tide_write_text(&c->writer, words[i]);
    tide_write_close(&c->writer, ']');
}

/* The content of a link, and which of it could not be read. */
static bool answer_read_link(call *c) {
    const tide_link *link = call_link_of(c);
    if (!link) return tide_error(&c->diags, TIDE_ERR_REQUEST, "/link", "read_link needs \"link\"", NULL);
    call_open_answer(c);
    write_words(c, "settings", link->words, link->word_count);
    if (link->baseline_count) write_words(c, "baseline", link->baseline, link->baseline_count);
    tide_write_key(&c->writer, "files");
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < link->file_count; i++) {
        tide_write_open(&c->writer, '{');
        tide_write_key(&c->writer, "name");
        tide_write_text(&c->writer, link->files[i].name);
        tide_write_key(&c->writer, "text");
        tide_write_text(&c->writer, link->files[i].text);
        tide_write_close(&c->writer, '}');
    }
    tide_write_close(&c->writer, ']');
    tide_write_key(&c->writer, "was");
    tide_write_text(&c->writer, link->was);
    tide_write_key(&c->writer, "view");
    tide_write_text(&c->writer, link->view.view);
    tide_write_key(&c->writer, "sel");
    tide_write_text(&c->writer, link->view.sel);
    tide_write_key(&c->writer, "sweep");
    tide_write_text(&c->writer, link->view.sweep);
    tide_write_diagnostics(&c->writer, &c->diags, false);
    return true;
}

/* {"call": "command", "text": ...}: whether the text is a command that starts training or a server, to be treated as a
 * file, or the words of a job. */
static bool answer_command(call *c) {
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "is_command", tide_is_command(&c->arena, call_text_at(c, "text")));
    return true;
}

static void not_expressed(call *c, const char *reason) {
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", false);
    tide_write_string_at(&c->writer, "reason", reason);
}

/* A recorded case, and tidemark's answer to it. */
static bool answer_verify(call *c) {
    const tide_json *of_case = tide_json_at(c->request, "case");
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    const char *reason = NULL;
    if (!of_case || of_case->kind != TIDE_JSON_OBJECT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/case", "verify needs a case", NULL);
    if (tide_text_is(call_text_at(c, "of"), "serving")) return call_verify_serving(c, of_case);
    if (!tide_job_arguments_of_case(&c->arena, of_case, &words, &word_count, &reason)) {
        not_expressed(c, reason ? reason : "a key of the case");
        return true;
    }
    if (!call_read_files(c, &files, &file_count)) return false;
    tide_job_add_files_of_case(&c->arena, of_case, &files, &file_count);
    tide_job *job = tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags);
    tide_run *run = call_run_job(c, job);
    if (!run) {
        tide_status status = c->diags.first_error;
        if (status != TIDE_ERR_MODEL_UNKNOWN && status != TIDE_ERR_UNSUPPORTED) return false;
        const char *message = "";
        for (uint32_t i = 0; i < c->diags.count && !*message; i++)
            if (c->diags.items[i].severity == TIDE_ERROR) message = c->diags.items[i].message;
        not_expressed(c, message);
        return true;
    }
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", true);
    return tide_write_figures(&c->writer, run, job) || call_out_of_memory(c);
}

static bool answer_fit(call *c) {
    tide_query q;
    if (!read_question(c, &q, "settings")) return false;
    call_open_answer(c);
    tide_text knob = call_text_at(c, "knob");
    if (!knob.length && c->asks) knob = tide_text_of(c->asks);
    return tide_write_fit(&c->writer, &q, knob, call_text_at(c, "by"), &c->diags);
}

static bool answer_cards(call *c) {
    tide_query q;
    if (!read_question(c, &q, "settings")) return false;
    call_open_answer(c);
    return tide_write_cards(&c->writer, &q, &c->diags);
}

static bool answer_advice(call *c) {
    tide_query q;
    if (!read_question(c, &q, "settings")) return false;
    call_open_answer(c);
    return tide_write_advice(&c->writer, &q, &c->diags);
}

static bool answer_compare(call *c) {
    tide_query one, other;
    if (!read_question(c, &one, "settings") || !read_question(c, &other, "with")) return false;
    tide_text *words = NULL;
    if (c->link && other.argument_count)
        other.argument_count = tide_words_join(&c->arena, c->link->words, c->link->word_count, other.arguments,
                                               other.argument_count, &words);
    if (words) other.arguments = words;
    if (!other.argument_count && c->link && c->link->baseline_count)
        other.arguments = c->link->baseline, other.argument_count = c->link->baseline_count;
    if (!other.argument_count) other = one;
    call_open_answer(c);
    return tide_write_comparison(&c->writer, &one, &other, &c->diags);
}

static bool answer_schedule(call *c) {
    const tide_job *job = call_build_job(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_schedule(&c->writer, job, &c->diags);
}

const call_table job_calls = {{{"describe", answer_describe},
                               {"command", answer_command},
                               {"estimate", answer_estimate},
                               {"measure", answer_measure},
                               {"explain", answer_explain},
                               {"gguf", call_answer_gguf},
                               {"link", answer_link},
                               {"read_link", answer_read_link},
                               {"verify", answer_verify},
                               {"timeline", answer_timeline},
                               {"events", answer_events},
                               {"state", answer_state},
                               {"fit", answer_fit},
                               {"cards", answer_cards},
                               {"advice", answer_advice},
                               {"compare", answer_compare},
                               {"schedule", answer_schedule}}};
