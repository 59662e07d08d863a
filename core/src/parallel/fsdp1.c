/* FullyShardedDataParallel, the wrapper class: torch/distributed/fsdp/_runtime_utils.py, _flat_param.py.
 *
 * Note [Flat parameters]: all parameters of a unit are one flat one, of which a rank keeps a part. Modules use views of
 * the gathered whole, cut by split(), whose backward joins the gradients into one flat gradient; that is reduced when
 * it has come. The whole keeps its storage object: it is resized to nothing and back, so what autograd saved finds it.
 * The shard in the type that computes is another such storage. */
#include <string.h>

#include "base/units.h"
#include "parallel/parallel.h"
#include "tensor/ops/ops.h"

enum { CAST_STREAM = TIDE_STREAM_SIDE, GATHER_STREAM, REDUCE_STREAM, ALL_REDUCE_STREAM };

typedef enum strategy { FULL_SHARD, SHARD_GRAD_OP, NO_SHARD } strategy;

typedef struct piece {
    tide_tensor *leaf;      /* what modules use: a view of the whole */
    int64_t count, padding; /* elements of it, and of zeros before it */
    uint32_t module, group;
    tide_tensor *part; /* use_orig_params: what of it lies in the rank's part, which the optimizer updates; or NULL */
} piece;

typedef struct unit {
    piece *pieces;
    uint32_t count;
    int64_t elements, cut;     /* of the whole, without and of a rank's part, with padding */
    int64_t tail;              /* zeros at the end of the whole, which belong to it */
    tide_tensor *local;        /* the rank's part, which the optimizer updates */
    tide_tensor *whole, *cast; /* storages that come and go */
    tide_tensor *flat;         /* what gradients are accumulated in */
    tide_tensor *reduced;      /* _saved_grad_shard */
    bool is_there, is_prefetched, needs_backward, has_begun, trains;
    uint32_t forward_index, backward_index; /* places in the orders, from 1 */
} unit;

typedef struct fsdp {
    tide_wrapper *w;
    unit *units; /* in the order in which they are wrapped: inner ones first, the root last */
    uint32_t count;
    uint32_t *unit_of;   /* by instance: one more than the unit whose module it is */
    uint32_t *visits;    /* units in the order of modules() */
    int64_t ranks, rank; /* of a shard group */
    strategy strategy;
    tide_dtype dtype, computed, reduced_as;
    bool casts, is_hybrid, is_offloaded, keeps_names, reduces, is_ready;
    bool prefetches_forward, before,
        after; /* when backward fetches the next unit: before a unit's gradients, or after */
    uint32_t *forward_order, forward_count, *backward_order, backward_count;
    bool has_order;
    tide_tensor *zero; /* _zero_scalar */
    tide_unit_hooks hooks;
} fsdp;

static const char op_name[] = "FSDP";

static tide_machine *machine_of(const fsdp *f) {
    return f->w->model->m;
}

static tide_tensor *on_stream(const fsdp *f, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(machine_of(f), stream, op_name, count, dtype, factor);
}

static void fill(const fsdp *f, uint8_t stream, const tide_tensor *t, int64_t count, tide_factor factor) {
    tide_machine *m = machine_of(f);
    uint32_t outside = m->state.stream;
    m->state.stream = stream;
    m->op = op_name;
    m->state.factor = factor;
    tide_fill_storage(m, t, count);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->state.stream = outside;
}

static bool is_sharded(const fsdp *f) {
    return f->strategy != NO_SHARD;
}

/* ---- gathering ---- */

/* _use_unsharded_views. */
static void use_views(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    const tide_tensor *data = is_sharded(f) ? u->whole : f->casts ? u->cast : u->local;
    uint32_t outputs = 2 * u->count + 1;
    m->op = op_name;
    uint32_t outside = m->state.stream;
    m->state.stream = GATHER_STREAM;
    tide_node *node = m->state.grad_enabled && u->trains
                          ? tide_node_with(m, &tide_split_backward, &u->flat, 1, (int)outputs, 0)
                          : NULL;
    m->state.stream = outside;
    if (node) node->extra.shape = u->flat->shape;
    for (uint32_t i = 0; i < u->count; i++) {
        const piece *p = &u->pieces[i];
        tide_set_data(m, p->leaf, data);
        tide_node_release(m, p->leaf->node);
        p->leaf->node = NULL;
        p->leaf->is_leaf = true;
        p->leaf->requires_grad = false;
        p->leaf->is_view = true;
        if (node && p->padding) {
            tide_shape shape = tide_shape1((tide_dim){p->padding, 0});
            node->outputs[node->output_count++] =
                (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)f->computed};
            if (i)
                node->references++; /* see tide_set_grad_fn: the first output that a tensor has takes over the maker's
                                     */
        }
        tide_set_grad_fn(m, node, p->leaf);
        if (node && p->padding && !i) node->references--;
    }
    if (node && u->tail) {
        tide_shape shape = tide_shape1((tide_dim){u->tail, 0});
        node->outputs[node->output_count++] =
            (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)f->computed};
    }
}

/* _unshard. */
static void unshard(fsdp *f, unit *u, bool is_forward) {
    tide_machine *m = machine_of(f);
    bool needs = is_sharded(f) ? !u->is_there : f->casts || f->is_offloaded;
    if (!u->count) return;
    tide_tensor *upload =
        needs && f->is_offloaded ? on_stream(f, CAST_STREAM, u->cut, f->dtype, TIDE_FACTOR_GATHERED) : NULL;
    if (needs && f->casts) {
        fill(f, CAST_STREAM, u->cast, u->cut, TIDE_FACTOR_GATHERED);
        tide_release_at(m, &upload);
    }
    if (needs && is_sharded(f)) {
        fill(f, GATHER_STREAM, u->whole, u->cut * f->ranks, TIDE_FACTOR_GATHERED);
        if (f->casts) {
            tide_record_stream(m, u->cast, GATHER_STREAM);
            tide_drop_storage(m, u->cast);
        }
        if (upload) tide_record_stream(m, upload, GATHER_STREAM);
    }
    tide_release(m, upload);
    u->is_there = true;
    if (is_forward) use_views(f, u);
}

/* _reshard. */
static void reshard(fsdp *f, unit *u, bool frees) {
    tide_machine *m = machine_of(f);
    tide_tensor *goes = is_sharded(f) ? u->whole : f->casts ? u->cast : NULL;
    if (goes && u->is_there && (frees || !is_sharded(f))) {
        tide_record_stream(m, goes, (uint8_t)m->state.stream);
        tide_drop_storage(m, goes);
        u->is_there = false;
    }
    u->is_prefetched = false;
}

/* ---- backward ---- */

static void fetch_backward(fsdp *f, const unit *u) {
    if (u->backward_index < 2) return;
    unit *target = &f->units[f->backward_order[u->backward_index - 2]];
    if (!target->needs_backward || target->is_prefetched) return;
    unshard(f, target, false);
    target->is_prefetched = true;
}

/* _pre_backward_hook. */
static void pre_backward(void *state, uint32_t index) {
    fsdp *f = state;
    unit *u = &f->units[index];
    if (u->has_begun || !u->count) return;
    if (u->needs_backward && !u->is_prefetched) unshard(f, u, false);
    u->needs_backward = false;
    if (f->before) fetch_backward(f, u);
    if (is_sharded(f) && u->local->grad) { /* of an earlier micro-batch, reduced */
        u->reduced = u->local->grad;
        u->local->grad = NULL;
    }
    u->has_begun = true;
}

static void before_backward(tide_machine *m, tide_node *node) {
    tide_unit_hooks_run(&((fsdp *)m->wrapper)->hooks, m, node, pre_backward);
}

/* To the parameters' type, and to what there is of earlier micro-batches. */
static tide_tensor *widened(fsdp *f, tide_tensor *reduced, int64_t count, uint8_t stream) {
    tide_machine *m = machine_of(f);
    if (f->reduced_as == f->dtype) return reduced;
    tide_tensor *wide = on_stream(f, stream, count, f->dtype, TIDE_FACTOR_GRADIENT);
    tide_record_stream(m, reduced, stream);
    tide_release(m, reduced);
    return wide;
}

static void reduce(fsdp *f, unit *u, tide_tensor *grad) {
    tide_machine *m = machine_of(f);
    tide_tensor *cast = f->reduced_as == f->computed
                            ? tide_retain(grad)
                            : on_stream(f, REDUCE_STREAM, u->elements, f->reduced_as, TIDE_FACTOR_GRADIENT);
    if (!is_sharded(f)) {
        tide_set_factor(m, cast, TIDE_FACTOR_GRADIENT);
        u->reduced = widened(f, cast, u->elements, REDUCE_STREAM);
        return;
    }
    tide_tensor *padded = u->cut * f->ranks > u->elements
                              ? on_stream(f, REDUCE_STREAM, u->cut * f->ranks, f->reduced_as, TIDE_FACTOR_COMMUNICATION)
                              : NULL;
    tide_tensor *part = on_stream(f, REDUCE_STREAM, u->cut, f->reduced_as, TIDE_FACTOR_GRADIENT);
    uint8_t stream = f->is_hybrid ? ALL_REDUCE_STREAM : REDUCE_STREAM;
    if (f->is_hybrid) tide_record_stream(m, part, ALL_REDUCE_STREAM);
    part = widened(f, part, u->cut, stream);
    if (f->is_offloaded) tide_record_stream(m, part, REDUCE_STREAM);
    if (u->reduced)
        tide_release(m, part);
    else
        u->reduced = part;
    tide_release(m, cast);
    tide_release(m, padded);
}

/* _post_backward_hook: after AccumulateGrad of the flat parameter. */
static void gradient_ready(tide_machine *m, tide_tensor *leaf) {
    fsdp *f = m->wrapper;
    uint32_t index = 0;
    const char *op = m->op;
    while (index < f->count && f->units[index].flat != leaf) index++;
    if (index == f->count) return;
    unit *u = &f->units[index];
    reshard(f, u, is_sharded(f) && (f->reduces || f->strategy == FULL_SHARD));
    if (f->after) fetch_backward(f, u);
    if (f->reduces) {
        tide_tensor *grad = leaf->grad;
        leaf->grad = NULL;
        if (is_sharded(f) || f->reduced_as != f->computed || f->reduced_as != f->dtype)
            tide_record_stream(m, grad, REDUCE_STREAM);
        reduce(f, u, grad);
        tide_release(m, grad);
    }
    m->op = op;
}

/* _post_backward_final_callback. */
static void end_backward(void *state) {
    fsdp *f = state;
    tide_machine *m = machine_of(f);
    for (uint32_t i = 0; i < f->count; i++) {
        unit *u = &f->units[f->visits[i]];
        if (u->is_there && is_sharded(f) && (f->reduces || f->strategy == FULL_SHARD)) reshard(f, u, true);
        u->has_begun = u->needs_backward = u->is_prefetched = false;
        u->backward_index = 0;
        if (!f->reduces || !u->reduced) continue;
        tide_release_at(m, &u->local->grad);
        if (!f->is_offloaded) u->local->grad = tide_retain(u->reduced);
        for (uint32_t k = 0; k < u->count && f->keeps_names; k++) {
            piece *p = &u->pieces[k];
            if (!p->part) continue;
            tide_release_at(m, &p->part->grad);
            p->part->grad = tide_view_as(m, u->reduced, p->part->layout);
        }
        tide_release_at(m, &u->reduced);
    }
    f->backward_count = 0;
}

/* ---- forward ---- */

static void cast_one(tide_machine *m, tide_value *value, tide_dtype dtype) {
    if (value->kind != TIDE_VALUE_TENSOR || !tide_dtype_is_float(value->tensor->dtype) || value->tensor->dtype == dtype)
        return;
    tide_value arguments[2] = {*value, {.kind = TIDE_VALUE_DTYPE, .dtype = dtype}};
    tide_value cast = tide_op_find(TIDE_TEXT("to"))->run(m, arguments);
    tide_value_release(m, *value);
    *value = cast;
}

static void before_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    fsdp *f = m->wrapper;
    uint32_t index = f->unit_of[instance];
    if (!index--) return;
    unit *u = &f->units[index];
    if (index + 1 == f->count && f->casts) {
        for (uint32_t i = 0; i < count; i++) cast_one(m, &positional[i], f->computed);
        for (uint32_t i = 0; i < named_count; i++) cast_one(m, &named[i], f->computed);
    }
    if (!u->count) return;
    if (!f->has_order && !u->forward_index) {
        f->forward_order[f->forward_count++] = index;
        u->forward_index = f->forward_count;
    }
    if (!u->is_prefetched) unshard(f, u, true);
    if (!f->prefetches_forward || u->forward_index >= f->forward_count) return;
    unit *next = &f->units[f->forward_order[u->forward_index]];
    if (next->is_prefetched) return;
    unshard(f, next, true);
    next->is_prefetched = true;
}

static void hook_one(fsdp *f, uint32_t index, const tide_value *value) {
    if (value->kind != TIDE_VALUE_TENSOR || !value->tensor->node) return;
    tide_node *node = value->tensor->node;
    tide_unit_hook_add(&f->hooks, machine_of(f), node, index);
    f->units[index].needs_backward = true;
}

static void after_forward(tide_model *model, uint32_t instance, tide_value *output) {
    fsdp *f = model->m->wrapper;
    uint32_t index = f->unit_of[instance];
    if (!index--) return;
    unit *u = &f->units[index];
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (u->count) {
        if (!u->backward_index && f->backward_count < f->count) {
            f->backward_order[f->backward_count++] = index;
            u->backward_index = f->backward_count;
        }
        reshard(f, u, f->strategy == FULL_SHARD && index + 1 < f->count);
        u->needs_backward = u->has_begun = false;
    }
    for (uint32_t i = 0; i < count && model->m->state.grad_enabled; i++) hook_one(f, index, &items[i]);
}

/* _lazy_init: storages are made and resized to nothing. */
static void make_storages(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    if (!u->count) return;
    if (f->casts) tide_drop_storage(m, u->cast = tide_flat_of(m, op_name, u->cut, f->computed, TIDE_FACTOR_GATHERED));
    if (is_sharded(f)) {
        tide_drop_storage(m, u->whole = tide_flat_of(m, op_name, u->cut * f->ranks, f->computed, TIDE_FACTOR_GATHERED));
        if (f->casts) tide_release(m, tide_flat_of(m, op_name, u->cut * f->ranks, f->dtype, TIDE_FACTOR_GATHERED));
    }
    tide_shape shape = tide_shape1((tide_dim){u->elements, 0});
    u->flat = tide_view_as(m,
                           is_sharded(f) ? u->whole
                           : f->casts    ? u->cast
                                         : u->local,
                           tide_layout_of(m, &shape, NULL));
    u->flat->is_view = false;
    u->flat->is_parameter = true;
    u->flat->requires_grad = u->trains;
}

/* _cast_buffers_to_dtype_and_device. */
static void cast_buffers(fsdp *f) {
    tide_machine *m = machine_of(f);
    const tide_model *model = f->w->model;
    tide_dtype dtype = tide_option_dtype(f->w->job, TIDE_OPTION_buffer_dtype, TIDE_DTYPE_COUNT);
    m->state.factor = TIDE_FACTOR_BUFFER;
    m->op = "to";
    for (uint32_t i = 0; i < model->buffer_count && dtype != TIDE_DTYPE_COUNT; i++) {
        tide_tensor *buffer = model->buffers[i];
        if (!tide_dtype_is_float(buffer->dtype) || buffer->dtype == dtype) continue;
        tide_tensor *cast = tide_empty_like(m, buffer, dtype);
        tide_set_data(m, buffer, cast);
        buffer->dtype = (uint8_t)dtype;
        tide_release(m, cast);
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* _sync_module_params_and_buffers, of a unit; buffers go with the root. */
static void send_unit(fsdp *f, const unit *u) {
    const tide_model *model = f->w->model;
    uint32_t count = 0, buffers = u == &f->units[f->count - 1] ? model->buffer_count : 0;
    tide_tensor **sent = TIDE_NEW(model->m->arena, tide_tensor *, buffers + u->count + 1);
    for (uint32_t i = 0; i < buffers; i++) sent[count++] = model->buffers[i];
    for (uint32_t i = 0; i < u->count; i++) sent[count++] = u->pieces[i].leaf;
    tide_broadcast_coalesced(model->m, op_name, sent, count);
}

static void fsdp1_before_forward(tide_wrapper *w) {
    fsdp *f = w->state;
    tide_machine *m = w->model->m;
    f->reduces = w->is_last || tide_option_true(w->job, TIDE_OPTION_sync_each, false);
    m->module = 0;
    if (!f->is_ready) {
        cast_buffers(f);
        make_storages(f, &f->units[f->count - 1]);
        for (uint32_t i = 0; i < f->count; i++)
            if (f->visits[i] + 1 < f->count) make_storages(f, &f->units[f->visits[i]]);
    }
    f->has_order = f->is_ready;
    f->is_ready = true;
    for (uint32_t i = 0; i < f->count; i++) {
        unit *u = &f->units[i];
        u->is_prefetched = false;
        bool is_none = true; /* _reset_flat_param_grad_info_if_needed */
        for (uint32_t k = 0; k < u->count; k++) is_none = is_none && !(u->pieces[k].part && u->pieces[k].part->grad);
        if (f->keeps_names && is_none && w->micro == 0) tide_release_at(m, &u->local->grad);
    }
}

/* ---- wrapping ---- */

static void add_unit(fsdp *f, uint32_t instance) {
    f->unit_of[instance] = ++f->count;
}

/* ModuleWrapPolicy by class; blocks are those that gradient checkpointing runs again. */
static bool choose_units(fsdp *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    const char *wrap = f->w->job->options[TIDE_OPTION_wrap];
    bool is_fine = strcmp(wrap, "fine") == 0, is_root = strcmp(wrap, "root") == 0;
    if (!is_fine && !is_root && strcmp(wrap, "layer") != 0) {
        tide_error(m->diags, TIDE_ERR_FIELD_RANGE, "/settings/parallel.wrap",
                   "must be layer, fine or root: a policy names classes", NULL);
        return !(m->has_failed = true);
    }
    f->unit_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count && !is_root; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        for (uint32_t k = i + 1; k < model->instance_count && is_fine; k++)
            if (model->instances[k].parent == i &&
                (tide_text_is(model->instances[k].name, "self_attn") || tide_text_is(model->instances[k].name, "mlp")))
                add_unit(f, k);
        add_unit(f, i);
    }
    add_unit(f, model->root);
    f->units = TIDE_NEW(m->arena, unit, f->count);
    f->visits = TIDE_NEW(m->arena, uint32_t, f->count);
    f->forward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    f->backward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    uint32_t n = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (f->unit_of[i]) f->visits[n++] = f->unit_of[i] - 1;
    return true;
}

/* FlatParamHandle.__init__ and shard(). */
static bool make_unit(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    int64_t aligned = f->keeps_names ? 16 / tide_dtype_bytes(f->casts ? f->computed : f->dtype) : 0;
    if (!u->count) return true;
    u->trains = u->pieces[0].leaf->requires_grad;
    for (uint32_t i = 0; i < u->count; i++) {
        piece *p = &u->pieces[i];
        if (p->leaf->requires_grad != u->trains && !f->keeps_names) {
            tide_error(m->diags, TIDE_ERR_CONFLICT, "/settings/parallel.kind",
                       "FSDP1 refuses frozen and other parameters in one unit: \"Must flatten tensors with uniform "
                       "`requires_grad`\"",
                       "use parallel.use_orig_params=true, or fsdp2");
            return false;
        }
        u->trains |= p->leaf->requires_grad;
        p->padding = aligned ? (aligned - u->elements % aligned) % aligned : 0;
        u->elements += p->padding + p->count;
    }
    u->tail = aligned ? (f->ranks - u->elements % f->ranks) % f->ranks : 0;
    u->elements += u->tail;
    tide_tensor *flat = tide_flat_of(m, op_name, u->elements, f->dtype, TIDE_FACTOR_PARAMETER);
    u->cut = u->elements;
    if (is_sharded(f)) {
        u->cut = TIDE_CEIL_DIV(u->elements, f->ranks);
        int64_t from = f->rank * u->cut, real = from >= u->elements           ? 0
                                                : u->elements - from < u->cut ? u->elements - from
                                                                              : u->cut;
        u->local = tide_flat_of(m, op_name, real, f->dtype, TIDE_FACTOR_PARAMETER);
        if (real < u->cut) {
            tide_tensor *padded = tide_flat_of(m, op_name, u->cut, f->dtype, TIDE_FACTOR_PARAMETER);
            tide_release(m, u->local);
            u->local = padded;
        }
        tide_release(m, flat);
    } else {
        u->local = flat;
    }
    if (f->is_offloaded) {
        tide_release(m, u->local);
        tide_shape shape = tide_shape1((tide_dim){u->cut, 0});
        u->local = tide_empty_host(m, &shape, f->dtype);
        for (int i = 0; i < 2; i++) tide_pin_host(m, tide_bytes(u->local)); /* _local_shard, _cpu_grad */
    }
    int64_t at = 0, from = is_sharded(f) ? f->rank * u->cut : 0;
    for (uint32_t i = 0; i < u->count; i++) {
        piece *p = &u->pieces[i];
        at += p->padding;
        int64_t start = at > from ? at : from, end = at + p->count < from + u->cut ? at + p->count : from + u->cut;
        tide_shape shape = tide_shape1((tide_dim){end - start, 0});
        if (f->keeps_names && end > start && p->leaf->requires_grad)
            p->part = tide_view_as(m, u->local, tide_layout_of(m, &shape, NULL));
        at += p->count;
        tide_set_data(m, p->leaf, u->local);
        p->leaf->dtype = (uint8_t)f->computed;
    }
    return true;
}

static void give_members(fsdp *f) {
    tide_machine *m = machine_of(f);
    uint32_t count = tide_optimizer_members(f->w->optimizer, NULL), n = 0;
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1),
                   *given = TIDE_NEW(m->arena, tide_optimized, count + f->count + 1);
    tide_optimizer_members(f->w->optimizer, members);
    for (uint32_t i = 0; i < f->count && !f->keeps_names; i++) {
        unit *u = &f->units[f->visits[i]];
        if (u->count && u->trains) given[n++] = (tide_optimized){u->local, 0, 0};
    }
    for (uint32_t i = 0; i < count && f->keeps_names; i++)
        for (uint32_t k = 0; k < f->count; k++)
            for (uint32_t j = 0; j < f->units[k].count; j++) {
                const piece *p = &f->units[k].pieces[j];
                if (p->leaf == members[i].tensor && p->part)
                    given[n++] = (tide_optimized){p->part, p->module, members[i].group};
            }
    tide_optimizer_replace(f->w->optimizer, given, n);
}

static bool refuse(fsdp *f, const char *option, const char *message) {
    tide_machine *m = machine_of(f);
    tide_error(m->diags, TIDE_ERR_UNSUPPORTED, tide_format(m->arena, "/settings/parallel.%s", option), message, NULL);
    return !(m->has_failed = true);
}

static void fsdp1_wrap(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    const tide_job *job = w->job;
    fsdp *f = TIDE_NEW(m->arena, fsdp, 1);
    const char *kind = job->options[TIDE_OPTION_sharding_strategy];
    bool is_hybrid = strstr(kind, "HYBRID") != NULL, has_group = job->options[TIDE_OPTION_hybrid][0] != 0;
    int64_t group = tide_option_int(job, TIDE_OPTION_hybrid, w->ranks);
    *f = (fsdp){.w = w,
                .ranks = group,
                .rank = w->rank % group,
                .is_hybrid = is_hybrid,
                .dtype = model->state.dtype,
                .strategy = strcmp(kind, "NO_SHARD") == 0 ? NO_SHARD
                            : strcmp(kind, "SHARD_GRAD_OP") == 0 || strcmp(kind, "_HYBRID_SHARD_ZERO2") == 0
                                ? SHARD_GRAD_OP
                                : FULL_SHARD,
                .computed = tide_option_dtype(job, TIDE_OPTION_param_dtype, model->state.dtype),
                .is_offloaded = tide_option_true(job, TIDE_OPTION_offload, false),
                .keeps_names = tide_option_true(job, TIDE_OPTION_use_orig_params, false),
                .before = tide_option_is(job, TIDE_OPTION_backward_prefetch, "BACKWARD_PRE"),
                .after = tide_option_is(job, TIDE_OPTION_backward_prefetch, "BACKWARD_POST"),
                .prefetches_forward = tide_option_true(job, TIDE_OPTION_forward_prefetch, false)};
    f->casts = f->computed != f->dtype;
    f->reduced_as = tide_option_is(job, TIDE_OPTION_param_dtype, "none")
                        ? f->dtype
                        : tide_option_dtype(job, TIDE_OPTION_reduce_dtype, f->computed);
    w->state = m->wrapper = f;
    if (w->ranks % group || is_hybrid != has_group) {
        refuse(f, "hybrid",
               is_hybrid ? "hybrid strategies want the ranks of a shard group, which divide parallel.dp"
                         : "only a hybrid sharding_strategy has shard groups");
        return;
    }
    if (w->ranks == 1 && f->strategy != NO_SHARD)
        f->strategy = NO_SHARD; /* _init_core_state: one rank shards nothing */
    bool sends = tide_option_true(job, TIDE_OPTION_sync_module_states, false);
    if (!choose_units(f)) return;
    uint32_t *of = TIDE_NEW(m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        f->units[of[i] = tide_unit_of_module(model, f->unit_of, f->count, model->parameters[i].module)].count++;
    for (uint32_t k = 0; k < f->count; k++) {
        unit *u = &f->units[k];
        uint32_t n = 0;
        u->pieces = TIDE_NEW(m->arena, piece, u->count + 1);
        for (uint32_t i = 0; i < model->parameter_count; i++)
            if (of[i] == k)
                u->pieces[n++] = (piece){.leaf = model->parameters[i].tensor,
                                         .module = model->parameters[i].module,
                                         .count = tide_count(model->parameters[i].tensor)};
        if (sends) send_unit(f, u);
        if (!make_unit(f, u)) {
            m->has_failed = true;
            return;
        }
        if (u->count && !u->trains) {
            refuse(f, "kind", "units of frozen parameters are not described for fsdp1; use fsdp2");
            return;
        }
    }
    give_members(f);
    m->module = 0;
    model->before_forward = before_forward;
    model->after_forward = after_forward;
    m->before_backward = before_backward;
    m->gradient_ready = gradient_ready;
}

static void fsdp1_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_backward_with_callback(w, loss, end_backward);
}

static void fsdp1_update(tide_wrapper *w) {
    fsdp *f = w->state;
    if (strcmp(w->job->optimizer, "none") == 0 || f->is_offloaded) return;
    if (w->job->clips && !f->zero)
        f->zero = tide_flat_of(w->model->m, "clip_grad_norm_", 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    tide_update_members(w);
}

const tide_strategy tide_fsdp1 = {.kind = "fsdp1",
                                  .wrap = fsdp1_wrap,
                                  .before_forward = fsdp1_before_forward,
                                  .backward = fsdp1_backward,
                                  .update = fsdp1_update};
