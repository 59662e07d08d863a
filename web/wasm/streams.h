/* The code of a WebAssembly module as streams of like bytes, which pack better than the same bytes as they are mixed:
 * opcodes, indices of locals, constants, offsets and so on. One walk over the instructions both takes them apart and
 * joins them again: where the next byte belongs follows from those that went before. Sizes of functions are left out;
 * joined ones are written in five bytes each. WebAssembly core specification 2.0, 5.4 Instructions and 5.5.13 Code
 * Section; exceptions as in the legacy proposal. */
#ifndef TIDE_STREAMS_H
#define TIDE_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum stream {
    STREAM_OPCODES, /* with immediates of which there are few, or few different ones */
    STREAM_LOCALS,
    STREAM_OFFSETS,
    STREAM_CONSTANTS,
    STREAM_FUNCTIONS,
    STREAM_LABELS,
    STREAM_DECLARED, /* types of locals */
    STREAM_WIDE,     /* constants of 64 bits, and of floating point */
    STREAM_COUNT
};

typedef struct stream_bytes {
    uint8_t *next, *end;
} stream_bytes;

typedef struct stream_walk {
    stream_bytes code, streams[STREAM_COUNT];
    bool is_join;
    bool is_damaged; /* something ended too soon, or had no room */
} stream_walk;

static uint8_t stream_move(stream_walk *walk, enum stream kind) {
    stream_bytes *from = walk->is_join ? &walk->streams[kind] : &walk->code;
    stream_bytes *to = walk->is_join ? &walk->code : &walk->streams[kind];
    if (from->next == from->end || to->next == to->end) {
        walk->is_damaged = true;
        return 0;
    }
    return *to->next++ = *from->next++;
}

/* LEB128. */
static uint32_t stream_number(stream_walk *walk, enum stream kind) {
    uint32_t value = 0, byte = 0x80;
    for (unsigned shift = 0; byte & 0x80; shift += 7) {
        byte = stream_move(walk, kind);
        if (shift < 32) value |= (byte & 0x7f) << shift;
    }
    return value;
}

static void stream_numbers(stream_walk *walk, enum stream kind, uint32_t count) {
    while (count-- && !walk->is_damaged) stream_number(walk, kind);
}

static void stream_raw(stream_walk *walk, enum stream kind, unsigned count) {
    while (count--) stream_move(walk, kind);
}

/* How many blocks this instruction opens, or -1: it ends one. */
static int stream_instruction(stream_walk *walk) {
    uint8_t opcode = stream_move(walk, STREAM_OPCODES);
    if (opcode >= 0x28 && opcode <= 0x3e) { /* load, store: alignment, offset */
        stream_number(walk, STREAM_OPCODES);
        stream_number(walk, STREAM_OFFSETS);
        return 0;
    }
    switch (opcode) {
    case 0x02:
    case 0x03:
    case 0x04:
    case 0x06: /* block, loop, if, try */
        stream_number(walk, STREAM_OPCODES);
        return 1;
    case 0x0b:
        return -1; /* end */
    case 0x18:     /* delegate */
        stream_number(walk, STREAM_LABELS);
        return -1;
    case 0x09:
    case 0x0c:
    case 0x0d: /* rethrow, br, br_if */
        stream_number(walk, STREAM_LABELS);
        return 0;
    case 0x0e: /* br_table */
        stream_numbers(walk, STREAM_LABELS, stream_number(walk, STREAM_OPCODES));
        stream_number(walk, STREAM_LABELS);
        return 0;
    case 0x10: /* call */
        stream_number(walk, STREAM_FUNCTIONS);
        return 0;
    case 0x20:
    case 0x21:
    case 0x22: /* local.get, local.set, local.tee */
        stream_number(walk, STREAM_LOCALS);
        return 0;
    case 0x41: /* i32.const */
        stream_number(walk, STREAM_CONSTANTS);
        return 0;
    case 0x42: /* i64.const */
        stream_number(walk, STREAM_WIDE);
        return 0;
    case 0x43:
    case 0x44: /* f32.const, f64.const */
        stream_raw(walk, STREAM_WIDE, opcode == 0x43 ? 4 : 8);
        return 0;
    case 0x07:
    case 0x08:
    case 0x23:
    case 0x24:
    case 0x3f:
    case 0x40: /* catch, throw, global.get, global.set, memory.size, memory.grow */
        stream_number(walk, STREAM_OPCODES);
        return 0;
    case 0x11: /* call_indirect */
        stream_numbers(walk, STREAM_OPCODES, 2);
        return 0;
    case 0x1c: /* select with types */
        stream_numbers(walk, STREAM_OPCODES, stream_number(walk, STREAM_OPCODES));
        return 0;
    case 0xfc: { /* of numbers; memory and tables */
        uint32_t which = stream_number(walk, STREAM_OPCODES);
        bool is_of_two = which == 8 || which == 10 || which == 12 || which == 14;
        stream_numbers(walk, STREAM_OPCODES, which < 8 ? 0 : is_of_two ? 2 : 1);
        return 0;
    }
    default:
        return 0;
    }
}

/* Takes the content of a code section apart, or joins it. False: it ends too soon, or something is left. */
static bool stream_code(stream_walk *walk) {
    for (uint32_t functions = stream_number(walk, STREAM_DECLARED); functions && !walk->is_damaged; functions--) {
        uint8_t *size = walk->code.next;
        if (walk->is_join && walk->code.end - size < 5) return false;
        if (walk->is_join)
            walk->code.next += 5;
        else
            while (walk->code.next < walk->code.end && *walk->code.next++ & 0x80) {
            }
        for (uint32_t groups = stream_number(walk, STREAM_DECLARED); groups && !walk->is_damaged; groups--)
            stream_numbers(walk, STREAM_DECLARED, 2);
        for (int depth = 1; depth && !walk->is_damaged;) depth += stream_instruction(walk);
        if (!walk->is_join) continue;
        uint32_t length = (uint32_t)(walk->code.next - size) - 5;
        for (unsigned i = 0; i < 5; i++) size[i] = (uint8_t)((length >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
    }
    if (!walk->is_join) return !walk->is_damaged && walk->code.next == walk->code.end;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        if (walk->streams[i].next != walk->streams[i].end) return false;
    return !walk->is_damaged;
}

#endif
