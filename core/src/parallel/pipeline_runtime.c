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

void tide_pipeline_run(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, p->w->job);
    if (!p->actions.count) p->actions = tide_pipeline_order_with_comms(&sizes, p->rank, m->arena);
    for (uint32_t i = 0; i < p->actions.count && !tide_is_aborting(m); i++) perform_action(p, p->actions.list[i]);
}
