/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of recordings, one per format: they accept bytes as they arrive and put events on tapes. */
#ifndef TIDE_TRACE_READERS_H
#define TIDE_TRACE_READERS_H

#include "trace/recording.h"

typedef struct tide_recording_reader {
    const char *format; /* as in answers */
    void (*open)(tide_recording *r);
    /* Reads complete items and returns the number of bytes used; the rest is passed again with more after it. */
    size_t (*read)(tide_recording *r, const unsigned char *at, size_t length, bool is_last);
    void (*close)(tide_recording *r); /* called after the last byte, and when broken; NULL: not needed */
} tide_recording_reader;

extern const tide_recording_reader tide_tidemark_reader, tide_events_reader, tide_snapshot_reader, tide_profiler_reader;

#endif
