/* SPDX-License-Identifier: Apache-2.0 */
/* See allocator_player.h. */
#include "allocator_player.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- counting ---- */

int passed, failed;
bool test_ok;
static const char *test_name;

void begin(const char *name) {
    test_name = name;
    test_ok = true;
}

void complain(const char *format, ...) {
    va_list list;
    if (test_ok) printf("FAIL %s\n", test_name);
    test_ok = false;
    va_start(list, format);
    printf("     ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void end(void) {
    if (test_ok) {
        passed++;
    } else {
        failed++;
    }
}

void equal_at(int line, const char *what, uint64_t have, uint64_t want) {
    if (have != want) complain("line %d: %s is %" PRIu64 ", want %" PRIu64, line, what, have, want);
}

/* ---- the memory hook, which counts and can be told to fail ---- */

uint64_t hook_bytes, hook_peak, hook_calls, hook_fail_at = UINT64_MAX;

static void *hook_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    if (new_size == 0) {
        hook_bytes -= old_size;
        free(ptr);
        return NULL;
    }
    if (hook_calls++ == hook_fail_at) return NULL;
    void *moved = realloc(ptr, new_size);
    if (!moved) return NULL;
    hook_bytes += new_size - old_size;
    if (hook_bytes > hook_peak) hook_peak = hook_bytes;
    return moved;
}

const tide_allocator hook = {hook_resize, NULL};

/* ---- a player: an allocator, its driver calls, and named blocks ---- */

static void player_call(void *user, tide_device_call call, uint64_t address, uint64_t bytes, uint32_t stream) {
    player *p = user;
    (void)stream;
    if (p->call_count == CALLS_KEPT) abort();
    p->calls[p->call_count++] = (device_event){call, address, bytes};
}

tide_alloc_conf conf_of(const char *text) {
    tide_alloc_conf conf;
    tide_alloc_conf_error error;
    if (!tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, text, strlen(text), &error))
        complain("'%s': %s", text, error.message);
    return conf;
}

void player_open(player *p, const char *conf, uint64_t device_bytes) {
    memset(p, 0, sizeof *p);
    p->calls = malloc(CALLS_KEPT * sizeof *p->calls);
    tide_caching_config config = {
        .memory = hook, .conf = conf_of(conf), .device_bytes = device_bytes, .on_call = player_call, .on_call_user = p};
    if (tide_caching_create(&p->a, &config) != TIDE_CACHING_OK) abort();
}

void player_close(player *p) {
    tide_caching_destroy(p->a);
    free(p->calls);
}

uint64_t now(const player *p, tide_statistic s) {
    return tide_caching_stat(p->a, s, TIDE_POOL_ALL).current;
}

uint64_t peak(const player *p, tide_statistic s) {
    return tide_caching_stat(p->a, s, TIDE_POOL_ALL).peak;
}

tide_block take(player *p, uint64_t bytes, uint32_t stream) {
    tide_block b;
    tide_caching_status status = tide_caching_malloc(p->a, bytes, stream, &b);
    if (status != TIDE_CACHING_OK && status != TIDE_CACHING_OOM) complain("malloc: status %d", (int)status);
    return b;
}

void give(player *p, tide_block b) {
    if (tide_caching_free(p->a, b) != TIDE_CACHING_OK) complain("free: not a live block");
}

/* ---- the invariants as anyone can see them from outside ---- */

void check_properties(player *p) {
    const char *broken = tide_caching_check(p->a);
    if (broken) complain("%s", broken);
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    tide_block_info block;
    uint64_t reserved = 0, allocated = 0, last_end = 0;
    while (tide_caching_next_segment(p->a, &cursor, &segment)) {
        uint64_t at = segment.address;
        bool was_free = false;
        if (at < last_end) complain("segments overlap");
        while (tide_caching_next_block(p->a, &cursor, &block)) {
            bool is_free = block.state == TIDE_BLOCK_FREE;
            if (block.address != at) complain("blocks overlap or leave a hole");
            if (is_free && was_free) complain("two adjacent free blocks");
            if (block.state == TIDE_BLOCK_LIVE) allocated += block.bytes;
            if (block.state == TIDE_BLOCK_LIVE && block.requested_bytes > block.bytes)
                complain("a block is smaller than its request");
            was_free = is_free;
            at += block.bytes;
        }
        if (at != segment.address + segment.bytes) complain("blocks do not fill their segment");
        last_end = at;
        reserved += segment.bytes;
    }
    EQUAL(reserved, now(p, TIDE_STAT_RESERVED_BYTES));
    EQUAL(allocated, now(p, TIDE_STAT_ALLOCATED_BYTES));
    CHECK(allocated <= reserved);
}

/* ---- draws: the order is the oracle's ---- */

uint64_t draw_state;

uint64_t draw(void) {
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return draw_state >> 33;
}

uint64_t fnv(uint64_t h, uint64_t value) {
    for (int i = 0; i < 8; i++) h = (h ^ (value >> 8 * i & 255)) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t draw_plain(void) {
    uint64_t k = draw() % 100;
    if (k < 40) return 1 + draw() % MIB;
    if (k < 70) return MIB + 1 + draw() % (9 * MIB - 1);
    return 10 * MIB + draw() % (64 * MIB);
}

void state_of(const player *p, uint64_t out[6]) {
    static const tide_statistic order[6] = {TIDE_STAT_ALLOCATED_BYTES,      TIDE_STAT_RESERVED_BYTES,
                                            TIDE_STAT_ACTIVE_BYTES,         TIDE_STAT_INACTIVE_SPLIT,
                                            TIDE_STAT_INACTIVE_SPLIT_BYTES, TIDE_STAT_SEGMENT};
    for (int i = 0; i < 6; i++) out[i] = now(p, order[i]);
}
