/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed ZeRO stages 1 and 2: how parameters are laid out, and the engine. */
#include "parallel/zero_1_and_2.h"

#include <string.h>

#include "base/units.h"
#include "parallel/autotp.h"
#include "parallel/ulysses.h"

/* ---- layout ---- */

static bool is_owner(const zero12 *z, const zero12_param *p) {
    int64_t first, last;
    tide_zero12_owners_of(z, p, &first, &last);
    return z->w->rank >= first && z->w->rank <= last;
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
        tide_tensor *pad = padding ? tide_flat_of(m, tide_zero12_name, padding, z->dtype, TIDE_FACTOR_TEMPORARY) : NULL;
        g->bit16_flat = tide_flat_of(m, tide_zero12_name, elements + padding, z->dtype, TIDE_FACTOR_PARAMETER);
        tide_release(m, pad);
    } else {
        g->bit16_flat = tide_alias(m, z->params[g->first].tensor);
    }
    for (uint32_t i = g->first; i < g->end; i++) {
        tide_set_data(m, z->params[i].tensor, g->bit16_flat);
        z->params[i].is_in_current_partition = is_owner(z, &z->params[i]);
    }
    tide_tensor *part = tide_flat_of(m, tide_zero12_name, g->partition_size, z->dtype, TIDE_FACTOR_TEMPORARY);
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
        g->single_partition_of_fp32 =
            tide_flat_of(m, tide_zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_MASTER);
    }
    tide_release(m, part);
}

/* ---- the engine ---- */

static void zero_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = tide_zero12_name;
    tide_tensor *scaled = w->has_divided ? tide_retain(loss)
                                         : tide_scale(m, loss), /* divided by the number of micro-batches */
        *again = tide_scale(m, scaled);                         /* multiplied by the loss scaler */
    tide_run_backward(m, again);
    tide_zero12_independent_gradient_partition_epilogue(w->state);
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
                                : tide_flat_of(m, tide_zero12_name, g->partition_size, z->dtype, TIDE_FACTOR_GRADIENT);
        tide_tensor *grad = z->dtype == TIDE_FP32 || z->use_grad_accum_attribute
                                ? tide_retain(flat)
                                : tide_flat_of(m, tide_zero12_name, g->partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
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
    m->op = tide_zero12_name;
    tide_tensor *norm = NULL;
    for (uint32_t i = 0; i < z->group_count && !z->cpu_offload; i++) { /* scaled_global_norm */
        zero12_group *g = &z->groups[i];
        tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, g->averaged_count + 1);
        uint32_t n = 0;
        for (uint32_t k = g->first; k < g->end; k++)
            if (z->params[k].is_in_current_partition && tide_autotp_counts(z->w, z->params[k].tensor))
                norms[n++] = tide_fp64_norm(m, tide_zero12_name, tide_zero12_owned_by(z, &z->params[k], z->w->rank));
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
            tide_flat_of(m, tide_zero12_name, largest, z->dtype, TIDE_FACTOR_COMMUNICATION);
        if (w->job->parallel_pin_memory)
            tide_pin_host(m, largest * tide_dtype_bytes(z->dtype)); /* temp_grad_buffer_for_cpu_offload */
    }
    tide_tensor *zeros[2] = {NULL};
    for (uint32_t i = 0; i < z->group_count && !z->cpu_offload; i++) /* initialize_optimizer_states */
        zeros[i] = tide_flat_of(m, tide_zero12_name, z->groups[i].partition_size, TIDE_FP32, TIDE_FACTOR_GRADIENT);
    tide_optimizer_construct(w->optimizer); /* Adagrad is created again, over the partitions */
    for (uint32_t i = 0; i < z->group_count; i++) tide_release(m, zeros[i]);
    w->state = m->wrapper = z;
    m->gradient_ready = tide_zero12_gradient_ready;
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
        tide_zero12_owners_of(z, p, &first, &end);
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
