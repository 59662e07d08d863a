/* SPDX-License-Identifier: Apache-2.0 */
/* Events one by one. */
#ifndef TIDE_REPORT_EVENT_ROWS_H
#define TIDE_REPORT_EVENT_ROWS_H

#include "report/described_events.h"

/* A part of a list of events: the `first` of those that pass, or where `has_at`, around event `at`. */
enum { TIDE_WINDOW_ROWS = 100, TIDE_WINDOW_MOST = 500 };
typedef struct tide_window {
    tide_text filter; /* in the kind of the event, or in what asked for its block */
    uint32_t first, count, at;
    bool has_at;
} tide_window;

/* Members of an answer: how many events there are and pass, and the rows of a window. False when memory ran out. */
bool tide_write_event_rows(tide_writer *w, const tide_described_events *events, const tide_replay_config *config,
                           const tide_window *window);

#endif
