/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.tensor: what moves between the ranks of a mesh, by its names. Private to parallel/. */
#ifndef TIDE_PARALLEL_DTENSOR_H
#define TIDE_PARALLEL_DTENSOR_H

#include "parallel/parallel.h"

/* How a part of one placement becomes one of another: placement_types.py. */
typedef enum tide_collective {
    TIDE_COLLECTIVE_NONE,
    TIDE_COLLECTIVE_ALL_REDUCE,     /* Partial to Replicate */
    TIDE_COLLECTIVE_REDUCE_SCATTER, /* Partial to Shard */
    TIDE_COLLECTIVE_ALL_GATHER,     /* Shard to Replicate */
    TIDE_COLLECTIVE_CHUNK           /* Replicate to Shard: a copy of this rank's part */
} tide_collective;

typedef struct tide_redistribute {
    tide_collective forward, backward;
    int dim; /* that is cut; -1: the last */
    int64_t ranks, rank;
    int64_t whole;   /* what is cut, along dim; 0: as much on every rank */
    bool is_async;   /* the input of a reduce-scatter lives until its output is read */
    bool to_dtensor; /* else DTensor.to_local() */
} tide_redistribute;

/* Of so many, what torch.chunk() gives one of the ranks: the last have less, or nothing. */
int64_t tide_dtensor_part(int64_t whole, int64_t ranks, int64_t rank);

/* DTensor.from_local(), redistribute() and to_local() as one node of autograd; owned by the caller. */
tide_tensor *tide_dtensor_redistribute(tide_machine *m, tide_tensor *t, const tide_redistribute *how);

/* distribute_tensor(): the parameter keeps its part along a dimension, of those of `ranks`; `factor` is
 * TEMPORARY where that part is cut once more; on the meta device the part has no memory. */
typedef struct tide_distribute {
    int dim;
    int64_t ranks, rank;
    tide_factor factor;
    bool is_on_meta;
} tide_distribute;
void tide_dtensor_distribute(tide_machine *m, tide_tensor *parameter, const tide_distribute *how);

#endif
