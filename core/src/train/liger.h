/* SPDX-License-Identifier: Apache-2.0 */
/* Liger Kernel: functions and modules of a model replaced (use_liger_kernel). */
#ifndef TIDE_TRAIN_LIGER_H
#define TIDE_TRAIN_LIGER_H

#include "train/run.h"

/* transformers: integrations/liger.py, apply_liger_kernel(), on a constructed model. A family that Liger does not know
 * is unchanged, which is reported. False after an error: one of its kernels is not described. */
bool tide_apply_liger(tide_run *run, const tide_job *job);

#endif
