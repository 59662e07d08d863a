/* SPDX-License-Identifier: Apache-2.0 */
/* A moving average of the weights: a second copy of the model. */
#ifndef TIDE_TRAIN_EMA_H
#define TIDE_TRAIN_EMA_H

#include "job/job.h"
#include "lang/lang.h"

typedef struct tide_ema tide_ema;

/* Makes the copy, each tensor in its own dtype. swa_utils: torch.optim.swa_utils.AveragedModel with
 * get_ema_multi_avg_fn(), which copies buffers too; diffusers and diffusers_foreach: diffusers'
 * training_utils.EMAModel. NULL for none. */
tide_ema *tide_ema_new(tide_model *model, tide_ema_choice kind);

/* update_parameters() or step(), after the optimizer's step. ema may be NULL. */
void tide_ema_update(tide_ema *ema);

#endif
