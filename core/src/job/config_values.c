/* SPDX-License-Identifier: Apache-2.0 */
/* Values of configuration entries: JSON read from words, written back, and stored at a dotted path. */
#include "job/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_LIMIT = 16, PART_LIMIT = 128 };

/* ---- JSON in words ---- */

/* A node, or NULL with the reason in *scratch. */
static tide_json *try_parse(tide_arena *arena, tide_text text, tide_diagnostics *scratch) {
    tide_diagnostics_init(scratch, arena);
    return tide_json_parse(arena, text, "", scratch);
}

/* Whether text is obviously meant as JSON: if it is invalid that is an error, rather than a string. */
static bool looks_like_json(tide_text text) {
    return text.length && (text.at[0] == '{' || text.at[0] == '[' || text.at[0] == '"');
}

tide_json *tide_argument_json(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    tide_diagnostics scratch;
    tide_json *value = text.length ? try_parse(arena, text, &scratch) : NULL;
    if (value) return value;
    if (text.length && (scratch.first_error != TIDE_ERR_JSON_SYNTAX || looks_like_json(tide_trimmed(text)))) {
        tide_error(diags, scratch.first_error, place, scratch.items[0].message, scratch.items[0].remedy);
        return NULL;
    }
    value = tide_json_new(arena, TIDE_JSON_STRING);
    value->text = (tide_text){tide_text_copy(arena, text), text.length};
    return value;
}

typedef struct json_text {
    tide_arena *arena;
    char *bytes;
    size_t length, capacity;
} json_text;

static void json_put(json_text *out, tide_text text) {
    if (!out->bytes || out->capacity - out->length < text.length + 1) {
        size_t capacity = out->capacity ? out->capacity : 64;
        while (capacity - out->length < text.length + 1) capacity *= 2;
        out->bytes = tide_arena_grow(out->arena, out->bytes, out->capacity, capacity);
        out->capacity = capacity;
    }
    if (text.length) memcpy(out->bytes + out->length, text.at, text.length);
    out->length += text.length;
}

static void json_put_quoted(json_text *out, tide_text text) {
    tide_writer writer;
    tide_writer_init(&writer, out->arena);
    tide_write_text(&writer, text);
    json_put(out, (tide_text){writer.bytes, writer.length});
    tide_arena_drop(out->arena, writer.bytes);
}

/* The shortest of three forms that reads back as the same number; with a point, whatever the locale. */
static void json_put_number(json_text *out, const tide_json *node) {
    char digits[40];
    if (node->is_integer) {
        snprintf(digits, sizeof digits, "%" PRId64, node->integer);
    } else {
        for (int precision = 15; precision <= 17; precision++) {
            snprintf(digits, sizeof digits, "%.*g", precision, node->number);
            if (strtod(digits, NULL) == node->number) break;
        }
        for (char *c = digits; *c; c++)
            if (!strchr("0123456789+-e", *c)) *c = '.';
    }
    json_put(out, tide_text_of(digits));
}

static void json_put_value(json_text *out, const tide_json *node) {
    switch (node->kind) {
    case TIDE_JSON_NULL:
        json_put(out, TIDE_TEXT("null"));
        break;
    case TIDE_JSON_BOOL:
        json_put(out, tide_text_of(node->is_true ? "true" : "false"));
        break;
    case TIDE_JSON_NUMBER:
        json_put_number(out, node);
        break;
    case TIDE_JSON_STRING:
        json_put_quoted(out, node->text);
        break;
    case TIDE_JSON_ARRAY:
    case TIDE_JSON_OBJECT: {
        bool is_object = node->kind == TIDE_JSON_OBJECT;
        json_put(out, is_object ? TIDE_TEXT("{") : TIDE_TEXT("["));
        for (const tide_json *child = node->first; child; child = child->next) {
            if (child != node->first) json_put(out, TIDE_TEXT(","));
            if (is_object) {
                json_put_quoted(out, child->key);
                json_put(out, TIDE_TEXT(":"));
            }
            json_put_value(out, child);
        }
        json_put(out, is_object ? TIDE_TEXT("}") : TIDE_TEXT("]"));
    }
    }
}

/* A string is written without quotes if it would be read back as itself. */
const char *tide_argument_json_text(tide_arena *arena, const tide_json *value) {
    json_text out = {.arena = arena};
    tide_diagnostics scratch;
    if (value->kind == TIDE_JSON_STRING) {
        bool is_bare = value->text.length == 0 ||
                       (!try_parse(arena, value->text, &scratch) && scratch.first_error == TIDE_ERR_JSON_SYNTAX &&
                        !looks_like_json(tide_trimmed(value->text)));
        if (is_bare) return tide_text_copy(arena, value->text);
    }
    json_put_value(&out, value);
    const char *text = tide_text_copy(arena, (tide_text){out.bytes, out.length});
    tide_arena_drop(arena, out.bytes);
    return text;
}

/* ---- replacing entries ---- */

static bool override_refuse(tide_arena *arena, tide_diagnostics *diags, const tide_override *o, tide_status status,
                            const char *message) {
    const char *path = tide_shown(arena, tide_text_of(o->path));
    return tide_error(diags, status, tide_format(arena, "/settings/overrides.%s", path), message,
                      "write a path in the configuration, such as overrides.text_config.num_hidden_layers=4");
}

/* The link to a child of an array or object; NULL past the end of an array, or if part is not an index. */
static tide_json **child_link(tide_json *node, tide_text part) {
    tide_json **link = &node->first;
    if (node->kind == TIDE_JSON_OBJECT) {
        while (*link && !tide_text_equal((*link)->key, part)) link = &(*link)->next;
        return link;
    }
    int64_t index;
    if (!tide_text_to_i64(&index, part) || index < 0 || index >= (int64_t)node->count) return NULL;
    while (index-- > 0) link = &(*link)->next;
    return link;
}

static void child_put(tide_arena *arena, tide_json *node, tide_json **link, tide_text part, tide_json *value) {
    if (node->kind == TIDE_JSON_OBJECT) {
        tide_json_put(arena, node, part, value);
        return;
    }
    value->next = (*link)->next;
    value->parent = node;
    value->key = (tide_text){NULL, 0};
    *link = value;
}

bool tide_config_override(tide_arena *arena, tide_json *config, const tide_override *o, tide_diagnostics *diags) {
    tide_json *at = config;
    tide_text rest = tide_text_of(o->path), part;
    for (unsigned depth = 1; at && tide_piece_next(&rest, '.', &part); depth++) {
        bool is_last = !rest.at;
        if (depth > PATH_LIMIT)
            return override_refuse(arena, diags, o, TIDE_ERR_LIMIT, "the path has more than 16 parts");
        if (part.length == 0 || part.length > PART_LIMIT)
            return override_refuse(arena, diags, o, TIDE_ERR_FIELD_UNKNOWN,
                                   part.length ? "a part of the path is longer than 128 bytes"
                                               : "a part of the path is empty");
        if (at->kind != TIDE_JSON_OBJECT && at->kind != TIDE_JSON_ARRAY)
            return override_refuse(arena, diags, o, TIDE_ERR_FIELD_TYPE,
                                   tide_format(arena, "\"%s\" cannot be set: its parent is %s", tide_shown(arena, part),
                                               tide_json_kind_name(at)));
        tide_json **link = child_link(at, part);
        if (!link)
            return override_refuse(
                arena, diags, o, TIDE_ERR_FIELD_RANGE,
                tide_format(arena, "\"%s\" must be an index below %u", tide_shown(arena, part), (unsigned)at->count));
        if (!is_last && !*link) tide_json_put(arena, at, part, tide_json_new(arena, TIDE_JSON_OBJECT));
        if (is_last) child_put(arena, at, link, part, o->value);
        at = *link;
    }
    return true;
}

/* Keys of dropout probabilities. */
static bool is_dropout(tide_text key) {
    return tide_text_matches(key, TIDE_TEXT("*dropout*")) || tide_text_matches(key, TIDE_TEXT("*_pdrop")) ||
           tide_text_matches(key, TIDE_TEXT("*drop_rate")) || tide_text_is(key, "drop_path_rate");
}

void tide_config_dropout(tide_json *config, int64_t pico) {
    for (tide_json *child = config->first; child; child = child->next) {
        if (child->kind == TIDE_JSON_OBJECT) {
            tide_config_dropout(child, pico);
        } else if (child->kind == TIDE_JSON_NUMBER && is_dropout(child->key)) {
            child->number = (double)pico / (double)TIDE_PICO;
            child->is_integer = pico % TIDE_PICO == 0;
            child->integer = pico / TIDE_PICO;
        }
    }
}
