/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a layer of a pipeline to another stage. */
#ifndef TIDE_REPORT_MOVES_H
#define TIDE_REPORT_MOVES_H

#include "report/what_if.h"

enum { TIDE_MOVES_MOST = 4 };

typedef struct tide_move {
    uint32_t from, to; /* stages */
    const char *const *words;
    uint32_t count;
} tide_move;

/* From the stages of the rank that needs the most to adjacent stages on other ranks. Returns their number; 0 if no
 * ranks of a pipeline were played. */
uint32_t tide_moves_of(const tide_what_if *now, tide_arena *arena, tide_move moves[TIDE_MOVES_MOST]);

/* "moves" for a job whose ranks were played: the most that any rank would need after each. */
void tide_write_moves(tide_writer *w, const tide_query *q, const tide_run *run, const tide_job *job, uint64_t need);

#endif
