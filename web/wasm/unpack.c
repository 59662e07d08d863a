/* A part of the page that unpacks itself: web/pack.mjs writes what is packed into the memory of this module, at
 * PACKED_AT: the number of bytes of a .lzma file, then whether it holds a module in streams, each as four bytes, lowest
 * first; then the file.
 *
 * A module in streams: bytes in front of the content of its code section (without the section's size), bytes behind it,
 * bytes of each stream, as such numbers; then all of these in that order. */
#include "lzma.h"
#include "streams.h"

enum { PACKED_AT = 1 << 16, PAGE = 1 << 16, NUMBER = 4, SIZE = 5 /* bytes of LEB128 that hold any */, MOST = 1 << 26 };
static const uint32_t FAILED = UINT32_MAX;

uint32_t unpack(void);
const uint8_t *unpacked(void);

static lzma_chances chances;
static uint8_t *result;

static uint32_t number(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Whether there are so many bytes of memory from here on, or can be. */
static bool has_room(const uint8_t *at, uint32_t bytes) {
    uint32_t end = (uint32_t)__builtin_wasm_memory_size(0) * PAGE, from = (uint32_t)(uintptr_t)at;
    if (bytes > MOST) return false;
    return bytes <= end - from || __builtin_wasm_memory_grow(0, bytes / PAGE + 1) != (size_t)-1;
}

static uint8_t *copy(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    while (bytes--) *to++ = *from++;
    return to;
}

/* Joins the module in streams that is in these bytes, behind them. Its length, or FAILED. */
static uint32_t join(uint8_t *from, uint32_t bytes) {
    enum { COUNTS = 2 + STREAM_COUNT };
    uint8_t *next = from + NUMBER * COUNTS, *end = from + bytes;
    if (bytes < NUMBER * COUNTS) return FAILED;
    stream_bytes parts[COUNTS];
    for (unsigned i = 0; i < COUNTS; i++) {
        uint32_t count = number(from + NUMBER * i);
        if (count > (uint32_t)(end - next)) return FAILED;
        parts[i] = (stream_bytes){next, next + count};
        next += count;
    }
    /* Each function has a byte in a stream at least: its end. */
    uint32_t most = bytes + SIZE + SIZE * number(from + NUMBER * (2 + STREAM_OPCODES));
    if (!has_room(end, most)) return FAILED;
    result = end;
    uint8_t *size = copy(result, parts[0].next, number(from));
    stream_walk walk = {.is_join = true, .code = {size + SIZE, result + most}};
    for (unsigned i = 0; i < STREAM_COUNT; i++) walk.streams[i] = parts[2 + i];
    if (!stream_code(&walk)) return FAILED;
    uint32_t length = (uint32_t)(walk.code.next - size) - SIZE;
    for (unsigned i = 0; i < SIZE; i++) size[i] = (uint8_t)((length >> (7 * i) & 0x7f) | (i < SIZE - 1 ? 0x80 : 0));
    if (number(from + NUMBER) > (uint32_t)(walk.code.end - walk.code.next)) return FAILED;
    return (uint32_t)(copy(walk.code.next, parts[1].next, number(from + NUMBER)) - result);
}

/* Bytes of what is packed, which is at unpacked(); FAILED: it is damaged, or memory ran out. */
uint32_t unpack(void) {
    const uint8_t *packed = (const uint8_t *)PACKED_AT;
    uint32_t size = number(packed);
    bool is_module = number(packed + NUMBER) != 0;
    packed += 2 * NUMBER;
    if (!has_room(packed, size)) return FAILED;
    uint32_t length = lzma_unpacked_length(packed, size);
    result = (uint8_t *)(uintptr_t)(packed + size);
    if (!has_room(result, length) || !lzma_unpack(packed, size, result, &chances)) return FAILED;
    return is_module ? join(result, length) : length;
}

const uint8_t *unpacked(void) {
    return result;
}
