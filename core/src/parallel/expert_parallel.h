/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: experts and latent attention by a configuration's plans. Private to parallel/. */
#ifndef TIDE_PARALLEL_EXPERT_PARALLEL_H
#define TIDE_PARALLEL_EXPERT_PARALLEL_H

#include "parallel/dtensor.h"

/* How the experts of a module receive their tokens. */
typedef enum tide_experts_style {
    TIDE_EXPERTS_SHARED, /* moe_tp_experts: each rank has a part of every expert */
    TIDE_EXPERTS_MASKED, /* ep_dispatch_experts by "all_reduce" */
    TIDE_EXPERTS_SENT    /* by "all_to_all" */
} tide_experts_style;

/* Projections in and out, and their biases. */
enum { TIDE_EXPERTS_PARAMETERS = 8 };

typedef struct tide_local_param {
    uint32_t slot;
    tide_tensor *parameter;
} tide_local_param;

typedef struct tide_experts {
    tide_experts_style style;
    int64_t ranks;                                    /* over which experts are sharded */
    int64_t tp_ranks;                                 /* with the same tokens */
    double imbalance;                                 /* tokens for this rank's experts, relative to the mean */
    tide_dtype dtype;                                 /* of tokens */
    tide_value *given;                                /* the arguments of the module, until it returns */
    uint32_t local_instance;                          /* whose parameters they are */
    tide_local_param locals[TIDE_EXPERTS_PARAMETERS]; /* whose slots have DTensor.to_local() until the module returns */
    uint32_t local_count;
    tide_value state; /* between dispatch and combine: the argument of _combine_tokens() */
} tide_experts;

/* The (token, expert) pairs that a rank receives if each of `ranks` has `pairs` of them and all send it equally many.
 */
int64_t tide_rows_received(int64_t pairs, int64_t ranks, double imbalance);

/* The dimension along which a style of the configuration's plan shards a parameter; -1: it does not. */
int tide_plan_dim(tide_text style, const tide_tensor *parameter);

/* The entry for a path in the plan of a module's scope, where * stands for a number; an empty text: none. */
tide_text tide_style_at(const tide_json *const *plans, const tide_model *model, uint32_t instance, const char *path);

/* Called before and after the forward of the module of experts. */
void tide_experts_before(tide_model *model, uint32_t instance, tide_experts *e, tide_value *positional, uint32_t count);
void tide_experts_after(tide_model *model, tide_experts *e, tide_value *output);

/* MlaKvAProjParallel: called after the forward of the projection that yields the rotary part of keys. */
void tide_mla_after(tide_model *model, int64_t rope, tide_value *output);

#endif
