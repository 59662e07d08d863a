/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of engines that make them themselves. */
#include "serve/serve.h"

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
