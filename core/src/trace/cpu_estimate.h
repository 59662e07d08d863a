/* SPDX-License-Identifier: Apache-2.0 */
/* A profile recorded without a GPU, converted to the allocations that the run would make on one. */
#ifndef TIDE_TRACE_CPU_ESTIMATE_H
#define TIDE_TRACE_CPU_ESTIMATE_H

#include "trace/profiler_trace.h"

/* Puts rows, sorted by time, on the tape of device 0. r->notes lists what was corrected and what cannot be. */
void tide_cpu_estimate(tide_recording *r, const tide_profiler_trace *trace);

#endif
