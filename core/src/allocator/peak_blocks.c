/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that are live at the peak.
 *
 * Note [Blocks at the peak]: block_bytes has for each slot the size of its block, or of the last one. A slot that was
 * live at the peak may have been reused since, by a later iteration of the same repetition or by a later repetition. So
 * the slots are noted at the end of the iteration that has the peak, and those that live on are noted at the end of
 * each later repetition. The first note of a slot counts. The last iterations of which only the large pool is played
 * are noted too: blocks of the small pool are as large as they were in the last whole one. An iteration that is skipped
 * otherwise has no end: if the peak is in one, or if memory runs out within a repetition, everything is played again up
 * to the peak. */
#include "allocator/play_event.h"

/* Where the block freed by this iteration of a backward was saved; all of them end up in the place of the first
 * iteration, 0. */
static uint32_t saved_slot(const tide_repetition *of, uint32_t which, int64_t iteration) {
    const tide_repetition *saving = of - of->unwinds;
    return iteration ? tide_unwound_slot(of, which, iteration)
                     : tide_saved_slot(saving, which, (int64_t)saving->times - of->lags[which]);
}

static uint32_t saved_count(const tide_repetition *of) {
    return of->unwinds ? (of - of->unwinds)->saved_count : 0;
}

static bool is_of_peak(const tide_player *p) {
    const tide_replay *r = &p->figures;
    return p->at_peak.event == r->peak_event && p->at_peak.iteration == r->peak_iteration &&
           p->at_peak.outer == r->peak_outer;
}

static void note(tide_player *p, uint32_t slot, uint64_t block_bytes) {
    tide_peak_blocks *n = &p->at_peak;
    const tide_replay *r = &p->figures;
    if (!is_of_peak(p)) {
        n->count = 0;
        n->iterations = 0;
        n->event = r->peak_event;
        n->iteration = r->peak_iteration;
        n->outer = r->peak_outer;
    }
    TIDE_ROOM(p->arena, n->at, n->count, n->capacity);
    n->at[n->count++] = (tide_carried){slot, block_bytes};
}

static bool has_peak(const tide_player *p, const tide_repetition *of) {
    return of->first_event <= p->figures.peak_event && p->figures.peak_event < of->last_event;
}

static void note_saved(tide_player *p, const tide_repetition *of) {
    for (uint32_t i = 0; i < saved_count(of); i++)
        note(p, saved_slot(of, i, 0), p->figures.block_bytes[saved_slot(of, i, 0)]);
}

void tide_player_note_iteration(tide_player *p, const tide_repetition *of) {
    const tide_replay *f = &p->figures;
    const tide_repeating *r = &p->repeating;
    bool is_now = of->inner ? f->peak_outer == r->iteration
                            : f->peak_iteration == r->iteration && f->peak_outer == p->outer.iteration;
    if (!has_peak(p, of) && r->iteration == 0) note_saved(p, of);
    if (!has_peak(p, of) || !is_now) return;
    for (uint32_t i = 0; i < r->carried_count; i++) note(p, r->carried[i].slot, f->block_bytes[r->carried[i].slot]);
    note_saved(p, of);
    for (uint32_t i = 0; i < of->own; i++) note(p, of->first_allocation + i, f->block_bytes[of->first_allocation + i]);
    p->at_peak.iterations++;
}

void tide_player_note_older(tide_player *p, const tide_repetition *of) {
    const tide_repeating *r = &p->repeating;
    if (has_peak(p, of)) return;
    for (uint32_t i = 0; i < r->carried_count; i++)
        if (p->blocks[r->carried[i].slot]) note(p, r->carried[i].slot, r->carried[i].block_bytes);
}

void tide_player_note_exchanged(tide_player *p, const tide_repetition *of, uint32_t slot) {
    uint32_t iteration = of->inner ? p->figures.peak_outer : p->figures.peak_iteration;
    if (!has_peak(p, of) || iteration > 0) note(p, slot, p->figures.block_bytes[slot]);
}

/* Held slots whose iterations are not live at the peak are empty. */
static void empty_unheld(tide_player *p, const tide_repetition *of) {
    uint32_t iteration = of->inner ? p->figures.peak_outer : p->figures.peak_iteration;
    for (uint32_t later = iteration; later < of->times; later++)
        for (uint32_t i = 0; i < of->held_count; i++) p->figures.block_bytes[tide_held_slot(of, i, later)] = 0;
    for (int64_t back = 1; back <= iteration; back++)
        for (uint32_t i = 0; i < saved_count(of); i++) p->figures.block_bytes[saved_slot(of, i, back)] = 0;
}

bool tide_player_knows_peak(tide_player *p) {
    const tide_event_source *s = p->source;
    bool is_noted = is_of_peak(p), ends_early = p->figures.is_oom || p->figures.is_cut;
    uint32_t outer = 0;
    for (uint32_t i = 0; i < s->repetition_count; i++) {
        if (ends_early && p->figures.peak_event < s->repetitions[i].last_event) return false;
        outer += has_peak(p, &s->repetitions[i]);
    }
    if (outer && !(is_noted && p->at_peak.iterations == outer)) return false;
    for (uint32_t i = 0; i < s->repetition_count; i++)
        if (has_peak(p, &s->repetitions[i])) empty_unheld(p, &s->repetitions[i]);
    for (uint32_t i = is_noted ? p->at_peak.count : 0; i-- > 0;)
        p->figures.block_bytes[p->at_peak.at[i].slot] = p->at_peak.at[i].block_bytes;
    return true;
}
