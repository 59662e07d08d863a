/* SPDX-License-Identifier: Apache-2.0 */
/* Reading recordings: megabytes a second, and the memory that it takes. One JSON line a figure.
 *
 *     bench_recording [MEGABYTES]
 *
 * A snapshot and a trace of that size (1000) are made while they are read, and only the reading is timed: training
 * steps of 400 tensors that are taken forwards and given back backwards, from stacks of twelve Python frames. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "tidemark/tidemark.h"

enum { TENSORS = 400, FRAMES = 12, TEXT = 1 << 20 };

static uint64_t host_bytes, host_peak;

static void *bench_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    host_bytes += new_size - old_size;
    if (host_bytes > host_peak) host_peak = host_bytes;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static const tide_allocator hook = {bench_resize, NULL};

/* Of this process: what others do meanwhile is not counted. */
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct reading {
    struct tide_recorded *recording;
    double seconds;
    uint64_t bytes;
    char text[TEXT];
    size_t length;
} reading;

static void flush(reading *r) {
    double start = now_s();
    if (tide_recording_add(r->recording, r->text, r->length) != 0) abort();
    r->seconds += now_s() - start;
    r->bytes += r->length;
    r->length = 0;
}

static void put(reading *r, const void *bytes, size_t length) {
    if (r->length + length > TEXT) flush(r);
    memcpy(r->text + r->length, bytes, length);
    r->length += length;
}

static uint64_t tensor_bytes(uint64_t i) {
    return 4096 * (1 + i % 7 * 300 + i);
}
static uint64_t tensor_address(uint64_t i) {
    return UINT64_C(0x7f0000000000) + (i << 25);
}

/* ---- a snapshot ---- */

static unsigned memo; /* texts so far: keys and frames are the first of the memo */

static void put_text(reading *r, const char *text) {
    unsigned char head[2] = {0x8c, (unsigned char)strlen(text)};
    put(r, head, 2);
    put(r, text, strlen(text));
    put(r, "\x94", 1);
    memo++;
}

static void put_get(reading *r, unsigned index) {
    unsigned char code[2] = {'h', (unsigned char)index};
    put(r, code, 2);
}

static void put_long(reading *r, uint64_t value) {
    unsigned char code[10] = {0x8a, 8};
    for (int i = 0; i < 8; i++) code[2 + i] = (unsigned char)(value >> 8 * i);
    put(r, code, sizeof code);
}

enum { K_ACTION, K_ADDR, K_SIZE, K_STREAM, K_TIME, K_FRAMES, K_ALLOC, K_FREE, K_DONE, K_NAME, K_FILE, K_LINE, KEYS };

static void put_entry(reading *r, unsigned action, uint64_t i, uint64_t time) {
    put(r, "}\x94(", 3);
    put_get(r, K_ACTION), put_get(r, action);
    put_get(r, K_ADDR), put_long(r, tensor_address(i));
    put_get(r, K_SIZE), put_long(r, tensor_bytes(i));
    put_get(r, K_STREAM), put(r, "K\0", 2);
    put_get(r, K_TIME), put_long(r, time);
    put_get(r, K_FRAMES), put(r, "]\x94", 2);
    if (action == K_ALLOC) {
        put(r, "(", 1);
        for (unsigned f = 0; f < FRAMES; f++) put_get(r, KEYS + 100 + (unsigned)((i % 8) * FRAMES + f));
        put(r, "e", 1);
    }
    put(r, "u", 1);
}

/* Frames are made once, in a list that is thrown away; each takes a place for its file and one for itself. */
static void put_frames(reading *r) {
    while (memo < KEYS + 100) put_text(r, "filler"), put(r, "0", 1);
    for (unsigned f = 0; f < 8 * FRAMES; f++) {
        char name[32];
        snprintf(name, sizeof name, "function_%u", f);
        put(r, "}\x94(", 3);
        memo++;
        put_get(r, K_NAME), put_get(r, K_ALLOC);
        put_get(r, K_FILE), put_get(r, K_FREE);
        put_get(r, K_LINE), put(r, "K", 1), put(r, &(unsigned char){(unsigned char)f}, 1);
        put(r, "u0", 2);
    }
}

static void put_snapshot(reading *r, uint64_t bytes) {
    static const char *const keys[KEYS] = {"action", "addr",           "size",           "stream", "time_us",  "frames",
                                           "alloc",  "free_requested", "free_completed", "name",   "filename", "line"};
    memo = 0;
    put(r, "\x80\x04", 2);
    for (unsigned i = 0; i < KEYS; i++) put_text(r, keys[i]), put(r, "0", 1);
    put_frames(r);
    put(r, "}(", 2);
    put_text(r, "device_traces");
    put(r, "]]", 2);
    for (uint64_t time = 0; r->bytes < bytes;) {
        put(r, "(", 1);
        for (uint64_t i = 0; i < TENSORS; i++) put_entry(r, K_ALLOC, i, time++);
        for (uint64_t i = TENSORS; i-- > 0;) put_entry(r, K_FREE, i, time), put_entry(r, K_DONE, i, time++);
        put(r, "e", 1);
    }
    put(r, "au.", 3);
}

/* ---- a trace ---- */

static void put_event(reading *r, const char *kind, uint64_t time, uint64_t i, int64_t bytes) {
    char text[512];
    int length;
    if (kind)
        length = snprintf(text, sizeof text,
                          "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 4711, \"tid\": "
                          "4711,\n    \"ts\": %" PRIu64 ".%03u, \"dur\": 4.250,\n    \"args\": {\n      \"External "
                          "id\": %u,\"Record function id\": 0, \"Sequence number\": %u, "
                          "\"Fwd thread id\": 0, \"Input type\": [\"float\", \"float\"], \"Input Dims\": [[16, 1024, "
                          "4096], [4096, 4096]], \"Ev Idx\": %u\n    }\n  },\n",
                          kind, time, (unsigned)(time % 1000), (unsigned)i, (unsigned)i, (unsigned)time);
    else
        length =
            snprintf(text, sizeof text,
                     "  {\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\",\n  "
                     "  \"pid\": 4711, \"tid\": 4711,\n"
                     "    \"ts\": %" PRIu64
                     ".500,\n    \"args\": {\n      \"Total Reserved\": 90000000000, \"Total Allocated\": 80000000000, "
                     "\"Bytes\": %" PRId64 ", \"Device Id\": 0, \"Device Type\": 1, \"Addr\": %" PRIu64
                     ", \"Ev Idx\": %u\n    }\n  },\n",
                     time, bytes, tensor_address(i), (unsigned)time);
    put(r, text, (size_t)length);
}

static void put_trace(reading *r, uint64_t bytes) {
    static const char head[] = "{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n", tail[] = "  {\"ph\": \"M\"}]}\n";
    put(r, head, sizeof head - 1);
    for (uint64_t time = 0; r->bytes < bytes;) {
        for (uint64_t i = 0; i < TENSORS; i++) {
            put_event(r, "aten::linear", ++time, i, 0);
            put_event(r, "aten::addmm", time, i, 0);
            put_event(r, NULL, time, i, (int64_t)tensor_bytes(i));
        }
        for (uint64_t i = TENSORS; i-- > 0;) {
            put_event(r, "AddmmBackward0", ++time, i, 0);
            put_event(r, NULL, time, i, -(int64_t)tensor_bytes(i));
        }
    }
    put(r, tail, sizeof tail - 1);
}

/* ---- figures ---- */

static uint64_t number_in(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

static void measure(const char *name, void (*make)(reading *r, uint64_t bytes), uint64_t bytes) {
    static const char question[] = "{\"call\":\"replay\"}";
    reading *r = calloc(1, sizeof *r);
    char *answer;
    size_t length;
    host_bytes = host_peak = 0;
    if (!r || tide_recording_open(&hook, &r->recording) != 0) abort();
    make(r, bytes);
    flush(r);
    uint64_t reading_peak = host_peak;
    double start = now_s();
    int status = tide_recording_call(r->recording, question, sizeof question - 1, &answer, &length);
    double played = now_s() - start;
    if (status != 0 || !strstr(answer, "\"is_whole\":true")) {
        fprintf(stderr, "%s: %.300s\n", name, answer ? answer : "no memory");
        exit(1);
    }
    uint64_t events = number_in(answer, "\"events\":");
    printf("{\"name\":\"%s_read\",\"value\":%.0f,\"unit\":\"MB/s\"}\n", name, (double)r->bytes / 1e6 / r->seconds);
    printf("{\"name\":\"%s_memory_reading\",\"value\":%.1f,\"unit\":\"MiB\"}\n", name,
           (double)reading_peak / (1 << 20));
    printf("{\"name\":\"%s_memory\",\"value\":%.1f,\"unit\":\"MiB\"}\n", name, (double)host_peak / (1 << 20));
    printf("{\"name\":\"%s_events\",\"value\":%" PRIu64 ",\"unit\":\"events\"}\n", name, events);
    printf("{\"name\":\"%s_answer\",\"value\":%.2f,\"unit\":\"s\"}\n", name, played);
    tide_free(&hook, answer, length);
    tide_recording_free(r->recording);
    free(r);
}

int main(int argc, char **argv) {
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1000) * 1000000;
    measure("snapshot", put_snapshot, bytes);
    measure("trace", put_trace, bytes);
    return 0;
}
