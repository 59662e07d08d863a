/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions: what a file defines, and the order in which descriptions are searched. */
#include "lang/description.h"

#include <string.h>

#include "base/units.h"
#include "lang/inherit.h"

enum { EXTENDS_DEPTH_LIMIT = 12, DESCRIPTION_LIMIT = 64 };

void tide_descriptions_init(tide_descriptions *set, tide_arena *arena, tide_diagnostics *diags, tide_find_source find,
                            void *user) {
    *set = (tide_descriptions){.arena = arena, .diags = diags, .find = find, .user = user, .statement_count = 1};
    set->libraries = TIDE_NEW(arena, tide_description, 1);
    set->libraries->name = TIDE_TEXT("library");
    set->last = &set->first;
}

/* ---- reading ---- */

static const char *const description_keys[] = {
    "tidemark", "architecture", "note",         "extends",      "model_type",    "roots",    "sizes",
    "checks",   "functions",    "modules",      "inputs",       "titles",        "adapters", "stand_ins",
    "unread",   "ia3_targets",  "lora_refused", "lora_targets", "fused_experts", "notes",    "attention",
    "renames",  "tp_plan",      "liger",        "unranged"};
enum { KEY_COUNT = TIDE_COUNT_OF(description_keys) };

static bool check_keys(tide_descriptions *set, const tide_json *json, const char *place) {
    for (const tide_json *item = json->first; item; item = item->next) {
        bool is_known = false;
        for (size_t i = 0; i < KEY_COUNT; i++) is_known = is_known || tide_text_is(item->key, description_keys[i]);
        if (!is_known)
            return tide_description_fails(set, tide_json_place(set->arena, item, place), "no such key",
                                          tide_nearest(item->key, description_keys, KEY_COUNT));
    }
    return true;
}

static bool check_content(tide_descriptions *set, const tide_description *d, const char *place) {
    const tide_json *modules = tide_json_at(d->json, "modules");
    return d->is_library || (modules && modules->first) || tide_json_at(d->json, "extends") ||
           tide_description_fails(set, place, "describes nothing: give \"modules\", or what it \"extends\"", NULL);
}

/* The entries of "modules" or "functions". */
static tide_entry *list_entries(tide_descriptions *set, const tide_json *object, uint32_t *count) {
    if (!object || object->kind != TIDE_JSON_OBJECT) return NULL;
    tide_entry *entries = TIDE_NEW(set->arena, tide_entry, object->count + 1);
    for (const tide_json *item = object->first; item; item = item->next)
        entries[(*count)++] = (tide_entry){tide_head_name(item->key), item};
    return entries;
}

/* "roots": {"Llama": ["ForCausalLM", ...]} is short for {"LlamaForCausalLM": "ForCausalLM", ...}. */
static bool spread_roots(tide_descriptions *set, tide_json *json, const char *place) {
    const tide_json *roots = tide_json_at(json, "roots");
    if (!roots) return true;
    if (roots->kind != TIDE_JSON_OBJECT)
        return tide_description_fails(set, tide_json_place(set->arena, roots, place), "\"roots\" is an object", NULL);
    tide_json *made = tide_json_new(set->arena, TIDE_JSON_OBJECT);
    for (const tide_json *item = roots->first; item; item = item->next) {
        if (item->kind != TIDE_JSON_ARRAY)
            tide_json_put(set->arena, made, item->key, tide_json_clone(set->arena, item));
        for (const tide_json *task = item->first; task; task = task->next) {
            if (task->kind != TIDE_JSON_STRING)
                return tide_description_fails(set, tide_json_place(set->arena, task, place),
                                              "a root is \"ClassOfTransformers\": \"Module\", or \"Prefix\": [modules]",
                                              NULL);
            const char *name = tide_format(set->arena, "%s%s", item->key.at, task->text.at);
            tide_json_put(set->arena, made, tide_text_of(name), tide_json_clone(set->arena, task));
        }
    }
    tide_json_put(set->arena, json, TIDE_TEXT("roots"), made);
    return true;
}

static bool list_parts(tide_descriptions *set, tide_description *d) {
    const char *root = tide_format(set->arena, "/%s", d->name.at);
    d->modules = list_entries(set, tide_json_at(d->json, "modules"), &d->module_count);
    d->functions = list_entries(set, tide_json_at(d->json, "functions"), &d->function_count);
    const tide_json *sizes = tide_json_at(d->json, "sizes");
    if (!sizes || sizes->kind != TIDE_JSON_OBJECT) return true;
    d->sizes = TIDE_NEW(set->arena, tide_size, sizes->count + 1);
    for (const tide_json *item = sizes->first; item; item = item->next) {
        if (item->kind != TIDE_JSON_STRING)
            return tide_description_fails(set, tide_json_place(set->arena, item, root),
                                          "a size is an expression in quotes", NULL);
        d->sizes[d->size_count++] = (tide_size){.name = item->key, .item = item};
    }
    return true;
}

/* ---- the order of resolution ---- */

static void append_order(tide_descriptions *set, tide_description *d, uint32_t *capacity, tide_description *other) {
    TIDE_ROOM(set->arena, d->order, d->order_count, *capacity);
    d->order[d->order_count++] = other;
}

/* A description is followed by those that it extends, from left to right, each with its own; one that occurs several
 * times is at its last place, so that a description never comes before one that extends it. */
static void join_orders(tide_descriptions *set, tide_description *d, tide_description *const *bases, uint32_t count) {
    uint32_t capacity = 0;
    append_order(set, d, &capacity, d);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < bases[i]->order_count; k++) {
            tide_description *one = bases[i]->order[k];
            uint32_t at = 0;
            while (at < d->order_count && d->order[at] != one) at++;
            if (at < d->order_count) {
                d->order_count--;
                memmove(&d->order[at], &d->order[at + 1], (d->order_count - at) * sizeof(*d->order));
            }
            append_order(set, d, &capacity, one);
        }
}

static tide_description *load_description(tide_descriptions *set, tide_text name, int depth);

static bool load_bases(tide_descriptions *set, tide_description *d, const char *place, int depth) {
    const tide_json *extends = tide_json_at(d->json, "extends");
    tide_description *bases[DESCRIPTION_LIMIT];
    uint32_t count = 0;
    bool is_list = extends && extends->kind == TIDE_JSON_ARRAY;
    for (const tide_json *base = is_list ? extends->first : extends; base; base = is_list ? base->next : NULL) {
        if (base->kind != TIDE_JSON_STRING || count == DESCRIPTION_LIMIT)
            return tide_description_fails(set, tide_json_place(set->arena, base, place),
                                          "\"extends\" names a description, or several in an array", NULL);
        bases[count] = load_description(set, base->text, depth + 1);
        if (!bases[count++]) return false;
    }
    join_orders(set, d, bases, count);
    return true;
}

static tide_description *load_description(tide_descriptions *set, tide_text name, int depth) {
    for (tide_description *d = set->first; d; d = d->next)
        if (tide_text_equal(d->name, name)) return d;
    const char *place = tide_format(set->arena, "/%.*s", (int)(name.length < 80 ? name.length : 80), name.at);
    if (depth > EXTENDS_DEPTH_LIMIT || set->count++ > DESCRIPTION_LIMIT) {
        tide_description_fails(set, place, "too many descriptions extend one another", NULL);
        return NULL;
    }
    tide_source source = set->find(set->user, name);
    if (!source.text) {
        tide_description_fails(set, place, "no description of this name", NULL);
        return NULL;
    }
    tide_json *json = tide_json_parse(set->arena, (tide_text){source.text, source.length}, place, set->diags);
    if (!json) return NULL;
    tide_description *d = TIDE_NEW(set->arena, tide_description, 1);
    d->name = (tide_text){tide_text_copy(set->arena, name), name.length};
    d->json = json;
    d->is_library = tide_text_starts(name, TIDE_TEXT("library/"));
    if (!check_keys(set, json, place) || !check_content(set, d, place) || !spread_roots(set, json, place) ||
        !tide_check_renames(set, json, place) || !load_bases(set, d, place, depth) || !list_parts(set, d))
        return NULL;
    if (!set->first) set->last = &set->first; /* of this copy of the set, which may have been empty */
    *set->last = d;
    set->last = &d->next;
    return !source.is_given || tide_description_read(set, d) ? d : NULL;
}

tide_description *tide_description_load(tide_descriptions *set, tide_text name) {
    return load_description(set, name, 0);
}

bool tide_description_read(tide_descriptions *set, tide_description *d) {
    for (uint32_t i = 0; i < d->size_count; i++)
        if (!tide_size_find(set, d, d->sizes[i].name)) return false;
    for (uint32_t i = 0; i < d->function_count; i++)
        if (!tide_function_find(set, d, d->functions[i].name)) return false;
    for (uint32_t i = 0; i < d->module_count; i++) {
        tide_class *c = tide_class_find(set, d, d->modules[i].name);
        if (!c) return false;
        for (tide_function *f = c->methods; f; f = f->next)
            if (!tide_function_read(set, f)) return false;
    }
    return true;
}

/* ---- looking up ---- */

/* The entry of a size, read or not; *home is set to the description that has it. */
static tide_size *find_size(const tide_description *from, tide_text name, const tide_description **home) {
    for (uint32_t i = 0; i < from->order_count; i++) {
        const tide_description *d = *home = from->order[i];
        for (uint32_t k = 0; k < d->size_count; k++)
            if (tide_text_equal(d->sizes[k].name, name)) return &d->sizes[k];
    }
    return NULL;
}

bool tide_size_is_defined(const tide_description *from, tide_text name) {
    const tide_description *home;
    return find_size(from, name, &home) != NULL;
}

const tide_size *tide_size_find(tide_descriptions *set, const tide_description *from, tide_text name) {
    const tide_description *home;
    tide_size *size = find_size(from, name, &home);
    if (size && !size->expr) {
        const char *root = tide_format(set->arena, "/%s", home->name.at);
        size->expr =
            tide_parse_expr(set->arena, size->item->text, tide_json_place(set->arena, size->item, root), set->diags);
    }
    return size && size->expr ? size : NULL;
}

const tide_json *tide_description_at(const tide_description *from, const char *key) {
    for (uint32_t i = 0; i < from->order_count; i++) {
        const tide_json *found = tide_json_at(from->order[i]->json, key);
        if (found) return found;
    }
    return NULL;
}

const tide_json *tide_description_rows(const tide_descriptions *set, const tide_description *from, const char *key) {
    tide_json *all = tide_json_new(set->arena, TIDE_JSON_OBJECT);
    const tide_description *d;
    for (uint32_t i = 0; (d = tide_description_in_order(set, from, i)); i++) {
        const tide_json *rows = tide_json_at(d->json, key);
        for (const tide_json *row = rows ? rows->first : NULL; row; row = row->next)
            if (!tide_json_find(all, row->key))
                tide_json_put(set->arena, all, row->key, tide_json_clone(set->arena, row));
    }
    return all;
}
