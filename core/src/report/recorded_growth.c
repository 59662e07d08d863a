/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks: stacks that hold more from step to step.
 *
 * Note [Steps of a recording] A recording does not say where steps begin. They are found by what happens once in each:
 * among the call sites whose requests are evenly spaced over most of the run, the most frequent number of requests is
 * the number of steps, and the first of these sites marks their beginnings. The first distance does not count, because
 * the first step creates what later ones reuse. */
#include "report/recorded_stacks.h"
#include "report/recorded_walk.h"

enum { LEAST_STEPS = 4, MOST_STEPS = 4096, SAMPLES = 32, GROWERS = 20 };

/* ---- steps ---- */

typedef struct site_rhythm {
    uint32_t count, first, last, least, most; /* distances, except the first */
} site_rhythm;

static site_rhythm *find_rhythms(const tide_recorded_play *e, tide_arena *arena) {
    site_rhythm *sites = TIDE_NEW(arena, site_rhythm, e->tape->site_count + 1);
    tide_event_cursor cursor;
    tide_cursor_open(&cursor, &e->events.source, arena);
    for (uint32_t i = 0; i < e->events.source.event_count; i++) {
        tide_event event = tide_cursor_next(&cursor);
        if (event.kind != TIDE_EVENT_ALLOC || event.request == TIDE_NO_REQUEST) continue;
        site_rhythm *s = &sites[event.request];
        uint32_t distance = i - s->last;
        if (!s->count) s->first = i;
        if (s->count > 1 && (!s->least || distance < s->least)) s->least = distance;
        if (s->count > 1 && distance > s->most) s->most = distance;
        s->last = i;
        s->count++;
    }
    tide_cursor_close(&cursor, arena);
    return sites;
}

static bool is_even(const site_rhythm *s, uint32_t events) {
    return s->count >= LEAST_STEPS && s->count <= MOST_STEPS && s->most <= 2 * (uint64_t)s->least &&
           2 * ((uint64_t)s->last - s->first + s->most) >= events;
}

/* The site that marks the steps plus one; 0: there are none. */
static uint32_t find_mark(const tide_recorded_play *e, uint32_t *steps, tide_arena *arena) {
    const site_rhythm *sites = find_rhythms(e, arena);
    uint32_t *shared = TIDE_NEW(arena, uint32_t, MOST_STEPS + 1), mark = 0;
    *steps = 0;
    for (uint32_t i = 0; i < e->tape->site_count; i++)
        if (is_even(&sites[i], e->events.source.event_count)) shared[sites[i].count]++;
    for (uint32_t n = LEAST_STEPS; n <= MOST_STEPS; n++)
        if (shared[n] > shared[*steps]) *steps = n;
    for (uint32_t i = 0; *steps && i < e->tape->site_count; i++)
        if (sites[i].count == *steps && is_even(&sites[i], e->events.source.event_count) &&
            (!mark || sites[i].first < sites[mark - 1].first))
            mark = i + 1;
    return mark;
}

/* ---- what grows ---- */

typedef struct stack_growth {
    uint64_t held, first, last; /* currently; at the first sample that counts, and at the last */
    uint32_t rises, series;     /* series: its index among those reported plus one */
    bool falls;
} stack_growth;

typedef struct growth {
    const tide_recorded_play *e;
    stack_growth *stacks;
    uint64_t *series; /* of GROWERS stacks: SAMPLES each; NULL in the first pass */
    uint32_t mark, every, samples[SAMPLES], sample_count;
} growth;

static void take_sample(growth *g, uint32_t at) {
    uint32_t sample = g->sample_count++;
    g->samples[sample] = at;
    for (uint32_t i = 0; i <= g->e->recording->stack_count; i++) {
        stack_growth *s = &g->stacks[i];
        if (g->series && s->series) g->series[(s->series - 1) * SAMPLES + sample] = s->held;
        if (g->series || sample == 0) continue; /* the first step creates what the others reuse */
        if (sample == 1) {
            s->first = s->held;
        } else {
            s->rises += s->held > s->last;
            s->falls |= s->held < s->last;
        }
        s->last = s->held;
    }
}

/* Takes samples at the beginnings of steps. */
static bool walk_steps(growth *g, tide_arena *arena) {
    tide_recorded_walk walk;
    bool is_good = true;
    uint32_t seen = 0;
    g->sample_count = 0;
    for (uint32_t i = 0; i <= g->e->recording->stack_count; i++) g->stacks[i].held = 0;
    if (!tide_recorded_walk_open(&walk, g->e, arena)) return false;
    for (uint32_t slot = 0; slot < g->e->events.source.slot_count; slot++)
        if (walk.site[slot] != TIDE_NO_REQUEST)
            g->stacks[tide_walk_stack(&walk, slot)].held += walk.player.figures.block_bytes[slot];
    while (tide_recorded_walk_step(&walk, &is_good)) {
        uint32_t slot = walk.event.slot;
        if (tide_walk_begins(&walk) && walk.event.request == g->mark && seen++ % g->every == 0 &&
            g->sample_count < SAMPLES)
            take_sample(g, walk.at);
        if (tide_walk_ends(&walk))
            g->stacks[tide_walk_stack(&walk, slot)].held -= walk.player.figures.block_bytes[slot];
        tide_walk_settle(&walk);
        if (tide_walk_begins(&walk))
            g->stacks[tide_walk_stack(&walk, slot)].held += walk.player.figures.block_bytes[slot];
    }
    tide_recorded_walk_close(&walk, arena);
    return is_good;
}

/* It never decreases, and increases in two of three steps. */
static bool grows(const growth *g, const stack_growth *s) {
    return g->sample_count >= LEAST_STEPS && !s->falls && 3 * s->rises >= 2 * (g->sample_count - 2);
}

static uint32_t choose_growers(growth *g, uint32_t *chosen) {
    uint32_t count = 0;
    for (uint32_t i = 0; i <= g->e->recording->stack_count; i++) {
        if (!grows(g, &g->stacks[i])) continue;
        uint64_t grown = g->stacks[i].last - g->stacks[i].first;
        uint32_t at = count;
        while (at > 0 && grown > g->stacks[chosen[at - 1]].last - g->stacks[chosen[at - 1]].first) at--;
        if (at == GROWERS) continue;
        for (uint32_t k = count < GROWERS ? count : GROWERS - 1; k > at; k--) chosen[k] = chosen[k - 1];
        chosen[at] = i;
        if (count < GROWERS) count++;
    }
    for (uint32_t i = 0; i < count; i++) g->stacks[chosen[i]].series = i + 1;
    return count;
}

bool tide_write_recorded_growth(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                tide_diagnostics *diags) {
    tide_recorded_play e;
    uint32_t steps, chosen[GROWERS], count = 0;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    uint32_t mark = find_mark(&e, &steps, w->arena);
    growth g = {.e = &e, .mark = mark - 1, .every = steps / SAMPLES + (steps % SAMPLES != 0)};
    if (mark) {
        g.stacks = TIDE_NEW(w->arena, stack_growth, r->stack_count + 1);
        if (!walk_steps(&g, w->arena)) return false;
        count = choose_growers(&g, chosen);
        g.series = TIDE_NEW(w->arena, uint64_t, GROWERS * SAMPLES);
        if (count && !walk_steps(&g, w->arena)) return false;
    }
    tide_stack_table stacks = tide_stack_table_make(r, w->arena);
    tide_write_int_at(w, "steps", steps);
    tide_write_open_at(w, "samples", '[');
    for (uint32_t i = 0; i < g.sample_count; i++) tide_write_int(w, g.samples[i]);
    tide_write_close(w, ']');
    tide_write_open_at(w, "grows", '[');
    for (uint32_t i = 0; i < count; i++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "stack", tide_stack_number(&stacks, chosen[i]));
        tide_write_open_at(w, "bytes", '[');
        for (uint32_t k = 0; k < g.sample_count; k++) tide_write_int(w, (int64_t)g.series[i * SAMPLES + k]);
        tide_write_close(w, ']');
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_stack_table_write(w, &stacks);
    return true;
}
