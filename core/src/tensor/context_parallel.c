/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/context_parallel.h"

enum { SEQUENCE_OF_BUFFER = 1 };

static tide_shape part_of_buffer(const tide_tensor *whole, int64_t ranks) {
    tide_shape shape = *whole->shape;
    shape.dim[SEQUENCE_OF_BUFFER] = (tide_dim){shape.dim[SEQUENCE_OF_BUFFER].size / ranks, 0};
    return shape;
}

/* The number of elements from a tensor's first to its last in memory. */
static int64_t extent_of_buffer(const tide_tensor *t) {
    int64_t last = 0;
    for (int i = 0; i < t->shape->dims; i++) last += (t->shape->dim[i].size - 1) * t->stride[i];
    return last + 1;
}

/* Tensor.resize_(): allocates a new storage if the old one is too small, as that of expanded rows may be. */
static void resize_buffer(tide_machine *m, tide_tensor **buffer, int64_t ranks) {
    tide_tensor *whole = *buffer;
    tide_shape shape = part_of_buffer(whole, ranks);
    tide_layout *layout = tide_layout_of(m, &shape, NULL);
    bool fits = layout->count <= extent_of_buffer(whole);
    *buffer = fits ? tide_view_as(m, whole, layout) : tide_empty(m, &shape, (tide_dtype)whole->dtype);
    tide_release(m, whole);
}

/* _HeadTailLoadBalancer._generate_indices(); owned by the caller. */
static tide_tensor *head_tail_indices(tide_machine *m, int64_t seq, int64_t ranks) {
    m->op = "_HeadTailLoadBalancer";
    tide_tensor *indices = tide_flat(m, seq, TIDE_INT32), *head = tide_flat(m, ranks, TIDE_INT64),
                *tail = tide_flat(m, ranks, TIDE_INT64), *heads = tide_flat(m, seq / 2, TIDE_INT32),
                *tails = tide_flat(m, seq / 2, TIDE_INT32), *paired = tide_flat(m, seq, TIDE_INT32);
    tide_tensor *done[] = {tails, heads, indices, head, tail};
    for (unsigned i = 0; i < 5; i++) tide_release(m, done[i]);
    return paired;
}

void tide_context_parallel_shard(tide_machine *m, int64_t ranks, tide_tensor *const *buffers, uint32_t count,
                                 tide_tensor **shards) {
    tide_tensor *indices = head_tail_indices(m, buffers[0]->shape->dim[SEQUENCE_OF_BUFFER].size, ranks);
    m->op = "_context_parallel_buffers";
    for (uint32_t i = 0; i < count; i++) {
        tide_tensor *balanced = tide_empty(m, buffers[i]->shape, (tide_dtype)buffers[i]->dtype);
        tide_shape part = part_of_buffer(balanced, ranks);
        shards[i] = tide_empty(m, &part, (tide_dtype)balanced->dtype);
        tide_release(m, balanced);
    }
    tide_release(m, indices);
}

void tide_context_parallel_begins(tide_machine *m, tide_context_parallel *c, int64_t ranks, tide_tensor **buffers,
                                  uint32_t count) {
    tide_context_parallel_shard(m, ranks, buffers, count, c->shards);
    for (uint32_t i = 0; i < count; i++) {
        tide_release_at(m, &c->shard); /* the name in the loop */
        c->shard = tide_empty(m, c->shards[i]->shape, (tide_dtype)c->shards[i]->dtype);
        resize_buffer(m, &buffers[i], ranks);
    }
}

void tide_context_parallel_ends(tide_machine *m, tide_context_parallel *c) {
    for (uint32_t i = 0; i < TIDE_CONTEXT_BUFFERS; i++) tide_release_at(m, &c->shards[i]);
    tide_release_at(m, &c->shard);
}
