/* Views, copies between layouts and dtypes, cat, split: aten/src/ATen/native/TensorShape.cpp, TensorConversions.cpp.
 * Views share storage and save nothing (derivatives.yaml replaces sizes() and options() by metadata). */
#include "tensor/ops/ops.h"

#include <string.h>

#include "base/checked.h"
#include "base/units.h"

/* ---- view geometry ---- */

/* aten/src/ATen/TensorUtils.cpp: computeStride. False if no view has that shape. */
static bool view_strides(const tide_tensor *x, const tide_shape *shape, int64_t *stride) {
    if (tide_count(x) == 0) {
        tide_contiguous_strides(shape, stride);
        return true;
    }
    int at = shape->dims - 1;
    if (x->shape->dims == 0) {
        for (int i = 0; i < shape->dims; i++) stride[i] = 1;
        return true;
    }
    int64_t chunk_stride = x->stride[x->shape->dims - 1], tensor_count = 1, view_count = 1;
    for (int i = x->shape->dims - 1; i >= 0; i--) {
        tensor_count *= x->shape->dim[i].size;
        bool chunk_ends = i == 0 || (x->shape->dim[i - 1].size != 1 && x->stride[i - 1] != tensor_count * chunk_stride);
        if (!chunk_ends) continue;
        while (at >= 0 && (view_count < tensor_count || shape->dim[at].size == 1)) {
            stride[at] = view_count * chunk_stride;
            view_count *= shape->dim[at].size;
            at--;
        }
        if (view_count != tensor_count) return false;
        if (i > 0) {
            chunk_stride = x->stride[i - 1];
            tensor_count = view_count = 1;
        }
    }
    return at == -1;
}

static tide_tensor *view_over(tide_machine *m, tide_tensor *x, const tide_shape *shape, const int64_t *stride,
                              int64_t offset) {
    tide_layout *layout = tide_layout_of(m, shape, stride);
    if (layout->count > INT64_C(1) << 60) {
        tide_fail(m, TIDE_ERR_OVERFLOW, "%s: a view of %s has more than 2^60 elements", m->op,
                  tide_shape_text(m, shape));
        return tide_alias(m, x);
    }
    tide_tensor *t = tide_view_as(m, x, layout);
    t->offset += offset;
    return t;
}

/* ---- view, reshape ---- */

static void view_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_reshape(m, grads[0], node->extra.shape);
}
static const tide_backward view_backward = {"ViewBackward0", view_run};
static const tide_backward unsafe_view_backward = {"UnsafeViewBackward0", view_run};

static tide_tensor *made_view(tide_machine *m, const tide_backward *backward, tide_tensor *x, tide_tensor *t) {
    tide_node *node = backward ? tide_node_new(m, backward, &x, 1) : NULL;
    if (node) node->extra.shape = x->shape;
    return tide_set_grad_fn(m, node, t);
}

tide_tensor *tide_view(tide_machine *m, tide_tensor *x, const tide_shape *shape) {
    int64_t stride[TIDE_MAX_DIMS];
    if (tide_count_of(shape) != tide_count(x)) {
        tide_fail(m, TIDE_ERR_SHAPE, "%s: %s does not hold as many elements as %s", m->op, tide_shape_text(m, x->shape),
                  tide_shape_text(m, shape));
        return tide_empty_host(m, shape, x->dtype);
    }
    if (!view_strides(x, shape, stride)) {
        tide_fail(m, TIDE_ERR_SHAPE, "view: %s is not contiguous enough for %s; use reshape",
                  tide_shape_text(m, x->shape), tide_shape_text(m, shape));
        return tide_empty_host(m, shape, x->dtype);
    }
    return made_view(m, &view_backward, x, view_over(m, x, shape, stride, 0));
}

static void clone_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    (void)node;
    results[0] = tide_retain(grads[0]);
}
static const tide_backward clone_backward = {"CloneBackward0", clone_run};

tide_tensor *tide_clone(tide_machine *m, tide_tensor *x) {
    tide_node *node = tide_node_new(m, &clone_backward, &x, 1);
    return tide_set_grad_fn(m, node, tide_empty_like(m, x, x->dtype));
}

static tide_tensor *clone_contiguous(tide_machine *m, tide_tensor *x) {
    tide_node *node = tide_node_new(m, &clone_backward, &x, 1);
    return tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
}

tide_tensor *tide_contiguous(tide_machine *m, tide_tensor *x) {
    return tide_is_contiguous(x) ? tide_retain(x) : clone_contiguous(m, x);
}

tide_tensor *tide_reshape(tide_machine *m, tide_tensor *x, const tide_shape *shape) {
    int64_t stride[TIDE_MAX_DIMS];
    if (tide_count_of(shape) != tide_count(x) || view_strides(x, shape, stride)) return tide_view(m, x, shape);
    tide_tensor *copy = clone_contiguous(m, x);
    view_strides(copy, shape, stride);
    tide_tensor *t = made_view(m, &unsafe_view_backward, copy, view_over(m, copy, shape, stride, 0));
    t->is_view = false; /* _unsafe_view keeps no base */
    tide_release(m, copy);
    return t;
}

/* ---- dtype ---- */

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

/* ---- transpose, permute, expand, squeeze ---- */

static void permute_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    int64_t inverse[TIDE_MAX_DIMS];
    for (int i = 0; i < grads[0]->shape->dims; i++) inverse[node->of.permute.from[i]] = i;
    results[0] = tide_permute(m, grads[0], inverse);
}
static const tide_backward permute_backward = {"PermuteBackward0", permute_run};

tide_tensor *tide_permute(tide_machine *m, tide_tensor *x, const int64_t *order) {
    tide_shape shape = *x->shape;
    int64_t stride[TIDE_MAX_DIMS];
    tide_node *node = tide_node_new(m, &permute_backward, &x, 1);
    for (int i = 0; i < shape.dims; i++) {
        shape.dim[i] = x->shape->dim[order[i]];
        stride[i] = x->stride[order[i]];
        if (node) node->of.permute.from[i] = (uint8_t)order[i];
    }
    return tide_set_grad_fn(m, node, view_over(m, x, &shape, stride, 0));
}

tide_tensor *tide_transpose(tide_machine *m, tide_tensor *x, int64_t dim0, int64_t dim1) {
    int64_t order[TIDE_MAX_DIMS];
    for (int i = 0; i < x->shape->dims; i++) order[i] = i;
    if (x->shape->dims) {
        int a = tide_wrap_dim(m, dim0, x->shape->dims), b = tide_wrap_dim(m, dim1, x->shape->dims);
        order[a] = b;
        order[b] = a;
    }
    return tide_permute(m, x, order);
}

static void expand_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_sum_to(m, tide_retain(grads[0]), node->extra.shape);
}
static const tide_backward expand_backward = {"ExpandBackward0", expand_run};

tide_tensor *tide_expand(tide_machine *m, tide_tensor *x, const tide_shape *wanted) {
    tide_shape shape = *wanted;
    int64_t stride[TIDE_MAX_DIMS];
    int lead = shape.dims - x->shape->dims;
    if (lead < 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "expand: %s to fewer dimensions", tide_shape_text(m, x->shape));
        return tide_retain(x);
    }
    for (int i = 0; i < shape.dims; i++) {
        if (i < lead) {
            stride[i] = 0;
            continue;
        }
        int64_t size = x->shape->dim[i - lead].size;
        if (shape.dim[i].size == -1 || shape.dim[i].size == size) {
            shape.dim[i].size = size;
            if (!shape.dim[i].name) shape.dim[i].name = x->shape->dim[i - lead].name;
            stride[i] = x->stride[i - lead];
        } else if (size == 1) {
            stride[i] = 0;
        } else {
            tide_fail(m, TIDE_ERR_SHAPE, "expand: %s does not expand to %s", tide_shape_text(m, x->shape),
                      tide_shape_text(m, &shape));
            return tide_retain(x);
        }
    }
    return made_view(m, &expand_backward, x, view_over(m, x, &shape, stride, 0));
}

tide_tensor *tide_unsqueeze(tide_machine *m, tide_tensor *x, int64_t dim) {
    if (x->shape->dims == TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d dimensions", TIDE_MAX_DIMS);
        return tide_retain(x);
    }
    int at = tide_wrap_dim(m, dim, x->shape->dims + 1);
    tide_shape shape = {.dims = x->shape->dims + 1};
    int64_t stride[TIDE_MAX_DIMS];
    for (int i = 0; i < shape.dims; i++) {
        int from = i < at ? i : i - 1;
        if (i == at) {
            shape.dim[i].size = 1;
            stride[i] = at < x->shape->dims ? x->shape->dim[at].size * x->stride[at] : 1;
            continue;
        }
        shape.dim[i] = x->shape->dim[from];
        stride[i] = x->stride[from];
    }
    return made_view(m, &view_backward, x, view_over(m, x, &shape, stride, 0));
}

tide_tensor *tide_squeeze(tide_machine *m, tide_tensor *x, int64_t dim) {
    int at = tide_wrap_dim(m, dim, x->shape->dims);
    tide_shape shape = {.dims = 0};
    int64_t stride[TIDE_MAX_DIMS];
    for (int i = 0; i < x->shape->dims; i++) {
        if (i == at && x->shape->dim[i].size == 1) continue;
        shape.dim[shape.dims] = x->shape->dim[i];
        stride[shape.dims++] = x->stride[i];
    }
    return made_view(m, &view_backward, x, view_over(m, x, &shape, stride, 0));
}

/* ---- slice, select: their gradient is a zero tensor of the whole input ---- */

static void slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
}
static const tide_backward slice_backward = {"SliceBackward0", slice_run};
static const tide_backward select_backward = {"SelectBackward0", slice_run};
static const tide_backward alias_backward = {"AliasBackward0", clone_run};

tide_tensor *tide_slice(tide_machine *m, tide_tensor *x, int64_t dim, tide_dim start, tide_dim stop) {
    int at = tide_wrap_dim(m, dim, x->shape->dims);
    if (x->shape->dims == 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "slice of a scalar");
        return tide_retain(x);
    }
    int64_t size = x->shape->dim[at].size, from = start.size < 0 ? start.size + size : start.size,
            to = stop.size < 0 ? stop.size + size : stop.size;
    from = from < 0 ? 0 : from > size ? size : from;
    to = to < from ? from : to > size ? size : to;
    tide_shape shape = *x->shape;
    if (from == 0 && to == size && start.size >= 0) /* a full range is an alias; counted from the end it is a slice */
        return tide_set_grad_fn(m, tide_node_new(m, &alias_backward, &x, 1), view_over(m, x, &shape, x->stride, 0));
    tide_value high = {
        .kind = TIDE_VALUE_INT, .symbol = stop.size < 0 || to == size ? shape.dim[at].name : stop.name, .integer = to};
    tide_value low = {.kind = TIDE_VALUE_INT, .symbol = start.name, .integer = from};
    if (stop.size < 0)
        high =
            (tide_value){.kind = TIDE_VALUE_INT,
                         .symbol = tide_symbol_of(m, '-', (tide_value){.symbol = shape.dim[at].name, .integer = size},
                                                  tide_of_int(-stop.size)),
                         .integer = to};
    shape.dim[at].size = to - from;
    shape.dim[at].name = tide_symbol_of(m, '-', high, low);
    return made_view(m, &slice_backward, x, view_over(m, x, &shape, x->stride, from * x->stride[at]));
}

tide_tensor *tide_every(tide_machine *m, tide_tensor *x, int64_t dim, int64_t start, int64_t step) {
    int at = tide_wrap_dim(m, dim, x->shape->dims);
    if (x->shape->dims == 0 || step < 1 || start < 0 || start > x->shape->dim[at].size) {
        tide_fail(m, TIDE_ERR_SHAPE, "every %lld-th from %lld of %s", (long long)step, (long long)start,
                  tide_shape_text(m, x->shape));
        return tide_retain(x);
    }
    tide_shape shape = *x->shape;
    int64_t stride[TIDE_MAX_DIMS];
    memcpy(stride, x->stride, sizeof stride[0] * (size_t)shape.dims);
    shape.dim[at].size = TIDE_CEIL_DIV(x->shape->dim[at].size - start, step);
    shape.dim[at].name = tide_symbol_of(
        m, '/', (tide_value){.symbol = x->shape->dim[at].name, .integer = x->shape->dim[at].size}, tide_of_int(step));
    stride[at] *= step;
    return made_view(m, &slice_backward, x, view_over(m, x, &shape, stride, start * x->stride[at]));
}

/* Tensor.unfold: windows of one dimension as another at the end, a view; its gradient is not described. */
static tide_value op_unfold(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int at = tide_wrap_dim(m, tide_arg_int(m, a[1]), x->shape->dims);
    int64_t size = tide_arg_int(m, a[2]), step = tide_arg_int(m, a[3]), stride[TIDE_MAX_DIMS];
    tide_shape shape = *x->shape;
    if (x->requires_grad || !shape.dims || shape.dims == TIDE_MAX_DIMS || size < 1 || step < 1 ||
        size > shape.dim[at].size) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "unfold: windows of %lld in %s, without gradient", (long long)size,
                  tide_shape_text(m, &shape));
        return tide_none();
    }
    memcpy(stride, x->stride, sizeof stride[0] * (size_t)shape.dims);
    shape.dim[at].size = (shape.dim[at].size - size) / step + 1;
    shape.dim[at].name =
        tide_symbol_of(m, '/', (tide_value){.symbol = x->shape->dim[at].name, .integer = x->shape->dim[at].size}, a[3]);
    stride[at] *= step;
    shape.dim[shape.dims].size = size;
    shape.dim[shape.dims].name = a[2].symbol;
    stride[shape.dims++] = x->stride[at];
    return tide_of_tensor(view_over(m, x, &shape, stride, 0));
}

/* ---- complex numbers are views of pairs ---- */

static tide_tensor *pairs(tide_machine *m, tide_tensor *x, const tide_backward *backward, bool is_complex) {
    tide_shape shape = *x->shape;
    int64_t stride[TIDE_MAX_DIMS];
    int last = shape.dims - 1;
    if (is_complex ? last < 0 || x->dtype != TIDE_FP32 || shape.dim[last].size != 2 || x->stride[last] != 1
                   : shape.dims == TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_SHAPE, "%s: %s", m->op, tide_shape_text(m, &shape));
        return tide_retain(x);
    }
    for (int i = 0; i < shape.dims; i++) stride[i] = is_complex ? x->stride[i] / 2 : x->stride[i] * 2;
    shape.dims += is_complex ? -1 : 1;
    if (!is_complex) shape.dim[shape.dims - 1].size = 2, shape.dim[shape.dims - 1].name = 0, stride[shape.dims - 1] = 1;
    tide_tensor *t = view_over(m, x, &shape, stride, 0);
    t->dtype = is_complex ? TIDE_COMPLEX64 : TIDE_FP32;
    return made_view(m, backward, x, t);
}

static void view_as_complex_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)node;
    results[0] = pairs(m, grads[0], NULL, false);
}
static const tide_backward view_as_complex_backward = {"ViewAsComplexBackward0", view_as_complex_run};

static void view_as_real_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)node;
    tide_tensor *g = tide_contiguous(m, grads[0]);
    results[0] = pairs(m, g, NULL, true);
    tide_release(m, g);
}
static const tide_backward view_as_real_backward = {"ViewAsRealBackward0", view_as_real_run};

static tide_value op_view_as_complex(tide_machine *m, tide_value *a) {
    return tide_of_tensor(pairs(m, tide_arg_tensor(m, a[0]), &view_as_complex_backward, true));
}

static tide_value op_view_as_real(tide_machine *m, tide_value *a) {
    return tide_of_tensor(pairs(m, tide_arg_tensor(m, a[0]), &view_as_real_backward, false));
}

/* ---- x[..., start:stop] = source, of one dimension: torch/csrc/autograd/functions/tensor.cpp, CopySlices ---- */

static void copy_slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    int64_t stride[TIDE_MAX_DIMS];
    tide_contiguous_strides(grads[0]->shape, stride);
    tide_tensor *base = tide_empty_strided(m, grads[0]->shape, stride, grads[0]->dtype);
    tide_tensor *slice = tide_empty(m, node->extra.shape, grads[0]->dtype), *zeros = NULL;
    if (tide_needs_input_grad(node, 0)) {
        zeros = tide_empty(m, node->extra.shape, grads[0]->dtype); /* for what was there before */
        results[0] = tide_retain(base);
    }
    if (tide_needs_input_grad(node, 1)) results[1] = tide_to(m, slice, node->extra.dtype);
    tide_release(m, slice);
    tide_release(m, zeros);
    tide_release(m, base);
}
static const tide_backward copy_slice_backward = {"CopySlices", copy_slice_run};

static tide_value op_copy_slice(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[4])};
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *slice = tide_slice(m, both[0], tide_arg_int(m, a[1]), (tide_dim){tide_arg_int(m, a[2]), a[2].symbol},
                                    (tide_dim){tide_arg_int(m, a[3]), a[3].symbol});
    m->state.grad_enabled = grad_enabled;
    tide_node *node = tide_node_new(m, &copy_slice_backward, both, 2);
    if (node) node->extra = (tide_meta){slice->shape, both[1]->dtype};
    tide_tensor *t = tide_alias(m, both[0]);
    tide_release(m, slice);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

/* The shape and strides of x without one dimension. */
static tide_shape without(const tide_tensor *x, int dim, int64_t *stride) {
    tide_shape shape = {.dims = 0};
    for (int d = 0; d < x->shape->dims; d++) {
        if (d == dim) continue;
        shape.dim[shape.dims] = x->shape->dim[d];
        stride[shape.dims++] = x->stride[d];
    }
    return shape;
}

tide_tensor *tide_select(tide_machine *m, tide_tensor *x, int64_t dim, int64_t index) {
    if (x->shape->dims == 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "select from a scalar");
        return tide_retain(x);
    }
    int at = tide_wrap_dim(m, dim, x->shape->dims);
    int64_t i = index < 0 ? index + x->shape->dim[at].size : index;
    if (i < 0 || i >= x->shape->dim[at].size) {
        tide_fail(m, TIDE_ERR_SHAPE, "index %lld into a dimension of %lld", (long long)index,
                  (long long)x->shape->dim[at].size);
        i = 0;
    }
    int64_t stride[TIDE_MAX_DIMS];
    tide_shape shape = without(x, at, stride);
    return made_view(m, &select_backward, x, view_over(m, x, &shape, stride, i * x->stride[at]));
}

/* ---- cat, stack ---- */

static void cat_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    /* Narrow views. Where each begins does not matter here: views allocate nothing. */
    int dim = node->of.along.dim;
    for (unsigned i = 0; i < node->edge_count; i++) {
        if (!node->edges[i].node) continue;
        int64_t size = node->edges[i].node->outputs[node->edges[i].input].shape->dim[dim].size;
        results[i] = tide_slice(m, grads[0], dim, (tide_dim){0, 0}, (tide_dim){size, 0});
    }
}
static const tide_backward cat_backward = {"CatBackward0", cat_run};

enum { CAT_LIMIT = 16384 };

tide_tensor *tide_cat(tide_machine *m, tide_tensor **parts, int count, int64_t dim) {
    tide_tensor *model = NULL; /* the first that is not a legacy empty tensor */
    for (int i = 0; i < count && !model; i++)
        if (parts[i]->shape->dims != 1 || parts[i]->shape->dim[0].size != 0) model = parts[i];
    if (!model || count > CAT_LIMIT) {
        tide_fail(m, TIDE_ERR_SHAPE, "cat of %d tensors", count);
        tide_shape nothing = tide_shape1((tide_dim){0, 0});
        return model ? tide_retain(model) : tide_empty_host(m, &nothing, TIDE_FP32);
    }
    int at = tide_wrap_dim(m, dim, model->shape->dims);
    tide_shape shape = *model->shape;
    tide_value total = {.kind = TIDE_VALUE_INT};
    tide_dtype dtype = model->dtype;
    bool is_first = true;
    for (int i = 0; i < count; i++) { /* an empty tensor counts for the dtype alone */
        dtype = tide_promote(&(tide_tensor){.dtype = (uint8_t)dtype, .shape = model->shape}, parts[i]);
        if (parts[i]->shape->dims == 1 && parts[i]->shape->dim[0].size == 0 && model->shape->dims != 1) continue;
        for (int d = 0; d < shape.dims; d++) {
            if (parts[i]->shape->dims == shape.dims && (d == at || parts[i]->shape->dim[d].size == shape.dim[d].size))
                continue;
            tide_fail(m, TIDE_ERR_SHAPE, "cat: %s and %s differ beside dimension %d", tide_shape_text(m, model->shape),
                      tide_shape_text(m, parts[i]->shape), at);
            return tide_retain(model);
        }
        tide_value part = {
            .kind = TIDE_VALUE_INT, .symbol = parts[i]->shape->dim[at].name, .integer = parts[i]->shape->dim[at].size};
        if (is_first)
            total.symbol = part.symbol;
        else
            total.symbol = tide_symbol_of(m, '+', total, part);
        total.integer += part.integer;
        is_first = false;
    }
    shape.dim[at].size = total.integer;
    shape.dim[at].name = total.symbol;
    tide_node *node = tide_node_new(m, &cat_backward, parts, count);
    if (node) node->of.along.dim = at;
    return tide_set_grad_fn(m, node, tide_empty(m, &shape, dtype));
}

static tide_value op_cat(tide_machine *m, tide_value *a) {
    if (a[0].kind != TIDE_VALUE_LIST || a[0].list->count == 0 || a[0].list->count > CAT_LIMIT) {
        tide_fail(m, TIDE_ERR_SHAPE, "cat takes a list of 1 to %d tensors", CAT_LIMIT);
        return tide_none();
    }
    tide_tensor **parts = tide_pool_alloc(m, a[0].list->count * sizeof *parts);
    for (uint32_t i = 0; i < a[0].list->count; i++) parts[i] = tide_arg_tensor(m, a[0].list->items[i]);
    tide_value made =
        m->has_failed ? tide_none() : tide_of_tensor(tide_cat(m, parts, (int)a[0].list->count, tide_arg_int(m, a[1])));
    tide_pool_free(m, parts, a[0].list->count * sizeof *parts);
    return made;
}

/* torch.stack: one copy; its gradient is views, made by one node (grad.unbind). */
static void stack_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    for (unsigned i = 0; i < node->edge_count; i++)
        if (node->edges[i].node) results[i] = tide_select(m, grads[0], node->of.along.dim, i);
}
static const tide_backward stack_backward = {"StackBackward0", stack_run};

static tide_value op_stack(tide_machine *m, tide_value *a) {
    if (a[0].kind != TIDE_VALUE_LIST || a[0].list->count == 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "stack takes a list of tensors");
        return tide_none();
    }
    int count = a[0].list->count <= CAT_LIMIT ? (int)a[0].list->count : 0;
    tide_tensor **parts = tide_pool_alloc(m, (size_t)(count + 1) * sizeof *parts);
    for (int i = 0; i < count; i++) parts[i] = tide_arg_tensor(m, a[0].list->items[i]);
    tide_node *node = count && !m->has_failed ? tide_node_new(m, &stack_backward, parts, count) : NULL;
    if (node) node->of.along.dim = tide_wrap_dim(m, tide_arg_int(m, a[1]), parts[0]->shape->dims + 1);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (int i = 0; i < count; i++)
        tide_list_push(m, list.list, tide_of_tensor(tide_unsqueeze(m, parts[i], tide_arg_int(m, a[1]))));
    tide_pool_free(m, parts, (size_t)(count + 1) * sizeof *parts);
    tide_value arguments[2] = {list, a[1]};
    tide_value made = op_cat(m, arguments);
    m->state.grad_enabled = grad_enabled;
    tide_value_release(m, list);
    if (made.kind == TIDE_VALUE_TENSOR)
        tide_set_grad_fn(m, node, made.tensor);
    else
        tide_node_release(m, node);
    return made;
}

/* ---- split, chunk, unbind: several views of one tensor, one gradient ---- */

static void split_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_dtype dtype = TIDE_FP32;
    size_t bytes = node->output_count * sizeof(tide_tensor *);
    tide_tensor **zeros = tide_pool_alloc(m, bytes); /* outputs without a gradient */
    for (unsigned i = 0; i < node->output_count; i++) {
        if (grads[i])
            dtype = grads[i]->dtype;
        else
            zeros[i] = tide_empty(m, node->outputs[i].shape, node->outputs[i].dtype);
    }
    results[0] = tide_empty(m, node->extra.shape, dtype);
    for (unsigned i = 0; i < node->output_count; i++) tide_release(m, zeros[i]);
    tide_pool_free(m, zeros, bytes);
}
const tide_backward tide_split_backward = {"SplitBackward0", split_run};

static tide_value parts_of(tide_machine *m, tide_tensor *x, int at, const tide_dim *sizes, int count) {
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    tide_node *node = tide_node_with(m, &tide_split_backward, &x, 1, count, 0);
    if (node) node->extra.shape = x->shape;
    int64_t from = 0;
    for (int i = 0; i < count; i++) {
        tide_shape shape = *x->shape;
        shape.dim[at].size = sizes[i].size;
        shape.dim[at].name = sizes[i].name;
        tide_list_push(
            m, list.list,
            tide_of_tensor(tide_set_grad_fn(m, node, view_over(m, x, &shape, x->stride, from * x->stride[at]))));
        from += sizes[i].size;
    }
    return list;
}

enum { SPLIT_LIMIT = 16384 };

/* How many parts a split makes; 0: too many, or none. */
static uint32_t part_count(tide_machine *m, tide_value sizes, int64_t whole) {
    if (sizes.kind == TIDE_VALUE_LIST) return sizes.list->count <= SPLIT_LIMIT ? sizes.list->count : 0;
    int64_t step = tide_arg_int(m, sizes);
    return step > 0 && TIDE_CEIL_DIV(whole, step) <= SPLIT_LIMIT ? (uint32_t)TIDE_CEIL_DIV(whole, step) : 0;
}

static tide_value op_split(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int at = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    int64_t left = x->shape->dims ? x->shape->dim[at].size : 0;
    uint32_t count = part_count(m, a[1], left);
    tide_dim *sizes = tide_pool_alloc(m, (count + 1) * sizeof *sizes);
    for (uint32_t i = 0; i < count; i++) {
        tide_value size = a[1].kind == TIDE_VALUE_LIST ? a[1].list->items[i] : a[1];
        int64_t n = tide_arg_int(m, size);
        if (a[1].kind != TIDE_VALUE_LIST && n > left) n = left;
        sizes[i] = (tide_dim){n, size.symbol};
        if (n < 0 || n > left) left = -1;
        if (left < 0) break;
        left -= n;
    }
    tide_value made = tide_none();
    if (left != 0 || count == 0)
        tide_fail(m, TIDE_ERR_SHAPE, "split: the sizes do not add up to dimension %d of %s", at,
                  tide_shape_text(m, x->shape));
    else
        made = parts_of(m, x, at, sizes, (int)count);
    tide_pool_free(m, sizes, (count + 1) * sizeof *sizes);
    return made;
}

static tide_value op_chunk(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int64_t chunks = tide_arg_int(m, a[1]);
    int at = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    if (chunks < 1 || chunks > SPLIT_LIMIT || x->shape->dims == 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "chunk into %lld parts", (long long)chunks);
        return tide_none();
    }
    tide_value size = {.kind = TIDE_VALUE_INT, .integer = TIDE_CEIL_DIV(x->shape->dim[at].size, chunks)};
    size.symbol = tide_symbol_of(
        m, '/', (tide_value){.symbol = x->shape->dim[at].name, .integer = x->shape->dim[at].size}, tide_of_int(chunks));
    tide_value arguments[3] = {a[0], size, a[2]};
    return op_split(m, arguments);
}

/* FunctionsManual.cpp, unbind_backward: an output without a gradient is an expanded scalar of zero. */
static void unbind_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_dtype dtype = TIDE_FP32;
    tide_shape scalar = {.dims = 0};
    for (unsigned i = 0; i < node->output_count; i++)
        if (grads[i]) dtype = grads[i]->dtype;
    size_t bytes = node->output_count * sizeof(tide_tensor *);
    tide_tensor **zeros = tide_pool_alloc(m, bytes);
    for (unsigned i = 0; i < node->output_count; i++) zeros[i] = grads[i] ? NULL : tide_empty(m, &scalar, dtype);
    results[0] = tide_empty(m, node->extra.shape, dtype);
    for (unsigned i = 0; i < node->output_count; i++) tide_release(m, zeros[i]);
    tide_pool_free(m, zeros, bytes);
}
static const tide_backward unbind_backward = {"UnbindBackward0", unbind_run};

static tide_value op_unbind(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int at = tide_wrap_dim(m, tide_arg_int(m, a[1]), x->shape->dims);
    if (x->shape->dims == 0 || x->shape->dim[at].size > SPLIT_LIMIT) {
        tide_fail(m, TIDE_ERR_LIMIT, "unbind of %s", tide_shape_text(m, x->shape));
        return tide_none();
    }
    int64_t stride[TIDE_MAX_DIMS];
    tide_shape shape = without(x, at, stride);
    int count = (int)x->shape->dim[at].size;
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    tide_node *node = tide_node_with(m, &unbind_backward, &x, 1, count, 0);
    if (node) node->extra.shape = x->shape;
    for (int i = 0; i < count; i++)
        tide_list_push(m, list.list,
                       tide_of_tensor(tide_set_grad_fn(m, node, view_over(m, x, &shape, stride, i * x->stride[at]))));
    return list;
}

/* ---- pad ---- */

static void pad_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *inner = tide_retain(grads[0]);
    for (int dim = node->of.along.dim, i = 0; i < node->of.along.count; i++, dim++) {
        tide_tensor *whole = inner;
        inner = tide_slice(m, whole, dim, (tide_dim){0, 0}, (tide_dim){node->extra.shape->dim[dim].size, 0});
        tide_release(m, whole);
    }
    results[0] = tide_clone(m, inner);
    tide_release(m, inner);
}
static const tide_backward pad_backward = {"ConstantPadNdBackward0", pad_run};

/* Tensor.suggest_memory_format() of four dimensions; c10/core/MemoryFormat.h. */
static bool suggests_channels_last(const tide_tensor *x) {
    if (x->shape->dims != 4) return false;
    int64_t least = 0;
    for (int i = 0; i < 4; i++) {
        int dim = (const int[]){1, 3, 2, 0}[i];
        if (x->stride[dim] < least || (dim == 0 && least == x->stride[1])) return false;
        least = x->stride[dim] * (x->shape->dim[dim].size > 1 ? x->shape->dim[dim].size : 1);
    }
    return true;
}

tide_tensor *tide_pad(tide_machine *m, tide_tensor *x, const int64_t *after, int count, int dim) {
    tide_shape shape = *x->shape;
    bool grows = false;
    for (int i = 0; i < count; i++) {
        if (!after[i]) continue;
        grows = true;
        shape.dim[dim + i].size += after[i];
        shape.dim[dim + i].name = tide_symbol_of(
            m, '+', (tide_value){.symbol = shape.dim[dim + i].name, .integer = x->shape->dim[dim + i].size},
            tide_of_int(after[i]));
    }
    tide_node *node = tide_node_with(m, &pad_backward, &x, 1, 1, 0);
    if (node) {
        node->extra.shape = x->shape;
        node->of.along.dim = dim;
        node->of.along.count = count;
    }
    return tide_set_grad_fn(m, node,
                            grows ? tide_image_like(m, &shape, x->dtype, suggests_channels_last(x))
                                  : tide_empty_like(m, x, x->dtype));
}

/* ---- entries ---- */

/* Sizes of a view: numbers and lists of numbers in a row; one may be -1. */
static bool read_sizes(tide_machine *m, tide_value v, tide_shape *shape, int *unknown) {
    if (v.kind == TIDE_VALUE_LIST) {
        for (uint32_t i = 0; i < v.list->count; i++)
            if (!read_sizes(m, v.list->items[i], shape, unknown)) return false;
        return true;
    }
    if (shape->dims == TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d dimensions", TIDE_MAX_DIMS);
        return false;
    }
    int64_t size = tide_arg_int(m, v);
    if (size == -1 && *unknown < 0) *unknown = shape->dims;
    shape->dim[shape->dims].name = size == 1 || size == -1 ? 0 : v.symbol;
    shape->dim[shape->dims++].size = size;
    return !m->has_failed;
}

/* The name of the dimension that -1 stands for: what is left of the old names when the new ones are taken away. */
static uint32_t inferred_name(tide_machine *m, const tide_tensor *x, const tide_shape *shape, int unknown) {
    bool used[TIDE_MAX_DIMS] = {false};
    uint32_t divisor = 0;
    int unmatched = 0;
    for (int i = 0; i < shape->dims; i++) {
        if (i == unknown || shape->dim[i].size == 1) continue;
        bool is_found = false;
        for (int k = 0; k < x->shape->dims && !is_found; k++)
            if (!used[k] && x->shape->dim[k].size == shape->dim[i].size && x->shape->dim[k].name == shape->dim[i].name)
                used[k] = is_found = true;
        if (!is_found) {
            divisor = shape->dim[i].name;
            unmatched++;
        }
    }
    tide_value product = tide_of_int(1);
    for (int k = 0; k < x->shape->dims; k++) {
        if (used[k] || x->shape->dim[k].size == 1) continue;
        if (!x->shape->dim[k].name) return 0;
        tide_value factor = {.kind = TIDE_VALUE_INT, .symbol = x->shape->dim[k].name, .integer = x->shape->dim[k].size};
        product.symbol = tide_symbol_of(m, '*', product, factor);
        product.integer *= factor.integer;
    }
    if (unmatched == 0) return product.symbol;
    if (unmatched > 1 || !product.symbol || !divisor) return 0;
    const tide_symbol *s = &m->symbols[product.symbol];
    if (s->operator== '*' && s->right == divisor) return s->left;
    if (s->operator== '*' && s->left == divisor) return s->right;
    return 0;
}

static bool sizes_for(tide_machine *m, const tide_tensor *x, tide_value v, tide_shape *shape) {
    int unknown = -1;
    *shape = (tide_shape){.dims = 0};
    if (!read_sizes(m, v, shape, &unknown)) return false;
    if (unknown >= 0) {
        int64_t known = 1;
        for (int i = 0; i < shape->dims; i++)
            if (i != unknown) known *= shape->dim[i].size;
        if (known <= 0 || tide_count(x) % known) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: %s does not divide into %s", m->op, tide_shape_text(m, x->shape),
                      tide_shape_text(m, shape));
            return false;
        }
        shape->dim[unknown].size = tide_count(x) / known;
        shape->dim[unknown].name = shape->dim[unknown].size == 1 ? 0 : inferred_name(m, x, shape, unknown);
    }
    return true;
}

static tide_value op_view(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape;
    return sizes_for(m, x, a[1], &shape) ? tide_of_tensor(tide_view(m, x, &shape)) : tide_none();
}

static tide_value op_reshape(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape;
    return sizes_for(m, x, a[1], &shape) ? tide_of_tensor(tide_reshape(m, x, &shape)) : tide_none();
}

static tide_value op_expand(tide_machine *m, tide_value *a) {
    tide_shape shape = {.dims = 0};
    int unknown = -1;
    return read_sizes(m, a[1], &shape, &unknown) ? tide_of_tensor(tide_expand(m, tide_arg_tensor(m, a[0]), &shape))
                                                 : tide_none();
}

static tide_value op_flatten(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int from = tide_wrap_dim(m, tide_arg_int(m, a[1]), x->shape->dims),
        to = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    tide_shape shape = {.dims = 0};
    for (int i = 0; i < x->shape->dims; i++) {
        if (i > from && i <= to) {
            tide_value left = {.symbol = shape.dim[shape.dims - 1].name, .integer = shape.dim[shape.dims - 1].size};
            tide_value right = {.symbol = x->shape->dim[i].name, .integer = x->shape->dim[i].size};
            shape.dim[shape.dims - 1].name = tide_symbol_of(m, '*', left, right);
            shape.dim[shape.dims - 1].size *= x->shape->dim[i].size;
            continue;
        }
        shape.dim[shape.dims].name = x->shape->dim[i].name;
        shape.dim[shape.dims++].size = x->shape->dim[i].size;
    }
    return tide_of_tensor(tide_reshape(m, x, &shape));
}

static tide_value op_transpose(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_transpose(m, tide_arg_tensor(m, a[0]), tide_arg_int(m, a[1]), tide_arg_int(m, a[2])));
}

static tide_value op_t(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_transpose(m, tide_arg_tensor(m, a[0]), 0, 1));
}

static tide_value op_permute(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape given = {.dims = 0};
    int64_t order[TIDE_MAX_DIMS];
    int unknown = -1;
    unsigned seen = 0;
    if (!read_sizes(m, a[1], &given, &unknown)) return tide_none();
    for (int i = 0; i < given.dims && given.dims == x->shape->dims; i++) {
        order[i] = tide_wrap_dim(m, given.dim[i].size, x->shape->dims);
        seen |= 1u << order[i];
    }
    if (given.dims != x->shape->dims || seen != (1u << x->shape->dims) - 1) {
        tide_fail(m, TIDE_ERR_SHAPE, "permute: no order of the dimensions of %s", tide_shape_text(m, x->shape));
        return tide_none();
    }
    return tide_of_tensor(tide_permute(m, x, order));
}

static tide_value op_unsqueeze(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_unsqueeze(m, tide_arg_tensor(m, a[0]), tide_arg_int(m, a[1])));
}

static tide_value op_squeeze(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_squeeze(m, tide_arg_tensor(m, a[0]), tide_arg_int(m, a[1])));
}

static tide_value op_contiguous(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_contiguous(m, tide_arg_tensor(m, a[0])));
}

static tide_value op_clone(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_clone(m, tide_arg_tensor(m, a[0])));
}

static tide_value op_detach(tide_machine *m, tide_value *a) {
    tide_tensor *t = tide_alias(m, tide_arg_tensor(m, a[0]));
    t->is_view = false; /* it keeps no base */
    return tide_of_tensor(t);
}

/* A leaf that wants a gradient. */
static tide_value op_requires_grad(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (m->state.grad_enabled || x->is_leaf) x->requires_grad = true;
    return tide_of_tensor(tide_retain(x));
}

/* tensor.data = value: the tensor stays who it is and takes the storage, shape and dtype of another one. */
static tide_value op_set_data(tide_machine *m, tide_value *a) {
    tide_tensor *t = tide_arg_tensor(m, a[0]), *value = tide_alias(m, tide_arg_tensor(m, a[1]));
    tide_storage *old = t->storage;
    t->storage = value->storage;
    value->storage = old;
    t->dtype = value->dtype;
    t->layout = value->layout;
    t->shape = value->shape;
    t->stride = value->stride;
    if (t->is_parameter && !m->timeline.mark_count)
        tide_set_factor(m, value, TIDE_FACTOR_TEMPORARY); /* of the loading */
    tide_release(m, value);
    if (t->is_parameter) tide_set_factor(m, t, TIDE_FACTOR_PARAMETER);
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

/* to(dtype, memory_format=torch.contiguous_format): x itself, whatever its strides, where it has that dtype. */
static tide_value op_to_contiguous(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (a[1].kind != TIDE_VALUE_DTYPE || x->dtype == a[1].dtype) return op_to(m, a);
    tide_node *node = to_node(m, x, a[1].dtype);
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, x->shape, a[1].dtype)));
}

static tide_value op_float(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_to(m, tide_arg_tensor(m, a[0]), TIDE_FP32));
}

/* torch.amp.autocast_mode._cast: to autocast's dtype, past its cache of weights. */
static tide_value op_autocast_cast(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool is_cast = m->state.autocast_enabled && tide_dtype_is_float(x->dtype) && x->dtype != TIDE_FP64;
    return tide_of_tensor(tide_to(m, x, is_cast ? m->state.autocast_dtype : x->dtype));
}

static tide_value op_pad(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool is_list = a[1].kind == TIDE_VALUE_LIST;
    int64_t after[TIDE_MAX_DIMS];
    int count = is_list ? (int)(a[1].list->count < TIDE_MAX_DIMS ? a[1].list->count : TIDE_MAX_DIMS) : 1;
    int dim = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    for (int i = 0; i < count; i++) {
        after[i] = tide_arg_int(m, is_list ? a[1].list->items[i] : a[1]);
        if (dim + i < x->shape->dims && after[i] >= 0 && after[i] <= INT64_C(1) << 40) continue;
        tide_fail(m, TIDE_ERR_SHAPE, "pad by %lld", (long long)after[i]);
        return tide_none();
    }
    return tide_of_tensor(tide_pad(m, x, after, count, dim));
}

/* torch.roll over `count` dimensions: a copy for each, the last one stays. */
static tide_tensor *rolled(tide_machine *m, const tide_tensor *x, int64_t count) {
    tide_tensor *made = NULL;
    for (int64_t i = 0; i < count; i++) {
        tide_tensor *next = tide_empty(m, x->shape, x->dtype);
        tide_release(m, made);
        made = next;
    }
    return made;
}

static void roll_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = rolled(m, grads[0], node->of.roll.dims);
}
static const tide_backward roll_backward = {"RollBackward0", roll_run};

static tide_value op_roll(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int64_t count = tide_arg_int(m, a[1]);
    if (count < 1 || count > x->shape->dims) {
        tide_fail(m, TIDE_ERR_SHAPE, "roll over %lld dimensions of %s", (long long)count, tide_shape_text(m, x->shape));
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &roll_backward, &x, 1);
    if (node) node->of.roll.dims = count;
    return tide_of_tensor(tide_set_grad_fn(m, node, rolled(m, x, count)));
}

/* Tensor.repeat and repeat_interleave of whole dimensions: one copy, the gradient a sum over the copies where there are
 * several. */
static void repeat_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    bool is_once = tide_count(grads[0]) == tide_count_of(node->extra.shape);
    results[0] =
        is_once ? tide_reshape(m, grads[0], node->extra.shape) : tide_empty(m, node->extra.shape, grads[0]->dtype);
}
static const tide_backward repeat_backward = {"RepeatBackward0", repeat_run};

static tide_value op_repeat(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape times = {.dims = 0};
    int unknown = -1;
    if (!read_sizes(m, a[1], &times, &unknown) || times.dims < x->shape->dims) {
        tide_fail(m, TIDE_ERR_SHAPE, "repeat: fewer numbers than dimensions of %s", tide_shape_text(m, x->shape));
        return tide_none();
    }
    tide_shape shape = times;
    for (int i = 0; i < x->shape->dims; i++) {
        int at = times.dims - x->shape->dims + i;
        tide_value left = {.symbol = times.dim[at].name, .integer = times.dim[at].size};
        tide_value right = {.symbol = x->shape->dim[i].name, .integer = x->shape->dim[i].size};
        shape.dim[at].name = tide_symbol_of(m, '*', left, right);
        if (!tide_mul_i64(&shape.dim[at].size, times.dim[at].size, x->shape->dim[i].size)) {
            tide_fail(m, TIDE_ERR_OVERFLOW, "repeat: a dimension does not fit in 63 bits");
            return tide_none();
        }
    }
    tide_node *node = tide_node_new(m, &repeat_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, &shape, x->dtype)));
}

/* Tensor.repeat_interleave by one number (Repeat.cpp): expanded, cloned and flattened. */
static tide_value op_repeat_interleave(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int64_t repeats = tide_arg_int(m, a[1]);
    int dim = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    tide_tensor *narrow = tide_unsqueeze(m, x, dim + 1);
    tide_shape shape = *narrow->shape, flat = *x->shape;
    if (repeats < 1 || !tide_mul_i64(&flat.dim[dim].size, flat.dim[dim].size, repeats)) {
        tide_fail(m, TIDE_ERR_SHAPE, "repeat_interleave of %s, %lld times", tide_shape_text(m, x->shape),
                  (long long)repeats);
        tide_release(m, narrow);
        return tide_none();
    }
    shape.dim[dim + 1].size = repeats;
    shape.dim[dim + 1].name = a[1].symbol;
    flat.dim[dim].name =
        tide_symbol_of(m, '*', (tide_value){.symbol = flat.dim[dim].name, .integer = x->shape->dim[dim].size}, a[1]);
    tide_tensor *wide = tide_expand(m, narrow, &shape);
    tide_tensor *copy = tide_is_contiguous(wide) ? tide_clone(m, wide) : tide_contiguous(m, wide);
    tide_tensor *made = tide_view(m, copy, &flat);
    tide_release(m, copy);
    tide_release(m, wide);
    tide_release(m, narrow);
    return tide_of_tensor(made);
}

static const tide_op shape_ops[] = {
    {"view", "x, *sizes", TIDE_CAST_NONE, op_view},
    {"reshape", "x, *sizes", TIDE_CAST_NONE, op_reshape},
    {"expand", "x, *sizes", TIDE_CAST_NONE, op_expand},
    {"flatten", "x, start_dim=0, end_dim=-1", TIDE_CAST_NONE, op_flatten},
    {"transpose", "x, dim0, dim1", TIDE_CAST_NONE, op_transpose},
    {"t", "x", TIDE_CAST_NONE, op_t},
    {"permute", "x, *dims", TIDE_CAST_NONE, op_permute},
    {"unsqueeze", "x, dim", TIDE_CAST_NONE, op_unsqueeze},
    {"squeeze", "x, dim", TIDE_CAST_NONE, op_squeeze},
    {"unfold", "x, dim, size, step", TIDE_CAST_NONE, op_unfold},
    {"view_as_complex", "x", TIDE_CAST_NONE, op_view_as_complex},
    {"view_as_real", "x", TIDE_CAST_NONE, op_view_as_real},
    {"copy_slice_", "x, dim, start, stop, source", TIDE_CAST_NONE, op_copy_slice},
    {"contiguous", "x", TIDE_CAST_NONE, op_contiguous},
    {"clone", "x", TIDE_CAST_NONE, op_clone},
    {"detach", "x", TIDE_CAST_NONE, op_detach},
    {"requires_grad_", "x", TIDE_CAST_NONE, op_requires_grad},
    {"set_data", "x, value", TIDE_CAST_NONE, op_set_data},
    {"to", "x, dtype", TIDE_CAST_NONE, op_to},
    {"to_contiguous", "x, dtype", TIDE_CAST_NONE, op_to_contiguous},
    {"float", "x", TIDE_CAST_NONE, op_float},
    {"autocast_cast", "x", TIDE_CAST_NONE, op_autocast_cast},
    {"cat", "tensors, dim=0", TIDE_CAST_NONE, op_cat},
    {"stack", "tensors, dim=0", TIDE_CAST_NONE, op_stack},
    {"split", "x, sizes, dim=0", TIDE_CAST_NONE, op_split},
    {"chunk", "x, chunks, dim=0", TIDE_CAST_NONE, op_chunk},
    {"unbind", "x, dim=0", TIDE_CAST_NONE, op_unbind},
    {"pad", "x, after, dim=-1", TIDE_CAST_NONE, op_pad},
    {"roll", "x, count", TIDE_CAST_NONE, op_roll},
    {"repeat", "x, *times", TIDE_CAST_NONE, op_repeat},
    {"repeat_interleave", "x, repeats, dim", TIDE_CAST_NONE, op_repeat_interleave},
};
TIDE_OP_TABLE(shape)
