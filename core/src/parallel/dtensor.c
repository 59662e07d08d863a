/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/tensor/: placement_types.py, _redistribute.py, _api.py;
 * torch/distributed/_functional_collectives.py.
 */
#include "parallel/dtensor.h"

#include "tensor/checkpoint.h"

static tide_tensor *resized(tide_machine *m, const tide_tensor *like, int dim, int64_t size) {
    tide_shape shape = *like->shape;
    shape.dim[dim] = (tide_dim){size, 0};
    return tide_empty(m, &shape, (tide_dtype)like->dtype);
}

static int64_t size_between(const tide_shape *shape, int dim) {
    int64_t count = 1;
    for (int i = 0; i < dim; i++) count *= shape->dim[i].size;
    return count;
}

/* ProcessGroupNCCL::collective: what the last collective holds is let go of, which the watchdog has found completed. */
static void unstash(tide_machine *m) {
    tide_release_at(m, &m->in_flight);
    tide_release_at(m, &m->in_flight_input);
}

/* all_gather_single(): ranks come one after another; along another dimension than the first they are put together anew,
 * but where all before it are of size 1 (torch/_utils.py: _maybe_view_chunk_cat). */
static tide_tensor *all_gather(tide_machine *m, tide_tensor *t, int dim, int64_t ranks) {
    tide_tensor *local = tide_contiguous(m, t);
    bool is_view = dim == 0 || size_between(t->shape, dim) == 1;
    tide_tensor *gathered =
        resized(m, local, is_view ? dim : 0, (is_view ? local->shape->dim[dim] : local->shape->dim[0]).size * ranks);
    unstash(m);
    tide_release(m, local);
    if (is_view) return gathered;
    tide_tensor *whole = resized(m, t, dim, t->shape->dim[dim].size * ranks);
    tide_release(m, gathered);
    return whole;
}

/* reduce_scatter_single() */
static tide_tensor *reduce_scatter(tide_machine *m, tide_tensor *t, int dim, int64_t ranks, bool is_async) {
    tide_tensor *chunks = dim ? tide_empty(m, t->shape, (tide_dtype)t->dtype) : tide_contiguous(m, t);
    tide_tensor *part;
    bool is_kept = tide_take_kept(m, TIDE_KEPT_COLLECTIVE, &part, 1);
    if (!is_kept) part = resized(m, t, dim, t->shape->dim[dim].size / ranks);
    tide_keep(m, TIDE_KEPT_COLLECTIVE, &part, 1);
    if (!is_async || is_kept) {
        tide_release(m, chunks);
        return part;
    }
    unstash(m);
    m->in_flight = tide_retain(part);
    m->in_flight_input = chunks;
    return part;
}

static tide_tensor *move(tide_machine *m, tide_tensor *t, tide_collective what, int dim, int64_t ranks, bool is_async) {
    if (dim < 0) dim += t->shape->dims;
    tide_wait_tensor(m, t);
    if (what != TIDE_COLLECTIVE_NONE &&
        t->shape->dim[dim].size %
            (what == TIDE_COLLECTIVE_REDUCE_SCATTER || what == TIDE_COLLECTIVE_CHUNK ? ranks : 1)) {
        tide_fail(m, TIDE_ERR_CONFLICT, "%lld along dimension %d do not divide into %lld ranks",
                  (long long)t->shape->dim[dim].size, dim, (long long)ranks);
        return tide_alias(m, t);
    }
    switch (what) {
    case TIDE_COLLECTIVE_ALL_REDUCE: {
        tide_tensor *reduced = tide_empty(m, t->shape, (tide_dtype)t->dtype);
        return reduced;
    }
    case TIDE_COLLECTIVE_REDUCE_SCATTER:
        return reduce_scatter(m, t, dim, ranks, is_async);
    case TIDE_COLLECTIVE_ALL_GATHER:
        return all_gather(m, t, dim, ranks);
    case TIDE_COLLECTIVE_CHUNK:
        return resized(m, t, dim, t->shape->dim[dim].size / ranks);
    case TIDE_COLLECTIVE_NONE:
        break;
    }
    return tide_alias(m, t);
}

static void redistribute_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_collective what = (tide_collective)node->of.redistribute.backward;
    results[0] = what == TIDE_COLLECTIVE_NONE ? tide_retain(grads[0])
                                              : move(m, grads[0], what, node->of.redistribute.dim,
                                                     node->of.redistribute.ranks, node->of.redistribute.is_async);
}
static const tide_backward redistribute_backward = {"RedistributeBackward", redistribute_run};

tide_tensor *tide_dtensor_redistribute(tide_machine *m, tide_tensor *t, const tide_redistribute *how) {
    const char *op = m->op;
    m->op = "redistribute";
    tide_node *node = tide_node_new(m, &redistribute_backward, &t, 1);
    tide_tensor *moved = move(m, t, how->forward, how->dim, how->ranks, how->is_async);
    moved->is_dtensor = how->to_dtensor;
    if (how->forward == TIDE_COLLECTIVE_NONE) moved->is_view = true;
    if (node) {
        node->of.redistribute.backward = (uint8_t)how->backward;
        node->of.redistribute.is_async = how->is_async;
        node->of.redistribute.dim = (int8_t)how->dim;
        node->of.redistribute.ranks = how->ranks;
    }
    moved = tide_set_grad_fn(m, node, moved);
    m->op = op;
    return moved;
}

/* Shard._make_shard_tensor(): along the first dimension parts are views of which this rank's is copied; along another
 * all are copied first. */
void tide_dtensor_distribute(tide_machine *m, tide_tensor *parameter, int dim, int64_t ranks, tide_factor factor,
                             bool is_on_meta) {
    int64_t size = parameter->shape->dim[dim].size / ranks;
    tide_tensor **parts = TIDE_NEW(m->arena, tide_tensor *, (size_t)ranks);
    m->op = "distribute_tensor";
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_shape shape = *parameter->shape;
    shape.dim[dim] = (tide_dim){size, 0};
    bool copies = dim && !is_on_meta;
    for (int64_t i = 0; copies && i < ranks; i++) parts[i] = resized(m, parameter, dim, size);
    m->state.factor = factor;
    tide_tensor *part = is_on_meta ? tide_empty_host(m, &shape, (tide_dtype)parameter->dtype)
                                   : tide_empty(m, &shape, (tide_dtype)parameter->dtype);
    for (int64_t i = ranks; copies && i-- > 0;) tide_release(m, parts[i]);
    tide_set_data(m, parameter, part);
    parameter->layout = part->layout;
    parameter->shape = part->shape;
    parameter->stride = part->stride;
    parameter->is_dtensor = true;
    tide_release(m, part);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}
