/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a torch.profiler trace: what stands between its reader and the tapes that are made of it. */
#ifndef TIDE_TRACE_PROFILER_TRACE_H
#define TIDE_TRACE_PROFILER_TRACE_H

#include "trace/recording.h"

enum { TRACE_THREADS = 1 << 10, TRACE_DEPTH = 1 << 9 };

typedef enum trace_kind { TRACE_SPAN, TRACE_MEMORY, TRACE_OOM } trace_kind;

/* Rows are not in order of time in the file, so all are held: 32 bytes each. */
typedef struct trace_row {
    uint64_t time;   /* nanoseconds */
    uint64_t extent; /* of a span: its nanoseconds; of a memory row: the address */
    int64_t bytes;   /* allocated, or freed where below 0; of a span: its name */
    uint32_t order;  /* in the file */
    uint16_t thread;
    uint8_t kind;
    int8_t device; /* -1: the host */
} trace_row;

/* The totals that a device's rows carry, at its first and last moment, and at most. */
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

/* The spans that are open on each thread, as rows come in order of time. */
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
    /* Called when a span ends; may be NULL. */
    void (*on_end)(struct trace_walk *walk, const trace_span *span);
} trace_walk;

/* Takes a row in: closes what has ended and opens a span. The stack that the row stands on. */
uint32_t tide_trace_step(trace_walk *walk, const trace_row *row);

/* In order of time, an outer span before those in it. */
void tide_trace_sort(tide_profiler_trace *trace);
/* Whether a row is of a GPU. */
bool tide_trace_has_device(const tide_profiler_trace *trace);
/* Rows in order of time, onto the tapes of their GPUs. */
void tide_trace_record(tide_recording *r, const tide_profiler_trace *trace);

#endif
