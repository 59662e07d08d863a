/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/_backward.py: backward passes in two parts.
 *
 * Note [Parts of a backward pass]: the first part computes only the gradient of a stage's input and keeps the graph. At
 * a node that also leads to parameters (an intermediate), it keeps the node's incoming gradients. The second part
 * starts from those, one group of parameters after the other, and releases the graph as it goes. Names refer to their
 * values until they are rebound. */
#include <stdlib.h>

#include "base/units.h"
#include "parallel/pipeline.h"
#include "tensor/ops/ops.h"

/* ---- get_param_groups ---- */

struct tide_param_group {
    tide_tensor **params;
    tide_node **intermediates; /* owned */
    tide_tensor ***grads;      /* by intermediate, by output; owned */
    uint32_t param_count, param_capacity, count, capacity;
};
typedef struct tide_param_group param_group;

typedef struct pair {
    const tide_node *accumulator;
    tide_node *intermediate;
} pair;

typedef struct graph_walk {
    tide_machine *m;
    uint32_t reached, leads; /* marks of nodes: visited; leads to the input */
    tide_node **nodes;
    uint32_t count, capacity;
    pair *pairs;
    uint32_t pair_count, pair_capacity;
} graph_walk;

static void reach(graph_walk *w, tide_node *node) {
    if (!node || node->walk == w->reached) return;
    node->walk = w->reached;
    TIDE_ROOM(w->m->arena, w->nodes, w->count, w->capacity);
    w->nodes[w->count++] = node;
}

/* A node's edges lead to older nodes, so oldest first means inputs first. */
static int oldest_first(const void *a, const void *b) {
    const tide_node *x = *(tide_node *const *)a, *y = *(tide_node *const *)b;
    uint32_t of_x = tide_is_accumulator(x) ? 0 : x->order + 1, of_y = tide_is_accumulator(y) ? 0 : y->order + 1;
    return of_x < of_y ? -1 : of_x > of_y;
}

/* Finds the parameters behind a node that does not lead to the input. */
static void find_params(graph_walk *w, const tide_node *node, tide_node *intermediate) {
    if (tide_is_accumulator(node)) {
        TIDE_ROOM(w->m->arena, w->pairs, w->pair_count, w->pair_capacity);
        w->pairs[w->pair_count++] = (pair){node, intermediate};
        return;
    }
    for (unsigned k = 0; k < node->edge_count; k++)
        if (node->edges[k].node && node->edges[k].node->walk != w->leads)
            find_params(w, node->edges[k].node, intermediate);
}

static void walk_graph(graph_walk *w, tide_node *root, tide_node *input) {
    w->reached = ++w->m->walk_count;
    w->leads = ++w->m->walk_count;
    reach(w, root);
    for (uint32_t i = 0; i < w->count; i++)
        for (unsigned k = 0; k < w->nodes[i]->edge_count; k++) reach(w, w->nodes[i]->edges[k].node);
    qsort(w->nodes, w->count, sizeof *w->nodes, oldest_first);
    for (uint32_t i = 0; i < w->count; i++) {
        tide_node *node = w->nodes[i];
        bool leads = node == input;
        for (unsigned k = 0; k < node->edge_count; k++)
            leads = leads || (node->edges[k].node && node->edges[k].node->walk == w->leads);
        if (!leads) continue;
        node->walk = w->leads;
        for (unsigned k = 0; k < node->edge_count; k++)
            if (node->edges[k].node && node->edges[k].node->walk != w->leads) find_params(w, node->edges[k].node, node);
    }
}

static param_group *group_with(tide_backward_state *s, const tide_node *intermediate) {
    for (uint32_t g = s->count; g-- > 0;)
        for (uint32_t i = 0; i < s->groups[g].count; i++)
            if (s->groups[g].intermediates[i] == intermediate) return &s->groups[g];
    return NULL;
}

static void put_intermediate(tide_machine *m, param_group *g, tide_node *node) {
    for (uint32_t i = 0; i < g->count; i++)
        if (g->intermediates[i] == node) return;
    TIDE_ROOM(m->arena, g->intermediates, g->count, g->capacity);
    node->references++;
    g->intermediates[g->count++] = node;
}

/* Parameters in order; those that share an intermediate form one group. */
static void get_param_groups(tide_backward_state *s, const graph_walk *w, tide_tensor *const *params, uint32_t count) {
    tide_machine *m = w->m;
    s->groups = TIDE_NEW(m->arena, param_group, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const tide_node *accumulator = params[i]->accumulator;
        param_group *group = NULL;
        for (uint32_t k = 0; accumulator && k < w->pair_count && !group; k++)
            if (w->pairs[k].accumulator == accumulator) group = group_with(s, w->pairs[k].intermediate);
        for (uint32_t k = 0; accumulator && k < w->pair_count; k++) {
            if (w->pairs[k].accumulator != accumulator) continue;
            if (!group) group = &s->groups[s->count++];
            put_intermediate(m, group, w->pairs[k].intermediate);
        }
        if (!group) continue;
        TIDE_ROOM(m->arena, group->params, group->param_count, group->param_capacity);
        group->params[group->param_count++] = params[i];
    }
    for (uint32_t g = 0; g < s->count; g++) s->groups[g].grads = TIDE_NEW(m->arena, tide_tensor **, s->groups[g].count);
}

/* ---- stage_backward_input ---- */

/* register_prehook(): the incoming gradients of an intermediate. */
typedef struct keep_grads {
    tide_tensor_hook hook;
    const tide_node *node;
    tide_tensor ***to;
} keep_grads;

static void keep_grads_run(tide_machine *m, tide_tensor_hook *hook) {
    const keep_grads *h = (const keep_grads *)hook;
    tide_tensor *const *grads = tide_incoming_grads(h->node);
    *h->to = TIDE_NEW(m->arena, tide_tensor *, h->node->output_count);
    for (unsigned i = 0; i < h->node->output_count; i++) (*h->to)[i] = tide_retain(grads[i]);
}

static void keep_grads_drop(tide_machine *m, tide_tensor_hook *hook) {
    (void)m;
    (void)hook;
}

static void register_prehooks(tide_machine *m, tide_backward_state *s) {
    for (uint32_t g = 0; g < s->count; g++)
        for (uint32_t i = 0; i < s->groups[g].count; i++) {
            keep_grads *h = TIDE_NEW(m->arena, keep_grads, 1);
            *h = (keep_grads){
                {keep_grads_run, keep_grads_drop, NULL}, s->groups[g].intermediates[i], &s->groups[g].grads[i]};
            tide_register_hook(s->groups[g].intermediates[i], &h->hook);
        }
}

/* Tensor.detach_() */
static void detach_in_place(tide_machine *m, tide_tensor *t) {
    tide_node *node = t->node;
    t->node = NULL;
    t->requires_grad = false;
    t->is_leaf = true;
    tide_node_release(m, node);
}

void tide_stage_backward_input(tide_machine *m, tide_backward_state *s, tide_tensor *const *params, uint32_t count) {
    tide_tensor *stage_output = s->stage_output, *input = s->input;
    graph_walk walk = {.m = m};
    if (tide_is_aborting(m) || !stage_output->node) return;
    m->op = "ones_like";
    tide_tensor *grad = s->output_grad ? tide_retain(s->output_grad)
                                       : tide_empty_like(m, stage_output, (tide_dtype)stage_output->dtype);
    tide_node *wanted = tide_accumulator_of(m, input);
    walk_graph(&walk, stage_output->node, wanted);
    get_param_groups(s, &walk, params, count);
    register_prehooks(m, s);
    tide_tensor *dinput = NULL;
    tide_autograd_grad(m, &(tide_edge){stage_output->node, stage_output->output}, &grad, 1, &wanted, 1, &dinput, true);
    tide_release(m, input->grad);
    input->grad = dinput;
    tide_node *graph = stage_output->node; /* stage_output_grad_fns, released after valid_output_grads */
    graph->references++;
    detach_in_place(m, stage_output);
    tide_release(m, grad);
    tide_node_release(m, graph);
    tide_node_release(m, wanted);
    if (walk.nodes) tide_arena_drop(m->arena, walk.nodes);
    if (walk.pairs) tide_arena_drop(m->arena, walk.pairs);
}

/* ---- stage_backward_weight ---- */

typedef struct weight_names {
    tide_tensor **grads, **dweights; /* valid_grad_outputs, dweights; owned */
    uint32_t grad_count, dweight_count;
    tide_node *intermediate;
} weight_names;

static void forget_grads(tide_machine *m, weight_names *n) {
    tide_node_release(m, n->intermediate);
    n->intermediate = NULL;
    for (uint32_t i = 0; i < n->grad_count; i++) tide_release(m, n->grads[i]);
    n->grad_count = 0;
}

static void forget_dweights(tide_machine *m, weight_names *n) {
    for (uint32_t i = 0; i < n->dweight_count; i++) tide_release(m, n->dweights[i]);
    n->dweight_count = 0;
}

/* weight.grad = dw, or weight.grad += dw */
static void put_weight_grad(tide_machine *m, tide_tensor *weight, tide_tensor *dw) {
    if (!dw || weight->grad) return;
    weight->grad = tide_alias(m, dw);
    weight->grad->is_view = false;
    if (weight->is_parameter) tide_set_factor(m, weight->grad, TIDE_FACTOR_GRADIENT);
}

static void backward_group(tide_machine *m, param_group *g, weight_names *n) {
    uint32_t most = 0, edges_count = 0;
    for (uint32_t i = 0; i < g->count; i++) most += g->intermediates[i]->output_count;
    tide_edge *edges = TIDE_NEW(m->arena, tide_edge, most + 1);
    tide_tensor **grads = TIDE_NEW(m->arena, tide_tensor *, most + 1), **dweights;
    tide_node **wanted = TIDE_NEW(m->arena, tide_node *, g->param_count);
    dweights = TIDE_NEW(m->arena, tide_tensor *, g->param_count);
    forget_grads(m, n);
    for (uint32_t i = 0; i < g->count; i++)
        for (unsigned k = 0; g->grads[i] && k < g->intermediates[i]->output_count; k++) {
            if (!g->grads[i][k]) continue;
            edges[edges_count] = (tide_edge){g->intermediates[i], k};
            grads[edges_count++] = g->grads[i][k];
        }
    for (uint32_t i = 0; i < g->param_count; i++) wanted[i] = tide_accumulator_of(m, g->params[i]);
    tide_autograd_grad(m, edges, grads, edges_count, wanted, g->param_count, dweights, false);
    forget_dweights(m, n);
    for (uint32_t i = 0; i < g->param_count; i++) put_weight_grad(m, g->params[i], dweights[i]);
    for (uint32_t i = 0; i < g->param_count; i++) tide_node_release(m, wanted[i]);
    for (uint32_t i = 0; i + 1 < g->count; i++) tide_node_release(m, g->intermediates[i]);
    *n = (weight_names){grads, dweights, edges_count, g->param_count, g->count ? g->intermediates[g->count - 1] : NULL};
}

void tide_stage_backward_weight(tide_machine *m, tide_backward_state *s) {
    weight_names names = {0};
    for (uint32_t g = 0; g < s->count && !tide_is_aborting(m); g++) backward_group(m, &s->groups[g], &names);
    forget_grads(m, &names);
    forget_dweights(m, &names);
}
