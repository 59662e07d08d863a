/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of engines that allocate them directly. */
#include "serve/serve.h"

#include <string.h>

#include "base/units.h"

void tide_serve_add_buffer(tide_serve_run *run, const tide_serve_buffer *buffer) {
    tide_serve_figures *f = &run->figures;
    if (buffer->high > 0 && f->buffer_count < TIDE_SERVE_BUFFERS) f->buffers[f->buffer_count++] = *buffer;
}

static int64_t sum_of_buffers(const tide_serve_run *run, bool is_low) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < run->figures.buffer_count; i++) {
        const tide_serve_buffer *b = &run->figures.buffers[i];
        if (!b->is_on_host) sum += is_low ? b->low : b->high;
    }
    return sum;
}

int64_t tide_serve_buffers_low(const tide_serve_run *run) {
    return sum_of_buffers(run, true);
}

int64_t tide_serve_buffers_high(const tide_serve_run *run) {
    return sum_of_buffers(run, false);
}

void tide_serve_play_buffers(tide_serve_run *run) {
    static const struct {
        const char *part;
        tide_factor factor;
    } factors[] = {{"model", TIDE_FACTOR_PARAMETER},
                   {"weights", TIDE_FACTOR_PARAMETER},
                   {"KV", TIDE_FACTOR_KV_CACHE},
                   {"RS", TIDE_FACTOR_KV_CACHE},
                   {"kv_pool", TIDE_FACTOR_KV_CACHE}};
    tide_machine *m = &run->machine;
    for (uint32_t i = 0; i < run->figures.buffer_count; i++) {
        const tide_serve_buffer *b = &run->figures.buffers[i];
        tide_factor factor = TIDE_FACTOR_TEMPORARY;
        for (size_t k = 0; k < TIDE_COUNT_OF(factors); k++)
            if (strstr(b->name, factors[k].part)) factor = factors[k].factor;
        if (b->is_on_host) continue;
        const tide_dim dim = {b->high, 0};
        tide_timeline_alloc(&m->timeline, &(tide_allocation){.bytes = (uint64_t)b->high,
                                                             .shape = tide_timeline_shape(&m->timeline, &dim, 1),
                                                             .dims = 1,
                                                             .dtype = TIDE_UINT8,
                                                             .factor = (uint8_t)factor,
                                                             .op = b->name});
    }
}
