/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/: _flat_param.py, _init_utils.py, and how they wrap the model. */
#include "parallel/fsdp1.h"

#include <string.h>

#include "base/units.h"

/* _sync_module_params_and_buffers for a unit; buffers are sent with the root. */
static void sync_module_params_and_buffers(fsdp1 *f, const flat_param_handle *u) {
    const tide_model *model = f->w->model;
    uint32_t count = 0, buffers = u == &f->handles[f->count - 1] ? model->buffer_count : 0;
    tide_tensor **sent = TIDE_NEW(model->m->arena, tide_tensor *, buffers + u->count + 1);
    for (uint32_t i = 0; i < buffers; i++) sent[count++] = model->buffers[i];
    for (uint32_t i = 0; i < u->count; i++) sent[count++] = u->param_infos[i].param;
    tide_broadcast_coalesced(model->m, tide_fsdp1_name, sent, count);
}

/* ModuleWrapPolicy by class; blocks are those that gradient checkpointing recomputes. */
static bool has_handle(const fsdp1 *f, uint32_t instance) {
    const tide_model *model = f->w->model;
    const tide_instance *of = &model->instances[instance];
    const char *wrap = f->w->job->parallel_wrap;
    if (instance == model->root || tide_fsdp1_is_trainable_leaf(f, instance)) return true;
    if (strcmp(wrap, "root") == 0) return false;
    if (f->is_unit) return f->is_unit[instance];
    bool is_fine = strcmp(wrap, "fine") == 0 && of->parent && model->instances[of->parent].of->is_checkpointed;
    return of->of->is_checkpointed ||
           (is_fine && (tide_text_is(of->name, "self_attn") || tide_text_is(of->name, "mlp")));
}

/* _recursive_wrap(): submodules before their module. */
static void add_handles(fsdp1 *f, const uint32_t *modules, uint32_t count) {
    const tide_model *model = f->w->model;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = i + 1 < count ? model->instances[modules[i + 1]].parent : 0;
        for (uint32_t at = modules[i]; at && at != next; at = model->instances[at].parent)
            if (has_handle(f, at) && !f->handle_of[at]) f->handle_of[at] = ++f->count;
    }
}

/* A head that is tied to embeddings in another unit gets a flat parameter with a copy of their weight. */
static bool check_tied_head(const fsdp1 *f) {
    tide_model *model = f->w->model;
    uint32_t input = tide_embeddings_of(model, false), output = tide_embeddings_of(model, true), at[] = {input, output};
    if (!f->is_unit || !input || !output || !tide_shares_parameter(model, input, output)) return true;
    for (size_t i = 0; i < TIDE_COUNT_OF(at); i++)
        while (!f->handle_of[at[i]]) at[i] = model->instances[at[i]].parent;
    if (at[0] == at[1]) return true;
    tide_fail_setting(
        model->m, TIDE_ERR_UNSUPPORTED, "parallel.kind",
        "accelerate's units part the embeddings from the head that is tied to them, which is not described; "
        "use ddp, or the classes of blocks alone (parallel.transformer_cls_names_to_wrap)");
    return false;
}

/* trl/trainer/utils.py, _fused_forward, reads the head's weight without its module's forward(). */
static bool check_fused_head(const fsdp1 *f) {
    tide_model *model = f->w->model;
    uint32_t head = tide_embeddings_of(model, true);
    if (!f->is_unit || !head || !tide_trl_fuses_head(f->w->job)) return true;
    if (!f->handle_of[tide_delegated(model, head, TIDE_TEXT("weight"))]) return true;
    tide_fail_setting(
        model->m, TIDE_ERR_CONFLICT, "adapter.modules_to_save",
        "the copy of the head is a unit of its own, of which TRL's loss reads the weight alone: \"Output 0 "
        "of View is a view and its base or another view of its base has been modified inplace\"; leave "
        "it out, or use parallel.kind=fsdp2");
    return false;
}

static bool choose_modules(fsdp1 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    const char *wrap = f->w->job->parallel_wrap;
    if (strcmp(wrap, "fine") != 0 && strcmp(wrap, "root") != 0 && strcmp(wrap, "layer") != 0) {
        tide_fail_setting(m, TIDE_ERR_FIELD_RANGE, "parallel.wrap",
                          "must be layer, fine or root: a policy names classes");
        return false;
    }
    uint32_t count = 0, n = 0, *modules = tide_model_modules(model, &count);
    if (f->w->has_trainer && strcmp(wrap, "layer") == 0 && !(f->is_unit = tide_no_split_modules(f->w))) return false;
    f->handle_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    add_handles(f, modules, count);
    f->handles = TIDE_NEW(m->arena, flat_param_handle, f->count);
    f->all_handles = TIDE_NEW(m->arena, uint32_t, f->count);
    f->pre_forward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    f->post_forward_order = TIDE_NEW(m->arena, uint32_t, f->count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t handle = f->handle_of[modules[i]];
        if (!handle) continue;
        f->handles[handle - 1].module = modules[i];
        f->all_handles[n++] = handle - 1;
    }
    return check_tied_head(f) && check_fused_head(f);
}

/* _validate_tensors_to_flatten(). */
static bool validate_tensors_to_flatten(const fsdp1 *f, const flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    for (uint32_t i = 0; i < u->count; i++) {
        const tide_tensor *param = u->param_infos[i].param;
        if (!tide_dtype_is_float((tide_dtype)param->dtype)) {
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "quant.storage",
                              "FSDP1 refuses packed weights of bytes: \"Cannot flatten integer dtype tensors\"; give "
                              "quant.storage=bf16, or use parallel.kind=fsdp2");
            return false;
        }
        if (param->dtype != u->dtype) {
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.kind",
                              "FSDP1 refuses parameters of two types in one unit: \"Must flatten tensors with uniform "
                              "dtype but got torch.%s and torch.%s\"; load the model in one type",
                              tide_dtype_names[u->dtype], tide_dtype_names[param->dtype]);
            return false;
        }
        if (param->requires_grad != u->requires_grad && !f->use_orig_params) {
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.kind",
                              "FSDP1 refuses frozen and other parameters in one unit: \"Must flatten tensors with "
                              "uniform `requires_grad`\"; use parallel.kind=fsdp2");
            return false;
        }
    }
    return true;
}

/* FlatParamHandle.shard(): a rank's shard of the flat parameter. */
static void shard_flat_param(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    tide_tensor *flat = tide_flat_of(m, tide_fsdp1_name, u->unsharded_numel, u->dtype, TIDE_FACTOR_PARAMETER);
    u->sharded_numel = u->unsharded_numel;
    if (fsdp1_uses_sharded_strategy(f)) {
        u->sharded_numel = TIDE_CEIL_DIV(u->unsharded_numel, f->shard_ranks);
        int64_t from = f->shard_rank * u->sharded_numel, real = from >= u->unsharded_numel ? 0
                                                                : u->unsharded_numel - from < u->sharded_numel
                                                                    ? u->unsharded_numel - from
                                                                    : u->sharded_numel;
        u->local_shard = tide_flat_of(m, tide_fsdp1_name, real, u->dtype, TIDE_FACTOR_PARAMETER);
        if (real < u->sharded_numel) {
            tide_tensor *padded = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, u->dtype, TIDE_FACTOR_PARAMETER);
            tide_release(m, u->local_shard);
            u->local_shard = padded;
        }
        tide_release(m, flat);
    } else {
        u->local_shard = flat;
    }
    if (!f->offload_params) return;
    tide_release(m, u->local_shard);
    tide_shape shape = tide_shape1((tide_dim){u->sharded_numel, 0});
    u->local_shard = tide_empty_host(m, &shape, u->dtype);
    for (int i = 0; i < 2; i++) tide_pin_host(m, tide_bytes(u->local_shard)); /* _local_shard, _cpu_grad */
}

/* FlatParamHandle.__init__ and shard(). */
static bool init_flat_param_and_metadata(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    if (!u->count) return true;
    u->dtype = (tide_dtype)u->param_infos[0].param->dtype;
    u->casts = fsdp1_param_dtype(f, u) != u->dtype;
    u->requires_grad = u->param_infos[0].param->requires_grad;
    if (!validate_tensors_to_flatten(f, u)) return false;
    if (f->use_orig_params && f->w->job->quant != TIDE_quant_none && f->sharding_strategy == FSDP_SHARD_GRAD_OP) {
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.use_orig_params",
                          "bitsandbytes' layers replace their weights, which FSDP1 refuses: \"FSDP does not support "
                          "changing the parameters between forward and backward for %s\"; use FULL_SHARD",
                          f->w->job->values[TIDE_SET_parallel_sharding_strategy]);
        return false;
    }
    int64_t aligned = f->use_orig_params ? 16 / tide_dtype_bytes(fsdp1_param_dtype(f, u)) : 0;
    for (uint32_t i = 0; i < u->count; i++) {
        flat_param_info *p = &u->param_infos[i];
        u->requires_grad |= p->param->requires_grad;
        p->padding = aligned ? (aligned - u->unsharded_numel % aligned) % aligned : 0;
        u->unsharded_numel += p->padding + p->numel;
    }
    u->tail = aligned ? (f->shard_ranks - u->unsharded_numel % f->shard_ranks) % f->shard_ranks : 0;
    u->unsharded_numel += u->tail;
    shard_flat_param(f, u);
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
                 .sharding_strategy = kind == TIDE_parallel_sharding_strategy_NO_SHARD ? FSDP_NO_SHARD
                                      : is_zero2 || kind == TIDE_parallel_sharding_strategy_SHARD_GRAD_OP
                                          ? FSDP_SHARD_GRAD_OP
                                          : FSDP_FULL_SHARD,
                 .param_dtype = tide_dtype_or(job->parallel_param_dtype, TIDE_DTYPE_COUNT),
                 .reduce_dtype = tide_dtype_or(job->parallel_reduce_dtype, TIDE_DTYPE_COUNT),
                 .buffer_dtype = tide_dtype_or(job->parallel_buffer_dtype, TIDE_DTYPE_COUNT),
                 .offload_params = job->parallel_offload,
                 .use_orig_params = job->parallel_use_orig_params,
                 .backward_pre = job->parallel_backward_prefetch == TIDE_parallel_backward_prefetch_BACKWARD_PRE,
                 .backward_post = job->parallel_backward_prefetch == TIDE_parallel_backward_prefetch_BACKWARD_POST,
                 .forward_prefetch = job->parallel_forward_prefetch};
    if (w->has_trainer) tide_fsdp1_set_mixed_precision(f);
    w->state = m->wrapper = f;
    if (w->ranks % group || is_hybrid != has_group) {
        fsdp1_refuse(f, "hybrid",
                     is_hybrid ? "hybrid strategies want the ranks of a shard group, which divide parallel.dp"
                               : "only a hybrid sharding_strategy has shard groups");
        return NULL;
    }
    if (w->ranks == 1) f->sharding_strategy = FSDP_NO_SHARD; /* _init_core_state: a single rank shards nothing */
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
    if (f->w->has_trainer) tide_fsdp1_move_module_to_device(f, u->module);
    if (f->w->job->parallel_sync_module_states) sync_module_params_and_buffers(f, u);
    if (!init_flat_param_and_metadata(f, u)) return false;
    return true;
}

/* The flat parameters of all wrapped modules. False after an error. */
static bool init_handles(fsdp1 *f) {
    tide_model *model = f->w->model;
    if (!choose_modules(f)) return false;
    if (f->w->has_trainer) model->m->makes_on_host = model->state.is_on_meta = false;
    uint32_t *of = TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        f->handles[of[i] = tide_unit_of_module(model, f->handle_of, f->count, model->parameters[i].module)].count++;
    for (uint32_t k = 0; k < f->count; k++)
        if (!init_handle(f, k, of)) return false;
    model->m->module = 0;
    return true;
}

static void fsdp1_wrap(tide_wrapper *w) {
    fsdp1 *f = fsdp1_new(w);
    if (!f || !init_handles(f)) return;
    if (w->has_trainer) tide_fsdp1_upcast(f);
    fsdp1_replace_members(f);
    tide_fsdp1_set_hooks(f);
}

/* prepare_fsdp(): as for the policy, in the dtypes that it was loaded in. */
static void fsdp1_prepare_reference(tide_wrapper *w) {
    fsdp1 *f = fsdp1_new(w);
    if (!f || !init_handles(f)) return;
    f->first_stream = TIDE_STREAMS_OF_MODEL;
    tide_fsdp1_set_hooks(f);
}

static void fsdp1_before_forward(tide_wrapper *w) {
    fsdp1 *f = w->state;
    tide_fsdp1_root_pre_forward(w);
    if (f->param_dtype != TIDE_DTYPE_COUNT) tide_cast_num_items(w, &f->items, f->param_dtype, tide_fsdp1_name);
}

static void fsdp1_after_forward(tide_wrapper *w, tide_value *output) {
    fsdp1 *f = w->state;
    (void)output;
    if (f->param_dtype != TIDE_DTYPE_COUNT) tide_restore_num_items(w, &f->items);
}

static void fsdp1_backward(tide_wrapper *w, tide_tensor *loss) {
    fsdp1 *f = w->state;
    tide_backward_with_callback(w, loss, tide_fsdp1_post_backward_final_callback);
    if (!w->model->state.is_reentrant) tide_release_at(w->model->m, &f->items.cast);
}

static void fsdp1_update(tide_wrapper *w) {
    fsdp1 *f = w->state;
    tide_release_at(w->model->m, &f->items.cast); /* went with the loss, whose reentrant checkpoints had it */
    if (w->job->optimizer == TIDE_optimizer_none) return;
    if (w->scaler) tide_scaler_unscale(w->model, w->scaler, w->optimizer);
    if (f->offload_params) {
        if (w->job->clip > 0 || w->has_trainer) tide_fsdp1_clip_on_host(f);
        if (w->scaler) tide_scaler_update(w->model, w->scaler);
        return;
    }
    if (w->has_trainer) tide_del(w->model->m, "del grad_norm", w->grad_norm);
    w->grad_norm = NULL;
    if (w->job->clip > 0 || w->has_trainer) w->grad_norm = tide_fsdp1_clip_grad_norm(f);
    if (!w->has_trainer) tide_release_at(w->model->m, &w->grad_norm);
    tide_step_members(w);
}

const tide_strategy tide_fsdp1_strategy = {.wrap = fsdp1_wrap,
                                           .prepare_reference = fsdp1_prepare_reference,
                                           .before_forward = fsdp1_before_forward,
                                           .after_forward = fsdp1_after_forward,
                                           .backward = fsdp1_backward,
                                           .update = fsdp1_update,
                                           .generation_begins = tide_fsdp1_generation_begins,
                                           .generation_ends = tide_fsdp1_generation_ends,
                                           .state_dict = tide_fsdp1_state_dict,
                                           .optim_state_dict = tide_fsdp1_optim_state_dict};
