/* SPDX-License-Identifier: Apache-2.0 */
/* A recording's memory by allocation and by stack. */
#include "report/recorded_stacks.h"

#include <stdlib.h>

#include "report/recorded_walk.h"
#include "report/timeline_columns.h"

enum { LIVE_STACKS = 1000 };

/* ---- bands ---- */

typedef struct recorded_band {
    uint32_t from, to, stack; /* to: the event that frees it; TIDE_NEVER: none */
    uint64_t bytes, weight;   /* weight: bytes times events within the window */
} recorded_band;

typedef struct band_list {
    recorded_band *bands; /* a heap, smallest weight first */
    uint32_t count, most, from, to;
} band_list;

static void sink(band_list *l, uint32_t i) {
    for (;;) {
        uint32_t least = i, left = 2 * i + 1;
        for (uint32_t k = left; k < left + 2 && k < l->count; k++)
            if (l->bands[k].weight < l->bands[least].weight) least = k;
        if (least == i) return;
        recorded_band band = l->bands[i];
        l->bands[i] = l->bands[least];
        l->bands[least] = band;
        i = least;
    }
}

static void offer(band_list *l, const tide_recorded_walk *walk, uint32_t slot, uint32_t to) {
    uint32_t born = walk->born[slot], from = born > l->from ? born : l->from, end = to < l->to ? to : l->to;
    if (end <= from) return;
    uint64_t bytes = walk->player.figures.block_bytes[slot];
    recorded_band band = {born, to, tide_walk_stack(walk, slot), bytes, bytes * (end - from)};
    if (l->count < l->most) {
        l->bands[l->count++] = band;
        if (l->count == l->most)
            for (uint32_t i = l->count / 2 + 1; i-- > 0;) sink(l, i);
    } else if (l->most && band.weight > l->bands[0].weight) {
        l->bands[0] = band;
        sink(l, 0);
    }
}

static int by_birth(const void *a, const void *b) {
    const recorded_band *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : (x->to > y->to) - (x->to < y->to);
}

/* The event with the most memory in each column. */
typedef struct band_column {
    uint32_t from, at;
    uint64_t allocated;
} band_column;

static uint32_t make_band_columns(band_column **columns, uint32_t from, uint32_t to, tide_arena *arena) {
    uint32_t events = to - from, count = events < TIDE_COLUMNS ? events : TIDE_COLUMNS;
    *columns = TIDE_NEW(arena, band_column, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = from + (uint32_t)((uint64_t)events * i / count);
        (*columns)[i] = (band_column){.from = first, .at = first};
    }
    (*columns)[count].from = to;
    return count;
}

static bool find_bands(band_list *l, band_column *columns, uint32_t count, const tide_recorded_play *e,
                       tide_arena *arena) {
    tide_recorded_walk walk;
    bool is_good = true;
    uint32_t column = 0;
    if (!tide_recorded_walk_open(&walk, e, arena)) return false;
    while (walk.at + 1 != l->to && tide_recorded_walk_step(&walk, &is_good)) {
        if (tide_walk_ends(&walk)) offer(l, &walk, walk.event.slot, walk.at);
        tide_walk_settle(&walk);
        if (walk.at < l->from) continue;
        while (column + 1 < count && walk.at >= columns[column + 1].from) column++;
        if (walk.player.figures.allocated > columns[column].allocated) {
            columns[column].allocated = walk.player.figures.allocated;
            columns[column].at = walk.at;
        }
    }
    for (uint32_t slot = 0; is_good && slot < e->events.source.slot_count; slot++)
        if (walk.site[slot] != TIDE_NO_REQUEST) offer(l, &walk, slot, TIDE_NEVER);
    tide_recorded_walk_close(&walk, arena);
    return is_good;
}

static void write_bands(tide_writer *w, const band_list *l, tide_stack_table *stacks) {
    tide_write_open_at(w, "bands", '[');
    for (uint32_t i = 0; i < l->count; i++) {
        const recorded_band *band = &l->bands[i];
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", band->from);
        if (band->to != TIDE_NEVER) tide_write_int_at(w, "to", band->to);
        tide_write_bytes_at(w, "bytes", band->bytes);
        tide_write_int_at(w, "stack", tide_stack_number(stacks, band->stack));
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

bool tide_write_recorded_bands(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                               uint32_t to, uint32_t most, tide_diagnostics *diags) {
    tide_recorded_play e;
    band_column *columns;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    uint32_t events = e.events.source.event_count;
    band_list l = {.most = most < TIDE_BANDS_MOST ? most : TIDE_BANDS_MOST, .to = to < events ? to : events};
    l.from = from < l.to ? from : l.to;
    l.bands = TIDE_NEW(w->arena, recorded_band, l.most + 1);
    uint32_t count = make_band_columns(&columns, l.from, l.to, w->arena);
    if (!find_bands(&l, columns, count, &e, w->arena)) return false;
    qsort(l.bands, l.count, sizeof *l.bands, by_birth);
    tide_stack_table stacks = tide_stack_table_make(r, w->arena);
    tide_write_int_at(w, "events", events);
    tide_write_int_at(w, "from", l.from);
    tide_write_int_at(w, "to", l.to);
    tide_write_open_at(w, "columns", '[');
    for (uint32_t i = 0; i < count; i++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", columns[i].from);
        tide_write_int_at(w, "at", columns[i].at);
        tide_write_bytes_at(w, "allocated", columns[i].allocated);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    write_bands(w, &l, &stacks);
    tide_stack_table_write(w, &stacks);
    return true;
}

/* ---- live blocks by stack ---- */

typedef struct live_stack {
    uint64_t bytes, count;
    uint32_t stack;
} live_stack;

static int by_held(const void *a, const void *b) {
    const live_stack *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->stack > y->stack) - (x->stack < y->stack);
}

static bool find_live(live_stack *by_stack, uint32_t *at, uint64_t *allocated, const tide_recorded_play *e,
                      tide_arena *arena) {
    tide_player p;
    if (*at == TIDE_NEVER) {
        tide_replay whole;
        if (!tide_replay_peaks(&whole, &e->events.source, &e->config, arena)) return false;
        *at = whole.peak_event;
    }
    if (!tide_player_open(&p, &e->events.source, &e->config, arena) || !tide_player_run(&p, *at + 1)) return false;
    tide_player_catch_up(&p);
    *allocated = p.figures.allocated;
    for (uint32_t slot = 0; slot < e->events.source.slot_count; slot++) {
        if (!p.blocks[slot]) continue;
        live_stack *of = &by_stack[e->tape->sites[e->events.source.reader->request_of(&p.cursor, slot)].stack];
        of->bytes += p.figures.block_bytes[slot];
        of->count++;
    }
    tide_player_close(&p);
    tide_arena_drop(arena, p.figures.block_bytes);
    return true;
}

bool tide_write_recorded_live(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t at,
                              tide_diagnostics *diags) {
    tide_recorded_play e;
    uint64_t allocated = 0, rest = 0;
    uint32_t count = 0;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    uint32_t events = e.events.source.event_count;
    if (at != TIDE_NEVER && at >= events) at = events ? events - 1 : 0;
    live_stack *live = TIDE_NEW(w->arena, live_stack, r->stack_count + 1);
    if (!find_live(live, &at, &allocated, &e, w->arena)) return false;
    for (uint32_t i = 0; i <= r->stack_count; i++)
        if (live[i].count) live[count++] = (live_stack){live[i].bytes, live[i].count, i};
    qsort(live, count, sizeof *live, by_held);
    tide_stack_table stacks = tide_stack_table_make(r, w->arena);
    tide_write_int_at(w, "event", at);
    tide_write_bytes_at(w, "allocated", allocated);
    tide_write_open_at(w, "live", '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i >= LIVE_STACKS) {
            rest += live[i].bytes;
            continue;
        }
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "bytes", live[i].bytes);
        tide_write_int_at(w, "count", (int64_t)live[i].count);
        tide_write_int_at(w, "stack", tide_stack_number(&stacks, live[i].stack));
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_bytes_at(w, "rest", rest);
    tide_stack_table_write(w, &stacks);
    return true;
}
