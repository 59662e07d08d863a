/* SPDX-License-Identifier: Apache-2.0 */
/* Playing stretches that are kept once.
 *
 * Note [Repetitions]: at the end of a repetition the player goes back to its beginning. What the stretch left alive
 * takes the slots of what it frees of before, and it is played again. Where the allocator's state after a playing is
 * the one after an earlier playing, what lies between them would go round and round: whole rounds are left out, and no
 * figure differs by it. The state is compared with that after the latest playing whose number is a power of two, so
 * that a round of any length is found (R. P. Brent, An improved Monte Carlo factorization algorithm, BIT 20, 1980).
 *
 * Where requests grow from one playing to the next, the state of the small pool alone may come round: skipping.c. */
#include "allocator/player.h"

#include <string.h>

static void find_carried(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    tide_event_cursor cursor = {.source = p->source, .event = of->first_event};
    r->carried_count = 0;
    while (cursor.event < of->last_event) {
        tide_event e = tide_cursor_next(&cursor);
        if (e.kind != TIDE_EVENT_FREE) continue;
        for (uint32_t slot = e.slot; slot < of->first_allocation; slot += of->own) { /* or of stretches before that */
            TIDE_ROOM(p->arena, r->carried, r->carried_count, r->carried_capacity);
            r->carried[r->carried_count++] = (tide_carried){slot, p->figures.block_bytes[slot]};
        }
    }
}

/* Of what grows, the state of the small pool. False: it cannot be told by words. */
static bool look_at_state(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    r->now.count = 0;
    if (!p->may_touch ||
        !tide_caching_words(p->allocator, of->growth ? TIDE_POOL_SMALL : TIDE_POOL_ALL, &r->now, p->arena))
        return false;
    for (uint32_t i = 0; i < r->carried_count; i++) {
        uint32_t slot = r->carried[i].slot + of->own;
        uint64_t address = tide_caching_address(p->allocator, p->blocks[slot]);
        if (of->growth && !tide_player_is_small(p, slot)) continue;
        tide_words_add(&r->now, address, p->arena);
    }
    return true;
}

/* Leaves out rounds, of those playings that are left. */
static void leave_out_rounds(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    uint32_t played = r->playing + 1, left = of->times - r->playing;
    if (!left || of->steps) return; /* each step has its figures */
    if ((of->growth && !tide_player_may_skip(p, of)) || !look_at_state(p, of)) return;
    if (!r->then_playing) r->looked_from = of->growth ? r->playing : 0;
    uint64_t retries = tide_caching_counters(p->allocator).alloc_retries;
    if (r->then_playing && r->now.count == r->then.count &&
        memcmp(r->now.at, r->then.at, r->now.count * sizeof *r->now.at) == 0) {
        uint32_t round = played - r->then_playing, rounds = left / round;
        if (of->growth) {
            tide_player_skip(p, of, round);
            return;
        }
        r->unplayed += (retries - r->then_retries) * rounds;
        r->playing += rounds * round;
    } else if (((played - r->looked_from) & (played - r->looked_from - 1)) == 0) {
        tide_words then = r->then;
        r->then = r->now;
        r->now = then;
        r->then_playing = played;
        r->then_retries = retries;
    }
}

/* What the slots of before held is what their own requests got. */
static void end_repetition(tide_player *p) {
    tide_repeating *r = &p->repeating;
    for (uint32_t i = 0; i < r->carried_count; i++)
        p->figures.block_bytes[r->carried[i].slot] = r->carried[i].block_bytes;
    r->next++;
    r->playing = r->then_playing = 0;
    p->cursor.growing = NULL;
    tide_player_forget_skipping(p);
}

bool tide_player_repeats(tide_player *p) {
    tide_repeating *r = &p->repeating;
    const tide_event_source *s = p->source;
    if (r->next == s->repetition_count) return false;
    const tide_repetition *of = &s->repetitions[r->next];
    if (of->growth && p->figures.events == of->first_event && !p->cursor.growing) {
        p->cursor.growing = of;
        p->cursor.to_come = of->times;
    }
    if (p->figures.events != of->last_event) return false;
    if (r->playing == 0) find_carried(p, of);
    leave_out_rounds(p, of);
    if (r->playing == of->times) {
        end_repetition(p);
        return false;
    }
    r->playing++;
    p->cursor.to_come = of->times - r->playing;
    tide_player_hand_on(p, of, false);
    p->figures.events = p->cursor.event = of->first_event;
    p->mark = of->first_mark;
    return true;
}
