/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that live at the peak.
 *
 * Note [Blocks at the peak]: block_bytes says of each slot what it holds, or held last. What lived at the peak may have
 * given its slot to something else since, in a later playing of a repetition, or in one that came later. So at the end
 * of a playing in which the peak is, what its slots hold is noted, and at the end of a later repetition what lives on
 * in its older slots. Of several notes of a slot the first holds. A playing that is left out has no end: where the peak
 * is in one, and where memory ends within a repetition, all is played again up to the peak. */
#include "allocator/play_event.h"

/* Where what this playing of a backward frees was saved; all come to where that of the first one, 0, is. */
static uint32_t saved_slot(const tide_repetition *of, uint32_t which, int64_t playing) {
    const tide_repetition *saving = of - of->unwinds;
    return playing ? tide_unwound_slot(of, which, playing)
                   : tide_saved_slot(saving, which, (int64_t)saving->times - of->lags[which]);
}

static uint32_t saved_count(const tide_repetition *of) {
    return of->unwinds ? (of - of->unwinds)->saved_count : 0;
}

static bool is_of_peak(const tide_player *p) {
    const tide_replay *r = &p->figures;
    return p->at_peak.event == r->peak_event && p->at_peak.playing == r->peak_playing &&
           p->at_peak.around == r->peak_around;
}

static void note(tide_player *p, uint32_t slot, uint64_t block_bytes) {
    tide_peak_blocks *n = &p->at_peak;
    const tide_replay *r = &p->figures;
    if (!is_of_peak(p)) {
        n->count = 0;
        n->playings = 0;
        n->event = r->peak_event;
        n->playing = r->peak_playing;
        n->around = r->peak_around;
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

void tide_player_note_playing(tide_player *p, const tide_repetition *of) {
    const tide_replay *f = &p->figures;
    const tide_repeating *r = &p->repeating;
    bool is_now = of->within ? f->peak_around == r->playing
                             : f->peak_playing == r->playing && f->peak_around == p->around.playing;
    if (!has_peak(p, of) && r->playing == 0) note_saved(p, of);
    if (!has_peak(p, of) || !is_now) return;
    for (uint32_t i = 0; i < r->carried_count; i++) note(p, r->carried[i].slot, f->block_bytes[r->carried[i].slot]);
    note_saved(p, of);
    for (uint32_t i = 0; i < of->own; i++) note(p, of->first_allocation + i, f->block_bytes[of->first_allocation + i]);
    p->at_peak.playings++;
}

void tide_player_note_older(tide_player *p, const tide_repetition *of) {
    const tide_repeating *r = &p->repeating;
    if (has_peak(p, of)) return;
    for (uint32_t i = 0; i < r->carried_count; i++)
        if (p->blocks[r->carried[i].slot]) note(p, r->carried[i].slot, r->carried[i].block_bytes);
}

void tide_player_note_exchanged(tide_player *p, const tide_repetition *of, uint32_t slot) {
    uint32_t playing = of->within ? p->figures.peak_around : p->figures.peak_playing;
    if (!has_peak(p, of) || playing > 0) note(p, slot, p->figures.block_bytes[slot]);
}

/* Of what playings set aside, for those that live nowhere near the peak, nothing is held. */
static void empty_unheld(tide_player *p, const tide_repetition *of) {
    uint32_t playing = of->within ? p->figures.peak_around : p->figures.peak_playing;
    for (uint32_t later = playing; later < of->times; later++)
        for (uint32_t i = 0; i < of->held_count; i++) p->figures.block_bytes[tide_held_slot(of, i, later)] = 0;
    for (int64_t back = 1; back <= playing; back++)
        for (uint32_t i = 0; i < saved_count(of); i++) p->figures.block_bytes[saved_slot(of, i, back)] = 0;
}

bool tide_player_knows_peak(tide_player *p) {
    const tide_event_source *s = p->source;
    bool is_noted = is_of_peak(p), ends_early = p->figures.is_oom || p->figures.is_cut;
    uint32_t around = 0;
    for (uint32_t i = 0; i < s->repetition_count; i++) {
        if (ends_early && p->figures.peak_event < s->repetitions[i].last_event) return false;
        around += has_peak(p, &s->repetitions[i]);
    }
    if (around && !(is_noted && p->at_peak.playings == around)) return false;
    for (uint32_t i = 0; i < s->repetition_count; i++)
        if (has_peak(p, &s->repetitions[i])) empty_unheld(p, &s->repetitions[i]);
    for (uint32_t i = is_noted ? p->at_peak.count : 0; i-- > 0;)
        p->figures.block_bytes[p->at_peak.at[i].slot] = p->at_peak.at[i].block_bytes;
    return true;
}
