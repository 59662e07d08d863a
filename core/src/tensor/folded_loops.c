/* SPDX-License-Identifier: Apache-2.0 */
/* See Note [Unwinding] in folded_loops.h. */
#include "tensor/folded_loops.h"

#include "tensor/tensor.h"

void tide_fold_loop(tide_machine *m, tide_folded_loop loop) {
    TIDE_ROOM(m->arena, m->folding.loops, m->folding.count, m->folding.capacity);
    m->folding.loops[m->folding.count++] = loop;
}

void tide_fold_loops_again(tide_machine *m, uint32_t first, uint32_t end, uint32_t orders) {
    for (uint32_t i = first; i < end; i++) {
        tide_folded_loop of = m->folding.loops[i];
        tide_fold_loop(
            m, (tide_folded_loop){of.first_order + orders, of.next_order + orders, of.end_order + orders, of.times});
    }
}

void tide_cannot_fold(tide_machine *m) {
    m->folding.cannot_fold = true;
    m->has_failed = true;
}

/* The loop to whose remaining last iteration a node belongs. Loops are sorted by their nodes. */
static const tide_folded_loop *loop_of(const tide_machine *m, uint32_t order) {
    uint32_t low = 0, high = m->folding.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->folding.loops[middle].next_order <= order)
            low = middle + 1;
        else
            high = middle;
    }
    return low && order < m->folding.loops[low - 1].end_order ? &m->folding.loops[low - 1] : NULL;
}

/* The stored iteration is done. */
static void unwind(tide_machine *m, const tide_unwinding *u) {
    if (!m->has_failed && (!u->is_kept || !tide_timeline_unwind(&m->timeline, u->next, u->kept, u->of->times)))
        tide_cannot_fold(m);
}

void tide_unwind_to(tide_machine *m, tide_unwinding *u, uint32_t order) {
    if (u->of && order < u->of->first_order) {
        unwind(m, u);
        u->of = NULL;
    } else if (u->of && !u->is_kept && order < u->of->next_order) {
        u->is_kept = true;
        u->kept = tide_timeline_here(&m->timeline);
    }
    if (u->of || !(u->of = loop_of(m, order))) return;
    u->is_kept = false;
    u->next = tide_timeline_here(&m->timeline);
}

void tide_unwinding_ends(tide_machine *m, tide_unwinding *u) {
    if (u->of) unwind(m, u);
    u->of = NULL;
}
