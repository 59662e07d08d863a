/* The arena: chained blocks for objects, single pieces for arrays that grow. */
#include "arena.h"

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

static void free_list(tide_arena *arena, tide_piece *piece) {
    while (piece) {
        tide_piece *next = piece->next;
        arena->memory.resize(arena->memory.user, piece, piece->size, 0);
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
    size_t need = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
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

void *tide_arena_grow(tide_arena *arena, void *array, size_t old_bytes, size_t new_bytes) {
    if (new_bytes > SIZE_MAX / 4) tide_arena_fail(arena);
    tide_piece *piece;
    if (!array) {
        piece = piece_new(arena, &arena->arrays, HEADER + new_bytes);
        old_bytes = 0;
    } else {
        tide_piece *old = (tide_piece *)((char *)array - HEADER);
        size_t old_size = old->size;
        piece = arena->memory.resize(arena->memory.user, old, old_size, HEADER + new_bytes);
        if (!piece) tide_arena_fail(arena);
        piece->size = HEADER + new_bytes;
        if (piece->prev) piece->prev->next = piece;
        else arena->arrays = piece;
        if (piece->next) piece->next->prev = piece;
        count_bytes(arena, old_size, piece->size);
    }
    char *bytes = (char *)piece + HEADER;
    if (new_bytes > old_bytes) memset(bytes + old_bytes, 0, new_bytes - old_bytes);
    return bytes;
}

void tide_arena_drop(tide_arena *arena, void *array) {
    tide_piece *piece = (tide_piece *)((char *)array - HEADER);
    if (piece->prev) piece->prev->next = piece->next;
    else arena->arrays = piece->next;
    if (piece->next) piece->next->prev = piece->prev;
    count_bytes(arena, piece->size, 0);
    arena->memory.resize(arena->memory.user, piece, piece->size, 0);
}

static void *arena_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    if (new_size) return tide_arena_grow(user, ptr, old_size, new_size);
    if (ptr) tide_arena_drop(user, ptr);
    return NULL;
}

tide_allocator tide_arena_memory(tide_arena *arena) {
    return (tide_allocator){arena_resize, arena};
}
