/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and the losses that use it: aten/src/ATen/native/cuda/SoftMax.cu, LossNLL.cpp, LossCTC.cu. */
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

tide_tensor *tide_safe_softmax(tide_machine *m, tide_tensor *scores) {
    tide_tensor *out = tide_softmax(m, scores, -1);
    tide_tensor *is_masked = tide_empty(m, scores->shape, TIDE_BOOL);
    tide_shape rows = *scores->shape, scalar = {.dims = 0};
    rows.dim[rows.dims - 1].size = 1;
    tide_tensor *all = tide_empty(m, &rows, TIDE_BOOL), *zero = tide_empty(m, &scalar, out->dtype);
    tide_release(m, zero);
    tide_release(m, all);
    tide_release(m, is_masked);
    return out;
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

/* ---- ctc_loss: LossCTC.cu ---- */

/* The lengths of inputs and targets on the device, and where each sample's targets begin. */
enum { CTC_LENGTHS = 3 };

static void ctc_lengths(tide_machine *m, int64_t samples, tide_tensor *lengths[CTC_LENGTHS]) {
    for (int i = 0; i < CTC_LENGTHS; i++) lengths[i] = TIDE_EMPTY(m, TIDE_INT64, samples);
}

static void release_lengths(tide_machine *m, tide_tensor *lengths[CTC_LENGTHS]) {
    for (int i = 0; i < CTC_LENGTHS; i++) tide_release(m, lengths[i]);
}

/* ctc_loss_backward_gpu_template, is_large: the blanks, every second target, are summed by operations of their own. */
static void ctc_blanks(tide_machine *m, const tide_shape *log_probs, int64_t targets) {
    int64_t inputs = log_probs->dim[0].size, samples = log_probs->dim[1].size, labels = log_probs->dim[2].size;
    if (2 * inputs + 24 * samples / 10 + 2 * labels / 10 <= 450) return;
    tide_tensor *sum = TIDE_EMPTY(m, TIDE_FP32, samples, inputs, targets + 1);
    tide_value_release(
        m,
        tide_op_find(TIDE_TEXT("logsumexp"))
            ->run(m, (tide_value[]){{.kind = TIDE_VALUE_TENSOR, .tensor = sum}, tide_of_int(2), tide_of_bool(true)}));
    tide_release(m, sum);
}

static void ctc_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)grads;
    tide_tensor *saved[4], *lengths[CTC_LENGTHS];
    for (int i = 0; i < 4; i++) saved[i] = tide_saved_at(m, node, i);
    const tide_shape *log_probs = saved[0]->shape, *log_alpha = saved[3]->shape;
    ctc_lengths(m, log_probs->dim[1].size, lengths);
    tide_tensor *log_beta = tide_empty(m, log_alpha, TIDE_FP32), *grad = tide_empty(m, log_probs, TIDE_FP32);
    ctc_blanks(m, log_probs, (log_alpha->dim[2].size - 1) / 2);
    if (node->of.ctc.zero_infinity) { /* where(neg_log_likelihood == inf, 0, grad) */
        tide_tensor *zero = TIDE_EMPTY(m, TIDE_FP32, 1),
                    *is_infinite = TIDE_EMPTY(m, TIDE_BOOL, log_probs->dim[1].size);
        results[0] = tide_empty(m, log_probs, TIDE_FP32);
        tide_release(m, is_infinite);
        tide_release(m, zero);
        tide_release(m, grad);
    } else {
        results[0] = grad;
    }
    tide_release(m, log_beta);
    release_lengths(m, lengths);
    for (int i = 3; i >= 0; i--) tide_release(m, saved[i]);
}
static const tide_backward ctc_backward = {"CtcLossBackward0", ctc_run};

/* torch._ctc_loss of inputs (T, N, C) in fp32 and so many concatenated targets of each sample: the negative log
 * likelihood of each sample; without cuDNN. */
static tide_value op_ctc_loss(tide_machine *m, tide_value *a) {
    tide_tensor *log_probs = tide_arg_tensor(m, a[0]), *targets = tide_arg_tensor(m, a[1]), *lengths[CTC_LENGTHS];
    if (log_probs->shape->dims != 3) {
        tide_fail(m, TIDE_ERR_SHAPE, "_ctc_loss of %s", tide_shape_text(m, log_probs->shape));
        return tide_none();
    }
    const tide_dim *dim = log_probs->shape->dim;
    int64_t most = tide_arg_int(m, a[2]);
    tide_node *node = tide_node_new(m, &ctc_backward, &log_probs, 1);
    if (node) node->of.ctc.zero_infinity = tide_arg_bool(m, a[3]);
    ctc_lengths(m, dim[1].size, lengths);
    tide_tensor *log_alpha = TIDE_EMPTY(m, TIDE_FP32, dim[1].size, dim[0].size, 2 * most + 1),
                *loss = tide_set_grad_fn(m, node, TIDE_EMPTY(m, TIDE_FP32, dim[1].size));
    release_lengths(m, lengths);
    tide_save(m, node, log_probs);
    tide_save(m, node, targets);
    tide_save(m, node, loss);
    tide_save(m, node, log_alpha);
    tide_release(m, log_alpha);
    return tide_of_tensor(loss);
}

static const tide_op softmax_ops[] = {
    {"softmax", "x, dim=-1, dtype=none", TIDE_CAST_NONE, op_softmax},
    {"log_softmax", "x, dim=-1, dtype=none", TIDE_CAST_NONE, op_log_softmax},
    {"cross_entropy", "input, target, reduces=true", TIDE_CAST_NONE, op_cross_entropy},
    {"_ctc_loss", "log_probs, targets, target_length, zero_infinity=false", TIDE_CAST_NONE, op_ctc_loss},
    {"mse_loss", "input, target", TIDE_CAST_FP32, op_mse_loss},
};
TIDE_OP_TABLE(softmax)
