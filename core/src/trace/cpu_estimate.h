/* SPDX-License-Identifier: Apache-2.0 */
/* A profile of a run without a GPU, as the allocations that the run would make on one. */
#ifndef TIDE_TRACE_CPU_ESTIMATE_H
#define TIDE_TRACE_CPU_ESTIMATE_H

#include "trace/profiler_trace.h"

/* Rows in order of time, onto the tape of device 0. What the estimate puts right, and what it cannot, are r->notes. */
void tide_cpu_estimate(tide_recording *r, const tide_profiler_trace *trace);

#endif
