/* SPDX-License-Identifier: Apache-2.0 */
/* The largest tensors, equal ones together. */
#include "report/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "report/allocations.h"
#include "report/freeing.h"
#include "report/members.h"

typedef struct tensor_group {
    uint64_t bytes, each;
    uint32_t count, example;
    tide_freeings freed;
} tensor_group;

static bool same_group(const tide_job_report *r, uint32_t a, uint32_t b) {
    const tide_run *run = r->run;
    const tide_allocation *x = tide_timeline_at(&run->machine.timeline, a),
                          *y = tide_timeline_at(&run->machine.timeline, b);
    return x->bytes == y->bytes && r->replay.block_bytes[a] == r->replay.block_bytes[b] && x->factor == y->factor &&
           x->statement == y->statement && strcmp(x->op, y->op) == 0 &&
           run->model.instances[x->module].of == run->model.instances[y->module].of &&
           tide_part_of(run, x->module) == tide_part_of(run, y->module);
}

static int by_group_bytes(const void *a, const void *b) {
    const tensor_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->example < y->example ? -1 : x->example > y->example;
}

static bool is_or_any(const char *wanted, const char *there) {
    return !wanted || strcmp(wanted, there) == 0;
}

/* Whether an allocation belongs to the selected cell of the breakdown. */
static bool is_in(const tide_run *run, const tide_allocation *a, const tide_filter *filter) {
    const tide_model *model = &run->model;
    const tide_instance *of = &model->instances[a->module < model->instance_count ? a->module : 0];
    return is_or_any(filter->factor, tide_factor_names[a->factor]) &&
           is_or_any(filter->part, model->parts[a->module ? of->part : 0]) &&
           is_or_any(filter->layer, model->layers[a->module ? of->layer : 0]);
}

/* A hash table of groups, which has at least twice as many slots as there are groups. */
typedef struct tensor_groups {
    tensor_group *groups;
    uint32_t *slots; /* a group's number plus one; 0: none */
    uint32_t count, capacity, slot_count;
} tensor_groups;

/* The slot of an allocation's group, or the one that it would take. */
static uint32_t *group_slot(const tensor_groups *of, const tide_job_report *r, uint32_t which) {
    const tide_allocation *a = tide_timeline_at(&r->run->machine.timeline, which);
    uint32_t hash = ((uint32_t)a->bytes ^ (uint32_t)(a->bytes >> 32)) * 2654435761u ^ a->statement * 40503u ^ a->factor;
    uint32_t at = hash & (of->slot_count - 1);
    while (of->slots[at] && !same_group(r, of->groups[of->slots[at] - 1].example, which))
        at = (at + 1) & (of->slot_count - 1);
    return &of->slots[at];
}

static void grow_group_slots(tensor_groups *of, const tide_job_report *r) {
    tide_arena *arena = r->run->machine.arena;
    if (of->slots) tide_arena_drop(arena, of->slots);
    of->slot_count = of->slot_count ? of->slot_count * 2 : 256;
    of->slots = tide_arena_grow(arena, NULL, 0, of->slot_count * sizeof *of->slots);
    for (uint32_t i = 0; i < of->count; i++) *group_slot(of, r, of->groups[i].example) = i + 1;
}

static tensor_group *find_groups(const tide_job_report *r, const tide_filter *filter, uint32_t *count) {
    const tide_run *run = r->run;
    const tide_timeline *t = &run->machine.timeline;
    tensor_groups of = {0};
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        if (!tide_is_live(t, i, filter->event) || !is_in(run, tide_timeline_at(t, i), filter)) continue;
        if (of.count * 2 >= of.slot_count) grow_group_slots(&of, r);
        uint32_t *slot = group_slot(&of, r, i);
        if (!*slot) {
            TIDE_ROOM(t->arena, of.groups, of.count, of.capacity);
            of.groups[of.count] = (tensor_group){.each = r->replay.block_bytes[i], .example = i};
            *slot = ++of.count;
        }
        tensor_group *group = &of.groups[*slot - 1];
        group->bytes += r->replay.block_bytes[i];
        group->count++;
        tide_freeings_add(&group->freed, run, i);
    }
    if (of.count) qsort(of.groups, of.count, sizeof *of.groups, by_group_bytes);
    *count = of.count;
    return of.groups;
}

static void write_group(tide_job_report *r, tensor_group *g) {
    tide_run *run = r->run;
    tide_writer *w = r->w;
    const tide_allocation *a = tide_timeline_at(&run->machine.timeline, g->example);
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "bytes", g->bytes);
    tide_write_int_at(w, "count", g->count);
    tide_write_bytes_at(w, "each", g->each);
    tide_write_bytes_at(w, "requested", a->bytes);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "part", run->model.parts[tide_part_of(run, a->module)]);
    const char *path = tide_module_path(run, a);
    tide_write_string_at(w, "module", g->count > 1 ? tide_path_pattern(w->arena, path) : path);
    tide_write_string_at(w, "op", a->op);
    tide_write_line(w, run, a->statement);
    tide_write_shape(w, run, a);
    tide_write_freed(w, run, &g->freed);
    tide_write_close(w, '}');
}

void tide_write_tensors(tide_job_report *r, uint32_t limit) {
    uint32_t count;
    tensor_group *groups = find_groups(r, &(tide_filter){.event = r->replay.peak_event}, &count);
    uint64_t rest = 0;
    tide_write_open_at(r->w, "tensors", '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i < limit)
            write_group(r, &groups[i]);
        else
            rest += groups[i].bytes;
    }
    tide_write_rest(r->w, rest);
}

static bool is_of(const tide_run *run, const tide_allocation *a, tide_text text) {
    return tide_text_contains(tide_text_of(tide_factor_names[a->factor]), text) ||
           tide_text_contains(tide_text_of(tide_module_path(run, a)), text) ||
           tide_text_contains(tide_text_of(a->op), text);
}

bool tide_write_explanation(tide_writer *w, tide_run *run, const tide_job *job, const tide_filter *filter) {
    tide_job_report r;
    tide_filter at = *filter;
    uint64_t sum = 0;
    uint32_t count;
    tide_job_report_init(&r, w, run, job);
    uint32_t events = r.source.event_count;
    bool is_at_peak = at.event == TIDE_AT_PEAK || !events;
    if (!is_at_peak && at.event >= events) at.event = events - 1;
    tide_column column = {.from = at.event};
    if (!tide_job_report_play(&r, &column, !is_at_peak, at.event + 1)) return false;
    if (is_at_peak) at.event = r.replay.peak_event, column.allocated = r.replay.allocated_peak;
    tensor_group *groups = find_groups(&r, &at, &count);
    tide_write_bytes_at(w, "allocated_peak", r.replay.allocated_peak);
    tide_write_open_at(w, "at", '{');
    tide_write_event_place(&r, at.event);
    if (events) tide_write_bytes_at(w, "allocated", column.allocated);
    tide_write_close(w, '}');
    tide_write_open_at(w, "tensors", '[');
    for (uint32_t i = 0; i < count; i++) {
        if (!is_of(run, tide_timeline_at(&run->machine.timeline, groups[i].example), at.of)) continue;
        write_group(&r, &groups[i]);
        sum += groups[i].bytes;
    }
    tide_write_close(w, ']');
    tide_write_bytes_at(w, "bytes", sum);
    return true;
}
