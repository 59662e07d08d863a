/* Reading descriptions: JSON to classes, functions and sizes. */
#include "lang/description.h"

#include "base/units.h"

enum { MEMBER_LIMIT = 4096, EXTENDS_LIMIT = 8, FILE_LIMIT = 64 };

void tide_descriptions_init(tide_descriptions *set, tide_arena *arena, tide_diagnostics *diags, tide_find_source find,
                            void *user) {
    *set = (tide_descriptions){.arena = arena, .diags = diags, .find = find, .user = user, .statement_count = 1};
    set->last = &set->first;
}

static bool complain(tide_descriptions *set, const char *place, const char *message) {
    return tide_error(set->diags, TIDE_ERR_DESCRIPTION, place, message, "see 'How to add a model' in the README");
}

/* Entered in the table of statements, so that reports can name their line. */
static void list_statements(tide_descriptions *set, tide_statement *s) {
    for (; s; s = s->next) {
        while (set->statement_capacity <= s->number) {
            size_t old = set->statement_capacity, wider = old ? old * 2 : 256;
            set->statements = tide_arena_grow(set->arena, set->statements, old * sizeof *set->statements,
                                              wider * sizeof *set->statements);
            set->statement_capacity = (uint32_t)wider;
        }
        set->statements[s->number] = s;
        list_statements(set, s->body);
        list_statements(set, s->otherwise);
    }
}

/* A key of "modules", of "functions" or of a module without its parameters. */
static tide_text head_name(tide_text key) {
    size_t length = 0;
    while (length < key.length && key.at[length] != '(') length++;
    return (tide_text){key.at, length};
}

static tide_function *function_new(tide_descriptions *set, tide_description *description, tide_class *of,
                                   const tide_json *item) {
    tide_function *function = TIDE_NEW(set->arena, tide_function, 1);
    *function = (tide_function){.name = head_name(item->key), .item = item, .of = of, .description = description};
    return function;
}

bool tide_function_read(tide_descriptions *set, tide_function *f) {
    const tide_json *item = f->item;
    if (!item) return true;
    f->item = NULL;
    const char *root = tide_format(set->arena, "/%s", f->description->name.at),
               *place = tide_json_place(set->arena, item, root);
    if (!tide_parse_head(set->arena, item->key, place, &f->name, &f->parameters, &f->parameter_count, set->diags))
        return false;
    if (!tide_parse_block(set->arena, item, root, &set->statement_count, &f->body, set->diags)) return false;
    list_statements(set, f->body);
    return true;
}

static bool read_attribute(tide_descriptions *set, tide_class *made, const tide_json *item, const char *place) {
    if (tide_text_is(item->key, "@checkpoint") && item->kind == TIDE_JSON_BOOL) {
        made->is_checkpointed = item->is_true;
        return true;
    }
    if (tide_text_is(item->key, "@checkpoint") && item->kind == TIDE_JSON_STRING &&
        tide_text_is(item->text, "non_reentrant")) {
        made->is_checkpointed = made->is_never_reentrant = true;
        return true;
    }
    if (tide_text_is(item->key, "@zero_leaf") && item->kind == TIDE_JSON_BOOL) {
        made->is_zero_leaf = item->is_true;
        return true;
    }
    if (tide_text_is(item->key, "@generates") && item->kind == TIDE_JSON_BOOL) {
        made->never_generates = !item->is_true;
        return true;
    }
    if (tide_text_is(item->key, "@loss_apart") && item->kind == TIDE_JSON_BOOL) {
        made->loss_is_apart = item->is_true;
        return true;
    }
    if (tide_text_is(item->key, "@input_embeddings") && item->kind == TIDE_JSON_STRING) {
        made->input_embeddings = item->text;
        return true;
    }
    if (tide_text_is(item->key, "@inputs") && item->kind == TIDE_JSON_OBJECT) {
        made->inputs = item;
        return true;
    }
    if (tide_text_is(item->key, "@output_embeddings") && item->kind == TIDE_JSON_STRING) {
        made->output_embeddings = item->text;
        return true;
    }
    if (tide_text_is(item->key, "@delegate") && item->kind == TIDE_JSON_STRING) {
        made->delegate = item->text;
        return true;
    }
    if (tide_text_is(item->key, "@tie") && item->kind == TIDE_JSON_OBJECT) {
        const tide_json *condition = tide_json_at(item, "if"), *pairs = tide_json_at(item, "names");
        if (condition && condition->kind == TIDE_JSON_STRING)
            made->tie_condition = tide_parse_expr(set->arena, condition->text, place, set->diags);
        if (!pairs || pairs->kind != TIDE_JSON_OBJECT)
            return complain(set, place, "\"@tie\" needs \"names\": {\"a.weight\": \"b.weight\"}");
        tide_statement **link = &made->ties;
        for (const tide_json *pair = pairs->first; pair; pair = pair->next) {
            if (pair->kind != TIDE_JSON_STRING) return complain(set, place, "a tie names a parameter");
            tide_statement *tie = TIDE_NEW(set->arena, tide_statement, 1);
            tie->targets = TIDE_NEW(set->arena, tide_text, 2);
            tie->targets[0] = pair->key;
            tie->targets[1] = pair->text;
            *link = tie;
            link = &tie->next;
        }
        return true;
    }
    return complain(
        set, place,
        "known attributes are \"@extends\": \"Module\", \"@checkpoint\": true, \"@input_embeddings\": \"name\", "
        "\"@output_embeddings\": \"name\", \"@delegate\": \"name\", \"@inputs\": {...}, \"@generates\": false, "
        "\"@loss_apart\": true, \"@zero_leaf\": true and \"@tie\": {\"if\": ..., \"names\": {...}}");
}

static const tide_json *module_in(const tide_description *d, tide_text name, const tide_json *besides) {
    const tide_json *modules = tide_json_at(d->json, "modules");
    for (const tide_json *item = modules ? modules->first : NULL; item; item = item->next)
        if (item != besides && tide_text_equal(head_name(item->key), name)) return item;
    return NULL;
}

/* The module that `item` of *owner extends: in *owner, in those that this one extends, or in the library; *owner
 * becomes its. */
static const tide_json *extended_module(const tide_descriptions *set, const tide_description **owner, tide_text name,
                                        const tide_json *item) {
    const tide_json *found = NULL;
    for (const tide_description *d = *owner; d && !found; d = d->parent)
        if ((found = module_in(d, name, item))) *owner = d;
    for (const tide_description *d = set->first; d && !found; d = d->next)
        if (tide_text_starts(d->name, TIDE_TEXT("library/")) && (found = module_in(d, name, item))) *owner = d;
    return found;
}

/* "@extends": "Other": what stands in Other stands here too, in its order; what is given anew takes its place, and null
 * takes it away. Parameters are those of Other unless this module names its own. NULL after an error. */
static const tide_json *extended(tide_descriptions *set, const tide_description *owner, const tide_json *item,
                                 const char *place, int depth) {
    const tide_json *name = tide_json_at(item, "@extends");
    if (!name) return item;
    const tide_json *other = name->kind == TIDE_JSON_STRING ? extended_module(set, &owner, name->text, item) : NULL;
    if (other && depth < EXTENDS_LIMIT) other = extended(set, owner, other, place, depth + 1);
    if (!other || other->kind != TIDE_JSON_OBJECT) {
        complain(set, place,
                 "\"@extends\" names a module of this description, of one that it extends, or of the library");
        return NULL;
    }
    tide_json *made = tide_json_new(set->arena, TIDE_JSON_OBJECT);
    made->parent = item->parent;
    made->key = item->key;
    if (head_name(item->key).length == item->key.length)
        made->key =
            tide_text_of(tide_format(set->arena, "%s%s", item->key.at, other->key.at + head_name(other->key).length));
    const tide_json *sides[2] = {other, item};
    for (int side = 0; side < 2; side++)
        for (const tide_json *member = sides[side]->first; member; member = member->next) {
            const tide_json *anew = NULL, *old = NULL;
            tide_text key = head_name(member->key);
            for (const tide_json *m = side ? other->first : item->first; m; m = m->next)
                if (tide_text_equal(head_name(m->key), key)) *(side ? &old : &anew) = m;
            if (old || tide_text_is(key, "@extends")) continue;
            const tide_json *taken = anew ? anew : member;
            if (taken->kind != TIDE_JSON_NULL)
                tide_json_put(set->arena, made, taken->key, tide_json_clone(set->arena, taken));
        }
    return made;
}

/* Reads a module when it is first looked for. */
static bool class_read(tide_descriptions *set, tide_class *made) {
    const tide_json *item = made->item;
    if (!item) return true;
    made->item = NULL;
    const char *root = tide_format(set->arena, "/%s", made->description->name.at),
               *place = tide_json_place(set->arena, item, root);
    const tide_json *base = tide_json_at(item, "@extends");
    if (base && base->kind == TIDE_JSON_STRING) made->base = base->text;
    item = extended(set, made->description, item, place, 0);
    if (!item || !tide_parse_head(set->arena, item->key, place, &made->name, &made->parameters, &made->parameter_count,
                                  set->diags))
        return false;
    if (item->kind != TIDE_JSON_OBJECT || item->count > MEMBER_LIMIT)
        return complain(set, place, "a module is an object of members and functions");
    made->members = TIDE_NEW(set->arena, tide_member, item->count + 1);
    tide_function **link = &made->methods;
    for (const tide_json *member = item->first; member; member = member->next) {
        if (member->kind == TIDE_JSON_ARRAY && !tide_text_starts(member->key, TIDE_TEXT("@"))) {
            *link = function_new(set, made->description, made, member);
            link = &(*link)->next;
            continue;
        }
        const char *at = tide_json_place(set->arena, member, root);
        if (tide_text_starts(member->key, TIDE_TEXT("@"))) {
            if (!read_attribute(set, made, member, at)) return false;
        } else if (member->kind == TIDE_JSON_STRING) {
            tide_member *m = &made->members[made->member_count++];
            m->name = member->key;
            m->expr = tide_parse_expr(set->arena, member->text, at, set->diags);
            if (!m->expr) return false;
        } else {
            return complain(set, at, "a member is an expression in quotes, a function an array of statements");
        }
    }
    made->forward = tide_method_find(made, TIDE_TEXT("forward"));
    return true;
}

bool tide_description_read(tide_descriptions *set, const tide_description *d) {
    for (tide_function *f = d->functions; f; f = f->next)
        if (!tide_function_read(set, f)) return false;
    for (tide_class *c = d->classes; c; c = c->next) {
        if (!class_read(set, c)) return false;
        for (tide_function *f = c->methods; f; f = f->next)
            if (!tide_function_read(set, f)) return false;
    }
    return true;
}

static bool read_parts(tide_descriptions *set, tide_description *d) {
    const char *root = tide_format(set->arena, "/%s", d->name.at);
    tide_size **size_link = &d->sizes;
    const tide_json *sizes = tide_json_at(d->json, "sizes");
    for (const tide_json *item = sizes ? sizes->first : NULL; item; item = item->next) {
        const char *at = tide_json_place(set->arena, item, root);
        if (item->kind != TIDE_JSON_STRING) return complain(set, at, "a size is an expression in quotes");
        tide_size *size = TIDE_NEW(set->arena, tide_size, 1);
        size->name = item->key;
        size->expr = tide_parse_expr(set->arena, item->text, at, set->diags);
        if (!size->expr) return false;
        *size_link = size;
        size_link = &size->next;
    }
    tide_function **function_link = &d->functions;
    const tide_json *functions = tide_json_at(d->json, "functions");
    for (const tide_json *item = functions ? functions->first : NULL; item; item = item->next) {
        *function_link = function_new(set, d, NULL, item);
        function_link = &(*function_link)->next;
    }
    tide_class **class_link = &d->classes;
    const tide_json *modules = tide_json_at(d->json, "modules");
    for (const tide_json *item = modules ? modules->first : NULL; item; item = item->next) {
        *class_link = TIDE_NEW(set->arena, tide_class, 1);
        **class_link = (tide_class){.name = head_name(item->key), .item = item, .description = d};
        class_link = &(*class_link)->next;
    }
    return true;
}

static tide_description *load(tide_descriptions *set, tide_text name, int depth) {
    for (tide_description *d = set->first; d; d = d->next)
        if (tide_text_equal(d->name, name)) return d;
    const char *place = tide_format(set->arena, "/%.*s", (int)(name.length < 80 ? name.length : 80), name.at);
    if (depth > EXTENDS_LIMIT || set->count++ > FILE_LIMIT) {
        complain(set, place, "too many descriptions extend one another");
        return NULL;
    }
    tide_source source = set->find(set->user, name);
    if (!source.text) {
        complain(set, place, "no description of this name");
        return NULL;
    }
    tide_json *json = tide_json_parse(set->arena, (tide_text){source.text, source.length}, place, set->diags);
    if (!json) return NULL;
    tide_description *d = TIDE_NEW(set->arena, tide_description, 1);
    d->name = (tide_text){tide_text_copy(set->arena, name), name.length};
    d->json = json;
    static const char *const keys[] = {"tidemark",    "architecture",  "note",     "extends",   "model_type",
                                       "roots",       "sizes",         "checks",   "functions", "modules",
                                       "inputs",      "titles",        "adapters", "stand_ins", "unread",
                                       "ia3_targets", "fused_experts", "notes",    "attention"};
    for (const tide_json *item = json->first; item; item = item->next) {
        bool is_known = false;
        for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) is_known = is_known || tide_text_is(item->key, keys[i]);
        if (!is_known) {
            const char *near = tide_nearest(item->key, keys, TIDE_COUNT_OF(keys));
            complain(set, tide_json_place(set->arena, item, place),
                     near ? tide_format(set->arena, "no such key; did you mean \"%s\"?", near) : "no such key");
            return NULL;
        }
    }
    const tide_json *extends = tide_json_at(json, "extends");
    if (extends && extends->kind == TIDE_JSON_STRING) {
        d->parent = load(set, extends->text, depth + 1);
        if (!d->parent) return NULL;
    }
    *set->last = d;
    set->last = &d->next;
    if (!read_parts(set, d) || (source.is_given && !tide_description_read(set, d))) return NULL;
    return d;
}

tide_description *tide_description_load(tide_descriptions *set, tide_text name) {
    return load(set, name, 0);
}

static bool is_library(const tide_description *d) {
    return tide_text_starts(d->name, TIDE_TEXT("library/"));
}

tide_class *tide_class_find(tide_descriptions *set, const tide_description *from, tide_text name) {
    for (const tide_description *d = from; d; d = d->parent)
        for (tide_class *c = d->classes; c; c = c->next)
            if (tide_text_equal(c->name, name)) return class_read(set, c) ? c : NULL;
    for (const tide_description *d = set->first; d; d = d->next)
        if (is_library(d))
            for (tide_class *c = d->classes; c; c = c->next)
                if (tide_text_equal(c->name, name)) return class_read(set, c) ? c : NULL;
    return NULL;
}

tide_function *tide_function_find(tide_descriptions *set, const tide_description *from, tide_text name) {
    for (const tide_description *d = from; d; d = d->parent)
        for (tide_function *f = d->functions; f; f = f->next)
            if (tide_text_equal(f->name, name)) return tide_function_read(set, f) ? f : NULL;
    for (const tide_description *d = set->first; d; d = d->next)
        if (is_library(d))
            for (tide_function *f = d->functions; f; f = f->next)
                if (tide_text_equal(f->name, name)) return tide_function_read(set, f) ? f : NULL;
    return NULL;
}

tide_function *tide_method_find(const tide_class *of, tide_text name) {
    for (tide_function *f = of->methods; f; f = f->next)
        if (tide_text_equal(f->name, name)) return f;
    return NULL;
}

const tide_size *tide_size_find(const tide_description *from, tide_text name) {
    for (const tide_description *d = from; d; d = d->parent)
        for (const tide_size *s = d->sizes; s; s = s->next)
            if (tide_text_equal(s->name, name)) return s;
    return NULL;
}

const tide_json *tide_description_at(const tide_description *from, const char *key) {
    for (const tide_description *d = from; d; d = d->parent) {
        const tide_json *found = tide_json_at(d->json, key);
        if (found) return found;
    }
    return NULL;
}
