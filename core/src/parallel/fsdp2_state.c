/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the hooks. */
#include "parallel/dtensor.h"
#include "parallel/fsdp2.h"
#include "tensor/ops/ops.h"

void tide_fsdp2_each_group(fsdp2 *f, void (*act)(fsdp2 *f, fsdp_param_group *u)) {
    for (uint32_t i = 0; i < f->state_count; i++) {
        const fsdp_state *s = &f->states[f->named_modules_order[i]];
        for (uint32_t k = 0; k < s->count; k++) act(f, &f->groups[s->first + k]);
    }
}

/* ---- backward ---- */

/* The next state of a block, or of another module outside of them, after or before one; the root's: there is none. */
static uint32_t next_outside(const fsdp2 *f, uint32_t index, int step) {
    uint32_t root = f->state_count - 1, at = index;
    do {
        if (step < 0 && !at) return root;
        at = step < 0 ? at - 1 : at + 1;
    } while (at < root && f->states[at].is_of_experts);
    return at < root ? at : root;
}

/* llama4/infra/parallelize.py, apply_fsdp(): a block asks for the next with its experts, backward for the one before;
 * the embedding and the head for a block alone, experts for nothing. */
static uint32_t titan_ahead(const fsdp2 *f, uint32_t index, int step, uint32_t *ahead) {
    uint32_t root = f->state_count - 1, next = next_outside(f, index, step), n = 0;
    tide_model *model = f->w->model;
    bool is_end = f->state_of[tide_embeddings_of(model, false)] == index + 1 ||
                  f->state_of[tide_embeddings_of(model, true)] == index + 1;
    if (index == root || f->states[index].is_of_experts || next == root) return 0;
    ahead[n++] = next;
    bool has_experts = next && f->states[next - 1].is_of_experts;
    if (has_experts && !is_end) ahead[n++] = next - 1;
    return n;
}

enum { MOST_AHEAD = 64 };

/* set_modules_to_forward_prefetch() and set_modules_to_backward_prefetch(): the states that one asks for, if any. */
static uint32_t states_ahead(const fsdp2 *f, uint32_t index, int step, uint32_t *ahead) {
    uint32_t n = 0;
    if (f->prefetches_experts) return titan_ahead(f, index, step, ahead);
    if (index + 1 == f->state_count) return 0;
    for (uint32_t i = 1; i <= f->prefetch && n < MOST_AHEAD; i++) {
        if (step < 0 ? i > index : index + i >= f->state_count - 1) break;
        ahead[n++] = step < 0 ? index - i : index + i;
    }
    return n;
}

/* FSDPState._pre_backward. */
static void fsdp2_pre_backward(void *state, uint32_t index) {
    fsdp2 *f = state;
    fsdp_state *s = &f->states[index];
    uint32_t ahead[MOST_AHEAD], asked = states_ahead(f, index, -1, ahead);
    s->training_state = FSDP_PRE_BACKWARD;
    for (uint32_t i = 0; i < s->count; i++) {
        fsdp_param_group *u = &f->groups[s->first + i];
        if (u->training_state != FSDP_PRE_BACKWARD) tide_fsdp2_group_pre_backward(f, u, !asked);
    }
    for (uint32_t i = 0; i < asked; i++) {
        const fsdp_state *before = &f->states[ahead[i]];
        for (uint32_t k = before->count; k-- > 0;)
            tide_fsdp2_prefetch_unshard(f, &f->groups[before->first + k], FSDP_PRE_BACKWARD);
    }
}

static void register_post_backward_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    fsdp2 *f = m->wrapper;
    const char *op = m->op;
    tide_fsdp2_post_backward(f, &f->groups[node->of.wrapped.index]);
    m->op = op;
    for (unsigned i = 0; i < node->edge_count; i++) results[i] = tide_retain(grads[i]);
}
static const tide_backward post_backward_function = {"RegisterPostBackwardFunction", register_post_backward_run};

static void release_leaf_accumulators(fsdp2 *f) {
    while (f->leaf_accumulator_count)
        tide_node_release(fsdp2_machine(f), f->leaf_accumulators[--f->leaf_accumulator_count]);
}

/* _end_backward_iteration */
static void end_backward_iteration(fsdp2 *f) {
    tide_machine *m = fsdp2_machine(f);
    for (uint32_t i = 0; i < f->state_count; i++) {
        fsdp_state *s = &f->states[f->named_modules_order[i]];
        for (uint32_t k = 0; k < s->count; k++) {
            fsdp_param_group *u = &f->groups[s->first + k];
            tide_release_at(m, &u->all_reduce_input);
            tide_release_at(m, &u->all_gather_output);
            u->has_all_gather_result = false;
            u->post_forward_index_count = 0;
        }
        s->modules_to_run_forward = 0;
    }
    tide_release_at(m, &f->all_gather_state);
    tide_fsdp2_drop_reduce_scatter_inputs(f);
    release_leaf_accumulators(f);
    f->post_forward_count = f->iter_forward_root = 0;
}

/* _root_post_backward_final_callback. */
void tide_fsdp2_root_post_backward_final_callback(void *state) {
    fsdp2 *f = state;
    tide_machine *m = fsdp2_machine(f);
    for (uint32_t i = 0; i < f->state_count; i++) {
        fsdp_state *s = &f->states[f->named_modules_order[i]];
        for (uint32_t k = s->count; k-- > 0;) {
            fsdp_param_group *u = &f->groups[s->first + k];
            if (u->training_state != FSDP_POST_BACKWARD) tide_fsdp2_post_backward(f, u);
            u->training_state = FSDP_IDLE;
        }
        s->training_state = FSDP_IDLE;
    }
    if (f->finalizes_by_hand) {
        tide_release_at(m, &f->all_gather_state);
        f->iter_forward_root = 0;
        return;
    }
    end_backward_iteration(f);
}

void tide_fsdp2_finalize_backward(void *state) {
    fsdp2 *f = state;
    f->reduce_grads = true;
    f->keeps_after_backward = false;
    for (uint32_t i = f->state_count; i-- > 0;) {
        const fsdp_state *s = &f->states[f->named_modules_order[i]];
        for (uint32_t k = s->count; k-- > 0;) {
            tide_fsdp2_post_backward(f, &f->groups[s->first + k]);
            f->groups[s->first + k].training_state = FSDP_IDLE;
        }
    }
    end_backward_iteration(f);
}

/* ---- forward ---- */

/* torch/utils/_pytree.py: tuples have leaves; other lists are objects, such as a cache of keys and values. */
static bool is_tuple(const tide_value *value) {
    return value->kind == TIDE_VALUE_LIST && value->list->is_output;
}

static void each_tensor(tide_value *values, uint32_t count, void (*visit)(void *user, tide_value *value), void *user) {
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == TIDE_VALUE_TENSOR)
            visit(user, &values[i]);
        else if (is_tuple(&values[i]))
            each_tensor(values[i].list->items, values[i].list->count, visit, user);
}

/* tree_map makes new tuples: the caller's stay unchanged. */
static void copy_tuples(tide_machine *m, tide_value *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!is_tuple(&values[i])) continue;
        tide_list *from = values[i].list, *copy = tide_list_new(m);
        copy->is_output = true;
        for (uint32_t k = 0; k < from->count; k++) tide_list_push(m, copy, tide_value_retain(from->items[k]));
        copy_tuples(m, copy->items, copy->count);
        tide_value_release(m, values[i]);
        values[i].list = copy;
    }
}

typedef struct cast_to {
    tide_machine *m;
    tide_dtype dtype;
} cast_to;

/* _cast_fp_tensor: complex numbers, as in rotary embeddings, are not floating point. */
static void cast_one(void *user, tide_value *value) {
    const cast_to *c = user;
    tide_dtype dtype = (tide_dtype)value->tensor->dtype;
    if (!tide_dtype_is_float(dtype) || dtype == TIDE_COMPLEX64 || dtype == c->dtype) return;
    tide_value arguments[2] = {*value, {.kind = TIDE_VALUE_DTYPE, .dtype = c->dtype}};
    tide_value cast = tide_op_find(TIDE_TEXT("to"))->run(c->m, arguments);
    tide_value_release(c->m, *value);
    *value = cast;
}

enum { FSDP2_INPUT_LIMIT = 32 };

typedef struct input_tensors {
    tide_value *values[FSDP2_INPUT_LIMIT];
    int count;
} input_tensors;

static void find_input(void *user, tide_value *value) {
    input_tensors *f = user;
    if (value->tensor->requires_grad && f->count < FSDP2_INPUT_LIMIT) f->values[f->count++] = value;
}

/* RegisterPostBackwardFunction over all inputs that require gradients. */
static void register_post_backward_hook(fsdp2 *f, uint32_t index, input_tensors *inputs) {
    tide_machine *m = fsdp2_machine(f);
    tide_tensor *tensors[FSDP2_INPUT_LIMIT];
    for (int i = 0; i < inputs->count; i++) tensors[i] = inputs->values[i]->tensor;
    if (!inputs->count || !m->state.grad_enabled) return;
    m->op = tide_fsdp2_name;
    tide_node *node = tide_node_with(m, &post_backward_function, tensors, inputs->count, inputs->count, 0);
    if (!node) return;
    node->of.wrapped.index = index;
    for (int i = 0; i < inputs->count; i++) {
        tide_tensor *same = tide_alias(m, tensors[i]);
        same->is_view = true;
        inputs->values[i]->tensor = tide_set_grad_fn(m, node, same);
        tide_release(m, tensors[i]);
    }
}

/* FSDPParamGroup.pre_forward: each group wraps the inputs as the previous one left them. */
static void group_pre_forward(fsdp2 *f, uint32_t group, tide_value *positional, uint32_t count, tide_value *named,
                              uint32_t named_count) {
    fsdp_param_group *u = &f->groups[group];
    bool is_entering = u->training_state != FSDP_FORWARD;
    u->training_state = FSDP_FORWARD;
    tide_fsdp2_unshard(f, u);
    tide_fsdp2_wait_for_unshard(f, u);
    if (!is_entering) return;
    input_tensors inputs = {.count = 0};
    each_tensor(positional, count, find_input, &inputs);
    each_tensor(named, named_count, find_input, &inputs);
    register_post_backward_hook(f, group, &inputs);
}

/* FSDPState._pre_forward in a recomputation. */
static void pre_forward_again(fsdp2 *f, const fsdp_state *s) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        if (f->groups[i].sharded_state == FSDP_UNSHARDED) continue;
        tide_fsdp2_unshard(f, &f->groups[i]);
        tide_fsdp2_wait_for_unshard(f, &f->groups[i]);
    }
}

static void fsdp2_pre_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                              tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    fsdp2 *f = m->wrapper;
    uint32_t index = f->state_of[instance];
    if (!index-- || (f->is_generating && index + 1 == f->state_count)) return;
    fsdp_state *s = &f->states[index];
    bool is_again = s->training_state == FSDP_PRE_BACKWARD, is_first = s->training_state != FSDP_FORWARD;
    if (!s->modules_to_run_forward) s->modules_to_run_forward = s->module_count;
    if (is_again) pre_forward_again(f, s);
    copy_tuples(m, positional, count);
    copy_tuples(m, named, named_count);
    if (f->has_param_dtype) {
        cast_to cast = {m, f->param_dtype};
        each_tensor(positional, count, cast_one, &cast);
        each_tensor(named, named_count, cast_one, &cast);
    }
    if (is_again) return;
    s->training_state = FSDP_FORWARD;
    if (!f->iter_forward_root) f->iter_forward_root = index + 1;
    for (uint32_t i = 0; i < s->count; i++) group_pre_forward(f, s->first + i, positional, count, named, named_count);
    if (!is_first || index + 1 == f->state_count) return;
    uint32_t ahead[MOST_AHEAD], asked = states_ahead(f, index, 1, ahead);
    for (uint32_t i = 0; i < asked; i++)
        for (uint32_t k = 0; k < f->states[ahead[i]].count; k++)
            tide_fsdp2_prefetch_unshard(f, &f->groups[f->states[ahead[i]].first + k], FSDP_FORWARD);
}

typedef struct hook_to {
    fsdp2 *f;
    uint32_t state;
} hook_to;

/* A leaf keeps its hooks itself: its accumulator, which has them here, lives until the backward has ended. */
static tide_node *leaf_accumulator(fsdp2 *f, tide_tensor *leaf) {
    tide_machine *m = fsdp2_machine(f);
    tide_node *node = tide_accumulator_of(m, leaf);
    TIDE_ROOM(m->arena, f->leaf_accumulators, f->leaf_accumulator_count, f->leaf_accumulator_capacity);
    f->leaf_accumulators[f->leaf_accumulator_count++] = node;
    return node;
}

static void register_pre_backward_hook(void *user, tide_value *value) {
    const hook_to *h = user;
    tide_tensor *t = value->tensor;
    if (!t->requires_grad) return;
    tide_node *node = t->node ? t->node : leaf_accumulator(h->f, t);
    tide_register_unit_hook(fsdp2_machine(h->f), node, fsdp2_pre_backward, h->f, h->state);
}

/* FSDPParamGroup.post_forward */
static void group_post_forward(fsdp2 *f, uint32_t group) {
    tide_machine *m = fsdp2_machine(f);
    fsdp_param_group *u = &f->groups[group];
    if (!m->state.is_in_backward) {
        tide_fsdp2_reshard(f, u);
        TIDE_ROOM(m->arena, f->post_forward_order, f->post_forward_count, f->post_forward_capacity);
        TIDE_ROOM(m->arena, u->post_forward_indices, u->post_forward_index_count, u->post_forward_index_capacity);
        u->post_forward_indices[u->post_forward_index_count++] = f->post_forward_count;
        f->post_forward_order[f->post_forward_count++] = group;
    }
    u->training_state = FSDP_IDLE;
}

/* FSDPState._post_forward, without the root's part. */
static void state_post_forward(fsdp2 *f, uint32_t index, tide_value *items, uint32_t count) {
    tide_machine *m = fsdp2_machine(f);
    fsdp_state *s = &f->states[index];
    for (uint32_t i = 0; i < s->count; i++) group_post_forward(f, s->first + i);
    if (m->state.grad_enabled) each_tensor(items, count, register_pre_backward_hook, &(hook_to){f, index});
    s->training_state = FSDP_IDLE;
}

/* _force_complete_incomplete_states: states whose modules did not all run, such as a head of which only the weight is
 * read. */
static void complete_states(fsdp2 *f, uint32_t root, tide_value *items, uint32_t count) {
    for (uint32_t i = f->state_count; i-- > 0;) {
        if (i == root || !f->states[i].modules_to_run_forward) continue;
        state_post_forward(f, i, items, count);
        if (f->output_dtype != TIDE_DTYPE_COUNT)
            each_tensor(items, count, cast_one, &(cast_to){fsdp2_machine(f), f->output_dtype});
        f->states[i].modules_to_run_forward = 0;
    }
}

static void fsdp2_post_forward(tide_model *model, uint32_t instance, tide_value *output) {
    tide_machine *m = model->m;
    fsdp2 *f = m->wrapper;
    uint32_t index = f->state_of[instance];
    if (!index-- || (f->is_generating && index + 1 == f->state_count)) return;
    fsdp_state *s = &f->states[index];
    bool is_last = !s->modules_to_run_forward || --s->modules_to_run_forward == 0;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (is_last && s->training_state != FSDP_PRE_BACKWARD) {
        state_post_forward(f, index, items, count);
        if (f->iter_forward_root == index + 1) {
            complete_states(f, index, items, count);
            tide_release_at(m, &f->all_gather_state);
            f->iter_forward_root = 0;
        }
    }
    if (f->output_dtype != TIDE_DTYPE_COUNT) each_tensor(items, count, cast_one, &(cast_to){m, f->output_dtype});
}

/* register_fsdp_forward_method(model, "generate"), transformers/trainer.py: hooks go round generate() as a whole. With
 * adapters tokens are forward passes of the model within peft's, which is the root; otherwise they are its own, and the
 * last hook finds it idle. */
void tide_fsdp2_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count) {
    fsdp2 *f = w->state;
    fsdp2_pre_forward(w->model, w->model->root, NULL, 0, inputs, count);
    f->is_generating = w->job->adapter != TIDE_adapter_none;
    if (f->is_generating) fsdp2_machine(f)->passed_on = &f->all_gather_state;
}

void tide_fsdp2_generation_ends(tide_wrapper *w) {
    fsdp2 *f = w->state;
    tide_value nothing = tide_none();
    f->is_generating = false;
    fsdp2_machine(f)->passed_on = NULL;
    fsdp2_post_forward(w->model, w->model->root, &nothing);
}

/* The sharded parameter of a tensor that modules use; NULL: it is not sharded. */
static const fsdp_param *cut_param_of(const fsdp2 *f, const tide_tensor *leaf, const fsdp_param_group **group) {
    for (uint32_t k = 0; k < f->group_count; k++)
        for (uint32_t i = 0; i < f->groups[k].count; i++) {
            const fsdp_param *s = &f->groups[k].fsdp_params[i];
            if (s->unsharded_param != leaf && s->sharded_param != leaf) continue;
            *group = &f->groups[k];
            return s;
        }
    return NULL;
}

static tide_tensor *gather_full(const fsdp2 *f, const fsdp_param_group *of, const fsdp_param *s) {
    tide_machine *m = f->w->model->m;
    int64_t numel = s->padded_sharded_numel * of->mesh.ranks;
    tide_tensor *gathered = tide_flat_on(m, (uint8_t)m->state.stream, tide_fsdp2_name, numel, s->orig_dtype,
                                         TIDE_FACTOR_GATHERED),
                *whole = tide_view_as(m, gathered, s->unsharded_param->layout);
    tide_release(m, gathered);
    return whole;
}

/* trl/trainer/utils.py, _fused_forward: weight.full_tensor() of a head whose group did not run. The gradient of one
 * that is trained is taken to be replicated, and each rank keeps its part. */
static tide_tensor *fsdp2_read_parameter(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    const fsdp_param_group *of;
    const fsdp_param *s = instance ? NULL : cut_param_of(model->m->wrapper, leaf, &of);
    if (!s || of->sharded_state != FSDP_SHARDED) return NULL;
    if (!s->sharded_param->requires_grad) return gather_full(model->m->wrapper, of, s);
    return tide_dtensor_redistribute(model->m, s->sharded_param,
                                     &(tide_redistribute){.forward = TIDE_COLLECTIVE_ALL_GATHER,
                                                          .backward = TIDE_COLLECTIVE_CHUNK,
                                                          .dim = s->dim,
                                                          .ranks = of->mesh.ranks,
                                                          .rank = of->mesh.rank,
                                                          .whole = leaf->shape->dim[s->dim].size});
}

static void to_sharded(fsdp2 *f, fsdp_param_group *u) {
    if (u->sharded_state == FSDP_SHARDED) return;
    tide_fsdp2_free_unsharded_params(f, u);
    u->sharded_state = FSDP_SHARDED;
}

/* FSDPParamGroup._register_state_dict_hooks */
void tide_fsdp2_state_dict_begins(tide_wrapper *w) {
    tide_fsdp2_each_group(w->state, to_sharded);
}

tide_tensor *tide_fsdp2_full_tensor(tide_wrapper *w, tide_tensor *weight) {
    const fsdp_param_group *of;
    const fsdp_param *s = cut_param_of(w->state, weight, &of);
    return s ? gather_full(w->state, of, s) : tide_retain(weight);
}

void tide_fsdp2_set_hooks(fsdp2 *f) {
    f->w->model->read_parameter = fsdp2_read_parameter;
    f->w->model->before_forward = fsdp2_pre_forward;
    f->w->model->after_forward = fsdp2_post_forward;
}
