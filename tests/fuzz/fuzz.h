/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: a growing request and the call. */
#ifndef TIDE_FUZZ_H
#define TIDE_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct fuzz_request {
    char *at;
    size_t length, capacity;
} fuzz_request;

static inline void fuzz_append(fuzz_request *request, const char *text, size_t length) {
    if (request->capacity - request->length < length + 1) {
        request->capacity = (request->capacity + length + 1) * 2;
        request->at = realloc(request->at, request->capacity);
        if (!request->at) abort();
    }
    memcpy(request->at + request->length, text, length);
    request->length += length;
}

static inline void fuzz_text(fuzz_request *request, const char *terminated) {
    fuzz_append(request, terminated, strlen(terminated));
}

/* As a JSON string. */
static inline void fuzz_quoted(fuzz_request *request, const char *text, size_t length) {
    fuzz_text(request, "\"");
    for (size_t i = 0; i < length; i++) {
        char piece[8];
        unsigned char c = (unsigned char)text[i];
        int size = c < 0x20                ? snprintf(piece, sizeof piece, "\\u%04x", c)
                   : c == '"' || c == '\\' ? snprintf(piece, sizeof piece, "\\%c", c)
                                           : snprintf(piece, sizeof piece, "%c", c);
        fuzz_append(request, piece, (size_t)size);
    }
    fuzz_text(request, "\"");
}

/* Asks, checks what every answer keeps to, and gives all memory back. */
static inline void fuzz_call(fuzz_request *request) {
    char *response = NULL;
    size_t length = 0;
    int status = tide_call(request->at, request->length, NULL, &response, &length);
    if (status < 0 || status > 2 || (status == 2) != (response == NULL)) abort();
    if (status == 0 && strncmp(response, "{\"ok\":true", 10) != 0) abort();
    if (status == 1 && strncmp(response, "{\"ok\":false", 11) != 0) abort();
    if (response) tide_free(NULL, response, length);
    free(request->at);
}

#endif
