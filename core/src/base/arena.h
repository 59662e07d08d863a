/* SPDX-License-Identifier: Apache-2.0 */
/* base/: what every folder uses; headers are independent of each other: arenas, text, JSON, diagnostics, regular
 * expressions, decimal and checked arithmetic, units. Nothing here is about GPU memory. When host memory runs out or a
 * call is abandoned, control jumps to the arena's escape, so no function returns an error for that.
 *
 * Memory of one call: everything is allocated from an arena and released at once. */
#ifndef TIDE_BASE_ARENA_H
#define TIDE_BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "tidemark/tidemark.h"

typedef struct tide_allocator tide_allocator;

/* realloc and free. */
tide_allocator tide_default_allocator(void);

/* A piece of memory that the arena owns; the bytes follow it. */
typedef struct tide_piece {
    struct tide_piece *prev, *next;
    size_t size;             /* bytes including this header */
    size_t used;             /* of a block: bytes handed out, including this header */
    struct tide_piece *copy; /* of a kept piece: this header and the bytes after it, as they were */
} tide_piece;

/*   blocks:  [header | object | object | ... free ]   doubled from 64 KiB to 4 MiB
 *   arrays:  [header | elements ]                     one each, moved by tide_arena_grow */
typedef struct tide_arena {
    tide_allocator memory;
    tide_piece *blocks; /* newest first */
    tide_piece *arrays;
    uint64_t bytes, peak_bytes;
    jmp_buf *escape; /* where to jump when memory runs out; NULL: the process traps */
} tide_arena;

void tide_arena_init(tide_arena *arena, tide_allocator memory, jmp_buf *escape);
void tide_arena_free(tide_arena *arena);

/* Zeroed, aligned to 16. Never NULL: when memory runs out it jumps to arena->escape. */
void *tide_arena_alloc(tide_arena *arena, size_t bytes);

/* Resizes an array made by this function (NULL: makes one). The tail is zeroed. Never NULL. */
void *tide_arena_grow(tide_arena *arena, void *array, size_t old_bytes, size_t new_bytes);

/* The same, but the tail is uninitialised. */
void *tide_arena_resize(tide_arena *arena, void *array, size_t old_bytes, size_t new_bytes);

/* Frees an array made by these functions early. */
void tide_arena_drop(tide_arena *arena, void *array);

/* A memory hook backed by the arena: what is not freed through it is freed with the arena, also after a jump to
 * arena->escape. */
tide_allocator tide_arena_memory(tide_arena *arena);

/* Note [Keeping an arena] tide_arena_keep copies everything in the arena; tide_arena_return restores that state, any
 * number of times. All bytes return to their addresses, so that pointers within the arena stay valid; what was
 * allocated later is freed. A kept array that grows moves. */
void tide_arena_keep(tide_arena *arena);
void tide_arena_return(tide_arena *arena);

/* Jumps to arena->escape. */
_Noreturn void tide_arena_fail(tide_arena *arena);

#define TIDE_NEW(arena, type, count) ((type *)tide_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* Makes room for one more element of a growable array: pointer, count and capacity are lvalues. */
#define TIDE_ROOM(arena, array, count, capacity)                                                                       \
    do {                                                                                                               \
        if ((count) == (capacity)) {                                                                                   \
            size_t tide_old = (size_t)(capacity), tide_new = tide_old ? tide_old * 2 : 16;                             \
            (array) = tide_arena_grow((arena), (array), tide_old * sizeof *(array), tide_new * sizeof *(array));       \
            (capacity) = (uint32_t)tide_new;                                                                           \
        }                                                                                                              \
    } while (0)

#endif
