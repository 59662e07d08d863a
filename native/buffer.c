/* SPDX-License-Identifier: Apache-2.0 */
/* Growable text. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void buffer_fail(void) {
    fputs("tidemark: out of memory\n", stderr);
    exit(CLI_INTERNAL);
}

/* Grows an array to hold count elements and one more. */
void *cli_grow(void *array, size_t count, size_t size) {
    if (array && (count & (count - 1)) != 0) return array;
    void *moved = realloc(array, (count ? count * 2 : 1) * size);
    if (!moved) buffer_fail();
    return moved;
}

static void buffer_reserve(cli_buffer *buffer, size_t more) {
    if (buffer->capacity - buffer->length > more) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->length <= more) capacity *= 2;
    buffer->at = realloc(buffer->at, capacity);
    if (!buffer->at) buffer_fail();
    buffer->capacity = capacity;
}

void cli_append(cli_buffer *buffer, const char *text, size_t length) {
    buffer_reserve(buffer, length);
    if (length) memcpy(buffer->at + buffer->length, text, length);
    buffer->length += length;
    buffer->at[buffer->length] = 0;
}

void cli_append_text(cli_buffer *buffer, const char *terminated) {
    cli_append(buffer, terminated, strlen(terminated));
}

void cli_append_quoted(cli_buffer *buffer, const char *text, size_t length) {
    cli_append(buffer, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escape[8];
        int escape_length = snprintf(escape, sizeof escape, c < 0x20 ? "\\u%04x" : "\\%c", c);
        cli_append(buffer, text + from, i - from);
        cli_append(buffer, escape, (size_t)escape_length);
        from = i + 1;
    }
    cli_append(buffer, text + from, length - from);
    cli_append(buffer, "\"", 1);
}

void cli_format(cli_buffer *buffer, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0) return;
    buffer_reserve(buffer, (size_t)length);
    va_start(list, format);
    vsnprintf(buffer->at + buffer->length, (size_t)length + 1, format, list);
    va_end(list);
    buffer->length += (size_t)length;
}

void cli_buffer_free(cli_buffer *buffer) {
    free(buffer->at);
    *buffer = (cli_buffer){0};
}
