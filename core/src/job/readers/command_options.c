/* SPDX-License-Identifier: Apache-2.0 */
#include "job/readers/command_options.h"

#include <string.h>

/* A number, a boolean or a text. */
static tide_json *typed_word(tide_arena *arena, const char *word) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const char *lowered = tide_lowered(arena, tide_text_of(word));
    bool is_truth = strcmp(lowered, "true") == 0 || strcmp(lowered, "false") == 0;
    bool is_number = (word[0] >= '0' && word[0] <= '9') || (word[0] == '-' && word[1] >= '0' && word[1] <= '9');
    tide_json *read =
        is_truth || is_number ? tide_json_parse(arena, tide_text_of(is_truth ? lowered : word), "", &scratch) : NULL;
    if (read) return read;
    read = tide_json_new(arena, TIDE_JSON_STRING);
    read->text = tide_text_of(word);
    return read;
}

void tide_option_put(tide_arena *arena, tide_json *object, const char *key, const char *word) {
    tide_json_put(arena, object, tide_text_of(key), typed_word(arena, word));
}

char *tide_flag_key(tide_arena *arena, const char *token, size_t length) {
    while (length && *token == '-') token++, length--;
    char *key = tide_text_copy(arena, (tide_text){token, length});
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    return key;
}

tide_json *tide_command_options(const tide_command_line *l, uint32_t from, uint32_t end, const char **word) {
    tide_json *options = tide_json_new(l->arena, TIDE_JSON_OBJECT);
    for (uint32_t i = from; i < end; i++) {
        const char *token = l->tokens[i], *equals = strchr(token, '=');
        if (!tide_shell_is_option(token)) {
            if (!*word) *word = token;
            continue;
        }
        char *key = tide_flag_key(l->arena, token, equals ? (size_t)(equals - token) : strlen(token));
        uint32_t count = 0;
        while (i + 1 + count < end && !tide_shell_is_option(l->tokens[i + 1 + count])) count++;
        if (!*key) continue;
        if (equals || !count) {
            tide_option_put(l->arena, options, key, equals ? equals + 1 : "true");
            continue;
        }
        const char *joined = l->tokens[i + 1];
        for (uint32_t k = 2; k <= count; k++) joined = tide_format(l->arena, "%s,%s", joined, l->tokens[i + k]);
        tide_option_put(l->arena, options, key, joined);
        i += count;
    }
    return options;
}

static tide_json *option_section(tide_arena *arena, tide_json *object, tide_text name) {
    for (tide_json *entry = object->first; entry; entry = entry->next)
        if (entry->kind == TIDE_JSON_OBJECT && tide_text_equal(entry->key, name)) return entry;
    tide_json *made = tide_json_new(arena, TIDE_JSON_OBJECT);
    tide_json_put(arena, object, tide_text_of(tide_text_copy(arena, name)), made);
    return made;
}

void tide_option_override(tide_arena *arena, tide_json *root, const char *token) {
    const char *equals = strchr(token, '=');
    if (!equals || tide_shell_is_option(token)) return;
    while (*token == '+') token++;
    for (const char *dot = memchr(token, '.', (size_t)(equals - token)); dot;
         dot = memchr(token, '.', (size_t)(equals - token))) {
        tide_text name = {token, (size_t)(dot - token)};
        root = option_section(arena, root, name);
        token = dot + 1;
    }
    tide_option_put(arena, root, tide_text_copy(arena, (tide_text){token, (size_t)(equals - token)}), equals + 1);
}

tide_json *tide_options_in_sections(tide_arena *arena, const tide_json *options) {
    tide_json *root = tide_json_new(arena, TIDE_JSON_OBJECT);
    for (const tide_json *option = options->first; option; option = option->next) {
        tide_json *section = root;
        tide_text rest = option->key, name;
        while (memchr(rest.at, '.', rest.length) && tide_piece_next(&rest, '.', &name))
            section = option_section(arena, section, name);
        tide_json_put(arena, section, rest, tide_json_clone(arena, option));
    }
    return root;
}
