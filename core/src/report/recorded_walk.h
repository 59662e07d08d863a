/* SPDX-License-Identifier: Apache-2.0 */
/* A walk along a recording's events with the allocator beside it, and the stacks that an answer names. */
#ifndef TIDE_REPORT_RECORDED_WALK_H
#define TIDE_REPORT_RECORDED_WALK_H

#include "report/recording_report.h"

/* Stacks, each told once. */
typedef struct tide_stack_table {
    const tide_recording *recording;
    uint32_t *number, *stacks, count; /* by stack: its number plus one */
} tide_stack_table;

tide_stack_table tide_stack_table_make(const tide_recording *r, tide_arena *arena);
uint32_t tide_stack_number(tide_stack_table *t, uint32_t stack);
/* "stacks" and "names". */
void tide_stack_table_write(tide_writer *w, const tide_stack_table *t);

typedef struct tide_recorded_walk {
    const tide_recorded_play *e;
    tide_player player;
    tide_event_cursor cursor;
    uint32_t *born, *site; /* by slot; of an empty one site is TIDE_NO_REQUEST */
    tide_event event;
    uint32_t at; /* its number */
} tide_recorded_walk;

/* False when memory ran out. */
bool tide_recorded_walk_open(tide_recorded_walk *walk, const tide_recorded_play *e, tide_arena *arena);
/* The next event, played; false at the end, where a request could not be had, and with !*is_good when memory ran out.
 */
bool tide_recorded_walk_step(tide_recorded_walk *walk, bool *is_good);
/* Whether a block begins or ends with the event; of one that ends, born and site hold until it is settled. */
bool tide_walk_begins(const tide_recorded_walk *walk);
bool tide_walk_ends(const tide_recorded_walk *walk);
void tide_walk_settle(tide_recorded_walk *walk);
/* Of the block in a slot. */
uint32_t tide_walk_stack(const tide_recorded_walk *walk, uint32_t slot);
void tide_recorded_walk_close(tide_recorded_walk *walk, tide_arena *arena);

#endif
