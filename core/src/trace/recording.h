/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a recording: a tape for each device, the stacks and texts that tapes refer to, and facts about the
 * recording itself. */
#ifndef TIDE_TRACE_RECORDING_H
#define TIDE_TRACE_RECORDING_H

#include "base/diagnostics.h"
#include "trace/tape.h"

enum {
    TIDE_RECORDING_DEVICES = 16,
    TIDE_RECORDING_NOTES = 16,
    TIDE_RECORDING_ITEM = 1 << 20 /* longest line, text or number, in bytes */
};

/* A frame and the stack that called it; 0 means no stack. */
typedef struct tide_stack {
    uint32_t parent, frame; /* frame: a name, "file:line function" */
} tide_stack;

/* Values of torch.cuda.memory_stats(). */
typedef struct tide_memory_stats {
    uint64_t allocated, reserved, allocated_peak, reserved_peak, retries, ooms;
} tide_memory_stats;

typedef struct tide_recording {
    tide_arena *arena;
    const char *format;          /* as in answers; NULL: not known yet */
    const char *broken, *remedy; /* NULL: everything was read */
    uint64_t broken_at;
    bool ends_early; /* only the end is missing */

    tide_tape tapes[TIDE_RECORDING_DEVICES];
    uint32_t device_count;
    tide_names names;
    tide_stack *stacks; /* from 1 */
    uint32_t stack_count, stack_capacity, *stack_table, stack_table_count;

    /* facts; 0 and NULL if not recorded */
    const char *source, *allocator;
    uint64_t device_bytes, outside_bytes;
    int64_t memory_fraction_ppm;
    bool never_retried; /* it states that no request ever emptied the cache */
    bool has_stats;
    tide_memory_stats stats;
    uint64_t unreadable; /* records that were skipped */
    bool is_cpu;         /* an estimate from a run without a GPU; its known differences: */
    const char *notes[TIDE_RECORDING_NOTES];
    uint32_t note_count;

    /* while reading */
    const struct tide_recording_reader *reader;
    void *state;                         /* for the reader */
    struct tide_profiler_trace *profile; /* of a torch.profiler trace, until it is on tapes */
    unsigned char *carry;
    size_t carry_length, carry_capacity;
    uint64_t offset; /* of the carry in the whole */
} tide_recording;

void tide_recording_init(tide_recording *r, tide_arena *arena);

/* NULL after an error: too many devices. */
tide_tape *tide_recording_tape(tide_recording *r, uint64_t device);
/* The stack of a frame called from `parent`; equal stacks have one number. Above the limit: `parent`. */
uint32_t tide_recording_stack(tide_recording *r, uint32_t parent, uint32_t frame);
/* Stops reading, at offset `at` of what read() was given. Returns `at`. */
size_t tide_recording_break(tide_recording *r, size_t at, const char *what, const char *remedy);
/* The facts of a header: a JSON object. */
void tide_recording_facts(tide_recording *r, tide_text json);

#endif
