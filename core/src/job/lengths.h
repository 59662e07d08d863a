/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of samples, and the batches that they come to. */
#ifndef TIDE_LENGTHS_H
#define TIDE_LENGTHS_H

#include "job/job.h"

enum { TIDE_LENGTHS_MOST = 65536, TIDE_QUANTILES_MOST = 256, TIDE_LENGTH_MOST = 10000000 };

/* NULL, or what must be so and is not. Empty text: none are set. */
const char *tide_lengths_read(tide_arena *arena, tide_text text, tide_lengths *lengths);
/* As text that reads the same. */
const char *tide_lengths_text(tide_arena *arena, const tide_lengths *lengths);
/* 0: none are set. */
int64_t tide_lengths_longest(const tide_lengths *lengths);
int64_t tide_lengths_shortest(const tide_lengths *lengths);

/* Whether batches are made of samples of different lengths: no inference is. */
bool tide_job_has_lengths(const tide_job *job);

/* Rows of a micro-batch: a pair is two. */
int64_t tide_job_rows(const tide_job *job);

/* A micro-batch of samples of different lengths, as a collator pads them. */
typedef struct tide_micro_batch {
    int64_t seq;                       /* tokens of a row */
    int64_t longest, shortest, tokens; /* of its samples, and of all of them together */
    int64_t scored;                    /* positions behind prompts, or behind the first token */
    bool is_padded;                    /* some row is not full: the mask has to be kept */
} tide_micro_batch;

/* Number `index` of the run, of a job whose lengths are set. */
tide_micro_batch tide_job_micro_batch(const tide_job *job, uint64_t index);

#endif
