/* SPDX-License-Identifier: Apache-2.0 */
/* Folding micro-batches of a step, and steps of a run, that repeat each other.
 *
 * Note [Alike]: what a micro-batch does depends on the state in which it starts. If one did the same as the one before
 * it, event by event, and ends in the state in which it started, the remaining ones do the same. The state of
 * strategies and of loops is not examined; but nothing in them counts micro-batches, apart from treating the first and
 * the last of a step differently, and buffers used in turn alternate from one to the next. So with these, two that
 * repeat the one before are required, and the last one is played. Steps differ only in what loops ask for themselves:
 * evaluation, saving, and in some of them generation. */
#include "train/run.h"

#include "memo/memo.h"

void tide_alike_begins(tide_alike *a) {
    a->before = a->now;
    a->now = tide_timeline_here(&a->run->machine.timeline);
}

static void keep_once(const tide_alike *a, uint32_t kept, uint32_t times) {
    tide_machine *m = &a->run->machine;
    tide_timeline_play_again(&m->timeline, a->now, times, 0);
    a->run->repeated += times;
    if (a->step > 1) return;
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/grad_accum",
                tide_format(m->arena,
                            "micro-batch %u of a step is repeated %u times: timeline and events show it "
                            "once",
                            kept, times),
                NULL);
}

uint32_t tide_alike_ends(tide_alike *a, uint32_t micro, bool leaves_state) {
    const tide_machine *m = &a->run->machine;
    uint32_t left = a->count - 1 - micro, last = leaves_state ? 0 : 1;
    bool is_next = micro && tide_timeline_repeats(&m->timeline, a->before, a->before, a->now, 0);
    a->in_a_row = is_next ? a->in_a_row + 1 : 0;
    bool is_kept = micro + 1 < TIDE_MICRO_BATCHES_KEPT && m->timeline.event_count - a->before.event <= TIDE_KEPT_EVENTS;
    if (m->has_failed || a->run->plays_all || is_kept || a->in_a_row <= last || left < 2 + last) return 0;
    keep_once(a, micro + 1, left - last);
    return left - last;
}

void tide_repeat_step(tide_run *run, tide_timeline_place from, unsigned step, uint32_t times) {
    tide_machine *m = &run->machine;
    tide_timeline_play_again(&m->timeline, from, times, 1);
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/steps",
                tide_format(m->arena, "the steps after step %u repeat it: timeline and events show it once", step),
                NULL);
}

uint32_t tide_alike_step_ends(tide_alike *a, uint32_t left) {
    const tide_machine *m = &a->run->machine;
    uint64_t events = m->timeline.event_count - a->now.event;
    bool is_next = a->step > 1 && tide_timeline_repeats(&m->timeline, a->before, a->before, a->now, 0);
    a->in_a_row = is_next ? a->in_a_row + 1 : 0;
    if (m->has_failed || a->run->plays_all || a->in_a_row < 2 || !left || events * left <= TIDE_KEPT_EVENTS) return 0;
    tide_repeat_step(a->run, a->now, a->step, left);
    a->in_a_row = 0;
    return left;
}
