/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of recordings, one for each format: they take bytes as these come and put what they say on tapes. */
#ifndef TIDE_TRACE_READERS_H
#define TIDE_TRACE_READERS_H

#include "trace/recording.h"

typedef struct tide_recording_reader {
    const char *format; /* as answers name it */
    void (*open)(tide_recording *r);
    /* Reads what is whole, and returns how many bytes that was; what is left comes again with more behind it. */
    size_t (*read)(tide_recording *r, const unsigned char *at, size_t length, bool is_last);
    void (*close)(tide_recording *r); /* after the last byte, and when broken; NULL: nothing to do */
} tide_recording_reader;

extern const tide_recording_reader tide_tidemark_reader, tide_events_reader, tide_snapshot_reader, tide_profiler_reader;

#endif
