/* SPDX-License-Identifier: Apache-2.0 */
/* Views: aten/src/ATen/native/TensorShape.cpp.
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

tide_tensor *tide_view_over(tide_machine *m, tide_tensor *x, const tide_shape *shape, const int64_t *stride,
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
    return made_view(m, &view_backward, x, tide_view_over(m, x, shape, stride, 0));
}

tide_tensor *tide_reshape(tide_machine *m, tide_tensor *x, const tide_shape *shape) {
    int64_t stride[TIDE_MAX_DIMS];
    if (tide_count_of(shape) != tide_count(x) || view_strides(x, shape, stride)) return tide_view(m, x, shape);
    tide_tensor *copy = tide_clone_contiguous(m, x);
    view_strides(copy, shape, stride);
    tide_tensor *t = made_view(m, &unsafe_view_backward, copy, tide_view_over(m, copy, shape, stride, 0));
    t->is_view = false; /* _unsafe_view keeps no base */
    tide_release(m, copy);
    return t;
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
    return tide_set_grad_fn(m, node, tide_view_over(m, x, &shape, stride, 0));
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
    return made_view(m, &expand_backward, x, tide_view_over(m, x, &shape, stride, 0));
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
    return made_view(m, &view_backward, x, tide_view_over(m, x, &shape, stride, 0));
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
    return made_view(m, &view_backward, x, tide_view_over(m, x, &shape, stride, 0));
}

/* ---- slice, select: their gradient is a zero tensor of the whole input ---- */

static void slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
}
static const tide_backward slice_backward = {"SliceBackward0", slice_run};
static const tide_backward select_backward = {"SelectBackward0", slice_run};
static const tide_backward alias_backward = {"AliasBackward0", tide_pass_grad};

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
        return tide_set_grad_fn(m, tide_node_new(m, &alias_backward, &x, 1),
                                tide_view_over(m, x, &shape, x->stride, 0));
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
    return made_view(m, &slice_backward, x, tide_view_over(m, x, &shape, x->stride, from * x->stride[at]));
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
    return made_view(m, &slice_backward, x, tide_view_over(m, x, &shape, stride, start * x->stride[at]));
}

/* Tensor.unfold: windows of a dimension as a new last dimension, a view; its gradient is not described. */
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
    return tide_of_tensor(tide_view_over(m, x, &shape, stride, 0));
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
    tide_tensor *t = tide_view_over(m, x, &shape, stride, 0);
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

/* The shape and strides of x without one dimension. */
tide_shape tide_shape_without(const tide_tensor *x, int dim, int64_t *stride) {
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
    tide_shape shape = tide_shape_without(x, at, stride);
    return made_view(m, &select_backward, x, tide_view_over(m, x, &shape, stride, i * x->stride[at]));
}

/* ---- entries ---- */

bool tide_read_sizes(tide_machine *m, tide_value v, tide_shape *shape, int *unknown) {
    if (v.kind == TIDE_VALUE_LIST) {
        for (uint32_t i = 0; i < v.list->count; i++)
            if (!tide_read_sizes(m, v.list->items[i], shape, unknown)) return false;
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

/* The name of the dimension that -1 stands for: the old names without those of the new shape. */
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
    if (!tide_read_sizes(m, v, shape, &unknown)) return false;
    if (unknown >= 0) {
        int64_t known = 1;
        for (int i = 0; i < shape->dims; i++)
            if (i != unknown) known *= shape->dim[i].size;
        if (known <= 0 || tide_count(x) % known) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: shape '%s' is invalid for input of size %lld", m->op,
                      tide_shape_text(m, shape), (long long)tide_count(x));
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
    return tide_read_sizes(m, a[1], &shape, &unknown) ? tide_of_tensor(tide_expand(m, tide_arg_tensor(m, a[0]), &shape))
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
    if (!tide_read_sizes(m, a[1], &given, &unknown)) return tide_none();
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

static const tide_op view_ops[] = {
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
};
TIDE_OP_TABLE(view)
