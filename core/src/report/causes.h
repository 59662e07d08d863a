/* SPDX-License-Identifier: Apache-2.0 */
/* What a peak is made of where people look elsewhere for it, in one sentence each. */
#ifndef TIDE_REPORT_CAUSES_H
#define TIDE_REPORT_CAUSES_H

#include "report/job_report.h"

/* Warnings, of a training job whose play knows what each slot holds. */
void tide_report_causes(const tide_job_report *r, tide_diagnostics *diags);

#endif
