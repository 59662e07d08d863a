/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes of autograd's graph hold beside tensors and edges, an entry for each kind. */
#ifndef TIDE_TENSOR_NODE_MEMBERS_H
#define TIDE_TENSOR_NODE_MEMBERS_H

#include <stdbool.h>

#include "tensor/layout.h"

struct tide_tensor;

/* What a backward knows besides tensors and edges: members as torch/csrc/autograd/generated/Functions.h declares them,
 * or what an autograd.Function keeps on ctx. Zero where nobody has set them. */
typedef union tide_node_members {
    struct {
        struct tide_tensor *variable; /* the leaf, owned */
        bool keeps_dtype;             /* Tensor.grad_dtype is None: a gradient is not cast */
    } accumulate_grad;
    struct {
        tide_dim mat2[2];
        bool is_mat1_column_major, is_mat2_column_major;
    } mm;
    struct {
        tide_layout *mat2; /* of its gradient */
    } grouped_mm;
    struct {
        bool has_dropout;
        int64_t kv_heads, keys, sequences;
    } attention;
    struct {
        uint32_t dims; /* those that are summed: a bit each */
        bool keepdim, is_mean;
    } reduction;
    struct {
        int64_t count, indices, first_dim; /* of elements; of index tensors; the dimension of the first */
    } index;
    struct {
        bool is_depthwise, is_channels_last;
    } convolution;
    struct {
        bool has_indices;
    } max_pool;
    struct {
        bool keeps_statistics;
    } batch_norm;
    struct {
        bool needs_product; /* softmax: grad * output before the sum */
    } softmax;
    struct {
        bool skips_zeros; /* set_materialize_grads(False) */
    } applied;
    struct {
        int temporaries; /* that backward makes before the gradient */
    } pointwise;
    struct {
        uint8_t from[TIDE_MAX_DIMS]; /* which dimension each was */
    } permute;
    struct {
        int dim, count; /* cat, stack: along it; pad: `count` dimensions from it on */
    } along;
    struct {
        int64_t dims; /* how many are rolled */
    } roll;
    struct {
        uint32_t index; /* of a sharded model's wrapper: its group or module */
    } wrapped;
    struct {
        uint8_t backward; /* what is done with the gradient: of tide_collective, parallel/dtensor.h */
        bool is_async, to_dtensor;
        int8_t dim;
        int64_t ranks, rank, whole;
    } redistribute;
    struct {
        tide_dtype dtype; /* of what the gradient is cast to */
    } cast;
} tide_node_members;

#endif
