/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-Core's schedules against its own get_schedule_table() and get_pp_rank_microbatches(), for 200 sizes.
 *
 *     test_megatron_schedules ORACLE */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "parallel/schedule.h"
#include "recorded_rows.h"

static int passed, failed;

static void check(bool holds, const tide_json *row, const char *what) {
    if (holds) {
        passed++;
        return;
    }
    failed++;
    printf("%" PRId64 " ranks, %" PRId64 " chunks, %" PRId64 " micro-batches: %s\n",
           tide_json_at(row, "ranks")->integer, tide_json_at(row, "chunks")->integer,
           tide_json_at(row, "microbatches")->integer, what);
}

/* Of micro-batch:chunk joined by commas. */
static const char *digest(const tide_schedule_entry *table, uint32_t count, tide_arena *arena) {
    uint64_t hash = DIGEST_START;
    for (uint32_t i = 0; i < count; i++)
        hash = digest_more(
            hash, tide_format(arena, "%s%" PRIu32 ":%" PRIu32, i ? "," : "", table[i].microbatch, table[i].chunk));
    return tide_format(arena, "%016" PRIx64, hash);
}

static uint32_t size(const tide_json *row, const char *key) {
    return (uint32_t)tide_json_at(row, key)->integer;
}

/* Each chunk takes its micro-batches in order, each once: what frees them first in, first out. */
static bool is_in_order(const tide_schedule_entry *table, uint32_t count, uint32_t chunks, uint32_t *next) {
    memset(next, 0, sizeof *next * chunks);
    for (uint32_t i = 0; i < count; i++)
        if (table[i].chunk >= chunks || table[i].microbatch != next[table[i].chunk]++) return false;
    return true;
}

static void check_row(const tide_json *row, tide_arena *arena) {
    uint32_t pp = size(row, "ranks"), chunks = size(row, "chunks"), microbatches = size(row, "microbatches"),
             total = chunks * microbatches, rank = 0, before = UINT32_MAX;
    tide_schedule_entry *table = TIDE_NEW(arena, tide_schedule_entry, total);
    tide_schedule_table(table, microbatches, chunks, pp);
    check(strcmp(digest(table, total, arena), tide_json_at(row, "table")->text.at) == 0, row,
          "another table than Megatron-Core's");
    check(is_in_order(table, total, chunks, TIDE_NEW(arena, uint32_t, chunks)), row, "micro-batches out of order");
    for (const tide_json *of = tide_json_at(row, "warmup")->first; of; of = of->next, rank++) {
        uint32_t warmup = tide_schedule_warmup(pp, rank, microbatches, chunks, pp, chunks > 1);
        check(warmup == of->integer, row, "another warm-up than Megatron-Core's");
        check(warmup <= total && warmup <= before, row, "a later stage holds more");
        before = warmup;
    }
    check(rank == pp, row, "as many warm-ups as ranks");
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!each_recorded_row(argv[1], "megatron_schedules.jsonl", check_row) || !passed) failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
