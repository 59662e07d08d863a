/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's expert parallelism, as in its backend for transformers' models. Private to parallel/. */
#ifndef TIDE_PARALLEL_TORCHTITAN_EXPERTS_H
#define TIDE_PARALLEL_TORCHTITAN_EXPERTS_H

#include "parallel/parallel.h"

/* moe_replacement.py: replaces blocks of experts by torchtitan's own, before anything is allocated. Errors are
 * reported. */
void tide_torchtitan_replace_experts(tide_model *model, const tide_job *job);

/* Tells torchtitan's own experts how many rows dispatch brings to a rank. Errors are reported. */
void tide_torchtitan_tell_rows(tide_model *model, const tide_job *job);

/* moe_sharding.py; expert_parallel.py of 0.2.2: shards experts over the ranks of expert parallelism. */
void tide_torchtitan_distribute_experts(tide_wrapper *w);

/* Whether a module has grouped experts, whose parameters fully_shard() shards over a mesh of their own. */
bool tide_is_torchtitan_expert(const tide_model *model, uint32_t instance);

/* components/optimizer: before each step. */
void tide_torchtitan_balance_experts(tide_wrapper *w);

#endif
