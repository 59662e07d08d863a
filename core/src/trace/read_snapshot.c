/* Memory snapshots of PyTorch: a pickle of plain dicts, lists, tuples, numbers and texts (torch/cuda/memory.py:
 * _dump_snapshot; torch/csrc/cuda/Module.cpp: _cuda_memorySnapshot).
 *
 * Pickle is a language for a machine with a stack, and can call any function. This machine knows plain data alone; an
 * opcode that names or calls something ends the reading. No tree is built: a dict is understood when its items are set,
 * and forgotten. Containers have no contents here, so a reference to one, cyclic or not, costs nothing. */
#include <stdlib.h>
#include <string.h>

#include "trace/recording.h"

#include "base/units.h"

/* Names that are compared: their numbers are those of r->names, in this order from 1. */
#define SNAPSHOT_WORDS(X)                                                                                              \
    X(action)                                                                                                          \
    X(addr)                                                                                                            \
    X(size) X(stream) X(time_us) X(frames) X(pool_id) X(device_free) X(filename) X(line) X(name) X(alloc)              \
        X(free_requested) X(free_completed) X(segment_alloc) X(segment_map) X(segment_free) X(segment_unmap) X(oom)    \
            X(snapshot) X(user_defined) X(segments) X(device_traces) X(allocator_settings) X(device)                   \
                X(segment_pool_id) X(blocks) X(address) X(requested_size) X(state) X(active_allocated) X(total_size)   \
                    X(is_expandable) X(PYTORCH_CUDA_ALLOC_CONF) X(expandable_segments) X(max_split_size)

typedef enum word {
    WORD_NONE,
#define WORD(name) WORD_##name,
    SNAPSHOT_WORDS(WORD)
#undef WORD
        WORD_COUNT
} word;

typedef enum value_kind {
    VALUE_OTHER, /* nothing that matters */
    VALUE_INT,
    VALUE_TEXT,  /* id: a name */
    VALUE_FRAME, /* id: a name, "file:line function" */
    VALUE_STACK, /* id */
    VALUE_LIST,
    VALUE_DICT,
    VALUE_TUPLE, /* number: of its integers, together */
    VALUE_MARK
} value_kind;

typedef struct value {
    uint32_t kind, id;
    uint64_t number; /* of a list or dict: its place in the memo, plus one */
} value;

typedef struct memo_entry {
    uint32_t key, kind, id; /* key: plus one; 0: empty */
} memo_entry;

/* A list of frames and the stack that it made. */
typedef struct chain_entry {
    uint64_t hash;
    uint32_t stack;
} chain_entry;

typedef struct final_block {
    uint64_t address, bytes, stream;
    uint32_t device, stack;
} final_block;

/* Segments as they come and go in the entries, and those that are there at the end. */
typedef enum segment_mark { SEGMENT_MADE, SEGMENT_GONE, SEGMENT_FINAL } segment_mark;

typedef struct segment_seen {
    uint64_t address, bytes, stream;
    uint32_t device, order;
    segment_mark what;
} segment_seen;

enum {
    VALUES = 1 << 17,
    MARKS = 1 << 10,
    RECENT_BITS = 14,
    LOW = 1 << 12,
    CHAIN_BITS = 10,
    KEPT_TEXT = 1 << 12,
    TEXTS = 1 << 20
};

typedef struct snapshot {
    tide_recording *r;
    value *values;
    uint32_t count, capacity;
    uint32_t marks[MARKS], mark_count;
    bool has_stopped;

    /* Note [The memo]
     * A pickle may refer back to every text and container in it. Kept are texts that were not seen before and frames,
     * which a program has few of, and the stacks of blocks that live at the end; of the others (stacks of entries,
     * texts that are repeated) the latest. What cannot be found is VALUE_OTHER. */
    memo_entry *memo;
    uint32_t memo_count, memo_capacity;
    memo_entry low[LOW]; /* the first places: keys and most frames */
    memo_entry *recent;
    uint64_t memo_next;

    value items[WORD_COUNT]; /* of the dict that is set, by key; those of `present` */
    uint64_t present;        /* a bit for each word */
    chain_entry *chains;     /* lists of frames seen lately, by hash */

    uint32_t section;    /* the key of the top dict that is being filled */
    uint32_t outer;      /* position of the list of devices on the stack */
    uint32_t device;     /* devices begun */
    final_block *blocks; /* active ones; those of the current segment from first_block on */
    uint32_t block_count, block_capacity, first_block;
    bool has_held, has_completions; /* a free_requested that waits for the next entry */
    uint64_t held_address, held_bytes, held_stream;
    bool is_expandable;
    uint64_t max_split_bytes;
    segment_seen *segments;
    uint32_t segment_count, segment_capacity;
    unsigned char by_letter[256]; /* index into opcodes, plus one */
} snapshot;

static const char *const not_data = "a snapshot of torch.cuda.memory holds plain data; of training_args.bin, save "
                                    "training_args.to_json_string() instead";

/* ---- the memo ---- */

static memo_entry *memo_place(const snapshot *s, uint32_t key) {
    uint32_t mask = s->memo_capacity - 1, at = (key * 0x9e3779b9u >> 8) & mask;
    while (s->memo[at].key && s->memo[at].key != key) at = (at + 1) & mask;
    return &s->memo[at];
}

static void memo_keep(snapshot *s, memo_entry entry) {
    if (s->memo_count * 2 >= s->memo_capacity) {
        memo_entry *old = s->memo;
        uint32_t capacity = s->memo_capacity;
        s->memo_capacity = capacity ? capacity * 2 : 4096;
        s->memo = tide_arena_grow(s->r->arena, NULL, 0, s->memo_capacity * sizeof *s->memo);
        for (uint32_t i = 0; i < capacity; i++)
            if (old[i].key) *memo_place(s, old[i].key) = old[i];
        if (old) tide_arena_drop(s->r->arena, old);
    }
    memo_entry *place = memo_place(s, entry.key);
    if (!place->key) s->memo_count++;
    *place = entry;
}

static void memo_put(snapshot *s, uint32_t key, const value *v, bool is_kept) {
    memo_entry entry = {key, v->kind, v->id};
    if (key < LOW)
        s->low[key] = entry;
    else if (is_kept && s->memo_count < TEXTS)
        memo_keep(s, entry);
    else
        s->recent[key & ((1u << RECENT_BITS) - 1)] = entry;
}

/* Puts the top into the memo under `index`. */
static void memoize(snapshot *s, uint64_t index) {
    if (!s->count || index >= UINT32_MAX - 1) return;
    value *top = &s->values[s->count - 1];
    uint32_t key = (uint32_t)index + 1;
    if (index >= s->memo_next) s->memo_next = index + 1;
    if (top->kind == VALUE_LIST || top->kind == VALUE_DICT) top->number = key;
    if (top->kind == VALUE_TEXT) memo_put(s, key, top, top->number != 0);
}

static bool memo_get(snapshot *s, uint64_t index, value *out) {
    if (index >= s->memo_next) return false;
    uint32_t key = (uint32_t)index + 1;
    memo_entry *found = key < LOW ? &s->low[key] : s->memo_capacity ? memo_place(s, key) : NULL;
    if (!found || !found->key) found = &s->recent[key & ((1u << RECENT_BITS) - 1)];
    *out = found->key == key ? (value){found->kind, found->id, 0} : (value){VALUE_OTHER, 0, 0};
    return true;
}

/* ---- what a dict is ---- */

/* Sorts the items from `from` to the top by their keys. */
static void take_items(snapshot *s, uint32_t from) {
    s->present = 0;
    for (uint32_t i = from; i + 1 < s->count; i += 2) {
        const value *key = &s->values[i];
        if (key->kind != VALUE_TEXT || key->id >= WORD_COUNT) continue;
        s->items[key->id] = s->values[i + 1];
        s->present |= UINT64_C(1) << key->id;
    }
}

static value item_of(const snapshot *s, word key) {
    return s->present >> key & 1 ? s->items[key] : (value){VALUE_OTHER, 0, 0};
}

static uint64_t int_of(const snapshot *s, word key) {
    value v = item_of(s, key);
    return v.kind == VALUE_INT || v.kind == VALUE_TUPLE ? v.number : 0;
}

static uint32_t stack_of(const snapshot *s) {
    value v = item_of(s, WORD_frames);
    return v.kind == VALUE_STACK ? v.id : 0;
}

/* A private pool keeps its blocks apart as a stream does. */
static uint64_t stream_of(const snapshot *s, word pool) {
    return int_of(s, WORD_stream) ^ int_of(s, pool) << 56;
}

static void set_frame(snapshot *s, value *dict, value file) {
    value name = item_of(s, WORD_name);
    tide_names *names = &s->r->names;
    if (name.kind != VALUE_TEXT || names->count >= TEXTS) return;
    tide_text path = names->names[file.id], function = names->names[name.id];
    char text[KEPT_TEXT], digits[TIDE_DIGITS];
    size_t length = 0, count = tide_digits(digits, int_of(s, WORD_line));
    if (path.length + function.length + count + 2 > sizeof text) return;
    memcpy(text, path.at, path.length);
    text[length = path.length] = ':';
    memcpy(text + ++length, digits, count);
    text[length += count] = ' ';
    memcpy(text + ++length, function.at, function.length);
    uint64_t key = dict->number;
    *dict = (value){VALUE_FRAME, tide_name(names, (tide_text){text, length + function.length}), 0};
    if (key) memo_put(s, (uint32_t)key, dict, true);
}

static void see_segment(snapshot *s, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t device,
                        segment_mark what) {
    TIDE_ROOM(s->r->arena, s->segments, s->segment_count, s->segment_capacity);
    s->segments[s->segment_count] = (segment_seen){address, bytes, stream, device, s->segment_count, what};
    s->segment_count++;
}

static void release_held(snapshot *s, tide_tape *tape, bool is_complete) {
    if (s->has_held && is_complete)
        tide_tape_free(tape, s->held_address, s->held_bytes, s->held_stream);
    else if (s->has_held)
        tide_tape_wait(tape, s->held_address, s->held_bytes, s->held_stream);
    s->has_held = false;
}

static void take_entry(snapshot *s, uint32_t action) {
    tide_tape *tape = s->device ? tide_recording_tape(s->r, s->device - 1) : NULL;
    uint64_t address = int_of(s, WORD_addr), bytes = int_of(s, WORD_size), stream = stream_of(s, WORD_pool_id);
    if (!tape) {
        s->r->unreadable++;
        return;
    }
    if (action == WORD_free_completed) s->has_completions = true;
    if (action == WORD_free_completed && s->has_held && s->held_address == address) {
        release_held(s, tape, true);
        return;
    }
    release_held(s, tape, false);
    tide_tape_time_is(tape, int_of(s, WORD_time_us));
    if (action == WORD_segment_alloc || action == WORD_segment_free)
        see_segment(s, address, bytes, stream, s->device - 1,
                    action == WORD_segment_alloc ? SEGMENT_MADE : SEGMENT_GONE);
    switch (action) {
    case WORD_alloc:
        tide_tape_alloc(tape, address, bytes, stream, stack_of(s));
        break;
    case WORD_free_requested:
        s->has_held = true;
        s->held_address = address, s->held_bytes = bytes, s->held_stream = stream;
        break;
    case WORD_free_completed:
        tide_tape_back(tape, address);
        break;
    case WORD_segment_alloc:
    case WORD_segment_map:
        tide_tape_segment(tape, false, bytes);
        break;
    case WORD_segment_free:
    case WORD_segment_unmap:
        tide_tape_segment(tape, true, bytes);
        break;
    case WORD_oom:
        tide_tape_oom(tape, int_of(s, WORD_device_free), bytes, stream, stack_of(s));
        break;
    case WORD_snapshot:
    case WORD_user_defined:
        break;
    default:
        s->r->unreadable++;
    }
}

static void take_block(snapshot *s, value state) {
    if (state.kind != VALUE_TEXT || state.id != WORD_active_allocated) return;
    uint64_t bytes = int_of(s, WORD_requested_size);
    if (!bytes) bytes = int_of(s, WORD_size);
    TIDE_ROOM(s->r->arena, s->blocks, s->block_count, s->block_capacity);
    s->blocks[s->block_count++] = (final_block){int_of(s, WORD_address), bytes, 0, 0, stack_of(s)};
}

/* A segment's dict is complete after those of its blocks. */
static void take_segment(snapshot *s) {
    uint64_t bytes = int_of(s, WORD_total_size), device = int_of(s, WORD_device);
    if (bytes && device < TIDE_RECORDING_DEVICES && !int_of(s, WORD_is_expandable))
        see_segment(s, int_of(s, WORD_address), bytes, stream_of(s, WORD_segment_pool_id), (uint32_t)device,
                    SEGMENT_FINAL);
    for (; s->first_block < s->block_count; s->first_block++) {
        s->blocks[s->first_block].stream = stream_of(s, WORD_segment_pool_id);
        s->blocks[s->first_block].device = (uint32_t)int_of(s, WORD_device);
    }
}

static void take_settings(snapshot *s) {
    value conf = item_of(s, WORD_PYTORCH_CUDA_ALLOC_CONF), split = item_of(s, WORD_max_split_size);
    if (conf.kind == VALUE_TEXT) s->r->allocator = tide_text_copy(s->r->arena, s->r->names.names[conf.id]);
    s->is_expandable = int_of(s, WORD_expandable_segments) != 0;
    if (split.kind == VALUE_INT && split.number < UINT64_MAX >> 1) s->max_split_bytes = split.number;
}

/* The items from `from` to the top are set in the dict below. */
static void set_items(snapshot *s, value *dict, uint32_t from) {
    take_items(s, from);
    value action = item_of(s, WORD_action), file = item_of(s, WORD_filename), state = item_of(s, WORD_state);
    if (file.kind == VALUE_TEXT)
        set_frame(s, dict, file);
    else if (s->section == WORD_device_traces && action.kind == VALUE_TEXT)
        take_entry(s, action.id);
    else if (s->section == WORD_device_traces && s->mark_count)
        s->r->unreadable++;
    else if (s->section == WORD_segments && state.kind != VALUE_OTHER)
        take_block(s, state);
    else if (s->section == WORD_segments)
        take_segment(s);
    else if (s->section == WORD_allocator_settings)
        take_settings(s);
}

/* Frames come from the innermost out. */
static void append_items(snapshot *s, value *list, uint32_t from) {
    if (list->kind != VALUE_LIST || from == s->count || s->values[from].kind != VALUE_FRAME) return;
    uint64_t hash = 0, key = list->number;
    for (uint32_t i = from; i < s->count; i++)
        hash = (hash ^ s->values[i].id) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    chain_entry *chain = &s->chains[hash >> (64 - CHAIN_BITS)];
    if (!chain->stack || chain->hash != hash) {
        *chain = (chain_entry){hash, 0};
        for (uint32_t i = s->count; i-- > from;)
            if (s->values[i].kind == VALUE_FRAME)
                chain->stack = tide_recording_stack(s->r, chain->stack, s->values[i].id);
    }
    *list = (value){VALUE_STACK, chain->stack, 0};
    if (key) memo_put(s, (uint32_t)key, list, s->section == WORD_segments);
}

/* ---- the machine ---- */

static const char *push(snapshot *s, value_kind kind, uint32_t id, uint64_t number) {
    if (s->count == VALUES) return "more values at once than a snapshot has";
    TIDE_ROOM(s->r->arena, s->values, s->count, s->capacity);
    s->values[s->count++] = (value){(uint32_t)kind, id, number};
    return NULL;
}

static const char *push_text(snapshot *s, const unsigned char *at, size_t length) {
    tide_names *names = &s->r->names;
    uint32_t known = names->count;
    if (length >= KEPT_TEXT || known >= TEXTS) return push(s, VALUE_OTHER, 0, 0);
    uint32_t id = tide_name(names, (tide_text){(const char *)at, length});
    /* A key of the top dict: above its mark, at an even place. */
    if (s->mark_count == 1 && s->marks[0] == 1 && s->count % 2 == 0) s->section = id;
    return push(s, VALUE_TEXT, id, names->count > known || id < WORD_COUNT);
}

static const char *push_list(snapshot *s) {
    if (s->section == WORD_device_traces && s->mark_count == 1 && s->count % 2 == 1) {
        s->outer = s->count; /* the list of devices, right behind its key */
    } else if (s->section == WORD_device_traces && s->outer && s->device <= TIDE_RECORDING_DEVICES) {
        bool is_only = s->mark_count == 1 && s->count == s->outer + 1;
        bool is_one_of = s->mark_count == 2 && s->marks[1] == s->outer + 1;
        if (is_only || is_one_of) {
            if (s->device) release_held(s, tide_recording_tape(s->r, s->device - 1), false);
            if (++s->device <= TIDE_RECORDING_DEVICES) tide_recording_tape(s->r, s->device - 1);
        }
    }
    return push(s, VALUE_LIST, 0, 0);
}

static const char *push_mark(snapshot *s) {
    if (s->mark_count == MARKS) return "nested deeper than 1024 levels";
    s->marks[s->mark_count++] = s->count;
    return push(s, VALUE_MARK, 0, 0);
}

/* A tuple's integers in one number: (0, 0) is 0. */
static const char *make_tuple(snapshot *s, uint32_t from) {
    uint64_t number = 0;
    for (uint32_t i = from; i < s->count; i++) number = number * 31 + s->values[i].number;
    s->count = from;
    return push(s, VALUE_TUPLE, 0, number);
}

static const char *const too_few = "an opcode needs more values than there are";

/* The first value above the last mark, which is taken off; 0: there is none. */
static uint32_t take_mark(snapshot *s) {
    return s->mark_count ? s->marks[--s->mark_count] + 1 : 0;
}

/* Opcodes that take what stands above the mark. */
static const char *run_marked(snapshot *s, unsigned char opcode) {
    uint32_t from = take_mark(s);
    if (!from) return too_few;
    if (opcode == 't') {
        uint32_t at = from - 1;
        s->values[at] = (value){VALUE_OTHER, 0, 0};
        const char *error = make_tuple(s, from);
        s->values[at] = s->values[s->count - 1];
        s->count = at + 1;
        return error;
    }
    if (opcode == '1') {
        s->count = from - 1;
        return NULL;
    }
    if (from < 2) return too_few;
    value *into = &s->values[from - 2];
    if (opcode == 'u' && into->kind == VALUE_DICT) set_items(s, into, from);
    if (opcode == 'e') append_items(s, into, from);
    s->count = from - 1;
    return NULL;
}

/* Opcodes that take a known number of values from the top. */
static const char *run_top(snapshot *s, uint32_t needs, unsigned char opcode) {
    uint32_t floor = s->mark_count ? s->marks[s->mark_count - 1] + 1 : 0;
    if (s->count < floor + needs) return too_few;
    switch (opcode) {
    case 's':
        if (s->values[s->count - 3].kind == VALUE_DICT) set_items(s, &s->values[s->count - 3], s->count - 2);
        s->count -= 2;
        return NULL;
    case 'a':
        append_items(s, &s->values[s->count - 2], s->count - 1);
        s->count--;
        return NULL;
    case '0':
        s->count--;
        return NULL;
    case '2':
        return push(s, VALUE_OTHER, 0, 0);
    case '.':
        s->has_stopped = true;
        return NULL;
    case 0x94:
        memoize(s, s->memo_next);
        return NULL;
    default:
        return make_tuple(s, s->count - needs); /* TUPLE1 to TUPLE3 */
    }
}

static uint64_t number_at(const unsigned char *at, unsigned bytes) {
    uint64_t number = 0;
    for (unsigned i = bytes < 8 ? bytes : 8; i-- > 0;) number = number << 8 | at[i];
    return number;
}

/* A little-endian two's complement number of any length. */
static const char *push_long(snapshot *s, const unsigned char *at, size_t length) {
    bool is_negative = length && at[length - 1] & 128, is_large = false;
    for (size_t i = 8; i < length; i++) is_large = is_large || at[i] != (is_negative ? 255 : 0);
    uint64_t number = number_at(at, length < 8 ? (unsigned)length : 8);
    if (is_negative && length < 8) number |= UINT64_MAX << 8 * length;
    return is_large ? push(s, VALUE_OTHER, 0, 0) : push(s, VALUE_INT, 0, number);
}

static const char *get(snapshot *s, uint64_t index) {
    value v;
    if (!memo_get(s, index, &v)) return "a reference to what has not been said";
    return push(s, (value_kind)v.kind, v.id, 0);
}

/* Opcodes: the letter, bytes of the number behind it, whether that is the length of what follows, what it is called,
 * what it does. Those without a meaning here name or call something. */
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

static const struct opcode {
    unsigned char letter, bytes;
    bool has_length;
    unsigned char means;
    const char *name;
} opcodes[] = {
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

static const char *run_plain(snapshot *s, unsigned char letter) {
    switch (letter) {
    case '}':
        return push(s, VALUE_DICT, 0, 0);
    case ']':
        return push_list(s);
    case '(':
        return push_mark(s);
    case ')':
        return push(s, VALUE_TUPLE, 0, 0);
    case 0x88:
        return push(s, VALUE_INT, 0, 1);
    case 0x89:
        return push(s, VALUE_INT, 0, 0);
    default:
        return push(s, VALUE_OTHER, 0, 0);
    }
}

/* `at` is what follows the number: `length` bytes. Returns NULL or what is wrong. */
static const char *run(snapshot *s, const struct opcode *o, uint64_t number, const unsigned char *at, size_t length) {
    switch ((meaning)o->means) {
    case NOTHING:
        return NULL;
    case FORBIDDEN:
        return tide_format(s->r->arena, "the pickle wants to run code: opcode %s; nothing was run", o->name);
    case NUMBER:
        return push(s, VALUE_INT, 0, number);
    case LONG_NUMBER:
        return o->has_length ? push_long(s, at, length) : push_long(s, at - 4, 4);
    case TEXT:
        return push_text(s, at, length);
    case SKIPPED:
        return push(s, VALUE_OTHER, 0, 0);
    case PUT:
        return s->count ? (memoize(s, number), NULL) : too_few;
    case GET:
        return get(s, number);
    case PLAIN:
        return run_plain(s, o->letter);
    case MARKED:
        return run_marked(s, o->letter);
    case TOP_1:
        return run_top(s, 1, o->letter);
    case TOP_2:
        return run_top(s, 2, o->letter);
    case TOP_3:
        return run_top(s, 3, o->letter);
    }
    return NULL;
}

static void open_snapshot(tide_recording *r) {
    static const char *const words[] = {
#define WORD(name) #name,
        SNAPSHOT_WORDS(WORD)
#undef WORD
    };
    snapshot *s = r->state = TIDE_NEW(r->arena, snapshot, 1);
    s->r = r;
    s->chains = TIDE_NEW(r->arena, chain_entry, 1 << CHAIN_BITS);
    s->recent = tide_arena_grow(r->arena, NULL, 0, sizeof *s->recent << RECENT_BITS);
    s->max_split_bytes = UINT64_MAX;
    for (size_t i = 0; i < TIDE_COUNT_OF(opcodes); i++)
        s->by_letter[opcodes[i].letter] = (unsigned char)(i + 1);
    for (size_t i = 0; i < TIDE_COUNT_OF(words); i++) tide_name(&r->names, tide_text_of(words[i]));
}

static size_t read_snapshot(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    snapshot *s = r->state;
    size_t used = 0;
    (void)is_last;
    while (used < length && !s->has_stopped) {
        const struct opcode *o = s->by_letter[at[used]] ? &opcodes[s->by_letter[at[used]] - 1] : NULL;
        if (!o)
            return tide_recording_break(r, used, tide_format(r->arena, "no opcode of pickle: 0x%02x", at[used]),
                                        not_data);
        if (length - used < 1u + o->bytes) break;
        uint64_t number = number_at(at + used + 1, o->bytes), follows = o->has_length ? number : 0;
        if (follows > TIDE_RECORDING_ITEM / 2)
            return tide_recording_break(r, used, "a value is longer than 512 KiB", not_data);
        if (length - used - 1 - o->bytes < follows) break;
        const char *error = run(s, o, number, at + used + 1 + o->bytes, (size_t)follows);
        if (error) return tide_recording_break(r, used, error, not_data);
        used += 1 + o->bytes + (size_t)follows;
    }
    return s->has_stopped ? length : used;
}

/* Blocks that are active and that no entry made are older than the entries. */
static void add_older_blocks(snapshot *s) {
    for (uint32_t i = 0; i < s->first_block; i++) {
        const final_block *b = &s->blocks[i];
        tide_tape *tape = tide_recording_tape(s->r, b->device);
        if (tape && !tide_tape_is_live(tape, b->address))
            tide_tape_was_there(tape, b->address, b->bytes, b->stream, b->stack);
    }
}

static int by_place(const void *a, const void *b) {
    const segment_seen *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->address != y->address) return x->address < y->address ? -1 : 1;
    if ((x->what == SEGMENT_FINAL) != (y->what == SEGMENT_FINAL)) return x->what == SEGMENT_FINAL ? 1 : -1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* A segment whose first mark is not that it was made is older than the entries. */
static void add_older_segments(snapshot *s) {
    if (s->segment_count) qsort(s->segments, s->segment_count, sizeof *s->segments, by_place);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment_seen *seen = &s->segments[i];
        bool is_first = i == 0 || seen[-1].device != seen->device || seen[-1].address != seen->address;
        tide_tape *tape = tide_recording_tape(s->r, seen->device);
        if (is_first && seen->what != SEGMENT_MADE && tape)
            tide_tape_was_held(tape, seen->address, seen->bytes, seen->stream);
    }
}

static void close_snapshot(tide_recording *r) {
    snapshot *s = r->state;
    if (s->device) release_held(s, tide_recording_tape(r, s->device - 1), false);
    if (!s->has_stopped)
        tide_recording_break(r, 0, "the pickle ends before its STOP", NULL);
    else
        add_older_blocks(s), add_older_segments(s);
    for (uint32_t i = 0; !s->has_completions && i < r->device_count; i++) tide_tape_waits_are_frees(&r->tapes[i]);
    if (r->allocator && *r->allocator) return;
    if (s->is_expandable)
        r->allocator = "expandable_segments:True";
    else if (s->max_split_bytes != UINT64_MAX)
        r->allocator = tide_format(r->arena, "max_split_size_mb:%llu", (unsigned long long)(s->max_split_bytes >> 20));
}

const tide_reader tide_snapshot_reader = {"PyTorch memory snapshot", open_snapshot, read_snapshot, close_snapshot};
