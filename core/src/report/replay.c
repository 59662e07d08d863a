/* Replaying a timeline. */
#include "report/replay.h"

static const uint64_t ENDLESS_DEVICE = UINT64_C(1) << 52;

void tide_settle_factors(tide_timeline *timeline) {
    uint32_t mark = 0;
    for (uint32_t i = 0; i < timeline->allocation_count; i++) {
        tide_allocation *a = &timeline->allocations[i];
        while (mark < timeline->mark_count && timeline->marks[mark].event <= a->born) mark++;
        if (a->factor != TIDE_FACTOR_TEMPORARY || mark == timeline->mark_count) continue;
        const tide_mark *end = &timeline->marks[mark];
        if (end->phase == TIDE_PHASE_FORWARD && a->died > end->event) a->factor = TIDE_FACTOR_ACTIVATION;
    }
}

/* Follows the marks: the peak since the last one goes to its phase. */
typedef struct phases {
    tide_replay *replay;
    const tide_timeline *timeline;
    uint32_t mark;
    uint64_t peak; /* of allocated, since the last mark */
} phases;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void pass_mark(phases *p, const tide_mark *mark, uint64_t allocated, uint64_t reserved) {
    tide_replay *r = p->replay;
    uint64_t peak = larger(p->peak, allocated);
    p->peak = allocated;
    if (mark->step == 0 || mark->step > TIDE_STEP_LIMIT) return;
    tide_step_figures *s = &r->steps[mark->step - 1];
    if (mark->step > r->step_count) r->step_count = mark->step;
    switch ((tide_phase)mark->phase) {
    case TIDE_PHASE_LOAD:
        s->before = allocated;
        return;
    case TIDE_PHASE_FORWARD:
        s->peak_forward = larger(s->peak_forward, peak);
        s->after_forward = allocated;
        break;
    case TIDE_PHASE_BACKWARD:
        s->peak_backward = larger(s->peak_backward, peak);
        s->after_backward = allocated;
        break;
    case TIDE_PHASE_OPTIMIZER:
        s->peak_optimizer = peak;
        s->after_step = allocated;
        break;
    case TIDE_PHASE_PREFILL:
        s->peak_prefill = peak;
        s->after_prefill = allocated;
        break;
    case TIDE_PHASE_DECODE:
        s->peak_decode = peak;
        s->after_decode = allocated;
        break;
    case TIDE_PHASE_END:
        s->after_step = allocated;
        break;
    case TIDE_PHASE_COUNT:
        return;
    }
    s->allocated_peak = larger(s->allocated_peak, peak);
    s->reserved_peak = r->reserved_peak;
    s->reserved = reserved;
}

static void pass_marks(phases *p, uint32_t event, uint64_t allocated, uint64_t reserved) {
    while (p->mark < p->timeline->mark_count && p->timeline->marks[p->mark].event <= event)
        pass_mark(p, &p->timeline->marks[p->mark++], allocated, reserved);
}

static void count_segments(tide_replay *r, const tide_caching_allocator *allocator) {
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    while (tide_caching_next_segment(allocator, &cursor, &segment)) {
        if (segment.is_small)
            r->small_segments++, r->small_bytes += segment.bytes;
        else
            r->large_segments++, r->large_bytes += segment.bytes;
    }
}

bool tide_replay_allocator(tide_caching_allocator **allocator, tide_allocator memory, const tide_replay_config *config,
                           bool is_lean) {
    tide_caching_config setup = {.memory = memory,
                                 .conf = config->conf,
                                 .device_bytes = config->device_bytes ? config->device_bytes : ENDLESS_DEVICE,
                                 .outside_bytes = config->outside_bytes,
                                 .is_lean = is_lean};
    if (tide_caching_create(allocator, &setup) != TIDE_CACHING_OK) return false;
    if (config->fraction_ppm) tide_caching_set_fraction(*allocator, (double)config->fraction_ppm / 1e6);
    return true;
}

/* Plays one event; a block is 0 while it is not held. */
static inline tide_caching_status play_event(tide_caching_allocator *allocator, const tide_timeline *timeline,
                                             uint32_t event, tide_block *blocks) {
    if (event == TIDE_EMPTY_CACHE) return tide_caching_empty_cache(allocator);
    uint32_t which = event & ~TIDE_FREE_BIT;
    const tide_allocation *a = &timeline->allocations[which];
    if (!(event & TIDE_FREE_BIT)) return tide_caching_malloc(allocator, a->bytes, a->stream, &blocks[which]);
    tide_block block = blocks[which];
    blocks[which] = 0;
    if (a->used_by) tide_caching_record_stream(allocator, block, a->used_by - 1u);
    return tide_caching_free(allocator, block);
}

/* What follows the allocator, event by event. */
typedef struct follower {
    tide_replay *replay;
    phases phases;
    uint64_t allocated, reserved, requested;
} follower;

/* An allocation got its block. */
static void rise(follower *f, tide_caching_allocator *allocator, uint32_t event, uint32_t which, uint64_t block_bytes,
                 uint64_t bytes) {
    tide_replay *replay = f->replay;
    replay->block_bytes[which] = block_bytes;
    f->allocated += block_bytes;
    f->requested += bytes;
    if (f->requested > replay->requested_peak) replay->requested_peak = f->requested;
    f->reserved = tide_caching_reserved(allocator);
    if (f->allocated > f->phases.peak) f->phases.peak = f->allocated;
    if (f->allocated > replay->allocated_peak) {
        replay->allocated_peak = f->allocated;
        replay->peak_event = event;
    }
    if (f->reserved > replay->reserved_peak) {
        replay->reserved_peak = f->reserved;
        replay->reserved_event = event;
    }
}

static void keep_curve(const follower *f, uint32_t event) {
    if (!f->replay->allocated) return;
    f->replay->allocated[event] = f->allocated;
    f->replay->reserved[event] = f->reserved;
}

/* Whether an allocation is freed by the very next event, before a phase ends. */
static bool is_touch(const follower *f, uint32_t i) {
    const tide_timeline *t = f->phases.timeline;
    return i + 1 < t->event_count && t->events[i + 1] == (t->events[i] | TIDE_FREE_BIT) &&
           !t->allocations[t->events[i]].used_by &&
           !(f->phases.mark < t->mark_count && t->marks[f->phases.mark].event <= i + 1);
}

bool tide_replay_timeline(tide_replay *replay, const tide_timeline *timeline, const tide_replay_config *config,
                          bool keeps_curve) {
    tide_arena *arena = timeline->arena;
    *replay = (tide_replay){.block_bytes = TIDE_NEW(arena, uint64_t, timeline->allocation_count + 1)};
    if (keeps_curve) {
        replay->allocated = TIDE_NEW(arena, uint64_t, timeline->event_count + 1);
        replay->reserved = TIDE_NEW(arena, uint64_t, timeline->event_count + 1);
    }
    tide_block *blocks = TIDE_NEW(arena, tide_block, timeline->allocation_count + 1);
    tide_caching_allocator *allocator;
    if (!tide_replay_allocator(&allocator, arena->memory, config, true)) return false;
    follower f = {.replay = replay, .phases = {replay, timeline, 0, 0}};
    uint32_t i = 0;
    bool has_memory = true;
    for (; i < timeline->event_count; i++) {
        if (f.phases.mark < timeline->mark_count && timeline->marks[f.phases.mark].event <= i)
            pass_marks(&f.phases, i, f.allocated, f.reserved);
        uint32_t event = timeline->events[i], which = event & ~TIDE_FREE_BIT;
        const tide_allocation *a = event == TIDE_EMPTY_CACHE ? NULL : &timeline->allocations[which];
        bool is_free = event & TIDE_FREE_BIT, is_touched = a && !is_free && is_touch(&f, i);
        uint64_t touched = 0;
        tide_caching_status status = is_touched ? tide_caching_touch(allocator, a->bytes, a->stream, &touched)
                                                : play_event(allocator, timeline, event, blocks);
        if (a && is_free) {
            f.allocated -= replay->block_bytes[which];
            f.requested -= a->bytes;
        } else if (status != TIDE_CACHING_OK) {
            has_memory = a && status == TIDE_CACHING_OOM;
            replay->is_oom = has_memory;
            replay->oom_allocation = which;
            replay->oom = tide_caching_oom_info(allocator);
            break;
        } else if (a) {
            rise(&f, allocator, i, which, is_touched ? touched : tide_caching_block_bytes(allocator, blocks[which]),
                 a->bytes);
        } else {
            f.reserved = tide_caching_reserved(allocator);
        }
        keep_curve(&f, i);
        if (!is_touched) continue;
        f.allocated -= touched;
        f.requested -= a->bytes;
        keep_curve(&f, ++i);
    }
    replay->events = i;
    if (!replay->is_oom) pass_marks(&f.phases, timeline->event_count, f.allocated, f.reserved);
    tide_stat held = tide_caching_stat(allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL);
    replay->reserved_peak = larger(replay->reserved_peak, held.peak);
    tide_caching_counts counts = tide_caching_counters(allocator);
    replay->retries = counts.alloc_retries;
    replay->ooms = counts.ooms;
    count_segments(replay, allocator);
    tide_caching_destroy(allocator);
    return has_memory;
}

bool tide_replay_span(tide_caching_allocator *allocator, const tide_timeline *timeline, uint32_t first, uint32_t last,
                      tide_block *blocks) {
    for (uint32_t i = first; i <= last && i < timeline->event_count; i++) {
        tide_caching_status status = play_event(allocator, timeline, timeline->events[i], blocks);
        if (status != TIDE_CACHING_OK) return status == TIDE_CACHING_OOM;
    }
    return true;
}
