/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's trainer of its own models. Private to parallel/. */
#ifndef TIDE_PARALLEL_TORCHTITAN_TRAINER_H
#define TIDE_PARALLEL_TORCHTITAN_TRAINER_H

#include "parallel/pipeline.h"

/* A tensor that the model's method makes or changes; owned by the caller. NULL: none. */
tide_tensor *tide_titan_tensor(tide_model *model, const char *method, const char *const *names,
                               const tide_value *values, uint32_t count);
/* Module.to_empty() and ModelProtocol.init_weights() of this rank's stages. */
void tide_torchtitan_init_weights(tide_pipeline *p);
/* Trainer.train_step() */
void tide_torchtitan_train_step(tide_pipeline *p, unsigned step);

#endif
