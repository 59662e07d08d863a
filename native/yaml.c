/* SPDX-License-Identifier: Apache-2.0 */
/* YAML to JSON, as json.dumps(yaml.safe_load(text)) with PyYAML: YAML 1.1, scalars by the rules of its SafeLoader.
 * Objects without a form in JSON are not constructed, and aliases are expanded within limits. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "cli.h"

enum { TEXT_LIMIT = 4 << 20, OUT_LIMIT = 16 << 20, NODE_LIMIT = 200000, KEY_LIMIT = 4096, DEPTH_LIMIT = 64 };

typedef enum kind { SCALAR, LIST, MAP } kind;

typedef struct node {
    kind kind;
    bool is_merge;    /* the key << */
    char *json;       /* of a scalar: its JSON */
    struct node **of; /* of a map: key, value, key, value */
    size_t count, capacity;
    struct node *older; /* all nodes, to be freed */
} node;

typedef struct anchor {
    char *name;
    node *of; /* NULL: not complete */
} anchor;

typedef struct reader {
    yaml_parser_t parser;
    node *newest;
    size_t node_count;
    anchor *anchors;
    size_t anchor_count;
    char message[200]; /* "": no error */
} reader;

static void fail(reader *r, const yaml_mark_t *mark, const char *format, ...) {
    if (r->message[0]) return;
    char text[120];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '.';
    if (mark)
        snprintf(r->message, sizeof r->message, "line %zu, column %zu: %s", mark->line + 1, mark->column + 1, text);
    else
        snprintf(r->message, sizeof r->message, "%s", text);
}

static node *node_new(reader *r, kind of, const yaml_mark_t *mark) {
    if (++r->node_count > NODE_LIMIT) {
        fail(r, mark, "more than %d values", NODE_LIMIT);
        return NULL;
    }
    node *made = cli_grow(NULL, 1, sizeof *made);
    *made = (node){.kind = of, .older = r->newest};
    return r->newest = made;
}

static void node_add(node *to, node *child) {
    if (to->count == to->capacity) {
        to->capacity = to->capacity ? 2 * to->capacity : 8;
        to->of = cli_grow(to->of, to->capacity, sizeof *to->of);
    }
    to->of[to->count++] = child;
}

/* ---- scalars: yaml/resolver.py, yaml/constructor.py ---- */

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

/* Digits of `base`, with underscores; returns their end. */
static const char *digits(const char *at, int base) {
    for (; *at; at++) {
        bool is_digit = base == 2    ? *at == '0' || *at == '1'
                        : base == 8  ? *at >= '0' && *at <= '7'
                        : base == 16 ? isxdigit((unsigned char)*at)
                                     : isdigit((unsigned char)*at);
        if (!is_digit && *at != '_') break;
    }
    return at;
}

static const char *after_sign(const char *text) {
    return *text == '-' || *text == '+' ? text + 1 : text;
}

/* Groups of sixty after the first, ":59" repeatedly; NULL if there is none. */
static const char *sixties(const char *at) {
    const char *from = at;
    while (*at == ':' && isdigit((unsigned char)at[1])) {
        at += at[1] <= '5' && isdigit((unsigned char)at[2]) ? 3 : 2;
    }
    return at > from ? at : NULL;
}

typedef enum integer_form { NOT_INTEGER, BINARY, OCTAL, DECIMAL, HEXADECIMAL, SEXAGESIMAL } integer_form;

static integer_form integer_form_of(const char *text) {
    const char *at = after_sign(text), *end;
    if (at[0] == '0' && at[1] == 'b' && at[2] && !*digits(at + 2, 2)) return BINARY;
    if (at[0] == '0' && at[1] == 'x' && at[2] && !*digits(at + 2, 16)) return HEXADECIMAL;
    if (at[0] == '0' && at[1] && !*digits(at + 1, 8)) return OCTAL;
    if (strcmp(at, "0") == 0) return DECIMAL;
    if (*at < '1' || *at > '9') return NOT_INTEGER;
    end = digits(at, 10);
    if (!*end) return DECIMAL;
    end = sixties(end);
    return end && !*end ? SEXAGESIMAL : NOT_INTEGER;
}

/* Without underscores and sign. */
static void plain_digits(char *out, size_t size, const char *text) {
    size_t length = 0;
    for (text = after_sign(text); *text && length + 1 < size; text++)
        if (*text != '_') out[length++] = *text;
    out[length] = 0;
}

static bool integer_json(cli_buffer *out, const char *text, integer_form form) {
    char digit[400];
    if (strlen(text) >= sizeof digit - 1) return false;
    plain_digits(digit, sizeof digit, text);
    const char *sign = *text == '-' ? "-" : "";
    if (form == DECIMAL) {
        cli_format(out, "%s%s", strcmp(digit, "0") == 0 ? "" : sign, digit);
        return true;
    }
    uint64_t value = 0, part = 0;
    if (form == SEXAGESIMAL) {
        for (const char *at = digit;; at++) {
            if (isdigit((unsigned char)*at)) {
                part = part * 10 + (uint64_t)(*at - '0');
                continue;
            }
            if (value > UINT64_MAX / 3600 || part > UINT64_MAX / 3600) return false;
            value = value * 60 + part;
            part = 0;
            if (!*at) break;
        }
    } else {
        const char *from = digit + (form == OCTAL ? 1 : 2);
        uint64_t base = form == BINARY ? 2 : form == OCTAL ? 8 : 16;
        if (!*from) return false;
        for (; *from; from++) {
            unsigned c = (unsigned char)tolower((unsigned char)*from);
            if (value > (UINT64_MAX >> 4)) return false;
            value = value * base + (c <= '9' ? c - '0' : c - 'a' + 10);
        }
    }
    cli_format(out, "%s%" PRIu64, value ? sign : "", value);
    return true;
}

typedef enum float_form { NOT_FLOAT, POINT, SIXTY_POINT, INFINITE, NOT_A_NUMBER } float_form;

static float_form float_form_of(const char *text) {
    static const char *const infinite[] = {".inf", ".Inf", ".INF", NULL}, *const none[] = {".nan", ".NaN", ".NAN",
                                                                                           NULL};
    const char *at = after_sign(text), *end;
    if (is_one_of(at, infinite)) return INFINITE;
    if (is_one_of(text, none)) return NOT_A_NUMBER;
    if (*text == '.' && isdigit((unsigned char)text[1])) { /* no sign here */
        end = digits(text + 1, 10);
    } else {
        if (!isdigit((unsigned char)*at)) return NOT_FLOAT;
        end = digits(at, 10);
        const char *sixty = sixties(end);
        if (sixty && *sixty == '.') return *digits(sixty + 1, 10) ? NOT_FLOAT : SIXTY_POINT;
        if (*end != '.') return NOT_FLOAT;
        end = digits(end + 1, 10);
    }
    if ((*end == 'e' || *end == 'E') && (end[1] == '-' || end[1] == '+') && isdigit((unsigned char)end[2]))
        for (end += 2; isdigit((unsigned char)*end);) end++;
    return *end ? NOT_FLOAT : POINT;
}

/* JSON requires digits on both sides of the point, and no leading zeros. */
static bool float_json(cli_buffer *out, const char *text, float_form form) {
    char digit[400];
    if (strlen(text) >= sizeof digit - 1) return false;
    if (form == INFINITE || form == NOT_A_NUMBER) {
        cli_format(out, "\"%s%s\"", *text == '-' ? "-" : "", form == INFINITE ? "inf" : "nan");
        return true;
    }
    plain_digits(digit, sizeof digit, text);
    if (*text == '-') cli_append_text(out, "-");
    if (form == SIXTY_POINT) {
        double value = 0;
        for (char *at = digit, *next; *at; at = *next ? next + 1 : next) value = value * 60 + strtod(at, &next);
        cli_format(out, "%.17g", value);
        return true;
    }
    const char *at = digit;
    while (*at == '0' && isdigit((unsigned char)at[1])) at++;
    if (*at == '.') cli_append_text(out, "0");
    const char *point = strchr(at, '.');
    size_t head = (size_t)(point - at) + 1;
    cli_append(out, at, head);
    if (!isdigit((unsigned char)point[1])) cli_append_text(out, "0");
    cli_append_text(out, point + 1);
    return true;
}

/* Resolves a plain scalar. */
static bool plain_json(cli_buffer *out, const char *text, size_t length) {
    static const char *const yes[] = {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", NULL};
    static const char *const no[] = {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", NULL};
    static const char *const nothing[] = {"~", "null", "Null", "NULL", "", NULL};
    integer_form integer = integer_form_of(text);
    float_form real = float_form_of(text);
    if (strlen(text) != length)
        cli_append_quoted(out, text, length);
    else if (is_one_of(text, yes))
        cli_append_text(out, "true");
    else if (is_one_of(text, no))
        cli_append_text(out, "false");
    else if (is_one_of(text, nothing))
        cli_append_text(out, "null");
    else if (integer != NOT_INTEGER)
        return integer_json(out, text, integer);
    else if (real != NOT_FLOAT)
        return float_json(out, text, real);
    else
        cli_append_quoted(out, text, length);
    return true;
}

static node *read_scalar(reader *r, const yaml_event_t *event) {
    static const char prefix[] = "tag:yaml.org,2002:";
    static const char *const same[] = {"int",  "float",     "bool",
                                       "null", "timestamp", NULL}; /* for which the text is written */
    const char *text = (const char *)event->data.scalar.value, *tag = (const char *)event->data.scalar.tag;
    size_t length = event->data.scalar.length;
    bool is_open = tag && strcmp(tag, "!") == 0; /* PyYAML then resolves quoted ones too */
    bool is_plain = is_open || (event->data.scalar.plain_implicit && !tag), is_text = !is_plain;
    if (tag && !is_open) {
        const char *name = strncmp(tag, prefix, sizeof prefix - 1) == 0 ? tag + sizeof prefix - 1 : "";
        is_text = strcmp(name, "str") == 0;
        if (!is_text && !is_one_of(name, same)) {
            fail(r, &event->start_mark, "could not determine a constructor for the tag '%.60s'", tag);
            return NULL;
        }
    }
    if (is_plain && strcmp(text, "=") == 0) {
        fail(r, &event->start_mark, "could not determine a constructor for the tag '%svalue'", prefix);
        return NULL;
    }
    node *made = node_new(r, SCALAR, &event->start_mark);
    if (!made) return NULL;
    cli_buffer json = {0};
    if (is_text)
        cli_append_quoted(&json, text, length);
    else if (!plain_json(&json, text, length))
        fail(r, &event->start_mark, "a number that is too large");
    made->json = json.at;
    made->is_merge = is_plain && strcmp(text, "<<") == 0;
    return made;
}

/* ---- collections ---- */

static node *anchor_find(const reader *r, const char *name, bool *is_known) {
    for (size_t i = 0; i < r->anchor_count; i++)
        if (strcmp(r->anchors[i].name, name) == 0) {
            *is_known = true;
            return r->anchors[i].of;
        }
    *is_known = false;
    return NULL;
}

/* The number of a new anchor; anchor_count if there is none. */
static size_t anchor_new(reader *r, const yaml_char_t *name, const yaml_mark_t *mark) {
    bool is_known = false;
    if (!name) return SIZE_MAX;
    anchor_find(r, (const char *)name, &is_known);
    if (is_known) {
        fail(r, mark, "found duplicate anchor '%.60s'", (const char *)name);
        return SIZE_MAX;
    }
    size_t length = strlen((const char *)name) + 1;
    r->anchors = cli_grow(r->anchors, r->anchor_count + 1, sizeof *r->anchors);
    r->anchors[r->anchor_count] = (anchor){.name = cli_grow(NULL, length, 1)};
    memcpy(r->anchors[r->anchor_count].name, name, length);
    return r->anchor_count++;
}

static bool next_event(reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event)) return true;
    const char *problem = r->parser.problem ? r->parser.problem : "no memory";
    bool is_bytes = r->parser.error == YAML_READER_ERROR;
    fail(r, is_bytes ? NULL : &r->parser.problem_mark, "%s", problem);
    return false;
}

static node *read_node(reader *r, const yaml_event_t *event, int depth);

static bool has_plain_tag(reader *r, const yaml_char_t *tag, const char *name, const yaml_mark_t *mark) {
    if (!tag || strcmp((const char *)tag, name) == 0 || strcmp((const char *)tag, "!") == 0) return true;
    fail(r, mark, "could not determine a constructor for the tag '%.60s'", (const char *)tag);
    return false;
}

/* A set is a mapping whose values are null. */
static bool is_set(const yaml_event_t *mapping) {
    const char *tag = (const char *)mapping->data.mapping_start.tag;
    return tag && strcmp(tag, "tag:yaml.org,2002:set") == 0;
}

static void read_children(reader *r, node *of, yaml_event_type_t end, int depth) {
    bool is_end = false;
    while (!is_end && !r->message[0]) {
        yaml_event_t event;
        if (!next_event(r, &event)) return;
        is_end = event.type == end;
        node *child = is_end ? NULL : read_node(r, &event, depth + 1);
        if (child && of->kind == MAP && of->count % 2 == 0 && child->kind != SCALAR)
            fail(r, &event.start_mark, "a key that is not a scalar");
        if (child) node_add(of, child);
        yaml_event_delete(&event);
    }
}

static node *read_node(reader *r, const yaml_event_t *event, int depth) {
    const yaml_mark_t *mark = &event->start_mark;
    bool is_known;
    node *made = NULL;
    size_t slot = SIZE_MAX;
    if (depth > DEPTH_LIMIT) {
        fail(r, mark, "nested deeper than %d", DEPTH_LIMIT);
        return NULL;
    }
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        made = anchor_find(r, (const char *)event->data.alias.anchor, &is_known);
        if (!is_known)
            fail(r, mark, "found undefined alias '%.60s'", (const char *)event->data.alias.anchor);
        else if (!made)
            fail(r, mark, "the alias '%.60s' is inside of what it refers to", (const char *)event->data.alias.anchor);
        return made;
    case YAML_SCALAR_EVENT:
        slot = anchor_new(r, event->data.scalar.anchor, mark);
        made = read_scalar(r, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        slot = anchor_new(r, event->data.sequence_start.anchor, mark);
        if (has_plain_tag(r, event->data.sequence_start.tag, YAML_SEQ_TAG, mark)) made = node_new(r, LIST, mark);
        if (made) read_children(r, made, YAML_SEQUENCE_END_EVENT, depth);
        break;
    case YAML_MAPPING_START_EVENT:
        slot = anchor_new(r, event->data.mapping_start.anchor, mark);
        if (is_set(event) || has_plain_tag(r, event->data.mapping_start.tag, YAML_MAP_TAG, mark))
            made = node_new(r, MAP, mark);
        if (made) read_children(r, made, YAML_MAPPING_END_EVENT, depth);
        break;
    default:
        fail(r, mark, "expected a value");
        break;
    }
    if (slot != SIZE_MAX) r->anchors[slot].of = made;
    return made;
}

/* ---- the tree as JSON ---- */

typedef struct writer {
    reader *r;
    cli_buffer *out;
    size_t written; /* values */
} writer;

static void write_node(writer *w, const node *of, int depth);

/* Key and value pairs of a map, with those of <<; later ones override earlier ones: SafeConstructor.flatten_mapping. */
static void flatten(writer *w, const node *map, node *into, int depth) {
    if (depth > DEPTH_LIMIT || (w->written += map->count) > NODE_LIMIT) {
        fail(w->r, NULL, "aliases expand to more than %d values", NODE_LIMIT);
        return;
    }
    for (size_t i = 0; i + 1 < map->count; i += 2) {
        const node *value = map->of[i + 1];
        if (!map->of[i]->is_merge) continue;
        if (value->kind == SCALAR) fail(w->r, NULL, "<< expects a mapping or a list of mappings");
        if (value->kind == MAP) flatten(w, value, into, depth + 1);
        for (size_t k = value->kind == LIST ? value->count : 0; k-- > 0;) {
            if (value->of[k]->kind == MAP)
                flatten(w, value->of[k], into, depth + 1);
            else
                fail(w->r, NULL, "<< expects a mapping or a list of mappings");
        }
    }
    for (size_t i = 0; i + 1 < map->count && !w->r->message[0]; i += 2) {
        if (map->of[i]->is_merge) continue;
        size_t at = 0;
        while (at < into->count && strcmp(into->of[at]->json, map->of[i]->json) != 0) at += 2;
        if (at < into->count) {
            into->of[at + 1] = map->of[i + 1];
            continue;
        }
        if (into->count >= 2 * KEY_LIMIT) fail(w->r, NULL, "a mapping of more than %d keys", KEY_LIMIT);
        node_add(into, map->of[i]);
        node_add(into, map->of[i + 1]);
    }
}

static void write_map(writer *w, const node *of, int depth) {
    node flat = {.kind = MAP};
    flatten(w, of, &flat, depth);
    cli_append_text(w->out, "{");
    for (size_t i = 0; i + 1 < flat.count && !w->r->message[0]; i += 2) {
        const char *key = flat.of[i]->json;
        cli_append_text(w->out, i ? "," : "");
        if (*key == '"')
            cli_append_text(w->out, key);
        else
            cli_append_quoted(w->out, key, strlen(key));
        cli_append_text(w->out, ":");
        write_node(w, flat.of[i + 1], depth + 1);
    }
    cli_append_text(w->out, "}");
    free(flat.of);
}

static void write_node(writer *w, const node *of, int depth) {
    if (++w->written > NODE_LIMIT || w->out->length > OUT_LIMIT || depth > DEPTH_LIMIT)
        fail(w->r, NULL, "aliases expand to more than %d values", NODE_LIMIT);
    if (w->r->message[0]) return;
    if (of->kind == SCALAR) {
        if (of->is_merge) fail(w->r, NULL, "<< is no value");
        cli_append_text(w->out, of->json);
    } else if (of->kind == MAP) {
        write_map(w, of, depth);
    } else {
        cli_append_text(w->out, "[");
        for (size_t i = 0; i < of->count && !w->r->message[0]; i++) {
            cli_append_text(w->out, i ? "," : "");
            write_node(w, of->of[i], depth + 1);
        }
        cli_append_text(w->out, "]");
    }
}

/* A manifest of Kubernetes, of which a file may contain several. */
static bool is_manifest(const node *of) {
    for (size_t i = 0; of->kind == MAP && i + 1 < of->count; i += 2)
        if (strcmp(of->of[i]->json, "\"kind\"") == 0) return true;
    return false;
}

/* Several manifests become the list that kubectl makes of them. */
static void write_documents(writer *w, const node *all, const yaml_mark_t *second) {
    bool are_manifests = all->count > 1;
    for (size_t i = 0; i < all->count; i++) are_manifests = are_manifests && is_manifest(all->of[i]);
    if (all->count > 1 && !are_manifests) fail(w->r, second, "expected a single document in the stream");
    if (w->r->message[0]) return;
    if (are_manifests) cli_append_text(w->out, "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":");
    if (all->count)
        write_node(w, are_manifests ? all : all->of[0], 0);
    else
        cli_append_text(w->out, "null");
    if (are_manifests) cli_append_text(w->out, "}");
}

static bool is_nothing(const node *of) {
    return of->kind == SCALAR && strcmp(of->json, "null") == 0;
}

static void read_stream(reader *r, cli_buffer *out) {
    yaml_event_t event;
    yaml_mark_t second = {0};
    writer w = {.r = r, .out = out};
    node *all = NULL;
    unsigned documents = 0;
    for (bool is_end = false; !is_end && !r->message[0];) {
        if (!next_event(r, &event)) return;
        is_end = event.type == YAML_STREAM_END_EVENT;
        if (!all) all = node_new(r, LIST, &event.start_mark);
        if (event.type == YAML_DOCUMENT_START_EVENT && ++documents == 2) second = event.start_mark;
        bool is_frame = is_end || event.type == YAML_STREAM_START_EVENT || event.type == YAML_DOCUMENT_START_EVENT ||
                        event.type == YAML_DOCUMENT_END_EVENT;
        node *root = !is_frame && !r->message[0] ? read_node(r, &event, 0) : NULL;
        if (root && all && (documents == 1 || !is_nothing(root))) node_add(all, root);
        yaml_event_delete(&event);
    }
    if (!r->message[0] && all) write_documents(&w, all, &second);
}

bool cli_yaml_to_json(cli_buffer *out, const char *text, size_t length, char *message, size_t message_size) {
    reader r = {.newest = NULL};
    if (length > TEXT_LIMIT) {
        snprintf(message, message_size, "is YAML of more than 4 MiB");
        return false;
    }
    if (!yaml_parser_initialize(&r.parser)) {
        snprintf(message, message_size, "no memory");
        return false;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    read_stream(&r, out);
    yaml_parser_delete(&r.parser);
    while (r.newest) {
        node *older = r.newest->older;
        free(r.newest->json);
        free(r.newest->of);
        free(r.newest);
        r.newest = older;
    }
    for (size_t i = 0; i < r.anchor_count; i++) free(r.anchors[i].name);
    free(r.anchors);
    snprintf(message, message_size, "%s", r.message);
    return !r.message[0];
}

/* ---- is it YAML? ---- */

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

bool cli_is_yaml(const char *name, const char *text, size_t length) {
    size_t at = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (ends_with(name, ".yaml") || ends_with(name, ".yml")) return true;
    while (at < length) { /* the first significant line: `key:`, then a space or the end */
        size_t from = at;
        while (at < length && text[at] != '\n') at++;
        size_t end = at++;
        while (from < end && isspace((unsigned char)text[from])) from++;
        if (from == end || text[from] == '#' || text[from] == '%' ||
            (end - from >= 3 && memcmp(text + from, "---", 3) == 0))
            continue;
        while (from < end && (isalnum((unsigned char)text[from]) || text[from] == '_' || text[from] == '-')) from++;
        return from < end && text[from] == ':' && (from + 1 == end || isspace((unsigned char)text[from + 1]));
    }
    return false;
}
