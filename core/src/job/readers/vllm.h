/* SPDX-License-Identifier: Apache-2.0 */
/* Files that start vLLM. Private to job/readers. */
#ifndef TIDE_JOB_READERS_VLLM_H
#define TIDE_JOB_READERS_VLLM_H

#include "job/readers/claims.h"

extern const tide_key_table tide_vllm_keys;
extern const tide_reader tide_vllm_reader, tide_vllm_command_reader;

/* An option under its name in the table: "max-model-len" is max_model_len, 8k is 8000, an object is its JSON. */
void tide_vllm_put(tide_arena *arena, tide_json *options, tide_text name, const tide_json *value);

/* The requested model, and mode=serve. */
void tide_vllm_settle(tide_claims *c);

#endif
