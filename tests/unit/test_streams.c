/* Failures point to web/wasm/streams.h: what it takes apart it must join again, and damaged streams must not lead it
 * outside. Of real modules web/pack.mjs checks it whenever it packs one. */
#include "../../web/wasm/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };

/* Two functions: one of all instructions that have immediates, one of nothing. */
static const uint8_t code[] = {
    2,    0,    2,    3,    0x7f, 1,    0x7e, /* its size is written below; locals: three i32, one i64 */
    0x02, 0x40, 0x03, 0x7f, 0x06, 0x40,       /* block, loop, try */
    0x20, 0x81, 0x01, 0x21, 2,    0x22, 3,    /* local.get 129, local.set 2, local.tee 3 */
    0x41, 0xe5, 0x8e, 0x26, 0x42, 0x80, 0x7f, /* i32.const, i64.const */
    0x43, 0,    0,    0x80, 0x3f, 0x44, 0,    0,    0,    0,    0, 0,    0xf0, 0x3f, /* f32.const 1, f64.const 1 */
    0x28, 2,    0x90, 0x08, 0x3a, 0,    5,    0x6a,                         /* i32.load 1040, i32.store8 5, i32.add */
    0x10, 7,    0x11, 1,    0,    0x23, 0,    0x24, 0,    0x3f, 0, 0x40, 0, /* calls, globals, memory */
    0x0c, 0,    0x0d, 1,    0x0e, 1,    0,    2, /* br, br_if, br_table of one and the default */
    0xfc, 0x0a, 0,    0,    0xfc, 0x0b, 0,    0xfc, 0x02, 0x1c, 1, 0x7f, /* memory.copy, memory.fill, i32.trunc_sat,
                                                                            select i32 */
    0x07, 0,    0x08, 0,    0x09, 0,                                     /* catch, throw, rethrow */
    0x18, 0,    0x0b, 0x0b, 0x0b,                                        /* delegate ends the try; end, end, end */
    2,    0,    0x0b,
};

static int passed, failed;

static void check(bool is_right, const char *what) {
    if (is_right)
        passed++;
    else
        failed++, printf("FAIL %s\n", what);
}

static uint64_t state = 88172645463325252u;
static uint32_t below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state % limit);
}

/* Each in memory of its own size, so that a step outside shows. */
static stream_bytes room_of(const uint8_t *bytes, size_t size) {
    uint8_t *at = malloc(size ? size : 1);
    if (!at) abort();
    if (bytes && size) memcpy(at, bytes, size);
    return (stream_bytes){at, at + size};
}

static bool take_apart(const uint8_t *bytes, size_t size, stream_bytes parts[STREAM_COUNT]) {
    stream_bytes copy = room_of(bytes, size);
    stream_walk walk = {.code = copy};
    for (unsigned i = 0; i < STREAM_COUNT; i++) parts[i] = walk.streams[i] = room_of(NULL, ROOM);
    bool is_right = stream_code(&walk);
    for (unsigned i = 0; i < STREAM_COUNT; i++) parts[i].end = walk.streams[i].next;
    free(copy.next);
    return is_right;
}

/* *size: of the room, then of what was joined. */
static bool join(const stream_bytes parts[STREAM_COUNT], uint8_t *out, size_t *size) {
    stream_bytes room = room_of(NULL, *size);
    stream_walk walk = {.is_join = true, .code = room};
    stream_bytes copies[STREAM_COUNT];
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        walk.streams[i] = copies[i] = room_of(parts[i].next, (size_t)(parts[i].end - parts[i].next));
    bool is_right = stream_code(&walk);
    *size = (size_t)(walk.code.next - room.next);
    memcpy(out, room.next, *size);
    free(room.next);
    for (unsigned i = 0; i < STREAM_COUNT; i++) free(copies[i].next);
    return is_right;
}

static void release(stream_bytes parts[STREAM_COUNT]) {
    for (unsigned i = 0; i < STREAM_COUNT; i++) free(parts[i].next);
}

static bool is(stream_bytes part, const char *bytes, size_t size) {
    return (size_t)(part.end - part.next) == size && memcmp(part.next, bytes, size) == 0;
}

int main(void) {
    stream_bytes parts[STREAM_COUNT], again[STREAM_COUNT];
    static uint8_t out[ROOM];
    uint8_t copy[sizeof code + 8];
    memcpy(copy, code, sizeof code);
    size_t first = sizeof code - 5; /* of the first function: behind the count and its size, in front of the second */
    copy[1] = (uint8_t)first;
    check(take_apart(copy, sizeof code, parts), "all instructions are taken apart");
    check(is(parts[STREAM_LOCALS], "\x81\x01\x02\x03", 4) && is(parts[STREAM_OFFSETS], "\x90\x08\x05", 3) &&
              is(parts[STREAM_CONSTANTS], "\xe5\x8e\x26", 3) && is(parts[STREAM_FUNCTIONS], "\x07", 1) &&
              is(parts[STREAM_LABELS], "\0\x01\0\x02\0\0", 6) &&
              is(parts[STREAM_DECLARED], "\x02\x02\x03\x7f\x01\x7e\0", 7),
          "each in its stream");
    size_t size = ROOM;
    bool is_joined = join(parts, out, &size);
    check(is_joined && size == sizeof code + 2 * 4, "sizes take five bytes");
    check(is_joined && memcmp(out + 6, copy + 2, first) == 0 &&
              memcmp(out + 6 + first + 5, code + sizeof code - 2, 2) == 0 && out[1] == (first | 0x80) && out[5] == 0 &&
              out[6 + first] == 0x82,
          "functions are as they were");
    check(take_apart(out, size, again), "what is joined is taken apart");
    bool is_same = true;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        is_same = is_same && is(again[i], (const char *)parts[i].next, (size_t)(parts[i].end - parts[i].next));
    check(is_same, "and is the same");
    release(again);

    bool is_refused = true;
    for (size_t cut = 0; cut < sizeof code; cut++) is_refused &= !take_apart(copy, cut, again), release(again);
    check(is_refused, "cut code is refused");
    for (size_t room = 0; room < sizeof code + 8; room++) size = room, is_refused &= !join(parts, out, &size);
    check(is_refused, "too little room is refused");
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        parts[i].end--;
        size = ROOM;
        is_refused &= !join(parts, out, &size);
        parts[i].end++;
    }
    check(is_refused, "a cut stream is refused");

    /* Damage need not show, but nothing is read or written outside (sanitizers), and it ends. */
    size_t most = 0;
    for (int round = 0; round < 3000; round++) {
        stream_bytes part = parts[below(STREAM_COUNT)];
        uint8_t *at = part.next + below((uint32_t)(part.end - part.next)), was = *at;
        *at = (uint8_t)below(256);
        size = 200;
        join(parts, out, &size);
        if (size > most) most = size;
        *at = was;
    }
    check(most <= 200, "damaged streams end");
    release(parts);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
