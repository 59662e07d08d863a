/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer. */
#include "base/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void tide_writer_init(tide_writer *writer, tide_arena *arena) {
    *writer = (tide_writer){.arena = arena};
}

static void reserve_bytes(tide_writer *writer, size_t length) {
    size_t capacity = writer->capacity ? writer->capacity : 16384;
    while (capacity - writer->length < length) capacity *= 2;
    if (capacity > UINT32_MAX / 2) tide_arena_fail(writer->arena);
    writer->bytes = tide_arena_grow(writer->arena, writer->bytes, writer->capacity, capacity);
    writer->capacity = (uint32_t)capacity;
}

static void write_bytes(tide_writer *writer, const char *bytes, size_t length) {
    if (writer->capacity - writer->length < length) reserve_bytes(writer, length);
    memcpy(writer->bytes + writer->length, bytes, length);
    writer->length += (uint32_t)length;
}

static void put_char(tide_writer *writer, char c) {
    if (writer->capacity == writer->length) reserve_bytes(writer, 1);
    writer->bytes[writer->length++] = c;
}

static void before_value(tide_writer *writer) {
    if (writer->needs_comma) put_char(writer, ',');
    writer->needs_comma = true;
}

void tide_write_open(tide_writer *writer, char bracket) {
    before_value(writer);
    put_char(writer, bracket);
    writer->needs_comma = false;
}

void tide_write_close(tide_writer *writer, char bracket) {
    put_char(writer, bracket);
    writer->needs_comma = true;
}

/* Length of the valid UTF-8 sequence at `at`; 0 if there is none. */
static size_t utf8_length(const unsigned char *at, size_t left) {
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (length == 3 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f))) return 0;
    if (length == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))) return 0;
    return length;
}

static bool needs_no_escape(unsigned char c) {
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static void put_quoted(tide_writer *writer, tide_text text) {
    put_char(writer, '"');
    for (size_t i = 0; i < text.length;) {
        const unsigned char *at = (const unsigned char *)text.at + i;
        size_t length = 0, left = text.length - i;
        while (length < left && needs_no_escape(at[length])) length++;
        if (!length && *at >= 0x80) length = utf8_length(at, left);
        if (length) {
            write_bytes(writer, (const char *)at, length);
            i += length;
            continue;
        }
        if (*at >= 0x80) {
            write_bytes(writer, "\xef\xbf\xbd", 3);
        } else if (*at == '"' || *at == '\\') {
            put_char(writer, '\\');
            put_char(writer, (char)*at);
        } else {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", *at);
            write_bytes(writer, escape, 6);
        }
        i++;
    }
    put_char(writer, '"');
}

void tide_write_key(tide_writer *writer, const char *key) {
    before_value(writer);
    put_quoted(writer, tide_text_of(key));
    put_char(writer, ':');
    writer->needs_comma = false;
}

void tide_write_text(tide_writer *writer, tide_text text) {
    before_value(writer);
    put_quoted(writer, text);
}

void tide_write_string(tide_writer *writer, const char *terminated) {
    tide_write_text(writer, tide_text_of(terminated));
}

void tide_write_int(tide_writer *writer, int64_t value) {
    char digits[TIDE_DIGITS + 1];
    size_t sign = value < 0, length;
    digits[0] = '-';
    length = sign + tide_digits(digits + sign, sign ? 0 - (uint64_t)value : (uint64_t)value);
    if (value > (INT64_C(1) << 53) - 1 || value < -(INT64_C(1) << 53) + 1) {
        tide_write_text(writer, (tide_text){digits, length});
        return;
    }
    before_value(writer);
    write_bytes(writer, digits, length);
}

void tide_write_bool(tide_writer *writer, bool value) {
    before_value(writer);
    write_bytes(writer, value ? "true" : "false", value ? 4 : 5);
}

void tide_write_null(tide_writer *writer) {
    before_value(writer);
    write_bytes(writer, "null", 4);
}

void tide_write_open_at(tide_writer *writer, const char *key, char bracket) {
    tide_write_key(writer, key);
    tide_write_open(writer, bracket);
}

void tide_write_string_at(tide_writer *writer, const char *key, const char *terminated) {
    tide_write_key(writer, key);
    tide_write_string(writer, terminated);
}

void tide_write_int_at(tide_writer *writer, const char *key, int64_t value) {
    tide_write_key(writer, key);
    tide_write_int(writer, value);
}

void tide_write_bytes_at(tide_writer *writer, const char *key, uint64_t value) {
    tide_write_key(writer, key);
    tide_write_int(writer, (int64_t)value);
}

void tide_write_bool_at(tide_writer *writer, const char *key, bool value) {
    tide_write_key(writer, key);
    tide_write_bool(writer, value);
}
