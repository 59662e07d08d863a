/* SPDX-License-Identifier: Apache-2.0 */
/* Names of modules: their paths, parts and layers, and what is at a path. */
#include "lang/interpreter.h"

uint32_t tide_intern(tide_arena *arena, const char ***list, uint32_t *count, uint32_t *capacity, tide_text text) {
    for (uint32_t i = *count; i-- > 0;) /* siblings share theirs: most often it is the newest */
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

/* How many characters of a path lead to a chunk of a pipeline's rank and to its decoder, as Megatron-Core names them
 * (models/gpt/gpt_model.py); `chunk` is its number. 0: none do. */
static size_t chunk_prefix(tide_text path, tide_text *chunk) {
    static const char chunks[] = "chunks.", decoder[] = "decoder";
    size_t end = sizeof chunks - 1;
    if (!tide_text_starts(path, tide_text_of(chunks))) return 0;
    while (end < path.length && path.at[end] != '.') end++;
    *chunk = (tide_text){path.at + sizeof chunks - 1, end - (sizeof chunks - 1)};
    if (end < path.length) end++;
    tide_text rest = {path.at + end, path.length - end};
    if (!tide_text_starts(rest, tide_text_of(decoder))) return end;
    if (rest.length == sizeof decoder - 1) return path.length;
    return rest.at[sizeof decoder - 1] == '.' ? end + sizeof decoder : end;
}

/* Whether the rank of a pipeline has several chunks: then a layer's name says of which it is. */
static bool has_chunks(const tide_model *model) {
    const tide_instance *root = &model->instances[model->root];
    uint32_t slot = root->of ? tide_attribute_slot(root->of, TIDE_TEXT("chunks")) : UINT32_MAX;
    return slot != UINT32_MAX && root->slots[slot].kind == TIDE_VALUE_LIST && root->slots[slot].list->count > 1;
}

/* The part is the first component of the path, base models left out; the layer is what follows up to a number. */
static void place_instance(tide_model *model, tide_instance *of) {
    tide_text path = tide_text_of(of->path), chunk = TIDE_TEXT("");
    size_t to_chunk = chunk_prefix(path, &chunk);
    path = (tide_text){path.at + to_chunk, path.length - to_chunk};
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
            size_t first = 0; /* no number: the first component */
            while (first < rest.length && rest.at[first] != '.') first++;
            stop = first;
            break;
        }
        stop = dot + 1;
    }
    tide_text layer = {rest.at, stop};
    if (chunk.length && layer.length && has_chunks(model))
        layer = tide_text_of(tide_dotted(model->m->arena, chunk, layer));
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
    place_instance(model, of);
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
