/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpointed calls: torch.utils.checkpoint and what Megatron-Core makes of it. */
#ifndef TIDE_TENSOR_CHECKPOINT_H
#define TIDE_TENSOR_CHECKPOINT_H

#include "tensor/tensor.h"

enum { TIDE_CHECKPOINT_OUTPUTS = 3 }; /* of a function whose outputs are counted */

/* Runs a function of the interpreter under torch.utils.checkpoint. inputs are the positional arguments (borrowed);
 * function is taken over and released by machine->function_free. */
tide_value tide_checkpoint_call(tide_machine *m, bool is_reentrant, void *function, tide_value *inputs, uint32_t count);
/* The same under Megatron-Core's tensor_parallel.checkpoint (tensor_parallel/random.py: CheckpointFunction).
 * parts: of the first input only this rank's one is kept, and gathered again; 1: all of it. */
tide_value tide_checkpoint_distributed(tide_machine *m, int64_t parts, void *function, tide_value *inputs,
                                       uint32_t count);
/* tensor_parallel/random.py: CheckpointWithoutOutput.checkpoint; the function returns a tensor, or up to three. */
tide_value tide_checkpoint_without_output(tide_machine *m, void *function, tide_value *inputs, uint32_t count);
/* discard_output_and_register_recompute(): what was made with `output` is made again when the gradient of `hook` is
 * there. */
void tide_checkpoint_discard(tide_machine *m, tide_tensor *output, tide_tensor *hook);

/* ---- create_selective_checkpoint_contexts() ---- */

/* What a checkpointed call may keep, by a bit of machine.kept_kinds each: every other matrix product, attention's
 * outputs, and what was reduced and scattered. */
typedef enum tide_kept_kind {
    TIDE_KEPT_PRODUCT,
    TIDE_KEPT_ATTENTION,
    TIDE_KEPT_COLLECTIVE,
    TIDE_KEPT_COUNT,
    TIDE_KEPT_NOTHING = TIDE_KEPT_COUNT
} tide_kept_kind;

/* _CachingTorchDispatchMode: what an operation has made, in order. Nothing where none is kept. */
void tide_keep(tide_machine *m, tide_kept_kind kind, tide_tensor *const *made, uint32_t count);
/* _CachedTorchDispatchMode: false where the operation has to run, also outside of recomputations; else made[] is owned
 * by the caller. */
bool tide_take_kept(tide_machine *m, tide_kept_kind kind, tide_tensor **made, uint32_t count);

/* ---- frames: for memos, which play a call of one again ---- */

/* A place that something saved has taken while the function first ran. */
typedef struct tide_holder {
    bool is_alive;
    tide_tensor *tensor; /* of the recomputation, until it is unpacked */
    tide_tensor **left;  /* of recomputations of earlier graph tasks, which did not unpack it; owned */
    uint32_t left_count, left_capacity;
} tide_holder;

/* What operations of a kind have made; NULL for what is made again. */
typedef struct tide_kept {
    tide_tensor **tensors; /* owned until they are taken */
    uint32_t count, capacity, taken;
} tide_kept;

/* _CheckpointFrame. */
typedef struct tide_checkpoint_frame {
    tide_held held;
    tide_tensor_hook recompute;                                   /* of CheckpointWithoutOutput */
    tide_saved_tensors_hooks checkpoint_hook, recomputation_hook; /* while the function runs, and runs again */
    uint32_t references;
    void *function;
    tide_value *inputs; /* none where it is saved */
    tide_saved *saved;  /* tensors among them */
    uint32_t input_count;
    bool is_recomputed;
    uint32_t task; /* for which graph task */
    bool autocast_enabled;
    tide_dtype autocast_dtype;
    tide_holder *holders;
    uint32_t holder_count, holder_capacity;
    tide_kept kept[TIDE_KEPT_COUNT];
    uint32_t recomputed_count;   /* tensors saved so far by the recomputation */
    const tide_layout *gathered; /* Megatron-Core's distribute_saved_activations: what the first input is gathered to */
    tide_tensor *output[TIDE_CHECKPOINT_OUTPUTS]; /* CheckpointWithoutOutput: until they are recomputed */
    tide_value outputs, *remade;                  /* and what was, with the inputs it was made of, until backward */
} tide_checkpoint_frame;

/* The frame whose function runs, and the one whose function runs again; NULL: neither is what saves. */
tide_checkpoint_frame *tide_checkpoint_saving(const tide_machine *m);
tide_checkpoint_frame *tide_checkpoint_recomputing(const tide_machine *m);

/* The frame that a slot has a place in; NULL: none. */
tide_checkpoint_frame *tide_checkpoint_of(const tide_saved *slot);

#endif
