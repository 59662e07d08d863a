/* SPDX-License-Identifier: Apache-2.0 */
/* What the call of a layer left behind, and how it is captured and replayed. Private to memo/. */
#ifndef TIDE_MEMO_MEMO_ENTRY_H
#define TIDE_MEMO_MEMO_ENTRY_H

#include "memo/call_key.h"
#include "tensor/checkpoint.h"

/* In a memo entry pointers are numbers: of an object made by the call, or of one listed in its key. 0 is NULL. */
enum { MEMO_MADE = 1, MEMO_FOUND = 2, MEMO_ACCUMULATOR = 3, MEMO_KIND_BITS = 2 };

static inline void *tide_memo_number(uint32_t at, unsigned kind) {
    return (void *)((uintptr_t)at << MEMO_KIND_BITS | kind);
}

static inline unsigned tide_memo_kind(const void *p) {
    return (unsigned)((uintptr_t)p & 3);
}

static inline uint32_t tide_memo_place(const void *p) {
    return (uint32_t)((uintptr_t)p >> MEMO_KIND_BITS);
}

typedef struct appended {
    uint32_t list; /* index in the key */
    tide_value value;
} appended;

typedef struct place {
    bool is_alive;
    tide_tensor *tensor; /* from a recomputation */
} place;

/* A leaf whose AccumulateGrad the call refers to: made by this call, or by the same call of an earlier graph. */
typedef struct gathered {
    uint32_t leaf, module, statement;
} gathered;

typedef struct memo_entry {
    uint64_t digest; /* tide_call_digest */
    uint64_t *words;
    uint32_t word_count;
    uint32_t settings; /* the number of settings last found to be equal; 0: none */
    uint32_t *modules; /* as listed in the key */
    uint32_t module_count;
    uint32_t first_event, last_event, first_allocation, first_order, orders;
    uint32_t first_fold, last_fold; /* among the machine's folded loops; last excluded */
    uint64_t op_count;
    int depth;
    uint32_t statement;
    const char *op;
    tide_storage *storages;
    tide_tensor *tensors;
    tide_node **nodes;
    tide_applied *applied; /* for each node; NULL if none has a context */
    tide_list *lists;
    uint32_t storage_count, tensor_count, node_count, list_count;
    tide_cast *casts;
    uint32_t cast_count;
    appended *appended;
    uint32_t appended_count;
    gathered *gathered;
    uint32_t gathered_count;
    place *places; /* in the frame of the checkpoint */
    uint32_t place_count;
    bool is_stopped;
    tide_value result;
    tide_storage **new_storages; /* during a replay */
    tide_tensor **new_tensors;
    tide_node **new_nodes;
    tide_list **new_lists;
} memo_entry;

/* The frame of the checkpoint in which saved tensors take holders, and the number of its holders. */
static inline tide_checkpoint_frame *tide_memo_frame(const tide_machine *m) {
    tide_checkpoint_frame *saving = tide_checkpoint_saving(m);
    return saving ? saving : tide_checkpoint_recomputing(m);
}

static inline uint32_t tide_memo_places(const tide_machine *m, const tide_checkpoint_frame *frame) {
    return frame == tide_checkpoint_saving(m) ? frame->holder_count : frame->recomputed_count;
}

/* Plays the call and captures what it leaves behind. (capture.c) */
tide_value tide_capture_call(const tide_call_arguments *arguments, bool *is_kept, memo_entry *kept);

/* ---- replay.c ---- */

/* Whether a recomputation would end at the same place as in the entry, with the same holders alive. */
bool tide_has_same_places(const tide_machine *m, const memo_entry *of);

/* Replays from the entry the call with this key; `modules` has a place for every instance. */
tide_value tide_replay_call(const memo_entry *of, const tide_call_key *key, const tide_call_arguments *arguments,
                            uint32_t *modules);

#endif
