/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a call: words computed from its function, arguments and module. Calls with equal keys do the same. */
#ifndef TIDE_MEMO_CALL_KEY_H
#define TIDE_MEMO_CALL_KEY_H

#include "lang/lang.h"

typedef enum tide_call_key_mode {
    TIDE_CALL_KEY_LISTS, /* only lists the objects */
    TIDE_CALL_KEY_WRITES /* also writes the words */
} tide_call_key_mode;

enum { TIDE_CALL_KEY_PLACES = 4096 }; /* less than 2^16: two fit in a word */

/* The lowest byte of a word for a value that has an identity. */
enum {
    TIDE_CALL_KEY_MET_BEFORE = 0x80,
    TIDE_CALL_KEY_LIST_UNREAD,
    TIDE_CALL_KEY_LIST_READ,
    TIDE_CALL_KEY_IS_TENSOR,
    TIDE_CALL_KEY_IS_MODULE
};

/* The number of words for so many bytes. */
#define TIDE_CALL_KEY_WORDS(size) ((uint32_t)(((size) + sizeof(uint64_t) - 1) / sizeof(uint64_t)))

/* Tensors, lists and modules in order of first occurrence; the mark of each is its index here. */
typedef struct tide_call_key {
    tide_arena *arena;
    tide_call_key_mode mode;
    tide_model *model;
    tide_tensor **tensors;
    uint32_t tensor_count, tensor_capacity;
    tide_list **lists;
    uint32_t list_count, list_capacity;
    uint32_t *modules;
    uint32_t module_count, module_capacity;
    uint64_t *words;
    uint32_t word_count, word_capacity;
    uint32_t at;                        /* while comparing: the next word */
    const struct tide_call_key *before; /* while writing: the lists as they were, */
    const uint32_t *counts;             /* their lengths; */
    uint32_t cast_count;                /* and the entries of the autocast cache */
} tide_call_key;

/* Visits everything that a call can read. False if that is more than a key can hold. */
bool tide_call_key_walk(tide_call_key *key, const tide_call_arguments *arguments);

/* Whether a call has this key; lists its objects. Settings, which come last, are not compared if they are known to be
 * equal. (call_key_equal.c) */
bool tide_call_key_equals(tide_call_key *key, const tide_call_arguments *arguments, bool knows_settings);

/* A digest of the function and of simple properties of its arguments: equal for calls with equal keys. */
uint64_t tide_call_digest(const tide_call_arguments *arguments);

void tide_call_key_drop(tide_call_key *key);

/* The two words for the value of a setting. A value without identity is described by its kind only. */
static inline uint64_t tide_call_key_setting(tide_value v, uint64_t *kind) {
    bool is_plain = v.kind < TIDE_VALUE_TENSOR && v.kind != TIDE_VALUE_NONE, is_text = v.kind == TIDE_VALUE_TEXT;
    *kind = (uint64_t)v.kind | (is_plain && !is_text ? (uint64_t)v.symbol << 8 : 0);
    if (is_text) *kind |= (uint64_t)v.text.length << 8;
    return !is_plain ? 0 : is_text ? (uint64_t)(uintptr_t)v.text.at : tide_value_bits(v);
}

static inline bool tide_call_key_has(const tide_call_key *s, const tide_tensor *t) {
    return t->mark < s->tensor_count && s->tensors[t->mark] == t;
}

static inline bool tide_call_key_has_storage(const tide_call_key *s, const tide_storage *g) {
    return g->mark < s->tensor_count && s->tensors[g->mark]->storage == g;
}

static inline bool tide_call_key_has_list(const tide_call_key *s, const tide_list *l) {
    return l->mark < s->list_count && s->lists[l->mark] == l;
}

static inline bool tide_call_key_has_module(const tide_call_key *s, uint32_t module) {
    uint32_t mark = s->model->instances[module].mark;
    return mark < s->module_count && s->modules[mark] == module;
}

#endif
