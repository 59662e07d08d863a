/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that TRL starts inside of the trainer's process: trl/generation/vllm_generation.py, _init_vllm(). */
#include "base/units.h"
#include "serve/serve.h"

enum { MAX_NUM_BATCHED_TOKENS = 4096 };

/* The arguments of LLM(). */
static tide_job job_of_engine(const tide_job *of) {
    tide_job job = *of;
    job.mode = TIDE_mode_serve;
    job.engine = TIDE_engine_vllm;
    job.dtype = (tide_optional_dtype){.is_set = false};
    job.gpu_memory_utilization = of->trainer_vllm_gpu_memory_utilization;
    job.max_model_len = of->trainer_vllm_max_model_length;
    job.max_num_seqs = of->batch * tide_steps_per_generation(of);
    job.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS;
    job.enable_sleep_mode = of->trainer_vllm_enable_sleep_mode;
    return job;
}

bool tide_start_colocated(tide_colocated *engine, const tide_job *of, uint64_t beside, tide_arena *arena,
                          tide_diagnostics *diags) {
    tide_job job = job_of_engine(of);
    tide_serve_run *run = TIDE_NEW(arena, tide_serve_run, 1);
    tide_serve_device device = tide_serve_device_of(&job, arena);
    const tide_serve_figures *f = &run->figures;
    device.used_bytes += beside;
    if (!tide_serve_start(run, &job, &device, arena, diags)) return false;
    if (f->refusal)
        return tide_error(diags, TIDE_ERR_CONFLICT, "/settings/trainer.vllm_gpu_memory_utilization",
                          tide_format(arena, "the engine does not start beside the trainer: %s", f->refusal),
                          "set it, or trainer.vllm_max_model_length, so that the trainer's models, and the engine's "
                          "weights and one request, have room");
    *engine = (tide_colocated){.weights = f->model_bytes,
                               .cache = (uint64_t)(f->num_blocks * f->block_bytes),
                               .kept = f->consumed - f->model_bytes + f->graph_bytes,
                               .working = f->transient,
                               .uncertain = f->may_take + f->uncertain,
                               .may_refuse = f->may_refuse};
    return true;
}
