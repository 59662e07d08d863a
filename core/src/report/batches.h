/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose batches differ. */
#ifndef TIDE_REPORT_BATCHES_H
#define TIDE_REPORT_BATCHES_H

#include "report/job_report.h"

/* The micro-batches of a step. */
typedef struct tide_step_batches {
    int64_t seq, shortest; /* tokens in a row of the longest one, and in its shortest sample */
    bool is_padded;        /* the longest one */
    uint32_t padded;       /* how many have a mask */
} tide_step_batches;

/* For a job with lengths; steps count from 1. */
tide_step_batches tide_batches_of_step(const tide_job *job, uint32_t step);

/* "batches": why the peak is in its step, and the maxima of steps with masks and of those without; nothing if all
 * batches are alike. */
void tide_write_batches(tide_job_report *r);

#endif
