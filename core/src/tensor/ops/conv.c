/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by cuDNN: aten/src/ATen/native/Convolution.cpp, cudnn/ConvShared.cpp. Workspaces of plans are chosen by
 * the library on the GPU and not included. */
#include "tensor/ops/ops.h"

/* Whether the channels are innermost, followed by the pixels or samples. */
static bool has_channels_last(const tide_tensor *x) {
    int dims = x->shape->dims;
    int64_t expected = 1;
    for (int i = 0; i < dims; i++) {
        int dim = i == 0 ? 1 : i == dims - 1 ? 0 : dims - i;
        if (x->shape->dim[dim].size == 1) continue;
        if (x->stride[dim] != expected) return false;
        expected *= x->shape->dim[dim].size;
    }
    return true;
}

/* An image with a single channel or pixel has both layouts. */
static bool is_channels_last(const tide_tensor *x) {
    return x->shape->dims == 4 && has_channels_last(x);
}

tide_tensor *tide_image_like(tide_machine *m, const tide_shape *shape, tide_dtype dtype, bool channels_last) {
    if (!channels_last) return tide_empty(m, shape, dtype);
    int64_t stride[TIDE_MAX_DIMS] = {shape->dim[1].size * shape->dim[2].size * shape->dim[3].size, 1,
                                     shape->dim[1].size * shape->dim[3].size, shape->dim[1].size};
    return tide_empty_strided(m, shape, stride, dtype);
}

/* x itself if it has the layout of the call, else a copy. */
static tide_tensor *in_layout(tide_machine *m, tide_tensor *x, bool channels_last) {
    if (channels_last ? is_channels_last(x) : tide_is_contiguous(x)) return tide_retain(x);
    return tide_image_like(m, x->shape, x->dtype, channels_last);
}

/* c10/core/MemoryFormat.h, is_channels_last_strides_2d_s4: strides of single pixels count. */
bool tide_suggests_channels_last(const tide_tensor *x) {
    static const int order[] = {1, 3, 2, 0};
    int64_t least = 0;
    if (x->shape->dims != 4) return false;
    for (int i = 0; i < 4; i++) {
        int64_t stride = x->stride[order[i]], size = x->shape->dim[order[i]].size;
        if (stride < least || (order[i] == 0 && least == x->stride[1])) return false;
        least = size > 1 ? stride * size : stride;
    }
    return true;
}

/* Convolution.cpp, cudnn_conv_suggest_memory_format: as the strides of input or weight say, also of single samples. */
static bool prefers_channels_last(const tide_tensor *x) {
    return tide_suggests_channels_last(x) && !tide_is_contiguous(x);
}

/* cudnn/ConvShared.cpp, cudnn_convolution_backward: grad_output.to(input.suggest_memory_format()). */
static tide_tensor *in_suggested_layout(tide_machine *m, tide_tensor *g) {
    return tide_suggests_channels_last(g) ? in_layout(m, g, true) : tide_image_like(m, g->shape, g->dtype, true);
}

static void conv_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *weight = tide_saved_at(m, node, 1);
    bool is_last = node->of.convolution.is_channels_last,
         /* has its own kernel: the gradient of the weight first */
        is_depthwise = node->of.convolution.is_depthwise && !is_last;
    bool is_line = x->shape->dims == 3; /* its contiguous copy prevents channels last with one spatial dimension */
    tide_tensor *input = is_line || tide_needs_input_grad(node, 1) ? in_layout(m, x, is_last) : tide_retain(x);
    if (is_depthwise) {
        tide_tensor *g = in_layout(m, grads[0], is_last);
        if (tide_needs_input_grad(node, 1)) results[1] = tide_image_like(m, weight->shape, weight->dtype, is_last);
        if (tide_needs_input_grad(node, 0)) results[0] = tide_image_like(m, x->shape, x->dtype, is_last);
        tide_release(m, g);
    } else if (is_last) {
        tide_tensor *g = in_suggested_layout(m, grads[0]);
        if (tide_needs_input_grad(node, 0)) {
            results[0] = tide_image_like(m, x->shape, x->dtype, true);
            tide_release(m, in_layout(m, weight, true));
        }
        if (tide_needs_input_grad(node, 1)) results[1] = tide_image_like(m, weight->shape, weight->dtype, true);
        tide_release(m, g);
    } else {
        /* a gradient of another layout is copied first; else either call makes its own copy */
        bool is_other = has_channels_last(grads[0]) && !tide_is_contiguous(grads[0]);
        tide_tensor *g = is_other ? in_layout(m, grads[0], false) : tide_retain(grads[0]);
        for (int i = 0; i < 2; i++) {
            tide_tensor *copied = i && tide_needs_input_grad(node, 1) ? in_layout(m, g, is_last) : NULL;
            if (tide_needs_input_grad(node, i))
                results[i] = tide_image_like(m, i ? weight->shape : x->shape, x->dtype, is_last);
            if (!i && tide_needs_input_grad(node, 0)) {
                copied = in_layout(m, g, is_last);
                tide_release(m, in_layout(m, weight, is_last));
            }
            tide_release(m, copied);
        }
        tide_release(m, g);
    }
    if (!is_line) tide_release(m, input);
    if (tide_needs_input_grad(node, 2)) {
        unsigned mask = ((1u << grads[0]->shape->dims) - 1) & ~2u;
        results[2] = tide_sum_plain(m, grads[0], mask, false, grads[0]->dtype);
    }
    if (is_line) tide_release(m, input);
    tide_release(m, weight);
    tide_release(m, x);
}
static const tide_backward conv_backward = {"ConvolutionBackward0", conv_run};

/* One number for all spatial dimensions, or a list with one for each. */
static int64_t of_space(tide_machine *m, tide_value v, int i) {
    if (v.kind != TIDE_VALUE_LIST) return tide_arg_int(m, v);
    return i < (int)v.list->count ? tide_arg_int(m, v.list->items[i]) : 1;
}

/* Convolution.cpp, use_cudnn_depthwise: with one group per channel, only in fp16, and for certain numbers of pixels and
 * channels. */
static bool is_for_cudnn(const tide_tensor *x, const tide_tensor *weight, int64_t stride) {
    const tide_dim *size = x->shape->dim, *filter = weight->shape->dim;
    if (x->dtype != TIDE_FP16 || x->shape->dims > 4 || size[1].size < 32) return false;
    if (x->shape->dims == 3) return stride == 1;
    if (filter[2].size != filter[3].size || (filter[3].size != 1 && filter[3].size != 3 && filter[3].size != 5) ||
        size[3].size < 7)
        return false;
    if (stride != 2) return stride == 1;
    if (filter[3].size == 1)
        return size[0].size == 1 ? size[3].size <= 28 : size[0].size <= 16 && size[1].size >= 128 && size[3].size <= 7;
    return size[0].size == 1 || size[1].size >= 512 || (size[1].size >= 256 && size[3].size >= 28);
}

/* aten/src/ATen/native/Convolution.cpp, check_input_same_type_as_parameters */
static bool is_of_weight_dtype(tide_machine *m, const tide_tensor *x, const tide_tensor *weight) {
    if (x->dtype == weight->dtype) return true;
    tide_fail_setting(
        m, TIDE_ERR_CONFLICT, "dtype",
        "a convolution takes no %s with weights in %s: \"Input type and bias type should be the same\"; use "
        "autocast, or dtype=%s",
        tide_dtype_names[x->dtype], tide_dtype_names[weight->dtype], tide_dtype_names[x->dtype]);
    return false;
}

/* x (N, C, ...), weight (O, C / groups, ...) with 1, 2 or 3 spatial dimensions. */
static tide_value op_conv(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1]), tide_arg_tensor_or_none(m, a[2])};
    tide_tensor *x = all[0], *weight = all[1];
    int64_t groups = tide_arg_int(m, a[5]);
    bool ok = x->shape->dims == weight->shape->dims && x->shape->dims >= 3 && groups > 0 &&
              x->shape->dim[1].size == weight->shape->dim[1].size * groups;
    tide_shape shape = *x->shape;
    for (int i = 2; ok && i < shape.dims; i++) {
        int64_t stride = of_space(m, a[3], i - 2), padding = of_space(m, a[4], i - 2);
        int64_t room = x->shape->dim[i].size + 2 * padding - weight->shape->dim[i].size;
        ok = room >= 0 && stride > 0 && padding >= 0 && padding < INT64_C(1) << 40;
        if (!ok) break;
        shape.dim[i].size = room / stride + 1;
        shape.dim[i].name =
            tide_symbol_of(m, '/', (tide_value){.symbol = x->shape->dim[i].name, .integer = x->shape->dim[i].size},
                           tide_of_int(stride));
    }
    if (!ok) {
        tide_fail(m, TIDE_ERR_SHAPE, "conv: an input of %s for a weight of %s", tide_shape_text(m, x->shape),
                  tide_shape_text(m, weight->shape));
        return tide_none();
    }
    if (!is_of_weight_dtype(m, x, weight)) return tide_none();
    shape.dim[1] = weight->shape->dim[0];
    tide_node *node = tide_node_new(m, &conv_backward, all, 3);
    bool is_last = prefers_channels_last(x) || prefers_channels_last(weight);
    bool is_depthwise = groups > 1 && groups == x->shape->dim[1].size && !is_for_cudnn(x, weight, of_space(m, a[3], 0));
    if (node) {
        node->of.convolution.is_depthwise = is_depthwise;
        node->of.convolution.is_channels_last = is_last;
    }
    tide_save(m, node, x);
    tide_save(m, node, weight);
    tide_tensor *input = in_layout(m, x, is_last);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_image_like(m, &shape, x->dtype, is_last));
    tide_release(m, in_layout(m, weight, is_last));
    tide_release(m, input);
    return tide_of_tensor(out);
}

/* ---- interpolate: UpSample*.cu; channels-last inputs stay so ---- */

static tide_tensor *in_format_of(tide_machine *m, const tide_tensor *x, const tide_shape *shape) {
    return tide_image_like(m, shape, x->dtype, tide_suggests_channels_last(x));
}

static void interpolate_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = in_format_of(m, grads[0], node->extra.shape);
}
static const tide_backward interpolate_backward = {"UpsampleBackward0", interpolate_run};

/* UpSample*AA: "a temporary hack to prevent a silence correctness issue": its kernels read contiguous tensors. */
static void antialias_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    tide_release(m, tide_contiguous(m, grads[0]));
}
static const tide_backward antialias_backward = {"UpsampleAaBackward0", antialias_run};

/* To a size [height, width]; the interpolation mode does not matter, but for antialias. */
static tide_value op_interpolate(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape = *x->shape, size = {.dims = 0};
    if (shape.dims < 3 || !tide_arg_shape(m, a[1], &size) || size.dims != shape.dims - 2) {
        tide_fail(m, TIDE_ERR_SHAPE, "interpolate: %s to a size of %d numbers", tide_shape_text(m, &shape), size.dims);
        return tide_none();
    }
    for (int i = 2; i < shape.dims; i++)
        shape.dim[i].size = size.dim[i - 2].size, shape.dim[i].name = size.dim[i - 2].name;
    bool is_antialias = tide_arg_bool(m, a[3]);
    tide_node *node = tide_node_new(m, is_antialias ? &antialias_backward : &interpolate_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_tensor *out = in_format_of(m, x, &shape);
    if (is_antialias) {
        tide_tensor *written = tide_suggests_channels_last(x) ? tide_empty(m, out->shape, out->dtype) : NULL;
        tide_release(m, tide_contiguous(m, x));
        tide_release(m, written);
    }
    return tide_of_tensor(tide_set_grad_fn(m, node, out));
}

/* ---- pooling: AveragePool2d.cu, DilatedMaxPool2d.cu; adaptive pooling to one value is a mean ---- */

static void pool_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0),
                *indices = node->of.max_pool.has_indices ? tide_saved_at(m, node, 1) : NULL;
    results[0] = tide_empty_like(m, x, x->dtype);
    tide_release(m, tide_contiguous(m, grads[0]));
    tide_release(m, indices);
    tide_release(m, x);
}
static const tide_backward pool_backward = {"Pool2DBackward0", pool_run};

static tide_value pool(tide_machine *m, tide_value *a, bool has_indices) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape = *x->shape;
    bool ok = shape.dims > 2;
    for (int i = 2; ok && i < shape.dims; i++) {
        int64_t window = of_space(m, a[1], i - 2), stride = of_space(m, a[2], i - 2),
                padding = of_space(m, a[3], i - 2);
        int64_t room = shape.dim[i].size + 2 * padding - window;
        ok = room >= 0 && stride > 0 && padding >= 0 && padding < INT64_C(1) << 40;
        if (!ok) break;
        if (tide_arg_bool(m, a[4])) room += stride - 1;
        shape.dim[i].size = room / stride + 1;
        if (stride > 1 || window > 1 + 2 * padding) shape.dim[i].name = 0;
    }
    if (!ok) {
        tide_fail(m, TIDE_ERR_SHAPE, "%s: an input of %s is smaller than the window", m->op,
                  tide_shape_text(m, x->shape));
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &pool_backward, &x, 1);
    if (node) node->of.max_pool.has_indices = has_indices;
    tide_save(m, node, x);
    tide_tensor *out = tide_set_grad_fn(m, node, in_format_of(m, x, &shape));
    if (has_indices) {
        tide_tensor *indices = tide_image_like(m, &shape, TIDE_INT64, prefers_channels_last(x));
        tide_save(m, node, indices);
        tide_release(m, indices);
    }
    return tide_of_tensor(out);
}
static tide_value op_avg_pool(tide_machine *m, tide_value *a) {
    return pool(m, a, false);
}
static tide_value op_max_pool(tide_machine *m, tide_value *a) {
    return pool(m, a, true);
}

/* AdaptiveAveragePooling.cpp: to a single value it is a mean, which as_strided_ gives the layout of its input. */
static void as_strided_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)node;
    results[0] = tide_empty(m, grads[0]->shape, grads[0]->dtype);
}
static const tide_backward as_strided_backward = {"AsStridedBackward0", as_strided_run};

static tide_value op_global_avg_pool(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (x->shape->dims != 4) {
        tide_fail(m, TIDE_ERR_SHAPE, "global_avg_pool2d of %s", tide_shape_text(m, x->shape));
        return tide_none();
    }
    bool is_last = x->stride[1] == 1 && x->stride[3] >= x->shape->dim[1].size && x->stride[2] >= x->stride[3] &&
                   x->shape->dim[1].size > 1;
    tide_value dims = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (int i = 2; i < 4; i++) tide_list_push(m, dims.list, tide_of_int(i));
    tide_value made = tide_op_find(TIDE_TEXT("mean"))->run(m, (tide_value[]){a[0], dims, tide_of_bool(true)});
    tide_value_release(m, dims);
    if (!is_last || made.kind != TIDE_VALUE_TENSOR) return made;
    tide_node *node = tide_node_new(m, &as_strided_backward, &made.tensor, 1);
    tide_tensor *out = tide_alias(m, made.tensor);
    tide_release(m, made.tensor);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, out) : out);
}

static const tide_op conv_ops[] = {
    {"conv1d", "x, weight, bias=none, stride=1, padding=0, groups=1", TIDE_CAST_LOWER, op_conv},
    {"conv2d", "x, weight, bias=none, stride=1, padding=0, groups=1", TIDE_CAST_LOWER, op_conv},
    {"interpolate", "x, size, mode='nearest', antialias=false", TIDE_CAST_FP32, op_interpolate},
    {"avg_pool2d", "x, window, stride, padding=0, ceil=false", TIDE_CAST_NONE, op_avg_pool},
    {"global_avg_pool2d", "x", TIDE_CAST_NONE, op_global_avg_pool},
    {"max_pool2d", "x, window, stride, padding=0, ceil=false", TIDE_CAST_NONE, op_max_pool},
    {"conv3d", "x, weight, bias=none, stride=1, padding=0, groups=1", TIDE_CAST_LOWER, op_conv},
};
TIDE_OP_TABLE(conv)
