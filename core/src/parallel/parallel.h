/* Frameworks for several GPUs, one file each; private to parallel/. */
#ifndef TIDE_PARALLEL_H
#define TIDE_PARALLEL_H

#include "../training/strategy.h"

/* Streams of the allocator: 0 is the one that computes. */
enum { TIDE_STREAM_SIDE = 1, TIDE_STREAM_SECOND, TIDE_STREAM_THIRD };

/* ---- collectives.c ---- */

/* A flat tensor of a factor, made on a stream. */
tide_tensor *tide_flat_of(tide_machine *m, const char *op, int64_t count, tide_dtype dtype, tide_factor factor);

/* Cuts tensors, in order, into buckets of one dtype that close when they reach `limits[k]` bytes, the last of which counts for
 * all later ones; bucket_of[i] is the bucket of tensor i, in the order in which they close. Returns the number of buckets.
 * torch/csrc/distributed/c10d/reducer.cpp: compute_bucket_assignment_by_size. is_sorted: by their first tensor instead. */
uint32_t tide_cut_buckets(tide_machine *m, tide_tensor *const *tensors, uint32_t count, const int64_t *limits, uint32_t limit_count,
                          bool is_sorted, uint32_t *bucket_of);

/* c10d::broadcast_coalesced: flat copies of buckets, two at a time; a bucket of one tensor is sent as it is. */
void tide_broadcast_coalesced(tide_machine *m, const char *op, tide_tensor *const *tensors, uint32_t count);

extern const tide_strategy tide_ddp;

#endif
