/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/partition_parameters.py: partitioning and gathering parameters. */
#include "parallel/zero3.h"

#include <string.h>

const char tide_zero3_name[] = "DeepSpeed";

uint32_t tide_zero3_param_of(const zero3 *z, const tide_tensor *tensor) {
    uint32_t p = 0;
    while (p < z->count && z->params[p].tensor != tensor) p++;
    return p;
}

tide_tensor *tide_zero3_flat_on(zero3 *z, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(zero3_machine(z), stream, tide_zero3_name, count, dtype, factor);
}

void tide_zero3_empty_data(tide_machine *m, tide_tensor *tensor) {
    tide_tensor *nothing = tide_empty_host(m, tensor->shape, (tide_dtype)tensor->dtype);
    tide_set_data(m, tensor, nothing);
    tide_release(m, nothing);
}

tide_tensor *tide_zero3_new_partition(tide_machine *m, int64_t count, tide_dtype dtype, bool on_host) {
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    return on_host ? tide_empty_host(m, &shape, dtype)
                   : tide_flat_of(m, tide_zero3_name, count, dtype, TIDE_FACTOR_PARAMETER);
}

/* The elements of a partition within a node: _partition_param_sec. */
static int64_t secondary_numel(const zero3 *z, const zero_param *p) {
    return p->partition_numel * z->w->ranks / z->zero_hpz_partition_size;
}

void tide_zero3_partition_param_sec(zero3 *z, zero_param *p) {
    if (z->zero_hpz_partition_size > 1 && !p->ds_secondary_tensor)
        p->ds_secondary_tensor =
            tide_zero3_new_partition(zero3_machine(z), secondary_numel(z, p), p->dtype, z->offload_param);
}

/* free_param. */
void tide_zero3_release_param(zero3 *z, zero_param *p) {
    if (p->ds_status != ZERO_AVAILABLE || p->active_sub_module_count) return;
    tide_zero3_partition_param_sec(z, p);
    if (z->w->ranks > 1) tide_record_stream(zero3_machine(z), p->tensor, 0);
    tide_zero3_empty_data(zero3_machine(z), p->tensor);
    p->ds_status = ZERO_NOT_AVAILABLE;
    z->n_available_params -= p->ds_numel;
}

/* Copies the partition of an offloaded parameter to the device; NULL if it is there. */
static tide_tensor *partition_to_device(zero3 *z, const zero_param *p, uint8_t stream) {
    return z->offload_param
               ? tide_zero3_flat_on(z, stream, p->ds_secondary_tensor ? secondary_numel(z, p) : p->partition_numel,
                                    p->dtype, TIDE_FACTOR_GATHERED)
               : NULL;
}

/* The input of an asynchronous collective lives until it is waited for, or until the next one. */
static void set_sent(zero3 *z, tide_tensor *uploaded, const all_gather_coalesced_handle *by) {
    tide_release_at(zero3_machine(z), &z->sent);
    z->sent = uploaded;
    z->sent_by = by;
}

/* Gathers the full parameter from the partitions of all ranks. */
static void gather_into(zero3 *z, zero_param *p, uint8_t stream) {
    tide_machine *m = zero3_machine(z);
    m->module = p->module;
    tide_tensor *all = tide_zero3_flat_on(z, stream, p->partition_numel * z->w->ranks, p->dtype, TIDE_FACTOR_GATHERED);
    tide_set_data(m, p->tensor, all);
    tide_release(m, all);
}

/* Returns the partition that was copied to the device for it; NULL: none. */
static tide_tensor *allgather_param(zero3 *z, zero_param *p, uint8_t stream) {
    tide_machine *m = zero3_machine(z);
    if (z->w->ranks == 1) {
        tide_tensor *copy = partition_to_device(z, p, stream);
        tide_set_data(m, p->tensor, copy ? copy : p->ds_tensor);
        tide_release(m, copy);
        return NULL;
    }
    gather_into(z, p, stream);
    return partition_to_device(z, p, stream);
}

void tide_zero3_allgather_param_sequential(zero3 *z, zero_param *p) {
    gather_into(z, p, 0);
    tide_release(zero3_machine(z), partition_to_device(z, p, 0));
}

void tide_zero3_allgather_param(zero3 *z, zero_param *p, uint8_t stream) {
    tide_release(zero3_machine(z), allgather_param(z, p, stream));
}

void tide_zero3_allgather_persistent(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    tide_tensor **local_tensors = TIDE_NEW(m->arena, tide_tensor *, z->count + 1);
    bool has_ranks = z->w->ranks > 1; /* otherwise _no_gather_coalesced(), one by one */
    for (uint32_t i = 0; i < z->count && has_ranks; i++)
        if (z->params[i].ds_persist) local_tensors[i] = partition_to_device(z, &z->params[i], 0);
    for (uint32_t i = 0; i < z->count; i++) {
        zero_param *p = &z->params[i];
        if (!p->ds_persist) continue;
        if (has_ranks)
            gather_into(z, p, 0);
        else
            tide_zero3_allgather_param(z, p, 0);
        p->ds_status = ZERO_AVAILABLE;
    }
    for (uint32_t i = 0; i < z->count; i++) tide_release(m, local_tensors[i]);
}

/* sort_dtypes(): by name, as in torch.bfloat16, torch.float32, torch.uint8; then by index. */
static bool is_gathered_before(const zero_param *a, const zero_param *b) {
    int names = a->dtype == b->dtype ? 0 : strcmp(tide_dtype_names[a->dtype], tide_dtype_names[b->dtype]);
    return names ? names < 0 : a->ds_id < b->ds_id;
}

/* _all_gather_dtype, for each dtype. */
static void all_gather_dtypes(zero3 *z, all_gather_coalesced_handle *handle) {
    uint32_t dtypes = 0;
    for (uint32_t i = 0; i < handle->count;) {
        tide_dtype dtype = z->params[handle->params[i]].dtype;
        int64_t cut = 0;
        for (; i < handle->count && z->params[handle->params[i]].dtype == dtype; i++)
            cut += z->params[handle->params[i]].partition_numel;
        handle->partitions[dtypes++] =
            tide_zero3_flat_on(z, z->allgather_stream, cut * z->w->ranks, dtype, TIDE_FACTOR_GATHERED);
    }
}

void tide_zero3_drop_partitions(zero3 *z, all_gather_coalesced_handle *handle) {
    for (uint32_t i = 0; i < ZERO_DTYPES; i++) tide_release_at(zero3_machine(z), &handle->partitions[i]);
}

/* all_gather_coalesced */
static void all_gather_coalesced(zero3 *z, const uint32_t *which, uint32_t count) {
    tide_machine *m = zero3_machine(z);
    uint32_t module_outside = m->module;
    all_gather_coalesced_handle *handle = TIDE_NEW(m->arena, all_gather_coalesced_handle, 1);
    handle->params = TIDE_NEW(m->arena, uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = handle->count++;
        for (; at && is_gathered_before(&z->params[which[i]], &z->params[handle->params[at - 1]]); at--)
            handle->params[at] = handle->params[at - 1];
        handle->params[at] = which[i];
    }
    handle->waiting = count;
    handle->complete = count == 1 || z->w->ranks == 1;
    for (uint32_t i = 0; i < count; i++) {
        zero_param *p = &z->params[handle->params[i]];
        p->ds_status = ZERO_INFLIGHT;
        p->inflight = handle;
        z->n_available_params += p->ds_numel;
        if (handle->complete) set_sent(z, allgather_param(z, p, z->allgather_stream), handle);
    }
    if (!handle->complete) {
        all_gather_dtypes(z, handle);
        tide_tensor **copies = TIDE_NEW(m->arena, tide_tensor *, count + 1);
        for (uint32_t i = 0; i < count; i++)
            copies[i] = partition_to_device(z, &z->params[handle->params[i]], z->allgather_stream);
        set_sent(z, NULL, handle);
        for (uint32_t i = 0; i < count; i++) tide_release(m, copies[i]);
    }
    m->module = module_outside;
}

/* Those with a partition within the node are gathered from there, separately from the others. */
void tide_zero3_all_gather_params(zero3 *z, const uint32_t *which, uint32_t count) {
    uint32_t *sorted = TIDE_NEW(zero3_machine(z)->arena, uint32_t, count + 1), near = 0;
    for (uint32_t i = 0; i < count; i++)
        if (z->params[which[i]].ds_secondary_tensor) sorted[near++] = which[i];
    for (uint32_t i = 0, at = near; i < count; i++)
        if (!z->params[which[i]].ds_secondary_tensor) sorted[at++] = which[i];
    if (near) all_gather_coalesced(z, sorted, near);
    if (near < count) all_gather_coalesced(z, sorted + near, count - near);
}

void tide_zero3_wait(zero3 *z, zero_param *p, uint8_t stream) {
    tide_machine *m = zero3_machine(z);
    all_gather_coalesced_handle *handle = p->inflight;
    if (p->ds_status != ZERO_INFLIGHT && !handle) return;
    for (uint32_t i = 0; i < handle->count && !handle->complete; i++) {
        zero_param *one = &z->params[handle->params[i]];
        m->module = one->module;
        tide_tensor *own = tide_zero3_flat_on(z, stream, one->ds_numel, one->dtype, TIDE_FACTOR_GATHERED);
        tide_set_data(m, one->tensor, own);
        tide_release(m, own);
    }
    for (uint32_t i = 0; i < ZERO_DTYPES && !handle->complete; i++)
        if (handle->partitions[i]) tide_record_stream(m, handle->partitions[i], stream);
    handle->complete = true;
    for (uint32_t i = 0; i < handle->count; i++)
        if (z->params[handle->params[i]].ds_status == ZERO_INFLIGHT)
            z->params[handle->params[i]].ds_status = ZERO_AVAILABLE;
    p->inflight = NULL;
    if (z->sent_by == handle) set_sent(z, NULL, NULL);
    if (--handle->waiting == 0) tide_zero3_drop_partitions(z, handle);
}

void tide_zero3_wait_all(zero3 *z) {
    for (uint32_t i = 0; i < z->count; i++)
        if (z->params[i].inflight) tide_zero3_wait(z, &z->params[i], 0);
}
