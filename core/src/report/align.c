/* Two streams of requests and frees, side by side.
 *
 * What is compared is the size of each request and of each block that is freed, in order. Where they differ, the
 * shortest detour is looked for after which they agree again for a while; what lies on it is only predicted, or only
 * recorded. */
#include "report/align.h"

#include "base/units.h"
#include "report/play.h"
#include "report/recorded.h"

enum {
    AGREE = 12,    /* events that must be equal for two streams to have met again */
    DETOUR = 3000, /* events of both on the longest detour */
    PARTINGS = 20, /* that are told */
    SHOWN = 6,     /* events of each that are shown */
    ENOUGH = 200   /* partings: streams that differ so much are not of one program */
};

/* One request (bytes > 0) or free, and what made it: an allocation of the timeline, a site of the tape. */
typedef struct aligned {
    int64_t bytes;
    uint32_t of;
} aligned;

typedef struct stream {
    aligned *events;
    uint32_t count, capacity;
} stream;

/* A trace knows blocks, not requests: both are rounded as the allocator does. */
static void add(tide_arena *arena, stream *s, uint64_t bytes, bool is_free, uint32_t of) {
    int64_t rounded = (int64_t)TIDE_ROUND_UP(bytes, 512);
    TIDE_ROOM(arena, s->events, s->count, s->capacity);
    s->events[s->count++] = (aligned){is_free ? -rounded : rounded, of};
}

static stream stream_of_timeline(const tide_timeline *t, tide_arena *arena) {
    stream s = {0};
    for (uint32_t i = 0; i < t->event_count; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        if (t->events[i] == TIDE_EMPTY_CACHE || !t->allocations[which].bytes) continue;
        add(arena, &s, t->allocations[which].bytes, (t->events[i] & TIDE_FREE_BIT) != 0, which);
    }
    return s;
}

static stream stream_of_tape(const tide_tape *t, tide_arena *arena) {
    stream s = {0};
    tide_tape_slots slots;
    uint32_t *sites = TIDE_NEW(arena, uint32_t, t->slot_count + 1); /* by slot */
    tide_tape_slots_init(&slots, t, TIDE_NEW(arena, uint32_t, t->slot_count + 1));
    for (uint32_t i = 0; i < t->older_block_count; i++) sites[t->older_blocks[i].slot] = t->older_blocks[i].site;
    for (uint32_t i = 0; i < t->event_count; i++) {
        uint32_t kind = t->events[i] >> TIDE_TAPE_SHIFT, index = t->events[i] & TIDE_TAPE_MASK;
        if (kind == TIDE_EVENT_ALLOC) {
            sites[tide_tape_next_slot(&slots)] = index;
            add(arena, &s, t->sites[index].bytes, false, index);
        } else if (kind == TIDE_EVENT_FREE || kind == TIDE_EVENT_FREE_PENDING) {
            add(arena, &s, t->sites[sites[index]].bytes, true, sites[index]);
            tide_tape_give_slot(&slots, index);
        }
    }
    return s;
}

/* ---- partings ---- */

static bool meet(const stream *a, uint32_t i, const stream *b, uint32_t j) {
    for (uint32_t k = 0; k < AGREE; k++) {
        if (i + k == a->count || j + k == b->count) return i + k == a->count && j + k == b->count;
        if (a->events[i + k].bytes != b->events[j + k].bytes) return false;
    }
    return true;
}

/* How far each must go until they meet; false, and to the ends, when they do not on a detour of `most`. */
static bool find_meeting(const stream *a, uint32_t i, const stream *b, uint32_t j, uint32_t most, uint32_t *skip_a,
                         uint32_t *skip_b) {
    for (uint32_t both = 1; both <= most; both++)
        for (uint32_t of_a = 0; of_a <= both; of_a++) {
            if (i + of_a > a->count || j + both - of_a > b->count || !meet(a, i + of_a, b, j + both - of_a)) continue;
            *skip_a = of_a;
            *skip_b = both - of_a;
            return true;
        }
    *skip_a = a->count - i;
    *skip_b = b->count - j;
    return false;
}

/* Whether both sides of a detour hold the same events in another order. */
static bool same_events(const aligned *a, uint32_t count, const aligned *b, uint32_t other_count) {
    if (count != other_count || count > AGREE * 4) return false;
    for (uint32_t i = 0; i < count; i++) {
        int balance = 0;
        for (uint32_t k = 0; k < count; k++) balance += (a[k].bytes == a[i].bytes) - (b[k].bytes == a[i].bytes);
        if (balance) return false;
    }
    return true;
}

static void write_predicted(tide_writer *w, const tide_run *run, const aligned *event) {
    const tide_allocation *a = &run->machine.timeline.allocations[event->of];
    tide_write_open(w, '{');
    tide_write_int_at(w, "bytes", event->bytes);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "module", run->model.instances[a->module < run->model.instance_count ? a->module : 0].path);
    tide_write_string_at(w, "op", a->op ? a->op : "");
    tide_write_close(w, '}');
}

static void write_recorded(tide_writer *w, const tide_recording *r, const tide_tape *tape, const aligned *event) {
    uint32_t frame = tide_recorded_frame(r, tape->sites[event->of].stack);
    tide_write_open(w, '{');
    tide_write_int_at(w, "bytes", event->bytes);
    tide_write_key(w, "frame");
    tide_write_text(w, frame ? r->names.names[frame] : TIDE_TEXT(""));
    tide_write_close(w, '}');
}

typedef struct alignment {
    uint32_t same, partings;
    uint32_t only_predicted, only_recorded;              /* events */
    uint64_t factors[TIDE_FACTOR_COUNT], recorded_bytes; /* of requests on detours */
    bool has_lost;                                       /* they did not meet again */
} alignment;

static void count_detour(alignment *a, const tide_run *run, const stream *one, uint32_t i, uint32_t skip,
                         const stream *other, uint32_t j, uint32_t other_skip) {
    for (uint32_t k = 0; k < skip; k++)
        if (one->events[i + k].bytes > 0)
            a->factors[run->machine.timeline.allocations[one->events[i + k].of].factor] +=
                (uint64_t)one->events[i + k].bytes;
    for (uint32_t k = 0; k < other_skip; k++)
        if (other->events[j + k].bytes > 0) a->recorded_bytes += (uint64_t)other->events[j + k].bytes;
    a->only_predicted += skip;
    a->only_recorded += other_skip;
}

/* "partings": each with the events on both sides. */
static alignment write_partings(tide_writer *w, const tide_run *run, const tide_recording *r, const tide_tape *tape,
                                const stream *one, const stream *other) {
    alignment a = {0};
    uint32_t i = 0, j = 0;
    tide_write_key(w, "partings");
    tide_write_open(w, '[');
    while (i < one->count || j < other->count) {
        if (i < one->count && j < other->count && one->events[i].bytes == other->events[j].bytes) {
            a.same++, i++, j++;
            continue;
        }
        uint32_t skip, other_skip;
        if (!find_meeting(one, i, other, j, a.partings < ENOUGH ? DETOUR : 0, &skip, &other_skip)) a.has_lost = true;
        count_detour(&a, run, one, i, skip, other, j, other_skip);
        if (a.partings++ < PARTINGS) {
            tide_write_open(w, '{');
            tide_write_int_at(w, "at", i);
            tide_write_int_at(w, "recorded_at", j);
            tide_write_int_at(w, "predicted_count", skip);
            tide_write_int_at(w, "recorded_count", other_skip);
            tide_write_bool_at(w, "is_order", same_events(&one->events[i], skip, &other->events[j], other_skip));
            tide_write_key(w, "predicted");
            tide_write_open(w, '[');
            for (uint32_t k = 0; k < skip && k < SHOWN; k++) write_predicted(w, run, &one->events[i + k]);
            tide_write_close(w, ']');
            tide_write_key(w, "recorded");
            tide_write_open(w, '[');
            for (uint32_t k = 0; k < other_skip && k < SHOWN; k++) write_recorded(w, r, tape, &other->events[j + k]);
            tide_write_close(w, ']');
            tide_write_close(w, '}');
        }
        i += skip;
        j += other_skip;
    }
    tide_write_close(w, ']');
    return a;
}

/* ---- the answer ---- */

static bool write_peaks(tide_writer *w, tide_run *run, const tide_replay_config *config, const tide_tape *tape) {
    tide_replay predicted;
    tide_play recorded;
    if (!tide_replay_timeline(&predicted, &run->machine.timeline, config, false) ||
        !tide_play_tape(&recorded, tape, config, NULL))
        return false;
    tide_write_key(w, "predicted");
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "allocated_peak", predicted.allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", predicted.reserved_peak);
    tide_write_close(w, '}');
    tide_write_key(w, "recorded");
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "allocated_peak", recorded.allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", recorded.reserved_peak);
    tide_write_close(w, '}');
    return true;
}

bool tide_write_alignment(tide_writer *w, tide_run *run, const tide_replay_config *config, const tide_recording *r,
                          const tide_tape *tape) {
    tide_arena *arena = w->arena;
    tide_settle_factors(&run->machine.timeline);
    if (!write_peaks(w, run, config, tape)) return false;
    stream one = stream_of_timeline(&run->machine.timeline, arena), other = stream_of_tape(tape, arena);
    tide_write_int_at(w, "predicted_events", one.count);
    tide_write_int_at(w, "recorded_events", other.count);
    alignment a = write_partings(w, run, r, tape, &one, &other);
    tide_write_int_at(w, "same", a.same);
    tide_write_int_at(w, "only_predicted", a.only_predicted);
    tide_write_int_at(w, "only_recorded", a.only_recorded);
    tide_write_int_at(w, "parting_count", a.partings);
    tide_write_bool_at(w, "has_lost", a.has_lost);
    tide_write_key(w, "only_predicted_bytes");
    tide_write_open(w, '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++)
        if (a.factors[i]) tide_write_bytes_at(w, tide_factor_names[i], a.factors[i]);
    tide_write_close(w, '}');
    tide_write_bytes_at(w, "only_recorded_bytes", a.recorded_bytes);
    return true;
}
