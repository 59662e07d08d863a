/* SPDX-License-Identifier: Apache-2.0 */
/* megatron/core/pipeline_parallel/schedules.py and p2p_communication.py: the three schedules, with Python's lifetimes:
 * a name refers to its value until it is rebound.
 *
 * Note [Interleaving]: virtual_pipeline_model_parallel_size selects it, even if it is 1; each rank has so many chunks
 * of the model. Micro-batches and chunks are in the order of get_schedule_table(), for backward passes with the chunks
 * reversed: warm-up, one forward one backward, cool-down. */
#include <string.h>

#include "base/units.h"
#include "parallel/megatron.h"
#include "parallel/schedule.h"
#include "parallel/steady_state.h"
#include "tensor/ops/ops.h"

/* ---- tensors that wait ---- */

typedef struct queue {
    tide_tensor **items; /* owned; NULL if a stage needs none */
    uint32_t first, end, capacity;
} queue;

static void push_tensor(tide_megatron *g, queue *q, tide_tensor *t) {
    TIDE_ROOM(g->w->model->m->arena, q->items, q->end, q->capacity);
    q->items[q->end++] = t;
}

static tide_tensor *pop(queue *q) {
    return q->first < q->end ? q->items[q->first++] : NULL;
}

static void set(tide_megatron *g, tide_tensor **name, tide_tensor *t) {
    tide_tensor *old = *name;
    *name = t;
    tide_release(g->w->model->m, old);
}

/* ---- a stage ---- */

static bool is_first_stage(const tide_megatron *g, int64_t chunk) {
    return g->topology.pp_rank == 0 && chunk == 0;
}

static bool is_last_stage(const tide_megatron *g, int64_t chunk) {
    return g->topology.pp_rank == g->topology.pp - 1 && chunk == g->chunk_count - 1;
}

/* torch.empty(tensor_shape, requires_grad=True): received from another stage. */
static tide_tensor *received(tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    tide_factor outside = m->state.factor;
    m->op = "recv";
    m->state.factor = TIDE_FACTOR_COMMUNICATION;
    tide_tensor *t = tide_empty(m, &g->stage_shape, g->w->model->state.dtype);
    t->requires_grad = true;
    m->state.factor = outside;
    return t;
}

/* output_tensor, num_tokens = forward_step(...) */
static void forward_step(tide_megatron *g, int64_t chunk, tide_tensor *input, tide_tensor **output,
                         tide_tensor **num_tokens) {
    static const char *const names[] = {"chunk", "input_tensor", "forward_data_store"};
    tide_machine *m = g->w->model->m;
    uint32_t from = m->timeline.allocation_count;
    set(g, &g->input_tensors[chunk], tide_retain(input)); /* decoder.set_input_tensor() */
    tide_value values[] = {tide_of_int(chunk), tide_of_tensor(input), g->forward_data_store};
    tide_value made = tide_model_method(g->w->model, TIDE_TEXT("forward_step"), names, values, 3);
    m->module = m->statement = 0;
    if (made.kind == TIDE_VALUE_LIST && made.list->count == 2 && made.list->items[0].kind == TIDE_VALUE_TENSOR &&
        made.list->items[1].kind == TIDE_VALUE_TENSOR) {
        set(g, output, tide_retain(made.list->items[0].tensor));
        set(g, num_tokens, tide_retain(made.list->items[1].tensor));
    } else if (!tide_is_aborting(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "forward_step() returns [output_tensor, num_tokens]");
    }
    tide_value_release(m, made);
    tide_timeline_end_forward(&m->timeline, from);
}

/* deallocate_output_tensor(): only its graph is still needed. */
static void deallocate_output_tensor(tide_megatron *g, tide_tensor *out) {
    tide_machine *m = g->w->model->m;
    if (!out || !g->w->job->parallel_deallocate_pipeline_outputs) return;
    m->op = "deallocate_output_tensor";
    tide_tensor *one = tide_flat(m, 1, (tide_dtype)out->dtype);
    tide_set_data(m, out, one);
    out->layout = one->layout;
    out->shape = one->shape;
    out->stride = one->stride;
    tide_release(m, one);
}

/* backward_step(): the gradient of the input, owned. *output, the item of a list, is replaced by the scaled loss. */
static tide_tensor *backward_step(tide_megatron *g, tide_tensor *input, tide_tensor **output, tide_tensor *grad) {
    tide_machine *m = g->w->model->m;
    if (!*output) return NULL;
    if (!grad) { /* grad_scale_func: optimizer.scale_loss */
        m->op = "scale_loss";
        set(g, output, tide_mul(m, *output, g->optimizers[0].loss_scale));
    }
    m->op = "ones_like";
    tide_tensor *one = grad ? tide_retain(grad) : tide_empty_like(m, *output, (tide_dtype)(*output)->dtype);
    tide_run_backward_from(m, output, &one, 1);
    tide_release(m, one);
    return input ? tide_retain(input->grad) : NULL;
}

static tide_tensor *begin(tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    g->forward_data_store = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    m->op = "zeros";
    return tide_empty(m, &(tide_shape){.dims = 0}, TIDE_INT32); /* total_num_tokens */
}

static void end(tide_megatron *g, tide_tensor *total_num_tokens, tide_tensor *num_tokens) {
    tide_machine *m = g->w->model->m;
    tide_release(m, num_tokens);
    tide_release(m, total_num_tokens);
    tide_value_release(m, g->forward_data_store);
    g->forward_data_store = tide_none();
}

/* ---- rounds that are kept once: Note [Steady state] in steady_state.c ---- */

/* What was appended to forward_data_store after `from` items: losses, which live to the end of the step. */
static tide_tensor **losses_from(const tide_megatron *g, uint32_t from, uint32_t *count) {
    const tide_list *list = g->forward_data_store.list;
    *count = list->count - from;
    tide_tensor **losses = TIDE_NEW(g->w->model->m->arena, tide_tensor *, *count + 1u);
    for (uint32_t i = 0; i < *count; i++)
        losses[i] = list->items[from + i].kind == TIDE_VALUE_TENSOR ? list->items[from + i].tensor : NULL;
    return losses;
}

/* Inserts the losses of folded rounds before those of the last of them. */
static void insert_losses(tide_megatron *g, const tide_steady_state *s, uint32_t from, tide_tensor *const *losses,
                          uint32_t count) {
    tide_list *list = g->forward_data_store.list;
    for (uint32_t i = 0; i < s->times * count; i++) tide_list_push(g->w->model->m, list, tide_none());
    for (uint32_t i = list->count; i-- > from + s->times * count;) list->items[i] = list->items[i - s->times * count];
    for (uint32_t i = 0; i < s->times * count; i++)
        list->items[from + i] = tide_of_tensor(tide_round_held(s, i / count, losses[i % count], i % count, count));
}

/* After a round, before which forward_data_store had `from` items: how many of the `left` rounds are folded into it. */
static uint32_t fold_rounds(tide_megatron *g, tide_steady_state *s, uint32_t from, int64_t left) {
    uint32_t count;
    if (left < 2) return 0;
    tide_tensor **losses = losses_from(g, from, &count);
    if (!tide_round_ends(s, (uint32_t)left, losses, count)) return 0;
    if (count) insert_losses(g, s, from, losses, count);
    return s->times;
}

/* ---- forward_backward_no_pipelining ---- */

static void no_pipelining(tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    tide_tensor *total = begin(g), *num_tokens = NULL, *output = NULL;
    tide_steady_state rounds = {.w = g->w};
    int64_t left = g->microbatches;
    while (left-- && !tide_is_aborting(m)) {
        uint32_t losses = g->forward_data_store.list->count;
        tide_round_begins(&rounds);
        forward_step(g, 0, NULL, &output, &num_tokens);
        tide_tensor *item = tide_retain(output);
        backward_step(g, NULL, &item, NULL);
        tide_release(m, item);
        left -= fold_rounds(g, &rounds, losses, left);
    }
    tide_megatron_finalize_model_grads(g);
    tide_release(m, output);
    end(g, total, num_tokens);
}

/* ---- forward_backward_pipelining_without_interleaving: 1F1B ---- */

static void without_interleaving(tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    bool is_first = is_first_stage(g, 0), is_last = is_last_stage(g, 0);
    int64_t warmup = g->topology.pp - g->topology.pp_rank - 1;
    if (warmup > g->microbatches) warmup = g->microbatches;
    int64_t remaining = g->microbatches - warmup;
    queue inputs = {NULL, 0, 0, 0}, outputs = {NULL, 0, 0, 0};
    tide_tensor *total = begin(g), *num_tokens = NULL, *input = NULL, *output = NULL, *grad = NULL, *input_grad = NULL;
    for (int64_t i = 0; i < warmup && !tide_is_aborting(m); i++) {
        set(g, &input, is_first ? NULL : received(g));
        forward_step(g, 0, input, &output, &num_tokens);
        push_tensor(g, &inputs, tide_retain(input));
        push_tensor(g, &outputs, tide_retain(output));
        deallocate_output_tensor(g, output);
    }
    if (remaining > 0) set(g, &input, is_first ? NULL : received(g));
    tide_steady_state rounds = {.w = g->w};
    while (remaining-- && !tide_is_aborting(m)) {
        uint32_t losses = g->forward_data_store.list->count;
        tide_round_begins(&rounds);
        forward_step(g, 0, input, &output, &num_tokens);
        set(g, &grad, is_last ? NULL : received(g));
        push_tensor(g, &inputs, tide_retain(input));
        push_tensor(g, &outputs, tide_retain(output));
        deallocate_output_tensor(g, output);
        set(g, &input, pop(&inputs));
        set(g, &output, pop(&outputs));
        set(g, &input_grad, backward_step(g, input, &output, grad));
        set(g, &input, !remaining || is_first ? NULL : received(g));
        remaining -= fold_rounds(g, &rounds, losses, remaining - 1); /* nothing is received after the last one */
    }
    for (int64_t i = 0; i < warmup && !tide_is_aborting(m); i++) {
        set(g, &input, pop(&inputs));
        set(g, &output, pop(&outputs));
        set(g, &grad, is_last ? NULL : received(g));
        set(g, &input_grad, backward_step(g, input, &output, grad));
    }
    tide_megatron_finalize_model_grads(g);
    end(g, total, num_tokens);
    tide_tensor **names[] = {&input, &output, &grad, &input_grad};
    for (unsigned i = 0; i < TIDE_COUNT_OF(names); i++) set(g, names[i], NULL);
}

/* ---- forward_backward_pipelining_with_interleaving ---- */

typedef struct interleaved {
    tide_megatron *g;
    tide_schedule_entry *table;
    uint32_t pp, pp_rank, chunks, group, total, warmup;
    queue *inputs, *outputs, *grads; /* by chunk */
    queue recv_next_wait_handles;    /* a handle refers to what is received */
    tide_tensor *total_num_tokens;
    tide_tensor *output, *input_grad, *input, *output_grad; /* local names of the function */
    tide_tensor **fwd_recv_buffer, **bwd_recv_buffer;       /* owned; slots that are filled in turn */
    uint32_t fwd_recv_buffer_size, bwd_recv_buffer_size;
    tide_tensor *recv_next_wait_handle;
    tide_tensor *send_prev_wait_handle; /* refers to what was last sent while passes overlapped */
} interleaved;

static uint32_t get_model_chunk_id(const interleaved *s, uint32_t k, bool is_forward) {
    uint32_t chunk = s->table[k % s->total].chunk;
    return is_forward ? chunk : s->chunks - 1 - chunk;
}

/* recv_tensor_from_previous_stage(): whether something is received, and for which chunk. */
static bool receives(const interleaved *s, uint32_t k, bool is_forward, uint32_t *chunk) {
    bool is_leading = is_forward ? s->pp_rank == 0 : s->pp_rank == s->pp - 1, comes = true;
    if (!is_leading) {
        *chunk = get_model_chunk_id(s, k + 1, is_forward);
        return true;
    }
    if (k < s->pp - 1) comes = false;
    uint32_t next = get_model_chunk_id(s, k < s->pp - 1 ? k + 1 : k - (s->pp - 1), is_forward);
    if (next == (is_forward ? s->chunks - 1 : 0)) comes = false;
    *chunk = comes ? (is_forward ? next + 1 : next - 1) : 0;
    return comes;
}

/* forward_step_helper() */
static tide_tensor *forward_helper(interleaved *s, uint32_t k) {
    tide_megatron *g = s->g;
    uint32_t chunk = get_model_chunk_id(s, k, true), microbatch = s->table[k].microbatch;
    queue *inputs = &s->inputs[chunk];
    if (is_first_stage(g, chunk) && inputs->end - inputs->first == s->outputs[chunk].end - s->outputs[chunk].first)
        push_tensor(g, inputs, NULL);
    tide_tensor *num_tokens = NULL, *input = microbatch < inputs->end ? inputs->items[microbatch] : NULL;
    tide_tensor *output = NULL;
    forward_step(g, chunk, input, &output, &num_tokens);
    push_tensor(g, &s->outputs[chunk], tide_retain(output));
    tide_release(g->w->model->m, num_tokens);
    return output;
}

/* backward_step_helper() */
static tide_tensor *backward_helper(interleaved *s, uint32_t k) {
    tide_megatron *g = s->g;
    tide_machine *m = g->w->model->m;
    uint32_t chunk = get_model_chunk_id(s, k, false);
    bool is_last = is_last_stage(g, chunk);
    tide_tensor *input = pop(&s->inputs[chunk]), *output = pop(&s->outputs[chunk]),
                *grad = is_last ? NULL : pop(&s->grads[chunk]);
    tide_tensor *item = tide_retain(output), *input_grad = backward_step(g, input, &item, grad);
    tide_release(m, item);
    tide_release(m, input);
    tide_release(m, output);
    tide_release(m, grad);
    return input_grad;
}

/* Nothing is sent on from the last stage, nor back from the first. */
static void drop_ends(interleaved *s, uint32_t forward_k, uint32_t backward_k, bool has_backward) {
    if (is_last_stage(s->g, get_model_chunk_id(s, forward_k, true))) set(s->g, &s->output, NULL);
    if (has_backward && is_first_stage(s->g, get_model_chunk_id(s, backward_k, false))) set(s->g, &s->input_grad, NULL);
}

static void warm_up_schedule(interleaved *s, bool overlaps) {
    tide_megatron *g = s->g;
    bool is_all = s->warmup == s->total;
    for (uint32_t k = 0; k < s->warmup && !tide_is_aborting(g->w->model->m); k++) {
        uint32_t next = 0;
        bool recv_prev = receives(s, k, true, &next) && k != s->total - 1, is_end = k == s->warmup - 1 && !is_all,
             recv_next = is_end && s->pp_rank != s->pp - 1;
        set(g, &s->output, forward_helper(s, k));
        drop_ends(s, k, 0, false);
        set(g, &s->input, recv_prev ? received(g) : NULL);
        if (!overlaps && is_end) {
            set(g, &s->output_grad, recv_next ? received(g) : NULL);
            push_tensor(g, &s->grads[s->chunks - 1], tide_retain(s->output_grad));
        }
        if (recv_prev) push_tensor(g, &s->inputs[next], tide_retain(s->input));
        deallocate_output_tensor(g, s->output);
        if (overlaps && recv_next) {
            tide_tensor **last = &s->bwd_recv_buffer[s->bwd_recv_buffer_size - 1];
            set(g, last, received(g));
            push_tensor(g, &s->grads[s->chunks - 1], tide_retain(*last));
            push_tensor(g, &s->recv_next_wait_handles, tide_retain(*last));
        }
    }
}

/* What comes is put in its slot, and the next slot is cleared for what follows. */
static tide_tensor *receive_into(interleaved *s, tide_tensor **slots, uint32_t count, uint32_t k, bool comes) {
    tide_tensor *t = comes ? received(s->g) : NULL;
    set(s->g, &slots[k % count], tide_retain(t));
    if (comes) set(s->g, &slots[(k + 1) % count], NULL);
    return t;
}

/* One forward and one backward pass, each followed by its communication: pp_post_forward(), pp_post_backward(). */
static void steady_overlapped(interleaved *s, uint32_t k, uint32_t remaining) {
    tide_megatron *g = s->g;
    uint32_t forward_k = k + s->warmup, next = 0;
    deallocate_output_tensor(g, s->output);
    tide_tensor *output = forward_helper(s, forward_k);
    if (is_last_stage(g, get_model_chunk_id(s, forward_k, true))) set(g, &output, NULL);
    bool recv_prev = receives(s, forward_k, true, &next) && k != remaining - 1;
    tide_tensor *input = receive_into(s, s->fwd_recv_buffer, s->fwd_recv_buffer_size, forward_k, recv_prev);
    if (recv_prev) push_tensor(g, &s->inputs[next], input);
    if (!is_last_stage(g, get_model_chunk_id(s, k, false)))
        tide_release(g->w->model->m, pop(&s->recv_next_wait_handles)); /* pp_pre_backward() */
    tide_tensor *input_grad = backward_helper(s, k);
    if (is_first_stage(g, get_model_chunk_id(s, k, false))) set(g, &input_grad, NULL);
    bool recv_next = receives(s, k, false, &next);
    tide_tensor *grad = receive_into(s, s->bwd_recv_buffer, s->bwd_recv_buffer_size, k, recv_next);
    if (recv_next) push_tensor(g, &s->recv_next_wait_handles, tide_retain(grad));
    if (recv_next) push_tensor(g, &s->grads[next], grad);
    set(g, &s->output, output);
    set(g, &s->input_grad, input_grad);
}

static void steady(interleaved *s, uint32_t k, uint32_t remaining) {
    tide_megatron *g = s->g;
    uint32_t forward_k = k + s->warmup, next_forward = 0, next_backward = 0;
    tide_tensor *output = forward_helper(s, forward_k), *input_grad = backward_helper(s, k);
    set(g, &s->output, output);
    set(g, &s->input_grad, input_grad);
    drop_ends(s, forward_k, k, true);
    bool recv_prev = receives(s, forward_k, true, &next_forward) && k != remaining - 1,
         recv_next = receives(s, k, false, &next_backward);
    tide_tensor *input = recv_prev ? received(g) : NULL, *grad = recv_next ? received(g) : NULL;
    set(g, &s->input, input);
    set(g, &s->output_grad, grad);
    deallocate_output_tensor(g, s->output);
    if (recv_prev) push_tensor(g, &s->inputs[next_forward], tide_retain(input));
    if (recv_next) push_tensor(g, &s->grads[next_backward], tide_retain(grad));
}

/* A round is a group of micro-batches, through all chunks. If rounds are folded, the schedule is that of fewer
 * micro-batches: get_schedule_table() starts with whole rounds. Returns the number of passes. */
static uint32_t run_steady(interleaved *s, bool overlaps) {
    tide_megatron *g = s->g;
    uint32_t round = s->group * s->chunks, losses = 0;
    tide_steady_state rounds = {.w = g->w};
    for (uint32_t k = 0; k < s->total - s->warmup && !tide_is_aborting(g->w->model->m); k++) {
        if (k % round == 0) losses = g->forward_data_store.list->count;
        if (k % round == 0) tide_round_begins(&rounds);
        (overlaps ? steady_overlapped : steady)(s, k, s->total - s->warmup);
        uint32_t whole = s->total / round * round, next = k + 1 + s->warmup;
        if ((k + 1) % round || next >= whole) continue;
        uint32_t fewer = fold_rounds(g, &rounds, losses, (whole - next - 1) / round);
        if (!fewer) continue;
        s->total -= fewer * round;
        tide_schedule_table(s->table, s->total / s->chunks, s->chunks, s->group);
    }
    return s->total - s->warmup;
}

static void cool_down(interleaved *s, uint32_t remaining) {
    tide_megatron *g = s->g;
    if (s->warmup == s->total)
        push_tensor(g, &s->grads[s->chunks - 1], is_last_stage(g, s->chunks - 1) ? NULL : received(g));
    for (uint32_t k = remaining; k < s->total && !tide_is_aborting(g->w->model->m); k++) {
        uint32_t next = 0;
        bool recv_next = receives(s, k, false, &next) && k != s->total - 1;
        queue *handles = &s->recv_next_wait_handles;
        if (k && !is_last_stage(g, get_model_chunk_id(s, k, false)) && handles->first < handles->end)
            set(g, &s->recv_next_wait_handle, pop(handles));
        set(g, &s->input_grad, backward_helper(s, k));
        if (is_first_stage(g, get_model_chunk_id(s, k, false))) set(g, &s->input_grad, NULL);
        set(g, &s->output_grad, recv_next ? received(g) : NULL);
        if (recv_next) push_tensor(g, &s->grads[next], tide_retain(s->output_grad));
    }
}

static void with_interleaving(tide_megatron *g) {
    tide_arena *arena = g->w->model->m->arena;
    bool overlaps = g->w->job->parallel_overlap_p2p;
    interleaved s = {.g = g,
                     .pp = (uint32_t)g->topology.pp,
                     .pp_rank = (uint32_t)g->topology.pp_rank,
                     .chunks = (uint32_t)g->chunk_count,
                     .group = (uint32_t)g->microbatch_group};
    uint32_t slots = s.group - s.pp + 1, microbatches = (uint32_t)g->microbatches;
    s.total = microbatches * s.chunks;
    s.table = TIDE_NEW(arena, tide_schedule_entry, s.total);
    tide_schedule_table(s.table, microbatches, s.chunks, s.group);
    s.warmup = tide_schedule_warmup(s.pp, s.pp_rank, microbatches, s.chunks, s.group, true);
    s.fwd_recv_buffer_size = s.pp_rank == 0 ? slots : 1;
    s.bwd_recv_buffer_size = s.pp_rank == s.pp - 1 ? slots : 1;
    s.fwd_recv_buffer = TIDE_NEW(arena, tide_tensor *, s.fwd_recv_buffer_size);
    s.bwd_recv_buffer = TIDE_NEW(arena, tide_tensor *, s.bwd_recv_buffer_size);
    s.inputs = TIDE_NEW(arena, queue, s.chunks);
    s.outputs = TIDE_NEW(arena, queue, s.chunks);
    s.grads = TIDE_NEW(arena, queue, s.chunks);
    s.total_num_tokens = begin(g);
    push_tensor(g, &s.inputs[0], is_first_stage(g, 0) ? NULL : received(g));
    warm_up_schedule(&s, overlaps);
    uint32_t remaining = run_steady(&s, overlaps);
    if (overlaps) s.send_prev_wait_handle = tide_retain(s.input_grad);
    deallocate_output_tensor(g, s.output);
    cool_down(&s, remaining);
    tide_megatron_finalize_model_grads(g);
    /* locals are released in the order of their first assignment, those shared with inner functions after the others */
    tide_tensor **names[] = {&s.input_grad, &s.input, &s.output_grad, &s.recv_next_wait_handle},
                **shared[] = {&s.output, &s.send_prev_wait_handle};
    for (unsigned i = 0; i < TIDE_COUNT_OF(names); i++) set(g, names[i], NULL);
    for (unsigned i = 0; i < s.fwd_recv_buffer_size; i++) set(g, &s.fwd_recv_buffer[i], NULL);
    for (unsigned i = 0; i < s.bwd_recv_buffer_size; i++) set(g, &s.bwd_recv_buffer[i], NULL);
    for (unsigned i = 0; i < TIDE_COUNT_OF(shared); i++) set(g, shared[i], NULL);
    end(g, s.total_num_tokens, NULL);
}

void tide_megatron_forward_backward(tide_megatron *g) {
    if (g->topology.pp == 1)
        no_pipelining(g);
    else if (g->is_interleaved)
        with_interleaving(g);
    else
        without_interleaving(g);
}
