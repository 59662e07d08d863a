/* SPDX-License-Identifier: Apache-2.0 */
/* Completions for TRL's GRPOTrainer and RLOOTrainer. */
#ifndef TIDE_TRAIN_ROLLOUTS_H
#define TIDE_TRAIN_ROLLOUTS_H

#include "train/run.h"

/* Sets the lengths of prompts and completions, and what old policies keep, for forward() and the library. */
void tide_set_rollouts(tide_run *run, const tide_job *job);
/* Tokens of a prompt; those that are not given are as many as seq leaves, with room for images. */
int64_t tide_rollout_prompt(tide_run *run, const tide_job *job);

/* transformers' generate() with sampling (phase generate), for the prompts of one generation: their number, or what the
 * processor makes of those with images. */
void tide_generate_rollouts(tide_run *run, const tide_job *job, tide_value prompts);

/* A call of generate(), by functions of library/generation.json: the first gets `given`. */
typedef struct tide_generation {
    uint32_t root;
    bool is_wrapped; /* by accelerate: under autocast */
    bool keeps_cache;
    int64_t prompt; /* tokens of each */
    const char *begins, *ends;
    tide_value given;
} tide_generation;

/* Returns what the last function does; owned by the caller. */
tide_value tide_generate(tide_run *run, const tide_job *job, const tide_generation *of);

#endif
