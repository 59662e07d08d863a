/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of all formats: devices, stacks, facts. */
#include "trace/recording.h"

#include <string.h>

#include "base/json_read.h"

enum { STACK_LIMIT = 1 << 22 };

void tide_recording_init(tide_recording *r, tide_arena *arena) {
    *r = (tide_recording){.arena = arena};
    tide_names_init(&r->names, arena);
}

size_t tide_recording_break(tide_recording *r, size_t at, const char *what, const char *remedy) {
    if (r->broken) return at;
    r->broken = what;
    r->remedy = remedy;
    r->broken_at = r->offset + at;
    return at;
}

tide_tape *tide_recording_tape(tide_recording *r, uint64_t device) {
    if (device >= TIDE_RECORDING_DEVICES) return NULL;
    while (r->device_count <= device) tide_tape_init(&r->tapes[r->device_count++], r->arena);
    return &r->tapes[device];
}

/* ---- stacks ---- */

static uint32_t *stack_place(tide_recording *r, uint32_t parent, uint32_t frame) {
    uint32_t mask = r->stack_table_count - 1, at = (parent * 0x9e3779b9u ^ frame * 0x85ebca6bu) >> 7 & mask;
    for (; r->stack_table[at]; at = (at + 1) & mask) {
        const tide_stack *s = &r->stacks[r->stack_table[at]];
        if (s->parent == parent && s->frame == frame) break;
    }
    return &r->stack_table[at];
}

uint32_t tide_recording_stack(tide_recording *r, uint32_t parent, uint32_t frame) {
    if (!r->stack_count) {
        TIDE_ROOM(r->arena, r->stacks, r->stack_count, r->stack_capacity);
        r->stack_count = 1;
    }
    if (r->stack_count * 2 >= r->stack_table_count) {
        size_t old = r->stack_table_count;
        r->stack_table_count = old ? (uint32_t)old * 2 : 1024;
        r->stack_table = tide_arena_grow(r->arena, r->stack_table, old * 4, (size_t)r->stack_table_count * 4);
        memset(r->stack_table, 0, old * 4);
        for (uint32_t i = 1; i < r->stack_count; i++) *stack_place(r, r->stacks[i].parent, r->stacks[i].frame) = i;
    }
    uint32_t *place = stack_place(r, parent, frame);
    if (*place || r->stack_count >= STACK_LIMIT) return *place ? *place : parent;
    *place = r->stack_count;
    TIDE_ROOM(r->arena, r->stacks, r->stack_count, r->stack_capacity);
    r->stacks[r->stack_count] = (tide_stack){parent, frame};
    return r->stack_count++;
}

/* ---- facts ---- */

static void fact_bytes(uint64_t *out, const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    if (value && value->is_integer && value->integer > 0) *out = (uint64_t)value->integer;
}

static const char *fact_text(const char *old, const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return value && value->kind == TIDE_JSON_STRING ? value->text.at : old;
}

void tide_recording_facts(tide_recording *r, tide_text json) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, r->arena);
    const tide_json *facts = tide_json_parse(r->arena, json, "", &diags), *of_case = tide_json_at(facts, "case");
    if (!facts || facts->kind != TIDE_JSON_OBJECT) {
        r->unreadable++;
        return;
    }
    fact_bytes(&r->device_bytes, facts, "device_bytes");
    fact_bytes(&r->outside_bytes, facts, "outside_bytes");
    uint64_t ppm = 0;
    fact_bytes(&ppm, facts, "memory_fraction_ppm");
    if (ppm && ppm <= 1000000) r->memory_fraction_ppm = (int64_t)ppm;
    const tide_json *fraction = tide_json_at(of_case, "memory_fraction");
    if (fraction && fraction->number > 0 && fraction->number <= 1)
        r->memory_fraction_ppm = (int64_t)(fraction->number * 1e6 + 0.5);
    r->allocator = fact_text(fact_text(r->allocator, facts, "allocator"), of_case, "allocator");
    r->source = fact_text(r->source, facts, "source");
    if (tide_json_at(facts, "reserved_peak")) {
        const tide_json *retries = tide_json_at(facts, "retries");
        r->has_stats = true;
        r->never_retried = retries && retries->is_integer && retries->integer == 0;
        fact_bytes(&r->stats.allocated, facts, "allocated");
        fact_bytes(&r->stats.reserved, facts, "reserved");
        fact_bytes(&r->stats.allocated_peak, facts, "allocated_peak");
        fact_bytes(&r->stats.reserved_peak, facts, "reserved_peak");
        fact_bytes(&r->stats.retries, facts, "retries");
        fact_bytes(&r->stats.ooms, facts, "ooms");
    }
}
