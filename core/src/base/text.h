/* SPDX-License-Identifier: Apache-2.0 */
/* Text as pointer and length, building strings, and numbered names. */
#ifndef TIDE_BASE_TEXT_H
#define TIDE_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct tide_text {
    const char *at; /* not terminated */
    size_t length;
} tide_text;

#define TIDE_TEXT(literal) ((tide_text){(literal), sizeof(literal) - 1})

tide_text tide_text_of(const char *terminated); /* NULL gives the empty text */
bool tide_text_equal(tide_text a, tide_text b);
bool tide_text_is(tide_text a, const char *terminated);
bool tide_text_starts(tide_text a, tide_text prefix);
bool tide_text_ends(tide_text a, tide_text suffix);
bool tide_text_contains(tide_text a, tide_text part);

/* A terminated copy in the arena. */
char *tide_text_copy(tide_arena *arena, tide_text text);

/* printf into the arena; %s takes terminated strings. */
char *tide_format(tide_arena *arena, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* "above.name", or "name" if above is empty: thousands of module names are made this way. */
char *tide_dotted(tide_arena *arena, tide_text above, tide_text name);

/* The decimal digits of a value, and their number; not terminated. */
enum { TIDE_DIGITS = 20 };
size_t tide_digits(char *digits, uint64_t value);

/* A complete decimal integer with an optional sign; false if there is anything else or it does not fit. */
bool tide_text_to_i64(int64_t *out, tide_text text);

/* Whether the pattern, in which * stands for any characters, matches the whole text. */
bool tide_text_matches(tide_text text, tide_text pattern);

/* The candidate closest to a misspelt word by edit distance; NULL if none is close. */
const char *tide_nearest(tide_text word, const char *const *candidates, uint32_t count);
/* The same for a truncated word, which is compared with the beginnings of candidates. */
const char *tide_nearest_beginning(tide_text word, const char *const *candidates, uint32_t count);

/* Splits the next piece off a text at `separator`; false at the end. */
bool tide_piece_next(tide_text *rest, char separator, tide_text *piece);

/* The last component of a path. */
tide_text tide_base_name(tide_text path);

/* Whether a text is in `list`, whose items are separated by `|`. */
bool tide_text_is_among(tide_text text, const char *list);

/* Whether a text matches one of the patterns in `list`, separated by `|`. */
bool tide_text_matches_one(tide_text text, const char *list);

/* Whether a text starts with one of the items in `list`, separated by `|`; true if the list is empty. */
bool tide_beginning_listed(const char *list, const char *text);

/* Whether two texts are equal up to the case of ASCII letters. */
bool tide_text_same(tide_text a, tide_text b);

/* At most the first `limit` bytes, cut between characters. */
tide_text tide_text_start(tide_text text, size_t limit);

/* A terminated copy for a message: at most 60 bytes, control characters as dots, "..." where it was
 * cut. */
const char *tide_shown(tide_arena *arena, tide_text text);
tide_text tide_trimmed(tide_text text);
char *tide_lowered(tide_arena *arena, tide_text text);

/* Up to four candidates close to a misspelt name, as "a, b or c"; NULL if there is none. Those that start with it come
 * first. */
const char *tide_near_names(tide_arena *arena, tide_text name, const char **candidates, uint32_t count);

/* "a, b or c"; NULL if there is none. */
const char *tide_one_of(tide_arena *arena, const char *const *names, uint32_t count);

/* Numbers names in order of first use; number 0 is the empty name. */
typedef struct tide_names {
    tide_arena *arena;
    tide_text *names;
    uint32_t count, capacity;
    uint32_t *slots; /* open addressing; number + 1, 0 is free */
    uint32_t slot_count;
} tide_names;

void tide_names_init(tide_names *names, tide_arena *arena);
uint32_t tide_name(tide_names *names, tide_text text);

/* "2.4", "2.4.1" or "2.4.0+cu121" as 2004; 0 if it is not a version. */
int tide_version_number(const char *text);

#endif
