/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_runtime_utils.py: the work of the hooks. */
#include "parallel/fsdp1.h"
#include "tensor/ops/ops.h"

const char tide_fsdp1_name[] = "FSDP";

enum { CAST_STREAM = TIDE_STREAM_SIDE, GATHER_STREAM, REDUCE_STREAM, ALL_REDUCE_STREAM };

static uint8_t fsdp1_stream(const fsdp1 *f, uint8_t stream) {
    return stream ? (uint8_t)(stream + f->first_stream) : 0;
}

static tide_tensor *flat_on(const fsdp1 *f, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(fsdp1_machine(f), fsdp1_stream(f, stream), tide_fsdp1_name, count, dtype, factor);
}

static void alloc_storage(const fsdp1 *f, uint8_t stream, const tide_tensor *t, int64_t count, tide_factor factor) {
    tide_machine *m = fsdp1_machine(f);
    uint32_t outside = m->state.stream;
    m->state.stream = fsdp1_stream(f, stream);
    m->op = tide_fsdp1_name;
    m->state.factor = factor;
    tide_fill_storage(m, t, count);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->state.stream = outside;
}

/* ---- gathering ---- */

/* The views of parameters, which make gradients that lie otherwise contiguous, and then that of their split. */
static void unsharded_views_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    for (unsigned i = node->output_count; i-- > 0;) {
        tide_tensor *grad = grads[i] ? tide_contiguous(m, grads[i]) : NULL;
        tide_release(m, grads[i]);
        grads[i] = grad;
    }
    tide_split_backward.run(m, node, grads, results);
}
static const tide_backward unsharded_views_backward = {"SplitBackward0", unsharded_views_run};

/* _use_unsharded_views. */
static void use_unsharded_views(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    const tide_tensor *data = fsdp1_uses_sharded_strategy(f) ? u->full_param_padded
                              : u->casts                     ? u->mp_shard
                                                             : u->local_shard;
    uint32_t outputs = 2 * u->count + 1;
    m->op = tide_fsdp1_name;
    uint32_t outside = m->state.stream;
    m->state.stream = fsdp1_stream(f, GATHER_STREAM);
    tide_node *node = m->state.grad_enabled && u->requires_grad
                          ? tide_node_with(m, &unsharded_views_backward, &u->flat_param, 1, (int)outputs, 0)
                          : NULL;
    m->state.stream = outside;
    if (node) node->extra.shape = u->flat_param->shape;
    for (uint32_t i = 0; i < u->count; i++) {
        const flat_param_info *p = &u->param_infos[i];
        tide_set_data(m, p->param, data);
        tide_node_release(m, p->param->node);
        p->param->node = NULL;
        p->param->is_leaf = true;
        p->param->requires_grad = false;
        p->param->is_view = true;
        if (node && p->padding) {
            tide_shape shape = tide_shape1((tide_dim){p->padding, 0});
            node->outputs[node->output_count++] =
                (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)fsdp1_param_dtype(f, u), false};
            if (i) node->references++; /* see tide_set_grad_fn: the first output takes over the creator's reference */
        }
        tide_set_grad_fn(m, node, p->param);
        if (node && p->padding && !i) node->references--;
    }
    if (node && u->tail) {
        tide_shape shape = tide_shape1((tide_dim){u->tail, 0});
        node->outputs[node->output_count++] =
            (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)fsdp1_param_dtype(f, u), false};
    }
}

void tide_fsdp1_set_param_dtypes(const flat_param_handle *u, tide_dtype dtype) {
    for (uint32_t i = 0; i < u->count; i++) u->param_infos[i].param->dtype = (uint8_t)dtype;
}

/* _unshard. With offload_params, pre_unshard() moves the shard to the device, or casts it, even if the whole is there
 * already; flat_param_to() makes original parameters views of what it moved. */
static void handle_unshard(fsdp1 *f, flat_param_handle *u, bool is_forward) {
    tide_machine *m = fsdp1_machine(f);
    bool is_cut = fsdp1_uses_sharded_strategy(f), gathers = is_cut && !u->is_unsharded;
    if (!u->count) return;
    bool casts = u->casts && (gathers || !is_cut || f->offload_params),
         uploads = f->offload_params && (casts || !u->is_on_device);
    tide_tensor *upload = uploads ? flat_on(f, CAST_STREAM, u->sharded_numel, u->dtype, TIDE_FACTOR_GATHERED) : NULL;
    if (casts) {
        alloc_storage(f, CAST_STREAM, u->mp_shard, u->sharded_numel, TIDE_FACTOR_GATHERED);
        tide_release_at(m, &upload);
    }
    if (gathers)
        alloc_storage(f, GATHER_STREAM, u->full_param_padded, u->sharded_numel * f->shard_ranks, TIDE_FACTOR_GATHERED);
    if (casts && is_cut) {
        tide_record_stream(m, u->mp_shard, fsdp1_stream(f, GATHER_STREAM));
        tide_drop_storage(m, u->mp_shard);
    }
    if (gathers && upload) tide_record_stream(m, upload, fsdp1_stream(f, GATHER_STREAM));
    tide_release(m, u->upload);
    u->upload = f->use_orig_params ? upload : NULL;
    if (!f->use_orig_params) tide_release(m, upload);
    u->is_unsharded = u->is_on_device = true;
    tide_fsdp1_set_param_dtypes(u, fsdp1_param_dtype(f, u));
    if (is_forward) use_unsharded_views(f, u);
}

/* _reshard. */
static void handle_reshard(fsdp1 *f, flat_param_handle *u, bool frees, bool in_forward) {
    tide_machine *m = fsdp1_machine(f);
    tide_tensor *goes = fsdp1_uses_sharded_strategy(f) ? u->full_param_padded : u->casts ? u->mp_shard : NULL;
    if (goes && u->is_unsharded && (frees || !fsdp1_uses_sharded_strategy(f))) {
        tide_record_stream(m, goes, (uint8_t)m->state.stream);
        tide_drop_storage(m, goes);
        u->is_unsharded = false;
    }
    u->prefetched = u->is_on_device = false;
    bool skips = m->state.grad_enabled && in_forward && f->sharding_strategy == FSDP_SHARD_GRAD_OP;
    if (!f->use_orig_params || skips) return;
    tide_fsdp1_set_param_dtypes(u, u->dtype); /* _use_sharded_views */
    tide_release_at(m, &u->orig_shard);
    tide_release_at(m, &u->upload);
}

/* ---- backward ---- */

static void prefetch_handle_in_backward(fsdp1 *f, const flat_param_handle *u) {
    if (u->post_forward_index < 2) return;
    flat_param_handle *target = &f->handles[f->post_forward_order[u->post_forward_index - 2]];
    if (!target->needs_pre_backward_unshard || target->prefetched) return;
    handle_unshard(f, target, false);
    target->prefetched = true;
}

/* _pre_backward_hook. */
static void fsdp1_pre_backward_hook(void *state, uint32_t index) {
    fsdp1 *f = state;
    flat_param_handle *u = &f->handles[index];
    if (u->ran_pre_backward_hook || !u->count) return;
    if (u->needs_pre_backward_unshard && !u->prefetched) handle_unshard(f, u, false);
    u->needs_pre_backward_unshard = false;
    if (f->backward_pre) prefetch_handle_in_backward(f, u);
    if (fsdp1_uses_sharded_strategy(f) && u->local_shard->grad) { /* of an earlier micro-batch, already reduced */
        u->saved_grad_shard = u->local_shard->grad;
        u->local_shard->grad = NULL;
    }
    u->ran_pre_backward_hook = true;
}

/* To the dtype of the parameters, and added to those of earlier micro-batches. */
static tide_tensor *cast_grad_to_param_dtype(const fsdp1 *f, const flat_param_handle *u, tide_tensor *reduced,
                                             int64_t count, uint8_t stream) {
    tide_machine *m = fsdp1_machine(f);
    if (fsdp1_reduce_dtype(f, u) == u->dtype) return reduced;
    tide_tensor *wide = flat_on(f, stream, count, u->dtype, TIDE_FACTOR_GRADIENT);
    tide_record_stream(m, reduced, stream);
    tide_release(m, reduced);
    return wide;
}

static void reduce_grad(fsdp1 *f, flat_param_handle *u, tide_tensor *grad) {
    tide_machine *m = fsdp1_machine(f);
    tide_dtype reduce_dtype = fsdp1_reduce_dtype(f, u);
    tide_tensor *cast = reduce_dtype == fsdp1_param_dtype(f, u)
                            ? tide_retain(grad)
                            : flat_on(f, REDUCE_STREAM, u->unsharded_numel, reduce_dtype, TIDE_FACTOR_GRADIENT);
    if (!fsdp1_uses_sharded_strategy(f)) {
        tide_set_factor(m, cast, TIDE_FACTOR_GRADIENT);
        u->saved_grad_shard = cast_grad_to_param_dtype(f, u, cast, u->unsharded_numel, REDUCE_STREAM);
        return;
    }
    tide_tensor *padded =
        u->sharded_numel * f->shard_ranks > u->unsharded_numel
            ? flat_on(f, REDUCE_STREAM, u->sharded_numel * f->shard_ranks, reduce_dtype, TIDE_FACTOR_COMMUNICATION)
            : NULL;
    tide_tensor *part = flat_on(f, REDUCE_STREAM, u->sharded_numel, reduce_dtype, TIDE_FACTOR_GRADIENT);
    uint8_t stream = f->is_hsdp ? ALL_REDUCE_STREAM : REDUCE_STREAM;
    if (f->is_hsdp) tide_record_stream(m, part, ALL_REDUCE_STREAM);
    part = cast_grad_to_param_dtype(f, u, part, u->sharded_numel, stream);
    if (f->offload_params) tide_record_stream(m, part, REDUCE_STREAM);
    if (u->saved_grad_shard)
        tide_release(m, part);
    else
        u->saved_grad_shard = part;
    tide_release(m, cast);
    tide_release(m, padded);
}

static bool frees_in_backward(const fsdp1 *f) {
    return fsdp1_uses_sharded_strategy(f) && (f->sync_gradients || f->sharding_strategy == FSDP_FULL_SHARD);
}

/* _use_unsharded_grad_views() for a micro-batch without reduction: if a gradient does not have the shape and dtype of
 * its parameter, which is sharded by then, one of those is made first for it to replace. */
static void use_unsharded_grad_views(fsdp1 *f, const flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    if (!f->use_orig_params || f->w->micro > 0 || f->offload_params) return;
    for (uint32_t i = 0; i < u->count; i++) {
        const flat_param_info *p = &u->param_infos[i];
        bool is_alike = p->orig_param && p->param->shape->dims == 1 && tide_count(p->orig_param) == p->numel &&
                        fsdp1_param_dtype(f, u) == u->dtype;
        if (p->orig_param && !is_alike)
            tide_release(m,
                         tide_flat_of(m, tide_fsdp1_name, tide_count(p->orig_param), u->dtype, TIDE_FACTOR_GRADIENT));
    }
}

/* _post_backward_hook: after AccumulateGrad of the flat parameter. */
static void fsdp1_post_backward_hook(tide_machine *m, tide_tensor *leaf) {
    fsdp1 *f = m->wrapper;
    uint32_t index = 0;
    const char *op = m->op;
    while (index < f->count && f->handles[index].flat_param != leaf) index++;
    if (index == f->count) return;
    flat_param_handle *u = &f->handles[index];
    handle_reshard(f, u, frees_in_backward(f), false);
    if (f->backward_post) prefetch_handle_in_backward(f, u);
    if (f->sync_gradients) {
        tide_tensor *grad = leaf->grad;
        leaf->grad = NULL;
        if (fsdp1_uses_sharded_strategy(f) || fsdp1_reduce_dtype(f, u) != fsdp1_param_dtype(f, u) ||
            fsdp1_reduce_dtype(f, u) != u->dtype)
            tide_record_stream(m, grad, fsdp1_stream(f, REDUCE_STREAM));
        reduce_grad(f, u, grad);
        tide_release(m, grad);
    } else {
        use_unsharded_grad_views(f, u);
    }
    m->op = op;
}

/* _post_backward_reshard_only_hook: for frozen parameters, after the gradients of their module's inputs. */
static void fsdp1_post_backward_reshard_only_hook(void *state, uint32_t index) {
    fsdp1 *f = state;
    handle_reshard(f, &f->handles[index], frees_in_backward(f), false);
    if (f->backward_post) prefetch_handle_in_backward(f, &f->handles[index]);
}

/* _post_backward_final_callback. */
void tide_fsdp1_post_backward_final_callback(void *state) {
    fsdp1 *f = state;
    tide_machine *m = fsdp1_machine(f);
    for (uint32_t i = 0; i < f->count; i++) {
        flat_param_handle *u = &f->handles[f->all_handles[i]];
        if (u->is_unsharded) handle_reshard(f, u, frees_in_backward(f), false);
        u->ran_pre_backward_hook = u->needs_pre_backward_unshard = u->prefetched = false;
        u->post_forward_index = 0;
        if (!f->sync_gradients || !u->saved_grad_shard) continue;
        tide_release_at(m, &u->local_shard->grad);
        if (!f->offload_params) u->local_shard->grad = tide_retain(u->saved_grad_shard);
        for (uint32_t k = 0; k < u->count && f->use_orig_params && !f->offload_params; k++) {
            flat_param_info *p = &u->param_infos[k];
            if (!p->orig_param) continue;
            tide_release_at(m, &p->orig_param->grad);
            p->orig_param->grad = tide_view_as(m, u->saved_grad_shard, p->orig_param->layout);
        }
        tide_release_at(m, &u->saved_grad_shard);
    }
    f->post_forward_count = 0;
}

/* ---- forward ---- */

static void cast_forward_input(tide_machine *m, tide_value *value, tide_dtype dtype) {
    if (value->kind != TIDE_VALUE_TENSOR || !tide_dtype_is_float(value->tensor->dtype) || value->tensor->dtype == dtype)
        return;
    tide_value arguments[2] = {*value, {.kind = TIDE_VALUE_DTYPE, .dtype = dtype}};
    tide_value cast = tide_op_find(TIDE_TEXT("to"))->run(m, arguments);
    tide_value_release(m, *value);
    *value = cast;
}

/* register_multi_grad_hook() on the inputs that require gradients, which are one tensor; without any, the final
 * callback reshards. */
static void register_post_backward_reshard_only_hook(fsdp1 *f, uint32_t index, const tide_value *positional,
                                                     uint32_t count, const tide_value *named, uint32_t named_count) {
    tide_machine *m = fsdp1_machine(f);
    for (uint32_t i = 0; i < count + named_count && m->state.grad_enabled; i++) {
        const tide_value *v = i < count ? &positional[i] : &named[i - count];
        if (v->kind != TIDE_VALUE_TENSOR || !v->tensor->node) continue;
        tide_register_unit_hook(m, v->tensor->node, fsdp1_post_backward_reshard_only_hook, f, index);
        return;
    }
}

static void fsdp1_pre_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                              tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    fsdp1 *f = m->wrapper;
    uint32_t index = f->handle_of[instance];
    if (!index-- || (f->is_summoned && index + 1 == f->count)) return;
    flat_param_handle *u = &f->handles[index];
    if (index + 1 == f->count && !f->is_lazily_initialized)
        tide_fsdp1_root_pre_forward(f->w);                             /* of a reference model */
    if (index + 1 == f->count && f->param_dtype != TIDE_DTYPE_COUNT) { /* _root_cast_forward_input */
        for (uint32_t i = 0; i < count; i++) cast_forward_input(m, &positional[i], f->param_dtype);
        for (uint32_t i = 0; i < named_count; i++) cast_forward_input(m, &named[i], f->param_dtype);
    }
    if (!u->count) return;
    if (!f->has_order && !u->pre_forward_order_index) {
        f->pre_forward_order[f->pre_forward_count++] = index;
        u->pre_forward_order_index = f->pre_forward_count;
    }
    if (!u->prefetched) handle_unshard(f, u, true);
    u->needs_pre_forward_unshard = false;
    if (!u->requires_grad) register_post_backward_reshard_only_hook(f, index, positional, count, named, named_count);
    if (!f->forward_prefetch || u->pre_forward_order_index >= f->pre_forward_count) return;
    flat_param_handle *next = &f->handles[f->pre_forward_order[u->pre_forward_order_index]];
    if (next->prefetched || !next->needs_pre_forward_unshard) return;
    handle_unshard(f, next, true);
    next->prefetched = true;
}

static void register_pre_backward_hooks(fsdp1 *f, uint32_t index, const tide_value *value) {
    if (value->kind != TIDE_VALUE_TENSOR || !value->tensor->node) return;
    tide_node *node = value->tensor->node;
    tide_register_unit_hook(fsdp1_machine(f), node, fsdp1_pre_backward_hook, f, index);
    f->handles[index].needs_pre_backward_unshard = true;
}

static void fsdp1_post_forward(tide_model *model, uint32_t instance, tide_value *output) {
    fsdp1 *f = model->m->wrapper;
    uint32_t index = f->handle_of[instance];
    if (!index-- || (f->is_summoned && index + 1 == f->count)) return;
    flat_param_handle *u = &f->handles[index];
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (u->count) {
        if (!u->post_forward_index && f->post_forward_count < f->count) {
            f->post_forward_order[f->post_forward_count++] = index;
            u->post_forward_index = f->post_forward_count;
        }
        handle_reshard(f, u, f->sharding_strategy == FSDP_FULL_SHARD && index + 1 < f->count, true);
        if (model->m->state.grad_enabled) u->needs_pre_backward_unshard = u->ran_pre_backward_hook = false;
    }
    for (uint32_t i = 0; i < count && model->m->state.grad_enabled; i++)
        register_pre_backward_hooks(f, index, &items[i]);
}

/* _lazy_init: storages are created and resized to 0. */
static void init_flat_param_attributes(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    if (!u->count) return;
    if (u->casts)
        tide_drop_storage(m, u->mp_shard = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, fsdp1_param_dtype(f, u),
                                                        TIDE_FACTOR_GATHERED));
    if (fsdp1_uses_sharded_strategy(f)) {
        tide_drop_storage(m, u->full_param_padded = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel * f->shard_ranks,
                                                                 fsdp1_param_dtype(f, u), TIDE_FACTOR_GATHERED));
        if (u->casts)
            tide_drop_storage(m, u->full_prec_full_param_padded =
                                     tide_flat_of(m, tide_fsdp1_name, u->sharded_numel * f->shard_ranks, u->dtype,
                                                  TIDE_FACTOR_GATHERED));
    }
    tide_shape shape = tide_shape1((tide_dim){u->unsharded_numel, 0});
    u->flat_param = tide_view_as(m,
                                 fsdp1_uses_sharded_strategy(f) ? u->full_param_padded
                                 : u->casts                     ? u->mp_shard
                                                                : u->local_shard,
                                 tide_layout_of(m, &shape, NULL));
    u->flat_param->is_view = false;
    u->flat_param->is_parameter = true;
    u->flat_param->requires_grad = u->requires_grad;
}

/* _cast_buffers_to_dtype_and_device. */
static void cast_buffers(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    const tide_model *model = f->w->model;
    tide_dtype dtype = f->buffer_dtype;
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

/* _reset_flat_param_grad_info_if_needed(): zero_grad() has released the gradients of the original parameters. */
void tide_fsdp1_reset_grad_info(fsdp1 *f, flat_param_handle *u) {
    for (uint32_t i = 0; i < u->count; i++)
        if (u->param_infos[i].orig_param && u->param_infos[i].orig_param->grad) return;
    if (f->use_orig_params && u->count) tide_release_at(fsdp1_machine(f), &u->local_shard->grad);
}

void tide_fsdp1_lazy_init(fsdp1 *f) {
    if (f->is_lazily_initialized) return;
    f->is_lazily_initialized = true;
    cast_buffers(f);
    init_flat_param_attributes(f, &f->handles[f->count - 1]);
    for (uint32_t i = 0; i < f->count; i++)
        if (f->all_handles[i] + 1 < f->count) init_flat_param_attributes(f, &f->handles[f->all_handles[i]]);
}

void tide_fsdp1_root_pre_forward(tide_wrapper *w) {
    fsdp1 *f = w->state;
    tide_machine *m = w->model->m;
    f->sync_gradients = w->is_last || w->job->parallel_sync_each;
    m->module = 0;
    f->has_order = f->is_lazily_initialized;
    tide_fsdp1_lazy_init(f);
    for (uint32_t i = 0; i < f->count; i++) {
        f->handles[i].prefetched = false;
        f->handles[i].needs_pre_forward_unshard = true; /* not where generate() goes round the root */
        if (w->micro == 0 || !m->state.grad_enabled) tide_fsdp1_reset_grad_info(f, &f->handles[i]);
    }
}

void tide_fsdp1_set_hooks(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    f->w->model->before_forward = fsdp1_pre_forward;
    f->w->model->after_forward = fsdp1_post_forward;
    m->gradient_ready = fsdp1_post_backward_hook;
}
