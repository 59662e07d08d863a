/* SPDX-License-Identifier: Apache-2.0 */
/* trace/: what a process requested from its GPU allocators, read from recordings. Snapshots of torch.cuda.memory,
 * traces of torch.profiler, event files and tidemark's own recordings (FORMAT.md) become tapes, one for each device:
 * requests and frees in order, four bytes per event, which report/ plays through the allocator.
 *
 *     tide_recording_init(&r, arena);
 *     while (there are bytes) tide_recording_feed(&r, bytes, length);
 *     tide_recording_end(&r);
 *
 * Bytes may arrive in pieces of any size. Nothing in a recording is executed or trusted. If it ends early or contains
 * an error, what was read before is kept, and r.broken says what happened at r.broken_at. Memory: the tapes, the
 * distinct stacks and texts, and TIDE_RECORDING_ITEM for what is split between two pieces. */
#ifndef TIDE_TRACE_TRACE_H
#define TIDE_TRACE_TRACE_H

#include "trace/recording.h"
#include "trace/tape_events.h"

void tide_recording_feed(tide_recording *r, const void *bytes, size_t length);
void tide_recording_end(tide_recording *r);

#endif
