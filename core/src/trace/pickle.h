/* SPDX-License-Identifier: Apache-2.0 */
/* A machine for pickles of plain data: dicts, lists, tuples, numbers and texts.
 *
 * Pickle is a language for a stack machine, and can call any function. This machine only supports plain data; an opcode
 * that imports or calls something ends the reading. No tree is built: a dict is interpreted when its items are set, and
 * then forgotten. Containers have no contents here, so a reference to one, cyclic or not, costs nothing. */
#ifndef TIDE_TRACE_PICKLE_H
#define TIDE_TRACE_PICKLE_H

#include "base/text.h"

typedef enum pickle_kind {
    PICKLE_OTHER, /* nothing of interest */
    PICKLE_INT,
    PICKLE_TEXT, /* id: a name */
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_TUPLE, /* number: its integers combined */
    PICKLE_MARK,
    PICKLE_KINDS /* further kinds are defined by the hooks for dicts and lists */
} pickle_kind;

typedef struct pickle_value {
    uint32_t kind, id;
    uint64_t number; /* of a list or dict: its index in the memo plus one */
} pickle_value;

enum {
    PICKLE_VALUES = 1 << 17,
    PICKLE_MARKS = 1 << 10,
    PICKLE_LOW = 1 << 12,
    PICKLE_TEXT_LIMIT = 1 << 12, /* longest text that is kept, in bytes */
    PICKLE_TEXTS = 1 << 20,
    PICKLE_VALUE_BYTES = 512 << 10 /* longest single value */
};

typedef struct pickle_memo_entry {
    uint32_t key, kind, id; /* key plus one; 0: empty */
} pickle_memo_entry;

/* Callbacks for what the machine reads. `state` is the pickle's. Items are the values from `from` to the top of the
 * stack. */
typedef struct tide_pickle tide_pickle;
typedef struct tide_pickle_hooks {
    void (*text)(tide_pickle *p, uint32_t id);                            /* a text was pushed */
    void (*list)(tide_pickle *p);                                         /* an empty list was pushed */
    void (*set_items)(tide_pickle *p, pickle_value *dict, uint32_t from); /* keys and values in turn */
    void (*append_items)(tide_pickle *p, pickle_value *list, uint32_t from);
} tide_pickle_hooks;

struct tide_pickle {
    tide_arena *arena;
    tide_names *names;
    uint32_t first_names; /* entries of `names` that always stay in the memo */
    const tide_pickle_hooks *hooks;
    void *state;
    pickle_value *values;
    uint32_t count, capacity;
    uint32_t marks[PICKLE_MARKS], mark_count;
    bool has_stopped;

    /* Note [The memo] A pickle may refer back to every text and container in it. Texts that are seen for the first time
     * are kept, and what hooks put there to stay. Of the others (repeated texts) only the latest are kept. A reference
     * that cannot be resolved is PICKLE_OTHER. */
    pickle_memo_entry *memo;
    uint32_t memo_count, memo_capacity;
    pickle_memo_entry low[PICKLE_LOW]; /* the first entries: keys and most frames */
    pickle_memo_entry *recent;
    uint64_t memo_next;
    unsigned char by_letter[256]; /* index into opcodes plus one */
};

/* *p is zero-initialised, except for arena, names, first_names, hooks and state. */
void tide_pickle_init(tide_pickle *p);
/* Runs the opcode at `at` and returns its length; 0: more bytes are needed, or *error says what is wrong. */
size_t tide_pickle_step(tide_pickle *p, const unsigned char *at, size_t length, const char **error);
/* Stores a value in the memo in place of the container that it was made from. */
void tide_pickle_keep(tide_pickle *p, uint64_t key, const pickle_value *v, bool is_kept);

#endif
