/* SPDX-License-Identifier: Apache-2.0 */
/* FullyShardedDataParallel, the wrapper class: torch/distributed/fsdp/, with its names. Private to parallel/.
 *
 * Note [Flat parameters]: all parameters of a module and of those below it that are not wrapped are one flat one, of
 * which a rank keeps a part. Modules use views of the gathered whole, cut by split(), whose backward joins the
 * gradients into one flat gradient; that is reduced when it has come. The whole keeps its storage object: it is resized
 * to nothing and back, so what autograd saved finds it. The shard in the type that computes is another such storage. */
#ifndef TIDE_PARALLEL_FSDP1_H
#define TIDE_PARALLEL_FSDP1_H

#include "parallel/parallel.h"

typedef enum fsdp_sharding_strategy { FSDP_FULL_SHARD, FSDP_SHARD_GRAD_OP, FSDP_NO_SHARD } fsdp_sharding_strategy;

/* One of the parameters that a flat one is made of: ParamInfo, _ShardParamInfo. */
typedef struct flat_param_info {
    tide_tensor *param;     /* what modules use: a view of the whole */
    int64_t numel, padding; /* elements of it, and of zeros before it */
    uint32_t module, group;
    tide_tensor
        *orig_param; /* use_orig_params: what of it lies in the local shard, which the optimizer updates; NULL */
} flat_param_info;

typedef struct flat_param_handle {
    flat_param_info *param_infos;
    uint32_t count, module;
    int64_t unsharded_numel, sharded_numel; /* of the whole, without its padding, and of the shard, with padding */
    int64_t tail;                           /* zeros at the end of the whole, which belong to it */
    tide_tensor *local_shard;               /* which the optimizer updates */
    tide_tensor *full_param_padded, *mp_shard, *full_prec_full_param_padded; /* storages that come and go */
    tide_tensor *flat_param;                                                 /* what gradients are accumulated in */
    tide_tensor *saved_grad_shard;
    tide_tensor *orig_shard; /* use_orig_params: that before it was upcast, until sharded views are used */
    bool is_unsharded, prefetched, needs_pre_backward_unshard, ran_pre_backward_hook, requires_grad;
    bool casts;                                           /* the shard's type is not the one that computes */
    tide_dtype dtype;                                     /* of the shard */
    uint32_t pre_forward_order_index, post_forward_index; /* from 1 */
} flat_param_handle;

typedef struct fsdp1 {
    tide_wrapper *w;
    flat_param_handle *handles; /* in the order in which they are wrapped: inner ones first, the root last */
    uint32_t count;
    uint32_t *handle_of;   /* by instance: one more than the handle whose module it is */
    uint32_t *all_handles; /* in the order of modules() */
    int64_t shard_ranks, shard_rank;
    fsdp_sharding_strategy sharding_strategy;
    tide_dtype param_dtype, reduce_dtype, buffer_dtype; /* MixedPrecision; TIDE_DTYPE_COUNT: not given */
    uint8_t first_stream;                               /* a reference model's streams come after the policy's */
    bool is_hsdp, offload_params, use_orig_params, sync_gradients, is_lazily_initialized;
    bool forward_prefetch, backward_pre, backward_post; /* BackwardPrefetch: before a handle's gradients, or after */
    uint32_t *pre_forward_order, pre_forward_count, *post_forward_order, post_forward_count;
    bool has_order;
    tide_tensor *zero_scalar;
    tide_cast_items items;
    bool is_summoned; /* calls of the root pass its hooks by, for which its parameters are whole */
    const tide_tensor *summoned;
} fsdp1;

extern const char tide_fsdp1_name[];

static inline tide_machine *fsdp1_machine(const fsdp1 *f) {
    return f->w->model->m;
}

static inline bool fsdp1_uses_sharded_strategy(const fsdp1 *f) {
    return f->sharding_strategy != FSDP_NO_SHARD;
}

/* The types that a handle computes and reduces in: _init_param_reduce_dtypes(). */
static inline tide_dtype fsdp1_param_dtype(const fsdp1 *f, const flat_param_handle *u) {
    return f->param_dtype == TIDE_DTYPE_COUNT ? u->dtype : f->param_dtype;
}
static inline tide_dtype fsdp1_reduce_dtype(const fsdp1 *f, const flat_param_handle *u) {
    return f->reduce_dtype == TIDE_DTYPE_COUNT ? fsdp1_param_dtype(f, u) : f->reduce_dtype;
}

/* ---- fsdp1_accelerate.c ---- */

/* FullyShardedDataParallelPlugin.set_mixed_precision(). */
void tide_fsdp1_set_mixed_precision(fsdp1 *f);
/* The modules that peft's policy wraps beside the blocks: fsdp_auto_wrap_policy(). */
bool tide_fsdp1_is_trainable_leaf(const fsdp1 *f, uint32_t instance);
/* _move_module_to_device(): what of a handle's modules is on the host. */
void tide_fsdp1_move_module_to_device(fsdp1 *f, uint32_t instance);
/* Accelerator.prepare_model(): what trains is taken to fp32. */
void tide_fsdp1_upcast(fsdp1 *f);

/* ---- fsdp1_clip.c ---- */

/* FullyShardedDataParallel.clip_grad_norm_(). Owned by the caller. */
tide_tensor *tide_fsdp1_clip_grad_norm(fsdp1 *f);
/* The same of gradients on the host: ranks reduce their norm on the device. */
void tide_fsdp1_clip_on_host(fsdp1 *f);

/* ---- fsdp1_unshard.c ---- */

void tide_fsdp1_generation_begins(tide_wrapper *w);
void tide_fsdp1_generation_ends(tide_wrapper *w);
/* model.state_dict(), and FSDP.optim_state_dict(). */
void tide_fsdp1_state_dict(tide_wrapper *w);
void tide_fsdp1_optim_state_dict(tide_wrapper *w);

/* ---- fsdp1_runtime.c ---- */

void tide_fsdp1_lazy_init(fsdp1 *f);
void tide_fsdp1_reset_grad_info(fsdp1 *f, flat_param_handle *u);
/* The type that modules find their parameters in. */
void tide_fsdp1_set_param_dtypes(const flat_param_handle *u, tide_dtype dtype);

/* The hooks of modules, of what they return, and of gradients. */
void tide_fsdp1_set_hooks(fsdp1 *f);
void tide_fsdp1_root_pre_forward(tide_wrapper *w);
void tide_fsdp1_post_backward_final_callback(void *state);

#endif
