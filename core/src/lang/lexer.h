/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a statement, for the parser. */
#ifndef TIDE_LANG_LEXER_H
#define TIDE_LANG_LEXER_H

#include "lang/syntax.h"

typedef enum tide_token_kind { TOKEN_END, TOKEN_NAME, TOKEN_INT, TOKEN_FLOAT, TOKEN_TEXT, TOKEN_MARK } tide_token_kind;

/* The code of a one-character token is the character. */
enum {
    MARK_ELLIPSIS = 256,
    MARK_COALESCE,
    MARK_QUOTIENT,
    MARK_EQUAL,
    MARK_UNEQUAL,
    MARK_AT_MOST,
    MARK_AT_LEAST,
    MARK_ADD
};

enum {
    NO_WORD,
    WORD_IF,
    WORD_ELSE,
    WORD_ELIF,
    WORD_FOR,
    WORD_IN,
    WORD_AND,
    WORD_OR,
    WORD_NOT,
    WORD_RETURN,
    WORD_DEL,
    WORD_WITH,
    WORD_IS,
    WORD_COUNT
};

typedef struct tide_lexer {
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place;
    tide_text text;
    size_t at;    /* after the current token */
    size_t start; /* of the current token */
    tide_token_kind kind;
    int code; /* of punctuation or a keyword */
    tide_text token;
    int64_t integer;
    double number;
    bool failed;
    int depth; /* of the parser's recursion */
} tide_lexer;

/* Starts with the first token; false after an error. */
bool tide_lexer_open(tide_lexer *lexer, tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);
/* Whether the whole text was consumed. */
bool tide_lexer_close(tide_lexer *lexer);
/* Moves to the next token. */
void tide_lex(tide_lexer *lexer);
/* Reports an error at the current token; only the first one counts. Returns NULL. */
void *tide_lexer_fail(tide_lexer *lexer, const char *message);

static inline bool tide_is_mark(const tide_lexer *lexer, int mark) {
    return lexer->kind == TOKEN_MARK && lexer->code == mark;
}

static inline bool tide_take_mark(tide_lexer *lexer, int mark) {
    if (!tide_is_mark(lexer, mark)) return false;
    tide_lex(lexer);
    return true;
}

static inline bool tide_take_word(tide_lexer *lexer, int word) {
    if (lexer->kind != TOKEN_NAME || lexer->code != word) return false;
    tide_lex(lexer);
    return true;
}

/* Whether the token is a name, not a keyword. */
static inline bool tide_is_name(const tide_lexer *lexer) {
    return lexer->kind == TOKEN_NAME && lexer->code == NO_WORD;
}

#endif
