/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence for each cause of a peak that users commonly overlook. */
#ifndef TIDE_REPORT_CAUSES_H
#define TIDE_REPORT_CAUSES_H

#include "report/job_report.h"

/* Warnings, for a training job that was played with block_bytes. */
void tide_report_causes(const tide_job_report *r, tide_diagnostics *diags);

#endif
