/* SPDX-License-Identifier: Apache-2.0 */
/* Whole answers, byte for byte. A failure points to the stage whose section differs.
 *
 *     golden FOLDER [--update]
 *
 * NAME.job.json is a request, NAME.expected.json its answer with line breaks put in for reading, the
 * timeline's columns as a hash, and without the settings that stand at their defaults (describe.expected.json has
 * those). `bad-` names are requests that must be refused. Each is asked twice: the same job, the same bytes. */
#define _POSIX_C_SOURCE 200809L
#include "golden.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

/* After each comma, up to this depth, the text goes on in a new line. */
enum { BREAK_DEPTH = 2 };

/* FNV-1a. */
static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}

/* The bytes that an array takes, brackets included; it holds no strings. */
static size_t array_length(const char *text) {
    size_t at = 0;
    int depth = 0;
    do {
        if (text[at] == '[') depth++;
        if (text[at] == ']') depth--;
        at++;
    } while (depth > 0 && text[at]);
    return at;
}

/* The bytes of the object that begins here, if it is a setting at its default, and of the comma behind it; or 0. */
static size_t default_setting_length(const char *text) {
    static const char begin[] = "{\"name\":\"", end[] = ",\"origin\":\"default\"}";
    size_t at = sizeof begin - 1;
    if (strncmp(text, begin, at) != 0) return 0;
    for (bool in_string = true; text[at] && (in_string || text[at] != '}'); at++) {
        if (!in_string && (text[at] == '{' || text[at] == '[')) return 0;
        if (in_string && text[at] == '\\' && text[at + 1])
            at++;
        else if (text[at] == '"')
            in_string = !in_string;
    }
    if (text[at] != '}' || strncmp(text + at + 2 - sizeof end, end, sizeof end - 1) != 0) return 0;
    return at + (text[at + 1] == ',' ? 2 : 1);
}

/* The answer as it is kept: lines to read and to compare, five hundred columns as one number, given settings alone. */
static char *shown_form(const char *text, size_t length, size_t *out_length) {
    static const char columns[] = "\"columns\":";
    char *out = malloc(length * 2 + 64);
    size_t at = 0;
    int depth = 0;
    bool in_string = false;
    if (!out) abort();
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (!in_string && c == '"' && strncmp(text + i, columns, sizeof columns - 1) == 0) {
            size_t from = i + sizeof columns - 1, size = array_length(text + from);
            at +=
                (size_t)sprintf(out + at, "%s\"%zu bytes, %016" PRIx64 "\"", columns, size, hash_of(text + from, size));
            i = from + size - 1;
            continue;
        }
        size_t skipped = !in_string && c == '{' ? default_setting_length(text + i) : 0;
        if (skipped) {
            bool is_last = text[i + skipped] == ']';
            if (is_last && at > 1 && out[at - 2] == ',') at -= 2; /* with its line break */
            i += skipped - 1;
            continue;
        }
        out[at++] = c;
        if (in_string) {
            if (c == '\\' && i + 1 < length)
                out[at++] = text[++i];
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (c == ',' && depth <= BREAK_DEPTH) out[at++] = '\n';
    }
    out[at++] = '\n';
    *out_length = at;
    return out;
}

static void show_difference(const char *is, size_t is_length, const char *expected, size_t expected_length) {
    size_t at = 0, from;
    while (at < is_length && at < expected_length && is[at] == expected[at]) at++;
    from = at > 60 ? at - 60 : 0;
    printf("     at byte %zu\n     expected ...%.100s\n     is       ...%.100s\n", at, expected + from, is + from);
}

static bool is_refused(const char *name) {
    return strncmp(name, "bad-", 4) == 0;
}

static bool check(const char *folder, const char *name, bool is_update) {
    size_t request_length, expected_length = 0, length = 0, again_length = 0, shown_length;
    char *request = golden_read(folder, name, ".job.json", &request_length);
    char *expected = golden_read(folder, name, ".expected.json", &expected_length);
    char *answer = NULL, *again = NULL;
    bool is_right = true;
    int status = tide_call(request, request_length, NULL, &answer, &length);
    tide_call(request, request_length, NULL, &again, &again_length);
    if (!answer || length != again_length || memcmp(answer, again, length) != 0) {
        printf("FAIL %s: the same job gave other bytes\n", name);
        is_right = false;
    }
    if (answer && status != (is_refused(name) ? 1 : 0)) {
        printf("FAIL %s: returned %d: %.300s\n", name, status, answer);
        is_right = false;
    }
    char *shown = answer ? shown_form(answer, length, &shown_length) : NULL;
    if (shown && is_right && is_update) {
        golden_write(folder, name, ".expected.json", shown, shown_length);
    } else if (shown && is_right &&
               (!expected || shown_length != expected_length || memcmp(shown, expected, shown_length) != 0)) {
        printf("FAIL %s: another answer\n", name);
        if (expected) {
            shown[shown_length - 1] = 0;
            show_difference(shown, shown_length - 1, expected, expected_length);
        }
        is_right = false;
    }
    free(shown);
    free(request);
    free(expected);
    tide_free(NULL, answer, length);
    tide_free(NULL, again, again_length);
    return is_right;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "tests/golden";
    bool is_update = argc > 2 && strcmp(argv[2], "--update") == 0;
    int passed = 0, failed = 0;
    golden_names names = golden_list(folder);
    for (size_t i = 0; i < names.count; i++) {
        if (check(folder, names.names[i], is_update))
            passed++;
        else
            failed++;
    }
    golden_names_free(&names);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0 ? 1 : 0;
}
