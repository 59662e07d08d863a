/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: the driver's address space and capacity, and expandable ranges. Sources as in caching_allocator.c. */
#include <string.h>

#include "allocator/caching_state.h"
#include "base/units.h"

/* Expandable ranges are placed downward from the top of the device's address space. */
static const uint64_t caching_device_span = (uint64_t)4 << 40;
static const uint64_t caching_lowest_range = (uint64_t)1 << 30;
/* The range of a 2 TiB device: a device without limit gets several ranges rather than one larger. */
static const uint64_t caching_range_limit = (uint64_t)2304 << 30;
/* ---- the driver: addresses and room ---- */

bool tide_caching_device_has_room(const tide_caching_allocator *a, uint64_t bytes) {
    uint64_t used = caching_reserved(a) + a->outside_bytes;
    return used <= a->device_bytes && bytes <= a->device_bytes - used;
}

uint64_t tide_caching_device_free_bytes(const tide_caching_allocator *a) {
    uint64_t used = caching_reserved(a) + a->outside_bytes;
    return used < a->device_bytes ? a->device_bytes - used : 0;
}

/* The first position whose segment lies at `address` or above. */
static uint32_t segment_position(const tide_caching_allocator *a, uint64_t address) {
    uint32_t low = 0, high = a->segment_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segment_at(a, middle)->address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t tide_caching_segment_new(tide_caching_allocator *a, uint64_t address, uint64_t size, uint32_t stream,
                                  unsigned flags) {
    uint32_t position = segment_position(a, address), s = a->spare_segment;
    if (s) {
        a->spare_segment = a->segments[s].head;
    } else {
        s = a->segment_used++;
    }
    memmove(a->order + position + 1, a->order + position, (a->segment_count - position) * sizeof *a->order);
    a->order[position] = flags & BLOCK_SMALL ? s | SEGMENT_SMALL : s;
    a->segment_count++;
    if (position < a->packed) a->packed++;
    a->segments[s] = (caching_segment){.address = address, .size = size, .flags = flags};
    caching_block like = {.segment = s,
                          .born = a->conf.profile == TIDE_ALLOC_TORCH_MAIN ? ++a->births : 0,
                          .stream = (uint16_t)stream,
                          .flags = (uint8_t)(flags | BLOCK_USED)};
    return block_new_between(a, &like, address, size, 0, 0);
}

void tide_caching_segment_delete(tide_caching_allocator *a, uint32_t s) {
    uint32_t position = segment_position(a, a->segments[s].address);
    a->segment_count--;
    memmove(a->order + position, a->order + position + 1, (a->segment_count - position) * sizeof *a->order);
    if (position < a->packed) a->packed = position;
    a->segments[s].head = a->spare_segment;
    a->spare_segment = s;
}

uint64_t tide_caching_lowest_address(tide_caching_allocator *a, uint64_t size) {
    uint64_t at = TIDE_DEVICE_BASE + CACHING_PAGE_2M;
    if (a->packed) {
        const caching_segment *s = segment_at(a, a->packed - 1);
        if (s->address + s->size > at) at = s->address + s->size;
    }
    bool is_packed = true;
    for (uint32_t i = a->packed; i < a->segment_count; i++) {
        const caching_segment *s = segment_at(a, i);
        if (s->address >= at && s->address - at >= size) break;
        if (s->address > at) is_packed = false;
        if (s->address + s->size > at) at = s->address + s->size;
        if (is_packed) a->packed = i + 1;
    }
    return at;
}

/* The highest free address with room for `size`, below the top of the device's address space; 0: none. */
static uint64_t device_highest(const tide_caching_allocator *a, uint64_t size) {
    uint64_t top = TIDE_DEVICE_BASE + caching_device_span;
    for (uint32_t i = a->segment_count; i > 0; i--) {
        const caching_segment *s = segment_at(a, i - 1);
        if (s->address + s->size <= top && top - (s->address + s->size) >= size) break;
        if (s->address < top) top = s->address;
    }
    return top >= caching_lowest_range + size ? top - size : 0;
}

/* ---- expandable ranges ---- */

/* map_block: maps pages for `want` bytes at the front of an unmapped block; false when the device is full. */
static bool range_map(tide_caching_allocator *a, uint32_t n, uint64_t want) {
    caching_block *b = &a->blocks[n];
    unsigned pool = block_pool(b);
    uint64_t page = caching_page(a, pool), address = b->address;
    uint64_t bytes = TIDE_ROUND_UP(want, page);
    if (!tide_caching_device_has_room(a, bytes)) return false;
    block_take_unmapped(a, n);
    b->flags &= (uint8_t)~BLOCK_UNMAPPED;
    if (bytes < b->size) {
        uint32_t rest = block_new_between(a, b, b->address + bytes, b->size - bytes, n, b->next);
        b->size = bytes;
        block_put_unmapped(a, rest);
    }
    block_merge(a, n, b->prev);
    block_merge(a, n, b->next);
    block_put_free(a, n);
    stat_rise(a, pool, TIDE_STAT_RESERVED_BYTES, bytes);
    a->device_alloc++;
    caching_tell(a, TIDE_SEGMENT_MAP, address, bytes, b->stream);
    return true;
}

/* find_expandable_block: where a run of free and unmapped blocks can hold the request; 0: no address space. */
static uint32_t range_find(tide_caching_allocator *a, const caching_request *r) {
    caching_block *b = a->blocks;
    uint32_t root = a->streams[r->stream]->unmapped[r->pool];
    for (uint32_t u = tree_first(b, root); u; u = tree_after(b, root, u, false)) {
        uint32_t start = block_is_idle(a, b[u].prev) ? b[u].prev : u;
        uint64_t covered = 0;
        for (uint32_t n = start; covered < r->size && block_is_idle(a, n); n = b[n].next) covered += b[n].size;
        if (covered >= r->size) return start;
    }
    uint64_t page = caching_page(a, r->pool);
    uint64_t span = a->device_bytes + a->device_bytes / 8;
    if (span > caching_range_limit) span = caching_range_limit;
    uint64_t bytes = TIDE_ROUND_UP(span, page);
    uint64_t address = TIDE_DEVICE_BASE + caching_device_span - a->range_bytes - bytes;
    a->range_bytes += bytes;
    if (a->range_bytes > caching_device_span) {
        /* The driver's order is unknown once the address space is used up: from here on, the highest hole. */
        a->range_bytes = caching_device_span;
        address = device_highest(a, bytes);
        if (!address) return 0;
    }
    uint32_t n = tide_caching_segment_new(a, address, bytes, r->stream,
                                          BLOCK_EXPANDABLE | (r->pool == TIDE_POOL_SMALL ? BLOCK_SMALL : 0u));
    a->range_count++;
    block_put_unmapped(a, n);
    return n;
}

static uint64_t caching_smaller(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}

uint32_t tide_caching_range_grow(tide_caching_allocator *a, const caching_request *r) {
    uint32_t n = range_find(a, r);
    if (!n) return 0;
    if (a->blocks[n].flags & BLOCK_UNMAPPED && !range_map(a, n, caching_smaller(a->blocks[n].size, r->size))) return 0;
    while (a->blocks[n].size < r->size) {
        uint32_t next = a->blocks[n].next;
        uint64_t want = r->size - a->blocks[n].size;
        /* A request larger than a whole range exceeds it. */
        if (!next || !range_map(a, next, caching_smaller(want, a->blocks[next].size))) return 0;
        n = next;
    }
    return n;
}

void tide_caching_range_unmap(tide_caching_allocator *a, uint32_t n) {
    caching_block *b = &a->blocks[n];
    unsigned pool = block_pool(b);
    uint64_t page = caching_page(a, pool), start = a->segments[b->segment].address;
    uint64_t low = start + TIDE_ROUND_UP(b->address - start, page);
    uint64_t high = start + (b->address + b->size - start) / page * page;
    if (low >= high) return;
    block_take_free(a, n);
    if (b->address < low) {
        uint32_t head = block_new_between(a, b, b->address, low - b->address, b->prev, n);
        block_put_free(a, head);
    }
    if (b->address + b->size > high) {
        uint32_t tail = block_new_between(a, b, high, b->address + b->size - high, n, b->next);
        block_put_free(a, tail);
    }
    b->address = low;
    b->size = high - low;
    b->flags |= BLOCK_UNMAPPED;
    block_merge(a, n, b->prev);
    block_merge(a, n, b->next);
    block_put_unmapped(a, n);
    stat_fall(a, pool, TIDE_STAT_RESERVED_BYTES, high - low);
    a->device_free++;
    caching_tell(a, TIDE_SEGMENT_UNMAP, low, high - low, b->stream);
    if (block_is_split(b)) return;
    block_take_unmapped(a, n);
    tide_caching_segment_delete(a, b->segment);
    block_delete(a, n);
    a->range_count--;
}
