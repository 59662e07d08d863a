/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of an evaluation that are generated. */
#ifndef TIDE_TRAIN_PREDICTIONS_H
#define TIDE_TRAIN_PREDICTIONS_H

#include "train/trainer_run.h"

/* Whether the trainer's job asks for them and its model encodes what it reads; an error where it does not. */
bool tide_check_predictions(tide_trainer_run *t);
/* Seq2SeqTrainer.prediction_step up to the loss: generated tokens of the batch. Owned by the caller. */
tide_value tide_generate_predictions(tide_trainer_run *t, const tide_batch *inputs);
/* Labels as long as the tokens are at least; takes them over. */
tide_value tide_pad_labels(tide_trainer_run *t, tide_value labels);

#endif
