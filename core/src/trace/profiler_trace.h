/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a torch.profiler trace, between its reader and the tapes made from them. */
#ifndef TIDE_TRACE_PROFILER_TRACE_H
#define TIDE_TRACE_PROFILER_TRACE_H

#include "trace/recording.h"

enum { TRACE_THREADS = 1 << 10, TRACE_DEPTH = 1 << 9 };

typedef enum trace_kind { TRACE_SPAN, TRACE_MEMORY, TRACE_OOM } trace_kind;

/* Rows are not sorted by time in the file, so all are kept: 32 bytes each. */
typedef struct trace_row {
    uint64_t time;   /* nanoseconds */
    uint64_t extent; /* of a span: its duration in nanoseconds; of a memory row: the address */
    int64_t bytes;   /* allocated, or freed if negative; of a span: its name */
    uint32_t order;  /* position in the file */
    uint16_t thread;
    uint8_t kind;
    int8_t device; /* -1: the host */
} trace_row;

/* Totals in the rows of a device, at its first and last row, and their maximum. */
typedef struct trace_totals {
    bool has_any;
    uint64_t first_time, last_time;
    uint64_t allocated_before, allocated, reserved, allocated_peak, reserved_peak;
} trace_totals;

typedef struct tide_profiler_trace {
    trace_row *rows;
    uint32_t row_count, row_capacity;
    trace_totals totals[TIDE_RECORDING_DEVICES];
} tide_profiler_trace;

/* The open spans of each thread, while rows are processed in order of time. */
typedef struct trace_span {
    uint64_t end;
    uint32_t name, stack;
} trace_span;

typedef struct trace_thread {
    trace_span *spans;
    uint32_t count, capacity;
} trace_thread;

typedef struct trace_walk {
    tide_recording *r;
    trace_thread threads[TRACE_THREADS];
    /* Called at the end of a span; may be NULL. */
    void (*on_end)(struct trace_walk *walk, const trace_span *span);
} trace_walk;

/* Processes a row: closes spans that have ended, and opens one if it is a span. Returns the stack of the row. */
uint32_t tide_trace_step(trace_walk *walk, const trace_row *row);

/* By time, outer spans before inner ones. */
void tide_trace_sort(tide_profiler_trace *trace);
/* Whether any row belongs to a GPU. */
bool tide_trace_has_device(const tide_profiler_trace *trace);
/* Puts rows, sorted by time, on the tapes of their GPUs. */
void tide_trace_record(tide_recording *r, const tide_profiler_trace *trace);

#endif
