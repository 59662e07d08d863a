/* SPDX-License-Identifier: Apache-2.0 */
/* The segments, their blocks, and what is live. */
#include "report/allocator_state.h"

#include <stdlib.h>

#include "report/members.h"

/* Up to SEGMENTS of each pool are reported, equal ones together. The largest is CELLS wide; blocks narrower than one
 * cell are joined with their neighbours; in total there are at most about twice ALL_CELLS. */
enum { SEGMENTS = 64, CELLS = 500, ALL_CELLS = 2500, ALIVE = 30, BLOCKS = 500, SHOWN_BITS = 44 };

bool tide_segment_at(const tide_caching_allocator *a, uint64_t address, tide_segment_info *segment) {
    tide_caching_cursor cursor = {0};
    while (tide_caching_next_segment(a, &cursor, segment))
        if (address - segment->address < segment->bytes) return true;
    return false;
}

int64_t tide_shown_address(uint64_t address) {
    return (int64_t)((address - TIDE_DEVICE_BASE) & ((UINT64_C(1) << SHOWN_BITS) - 1));
}

/* ---- what there is ---- */

typedef struct state_segment {
    tide_segment_info of;
    tide_caching_cursor cursor; /* at its first block */
    uint64_t live, waiting, largest_free;
    uint32_t blocks, live_blocks;
    uint64_t kind;  /* of the request for its last block */
    uint32_t count; /* of equal segments, with a single block each */
} state_segment;

/* Equal blocks; the first of them. */
typedef struct alive_blocks {
    uint64_t address, bytes, kind;
    uint32_t slot, stream, count;
} alive_blocks;

typedef struct allocator_state {
    tide_writer *w;
    const tide_player *player;
    const tide_event_filter *filter;
    uint32_t *by_block; /* for each block the slot that holds it plus one; 0: none */
    uint32_t by_block_count;
    state_segment *segments;
    uint32_t segment_count, segment_capacity, row_count, block_count, live_count; /* rows: equal ones joined */
    uint64_t live, waiting, largest_free, idle_bytes; /* idle: in segments without a live or waiting block */
    uint32_t idle_count;
    alive_blocks *alive; /* those that pass the filter */
    uint32_t alive_count, alive_capacity;
} allocator_state;

/* The slot that holds a block plus one; 0: none. */
static uint32_t slot_of(const allocator_state *s, const tide_block_info *b) {
    return b->state == TIDE_BLOCK_LIVE && b->block < s->by_block_count ? s->by_block[b->block] : 0;
}

static uint32_t request_of(const allocator_state *s, uint32_t slot) {
    return s->player->source->reader->request_of(&s->player->cursor, slot);
}

static uint64_t kind_of_slot(const allocator_state *s, uint32_t slot) {
    return s->filter->events->description->kind(s->filter->events, request_of(s, slot));
}

static void note_alive(allocator_state *s, const tide_block_info *b, uint32_t slot) {
    if (!tide_filter_passes(s->filter, request_of(s, slot))) return;
    TIDE_ROOM(s->w->arena, s->alive, s->alive_count, s->alive_capacity);
    s->alive[s->alive_count++] = (alive_blocks){b->address, b->bytes, kind_of_slot(s, slot), slot, b->stream, 1};
}

static void look_at_segment(allocator_state *s, state_segment *seg) {
    tide_caching_cursor cursor = seg->cursor;
    tide_block_info b;
    while (tide_caching_next_block(s->player->allocator, &cursor, &b)) {
        uint32_t slot = slot_of(s, &b);
        seg->blocks++;
        if (b.state == TIDE_BLOCK_LIVE) seg->live += b.bytes, seg->live_blocks++;
        if (b.state == TIDE_BLOCK_PENDING) seg->waiting += b.bytes;
        if (b.state == TIDE_BLOCK_FREE && b.bytes > seg->largest_free) seg->largest_free = b.bytes;
        seg->kind = slot ? kind_of_slot(s, slot - 1) : 0;
        if (slot) note_alive(s, &b, slot - 1);
    }
    s->block_count += seg->blocks;
    s->live_count += seg->live_blocks;
    s->live += seg->live;
    s->waiting += seg->waiting;
    if (seg->largest_free > s->largest_free) s->largest_free = seg->largest_free;
    if (!seg->live && !seg->waiting) s->idle_bytes += seg->of.bytes, s->idle_count++;
}

static void look(allocator_state *s) {
    tide_caching_cursor cursor = {0};
    tide_segment_info of;
    while (tide_caching_next_segment(s->player->allocator, &cursor, &of)) {
        TIDE_ROOM(s->w->arena, s->segments, s->segment_count, s->segment_capacity);
        s->segments[s->segment_count] = (state_segment){.of = of, .cursor = cursor, .count = 1};
        look_at_segment(s, &s->segments[s->segment_count++]);
    }
}

/* The large pool first; within a pool those with the most free memory, then the largest, with equal ones adjacent. */
static int by_free(const void *a, const void *b) {
    const state_segment *x = a, *y = b;
    uint64_t one = x->of.bytes - x->live - x->waiting, other = y->of.bytes - y->live - y->waiting;
    if (x->of.is_small != y->of.is_small) return x->of.is_small ? 1 : -1;
    if (one != other) return one < other ? 1 : -1;
    if (x->of.bytes != y->of.bytes) return x->of.bytes < y->of.bytes ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->of.address < y->of.address ? -1 : x->of.address > y->of.address;
}

static bool segments_are_alike(const state_segment *x, const state_segment *y) {
    return x->blocks == 1 && y->blocks == 1 && x->of.is_small == y->of.is_small && x->of.stream == y->of.stream &&
           x->of.bytes == y->of.bytes && x->live == y->live && x->waiting == y->waiting && x->kind == y->kind;
}

static void order_segments(allocator_state *s) {
    if (!s->segment_count) return;
    qsort(s->segments, s->segment_count, sizeof *s->segments, by_free);
    for (uint32_t i = 1; i < s->segment_count; i++) {
        state_segment *last = &s->segments[s->row_count];
        if (segments_are_alike(last, &s->segments[i]))
            last->count++;
        else
            s->segments[++s->row_count] = s->segments[i];
    }
    s->row_count++;
}

/* ---- writing ---- */

static const char *const state_names[] = {"free", "live", "waiting"};

static void write_slot(const allocator_state *s, uint32_t slot, bool is_brief) {
    const tide_described_events *events = s->filter->events;
    const tide_event_description *description = events->description;
    uint32_t born = events->source.reader->born(&s->player->cursor, slot), request = request_of(s, slot);
    tide_write_bytes_at(s->w, "requested", description->asked(events, request).bytes);
    if (born != TIDE_NEVER) tide_write_int_at(s->w, "event", born);
    (is_brief ? description->write_brief : description->write)(s->w, events, request);
}

typedef struct state_cell {
    uint64_t at, bytes, live, waiting;
    uint32_t blocks;
    tide_block_info first;
} state_cell;

static void write_state_cell(const allocator_state *s, const state_cell *c) {
    uint32_t slot = c->blocks == 1 ? slot_of(s, &c->first) : 0;
    if (!c->blocks) return;
    tide_write_open(s->w, '{');
    tide_write_bytes_at(s->w, "at", c->at);
    tide_write_bytes_at(s->w, "bytes", c->bytes);
    tide_write_string_at(s->w, "state", c->blocks > 1 ? "several" : state_names[c->first.state]);
    if (c->blocks > 1) {
        tide_write_int_at(s->w, "blocks", c->blocks);
        tide_write_bytes_at(s->w, "live", c->live);
        if (c->waiting) tide_write_bytes_at(s->w, "waiting", c->waiting);
    }
    if (slot) write_slot(s, slot - 1, true);
    tide_write_close(s->w, '}');
}

/* Joins adjacent blocks narrower than `least` until they are that wide together. */
static void write_cells(const allocator_state *s, const state_segment *seg, uint64_t least) {
    tide_caching_cursor cursor = seg->cursor;
    tide_block_info b;
    state_cell c = {0};
    tide_write_open_at(s->w, "cells", '[');
    while (tide_caching_next_block(s->player->allocator, &cursor, &b)) {
        if (c.blocks && (c.bytes >= least || b.bytes >= least)) {
            write_state_cell(s, &c);
            c = (state_cell){0};
        }
        if (!c.blocks) c.at = b.address - seg->of.address, c.first = b;
        c.blocks++;
        c.bytes += b.bytes;
        if (b.state == TIDE_BLOCK_LIVE) c.live += b.bytes;
        if (b.state == TIDE_BLOCK_PENDING) c.waiting += b.bytes;
    }
    write_state_cell(s, &c);
    tide_write_close(s->w, ']');
}

static void write_segment(const allocator_state *s, const state_segment *seg, uint64_t least) {
    tide_write_open(s->w, '{');
    tide_write_int_at(s->w, "address", tide_shown_address(seg->of.address));
    tide_write_bytes_at(s->w, "bytes", seg->of.bytes);
    tide_write_string_at(s->w, "pool", seg->of.is_small ? "small" : "large");
    tide_write_int_at(s->w, "stream", seg->of.stream);
    if (seg->count > 1) tide_write_int_at(s->w, "count", seg->count);
    if (seg->of.is_expandable) tide_write_bool_at(s->w, "is_expandable", true);
    tide_write_int_at(s->w, "blocks", seg->blocks);
    tide_write_int_at(s->w, "live_blocks", seg->live_blocks);
    tide_write_bytes_at(s->w, "live", seg->live);
    tide_write_bytes_at(s->w, "waiting", seg->waiting);
    tide_write_bytes_at(s->w, "largest_free", seg->largest_free);
    write_cells(s, seg, least);
    tide_write_close(s->w, '}');
}

/* The segments [from, to) of a pool; *rest receives those that are not reported. */
static void write_pool(const allocator_state *s, uint32_t from, uint32_t to, state_segment *rest) {
    uint32_t shown = to - from < SEGMENTS ? to : from + SEGMENTS;
    uint64_t all = 0, widest = 0;
    for (uint32_t i = from; i < shown; i++) all += s->segments[i].of.bytes;
    for (uint32_t i = from; i < shown; i++)
        widest = s->segments[i].of.bytes > widest ? s->segments[i].of.bytes : widest;
    uint64_t least = all / ALL_CELLS > widest / CELLS ? all / ALL_CELLS : widest / CELLS;
    for (uint32_t i = from; i < shown; i++) write_segment(s, &s->segments[i], least);
    for (uint32_t i = shown; i < to; i++) {
        rest->count += s->segments[i].count;
        rest->of.bytes += s->segments[i].of.bytes * s->segments[i].count;
        rest->live += s->segments[i].live * s->segments[i].count;
    }
}

static void write_segments(const allocator_state *s) {
    state_segment rest = {0};
    uint32_t large = 0;
    while (large < s->row_count && !s->segments[large].of.is_small) large++;
    tide_write_open_at(s->w, "segments", '[');
    write_pool(s, 0, large, &rest);
    write_pool(s, large, s->row_count, &rest);
    tide_write_close(s->w, ']');
    if (!rest.count) return;
    tide_write_open_at(s->w, "other_segments", '{');
    tide_write_int_at(s->w, "count", rest.count);
    tide_write_bytes_at(s->w, "bytes", rest.of.bytes);
    tide_write_bytes_at(s->w, "live", rest.live);
    tide_write_close(s->w, '}');
}

static int by_kind(const void *a, const void *b) {
    const alive_blocks *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static int by_total(const void *a, const void *b) {
    const alive_blocks *x = a, *y = b;
    uint64_t one = x->bytes * x->count, other = y->bytes * y->count;
    return one != other ? (one < other ? 1 : -1) : by_kind(a, b);
}

static void join_alike(allocator_state *s) {
    uint32_t joined = 0;
    if (!s->alive_count) return;
    qsort(s->alive, s->alive_count, sizeof *s->alive, by_kind);
    for (uint32_t i = 1; i < s->alive_count; i++) {
        alive_blocks *last = &s->alive[joined];
        if (last->bytes == s->alive[i].bytes && last->kind == s->alive[i].kind)
            last->count++;
        else
            s->alive[++joined] = s->alive[i];
    }
    s->alive_count = joined + 1;
    qsort(s->alive, s->alive_count, sizeof *s->alive, by_total);
}

static void write_alive(allocator_state *s) {
    uint64_t rest = 0;
    join_alike(s);
    tide_write_open_at(s->w, "alive", '[');
    for (uint32_t i = 0; i < s->alive_count; i++) {
        const alive_blocks *b = &s->alive[i];
        if (i >= ALIVE) {
            rest += b->bytes * b->count;
            continue;
        }
        tide_write_open(s->w, '{');
        tide_write_bytes_at(s->w, "bytes", b->bytes * b->count);
        tide_write_int_at(s->w, "count", b->count);
        tide_write_bytes_at(s->w, "each", b->bytes);
        tide_write_int_at(s->w, "address", tide_shown_address(b->address));
        tide_write_int_at(s->w, "stream", b->stream);
        write_slot(s, b->slot, false);
        tide_write_close(s->w, '}');
    }
    tide_write_rest(s->w, rest);
}

/* The blocks of one segment. */
static void write_state_blocks(const allocator_state *s, const tide_state_query *query) {
    tide_block_info b;
    uint32_t at = 0;
    tide_write_open_at(s->w, "blocks", '[');
    for (uint32_t i = 0; i < s->row_count; i++) {
        tide_caching_cursor cursor = s->segments[i].cursor;
        if (tide_shown_address(s->segments[i].of.address) != query->segment) continue;
        for (; tide_caching_next_block(s->player->allocator, &cursor, &b); at++) {
            uint32_t slot = slot_of(s, &b);
            if (at < query->first_block || at - query->first_block >= BLOCKS) continue;
            tide_write_open(s->w, '{');
            tide_write_bytes_at(s->w, "at", b.address - s->segments[i].of.address);
            tide_write_bytes_at(s->w, "bytes", b.bytes);
            tide_write_string_at(s->w, "state", state_names[b.state]);
            if (slot) write_slot(s, slot - 1, true);
            tide_write_close(s->w, '}');
        }
    }
    tide_write_close(s->w, ']');
}

static void write_state(tide_writer *w, const tide_player *p, const tide_event_filter *filter,
                        const tide_state_query *query) {
    allocator_state *s = TIDE_NEW(w->arena, allocator_state, 1);
    *s = (allocator_state){.w = w, .player = p, .filter = filter};
    s->by_block = tide_player_slots(p, &s->by_block_count, w->arena);
    look(s);
    order_segments(s);
    tide_write_bytes_at(w, "allocated", p->figures.allocated);
    tide_write_bytes_at(w, "reserved", tide_caching_reserved(p->allocator));
    tide_write_bytes_at(w, "waiting", s->waiting);
    tide_write_bytes_at(w, "largest_free", s->largest_free);
    tide_write_int_at(w, "segment_count", s->segment_count);
    tide_write_int_at(w, "block_count", s->block_count);
    tide_write_int_at(w, "live_count", s->live_count);
    tide_write_open_at(w, "idle", '{'); /* what empty_cache() would release */
    tide_write_int_at(w, "count", s->idle_count);
    tide_write_bytes_at(w, "bytes", s->idle_bytes);
    tide_write_close(w, '}');
    write_segments(s);
    write_alive(s);
    if (query->has_segment) write_state_blocks(s, query);
}

bool tide_write_state(tide_writer *w, const tide_described_events *events, const tide_replay_config *config,
                      const tide_state_query *query) {
    const tide_event_source *source = &events->source;
    uint32_t at = query->at;
    tide_event_filter filter;
    tide_player p;
    tide_filter_open(&filter, events, query->filter, w->arena);
    if (at == TIDE_NEVER) {
        tide_replay whole;
        if (!tide_replay_peaks(&whole, source, config, w->arena)) return false;
        at = whole.peak_event;
    }
    if (at >= source->event_count) at = source->event_count ? source->event_count - 1 : 0;
    if (!tide_player_open(&p, source, config, w->arena) || !tide_player_run(&p, at + 1)) return false;
    tide_player_catch_up(&p);
    tide_write_int_at(w, "events", source->event_count);
    tide_write_int_at(w, "event", at);
    write_state(w, &p, &filter, query);
    if (p.figures.is_oom) tide_write_int_at(w, "failed_at", p.figures.events); /* the state is the one before it */
    tide_player_close(&p);
    return true;
}
