/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, casts, and in-place changes of what a tensor is: aten/src/ATen/native/TensorFactories.cpp (clone),
 * TensorConversions.cpp; torch/csrc/autograd/functions/tensor.cpp (CopySlices). */
#include "tensor/ops/ops.h"

void tide_pass_grad(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    (void)node;
    results[0] = tide_retain(grads[0]);
}
static const tide_backward clone_backward = {"CloneBackward0", tide_pass_grad};

tide_tensor *tide_clone(tide_machine *m, tide_tensor *x) {
    tide_node *node = tide_node_new(m, &clone_backward, &x, 1);
    return tide_set_grad_fn(m, node, tide_empty_like(m, x, x->dtype));
}

tide_tensor *tide_clone_contiguous(tide_machine *m, tide_tensor *x) {
    tide_node *node = tide_node_new(m, &clone_backward, &x, 1);
    return tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
}

tide_tensor *tide_contiguous(tide_machine *m, tide_tensor *x) {
    return tide_is_contiguous(x) ? tide_retain(x) : tide_clone_contiguous(m, x);
}

static void to_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_to(m, grads[0], node->extra.dtype);
}
static const tide_backward to_backward = {"ToCopyBackward0", to_run};

static tide_node *to_node(tide_machine *m, tide_tensor *x, tide_dtype dtype) {
    tide_node *node = NULL;
    if (tide_dtype_is_float(dtype)) node = tide_node_new(m, &to_backward, &x, 1);
    if (node) node->extra.dtype = x->dtype;
    return node;
}

tide_tensor *tide_to(tide_machine *m, tide_tensor *x, tide_dtype dtype) {
    if (x->dtype == dtype) return tide_retain(x);
    tide_node *node = to_node(m, x, dtype);
    return tide_set_grad_fn(m, node, tide_empty_like(m, x, dtype));
}

static void copy_slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    int64_t stride[TIDE_MAX_DIMS];
    tide_contiguous_strides(grads[0]->shape, stride);
    tide_tensor *base = tide_empty_strided(m, grads[0]->shape, stride, grads[0]->dtype);
    tide_tensor *slice = tide_empty(m, node->extra.shape, grads[0]->dtype), *zeros = NULL;
    if (tide_needs_input_grad(node, 0)) {
        zeros = tide_empty(m, node->extra.shape, grads[0]->dtype); /* for the overwritten values */
        results[0] = tide_retain(base);
    }
    if (tide_needs_input_grad(node, 1)) results[1] = tide_to(m, slice, node->extra.dtype);
    tide_release(m, slice);
    tide_release(m, zeros);
    tide_release(m, base);
}
static const tide_backward copy_slice_backward = {"CopySlices", copy_slice_run};

/* x with source written to a slice of it, which is released. */
static tide_value written(tide_machine *m, const tide_backward *backward, tide_tensor *x, tide_tensor *slice,
                          tide_tensor *source) {
    tide_tensor *both[2] = {x, source};
    tide_node *node = tide_node_new(m, backward, both, 2);
    if (node) node->extra = (tide_meta){slice->shape, source->dtype, false};
    tide_tensor *t = tide_alias(m, x);
    tide_release(m, slice);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

static tide_value written_slice(tide_machine *m, const tide_backward *backward, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *slice = tide_slice(m, x, tide_arg_int(m, a[1]), (tide_dim){tide_arg_int(m, a[2]), a[2].symbol},
                                    (tide_dim){tide_arg_int(m, a[3]), a[3].symbol});
    m->state.grad_enabled = grad_enabled;
    return written(m, backward, x, slice, tide_arg_tensor(m, a[4]));
}

/* x[start:stop] = source along a dimension. */
static tide_value op_copy_slice(tide_machine *m, tide_value *a) {
    return written_slice(m, &copy_slice_backward, a);
}

/* x[..., row, :stop] = source. */
static tide_value op_copy_row(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *row = tide_select(m, x, -2, tide_arg_int(m, a[1]));
    tide_tensor *slice = tide_slice(m, row, -1, (tide_dim){0, 0}, (tide_dim){tide_arg_int(m, a[2]), a[2].symbol});
    tide_release(m, row);
    m->state.grad_enabled = grad_enabled;
    return written(m, &copy_slice_backward, x, slice, tide_arg_tensor(m, a[3]));
}

/* CopySlices over AddBackward0: the gradient of what was added is the clone of the slice. */
static void add_slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *base = tide_empty_like(m, grads[0], grads[0]->dtype);
    tide_tensor *slice = tide_empty(m, node->extra.shape, grads[0]->dtype);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(base);
    if (tide_needs_input_grad(node, 1)) results[1] = tide_retain(slice);
    tide_release(m, slice);
    tide_release(m, base);
}
static const tide_backward add_slice_backward = {"CopySlices", add_slice_run};

/* x[start:stop] += source along a dimension. */
static tide_value op_add_slice(tide_machine *m, tide_value *a) {
    return written_slice(m, &add_slice_backward, a);
}

/* CopySlices for a view that covers its base, whose strides its gradient has: over MulBackward0 if a factor is saved,
 * else over AddBackward0. */
static void write_view_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_layout *view = node->of.written.view;
    tide_tensor *base = tide_empty_laid_out(m, view, grads[0]->dtype),
                *slice = tide_empty(m, &view->shape, grads[0]->dtype);
    if (node->saved_count) {
        tide_tensor *factor = tide_saved_at(m, node, 0), *both[2] = {slice, factor};
        tide_release(m, tide_elementwise(m, both, 2, slice->dtype));
        tide_release(m, factor);
    } else if (tide_needs_input_grad(node, 1)) {
        results[1] = tide_retain(slice);
    }
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(base);
    tide_release(m, slice);
    tide_release(m, base);
}
static const tide_backward write_view_backward = {"CopySlices", write_view_run};

/* derivatives.yaml, as_strided: the gradient is copied into zeros of the base. */
static void strided_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty_laid_out(m, node->of.written.view, grads[0]->dtype);
}
static const tide_backward strided_backward = {"AsStridedBackward0", strided_run};

bool tide_is_tracked_view(const tide_tensor *x) {
    return x->is_view && x->requires_grad && !x->is_leaf;
}

tide_tensor *tide_write_to_view(tide_machine *m, tide_tensor *view, tide_tensor *added, tide_tensor *factor) {
    tide_tensor *both[2] = {view, added};
    tide_node *node = tide_node_new(m, &write_view_backward, both, added ? 2 : 1);
    tide_tensor *written = tide_alias(m, view);
    if (!node) return written;
    node->of.written.view = view->layout;
    if (factor) tide_save(m, node, factor);
    tide_set_grad_fn(m, node, written);
    node = tide_node_new(m, &strided_backward, &written, 1);
    node->of.written.view = view->layout;
    tide_tensor *again = tide_set_grad_fn(m, node, tide_alias(m, written));
    tide_release(m, written);
    return again;
}

static tide_value op_contiguous(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_contiguous(m, tide_arg_tensor(m, a[0])));
}

static tide_value op_clone(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_clone(m, tide_arg_tensor(m, a[0])));
}

static tide_value op_detach(tide_machine *m, tide_value *a) {
    tide_tensor *t = tide_alias(m, tide_arg_tensor(m, a[0]));
    t->is_view = false; /* it does not keep its base */
    return tide_of_tensor(t);
}

/* Makes a leaf require gradients. */
static tide_value op_requires_grad(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (m->state.grad_enabled || x->is_leaf) x->requires_grad = true;
    return tide_of_tensor(tide_retain(x));
}

/* tensor.data = value: the tensor keeps its identity and takes over another one's storage, shape and dtype. */
static tide_value op_set_data(tide_machine *m, tide_value *a) {
    tide_tensor *t = tide_arg_tensor(m, a[0]), *value = tide_alias(m, tide_arg_tensor(m, a[1]));
    tide_storage *old = t->storage;
    bool is_buffer =
        !old->is_untracked && tide_timeline_at(&m->timeline, old->allocation)->factor == TIDE_FACTOR_BUFFER;
    t->storage = value->storage;
    value->storage = old;
    t->dtype = value->dtype;
    t->layout = value->layout;
    t->shape = value->shape;
    t->stride = value->stride;
    if (t->is_parameter && !m->timeline.mark_count)
        tide_set_factor(m, value, TIDE_FACTOR_TEMPORARY); /* made while loading */
    tide_release(m, value);
    if (t->is_parameter) tide_set_factor(m, t, TIDE_FACTOR_PARAMETER);
    if (is_buffer) tide_set_factor(m, t, TIDE_FACTOR_BUFFER);
    return tide_none();
}

static tide_value op_to(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (a[1].kind != TIDE_VALUE_DTYPE) {
        tide_fail(m, TIDE_ERR_SHAPE, "to takes a dtype");
        return tide_none();
    }
    return tide_of_tensor(tide_to(m, x, a[1].dtype));
}

/* to(dtype, memory_format=torch.contiguous_format): x itself if it has that dtype, whatever its strides. */
static tide_value op_to_contiguous(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (a[1].kind != TIDE_VALUE_DTYPE || x->dtype == a[1].dtype) return op_to(m, a);
    tide_node *node = to_node(m, x, a[1].dtype);
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, x->shape, a[1].dtype)));
}

static tide_value op_float(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_to(m, tide_arg_tensor(m, a[0]), TIDE_FP32));
}

/* torch.amp.autocast_mode._cast: to the autocast dtype, bypassing the weight cache. */
static tide_value op_autocast_cast(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool is_cast = m->state.autocast_enabled && tide_dtype_is_float(x->dtype) && x->dtype != TIDE_FP64;
    return tide_of_tensor(tide_to(m, x, is_cast ? m->state.autocast_dtype : x->dtype));
}

static const tide_op copy_ops[] = {
    {"copy_slice_", "x, dim, start, stop, source", TIDE_CAST_NONE, op_copy_slice},
    {"copy_row_", "x, row, stop, source", TIDE_CAST_NONE, op_copy_row},
    {"add_slice_", "x, dim, start, stop, source", TIDE_CAST_NONE, op_add_slice},
    {"contiguous", "x", TIDE_CAST_NONE, op_contiguous},
    {"clone", "x", TIDE_CAST_NONE, op_clone},
    {"detach", "x", TIDE_CAST_NONE, op_detach},
    {"requires_grad_", "x", TIDE_CAST_NONE, op_requires_grad},
    {"set_data", "x, value", TIDE_CAST_NONE, op_set_data},
    {"to", "x, dtype", TIDE_CAST_NONE, op_to},
    {"to_contiguous", "x, dtype", TIDE_CAST_NONE, op_to_contiguous},
    {"float", "x", TIDE_CAST_NONE, op_float},
    {"autocast_cast", "x", TIDE_CAST_NONE, op_autocast_cast},
};
TIDE_OP_TABLE(copy)
