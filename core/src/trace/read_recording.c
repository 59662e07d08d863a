/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format of a recording, and passes its bytes to the reader for it. */
#include <string.h>

#include "trace/cpu_estimate.h"
#include "trace/format.h"
#include "trace/profiler_trace.h"
#include "trace/readers.h"
#include "trace/trace.h"

enum { FEED_PIECE = 64 << 10 }; /* bytes passed to a reader at a time */

static bool is_json_blank(unsigned char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* For text starting with {: event files have a header line, followed by arrays. */
static const tide_recording_reader *format_of_text(const unsigned char *at, size_t length, bool is_last) {
    const unsigned char *line_end = memchr(at, '\n', length);
    if (!line_end) return is_last || length >= TIDE_RECORDING_ITEM ? &tide_profiler_reader : NULL;
    const unsigned char *last = line_end, *next = line_end + 1, *end = at + length;
    while (last > at && is_json_blank(last[-1])) last--;
    if (last == at || last[-1] != '}') return &tide_profiler_reader;
    while (next < end && is_json_blank(*next)) next++;
    if (next == end) return is_last ? &tide_events_reader : NULL;
    return *next == '[' ? &tide_events_reader : &tide_profiler_reader;
}

/* NULL: unknown, or not known yet. */
static const tide_recording_reader *format_of(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    size_t blank = 0;
    if (length < TIDE_RECORDING_MAGIC_BYTES && !is_last) return NULL;
    if (length >= 2 && at[0] == 0x80 && at[1] >= 2 && at[1] <= 5) return &tide_snapshot_reader;
    if (length >= TIDE_RECORDING_MAGIC_BYTES && !memcmp(at, TIDE_RECORDING_MAGIC, TIDE_RECORDING_MAGIC_BYTES))
        return &tide_tidemark_reader;
    while (blank < length && is_json_blank(at[blank])) blank++;
    if (blank < length && at[blank] == '[') return &tide_profiler_reader;
    if (blank < length && at[blank] == '{') return format_of_text(at + blank, length - blank, is_last);
    if (length >= 2 && at[0] == 0x1f && at[1] == 0x8b)
        tide_recording_break(r, 0, "the bytes are gzip", "decompress them first");
    else if (length == 0)
        tide_recording_break(r, 0, "the recording is empty", NULL);
    else
        tide_recording_break(
            r, 0, "no recording that tidemark reads",
            "give a snapshot of torch.cuda.memory, a trace of torch.profiler, or a tidemark recording");
    return NULL;
}

static void read_carry(tide_recording *r, bool is_last) {
    size_t used = 0;
    if (!r->reader && !r->broken) {
        r->reader = format_of(r, r->carry, r->carry_length, is_last);
        if (r->reader) {
            r->format = r->reader->format;
            r->reader->open(r);
        }
    }
    if (r->reader && !r->broken) used = r->reader->read(r, r->carry, r->carry_length, is_last);
    if (used > r->carry_length) used = r->carry_length;
    r->offset += used;
    r->carry_length -= used;
    if (used && r->carry_length) memmove(r->carry, r->carry + used, r->carry_length);
    if (r->carry_length >= TIDE_RECORDING_ITEM && !r->broken)
        tide_recording_break(r, 0, "an item is longer than 1 MiB", "is this file damaged?");
}

void tide_recording_feed(tide_recording *r, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    while (length && !r->broken) {
        size_t piece = length < FEED_PIECE ? length : FEED_PIECE;
        if (r->carry_capacity - r->carry_length < piece) {
            size_t grown = r->carry_capacity * 2 + FEED_PIECE;
            r->carry = tide_arena_grow(r->arena, r->carry, r->carry_capacity, grown);
            r->carry_capacity = grown;
        }
        memcpy(r->carry + r->carry_length, at, piece);
        r->carry_length += piece;
        at += piece;
        length -= piece;
        read_carry(r, false);
    }
}

/* A trace without rows of a GPU is from a run on the CPU. */
static void record_profile(tide_recording *r) {
    tide_profiler_trace *trace = r->profile;
    r->profile = NULL;
    if (!trace->row_count) return;
    tide_trace_sort(trace);
    if (tide_trace_has_device(trace))
        tide_trace_record(r, trace);
    else
        tide_cpu_estimate(r, trace);
    tide_arena_drop(r->arena, trace->rows);
}

void tide_recording_end(tide_recording *r) {
    bool was_broken = r->broken != NULL;
    if (!r->broken) read_carry(r, true);
    if (r->carry_length && !r->broken) tide_recording_break(r, 0, "the recording ends in the middle of an item", NULL);
    if (r->reader && r->reader->close) r->reader->close(r);
    if (r->profile) record_profile(r);
    r->ends_early = r->broken && !was_broken;
    for (uint32_t i = 0; i < r->device_count; i++) tide_tape_close(&r->tapes[i]);
    if (r->carry) tide_arena_drop(r->arena, r->carry);
    r->carry = NULL;
}
