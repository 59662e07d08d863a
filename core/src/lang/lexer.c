/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting statements into tokens. */
#include "lang/lexer.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 4000 };

static const struct {
    char text[4];
    uint8_t length;
    uint16_t code;
} long_marks[] = {{"...", 3, MARK_ELLIPSIS}, {"??", 2, MARK_COALESCE}, {"//", 2, MARK_QUOTIENT}, {"==", 2, MARK_EQUAL},
                  {"!=", 2, MARK_UNEQUAL},   {"<=", 2, MARK_AT_MOST},  {">=", 2, MARK_AT_LEAST}, {"+=", 2, MARK_ADD}};

static const tide_text keywords[WORD_COUNT] = {{"", 0},    {"if", 2},   {"else", 4}, {"elif", 4}, {"for", 3},
                                               {"in", 2},  {"and", 3},  {"or", 2},   {"not", 3},  {"return", 6},
                                               {"del", 3}, {"with", 4}, {"is", 2}};

void *tide_lexer_fail(tide_lexer *l, const char *message) {
    if (!l->failed) {
        l->failed = true;
        tide_error(l->diags, TIDE_ERR_DESCRIPTION, l->place,
                   tide_format(l->arena, "column %u of '%.*s': %s", (unsigned)l->start + 1,
                               (int)(l->text.length < 120 ? l->text.length : 120), l->text.at, message),
                   TIDE_GRAMMAR_REMEDY);
    }
    l->kind = TOKEN_END;
    return NULL;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void lex_number(tide_lexer *l) {
    size_t end = l->at;
    bool is_float = false;
    while (end < l->text.length && (is_digit(l->text.at[end]) || l->text.at[end] == '.' || l->text.at[end] == 'e' ||
                                    (l->text.at[end] == '-' && l->text.at[end - 1] == 'e'))) {
        if (!is_digit(l->text.at[end])) is_float = true;
        end++;
    }
    l->token = (tide_text){l->text.at + l->start, end - l->start};
    l->at = end;
    if (!is_float) {
        l->kind = TOKEN_INT;
        if (!tide_text_to_i64(&l->integer, l->token)) tide_lexer_fail(l, "the number does not fit in 63 bits");
        return;
    }
    char digits[40], *stop;
    if (l->token.length >= sizeof digits) {
        tide_lexer_fail(l, "the number is too long");
        return;
    }
    memcpy(digits, l->token.at, l->token.length);
    digits[l->token.length] = 0;
    l->number = strtod(digits, &stop);
    l->kind = TOKEN_FLOAT;
    if (*stop || !isfinite(l->number)) tide_lexer_fail(l, "no number");
}

static void lex_name(tide_lexer *l, const char *c, size_t left) {
    size_t length = 1;
    while (length < left && (is_letter(c[length]) || is_digit(c[length]))) length++;
    l->kind = TOKEN_NAME;
    l->token = (tide_text){c, length};
    l->at += length;
    for (l->code = WORD_COUNT - 1; l->code != NO_WORD; l->code--)
        if (keywords[l->code].length == length && keywords[l->code].at[0] == *c &&
            tide_text_equal(l->token, keywords[l->code]))
            break;
}

static void lex_text(tide_lexer *l, const char *c, size_t left) {
    size_t length = 1;
    while (length < left && c[length] != *c) length++;
    if (length == left) {
        tide_lexer_fail(l, "the text is not closed");
        return;
    }
    l->kind = TOKEN_TEXT;
    l->token = (tide_text){c + 1, length - 1};
    l->at += length + 1;
}

static void lex_mark(tide_lexer *l, const char *c, size_t left) {
    size_t length = 1;
    l->code = (unsigned char)*c;
    for (size_t i = 0; i < TIDE_COUNT_OF(long_marks); i++) {
        if (*c != long_marks[i].text[0] || left < long_marks[i].length ||
            memcmp(c, long_marks[i].text, long_marks[i].length) != 0)
            continue;
        length = long_marks[i].length;
        l->code = long_marks[i].code;
        break;
    }
    l->kind = TOKEN_MARK;
    l->token = (tide_text){c, length};
    l->at += length;
}

void tide_lex(tide_lexer *l) {
    if (l->failed) return;
    while (l->at < l->text.length && l->text.at[l->at] == ' ') l->at++;
    l->start = l->at;
    if (l->at >= l->text.length) {
        l->kind = TOKEN_END;
        l->token = (tide_text){"", 0};
        return;
    }
    const char *c = l->text.at + l->at;
    size_t left = l->text.length - l->at;
    if (is_letter(*c))
        lex_name(l, c, left);
    else if (is_digit(*c))
        lex_number(l);
    else if (*c == '\'' || *c == '"')
        lex_text(l, c, left);
    else
        lex_mark(l, c, left);
}

bool tide_lexer_open(tide_lexer *l, tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    *l = (tide_lexer){.arena = arena, .diags = diags, .place = place, .text = text};
    if (text.length > TEXT_LIMIT) {
        tide_lexer_fail(l, "longer than 4000 characters");
        return false;
    }
    tide_lex(l);
    return !l->failed;
}

bool tide_lexer_close(tide_lexer *l) {
    if (!l->failed && l->kind != TOKEN_END) tide_lexer_fail(l, "nothing more is expected here");
    return !l->failed;
}
