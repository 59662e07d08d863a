/* A part of the page that unpacks itself: web/pack.mjs writes a .lzma file into the memory of this module. */
#include "lzma.h"

enum { PACKED_AT = 1 << 16, PAGE = 1 << 16 }; /* PACKED_AT as in web/pack.mjs: behind what is linked here */

uint32_t unpack(void);
const uint8_t *unpacked(void);

static lzma_chances chances;
static uint8_t *out;

/* Bytes of what is packed; UINT32_MAX: it is damaged, or memory ran out. At PACKED_AT are the size of the file, four bytes, lowest
 * first, and the file. */
uint32_t unpack(void) {
    const uint8_t *at = (const uint8_t *)PACKED_AT;
    uint32_t size = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    at += 4;
    uint32_t memory = (uint32_t)__builtin_wasm_memory_size(0) * PAGE;
    uint32_t used = PACKED_AT + 4;
    if (size > memory - used) return UINT32_MAX;
    used += size;
    uint32_t length = lzma_unpacked_length(at, size);
    if (length > (uint32_t)1 << 30) return UINT32_MAX;
    if (length > memory - used && __builtin_wasm_memory_grow(0, length / PAGE + 1) == (size_t)-1) return UINT32_MAX;
    out = (uint8_t *)(uintptr_t)used;
    return lzma_unpack(at, size, out, &chances) ? length : UINT32_MAX;
}

const uint8_t *unpacked(void) { return out; }
