/* SPDX-License-Identifier: Apache-2.0 */
/* "@extends": a module defined by its differences from another. */
#include "lang/inherit.h"

#include <string.h>

enum { EXTENDS_LIMIT = 8 };

bool tide_description_fails(tide_descriptions *set, const char *place, const char *message, const char *near) {
    if (near) message = tide_format(set->arena, "%s; did you mean \"%s\"?", message, near);
    return tide_error(set->diags, TIDE_ERR_DESCRIPTION, place, message,
                      "models/README.md says what a description may hold");
}

tide_text tide_head_name(tide_text key) {
    size_t length = 0;
    while (length < key.length && key.at[length] != '(') length++;
    return (tide_text){key.at, length};
}

tide_description *tide_description_in_order(const tide_descriptions *set, const tide_description *from, uint32_t i) {
    if (i < from->order_count) return from->order[i];
    i -= from->order_count;
    for (tide_description *d = set->first; d; d = d->next)
        if (d->is_library && i-- == 0) return d;
    return NULL;
}

const tide_entry *tide_module_entry(const tide_descriptions *set, const tide_description *from, tide_text name,
                                    uint32_t first, uint32_t *at) {
    const tide_description *d;
    for (*at = first; (d = tide_description_in_order(set, from, *at)); ++*at)
        for (uint32_t i = 0; i < d->module_count; i++)
            if (tide_text_equal(d->modules[i].name, name)) return &d->modules[i];
    return NULL;
}

/* ---- patches: "forward": {"after hidden_states = mlp": [...]} ---- */

static const char *const patch_verbs[] = {"after ", "before ", "replace "};
enum { PATCH_AFTER, PATCH_BEFORE, PATCH_REPLACE, PATCH_VERBS };

/* A statement of a block, or a range of statements. */
typedef struct anchor {
    tide_text text, last; /* the beginning of the first one, and of the last one if it is a range */
    tide_json **link, **last_link, *after;
    uint32_t found;
} anchor;

static bool continues_if(const tide_json *item) {
    return item && item->kind == TIDE_JSON_STRING &&
           (tide_text_is(item->text, "else:") || tide_text_starts(item->text, TIDE_TEXT("elif ")));
}

/* The item after a statement with its block, or after an `if` with its branches. */
static tide_json *behind_statement(tide_json *item) {
    bool is_if = tide_text_starts(item->text, TIDE_TEXT("if "));
    do {
        item = item->next;
        if (item && item->kind == TIDE_JSON_ARRAY) item = item->next;
    } while (is_if && continues_if(item));
    return item;
}

static bool begins_with(const tide_json *item, tide_text text) {
    return item->kind == TIDE_JSON_STRING && tide_text_starts(item->text, text);
}

static void find_anchor(anchor *a, tide_json *block) {
    for (tide_json **link = &block->first; *link; link = &(*link)->next) {
        if ((*link)->kind == TIDE_JSON_ARRAY) find_anchor(a, *link);
        if (!begins_with(*link, a->text)) continue;
        tide_json **last = link;
        if (a->last.length) do
                last = &(*last)->next;
            while (*last && !begins_with(*last, a->last));
        if (!*last || a->found++) continue;
        a->link = link;
        a->last_link = last;
        a->after = behind_statement(*last);
    }
}

/* "FIRST ... LAST" */
static anchor anchor_of(tide_text text) {
    static const char dots[] = " ... ";
    const char *at = strstr(text.at, dots);
    if (!at) return (anchor){.text = text};
    size_t length = (size_t)(at - text.at), skip = length + sizeof dots - 1;
    return (anchor){.text = {text.at, length}, .last = {text.at + skip, text.length - skip}};
}

/* The first `length` bytes of the statements of a block. */
static void collect_beginnings(tide_arena *arena, const tide_json *block, size_t length, const char **texts,
                               uint32_t *count, uint32_t limit) {
    for (const tide_json *item = block->first; item && *count < limit; item = item->next) {
        size_t most = item->text.length < length ? item->text.length : length;
        if (item->kind == TIDE_JSON_STRING) texts[(*count)++] = tide_text_copy(arena, (tide_text){item->text.at, most});
        collect_beginnings(arena, item, length, texts, count, limit);
    }
}

static const char *near_statement(tide_arena *arena, const tide_json *body, tide_text text) {
    enum { STATEMENT_COUNT = 256 };
    const char *texts[STATEMENT_COUNT];
    uint32_t count = 0;
    collect_beginnings(arena, body, text.length, texts, &count, STATEMENT_COUNT);
    return tide_nearest(text, texts, count);
}

/* Applies one entry of a patch. */
static bool patch_statement(tide_descriptions *set, tide_json *body, const tide_json *change, const char *place) {
    size_t verb = 0;
    while (verb < PATCH_VERBS && !tide_text_starts(change->key, tide_text_of(patch_verbs[verb]))) verb++;
    if (verb == PATCH_VERBS || change->kind != TIDE_JSON_ARRAY)
        return tide_description_fails(
            set, place, "a change is \"after STATEMENT\", \"before STATEMENT\" or \"replace STATEMENT\": [statements]",
            NULL);
    size_t skip = strlen(patch_verbs[verb]);
    tide_text range = {change->key.at + skip, change->key.length - skip};
    anchor a = anchor_of(range);
    if (a.text.length) find_anchor(&a, body);
    if (a.found != 1) {
        const char *near = a.found || a.last.length ? NULL : near_statement(set->arena, body, a.text);
        return tide_description_fails(set, place,
                                      tide_format(set->arena, "%s of the inherited function begins with '%.*s'",
                                                  a.found ? "more than one statement" : "no statement",
                                                  (int)range.length, range.at),
                                      near);
    }
    const tide_json *added = tide_json_clone(set->arena, change);
    tide_json *last = added->first;
    for (tide_json *item = added->first; item; item = item->next) {
        item->parent = body;
        last = item;
    }
    tide_json **link = verb == PATCH_REPLACE ? a.link : a.last_link;
    if (verb == PATCH_AFTER)
        while (*link != a.after) link = &(*link)->next;
    tide_json *rest = verb == PATCH_REPLACE ? a.after : *link;
    *link = added->first ? added->first : rest;
    if (last) last->next = rest;
    return true;
}

/* A function with statements changed. NULL after an error. */
static tide_json *patched(tide_descriptions *set, const tide_json *old, const tide_json *changes, const char *root) {
    const char *place = tide_json_place(set->arena, changes, root);
    if (!old || old->kind != TIDE_JSON_ARRAY) {
        tide_description_fails(set, place, "changes the statements of a function that is not inherited", NULL);
        return NULL;
    }
    tide_json *body = tide_json_clone(set->arena, old);
    for (const tide_json *change = changes->first; change; change = change->next)
        if (!patch_statement(set, body, change, tide_json_place(set->arena, change, root))) return NULL;
    return body;
}

/* ---- modules ---- */

static const tide_json *member_of(const tide_json *module, tide_text name) {
    for (const tide_json *m = module->first; m; m = m->next)
        if (tide_text_equal(tide_head_name(m->key), name)) return m;
    return NULL;
}

static bool is_attribute(tide_text key) {
    return key.length && key.at[0] == '@';
}

static bool is_new(tide_text key) {
    return key.length && key.at[0] == '+';
}

/* A key beside "@extends" must exist in the extended module, or be marked as new. */
static bool check_key(tide_descriptions *set, const tide_json *other, const tide_json *member, const char *root) {
    tide_text key = member->key;
    if (is_attribute(key)) return true;
    bool says_new = is_new(key);
    if (says_new) key = (tide_text){key.at + 1, key.length - 1};
    tide_text name = tide_head_name(key);
    if ((member_of(other, name) != NULL) != says_new) return true;
    const char *place = tide_json_place(set->arena, member, root), *near = NULL,
               **names = TIDE_NEW(set->arena, const char *, other->count + 1);
    uint32_t count = 0;
    for (const tide_json *m = other->first; m; m = m->next)
        if (!is_attribute(m->key)) names[count++] = tide_text_copy(set->arena, tide_head_name(m->key));
    if (!says_new) near = tide_nearest(name, names, count);
    const char *what = says_new ? "the module that this one extends has '%.*s' already: write it without the +"
                                : "the module that this one extends has no '%.*s'; what is new is written '+%.*s'";
    return tide_description_fails(
        set, place, tide_format(set->arena, what, (int)name.length, name.at, (int)name.length, name.at), near);
}

/* Appends a member with this key. */
static void append_member(tide_descriptions *set, tide_json *made, tide_text key, const tide_json *value) {
    tide_json *copy = tide_json_clone(set->arena, value);
    tide_json_put(set->arena, made, key, copy);
}

/* Adds what replaces a member of the extended module. False after an error. */
static bool put_in_place(tide_descriptions *set, tide_json *made, const tide_json *old, const tide_json *anew,
                         const char *root) {
    if (anew->kind == TIDE_JSON_NULL) return true;
    tide_text key = anew->key;
    bool is_function = old->kind == TIDE_JSON_ARRAY && !is_attribute(old->key);
    if (is_function && anew->kind == TIDE_JSON_OBJECT) {
        anew = patched(set, old, anew, root);
        if (!anew) return false;
    }
    bool takes_head = is_function && anew->kind == TIDE_JSON_ARRAY && tide_head_name(key).length == key.length;
    append_member(set, made, takes_head ? old->key : key, anew);
    return true;
}

static const tide_json *merge_module(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                     uint32_t at, int depth);

/* The complete module that `item` extends: under the same name the next one in the order of resolution, as with
 * super(). */
static const tide_json *extended_module(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                        uint32_t at, const char *place, int depth) {
    const tide_json *name = tide_json_at(item, "@extends");
    if (name->kind != TIDE_JSON_STRING || depth >= EXTENDS_LIMIT) {
        tide_description_fails(set, place, "\"@extends\" is the name of a module; at most 8 extend one another", NULL);
        return NULL;
    }
    uint32_t first = tide_text_equal(name->text, tide_head_name(item->key)) ? at + 1 : 0, found;
    const tide_entry *entry = tide_module_entry(set, from, name->text, first, &found);
    if (entry) {
        const tide_json *other = merge_module(set, from, entry->item, found, depth + 1);
        return other ? tide_renamed(set, from, other, at, found) : NULL;
    }
    tide_description_fails(
        set, place, "\"@extends\" names a module of this description, of one that it extends, or of the library", NULL);
    return NULL;
}

static const tide_json *merge_module(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                     uint32_t at, int depth) {
    const tide_description *home = tide_description_in_order(set, from, at);
    const char *root = tide_format(set->arena, "/%s", home->name.at), *place = tide_json_place(set->arena, item, root);
    if (!tide_json_at(item, "@extends")) return item;
    const tide_json *other = extended_module(set, from, item, at, place, depth);
    if (!other) return NULL;
    if (other->kind != TIDE_JSON_OBJECT) {
        tide_description_fails(set, place, "\"@extends\" names what is no module", NULL);
        return NULL;
    }
    for (const tide_json *member = item->first; member; member = member->next)
        if (!check_key(set, other, member, root)) return NULL;
    tide_json *made = tide_json_new(set->arena, TIDE_JSON_OBJECT);
    made->parent = item->parent;
    made->key = item->key;
    tide_text head = tide_head_name(other->key);
    if (tide_head_name(item->key).length == item->key.length)
        made->key = tide_text_of(tide_format(set->arena, "%s%s", item->key.at, other->key.at + head.length));
    for (const tide_json *old = other->first; old; old = old->next) {
        const tide_json *anew = member_of(item, tide_head_name(old->key));
        if (!put_in_place(set, made, old, anew ? anew : old, root)) return NULL;
    }
    for (const tide_json *member = item->first; member; member = member->next) {
        tide_text key = member->key;
        bool has_been = member_of(other, tide_head_name(key)) != NULL || tide_text_is(key, "@extends");
        if (has_been || member->kind == TIDE_JSON_NULL) continue;
        if (is_new(key)) key = (tide_text){key.at + 1, key.length - 1};
        append_member(set, made, key, member);
    }
    return made;
}

const tide_json *tide_module_merged(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                    uint32_t at) {
    item = merge_module(set, from, item, at, 0);
    return item ? tide_renamed(set, from, item, 0, at) : NULL;
}
