/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/allocator/caching_allocator.c; each test names the rule that it pins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator_player.h"

/* ---- rules, one by one ---- */

static void test_rounding(void) {
    static const uint64_t cases[][3] = {/* divisions, request, block */
                                        {0, 1, 512},
                                        {0, 511, 512},
                                        {0, 512, 512},
                                        {0, 513, 1024},
                                        {0, 3 * GIB + 7, 3 * GIB + 512},
                                        {4, 1200, 1536},
                                        {4, 2048, 2048},
                                        {4, 2049, 2560},
                                        {4, 33 * MIB, 40 * MIB},
                                        {4, 40 * MIB + 1, 48 * MIB},
                                        {4, 63 * MIB, 64 * MIB},
                                        {4, 64 * MIB, 64 * MIB},
                                        {1, 1200, 1536},
                                        {8, 9 * MIB, 9 * MIB}};
    begin("round_size: 512 bytes, or a division of the power of two above 512 x divisions");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tide_alloc_conf conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN);
        for (int b = 0; b < TIDE_ROUNDUP_BUCKETS; b++) conf.roundup_power2_divisions[b] = cases[i][0];
        EQUAL(tide_caching_round(&conf, cases[i][1]), cases[i][2]);
    }
    end();
    begin("get_allocation_size: 2 MiB, 20 MiB below 10 MiB, then multiples of 2 MiB");
    tide_alloc_conf conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN);
    EQUAL(tide_caching_segment_bytes(&conf, MIB), 2 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, MIB + 512), 20 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB - 512), 20 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB), 10 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB + 512), 12 * MIB);
    end();
}

static void test_requests(void) {
    player p;
    tide_block b = 7, c;
    begin("0 bytes: the null block, and nothing is counted");
    player_open(&p, "", GIB);
    EQUAL(tide_caching_malloc(p.a, 0, 0, &b), TIDE_CACHING_OK);
    EQUAL(b, 0);
    EQUAL(tide_caching_free(p.a, 0), TIDE_CACHING_OK);
    EQUAL(tide_caching_record_stream(p.a, 0, 3), TIDE_CACHING_OK);
    EQUAL(peak(&p, TIDE_STAT_ALLOCATION), 0);
    end();
    begin("2^60 bytes: refused before anything is counted");
    EQUAL(tide_caching_malloc(p.a, (uint64_t)1 << 60, 0, &b), TIDE_CACHING_OOM);
    CHECK(tide_caching_oom_info(p.a).is_over_1_eb);
    EQUAL(tide_caching_counters(p.a).ooms, 0);
    EQUAL(tide_caching_malloc(p.a, UINT64_MAX, 0, &b), TIDE_CACHING_OOM);
    EQUAL(tide_caching_malloc(p.a, ((uint64_t)1 << 60) - 1, 0, &b), TIDE_CACHING_OOM);
    EQUAL(tide_caching_counters(p.a).ooms, 1);
    end();
    begin("a block that is not live is refused");
    EQUAL(tide_caching_free(p.a, 12345), TIDE_CACHING_BAD_BLOCK);
    b = take(&p, 100, 0);
    give(&p, b);
    EQUAL(tide_caching_free(p.a, b), TIDE_CACHING_BAD_BLOCK);
    EQUAL(tide_caching_record_stream(p.a, b, 1), TIDE_CACHING_BAD_BLOCK);
    EQUAL(tide_caching_malloc(p.a, 1, TIDE_CACHING_STREAM_LIMIT, &c), TIDE_CACHING_BAD_STREAM);
    EQUAL(tide_caching_address(p.a, b), 0);
    end();
    begin("queries of a live block: a tail of 1 MiB belongs to it");
    b = take(&p, 25 * MIB, 0);
    EQUAL(tide_caching_block_bytes(p.a, b), 26 * MIB);
    EQUAL(tide_caching_requested_bytes(p.a, b), 25 * MIB);
    CHECK(tide_caching_address(p.a, b) > TIDE_DEVICE_BASE);
    player_close(&p);
    end();
    begin("a handle stays while neighbours are split and merged");
    player_open(&p, "", GIB);
    tide_block all[8];
    for (int i = 0; i < 8; i++) all[i] = take(&p, MIB / 8, 0);
    uint64_t address = tide_caching_address(p.a, all[3]);
    for (int i = 0; i < 8; i++)
        if (i != 3) give(&p, all[i]);
    for (int i = 0; i < 4; i++) all[i == 3 ? 4 : i] = take(&p, MIB / 16, 0);
    EQUAL(tide_caching_address(p.a, all[3]), address);
    check_properties(&p);
    player_close(&p);
    end();
}

static void test_oom(void) {
    player p;
    begin("the numbers of the OOM message; the segment is what was tried");
    player_open(&p, "", 100 * MIB);
    tide_caching_set_outside(p.a, 10 * MIB);
    tide_block a = take(&p, 40 * MIB, 0), b;
    EQUAL(tide_caching_malloc(p.a, 60 * MIB + 1, 2, &b), TIDE_CACHING_OOM);
    tide_caching_oom o = tide_caching_oom_info(p.a);
    EQUAL(b, 0);
    EQUAL(o.requested_bytes, 60 * MIB + 1);
    EQUAL(o.rounded_bytes, 60 * MIB + 512);
    EQUAL(o.tried_bytes, 62 * MIB);
    EQUAL(o.total_bytes, 100 * MIB);
    EQUAL(o.free_bytes, 50 * MIB);
    EQUAL(o.limit_bytes, UINT64_MAX);
    EQUAL(o.allocated_bytes, 40 * MIB);
    EQUAL(o.unallocated_bytes, 0);
    EQUAL(o.stream, 2);
    end();
    begin("memory outside of the allocator takes from the device");
    give(&p, a);
    CHECK(take(&p, 90 * MIB, 0) != 0);
    player_close(&p);
    player_open(&p, "expandable_segments:True", 100 * MIB);
    tide_caching_set_outside(p.a, 61 * MIB);
    CHECK(take(&p, 20 * MIB, 0) == 0 || tide_caching_counters(p.a).ooms == 0);
    CHECK(take(&p, 20 * MIB, 0) == 0);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 20 * MIB);
    player_close(&p);
    end();
    begin("a request larger than a whole expandable range is OOM");
    player_open(&p, "expandable_segments:True", 100 * MIB);
    CHECK(take(&p, 10 * GIB, 0) == 0);
    check_properties(&p);
    player_close(&p);
    end();
}

static void test_streams(void) {
    player p;
    begin("an event held back completes when its stream is synchronized");
    player_open(&p, "", GIB);
    tide_caching_hold_events(p.a);
    tide_block a = take(&p, 12 * MIB, 0), b = take(&p, 12 * MIB, 0);
    CHECK(tide_caching_record_stream(p.a, a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_record_stream(p.a, a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_record_stream(p.a, b, 2) == TIDE_CACHING_OK);
    give(&p, a);
    give(&p, b);
    EQUAL(now(&p, TIDE_STAT_ALLOCATED_BYTES), 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 24 * MIB);
    tide_caching_synchronize(p.a, 2);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 24 * MIB);
    take(&p, 1, 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 12 * MIB + 512);
    check_properties(&p);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 512);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 2 * MIB);
    player_close(&p);
    end();
}

static void test_ties(void) {
    begin("equal sizes: the oldest segment in 2.15, the lowest address in 2.4");
    for (int profile = 0; profile < 2; profile++) {
        tide_caching_config config = {.memory = hook, .device_bytes = GIB};
        tide_caching_allocator *a;
        tide_block x, y, z;
        config.conf = tide_alloc_conf_default(profile ? TIDE_ALLOC_TORCH_2_4 : TIDE_ALLOC_TORCH_MAIN);
        CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 30 * MIB, 0, &x) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &y) == TIDE_CACHING_OK);
        CHECK(tide_caching_free(a, x) == TIDE_CACHING_OK);
        CHECK(tide_caching_empty_cache(a) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &z) == TIDE_CACHING_OK); /* younger, and below y */
        uint64_t old = tide_caching_address(a, y), young = tide_caching_address(a, z);
        CHECK(young < old);
        CHECK(tide_caching_free(a, y) == TIDE_CACHING_OK && tide_caching_free(a, z) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &x) == TIDE_CACHING_OK);
        EQUAL(tide_caching_address(a, x), profile ? young : old);
        tide_caching_destroy(a);
    }
    end();
}

static void test_statistics(void) {
    player p;
    uint64_t v;
    begin("statistics have torch.cuda.memory_stats' names, by pool, with peak, allocated and freed");
    player_open(&p, "max_split_size_mb:32", GIB);
    tide_block a = take(&p, 100, 0), b = take(&p, 50 * MIB, 0);
    give(&p, b);
    take(&p, 3 * MIB, 0);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"allocated_bytes.all.current", 3 * MIB + 512},
                {"allocated_bytes.all.peak", 50 * MIB + 512},
                {"allocated_bytes.all.allocated", 53 * MIB + 512},
                {"allocated_bytes.all.freed", 50 * MIB},
                {"allocated_bytes.small_pool.peak", 512},
                {"allocated_bytes.large_pool.freed", 50 * MIB},
                {"requested_bytes.all.current", 3 * MIB + 100},
                {"allocation.large_pool.allocated", 2},
                {"segment.small_pool.current", 1},
                {"segment.large_pool.peak", 2},
                {"reserved_bytes.all.current", 72 * MIB},
                {"inactive_split.all.current", 2},
                {"inactive_split_bytes.large_pool.current", 17 * MIB},
                {"active.all.peak", 2},
                {"active_bytes.all.freed", 50 * MIB},
                {"num_device_alloc", 3},
                {"num_device_free", 0},
                {"num_alloc_retries", 0},
                {"num_ooms", 0},
                {"num_sync_all_streams", 0},
                {"max_split_size", 32 * MIB},
                {"oversize_allocations.current", 0},
                {"oversize_allocations.freed", 1},
                {"oversize_segments.current", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!tide_caching_stat_named(p.a, rows[i].key, &v)) complain("no %s", rows[i].key);
        if (v != rows[i].value) complain("%s is %" PRIu64 ", want %" PRIu64, rows[i].key, v, rows[i].value);
    }
    CHECK(!tide_caching_stat_named(p.a, "allocated_bytes.all.mean", &v));
    CHECK(!tide_caching_stat_named(p.a, "allocated", &v));
    CHECK(strcmp(tide_statistic_name(TIDE_STAT_REQUESTED_BYTES), "requested_bytes") == 0);
    end();
    begin("reset_peak_memory_stats and reset_accumulated_memory_stats");
    tide_caching_reset_peaks(p.a);
    EQUAL(peak(&p, TIDE_STAT_ALLOCATED_BYTES), 3 * MIB + 512);
    tide_caching_reset_accumulated(p.a);
    give(&p, a);
    tide_stat s = tide_caching_stat(p.a, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL);
    EQUAL(s.allocated, 0);
    EQUAL(s.freed, 512);
    EQUAL(s.current, 3 * MIB);
    EQUAL(tide_caching_counters(p.a).device_alloc, 0);
    player_close(&p);
    end();
}

static void test_limits(void) {
    player p;
    begin("a fraction of 1 is no limit since 2.10, and was one in 2.4");
    player_open(&p, "", 100 * MIB);
    CHECK(tide_caching_set_fraction(p.a, 1) == TIDE_CACHING_OK);
    CHECK(take(&p, 200 * MIB, 0) == 0);
    EQUAL(tide_caching_oom_info(p.a).limit_bytes, UINT64_MAX);
    CHECK(tide_caching_set_fraction(p.a, 0.5) == TIDE_CACHING_OK);
    CHECK(take(&p, 52 * MIB, 0) == 0);
    EQUAL(tide_caching_oom_info(p.a).limit_bytes, 50 * MIB);
    CHECK(take(&p, 50 * MIB, 0) != 0);
    CHECK(tide_caching_set_fraction(p.a, 1.5) == TIDE_CACHING_BAD_CONFIG);
    CHECK(tide_caching_set_fraction(p.a, -0.1) == TIDE_CACHING_BAD_CONFIG);
    player_close(&p);
    tide_caching_config config = {.memory = hook, .device_bytes = 100 * MIB};
    tide_caching_allocator *a;
    tide_block b;
    config.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_2_4);
    CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_OK);
    CHECK(tide_caching_set_fraction(a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_malloc(a, 200 * MIB, 0, &b) == TIDE_CACHING_OOM);
    EQUAL(tide_caching_oom_info(a).limit_bytes, 100 * MIB);
    tide_caching_destroy(a);
    end();
    begin("a device of 2^59 bytes is refused");
    config.device_bytes = (uint64_t)1 << 59;
    CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_BAD_CONFIG && !a);
    end();
}

/* 600, 700, 200, 300 MiB on a device of 1 GiB, the first one freed: what PyTorch 2.15.0 answered. */
static void test_rejections(void) {
    static const struct {
        const char *conf;
        double fraction;
        uint64_t rejections, retries, ooms, reserved_mib;
    } rows[] = {{"throw_on_cudamalloc_oom:True", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True,expandable_segments:True", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True,max_split_size_mb:100", 1, 2, 0, 0, 800},
                {"throw_on_cudamalloc_oom:True,garbage_collection_threshold:0.5", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True", 0.95, 0, 2, 1, 900},
                {"throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.95", 1, 0, 2, 1, 900}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin("throw_on_cudamalloc_oom rejects what the device cannot hold, unless the process has a limit");
        player p;
        player_open(&p, rows[i].conf, UINT64_C(1) << 30);
        if (rows[i].fraction < 1) CHECK(tide_caching_set_fraction(p.a, rows[i].fraction) == TIDE_CACHING_OK);
        give(&p, take(&p, UINT64_C(600) << 20, 0));
        for (uint64_t mib = 700; mib; mib = mib == 700 ? 200 : mib == 200 ? 300 : 0) take(&p, mib << 20, 0);
        tide_caching_counts c = tide_caching_counters(p.a);
        EQUAL(c.oom_rejections, rows[i].rejections);
        EQUAL(c.alloc_retries, rows[i].retries);
        EQUAL(c.ooms, rows[i].ooms);
        EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), rows[i].reserved_mib << 20);
        player_close(&p);
        end();
    }
}

static void test_endless(void) {
    begin("a device without limit has room for expandable segments of many streams");
    player p;
    player_open(&p, "expandable_segments:True", UINT64_C(1) << 52);
    for (uint32_t stream = 0; stream < 24; stream++) {
        CHECK(take(&p, 1 << 10, stream) != 0);
        CHECK(take(&p, UINT64_C(30) << 20, stream) != 0);
    }
    CHECK(take(&p, UINT64_C(1) << 40, 0) != 0);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES),
          24 * (UINT64_C(42) << 20) + ((UINT64_C(1) << 40) + (UINT64_C(10) << 20)) / (20 << 20) * (20 << 20));
    player_close(&p);
    end();
}

/* Of two allocators one is asked for a block that it gets back at once, the other told so: what follows is the same. */
static void test_malloc_and_free(void) {
    static const char *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:64",
                                        "garbage_collection_threshold:0.5", "backend:cudaMallocAsync"};
    begin("malloc and free at once");
    for (size_t c = 0; c < sizeof confs / sizeof *confs; c++) {
        tide_caching_config config = {
            .memory = hook, .conf = conf_of(confs[c]), .device_bytes = (uint64_t)3 << 30, .is_lean = true};
        tide_caching_allocator *a = NULL, *b = NULL;
        tide_block of_a[64] = {0}, of_b[64] = {0};
        uint64_t least = 1, block_bytes = 0;
        if (tide_caching_create(&a, &config) != TIDE_CACHING_OK || tide_caching_create(&b, &config) != TIDE_CACHING_OK)
            complain("no allocator");
        draw_state = 7 + c;
        for (int i = 0; a && b && i < 4000; i++) {
            uint64_t bytes = least + draw_plain() % ((uint64_t)1 << (9 + draw_plain() % 19)), at = draw_plain() % 64;
            if (draw_plain() % 2) {
                tide_block block;
                tide_caching_status one = tide_caching_malloc(a, bytes, 0, &block),
                                    other = tide_caching_malloc_and_free(b, bytes, 0, &block_bytes);
                equal_at(i, "status", one, other);
                if (one == TIDE_CACHING_OK) equal_at(i, "block", tide_caching_block_bytes(a, block), block_bytes);
                tide_caching_free(a, block);
            } else if (of_a[at]) {
                tide_caching_free(a, of_a[at]);
                tide_caching_free(b, of_b[at]);
                of_a[at] = of_b[at] = 0;
            } else {
                equal_at(i, "status", tide_caching_malloc(a, bytes, 0, &of_a[at]),
                         tide_caching_malloc(b, bytes, 0, &of_b[at]));
                if (of_a[at] && of_b[at])
                    equal_at(i, "address", tide_caching_address(a, of_a[at]), tide_caching_address(b, of_b[at]));
            }
            equal_at(i, "reserved", tide_caching_stat(a, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current,
                     tide_caching_stat(b, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current);
        }
        tide_caching_destroy(a);
        tide_caching_destroy(b);
    }
    end();
}

static void test_async(void) {
    player p;
    begin("cudaMallocAsync says that it is approximate, and keeps reserved in 32 MiB steps");
    CHECK(conf_of("backend:cudaMallocAsync").is_approximate);
    CHECK(!conf_of("backend:native").is_approximate);
    player_open(&p, "backend:cudaMallocAsync", 100 * MIB);
    tide_block a = take(&p, 33 * MIB, 0), b = take(&p, 1, 1);
    EQUAL(now(&p, TIDE_STAT_ALLOCATED_BYTES), 33 * MIB + 512);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 64 * MIB);
    EQUAL(now(&p, TIDE_STAT_ALLOCATION), 0);
    CHECK(take(&p, 70 * MIB, 0) == 0);
    give(&p, a);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 64 * MIB);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 32 * MIB);
    give(&p, b);
    CHECK(tide_caching_set_fraction(p.a, 0.25) == TIDE_CACHING_OK);
    CHECK(take(&p, 26 * MIB, 0) == 0);
    CHECK(take(&p, 25 * MIB, 0) != 0);
    player_close(&p);
    end();
}

/* ---- properties ---- */

typedef struct mix {
    const char *conf;
    uint64_t device_bytes;
    double fraction;
    uint32_t streams;
} mix;

static const mix mixes[] = {
    {"", 2 * GIB, 1, 1},
    {"", 1 * GIB, 0.7, 3},
    {"expandable_segments:True", 1 * GIB, 1, 2},
    {"expandable_segments:True,roundup_power2_divisions:4", 700 * MIB, 0.8, 3},
    {"expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5", 1 * GIB, 0.9, 2},
    {"max_split_size_mb:32,garbage_collection_threshold:0.6", 1 * GIB, 0.8, 2},
    {"max_split_size_mb:21,large_segment_size_mb:80", 1 * GIB, 1, 2},
    {"max_split_size_mb:-1", 512 * MIB, 1, 1},
    {"large_segment_size_mb:37,expandable_segments:True", 900 * MIB, 1, 2}};

enum { LIVE_LIMIT = 400 };

/* Plays `n` random operations; returns a hash over every answer. A call that found no host memory
 * is repeated, with the hook failing once more at a later call when `fail_every` is given. */
static uint64_t play_mix(const mix *m, uint64_t seed, int n, uint64_t fail_every, int check_every) {
    player p;
    tide_block live[LIVE_LIMIT];
    size_t count = 0;
    uint64_t h = 0;
    player_open(&p, m->conf, m->device_bytes);
    if (m->fraction != 1) CHECK(tide_caching_set_fraction(p.a, m->fraction) == TIDE_CACHING_OK);
    draw_state = seed;
    for (int i = 0; i < n; i++) {
        uint64_t k = draw() % 1000;
        tide_caching_status status;
        if (fail_every) hook_fail_at = hook_calls + (uint64_t)i % fail_every;
        if (k < 4) {
            while ((status = tide_caching_empty_cache(p.a)) == TIDE_CACHING_NO_MEMORY) hook_fail_at = UINT64_MAX;
            CHECK(status == TIDE_CACHING_OK);
        } else if (k < 8) {
            tide_caching_hold_events(p.a);
        } else if (k < 20) {
            tide_caching_resume_events(p.a);
        } else if (k < 24) {
            tide_caching_synchronize(p.a, (uint32_t)(draw() % m->streams));
        } else if (count && (k < 450 || count == LIVE_LIMIT)) {
            size_t j = (size_t)(draw() % count);
            if (draw() % 4 == 0) {
                uint32_t stream = (uint32_t)(draw() % (m->streams + 1));
                while ((status = tide_caching_record_stream(p.a, live[j], stream)) == TIDE_CACHING_NO_MEMORY)
                    hook_fail_at = UINT64_MAX;
                CHECK(status == TIDE_CACHING_OK);
            }
            give(&p, live[j]);
            live[j] = live[--count];
        } else {
            uint64_t bytes = draw_plain() >> draw() % 4;
            uint32_t stream = (uint32_t)(draw() % m->streams);
            tide_block b;
            while ((status = tide_caching_malloc(p.a, bytes, stream, &b)) == TIDE_CACHING_NO_MEMORY)
                hook_fail_at = UINT64_MAX;
            CHECK(status == TIDE_CACHING_OK || status == TIDE_CACHING_OOM);
            if (b) live[count++] = b;
            h = fnv(h, tide_caching_address(p.a, b));
        }
        hook_fail_at = UINT64_MAX;
        uint64_t state[6];
        state_of(&p, state);
        for (int s = 0; s < 6; s++) h = fnv(h, state[s]);
        if (check_every && i % check_every == 0) check_properties(&p);
    }
    h = fnv(h, tide_caching_counters(p.a).ooms);
    tide_caching_resume_events(p.a);
    while (count) give(&p, live[--count]);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE), 0);
    EQUAL(now(&p, TIDE_STAT_SEGMENT), 0);
    check_properties(&p);
    player_close(&p);
    return h;
}

static void test_properties(void) {
    begin("no overlap, no two adjacent free blocks, allocated <= reserved = segments, after every "
          "operation");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        for (uint64_t seed = 1; seed <= 4; seed++) play_mix(&mixes[i], seed, 2000, 0, 1);
    end();
    begin("the same requests give the same answers");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        EQUAL(play_mix(&mixes[i], 9, 1000, 0, 0), play_mix(&mixes[i], 9, 1000, 0, 0));
    end();
    begin("a hook that fails changes no answer: the call is repeated and goes on");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        for (uint64_t every = 1; every < 4; every++)
            EQUAL(play_mix(&mixes[i], 11, 1500, every, 7), play_mix(&mixes[i], 11, 1500, 0, 0));
    end();
}

static void test_host_memory(void) {
    begin("create without host memory is a status, at every allocation of it");
    for (uint64_t k = 0;; k++) {
        tide_caching_config config = {
            .memory = hook, .conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN), .device_bytes = GIB};
        tide_caching_allocator *a;
        hook_fail_at = hook_calls + k;
        tide_caching_status status = tide_caching_create(&a, &config);
        hook_fail_at = UINT64_MAX;
        tide_caching_destroy(a);
        if (status == TIDE_CACHING_OK) {
            CHECK(k >= 3);
            break;
        }
        EQUAL(status, TIDE_CACHING_NO_MEMORY);
        EQUAL(hook_bytes, 0);
    }
    end();
    begin("host memory follows live blocks, not the number of requests");
    player p;
    tide_block live[100];
    player_open(&p, "", 64 * GIB);
    hook_peak = 0;
    draw_state = 5;
    for (int i = 0; i < 200000; i++) {
        if (i >= 100) give(&p, live[i % 100]);
        live[i % 100] = take(&p, 1 + draw() % (4 * MIB), 0);
    }
    CHECK(hook_peak < 200 << 10);
    player_close(&p);
    end();
    begin("emptying an expandable cache again and again does not run out of addresses");
    player_open(&p, "expandable_segments:True", 80 * GIB);
    for (int i = 0; i < 2000; i++) {
        tide_block b = take(&p, 30 * MIB, 0), c = take(&p, 1, 0);
        CHECK(b && c);
        give(&p, b);
        give(&p, c);
        CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
        p.call_count = 0;
    }
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 0);
    player_close(&p);
    end();
}

int main(void) {
    test_rounding();
    test_requests();
    test_oom();
    test_streams();
    test_ties();
    test_statistics();
    test_limits();
    test_rejections();
    test_endless();
    test_async();
    test_malloc_and_free();
    test_properties();
    test_host_memory();
    begin("every byte of host memory is returned");
    EQUAL(hook_bytes, 0);
    end();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
