/* SPDX-License-Identifier: Apache-2.0 */
/* What a description defines and nothing uses, most often a misspelt name. */
#include "base/units.h"
#include "lang/inherit.h"

/* ---- words of a description ---- */

static bool has_word(const char *text, tide_text word) {
    return tide_find_word(text, word) != NULL;
}

/* Which part of a key is an expression: none, the parameters of a function or module, or all of a check or note. */
typedef enum key_part { KEY_NONE, KEY_PARAMETERS, KEY_WHOLE } key_part;

static bool uses_word(const tide_json *node, tide_text word, key_part part) {
    if (node->kind == TIDE_JSON_STRING) return has_word(node->text.at, word);
    for (const tide_json *child = node->first; child; child = child->next) {
        const char *key = node->kind == TIDE_JSON_OBJECT && part != KEY_NONE ? child->key.at : "";
        if (part == KEY_PARAMETERS) key += tide_head_name(tide_text_of(key)).length;
        if (has_word(key, word) || uses_word(child, word, part)) return true;
    }
    return false;
}

bool tide_description_has_word(const tide_description *from, tide_text word) {
    for (uint32_t i = 0; i < from->order_count; i++)
        if (uses_word(from->order[i]->json, word, KEY_NONE)) return true;
    return false;
}

/* ---- modules and sizes ---- */

/* A use within itself, or in what it replaces, does not count. */
static bool is_used_in(const tide_description *d, const char *own_section, tide_text name) {
    static const char *const prose[] = {"note", "titles", "tp_plan", "architecture", "extends"};
    for (const tide_json *section = d->json->first; section; section = section->next) {
        bool is_prose = false, is_own = tide_text_is(section->key, own_section);
        for (size_t i = 0; i < TIDE_COUNT_OF(prose); i++) is_prose = is_prose || tide_text_is(section->key, prose[i]);
        bool is_checks = tide_text_is(section->key, "checks") || tide_text_is(section->key, "notes");
        if (!is_own && !is_prose && uses_word(section, name, is_checks ? KEY_WHOLE : KEY_PARAMETERS)) return true;
        for (const tide_json *item = is_own ? section->first : NULL; item; item = item->next) {
            tide_text head = tide_head_name(item->key);
            if (tide_text_equal(head, name)) continue;
            if (has_word(item->key.at + head.length, name) || uses_word(item, name, KEY_PARAMETERS)) return true;
        }
    }
    return false;
}

static bool is_used(const tide_descriptions *set, const tide_description *from, const char *section, tide_text name) {
    const tide_description *d;
    for (uint32_t i = 0; (d = tide_description_in_order(set, from, i)); i++)
        if (is_used_in(d, section, name)) return true;
    return false;
}

static bool unused(tide_descriptions *set, const tide_description *d, const tide_json *item, const char *what) {
    const char *place = tide_json_place(set->arena, item, tide_format(set->arena, "/%s", d->name.at));
    tide_text name = tide_head_name(item->key);
    return tide_error(set->diags, TIDE_ERR_DESCRIPTION, place, tide_format(set->arena, what, (int)name.length, name.at),
                      "look for a misspelt name, or remove it");
}

/* Sizes that lang/module.c, train/trainer_run.c, train/trainer.c and train/rollouts.c read. */
static const char read_by_code[] =
    "media_tokens|accepts_loss_kwargs|lacks_num_experts|drops_token_types|positions_from_one";

bool tide_description_all_used(tide_descriptions *set, const tide_description *d) {
    bool ok = true;
    if (!tide_json_at(d->json, "roots")) return true; /* it exists for those that extend it */
    for (uint32_t i = 0; i < d->size_count; i++) {
        bool is_read = tide_text_is_among(d->sizes[i].name, read_by_code) || is_used(set, d, "sizes", d->sizes[i].name);
        ok = (is_read || unused(set, d, d->sizes[i].item, "nothing reads the size '%.*s'")) && ok;
    }
    const tide_json *renames = tide_json_at(d->json, "renames");
    for (const tide_json *rename = renames ? renames->first : NULL; rename; rename = rename->next)
        ok = (tide_renames_something(set, d, rename->key) ||
              unused(set, d, rename, "nothing inherited has the name '%.*s'")) &&
             ok;
    for (uint32_t i = 0; i < d->module_count; i++)
        ok = (is_used(set, d, "modules", d->modules[i].name) ||
              unused(set, d, d->modules[i].item, "nothing uses the module '%.*s'")) &&
             ok;
    return ok;
}
