/* SPDX-License-Identifier: Apache-2.0 */
/* Autograd: nodes, saved tensors, and the engine's order.
 *
 * Note [Engine order], torch/csrc/autograd/engine.cpp: ready nodes run in descending order of sequence number,
 * AccumulateGrad first of all. A node's incoming gradients live until its outputs have been validated (reduced and cast
 * to the shape and dtype of what they belong to); its saved tensors are released right after that; then its outputs are
 * passed on. */
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

static void accumulate_grad_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results);
static const tide_backward accumulate_grad = {"AccumulateGrad", accumulate_grad_run};

uint32_t tide_node_bytes(unsigned edges, unsigned outputs, unsigned saved) {
    return (uint32_t)(sizeof(tide_node) + edges * sizeof(tide_edge) + outputs * sizeof(tide_meta) +
                      saved * sizeof(tide_saved));
}

void tide_node_lay_out(tide_node *node) {
    node->edges = (tide_edge *)(node + 1);
    node->saved = (tide_saved *)(node->edges + node->edge_count);
    node->outputs = (tide_meta *)(node->saved + node->saved_capacity);
}

static tide_node *node_take(tide_machine *m, const tide_backward *backward, int edges, int outputs, int saved) {
    uint32_t bytes = tide_node_bytes((unsigned)edges, (unsigned)outputs, (unsigned)saved);
    tide_node *node = tide_pool_alloc(m, bytes);
    node->references = 1;
    node->serial = ++m->serial;
    node->bytes = bytes;
    node->backward = backward;
    node->edge_count = (uint16_t)edges;
    node->saved_capacity = (uint16_t)saved;
    node->output_capacity = (uint16_t)outputs;
    tide_node_lay_out(node);
    node->module = m->module;
    node->statement = m->statement;
    node->op = m->op;
    node->stream = (uint8_t)m->state.stream;
    return node;
}

bool tide_needs_node(const tide_machine *m, tide_tensor *const *inputs, int count) {
    if (!m->state.grad_enabled || m->has_failed) return false;
    for (int i = 0; i < count; i++)
        if (inputs[i] && inputs[i]->requires_grad) return true;
    return false;
}

tide_node *tide_accumulator_of(tide_machine *m, tide_tensor *leaf) {
    if (leaf->accumulator) {
        leaf->accumulator->references++;
        return leaf->accumulator;
    }
    tide_node *node = node_take(m, &accumulate_grad, 0, 1, 0);
    node->order = UINT32_MAX;
    node->op = "AccumulateGrad";
    node->output_count = 1;
    node->outputs[0] = (tide_meta){leaf->shape, leaf->dtype, leaf->is_dtensor};
    node->of.accumulate_grad.variable = tide_retain(leaf);
    leaf->accumulator = node;
    return node;
}

bool tide_is_accumulator(const tide_node *node) {
    return node->backward == &accumulate_grad;
}

tide_node *tide_node_new(tide_machine *m, const tide_backward *backward, tide_tensor *const *inputs, int count) {
    return tide_node_with(m, backward, inputs, count, 1, 5);
}

tide_node *tide_node_with(tide_machine *m, const tide_backward *backward, tide_tensor *const *inputs, int count,
                          int outputs, int saved) {
    for (int i = 0; i < count && m->folding.has_folded && m->state.grad_enabled; i++)
        if (inputs[i] && inputs[i]->is_of_iteration) tide_cannot_fold(m);
    if (!tide_needs_node(m, inputs, count)) return NULL;
    if (count > UINT16_MAX || outputs > UINT16_MAX) {
        tide_fail(m, TIDE_ERR_LIMIT, "%s: more than 65535 tensors in one operation", m->op);
        return NULL;
    }
    tide_node *node = node_take(m, backward, count, outputs, saved);
    node->order = m->node_order++;
    for (int i = 0; i < count; i++) {
        tide_tensor *t = inputs[i];
        if (!t || !t->requires_grad) continue;
        if (t->node) {
            t->node->references++;
            node->edges[i] = (tide_edge){t->node, t->output};
        } else {
            node->edges[i] = (tide_edge){tide_accumulator_of(m, t), 0};
        }
    }
    return node;
}

void tide_slot_save(tide_machine *m, tide_saved *slot, tide_tensor *t) {
    tide_saved_tensors_hooks *hooks = m->state.saved_tensors_hooks;
    slot->requires_grad = t->requires_grad;
    if (hooks)
        hooks->pair->pack(m, hooks, slot, t);
    else
        slot->tensor = tide_retain(t);
}

tide_tensor *tide_slot_unpack(tide_machine *m, tide_saved *slot) {
    return slot->packed_by ? slot->packed_by->pair->unpack(m, slot) : tide_retain(slot->tensor);
}

void tide_slot_clear(tide_machine *m, tide_saved *slot) {
    if (slot->packed_by) slot->packed_by->pair->drop(m, slot);
    slot->packed_by = NULL;
    tide_release_at(m, &slot->tensor);
}

void tide_register_hook(tide_node *node, tide_tensor_hook *hook) {
    tide_tensor_hook **last = &node->tensor_hooks;
    while (*last) last = &(*last)->next;
    hook->next = NULL;
    *last = hook;
}

static tide_tensor_hook *take_hook(tide_node *node) {
    tide_tensor_hook *hook = node->tensor_hooks;
    node->tensor_hooks = hook->next;
    return hook;
}

static void run_hooks(tide_machine *m, tide_node *node) {
    while (node->tensor_hooks) {
        tide_tensor_hook *hook = take_hook(node);
        hook->run(m, hook);
        hook->drop(m, hook);
    }
}

static void node_clear_saved(tide_machine *m, tide_node *node) {
    for (unsigned i = 0; i < node->saved_count; i++) tide_slot_clear(m, &node->saved[i]);
    node->saved_count = 0;
    if (node->held && node->held->clear) node->held->clear(m, node->held);
}

/* Graphs are deep chains: nodes are released iteratively, not recursively. */
void tide_node_release(tide_machine *m, tide_node *node) {
    if (!node) return;
    TIDE_INVARIANT(node->references > 0);
    if (--node->references) return;
    TIDE_INVARIANT(!node->state); /* no backward pass still has to run it */
    node->next = m->dying;
    m->dying = node;
    if (m->is_tearing_down) return;
    m->is_tearing_down = true;
    while (m->dying) {
        tide_node *dead = m->dying;
        m->dying = dead->next;
        if (tide_is_accumulator(dead)) {
            dead->of.accumulate_grad.variable->accumulator = NULL;
            tide_release(m, dead->of.accumulate_grad.variable);
        }
        while (dead->saved_count)
            tide_slot_clear(m, &dead->saved[--dead->saved_count]); /* members are destroyed in reverse order */
        node_clear_saved(m, dead);
        if (dead->held) dead->held->drop(m, dead->held);
        while (dead->tensor_hooks) {
            tide_tensor_hook *hook = take_hook(dead);
            hook->drop(m, hook);
        }
        for (unsigned i = 0; i < dead->edge_count; i++) {
            tide_node *to = dead->edges[i].node;
            if (to && --to->references == 0) {
                TIDE_INVARIANT(!to->state);
                to->next = m->dying;
                m->dying = to;
            }
        }
        tide_pool_free(m, dead, dead->bytes);
    }
    m->is_tearing_down = false;
}

void tide_save(tide_machine *m, tide_node *node, tide_tensor *t) {
    if (!node) return;
    if (node->saved_count == node->saved_capacity) {
        tide_fail(m, TIDE_ERR_LIMIT, "%s saves more than %u tensors", node->op, node->saved_capacity);
        return;
    }
    tide_saved *slot = &node->saved[node->saved_count++];
    if (!t) return;
    if (t->node == node && !m->state.saved_tensors_hooks)
        slot->tensor = tide_alias(m, t); /* an output is saved without its node, to avoid a reference cycle */
    else
        tide_slot_save(m, slot, t);
}

tide_tensor *tide_saved_at(tide_machine *m, tide_node *node, int slot) {
    return slot < node->saved_count ? tide_slot_unpack(m, &node->saved[slot]) : NULL;
}

tide_tensor *tide_set_grad_fn(tide_machine *m, tide_node *node, tide_tensor *t) {
    if (!node || !t) return t;
    if (node->output_count == node->output_capacity) {
        tide_fail(m, TIDE_ERR_LIMIT, "%s makes more than %u tensors", node->op, node->output_capacity);
        return t;
    }
    tide_node *before = t->node; /* of what was recorded inside of a function, whose own node replaces it */
    t->requires_grad = true;
    t->is_leaf = false;
    t->node = node;
    t->output = node->output_count;
    if (before) tide_node_release(m, before);
    if (node->output_count) node->references++; /* the first output takes over the creator's reference */
    node->outputs[node->output_count++] = (tide_meta){t->shape, t->dtype, t->is_dtensor};
    return t;
}

void tide_wait_tensor(tide_machine *m, const tide_tensor *t) {
    if (!m->in_flight || !t || t->storage != m->in_flight->storage) return;
    tide_release_at(m, &m->in_flight);
    tide_release_at(m, &m->in_flight_input);
}

void tide_hold(tide_machine *m, tide_tensor *t, tide_tensor *const *held, uint32_t count) {
    static const tide_backward nothing = {"", NULL};
    tide_node *node = node_take(m, &nothing, 0, 1, (int)count);
    for (uint32_t i = 0; i < count; i++) node->saved[node->saved_count++].tensor = held[i];
    t->node = node;
    t->is_leaf = false;
}

/* ---- gradients ---- */

/* A view keeps its base alive, which also refers to the storage. */
static bool is_alone(const tide_tensor *t) {
    return t->references == 1 && t->storage->references == 1 && !t->is_view;
}

/* torch/csrc/autograd/input_buffer.cpp: accumulate. Takes ownership of both. */
static tide_tensor *accumulate(tide_machine *m, tide_tensor *old, tide_tensor *g, bool is_dtensor) {
    if (!old || !g) return old ? old : g;
    if (tide_is_dense(old) && is_alone(old) && !is_dtensor) {
        tide_release(m, g);
        return old;
    }
    tide_wait_tensor(m, old);
    tide_wait_tensor(m, g);
    /* a Partial() DTensor of the full size is redistributed to the placement of the sharded one, a Replicate() one is
     * divided into parts */
    bool is_divided = old->is_replicated != g->is_replicated;
    bool is_redistributed = is_dtensor && (is_divided || !tide_same_shape(old->shape, g->shape));
    const tide_tensor *cut = tide_bytes(g) < tide_bytes(old) ? g : old;
    tide_tensor *part = is_redistributed ? tide_empty(m, cut->shape, (tide_dtype)cut->dtype) : tide_retain(g);
    tide_tensor *both[2] = {is_redistributed ? part : old, part};
    tide_tensor *sum = tide_empty_laid_out(m, tide_elementwise_layout(m, cut->shape, both, 2), tide_promote(old, g));
    tide_release(m, part);
    tide_release(m, old);
    tide_release(m, g);
    return sum;
}

/* torch/csrc/autograd/functions/accumulate_grad.h: accumulateGrad. */
static void put_grad(tide_machine *m, tide_tensor *leaf, tide_tensor *g) {
    if (leaf->grad) return; /* added in place */
    bool same_layout = true;
    for (int i = 0; i < leaf->shape->dims; i++)
        same_layout = same_layout && (leaf->shape->dim[i].size < 2 || leaf->stride[i] == g->stride[i]);
    if (g->references == 1 && (tide_is_dense(leaf) ? same_layout : tide_is_contiguous(g))) {
        leaf->grad = tide_alias(m, g); /* detach: shares the storage without being a view that keeps a base */
        leaf->grad->is_view = false;
    } else {
        leaf->grad = tide_is_dense(leaf) ? tide_empty_strided(m, leaf->shape, leaf->stride, g->dtype)
                                         : tide_empty(m, leaf->shape, g->dtype);
    }
    if (leaf->is_parameter) tide_set_factor(m, leaf->grad, TIDE_FACTOR_GRADIENT);
}

static void accumulate_grad_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)results;
    tide_tensor *leaf = node->of.accumulate_grad.variable;
    if (!leaf || !grads[0]) return;
    put_grad(m, leaf, grads[0]);
    if (m->gradient_ready && leaf->is_parameter) m->gradient_ready(m, leaf);
}

/* ---- the engine ---- */

/* A node's state in the current backward pass; one AccumulateGrad may be part of several nested passes. */
typedef struct tide_task_state {
    struct tide_task_state *outer;
    uint32_t task;
    uint32_t dependencies : 31;
    uint32_t is_needed : 1; /* exec_info: a requested input is reachable from it */
    tide_tensor **capture;  /* where its gradient is stored, instead of running it; NULL: nowhere */
    tide_tensor *grads[];   /* one per output */
} task_state;

typedef struct engine {
    tide_machine *m;
    uint32_t task;
    bool keeps_graph;
    tide_node **heap; /* ready nodes, highest order first */
    uint32_t heap_count, heap_capacity;
    tide_node **seen; /* every node of the pass */
    uint32_t seen_count, seen_capacity;
} engine;

static size_t state_bytes(const tide_node *node) {
    return sizeof(task_state) + sizeof(tide_tensor *) * (node->output_count ? node->output_count : 1u);
}

static task_state *state_of(engine *e, tide_node *node) {
    if (node->state && node->state->task == e->task) return node->state;
    task_state *state = tide_pool_alloc(e->m, state_bytes(node));
    state->outer = node->state;
    state->task = e->task;
    node->state = state;
    node->references++;
    TIDE_ROOM(e->m->arena, e->seen, e->seen_count, e->seen_capacity);
    e->seen[e->seen_count++] = node;
    return state;
}

/* task_should_compute_output() */
bool tide_needs_input_grad(const tide_node *node, int edge) {
    const tide_node *next = node->edges[edge].node;
    return next && (!node->state || !next->state || next->state->is_needed);
}

tide_tensor *const *tide_incoming_grads(const tide_node *node) {
    return node->state->grads;
}

static void push_ready(engine *e, tide_node *node) {
    TIDE_ROOM(e->m->arena, e->heap, e->heap_count, e->heap_capacity);
    uint32_t at = e->heap_count++;
    while (at && e->heap[(at - 1) / 2]->order < node->order) {
        e->heap[at] = e->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    e->heap[at] = node;
}

/* Nodes of equal order (all AccumulateGrad have the highest) come out as from std::priority_queue in libstdc++: the
 * hole at the top sinks along the larger children, the right one if they are equal, and the last node rises from there.
 */
static tide_node *pop_ready(engine *e) {
    tide_node *top = e->heap[0], *last = e->heap[--e->heap_count];
    uint32_t hole = 0, count = e->heap_count;
    for (uint32_t child = 1; child < count; child = 2 * hole + 1) {
        if (child + 1 < count && e->heap[child + 1]->order >= e->heap[child]->order) child++;
        e->heap[hole] = e->heap[child];
        hole = child;
    }
    for (; hole && e->heap[(hole - 1) / 2]->order < last->order; hole = (hole - 1) / 2)
        e->heap[hole] = e->heap[(hole - 1) / 2];
    if (count) e->heap[hole] = last;
    return top;
}

/* For every node reachable from those seen, counts the edges that lead to it. */
static void count_dependencies(engine *e) {
    for (uint32_t i = 0; i < e->seen_count; i++) {
        tide_node *node = e->seen[i];
        for (unsigned k = 0; k < node->edge_count; k++)
            if (node->edges[k].node) state_of(e, node->edges[k].node)->dependencies++;
    }
}

static int by_order(const void *a, const void *b) {
    const tide_node *x = *(tide_node *const *)a, *y = *(tide_node *const *)b;
    uint32_t of_x = tide_is_accumulator(x) ? 0 : x->order + 1, of_y = tide_is_accumulator(y) ? 0 : y->order + 1;
    return of_x < of_y ? -1 : of_x > of_y;
}

/* GraphTask::init_to_execute: only what leads to an input runs; without inputs, everything. A node is newer than those
 * that its edges lead to. */
static void mark_needed(engine *e, tide_node *const *inputs, uint32_t count, tide_tensor **captured) {
    if (count) qsort(e->seen, e->seen_count, sizeof(tide_node *), by_order);
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i]->state && inputs[i]->state->task == e->task) inputs[i]->state->capture = &captured[i];
    for (uint32_t i = 0; i < e->seen_count; i++) {
        tide_node *node = e->seen[i];
        bool is_needed = !count || node->state->capture;
        for (unsigned k = 0; k < node->edge_count && !is_needed; k++)
            is_needed = node->edges[k].node && node->edges[k].node->state->is_needed;
        node->state->is_needed = is_needed;
    }
}

/* Whether a gradient was broadcast; the local part of a DTensor may differ in size because of its placement alone. */
static bool is_broadcast(const tide_tensor *g, const tide_meta *meta) {
    bool is_broader = g->shape->dims != meta->shape->dims;
    for (int i = 0; i < meta->shape->dims && !is_broader; i++)
        is_broader = meta->shape->dim[i].size == 1 && g->shape->dim[i].size != 1;
    return meta->is_dtensor ? is_broader : !tide_same_shape(g->shape, meta->shape);
}

static bool keeps_dtype(const tide_node *node) {
    return node->backward == &accumulate_grad && node->of.accumulate_grad.keeps_dtype;
}

/* Brings a gradient to the shape and dtype of what it belongs to (engine.cpp: validate_outputs). Takes ownership of g.
 */
static tide_tensor *validate(tide_machine *m, tide_tensor *g, const tide_edge *edge) {
    if (!g) return NULL;
    const tide_meta *meta = &edge->node->outputs[edge->input];
    if (is_broadcast(g, meta)) g = tide_sum_to(m, g, meta->shape);
    if (g && !keeps_dtype(edge->node) && g->dtype != meta->dtype) {
        tide_tensor *cast = tide_empty_like(m, g, meta->dtype);
        tide_release(m, g);
        g = cast;
    }
    return g;
}

enum { EDGE_LIMIT = 64, ROOT_LIMIT = 4 };

static void run_node(engine *e, tide_node *node) {
    tide_machine *m = e->m;
    task_state *state = node->state;
    tide_tensor *on_stack[EDGE_LIMIT];
    size_t bytes = node->edge_count * sizeof(tide_tensor *);
    tide_tensor **results = node->edge_count <= EDGE_LIMIT ? on_stack : tide_pool_alloc(m, bytes);
    for (unsigned i = 0; i < node->edge_count; i++) results[i] = NULL;
    tide_freed_by freeing = m->freeing;
    m->module = node->module;
    m->statement = node->statement;
    m->op = node->backward->name;
    m->freeing = TIDE_FREED_BY_BACKWARD;
    bool has_grad = false;
    for (unsigned i = 0; i < node->output_count; i++) has_grad = has_grad || state->grads[i];
    uint32_t outside = m->state.stream;
    m->state.stream = node->stream;
    for (unsigned i = 0; i < node->output_count; i++) tide_wait_tensor(m, state->grads[i]);
    if (has_grad) run_hooks(m, node);
    if (node->is_spent && !m->has_failed)
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "%s: \"Trying to backward through the graph a second time\": layers under reentrant checkpoints "
                  "share what it made",
                  m->op);
    else if (has_grad)
        node->backward->run(m, node, state->grads, results);
    for (unsigned i = 0; i < node->edge_count; i++) {
        if (tide_needs_input_grad(node, (int)i))
            results[i] = validate(m, results[i], &node->edges[i]);
        else
            tide_release_at(m, &results[i]);
    }
    if (has_grad && m->after_backward) m->after_backward(m->after_backward_of);
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_BACKWARD, node->backward->name);
    m->module = node->module;
    m->statement = node->statement;
    for (unsigned i = 0; i < node->output_count; i++) tide_release_at(m, &state->grads[i]);
    if (!e->keeps_graph) {
        node->is_spent = node->saved_count > 0;
        node_clear_saved(m, node);
    }
    tide_freeing_ends(m, before);
    for (unsigned i = 0; i < node->edge_count; i++) {
        tide_edge *edge = &node->edges[i];
        if (!tide_needs_input_grad(node, (int)i)) continue;
        task_state *next = edge->node->state;
        uint8_t taken_on = edge->node->stream;
        m->state.stream = taken_on; /* InputBuffer::add: a gradient from another stream waits for the consumer's */
        if (results[i] && taken_on != node->stream) tide_record_stream(m, results[i], taken_on);
        bool is_dtensor = edge->node->output_count && edge->node->outputs[edge->input].is_dtensor;
        next->grads[edge->input] = accumulate(m, next->grads[edge->input], results[i], is_dtensor);
        TIDE_INVARIANT(next->task == e->task && next->dependencies > 0);
        if (--next->dependencies == 0) push_ready(e, edge->node);
    }
    if (results != on_stack) tide_pool_free(m, results, bytes);
    m->state.stream = outside;
    m->freeing = freeing;
}

/* A requested gradient belongs to the caller; nothing runs for it. */
static void take_captured(task_state *state) {
    *state->capture = state->grads[0];
    state->grads[0] = NULL;
}

static void engine_ends(engine *e) {
    tide_machine *m = e->m;
    for (uint32_t i = 0; i < e->seen_count; i++) {
        tide_node *node = e->seen[i];
        task_state *state = node->state;
        unsigned outputs = node->output_count ? node->output_count : 1u;
        for (unsigned k = 0; k < outputs; k++) tide_release_at(m, &state->grads[k]);
        node->state = state->outer;
        tide_pool_free(m, state, state_bytes(node));
    }
    for (uint32_t i = 0; i < e->seen_count; i++) tide_node_release(m, e->seen[i]);
    if (e->seen) tide_arena_drop(m->arena, e->seen);
    if (e->heap) tide_arena_drop(m->arena, e->heap);
}

/* Engine::execute: the given gradients, validated, stay alive until it ends. */
static void execute(tide_machine *m, const tide_edge *roots, tide_tensor *const *grads, uint32_t count,
                    tide_node *const *inputs, uint32_t input_count, tide_tensor **captured, bool keeps_graph) {
    uint32_t module = m->module, statement = m->statement;
    const char *op = m->op;
    tide_machine_state outside = m->state;
    m->state.grad_enabled = false;
    m->state.is_in_backward = true;
    engine e = {.m = m, .task = ++m->task_count, .keeps_graph = keeps_graph};
    uint32_t outer_task = m->graph_task;
    m->graph_task = e.task;
    for (uint32_t i = 0; i < count; i++) state_of(&e, roots[i].node)->dependencies++; /* for the graph's root */
    count_dependencies(&e);
    mark_needed(&e, inputs, input_count, captured);
    tide_tensor **given = TIDE_NEW(m->arena, tide_tensor *, count);
    for (uint32_t i = 0; i < count; i++) given[i] = validate(m, tide_retain(grads[i]), &roots[i]);
    for (uint32_t i = 0; i < count; i++) {
        task_state *state = roots[i].node->state;
        state->grads[roots[i].input] = accumulate(m, state->grads[roots[i].input], tide_retain(given[i]), false);
        if (--state->dependencies == 0) push_ready(&e, roots[i].node);
    }
    tide_unwinding unwinding = {.of = NULL};
    while (e.heap_count && !m->has_failed) {
        tide_node *node = pop_ready(&e);
        if (m->folding.count && !tide_is_accumulator(node)) tide_unwind_to(m, &unwinding, node->order);
        if (node->state->capture)
            take_captured(node->state);
        else
            run_node(&e, node);
    }
    tide_unwinding_ends(m, &unwinding);
    engine_ends(&e);
    for (uint32_t i = 0; i < count; i++) tide_release(m, given[i]);
    m->graph_task = outer_task;
    tide_machine_restore(m, &outside);
    m->module = module;
    m->statement = statement;
    m->op = op;
}

void tide_run_backward_from(tide_machine *m, tide_tensor *const *roots, tide_tensor *const *grads, int count) {
    if (!roots[0]->node && !roots[0]->requires_grad) {
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "nothing that trains takes part in the loss: every parameter on its way is frozen");
        return;
    }
    tide_edge edges[ROOT_LIMIT] = {{NULL, 0}}; /* for a leaf: its AccumulateGrad */
    if (!roots[0]->node || count > ROOT_LIMIT || tide_is_aborting(m)) return;
    for (int i = 0; i < count; i++) {
        bool is_leaf = !roots[i]->node;
        edges[i] =
            (tide_edge){is_leaf ? tide_accumulator_of(m, roots[i]) : roots[i]->node, is_leaf ? 0 : roots[i]->output};
        if (!is_leaf) roots[i]->node->references++;
    }
    execute(m, edges, grads, (uint32_t)count, NULL, 0, NULL, false);
    for (int i = 0; i < count; i++) tide_node_release(m, edges[i].node);
}

void tide_autograd_grad(tide_machine *m, const tide_edge *outputs, tide_tensor *const *grad_outputs, uint32_t count,
                        tide_node *const *inputs, uint32_t input_count, tide_tensor **grads, bool retain_graph) {
    if (count && !tide_is_aborting(m))
        execute(m, outputs, grad_outputs, count, inputs, input_count, grads, retain_graph);
}

void tide_run_backward(tide_machine *m, tide_tensor *root) {
    if (tide_is_aborting(m)) return;
    const char *op = m->op;
    m->op = "ones_like";
    tide_tensor *grad = tide_empty_like(m, root, root->dtype);
    m->op = op;
    tide_run_backward_from(m, &root, &grad, 1);
    tide_release(m, grad);
}
