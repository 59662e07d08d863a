/* Recordings of every kind become tapes, one for each device. Bytes come in pieces of any size.
 *
 *     tide_recording_init(&r, arena);
 *     while (bytes come) tide_recording_feed(&r, bytes, length);
 *     tide_recording_end(&r);
 *
 * Nothing in a recording is run or trusted. A recording that breaks off or goes wrong keeps what was read before, and
 * r.broken says what happened at r.broken_at. Memory: the tapes, the distinct stacks and texts, and TIDE_RECORDING_ITEM
 * for what is cut between two pieces. */
#ifndef TIDE_RECORDING_H
#define TIDE_RECORDING_H

#include "base/diagnostics.h"
#include "trace/tape.h"

enum {
    TIDE_RECORDING_DEVICES = 16,
    TIDE_RECORDING_NOTES = 16,
    TIDE_RECORDING_ITEM = 1 << 20,  /* bytes of the longest line, text or number */
    TIDE_RECORDING_PIECE = 64 << 10 /* a feed is read in pieces of this size */
};

/* A frame and the stack that called it; 0 is no stack. */
typedef struct tide_stack {
    uint32_t parent, frame; /* frame: a name, "file:line function" */
} tide_stack;

/* What PyTorch's statistics said. */
typedef struct tide_said {
    uint64_t allocated, reserved, allocated_peak, reserved_peak, retries, ooms;
} tide_said;

typedef struct tide_recording tide_recording;

typedef struct tide_reader {
    const char *format; /* as answers name it */
    void (*open)(tide_recording *r);
    /* Reads what is whole, and returns how many bytes that was; what is left comes again with more behind it. */
    size_t (*read)(tide_recording *r, const unsigned char *at, size_t length, bool is_last);
    void (*close)(tide_recording *r); /* after the last byte, and when broken; NULL: nothing to do */
} tide_reader;

extern const tide_reader tide_tide_reader, tide_events_reader, tide_snapshot_reader, tide_trace_reader;

struct tide_recording {
    tide_arena *arena;
    const tide_reader *reader; /* NULL: the kind is not known yet */
    void *state;               /* the reader's */
    unsigned char *carry;
    size_t carry_length, carry_capacity;
    uint64_t offset;             /* of the carry in the whole */
    const char *broken, *remedy; /* NULL: all was read */
    uint64_t broken_at;
    bool ends_early; /* it is the end that is missing */

    tide_tape tapes[TIDE_RECORDING_DEVICES];
    uint32_t device_count;
    tide_names names;
    tide_stack *stacks; /* from 1 */
    uint32_t stack_count, stack_capacity, *stack_slots, stack_slot_count;

    /* facts; 0 and NULL where the recording does not say */
    const char *source, *allocator;
    uint64_t device_bytes, outside_bytes;
    int64_t memory_fraction_ppm;
    bool never_retried; /* it says that no request ever emptied the cache */
    bool has_said;
    tide_said said;
    uint64_t unreadable; /* records that were passed over */
    bool is_cpu;         /* an estimate from a run without a GPU; what is known of its differences: */
    const char *notes[TIDE_RECORDING_NOTES];
    uint32_t note_count;
};

void tide_recording_init(tide_recording *r, tide_arena *arena);
void tide_recording_feed(tide_recording *r, const void *bytes, size_t length);
void tide_recording_end(tide_recording *r);

/* ---- for readers ---- */

/* NULL after an error: more devices than there can be. */
tide_tape *tide_recording_tape(tide_recording *r, uint64_t device);
/* The stack of a frame called from `parent`; equal ones are one. Past the limit: `parent`. */
uint32_t tide_recording_stack(tide_recording *r, uint32_t parent, uint32_t frame);
/* Ends the reading: `at` bytes into what read() was given. Returns `at`. */
size_t tide_recording_break(tide_recording *r, size_t at, const char *what, const char *remedy);
/* The facts of a header: a JSON object. */
void tide_recording_facts(tide_recording *r, tide_text json);

#endif
