/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two streams of requests and frees.
 *
 * The size of each request and of each freed block is compared, in order. Where they differ, the shortest detour is
 * searched after which they agree again for a while; what is on it is only predicted, or only recorded. */
#include "report/alignment.h"

#include "base/units.h"
#include "report/allocations.h"
#include "report/job_events.h"
#include "report/members.h"
#include "report/recorded_events.h"
#include "report/recording_report.h"

enum {
    AGREE = 12,    /* events that must be equal before two streams count as aligned again */
    DETOUR = 3000, /* most events on a detour, of both sides */
    PARTINGS = 20, /* reported */
    SHOWN = 6,     /* shown events of each side */
    ENOUGH = 200   /* partings: streams with more are not from the same program */
};

/* A request (bytes > 0) or free, with the request that it belongs to. */
typedef struct aligned {
    int64_t bytes;
    uint32_t of;
} aligned;

/* A prediction, or a recording. */
typedef struct aligned_side {
    tide_described_events events;
    void (*write)(tide_writer *w, const struct aligned_side *side,
                  const aligned *event); /* writes what it belongs to */
    aligned *list;
    uint32_t count, capacity;
} aligned_side;

/* Reads requests and frees. A trace has blocks rather than requests, so both sides are rounded as by the allocator. */
static void read_side(aligned_side *side, tide_arena *arena) {
    const tide_event_source *source = &side->events.source;
    tide_event_cursor cursor;
    tide_cursor_open(&cursor, source, arena);
    for (uint32_t i = 0; i < source->event_count; i++) {
        tide_event e = tide_cursor_next(&cursor);
        uint64_t bytes = e.slot == TIDE_NO_SLOT ? 0 : side->events.description->asked(&side->events, e.request).bytes;
        int64_t rounded = (int64_t)TIDE_ROUND_UP(bytes, 512);
        if (!bytes) continue;
        TIDE_ROOM(arena, side->list, side->count, side->capacity);
        side->list[side->count++] = (aligned){e.kind == TIDE_EVENT_ALLOC ? rounded : -rounded, e.request};
    }
    tide_cursor_close(&cursor, arena);
}

static const tide_allocation *allocation_at(const aligned_side *side, const aligned *event) {
    const tide_run *run = side->events.of;
    return tide_timeline_at(&run->machine.timeline, event->of);
}

static void write_predicted(tide_writer *w, const aligned_side *side, const aligned *event) {
    const tide_allocation *a = allocation_at(side, event);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "module", tide_module_path(side->events.of, a));
    tide_write_string_at(w, "op", a->op ? a->op : "");
}

static void write_recorded(tide_writer *w, const aligned_side *side, const aligned *event) {
    tide_write_key(w, "frame");
    const tide_tape *tape = side->events.source.of;
    tide_write_text(w, tide_frame_of(side->events.of, tape->sites[event->of].stack));
}

/* ---- partings ---- */

static bool meets(const aligned_side *a, uint32_t i, const aligned_side *b, uint32_t j) {
    for (uint32_t k = 0; k < AGREE; k++) {
        if (i + k == a->count || j + k == b->count) return i + k == a->count && j + k == b->count;
        if (a->list[i + k].bytes != b->list[j + k].bytes) return false;
    }
    return true;
}

/* How far each side must advance until they agree; false, with everything to the ends, if no detour of at most `most`
 * is found. */
static bool find_meeting(const aligned_side *a, uint32_t i, const aligned_side *b, uint32_t j, uint32_t most,
                         uint32_t *skip_a, uint32_t *skip_b) {
    for (uint32_t both = 1; both <= most; both++)
        for (uint32_t of_a = 0; of_a <= both; of_a++) {
            if (i + of_a > a->count || j + both - of_a > b->count || !meets(a, i + of_a, b, j + both - of_a)) continue;
            *skip_a = of_a;
            *skip_b = both - of_a;
            return true;
        }
    *skip_a = a->count - i;
    *skip_b = b->count - j;
    return false;
}

/* Whether both sides of a detour have the same events in different order. */
static bool same_events(const aligned *a, uint32_t count, const aligned *b, uint32_t other_count) {
    if (count != other_count || count > AGREE * 4) return false;
    for (uint32_t i = 0; i < count; i++) {
        int balance = 0;
        for (uint32_t k = 0; k < count; k++) balance += (a[k].bytes == a[i].bytes) - (b[k].bytes == a[i].bytes);
        if (balance) return false;
    }
    return true;
}

typedef struct alignment {
    aligned_side predicted, recorded;
    uint32_t same, partings;
    uint32_t only_predicted, only_recorded;              /* events */
    uint64_t factors[TIDE_FACTOR_COUNT], recorded_bytes; /* of requests on detours */
    bool has_lost;                                       /* they did not align again */
} alignment;

/* A place where the sides part: the next events, and how many of them belong to only one side. */
typedef struct parting {
    uint32_t at, recorded_at, skip, recorded_skip;
} parting;

static void count_parting(alignment *a, const parting *p) {
    const aligned *events = &a->predicted.list[p->at], *recorded = &a->recorded.list[p->recorded_at];
    for (uint32_t k = 0; k < p->skip; k++)
        if (events[k].bytes > 0)
            a->factors[allocation_at(&a->predicted, &events[k])->factor] += (uint64_t)events[k].bytes;
    for (uint32_t k = 0; k < p->recorded_skip; k++)
        if (recorded[k].bytes > 0) a->recorded_bytes += (uint64_t)recorded[k].bytes;
    a->only_predicted += p->skip;
    a->only_recorded += p->recorded_skip;
    a->partings++;
}

static void write_aligned_side(tide_writer *w, const char *key, const aligned_side *side, uint32_t at, uint32_t count) {
    tide_write_open_at(w, key, '[');
    for (uint32_t k = 0; k < count && k < SHOWN; k++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "bytes", side->list[at + k].bytes);
        side->write(w, side, &side->list[at + k]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void write_parting(tide_writer *w, const alignment *a, const parting *p) {
    tide_write_open(w, '{');
    tide_write_int_at(w, "at", p->at);
    tide_write_int_at(w, "recorded_at", p->recorded_at);
    tide_write_int_at(w, "predicted_count", p->skip);
    tide_write_int_at(w, "recorded_count", p->recorded_skip);
    tide_write_bool_at(
        w, "is_order",
        same_events(&a->predicted.list[p->at], p->skip, &a->recorded.list[p->recorded_at], p->recorded_skip));
    write_aligned_side(w, "predicted", &a->predicted, p->at, p->skip);
    write_aligned_side(w, "recorded", &a->recorded, p->recorded_at, p->recorded_skip);
    tide_write_close(w, '}');
}

/* "partings": each with the events of both sides. */
static void write_partings(tide_writer *w, alignment *a) {
    const aligned_side *one = &a->predicted, *other = &a->recorded;
    uint32_t i = 0, j = 0;
    tide_write_open_at(w, "partings", '[');
    while (i < one->count || j < other->count) {
        if (i < one->count && j < other->count && one->list[i].bytes == other->list[j].bytes) {
            a->same++, i++, j++;
            continue;
        }
        parting p = {.at = i, .recorded_at = j};
        if (!find_meeting(one, i, other, j, a->partings < ENOUGH ? DETOUR : 0, &p.skip, &p.recorded_skip))
            a->has_lost = true;
        if (a->partings < PARTINGS) write_parting(w, a, &p);
        count_parting(a, &p);
        i += p.skip;
        j += p.recorded_skip;
    }
    tide_write_close(w, ']');
}

/* ---- the answer ---- */

static void write_peaks(tide_writer *w, const char *key, const tide_replay *replay) {
    tide_write_open_at(w, key, '{');
    tide_write_bytes_at(w, "allocated_peak", replay->allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", replay->reserved_peak);
    tide_write_close(w, '}');
}

bool tide_write_alignment(tide_writer *w, tide_run *run, tide_recording *r, const tide_job *job, int64_t device,
                          tide_diagnostics *diags) {
    tide_recorded_play e;
    tide_replay predicted, recorded;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    alignment a = {.predicted = {.events = tide_job_events(run), .write = write_predicted},
                   .recorded = {.events = e.events, .write = write_recorded}};
    if (!tide_replay_peaks(&predicted, &a.predicted.events.source, &e.as_recorded, w->arena) ||
        !tide_replay_peaks(&recorded, &a.recorded.events.source, &e.as_recorded, w->arena))
        return false;
    write_peaks(w, "predicted", &predicted);
    write_peaks(w, "recorded", &recorded);
    read_side(&a.predicted, w->arena);
    read_side(&a.recorded, w->arena);
    tide_write_int_at(w, "predicted_events", a.predicted.count);
    tide_write_int_at(w, "recorded_events", a.recorded.count);
    write_partings(w, &a);
    tide_write_int_at(w, "same", a.same);
    tide_write_int_at(w, "only_predicted", a.only_predicted);
    tide_write_int_at(w, "only_recorded", a.only_recorded);
    tide_write_int_at(w, "parting_count", a.partings);
    tide_write_bool_at(w, "has_lost", a.has_lost);
    tide_write_open_at(w, "only_predicted_bytes", '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++)
        if (a.factors[i]) tide_write_bytes_at(w, tide_factor_names[i], a.factors[i]);
    tide_write_close(w, '}');
    tide_write_bytes_at(w, "only_recorded_bytes", a.recorded_bytes);
    tide_write_diagnostics(w, diags, false);
    return true;
}
