/* SPDX-License-Identifier: Apache-2.0 */
/* Listing events. */
#ifndef TIDE_REPORT_EVENT_ROWS_H
#define TIDE_REPORT_EVENT_ROWS_H

#include "report/described_events.h"

/* A window: from the `first` of those that pass the filter, or with `has_at` around event `at`. */
enum { TIDE_WINDOW_ROWS = 100, TIDE_WINDOW_MOST = 500 };
typedef struct tide_window {
    tide_text filter; /* in the kind of the event, or in the description of its request */
    uint32_t first, count, at;
    bool has_at;
} tide_window;

/* Members of an answer: how many events there are and how many pass, and the rows of a window. False when host memory
 * ran out. */
bool tide_write_event_rows(tide_writer *w, const tide_described_events *events, const tide_replay_config *config,
                           const tide_window *window);

#endif
