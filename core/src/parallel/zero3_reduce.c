/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/stage3.py: collecting gradients in a bucket, reducing and partitioning them. */
#include "base/rounding.h"
#include "parallel/zero3.h"

/* Of partition_grads: a rank with only padding of a parameter keeps nothing. held: cuda_grad_buffer, to which gradients
 * of further micro-batches are added, which is bound anew for each parameter. */
static void partition_grad(zero3 *z, zero_param *p, tide_tensor **held) {
    tide_machine *m = zero3_machine(z);
    bool is_real = p->partition_numel * z->w->rank < p->ds_numel;
    if (z->offload_optimizer && is_real) {
        tide_tensor *on_device = tide_zero3_flat_on(z, z->reduce_and_partition_stream, p->partition_numel,
                                                    z->gradient_accumulation_dtype, TIDE_FACTOR_GRADIENT);
        if (z->w->micro > 0) {
            tide_release(m, *held);
            *held = tide_retain(on_device);
        }
        if (z->w->is_last) {
            int64_t most = 250000000; /* _constant_buffered_norm2 */
            p->norm = tide_fp64_norm(m, tide_zero3_name, p->partition_numel < most ? p->partition_numel : most);
            for (int power = 0; power < 2; power++) { /* **2.0, and the sum's **0.5 */
                tide_tensor *raised = tide_flat_of(m, tide_zero3_name, 1, TIDE_FP64, TIDE_FACTOR_TEMPORARY);
                tide_release(m, p->norm);
                p->norm = raised;
            }
            if (z->gradient_accumulation_dtype != TIDE_FP32)
                tide_release(m, tide_flat_of(m, tide_zero3_name, p->partition_numel, TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        }
        tide_release(m, on_device);
    }
    if (p->tensor->grad && is_real) tide_record_stream(m, p->tensor->grad, z->reduce_and_partition_stream);
    tide_release_at(m, &p->tensor->grad);
}

static void partition_grads(zero3 *z, const uint32_t *order, uint32_t count) {
    tide_tensor *held = NULL;
    for (uint32_t i = 0; i < count; i++) partition_grad(z, &z->params[order[i]], &held);
    tide_release(zero3_machine(z), held);
}

enum { PADDINGS = 1024 }; /* more are one block of as many bytes */

/* What fills up the parts of the last ranks before they are joined. Returns how many tensors there are. */
static uint32_t add_padding(zero3 *z, const uint32_t *order, uint32_t count, tide_tensor **padding) {
    int64_t ranks = z->w->ranks, first = ranks, bytes = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const zero_param *p = &z->params[order[i]];
        if (p->ds_numel / p->partition_numel < first) first = p->ds_numel / p->partition_numel;
    }
    bool is_one = (ranks - first) * count > PADDINGS;
    for (int64_t rank = first; rank < ranks; rank++)
        for (uint32_t i = 0; i < count; i++) {
            const zero_param *p = &z->params[order[i]];
            int64_t left = p->ds_numel - rank * p->partition_numel, size = p->partition_numel - (left > 0 ? left : 0);
            if (size <= 0) continue;
            bytes += TIDE_ROUND_UP(size * tide_dtype_bytes(z->communication_data_type), 512);
            if (!is_one)
                padding[n++] = tide_flat_of(zero3_machine(z), tide_zero3_name, size, z->communication_data_type,
                                            TIDE_FACTOR_COMMUNICATION);
        }
    if (is_one && bytes)
        padding[n++] = tide_flat_of(zero3_machine(z), tide_zero3_name, bytes, TIDE_UINT8, TIDE_FACTOR_COMMUNICATION);
    return n;
}

/* __reduce_and_partition_ipg_grads, with runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced. */
void tide_zero3_reduce_and_partition_ipg_grads(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    if (!z->ipg_bucket_count) return;
    uint32_t outside = m->state.stream;
    m->state.stream = z->reduce_and_partition_stream;
    m->op = tide_zero3_name;
    int64_t cut = 0;
    uint32_t count = z->ipg_bucket_count, *order = z->params_in_ipg_bucket;
    bool is_in_place = z->contiguous_gradients && !z->reduce_scatter &&
                       z->elements_in_ipg_bucket <= z->reduce_bucket_size; /* the bucket itself is sent */
    for (uint32_t i = 1; i < count && !is_in_place; i++)                   /* by index */
        for (uint32_t at = i; at && z->params[order[at - 1]].ds_id > z->params[order[at]].ds_id; at--) {
            uint32_t swap = order[at];
            order[at] = order[at - 1];
            order[at - 1] = swap;
        }
    for (uint32_t i = 0; i < count; i++) cut += z->params[order[i]].partition_numel;
    tide_tensor **casts = TIDE_NEW(m->arena, tide_tensor *, 2 * count + 2), *flat = NULL;
    uint32_t n = 0;
    if (!is_in_place) {
        for (uint32_t i = 0; i < count && z->communication_data_type != z->trainable_dtype; i++)
            if (!z->ipg_buffer || z->params[order[i]].tensor->grad->storage !=
                                      z->ipg_buffer->storage) /* the bucket has the dtype of the reduction */
                casts[n++] = tide_flat_of(m, tide_zero3_name, z->params[order[i]].ds_numel, z->communication_data_type,
                                          TIDE_FACTOR_COMMUNICATION);
        if (count > 1 || z->params[order[0]].ds_numel % z->w->ranks) {
            tide_tensor *padding[PADDINGS];
            uint32_t paddings = add_padding(z, order, count, padding);
            flat = tide_flat_of(m, tide_zero3_name, cut * z->w->ranks, z->communication_data_type,
                                TIDE_FACTOR_COMMUNICATION);
            while (paddings) tide_release(m, padding[--paddings]);
        }
        uint32_t sent = n;
        for (uint32_t i = 0; i < count && z->communication_data_type != z->gradient_accumulation_dtype; i++)
            casts[n++] = tide_flat_of(m, tide_zero3_name, z->params[order[i]].partition_numel,
                                      z->gradient_accumulation_dtype, TIDE_FACTOR_COMMUNICATION);
        for (uint32_t i = 0; i < sent && (n > sent || flat); i++)
            tide_release_at(m, &casts[i]); /* what is kept is not a view of them */
        if (n > sent) tide_release_at(m, &flat);
    } else {
        if (z->w->ranks > 1) /* postscale_gradients: what is received times gradient_predivide_factor */
            flat = tide_flat_of(m, tide_zero3_name, z->elements_in_ipg_bucket, z->communication_data_type,
                                TIDE_FACTOR_COMMUNICATION);
        if (z->communication_data_type != z->gradient_accumulation_dtype)
            casts[n++] = tide_flat_of(m, tide_zero3_name, z->elements_in_ipg_bucket, z->gradient_accumulation_dtype,
                                      TIDE_FACTOR_COMMUNICATION);
        if (n) tide_release_at(m, &flat);
        for (uint32_t i = 0; i < count; i++)
            if (z->params[order[i]].partition_numel * (z->w->rank + 1) > z->params[order[i]].ds_numel)
                casts[n++] = tide_flat_of(m, tide_zero3_name, z->params[order[i]].partition_numel,
                                          z->gradient_accumulation_dtype, TIDE_FACTOR_COMMUNICATION);
    }
    partition_grads(z, order, count);
    while (n) tide_release(m, casts[--n]);
    tide_release(m, flat);
    m->state.stream = outside;
    z->ipg_bucket_count = 0;
    z->elements_in_ipg_bucket = 0;
}

void tide_zero3_gradient_ready(tide_machine *m, tide_tensor *leaf) {
    zero3 *z = m->wrapper;
    uint32_t n = 0;
    for (; n < z->count && z->params[z->hint].tensor != leaf; n++) z->hint = z->hint ? z->hint - 1 : z->count - 1;
    if (n < z->count && !z->params[z->hint].is_in_z3_leaf) tide_zero3_reduce_gradient(z, z->hint);
}

void tide_zero3_reduce_gradient(zero3 *z, uint32_t which) {
    zero_param *p = &z->params[which];
    tide_machine *m = zero3_machine(z);
    tide_tensor *leaf = p->tensor;
    if (z->elements_in_ipg_bucket + p->ds_numel > z->reduce_bucket_size && z->elements_in_ipg_bucket)
        tide_zero3_reduce_and_partition_ipg_grads(z);
    if (z->contiguous_gradients && z->elements_in_ipg_bucket + p->ds_numel <= z->reduce_bucket_size) {
        tide_record_stream(m, leaf->grad, z->reduce_and_partition_stream);
        tide_set_data(m, leaf->grad, z->ipg_buffer);
    }
    z->params_in_ipg_bucket[z->ipg_bucket_count++] = which;
    z->elements_in_ipg_bucket += p->ds_numel;
}
