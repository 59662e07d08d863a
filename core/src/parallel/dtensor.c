/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/tensor/: placement_types.py, _redistribute.py, _api.py;
 * torch/distributed/_functional_collectives.py.
 */
#include "parallel/dtensor.h"

#include "tensor/checkpoint.h"
#include "tensor/ops/ops.h"

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

/* ProcessGroupNCCL::collective: releases the tensors of the last collective, which the watchdog has found completed. */
static void unstash(tide_machine *m) {
    tide_release_at(m, &m->in_flight);
    tide_release_at(m, &m->in_flight_input);
}

int64_t tide_dtensor_part(int64_t whole, int64_t ranks, int64_t rank) {
    int64_t chunk = (whole + ranks - 1) / ranks, left = whole - chunk * rank;
    return left < 0 ? 0 : left < chunk ? left : chunk;
}

static tide_tensor *narrowed(tide_machine *m, tide_tensor *t, int dim, int64_t size) {
    if (t->shape->dim[dim].size == size) return tide_retain(t);
    return tide_slice(m, t, dim, (tide_dim){0, 0}, (tide_dim){size, 0});
}

/* placement_types.py: _select_split_tensor(): clone() keeps the order of the strides. */
static tide_tensor *cloned_chunk(tide_machine *m, tide_tensor *t, int dim, int64_t size) {
    tide_shape shape = *t->shape;
    shape.dim[dim].size = size;
    tide_tensor *part = narrowed(m, t, dim, size);
    tide_tensor *chunk =
        !size ? tide_empty(m, &shape, (tide_dtype)t->dtype) : tide_empty_like(m, part, (tide_dtype)t->dtype);
    tide_release(m, part);
    return chunk;
}

/* pad_tensor() */
static tide_tensor *to_full_chunk(tide_machine *m, tide_tensor *t, int dim, int64_t size) {
    return t->shape->dim[dim].size == size ? tide_contiguous(m, t) : resized(m, t, dim, size);
}

/* all_gather_single(): the ranks' parts follow one another; for any other dimension than the first they are joined
 * again, unless all dimensions before it have size 1 (torch/_utils.py: _maybe_view_chunk_cat). */
static tide_tensor *all_gather_equal(tide_machine *m, tide_tensor *local, int dim, int64_t ranks) {
    bool is_view = dim == 0 || size_between(local->shape, dim) == 1;
    tide_tensor *gathered =
        resized(m, local, is_view ? dim : 0, (is_view ? local->shape->dim[dim] : local->shape->dim[0]).size * ranks);
    unstash(m);
    if (is_view) return gathered;
    tide_tensor *whole = resized(m, local, dim, local->shape->dim[dim].size * ranks);
    tide_release(m, gathered);
    return whole;
}

/* Shard._to_replicate_tensor(): smaller parts are padded. */
static tide_tensor *all_gather(tide_machine *m, tide_tensor *t, int dim, const tide_redistribute *how) {
    int64_t of_each = how->whole ? tide_dtensor_part(how->whole, how->ranks, 0) : t->shape->dim[dim].size;
    tide_tensor *local = to_full_chunk(m, t, dim, of_each), *gathered = all_gather_equal(m, local, dim, how->ranks);
    tide_release(m, local);
    tide_tensor *whole = narrowed(m, gathered, dim, how->whole ? how->whole : of_each * how->ranks);
    tide_release(m, gathered);
    tide_tensor *contiguous = tide_contiguous(m, whole);
    tide_release(m, whole);
    return contiguous;
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

static bool is_divided(const tide_tensor *t, int dim, tide_collective what, const tide_redistribute *how) {
    bool wants_equal_parts = what == TIDE_COLLECTIVE_REDUCE_SCATTER || what == TIDE_COLLECTIVE_CHUNK;
    return !wants_equal_parts || how->whole || t->shape->dim[dim].size % how->ranks == 0;
}

static tide_tensor *move(tide_machine *m, tide_tensor *t, tide_collective what, const tide_redistribute *how) {
    int dim = how->dim < 0 ? how->dim + t->shape->dims : how->dim;
    int64_t ranks = how->ranks, size = t->shape->dim[dim].size;
    tide_wait_tensor(m, t);
    if (!is_divided(t, dim, what, how)) {
        tide_fail(m, TIDE_ERR_CONFLICT, "%lld along dimension %d do not divide into %lld ranks", (long long)size, dim,
                  (long long)ranks);
        return tide_alias(m, t);
    }
    switch (what) {
    case TIDE_COLLECTIVE_ALL_REDUCE:
        return tide_empty(m, t->shape, (tide_dtype)t->dtype);
    case TIDE_COLLECTIVE_REDUCE_SCATTER:
        return reduce_scatter(m, t, dim, ranks, how->is_async);
    case TIDE_COLLECTIVE_ALL_GATHER:
        return all_gather(m, t, dim, how);
    case TIDE_COLLECTIVE_CHUNK:
        return cloned_chunk(m, t, dim, how->whole ? tide_dtensor_part(size, ranks, how->rank) : size / ranks);
    case TIDE_COLLECTIVE_NONE:
        break;
    }
    return tide_alias(m, t);
}

static void redistribute_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_collective what = (tide_collective)node->of.redistribute.backward;
    results[0] = what == TIDE_COLLECTIVE_NONE ? tide_retain(grads[0])
                                              : move(m, grads[0], what,
                                                     &(tide_redistribute){.dim = node->of.redistribute.dim,
                                                                          .ranks = node->of.redistribute.ranks,
                                                                          .rank = node->of.redistribute.rank,
                                                                          .whole = node->of.redistribute.whole,
                                                                          .is_async = node->of.redistribute.is_async});
}
static const tide_backward redistribute_backward = {"RedistributeBackward", redistribute_run};

tide_tensor *tide_dtensor_redistribute(tide_machine *m, tide_tensor *t, const tide_redistribute *how) {
    const char *op = m->op;
    m->op = "redistribute";
    tide_node *node = tide_node_new(m, &redistribute_backward, &t, 1);
    tide_tensor *moved = move(m, t, how->forward, how);
    moved->is_dtensor = how->to_dtensor;
    if (how->forward == TIDE_COLLECTIVE_NONE) moved->is_view = true;
    if (node) {
        node->of.redistribute.backward = (uint8_t)how->backward;
        node->of.redistribute.is_async = how->is_async;
        node->of.redistribute.dim = (int8_t)how->dim;
        node->of.redistribute.ranks = how->ranks;
        node->of.redistribute.rank = how->rank;
        node->of.redistribute.whole = how->whole;
    }
    moved = tide_set_grad_fn(m, node, moved);
    m->op = op;
    return moved;
}

/* Shard._shard_tensor(): along the first dimension, parts are views of which this rank's is copied, and a smaller part
 * is padded; along another dimension all are copied first. */
static tide_tensor *shard_tensor(tide_machine *m, tide_tensor *whole, const tide_distribute *how) {
    int64_t size = whole->shape->dim[how->dim].size, of_each = tide_dtensor_part(size, how->ranks, 0), count = 0;
    tide_tensor **scattered = TIDE_NEW(m->arena, tide_tensor *, (size_t)how->ranks);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    for (int64_t i = 0; i < how->ranks; i++)
        if (how->dim || tide_dtensor_part(size, how->ranks, i) < of_each)
            scattered[count++] = resized(m, whole, how->dim, of_each);
    m->state.factor = how->factor;
    tide_tensor *output = resized(m, whole, how->dim, of_each),
                *part = narrowed(m, output, how->dim, tide_dtensor_part(size, how->ranks, how->rank));
    tide_release(m, output);
    while (count--) tide_release(m, scattered[count]);
    return part;
}

void tide_dtensor_distribute(tide_machine *m, tide_tensor *parameter, const tide_distribute *how) {
    tide_shape shape = *parameter->shape;
    shape.dim[how->dim] = (tide_dim){tide_dtensor_part(shape.dim[how->dim].size, how->ranks, how->rank), 0};
    m->op = "distribute_tensor";
    tide_tensor *part =
        how->is_on_meta ? tide_empty_host(m, &shape, (tide_dtype)parameter->dtype) : shard_tensor(m, parameter, how);
    tide_set_data(m, parameter, part);
    parameter->layout = part->layout;
    parameter->shape = part->shape;
    parameter->stride = part->stride;
    parameter->is_dtensor = true;
    tide_release(m, part);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}
