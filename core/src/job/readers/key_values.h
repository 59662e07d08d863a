/* SPDX-License-Identifier: Apache-2.0 */
/* Values in the rows of keys: "given=taken|given~taken". Private to job/. */
#ifndef TIDE_JOB_READERS_KEY_VALUES_H
#define TIDE_JOB_READERS_KEY_VALUES_H

#include "base/arena.h"
#include "base/text.h"

/* Values of keys that several programs share. */
#define KEY_ATTENTION                                                                                                  \
    "flash_attention_3~sdpa|flash_attention_4~sdpa|fa3~sdpa|*flash-attn3~sdpa|*flash-attn4~sdpa|"                      \
    "flash_attention_*=sdpa|flash_attn*=sdpa|flash=sdpa|kernels-community/*=sdpa|flex_attention~sdpa|xformers~sdpa|"   \
    "sage~sdpa|fp8~sdpa|auto="
#define KEY_OPTIMIZERS                                                                                                 \
    "adamw_torch_8bit~adamw8bit|adamw_torch_4bit~adamw8bit|ao_adamw_8bit~adamw8bit|ao_adamw_4bit~adamw8bit|"           \
    "ao_adamw_fp8~adamw8bit|optimi_adamw~adamw_single|flash_adamw~adamw8bit"

#define NEAR_RING_ATTENTION                                                                                            \
    "near to it: parallel.kind=fsdp2 with parallel.cp and trainer=hf or sft, ring attention as accelerate has it"

/* Whether a value, in lower case, is in the list of a row, what it stands for, and whether that is only similar. */
bool tide_key_value_listed(const char *list, const char *value, tide_text *taken, bool *is_near);

#endif
