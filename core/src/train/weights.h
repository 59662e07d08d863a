/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's tensors laid beside a model's parameters. */
#ifndef TIDE_TRAIN_WEIGHTS_H
#define TIDE_TRAIN_WEIGHTS_H

#include "job/job.h"
#include "lang/lang.h"

/* With nothing on the device yet: what is missing, in addition, or of another dtype is reported; another shape is an
 * error, as from_pretrained refuses it. The parameters of a stand-in become those of the checkpoint. False after an
 * error. */
bool tide_compare_weights(tide_model *model, const tide_job *job, bool is_stand_in);

#endif
