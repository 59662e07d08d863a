/* SPDX-License-Identifier: Apache-2.0 */
/* Backward of loops of which most iterations are kept as one.
 *
 * Note [Unwinding]: of a loop whose iterations do the same, one is played for `times` more (Note [Folded loops] in
 * lang/folded_loops.c), and its nodes stand for theirs. Backward comes to the last iterations, which are there, and
 * then to the one that is kept: what it does it does again, as often, with what each iteration has saved, the latest
 * first. That this is what the iteration before did, event by event, is checked; where it is not, or where a gradient
 * would come to what an iteration that is not there has made by another way than stack(), the job is played anew
 * without folding loops (tide_run_job). */
#ifndef TIDE_TENSOR_FOLDED_LOOPS_H
#define TIDE_TENSOR_FOLDED_LOOPS_H

#include "allocator/allocator.h"

typedef struct tide_machine tide_machine;

/* By their orders: the nodes of the iteration that is kept, from the first on, and of the next one. */
typedef struct tide_folded_loop {
    uint32_t first_order, next_order, end_order;
    uint32_t times;
} tide_folded_loop;

/* Of a machine. */
typedef struct tide_folding {
    bool is_wanted;
    bool has_folded, cannot_fold; /* a loop; one that was folded does not do the same */
    tide_folded_loop *loops;
    uint32_t count, capacity;
} tide_folding;

/* Where a backward pass is. */
typedef struct tide_unwinding {
    const tide_folded_loop *of; /* NULL: in none */
    bool is_kept;               /* in the iteration that is kept, else in the next one */
    tide_timeline_place next, kept;
} tide_unwinding;

void tide_fold_loop(tide_machine *m, tide_folded_loop loop);
/* Those from `first` on, up to `end`, again: with nodes so many orders later. */
void tide_fold_loops_again(tide_machine *m, uint32_t first, uint32_t end, uint32_t orders);

/* Before each node of a pass but those that accumulate; and where it ends. */
void tide_unwind_to(tide_machine *m, tide_unwinding *u, uint32_t order);
void tide_unwinding_ends(tide_machine *m, tide_unwinding *u);

/* Stops the machine: the job is to be played without folding loops. */
void tide_cannot_fold(tide_machine *m);

#endif
