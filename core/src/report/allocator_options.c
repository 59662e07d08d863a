/* SPDX-License-Identifier: Apache-2.0 */
/* Playing events again with smaller devices and other options. */
#include "report/allocator_options.h"

#include <string.h>

#include "base/units.h"

static const uint64_t DEVICE_PAGE = UINT64_C(2) << 20;
/* Advice is given if it saves at least this fraction of reserved memory. */
enum { WORTH_A_WORD = 50 };
/* Most events of repetitions that are played while waiting for the state to recur: with max_split_size_mb each
 * micro-batch may reserve more than the one before. */
enum { MOST_OF_ROUNDS = 2000000 };

bool tide_replay_runs(const tide_replay *r) {
    return !r->is_oom && !r->ooms;
}

/* Note [Smallest device]: a device that grows by what each failing request lacks ends up at or near the size in
 * question: that is tried next, and if it is enough, the size one page below. Cached memory that is released when the
 * device is full changes later requests: if that leads to another size, bisection takes over. */
bool tide_smallest_device(uint64_t *bytes, const tide_event_source *source, const tide_replay_config *config,
                          const tide_replay *endless, tide_arena *arena) {
    tide_replay_config on = *config;
    tide_replay replay;
    uint64_t low, high, at, step = 1, fraction = config->fraction_ppm ? (uint64_t)config->fraction_ppm : 1000000;
    low = at = (endless->requested_peak + config->outside_bytes) / DEVICE_PAGE;
    high = (endless->reserved_peak / fraction * 1000000 + config->outside_bytes) / DEVICE_PAGE + 1;
    if (fraction < 1000000) high += 2000000 / DEVICE_PAGE; /* the remainder of the division */
    bool halves = config->fraction_ppm;                    /* a limit does not change with the device */
    on.growing_by = halves ? 0 : DEVICE_PAGE;
    /* It runs on `high` pages, and cannot run on fewer than `low`. */
    while (low < high) {
        if (at >= high || halves) at = halves ? low + (high - low) / 2 : high - 1;
        on.device_bytes = at * DEVICE_PAGE;
        if (!tide_replay_peaks(&replay, source, &on, arena)) return false;
        if (tide_replay_runs(&replay)) {
            halves = halves || at == high - 1;
            high = at--;
        } else {
            low = at + 1;
            at = replay.device_bytes / DEVICE_PAGE;
            if (at < low + step) at = low + step;
            step *= 2;
        }
    }
    *bytes = high * DEVICE_PAGE;
    return true;
}

static const char *const options[] = {"", "expandable_segments:True", "max_split_size_mb:128",
                                      "roundup_power2_divisions:8", "backend:cudaMallocAsync"};

enum { OPTION_COUNT = TIDE_COUNT_OF(options), BRIEF_COUNT = 2 };

/* The result of an option. */
typedef struct tried_option {
    uint64_t reserved_peak; /* on a device without limit */
    bool runs;              /* on the given device */
    bool is_cut;            /* unknown: the state of its repetitions does not recur */
} tried_option;

static bool try_option(tried_option *tried, const tide_event_source *source, const tide_replay_config *config,
                       tide_arena *arena) {
    tide_replay_config on = *config;
    tide_replay replay;
    on.device_bytes = 0;
    if (!tide_replay_peaks(&replay, source, &on, arena)) return false;
    *tried = (tried_option){replay.reserved_peak, tide_replay_runs(&replay), replay.is_cut};
    if (replay.is_cut) return true;
    if (!config->device_bytes ||
        (replay.reserved_peak + config->outside_bytes <= config->device_bytes && !config->fraction_ppm))
        return true;
    if (!tide_replay_peaks(&replay, source, config, arena)) return false;
    tried->runs = tide_replay_runs(&replay);
    tried->is_cut = replay.is_cut;
    return true;
}

/* MiB for small amounts, so that savings can be told apart. */
static const char *amount(tide_arena *arena, uint64_t bytes) {
    if (bytes >= UINT64_C(4) << 30) return tide_gib(arena, bytes);
    return tide_mib(arena, bytes);
}

static void write_option_advice(tide_writer *w, const char *option, uint64_t reserved, const tried_option *then,
                                bool fits_now) {
    uint64_t saves = reserved - then->reserved_peak;
    tide_write_key(w, "advice");
    tide_write_open(w, '{');
    tide_write_string_at(w, "allocator", option);
    tide_write_bytes_at(w, "saves", saves);
    tide_write_string_at(w, "sentence",
                         tide_format(w->arena, "%s%s would reserve %s instead of %s%s",
                                     *option ? "PYTORCH_CUDA_ALLOC_CONF=" : "PyTorch's default options", option,
                                     amount(w->arena, then->reserved_peak), amount(w->arena, reserved),
                                     then->runs && !fits_now ? ", and it would run" : ""));
    tide_write_close(w, '}');
}

uint64_t tide_events_to_play(const tide_event_source *source, const tide_replay *endless) {
    uint64_t count = source->event_count;
    uint64_t outer = 1;
    for (uint32_t i = source->repetition_count, first = i; i-- > 0;) {
        const tide_repetition *r = &source->repetitions[i];
        if (i < first) outer = 1; /* from `first` on they are inside of one with so many iterations */
        if (r->growth || r->held_count || r->unwinds) count += outer * r->times * (r->last_event - r->first_event);
        if (r->inner) first = i - r->inner, outer = 1 + (uint64_t)r->times;
    }
    uint64_t played = endless->events + endless->replayed;
    return count > played ? count : played;
}

/* No option reserves less than what is requested at once. */
static bool may_save(const tide_replay *endless) {
    return endless->reserved_peak - endless->requested_peak >= endless->reserved_peak / WORTH_A_WORD;
}

bool tide_write_options(tide_writer *w, const tide_event_source *source, const tide_replay_config *config,
                        const tide_replay *endless, const char *conf, bool fits_now, bool is_brief) {
    tried_option tried[OPTION_COUNT];
    tide_replay_config on = *config;
    uint64_t reserved = endless->reserved_peak;
    int best = -1;
    on.most_events = 2 * tide_events_to_play(source, endless) + MOST_OF_ROUNDS;
    int count = !is_brief ? OPTION_COUNT : may_save(endless) || !fits_now ? BRIEF_COUNT : 0;
    tide_write_key(w, "options");
    tide_write_open(w, '[');
    for (int i = 0; i < count; i++) {
        if (strcmp(options[i], conf) == 0) continue;
        tide_alloc_conf_parse(&on.conf, TIDE_ALLOC_TORCH_MAIN, options[i], strlen(options[i]), NULL);
        if (!try_option(&tried[i], source, &on, w->arena)) return false;
        if (tried[i].is_cut) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "allocator", options[i]);
        tide_write_bytes_at(w, "reserved_peak", tried[i].reserved_peak);
        tide_write_int_at(w, "change", (int64_t)(tried[i].reserved_peak - reserved));
        if (config->device_bytes) tide_write_bool_at(w, "fits", tried[i].runs);
        if (on.conf.is_approximate) tide_write_bool_at(w, "is_approximate", true);
        tide_write_close(w, '}');
        if (on.conf.is_approximate || tried[i].runs < fits_now) continue;
        if (best < 0 || tried[i].reserved_peak < tried[best].reserved_peak) best = i;
    }
    tide_write_close(w, ']');
    if (best < 0 || tried[best].reserved_peak >= reserved) return true;
    if (reserved - tried[best].reserved_peak >= reserved / WORTH_A_WORD || tried[best].runs > fits_now)
        write_option_advice(w, options[best], reserved, &tried[best], fits_now);
    return true;
}
