/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/schedules.py: GPipe and 1F1B, with Python's lifetimes: a name holds what it was given
 * until it is given something else, and the work of a send or a receive its tensor. */
#include "parallel/pipeline.h"

#include "base/rounding.h"
#include "base/units.h"
#include "parallel/steady_state.h"

typedef struct names {
    tide_machine *m;
    tide_tensor *ops, *work; /* of a loop over works */
    tide_tensor *fwd_recvs, *bwd_recvs, *bwd_sends, *send_work;
} names;

/* name = t, which it takes over. */
static void name_set(tide_machine *m, tide_tensor **name, tide_tensor *t) {
    tide_tensor *old = *name;
    *name = t;
    tide_release(m, old);
}

static void forget_names(names *n) {
    tide_tensor **all[] = {&n->ops, &n->work, &n->send_work, &n->fwd_recvs, &n->bwd_recvs, &n->bwd_sends};
    for (unsigned i = 0; i < TIDE_COUNT_OF(all); i++) name_set(n->m, all[i], NULL);
}

static void forward(tide_pipeline_stage *s, uint32_t mb) {
    tide_tensor *output = tide_stage_forward(s, mb);
    tide_stage_compute_loss(s, mb, output);
    tide_release(s->of->w->model->m, output);
}

/* ScheduleGPipe._step_microbatches() */
static void gpipe(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_stage *s = &p->stages[0];
    uint32_t count = p->microbatches;
    names n = {.m = m};
    tide_tensor **bwd_sends_to_wait = TIDE_NEW(m->arena, tide_tensor *, count);
    for (uint32_t i = 0; i < count && !tide_is_aborting(m); i++) {
        tide_tensor *buffer = tide_stage_recv_forward(s, i);
        if (buffer) name_set(m, &n.work, tide_retain(buffer));
        forward(s, i);
    }
    for (uint32_t i = 0; i < count; i++) tide_stage_release_sent(s, i);
    for (uint32_t i = 0; i < count && !tide_is_aborting(m); i++) {
        tide_tensor *buffer = tide_stage_recv_backward(s, i);
        name_set(m, &n.ops, tide_retain(buffer));
        if (buffer) name_set(m, &n.work, tide_retain(buffer));
        tide_stage_backward(s, i);
        bwd_sends_to_wait[i] = tide_stage_send_backward(s, i);
        name_set(m, &n.ops, tide_retain(bwd_sends_to_wait[i]));
    }
    tide_stage_reduce_grad(s);
    forget_names(&n);
    for (uint32_t i = count; i-- > 0;) tide_release(m, bwd_sends_to_wait[i]);
}

/* After a round, the last forward pass of which was that of `mb`: how many fewer are left of `left`. The loss holds its
 * graph, and that the stage's input. */
static uint32_t keep_rounds_once(tide_pipeline *p, tide_steady_state *rounds, uint32_t mb, uint32_t left) {
    tide_pipeline_stage *s = &p->stages[0];
    tide_tensor *held[] = {p->losses[mb], s->inputs[mb]};
    uint32_t count = s->is_last ? TIDE_COUNT_OF(held) : 0, times = tide_round_ends(rounds, left, held, count);
    if (!times || !count) return times;
    p->folded_losses = TIDE_NEW(p->w->model->m->arena, tide_tensor *, times);
    p->folded_count = times;
    p->folded_at = mb;
    for (uint32_t i = 0; i < times; i++) {
        tide_tensor *input = tide_round_held(rounds, i, held[1], 1, count);
        p->folded_losses[i] = tide_round_held(rounds, i, held[0], 0, count);
        tide_hold(p->w->model->m, p->folded_losses[i], &input, 1);
    }
    return times;
}

/* Schedule1F1B._step_microbatches() */
static void one_f_one_b(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_stage *s = &p->stages[0];
    uint32_t count = p->microbatches, warmup = p->stage_count - s->index, fwd = 0, bwd = 0;
    names n = {.m = m};
    if (warmup > count) warmup = count;
    for (; fwd < warmup && !tide_is_aborting(m); fwd++) {
        name_set(m, &n.fwd_recvs, tide_retain(tide_stage_recv_forward(s, fwd)));
        tide_tensor *output = tide_stage_forward(s, fwd);
        if (fwd > 0) tide_stage_release_sent(s, fwd - 1);
        tide_stage_compute_loss(s, fwd, output);
        tide_release(m, output);
    }
    tide_steady_state rounds = {.w = p->w};
    while (!tide_is_aborting(m)) {
        tide_round_begins(&rounds);
        tide_stage_recv_backward(s, bwd);
        tide_stage_release_sent(s, fwd - 1);
        tide_stage_backward(s, bwd);
        name_set(m, &n.bwd_sends, tide_stage_send_backward(s, bwd));
        if (++bwd && fwd == count) break;
        name_set(m, &n.fwd_recvs, tide_retain(tide_stage_recv_forward(s, fwd)));
        forward(s, fwd++);
        if (fwd < count) count -= keep_rounds_once(p, &rounds, fwd - 1, count - fwd);
    }
    name_set(m, &n.send_work, tide_retain(n.bwd_sends));
    for (; bwd < count && !tide_is_aborting(m); bwd++) {
        name_set(m, &n.bwd_recvs, tide_retain(tide_stage_recv_backward(s, bwd)));
        tide_stage_backward(s, bwd);
        name_set(m, &n.bwd_sends, tide_stage_send_backward(s, bwd));
        name_set(m, &n.send_work, tide_retain(n.bwd_sends));
    }
    tide_stage_reduce_grad(s);
    forget_names(&n);
}

bool tide_pipeline_check(tide_wrapper *w, const tide_pipeline *p) {
    tide_machine *m = w->model->m;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, w->job);
    const char *setting, *refusal = tide_pipeline_refusal(&sizes, &setting, m->arena);
    if (refusal)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, setting, "%s", refusal);
    else if (p->batch * p->microbatches != w->job->batch && w->job->parallel_kind == TIDE_parallel_kind_pp)
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "batch",
                          "%lld does not divide into %u micro-batches of one size; write batch=%lld, or change "
                          "parallel.microbatches",
                          (long long)w->job->batch, p->microbatches,
                          (long long)TIDE_ROUND_UP(w->job->batch, (int64_t)p->microbatches));
    return !m->has_failed;
}

void tide_pipeline_step(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_connect(p);
    if (p->w->job->parallel_schedule == TIDE_parallel_schedule_GPipe)
        gpipe(p);
    else if (p->w->job->parallel_schedule == TIDE_parallel_schedule__1F1B)
        one_f_one_b(p);
    else
        tide_pipeline_run(p);
    m->op = "del losses";
    for (uint32_t i = p->microbatches; i-- > 0;) {
        tide_release_at(m, &p->losses[i]);
        while (i == p->folded_at && p->folded_count) tide_release_at(m, &p->folded_losses[--p->folded_count]);
    }
}
