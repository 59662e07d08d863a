/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/: _flat_param.py, _init_utils.py, and what they make of the model. */
#include "parallel/fsdp1.h"

#include <string.h>

#include "base/units.h"

/* _sync_module_params_and_buffers, of a unit; buffers go with the root. */
static void sync_module_params_and_buffers(fsdp1 *f, const flat_param_handle *u) {
    const tide_model *model = f->w->model;
    uint32_t count = 0, buffers = u == &f->handles[f->count - 1] ? model->buffer_count : 0;
    tide_tensor **sent = TIDE_NEW(model->m->arena, tide_tensor *, buffers + u->count + 1);
    for (uint32_t i = 0; i < buffers; i++) sent[count++] = model->buffers[i];
    for (uint32_t i = 0; i < u->count; i++) sent[count++] = u->param_infos[i].param;
    tide_broadcast_coalesced(model->m, tide_fsdp1_name, sent, count);
}

static void add_handle(fsdp1 *f, uint32_t instance) {
    f->handle_of[instance] = ++f->count;
}

/* ModuleWrapPolicy by class; blocks are those that gradient checkpointing runs again. */
static bool choose_modules(fsdp1 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    const char *wrap = f->w->job->parallel_wrap;
    bool is_fine = strcmp(wrap, "fine") == 0, is_root = strcmp(wrap, "root") == 0;
    if (!is_fine && !is_root && strcmp(wrap, "layer") != 0) {
        tide_fail_setting(m, TIDE_ERR_FIELD_RANGE, "parallel.wrap",
                          "must be layer, fine or root: a policy names classes");
        return false;
    }
    f->handle_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count && !is_root; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        for (uint32_t k = i + 1; k < model->instance_count && is_fine; k++)
            if (model->instances[k].parent == i &&
                (tide_text_is(model->instances[k].name, "self_attn") || tide_text_is(model->instances[k].name, "mlp")))
                add_handle(f, k);
        add_handle(f, i);
    }
    add_handle(f, model->root);
    f->handles = TIDE_NEW(m->arena, flat_param_handle, f->count);
    f->all_handles = TIDE_NEW(m->arena, uint32_t, f->count);
    f->pre_forward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    f->post_forward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    uint32_t n = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (f->handle_of[i]) f->all_handles[n++] = f->handle_of[i] - 1;
    return true;
}

/* FlatParamHandle.__init__ and shard(). */
static bool init_flat_param_and_metadata(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    int64_t aligned = f->use_orig_params ? 16 / tide_dtype_bytes(f->casts ? f->param_dtype : f->dtype) : 0;
    if (!u->count) return true;
    u->requires_grad = u->param_infos[0].param->requires_grad;
    for (uint32_t i = 0; i < u->count; i++) {
        flat_param_info *p = &u->param_infos[i];
        if (p->param->requires_grad != u->requires_grad && !f->use_orig_params) {
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.kind",
                              "FSDP1 refuses frozen and other parameters in one unit: \"Must flatten tensors with "
                              "uniform `requires_grad`\"; use parallel.kind=fsdp2");
            return false;
        }
        u->requires_grad |= p->param->requires_grad;
        p->padding = aligned ? (aligned - u->unsharded_numel % aligned) % aligned : 0;
        u->unsharded_numel += p->padding + p->numel;
    }
    u->tail = aligned ? (f->shard_ranks - u->unsharded_numel % f->shard_ranks) % f->shard_ranks : 0;
    u->unsharded_numel += u->tail;
    tide_tensor *flat = tide_flat_of(m, tide_fsdp1_name, u->unsharded_numel, f->dtype, TIDE_FACTOR_PARAMETER);
    u->sharded_numel = u->unsharded_numel;
    if (fsdp1_uses_sharded_strategy(f)) {
        u->sharded_numel = TIDE_CEIL_DIV(u->unsharded_numel, f->shard_ranks);
        int64_t from = f->shard_rank * u->sharded_numel, real = from >= u->unsharded_numel ? 0
                                                                : u->unsharded_numel - from < u->sharded_numel
                                                                    ? u->unsharded_numel - from
                                                                    : u->sharded_numel;
        u->local_shard = tide_flat_of(m, tide_fsdp1_name, real, f->dtype, TIDE_FACTOR_PARAMETER);
        if (real < u->sharded_numel) {
            tide_tensor *padded = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, f->dtype, TIDE_FACTOR_PARAMETER);
            tide_release(m, u->local_shard);
            u->local_shard = padded;
        }
        tide_release(m, flat);
    } else {
        u->local_shard = flat;
    }
    if (f->offload_params) {
        tide_release(m, u->local_shard);
        tide_shape shape = tide_shape1((tide_dim){u->sharded_numel, 0});
        u->local_shard = tide_empty_host(m, &shape, f->dtype);
        for (int i = 0; i < 2; i++) tide_pin_host(m, tide_bytes(u->local_shard)); /* _local_shard, _cpu_grad */
    }
    int64_t at = 0, from = fsdp1_uses_sharded_strategy(f) ? f->shard_rank * u->sharded_numel : 0;
    for (uint32_t i = 0; i < u->count; i++) {
        flat_param_info *p = &u->param_infos[i];
        at += p->padding;
        int64_t start = at > from ? at : from,
                end = at + p->numel < from + u->sharded_numel ? at + p->numel : from + u->sharded_numel;
        tide_shape shape = tide_shape1((tide_dim){end - start, 0});
        if (f->use_orig_params && end > start && p->param->requires_grad)
            p->orig_param = tide_view_as(m, u->local_shard, tide_layout_of(m, &shape, NULL));
        at += p->numel;
        tide_set_data(m, p->param, u->local_shard);
        p->param->dtype = (uint8_t)f->param_dtype;
    }
    return true;
}

static void fsdp1_replace_members(fsdp1 *f) {
    tide_machine *m = fsdp1_machine(f);
    uint32_t count = tide_optimizer_members(f->w->optimizer, NULL), n = 0;
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1),
                   *given = TIDE_NEW(m->arena, tide_optimized, count + f->count + 1);
    tide_optimizer_members(f->w->optimizer, members);
    for (uint32_t i = 0; i < f->count && !f->use_orig_params; i++) {
        flat_param_handle *u = &f->handles[f->all_handles[i]];
        if (u->count && u->requires_grad) given[n++] = (tide_optimized){.tensor = u->local_shard};
    }
    for (uint32_t i = 0; i < count && f->use_orig_params; i++)
        for (uint32_t k = 0; k < f->count; k++)
            for (uint32_t j = 0; j < f->handles[k].count; j++) {
                const flat_param_info *p = &f->handles[k].param_infos[j];
                if (p->param == members[i].tensor && p->orig_param)
                    given[n++] =
                        (tide_optimized){.tensor = p->orig_param, .module = p->module, .group = members[i].group};
            }
    tide_optimizer_replace(f->w->optimizer, given, n);
}

static bool fsdp1_refuse(fsdp1 *f, const char *option, const char *message) {
    tide_machine *m = fsdp1_machine(f);
    tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, tide_format(m->arena, "parallel.%s", option), "%s", message);
    return false;
}

/* NULL after an error. */
static fsdp1 *fsdp1_new(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    const tide_job *job = w->job;
    fsdp1 *f = TIDE_NEW(m->arena, fsdp1, 1);
    tide_parallel_sharding_strategy_choice kind = job->parallel_sharding_strategy;
    bool is_zero2 = kind == TIDE_parallel_sharding_strategy__HYBRID_SHARD_ZERO2, has_group = job->parallel_hybrid > 0,
         is_hybrid = is_zero2 || kind == TIDE_parallel_sharding_strategy_HYBRID_SHARD;
    int64_t group = has_group ? job->parallel_hybrid : w->ranks;
    *f = (fsdp1){.w = w,
                 .shard_ranks = group,
                 .shard_rank = w->rank % group,
                 .is_hsdp = is_hybrid,
                 .dtype = model->state.dtype,
                 .sharding_strategy = kind == TIDE_parallel_sharding_strategy_NO_SHARD ? FSDP_NO_SHARD
                                      : is_zero2 || kind == TIDE_parallel_sharding_strategy_SHARD_GRAD_OP
                                          ? FSDP_SHARD_GRAD_OP
                                          : FSDP_FULL_SHARD,
                 .param_dtype = tide_dtype_or(job->parallel_param_dtype, model->state.dtype),
                 .offload_params = job->parallel_offload,
                 .use_orig_params = job->parallel_use_orig_params,
                 .backward_pre = job->parallel_backward_prefetch == TIDE_parallel_backward_prefetch_BACKWARD_PRE,
                 .backward_post = job->parallel_backward_prefetch == TIDE_parallel_backward_prefetch_BACKWARD_POST,
                 .forward_prefetch = job->parallel_forward_prefetch};
    f->casts = f->param_dtype != f->dtype;
    f->reduce_dtype = tide_dtype_or(job->parallel_reduce_dtype, f->param_dtype); /* _init_param_reduce_dtypes */
    w->state = m->wrapper = f;
    if (w->ranks % group || is_hybrid != has_group) {
        fsdp1_refuse(f, "hybrid",
                     is_hybrid ? "hybrid strategies want the ranks of a shard group, which divide parallel.dp"
                               : "only a hybrid sharding_strategy has shard groups");
        return NULL;
    }
    if (w->ranks == 1) f->sharding_strategy = FSDP_NO_SHARD; /* _init_core_state: one rank shards nothing */
    return f;
}

/* The flat parameter of a handle. False after an error. */
static bool init_handle(fsdp1 *f, uint32_t handle, const uint32_t *handle_of_parameter) {
    const tide_model *model = f->w->model;
    flat_param_handle *u = &f->handles[handle];
    uint32_t n = 0;
    u->param_infos = TIDE_NEW(model->m->arena, flat_param_info, u->count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (handle_of_parameter[i] == handle)
            u->param_infos[n++] = (flat_param_info){.param = model->parameters[i].tensor,
                                                    .module = model->parameters[i].module,
                                                    .numel = tide_count(model->parameters[i].tensor)};
    if (f->w->job->parallel_sync_module_states) sync_module_params_and_buffers(f, u);
    if (!init_flat_param_and_metadata(f, u)) return false;
    if (u->count && !u->requires_grad)
        return fsdp1_refuse(f, "kind", "units of frozen parameters are not described for fsdp1; use fsdp2");
    return true;
}

static void fsdp1_wrap(tide_wrapper *w) {
    tide_model *model = w->model;
    fsdp1 *f = fsdp1_new(w);
    if (!f || !choose_modules(f)) return;
    uint32_t *of = TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        f->handles[of[i] = tide_unit_of_module(model, f->handle_of, f->count, model->parameters[i].module)].count++;
    for (uint32_t k = 0; k < f->count; k++)
        if (!init_handle(f, k, of)) return;
    fsdp1_replace_members(f);
    model->m->module = 0;
    tide_fsdp1_set_hooks(f);
}

static void fsdp1_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_backward_with_callback(w, loss, tide_fsdp1_post_backward_final_callback);
}

static void fsdp1_update(tide_wrapper *w) {
    fsdp1 *f = w->state;
    if (w->job->optimizer == TIDE_optimizer_none || f->offload_params) return;
    if (w->job->clip > 0 && !f->zero_scalar)
        f->zero_scalar = tide_flat_of(w->model->m, "clip_grad_norm_", 1, TIDE_FP32, TIDE_FACTOR_TEMPORARY);
    tide_update_members(w);
}

const tide_strategy tide_fsdp1_strategy = {.wrap = fsdp1_wrap,
                                           .before_forward = tide_fsdp1_before_forward,
                                           .backward = fsdp1_backward,
                                           .update = fsdp1_update};
