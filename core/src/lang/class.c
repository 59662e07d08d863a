/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the modules and functions of descriptions from JSON. */
#include <stddef.h>
#include <string.h>

#include "base/units.h"
#include "lang/inherit.h"

enum { MEMBER_LIMIT = 4096 };

/* ---- attributes: keys of a module that begin with @ ---- */

static bool read_checkpoint(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    bool is_word = item->kind == TIDE_JSON_STRING && tide_text_is(item->text, "non_reentrant");
    if (item->kind != TIDE_JSON_BOOL && !is_word)
        return tide_description_fails(set, place, "\"@checkpoint\" is true or \"non_reentrant\"", NULL);
    made->is_checkpointed = is_word || item->is_true;
    made->is_never_reentrant = is_word;
    return true;
}

static bool read_generates(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    if (item->kind != TIDE_JSON_BOOL)
        return tide_description_fails(set, place, "\"@generates\" is true or false", NULL);
    made->never_generates = !item->is_true;
    return true;
}

static bool read_inputs(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    if (item->kind != TIDE_JSON_OBJECT)
        return tide_description_fails(set, place, "\"@inputs\" is an object of expressions", NULL);
    made->inputs = item;
    return true;
}

static bool read_ties(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    const tide_json *condition = tide_json_at(item, "if"), *pairs = tide_json_at(item, "names");
    if (condition && condition->kind == TIDE_JSON_STRING) {
        made->tie_condition = tide_parse_expr(set->arena, condition->text, place, set->diags);
        if (!made->tie_condition) return false;
    }
    if (!pairs || pairs->kind != TIDE_JSON_OBJECT)
        return tide_description_fails(set, place, "\"@tie\" needs \"names\": {\"a.weight\": \"b.weight\"}", NULL);
    tide_statement **link = &made->ties;
    for (const tide_json *pair = pairs->first; pair; pair = pair->next) {
        if (pair->kind != TIDE_JSON_STRING) return tide_description_fails(set, place, "a tie names a parameter", NULL);
        tide_statement *tie = TIDE_NEW(set->arena, tide_statement, 1);
        tie->targets = TIDE_NEW(set->arena, tide_text, 2);
        tie->targets[0] = pair->key;
        tie->targets[1] = pair->text;
        *link = tie;
        link = &tie->next;
    }
    return true;
}

/* "@extends" is handled when modules are merged. */
static bool read_base(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    (void)set, (void)made, (void)item, (void)place;
    return true;
}

/* Read by `read`, or stored as a boolean or text at an offset. */
static const struct {
    const char *name;
    bool (*read)(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place);
    tide_json_kind kind;
    size_t offset;
} attributes[] = {
    {"@extends", read_base, TIDE_JSON_STRING, 0},
    {"@checkpoint", read_checkpoint, TIDE_JSON_BOOL, 0},
    {"@generates", read_generates, TIDE_JSON_BOOL, 0},
    {"@inputs", read_inputs, TIDE_JSON_OBJECT, 0},
    {"@tie", read_ties, TIDE_JSON_OBJECT, 0},
    {"@zero_leaf", NULL, TIDE_JSON_BOOL, offsetof(tide_class, is_zero_leaf)},
    {"@parts", NULL, TIDE_JSON_BOOL, offsetof(tide_class, holds_parts)},
    {"@without_positions", NULL, TIDE_JSON_BOOL, offsetof(tide_class, is_without_positions)},
    {"@loss_apart", NULL, TIDE_JSON_BOOL, offsetof(tide_class, loss_is_apart)},
    {"@input_embeddings", NULL, TIDE_JSON_STRING, offsetof(tide_class, input_embeddings)},
    {"@output_embeddings", NULL, TIDE_JSON_STRING, offsetof(tide_class, output_embeddings)},
    {"@delegate", NULL, TIDE_JSON_STRING, offsetof(tide_class, delegate)},
    {"@delegate_disabled", NULL, TIDE_JSON_STRING, offsetof(tide_class, delegate_disabled)},
};
enum { ATTRIBUTE_COUNT = TIDE_COUNT_OF(attributes) };

static bool read_attribute(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    const char *names[ATTRIBUTE_COUNT];
    for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
        names[i] = attributes[i].name;
        if (!tide_text_is(item->key, names[i])) continue;
        if (attributes[i].read) return attributes[i].read(set, made, item, place);
        char *field = (char *)made + attributes[i].offset;
        if (item->kind != attributes[i].kind)
            return tide_description_fails(
                set, place,
                tide_format(set->arena, "\"%s\" is %s", names[i],
                            attributes[i].kind == TIDE_JSON_BOOL ? "true or false" : "a name"),
                NULL);
        if (item->kind == TIDE_JSON_BOOL) *(bool *)(void *)field = item->is_true;
        if (item->kind == TIDE_JSON_STRING) *(tide_text *)(void *)field = item->text;
        return true;
    }
    return tide_description_fails(set, place, tide_format(set->arena, "no such attribute as \"%s\"", item->key.at),
                                  tide_nearest(item->key, names, ATTRIBUTE_COUNT));
}

/* ---- functions ---- */

/* Adds a statement to the table of statements, so that reports can name its line. A larger table is a new one, because
 * runs of other ranks, which share the descriptions, have the smaller. */
static void list_statements(tide_descriptions *set, tide_statement *s) {
    for (; s; s = s->next) {
        while (set->statement_capacity <= s->number) {
            size_t old = set->statement_capacity, wider = old ? old * 2 : 256;
            tide_statement **table = TIDE_NEW(set->arena, tide_statement *, wider);
            if (old) memcpy(table, set->statements, old * sizeof *table);
            set->statements = table;
            set->statement_capacity = (uint32_t)wider;
        }
        set->statements[s->number] = s;
        list_statements(set, s->body);
        list_statements(set, s->otherwise);
    }
}

static tide_function *function_new(tide_descriptions *set, tide_description *description, const tide_description *home,
                                   tide_class *of, const tide_json *item) {
    tide_function *made = TIDE_NEW(set->arena, tide_function, 1);
    made->name = tide_head_name(item->key);
    made->item = item;
    made->of = of;
    made->description = description;
    made->home = home;
    return made;
}

bool tide_function_read(tide_descriptions *set, tide_function *f) {
    const tide_json *item = f->item;
    if (!item) return true;
    f->item = NULL;
    const char *root = tide_format(set->arena, "/%s", f->home->name.at),
               *place = tide_json_place(set->arena, item, root);
    if (!tide_parse_head(set->arena, item->key, place, &f->name, &f->parameters, &f->parameter_count, set->diags))
        return false;
    if (!tide_parse_block(set->arena, item, root, &set->statement_count, &f->body, set->diags)) return false;
    list_statements(set, f->body);
    return true;
}

tide_function *tide_function_find(tide_descriptions *set, tide_description *from, tide_text name) {
    if (!from) from = set->libraries;
    const tide_json *other = tide_json_find(from->replaced, name);
    if (other && other->kind == TIDE_JSON_STRING) name = other->text;
    for (tide_function *f = from->free_functions; f; f = f->next)
        if (tide_text_equal(f->name, name)) return tide_function_read(set, f) ? f : NULL;
    const tide_description *d;
    for (uint32_t at = 0; (d = tide_description_in_order(set, from, at)); at++)
        for (uint32_t i = 0; i < d->function_count; i++) {
            if (!tide_text_equal(d->functions[i].name, name)) continue;
            tide_function *made =
                function_new(set, from, d, NULL, tide_renamed(set, from, d->functions[i].item, 0, at));
            made->next = from->free_functions;
            from->free_functions = made;
            return tide_function_read(set, made) ? made : NULL;
        }
    return NULL;
}

tide_function *tide_method_find(const tide_class *of, tide_text name) {
    for (tide_function *f = of->methods; f; f = f->next)
        if (tide_text_equal(f->name, name)) return f;
    return NULL;
}

/* ---- modules ---- */

static bool read_member(tide_descriptions *set, tide_class *made, const tide_json *member, const char *root) {
    const char *place = tide_json_place(set->arena, member, root);
    if (member->key.length && member->key.at[0] == '@') return read_attribute(set, made, member, place);
    if (member->kind != TIDE_JSON_STRING)
        return tide_description_fails(set, place,
                                      "a member is an expression in quotes, a function an array of statements", NULL);
    tide_member *m = &made->members[made->member_count++];
    m->name = member->key;
    m->expr = tide_parse_expr(set->arena, member->text, place, set->diags);
    return m->expr != NULL;
}

static bool class_read(tide_descriptions *set, tide_class *made, const tide_json *item, uint32_t at) {
    const char *root = tide_format(set->arena, "/%s", made->home->name.at),
               *place = tide_json_place(set->arena, item, root);
    const tide_json *base = tide_json_at(item, "@extends");
    if (base && base->kind == TIDE_JSON_STRING) made->base = base->text;
    item = tide_module_merged(set, made->description, item, at);
    if (!item || !tide_parse_head(set->arena, item->key, place, &made->name, &made->parameters, &made->parameter_count,
                                  set->diags))
        return false;
    if (item->kind != TIDE_JSON_OBJECT || item->count > MEMBER_LIMIT)
        return tide_description_fails(set, place, "a module is an object of members and functions", NULL);
    made->members = TIDE_NEW(set->arena, tide_member, item->count + 1);
    tide_function **link = &made->methods;
    for (const tide_json *member = item->first; member; member = member->next) {
        bool is_function = member->kind == TIDE_JSON_ARRAY && member->key.length && member->key.at[0] != '@';
        if (!is_function && !read_member(set, made, member, root)) return false;
        if (!is_function) continue;
        *link = function_new(set, made->description, made->home, made, member);
        link = &(*link)->next;
    }
    made->forward = tide_method_find(made, TIDE_TEXT("forward"));
    return true;
}

tide_class *tide_class_find(tide_descriptions *set, tide_description *from, tide_text name) {
    if (!from) from = set->libraries;
    for (tide_class *c = from->classes; c; c = c->next)
        if (tide_text_equal(c->name, name)) return c->is_broken ? NULL : c;
    uint32_t at;
    const tide_entry *entry = tide_module_entry(set, from, name, 0, &at);
    if (!entry) return NULL;
    tide_class *made = TIDE_NEW(set->arena, tide_class, 1);
    made->name = entry->name;
    made->description = from;
    made->home = tide_description_in_order(set, from, at);
    made->next = from->classes;
    from->classes = made;
    made->is_broken = true; /* until it is complete */
    made->is_broken = !class_read(set, made, entry->item, at);
    return made->is_broken ? NULL : made;
}
