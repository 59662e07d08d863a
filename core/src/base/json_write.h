/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer: integers, strings and booleans only, so that the output is the same everywhere. */
#ifndef TIDE_BASE_JSON_WRITE_H
#define TIDE_BASE_JSON_WRITE_H

#include "base/text.h"

typedef struct tide_writer {
    tide_arena *arena;
    char *bytes;
    uint32_t length, capacity;
    bool needs_comma;
} tide_writer;

void tide_writer_init(tide_writer *writer, tide_arena *arena);

void tide_write_open(tide_writer *writer, char bracket); /* '{' or '[' */
void tide_write_close(tide_writer *writer, char bracket);
void tide_write_key(tide_writer *writer, const char *key);
void tide_write_text(tide_writer *writer, tide_text text); /* escaped; invalid UTF-8 becomes U+FFFD */
void tide_write_string(tide_writer *writer, const char *terminated);
void tide_write_int(tide_writer *writer, int64_t value); /* as a string if above 2^53 - 1 */
void tide_write_bool(tide_writer *writer, bool value);
void tide_write_null(tide_writer *writer);

/* Key and value in one. */
void tide_write_open_at(tide_writer *writer, const char *key, char bracket);
void tide_write_string_at(tide_writer *writer, const char *key, const char *terminated);
void tide_write_int_at(tide_writer *writer, const char *key, int64_t value);
void tide_write_bytes_at(tide_writer *writer, const char *key, uint64_t value);
void tide_write_bool_at(tide_writer *writer, const char *key, bool value);

#endif
