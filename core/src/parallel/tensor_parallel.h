/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.tensor.parallel: parallelize_module() by the plan of a description. Private to parallel/. */
#ifndef TIDE_PARALLEL_TENSOR_PARALLEL_H
#define TIDE_PARALLEL_TENSOR_PARALLEL_H

#include "parallel/expert_parallel.h"

typedef struct tide_tensor_parallel_plan {
    int64_t ranks, rank;
    bool sequence_parallel, loss_parallel;
    bool is_sharded;     /* by fully_shard afterwards */
    bool cuts_embedding; /* hidden states are cut where the embedding ends, not where the first block begins */
    const tide_json **of_configuration; /* transformers' own plans, by scope; NULL: those of the descriptions */
    bool is_of_kinds;                   /* they are what descriptions say, in transformers' styles */
    const tide_json **of_experts;       /* its plans for experts, which go before; NULL: they have none */
    tide_experts_style experts_style;
    int64_t expert_ranks; /* experts are cut over so many */
    int64_t rotary;       /* of latent attention: the part of a key that is not cut */
} tide_tensor_parallel_plan;

/* tp_plans.c: fills in the plans of the configuration's class. False after an error, which is reported. */
bool tide_tp_plan_of(const tide_wrapper *w, tide_tensor_parallel_plan *plan);
/* from_pretrained() of a checkpoint, of which each rank reads its parts. */
void tide_read_parts(tide_wrapper *w);

/* tp_heads.c: whether each rank has whole heads of attention; `is_column` by instance. False after an error, which is
 * reported. */
bool tide_check_heads(const tide_wrapper *w, int64_t ranks, const bool *is_column);

/* tp_adapters.c: a layer that an adapter is around, and what an adapter has beside it. */
bool tide_is_base_layer(const tide_model *model, uint32_t instance);
bool tide_is_of_adapter(const tide_model *model, uint32_t instance);
/* The path by which a plan knows a module: of a layer with an adapter as it was without one. */
const char *tide_planned_path(const tide_model *model, uint32_t instance);
/* How a part of an adapter is cut by a plan. */
tide_text tide_plan_of_adapter(const tide_model *model, const tide_json *const *plans, uint32_t instance);
/* False after an error, which is reported. */
bool tide_check_adapters(const tide_wrapper *w, const tide_tensor_parallel_plan *plan);
/* Adapters come to the device, once the model is read. */
void tide_place_adapters(tide_wrapper *w);

/* Cuts the parameters of the model as "tp_plan" of its description says and sets the hooks of its modules. Before
 * those of other wrappers, which run around them. False after an error, which is reported. */
bool tide_parallelize_module(tide_wrapper *w, const tide_tensor_parallel_plan *plan);

/* Sets the hooks anew, inside of those that another wrapper has set since. */
void tide_tensor_parallel_around(tide_model *model);

/* Whether a module's experts are those of this rank alone, by transformers' plan for experts. */
bool tide_has_dispatched_experts(const tide_model *model, uint32_t instance);

/* Of transformers' plan: a head whose part is the embedding's again once both are cut; 0: there is none. */
uint32_t tide_head_tied_again(const tide_model *model);

/* The optimizer's members: DTensors first, as the multi-tensor optimizers refuse a mix. */
void tide_separate_kinds(tide_wrapper *w);

/* The loss of logits and labels by a function of the library, in place of what the model returned. */
void tide_loss_outside(tide_wrapper *w, tide_value *output, const char *function);

#endif
