/* SPDX-License-Identifier: Apache-2.0 */
/* Folding rounds of a schedule that are alike.
 *
 * Note [Steady state]: between warm-up and cool-down each round has a forward pass for each backward pass, and
 * micro-batches are alike, so what a round frees was allocated as many rounds before as there are micro-batches in
 * flight. If two rounds in a row did what the one before them did, event by event, and all that they freed was
 * allocated by such rounds, those that follow do the same: queues keep their length, and contain later micro-batches
 * with equal requests. The schedule then continues as one with fewer micro-batches.
 *
 * If all backward passes come after all forward passes, what the forward passes save is set aside, iteration by
 * iteration, and the backward passes free it in the same order. This is checked once they have run; if it does not
 * hold, the job is played again (tide_cannot_fold). */
#include "parallel/steady_state.h"

#include "base/units.h"

enum { ROUND_HOLDS_LIMIT = 1024 };

void tide_round_begins(tide_steady_state *s) {
    tide_machine *m = s->w->model->m;
    TIDE_ROOM(m->arena, s->begun, s->count, s->capacity);
    s->begun[s->count++] = tide_timeline_here(&m->timeline);
}

/* The first of the rounds up to the last one that make as many requests. */
static tide_timeline_place oldest_like_it(const tide_steady_state *s) {
    uint32_t at = s->count - 1;
    uint32_t own = s->begun[at].allocation - s->begun[at - 1].allocation;
    while (at && s->begun[at].allocation - s->begun[at - 1].allocation == own) at--;
    return s->begun[at];
}

static bool find_held(const tide_steady_state *s, tide_tensor *const *held, uint32_t count, uint32_t *allocations) {
    const tide_timeline *t = &s->w->model->m->timeline;
    if (count > ROUND_HOLDS_LIMIT) return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!held[i] || held[i]->storage->is_untracked) return false;
        allocations[i] = held[i]->storage->allocation;
        bool is_own = allocations[i] >= s->begun[s->count - 1].allocation;
        if (!is_own || *tide_timeline_died(t, allocations[i]) != TIDE_NEVER) return false;
        for (uint32_t k = 0; k < i; k++)
            if (allocations[k] == allocations[i]) return false;
    }
    return true;
}

static void report_once(const tide_steady_state *s) {
    tide_machine *m = s->w->model->m;
    if (m->timeline.repetition_count > 1) return; /* an earlier step has shown it */
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.microbatches",
                tide_format(m->arena, "a round of the schedule comes %u times more: timeline and events show it once",
                            s->times),
                NULL);
}

/* What the last round leaves alive, in order, if the one before it left the same. */
static uint32_t *find_saved_by_round(const tide_steady_state *s, uint32_t *count) {
    const tide_timeline *t = &s->w->model->m->timeline;
    uint32_t first = s->begun[s->count - 2].allocation, end = s->begun[s->count - 1].allocation;
    uint32_t *saved = tide_arena_grow(t->arena, NULL, 0, (end - first + ROUND_HOLDS_LIMIT) * sizeof *saved);
    for (uint32_t i = first; i < end; i++)
        if (*tide_timeline_died(t, i) == TIDE_NEVER) saved[(*count)++] = i + (end - first);
    return saved;
}

static void leave_out(uint32_t *saved, uint32_t *count, const uint32_t *held, uint32_t held_count) {
    uint32_t kept = 0;
    for (uint32_t i = 0, k; i < *count; i++) {
        for (k = 0; k < held_count && held[k] != saved[i];) k++;
        if (k == held_count) saved[kept++] = saved[i];
    }
    *count = kept;
}

/* What all rounds so far leave alive, saved for others. NULL: they are not alike. */
static uint32_t *saved_alike(const tide_steady_state *s, const uint32_t *held, uint32_t held_count, uint32_t *count) {
    uint32_t *saved = find_saved_by_round(s, count);
    leave_out(saved, count, held, held_count);
    if (tide_timeline_repeats(&s->w->model->m->timeline, oldest_like_it(s), s->begun[s->count - 2],
                              s->begun[s->count - 1], *count + held_count))
        return saved;
    tide_arena_drop(s->w->model->m->arena, saved);
    return NULL;
}

static bool may_be_kept_once(const tide_steady_state *s) {
    return !s->w->plays_all && !s->w->model->m->has_failed && !s->times && s->count >= 2;
}

/* Whether enough rounds in a row were alike. */
static bool is_steady(tide_steady_state *s, bool repeats, uint32_t left) {
    s->in_a_row = repeats ? s->in_a_row + 1 : 0;
    if (s->in_a_row < 2 || left < 2) return false;
    s->times = left;
    return true;
}

uint32_t tide_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count) {
    tide_machine *m = s->w->model->m;
    uint32_t allocations[ROUND_HOLDS_LIMIT];
    if (!may_be_kept_once(s)) return 0;
    tide_timeline_place before = s->begun[s->count - 2], now = s->begun[s->count - 1];
    bool repeats = find_held(s, held, held_count, allocations) &&
                   tide_timeline_repeats(&m->timeline, oldest_like_it(s), before, now, held_count);
    if (!is_steady(s, repeats, left)) return 0;
    if (held_count)
        s->first_held =
            tide_timeline_play_again_holding(&m->timeline, now, left, allocations, held_count, 0)->first_held;
    else
        tide_timeline_play_again(&m->timeline, now, left, 0);
    report_once(s);
    return left;
}

uint32_t tide_saving_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count) {
    tide_machine *m = s->w->model->m;
    uint32_t allocations[ROUND_HOLDS_LIMIT], count = 0;
    if (!may_be_kept_once(s) || !m->folding.is_wanted) return 0;
    uint32_t *saved =
        find_held(s, held, held_count, allocations) ? saved_alike(s, allocations, held_count, &count) : NULL;
    if (!is_steady(s, saved != NULL, left)) return 0;
    for (uint32_t i = 0; i < held_count; i++) saved[count + i] = allocations[i];
    s->first_held =
        tide_timeline_play_again_holding(&m->timeline, s->begun[s->count - 1], left, saved, count + held_count, count)
            ->first_held +
        left * count;
    report_once(s);
    return left;
}

bool tide_unwinding_round_ends(tide_steady_state *s, uint32_t times, tide_tensor *const *held, uint32_t held_count) {
    tide_machine *m = s->w->model->m;
    uint32_t allocations[ROUND_HOLDS_LIMIT];
    if (m->has_failed || s->count < 2) return false;
    bool unwinds = find_held(s, held, held_count, allocations) &&
                   tide_timeline_unwind_in_order(&m->timeline, s->begun[s->count - 2], s->begun[s->count - 1], times,
                                                 allocations, held_count);
    if (unwinds) s->first_held = m->timeline.repetitions[m->timeline.repetition_count - 1].first_held;
    if (!unwinds) tide_cannot_fold(m);
    return unwinds;
}

tide_tensor *tide_round_held(const tide_steady_state *s, uint32_t iteration, const tide_tensor *held, uint32_t which,
                             uint32_t held_count) {
    return tide_tensor_of(s->w->model->m, s->first_held + iteration * held_count + which, held->layout,
                          (tide_dtype)held->dtype);
}
