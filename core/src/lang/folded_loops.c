/* SPDX-License-Identifier: Apache-2.0 */
/* Loops whose iterations are alike.
 *
 * Note [Folded loops]: a scan is a loop over tokens or chunks. Each iteration takes over the state of the one before;
 * what it appends to lists, and what its nodes save, lives on. If the third iteration did the same as the second (the
 * same requests and frees; equal names; lists that are equal but for one more item), and the loop variable is only used
 * to index tensors, then those that follow will, too. So the third one is stored as a repetition of the timeline for
 * all iterations but the last three, and what each of them leaves alive is set aside. Lists get an item for each. Its
 * nodes stand for all: Note [Unwinding] in tensor/folded_loops.h. */
#include <string.h>

#include "lang/interpreter.h"
#include "tensor/checkpoint.h"

/* What a scan leaves of each iteration needs host memory anyway, and so does the cat after it. */
enum { MOST_ITERATIONS = 16384 };
enum { FEWEST_ITERATIONS = 16, LAST_ITERATIONS = 3, HELD_BY_ITERATION = 64, LISTS_OF_LOOP = 8 };

/* The state of the machine, and a digest of the value of each name: for a list its identity, with its length
 * separately. */
typedef struct tide_loop_look {
    tide_timeline_place place;
    tide_machine_state state;
    uint32_t order, places, casts, diagnostics, setting_changes;
    uint32_t *lengths;
    uint64_t *names;
} loop_look;

/* ---- what a loop's variable is used for ---- */

static bool is_variable(const tide_expr *e, uint32_t slot) {
    return e && e->kind == TIDE_EXPR_NAME && e->meaning == TIDE_LOCAL && e->slot == slot;
}

/* i, or i + 1. */
static bool is_place(const tide_expr *e, uint32_t slot) {
    return is_variable(e, slot) ||
           (e->kind == TIDE_EXPR_BINARY && e->op == '+' && is_variable(e->a, slot) && e->b->kind == TIDE_EXPR_INT);
}

/* Whether the callee is an operation, or a method of a value: not a module or function, which may store something. */
static bool calls_operation(const tide_frame *f, const tide_expr *e) {
    const tide_expr *callee = e->a;
    if (callee->kind == TIDE_EXPR_NAME) return callee->meaning == TIDE_OPERATION || callee->meaning == TIDE_BUILTIN;
    if (callee->kind != TIDE_EXPR_MEMBER) return false;
    const tide_expr *object = callee->a;
    bool is_held = object->kind == TIDE_EXPR_NAME && object->meaning != TIDE_LOCAL;
    return !is_held && (object->kind != TIDE_EXPR_NAME || f->locals[object->slot].kind == TIDE_VALUE_TENSOR ||
                        f->locals[object->slot].kind == TIDE_VALUE_LIST);
}

static bool only_indexes(const tide_frame *f, const tide_expr *e, uint32_t slot) {
    if (!e) return true;
    if (is_variable(e, slot) || e->kind == TIDE_EXPR_CHOICE || e->kind == TIDE_EXPR_COMPREHENSION) return false;
    if (e->kind == TIDE_EXPR_CALL && !calls_operation(f, e)) return false;
    bool is_tensor = e->kind == TIDE_EXPR_INDEX && e->a->kind == TIDE_EXPR_NAME && e->a->meaning == TIDE_LOCAL &&
                     f->locals[e->a->slot].kind == TIDE_VALUE_TENSOR;
    bool is_slice =
        e->kind == TIDE_EXPR_CALL && e->a->kind == TIDE_EXPR_MEMBER && tide_text_is(e->a->text, "copy_slice_");
    for (uint32_t i = 0; i < e->count; i++) {
        bool is_index = is_tensor ? is_variable(e->items[i], slot) : is_slice && is_place(e->items[i], slot);
        if (!is_index && !only_indexes(f, e->items[i], slot)) return false;
    }
    return only_indexes(f, e->a, slot) && only_indexes(f, e->b, slot) && only_indexes(f, e->c, slot);
}

static bool is_scan(const tide_frame *f, const tide_statement *loop) {
    if (loop->target_count != 1) return false;
    for (const tide_statement *s = loop->body; s; s = s->next)
        if ((s->kind != TIDE_STATEMENT_ASSIGN && s->kind != TIDE_STATEMENT_EXPR) ||
            !only_indexes(f, s->expr, loop->slots[0]))
            return false;
    return true;
}

/* ---- looking ---- */

static uint64_t digest_more(uint64_t digest, uint64_t value) {
    return (digest ^ value) * UINT64_C(0x9e3779b97f4a7c15) ^ digest >> 29;
}

/* The offset of a tensor in its storage depends on the loop variable; its storage may differ. */
static uint64_t name_digest(tide_value v) {
    uint64_t digest = digest_more((uint64_t)v.kind, v.symbol);
    if (v.kind != TIDE_VALUE_TENSOR) return digest_more(digest, tide_value_bits(v));
    const tide_tensor *t = v.tensor;
    digest = digest_more(digest, (uint64_t)(uintptr_t)t->layout);
    digest = digest_more(digest, (uint64_t)t->output << 8 | t->dtype);
    digest = digest_more(digest, (uint64_t)t->requires_grad | (uint64_t)t->is_leaf << 1 | (uint64_t)t->is_view << 2);
    return digest_more(digest, (uint64_t)(t->node != NULL) | (uint64_t)t->storage->is_untracked << 1);
}

static uint32_t places_taken(const tide_machine *m) {
    const tide_checkpoint_frame *saving = tide_checkpoint_saving(m), *again = tide_checkpoint_recomputing(m);
    return saving ? saving->holder_count : again ? again->recomputed_count : 0;
}

static loop_look *look_at_loop(const tide_frame *f, uint32_t variable) {
    const tide_machine *m = f->model->m;
    uint32_t count = f->function->local_count;
    loop_look *look = tide_arena_grow(m->arena, NULL, 0, sizeof *look);
    *look = (loop_look){.place = tide_timeline_here(&m->timeline),
                        .state = tide_machine_state_key(m),
                        .order = m->node_order,
                        .places = places_taken(m),
                        .casts = m->cast_count,
                        .diagnostics = m->diags->count,
                        .setting_changes = f->model->setting_changes};
    look->lengths = tide_arena_grow(m->arena, NULL, 0, (count + 1) * sizeof *look->lengths);
    look->names = tide_arena_grow(m->arena, NULL, 0, (count + 1) * sizeof *look->names);
    for (uint32_t i = 0; i < count; i++) {
        if (i == variable) continue;
        look->names[i] = name_digest(f->locals[i]);
        if (f->locals[i].kind == TIDE_VALUE_LIST) look->lengths[i] = f->locals[i].list->count;
    }
    return look;
}

void tide_looks_drop(tide_frame *f, tide_loop_looks *looks) {
    tide_arena *arena = f->model->m->arena;
    for (int i = 0; i < TIDE_ITERATIONS_LOOKED_AT; i++) {
        if (!looks->at[i]) continue;
        tide_arena_drop(arena, looks->at[i]->lengths);
        tide_arena_drop(arena, looks->at[i]->names);
        tide_arena_drop(arena, looks->at[i]);
        looks->at[i] = NULL;
    }
}

/* Whether the machine and all names are as they were one iteration earlier, and changed as much as in that iteration.
 */
static bool goes_on_alike(const tide_frame *f, const loop_look *a, const loop_look *b, const loop_look *c) {
    if (memcmp(&b->state, &c->state, sizeof b->state) != 0 || b->casts != c->casts ||
        b->diagnostics != c->diagnostics || b->setting_changes != c->setting_changes ||
        c->order - b->order != b->order - a->order || c->places - b->places != b->places - a->places)
        return false;
    for (uint32_t i = 0; i < f->function->local_count; i++)
        if (b->names[i] != c->names[i] || c->lengths[i] - b->lengths[i] != b->lengths[i] - a->lengths[i]) return false;
    return true;
}

/* ---- folding ---- */

/* What outlives the next iteration: first what nodes saved, then what lists refer to. */
typedef struct held_of_loop {
    uint32_t saved[HELD_BY_ITERATION], listed[HELD_BY_ITERATION];
    uint32_t saved_count, listed_count;
    uint32_t lists[LISTS_OF_LOOP]; /* slots of the lists that grew */
    uint32_t list_count;
} held_of_loop;

/* The item of the iteration before the last one, to which only its list still refers. False if it is anything else. */
static bool list_item(held_of_loop *held, const tide_timeline *t, tide_value v, const loop_look *a,
                      const loop_look *b) {
    if (v.kind != TIDE_VALUE_TENSOR) return false;
    const tide_storage *g = v.tensor->storage;
    bool is_own = !g->is_untracked && g->allocation >= a->place.allocation && g->allocation < b->place.allocation;
    if (!is_own || g->references != 1 || v.tensor->references != 1 || held->listed_count == HELD_BY_ITERATION ||
        *tide_timeline_died(t, g->allocation) != TIDE_NEVER)
        return false;
    for (uint32_t i = 0; i < held->listed_count; i++)
        if (held->listed[i] == g->allocation) return false;
    held->listed[held->listed_count++] = g->allocation;
    return true;
}

static bool is_in_list_of_loop(const held_of_loop *held, uint32_t which) {
    for (uint32_t i = 0; i < held->listed_count; i++)
        if (held->listed[i] == which) return true;
    return false;
}

/* Of the second iteration, from `a` to `b`. */
static bool find_held_of_loop(held_of_loop *held, const tide_frame *f, const loop_look *a, const loop_look *b) {
    const tide_timeline *t = &f->model->m->timeline;
    for (uint32_t i = 0; i < f->function->local_count; i++) {
        if (b->lengths[i] == a->lengths[i]) continue;
        if (b->lengths[i] < a->lengths[i] || held->list_count == LISTS_OF_LOOP) return false;
        held->lists[held->list_count++] = i;
        for (uint32_t k = a->lengths[i]; k < b->lengths[i]; k++)
            if (!list_item(held, t, f->locals[i].list->items[k], a, b)) return false;
    }
    for (uint32_t i = a->place.allocation; i < b->place.allocation; i++) {
        if (*tide_timeline_died(t, i) != TIDE_NEVER || is_in_list_of_loop(held, i)) continue;
        if (held->saved_count == HELD_BY_ITERATION) return false;
        held->saved[held->saved_count++] = i;
    }
    return held->saved_count == 0 || f->model->m->state.grad_enabled;
}

/* Appends the items of the folded iterations before those of the last one. */
static void append_of_iterations(tide_frame *f, const held_of_loop *held, const loop_look *b, const loop_look *c,
                                 const tide_repetition *of) {
    tide_machine *m = f->model->m;
    uint32_t at = held->saved_count;
    for (uint32_t i = 0; i < held->list_count; i++) {
        uint32_t slot = held->lists[i], own = c->lengths[slot] - b->lengths[slot];
        tide_list *list = f->locals[slot].list;
        tide_value last[HELD_BY_ITERATION];
        memcpy(last, list->items + b->lengths[slot], own * sizeof *last);
        list->count -= own;
        for (uint32_t k = 0; k < of->times * own; k++) {
            const tide_tensor *like = last[k % own].tensor;
            tide_tensor *made =
                tide_tensor_of(m, tide_held_slot(of, at + k % own, k / own), like->layout, (tide_dtype)like->dtype);
            made->offset = like->offset;
            made->is_view = like->is_view;
            made->is_of_iteration = like->requires_grad;
            tide_list_push(m, list, tide_of_tensor(made));
        }
        for (uint32_t k = 0; k < own; k++) tide_list_push(m, list, last[k]);
        at += own;
    }
}

/* Repeats the third iteration so many times. False: the others may differ from it. */
static bool fold_loop(tide_frame *f, const tide_loop_looks *looks, uint32_t times) {
    const loop_look *a = looks->at[0], *b = looks->at[1], *c = looks->at[2];
    tide_machine *m = f->model->m;
    held_of_loop held = {.saved_count = 0};
    if (!goes_on_alike(f, a, b, c) || !find_held_of_loop(&held, f, a, b)) return false;
    uint32_t count = held.saved_count + held.listed_count, all[2 * HELD_BY_ITERATION],
             further = b->place.allocation - a->place.allocation;
    if (!tide_timeline_repeats(&m->timeline, a->place, a->place, b->place, count)) return false;
    for (uint32_t i = 0; i < count; i++)
        all[i] = further + (i < held.saved_count ? held.saved[i] : held.listed[i - held.saved_count]);
    const tide_repetition *of =
        tide_timeline_play_again_holding(&m->timeline, b->place, times, all, count, held.saved_count);
    append_of_iterations(f, &held, b, c, of);
    m->folding.has_folded = true;
    if (c->order > b->order) tide_fold_loop(m, (tide_folded_loop){b->order, c->order, 2 * c->order - b->order, times});
    return true;
}

uint32_t tide_fold_iterations(tide_frame *f, const tide_statement *loop, tide_loop_looks *looks, uint32_t done,
                              uint32_t count) {
    tide_machine *m = f->model->m;
    if (!done && count > MOST_ITERATIONS && is_scan(f, loop))
        tide_fail(m, TIDE_ERR_LIMIT, "a scan of %u steps, one by one, and no more than %d are played", count,
                  MOST_ITERATIONS);
    if (count < FEWEST_ITERATIONS || !done || done > TIDE_ITERATIONS_LOOKED_AT || !m->folding.is_wanted) return 0;
    if (done == 1 ? !is_scan(f, loop) : !looks->at[0]) return 0;
    looks->at[done - 1] = look_at_loop(f, loop->slots[0]);
    uint32_t times = count - TIDE_ITERATIONS_LOOKED_AT - LAST_ITERATIONS;
    return done == TIDE_ITERATIONS_LOOKED_AT && fold_loop(f, looks, times) ? times : 0;
}
