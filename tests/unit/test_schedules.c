/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline schedules against torch.distributed.pipelining's own: digests of every rank's actions, and what is refused.
 *
 *     test_schedules ORACLE */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "parallel/pipeline_actions.h"
#include "recorded_rows.h"

static int passed, failed;

static void check(bool holds, const char *schedule, const tide_pipeline_sizes *of, uint32_t rank, const char *what) {
    if (holds) {
        passed++;
        return;
    }
    failed++;
    printf("%s, %u ranks, %u chunks, %u micro-batches, rank %u: %s\n", schedule, of->ranks, of->chunks,
           of->microbatches, rank, what);
}

/* Of the actions joined by commas. */
static const char *digest(tide_actions actions, tide_arena *arena) {
    uint64_t hash = DIGEST_START;
    for (uint32_t i = 0; i < actions.count; i++)
        hash = digest_more(digest_more(hash, i ? "," : ""), tide_action_text(actions.list[i], arena));
    return tide_format(arena, "%016" PRIx64, hash);
}

static int64_t number(const tide_json *row, const char *key) {
    const tide_json *at = tide_json_at(row, key);
    if (!at || !at->is_integer) failed++;
    return at ? at->integer : 0;
}

static tide_parallel_schedule_choice schedule_named(const char *name) {
    static const char *const names[] = {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return (tide_parallel_schedule_choice)i;
    failed++;
    return TIDE_parallel_schedule_GPipe;
}

/* What holds of every schedule: all passes of all stages, each once, and no more in flight than there are. */
static void check_passes(const char *name, const tide_pipeline_sizes *of, tide_arena *arena) {
    for (uint32_t rank = 0; rank < of->ranks; rank++) {
        tide_actions order = tide_pipeline_order(of, rank, arena);
        uint32_t forward = 0, backward = 0, all = of->chunks * of->microbatches;
        for (uint32_t i = 0; i < order.count; i++) {
            forward += order.list[i].type == TIDE_ACTION_FORWARD;
            backward +=
                order.list[i].type == TIDE_ACTION_FULL_BACKWARD || order.list[i].type == TIDE_ACTION_BACKWARD_WEIGHT;
        }
        uint32_t most = tide_actions_in_flight(&order);
        check(forward == all && backward == all, name, of, rank, "every stage runs every micro-batch once each way");
        check(most >= 1 && most <= all, name, of, rank, "in flight");
        if (of->schedule == TIDE_parallel_schedule__1F1B) {
            uint32_t bound = of->ranks - rank < of->microbatches ? of->ranks - rank : of->microbatches;
            check(most == bound, name, of, rank, "1F1B has as many in flight as stages from here on");
        }
    }
}

static void check_row(const tide_json *row, tide_arena *arena) {
    const char *name = tide_json_at(row, "schedule")->text.at;
    tide_pipeline_sizes of = {.schedule = schedule_named(name),
                              .ranks = (uint32_t)number(row, "ranks"),
                              .chunks = (uint32_t)number(row, "chunks"),
                              .microbatches = (uint32_t)number(row, "microbatches")};
    bool is_single = of.schedule == TIDE_parallel_schedule_GPipe || of.schedule == TIDE_parallel_schedule__1F1B;
    const char *setting, *refusal = tide_pipeline_refusal(&of, &setting, arena);
    const tide_json *error = tide_json_at(row, "error"), *orders = tide_json_at(row, "orders");
    if (error) {
        check(refusal && strcmp(refusal, error->text.at) == 0, name, &of, 0, refusal ? refusal : "is not refused");
        return;
    }
    check(!refusal, name, &of, 0, refusal ? refusal : "");
    if (refusal) return;
    uint32_t rank = 0;
    for (const tide_json *recorded = orders->first; recorded; recorded = recorded->next, rank++) {
        const char *is =
            digest(is_single ? tide_pipeline_order(&of, rank, arena) : tide_pipeline_order_with_comms(&of, rank, arena),
                   arena);
        check(strcmp(is, recorded->text.at) == 0, name, &of, rank, "other actions than PyTorch's");
    }
    check(rank == of.ranks, name, &of, rank, "as many lists as ranks");
    check_passes(name, &of, arena);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!each_recorded_row(argv[1], "pipeline_schedules.jsonl", check_row) || !passed) failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
