/* Plays again: smaller devices, other options. */
#include "report/whatif.h"

#include <string.h>

#include "base/units.h"
#include "report/report.h"

static const uint64_t DEVICE_PAGE = UINT64_C(2) << 20;
/* Advice is given for a saving of at least this part of what is reserved. */
enum { WORTH_A_WORD = 50 };

bool tide_smallest_device(uint64_t *bytes, const tide_event_source *what, const tide_replay_config *config) {
    tide_replay_config on = *config;
    tide_what_if trial;
    uint64_t low, high, fraction = config->fraction_ppm ? (uint64_t)config->fraction_ppm : 1000000;
    on.device_bytes = 0;
    if (!what->play(&trial, what->of, &on)) return false;
    low = (trial.requested_peak + config->outside_bytes) / DEVICE_PAGE;
    high = (trial.reserved_peak / fraction * 1000000 + config->outside_bytes) / DEVICE_PAGE + 1;
    if (fraction < 1000000) high += 2000000 / DEVICE_PAGE; /* the division's rest */
    /* On `high` pages it runs; on fewer than `low` it cannot. */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        on.device_bytes = middle * DEVICE_PAGE;
        if (!what->play(&trial, what->of, &on)) return false;
        if (trial.runs)
            high = middle;
        else
            low = middle + 1;
    }
    *bytes = high * DEVICE_PAGE;
    return true;
}

static const char *const options[] = {"", "expandable_segments:True", "max_split_size_mb:128",
                                      "roundup_power2_divisions:8", "backend:cudaMallocAsync"};

enum { OPTION_COUNT = TIDE_COUNT_OF(options) };

/* Peaks on a device without limit; whether it runs on the one that there is. */
static bool try_option(tide_what_if *trial, const tide_event_source *what, const tide_replay_config *config) {
    tide_replay_config on = *config;
    tide_what_if there;
    on.device_bytes = 0;
    if (!what->play(trial, what->of, &on)) return false;
    if (!config->device_bytes ||
        (trial->reserved_peak + config->outside_bytes <= config->device_bytes && !config->fraction_ppm))
        return true;
    if (!what->play(&there, what->of, config)) return false;
    trial->runs = there.runs;
    trial->retries = there.retries;
    return true;
}

/* MiB for what is small: savings are told apart. */
static const char *amount(tide_arena *arena, uint64_t bytes) {
    if (bytes >= UINT64_C(4) << 30) return tide_gib(arena, bytes);
    return tide_mib(arena, bytes);
}

static void write_advice(tide_writer *w, const char *option, const tide_what_if *now, const tide_what_if *then,
                         bool fits_now) {
    uint64_t saves = now->reserved_peak - then->reserved_peak;
    tide_write_key(w, "advice");
    tide_write_open(w, '{');
    tide_write_string_at(w, "allocator", option);
    tide_write_bytes_at(w, "saves", saves);
    tide_write_string_at(w, "sentence",
                         tide_format(w->arena, "%s%s would reserve %s in place of %s%s",
                                     *option ? "PYTORCH_CUDA_ALLOC_CONF=" : "PyTorch's default options", option,
                                     amount(w->arena, then->reserved_peak), amount(w->arena, now->reserved_peak),
                                     then->runs && !fits_now ? ", and it would run" : ""));
    tide_write_close(w, '}');
}

bool tide_write_options(tide_writer *w, const tide_event_source *what, const tide_replay_config *config,
                        const char *conf, bool fits_now) {
    tide_what_if now, trials[OPTION_COUNT];
    tide_replay_config on = *config;
    int best = -1;
    if (!try_option(&now, what, config)) return false;
    tide_write_key(w, "options");
    tide_write_open(w, '[');
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strcmp(options[i], conf) == 0) continue;
        tide_alloc_conf_parse(&on.conf, TIDE_ALLOC_TORCH_MAIN, options[i], strlen(options[i]), NULL);
        if (!try_option(&trials[i], what, &on)) return false;
        tide_write_open(w, '{');
        tide_write_string_at(w, "allocator", options[i]);
        tide_write_bytes_at(w, "reserved_peak", trials[i].reserved_peak);
        tide_write_int_at(w, "change", (int64_t)(trials[i].reserved_peak - now.reserved_peak));
        if (config->device_bytes) tide_write_bool_at(w, "fits", trials[i].runs);
        if (on.conf.is_approximate) tide_write_bool_at(w, "is_approximate", true);
        tide_write_close(w, '}');
        if (on.conf.is_approximate || trials[i].runs < fits_now) continue;
        if (best < 0 || trials[i].reserved_peak < trials[best].reserved_peak) best = i;
    }
    tide_write_close(w, ']');
    if (best < 0 || trials[best].reserved_peak >= now.reserved_peak) return true;
    if (now.reserved_peak - trials[best].reserved_peak >= now.reserved_peak / WORTH_A_WORD ||
        trials[best].runs > fits_now)
        write_advice(w, options[best], &now, &trials[best], fits_now);
    return true;
}
