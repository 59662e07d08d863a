/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's Ulysses. Private to parallel/. */
#ifndef TIDE_PARALLEL_ULYSSES_H
#define TIDE_PARALLEL_ULYSSES_H

#include "parallel/parallel.h"

/* DeepSpeedEngine.communication_data_type: the dtype in which gradients are reduced. */
tide_dtype tide_communication_dtype(const tide_job *job);
/* A strategy's before_forward: refuses models that UlyssesSPAttentionHF does not support. */
void tide_ulysses_before_forward(tide_wrapper *w);
/* A strategy's after_forward: combines the loss of this rank's tokens with those of the ranks that share the sequence.
 */
void tide_ulysses_after_forward(tide_wrapper *w, tide_value *output);

#endif
