/* SPDX-License-Identifier: Apache-2.0 */
/* A server whose engine allocates its buffers directly: each is exact, or a range with what decides. */
#include "report/serving_buffers.h"

#include <inttypes.h>

#include "base/units.h"

static const char *memory_text(const tide_serving *serving, tide_arena *arena) {
    uint64_t used = serving->device.used_bytes, low = used + (uint64_t)tide_serve_buffers_low(serving->run),
             high = used + (uint64_t)tide_serve_buffers_high(serving->run);
    const char *least = tide_gib(arena, low), *most = tide_gib(arena, high);
    const char *there = tide_gib(arena, serving->device.total_bytes);
    return low == high ? tide_format(arena, "%s of %s", least, there)
                       : tide_format(arena, "between %s and %s of %s", least, most, there);
}

const char *tide_buffers_sentence(const tide_serving *serving, tide_arena *arena) {
    const tide_serve_figures *f = &serving->run->figures;
    int64_t requests = tide_serving_requests(serving), longest = tide_request_longest(&serving->mix, serving->run);
    int64_t asked = serving->job->max_concurrency;
    bool is_open = serving->job->undescribed.count > 0;
    const char *verdict = !is_open && tide_serving_fits(serving)     ? "fits"
                          : is_open || tide_serving_may_fit(serving) ? "cannot tell whether it fits"
                                                                     : "does not fit";
    const char *target = asked ? tide_format(arena, " (%s wanted)", tide_count_text(arena, asked)) : "";
    const char *tokens = tide_count_text(arena, f->capacity_tokens);
    if (f->blocks_at_most > f->blocks_at_least) /* each block holds one token */
        tokens = tide_format(arena, "between %s and %s", tokens, tide_count_text(arena, f->blocks_at_most));
    return tide_format(arena, "%s: %s. %s request%s of %s tokens at once%s; the cache has %s tokens",
                       memory_text(serving, arena), verdict, tide_count_text(arena, requests), requests == 1 ? "" : "s",
                       tide_count_text(arena, longest), target, tokens);
}

static void write_buffer(tide_writer *w, const tide_serve_buffer *b) {
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", b->name);
    tide_write_string_at(w, "place", b->is_on_host ? "host" : "card");
    tide_write_int_at(w, "low", b->low);
    tide_write_int_at(w, "high", b->high);
    if (b->why) tide_write_string_at(w, "why", b->why);
    tide_write_close(w, '}');
}

void tide_write_buffers(tide_writer *w, const tide_serving *serving) {
    const tide_serve_figures *f = &serving->run->figures;
    uint64_t used = serving->device.used_bytes;
    tide_write_string_at(w, "outcome", f->refusal ? "refused" : "ok");
    if (f->refusal) tide_write_string_at(w, "message", f->refusal);
    tide_write_bytes_at(w, "weights", f->weight_bytes);
    tide_write_int_at(w, "available", f->available);
    tide_write_int_at(w, "block_bytes", f->block_bytes);
    tide_write_int_at(w, "blocks", f->num_blocks);
    tide_write_int_at(w, "tokens", f->capacity_tokens);
    tide_write_open_at(w, "card", '{');
    tide_write_bytes_at(w, "total", serving->device.total_bytes);
    tide_write_bytes_at(w, "context", used);
    tide_write_close(w, '}');
    tide_write_bytes_at(w, "device_low", used + (uint64_t)tide_serve_buffers_low(serving->run));
    tide_write_bytes_at(w, "device_high", used + (uint64_t)tide_serve_buffers_high(serving->run));
    tide_write_key(w, "buffers");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < f->buffer_count; i++) write_buffer(w, &f->buffers[i]);
    tide_write_close(w, ']');
}
