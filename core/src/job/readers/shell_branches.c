/* SPDX-License-Identifier: Apache-2.0 */
#include "job/readers/shell_branches.h"

#include <string.h>

#include "base/units.h"
#include "job/readers/shell_variables.h"

enum { BRANCH_LIMIT = 16, CONDITION_LIMIT = 256, DECIDED_LIMIT = 1 << 16 };

typedef enum truth { IS_FALSE, IS_TRUE, IS_OPEN } truth;

/* An `if` that has no `fi` yet. */
typedef struct branch {
    truth condition, taken; /* of the current branch; whether an earlier one was taken */
    bool is_skipped;        /* the current branch */
} branch;

typedef struct branches {
    tide_arena *arena;
    char *made;
    branch at[BRANCH_LIMIT];
    uint32_t depth, conditions;
    bool is_condition; /* between `if` and `then` */
    char connector;    /* before the next test: '&', '|', or 0 */
    const tide_shell_variable *variables;
} branches;

/* ---- tests ---- */

static truth both(truth a, truth b) {
    return a == IS_FALSE || b == IS_FALSE ? IS_FALSE : a == IS_TRUE && b == IS_TRUE ? IS_TRUE : IS_OPEN;
}

static truth inverse(truth a) {
    return a == IS_OPEN ? IS_OPEN : a == IS_TRUE ? IS_FALSE : IS_TRUE;
}

static truth truth_of(bool value) {
    return value ? IS_TRUE : IS_FALSE;
}

/* The value of a word; NULL: it is not known. */
static const char *expanded_word(const branches *b, const char *word) {
    tide_command_line l = {.arena = b->arena};
    tide_shell_add(&l, word);
    tide_shell_expand(&l, b->variables);
    if (l.count > 1 || (l.count && strpbrk(l.tokens[0], "$`"))) return NULL;
    return l.count ? l.tokens[0] : "";
}

static truth compare(const char *left, const char *operation, const char *right) {
    static const char *const numeric[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    bool is_equal = strcmp(left, right) == 0;
    if (strcmp(operation, "=") == 0 || strcmp(operation, "==") == 0)
        return strpbrk(right, "*?[") ? IS_OPEN : truth_of(is_equal);
    if (strcmp(operation, "!=") == 0) return strpbrk(right, "*?[") ? IS_OPEN : truth_of(!is_equal);
    int64_t a, b;
    if (!tide_text_to_i64(&a, tide_text_of(left)) || !tide_text_to_i64(&b, tide_text_of(right))) return IS_OPEN;
    const bool holds[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
    for (size_t i = 0; i < TIDE_COUNT_OF(numeric); i++)
        if (strcmp(operation, numeric[i]) == 0) return truth_of(holds[i]);
    return IS_OPEN;
}

/* [ WORD ], [ -n WORD ], [[ WORD == WORD ]] */
static truth test(const branches *b, const char *const *words, uint32_t count) {
    if (count && strcmp(words[0], "!") == 0) return inverse(test(b, words + 1, count - 1));
    if (count == 1 && (strcmp(words[0], "true") == 0 || strcmp(words[0], "false") == 0))
        return truth_of(words[0][0] == 't');
    bool is_test = count > 2 && (strcmp(words[0], "[") == 0 || strcmp(words[0], "[[") == 0);
    if (!is_test || words[count - 1][0] != ']') return IS_OPEN;
    words++;
    count -= 2;
    if (count > 1 && strcmp(words[0], "!") == 0) {
        const char *inner[6] = {"["};
        if (count > 4) return IS_OPEN;
        for (uint32_t i = 1; i < count; i++) inner[i] = words[i];
        inner[count] = "]";
        return inverse(test(b, inner, count + 1));
    }
    const char *first = expanded_word(b, words[count == 2 ? 1 : 0]),
               *last = count == 3 ? expanded_word(b, words[2]) : "";
    if (!first || !last) return IS_OPEN;
    if (count == 1) return truth_of(*first);
    if (count == 3) return compare(first, words[1], last);
    bool is_empty = count == 2 && strcmp(words[0], "-z") == 0, is_given = count == 2 && strcmp(words[0], "-n") == 0;
    return is_empty || is_given ? truth_of(is_given == (*first != 0)) : IS_OPEN;
}

/* ---- branches ---- */

static void blank(char *from, const char *end) {
    for (; from < end; from++)
        if (*from != '\n') *from = ' ';
}

static bool is_skipped(const branches *b) {
    for (uint32_t i = 0; i < b->depth; i++)
        if (b->at[i].is_skipped) return true;
    return false;
}

static bool is_open(const branches *b) {
    for (uint32_t i = 0; i < b->depth; i++)
        if (b->at[i].condition == IS_OPEN || b->at[i].taken == IS_OPEN) return true;
    return false;
}

static void add_test(branches *b, branch *to, const char *const *words, uint32_t count) {
    truth value = test(b, words, count);
    if (b->connector == '&')
        to->condition = both(to->condition, value);
    else if (b->connector == '|')
        to->condition = inverse(both(inverse(to->condition), inverse(value)));
    else
        to->condition = value;
}

/* A condition starts, of an `if` or of an `elif`, at `from`. */
static void begin_condition(branches *b, bool is_first, const char *from) {
    branch *of = &b->at[b->depth - 1];
    if (is_first)
        *of = (branch){.taken = IS_FALSE};
    else if (of->taken != IS_TRUE)
        of->taken = of->condition == IS_TRUE ? IS_TRUE : of->condition == IS_OPEN ? IS_OPEN : of->taken;
    of->is_skipped = false;
    b->is_condition = true;
    b->connector = 0;
    bool is_decided = ++b->conditions < CONDITION_LIMIT && from - b->made < DECIDED_LIMIT;
    b->variables = is_decided ? tide_shell_variables(b->arena, (tide_text){b->made, (size_t)(from - b->made)}) : NULL;
}

/* The branch after `then` or `else` starts. */
static void begin_branch(branches *b, bool is_else) {
    branch *of = &b->at[b->depth - 1];
    if (is_else) {
        if (of->taken != IS_TRUE) of->taken = of->condition == IS_FALSE ? of->taken : of->condition;
        of->condition = IS_TRUE;
    }
    of->is_skipped = of->taken == IS_TRUE || of->condition == IS_FALSE;
    b->is_condition = false;
}

/* Where the command's first word ends, if it is this one, without quotes; else NULL. */
static char *after_keyword(char *from, const char *end, const char *keyword) {
    size_t length = strlen(keyword);
    while (from < end && strchr(" \t\r\n\\", *from)) from++;
    return (size_t)(end - from) >= length && memcmp(from, keyword, length) == 0 ? from + length : NULL;
}

/* One command, from `from` to `end`; what stays of it is no keyword. */
static void take_command(branches *b, const tide_command_line *l, char *from, char *end) {
    static const char *const keywords[] = {"if", "elif", "then", "else", "fi"};
    enum { IF, ELIF, THEN, ELSE, FI, NONE } keyword = IF;
    char *after = NULL;
    while (keyword < NONE && !(l->count && strcmp(l->tokens[0], keywords[keyword]) == 0)) keyword++;
    if (keyword < NONE) after = after_keyword(from, end, keywords[keyword]);
    if (!after) keyword = NONE;
    if (keyword == IF && b->depth < BRANCH_LIMIT) b->depth++;
    if (!b->depth) return;
    if (keyword <= ELIF) begin_condition(b, keyword == IF, from);
    if (keyword < NONE) blank(from, keyword == FI ? end : after);
    if (keyword == THEN || keyword == ELSE) begin_branch(b, keyword == ELSE);
    if (keyword == FI) b->depth--;
    if (keyword == FI) return;
    if (b->is_condition) {
        uint32_t skipped = keyword <= ELIF;
        if (l->count > skipped) {
            add_test(b, &b->at[b->depth - 1], l->tokens + skipped, l->count - skipped);
            b->connector = 0;
        }
        if (end > from && (end[-1] == '&' || end[-1] == '|')) b->connector = end[-1];
        blank(from, end);
    } else if (is_skipped(b)) {
        blank(from, end);
    }
}

static uint32_t line_of(const char *text, const char *at) {
    uint32_t line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

tide_text tide_shell_take_branches(tide_arena *arena, tide_text script, uint32_t *open) {
    branches b = {.arena = arena, .made = tide_text_copy(arena, script)};
    tide_command_line l = {.arena = arena};
    tide_text text = {b.made, script.length};
    *open = 0;
    if (memchr(script.at, 0, script.length)) return script;
    for (size_t at = 0; at < text.length;) {
        size_t from = at;
        tide_shell_read(&l, text, &at);
        take_command(&b, &l, b.made + from, b.made + at);
        bool has_options = false;
        for (uint32_t i = 0; i < l.count; i++) has_options = has_options || strstr(l.tokens[i], "--");
        if (!*open && has_options && b.depth && !b.is_condition && is_open(&b) && !is_skipped(&b))
            *open = line_of(b.made, b.made + at - 1);
    }
    return text;
}
