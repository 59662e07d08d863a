/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a job: its peak, whether it fits, the figures of its steps, and memory beside them. */
#ifndef TIDE_REPORT_VERDICT_H
#define TIDE_REPORT_VERDICT_H

#include "report/job_report.h"

/* "peak"; brief: only bytes, without its place. */
void tide_write_peak(tide_job_report *r, bool is_brief);
void tide_write_ranks(tide_job_report *r);
/* "verdict" from on_card; brief: without sentence and failure. */
void tide_write_verdict(tide_job_report *r, bool is_brief);
/* "smallest_device_bytes", "options" and "advice": plays the events some twenty times. False when host memory ran out.
 */
bool tide_write_card_options(tide_job_report *r, tide_diagnostics *diags);
/* "steps": what torch.cuda would report in each. */
void tide_write_steps(tide_job_report *r);
/* "outside": device memory besides what is allocated. */
void tide_write_outside(tide_job_report *r);
/* "besides", if there is any: NCCL's buffers and pinned host memory, which no verdict includes. */
void tide_write_besides(tide_job_report *r);

#endif
