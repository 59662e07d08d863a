/* SPDX-License-Identifier: Apache-2.0 */
/* Walking along the events of a recording with an allocator, and the stacks that an answer refers to. */
#ifndef TIDE_REPORT_RECORDED_WALK_H
#define TIDE_REPORT_RECORDED_WALK_H

#include "report/recording_report.h"

/* Stacks without duplicates. */
typedef struct tide_stack_table {
    const tide_recording *recording;
    uint32_t *number, *stacks, count; /* by stack: its index in the answer plus one */
} tide_stack_table;

tide_stack_table tide_stack_table_make(const tide_recording *r, tide_arena *arena);
uint32_t tide_stack_number(tide_stack_table *t, uint32_t stack);
/* "stacks" and "names". */
void tide_stack_table_write(tide_writer *w, const tide_stack_table *t);

typedef struct tide_recorded_walk {
    const tide_recorded_play *e;
    tide_player player;
    tide_event_cursor cursor;
    uint32_t *born, *site; /* by slot; site is TIDE_NO_REQUEST for an empty one */
    tide_event event;
    uint32_t at; /* its number */
} tide_recorded_walk;

/* False when host memory ran out. */
bool tide_recorded_walk_open(tide_recorded_walk *walk, const tide_recorded_play *e, tide_arena *arena);
/* Plays the next event; false at the end, if its request failed, and with !*is_good when host memory ran out. */
bool tide_recorded_walk_step(tide_recorded_walk *walk, bool *is_good);
/* Whether the event allocates or frees a block; for a free, born and site are valid until it is settled. */
bool tide_walk_begins(const tide_recorded_walk *walk);
bool tide_walk_ends(const tide_recorded_walk *walk);
void tide_walk_settle(tide_recorded_walk *walk);
/* The stack of the block in a slot. */
uint32_t tide_walk_stack(const tide_recorded_walk *walk, uint32_t slot);
void tide_recorded_walk_close(tide_recorded_walk *walk, tide_arena *arena);

#endif
