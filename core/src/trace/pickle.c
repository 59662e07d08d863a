/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle machine. */
#include "trace/pickle.h"

#include <string.h>

#include "base/units.h"

enum { RECENT_BITS = 14 };

/* ---- the memo ---- */

static pickle_memo_entry *memo_place(const tide_pickle *p, uint32_t key) {
    uint32_t mask = p->memo_capacity - 1, at = (key * 0x9e3779b9u >> 8) & mask;
    while (p->memo[at].key && p->memo[at].key != key) at = (at + 1) & mask;
    return &p->memo[at];
}

static void memo_keep(tide_pickle *p, pickle_memo_entry entry) {
    if (p->memo_count * 2 >= p->memo_capacity) {
        pickle_memo_entry *old = p->memo;
        uint32_t capacity = p->memo_capacity;
        p->memo_capacity = capacity ? capacity * 2 : 4096;
        p->memo = tide_arena_grow(p->arena, NULL, 0, p->memo_capacity * sizeof *p->memo);
        for (uint32_t i = 0; i < capacity; i++)
            if (old[i].key) *memo_place(p, old[i].key) = old[i];
        if (old) tide_arena_drop(p->arena, old);
    }
    pickle_memo_entry *place = memo_place(p, entry.key);
    if (!place->key) p->memo_count++;
    *place = entry;
}

static void memo_put(tide_pickle *p, uint32_t key, const pickle_value *v, bool is_kept) {
    pickle_memo_entry entry = {key, v->kind, v->id};
    if (key < PICKLE_LOW)
        p->low[key] = entry;
    else if (is_kept && p->memo_count < PICKLE_TEXTS)
        memo_keep(p, entry);
    else
        p->recent[key & ((1u << RECENT_BITS) - 1)] = entry;
}

/* Stores the top of the stack in the memo under `index`. */
static void memoize(tide_pickle *p, uint64_t index) {
    if (!p->count || index >= UINT32_MAX - 1) return;
    pickle_value *top = &p->values[p->count - 1];
    uint32_t key = (uint32_t)index + 1;
    if (index >= p->memo_next) p->memo_next = index + 1;
    if (top->kind == PICKLE_LIST || top->kind == PICKLE_DICT) top->number = key;
    if (top->kind == PICKLE_TEXT) memo_put(p, key, top, top->number != 0);
}

static bool memo_get(tide_pickle *p, uint64_t index, pickle_value *out) {
    if (index >= p->memo_next) return false;
    uint32_t key = (uint32_t)index + 1;
    pickle_memo_entry *found = key < PICKLE_LOW ? &p->low[key] : p->memo_capacity ? memo_place(p, key) : NULL;
    if (!found || !found->key) found = &p->recent[key & ((1u << RECENT_BITS) - 1)];
    *out = found->key == key ? (pickle_value){found->kind, found->id, 0} : (pickle_value){PICKLE_OTHER, 0, 0};
    return true;
}

/* ---- the machine ---- */

static const char *push(tide_pickle *p, pickle_kind kind, uint32_t id, uint64_t number) {
    if (p->count == PICKLE_VALUES) return "more values at once than a snapshot has";
    TIDE_ROOM(p->arena, p->values, p->count, p->capacity);
    p->values[p->count++] = (pickle_value){(uint32_t)kind, id, number};
    return NULL;
}

static const char *push_text(tide_pickle *p, const unsigned char *at, size_t length) {
    tide_names *names = p->names;
    uint32_t known = names->count;
    if (length >= PICKLE_TEXT_LIMIT || known >= PICKLE_TEXTS) return push(p, PICKLE_OTHER, 0, 0);
    uint32_t id = tide_name(names, (tide_text){(const char *)at, length});
    p->hooks->text(p, id);
    return push(p, PICKLE_TEXT, id, names->count > known || id < p->first_names);
}

static const char *push_list(tide_pickle *p) {
    p->hooks->list(p);
    return push(p, PICKLE_LIST, 0, 0);
}

static const char *push_mark(tide_pickle *p) {
    if (p->mark_count == PICKLE_MARKS) return "nested deeper than 1024 levels";
    p->marks[p->mark_count++] = p->count;
    return push(p, PICKLE_MARK, 0, 0);
}

/* Combines a tuple's integers into one number: (0, 0) is 0. */
static const char *make_tuple(tide_pickle *p, uint32_t from) {
    uint64_t number = 0;
    for (uint32_t i = from; i < p->count; i++) number = number * 31 + p->values[i].number;
    p->count = from;
    return push(p, PICKLE_TUPLE, 0, number);
}

static const char *const too_few = "an opcode needs more values than there are";

/* The first value above the last mark, which is removed; 0: there is none. */
static uint32_t take_mark(tide_pickle *p) {
    return p->mark_count ? p->marks[--p->mark_count] + 1 : 0;
}

/* Opcodes that consume what is above the mark. */
static const char *run_marked(tide_pickle *p, unsigned char opcode) {
    uint32_t from = take_mark(p);
    if (!from) return too_few;
    if (opcode == 't') {
        uint32_t at = from - 1;
        p->values[at] = (pickle_value){PICKLE_OTHER, 0, 0};
        const char *error = make_tuple(p, from);
        p->values[at] = p->values[p->count - 1];
        p->count = at + 1;
        return error;
    }
    if (opcode == '1') {
        p->count = from - 1;
        return NULL;
    }
    if (from < 2) return too_few;
    pickle_value *into = &p->values[from - 2];
    if (opcode == 'u' && into->kind == PICKLE_DICT) p->hooks->set_items(p, into, from);
    if (opcode == 'e') p->hooks->append_items(p, into, from);
    p->count = from - 1;
    return NULL;
}

/* Opcodes that consume a fixed number of values. */
static const char *run_top(tide_pickle *p, uint32_t needs, unsigned char opcode) {
    uint32_t floor = p->mark_count ? p->marks[p->mark_count - 1] + 1 : 0;
    if (p->count < floor + needs) return too_few;
    switch (opcode) {
    case 's':
        if (p->values[p->count - 3].kind == PICKLE_DICT) p->hooks->set_items(p, &p->values[p->count - 3], p->count - 2);
        p->count -= 2;
        return NULL;
    case 'a':
        p->hooks->append_items(p, &p->values[p->count - 2], p->count - 1);
        p->count--;
        return NULL;
    case '0':
        p->count--;
        return NULL;
    case '2':
        return push(p, PICKLE_OTHER, 0, 0);
    case '.':
        p->has_stopped = true;
        return NULL;
    case 0x94:
        memoize(p, p->memo_next);
        return NULL;
    default:
        return make_tuple(p, p->count - needs); /* TUPLE1 to TUPLE3 */
    }
}

static uint64_t number_at(const unsigned char *at, unsigned bytes) {
    uint64_t number = 0;
    for (unsigned i = bytes < 8 ? bytes : 8; i-- > 0;) number = number << 8 | at[i];
    return number;
}

/* A little-endian two's complement number of any length. */
static const char *push_long(tide_pickle *p, const unsigned char *at, size_t length) {
    bool is_negative = length && at[length - 1] & 128, is_large = false;
    for (size_t i = 8; i < length; i++) is_large = is_large || at[i] != (is_negative ? 255 : 0);
    uint64_t number = number_at(at, length < 8 ? (unsigned)length : 8);
    if (is_negative && length < 8) number |= UINT64_MAX << 8 * length;
    return is_large ? push(p, PICKLE_OTHER, 0, 0) : push(p, PICKLE_INT, 0, number);
}

static const char *get(tide_pickle *p, uint64_t index) {
    pickle_value v;
    if (!memo_get(p, index, &v)) return "a reference to what has not been said";
    return push(p, (pickle_kind)v.kind, v.id, 0);
}

/* Opcodes: the letter, the size of the following number, whether that is the length of what follows, a name, and the
 * meaning. Those without a meaning here import or call something. */
typedef enum meaning {
    NOTHING,
    FORBIDDEN,
    NUMBER,
    LONG_NUMBER,
    TEXT,
    SKIPPED,
    PUT,
    GET,
    PLAIN,
    MARKED,
    TOP_1,
    TOP_2,
    TOP_3
} meaning;

typedef struct opcode {
    unsigned char letter, bytes;
    bool has_length;
    unsigned char means;
    const char *name;
} opcode;

static const opcode opcodes[] = {
    {0x80, 1, false, NOTHING, "PROTO"},
    {0x95, 8, false, NOTHING, "FRAME"},
    {'h', 1, false, GET, "BINGET"},
    {'j', 4, false, GET, "LONG_BINGET"},
    {0x94, 0, false, TOP_1, "MEMOIZE"},
    {'q', 1, false, PUT, "BINPUT"},
    {'r', 4, false, PUT, "LONG_BINPUT"},
    {'K', 1, false, NUMBER, "BININT1"},
    {'M', 2, false, NUMBER, "BININT2"},
    {'J', 4, false, LONG_NUMBER, "BININT"},
    {0x8a, 1, true, LONG_NUMBER, "LONG1"},
    {0x8b, 4, true, LONG_NUMBER, "LONG4"},
    {'G', 8, false, PLAIN, "BINFLOAT"},
    {'N', 0, false, PLAIN, "NONE"},
    {0x88, 0, false, PLAIN, "NEWTRUE"},
    {0x89, 0, false, PLAIN, "NEWFALSE"},
    {0x8c, 1, true, TEXT, "SHORT_BINUNICODE"},
    {'X', 4, true, TEXT, "BINUNICODE"},
    {0x8d, 8, true, TEXT, "BINUNICODE8"},
    {'U', 1, true, SKIPPED, "SHORT_BINSTRING"},
    {'T', 4, true, SKIPPED, "BINSTRING"},
    {'C', 1, true, SKIPPED, "SHORT_BINBYTES"},
    {'B', 4, true, SKIPPED, "BINBYTES"},
    {0x8e, 8, true, SKIPPED, "BINBYTES8"},
    {'}', 0, false, PLAIN, "EMPTY_DICT"},
    {']', 0, false, PLAIN, "EMPTY_LIST"},
    {')', 0, false, PLAIN, "EMPTY_TUPLE"},
    {'(', 0, false, PLAIN, "MARK"},
    {'u', 0, false, MARKED, "SETITEMS"},
    {'e', 0, false, MARKED, "APPENDS"},
    {'t', 0, false, MARKED, "TUPLE"},
    {'1', 0, false, MARKED, "POP_MARK"},
    {'s', 0, false, TOP_3, "SETITEM"},
    {'a', 0, false, TOP_2, "APPEND"},
    {0x85, 0, false, TOP_1, "TUPLE1"},
    {0x86, 0, false, TOP_2, "TUPLE2"},
    {0x87, 0, false, TOP_3, "TUPLE3"},
    {'0', 0, false, TOP_1, "POP"},
    {'2', 0, false, TOP_1, "DUP"},
    {'.', 0, false, TOP_1, "STOP"},
    {'c', 0, false, FORBIDDEN, "GLOBAL"},
    {0x93, 0, false, FORBIDDEN, "STACK_GLOBAL"},
    {'R', 0, false, FORBIDDEN, "REDUCE"},
    {'b', 0, false, FORBIDDEN, "BUILD"},
    {'i', 0, false, FORBIDDEN, "INST"},
    {'o', 0, false, FORBIDDEN, "OBJ"},
    {0x81, 0, false, FORBIDDEN, "NEWOBJ"},
    {0x92, 0, false, FORBIDDEN, "NEWOBJ_EX"},
    {0x82, 0, false, FORBIDDEN, "EXT1"},
    {0x83, 0, false, FORBIDDEN, "EXT2"},
    {0x84, 0, false, FORBIDDEN, "EXT4"},
    {'P', 0, false, FORBIDDEN, "PERSID"},
    {'Q', 0, false, FORBIDDEN, "BINPERSID"},
};

static const char *run_plain(tide_pickle *p, unsigned char letter) {
    switch (letter) {
    case '}':
        return push(p, PICKLE_DICT, 0, 0);
    case ']':
        return push_list(p);
    case '(':
        return push_mark(p);
    case ')':
        return push(p, PICKLE_TUPLE, 0, 0);
    case 0x88:
        return push(p, PICKLE_INT, 0, 1);
    case 0x89:
        return push(p, PICKLE_INT, 0, 0);
    default:
        return push(p, PICKLE_OTHER, 0, 0);
    }
}

/* `at` points to `length` bytes after the number. Returns NULL, or what is wrong. */
static const char *run(tide_pickle *p, const opcode *o, uint64_t number, const unsigned char *at, size_t length) {
    switch ((meaning)o->means) {
    case NOTHING:
        return NULL;
    case FORBIDDEN:
        return tide_format(p->arena, "the pickle wants to run code: opcode %s; nothing was run", o->name);
    case NUMBER:
        return push(p, PICKLE_INT, 0, number);
    case LONG_NUMBER:
        return o->has_length ? push_long(p, at, length) : push_long(p, at - 4, 4);
    case TEXT:
        return push_text(p, at, length);
    case SKIPPED:
        return push(p, PICKLE_OTHER, 0, 0);
    case PUT:
        return p->count ? (memoize(p, number), NULL) : too_few;
    case GET:
        return get(p, number);
    case PLAIN:
        return run_plain(p, o->letter);
    case MARKED:
        return run_marked(p, o->letter);
    case TOP_1:
        return run_top(p, 1, o->letter);
    case TOP_2:
        return run_top(p, 2, o->letter);
    case TOP_3:
        return run_top(p, 3, o->letter);
    }
    return NULL;
}

void tide_pickle_init(tide_pickle *p) {
    p->recent = tide_arena_grow(p->arena, NULL, 0, sizeof *p->recent << RECENT_BITS);
    for (size_t i = 0; i < TIDE_COUNT_OF(opcodes); i++) p->by_letter[opcodes[i].letter] = (unsigned char)(i + 1);
}

void tide_pickle_keep(tide_pickle *p, uint64_t key, const pickle_value *v, bool is_kept) {
    if (key) memo_put(p, (uint32_t)key, v, is_kept);
}

/* References, which make up most of a snapshot. */
static size_t run_references(tide_pickle *p, const unsigned char *at, size_t length) {
    size_t used = 0;
    while (used + 5 <= length && p->count < p->capacity) {
        bool is_long = at[used] == 'j';
        if (!is_long && at[used] != 'h') break;
        uint32_t index = (uint32_t)number_at(at + used + 1, is_long ? 4 : 1);
        if (!memo_get(p, index, &p->values[p->count])) break;
        p->count++;
        used += is_long ? 5 : 2;
    }
    return used;
}

size_t tide_pickle_step(tide_pickle *p, const unsigned char *at, size_t length, const char **error) {
    size_t references = run_references(p, at, length);
    *error = NULL;
    if (references) return references;
    const opcode *o = p->by_letter[*at] ? &opcodes[p->by_letter[*at] - 1] : NULL;
    if (!o) {
        *error = tide_format(p->arena, "no opcode of pickle: 0x%02x", *at);
        return 0;
    }
    size_t head = 1u + o->bytes;
    if (length < head) return 0;
    uint64_t number = number_at(at + 1, o->bytes), follows = o->has_length ? number : 0;
    if (follows > PICKLE_VALUE_BYTES) {
        *error = "a value is longer than 512 KiB";
        return 0;
    }
    if (length - head < follows) return 0;
    *error = run(p, o, number, at + head, (size_t)follows);
    return *error ? 0 : head + (size_t)follows;
}
