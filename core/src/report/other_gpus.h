/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs that hold a job as it is, if its own does not. */
#ifndef TIDE_REPORT_OTHER_GPUS_H
#define TIDE_REPORT_OTHER_GPUS_H

#include "report/what_if.h"

/* The words of a change, its title, and its result. */
typedef struct tide_other_gpus {
    const char *words[4];
    uint32_t count; /* number of words; 0: nothing was found */
    const char *title, *effect;
    tide_what_if verdict;
} tide_other_gpus;

/* The smallest GPU that holds the job and supports what its own GPU supports. Of those within a tenth of its size, the
 * one with the most similar name: PCIe or SXM, the same product line. */
tide_other_gpus tide_smallest_gpu(const tide_query *q, const tide_what_if *now);

/* The smallest power of two of GPUs of the job's own kind that hold it: ranks of its parallel.kind, else of
 * fully_shard; for a server its tensor_parallel_size. */
tide_other_gpus tide_fewest_gpus(const tide_query *q, const tide_what_if *now);

#endif
