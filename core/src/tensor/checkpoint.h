/* The frame of a checkpointed call. */
#ifndef TIDE_CHECKPOINT_H
#define TIDE_CHECKPOINT_H

#include "tensor/tensor.h"

struct tide_checkpoint {
    tide_held held;
    uint32_t references;
    void *function;
    tide_value *inputs; /* none where it is saved */
    tide_saved *saved;  /* tensors among them */
    uint32_t input_count;
    bool is_recomputed;
    bool autocast_enabled;
    tide_dtype autocast_dtype;
    uint32_t holder_count, holder_capacity; /* places taken while the function first ran */
    struct holder {
        bool is_alive;
        tide_tensor *tensor;
    } * holders;
    uint32_t counter; /* tensors saved so far by the recomputation */
};

#endif
