/* SPDX-License-Identifier: Apache-2.0 */
/* What a job comes to: its peak, whether it fits, the figures of its steps, and what lies beside them. */
#ifndef TIDE_REPORT_VERDICT_H
#define TIDE_REPORT_VERDICT_H

#include "report/job_report.h"

/* "peak"; brief: bytes alone, without where that is. */
void tide_write_peak(tide_job_report *r, bool is_brief);
void tide_write_ranks(tide_job_report *r);
/* "verdict", of on_card; brief: without sentence and failure. */
void tide_write_verdict(tide_job_report *r, bool is_brief);
/* "smallest_device_bytes", "options" and "advice": the events are played some twenty times. False when memory ran out.
 */
bool tide_write_card_options(tide_job_report *r, tide_diagnostics *diags);
/* "steps": what torch.cuda would say in each. */
void tide_write_steps(tide_job_report *r);
/* "outside": what the device holds besides what is allocated. */
void tide_write_outside(tide_job_report *r);
/* "besides", where there is any: NCCL's buffers and pinned memory of the host, which no verdict counts. */
void tide_write_besides(tide_job_report *r);

#endif
