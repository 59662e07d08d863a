/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are live at an event. */
#ifndef TIDE_REPORT_TENSORS_H
#define TIDE_REPORT_TENSORS_H

#include "report/job_report.h"

/* Selects tensors. */
enum { TIDE_AT_PEAK = INT32_MAX };
typedef struct tide_filter {
    uint32_t event;                    /* live after this event; TIDE_AT_PEAK: at the peak */
    const char *factor, *part, *layer; /* a cell of the breakdown, by name; NULL: any */
    tide_text of;                      /* contained in the factor, module or operation; "": any */
} tide_filter;

/* "tensors": those live at the peak, equal ones together, the `limit` largest groups. */
void tide_write_tensors(tide_job_report *r, uint32_t limit);

/* Members of the answer to "explain": the selected tensors, equal ones together, largest first. False when host memory
 * ran out. */
bool tide_write_explanation(tide_writer *w, tide_run *run, const tide_job *job, const tide_filter *filter);

#endif
