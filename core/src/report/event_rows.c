/* SPDX-License-Identifier: Apache-2.0 */
/* A window of events, with the effect of each. */
#include "report/event_rows.h"

#include "report/allocator_state.h"

static const char *const event_kind_names[] = {"alloc", "free", "wait", "back", "oom", "empty_cache"};

typedef struct event_row {
    tide_event event;
    uint32_t number;
    uint32_t other; /* the event that takes what this one frees, or frees what it takes; TIDE_NEVER: none */
    bool is_played, has_block;
    uint64_t bytes, address, segment, allocated, reserved;
} event_row;

static bool row_passes(const tide_event_filter *filter, const tide_event *e) {
    return tide_filter_passes(filter, e->request) ||
           tide_text_contains(tide_text_of(event_kind_names[e->kind]), filter->text);
}

/* How many events pass the filter, and how many of them are before `at`. */
static uint32_t count_passing(const tide_event_filter *filter, uint32_t at, uint32_t *before, tide_arena *arena) {
    const tide_event_source *source = &filter->events->source;
    uint32_t count = 0;
    *before = 0;
    if (!filter->text.length) {
        *before = at < source->event_count ? at : source->event_count;
        return source->event_count;
    }
    tide_event_cursor cursor;
    tide_cursor_open(&cursor, source, arena);
    for (uint32_t i = 0; i < source->event_count; i++) {
        tide_event e = tide_cursor_next(&cursor);
        if (!row_passes(filter, &e)) continue;
        count++;
        *before += i < at;
    }
    tide_cursor_close(&cursor, arena);
    return count;
}

static uint32_t window_first(const tide_window *window, uint32_t passing, uint32_t before) {
    uint32_t first = window->has_at ? (before > window->count / 2 ? before - window->count / 2 : 0) : window->first;
    if (first + (uint64_t)window->count > passing) first = passing > window->count ? passing - window->count : 0;
    return first;
}

/* Fills rows `first` to first + count of those that pass. */
static uint32_t find_rows(const tide_event_filter *filter, event_row *rows, uint32_t first, uint32_t count,
                          tide_arena *arena) {
    const tide_event_source *source = &filter->events->source;
    uint32_t passed = 0, found = 0,
             *row_of = TIDE_NEW(arena, uint32_t, source->slot_count + 1); /* by slot: the row that took it plus one */
    tide_event_cursor cursor;
    tide_cursor_open(&cursor, source, arena);
    for (uint32_t i = 0; i < source->event_count; i++) {
        tide_event e = tide_cursor_next(&cursor);
        if (e.slot != TIDE_NO_SLOT) {
            if (e.kind != TIDE_EVENT_ALLOC && row_of[e.slot]) rows[row_of[e.slot] - 1].other = i;
            row_of[e.slot] = 0;
        }
        if (found == count || !row_passes(filter, &e) || passed++ < first) continue;
        rows[found++] = (event_row){.event = e, .number = i, .other = e.other};
        if (e.kind == TIDE_EVENT_ALLOC) row_of[e.slot] = found;
    }
    tide_cursor_close(&cursor, arena);
    return found;
}

static void note_block(event_row *row, const tide_player *p) {
    tide_block block = p->blocks[row->event.slot];
    tide_segment_info segment;
    if (!block) return;
    row->has_block = true;
    row->address = tide_caching_address(p->allocator, block);
    row->bytes = tide_caching_block_bytes(p->allocator, block);
    if (tide_segment_at(p->allocator, row->address, &segment)) row->segment = segment.address;
}

/* Plays up to and including the event of a row. The block of a free is examined before it, that of a request after it.
 */
static bool play_row(tide_player *p, event_row *row) {
    bool has_slot = row->event.slot != TIDE_NO_SLOT, is_request = row->event.kind == TIDE_EVENT_ALLOC;
    if (!tide_player_run(p, row->number)) return false;
    if (p->figures.is_oom) return true;
    if (has_slot && !is_request) note_block(row, p);
    if (!tide_player_run(p, row->number + 1)) return false;
    if (is_request) note_block(row, p);
    row->is_played = true;
    row->allocated = p->figures.allocated;
    row->reserved = p->figures.reserved;
    return true;
}

static bool play_rows(event_row *rows, uint32_t count, const tide_event_source *source,
                      const tide_replay_config *config, tide_arena *arena) {
    tide_player p;
    if (!tide_player_open(&p, source, config, arena)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!play_row(&p, &rows[i])) return false;
    tide_player_close(&p);
    return true;
}

static void write_row(tide_writer *w, const tide_described_events *events, const event_row *r,
                      tide_stack_list *stacks) {
    tide_write_open(w, '{');
    tide_write_int_at(w, "event", r->number);
    tide_write_string_at(w, "kind", event_kind_names[r->event.kind]);
    if (r->event.request != TIDE_NO_REQUEST) {
        tide_asked asked = events->description->asked(events, r->event.request);
        tide_write_bytes_at(w, "requested", asked.bytes);
        tide_write_int_at(w, "stream", asked.stream);
    }
    if (r->has_block) {
        tide_write_bytes_at(w, "bytes", r->bytes);
        tide_write_int_at(w, "address", tide_shown_address(r->address));
        tide_write_int_at(w, "segment", tide_shown_address(r->segment));
    }
    if (r->other != TIDE_NEVER) tide_write_int_at(w, "other", r->other);
    if (r->is_played) {
        tide_write_bytes_at(w, "allocated", r->allocated);
        tide_write_bytes_at(w, "reserved", r->reserved);
    }
    events->description->write_row(w, events, r->number, &r->event, stacks);
    tide_write_close(w, '}');
}

bool tide_write_event_rows(tide_writer *w, const tide_described_events *events, const tide_replay_config *config,
                           const tide_window *window) {
    tide_arena *arena = w->arena;
    tide_event_filter filter;
    uint32_t before;
    tide_filter_open(&filter, events, window->filter, arena);
    uint32_t passing = count_passing(&filter, window->at, &before, arena),
             first = window_first(window, passing, before);
    event_row *rows = TIDE_NEW(arena, event_row, window->count + 1);
    uint32_t count = find_rows(&filter, rows, first, window->count, arena);
    if (!play_rows(rows, count, &events->source, config, arena)) return false;
    tide_write_int_at(w, "events", events->source.event_count);
    tide_write_int_at(w, "passing", passing);
    tide_write_int_at(w, "first", first);
    tide_stack_list stacks = {TIDE_NEW(arena, uint32_t, count + 1), 0};
    tide_write_open_at(w, "rows", '[');
    for (uint32_t i = 0; i < count; i++) write_row(w, events, &rows[i], &stacks);
    tide_write_close(w, ']');
    if (events->description->write_stacks) events->description->write_stacks(w, events, &stacks);
    return true;
}
