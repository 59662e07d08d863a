/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an inference server: every stage of a pipeline, and every server on a GPU. */
#include "report/serving_start.h"

#include <inttypes.h>

#include "base/decimal.h"
#include "base/units.h"

enum {
    STAGE_LIMIT = 32, /* each is played */
    UTILIZATION = 92  /* percent: the default of gpu_memory_utilization */
};

int64_t tide_serving_tables(const tide_serve_run *run) {
    int64_t bytes = 0, slots = run->figures.max_num_seqs;
    for (uint32_t i = 0; i < run->figures.group_count; i++) {
        const tide_cache_group *g = &run->figures.groups[i];
        int64_t width = g->spec.kind == TIDE_CACHE_STATE
                            ? g->blocks_per_request
                            : TIDE_CEIL_DIV(run->figures.max_model_len, g->spec.block_size);
        bytes += 2 * 4 * slots * width;
    }
    return bytes + 8 * (int64_t)run->figures.group_count * run->figures.max_num_batched_tokens;
}

/* The stage of the pipeline with the fewest blocks decides for all. */
static tide_serve_run *start(const tide_job *job, const tide_serve_device *device, const tide_serve_run *like,
                             tide_serve_descriptions *kept, tide_arena *arena, tide_diagnostics *diags) {
    tide_job of_stage = *job;
    tide_serve_run *fewest = NULL;
    for (int64_t stage = 0; stage < job->pipeline_parallel_size; stage++) {
        tide_serve_run *run = TIDE_NEW(arena, tide_serve_run, 1);
        run->kept = kept;
        run->like = job->pipeline_parallel_size == 1 ? like : NULL;
        of_stage.worker_rank = job->worker_rank ? job->worker_rank : stage * job->tensor_parallel_size;
        if (!tide_serve_start(run, &of_stage, device, arena, diags)) return NULL;
        if (!fewest || run->figures.refusal || run->figures.num_blocks < fewest->figures.num_blocks) fewest = run;
        if (job->worker_rank || fewest->figures.refusal) break;
    }
    return fewest;
}

/* What other servers leave to the last one on a GPU: each has its context, its budget, and its tables. */
static void share_card(tide_serve_device *device, const tide_job *job, const tide_serve_run *first) {
    uint64_t each = device->used_bytes + first->figures.requested + (uint64_t)tide_serving_tables(first);
    device->used_bytes += (uint64_t)(job->replicas - 1) * each;
}

tide_serve_run *tide_serving_play(const tide_job *given, const tide_serve_run *like, tide_serve_descriptions *kept,
                                  tide_arena *arena, tide_diagnostics *diags) {
    tide_job job = *given;
    tide_serve_device device = tide_serve_device_of(&job, arena);
    if (job.engine == TIDE_engine_vllm && job.replicas > 1 && !job.gpu_memory_utilization)
        job.gpu_memory_utilization = UTILIZATION / job.replicas * (TIDE_PICO / 100);
    tide_serve_run *run = start(&job, &device, like, kept, arena, diags);
    if (!run || job.replicas == 1) return run;
    share_card(&device, &job, run);
    return start(&job, &device, like, kept, arena, diags);
}

static bool check_serving_rank(const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    int64_t ranks = job->tensor_parallel_size * job->pipeline_parallel_size;
    if (job->pipeline_parallel_size > STAGE_LIMIT)
        return tide_error(diags, TIDE_ERR_LIMIT, "/settings/pipeline_parallel_size",
                          tide_format(arena, "more than %d stages are not played", STAGE_LIMIT), NULL);
    return job->worker_rank < ranks ||
           tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/worker_rank",
                      tide_format(arena, "is %" PRId64 "; ranks go from 0 to %" PRId64, job->worker_rank, ranks - 1),
                      NULL);
}

bool tide_run_serving(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    tide_serving *serving = TIDE_NEW(arena, tide_serving, 1);
    serving->job = job;
    if (!tide_request_mix_read(&serving->mix, job, diags) || !check_serving_rank(job, arena, diags) ||
        !(serving->run = tide_serving_play(job, NULL, NULL, arena, diags)))
        return false;
    serving->device = serving->run->device;
    run->serving = serving;
    run->machine = serving->run->machine;
    run->model = serving->run->model;
    run->descriptions = serving->run->descriptions;
    run->parameters = serving->run->parameters;
    if (serving->run->figures.buffer_count) return true; /* for which no model is played */
    tide_model_list_parameters(&run->model);             /* of the model, not of the runner's state */
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *p = &run->model.parameters[i];
        p->count = tide_model_count(&run->model, p);
        run->parameters += p->count;
    }
    return true;
}

int64_t tide_serving_requests_of(const tide_serving *serving, const tide_serve_run *run) {
    int64_t each = serving->mix.count ? tide_requests_of_mix(run, &serving->mix)
                                      : tide_requests_of(run, run->figures.max_model_len);
    return each * run->job.data_parallel_size * run->job.replicas;
}

int64_t tide_serving_requests(const tide_serving *serving) {
    return serving->run->figures.refusal ? 0 : tide_serving_requests_of(serving, serving->run);
}

static int64_t requests_wanted(const tide_serving *serving) {
    return serving->job->max_concurrency ? serving->job->max_concurrency : serving->mix.count ? 1 : 0;
}

bool tide_serving_may_fit(const tide_serving *serving) {
    tide_serve_run most = *serving->run;
    if (most.figures.refusal) return most.figures.may_start;
    most.figures.blocks_at_least = most.figures.blocks_at_most;
    return tide_serving_requests_of(serving, &most) >= requests_wanted(serving);
}

bool tide_serving_fits(const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    bool is_range = f->buffer_count > 0;
    return !f->refusal && !f->may_refuse && tide_serving_requests(serving) >= requests_wanted(serving) &&
           !(is_range && tide_serving_bytes(serving) > serving->device.total_bytes);
}

uint64_t tide_serving_bytes(const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    if (f->buffer_count) return serving->device.used_bytes + (uint64_t)tide_serve_buffers_high(serving->run);
    uint64_t cache = f->refusal ? 0 : (uint64_t)(f->num_blocks * f->block_bytes);
    return serving->device.used_bytes + f->consumed + f->transient + f->graph_bytes + cache;
}
