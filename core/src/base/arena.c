/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: chained blocks for objects, and separate pieces for growable arrays. */
#include "base/arena.h"
#include "base/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_FIRST = 64 << 10, BLOCK_LAST = 512 << 10, ALIGNMENT = 16 };

#define HEADER ((sizeof(tide_piece) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

static void *default_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

tide_allocator tide_default_allocator(void) {
    return (tide_allocator){default_resize, NULL};
}

void tide_arena_init(tide_arena *arena, tide_allocator memory, jmp_buf *escape) {
    *arena = (tide_arena){.memory = memory, .escape = escape};
}

_Noreturn void tide_arena_fail(tide_arena *arena) {
    if (arena->escape) longjmp(*arena->escape, 1);
    (void)arena;
    abort();
}

static void count_bytes(tide_arena *arena, size_t old_size, size_t new_size) {
    arena->bytes += new_size;
    arena->bytes -= old_size;
    if (arena->bytes > arena->peak_bytes) arena->peak_bytes = arena->bytes;
}

static tide_piece *piece_new(tide_arena *arena, tide_piece **list, size_t size) {
    tide_piece *piece = arena->memory.resize(arena->memory.user, NULL, 0, size);
    if (!piece) tide_arena_fail(arena);
    *piece = (tide_piece){.next = *list, .size = size, .used = HEADER};
    if (*list) (*list)->prev = piece;
    *list = piece;
    count_bytes(arena, 0, size);
    return piece;
}

static void piece_free(tide_arena *arena, tide_piece *piece) {
    if (piece->copy) arena->memory.resize(arena->memory.user, piece->copy, piece->copy->used, 0);
    arena->memory.resize(arena->memory.user, piece, piece->size, 0);
}

static void free_list(tide_arena *arena, tide_piece *piece) {
    while (piece) {
        tide_piece *next = piece->next;
        piece_free(arena, piece);
        piece = next;
    }
}

void tide_arena_free(tide_arena *arena) {
    free_list(arena, arena->blocks);
    free_list(arena, arena->arrays);
    arena->blocks = arena->arrays = NULL;
    arena->bytes = 0;
}

void *tide_arena_alloc(tide_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 4) tide_arena_fail(arena);
    size_t need = TIDE_ROUND_UP(bytes, ALIGNMENT);
    if (need == 0) need = ALIGNMENT;
    tide_piece *block = arena->blocks;
    if (!block || block->size - block->used < need) {
        size_t size = block ? block->size * 2 : BLOCK_FIRST;
        if (size > BLOCK_LAST) size = BLOCK_LAST;
        if (size < need + HEADER) size = need + HEADER;
        block = piece_new(arena, &arena->blocks, size);
    }
    void *at = (char *)block + block->used;
    block->used += need;
    return memset(at, 0, need);
}

static tide_piece *piece_of(void *array) {
    return (tide_piece *)((char *)array - HEADER);
}

void *tide_arena_resize(tide_arena *arena, void *array, size_t old_bytes, size_t new_bytes) {
    if (new_bytes > SIZE_MAX / 4) tide_arena_fail(arena);
    tide_piece *piece;
    if (!array) {
        piece = piece_new(arena, &arena->arrays, HEADER + new_bytes);
    } else if (piece_of(array)->copy) {
        piece = piece_new(arena, &arena->arrays, HEADER + new_bytes);
        memcpy((char *)piece + HEADER, array, old_bytes < new_bytes ? old_bytes : new_bytes);
    } else {
        tide_piece *old = piece_of(array);
        size_t old_size = old->size;
        piece = arena->memory.resize(arena->memory.user, old, old_size, HEADER + new_bytes);
        if (!piece) tide_arena_fail(arena);
        piece->size = HEADER + new_bytes;
        if (piece->prev)
            piece->prev->next = piece;
        else
            arena->arrays = piece;
        if (piece->next) piece->next->prev = piece;
        count_bytes(arena, old_size, piece->size);
    }
    return (char *)piece + HEADER;
}

void *tide_arena_grow(tide_arena *arena, void *array, size_t old_bytes, size_t new_bytes) {
    char *bytes = tide_arena_resize(arena, array, old_bytes, new_bytes);
    if (!array) old_bytes = 0;
    if (new_bytes > old_bytes) memset(bytes + old_bytes, 0, new_bytes - old_bytes);
    return bytes;
}

void tide_arena_drop(tide_arena *arena, void *array) {
    tide_piece *piece = piece_of(array);
    if (piece->copy) return; /* is kept already */
    if (piece->prev)
        piece->prev->next = piece->next;
    else
        arena->arrays = piece->next;
    if (piece->next) piece->next->prev = piece->prev;
    count_bytes(arena, piece->size, 0);
    arena->memory.resize(arena->memory.user, piece, piece->size, 0);
}

static void *arena_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    if (new_size) return tide_arena_resize(user, ptr, old_size, new_size);
    if (ptr) tide_arena_drop(user, ptr);
    return NULL;
}

tide_allocator tide_arena_memory(tide_arena *arena) {
    return (tide_allocator){arena_resize, arena};
}

/* ---- keeping ---- */

static void keep_list(tide_arena *arena, tide_piece *piece) {
    for (; piece; piece = piece->next) {
        size_t used = piece->used > HEADER ? piece->used : piece->size; /* arrays have no used count */
        tide_piece *copy = arena->memory.resize(arena->memory.user, NULL, 0, used);
        if (!copy) tide_arena_fail(arena);
        memcpy(copy, piece, used);
        copy->used = used;
        piece->copy = copy;
    }
}

void tide_arena_keep(tide_arena *arena) {
    keep_list(arena, arena->blocks);
    keep_list(arena, arena->arrays);
}

/* New pieces are in front of the older ones. */
static tide_piece *return_list(tide_arena *arena, tide_piece *list) {
    while (list && !list->copy) {
        tide_piece *next = list->next;
        count_bytes(arena, list->size, 0);
        piece_free(arena, list);
        list = next;
    }
    for (tide_piece *piece = list; piece; piece = piece->next) {
        const tide_piece *copy = piece->copy;
        memcpy((char *)piece + HEADER, (const char *)copy + HEADER, copy->used - HEADER);
        if (piece->used > HEADER) piece->used = copy->used;
    }
    if (list) list->prev = NULL;
    return list;
}

void tide_arena_return(tide_arena *arena) {
    arena->blocks = return_list(arena, arena->blocks);
    arena->arrays = return_list(arena, arena->arrays);
}
