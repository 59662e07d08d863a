/* SPDX-License-Identifier: Apache-2.0 */
/* transformers' Trainer and TRL's trainers, which are based on it, instead of the usual loop. */
#ifndef TIDE_TRAIN_TRAINER_H
#define TIDE_TRAIN_TRAINER_H

#include "train/run.h"

/* The loop of Trainer._inner_training_loop (transformers/trainer.py), and what precedes it. False after an error. */
bool tide_play_trainer(tide_run *run, const tide_job *job);

#endif
