/* SPDX-License-Identifier: Apache-2.0 */
/* parallel/: what frameworks for several GPUs do around a model, and therefore allocate.
 *
 * DistributedDataParallel, FSDP 1 and 2, DeepSpeed's ZeRO and Megatron-Core are each a strategy (train/strategy.h):
 * hooks that the training loop calls when the model is loaded, before and after modules run, when a gradient is ready
 * and at the step. One rank is played. Files and names are those of the framework, so that its next release is a diff
 * that can be read. collectives.c has communication shared by several strategies, nccl.c NCCL's own memory, and
 * strategies.c tells which strategy a job has. Only strategies.h is for use outside of this folder. */
#ifndef TIDE_PARALLEL_PARALLEL_H
#define TIDE_PARALLEL_PARALLEL_H

#include "parallel/strategies.h"

/* Streams of the allocator: 0 is the compute stream. A reference model has its own, after those of the policy. */
enum { TIDE_STREAM_SIDE = 1, TIDE_STREAM_SECOND, TIDE_STREAM_THIRD, TIDE_STREAMS_OF_MODEL = TIDE_STREAM_THIRD };

/* ---- collectives.c ---- */

/* A flat tensor of a factor, allocated on the current stream, or on another one. */
tide_tensor *tide_flat_of(tide_machine *m, const char *op, int64_t count, tide_dtype dtype, tide_factor factor);
tide_tensor *tide_flat_on(tide_machine *m, uint8_t stream, const char *op, int64_t count, tide_dtype dtype,
                          tide_factor factor);

/* g.double().norm(2) of so many elements: returns the scalar. */
tide_tensor *tide_fp64_norm(tide_machine *m, const char *op, int64_t elements);

/* Assigns tensors, in order, to buckets of one dtype that close when they reach `limits[k]` bytes, the last limit being
 * that of all later ones; bucket_of[i] is the bucket of tensor i, numbered in closing order. Returns the number of
 * buckets. torch/csrc/distributed/c10d/reducer.cpp: compute_bucket_assignment_by_size. is_sorted: numbered by their
 * first tensor instead. */
uint32_t tide_cut_buckets(tide_machine *m, tide_tensor *const *tensors, uint32_t count, const int64_t *limits,
                          uint32_t limit_count, bool is_sorted, uint32_t *bucket_of);

/* c10d::broadcast_coalesced: flat copies of buckets, two at a time; a bucket with one tensor is sent as it is. */
void tide_broadcast_coalesced(tide_machine *m, const char *op, tide_tensor *const *tensors, uint32_t count);

/* An option of DeepSpeed that counts elements: if it is not set, with hf_auto `numerator` / `denominator` of the square
 * of the model's hidden size, which HF Trainer writes for "auto", else `size`, its default. */
int64_t tide_bucket_size(const tide_wrapper *w, tide_setting_id setting, int64_t size, int64_t numerator,
                         int64_t denominator);

/* How many elements DeepSpeed's engine reduces at once without ZeRO: deepspeed/runtime/engine.py. */
enum { TIDE_MEMORY_OPT_ALLREDUCE_SIZE = 500000000 };

/* The hidden size of the (text) model; an error if the configuration has none. */
int64_t tide_hidden_size(const tide_wrapper *w);

/* Module.half() and the like: the engine casts parameters of another dtype one by one. */
void tide_cast_model(tide_wrapper *w, tide_dtype dtype);
/* engine.py, _configure_distributed_model: the same, then moves what is on the host to the device. */
void tide_cast_and_place_model(tide_wrapper *w, tide_dtype dtype);
/* Whether DeepSpeed can broadcast all parameters; reports an error. */
void tide_check_broadcast(tide_model *model);

/* tide_strategy.prepare_reference for DeepSpeed's stages 0 to 2. */
void tide_prepare_whole_reference(tide_wrapper *w);

/* Whether DeepSpeed's stages 1 and 2 fail with these parameter groups: initialize_optimizer_states() makes an Adagrad
 * of one. */
bool tide_adagrad_is_refused(const tide_wrapper *w, uint32_t groups);

/* ---- pipeline_ranks.c ---- */

/* tide_strategy.other_ranks for a pipeline: those that may need more than rank 0 */
uint32_t tide_ranks_of_stages(const tide_wrapper *w, int64_t *ranks);

/* ---- meta_init.c ---- */

/* tide_strategy.load for strategies that shard the model: whether it is on the meta device until then. */
void tide_load_on_meta(tide_model *model, const tide_job *job);
/* Module.to_empty() of the model: what a parameter gets, and what follows after each module (NULL: nothing). */
void tide_to_empty(tide_model *model, void (*parameter_empty)(tide_model *, uint32_t, tide_tensor *),
                   void (*module_empty)(tide_model *, uint32_t));
/* Allocates a parameter that fully_shard() did not shard. */
void tide_empty_param(tide_model *model, uint32_t instance, tide_tensor *leaf);

/* ---- tied_head.c ---- */

/* The instance of a head that shares the embedding's weight; 0: there is none. */
uint32_t tide_tied_head(const tide_model *model);
/* That weight; NULL: there is none. */
tide_tensor *tide_tied_weight(const tide_model *model);
/* Makes them two parameters; is_head_last: the head's is the whole one until it is sharded or released. Returns the
 * head; 0: there is none. */
uint32_t tide_untie_head(tide_wrapper *w, bool is_head_last);

/* ---- fsdp.c: what both FSDPs do ---- */

/* Tensor.register_hook on the output of a unit's module; afterwards the machine is back at its place in the model. */
void tide_register_unit_hook(tide_machine *m, tide_node *node, void (*run)(void *state, uint32_t unit), void *state,
                             uint32_t unit);

/* Of each instance, whether accelerate makes it a unit (no_split_modules.c); NULL: refused. */
bool *tide_no_split_modules(tide_wrapper *w);
/* Whether the head that writes text ties its bias with another name of it. */
bool tide_ties_bias(tide_model *model);
/* get_input_embeddings() or get_output_embeddings(): of the first class that names one, where those of tokens come
 * before those of images; 0: none does. */
uint32_t tide_embeddings_of(tide_model *model, bool is_output);
/* Whether two modules, or those that adapters wrap in their place, have a parameter in common: tied weights. */
bool tide_shares_parameter(const tide_model *model, uint32_t one, uint32_t other);
/* The unit of the module that an instance is or belongs to; else the last one, the root. unit_of: by instance, from 1.
 */
uint32_t tide_unit_of_module(const tide_model *model, const uint32_t *unit_of, uint32_t unit_count, uint32_t instance);

/* num_items_in_batch, which Trainer passes to the model, whose float inputs are cast: checkpoints of layers keep the
 * cast one among their keywords. */
typedef struct tide_cast_items {
    tide_value given;
    tide_tensor *cast;
} tide_cast_items;
void tide_cast_num_items(tide_wrapper *w, tide_cast_items *items, tide_dtype dtype, const char *op);
void tide_restore_num_items(tide_wrapper *w, tide_cast_items *items);

/* (loss / grad_accum).backward() with an engine callback at its end, while its root is still alive. */
void tide_backward_with_callback(tide_wrapper *w, tide_tensor *loss, void (*callback)(void *state));

/* (loss / grad_accum).backward() */
void tide_backward_divided(tide_wrapper *w, tide_tensor *loss);

/* For the optimizer's members: clipping; the step and zero_grad; all of these. */
void tide_clip_members(tide_wrapper *w);
void tide_step_members(tide_wrapper *w);
void tide_update_members(tide_wrapper *w);

/* ---- strategies.def: a strategy each ---- */

#define STRATEGY(name) extern const tide_strategy tide_##name##_strategy;
#include "parallel/strategies.def"
#undef STRATEGY
extern const tide_strategy
    tide_zero_bf16_strategy; /* instead of parallel.kind=zero1 under DeepSpeed's BF16_Optimizer */

#endif
