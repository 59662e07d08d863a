/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose batches differ. */
#ifndef TIDE_REPORT_BATCHES_H
#define TIDE_REPORT_BATCHES_H

#include "report/job_report.h"

/* The micro-batches of a step. */
typedef struct tide_step_batches {
    int64_t seq, shortest; /* tokens of a row of the longest of them, and of its shortest sample */
    bool is_padded;        /* that one */
    uint32_t padded;       /* how many keep a mask */
} tide_step_batches;

/* Of a job whose lengths are set; steps count from 1. */
tide_step_batches tide_batches_of_step(const tide_job *job, uint32_t step);

/* "batches": why the peak is in its step, and the most of the steps with masks and of those without; nothing where all
 * batches are alike. */
void tide_write_batches(tide_job_report *r);

#endif
