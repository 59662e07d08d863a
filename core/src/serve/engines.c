/* SPDX-License-Identifier: Apache-2.0 */
/* The table of engines. */
#include "serve/serve.h"

static const tide_engine *const engines[TIDE_engine_COUNT] = {[TIDE_engine_vllm] = &tide_vllm_engine,
                                                              [TIDE_engine_llama_cpp] = &tide_llama_cpp_engine,
                                                              [TIDE_engine_transformers] = &tide_transformers_engine,
                                                              [TIDE_engine_sglang] = &tide_sglang_engine};

const tide_engine *tide_engine_of(const tide_job *job) {
    return engines[job->engine];
}

bool tide_serve_start(tide_serve_run *run, const tide_job *job, const tide_serve_device *device, tide_arena *arena,
                      tide_diagnostics *diags) {
    run->engine = tide_engine_of(job);
    return run->engine->start(run, job, device, arena, diags);
}

int64_t tide_serve_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length) {
    return run->engine->blocks_of(run, requests, length);
}
