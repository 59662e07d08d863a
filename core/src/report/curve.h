/* Memory over the events of a run: "timeline" of an answer. */
#ifndef TIDE_CURVE_H
#define TIDE_CURVE_H

#include "report/report.h"

/* The events [from, to) as at most 400 columns of equally many events, each at its maximum. Where every column is one
 * event, with what it is. The replay has its curves. */
void tide_write_timeline(tide_writer *w, const tide_run *run, const tide_replay *replay, uint32_t from, uint32_t to);

#endif
