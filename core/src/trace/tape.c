/* From addresses to slots. */
#include "trace/tape.h"

#include <stdlib.h>
#include <string.h>

enum { LIVE = 1, WAITING = 2, GONE_BITS = 14, TIMES_APART = 200 };
/* A segment is at most this much larger than the request that makes it (kLargeBuffer). */
/* Larger ones there are none: 1 PiB, so that sums stay far from their ends. */
static const uint64_t SEGMENT_MOST = UINT64_C(1) << 50;
static const uint64_t SEGMENT_SLACK = UINT64_C(20) << 20;
static const uint32_t INDEX_LIMIT = TIDE_TAPE_MASK;

void tide_tape_init(tide_tape *tape, tide_arena *arena) {
    *tape = (tide_tape){.arena = arena};
}

static uint32_t hash_of(uint64_t key) {
    return (uint32_t)((key >> 9 ^ key << 21) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static bool add_event(tide_tape *t, tide_tape_kind kind, uint32_t index) {
    if (t->event_count >= INDEX_LIMIT) return false;
    TIDE_ROOM(t->arena, t->events, t->event_count, t->event_capacity);
    t->events[t->event_count++] = (uint32_t)kind << TIDE_TAPE_SHIFT | index;
    return true;
}

/* ---- sites and streams ---- */

static bool same_site(const tide_call_arguments *a, const tide_call_arguments *b) {
    return a->bytes == b->bytes && a->stream == b->stream && a->stack == b->stack;
}

static uint32_t *site_place(tide_tape *t, const tide_call_arguments *site) {
    uint32_t mask = t->site_slot_count - 1, at;
    uint64_t key = site->bytes * 31 + site->stack * UINT64_C(0x9e3779b97f4a7c15) + site->stream;
    for (at = hash_of(key << 9) & mask; t->site_slots[at]; at = (at + 1) & mask)
        if (same_site(&t->sites[t->site_slots[at] - 1], site)) break;
    return &t->site_slots[at];
}

static uint32_t site_of(tide_tape *t, const tide_call_arguments *site) {
    if (t->site_count * 2 >= t->site_slot_count) {
        size_t old = t->site_slot_count;
        t->site_slot_count = old ? (uint32_t)old * 2 : 1024;
        t->site_slots = tide_arena_grow(t->arena, t->site_slots, old * 4, (size_t)t->site_slot_count * 4);
        memset(t->site_slots, 0, old * 4);
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

/* Streams past the limit share the last number. */
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

/* ---- segments: who gave memory back ---- */

/* A recording may say anything: what it adds up to stays within 2^60. */
static int64_t bounded(int64_t bytes) {
    const int64_t most = INT64_C(1) << 60;
    return bytes > most ? most : bytes < -most ? -most : bytes;
}

void tide_tape_segment(tide_tape *t, bool is_given_back, uint64_t bytes) {
    if (bytes > SEGMENT_MOST) return;
    t->has_segments = true;
    if (is_given_back) {
        if (!t->group_gives) t->group_reserved = t->reserved, t->group_new = 0;
        t->group_gives = true;
        t->reserved = bounded(t->reserved - (int64_t)bytes);
        if (t->reserved < t->least_reserved) t->least_reserved = t->reserved;
    } else {
        t->group_new += bytes;
        t->reserved = bounded(t->reserved + (int64_t)bytes);
        if (t->reserved > (int64_t)t->reserved_peak) t->reserved_peak = (uint64_t)t->reserved;
    }
}

/* A record that is no segment's ends the run; `bytes` of a request that failed, which made no segment. */
static void end_group(tide_tape *t, bool is_request, uint64_t bytes) {
    if (!t->group_gives) return;
    uint64_t added = t->group_new ? t->group_new : bytes;
    t->group_gives = false;
    TIDE_ROOM(t->arena, t->given, t->given_count, t->given_capacity);
    t->given[t->given_count] = (tide_give_back){(uint64_t)t->group_reserved + added, is_request && added};
    add_event(t, TIDE_TAPE_GAVE_BACK, t->given_count++);
}

void tide_tape_empty_cache(tide_tape *t) {
    t->group_gives = true;
    end_group(t, false, 0);
}

/* ---- requests and frees ---- */

static void give_slot(tide_tape *t, uint32_t slot) {
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
    tide_call_arguments site = {bytes, stream_of(t, stream), stack};
    uint32_t slot = t->spare_count ? t->spare[--t->spare_count] : t->slot_count++;
    live_put(t, address, slot, LIVE);
    t->requests++;
    return slot < INDEX_LIMIT && t->site_count < INDEX_LIMIT && add_event(t, TIDE_TAPE_ALLOC, site_of(t, &site));
}

void tide_tape_was_there(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream, uint32_t stack) {
    if (!bytes || t->slot_count >= INDEX_LIMIT) return;
    tide_call_arguments site = {bytes, stream_of(t, stream), stack};
    uint32_t slot = t->slot_count++;
    TIDE_ROOM(t->arena, t->before, t->before_count, t->before_capacity);
    t->before[t->before_count++] = (tide_before){address, slot, site_of(t, &site)};
    live_put(t, address, slot, LIVE);
}

void tide_tape_was_held(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    if (bytes > SEGMENT_MOST) return;
    t->has_segments = true;
    TIDE_ROOM(t->arena, t->held, t->held_count, t->held_capacity);
    t->held[t->held_count++] = (tide_older_segment){address, bytes, stream_of(t, stream)};
}

/* The live entry of what is freed; NULL: nobody knows it. */
static tide_live_block *freed(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    end_group(t, false, 0);
    t->group_new = 0;
    if (!tide_tape_is_live(t, address)) {
        t->unknown_frees++;
        tide_tape_was_there(t, address, bytes, stream, 0);
        if (!bytes) return NULL;
    }
    tide_live_block *entry = live_at(t, address);
    if (entry->state != LIVE) return NULL;
    t->frees++;
    return entry;
}

void tide_tape_free(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    tide_live_block *entry = freed(t, address, bytes, stream);
    if (!entry) return;
    uint32_t slot = entry->what;
    live_remove(t, entry);
    if (!t->gone) t->gone = tide_arena_grow(t->arena, NULL, 0, sizeof *t->gone << GONE_BITS);
    t->gone[hash_of(address) >> (32 - GONE_BITS)] = (tide_gone_block){address, t->event_count, slot};
    add_event(t, TIDE_TAPE_FREE, slot);
    give_slot(t, slot);
}

static uint32_t add_wait(tide_tape *t, uint32_t event) {
    TIDE_ROOM(t->arena, t->waits, t->wait_count, t->wait_capacity);
    t->waits[t->wait_count] = (tide_wait){event, t->wait_count};
    return t->wait_count++;
}

void tide_tape_wait(tide_tape *t, uint64_t address, uint64_t bytes, uint64_t stream) {
    tide_live_block *entry = freed(t, address, bytes, stream);
    if (!entry) return;
    uint32_t slot = entry->what;
    entry->what = add_wait(t, t->event_count);
    entry->state = WAITING;
    add_event(t, TIDE_TAPE_WAIT, slot);
    give_slot(t, slot);
}

void tide_tape_back(tide_tape *t, uint64_t address) {
    if (tide_tape_is_live(t, address)) {
        tide_live_block *entry = live_at(t, address);
        if (entry->state != WAITING) return;
        add_event(t, TIDE_TAPE_BACK, entry->what);
        live_remove(t, entry);
        return;
    }
    tide_gone_block *gone = t->gone ? &t->gone[hash_of(address) >> (32 - GONE_BITS)] : NULL;
    if (!gone || gone->address != address || t->events[gone->event] >> TIDE_TAPE_SHIFT != TIDE_TAPE_FREE) return;
    t->events[gone->event] = (uint32_t)TIDE_TAPE_WAIT << TIDE_TAPE_SHIFT | gone->slot;
    add_event(t, TIDE_TAPE_BACK, add_wait(t, gone->event));
}

bool tide_tape_oom(tide_tape *t, uint64_t free_bytes, uint64_t bytes, uint64_t stream, uint32_t stack) {
    end_group(t, true, bytes);
    t->group_new = 0;
    if (t->ooms++ == 0 && free_bytes < SEGMENT_MOST) {
        t->is_limited = free_bytes >= bytes && free_bytes - bytes >= SEGMENT_SLACK;
        t->oom_room = (uint64_t)t->reserved + free_bytes;
    }
    if (!bytes) return true;
    tide_call_arguments site = {bytes, stream_of(t, stream), stack};
    return add_event(t, TIDE_TAPE_OOM, site_of(t, &site));
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
    while (s->before < s->tape->before_count && s->tape->before[s->before].slot == s->fresh) s->before++, s->fresh++;
    return s->fresh++;
}

void tide_tape_give_slot(tide_tape_slots *s, uint32_t slot) {
    s->spare[s->spare_count++] = slot;
}

void tide_tape_waits_are_frees(tide_tape *t) {
    for (uint32_t i = 0; i < t->wait_count; i++)
        t->events[t->waits[i].event] =
            (uint32_t)TIDE_TAPE_FREE << TIDE_TAPE_SHIFT | (t->events[t->waits[i].event] & TIDE_TAPE_MASK);
    t->wait_count = 0;
}

static int by_event(const void *a, const void *b) {
    const tide_wait *x = a, *y = b;
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

/* Older blocks came roughly in the order of their addresses. */
static void sort_before(tide_tape *t) {
    placed *order = tide_arena_grow(t->arena, NULL, 0, t->before_count * sizeof *order);
    t->by_address = tide_arena_grow(t->arena, NULL, 0, t->before_count * sizeof *t->by_address);
    for (uint32_t i = 0; i < t->before_count; i++) order[i] = (placed){t->before[i].address, i};
    qsort(order, t->before_count, sizeof *order, by_address);
    for (uint32_t i = 0; i < t->before_count; i++) t->by_address[i] = order[i].index;
    tide_arena_drop(t->arena, order);
}

/* Adds what was reserved before: as the older segments say, and no less than was given back. */
static void settle_reserved(tide_tape *t) {
    uint64_t before = (uint64_t)-t->least_reserved, held = 0;
    for (uint32_t i = 0; i < t->held_count; i++) held += t->held[i].bytes;
    if (held > before) before = held;
    if (t->has_segments) t->reserved_peak += before;
    if (t->oom_room) t->oom_room += before;
    for (uint32_t i = 0; i < t->given_count; i++)
        t->given[i].need = t->given[i].is_followed ? t->given[i].need + before : 0;
}

void tide_tape_close(tide_tape *t) {
    end_group(t, false, 0);
    settle_reserved(t);
    if (t->before_count) sort_before(t);
    if (t->wait_count) qsort(t->waits, t->wait_count, sizeof *t->waits, by_event);
    if (t->live) tide_arena_drop(t->arena, t->live);
    if (t->gone) tide_arena_drop(t->arena, t->gone);
    if (t->spare) tide_arena_drop(t->arena, t->spare);
    t->live = NULL, t->gone = NULL, t->spare = NULL;
    t->live_capacity = t->spare_count = t->spare_capacity = 0;
}
