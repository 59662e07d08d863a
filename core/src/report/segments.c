/* Segments as they lie. */
#include "report/segments.h"

#include <stdlib.h>

#include "allocator/timeline.h"

/* SEGMENTS of each pool are told, alike ones together. The largest is CELLS wide: what is narrower than one is joined
 * with its neighbours; all together are at most about twice ALL_CELLS. */
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

typedef struct seen_segment {
    tide_segment_info of;
    tide_caching_cursor cursor; /* at its first block */
    uint64_t live, waiting, largest_free;
    uint32_t blocks, live_blocks;
    uint64_t kind;  /* of the holder of its last block */
    uint32_t count; /* of segments that are alike, of one block each */
} seen_segment;

/* Blocks that are alike; the first of them. */
typedef struct seen_blocks {
    uint64_t address, bytes, kind;
    uint32_t holder, stream, count;
} seen_blocks;

typedef struct state {
    tide_writer *w;
    const tide_caching_allocator *allocator;
    const tide_holders *holders;
    seen_segment *segments;
    uint32_t segment_count, segment_capacity, row_count, block_count, live_count; /* rows: alike ones together */
    uint64_t live, waiting, largest_free, idle_bytes; /* idle: of segments without a live or waiting block */
    uint32_t idle_count;
    seen_blocks *alive; /* those that pass */
    uint32_t alive_count, alive_capacity;
} state;

/* One more than the holder of a block, or 0. */
static uint32_t holder_of(const state *s, const tide_block_info *b) {
    return b->state == TIDE_BLOCK_LIVE && b->block < s->holders->block_count ? s->holders->by_block[b->block] : 0;
}

static void note_alive(state *s, const tide_block_info *b, uint32_t holder) {
    if (!s->holders->passes(s->holders->of, holder)) return;
    TIDE_ROOM(s->w->arena, s->alive, s->alive_count, s->alive_capacity);
    s->alive[s->alive_count++] =
        (seen_blocks){b->address, b->bytes, s->holders->kind(s->holders->of, holder), holder, b->stream, 1};
}

static void look_at_segment(state *s, seen_segment *seg) {
    tide_caching_cursor cursor = seg->cursor;
    tide_block_info b;
    while (tide_caching_next_block(s->allocator, &cursor, &b)) {
        uint32_t holder = holder_of(s, &b);
        seg->blocks++;
        if (b.state == TIDE_BLOCK_LIVE) seg->live += b.bytes, seg->live_blocks++;
        if (b.state == TIDE_BLOCK_PENDING) seg->waiting += b.bytes;
        if (b.state == TIDE_BLOCK_FREE && b.bytes > seg->largest_free) seg->largest_free = b.bytes;
        seg->kind = holder ? s->holders->kind(s->holders->of, holder - 1) : 0;
        if (holder) note_alive(s, &b, holder - 1);
    }
    s->block_count += seg->blocks;
    s->live_count += seg->live_blocks;
    s->live += seg->live;
    s->waiting += seg->waiting;
    if (seg->largest_free > s->largest_free) s->largest_free = seg->largest_free;
    if (!seg->live && !seg->waiting) s->idle_bytes += seg->of.bytes, s->idle_count++;
}

static void look(state *s) {
    tide_caching_cursor cursor = {0};
    tide_segment_info of;
    while (tide_caching_next_segment(s->allocator, &cursor, &of)) {
        TIDE_ROOM(s->w->arena, s->segments, s->segment_count, s->segment_capacity);
        s->segments[s->segment_count] = (seen_segment){.of = of, .cursor = cursor, .count = 1};
        look_at_segment(s, &s->segments[s->segment_count++]);
    }
}

/* The large pool first; in it those with most free memory, the largest, and alike ones in a row. */
static int by_free(const void *a, const void *b) {
    const seen_segment *x = a, *y = b;
    uint64_t one = x->of.bytes - x->live - x->waiting, other = y->of.bytes - y->live - y->waiting;
    if (x->of.is_small != y->of.is_small) return x->of.is_small ? 1 : -1;
    if (one != other) return one < other ? 1 : -1;
    if (x->of.bytes != y->of.bytes) return x->of.bytes < y->of.bytes ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->of.address < y->of.address ? -1 : x->of.address > y->of.address;
}

static bool are_alike(const seen_segment *x, const seen_segment *y) {
    return x->blocks == 1 && y->blocks == 1 && x->of.is_small == y->of.is_small && x->of.stream == y->of.stream &&
           x->of.bytes == y->of.bytes && x->live == y->live && x->waiting == y->waiting && x->kind == y->kind;
}

static void order_segments(state *s) {
    if (!s->segment_count) return;
    qsort(s->segments, s->segment_count, sizeof *s->segments, by_free);
    for (uint32_t i = 1; i < s->segment_count; i++) {
        seen_segment *last = &s->segments[s->row_count];
        if (are_alike(last, &s->segments[i]))
            last->count++;
        else
            s->segments[++s->row_count] = s->segments[i];
    }
    s->row_count++;
}

/* ---- writing ---- */

static const char *const state_names[] = {"free", "live", "waiting"};

static void write_holder(const state *s, uint32_t holder, void (*write)(tide_writer *, const void *, uint32_t)) {
    uint32_t born = s->holders->born(s->holders->of, holder);
    tide_write_bytes_at(s->w, "requested", s->holders->requested(s->holders->of, holder));
    if (born != TIDE_NEVER) tide_write_int_at(s->w, "event", born);
    write(s->w, s->holders->of, holder);
}

typedef struct cell {
    uint64_t at, bytes, live, waiting;
    uint32_t blocks;
    tide_block_info first;
} cell;

static void write_cell(const state *s, const cell *c) {
    uint32_t holder = c->blocks == 1 ? holder_of(s, &c->first) : 0;
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
    if (holder) write_holder(s, holder - 1, s->holders->write_brief);
    tide_write_close(s->w, '}');
}

/* Blocks narrower than `least` join until they are as wide together. */
static void write_cells(const state *s, const seen_segment *seg, uint64_t least) {
    tide_caching_cursor cursor = seg->cursor;
    tide_block_info b;
    cell c = {0};
    tide_write_key(s->w, "cells");
    tide_write_open(s->w, '[');
    while (tide_caching_next_block(s->allocator, &cursor, &b)) {
        if (c.blocks && (c.bytes >= least || b.bytes >= least)) {
            write_cell(s, &c);
            c = (cell){0};
        }
        if (!c.blocks) c.at = b.address - seg->of.address, c.first = b;
        c.blocks++;
        c.bytes += b.bytes;
        if (b.state == TIDE_BLOCK_LIVE) c.live += b.bytes;
        if (b.state == TIDE_BLOCK_PENDING) c.waiting += b.bytes;
    }
    write_cell(s, &c);
    tide_write_close(s->w, ']');
}

static void write_segment(const state *s, const seen_segment *seg, uint64_t least) {
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

/* One pool's segments, [from, to) of the list; *rest takes those that are not told. */
static void write_pool(const state *s, uint32_t from, uint32_t to, seen_segment *rest) {
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

static void write_segments(const state *s) {
    seen_segment rest = {0};
    uint32_t large = 0;
    while (large < s->row_count && !s->segments[large].of.is_small) large++;
    tide_write_key(s->w, "segments");
    tide_write_open(s->w, '[');
    write_pool(s, 0, large, &rest);
    write_pool(s, large, s->row_count, &rest);
    tide_write_close(s->w, ']');
    if (!rest.count) return;
    tide_write_key(s->w, "other_segments");
    tide_write_open(s->w, '{');
    tide_write_int_at(s->w, "count", rest.count);
    tide_write_bytes_at(s->w, "bytes", rest.of.bytes);
    tide_write_bytes_at(s->w, "live", rest.live);
    tide_write_close(s->w, '}');
}

static int by_kind(const void *a, const void *b) {
    const seen_blocks *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static int by_total(const void *a, const void *b) {
    const seen_blocks *x = a, *y = b;
    uint64_t one = x->bytes * x->count, other = y->bytes * y->count;
    return one != other ? (one < other ? 1 : -1) : by_kind(a, b);
}

static void join_alike(state *s) {
    uint32_t joined = 0;
    if (!s->alive_count) return;
    qsort(s->alive, s->alive_count, sizeof *s->alive, by_kind);
    for (uint32_t i = 1; i < s->alive_count; i++) {
        seen_blocks *last = &s->alive[joined];
        if (last->bytes == s->alive[i].bytes && last->kind == s->alive[i].kind)
            last->count++;
        else
            s->alive[++joined] = s->alive[i];
    }
    s->alive_count = joined + 1;
    qsort(s->alive, s->alive_count, sizeof *s->alive, by_total);
}

static void write_alive(state *s) {
    uint64_t rest = 0;
    join_alike(s);
    tide_write_key(s->w, "alive");
    tide_write_open(s->w, '[');
    for (uint32_t i = 0; i < s->alive_count; i++) {
        const seen_blocks *b = &s->alive[i];
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
        write_holder(s, b->holder, s->holders->write);
        tide_write_close(s->w, '}');
    }
    if (rest) {
        tide_write_open(s->w, '{');
        tide_write_bytes_at(s->w, "rest", rest);
        tide_write_close(s->w, '}');
    }
    tide_write_close(s->w, ']');
}

/* The blocks of one segment. */
static void write_blocks(const state *s, const tide_state_wants *wants) {
    tide_block_info b;
    uint32_t at = 0;
    tide_write_key(s->w, "blocks");
    tide_write_open(s->w, '[');
    for (uint32_t i = 0; i < s->row_count; i++) {
        tide_caching_cursor cursor = s->segments[i].cursor;
        if (tide_shown_address(s->segments[i].of.address) != wants->segment) continue;
        for (; tide_caching_next_block(s->allocator, &cursor, &b); at++) {
            uint32_t holder = holder_of(s, &b);
            if (at < wants->first_block || at - wants->first_block >= BLOCKS) continue;
            tide_write_open(s->w, '{');
            tide_write_bytes_at(s->w, "at", b.address - s->segments[i].of.address);
            tide_write_bytes_at(s->w, "bytes", b.bytes);
            tide_write_string_at(s->w, "state", state_names[b.state]);
            if (holder) write_holder(s, holder - 1, s->holders->write_brief);
            tide_write_close(s->w, '}');
        }
    }
    tide_write_close(s->w, ']');
}

void tide_write_state(tide_writer *w, const tide_caching_allocator *allocator, const tide_holders *holders,
                      const tide_state_wants *wants) {
    state *s = TIDE_NEW(w->arena, state, 1);
    *s = (state){.w = w, .allocator = allocator, .holders = holders};
    look(s);
    uint64_t reserved = tide_caching_stat(allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current;
    order_segments(s);
    tide_write_bytes_at(w, "allocated", tide_caching_stat(allocator, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL).current);
    tide_write_bytes_at(w, "reserved", reserved);
    tide_write_bytes_at(w, "waiting", s->waiting);
    tide_write_bytes_at(w, "largest_free", s->largest_free);
    tide_write_int_at(w, "segment_count", s->segment_count);
    tide_write_int_at(w, "block_count", s->block_count);
    tide_write_int_at(w, "live_count", s->live_count);
    tide_write_key(w, "idle"); /* what empty_cache() would give back */
    tide_write_open(w, '{');
    tide_write_int_at(w, "count", s->idle_count);
    tide_write_bytes_at(w, "bytes", s->idle_bytes);
    tide_write_close(w, '}');
    write_segments(s);
    write_alive(s);
    if (wants->has_segment) write_blocks(s, wants);
}

/* ---- events ---- */

void tide_open_event(tide_writer *w, const tide_event_row *r) {
    tide_write_open(w, '{');
    tide_write_int_at(w, "event", r->event);
    tide_write_string_at(w, "kind", r->kind);
    if (r->has_request) {
        tide_write_bytes_at(w, "requested", r->requested);
        tide_write_int_at(w, "stream", r->stream);
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
}

uint32_t tide_window_first(const tide_window *window, uint32_t passing, uint32_t before) {
    uint32_t first = window->has_at ? (before > window->count / 2 ? before - window->count / 2 : 0) : window->first;
    if (first + (uint64_t)window->count > passing) first = passing > window->count ? passing - window->count : 0;
    return first;
}
