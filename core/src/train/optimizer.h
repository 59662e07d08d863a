/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: their states, and what a step allocates and frees. */
#ifndef TIDE_TRAIN_OPTIMIZER_H
#define TIDE_TRAIN_OPTIMIZER_H

#include "job/job.h"
#include "lang/lang.h"

typedef struct tide_optimizer tide_optimizer;

/* A tensor that an optimizer updates. */
typedef struct tide_optimized {
    tide_tensor *tensor;
    uint32_t module;
    uint32_t group;        /* 0, or 1: the second group of HF Trainer, without weight decay */
    uint32_t kind;         /* tensors that are processed as a group: even for DTensors, odd for others */
    bool is_redistributed; /* a DTensor whose gradient has another placement: every operation redistributes it */
    bool is_replicated;    /* a DTensor that is replicated over the tensor parallel ranks */
    uint8_t mesh_dims;  /* of a DTensor: mesh dimensions along which it is sharded or replicated; 0: a plain tensor */
    bool is_of_experts; /* on a separate mesh: norms are computed separately */
} tide_optimized;

/* The job's optimizer for all trainable parameters, in one group, or with norms and biases in a second group. */
tide_optimizer *tide_optimizer_new(tide_model *model, const tide_job *job);
/* What its constructor allocates: states of its current members. */
void tide_optimizer_construct(tide_optimizer *optimizer);

/* accelerate/optimizer.py, AcceleratedOptimizer: step counters that the constructor made on the host move to the
 * device. */
void tide_optimizer_prepared(tide_optimizer *optimizer);

/* load_state_dict(): all states exist before the first step. False: not described for this optimizer. */
bool tide_optimizer_load_state(tide_optimizer *optimizer);

/* torch.nn.utils.clip_grad_norm_ over the optimizer's tensors, in parameter order. The caller owns the norm; NULL:
 * nothing has a gradient. */
tide_tensor *tide_clip_grad_norm(tide_optimizer *optimizer);

/* optimizer.step() for all parameters with a gradient. */
void tide_optimizer_step(tide_optimizer *optimizer);

/* Copies the members out, by group, and returns their number; members may be NULL. */
uint32_t tide_optimizer_members(const tide_optimizer *optimizer, tide_optimized *members);
/* The number of state tensors with the shape of a member. */
int tide_optimizer_states(const tide_optimizer *optimizer);
/* Whether the step counter of a parameter is on the device. */
bool tide_optimizer_has_step(const tide_optimizer *optimizer);
/* Whether its step() is a fused kernel, which unscales gradients by itself. */
bool tide_optimizer_is_fused(const tide_optimizer *optimizer);
/* Replaces the members, by group: with shards or flat copies of the parameters. */
void tide_optimizer_replace(tide_optimizer *optimizer, const tide_optimized *members, uint32_t count);
/* A step for a single member. */
void tide_optimizer_step_one(tide_optimizer *optimizer, uint32_t member);

/* optimizer.zero_grad(set_to_none). */
void tide_zero_grad(tide_optimizer *optimizer, bool set_to_none);

#endif
