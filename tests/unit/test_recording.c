/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: the writer and the readers. A failure points to core/src/trace/.
 *
 *     test_recording ORACLE_FOLDER RECORDINGS_FOLDER */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cjson/cJSON.h>

#include "recorded_streams.h"
#include "tidemark/recorder.h"
#include "tidemark/tidemark.h"
#include "trace/format.h"

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
    if (test_ok)
        passed++;
    else
        failed++;
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

/* ---- answers ---- */

/* The bytes in pieces of `piece`, then the question; NULL: memory ran out. */
static cJSON *replay_pieces(const void *at, size_t length, size_t piece, const char *settings) {
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

static cJSON *replay(const bytes *file, const char *settings) {
    return replay_pieces(file->at, file->length, 1 << 20, settings);
}

static uint64_t number(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(value)) complain("no number \"%s\"", key);
    return value ? (uint64_t)value->valuedouble : 0;
}

static const cJSON *at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool is_true(const cJSON *object, const char *key) {
    return cJSON_IsTrue(at(object, key));
}

static bool says(const cJSON *answer, const char *part) {
    const cJSON *diagnostic;
    cJSON_ArrayForEach(diagnostic, at(answer, "diagnostics")) {
        const char *message = cJSON_GetStringValue(at(diagnostic, "message"));
        if (message && strstr(message, part)) return true;
    }
    return false;
}

static const char *const figures[] = {"allocated_peak", "reserved_peak", "allocated", "reserved", "retries", "ooms"};

static void same_figures(const cJSON *have, const cJSON *want) {
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (number(have, figures[i]) != number(want, figures[i]))
            complain("%s is %.0f, want %.0f", figures[i], (double)number(have, figures[i]),
                     (double)number(want, figures[i]));
}

/* ---- event files ---- */

static const char *oracle;

static bytes read_gz(const char *path) {
    static unsigned char piece[1 << 16];
    bytes file = {0};
    int length;
    gzFile from = gzopen(path, "rb");
    while (from && (length = gzread(from, piece, sizeof piece)) > 0) bytes_append(&file, piece, (size_t)length);
    if (from) gzclose(from);
    if (!file.length) complain("%s cannot be read", path);
    return file;
}

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
    }
    end();
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

/* ---- PyTorch's own recordings: tests/recordings ---- */

static const char *recordings;

static bytes read_recording(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", recordings, name);
    return read_gz(path);
}

/* expected.jsonl: what torch.cuda.memory_stats() said when the recording was made. */
static void test_recordings(void) {
    char path[1024], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/expected.jsonl", recordings);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        cJSON *want = cJSON_Parse(line);
        const char *name = cJSON_GetStringValue(at(want, "file"));
        begin(name ? name : "expected.jsonl");
        bytes recording = read_recording(name ? name : "");
        cJSON *have = replay(&recording, "");
        same_figures(have, want);
        CHECK(is_true(at(have, "recording"), "is_whole"));
        EQUAL(number(at(have, "recording"), "before") > 0, is_true(want, "begins_late"));
        cJSON_Delete(have);
        cJSON_Delete(want);
        free(recording.at);
        end();
        count++;
    }
    begin("tests/recordings is there");
    CHECK(count > 0);
    if (file) fclose(file);
    end();
}

static void test_frames(void) {
    begin("what is live at the peak is told by Python frame and size");
    bytes file = read_recording("snapshot-plain.pickle.gz");
    cJSON *answer = replay(&file, "");
    const cJSON *first = cJSON_GetArrayItem(at(answer, "live_at_peak"), 0);
    CHECK(strcmp(cJSON_GetStringValue(at(first, "frame")), "snap.py:11 train") == 0);
    EQUAL(number(first, "bytes"), 128 << 20);
    EQUAL(number(first, "count"), 8);
    uint64_t sum = 0;
    const cJSON *group;
    cJSON_ArrayForEach(group, at(answer, "live_at_peak")) sum += number(group, at(group, "rest") ? "rest" : "bytes");
    EQUAL(sum, number(answer, "allocated_peak"));
    cJSON_Delete(answer);
    free(file.at);
    end();
}

static void cut_anywhere(const bytes *file, size_t every) {
    for (size_t length = 0; length < file->length; length += length < 300 ? 7 : every) {
        cJSON *answer = replay_pieces(file->at, length, 1 << 20, "");
        CHECK(says(answer, "ends") || says(answer, "empty") || says(answer, "no recording"));
        if (is_true(answer, "ok")) CHECK(!is_true(at(answer, "recording"), "is_whole"));
        cJSON_Delete(answer);
    }
}

static void flip_bits(bytes *file, size_t every) {
    for (size_t i = 0; i < file->length * 8; i += every) {
        file->at[i / 8] ^= (unsigned char)(1 << i % 8);
        cJSON *answer = replay(file, "");
        CHECK(answer != NULL);
        file->at[i / 8] ^= (unsigned char)(1 << i % 8);
        cJSON_Delete(answer);
    }
}

static void test_damaged_snapshots(void) {
    bytes file = read_recording("snapshot-streams.pickle.gz");
    begin("a snapshot cut anywhere gives what stands before the cut, and says so");
    cut_anywhere(&file, 491);
    bytes part = {.at = file.at, .length = file.length * 9 / 10};
    cJSON *answer = replay(&part, "");
    CHECK(is_true(answer, "ok") && number(answer, "reserved_peak") > 20 << 20);
    cJSON_Delete(answer);
    end();
    begin("a snapshot with a flipped bit is answered, whatever it says");
    flip_bits(&file, 997);
    free(file.at);
    end();
}

static void test_hostile_pickles(void) {
    static const struct {
        const char *name, *bytes, *says;
        size_t length;
    } rows[] = {{"GLOBAL",
                 "\x80\x04"
                 "cos\nsystem\n",
                 "opcode GLOBAL", 13},
                {"STACK_GLOBAL", "\x80\x04\x8c\x02os\x8c\x06system\x93", "opcode STACK_GLOBAL", 15},
                {"REDUCE", "\x80\x04)R.", "opcode REDUCE", 5},
                {"BUILD", "\x80\x04}b......", "opcode BUILD", 10},
                {"NEWOBJ", "\x80\x04)\x81.....", "opcode NEWOBJ", 9},
                {"INST", "\x80\x04(ios\nx\n", "opcode INST", 9},
                {"PERSID", "\x80\x04Pxxxxxxx", "opcode PERSID", 10},
                {"a list that holds itself",
                 "\x80\x04]\x94h\x00"
                 "a.",
                 "no request", 8},
                {"a dict that holds itself", "\x80\x04}\x94K\x01h\x00s.", "no request", 10},
                {"a text of 2^63 bytes", "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "512 KiB", 11},
                {"a number of 2 GiB", "\x80\x04\x8b\xff\xff\xff\x7fxxxx", "512 KiB", 11},
                {"a place in the memo that is not there", "\x80\x04j\xff\xff\xff\xff.", "has not been said", 8},
                {"a place in the memo that is far", "\x80\x04}r\xfe\xff\xff\xff.", "no request", 9},
                {"APPENDS on nothing", "\x80\x04(e......", "needs more values", 10},
                {"SETITEM on nothing", "\x80\x04s.......", "needs more values", 10},
                {"POP beyond a mark", "\x80\x04](0.....", "needs more values", 10},
                {"no opcode", "\x80\x04\xff.......", "no opcode of pickle: 0xff", 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].name);
        cJSON *answer = replay_pieces(rows[i].bytes, rows[i].length, 1 << 20, "");
        CHECK(!is_true(answer, "ok"));
        if (!says(answer, rows[i].says)) complain("does not say \"%s\"", rows[i].says);
        cJSON_Delete(answer);
        end();
    }
    begin("a million marks, a million values");
    for (int which = 0; which < 2; which++) {
        bytes deep = {.at = malloc(1000000), .length = 1000000};
        memset(deep.at, which ? 'N' : '(', deep.length);
        memcpy(deep.at, "\x80\x04", 2);
        cJSON *answer = replay(&deep, "");
        CHECK(says(answer, which ? "more values at once" : "nested deeper"));
        cJSON_Delete(answer);
        free(deep.at);
    }
    end();
}

static void test_traces(void) {
    begin("a run without a GPU is an estimate, and says what it puts right");
    bytes file = read_recording("trace-cpu.json.gz");
    cJSON *answer = replay(&file, "");
    CHECK(is_true(at(answer, "recording"), "is_estimate"));
    CHECK(cJSON_GetArraySize(at(answer, "differences")) >= 4);
    cJSON_Delete(answer);
    end();
    begin("cuBLAS takes less on a card before Hopper, and the estimate follows");
    answer = replay(&file, "\"gpu=h100-80\"");
    cJSON *older = replay(&file, "\"gpu=a100-80\"");
    CHECK(number(answer, "reserved_peak") > number(older, "reserved_peak"));
    cJSON_Delete(answer);
    cJSON_Delete(older);
    end();
    begin("a trace cut anywhere gives what stands before the cut, and says so");
    cut_anywhere(&file, 17321);
    end();
    begin("a trace with a flipped bit is answered, whatever it says");
    flip_bits(&file, 51117);
    free(file.at);
    end();
    begin("a trace that is an array, keys in another order, numbers in quotes, blanks and escapes");
    static const char odd[] =
        " [ {\"args\":{\"Bytes\":\"1024\",\"Addr\":77,\"Device Type\":1,\"Device "
        "Id\":0},\"name\":\"[memory]\",\"ts\":2.5,\"pid\":1,\"tid\":1,"
        "\"ph\":\"i\"},\n\t{\"name\":\"a \\\" } ] "
        "\\\\\",\"ph\":\"X\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":9,\"pid\":1,\"tid\":\"1\"} ] \n ";
    for (size_t piece = 1; piece < sizeof odd; piece += 50) {
        answer = replay_pieces(odd, sizeof odd - 1, piece, "");
        CHECK(is_true(answer, "ok") && is_true(at(answer, "recording"), "is_whole"));
        EQUAL(number(answer, "allocated_peak"), 1024);
        cJSON_Delete(answer);
    }
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
    CHECK(!is_true(answer, "ok") && says(answer, "has its job in it"));
    cJSON_Delete(answer);
    free(file.at);
    end();
}

int main(int argc, char **argv) {
    oracle = argc > 1 ? argv[1] : "tests/oracle";
    recordings = argc > 2 ? argv[2] : "tests/recordings";
    test_writer();
    test_events();
    test_pieces();
    test_smallest();
    test_tide();
    test_waits();
    test_give_backs();
    test_recordings();
    test_frames();
    test_damaged_snapshots();
    test_hostile_pickles();
    test_traces();
    test_nonsense();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
