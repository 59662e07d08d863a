/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/tensor/experimental/_context_parallel/_attention.py: context_parallel(), within which buffers hold
 * a rank's part of the sequence. */
#ifndef TIDE_TENSOR_CONTEXT_PARALLEL_H
#define TIDE_TENSOR_CONTEXT_PARALLEL_H

#include "tensor/tensor.h"

enum { TIDE_CONTEXT_BUFFERS = 5 };

/* What its local names refer to until it ends. */
typedef struct tide_context_parallel {
    tide_tensor *shards[TIDE_CONTEXT_BUFFERS], *shard;
} tide_context_parallel;

/* _context_parallel_shard(): this rank's part of each buffer of (rows, sequence), for the caller to own. */
void tide_context_parallel_shard(tide_machine *m, int64_t ranks, tide_tensor *const *buffers, uint32_t count,
                                 tide_tensor **shards);

/* Buffers of (rows, sequence), at most TIDE_CONTEXT_BUFFERS, none of which is restored: each becomes this rank's part,
 * in memory of its own. */
void tide_context_parallel_begins(tide_machine *m, tide_context_parallel *c, int64_t ranks, tide_tensor **buffers,
                                  uint32_t count);
void tide_context_parallel_ends(tide_machine *m, tide_context_parallel *c);

#endif
