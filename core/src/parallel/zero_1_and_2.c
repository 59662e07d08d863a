/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed ZeRO stages 1 and 2: deepspeed/runtime/zero/stage_1_and_2.py.
 *
 * Note [Partitions]: each group of the optimizer is one flat tensor, divided into as many parts as there are ranks; the
 * parameters are views of it. A rank updates an fp32 copy of its part. Gradients are copied into a bucket (ipg) and
 * reduced; those within the rank's part, including the ones at its edges, are copied into one buffer for all groups,
 * which lives until every group has stepped. */
#include <string.h>

#include "base/units.h"
#include "parallel/autotp.h"
#include "parallel/ulysses.h"

typedef struct zero12_param {
    tide_tensor *tensor;
    uint32_t group;
    int64_t first_element, numel;      /* in the flat tensor of the group */
    tide_tensor *norm_for_param_grads; /* once the gradient is on the host */
    bool is_in_current_partition;
} zero12_param;

typedef struct zero12_group {
    uint32_t first, end; /* indices into zero12.params, in the order of the flat tensor */
    int64_t partition_size;
    tide_tensor *bit16_flat, *single_partition_of_fp32;
    tide_tensor **averaged_gradients;   /* of this rank's parameters, and of padding */
    tide_tensor *grad_partition_buffer; /* instead, if gradients accumulate in fp32 */
    uint32_t averaged_count;
} zero12_group;

typedef struct zero12 {
    tide_wrapper *w;
    zero12_param *params, **bit16_groups; /* in the order of the flat tensors, and in that of the optimizer */
    uint32_t count, hint;
    zero12_group groups[2];
    uint32_t group_count;
    tide_dtype dtype, communication_data_type;
    int64_t reduce_bucket_size;
    bool use_grad_accum_attribute; /* gradients of the model accumulate in fp32 */
    int64_t *own;                  /* this rank's elements in the slices of a chunk */
    uint32_t own_count;
    bool partition_gradients, overlap_comm, contiguous_gradients, reduce_scatter, use_multi_rank_bucket_allreduce,
        cpu_offload;
    /* ipg_buckets */
    tide_tensor *ipg_buffers[2];
    uint32_t ipg_buffer_index;
    uint32_t *ipg_params;
    tide_tensor **ipg_grads;
    uint32_t ipg_count;
    int64_t ipg_elements;
    bool has_ipg_buffers, has_extra_large_param;
    tide_tensor *grads_in_partition;
    tide_tensor *temp_grad_buffer_for_gpu_offload, *global_grad_norm;
} zero12;

static const char zero12_name[] = "DeepSpeed";

static tide_machine *zero12_machine(const zero12 *z) {
    return z->w->model->m;
}

static uint8_t reduction_stream(const zero12 *z) {
    return z->overlap_comm ? TIDE_STREAM_SIDE : 0;
}

/* ---- layout ---- */

/* The ranks whose parts contain elements of p: from *first to *last. */
static void owners_of(const zero12 *z, const zero12_param *p, int64_t *first, int64_t *last) {
    int64_t part = z->groups[p->group].partition_size;
    *first = p->first_element / part;
    *last = (p->first_element + p->numel - 1) / part;
}

static bool is_owner(const zero12 *z, const zero12_param *p) {
    int64_t first, last;
    owners_of(z, p, &first, &last);
    return z->w->rank >= first && z->w->rank <= last;
}

/* The number of elements of p in a rank's part. */
static int64_t owned_by(const zero12 *z, const zero12_param *p, int64_t rank) {
    int64_t from = rank * z->groups[p->group].partition_size, to = from + z->groups[p->group].partition_size;
    int64_t start = p->first_element > from ? p->first_element : from,
            end = p->first_element + p->numel < to ? p->first_element + p->numel : to;
    return end > start ? end - start : 0;
}

/* round_robin_gradients: takes every ranks-th parameter in turn. */
static void round_robin_reorder(zero12 *z, zero12_group *g) {
    tide_machine *m = zero12_machine(z);
    uint32_t count = g->end - g->first, n = 0;
    zero12_param *order = TIDE_NEW(m->arena, zero12_param, count + 1);
    for (int64_t from = 0; from < z->w->ranks && from < count; from++)
        for (int64_t i = from; i < count; i += z->w->ranks) {
            z->bit16_groups[g->first + i] = &z->params[g->first + n];
            order[n++] = z->params[g->first + i];
        }
    memcpy(z->params + g->first, order, n * sizeof *order);
}

static void init_bit16_group(zero12 *z, uint32_t group) {
    tide_machine *m = zero12_machine(z);
    zero12_group *g = &z->groups[group];
    int64_t elements = 0, alignment = 2 * z->w->ranks; /* nccl_start_alignment_factor */
    if (z->w->job->parallel_round_robin_gradients) round_robin_reorder(z, g);
    for (uint32_t i = g->first; i < g->end; i++) {
        z->params[i].first_element = elements;
        elements += z->params[i].numel;
    }
    int64_t padding = (alignment - elements % alignment) % alignment;
    g->partition_size = (elements + padding) / z->w->ranks;
    tide_timeline_empty_cache(&m->timeline);
    if (padding || g->end - g->first > 1) {
        tide_tensor *pad = padding ? tide_flat_of(m, zero12_name, padding, z->dtype, TIDE_FACTOR_TEMPORARY) : NULL;
        g->bit16_flat = tide_flat_of(m, zero12_name, elements + padding, z->dtype, TIDE_FACTOR_PARAMETER);
        tide_release(m, pad);
    } else {
        g->bit16_flat = tide_alias(m, z->params[g->first].tensor);
    }
    for (uint32_t i = g->first; i < g->end; i++) {
        tide_set_data(m, z->params[i].tensor, g->bit16_flat);
        z->params[i].is_in_current_partition = is_owner(z, &z->params[i]);
    }
    tide_tensor *part = tide_flat_of(m, zero12_name, g->partition_size, z->dtype, TIDE_FACTOR_TEMPORARY);
    if (z->cpu_offload) {
        tide_shape shape = tide_shape1((tide_dim){g->partition_size, 0});
        g->single_partition_of_fp32 = tide_empty_host(m, &shape, TIDE_FP32);
        if (z->w->job->parallel_pin_memory) { /* the master copy, its gradient, and the updated part on its way back */
            tide_pin_host(m, tide_bytes(g->single_partition_of_fp32));
            tide_pin_host(m, tide_bytes(g->single_partition_of_fp32));
            tide_pin_host(m, g->partition_size * tide_dtype_bytes(z->dtype));
        }
    } else if (z->dtype == TIDE_FP32) {
        g->single_partition_of_fp32 = tide_retain(part);
        tide_set_factor(m, part, TIDE_FACTOR_MASTER);
    } else {
        g->single_partition_of_fp32 = tide_flat_of(m, zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_MASTER);
    }
    tide_release(m, part);
}

/* ---- gradients ---- */

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
        z->ipg_buffers[i] = tide_flat_of(m, zero12_name, z->reduce_bucket_size, z->dtype, TIDE_FACTOR_COMMUNICATION);
}

/* A collective over slices: a single one is sent as it is, several are joined (allreduce_bucket). */
static void allreduce_and_copy(zero12 *z, uint32_t count, int64_t elements) {
    tide_machine *m = zero12_machine(z);
    tide_tensor *flat = count > 1 ? tide_flat_of(m, zero12_name, elements, z->dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
    tide_tensor *sent =
        z->communication_data_type != z->dtype
            ? tide_flat_of(m, zero12_name, elements, z->communication_data_type, TIDE_FACTOR_COMMUNICATION)
            : NULL;
    bool is_widened = z->communication_data_type != TIDE_FP32;
    for (uint32_t i = 0; i < z->own_count && is_widened; i++) /* _add_to_grad_partition_buffer */
        tide_release(m, tide_flat_of(m, zero12_name, z->own[i], TIDE_FP32, TIDE_FACTOR_TEMPORARY));
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
        owners_of(z, &z->params[z->ipg_params[i]], &first, &last);
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
            owners_of(z, p, &first, &last);
            for (int64_t r = first; r <= last; r++) {
                if (r != owner || (z->use_grad_accum_attribute && r == z->w->rank)) {
                    if (elements && (!order || owner == order[turn])) chunk_add(z, &c, elements, owner == z->w->rank);
                    elements = 0;
                    owner = r;
                }
                elements += owned_by(z, p, r);
                if (z->use_grad_accum_attribute && r == z->w->rank && !z->groups[p->group].grad_partition_buffer)
                    z->groups[p->group].grad_partition_buffer =
                        tide_flat_of(zero12_machine(z), zero12_name, part, TIDE_FP32, TIDE_FACTOR_GRADIENT);
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
        p->norm_for_param_grads = tide_fp64_norm(m, zero12_name, owned_by(z, p, z->w->rank)); /* norm_for_param_grads */
        if (z->dtype != TIDE_FP32 && !z->use_grad_accum_attribute)
            tide_release(m, tide_flat_of(m, zero12_name, owned_by(z, p, z->w->rank), TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        tide_release_at(m, &p->tensor->grad);
        return;
    }
    if (z->use_grad_accum_attribute) return;
    if (!z->grads_in_partition) {
        int64_t elements = 0;
        for (uint32_t i = 0; i < z->count; i++)
            if (z->params[i].is_in_current_partition) elements += z->params[i].numel;
        z->grads_in_partition = tide_flat_of(m, zero12_name, elements, z->dtype, TIDE_FACTOR_GRADIENT);
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

static void zero12_gradient_ready(tide_machine *m, tide_tensor *leaf) {
    zero12 *z = m->wrapper;
    zero12_param *p = zero12_param_of(z, leaf);
    if (!p) return;
    m->op = zero12_name;
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
            g->grad_partition_buffer = tide_flat_of(m, zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
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
        elements += owned_by(z, p, z->w->rank);
    }
    if (is_new) g->averaged_count = n;
    if (z->w->is_last && elements < g->partition_size)
        g->averaged_gradients[g->averaged_count++] =
            tide_flat_of(m, zero12_name, g->partition_size - elements, z->dtype, TIDE_FACTOR_GRADIENT);
}

/* independent_gradient_partition_epilogue; for stage 1 preceded by reduce_gradients. */
static void independent_gradient_partition_epilogue(zero12 *z) {
    tide_machine *m = zero12_machine(z);
    m->op = zero12_name;
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

/* ---- the engine ---- */

static void zero_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = zero12_name;
    tide_tensor *scaled = w->has_divided ? tide_retain(loss)
                                         : tide_scale(m, loss), /* divided by the number of micro-batches */
        *again = tide_scale(m, scaled);                         /* multiplied by the loss scaler */
    tide_run_backward(m, again);
    independent_gradient_partition_epilogue(w->state);
    tide_release(m, again);
    tide_release(m, scaled);
}

static void step_bit16_group(zero12 *z, uint32_t group) {
    tide_machine *m = zero12_machine(z);
    zero12_group *g = &z->groups[group];
    if (z->cpu_offload) tide_release_at(m, &g->grad_partition_buffer);
    if (!z->cpu_offload) {
        bool is_whole = g->averaged_count == 1;
        tide_tensor *flat = z->use_grad_accum_attribute ? g->grad_partition_buffer
                            : is_whole
                                ? tide_retain(g->averaged_gradients[0])
                                : tide_flat_of(m, zero12_name, g->partition_size, z->dtype, TIDE_FACTOR_GRADIENT);
        tide_tensor *grad = z->dtype == TIDE_FP32 || z->use_grad_accum_attribute
                                ? tide_retain(flat)
                                : tide_flat_of(m, zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
        tide_release(m, flat);
        for (uint32_t i = 0; i < g->averaged_count; i++) tide_release(m, g->averaged_gradients[i]);
        g->averaged_count = 0;
        g->grad_partition_buffer = NULL;
        g->single_partition_of_fp32->grad = grad;
        tide_optimizer_step_one(z->w->optimizer, group);
        tide_release_at(m, &g->single_partition_of_fp32->grad);
    }
}

static void zero_update(tide_wrapper *w) {
    zero12 *z = w->state;
    tide_machine *m = w->model->m;
    m->op = zero12_name;
    tide_tensor *norm = NULL;
    for (uint32_t i = 0; i < z->group_count && !z->cpu_offload; i++) { /* scaled_global_norm */
        zero12_group *g = &z->groups[i];
        tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, g->averaged_count + 1);
        uint32_t n = 0;
        for (uint32_t k = g->first; k < g->end; k++)
            if (z->params[k].is_in_current_partition && tide_autotp_counts(z->w, z->params[k].tensor))
                norms[n++] = tide_fp64_norm(m, zero12_name, owned_by(z, &z->params[k], z->w->rank));
        for (uint32_t k = n; k-- > 0;) tide_release(m, norms[k]);
    }
    for (uint32_t i = 0; i < z->group_count && z->cpu_offload; i++)
        tide_release(m, tide_scalar(m, TIDE_FP32)); /* copied to the host */
    tide_tensor *before = z->global_grad_norm;      /* the engine refers to it too, until the end of the step */
    if (!z->cpu_offload) {
        norm = tide_scalar(m, TIDE_FP32);
        z->global_grad_norm = tide_scalar(m, TIDE_FP32);
    }
    for (uint32_t i = 0; i < z->group_count; i++) step_bit16_group(z, i);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i].norm_for_param_grads);
    tide_release(m, before);
    tide_release(m, norm);
}

static void zero_update_at_boundary(tide_wrapper *w) {
    if (w->job->optimizer != TIDE_optimizer_none) zero_update(w);
}

/* The dtype of the first parameter when the engine receives the model. */
static tide_dtype dtype_of(const tide_wrapper *w) {
    return tide_dtype_or(w->job->parallel_half, w->model->state.dtype);
}

static bool zero12_is_refused(const tide_wrapper *w, bool partition_gradients) {
    const tide_job *job = w->job;
    tide_dtype half = tide_dtype_or(job->parallel_half, TIDE_FP32), own = dtype_of(w),
               accumulated = tide_dtype_or(job->parallel_grad_accum_dtype, half);
    bool is_plain = partition_gradients && job->parallel_contiguous_gradients && job->parallel_reduce_scatter;
    if (accumulated == own || (accumulated == TIDE_FP32 && is_plain)) return false;
    if (half == TIDE_FP32 && own != half)
        tide_fail_setting(
            w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.half",
            "none: DeepSpeed keeps %s weights and accumulates their gradients in fp32, which is "
            "described in stage 2 with contiguous_gradients and reduce_scatter; write parallel.half=%s, or "
            "dtype=fp32",
            tide_dtype_names[own], tide_dtype_names[own]);
    else
        tide_fail(w->model->m, TIDE_ERR_UNSUPPORTED,
                  "parallel.grad_accum_dtype other than that of the model is described for fp32 in stage 2 with "
                  "contiguous_gradients and reduce_scatter, and in stage 1 with bf16 that is not offloaded");
    return true;
}

static zero12 *zero12_new(tide_wrapper *w, bool partition_gradients) {
    tide_arena *arena = w->model->m->arena;
    const tide_job *job = w->job;
    tide_dtype half = tide_dtype_or(job->parallel_half, TIDE_FP32);
    bool cpu_offload = job->parallel_offload_optimizer == TIDE_parallel_offload_optimizer_cpu;
    zero12 *z = TIDE_NEW(arena, zero12, 1);
    *z = (zero12){.w = w,
                  .count = tide_optimizer_members(w->optimizer, NULL),
                  .partition_gradients = partition_gradients,
                  .use_grad_accum_attribute = tide_dtype_or(job->parallel_grad_accum_dtype, half) != dtype_of(w),
                  .dtype = w->model->state.dtype,
                  .reduce_bucket_size =
                      tide_bucket_size(w, TIDE_SET_parallel_reduce_bucket_size, job->parallel_reduce_bucket_size, 1, 1),
                  .overlap_comm = job->parallel_overlap_comm,
                  .contiguous_gradients = job->parallel_contiguous_gradients || cpu_offload,
                  .reduce_scatter = job->parallel_reduce_scatter,
                  .use_multi_rank_bucket_allreduce = job->parallel_use_multi_rank_bucket_allreduce,
                  .cpu_offload = cpu_offload};
    bool sums_wide = job->parallel_reduce_scatter && job->parallel_sequence_parallel_size > 1; /* allreduce_bucket */
    z->communication_data_type = sums_wide ? TIDE_FP32 : tide_communication_dtype(job);
    z->params = TIDE_NEW(arena, zero12_param, z->count + 1);
    z->bit16_groups = TIDE_NEW(arena, zero12_param *, z->count + 1);
    z->own = TIDE_NEW(arena, int64_t, z->count + 1);
    z->ipg_params = TIDE_NEW(arena, uint32_t, z->count + 1);
    z->ipg_grads = TIDE_NEW(arena, tide_tensor *, z->count + 1);
    return z;
}

/* Makes the optimizer's groups flat tensors, replaced in the optimizer by this rank's fp32 partitions. */
static void init_groups(zero12 *z) {
    tide_arena *arena = zero12_machine(z)->arena;
    tide_optimized *members = TIDE_NEW(arena, tide_optimized, z->count + 1), masters[2];
    tide_optimizer_members(z->w->optimizer, members);
    for (uint32_t i = 0; i < z->count; i++) {
        z->params[i] = (zero12_param){
            .tensor = members[i].tensor, .group = members[i].group, .numel = tide_count(members[i].tensor)};
        z->bit16_groups[i] = &z->params[i];
        zero12_group *g = &z->groups[members[i].group];
        if (g->end == 0) g->first = i;
        g->end = i + 1;
    }
    if (z->count && members[0].group == 1) { /* without weight decay there is only the second group */
        for (uint32_t i = 0; i < z->count; i++) z->params[i].group = 0;
        z->groups[0] = z->groups[1];
        z->groups[1].end = 0;
    }
    z->group_count = (z->groups[0].end ? 1u : 0) + (z->groups[1].end ? 1u : 0);
    for (uint32_t i = 0; i < z->group_count; i++) {
        zero12_group *g = &z->groups[i];
        init_bit16_group(z, i);
        g->averaged_gradients = TIDE_NEW(arena, tide_tensor *, g->end - g->first + 2);
        masters[i] = (tide_optimized){.tensor = g->single_partition_of_fp32, .group = members[g->first].group};
    }
    tide_optimizer_replace(z->w->optimizer, masters, z->group_count);
}

static void zero_wrap(tide_wrapper *w, bool partition_gradients) {
    tide_machine *m = w->model->m;
    if (zero12_is_refused(w, partition_gradients)) return;
    tide_cast_and_place_model(w, tide_dtype_or(w->job->parallel_half, TIDE_FP32));
    if (!tide_autotp(w)) return;
    zero12 *z = zero12_new(w, partition_gradients);
    init_groups(z);
    if (tide_adagrad_is_refused(w, z->group_count)) return;
    int64_t largest = 0;
    for (uint32_t i = 0; i < z->count; i++)
        if (z->params[i].numel > largest) largest = z->params[i].numel;
    if (z->cpu_offload) {
        z->temp_grad_buffer_for_gpu_offload =
            tide_flat_of(m, zero12_name, largest, z->dtype, TIDE_FACTOR_COMMUNICATION);
        if (w->job->parallel_pin_memory)
            tide_pin_host(m, largest * tide_dtype_bytes(z->dtype)); /* temp_grad_buffer_for_cpu_offload */
    }
    tide_tensor *zeros[2] = {NULL};
    for (uint32_t i = 0; i < z->group_count && !z->cpu_offload; i++) /* initialize_optimizer_states */
        zeros[i] = tide_flat_of(m, zero12_name, z->groups[i].partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
    tide_optimizer_construct(w->optimizer); /* Adagrad is created again, over the partitions */
    for (uint32_t i = 0; i < z->group_count; i++) tide_release(m, zeros[i]);
    w->state = m->wrapper = z;
    m->gradient_ready = zero12_gradient_ready;
}

/* Note [Ranks of ZeRO-1 and 2]: all parts have one size; ranks differ in how many gradients their part consists of,
 * each in a block of its own, and in when these arrive. Besides rank 0, these stand for all: the last one, which has
 * the padding and the gradients that arrive first; the one whose pieces take the most blocks; and the one with the most
 * pieces. */
typedef struct share {
    int64_t bytes, pieces;
} share;

static uint32_t zero_other_ranks(const tide_wrapper *w, int64_t *ranks) {
    const zero12 *z = w->state;
    int64_t largest = 0, most = 0, last = w->ranks - 1;
    uint32_t count = 0;
    share *of = TIDE_NEW(w->model->m->arena, share, w->ranks);
    for (uint32_t i = 0; i < z->count; i++) {
        int64_t first, end, part = z->groups[z->params[i].group].partition_size;
        const zero12_param *p = &z->params[i];
        owners_of(z, p, &first, &end);
        for (int64_t r = first; r <= end && r <= last; r++) {
            int64_t from = p->first_element > r * part ? p->first_element : r * part,
                    to = p->first_element + p->numel < (r + 1) * part ? p->first_element + p->numel : (r + 1) * part;
            of[r].bytes += TIDE_ROUND_UP((to - from) * (int64_t)tide_dtype_bytes(z->dtype), 512);
            of[r].pieces++;
        }
    }
    for (int64_t r = 0; r <= last; r++) {
        if (of[r].bytes > of[largest].bytes) largest = r;
        if (of[r].pieces > of[most].pieces) most = r;
    }
    if (last) ranks[count++] = last;
    if (largest && largest != last) ranks[count++] = largest;
    if (most && most != last && most != largest) ranks[count++] = most;
    for (uint32_t i = 0; i < count; i++) ranks[i] *= w->job->parallel_tp;
    return count;
}

static void zero1_wrap(tide_wrapper *w) {
    zero_wrap(w, false);
}

static void zero2_wrap(tide_wrapper *w) {
    zero_wrap(w, true);
}

const tide_strategy tide_zero1_strategy = {.wrap = zero1_wrap,
                                           .before_forward = tide_ulysses_before_forward,
                                           .after_forward = tide_ulysses_after_forward,
                                           .prepare_reference = tide_prepare_whole_reference,
                                           .backward = zero_backward,
                                           .update = zero_update_at_boundary,
                                           .updates_in_backward = true,
                                           .other_ranks = zero_other_ranks};
const tide_strategy tide_zero2_strategy = {.wrap = zero2_wrap,
                                           .before_forward = tide_ulysses_before_forward,
                                           .after_forward = tide_ulysses_after_forward,
                                           .prepare_reference = tide_prepare_whole_reference,
                                           .backward = zero_backward,
                                           .update = zero_update_at_boundary,
                                           .updates_in_backward = true,
                                           .other_ranks = zero_other_ranks};
