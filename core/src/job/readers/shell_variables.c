/* SPDX-License-Identifier: Apache-2.0 */
#include "job/readers/shell_variables.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"

enum { VARIABLE_LIMIT = 256, PIECE_LIMIT = 64, EXPANDED_LIMIT = 4096 };

static bool is_variable_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t variable_length(const char *text) {
    size_t length = 0;
    while (is_variable_byte(text[length])) length++;
    return length;
}

static const tide_shell_variable *variable_named(const tide_shell_variable *all, const char *name, size_t length) {
    for (; all; all = all->next)
        if (strlen(all->name) == length && memcmp(all->name, name, length) == 0) return all;
    return NULL;
}

/* ---- expansion ---- */

/* A reference to a variable at `$`: its name, its default, and where it ends. */
typedef struct reference {
    const char *name, *otherwise, *end;
    size_t length;
} reference;

static bool read_reference(tide_arena *arena, const char *at, reference *r) {
    bool is_braced = at[1] == '{';
    *r = (reference){.name = at + (is_braced ? 2 : 1)};
    r->length = variable_length(r->name);
    r->end = r->name + r->length;
    if (!r->length || !is_braced) return r->length > 0;
    const char *close = strchr(r->end, '}');
    if (!close) return false;
    bool has_default = r->end[0] == ':' && r->end[1] == '-';
    if (has_default) r->otherwise = tide_text_copy(arena, (tide_text){r->end + 2, (size_t)(close - r->end) - 2});
    bool is_known =
        has_default || close == r->end || strncmp(r->end, "[@]}", 4) == 0 || strncmp(r->end, "[*]}", 4) == 0;
    r->end = close + 1;
    return is_known;
}

/* Expands variables within a word, up to a limit. */
static const char *expand_word(tide_arena *arena, const char *word, const tide_shell_variable *all) {
    const char *made = "";
    unsigned pieces = 0;
    for (const char *at = word; *at;) {
        if (++pieces > PIECE_LIMIT || strlen(made) > EXPANDED_LIMIT) return word;
        reference r;
        const tide_shell_variable *found = NULL;
        bool is_reference = *at == '$' && read_reference(arena, at, &r);
        if (is_reference) found = variable_named(all, r.name, r.length);
        const char *value = found && found->count == 1 ? found->words[0] : is_reference && !found ? r.otherwise : NULL;
        size_t length = value ? 0 : strcspn(at + 1, "$") + 1;
        made = value ? tide_format(arena, "%s%s", made, value) : tide_format(arena, "%s%.*s", made, (int)length, at);
        at = value ? r.end : at + length;
    }
    return made;
}

/* Splits "--a 1 --b 2" of an unquoted variable into words. */
static void add_split_words(tide_command_line *words, const char *text) {
    tide_text rest = tide_text_of(text);
    for (size_t at = 0; at < rest.length;) {
        size_t from = at;
        while (at < rest.length && !strchr(" \t\r\n", rest.at[at])) at++;
        if (at > from) tide_shell_add(words, tide_text_copy(words->arena, (tide_text){rest.at + from, at - from}));
        while (at < rest.length && strchr(" \t\r\n", rest.at[at])) at++;
    }
}

/* An element of an array: "--a 1" is an option with its value where the array is not quoted. */
static void add_split_option(tide_command_line *words, const char *text) {
    bool is_split = strncmp(text, "--", 2) == 0 && strcspn(text, " ") < strcspn(text, "=");
    is_split ? add_split_words(words, text) : tide_shell_add(words, text);
}

void tide_shell_expand(tide_command_line *line, const tide_shell_variable *variables) {
    tide_command_line made = {.arena = line->arena};
    for (uint32_t i = 0; i < line->count; i++) {
        reference r;
        const char *token = line->tokens[i];
        bool is_whole = token[0] == '$' && read_reference(line->arena, token, &r) && !*r.end;
        const tide_shell_variable *found = is_whole ? variable_named(variables, r.name, r.length) : NULL;
        for (uint32_t k = 0; found && k < found->count; k++) add_split_option(&made, found->words[k]);
        if (!found) tide_shell_add(&made, strchr(token, '$') ? expand_word(line->arena, token, variables) : token);
    }
    *line = made;
}

/* ---- arithmetic ---- */

/* Computes "16 / $N" with integers, from left to right, if all operators have the same precedence, so that this is
 * right. */
static bool compute(tide_arena *arena, tide_text expression, const tide_shell_variable *all, int64_t *value) {
    char operation = '+';
    bool has_sum = false, has_product = false, expects_number = true;
    *value = 0;
    for (size_t at = 0; at < expression.length;) {
        size_t from = at;
        char c = expression.at[at++];
        if (c == ' ' || c == '\\') continue;
        if (!expects_number) {
            has_sum = has_sum || c == '+' || c == '-';
            has_product = has_product || c == '*' || c == '/';
            if (!strchr("+-*/", c) || (has_sum && has_product)) return false;
            operation = c;
            expects_number = true;
            continue;
        }
        while (at < expression.length && !strchr(" +-*/", expression.at[at])) at++;
        const char *word = tide_text_copy(arena, (tide_text){expression.at + from, at - from});
        const char *bare =
            is_variable_byte(word[0]) && (word[0] < '0' || word[0] > '9') ? tide_format(arena, "$%s", word) : word;
        int64_t number;
        if (!tide_text_to_i64(&number, tide_text_of(expand_word(arena, bare, all)))) return false;
        if (number < 0 || number > INT32_MAX || (operation == '/' && number == 0)) return false;
        *value = operation == '+'   ? *value + number
                 : operation == '-' ? *value - number
                 : operation == '*' ? *value * number
                                    : *value / number;
        if (*value > INT32_MAX || *value < -INT32_MAX) return false;
        expects_number = false;
    }
    return !expects_number;
}

tide_text tide_shell_compute(tide_arena *arena, tide_text script, const tide_shell_variable *variables) {
    static const struct { const char *open, *close; } forms[] = {{"$((", "))"}, {"$(expr ", ")"}, {"`expr ", "`"}};
    char *made = tide_text_copy(arena, script);
    if (memchr(script.at, 0, script.length)) return script;
    for (size_t i = 0; i < TIDE_COUNT_OF(forms); i++)
        for (char *at = strstr(made, forms[i].open); at; at = strstr(at + 1, forms[i].open)) {
            char *from = at + strlen(forms[i].open), *end = strstr(from, forms[i].close);
            int64_t value;
            if (!end || !compute(arena, (tide_text){from, (size_t)(end - from)}, variables, &value)) continue;
            size_t room = (size_t)(end - at) + strlen(forms[i].close);
            char number[24];
            size_t length = (size_t)snprintf(number, sizeof number, "%" PRId64, value);
            if (length > room) continue;
            memcpy(at, number, length);
            memmove(at + length, at + room, strlen(at + room) + 1);
        }
    return tide_text_of(made);
}

/* ---- assignments ---- */

static void assign_variable(const tide_shell_variable **all, tide_command_line *words, const char *name) {
    tide_shell_expand(words, *all);
    tide_shell_variable *made = TIDE_NEW(words->arena, tide_shell_variable, 1);
    *made = (tide_shell_variable){.name = name, .words = words->tokens, .count = words->count, .next = *all};
    *all = made;
}

/* Splits "NAME=value" or "NAME+=value". NULL: the word is no assignment. */
static const char *assigned_value(tide_arena *arena, const char *word, const char **name, bool *is_added) {
    size_t length = variable_length(word);
    *is_added = word[length] == '+';
    const char *value = word + length + *is_added;
    if (!length || *value != '=') return NULL;
    *name = tide_text_copy(arena, (tide_text){word, length});
    return value + 1;
}

/* The words of a variable so far, to which others are added. */
static void add_words_of(tide_command_line *words, const tide_shell_variable *all, const char *name) {
    const tide_shell_variable *found = variable_named(all, name, strlen(name));
    for (uint32_t k = 0; found && k < found->count; k++) tide_shell_add(words, found->words[k]);
}

const tide_shell_variable *tide_shell_variables(tide_arena *arena, tide_text script) {
    const tide_shell_variable *all = NULL;
    tide_command_line line = {.arena = arena}, array = {.arena = arena};
    const char *array_name = NULL;
    uint32_t count = 0;
    for (size_t at = 0; at < script.length && count < VARIABLE_LIMIT;) {
        tide_shell_read(&line, script, &at);
        uint32_t from = 0;
        for (; !array_name && from < line.count; from++) {
            const char *name, *token = line.tokens[from];
            bool is_added;
            const char *value = assigned_value(arena, token, &name, &is_added);
            if (!value) {
                if (strcmp(token, "export") == 0 || strcmp(token, "local") == 0) continue;
                break;
            }
            count++;
            tide_command_line words = {.arena = arena};
            if (is_added) add_words_of(&words, all, name);
            if (value[0] != '(') {
                add_split_words(&words, value);
                assign_variable(&all, &words, name);
                continue;
            }
            array = words;
            if (value[1]) tide_shell_add(&array, value + 1);
            array_name = name;
        }
        for (; array_name && from < line.count; from++) tide_shell_add(&array, line.tokens[from]);
        if (!array_name || (at < script.length && script.at[at - 1] != ')')) continue;
        assign_variable(&all, &array, array_name);
        array_name = NULL;
    }
    return all;
}
