/* Megatron-Core: one rank of a job with tensor, sequence, pipeline, context, expert and data parallelism.
 *
 * The model is a description of Megatron's own dialect (models/architectures/megatron_*.json); gradient buffers,
 * optimizer and schedule are in the files beside this one. The order of calls is that of Megatron-LM's training.py. */
#include "parallel/megatron.h"

#include "lang/lang.h"

/* Parameters are made on the device, in the order of the constructors, but for those of torch.nn, which come with
 * Module.cuda() in fp32. */
static void megatron_load(tide_model *model, const tide_job *job) {
    (void)job;
    tide_machine *m = model->m;
    m->op = "Parameter";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        if (row->tensor->dtype != model->state.dtype || !row->tensor->storage->is_untracked) continue;
        m->module = row->module;
        tide_tensor *made = tide_empty(m, row->tensor->shape, (tide_dtype)row->tensor->dtype);
        tide_set_data(m, row->tensor, made);
        tide_release(m, made);
    }
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

static int64_t int_of(const tide_megatron *g, const char *size) {
    tide_value v = tide_model_size(g->w->model, size);
    return v.kind == TIDE_VALUE_INT ? v.integer : 0;
}

static void megatron_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    tide_megatron *g = TIDE_NEW(m->arena, tide_megatron, 1);
    const char *why = "";
    *g = (tide_megatron){.w = w,
                         .is_te = tide_option_is(w->job, TIDE_OPTION_impl, "te"),
                         .is_distributed = tide_option_true(w->job, TIDE_OPTION_distributed_optimizer, true),
                         .is_precision_aware = tide_option_true(w->job, TIDE_OPTION_precision_aware, false),
                         .has_fp32_grads = tide_option_true(w->job, TIDE_OPTION_grad_reduce_in_fp32, true)};
    w->state = m->wrapper = g;
    if (!tide_topology_of(&g->topology, w->job, w->rank, &why, m->arena)) {
        tide_fail(m, TIDE_ERR_CONFLICT, "%s", why);
        return;
    }
    g->chunk_count = tide_option_int(w->job, TIDE_OPTION_virtual_stages, 1);
    g->microbatches = tide_option_int(w->job, TIDE_OPTION_microbatches, 2 * g->topology.pp);
    g->input_tensors = TIDE_NEW(m->arena, tide_tensor *, (size_t)g->chunk_count);
    int64_t rows = w->job->seq / g->topology.cp;
    if (tide_option_true(w->job, TIDE_OPTION_sequence_parallel, false)) rows /= g->topology.tp;
    g->stage_shape = (tide_shape){.dims = 3, .size = {rows, w->job->batch, int_of(g, "hidden_size")}};
    tide_cast_model(w, w->model->state.dtype); /* Float16Module */
    tide_megatron_wrap_ddp(g);
    tide_megatron_make_optimizer(g);
}

static void megatron_step(tide_wrapper *w, unsigned step) {
    tide_megatron *g = w->state;
    tide_timeline *timeline = &w->model->m->timeline;
    tide_megatron_zero_grad(g);
    tide_megatron_forward_backward(g);
    tide_timeline_mark(timeline, step, TIDE_PHASE_BACKWARD);
    tide_megatron_optimizer_step(g);
    tide_timeline_mark(timeline, step, TIDE_PHASE_OPTIMIZER);
}

const tide_strategy tide_megatron_core = {
    .kind = "megatron", .dialect = "megatron", .load = megatron_load, .wrap = megatron_wrap, .step = megatron_step};
