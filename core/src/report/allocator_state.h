/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the allocator at a moment: its segments, their blocks, and what is live. */
#ifndef TIDE_REPORT_ALLOCATOR_STATE_H
#define TIDE_REPORT_ALLOCATOR_STATE_H

#include "report/described_events.h"

/* The segment that contains an address; false: none. */
bool tide_segment_at(const tide_caching_allocator *allocator, uint64_t address, tide_segment_info *segment);

/* An address as shown in answers: relative to TIDE_DEVICE_BASE and modulo 16 TiB, so that it stays small and positive.
 */
int64_t tide_shown_address(uint64_t address);

typedef struct tide_state_query {
    uint32_t at;      /* after this event; TIDE_NEVER: the peak */
    tide_text filter; /* for the live blocks in the answer, as in tide_event_filter */
    bool has_segment;
    int64_t segment; /* its address as shown: lists its blocks one by one, at most 500 from first_block on */
    uint32_t first_block;
} tide_state_query;

/* Members of an answer: totals, segments with their blocks in cells (blocks too small to be drawn share a cell with
 * their neighbours), and the live blocks that pass the filter, equal ones together, largest first. False when host
 * memory ran out. */
bool tide_write_state(tide_writer *w, const tide_described_events *events, const tide_replay_config *config,
                      const tide_state_query *query);

#endif
