/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point: a JSON request in, a JSON answer out. */
#include "tidemark/tidemark.h"

#include <string.h>

#include "api/calls.h"
#include "report/report.h"

enum { NAME_LIMIT = 64 };

static bool dispatch(call *c, tide_text request) {
    c->request = tide_json_parse(&c->arena, request, "", &c->diags);
    if (!c->request) return false;
    const tide_json *name = tide_json_at(c->request, "call");
    if (!name || name->kind != TIDE_JSON_STRING)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/call", "a request is an object with \"call\"",
                          "\"version\", \"describe\", \"estimate\", ...");
    const char *names[NAME_LIMIT] = {"version"};
    uint32_t count = 1;
    if (tide_text_is(name->text, "version")) {
        call_open_answer(c);
        return true;
    }
    for (const call_table *const *table = call_tables; *table; table++)
        for (int i = 0; (*table)->calls[i].name; i++) {
            if (tide_text_is(name->text, (*table)->calls[i].name)) return (*table)->calls[i].run(c);
            names[count++] = (*table)->calls[i].name;
        }
    const char *near = tide_nearest(name->text, names, count);
    return tide_error(&c->diags, TIDE_ERR_REQUEST, "/call", "no such call",
                      near ? tide_format(&c->arena, "did you mean \"%s\"?", near) : NULL);
}

static void write_failure(call *c) {
    tide_writer_init(&c->writer, &c->arena);
    tide_write_open(&c->writer, '{');
    tide_write_bool_at(&c->writer, "ok", false);
    tide_write_string_at(&c->writer, "tidemark", TIDEMARK_VERSION);
    tide_write_diagnostics(&c->writer, &c->diags, false);
}

static void free_arenas(call *c) {
    tide_arena_free(&c->cache.loaded);
    tide_arena_free(&c->cache.arena);
    tide_arena_free(&c->arena);
}

/* What changes after setjmp belongs to the caller, so a longjmp leaves it defined. */
static int answer(call *c, tide_text request, const tide_allocator *memory, char **response, size_t *response_len) {
    jmp_buf escape;
    tide_arena_init(&c->arena, *memory, &escape);
    tide_arena_init(&c->cache.arena, *memory, &escape);
    tide_arena_init(&c->cache.loaded, *memory, &escape);
    if (c->recording) c->recording->arena->escape = &escape;
    if (setjmp(escape)) {
        free_arenas(c);
        return 2;
    }
    tide_diagnostics_init(&c->diags, &c->arena);
    bool ok = dispatch(c, request) && c->diags.error_count == 0;
    if (!ok) write_failure(c);
    tide_write_close(&c->writer, '}');
    char *copy = memory->resize(memory->user, NULL, 0, (size_t)c->writer.length + 1);
    if (copy) {
        memcpy(copy, c->writer.bytes, c->writer.length);
        copy[c->writer.length] = 0;
        *response = copy;
        *response_len = c->writer.length;
    }
    free_arenas(c);
    return !copy ? 2 : ok ? 0 : 1;
}

int tide_call(const char *request, size_t request_len, const tide_allocator *allocator, char **response,
              size_t *response_len) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    call c;
    memset(&c, 0, sizeof c);
    *response = NULL;
    *response_len = 0;
    return answer(&c, (tide_text){request, request_len}, &memory, response, response_len);
}

void tide_free(const tide_allocator *allocator, char *response, size_t response_len) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    if (response) memory.resize(memory.user, response, response_len + 1, 0);
}

/* ---- a recording in pieces ---- */

struct tide_recorded {
    tide_allocator memory;
    tide_arena arena;
    tide_recording recording;
    bool has_ended, has_failed;
};

int tide_recording_open(const tide_allocator *allocator, struct tide_recorded **recording) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    jmp_buf escape;
    struct tide_recorded *made = *recording = memory.resize(memory.user, NULL, 0, sizeof *made);
    if (!made) return 2;
    memset(made, 0, sizeof *made);
    made->memory = memory;
    tide_arena_init(&made->arena, memory, &escape);
    if (setjmp(escape)) {
        tide_recording_free(*recording);
        *recording = NULL;
        return 2;
    }
    tide_recording_init(&made->recording, &made->arena);
    return 0;
}

int tide_recording_add(struct tide_recorded *r, const void *bytes, size_t length) {
    jmp_buf escape;
    if (r->has_failed || r->has_ended) return 2;
    r->arena.escape = &escape;
    if (setjmp(escape)) {
        r->has_failed = true;
        return 2;
    }
    tide_recording_feed(&r->recording, bytes, length);
    return 0;
}

static bool end_recording(struct tide_recorded *r) {
    jmp_buf escape;
    r->arena.escape = &escape;
    if (r->has_failed || setjmp(escape)) {
        r->has_failed = true;
        return false;
    }
    if (!r->has_ended) tide_recording_end(&r->recording);
    r->has_ended = true;
    return true;
}

int tide_recording_call(struct tide_recorded *r, const char *request, size_t request_len, char **response,
                        size_t *response_len) {
    call c;
    memset(&c, 0, sizeof c);
    *response = NULL;
    *response_len = 0;
    if (!end_recording(r)) return 2;
    c.recording = &r->recording;
    return answer(&c, (tide_text){request, request_len}, &r->memory, response, response_len);
}

void tide_recording_free(struct tide_recorded *r) {
    if (!r) return;
    tide_allocator memory = r->memory;
    tide_arena_free(&r->arena);
    memory.resize(memory.user, r, sizeof *r, 0);
}
