/* SPDX-License-Identifier: Apache-2.0 */
/* Installed packages: requirements.txt, the output of `pip freeze`, environment.yml of conda, pyproject.toml, a
 * Dockerfile. Reads the versions of PyTorch, transformers and TRL, which are settings, and what is pinned of the other
 * libraries of versions.def. */
#include <string.h>

#include "base/units.h"
#include "job/readers/requirements.h"

enum { MINORS = 1000 }; /* of tide_version_number() */

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

/* "transformers[torch]==4.44.2 ; python_version > '3.9'" as a name and the rest; false if there is no name. conda
 * writes a single `=`. */
static bool split(tide_text line, tide_text *name, tide_text *rest) {
    size_t length = 0;
    while (length < line.length && is_name_byte(line.at[length])) length++;
    *name = (tide_text){line.at, length};
    if (length < line.length && line.at[length] == '[') {
        const char *end = memchr(line.at, ']', line.length);
        if (!end) return false;
        length = (size_t)(end - line.at) + 1;
    }
    *rest = tide_trimmed((tide_text){line.at + length, line.length - length});
    return name->length > 0 && (!rest->length || strchr("=<>~!;@#,", rest->at[0]));
}

static tide_text without_comment(tide_text line) {
    const char *mark = memchr(line.at, '#', line.length);
    return tide_trimmed(mark ? (tide_text){line.at, (size_t)(mark - line.at)} : line);
}

static tide_setting_id library_of(tide_text name) {
    if (tide_text_same(name, TIDE_TEXT("torch")) || tide_text_same(name, TIDE_TEXT("pytorch"))) return TIDE_SET_torch;
    if (tide_text_same(name, TIDE_TEXT("trl"))) return TIDE_SET_trl;
    return tide_text_same(name, TIDE_TEXT("transformers")) ? TIDE_SET_transformers : TIDE_SET_COUNT;
}

static bool is_library(tide_text name) {
    return library_of(name) != TIDE_SET_COUNT || tide_library_of_package(name).title;
}

/* The version pinned by ==, === or conda's =; empty: none. */
static tide_text pinned(tide_text rest) {
    size_t from = 0, to;
    while (from < rest.length && rest.at[from] == '=') from++;
    if (!from) return TIDE_TEXT("");
    rest = tide_trimmed((tide_text){rest.at + from, rest.length - from});
    for (to = 0; to < rest.length && (is_name_byte(rest.at[to]) || rest.at[to] == '+'); to++) continue;
    return (tide_text){rest.at, to};
}

/* The newest version allowed by "<4.45", "<=4.44" or "~=4.44", if it is older than the recorded one; empty: no limit,
 * or the last release of a major version, which is unknown here. */
static tide_text newest_of(tide_arena *arena, tide_text rest, const char *recorded) {
    tide_text one;
    int newest = tide_version_number(recorded);
    while (tide_piece_next(&rest, ',', &one)) {
        one = tide_trimmed(one);
        bool is_below = one.length > 1 && one.at[0] == '<' && one.at[1] != '=';
        if (!is_below && !tide_text_starts(one, TIDE_TEXT("<=")) && !tide_text_starts(one, TIDE_TEXT("~="))) continue;
        one = tide_trimmed((tide_text){one.at + 2 - is_below, one.length - 2 + is_below});
        size_t length = 0;
        while (length < one.length && (is_name_byte(one.at[length]))) length++;
        int number = tide_version_number(tide_text_copy(arena, (tide_text){one.at, length}));
        int minor = number % MINORS;
        if (!number || number > newest || (is_below && !minor)) continue;
        return tide_text_of(tide_format(arena, "%d.%d", number / MINORS, minor - is_below));
    }
    return TIDE_TEXT("");
}

void tide_pin_add(tide_reading *r, const char *title, tide_text version) {
    tide_inputs *inputs = r->inputs;
    TIDE_ROOM(r->arena, inputs->pins, inputs->pin_count, inputs->pin_capacity);
    inputs->pins[inputs->pin_count++] = (tide_pin){title, tide_text_copy(r->arena, version), r->name, r->place};
}

/* A library whose version is no setting. */
static void read_pin(tide_reading *r, tide_library library, tide_text version, tide_text rest) {
    if (!library.title) return;
    if (!version.length) version = newest_of(r->arena, rest, library.version);
    if (version.length) tide_pin_add(r, library.title, version);
}

static void read_requirement(tide_reading *r, tide_text line) {
    tide_text name, rest;
    if (!split(without_comment(line), &name, &rest)) return;
    tide_setting_id library = library_of(name);
    tide_text version = pinned(rest);
    if (library == TIDE_SET_COUNT) {
        read_pin(r, tide_library_of_package(name), version, rest);
        return;
    }
    if (!version.length) version = newest_of(r->arena, rest, tide_setting_default(library));
    if (version.length)
        tide_setting_put(r->arguments, tide_text_of(tide_settings[library].name), version, TIDE_ORIGIN_FILE);
    else
        tide_report(
            r->diags, TIDE_ASSUMPTION, TIDE_OK, tide_format(r->arena, "/settings/%s", tide_settings[library].name),
            tide_format(r->arena, "%s does not pin it: assumed to be %s", r->name, tide_setting_default(library)),
            NULL);
}

/* Whether text is a list of packages, with options of pip on separate lines, that contains one of these libraries. */
static bool is_requirements(tide_text text) {
    tide_text line, name, rest;
    bool has_library = false;
    while (tide_piece_next(&text, '\n', &line)) {
        line = without_comment(line);
        if (!line.length || line.at[0] == '-') continue;
        if (!split(line, &name, &rest)) return false;
        has_library = has_library || is_library(name);
    }
    return has_library;
}

bool tide_requirements_read(tide_reading *r) {
    tide_text rest = r->text, line;
    if (!is_requirements(rest)) return false;
    while (tide_piece_next(&rest, '\n', &line)) read_requirement(r, line);
    return true;
}

/* ---- pyproject.toml and Dockerfiles: requirements among other things ---- */

enum { PIN_LIMIT = 200 };

/* Project files are recognised by name, Dockerfiles also by their first instruction. */
static bool holds_pins(const tide_reading *r) {
    tide_text text = tide_trimmed(r->text), name = tide_text_of(r->name);
    return tide_text_is(name, "pyproject.toml") || tide_text_starts(name, TIDE_TEXT("Dockerfile")) ||
           tide_text_starts(text, TIDE_TEXT("FROM ")) || tide_text_starts(text, TIDE_TEXT("# syntax=docker"));
}

static bool parts_pins(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '"' || c == '\'' || c == '\\';
}

/* `"torch==2.4"`, `pip install torch==2.4`, `torch = "^2.4"` (poetry's), and the image pytorch/pytorch:2.4.0-cuda12.1.
 */
static void read_pins_of_line(tide_reading *r, tide_text line) {
    static const char image[] = "pytorch/pytorch:";
    bool is_poetry = false;
    tide_text library = TIDE_TEXT("");
    for (size_t at = 0; at < line.length;) {
        size_t end = at;
        while (end < line.length && !parts_pins(line.at[end])) end++;
        tide_text word = {line.at + at, end - at};
        at = end + 1;
        while (word.length && strchr("[](),", word.at[0])) word.at++, word.length--;
        while (word.length && strchr("[](),", word.at[word.length - 1])) word.length--;
        if (!word.length || word.length > PIN_LIMIT) continue;
        if (is_poetry && word.at[0] == '^') word.at++, word.length--;
        if (is_poetry)
            word = tide_text_of(
                tide_format(r->arena, "%.*s==%.*s", (int)library.length, library.at, (int)word.length, word.at));
        is_poetry = library.length && tide_text_is(word, "=");
        library = is_library(word) ? word : is_poetry ? library : TIDE_TEXT("");
        if (tide_text_starts(word, TIDE_TEXT(image))) {
            const char *dash = memchr(word.at, '-', word.length);
            size_t length = (dash ? (size_t)(dash - word.at) : word.length) - (sizeof image - 1);
            word = tide_text_of(tide_format(r->arena, "torch==%.*s", (int)length, word.at + sizeof image - 1));
        }
        if (word.length && strpbrk(tide_text_copy(r->arena, word), "=<>~")) read_requirement(r, word);
    }
}

bool tide_pins_read(tide_reading *r) {
    tide_text rest = r->text, line;
    if (!holds_pins(r)) return false;
    while (tide_piece_next(&rest, '\n', &line)) read_pins_of_line(r, without_comment(line));
    return true;
}

static bool is_environment(const tide_json *root) {
    return tide_json_is(tide_json_at(root, "dependencies"), TIDE_JSON_ARRAY);
}

static void read_packages(tide_reading *r, const tide_json *list) {
    for (const tide_json *one = list ? list->first : NULL; one; one = one->next) {
        if (one->kind == TIDE_JSON_STRING) read_requirement(r, one->text);
        const tide_json *of_pip = one->kind == TIDE_JSON_OBJECT ? tide_json_at(one, "pip") : NULL;
        if (tide_json_is(of_pip, TIDE_JSON_ARRAY))
            for (const tide_json *each = of_pip->first; each; each = each->next)
                if (each->kind == TIDE_JSON_STRING) read_requirement(r, each->text);
    }
}

static void read_environment(tide_reading *r, tide_json *root) {
    read_packages(r, tide_json_at(root, "dependencies"));
}

const tide_reader tide_requirements_reader = {
    .title = "an environment of conda", .recognises = is_environment, .read = read_environment};
