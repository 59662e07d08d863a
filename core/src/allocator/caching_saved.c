/* SPDX-License-Identifier: Apache-2.0 */
/* Saving the allocator's state as bytes, and restoring it. */
#include <string.h>

#include "allocator/caching_state.h"

/* Copies the parts of the state one after the other; with `at` NULL only counts their bytes. */
typedef struct saving {
    unsigned char *at;
    size_t bytes;
    bool is_back; /* restores */
} saving;

static void part(saving *s, void *of, size_t bytes) {
    if (s->at && bytes) memcpy(s->is_back ? of : s->at + s->bytes, s->is_back ? s->at + s->bytes : of, bytes);
    s->bytes += bytes;
}

/* Counts are those of `of`, as they were saved; the arrays are a's, which can only have grown since. */
static void all_parts(saving *s, const tide_caching_allocator *a, const tide_caching_allocator *of) {
    part(s, a->blocks, of->block_used * sizeof *a->blocks);
    part(s, a->segments, (of->segment_capacity ? of->segment_used : 0) * sizeof *a->segments);
    part(s, a->order, of->segment_count * sizeof *a->order);
    part(s, a->uses, (of->use_capacity ? of->use_used : 0) * sizeof *a->uses);
    for (uint32_t i = 0; i < of->stream_capacity; i++)
        if (a->streams[i]) part(s, a->streams[i], sizeof *a->streams[i]);
}

void tide_caching_save(tide_caching_saved *to, tide_caching_allocator *a, tide_arena *arena) {
    saving s = {0};
    part(&s, a, sizeof *a);
    all_parts(&s, a, a);
    if (s.bytes > to->capacity) {
        if (to->at) tide_arena_drop(arena, to->at);
        to->capacity = s.bytes + s.bytes / 2;
        to->at = tide_arena_grow(arena, NULL, 0, to->capacity);
    }
    s = (saving){.at = to->at};
    part(&s, a, sizeof *a);
    all_parts(&s, a, a);
}

void tide_caching_restore(tide_caching_allocator *a, const tide_caching_saved *from) {
    tide_caching_allocator now = *a;
    saving s = {.at = from->at, .is_back = true};
    part(&s, a, sizeof *a);
    a->blocks = now.blocks, a->block_capacity = now.block_capacity;
    a->segments = now.segments, a->segment_capacity = now.segment_capacity;
    a->order = now.order, a->order_capacity = now.order_capacity;
    a->uses = now.uses, a->use_capacity = now.use_capacity;
    tide_caching_allocator was = *a;
    a->streams = now.streams, a->stream_capacity = now.stream_capacity;
    all_parts(&s, a, &was);
}

bool tide_caching_gave_back(const tide_caching_allocator *a, const tide_caching_saved *since) {
    tide_caching_allocator was;
    memcpy(&was, since->at, sizeof was);
    return a->alloc_retries != was.alloc_retries || a->device_free != was.device_free || a->ooms != was.ooms ||
           a->oom_rejections != was.oom_rejections;
}
