/* Events of a job. */
#include "report/job_events.h"

typedef struct reader {
    tide_run *run;
    const tide_timeline *timeline;
    tide_text filter;
} reader;

/* NULL: of no allocation. */
static const tide_allocation *allocation_of(const tide_timeline *t, uint32_t event) {
    return t->events[event] == TIDE_EMPTY_CACHE ? NULL : &t->allocations[t->events[event] & ~TIDE_FREE_BIT];
}

static const char *kind_of(const tide_timeline *t, uint32_t event) {
    return t->events[event] == TIDE_EMPTY_CACHE ? "empty_cache" : t->events[event] & TIDE_FREE_BIT ? "free" : "alloc";
}

static const char *module_of(const reader *k, const tide_allocation *a) {
    return a->module < k->run->model.instance_count ? k->run->model.instances[a->module].path : "";
}

static bool allocation_passes(const reader *k, const tide_allocation *a) {
    const char *const texts[] = {a->op, module_of(k, a), tide_factor_names[a->factor]};
    for (int i = 0; i < 3; i++)
        if (tide_text_contains(tide_text_of(texts[i]), k->filter)) return true;
    return false;
}

static bool passes(const reader *k, uint32_t event) {
    const tide_allocation *a = allocation_of(k->timeline, event);
    return !k->filter.length || (a && allocation_passes(k, a)) ||
           tide_text_contains(tide_text_of(kind_of(k->timeline, event)), k->filter);
}

/* ---- what is said of an allocation ---- */

static void write_brief(tide_writer *w, const void *of, uint32_t which) {
    const reader *k = of;
    const tide_allocation *a = &k->timeline->allocations[which];
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "op", a->op);
    tide_write_string_at(w, "module", module_of(k, a));
}

static void write_all(tide_writer *w, const void *of, uint32_t which) {
    const reader *k = of;
    const tide_allocation *a = &k->timeline->allocations[which];
    const char *line = tide_report_line(k->run, a->statement);
    write_brief(w, of, which);
    if (line) tide_write_string_at(w, "line", line);
    tide_report_shape(w, k->run, a);
}

/* ---- a window of events ---- */

static uint32_t find_rows(const reader *k, uint32_t events, uint32_t *rows, uint32_t first, uint32_t count) {
    uint32_t passed = 0, found = 0;
    for (uint32_t i = 0; i < events && found < count; i++)
        if (passes(k, i) && passed++ >= first) rows[found++] = i;
    return found;
}

/* Plays up to and with an event, and says what it did. */
static bool play_row(tide_caching_allocator *allocator, const tide_timeline *t, uint32_t from, tide_block *blocks,
                     tide_event_row *row) {
    uint32_t event = row->event, which = t->events[event] & ~TIDE_FREE_BIT;
    bool has_block = t->events[event] != TIDE_EMPTY_CACHE, is_free = has_block && t->events[event] & TIDE_FREE_BIT;
    tide_segment_info segment;
    if (event > from && !tide_replay_span(allocator, t, from, event - 1, blocks)) return false;
    tide_block block = is_free ? blocks[which] : 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && !tide_replay_span(allocator, t, event, event, blocks)) return false;
        if (pass && has_block && !is_free) block = blocks[which];
        if (!block || pass == is_free) continue; /* a free's block is looked at before, any other after */
        row->has_block = true;
        row->address = tide_caching_address(allocator, block);
        row->bytes = tide_caching_block_bytes(allocator, block);
        if (tide_segment_at(allocator, row->address, &segment)) row->segment = segment.address;
    }
    row->is_played = true;
    return true;
}

static void write_rows(tide_writer *w, const reader *k, const tide_replay *r, const tide_event_row *rows,
                       uint32_t count) {
    const tide_timeline *t = k->timeline;
    uint32_t mark = 0;
    tide_write_key(w, "rows");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        uint32_t event = rows[i].event;
        tide_event_row row = rows[i];
        row.allocated = r->allocated[event];
        row.reserved = r->reserved[event];
        while (mark < t->mark_count && t->marks[mark].event <= event) mark++;
        tide_open_event(w, &row);
        tide_write_int_at(w, "step", mark < t->mark_count ? t->marks[mark].step : 0);
        tide_write_string_at(w, "phase", mark < t->mark_count ? tide_phase_names[t->marks[mark].phase] : "");
        if (allocation_of(t, event)) write_all(w, k, t->events[event] & ~TIDE_FREE_BIT);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

bool tide_write_job_events(tide_writer *w, tide_run *run, const tide_job *job, const tide_window *window) {
    const tide_timeline *t = &run->machine.timeline;
    reader k = {run, t, window->filter};
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    tide_caching_allocator *allocator;
    tide_settle_factors(&run->machine.timeline);
    if (!tide_replay_timeline(&r, t, &config, true)) return false;
    uint32_t passing = 0, before = 0, *found = TIDE_NEW(w->arena, uint32_t, window->count + 1);
    for (uint32_t i = 0; i < r.events; i++)
        if (passes(&k, i)) passing++, before += i < window->at;
    uint32_t first = tide_window_first(window, passing, before),
             count = find_rows(&k, r.events, found, first, window->count);
    tide_event_row *rows = TIDE_NEW(w->arena, tide_event_row, count + 1);
    tide_block *blocks = TIDE_NEW(w->arena, tide_block, t->allocation_count + 1);
    if (!tide_replay_allocator(&allocator, tide_arena_memory(w->arena), &config, true)) return false;
    bool ok = true;
    for (uint32_t i = 0; i < count && ok; i++) {
        const tide_allocation *a = allocation_of(t, found[i]);
        rows[i] = (tide_event_row){.event = found[i], .other = TIDE_NEVER, .kind = kind_of(t, found[i])};
        if (a) {
            rows[i].has_request = true;
            rows[i].requested = a->bytes;
            rows[i].stream = a->stream;
            rows[i].other = t->events[found[i]] & TIDE_FREE_BIT ? a->born : a->died;
        }
        ok = play_row(allocator, t, i ? found[i - 1] + 1 : 0, blocks, &rows[i]);
    }
    tide_caching_destroy(allocator);
    if (!ok) return false;
    tide_write_int_at(w, "events", r.events);
    tide_write_int_at(w, "passing", passing);
    tide_write_int_at(w, "first", first);
    write_rows(w, &k, &r, rows, count);
    return true;
}

/* ---- the allocator at an event ---- */

static uint64_t requested_of(const void *of, uint32_t which) {
    return ((const reader *)of)->timeline->allocations[which].bytes;
}

static uint32_t born_of(const void *of, uint32_t which) {
    return ((const reader *)of)->timeline->allocations[which].born;
}

/* Of one line of the description, or of one operation outside of them, for one factor and request. */
static uint64_t kind_of_holder(const void *of, uint32_t which) {
    const reader *k = of;
    const tide_allocation *a = &k->timeline->allocations[which];
    return (a->bytes * 31 + (a->statement ? a->statement : (uint64_t)tide_text_of(a->op).length << 32)) *
               TIDE_FACTOR_COUNT +
           a->factor;
}

static bool holder_passes(const void *of, uint32_t which) {
    const reader *k = of;
    return allocation_passes(k, &k->timeline->allocations[which]);
}

bool tide_write_job_state(tide_writer *w, tide_run *run, const tide_job *job, uint32_t at,
                          const tide_state_wants *wants, tide_text filter) {
    const tide_timeline *t = &run->machine.timeline;
    reader k = {run, t, filter};
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    tide_caching_allocator *allocator;
    tide_settle_factors(&run->machine.timeline);
    if (!tide_replay_timeline(&r, t, &config, false)) return false;
    if (at == TIDE_NEVER) at = r.peak_event;
    if (at >= r.events) at = r.events ? r.events - 1 : 0;
    tide_block *blocks = TIDE_NEW(w->arena, tide_block, t->allocation_count + 1);
    if (!tide_replay_allocator(&allocator, tide_arena_memory(w->arena), &config, true)) return false;
    bool ok = tide_replay_span(allocator, t, 0, at, blocks);
    uint32_t highest = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++) highest = blocks[i] > highest ? blocks[i] : highest;
    uint32_t *by_block = TIDE_NEW(w->arena, uint32_t, highest + 1u);
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (blocks[i]) by_block[blocks[i]] = i + 1;
    tide_write_int_at(w, "events", r.events);
    tide_write_int_at(w, "event", at);
    tide_holders holders = {&k,          by_block, highest + 1u, requested_of, born_of, kind_of_holder, holder_passes,
                            write_brief, write_all};
    if (ok) tide_write_state(w, allocator, &holders, wants);
    tide_caching_destroy(allocator);
    return ok;
}
