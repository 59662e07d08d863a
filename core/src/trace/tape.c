/* SPDX-License-Identifier: Apache-2.0 */
/* Converting addresses to slots. */
#include "trace/tape.h"

#include <stdlib.h>
#include <string.h>

enum { LIVE = 1, PENDING = 2, FREED_BITS = 14, TIMES_APART = 200 };
/* Larger segments are not accepted: 1 PiB, so that sums stay far below overflow. */
static const uint64_t SEGMENT_MOST = UINT64_C(1) << 50;
/* A segment is at most this much larger than the request for it (kLargeBuffer). */
static const uint64_t SEGMENT_SLACK = UINT64_C(20) << 20;
static const uint32_t INDEX_LIMIT = TIDE_TAPE_MASK;

void tide_tape_init(tide_tape *tape, tide_arena *arena) {
    *tape = (tide_tape){.arena = arena};
}

static uint32_t hash_of(uint64_t key) {
    return (uint32_t)((key >> 9 ^ key << 21) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static bool add_event(tide_tape *t, tide_event_kind kind, uint32_t index) {
    if (t->event_count >= INDEX_LIMIT) return false;
    TIDE_ROOM(t->arena, t->events, t->event_count, t->event_capacity);
    t->events[t->event_count++] = (uint32_t)kind << TIDE_TAPE_SHIFT | index;
    return true;
}

/* ---- sites and streams ---- */

static bool same_site(const tide_call_site *a, const tide_call_site *b) {
    return a->bytes == b->bytes && a->stream == b->stream && a->stack == b->stack;
}

static uint32_t *site_place(tide_tape *t, const tide_call_site *site) {
    uint32_t mask = t->site_table_count - 1, at;
    uint64_t key = site->bytes * 31 + site->stack * UINT64_C(0x9e3779b97f4a7c15) + site->stream;
    for (at = hash_of(key << 9) & mask; t->site_table[at]; at = (at + 1) & mask)
        if (same_site(&t->sites[t->site_table[at] - 1], site)) break;
    return &t->site_table[at];
}

static uint32_t site_of(tide_tape *t, const tide_call_site *site) {
    if (t->site_count * 2 >= t->site_table_count) {
        size_t old = t->site_table_count;
        t->site_table_count = old ? (uint32_t)old * 2 : 1024;
        t->site_table = tide_arena_grow(t->arena, t->site_table, old * 4, (size_t)t->site_table_count * 4);
        memset(t->site_table, 0, old * 4);
        for (uint32_t i = 0; i < t->site_count; i++) *site_place(t, &t->sites[i]) = i + 1;
    }
    uint32_t *place = site_place(t, site);
    if (!*place) {
        TIDE_ROOM(t->arena, t->sites, t->site_count, t->site_capacity);
        t->sites[t->site_count] = *site;
        *place = ++t->site_count;
    }
    return *place - 1;
}

/* Streams above the limit share the last number. */
static uint32_t stream_of(tide_tape *t, uint64_t handle) {
    uint32_t i = 0;
    if (!t->streams) t->streams = TIDE_NEW(t->arena, uint64_t, TIDE_TAPE_STREAMS), t->stream_count = 1;
    while (i < t->stream_count && t->streams[i] != handle) i++;
    if (i == TIDE_TAPE_STREAMS) return i - 1;
    if (i == t->stream_count) t->streams[t->stream_count++] = handle;
    return i;
}

/* ---- live blocks by address: open addressing, entries move up when one goes ---- */

static tide_live_block *live_at(const tide_tape *t, uint64_t address) {
    uint32_t mask = t->live_capacity - 1, at = hash_of(address) & mask;
    while (t->live[at].state && t->live[at].address != address) at = (at + 1) & mask;
    return &t->live[at];
}

static void live_put(tide_tape *t, uint64_t address, uint32_t what, uint32_t state) {
    if (t->live_count * 2 >= t->live_capacity) {
        tide_live_block *old = t->live;
        uint32_t count = t->live_capacity;
        t->live_capacity = count ? count * 2 : 1024;
        t->live = tide_arena_grow(t->arena, NULL, 0, (size_t)t->live_capacity * sizeof *t->live);
        for (uint32_t i = 0; i < count; i++)
            if (old[i].state) *live_at(t, old[i].address) = old[i];
        if (old) tide_arena_drop(t->arena, old);
    }
    tide_live_block *entry = live_at(t, address);
    if (!entry->state) t->live_count++;
    *entry = (tide_live_block){address, what, state};
}

static void live_remove(tide_tape *t, tide_live_block *entry) {
    uint32_t mask = t->live_capacity - 1, hole = (uint32_t)(entry - t->live), at = hole;
    t->live_count--;
    for (;;) {
        t->live[hole].state = 0;
        for (;;) {
            at = (at + 1) & mask;
            if (!t->live[at].state) return;
            uint32_t home = hash_of(t->live[at].address) & mask;
            if (((at - home) & mask) >= ((at - hole) & mask)) break;
        }
        t->live[hole] = t->live[at];
        hole = at;
    }
}

bool tide_tape_is_live(const tide_tape *tape, uint64_t address) {
    return tape->live_capacity && live_at(tape, address)->state != 0;
}

/* ---- segments: who released them ---- */

/* A recording may contain anything: sums are kept within 2^60. */
static int64_t bounded(int64_t bytes) {
    const int64_t most = INT64_C(1) << 60;
    return bytes > most ? most : bytes < -most ? -most : bytes;
}

void tide_tape_segment(tide_tape *t, bool is_released, uint64_t bytes) {
    if (bytes > SEGMENT_MOST) return;
    t->has_segments = true;
    if (is_released) {
        if (!t->group_releases) t->group_reserved = t->reserved, t->group_new = 0;
        t->group_releases = true;
        t->reserved = bounded(t->reserved - (int64_t)bytes);
        if (t->reserved < t->least_reserved) t->least_reserved = t->reserved;
    } else {
        t->group_new += bytes;
        t->reserved = bounded(t->reserved + (int64_t)bytes);
        if (t->reserved > (int64_t)t->reserved_peak) t->reserved_peak = (uint64_t)t->reserved;
    }
}

/* A record that is not about a segment ends a run of them; `bytes` of a request that failed, which created no segment.
 */
static void end_group(tide_tape *t, bool is_request, uint64_t bytes) {
    if (!t->group_releases) return;
    uint64_t added = t->group_new ? t->group_new : bytes;
    t->group_releases = false;
    TIDE_ROOM(t->arena, t->releases, t->release_count, t->release_capacity);
    t->releases[t->release_count] = (tide_cache_release){(uint64_t)t->group_reserved + added, is_request && added};
    add_event(t, TIDE_EVENT_RELEASE, t->release_count++);
}

void tide_tape_empty_cache(tide_tape *t) {
    t->group_releases = true;
    end_group(t, false, 0);
}

/* ---- requests and frees ---- */

static void spare_slot(tide_tape *t, uint32_t slot) {
    TIDE_ROOM(t->arena, t->spare, t->spare_count, t->spare_capacity);
    t->spare[t->spare_count++] = slot;
}

bool tide_tape_alloc(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack) {
    if (!bytes) return true;
    end_group(t, true, 0);
    t->group_new = 0;
    if (tide_tape_is_live(t, address) && live_at(t, address)->state == LIVE) { /* its free is missing */
        t->doubled++;
        tide_tape_free(t, address, 0, stream);
    }
    tide_call_site site = {bytes, stream_of(t, stream), stack};
    uint32_t slot = t->spare_count ? t->spare[--t->spare_count] : t->slot_count++;
    live_put(t, address, slot, LIVE);
    t->requests++;
    return slot < INDEX_LIMIT && t->site_count < INDEX_LIMIT && add_event(t, TIDE_EVENT_ALLOC, site_of(t, &site));
}

void tide_tape_older_block(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack) {
    if (!bytes || t->slot_count >= INDEX_LIMIT) return;
    tide_call_site site = {bytes, stream_of(t, stream), stack};
    uint32_t slot = t->slot_count++;
    TIDE_ROOM(t->arena, t->older_blocks, t->older_block_count, t->older_block_capacity);
    t->older_blocks[t->older_block_count++] = (tide_older_block){address, slot, site_of(t, &site)};
    live_put(t, address, slot, LIVE);
}

void tide_tape_older_segment(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    if (bytes > SEGMENT_MOST) return;
    t->has_segments = true;
    TIDE_ROOM(t->arena, t->older_segments, t->older_segment_count, t->older_segment_capacity);
    t->older_segments[t->older_segment_count++] = (tide_older_segment){address, bytes, stream_of(t, stream)};
}

/* The live entry of a freed address; NULL: unknown. */
static tide_live_block *find_freed(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    end_group(t, false, 0);
    t->group_new = 0;
    if (!tide_tape_is_live(t, address)) {
        t->unknown_frees++;
        tide_tape_older_block(t, address, bytes, stream, 0);
        if (!bytes) return NULL;
    }
    tide_live_block *entry = live_at(t, address);
    if (entry->state != LIVE) return NULL;
    t->frees++;
    return entry;
}

void tide_tape_free(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    tide_live_block *entry = find_freed(t, address, bytes, stream);
    if (!entry) return;
    uint32_t slot = entry->what;
    live_remove(t, entry);
    if (!t->freed) t->freed = tide_arena_grow(t->arena, NULL, 0, sizeof *t->freed << FREED_BITS);
    t->freed[hash_of(address) >> (32 - FREED_BITS)] = (tide_freed_block){address, t->event_count, slot};
    add_event(t, TIDE_EVENT_FREE, slot);
    spare_slot(t, slot);
}

static uint32_t add_pending(tide_tape *t, uint32_t event) {
    TIDE_ROOM(t->arena, t->pending, t->pending_count, t->pending_capacity);
    t->pending[t->pending_count] = (tide_pending_free){event, t->pending_count};
    return t->pending_count++;
}

void tide_tape_free_pending(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    tide_live_block *entry = find_freed(t, address, bytes, stream);
    if (!entry) return;
    uint32_t slot = entry->what;
    entry->what = add_pending(t, t->event_count);
    entry->state = PENDING;
    add_event(t, TIDE_EVENT_FREE_PENDING, slot);
    spare_slot(t, slot);
}

void tide_tape_free_completed(tide_tape *t, uint64_t address) {
    if (tide_tape_is_live(t, address)) {
        tide_live_block *entry = live_at(t, address);
        if (entry->state != PENDING) return;
        add_event(t, TIDE_EVENT_FREE_COMPLETED, entry->what);
        live_remove(t, entry);
        return;
    }
    tide_freed_block *freed = t->freed ? &t->freed[hash_of(address) >> (32 - FREED_BITS)] : NULL;
    if (!freed || freed->address != address || t->events[freed->event] >> TIDE_TAPE_SHIFT != TIDE_EVENT_FREE) return;
    t->events[freed->event] = (uint32_t)TIDE_EVENT_FREE_PENDING << TIDE_TAPE_SHIFT | freed->slot;
    add_event(t, TIDE_EVENT_FREE_COMPLETED, add_pending(t, freed->event));
}

bool tide_tape_oom(tide_tape *t, uint64_t free_bytes, uint64_t bytes, uint64_t stream, uint32_t stack) {
    end_group(t, true, bytes);
    t->group_new = 0;
    if (t->ooms++ == 0 && free_bytes < SEGMENT_MOST) {
        t->is_limited = free_bytes >= bytes && free_bytes - bytes >= SEGMENT_SLACK;
        t->oom_room = (uint64_t)t->reserved + free_bytes;
    }
    if (!bytes) return true;
    tide_call_site site = {bytes, stream_of(t, stream), stack};
    return add_event(t, TIDE_EVENT_OOM, site_of(t, &site));
}

void tide_tape_time_is(tide_tape *t, uint64_t microseconds) {
    if (t->time_count && t->event_count - t->times[t->time_count - 1].event < TIMES_APART) return;
    TIDE_ROOM(t->arena, t->times, t->time_count, t->time_capacity);
    t->times[t->time_count++] = (tide_tape_time){t->event_count, microseconds};
}

void tide_tape_slots_init(tide_tape_slots *slots, const tide_tape *tape, uint32_t *spare) {
    *slots = (tide_tape_slots){.tape = tape, .spare = spare};
}

uint32_t tide_tape_next_slot(tide_tape_slots *s) {
    if (s->spare_count) return s->spare[--s->spare_count];
    while (s->before < s->tape->older_block_count && s->tape->older_blocks[s->before].slot == s->fresh)
        s->before++, s->fresh++;
    return s->fresh++;
}

void tide_tape_give_slot(tide_tape_slots *s, uint32_t slot) {
    s->spare[s->spare_count++] = slot;
}

void tide_tape_no_pending_frees(tide_tape *t) {
    for (uint32_t i = 0; i < t->pending_count; i++)
        t->events[t->pending[i].event] =
            (uint32_t)TIDE_EVENT_FREE << TIDE_TAPE_SHIFT | (t->events[t->pending[i].event] & TIDE_TAPE_MASK);
    t->pending_count = 0;
}

static int by_tape_event(const void *a, const void *b) {
    const tide_pending_free *x = a, *y = b;
    return x->event < y->event ? -1 : x->event > y->event;
}

typedef struct placed {
    uint64_t address;
    uint32_t index;
} placed;

static int by_address(const void *a, const void *b) {
    const placed *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Older blocks arrive roughly sorted by address. */
static void sort_before(tide_tape *t) {
    placed *order = tide_arena_grow(t->arena, NULL, 0, t->older_block_count * sizeof *order);
    t->by_address = tide_arena_grow(t->arena, NULL, 0, t->older_block_count * sizeof *t->by_address);
    for (uint32_t i = 0; i < t->older_block_count; i++) order[i] = (placed){t->older_blocks[i].address, i};
    qsort(order, t->older_block_count, sizeof *order, by_address);
    for (uint32_t i = 0; i < t->older_block_count; i++) t->by_address[i] = order[i].index;
    tide_arena_drop(t->arena, order);
}

/* Adds what was reserved before: according to the older segments, and at least what was released. */
static void settle_reserved(tide_tape *t) {
    uint64_t before = (uint64_t)-t->least_reserved, held = 0;
    for (uint32_t i = 0; i < t->older_segment_count; i++) held += t->older_segments[i].bytes;
    if (held > before) before = held;
    if (t->has_segments) t->reserved_peak += before;
    if (t->oom_room) t->oom_room += before;
    for (uint32_t i = 0; i < t->release_count; i++)
        t->releases[i].need = t->releases[i].is_followed ? t->releases[i].need + before : 0;
}

void tide_tape_close(tide_tape *t) {
    end_group(t, false, 0);
    settle_reserved(t);
    if (t->older_block_count) sort_before(t);
    if (t->pending_count) qsort(t->pending, t->pending_count, sizeof *t->pending, by_tape_event);
    if (t->live) tide_arena_drop(t->arena, t->live);
    if (t->freed) tide_arena_drop(t->arena, t->freed);
    if (t->spare) tide_arena_drop(t->arena, t->spare);
    t->live = NULL, t->freed = NULL, t->spare = NULL;
    t->live_capacity = t->spare_count = t->spare_capacity = 0;
}
