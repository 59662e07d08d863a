/* Takes a module's code apart for web/pack.mjs, which writes the content of a code section into memory from room(). */
#include <stddef.h>

#include "streams.h"

uint8_t *room(uint32_t bytes);
uint32_t take_apart(uint32_t bytes);
const uint8_t *stream(uint32_t kind);
uint32_t stream_size(uint32_t kind);

enum { PAGE = 1 << 16 };

extern uint8_t __heap_base;
static stream_walk walk;
static uint8_t *starts[STREAM_COUNT];

/* For a code section of so many bytes and its streams; 0: there is no memory. Once a module. */
uint8_t *room(uint32_t bytes) {
    if (__builtin_wasm_memory_grow(0, (bytes / PAGE + 1) * (STREAM_COUNT + 1)) == (size_t)-1) return 0;
    return &__heap_base;
}

/* Whether it could be understood. */
uint32_t take_apart(uint32_t bytes) {
    uint8_t *next = &__heap_base;
    walk.code = (stream_bytes){next, next + bytes};
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        next += bytes;
        starts[i] = next;
        walk.streams[i] = (stream_bytes){next, next + bytes};
    }
    return stream_code(&walk);
}

const uint8_t *stream(uint32_t kind) {
    return starts[kind];
}
uint32_t stream_size(uint32_t kind) {
    return (uint32_t)(walk.streams[kind].next - starts[kind]);
}
