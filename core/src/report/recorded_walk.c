/* SPDX-License-Identifier: Apache-2.0 */
/* Walking along the events of a recording. */
#include "report/recorded_walk.h"

enum { WALK_STACK_FRAMES = 64 };

/* ---- stacks, each told once ---- */

tide_stack_table tide_stack_table_make(const tide_recording *r, tide_arena *arena) {
    return (tide_stack_table){.recording = r,
                              .number = TIDE_NEW(arena, uint32_t, r->stack_count + 1),
                              .stacks = TIDE_NEW(arena, uint32_t, r->stack_count + 1)};
}

uint32_t tide_stack_number(tide_stack_table *t, uint32_t stack) {
    if (!t->number[stack]) {
        t->stacks[t->count++] = stack;
        t->number[stack] = t->count;
    }
    return t->number[stack] - 1;
}

void tide_stack_table_write(tide_writer *w, const tide_stack_table *t) {
    const tide_recording *r = t->recording;
    uint32_t *name = TIDE_NEW(w->arena, uint32_t, r->names.count + 1),
             *names = TIDE_NEW(w->arena, uint32_t, r->names.count + 1), name_count = 0;
    tide_write_open_at(w, "stacks", '[');
    for (uint32_t i = 0; i < t->count; i++) {
        tide_write_open(w, '[');
        uint32_t stack = t->stacks[i];
        for (int frames = 0; stack && frames < WALK_STACK_FRAMES; frames++, stack = r->stacks[stack].parent) {
            uint32_t frame = r->stacks[stack].frame;
            if (!name[frame]) {
                names[name_count++] = frame;
                name[frame] = name_count;
            }
            tide_write_int(w, name[frame] - 1);
        }
        tide_write_close(w, ']');
    }
    tide_write_close(w, ']');
    tide_write_open_at(w, "names", '[');
    for (uint32_t i = 0; i < name_count; i++) tide_write_text(w, r->names.names[names[i]]);
    tide_write_close(w, ']');
}

/* ---- a walk along the events, with the allocator beside it ---- */

bool tide_recorded_walk_open(tide_recorded_walk *walk, const tide_recorded_play *e, tide_arena *arena) {
    uint32_t slots = e->events.source.slot_count;
    *walk = (tide_recorded_walk){.e = e, .at = UINT32_MAX};
    walk->born = TIDE_NEW(arena, uint32_t, slots + 1);
    walk->site = TIDE_NEW(arena, uint32_t, slots + 1);
    for (uint32_t i = 0; i < slots; i++) walk->site[i] = TIDE_NO_REQUEST;
    for (uint32_t i = 0; i < e->tape->older_block_count; i++)
        walk->site[e->tape->older_blocks[i].slot] = e->tape->older_blocks[i].site;
    if (!tide_player_open(&walk->player, &e->events.source, &e->config, arena)) return false;
    tide_cursor_open(&walk->cursor, &e->events.source, arena);
    return true;
}

/* Plays the next event; false at the end, or if its request failed. */
bool tide_recorded_walk_step(tide_recorded_walk *walk, bool *is_good) {
    if (walk->at + 1 >= walk->e->events.source.event_count) return false;
    walk->event = tide_cursor_next(&walk->cursor);
    walk->at++;
    *is_good = tide_player_run(&walk->player, walk->at + 1);
    if (!*is_good || walk->player.figures.is_oom) return false;
    return true;
}

bool tide_walk_begins(const tide_recorded_walk *walk) {
    return walk->event.kind == TIDE_EVENT_ALLOC && walk->event.slot != TIDE_NO_SLOT;
}

bool tide_walk_ends(const tide_recorded_walk *walk) {
    const tide_event *e = &walk->event;
    return (e->kind == TIDE_EVENT_FREE || e->kind == TIDE_EVENT_FREE_PENDING) && e->slot != TIDE_NO_SLOT &&
           walk->site[e->slot] != TIDE_NO_REQUEST;
}

void tide_walk_settle(tide_recorded_walk *walk) {
    if (tide_walk_begins(walk)) {
        walk->born[walk->event.slot] = walk->at;
        walk->site[walk->event.slot] = walk->event.request;
    } else if (tide_walk_ends(walk)) {
        walk->site[walk->event.slot] = TIDE_NO_REQUEST;
    }
}

uint32_t tide_walk_stack(const tide_recorded_walk *walk, uint32_t slot) {
    return walk->e->tape->sites[walk->site[slot]].stack;
}

void tide_recorded_walk_close(tide_recorded_walk *walk, tide_arena *arena) {
    tide_player_close(&walk->player);
    tide_arena_drop(arena, walk->player.figures.block_bytes);
    tide_cursor_close(&walk->cursor, arena);
}
