/* SPDX-License-Identifier: Apache-2.0 */
/* Memory over the events of a job: "timeline" in answers. */
#ifndef TIDE_REPORT_TIMELINE_COLUMNS_H
#define TIDE_REPORT_TIMELINE_COLUMNS_H

#include "report/job_report.h"

enum { TIDE_COLUMNS = 400 };

/* Opens "timeline" and its "columns": of `events`, those from `from` up to `to`. */
void tide_open_columns(tide_writer *w, uint32_t events, uint32_t from, uint32_t to);

typedef struct tide_timeline_columns {
    tide_column *columns;
    uint32_t count, from, to;
} tide_timeline_columns;

/* Plays the report's run with the events [from, to) as at most TIDE_COLUMNS equal columns. False when host memory ran
 * out. */
bool tide_timeline_play(tide_timeline_columns *c, tide_job_report *r, uint32_t from, uint32_t to);

/* "timeline": each column at its maximum, by factor. If every column is a single event, and not all events are asked
 * for, with its description. */
void tide_write_timeline(tide_job_report *r, const tide_timeline_columns *c);

/* Members of the answer to "timeline". False when host memory ran out. */
bool tide_write_events(tide_writer *w, tide_run *run, const tide_job *job, uint32_t from, uint32_t to);

#endif
