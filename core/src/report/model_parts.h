/* SPDX-License-Identifier: Apache-2.0 */
/* The model by its parts (the modules one level down), and what each holds. */
#ifndef TIDE_REPORT_MODEL_PARTS_H
#define TIDE_REPORT_MODEL_PARTS_H

#include "report/job_report.h"

/* A part of the model and what it holds, by factor. */
typedef struct tide_part_bytes {
    const char *part, *title; /* "" and "Outside of the model": what no module made */
    uint64_t factors[TIDE_FACTOR_COUNT];
} tide_part_bytes;

/* Bytes by part of what is live at the peak, in `arena`; parts that hold nothing are left out. */
tide_part_bytes *tide_parts_at_peak(const tide_job_report *r, uint32_t *count, tide_arena *arena);
/* The same by factor. */
void tide_factors_at_peak(const tide_job_report *r, uint64_t *factors);

/* "model": its name, its source, and how many parameters each part has. */
void tide_write_model(tide_job_report *r);
/* "breakdown": part x layer x factor of what is live at the peak; its sum is the peak. */
void tide_write_breakdown(tide_job_report *r);

#endif
