/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all answers: parsing the request, starting the answer. */
#include "api/calls.h"

#include <string.h>

#include "report/report.h"
#include "tidemark/tidemark.h"

enum { WORD_LIMIT = 4096, FILE_LIMIT = 512 };

tide_text call_text_at(const call *c, const char *key) {
    const tide_json *found = tide_json_at(c->request, key);
    return found && found->kind == TIDE_JSON_STRING ? found->text : TIDE_TEXT("");
}

/* "link": its words and files are overridden by those of the request. */
const tide_link *call_link_of(call *c) {
    const tide_json *text = tide_json_at(c->request, "link");
    if (c->link || !text || text->kind != TIDE_JSON_STRING) return c->link;
    c->link = TIDE_NEW(&c->arena, tide_link, 1);
    tide_link_read(&c->arena, text->text, c->link, &c->diags);
    return c->link;
}

/* Diagnostics about words are not repeated when the words are read again. */
static tide_diagnostics *diags_of(call *c, const char *key) {
    bool is_job = strcmp(key, "settings") == 0, is_again = is_job && c->has_read_words;
    c->has_read_words = c->has_read_words || is_job;
    if (!is_again) return &c->diags;
    tide_diagnostics *scratch = TIDE_NEW(&c->arena, tide_diagnostics, 1);
    tide_diagnostics_init(scratch, &c->arena);
    return scratch;
}

bool call_read_words_at(call *c, const char *key, tide_text **words, uint32_t *count) {
    const tide_json *settings = tide_json_at(c->request, key);
    *count = 0;
    *words = TIDE_NEW(&c->arena, tide_text, WORD_LIMIT);
    if (!settings) return true;
    if (settings->kind != TIDE_JSON_ARRAY || settings->count > WORD_LIMIT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_format(&c->arena, "/%s", key),
                          "settings is an array of at most 4096 words like \"batch=4\"", NULL);
    for (const tide_json *word = settings->first; word; word = word->next) {
        if (word->kind != TIDE_JSON_STRING)
            return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_json_place(&c->arena, word, ""),
                              "a setting is a text like \"batch=4\"", NULL);
        (*words)[(*count)++] = word->text;
    }
    uint32_t errors = c->diags.error_count, said = c->diags.count;
    if (*count) *words = tide_phrases_read(&c->arena, *words, count, diags_of(c, key), &c->asks);
    for (uint32_t i = said; i < c->diags.count; i++) {
        const char *message = c->diags.items[i].message, *before = c->read_as;
        if (!before || !strstr(before, message))
            c->read_as = before ? tide_format(&c->arena, "%s\n%s", before, message) : message;
    }
    return c->diags.error_count == errors;
}

bool call_read_words(call *c, tide_text **words, uint32_t *count) {
    if (!call_read_words_at(c, "settings", words, count)) return false;
    if (!call_link_of(c)) return true;
    if (*count) c->link->was = TIDE_TEXT(""); /* a job other than that of the link */
    *count = tide_words_join(&c->arena, c->link->words, c->link->word_count, *words, *count, words);
    return true;
}

static bool read_given_files(call *c, tide_file **files, uint32_t *count) {
    const tide_json *given = tide_json_at(c->request, "files");
    *count = 0;
    *files = TIDE_NEW(&c->arena, tide_file, FILE_LIMIT);
    if (!given) return true;
    if (given->kind != TIDE_JSON_ARRAY || given->count > FILE_LIMIT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/files",
                          "files is an array of at most 512 {\"name\", \"text\"}", NULL);
    for (const tide_json *file = given->first; file; file = file->next) {
        const tide_json *name = tide_json_at(file, "name"), *text = tide_json_at(file, "text");
        if (!name || !text || name->kind != TIDE_JSON_STRING || text->kind != TIDE_JSON_STRING)
            return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_json_place(&c->arena, file, ""),
                              "a file is {\"name\": ..., \"text\": ...}", NULL);
        (*files)[(*count)++] = (tide_file){name->text, text->text};
    }
    return true;
}

/* The files of the request, and those of its link. */
bool call_read_files(call *c, tide_file **files, uint32_t *count) {
    if (!read_given_files(c, files, count)) return false;
    const tide_link *link = call_link_of(c);
    for (uint32_t i = 0; *count < FILE_LIMIT && link && i < link->file_count; i++)
        (*files)[(*count)++] = link->files[i];
    return true;
}

tide_job *call_build_job(call *c) {
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    if (!call_read_words(c, &words, &word_count) || !call_read_files(c, &files, &file_count)) return NULL;
    tide_job *job = tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags);
    if (job) job->was = c->link ? c->link->was : call_text_at(c, "was");
    return job;
}

uint32_t call_event_at(const call *c, const char *key, uint32_t otherwise) {
    const tide_json *found = tide_json_at(c->request, key);
    if (!found || !found->is_integer || found->integer < 0) return otherwise;
    return found->integer < TIDE_NEVER ? (uint32_t)found->integer : TIDE_NEVER - 1;
}

tide_window call_window(const call *c) {
    uint32_t count = call_event_at(c, "count", TIDE_WINDOW_ROWS), at = call_event_at(c, "at", TIDE_NEVER);
    return (tide_window){.filter = call_text_at(c, "filter"),
                         .first = call_event_at(c, "first", 0),
                         .count = count < TIDE_WINDOW_MOST ? count : TIDE_WINDOW_MOST,
                         .has_at = at != TIDE_NEVER,
                         .at = at};
}

tide_state_query call_state_query(const call *c) {
    const tide_json *segment = tide_json_at(c->request, "segment");
    return (tide_state_query){.at = call_event_at(c, "at", TIDE_NEVER),
                              .filter = call_text_at(c, "filter"),
                              .has_segment = segment && segment->is_integer,
                              .segment = segment && segment->is_integer ? segment->integer : 0,
                              .first_block = call_event_at(c, "from", 0)};
}

void call_open_answer(call *c) {
    tide_writer_init(&c->writer, &c->arena);
    tide_write_open(&c->writer, '{');
    tide_write_bool_at(&c->writer, "ok", true);
    tide_write_string_at(&c->writer, "tidemark", TIDEMARK_VERSION);
    if (c->read_as) tide_write_string_at(&c->writer, "read_as", c->read_as);
}

bool call_out_of_memory(call *c) {
    tide_arena_fail(&c->arena);
    return false;
}

tide_run *call_run_job(call *c, tide_job *job) {
    return job ? tide_run_ranks(&c->cache, job, &c->arena, &c->diags) : NULL;
}
