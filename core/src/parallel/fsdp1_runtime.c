/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_runtime_utils.py: what its hooks do. */
#include "parallel/fsdp1.h"
#include "tensor/ops/ops.h"

const char tide_fsdp1_name[] = "FSDP";

enum { CAST_STREAM = TIDE_STREAM_SIDE, GATHER_STREAM, REDUCE_STREAM, ALL_REDUCE_STREAM };

static tide_tensor *flat_on(const fsdp1 *f, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(fsdp1_machine(f), stream, tide_fsdp1_name, count, dtype, factor);
}

static void alloc_storage(const fsdp1 *f, uint8_t stream, const tide_tensor *t, int64_t count, tide_factor factor) {
    tide_machine *m = fsdp1_machine(f);
    uint32_t outside = m->state.stream;
    m->state.stream = stream;
    m->op = tide_fsdp1_name;
    m->state.factor = factor;
    tide_fill_storage(m, t, count);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->state.stream = outside;
}

/* ---- gathering ---- */

/* _use_unsharded_views. */
static void use_unsharded_views(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    const tide_tensor *data = fsdp1_uses_sharded_strategy(f) ? u->full_param_padded
                              : f->casts                     ? u->mp_shard
                                                             : u->local_shard;
    uint32_t outputs = 2 * u->count + 1;
    m->op = tide_fsdp1_name;
    uint32_t outside = m->state.stream;
    m->state.stream = GATHER_STREAM;
    tide_node *node = m->state.grad_enabled && u->requires_grad
                          ? tide_node_with(m, &tide_split_backward, &u->flat_param, 1, (int)outputs, 0)
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
                (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)f->param_dtype, false};
            if (i)
                node->references++; /* see tide_set_grad_fn: the first output that a tensor has takes over the maker's
                                     */
        }
        tide_set_grad_fn(m, node, p->param);
        if (node && p->padding && !i) node->references--;
    }
    if (node && u->tail) {
        tide_shape shape = tide_shape1((tide_dim){u->tail, 0});
        node->outputs[node->output_count++] =
            (tide_meta){&tide_layout_of(m, &shape, NULL)->shape, (uint8_t)f->param_dtype, false};
    }
}

/* _unshard. */
static void handle_unshard(fsdp1 *f, flat_param_handle *u, bool is_forward) {
    tide_machine *m = fsdp1_machine(f);
    bool needs = fsdp1_uses_sharded_strategy(f) ? !u->is_unsharded : f->casts || f->offload_params;
    if (!u->count) return;
    tide_tensor *upload =
        needs && f->offload_params ? flat_on(f, CAST_STREAM, u->sharded_numel, f->dtype, TIDE_FACTOR_GATHERED) : NULL;
    if (needs && f->casts) {
        alloc_storage(f, CAST_STREAM, u->mp_shard, u->sharded_numel, TIDE_FACTOR_GATHERED);
        tide_release_at(m, &upload);
    }
    if (needs && fsdp1_uses_sharded_strategy(f)) {
        alloc_storage(f, GATHER_STREAM, u->full_param_padded, u->sharded_numel * f->shard_ranks, TIDE_FACTOR_GATHERED);
        if (f->casts) {
            tide_record_stream(m, u->mp_shard, GATHER_STREAM);
            tide_drop_storage(m, u->mp_shard);
        }
        if (upload) tide_record_stream(m, upload, GATHER_STREAM);
    }
    tide_release(m, upload);
    u->is_unsharded = true;
    if (is_forward) use_unsharded_views(f, u);
}

/* _reshard. */
static void handle_reshard(fsdp1 *f, flat_param_handle *u, bool frees) {
    tide_machine *m = fsdp1_machine(f);
    tide_tensor *goes = fsdp1_uses_sharded_strategy(f) ? u->full_param_padded : f->casts ? u->mp_shard : NULL;
    if (goes && u->is_unsharded && (frees || !fsdp1_uses_sharded_strategy(f))) {
        tide_record_stream(m, goes, (uint8_t)m->state.stream);
        tide_drop_storage(m, goes);
        u->is_unsharded = false;
    }
    u->prefetched = false;
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
    if (fsdp1_uses_sharded_strategy(f) && u->local_shard->grad) { /* of an earlier micro-batch, reduced */
        u->saved_grad_shard = u->local_shard->grad;
        u->local_shard->grad = NULL;
    }
    u->ran_pre_backward_hook = true;
}

/* To the parameters' type, and to what there is of earlier micro-batches. */
static tide_tensor *cast_grad_to_param_dtype(fsdp1 *f, tide_tensor *reduced, int64_t count, uint8_t stream) {
    tide_machine *m = fsdp1_machine(f);
    if (f->reduce_dtype == f->dtype) return reduced;
    tide_tensor *wide = flat_on(f, stream, count, f->dtype, TIDE_FACTOR_GRADIENT);
    tide_record_stream(m, reduced, stream);
    tide_release(m, reduced);
    return wide;
}

static void reduce_grad(fsdp1 *f, flat_param_handle *u, tide_tensor *grad) {
    tide_machine *m = fsdp1_machine(f);
    tide_tensor *cast = f->reduce_dtype == f->param_dtype
                            ? tide_retain(grad)
                            : flat_on(f, REDUCE_STREAM, u->unsharded_numel, f->reduce_dtype, TIDE_FACTOR_GRADIENT);
    if (!fsdp1_uses_sharded_strategy(f)) {
        tide_set_factor(m, cast, TIDE_FACTOR_GRADIENT);
        u->saved_grad_shard = cast_grad_to_param_dtype(f, cast, u->unsharded_numel, REDUCE_STREAM);
        return;
    }
    tide_tensor *padded =
        u->sharded_numel * f->shard_ranks > u->unsharded_numel
            ? flat_on(f, REDUCE_STREAM, u->sharded_numel * f->shard_ranks, f->reduce_dtype, TIDE_FACTOR_COMMUNICATION)
            : NULL;
    tide_tensor *part = flat_on(f, REDUCE_STREAM, u->sharded_numel, f->reduce_dtype, TIDE_FACTOR_GRADIENT);
    uint8_t stream = f->is_hsdp ? ALL_REDUCE_STREAM : REDUCE_STREAM;
    if (f->is_hsdp) tide_record_stream(m, part, ALL_REDUCE_STREAM);
    part = cast_grad_to_param_dtype(f, part, u->sharded_numel, stream);
    if (f->offload_params) tide_record_stream(m, part, REDUCE_STREAM);
    if (u->saved_grad_shard)
        tide_release(m, part);
    else
        u->saved_grad_shard = part;
    tide_release(m, cast);
    tide_release(m, padded);
}

/* _post_backward_hook: after AccumulateGrad of the flat parameter. */
static void fsdp1_post_backward_hook(tide_machine *m, tide_tensor *leaf) {
    fsdp1 *f = m->wrapper;
    uint32_t index = 0;
    const char *op = m->op;
    while (index < f->count && f->handles[index].flat_param != leaf) index++;
    if (index == f->count) return;
    flat_param_handle *u = &f->handles[index];
    handle_reshard(f, u,
                   fsdp1_uses_sharded_strategy(f) && (f->sync_gradients || f->sharding_strategy == FSDP_FULL_SHARD));
    if (f->backward_post) prefetch_handle_in_backward(f, u);
    if (f->sync_gradients) {
        tide_tensor *grad = leaf->grad;
        leaf->grad = NULL;
        if (fsdp1_uses_sharded_strategy(f) || f->reduce_dtype != f->param_dtype || f->reduce_dtype != f->dtype)
            tide_record_stream(m, grad, REDUCE_STREAM);
        reduce_grad(f, u, grad);
        tide_release(m, grad);
    }
    m->op = op;
}

/* _post_backward_final_callback. */
void tide_fsdp1_post_backward_final_callback(void *state) {
    fsdp1 *f = state;
    tide_machine *m = fsdp1_machine(f);
    for (uint32_t i = 0; i < f->count; i++) {
        flat_param_handle *u = &f->handles[f->all_handles[i]];
        if (u->is_unsharded && fsdp1_uses_sharded_strategy(f) &&
            (f->sync_gradients || f->sharding_strategy == FSDP_FULL_SHARD))
            handle_reshard(f, u, true);
        u->ran_pre_backward_hook = u->needs_pre_backward_unshard = u->prefetched = false;
        u->post_forward_index = 0;
        if (!f->sync_gradients || !u->saved_grad_shard) continue;
        tide_release_at(m, &u->local_shard->grad);
        if (!f->offload_params) u->local_shard->grad = tide_retain(u->saved_grad_shard);
        for (uint32_t k = 0; k < u->count && f->use_orig_params; k++) {
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

static void fsdp1_pre_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                              tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    fsdp1 *f = m->wrapper;
    uint32_t index = f->handle_of[instance];
    if (!index--) return;
    flat_param_handle *u = &f->handles[index];
    if (index + 1 == f->count && f->casts) {
        for (uint32_t i = 0; i < count; i++) cast_forward_input(m, &positional[i], f->param_dtype);
        for (uint32_t i = 0; i < named_count; i++) cast_forward_input(m, &named[i], f->param_dtype);
    }
    if (!u->count) return;
    if (!f->has_order && !u->pre_forward_order_index) {
        f->pre_forward_order[f->pre_forward_count++] = index;
        u->pre_forward_order_index = f->pre_forward_count;
    }
    if (!u->prefetched) handle_unshard(f, u, true);
    if (!f->forward_prefetch || u->pre_forward_order_index >= f->pre_forward_count) return;
    flat_param_handle *next = &f->handles[f->pre_forward_order[u->pre_forward_order_index]];
    if (next->prefetched) return;
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
    if (!index--) return;
    flat_param_handle *u = &f->handles[index];
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (u->count) {
        if (!u->post_forward_index && f->post_forward_count < f->count) {
            f->post_forward_order[f->post_forward_count++] = index;
            u->post_forward_index = f->post_forward_count;
        }
        handle_reshard(f, u, f->sharding_strategy == FSDP_FULL_SHARD && index + 1 < f->count);
        u->needs_pre_backward_unshard = u->ran_pre_backward_hook = false;
    }
    for (uint32_t i = 0; i < count && model->m->state.grad_enabled; i++)
        register_pre_backward_hooks(f, index, &items[i]);
}

/* _lazy_init: storages are made and resized to nothing. */
static void init_flat_param_attributes(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    if (!u->count) return;
    if (f->casts)
        tide_drop_storage(
            m, u->mp_shard = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, f->param_dtype, TIDE_FACTOR_GATHERED));
    if (fsdp1_uses_sharded_strategy(f)) {
        tide_drop_storage(m, u->full_param_padded = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel * f->shard_ranks,
                                                                 f->param_dtype, TIDE_FACTOR_GATHERED));
        if (f->casts)
            tide_release(
                m, tide_flat_of(m, tide_fsdp1_name, u->sharded_numel * f->shard_ranks, f->dtype, TIDE_FACTOR_GATHERED));
    }
    tide_shape shape = tide_shape1((tide_dim){u->unsharded_numel, 0});
    u->flat_param = tide_view_as(m,
                                 fsdp1_uses_sharded_strategy(f) ? u->full_param_padded
                                 : f->casts                     ? u->mp_shard
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
    tide_dtype dtype = tide_dtype_or(f->w->job->parallel_buffer_dtype, TIDE_DTYPE_COUNT);
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

void tide_fsdp1_before_forward(tide_wrapper *w) {
    fsdp1 *f = w->state;
    tide_machine *m = w->model->m;
    f->sync_gradients = w->is_last || w->job->parallel_sync_each;
    m->module = 0;
    if (!f->is_lazily_initialized) {
        cast_buffers(f);
        init_flat_param_attributes(f, &f->handles[f->count - 1]);
        for (uint32_t i = 0; i < f->count; i++)
            if (f->all_handles[i] + 1 < f->count) init_flat_param_attributes(f, &f->handles[f->all_handles[i]]);
    }
    f->has_order = f->is_lazily_initialized;
    f->is_lazily_initialized = true;
    for (uint32_t i = 0; i < f->count; i++) {
        flat_param_handle *u = &f->handles[i];
        u->prefetched = false;
        bool is_none = true; /* _reset_flat_param_grad_info_if_needed */
        for (uint32_t k = 0; k < u->count; k++)
            is_none = is_none && !(u->param_infos[k].orig_param && u->param_infos[k].orig_param->grad);
        if (f->use_orig_params && is_none && w->micro == 0) tide_release_at(m, &u->local_shard->grad);
    }
}

void tide_fsdp1_set_hooks(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    f->w->model->before_forward = fsdp1_pre_forward;
    f->w->model->after_forward = fsdp1_post_forward;
    m->gradient_ready = fsdp1_post_backward_hook;
}
