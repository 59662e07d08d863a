/* SPDX-License-Identifier: Apache-2.0 */
/* Folding the steps of a loop that differ in what grows from one to the next, such as the keys and values of a
 * generation. Note [Growing] in growing.c */
#ifndef TIDE_TRAIN_GROWING_H
#define TIDE_TRAIN_GROWING_H

#include "train/run.h"

enum { TIDE_LOOP_VALUES = TIDE_INPUT_LIMIT + 8 };

typedef struct tide_growing_loop {
    tide_run *run;
    void *user;
    /* Plays a step, counted from 0. False after an error. */
    bool (*play)(void *user, int64_t step);
    /* Every value that a step reads, frees or changes; borrowed. Returns their number. */
    uint32_t (*values)(void *user, tide_value *values);
    /* Only replaces these values: references are not counted. */
    void (*exchange)(void *user, const tide_value *values);
} tide_growing_loop;

/* Plays steps 0 to count - 1, folding those that follow from two of them. False after an error. */
bool tide_play_growing(const tide_growing_loop *loop, int64_t count);

#endif
