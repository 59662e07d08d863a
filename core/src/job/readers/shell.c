/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting a POSIX shell script into words, as far as scripts that start programs need it. */
#include "job/readers/shell.h"

enum { TOKEN_LIMIT = 1024 };

static bool is_shell_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_command(char c) {
    return c == '\n' || c == ';' || c == '|' || c == '&' || c == '>' || c == '<' || c == ')' || c == '`';
}

/* The end of the word that starts at `at`; writes its text without quotes to `out` (NULL: not). Variables are kept as
 * written. */
static size_t word_end(tide_text text, size_t at, char *out) {
    char quote = 0;
    for (; at < text.length; at++) {
        char c = text.at[at];
        if (!quote && (is_shell_blank(c) || ends_command(c))) break;
        if (c == '\\' && quote != '\'' && at + 1 < text.length) {
            if (text.at[++at] == '\n') continue;
            c = text.at[at];
        } else if (quote ? c == quote : c == '"' || c == '\'') {
            quote = quote ? 0 : c;
            continue;
        }
        if (out) *out++ = c;
    }
    if (out) *out = 0;
    return at;
}

void tide_shell_add(tide_command_line *l, const char *token) {
    if (l->count == TOKEN_LIMIT) return;
    TIDE_ROOM(l->arena, l->tokens, l->count, l->capacity);
    l->tokens[l->count++] = token;
}

/* 2>&1 is not a word. */
static bool is_redirected(tide_text text, size_t from, size_t end) {
    return end < text.length && text.at[end] == '>' && end == from + 1 && text.at[from] >= '0' && text.at[from] <= '9';
}

void tide_shell_read(tide_command_line *l, tide_text text, size_t *at) {
    l->count = 0;
    while (*at < text.length) {
        char c = text.at[*at], next = *at + 1 < text.length ? text.at[*at + 1] : 0;
        if (c == '\\' && (next == '\n' || next == '\r')) {
            *at += 2;
        } else if (is_shell_blank(c)) {
            ++*at;
        } else if (c == '#') {
            while (*at < text.length && text.at[*at] != '\n') ++*at;
        } else if (ends_command(c)) {
            ++*at;
            return;
        } else {
            size_t end = word_end(text, *at, NULL);
            char *word = l->count < TOKEN_LIMIT ? tide_arena_alloc(l->arena, end - *at + 1) : NULL;
            if (word) word_end(text, *at, word);
            if (word && !is_redirected(text, *at, end)) tide_shell_add(l, word);
            *at = end;
        }
    }
}

bool tide_shell_is_option(const char *token) {
    return token[0] == '-' && token[1] && !(token[1] >= '0' && token[1] <= '9');
}

bool tide_shell_runs(const char *token, const char *name) {
    return tide_text_is(tide_base_name(tide_text_of(token)), name);
}
