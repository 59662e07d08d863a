/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-Core: one rank of a job with tensor, sequence, pipeline, context, expert and data parallelism.
 *
 * The model is a description in Megatron's own terms (models/architectures/megatron_*.json); gradient buffers,
 * optimizer and schedule are in the files beside this one. The order of calls is that of Megatron-LM's training.py. */
#include "parallel/megatron.h"

#include "lang/lang.h"
#include "parallel/schedule.h"

/* What a constructor does besides making the parameters of its module: make_buffers(), before those of the modules
 * within; reset_parameters(), that of TransformerEngineBaseModule; provide(), what Megatron-Bridge does with a finished
 * chunk. */
static void call_constructor(tide_model *model, uint32_t module, tide_text method) {
    const tide_class *of = model->instances[module].of;
    if (of && tide_method_find(of, method)) tide_model_call(model, module, method, TIDE_FACTOR_TEMPORARY);
    model->m->op = "Parameter";
    model->m->state.factor = TIDE_FACTOR_PARAMETER;
}

/* Makes the buffers of modules up to this one, on the device. */
static void make_buffers(tide_model *model, uint32_t *next, uint32_t end) {
    for (; *next < end; ++*next) call_constructor(model, *next, TIDE_TEXT("make_buffers"));
}

/* Finishes the chunks before module `made`; *chunk, an index of instances, moves on to the chunk of that module. */
static void end_chunks(tide_model *model, uint32_t *chunk, uint32_t made) {
    for (uint32_t i = *chunk + 1; i <= made; i++) {
        const tide_class *of = i < model->instance_count ? model->instances[i].of : NULL;
        if (i < model->instance_count && !(of && tide_method_find(of, TIDE_TEXT("provide")))) continue;
        if (*chunk) call_constructor(model, *chunk, TIDE_TEXT("provide"));
        *chunk = i;
    }
}

/* Parameters are made on the device, in the order of the constructors, except those that are made on the host and moved
 * by Module.cuda(): those of torch.nn, in fp32, and the router's. */
static void megatron_load(tide_model *model, const tide_job *job) {
    (void)job;
    tide_machine *m = model->m;
    m->op = "Parameter";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    uint32_t next = 0, chunk = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        bool is_first = !i || row->module != row[-1].module;
        if (i && is_first) call_constructor(model, row[-1].module, TIDE_TEXT("reset_parameters"));
        if (is_first) make_buffers(model, &next, row->module);
        if (is_first) end_chunks(model, &chunk, row->module);
        if (!row->tensor->storage->is_untracked) continue;
        tide_value on_host = tide_megatron_attribute(model, i, "on_host");
        bool is_said = on_host.kind == TIDE_VALUE_BOOL;
        if (is_said ? on_host.truth : row->tensor->dtype != model->state.dtype) continue;
        m->module = row->module;
        tide_tensor *made = tide_empty(m, row->tensor->shape, (tide_dtype)row->tensor->dtype);
        tide_set_data(m, row->tensor, made);
        tide_release(m, made);
    }
    if (model->parameter_count)
        call_constructor(model, model->parameters[model->parameter_count - 1].module, TIDE_TEXT("reset_parameters"));
    end_chunks(model, &chunk, model->instance_count);
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

static int64_t size_of_model(const tide_megatron *g, const char *size) {
    tide_value v = tide_model_size(g->w->model, size);
    return v.kind == TIDE_VALUE_INT ? v.integer : 0;
}

/* What a method of the rank says of a stage. */
static int64_t number_of_stage(const tide_megatron *g, const char *method, int64_t stage) {
    static const char *const names[] = {"stage"};
    tide_value values[] = {tide_of_int(stage)};
    tide_value made = tide_model_method(g->w->model, tide_text_of(method), names, values, 1);
    return made.kind == TIDE_VALUE_INT && made.integer > 0 ? made.integer : 0;
}

/* Layers of two kinds: without experts, and with them. */
static void find_megatron_stages(tide_megatron *g) {
    tide_arena *arena = g->w->model->m->arena;
    const tide_topology *t = &g->topology;
    uint32_t ranks = (uint32_t)t->pp, chunks = (uint32_t)g->chunk_count, stages = ranks * chunks;
    int64_t layers = size_of_model(g, "num_layers"), all = 0;
    tide_stages s = {.ranks = ranks, .chunks = chunks, .kinds = 2, .apart = t->world / t->pp};
    s.of_rank = TIDE_NEW(arena, uint32_t, stages);
    s.layers = TIDE_NEW(arena, uint32_t, 2 * stages);
    for (uint32_t stage = 0; stage < stages; stage++) {
        int64_t count = number_of_stage(g, "layers_of", stage), of_dense = number_of_stage(g, "dense_layers_of", stage);
        s.of_rank[stage % ranks * chunks + stage / ranks] = stage;
        s.layers[2 * stage] = (uint32_t)of_dense;
        s.layers[2 * stage + 1] = (uint32_t)(count - of_dense);
        all += count;
    }
    if (all != layers)
        tide_fail_setting(g->w->model->m, TIDE_ERR_CONFLICT, "parallel.stage_layers",
                          "the numbers add up to %lld layers, and the model has %lld", (long long)all,
                          (long long)layers);
    g->w->stages = s;
}

/* optimizer_config.py: use_precision_aware_optimizer_no_fp8_or_ds_fp8; without it there are fp32 copies as usual. */
static bool has_decoupled_grad(const tide_job *job) {
    bool is_fp32 = tide_dtype_or(job->parallel_main_params_dtype, TIDE_FP32) == TIDE_FP32;
    return job->parallel_precision_aware &&
           (!is_fp32 || job->parallel_fp8 == TIDE_parallel_fp8_none || job->parallel_fp8 == TIDE_parallel_fp8_delayed ||
            job->parallel_offload_fraction > 0);
}

/* Float16Module: Module.bfloat16() casts registered buffers too, here before the few parameters that are not of the
 * model's dtype yet. */
static void float16_module(tide_wrapper *w) {
    static const tide_text method = {"cast_buffers", sizeof "cast_buffers" - 1};
    tide_model *model = w->model;
    for (uint32_t i = 0; i < model->instance_count; i++)
        if (model->instances[i].of && tide_method_find(model->instances[i].of, method))
            tide_model_call(model, i, method, TIDE_FACTOR_TEMPORARY);
    tide_cast_model(w, model->state.dtype);
    for (uint32_t i = 0; i < model->buffer_count; i++) tide_set_factor(model->m, model->buffers[i], TIDE_FACTOR_BUFFER);
}

/* clip_grads.py, clip_grad_by_total_norm_fp32 */
static bool clips_unknown_grads(const tide_megatron *g) {
    return g->has_decoupled_grad && !g->has_fp32_grads && g->w->model->state.dtype == TIDE_FP16 && g->w->job->clip > 0;
}

static void megatron_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    tide_megatron *g = TIDE_NEW(m->arena, tide_megatron, 1);
    *g = (tide_megatron){.w = w,
                         .is_te = w->job->parallel_impl == TIDE_parallel_impl_te,
                         .is_sgd = tide_job_is_sgd(w->job),
                         .is_distributed = w->job->parallel_distributed_optimizer,
                         .is_precision_aware = w->job->parallel_precision_aware,
                         .offloads = w->job->parallel_offload_fraction > 0,
                         .has_fp32_grads = w->job->parallel_grad_reduce_in_fp32};
    g->has_decoupled_grad = has_decoupled_grad(w->job);
    w->state = m->wrapper = g;
    if (!tide_topology_of(&g->topology, m, w->job, w->rank)) return;
    if (clips_unknown_grads(g)) {
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "clip",
                          "\"assert param.decoupled_grad.dtype in [torch.float32, torch.bfloat16]\": a precision-aware "
                          "optimizer clips no gradients in fp16");
        return;
    }
    g->is_interleaved = w->job->parallel_virtual_stages > 0;
    g->chunk_count = g->is_interleaved ? w->job->parallel_virtual_stages : 1;
    g->microbatches = w->job->parallel_microbatches ? w->job->parallel_microbatches : 2 * g->topology.pp;
    g->microbatch_group = w->job->parallel_microbatch_group ? w->job->parallel_microbatch_group : g->topology.pp;
    g->input_tensors = TIDE_NEW(m->arena, tide_tensor *, (size_t)g->chunk_count);
    int64_t rows = w->job->seq / g->topology.cp;
    if (w->job->parallel_sequence_parallel) rows /= g->topology.tp;
    g->stage_shape =
        (tide_shape){.dims = 3, .dim = {{rows, 0}, {w->job->batch, 0}, {size_of_model(g, "hidden_size"), 0}}};
    float16_module(w);
    tide_megatron_wrap_ddp(g);
    tide_megatron_make_optimizer(g);
    if (g->topology.pp > 1 && !m->has_failed) find_megatron_stages(g);
}

/* MegatronModule.set_is_first_microbatch(): the first forward pass of a step quantises weights again. */
static void set_is_first_microbatch(tide_model *model) {
    static const tide_text method = {"set_is_first_microbatch", sizeof "set_is_first_microbatch" - 1};
    for (uint32_t i = 0; i < model->instance_count; i++)
        if (model->instances[i].of && tide_method_find(model->instances[i].of, method))
            tide_model_call(model, i, method, TIDE_FACTOR_TEMPORARY);
}

static void megatron_step(tide_wrapper *w, unsigned step) {
    tide_megatron *g = w->state;
    tide_timeline *timeline = &w->model->m->timeline;
    tide_megatron_zero_grad(g);
    if (w->job->parallel_fp8 != TIDE_parallel_fp8_none) set_is_first_microbatch(w->model);
    tide_megatron_forward_backward(g);
    if (w->job->parallel_empty_unused_memory_level > 0) tide_timeline_empty_cache(timeline);
    tide_timeline_mark(timeline, step, TIDE_PHASE_BACKWARD);
    tide_megatron_optimizer_step(g);
    if (w->job->parallel_empty_unused_memory_level > 1) tide_timeline_empty_cache(timeline);
    tide_timeline_mark(timeline, step, TIDE_PHASE_OPTIMIZER);
}

/* Forward passes of the warm-up, plus the one before the first backward pass. */
static uint32_t megatron_in_flight(const tide_wrapper *w) {
    const tide_megatron *g = w->state;
    uint32_t total = (uint32_t)(g->microbatches * g->chunk_count), pp = (uint32_t)g->topology.pp;
    uint32_t warmup = tide_schedule_warmup(pp, (uint32_t)g->topology.pp_rank, (uint32_t)g->microbatches,
                                           (uint32_t)g->chunk_count, (uint32_t)g->microbatch_group, g->is_interleaved);
    return warmup < total ? warmup + 1 : total;
}

const tide_strategy tide_megatron_strategy = {.dialect = "megatron",
                                              .load = megatron_load,
                                              .wrap = megatron_wrap,
                                              .step = megatron_step,
                                              .other_ranks = tide_ranks_of_stages,
                                              .in_flight = megatron_in_flight};
