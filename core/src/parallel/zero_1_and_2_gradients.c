/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of ZeRO stages 1 and 2: buckets, their reduction, and what of them a rank keeps. */
#include "parallel/zero_1_and_2.h"

const char tide_zero12_name[] = "DeepSpeed";

static uint8_t reduction_stream(const zero12 *z) {
    return z->overlap_comm ? TIDE_STREAM_SIDE : 0;
}

void tide_zero12_owners_of(const zero12 *z, const zero12_param *p, int64_t *first, int64_t *last) {
    int64_t part = z->groups[p->group].partition_size;
    *first = p->first_element / part;
    *last = (p->first_element + p->numel - 1) / part;
}

int64_t tide_zero12_owned_by(const zero12 *z, const zero12_param *p, int64_t rank) {
    int64_t from = rank * z->groups[p->group].partition_size, to = from + z->groups[p->group].partition_size;
    int64_t start = p->first_element > from ? p->first_element : from,
            end = p->first_element + p->numel < to ? p->first_element + p->numel : to;
    return end > start ? end - start : 0;
}

static zero12_param *zero12_param_of(zero12 *z, const tide_tensor *leaf) {
    for (uint32_t n = 0; n < z->count; n++, z->hint = z->hint ? z->hint - 1 : z->count - 1)
        if (z->params[z->hint].tensor == leaf) return &z->params[z->hint];
    return NULL;
}

static void setup_ipg_buffers(zero12 *z) {
    tide_machine *m = zero12_machine(z);
    if (z->has_ipg_buffers) return;
    z->has_ipg_buffers = true;
    z->ipg_buffer_index = 0;
    for (int i = 0; z->contiguous_gradients && i <= z->overlap_comm; i++)
        z->ipg_buffers[i] =
            tide_flat_of(m, tide_zero12_name, z->reduce_bucket_size, z->dtype, TIDE_FACTOR_COMMUNICATION);
}

/* A collective over slices: a single one is sent as it is, several are joined (allreduce_bucket). */
static void allreduce_and_copy(zero12 *z, uint32_t count, int64_t elements) {
    tide_machine *m = zero12_machine(z);
    tide_tensor *flat =
        count > 1 ? tide_flat_of(m, tide_zero12_name, elements, z->dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
    tide_tensor *sent =
        z->communication_data_type != z->dtype
            ? tide_flat_of(m, tide_zero12_name, elements, z->communication_data_type, TIDE_FACTOR_COMMUNICATION)
            : NULL;
    bool is_widened = z->communication_data_type != TIDE_FP32;
    for (uint32_t i = 0; i < z->own_count && is_widened; i++) /* _add_to_grad_partition_buffer */
        tide_release(m, tide_flat_of(m, tide_zero12_name, z->own[i], TIDE_FP32, TIDE_FACTOR_TEMPORARY));
    z->own_count = 0;
    tide_release(m, flat);
    tide_release(m, sent);
}

/* Slices are sent in chunks of more than reduce_bucket_size elements. */
typedef struct chunk {
    uint32_t count;
    int64_t elements;
} chunk;

static void chunk_add(zero12 *z, chunk *c, int64_t elements, bool is_own) {
    if (is_own && z->use_grad_accum_attribute) z->own[z->own_count++] = elements;
    c->count++;
    c->elements += elements;
    if (c->elements <= z->reduce_bucket_size) return;
    allreduce_and_copy(z, c->count, c->elements);
    *c = (chunk){0, 0};
}

/* The owners of the parameters of a bucket as they are first met: the order of `buckets` in average_tensor. */
static int64_t *owners_in_order(zero12 *z, uint32_t *count) {
    tide_arena *arena = zero12_machine(z)->arena;
    bool *is_met = TIDE_NEW(arena, bool, z->w->ranks);
    int64_t *order = TIDE_NEW(arena, int64_t, z->w->ranks), first, last;
    *count = 0;
    for (uint32_t i = 0; i < z->ipg_count; i++) {
        tide_zero12_owners_of(z, &z->params[z->ipg_params[i]], &first, &last);
        for (int64_t r = first; r <= last; r++)
            if (!is_met[r]) is_met[r] = true, order[(*count)++] = r;
    }
    return order;
}

/* average_tensor: splits the bucket where the owner changes. With separate reductions, owner by owner. */
static void average_tensor(zero12 *z, const tide_tensor *sent) {
    if (!z->reduce_scatter) {
        if (z->communication_data_type != z->dtype) allreduce_and_copy(z, 1, z->ipg_elements);
        return;
    }
    uint32_t turns = 1;
    const int64_t *order = z->use_multi_rank_bucket_allreduce ? NULL : owners_in_order(z, &turns);
    for (uint32_t turn = 0; turn < turns; turn++) {
        chunk c = {0, 0};
        int64_t owner = -1, elements = 0;
        for (uint32_t i = 0; i < z->ipg_count; i++) {
            const zero12_param *p = &z->params[z->ipg_params[i]];
            int64_t first, last, part = z->groups[p->group].partition_size;
            tide_zero12_owners_of(z, p, &first, &last);
            for (int64_t r = first; r <= last; r++) {
                if (r != owner || (z->use_grad_accum_attribute && r == z->w->rank)) {
                    if (elements && (!order || owner == order[turn])) chunk_add(z, &c, elements, owner == z->w->rank);
                    elements = 0;
                    owner = r;
                }
                elements += tide_zero12_owned_by(z, p, r);
                if (z->use_grad_accum_attribute && r == z->w->rank && !z->groups[p->group].grad_partition_buffer)
                    z->groups[p->group].grad_partition_buffer =
                        tide_flat_of(zero12_machine(z), tide_zero12_name, part, TIDE_FP32, TIDE_FACTOR_GRADIENT);
                if (r == z->w->rank && z->overlap_comm) tide_record_stream(zero12_machine(z), sent, TIDE_STREAM_SIDE);
            }
        }
        if (elements && (!order || owner == order[turn])) chunk_add(z, &c, elements, owner == z->w->rank);
        if (c.count) allreduce_and_copy(z, c.count, c.elements);
    }
}

/* copy_grads_in_partition: into one buffer for everything that this rank owns, or to the host. */
static void copy_grads_in_partition(zero12 *z, zero12_param *p) {
    tide_machine *m = zero12_machine(z);
    if (z->cpu_offload) {
        if (!z->w->is_last) return; /* accumulated on the host */
        p->norm_for_param_grads =
            tide_fp64_norm(m, tide_zero12_name, tide_zero12_owned_by(z, p, z->w->rank)); /* norm_for_param_grads */
        if (z->dtype != TIDE_FP32 && !z->use_grad_accum_attribute)
            tide_release(m, tide_flat_of(m, tide_zero12_name, tide_zero12_owned_by(z, p, z->w->rank), TIDE_FP32,
                                         TIDE_FACTOR_TEMPORARY));
        tide_release_at(m, &p->tensor->grad);
        return;
    }
    if (z->use_grad_accum_attribute) return;
    if (!z->grads_in_partition) {
        int64_t elements = 0;
        for (uint32_t i = 0; i < z->count; i++)
            if (z->params[i].is_in_current_partition) elements += z->params[i].numel;
        z->grads_in_partition = tide_flat_of(m, tide_zero12_name, elements, z->dtype, TIDE_FACTOR_GRADIENT);
    }
    tide_set_data(m, p->tensor->grad, z->grads_in_partition);
}

/* reduce_ipg_grads. */
static void reduce_ipg_grads(zero12 *z) {
    tide_machine *m = zero12_machine(z);
    if (!z->ipg_count) return;
    m->state.stream = reduction_stream(z);
    const tide_tensor *sent =
        z->contiguous_gradients && !z->has_extra_large_param ? z->ipg_buffers[z->ipg_buffer_index] : z->ipg_grads[0];
    if (z->contiguous_gradients)
        average_tensor(z, sent);
    else
        allreduce_and_copy(z, z->ipg_count, z->ipg_elements); /* buffered_reduce_fallback */
    for (uint32_t i = 0; i < z->ipg_count; i++) {
        zero12_param *p = &z->params[z->ipg_params[i]];
        if (p->is_in_current_partition && z->contiguous_gradients)
            copy_grads_in_partition(z, p);
        else if (!p->is_in_current_partition && z->partition_gradients)
            tide_release_at(m, &p->tensor->grad);
    }
    m->state.stream = 0;
    for (uint32_t i = 0; i < z->ipg_count; i++) tide_release(m, z->ipg_grads[i]);
    z->ipg_count = 0;
    z->ipg_elements = 0;
    z->has_extra_large_param = false;
}

/* reduce_independent_p_g_buckets_and_remove_grads. */
static void reduce_independent_p_g_buckets_and_remove_grads(zero12 *z, zero12_param *p) {
    tide_machine *m = zero12_machine(z);
    if (z->ipg_elements + p->numel > z->reduce_bucket_size) {
        reduce_ipg_grads(z);
        if (z->contiguous_gradients && z->overlap_comm) z->ipg_buffer_index = 1 - z->ipg_buffer_index;
    }
    tide_tensor *grad = p->tensor->grad;
    if (z->contiguous_gradients && p->numel > z->reduce_bucket_size) {
        z->has_extra_large_param = true;
        if (z->cpu_offload) { /* a copy that nothing else writes to */
            tide_tensor *copy = tide_empty_like(m, grad, (tide_dtype)grad->dtype);
            tide_set_data(m, grad, copy);
            tide_release(m, copy);
        }
    } else if (z->contiguous_gradients) {
        tide_set_data(m, grad, z->ipg_buffers[z->ipg_buffer_index]);
    }
    z->ipg_grads[z->ipg_count] = tide_retain(grad);
    z->ipg_params[z->ipg_count++] = (uint32_t)(p - z->params);
    z->ipg_elements += p->numel;
}

void tide_zero12_gradient_ready(tide_machine *m, tide_tensor *leaf) {
    zero12 *z = m->wrapper;
    zero12_param *p = zero12_param_of(z, leaf);
    if (!p) return;
    m->op = tide_zero12_name;
    setup_ipg_buffers(z);
    if (z->partition_gradients || (z->overlap_comm && z->w->is_last))
        reduce_independent_p_g_buckets_and_remove_grads(z, p);
}

/* The gradients in this rank's part, with zeros for parameters without a gradient and for padding. */
static void get_flat_partition(zero12 *z, zero12_group *g) {
    tide_machine *m = zero12_machine(z);
    uint32_t n = 0;
    int64_t elements = 0;
    bool is_new = g->averaged_count == 0;
    if (z->use_grad_accum_attribute) {
        if (z->w->is_last && !g->grad_partition_buffer)
            g->grad_partition_buffer =
                tide_flat_of(m, tide_zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
        return;
    }
    for (uint32_t i = g->first; i < g->end; i++) {
        zero12_param *p = &z->params[i];
        if (!p->is_in_current_partition) continue;
        tide_tensor *grad = p->tensor->grad;
        if (!grad)
            grad = tide_empty_like(m, p->tensor, z->dtype);
        else
            tide_retain(grad);
        if (is_new)
            g->averaged_gradients[n++] = grad;
        else
            tide_release(m, grad); /* added to the existing ones */
        elements += tide_zero12_owned_by(z, p, z->w->rank);
    }
    if (is_new) g->averaged_count = n;
    if (z->w->is_last && elements < g->partition_size)
        g->averaged_gradients[g->averaged_count++] =
            tide_flat_of(m, tide_zero12_name, g->partition_size - elements, z->dtype, TIDE_FACTOR_GRADIENT);
}

void tide_zero12_independent_gradient_partition_epilogue(zero12 *z) {
    tide_machine *m = zero12_machine(z);
    m->op = tide_zero12_name;
    m->module = m->statement = 0;
    if (!z->partition_gradients && !z->w->is_last) return;
    if (!z->partition_gradients && !z->overlap_comm)
        for (uint32_t i = 0; i < z->count; i++) {
            zero12_param *p = z->bit16_groups[i];
            if (p->tensor->grad) reduce_independent_p_g_buckets_and_remove_grads(z, p);
        }
    reduce_ipg_grads(z);
    for (uint32_t g = 0; g < z->group_count && !z->cpu_offload; g++) get_flat_partition(z, &z->groups[g]);
    for (int i = 1; i >= 0; i--) tide_release_at(m, &z->ipg_buffers[i]);
    tide_release_at(m, &z->grads_in_partition);
    z->has_ipg_buffers = false;
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i].tensor->grad);
}
