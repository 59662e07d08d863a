/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a call key. Tensors, lists and modules are described by their properties and by where they first occur.
 */
#include "memo/call_key.h"

#include <string.h>

static bool add_word(tide_call_key *s, uint64_t value) {
    if (s->mode == TIDE_CALL_KEY_LISTS) return true;
    TIDE_ROOM(s->arena, s->words, s->word_count, s->word_capacity);
    s->words[s->word_count++] = value;
    return true;
}

/* Adds two related words. */
static bool add_word_pair(tide_call_key *s, uint64_t first, uint64_t second) {
    return add_word(s, first) && add_word(s, second);
}

/* Adds bytes as words, the last one padded with zeros. */
static bool bytes(tide_call_key *s, const void *from, size_t size) {
    uint32_t count = TIDE_CALL_KEY_WORDS(size);
    if (s->mode == TIDE_CALL_KEY_LISTS) return true;
    for (uint32_t i = 0; i < count; i++) add_word(s, 0);
    memcpy(s->words + s->word_count - count, from, size);
    return true;
}

static bool pointer(tide_call_key *s, const void *at) {
    return add_word(s, (uint64_t)(uintptr_t)at);
}

static bool walk_value(tide_call_key *s, const tide_value *v, int depth);

/* Whether a weight was in the autocast cache before the call. */
static bool was_cast(const tide_call_key *s, const tide_tensor *t) {
    const tide_machine *m = s->model->m;
    bool is = t->cast != NULL;
    for (uint32_t i = s->cast_count; s->mode == TIDE_CALL_KEY_WRITES && is && i < m->cast_count; i++)
        is = m->casts[i].from != t;
    return is;
}

static bool walk_tensor(tide_call_key *s, tide_tensor *t) {
    uint32_t place = s->tensor_count, node = place;
    if (tide_call_key_has(s, t)) return add_word(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)t->mark << 8);
    if (place == TIDE_CALL_KEY_PLACES) return false;
    TIDE_ROOM(s->arena, s->tensors, s->tensor_count, s->tensor_capacity);
    s->tensors[s->tensor_count++] = t;
    t->mark = place;
    if (!tide_call_key_has_storage(s, t->storage)) t->storage->mark = place;
    if (s->mode == TIDE_CALL_KEY_LISTS) return true;
    for (uint32_t i = 0; t->node && i < place && node == place; i++)
        if (s->tensors[i]->node == t->node) node = i;
    uint64_t is = (uint64_t)t->storage->is_untracked | (uint64_t)was_cast(s, t) << 1 | (uint64_t)(t->node != NULL) << 2;
    return add_word(s, TIDE_CALL_KEY_IS_TENSOR | is << 8 | (uint64_t)t->storage->mark << 16 | (uint64_t)node << 32) &&
           bytes(s, t, TIDE_TENSOR_IS);
}

/* The length of a list before the call. */
static uint32_t count_before(const tide_call_key *s, const tide_list *l) {
    for (uint32_t i = 0; s->before && i < s->before->list_count; i++)
        if (s->before->lists[i] == l) return s->counts[i];
    return l->count;
}

/* The items of a list that nobody reads do not matter. */
static bool walk_list(tide_call_key *s, tide_list *l, int depth) {
    uint32_t count = l->count;
    if (tide_call_key_has_list(s, l)) return add_word(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)l->mark << 8);
    if (s->list_count == TIDE_CALL_KEY_PLACES || depth > CALL_DEPTH) return false;
    TIDE_ROOM(s->arena, s->lists, s->list_count, s->list_capacity);
    l->mark = s->list_count;
    s->lists[s->list_count++] = l;
    if (s->mode == TIDE_CALL_KEY_WRITES) {
        count = count_before(s, l);
        if (!l->is_read) return add_word(s, TIDE_CALL_KEY_LIST_UNREAD);
        add_word(s, TIDE_CALL_KEY_LIST_READ | (uint64_t)count << 8);
    }
    for (uint32_t i = 0; i < count && i < l->count; i++)
        if (!walk_value(s, &l->items[i], depth + 1)) return false;
    return true;
}

static bool walk_module(tide_call_key *s, uint32_t module, int depth) {
    tide_instance *of = &s->model->instances[module];
    if (tide_call_key_has_module(s, module)) return add_word(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)of->mark << 8);
    if (s->module_count == TIDE_CALL_KEY_PLACES || depth > CALL_DEPTH) return false;
    TIDE_ROOM(s->arena, s->modules, s->module_count, s->module_capacity);
    of->mark = s->module_count;
    s->modules[s->module_count++] = module;
    const tide_class *class = of->of;
    if (!add_word_pair(s, (uint64_t)(uintptr_t) class,
                       TIDE_CALL_KEY_IS_MODULE | (uint64_t)of->makes_grad << 8 | (uint64_t)of->scope << 32))
        return false;
    uint64_t read = s->mode == TIDE_CALL_KEY_LISTS ? 0 : class->read;
    uint32_t slots = class->parameter_count + class->member_count;
    for (uint32_t i = 0; i < slots; i++) {
        const tide_value *v = &of->slots[i];
        bool has_identity = v->kind == TIDE_VALUE_TENSOR || v->kind == TIDE_VALUE_LIST || v->kind == TIDE_VALUE_MODULE;
        if (!has_identity && !(read & tide_slot_bit(i))) continue; /* such as the index of a layer */
        if (!walk_value(s, v, depth + 1)) return false;
    }
    return true;
}

static bool walk_value(tide_call_key *s, const tide_value *v, int depth) {
    uint64_t kind = (uint64_t)v->kind | (uint64_t)v->symbol << 8;
    switch (v->kind) {
    case TIDE_VALUE_TENSOR:
        return walk_tensor(s, v->tensor);
    case TIDE_VALUE_LIST:
        return walk_list(s, v->list, depth);
    case TIDE_VALUE_MODULE:
        return walk_module(s, v->module, depth);
    case TIDE_VALUE_NONE:
        return add_word(s, v->kind);
    case TIDE_VALUE_TEXT:
        return add_word_pair(s, kind, (uint64_t)(uintptr_t)v->text.at) && add_word(s, v->text.length);
    case TIDE_VALUE_BOOL:
    case TIDE_VALUE_INT:
    case TIDE_VALUE_FLOAT:
    case TIDE_VALUE_DTYPE:
    case TIDE_VALUE_CONFIG:
        return add_word_pair(s, kind, tide_value_bits(*v));
    }
    return false;
}

static void write_setting_words(tide_call_key *s) {
    for (uint32_t i = 0; i < s->model->setting_count; i++) {
        uint64_t kind, is = tide_call_key_setting(s->model->settings[i].value, &kind);
        add_word_pair(s, kind, is);
    }
}

/* It is compared as words. */
_Static_assert(sizeof(tide_model_state) == sizeof(void *) + sizeof(tide_dtype) + 4 * sizeof(bool),
               "tide_model_state has padding");

static uint64_t digest(uint64_t before, uint64_t word) {
    return (before ^ word) * UINT64_C(0x9e3779b97f4a7c15);
}

uint64_t tide_call_digest(const tide_call_arguments *arguments) {
    uint64_t made = digest(arguments->count, (uint64_t)(uintptr_t)arguments->function);
    for (uint32_t i = 0; i < arguments->count; i++) {
        const tide_value *v = &arguments->positional[i];
        if (v->kind == TIDE_VALUE_TENSOR) made = digest(made, (uint64_t)(uintptr_t)v->tensor->layout);
        if (v->kind == TIDE_VALUE_INT) made = digest(made, (uint64_t)v->integer);
        made = digest(made, v->kind);
    }
    return made;
}

bool tide_call_key_walk(tide_call_key *s, const tide_call_arguments *arguments) {
    tide_machine_state state = tide_machine_state_key(arguments->model->m);
    s->model = arguments->model;
    s->tensor_count = s->list_count = s->module_count = 0;
    if (!pointer(s, arguments->function) || !bytes(s, &state, sizeof state) ||
        !bytes(s, &s->model->state, sizeof s->model->state) ||
        !add_word(s, (uint64_t)arguments->count << 32 | arguments->named_count))
        return false;
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (!pointer(s, arguments->keywords[i].at)) return false;
    for (uint32_t i = 0; i < arguments->count; i++) /* what differs most often comes first */
        if (!walk_value(s, &arguments->positional[i], 0)) return false;
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (!walk_value(s, &arguments->named[i], 0)) return false;
    if (!walk_module(s, arguments->instance, 0)) return false;
    if (s->mode == TIDE_CALL_KEY_WRITES) write_setting_words(s);
    return true;
}

void tide_call_key_drop(tide_call_key *s) {
    if (s->tensors) tide_arena_drop(s->arena, s->tensors);
    if (s->lists) tide_arena_drop(s->arena, s->lists);
    if (s->modules) tide_arena_drop(s->arena, s->modules);
    *s = (tide_call_key){.arena = s->arena};
}
