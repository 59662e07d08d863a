/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/schedules.py: _prepare_schedule_with_comms().
 *
 * Note [Lowering]: around the passes of each rank, parameters are gathered and released for the next three stages, and
 * gradients are reduced once a stage has done all its backward passes. Then the ranks proceed in turn, one action each:
 * a send adds a receive to the neighbour's list at that point, and a pass waits until its receive is there. Finally the
 * waits for sends are added: a forward's with the backward pass of the same micro-batch, the others at the end. */
#include "parallel/pipeline_actions.h"

enum { MAX_ACTIVE_STAGES = 3 }; /* max_active_stages, unshard_lookahead="full" */

static void append_new(tide_actions *a, tide_arena *arena, tide_action_type type, uint32_t stage, uint32_t microbatch) {
    TIDE_ROOM(arena, a->list, a->count, a->capacity);
    a->list[a->count++] = (tide_action){.type = (uint8_t)type, .stage = stage, .microbatch = microbatch};
}

static void append_action(tide_actions *a, tide_arena *arena, tide_action action) {
    append_new(a, arena, (tide_action_type)action.type, action.stage, action.microbatch);
    a->list[a->count - 1].with_next = action.with_next;
}

static bool is_backward(tide_action a) {
    return a.type == TIDE_ACTION_FULL_BACKWARD || a.type == TIDE_ACTION_BACKWARD_INPUT;
}

/* ---- _add_unshard_reshard, _add_reduce_grad ---- */

typedef struct fsdp_lowering {
    const tide_pipeline_sizes *of;
    tide_arena *arena;
    tide_actions from, to;
    uint32_t *next_of; /* by action: the next one of its stage; from.count: none */
    uint32_t *head;    /* by chunk: its next action */
    uint32_t *left;    /* by chunk: backward passes until its gradients are complete */
    uint32_t active[MAX_ACTIVE_STAGES + 1], active_count; /* chunks whose parameters are gathered, in order */
} fsdp_lowering;

static uint32_t chunk_of(const fsdp_lowering *l, uint32_t stage) {
    return stage / l->of->ranks;
}

static bool is_chunk_among(const uint32_t *chunks, uint32_t count, uint32_t chunk) {
    for (uint32_t i = 0; i < count; i++)
        if (chunks[i] == chunk) return true;
    return false;
}

/* next_stage_indices() */
static uint32_t next_chunks(const fsdp_lowering *l, uint32_t *chunks) {
    uint32_t count = 0;
    for (; count < MAX_ACTIVE_STAGES; count++) {
        uint32_t first = l->from.count;
        for (uint32_t chunk = 0; chunk < l->of->chunks; chunk++)
            if (l->head[chunk] < first && !is_chunk_among(chunks, count, chunk)) {
                first = l->head[chunk];
                chunks[count] = chunk;
            }
        if (first == l->from.count) break;
    }
    return count;
}

static void gather_and_let_go(fsdp_lowering *l, uint32_t rank) {
    uint32_t wanted[MAX_ACTIVE_STAGES], count = next_chunks(l, wanted), kept = 0;
    for (uint32_t i = 0; i < l->active_count; i++) {
        uint32_t chunk = l->active[i];
        if (is_chunk_among(wanted, count, chunk))
            l->active[kept++] = chunk;
        else
            append_new(&l->to, l->arena, TIDE_ACTION_RESHARD, tide_pipeline_stage_of(l->of, rank, chunk),
                       TIDE_NO_MICROBATCH);
    }
    l->active_count = kept;
    for (uint32_t i = 0; i < count; i++) {
        if (is_chunk_among(l->active, l->active_count, wanted[i])) continue;
        l->active[l->active_count++] = wanted[i];
        append_new(&l->to, l->arena, TIDE_ACTION_UNSHARD, tide_pipeline_stage_of(l->of, rank, wanted[i]),
                   TIDE_NO_MICROBATCH);
    }
}

/* After an action together with the one that it is joined with. */
static void reduce_whole_gradients(fsdp_lowering *l, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        tide_action a = l->from.list[i];
        if (a.type != TIDE_ACTION_FULL_BACKWARD && a.type != TIDE_ACTION_BACKWARD_WEIGHT) continue;
        if (--l->left[chunk_of(l, a.stage)]) continue;
        append_new(&l->to, l->arena, TIDE_ACTION_REDUCE_GRAD, a.stage, TIDE_NO_MICROBATCH);
        append_new(&l->to, l->arena, TIDE_ACTION_WAIT_REDUCE_GRAD, a.stage, TIDE_NO_MICROBATCH);
    }
}

static tide_actions with_fsdp(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena) {
    fsdp_lowering l = {.of = of, .arena = arena, .from = tide_pipeline_order(of, rank, arena)};
    l.next_of = TIDE_NEW(arena, uint32_t, l.from.count + 1);
    l.head = TIDE_NEW(arena, uint32_t, of->chunks);
    l.left = TIDE_NEW(arena, uint32_t, of->chunks);
    for (uint32_t i = 0; i < of->chunks; i++) {
        l.head[i] = l.from.count;
        l.left[i] = of->microbatches;
    }
    for (uint32_t i = l.from.count; i-- > 0;) {
        uint32_t *head = &l.head[chunk_of(&l, l.from.list[i].stage)];
        l.next_of[i] = *head;
        *head = i;
    }
    for (uint32_t i = 0, first = 0; i < l.from.count; i++) {
        tide_action a = l.from.list[i];
        if (i == first) gather_and_let_go(&l, rank);
        append_action(&l.to, arena, a);
        if (a.with_next) continue;
        for (uint32_t k = first; k <= i; k++) l.head[chunk_of(&l, l.from.list[k].stage)] = l.next_of[k];
        reduce_whole_gradients(&l, first, i + 1);
        first = i + 1;
    }
    for (uint32_t i = 0; i < l.active_count; i++)
        append_new(&l.to, arena, TIDE_ACTION_RESHARD, tide_pipeline_stage_of(of, rank, l.active[i]),
                   TIDE_NO_MICROBATCH);
    return l.to;
}

/* ---- _add_send_recv ---- */

enum { RECEIVED_FORWARD = 1, RAN_FORWARD = 2, RECEIVED_BACKWARD = 4, RAN_BACKWARD = 8 };

typedef struct exchanged {
    const tide_pipeline_sizes *of;
    tide_arena *arena;
    uint32_t rank; /* whose list is built */
    uint8_t *done; /* by stage and micro-batch */
    tide_actions to;
} exchanged;

static uint8_t *done_at(const exchanged *e, uint32_t stage, uint32_t microbatch) {
    return &e->done[(size_t)stage * e->of->microbatches + microbatch];
}

static uint32_t rank_of_stage(const exchanged *e, uint32_t stage) {
    return tide_pipeline_rank_of(e->of, stage);
}

static bool is_action_ready(const exchanged *e, tide_action a) {
    uint32_t last = e->of->ranks * e->of->chunks - 1, here = rank_of_stage(e, a.stage);
    if (a.type == TIDE_ACTION_FORWARD && a.stage > 0)
        return (*done_at(e, a.stage, a.microbatch) & RECEIVED_FORWARD) ||
               (rank_of_stage(e, a.stage - 1) == here && (*done_at(e, a.stage - 1, a.microbatch) & RAN_FORWARD));
    if (is_backward(a) && a.stage < last)
        return (*done_at(e, a.stage, a.microbatch) & RECEIVED_BACKWARD) ||
               (rank_of_stage(e, a.stage + 1) == here && (*done_at(e, a.stage + 1, a.microbatch) & RAN_BACKWARD));
    return true;
}

static void send_on(exchanged *e, tide_action a, bool is_forward) {
    uint32_t last = e->of->ranks * e->of->chunks - 1;
    if (a.stage == (is_forward ? last : 0)) return;
    uint32_t other = is_forward ? a.stage + 1 : a.stage - 1, here = rank_of_stage(e, a.stage),
             there = rank_of_stage(e, other);
    if (here == there) return;
    *done_at(e, other, a.microbatch) |= is_forward ? RECEIVED_FORWARD : RECEIVED_BACKWARD;
    if (here == e->rank)
        append_new(&e->to, e->arena, is_forward ? TIDE_ACTION_SEND_F : TIDE_ACTION_SEND_B, a.stage, a.microbatch);
    if (there == e->rank)
        append_new(&e->to, e->arena, is_forward ? TIDE_ACTION_RECV_F : TIDE_ACTION_RECV_B, other, a.microbatch);
}

/* Adds an action of a rank if its inputs are available: returns how many entries of its list that took. */
static uint32_t take_turn(exchanged *e, uint32_t rank, const tide_action *list) {
    uint32_t count = list[0].with_next ? 2 : 1;
    for (uint32_t i = 0; i < count; i++)
        if (!is_action_ready(e, list[i])) return 0;
    for (uint32_t i = 0; i < count && rank == e->rank; i++) append_action(&e->to, e->arena, list[i]);
    for (uint32_t i = 0; i < count; i++) {
        bool is_forward = list[i].type == TIDE_ACTION_FORWARD;
        if (!is_forward && !is_backward(list[i])) continue;
        *done_at(e, list[i].stage, list[i].microbatch) |= is_forward ? RAN_FORWARD : RAN_BACKWARD;
        send_on(e, list[i], is_forward);
    }
    return count;
}

static tide_actions with_exchange(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena) {
    exchanged e = {.of = of, .arena = arena, .rank = rank};
    tide_actions *lists = TIDE_NEW(arena, tide_actions, of->ranks);
    uint32_t *at = TIDE_NEW(arena, uint32_t, of->ranks);
    e.done = TIDE_NEW(arena, uint8_t, (size_t)of->ranks * of->chunks * of->microbatches);
    for (uint32_t i = 0; i < of->ranks; i++) lists[i] = with_fsdp(of, i, arena);
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (uint32_t i = 0; i < of->ranks; i++) {
            uint32_t taken = at[i] < lists[i].count ? take_turn(&e, i, lists[i].list + at[i]) : 0;
            at[i] += taken;
            goes_on = goes_on || taken;
        }
    }
    for (uint32_t i = 0; i < of->ranks; i++) tide_arena_drop(arena, lists[i].list);
    return e.to;
}

/* ---- _add_wait_send ---- */

tide_actions tide_pipeline_order_with_comms(const tide_pipeline_sizes *of, uint32_t rank, tide_arena *arena) {
    tide_actions from = with_exchange(of, rank, arena), to = {NULL, 0, 0}, sent = {NULL, 0, 0};
    bool *is_awaited = TIDE_NEW(arena, bool, (size_t)of->chunks * of->microbatches);
    for (uint32_t i = 0, first = 0; i < from.count; i++) {
        tide_action a = from.list[i];
        append_action(&to, arena, a);
        if (a.type == TIDE_ACTION_SEND_F || a.type == TIDE_ACTION_SEND_B) append_action(&sent, arena, a);
        if (a.type == TIDE_ACTION_SEND_F)
            is_awaited[(size_t)(a.stage / of->ranks) * of->microbatches + a.microbatch] = true;
        if (a.with_next) continue;
        for (uint32_t k = first; k <= i; k++) {
            if (!is_backward(from.list[k])) continue;
            bool *waits =
                &is_awaited[(size_t)(from.list[k].stage / of->ranks) * of->microbatches + from.list[k].microbatch];
            if (*waits) append_new(&to, arena, TIDE_ACTION_WAIT_SEND_F, from.list[k].stage, from.list[k].microbatch);
            *waits = false;
        }
        first = i + 1;
    }
    for (uint32_t i = 0; i < sent.count; i++) {
        tide_action a = sent.list[i];
        bool is_forward = a.type == TIDE_ACTION_SEND_F;
        if (is_forward && !is_awaited[(size_t)(a.stage / of->ranks) * of->microbatches + a.microbatch]) continue;
        append_new(&to, arena, is_forward ? TIDE_ACTION_WAIT_SEND_F : TIDE_ACTION_WAIT_SEND_B, a.stage, a.microbatch);
    }
    return to;
}
