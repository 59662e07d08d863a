/* SPDX-License-Identifier: Apache-2.0 */
/* transformers' Trainer and those of TRL, which are built on it, in place of the loop that people write. */
#ifndef TIDE_TRAIN_TRAINER_H
#define TIDE_TRAIN_TRAINER_H

#include "train/run.h"

/* The loop of Trainer._inner_training_loop (transformers/trainer.py), and what the trainer does before it. False after
 * an error. */
bool tide_play_trainer(tide_run *run, const tide_job *job);

#endif
