/* DeepSpeed ZeRO stage 3: deepspeed/runtime/zero/stage3.py, partition_parameters.py, partitioned_param_coordinator.py,
 * parameter_offload.py, linear.py.
 *
 * Note [Trace]: every module fetches its own parameters before its forward and before its backward, and releases them
 * after. The first pass records the order; from then on the next parameters are gathered ahead, up to a bucket each
 * time, and those that are soon used again are kept. A step is one fetch; parameters that no hook released go at the
 * end of the backward. */
#include <string.h>

#include "base/units.h"
#include "parallel/parallel.h"
#include "tensor/ops/ops.h"

enum {
    GATHER_STREAM = TIDE_STREAM_SIDE,
    REDUCE_STREAM = TIDE_STREAM_SECOND,
    MODULE_LIMIT = 64 /* parameters of one module */,
    DEPTH_LIMIT = 64
};

typedef enum status { CUT, IN_FLIGHT, AVAILABLE } status;

/* Parameters gathered together, until each of them has been waited for. */
typedef struct flight {
    tide_tensor *flat; /* NULL: there is one, which has it as its data */
    uint32_t *params, count, left;
    bool is_complete;
} flight;

typedef struct param {
    tide_tensor *leaf, *part; /* part: this rank's, a view of the buffer of all */
    tide_tensor *second; /* hpZ: this rank's part within its node, from the first release to the step; NULL: none */
    uint32_t module, group;
    int64_t count, cut; /* elements: all, in a part */
    status status;
    bool stays, trains, waits; /* waits: for the backward of the leaf module that it lies in */
    uint32_t *users;           /* modules that it is fetched for */
    uint32_t user_count, user_capacity;
    flight *flight;
    int64_t fetched_for; /* the last step that the queue has handed it out for */
    tide_tensor *norm;   /* of its gradient, when that has gone to the host */
    int64_t grad_start;  /* in the gradients' buffer */
} param;

typedef struct module {
    uint32_t *params, count, capacity;            /* its own, and those that it reads from other modules */
    uint32_t *again, again_count, again_capacity; /* frozen ones that a recomputation fetched below it */
    uint32_t inputs_left;                         /* inputs whose gradient has not come */
    uint32_t watched;                             /* outputs that pass through PreBackwardFunction */
    bool is_leaf, is_inside;                      /* gathered whole; inside of such a one, without hooks */
    uint32_t *all, all_count, all_capacity;       /* parameters of it and of all below, where there are leaf modules */
    uint32_t own_count;                           /* params that are not below a leaf module: 0 or count */
} module;

typedef struct use {
    uint32_t param;
    int64_t step;
} use;

typedef struct kept {
    uint32_t module;
    uint64_t releases; /* bits of module.params */
    struct kept *next;
} kept;

typedef struct zero3 {
    tide_wrapper *w;
    tide_dtype dtype, reduced_as, accumulated;
    param *params;
    uint32_t count, persistent_count;
    module *modules;       /* by instance */
    uint32_t *group_order; /* parameters that train, group after group, and sub-group after sub-group */
    uint32_t group_count, *sub_ends, sub_count, *sub_groups;
    tide_tensor **masters, **sub_norms;
    tide_tensor *parts, *grads, *ipg, *norm, *sent;
    const struct flight *sent_by;
    int64_t bucket_size, prefetch_size, most_live, reuse, second_ranks;
    bool scatters, is_contiguous, is_offloaded, params_offloaded, is_pinned;
    uint8_t gather_stream, reduce_stream;
    uint32_t *bucket, bucket_count, *ahead;
    int64_t bucket_elements;
    uint32_t hint;
    /* the trace */
    enum { RECORDING, COMPLETE } mode;
    bool has_run;
    uint32_t *order; /* modules in the order of fetches */
    uint32_t order_count, order_capacity;
    use *queue;
    uint32_t queue_count, queue_capacity, queue_at;
    kept **kept; /* by step */
    int64_t step, live;
    uint32_t *active; /* modules whose backward runs, in the order of their fetches */
    uint32_t active_count, active_capacity;
} zero3;

static const char op_name[] = "DeepSpeed";

static tide_machine *machine_of(const zero3 *z) {
    return z->w->model->m;
}

static tide_tensor *on_stream(zero3 *z, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(machine_of(z), stream, op_name, count, dtype, factor);
}

/* ---- parameters ---- */

static void point_at_nothing(zero3 *z, tide_tensor *leaf) {
    tide_tensor *nothing = tide_empty_host(machine_of(z), leaf->shape, (tide_dtype)leaf->dtype);
    tide_set_data(machine_of(z), leaf, nothing);
    tide_release(machine_of(z), nothing);
}

static tide_tensor *new_part(tide_machine *m, int64_t count, tide_dtype dtype, bool on_host) {
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    return on_host ? tide_empty_host(m, &shape, dtype) : tide_flat_of(m, op_name, count, dtype, TIDE_FACTOR_PARAMETER);
}

/* Elements of a part within a node: _partition_param_sec. */
static int64_t second_cut(const zero3 *z, const param *p) {
    return p->cut * z->w->ranks / z->second_ranks;
}

static void cut_second(zero3 *z, param *p) {
    if (z->second_ranks > 1 && !p->second)
        p->second = new_part(machine_of(z), second_cut(z, p), z->dtype, z->params_offloaded);
}

/* free_param. */
static void let_go(zero3 *z, param *p) {
    if (p->status != AVAILABLE || p->user_count) return;
    cut_second(z, p);
    if (z->w->ranks > 1) tide_record_stream(machine_of(z), p->leaf, 0);
    point_at_nothing(z, p->leaf);
    p->status = CUT;
    z->live -= p->count;
}

/* The part of an offloaded parameter comes to the device; NULL if it is there. */
static tide_tensor *upload(zero3 *z, const param *p, uint8_t stream) {
    return z->params_offloaded
               ? on_stream(z, stream, p->second ? second_cut(z, p) : p->cut, z->dtype, TIDE_FACTOR_GATHERED)
               : NULL;
}

/* What an asynchronous collective sends stays until it is waited for, or the next one is there. */
static void send(zero3 *z, tide_tensor *uploaded, const flight *by) {
    tide_release_at(machine_of(z), &z->sent);
    z->sent = uploaded;
    z->sent_by = by;
}

/* Returns what was brought to the device for it; NULL: nothing. */
static tide_tensor *gather_with(zero3 *z, param *p, uint8_t stream) {
    tide_machine *m = machine_of(z);
    if (z->w->ranks == 1) {
        tide_tensor *copy = upload(z, p, stream);
        tide_set_data(m, p->leaf, copy ? copy : p->part);
        tide_release(m, copy);
        return NULL;
    }
    m->module = p->module;
    tide_tensor *all = on_stream(z, stream, p->cut * z->w->ranks, z->dtype, TIDE_FACTOR_GATHERED),
                *uploaded = upload(z, p, stream);
    tide_set_data(m, p->leaf, all);
    tide_release(m, all);
    return uploaded;
}

static void gather_one(zero3 *z, param *p, uint8_t stream) {
    tide_release(machine_of(z), gather_with(z, p, stream));
}

/* all_gather_coalesced, of parameters in the order of their numbers. */
static void gather_together(zero3 *z, const uint32_t *which, uint32_t count) {
    tide_machine *m = machine_of(z);
    uint32_t module_outside = m->module;
    flight *f = TIDE_NEW(m->arena, flight, 1);
    f->params = TIDE_NEW(m->arena, uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = f->count++;
        for (; at && f->params[at - 1] > which[i]; at--) f->params[at] = f->params[at - 1];
        f->params[at] = which[i];
    }
    f->left = count;
    f->is_complete = count == 1 || z->w->ranks == 1;
    int64_t cut = 0;
    for (uint32_t i = 0; i < count; i++) {
        param *p = &z->params[f->params[i]];
        cut += p->cut;
        p->status = IN_FLIGHT;
        p->flight = f;
        z->live += p->count;
        if (f->is_complete) send(z, gather_with(z, p, z->gather_stream), f);
    }
    if (!f->is_complete) {
        f->flat = on_stream(z, z->gather_stream, cut * z->w->ranks, z->dtype, TIDE_FACTOR_GATHERED);
        tide_tensor **copies = TIDE_NEW(m->arena, tide_tensor *, count + 1);
        for (uint32_t i = 0; i < count; i++) copies[i] = upload(z, &z->params[f->params[i]], z->gather_stream);
        send(z, NULL, f);
        for (uint32_t i = 0; i < count; i++) tide_release(m, copies[i]);
    }
    m->module = module_outside;
}

/* Those with a part within the node come from there, apart from the others. */
static void gather(zero3 *z, const uint32_t *which, uint32_t count) {
    uint32_t *sorted = TIDE_NEW(machine_of(z)->arena, uint32_t, count + 1), near = 0;
    for (uint32_t i = 0; i < count; i++)
        if (z->params[which[i]].second) sorted[near++] = which[i];
    for (uint32_t i = 0, at = near; i < count; i++)
        if (!z->params[which[i]].second) sorted[at++] = which[i];
    if (near) gather_together(z, sorted, near);
    if (near < count) gather_together(z, sorted + near, count - near);
}

static void wait_for(zero3 *z, param *p) {
    tide_machine *m = machine_of(z);
    flight *f = p->flight;
    if (p->status != IN_FLIGHT && !f) return;
    for (uint32_t i = 0; i < f->count && !f->is_complete; i++) {
        param *one = &z->params[f->params[i]];
        m->module = one->module;
        tide_tensor *own = on_stream(z, z->gather_stream, one->count, z->dtype, TIDE_FACTOR_GATHERED);
        tide_set_data(m, one->leaf, own);
        tide_release(m, own);
    }
    f->is_complete = true;
    for (uint32_t i = 0; i < f->count; i++)
        if (z->params[f->params[i]].status == IN_FLIGHT) z->params[f->params[i]].status = AVAILABLE;
    p->flight = NULL;
    if (z->sent_by == f) send(z, NULL, NULL);
    if (--f->left == 0) tide_release_at(m, &f->flat);
}

static bool has_user(const param *p, uint32_t user) {
    for (uint32_t i = 0; i < p->user_count; i++)
        if (p->users[i] == user) return true;
    return false;
}

static void add_user(zero3 *z, param *p, uint32_t user) {
    if (has_user(p, user)) return;
    TIDE_ROOM(machine_of(z)->arena, p->users, p->user_count, p->user_capacity);
    p->users[p->user_count++] = user;
}

static void remove_user(param *p, uint32_t user) {
    for (uint32_t i = 0; i < p->user_count; i++)
        if (p->users[i] == user) p->users[i--] = p->users[--p->user_count];
}

/* ---- the coordinator ---- */

static void prefetch(zero3 *z) {
    int64_t room = z->most_live - z->live < z->prefetch_size ? z->most_live - z->live : z->prefetch_size, elements = 0;
    uint32_t *ahead = z->ahead, count = 0;
    while (z->queue_at < z->queue_count && elements < room) {
        const use *next = &z->queue[z->queue_at++];
        param *p = &z->params[next->param];
        if (next->step > p->fetched_for) p->fetched_for = next->step;
        bool is_wanted = p->status == CUT;
        for (uint32_t i = 0; i < count && is_wanted; i++) is_wanted = ahead[i] != next->param;
        if (!is_wanted) continue;
        ahead[count++] = next->param;
        elements += p->count;
    }
    if (count) gather(z, ahead, count);
}

/* fetch_sub_module. */
static void fetch(zero3 *z, uint32_t instance, bool is_forward) {
    tide_machine *m = machine_of(z);
    const module *of = &z->modules[instance];
    uint32_t missing[MODULE_LIMIT], count = 0, outside = m->module;
    if (z->mode == RECORDING) {
        TIDE_ROOM(m->arena, z->order, z->order_count, z->order_capacity);
        z->order[z->order_count++] = instance;
    }
    if (!is_forward) {
        TIDE_ROOM(m->arena, z->active, z->active_count, z->active_capacity);
        z->active[z->active_count++] = instance;
    }
    for (uint32_t i = 0; i < of->count; i++)
        if (z->params[of->params[i]].status == CUT) missing[count++] = of->params[i];
    if (count) gather(z, missing, count);
    for (uint32_t i = 0; i < of->count; i++) {
        param *p = &z->params[of->params[i]];
        add_user(z, p, instance);
        if (is_forward && m->state.is_in_backward && z->active_count && !p->trains) {
            module *above = &z->modules[z->active[z->active_count - 1]];
            TIDE_ROOM(m->arena, above->again, above->again_count, above->again_capacity);
            above->again[above->again_count++] = of->params[i];
        }
        wait_for(z, p);
    }
    if (z->mode == COMPLETE) {
        uint32_t fresh = 0;
        for (uint32_t i = 0; i < of->count; i++) fresh += z->params[of->params[i]].fetched_for < z->step;
        for (; fresh && z->queue_at < z->queue_count; fresh--) {
            const use *next = &z->queue[z->queue_at++];
            z->params[next->param].fetched_for = next->step;
        }
        if (z->prefetch_size > 0) prefetch(z);
    }
    z->step++;
    m->module = outside;
}

/* __params_to_release, once computed for a module at a step. */
static uint64_t releases_of(zero3 *z, uint32_t instance) {
    const module *of = &z->modules[instance];
    if (z->mode == RECORDING) return UINT64_MAX;
    for (kept *k = z->kept[z->step]; k; k = k->next)
        if (k->module == instance) return k->releases;
    kept *k = TIDE_NEW(machine_of(z)->arena, kept, 1);
    *k = (kept){instance, 0, z->kept[z->step]};
    z->kept[z->step] = k;
    for (uint32_t i = 0; i < of->count; i++)
        if (!z->params[of->params[i]].stays && z->params[of->params[i]].fetched_for <= z->step)
            k->releases |= UINT64_C(1) << i;
    int64_t passed = 0;
    for (uint32_t at = (uint32_t)z->step; at < z->order_count && passed < z->reuse && k->releases; at++) {
        const module *next = &z->modules[z->order[at]];
        const uint32_t *params =
            of->is_leaf ? next->all : next->params; /* what recurses is told by the one that is released */
        uint32_t count = of->is_leaf ? next->all_count : next->own_count;
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t own = 0; own < of->count; own++)
                if (of->params[own] == params[i]) k->releases &= ~(UINT64_C(1) << own);
            passed += z->params[params[i]].count;
        }
    }
    return k->releases;
}

static void release(zero3 *z, uint32_t instance, bool is_forward) {
    module *of = &z->modules[instance];
    uint64_t releases = releases_of(z, instance);
    for (uint32_t i = 0; i < of->count; i++) {
        remove_user(&z->params[of->params[i]], instance);
        if (releases >> i & 1) let_go(z, &z->params[of->params[i]]);
    }
    if (is_forward) return;
    for (uint32_t i = 0; i < of->again_count; i++) {
        param *p = &z->params[of->again[i]];
        remove_user(p, instance);
        if (!p->stays) let_go(z, p);
    }
    of->again_count = 0;
    for (uint32_t i = 0; i < z->active_count; i++)
        if (z->active[i] == instance) {
            memmove(z->active + i, z->active + i + 1, (z->active_count - i - 1) * sizeof *z->active);
            z->active_count--;
            break;
        }
}

/* release_backward_leftovers: modules whose post-backward hook did not run, the last one first. */
static void release_leftovers(zero3 *z) {
    while (z->active_count) {
        uint32_t instance = z->active[--z->active_count];
        module *of = &z->modules[instance];
        for (uint32_t i = 0; i < of->count + of->again_count; i++) {
            param *p = &z->params[i < of->count ? of->params[i] : of->again[i - of->count]];
            remove_user(p, instance);
            if (!p->stays) let_go(z, p);
        }
        of->again_count = 0;
    }
}

static void land_all(zero3 *z) {
    for (uint32_t i = 0; i < z->count; i++)
        if (z->params[i].flight) wait_for(z, &z->params[i]);
}

/* reset_step, at the beginning of every forward. */
static void reset_trace(zero3 *z) {
    tide_machine *m = machine_of(z);
    land_all(z);
    if (z->mode == RECORDING && z->has_run) {
        for (uint32_t at = 0; at < z->order_count; at++) {
            const module *of = &z->modules[z->order[at]];
            for (uint32_t i = 0; i < of->count; i++) {
                TIDE_ROOM(m->arena, z->queue, z->queue_count, z->queue_capacity);
                z->queue[z->queue_count++] = (use){of->params[i], at};
            }
        }
        z->kept = TIDE_NEW(m->arena, kept *, z->order_count + 2);
        z->mode = COMPLETE;
    }
    z->has_run = true;
    z->queue_at = 0;
    z->step = z->live = 0;
    for (uint32_t i = 0; i < z->count; i++) z->params[i].fetched_for = INT64_MIN;
}

/* ---- hooks ---- */

static void before_outputs(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = m->wrapper;
    uint32_t instance = (uint32_t)node->attribute[0];
    if (z->modules[instance].watched) {
        fetch(z, instance, false);
        z->modules[instance].watched--;
    }
    results[0] = tide_retain(grads[0]);
}
static const tide_backward pre_backward_function = {"PreBackwardFunctionForModule", before_outputs};

static void after_inputs(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = m->wrapper;
    uint32_t instance = (uint32_t)node->attribute[0];
    if (--z->modules[instance].inputs_left == 0) release(z, instance, false);
    results[0] = tide_retain(grads[0]);
}
static const tide_backward post_backward_function = {"PostBackwardFunctionModule", after_inputs};

static void reduce_gradient(zero3 *z, uint32_t which);

/* register_full_backward_hook of a leaf module: its gradients are reduced when all are there. */
static void after_leaf(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = m->wrapper;
    const module *of = &z->modules[(uint32_t)node->attribute[0]];
    for (uint32_t i = 0; i < z->group_count; i++)
        for (uint32_t k = 0; k < of->count; k++)
            if (of->params[k] == z->group_order[i] && z->params[of->params[k]].leaf->grad)
                reduce_gradient(z, of->params[k]);
    results[0] = tide_retain(grads[0]);
}
static const tide_backward backward_hook_function = {"BackwardHookFunction", after_leaf};

/* A Function whose output is its input, detached. */
static bool pass_through(zero3 *z, uint32_t instance, const tide_backward *function, tide_value *value) {
    tide_machine *m = machine_of(z);
    tide_tensor *t = value->tensor, *same = tide_alias(m, t);
    tide_node *node = tide_node_with(m, function, &t, 1, 1, 0);
    same->is_view = true;
    if (node) node->attribute[0] = instance;
    value->tensor = tide_set_grad_fn(m, node, same);
    tide_release(m, t);
    return node != NULL;
}

static void before_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count) {
    zero3 *z = model->m->wrapper;
    module *of = &z->modules[instance];
    const char *op = model->m->op;
    (void)named, (void)named_count; /* hooks without keywords do not see them */
    if (of->is_inside) return;
    if (instance == model->root && !model->m->state.is_in_backward) reset_trace(z);
    fetch(z, instance, true);
    of->inputs_left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (positional[i].kind == TIDE_VALUE_TENSOR && tide_dtype_is_float(positional[i].tensor->dtype))
            of->inputs_left += pass_through(z, instance, &post_backward_function, &positional[i]);
    for (uint32_t i = 0; i < count && of->is_leaf; i++)
        if (positional[i].kind == TIDE_VALUE_TENSOR && tide_dtype_is_float(positional[i].tensor->dtype))
            pass_through(z, instance, &backward_hook_function, &positional[i]);
    model->m->op = op;
}

static void after_forward(tide_model *model, uint32_t instance, tide_value *output) {
    zero3 *z = model->m->wrapper;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (z->modules[instance].is_inside) return;
    release(z, instance, true);
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        z->modules[instance].watched++;
        pass_through(z, instance, &pre_backward_function, &items[i]);
    }
}

/* ---- linear.py ---- */

/* x.reshape(-1, x.shape[-1]) */
static tide_tensor *as_matrix(tide_machine *m, tide_tensor *x) {
    int last = x->shape->dims - 1;
    tide_shape shape = {.dims = 2};
    shape.size[1] = x->shape->size[last], shape.name[1] = x->shape->name[last];
    shape.size[0] = shape.size[1] ? tide_count(x) / shape.size[1] : 0;
    return tide_reshape(m, x, &shape);
}

static void linear_backward(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *weight = tide_saved_at(m, node, 1), *g = grads[0];
    if (tide_needs_input_grad(node, 0)) {
        results[0] = tide_matmul(m, g, weight);
        results[0]->is_view = false; /* _unsafe_view: gradients may be added in place */
    }
    if (tide_needs_input_grad(node, 1)) {
        tide_tensor *rows = as_matrix(m, g), *columns = tide_transpose(m, rows, 0, 1), *inputs = as_matrix(m, x);
        results[1] = tide_matmul(m, columns, inputs);
        tide_release(m, inputs);
        tide_release(m, columns);
        tide_release(m, rows);
    }
    if (node->edge_count > 2 && tide_needs_input_grad(node, 2))
        results[2] = tide_sum_plain(m, g, (1u << (g->shape->dims - 1)) - 1, false, (tide_dtype)g->dtype);
    tide_release(m, weight);
    tide_release(m, x);
}
static const tide_backward linear_function = {"LinearFunctionForZeroStage3", linear_backward};

/* Saves the parameter itself, whose data comes and goes, and the input whether or not it is wanted. */
static tide_tensor *linear(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias) {
    tide_tensor *inputs[3] = {x, weight, bias};
    tide_node *node = tide_node_with(m, &linear_function, inputs, bias ? 3 : 2, 1, 3);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *out = tide_linear_eager(m, x, weight, bias);
    m->state.grad_enabled = grad_enabled;
    if (node) {
        tide_save(m, node, x);
        tide_save(m, node, weight);
        tide_save(m, node, bias);
    }
    return tide_set_grad_fn(m, node, out);
}

/* ---- gradients ---- */

/* partition_grads: a rank without real elements of a parameter keeps nothing of it. */
static void keep_part(zero3 *z, param *p) {
    tide_machine *m = machine_of(z);
    bool is_real = p->cut * z->w->rank < p->count;
    if (z->is_offloaded && is_real) {
        tide_tensor *on_device = on_stream(z, z->reduce_stream, p->cut, z->accumulated, TIDE_FACTOR_GRADIENT);
        if (z->w->is_last) {
            int64_t most = 250000000; /* _constant_buffered_norm2 */
            p->norm = tide_fp64_norm(m, op_name, p->cut < most ? p->cut : most);
            if (z->accumulated != TIDE_FP32)
                tide_release(m, tide_flat_of(m, op_name, p->cut, TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        }
        tide_release(m, on_device);
    }
    if (p->leaf->grad && is_real) tide_record_stream(m, p->leaf->grad, z->reduce_stream);
    tide_release_at(m, &p->leaf->grad);
}

/* __reduce_and_partition_ipg_grads, with runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced. */
static void reduce_bucket(zero3 *z) {
    tide_machine *m = machine_of(z);
    if (!z->bucket_count) return;
    uint32_t outside = m->state.stream;
    m->state.stream = z->reduce_stream;
    m->op = op_name;
    int64_t cut = 0;
    uint32_t count = z->bucket_count, *order = z->bucket;
    bool is_in_place =
        z->is_contiguous && !z->scatters && z->bucket_elements <= z->bucket_size; /* the bucket itself is sent */
    for (uint32_t i = 1; i < count && !is_in_place; i++)                          /* by their numbers */
        for (uint32_t at = i; at && order[at - 1] > order[at]; at--) {
            uint32_t swap = order[at];
            order[at] = order[at - 1];
            order[at - 1] = swap;
        }
    for (uint32_t i = 0; i < count; i++) cut += z->params[order[i]].cut;
    tide_tensor **casts = TIDE_NEW(m->arena, tide_tensor *, 2 * count + 2), *flat = NULL;
    uint32_t n = 0;
    if (!is_in_place) {
        for (uint32_t i = 0; i < count && z->reduced_as != z->dtype; i++)
            if (!z->ipg || z->params[order[i]].leaf->grad->storage !=
                               z->ipg->storage) /* the bucket has the type of the reduction */
                casts[n++] =
                    tide_flat_of(m, op_name, z->params[order[i]].count, z->reduced_as, TIDE_FACTOR_COMMUNICATION);
        if (count > 1 || z->params[order[0]].count % z->w->ranks)
            flat = tide_flat_of(m, op_name, cut * z->w->ranks, z->reduced_as, TIDE_FACTOR_COMMUNICATION);
        uint32_t sent = n;
        for (uint32_t i = 0; i < count && z->reduced_as != z->accumulated; i++)
            casts[n++] = tide_flat_of(m, op_name, z->params[order[i]].cut, z->accumulated, TIDE_FACTOR_COMMUNICATION);
        for (uint32_t i = 0; i < sent && (n > sent || flat); i++)
            tide_release_at(m, &casts[i]); /* what is kept is no view of them */
        if (n > sent) tide_release_at(m, &flat);
    } else {
        if (z->reduced_as != z->accumulated)
            casts[n++] = tide_flat_of(m, op_name, z->bucket_elements, z->accumulated, TIDE_FACTOR_COMMUNICATION);
        for (uint32_t i = 0; i < count; i++)
            if (z->params[order[i]].cut * (z->w->rank + 1) > z->params[order[i]].count)
                casts[n++] =
                    tide_flat_of(m, op_name, z->params[order[i]].cut, z->accumulated, TIDE_FACTOR_COMMUNICATION);
    }
    for (uint32_t i = 0; i < count; i++) keep_part(z, &z->params[order[i]]);
    while (n) tide_release(m, casts[--n]);
    tide_release(m, flat);
    m->state.stream = outside;
    z->bucket_count = 0;
    z->bucket_elements = 0;
}

static void gradient_ready(tide_machine *m, tide_tensor *leaf) {
    zero3 *z = m->wrapper;
    uint32_t n = 0;
    for (; n < z->count && z->params[z->hint].leaf != leaf; n++) z->hint = z->hint ? z->hint - 1 : z->count - 1;
    if (n < z->count && !z->params[z->hint].waits) reduce_gradient(z, z->hint);
}

static void reduce_gradient(zero3 *z, uint32_t which) {
    param *p = &z->params[which];
    tide_machine *m = machine_of(z);
    tide_tensor *leaf = p->leaf;
    if (z->bucket_elements + p->count > z->bucket_size && z->bucket_elements) reduce_bucket(z);
    if (z->is_contiguous && z->bucket_elements + p->count <= z->bucket_size) {
        tide_record_stream(m, leaf->grad, z->reduce_stream);
        tide_set_data(m, leaf->grad, z->ipg);
    }
    z->bucket[z->bucket_count++] = which;
    z->bucket_elements += p->count;
}

/* ---- the engine ---- */

static void zero3_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    zero3 *z = w->state;
    m->op = op_name;
    tide_tensor *scaled = tide_scale(m, loss), *again = tide_scale(m, scaled);
    tide_run_backward(m, again);
    m->op = op_name;
    m->module = m->statement = 0;
    reduce_bucket(z);
    release_leftovers(z);
    tide_release(m, again);
    tide_release(m, scaled);
}

/* fp16 only: isinf and isnan over all gradients. */
static void check_overflow(zero3 *z) {
    tide_machine *m = machine_of(z);
    if (z->dtype != TIDE_FP16 || z->is_offloaded) return;
    int64_t count = tide_count(z->grads);
    m->state.stream = z->reduce_stream;
    tide_tensor *absolute = tide_flat(m, count, z->dtype);
    tide_tensor *is_inf = tide_flat(m, count, TIDE_BOOL);
    tide_release(m, absolute);
    tide_release(m, is_inf);
    tide_release(m, tide_flat(m, count, TIDE_BOOL));
    m->state.stream = 0;
}

static void step_sub_group(zero3 *z, uint32_t sub) {
    tide_machine *m = machine_of(z);
    uint32_t from = sub ? z->sub_ends[sub - 1] : 0, to = z->sub_ends[sub];
    int64_t elements = 0;
    for (uint32_t i = from; i < to; i++) elements += z->params[z->group_order[i]].cut;
    tide_tensor *flat = to - from > 1 ? tide_flat_of(m, op_name, elements, z->accumulated, TIDE_FACTOR_GRADIENT) : NULL;
    z->masters[sub]->grad = z->accumulated != TIDE_FP32
                                ? tide_flat_of(m, op_name, elements, TIDE_FP32, TIDE_FACTOR_GRADIENT)
                            : flat ? tide_retain(flat)
                                   : tide_view_as(m, z->grads, z->masters[sub]->layout);
    tide_release(m, flat);
    tide_optimizer_step_one(z->w->optimizer, sub);
    tide_release_at(m, &z->masters[sub]->grad);
}

static void zero3_update(tide_wrapper *w) {
    zero3 *z = w->state;
    tide_machine *m = w->model->m;
    if (strcmp(w->job->optimizer, "none") == 0) return;
    m->op = op_name;
    land_all(z);
    for (uint32_t i = 0; i < z->count; i++) { /* _partition_all_parameters */
        z->params[i].user_count = 0;
        let_go(z, &z->params[i]);
    }
    check_overflow(z);
    for (uint32_t i = 0; i < z->group_count && !z->is_offloaded; i++)
        z->params[z->group_order[i]].norm = tide_fp64_norm(m, op_name, z->params[z->group_order[i]].cut);
    for (uint32_t i = 0; i < z->group_count; i++) tide_release_at(m, &z->params[z->group_order[i]].norm);
    tide_tensor *before = z->norm; /* which the engine keeps */
    tide_tensor *norm = NULL;      /* of all, scaled as the loss was; offloaded gradients have theirs on the host */
    for (uint32_t i = 0; i < z->sub_count && !z->is_offloaded; i++) z->sub_norms[i] = tide_scalar(m, TIDE_FP32);
    if (!z->is_offloaded) {
        norm = tide_scalar(m, TIDE_FP32);
        z->norm = tide_scalar(m, TIDE_FP32);
    }
    for (uint32_t i = 0; i < z->sub_count && !z->is_offloaded; i++) step_sub_group(z, i);
    for (uint32_t i = 0; i < z->count; i++) { /* persistent parameters come back at once */
        if (!z->params[i].stays) continue;
        gather_one(z, &z->params[i], 0);
        z->params[i].status = AVAILABLE;
    }
    m->module = 0;
    for (uint32_t i = 0; i < z->group_count; i++)
        tide_release_at(m, &z->params[z->group_order[i]].second); /* invalidate_secondary_tensor */
    tide_release(m, before);
    tide_release(m, norm);
    for (uint32_t i = 0; i < z->sub_count; i++) tide_release_at(m, &z->sub_norms[i]);
}

/* ---- wrapping ---- */

/* Puts a parameter among those of a module, in the order of their numbers. */
static void add_parameter(zero3 *z, uint32_t instance, const tide_tensor *leaf) {
    tide_machine *m = machine_of(z);
    module *of = &z->modules[instance];
    uint32_t p = 0;
    while (p < z->count && z->params[p].leaf != leaf) p++;
    for (uint32_t i = 0; i < of->count; i++)
        if (of->params[i] == p) return;
    if (p == z->count) return;
    TIDE_ROOM(m->arena, of->params, of->count, of->capacity);
    uint32_t at = of->count++;
    for (; at && of->params[at - 1] > p; at--) of->params[at] = of->params[at - 1];
    of->params[at] = p;
    if (of->count > MODULE_LIMIT)
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d parameters in one module under ZeRO-3", MODULE_LIMIT);
}

/* ZeROOrderedDict.__getitem__: forward() of a module that reads another's parameter gathers it, and has it as its own
 * from then on. */
static void read_parameter(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_machine *m = model->m;
    zero3 *z = m->wrapper;
    uint32_t p = 0, outside = m->module;
    while (p < z->count && z->params[p].leaf != leaf) p++;
    if (p == z->count || z->params[p].status != CUT || m->state.is_in_backward) return;
    add_parameter(z, instance, leaf);
    if (!z->modules[instance].is_leaf) z->modules[instance].own_count = z->modules[instance].count;
    gather_one(z, &z->params[p], 0);
    z->params[p].status = AVAILABLE;
    m->module = outside;
}

/* Parameters of an instance and of all below; `leaf`: they lie in that module, which is gathered whole. */
static void collect(zero3 *z, uint32_t above, uint32_t instance, uint32_t leaf, int depth);

static void collect_value(zero3 *z, uint32_t above, tide_value v, uint32_t leaf, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) collect(z, above, v.module, leaf, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth < DEPTH_LIMIT && k < v.list->count; k++)
        collect_value(z, above, v.list->items[k], leaf, depth + 1);
}

static void collect(zero3 *z, uint32_t above, uint32_t instance, uint32_t leaf, int depth) {
    tide_model *model = z->w->model;
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    module *to = &z->modules[above];
    if (depth > DEPTH_LIMIT) return;
    if (leaf && instance != leaf) z->modules[instance].is_inside = true;
    for (uint32_t i = 0; i < z->modules[instance].own_count; i++) {
        uint32_t p = z->modules[instance].params[i];
        TIDE_ROOM(m->arena, to->all, to->all_count, to->all_capacity);
        to->all[to->all_count++] = p;
        if (leaf) z->params[p].waits = true;
        if (leaf && instance != leaf) add_parameter(z, leaf, z->params[p].leaf);
    }
    for (uint32_t k = 0; k < of->of->member_count; k++)
        collect_value(z, above, of->slots[of->of->parameter_count + k], leaf, depth + 1);
}

/* deepspeed/runtime/zero/leaf_module_config.py */
static void find_leaves(zero3 *z) {
    const tide_model *model = z->w->model;
    bool has_any = false;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        z->modules[i].own_count = z->modules[i].count;
        has_any = has_any || model->instances[i].of->is_zero_leaf;
    }
    for (uint32_t i = 1; i < model->instance_count && has_any; i++) {
        z->modules[i].is_leaf = model->instances[i].of->is_zero_leaf;
        collect(z, i, i, z->modules[i].is_leaf ? i : 0, 0);
    }
}

static void make_modules(zero3 *z) {
    tide_model *model = z->w->model;
    z->modules = TIDE_NEW(model->m->arena, module, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++) { /* tied parameters belong to every module that has them */
        const tide_instance *of = &model->instances[i];
        for (uint32_t k = 0; k < of->of->member_count; k++) {
            tide_value v = of->slots[of->of->parameter_count + k];
            if (v.kind == TIDE_VALUE_TENSOR && v.tensor->is_parameter) add_parameter(z, i, v.tensor);
        }
    }
    find_leaves(z);
}

/* What deepspeed.zero.Init has cut before the engine stands: each parameter as soon as it is made. */
typedef struct early {
    const tide_job *job;
    param *params; /* leaf and part, and second */
    uint32_t count, capacity;
} early;

static void cut_as_made(tide_model *model, tide_tensor *leaf) {
    tide_machine *m = model->m;
    early *e = m->wrapper;
    bool on_host = tide_option_is(e->job, TIDE_OPTION_offload_param, "cpu"), is_tied = false;
    int64_t ranks = tide_option_int(e->job, TIDE_OPTION_dp, 1),
            near = tide_option_int(e->job, TIDE_OPTION_zero_hpz_partition_size, 1);
    int64_t cut = (tide_count(leaf) + ranks - 1) / ranks;
    for (uint32_t i = 0; i < e->count; i++) is_tied = is_tied || e->params[i].leaf == leaf;
    tide_tensor *second = near > 1 ? new_part(m, cut * ranks / near, (tide_dtype)leaf->dtype, on_host) : NULL;
    tide_tensor *part = new_part(m, cut, (tide_dtype)leaf->dtype, on_host),
                *nothing = tide_empty_host(m, leaf->shape, (tide_dtype)leaf->dtype);
    tide_set_data(m, leaf, nothing);
    tide_release(m, nothing);
    if (is_tied) { /* made, cut, and dropped where the other's is taken */
        tide_release(m, second);
        tide_release(m, part);
        return;
    }
    TIDE_ROOM(m->arena, e->params, e->count, e->capacity);
    e->params[e->count++] = (param){.leaf = leaf, .part = part, .second = second};
}

static void zero3_load(tide_model *model, const tide_job *job) {
    if (!tide_option_true(job, TIDE_OPTION_zero_init, false)) return;
    early *e = TIDE_NEW(model->m->arena, early, 1);
    e->job = job;
    model->m->wrapper = e;
    model->parameter_made = cut_as_made;
}

static void cut_parameters(zero3 *z, const early *e) {
    tide_machine *m = machine_of(z);
    for (uint32_t i = 0; i < z->count; i++) {
        param *p = &z->params[i];
        m->module = p->module;
        for (uint32_t k = 0; e && k < e->count && !p->part; k++)
            if (e->params[k].leaf == p->leaf) p->part = e->params[k].part, p->second = e->params[k].second;
        if (p->part) continue;
        cut_second(z, p);
        p->part = new_part(m, p->cut, z->dtype, z->params_offloaded);
        point_at_nothing(z, p->leaf);
    }
    m->module = 0;
}

/* The optimizer's groups cut into sub-groups, and the parts of all that trains put into one buffer. */
static void make_groups(zero3 *z, const tide_optimized *members, uint32_t count) {
    tide_machine *m = machine_of(z);
    int64_t size = tide_option_int(z->w->job, TIDE_OPTION_sub_group_size, 1000000000), totals[2] = {0, 0}, run = 0,
            all = 0;
    z->group_order = TIDE_NEW(m->arena, uint32_t, count + 1);
    z->sub_ends = TIDE_NEW(m->arena, uint32_t, count + 1);
    z->sub_groups = TIDE_NEW(m->arena, uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t p = 0;
        while (z->params[p].leaf != members[i].tensor) p++;
        z->params[p].group = members[i].group;
        z->group_order[i] = p;
        totals[members[i].group] += z->params[p].cut;
    }
    z->group_count = count;
    for (uint32_t i = 0; i < count; i++) {
        param *p = &z->params[z->group_order[i]];
        p->grad_start = all;
        all += p->cut;
        run += p->cut;
        bool is_end = i + 1 == count || members[i + 1].group != members[i].group;
        if (!is_end && (run < size || size >= totals[p->group])) continue;
        z->sub_groups[z->sub_count] = p->group;
        z->sub_ends[z->sub_count++] = i + 1;
        run = 0;
    }
    if (!z->params_offloaded) { /* defragment, by way of the host */
        for (uint32_t i = 0; i < count; i++) tide_release_at(m, &z->params[z->group_order[i]].part);
        tide_timeline_empty_cache(&m->timeline);
        z->parts = tide_flat_of(m, op_name, all, z->dtype, TIDE_FACTOR_PARAMETER);
        for (uint32_t i = 0; i < count; i++) z->params[z->group_order[i]].part = tide_alias(m, z->parts);
    }
    tide_tensor *converted = NULL;
    int64_t largest = 0;
    z->masters = TIDE_NEW(m->arena, tide_tensor *, z->sub_count + 1);
    z->sub_norms = TIDE_NEW(m->arena, tide_tensor *, z->sub_count + 1);
    tide_optimized *masters = TIDE_NEW(m->arena, tide_optimized, z->sub_count + 1);
    for (uint32_t s = 0; s < z->sub_count; s++) {
        int64_t elements = 0;
        for (uint32_t i = s ? z->sub_ends[s - 1] : 0; i < z->sub_ends[s]; i++)
            elements += z->params[z->group_order[i]].cut;
        if (elements > largest) largest = elements;
        tide_shape shape = tide_shape1((tide_dim){elements, 0});
        if (z->is_offloaded) {
            z->masters[s] = tide_empty_host(m, &shape, TIDE_FP32);
            if (z->is_pinned) tide_pin_host(m, elements * tide_dtype_bytes(TIDE_FP32));
        } else {
            tide_tensor *next = z->dtype == TIDE_FP32 ? NULL
                                                      : tide_flat_of(m, op_name, elements, TIDE_FP32,
                                                                     TIDE_FACTOR_TEMPORARY); /* .to(fp32) */
            tide_release(m, converted);
            converted = next;
            z->masters[s] = tide_flat_of(m, op_name, elements, TIDE_FP32, TIDE_FACTOR_MASTER);
        }
        masters[s] = (tide_optimized){z->masters[s], 0, z->sub_groups[s]};
    }
    tide_release(m, converted);
    tide_optimizer_replace(z->w->optimizer, masters, z->sub_count);
    if (!z->is_offloaded) tide_release(m, tide_flat_of(m, op_name, largest, TIDE_FP32, TIDE_FACTOR_GRADIENT));
    if (z->is_contiguous) z->ipg = tide_flat_of(m, op_name, z->bucket_size, z->reduced_as, TIDE_FACTOR_COMMUNICATION);
    if (z->is_offloaded && z->is_pinned)
        tide_pin_host(m, all * tide_dtype_bytes(z->accumulated)); /* grad_partitions_flat_buffer */
    if (z->params_offloaded && z->is_pinned) {                    /* the parts, and the buffer of those that train */
        for (uint32_t i = 0; i < z->count; i++) tide_pin_host(m, z->params[i].cut * tide_dtype_bytes(z->dtype));
        tide_pin_host(m, all * tide_dtype_bytes(z->dtype));
    }
    if (!z->is_offloaded) z->grads = tide_flat_of(m, op_name, all, z->accumulated, TIDE_FACTOR_GRADIENT);
}

/* All parts have one size, padded; ranks differ where theirs of some parameter is not full. */
static uint32_t zero3_other_ranks(const tide_wrapper *w, int64_t *ranks) {
    const zero3 *z = w->state;
    int64_t first = w->ranks, last = w->ranks - 1;
    for (uint32_t i = 0; i < z->count; i++) {
        const param *p = &z->params[i];
        if (p->cut && p->count / p->cut < first) first = p->count / p->cut; /* the first rank whose part is not full */
    }
    uint32_t count = 0;
    if (first < last && first > 0) ranks[count++] = first;
    if (first <= last && last > 0) ranks[count++] = last;
    return count;
}

static void zero3_wrap(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    const tide_job *job = w->job;
    tide_dtype half = tide_option_dtype(job, TIDE_OPTION_half, TIDE_FP32);
    tide_dtype accumulated = tide_option_dtype(job, TIDE_OPTION_grad_accum_dtype, half);
    if (accumulated != half && accumulated != TIDE_FP32) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED,
                  "parallel.grad_accum_dtype other than that of the model is described for fp32");
        return;
    }
    const early *e = model->parameter_made ? m->wrapper : NULL;
    int64_t near = tide_option_int(job, TIDE_OPTION_zero_hpz_partition_size, 1);
    if (near > w->ranks) near = w->ranks;
    if (w->ranks % near) {
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "parallel.zero_hpz_partition_size: DeepSpeed refuses it: \"%lld is not divisible by %lld\"",
                  (long long)w->ranks, (long long)near);
        return;
    }
    model->parameter_made = NULL;
    if (!e) tide_cast_model(w, half); /* zero.Init makes them in the type they have */
    zero3 *z = TIDE_NEW(m->arena, zero3, 1);
    bool overlaps = tide_option_true(job, TIDE_OPTION_overlap_comm, true);
    *z = (zero3){.w = w,
                 .dtype = model->state.dtype,
                 .count = model->parameter_count,
                 .bucket_size = tide_bucket_size(w, TIDE_OPTION_reduce_bucket_size, 500000000, 1, 1),
                 .prefetch_size = tide_bucket_size(w, TIDE_OPTION_stage3_prefetch_bucket_size, 50000000, 9, 10),
                 .most_live = tide_option_int(job, TIDE_OPTION_stage3_max_live_parameters, 1000000000),
                 .reuse = tide_option_int(job, TIDE_OPTION_stage3_max_reuse_distance, 1000000000),
                 .scatters = tide_option_true(job, TIDE_OPTION_reduce_scatter, true),
                 .is_contiguous = tide_option_true(job, TIDE_OPTION_contiguous_gradients, true),
                 .second_ranks = near,
                 .is_pinned = tide_option_true(job, TIDE_OPTION_pin_memory, true),
                 .is_offloaded = tide_option_is(job, TIDE_OPTION_offload_optimizer, "cpu"),
                 .params_offloaded = tide_option_is(job, TIDE_OPTION_offload_param, "cpu"),
                 .gather_stream = overlaps ? GATHER_STREAM : 0,
                 .reduce_stream = overlaps ? REDUCE_STREAM : 0};
    z->accumulated = accumulated;
    z->reduced_as = tide_option_dtype(job, TIDE_OPTION_communication_data_type, z->dtype);
    z->params = TIDE_NEW(m->arena, param, z->count + 1);
    z->bucket = TIDE_NEW(m->arena, uint32_t, z->count + 1);
    z->ahead = TIDE_NEW(m->arena, uint32_t, z->count + 1);
    int64_t small =
        tide_option_int(job, TIDE_OPTION_stage3_param_persistence_threshold,
                        tide_option_true(job, TIDE_OPTION_hf_auto, false) ? 10 * tide_hidden_size(w) : 100000);
    for (uint32_t i = 0; i < z->count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        int64_t count = tide_count(row->tensor);
        z->params[i] = (param){.leaf = row->tensor,
                               .module = row->module,
                               .count = count,
                               .cut = TIDE_CEIL_DIV(count, w->ranks),
                               .stays = count <= small,
                               .trains = row->tensor->requires_grad};
    }
    uint32_t count = tide_optimizer_members(w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(w->optimizer, members);
    w->state = m->wrapper = z;
    cut_parameters(z, e);
    if (!z->is_offloaded) tide_flat_of(m, op_name, 1, TIDE_BOOL, TIDE_FACTOR_COMMUNICATION); /* inf_or_nan_tracker */
    tide_flat_of(m, op_name, 1, TIDE_FP32, TIDE_FACTOR_COMMUNICATION);                       /* of the last barrier */
    make_groups(z, members, count);
    make_modules(z);
    for (uint32_t i = 0; i < count; i++) { /* hooks are set on whole parameters */
        param *p = &z->params[z->group_order[i]];
        gather_one(z, p, 0);
        point_at_nothing(z, p->leaf);
    }
    m->module = 0;
    m->linear = linear;
    m->gradient_ready = gradient_ready;
    model->before_forward = before_forward;
    model->after_forward = after_forward;
    model->read_parameter = read_parameter;
}

const tide_strategy tide_zero3 = {.kind = "zero3",
                                  .load = zero3_load,
                                  .wrap = zero3_wrap,
                                  .backward = zero3_backward,
                                  .update = zero3_update,
                                  .other_ranks = zero3_other_ranks};
