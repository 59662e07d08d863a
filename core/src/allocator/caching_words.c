/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator's state as an array of words, for comparison. */
#include "allocator/caching_state.h"

#include <stdlib.h>

static int by_age(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* How many segments were created before the one numbered `born`. */
static uint32_t age_rank(const uint32_t *births, uint32_t count, uint32_t born) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (births[middle] < born)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum { WORDS_OF_BLOCK = 3, BORN_FROM_BIT = 32 };

static void add_block(tide_words *to, const caching_block *b, tide_arena *arena) {
    const uint64_t words[WORDS_OF_BLOCK] = {
        b->address, b->size, (uint64_t)b->flags | (uint64_t)b->stream << 8 | (uint64_t)b->born << BORN_FROM_BIT};
    for (int i = 0; i < WORDS_OF_BLOCK; i++) tide_words_add(to, words[i], arena);
}

/* Blocks that wait for their streams; at the next request they return in this order. */
static void add_events(tide_words *to, const tide_caching_allocator *a, tide_pool_kind pool, tide_arena *arena) {
    for (uint32_t s = 0; s < a->stream_capacity; s++)
        for (uint32_t e = a->streams[s] ? a->streams[s]->first_event : 0; e; e = a->uses[e].next) {
            const caching_block *b = &a->blocks[a->uses[e].block];
            if (pool != TIDE_POOL_ALL && block_pool(b) != (unsigned)pool) continue;
            tide_words_add(to, s, arena);
            tide_words_add(to, b->address, arena);
        }
}

/* Whether a segment belongs to the pool. */
static bool is_of_pool(const tide_caching_allocator *a, uint32_t segment, tide_pool_kind pool) {
    bool is_small = a->order[segment] & SEGMENT_SMALL;
    return pool == TIDE_POOL_ALL || is_small == (pool == TIDE_POOL_SMALL);
}

/* Of the births of segments only their order matters, unless none was released: then the same ones have the same. */
static void rank_births(const tide_caching_allocator *a, tide_pool_kind pool, tide_words *words, uint32_t first,
                        tide_arena *arena) {
    if (a->births == a->segment_count) return;
    uint32_t *births = tide_arena_grow(arena, NULL, 0, (a->segment_count + 1) * sizeof *births), count = 0;
    for (uint32_t i = 0; i < a->segment_count; i++)
        if (is_of_pool(a, i, pool)) births[count++] = a->blocks[segment_at(a, i)->head].born;
    qsort(births, count, sizeof *births, by_age);
    for (uint32_t i = first + WORDS_OF_BLOCK - 1; i < words->count; i += WORDS_OF_BLOCK) {
        uint64_t rank = age_rank(births, count, (uint32_t)(words->at[i] >> BORN_FROM_BIT));
        words->at[i] = (words->at[i] & UINT32_MAX) | rank << BORN_FROM_BIT;
    }
    tide_arena_drop(arena, births);
}

bool tide_caching_words(const tide_caching_allocator *a, tide_pool_kind pool, tide_words *to, tide_arena *arena) {
    if (a->collect_bytes != UINT64_MAX || (a->pending_events && a->holds_events)) return false;
    uint32_t first = to->count;
    for (uint32_t i = 0; i < a->segment_count; i++) {
        if (!is_of_pool(a, i, pool)) continue;
        for (uint32_t n = segment_at(a, i)->head; n; n = a->blocks[n].next) add_block(to, &a->blocks[n], arena);
    }
    rank_births(a, pool, to, first, arena);
    if (a->pending_events) add_events(to, a, pool, arena);
    return true;
}
