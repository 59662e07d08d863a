/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 is played first, then those that its strategy names as others that may need more. */
#include "report/ranks.h"

#include <inttypes.h>
#include <string.h>

#include "report/job_events.h"
#include "report/job_report.h"
#include "report/serving.h"

static bool is_more(tide_rank_need a, tide_rank_need b) {
    return a.reserved != b.reserved ? a.reserved > b.reserved : a.allocated > b.allocated;
}

static bool measure(tide_rank_need *of, tide_run *run, const tide_job *job) {
    tide_event_source source = tide_job_events(run).source;
    tide_replay_config config = tide_job_config(job);
    tide_replay r;
    if (!tide_replay_peaks(&r, &source, &config, run->machine.timeline.arena)) return false;
    *of = (tide_rank_need){job->parallel_rank, r.allocated_peak, r.reserved_peak, run->in_flight};
    return true;
}

static void set_rank(tide_job *job, tide_arena *arena, int64_t rank) {
    job->parallel_rank = rank;
    job->values[TIDE_SET_parallel_rank] = tide_format(arena, "%" PRId64, rank);
}

static bool play_rank(tide_run *run, tide_job *job, int64_t rank, tide_arena *arena) {
    tide_diagnostics unheard;
    tide_diagnostics_init(&unheard, arena);
    *run = (tide_run){.plays_all = run->plays_all, .cache = run->cache};
    set_rank(job, arena, rank);
    return tide_run_job(run, job, arena, &unheard);
}

tide_run *tide_run_what_if(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_arena *scratch,
                           tide_diagnostics *diags) {
    if (cache && job->mode != TIDE_mode_serve && job->parallel_kind == TIDE_parallel_kind_none)
        return tide_run_next(cache, job, arena, diags);
    tide_run *run = TIDE_NEW(arena, tide_run, 1);
    run->cache = cache;
    return tide_run_ranks(run, job, arena, scratch, diags) ? run : NULL;
}

bool tide_run_ranks(tide_run *run, tide_job *job, tide_arena *arena, tide_arena *scratch, tide_diagnostics *diags) {
    if (job->mode == TIDE_mode_serve) return tide_run_serving(run, job, arena, diags);
    bool is_alone = job->parallel_dp * job->parallel_tp * job->parallel_pp * job->parallel_cp < 2;
    bool is_free = !tide_job_sets(job, TIDE_SET_parallel_rank) && !is_alone;
    if (!tide_run_job(run, job, arena, diags)) return false;
    if (!is_free) return true;
    int64_t greatest = 0, others[TIDE_OTHER_RANKS];
    uint32_t count = run->other_rank_count;
    const char *played = "";
    tide_rank_need needs[TIDE_OTHER_RANKS + 1], most = {0};
    memcpy(others, run->other_ranks, sizeof others);
    if (count && !measure(&most, run, job)) return false;
    needs[0] = most;
    for (uint32_t i = 0; i < count; i++) {
        tide_run *tried = TIDE_NEW(scratch, tide_run, 1);
        tried->cache = run->cache;
        if (!play_rank(tried, job, others[i], scratch) || !measure(&needs[i + 1], tried, job)) return false;
        if (is_more(needs[i + 1], most)) {
            most = needs[i + 1];
            greatest = others[i];
        }
        played = tide_format(arena, "%s, %" PRId64, played, others[i]);
        tide_arena_free(scratch);
    }
    if (greatest && !play_rank(run, job, greatest, arena)) return false;
    run->machine.diags = diags;
    run->rank_need_count = count ? count + 1 : 0;
    memcpy(run->rank_needs, needs, run->rank_need_count * sizeof *needs);
    set_rank(job, arena, greatest);
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.rank",
                count ? tide_format(arena, "rank %" PRId64 ", which needs the most of those that differ (0%s)",
                                    greatest, played)
                      : "rank 0: no other one needs more",
                NULL);
    return true;
}
