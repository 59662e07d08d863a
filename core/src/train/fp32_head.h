/* SPDX-License-Identifier: Apache-2.0 */
/* cast_lm_head_to_fp32 of TRL's GRPOTrainer: the output head's weight and product in fp32. */
#ifndef TIDE_TRAIN_FP32_HEAD_H
#define TIDE_TRAIN_FP32_HEAD_H

#include "train/trainer_run.h"

/* Replaces what the head and a tied embedding compute; false after an error. */
bool tide_replace_head(tide_trainer_run *t);
/* Casts the head's weight, of the policy and of its reference model. */
void tide_cast_head(tide_trainer_run *t);

#endif
