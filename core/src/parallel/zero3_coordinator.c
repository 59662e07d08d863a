/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/partitioned_param_coordinator.py: which parameters are gathered when. */
#include "parallel/zero3.h"

#include <string.h>

static bool is_active_sub_module(const zero_param *p, uint32_t user) {
    for (uint32_t i = 0; i < p->active_sub_module_count; i++)
        if (p->ds_active_sub_modules[i] == user) return true;
    return false;
}

static void add_active_sub_module(zero3 *z, zero_param *p, uint32_t user) {
    if (is_active_sub_module(p, user)) return;
    TIDE_ROOM(zero3_machine(z)->arena, p->ds_active_sub_modules, p->active_sub_module_count,
              p->active_sub_module_capacity);
    p->ds_active_sub_modules[p->active_sub_module_count++] = user;
}

static void discard_active_sub_module(zero_param *p, uint32_t user) {
    for (uint32_t i = 0; i < p->active_sub_module_count; i++)
        if (p->ds_active_sub_modules[i] == user)
            p->ds_active_sub_modules[i--] = p->ds_active_sub_modules[--p->active_sub_module_count];
}

static void prefetch_params(zero3 *z) {
    int64_t room = z->max_n_available_params - z->n_available_params < z->prefetch_bucket_sz
                       ? z->max_n_available_params - z->n_available_params
                       : z->prefetch_bucket_sz,
            elements = 0;
    uint32_t *ahead = z->params_to_prefetch, count = 0;
    while (z->param_queue_at < z->param_order_count && elements < room) {
        const param_in_trace *next = &z->param_order[z->param_queue_at++];
        zero_param *p = &z->params[next->param];
        if (next->step_id_last_used_at > z->most_recent_step_id_fetched_for[next->param])
            z->most_recent_step_id_fetched_for[next->param] = next->step_id_last_used_at;
        bool is_wanted = p->ds_status == ZERO_NOT_AVAILABLE;
        for (uint32_t i = 0; i < count && is_wanted; i++) is_wanted = ahead[i] != next->param;
        if (!is_wanted) continue;
        ahead[count++] = next->param;
        elements += p->ds_numel;
    }
    if (count) tide_zero3_all_gather_params(z, ahead, count);
}

/* _clean_inflight_param_registry: until it is cleared, the registry refers to the handles, and these to the gathered
 * buffers, which for a single parameter are its data. */
static void clean_inflight_param_registry(zero3 *z) {
    all_gather_coalesced_handle *handles = NULL;
    for (uint32_t i = 0; i < z->count; i++) {
        all_gather_coalesced_handle *handle = z->params[i].inflight;
        if (!handle || handle->is_registered) continue;
        handle->is_registered = true;
        handle->waiting++;
        if (handle->count == 1 && z->w->ranks > 1) /* ProcessGroupNCCL::WorkNCCL.outputs_ */
            handle->partitions[0] = tide_alias(zero3_machine(z), z->params[i].tensor);
        handle->next = handles;
        handles = handle;
    }
    for (uint32_t i = 0; i < z->count; i++) {
        if (!z->params[i].inflight) continue;
        tide_zero3_wait(z, &z->params[i], 0);
        tide_zero3_release_param(z, &z->params[i]);
    }
    for (; handles; handles = handles->next)
        if (--handles->waiting == 0) tide_zero3_drop_partitions(z, handles);
}

static void forget_steps(zero3 *z) {
    for (uint32_t i = 0; i < z->count; i++) z->most_recent_step_id_fetched_for[i] = INT64_MIN;
}

void tide_zero3_invalidate_trace(zero3 *z) {
    z->trace_mode = ZERO_TRACE_INVALID;
    z->submodule_order_count = z->param_order_count = z->param_queue_at = 0;
    forget_steps(z);
    clean_inflight_param_registry(z);
}

/* trace_prologue: a module out of order makes the trace invalid. */
static void trace_prologue(zero3 *z, uint32_t instance) {
    bool is_expected = z->step_id < z->submodule_order_count && z->submodule_order[z->step_id] == instance;
    if (z->trace_mode == ZERO_TRACE_COMPLETE && !is_expected) tide_zero3_invalidate_trace(z);
}

/* A frozen parameter fetched by a recomputation stays until the backward of that module is done. */
static void update_recompute_parameters(zero3 *z, uint32_t instance, uint32_t param) {
    zero_module *of = &z->modules[instance];
    TIDE_ROOM(zero3_machine(z)->arena, of->ds_recompute_parameters, of->recompute_count, of->recompute_capacity);
    of->ds_recompute_parameters[of->recompute_count++] = param;
    add_active_sub_module(z, &z->params[param], instance);
}

/* A module that is fetched again keeps its place. */
static void note_active_backward(zero3 *z, uint32_t instance) {
    for (uint32_t i = 0; i < z->active_backward_count; i++)
        if (z->active_backward_submodules[i] == instance) return;
    TIDE_ROOM(zero3_machine(z)->arena, z->active_backward_submodules, z->active_backward_count,
              z->active_backward_capacity);
    z->active_backward_submodules[z->active_backward_count++] = instance;
}

/* fetch_sub_module. */
void tide_zero3_fetch_sub_module(zero3 *z, uint32_t instance, bool is_forward) {
    tide_machine *m = zero3_machine(z);
    const zero_module *of = &z->modules[instance];
    uint32_t missing[ZERO_MODULE_PARAMS], count = 0, outside = m->module;
    trace_prologue(z, instance);
    if (z->trace_mode == ZERO_TRACE_RECORD) {
        TIDE_ROOM(m->arena, z->submodule_order, z->submodule_order_count, z->submodule_order_capacity);
        z->submodule_order[z->submodule_order_count++] = instance;
    }
    if (!is_forward) note_active_backward(z, instance);
    for (uint32_t i = 0; i < of->count; i++)
        if (z->params[of->params[i]].ds_status == ZERO_NOT_AVAILABLE) missing[count++] = of->params[i];
    if (count) tide_zero3_all_gather_params(z, missing, count);
    for (uint32_t i = 0; i < of->count; i++) {
        zero_param *p = &z->params[of->params[i]];
        add_active_sub_module(z, p, instance);
        if (is_forward && m->state.is_in_backward && z->active_backward_count && !p->requires_grad) {
            update_recompute_parameters(z, z->active_backward_submodules[z->active_backward_count - 1], of->params[i]);
        }
        tide_zero3_wait(z, p, z->allgather_stream);
    }
    if (z->trace_mode == ZERO_TRACE_COMPLETE) {
        uint32_t fresh = 0;
        for (uint32_t i = 0; i < of->count; i++)
            fresh += z->most_recent_step_id_fetched_for[of->params[i]] < z->step_id;
        for (; fresh && z->param_queue_at < z->param_order_count; fresh--) {
            const param_in_trace *next = &z->param_order[z->param_queue_at++];
            z->most_recent_step_id_fetched_for[next->param] = next->step_id_last_used_at;
        }
        if (z->prefetch_bucket_sz > 0) prefetch_params(z);
    }
    z->step_id++;
    m->module = outside;
}

/* __params_to_release, an lru_cache: bits of the module's parameters. */
static uint64_t params_to_release(zero3 *z, uint32_t instance) {
    const zero_module *of = &z->modules[instance];
    if (z->trace_mode != ZERO_TRACE_COMPLETE) return UINT64_MAX;
    for (released_params *k = z->released_params[z->step_id]; k; k = k->next)
        if (k->module == instance) return k->params;
    released_params *k = TIDE_NEW(zero3_machine(z)->arena, released_params, 1);
    *k = (released_params){instance, 0, z->released_params[z->step_id]};
    z->released_params[z->step_id] = k;
    for (uint32_t i = 0; i < of->count; i++) {
        const zero_param *p = &z->params[of->params[i]];
        if (!p->ds_persist && z->most_recent_step_id_fetched_for[of->params[i]] <= z->step_id)
            k->params |= UINT64_C(1) << i;
    }
    int64_t params_traversed = 0;
    for (uint32_t at = (uint32_t)z->step_id;
         at < z->submodule_order_count && params_traversed < z->max_reuse_dist_in_numel && k->params; at++) {
        const zero_module *next = &z->modules[z->submodule_order[at]];
        /* the module being released decides whether to recurse */
        const uint32_t *params = of->is_z3_leaf ? next->all : next->params;
        uint32_t count = of->is_z3_leaf ? next->all_count : next->own_count;
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t own = 0; own < of->count; own++)
                if (of->params[own] == params[i]) k->params &= ~(UINT64_C(1) << own);
            params_traversed += z->params[params[i]].ds_numel;
        }
    }
    return k->params;
}

void tide_zero3_release_sub_module(zero3 *z, uint32_t instance, bool is_forward) {
    zero_module *of = &z->modules[instance];
    uint64_t releases = params_to_release(z, instance);
    for (uint32_t i = 0; i < of->count; i++) {
        discard_active_sub_module(&z->params[of->params[i]], instance);
        if (releases >> i & 1) tide_zero3_release_param(z, &z->params[of->params[i]]);
    }
    if (is_forward) return;
    for (uint32_t i = 0; i < of->recompute_count; i++) {
        zero_param *p = &z->params[of->ds_recompute_parameters[i]];
        discard_active_sub_module(p, instance);
        if (!p->ds_persist) tide_zero3_release_param(z, p);
    }
    of->recompute_count = 0;
    for (uint32_t i = 0; i < z->active_backward_count; i++)
        if (z->active_backward_submodules[i] == instance) {
            memmove(z->active_backward_submodules + i, z->active_backward_submodules + i + 1,
                    (z->active_backward_count - i - 1) * sizeof *z->active_backward_submodules);
            z->active_backward_count--;
            break;
        }
}

/* release_backward_leftovers: modules whose post-backward hook did not run, last one first. */
void tide_zero3_release_backward_leftovers(zero3 *z) {
    while (z->active_backward_count) {
        uint32_t instance = z->active_backward_submodules[--z->active_backward_count];
        zero_module *of = &z->modules[instance];
        for (uint32_t i = 0; i < of->count + of->recompute_count; i++) {
            zero_param *p = &z->params[i < of->count ? of->params[i] : of->ds_recompute_parameters[i - of->count]];
            discard_active_sub_module(p, instance);
            if (!p->ds_persist) tide_zero3_release_param(z, p);
        }
        of->recompute_count = 0;
    }
}

/* construct_parameter_trace_from_module_trace. */
static void complete_trace(zero3 *z) {
    tide_machine *m = zero3_machine(z);
    for (uint32_t at = 0; at < z->submodule_order_count; at++) {
        const zero_module *of = &z->modules[z->submodule_order[at]];
        for (uint32_t i = 0; i < of->count; i++) {
            TIDE_ROOM(m->arena, z->param_order, z->param_order_count, z->param_order_capacity);
            z->param_order[z->param_order_count++] = (param_in_trace){of->params[i], at};
        }
    }
    if (z->released_params_capacity < z->submodule_order_count + 2) {
        released_params **more = TIDE_NEW(m->arena, released_params *, z->submodule_order_count + 2);
        for (uint32_t i = 0; i < z->released_params_capacity; i++) more[i] = z->released_params[i];
        z->released_params = more;
        z->released_params_capacity = z->submodule_order_count + 2;
    }
    z->trace_mode = ZERO_TRACE_COMPLETE;
}

/* reset_step, at the start of every forward. */
void tide_zero3_reset_step(zero3 *z) {
    clean_inflight_param_registry(z);
    if (z->trace_mode == ZERO_TRACE_RECORD)
        complete_trace(z);
    else if (z->trace_mode == ZERO_TRACE_INVALID)
        z->trace_mode = ZERO_TRACE_RECORD;
    z->param_queue_at = 0;
    z->step_id = z->n_available_params = 0;
    forget_steps(z);
}
