/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpointed calls: torch.utils.checkpoint, and Megatron-Core's variants. */
#ifndef TIDE_TENSOR_CHECKPOINT_H
#define TIDE_TENSOR_CHECKPOINT_H

#include "tensor/tensor.h"

enum { TIDE_CHECKPOINT_OUTPUTS = 3 }; /* most outputs of a function */

/* Runs a function of the interpreter under torch.utils.checkpoint. inputs are its positional arguments (borrowed);
 * takes ownership of function, which machine->function_free releases. */
tide_value tide_checkpoint_call(tide_machine *m, bool is_reentrant, void *function, tide_value *inputs, uint32_t count);
/* The same under Megatron-Core's tensor_parallel.checkpoint (tensor_parallel/random.py: CheckpointFunction). parts:
 * into how many the first input is split, of which this rank keeps one and gathers the rest again; 0: it keeps
 * everything. */
tide_value tide_checkpoint_distributed(tide_machine *m, int64_t parts, void *function, tide_value *inputs,
                                       uint32_t count);
/* tensor_parallel/random.py: CheckpointWithoutOutput.checkpoint; the function returns up to three tensors. */
tide_value tide_checkpoint_without_output(tide_machine *m, void *function, tide_value *inputs, uint32_t count);
/* discard_output_and_register_recompute(): what `output` was computed from is computed again when the gradient of
 * `hook` arrives. */
void tide_checkpoint_discard(tide_machine *m, tide_tensor *output, tide_tensor *hook);

/* ---- create_selective_checkpoint_contexts() ---- */

/* What a checkpointed call may save, one bit of machine.kept_kinds each: every other matrix product, attention outputs,
 * results of reduce-scatter. */
typedef enum tide_kept_kind {
    TIDE_KEPT_PRODUCT,
    TIDE_KEPT_ATTENTION,
    TIDE_KEPT_COLLECTIVE,
    TIDE_KEPT_COUNT,
    TIDE_KEPT_NOTHING = TIDE_KEPT_COUNT
} tide_kept_kind;

/* Whether one of the following modes is enabled. */
bool tide_has_dispatch_mode(const tide_machine *m);
/* _CachingTorchDispatchMode: records the results of an operation, in order. Does nothing outside of checkpoints that
 * save. */
void tide_keep(tide_machine *m, tide_kept_kind kind, tide_tensor *const *made, uint32_t count);
/* _CachedTorchDispatchMode: false if the operation has to run, as it does outside of recomputations; else the caller
 * owns made[]. */
bool tide_take_kept(tide_machine *m, tide_kept_kind kind, tide_tensor **made, uint32_t count);

/* ---- frames: for memos, which play a call of one again ---- */

/* Stands for a saved tensor of the first run (_Holder). */
typedef struct tide_holder {
    bool is_alive;
    tide_tensor *tensor; /* from the recomputation, until it is unpacked */
    tide_tensor **left;  /* from recomputations for earlier graph tasks, which did not unpack them; owned */
    uint32_t left_count, left_capacity;
} tide_holder;

/* Saved results of operations of one kind; NULL for those to be recomputed. */
typedef struct tide_kept {
    tide_tensor **tensors; /* owned until taken */
    uint32_t count, capacity, taken;
} tide_kept;

/* _CheckpointFrame. */
typedef struct tide_checkpoint_frame {
    tide_held held;
    tide_tensor_hook recompute; /* of CheckpointWithoutOutput */
    tide_saved_tensors_hooks checkpoint_hook,
        recomputation_hook; /* during the first run, and during the recomputation */
    uint32_t references;
    void *function;
    tide_value *inputs; /* none where the input was saved */
    tide_saved *saved;  /* the tensors among them */
    uint32_t input_count;
    bool is_recomputed;
    uint32_t task; /* the graph task that recomputed */
    bool autocast_enabled;
    tide_dtype autocast_dtype;
    tide_holder *holders;
    uint32_t holder_count, holder_capacity;
    tide_kept kept[TIDE_KEPT_COUNT];
    uint32_t recomputed_count; /* tensors saved so far by the recomputation */
    const tide_layout
        *gathered; /* Megatron-Core's distribute_saved_activations: the shape of the gathered first input */
    tide_tensor *output[TIDE_CHECKPOINT_OUTPUTS]; /* CheckpointWithoutOutput: until the recomputation */
    tide_value outputs,
        *remade; /* and the recomputed ones with the inputs that they were computed from, until backward */
} tide_checkpoint_frame;

/* The frame whose function runs for the first time, and the one whose function runs again; NULL: none is current. */
tide_checkpoint_frame *tide_checkpoint_saving(const tide_machine *m);
tide_checkpoint_frame *tide_checkpoint_recomputing(const tide_machine *m);

/* The frame that a slot's holder belongs to; NULL: none. */
tide_checkpoint_frame *tide_checkpoint_of(const tide_saved *slot);

#endif
