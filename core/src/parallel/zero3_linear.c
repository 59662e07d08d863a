/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/linear.py */
#include "parallel/zero3.h"
#include "tensor/ops/ops.h"

/* x.reshape(-1, x.shape[-1]) */
static tide_tensor *rows_of(tide_machine *m, tide_tensor *x) {
    int last = x->shape->dims - 1;
    tide_shape shape = {.dims = 2};
    shape.dim[1] = x->shape->dim[last];
    shape.dim[0].size = shape.dim[1].size ? tide_count(x) / shape.dim[1].size : 0;
    return tide_reshape(m, x, &shape);
}

static void zero3_linear_backward(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *weight = tide_saved_at(m, node, 1), *g = grads[0];
    if (tide_needs_input_grad(node, 0)) {
        results[0] = tide_matmul(m, g, weight);
        results[0]->is_view = false; /* _unsafe_view: gradients may be added in place */
    }
    if (tide_needs_input_grad(node, 1)) {
        tide_tensor *rows = rows_of(m, g), *columns = tide_transpose(m, rows, 0, 1), *inputs = rows_of(m, x);
        results[1] = tide_matmul(m, columns, inputs);
        tide_release(m, inputs);
        tide_release(m, columns);
        tide_release(m, rows);
    }
    if (node->edge_count > 2 && tide_needs_input_grad(node, 2))
        results[2] = tide_sum_plain(m, g, (1u << (g->shape->dims - 1)) - 1, false, (tide_dtype)g->dtype);
    tide_release(m, weight);
    tide_release(m, x);
}
static const tide_backward linear_function = {"LinearFunctionForZeroStage3", zero3_linear_backward};

/* Saves the parameter itself, whose data is partitioned and gathered again, and the input whether or not it is needed.
 */
tide_tensor *tide_zero3_linear(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias) {
    tide_tensor *inputs[3] = {x, weight, bias};
    tide_node *node = tide_node_with(m, &linear_function, inputs, bias ? 3 : 2, 1, 3);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_tensor *out = tide_linear_eager(m, x, weight, bias);
    m->state.grad_enabled = grad_enabled;
    if (node) {
        tide_save(m, node, x);
        tide_save(m, node, weight);
        tide_save(m, node, bias);
    }
    return tide_set_grad_fn(m, node, out);
}
