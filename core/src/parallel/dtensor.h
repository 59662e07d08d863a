/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.tensor: redistribution between the ranks of a mesh, with its names. Private to parallel/. */
#ifndef TIDE_PARALLEL_DTENSOR_H
#define TIDE_PARALLEL_DTENSOR_H

#include "parallel/parallel.h"

/* From one placement to another: placement_types.py. */
typedef enum tide_collective {
    TIDE_COLLECTIVE_NONE,
    TIDE_COLLECTIVE_ALL_REDUCE,     /* Partial to Replicate */
    TIDE_COLLECTIVE_REDUCE_SCATTER, /* Partial to Shard */
    TIDE_COLLECTIVE_ALL_GATHER,     /* Shard to Replicate */
    TIDE_COLLECTIVE_CHUNK           /* Replicate to Shard: copies this rank's part */
} tide_collective;

typedef struct tide_redistribute {
    tide_collective forward, backward;
    int dim; /* the sharded dimension; -1: the last */
    int64_t ranks, rank;
    int64_t whole;   /* the size of the whole along dim; 0: the parts are equal */
    bool is_async;   /* the input of a reduce-scatter lives until the output is read */
    bool to_dtensor; /* else DTensor.to_local() */
} tide_redistribute;

/* The size of a rank's part by torch.chunk(): the last parts are smaller or empty. */
int64_t tide_dtensor_part(int64_t whole, int64_t ranks, int64_t rank);

/* DTensor.from_local(), redistribute() and to_local() as one autograd node; owned by the caller. */
tide_tensor *tide_dtensor_redistribute(tide_machine *m, tide_tensor *t, const tide_redistribute *how);

/* distribute_tensor(): the parameter keeps one of `ranks` parts along a dimension; `factor` is TEMPORARY if the part is
 * sharded again; on the meta device it has no memory. */
typedef struct tide_distribute {
    int dim;
    int64_t ranks, rank;
    tide_factor factor;
    bool is_on_meta;
} tide_distribute;
void tide_dtensor_distribute(tide_machine *m, tide_tensor *parameter, const tide_distribute *how);

#endif
