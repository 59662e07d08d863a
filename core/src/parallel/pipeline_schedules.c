/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/schedules.py: GPipe and 1F1B, with Python's lifetimes: a name refers to its value until
 * it is rebound, and the work of a send or receive to its tensor. */
#include "parallel/pipeline.h"

#include "base/rounding.h"
#include "base/units.h"
#include "parallel/steady_state.h"

typedef struct names {
    tide_machine *m;
    tide_tensor *ops, *work; /* of a loop over works */
    tide_tensor *fwd_recvs, *bwd_recvs, *bwd_sends, *send_work;
} names;

/* name = t, of which it takes ownership. */
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

/* ---- GPipe ---- */

/* The forward and backward passes of GPipe. Those before the last may be folded into one. */
typedef struct gpipe_passes {
    tide_pipeline *p;
    tide_steady_state forward, backward;
    tide_tensor *output, *sent; /* of the last forward pass; what its backward pass sends. Borrowed */
} gpipe_passes;

/* After forward pass `mb`: how many of the `left` passes are folded into it. */
static uint32_t keep_forward_once(gpipe_passes *g, uint32_t mb, uint32_t left) {
    tide_pipeline *p = g->p;
    tide_pipeline_stage *s = &p->stages[0];
    tide_tensor *of_last[] = {p->losses[mb], s->inputs[mb]};
    g->output = s->outputs[mb];
    uint32_t times = s->is_last ? tide_saving_round_ends(&g->forward, left, of_last, TIDE_COUNT_OF(of_last))
                                : tide_saving_round_ends(&g->forward, left, &g->output, 1);
    if (times && s->is_last) tide_pipeline_fold_losses(p, &g->forward, mb, of_last, 1, TIDE_COUNT_OF(of_last));
    return times;
}

/* For all micro-batches in order: releases what was sent. */
static void release_all_sent(gpipe_passes *g, uint32_t count) {
    tide_machine *m = g->p->w->model->m;
    tide_pipeline_stage *s = &g->p->stages[0];
    for (uint32_t i = 0; i + 1 < count; i++) tide_stage_release_sent(s, i);
    m->op = "release_fwd_send_outputs";
    for (uint32_t i = 0; i < g->forward.times && !s->is_last; i++)
        tide_release(m, tide_round_held(&g->forward, i, g->output, 0, 1));
    tide_stage_release_sent(s, count - 1);
}

/* bwd_sends_to_wait, which is popped from its end. */
static void drop_bwd_sends(gpipe_passes *g, tide_tensor **bwd_sends_to_wait, uint32_t count) {
    tide_machine *m = g->p->w->model->m;
    uint32_t folded = g->sent ? g->backward.times : 0;
    /* the last one, which is not folded, comes after them */
    tide_tensor **sends = TIDE_NEW(m->arena, tide_tensor *, folded + 1u);
    for (uint32_t i = 0; i < folded; i++) sends[i] = tide_round_held(&g->backward, i, g->sent, 0, 1);
    sends[folded] = g->sent;
    for (uint32_t i = folded + 1; i-- > 0;) tide_release(m, sends[i]);
    for (uint32_t i = count - 1; i-- > 0;) tide_release(m, bwd_sends_to_wait[i]);
}

/* ScheduleGPipe._step_microbatches() */
static void gpipe(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_stage *s = &p->stages[0];
    uint32_t count = p->microbatches;
    names n = {.m = m};
    gpipe_passes g = {.p = p, .forward = {.w = p->w}, .backward = {.w = p->w}};
    tide_tensor **bwd_sends_to_wait = TIDE_NEW(m->arena, tide_tensor *, count);
    for (uint32_t i = 0; i < count && !tide_is_aborting(m); i++) {
        tide_round_begins(&g.forward);
        tide_tensor *buffer = tide_stage_recv_forward(s, i);
        if (buffer) name_set(m, &n.work, tide_retain(buffer));
        forward(s, i);
        if (i + 1 < count) count -= keep_forward_once(&g, i, count - i - 1);
    }
    release_all_sent(&g, count);
    for (uint32_t i = 0; i < count && !tide_is_aborting(m); i++) {
        tide_round_begins(&g.backward);
        tide_tensor *buffer = tide_stage_recv_backward(s, i);
        name_set(m, &n.ops, tide_retain(buffer));
        if (buffer) name_set(m, &n.work, tide_retain(buffer));
        tide_stage_backward(s, i);
        bwd_sends_to_wait[i] = tide_stage_send_backward(s, i);
        name_set(m, &n.ops, tide_retain(bwd_sends_to_wait[i]));
        g.sent = bwd_sends_to_wait[i];
    }
    if (g.forward.times && tide_unwinding_round_ends(&g.backward, g.forward.times, &g.sent, g.sent != NULL))
        g.backward.times = g.forward.times;
    tide_stage_reduce_grad(s);
    forget_names(&n);
    drop_bwd_sends(&g, bwd_sends_to_wait, count);
}

/* ---- 1F1B ---- */

/* After a round whose last forward pass was that of `mb`: how many of the `left` rounds are folded into it. */
static uint32_t keep_rounds_once(tide_pipeline *p, tide_steady_state *rounds, uint32_t mb, uint32_t left) {
    tide_pipeline_stage *s = &p->stages[0];
    tide_tensor *held[] = {p->losses[mb], s->inputs[mb]};
    uint32_t count = s->is_last ? TIDE_COUNT_OF(held) : 0, times = tide_round_ends(rounds, left, held, count);
    if (times && count) tide_pipeline_fold_losses(p, rounds, mb, held, 1, count);
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
    else if (p->ranks > 1 && tide_pipeline_splits_backward(w->job->parallel_schedule) && tide_job_is_reentrant(w->job))
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "checkpointing",
                          "%s computes gradients of inputs apart, and \"When use_reentrant=True, "
                          "torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                          ".backward()\"; use full",
                          w->job->values[TIDE_SET_parallel_schedule]);
    return !m->has_failed;
}

void tide_pipeline_step(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    bool is_first = !p->is_connected;
    tide_pipeline_connect(p);
    if (is_first && p->infers_metadata) tide_pipeline_infer_metadata(p);
    if (p->w->job->parallel_schedule == TIDE_parallel_schedule_GPipe)
        gpipe(p);
    else if (p->w->job->parallel_schedule == TIDE_parallel_schedule__1F1B)
        one_f_one_b(p);
    else
        tide_pipeline_run(p);
    if (p->take_losses && !tide_is_aborting(m)) p->take_losses(p);
    m->op = "del losses";
    for (uint32_t i = p->microbatches; i-- > 0;) {
        tide_release_at(m, &p->losses[i]);
        while (i == p->folded_at && p->folded_count) tide_release_at(m, &p->folded_losses[--p->folded_count]);
    }
}
