/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's AutoTP. Private to parallel/. */
#ifndef TIDE_PARALLEL_AUTOTP_H
#define TIDE_PARALLEL_AUTOTP_H

#include "parallel/parallel.h"

/* Splits the layers of a model that is on the device over parallel.tp adjacent ranks. False after an error, which is
 * reported. */
bool tide_autotp(tide_wrapper *w);
/* Whether the norm of gradients counts this one on the job's rank: is_model_parallel_parameter(p) or the first one. */
bool tide_autotp_counts(const tide_wrapper *w, const tide_tensor *parameter);
/* The layers' collectives are in their forward(), inside of the hooks that ZeRO has set since. */
void tide_autotp_around(tide_model *model);

#endif
