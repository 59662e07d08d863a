/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models as the Hub has them: what of one says how its base was tuned, converted or quantised. Private to
 * job/. */
#ifndef TIDE_JOB_HUB_NAMES_H
#define TIDE_JOB_HUB_NAMES_H

#include "base/text.h"

typedef struct tide_hub_name {
    const char *base;         /* in lower case, without organisation and the words below: "llama-3.1-8b" */
    bool is_tuned, is_dated;  /* -Instruct, -it, -Chat, -hf ...; -2407 */
    bool is_whole;            /* -bf16: not quantised, whatever its base is */
    const char *format;       /* what it says of quantised weights: "awq", "gptq-int8", "fp8"; NULL: nothing */
    const char *quantization; /* "quantization_config" as such a checkpoint has it, "": none; NULL: not known */
} tide_hub_name;

/* The first `kept` words of how it was tuned or dated stay in the base: some models have a name with one. */
enum { TIDE_HUB_WORDS_MOST = 4 };
tide_hub_name tide_hub_name_read(tide_arena *arena, const char *name, uint32_t kept);

/* What such a checkpoint of `owner` (in lower case), of a model of that type, has as "quantization_config". */
const char *tide_hub_quantization(const char *format, tide_text owner, tide_text type);

#endif
