/* SPDX-License-Identifier: Apache-2.0 */
/* torch/amp/grad_scaler.py and torch/distributed/fsdp/sharded_grad_scaler.py */
#ifndef TIDE_TRAIN_GRAD_SCALER_H
#define TIDE_TRAIN_GRAD_SCALER_H

#include "train/optimizer.h"

typedef struct tide_scaler {
    tide_tensor *scale, *growth; /* created with the first loss */
    tide_tensor *found_inf;
    bool is_unscaled;
    bool is_sharded;   /* ShardedGradScaler of FSDP, which takes fp16 gradients, and keeps the loss in its dtype */
    bool has_dtensors; /* of a sharded one: gradients are DTensors */
    bool is_on_host;   /* of a sharded one: gradients are on the host */
} tide_scaler;

/* All of its tensors, borrowed. */
enum { TIDE_SCALER_VALUES = 4 };
void tide_scaler_values(const tide_scaler *scaler, tide_value values[TIDE_SCALER_VALUES]);

/* Whether it can unscale the gradients: unscale_ refuses fp16 ones and has no bf16 kernel; a fused optimizer unscales
 * by itself, and checks fp16 gradients for overflow, too. Reports errors. torch/amp/grad_scaler.py, _unscale_grads_ */
bool tide_scaler_takes(tide_model *model, const tide_scaler *scaler, const tide_optimizer *optimizer, bool clips);

/* scaler.scale(loss): the caller owns the scaled loss. */
tide_tensor *tide_scaler_scale(tide_model *model, tide_scaler *scaler, tide_tensor *loss);
void tide_scaler_unscale(tide_model *model, tide_scaler *scaler, const tide_optimizer *optimizer);
void tide_scaler_update(tide_model *model, tide_scaler *scaler);
/* scaler.step(optimizer) and scaler.update(); without a scaler, optimizer.step(). */
void tide_scaled_step(tide_model *model, tide_scaler *scaler, tide_optimizer *optimizer);

#endif
