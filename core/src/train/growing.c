/* SPDX-License-Identifier: Apache-2.0 */
/* Note [Growing]: two consecutive steps tell by how much each size grows: in the values of the loop (dimensions,
 * strides), and in each request. Whether a later step continues this is tested: the loop's values are copied, the
 * copies are grown as if the steps in between had been played, the step is played with them, and everything that it did
 * is undone. From the last step that passes, those in between are folded into one, with the bytes by which requests
 * grow (tide_repetition).
 *
 * What is not linear in the number of steps starts or ends at some step: a window is full, or a kernel splits the keys
 * into more parts. Operations whose choice depends on ranges of a length tell how far theirs extends
 * (tide_machine.same_keys), so no step outside of it is assumed. Other conditions compare a length with a bound, so
 * steps between two that are alike are alike, too; some of them are tested anyway. */
#include "train/growing.h"

#include "memo/memo.h"

#include <string.h>

/* LONG_PLAY: events that the allocator processes in a fraction of a second; LONGEST_PLAY: in more than a second. */
enum {
    FEWEST_STEPS = 8,
    PERIOD = 8,
    SHORT_RUNS = 3,
    COPIES_LIMIT = 4096,
    LONG_PLAY = 1 << 20,
    LONGEST_PLAY = 1 << 23,
    SMALL_REQUEST = 1 << 20,
    SMALL_POOL_SEGMENT = 2 << 20
};

/* Numbers that describe values, in the order in which they are found. */
typedef struct numbers {
    int64_t *at;
    uint32_t count, capacity;
} numbers;

typedef struct growing_steps {
    const tide_growing_loop *loop;
    tide_machine *m;
    tide_timeline_place place; /* of the second of the two steps */
    uint32_t last;             /* its last event */
    int64_t step;              /* its number */
    numbers values, by;        /* of the loop after it, and by how much they grew */
    uint64_t *bytes;           /* by which each of its allocations grew */
    uint64_t key;              /* of the model */
} growing_steps;

/* ---- what values are like ---- */

static void add_number(numbers *n, int64_t value, tide_arena *arena) {
    TIDE_ROOM(arena, n->at, n->count, n->capacity);
    n->at[n->count++] = value;
}

static void add_value(numbers *n, tide_value v, tide_arena *arena) {
    add_number(n, (int64_t)v.kind, arena);
    if (v.kind == TIDE_VALUE_LIST) {
        add_number(n, v.list->count, arena);
        for (uint32_t i = 0; i < v.list->count; i++) add_value(n, v.list->items[i], arena);
    } else if (v.kind == TIDE_VALUE_TENSOR) {
        const tide_tensor *t = v.tensor;
        add_number(n, t->shape->dims | t->dtype << 8 | t->storage->is_untracked << 16 | (t->node != NULL) << 17, arena);
        add_number(n, t->offset, arena);
        for (int i = 0; i < t->shape->dims; i++) {
            add_number(n, t->shape->dim[i].size, arena);
            add_number(n, t->stride[i], arena);
        }
    } else {
        add_number(n, (int64_t)tide_value_bits(v), arena);
    }
}

static void look_at_values(const growing_steps *g, numbers *n) {
    tide_value values[TIDE_LOOP_VALUES];
    uint32_t count = g->loop->values(g->loop->user, values);
    n->count = 0;
    for (uint32_t i = 0; i < count; i++) add_value(n, values[i], g->m->arena);
}

/* ---- values, grown ---- */

typedef struct copies {
    tide_machine *m;
    const int64_t *by; /* the next number */
    int64_t times;
    bool is_copied; /* else the values themselves grow */
    const void *from[COPIES_LIMIT];
    void *to[COPIES_LIMIT];
    uint32_t count;
} copies;

static void *find_copy(const copies *c, const void *from) {
    for (uint32_t i = c->count; i-- > 0;)
        if (c->from[i] == from) return c->to[i];
    return NULL;
}

static void note_copy(copies *c, const void *from, void *to) {
    if (c->count == COPIES_LIMIT) {
        tide_fail(c->m, TIDE_ERR_LIMIT, "more than %d tensors are kept between tokens", COPIES_LIMIT / 2);
        return;
    }
    c->from[c->count] = from;
    c->to[c->count++] = to;
}

static tide_storage *copy_storage(copies *c, tide_storage *of) {
    tide_storage *made = find_copy(c, of);
    if (!made) {
        made = tide_pool_alloc(c->m, sizeof *made);
        *made = *of;
        made->references = 0;
        made->serial = ++c->m->serial;
        note_copy(c, of, made);
    }
    made->references++;
    return made;
}

static tide_tensor *copy_tensor(copies *c, tide_tensor *of, bool *is_new) {
    tide_tensor *made = find_copy(c, of);
    *is_new = !made;
    if (made && c->is_copied) made->references++;
    if (made) return made;
    made = of;
    if (c->is_copied) {
        made = tide_pool_alloc(c->m, sizeof *made);
        memcpy(made, of, TIDE_TENSOR_IS);
        made->references = 1;
        made->serial = ++c->m->serial;
        made->storage = copy_storage(c, of->storage);
        made->shape = of->shape;
        made->stride = of->stride;
    }
    note_copy(c, of, made);
    return made;
}

static void grow_tensor(copies *c, tide_tensor *t) {
    tide_shape shape = *t->shape;
    int64_t stride[TIDE_MAX_DIMS];
    t->offset += *c->by++ * c->times;
    for (int i = 0; i < shape.dims; i++) {
        shape.dim[i].size += *c->by++ * c->times;
        stride[i] = t->stride[i] + *c->by++ * c->times;
    }
    t->layout = tide_layout_of(c->m, &shape, stride);
    t->shape = &t->layout->shape;
    t->stride = t->layout->stride;
}

static tide_value grow_value(copies *c, tide_value v) {
    bool is_new;
    int64_t by = *++c->by; /* after the kind */
    c->by++;
    if (v.kind == TIDE_VALUE_TENSOR) {
        int dims = v.tensor->shape->dims;
        v.tensor = copy_tensor(c, v.tensor, &is_new);
        if (is_new)
            grow_tensor(c, v.tensor);
        else
            c->by += 1 + 2 * dims;
    } else if (v.kind == TIDE_VALUE_LIST) {
        tide_list *of = v.list, *made = find_copy(c, of);
        if (!made && c->is_copied) {
            made = tide_list_new(c->m);
            made->is_output = of->is_output;
            made->is_read = of->is_read;
            made->references = 0;
        }
        is_new = !find_copy(c, of);
        if (is_new) note_copy(c, of, made ? made : of);
        if (c->is_copied) made->references++;
        for (uint32_t i = 0; i < of->count; i++) {
            tide_value item = grow_value(c, of->items[i]);
            if (!c->is_copied)
                of->items[i] = item;
            else if (is_new)
                tide_list_push(c->m, made, item);
            else
                tide_value_release(c->m, item);
        }
        if (c->is_copied) v.list = made;
    } else if (v.kind == TIDE_VALUE_INT) {
        v.integer += by * c->times;
    }
    return v;
}

/* The loop's values as they will be so many steps later: copies, or the values themselves. */
static uint32_t grow_values(const growing_steps *g, int64_t times, bool is_copied, tide_value *grown) {
    tide_value values[TIDE_LOOP_VALUES];
    uint32_t count = g->loop->values(g->loop->user, values);
    copies *c = tide_arena_grow(g->m->arena, NULL, 0, sizeof *c);
    *c = (copies){.m = g->m, .by = g->by.at, .times = times, .is_copied = is_copied};
    for (uint32_t i = 0; i < count; i++) grown[i] = grow_value(c, values[i]);
    tide_arena_drop(g->m->arena, c);
    return count;
}

/* ---- steps ---- */

/* Whether the events from `at` to the end are those of the second step, so many steps later; for the step right after
 * it, records by how much it grew. */
static bool is_alike_later(const growing_steps *g, tide_timeline_place at, int64_t times) {
    return tide_timeline_grows(&g->m->timeline, g->place, g->last, at, g->bytes, times);
}

static bool numbers_are(const growing_steps *g, const numbers *now, int64_t times) {
    if (now->count != g->values.count) return false;
    for (uint32_t i = 0; i < now->count; i++)
        if (now->at[i] != g->values.at[i] + times * g->by.at[i]) return false;
    return true;
}

/* Whether a step continues the growth of the second one: plays it with copies, and undoes it. */
static bool is_so_at(const growing_steps *g, int64_t step) {
    tide_machine *m = g->m;
    tide_value values[TIDE_LOOP_VALUES], grown[TIDE_LOOP_VALUES];
    uint32_t count = g->loop->values(g->loop->user, values);
    tide_timeline_place at = tide_timeline_here(&m->timeline);
    uint64_t op_count = m->op_count;
    const tide_diagnostics said = *m->diags;
    grow_values(g, step - g->step - 1, true, grown);
    g->loop->exchange(g->loop->user, grown);
    m->same_keys = INT64_MAX;
    bool is_so = g->loop->play(g->loop->user, step) && is_alike_later(g, at, step - g->step);
    numbers now = {0};
    if (is_so) look_at_values(g, &now);
    is_so = is_so && numbers_are(g, &now, step - g->step);
    if (now.at) tide_arena_drop(m->arena, now.at);
    g->loop->values(g->loop->user, grown);
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, grown[i]);
    g->loop->exchange(g->loop->user, values);
    tide_timeline_take_back(&m->timeline, at);
    tide_layer_memo_forget(&g->loop->run->model, at.event);
    m->op_count = op_count;
    m->diags->count = said.count;
    m->diags->error_count = said.error_count; /* a full window makes other shapes */
    m->diags->first_error = said.first_error;
    m->has_failed = false;
    return is_so;
}

/* The last of `good` + 1 ... `bad` - 1 that continues it, if all before it do. */
static int64_t last_good(const growing_steps *g, int64_t good, int64_t bad) {
    while (bad - good > 1 && !g->m->has_failed) {
        int64_t middle = good + (bad - good) / 2;
        if (is_so_at(g, middle))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

/* Of steps from `good` to `end`, both of which continue it: the first tested one in between that does not; else `end`.
 */
static int64_t first_bad(const growing_steps *g, int64_t good, int64_t end) {
    for (int i = 1; i < 4; i++) {
        int64_t between = good + (end - good) * i / 4;
        if (between > good && between < end && !is_so_at(g, between)) return between;
    }
    return end;
}

/* The last step before `count` up to which all continue it. */
static int64_t last_alike(const growing_steps *g, int64_t same_keys, int64_t count) {
    int64_t good = g->step;
    while (good + 1 < count && !g->m->has_failed) {
        int64_t end = same_keys < count - 1 - good ? good + same_keys : count - 1;
        if (end > good) {
            if (!is_so_at(g, end)) return last_good(g, good, end);
            int64_t bad = first_bad(g, good, end);
            if (bad < end) return last_good(g, good, bad);
            good = end;
        }
        if (good + 1 >= count || !is_so_at(g, good + 1)) return good;
        same_keys = g->m->same_keys;
        good++;
    }
    return good;
}

/* A key of the model without the settings that steps change. */
static uint64_t key_of_model(const growing_steps *g) {
    tide_model *model = &g->loop->run->model;
    tide_value *past = tide_model_setting(model, "past_key_values"), *length = tide_model_setting(model, "past_length");
    tide_value was = *past, was_length = *length;
    *past = *length = tide_none();
    uint64_t key = tide_model_key(model);
    *past = was;
    *length = was_length;
    return key;
}

/* Plays `step` and the next one, and records how they differ. */
static bool take_two(growing_steps *g, int64_t step) {
    tide_machine *m = g->m;
    numbers before = {0};
    tide_timeline_place first = tide_timeline_here(&m->timeline);
    if (!g->loop->play(g->loop->user, step)) return false;
    uint64_t key = key_of_model(g);
    look_at_values(g, &before);
    g->place = tide_timeline_here(&m->timeline);
    g->step = step + 1;
    m->same_keys = INT64_MAX;
    if (!g->loop->play(g->loop->user, step + 1)) return false;
    g->last = m->timeline.event_count;
    look_at_values(g, &g->values);
    g->by.count = 0;
    for (uint32_t i = 0; i < g->values.count; i++)
        add_number(&g->by, i < before.count ? g->values.at[i] - before.at[i] : 0, m->arena);
    g->bytes = TIDE_NEW(m->arena, uint64_t, m->timeline.allocation_count - g->place.allocation + 1);
    bool is_so = before.count == g->values.count && key == key_of_model(g) &&
                 tide_timeline_grows(&m->timeline, first, g->place.event, g->place, g->bytes, 0);
    if (before.at) tide_arena_drop(m->arena, before.at);
    return is_so;
}

/* ---- small requests of long loops ---- */

/* Note [Small requests]: the scores of eager attention are small requests that grow, and with these the state of the
 * small pool never recurs, so every step would have to be played. In a long loop they are instead taken to have the
 * size of the last step, which has the peak. Reserved memory is then exact up to the bytes by which they are too large,
 * and the rounding to segments: a range (run->margin). In the longest loops the same holds for small requests that live
 * to the next step, such as the rotary keys cached by DeepSeek's attention: their addresses differ in each step, and
 * the small pool is assumed to stop growing once it has settled. */

static int64_t events_of_steps(const growing_steps *g, int64_t end) {
    return (end - g->step) * (int64_t)(g->last - g->place.event);
}

/* Whether an allocation of a step, which ends before event `last`, is freed in it. */
static bool is_passing(const tide_timeline *t, uint32_t which, uint32_t last) {
    return *tide_timeline_died(t, which) < last;
}

/* Whether such an allocation is taken to have the size of the last step. */
static bool is_taken_as_last(const tide_timeline *t, uint32_t which, uint32_t last, int64_t events) {
    return tide_timeline_at(t, which)->bytes <= SMALL_REQUEST &&
           (events > LONGEST_PLAY || (events > LONG_PLAY && is_passing(t, which, last)));
}

/* The last step before `end` in which requests so treated are small, if they are small now. */
static int64_t last_small(const growing_steps *g, int64_t end, int64_t events) {
    const tide_timeline *t = &g->m->timeline;
    for (uint32_t i = 0; i < t->allocation_count - g->place.allocation; i++) {
        uint32_t which = g->place.allocation + i;
        if (!g->bytes[i] || !is_taken_as_last(t, which, g->last, events)) continue;
        int64_t last = g->step + (int64_t)((SMALL_REQUEST - tide_timeline_at(t, which)->bytes) / g->bytes[i]);
        if (last < end && last > g->step + FEWEST_STEPS) end = last;
    }
    return end;
}

/* Stops the growth of small requests: returns by how many bytes those alive at the same time are larger than in the
 * first step. */
static uint64_t keep_small_as_last(growing_steps *g, tide_timeline_place at, int64_t times, int64_t events) {
    const tide_timeline *t = &g->m->timeline;
    uint64_t live = 0, most = 0, stay = 0;
    for (uint32_t e = at.event; e < t->event_count; e++) {
        uint32_t number = t->events[e] & ~TIDE_FREE_BIT;
        if (number < at.allocation) continue;
        const tide_allocation *a = tide_timeline_at(t, number);
        if (!g->bytes[number - at.allocation] || !is_taken_as_last(t, number, t->event_count, events)) continue;
        uint64_t larger = g->bytes[number - at.allocation] * (uint64_t)times;
        if (!is_passing(t, number, t->event_count)) {
            stay += a->born == e ? larger : 0;
            continue;
        }
        live += a->born == e ? larger : 0;
        most = live > most ? live : most;
        live -= *tide_timeline_died(t, number) == e ? larger : 0;
    }
    for (uint32_t i = at.allocation; i < t->allocation_count; i++)
        if (is_taken_as_last(t, i, t->event_count, events)) g->bytes[i - at.allocation] = 0;
    return most + stay;
}

/* Plays step `end` for those from the second one on; `events`: of all that are alike. */
static bool keep_last_step(growing_steps *g, int64_t end, int64_t events) {
    tide_machine *m = g->m;
    tide_value values[TIDE_LOOP_VALUES];
    tide_timeline_place at = tide_timeline_here(&m->timeline);
    int64_t times = end - g->step;
    grow_values(g, times - 1, false, values);
    g->loop->exchange(g->loop->user, values); /* including numbers */
    if (!g->loop->play(g->loop->user, end)) return false;
    if (!is_alike_later(g, at, times)) {
        tide_fail(m, TIDE_ERR_LIMIT, "a token differs from its trial");
        return false;
    }
    tide_timeline_play_again(&m->timeline, at, (uint32_t)(times - 1), 0);
    uint32_t own = m->timeline.allocation_count - at.allocation;
    uint64_t larger = keep_small_as_last(g, at, times, events);
    if (larger && larger + 2 * SMALL_POOL_SEGMENT > g->loop->run->margin) {
        g->loop->run->margin = larger + 2 * SMALL_POOL_SEGMENT;
        g->loop->run->margin_reason = "the small requests of a long generation are assumed to be those of its last "
                                      "token";
    }
    tide_repetition *kept = &m->timeline.repetitions[m->timeline.repetition_count - 1];
    kept->settles = larger && events > LONGEST_PLAY;
    for (uint32_t i = 0; i < own; i++)
        if (g->bytes[i] || kept->settles) kept->growth = g->bytes;
    return true;
}

/* Whether groups of steps are more promising: those that grow alike are few, time and again. */
static bool is_periodic(uint32_t *short_runs, int64_t alike) {
    *short_runs = alike < PERIOD ? *short_runs + 1 : 0;
    return *short_runs == SHORT_RUNS;
}

/* Plays steps from 0 on and returns how many: `count`, or fewer if `may_stop` and they should be grouped; less than
 * `count` after an error. */
static int64_t play_growing(const tide_growing_loop *loop, int64_t count, bool may_stop) {
    growing_steps g = {.loop = loop, .m = &loop->run->machine};
    uint32_t short_runs = 0;
    int64_t step = 0;
    while (step < count && !g.m->has_failed) {
        if (loop->run->plays_all || count - step < FEWEST_STEPS || !step) {
            if (!loop->play(loop->user, step++)) return 0;
            continue;
        }
        int64_t first = step, end = step;
        bool is_so = take_two(&g, step);
        step += 2;
        if (is_so) {
            end = last_alike(&g, g.m->same_keys, count);
            int64_t events = events_of_steps(&g, end);
            end = last_small(&g, end, events);
            if (end - step >= 2) {
                if (!keep_last_step(&g, end, events)) return 0;
                step = end + 1;
            }
        }
        if (may_stop && is_periodic(&short_runs, end - first) && count - step >= FEWEST_STEPS * PERIOD) break;
    }
    return step;
}

/* ---- groups of steps ---- */

/* Note [Groups of steps]: what rounds a length up grows every few steps only, such as masks of memory-efficient
 * attention (aten/src/ATen/native/transformers/attention.cpp, pad_bias: rows of 8 numbers). Groups of as many steps
 * grow alike. */
typedef struct grouped_steps {
    const tide_growing_loop *of;
    int64_t first; /* step of the first group */
} grouped_steps;

static bool play_group(void *user, int64_t group) {
    const grouped_steps *s = user;
    bool ok = true;
    int64_t least_keys = INT64_MAX, *same_keys = &s->of->run->machine.same_keys;
    for (int64_t i = 0; ok && i < PERIOD; i++) {
        *same_keys = INT64_MAX;
        ok = s->of->play(s->of->user, s->first + group * PERIOD + i);
        least_keys = *same_keys < least_keys ? *same_keys : least_keys;
    }
    *same_keys = least_keys == INT64_MAX ? least_keys : least_keys / PERIOD;
    return ok;
}

static uint32_t values_of_group(void *user, tide_value *values) {
    const grouped_steps *s = user;
    return s->of->values(s->of->user, values);
}

static void exchange_of_group(void *user, const tide_value *values) {
    const grouped_steps *s = user;
    s->of->exchange(s->of->user, values);
}

bool tide_play_growing(const tide_growing_loop *loop, int64_t count) {
    tide_machine *m = &loop->run->machine;
    int64_t step = play_growing(loop, count, true), groups = (count - step) / PERIOD;
    if (step && step < count && !m->has_failed) {
        grouped_steps of = {loop, step};
        const tide_growing_loop grouped = {loop->run, &of, play_group, values_of_group, exchange_of_group};
        if (play_growing(&grouped, groups, false) != groups) return false;
        for (step += groups * PERIOD; step < count; step++)
            if (!loop->play(loop->user, step)) return false;
    }
    return !m->has_failed;
}
