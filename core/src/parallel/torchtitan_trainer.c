/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan 0.2.2: torchtitan/train.py, Trainer. Its models are in models/architectures/torchtitan/.
 *
 * Note [Names of a step]: what train_step() has a name for lives until it returns: the loss and the inputs of every
 * micro-batch, the last labels, the counts of tokens, the norm of the gradients. Gradients live until the next step
 * begins, as do the last inputs, which batch_generator() has a name for. */
#include "parallel/torchtitan_trainer.h"

#include "base/units.h"
#include "parallel/fsdp2.h"
#include "parallel/torchtitan_experts.h"
#include "tensor/context_parallel.h"
#include "tensor/ops/ops.h"

/* What a method of the model says of it. */
static bool says(tide_model *model, const char *method) {
    return tide_model_method(model, tide_text_of(method), NULL, NULL, 0).truth;
}

typedef struct titan_step {
    tide_pipeline *p;
    tide_machine *m;
    tide_value held;                  /* a list; see Note [Names of a step] */
    tide_tensor *global_valid_tokens; /* NULL: a number */
    tide_value graphs;                /* a list: losses of a pipeline, without storage; their graphs have its inputs */
    uint32_t loss_count;
} titan_step;

static void keep_to_end(titan_step *t, tide_tensor *tensor) {
    if (tensor) tide_list_push(t->m, t->held.list, tide_of_tensor(tensor));
}

/* distributed/utils.py, _dist_reduce(): the result is on the host. */
static void reduce_to_host(tide_machine *m, tide_dtype dtype) {
    m->op = "all_reduce";
    tide_release(m, tide_scalar(m, dtype));
}

static bool counts_over_ranks(const titan_step *t) {
    return t->p->w->job->parallel_dp > 1;
}

static void count_valid_tokens(titan_step *t) {
    t->m->op = "local_valid_tokens";
    keep_to_end(t, tide_scalar(t->m, TIDE_INT64));
    if (counts_over_ranks(t))
        reduce_to_host(t->m, TIDE_INT64);
    else
        keep_to_end(t, t->global_valid_tokens = tide_scalar(t->m, TIDE_FP32));
}

/* The micro-batch, from the host. */
static void take_micro_batches(titan_step *t, int64_t rows) {
    const tide_wrapper *w = t->p->w;
    tide_tensor *given[2] = {w->input_ids.tensor, w->labels.tensor}, **taken[2] = {&t->p->ids, &t->p->labels};
    for (int i = 0; i < 2; i++) tide_release_at(t->m, taken[i]);
    t->m->op = "to";
    t->m->state.factor = TIDE_FACTOR_INPUT;
    for (int i = 0; i < 2; i++) {
        tide_shape shape = *given[i]->shape;
        shape.dim[0].size = rows;
        *taken[i] = tide_empty(t->m, &shape, (tide_dtype)given[i]->dtype);
        if (i == 0) keep_to_end(t, tide_retain(*taken[i]));
    }
    t->m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* What a micro-batch replaces while it runs. */
typedef struct titan_inputs {
    tide_tensor *ids, *labels;
    tide_tensor *shards[3]; /* of the ids, labels and positions; NULL: the whole sequences */
} titan_inputs;

/* distributed/context_parallel.py, prepare_context_parallel_input(): the model gets this rank's parts. */
static titan_inputs inputs_begin(titan_step *t) {
    tide_pipeline *p = t->p;
    titan_inputs in = {.ids = p->ids, .labels = p->labels};
    int64_t ranks = p->w->job->parallel_cp;
    if (ranks == 1) return in;
    const tide_shape *whole = p->ids->shape;
    t->m->op = "arange";
    tide_tensor *numbers = tide_flat(t->m, whole->dim[1].size, TIDE_INT32), *buffers[] = {p->ids, p->labels, NULL};
    buffers[2] = tide_expand(t->m, numbers, whole);
    tide_context_parallel_shard(t->m, ranks, buffers, TIDE_COUNT_OF(buffers), in.shards);
    tide_release(t->m, buffers[2]);
    tide_release(t->m, numbers);
    p->ids = in.shards[0];
    p->labels = in.shards[1];
    p->positions = in.shards[2];
    return in;
}

static void inputs_end(titan_step *t, titan_inputs in) {
    t->p->ids = in.ids;
    t->p->labels = in.labels;
    t->p->positions = NULL;
    for (unsigned i = 0; i < TIDE_COUNT_OF(in.shards); i++) tide_release(t->m, in.shards[i]);
}

/* loss_sum / global_valid_tokens; owned by the caller. */
static tide_tensor *divided_by_tokens(titan_step *t, tide_tensor *loss_sum) {
    static const char *const names[] = {"loss_sum", "global_valid_tokens"};
    const tide_value values[] = {tide_of_tensor(loss_sum),
                                 t->global_valid_tokens ? tide_of_tensor(t->global_valid_tokens) : tide_of_int(1)};
    return tide_titan_tensor(t->p->w->model, "divided_loss", names, values, TIDE_COUNT_OF(values));
}

/* Without a pipeline. */
static void forward_backward_step(titan_step *t) {
    tide_pipeline *p = t->p;
    tide_machine *m = t->m;
    tide_pipeline_stage *s = &p->stages[0];
    take_micro_batches(t, p->batch);
    const titan_inputs in = inputs_begin(t);
    if (s->fsdp) ((fsdp2 *)s->fsdp)->reduce_grads = true; /* after every micro-batch */
    uint32_t from = m->timeline.allocation_count;
    const tide_job *job = p->w->job;
    bool autocasts =
        tide_job_autocasts_torchtitan(job) && tide_dtype_or(job->parallel_param_dtype, TIDE_FP32) != TIDE_FP32;
    if (autocasts) tide_autocast_begin(m, job->parallel_param_dtype.dtype);
    tide_tensor *logits = tide_stage_forward(s, 0);
    tide_stage_compute_loss(s, 0, logits);
    tide_timeline_end_forward(&m->timeline, from);
    tide_tensor *loss_sum = p->losses[0];
    if (loss_sum) keep_to_end(t, p->losses[0] = divided_by_tokens(t, loss_sum));
    if (autocasts) tide_autocast_end(m);
    tide_release_at(m, &s->outputs[0]);
    tide_release(m, logits);
    tide_stage_backward(s, 0);
    t->loss_count++;
    p->losses[0] = NULL;
    tide_release(m, loss_sum);
    inputs_end(t, in);
}

/* (torch.sum(torch.stack(losses)) / global_valid_tokens).to(device), or -1 on ranks without the last stage. */
static void sum_losses(tide_pipeline *p) {
    titan_step *t = p->taker;
    bool is_last = false;
    for (uint32_t i = 0; i < p->chunks; i++) is_last = is_last || p->stages[i].is_last;
    t->m->op = "sum";
    tide_tensor *stacked = is_last ? tide_flat(t->m, p->microbatches, TIDE_FP32) : NULL,
                *summed = is_last ? tide_scalar(t->m, TIDE_FP32) : NULL;
    keep_to_end(t, tide_scalar(t->m, TIDE_FP32));
    tide_release(t->m, stacked);
    tide_release(t->m, summed);
    t->loss_count++;
    for (uint32_t i = 0; i < p->folded_count; i++)
        tide_list_push(t->m, t->graphs.list, tide_of_tensor(tide_retain(p->folded_losses[i])));
    for (uint32_t i = 0; i < p->microbatches; i++)
        if (p->losses[i]) tide_list_push(t->m, t->graphs.list, tide_of_tensor(tide_retain(p->losses[i])));
}

static void schedule_step(titan_step *t) {
    tide_pipeline *p = t->p;
    take_micro_batches(t, p->batch * p->microbatches);
    const titan_inputs in = inputs_begin(t);
    for (uint32_t i = 0; i < p->chunks; i++) {
        fsdp2 *f = p->stages[i].fsdp;
        if (!f) continue;
        f->reduce_grads = false;
        f->keeps_after_backward = true;
    }
    p->take_losses = sum_losses;
    p->taker = t;
    tide_pipeline_step(p);
    for (uint32_t i = 0; i < t->graphs.list->count; i++) tide_drop_storage(t->m, t->graphs.list->items[i].tensor);
    inputs_end(t, in);
}

/* torch.sum(torch.stack(accumulated_losses)), and what is logged of the first step and of every tenth. */
static void log_metrics(titan_step *t, unsigned step) {
    enum { LOG_FREQ = 10 };
    const tide_job *job = t->p->w->job;
    tide_machine *m = t->m;
    m->op = "sum";
    tide_tensor *stacked = tide_flat(m, t->loss_count, TIDE_FP32);
    keep_to_end(t, tide_scalar(m, TIDE_FP32));
    tide_release(m, stacked);
    tide_value_release(m, t->graphs);
    if ((step != 1 && step % LOG_FREQ) || job->parallel_dp * job->parallel_cp == 1) return;
    tide_tensor *weighted = tide_scalar(m, TIDE_FP32);
    keep_to_end(t, tide_scalar(m, TIDE_FP32)); /* local_avg_loss */
    tide_release(m, weighted);
    reduce_to_host(m, TIDE_FP32);
    reduce_to_host(m, TIDE_FP32);
    tide_tensor *seen = tide_scalar(m, TIDE_INT64);
    reduce_to_host(m, TIDE_INT64);
    tide_release(m, seen);
}

void tide_torchtitan_train_step(tide_pipeline *p, unsigned step) {
    tide_wrapper *w = p->w;
    tide_machine *m = w->model->m;
    titan_step t = {.p = p,
                    .m = m,
                    .held = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)},
                    .graphs = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
    tide_zero_grad(w->optimizer, true);
    tide_release_at(m, &p->ids);
    count_valid_tokens(&t);
    if (p->ranks > 1) schedule_step(&t);
    for (uint32_t i = 0; p->ranks == 1 && i < p->microbatches && !tide_is_aborting(m); i++) forward_backward_step(&t);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
    keep_to_end(&t, tide_clip_grad_norm(w->optimizer));
    if (says(w->model, "has_load_balancing")) tide_torchtitan_balance_experts(w);
    tide_scaled_step(w->model, NULL, w->optimizer);
    log_metrics(&t, step);
    tide_release_at(m, &p->labels);
    tide_value_release(m, t.held);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}
