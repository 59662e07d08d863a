/* SPDX-License-Identifier: Apache-2.0 */
/* tidemark's own recordings (FORMAT.md): blocks, each verified as a whole before its records are used. */
#include <string.h>

#include "trace/format.h"
#include "trace/readers.h"

typedef struct tidemark_file {
    tide_tape *tape;
    uint32_t *stacks, stack_count, stack_capacity; /* our numbers, by the number in the file minus one */
    uint64_t address, time_us, start_us;
    bool has_magic, has_ended;
} tidemark_file;

typedef struct record {
    const unsigned char *at, *end;
    uint64_t numbers[6];
} record;

static bool read_varint(record *c, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->at == c->end) return false;
        unsigned char byte = *c->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return true;
        }
    }
    return false;
}

static int numbers_of(unsigned char kind) {
    switch (kind) {
#define COUNT_OF(letter, count)                                                                                        \
    case letter:                                                                                                       \
        return count;
        TIDE_RECORDS(COUNT_OF)
#undef COUNT_OF
    default:
        return -1;
    }
}

static void take_frame(tide_recording *r, tidemark_file *s, uint64_t parent, tide_text text) {
    uint32_t above = parent && parent <= s->stack_count ? s->stacks[parent - 1] : 0;
    TIDE_ROOM(r->arena, s->stacks, s->stack_count, s->stack_capacity);
    s->stacks[s->stack_count++] = tide_recording_stack(r, above, tide_name(&r->names, text));
}

static void take_record(tide_recording *r, tidemark_file *s, unsigned char kind, const uint64_t *n, tide_text text) {
    tide_tape *t = s->tape;
    uint32_t stack = n[3] && n[3] <= s->stack_count ? s->stacks[n[3] - 1] : 0;
    if (strchr("afpcSsMU", kind)) s->address += n[0] >> 1 ^ (0 - (n[0] & 1));
    switch (kind) {
    case 'H':
        tide_recording_facts(r, text);
        break;
    case 'F':
        take_frame(r, s, n[1], text);
        break;
    case 'a':
        tide_tape_alloc(t, s->address, n[1], n[2], stack);
        break;
    case 'f':
        tide_tape_free(t, s->address, 0, 0);
        break;
    case 'p':
        tide_tape_free_pending(t, s->address, 0, 0);
        break;
    case 'c':
        tide_tape_free_completed(t, s->address);
        break;
    case 'o':
        tide_tape_oom(t, n[0], n[1], n[2], stack);
        break;
    case 'S':
    case 'M':
        tide_tape_segment(t, false, n[1]);
        break;
    case 's':
    case 'U':
        tide_tape_segment(t, true, n[1]);
        break;
    case 'e':
        tide_tape_empty_cache(t);
        break;
    case 't':
        tide_tape_time_is(t, s->time_us += n[0]);
        break;
    case 'x':
        r->outside_bytes = n[0];
        break;
    case 'q':
        r->has_stats = true;
        r->stats = (tide_memory_stats){n[0], n[1], n[2], n[3], n[4], n[5]};
        r->never_retried = n[4] == 0;
        break;
    case 'E':
        s->has_ended = true;
        break;
    default:
        break; /* 'm': phases are not shown yet */
    }
}

/* False: the block contains something that is not a record. */
static bool take_block(tide_recording *r, tidemark_file *s, const unsigned char *at, size_t length) {
    record c = {.at = at, .end = at + length};
    s->address = s->time_us = 0;
    while (c.at < c.end) {
        unsigned char kind = *c.at++;
        int count = numbers_of(kind);
        tide_text text = {"", 0};
        memset(c.numbers, 0, sizeof c.numbers);
        for (int i = 0; i < count; i++)
            if (!read_varint(&c, &c.numbers[i])) return false;
        if (count < 0) return false;
        if (kind == 'H' || kind == 'F') {
            if (c.numbers[0] > (uint64_t)(c.end - c.at)) return false;
            text = (tide_text){(const char *)c.at, (size_t)c.numbers[0]};
            c.at += text.length;
        }
        take_record(r, s, kind, c.numbers, text);
    }
    return true;
}

static void open_tidemark(tide_recording *r) {
    tidemark_file *s = r->state = TIDE_NEW(r->arena, tidemark_file, 1);
    s->tape = tide_recording_tape(r, 0);
}

static uint32_t u32_at(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static size_t read_tidemark(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    tidemark_file *s = r->state;
    size_t used = 0;
    (void)is_last;
    if (!s->has_magic) used = TIDE_RECORDING_MAGIC_BYTES, s->has_magic = true;
    while (length - used >= TIDE_BLOCK_HEADER) {
        uint32_t size = u32_at(at + used);
        const unsigned char *payload = at + used + TIDE_BLOCK_HEADER;
        if (size == 0 || size > TIDE_BLOCK_LIMIT)
            return tide_recording_break(r, used, "a block has no possible length", NULL);
        if (length - used - TIDE_BLOCK_HEADER < size) break;
        if (tide_crc32(payload, size) != u32_at(at + used + 4))
            return tide_recording_break(r, used, "a block's checksum differs: it is damaged", NULL);
        if (!take_block(r, s, payload, size))
            return tide_recording_break(r, used, "a block holds a record of a kind that is not known",
                                        "a newer tidemark may read it");
        used += TIDE_BLOCK_HEADER + size;
    }
    return used;
}

static void close_tidemark(tide_recording *r) {
    tidemark_file *s = r->state;
    if (!s->has_ended)
        tide_recording_break(r, 0, "the recording was broken off: the process did not come to its end", NULL);
}

const tide_recording_reader tide_tidemark_reader = {"tidemark recording", open_tidemark, read_tidemark, close_tidemark};
