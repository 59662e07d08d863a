/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_fully_shard/: fully_shard(), and how it wraps the model. */
#include "parallel/fsdp2.h"
#include "parallel/tensor_parallel.h"
#include "parallel/torchtitan_experts.h"

#include <string.h>

#include "base/units.h"

/* ---- modules made on the meta device ---- */

int64_t tide_fsdp2_sharded_bytes(const fsdp2 *f, const tide_tensor *leaf) {
    const fsdp_param *s = fsdp2_param_of(f, leaf);
    return s && !s->tied_to ? numel_bytes(s->sharded_numel, s->orig_dtype) : 0;
}

/* Only the part, without padding. Module._apply swaps a DTensor with the converted one (torch.utils.swap_tensors), and
 * holds that until it converts the next or returns: for a tied parameter, which is sharded already, its part. */
void tide_fsdp2_empty_sharded_param(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_machine *m = model->m;
    fsdp2 *f = m->wrapper;
    fsdp_param *s = fsdp2_param_of(f, leaf);
    if (!s || s->tied_to) return;
    m->module = instance;
    m->op = "to_empty";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    tide_tensor *part = tide_empty(m, &s->sharded_layout->shape, s->orig_dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_release_at(m, &f->applied);
    f->applied = tide_alias(m, s->sharded_param);
    tide_set_data(m, s->sharded_param, part);
    tide_release(m, part);
    s->is_on_meta = false;
}

/* Each of two that are tied pads the part anew; the first one's _sharded_param_data keeps what it made. */
static void pad_sharded_params(fsdp2 *f, const fsdp_param_group *u) {
    tide_machine *m = fsdp2_machine(f);
    for (uint32_t i = 0; i < u->count; i++) {
        fsdp_param *s = &u->fsdp_params[i];
        bool is_on_meta = s->tied_to ? s->tied_to->is_on_meta : s->is_on_meta;
        if (is_on_meta || s->is_padded || s->sharded_numel == s->padded_sharded_numel) continue;
        s->is_padded = true;
        const fsdp_param *other = s->tied_to ? s->tied_to : s->tied_from;
        if (other && other->is_padded) s->sharded_param_data = tide_alias(m, s->sharded_param);
        tide_tensor *padded =
            tide_flat_on(m, 0, tide_fsdp2_name, s->padded_sharded_numel, s->orig_dtype, TIDE_FACTOR_PARAMETER);
        tide_set_data(m, s->sharded_param, padded);
        tide_release(m, padded);
    }
}

/* FSDPModule._apply, FSDPParam.reset_sharded_param: the parts of a state are padded as soon as they are in one of its
 * modules. */
void tide_fsdp2_reset_sharded_params(tide_model *model, uint32_t instance) {
    tide_machine *m = model->m;
    fsdp2 *f = m->wrapper;
    const fsdp_state *state = f->state_of[instance] ? &f->states[f->state_of[instance] - 1] : NULL;
    tide_release_at(m, &f->applied);
    for (uint32_t i = 0; state && i < state->count; i++) pad_sharded_params(f, &f->groups[state->first + i]);
}

/* ---- wrapping ---- */

static uint32_t child_named(const tide_model *model, uint32_t parent, const char *name) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].parent == parent && tide_text_is(model->instances[i].name, name)) return i;
    return 0;
}

/* The norm after the last block, by the names that families have for it. */
static uint32_t final_norm(const tide_model *model, uint32_t parent) {
    static const char *const names[] = {"norm", "final_layernorm", "embedding_norm"};
    uint32_t norm = 0;
    for (unsigned i = 0; i < TIDE_COUNT_OF(names) && !norm; i++) norm = child_named(model, parent, names[i]);
    return norm;
}

/* llama4/infra/parallelize.py, apply_fsdp(): experts that are sharded over ranks of their own, before their block. */
static void add_titan_experts(fsdp2 *f, uint32_t block) {
    const tide_model *model = f->w->model;
    for (uint32_t i = block; tide_job_cuts_torchtitan_experts(f->w->job) && i < model->instance_count; i++) {
        if (!tide_is_below(model, i, block) || !tide_is_torchtitan_expert(model, i)) continue;
        f->states[f->state_count].is_of_experts = true;
        fsdp2_add_module(f, f->state_count++, i);
    }
}

/* Which modules have a state, except the root. Blocks are those that gradient checkpointing recomputes. */
static bool choose_inner_states(fsdp2 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    const char *wrap = f->w->job->parallel_wrap;
    bool is_pairs = strncmp(wrap, "pairs", 5) == 0, is_fine = strcmp(wrap, "fine") == 0,
         is_titan = strcmp(wrap, "titan") == 0 || f->w->job->parallel_kind == TIDE_parallel_kind_native;
    const bool *absent = f->w->is_absent;
    int64_t at_once = 2;
    if (is_pairs && wrap[5] && (!tide_text_to_i64(&at_once, tide_text_of(wrap + 5)) || at_once < 1)) is_pairs = false;
    if (!is_pairs && !is_fine && !is_titan && strcmp(wrap, "layer") != 0 && strcmp(wrap, "root") != 0) {
        tide_fail_setting(m, TIDE_ERR_FIELD_RANGE, "parallel.wrap",
                          "must be layer, pairs, pairs4 and the like, fine, titan or root");
        return false;
    }
    uint32_t embedding = 0, blocks = 0;
    if (is_titan) embedding = tide_embeddings_of(model, false);
    if (is_titan && embedding && !(absent && absent[embedding])) fsdp2_add_module(f, f->state_count++, embedding);
    for (uint32_t i = 1; i < model->instance_count && is_fine; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        for (uint32_t k = i; k < model->instance_count && tide_is_below(model, k, i); k++)
            if (model->instances[k].parent == i &&
                (tide_text_is(model->instances[k].name, "self_attn") || tide_text_is(model->instances[k].name, "mlp")))
                fsdp2_add_module(f, f->state_count++, k);
    }
    for (uint32_t i = 1; i < model->instance_count && strcmp(wrap, "root") != 0; i++) {
        if (!model->instances[i].of->is_checkpointed || (absent && absent[i])) continue;
        add_titan_experts(f, i);
        if (!is_pairs || blocks % (uint32_t)at_once == 0) f->state_count++;
        fsdp2_add_module(f, f->state_count - 1, i);
        blocks++;
    }
    uint32_t norm = embedding ? final_norm(model, model->instances[embedding].parent) : 0,
             head = tide_embeddings_of(model, true);
    if (is_titan && norm && head) {
        if (!absent || !absent[head]) {
            fsdp2_add_module(f, f->state_count, norm);
            fsdp2_add_module(f, f->state_count++, head);
        }
    } else if (is_titan) {
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.wrap",
                          "titan wants modules embed_tokens, norm and lm_head; use layer");
        return false;
    }
    return true;
}

static bool choose_states(fsdp2 *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    f->states = TIDE_NEW(m->arena, fsdp_state, model->instance_count + 4);
    f->state_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    bool is_v1 = f->w->job->trainer == TIDE_trainer_llama_factory_v1;
    bool is_chosen = tide_job_has_auto_plan(f->w->job) ? tide_fsdp2_plan_states(f)
                     : f->w->has_trainer               ? tide_fsdp2_accelerate_states(f)
                     : is_v1                           ? tide_fsdp2_llama_factory_v1_states(f)
                                                       : choose_inner_states(f);
    if (!is_chosen) return false;
    fsdp2_add_module(f, f->state_count++, model->root);
    f->named_modules_order = TIDE_NEW(m->arena, uint32_t, f->state_count + 1);
    uint32_t n = 0, count, *modules = tide_model_modules(model, &count);
    bool *is_seen = TIDE_NEW(m->arena, bool, f->state_count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t of = f->state_of[modules[i]];
        if (!of || is_seen[of - 1]) continue;
        is_seen[of - 1] = true;
        f->named_modules_order[n++] = of - 1;
    }
    return true;
}

/* FSDPParam._init_sharded_param: parts along a dimension, larger on the first ranks; along another than the first they
 * must be equal. */
static void init_sharded_param(fsdp2 *f, const fsdp_shard_placement *mesh, fsdp_param *s,
                               const tide_parameter_row *row) {
    tide_machine *m = fsdp2_machine(f);
    tide_shape padded = *row->tensor->shape, local;
    if (padded.dims == 0) padded = tide_shape1((tide_dim){1, 0});
    int64_t rows = padded.dim[mesh->dim].size, each = TIDE_CEIL_DIV(rows, mesh->ranks), from = mesh->rank * each;
    int64_t mine = from >= rows ? 0 : rows - from < each ? rows - from : each;
    if (mesh->dim && rows % mesh->ranks)
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "\"FSDP does not support uneven sharding on dim %d\": %lld of %s over %lld ranks", mesh->dim,
                  (long long)rows, row->name, (long long)mesh->ranks);
    padded.dim[mesh->dim].size = each;
    local = padded;
    local.dim[mesh->dim].size = mine;
    *s = (fsdp_param){.unsharded_param = row->tensor,
                      .module = row->module,
                      .dim = mesh->dim,
                      .padded_sharded_numel = tide_count_of(&padded),
                      .sharded_numel = tide_count_of(&local),
                      .sharded_layout = tide_layout_of(m, &local, NULL),
                      .orig_dtype = (tide_dtype)row->tensor->dtype};
    m->module = row->module;
    m->op = tide_fsdp2_name;
    if (f->w->model->state.is_on_meta) {
        s->is_on_meta = true;
        s->sharded_param = tide_empty_host(m, &local, s->orig_dtype);
        s->sharded_param->is_leaf = true;
        s->sharded_param->requires_grad = row->tensor->requires_grad;
        return;
    }
    m->state.factor = TIDE_FACTOR_PARAMETER;
    tide_tensor *part = tide_empty(m, &padded, s->orig_dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    s->sharded_param =
        f->offload_to_cpu ? tide_empty_host(m, &local, s->orig_dtype) : tide_view_as(m, part, s->sharded_layout);
    if (f->offload_to_cpu) tide_pin_host(m, numel_bytes(s->padded_sharded_numel, s->orig_dtype));
    tide_release(m, part);
    s->sharded_param->is_leaf = true;
    s->sharded_param->requires_grad = row->tensor->requires_grad;
}

static int64_t post_forward_mesh_size(fsdp2 *f, const char *setting, const char *given) {
    tide_machine *m = fsdp2_machine(f);
    int64_t ranks = 0;
    if (strcmp(given, "false") == 0) return 0;
    if (strcmp(given, "true") == 0) return 1;
    if (tide_text_to_i64(&ranks, tide_text_of(given)) && ranks >= 1 && f->mesh.ranks % ranks == 0)
        return ranks == f->mesh.ranks ? 1 : ranks;
    tide_fail_setting(m, TIDE_ERR_FIELD_RANGE, setting,
                      "must be true, false, or a number that divides the ranks of a shard group");
    return 1;
}

/* False after an error. */
static fsdp2 *fsdp2_new(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    const tide_job *job = w->job;
    fsdp2 *f = TIDE_NEW(m->arena, fsdp2, 1);
    int64_t shard_ranks = job->parallel_hybrid ? job->parallel_hybrid : w->ranks;
    /* FullyShardedDataParallelPlugin.set_mixed_precision() */
    tide_optional_dtype mixed =
        w->has_trainer && !job->parallel_param_dtype.is_set ? job->autocast : (tide_optional_dtype){0};
    tide_dtype otherwise = tide_dtype_or(mixed, TIDE_DTYPE_COUNT),
               param_dtype = tide_dtype_or(job->parallel_param_dtype, tide_dtype_or(mixed, model->state.dtype)),
               reduce_dtype = tide_dtype_or(job->parallel_reduce_dtype, otherwise);
    bool is_v1 = job->trainer == TIDE_trainer_llama_factory_v1; /* whose mesh has one replica */
    if (tide_job_has_auto_plan(job)) /* fsdp.py, _get_fsdp_policy_kwargs: fsdp_mixed_precision */
        reduce_dtype = job->parallel_param_dtype.is_set ? TIDE_FP32 : TIDE_DTYPE_COUNT;
    if (tide_job_has_torchtitan_models(job)) reduce_dtype = TIDE_FP32; /* mixed_precision_reduce has no other choice */
    bool offloads = job->parallel_offload;
    if (w->ranks % shard_ranks)
        tide_fail_setting(m, TIDE_ERR_FIELD_RANGE, "parallel.hybrid", "must divide parallel.dp");
    else if (model->state.is_on_meta && !w->has_trainer && offloads)
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.meta_init",
                          "is described for whole models on the device alone; leave it out");
    if (m->has_failed) return NULL;
    *f = (fsdp2){.w = w,
                 .mesh = {.ranks = shard_ranks, .rank = w->rank % shard_ranks},
                 .is_hsdp = job->parallel_hybrid > 0 || is_v1,
                 .param_dtype = param_dtype,
                 .has_param_dtype = mixed.is_set || job->parallel_param_dtype.is_set,
                 .has_reduce_dtype = reduce_dtype != TIDE_DTYPE_COUNT,
                 .reduce_dtype = reduce_dtype,
                 .output_dtype = tide_dtype_or(job->parallel_output_dtype, otherwise),
                 .offload_to_cpu = offloads,
                 .prefetch = (uint32_t)job->parallel_prefetch};
    w->state = m->wrapper = f;
    return f;
}

/* shard_placement_fn: experts are sharded over the ranks that own the same ones. */
static fsdp_shard_placement placement_of(const fsdp2 *f, const tide_parameter_row *row) {
    const tide_job *job = f->w->job;
    int64_t ranks = job->parallel_dp * job->parallel_cp * job->parallel_tp,
            within = tide_job_cuts_torchtitan_experts(job) ? tide_job_expert_tensor_ranks(job) : 1;
    bool is_titan = tide_is_torchtitan_expert(f->w->model, row->module);
    if (!is_titan && !tide_has_dispatched_experts(f->w->model, row->module)) return f->mesh;
    return (fsdp_shard_placement){.ranks = ranks / job->parallel_ep / within,
                                  .rank = job->parallel_rank % ranks / job->parallel_ep / within,
                                  .dim =
                                      is_titan && ranks / within > row->tensor->shape->dim[0].size * job->parallel_ep,
                                  .is_of_experts = true,
                                  .has_divide_factor = !is_titan};
}

/* _init_param_group: the group of a state for a mesh; added after the others if there is none. */
static fsdp_param_group *param_group_with(fsdp2 *f, uint32_t state, const fsdp_shard_placement *mesh, uint32_t most) {
    tide_arena *arena = fsdp2_machine(f)->arena;
    fsdp_state *s = &f->states[state];
    for (uint32_t i = s->first; i < s->first + s->count; i++)
        if (f->groups[i].mesh.is_of_experts == mesh->is_of_experts) return &f->groups[i];
    TIDE_ROOM(arena, f->groups, f->group_count, f->group_capacity);
    fsdp_param_group *u = &f->groups[f->group_count++];
    *u = (fsdp_param_group){
        .state = state, .mesh = *mesh, .fsdp_params = TIDE_NEW(arena, fsdp_param, most), .post_forward_mesh_size = 1};
    s->count++;
    return u;
}

uint32_t tide_fsdp2_managed_params(const fsdp2 *f, uint32_t state, const uint32_t *state_of_parameter,
                                   uint32_t *params) {
    const tide_model *model = f->w->model;
    const uint32_t *order = tide_children_first(model), *listed = f->states[state].listed;
    bool has_list = listed[0] || listed[1] || listed[2];
    uint32_t n = 0;
    for (uint32_t k = 0; k < (has_list ? 3u : 1u); k++)
        for (uint32_t at = 0; at < model->parameter_count; at++) {
            uint32_t i = order[at];
            bool is_there = state_of_parameter[i] == state &&
                            (!has_list || (listed[k] && tide_is_below(model, model->parameters[i].module, listed[k])));
            if (is_there) params[n++] = i;
        }
    return n;
}

/* The parameters of a state, in the order of _get_managed_modules: children first, as in Module.to(). */
static void init_state(fsdp2 *f, uint32_t state, int64_t post_forward_mesh_size, const uint32_t *state_of_parameter,
                       tide_tensor **sharded_params) {
    const tide_model *model = f->w->model;
    tide_machine *m = model->m;
    uint32_t *params = TIDE_NEW(m->arena, uint32_t, model->parameter_count + 1),
             count = tide_fsdp2_managed_params(f, state, state_of_parameter, params);
    bool is_root = state + 1 == f->state_count; /* its parts are pinned a second time, as recorded */
    f->states[state].first = f->group_count;
    if (f->w->has_trainer && !f->original_count && !model->state.is_on_meta)
        tide_fsdp2_place_state(f, params, count, state);
    for (uint32_t n = 0; n < count; n++) {
        const fsdp_shard_placement mesh = placement_of(f, &model->parameters[params[n]]);
        param_group_with(f, state, &mesh, count)->count++;
    }
    for (uint32_t k = 0; k < f->states[state].count; k++) {
        fsdp_param_group *u = &f->groups[f->states[state].first + k];
        u->post_forward_mesh_size = post_forward_mesh_size;
        uint32_t filled = 0;
        for (uint32_t n = 0; n < count; n++) {
            const tide_parameter_row *row = &model->parameters[params[n]];
            const fsdp_shard_placement mesh = placement_of(f, row);
            if (mesh.is_of_experts != u->mesh.is_of_experts) continue;
            fsdp_param *s = &u->fsdp_params[filled++];
            init_sharded_param(f, &mesh, s, row);
            sharded_params[params[n]] = s->sharded_param;
            if (f->offload_to_cpu && is_root) tide_pin_host(m, numel_bytes(s->padded_sharded_numel, s->orig_dtype));
        }
        tide_fsdp2_free_unsharded_params(f, u);
        tide_fsdp2_show_dtypes(f, u, !f->states[state].is_read_outside);
    }
}

/* Makes the optimizer update the sharded parameters. */
static void fsdp2_replace_members(tide_wrapper *w, tide_tensor *const *sharded_params) {
    const tide_model *model = w->model;
    uint32_t count = tide_optimizer_members(w->optimizer, NULL), left = 0;
    tide_optimized *members = TIDE_NEW(model->m->arena, tide_optimized, count + 1);
    tide_optimizer_members(w->optimizer, members);
    for (uint32_t i = 0; i < count; i++) {
        const fsdp_param *s = fsdp2_param_of(w->state, members[i].tensor);
        if (!s || !s->tied_to) members[left++] = members[i];
    }
    count = left;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < model->parameter_count; k++)
            if (model->parameters[k].tensor == members[i].tensor && sharded_params[k]) {
                members[i].is_replicated = members[i].tensor->is_replicated;
                members[i].is_of_experts = tide_is_torchtitan_expert(model, members[i].module);
                /* DTensors reduce at once over the dimensions of a flattened mesh: torchtitan's "loss" */
                bool is_flattened = members[i].is_of_experts && w->job->parallel_tp == 1;
                members[i].mesh_dims = members[i].tensor->is_dtensor && !is_flattened ? 2 : 1;
                if (members[i].is_of_experts && tide_job_expert_tensor_ranks(w->job) > 1) members[i].mesh_dims++;
                members[i].tensor = sharded_params[k];
                break;
            }
    tide_optimizer_replace(w->optimizer, members, count);
}

/* FSDPParamGroup._init_mp_dtypes */
static void check_dtypes(const fsdp2 *f) {
    tide_machine *m = fsdp2_machine(f);
    for (uint32_t k = 0; k < f->group_count; k++) {
        const fsdp_param *first = NULL;
        for (uint32_t i = 0; i < f->groups[k].count; i++) {
            const fsdp_param *s = &f->groups[k].fsdp_params[i];
            if (!s->unsharded_param->requires_grad) continue;
            if (!first) first = s;
            if (s->orig_dtype == first->orig_dtype) continue;
            tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.kind",
                              "%s: \"FSDP expects uniform original parameter dtype\", and there are %s and %s; give "
                              "dtype=fp32 with parallel.param_dtype=bf16, or parallel.kind=tp parallel.tp_plan=auto, "
                              "which makes units of their own",
                              f->w->model->instances[s->module].path, tide_dtype_names[first->orig_dtype],
                              tide_dtype_names[s->orig_dtype]);
            return;
        }
    }
}

static void fsdp2_wrap(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    fsdp2 *f = fsdp2_new(w);
    if (!f || !choose_states(f)) return;
    if (w->has_trainer) tide_fsdp2_upcast(f);
    if (w->has_trainer && tide_trainer_places_model(w->job)) tide_fsdp2_keep_originals(f);
    m->makes_on_host = false;
    bool loads_full = w->has_trainer && tide_job_is_on_meta(w->job) && !f->original_count;
    model->state.is_on_meta = model->state.is_on_meta && (!w->has_trainer || loads_full);
    uint32_t *of = TIDE_NEW(m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        of[i] = UINT32_MAX;
        bool is_ignored = w->has_trainer && tide_is_ignored_by_accelerate(model, i);
        if (is_ignored || (w->is_absent && w->is_absent[model->parameters[i].module])) continue;
        of[i] = tide_unit_of_module(model, f->state_of, f->state_count, model->parameters[i].module);
    }
    bool is_v1 = w->job->trainer == TIDE_trainer_llama_factory_v1;
    const char *of_root = *w->job->parallel_root_reshard            ? w->job->parallel_root_reshard
                          : !is_v1                                  ? "false"
                          : *w->job->parallel_reshard_after_forward ? w->job->parallel_reshard_after_forward
                                                                    : "true";
    bool is_native = w->job->parallel_kind == TIDE_parallel_kind_native; /* unless requested, not with a pipeline */
    const char *given = w->job->parallel_reshard_after_forward,
               *otherwise = is_native && w->job->parallel_pp > 1 ? "false" : "true";
    int64_t size = post_forward_mesh_size(f, "parallel.reshard_after_forward", *given ? given : otherwise),
            root = post_forward_mesh_size(f, "parallel.root_reshard", of_root);
    tide_tensor **sharded_params = TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1);
    uint32_t head = tide_embeddings_of(model, true);
    /* fsdp_reshard_after_forward "always" */
    bool resharded_head = tide_job_has_torchtitan_models(w->job) && strcmp(given, "true") == 0;
    for (uint32_t k = 0; k < f->state_count; k++) {
        bool is_head = is_native && !resharded_head && k + 2 == f->state_count && !(w->is_absent && w->is_absent[head]),
             is_kept = is_head || f->states[k].keeps_full_weight;
        init_state(f, k, k + 1 == f->state_count ? root : is_kept ? 0 : size, of, sharded_params);
    }
    check_dtypes(f);
    if (m->has_failed) return;
    tide_fsdp2_drop_weights(f);
    tide_fsdp2_tie_parts(f);
    if (loads_full) {
        model->state.is_on_meta = false;
        tide_fsdp2_load_full_state_dict(f);
    } else if (model->state.is_on_meta && !is_native && !tide_job_has_auto_plan(w->job))
        tide_to_empty(model, tide_fsdp2_empty_sharded_param, tide_fsdp2_reset_sharded_params);
    fsdp2_replace_members(w, sharded_params);
    m->module = 0;
    tide_fsdp2_set_hooks(f);
}

/* prepare_fsdp(): fully_shard() of the whole model, in the dtype that it was loaded in. */
static void fsdp2_prepare_reference(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    fsdp2 *f = fsdp2_new(w);
    if (!f) return;
    f->first_stream = TIDE_STREAMS_OF_MODEL;
    f->states = TIDE_NEW(m->arena, fsdp_state, 1);
    f->state_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    f->named_modules_order = TIDE_NEW(m->arena, uint32_t, 1);
    fsdp2_add_module(f, f->state_count++, model->root);
    int64_t size = post_forward_mesh_size(
        f, "parallel.reshard_after_forward",
        *w->job->parallel_reshard_after_forward ? w->job->parallel_reshard_after_forward : "true");
    m->makes_on_host = model->state.is_on_meta = false;
    uint32_t *of = TIDE_NEW(m->arena, uint32_t, model->parameter_count + 1);
    tide_tensor **sharded_params = TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1);
    init_state(f, 0, size, of, sharded_params);
    tide_fsdp2_set_hooks(f);
}

static void fsdp2_before_forward(tide_wrapper *w) {
    fsdp2 *f = w->state;
    f->reduce_grads = w->is_last || w->job->parallel_sync_each;
    if (f->has_param_dtype) tide_cast_num_items(w, &f->items, f->param_dtype, tide_fsdp2_name);
}

static void fsdp2_after_forward(tide_wrapper *w, tide_value *output) {
    fsdp2 *f = w->state;
    (void)output;
    if (f->has_param_dtype) tide_restore_num_items(w, &f->items);
}

static void fsdp2_backward(tide_wrapper *w, tide_tensor *loss) {
    fsdp2 *f = w->state;
    tide_backward_with_callback(w, loss, tide_fsdp2_root_post_backward_final_callback);
    if (!w->model->state.is_reentrant) tide_release_at(w->model->m, &f->items.cast);
}

static void fsdp2_update(tide_wrapper *w) {
    fsdp2 *f = w->state;
    tide_release_at(w->model->m, &f->items.cast); /* went with the loss, whose reentrant checkpoints had it */
    if (w->job->optimizer == TIDE_optimizer_none) return;
    if (f->offload_to_cpu && w->scaler) {
        tide_scaler_unscale(w->model, w->scaler, w->optimizer);
        tide_scaler_update(w->model, w->scaler);
    }
    if (!f->offload_to_cpu) tide_update_members(w);
}

const tide_strategy tide_fsdp2_strategy = {.load = tide_load_on_meta,
                                           .wrap = fsdp2_wrap,
                                           .prepare_reference = fsdp2_prepare_reference,
                                           .full_tensor = tide_fsdp2_full_tensor,
                                           .state_dict_begins = tide_fsdp2_state_dict_begins,
                                           .generation_begins = tide_fsdp2_generation_begins,
                                           .generation_ends = tide_fsdp2_generation_ends,
                                           .before_forward = fsdp2_before_forward,
                                           .after_forward = fsdp2_after_forward,
                                           .backward = fsdp2_backward,
                                           .update = fsdp2_update};
