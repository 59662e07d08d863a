/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a job's run, described by allocations. */
#ifndef TIDE_REPORT_JOB_EVENTS_H
#define TIDE_REPORT_JOB_EVENTS_H

#include "report/described_events.h"
#include "train/train.h"

tide_described_events tide_job_events(tide_run *run);

#endif
