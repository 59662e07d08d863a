/* SPDX-License-Identifier: Apache-2.0 */
/* The steady state of a pipeline's schedule: rounds that are alike, of which one is stored. Private to parallel/. */
#ifndef TIDE_PARALLEL_STEADY_STATE_H
#define TIDE_PARALLEL_STEADY_STATE_H

#include "parallel/parallel.h"

typedef struct tide_steady_state {
    const tide_wrapper *w;
    tide_timeline_place *begun; /* by round */
    uint32_t count, capacity;
    uint32_t in_a_row; /* how many of the last rounds were like the one before them */
    uint32_t times;    /* how often the stored round is repeated; 0: none was stored yet */
    uint32_t first_held;
} tide_steady_state;

/* Called before a round: passes after which the schedule is in the same state, one or more micro-batches later. */
void tide_round_begins(tide_steady_state *s);
/* Called after it: how many of the following `left` rounds are folded into it; the schedule continues as if there were
 * so many fewer. `held`: what the round leaves alive to the end of the step. */
uint32_t tide_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count);
/* The same for rounds that are all in flight at once: what they leave alive besides `held` is saved for as many others.
 */
uint32_t tide_saving_round_ends(tide_steady_state *s, uint32_t left, tide_tensor *const *held, uint32_t held_count);
/* Called after the last of those others, which come in the same order: it stands for `times` before it. False: it
 * differs from the one before, and the job is played again. */
bool tide_unwinding_round_ends(tide_steady_state *s, uint32_t times, tide_tensor *const *held, uint32_t held_count);
/* What folded iteration `iteration`, from 0 on, left in place of a tensor that the last one holds: the `which`th of the
 * `held_count` tensors in `held`. Owned by the caller. */
tide_tensor *tide_round_held(const tide_steady_state *s, uint32_t iteration, const tide_tensor *held, uint32_t which,
                             uint32_t held_count);

#endif
