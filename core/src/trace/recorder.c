/* SPDX-License-Identifier: Apache-2.0 */
/* Writing tidemark recordings: records are collected in a block, blocks are appended. */
#include "tidemark/recorder.h"

#include <string.h>

#include "trace/format.h"

/* The longest record without a text: a kind and six varints. */
enum { RECORD_LIMIT = 1 + 6 * 10 };

uint32_t tide_crc32(const unsigned char *bytes, size_t length) {
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c}; /* by half a byte */
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static void hand_over(tide_recorder *r, const void *bytes, size_t length) {
    if (!r->has_failed && !r->sink(r->user, bytes, length)) r->has_failed = true;
    if (!r->has_failed) r->written += length;
}

bool tide_recorder_flush(tide_recorder *r) {
    if (r->length) {
        put_u32(r->buffer, r->length);
        put_u32(r->buffer + 4, tide_crc32(r->buffer + TIDE_BLOCK_HEADER, r->length));
        hand_over(r, r->buffer, TIDE_BLOCK_HEADER + r->length);
    }
    r->length = 0;
    r->address = r->time_us = 0;
    return !r->has_failed;
}

static void put_varint(tide_recorder *r, uint64_t value) {
    unsigned char *at = r->buffer + TIDE_BLOCK_HEADER;
    for (; value > 127; value >>= 7) at[r->length++] = (unsigned char)(value | 128);
    at[r->length++] = (unsigned char)value;
}

/* Makes room for a record with `text` bytes after it. */
static void put_kind(tide_recorder *r, char kind, size_t text) {
    if (r->length + RECORD_LIMIT + text > TIDE_RECORDER_BLOCK) tide_recorder_flush(r);
    r->buffer[TIDE_BLOCK_HEADER + r->length++] = (unsigned char)kind;
}

static void put_record(tide_recorder *r, char kind, unsigned count, const uint64_t *numbers) {
    put_kind(r, kind, 0);
    for (unsigned i = 0; i < count; i++) put_varint(r, numbers[i]);
}

static void put_at(tide_recorder *r, char kind, uint64_t address, unsigned count, const uint64_t *numbers) {
    put_kind(r, kind, 0);
    uint64_t step = address - r->address;
    put_varint(r, step << 1 ^ (0 - (step >> 63)));
    r->address = address;
    for (unsigned i = 0; i < count; i++) put_varint(r, numbers[i]);
}

static void put_text(tide_recorder *r, const char *text, size_t length) {
    memcpy(r->buffer + TIDE_BLOCK_HEADER + r->length, text, length);
    r->length += (uint32_t)length;
}

bool tide_recorder_begin(tide_recorder *r, tide_recorder_sink *sink, void *user, const char *facts) {
    r->sink = sink;
    r->user = user;
    r->has_failed = false;
    r->length = r->frames = 0;
    r->address = r->time_us = r->written = 0;
    hand_over(r, TIDE_RECORDING_MAGIC, TIDE_RECORDING_MAGIC_BYTES);
    if (facts) tide_recorder_facts(r, facts);
    return tide_recorder_flush(r);
}

void tide_recorder_facts(tide_recorder *r, const char *facts) {
    size_t length = strlen(facts);
    if (length > TIDE_RECORDER_TEXT) return;
    put_kind(r, 'H', length);
    put_varint(r, length);
    put_text(r, facts, length);
}

uint32_t tide_recorder_frame(tide_recorder *r, uint32_t parent, const char *text, size_t length) {
    if (length > TIDE_RECORDER_TEXT) length = TIDE_RECORDER_TEXT;
    put_kind(r, 'F', length);
    put_varint(r, length);
    put_varint(r, parent);
    put_text(r, text, length);
    return ++r->frames;
}

void tide_recorder_alloc(tide_recorder *r, uint64_t address, uint64_t bytes, uint32_t stream, uint32_t stack) {
    put_at(r, 'a', address, 3, (const uint64_t[]){bytes, stream, stack});
}

void tide_recorder_free(tide_recorder *r, uint64_t address) {
    put_at(r, 'f', address, 0, NULL);
}

void tide_recorder_free_pending(tide_recorder *r, uint64_t address) {
    put_at(r, 'p', address, 0, NULL);
}

void tide_recorder_free_completed(tide_recorder *r, uint64_t address) {
    put_at(r, 'c', address, 0, NULL);
}

void tide_recorder_oom(tide_recorder *r, uint64_t free_bytes, uint64_t bytes, uint32_t stream, uint32_t stack) {
    put_record(r, 'o', 4, (const uint64_t[]){free_bytes, bytes, stream, stack});
}

void tide_recorder_segment(tide_recorder *r, tide_recorder_event what, uint64_t address, uint64_t bytes,
                           uint32_t stream) {
    put_at(r, (char)what, address, 2, (const uint64_t[]){bytes, stream});
}

void tide_recorder_empty_cache(tide_recorder *r) {
    put_record(r, 'e', 0, NULL);
}

void tide_recorder_time(tide_recorder *r, uint64_t microseconds) {
    put_kind(r, 't', 0); /* may start a block, which counts from 0 */
    put_varint(r, microseconds - r->time_us);
    r->time_us = microseconds;
}

void tide_recorder_mark(tide_recorder *r, uint32_t step, uint32_t phase) {
    put_record(r, 'm', 2, (const uint64_t[]){step, phase});
}

void tide_recorder_outside(tide_recorder *r, uint64_t bytes) {
    put_record(r, 'x', 1, &bytes);
}

void tide_recorder_statistics(tide_recorder *r, uint64_t allocated, uint64_t reserved, uint64_t allocated_peak,
                              uint64_t reserved_peak, uint64_t retries, uint64_t ooms) {
    put_record(r, 'q', 6, (const uint64_t[]){allocated, reserved, allocated_peak, reserved_peak, retries, ooms});
}

bool tide_recorder_end(tide_recorder *r) {
    put_record(r, 'E', 0, NULL);
    return tide_recorder_flush(r);
}
