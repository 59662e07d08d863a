/* SPDX-License-Identifier: Apache-2.0 */
/* parallel/: what frameworks for several GPUs do around a model, and so allocate.
 *
 * DistributedDataParallel, FSDP 1 and 2, DeepSpeed's ZeRO and Megatron-Core are a strategy each (train/strategy.h):
 * hooks that the training loop calls when the model is loaded, before and after modules run, when a gradient is ready
 * and at the step. One rank is played. Files and names are those of the framework, so that its next release is a diff
 * that can be read; what several of them send is collectives.c, what NCCL holds besides is nccl.c, and strategies.c
 * says which one a job has. Of the headers of this folder only strategies.h is for others. */
#ifndef TIDE_PARALLEL_PARALLEL_H
#define TIDE_PARALLEL_PARALLEL_H

#include "parallel/strategies.h"

/* Streams of the allocator: 0 is the one that computes. A reference model has its own behind those of the policy. */
enum { TIDE_STREAM_SIDE = 1, TIDE_STREAM_SECOND, TIDE_STREAM_THIRD, TIDE_STREAMS_OF_MODEL = TIDE_STREAM_THIRD };

/* ---- collectives.c ---- */

/* A flat tensor of a factor, made on the stream that runs, and on another one. */
tide_tensor *tide_flat_of(tide_machine *m, const char *op, int64_t count, tide_dtype dtype, tide_factor factor);
tide_tensor *tide_flat_on(tide_machine *m, uint8_t stream, const char *op, int64_t count, tide_dtype dtype,
                          tide_factor factor);

/* g.double().norm(2) of so many elements: the scalar. */
tide_tensor *tide_fp64_norm(tide_machine *m, const char *op, int64_t elements);

/* Cuts tensors, in order, into buckets of one dtype that close when they reach `limits[k]` bytes, the last of which
 * counts for all later ones; bucket_of[i] is the bucket of tensor i, in the order in which they close. Returns the
 * number of buckets. torch/csrc/distributed/c10d/reducer.cpp: compute_bucket_assignment_by_size. is_sorted: by their
 * first tensor instead. */
uint32_t tide_cut_buckets(tide_machine *m, tide_tensor *const *tensors, uint32_t count, const int64_t *limits,
                          uint32_t limit_count, bool is_sorted, uint32_t *bucket_of);

/* c10d::broadcast_coalesced: flat copies of buckets, two at a time; a bucket of one tensor is sent as it is. */
void tide_broadcast_coalesced(tide_machine *m, const char *op, tide_tensor *const *tensors, uint32_t count);

/* An option of DeepSpeed that counts elements; where it is not set, with hf_auto, `numerator` / `denominator` of the
 * square of the model's hidden size, which is what the HF Trainer writes for "auto", else `size`, its value. */
int64_t tide_bucket_size(const tide_wrapper *w, tide_setting_id setting, int64_t size, int64_t numerator,
                         int64_t denominator);

/* Elements that DeepSpeed's engine reduces at once without ZeRO: deepspeed/runtime/engine.py. */
enum { TIDE_MEMORY_OPT_ALLREDUCE_SIZE = 500000000 };

/* The hidden size of the (text) model; an error where the configuration has none. */
int64_t tide_hidden_size(const tide_wrapper *w);

/* Numbers of the parameters in the order in which Module.to() has put them on the device: children first. */
const uint32_t *tide_children_first(const tide_model *model);

/* Module.half() and the like: the engine casts the parameters one by one, where they have another dtype. */
void tide_cast_model(tide_wrapper *w, tide_dtype dtype);
/* engine.py, _configure_distributed_model: and then what is on the host comes to the device. */
void tide_cast_and_place_model(tide_wrapper *w, tide_dtype dtype);

/* tide_strategy.prepare_reference of DeepSpeed's stages 0 to 2. */
void tide_prepare_whole_reference(tide_wrapper *w);

/* ---- pipeline_ranks.c ---- */

/* tide_strategy.other_ranks of a pipeline: those that may need more than rank 0 */
uint32_t tide_ranks_of_stages(const tide_wrapper *w, int64_t *ranks);

/* ---- meta_init.c ---- */

/* tide_strategy.load of those that cut the model: whether it is on the meta device until then. */
void tide_load_on_meta(tide_model *model, const tide_job *job);
/* Module.to_empty() of the model: what a parameter gets, and what follows when a module has been gone through (NULL:
 * nothing). */
void tide_to_empty(tide_model *model, void (*parameter_empty)(tide_model *, uint32_t, tide_tensor *),
                   void (*module_empty)(tide_model *, uint32_t));
/* A parameter that fully_shard() has not cut gets its memory. */
void tide_empty_param(tide_model *model, uint32_t instance, tide_tensor *leaf);

/* ---- tied_head.c ---- */

/* The instance of a head whose weight is the embedding's; 0: there is none. */
uint32_t tide_tied_head(const tide_model *model);
/* Makes them two parameters; is_head_last: the head's is the whole one until it is cut or let go of. Returns the head;
 * 0: there is none. */
uint32_t tide_untie_head(tide_wrapper *w, bool is_head_last);

/* ---- fsdp.c: what both FSDPs do ---- */

/* Tensor.register_hook of what a unit's module returns; afterwards the machine is where it was in the model. */
void tide_register_unit_hook(tide_machine *m, tide_node *node, void (*run)(void *state, uint32_t unit), void *state,
                             uint32_t unit);

/* The unit whose module an instance is or lies in; the last one, the root, where there is none. unit_of: by instance,
 * from 1. */
uint32_t tide_unit_of_module(const tide_model *model, const uint32_t *unit_of, uint32_t unit_count, uint32_t instance);

/* num_items_in_batch, which Trainer gives to the model, whose float inputs are cast: checkpoints of layers keep the
 * cast one among their keywords. */
typedef struct tide_cast_items {
    tide_value given;
    tide_tensor *cast;
} tide_cast_items;
void tide_cast_num_items(tide_wrapper *w, tide_cast_items *items, tide_dtype dtype, const char *op);
void tide_restore_num_items(tide_wrapper *w, tide_cast_items *items);

/* (loss / grad_accum).backward(), with what is queued as the engine's callback: what it began with is still there. */
void tide_backward_with_callback(tide_wrapper *w, tide_tensor *loss, void (*callback)(void *state));

/* (loss / grad_accum).backward() */
void tide_backward_divided(tide_wrapper *w, tide_tensor *loss);

/* Over the optimizer's members: clipping; the step and zero_grad; all of it. */
void tide_clip_members(tide_wrapper *w);
void tide_step_members(tide_wrapper *w);
void tide_update_members(tide_wrapper *w);

/* ---- strategies.def: a strategy each ---- */

#define STRATEGY(name) extern const tide_strategy tide_##name##_strategy;
#include "parallel/strategies.def"
#undef STRATEGY
extern const tide_strategy
    tide_zero_bf16_strategy; /* which parallel.kind=zero1 becomes under DeepSpeed's BF16_Optimizer */

#endif
