/* SPDX-License-Identifier: Apache-2.0 */
/* The same events on other devices and with other allocator options. */
#ifndef TIDE_REPORT_ALLOCATOR_OPTIONS_H
#define TIDE_REPORT_ALLOCATOR_OPTIONS_H

#include "allocator/allocator.h"
#include "base/json_write.h"

/* Whether everything runs: no request fails, even if the program survived that. */
bool tide_replay_runs(const tide_replay *replay);

/* Below, `endless` is the result on a device without limit.
 *
 * The smallest device on which it runs, in bytes, including memory in use outside of the allocator. In steps of a
 * driver's page of 2 MiB, between what is requested and what is reserved on a device without limit. */
bool tide_smallest_device(uint64_t *bytes, const tide_event_source *source, const tide_replay_config *config,
                          const tide_replay *endless, tide_arena *arena);

/* How many events are played: for repetitions that grow or leave something alive each time, those of every iteration;
 * for others as many as were needed. */
uint64_t tide_events_to_play(const tide_event_source *source, const tide_replay *endless);

/* Members "options", what each of a few allocator options would reserve, if that can be determined in reasonable time,
 * and "advice", if one is worthwhile. `fits_now`: whether it runs as it is; `conf` is the text of config->conf.
 * is_brief: only expandable segments. */
bool tide_write_options(tide_writer *w, const tide_event_source *source, const tide_replay_config *config,
                        const tide_replay *endless, const char *conf, bool fits_now, bool is_brief);

#endif
