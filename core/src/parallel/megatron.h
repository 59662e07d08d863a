/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-Core: what its files share. Names are the framework's. */
#ifndef TIDE_PARALLEL_MEGATRON_H
#define TIDE_PARALLEL_MEGATRON_H

#include "parallel/parallel.h"
#include "parallel/topology.h"

/* A stretch of a buffer that a parameter lies in; the bucket that it belongs to. */
typedef struct tide_megatron_param {
    uint32_t row;       /* of model->parameters */
    int64_t start, end; /* elements in the buffer */
    uint32_t bucket;
    bool has_decay; /* of the optimizer's first group: matrices */
    bool is_expert;
} tide_megatron_param;

typedef struct tide_megatron_bucket {
    int64_t start, end;
} tide_megatron_bucket;

/* distributed/param_and_grad_buffer.py: _ParamAndGradBuffer. One for the dense parameters of a chunk, one for its
 * experts; params in the order in which they lie in it. */
typedef struct tide_megatron_buffer {
    tide_megatron_param *params;
    uint32_t count;
    tide_megatron_bucket *buckets;
    uint32_t bucket_count;
    int64_t numel;
    int64_t ranks, rank; /* of its data parallel group */
    bool is_expert;
    tide_tensor *param_data, *grad_data; /* param_data: NULL without the distributed optimizer */
} tide_megatron_buffer;

typedef enum tide_megatron_state_name { EXP_AVG, EXP_AVG_SQ, MASTER_PARAM, STATE_COUNT } tide_megatron_state_name;

/* A parameter, or this rank's shard of it, as an optimizer has it. */
typedef struct tide_megatron_main {
    uint32_t row;
    int64_t count;
    tide_tensor *param; /* the fp32 copy, or with a precision-aware optimizer the shard itself */
    tide_tensor *states[STATE_COUNT];
    tide_tensor *fp32_grad; /* of a HybridDeviceOptimizer's fp32 copy, where gradients are summed in another type */
    bool is_on_host;        /* it is updated there */
} tide_megatron_main;

/* One of the chained optimizers: of dense parameters, or of experts. */
typedef struct tide_megatron_optimizer {
    tide_megatron_main *mains; /* group after group */
    uint32_t count, first_group;
    tide_tensor *loss_scale, *fp8_range, *fp16_range;
} tide_megatron_optimizer;

typedef struct tide_megatron {
    tide_wrapper *w;
    tide_topology topology;
    int64_t chunk_count, microbatches;
    bool is_interleaved, is_te, is_sgd, is_distributed, is_precision_aware, has_fp32_grads, offloads;
    bool has_decoupled_grad; /* the optimizer is given the parameters themselves, and their gradients beside them */
    tide_megatron_buffer *buffers;
    uint32_t buffer_count;
    tide_megatron_optimizer optimizers[2];
    uint32_t optimizer_count;
    tide_tensor **input_tensors; /* by chunk: what decoder.set_input_tensor() was given last */
    tide_value forward_data_store;
    tide_shape stage_shape; /* of the hidden states between stages */
} tide_megatron;

/* ---- megatron_buffers.c ---- */

/* DistributedDataParallel over all chunks: gradient buffers, and with the distributed optimizer parameter buffers. */
void tide_megatron_wrap_ddp(tide_megatron *g);
/* What the module of a parameter says under this name, as Megatron-Core sets it on the parameter; borrowed. */
tide_value tide_megatron_attribute(const tide_model *model, uint32_t row, const char *name);

/* What all tensor parallel ranks have is reduced over them, at the end of a step's backward passes. */
void tide_megatron_reduce_over_tp(const tide_megatron *g);

/* ---- megatron_optimizer.c ---- */

void tide_megatron_make_optimizer(tide_megatron *g);
void tide_megatron_optimizer_step(tide_megatron *g);
/* optimizer.zero_grad(): at the beginning of the next step. */
void tide_megatron_zero_grad(tide_megatron *g);

/* ---- megatron_adam.c ---- */

/* FusedAdam.step, or FusedSGD's: both groups, states at the first step. */
void tide_megatron_fused_step(const tide_megatron *g, tide_megatron_optimizer *o);

/* ---- megatron_schedules.c ---- */

/* get_forward_backward_func(): all micro-batches of a step. */
void tide_megatron_forward_backward(tide_megatron *g);

#endif
