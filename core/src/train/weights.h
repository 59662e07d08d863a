/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing the tensors of a checkpoint with the parameters of a model. */
#ifndef TIDE_TRAIN_WEIGHTS_H
#define TIDE_TRAIN_WEIGHTS_H

#include "job/job.h"
#include "lang/lang.h"

/* Before anything is on the device: reports tensors that are missing, additional, or of another dtype; another shape is
 * an error, as from_pretrained refuses it. The parameters of a stand-in become those of the checkpoint. False after an
 * error. */
bool tide_compare_weights(tide_model *model, const tide_job *job, bool is_stand_in);

#endif
