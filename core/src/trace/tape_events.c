/* SPDX-License-Identifier: Apache-2.0 */
/* A tape as a source of events. */
#include "trace/tape_events.h"

#include "trace/older_blocks.h"

/* What a slot holds. */
typedef struct tape_slot {
    uint32_t site, born;
} tape_slot;

typedef struct tape_walk {
    tide_tape_slots slots;
    tape_slot *live;
    tape_slot *pending; /* by number of a pending free; born: the event of the free */
    uint32_t next_pending;
} tape_walk;

static void *open_tape(const tide_event_source *source, tide_arena *arena) {
    const tide_tape *t = source->of;
    tape_walk *walk = tide_arena_grow(arena, NULL, 0, sizeof *walk);
    size_t slots = (size_t)t->slot_count + 1, pending = (size_t)t->pending_count + 1;
    walk->live = tide_arena_grow(arena, NULL, 0, slots * sizeof *walk->live);
    walk->pending = tide_arena_grow(arena, NULL, 0, pending * sizeof *walk->pending);
    tide_tape_slots_init(&walk->slots, t, tide_arena_grow(arena, NULL, 0, slots * sizeof *walk->slots.spare));
    for (uint32_t i = 0; i < t->older_block_count; i++)
        walk->live[t->older_blocks[i].slot] = (tape_slot){t->older_blocks[i].site, TIDE_NEVER};
    return walk;
}

static void close_tape(void *state, tide_arena *arena) {
    tape_walk *walk = state;
    tide_arena_drop(arena, walk->slots.spare);
    tide_arena_drop(arena, walk->pending);
    tide_arena_drop(arena, walk->live);
    tide_arena_drop(arena, walk);
}

/* Frees a slot: what took its block. */
static void end_slot(tape_walk *walk, tide_event *event, uint32_t slot) {
    event->slot = slot;
    event->request = walk->live[slot].site;
    event->other = walk->live[slot].born;
    tide_tape_give_slot(&walk->slots, slot);
}

static inline tide_event read_tape_event(tide_event_cursor *cursor, const tide_tape *t, tape_walk *walk) {
    uint32_t at = cursor->event++, index = t->events[at] & TIDE_TAPE_MASK;
    tide_event event = {.kind = (uint8_t)(t->events[at] >> TIDE_TAPE_SHIFT),
                        .slot = TIDE_NO_SLOT,
                        .request = TIDE_NO_REQUEST,
                        .other = TIDE_NEVER};
    switch ((tide_event_kind)event.kind) {
    case TIDE_EVENT_ALLOC:
        event.slot = tide_tape_next_slot(&walk->slots);
        event.request = index;
        event.bytes = t->sites[index].bytes;
        event.stream = (uint16_t)t->sites[index].stream;
        walk->live[event.slot] = (tape_slot){index, at};
        break;
    case TIDE_EVENT_FREE:
        end_slot(walk, &event, index);
        break;
    case TIDE_EVENT_FREE_PENDING:
        end_slot(walk, &event, index);
        event.pending = t->pending[walk->next_pending++].number;
        walk->pending[event.pending] = (tape_slot){event.request, at};
        break;
    case TIDE_EVENT_FREE_COMPLETED:
        event.pending = index;
        event.request = walk->pending[index].site;
        event.other = walk->pending[index].born;
        break;
    case TIDE_EVENT_OOM:
        event.request = index;
        event.bytes = t->sites[index].bytes;
        event.stream = (uint16_t)t->sites[index].stream;
        break;
    case TIDE_EVENT_RELEASE: /* Note [Who released segments] */
        event.is_retry = t->releases[index].need > t->reserved_peak;
        break;
    }
    return event;
}

static void read_tape(tide_event_cursor *cursor, tide_event *events, uint32_t count) {
    const tide_tape *t = cursor->source->of;
    tape_walk *walk = cursor->state;
    for (uint32_t i = 0; i < count; i++) events[i] = read_tape_event(cursor, t, walk);
}

static uint32_t site_in(const tide_event_cursor *cursor, uint32_t slot) {
    const tape_walk *walk = cursor->state;
    return walk->live[slot].site;
}

static uint32_t born_in(const tide_event_cursor *cursor, uint32_t slot) {
    const tape_walk *walk = cursor->state;
    return walk->live[slot].born;
}

static const tide_event_reader tape_reader = {.open = open_tape,
                                              .close = close_tape,
                                              .read = read_tape,
                                              .request_of = site_in,
                                              .born = born_in,
                                              .take_older = tide_take_older_blocks};

tide_event_source tide_tape_events(const tide_tape *t) {
    return (tide_event_source){.reader = &tape_reader,
                               .of = t,
                               .event_count = t->event_count,
                               .slot_count = t->slot_count,
                               .pending_count = t->pending_count};
}
