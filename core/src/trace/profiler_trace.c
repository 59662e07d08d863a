/* SPDX-License-Identifier: Apache-2.0 */
/* Converting the rows of a torch.profiler trace to tapes. */
#include "trace/profiler_trace.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b) {
    const trace_row *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->kind == TRACE_SPAN && x->extent != y->extent)
        return x->extent > y->extent ? -1 : 1; /* the outer one first */
    return x->order < y->order ? -1 : x->order > y->order;
}

static void end_spans(trace_walk *walk, trace_thread *thread, uint64_t time) {
    while (thread->count && thread->spans[thread->count - 1].end <= time) {
        trace_span ended = thread->spans[--thread->count];
        if (walk->on_end) walk->on_end(walk, &ended);
    }
}

uint32_t tide_trace_step(trace_walk *walk, const trace_row *row) {
    trace_thread *thread = &walk->threads[row->thread];
    end_spans(walk, thread, row->time);
    uint32_t stack = thread->count ? thread->spans[thread->count - 1].stack : 0;
    if (row->kind != TRACE_SPAN || thread->count == TRACE_DEPTH) return stack;
    stack = tide_recording_stack(walk->r, stack, (uint32_t)row->bytes);
    TIDE_ROOM(walk->r->arena, thread->spans, thread->count, thread->capacity);
    thread->spans[thread->count++] = (trace_span){row->time + row->extent, (uint32_t)row->bytes, stack};
    return stack;
}

static void record_memory(tide_recording *r, const trace_row *row, uint32_t stack) {
    tide_tape *tape = tide_recording_tape(r, (uint64_t)row->device);
    tide_tape_time_is(tape, row->time / 1000);
    if (row->kind == TRACE_OOM)
        tide_tape_oom(tape, UINT64_MAX, (uint64_t)row->bytes, 0, stack);
    else if (row->bytes > 0)
        tide_tape_alloc(tape, row->extent, (uint64_t)row->bytes, 0, stack);
    else
        tide_tape_free(tape, row->extent, 0 - (uint64_t)row->bytes, 0);
}

/* What the totals include before the first row, without a row of its own, is alive throughout: one block stands for it.
 */
static void add_silent(tide_tape *tape, const trace_totals *totals) {
    uint64_t known = 0;
    for (uint32_t i = 0; i < tape->older_block_count; i++) known += tape->sites[tape->older_blocks[i].site].bytes;
    if (totals->allocated_before > known)
        tide_tape_older_block(tape, UINT64_MAX - 511, totals->allocated_before - known, 0, 0);
    if (totals->reserved_peak > tape->reserved_peak) tape->reserved_peak = totals->reserved_peak;
}

/* The totals of the busiest device become those of the recording. */
static void take_totals(tide_recording *r, const tide_profiler_trace *t) {
    for (uint32_t i = 0; i < r->device_count; i++) {
        const trace_totals *totals = &t->totals[i];
        if (!totals->has_any) continue;
        add_silent(&r->tapes[i], totals);
        if (r->has_stats && totals->reserved_peak <= r->stats.reserved_peak) continue;
        r->has_stats = true;
        r->stats = (tide_memory_stats){
            totals->allocated, totals->reserved, totals->allocated_peak, totals->reserved_peak, 0, 0};
    }
}

void tide_trace_sort(tide_profiler_trace *t) {
    if (t->row_count) qsort(t->rows, t->row_count, sizeof *t->rows, by_time);
}

bool tide_trace_has_device(const tide_profiler_trace *t) {
    for (uint32_t i = 0; i < t->row_count; i++)
        if (t->rows[i].kind != TRACE_SPAN && t->rows[i].device >= 0) return true;
    return false;
}

void tide_trace_record(tide_recording *r, const tide_profiler_trace *t) {
    trace_walk *walk = TIDE_NEW(r->arena, trace_walk, 1);
    walk->r = r;
    for (uint32_t i = 0; i < t->row_count; i++) {
        uint32_t stack = tide_trace_step(walk, &t->rows[i]);
        if (t->rows[i].kind != TRACE_SPAN && t->rows[i].device >= 0) record_memory(r, &t->rows[i], stack);
    }
    take_totals(r, t);
}
