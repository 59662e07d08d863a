/* SPDX-License-Identifier: Apache-2.0 */
/* The same events on other devices and with other allocator options. */
#ifndef TIDE_REPORT_ALLOCATOR_OPTIONS_H
#define TIDE_REPORT_ALLOCATOR_OPTIONS_H

#include "allocator/allocator.h"
#include "base/json_write.h"

/* Whether all of it runs: no request fails, whether or not the program survived it. */
bool tide_replay_runs(const tide_replay *replay);

/* Below, `endless` is what the events come to on a device without limit.
 *
 * The smallest device on which it runs, in bytes, what is in use outside of the allocator included. In
 * steps of a driver's page of 2 MiB, between what is asked for and what is reserved on a device without limit. */
bool tide_smallest_device(uint64_t *bytes, const tide_event_source *source, const tide_replay_config *config,
                          const tide_replay *endless, tide_arena *arena);

/* How many events are played: of repetitions that grow, or leave more behind each time, those of each iteration; of
 * others as many as it took. */
uint64_t tide_events_to_play(const tide_event_source *source, const tide_replay *endless);

/* Members "options", what each of a few allocator options would reserve, if that is known after a while, and "advice",
 * if one is worth a word. `fits_now`: whether it runs as it is; `conf` is the text of config->conf. is_brief:
 * expandable segments alone. */
bool tide_write_options(tide_writer *w, const tide_event_source *source, const tide_replay_config *config,
                        const tide_replay *endless, const char *conf, bool fits_now, bool is_brief);

#endif
