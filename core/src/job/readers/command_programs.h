/* SPDX-License-Identifier: Apache-2.0 */
/* Programs at the beginning of commands. Private to job/. */
#ifndef TIDE_JOB_READERS_COMMAND_PROGRAMS_H
#define TIDE_JOB_READERS_COMMAND_PROGRAMS_H

#include "job/readers/shell.h"

/* What a program starts. */
typedef enum tide_program_starts {
    TIDE_STARTS_TRAINING,
    TIDE_STARTS_SERVER,
    TIDE_STARTS_CONTAINER,
} tide_program_starts;

/* Whether a word is a program that starts this, with or without a path. */
bool tide_is_program_of(const char *word, tide_program_starts starts);

#endif
