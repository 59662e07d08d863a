/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a call: its function, arguments and module as a row of words that are equal where the call does the same.
 */
#ifndef TIDE_SCENE_H
#define TIDE_SCENE_H

#include "lang/lang.h"

typedef enum tide_call_key_mode {
    TIDE_CALL_KEY_LISTS,   /* lists what is there, without words */
    TIDE_CALL_KEY_WRITES,  /* writes the words */
    TIDE_CALL_KEY_COMPARES /* with words that were written */
} tide_call_key_mode;

/* Tensors, lists and modules in the order in which they are met, each once; the mark of each is its place here. */
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
    uint32_t word_count, word_capacity, at;
    const struct tide_call_key *before; /* of writing: the lists as they were, */
    const uint32_t *counts;             /* and how long each was; */
    uint32_t cast_count;                /* and the entries of the autocast cache */
} tide_call_key;

/* Walks over what a call finds. False where it differs from the words, or is more than is looked at. */
bool tide_call_key_walk(tide_call_key *key, const tide_call_arguments *arguments);

/* Of the function and what is quickly seen of its arguments: equal for calls of equal keys. */
uint64_t tide_call_digest(const tide_call_arguments *arguments);

void tide_call_key_drop(tide_call_key *key);

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
