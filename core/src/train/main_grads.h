/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients summed in fp32, and fp32 copies of the weights that the optimizer updates. */
#ifndef TIDE_TRAIN_MAIN_GRADS_H
#define TIDE_TRAIN_MAIN_GRADS_H

#include "train/optimizer.h"

typedef struct tide_main_grads tide_main_grads;

/* One fp32 buffer for the gradients of all that trains, to which each is added as soon as it is there, and fp32 copies
 * of weights in a half type, which take their place in the optimizer. megatron/core/distributed:
 * DistributedDataParallel (grad_reduce_in_fp32); optimizer: Float16OptimizerWithFloat16Params. */
tide_main_grads *tide_main_grads_new(tide_model *model, tide_optimizer *optimizer);

/* Clips by norm or not, steps, and copies the result into the weights. */
void tide_main_grads_step(tide_main_grads *main, bool clips);

#endif
