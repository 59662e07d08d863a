/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/schedules.py: _PipelineScheduleRuntime: schedules with several stages per rank. */
#include "parallel/fsdp2.h"
#include "parallel/pipeline.h"

/* submodule.unshard(async_op=True) of every FSDPModule of a stage; the next pass waits for them. */
static void unshard_all(fsdp2 *f) {
    f->is_async = true;
    tide_fsdp2_each_group(f, tide_fsdp2_unshard);
    f->is_async = false;
    f->is_awaited = true;
}

/* _assert_unsharded() */
static void wait_for_unshard(fsdp2 *f) {
    if (f) tide_fsdp2_each_group(f, tide_fsdp2_wait_for_unshard);
}

static tide_pipeline_stage *stage_at(const tide_pipeline *p, uint32_t index) {
    for (uint32_t i = 0; i < p->chunks; i++)
        if (p->stages[i].index == index) return &p->stages[i];
    return NULL;
}

static void forward_chunk(tide_pipeline *p, tide_pipeline_stage *s, uint32_t mb) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_stage *next = stage_at(p, s->index + 1);
    tide_tensor *output = tide_stage_forward(s, mb);
    tide_stage_compute_loss(s, mb, output);
    if (next && output) { /* set_local_fwd_input() */
        next->recv_forward[mb] = tide_alias(m, output);
        next->recv_forward[mb]->is_leaf = true;
    }
    tide_release(m, output);
}

/* set_local_bwd_input() */
static void hand_back(tide_pipeline *p, tide_pipeline_stage *s, uint32_t mb) {
    tide_pipeline_stage *previous = s->index ? stage_at(p, s->index - 1) : NULL;
    if (previous) previous->recv_backward[mb] = tide_stage_send_backward(s, mb);
}

static void perform_action(tide_pipeline *p, tide_action a) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_stage *s = stage_at(p, a.stage);
    uint32_t mb = a.microbatch;
    fsdp2 *f = s->fsdp;
    bool is_pass = a.type <= TIDE_ACTION_FULL_BACKWARD;
    if (is_pass) wait_for_unshard(f);
    switch ((tide_action_type)a.type) {
    case TIDE_ACTION_FORWARD:
        forward_chunk(p, s, mb);
        break;
    case TIDE_ACTION_FULL_BACKWARD:
        tide_stage_backward(s, mb);
        hand_back(p, s, mb);
        break;
    case TIDE_ACTION_BACKWARD_INPUT:
        tide_stage_backward_first(s, mb);
        hand_back(p, s, mb);
        break;
    case TIDE_ACTION_BACKWARD_WEIGHT:
        tide_stage_backward_second(s, mb);
        break;
    case TIDE_ACTION_UNSHARD:
        if (f) unshard_all(f);
        break;
    case TIDE_ACTION_RESHARD:
        if (f) tide_fsdp2_each_group(f, tide_fsdp2_reshard);
        break;
    case TIDE_ACTION_REDUCE_GRAD:
        tide_stage_reduce_grad(s);
        break;
    case TIDE_ACTION_WAIT_REDUCE_GRAD:
        break;
    case TIDE_ACTION_SEND_F:
        s->sent_forward[mb] = tide_retain(s->outputs[mb]);
        break;
    case TIDE_ACTION_SEND_B:
        s->sent_backward[mb] = tide_stage_send_backward(s, mb);
        break;
    case TIDE_ACTION_RECV_F:
        tide_stage_recv_forward(s, mb);
        break;
    case TIDE_ACTION_RECV_B:
        tide_stage_recv_backward(s, mb);
        break;
    case TIDE_ACTION_WAIT_SEND_F:
        tide_release_at(m, &s->sent_forward[mb]);
        break;
    case TIDE_ACTION_WAIT_SEND_B:
        tide_release_at(m, &s->sent_backward[mb]);
        break;
    }
}

/* ---- rounds that are kept once: Note [Steady state] in steady_state.c ---- */

enum { ROUND_ACTIONS_LIMIT = 4096 };

/* Actions from `first` to `end` that come again `period` later, for micro-batches `by` higher. */
typedef struct action_rounds {
    uint32_t first, end, period, by;
} action_rounds;

static bool comes_again(const tide_actions *of, uint32_t at, uint32_t period, uint32_t by) {
    if (at + period >= of->count) return false;
    tide_action now = of->list[at], then = of->list[at + period];
    bool has_microbatch = now.microbatch != TIDE_NO_MICROBATCH;
    return now.type == then.type && now.stage == then.stage && now.with_next == then.with_next &&
           then.microbatch == (has_microbatch ? now.microbatch + by : TIDE_NO_MICROBATCH);
}

/* The next action before which the last stage has run on all inputs that came: a round starts there, as losses keep
 * those alive. */
static uint32_t find_start(const tide_pipeline *p, uint32_t first) {
    uint32_t last = p->stage_count - 1, waiting = 0;
    for (uint32_t i = 0; i < p->actions.count && stage_at(p, last); i++) {
        tide_action a = p->actions.list[i];
        bool is_forward = a.type == TIDE_ACTION_FORWARD;
        if (i >= first && !waiting) return i;
        waiting += (a.type == TIDE_ACTION_RECV_F && a.stage == last) || (is_forward && a.stage + 1 == last);
        waiting -= is_forward && a.stage == last && waiting;
    }
    return first;
}

/* Around the middle of the list; a period of 0: there are none. */
static action_rounds find_action_rounds(const tide_pipeline *p) {
    const tide_actions *of = &p->actions;
    uint32_t middle = of->count / 2, at;
    while (middle < of->count && of->list[middle].type != TIDE_ACTION_FORWARD) middle++;
    for (uint32_t period = 1; period < ROUND_ACTIONS_LIMIT && middle + 2 * period < of->count; period++) {
        uint32_t by = of->list[middle + period].microbatch - of->list[middle].microbatch;
        for (at = middle; at < middle + period && comes_again(of, at, period, by);) at++;
        if (at < middle + period) continue;
        action_rounds found = {.first = middle, .period = period, .by = by};
        while (found.first && comes_again(of, found.first - 1, period, by)) found.first--;
        while (comes_again(of, at, period, by)) at++;
        if (at - found.first < of->count / 2) { /* passes of one stage, which are shorter than a round */
            if (at - found.first > period) period = at - found.first - 1;
            continue;
        }
        found.first = find_start(p, found.first);
        found.end = found.first + (at + period - found.first) / period * period;
        return found;
    }
    return (action_rounds){.period = 0};
}

/* A list of actions being performed. */
typedef struct performance {
    tide_pipeline *p;
    action_rounds of;
    tide_steady_state rounds;
    uint32_t first; /* of the round that is played */
    uint32_t fewer; /* micro-batches that are folded */
    /* What the round leaves to the end of the step: losses, each with the input of its stage; gradients that were sent,
     * whose sends are waited for there. */
    tide_tensor **held, **sent;
    uint32_t losses, sends, all_held;
    uint32_t first_loss; /* its micro-batch */
} performance;

static void begin_round(performance *r, uint32_t at) {
    r->first = at;
    r->losses = r->sends = 0;
    tide_round_begins(&r->rounds);
}

/* After an action of the round. */
static void add_held(performance *r, tide_action a) {
    tide_pipeline_stage *s = stage_at(r->p, a.stage);
    if (a.type == TIDE_ACTION_FORWARD && s->is_last) {
        if (!r->losses) r->first_loss = a.microbatch;
        r->held[2 * r->losses] = r->p->losses[a.microbatch];
        r->held[2 * r->losses++ + 1] = s->inputs[a.microbatch];
    }
    if (a.type == TIDE_ACTION_SEND_B) r->sent[r->sends++] = s->sent_backward[a.microbatch];
}

/* After a round: how many of those that follow are folded into it. */
static uint32_t keep_actions_once(performance *r, uint32_t left) {
    if (left < 2) return 0;
    r->all_held = 2 * r->losses + r->sends;
    for (uint32_t i = 0; i < r->sends; i++) r->held[2 * r->losses + i] = r->sent[i];
    uint32_t times = tide_round_ends(&r->rounds, left, r->held, r->all_held);
    if (times && r->losses) tide_pipeline_fold_losses(r->p, &r->rounds, r->first_loss, r->held, r->losses, r->all_held);
    r->fewer = times * r->of.by;
    return times;
}

/* The `which`th send of a stage in the last round: its micro-batch, and its place in `held`; false: it sends nothing.
 */
static bool find_send(const performance *r, uint32_t stage, uint32_t which, uint32_t *microbatch, uint32_t *place) {
    *place = 2 * r->losses;
    for (uint32_t i = r->first; i < r->first + r->of.period; i++) {
        tide_action a = r->p->actions.list[i];
        if (a.type != TIDE_ACTION_SEND_B) continue;
        *microbatch = a.microbatch;
        if (a.stage == stage && !which--) return true;
        ++*place;
    }
    return false;
}

/* An action after folded rounds, as of a schedule with fewer micro-batches. Waits for what folded rounds sent come at
 * the end. */
static void perform_later(performance *r, tide_action a) {
    uint32_t place, from, mb;
    bool has_microbatch = a.microbatch != TIDE_NO_MICROBATCH,
         is_wait = a.type == TIDE_ACTION_WAIT_SEND_B && find_send(r, a.stage, 0, &from, &place);
    if (is_wait && a.microbatch >= from && a.microbatch < from + r->fewer) {
        uint32_t iteration = (a.microbatch - from) / r->of.by;
        find_send(r, a.stage, (a.microbatch - from) % r->of.by, &mb, &place);
        tide_release(r->p->w->model->m, tide_round_held(&r->rounds, iteration, r->held[place], place, r->all_held));
        return;
    }
    if (has_microbatch && !(is_wait && a.microbatch < from)) a.microbatch -= r->fewer;
    perform_action(r->p, a);
}

void tide_pipeline_run(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, p->w->job);
    if (!p->actions.count) p->actions = tide_pipeline_order_with_comms(&sizes, p->rank, m->arena);
    performance r = {.p = p, .of = find_action_rounds(p), .rounds = {.w = p->w}};
    r.held = TIDE_NEW(m->arena, tide_tensor *, 2 * r.of.period + 1);
    r.sent = TIDE_NEW(m->arena, tide_tensor *, r.of.period + 1);
    for (uint32_t i = 0; i < p->actions.count && !tide_is_aborting(m); i++) {
        tide_action a = p->actions.list[i];
        bool is_of_round = !r.fewer && i >= r.of.first && i < r.of.end;
        if (is_of_round && (i - r.of.first) % r.of.period == 0) begin_round(&r, i);
        if (r.fewer)
            perform_later(&r, a);
        else
            perform_action(p, a);
        if (is_of_round) add_held(&r, a);
        if (is_of_round && i + 1 == r.first + r.of.period)
            i += keep_actions_once(&r, (r.of.end - i - 1) / r.of.period) * r.of.period;
    }
}
