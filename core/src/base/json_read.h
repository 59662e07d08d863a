/* SPDX-License-Identifier: Apache-2.0 */
/* Parses JSON text to a tree in the arena; cJSON does the parsing, the result is checked and copied. */
#ifndef TIDE_BASE_JSON_READ_H
#define TIDE_BASE_JSON_READ_H

#include "base/diagnostics.h"

typedef enum tide_json_kind {
    TIDE_JSON_NULL,
    TIDE_JSON_BOOL,
    TIDE_JSON_NUMBER,
    TIDE_JSON_STRING,
    TIDE_JSON_ARRAY,
    TIDE_JSON_OBJECT
} tide_json_kind;

typedef struct tide_json {
    tide_json_kind kind;
    bool is_true;    /* of a bool */
    bool is_integer; /* of a number: an integer within 2^53 */
    int64_t integer; /* of an integral number */
    double number;   /* of any number */
    tide_text text;  /* of a string; also terminated */
    tide_text key;   /* inside of an object; also terminated */
    uint32_t count;  /* of an array or object */
    struct tide_json *first, *next, *parent;
} tide_json;

/* Limits: 128 MiB of text, 2^20 values, 64 levels. Duplicate keys and trailing text are errors. NULL after an error. */
tide_json *tide_json_parse(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);

/* NULL if object is NULL or not an object, or has no such key. */
const tide_json *tide_json_at(const tide_json *object, const char *key);
const tide_json *tide_json_find(const tide_json *object, tide_text key);

/* Whether a node exists and has this kind; whether it is true; whether it is this string. */
bool tide_json_is(const tide_json *node, tide_json_kind kind);
bool tide_json_is_true(const tide_json *node);
bool tide_json_is_text(const tide_json *node, const char *text);

/* The JSON Pointer of a node, prefixed with `place`. */
const char *tide_json_place(tide_arena *arena, const tide_json *node, const char *place);

/* "a string", "an array", ... */
const char *tide_json_kind_name(const tide_json *node);

/* New nodes, for settings that override values of a file. */
tide_json *tide_json_new(tide_arena *arena, tide_json_kind kind);
void tide_json_put(tide_arena *arena, tide_json *object, tide_text key, tide_json *value);
tide_json *tide_json_clone(tide_arena *arena, const tide_json *node);

#endif
