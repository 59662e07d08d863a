/* SPDX-License-Identifier: Apache-2.0 */
/* Playing only one of the allocator's pools.
 *
 * Note [Skipping]: the two pools of the allocator share nothing but the device. If all growing requests are of the
 * large pool, and the state of the small pool recurs, then the small pool serves its requests alike in every round:
 * they are skipped. What they add to allocated memory between two events of the large pool is known, and the events of
 * the large pool are played. If each iteration leaves something alive in the small pool, or is a backward that frees
 * it, and the state of the large pool recurs, it is the other way round. A large block may be larger than its request,
 * depending on the place in the round, so each iteration of a round has a list of its own of what is played. The pools
 * interact only when the device is full and both release their caches: a round in which that happens is undone and
 * played in full. */
#include "allocator/play_event.h"

/* An event that is played, with the skipped events before it. */
struct tide_kept_event {
    tide_event is;
    uint64_t growth;               /* by which its size changes with each iteration */
    bool is_transient;             /* both this request and the next event, which frees it */
    bool is_over;                  /* there are skipped events before it */
    uint32_t event, highest;       /* of the skipped events, the first that reaches `most` */
    uint64_t most, most_requested; /* maxima relative to the start; 0: never above it */
    int64_t change, change_requested;
    /* skipped transients that repeat the one played before them; their peak relative to its block: */
    bool has_transient;
    int64_t transient_change;
    uint32_t transient_event;
};

/* LAST_NOTED: requests grow, so the peak is in one of so many last iterations. */
enum { FEWEST_PLAYINGS = 4, MOST_LOOKED_AT = 1024, LONGEST_ROUND = 128, LAST_NOTED = 64 };

static bool grows_by(const tide_repetition *of, uint32_t slot) {
    return of->growth && slot >= of->first_allocation && of->growth[slot - of->first_allocation];
}

/* The pool that is played. */
static tide_pool_kind played_pool(const tide_repetition *of) {
    return of->growth ? TIDE_POOL_LARGE : TIDE_POOL_SMALL;
}

static bool is_played(const tide_player *p, const tide_repetition *of, uint32_t slot) {
    return tide_player_is_of(p, slot, played_pool(of));
}

/* Where the last iteration has what the next one frees in this slot. */
static uint32_t slot_in_last(const tide_repetition *of, const tide_event *e) {
    return e->slot < of->first_allocation && e->slot >= end_of_saved(of) ? e->slot + of->own : e->slot;
}

/* Adds a skipped event that allocates or frees so many bytes. */
static void pass_over(struct tide_kept_event *k, const tide_event *e, uint32_t event, uint64_t bytes,
                      uint64_t requested) {
    bool is_free = e->kind == TIDE_EVENT_FREE;
    k->is_over = true;
    k->change += is_free ? -(int64_t)bytes : (int64_t)bytes;
    k->change_requested += is_free ? -(int64_t)requested : (int64_t)requested;
    if (k->change > 0 && (uint64_t)k->change > k->most) {
        k->most = (uint64_t)k->change;
        k->highest = event;
    }
    if (k->change_requested > 0 && (uint64_t)k->change_requested > k->most_requested)
        k->most_requested = (uint64_t)k->change_requested;
}

/* The bytes requested for the slot of an event; for a carried slot, for the block that moves there. */
static uint64_t requested_of(const tide_player *p, const tide_repetition *of, const tide_event *e) {
    if (e->kind == TIDE_EVENT_ALLOC) return e->bytes;
    if (e->slot < of->first_allocation)
        return tide_caching_requested_bytes(p->allocator, p->blocks[slot_in_last(of, e)]);
    tide_event_cursor cursor = {.source = p->source, .event = e->other};
    return tide_cursor_next(&cursor).bytes;
}

static uint64_t segment_of(const tide_player *p, uint64_t bytes) {
    return tide_caching_segment_bytes(&p->conf, tide_caching_round(&p->conf, bytes));
}

/* Whether the last event is a transient like the one before it, with nothing played in between. */
static bool repeats_transient(const tide_repeating *r) {
    const struct tide_kept_event *last = &r->kept[r->kept_count - 1];
    return last[-1].is_transient && !last->growth && !last[-1].growth && last->is.bytes == last[-1].is.bytes &&
           last->is.stream == last[-1].is.stream;
}

/* Removes it again and returns the skipped events including it. */
static struct tide_kept_event skip_transient(tide_repeating *r) {
    struct tide_kept_event next = r->kept[--r->kept_count];
    int64_t requested = next.change_requested + (int64_t)next.is.bytes;
    if (!next.has_transient || next.change > next.transient_change) {
        next.transient_change = next.change;
        next.transient_event = next.event;
    }
    if (requested > 0 && (uint64_t)requested > next.most_requested) next.most_requested = (uint64_t)requested;
    next.has_transient = next.is_over = true;
    next.is_transient = false;
    return next;
}

/* The list of the last iteration, after those of earlier ones. */
static void find_kept(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    tide_event_cursor cursor = {.source = p->source, .event = of->first_event, .growing = of->growth ? of : NULL};
    struct tide_kept_event next = {0};
    uint32_t first = r->kept_count;
    uint64_t requests = 0, segment = 0;
    for (uint32_t i = of->first_event; i < of->last_event; i++) {
        tide_event e = tide_cursor_next(&cursor);
        bool is_either = e.kind == TIDE_EVENT_ALLOC || e.kind == TIDE_EVENT_FREE;
        uint32_t slot = is_either ? slot_in_last(of, &e) : e.slot;
        bool is_kept = is_either && (grows_by(of, slot) || is_played(p, of, slot));
        /* Blocks that wait for a stream return at the next request of either pool. */
        if (!is_either || (e.used_by && of->growth)) r->can_skip = false;
        if (!r->can_skip) return;
        if (!is_kept) {
            pass_over(&next, &e, i, p->figures.block_bytes[e.slot], requested_of(p, of, &e));
            continue;
        }
        uint64_t bytes = e.kind == TIDE_EVENT_ALLOC ? segment_of(p, e.bytes) : 0;
        segment = bytes > segment ? bytes : segment;
        requests += e.kind == TIDE_EVENT_ALLOC;
        struct tide_kept_event *last = r->kept_count > first ? &r->kept[r->kept_count - 1] : NULL;
        if (e.kind == TIDE_EVENT_FREE && e.other != TIDE_NEVER && e.other + 1 == i && last && last->event == e.other) {
            last->is_transient = true;
            requests--;
            if (r->kept_count > first + 1 && repeats_transient(r)) next = skip_transient(r);
            continue;
        }
        next.event = i;
        next.is = e;
        next.growth = e.kind == TIDE_EVENT_ALLOC && grows_by(of, slot) ? of->growth[slot - of->first_allocation] : 0;
        TIDE_ROOM(p->arena, r->kept, r->kept_count, r->kept_capacity);
        r->kept[r->kept_count++] = next;
        next = (struct tide_kept_event){0};
    }
    /* A transient finds the segment of the one before, unless another request has taken a part of it. */
    uint64_t bytes = (requests + 1) * segment;
    r->kept_bytes = bytes > r->kept_bytes ? bytes : r->kept_bytes;
    next.event = of->last_event;
    TIDE_ROOM(p->arena, r->kept, r->kept_count, r->kept_capacity);
    r->kept[r->kept_count++] = next;
}

/* From which iteration on all growing requests are of the large pool. */
static uint32_t find_large_from(const tide_player *p, const tide_repetition *of) {
    tide_event_cursor cursor = {.source = p->source, .event = of->first_event, .growing = of, .to_come = of->times};
    uint64_t from = 0;
    while (cursor.event < of->last_event) {
        tide_event e = tide_cursor_next(&cursor);
        if (e.kind != TIDE_EVENT_ALLOC || !grows_by(of, e.slot) || e.bytes > SMALL_BLOCK) continue;
        uint64_t growth = of->growth[e.slot - of->first_allocation], first = (SMALL_BLOCK - e.bytes) / growth + 1;
        from = first > from ? first : from;
    }
    return from < of->times ? (uint32_t)from : of->times;
}

/* Whether all that is held, or freed of what another repetition saved, is small, and no figures by step are needed. */
static bool holds_small(const tide_player *p, const tide_repetition *of) {
    const tide_repetition *saving = of - of->unwinds;
    if (of->steps || of->inner || saving->is_in_order || p->conf.backend != TIDE_ALLOC_NATIVE) return false;
    for (uint32_t i = 0; i < of->held_count; i++)
        if (!tide_player_is_small(p, of->first_allocation + of->held[i])) return false;
    for (uint32_t i = 0; of->unwinds && i < saving->saved_count; i++)
        if (!tide_player_is_small(p, saving->first_allocation + saving->held[i])) return false;
    return true;
}

/* Whether iterations leave as much as they find, so that both pools can recur. */
static bool leaves_what_it_finds(const tide_repetition *of) {
    return !of->growth && !of->held_count && !of->unwinds;
}

bool tide_player_may_skip(tide_player *p, const tide_repetition *of) {
    tide_repeating *r = &p->repeating;
    if (!r->is_known) {
        r->is_known = true;
        r->can_skip = of->growth || holds_small(p, of);
        r->large_from = of->growth ? find_large_from(p, of) : 0;
    }
    if (!of->growth && !r->round && r->iteration == MOST_LOOKED_AT) r->can_skip = false;
    if (!r->can_skip || of->times - r->iteration < FEWEST_PLAYINGS || r->iteration < r->large_from) return false;
    if (!r->kept_count && of->growth) find_kept(p, of);
    return r->can_skip;
}

void tide_player_hand_on(tide_player *p, const tide_repetition *of, tide_pool_kind pool) {
    for (uint32_t i = 0; i < p->repeating.carried_count; i++) {
        uint32_t slot = p->repeating.carried[i].slot, from = slot + of->own;
        if (!tide_player_is_of(p, from, pool)) continue;
        move_block(p, from, slot);
    }
}

void tide_player_set_aside(tide_player *p, const tide_repetition *of) {
    uint32_t before = p->repeating.iteration - 1;
    for (uint32_t i = 0; i < of->held_count; i++)
        move_block(p, of->first_allocation + of->held[i], tide_held_slot(of, i, before));
}

void tide_player_take_back(tide_player *p, const tide_repetition *of) {
    const tide_repetition *saving = of - of->unwinds;
    for (uint32_t i = 0; of->unwinds && i < saving->saved_count; i++) {
        int64_t first = (int64_t)saving->times - of->lags[i];
        move_block(p, tide_unwound_slot(of, i, p->repeating.iteration), tide_saved_slot(saving, i, first));
    }
}

/* Accounts for skipped events; `transient`: the size of the transient block before them. */
static void rise_over(tide_player *p, const struct tide_kept_event *k, uint64_t transient) {
    tide_replay *r = &p->figures;
    uint64_t most = k->most;
    uint32_t event = k->highest;
    if (k->has_transient && k->transient_change + (int64_t)transient >= (int64_t)most) {
        bool is_later = k->transient_change + (int64_t)transient == (int64_t)most && k->transient_event > event;
        most = (uint64_t)(k->transient_change + (int64_t)transient);
        event = is_later ? event : k->transient_event;
    }
    uint64_t highest = r->allocated + most;
    if (p->conf.backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) {
        tide_caching_async_live(p->allocator, (int64_t)most);
        tide_caching_async_live(p->allocator, k->change - (int64_t)most);
        r->reserved = tide_caching_reserved(p->allocator);
    }
    if (most && (highest > r->allocated_peak || (highest == r->allocated_peak && r->reserved > r->peak_reserved))) {
        r->allocated_peak = highest;
        r->peak_reserved = r->reserved;
        r->peak_event = event;
        r->peak_iteration = p->repeating.iteration;
        r->peak_outer = p->outer.iteration;
    }
    if (highest > p->phase_peak) p->phase_peak = highest;
    if (r->requested + k->most_requested > r->requested_peak) r->requested_peak = r->requested + k->most_requested;
    r->allocated += (uint64_t)k->change;
    r->requested += (uint64_t)k->change_requested;
}

/* Plays a list. NULL when a request failed, else the next list. */
static const struct tide_kept_event *skip_iteration(tide_player *p, const tide_repetition *of,
                                                    const struct tide_kept_event *k) {
    uint64_t transient = 0;
    for (;; k++) {
        if (k->is_over) rise_over(p, k, transient);
        if (k->event == of->last_event) return k + 1;
        tide_event e = k->is;
        e.bytes -= k->growth * p->cursor.to_come;
        p->figures.events = k->event;
        tide_caching_status status = k->is_transient ? take_transient(p, &e, &transient) : play_event(p, &e);
        if (status != TIDE_CACHING_OK) return NULL;
        if (p->figures.allocated > p->phase_peak) p->phase_peak = p->figures.allocated;
        if (k->is_transient) give_transient(p, &e, transient);
    }
}

/* Saves the slots that a round changes, or restores them. */
static void keep_slots(tide_player *p, const tide_repetition *of, bool back) {
    tide_repeating *r = &p->repeating;
    uint32_t count = of->own + r->carried_count;
    if (!r->blocks_before) {
        r->blocks_before = tide_arena_grow(p->arena, NULL, 0, count * sizeof *r->blocks_before);
        r->bytes_before = tide_arena_grow(p->arena, NULL, 0, count * sizeof *r->bytes_before);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = i < of->own ? of->first_allocation + i : r->carried[i - of->own].slot;
        if (back) {
            p->blocks[slot] = r->blocks_before[i];
            p->figures.block_bytes[slot] = r->bytes_before[i];
        } else {
            r->blocks_before[i] = p->blocks[slot];
            r->bytes_before[i] = p->figures.block_bytes[slot];
        }
    }
}

/* How many iterations ahead the records of what a backward frees are fetched, and those of their neighbours. */
enum { RECORDS_AHEAD = 12, NEIGHBOURS_AHEAD = 6 };

/* What iterations saved lies far apart, and there can be more of it than the processor caches. */
static void fetch_saved(const tide_player *p, const tide_repetition *of) {
    uint32_t count = of->unwinds ? (of - of->unwinds)->saved_count : 0, iteration = p->repeating.iteration;
    for (uint32_t i = 0; i < count && iteration + RECORDS_AHEAD <= of->times; i++) {
        tide_caching_fetch(p->allocator, p->blocks[tide_unwound_slot(of, i, iteration + RECORDS_AHEAD)]);
        tide_caching_fetch_neighbours(p->allocator, p->blocks[tide_unwound_slot(of, i, iteration + NEIGHBOURS_AHEAD)]);
    }
}

/* False when a request failed. */
static bool skip_round(tide_player *p, const tide_repetition *of, uint32_t round) {
    tide_repeating *r = &p->repeating;
    const struct tide_kept_event *next = r->kept;
    p->figures.replayed += (uint64_t)r->kept_count * (of->growth ? round : 1);
    for (uint32_t i = 0; i < round; i++) {
        r->iteration++;
        p->cursor.to_come = of->times - r->iteration;
        tide_player_hand_on(p, of, played_pool(of));
        tide_player_set_aside(p, of);
        tide_player_take_back(p, of);
        fetch_saved(p, of);
        if (next == r->kept + r->kept_count) next = r->kept;
        next = skip_iteration(p, of, next);
        if (!next) return false;
        if (of->growth && of->times - r->iteration < LAST_NOTED) tide_player_note_iteration(p, of);
    }
    return true;
}

/* The same if the device may become full: false, and undone, if a request failed or cached segments were released. */
static bool try_round(tide_player *p, const tide_repetition *of, uint32_t round) {
    tide_repeating *r = &p->repeating;
    tide_replay figures = p->figures;
    uint64_t phase_peak = p->phase_peak;
    uint32_t iteration = r->iteration;
    tide_caching_save(&r->before, p->allocator, p->arena);
    keep_slots(p, of, false);
    if (skip_round(p, of, round) && !tide_caching_gave_back(p->allocator, &r->before)) return true;
    tide_caching_restore(p->allocator, &r->before);
    keep_slots(p, of, true);
    p->figures = figures;
    p->phase_peak = phase_peak;
    r->iteration = iteration;
    r->has_then = false; /* the small pool may differ now */
    return false;
}

/* Whether there are lists for a whole round; adds that of the last iteration. Requests that grow have one list. */
static bool has_lists(tide_player *p, const tide_repetition *of, uint32_t round) {
    tide_repeating *r = &p->repeating;
    if (of->growth) return true;
    if (!r->round) r->kept_count = r->lists = 0;
    if (round > LONGEST_ROUND) return r->can_skip = false;
    r->round = round;
    find_kept(p, of);
    return r->can_skip && ++r->lists == round;
}

void tide_player_skip(tide_player *p, const tide_repetition *of, uint32_t round) {
    tide_repeating *r = &p->repeating;
    bool stops = of->first_event < p->stop_event && p->stop_event <= of->last_event, goes_on = true;
    uint32_t end = stops && p->stop_iteration < of->times ? p->stop_iteration : of->times; /* must be played */
    if (!has_lists(p, of, round)) return;
    r->has_then = false;
    while (goes_on && r->iteration + round < end) {
        goes_on = tide_caching_room(p->allocator) >= r->kept_bytes * round ? skip_round(p, of, round)
                                                                           : try_round(p, of, round);
        uint32_t both = goes_on && leaves_what_it_finds(of) ? tide_player_recurs(p, of, TIDE_POOL_SMALL) : 0;
        if (both && r->iteration < end) r->iteration += (end - r->iteration - 1) / both * both;
    }
    r->round = 0;
    r->has_then = false;
    p->figures.events = p->cursor.event = of->last_event;
}

void tide_player_forget_skipping(tide_player *p) {
    tide_repeating *r = &p->repeating;
    r->kept_count = r->round = 0;
    r->is_known = false;
    if (!r->blocks_before) return;
    tide_arena_drop(p->arena, r->blocks_before);
    tide_arena_drop(p->arena, r->bytes_before);
    r->blocks_before = NULL;
}
