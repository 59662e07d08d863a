/* Which kind a recording is, its pieces, and what all kinds share. */
#include "trace/recording.h"

#include <string.h>

#include "base/json_read.h"
#include "trace/format.h"

enum { STACK_LIMIT = 1 << 22 };

void tide_recording_init(tide_recording *r, tide_arena *arena) {
    *r = (tide_recording){.arena = arena};
    tide_names_init(&r->names, arena);
}

size_t tide_recording_break(tide_recording *r, size_t at, const char *what, const char *remedy) {
    if (r->broken) return at;
    r->broken = what;
    r->remedy = remedy;
    r->broken_at = r->offset + at;
    return at;
}

tide_tape *tide_recording_tape(tide_recording *r, uint64_t device) {
    if (device >= TIDE_RECORDING_DEVICES) return NULL;
    while (r->device_count <= device) tide_tape_init(&r->tapes[r->device_count++], r->arena);
    return &r->tapes[device];
}

/* ---- stacks ---- */

static uint32_t *stack_place(tide_recording *r, uint32_t parent, uint32_t frame) {
    uint32_t mask = r->stack_slot_count - 1, at = (parent * 0x9e3779b9u ^ frame * 0x85ebca6bu) >> 7 & mask;
    for (; r->stack_slots[at]; at = (at + 1) & mask) {
        const tide_stack *s = &r->stacks[r->stack_slots[at]];
        if (s->parent == parent && s->frame == frame) break;
    }
    return &r->stack_slots[at];
}

uint32_t tide_recording_stack(tide_recording *r, uint32_t parent, uint32_t frame) {
    if (!r->stack_count) {
        TIDE_ROOM(r->arena, r->stacks, r->stack_count, r->stack_capacity);
        r->stack_count = 1;
    }
    if (r->stack_count * 2 >= r->stack_slot_count) {
        size_t old = r->stack_slot_count;
        r->stack_slot_count = old ? (uint32_t)old * 2 : 1024;
        r->stack_slots = tide_arena_grow(r->arena, r->stack_slots, old * 4, (size_t)r->stack_slot_count * 4);
        memset(r->stack_slots, 0, old * 4);
        for (uint32_t i = 1; i < r->stack_count; i++) *stack_place(r, r->stacks[i].parent, r->stacks[i].frame) = i;
    }
    uint32_t *place = stack_place(r, parent, frame);
    if (*place || r->stack_count >= STACK_LIMIT) return *place ? *place : parent;
    *place = r->stack_count;
    TIDE_ROOM(r->arena, r->stacks, r->stack_count, r->stack_capacity);
    r->stacks[r->stack_count] = (tide_stack){parent, frame};
    return r->stack_count++;
}

/* ---- facts ---- */

static void take_bytes(uint64_t *out, const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    if (value && value->is_integer && value->integer > 0) *out = (uint64_t)value->integer;
}

static const char *take_text(const char *old, const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return value && value->kind == TIDE_JSON_STRING ? value->text.at : old;
}

void tide_recording_facts(tide_recording *r, tide_text json) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, r->arena);
    const tide_json *facts = tide_json_parse(r->arena, json, "", &diags), *of_case = tide_json_at(facts, "case");
    if (!facts || facts->kind != TIDE_JSON_OBJECT) {
        r->unreadable++;
        return;
    }
    take_bytes(&r->device_bytes, facts, "device_bytes");
    take_bytes(&r->outside_bytes, facts, "outside_bytes");
    uint64_t ppm = 0;
    take_bytes(&ppm, facts, "memory_fraction_ppm");
    if (ppm && ppm <= 1000000) r->memory_fraction_ppm = (int64_t)ppm;
    const tide_json *fraction = tide_json_at(of_case, "memory_fraction");
    if (fraction && fraction->number > 0 && fraction->number <= 1)
        r->memory_fraction_ppm = (int64_t)(fraction->number * 1e6 + 0.5);
    r->allocator = take_text(take_text(r->allocator, facts, "allocator"), of_case, "allocator");
    r->source = take_text(r->source, facts, "source");
    if (tide_json_at(facts, "reserved_peak")) {
        const tide_json *retries = tide_json_at(facts, "retries");
        r->has_said = true;
        r->never_retried = retries && retries->is_integer && retries->integer == 0;
        take_bytes(&r->said.allocated, facts, "allocated");
        take_bytes(&r->said.reserved, facts, "reserved");
        take_bytes(&r->said.allocated_peak, facts, "allocated_peak");
        take_bytes(&r->said.reserved_peak, facts, "reserved_peak");
        take_bytes(&r->said.retries, facts, "retries");
        take_bytes(&r->said.ooms, facts, "ooms");
    }
}

/* ---- the kinds ---- */

static bool is_blank(unsigned char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Text that begins with {: event files have a header line, and arrays below it. */
static const tide_reader *kind_of_text(const unsigned char *at, size_t length, bool is_last) {
    const unsigned char *line_end = memchr(at, '\n', length);
    if (!line_end) return is_last || length >= TIDE_RECORDING_ITEM ? &tide_trace_reader : NULL;
    const unsigned char *last = line_end, *next = line_end + 1, *end = at + length;
    while (last > at && is_blank(last[-1])) last--;
    if (last == at || last[-1] != '}') return &tide_trace_reader;
    while (next < end && is_blank(*next)) next++;
    if (next == end) return is_last ? &tide_events_reader : NULL;
    return *next == '[' ? &tide_events_reader : &tide_trace_reader;
}

/* NULL: not known, or not known yet. */
static const tide_reader *kind_of(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    size_t blank = 0;
    if (length < TIDE_RECORDING_MAGIC_BYTES && !is_last) return NULL;
    if (length >= 2 && at[0] == 0x80 && at[1] >= 2 && at[1] <= 5) return &tide_snapshot_reader;
    if (length >= TIDE_RECORDING_MAGIC_BYTES && !memcmp(at, TIDE_RECORDING_MAGIC, TIDE_RECORDING_MAGIC_BYTES))
        return &tide_tide_reader;
    while (blank < length && is_blank(at[blank])) blank++;
    if (blank < length && at[blank] == '[') return &tide_trace_reader;
    if (blank < length && at[blank] == '{') return kind_of_text(at + blank, length - blank, is_last);
    if (length >= 2 && at[0] == 0x1f && at[1] == 0x8b)
        tide_recording_break(r, 0, "the bytes are gzip", "decompress them first");
    else if (length == 0)
        tide_recording_break(r, 0, "the recording is empty", NULL);
    else
        tide_recording_break(
            r, 0, "no recording that tidemark reads",
            "give a snapshot of torch.cuda.memory, a trace of torch.profiler, or a tidemark recording");
    return NULL;
}

static void read_carry(tide_recording *r, bool is_last) {
    size_t used = 0;
    if (!r->reader && !r->broken) {
        r->reader = kind_of(r, r->carry, r->carry_length, is_last);
        if (r->reader) r->reader->open(r);
    }
    if (r->reader && !r->broken) used = r->reader->read(r, r->carry, r->carry_length, is_last);
    if (used > r->carry_length) used = r->carry_length;
    r->offset += used;
    r->carry_length -= used;
    if (used && r->carry_length) memmove(r->carry, r->carry + used, r->carry_length);
    if (r->carry_length >= TIDE_RECORDING_ITEM && !r->broken)
        tide_recording_break(r, 0, "an item is longer than 1 MiB", "is this file damaged?");
}

void tide_recording_feed(tide_recording *r, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    while (length && !r->broken) {
        size_t piece = length < TIDE_RECORDING_PIECE ? length : TIDE_RECORDING_PIECE;
        if (r->carry_capacity - r->carry_length < piece) {
            size_t grown = r->carry_capacity * 2 + TIDE_RECORDING_PIECE;
            r->carry = tide_arena_grow(r->arena, r->carry, r->carry_capacity, grown);
            r->carry_capacity = grown;
        }
        memcpy(r->carry + r->carry_length, at, piece);
        r->carry_length += piece;
        at += piece;
        length -= piece;
        read_carry(r, false);
    }
}

void tide_recording_end(tide_recording *r) {
    bool was_broken = r->broken != NULL;
    if (!r->broken) read_carry(r, true);
    if (r->carry_length && !r->broken) tide_recording_break(r, 0, "the recording ends in the middle of an item", NULL);
    if (r->reader && r->reader->close) r->reader->close(r);
    r->ends_early = r->broken && !was_broken;
    for (uint32_t i = 0; i < r->device_count; i++) tide_tape_close(&r->tapes[i]);
    if (r->carry) tide_arena_drop(r->arena, r->carry);
    r->carry = NULL;
}
