/* SPDX-License-Identifier: Apache-2.0 */
/* The steady state of a pipeline's schedule: rounds that do the same, of which one is kept. Private to parallel/. */
#ifndef TIDE_PARALLEL_STEADY_STATE_H
#define TIDE_PARALLEL_STEADY_STATE_H

#include "parallel/parallel.h"

typedef struct tide_steady_state {
    const tide_wrapper *w;
    tide_timeline_place *begun; /* by round */
    uint32_t count, capacity;
    uint32_t in_a_row; /* rounds that have done what the one before did */
    uint32_t times;    /* how often the last one comes again; 0: nothing was found yet */
    uint32_t first_held;
} tide_steady_state;

/* Before a round: the passes after which a schedule is where it was, one micro-batch or some of them later. */
void tide_round_begins(tide_steady_state *s);
/* After it: how many of the `left` rounds that follow are kept with it, so that the schedule goes on as if there were
 * as many fewer. `held`: what the round leaves alive to the end of the step. */
uint32_t tide_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count);
/* The same of rounds that are all in flight at once: what they leave alive beside `held` is saved for as many others.
 */
uint32_t tide_saving_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count);
/* After the last of those others, which come in the order of the former: it stands for `times` before it. False: it
 * does not do what the one before it did, and the job is played anew. */
bool tide_unwinding_round_ends(tide_steady_state *s, uint32_t times, tide_tensor *const *held, uint32_t held_count);
/* What iteration `iteration` of the rounds that are kept once, from 0 on, left in place of a tensor that the last of
 * them holds: the `which`th of `held`, `held_count` of them. Owned by the caller. */
tide_tensor *tide_round_held(const tide_steady_state *s, uint32_t iteration, const tide_tensor *held, uint32_t which,
                             uint32_t held_count);

#endif
