/* SPDX-License-Identifier: Apache-2.0 */
/* A machine for pickles of plain data: dicts, lists, tuples, numbers and texts.
 *
 * Pickle is a language for a machine with a stack, and can call any function. This machine knows plain data alone; an
 * opcode that names or calls something ends the reading. No tree is built: a dict is understood when its items are set,
 * and forgotten. Containers have no contents here, so a reference to one, cyclic or not, costs nothing. */
#ifndef TIDE_TRACE_PICKLE_H
#define TIDE_TRACE_PICKLE_H

#include "base/text.h"

typedef enum pickle_kind {
    PICKLE_OTHER, /* nothing that matters */
    PICKLE_INT,
    PICKLE_TEXT, /* id: a name */
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_TUPLE, /* number: of its integers, together */
    PICKLE_MARK,
    PICKLE_KINDS /* from here on: what the hooks make of dicts and lists */
} pickle_kind;

typedef struct pickle_value {
    uint32_t kind, id;
    uint64_t number; /* of a list or dict: its place in the memo, plus one */
} pickle_value;

enum {
    PICKLE_VALUES = 1 << 17,
    PICKLE_MARKS = 1 << 10,
    PICKLE_LOW = 1 << 12,
    PICKLE_TEXT_LIMIT = 1 << 12, /* bytes of a text that is kept */
    PICKLE_TEXTS = 1 << 20,
    PICKLE_VALUE_BYTES = 512 << 10 /* of one value */
};

typedef struct pickle_memo_entry {
    uint32_t key, kind, id; /* key: plus one; 0: empty */
} pickle_memo_entry;

/* What is done with what the machine reads. `state` is the pickle's. Values from `from` to the top are the items. */
typedef struct tide_pickle tide_pickle;
typedef struct tide_pickle_hooks {
    void (*text)(tide_pickle *p, uint32_t id);                            /* a text comes onto the stack */
    void (*list)(tide_pickle *p);                                         /* so does an empty list */
    void (*set_items)(tide_pickle *p, pickle_value *dict, uint32_t from); /* keys and values in turn */
    void (*append_items)(tide_pickle *p, pickle_value *list, uint32_t from);
} tide_pickle_hooks;

struct tide_pickle {
    tide_arena *arena;
    tide_names *names;
    uint32_t first_names; /* of `names`, which are always kept in the memo */
    const tide_pickle_hooks *hooks;
    void *state;
    pickle_value *values;
    uint32_t count, capacity;
    uint32_t marks[PICKLE_MARKS], mark_count;
    bool has_stopped;

    /* Note [The memo]
     * A pickle may refer back to every text and container in it. Kept are texts that were not seen before, and what
     * hooks put there to stay. Of the others (texts that are repeated) the latest are. What cannot be found is
     * PICKLE_OTHER. */
    pickle_memo_entry *memo;
    uint32_t memo_count, memo_capacity;
    pickle_memo_entry low[PICKLE_LOW]; /* the first places: keys and most frames */
    pickle_memo_entry *recent;
    uint64_t memo_next;
    unsigned char by_letter[256]; /* index into opcodes, plus one */
};

/* *p is zero but for arena, names, first_names, hooks and state. */
void tide_pickle_init(tide_pickle *p);
/* Runs the opcode at `at`, and returns its bytes; 0: more are needed, or *error says what is wrong. */
size_t tide_pickle_step(tide_pickle *p, const unsigned char *at, size_t length, const char **error);
/* Puts a value where the memo has the container that it is made of. */
void tide_pickle_keep(tide_pickle *p, uint64_t key, const pickle_value *v, bool is_kept);

#endif
