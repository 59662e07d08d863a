/* SPDX-License-Identifier: Apache-2.0 */
/* Playing a job with other settings. */
#include "report/what_if.h"

#include <setjmp.h>
#include <string.h>

#include "base/units.h"
#include "report/job_events.h"
#include "report/job_report.h"
#include "report/members.h"
#include "report/ranks.h"
#include "report/serving.h"

static void keep_rows(tide_what_if *v, tide_arena *arena, const tide_job *job) {
    v->rows = TIDE_NEW(arena, tide_setting_row, job->row_count + 1);
    v->row_count = job->row_count;
    for (uint32_t i = 0; i < job->row_count; i++) {
        v->rows[i] = job->rows[i];
        v->rows[i].name = tide_text_copy(arena, tide_text_of(job->rows[i].name));
        v->rows[i].value = tide_text_copy(arena, tide_text_of(job->rows[i].value));
    }
}

/* Keeps the stages if different ranks were played. */
static void keep_stages(tide_what_if *v, tide_arena *arena, const tide_run *run, const tide_job *job) {
    const tide_stages *s = &run->stages;
    uint32_t stages = s->ranks * s->chunks;
    if (!tide_moves_layers(run)) return;
    v->stages = *s;
    v->stages.of_rank = TIDE_NEW(arena, uint32_t, stages);
    v->stages.layers = TIDE_NEW(arena, uint32_t, stages * s->kinds);
    memcpy(v->stages.of_rank, s->of_rank, stages * sizeof *s->of_rank);
    memcpy(v->stages.layers, s->layers, stages * s->kinds * sizeof *s->layers);
    v->stages_rank = (uint32_t)(job->parallel_rank / s->apart % s->ranks);
}

static void keep_error(tide_what_if *v, tide_arena *arena, const tide_diagnostic *error) {
    v->place = tide_text_copy(arena, tide_text_of(error->place));
    v->what = tide_text_copy(arena, tide_text_of(error->message));
    v->remedy = error->remedy ? tide_text_copy(arena, tide_text_of(error->remedy)) : NULL;
    v->message = tide_format(arena, "%s: %s", v->place, v->what);
}

static bool play_query(tide_what_if *v, const tide_query *q, tide_arena *arena, const char *const *more,
                       uint32_t count) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, arena);
    tide_text *arguments = TIDE_NEW(arena, tide_text, q->argument_count + count + 1);
    memcpy(arguments, q->arguments, q->argument_count * sizeof *arguments);
    for (uint32_t i = 0; i < count; i++) arguments[q->argument_count + i] = tide_text_of(more[i]);
    tide_job *job = tide_job_build(arena, arguments, q->argument_count + count, q->files, q->file_count, &diags);
    tide_run *run = job ? tide_run_what_if(q->cache, job, arena, &diags) : NULL;
    if (!run) {
        v->status = diags.first_error;
        for (uint32_t i = diags.count; i-- > 0;)
            if (diags.items[i].severity == TIDE_ERROR) keep_error(v, q->arena, &diags.items[i]);
        return true;
    }
    tide_job_report r;
    if (!tide_job_report_open(&r, NULL, run, job) || !tide_job_report_on_card(&r)) return false;
    const tide_serving *serving = run->serving;
    v->fit = tide_job_report_verdict(&r);
    v->fits = tide_job_report_fit(&r) == TIDE_FITS;
    v->need = tide_job_report_need(&r);
    v->serves = serving != NULL;
    v->requests = serving ? tide_serving_requests(serving) : 0;
    v->tokens = serving ? serving->run->figures.capacity_tokens : 0;
    v->there = job->device_bytes;
    v->allocated = r.replay.allocated_peak;
    v->reserved = r.replay.reserved_peak;
    v->gpus = tide_job_world(job);
    v->data_ranks = job->parallel_dp;
    tide_factors_at_peak(&r, v->factors);
    v->parts = tide_parts_at_peak(&r, &v->part_count, q->arena);
    keep_stages(v, q->arena, run, job);
    keep_rows(v, q->arena, job);
    return true;
}

tide_what_if tide_what_if_play(const tide_query *q, const char *const *more, uint32_t count) {
    jmp_buf escape;
    tide_arena arena;
    tide_what_if v = {.status = TIDE_OK, .message = "", .place = "", .what = ""};
    tide_arena_init(&arena, q->arena->memory, &escape);
    jmp_buf *outside = q->arena->escape;
    q->arena->escape = &escape; /* what is kept of this play is allocated there */
    bool ok = setjmp(escape) == 0 && play_query(&v, q, &arena, more, count);
    q->arena->escape = outside;
    tide_arena_free(&arena);
    if (!ok) tide_arena_fail(q->arena);
    return v;
}

bool tide_what_if_evaluates(const tide_what_if *v) {
    const char *strategy = tide_what_if_setting(v, "trainer.eval_strategy");
    return strategy[0] && strcmp(strategy, "no") != 0;
}

bool tide_what_if_holds(const tide_what_if *v) {
    return v->status == TIDE_OK && v->fits && (v->serves || !v->there || v->need <= v->there);
}

bool tide_what_if_lasts(const tide_what_if *v) {
    return tide_what_if_holds(v) && (v->serves || !v->there || tide_leaves_spare(v->need, v->there));
}

const char *tide_what_if_setting(const tide_what_if *v, const char *name) {
    for (uint32_t i = 0; i < v->row_count; i++)
        if (strcmp(v->rows[i].name, name) == 0) return v->rows[i].value;
    return "";
}

bool tide_what_if_now(tide_what_if *v, const tide_query *q, tide_diagnostics *diags) {
    *v = tide_what_if_play(q, NULL, 0);
    return v->status == TIDE_OK || tide_error(diags, v->status, v->place, v->what, v->remedy);
}

/* A lower bound, in bytes, of what a rank of the job allocates without its quantisation, with weights in half
 * precision; or without its adapter: weights and gradients of all parameters, and AdamW's moments in a second step. Of
 * sharded ones it is the mean over the ranks. 0: unknown. */
static uint64_t least_of_plainer(const tide_run *run, const tide_job *job) {
    bool is_whole = job->parallel_kind == TIDE_parallel_kind_none || job->parallel_kind == TIDE_parallel_kind_ddp;
    bool is_on_host =
        !is_whole && (job->parallel_offload || job->parallel_offload_param != TIDE_parallel_offload_param_none);
    bool keeps_states = is_whole || job->parallel_offload_optimizer == TIDE_parallel_offload_optimizer_none;
    bool is_adamw = job->optimizer == TIDE_optimizer_adamw || job->optimizer == TIDE_optimizer_adamw_fused;
    uint64_t weights = (uint64_t)(run->parameters - run->trainable) / (is_whole ? 1 : (uint64_t)tide_job_world(job));
    if (job->parallel_pp > 1 || is_on_host) return 0;
    if (job->quant != TIDE_quant_none) return weights * (uint64_t)tide_dtype_bytes(TIDE_BF16);
    if (job->freeze.count || job->train_only.count) return 0;
    return weights * (uint64_t)tide_dtype_bytes(run->model.state.dtype) *
           (!keeps_states                ? 1
            : is_adamw && job->steps > 1 ? 4
                                         : 2);
}

/* Whether the job has an adapter or quantised weights, and so should need less than without. */
static bool has_plainer(const tide_job *job) {
    return job->mode == TIDE_mode_train && (job->quant != TIDE_quant_none || job->adapter != TIDE_adapter_none);
}

bool tide_moves_layers(const tide_run *run) {
    return run->stages.ranks && run->rank_need_count;
}

bool tide_plays_others(const tide_run *run, const tide_job *job) {
    return run->serving || has_plainer(job) || tide_moves_layers(run);
}

/* Whether micro-batches after the second need what the second needs, and nothing else depends on how many there are. */
static bool has_alike_micro_batches(const tide_job *job) {
    return job->grad_accum > 2 && !tide_job_has_lengths(job) && !tide_trainer_generates(job);
}

/* The job with another setting, as far as it must be played: one micro-batch shows that most need more than
 * `allocated_peak`. */
static tide_what_if play_plainer(const tide_query *q, const tide_job *job, const char *word, uint64_t allocated_peak) {
    const char *const words[] = {word, "grad_accum=1", "steps=1"}, *const two[] = {word, "grad_accum=2"};
    if (!has_alike_micro_batches(job)) return tide_what_if_play(q, &word, 1);
    tide_what_if first = tide_what_if_play(q, words, 3);
    return first.status == TIDE_OK && first.allocated < allocated_peak ? tide_what_if_play(q, two, 2) : first;
}

void tide_warn_of_more(const tide_query *q, const tide_run *run, const tide_job *job, uint64_t allocated_peak,
                       tide_diagnostics *diags) {
    static const struct {
        const char *word, *place, *remedy;
    } plain[] = {{"quant=none", "/settings/quant",
                  "parameters that are not quantised are kept in fp32 (kbit_prepare), and each product dequantises "
                  "its weight: try kbit_prepare=false, or no quant"},
                 {"adapter=none", "/settings/adapter",
                  "adapt fewer modules or use a lower rank, avoid copies (modules_to_save) and DoRA, or train the "
                  "model itself"}};
    bool is_quantised = job->quant != TIDE_quant_none;
    if (!has_plainer(job) || allocated_peak <= least_of_plainer(run, job)) return; /* no need to play it */
    const char *word = plain[!is_quantised].word;
    tide_what_if v = play_plainer(q, job, word, allocated_peak);
    if (v.status == TIDE_OK && v.allocated < allocated_peak)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, plain[!is_quantised].place,
                    tide_format(q->arena, "needs more than %s: %s allocated at most, instead of %s", word,
                                tide_gib(q->arena, allocated_peak), tide_gib(q->arena, v.allocated)),
                    plain[!is_quantised].remedy);
}

void tide_write_what_if(tide_writer *w, const tide_what_if *v) {
    if (v->there) tide_write_fit_at(w, v->fit);
    if (v->there) tide_write_bool_at(w, "lasts", tide_what_if_lasts(v));
    tide_write_bytes_at(w, "device_bytes", v->need);
    if (v->there) tide_write_bytes_at(w, "gpu_bytes", v->there);
    tide_write_bytes_at(w, "allocated_peak", v->allocated);
    tide_write_bytes_at(w, "reserved_peak", v->reserved);
    if (v->serves) {
        tide_write_int_at(w, "requests", v->requests);
        tide_write_int_at(w, "tokens", v->tokens);
    }
}

void tide_write_changed(tide_writer *w, const char *const *words, uint32_t count, uint64_t need,
                        const tide_what_if *after) {
    tide_write_open_at(w, "settings", '[');
    for (uint32_t i = 0; i < count; i++) tide_write_string(w, words[i]);
    tide_write_close(w, ']');
    tide_write_int_at(w, "saves", (int64_t)(need - after->need));
    tide_write_what_if(w, after);
}
