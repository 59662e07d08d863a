/* SPDX-License-Identifier: Apache-2.0 */
/* Note [Holes] If older segments are known, so are the holes between their blocks. First all segments are created, each
 * by one request for its full size; then one after the other is freed and divided again, from its low end, into holes
 * and blocks; finally the holes are freed. While a segment is divided all others are full, so every piece comes from
 * it. A hole that the allocator would not have split off becomes part of the block before it. */
#include "trace/older_blocks.h"

#include "base/units.h"
#include "trace/tape.h"

/* pytorch c10/cuda/CUDACachingAllocator.h: kSmallBuffer, kSmallSize, kMinBlockSize; a remainder of at most kSmallSize
 * is not split off a large block. */
enum { SMALL_SEGMENT = 2 << 20, SMALL_PIECE = 1 << 20, SPLIT_MOST = 1 << 20, LEAST_BLOCK = 512 };

typedef struct older_cut {
    tide_player *player;
    const tide_tape *tape;
    tide_block *holes;
    uint32_t hole_count;
    tide_block *wholes; /* two per segment */
    uint32_t next;      /* block, by address */
} older_cut;

static const tide_older_block *block_at(const tide_tape *t, uint32_t i) {
    return &t->older_blocks[t->by_address[i]];
}

static tide_caching_status take_older_block(older_cut *c, const tide_older_block *b, uint64_t bytes) {
    const tide_call_site *site = &c->tape->sites[b->site];
    tide_caching_status status = tide_player_take(c->player, b->slot, site->stream, bytes ? bytes : site->bytes);
    if (status == TIDE_CACHING_OOM) c->player->figures.oom_request = b->site;
    return status;
}

/* Allocates a hole in a small segment in pieces that fit the small pool. */
static tide_caching_status take_hole(older_cut *c, uint64_t bytes, const tide_older_segment *s) {
    tide_caching_status status = TIDE_CACHING_OK;
    while (bytes && status == TIDE_CACHING_OK) {
        uint64_t piece = s->bytes == SMALL_SEGMENT && bytes > SMALL_PIECE ? SMALL_PIECE : bytes;
        status = tide_caching_malloc(c->player->allocator, piece, s->stream, &c->holes[c->hole_count++]);
        bytes -= piece;
    }
    return status;
}

/* Creates a segment that is full: one block, or two in the small pool. */
static tide_caching_status make_segment(older_cut *c, const tide_older_segment *s, tide_block *whole) {
    uint64_t piece = s->bytes == SMALL_SEGMENT ? SMALL_PIECE : s->bytes;
    tide_caching_status status = tide_caching_malloc(c->player->allocator, piece, s->stream, &whole[0]);
    if (status == TIDE_CACHING_OK && s->bytes == SMALL_SEGMENT)
        status = tide_caching_malloc(c->player->allocator, piece, s->stream, &whole[1]);
    return status;
}

/* Divides the segment into its blocks. */
static tide_caching_status cut_segment(older_cut *c, const tide_older_segment *s) {
    const tide_tape *t = c->tape;
    uint64_t at = s->address, end = s->address + s->bytes,
             most = s->bytes == SMALL_SEGMENT ? LEAST_BLOCK - 1 : SPLIT_MOST;
    tide_caching_status status = TIDE_CACHING_OK;
    while (status == TIDE_CACHING_OK && c->next < t->older_block_count) {
        const tide_older_block *b = block_at(t, c->next);
        if (b->address >= end) break;
        uint64_t behind = c->next + 1 < t->older_block_count ? block_at(t, c->next + 1)->address : end;
        uint64_t bytes = TIDE_ROUND_UP(t->sites[b->site].bytes, LEAST_BLOCK);
        if (behind > end) behind = end;
        c->next++;
        if (b->address < at || bytes > behind - b->address) bytes = 0; /* an impossible position */
        if (bytes && behind - b->address - bytes <= most) bytes = behind - b->address;
        if (bytes && b->address > at) status = take_hole(c, b->address - at, s);
        if (status != TIDE_CACHING_OK) break;
        status = take_older_block(c, b, bytes);
        if (bytes) at = b->address + bytes;
    }
    if (status == TIDE_CACHING_OK && at < end) status = take_hole(c, end - at, s);
    return status;
}

/* Allocates one after the other those below an address. */
static tide_caching_status take_blocks(older_cut *c, uint64_t below) {
    tide_caching_status status = TIDE_CACHING_OK;
    while (c->next < c->tape->older_block_count && status == TIDE_CACHING_OK) {
        const tide_older_block *b = block_at(c->tape, c->next);
        if (b->address >= below && below) break;
        c->next++;
        status = take_older_block(c, b, 0);
    }
    return status;
}

static tide_caching_status cut_segments(older_cut *c) {
    const tide_tape *t = c->tape;
    tide_caching_allocator *allocator = c->player->allocator;
    tide_caching_status status = TIDE_CACHING_OK;
    for (uint32_t i = 0; i < t->older_segment_count && status == TIDE_CACHING_OK; i++)
        status = make_segment(c, &t->older_segments[i], &c->wholes[2 * i]);
    for (uint32_t i = 0; i < t->older_segment_count && status == TIDE_CACHING_OK; i++) {
        const tide_older_segment *s = &t->older_segments[i];
        if (s->address) status = take_blocks(c, s->address); /* in no known segment */
        tide_caching_free(allocator, c->wholes[2 * i]);
        tide_caching_free(allocator, c->wholes[2 * i + 1]);
        if (status == TIDE_CACHING_OK) status = cut_segment(c, s);
    }
    if (status == TIDE_CACHING_OK) status = take_blocks(c, 0);
    for (uint32_t i = 0; i < c->hole_count; i++) tide_caching_free(allocator, c->holes[i]);
    tide_caching_reset_peaks(allocator);
    return status;
}

/* Older segments are recreated for an allocator that makes such segments, on a device with room for all of them: on a
 * smaller one the process could not have held them. */
static bool knows_holes(const tide_tape *t, const tide_replay_config *config) {
    uint64_t room = config->device_bytes ? config->device_bytes : UINT64_MAX, bytes = config->outside_bytes;
    if (config->conf.expandable_segments || config->conf.backend != TIDE_ALLOC_NATIVE || config->fraction_ppm)
        return false;
    for (uint32_t i = 0; i < t->older_segment_count; i++) {
        if (bytes > room || t->older_segments[i].bytes > room - bytes) return false;
        bytes += t->older_segments[i].bytes;
    }
    return t->older_segment_count > 0;
}

/* Restarts the peaks from the current values. */
static void restart_peaks(tide_player *p) {
    tide_replay *r = &p->figures;
    r->allocated_peak = r->allocated;
    r->requested_peak = r->requested;
    r->reserved = r->reserved_peak = tide_caching_reserved(p->allocator);
    r->peak_reserved = r->reserved;
    r->allocated_then = r->allocated;
    r->split_then = tide_caching_stat(p->allocator, TIDE_STAT_INACTIVE_SPLIT_BYTES, TIDE_POOL_ALL).current;
}

tide_caching_status tide_take_older_blocks(tide_player *p, const tide_replay_config *config) {
    const tide_tape *t = p->source->of;
    older_cut c = {.player = p, .tape = t};
    if (!t->older_block_count && !t->older_segment_count) return TIDE_CACHING_OK;
    if (!knows_holes(t, config)) {
        tide_caching_status status = take_blocks(&c, 0);
        restart_peaks(p);
        return status;
    }
    c.wholes = tide_arena_grow(p->arena, NULL, 0, 2 * (size_t)t->older_segment_count * sizeof *c.wholes);
    c.holes = tide_arena_grow(p->arena, NULL, 0,
                              2 * ((size_t)t->older_segment_count + t->older_block_count) * sizeof *c.holes);
    tide_caching_status status = cut_segments(&c);
    restart_peaks(p);
    tide_arena_drop(p->arena, c.holes);
    tide_arena_drop(p->arena, c.wholes);
    return status;
}
