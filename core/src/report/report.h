/* What a run means for people: JSON answers. */
#ifndef TIDE_REPORT_H
#define TIDE_REPORT_H

#include "base/json_write.h"
#include "report/replay.h"
#include "train/train.h"

/* Members of the answer to "estimate", written into the open object; with_options: the smallest device and other
 * options of the allocator too, which play the timeline some twenty times. False when memory ran out. */
bool tide_write_estimate(tide_writer *w, tide_run *run, const tide_job *job, tide_diagnostics *diags,
                         bool with_options);

/* Members of the answer to "measure": the peak and the verdict alone. */
bool tide_write_measure(tide_writer *w, tide_run *run, const tide_job *job);

/* The same without where that is: peak, and whether it fits. */
bool tide_write_cell(tide_writer *w, tide_run *run, const tide_job *job);

/* Members of the answer to "verify": the figures of an oracle's result. */
bool tide_write_figures(tide_writer *w, tide_run *run, const tide_job *job);

/* Which allocations an explanation is of. */
enum { TIDE_AT_PEAK = INT32_MAX };
typedef struct tide_filter {
    uint32_t event;                    /* those that are live after it; TIDE_AT_PEAK: the peak */
    const char *factor, *part, *layer; /* of a cell of the breakdown, by name; NULL: any */
    tide_text of;                      /* in the factor, module or operation; "": any */
} tide_filter;

/* Members of the answer to "explain": the allocations looked at, alike ones together, the largest first. */
bool tide_write_explanation(tide_writer *w, tide_run *run, const tide_job *job, const tide_filter *look);

/* Members of the answer to "timeline": the events from `from` up to `to`, and each of them where they are few. */
bool tide_write_events(tide_writer *w, tide_run *run, const tide_job *job, uint32_t from, uint32_t to);

/* How the job's timeline is replayed for its figures: without the card's limits. */
tide_replay_config tide_report_config(const tide_job *job);
/* What the device holds at the most: reserved, and what is outside of the allocator. */
uint64_t tide_report_device_bytes(const tide_job *job, const tide_replay *replay);
/* The replay on the card: another than the one without limits where these come into play. False when memory ran out. */
bool tide_report_on_card(tide_replay *on_card, const tide_run *run, const tide_job *job, const tide_replay *replay);
/* The line of the description that a statement is; NULL: none. */
const char *tide_report_line(const tide_run *run, uint32_t statement);
/* Members "dtype" and "shape" of an allocation. */
void tide_report_shape(tide_writer *w, tide_run *run, const tide_allocation *allocation);
/* Bytes by factor of what is live at an event. */
void tide_report_factors(const tide_timeline *timeline, const tide_replay *replay, uint32_t event, uint64_t *factors);

/* A part of the model (its modules one level down) and what it holds, by factor. */
typedef struct tide_part_bytes {
    const char *part, *title; /* "" and "Outside of the model": what no module made */
    uint64_t factors[TIDE_FACTOR_COUNT];
} tide_part_bytes;

/* Bytes by part of what is live at an event, in `arena`; parts that hold nothing are left out. */
tide_part_bytes *tide_report_parts(uint32_t *count, const tide_run *run, const tide_replay *replay, uint32_t event,
                                   tide_arena *arena);

void tide_write_diagnostics(tide_writer *w, const tide_diagnostics *diags, bool with_assumptions);

#endif
