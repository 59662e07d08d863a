/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and the losses that use it: aten/src/ATen/native/cuda/SoftMax.cu, LossNLL.cpp. */
#include "tensor/ops/ops.h"

static void softmax_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *output = tide_saved_at(m, node, 0);
    tide_dtype dtype = (tide_dtype)node->extra.dtype;
    results[0] = tide_empty(m, output->shape, dtype);
    tide_tensor *both[2] = {grads[0], output}, *g;
    g = node->of.softmax.needs_product ? tide_elementwise(m, both, 2, tide_promote(grads[0], output))
                                       : tide_retain(grads[0]); /* grad * output */
    if (!tide_is_contiguous(g))
        tide_alloc_and_free(m, tide_bytes(g)); /* SoftMax.cu, host_softmax_backward: grad.contiguous() */
    tide_release(m, g);
    tide_release(m, output);
}
static const tide_backward softmax_backward = {"SoftmaxBackward0", softmax_run};
static const tide_backward log_softmax_backward = {"LogSoftmaxBackward0", softmax_run};

/* fp16 is widened inside of the kernel, bf16 by a copy before it. */
static tide_tensor *normalized(tide_machine *m, const tide_backward *backward, tide_tensor *x, tide_dtype dtype,
                               bool needs_product) {
    bool is_fused = x->dtype == TIDE_FP16 && dtype == TIDE_FP32;
    tide_tensor *wide = is_fused ? tide_retain(x) : tide_to(m, x, dtype);
    tide_node *node = tide_node_new(m, backward, &wide, 1);
    if (node) {
        node->extra.dtype = wide->dtype;
        node->of.softmax.needs_product = needs_product;
    }
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, x->shape, dtype));
    if (!tide_is_contiguous(wide)) tide_alloc_and_free(m, tide_bytes(wide));
    tide_save(m, node, out);
    tide_release(m, wide);
    return out;
}

tide_tensor *tide_softmax(tide_machine *m, tide_tensor *x, int64_t dim) {
    (void)dim;
    return normalized(m, &softmax_backward, x, (tide_dtype)x->dtype, true);
}

static tide_dtype wanted_dtype(const tide_machine *m, const tide_tensor *x, tide_value dtype) {
    if (dtype.kind == TIDE_VALUE_DTYPE) return dtype.dtype;
    if (m->state.autocast_enabled && tide_dtype_is_float((tide_dtype)x->dtype))
        return TIDE_FP32; /* fp32_set_opt_dtype */
    return (tide_dtype)x->dtype;
}

static tide_value op_softmax(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(normalized(m, &softmax_backward, x, wanted_dtype(m, x, a[2]), true));
}

static tide_value op_log_softmax(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(normalized(m, &log_softmax_backward, x, wanted_dtype(m, x, a[2]), false));
}

/* ---- nll_loss: the gradient is a zero tensor of the input's size ---- */

static void nll_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *target = tide_saved_at(m, node, 1),
                *weight = tide_saved_at(m, node, 2);
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    tide_release(m, weight);
    tide_release(m, target);
    tide_release(m, x);
}
static const tide_backward nll_backward = {"NllLossBackward0", nll_run};

/* reduces: to the mean; else a loss for each row. */
static tide_tensor *nll_loss(tide_machine *m, tide_tensor *x, tide_tensor *target, bool reduces) {
    tide_node *node = tide_node_new(m, &nll_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_save(m, node, x);
    tide_save(m, node, target);
    tide_shape scalar = {.dims = 0}, rows = tide_shape1(x->shape->dim[0]);
    tide_tensor *loss = tide_set_grad_fn(m, node, tide_empty(m, reduces ? &scalar : &rows, x->dtype));
    tide_tensor *weight = tide_empty(m, &scalar, x->dtype); /* total_weight */
    tide_save(m, node, weight);
    tide_release(m, weight);
    return loss;
}

/* F.cross_entropy with class indices: log_softmax, then nll_loss. */
static tide_value op_cross_entropy(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *target = tide_arg_tensor(m, a[1]);
    if (x->shape->dims != 2 || tide_count(target) != x->shape->dim[0].size) {
        tide_fail(m, TIDE_ERR_SHAPE, "cross_entropy: logits of %s for targets of %s", tide_shape_text(m, x->shape),
                  tide_shape_text(m, target->shape));
        return tide_none();
    }
    tide_tensor *log_probabilities = normalized(m, &log_softmax_backward, x, (tide_dtype)x->dtype, false);
    bool is_cast = m->state.autocast_enabled && x->dtype != TIDE_FP32; /* nll_loss is on autocast's fp32 list;
                                                                        * log_softmax was given its dtype */
    tide_tensor *wide = is_cast ? tide_to(m, log_probabilities, TIDE_FP32) : tide_retain(log_probabilities),
                *loss = nll_loss(m, wide, target, a[2].truth);
    tide_release(m, wide);
    tide_release(m, log_probabilities); /* an argument of nll_loss, until that returns */
    return tide_of_tensor(loss);
}

/* ---- mse_loss, Loss.cpp: both inputs kept; the meta function sizes the output for the unreduced loss, which is then
 * computed beside it and averaged into the output's first element ---- */

static void mse_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *input = tide_saved_at(m, node, 0), *target = tide_saved_at(m, node, 1);
    for (int i = 1; i >= 0; i--)
        if (tide_needs_input_grad(node, i)) results[i] = tide_empty_like(m, input, grads[0]->dtype);
    tide_release(m, target);
    tide_release(m, input);
}
static const tide_backward mse_backward = {"MseLossBackward0", mse_run};

static tide_value op_mse_loss(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    tide_node *node = tide_node_new(m, &mse_backward, both, 2);
    tide_save(m, node, both[0]);
    tide_save(m, node, both[1]);
    tide_tensor *full = tide_elementwise(m, both, 2, tide_promote(both[0], both[1]));
    tide_shape scalar = {.dims = 0};
    tide_tensor *loss = tide_view_as(m, full, tide_layout_of(m, &scalar, NULL));
    loss->is_view = false; /* it replaces the first element */
    tide_alloc_and_free(m, tide_bytes(full));
    tide_release(m, full);
    return tide_of_tensor(tide_set_grad_fn(m, node, loss));
}

static const tide_op softmax_ops[] = {
    {"softmax", "x, dim=-1, dtype=none", TIDE_CAST_NONE, op_softmax},
    {"log_softmax", "x, dim=-1, dtype=none", TIDE_CAST_NONE, op_log_softmax},
    {"cross_entropy", "input, target, reduces=true", TIDE_CAST_NONE, op_cross_entropy},
    {"mse_loss", "input, target", TIDE_CAST_FP32, op_mse_loss},
};
TIDE_OP_TABLE(softmax)
