/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's memory is played as blocks of its own: weights, cache, what else it keeps, and what a forward pass
 * takes. In its own process on other GPUs it has none here but for what the weights are sent in. */
#include "train/vllm_generation.h"

#include <string.h>

#include "base/rounding.h"
#include "base/units.h"

/* Of the pool that sleeps (device_allocator/cumem.py), and of the two buffers that weights are sent in. */
enum { ENGINE_POOL = 4, FIRST_BUFFER = 5 };

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

/* sleep(level=2): both are given back, and the caching allocator's free segments with them. */
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
        if (t->allocations[i].died == TIDE_NEVER) bytes += t->allocations[i].bytes;
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

/* lora/layer.py, get_delta_weight() and merge(): the product, what it is scaled to, added in place. */
static void merge_layer(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_value of[] = {tide_of_tensor(b), tide_of_tensor(a)};
    bool has_grad = m->state.grad_enabled;
    m->state.grad_enabled = false;
    m->op = "merge_adapter";
    tide_value product = tide_op_find(TIDE_TEXT("matmul"))->run(m, of);
    if (product.kind == TIDE_VALUE_TENSOR) tide_release(m, tide_scale(m, product.tensor));
    tide_value_release(m, product);
    m->state.grad_enabled = has_grad;
}

/* merge_adapter(), and unmerge_adapter() alike, of every pair of A and B, on the stream of whoever takes the weights.
 */
static void merge_adapters(tide_run *run, const tide_job *job, uint32_t stream) {
    tide_model *model = &run->model;
    uint32_t before = model->m->state.stream;
    if (job->adapter == TIDE_adapter_none) return;
    model->m->state.stream = stream;
    for (uint32_t i = 0; i + 1 < model->parameter_count; i++) {
        const tide_parameter_row *a = &model->parameters[i], *b = &model->parameters[i + 1];
        bool is_pair = strstr(a->name, "lora_A") && strstr(b->name, "lora_B");
        if (is_pair && a->tensor->shape->dims == 2) merge_layer(&run->machine, a->tensor, b->tensor);
    }
    model->m->state.stream = before;
}

static bool is_of_adapter(const char *name) {
    return strstr(name, "lora_") != NULL;
}

enum { BUFFERS = 2, BUFFER_BYTES = 1 << 30 };

/* vllm/distributed/weight_transfer/packed_tensor.py, packed_nccl_broadcast_producer(): weights are put together until
 * they are more than a buffer's size. */
static void send_weights(tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    tide_model *model = &run->model;
    tide_tensor *in_flight[BUFFERS] = {NULL};
    uint32_t buffer = 0;
    uint64_t bytes = 0;
    merge_adapters(run, job, FIRST_BUFFER);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (!is_of_adapter(row->name)) bytes += (uint64_t)tide_bytes(row->tensor);
        if (bytes <= BUFFER_BYTES && i + 1 < model->parameter_count) continue;
        tide_release(m, in_flight[buffer]);
        if (i + 1 == model->parameter_count) /* the iterator ends with unmerge_adapter() */
            merge_adapters(run, job, FIRST_BUFFER + buffer);
        in_flight[buffer] =
            take(m, "packed_nccl_broadcast_producer", TIDE_FACTOR_TEMPORARY, bytes, FIRST_BUFFER + buffer);
        buffer = (buffer + 1) % BUFFERS;
        bytes = 0;
    }
    for (uint32_t i = 0; i < BUFFERS; i++) tide_release(m, in_flight[i]);
}

static void sync_weights(tide_vllm_generation *v, tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    bool is_colocated = tide_has_colocated_engine(job);
    if (is_colocated && job->trainer_vllm_enable_sleep_mode) {
        tide_timeline_empty_cache(&m->timeline);
        wake_weights(v, m, job);
    }
    if (is_colocated || !v->loaded_step) { /* for the names and shapes alone, where there is a server */
        merge_adapters(run, job, 0);
        merge_adapters(run, job, 0);
    }
    if (!is_colocated && job->parallel_rank == 0) send_weights(run, job);
}

void tide_vllm_generate(tide_vllm_generation *v, tide_run *run, const tide_job *job, unsigned step) {
    tide_machine *m = &run->machine;
    bool sleeps = tide_has_colocated_engine(job) && job->trainer_vllm_enable_sleep_mode;
    m->module = m->statement = 0;
    if (v->loaded_step != step || (sleeps && !v->weights)) {
        sync_weights(v, run, job);
        v->loaded_step = step;
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_SYNC);
    }
    if (sleeps) wake_cache(v, m, job);
    run_engine(v, m);
    if (sleeps) sleep_engine(v, m);
}
