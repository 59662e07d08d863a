/* The timeline through the allocator: peaks, phases, and who was live when. */
#ifndef TIDE_REPLAY_H
#define TIDE_REPLAY_H

#include "allocator/caching_allocator.h"
#include "allocator/timeline.h"

typedef struct tide_replay_config {
    tide_alloc_conf conf;
    uint64_t device_bytes;  /* 0: more than anything needs */
    uint64_t outside_bytes; /* in use outside of the allocator: the context */
    int64_t fraction_ppm;   /* set_per_process_memory_fraction, parts per million; 0: none */
} tide_replay_config;

/* The figures of one step, as a training script would read them from torch.cuda. Bytes. */
typedef struct tide_step_figures {
    uint64_t before;
    uint64_t peak_forward, after_forward, peak_backward, after_backward, peak_optimizer, after_step;
    uint64_t peak_prefill, after_prefill, peak_decode,
        after_decode; /* of inference, in place of the others; 0: no such phase */
    uint64_t allocated_peak, reserved_peak, reserved;
} tide_step_figures;

enum { TIDE_STEP_LIMIT = 16 };

typedef struct tide_replay {
    uint32_t events; /* events played: all, or those before the out-of-memory error */
    bool is_oom;
    tide_caching_oom oom;
    uint32_t oom_allocation; /* what could not be had */
    uint64_t allocated_peak, reserved_peak, requested_peak;
    uint32_t peak_event; /* the first event that reaches allocated_peak */
    uint32_t reserved_event;
    uint64_t retries, ooms;
    uint64_t small_segments, small_bytes, large_segments, large_bytes; /* held at the end */
    tide_step_figures steps[TIDE_STEP_LIMIT];
    uint32_t step_count;
    uint64_t *block_bytes;          /* by allocation: the block it got */
    uint64_t *allocated, *reserved; /* after each event; NULL unless asked for */
} tide_replay;

/* An allocator on the device of the configuration; a lean one counts no more than it must. False when memory ran out.
 */
bool tide_replay_allocator(tide_caching_allocator **allocator, tide_allocator memory, const tide_replay_config *config,
                           bool is_lean);

/* Plays the timeline. With `keeps_curve`, the curves are kept. False when memory ran out. */
bool tide_replay_timeline(tide_replay *replay, const tide_timeline *timeline, const tide_replay_config *config,
                          bool keeps_curve);

/* Plays the events from `first` up to and with `last` through an allocator; blocks[i] becomes the block of allocation i
 * while it lives, and 0 when it has died. False when memory ran out. */
bool tide_replay_span(tide_caching_allocator *allocator, const tide_timeline *timeline, uint32_t first, uint32_t last,
                      tide_block *blocks);

/* Gives what nobody claimed its factor: what a forward pass made and left alive is an activation. */
void tide_settle_factors(tide_timeline *timeline);

#endif
