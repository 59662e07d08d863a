/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: their states, and what a step makes and frees. */
#ifndef TIDE_TRAIN_OPTIMIZER_H
#define TIDE_TRAIN_OPTIMIZER_H

#include "job/job.h"
#include "lang/lang.h"

typedef struct tide_optimizer tide_optimizer;

/* What an optimizer updates. */
typedef struct tide_optimized {
    tide_tensor *tensor;
    uint32_t module;
    uint32_t group;        /* 0, or 1: the HF Trainer's second group, without weight decay */
    uint32_t kind;         /* of tensors in a group of their own: 0 DTensors, 1 others */
    bool is_redistributed; /* a DTensor whose gradient is of another placement: each operation brings it to its own */
    bool is_replicated;    /* a DTensor that is whole along the tensor parallel ranks */
    uint8_t mesh_dims;  /* of a DTensor: dimensions of the mesh along which it is cut or has copies; 0: a plain one */
    bool is_of_experts; /* whose mesh is another one than that of the rest: norms are taken apart */
} tide_optimized;

/* The job's optimizer over the parameters that train, in one group, or with norms and biases in a group of their own.
 */
tide_optimizer *tide_optimizer_new(tide_model *model, const tide_job *job);
/* What its constructor allocates: states of the members that it has. */
void tide_optimizer_construct(tide_optimizer *optimizer);

/* load_state_dict(): all states are there before the first step. False: the optimizer's are not described so. */
bool tide_optimizer_load_state(tide_optimizer *optimizer);

/* torch.nn.utils.clip_grad_norm_ over what the optimizer updates, in the order of parameters. The norm, owned by the
 * caller; NULL: nothing has a gradient. */
tide_tensor *tide_clip_grad_norm(tide_optimizer *optimizer);

/* optimizer.step() over the parameters that have a gradient. */
void tide_optimizer_step(tide_optimizer *optimizer);

/* Copies the parameters out, group after group, and returns how many there are; members may be NULL. */
uint32_t tide_optimizer_members(const tide_optimizer *optimizer, tide_optimized *members);
/* Tensors of a member's shape that it keeps of each. */
int tide_optimizer_states(const tide_optimizer *optimizer);
/* Whether a parameter's count of steps is on the device. */
bool tide_optimizer_has_step(const tide_optimizer *optimizer);
/* Other tensors in their place, group after group: parts or flat copies of the parameters. */
void tide_optimizer_replace(tide_optimizer *optimizer, const tide_optimized *members, uint32_t count);
/* A step over one of them alone. */
void tide_optimizer_step_one(tide_optimizer *optimizer, uint32_t member);

/* optimizer.zero_grad(set_to_none). */
void tide_zero_grad(tide_optimizer *optimizer, bool set_to_none);

/* Whether GradScaler can unscale the gradients: unscale_ refuses fp16 ones and its kernel has no bf16; a fused
 * optimizer unscales by itself, and looks for overflow in fp16 gradients too. Reports what is wrong.
 * torch/amp/grad_scaler.py, _unscale_grads_ */
bool tide_scaler_takes(tide_model *model, const tide_optimizer *optimizer, bool clips);

/* torch.amp.GradScaler */
typedef struct tide_scaler {
    tide_tensor *scale, *growth; /* made at the first loss */
    tide_tensor *found_inf;
    bool is_unscaled;
} tide_scaler;

/* All of it, borrowed. */
enum { TIDE_SCALER_VALUES = 4 };
void tide_scaler_values(const tide_scaler *scaler, tide_value values[TIDE_SCALER_VALUES]);

/* scaler.scale(loss): the scaled loss, owned by the caller. */
tide_tensor *tide_scaler_scale(tide_model *model, tide_scaler *scaler, tide_tensor *loss);
void tide_scaler_unscale(tide_model *model, tide_scaler *scaler);
void tide_scaler_step(tide_model *model, tide_scaler *scaler, tide_optimizer *optimizer);
void tide_scaler_update(tide_model *model, tide_scaler *scaler);

#endif
