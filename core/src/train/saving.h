/* SPDX-License-Identifier: Apache-2.0 */
/* Trainer._save_checkpoint, as a phase of the step. */
#ifndef TIDE_TRAIN_SAVING_H
#define TIDE_TRAIN_SAVING_H

#include "train/trainer_run.h"

/* Whether a checkpoint is written after a step. */
bool tide_saves_behind(const tide_job *job, unsigned step);
void tide_save_checkpoint(tide_trainer_run *t, unsigned step);

#endif
