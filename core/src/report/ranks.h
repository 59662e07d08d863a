/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of a job on several GPUs needs the most memory. */
#ifndef TIDE_REPORT_RANKS_H
#define TIDE_REPORT_RANKS_H

#include "train/train.h"

/* Plays the job on parallel.rank if that is given; otherwise on the rank that needs the most, which it writes to the
 * job's options and reports as an assumption. Equal ranks are played once. NULL after an error, which is reported. */
tide_run *tide_run_ranks(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* The same for one of several jobs: by tide_run_next if there is only one rank, else for the rank that needs the most.
 */
tide_run *tide_run_what_if(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Plays the ranks of a pipeline that were not played because they need no more, for a row per stage. Does nothing if a
 * pipeline has more ranks than there are rows. False: host memory ran out. */
bool tide_run_stages(tide_run *run, tide_job *job, tide_arena *arena);

/* All frameworks, for callers that play a single rank with tide_run_job. */
extern const tide_frameworks tide_frameworks_of_jobs;

/* By reserved, then by allocated memory. */
bool tide_rank_needs_more(tide_rank_need a, tide_rank_need b);

#endif
