/* The frame of a checkpointed call. */
#ifndef TIDE_CHECKPOINT_H
#define TIDE_CHECKPOINT_H

#include "tensor/tensor.h"

/* A place that something saved has taken while the function first ran. */
typedef struct tide_holder {
    bool is_alive;
    tide_tensor *tensor; /* of the recomputation, until it is unpacked */
} tide_holder;

struct tide_checkpoint {
    tide_held held;
    tide_saved_tensors_hooks checkpoint_hook, recomputation_hook; /* while the function runs, and runs again */
    uint32_t references;
    void *function;
    tide_value *inputs; /* none where it is saved */
    tide_saved *saved;  /* tensors among them */
    uint32_t input_count;
    bool is_recomputed;
    bool autocast_enabled;
    tide_dtype autocast_dtype;
    tide_holder *holders;
    uint32_t holder_count, holder_capacity;
    uint32_t recomputed_count;   /* tensors saved so far by the recomputation */
    const tide_layout *gathered; /* Megatron-Core's distribute_saved_activations: what the first input is gathered to */
    tide_tensor *output;         /* CheckpointWithoutOutput: until it is recomputed */
    tide_value outputs, *remade; /* and what was, with the inputs it was made of, until backward */
    struct tide_checkpoint *next; /* of those that a node's hook runs again */
};

/* The frame whose function runs, and the one whose function runs again; NULL: neither is what saves. */
tide_checkpoint *tide_checkpoint_saving(const tide_machine *m);
tide_checkpoint *tide_checkpoint_recomputing(const tide_machine *m);

/* The frame that a slot has a place in; NULL: none. */
tide_checkpoint *tide_checkpoint_of(const tide_saved *slot);

#endif
