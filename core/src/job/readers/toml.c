/* SPDX-License-Identifier: Apache-2.0 */
/* TOML 1.0 (toml.io), as read by tomllib: tables, dotted keys, strings, numbers, arrays and inline tables. */
#include "job/readers/toml.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"

enum { TOML_DEPTH = 64, TOML_NODES = 20000, TOML_SCALAR = 64 };

typedef struct toml {
    tide_arena *arena;
    const char *at, *end, *message; /* NULL: no error yet */
    uint32_t line, nodes;
} toml;

static tide_json *toml_fail(toml *t, const char *message) {
    if (!t->message) t->message = message;
    t->at = t->end;
    return NULL;
}

static bool toml_is_at(const toml *t, const char *word) {
    size_t length = strlen(word);
    return (size_t)(t->end - t->at) >= length && memcmp(t->at, word, length) == 0;
}

static bool toml_take(toml *t, char c) {
    if (t->at == t->end || *t->at != c) return false;
    t->at++;
    return true;
}

static void skip_blanks(toml *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t')) t->at++;
}

static void skip_comment(toml *t) {
    skip_blanks(t);
    if (t->at < t->end && *t->at == '#')
        while (t->at < t->end && *t->at != '\n') t->at++;
    if (t->at < t->end && *t->at == '\r') t->at++;
}

/* Whitespace, comments and line breaks, as between the items of an array. */
static void skip_lines(toml *t) {
    for (skip_comment(t); t->at < t->end && *t->at == '\n'; skip_comment(t)) {
        t->at++;
        t->line++;
    }
}

static tide_json *toml_node(toml *t, tide_json_kind kind) {
    if (++t->nodes > TOML_NODES) return toml_fail(t, "contains more values than tidemark reads (20000)");
    return tide_json_new(t->arena, kind);
}

/* ---- texts ---- */

static size_t put_utf8(char *to, unsigned long code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | code >> 6 * more);
    for (size_t i = 1; i <= more; i++) to[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3f));
    return more + 1;
}

static size_t unicode(toml *t, char *to, int digits) {
    char hex[9] = {0}, *end;
    if (t->end - t->at < digits) return (void)toml_fail(t, "ends within a text"), 0;
    memcpy(hex, t->at, (size_t)digits);
    unsigned long code = strtoul(hex, &end, 16);
    bool is_scalar = code > 0 && code < 0x110000 && (code < 0xd800 || code > 0xdfff);
    if (*end || hex[0] == '-' || hex[0] == '+' || hex[0] == ' ' || !is_scalar)
        return (void)toml_fail(t, "has no character after \\u"), 0;
    t->at += digits;
    return put_utf8(to, code);
}

/* The character after a backslash; at most four bytes. */
static size_t escaped(toml *t, char *to, bool is_long) {
    static const char from[] = "btnfre\"\\", into[] = "\b\t\n\f\r\x1b\"\\";
    const char *known = t->at < t->end && *t->at ? strchr(from, *t->at) : NULL;
    if (known) {
        t->at++;
        to[0] = into[known - from];
        return 1;
    }
    if (toml_take(t, 'u')) return unicode(t, to, 4);
    if (toml_take(t, 'U')) return unicode(t, to, 8);
    const char *begin = t->at;
    if (is_long) skip_blanks(t);
    if (!is_long || t->at == t->end || (*t->at != '\n' && *t->at != '\r') || begin > t->at)
        return (void)toml_fail(t, "has an unknown escape in a string"), 0;
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at) t->line += *t->at++ == '\n';
    return 0;
}

/* An upper bound for the length of a string: up to its last quote. */
static size_t longest(const toml *t, const char *quotes) {
    const char *at = t->at;
    while (at < t->end && ((size_t)(t->end - at) < strlen(quotes) || memcmp(at, quotes, strlen(quotes)) != 0))
        at += *at == '\\' && *quotes == '"' && at + 1 < t->end ? 2 : 1;
    return (size_t)(at - t->at) + 8;
}

/* A quoted string; with three quotes it may span lines, with ' there are no escapes. */
static bool quoted(toml *t, tide_text *text) {
    char quote = *t->at;
    const char three[] = {quote, quote, quote, 0};
    bool is_long = toml_is_at(t, three);
    t->at += is_long ? 3 : 1;
    if (is_long && t->at < t->end && *t->at == '\r') t->at++;
    if (is_long && toml_take(t, '\n')) t->line++;
    const char one[] = {quote, 0};
    char *out = TIDE_NEW(t->arena, char, longest(t, is_long ? three : one));
    size_t length = 0;
    while (t->at < t->end) {
        if (is_long ? toml_is_at(t, three) && (t->end - t->at < 4 || t->at[3] != quote) : *t->at == quote) {
            t->at += is_long ? 3 : 1;
            *text = (tide_text){out, length};
            return true;
        }
        char c = *t->at++;
        if (c == '\n' && !is_long) return toml_fail(t, "has a string that does not end on its line"), false;
        if (c == '\0') return toml_fail(t, "has a zero byte in a string"), false;
        t->line += c == '\n';
        if (c == '\\' && quote == '"')
            length += escaped(t, out + length, is_long);
        else
            out[length++] = c;
    }
    return toml_fail(t, "has a string that does not end"), false;
}

/* ---- keys ---- */

static bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static bool toml_key(toml *t, tide_text *key) {
    skip_blanks(t);
    if (t->at < t->end && (*t->at == '"' || *t->at == '\'')) return quoted(t, key);
    const char *begin = t->at;
    while (t->at < t->end && is_bare(*t->at)) t->at++;
    if (t->at == begin) return toml_fail(t, "lacks a key"), false;
    *key = (tide_text){begin, (size_t)(t->at - begin)};
    key->at = tide_text_copy(t->arena, *key);
    return true;
}

static void put_entry(toml *t, tide_json *object, tide_text key, tide_json *value) {
    if (value && tide_json_find(object, key))
        toml_fail(t, tide_format(t->arena, "has %s twice", tide_shown(t->arena, key)));
    else if (value)
        tide_json_put(t->arena, object, key, value);
}

/* Follows all parts of a dotted key except the last; returns the object for that. */
static tide_json *walk(toml *t, tide_json *object, tide_text *last) {
    if (!toml_key(t, last)) return NULL;
    for (int depth = 0;; depth++) {
        skip_blanks(t);
        if (!toml_take(t, '.')) return object;
        if (depth == TOML_DEPTH) return toml_fail(t, "nests more than 64 tables");
        tide_json *below = NULL;
        for (tide_json *child = object->first; child && !below; child = child->next)
            if (tide_text_equal(child->key, *last)) below = child;
        if (!below) {
            below = toml_node(t, TIDE_JSON_OBJECT);
            put_entry(t, object, *last, below);
        }
        if (!below) return NULL;
        if (below->kind != TIDE_JSON_OBJECT) return toml_fail(t, "has a key below something that is not a table");
        object = below;
        if (!toml_key(t, last)) return NULL;
    }
}

/* ---- values ---- */

static tide_json *toml_value(toml *t, int depth);

static tide_json *toml_array(toml *t, int depth) {
    tide_json *array = toml_node(t, TIDE_JSON_ARRAY), *last = NULL;
    if (!array) return NULL;
    for (skip_lines(t); !toml_take(t, ']'); skip_lines(t)) {
        tide_json *item = toml_value(t, depth + 1);
        if (!item) return NULL;
        item->parent = array;
        if (last)
            last->next = item;
        else
            array->first = item;
        last = item;
        array->count++;
        skip_lines(t);
        bool goes_on = toml_take(t, ',');
        if (!goes_on && (t->at == t->end || *t->at != ']')) return toml_fail(t, "has an array that does not end");
    }
    return array;
}

static bool toml_entry(toml *t, tide_json *object, int depth) {
    tide_text key;
    tide_json *in = walk(t, object, &key);
    if (!in) return false;
    skip_blanks(t);
    if (!toml_take(t, '=')) return toml_fail(t, "lacks = after a key"), false;
    put_entry(t, in, key, toml_value(t, depth));
    return !t->message;
}

static tide_json *toml_inline(toml *t, int depth) {
    tide_json *object = toml_node(t, TIDE_JSON_OBJECT);
    skip_lines(t);
    if (!object || toml_take(t, '}')) return object;
    do {
        skip_lines(t);
        if (!toml_entry(t, object, depth + 1)) return NULL;
        skip_lines(t);
    } while (toml_take(t, ','));
    return toml_take(t, '}') ? object : toml_fail(t, "has an inline table that does not end");
}

static bool is_moment(tide_text word) {
    return word.length > 4 && word.at[0] >= '0' && word.at[0] <= '9' &&
           (word.at[4] == '-' || memchr(word.at, ':', word.length));
}

/* As in JSON, plus a leading plus sign and _ between digits. */
static tide_json *toml_number(toml *t, tide_text word) {
    char digits[TOML_SCALAR + 1];
    tide_diagnostics scratch;
    size_t length = 0;
    for (size_t i = 0; i < word.length; i++)
        if (word.at[i] != '_' && (i || word.at[i] != '+')) digits[length++] = word.at[i];
    tide_json *node = NULL;
    tide_diagnostics_init(&scratch, t->arena);
    if (is_moment(word)) {
        node = toml_node(t, TIDE_JSON_STRING);
        if (node) node->text = (tide_text){tide_text_copy(t->arena, word), word.length};
        return node;
    }
    if (length && ++t->nodes <= TOML_NODES) node = tide_json_parse(t->arena, (tide_text){digits, length}, "", &scratch);
    if (node && node->kind == TIDE_JSON_NUMBER) return node;
    return toml_fail(t, tide_format(t->arena, "has an invalid value: %s", tide_shown(t->arena, word)));
}

static tide_json *toml_value(toml *t, int depth) {
    skip_blanks(t);
    if (depth > TOML_DEPTH) return toml_fail(t, "nests more than 64 values");
    if (t->at < t->end && (*t->at == '"' || *t->at == '\'')) {
        tide_json *text = toml_node(t, TIDE_JSON_STRING);
        return text && quoted(t, &text->text) ? text : NULL;
    }
    if (toml_take(t, '[')) return toml_array(t, depth);
    if (toml_take(t, '{')) return toml_inline(t, depth);
    const char *begin = t->at;
    while (t->at < t->end && (is_bare(*t->at) || *t->at == '+' || *t->at == '.' || *t->at == ':')) t->at++;
    tide_text word = {begin, (size_t)(t->at - begin)};
    if (word.length > TOML_SCALAR) return toml_fail(t, "has an invalid value");
    if (!tide_text_is(word, "true") && !tide_text_is(word, "false")) return toml_number(t, word);
    tide_json *truth = toml_node(t, TIDE_JSON_BOOL);
    if (truth) truth->is_true = word.length == 4;
    return truth;
}

/* ---- lines ---- */

/* [a.b]: what follows belongs there. */
static tide_json *toml_table(toml *t, tide_json *root) {
    tide_text key;
    if (toml_take(t, '[')) return toml_fail(t, "has an array of tables, which is not supported");
    tide_json *in = walk(t, root, &key), *table = NULL;
    if (!in) return NULL;
    for (tide_json *child = in->first; child && !table; child = child->next)
        if (tide_text_equal(child->key, key)) table = child;
    if (!table) {
        table = toml_node(t, TIDE_JSON_OBJECT);
        put_entry(t, in, key, table);
    }
    if (table && table->kind != TIDE_JSON_OBJECT) return toml_fail(t, "redefines a value as a table");
    return toml_take(t, ']') ? table : toml_fail(t, "lacks ] after a table");
}

tide_json *tide_toml_parse(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    toml t = {.arena = arena, .at = text.at, .end = text.at + text.length, .line = 1};
    tide_json *root = tide_json_new(arena, TIDE_JSON_OBJECT), *table = root;
    if (text.length > TIDE_TOML_LIMIT) toml_fail(&t, "is larger than tidemark reads (64 KiB)");
    for (skip_lines(&t); t.at < t.end && !t.message; skip_lines(&t)) {
        if (toml_take(&t, '['))
            table = toml_table(&t, root);
        else
            toml_entry(&t, table, 0);
        skip_comment(&t);
        if (!t.message && t.at < t.end && *t.at != '\n') toml_fail(&t, "continues after a value");
    }
    if (!t.message) return root;
    tide_error(diags, TIDE_ERR_FILE, place, tide_format(arena, "line %u %s", t.line, t.message),
               "give TOML that tomllib reads");
    return NULL;
}
