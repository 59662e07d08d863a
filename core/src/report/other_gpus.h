/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs that hold a job as it is where its own does not. */
#ifndef TIDE_REPORT_OTHER_GPUS_H
#define TIDE_REPORT_OTHER_GPUS_H

#include "report/what_if.h"

/* Words of a change, what it is called, and what it came to. */
typedef struct tide_other_gpus {
    const char *words[4];
    uint32_t count; /* of words; 0: nothing was found */
    const char *title, *effect;
    tide_what_if verdict;
} tide_other_gpus;

/* The smallest GPU that holds the job and can compute what its own can. Of those within a tenth of it, the nearest by
 * name: the PCIe or the SXM kind, the maker's line. */
tide_other_gpus tide_smallest_gpu(const tide_query *q, const tide_what_if *now);

/* The fewest GPUs of the job's own kind, by powers of two, over which it is held: ranks of its parallel.kind, else
 * of fully_shard; a server's tensor_parallel_size. */
tide_other_gpus tide_fewest_gpus(const tide_query *q, const tide_what_if *now);

#endif
