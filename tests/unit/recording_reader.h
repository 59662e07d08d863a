/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings in memory and their answers: what the suites of core/src/trace/ share. */
#ifndef TEST_RECORDING_READER_H
#define TEST_RECORDING_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

typedef struct bytes {
    unsigned char *at;
    size_t length, room; /* room: the sink fails beyond; 0: never */
} bytes;

/* The sink of struct tide_recorder; user: bytes. */
bool bytes_append(void *user, const void *from, size_t length);
/* The whole of a file that gzip wrote, or of one that it did not; complains where it cannot be read. */
bytes read_gz(const char *path);

/* The bytes in pieces of `piece`, then the question; NULL: memory ran out. */
cJSON *replay_pieces(const void *at, size_t length, size_t piece, const char *settings);
cJSON *replay(const bytes *file, const char *settings);

uint64_t number(const cJSON *object, const char *key);
const cJSON *at(const cJSON *object, const char *key);
bool is_true(const cJSON *object, const char *key);
/* Whether a diagnostic of an answer has `part` in it. */
bool says(const cJSON *answer, const char *part);
/* The figures of the allocator that a recording and its answer both have. */
void same_figures(const cJSON *have, const cJSON *want);

/* Each prefix of a recording is answered, and none is called whole. */
void cut_anywhere(const bytes *file, size_t every);
/* Each bit of some flipped in turn: the answer is one, whatever it says. */
void flip_bits(bytes *file, size_t every);

#endif
