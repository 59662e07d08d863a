/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: experts and latent attention by the plans of a configuration. Private to parallel/. */
#ifndef TIDE_PARALLEL_EXPERT_PARALLEL_H
#define TIDE_PARALLEL_EXPERT_PARALLEL_H

#include "parallel/dtensor.h"

/* How the experts of a module get their tokens. */
typedef enum tide_experts_style {
    TIDE_EXPERTS_SHARED, /* moe_tp_experts: a part of every expert on each rank */
    TIDE_EXPERTS_MASKED, /* ep_dispatch_experts by "all_reduce" */
    TIDE_EXPERTS_SENT    /* by "all_to_all" */
} tide_experts_style;

typedef struct tide_experts {
    tide_experts_style style;
    int64_t ranks;     /* that experts are cut over */
    int64_t tp_ranks;  /* that have the same tokens */
    double imbalance;  /* tokens that come to this rank's experts, over the mean */
    tide_dtype dtype;  /* of the tokens */
    tide_value *given; /* what the module is called with, until it has returned */
    tide_value state;  /* between dispatch and combine: what _combine_tokens() is given */
} tide_experts;

/* (token, expert) pairs that come to a rank, of which each of `ranks` has so many: each sends this one as many. */
int64_t tide_rows_received(int64_t pairs, int64_t ranks, double imbalance);

/* Along which dimension a style of the configuration's plan cuts a parameter; -1: it is whole. */
int tide_plan_dim(tide_text style, const tide_tensor *parameter);

/* What the plan of a module's scope says of a path, in which * is a number; an empty text: nothing. */
tide_text tide_style_at(const tide_json *const *plans, const tide_model *model, uint32_t instance, const char *path);

/* Around the forward of the module of experts. */
void tide_experts_before(tide_model *model, uint32_t instance, tide_experts *e, tide_value *positional, uint32_t count);
void tide_experts_after(tide_model *model, tide_experts *e, tide_value *output);

/* MlaKvAProjParallel: after the forward of a projection that the rotary part of keys comes from. */
void tide_mla_after(tide_model *model, int64_t rope, tide_value *output);

#endif
