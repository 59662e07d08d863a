/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches that begin in the same state are the same: the later one takes the events of the earlier.
 *
 * What forward and backward do depends on the job, which stays, and on what lives on between micro-batches: the tensors
 * and lists that modules hold, the gradients of parameters (whether there are any, and their layout), the scaler's
 * tensors and the loss. tide_micro_batch_key() is a digest of those and of the state of the machine; settings that
 * functions have read, which they may change, are compared beside it. */
#ifndef TIDE_MEMO_MICRO_BATCH_MEMO_H
#define TIDE_MEMO_MICRO_BATCH_MEMO_H

#include "lang/lang.h"

/* A gradient, or the loss, that a micro-batch made and left behind. */
typedef struct tide_left {
    tide_tensor *leaf; /* NULL: the loss, or what its graph holds */
    tide_layout *layout;
    uint8_t dtype;
    uint32_t allocation;
} tide_left;

/* A micro-batch that was played: a piece of the timeline, and what it left behind. */
typedef struct tide_micro_batch_entry {
    uint64_t key;
    uint64_t *settings; /* digests of them all */
    uint32_t first_event, forward_end, last_event;
    uint32_t first_allocation, last_allocation;
    uint32_t old_loss;            /* the allocation of the loss before it, which it freed; UINT32_MAX: none */
    uint32_t first_other, others; /* events that free it and what its graph held: those of no allocation of its own */
    uint64_t op_count;
    tide_left *left; /* the loss, gradients, and last what dies with the loss */
    uint32_t left_count, with_loss;
} tide_micro_batch_entry;

enum {
    TIDE_MICRO_BATCH_LIMIT = 4,
    TIDE_MICRO_BATCHES_KEPT = 4 /* of a step, before those that repeat are counted alone */
};

typedef struct tide_micro_batch_memo {
    tide_micro_batch_entry played[TIDE_MICRO_BATCH_LIMIT];
    uint32_t count;
    uint32_t with_loss;         /* tensors that the graph of the loss holds */
    tide_micro_batch_entry now; /* the one that is being played */
} tide_micro_batch_memo;

/* others: what lives on outside of the model and its machine. */
uint64_t tide_micro_batch_key(const tide_micro_batch_memo *memo, const tide_model *model, const tide_value *others,
                              uint32_t other_count, const tide_tensor *loss);

/* The same of a model alone and all its settings: where it is equal, what is played next does the same. */
uint64_t tide_model_key(const tide_model *model);

/* Before and after a micro-batch that is played; one that left or freed what is not known here is not kept. */
void tide_micro_batch_begin(tide_micro_batch_memo *memo, const tide_model *model, uint64_t key,
                            const tide_tensor *loss);
void tide_micro_batch_forward_ends(tide_micro_batch_memo *memo, const tide_model *model);
void tide_micro_batch_end(tide_micro_batch_memo *memo, const tide_model *model, const tide_tensor *loss);

/* Plays a micro-batch from an earlier one, with its marks; *loss is replaced. False: none began with this key. */
bool tide_micro_batch_replay(tide_micro_batch_memo *memo, tide_model *model, uint64_t key, unsigned step,
                             tide_tensor **loss);

#endif
