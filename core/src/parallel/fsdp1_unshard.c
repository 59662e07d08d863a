/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_unshard_param_utils.py: gathering parameters outside of a step, in the dtype of their shards;
 * and full state dicts, _state_dict_utils.py and _optim_utils.py, with FULL_STATE_DICT on the host. */
#include "parallel/fsdp1.h"

#include <string.h>

/* On the compute stream; what is gathered in the compute dtype is released first. */
static tide_tensor *unshard_full_precision(fsdp1 *f, flat_param_handle *u) {
    tide_machine *m = fsdp1_machine(f);
    tide_fsdp1_reset_grad_info(f, u);
    tide_fsdp1_set_param_dtypes(u, u->dtype);
    tide_release_at(m, &u->orig_shard);
    tide_tensor *whole = u->casts ? u->full_prec_full_param_padded : u->full_param_padded, *upload = NULL;
    if (f->offload_params) upload = tide_flat_of(m, tide_fsdp1_name, u->sharded_numel, u->dtype, TIDE_FACTOR_GATHERED);
    if (!u->is_unsharded || u->casts) {
        if (u->is_unsharded) tide_drop_storage(m, u->full_param_padded);
        m->op = tide_fsdp1_name;
        m->state.factor = TIDE_FACTOR_GATHERED;
        tide_fill_storage(m, whole, u->sharded_numel * f->shard_ranks);
        m->state.factor = TIDE_FACTOR_TEMPORARY;
    }
    if (f->use_orig_params)
        u->upload = upload;
    else
        tide_release(m, upload);
    return whole;
}

static void reshard_full_precision(fsdp1 *f, flat_param_handle *u, const tide_tensor *whole) {
    tide_drop_storage(fsdp1_machine(f), whole);
    tide_release_at(fsdp1_machine(f), &u->upload);
    u->is_unsharded = u->prefetched = false;
}

static bool is_cut(const fsdp1 *f, const flat_param_handle *u) {
    return u->count && fsdp1_uses_sharded_strategy(f);
}

/* ---- FSDP.summon_full_params(model, recurse=False), around generate() of the module within ---- */

void tide_fsdp1_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count) {
    (void)inputs;
    (void)count;
    fsdp1 *f = w->state;
    flat_param_handle *u = &f->handles[f->count - 1];
    tide_fsdp1_lazy_init(f);
    tide_fsdp1_reset_grad_info(f, u);
    f->is_summoned = true;
    if (!is_cut(f, u)) return;
    const tide_tensor *whole = unshard_full_precision(f, u);
    for (uint32_t i = 0; i < u->count; i++) tide_set_data(fsdp1_machine(f), u->param_infos[i].param, whole);
    f->summoned = whole;
}

void tide_fsdp1_generation_ends(tide_wrapper *w) {
    fsdp1 *f = w->state;
    if (f->summoned) reshard_full_precision(f, &f->handles[f->count - 1], f->summoned);
    f->summoned = NULL;
    f->is_summoned = false;
}

/* ---- state dicts ---- */

/* A module's own parameters before and again after those of the modules below it: FlatParamHandle.to_cpu(), entered and
 * left by the first rank. Parameters that were gathered stay so. Returns the next handle. */
static uint32_t state_dict_from(fsdp1 *f, uint32_t at) {
    flat_param_handle *u = &f->handles[f->all_handles[at]];
    uint32_t next = at + 1;
    bool stays = u->is_unsharded && !u->casts;
    if (is_cut(f, u)) reshard_full_precision(f, u, unshard_full_precision(f, u));
    while (next < f->count && tide_is_below(f->w->model, f->handles[f->all_handles[next]].module, u->module))
        next = state_dict_from(f, next);
    if (!is_cut(f, u) || f->w->rank != 0) return next;
    const tide_tensor *whole = unshard_full_precision(f, u);
    if (stays)
        u->is_unsharded = true;
    else
        reshard_full_precision(f, u, whole);
    return next;
}

void tide_fsdp1_state_dict(tide_wrapper *w) {
    fsdp1 *f = w->state;
    for (uint32_t i = 0; i < f->count; i++) tide_fsdp1_reset_grad_info(f, &f->handles[i]);
    for (uint32_t at = 0; at < f->count;) at = state_dict_from(f, at);
}

/* _allgather_orig_param_states(): one full tensor for the states in turn, whose parts are joined first. */
static void gather_orig_param_states(fsdp1 *f, const flat_param_handle *u, int states) {
    tide_machine *m = fsdp1_machine(f);
    int64_t whole = u->sharded_numel * f->shard_ranks;
    tide_tensor *gathered = tide_flat_of(m, "optim_state_dict", whole, u->dtype, TIDE_FACTOR_GATHERED), *last = NULL;
    for (int k = 0; k < states; k++) {
        tide_tensor *part = tide_flat_of(m, "optim_state_dict", u->sharded_numel, u->dtype, TIDE_FACTOR_COMMUNICATION);
        tide_release(m, last);
        last = part;
    }
    tide_release(m, last);
    tide_release(m, gathered);
}

/* _communicate_optim_state(): a full tensor for each state, and a copy of 0-dim states. */
static void gather_flat_param_states(fsdp1 *f, const flat_param_handle *u, int states) {
    tide_machine *m = fsdp1_machine(f);
    tide_tensor **wholes = TIDE_NEW(m->arena, tide_tensor *, (size_t)states + 1), *value = NULL;
    for (int k = 0; k < states; k++) {
        tide_tensor *upload = f->offload_params ? tide_flat_of(m, "optim_state_dict", u->sharded_numel, u->dtype,
                                                               TIDE_FACTOR_COMMUNICATION)
                                                : NULL;
        tide_release(m, value);
        value = upload;
        wholes[k] =
            tide_flat_of(m, "optim_state_dict", u->sharded_numel * f->shard_ranks, u->dtype, TIDE_FACTOR_GATHERED);
    }
    tide_release(m, value);
    tide_tensor *step = tide_optimizer_has_step(f->w->optimizer) ? tide_scalar(m, TIDE_FP32) : NULL;
    tide_release(m, step);
    for (int k = 0; k < states; k++) tide_release(m, wholes[k]);
}

/* The alphabetically first name among a handle's parameters; NULL: none is trainable. */
static const char *first_name(const fsdp1 *f, const flat_param_handle *u) {
    const tide_model *model = f->w->model;
    const char *first = NULL;
    for (uint32_t i = 0; i < model->parameter_count && is_cut(f, u) && u->requires_grad; i++)
        for (uint32_t k = 0; k < u->count; k++)
            if (model->parameters[i].tensor == u->param_infos[k].param &&
                (!first || strcmp(model->parameters[i].name, first) < 0))
                first = model->parameters[i].name;
    return first;
}

/* In alphabetical order. */
void tide_fsdp1_optim_state_dict(tide_wrapper *w) {
    fsdp1 *f = w->state;
    int states = tide_optimizer_states(w->optimizer);
    const char **names = TIDE_NEW(w->model->m->arena, const char *, f->count);
    for (uint32_t i = 0; i < f->count; i++) names[i] = first_name(f, &f->handles[i]);
    for (;;) {
        uint32_t next = f->count;
        for (uint32_t i = 0; i < f->count; i++)
            if (names[i] && (next == f->count || strcmp(names[i], names[next]) < 0)) next = i;
        if (next == f->count) return;
        names[next] = NULL;
        if (f->use_orig_params)
            gather_orig_param_states(f, &f->handles[next], states);
        else
            gather_flat_param_states(f, &f->handles[next], states);
    }
}
