/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation between the steps of a trainer. */
#ifndef TIDE_TRAIN_EVALUATION_H
#define TIDE_TRAIN_EVALUATION_H

#include "train/trainer_run.h"

/* Whether one follows a step, counted from 1. */
bool tide_evaluates_behind(const tide_job *job, unsigned step);
/* Runs something for the batch size of evaluation, before training. */
void tide_with_evaluated_rows(tide_trainer_run *t, void (*run)(tide_trainer_run *t, const tide_job *job));
/* Trainer.evaluate, as a phase of the step. */
void tide_evaluate(tide_trainer_run *t, unsigned step);

#endif
