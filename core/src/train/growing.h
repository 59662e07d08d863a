/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a loop that differ by what grows from one to the next, as the keys and values of a generation: they are kept
 * once. Note [Growing] in growing.c */
#ifndef TIDE_TRAIN_GROWING_H
#define TIDE_TRAIN_GROWING_H

#include "train/run.h"

enum { TIDE_LOOP_VALUES = TIDE_INPUT_LIMIT + 8 };

typedef struct tide_growing_loop {
    tide_run *run;
    void *user;
    /* Plays one step, from 0. False after an error. */
    bool (*play)(void *user, int64_t step);
    /* What the loop holds between steps: every value that a step reads, frees or changes. Borrowed. How many. */
    uint32_t (*values)(void *user, tide_value *values);
    /* Puts others in their places, which is all: references stay as they are. */
    void (*exchange)(void *user, const tide_value *values);
} tide_growing_loop;

/* Plays steps 0 to count - 1, and those that follow from two of them once. False after an error. */
bool tide_play_growing(const tide_growing_loop *loop, int64_t count);

#endif
