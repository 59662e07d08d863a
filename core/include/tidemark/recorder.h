/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a tidemark recording: the requests of a process to its GPU allocators, in order, for `tidemark replay`.
 *
 *     static tide_recorder recorder;                          (33 KiB; no other memory is used)
 *     tide_recorder_begin(&recorder, append_to_file, &file, "{\"source\":\"tidemark check\"}");
 *     uint32_t stack = tide_recorder_frame(&recorder, 0, "train.py:12 train", 17);
 *     tide_recorder_alloc(&recorder, address, bytes, stream, stack);
 *     tide_recorder_flush(&recorder);                         (now and then: flushed records survive a crash)
 *     tide_recorder_end(&recorder);
 *
 * The file is a magic number followed by blocks, each with its length and CRC-32; it is only appended to, so that a
 * process that dies at any byte loses only the block being written. docs: core/src/trace/FORMAT.md. A recorder serves
 * one device and one thread at a time: callers lock. */
#ifndef TIDEMARK_RECORDER_H
#define TIDEMARK_RECORDER_H

#include <stdbool.h>

#include "tidemark.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TIDE_RECORDER_BLOCK = 32 << 10, TIDE_RECORDER_TEXT = 4 << 10 };

/* Appends all of the bytes, or returns false: then the recording ends. Only called with complete blocks. */
typedef bool tide_recorder_sink(void *user, const void *bytes, size_t length);

typedef struct tide_recorder {
    tide_recorder_sink *sink;
    void *user;
    bool has_failed; /* the sink returned false: everything after is dropped */
    uint32_t length; /* of the payload in the buffer */
    uint32_t frames;
    uint64_t address, time_us; /* of the last record of this block; 0 at its start */
    uint64_t written;          /* bytes passed to the sink */
    unsigned char buffer[8 + TIDE_RECORDER_BLOCK];
} tide_recorder;

/* An action of a driver or an allocator, by its letter in the file. */
typedef enum tide_recorder_event {
    TIDE_RECORDED_SEGMENT_ALLOC = 'S', /* cudaMalloc */
    TIDE_RECORDED_SEGMENT_FREE = 's',
    TIDE_RECORDED_SEGMENT_MAP = 'M', /* pages of an expandable segment */
    TIDE_RECORDED_SEGMENT_UNMAP = 'U'
} tide_recorder_event;

/* `facts` is a JSON object: "source", "device", "device_bytes", "outside_bytes", "allocator" (PYTORCH_CUDA_ALLOC_CONF),
 * "memory_fraction_ppm", "torch", "rank", ...; unknown keys are kept. NULL: none. May be called again later. */
bool tide_recorder_begin(tide_recorder *r, tide_recorder_sink *sink, void *user, const char *facts);
void tide_recorder_facts(tide_recorder *r, const char *facts);

/* A frame "file:line function" called from the stack `parent` (0: the outermost). Returns the new stack, from 1. Adding
 * the same frame twice makes two stacks: the caller must remember them. */
uint32_t tide_recorder_frame(tide_recorder *r, uint32_t parent, const char *text, size_t length);

/* A request of `bytes` that returned `address`; `stream` is a small number, 0 the default stream. */
void tide_recorder_alloc(tide_recorder *r, uint64_t address, uint64_t bytes, uint32_t stream, uint32_t stack);
void tide_recorder_free(tide_recorder *r, uint64_t address);
/* A free whose block waits for other streams, and the end of the wait. */
void tide_recorder_free_pending(tide_recorder *r, uint64_t address);
void tide_recorder_free_completed(tide_recorder *r, uint64_t address);
/* A request that failed; `free_bytes` of the device at that moment. */
void tide_recorder_oom(tide_recorder *r, uint64_t free_bytes, uint64_t bytes, uint32_t stream, uint32_t stack);
void tide_recorder_segment(tide_recorder *r, tide_recorder_event what, uint64_t address, uint64_t bytes,
                           uint32_t stream);
void tide_recorder_empty_cache(tide_recorder *r);

/* Microseconds since the start, for the records that follow. */
void tide_recorder_time(tide_recorder *r, uint64_t microseconds);
/* The end of a phase of a step (from 1; 0: loading): "load", "forward", "backward", "optimizer" by number from 0. */
void tide_recorder_mark(tide_recorder *r, uint32_t step, uint32_t phase);
/* Device memory in use outside of the allocator from here on: context, libraries, other processes. */
void tide_recorder_outside(tide_recorder *r, uint64_t bytes);
/* PyTorch's own statistics at this point. */
void tide_recorder_statistics(tide_recorder *r, uint64_t allocated, uint64_t reserved, uint64_t allocated_peak,
                              uint64_t reserved_peak, uint64_t retries, uint64_t ooms);

/* False after the sink has failed. end() states that the process ended normally; the recorder may then be reused. */
bool tide_recorder_flush(tide_recorder *r);
bool tide_recorder_end(tide_recorder *r);

#ifdef __cplusplus
}
#endif

#endif
