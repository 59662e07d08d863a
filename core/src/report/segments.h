/* The allocator at a moment: its segments, the blocks in them, and what is alive. */
#ifndef TIDE_SEGMENTS_H
#define TIDE_SEGMENTS_H

#include "allocator/caching_allocator.h"
#include "base/json_write.h"

/* The segment that an address lies in; false: none. */
bool tide_segment_at(const tide_caching_allocator *allocator, uint64_t address, tide_segment_info *segment);

/* An address as answers give it: from TIDE_DEVICE_BASE on, and around at 16 TiB, so that it stays small and positive.
 */
int64_t tide_shown_address(uint64_t address);

/* Who holds the live blocks. */
typedef struct tide_holders {
    const void *of;
    const uint32_t *by_block; /* the holder plus one; 0: nobody that is known */
    uint32_t block_count;     /* of by_block */
    uint64_t (*requested)(const void *of, uint32_t holder);
    uint32_t (*born)(const void *of, uint32_t holder); /* its event; TIDE_NEVER: it was there before the first */
    uint64_t (*kind)(const void *of,
                     uint32_t holder); /* equal for those that are told together where their blocks are equal */
    bool (*passes)(const void *of, uint32_t holder);                      /* the request's filter */
    void (*write_brief)(tide_writer *w, const void *of, uint32_t holder); /* members that tell it from others */
    void (*write)(tide_writer *w, const void *of, uint32_t holder);       /* all members that are known */
} tide_holders;

typedef struct tide_state_wants {
    bool has_segment;
    int64_t segment; /* its address as shown: its blocks one by one, at most 500 from first_block on */
    uint32_t first_block;
} tide_state_wants;

/* Members of the answer to "state": sums, segments with their blocks in cells (blocks too small to be drawn are one
 * cell with their neighbours), the live blocks that pass, equal ones together, those that hold most first. The
 * allocator's memory is the writer's arena's: writing may leave by it. */
void tide_write_state(tide_writer *w, const tide_caching_allocator *allocator, const tide_holders *holders,
                      const tide_state_wants *wants);

/* One event as answers to "events" show it; what it is of follows, and the bracket. */
typedef struct tide_event_row {
    uint32_t event,
        other;        /* other: that takes what this one frees, or frees what it takes; TIDE_NEVER: there is none */
    const char *kind; /* alloc, free, wait, back, oom, empty_cache */
    bool is_played, has_block, has_request;
    uint64_t bytes, requested, address, segment, allocated, reserved;
    uint32_t stream;
} tide_event_row;

void tide_open_event(tide_writer *w, const tide_event_row *row);

/* A part of a list of events: the `first` of those that pass, or where `has_at`, around event `at`. */
enum { TIDE_WINDOW_ROWS = 100, TIDE_WINDOW_MOST = 500 };
typedef struct tide_window {
    tide_text filter;
    uint32_t first, count, at;
    bool has_at;
} tide_window;

/* What a window comes to where `passing` events pass, `before` of them before event `at`: its first. */
uint32_t tide_window_first(const tide_window *window, uint32_t passing, uint32_t before);

#endif
