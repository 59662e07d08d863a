/* SPDX-License-Identifier: Apache-2.0 */
/* fully_shard, torch/distributed/fsdp/_fully_shard/, with its names. Private to parallel/.
 *
 * Note [Parameter groups]: a state has one module, or several that run one after the other, and the parameters below
 * them that belong to no inner state, grouped by the mesh that they are sharded over. The rank keeps a part of every
 * parameter; before the modules run, in forward and in backward, all parts are gathered on a separate stream and copied
 * out, and released after it. Storages are reused, so that what autograd saved stays valid. Gradients are reduced group
 * by group. */
#ifndef TIDE_PARALLEL_FSDP2_H
#define TIDE_PARALLEL_FSDP2_H

#include "parallel/parallel.h"

typedef enum fsdp_training_state { FSDP_IDLE, FSDP_FORWARD, FSDP_PRE_BACKWARD, FSDP_POST_BACKWARD } fsdp_training_state;

typedef enum fsdp_sharded_state {
    FSDP_SHARDED,
    FSDP_SHARDED_POST_FORWARD, /* over fewer ranks, between forward and backward */
    FSDP_UNSHARDED
} fsdp_sharded_state;

/* ShardPlacementResult: the ranks that a parameter is sharded over, and along which dimension. */
typedef struct fsdp_shard_placement {
    int64_t ranks, rank;
    int dim;
    bool is_of_experts;     /* a mesh of its own, whatever its size */
    bool has_divide_factor; /* set_gradient_divide_factor() */
} fsdp_shard_placement;

typedef struct fsdp_param {
    tide_tensor *unsharded_param;   /* as modules use it: gathered, or without storage */
    tide_tensor *all_gather_output; /* its storage, unless a module assigned other .data; NULL: not gathered so far */
    tide_tensor *sharded_param;     /* as the optimizer updates it */
    tide_tensor *sharded_post_forward;
    uint32_t module;
    int dim; /* sharded along this */
    int64_t padded_sharded_numel, sharded_numel;
    tide_layout *sharded_layout; /* without padding */
    tide_dtype orig_dtype;
    bool is_on_meta, is_padded;
    struct fsdp_param *tied_to, *tied_from; /* one whose sharded_param this shares, and the reverse */
    tide_tensor *sharded_param_data;        /* the padded part that only all-gathers read */
} fsdp_param;

/* FSDPParamGroup */
typedef struct fsdp_param_group {
    fsdp_param *fsdp_params;
    uint32_t count;
    uint32_t state;
    fsdp_shard_placement mesh; /* shared by its parameters */
    fsdp_training_state training_state;
    fsdp_sharded_state sharded_state;
    bool has_all_gather_result;
    tide_tensor *all_gather_output; /* of all parameters, before it is split */
    int64_t post_forward_mesh_size; /* how many ranks the parameters are sharded over after forward: 0 all, 1 none */
    tide_tensor *all_reduce_input;
    uint32_t *post_forward_indices; /* in fsdp2.post_forward_order */
    uint32_t post_forward_index_count, post_forward_index_capacity;
} fsdp_param_group;

/* FSDPState */
typedef struct fsdp_state {
    uint32_t first, count; /* of its groups */
    uint32_t module_count, modules_to_run_forward;
    uint32_t listed[3];     /* modules of a fully_shard() call that has a list of them, in its order; 0: no module */
    bool is_of_experts;     /* torchtitan's, within a block */
    bool keeps_full_weight; /* reshard_after_forward=False */
    bool is_read_outside;   /* code around its module reads the dtype of its parameters, which are sharded there */
    fsdp_training_state training_state;
} fsdp_state;

typedef struct fsdp2 {
    tide_wrapper *w;
    fsdp_state *states; /* the root last, the others in wrapping order */
    uint32_t state_count;
    fsdp_param_group *groups; /* by state */
    uint32_t group_count, group_capacity;
    uint32_t *state_of;            /* by instance: the state of the module plus one */
    uint32_t *named_modules_order; /* states in the order of named_modules() */
    bool prefetches_experts;       /* as torchtitan asks for: a block's experts with it */
    uint32_t prefetch;      /* how many states ahead, set_modules_to_forward_prefetch and _backward_prefetch; 0: none */
    uint32_t embeddings[2]; /* get_input_embeddings(), get_output_embeddings(), of accelerate */
    tide_tensor *whole_weights[3]; /* input_weight and output_weight, until it returns, and _prepare_fsdp2()'s `p`;
                                    * NULL: none */
    tide_tensor **original_sd;     /* of a model on the device, until it returns */
    tide_tensor **placeholders;    /* for parameters in the optimizer's groups, until they are replaced */
    uint32_t original_count, placeholder_count;
    tide_cast_items items;
    fsdp_shard_placement mesh; /* of parameters without another */
    tide_dtype param_dtype, reduce_dtype, output_dtype;
    bool has_param_dtype, has_reduce_dtype, is_hsdp, offload_to_cpu, reduce_grads;
    bool is_generating;                  /* hooks of the root are around all tokens */
    bool keeps_after_backward;           /* set_reshard_after_backward(False) */
    bool finalizes_by_hand;              /* set_manual_backward_finalization(True) */
    bool is_async;                       /* FSDPModule.unshard(async_op=True): on the compute stream */
    bool is_awaited;                     /* their handles were not waited for */
    uint8_t first_stream;                /* FSDPCommContext: its streams come after this one */
    tide_tensor *applied;                /* by Module._apply */
    tide_tensor *all_gather_state;       /* gathered parameters waiting for the next copy-out */
    tide_tensor **reduce_scatter_inputs; /* ReduceScatterState: for the groups of the last state */
    uint32_t reduce_scatter_count, reduce_scatter_capacity;
    uint32_t *post_forward_order; /* groups in the order in which they ran forward */
    uint32_t post_forward_count, post_forward_capacity;
    tide_node **leaf_accumulators; /* of outputs that require gradients without a graph: embeddings of frozen models */
    uint32_t leaf_accumulator_count, leaf_accumulator_capacity;
    uint32_t iter_forward_root; /* the outermost state of the current forward plus one: of the model, or of a
                                   recomputation; 0: none is running */
} fsdp2;

extern const char tide_fsdp2_name[];

static inline tide_machine *fsdp2_machine(const fsdp2 *f) {
    return f->w->model->m;
}

static inline int64_t numel_bytes(int64_t count, tide_dtype dtype) {
    return count * tide_dtype_bytes(dtype);
}

/* Whether a parameter is gathered in a dtype other than its own. */
static inline bool fsdp2_casts(const fsdp2 *f, const fsdp_param *s) {
    return f->has_param_dtype && s->orig_dtype != f->param_dtype && tide_dtype_is_float(s->orig_dtype);
}

/* Adds a module to a state. */
static inline void fsdp2_add_module(fsdp2 *f, uint32_t state, uint32_t instance) {
    f->state_of[instance] = state + 1;
    f->states[state].module_count++;
}

/* NULL: it is in no group. */
static inline fsdp_param *fsdp2_param_of(const fsdp2 *f, const tide_tensor *leaf) {
    for (uint32_t k = 0; k < f->group_count; k++)
        for (uint32_t i = 0; i < f->groups[k].count; i++)
            if (f->groups[k].fsdp_params[i].unsharded_param == leaf) return &f->groups[k].fsdp_params[i];
    return NULL;
}

/* With mixed precision, trainable parameters are kept in fp32 unless anything is in bitsandbytes' 4 bits. */
void tide_fsdp2_upcast(fsdp2 *f);
/* Blocks, embeddings, and final norm with head; all but the root. False after an error. */
bool tide_fsdp2_accelerate_states(fsdp2 *f);
/* tie_weights() after fully_shard(): the head shares the embedding's part. */
void tide_fsdp2_tie_parts(fsdp2 *f);
/* _move_states_to_device(): moves the parameters and buffers of a state. */
void tide_fsdp2_place_state(fsdp2 *f, const uint32_t *params, uint32_t count, uint32_t state);
/* For a model on the device. */
void tide_fsdp2_keep_originals(fsdp2 *f);
void tide_fsdp2_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count);
void tide_fsdp2_generation_ends(tide_wrapper *w);
/* Called when fsdp2_prepare_model() returns and the optimizer has its new parameters. */
bool tide_is_ignored_by_accelerate(const tide_model *model, uint32_t parameter);
void tide_fsdp2_drop_weights(fsdp2 *f);

/* ---- fsdp2_full_state.c ---- */

/* Gives parameters that were sharded on the meta device their parts, and the model its buffers. */
void tide_fsdp2_load_full_state_dict(fsdp2 *f);

/* ---- fsdp2_llama_factory_v1.c ---- */

/* The states of FSDP2Engine.prepare_model(): adapters' leaves, layers and untied embeddings; all but the root. False
 * after an error. */
bool tide_fsdp2_llama_factory_v1_states(fsdp2 *f);

/* ---- fsdp2_plan.c ---- */

/* The states of transformers' fsdp_plan; all but the root. False after an error. */
bool tide_fsdp2_plan_states(fsdp2 *f);

/* ---- fsdp2.c ---- */

/* The parameters of a state in the order in which fully_shard() finds them: by module, children first. Returns their
 * number. */
uint32_t tide_fsdp2_managed_params(const fsdp2 *f, uint32_t state, const uint32_t *state_of_parameter,
                                   uint32_t *params);

/* Module.to_empty() of a sharded parameter, and what follows after each module; of the state that is the machine's
 * wrapper. */
void tide_fsdp2_empty_sharded_param(tide_model *model, uint32_t instance, tide_tensor *leaf);
void tide_fsdp2_reset_sharded_params(tide_model *model, uint32_t instance);

/* The bytes of this rank's part of a parameter, without padding. */
int64_t tide_fsdp2_sharded_bytes(const fsdp2 *f, const tide_tensor *leaf);

/* ---- fsdp2_param_group.c ---- */

void tide_fsdp2_unshard(fsdp2 *f, fsdp_param_group *u);
void tide_fsdp2_wait_for_unshard(fsdp2 *f, fsdp_param_group *u);
void tide_fsdp2_reshard(fsdp2 *f, fsdp_param_group *u);
void tide_fsdp2_free_unsharded_params(fsdp2 *f, fsdp_param_group *u);
/* The dtype that modules read of the parameters. */
void tide_fsdp2_show_dtypes(const fsdp2 *f, const fsdp_param_group *u, bool is_gathered);
void tide_fsdp2_post_backward(fsdp2 *f, fsdp_param_group *u);
/* FSDPParamGroup.pre_backward; prefetches: the states to prefetch were not set explicitly. */
void tide_fsdp2_group_pre_backward(fsdp2 *f, fsdp_param_group *u, bool prefetches);
/* _prefetch_unshard */
void tide_fsdp2_prefetch_unshard(fsdp2 *f, fsdp_param_group *u, fsdp_training_state as);
/* FSDPCommContext.reduce_scatter_states: releases those whose input has been read. */
void tide_fsdp2_drop_reduce_scatter_inputs(fsdp2 *f);

/* ---- fsdp2_state.c ---- */

/* Calls act for every group, in the order of named_modules(). */
void tide_fsdp2_each_group(fsdp2 *f, void (*act)(fsdp2 *f, fsdp_param_group *u));
/* tide_strategy.full_tensor. */
tide_tensor *tide_fsdp2_full_tensor(tide_wrapper *w, tide_tensor *weight);
/* tide_strategy.state_dict_begins. */
void tide_fsdp2_state_dict_begins(tide_wrapper *w);
/* Sets the hooks of modules and of their outputs. */
void tide_fsdp2_set_hooks(fsdp2 *f);
void tide_fsdp2_root_post_backward_final_callback(void *state);
/* FSDPModule.finalize_backward(): reduces gradients that are still waiting. */
void tide_fsdp2_finalize_backward(void *state);

#endif
