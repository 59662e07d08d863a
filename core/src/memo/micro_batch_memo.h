/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches that start from the same state do the same, so later ones repeat the events of an earlier one.
 *
 * What forward and backward do depends on the job, which is fixed, and on what outlives a micro-batch: tensors and
 * lists of modules, the gradients of parameters (whether they exist, and their layout), tensors of the gradient scaler,
 * and the loss. tide_micro_batch_key() is a digest of these and of the machine's state; settings that functions read,
 * and may change, are compared separately. */
#ifndef TIDE_MEMO_MICRO_BATCH_MEMO_H
#define TIDE_MEMO_MICRO_BATCH_MEMO_H

#include "lang/lang.h"

/* A gradient that a micro-batch left behind, or its loss. */
typedef struct tide_left {
    tide_tensor *leaf; /* NULL: the loss, or what its graph refers to */
    tide_layout *layout;
    uint8_t dtype;
    uint32_t allocation;
} tide_left;

/* A micro-batch that was played: its events, and what it left behind. */
typedef struct tide_micro_batch_entry {
    uint64_t key;
    uint64_t *settings; /* digests of all settings */
    uint32_t first_event, forward_end, last_event;
    uint32_t first_allocation, last_allocation;
    uint32_t old_loss;            /* the allocation of the previous loss, which it freed; UINT32_MAX: none */
    uint32_t first_other, others; /* the events that free that loss and what its graph referred to */
    uint64_t op_count;
    tide_left *left; /* gradients, the loss, and last what dies with the loss */
    uint32_t left_count, with_loss;
} tide_micro_batch_entry;

enum {
    TIDE_MICRO_BATCH_LIMIT = 4,
    /* Of a step, before repeated ones are only counted; fewer where their events exceed TIDE_KEPT_EVENTS. */
    TIDE_MICRO_BATCHES_KEPT = 4
};

typedef struct tide_micro_batch_memo {
    tide_micro_batch_entry played[TIDE_MICRO_BATCH_LIMIT];
    uint32_t count;
    uint32_t with_loss;         /* tensors that the graph of the loss refers to */
    tide_micro_batch_entry now; /* the one being played */
} tide_micro_batch_memo;

/* others: a digest of what lives on outside of the model and its machine. */
uint64_t tide_micro_batch_key(const tide_micro_batch_memo *memo, const tide_model *model, const tide_value *others,
                              uint32_t other_count, const tide_tensor *loss);

/* The same for a model alone with all its settings: with equal keys, what is played next is the same. */
uint64_t tide_model_key(const tide_model *model);

/* Called before and after a micro-batch that is played; one that leaves or frees anything unexpected is not recorded.
 */
void tide_micro_batch_begin(tide_micro_batch_memo *memo, const tide_model *model, uint64_t key,
                            const tide_tensor *loss);
void tide_micro_batch_forward_ends(tide_micro_batch_memo *memo, const tide_model *model);
void tide_micro_batch_end(tide_micro_batch_memo *memo, const tide_model *model, const tide_tensor *loss);

/* Repeats an earlier micro-batch with its marks, and replaces *loss. False: none has this key. */
bool tide_micro_batch_replay(tide_micro_batch_memo *memo, tide_model *model, uint64_t key, unsigned step,
                             tide_tensor **loss);

#endif
