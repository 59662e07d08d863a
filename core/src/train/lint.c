/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and binds every expression and function of a description; errors have line and column. */
#include "train/lint.h"

#include <string.h>

#include "base/rounding.h"
#include "lang/lang.h"
#include "train/train.h"

typedef struct linted {
    tide_arena *arena;
    tide_text text, name;
    const tide_json *root;
} linted;

/* ---- where a node stands in the text: a walk over text that is known to be JSON ---- */

static const char *after_space(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++;
    return at;
}

static const char *after_value(const char *at) {
    int depth = 0;
    do {
        if (*at == '"') {
            for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
            at += *at == '"';
        } else if (*at == '{' || *at == '[') {
            depth++, at++;
        } else if (*at == '}' || *at == ']') {
            depth--, at++;
        } else if (depth == 0) {
            while (*at && !strchr(",]} \t\r\n", *at)) at++;
        } else {
            at++;
        }
    } while (*at && depth > 0);
    return at;
}

static const char *position(const linted *l, const tide_json *node) {
    if (!node->parent) return after_space(l->text.at);
    const char *at = position(l, node->parent) + 1;
    for (const tide_json *child = node->parent->first; child; child = child->next) {
        at = after_space(at);
        if (node->parent->kind == TIDE_JSON_OBJECT) at = after_space(after_space(after_value(at)) + 1);
        if (child == node) break;
        at = after_space(after_value(at)) + 1;
    }
    return at;
}

/* Skips the component of a place that a key stands for, which may have inherited parameters; NULL if it stands for
 * another. */
static const char *after_key(tide_text key, const char *place) {
    bool is_head = *place == '/' && strncmp(place + 1, key.at, key.length) == 0;
    if (!is_head) return NULL;
    const char *end = place + 1 + key.length, *parameters = *end == '(' ? strchr(end, ')') : NULL;
    if (parameters) end = parameters + 1;
    return *end && *end != '/' ? NULL : end;
}

static const char *after_index(uint32_t index, const char *place) {
    uint32_t number = 0;
    const char *end = place + 1;
    while (*place == '/' && *end >= '0' && *end <= '9') number = 10 * number + (uint32_t)(*end++ - '0');
    return end > place + 1 && number == index && (!*end || *end == '/') ? end : NULL;
}

/* The node below `node` at the rest of a place. */
static const tide_json *node_below(const tide_json *node, const char *place) {
    if (!*place) return node;
    uint32_t index = 0;
    for (const tide_json *child = node->first; child; child = child->next, index++) {
        const char *rest = node->kind == TIDE_JSON_OBJECT ? after_key(child->key, place) : after_index(index, place);
        const tide_json *found = rest ? node_below(child, rest) : NULL;
        if (found) return found;
    }
    return NULL;
}

/* The node at a place "/NAME/modules/...". */
static const tide_json *json_node_at(const linted *l, const char *place) {
    const char *rest = after_key(l->name, place);
    return rest ? node_below(l->root, rest) : NULL;
}

/* "column 7 of ..." in a message is relative to the statement. */
static uint32_t column_within(const char *message) {
    uint32_t column = 0;
    if (strncmp(message, "column ", 7) != 0) return 1;
    for (const char *at = message + 7; *at >= '0' && *at <= '9'; at++) column = 10 * column + (uint32_t)(*at - '0');
    return column;
}

static void write_one(tide_writer *w, const linted *l, const tide_diagnostic *d, const tide_json *otherwise) {
    const tide_json *node = l->root ? json_node_at(l, d->place) : NULL;
    if (!node) node = otherwise;
    uint32_t line = 1, column = 1;
    if (node) {
        const char *at = position(l, node);
        for (const char *c = l->text.at; c < at; c++) *c == '\n' ? (line++, column = 1) : column++;
        if (node->kind == TIDE_JSON_STRING) column += column_within(d->message);
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "severity", d->severity == TIDE_ERROR ? "error" : "warning");
    tide_write_string_at(w, "place", d->place);
    tide_write_int_at(w, "line", line);
    tide_write_int_at(w, "column", column);
    tide_write_string_at(w, "message", d->message);
    if (d->remedy) tide_write_string_at(w, "remedy", d->remedy);
    tide_write_close(w, '}');
}

static uint32_t write_found(tide_writer *w, const linted *l, const tide_diagnostics *diags, uint32_t from,
                            const tide_json *otherwise) {
    uint32_t errors = 0;
    for (uint32_t i = from; i < diags->count; i++) {
        if (diags->items[i].severity == TIDE_ASSUMPTION) continue;
        errors += diags->items[i].severity == TIDE_ERROR;
        write_one(w, l, &diags->items[i], otherwise);
    }
    return errors;
}

/* Reads sizes and functions one by one, so that an error in one does not hide errors in others. */
static uint32_t lint_functions(tide_writer *w, const linted *l, tide_run *run, tide_diagnostics *diags,
                               tide_description *d) {
    tide_descriptions *set = &run->descriptions;
    uint32_t errors = 0, from;
    for (uint32_t i = 0; i < d->size_count; i++) {
        from = diags->count;
        tide_size_find(set, d, d->sizes[i].name);
        errors += write_found(w, l, diags, from, d->sizes[i].item);
    }
    for (uint32_t i = 0; i < d->function_count; i++) {
        from = diags->count;
        tide_function *f = tide_function_find(set, d, d->functions[i].name);
        if (f) tide_model_check(&run->model, NULL, f);
        errors += write_found(w, l, diags, from, d->functions[i].item);
    }
    for (uint32_t i = 0; i < d->module_count; i++) {
        const tide_json *item = d->modules[i].item;
        from = diags->count;
        tide_class *c = tide_class_find(set, d, d->modules[i].name);
        if (c) tide_model_check(&run->model, c, NULL);
        errors += write_found(w, l, diags, from, item);
        for (tide_function *f = c ? c->methods : NULL; f; f = f->next) {
            const tide_json *method = f->item ? f->item : item;
            from = diags->count;
            tide_model_check(&run->model, c, f);
            errors += write_found(w, l, diags, from, method);
        }
    }
    return errors;
}

static void endless(tide_arena *arena, tide_diagnostics *diags, const tide_description *d, const tide_function *f,
                    const tide_json *item) {
    if (f && tide_function_is_endless(f))
        tide_error(diags, TIDE_ERR_DESCRIPTION, tide_json_place(arena, item, tide_format(arena, "/%s", d->name.at)),
                   tide_format(arena, "'%s' always calls itself", tide_shown(arena, f->name)),
                   "end the recursion with an if");
}

/* Requires bound functions. */
static void lint_recursion(tide_run *run, tide_arena *arena, tide_diagnostics *diags, tide_description *d) {
    tide_descriptions *set = &run->descriptions;
    for (uint32_t i = 0; i < d->function_count; i++)
        endless(arena, diags, d, tide_function_find(set, d, d->functions[i].name), d->functions[i].item);
    for (uint32_t i = 0; i < d->module_count; i++) {
        const tide_class *c = tide_class_find(set, d, d->modules[i].name);
        for (const tide_function *f = c ? c->methods : NULL; f; f = f->next)
            endless(arena, diags, d, f, d->modules[i].item);
    }
}

void tide_write_lint(tide_writer *w, tide_arena *arena, tide_text text) {
    tide_diagnostics diags, scratch;
    tide_diagnostics_init(&diags, arena);
    tide_diagnostics_init(&scratch, arena);
    linted l = {.arena = arena, .text = {tide_text_copy(arena, text), text.length}, .name = TIDE_TEXT("description")};
    uint32_t errors = 0;
    tide_write_open(w, '{');
    tide_write_key(w, "found");
    tide_write_open(w, '[');
    tide_json *root = tide_json_parse(arena, text, "/description", &diags);
    const tide_json *name = tide_json_at(root, "architecture");
    if (name && name->kind == TIDE_JSON_STRING) l.name = name->text;
    l.root = root;
    /* any job, so that settings have values, with quantised layers, which a description may extend */
    const tide_text words[] = {tide_text_of(tide_format(arena, "model=%s", tide_catalogue_sources[0].name)),
                               TIDE_TEXT("quant=nf4")};
    tide_job *job = root ? tide_job_build(arena, words, TIDE_COUNT_OF(words), NULL, 0, &scratch) : NULL;
    errors += write_found(w, &l, &diags, 0, NULL);
    if (job) {
        tide_run *run = TIDE_NEW(arena, tide_run, 1);
        uint32_t from = diags.count;
        job->description = root;
        job->description_text = text;
        tide_description *d = tide_run_description(run, job, arena, &diags);
        errors += write_found(w, &l, &diags, from, root);
        if (d) errors += lint_functions(w, &l, run, &diags, d);
        from = diags.count;
        if (d && !errors) lint_recursion(run, arena, &diags, d);
        if (d) tide_description_all_used(&run->descriptions, d);
        errors += write_found(w, &l, &diags, from, root);
    }
    tide_write_close(w, ']');
    tide_write_int_at(w, "errors", errors);
    tide_write_close(w, '}');
}
