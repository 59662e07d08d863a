/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of a recording: a tape for each device, the stacks and texts that tapes name, and what the recording
 * says of itself. */
#ifndef TIDE_TRACE_RECORDING_H
#define TIDE_TRACE_RECORDING_H

#include "base/diagnostics.h"
#include "trace/tape.h"

enum {
    TIDE_RECORDING_DEVICES = 16,
    TIDE_RECORDING_NOTES = 16,
    TIDE_RECORDING_ITEM = 1 << 20 /* bytes of the longest line, text or number */
};

/* A frame and the stack that called it; 0 is no stack. */
typedef struct tide_stack {
    uint32_t parent, frame; /* frame: a name, "file:line function" */
} tide_stack;

/* What torch.cuda.memory_stats() said. */
typedef struct tide_memory_stats {
    uint64_t allocated, reserved, allocated_peak, reserved_peak, retries, ooms;
} tide_memory_stats;

typedef struct tide_recording {
    tide_arena *arena;
    const char *format;          /* as answers name it; NULL: not known yet */
    const char *broken, *remedy; /* NULL: all was read */
    uint64_t broken_at;
    bool ends_early; /* it is the end that is missing */

    tide_tape tapes[TIDE_RECORDING_DEVICES];
    uint32_t device_count;
    tide_names names;
    tide_stack *stacks; /* from 1 */
    uint32_t stack_count, stack_capacity, *stack_table, stack_table_count;

    /* facts; 0 and NULL where the recording does not say */
    const char *source, *allocator;
    uint64_t device_bytes, outside_bytes;
    int64_t memory_fraction_ppm;
    bool never_retried; /* it says that no request ever emptied the cache */
    bool has_stats;
    tide_memory_stats stats;
    uint64_t unreadable; /* records that were passed over */
    bool is_cpu;         /* an estimate from a run without a GPU; what is known of its differences: */
    const char *notes[TIDE_RECORDING_NOTES];
    uint32_t note_count;

    /* while it is read */
    const struct tide_recording_reader *reader;
    void *state;                         /* the reader's */
    struct tide_profiler_trace *profile; /* of a torch.profiler trace, until it is on tapes */
    unsigned char *carry;
    size_t carry_length, carry_capacity;
    uint64_t offset; /* of the carry in the whole */
} tide_recording;

void tide_recording_init(tide_recording *r, tide_arena *arena);

/* NULL after an error: more devices than there can be. */
tide_tape *tide_recording_tape(tide_recording *r, uint64_t device);
/* The stack of a frame called from `parent`; equal ones are one. Past the limit: `parent`. */
uint32_t tide_recording_stack(tide_recording *r, uint32_t parent, uint32_t frame);
/* Ends the reading: `at` bytes into what read() was given. Returns `at`. */
size_t tide_recording_break(tide_recording *r, size_t at, const char *what, const char *remedy);
/* The facts of a header: a JSON object. */
void tide_recording_facts(tide_recording *r, tide_text json);

#endif
