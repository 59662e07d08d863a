/* Playing a tape. */
#include "report/play.h"

#include <string.h>

#include "base/units.h"
#include "report/segments.h"

/* Waits are told to the allocator as the use of a stream of their own, taken from this many at the top. */
enum { WAIT_STREAMS = 256, FIRST_WAIT_STREAM = TIDE_CACHING_STREAM_LIMIT - WAIT_STREAMS };

typedef struct holes {
    tide_block *blocks;
    uint32_t count;
} holes;

typedef struct player {
    tide_play *play;
    const tide_tape *tape;
    tide_caching_allocator *allocator;
    tide_block *blocks; /* by slot */
    uint32_t *sites;    /* by slot */
    tide_tape_slots slots;
    uint32_t wait;          /* the next one */
    uint16_t *wait_streams; /* by number of wait; 0: not waiting */
    uint16_t free_streams[WAIT_STREAMS];
    uint32_t free_stream_count;
    uint64_t allocated;
    uint32_t latest; /* the slot that was taken last */
    bool settles;
    holes holes;        /* of segments of before; blocks NULL: they are not known, or not those of this allocator */
    tide_block *wholes; /* two for each segment */
} player;

static tide_caching_status take_bytes(player *p, uint32_t slot, uint32_t site, uint64_t bytes) {
    p->sites[slot] = site;
    p->latest = slot;
    tide_caching_status status =
        tide_caching_malloc(p->allocator, bytes, p->tape->sites[site].stream, &p->blocks[slot]);
    if (status == TIDE_CACHING_OK) p->allocated += tide_caching_block_bytes(p->allocator, p->blocks[slot]);
    return status;
}

static tide_caching_status take(player *p, uint32_t slot, uint32_t site) {
    return take_bytes(p, slot, site, p->tape->sites[site].bytes);
}

static void give(player *p, uint32_t slot) {
    if (p->blocks[slot]) p->allocated -= tide_caching_block_bytes(p->allocator, p->blocks[slot]);
    tide_caching_free(p->allocator, p->blocks[slot]);
    p->blocks[slot] = 0;
    tide_tape_give_slot(&p->slots, slot);
}

/* With all streams taken, a block is back at once. */
static bool start_wait(player *p, uint32_t slot) {
    uint32_t number = p->tape->pending[p->wait++].number;
    if (p->free_stream_count && p->blocks[slot]) {
        uint16_t stream = p->free_streams[--p->free_stream_count];
        p->wait_streams[number] = stream;
        if (tide_caching_record_stream(p->allocator, p->blocks[slot], stream) != TIDE_CACHING_OK) return false;
    }
    give(p, slot);
    return true;
}

static void end_wait(player *p, uint32_t number) {
    if (!p->wait_streams[number]) return;
    tide_caching_synchronize(p->allocator, p->wait_streams[number]);
    p->free_streams[p->free_stream_count++] = p->wait_streams[number];
    p->wait_streams[number] = 0;
}

/* Whether the cache serves the request that stands behind `event` on the tape. Asks for it, and gives it back. */
static bool has_cached(player *p, const uint32_t *event) {
    const tide_call_site *s;
    tide_block block;
    if (event + 1 == p->tape->events + p->tape->event_count || event[1] >> TIDE_TAPE_SHIFT != TIDE_EVENT_ALLOC)
        return false;
    s = &p->tape->sites[event[1] & TIDE_TAPE_MASK];
    uint64_t before = tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).allocated;
    if (tide_caching_malloc(p->allocator, s->bytes, s->stream, &block) != TIDE_CACHING_OK) return false;
    tide_caching_free(p->allocator, block);
    return tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).allocated == before;
}

/* Note [Who released segments]: the second half. */
static bool was_empty_cache(player *p, const uint32_t *event) {
    tide_cache_release *given = &p->tape->releases[*event & TIDE_TAPE_MASK];
    if (p->settles && given->need && given->need != UINT64_MAX && has_cached(p, event)) given->need = 0;
    return given->need <= p->tape->reserved_peak;
}

static void note_peaks(player *p, uint32_t event) {
    tide_play *play = p->play;
    uint64_t reserved = tide_caching_reserved(p->allocator);
    if (p->allocated > play->allocated_peak) {
        play->allocated_peak = p->allocated;
        play->peak_event = event;
    }
    if (reserved > play->reserved_peak) {
        play->reserved_peak = reserved;
        play->reserved_event = event;
        play->allocated_then = p->allocated;
        play->split_then = tide_caching_stat(p->allocator, TIDE_STAT_INACTIVE_SPLIT_BYTES, TIDE_POOL_ALL).current;
    }
}

/* One event; TIDE_CACHING_OOM ends the play. */
static tide_caching_status play_event(player *p, const uint32_t *event) {
    uint32_t index = *event & TIDE_TAPE_MASK;
    tide_caching_status status = TIDE_CACHING_OK;
    tide_block block;
    switch ((tide_event_kind)(*event >> TIDE_TAPE_SHIFT)) {
    case TIDE_EVENT_ALLOC:
        return take(p, tide_tape_next_slot(&p->slots), index);
    case TIDE_EVENT_FREE:
        give(p, index);
        break;
    case TIDE_EVENT_FREE_PENDING:
        return start_wait(p, index) ? TIDE_CACHING_OK : TIDE_CACHING_NO_MEMORY;
    case TIDE_EVENT_FREE_COMPLETED:
        end_wait(p, index);
        break;
    case TIDE_EVENT_OOM:
        status = tide_caching_malloc(p->allocator, p->tape->sites[index].bytes, p->tape->sites[index].stream, &block);
        tide_caching_free(p->allocator, block);
        return status == TIDE_CACHING_OOM ? TIDE_CACHING_OK : status;
    case TIDE_EVENT_RELEASE:
        if (was_empty_cache(p, event)) return tide_caching_empty_cache(p->allocator);
        break;
    }
    return status;
}

/* Note [Holes]
 * Where the segments of before are known, so are the holes between their blocks. All segments are made first, each by
 * one request for the whole of it; then one after another is given back and cut again, from its low end, into holes and
 * blocks; at last the holes are given back. While a segment is cut all others are full, so that every piece comes from
 * it. A hole that the allocator would not have split off belongs to the block before it. */
enum { SMALL_SEGMENT = 2 << 20, SMALL_PIECE = 1 << 20, SPLIT_MOST = 1 << 20, LEAST_BLOCK = 512 };

/* Of a small segment in pieces that the small pool takes. */
static tide_caching_status take_hole(player *p, holes *h, uint64_t bytes, const tide_older_segment *s) {
    tide_caching_status status = TIDE_CACHING_OK;
    while (bytes && status == TIDE_CACHING_OK) {
        uint64_t piece = s->bytes == SMALL_SEGMENT && bytes > SMALL_PIECE ? SMALL_PIECE : bytes;
        status = tide_caching_malloc(p->allocator, piece, s->stream, &h->blocks[h->count++]);
        bytes -= piece;
    }
    return status;
}

/* A segment of its own, full: one block, or two of the small pool. */
static tide_caching_status make_segment(player *p, const tide_older_segment *s, tide_block *whole) {
    uint64_t piece = s->bytes == SMALL_SEGMENT ? SMALL_PIECE : s->bytes;
    tide_caching_status status = tide_caching_malloc(p->allocator, piece, s->stream, &whole[0]);
    if (status == TIDE_CACHING_OK && s->bytes == SMALL_SEGMENT)
        status = tide_caching_malloc(p->allocator, piece, s->stream, &whole[1]);
    return status;
}

/* Cuts the segment into the blocks of before that lie in it; *next is the first of them by address, and moves on. */
static tide_caching_status cut_segment(player *p, const tide_older_segment *s, uint32_t *next, holes *h) {
    const tide_tape *t = p->tape;
    uint64_t at = s->address, end = s->address + s->bytes,
             most = s->bytes == SMALL_SEGMENT ? LEAST_BLOCK - 1 : SPLIT_MOST;
    tide_caching_status status = TIDE_CACHING_OK;
    while (status == TIDE_CACHING_OK && *next < t->older_block_count) {
        const tide_older_block *b = &t->older_blocks[t->by_address[*next]];
        if (b->address >= end) break;
        uint64_t behind = *next + 1 < t->older_block_count ? t->older_blocks[t->by_address[*next + 1]].address : end;
        uint64_t bytes = TIDE_ROUND_UP(t->sites[b->site].bytes, LEAST_BLOCK);
        if (behind > end) behind = end;
        ++*next;
        if (b->address < at || bytes > behind - b->address) bytes = 0; /* not as they can lie */
        if (bytes && behind - b->address - bytes <= most) bytes = behind - b->address;
        if (bytes && b->address > at) status = take_hole(p, h, b->address - at, s);
        if (status != TIDE_CACHING_OK) break;
        status = take_bytes(p, b->slot, b->site, bytes ? bytes : t->sites[b->site].bytes);
        if (bytes) at = b->address + bytes;
    }
    if (status == TIDE_CACHING_OK && at < end) status = take_hole(p, h, end - at, s);
    return status;
}

static tide_caching_status play_held(player *p, tide_block *wholes, holes *h) {
    const tide_tape *t = p->tape;
    tide_caching_status status = TIDE_CACHING_OK;
    uint32_t next = 0;
    for (uint32_t i = 0; i < t->older_segment_count && status == TIDE_CACHING_OK; i++)
        status = make_segment(p, &t->older_segments[i], &wholes[2 * i]);
    for (uint32_t i = 0; i < t->older_segment_count && status == TIDE_CACHING_OK; i++) {
        while (next < t->older_block_count && t->older_blocks[t->by_address[next]].address < t->older_segments[i].address &&
               status == TIDE_CACHING_OK) {
            const tide_older_block *b = &t->older_blocks[t->by_address[next++]]; /* in no segment that is known */
            status = take(p, b->slot, b->site);
        }
        tide_caching_free(p->allocator, wholes[2 * i]);
        tide_caching_free(p->allocator, wholes[2 * i + 1]);
        if (status == TIDE_CACHING_OK) status = cut_segment(p, &t->older_segments[i], &next, h);
    }
    for (; next < t->older_block_count && status == TIDE_CACHING_OK; next++)
        status = take(p, t->older_blocks[t->by_address[next]].slot, t->older_blocks[t->by_address[next]].site);
    for (uint32_t i = 0; i < h->count; i++) tide_caching_free(p->allocator, h->blocks[i]);
    tide_caching_reset_peaks(p->allocator);
    note_peaks(p, 0);
    return status;
}

static tide_caching_status play_before(player *p) {
    if (p->holes.blocks) return play_held(p, p->wholes, &p->holes);
    tide_caching_status status = TIDE_CACHING_OK;
    for (uint32_t i = 0; i < p->tape->older_block_count && status == TIDE_CACHING_OK; i++) {
        const tide_older_block *b = &p->tape->older_blocks[p->tape->by_address[i]];
        status = take(p, b->slot, b->site);
        if (status == TIDE_CACHING_OOM) p->play->oom_stack = p->tape->sites[b->site].stack;
    }
    note_peaks(p, 0);
    return status;
}

static void fill_column(player *p, const tide_play_wants *wants, uint32_t event, uint32_t *time) {
    const tide_tape *t = p->tape;
    while (*time + 1 < t->time_count && t->times[*time + 1].event <= event) ++*time;
    if (event < wants->from || event >= wants->to) return;
    tide_column *c = &wants->columns[(uint64_t)(event - wants->from) * wants->column_count / (wants->to - wants->from)];
    uint64_t reserved = tide_caching_reserved(p->allocator);
    if (p->allocated > c->allocated) c->allocated = p->allocated;
    if (reserved > c->reserved) c->reserved = reserved;
    if (t->time_count) c->microseconds = t->times[*time].microseconds;
}

static void note_block(const player *p, uint32_t slot, tide_play_row *row) {
    tide_segment_info segment;
    if (!p->blocks[slot]) return;
    row->has_block = true;
    row->address = tide_caching_address(p->allocator, p->blocks[slot]);
    row->bytes = tide_caching_block_bytes(p->allocator, p->blocks[slot]);
    if (tide_segment_at(p->allocator, row->address, &segment)) row->segment = segment.address;
}

/* Plays an event and fills its row. */
static tide_caching_status play_row(player *p, const uint32_t *event, tide_play_row *row) {
    tide_event_kind kind = (tide_event_kind)(*event >> TIDE_TAPE_SHIFT);
    if (kind == TIDE_EVENT_FREE || kind == TIDE_EVENT_FREE_PENDING) note_block(p, *event & TIDE_TAPE_MASK, row);
    tide_caching_status status = play_event(p, event);
    if (kind == TIDE_EVENT_ALLOC && status == TIDE_CACHING_OK) note_block(p, p->latest, row);
    row->is_played = true;
    row->allocated = p->allocated;
    row->reserved = tide_caching_reserved(p->allocator);
    return status;
}

static tide_caching_status play_events(player *p, const tide_play_wants *wants) {
    const tide_tape *t = p->tape;
    uint32_t time = 0, row = 0, count = wants->stop < t->event_count ? wants->stop : t->event_count;
    tide_caching_status status = play_before(p);
    for (uint32_t i = 0; i < count && status == TIDE_CACHING_OK; i++) {
        bool has_row = row < wants->row_count && wants->rows[row].event == i;
        status = has_row ? play_row(p, &t->events[i], &wants->rows[row++]) : play_event(p, &t->events[i]);
        p->play->events = i + (status == TIDE_CACHING_OK);
        if (status == TIDE_CACHING_OOM) p->play->oom_stack = t->sites[t->events[i] & TIDE_TAPE_MASK].stack;
        if (t->events[i] >> TIDE_TAPE_SHIFT == TIDE_EVENT_ALLOC) note_peaks(p, i);
        if (wants->columns) fill_column(p, wants, i, &time);
    }
    return status;
}

static void finish(player *p, const tide_play_wants *wants) {
    tide_play *play = p->play;
    tide_caching_counts counts = tide_caching_counters(p->allocator);
    tide_stat reserved = tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL);
    play->allocated = p->allocated;
    play->reserved = reserved.current;
    if (reserved.peak > play->reserved_peak) play->reserved_peak = reserved.peak;
    play->requested_peak = tide_caching_stat(p->allocator, TIDE_STAT_REQUESTED_BYTES, TIDE_POOL_ALL).peak;
    play->retries = counts.alloc_retries;
    play->ooms = counts.ooms;
    if (wants->on_stop) wants->on_stop(wants->user, p->allocator, p->blocks);
    for (uint32_t i = 0; wants->on_live && i < p->tape->slot_count; i++)
        if (p->blocks[i])
            wants->on_live(wants->user, &p->tape->sites[p->sites[i]],
                           tide_caching_block_bytes(p->allocator, p->blocks[i]));
}

/* Segments of before serve an allocator that makes such segments, on a device that has room for all of them: on a
 * smaller one the process would not have come to hold them. */
static bool has_holes(const tide_tape *t, const tide_replay_config *config) {
    uint64_t room = config->device_bytes ? config->device_bytes : UINT64_MAX, bytes = config->outside_bytes;
    if (config->conf.expandable_segments || config->conf.backend != TIDE_ALLOC_NATIVE || config->fraction_ppm)
        return false;
    for (uint32_t i = 0; i < t->older_segment_count; i++) {
        if (bytes > room || t->older_segments[i].bytes > room - bytes) return false;
        bytes += t->older_segments[i].bytes;
    }
    return t->older_segment_count > 0;
}

bool tide_play_tape(tide_play *play, const tide_tape *tape, const tide_replay_config *config,
                    const tide_play_wants *wants) {
    static const tide_play_wants nothing = {.stop = UINT32_MAX};
    tide_arena *arena = tape->arena;
    size_t slots = (size_t)tape->slot_count + 1, waits = (size_t)tape->pending_count + 1;
    if (!wants) wants = &nothing;
    player p = {.play = play, .tape = tape, .settles = wants->settles};
    *play = (tide_play){0};
    p.blocks = tide_arena_grow(arena, NULL, 0, slots * sizeof *p.blocks);
    p.sites = tide_arena_grow(arena, NULL, 0, slots * sizeof *p.sites);
    tide_tape_slots_init(&p.slots, tape, tide_arena_grow(arena, NULL, 0, slots * sizeof *p.slots.spare));
    p.wait_streams = tide_arena_grow(arena, NULL, 0, waits * sizeof *p.wait_streams);
    bool knows_holes = has_holes(tape, config);
    if (knows_holes) {
        p.wholes = tide_arena_grow(arena, NULL, 0, 2 * (size_t)tape->older_segment_count * sizeof *p.wholes);
        p.holes.blocks = tide_arena_grow(arena, NULL, 0,
                                         2 * ((size_t)tape->older_segment_count + tape->older_block_count) * sizeof *p.holes.blocks);
    }
    if (!tide_replay_allocator(&p.allocator, wants->arena ? tide_arena_memory(wants->arena) : arena->memory, config,
                               false))
        return false;
    for (uint16_t i = 0; i < WAIT_STREAMS; i++)
        p.free_streams[p.free_stream_count++] = (uint16_t)(FIRST_WAIT_STREAM + i);
    if (tape->pending_count) tide_caching_hold_events(p.allocator);
    tide_caching_status status = play_events(&p, wants);
    play->is_oom = status == TIDE_CACHING_OOM;
    if (play->is_oom) play->oom = tide_caching_oom_info(p.allocator);
    finish(&p, wants);
    tide_caching_destroy(p.allocator);
    tide_arena_drop(arena, p.blocks);
    tide_arena_drop(arena, p.sites);
    tide_arena_drop(arena, p.slots.spare);
    tide_arena_drop(arena, p.wait_streams);
    if (knows_holes) tide_arena_drop(arena, p.wholes), tide_arena_drop(arena, p.holes.blocks);
    return status == TIDE_CACHING_OK || status == TIDE_CACHING_OOM;
}
