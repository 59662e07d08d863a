/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3. */
#include "parallel/zero3.h"
#include "parallel/autotp.h"

#include <string.h>

#include "base/units.h"
#include "parallel/ulysses.h"
#include "tensor/ops/ops.h"

/* fp16_partitioned_groups_flat_numel */
static int64_t sub_group_numel(const zero3 *z, uint32_t sub_group) {
    int64_t numel = 0;
    for (uint32_t i = sub_group ? z->sub_group_ends[sub_group - 1] : 0; i < z->sub_group_ends[sub_group]; i++)
        numel += z->params[z->trainable[i]].partition_numel;
    return numel;
}

static int64_t trainable_numel(const zero3 *z) {
    int64_t numel = 0;
    for (uint32_t i = 0; i < z->trainable_count; i++) numel += z->params[z->trainable[i]].partition_numel;
    return numel;
}

static void zero3_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    zero3 *z = w->state;
    m->op = tide_zero3_name;
    tide_tensor *scaled = w->has_divided ? tide_retain(loss) : tide_scale(m, loss), *again = tide_scale(m, scaled);
    tide_run_backward(m, again);
    m->op = tide_zero3_name;
    m->module = m->statement = 0;
    tide_zero3_reduce_and_partition_ipg_grads(z);
    tide_zero3_release_backward_leftovers(z);
    tide_release(m, again);
    tide_release(m, scaled);
}

/* fp16 only, has_overflow(): whether any of all gradients is infinite or not a number, as a byte for the ranks.
 * Offloaded gradients are looked at on the host. */
static void zero3_has_overflow(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    if (z->dtype != TIDE_FP16) return;
    m->state.stream = z->reduce_and_partition_stream;
    for (int i = 0; i < 2 && !z->offload_optimizer; i++) {
        tide_tensor *absolute = i == 0 ? tide_flat(m, tide_count(z->grad_partitions_flat_buffer), z->dtype) : NULL;
        tide_tensor *is_any_of = tide_flat(m, tide_count(z->grad_partitions_flat_buffer), TIDE_BOOL);
        tide_release(m, absolute);
        tide_tensor *any = tide_sum_plain(m, is_any_of, 1, false, TIDE_BOOL);
        tide_release(m, is_any_of);
        tide_release(m, any);
    }
    tide_tensor *clone = tide_scalar(m, TIDE_BOOL), *overflow_gpu = tide_scalar(m, TIDE_UINT8);
    tide_release(m, clone);
    tide_release(m, overflow_gpu);
    m->state.stream = 0;
}

static void zero3_optimizer_step(zero3 *z, uint32_t sub) {
    tide_machine *m = zero3_machine(z);
    uint32_t from = sub ? z->sub_group_ends[sub - 1] : 0, to = z->sub_group_ends[sub];
    int64_t elements = sub_group_numel(z, sub);
    tide_tensor *flat =
        to - from > 1 ? tide_flat_of(m, tide_zero3_name, elements, z->gradient_accumulation_dtype, TIDE_FACTOR_GRADIENT)
                      : NULL;
    z->fp32_partitioned_groups_flat[sub]->grad =
        z->gradient_accumulation_dtype != TIDE_FP32
            ? tide_flat_of(m, tide_zero3_name, elements, TIDE_FP32, TIDE_FACTOR_GRADIENT)
        : flat ? tide_retain(flat)
               : tide_view_as(m, z->grad_partitions_flat_buffer, z->fp32_partitioned_groups_flat[sub]->layout);
    tide_release(m, flat);
    tide_optimizer_step_one(z->w->optimizer, sub);
    tide_release_at(m, &z->fp32_partitioned_groups_flat[sub]->grad);
}

/* deepspeed/runtime/zero/stage3.py, complete_grad_norm_calculation_for_cpu_offload(): the norms of a sub-group's
 * gradients are summed on the device, the sum goes to the host. */
static void complete_grad_norm_for_cpu_offload(zero3 *z, uint32_t sub) {
    tide_machine *m = zero3_machine(z);
    tide_tensor *total = NULL, *mask[3];
    for (uint32_t i = sub ? z->sub_group_ends[sub - 1] : 0; i < z->sub_group_ends[sub]; i++) {
        const zero_param *p = &z->params[z->trainable[i]];
        if (!p->norm || !tide_autotp_counts(z->w, p->tensor)) continue;
        tide_tensor *square = tide_scalar(m, TIDE_FP64);
        if (!total) total = tide_scalar(m, TIDE_FP64); /* 0.0 + square; later squares are added in place */
        tide_release(m, square);
    }
    tide_tensor *total_norm_cuda = tide_scalar(m, TIDE_FP32), *norm = tide_scalar(m, TIDE_FP32);
    tide_release(m, total);
    tide_tensor *absolute = tide_scalar(m, TIDE_FP32); /* mask_nan_or_inf_with_val_inplace() */
    mask[0] = tide_scalar(m, TIDE_BOOL);
    tide_release(m, absolute);
    for (int i = 1; i < 3; i++) mask[i] = tide_scalar(m, TIDE_BOOL);
    tide_tensor *value = tide_scalar(m, TIDE_FP32);
    for (int i = 0; i < 3; i++) tide_release(m, mask[i]);
    tide_release(m, value);
    tide_release(m, norm);
    tide_release(m, total_norm_cuda);
}

static void zero3_update(tide_wrapper *w) {
    zero3 *z = w->state;
    tide_machine *m = w->model->m;
    if (w->job->optimizer == TIDE_optimizer_none) return;
    m->op = tide_zero3_name;
    tide_zero3_wait_all(z);
    for (uint32_t i = 0; i < z->count; i++) { /* _partition_all_parameters */
        z->params[i].active_sub_module_count = 0;
        tide_zero3_release_param(z, &z->params[i]);
    }
    zero3_has_overflow(z);
    for (uint32_t i = 0; i < z->trainable_count && !z->offload_optimizer; i++) {
        zero_param *p = &z->params[z->trainable[i]];
        if (tide_autotp_counts(w, p->tensor)) p->norm = tide_fp64_norm(m, tide_zero3_name, p->partition_numel);
    }
    for (uint32_t i = 0; i < z->sub_group_count && z->offload_optimizer; i++) complete_grad_norm_for_cpu_offload(z, i);
    for (uint32_t i = 0; i < z->trainable_count; i++) tide_release_at(m, &z->params[z->trainable[i]].norm);
    tide_tensor *before = z->global_grad_norm; /* kept by the engine */
    /* of all gradients, scaled like the loss; for offloaded gradients it is computed on the host */
    tide_tensor *norm = NULL;
    for (uint32_t i = 0; i < z->sub_group_count && !z->offload_optimizer; i++)
        z->norm_groups[i] = tide_scalar(m, TIDE_FP32);
    if (!z->offload_optimizer) {
        norm = tide_scalar(m, TIDE_FP32);
        z->global_grad_norm = tide_scalar(m, TIDE_FP32);
    }
    for (uint32_t i = 0; i < z->sub_group_count && !z->offload_optimizer; i++) zero3_optimizer_step(z, i);
    tide_zero3_allgather_persistent(z);
    m->module = 0;
    for (uint32_t i = 0; i < z->trainable_count; i++)
        tide_release_at(m, &z->params[z->trainable[i]].ds_secondary_tensor); /* invalidate_secondary_tensor */
    tide_release(m, before);
    tide_release(m, norm);
    for (uint32_t i = 0; i < z->sub_group_count; i++) tide_release_at(m, &z->norm_groups[i]);
}

static void convert_to_zero_parameters(zero3 *z, const zero3_init *e) {
    tide_machine *m = zero3_machine(z);
    for (uint32_t i = 0; i < z->count; i++) {
        zero_param *p = &z->params[i];
        m->module = p->module;
        p->ds_id = i + (e ? e->count : 0); /* those made by zero.Init have one already */
        for (uint32_t k = 0; e && k < e->count && !p->ds_tensor; k++)
            if (e->params[k].tensor == p->tensor)
                p->ds_tensor = e->params[k].ds_tensor, p->ds_secondary_tensor = e->params[k].ds_secondary_tensor,
                p->ds_id = k;
        if (p->ds_tensor) continue;
        tide_model_place(z->w->model, p->module, p->tensor, TIDE_FACTOR_PARAMETER);
        tide_zero3_partition_param_sec(z, p);
        p->ds_tensor = tide_zero3_new_partition(m, p->partition_numel, p->dtype, z->offload_param);
        tide_zero3_empty_data(zero3_machine(z), p->tensor);
    }
    m->module = 0;
}

/* _create_fp16_sub_groups: trainable parameters in the order of the optimizer's groups, divided into sub-groups. */
static void create_fp16_sub_groups(zero3 *z, const tide_optimized *members, uint32_t count) {
    tide_arena *arena = zero3_machine(z)->arena;
    int64_t size = z->w->job->parallel_sub_group_size, totals[2] = {0, 0}, run = 0;
    z->trainable = TIDE_NEW(arena, uint32_t, count + 1);
    z->sub_group_ends = TIDE_NEW(arena, uint32_t, count + 1);
    z->sub_group_to_group_id = TIDE_NEW(arena, uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t p = tide_zero3_param_of(z, members[i].tensor);
        z->params[p].group = members[i].group;
        if (i && z->trainable_dtype != z->params[p].dtype)
            tide_fail_setting(
                zero3_machine(z), TIDE_ERR_CONFLICT, "parallel.kind",
                "DeepSpeed's ZeRO-3 refuses what trains in several dtypes: \"assert len(set(t.dtype for t "
                "in tensors)) == 1\"; use adapter=lora, dtype=fp32, or zero2");
        z->trainable_dtype = z->params[p].dtype;
        z->trainable[i] = p;
        totals[members[i].group] += z->params[p].partition_numel;
    }
    z->trainable_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const zero_param *p = &z->params[z->trainable[i]];
        run += p->partition_numel;
        bool is_end = i + 1 == count || members[i + 1].group != members[i].group;
        if (!is_end && (run < size || size >= totals[p->group])) continue;
        z->sub_group_to_group_id[z->sub_group_count] = p->group;
        z->sub_group_ends[z->sub_group_count++] = i + 1;
        run = 0;
    }
}

/* _create_fp16_partitions_with_defragmentation: copies all trainable partitions into one buffer, by way of the host. */
static void create_fp16_partitions_with_defragmentation(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    if (z->offload_param) return;
    for (uint32_t i = 0; i < z->trainable_count; i++) tide_release_at(m, &z->params[z->trainable[i]].ds_tensor);
    tide_timeline_empty_cache(&m->timeline);
    z->lp_param_buffer =
        tide_flat_of(m, tide_zero3_name, trainable_numel(z), z->trainable_dtype, TIDE_FACTOR_PARAMETER);
    for (uint32_t i = 0; i < z->trainable_count; i++)
        z->params[z->trainable[i]].ds_tensor = tide_alias(m, z->lp_param_buffer);
}

/* _create_fp32_partitions */
static void create_fp32_partitions(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    tide_tensor *converted = NULL;
    z->fp32_partitioned_groups_flat = TIDE_NEW(m->arena, tide_tensor *, z->sub_group_count + 1);
    z->norm_groups = TIDE_NEW(m->arena, tide_tensor *, z->sub_group_count + 1);
    tide_optimized *masters = TIDE_NEW(m->arena, tide_optimized, z->sub_group_count + 1);
    for (uint32_t s = 0; s < z->sub_group_count; s++) {
        int64_t numel = sub_group_numel(z, s);
        tide_shape shape = tide_shape1((tide_dim){numel, 0});
        if (z->offload_optimizer) {
            z->fp32_partitioned_groups_flat[s] = tide_empty_host(m, &shape, TIDE_FP32);
            if (z->pin_memory) tide_pin_host(m, numel * tide_dtype_bytes(TIDE_FP32));
        } else {
            tide_tensor *next = NULL;
            if (z->trainable_dtype != TIDE_FP32)
                next = tide_flat_of(m, tide_zero3_name, numel, TIDE_FP32, TIDE_FACTOR_TEMPORARY); /* .to(fp32) */
            tide_release(m, converted);
            converted = next;
            z->fp32_partitioned_groups_flat[s] = tide_flat_of(m, tide_zero3_name, numel, TIDE_FP32, TIDE_FACTOR_MASTER);
        }
        masters[s] =
            (tide_optimized){.tensor = z->fp32_partitioned_groups_flat[s], .group = z->sub_group_to_group_id[s]};
    }
    tide_release(m, converted);
    tide_optimizer_replace(z->w->optimizer, masters, z->sub_group_count);
}

/* _setup_for_real_optimizer */
static void setup_for_real_optimizer(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    int64_t numel = trainable_numel(z), largest = 0;
    create_fp32_partitions(z);
    for (uint32_t s = 0; s < z->sub_group_count; s++)
        if (sub_group_numel(z, s) > largest) largest = sub_group_numel(z, s);
    tide_tensor *gradient_buffer = NULL; /* initialize_optimizer_states */
    if (!z->offload_optimizer)
        gradient_buffer = tide_flat_of(m, tide_zero3_name, largest, TIDE_FP32, TIDE_FACTOR_GRADIENT);
    tide_optimizer_construct(z->w->optimizer); /* Adagrad is created again, over the partitions */
    tide_release(m, gradient_buffer);
    if (z->contiguous_gradients)
        z->ipg_buffer = tide_flat_of(m, tide_zero3_name, z->reduce_bucket_size, z->communication_data_type,
                                     TIDE_FACTOR_COMMUNICATION);
    if (z->offload_optimizer && z->pin_memory)
        tide_pin_host(m, numel * tide_dtype_bytes(z->gradient_accumulation_dtype)); /* grad_partitions_flat_buffer */
    if (z->offload_param && z->pin_memory) { /* the partitions, and the buffer of the trainable ones */
        for (uint32_t i = 0; i < z->count; i++)
            tide_pin_host(m, z->params[i].partition_numel * tide_dtype_bytes(z->params[i].dtype));
        tide_pin_host(m, numel * tide_dtype_bytes(z->trainable_dtype));
    }
    if (!z->offload_optimizer)
        z->grad_partitions_flat_buffer =
            tide_flat_of(m, tide_zero3_name, numel, z->gradient_accumulation_dtype, TIDE_FACTOR_GRADIENT);
}

/* All parts have one size, including padding; ranks differ if their part of some parameter is not full. */
static uint32_t zero3_other_ranks(const tide_wrapper *w, int64_t *ranks) {
    const zero3 *z = w->state;
    int64_t first = w->ranks, last = w->ranks - 1;
    for (uint32_t i = 0; i < z->count; i++) {
        const zero_param *p = &z->params[i];
        if (p->partition_numel && p->ds_numel / p->partition_numel < first)
            first = p->ds_numel / p->partition_numel; /* the first rank whose part is not full */
    }
    uint32_t count = 0;
    if (first < last && first > 0) ranks[count++] = first;
    if (first <= last && last > 0) ranks[count++] = last;
    return count;
}

/* What DeepSpeed refuses, or is not described. */
static bool zero3_is_refused(const tide_wrapper *w, int64_t hpz_ranks) {
    tide_dtype half = tide_dtype_or(w->job->parallel_half, TIDE_FP32);
    tide_dtype accumulated = tide_dtype_or(w->job->parallel_grad_accum_dtype, half);
    if (accumulated != half && accumulated != TIDE_FP32)
        tide_fail(w->model->m, TIDE_ERR_UNSUPPORTED,
                  "parallel.grad_accum_dtype other than that of the model is described for fp32");
    else if (w->ranks % hpz_ranks)
        tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, "parallel.zero_hpz_partition_size",
                          "DeepSpeed refuses it: \"%lld is not divisible by %lld\"", (long long)w->ranks,
                          (long long)hpz_ranks);
    else if (w->job->parallel_tp > 1 && w->model->parameter_made)
        tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.zero_init",
                          "weights that AutoTP cuts once zero.Init has are not described; write "
                          "parallel.zero_init=false");
    else
        return false;
    return true;
}

static zero3 *zero3_new(tide_wrapper *w, int64_t hpz_ranks) {
    tide_model *model = w->model;
    tide_arena *arena = model->m->arena;
    const tide_job *job = w->job;
    bool overlaps = job->parallel_overlap_comm || !tide_job_sets(job, TIDE_SET_parallel_overlap_comm);
    zero3 *z = TIDE_NEW(arena, zero3, 1);
    *z = (zero3){.w = w,
                 .dtype = model->state.dtype,
                 .earlier = w->precomputed,
                 .count = model->parameter_count,
                 .reduce_bucket_size =
                     tide_bucket_size(w, TIDE_SET_parallel_reduce_bucket_size, job->parallel_reduce_bucket_size, 1, 1),
                 .prefetch_bucket_sz = tide_bucket_size(w, TIDE_SET_parallel_stage3_prefetch_bucket_size,
                                                        job->parallel_stage3_prefetch_bucket_size, 9, 10),
                 .max_n_available_params = job->parallel_stage3_max_live_parameters,
                 .max_reuse_dist_in_numel = job->parallel_stage3_max_reuse_distance,
                 .reduce_scatter = job->parallel_reduce_scatter,
                 .contiguous_gradients = job->parallel_contiguous_gradients,
                 .zero_hpz_partition_size = hpz_ranks,
                 .pin_memory = job->parallel_pin_memory,
                 .offload_optimizer = job->parallel_offload_optimizer == TIDE_parallel_offload_optimizer_cpu,
                 .offload_param = job->parallel_offload_param == TIDE_parallel_offload_param_cpu,
                 .allgather_stream = overlaps ? TIDE_STREAM_SIDE : 0,
                 .reduce_and_partition_stream = overlaps ? TIDE_STREAM_SECOND : 0};
    z->gradient_accumulation_dtype =
        tide_dtype_or(job->parallel_grad_accum_dtype, tide_dtype_or(job->parallel_half, TIDE_FP32));
    z->communication_data_type = tide_communication_dtype(job);
    z->params_in_ipg_bucket = TIDE_NEW(arena, uint32_t, z->count + 1);
    z->params_to_prefetch = TIDE_NEW(arena, uint32_t, z->count + 1);
    z->most_recent_step_id_fetched_for = TIDE_NEW(arena, int64_t, z->count + 1);
    bool is_auto = job->parallel_hf_auto && !tide_job_sets(job, TIDE_SET_parallel_stage3_param_persistence_threshold);
    int64_t param_persistence_threshold =
        is_auto ? 10 * tide_hidden_size(w) : job->parallel_stage3_param_persistence_threshold;
    z->params = z->earlier ? z->earlier->params : TIDE_NEW(arena, zero_param, z->count + 1);
    for (uint32_t i = 0; i < z->count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        int64_t numel = tide_count(row->tensor);
        tide_dtype dtype = (tide_dtype)row->tensor->dtype;
        if (z->earlier) {
            z->params[i].ds_persist = z->params[i].ds_persist || numel <= param_persistence_threshold;
            continue;
        }
        z->params[i] = (zero_param){.tensor = row->tensor,
                                    .dtype = dtype,
                                    .module = row->module,
                                    .ds_numel = numel,
                                    .partition_numel = TIDE_CEIL_DIV(numel, w->ranks),
                                    .ds_persist = numel <= param_persistence_threshold,
                                    .requires_grad = row->tensor->requires_grad};
    }
    return z;
}

/* The engine for weights that zero.Init partitioned, `made`, or for full ones; NULL: it is refused. */
static zero3 *zero3_open(tide_wrapper *w, const zero3_init **made) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    int64_t hpz_ranks = w->job->parallel_zero_hpz_partition_size;
    if (hpz_ranks > w->ranks) hpz_ranks = w->ranks;
    if (zero3_is_refused(w, hpz_ranks)) return NULL;
    *made = NULL;
    if (w->precomputed) return zero3_new(w, hpz_ranks);
    *made = model->parameter_made ? m->wrapper : NULL;
    model->parameter_made = NULL;
    m->makes_on_host = m->makes_on_host && !*made; /* zero.Init makes them in their own dtype */
    if (*made)
        tide_check_broadcast(model);
    else
        tide_cast_and_place_model(w, tide_dtype_or(w->job->parallel_half, TIDE_FP32));
    if (m->has_failed || !tide_autotp(w)) return NULL;
    return zero3_new(w, hpz_ranks);
}

static void zero3_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const zero3_init *made;
    zero3 *z = zero3_open(w, &made);
    if (!z) return;
    uint32_t count = tide_optimizer_members(w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(w->optimizer, members);
    w->state = m->wrapper = z;
    if (!z->earlier) convert_to_zero_parameters(z, made);
    if (!z->offload_optimizer)
        tide_flat_of(m, tide_zero3_name, 1, TIDE_BOOL, TIDE_FACTOR_COMMUNICATION); /* inf_or_nan_tracker */
    if (!w->has_barrier) tide_flat_of(m, tide_zero3_name, 1, TIDE_FP32, TIDE_FACTOR_COMMUNICATION);
    create_fp16_sub_groups(z, members, count);
    create_fp16_partitions_with_defragmentation(z);
    setup_for_real_optimizer(z);
    tide_zero3_register_modules(z);
    tide_autotp_around(w->model);
    for (uint32_t i = 0; i < count; i++) { /* create_reduce_and_remove_grad_hooks: on full parameters */
        zero_param *p = &z->params[z->trainable[i]];
        if (p->ds_status == ZERO_NOT_AVAILABLE) tide_zero3_allgather_param_sequential(z, p);
        tide_zero3_empty_data(m, p->tensor);
        p->ds_status = ZERO_NOT_AVAILABLE;
    }
    m->module = 0;
    m->linear = tide_zero3_linear;
    m->gradient_ready = tide_zero3_gradient_ready;
}

/* DeepSpeedZeRoOffload: the engine without an optimizer. */
static void zero3_prepare_reference(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const zero3_init *made;
    zero3 *z = zero3_open(w, &made);
    if (!z) return;
    if (z->allgather_stream) z->allgather_stream += TIDE_STREAMS_OF_MODEL;
    w->state = m->wrapper = z;
    convert_to_zero_parameters(z, made);
    tide_zero3_register_modules(z);
    m->linear = tide_zero3_linear;
}

const tide_strategy tide_zero3_strategy = {.load = tide_zero3_load,
                                           .loaded = tide_zero3_loaded,
                                           .before_forward = tide_ulysses_before_forward,
                                           .after_forward = tide_ulysses_after_forward,
                                           .prepare_reference = zero3_prepare_reference,
                                           .generation_begins = tide_zero3_generation_begins,
                                           .generation_ends = tide_zero3_generation_ends,
                                           .checkpoint_event = tide_zero3_checkpoint_event,
                                           .gather_params = tide_zero3_gather_params,
                                           .leave_params = tide_zero3_leave_params,
                                           .wrap = zero3_wrap,
                                           .backward = zero3_backward,
                                           .update = zero3_update,
                                           .updates_in_backward = true,
                                           .other_ranks = zero3_other_ranks};
