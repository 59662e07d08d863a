/* SPDX-License-Identifier: Apache-2.0 */
/* Completions for TRL's GRPOTrainer and RLOOTrainer. */
#ifndef TIDE_TRAIN_ROLLOUTS_H
#define TIDE_TRAIN_ROLLOUTS_H

#include "train/run.h"

/* Sets the lengths of prompts and completions, and what old policies keep, for forward() and the library. */
void tide_set_rollouts(tide_run *run, const tide_job *job);

/* transformers' generate() with sampling, for the prompts of one generation (phase generate). */
void tide_generate_rollouts(tide_run *run, const tide_job *job);

#endif
