/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed ZeRO stages 1 and 2: deepspeed/runtime/zero/stage_1_and_2.py. Private to zero_1_and_2*.c.
 *
 * Note [Partitions]: each group of the optimizer is one flat tensor, divided into as many parts as there are ranks; the
 * parameters are views of it. A rank updates an fp32 copy of its part. Gradients are copied into a bucket (ipg) and
 * reduced; those within the rank's part, including the ones at its edges, are copied into one buffer for all groups,
 * which lives until every group has stepped. */
#ifndef TIDE_PARALLEL_ZERO_1_AND_2_H
#define TIDE_PARALLEL_ZERO_1_AND_2_H

#include "parallel/parallel.h"

typedef struct zero12_param {
    tide_tensor *tensor;
    uint32_t group;
    int64_t first_element, numel;      /* in the flat tensor of the group */
    tide_tensor *norm_for_param_grads; /* once the gradient is on the host */
    bool is_in_current_partition;
} zero12_param;

typedef struct zero12_group {
    uint32_t first, end; /* indices into zero12.params, in the order of the flat tensor */
    int64_t partition_size;
    tide_tensor *bit16_flat, *single_partition_of_fp32;
    tide_tensor **averaged_gradients;   /* of this rank's parameters, and of padding */
    tide_tensor *grad_partition_buffer; /* instead, if gradients accumulate in fp32 */
    uint32_t averaged_count;
} zero12_group;

typedef struct zero12 {
    tide_wrapper *w;
    zero12_param *params, **bit16_groups; /* in the order of the flat tensors, and in that of the optimizer */
    uint32_t count, hint;
    zero12_group groups[2];
    uint32_t group_count;
    tide_dtype dtype, communication_data_type;
    int64_t reduce_bucket_size;
    bool use_grad_accum_attribute; /* gradients of the model accumulate in fp32 */
    int64_t *own;                  /* this rank's elements in the slices of a chunk */
    uint32_t own_count;
    bool partition_gradients, overlap_comm, contiguous_gradients, reduce_scatter, use_multi_rank_bucket_allreduce,
        cpu_offload;
    /* ipg_buckets */
    tide_tensor *ipg_buffers[2];
    uint32_t ipg_buffer_index;
    uint32_t *ipg_params;
    tide_tensor **ipg_grads;
    uint32_t ipg_count;
    int64_t ipg_elements;
    bool has_ipg_buffers, has_extra_large_param;
    tide_tensor *grads_in_partition;
    tide_tensor *temp_grad_buffer_for_gpu_offload, *global_grad_norm;
} zero12;

extern const char tide_zero12_name[]; /* the operation of its allocations */

static inline tide_machine *zero12_machine(const zero12 *z) {
    return z->w->model->m;
}

/* The ranks whose parts contain elements of p: from *first to *last. */
void tide_zero12_owners_of(const zero12 *z, const zero12_param *p, int64_t *first, int64_t *last);
/* The number of elements of p in a rank's part. */
int64_t tide_zero12_owned_by(const zero12 *z, const zero12_param *p, int64_t rank);

/* Called when a gradient has been accumulated; m->wrapper is the zero12. */
void tide_zero12_gradient_ready(tide_machine *m, tide_tensor *leaf);
/* independent_gradient_partition_epilogue; for stage 1 preceded by reduce_gradients. */
void tide_zero12_independent_gradient_partition_epilogue(zero12 *z);

#endif
