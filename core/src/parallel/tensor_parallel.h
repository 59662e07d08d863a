/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.tensor.parallel: parallelize_module() by the plan of a description. Private to parallel/. */
#ifndef TIDE_PARALLEL_TENSOR_PARALLEL_H
#define TIDE_PARALLEL_TENSOR_PARALLEL_H

#include "parallel/expert_parallel.h"

typedef struct tide_tensor_parallel_plan {
    int64_t ranks, rank;
    bool sequence_parallel, loss_parallel;
    bool is_sharded;                    /* by fully_shard afterwards */
    bool cuts_embedding;                /* hidden states are sharded after the embedding, not before the first block */
    const tide_json **of_configuration; /* transformers' own plans, by scope; NULL: those of the descriptions */
    bool is_of_kinds;                   /* they come from descriptions, in transformers' styles */
    const tide_json **of_experts;       /* its plans for experts, which take precedence; NULL: there are none */
    tide_experts_style experts_style;
    int64_t expert_ranks; /* experts are sharded over so many ranks */
    int64_t rotary;       /* latent attention: the part of a key that is not sharded */
} tide_tensor_parallel_plan;

/* plan_tables.c: models/tp_plans.json; and of its rows the plans of a model_type; NULL: transformers has none. */
const tide_json *tide_plan_rows(tide_model *model);
const tide_json *tide_plans_of_type(const tide_json *rows, const tide_json *type);
/* Whether the model_type has no class in transformers. */
bool tide_is_new_to_transformers(const tide_json *type);
/* tp_plans.c: sets the plans of the configuration's class. False after an error, which is reported. */
bool tide_tp_plan_of(const tide_wrapper *w, tide_tensor_parallel_plan *plan);
/* from_pretrained() of a checkpoint of which each rank reads its parts. */
void tide_read_parts(tide_wrapper *w, const tide_tensor_parallel_plan *plan);

/* tp_heads.c: whether each rank has complete attention heads; `is_column` by instance. False after an error, which is
 * reported. */
bool tide_check_heads(const tide_wrapper *w, int64_t ranks, const bool *is_column);

/* tp_adapters.c: whether an instance is an adapter, the layer that it wraps, or another part of one. */
bool tide_is_adapter(const tide_model *model, uint32_t instance);
bool tide_is_base_layer(const tide_model *model, uint32_t instance);
bool tide_is_of_adapter(const tide_model *model, uint32_t instance);
/* The path by which a plan names a module: for a layer with an adapter, its path without one. */
const char *tide_planned_path(const tide_model *model, uint32_t instance);
/* How a plan shards a part of an adapter. */
tide_text tide_plan_of_adapter(const tide_model *model, const tide_json *const *plans, uint32_t instance);
/* False after an error, which is reported. */
bool tide_check_adapters(const tide_wrapper *w, const tide_tensor_parallel_plan *plan);
/* Moves adapters to the device, after the model was read. */
void tide_place_adapters(tide_wrapper *w, const tide_tensor_parallel_plan *plan);

/* Shards the parameters of the model as "tp_plan" of its description says and sets the hooks of its modules, before
 * other wrappers set theirs, which run around them. False after an error, which is reported. */
bool tide_parallelize_module(tide_wrapper *w, const tide_tensor_parallel_plan *plan);

/* Sets the hooks again, inside of those that another wrapper has set since. */
void tide_tensor_parallel_around(tide_model *model);

/* Whether a module has only this rank's experts, by transformers' plan for experts. */
bool tide_has_dispatched_experts(const tide_model *model, uint32_t instance);

/* For transformers' plan: a head that is tied to the embedding again once both are sharded; 0: there is none. */
uint32_t tide_head_tied_again(const tide_model *model);

/* Sorts the optimizer's members with DTensors first, because multi-tensor optimizers do not accept a mix. */
void tide_separate_kinds(tide_wrapper *w);

#endif
