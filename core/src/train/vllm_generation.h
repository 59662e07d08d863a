/* SPDX-License-Identifier: Apache-2.0 */
/* Completions from vLLM: trl/generation/vllm_generation.py, VLLMGeneration. */
#ifndef TIDE_TRAIN_VLLM_GENERATION_H
#define TIDE_TRAIN_VLLM_GENERATION_H

#include "train/run.h"

typedef struct tide_vllm_generation {
    tide_colocated engine;
    tide_tensor *weights, *cache; /* of the engine; NULL: it sleeps, or is on other GPUs */
    unsigned loaded_step;         /* _last_loaded_step */
} tide_vllm_generation;

/* At the end of the trainer's __init__. False after an error. */
bool tide_vllm_init(tide_vllm_generation *v, tide_run *run, const tide_job *job);
/* sync_weights() in a new step (phase sync), and generate(). */
void tide_vllm_generate(tide_vllm_generation *v, tide_run *run, tide_wrapper *w, const tide_strategy *strategy,
                        unsigned step);

#endif
