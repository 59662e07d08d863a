/* SPDX-License-Identifier: Apache-2.0 */
/* Plays rank 0 first, then the ranks that its strategy names as those that may need more. */
#include "report/ranks.h"

#include <inttypes.h>
#include <string.h>

#include "parallel/strategies.h"
#include "report/job_events.h"
#include "report/job_report.h"
#include "report/serving.h"
#include "serve/serve.h"

const tide_frameworks tide_frameworks_of_jobs = {tide_strategy_find, tide_start_colocated};

bool tide_rank_needs_more(tide_rank_need a, tide_rank_need b) {
    return a.reserved != b.reserved ? a.reserved > b.reserved : a.allocated > b.allocated;
}

static bool measure(tide_rank_need *of, tide_run *run, const tide_job *job) {
    tide_event_source source = tide_job_events(run).source;
    tide_replay_config config = tide_job_config(job);
    if (!tide_replay_peaks(&run->peaks, &source, &config, run->machine.timeline.arena)) return false;
    run->has_peaks = true;
    *of = (tide_rank_need){job->parallel_rank, run->peaks.allocated_peak, run->peaks.reserved_peak, run->in_flight};
    return true;
}

static void set_rank(tide_job *job, tide_arena *arena, int64_t rank) {
    job->parallel_rank = rank;
    job->values[TIDE_SET_parallel_rank] = tide_format(arena, "%" PRId64, rank);
}

/* A rank that is played in an arena of its own. */
typedef struct trial {
    tide_arena *arena;
    tide_run *run;
    tide_rank_need needs;
} trial;

/* Its diagnostics are kept only if it fails. */
static bool try_rank(trial *t, tide_job *job, int64_t rank, tide_arena *arena, const tide_run *first) {
    tide_diagnostics *unheard = TIDE_NEW(arena, tide_diagnostics, 1);
    tide_diagnostics_init(unheard, arena);
    *t = (trial){.arena = TIDE_NEW(arena, tide_arena, 1)};
    tide_arena_init(t->arena, tide_arena_memory(arena), arena->escape);
    t->run = TIDE_NEW(t->arena, tide_run, 1);
    t->run->cache = first->cache;
    t->run->frameworks = &tide_frameworks_of_jobs;
    set_rank(job, arena, rank);
    if (tide_run_job(t->run, job, t->arena, unheard)) return measure(&t->needs, t->run, job);
    for (uint32_t i = 0; i < unheard->count; i++) {
        const tide_diagnostic *said = &unheard->items[i];
        if (said->severity == TIDE_ERROR)
            tide_error(first->machine.diags, said->status, said->place, said->message, said->remedy);
    }
    return false;
}

/* The run that needs the most of rank 0's, which was played, and the others; NULL after an error. */
static tide_run *greatest_of(tide_run *first, tide_job *job, tide_arena *arena, const char **played) {
    uint32_t count = first->other_rank_count;
    trial most = {.run = first};
    tide_rank_need needs[TIDE_OTHER_RANKS + 1];
    if (!measure(&most.needs, first, job)) return NULL;
    needs[0] = most.needs;
    for (uint32_t i = 0; i < count; i++) {
        trial now;
        if (!try_rank(&now, job, first->other_ranks[i], arena, first)) return NULL;
        needs[i + 1] = now.needs;
        *played = tide_format(arena, "%s, %" PRId64, *played, now.needs.rank);
        const trial less = tide_rank_needs_more(now.needs, most.needs) ? most : now;
        if (less.run == most.run) most = now;
        if (less.arena) tide_arena_free(less.arena);
    }
    most.run->rank_need_count = count + 1;
    memcpy(most.run->rank_needs, needs, (count + 1) * sizeof *needs);
    set_rank(job, arena, most.needs.rank);
    return most.run;
}

static const tide_rank_need *need_of(const tide_run *run, int64_t rank) {
    for (uint32_t i = 0; i < run->rank_need_count; i++)
        if (run->rank_needs[i].rank == rank) return &run->rank_needs[i];
    return NULL;
}

bool tide_run_stages(tide_run *run, tide_job *job, tide_arena *arena) {
    uint32_t count = run->stages.ranks;
    tide_rank_need needs[TIDE_OTHER_RANKS + 1];
    int64_t shown = job->parallel_rank;
    if (!run->rank_need_count || count > TIDE_OTHER_RANKS + 1) return true;
    for (uint32_t i = 0; i < count; i++) {
        int64_t rank = i * run->stages.apart;
        const tide_rank_need *played = need_of(run, rank);
        trial now = {0};
        bool ok = played || try_rank(&now, job, rank, arena, run);
        if (!ok) return false;
        needs[i] = played ? *played : now.needs;
        if (now.arena) tide_arena_free(now.arena);
    }
    set_rank(job, arena, shown);
    if (count) memcpy(run->rank_needs, needs, count * sizeof *needs);
    if (count) run->rank_need_count = count;
    return true;
}

tide_run *tide_run_what_if(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    bool may_keep = !tide_has_colocated_engine(job); /* its engine is started with the rest */
    if (cache && may_keep && job->mode != TIDE_mode_serve && job->parallel_kind == TIDE_parallel_kind_none)
        return tide_run_next(cache, job, arena, diags);
    return tide_run_ranks(cache, job, arena, diags);
}

tide_run *tide_run_ranks(tide_description_cache *cache, tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    tide_run *run = TIDE_NEW(arena, tide_run, 1);
    run->cache = cache;
    run->frameworks = &tide_frameworks_of_jobs;
    if (job->mode == TIDE_mode_serve) return tide_run_serving(run, job, arena, diags) ? run : NULL;
    bool is_alone = tide_job_world(job) < 2;
    bool is_free = !tide_job_sets(job, TIDE_SET_parallel_rank) && !is_alone;
    if (!tide_run_job(run, job, arena, diags)) return NULL;
    if (!is_free) return run;
    const char *played = "";
    if (!run->other_rank_count)
        set_rank(job, arena, 0);
    else
        run = greatest_of(run, job, arena, &played);
    if (!run) return NULL;
    run->machine.diags = diags;
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.rank",
                *played ? tide_format(arena, "rank %" PRId64 ", which needs the most of those that differ (0%s)",
                                      job->parallel_rank, played)
                        : "rank 0: no other rank needs more",
                NULL);
    return run;
}
