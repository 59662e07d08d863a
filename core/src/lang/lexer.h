/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a statement, for the parser. */
#ifndef TIDE_LANG_LEXER_H
#define TIDE_LANG_LEXER_H

#include "lang/syntax.h"

typedef enum tide_token_kind { TOKEN_END, TOKEN_NAME, TOKEN_INT, TOKEN_FLOAT, TOKEN_TEXT, TOKEN_MARK } tide_token_kind;

/* Marks of one character are their own code. */
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
    size_t at;    /* behind the current token */
    size_t start; /* of the current token */
    tide_token_kind kind;
    int code; /* of a mark or a keyword */
    tide_text token;
    int64_t integer;
    double number;
    bool failed;
    int depth; /* of the parser's recursion */
} tide_lexer;

/* Begins with the first token; false after an error. */
bool tide_lexer_open(tide_lexer *lexer, tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);
/* Whether all of the text has been taken. */
bool tide_lexer_close(tide_lexer *lexer);
/* Goes on to the next token. */
void tide_lex(tide_lexer *lexer);
/* Reports the first error, at the current token; nothing follows it. Returns NULL. */
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

/* A name, not a keyword. */
static inline bool tide_is_name(const tide_lexer *lexer) {
    return lexer->kind == TOKEN_NAME && lexer->code == NO_WORD;
}

#endif
