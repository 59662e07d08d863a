/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation with dedicated kernels: aten/src/ATen/native/cuda/layer_norm_kernel.cu. */
#include "tensor/ops/ops.h"

static tide_shape statistics_shape(const tide_tensor *x) {
    tide_shape shape = *x->shape;
    shape.dim[shape.dims - 1].size = 1;
    shape.dim[shape.dims - 1].name = 0;
    return shape;
}

/* The gradient of parameter i in the form that autograd needs, or NULL. */
static tide_tensor *of_edge(tide_machine *m, const tide_node *node, int i) {
    if (!tide_needs_input_grad(node, i)) return NULL;
    const tide_meta *meta = &node->edges[i].node->outputs[node->edges[i].input];
    return tide_empty(m, meta->shape, meta->dtype);
}

/* The same of a kernel that makes it like its parameter; autograd casts it. */
static tide_tensor *like_parameter(tide_machine *m, tide_node *node, int i) {
    if (!tide_needs_input_grad(node, i)) return NULL;
    const tide_meta *meta = &node->edges[i].node->outputs[node->edges[i].input];
    tide_tensor *parameter = tide_saved_at(m, node, i),
                *made = tide_empty(m, meta->shape, (tide_dtype)parameter->dtype);
    tide_release(m, parameter);
    return made;
}

/* LaunchGammaBetaBackwardCUDAKernel: of many short rows, the gradients of weight and bias are summed by blocks first.
 */
static void sum_blocks(tide_machine *m, const tide_tensor *x, tide_tensor **sums, int count) {
    enum { MANY_ROWS = 64 * 1024, MOST_BLOCKS = MANY_ROWS / 2, TILE = 32 };
    int64_t columns = x->shape->dim[x->shape->dims - 1].size, rows = columns ? tide_count(x) / columns : 0;
    if (rows <= MANY_ROWS || columns / TILE >= m->device.sms / 2) return;
    int64_t most = MOST_BLOCKS / ((columns + TILE - 1) / TILE), wanted = (rows + TILE - 1) / TILE;
    tide_tensor *blocks[2] = {NULL, NULL};
    for (int i = 0; i < count; i++)
        if (sums[i]) blocks[i] = TIDE_EMPTY(m, (tide_dtype)sums[i]->dtype, wanted < most ? wanted : most, columns);
    for (int i = 0; i < count; i++) {
        if (!sums[i]) continue;
        tide_tensor *sum = tide_sum_plain(m, blocks[i], 1, false, (tide_dtype)sums[i]->dtype);
        tide_release(m, sums[i]);
        sums[i] = sum;
    }
    for (int i = count - 1; i >= 0; i--) tide_release(m, blocks[i]);
}

static void layer_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0);
    tide_tensor *statistics[2] = {tide_saved_at(m, node, 3), tide_saved_at(m, node, 4)};
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty(m, x->shape, x->dtype);
    for (int i = 1; i < 3; i++) results[i] = of_edge(m, node, i);
    tide_tensor *g = tide_is_contiguous(grads[0]) ? NULL : tide_empty(m, grads[0]->shape, grads[0]->dtype);
    sum_blocks(m, x, results + 1, 2);
    tide_release(m, g); /* the kernel's contiguous copy */
    tide_release(m, input);
    tide_release(m, statistics[1]);
    tide_release(m, statistics[0]);
    tide_release(m, x);
}
static const tide_backward layer_norm_backward = {"NativeLayerNormBackward0", layer_norm_run};

/* Saves its inputs and the fp32 statistics, whichever of its inputs train (one formula for all gradients). */
static tide_value op_layer_norm(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[1]),
                           tide_arg_tensor_or_none(m, a[2])};
    tide_tensor *x = all[0];
    if (x->shape->dims == 0 || (all[1] && all[1]->shape->dim[0].size != x->shape->dim[x->shape->dims - 1].size)) {
        tide_fail(m, TIDE_ERR_SHAPE, "layer_norm: an input of %s for a weight of %s", tide_shape_text(m, x->shape),
                  all[1] ? tide_shape_text(m, all[1]->shape) : "none");
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &layer_norm_backward, all, 3);
    for (int i = 0; i < 3; i++) tide_save(m, node, all[i]);
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
    tide_shape shape = statistics_shape(x);
    tide_tensor *mean = tide_empty(m, &shape, TIDE_FP32), *rstd = tide_empty(m, &shape, TIDE_FP32);
    tide_save(m, node, mean);
    tide_save(m, node, rstd);
    tide_release(m, input); /* the statistics belong to the kernel, this to its caller */
    tide_release(m, rstd);
    tide_release(m, mean);
    return tide_of_tensor(out);
}

static void rms_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    bool gathers = node->of.rms_norm.gathers_grad && !grads[0]->is_replicated;
    tide_tensor *x = tide_saved_at(m, node, 0), *rstd = tide_saved_at(m, node, 2);
    tide_tensor *reduced = gathers ? tide_empty_like(m, grads[0], (tide_dtype)grads[0]->dtype) : NULL;
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty(m, x->shape, x->dtype);
    if (results[0]) results[0]->is_replicated = node->of.rms_norm.gathers_grad;
    results[1] = like_parameter(m, node, 1);
    tide_tensor *g = tide_is_contiguous(grads[0]) ? NULL : tide_empty(m, grads[0]->shape, grads[0]->dtype);
    sum_blocks(m, x, results + 1, 1);
    tide_release(m, g);
    tide_release(m, input);
    tide_release(m, reduced);
    tide_release(m, rstd);
    tide_release(m, x);
}
static const tide_backward rms_norm_backward = {"FusedRmsNormBackward0", rms_norm_run};

/* torch.nn.functional.rms_norm, since 2.9: _fused_rms_norm. */
static tide_value op_rms_norm(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[1])};
    tide_tensor *x = both[0];
    tide_node *node = tide_node_new(m, &rms_norm_backward, both, 2);
    if (node) node->of.rms_norm.gathers_grad = both[1] && both[1]->is_replicated && !both[1]->has_partial_grad;
    for (int i = 0; i < 2; i++) tide_save(m, node, both[i]);
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
    tide_shape shape = statistics_shape(x);
    tide_tensor *rstd = tide_empty(m, &shape, TIDE_FP32);
    tide_save(m, node, rstd);
    tide_release(m, rstd);
    tide_release(m, input);
    return tide_of_tensor(out);
}

/* ---- batch_norm: Normalization.cu, cudnn/BatchNorm.cpp ---- */

static tide_shape pair_shape(int64_t a, int64_t b) {
    return (tide_shape){.dims = b ? 2 : 1, .dim = {{a, 0}, {b, 0}}};
}

static void batch_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *statistics[2] = {NULL, NULL}, *sums[2] = {NULL, NULL};
    for (int i = 0; i < 2 && node->of.batch_norm.keeps_statistics; i++) statistics[i] = tide_saved_at(m, node, i + 1);
    tide_tensor *g = tide_is_contiguous(x) ? tide_contiguous(m, grads[0]) : tide_retain(grads[0]);
    /* channels last: two passes */
    bool by_rows = x->shape->dims == 2 || (x->dtype != TIDE_FP32 && !tide_is_contiguous(x));
    tide_shape channels = pair_shape(x->shape->dim[1].size, 0);
    /* x, weight, bias; in row-wise order x comes last */
    for (int i = 0; i < 2 && by_rows; i++) sums[i] = tide_empty(m, &channels, TIDE_FP32);
    for (int i = 0; i < 3; i++) {
        int of = by_rows ? (i + 1) % 3 : i;
        results[of] = of                               ? of_edge(m, node, of)
                      : tide_needs_input_grad(node, 0) ? tide_empty_like(m, x, x->dtype)
                                                       : NULL;
    }
    for (int i = 1; i >= 0; i--) tide_release(m, sums[i]);
    tide_release(m, g);
    for (int i = 0; i < 2; i++) tide_release(m, statistics[i]);
    tide_release(m, x);
}
static const tide_backward batch_norm_backward = {"NativeBatchNormBackward0", batch_norm_run};

/* In evaluation mode, fp32 saves no statistics of its own. */
static tide_value op_batch_norm(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[1]),
                           tide_arg_tensor_or_none(m, a[2])};
    tide_tensor *x = all[0], *statistics[2];
    bool keeps = tide_arg_bool(m, a[3]) || x->dtype != TIDE_FP32;
    if (x->shape->dims < 2 || (all[1] && all[1]->shape->dim[0].size != x->shape->dim[1].size)) {
        tide_fail(m, TIDE_ERR_SHAPE, "batch_norm: an input of %s for a weight of %s", tide_shape_text(m, x->shape),
                  all[1] ? tide_shape_text(m, all[1]->shape) : "none");
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &batch_norm_backward, all, 3);
    if (node) node->of.batch_norm.keeps_statistics = keeps;
    tide_save(m, node, x);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty_like(m, x, x->dtype));
    tide_shape channels = pair_shape(x->shape->dim[1].size, 0);
    for (int i = 0; i < 2 && keeps; i++) {
        statistics[i] = tide_empty(m, &channels, TIDE_FP32);
        tide_save(m, node, statistics[i]);
    }
    for (int i = 0; i < 2 && keeps; i++) tide_release(m, statistics[i]);
    return tide_of_tensor(out);
}

/* ---- group_norm: group_norm_kernel.cu ---- */

static void group_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *mean = tide_saved_at(m, node, 1), *rstd = tide_saved_at(m, node, 2);
    tide_tensor *g = tide_contiguous(m, grads[0]), *scratch[5];
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty(m, x->shape, x->dtype);
    for (int i = 1; i < 3; i++) results[i] = of_edge(m, node, i);
    tide_shape channels = pair_shape(x->shape->dim[0].size, x->shape->dim[1].size);
    for (int i = 0; i < 5; i++)
        scratch[i] =
            (i < 2 || results[0]) ? tide_empty(m, i == 2 || i == 3 ? mean->shape : &channels, TIDE_FP32) : NULL;
    for (int i = 0; i < 5; i++) tide_release(m, scratch[(const int[]){3, 2, 4, 1, 0}[i]]);
    tide_release(m, g);
    tide_release(m, x);
    tide_release(m, mean);
    tide_release(m, rstd);
}
static const tide_backward group_norm_backward = {"NativeGroupNormBackward0", group_norm_run};

static tide_value op_group_norm(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[2]),
                           tide_arg_tensor_or_none(m, a[3])};
    int64_t groups = tide_arg_int(m, a[1]);
    if (all[0]->shape->dims < 2 || groups < 1 || all[0]->shape->dim[1].size % groups) {
        tide_fail(m, TIDE_ERR_SHAPE, "group_norm: %lld groups of %s", (long long)groups,
                  tide_shape_text(m, all[0]->shape));
        return tide_none();
    }
    tide_tensor *x = tide_contiguous(m, all[0]), *scratch[4];
    tide_node *node = tide_node_new(m, &group_norm_backward, all, 3);
    tide_save(m, node, x);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
    tide_shape of_groups = pair_shape(x->shape->dim[0].size, groups),
               channels = pair_shape(x->shape->dim[0].size, x->shape->dim[1].size);
    tide_tensor *mean = tide_empty(m, &of_groups, x->dtype), *rstd = tide_empty(m, &of_groups, x->dtype);
    tide_save(m, node, mean);
    tide_save(m, node, rstd);
    for (int i = x->dtype == TIDE_FP32 ? 2 : 0; i < 4; i++)
        scratch[i] = tide_empty(m, i < 2 ? &of_groups : &channels, TIDE_FP32);
    for (int i = 3; i >= (x->dtype == TIDE_FP32 ? 2 : 0); i--) tide_release(m, scratch[i]);
    tide_release(m, rstd);
    tide_release(m, mean);
    tide_release(m, x);
    return tide_of_tensor(out);
}

/* ---- weight_norm: WeightNorm.cu, whose norms along one dimension are fp32 ---- */

static void weight_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[3];
    for (int i = 0; i < 3; i++) saved[i] = tide_saved_at(m, node, i);
    tide_tensor *g = tide_contiguous(m, grads[0]);
    for (int i = 0; i < 2; i++) results[i] = tide_empty(m, saved[i]->shape, (tide_dtype)saved[i]->dtype);
    tide_release(m, g);
    for (int i = 2; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward weight_norm_backward = {"WeightNormInterfaceBackward0", weight_norm_run};

/* torch._weight_norm(v, g, dim) of the first or last dimension: one formula for both gradients. */
static tide_value op_weight_norm(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    tide_node *node = tide_node_new(m, &weight_norm_backward, both, 2);
    for (int i = 0; i < 2; i++) tide_save(m, node, both[i]);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, both[0]->shape, (tide_dtype)both[0]->dtype)),
                *norms = tide_empty(m, both[1]->shape, TIDE_FP32);
    tide_save(m, node, norms);
    tide_release(m, norms);
    return tide_of_tensor(out);
}

static const tide_op norm_ops[] = {
    {"layer_norm", "x, weight=none, bias=none", TIDE_CAST_FP32, op_layer_norm},
    {"rms_norm", "x, weight=none", TIDE_CAST_FP32, op_rms_norm},
    {"batch_norm", "x, weight=none, bias=none, training=true", TIDE_CAST_NONE, op_batch_norm},
    {"weight_norm", "v, g", TIDE_CAST_NONE, op_weight_norm},
    {"group_norm", "x, groups, weight=none, bias=none", TIDE_CAST_FP32, op_group_norm},
};
TIDE_OP_TABLE(norm)
