/* SPDX-License-Identifier: Apache-2.0 */
/* Files that may be gzip, as bytes or as lines. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 256 << 10 };

/* ---- bytes ---- */

bool cli_source_open(cli_source *source, const char *path) {
    bool is_stdin = strcmp(path, "-") == 0;
    *source = (cli_source){.path = path, .limit = UINT64_MAX};
    if (!is_stdin && cli_is_folder(path))
        errno = EISDIR;
    else
        source->file = is_stdin ? gzdopen(dup(0), "rb") : gzopen(path, "rb");
    if (source->file) gzbuffer(source->file, PIECE);
    return source->file != NULL;
}

size_t cli_source_read(cli_source *source, void *into, size_t size) {
    if (source->damage || source->error) return 0;
    int code, length = gzread(source->file, into, (unsigned)(size < PIECE ? size : PIECE));
    if (length > 0) {
        source->total += (uint64_t)length;
        if (source->total <= source->limit) return (size_t)length;
        source->damage = source->limit_text;
        return 0;
    }
    gzerror(source->file, &code);
    if (length < 0 && code == Z_ERRNO)
        source->error = errno;
    else if (length < 0 && code != Z_BUF_ERROR)
        source->damage = "the gzip file is damaged";
    else if (code == Z_BUF_ERROR) /* reported when a file ends in the middle of its stream */
        source->damage = "the gzip file is truncated";
    return 0;
}

void cli_source_close(cli_source *source) {
    if (source->file && gzclose(source->file) == Z_BUF_ERROR && !source->damage)
        source->damage = "the gzip file is truncated";
    source->file = NULL;
}

/* ---- lines ---- */

bool cli_lines_open(cli_lines *lines, const char *path) {
    *lines = (cli_lines){0};
    if (!cli_source_open(&lines->source, path)) return false;
    lines->piece = cli_grow(NULL, PIECE / 2, 1);
    return true;
}

/* Reads more bytes; false: there are none. */
static bool piece_fill(cli_lines *lines) {
    lines->at = 0;
    lines->length = cli_source_read(&lines->source, lines->piece, PIECE);
    return lines->length > 0;
}

bool cli_next_line(cli_lines *lines) {
    cli_buffer *line = &lines->line;
    line->length = 0;
    lines->is_too_long = false;
    bool is_any = false, is_end = false;
    while (!is_end && (lines->at < lines->length || piece_fill(lines))) {
        const char *from = lines->piece + lines->at, *end = memchr(from, '\n', lines->length - lines->at);
        size_t length = end ? (size_t)(end - from) : lines->length - lines->at;
        is_any = true;
        is_end = end != NULL;
        lines->at += length + (is_end ? 1 : 0);
        if (line->length + length > CLI_FILE_LIMIT) lines->is_too_long = true;
        if (!lines->is_too_long) cli_append(line, from, length);
    }
    /* Text before a damaged place is not a line. */
    return is_any && (is_end || !(lines->source.damage || lines->source.error));
}

void cli_lines_close(cli_lines *lines) {
    cli_source_close(&lines->source);
    cli_buffer_free(&lines->line);
    free(lines->piece);
    lines->piece = NULL;
}
