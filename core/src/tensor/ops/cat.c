/* SPDX-License-Identifier: Apache-2.0 */
/* Joining and splitting tensors: cat, stack, split, pad, roll, repeat (aten/src/ATen/native/TensorShape.cpp, PadNd.cpp,
 * TensorTransformations.cpp, Repeat.cpp). */
#include "tensor/ops/ops.h"

#include "base/checked.h"
#include "base/units.h"

static void cat_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    /* Narrow views. Their offsets do not matter here: views allocate nothing. */
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
    for (int i = 0; i < count; i++) { /* an empty tensor only counts for the dtype */
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
    /* a tensor of a folded iteration gets no gradient: the stored iteration's stands for it */
    for (int i = 0; i < count; i++) {
        parts[i] = tide_arg_tensor(m, a[0].list->items[i]);
        if (parts[i] && parts[i]->is_of_iteration) parts[i] = NULL;
    }
    tide_node *node = count && !m->has_failed ? tide_node_new(m, &stack_backward, parts, count) : NULL;
    for (int i = 0; i < count; i++) parts[i] = tide_arg_tensor(m, a[0].list->items[i]);
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

/* Gradients of DTensors are Partial() where one is: Replicate() ones are divided into parts. */
static void split_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_dtype dtype = TIDE_FP32;
    size_t bytes = node->output_count * sizeof(tide_tensor *);
    tide_tensor **zeros = tide_pool_alloc(m, bytes); /* outputs without a gradient, and such parts */
    bool has_partial = false;
    for (unsigned i = 0; i < node->output_count; i++)
        has_partial = has_partial || (grads[i] && !grads[i]->is_replicated);
    for (unsigned i = 0; i < node->output_count; i++) {
        if (grads[i]) dtype = grads[i]->dtype;
        if (!grads[i])
            zeros[i] = tide_empty(m, node->outputs[i].shape, node->outputs[i].dtype);
        else if (has_partial && grads[i]->is_replicated)
            zeros[i] = tide_empty_like(m, grads[i], dtype);
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
            tide_of_tensor(tide_set_grad_fn(m, node, tide_view_over(m, x, &shape, x->stride, from * x->stride[at]))));
        from += sizes[i].size;
    }
    return list;
}

enum { SPLIT_LIMIT = 16384 };

/* The number of parts of a split; 0: too many, or none. */
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
    tide_shape shape = tide_shape_without(x, at, stride);
    int count = (int)x->shape->dim[at].size;
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    tide_node *node = tide_node_with(m, &unbind_backward, &x, 1, count, 0);
    if (node) node->extra.shape = x->shape;
    for (int i = 0; i < count; i++)
        tide_list_push(
            m, list.list,
            tide_of_tensor(tide_set_grad_fn(m, node, tide_view_over(m, x, &shape, stride, i * x->stride[at]))));
    return list;
}

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
                            grows ? tide_image_like(m, &shape, x->dtype, tide_suggests_channels_last(x))
                                  : tide_empty_like(m, x, x->dtype));
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

/* torch.roll over `count` dimensions: one copy for each, of which the last is the result. */
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

/* Tensor.repeat and repeat_interleave of whole dimensions: one copy; the gradient is summed over the copies if there
 * are several. */
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
    if (!tide_read_sizes(m, a[1], &times, &unknown) || times.dims < x->shape->dims) {
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

tide_tensor *tide_repeat_heads(tide_machine *m, tide_tensor *x, int64_t times) {
    tide_shape wide = {.dims = 5}, flat = *x->shape;
    for (int i = 0; i < 5; i++)
        wide.dim[i].size = i < 2 ? x->shape->dim[i].size : i == 2 ? times : x->shape->dim[i - 1].size;
    flat.dim[1].size *= times;
    tide_tensor *split = tide_unsqueeze(m, x, 2), *expanded = tide_expand(m, split, &wide);
    tide_tensor *copy = tide_contiguous(m, expanded),
                *made = tide_reshape(m, copy, &flat); /* repeat_interleave copies */
    tide_release(m, copy);
    tide_release(m, expanded);
    tide_release(m, split);
    return made;
}

/* Tensor.repeat_interleave by one number (Repeat.cpp): expand, clone and flatten. */
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

static const tide_op cat_ops[] = {
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
TIDE_OP_TABLE(cat)
