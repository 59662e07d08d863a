/* SPDX-License-Identifier: Apache-2.0 */
/* megatron/core/optimizer: distrib_optimizer.py, optimizer.py, clip_grads.py, cpu_offloading/hybrid_optimizer.py.
 *
 * Note [Shards]: with the distributed optimizer each rank updates its part of every bucket, regardless of the
 * boundaries of parameters: those that cross a boundary are shared. The fp32 copies are created with the optimizer,
 * moments in the first step.
 *
 * Note [Offloading]: a HybridDeviceOptimizer moves parameters to the host, in order, until the requested fraction is
 * there; for the others it makes fp32 copies of what is not fp32. The distributed optimizer creates it twice: for the
 * model's parameters, and then for their shards, when the first one is released. */
#include <string.h>

#include "base/decimal.h"
#include "base/rounding.h"
#include "parallel/megatron.h"

static const char optimizer_op[] = "optimizer";

/* How many elements of a parameter this rank updates; 0: none. */
static int64_t shard_of(const tide_megatron *g, const tide_megatron_buffer *b, const tide_megatron_param *p) {
    if (!g->is_distributed) return p->end - p->start;
    const tide_megatron_bucket *bucket = &b->buckets[p->bucket];
    int64_t size = (bucket->end - bucket->start) / b->ranks, from = bucket->start + size * b->rank, to = from + size;
    int64_t first = p->start > from ? p->start : from, last = p->end < to ? p->end : to;
    return last > first ? last - first : 0;
}

/* Adds the parameters of a group in the order of the buffers, or in their own order without the distributed optimizer.
 */
static void add_param_group(tide_megatron *g, tide_megatron_optimizer *o, bool is_expert, tide_megatron_group group) {
    for (uint32_t i = 0; i < g->buffer_count; i++) {
        const tide_megatron_buffer *b = &g->buffers[i];
        if (b->is_expert != is_expert) continue;
        for (uint32_t k = 0; k < b->count; k++) {
            const tide_megatron_param *p = &b->params[g->is_distributed ? k : b->count - 1 - k];
            int64_t count = shard_of(g, b, p);
            if (p->group == group && count) o->mains[o->count++] = (tide_megatron_main){.row = p->row, .count = count};
        }
    }
    o->group_ends[group] = o->count;
}

static void add_param_groups(tide_megatron *g, tide_megatron_optimizer *o, bool is_expert) {
    for (int group = 0; group < GROUP_COUNT; group++) add_param_group(g, o, is_expert, (tide_megatron_group)group);
}

static tide_tensor *flat(const tide_megatron *g, const tide_megatron_main *p, tide_dtype dtype, tide_factor factor) {
    tide_machine *m = g->w->model->m;
    m->module = g->w->model->parameters[p->row].module;
    return tide_flat_of(m, optimizer_op, p->count, dtype, factor);
}

/* _build_model_and_main_param_groups: shard.clone().float() */
static void make_main(tide_megatron *g, tide_megatron_main *p) {
    tide_machine *m = g->w->model->m;
    if (g->w->model->state.dtype == TIDE_FP32 || g->has_decoupled_grad) { /* a view of the parameter */
        tide_shape shape = tide_shape1((tide_dim){p->count, 0});
        p->param = tide_view_as(m, g->w->model->parameters[p->row].tensor, tide_layout_of(m, &shape, NULL));
        return;
    }
    tide_tensor *clone = flat(g, p, g->w->model->state.dtype, TIDE_FACTOR_TEMPORARY);
    p->param = flat(g, p, TIDE_FP32, TIDE_FACTOR_MASTER);
    tide_release(m, clone);
}

/* What a HybridDeviceOptimizer keeps on the device. */
typedef struct hybrid {
    tide_tensor **fp32_params; /* param_to_fp32_param, for those on the device */
    uint32_t count;
    tide_tensor *overflow; /* of its FusedAdam; NULL if all are on the host */
} hybrid;

/* HybridDeviceOptimizer._get_sub_optimizer_param_groups; marks the parameters that are on the host. */
static hybrid make_hybrid(const tide_megatron *g, tide_megatron_main *params, uint32_t count, tide_dtype dtype) {
    tide_machine *m = g->w->model->m;
    hybrid h = {TIDE_NEW(m->arena, tide_tensor *, count + 1), 0, NULL};
    int64_t total = 0, offloaded = 0;
    for (uint32_t i = 0; i < count; i++) total += params[i].count;
    double threshold = (double)total * ((double)g->w->job->parallel_offload_fraction / (double)TIDE_PICO);
    bool has_more = false;
    for (uint32_t i = 0; i < count; i++) {
        tide_megatron_main *p = &params[i];
        p->is_on_host = (double)offloaded < threshold;
        has_more = has_more || !p->is_on_host;
        if (p->is_on_host) offloaded += p->count;
        if (!p->is_on_host && dtype == TIDE_FP32) continue;
        tide_tensor *clone = flat(g, p, dtype, TIDE_FACTOR_TEMPORARY);
        if (!p->is_on_host) h.fp32_params[h.count++] = flat(g, p, TIDE_FP32, TIDE_FACTOR_MASTER);
        tide_release(m, clone);
    }
    if (has_more) h.overflow = tide_flat_of(m, "FusedAdam", 1, TIDE_INT32, TIDE_FACTOR_OPTIMIZER);
    return h;
}

static void drop_hybrid(const tide_megatron *g, hybrid *h) {
    for (uint32_t i = h->count; i-- > 0;) tide_release(g->w->model->m, h->fp32_params[i]);
    tide_release(g->w->model->m, h->overflow);
}

/* The model's full parameters in the order of the module: what an optimizer is first created with. */
static hybrid hybrid_of_model(tide_megatron *g, bool is_expert) {
    tide_megatron_optimizer whole = {
        .mains = TIDE_NEW(g->w->model->m->arena, tide_megatron_main, g->w->model->parameter_count + 1)};
    bool is_distributed = g->is_distributed;
    g->is_distributed = false;
    add_param_groups(g, &whole, is_expert);
    g->is_distributed = is_distributed;
    return make_hybrid(g, whole.mains, whole.count, g->w->model->state.dtype);
}

static tide_tensor *scalar_of(const tide_megatron *g, const char *op, tide_dtype dtype) {
    return tide_flat_of(g->w->model->m, op, 1, dtype, TIDE_FACTOR_OPTIMIZER);
}

/* MixedPrecisionOptimizer.__init__ or that of FP32Optimizer; in fp16 after that of DynamicGradScaler. Returns the
 * result of get_loss_scale(). */
static tide_tensor *make_scale(const tide_megatron *g) {
    static const char *const more[] = {"min_scale", "growth_factor", "backoff_factor", "found_inf"};
    const tide_dtype dtype = g->w->model->state.dtype;
    tide_tensor *scale = dtype == TIDE_FP16 ? scalar_of(g, "_scale", TIDE_FP32) : NULL;
    for (unsigned i = 0; i < TIDE_COUNT_OF(more) && scale; i++) scalar_of(g, more[i], TIDE_FP32);
    if (scale || (dtype == TIDE_FP32 && g->is_distributed)) scalar_of(g, "_dummy_overflow_buf", TIDE_INT32);
    return scale ? scale : scalar_of(g, "_scale_one", TIDE_FP32);
}

/* optimizer/__init__.py: without parameters of its kind a DistributedOptimizer has none inside (is_stub_optimizer). */
static void make_one(tide_megatron *g, tide_megatron_optimizer *o, bool is_expert) {
    tide_machine *m = g->w->model->m;
    uint32_t all = 0, of_kind = 0;
    hybrid before = {NULL, 0, NULL};
    for (uint32_t i = 0; i < g->buffer_count; i++) {
        all += g->buffers[i].count;
        of_kind += g->buffers[i].is_expert == is_expert ? g->buffers[i].count : 0;
    }
    o->mains = TIDE_NEW(m->arena, tide_megatron_main, all + 1);
    add_param_groups(g, o, is_expert);
    if (g->offloads)
        before = hybrid_of_model(g, is_expert);
    else if (g->is_te && of_kind)
        tide_flat_of(m, g->is_sgd ? "FusedSGD" : "FusedAdam", 1, TIDE_INT32,
                     TIDE_FACTOR_OPTIMIZER); /* _dummy_overflow_buf */
    o->loss_scale = make_scale(g);
    for (uint32_t i = 0; i < o->count; i++) make_main(g, &o->mains[i]);
    if (g->offloads) {
        make_hybrid(g, o->mains, o->count, g->has_decoupled_grad ? g->w->model->state.dtype : TIDE_FP32);
        drop_hybrid(g, &before);
    }
    m->module = 0;
}

static unsigned group_of_main(const tide_megatron_optimizer *o, uint32_t main) {
    unsigned group = 0;
    while (main >= o->group_ends[group]) group++;
    return group;
}

void tide_megatron_make_optimizer(tide_megatron *g) {
    make_one(g, &g->optimizers[g->optimizer_count++], false);
    for (uint32_t i = 0; i < g->buffer_count; i++)
        if (g->buffers[i].is_expert) {
            make_one(g, &g->optimizers[g->optimizer_count++], true);
            break;
        }
    if (g->is_te) return;
    /* without Transformer Engine: torch.optim.AdamW with the fp32 copies */
    tide_optimized *members = TIDE_NEW(g->w->model->m->arena, tide_optimized, g->optimizers[0].count + 1);
    for (uint32_t i = 0; i < g->optimizers[0].count; i++) {
        const tide_megatron_main *p = &g->optimizers[0].mains[i];
        const tide_parameter_row *row = &g->w->model->parameters[p->row];
        members[i] =
            (tide_optimized){.tensor = p->param, .module = row->module, .group = group_of_main(&g->optimizers[0], i)};
    }
    tide_optimizer_replace(g->w->optimizer, members, g->optimizers[0].count);
}

/* get_main_grads_for_grad_norm: neither the last stage's copy of the embedding, nor, on other tensor parallel ranks
 * than the first, what all of them have. Weights of a GroupedLinear count as such. */
static bool counts_for_norm(const tide_megatron *g, uint32_t row) {
    const tide_model *model = g->w->model;
    tide_value shared = tide_megatron_attribute(model, row, "shared_embedding");
    if (shared.kind == TIDE_VALUE_BOOL && shared.truth && strstr(model->parameters[row].name, "output_layer"))
        return false;
    return g->topology.tp_rank == 0 || tide_megatron_is_named(model, row, "tensor_model_parallel");
}

static bool has_grads_for_norm(const tide_megatron *g) {
    for (uint32_t i = 0; i < g->optimizer_count; i++)
        for (uint32_t k = 0; k < g->optimizers[i].count; k++)
            if (counts_for_norm(g, g->optimizers[i].mains[k].row)) return true;
    return false;
}

/* clip_grads.py: get_grad_norm_fp32 */
static void grad_norm(const tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    tide_tensor *overflow = tide_flat_of(m, "clip_grad_norm", 1, TIDE_INT32, TIDE_FACTOR_TEMPORARY);
    if (!has_grads_for_norm(g)) {
        tide_tensor *zero = tide_flat_of(m, "clip_grad_norm", 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
        tide_alloc_and_free(m, 4);
        tide_release(m, zero);
    } else if (g->is_te) { /* multi_tensor_l2norm */
        tide_tensor *output = tide_flat_of(m, "multi_tensor_l2norm", 320, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
        tide_tensor *ret = tide_flat_of(m, "multi_tensor_l2norm", 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
        tide_release(m, output);
        tide_alloc_and_free(m, 4);
        tide_release(m, ret);
    }
    tide_release(m, overflow);
}

/* _copy_model_grads_to_main_grads: main_grad.float(), a view if gradients are accumulated in fp32. */
static void copy_grads(tide_megatron *g, const tide_megatron_optimizer *o) {
    tide_machine *m = g->w->model->m;
    const tide_tensor *grads = g->buffer_count ? g->buffers[0].grad_data : NULL;
    for (uint32_t i = 0; i < o->count; i++) {
        const tide_megatron_main *p = &o->mains[i];
        bool is_view = grads->dtype == TIDE_FP32 || g->has_decoupled_grad;
        p->param->grad =
            is_view ? tide_view_as(m, grads, p->param->layout) : flat(g, p, TIDE_FP32, TIDE_FACTOR_GRADIENT);
    }
}

void tide_megatron_zero_grad(tide_megatron *g) {
    for (uint32_t i = 0; i < g->optimizer_count; i++)
        for (uint32_t k = 0; k < g->optimizers[i].count; k++)
            tide_release_at(g->w->model->m, &g->optimizers[i].mains[k].param->grad);
}

void tide_megatron_optimizer_step(tide_megatron *g) {
    tide_machine *m = g->w->model->m;
    m->op = optimizer_op;
    for (uint32_t i = 0; i < g->optimizer_count; i++) copy_grads(g, &g->optimizers[i]);
    grad_norm(g);
    if (!g->is_te) tide_optimizer_step(g->w->optimizer);
    for (uint32_t i = 0; i < g->optimizer_count && g->is_te; i++) tide_megatron_fused_step(g, &g->optimizers[i]);
    m->module = 0;
}
