/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and means: aten/src/ATen/native/ReduceOps.cpp, cuda/Reduce.cuh. */
#include "tensor/ops/ops.h"

#include "base/units.h"

/* Note [Reduction scratch], cuda/Reduce.cuh: setReduceConfig. If one block per output would leave the device idle,
 * several blocks share an output and combine their fp32 partial sums in a buffer, with a counter per block column. Both
 * are allocated after the output and freed before the operation returns. */

typedef struct reduction {
    int64_t inputs; /* elements summed into one output */
    int64_t outputs;
    bool on_fastest;     /* the summed dimension is the contiguous one */
    bool is_flat;        /* everything is summed: one dimension after coalescing */
    int vec;             /* outputs per thread when the contiguous dimension is kept: 4, 2 or 1 */
    int64_t accumulator; /* bytes of a partial sum */
} reduction;

static int64_t last_power_of_two(int64_t n) {
    int64_t power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

static int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}

enum { MAX_THREADS = 512, WARP = 32, MIN_VALUES = 16, MAX_VALUES = 256, INPUT_VEC = 4 };

static void reduction_scratch(tide_machine *m, const reduction *r) {
    int64_t dim0 = r->on_fastest ? r->inputs : r->outputs, dim1 = r->on_fastest ? r->outputs : r->inputs;
    int64_t vec = r->on_fastest ? 1 : r->vec, max_threads = MAX_THREADS / vec;
    if (r->on_fastest && r->is_flat && dim0 > 128) dim0 /= INPUT_VEC;
    if (!r->on_fastest) dim0 /= vec;
    int64_t width_limit = dim0 < max_threads ? last_power_of_two(dim0 ? dim0 : 1) : max_threads;
    int64_t height_limit = dim1 < max_threads ? last_power_of_two(dim1) : max_threads;
    int64_t width = at_most(width_limit, WARP);
    int64_t height = at_most(height_limit, max_threads / width);
    width = at_most(width_limit, max_threads / height);
    int64_t step_input = 1, step_output = 1;
    if (r->on_fastest)
        step_input = width;
    else
        step_output = width;
    int64_t values = TIDE_CEIL_DIV(r->inputs, step_input);
    bool is_split = values >= height * MIN_VALUES || values >= MAX_VALUES;
    if (!is_split) return;
    step_input *= height;
    values = TIDE_CEIL_DIV(r->inputs, step_input);
    int64_t target = (int64_t)m->device.sms * (m->device.threads_per_sm / (width * height));
    int64_t grid = TIDE_CEIL_DIV(r->outputs / vec, step_output);
    if (values < MAX_VALUES || grid > target) return;
    int64_t blocks = at_most(TIDE_CEIL_DIV(target, grid), TIDE_CEIL_DIV(values, MIN_VALUES));
    if (blocks < TIDE_CEIL_DIV(values, MAX_VALUES)) blocks = TIDE_CEIL_DIV(values, MAX_VALUES);
    if (blocks <= 1) return;
    int64_t bytes = r->accumulator * r->outputs * blocks;
    if (!r->on_fastest) bytes *= width * vec;
    tide_tensor *partial = tide_scratch(m, bytes), *counters = tide_scratch(m, 4 * grid);
    tide_release(m, counters);
    tide_release(m, partial);
}

/* Tensors too large for 32-bit offsets are summed in halves of their largest dimension (with_32bit_indexing). */
static void reduce_in_pieces(tide_machine *m, reduction r, int64_t bytes) {
    if (bytes > INT32_MAX && r.inputs > 1) {
        reduction first = r, second = r;
        first.inputs = r.inputs / 2;
        second.inputs = r.inputs - first.inputs;
        reduce_in_pieces(m, first, bytes / 2);
        reduce_in_pieces(m, second, bytes - bytes / 2);
        return;
    }
    reduction_scratch(m, &r);
}

static int64_t accumulator_bytes(tide_dtype dtype) {
    if (dtype == TIDE_BOOL) return 1;
    return tide_dtype_is_float(dtype) && dtype != TIDE_FP64 ? 4 : 8;
}

/* A reduction with partial results of `accumulator` bytes each. */
/* How a reduction over the dimensions in `mask` is run; *out is the shape of its result. */
static reduction plan(const tide_tensor *x, unsigned mask, bool keepdim, int64_t accumulator, tide_shape *out) {
    tide_shape shape = {.dims = 0};
    reduction r = {1, 1, false, true, 4, accumulator};
    int64_t fastest_stride = INT64_MAX, kept_size = 1;
    for (int i = 0; i < x->shape->dims; i++) {
        bool is_summed = mask >> i & 1;
        if (is_summed)
            r.inputs *= x->shape->dim[i].size;
        else
            r.outputs *= x->shape->dim[i].size;
        if (x->shape->dim[i].size > 1) {
            if (!is_summed) r.is_flat = false;
            if (x->stride[i] < fastest_stride) {
                fastest_stride = x->stride[i];
                r.on_fastest = is_summed;
                kept_size = is_summed ? 1 : x->shape->dim[i].size;
            }
        }
        if (is_summed && !keepdim) continue;
        shape.dim[shape.dims].size = is_summed ? 1 : x->shape->dim[i].size;
        shape.dim[shape.dims++].name = is_summed ? 0 : x->shape->dim[i].name;
    }
    /* The contiguous run of kept elements determines how many a thread handles: neighbours coalesce. */
    if (!r.on_fastest && fastest_stride != 1) r.vec = 1; /* expanded, or not dense */
    if (!r.on_fastest && fastest_stride == 1) {
        int64_t run = kept_size;
        for (bool grew = true; grew;) {
            grew = false;
            for (int i = 0; i < x->shape->dims; i++)
                if (!(mask >> i & 1) && x->shape->dim[i].size > 1 && x->stride[i] == run && run > 1) {
                    run *= x->shape->dim[i].size;
                    grew = true;
                }
        }
        while (r.vec > 1 && run % r.vec) r.vec /= 2;
    }
    *out = shape;
    return r;
}

void tide_reduction_scratch(tide_machine *m, const tide_tensor *x, unsigned mask, int64_t accumulator) {
    tide_shape shape;
    reduction r = plan(x, mask, false, accumulator, &shape);
    if (r.inputs > 0 && r.outputs > 0) reduce_in_pieces(m, r, tide_bytes(x));
}

static tide_tensor *reduce_plain(tide_machine *m, const tide_tensor *x, unsigned mask, bool keepdim, tide_dtype dtype,
                                 int64_t accumulator) {
    tide_shape shape;
    reduction r = plan(x, mask, keepdim, accumulator, &shape);
    tide_tensor *out = tide_empty(m, &shape, dtype);
    /* Bools and narrow integers are summed from an int64 copy. */
    bool is_widened = accumulator == 8 && dtype == TIDE_INT64 && x->dtype != TIDE_INT64;
    tide_tensor *wide = is_widened ? tide_empty_like(m, x, TIDE_INT64) : NULL;
    if (r.inputs > 0 && r.outputs > 0) reduce_in_pieces(m, r, tide_bytes(wide ? wide : x));
    tide_release(m, wide);
    return out;
}

tide_tensor *tide_sum_plain(tide_machine *m, const tide_tensor *x, unsigned mask, bool keepdim, tide_dtype dtype) {
    return reduce_plain(m, x, mask, keepdim, dtype, accumulator_bytes(dtype));
}

tide_tensor *tide_sum_to(tide_machine *m, tide_tensor *g, const tide_shape *shape) {
    int lead = g->shape->dims - shape->dims;
    unsigned mask = 0;
    for (int i = 0; i < g->shape->dims; i++)
        if (i < lead || (shape->dim[i - lead].size == 1 && g->shape->dim[i].size != 1)) mask |= 1u << i;
    if (lead < 0) {
        tide_fail(m, TIDE_ERR_SHAPE, "%s: a gradient of %s for %s", m->op, tide_shape_text(m, g->shape),
                  tide_shape_text(m, shape));
        return g;
    }
    tide_tensor *sum = mask ? tide_sum_plain(m, g, mask, true, g->dtype) : tide_retain(g);
    tide_release(m, g);
    if (lead > 0) {
        tide_tensor *viewed = tide_view(m, sum, shape);
        tide_release(m, sum);
        sum = viewed;
    }
    return sum;
}

/* ---- entries ---- */

/* The gradient of a sum is expanded; that of a mean is also divided by the count: one full tensor. */
static void sum_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *g = tide_retain(grads[0]);
    bool keepdim = node->of.reduction.keepdim;
    for (int i = 0; i < node->extra.shape->dims && !keepdim; i++) {
        if (!(node->of.reduction.dims >> i & 1)) continue;
        tide_tensor *wider = tide_unsqueeze(m, g, i);
        tide_release(m, g);
        g = wider;
    }
    tide_tensor *full = tide_expand(m, g, node->extra.shape);
    tide_release(m, g);
    if (node->of.reduction.is_mean) {
        results[0] = tide_elementwise(m, &full, 1, full->dtype);
        tide_release(m, full);
    } else {
        results[0] = full;
    }
}
static const tide_backward sum_backward = {"SumBackward1", sum_run};
static const tide_backward mean_backward = {"MeanBackward1", sum_run};

static unsigned mask_of(tide_machine *m, tide_value dims, int count) {
    if (dims.kind == TIDE_VALUE_NONE) return (1u << count) - 1;
    if (dims.kind != TIDE_VALUE_LIST) return count ? 1u << tide_wrap_dim(m, tide_arg_int(m, dims), count) : 0;
    unsigned mask = 0;
    for (uint32_t i = 0; i < dims.list->count; i++) mask |= mask_of(m, dims.list->items[i], count);
    return mask;
}

static tide_value reduce(tide_machine *m, tide_value *a, bool is_mean) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    unsigned mask = mask_of(m, a[1], x->shape->dims);
    bool keepdim = tide_arg_bool(m, a[2]);
    tide_dtype dtype = (tide_dtype)x->dtype;
    if (!tide_dtype_is_float(dtype) && !is_mean) dtype = TIDE_INT64;
    /* autocast_mode.h: sum is of the kind fp32_set_opt_dtype, which sets dtype=float32 without a copy. */
    if (m->state.autocast_enabled && !is_mean && (dtype == TIDE_FP16 || dtype == TIDE_BF16)) dtype = TIDE_FP32;
    tide_node *node = tide_node_new(m, is_mean ? &mean_backward : &sum_backward, &x, 1);
    if (node) {
        node->extra.shape = x->shape;
        node->of.reduction.dims = mask;
        node->of.reduction.keepdim = keepdim;
        node->of.reduction.is_mean = is_mean;
    }
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_sum_plain(m, x, mask, keepdim, dtype)));
}

static tide_value op_sum(tide_machine *m, tide_value *a) {
    return reduce(m, a, false);
}

static tide_value op_mean(tide_machine *m, tide_value *a) {
    return reduce(m, a, true);
}

/* A partial result is a value with its index. */
static tide_value op_argmax(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(reduce_plain(m, x, mask_of(m, a[1], x->shape->dims), tide_arg_bool(m, a[2]), TIDE_INT64, 16));
}

/* linalg_vector_norm with p = 2: FunctionsManual.cpp norm_backward, grad * (self / norm).masked_fill_(norm == 0, 0),
 * laid out as grad. */
static void norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *norm = tide_saved_at(m, node, 1);
    tide_tensor *both[2] = {x, norm};
    tide_tensor *direction = tide_elementwise(m, both, 2, tide_promote(x, norm)),
                *is_zero = tide_empty(m, norm->shape, TIDE_BOOL);
    tide_tensor *scaled[2] = {grads[0], direction};
    results[0] = tide_elementwise(m, scaled, 2, direction->dtype);
    tide_release(m, is_zero);
    tide_release(m, direction);
    tide_release(m, norm);
    tide_release(m, x);
}
static const tide_backward norm_backward = {"LinalgVectorNormBackward0", norm_run};

static tide_value op_norm(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_node *node = tide_node_new(m, &norm_backward, &x, 1);
    tide_save(m, node, x);
    /* autocast appends dtype=float32 */
    tide_dtype dtype = m->state.autocast_enabled ? TIDE_FP32 : (tide_dtype)x->dtype;
    tide_tensor *out = tide_set_grad_fn(
        m, node, tide_sum_plain(m, x, mask_of(m, a[1], x->shape->dims), tide_arg_bool(m, a[2]), dtype));
    tide_save(m, node, out);
    return tide_of_tensor(out);
}

/* FunctionsManual.cpp, std_backward and var_backward: grad / (result * 2) where result is not 0, times self - mean. */
static void std_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *out = tide_saved_at(m, node, 1);
    tide_tensor *doubled = tide_elementwise(m, &out, 1, out->dtype),
                *of_variance = tide_elementwise(m, grads, 1, grads[0]->dtype);
    tide_alloc_and_free(m, tide_count(out)); /* result == 0 */
    tide_release(m, doubled);
    tide_tensor *mean = tide_sum_plain(m, x, node->of.reduction.dims, true, x->dtype), *both[2] = {x, mean},
                *difference = tide_elementwise(m, both, 2, x->dtype),
                *scaled = tide_elementwise(m, &of_variance, 1, of_variance->dtype);
    both[0] = difference;
    both[1] = scaled;
    results[0] = tide_elementwise(m, both, 2, x->dtype);
    tide_release(m, scaled);
    tide_release(m, difference);
    tide_release(m, mean);
    tide_release(m, of_variance);
    tide_release(m, out);
    tide_release(m, x);
}
static const tide_backward std_backward = {"StdBackward0", std_run};

/* ReduceMomentKernel.cu: a partial result is a WelfordData of four numbers. */
static tide_value op_std(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    unsigned mask = mask_of(m, a[1], x->shape->dims);
    tide_node *node = tide_node_new(m, &std_backward, &x, 1);
    tide_save(m, node, x);
    if (node) node->of.reduction.dims = mask;
    tide_tensor *out = tide_set_grad_fn(
        m, node, reduce_plain(m, x, mask, true, (tide_dtype)x->dtype, 4 * accumulator_bytes((tide_dtype)x->dtype)));
    tide_save(m, node, out);
    return tide_of_tensor(out);
}

static tide_value op_all(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(tide_sum_plain(m, x, mask_of(m, a[1], x->shape->dims), tide_arg_bool(m, a[2]), TIDE_BOOL));
}

/* The maximum of all elements; its gradient is not described. */
static tide_value op_max(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (x->requires_grad) tide_fail(m, TIDE_ERR_UNSUPPORTED, "max: its gradient is not described");
    return tide_of_tensor(tide_sum_plain(m, x, mask_of(m, tide_none(), x->shape->dims), false, x->dtype));
}

/* The minimum and maximum of all elements: cuda/AMinMaxKernel.cu, whose partial results are pairs. */
static tide_value op_aminmax(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *least = tide_scalar(m, (tide_dtype)x->dtype);
    tide_value both = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    tide_list_push(m, both.list, tide_of_tensor(least));
    tide_list_push(m, both.list,
                   tide_of_tensor(reduce_plain(m, x, mask_of(m, tide_none(), x->shape->dims), false,
                                               (tide_dtype)x->dtype, 2 * accumulator_bytes((tide_dtype)x->dtype))));
    return both;
}

/* argmax() into an existing tensor. */
static tide_value op_argmax_out(tide_machine *m, tide_value *a) {
    tide_tensor *out = tide_arg_tensor(m, a[0]), *x = tide_arg_tensor(m, a[1]);
    tide_shape shape;
    reduction r = plan(x, mask_of(m, a[2], x->shape->dims), true, 16, &shape);
    if (r.inputs > 0 && r.outputs > 0) reduce_in_pieces(m, r, tide_bytes(x));
    return tide_of_tensor(tide_retain(out));
}

/* FunctionsManual.cpp, logsumexp_backward: grad * (self - result).exp() */
static void logsumexp_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *out = tide_saved_at(m, node, 1);
    tide_tensor *difference = tide_elementwise(m, &x, 1, (tide_dtype)x->dtype),
                *exponent = tide_elementwise(m, &difference, 1, (tide_dtype)x->dtype);
    results[0] = tide_elementwise(m, &exponent, 1, grads[0]->dtype);
    tide_release(m, exponent);
    tide_release(m, difference);
    tide_release(m, out);
    tide_release(m, x);
}
static const tide_backward logsumexp_backward = {"LogsumexpBackward0", logsumexp_run};

/* ReduceOps.cpp, logsumexp_out_impl: the result gets its memory from sum_out(), of what amax() leaves. */
static tide_value op_logsumexp(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    unsigned mask = mask_of(m, a[1], x->shape->dims);
    bool keepdim = tide_arg_bool(m, a[2]);
    tide_dtype dtype = (tide_dtype)x->dtype;
    tide_node *node = tide_node_new(m, &logsumexp_backward, &x, 1);
    tide_save(m, node, x);
    tide_tensor *maxes = tide_sum_plain(m, x, mask, true, dtype), *magnitude = tide_elementwise(m, &maxes, 1, dtype);
    tide_alloc_and_free(m, tide_count(maxes)); /* == INFINITY */
    tide_release(m, magnitude);
    tide_tensor *shifted = tide_elementwise(m, &x, 1, dtype),
                *out = tide_set_grad_fn(m, node, tide_sum_plain(m, shifted, mask, keepdim, dtype));
    tide_release(m, shifted);
    tide_release(m, maxes);
    tide_save(m, node, out);
    return tide_of_tensor(out);
}

static const tide_op reduce_ops[] = {
    {"logsumexp", "x, dim, keepdim=false", TIDE_CAST_FP32, op_logsumexp},
    {"sum", "x, dim=none, keepdim=false", TIDE_CAST_NONE, op_sum},
    {"mean", "x, dim=none, keepdim=false", TIDE_CAST_NONE, op_mean},
    {"std", "x, dim", TIDE_CAST_NONE, op_std},
    {"norm", "x, dim=none, keepdim=true", TIDE_CAST_NONE, op_norm},
    {"argmax", "x, dim, keepdim=false", TIDE_CAST_NONE, op_argmax},
    {"argmax_out", "out, x, dim", TIDE_CAST_NONE, op_argmax_out},
    {"aminmax", "x", TIDE_CAST_NONE, op_aminmax},
    {"max", "x", TIDE_CAST_NONE, op_max},
    {"any", "x, dim=none, keepdim=false", TIDE_CAST_NONE, op_all},
    {"all", "x, dim=none, keepdim=false", TIDE_CAST_NONE, op_all},
};
TIDE_OP_TABLE(reduce)
