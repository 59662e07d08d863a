/* Normalisation with kernels of its own: aten/src/ATen/native/cuda/layer_norm_kernel.cu. */
#include "ops.h"

static tide_shape statistics_shape(const tide_tensor *x) {
    tide_shape shape = *x->shape;
    shape.size[shape.dims - 1] = 1;
    shape.name[shape.dims - 1] = 0;
    return shape;
}

static void layer_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0);
    tide_tensor *statistics[2] = {tide_saved_at(m, node, 3), tide_saved_at(m, node, 4)};
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    if (tide_wants(node, 0)) results[0] = tide_empty(m, x->shape, x->dtype);
    for (int i = 1; i < 3; i++) {
        if (!tide_wants(node, i)) continue;
        const tide_meta *meta = &node->edges[i].node->outputs[node->edges[i].input];
        results[i] = tide_empty(m, meta->shape, meta->dtype);
    }
    if (!tide_is_contiguous(grads[0])) tide_touch(m, tide_bytes(grads[0])); /* the kernel's contiguous copy */
    tide_release(m, input);
    tide_release(m, statistics[1]);
    tide_release(m, statistics[0]);
    tide_release(m, x);
}
static const tide_backward layer_norm_backward = {"NativeLayerNormBackward0", layer_norm_run};

/* Saves its inputs and the fp32 statistics, whatever of it trains (one formula for all gradients). */
static tide_value op_layer_norm(tide_machine *m, tide_value *a) {
    tide_tensor *all[3] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[1]), tide_arg_tensor_or_none(m, a[2])};
    tide_tensor *x = all[0];
    if (x->shape->dims == 0 || (all[1] && all[1]->shape->size[0] != x->shape->size[x->shape->dims - 1])) {
        tide_fail(m, TIDE_ERR_SHAPE, "layer_norm: an input of %s for a weight of %s", tide_shape_text(m, x->shape),
                  all[1] ? tide_shape_text(m, all[1]->shape) : "none");
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &layer_norm_backward, all, 3);
    for (int i = 0; i < 3; i++) tide_save(m, node, all[i]);
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    tide_tensor *out = tide_made_by(m, node, tide_empty(m, x->shape, x->dtype));
    tide_shape shape = statistics_shape(x);
    tide_tensor *mean = tide_empty(m, &shape, TIDE_FP32), *rstd = tide_empty(m, &shape, TIDE_FP32);
    tide_save(m, node, mean);
    tide_save(m, node, rstd);
    tide_release(m, rstd);
    tide_release(m, mean);
    tide_release(m, input);
    return tide_of_tensor(out);
}

static void rms_norm_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *x = tide_saved_at(m, node, 0), *rstd = tide_saved_at(m, node, 2);
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    if (tide_wants(node, 0)) results[0] = tide_empty(m, x->shape, x->dtype);
    if (tide_wants(node, 1)) {
        const tide_meta *meta = &node->edges[1].node->outputs[node->edges[1].input];
        results[1] = tide_empty(m, meta->shape, meta->dtype);
    }
    if (!tide_is_contiguous(grads[0])) tide_touch(m, tide_bytes(grads[0]));
    tide_release(m, input);
    tide_release(m, rstd);
    tide_release(m, x);
}
static const tide_backward rms_norm_backward = {"FusedRmsNormBackward0", rms_norm_run};

/* torch.nn.functional.rms_norm, 2.9 and later: _fused_rms_norm. */
static tide_value op_rms_norm(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor_or_none(m, a[1])};
    tide_tensor *x = both[0];
    tide_node *node = tide_node_new(m, &rms_norm_backward, both, 2);
    for (int i = 0; i < 2; i++) tide_save(m, node, both[i]);
    tide_tensor *input = tide_is_contiguous(x) ? NULL : tide_empty(m, x->shape, x->dtype);
    tide_tensor *out = tide_made_by(m, node, tide_empty(m, x->shape, x->dtype));
    tide_shape shape = statistics_shape(x);
    tide_tensor *rstd = tide_empty(m, &shape, TIDE_FP32);
    tide_save(m, node, rstd);
    tide_release(m, rstd);
    tide_release(m, input);
    return tide_of_tensor(out);
}

static const tide_op norm_ops[] = {
    {"layer_norm", "x, weight=none, bias=none", TIDE_CAST_FP32, op_layer_norm},
    {"rms_norm", "x, weight=none", TIDE_CAST_FP32, op_rms_norm},
};
TIDE_OP_TABLE(norm)
