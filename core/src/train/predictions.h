/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation with generated predictions. */
#ifndef TIDE_TRAIN_PREDICTIONS_H
#define TIDE_TRAIN_PREDICTIONS_H

#include "train/trainer_run.h"

/* Whether the trainer's job asks for them and its model has an encoder; an error if it has none. */
bool tide_check_predictions(tide_trainer_run *t);
/* Seq2SeqTrainer.prediction_step up to the loss: generated tokens for the batch. Owned by the caller. */
tide_value tide_generate_predictions(tide_trainer_run *t, const tide_batch *inputs);
/* Pads labels to at least the length of the tokens; takes ownership of them. */
tide_value tide_pad_labels(tide_trainer_run *t, tide_value labels);

#endif
