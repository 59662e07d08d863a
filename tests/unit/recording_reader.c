/* SPDX-License-Identifier: Apache-2.0 */
/* See recording_reader.h. */
#include "recording_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "harness.h"
#include "tidemark/tidemark.h"

bool bytes_append(void *user, const void *from, size_t length) {
    bytes *b = user;
    if (b->room && b->length + length > b->room) return false;
    b->at = realloc(b->at, b->length + length + 1);
    if (!b->at) abort();
    memcpy(b->at + b->length, from, length);
    b->length += length;
    return true;
}

bytes read_gz(const char *path) {
    static unsigned char piece[1 << 16];
    bytes file = {0};
    int length;
    gzFile from = gzopen(path, "rb");
    while (from && (length = gzread(from, piece, sizeof piece)) > 0) bytes_append(&file, piece, (size_t)length);
    if (from) gzclose(from);
    if (!file.length) complain(__LINE__, "%s cannot be read", path);
    return file;
}

cJSON *replay_pieces(const void *at, size_t length, size_t piece, const char *settings) {
    struct tide_recorded *recording;
    char request[256], *text = NULL;
    size_t size = 0;
    if (tide_recording_open(NULL, &recording) != 0) abort();
    for (size_t from = 0; from < length; from += piece)
        tide_recording_add(recording, (const char *)at + from, length - from < piece ? length - from : piece);
    snprintf(request, sizeof request, "{\"call\":\"replay\",\"settings\":[%s]}", settings);
    int status = tide_recording_call(recording, request, strlen(request), &text, &size);
    cJSON *answer = text ? cJSON_ParseWithLength(text, size) : NULL;
    CHECK(status != 2 && answer);
    if (text) tide_free(NULL, text, size);
    tide_recording_free(recording);
    return answer;
}

cJSON *replay(const bytes *file, const char *settings) {
    return replay_pieces(file->at, file->length, 1 << 20, settings);
}

uint64_t number(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(value)) complain(__LINE__, "no number \"%s\"", key);
    return value ? (uint64_t)value->valuedouble : 0;
}

const cJSON *at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

bool is_true(const cJSON *object, const char *key) {
    return cJSON_IsTrue(at(object, key));
}

bool says(const cJSON *answer, const char *part) {
    const cJSON *diagnostic;
    cJSON_ArrayForEach(diagnostic, at(answer, "diagnostics")) {
        const char *message = cJSON_GetStringValue(at(diagnostic, "message"));
        if (message && strstr(message, part)) return true;
    }
    return false;
}

static const char *const figures[] = {"allocated_peak", "reserved_peak", "allocated", "reserved", "retries", "ooms"};

void same_figures(const cJSON *have, const cJSON *want) {
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (number(have, figures[i]) != number(want, figures[i]))
            complain(__LINE__, "%s is %.0f, want %.0f", figures[i], (double)number(have, figures[i]),
                     (double)number(want, figures[i]));
}

void cut_anywhere(const bytes *file, size_t every) {
    for (size_t length = 0; length < file->length; length += length < 300 ? 7 : every) {
        cJSON *answer = replay_pieces(file->at, length, 1 << 20, "");
        CHECK(says(answer, "ends") || says(answer, "empty") || says(answer, "no recording"));
        if (is_true(answer, "ok")) CHECK(!is_true(at(answer, "recording"), "is_whole"));
        cJSON_Delete(answer);
    }
}

void flip_bits(bytes *file, size_t every) {
    for (size_t i = 0; i < file->length * 8; i += every) {
        file->at[i / 8] ^= (unsigned char)(1 << i % 8);
        cJSON *answer = replay(file, "");
        CHECK(answer != NULL);
        file->at[i / 8] ^= (unsigned char)(1 << i % 8);
        cJSON_Delete(answer);
    }
}
