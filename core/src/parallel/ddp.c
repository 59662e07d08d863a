/* SPDX-License-Identifier: Apache-2.0 */
/* DistributedDataParallel: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp.
 *
 * Note [Buckets]: gradients are copied into flat buckets, which live as long as the wrapper. In the first step there is
 * one bucket (per dtype), or with find_unused_parameters those of the registration order. Before the next step buckets
 * are rebuilt in the order in which gradients became ready (with static_graph: in the second step). A bucket is reduced
 * in place when its last gradient is ready. */
#include <string.h>

#include "parallel/parallel.h"

typedef struct ddp {
    tide_wrapper *w;
    tide_tensor **leaves; /* the trainable ones */
    uint32_t count;
    uint32_t *bucket_of;
    tide_tensor **buckets;
    uint32_t bucket_count, *pending;
    tide_tensor **order; /* in the order in which gradients became ready */
    uint32_t ready;
    int64_t limits[2];
    bool has_views, is_static, finds_unused, is_rebuilt, is_first, syncs_buffers;
} ddp;

static const char ddp_op[] = "DistributedDataParallel";

static uint32_t index_of(const ddp *d, const tide_tensor *leaf) {
    uint32_t i = 0;
    while (i < d->count && d->leaves[i] != leaf) i++;
    return i;
}

static void make_buckets(ddp *d, const int64_t *limits, uint32_t limit_count, bool is_sorted) {
    tide_machine *m = d->w->model->m;
    for (uint32_t b = 0; b < d->bucket_count; b++) tide_release(m, d->buckets[b]);
    d->bucket_count = tide_cut_buckets(m, d->leaves, d->count, limits, limit_count, is_sorted, d->bucket_of);
    d->buckets = TIDE_NEW(m->arena, tide_tensor *, d->bucket_count + 1);
    d->pending = TIDE_NEW(m->arena, uint32_t, d->bucket_count + 1);
    for (uint32_t b = 0; b < d->bucket_count; b++) {
        uint32_t at = is_sorted ? d->bucket_count - 1 - b : b; /* distributed.py: list(reversed(bucket_indices)) */
        int64_t elements = 0;
        tide_dtype dtype = TIDE_FP32;
        for (uint32_t i = 0; i < d->count; i++)
            if (d->bucket_of[i] == at) elements += tide_count(d->leaves[i]), dtype = (tide_dtype)d->leaves[i]->dtype;
        d->buckets[at] = tide_flat_of(m, ddp_op, elements, dtype, TIDE_FACTOR_COMMUNICATION);
        for (uint32_t i = 0; i < d->count && d->has_views; i++) /* existing gradients move */
            if (d->bucket_of[i] == at && d->leaves[i]->grad) tide_set_data(m, d->leaves[i]->grad, d->buckets[at]);
    }
}

/* default_hooks.py: _compress_hook. */
static void compress(ddp *d, const tide_tensor *bucket) {
    tide_machine *m = d->w->model->m;
    tide_optional_dtype to = d->w->job->parallel_hook;
    if (!to.is_set || bucket->dtype == to.dtype) return;
    tide_release(m, tide_flat_of(m, "compress_hook", tide_count(bucket), to.dtype, TIDE_FACTOR_COMMUNICATION));
}

/* mark_variable_ready_dense, and for the last one mark_bucket_ready. */
static void copy_to_bucket(ddp *d, uint32_t i) {
    tide_machine *m = d->w->model->m;
    tide_tensor *leaf = d->leaves[i], *bucket = d->buckets[d->bucket_of[i]];
    if (d->has_views && leaf->grad) {
        tide_set_data(m, leaf->grad, bucket);
        tide_set_factor(m, leaf->grad, TIDE_FACTOR_GRADIENT);
    }
    if (--d->pending[d->bucket_of[i]] == 0) compress(d, bucket);
}

static void ddp_gradient_ready(tide_machine *m, tide_tensor *leaf) {
    ddp *d = m->wrapper;
    uint32_t i = index_of(d, leaf);
    if (i == d->count || !d->w->is_last) return;
    if (d->is_static && d->is_first) return; /* all at the end of the first backward: _delay_all_reduce */
    if (!d->is_rebuilt) d->order[d->ready++] = leaf;
    copy_to_bucket(d, i);
}

static void ddp_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    ddp *d = TIDE_NEW(m->arena, ddp, 1);
    uint32_t all = w->model->parameter_count, states = 0;
    int64_t cap = w->job->parallel_bucket_cap_mb << 20, whole = INT64_MAX;
    *d = (ddp){.w = w,
               .is_first = true,
               .syncs_buffers = true,
               .limits = {cap ? cap : 1 << 20, cap ? cap : 25 << 20},
               .has_views = w->job->parallel_gradient_as_bucket_view,
               .is_static = w->job->parallel_static_graph,
               .finds_unused = tide_finds_unused_parameters(w->job)};
    d->leaves = TIDE_NEW(m->arena, tide_tensor *, all + 1);
    d->order = TIDE_NEW(m->arena, tide_tensor *, all + 1);
    d->bucket_of = TIDE_NEW(m->arena, uint32_t, all + 1);
    tide_tensor **sent = TIDE_NEW(m->arena, tide_tensor *, all + w->model->buffer_count + 1);
    for (uint32_t i = 0; i < all; i++) {
        tide_tensor *p = sent[states++] = w->model->parameters[i].tensor;
        if (p->requires_grad) d->leaves[d->count++] = p;
    }
    if (d->count == 0) {
        tide_fail(
            m, TIDE_ERR_CONFLICT,
            "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient");
        return;
    }
    for (uint32_t i = 0; i < w->model->buffer_count; i++) sent[states++] = w->model->buffers[i];
    tide_broadcast_coalesced(m, ddp_op, sent, states);
    bool is_by_size = d->finds_unused && !d->is_static;
    make_buckets(d, is_by_size ? d->limits : &whole, is_by_size ? 2 : 1, true);
    if (d->finds_unused || d->is_static)
        tide_flat_of(m, ddp_op, d->count, TIDE_INT32, TIDE_FACTOR_COMMUNICATION); /* local_used_map_dev_ */
    w->state = m->wrapper = d;
    m->gradient_ready = ddp_gradient_ready;
}

/* reducer.cpp: rebuild_buckets, sync_bucket_indices. */
static void rebuild(ddp *d) {
    tide_machine *m = d->w->model->m;
    memcpy(d->leaves, d->order, d->count * sizeof *d->leaves);
    uint32_t buckets = tide_cut_buckets(m, d->leaves, d->count, d->limits, 2, false, d->bucket_of);
    tide_tensor *indices = tide_flat_of(m, ddp_op, d->count + 1, TIDE_INT32, TIDE_FACTOR_COMMUNICATION);
    tide_release(m, tide_flat_of(m, ddp_op, buckets, TIDE_INT32, TIDE_FACTOR_COMMUNICATION));
    tide_release(m, indices);
    make_buckets(d, d->limits, 2, false);
    d->is_rebuilt = true;
}

/* reducer.cpp: ensure_prior_reduction_finished. */
static void ensure_prior_reduction_finished(const ddp *d) {
    if (d->ready == 0 || d->ready == d->count || d->finds_unused || d->is_static) return;
    tide_fail_setting(d->w->model->m, TIDE_ERR_CONFLICT, "parallel.kind",
                      "\"Expected to have finished reduction in the prior iteration before starting a new one\": %u of "
                      "%u trained parameters got no gradient; freeze those, or give "
                      "parallel.find_unused_parameters=true",
                      d->count - d->ready, d->count);
}

static void ddp_before_forward(tide_wrapper *w) {
    ddp *d = w->state;
    bool reduces = w->is_last || w->job->parallel_sync_each, has_grad = w->model->m->state.grad_enabled;
    w->is_last = reduces;
    if (has_grad) ensure_prior_reduction_finished(d);
    if (has_grad && !d->is_rebuilt && d->ready == d->count && (d->is_static || !d->finds_unused)) rebuild(d);
    /* _sync_buffers: at the first forward, and after one whose gradients were reduced */
    if (d->syncs_buffers && w->job->parallel_broadcast_buffers)
        tide_broadcast_coalesced(w->model->m, ddp_op, w->model->buffers, w->model->buffer_count);
    d->syncs_buffers = has_grad && reduces;
    if (!has_grad) return;
    d->ready = 0;
    memset(d->pending, 0, d->bucket_count * sizeof *d->pending);
    for (uint32_t i = 0; i < d->count; i++) d->pending[d->bucket_of[i]]++;
}

/* _DDPSink: passes gradients on; an output that the loss does not use has none. */
static void ddp_sink_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    for (uint32_t i = 0; i < node->edge_count; i++) results[i] = tide_retain(grads[i]);
}
static const tide_backward ddp_sink_function = {"_DDPSinkBackward", ddp_sink_run};

enum { OUTPUT_LIMIT = 8 };

/* All outputs of the model pass through one _DDPSink, which clones them: the graph of each output lives as long as the
 * others'. Those without a graph are returned themselves. */
static void ddp_after_forward(tide_wrapper *w, tide_value *output) {
    ddp *d = w->state;
    tide_machine *m = w->model->m;
    if (!(d->finds_unused && !d->is_static) && !(d->is_static && d->is_first)) return;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    tide_tensor *passed[OUTPUT_LIMIT], *copies[OUTPUT_LIMIT];
    int n = 0;
    m->op = "_DDPSink";
    for (uint32_t i = 0; i < count && n < OUTPUT_LIMIT; i++)
        if (items[i].kind == TIDE_VALUE_TENSOR) passed[n++] = items[i].tensor;
    tide_node *node = n ? tide_node_with(m, &ddp_sink_function, passed, n, n, 0) : NULL;
    for (int i = 0; i < n; i++)
        copies[i] = tide_set_grad_fn(m, node, tide_empty_like(m, passed[i], (tide_dtype)passed[i]->dtype));
    for (int i = n; i-- > 0;)
        if (!passed[i]->node) tide_release_at(m, &copies[i]);
    n = 0;
    for (uint32_t i = 0; i < count && n < OUTPUT_LIMIT; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        if (copies[n]) items[i].tensor = copies[n], tide_release(m, passed[n]);
        n++;
    }
}

static void ddp_after_backward(tide_wrapper *w) {
    ddp *d = w->state;
    if (!w->is_last) return;
    if (d->is_static && d->is_first)
        for (uint32_t i = 0; i < d->count; i++) copy_to_bucket(d, i);
    d->is_first = false;
}

const tide_strategy tide_ddp_strategy = {.wrap = ddp_wrap,
                                         .trains_a_copy = true,
                                         .before_forward = ddp_before_forward,
                                         .after_forward = ddp_after_forward,
                                         .after_backward = ddp_after_backward};
