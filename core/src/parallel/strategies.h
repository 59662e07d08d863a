/* SPDX-License-Identifier: Apache-2.0 */
/* The public part of parallel/: which strategy a job has, and what can be asked without playing it. */
#ifndef TIDE_PARALLEL_STRATEGIES_H
#define TIDE_PARALLEL_STRATEGIES_H

#include "train/strategy.h"

/* strategies.c: that of parallel.kind; NULL for one GPU. */
const tide_strategy *tide_strategy_find(const tide_job *job);

/* nccl.c: bytes of NCCL's buffers on the device, outside of PyTorch's allocator; 0 for one GPU. An estimate, with the
 * range of published figures. */
typedef struct tide_nccl {
    int64_t communicators, bytes, least, most;
} tide_nccl;
tide_nccl tide_nccl_of(const tide_job *job);

/* pipeline_table.c: {"schedule": {name, stages, microbatches, ranks: [{in_flight, passes}]}}, passes as PyTorch writes
 * them: stage, letter, micro-batch. False after an error: the job has no pipeline, or it is refused. */
bool tide_write_schedule(tide_writer *w, const tide_job *job, tide_diagnostics *diags);

#endif
