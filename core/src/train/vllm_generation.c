/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's memory is played as a few blocks: weights, cache, other permanent memory, and the memory of a forward
 * pass. An engine in its own process on other GPUs only has memory here for the transfer of weights. */
#include "train/vllm_generation.h"

#include <string.h>

#include "base/rounding.h"
#include "base/units.h"
#include "train/weight_transfer.h"

/* Of the pool that sleeps (device_allocator/cumem.py), before those of weight_transfer.h. */
enum { ENGINE_POOL = TIDE_FIRST_BUFFER - 1 };

static tide_tensor *take(tide_machine *m, const char *op, tide_factor factor, uint64_t bytes, uint32_t stream) {
    tide_shape shape = {.dim = {{.size = (int64_t)bytes}}, .dims = 1};
    uint32_t before = m->state.stream;
    bool is_on_host = m->makes_on_host;
    if (!bytes) return NULL;
    m->makes_on_host = false;
    m->state.stream = stream;
    m->op = op;
    m->state.factor = factor;
    tide_tensor *made = tide_empty(m, &shape, TIDE_UINT8);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->state.stream = before;
    m->makes_on_host = is_on_host;
    return made;
}

static uint32_t pool_of(const tide_job *job) {
    return job->trainer_vllm_enable_sleep_mode ? ENGINE_POOL : 0;
}

static void wake_weights(tide_vllm_generation *v, tide_machine *m, const tide_job *job) {
    if (!v->weights) v->weights = take(m, "vLLM: weights", TIDE_FACTOR_PARAMETER, v->engine.weights, pool_of(job));
}

static void wake_cache(tide_vllm_generation *v, tide_machine *m, const tide_job *job) {
    if (!v->cache) v->cache = take(m, "vLLM: KV cache", TIDE_FACTOR_KV_CACHE, v->engine.cache, pool_of(job));
}

/* sleep(level=2): both are released, and the free segments of the caching allocator with them. */
static void sleep_engine(tide_vllm_generation *v, tide_machine *m) {
    tide_del(m, "LLM.sleep", v->weights);
    tide_del(m, "LLM.sleep", v->cache);
    v->weights = v->cache = NULL;
    tide_timeline_empty_cache(&m->timeline);
}

static void run_engine(tide_vllm_generation *v, tide_machine *m) {
    tide_release(m, take(m, "vLLM: forward", TIDE_FACTOR_TEMPORARY, v->engine.working, 0));
}

static uint64_t live_bytes(const tide_timeline *t) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (*tide_timeline_died(t, i) == TIDE_NEVER) bytes += tide_timeline_at(t, i)->bytes;
    return bytes;
}

bool tide_vllm_init(tide_vllm_generation *v, tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    if (!tide_has_colocated_engine(job)) return true;
    m->module = m->statement = 0;
    tide_timeline_empty_cache(&m->timeline);
    if (!run->frameworks ||
        !run->frameworks->start_colocated(&v->engine, job, live_bytes(&m->timeline), m->arena, m->diags))
        return false;
    run->margin += v->engine.uncertain;
    run->engine_may_refuse = v->engine.may_refuse;
    run->margin_reason = "compiled code and CUDA graphs of the engine decide";
    wake_weights(v, m, job);
    take(m, "vLLM: buffers and graphs", TIDE_FACTOR_WORKSPACE, v->engine.kept, 0); /* as long as the run */
    run_engine(v, m);
    tide_timeline_empty_cache(&m->timeline);
    wake_cache(v, m, job);
    if (job->trainer_vllm_enable_sleep_mode)
        sleep_engine(v, m);
    else
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/trainer.vllm_enable_sleep_mode",
                    tide_format(m->arena,
                                "the engine is awake while the trainer trains: %s of its weights and cache lie beside "
                                "gradients and optimizer state",
                                tide_gib(m->arena, v->engine.weights + v->engine.cache)),
                    "trainer.vllm_enable_sleep_mode=true gives them back for the update, a smaller "
                    "trainer.vllm_gpu_memory_utilization takes less");
    return !m->has_failed;
}

/* ---- sync_weights ---- */

static void sync_weights(tide_vllm_generation *v, tide_run *run, tide_wrapper *w, const tide_strategy *strategy) {
    const tide_job *job = w->job;
    tide_machine *m = &run->machine;
    bool is_colocated = tide_has_colocated_engine(job);
    if (is_colocated && job->trainer_vllm_enable_sleep_mode) {
        tide_timeline_empty_cache(&m->timeline);
        wake_weights(v, m, job);
    }
    bool sends = !is_colocated && w->rank == 0;
    if (!sends || !v->loaded_step) tide_walk_weights(run, w, strategy);
    if (!is_colocated && !sends && !v->loaded_step)
        tide_walk_weights(run, w, strategy); /* for their names, on rank 0 too */
    if (sends) tide_send_weights(run, w, strategy);
}

void tide_vllm_generate(tide_vllm_generation *v, tide_run *run, tide_wrapper *w, const tide_strategy *strategy,
                        unsigned step) {
    tide_machine *m = &run->machine;
    const tide_job *job = w->job;
    bool sleeps = tide_has_colocated_engine(job) && job->trainer_vllm_enable_sleep_mode;
    m->module = m->statement = 0;
    if (v->loaded_step != step || (sleeps && !v->weights)) {
        sync_weights(v, run, w, strategy);
        v->loaded_step = step;
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_SYNC);
    }
    if (sleeps) wake_cache(v, m, job);
    run_engine(v, m);
    if (sleeps) sleep_engine(v, m);
}
