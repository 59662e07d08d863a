/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a job's pipeline, rank by rank, from which a picture is drawn. */
#include "parallel/parallel.h"
#include "parallel/pipeline_actions.h"
#include "parallel/schedule.h"

enum { PASS_LIMIT = 1 << 16 }; /* an answer of about 1 MB */

/* forward_backward_pipelining_with_interleaving(), which with a single chunk differs from the plain schedule only in
 * its longer warm-up: warm-up, one forward one backward, cool-down. */
static tide_actions megatron_order(const tide_pipeline_sizes *of, bool is_interleaved, uint32_t rank,
                                   tide_arena *arena) {
    uint32_t total = of->microbatches * of->chunks;
    tide_schedule_entry *table = TIDE_NEW(arena, tide_schedule_entry, total);
    tide_schedule_table(table, of->microbatches, of->chunks, of->ranks);
    uint32_t warmup = tide_schedule_warmup(of->ranks, rank, of->microbatches, of->chunks, of->ranks, is_interleaved);
    tide_actions a = {.list = TIDE_NEW(arena, tide_action, (size_t)2 * total), .capacity = 2 * total};
    for (uint32_t k = 0; k < warmup + total; k++) {
        tide_schedule_entry forward = table[k < total ? k : 0], backward = table[k < warmup ? 0 : k - warmup];
        if (k < total)
            a.list[a.count++] = (tide_action){.type = TIDE_ACTION_FORWARD,
                                              .stage = forward.chunk * of->ranks + rank,
                                              .microbatch = forward.microbatch};
        if (k >= warmup)
            a.list[a.count++] = (tide_action){.type = TIDE_ACTION_FULL_BACKWARD,
                                              .stage = (of->chunks - 1 - backward.chunk) * of->ranks + rank,
                                              .microbatch = backward.microbatch};
    }
    return a;
}

static tide_pipeline_sizes sizes_of(const tide_job *job, bool is_megatron) {
    int64_t microbatches = job->parallel_microbatches ? job->parallel_microbatches : 2 * job->parallel_pp,
            chunks = !is_megatron                   ? job->parallel_chunks
                     : job->parallel_virtual_stages ? job->parallel_virtual_stages
                                                    : 1;
    return (tide_pipeline_sizes){.schedule = job->parallel_schedule,
                                 .ranks = (uint32_t)job->parallel_pp,
                                 .chunks = (uint32_t)chunks,
                                 .microbatches = (uint32_t)microbatches};
}

bool tide_write_schedule(tide_writer *w, const tide_job *job, tide_diagnostics *diags) {
    bool is_megatron = job->parallel_kind == TIDE_parallel_kind_megatron,
         is_interleaved = is_megatron && job->parallel_virtual_stages > 0;
    bool has_stages =
        is_megatron || job->parallel_kind == TIDE_parallel_kind_native || job->parallel_kind == TIDE_parallel_kind_pp;
    if (!has_stages || job->parallel_pp < 2)
        return tide_error(diags, TIDE_ERR_REQUEST, "/settings/parallel.pp", "the job has no pipeline",
                          "pp, native and megatron with parallel.pp of 2 or more have one");
    tide_pipeline_sizes of = sizes_of(job, is_megatron);
    const char *setting, *refusal = is_megatron ? NULL : tide_pipeline_refusal(&of, &setting, w->arena);
    if (refusal)
        return tide_error(diags, TIDE_ERR_CONFLICT, tide_format(w->arena, "/settings/%s", setting), refusal, NULL);
    if ((uint64_t)of.ranks * of.chunks * of.microbatches > PASS_LIMIT)
        return tide_error(diags, TIDE_ERR_REQUEST, "/settings/parallel.microbatches",
                          "the schedule has too many passes to be listed", NULL);
    tide_write_open_at(w, "schedule", '{');
    tide_write_string_at(w, "name",
                         !is_megatron     ? job->values[TIDE_SET_parallel_schedule]
                         : is_interleaved ? "Interleaved1F1B"
                                          : "1F1B");
    tide_write_int_at(w, "stages", (int64_t)of.ranks * of.chunks);
    tide_write_int_at(w, "microbatches", of.microbatches);
    tide_write_open_at(w, "ranks", '[');
    for (uint32_t rank = 0; rank < of.ranks; rank++) {
        tide_actions passes = is_megatron ? megatron_order(&of, is_interleaved, rank, w->arena)
                                          : tide_pipeline_order(&of, rank, w->arena);
        tide_write_open(w, '{');
        tide_write_int_at(w, "in_flight", tide_actions_in_flight(&passes));
        tide_write_open_at(w, "passes", '[');
        for (uint32_t i = 0; i < passes.count; i++) tide_write_string(w, tide_action_text(passes.list[i], w->arena));
        tide_write_close(w, ']');
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_close(w, '}');
    return true;
}
