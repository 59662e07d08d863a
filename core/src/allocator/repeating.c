/* SPDX-License-Identifier: Apache-2.0 */
/* Playing repetitions: events that are stored for one iteration and played many times.
 *
 * Note [Repetitions]: at the end of an iteration the player goes back to the first event. What the iteration left alive
 * moves to the slots that the next one frees (the carried slots). If the state of the allocator equals that after an
 * earlier iteration (recurring.c), everything in between recurs, so whole rounds are skipped without changing any
 * figure.
 *
 * What an iteration saves for backward is held in slots of its own. The repetition that is its backward frees it, last
 * iteration first; what micro-batches of a pipeline save is freed in order.
 *
 * If requests grow from one iteration to the next, only the state of the small pool can recur; if each iteration leaves
 * small blocks alive, or backward frees them, only that of the large pool; and small blocks that outlive an iteration
 * can change places for a long time: see skipping.c. In a growing loop the small pool can take thousands of iterations
 * to recur; where the repetition says so (`settles`), it is assumed to after SETTLED. */
#include "allocator/play_event.h"

enum { SETTLED = 64, TOGETHER = 64 };

static void find_carried(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    tide_event_cursor cursor = {.source = p->source, .event = of->first_event};
    uint32_t saved_end = end_of_saved(of);
    r->carried_count = 0;
    while (cursor.event < of->last_event) {
        tide_event e = tide_cursor_next(&cursor);
        if (e.kind != TIDE_EVENT_FREE || e.slot < saved_end) continue;
        for (uint32_t slot = e.slot; slot < of->first_allocation; slot += of->own) { /* and of iterations before that */
            TIDE_ROOM(p->arena, r->carried, r->carried_count, r->carried_capacity);
            r->carried[r->carried_count++] = (tide_carried){slot, p->figures.block_bytes[slot]};
        }
    }
}

/* Whether only one pool's state can recur. */
static bool is_in_part(const tide_repetition *of) {
    return of->growth || of->held_count || of->unwinds;
}

/* The pool whose state is compared: if both together have not recurred by now, the large one alone may. */
static tide_pool_kind pool_of_rounds(tide_player *p, const tide_repetition *of) {
    if (of->growth) return TIDE_POOL_SMALL;
    bool may_be_apart = p->repeating.iteration >= TOGETHER && tide_player_may_skip(p, of);
    return is_in_part(of) || may_be_apart ? TIDE_POOL_LARGE : TIDE_POOL_ALL;
}

/* The steps of skipped iterations have the figures of the round before; reserved memory no longer grows. */
static void repeat_figures(tide_player *p, const tide_repetition *of, uint32_t round, uint32_t count) {
    tide_replay *r = &p->figures;
    uint32_t first = p->source->marks[of->first_mark].step + (p->repeating.iteration + 1) * of->steps,
             last = first + count * of->steps;
    if (!of->steps || of->first_mark == of->last_mark) return;
    for (uint32_t step = first; step < last && step <= TIDE_STEP_LIMIT; step++) {
        r->steps[step - 1] = r->steps[step - 1 - round * of->steps];
        r->steps[step - 1].reserved_peak = r->reserved_peak;
        r->step_count = step > r->step_count ? step : r->step_count;
    }
}

/* Skips as many rounds as fit into the remaining iterations. */
static void leave_out_rounds(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    uint32_t played = r->iteration + 1, left = of->times - r->iteration;
    if (!left || (is_in_part(of) && !tide_player_may_skip(p, of))) return;
    if (r->round) {
        tide_player_skip(p, of, r->round);
        return;
    }
    tide_pool_kind pool = pool_of_rounds(p, of);
    if (of->settles && played >= SETTLED && tide_player_look(p, of, pool)) {
        tide_player_skip(p, of, 1);
        return;
    }
    uint32_t round = tide_player_recurs(p, of, pool), rounds = round ? left / round : 0;
    if (pool != TIDE_POOL_ALL) {
        if (round && (of->growth || !r->retries)) tide_player_skip(p, of, round);
    } else if (rounds) {
        r->unplayed += r->retries * rounds;
        repeat_figures(p, of, round, rounds * round);
        r->iteration += rounds * round;
    }
}

/* For backward in order: the events name what the last iteration saved, but the first one comes first. */
static void exchange_first_and_last(tide_player *p, const tide_repetition *of) {
    for (uint32_t i = 0; of->is_in_order && i < of->saved_count; i++) {
        uint32_t first = tide_held_slot(of, i, 0), last = of->first_allocation + of->held[i];
        tide_block block = p->blocks[first];
        uint64_t block_bytes = p->figures.block_bytes[first];
        tide_player_note_exchanged(p, of, first);
        move_block(p, last, first);
        p->blocks[last] = block;
        p->figures.block_bytes[last] = block_bytes;
    }
}

/* Carried slots get the sizes of their original blocks back; slots that live on have that of a later iteration. */
static void end_repetition(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    tide_player_note_older(p, of);
    exchange_first_and_last(p, of);
    for (uint32_t i = 0; i < r->carried_count; i++)
        if (!p->blocks[r->carried[i].slot]) p->figures.block_bytes[r->carried[i].slot] = r->carried[i].block_bytes;
    p->next++;
    r->iteration = 0;
    r->has_then = false;
    p->cursor.growing = NULL;
    tide_player_forget_skipping(p);
}

/* Called at the end of an iteration. */
static bool play_again(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    if (r->iteration == 0) find_carried(p, of);
    tide_player_note_iteration(p, of);
    leave_out_rounds(p, of);
    if (r->iteration == of->times) {
        end_repetition(p, of);
        return false;
    }
    r->iteration++;
    p->cursor.to_come = of->times - r->iteration;
    tide_player_hand_on(p, of, TIDE_POOL_ALL);
    tide_player_set_aside(p, of);
    tide_player_take_back(p, of);
    p->figures.events = p->cursor.event = of->first_event;
    p->mark = of->first_mark;
    p->next -= of->inner;
    uint32_t events = of->last_event - of->first_event;
    p->figures.is_cut = p->left < events;
    p->left -= p->figures.is_cut ? 0 : events;
    p->figures.replayed += events;
    return true;
}

static void exchange_states(tide_player *p) {
    tide_repeating inner = p->repeating;
    p->repeating = p->outer;
    p->outer = inner;
}

const tide_repetition *tide_player_next_outer(tide_player *p) {
    const tide_event_source *s = p->source;
    uint32_t *i = &p->next_outer;
    if (p->repeating.iteration || p->outer.iteration || p->outer.has_then) return NULL;
    while (*i < s->repetition_count && (*i < p->next || !s->repetitions[*i].inner)) ++*i;
    return *i < s->repetition_count && s->repetitions[*i].first_event >= p->figures.events ? &s->repetitions[*i] : NULL;
}

/* What iterations leave alive may take turns in two places: then the state before the first one is the first to recur.
 */
static void begin_outer(tide_player *p, const tide_repetition *of) {
    exchange_states(p);
    find_carried(p, of);
    tide_player_note_start(p, pool_of_rounds(p, of));
    exchange_states(p);
}

bool tide_player_repeats(tide_player *p) {
    const tide_event_source *s = p->source;
    if (p->next == s->repetition_count) return false;
    const tide_repetition *of = &s->repetitions[p->next], *outer = tide_player_next_outer(p);
    if (outer && p->figures.events == outer->first_event) begin_outer(p, outer);
    if (of->growth && p->figures.events == of->first_event && !p->cursor.growing) {
        p->cursor.growing = of;
        p->cursor.to_come = of->times;
    }
    if (p->figures.events != of->last_event) return false;
    if (of->inner) exchange_states(p); /* the inner ones use the other state */
    bool goes_on = play_again(p, of);
    if (of->inner) exchange_states(p);
    return goes_on;
}
