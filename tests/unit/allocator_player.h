/* SPDX-License-Identifier: Apache-2.0 */
/* A caching allocator that is played by hand: its driver calls, named blocks, and a memory hook that counts. */
#ifndef TIDE_ALLOCATOR_PLAYER_H
#define TIDE_ALLOCATOR_PLAYER_H

#include <inttypes.h>

#include "../../core/src/allocator/caching_allocator.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum { MAX_NAMES = 64, CALLS_KEPT = 1 << 16 };

extern int passed, failed;
extern bool test_ok;
extern uint64_t hook_bytes, hook_peak, hook_calls, hook_fail_at; /* of host memory; the call that fails */
extern const tide_allocator hook;
extern uint64_t draw_state;

typedef struct device_event {
    tide_device_call call;
    uint64_t address, bytes;
} device_event;

typedef struct player {
    tide_caching_allocator *a;
    device_event *calls;
    uint32_t call_count;
    tide_block named[MAX_NAMES];
    char names[MAX_NAMES][8];
} player;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) complain("line %d: %s", __LINE__, #condition);                                               \
    } while (0)

#define EQUAL(have, want) equal_at(__LINE__, #have, (uint64_t)(have), (uint64_t)(want))

void begin(const char *name);
void complain(const char *format, ...);
void end(void);
void equal_at(int line, const char *what, uint64_t have, uint64_t want);
tide_alloc_conf conf_of(const char *text);
void player_open(player *p, const char *conf, uint64_t device_bytes);
void player_close(player *p);
uint64_t now(const player *p, tide_statistic s);
uint64_t peak(const player *p, tide_statistic s);
tide_block take(player *p, uint64_t bytes, uint32_t stream);
void give(player *p, tide_block b);
void check_properties(player *p);
uint64_t draw(void);
uint64_t fnv(uint64_t h, uint64_t value);
uint64_t draw_plain(void);
void state_of(const player *p, uint64_t out[6]);

#endif
