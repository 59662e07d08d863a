/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of torch.profiler (export_chrome_trace): an object with "traceEvents", or just the array.
 *
 * Spans (operators, Python functions, annotations) give the stack of a thread; [memory] rows give allocations and frees
 * (pytorch torch/csrc/profiler/collection.cpp: written by OutputJson of libkineto). An event is read once it is
 * complete; everything else is skipped without being parsed. */
#include <string.h>

#include "trace/profiler_trace.h"
#include "trace/readers.h"

typedef enum trace_state { STATE_START, STATE_KEYS, STATE_EVENTS, STATE_END } trace_state;

typedef struct trace_file {
    trace_state state;
    bool is_bare; /* just the array */
    tide_profiler_trace *rows;
    uint64_t threads[TRACE_THREADS]; /* pid and tid */
    uint32_t thread_count;
} trace_file;

/* ---- text: a trace_cursor that says when it needs more ---- */

typedef struct trace_cursor {
    const char *at, *end;
    bool is_short; /* ran out of bytes */
    bool is_wrong;
} trace_cursor;

static bool wrong(trace_cursor *c) {
    c->is_wrong = true;
    return false;
}

static bool skip_blank(trace_cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t')) c->at++;
    if (c->at == c->end) c->is_short = true;
    return !c->is_short;
}

static bool take_character(trace_cursor *c, char mark) {
    if (!skip_blank(c)) return false;
    if (*c->at != mark) return wrong(c);
    c->at++;
    return true;
}

/* A string without its quotes; escapes are kept. */
static bool take_string(trace_cursor *c, tide_text *out) {
    if (!take_character(c, '"')) return false;
    const char *from = c->at;
    for (;;) {
        const char *quote = memchr(c->at, '"', (size_t)(c->end - c->at)), *back = quote;
        if (!quote) {
            c->is_short = true;
            return false;
        }
        while (back > from && back[-1] == '\\') back--;
        c->at = quote + 1;
        if ((quote - back) % 2 == 0) {
            *out = (tide_text){from, (size_t)(quote - from)};
            return true;
        }
    }
}

/* Any value. Brackets are counted, not matched: an event that is not valid JSON inside is skipped as well. */
static bool skip_value(trace_cursor *c) {
    uint32_t depth = 0;
    tide_text text;
    if (!skip_blank(c)) return false;
    do {
        char byte = *c->at;
        if (byte == '"') {
            if (!take_string(c, &text)) return false;
            continue;
        }
        if (depth == 0 && (byte == ',' || byte == '}' || byte == ']')) return true;
        if (byte == '{' || byte == '[') depth++;
        if (byte == '}' || byte == ']') depth--;
        c->at++;
        if (depth == 0 && (byte == '}' || byte == ']')) return true;
    } while (c->at < c->end || (c->is_short = true, false));
    return false;
}

/* A number, possibly quoted, in thousandths, rounded down; false if it is not a number. */
static bool thousandths(tide_text text, int64_t *out) {
    bool is_negative = text.length && *text.at == '-';
    uint64_t value = 0;
    int digits = -1; /* after the point */
    size_t i = is_negative;
    for (; i < text.length && digits < 3; i++) {
        char c = text.at[i];
        if (c == '.' && digits < 0) {
            digits = 0;
            continue;
        }
        if (c < '0' || c > '9' || value > (uint64_t)INT64_MAX / 10000 - 1) break;
        value = value * 10 + (uint64_t)(c - '0');
        if (digits >= 0) digits++;
    }
    if (i == (size_t)is_negative || (digits < 3 && i < text.length)) return false;
    for (digits = digits < 0 ? 0 : digits; digits < 3; digits++) value *= 10;
    *out = is_negative ? -(int64_t)value : (int64_t)value;
    return true;
}

/* A whole number, possibly quoted. */
static bool whole(tide_text text, int64_t *out) {
    if (text.length && *text.at == '"') text = (tide_text){text.at + 1, text.length - 2};
    return tide_text_to_i64(out, text);
}

/* The members of the object at the cursor, one at a time; false at its end, when bytes run out, and on errors. */
static bool next_member(trace_cursor *c, tide_text *key, tide_text *value) {
    if (!skip_blank(c)) return false;
    if (*c->at == ',') c->at++;
    if (!skip_blank(c)) return false;
    if (*c->at == '}') {
        c->at++;
        return false;
    }
    if (!take_string(c, key) || !take_character(c, ':') || !skip_blank(c)) return false;
    const char *from = c->at;
    if (!skip_value(c)) return false;
    const char *to = c->at;
    while (to > from && (to[-1] == ' ' || to[-1] == '\n' || to[-1] == '\r' || to[-1] == '\t')) to--;
    *value = (tide_text){from, (size_t)(to - from)};
    return true;
}

/* ---- events ---- */

typedef struct trace_event {
    tide_text phase, category, name, pid, tid, time, extent, arguments;
} trace_event;

static tide_text unquoted(tide_text value) {
    bool is_string = value.length >= 2 && *value.at == '"';
    return is_string ? (tide_text){value.at + 1, value.length - 2} : (tide_text){"", 0};
}

static bool read_event(trace_cursor *c, trace_event *e) {
    tide_text key, value;
    *e = (trace_event){0};
    if (!take_character(c, '{')) return false;
    while (next_member(c, &key, &value)) {
        if (tide_text_is(key, "ph"))
            e->phase = unquoted(value);
        else if (tide_text_is(key, "cat"))
            e->category = unquoted(value);
        else if (tide_text_is(key, "name"))
            e->name = unquoted(value);
        else if (tide_text_is(key, "pid"))
            e->pid = value;
        else if (tide_text_is(key, "tid"))
            e->tid = value;
        else if (tide_text_is(key, "ts"))
            e->time = value;
        else if (tide_text_is(key, "dur"))
            e->extent = value;
        else if (tide_text_is(key, "args"))
            e->arguments = value;
    }
    return !c->is_short && !c->is_wrong;
}

/* Threads past the limit share the last number. */
static uint16_t thread_of(trace_file *t, const trace_event *e) {
    int64_t pid = 0, tid = 0;
    whole(e->pid, &pid);
    whole(e->tid, &tid);
    uint64_t key = (uint64_t)pid << 32 ^ (uint64_t)tid;
    uint32_t i = 0;
    while (i < t->thread_count && t->threads[i] != key) i++;
    if (i == TRACE_THREADS) return TRACE_THREADS - 1;
    if (i == t->thread_count) t->threads[t->thread_count++] = key;
    return (uint16_t)i;
}

static void note_totals(trace_totals *totals, uint64_t time, int64_t bytes, int64_t allocated, int64_t reserved) {
    if (allocated < 0 || reserved < 0) return;
    if (!totals->has_any || time < totals->first_time) {
        totals->first_time = time;
        totals->allocated_before = allocated > bytes ? (uint64_t)(allocated - bytes) : 0;
    }
    if (!totals->has_any || time >= totals->last_time) {
        totals->last_time = time;
        totals->allocated = (uint64_t)allocated;
        totals->reserved = (uint64_t)reserved;
    }
    if ((uint64_t)allocated > totals->allocated_peak) totals->allocated_peak = (uint64_t)allocated;
    if ((uint64_t)reserved > totals->reserved_peak) totals->reserved_peak = (uint64_t)reserved;
    totals->has_any = true;
}

static bool read_memory(trace_file *t, tide_text arguments, trace_row *row) {
    tide_text key, value;
    int64_t address = 0, type = -1, id = -1, allocated = -1, reserved = -1;
    if (!arguments.length) return false;
    trace_cursor c = {.at = arguments.at, .end = arguments.at + arguments.length};
    if (!take_character(&c, '{')) return false;
    while (next_member(&c, &key, &value)) {
        if (tide_text_is(key, "Addr"))
            whole(value, &address);
        else if (tide_text_is(key, "Bytes"))
            whole(value, &row->bytes);
        else if (tide_text_is(key, "Device Type"))
            whole(value, &type);
        else if (tide_text_is(key, "Device Id"))
            whole(value, &id);
        else if (tide_text_is(key, "Total Allocated"))
            whole(value, &allocated);
        else if (tide_text_is(key, "Total Reserved"))
            whole(value, &reserved);
    }
    if (c.is_wrong || row->bytes == 0 || type < 0 || type > 1 ||
        (type == 1 && (id < 0 || id >= TIDE_RECORDING_DEVICES)))
        return false;
    row->extent = (uint64_t)address;
    row->device = type == 1 ? (int8_t)id : -1;
    if (type == 1 && row->kind == TRACE_MEMORY)
        note_totals(&t->rows->totals[id], row->time, row->bytes, allocated, reserved);
    return true;
}

static bool is_span(const trace_event *e) {
    return tide_text_is(e->category, "cpu_op") || tide_text_is(e->category, "python_function") ||
           tide_text_is(e->category, "user_annotation");
}

static void take_event(tide_recording *r, trace_file *t, const trace_event *e) {
    bool is_memory = tide_text_is(e->name, "[memory]"), is_oom = tide_text_is(e->name, "[OutOfMemory]");
    int64_t time, extent = 0;
    if (!is_memory && !is_oom && !(tide_text_is(e->phase, "X") && is_span(e))) return;
    if (!thousandths(e->time, &time) || time < 0 || (e->extent.length && !thousandths(e->extent, &extent)) ||
        t->rows->row_count == UINT32_MAX / 2) {
        r->unreadable++;
        return;
    }
    trace_row row = {.time = (uint64_t)time,
                     .extent = extent > 0 ? (uint64_t)extent : 0,
                     .order = t->rows->row_count,
                     .thread = thread_of(t, e),
                     .kind = is_memory ? TRACE_MEMORY
                             : is_oom  ? TRACE_OOM
                                       : TRACE_SPAN};
    if (row.kind == TRACE_SPAN)
        row.bytes = tide_name(&r->names, e->name);
    else if (!read_memory(t, e->arguments, &row)) {
        r->unreadable++;
        return;
    }
    tide_profiler_trace *rows = t->rows;
    TIDE_ROOM(r->arena, rows->rows, rows->row_count, rows->row_capacity);
    rows->rows[rows->row_count++] = row;
}

/* ---- the file ---- */

static void open_trace(tide_recording *r) {
    trace_file *t = r->state = TIDE_NEW(r->arena, trace_file, 1);
    t->rows = r->profile = TIDE_NEW(r->arena, tide_profiler_trace, 1);
}

/* One step: a key with its value, or an event. */
static void read_one(tide_recording *r, trace_file *t, trace_cursor *c) {
    tide_text key;
    trace_event e;
    if (t->state == STATE_START) {
        if (!skip_blank(c)) return;
        t->is_bare = *c->at == '[';
        t->state = t->is_bare ? STATE_EVENTS : STATE_KEYS;
        c->at++;
        return;
    }
    if (t->state == STATE_END) { /* blanks */
        c->at = c->end;
        return;
    }
    if (!skip_blank(c)) return;
    if (*c->at == ',') {
        c->at++;
        return;
    }
    if (t->state == STATE_EVENTS) {
        if (*c->at == ']') {
            c->at++;
            t->state = t->is_bare ? STATE_END : STATE_KEYS;
        } else if (read_event(c, &e)) {
            take_event(r, t, &e);
        }
        return;
    }
    if (*c->at == '}') {
        c->at++;
        t->state = STATE_END;
        return;
    }
    if (!take_string(c, &key)) return;
    if (!take_character(c, ':') || !skip_blank(c)) return;
    if (tide_text_is(key, "traceEvents") && *c->at == '[') {
        c->at++;
        t->state = STATE_EVENTS;
        return;
    }
    skip_value(c);
}

static size_t read_trace(tide_recording *r, const unsigned char *at, size_t length, bool is_last) {
    trace_file *t = r->state;
    const char *begin = (const char *)at;
    size_t used = 0;
    (void)is_last;
    while (used < length) {
        trace_cursor c = {.at = begin + used, .end = begin + length};
        read_one(r, t, &c);
        if (c.is_wrong) return tide_recording_break(r, used, "no JSON stands here", NULL);
        if (c.is_short) break;
        used = (size_t)(c.at - begin);
    }
    trace_cursor rest = {.at = begin + used, .end = begin + length};
    return skip_blank(&rest) ? used : length; /* whitespace needs nothing after it */
}

static void close_trace(tide_recording *r) {
    const trace_file *t = r->state;
    if (t->state != STATE_END) tide_recording_break(r, 0, "the trace ends before its last bracket", NULL);
}

const tide_recording_reader tide_profiler_reader = {"torch.profiler trace", open_trace, read_trace, close_trace};
