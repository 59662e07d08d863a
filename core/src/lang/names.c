/* SPDX-License-Identifier: Apache-2.0 */
/* Naming modules: their paths, parts and layers, and finding what is at a path. */
#include <string.h>

#include "lang/interpreter.h"

uint32_t tide_intern(tide_arena *arena, const char ***list, uint32_t *count, uint32_t *capacity, tide_text text) {
    for (uint32_t i = *count; i-- > 0;) /* siblings share it: most often it is the newest */
        if (tide_text_is(text, (*list)[i])) return i;
    if (*count == *capacity) {
        size_t wider = *capacity ? *capacity * 2u : 16u;
        *list = tide_arena_grow(arena, *list, *capacity * sizeof **list, wider * sizeof **list);
        *capacity = (uint32_t)wider;
    }
    (*list)[*count] = tide_text_copy(arena, text);
    return (*count)++;
}

static bool is_all_digits(tide_text text) {
    for (size_t i = 0; i < text.length; i++)
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    return text.length > 0;
}

/* The last module with "@parts" on the path from the root to an instance, inclusive; 0: there is none. */
static uint32_t holder_of_parts(const tide_model *model, uint32_t instance) {
    uint32_t holder = 0;
    for (uint32_t i = instance; i; i = model->instances[i].parent) {
        if (!model->instances[i].of->holds_parts) holder = 0;
        if (!holder && model->instances[i].of->holds_parts) holder = i;
    }
    return holder;
}

/* The index in its list of the module that contains parts, such as a chunk of a pipeline rank in Megatron-Core; empty
 * if it is in no list, or alone in it. */
static tide_text number_of_holder(tide_model *model, uint32_t holder) {
    for (uint32_t i = holder; i; i = model->instances[i].parent) {
        const tide_instance *of = &model->instances[i];
        if (!of->is_item) continue;
        size_t dot = of->name.length;
        while (of->name.at[dot - 1] != '.') dot--;
        const tide_value *list = tide_slot_at(model, of->parent, (tide_text){of->name.at, dot - 1});
        bool is_alone = !list || list->kind != TIDE_VALUE_LIST || list->list->count < 2;
        return is_alone ? TIDE_TEXT("") : (tide_text){of->name.at + dot, of->name.length - dot};
    }
    return TIDE_TEXT("");
}

/* The part is the first component of the path below the container of parts, base models skipped; the layer is what
 * follows up to a number. */
static void place_instance(tide_model *model, uint32_t instance) {
    tide_instance *of = &model->instances[instance];
    uint32_t holder = holder_of_parts(model, instance);
    size_t above = strlen(model->instances[holder].path);
    if (above && holder != instance) above++;
    tide_text path = {of->path + above, strlen(of->path) - above};
    while (tide_text_starts(path, TIDE_TEXT("model.")) || tide_text_starts(path, TIDE_TEXT("base_model."))) {
        size_t skip = path.at[0] == 'm' ? 6 : 11;
        path = (tide_text){path.at + skip, path.length - skip};
    }
    size_t end = 0;
    while (end < path.length && path.at[end] != '.') end++;
    tide_text part = {path.at, end}, rest = {path.at + end, path.length - end};
    if (tide_text_is(part, "model") || tide_text_is(part, "base_model")) part.length = 0;
    of->part = tide_intern(model->m->arena, &model->parts, &model->part_count, &model->part_capacity, part);
    if (rest.length) rest = (tide_text){rest.at + 1, rest.length - 1};
    size_t stop = 0;
    while (stop < rest.length) {
        size_t dot = stop;
        while (dot < rest.length && rest.at[dot] != '.') dot++;
        if (is_all_digits((tide_text){rest.at + stop, dot - stop})) {
            stop = dot;
            break;
        }
        if (dot == rest.length) {
            size_t first = 0; /* without a number: the first component */
            while (first < rest.length && rest.at[first] != '.') first++;
            stop = first;
            break;
        }
        stop = dot + 1;
    }
    tide_text layer = {rest.at, stop};
    tide_text number = number_of_holder(model, holder);
    if (number.length && layer.length) layer = tide_text_of(tide_dotted(model->m->arena, number, layer));
    of->layer = tide_intern(model->m->arena, &model->layers, &model->layer_count, &model->layer_capacity, layer);
}

static void name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name, int depth);

static void name_value(tide_model *model, tide_value v, uint32_t parent, tide_text name, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) name_instance(model, v.module, parent, name, depth);
    if (v.kind != TIDE_VALUE_LIST) return;
    for (uint32_t i = 0; i < v.list->count && depth <= CALL_DEPTH; i++) {
        char digits[TIDE_DIGITS];
        const char *item = tide_dotted(model->m->arena, name, (tide_text){digits, tide_digits(digits, i)});
        name_value(model, v.list->items[i], parent, tide_text_of(item), depth + 1);
    }
}

static void name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name, int depth) {
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH || (parent && *of->path)) return;
    const char *above = model->instances[parent].path;
    of->parent = parent;
    of->name = name;
    size_t digits = name.length;
    while (digits && name.at[digits - 1] != '.') digits--;
    of->is_item = digits && is_all_digits((tide_text){name.at + digits, name.length - digits});
    of->path = parent ? tide_dotted(model->m->arena, tide_text_of(above), name) : "";
    place_instance(model, instance);
    for (uint32_t i = 0; i < of->of->member_count; i++)
        name_value(model, of->slots[of->of->parameter_count + i], instance, of->of->members[i].name, depth + 1);
}

tide_value *tide_slot_at(tide_model *model, uint32_t instance, tide_text path) {
    for (;;) {
        size_t dot = 0;
        while (dot < path.length && path.at[dot] != '.') dot++;
        const tide_instance *of = &model->instances[instance];
        uint32_t slot = tide_attribute_slot(of->of, (tide_text){path.at, dot});
        if (slot == UINT32_MAX) return NULL;
        if (dot == path.length) return &of->slots[slot];
        if (of->slots[slot].kind != TIDE_VALUE_MODULE) return NULL;
        instance = of->slots[slot].module;
        path = (tide_text){path.at + dot + 1, path.length - dot - 1};
    }
}

bool tide_is_below(const tide_model *model, uint32_t instance, uint32_t above) {
    while (instance && instance != above) instance = model->instances[instance].parent;
    return instance == above;
}

void tide_name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name) {
    name_instance(model, instance, parent, name, 0);
}
