/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients accumulated in fp32, and fp32 copies of the weights, which the optimizer updates. */
#ifndef TIDE_TRAIN_MAIN_GRADS_H
#define TIDE_TRAIN_MAIN_GRADS_H

#include "train/optimizer.h"

typedef struct tide_main_grads tide_main_grads;

/* An fp32 buffer for all gradients, to which each is added as soon as it is ready, and fp32 copies of weights in a
 * half-precision dtype, which replace them in the optimizer. megatron/core/distributed: DistributedDataParallel
 * (grad_reduce_in_fp32); optimizer: Float16OptimizerWithFloat16Params. */
tide_main_grads *tide_main_grads_new(tide_model *model, tide_optimizer *optimizer);

/* Clips by norm if requested, steps, and copies the result to the weights. */
void tide_main_grads_step(tide_main_grads *main, bool clips);

#endif
