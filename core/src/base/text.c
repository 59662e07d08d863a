/* SPDX-License-Identifier: Apache-2.0 */
/* Text helpers; independent of the locale. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tide_text tide_text_of(const char *terminated) {
    return terminated ? (tide_text){terminated, strlen(terminated)} : (tide_text){"", 0};
}

bool tide_text_equal(tide_text a, tide_text b) {
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

bool tide_text_is(tide_text a, const char *terminated) {
    size_t i = 0;
    while (i < a.length && terminated[i] == a.at[i] && a.at[i]) i++;
    return i == a.length && !terminated[i];
}

bool tide_text_starts(tide_text a, tide_text prefix) {
    return a.length >= prefix.length && (prefix.length == 0 || memcmp(a.at, prefix.at, prefix.length) == 0);
}

bool tide_text_ends(tide_text a, tide_text suffix) {
    return a.length >= suffix.length &&
           tide_text_equal((tide_text){a.at + a.length - suffix.length, suffix.length}, suffix);
}

bool tide_text_contains(tide_text a, tide_text part) {
    for (; a.length >= part.length; a.at++, a.length--) {
        if (tide_text_starts(a, part)) return true;
        if (!a.length) break;
    }
    return false;
}

char *tide_text_copy(tide_arena *arena, tide_text text) {
    char *copy = tide_arena_alloc(arena, text.length + 1);
    if (text.length) memcpy(copy, text.at, text.length);
    return copy;
}

char *tide_format(tide_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) length = 0;
    char *out = tide_arena_alloc(arena, (size_t)length + 1);
    vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

char *tide_dotted(tide_arena *arena, tide_text above, tide_text name) {
    size_t dot = above.length > 0;
    char *out = tide_arena_alloc(arena, above.length + dot + name.length + 1);
    if (dot) {
        memcpy(out, above.at, above.length);
        out[above.length] = '.';
    }
    if (name.length) memcpy(out + above.length + dot, name.at, name.length);
    return out;
}

size_t tide_digits(char *digits, uint64_t value) {
    char backwards[TIDE_DIGITS];
    size_t length = 0;
    do backwards[length++] = (char)('0' + value % 10);
    while (value /= 10);
    for (size_t i = 0; i < length; i++) digits[i] = backwards[length - 1 - i];
    return length;
}

bool tide_text_to_i64(int64_t *out, tide_text text) {
    size_t i = 0;
    bool negative = false;
    if (i < text.length && (text.at[i] == '-' || text.at[i] == '+')) negative = text.at[i++] == '-';
    if (i == text.length) return false;
    int64_t value = 0;
    for (; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return false;
        int64_t digit = text.at[i] - '0';
        if (__builtin_mul_overflow(value, (int64_t)10, &value)) return false;
        if (__builtin_sub_overflow(value, digit, &value)) return false;
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, value, &value)) return false;
    *out = value;
    return true;
}

bool tide_text_matches(tide_text text, tide_text pattern) {
    size_t t = 0, p = 0, star = SIZE_MAX, mark = 0;
    while (t < text.length) {
        if (p < pattern.length && pattern.at[p] == '*') {
            star = p++;
            mark = t;
        } else if (p < pattern.length && pattern.at[p] == text.at[t]) {
            p++, t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.length && pattern.at[p] == '*') p++;
    return p == pattern.length;
}

enum { NEAREST_LIMIT = 48 }; /* longer words are not compared */

/* Letters that are missing, too many, other ones, or exchanged with the next; for a prefix, to the nearest prefix of b.
 */
static unsigned edit_distance(tide_text a, const char *b, size_t b_length, bool is_beginning) {
    unsigned rows[3][NEAREST_LIMIT + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) row[j] = (unsigned)j;
    for (size_t i = 1; i <= a.length; i++) {
        unsigned *oldest = before;
        before = above, above = row, row = oldest;
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool is_exchanged = i > 1 && j > 1 && a.at[i - 1] == b[j - 2] && a.at[i - 2] == b[j - 1];
            unsigned best = above[j - 1] + (a.at[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (is_exchanged && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    unsigned best = row[b_length];
    for (size_t j = 0; is_beginning && j < b_length; j++)
        if (row[j] < best) best = row[j];
    return best;
}

static const char *nearest_of(tide_text word, const char *const *candidates, uint32_t count, bool is_beginning) {
    const char *nearest = NULL;
    unsigned thirds = word.length > 3 ? (unsigned)(word.length / 3) : 0; /* of a short word one letter may differ */
    unsigned best = thirds + (is_beginning ? 1 : 2);
    if (word.length == 0 || word.length > NEAREST_LIMIT) return NULL;
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(candidates[i]);
        if (length > NEAREST_LIMIT) continue;
        unsigned distance = edit_distance(word, candidates[i], length, is_beginning);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

const char *tide_nearest(tide_text word, const char *const *candidates, uint32_t count) {
    return nearest_of(word, candidates, count, false);
}

const char *tide_nearest_beginning(tide_text word, const char *const *candidates, uint32_t count) {
    return nearest_of(word, candidates, count, true);
}

static uint32_t hash_text(tide_text text) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < text.length; i++) hash = (hash ^ (unsigned char)text.at[i]) * 16777619u;
    return hash;
}

static void names_insert(tide_names *names, uint32_t number) {
    uint32_t mask = names->slot_count - 1;
    uint32_t at = hash_text(names->names[number]) & mask;
    while (names->slots[at]) at = (at + 1) & mask;
    names->slots[at] = number + 1;
}

void tide_names_init(tide_names *names, tide_arena *arena) {
    *names = (tide_names){.arena = arena, .slot_count = 256};
    names->slots = TIDE_NEW(arena, uint32_t, names->slot_count);
    tide_name(names, TIDE_TEXT(""));
}

uint32_t tide_name(tide_names *names, tide_text text) {
    uint32_t mask = names->slot_count - 1;
    for (uint32_t at = hash_text(text) & mask; names->slots[at]; at = (at + 1) & mask)
        if (tide_text_equal(names->names[names->slots[at] - 1], text)) return names->slots[at] - 1;
    TIDE_ROOM(names->arena, names->names, names->count, names->capacity);
    names->names[names->count] = (tide_text){tide_text_copy(names->arena, text), text.length};
    if ((names->count + 1) * 2 > names->slot_count) {
        names->slot_count *= 2;
        names->slots = TIDE_NEW(names->arena, uint32_t, names->slot_count);
        for (uint32_t i = 0; i < names->count; i++) names_insert(names, i);
    }
    names_insert(names, names->count);
    return names->count++;
}

/* ---- texts of people ---- */

enum { SHOWN_LIMIT = 60, NEAR_LIMIT = 4 };

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

tide_text tide_trimmed(tide_text text) {
    while (text.length && is_blank(text.at[0])) text.at++, text.length--;
    while (text.length && is_blank(text.at[text.length - 1])) text.length--;
    return text;
}

static char lower_of(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool tide_text_same(tide_text a, tide_text b) {
    if (a.length != b.length) return false;
    for (size_t i = 0; i < a.length; i++)
        if (lower_of(a.at[i]) != lower_of(b.at[i])) return false;
    return true;
}

char *tide_lowered(tide_arena *arena, tide_text text) {
    char *copy = tide_text_copy(arena, text);
    for (size_t i = 0; i < text.length; i++) copy[i] = lower_of(copy[i]);
    return copy;
}

tide_text tide_text_start(tide_text text, size_t limit) {
    if (text.length <= limit) return text;
    while (limit && ((unsigned char)text.at[limit] & 0xc0) == 0x80) limit--;
    return (tide_text){text.at, limit};
}

const char *tide_shown(tide_arena *arena, tide_text text) {
    bool is_cut = text.length > SHOWN_LIMIT;
    if (is_cut) text = tide_text_start(text, SHOWN_LIMIT - 3);
    char *copy = tide_arena_alloc(arena, text.length + 4);
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.at[i];
        copy[i] = c < 0x20 || c == 0x7f ? '.' : (char)c;
    }
    if (is_cut) memcpy(copy + text.length, "...", 3);
    return copy;
}

bool tide_piece_next(tide_text *rest, char separator, tide_text *piece) {
    if (!rest->at) return false;
    const char *end = rest->length ? memchr(rest->at, separator, rest->length) : NULL;
    *piece = (tide_text){rest->at, end ? (size_t)(end - rest->at) : rest->length};
    *rest = end ? (tide_text){end + 1, rest->length - piece->length - 1} : (tide_text){NULL, 0};
    return true;
}

const char *tide_near_names(tide_arena *arena, tide_text name, const char **candidates, uint32_t count) {
    const char *found[NEAR_LIMIT];
    uint32_t found_count = 0;
    tide_text lowered = tide_text_of(tide_lowered(arena, name));
    if (lowered.length == 0) return NULL;
    for (uint32_t i = 0; i < count && found_count < NEAR_LIMIT; i++)
        if (tide_text_starts(tide_text_of(candidates[i]), lowered)) found[found_count++] = candidates[i];
    const char **rest = TIDE_NEW(arena, const char *, count + 1);
    memcpy(rest, candidates, count * sizeof *rest);
    for (uint32_t had = found_count; found_count < NEAR_LIMIT && had == 0;) {
        const char *near = tide_nearest(lowered, rest, count);
        if (!near) near = tide_nearest_beginning(lowered, rest, count);
        if (!near) break;
        found[found_count++] = near;
        for (uint32_t i = 0; i < count; i++)
            if (rest[i] == near) rest[i] = "";
    }
    return tide_one_of(arena, found, found_count);
}

const char *tide_one_of(tide_arena *arena, const char *const *names, uint32_t count) {
    const char *line = count ? names[0] : NULL;
    for (uint32_t i = 1; i < count; i++)
        line = tide_format(arena, "%s%s%s", line, i + 1 == count ? " or " : ", ", names[i]);
    return line;
}

bool tide_text_is_among(tide_text text, const char *list) {
    tide_text rest = tide_text_of(list), piece;
    while (tide_piece_next(&rest, '|', &piece))
        if (tide_text_equal(text, piece)) return true;
    return false;
}

bool tide_text_matches_one(tide_text text, const char *list) {
    tide_text rest = tide_text_of(list), pattern;
    while (tide_piece_next(&rest, '|', &pattern))
        if (tide_text_matches(text, pattern)) return true;
    return false;
}

bool tide_beginning_listed(const char *list, const char *text) {
    tide_text rest = tide_text_of(list), piece;
    if (!rest.length) return true;
    while (tide_piece_next(&rest, '|', &piece))
        if (tide_text_starts(tide_text_of(text), piece)) return true;
    return false;
}

tide_text tide_base_name(tide_text path) {
    tide_text piece, last = path;
    while (tide_piece_next(&path, '/', &piece))
        if (piece.length) last = piece;
    return last;
}

int tide_version_number(const char *text) {
    char *rest;
    long major = strtol(text, &rest, 10);
    if (rest == text || *rest != '.' || major < 0 || major > 99) return 0;
    const char *from = rest + 1;
    long minor = strtol(from, &rest, 10);
    if (rest == from || (*rest && *rest != '.' && *rest != '+' && *rest != 'a' && *rest != 'b' && *rest != 'r') ||
        minor < 0 || minor > 999)
        return 0;
    return (int)(1000 * major + minor);
}
