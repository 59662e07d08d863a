/* SPDX-License-Identifier: Apache-2.0 */
/* Note [Equal layers]: a captured pass makes the same requests in every layer. If a layer finds the allocators in the
 * state in which an earlier layer found them, with the blocks that it will free of the layer before in the same places,
 * then the layers after it repeat those in between: they are not played, and what they leave alive has the same
 * addresses. Most often layers alternate, because the output of one is allocated while that of the one before is alive.
 */
#include "serve/capture_player.h"

enum {
    LEFT_LIMIT = 8,    /* what a layer leaves to the next one */
    FEWEST_LAYERS = 4, /* required before layers are folded */
    LAYERS_LIMIT = 12  /* played before giving up */
};

/* Adjacent ranges of events that are alike, with so many events and allocations each. */
typedef struct layers {
    uint32_t first, end, events, allocations;
} layers;

/* The state at the start of a layer: what is reserved, and the blocks that it frees of the layer before. */
typedef struct found {
    uint64_t pool, beside;
    uint32_t count, allocations[LEFT_LIMIT];
    uint64_t addresses[LEFT_LIMIT], bytes[LEFT_LIMIT];
} found;

static tide_caching_allocator *allocator_of(const tide_capture_player *p, uint32_t allocation) {
    return tide_timeline_at(&p->of->of->machine.timeline, allocation)->stream == TIDE_SERVE_BESIDE_GRAPHS ? p->beside
                                                                                                          : p->pool;
}

/* Whether event `at` repeats the one in the range before. */
static inline bool is_repeated(const tide_timeline *t, uint32_t at, const layers *of) {
    uint32_t before = t->events[at - of->events], now = t->events[at];
    if (before == TIDE_EMPTY_CACHE || now != before + of->allocations) return false;
    if (now & TIDE_FREE_BIT) return true;
    const tide_allocation *a = tide_timeline_at(t, before), *b = tide_timeline_at(t, now);
    return a->bytes == b->bytes && a->stream == b->stream;
}

/* The layers of a capture, found from its middle outward: each frees as much as it allocates. */
static bool find_equal_layers(const tide_serve_capture *c, layers *of) {
    const tide_timeline *t = &c->of->machine.timeline;
    uint32_t middle = c->from + (c->to - c->from) / 2;
    for (uint32_t events = 2; events <= (c->to - c->from) / FEWEST_LAYERS; events++) {
        uint32_t now = t->events[middle], before = t->events[middle - events];
        if (((now ^ before) & TIDE_FREE_BIT) || now <= before) continue;
        *of = (layers){middle, middle, events, now - before};
        while (of->end < c->to && is_repeated(t, of->end, of)) of->end++;
        while (of->first - events > c->from && is_repeated(t, of->first - 1, of)) of->first--;
        of->first -= events;
        if (events == 2 * of->allocations && of->end - of->first >= FEWEST_LAYERS * events &&
            of->end - of->first > (c->to - c->from) / 2)
            return true;
    }
    return false;
}

/* Plays the events up to `to`. */
static bool play_events(tide_capture_player *p, uint32_t from, uint32_t to) {
    const tide_serve_capture *c = p->of;
    const tide_timeline *t = &c->of->machine.timeline;
    for (uint32_t i = from; i < to; i++) {
        uint32_t event = t->events[i], allocation = event & ~TIDE_FREE_BIT;
        if (event == TIDE_EMPTY_CACHE || tide_timeline_at(t, allocation)->born < c->of->profiled_event) continue;
        tide_caching_allocator *a = allocator_of(p, allocation);
        bool is_transient = i + 1 < to && t->events[i + 1] == (allocation | TIDE_FREE_BIT);
        uint64_t taken;
        if (event & TIDE_FREE_BIT)
            tide_caching_free(a, p->blocks[allocation]);
        else if (is_transient &&
                 tide_caching_malloc_and_free(a, tide_timeline_at(t, allocation)->bytes, 0, &taken) == TIDE_CACHING_OK)
            i++;
        else if (tide_caching_malloc(a, tide_timeline_at(t, allocation)->bytes, 0, &p->blocks[allocation]) !=
                 TIDE_CACHING_OK)
            return false;
    }
    return true;
}

/* False: more than is recorded. */
static bool find_found(const tide_capture_player *p, const layers *of, uint32_t at, found *f) {
    const tide_timeline *t = &p->of->of->machine.timeline;
    *f = (found){.pool = tide_caching_reserved(p->pool), .beside = tide_caching_reserved(p->beside)};
    for (uint32_t i = at; i < at + of->events; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        const tide_allocation *a = tide_timeline_at(t, which);
        if (!(t->events[i] & TIDE_FREE_BIT) || a->born >= at) continue;
        if (f->count == LEFT_LIMIT || a->born < p->of->of->profiled_event || a->born + of->events < at) return false;
        f->allocations[f->count] = which;
        f->addresses[f->count] = tide_caching_address(allocator_of(p, which), p->blocks[which]);
        f->bytes[f->count++] = tide_caching_block_bytes(allocator_of(p, which), p->blocks[which]);
    }
    return true;
}

/* Whether a layer starts from the same state as one so many layers before. */
static bool is_found_again(const layers *of, const found *before, const found *now, uint32_t layers_between) {
    if (before->pool != now->pool || before->beside != now->beside || before->count != now->count) return false;
    for (uint32_t i = 0; i < now->count; i++)
        if (now->allocations[i] != before->allocations[i] + layers_between * of->allocations ||
            now->addresses[i] != before->addresses[i] || now->bytes[i] != before->bytes[i])
            return false;
    return true;
}

/* Plays layers until one starts from the state of an earlier one, and continues with the last layer that does too.
 * False: out of memory. */
static bool play_layers(tide_capture_player *p, const layers *of, uint32_t *at) {
    found known[LAYERS_LIMIT];
    for (uint32_t n = 0; n < LAYERS_LIMIT && *at + of->events <= of->end; n++) {
        if (!find_found(p, of, *at, &known[n])) return true;
        uint32_t round = 1;
        while (round <= n && !is_found_again(of, &known[n - round], &known[n], round)) round++;
        if (round <= n) {
            uint32_t passed = (of->end - *at) / (round * of->events) * round;
            for (uint32_t i = 0; i < known[n].count; i++) {
                uint32_t which = known[n].allocations[i];
                p->blocks[which + passed * of->allocations] = p->blocks[which];
            }
            *at += passed * of->events;
            return true;
        }
        if (!play_events(p, *at, *at + of->events)) return false;
        *at += of->events;
    }
    return true;
}

bool tide_play_capture(tide_capture_player *p) {
    const tide_serve_capture *c = p->of;
    layers of = {0};
    if (!find_equal_layers(c, &of)) return play_events(p, c->from, c->to);
    uint32_t at = of.first;
    return play_events(p, c->from, at) && play_layers(p, &of, &at) && play_events(p, at, c->to);
}
