/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a call with a known key, the most frequent work of a memo. Mirrors call_key.c word by word. */
#include <string.h>

#include "base/rounding.h"
#include "memo/call_key.h"

static inline bool next_is(tide_call_key *s, uint64_t value) {
    return s->at < s->word_count && s->words[s->at++] == value;
}

static inline bool next_two_are(tide_call_key *s, uint64_t first, uint64_t second) {
    const uint64_t *known = s->words + s->at;
    s->at += 2;
    return s->at <= s->word_count && known[0] == first && known[1] == second;
}

static bool next_bytes_are(tide_call_key *s, const void *from, size_t size) {
    uint32_t at = s->at;
    s->at += TIDE_CALL_KEY_WORDS(size);
    return s->at <= s->word_count && memcmp(s->words + at, from, size) == 0;
}

static bool is_same_tensor(tide_call_key *s, tide_tensor *t) {
    uint32_t place = s->tensor_count, node = place;
    if (tide_call_key_has(s, t)) return next_is(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)t->mark << 8);
    if (place == TIDE_CALL_KEY_PLACES) return false;
    TIDE_ROOM(s->arena, s->tensors, s->tensor_count, s->tensor_capacity);
    s->tensors[s->tensor_count++] = t;
    t->mark = place;
    tide_storage *storage = t->storage;
    if (!tide_call_key_has_storage(s, storage)) storage->mark = place;
    for (uint32_t i = 0; t->node && i < place && node == place; i++)
        if (s->tensors[i]->node == t->node) node = i;
    uint64_t is = (uint64_t)storage->is_untracked | (uint64_t)(t->cast != NULL) << 1 | (uint64_t)(t->node != NULL) << 2;
    uint64_t words[TIDE_CALL_KEY_WORDS(TIDE_TENSOR_IS)] = {0};
    const uint64_t *known = s->words + s->at + 1;
    if (!next_is(s, TIDE_CALL_KEY_IS_TENSOR | is << 8 | (uint64_t)storage->mark << 16 | (uint64_t)node << 32) ||
        s->at + TIDE_COUNT_OF(words) > s->word_count)
        return false;
    memcpy(words, t, TIDE_TENSOR_IS);
    s->at += TIDE_COUNT_OF(words);
    uint64_t differs = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(words); i++) differs |= words[i] ^ known[i];
    return !differs;
}

static bool is_same_value(tide_call_key *s, const tide_value *v, int depth);

static bool is_same_list(tide_call_key *s, tide_list *l, int depth) {
    if (tide_call_key_has_list(s, l)) return next_is(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)l->mark << 8);
    if (s->list_count == TIDE_CALL_KEY_PLACES || depth > CALL_DEPTH || s->at >= s->word_count) return false;
    TIDE_ROOM(s->arena, s->lists, s->list_count, s->list_capacity);
    l->mark = s->list_count;
    s->lists[s->list_count++] = l;
    uint64_t known = s->words[s->at++];
    if (known == TIDE_CALL_KEY_LIST_UNREAD) return true;
    if (known != (TIDE_CALL_KEY_LIST_READ | (uint64_t)l->count << 8)) return false;
    l->is_read = true;
    for (uint32_t i = 0; i < l->count; i++)
        if (!is_same_value(s, &l->items[i], depth + 1)) return false;
    return true;
}

static bool is_same_module(tide_call_key *s, uint32_t module, int depth) {
    tide_instance *of = &s->model->instances[module];
    if (tide_call_key_has_module(s, module)) return next_is(s, TIDE_CALL_KEY_MET_BEFORE | (uint64_t)of->mark << 8);
    if (s->module_count == TIDE_CALL_KEY_PLACES || depth > CALL_DEPTH) return false;
    TIDE_ROOM(s->arena, s->modules, s->module_count, s->module_capacity);
    of->mark = s->module_count;
    s->modules[s->module_count++] = module;
    const tide_class *class = of->of;
    if (!next_two_are(s, (uint64_t)(uintptr_t) class,
                      TIDE_CALL_KEY_IS_MODULE | (uint64_t)of->makes_grad << 8 | (uint64_t)of->scope << 32))
        return false;
    uint64_t read = class->read;
    const tide_value *v = of->slots, *end = v + class->parameter_count + class->member_count;
    for (uint32_t i = 0; v < end; v++, i++) {
        bool is_same;
        if (v->kind == TIDE_VALUE_TENSOR)
            is_same = is_same_tensor(s, v->tensor);
        else if (v->kind == TIDE_VALUE_MODULE)
            is_same = is_same_module(s, v->module, depth + 2);
        else
            is_same = (v->kind != TIDE_VALUE_LIST && !(read & tide_slot_bit(i))) || is_same_value(s, v, depth + 1);
        if (!is_same) return false;
    }
    return true;
}

static bool is_same_value(tide_call_key *s, const tide_value *v, int depth) {
    uint64_t kind = (uint64_t)v->kind | (uint64_t)v->symbol << 8;
    switch (v->kind) {
    case TIDE_VALUE_TENSOR:
        return is_same_tensor(s, v->tensor);
    case TIDE_VALUE_LIST:
        return is_same_list(s, v->list, depth);
    case TIDE_VALUE_MODULE:
        return is_same_module(s, v->module, depth);
    case TIDE_VALUE_NONE:
        return next_is(s, v->kind);
    case TIDE_VALUE_TEXT:
        return next_two_are(s, kind, (uint64_t)(uintptr_t)v->text.at) && next_is(s, v->text.length);
    case TIDE_VALUE_BOOL:
    case TIDE_VALUE_INT:
    case TIDE_VALUE_FLOAT:
    case TIDE_VALUE_DTYPE:
    case TIDE_VALUE_CONFIG:
        return next_two_are(s, kind, tide_value_bits(*v));
    }
    return false;
}

static bool are_same_settings(tide_call_key *s) {
    for (uint32_t i = 0; i < s->model->setting_count; i++) {
        uint64_t kind, is = tide_call_key_setting(s->model->settings[i].value, &kind);
        if (!next_two_are(s, kind, is)) return false;
    }
    return true;
}

bool tide_call_key_equals(tide_call_key *s, const tide_call_arguments *arguments, bool knows_settings) {
    tide_machine_state state = tide_machine_state_key(arguments->model->m);
    s->model = arguments->model;
    s->tensor_count = s->list_count = s->module_count = s->at = 0;
    if (!next_is(s, (uint64_t)(uintptr_t)arguments->function) || !next_bytes_are(s, &state, sizeof state) ||
        !next_bytes_are(s, &s->model->state, sizeof s->model->state) ||
        !next_is(s, (uint64_t)arguments->count << 32 | arguments->named_count))
        return false;
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (!next_is(s, (uint64_t)(uintptr_t)arguments->keywords[i].at)) return false;
    for (uint32_t i = 0; i < arguments->count; i++)
        if (!is_same_value(s, &arguments->positional[i], 0)) return false;
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (!is_same_value(s, &arguments->named[i], 0)) return false;
    if (!is_same_module(s, arguments->instance, 0)) return false;
    if (knows_settings) return s->at + 2 * s->model->setting_count == s->word_count;
    return are_same_settings(s) && s->at == s->word_count;
}
