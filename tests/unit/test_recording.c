/* Recordings: the writer and the readers. A failure points to core/src/recording/.
 *
 *     test_recording ORACLE_FOLDER */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "recording/format.h"
#include "tidemark/recorder.h"

static int passed, failed;
static bool test_ok;
static const char *test_name;

static void begin(const char *name) {
    test_name = name;
    test_ok = true;
}

static void complain(const char *format, ...) {
    va_list arguments;
    if (test_ok) printf("FAIL %s\n", test_name);
    test_ok = false;
    va_start(arguments, format);
    printf("  ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static void end(void) {
    if (test_ok) passed++;
    else failed++;
}

#define CHECK(what) ((what) ? (void)0 : complain("line %d: %s", __LINE__, #what))
#define EQUAL(have, want) equal_at(__LINE__, #have, (have), (want))

static void equal_at(int line, const char *what, uint64_t have, uint64_t want) {
    if (have != want) complain("line %d: %s is %" PRIu64 ", want %" PRIu64, line, what, have, want);
}

/* ---- bytes in memory ---- */

typedef struct bytes {
    unsigned char *at;
    size_t length, room; /* room: the sink fails beyond; 0: never */
} bytes;

static bool bytes_append(void *user, const void *from, size_t length) {
    bytes *b = user;
    if (b->room && b->length + length > b->room) return false;
    b->at = realloc(b->at, b->length + length + 1);
    if (!b->at) abort();
    memcpy(b->at + b->length, from, length);
    b->length += length;
    return true;
}

/* ---- the writer ---- */

static void test_writer(void) {
    tide_recorder *r = malloc(sizeof *r);
    bytes file = {0};
    begin("a recording is a magic number and whole blocks with their CRC-32");
    CHECK(tide_crc32((const unsigned char *)"123456789", 9) == 0xcbf43926);
    CHECK(tide_recorder_begin(r, bytes_append, &file, "{\"source\":\"test\"}"));
    for (uint64_t i = 0; i < 20000; i++) {
        tide_recorder_alloc(r, 0x7f0000000000 + i * 512, i, 0, 0);
        tide_recorder_free(r, 0x7f0000000000 + i * 512);
    }
    CHECK(tide_recorder_end(r));
    EQUAL(file.length, r->written);
    CHECK(memcmp(file.at, TIDE_RECORDING_MAGIC, TIDE_RECORDING_MAGIC_BYTES) == 0);
    size_t at = TIDE_RECORDING_MAGIC_BYTES, blocks = 0;
    for (; at + TIDE_BLOCK_HEADER <= file.length; blocks++) {
        uint32_t length, crc;
        memcpy(&length, file.at + at, 4);
        memcpy(&crc, file.at + at + 4, 4);
        CHECK(length >= 1 && length <= TIDE_BLOCK_LIMIT);
        EQUAL(crc, crc32(0, file.at + at + TIDE_BLOCK_HEADER, length));
        at += TIDE_BLOCK_HEADER + length;
    }
    EQUAL(at, file.length);
    CHECK(blocks > 3);
    end();
    begin("a sink that fails ends the recording, and is not called again");
    bytes full = {.room = 40000};
    CHECK(tide_recorder_begin(r, bytes_append, &full, NULL));
    for (uint64_t i = 0; i < 20000; i++) tide_recorder_alloc(r, i * 512, 1, 0, 0);
    CHECK(!tide_recorder_end(r));
    EQUAL(full.length, r->written);
    end();
    free(full.at);
    free(file.at);
    free(r);
}

int main(int argc, char **argv) {
    (void)argc, (void)argv;
    test_writer();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
