/* SPDX-License-Identifier: Apache-2.0 */
/* Liger Kernel: functions and modules of a model replaced (use_liger_kernel). */
#ifndef TIDE_TRAIN_LIGER_H
#define TIDE_TRAIN_LIGER_H

#include "train/run.h"

/* transformers: integrations/liger.py, apply_liger_kernel(), on the model that was made. A family that Liger does not
 * know stays as it is, which is said. False after an error: a kernel of it is not described. */
bool tide_apply_liger(tide_run *run, const tide_job *job);

/* TRL's trainers that call the backbone and the head by themselves: liger_kernel_config's fused_linear_cross_entropy is
 * false there (sft_trainer.py and its kin, __init__). */
bool tide_trl_fuses_head(const tide_job *job);

#endif
