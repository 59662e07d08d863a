/* SPDX-License-Identifier: Apache-2.0 */
/* Memory snapshots of PyTorch: a pickle of plain dicts, lists, tuples, numbers and texts (torch/cuda/memory.py:
 * _dump_snapshot; torch/csrc/cuda/Module.cpp: _cuda_memorySnapshot). */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "trace/pickle.h"
#include "trace/readers.h"

/* Names that are compared: their indices in r->names, from 1, in this order. */
/* clang-format off */
#define SNAPSHOT_WORDS(X) \
    X(action) X(addr) X(size) X(stream) X(time_us) X(frames) X(pool_id) X(device_free) X(filename) X(line) X(name) \
    X(alloc) X(free_requested) X(free_completed) X(segment_alloc) X(segment_map) X(segment_free) X(segment_unmap) \
    X(oom) X(snapshot) X(user_defined) X(segments) X(device_traces) X(allocator_settings) X(device) \
    X(segment_pool_id) X(blocks) X(address) X(requested_size) X(state) X(active_allocated) X(total_size) \
    X(is_expandable) X(PYTORCH_CUDA_ALLOC_CONF) X(expandable_segments) X(max_split_size)
/* clang-format on */

typedef enum word {
    WORD_NONE,
#define WORD(name) WORD_##name,
    SNAPSHOT_WORDS(WORD)
#undef WORD
        KEY_WORD_COUNT
} word;

/* What dicts and lists are turned into. */
enum {
    SNAPSHOT_FRAME = PICKLE_KINDS, /* id: a name, "file:line function" */
    SNAPSHOT_STACK                 /* id */
};

/* A list of frames and the stack made from it. */
typedef struct chain_entry {
    uint64_t hash;
    uint32_t stack;
} chain_entry;

typedef struct final_block {
    uint64_t address, bytes, stream;
    uint32_t device, stack;
} final_block;

/* Segments created and released in the entries, and those at the end. */
typedef enum segment_mark { SEGMENT_MADE, SEGMENT_GONE, SEGMENT_FINAL } segment_mark;

typedef struct segment_seen {
    uint64_t address, bytes, stream;
    uint32_t device, order;
    segment_mark what;
} segment_seen;

enum { CHAIN_BITS = 10 };

typedef struct snapshot {
    tide_recording *r;
    tide_pickle pickle;
    pickle_value items[KEY_WORD_COUNT]; /* of the current dict, by key; valid if in `present` */
    uint64_t present;                   /* one bit per word */
    chain_entry *chains;                /* recent lists of frames, by hash */

    uint32_t section;    /* the key of the top-level dict that is being read */
    uint32_t outer;      /* position of the list of devices on the stack */
    uint32_t device;     /* devices so far */
    final_block *blocks; /* active ones; those of the current segment start at first_block */
    uint32_t block_count, block_capacity, first_block;
    bool has_held, has_completions; /* a free_requested is waiting for the next entry */
    uint64_t held_address, held_bytes, held_stream;
    bool is_expandable;
    uint64_t max_split_bytes;
    segment_seen *segments;
    uint32_t segment_count, segment_capacity;
} snapshot;

static const char *const not_data = "a snapshot of torch.cuda.memory holds plain data; of training_args.bin, save "
                                    "training_args.to_json_string() instead";

/* ---- what a dict is ---- */

/* Sorts the items from `from` to the top by key. */
static void take_items(snapshot *s, uint32_t from) {
    s->present = 0;
    for (uint32_t i = from; i + 1 < s->pickle.count; i += 2) {
        const pickle_value *key = &s->pickle.values[i];
        if (key->kind != PICKLE_TEXT || key->id >= KEY_WORD_COUNT) continue;
        s->items[key->id] = s->pickle.values[i + 1];
        s->present |= UINT64_C(1) << key->id;
    }
}

static pickle_value item_of(const snapshot *s, word key) {
    return s->present >> key & 1 ? s->items[key] : (pickle_value){PICKLE_OTHER, 0, 0};
}

static uint64_t int_of(const snapshot *s, word key) {
    pickle_value v = item_of(s, key);
    return v.kind == PICKLE_INT || v.kind == PICKLE_TUPLE ? v.number : 0;
}

static uint32_t stack_of(const snapshot *s) {
    pickle_value v = item_of(s, WORD_frames);
    return v.kind == SNAPSHOT_STACK ? v.id : 0;
}

/* A private pool keeps its blocks separate, like a stream. */
static uint64_t stream_of_pool(const snapshot *s, word pool) {
    return int_of(s, WORD_stream) ^ int_of(s, pool) << 56;
}

static void set_frame(snapshot *s, pickle_value *dict, pickle_value file) {
    pickle_value name = item_of(s, WORD_name);
    tide_names *names = &s->r->names;
    if (name.kind != PICKLE_TEXT || names->count >= PICKLE_TEXTS) return;
    tide_text path = names->names[file.id], function = names->names[name.id];
    char text[PICKLE_TEXT_LIMIT], digits[TIDE_DIGITS];
    size_t length = 0, count = tide_digits(digits, int_of(s, WORD_line));
    if (path.length + function.length + count + 2 > sizeof text) return;
    memcpy(text, path.at, path.length);
    text[length = path.length] = ':';
    memcpy(text + ++length, digits, count);
    text[length += count] = ' ';
    memcpy(text + ++length, function.at, function.length);
    uint64_t key = dict->number;
    *dict = (pickle_value){SNAPSHOT_FRAME, tide_name(names, (tide_text){text, length + function.length}), 0};
    tide_pickle_keep(&s->pickle, key, dict, true);
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
        tide_tape_free_pending(tape, s->held_address, s->held_bytes, s->held_stream);
    s->has_held = false;
}

static void take_entry(snapshot *s, uint32_t action) {
    tide_tape *tape = s->device ? tide_recording_tape(s->r, s->device - 1) : NULL;
    uint64_t address = int_of(s, WORD_addr), bytes = int_of(s, WORD_size), stream = stream_of_pool(s, WORD_pool_id);
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
        tide_tape_free_completed(tape, address);
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

static void take_state_block(snapshot *s, pickle_value state) {
    if (state.kind != PICKLE_TEXT || state.id != WORD_active_allocated) return;
    uint64_t bytes = int_of(s, WORD_requested_size);
    if (!bytes) bytes = int_of(s, WORD_size);
    TIDE_ROOM(s->r->arena, s->blocks, s->block_count, s->block_capacity);
    s->blocks[s->block_count++] = (final_block){int_of(s, WORD_address), bytes, 0, 0, stack_of(s)};
}

/* A segment's dict is complete after those of its blocks. */
static void take_segment(snapshot *s) {
    uint64_t bytes = int_of(s, WORD_total_size), device = int_of(s, WORD_device);
    if (bytes && device < TIDE_RECORDING_DEVICES && !int_of(s, WORD_is_expandable))
        see_segment(s, int_of(s, WORD_address), bytes, stream_of_pool(s, WORD_segment_pool_id), (uint32_t)device,
                    SEGMENT_FINAL);
    for (; s->first_block < s->block_count; s->first_block++) {
        s->blocks[s->first_block].stream = stream_of_pool(s, WORD_segment_pool_id);
        s->blocks[s->first_block].device = (uint32_t)int_of(s, WORD_device);
    }
}

static void take_settings(snapshot *s) {
    pickle_value conf = item_of(s, WORD_PYTORCH_CUDA_ALLOC_CONF), split = item_of(s, WORD_max_split_size);
    if (conf.kind == PICKLE_TEXT) s->r->allocator = tide_text_copy(s->r->arena, s->r->names.names[conf.id]);
    s->is_expandable = int_of(s, WORD_expandable_segments) != 0;
    if (split.kind == PICKLE_INT && split.number < UINT64_MAX >> 1) s->max_split_bytes = split.number;
}

/* Sets the items from `from` to the top in the dict below them. */
static void set_items(tide_pickle *p, pickle_value *dict, uint32_t from) {
    snapshot *s = p->state;
    take_items(s, from);
    pickle_value action = item_of(s, WORD_action), file = item_of(s, WORD_filename), state = item_of(s, WORD_state);
    if (file.kind == PICKLE_TEXT)
        set_frame(s, dict, file);
    else if (s->section == WORD_device_traces && action.kind == PICKLE_TEXT)
        take_entry(s, action.id);
    else if (s->section == WORD_device_traces && p->mark_count)
        s->r->unreadable++;
    else if (s->section == WORD_segments && state.kind != PICKLE_OTHER)
        take_state_block(s, state);
    else if (s->section == WORD_segments)
        take_segment(s);
    else if (s->section == WORD_allocator_settings)
        take_settings(s);
}

/* Frames are ordered from the innermost outward. */
static void append_items(tide_pickle *p, pickle_value *list, uint32_t from) {
    snapshot *s = p->state;
    if (list->kind != PICKLE_LIST || from == p->count || p->values[from].kind != SNAPSHOT_FRAME) return;
    uint64_t hash = 0, key = list->number;
    for (uint32_t i = from; i < p->count; i++)
        hash = (hash ^ p->values[i].id) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    chain_entry *chain = &s->chains[hash >> (64 - CHAIN_BITS)];
    if (!chain->stack || chain->hash != hash) {
        *chain = (chain_entry){hash, 0};
        for (uint32_t i = p->count; i-- > from;)
            if (p->values[i].kind == SNAPSHOT_FRAME)
                chain->stack = tide_recording_stack(s->r, chain->stack, p->values[i].id);
    }
    *list = (pickle_value){SNAPSHOT_STACK, chain->stack, 0};
    tide_pickle_keep(p, key, list, s->section == WORD_segments);
}

/* Detects a key of the top-level dict: above its mark, at an even position. */
static void see_text(tide_pickle *p, uint32_t id) {
    snapshot *s = p->state;
    if (p->mark_count == 1 && p->marks[0] == 1 && p->count % 2 == 0) s->section = id;
}

static void see_list(tide_pickle *p) {
    snapshot *s = p->state;
    if (s->section != WORD_device_traces) return;
    if (p->mark_count == 1 && p->count % 2 == 1) {
        s->outer = p->count; /* the list of devices follows its key */
    } else if (s->outer && s->device <= TIDE_RECORDING_DEVICES) {
        bool is_only = p->mark_count == 1 && p->count == s->outer + 1;
        bool is_one_of = p->mark_count == 2 && p->marks[1] == s->outer + 1;
        if (!is_only && !is_one_of) return;
        if (s->device) release_held(s, tide_recording_tape(s->r, s->device - 1), false);
        if (++s->device <= TIDE_RECORDING_DEVICES) tide_recording_tape(s->r, s->device - 1);
    }
}

static const tide_pickle_hooks snapshot_hooks = {see_text, see_list, set_items, append_items};

static void open_snapshot(tide_recording *r) {
    static const char *const words[] = {
#define WORD(name) #name,
        SNAPSHOT_WORDS(WORD)
#undef WORD
    };
    snapshot *s = r->state = TIDE_NEW(r->arena, snapshot, 1);
    s->r = r;
    s->chains = TIDE_NEW(r->arena, chain_entry, 1 << CHAIN_BITS);
    s->max_split_bytes = UINT64_MAX;
    for (size_t i = 0; i < TIDE_COUNT_OF(words); i++) tide_name(&r->names, tide_text_of(words[i]));
    s->pickle.arena = r->arena;
    s->pickle.names = &r->names;
    s->pickle.first_names = KEY_WORD_COUNT;
    s->pickle.hooks = &snapshot_hooks;
    s->pickle.state = s;
    tide_pickle_init(&s->pickle);
}

static size_t read_snapshot(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    snapshot *s = r->state;
    const char *error;
    size_t used = 0;
    (void)is_last;
    while (used < length && !s->pickle.has_stopped) {
        size_t step = tide_pickle_step(&s->pickle, at + used, length - used, &error);
        if (error) return tide_recording_break(r, used, error, not_data);
        if (!step) break;
        used += step;
    }
    return s->pickle.has_stopped ? length : used;
}

/* Active blocks that no entry allocated are older than the entries. */
static void add_older_blocks(snapshot *s) {
    for (uint32_t i = 0; i < s->first_block; i++) {
        const final_block *b = &s->blocks[i];
        tide_tape *tape = tide_recording_tape(s->r, b->device);
        if (tape && !tide_tape_is_live(tape, b->address))
            tide_tape_older_block(tape, b->address, b->bytes, b->stream, b->stack);
    }
}

static int by_place(const void *a, const void *b) {
    const segment_seen *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->address != y->address) return x->address < y->address ? -1 : 1;
    if ((x->what == SEGMENT_FINAL) != (y->what == SEGMENT_FINAL)) return x->what == SEGMENT_FINAL ? 1 : -1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* A segment whose first mark is not its creation is older than the entries. */
static void add_older_segments(snapshot *s) {
    if (s->segment_count) qsort(s->segments, s->segment_count, sizeof *s->segments, by_place);
    for (uint32_t i = 0; i < s->segment_count; i++) {
        const segment_seen *seen = &s->segments[i];
        bool is_first = i == 0 || seen[-1].device != seen->device || seen[-1].address != seen->address;
        tide_tape *tape = tide_recording_tape(s->r, seen->device);
        if (is_first && seen->what != SEGMENT_MADE && tape)
            tide_tape_older_segment(tape, seen->address, seen->bytes, seen->stream);
    }
}

static void close_snapshot(tide_recording *r) {
    snapshot *s = r->state;
    if (s->device) release_held(s, tide_recording_tape(r, s->device - 1), false);
    if (!s->pickle.has_stopped)
        tide_recording_break(r, 0, "the pickle ends before its STOP", NULL);
    else
        add_older_blocks(s), add_older_segments(s);
    for (uint32_t i = 0; !s->has_completions && i < r->device_count; i++) tide_tape_no_pending_frees(&r->tapes[i]);
    if (r->allocator && *r->allocator) return;
    if (s->is_expandable)
        r->allocator = "expandable_segments:True";
    else if (s->max_split_bytes != UINT64_MAX)
        r->allocator = tide_format(r->arena, "max_split_size_mb:%llu", (unsigned long long)(s->max_split_bytes >> 20));
}

const tide_recording_reader tide_snapshot_reader = {"PyTorch memory snapshot", open_snapshot, read_snapshot,
                                                    close_snapshot};
