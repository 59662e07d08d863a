/* SPDX-License-Identifier: Apache-2.0 */
/* omegaconf/grammar_visitor.py, omegaconf/resolvers/oc. */
#include "job/readers/interpolation.h"

#include <string.h>

enum { REFERENCE_STEPS = 6 }; /* nested references */

static tide_text text_behind(tide_text text, size_t count) {
    return (tide_text){text.at + count, text.length - count};
}

/* ".key" is a sibling of `at`; each further dot goes up one section. */
static const tide_json *reference_at(const tide_json *root, const tide_json *at, tide_text path) {
    const tide_json *found = root;
    tide_text piece;
    if (path.length && path.at[0] == '.')
        for (found = at; found && path.length && path.at[0] == '.'; path = text_behind(path, 1)) found = found->parent;
    while (found && tide_piece_next(&path, '.', &piece)) found = tide_json_find(found, piece);
    return found;
}

/* A plain word, interpreted as in YAML. */
static tide_json *reference_word(tide_arena *arena, tide_text word) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const char *lowered = tide_lowered(arena, word);
    tide_json *read = tide_json_parse(arena, tide_text_of(lowered), "", &scratch);
    if (read) return read;
    read = tide_json_new(arena, TIDE_JSON_STRING);
    read->text = word;
    return read;
}

static bool is_reference(const tide_json *at) {
    return at->kind == TIDE_JSON_STRING && at->text.length > 3 && tide_text_starts(at->text, TIDE_TEXT("${")) &&
           at->text.at[at->text.length - 1] == '}';
}

static const tide_json *referred(tide_arena *arena, const tide_json *root, const tide_json *at) {
    static const char select[] = "oc.select:";
    tide_text path = {at->text.at + 2, at->text.length - 3};
    if (!tide_text_starts(path, TIDE_TEXT("oc.select:")))
        return memchr(path.at, ':', path.length) ? NULL : reference_at(root, at, path);
    path = text_behind(path, sizeof select - 1);
    const char *comma = memchr(path.at, ',', path.length);
    tide_text key = {path.at, comma ? (size_t)(comma - path.at) : path.length};
    const tide_json *found = reference_at(root, at, key);
    if (found) return found;
    return comma ? reference_word(arena, tide_trimmed(text_behind(path, key.length + 1)))
                 : tide_json_new(arena, TIDE_JSON_NULL);
}

static void interpolate(tide_arena *arena, const tide_json *root, tide_json *object) {
    for (tide_json *entry = object->first; entry; entry = entry->next) {
        for (int i = 0; i < REFERENCE_STEPS && is_reference(entry); i++) {
            const tide_json *found = referred(arena, root, entry);
            if (!found || found->first) break;
            tide_json plain = *found;
            plain.key = entry->key;
            plain.next = entry->next;
            plain.parent = entry->parent;
            *entry = plain;
        }
        interpolate(arena, root, entry);
    }
}

void tide_interpolate(tide_arena *arena, tide_json *root) {
    interpolate(arena, root, root);
}
