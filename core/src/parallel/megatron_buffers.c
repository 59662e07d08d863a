/* SPDX-License-Identifier: Apache-2.0 */
/* megatron/core/distributed: distributed_data_parallel.py, param_and_grad_buffer.py.
 *
 * Note [Buffers]: the parameters of a chunk are in one flat buffer, in reverse order, and their gradients in another;
 * each parameter starts at a multiple of 64 elements, and each bucket is padded to a multiple of its ranks and 128.
 * Without the distributed optimizer there are only gradients, without padding. Both live as long as the job. */
#include <string.h>

#include "base/units.h"

#include "parallel/megatron.h"

static int64_t padded(int64_t n, int64_t divisor) {
    return TIDE_ROUND_UP(n, divisor);
}

static int64_t lcm(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* An attribute of a parameter, from its module: a member, or a constructor argument; none if there is neither. */
tide_value tide_megatron_attribute(const tide_model *model, uint32_t row, const char *name) {
    const tide_instance *module = &model->instances[model->parameters[row].module];
    const tide_class *of = module->of;
    for (uint32_t i = 0; of && i < of->parameter_count; i++)
        if (tide_text_is(of->parameters[i].name, name)) return module->slots[i];
    for (uint32_t i = 0; of && i < of->member_count; i++)
        if (tide_text_is(of->members[i].name, name)) return module->slots[of->parameter_count + i];
    return tide_none();
}

bool tide_megatron_is_named(const tide_model *model, uint32_t row, const char *list) {
    const char *name = model->parameters[row].name, *dot = strrchr(name, '.');
    tide_value named = tide_megatron_attribute(model, row, list);
    for (uint32_t i = 0; named.kind == TIDE_VALUE_LIST && i < named.list->count; i++) {
        tide_value item = named.list->items[i];
        if (item.kind == TIDE_VALUE_TEXT && tide_text_is(item.text, dot ? dot + 1 : name)) return true;
    }
    return false;
}

static bool is_false(tide_value v) {
    return v.kind == TIDE_VALUE_BOOL && !v.truth;
}

static bool is_true(tide_value v) {
    return v.kind == TIDE_VALUE_BOOL && v.truth;
}

/* Chunks are the items of the root's first list; a parameter's name gives its chunk. */
static int64_t chunk_of_path(const char *name) {
    const char *dot = strchr(name, '.');
    int64_t chunk = 0;
    for (const char *at = dot ? dot + 1 : ""; *at >= '0' && *at <= '9'; at++) chunk = 10 * chunk + (*at - '0');
    return chunk;
}

typedef struct layout {
    const tide_megatron *g;
    tide_megatron_buffer *buffer;
    int64_t bucket_size; /* elements; 0: one bucket */
    int64_t bucket_start;
    bool bucket_is_empty;
} layout;

/* _update_bucket_metadata */
static int64_t close_bucket(layout *l, int64_t param_end) {
    tide_megatron_buffer *b = l->buffer;
    int64_t end = l->g->is_distributed ? padded(param_end, lcm(b->ranks, 128)) : param_end;
    b->buckets[b->bucket_count++] = (tide_megatron_bucket){l->bucket_start, end};
    l->bucket_start = end;
    l->bucket_is_empty = true;
    return end;
}

static void lay_out_buffers(layout *l) {
    tide_megatron_buffer *b = l->buffer;
    const tide_model *model = l->g->w->model;
    int64_t start = 0, end = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        tide_megatron_param *p = &b->params[i];
        const tide_parameter_row *row = &model->parameters[p->row];
        bool is_apart =
            l->g->is_distributed && is_true(tide_megatron_attribute(l->g->w->model, p->row, "shared_embedding"));
        if (l->g->is_distributed) start = padded(start, 64);
        if (is_apart && !l->bucket_is_empty) start = close_bucket(l, start);
        end = start + tide_count(row->tensor);
        p->start = start;
        p->end = end;
        p->bucket = b->bucket_count;
        l->bucket_is_empty = false;
        bool is_full = l->bucket_size && end - l->bucket_start >= l->bucket_size;
        start = is_full || is_apart ? close_bucket(l, end) : end;
    }
    if (!l->bucket_is_empty) close_bucket(l, end);
    b->numel = l->bucket_start;
}

static tide_tensor *zeros(const tide_megatron *g, int64_t count, tide_dtype dtype, tide_factor factor) {
    bool is_aside = g->w->job->parallel_wrap_on_side_stream;
    return tide_flat_on(g->w->model->m, is_aside ? TIDE_STREAM_SIDE : 0, "_ParamAndGradBuffer", count, dtype, factor);
}

static void make_buffer(tide_megatron *g, tide_megatron_buffer *b, int64_t bucket_size) {
    tide_machine *m = g->w->model->m;
    layout l = {g, b, bucket_size, 0, true};
    lay_out_buffers(&l);
    if (g->is_distributed) b->param_data = zeros(g, b->numel, g->w->model->state.dtype, TIDE_FACTOR_PARAMETER);
    b->grad_data = zeros(g, b->numel, g->has_fp32_grads ? TIDE_FP32 : g->w->model->state.dtype, TIDE_FACTOR_GRADIENT);
    for (uint32_t i = 0; i < b->count && b->param_data; i++)
        tide_set_data(m, g->w->model->parameters[b->params[i].row].tensor, b->param_data);
}

/* language_module.py, setup_embeddings_and_output_layer(): is_embedding_or_output_parameter. */
static bool is_decoupled(const tide_megatron *g, int64_t chunk, const char *name) {
    bool is_first = chunk == 0 && g->topology.pp_rank == 0;
    return g->w->job->parallel_decoupled_lr > 0 &&
           (strstr(name, "output_layer.weight") || (is_first && strstr(name, "embedding.word_embeddings.weight")));
}

/* The trainable parameters of a chunk in reverse order; is_expert: those of its experts. */
static uint32_t params_of(const tide_megatron *g, int64_t chunk, bool is_expert, tide_megatron_param *params) {
    const tide_model *model = g->w->model;
    uint32_t count = 0;
    for (uint32_t i = model->parameter_count; i-- > 0;) {
        const tide_parameter_row *row = &model->parameters[i];
        bool of_expert = is_false(tide_megatron_attribute(g->w->model, i, "allreduce"));
        if (!row->tensor->requires_grad || chunk_of_path(row->name) != chunk || of_expert != is_expert) continue;
        tide_megatron_group group = row->tensor->shape->dims < 2        ? GROUP_VECTORS
                                    : is_decoupled(g, chunk, row->name) ? GROUP_DECOUPLED
                                                                        : GROUP_MATRICES;
        params[count++] = (tide_megatron_param){.row = i, .group = group, .is_expert = is_expert};
    }
    return count;
}

/* distributed_data_parallel.py: _make_backward_post_hook: adds gradients that the matrix product did not accumulate
 * itself. */
static void backward_post_hook(tide_machine *m, tide_tensor *leaf) {
    if (!leaf->grad) return;
    tide_release_at(m, &leaf->grad);
}

/* Gradients are accumulated on the stream that was current when their accumulators were created:
 * torch/csrc/autograd/input_buffer.cpp. */
static void make_grad_accs(const tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    uint32_t outside = m->state.stream;
    if (g->w->job->parallel_wrap_on_side_stream) m->state.stream = TIDE_STREAM_SIDE;
    for (uint32_t i = 0; i < g->w->model->parameter_count; i++) {
        tide_tensor *param = g->w->model->parameters[i].tensor;
        if (param->requires_grad) tide_accumulator_of(m, param); /* kept for the whole job */
    }
    m->state.stream = outside;
}

void tide_megatron_wrap_ddp(tide_megatron *g) {
    const tide_job *job = g->w->job;
    const tide_topology *t = &g->topology;
    tide_machine *m = g->w->model->m;
    uint32_t all = g->w->model->parameter_count;
    g->buffers = TIDE_NEW(m->arena, tide_megatron_buffer, 2 * (size_t)g->chunk_count + 1);
    bool has_buckets = job->parallel_overlap_grad_reduce && t->pp_rank == 0;
    int64_t usual = t->dp_cp * INT64_C(1000000) > 40000000 ? t->dp_cp * INT64_C(1000000) : 40000000;
    int64_t bucket_size = !has_buckets ? 0 : job->parallel_bucket_size ? job->parallel_bucket_size : usual;
    for (int64_t chunk = 0; chunk < g->chunk_count; chunk++)
        for (int kind = 0; kind < 2; kind++) {
            tide_megatron_buffer *b = &g->buffers[g->buffer_count];
            int64_t ranks = (kind ? t->expert_dp : t->dp_cp) / job->parallel_optimizer_instances;
            *b = (tide_megatron_buffer){
                .is_expert = kind, .ranks = ranks, .rank = (kind ? t->expert_dp_rank : t->dp_cp_rank) % ranks};
            b->params = TIDE_NEW(m->arena, tide_megatron_param, all + 1);
            b->buckets = TIDE_NEW(m->arena, tide_megatron_bucket, all + 2);
            b->count = params_of(g, chunk, kind, b->params);
            if (!b->count) continue;
            g->buffer_count++;
            make_buffer(g, b, chunk == 0 ? bucket_size : 0);
        }
    make_grad_accs(g);
    m->gradient_ready = backward_post_hook;
}

/* ---- finalize_model_grads.py ---- */

/* Whether all tensor parallel ranks have the parameter, each with the gradient of its part of the sequence: those that
 * a module names, and norms of queries and keys. */
static bool is_reduced_over_tp(const tide_megatron *g, uint32_t row) {
    const char *name = g->w->model->parameters[row].name;
    if (strstr(name, "q_layernorm") || strstr(name, "k_layernorm")) return true;
    return g->w->job->parallel_sequence_parallel &&
           tide_megatron_is_named(g->w->model, row, "sequence_parallel_parameters");
}

/* _allreduce_non_tensor_model_parallel_grads: reduces them in one flat copy. */
static void reduce_over_tp(const tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    int64_t elements = 0, grads = 0;
    if (g->topology.tp == 1) return;
    for (uint32_t i = 0; i < g->w->model->parameter_count; i++) {
        if (!is_reduced_over_tp(g, i)) continue;
        elements += tide_count(g->w->model->parameters[i].tensor);
        grads++;
    }
    if (grads < 2) return; /* a single one is a view of itself */
    tide_dtype dtype = g->has_fp32_grads ? TIDE_FP32 : (tide_dtype)g->w->model->state.dtype;
    tide_release(m, tide_flat_on(m, 0, "cat", elements, dtype, TIDE_FACTOR_TEMPORARY));
}

/* _update_router_expert_bias: those of all layers of a rank at once. */
static void update_router_expert_bias(const tide_megatron *g) {
    tide_model *model = g->w->model;
    int64_t layers = 0;
    tide_function *update = tide_function_find(model->descriptions, model->instances[model->root].of->description,
                                               TIDE_TEXT("update_router_expert_bias"));
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (tide_text_is(model->instances[i].of->name, "TopKRouter")) layers++;
    if (!update || !layers) return;
    model->m->module = 0;
    tide_value_release(model->m, tide_model_run(model, update, (tide_value[]){tide_of_int(layers)}, 1));
    model->m->module = model->m->statement = 0;
}

/* scale_gradients(1.0 / num_tokens), in place, for each chunk. */
static void divide_by_tokens(const tide_megatron *g) {
    for (int64_t chunk = 0; chunk < g->chunk_count; chunk++) tide_alloc_and_free(g->w->model->m, sizeof(float));
}

void tide_megatron_finalize_model_grads(const tide_megatron *g) {
    reduce_over_tp(g);
    update_router_expert_bias(g);
    if (g->w->job->parallel_per_token_loss) divide_by_tokens(g);
}
