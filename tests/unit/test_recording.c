/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: the writer, event files and tidemark's own form. A failure points to core/src/trace/.
 *
 *     test_recording ORACLE_FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "harness.h"
#include "recorded_streams.h"
#include "recording_reader.h"
#include "tidemark/recorder.h"
#include "trace/format.h"

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

/* ---- event files ---- */

static const char *oracle;

static const char *const streams[] = {RECORDED_STREAMS};

static bytes read_stream(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/events/events-%s.jsonl.gz", oracle, name);
    return read_gz(path);
}

/* The header line of an event file. */
static cJSON *header_of(const bytes *file) {
    return cJSON_ParseWithLength((char *)file->at, file->length);
}

static void test_events(void) {
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        begin(streams[i]);
        bytes file = read_stream(streams[i]);
        cJSON *want = header_of(&file), *have = replay(&file, "");
        same_figures(have, want);
        CHECK(is_true(at(have, "recording"), "is_whole"));
        bool fits = number(at(have, "verdict"), "smallest_device_bytes") <= number(at(have, "verdict"), "gpu_bytes");
        EQUAL(is_true(at(have, "verdict"), "fits"), number(want, "ooms") == 0);
        EQUAL(fits, number(want, "ooms") == 0);
        cJSON_Delete(want);
        cJSON_Delete(have);
        free(file.at);
        end();
    }
}

static void test_pieces(void) {
    begin("pieces of any size give one answer");
    bytes file = read_stream("decode");
    cJSON *whole = replay(&file, "");
    static const size_t sizes[] = {1, 7, 4093, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cJSON *pieces = replay_pieces(file.at, file.length, sizes[i], "");
        CHECK(cJSON_Compare(whole, pieces, true));
        cJSON_Delete(pieces);
    }
    cJSON_Delete(whole);
    free(file.at);
    end();
}

/* On the smallest device it runs, on one page less it does not. */
static void test_smallest(void) {
    static const char *const names[] = {"plain", "max-split", "expandable", "retry", "oom"};
    begin("the smallest device is the edge between running and not");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bytes file = read_stream(names[i]);
        cJSON *answer = replay(&file, "");
        uint64_t edge = number(at(answer, "verdict"), "smallest_device_bytes") >> 20;
        for (int below = 0; below < 2; below++) {
            char settings[64];
            uint64_t mib = edge - (below ? 2 : 0);
            snprintf(settings, sizeof settings, "\"gpu_gib=%" PRIu64 ".%010" PRIu64 "\"", mib / 1024,
                     mib % 1024 * UINT64_C(9765625));
            cJSON *there = replay(&file, settings);
            EQUAL(is_true(at(there, "verdict"), "fits"), !below);
            cJSON_Delete(there);
        }
        cJSON_Delete(answer);
        free(file.at);
    }
    end();
}

/* ---- tidemark's own ---- */

/* An event file as a tidemark recording, by the public writer. */
static bytes converted(const bytes *events) {
    tide_recorder *r = malloc(sizeof *r);
    bytes file = {0};
    const char *line = (char *)events->at, *end = line + events->length;
    cJSON *header = header_of(events);
    char facts[512];
    snprintf(facts, sizeof facts, "{\"device_bytes\":%.0f,\"allocator\":\"%s\",\"memory_fraction_ppm\":%.0f}",
             (double)number(header, "device_bytes"), cJSON_GetStringValue(at(at(header, "case"), "allocator")),
             1e6 * cJSON_GetNumberValue(at(at(header, "case"), "memory_fraction")));
    char *null_fraction = strstr(facts, "nan");
    if (null_fraction) memcpy(null_fraction, "0  ", 3);
    tide_recorder_begin(r, bytes_append, &file, facts);
    uint32_t stack =
        tide_recorder_frame(r, tide_recorder_frame(r, 0, "train.py:1 <module>", 19), "train.py:12 step", 16);
    while ((line = memchr(line, '\n', (size_t)(end - line))) && ++line < end) {
        char kind;
        uint64_t n[3] = {0};
        if (sscanf(line, "[\"%c\",%" SCNu64 ",%" SCNu64 ",%" SCNu64, &kind, &n[0], &n[1], &n[2]) < 2) break;
        uint32_t stream = (uint32_t)n[2];
        if (kind == 'a')
            tide_recorder_alloc(r, n[0], n[1], stream, stack);
        else if (kind == 'f')
            tide_recorder_free(r, n[0]);
        else if (kind == 'c')
            tide_recorder_free_completed(r, n[0]);
        else if (kind == 'o')
            tide_recorder_oom(r, n[0], n[1], stream, stack);
        else
            tide_recorder_segment(r, (tide_recorder_event)kind, n[0], n[1], stream);
    }
    tide_recorder_statistics(r, number(header, "allocated"), number(header, "reserved"),
                             number(header, "allocated_peak"), number(header, "reserved_peak"),
                             number(header, "retries"), number(header, "ooms"));
    CHECK(tide_recorder_end(r));
    cJSON_Delete(header);
    free(r);
    return file;
}

static void test_tide(void) {
    begin("a tidemark recording plays as what it was made from");
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        bytes events = read_stream(streams[i]), file = converted(&events);
        cJSON *want = header_of(&events), *have = replay(&file, "");
        same_figures(have, want);
        const cJSON *first = cJSON_GetArrayItem(at(have, "live_at_peak"), 0), *frames = at(first, "frames");
        CHECK(cJSON_GetArraySize(frames) == 2 &&
              strcmp(cJSON_GetArrayItem(frames, 0)->valuestring, "train.py:12 step") == 0);
        cJSON_Delete(want);
        cJSON_Delete(have);
        free(events.at);
        free(file.at);
    }
    end();
    begin("cut at any byte, all whole blocks are played and the break is said");
    bytes events = read_stream("plain"), file = converted(&events);
    for (size_t length = 0; length < file.length; length += length < 200 ? 1 : 997) {
        cJSON *answer = replay_pieces(file.at, length, 1 << 20, "");
        CHECK(says(answer, "broken off") || says(answer, "middle of an item") || says(answer, "recording"));
        if (is_true(answer, "ok")) CHECK(!is_true(at(answer, "recording"), "is_whole"));
        cJSON_Delete(answer);
    }
    end();
    begin("a flipped bit anywhere is found by the checksum");
    for (size_t i = TIDE_RECORDING_MAGIC_BYTES; i < file.length; i += 331) {
        file.at[i] ^= 16;
        cJSON *answer = replay(&file, "");
        CHECK(!is_true(answer, "ok") || !is_true(at(answer, "recording"), "is_whole"));
        file.at[i] ^= 16;
        cJSON_Delete(answer);
    }
    free(events.at);
    free(file.at);
    end();
}

/* Frees that wait for other streams, told as p and c, or as f and c. */
static void test_waits(void) {
    tide_recorder *r = malloc(sizeof *r);
    for (int told = 0; told < 2; told++) {
        bytes file = {0};
        begin(told ? "a free that turns out to have waited"
                   : "a block that waits for other streams is not reused before it is back");
        tide_recorder_begin(r, bytes_append, &file, NULL);
        tide_recorder_alloc(r, 0x1000000, 12 << 20, 0, 0);
        if (told)
            tide_recorder_free(r, 0x1000000);
        else
            tide_recorder_free_pending(r, 0x1000000);
        tide_recorder_alloc(r, 0x2000000, 12 << 20, 0, 0);
        tide_recorder_free_completed(r, 0x1000000);
        tide_recorder_alloc(r, 0x1000000, 12 << 20, 0, 0);
        tide_recorder_end(r);
        cJSON *answer = replay(&file, "");
        EQUAL(number(answer, "reserved_peak"), 24 << 20);
        EQUAL(number(answer, "allocated"), 24 << 20);
        cJSON_Delete(answer);
        free(file.at);
        end();
    }
    free(r);
}

/* Note [Who gave memory back] */
static void test_give_backs(void) {
    tide_recorder *r = malloc(sizeof *r);
    bytes file = {0};
    begin("segments that go without a request go by empty_cache()");
    tide_recorder_begin(r, bytes_append, &file, NULL);
    for (int i = 0; i < 2; i++) {
        tide_recorder_segment(r, TIDE_RECORDED_SEGMENT_ALLOC, 0x10000000, 40 << 20, 0);
        tide_recorder_alloc(r, 0x10000000, 40 << 20, 0, 0);
        tide_recorder_free(r, 0x10000000);
        tide_recorder_segment(r, TIDE_RECORDED_SEGMENT_FREE, 0x10000000, 40 << 20, 0);
    }
    tide_recorder_end(r);
    cJSON *answer = replay(&file, "");
    EQUAL(number(answer, "reserved_peak"), 40 << 20);
    EQUAL(number(answer, "reserved"), 0);
    EQUAL(number(answer, "retries"), 0);
    cJSON_Delete(answer);
    file.length = 0;
    end();
    begin("segments that go before one that would not have fitted went by a retry, and show the room");
    tide_recorder_begin(r, bytes_append, &file, NULL);
    tide_recorder_segment(r, TIDE_RECORDED_SEGMENT_ALLOC, 0x10000000, 40 << 20, 0);
    tide_recorder_alloc(r, 0x10000000, 40 << 20, 0, 0);
    tide_recorder_free(r, 0x10000000);
    tide_recorder_segment(r, TIDE_RECORDED_SEGMENT_FREE, 0x10000000, 40 << 20, 0);
    tide_recorder_segment(r, TIDE_RECORDED_SEGMENT_ALLOC, 0x20000000, 50 << 20, 0);
    tide_recorder_alloc(r, 0x20000000, 50 << 20, 0, 0);
    tide_recorder_end(r);
    answer = replay(&file, "");
    EQUAL(number(answer, "reserved_peak"), 50 << 20);
    EQUAL(number(answer, "retries"), 1);
    cJSON_Delete(answer);
    answer = replay(&file, "\"gpu_gib=1\"");
    EQUAL(number(answer, "reserved_peak"), 90 << 20);
    EQUAL(number(answer, "retries"), 0);
    cJSON_Delete(answer);
    free(file.at);
    free(r);
    end();
}

/* ---- what is no recording ---- */

static void test_nonsense(void) {
    static const struct {
        const char *bytes, *says;
        size_t length;
    } rows[] = {{"", "empty", 0},
                {"hello, this is text", "no recording", 19},
                {"\x1f\x8b\x08zzzzzzzz", "gzip", 11},
                {"TIDEREC1", "broken off", 8},
                {"TIDEREC1\xff\xff\xff\xff____", "length", 16},
                {"{\"case\":{}}\n[\"a\",0,5,0]\n[\"x\"]\n", "line 3", 31},
                {"{\"case\":{}}\n[\"a\",99999999999999999999999,5,0]\n", "line 2", 46}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].says);
        cJSON *answer = replay_pieces(rows[i].bytes, rows[i].length, 1 << 20, "");
        CHECK(says(answer, rows[i].says));
        cJSON_Delete(answer);
        end();
    }
    begin("settings of the job cannot be changed afterwards");
    bytes file = read_stream("decode");
    cJSON *answer = replay(&file, "\"batch=4\"");
    CHECK(!is_true(answer, "ok") && says(answer, "includes its job"));
    cJSON_Delete(answer);
    free(file.at);
    end();
}

int main(int argc, char **argv) {
    oracle = argc > 1 ? argv[1] : "tests/oracle";
    test_writer();
    test_events();
    test_pieces();
    test_smallest();
    test_tide();
    test_waits();
    test_give_backs();
    test_nonsense();
    return report_tests();
}
