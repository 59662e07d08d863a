/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models on the Hub: what they say about how the base model was tuned, converted or quantised. Private to
 * job/. */
#ifndef TIDE_JOB_HUB_NAMES_H
#define TIDE_JOB_HUB_NAMES_H

#include "base/text.h"

typedef struct tide_hub_name {
    const char *base;         /* in lower case, without the organisation and the words below: "llama-3.1-8b" */
    bool is_tuned, is_dated;  /* -Instruct, -it, -Chat, -hf ...; -2407 */
    bool is_whole;            /* -bf16: not quantised, even if its base is */
    const char *format;       /* the format of quantised weights: "awq", "gptq-int8", "fp8"; NULL: none */
    const char *quantization; /* the "quantization_config" of such a checkpoint, "": none; NULL: unknown */
} tide_hub_name;

/* The first `kept` words about tuning or dates stay in the base: some models have them in their names. */
enum { TIDE_HUB_WORDS_MOST = 4 };
tide_hub_name tide_hub_name_read(tide_arena *arena, const char *name, uint32_t kept);

/* The "quantization_config" of such a checkpoint by `owner` (in lower case) for a model of that type. */
const char *tide_hub_quantization(const char *format, tide_text owner, tide_text type);

#endif
