/* SPDX-License-Identifier: Apache-2.0 */
/* Playing events through the allocator. */
#include "allocator/player.h"

#include "allocator/play_event.h"
#include "base/invariant.h"
#include "base/units.h"

static const uint64_t ENDLESS_DEVICE = UINT64_C(1) << 52;

enum { BATCH = 64 };

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* ---- phases: the peak since the last mark goes to its phase ---- */

/* How many steps after the stored iteration the current iteration is. */
static uint32_t later_steps(const tide_player *p) {
    const tide_repetition *of = p->source->repetitions;
    uint32_t next = p->next;
    if (!p->outer.iteration) return p->repeating.iteration ? p->repeating.iteration * of[next].steps : 0;
    while (!of[next].inner) next++; /* the inner ones belong to one step */
    return p->outer.iteration * of[next].steps;
}

static void pass_mark(tide_player *p, const tide_mark *mark) {
    tide_replay *r = &p->figures;
    uint64_t peak = larger(p->phase_peak, r->allocated);
    p->phase_peak = r->allocated;
    uint32_t step = mark->step + later_steps(p);
    if (mark->step == 0 || step > TIDE_STEP_LIMIT) return;
    tide_step_figures *s = &r->steps[step - 1];
    if (step > r->step_count) r->step_count = step;
    if (mark->phase == TIDE_PHASE_LOAD) {
        s->before = r->allocated;
        return;
    }
    s->passed |= 1u << mark->phase;
    s->peak[mark->phase] = larger(s->peak[mark->phase], peak);
    s->after[mark->phase] = r->allocated;
    s->allocated_peak = larger(s->allocated_peak, peak);
    s->reserved_peak = r->reserved_peak;
    s->reserved = r->reserved;
}

/* Handles the marks up to the current event; those after a repetition only once it is done. */
static void pass_marks(tide_player *p) {
    const tide_event_source *s = p->source;
    const tide_repetition *of = p->next < s->repetition_count ? &s->repetitions[p->next] : NULL;
    uint32_t count = of && p->figures.events == of->last_event ? of->last_mark : s->mark_count;
    while (p->mark < count && s->marks[p->mark].event <= p->figures.events) pass_mark(p, &s->marks[p->mark++]);
}

/* ---- one event ---- */

tide_caching_status tide_player_take(tide_player *p, uint32_t slot, uint32_t stream, uint64_t bytes) {
    return play_request(p, slot, stream, bytes);
}

/* Updates the maxima of the phase and of the column. After a free this is needed only at the start of a stretch. */
static inline void note_most(tide_player *p) {
    tide_replay *r = &p->figures;
    if (r->allocated > p->phase_peak) p->phase_peak = r->allocated;
    bool is_peak = r->allocated == r->allocated_peak && r->events == r->peak_event;
    bool is_shown =
        p->cursor.growing ? p->cursor.to_come == 0 : (!p->repeating.iteration && !p->outer.iteration) || is_peak;
    if (!is_shown) return; /* a column shows the stored iteration, and the peak */
    if (r->allocated > p->column.allocated || is_peak) {
        p->column.allocated = r->allocated;
        p->column.peak = r->events;
    }
    if (r->reserved > p->column.reserved) p->column.reserved = r->reserved;
}

/* A request that the next event frees. */
static inline bool is_transient(const tide_event *e) {
    return e[0].kind == TIDE_EVENT_ALLOC && e[1].kind == TIDE_EVENT_FREE && e[0].slot == e[1].slot && !e[1].used_by;
}

static inline tide_caching_status play_transient(tide_player *p, const tide_event *e) {
    uint64_t block_bytes;
    tide_caching_status status = take_transient(p, e, &block_bytes);
    if (status != TIDE_CACHING_OK) return status;
    note_most(p);
    p->figures.events++;
    give_transient(p, e, block_bytes);
    return TIDE_CACHING_OK;
}

/* A growable device gets larger by what the request lacked. */
static bool grow_device(tide_player *p) {
    tide_caching_oom oom = tide_caching_oom_info(p->allocator);
    if (!p->growing_by || oom.is_over_1_eb || oom.tried_bytes <= oom.free_bytes) return false;
    p->figures.device_bytes += TIDE_ROUND_UP(oom.tried_bytes - oom.free_bytes, p->growing_by);
    tide_caching_set_device(p->allocator, p->figures.device_bytes);
    return true;
}

static tide_caching_status play_one(tide_player *p, const tide_event *e, bool is_transient_event) {
    tide_caching_status status;
    do status = is_transient_event ? play_transient(p, e) : play_event(p, e);
    while (status == TIDE_CACHING_OOM && grow_device(p));
    return status;
}

/* Plays events up to the next mark. */
static tide_caching_status play_stretch(tide_player *p, uint32_t until) {
    tide_event events[BATCH];
    tide_replay *r = &p->figures;
    while (r->events < until) {
        uint32_t count = until - r->events < BATCH ? until - r->events : BATCH;
        p->source->reader->read(&p->cursor, events, count);
        for (uint32_t i = 0; i < count; i++) {
            bool is_transient_event = p->plays_transients_at_once && i + 1 < count && is_transient(&events[i]);
            tide_caching_status status = play_one(p, &events[i], is_transient_event);
            if (status != TIDE_CACHING_OK) {
                r->oom_request = events[i].request;
                r->reserved = tide_caching_reserved(p->allocator);
                note_most(p);
                return status;
            }
            if (i == 0 || events[i].kind != TIDE_EVENT_FREE) note_most(p);
            r->events++;
            i += is_transient_event;
        }
    }
    return TIDE_CACHING_OK;
}

/* False when host memory ran out. */
static bool note_status(tide_player *p, tide_caching_status status) {
    if (status == TIDE_CACHING_OK) return true;
    p->figures.is_oom = status == TIDE_CACHING_OOM;
    p->figures.oom = tide_caching_oom_info(p->allocator);
    return p->figures.is_oom;
}

/* ---- a play ---- */

/* The next mark, the end of the repetition, or `until`, whichever comes first. */
static uint32_t next_stop(tide_player *p, uint32_t until) {
    const tide_event_source *s = p->source;
    uint32_t next = p->next;
    const tide_repetition *outer = tide_player_next_outer(p);
    if (until <= p->figures.events) until = s->repetitions[next].last_event;
    if (outer && p->figures.events < outer->first_event && outer->first_event < until) until = outer->first_event;
    if (next < s->repetition_count && s->repetitions[next].growth &&
        p->figures.events < s->repetitions[next].first_event && s->repetitions[next].first_event < until)
        until = s->repetitions[next].first_event;
    if (p->mark < s->mark_count && s->marks[p->mark].event < until) until = s->marks[p->mark].event;
    return next < s->repetition_count && s->repetitions[next].last_event < until ? s->repetitions[next].last_event
                                                                                 : until;
}

bool tide_player_run_to(tide_player *p, uint32_t until, uint32_t iteration, uint32_t outer) {
    const tide_event_source *s = p->source;
    if (until > s->event_count) until = s->event_count;
    p->stop_event = until;
    p->stop_iteration = iteration;
    while (!p->figures.is_oom && !p->figures.is_cut) {
        pass_marks(p);
        if (tide_player_repeats(p)) continue;
        pass_marks(p);
        if (p->figures.events >= until && p->repeating.iteration >= iteration && p->outer.iteration >= outer) break;
        if (!note_status(p, play_stretch(p, next_stop(p, until)))) return false;
    }
    if (p->figures.events == s->event_count && !p->figures.is_oom) pass_marks(p);
    return true;
}

bool tide_player_run(tide_player *p, uint32_t until) {
    const tide_event_source *s = p->source;
    uint32_t iteration = 0;
    for (uint32_t i = p->next; i < s->repetition_count && s->repetitions[i].first_event < until; i++)
        if (s->repetitions[i].growth && until < s->repetitions[i].last_event) iteration = s->repetitions[i].times;
    return tide_player_run_to(p, until, iteration, 0);
}

bool tide_player_columns(tide_player *p, tide_column *columns, uint32_t count, uint32_t until) {
    for (uint32_t i = 0; i < count; i++) {
        if (!tide_player_run(p, columns[i].from)) return false;
        p->column = (tide_column){.from = columns[i].from, .peak = columns[i].from};
        if (!tide_player_run(p, i + 1 < count ? columns[i + 1].from : until)) return false;
        columns[i] = p->column;
    }
    return true;
}

void tide_player_catch_up(tide_player *p) {
    if (p->cursor.event == p->figures.events) return;
    tide_cursor_close(&p->cursor, p->arena);
    tide_cursor_open(&p->cursor, p->source, p->arena);
    while (p->cursor.event < p->figures.events) tide_cursor_next(&p->cursor);
}

uint32_t *tide_player_slots(const tide_player *p, uint32_t *block_count, tide_arena *arena) {
    uint32_t slots = p->source->slot_count, highest = 0;
    for (uint32_t i = 0; i < slots; i++) highest = p->blocks[i] > highest ? p->blocks[i] : highest;
    uint32_t *by_block = TIDE_NEW(arena, uint32_t, highest + 1u);
    for (uint32_t i = 0; i < slots; i++)
        if (p->blocks[i]) by_block[p->blocks[i]] = i + 1;
    *block_count = highest + 1;
    return by_block;
}

static bool make_allocator(tide_player *p, const tide_replay_config *config) {
    tide_caching_config setup = {.memory = tide_arena_memory(p->arena),
                                 .conf = config->conf,
                                 .device_bytes = config->device_bytes ? config->device_bytes : ENDLESS_DEVICE,
                                 .outside_bytes = config->outside_bytes,
                                 .is_lean = !config->keeps_statistics};
    if (tide_caching_create(&p->allocator, &setup) != TIDE_CACHING_OK) return false;
    if (config->fraction_ppm) tide_caching_set_fraction(p->allocator, (double)config->fraction_ppm / 1e6);
    return true;
}

/* The last step that has figures. */
static uint32_t last_step(const tide_event_source *s) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < s->mark_count; i++) last = s->marks[i].step > last ? s->marks[i].step : last;
    for (uint32_t i = 0; i < s->repetition_count; i++) last += s->repetitions[i].times * s->repetitions[i].steps;
    return last < TIDE_STEP_LIMIT ? last : TIDE_STEP_LIMIT;
}

/* Held slots have no events of their own: they are empty unless a block is given. */
static void empty_held(const tide_event_source *s, const tide_block *blocks, uint64_t *block_bytes) {
    for (uint32_t i = 0; i < s->repetition_count; i++) {
        const tide_repetition *of = &s->repetitions[i];
        for (uint32_t k = 0; k < of->times * of->held_count; k++)
            if (!blocks || !blocks[of->first_held + k]) block_bytes[of->first_held + k] = 0;
    }
}

bool tide_player_open(tide_player *p, const tide_event_source *source, const tide_replay_config *config,
                      tide_arena *arena) {
    size_t slots = (size_t)source->slot_count + 1;
    *p = (tide_player){.source = source,
                       .arena = arena,
                       .conf = config->conf,
                       .plays_transients_at_once = !config->keeps_statistics,
                       .growing_by = config->growing_by,
                       .left = config->most_events ? config->most_events : UINT64_MAX};
    p->figures.device_bytes = config->device_bytes;
    p->figures.block_bytes = tide_arena_grow(arena, NULL, 0, slots * sizeof *p->figures.block_bytes);
    p->blocks = tide_arena_grow(arena, NULL, 0, slots * sizeof *p->blocks);
    p->figures.steps = TIDE_NEW(arena, tide_step_figures, last_step(source) + 1);
    empty_held(source, NULL, p->figures.block_bytes);
    tide_cursor_open(&p->cursor, source, arena);
    if (!make_allocator(p, config)) return false;
    if (source->pending_count) {
        p->pending_streams = tide_arena_grow(arena, NULL, 0, source->pending_count * sizeof *p->pending_streams);
        p->free_streams = tide_arena_grow(arena, NULL, 0, PENDING_STREAMS * sizeof *p->free_streams);
        for (uint32_t i = 0; i < PENDING_STREAMS; i++)
            p->free_streams[p->free_stream_count++] = (uint16_t)(FIRST_PENDING_STREAM + i);
        tide_caching_hold_events(p->allocator);
    }
    return !source->reader->take_older || note_status(p, source->reader->take_older(p, config));
}

static void count_segments(tide_replay *r, const tide_caching_allocator *allocator) {
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    r->small_segments = r->small_bytes = r->large_segments = r->large_bytes = 0;
    while (tide_caching_next_segment(allocator, &cursor, &segment)) {
        if (segment.is_small)
            r->small_segments++, r->small_bytes += segment.bytes;
        else
            r->large_segments++, r->large_bytes += segment.bytes;
    }
}

void tide_player_finish(tide_player *p) {
    TIDE_INVARIANT(!tide_caching_check(p->allocator));
    tide_replay *r = &p->figures;
    tide_caching_counts counts = tide_caching_counters(p->allocator);
    r->reserved_peak =
        larger(r->reserved_peak, tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).peak);
    r->retries = counts.alloc_retries + p->repeating.unplayed + p->outer.unplayed;
    r->ooms = counts.ooms;
    count_segments(r, p->allocator);
}

void tide_player_close(tide_player *p) {
    tide_player_finish(p);
    tide_caching_destroy(p->allocator);
    if (p->pending_streams) tide_arena_drop(p->arena, p->pending_streams), tide_arena_drop(p->arena, p->free_streams);
    tide_player_forget_skipping(p);
    void *of_repetitions[] = {p->repeating.carried, p->repeating.now.at,    p->repeating.then.at,
                              p->repeating.kept,    p->repeating.before.at, p->outer.carried,
                              p->outer.now.at,      p->outer.then.at,       p->at_peak.at};
    for (size_t i = 0; i < TIDE_COUNT_OF(of_repetitions); i++)
        if (of_repetitions[i]) tide_arena_drop(p->arena, of_repetitions[i]);
    tide_cursor_close(&p->cursor, p->arena);
    tide_arena_drop(p->arena, p->blocks);
}

static bool replay_events(tide_player *p, const tide_event_source *source, const tide_replay_config *config,
                          tide_arena *arena) {
    return tide_player_open(p, source, config, arena) && tide_player_run(p, source->event_count);
}

bool tide_replay_all(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                     tide_arena *arena) {
    tide_player p;
    if (!replay_events(&p, source, config, arena) || !tide_player_close_at_peak(&p, config)) return false;
    *replay = p.figures;
    return true;
}

/* Plays up to the peak once more, for the slots that are live then. */
static bool play_to_peak(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                         tide_arena *arena) {
    tide_player p;
    if (!tide_player_open(&p, source, config, arena) ||
        !tide_player_run_to(&p, replay->peak_event + 1, replay->peak_iteration, replay->peak_outer))
        return false;
    for (uint32_t i = 0; i < source->slot_count; i++)
        if (p.blocks[i]) replay->block_bytes[i] = p.figures.block_bytes[i];
    empty_held(source, p.blocks, replay->block_bytes);
    tide_player_close(&p);
    tide_arena_drop(arena, p.figures.block_bytes);
    return true;
}

bool tide_player_close_at_peak(tide_player *p, const tide_replay_config *config) {
    bool is_known = tide_player_knows_peak(p);
    tide_player_close(p);
    return is_known || play_to_peak(&p->figures, p->source, config, p->arena);
}

bool tide_replay_peaks(tide_replay *replay, const tide_event_source *source, const tide_replay_config *config,
                       tide_arena *arena) {
    tide_player p;
    if (!replay_events(&p, source, config, arena)) return false;
    tide_player_close(&p);
    *replay = p.figures;
    tide_arena_drop(arena, replay->block_bytes);
    replay->block_bytes = NULL;
    return true;
}
