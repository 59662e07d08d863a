/* SPDX-License-Identifier: Apache-2.0 */
/* What files that start vLLM say. Private to job/readers. */
#ifndef TIDE_JOB_READERS_VLLM_H
#define TIDE_JOB_READERS_VLLM_H

#include "job/readers/claims.h"

extern const tide_key_table tide_vllm_keys;
extern const tide_reader tide_vllm_reader, tide_vllm_command_reader;

/* An option, as the table has it: "max-model-len" is max_model_len, 8k is 8000, an object is its JSON. */
void tide_vllm_put(tide_arena *arena, tide_json *options, tide_text name, const tide_json *value);

/* The model that is asked for, and mode=serve. */
void tide_vllm_settle(tide_claims *c);

#endif
