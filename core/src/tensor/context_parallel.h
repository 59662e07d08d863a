/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/tensor/experimental/_context_parallel/_attention.py: context_parallel(), in which buffers have a
 * rank's part of a sequence. */
#ifndef TIDE_TENSOR_CONTEXT_PARALLEL_H
#define TIDE_TENSOR_CONTEXT_PARALLEL_H

#include "tensor/tensor.h"

enum { TIDE_CONTEXT_BUFFERS = 5 };

/* What its names hold until it ends. */
typedef struct tide_context_parallel {
    tide_tensor *shards[TIDE_CONTEXT_BUFFERS], *shard;
} tide_context_parallel;

/* Buffers of rows times a sequence, as many as TIDE_CONTEXT_BUFFERS at most, none of which is restored: each becomes
 * this rank's part, in its own memory. */
void tide_context_parallel_begins(tide_machine *m, tide_context_parallel *c, int64_t ranks, tide_tensor **buffers,
                                  uint32_t count);
void tide_context_parallel_ends(tide_machine *m, tide_context_parallel *c);

#endif
