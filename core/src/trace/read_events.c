/* SPDX-License-Identifier: Apache-2.0 */
/* Event files of the recorder: a header line in JSON, then ["a", address, bytes, stream] and the like, one per line. */
#include <string.h>

#include "trace/readers.h"

typedef struct events_state {
    tide_tape *tape;
    uint64_t line;
} events_state;

static void open_events(tide_recording *r) {
    events_state *s = r->state = TIDE_NEW(r->arena, events_state, 1);
    s->tape = tide_recording_tape(r, 0);
}

/* Parses ["k",1,2,3] into its letter and up to three numbers; 0 if the line has another form. */
static char read_line(const char *at, const char *end, uint64_t *numbers) {
    char kind;
    if (end - at < 6 || at[0] != '[' || at[1] != '"' || at[3] != '"') return 0;
    kind = at[2];
    at += 4;
    for (int i = 0; at < end && *at == ','; i++) {
        uint64_t value = 0;
        const char *first = ++at;
        for (; at < end && *at >= '0' && *at <= '9' && value < UINT64_MAX / 10; at++)
            value = value * 10 + (uint64_t)(*at - '0');
        if (at == first || i == 3) return 0;
        numbers[i] = value;
    }
    return at + 1 == end && *at == ']' ? kind : 0;
}

static bool take_line(tide_tape *t, char kind, const uint64_t *n) {
    switch (kind) {
    case 'a':
        return tide_tape_alloc(t, n[0], n[1], n[2], 0);
    case 'f':
        tide_tape_free(t, n[0], 0, 0);
        return true;
    case 'c':
        tide_tape_free_completed(t, n[0]);
        return true;
    case 'S':
    case 'M':
        tide_tape_segment(t, false, n[1]);
        return true;
    case 's':
    case 'U':
        tide_tape_segment(t, true, n[1]);
        return true;
    case 'o':
        return tide_tape_oom(t, n[0], n[1], n[2], 0);
    default:
        return false;
    }
}

static size_t read_events(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    events_state *s = r->state;
    size_t used = 0;
    while (used < length) {
        const char *line = (const char *)at + used, *end = memchr(line, '\n', length - used);
        if (!end && !is_last) break;
        size_t size = end ? (size_t)(end - line) : length - used;
        const char *stop = line + size;
        while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ')) stop--;
        uint64_t numbers[3] = {0};
        if (s->line++ == 0)
            tide_recording_facts(r, (tide_text){line, (size_t)(stop - line)});
        else if (stop > line && !take_line(s->tape, read_line(line, stop, numbers), numbers))
            return tide_recording_break(
                r, used, tide_format(r->arena, "line %llu is no event", (unsigned long long)s->line), NULL);
        used += size + (end != NULL);
    }
    return used;
}

const tide_recording_reader tide_events_reader = {"event file", open_events, read_events, NULL};
