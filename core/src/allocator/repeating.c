/* SPDX-License-Identifier: Apache-2.0 */
/* Playing stretches that are kept once.
 *
 * Note [Repetitions]: at the end of a repetition the player goes back to its beginning. What the stretch left alive
 * takes the slots of what it frees of before, and it is played again. Where the allocator's state after a playing is
 * the one after an earlier playing, what lies between them would go round and round: whole rounds are left out, and no
 * figure differs by it. The state is compared with that after the latest playing whose number is a power of two, so
 * that a round of any length is found (R. P. Brent, An improved Monte Carlo factorization algorithm, BIT 20, 1980). */
#include "allocator/player.h"

#include <string.h>

static void find_carried(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    tide_event_cursor cursor = {.source = p->source, .event = of->first_event};
    r->carried_count = 0;
    while (cursor.event < of->last_event) {
        tide_event e = tide_cursor_next(&cursor);
        if (e.kind != TIDE_EVENT_FREE || e.slot >= of->first_allocation) continue;
        TIDE_ROOM(p->arena, r->carried, r->carried_count, r->carried_capacity);
        r->carried[r->carried_count++] = (tide_carried){e.slot, p->figures.block_bytes[e.slot]};
    }
}

/* False: it cannot be told by words. */
static bool look_at_state(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    r->now.count = 0;
    if (!p->may_touch || !tide_caching_words(p->allocator, &r->now, p->arena)) return false;
    for (uint32_t i = 0; i < r->carried_count; i++) {
        uint64_t address = tide_caching_address(p->allocator, p->blocks[r->carried[i].slot + of->own]);
        tide_words_add(&r->now, address, p->arena);
    }
    return true;
}

/* Leaves out rounds, of those playings that are left. */
static void leave_out_rounds(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    uint32_t played = r->playing + 1, left = of->times - r->playing;
    if (!left || of->steps || !look_at_state(p, of)) return; /* each step has its figures */
    uint64_t retries = tide_caching_counters(p->allocator).alloc_retries;
    if (r->then_playing && r->now.count == r->then.count &&
        memcmp(r->now.at, r->then.at, r->now.count * sizeof *r->now.at) == 0) {
        uint32_t round = played - r->then_playing, rounds = left / round;
        r->unplayed += (retries - r->then_retries) * rounds;
        r->playing += rounds * round;
    } else if ((played & (played - 1)) == 0) {
        tide_words then = r->then;
        r->then = r->now;
        r->now = then;
        r->then_playing = played;
        r->then_retries = retries;
    }
}

/* What the stretch left alive takes the slots of what it frees of before. */
static void hand_on(tide_player *p, const tide_repetition *of) {
    for (uint32_t i = 0; i < p->repeating.carried_count; i++) {
        uint32_t slot = p->repeating.carried[i].slot, from = slot + of->own;
        p->blocks[slot] = p->blocks[from];
        p->figures.block_bytes[slot] = p->figures.block_bytes[from];
        p->blocks[from] = 0;
    }
}

/* What the slots of before held is what their own requests got. */
static void end_repetition(tide_player *p) {
    tide_repeating *r = &p->repeating;
    for (uint32_t i = 0; i < r->carried_count; i++)
        p->figures.block_bytes[r->carried[i].slot] = r->carried[i].block_bytes;
    r->next++;
    r->playing = r->then_playing = 0;
}

bool tide_player_repeats(tide_player *p) {
    tide_repeating *r = &p->repeating;
    const tide_event_source *s = p->source;
    if (r->next == s->repetition_count) return false;
    const tide_repetition *of = &s->repetitions[r->next];
    if (p->figures.events != of->last_event) return false;
    if (r->playing == 0) find_carried(p, of);
    leave_out_rounds(p, of);
    if (r->playing == of->times) {
        end_repetition(p);
        return false;
    }
    r->playing++;
    hand_on(p, of);
    p->figures.events = p->cursor.event = of->first_event;
    p->mark = of->first_mark;
    return true;
}
