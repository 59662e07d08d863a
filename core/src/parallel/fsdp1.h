/* SPDX-License-Identifier: Apache-2.0 */
/* FullyShardedDataParallel, the wrapper class: torch/distributed/fsdp/, with its names. Private to parallel/.
 *
 * Note [Flat parameters]: the parameters of a module and of all unwrapped modules below it form one flat parameter, of
 * which a rank keeps a shard. Modules use views of the gathered parameter, made by split(), whose backward joins their
 * gradients into one flat gradient, which is then reduced. The gathered parameter keeps its storage object, which is
 * resized to 0 and back, so that what autograd saved stays valid. The shard in the compute dtype is another such
 * storage. */
#ifndef TIDE_PARALLEL_FSDP1_H
#define TIDE_PARALLEL_FSDP1_H

#include "parallel/parallel.h"

typedef enum fsdp_sharding_strategy { FSDP_FULL_SHARD, FSDP_SHARD_GRAD_OP, FSDP_NO_SHARD } fsdp_sharding_strategy;

/* A parameter within a flat one: ParamInfo, _ShardParamInfo. */
typedef struct flat_param_info {
    tide_tensor *param;     /* as modules use it: a view of the gathered flat parameter */
    int64_t numel, padding; /* its elements, and the zeros before it */
    uint32_t module, group;
    tide_tensor *orig_param; /* use_orig_params: its part of the local shard, which the optimizer updates; NULL: none */
} flat_param_info;

typedef struct flat_param_handle {
    flat_param_info *param_infos;
    uint32_t count, module;
    int64_t unsharded_numel, sharded_numel; /* of the whole without its padding, and of the shard with padding */
    int64_t tail;                           /* zeros at the end of the whole, which count as part of it */
    tide_tensor *local_shard;               /* which the optimizer updates */
    tide_tensor *full_param_padded, *mp_shard,
        *full_prec_full_param_padded; /* storages that are resized to 0 and back */
    tide_tensor *flat_param;          /* receives the gradients */
    tide_tensor *saved_grad_shard;
    tide_tensor *orig_shard; /* use_orig_params: the one before upcasting, until sharded views are used */
    tide_tensor *upload;     /* use_orig_params: the shard on the device, until sharded views are used */
    bool is_on_device;       /* the flat parameter, whole or sharded */
    bool is_unsharded, prefetched, needs_pre_forward_unshard, needs_pre_backward_unshard, ran_pre_backward_hook,
        requires_grad;
    bool casts;                                           /* the dtype of the shard is not the compute dtype */
    tide_dtype dtype;                                     /* of the shard */
    uint32_t pre_forward_order_index, post_forward_index; /* from 1 */
} flat_param_handle;

typedef struct fsdp1 {
    tide_wrapper *w;
    flat_param_handle *handles; /* in wrapping order: inner ones first, the root last */
    uint32_t count;
    uint32_t *handle_of;   /* by instance: the handle of the module plus one */
    const bool *is_unit;   /* of a trainer, by instance: what accelerate wraps */
    uint32_t *all_handles; /* in the order of modules() */
    int64_t shard_ranks, shard_rank;
    fsdp_sharding_strategy sharding_strategy;
    tide_dtype param_dtype, reduce_dtype, buffer_dtype; /* MixedPrecision; TIDE_DTYPE_COUNT: not given */
    uint8_t first_stream; /* the streams of a reference model follow those of the policy */
    bool is_hsdp, offload_params, use_orig_params, sync_gradients, is_lazily_initialized;
    bool forward_prefetch, backward_pre,
        backward_post; /* BackwardPrefetch: before a handle's gradients are computed, or after */
    uint32_t *pre_forward_order, pre_forward_count, *post_forward_order, post_forward_count;
    bool has_order;
    tide_tensor *zero_scalar;
    tide_cast_items items;
    bool is_summoned; /* calls of the root bypass its hooks, with its parameters gathered */
    const tide_tensor *summoned;
} fsdp1;

extern const char tide_fsdp1_name[];

static inline tide_machine *fsdp1_machine(const fsdp1 *f) {
    return f->w->model->m;
}

static inline bool fsdp1_uses_sharded_strategy(const fsdp1 *f) {
    return f->sharding_strategy != FSDP_NO_SHARD;
}

/* The dtypes in which a handle computes and reduces: _init_param_reduce_dtypes(). */
static inline tide_dtype fsdp1_param_dtype(const fsdp1 *f, const flat_param_handle *u) {
    return f->param_dtype == TIDE_DTYPE_COUNT ? u->dtype : f->param_dtype;
}
static inline tide_dtype fsdp1_reduce_dtype(const fsdp1 *f, const flat_param_handle *u) {
    return f->reduce_dtype == TIDE_DTYPE_COUNT ? fsdp1_param_dtype(f, u) : f->reduce_dtype;
}

/* ---- fsdp1_accelerate.c ---- */

/* FullyShardedDataParallelPlugin.set_mixed_precision(). */
void tide_fsdp1_set_mixed_precision(fsdp1 *f);
/* The modules that peft's policy wraps besides blocks: fsdp_auto_wrap_policy(). */
bool tide_fsdp1_is_trainable_leaf(const fsdp1 *f, uint32_t instance);
/* _move_module_to_device(): what is on the host of a handle's modules. */
void tide_fsdp1_move_module_to_device(fsdp1 *f, uint32_t instance);
/* Accelerator.prepare_model(): trainable parameters are cast to fp32. */
void tide_fsdp1_upcast(fsdp1 *f);

/* ---- fsdp1_clip.c ---- */

/* FullyShardedDataParallel.clip_grad_norm_(). Owned by the caller. */
tide_tensor *tide_fsdp1_clip_grad_norm(fsdp1 *f);
/* The same for gradients on the host: ranks reduce their norm on the device. */
void tide_fsdp1_clip_on_host(fsdp1 *f);

/* ---- fsdp1_unshard.c ---- */

void tide_fsdp1_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count);
void tide_fsdp1_generation_ends(tide_wrapper *w);
/* model.state_dict(), and FSDP.optim_state_dict(). */
void tide_fsdp1_state_dict(tide_wrapper *w);
void tide_fsdp1_optim_state_dict(tide_wrapper *w);

/* ---- fsdp1_runtime.c ---- */

void tide_fsdp1_lazy_init(fsdp1 *f);
void tide_fsdp1_reset_grad_info(fsdp1 *f, flat_param_handle *u);
/* Sets the dtype that modules see for their parameters. */
void tide_fsdp1_set_param_dtypes(const flat_param_handle *u, tide_dtype dtype);

/* Sets the hooks of modules, of their outputs, and of gradients. */
void tide_fsdp1_set_hooks(fsdp1 *f);
void tide_fsdp1_root_pre_forward(tide_wrapper *w);
void tide_fsdp1_post_backward_final_callback(void *state);

#endif
