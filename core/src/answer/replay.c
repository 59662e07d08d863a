/* Replaying a timeline. */
#include "replay.h"

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
    case TIDE_PHASE_LOAD: s->before = allocated; return;
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
    case TIDE_PHASE_END: s->after_step = allocated; break;
    case TIDE_PHASE_COUNT: return;
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
        if (segment.is_small) r->small_segments++, r->small_bytes += segment.bytes;
        else r->large_segments++, r->large_bytes += segment.bytes;
    }
}

bool tide_replay_allocator(tide_caching_allocator **allocator, tide_allocator memory, const tide_replay_config *config, bool is_lean) {
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
static inline tide_caching_status play_event(tide_caching_allocator *allocator, const tide_timeline *timeline, uint32_t event, tide_block *blocks) {
    if (event == TIDE_EMPTY_CACHE) return tide_caching_empty_cache(allocator);
    uint32_t which = event & ~TIDE_FREE_BIT;
    const tide_allocation *a = &timeline->allocations[which];
    if (!(event & TIDE_FREE_BIT)) return tide_caching_malloc(allocator, a->bytes, a->stream, &blocks[which]);
    tide_block block = blocks[which];
    blocks[which] = 0;
    if (a->used_by) tide_caching_record_stream(allocator, block, a->used_by - 1u);
    return tide_caching_free(allocator, block);
}

bool tide_replay_timeline(tide_replay *replay, const tide_timeline *timeline, const tide_replay_config *config, bool keeps_curve) {
    tide_arena *arena = timeline->arena;
    *replay = (tide_replay){.block_bytes = TIDE_NEW(arena, uint64_t, timeline->allocation_count + 1)};
    if (keeps_curve) {
        replay->allocated = TIDE_NEW(arena, uint64_t, timeline->event_count + 1);
        replay->reserved = TIDE_NEW(arena, uint64_t, timeline->event_count + 1);
    }
    tide_block *blocks = TIDE_NEW(arena, tide_block, timeline->allocation_count + 1);
    tide_caching_allocator *allocator;
    if (!tide_replay_allocator(&allocator, arena->memory, config, true)) return false;
    phases p = {replay, timeline, 0, 0};
    uint64_t allocated = 0, reserved = 0, requested = 0;
    uint32_t i = 0;
    bool has_memory = true;
    for (; i < timeline->event_count; i++) {
        if (p.mark < timeline->mark_count && timeline->marks[p.mark].event <= i) pass_marks(&p, i, allocated, reserved);
        uint32_t event = timeline->events[i], which = event & ~TIDE_FREE_BIT;
        tide_caching_status status = play_event(allocator, timeline, event, blocks);
        if (event == TIDE_EMPTY_CACHE) {
            if (status != TIDE_CACHING_OK) {
                has_memory = false;
                break;
            }
            reserved = tide_caching_stat(allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current;
        } else if (event & TIDE_FREE_BIT) {
            allocated -= replay->block_bytes[which];
            requested -= timeline->allocations[which].bytes;
        } else {
            const tide_allocation *a = &timeline->allocations[which];
            if (status != TIDE_CACHING_OK) {
                replay->is_oom = status == TIDE_CACHING_OOM;
                has_memory = replay->is_oom;
                replay->oom_allocation = which;
                replay->oom = tide_caching_oom_info(allocator);
                break;
            }
            replay->block_bytes[which] = tide_caching_block_bytes(allocator, blocks[which]);
            allocated += replay->block_bytes[which];
            requested += a->bytes;
            if (requested > replay->requested_peak) replay->requested_peak = requested;
            reserved = tide_caching_stat(allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current;
            if (allocated > p.peak) p.peak = allocated;
            if (allocated > replay->allocated_peak) {
                replay->allocated_peak = allocated;
                replay->peak_event = i;
            }
            if (reserved > replay->reserved_peak) {
                replay->reserved_peak = reserved;
                replay->reserved_event = i;
            }
        }
        if (keeps_curve) {
            replay->allocated[i] = allocated;
            replay->reserved[i] = reserved;
        }
    }
    replay->events = i;
    if (!replay->is_oom) pass_marks(&p, timeline->event_count, allocated, reserved);
    tide_stat held = tide_caching_stat(allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL);
    replay->reserved_peak = larger(replay->reserved_peak, held.peak);
    tide_caching_counts counts = tide_caching_counters(allocator);
    replay->retries = counts.alloc_retries;
    replay->ooms = counts.ooms;
    count_segments(replay, allocator);
    tide_caching_destroy(allocator);
    return has_memory;
}

bool tide_replay_until(tide_caching_allocator *allocator, const tide_timeline *timeline, uint32_t last, tide_block *blocks) {
    for (uint32_t i = 0; i <= last && i < timeline->event_count; i++) {
        tide_caching_status status = play_event(allocator, timeline, timeline->events[i], blocks);
        if (status != TIDE_CACHING_OK) return status == TIDE_CACHING_OOM;
    }
    return true;
}
