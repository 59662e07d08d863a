/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the state of the allocator, or of one pool, is that after an earlier iteration.
 *
 * Note [Recurrence]: the state is compared with the first one, the third, the seventh and so on, whichever was the
 * latest, which finds rounds of any length (R. P. Brent, An improved Monte Carlo factorization algorithm, BIT 20,
 * 1980). */
#include <string.h>

#include "allocator/play_event.h"

bool tide_player_is_small(const tide_player *p, uint32_t slot) {
    return p->figures.block_bytes[slot] <= SMALL_BLOCK;
}

bool tide_player_is_of(const tide_player *p, uint32_t slot, tide_pool_kind pool) {
    return pool == TIDE_POOL_ALL || tide_player_is_small(p, slot) == (pool == TIDE_POOL_SMALL);
}

/* Reads the state of a pool; carried blocks are in slots `moved` higher. */
static bool read_pool(tide_player *p, uint32_t moved, tide_pool_kind pool) {
    tide_repeating *r = &p->repeating;
    r->now.count = 0;
    if (!p->plays_transients_at_once || !tide_caching_words(p->allocator, pool, &r->now, p->arena)) return false;
    for (uint32_t i = 0; i < r->carried_count; i++) {
        uint32_t slot = r->carried[i].slot + moved;
        uint64_t address = tide_caching_address(p->allocator, p->blocks[slot]);
        if (!tide_player_is_of(p, slot, pool)) continue;
        tide_words_add(&r->now, address, p->arena);
    }
    return true;
}

bool tide_player_look(tide_player *p, const tide_repetition *of, tide_pool_kind pool) {
    return read_pool(p, of->own, pool);
}

/* A digest of the carried addresses: if it differs, so do the states. */
static uint64_t carried_key(const tide_player *p, uint32_t moved, tide_pool_kind pool) {
    uint64_t key = 0;
    for (uint32_t i = 0; i < p->repeating.carried_count; i++) {
        uint32_t slot = p->repeating.carried[i].slot + moved;
        tide_block block = p->blocks[slot];
        if (!tide_player_is_of(p, slot, pool)) continue;
        key = (key ^ tide_caching_address(p->allocator, block)) * UINT64_C(0x9e3779b97f4a7c15);
        key ^= key >> 29;
    }
    return key;
}

/* Including those of the inner ones. */
static uint64_t count_retries(const tide_player *p) {
    return tide_caching_counters(p->allocator).alloc_retries + p->outer.unplayed;
}

/* Keeps the state that was just read, that after so many iterations. */
static void keep_state(tide_player *p, tide_pool_kind pool, uint32_t iteration, uint64_t key) {
    tide_repeating *r = &p->repeating;
    tide_words then = r->then;
    r->then = r->now;
    r->now = then;
    r->has_then = true;
    r->then_pool = pool;
    r->then_iteration = iteration;
    r->then_key = key;
    r->then_retries = count_retries(p);
}

void tide_player_note_start(tide_player *p, tide_pool_kind pool) {
    p->repeating.looks = 1;
    if (read_pool(p, 0, pool)) keep_state(p, pool, 0, carried_key(p, 0, pool));
}

uint32_t tide_player_recurs(tide_player *p, const tide_repetition *of, tide_pool_kind pool) {
    tide_repeating *r = &p->repeating;
    if (!r->has_then || r->then_pool != pool) {
        r->has_then = false;
        r->looks = 0;
    }
    uint32_t played = r->iteration + 1, looks = ++r->looks;
    uint64_t key = of->growth ? 0 : carried_key(p, of->own, pool);
    bool is_kept = !r->has_then || (looks & (looks + 1)) == 0;
    if ((key != r->then_key && !is_kept) || !tide_player_look(p, of, pool)) return 0;
    if (r->has_then && r->now.count == r->then.count &&
        (!r->now.count || memcmp(r->now.at, r->then.at, r->now.count * sizeof *r->now.at) == 0)) {
        r->retries = count_retries(p) - r->then_retries;
        return played - r->then_iteration;
    }
    if (is_kept) keep_state(p, pool, played, key);
    return 0;
}
