/* SPDX-License-Identifier: Apache-2.0 */
/* The completions that TRL's GRPOTrainer and RLOOTrainer train on. */
#ifndef TIDE_TRAIN_ROLLOUTS_H
#define TIDE_TRAIN_ROLLOUTS_H

#include "train/run.h"

/* Tells forward() and the library of prompts and completions: their lengths, and what is kept of old policies. */
void tide_set_rollouts(tide_run *run, const tide_job *job);

/* transformers' generate() with sampling, for the prompts of one generation (phase generate). */
void tide_generate_rollouts(tide_run *run, const tide_job *job);

#endif
