/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of a job over several GPUs needs the most memory. */
#ifndef TIDE_REPORT_RANKS_H
#define TIDE_REPORT_RANKS_H

#include "train/train.h"

/* Plays the job, on parallel.rank where that is set; otherwise on the rank that needs the most, which it writes into
 * the job's options and reports as an assumption. Ranks that are alike are played once. NULL after an error, which is
 * reported. */
tide_run *tide_run_ranks(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* The same for one of several jobs: alone by tide_run_next, or of the rank that needs the most. */
tide_run *tide_run_what_if(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Plays the ranks of a pipeline that need no more than those that were played, for a row of each stage. A pipeline of
 * more ranks than rows are kept for stays as it is. False: memory ran out. */
bool tide_run_stages(tide_run *run, tide_job *job, tide_arena *arena);

/* Every framework that a job may have; for whom plays one rank alone, with tide_run_job. */
extern const tide_frameworks tide_frameworks_of_jobs;

/* By what is reserved, then by what is allocated. */
bool tide_rank_needs_more(tide_rank_need a, tide_rank_need b);

#endif
