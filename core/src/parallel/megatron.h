/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-Core: shared by its files. Names are the framework's. */
#ifndef TIDE_PARALLEL_MEGATRON_H
#define TIDE_PARALLEL_MEGATRON_H

#include "parallel/parallel.h"
#include "parallel/topology.h"

/* Groups of an optimizer, in order (optimizer/__init__.py: get_standard_config_overrides): matrices; with decoupled_lr
 * the embedding and the output layer; biases and vectors, which have no weight decay. */
typedef enum tide_megatron_group { GROUP_MATRICES, GROUP_DECOUPLED, GROUP_VECTORS, GROUP_COUNT } tide_megatron_group;

/* The range of a parameter in a buffer, and its bucket. */
typedef struct tide_megatron_param {
    uint32_t row;       /* index into model->parameters */
    int64_t start, end; /* elements of the buffer */
    uint32_t bucket;
    tide_megatron_group group;
    bool is_expert;
} tide_megatron_param;

typedef struct tide_megatron_bucket {
    int64_t start, end;
} tide_megatron_bucket;

/* distributed/param_and_grad_buffer.py: _ParamAndGradBuffer. One for the dense parameters of a chunk, one for its
 * experts; params in the order of their ranges. */
typedef struct tide_megatron_buffer {
    tide_megatron_param *params;
    uint32_t count;
    tide_megatron_bucket *buckets;
    uint32_t bucket_count;
    int64_t numel;
    int64_t ranks, rank; /* in its data parallel group */
    bool is_expert;
    tide_tensor *param_data, *grad_data; /* param_data: NULL without the distributed optimizer */
} tide_megatron_buffer;

typedef enum tide_megatron_state_name { EXP_AVG, EXP_AVG_SQ, MASTER_PARAM, STATE_COUNT } tide_megatron_state_name;

/* A parameter, or this rank's shard of it, as seen by an optimizer. */
typedef struct tide_megatron_main {
    uint32_t row;
    int64_t count;
    tide_tensor *param; /* the fp32 copy; with a precision-aware optimizer the shard itself */
    tide_tensor *states[STATE_COUNT];
    tide_tensor
        *fp32_grad;  /* for the fp32 copy of a HybridDeviceOptimizer, if gradients are accumulated in another dtype */
    bool is_on_host; /* updated on the host */
} tide_megatron_main;

/* One of the chained optimizers: for dense parameters, or for experts. */
typedef struct tide_megatron_optimizer {
    tide_megatron_main *mains; /* by group */
    uint32_t count, group_ends[GROUP_COUNT];
    tide_tensor *loss_scale, *fp8_range, *fp16_range;
} tide_megatron_optimizer;

typedef struct tide_megatron {
    tide_wrapper *w;
    tide_topology topology;
    int64_t chunk_count, microbatches, microbatch_group;
    bool is_interleaved, is_te, is_sgd, is_distributed, is_precision_aware, has_fp32_grads, offloads;
    bool has_decoupled_grad; /* the optimizer gets the parameters themselves, and their gradients separately */
    tide_megatron_buffer *buffers;
    uint32_t buffer_count;
    tide_megatron_optimizer optimizers[2];
    uint32_t optimizer_count;
    tide_tensor **input_tensors; /* by chunk: the last argument of decoder.set_input_tensor() */
    tide_value forward_data_store;
    tide_shape stage_shape; /* of hidden states between stages */
} tide_megatron;

/* ---- megatron_buffers.c ---- */

/* DistributedDataParallel of all chunks: gradient buffers, and with the distributed optimizer parameter buffers. */
void tide_megatron_wrap_ddp(tide_megatron *g);
/* An attribute that Megatron-Core sets on a parameter, from the parameter's module; borrowed. */
tide_value tide_megatron_attribute(const tide_model *model, uint32_t row, const char *name);
/* Whether the parameter is in such a list of its module. */
bool tide_megatron_is_named(const tide_model *model, uint32_t row, const char *list);

/* After a step's backward passes, reduces the gradients of what all tensor parallel ranks have, and updates the biases
 * of routers. */
void tide_megatron_finalize_model_grads(const tide_megatron *g);

/* ---- megatron_optimizer.c ---- */

void tide_megatron_make_optimizer(tide_megatron *g);
void tide_megatron_optimizer_step(tide_megatron *g);
/* optimizer.zero_grad(), at the start of the next step. */
void tide_megatron_zero_grad(tide_megatron *g);

/* ---- megatron_adam.c ---- */

/* FusedAdam.step or FusedSGD.step: all groups; the first step creates the states. */
void tide_megatron_fused_step(const tide_megatron *g, tide_megatron_optimizer *o);

/* ---- megatron_schedules.c ---- */

/* get_forward_backward_func(): all micro-batches of a step. */
void tide_megatron_forward_backward(tide_megatron *g);

#endif
