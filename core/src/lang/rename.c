/* SPDX-License-Identifier: Apache-2.0 */
/* "renames": the names that a description gives to those in modules and functions that it inherits. */
#include <string.h>

#include "base/units.h"
#include "lang/inherit.h"

static bool is_word_part(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const char *tide_find_word(const char *text, tide_text word) {
    bool is_quoted = false;
    for (const char *at = text; *at; at++) {
        if (*at == '\'') is_quoted = !is_quoted;
        if (is_quoted || strncmp(at, word.at, word.length) != 0 || is_word_part(at[word.length])) continue;
        if (at == text || !is_word_part(at[-1])) return at;
    }
    return NULL;
}

/* ---- texts ---- */

static tide_text rename_text(tide_arena *arena, tide_text text, const tide_json *rename) {
    const char *rest = text.at, *found, *made = "";
    while ((found = tide_find_word(rest, rename->key))) {
        made = tide_format(arena, "%s%.*s%s", made, (int)(found - rest), rest, rename->text.at);
        rest = found + rename->key.length;
    }
    return rest == text.at ? text : tide_text_of(tide_format(arena, "%s%s", made, rest));
}

static bool is_member(tide_text key) {
    return key.length && key.at[0] != '@';
}

static bool has_text(const tide_json *node, tide_text word) {
    if (node->kind == TIDE_JSON_STRING) return tide_find_word(node->text.at, word) != NULL;
    for (const tide_json *child = node->first; child; child = child->next)
        if ((is_member(child->key) && tide_find_word(child->key.at, word)) || has_text(child, word)) return true;
    return false;
}

static void rename_in(tide_arena *arena, tide_json *node, const tide_json *rename) {
    if (node->kind == TIDE_JSON_STRING) node->text = rename_text(arena, node->text, rename);
    for (tide_json *child = node->first; child; child = child->next) {
        if (is_member(child->key)) child->key = rename_text(arena, child->key, rename);
        rename_in(arena, child, rename);
    }
}

/* ---- modules ---- */

const tide_json *tide_renamed(tide_descriptions *set, const tide_description *from, const tide_json *item,
                              uint32_t first, uint32_t last) {
    for (uint32_t i = last; i-- > first;) {
        const tide_json *renames = tide_json_at(tide_description_in_order(set, from, i)->json, "renames");
        for (const tide_json *rename = renames ? renames->first : NULL; rename; rename = rename->next) {
            if (!has_text(item, rename->key)) continue;
            tide_json *made = tide_json_clone(set->arena, item);
            made->parent = item->parent;
            rename_in(set->arena, made, rename);
            item = made;
        }
    }
    return item;
}

/* What `from` calls a name written in the `last` description of its order. */
static tide_text renamed_word(const tide_description *from, tide_text word, uint32_t last) {
    for (uint32_t i = last; i-- > 0;) {
        const tide_json *found = tide_json_find(tide_json_at(from->order[i]->json, "renames"), word);
        if (found) word = found->text;
    }
    return word;
}

const char *tide_description_title(const tide_description *from, tide_text part) {
    const tide_json *titles = NULL;
    for (uint32_t i = 0; i < from->order_count && !titles; i++) {
        titles = tide_json_at(from->order[i]->json, "titles");
        for (const tide_json *title = titles ? titles->first : NULL; title; title = title->next)
            if (title->kind == TIDE_JSON_STRING && tide_text_equal(renamed_word(from, title->key, i), part))
                return title->text.at;
    }
    return NULL;
}

/* ---- what is wrong with them ---- */

static bool is_word(tide_text text) {
    size_t length = 0;
    while (length < text.length && is_word_part(text.at[length])) length++;
    return length && length == text.length && !(text.at[0] >= '0' && text.at[0] <= '9');
}

bool tide_check_renames(tide_descriptions *set, const tide_json *json, const char *place) {
    const tide_json *renames = tide_json_at(json, "renames");
    bool ok = !renames || renames->kind == TIDE_JSON_OBJECT;
    for (const tide_json *rename = ok && renames ? renames->first : NULL; rename; rename = rename->next)
        ok = ok && rename->kind == TIDE_JSON_STRING && is_word(rename->key) && is_word(rename->text);
    return ok || tide_description_fails(set, tide_json_place(set->arena, renames, place),
                                        "\"renames\" is an object of names: {\"inherited\": \"own\"}", NULL);
}

bool tide_renames_something(const tide_descriptions *set, const tide_description *from, tide_text word) {
    const tide_description *d;
    for (uint32_t i = 1; (d = tide_description_in_order(set, from, i)); i++) {
        const char *const sections[] = {"modules", "functions", "renames"};
        for (size_t k = 0; k < TIDE_COUNT_OF(sections); k++) {
            const tide_json *section = tide_json_at(d->json, sections[k]);
            if (section && has_text(section, word)) return true;
        }
    }
    return false;
}
