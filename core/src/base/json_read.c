/* SPDX-License-Identifier: Apache-2.0 */
/* cJSON with strict checks: limits on depth and size, no duplicate keys, exact integers. */
#include "base/json_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

enum { JSON_TEXT_LIMIT = 128 << 20, JSON_DEPTH_LIMIT = 64, JSON_VALUE_LIMIT = 1 << 20 };

static const double INTEGER_LIMIT = 9007199254740992.0; /* 2^53: all smaller integers are exact in a double */

/* The nesting depth of a text, and an upper bound of its number of values, strings skipped. Checked before parsing,
 * because cJSON recurses and takes 64 bytes even for a one-digit number. */
static unsigned text_depth(tide_text text, size_t *values) {
    unsigned depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.length; i++) {
        char c = text.at[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == ',') {
            ++*values;
        } else if (c == '[' || c == '{') {
            ++*values;
            if (++depth > deepest) deepest = depth;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return deepest;
}

/* Python's json writes Infinity, which is not JSON: such a value counts as not given. */
static void blank_infinity(char *text, size_t length) {
    static const char word[] = "Infinity";
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && length - i >= sizeof word - 1 && memcmp(text + i, word, sizeof word - 1) == 0) {
            if (i && text[i - 1] == '-') text[i - 1] = ' ';
            memcpy(text + i, "null    ", sizeof word - 1);
        }
    }
}

static tide_text copy_text(tide_arena *arena, const char *terminated) {
    tide_text text = tide_text_of(terminated);
    return (tide_text){tide_text_copy(arena, text), text.length};
}

tide_json *tide_json_new(tide_arena *arena, tide_json_kind kind) {
    tide_json *node = TIDE_NEW(arena, tide_json, 1);
    node->kind = kind;
    return node;
}

static tide_json *copy_node(tide_arena *arena, const cJSON *from, tide_json *parent) {
    tide_json *node = tide_json_new(arena, TIDE_JSON_NULL);
    node->parent = parent;
    if (from->string) node->key = copy_text(arena, from->string);
    if (cJSON_IsBool(from)) {
        node->kind = TIDE_JSON_BOOL;
        node->is_true = cJSON_IsTrue(from);
    } else if (cJSON_IsNumber(from)) {
        node->kind = TIDE_JSON_NUMBER;
        node->number = from->valuedouble;
        if (fabs(node->number) < INTEGER_LIMIT && node->number == floor(node->number)) {
            node->is_integer = true;
            node->integer = (int64_t)node->number;
        }
    } else if (cJSON_IsString(from)) {
        node->kind = TIDE_JSON_STRING;
        node->text = copy_text(arena, from->valuestring);
    } else if (cJSON_IsArray(from) || cJSON_IsObject(from)) {
        node->kind = cJSON_IsArray(from) ? TIDE_JSON_ARRAY : TIDE_JSON_OBJECT;
        tide_json **link = &node->first;
        for (const cJSON *child = from->child; child; child = child->next) {
            *link = copy_node(arena, child, node);
            link = &(*link)->next;
            node->count++;
        }
    }
    return node;
}

static bool has_duplicate(const tide_json *object, const tide_json *child) {
    for (const tide_json *other = object->first; other != child; other = other->next)
        if (tide_text_equal(other->key, child->key)) return true;
    return false;
}

/* Only so many keys of an object are checked for duplicates: the cost is quadratic. */
enum { DUPLICATE_WINDOW = 4096 };

static bool check_node(tide_arena *arena, const tide_json *node, const char *place, tide_diagnostics *diags) {
    if (node->kind == TIDE_JSON_NUMBER && !isfinite(node->number))
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, tide_json_place(arena, node, place),
                          "the number is too large to be read", "write a smaller number");
    uint32_t index = 0;
    for (const tide_json *child = node->first; child; child = child->next, index++) {
        if (node->kind == TIDE_JSON_OBJECT && index < DUPLICATE_WINDOW && has_duplicate(node, child))
            return tide_error(diags, TIDE_ERR_JSON_SYNTAX, tide_json_place(arena, child, place),
                              "the key stands twice in one object", "remove one of the two");
        if (!check_node(arena, child, place, diags)) return false;
    }
    return true;
}

static const char *syntax_message(tide_arena *arena, tide_text text, const char *end) {
    size_t at = end && end >= text.at && end <= text.at + text.length ? (size_t)(end - text.at) : 0;
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column++;
        if (text.at[i] == '\n') line++, column = 1;
    }
    return tide_format(arena, "not JSON at line %u, column %u (byte %u)", line, column, (unsigned)at);
}

tide_json *tide_json_parse(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    if (text.length >= 3 && memcmp(text.at, "\xef\xbb\xbf", 3) == 0) text = (tide_text){text.at + 3, text.length - 3};
    if (text.length > JSON_TEXT_LIMIT) {
        tide_error(diags, TIDE_ERR_JSON_LIMIT, place, "the text is longer than 128 MiB", "give the configuration only");
        return NULL;
    }
    size_t values = 0;
    if (text_depth(text, &values) > JSON_DEPTH_LIMIT) {
        tide_error(diags, TIDE_ERR_JSON_LIMIT, place, "nested deeper than 64 levels",
                   "no configuration needs that; is this the right file?");
        return NULL;
    }
    if (values > JSON_VALUE_LIMIT) {
        tide_error(diags, TIDE_ERR_JSON_LIMIT, place, "more than a million values", "give the configuration only");
        return NULL;
    }
    if (memchr(text.at, 0, text.length)) {
        tide_error(diags, TIDE_ERR_JSON_SYNTAX, place, "holds a zero byte: this is no text",
                   "give a JSON file in UTF-8");
        return NULL;
    }
    const char *end = NULL;
    char *terminated = tide_text_copy(arena, text);
    blank_infinity(terminated, text.length);
    cJSON *parsed = cJSON_ParseWithLengthOpts(terminated, text.length + 1, &end, 1);
    if (!parsed) {
        tide_error(diags, TIDE_ERR_JSON_SYNTAX, place, syntax_message(arena, (tide_text){terminated, text.length}, end),
                   "mend the text there");
        return NULL;
    }
    jmp_buf *outer = arena->escape;
    jmp_buf here; /* cJSON's tree is outside of the arena and must be freed on the way out */
    if (setjmp(here)) {
        arena->escape = outer;
        cJSON_Delete(parsed);
        tide_arena_fail(arena);
    }
    arena->escape = &here;
    tide_json *root = copy_node(arena, parsed, NULL);
    arena->escape = outer;
    cJSON_Delete(parsed);
    return check_node(arena, root, place, diags) ? root : NULL;
}

const tide_json *tide_json_find(const tide_json *object, tide_text key) {
    if (!object || object->kind != TIDE_JSON_OBJECT) return NULL;
    for (const tide_json *child = object->first; child; child = child->next)
        if (tide_text_equal(child->key, key)) return child;
    return NULL;
}

const tide_json *tide_json_at(const tide_json *object, const char *key) {
    return tide_json_find(object, tide_text_of(key));
}

/* The last component of a node's path, "/key" or "/3": returns its length, and writes it so that it ends at `end`. */
static size_t put_place(const tide_json *node, char *end) {
    char digits[TIDE_DIGITS];
    tide_text part = node->key;
    if (node->parent->kind != TIDE_JSON_OBJECT) {
        uint64_t index = 0;
        for (const tide_json *other = node->parent->first; other && other != node; other = other->next) index++;
        part = (tide_text){digits, tide_digits(digits, index)};
    }
    if (end) {
        end[-(ptrdiff_t)part.length - 1] = '/';
        if (part.length) memcpy(end - part.length, part.at, part.length);
    }
    return part.length + 1;
}

bool tide_json_is(const tide_json *node, tide_json_kind kind) {
    return node && node->kind == kind;
}

bool tide_json_is_true(const tide_json *node) {
    return tide_json_is(node, TIDE_JSON_BOOL) && node->is_true;
}

bool tide_json_is_text(const tide_json *node, const char *text) {
    return tide_json_is(node, TIDE_JSON_STRING) && tide_text_is(node->text, text);
}

const char *tide_json_place(tide_arena *arena, const tide_json *node, const char *place) {
    size_t root = strlen(place), length = root;
    for (const tide_json *at = node; at->parent; at = at->parent) length += put_place(at, NULL);
    char *out = tide_arena_alloc(arena, length + 1), *end = out + length;
    for (const tide_json *at = node; at->parent; at = at->parent) end -= put_place(at, end);
    memcpy(out, place, root);
    return out;
}

const char *tide_json_kind_name(const tide_json *node) {
    static const char *const names[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
    return node ? names[node->kind] : "nothing";
}

void tide_json_put(tide_arena *arena, tide_json *object, tide_text key, tide_json *value) {
    tide_json **link = &object->first;
    while (*link && !tide_text_equal((*link)->key, key)) link = &(*link)->next;
    value->next = *link ? (*link)->next : NULL;
    if (!*link) object->count++;
    value->key = (tide_text){tide_text_copy(arena, key), key.length};
    value->parent = object;
    *link = value;
}

tide_json *tide_json_clone(tide_arena *arena, const tide_json *node) {
    tide_json *copy = TIDE_NEW(arena, tide_json, 1);
    *copy = *node;
    copy->next = copy->parent = NULL;
    tide_json **link = &copy->first;
    for (const tide_json *child = node->first; child; child = child->next) {
        *link = tide_json_clone(arena, child);
        (*link)->parent = copy;
        link = &(*link)->next;
    }
    *link = NULL;
    return copy;
}
