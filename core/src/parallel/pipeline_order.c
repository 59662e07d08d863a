/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/schedules.py: the passes of each rank, by the rules of the schedule classes. */
#include "parallel/pipeline_actions.h"

#include "base/text.h"
#include "base/units.h"

typedef struct order {
    const tide_pipeline_sizes *of;
    tide_arena *arena;
    uint32_t rank;
    tide_actions actions;
    uint32_t *next[TIDE_ACTION_FULL_BACKWARD + 1]; /* by type and chunk: the next micro-batch */
    tide_actions waiting;                          /* DualPipeV: weight_queue */
    uint32_t first_waiting;
} order;

static bool is_v(const tide_pipeline_sizes *of) {
    return of->schedule == TIDE_parallel_schedule_ZBVZeroBubble || of->schedule == TIDE_parallel_schedule_DualPipeV;
}

bool tide_pipeline_splits_backward(tide_parallel_schedule_choice schedule) {
    return schedule == TIDE_parallel_schedule_InterleavedZeroBubble ||
           schedule == TIDE_parallel_schedule_ZBVZeroBubble || schedule == TIDE_parallel_schedule_DualPipeV;
}

uint32_t tide_pipeline_rank_of(const tide_pipeline_sizes *of, uint32_t stage) {
    if (is_v(of)) return stage < of->ranks ? stage : 2 * of->ranks - 1 - stage;
    return stage % of->ranks;
}

uint32_t tide_pipeline_stage_of(const tide_pipeline_sizes *of, uint32_t rank, uint32_t chunk) {
    if (is_v(of)) return chunk ? 2 * of->ranks - 1 - rank : rank;
    return rank + chunk * of->ranks;
}

static void push_action(order *o, tide_action_type type, uint32_t chunk, uint32_t microbatch, bool with_next) {
    tide_actions *a = &o->actions;
    if (microbatch >= o->of->microbatches) return; /* ZBV fills the pipeline, and skips what does not exist */
    TIDE_ROOM(o->arena, a->list, a->count, a->capacity);
    uint32_t stage = tide_pipeline_stage_of(o->of, o->rank, chunk);
    a->list[a->count++] =
        (tide_action){.type = (uint8_t)type, .with_next = with_next, .stage = stage, .microbatch = microbatch};
}

/* Adds the next micro-batch of a type and chunk. */
static void add_next(order *o, tide_action_type type, uint32_t chunk) {
    push_action(o, type, chunk, o->next[type][chunk]++, false);
}

/* ---- GPipe, 1F1B, LoopedBFS ---- */

/* ScheduleGPipe, Schedule1F1B: _get_pipeline_order() */
static void single_stage_order(order *o) {
    uint32_t count = o->of->microbatches, warmup = o->of->ranks - o->rank;
    if (o->of->schedule == TIDE_parallel_schedule_GPipe || warmup > count) warmup = count;
    for (uint32_t i = 0; i < warmup; i++) push_action(o, TIDE_ACTION_FORWARD, 0, i, false);
    for (uint32_t i = 0; i < count; i++) {
        push_action(o, TIDE_ACTION_FULL_BACKWARD, 0, i, false);
        push_action(o, TIDE_ACTION_FORWARD, 0, warmup + i, false);
    }
}

static void looped_bfs(order *o) {
    for (uint32_t chunk = 0; chunk < o->of->chunks; chunk++)
        for (uint32_t i = 0; i < o->of->microbatches; i++) push_action(o, TIDE_ACTION_FORWARD, chunk, i, false);
    for (uint32_t chunk = o->of->chunks; chunk-- > 0;)
        for (uint32_t i = o->of->microbatches; i-- > 0;) push_action(o, TIDE_ACTION_FULL_BACKWARD, chunk, i, false);
}

/* ---- Interleaved1F1B, InterleavedZeroBubble: _get_1f1b_rank_ops() ---- */

static uint32_t rounds_of(const tide_pipeline_sizes *of) {
    uint32_t rounds = of->microbatches / of->ranks;
    return rounds ? rounds : 1;
}

static void interleaved_order(order *o) {
    const tide_pipeline_sizes *of = o->of;
    bool is_zero_bubble = of->schedule == TIDE_parallel_schedule_InterleavedZeroBubble;
    uint32_t in_round = of->microbatches / rounds_of(of), chunks = of->chunks, all = of->microbatches * chunks;
    uint32_t hops = of->ranks - 1 - o->rank, weights = 0;
    uint64_t wanted = (uint64_t)(chunks - 1) * in_round + (is_zero_bubble ? 1u : 2u) * (uint64_t)hops;
    uint32_t warmup = wanted < all ? (uint32_t)wanted : all; /* _get_warmup_ops() */
    for (uint32_t op = 0; op < warmup + all; op++) {
        uint32_t done = op - warmup; /* backward passes, from here on */
        if (op < all) add_next(o, TIDE_ACTION_FORWARD, op / in_round % chunks);
        if (op < warmup) continue;
        add_next(o, is_zero_bubble ? TIDE_ACTION_BACKWARD_INPUT : TIDE_ACTION_FULL_BACKWARD,
                 chunks - 1 - done / in_round % chunks);
        if (is_zero_bubble && done >= o->rank)
            add_next(o, TIDE_ACTION_BACKWARD_WEIGHT, chunks - 1 - weights++ / in_round % chunks);
    }
    while (is_zero_bubble && weights < all)
        add_next(o, TIDE_ACTION_BACKWARD_WEIGHT, chunks - 1 - weights++ / in_round % chunks);
}

/* ---- ZBVZeroBubble ---- */

static void backward_parts(order *o, uint32_t chunk) {
    add_next(o, TIDE_ACTION_BACKWARD_INPUT, chunk);
    add_next(o, TIDE_ACTION_BACKWARD_WEIGHT, chunk);
}

static void zbv(order *o) {
    uint32_t ranks = o->of->ranks, rank = o->rank, *forward = o->next[TIDE_ACTION_FORWARD];
    uint32_t *input = o->next[TIDE_ACTION_BACKWARD_INPUT], *weight = o->next[TIDE_ACTION_BACKWARD_WEIGHT];
    uint32_t count = o->of->microbatches > 2 * ranks - 1 ? o->of->microbatches : 2 * ranks - 1;
    for (uint32_t i = 0; i < 2 * (ranks - rank) - 1; i++) add_next(o, TIDE_ACTION_FORWARD, 0);
    for (uint32_t i = 0; i < rank; i++) {
        add_next(o, TIDE_ACTION_FORWARD, 1);
        add_next(o, TIDE_ACTION_FORWARD, 0);
    }
    for (uint32_t i = 0; i < ranks - rank; i++) {
        add_next(o, TIDE_ACTION_FORWARD, 1);
        backward_parts(o, 1);
    }
    while (forward[1] < forward[0] || forward[0] < count) {
        if (forward[0] < count) add_next(o, TIDE_ACTION_FORWARD, 0);
        backward_parts(o, 0);
        add_next(o, TIDE_ACTION_FORWARD, 1);
        backward_parts(o, 1);
    }
    for (uint32_t i = 0; i < rank; i++) {
        add_next(o, TIDE_ACTION_BACKWARD_INPUT, 0);
        add_next(o, TIDE_ACTION_BACKWARD_INPUT, 1);
    }
    for (uint32_t i = 0; i < ranks - rank; i++) backward_parts(o, 0);
    for (uint32_t chunk = 2; chunk-- > 0;)
        while (weight[chunk] < input[chunk]) add_next(o, TIDE_ACTION_BACKWARD_WEIGHT, chunk);
}

/* ---- DualPipeV ---- */

static void add_backward_pass(order *o, uint32_t chunk, bool is_split) {
    uint32_t microbatch = o->next[TIDE_ACTION_BACKWARD_INPUT][chunk]++;
    push_action(o, is_split ? TIDE_ACTION_BACKWARD_INPUT : TIDE_ACTION_FULL_BACKWARD, chunk, microbatch, false);
    if (!is_split) return;
    TIDE_ROOM(o->arena, o->waiting.list, o->waiting.count, o->waiting.capacity);
    o->waiting.list[o->waiting.count++] = (tide_action){.stage = chunk, .microbatch = microbatch};
}

/* add_weight_action_if_pending() */
static void weight_if_waiting(order *o) {
    if (o->first_waiting == o->waiting.count) return;
    tide_action of = o->waiting.list[o->first_waiting++];
    push_action(o, TIDE_ACTION_BACKWARD_WEIGHT, of.stage, of.microbatch, false);
}

/* OVERLAP_F_B */
static void add_overlap(order *o, uint32_t forward_chunk, uint32_t backward_chunk) {
    push_action(o, TIDE_ACTION_FORWARD, forward_chunk, o->next[TIDE_ACTION_FORWARD][forward_chunk]++, true);
    add_backward_pass(o, backward_chunk, false);
}

static void dual_pipe_v(order *o) {
    uint32_t after = o->of->ranks - 1 - o->rank, upto = o->rank + 1;
    uint32_t steady = o->of->microbatches - 2 * o->of->ranks + upto;
    bool is_split = false;
    for (uint32_t i = 0; i < 2 * after; i++) add_next(o, TIDE_ACTION_FORWARD, 0);
    for (uint32_t i = 0; i < upto; i++) {
        add_next(o, TIDE_ACTION_FORWARD, 0);
        add_next(o, TIDE_ACTION_FORWARD, 1);
    }
    for (uint32_t i = 0; i < after; i++) {
        add_backward_pass(o, 1, true);
        weight_if_waiting(o);
        add_next(o, TIDE_ACTION_FORWARD, 1);
    }
    for (uint32_t i = 0; i < steady; i++) {
        if (i == 0 && after == 0) {
            add_next(o, TIDE_ACTION_FORWARD, 0);
            add_backward_pass(o, 1, false);
        } else {
            add_overlap(o, 0, 1);
        }
        add_overlap(o, 1, 0);
    }
    for (uint32_t i = 0; i < after; i++) {
        add_backward_pass(o, 1, false);
        add_overlap(o, 1, 0);
    }
    for (uint32_t i = 0; i < upto; i++) {
        is_split = is_split || (i == upto / 2 && o->rank % 2 == 1);
        add_backward_pass(o, 1, is_split);
        is_split = is_split || (i == upto / 2 && o->rank % 2 == 0);
        add_backward_pass(o, 0, is_split);
    }
    for (uint32_t i = 0; i < after; i++) {
        weight_if_waiting(o);
        add_backward_pass(o, 0, is_split);
    }
    for (uint32_t i = 0; i < upto; i++) weight_if_waiting(o);
}

/* ---- all of them ---- */

tide_actions tide_pipeline_order(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena) {
    order o = {.of = of, .arena = arena, .rank = rank};
    for (unsigned i = 0; i < TIDE_COUNT_OF(o.next); i++) o.next[i] = TIDE_NEW(arena, uint32_t, of->chunks);
    switch (of->schedule) {
    case TIDE_parallel_schedule_GPipe:
    case TIDE_parallel_schedule__1F1B:
        single_stage_order(&o);
        break;
    case TIDE_parallel_schedule_LoopedBFS:
        looped_bfs(&o);
        break;
    case TIDE_parallel_schedule_Interleaved1F1B:
    case TIDE_parallel_schedule_InterleavedZeroBubble:
        interleaved_order(&o);
        break;
    case TIDE_parallel_schedule_ZBVZeroBubble:
        zbv(&o);
        break;
    case TIDE_parallel_schedule_DualPipeV:
        dual_pipe_v(&o);
        break;
    default:
        break;
    }
    return o.actions;
}

uint32_t tide_actions_in_flight(const tide_actions *passes) {
    uint32_t now = 0, most = 0;
    for (uint32_t i = 0; i < passes->count; i++) {
        uint8_t type = passes->list[i].type;
        if (type == TIDE_ACTION_FORWARD && ++now > most) most = now;
        if (type == TIDE_ACTION_FULL_BACKWARD || type == TIDE_ACTION_BACKWARD_WEIGHT) now--;
    }
    return most;
}

/* ---- sizes ---- */

static const char *rounds_refusal(const tide_pipeline_sizes *of, const char *name, tide_arena *arena) {
    uint32_t rounds = rounds_of(of);
    if (of->microbatches % rounds == 0) return NULL;
    return tide_format(arena,
                       "%s requires the number of microbatches to be a multiple of the number of rounds (%u), but got "
                       "%u.",
                       name, rounds, of->microbatches);
}

enum { ACTION_LIMIT = 1 << 22 };

const char *tide_pipeline_refusal(const tide_pipeline_sizes *of, const char **setting, tide_arena *arena) {
    tide_parallel_schedule_choice s = of->schedule;
    bool is_single = s == TIDE_parallel_schedule_GPipe || s == TIDE_parallel_schedule__1F1B;
    *setting = "parallel.chunks";
    if (is_single && of->chunks > 1)
        return tide_format(arena, "%s runs one stage on each rank, not %u",
                           s == TIDE_parallel_schedule_GPipe ? "GPipe" : "1F1B", of->chunks);
    if (is_v(of) && of->chunks != 2)
        return tide_format(arena, "ZBV requires exactly 2 stages per rank, but got %u.", of->chunks);
    *setting = "parallel.microbatches";
    if (s == TIDE_parallel_schedule__1F1B && of->microbatches < of->ranks)
        return tide_format(arena,
                           "Number of microbatches (%u) must be greater than or equal to the number of stages (%u).",
                           of->microbatches, of->ranks);
    if (s == TIDE_parallel_schedule_DualPipeV && of->microbatches < 2 * of->ranks)
        return tide_format(arena,
                           "DualPipeV requires at least as many microbatches as stages, but got %u microbatches and %u "
                           "stages.",
                           of->microbatches, 2 * of->ranks);
    if (!is_single && (uint64_t)of->ranks * of->chunks * of->microbatches > ACTION_LIMIT)
        return tide_format(arena, "%u stages and %u micro-batches are more passes than tidemark puts in order (%d)",
                           of->ranks * of->chunks, of->microbatches, ACTION_LIMIT);
    if (s == TIDE_parallel_schedule_Interleaved1F1B) return rounds_refusal(of, "Interleaved 1F1B", arena);
    if (s == TIDE_parallel_schedule_InterleavedZeroBubble) return rounds_refusal(of, "Zero bubble", arena);
    return NULL;
}

const char *tide_action_text(tide_action action, tide_arena *arena) {
    static const char *const letters[] = {
#define ACTION(name, letters) letters,
#include "parallel/pipeline_actions.def"
#undef ACTION
    };
    if (action.microbatch == TIDE_NO_MICROBATCH) return tide_format(arena, "%u%s", action.stage, letters[action.type]);
    return tide_format(arena, "%u%s%u", action.stage, letters[action.type], action.microbatch);
}
