/* SPDX-License-Identifier: Apache-2.0 */
/* Sending weights to vLLM: trl/generation/vllm_generation.py, _iter_named_params(). */
#ifndef TIDE_TRAIN_WEIGHT_TRANSFER_H
#define TIDE_TRAIN_WEIGHT_TRANSFER_H

#include "train/run.h"

/* How the server receives them: vllm/distributed/weight_transfer/packed_tensor.py, packed_nccl_broadcast_producer(),
 * with a stream for each of its buffers, from this one on. */
enum { TIDE_FIRST_BUFFER = 5 };

/* Iterates over all weights, releasing each before the next: for their names and shapes, or to load them. */
void tide_walk_weights(tide_run *run, tide_wrapper *w, const tide_strategy *strategy);
/* Packs and sends them. */
void tide_send_weights(tide_run *run, tide_wrapper *w, const tide_strategy *strategy);

#endif
