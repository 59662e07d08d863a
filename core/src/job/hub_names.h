/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models as the Hub has them: what of one says how its base was tuned, converted or quantised. Private to
 * job/. */
#ifndef TIDE_JOB_HUB_NAMES_H
#define TIDE_JOB_HUB_NAMES_H

#include "base/text.h"

typedef struct tide_hub_name {
    const char *base;         /* in lower case, without organisation and the words below: "llama-3.1-8b" */
    bool is_tuned, is_dated;  /* -Instruct, -it, -Chat, -hf ...; -2407 */
    bool is_quantised;        /* -AWQ, -GPTQ, -bnb-4bit, -FP8, -GGUF ... */
    const char *quantization; /* "quantization_config" as such a checkpoint has it; NULL: there are several */
} tide_hub_name;

/* The first `kept` words of how it was tuned or dated stay in the base: some models have a name with one. */
enum { TIDE_HUB_WORDS_MOST = 4 };
tide_hub_name tide_hub_name_read(tide_arena *arena, const char *name, uint32_t kept);

#endif
