/* SPDX-License-Identifier: Apache-2.0 */
/* Programs at the beginning of commands. Private to job/. */
#ifndef TIDE_JOB_READERS_COMMAND_PROGRAMS_H
#define TIDE_JOB_READERS_COMMAND_PROGRAMS_H

#include "job/readers/shell.h"

/* The verbs of litgpt 0.5 (litgpt/__main__.py) that need a model. */
#define TIDE_LITGPT_VERBS                                                                                              \
    "finetune|finetune_lora|finetune_full|finetune_adapter|finetune_adapter_v2|pretrain|generate|chat|serve|evaluate"

/* What a program starts. */
typedef enum tide_program_starts {
    TIDE_STARTS_TRAINING,
    TIDE_STARTS_SERVER,
    TIDE_STARTS_CONTAINER,
} tide_program_starts;

/* Whether a word is a program that starts this, with or without a path. */
bool tide_is_program_of(const char *word, tide_program_starts starts);

#endif
