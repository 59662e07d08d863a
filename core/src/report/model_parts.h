/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the model (its top-level modules), and the memory of each. */
#ifndef TIDE_REPORT_MODEL_PARTS_H
#define TIDE_REPORT_MODEL_PARTS_H

#include "report/job_report.h"

/* A part of the model and its bytes by factor. */
typedef struct tide_part_bytes {
    const char *part, *title; /* "" and "Outside of the model": made by no module */
    uint64_t factors[TIDE_FACTOR_COUNT];
} tide_part_bytes;

/* Live bytes at the peak by part, in `arena`; parts without any are left out. */
tide_part_bytes *tide_parts_at_peak(const tide_job_report *r, uint32_t *count, tide_arena *arena);
/* The same by factor. */
void tide_factors_at_peak(const tide_job_report *r, uint64_t *factors);

/* "model": its name, its source, and the number of parameters of each part. */
void tide_write_model(tide_job_report *r);
/* "breakdown": live bytes at the peak by part, layer and factor; their sum is the peak. */
void tide_write_breakdown(tide_job_report *r);

#endif
