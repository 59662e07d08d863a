/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on the host: model_executor/offloader/uva.py. A decoder layer is made on the device, then its parameters are
 * moved to pinned memory, until cpu_offload_gb is reached; the device's blocks are reused by the next layer. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "serve/serve.h"

/* The index of the decoder layer in "model.layers.12.mlp"; -1: the parameter is in none. */
static int64_t layer_of(const char *name) {
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (isdigit((unsigned char)dot[1])) return strtoll(dot + 1, NULL, 10);
    return -1;
}

typedef struct moved {
    uint32_t at;         /* it is freed before this event */
    uint32_t allocation; /* of a parameter */
} moved;

/* The parameters that are moved, each with the event at the end of its layer. */
static uint32_t list_moved(const tide_serve_run *run, moved *list) {
    const tide_timeline *t = &run->machine.timeline;
    int64_t gib = run->job.cpu_offload_gb, bytes = 0, layer = -1;
    int64_t most =
        (gib / TIDE_PICO << 30) + (int64_t)((double)(gib % TIDE_PICO) / (double)TIDE_PICO * (double)(1 << 30));
    uint32_t count = 0, first = 0;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const tide_parameter_row *p = &run->model.parameters[i];
        int64_t of = layer_of(p->name);
        if (of < 0 || !p->tensor->storage || p->tensor->storage->is_untracked) continue;
        if (of != layer) first = count;
        layer = of;
        uint32_t allocation = p->tensor->storage->allocation, end = tide_timeline_at(t, allocation)->born + 1;
        for (uint32_t k = first; k < count; k++)
            if (list[k].at < end) list[k].at = end;
        if (bytes >= most) continue;
        bytes += tide_bytes(p->tensor);
        list[count] = (moved){count > first && list[first].at > end ? list[first].at : end, allocation};
        count++;
    }
    return count;
}

void tide_serve_offload(tide_serve_run *run) {
    tide_timeline *t = &run->machine.timeline;
    moved *list = TIDE_NEW(run->machine.arena, moved, run->model.parameter_count + 1);
    uint32_t count = list_moved(run, list), events = t->event_count, next = 0, put = 0;
    uint32_t *all = TIDE_NEW(run->machine.arena, uint32_t, events + 1);
    memcpy(all, t->events, events * sizeof *all);
    tide_timeline_reserve(t, events + count);
    for (uint32_t i = 0; i <= events; i++) {
        for (; next < count && list[next].at <= i; next++) {
            *tide_timeline_died(t, list[next].allocation) = put;
            tide_timeline_at(t, list[next].allocation)->freed_by = TIDE_FREED_BY_LOOP;
            t->events[put++] = list[next].allocation | TIDE_FREE_BIT;
        }
        if (i == events) break;
        uint32_t event = all[i], allocation = event & ~TIDE_FREE_BIT;
        if (event != TIDE_EMPTY_CACHE && event & TIDE_FREE_BIT) *tide_timeline_died(t, allocation) = put;
        if (event != TIDE_EMPTY_CACHE && !(event & TIDE_FREE_BIT)) tide_timeline_at(t, allocation)->born = put;
        t->events[put++] = event;
    }
    t->event_count = put;
}
