/* SPDX-License-Identifier: Apache-2.0 */
/* What is installed: requirements.txt, the output of `pip freeze`, environment.yml of conda. Of them the versions of
 * PyTorch and transformers. */
#include <string.h>

#include "base/units.h"
#include "job/readers/requirements.h"

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

/* "transformers[torch]==4.44.2 ; python_version > '3.9'" as a name and what stands behind it; false if there is no
 * name. conda writes one `=`. */
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
    return tide_text_same(name, TIDE_TEXT("transformers")) ? TIDE_SET_transformers : TIDE_SET_COUNT;
}

/* The version that is pinned by ==, === or conda's =; empty: none is. */
static tide_text pinned(tide_text rest) {
    size_t from = 0, to;
    while (from < rest.length && rest.at[from] == '=') from++;
    if (!from) return TIDE_TEXT("");
    rest = tide_trimmed((tide_text){rest.at + from, rest.length - from});
    for (to = 0; to < rest.length && (is_name_byte(rest.at[to]) || rest.at[to] == '+'); to++) continue;
    return (tide_text){rest.at, to};
}

static void read_requirement(tide_reading *r, tide_text line) {
    tide_text name, rest;
    if (!split(without_comment(line), &name, &rest)) return;
    tide_setting_id library = library_of(name);
    if (library == TIDE_SET_COUNT) return;
    tide_text version = pinned(rest);
    if (version.length)
        tide_setting_put(r->arguments, tide_text_of(tide_settings[library].name), version, TIDE_ORIGIN_FILE);
    else
        tide_report(
            r->diags, TIDE_ASSUMPTION, TIDE_OK, tide_format(r->arena, "/settings/%s", tide_settings[library].name),
            tide_format(r->arena, "%s does not pin it: taken as %s", r->name, tide_setting_default(library)), NULL);
}

/* A list of packages, and options of pip, on lines of their own, and one of the two libraries in it. */
static bool is_requirements(tide_text text) {
    tide_text line, name, rest;
    bool has_library = false;
    while (tide_piece_next(&text, '\n', &line)) {
        line = without_comment(line);
        if (!line.length || line.at[0] == '-') continue;
        if (!split(line, &name, &rest)) return false;
        has_library = has_library || library_of(name) != TIDE_SET_COUNT;
    }
    return has_library;
}

bool tide_requirements_read(tide_reading *r) {
    tide_text rest = r->text, line;
    if (!is_requirements(rest)) return false;
    while (tide_piece_next(&rest, '\n', &line)) read_requirement(r, line);
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
