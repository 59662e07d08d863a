/* SPDX-License-Identifier: Apache-2.0 */
/* trace/: what a process asked of its GPU allocators, read from the files that record it. Snapshots of
 * torch.cuda.memory, traces of torch.profiler, event files and tidemark's own recordings (FORMAT.md) become tapes, one
 * for each device: requests and frees in order, four bytes an event, that report/ plays through the allocator.
 *
 *     tide_recording_init(&r, arena);
 *     while (bytes come) tide_recording_feed(&r, bytes, length);
 *     tide_recording_end(&r);
 *
 * Bytes come in pieces of any size. Nothing in a recording is run or trusted. One that breaks off or goes wrong keeps
 * what was read before, and r.broken says what happened at r.broken_at. Memory: the tapes, the distinct stacks and
 * texts, and TIDE_RECORDING_ITEM for what is cut between two pieces. */
#ifndef TIDE_TRACE_TRACE_H
#define TIDE_TRACE_TRACE_H

#include "trace/recording.h"
#include "trace/tape_events.h"

void tide_recording_feed(tide_recording *r, const void *bytes, size_t length);
void tide_recording_end(tide_recording *r);

#endif
