/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of the graph stores besides tensors and edges, by kind of node. */
#ifndef TIDE_TENSOR_NODE_MEMBERS_H
#define TIDE_TENSOR_NODE_MEMBERS_H

#include <stdbool.h>

#include "tensor/layout.h"

struct tide_tensor;

/* The members of a backward function as declared in torch/csrc/autograd/generated/Functions.h, or what an
 * autograd.Function stores on ctx. Zero unless set. */
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
        tide_layout *mat2; /* of the gradient of mat2 */
    } grouped_mm;
    struct {
        bool gathers_grad; /* the gradient, a part of a sum over ranks, is reduced first */
    } rms_norm;
    struct {
        tide_layout *view; /* of the view that was written to */
    } written;
    struct {
        bool has_dropout;
        int64_t kv_heads, keys, sequences;
    } attention;
    struct {
        uint32_t dims; /* summed dimensions, as bits */
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
        bool zero_infinity;
    } ctc;
    struct {
        bool skips_zeros; /* set_materialize_grads(False) */
    } applied;
    struct {
        int temporaries; /* made by backward before the gradient */
    } pointwise;
    struct {
        uint8_t from[TIDE_MAX_DIMS]; /* the original position of each dimension */
    } permute;
    struct {
        int dim, count; /* cat, stack: the dimension; pad: the first of `count` dimensions */
    } along;
    struct {
        int64_t dims; /* the number of rolled dimensions */
    } roll;
    struct {
        uint32_t index; /* the group or module in a sharded model's wrapper */
    } wrapped;
    struct {
        uint8_t backward; /* the collective applied to the gradient: a tide_collective of parallel/dtensor.h */
        bool is_async, to_dtensor;
        int8_t dim;
        int64_t ranks, rank, whole;
    } redistribute;
    struct {
        tide_dtype dtype; /* the dtype that the gradient is cast to */
    } cast;
} tide_node_members;

#endif
