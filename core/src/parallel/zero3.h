/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed ZeRO stage 3, deepspeed/runtime/zero/: one file here for each file there, with its names. Private to
 * parallel/.
 *
 * Note [Trace]: every module fetches its own parameters before its forward and before its backward, and releases them
 * afterwards. The first pass records the order; from then on parameters are prefetched, up to a bucket each time, and
 * those that are soon reused are kept. A step of the trace is one fetch; parameters that no hook released are released
 * at the end of backward. Each forward starts a new trace: a forward without backward, such as one without gradients,
 * is then the whole record, and the first module out of order makes the trace invalid until the next forward.
 *
 * Note [Two engines]: trl/models/utils.py, prepare_deepspeed(), makes an engine without an optimizer for the policy
 * whose log-probabilities are computed ahead, and nothing removes its hooks. Those of both engines then run at each
 * module, the earlier one's first. Each has a coordinator with a trace of its own, but parameters, their status and the
 * modules' counters are one; the functions that a module applies for its backward are made once, by the earlier engine.
 */
#ifndef TIDE_PARALLEL_ZERO3_H
#define TIDE_PARALLEL_ZERO3_H

#include "parallel/parallel.h"

enum { ZERO_MODULE_PARAMS = 64 /* of one module */, ZERO_MODULE_DEPTH = 64, ZERO_DTYPES = 3 /* gathered together */ };

typedef enum zero_param_status { ZERO_NOT_AVAILABLE, ZERO_INFLIGHT, ZERO_AVAILABLE } zero_param_status;

/* Parameters gathered together, until each of them has been waited for. */
typedef struct all_gather_coalesced_handle {
    tide_tensor *
        partitions[ZERO_DTYPES]; /* of all ranks, one per dtype; NULLs: there is a single parameter, whose data it is */
    uint32_t *params, count;     /* grouped by dtype */
    uint32_t waiting;            /* parameters not waited for yet */
    bool complete;
    bool is_registered; /* in the registry that is cleared as a whole */
    struct all_gather_coalesced_handle *next;
} all_gather_coalesced_handle;

/* A parameter with the attributes that DeepSpeed sets on it. */
typedef struct zero_param {
    tide_tensor *tensor;
    tide_tensor *ds_tensor;           /* this rank's partition: a view of the common buffer */
    tide_tensor *ds_secondary_tensor; /* hpZ: this rank's partition within its node, from the first release until the
                                         step; NULL: none */
    uint32_t module, group, ds_id;
    int64_t ds_numel, partition_numel; /* elements: of the whole, and of a partition */
    tide_dtype dtype;                  /* uint8: bitsandbytes' 4 bits; wider than the model's: adapters in fp32 */
    zero_param_status ds_status;
    bool ds_persist, requires_grad;
    bool is_in_z3_leaf;              /* waits for the backward of the leaf module that contains it */
    uint32_t *ds_active_sub_modules; /* that it is fetched for */
    uint32_t active_sub_module_count, active_sub_module_capacity;
    all_gather_coalesced_handle *inflight; /* in the InflightParamRegistry */
    tide_tensor *norm;                     /* of its gradient, once that is on the host */
} zero_param;

typedef struct zero_module {
    uint32_t *params, count, capacity; /* its own, and those that it reads from other modules: ds_external_parameters */
    uint32_t *ds_recompute_parameters, recompute_count,
        recompute_capacity;                /* frozen parameters that a recomputation fetched below it */
    uint32_t ds_grads_remaining;           /* inputs whose gradient is still missing */
    uint32_t applied_pre_backward_ref_cnt; /* outputs that pass through PreBackwardFunction */
    bool is_z3_leaf, is_in_z3_leaf;        /* fetched as a whole; below such a module, without hooks */
    uint32_t *all, all_count,
        all_capacity;   /* the parameters of it and of all modules below, if there are leaf modules */
    uint32_t own_count; /* params that are not below a leaf module: 0 or count */
} zero_module;

typedef struct param_in_trace {
    uint32_t param;
    int64_t step_id_last_used_at;
} param_in_trace;

/* The cached result of __params_to_release, an lru_cache, for a module at a step. */
typedef struct released_params {
    uint32_t module;
    uint64_t params; /* indices into zero_module.params, as bits */
    struct released_params *next;
} released_params;

typedef struct zero3 {
    tide_wrapper *w;
    tide_dtype dtype, trainable_dtype, communication_data_type, gradient_accumulation_dtype;
    struct zero3 *earlier; /* an engine for the same model, whose hooks are on it too; NULL: none */
    zero_param *params;    /* shared with the earlier engine, as are the modules */
    uint32_t count;
    zero_module *modules; /* by instance */
    int peft_modules;     /* around the model, without parameters */

    /* partition_parameters.py */
    tide_tensor *sent; /* input of an asynchronous collective */
    const all_gather_coalesced_handle *sent_by;
    int64_t zero_hpz_partition_size;
    bool offload_param;
    uint8_t allgather_stream;

    /* partitioned_param_coordinator.py */
    enum { ZERO_TRACE_INVALID, ZERO_TRACE_RECORD, ZERO_TRACE_COMPLETE } trace_mode;
    uint32_t *submodule_order; /* modules in the order of fetches */
    uint32_t submodule_order_count, submodule_order_capacity;
    param_in_trace *param_order;
    uint32_t param_order_count, param_order_capacity;
    uint32_t param_queue_at;           /* the start of param_queue in param_order */
    released_params **released_params; /* by step; the cache is never cleared */
    uint32_t released_params_capacity;
    int64_t step_id, n_available_params, *most_recent_step_id_fetched_for; /* the last by parameter */
    int64_t prefetch_bucket_sz, max_n_available_params, max_reuse_dist_in_numel;
    uint32_t *params_to_prefetch;         /* capacity */
    uint32_t *active_backward_submodules; /* in order of their fetches */
    uint32_t active_backward_count, active_backward_capacity;

    /* stage3.py */
    uint32_t *trainable; /* parameters by group and sub-group */
    uint32_t trainable_count;
    uint32_t *sub_group_ends, *sub_group_to_group_id, sub_group_count;
    tide_tensor **fp32_partitioned_groups_flat, **norm_groups;
    tide_tensor *lp_param_buffer, *grad_partitions_flat_buffer, *ipg_buffer, *global_grad_norm;
    bool reduce_scatter, contiguous_gradients, offload_optimizer, pin_memory;
    int64_t reduce_bucket_size;
    uint32_t *params_in_ipg_bucket, ipg_bucket_count;
    int64_t elements_in_ipg_bucket;
    uint8_t reduce_and_partition_stream;
    uint32_t hint; /* the parameter whose gradient arrived last */
} zero3;

/* The parameters that deepspeed.zero.Init partitioned; this is the machine's wrapper until the engine exists. */
typedef struct zero3_init {
    const tide_job *job;
    zero_param *params; /* only tensor, ds_tensor and ds_secondary_tensor */
    uint32_t count, capacity;
    tide_tensor **tied; /* partitions of weights that are tied to others later; NULLs among them */
    uint32_t tied_count, tied_capacity;
} zero3_init;

extern const char tide_zero3_name[];

static inline tide_machine *zero3_machine(const zero3 *z) {
    return z->w->model->m;
}

/* The index of a parameter; z->count: it is none of them. */
uint32_t tide_zero3_param_of(const zero3 *z, const tide_tensor *tensor);

/* ---- zero3_init.c ---- */

/* tide_strategy.load and .loaded. */
void tide_zero3_load(tide_model *model, const tide_job *job);
void tide_zero3_loaded(tide_model *model, const tide_job *job);

/* ---- zero3_partition.c ---- */

tide_tensor *tide_zero3_flat_on(zero3 *z, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor);
tide_tensor *tide_zero3_new_partition(tide_machine *m, int64_t count, tide_dtype dtype, bool on_host);
/* param.data = torch.empty(0) */
void tide_zero3_empty_data(tide_machine *m, tide_tensor *tensor);
void tide_zero3_partition_param_sec(zero3 *z, zero_param *p);
/* __release_param: partitions it again if it is available and no module needs it. */
void tide_zero3_release_param(zero3 *z, zero_param *p);
/* _allgather_params_sequential: into a buffer of its own, with one rank too. */
void tide_zero3_allgather_param_sequential(zero3 *z, zero_param *p);
/* _allgather_param: a single one, synchronously. */
void tide_zero3_allgather_param(zero3 *z, zero_param *p, uint8_t stream);
/* _allgather_params_coalesced for persistent parameters, which are gathered again at once. */
void tide_zero3_allgather_persistent(zero3 *z);
/* __all_gather_params for those that are not available. */
void tide_zero3_all_gather_params(zero3 *z, const uint32_t *which, uint32_t count);
/* AllGatherCoalescedHandle.wait for a parameter in flight, on this stream; or for all. */
void tide_zero3_wait(zero3 *z, zero_param *p, uint8_t stream);
void tide_zero3_drop_partitions(zero3 *z, all_gather_coalesced_handle *handle);
void tide_zero3_wait_all(zero3 *z);

/* ---- zero3_coordinator.c ---- */

void tide_zero3_fetch_sub_module(zero3 *z, uint32_t instance, bool is_forward);
void tide_zero3_release_sub_module(zero3 *z, uint32_t instance, bool is_forward);
void tide_zero3_release_backward_leftovers(zero3 *z);
void tide_zero3_reset_step(zero3 *z);
void tide_zero3_invalidate_trace(zero3 *z);

/* ---- zero3_offload.c ---- */

/* _register_deepspeed_module: the parameters and hooks of each module. */
void tide_zero3_register_modules(zero3 *z);
/* GatheredParameters() of all parameters, without hooks; afterwards all are partitioned, persistent ones too. */
void tide_zero3_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count);
void tide_zero3_generation_ends(tide_wrapper *w);
/* GatheredParameters() of some parameters, for a caller that does not count what is available. */
void tide_zero3_gather_params(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);
void tide_zero3_leave_params(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);

/* While a checkpoint is written all parameters are partitioned; persistent ones are gathered again afterwards. */
void tide_zero3_checkpoint_event(tide_wrapper *w, bool has_ended);

/* ---- zero3_linear.c ---- */

/* The replacement of torch.nn.functional.linear. */
tide_tensor *tide_zero3_linear(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias);

/* ---- zero3_reduce.c: gradients, of stage3.py ---- */

/* reduce_independent_p_g_buckets_and_remove_grads. */
void tide_zero3_reduce_gradient(zero3 *z, uint32_t which);
void tide_zero3_reduce_and_partition_ipg_grads(zero3 *z);
/* The hook after AccumulateGrad. */
void tide_zero3_gradient_ready(tide_machine *m, tide_tensor *leaf);

#endif
