/* SPDX-License-Identifier: Apache-2.0 */
/* Backward of folded loops.
 *
 * Note [Unwinding]: if the iterations of a loop are alike, one of them is stored for `times` more (Note [Folded loops]
 * in lang/folded_loops.c), and its nodes stand for theirs. Backward first reaches the last iterations, which exist, and
 * then the stored one: what it does there is repeated as often, each time with what another iteration has saved, the
 * latest first. Event by event this is checked against the backward of the iteration before. If it differs, or if a
 * gradient would reach a result of an iteration that does not exist other than through stack(), the job is played again
 * without folding loops (tide_run_job). */
#ifndef TIDE_TENSOR_FOLDED_LOOPS_H
#define TIDE_TENSOR_FOLDED_LOOPS_H

#include "allocator/allocator.h"

typedef struct tide_machine tide_machine;

/* By sequence numbers: the first node of the stored iteration, and the first of the next one. */
typedef struct tide_folded_loop {
    uint32_t first_order, next_order, end_order;
    uint32_t times;
} tide_folded_loop;

/* The folded loops of a machine. */
typedef struct tide_folding {
    bool is_wanted;
    bool has_folded, cannot_fold; /* some loop was folded; one that was turned out not to repeat */
    tide_folded_loop *loops;
    uint32_t count, capacity;
} tide_folding;

/* The position of a backward pass. */
typedef struct tide_unwinding {
    const tide_folded_loop *of; /* NULL: outside of folded loops */
    bool is_kept;               /* in the stored iteration, rather than the one after it */
    tide_timeline_place next, kept;
} tide_unwinding;

void tide_fold_loop(tide_machine *m, tide_folded_loop loop);
/* Adds the loops from `first` up to `end` again, for nodes whose sequence numbers are so much higher. */
void tide_fold_loops_again(tide_machine *m, uint32_t first, uint32_t end, uint32_t orders);

/* Called before each node of a backward pass except AccumulateGrad, and at its end. */
void tide_unwind_to(tide_machine *m, tide_unwinding *u, uint32_t order);
void tide_unwinding_ends(tide_machine *m, tide_unwinding *u);

/* Stops the machine, so that the job is played without folding loops. */
void tide_cannot_fold(tide_machine *m);

#endif
