/* The same events on other devices and with other allocator options. */
#ifndef TIDE_WHATIF_H
#define TIDE_WHATIF_H

#include "base/json_write.h"
#include "report/replay.h"

/* What one play came to. */
typedef struct tide_what_if {
    bool runs;
    uint64_t allocated_peak, reserved_peak, requested_peak, retries;
} tide_what_if;

/* Something that can be played: a timeline, a tape. False when memory ran out. */
typedef struct tide_event_source {
    bool (*play)(tide_what_if *trial, const void *of, const tide_replay_config *config);
    const void *of;
} tide_event_source;

/* The smallest device on which it runs, in bytes, what is in use outside of the allocator included. By bisection in
 * steps of a driver's page of 2 MiB, between what is asked for and what is reserved on a device without limit. */
bool tide_smallest_device(uint64_t *bytes, const tide_event_source *what, const tide_replay_config *config);

/* Members "options", what each of a few allocator options would reserve, and "advice", if one is worth a word.
 * `fits_now`: whether it runs as it is; `conf` is the text of config->conf. */
bool tide_write_options(tide_writer *w, const tide_event_source *what, const tide_replay_config *config,
                        const char *conf, bool fits_now);

#endif
