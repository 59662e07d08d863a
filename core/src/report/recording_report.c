/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a recording, what was live at its peak, and the effect of other options. */
#include "report/recording_report.h"

#include <stdlib.h>
#include <string.h>

#include "report/allocator_options.h"
#include "report/members.h"
#include "report/recorded_events.h"
#include "report/timeline_columns.h"
#include "tensor/ops/ops.h"

enum { GROUPS = 20, GROUP_FRAMES = 12 };

/* ---- what is played on what ---- */

static const tide_tape *choose_tape(tide_recording *r, int64_t device, uint32_t *number) {
    *number = 0;
    for (uint32_t i = 0; i < r->device_count; i++)
        if (device == (int64_t)i || (device < 0 && r->tapes[i].event_count > r->tapes[*number].event_count))
            *number = i;
    bool has_it = r->device_count && (device < 0 || *number == (uint32_t)device);
    return has_it && (r->tapes[*number].event_count || r->tapes[*number].older_block_count) ? &r->tapes[*number] : NULL;
}

/* Whether the cache can serve the request after `event`: allocates it and frees it again. */
static bool has_cached(tide_player *p, uint32_t event) {
    const tide_tape *t = p->source->of;
    tide_block block;
    if (event + 1 == t->event_count || t->events[event + 1] >> TIDE_TAPE_SHIFT != TIDE_EVENT_ALLOC) return false;
    const tide_call_site *site = &t->sites[t->events[event + 1] & TIDE_TAPE_MASK];
    uint64_t before = tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).allocated;
    if (tide_caching_malloc(p->allocator, site->bytes, site->stream, &block) != TIDE_CACHING_OK) return false;
    tide_caching_free(p->allocator, block);
    return tide_caching_stat(p->allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).allocated == before;
}

/* Plays as far as there are releases that a request may have caused. */
static bool play_releases(const tide_recorded_play *e, tide_arena *arena) {
    const tide_tape *t = e->tape;
    tide_replay_config config = e->as_recorded;
    tide_player p;
    config.keeps_statistics = true;
    if (!tide_player_open(&p, &e->events.source, &config, arena)) return false;
    for (uint32_t i = 0; i < t->event_count && !p.figures.is_oom; i++) {
        if (t->events[i] >> TIDE_TAPE_SHIFT != TIDE_EVENT_RELEASE) continue;
        tide_cache_release *release = &t->releases[t->events[i] & TIDE_TAPE_MASK];
        if (!tide_player_run(&p, i)) return false;
        if (p.figures.is_oom || !release->need || release->need == UINT64_MAX) continue;
        if (has_cached(&p, i)) release->need = 0;
    }
    tide_player_close(&p);
    tide_arena_drop(arena, p.figures.block_bytes);
    return true;
}

/* Determines who released segments, as far as possible; see Note [Who released segments]. */
static bool settle_releases(const tide_recorded_play *e, tide_arena *arena) {
    const tide_tape *t = e->tape;
    for (uint32_t i = 0; i < t->release_count; i++) {
        if (e->as_recorded.conf.garbage_collection_threshold > 0 && t->releases[i].need)
            t->releases[i].need = UINT64_MAX;
        else if (e->recording->never_retried)
            t->releases[i].need = 0;
    }
    return !t->release_count || play_releases(e, arena);
}

/* The capacity that the allocator had, as recorded or inferred from its failures. 0: without limit. */
static uint64_t recorded_device(const tide_tape *t, const tide_recording *r) {
    if (r->device_bytes) return r->device_bytes;
    if (t->is_limited) return (t->reserved_peak ? t->reserved_peak : 1) + r->outside_bytes;
    if (t->oom_room) return t->oom_room + r->outside_bytes;
    for (uint32_t i = 0; i < t->release_count; i++)
        if (t->releases[i].need > t->reserved_peak && t->releases[i].need != UINT64_MAX)
            return t->reserved_peak + r->outside_bytes;
    return 0;
}

static bool gives_allocator(const tide_job *job) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (strcmp(job->rows[i].name, "allocator") == 0) return true;
    return false;
}

/* As recorded, overridden by the job. */
static tide_replay_config config_of(const tide_recorded_play *e, const tide_job *job) {
    tide_replay_config config = e->as_recorded;
    if (gives_allocator(job)) config.conf = job->allocator_conf;
    if (job->memory_fraction_ppm) config.fraction_ppm = job->memory_fraction_ppm;
    if (job->device_bytes) {
        config.device_bytes = job->device_bytes;
        config.outside_bytes = job->has_gpu ? job->gpu.context_bytes : e->recording->outside_bytes;
    }
    return config;
}

/* Sets the size of cuBLAS's workspace to that of the GPU. */
static void settle_workspaces(const tide_tape *t, const tide_job *job) {
    if (t->workspace_site)
        t->sites[t->workspace_site - 1].bytes = (uint64_t)tide_cublas_workspace((int)job->capability);
}

static bool report_nothing(const tide_recording *r, int64_t device, tide_diagnostics *diags) {
    const char *what = r->broken
                           ? tide_format(diags->arena, "%s (at byte %llu)", r->broken, (unsigned long long)r->broken_at)
                       : device >= 0 ? "nothing was recorded on this device"
                                     : "contains no allocations";
    const char *remedy = r->remedy     ? r->remedy
                         : device >= 0 ? "without a device, the busiest one is played"
                                       : "torch.cuda.memory._record_memory_history(), or profile_memory=True, records "
                                         "them";
    return tide_error(diags, TIDE_ERR_RECORDING, "/recording", what, remedy);
}

bool tide_recorded_open(tide_recorded_play *e, tide_recording *r, const tide_job *job, int64_t device,
                        tide_diagnostics *diags) {
    *e = (tide_recorded_play){.recording = r, .conf = r->allocator ? r->allocator : ""};
    e->tape = choose_tape(r, device, &e->device);
    if (!e->tape) return report_nothing(r, device, diags);
    e->events = tide_recorded_events(r, e->tape);
    e->as_recorded = (tide_replay_config){.device_bytes = recorded_device(e->tape, r),
                                          .outside_bytes = r->outside_bytes,
                                          .fraction_ppm = r->memory_fraction_ppm};
    if (!tide_alloc_conf_parse(&e->as_recorded.conf, TIDE_ALLOC_TORCH_MAIN, e->conf, strlen(e->conf), NULL))
        r->unreadable++;
    settle_workspaces(e->tape, job);
    if (!settle_releases(e, diags->arena)) return false;
    e->as_recorded.device_bytes = recorded_device(e->tape, r); /* which the releases may reveal */
    e->config = config_of(e, job);
    return true;
}

/* ---- what is live at the peak ---- */

typedef struct live_group {
    uint64_t bytes, requested;
    uint32_t stack, frame, count;
} live_group;

static int by_frame(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
    return x->requested < y->requested ? -1 : x->requested > y->requested;
}

/* A total order: the first stack of a group is the one that is shown. */
static int by_frame_and_stack(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    int order = by_frame(a, b);
    if (order || x->stack == y->stack) return order;
    return x->stack < y->stack ? -1 : 1;
}

static int by_live_bytes(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return by_frame(a, b);
}

/* Joins blocks with the same frame and size, largest first. Returns the number of groups. */
static uint32_t join_groups(live_group *groups, uint32_t count) {
    uint32_t joined = 0;
    if (!count) return 0;
    qsort(groups, count, sizeof *groups, by_frame_and_stack);
    for (uint32_t i = 1; i < count; i++) {
        if (by_frame(&groups[joined], &groups[i]) != 0) {
            groups[++joined] = groups[i];
        } else {
            groups[joined].bytes += groups[i].bytes;
            groups[joined].count++;
        }
    }
    qsort(groups, joined + 1, sizeof *groups, by_live_bytes);
    return joined + 1;
}

/* Plays up to the peak again, and describes what is live there. */
static bool find_groups_at(live_group **groups, uint32_t *count, const tide_recorded_play *e, uint32_t event,
                           tide_arena *arena) {
    tide_player p;
    live_group *found = *groups = TIDE_NEW(arena, live_group, e->events.source.slot_count + 1);
    *count = 0;
    if (!tide_player_open(&p, &e->events.source, &e->config, arena) || !tide_player_run(&p, event + 1)) return false;
    tide_player_catch_up(&p);
    for (uint32_t slot = 0; slot < e->events.source.slot_count; slot++) {
        if (!p.blocks[slot]) continue;
        const tide_call_site *site = &e->tape->sites[e->events.source.reader->request_of(&p.cursor, slot)];
        found[(*count)++] = (live_group){p.figures.block_bytes[slot], site->bytes, site->stack,
                                         tide_frame_name(e->recording, site->stack), 1};
    }
    tide_player_close(&p);
    tide_arena_drop(arena, p.figures.block_bytes);
    *count = join_groups(found, *count);
    return true;
}

static void write_frames_at(tide_writer *w, const tide_recording *r, uint32_t stack) {
    tide_write_key(w, "frames");
    tide_write_frames(w, r, stack, GROUP_FRAMES);
}

static void write_live(tide_writer *w, const tide_recording *r, const live_group *groups, uint32_t count) {
    uint64_t rest = 0;
    tide_write_open_at(w, "live_at_peak", '[');
    for (uint32_t i = 0; i < count; i++) {
        const live_group *g = &groups[i];
        if (i >= GROUPS) {
            rest += g->bytes;
            continue;
        }
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "bytes", g->bytes);
        tide_write_int_at(w, "count", g->count);
        tide_write_bytes_at(w, "requested", g->requested);
        tide_write_key(w, "frame");
        tide_write_text(w, g->frame ? r->names.names[g->frame] : TIDE_TEXT(""));
        write_frames_at(w, r, g->stack);
        tide_write_close(w, '}');
    }
    tide_write_rest(w, rest);
}

/* ---- the parts of the answer ---- */

static void write_stats(tide_writer *w, const tide_memory_stats *stats) {
    tide_write_open_at(w, "said", '{');
    tide_write_bytes_at(w, "allocated_peak", stats->allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", stats->reserved_peak);
    tide_write_bytes_at(w, "allocated", stats->allocated);
    tide_write_bytes_at(w, "reserved", stats->reserved);
    tide_write_int_at(w, "retries", (int64_t)stats->retries);
    tide_write_int_at(w, "ooms", (int64_t)stats->ooms);
    tide_write_close(w, '}');
}

static void write_source(tide_writer *w, const tide_recorded_play *e) {
    const tide_recording *r = e->recording;
    const tide_tape *t = e->tape;
    tide_write_open_at(w, "recording", '{');
    tide_write_string_at(w, "format", r->format);
    if (r->source) tide_write_string_at(w, "source", r->source);
    tide_write_bool_at(w, "is_whole", !r->broken);
    tide_write_bool_at(w, "is_estimate", r->is_cpu);
    tide_write_int_at(w, "devices", r->device_count);
    tide_write_int_at(w, "device", e->device);
    tide_write_int_at(w, "requests", (int64_t)t->requests);
    tide_write_int_at(w, "frees", (int64_t)t->frees);
    tide_write_int_at(w, "before", t->older_block_count);
    tide_write_string_at(w, "allocator", e->conf);
    if (t->has_segments) tide_write_bytes_at(w, "reserved_peak", t->reserved_peak);
    if (r->has_stats) write_stats(w, &r->stats);
    tide_write_close(w, '}');
}

/* What an estimate from a run without a GPU corrects, and what it cannot. */
static void write_differences(tide_writer *w, const tide_recording *r) {
    if (!r->is_cpu) return;
    tide_write_open_at(w, "differences", '[');
    for (uint32_t i = 0; i < r->note_count; i++) tide_write_string(w, r->notes[i]);
    tide_write_close(w, ']');
}

static void write_recorded_figures(tide_writer *w, const tide_replay *p) {
    tide_write_string_at(w, "outcome", tide_replay_runs(p) ? "ok" : "oom");
    tide_write_bytes_at(w, "allocated_peak", p->allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", p->reserved_peak);
    tide_write_bytes_at(w, "allocated", p->allocated);
    tide_write_bytes_at(w, "reserved", p->reserved);
    tide_write_int_at(w, "retries", (int64_t)p->retries);
    tide_write_int_at(w, "ooms", (int64_t)p->ooms);
    tide_write_int_at(w, "peak_event", p->peak_event);
    tide_write_open_at(w, "fragmentation", '{');
    tide_write_bytes_at(w, "bytes", p->reserved_peak - p->allocated_peak);
    tide_write_bytes_at(w, "allocated_at_reserved_peak", p->allocated_then);
    tide_write_bytes_at(w, "cached_in_used_segments", p->split_then);
    tide_write_close(w, '}');
}

static bool write_recorded_verdict(tide_writer *w, const tide_recorded_play *e, const tide_replay *p,
                                   const tide_replay *endless) {
    uint64_t smallest;
    if (!tide_smallest_device(&smallest, &e->events.source, &e->config, endless, w->arena)) return false;
    tide_write_open_at(w, "verdict", '{');
    tide_write_key(w, "fits");
    if (e->config.device_bytes)
        tide_write_bool(w, tide_replay_runs(p));
    else
        tide_write_null(w);
    tide_write_bytes_at(w, "gpu_bytes", e->config.device_bytes);
    tide_write_bytes_at(w, "outside_bytes", e->config.outside_bytes);
    tide_write_bytes_at(w, "smallest_device_bytes", smallest);
    if (p->is_oom) {
        tide_write_open_at(w, "oom", '{');
        tide_write_int_at(w, "event", p->events);
        tide_write_bytes_at(w, "requested", p->oom.requested_bytes);
        tide_write_oom(w, &p->oom);
        write_frames_at(w, e->recording, e->tape->sites[p->oom_request].stack);
        tide_write_close(w, '}');
    }
    tide_write_close(w, '}');
    return true;
}

/* Plays all events, with those of [from, to) as columns. */
typedef struct recorded_columns {
    tide_column *columns;
    uint32_t count, from, to;
} recorded_columns;

static recorded_columns make_columns(const tide_recorded_play *e, uint32_t from, uint32_t to, tide_arena *arena) {
    recorded_columns c = {.to = to < e->events.source.event_count ? to : e->events.source.event_count};
    c.from = from < c.to ? from : c.to;
    uint32_t events = c.to - c.from;
    c.count = events < TIDE_COLUMNS ? events : TIDE_COLUMNS;
    c.columns = TIDE_NEW(arena, tide_column, c.count + 1);
    for (uint32_t i = 0; i < c.count; i++)
        c.columns[i].from = c.from + (uint32_t)(((uint64_t)i * events + c.count - 1) / c.count);
    return c;
}

/* Columns after a failed request were not played, and have no time. */
static void write_recorded_columns(tide_writer *w, const tide_recorded_play *e, const recorded_columns *c,
                                   uint32_t played) {
    tide_open_columns(w, e->events.source.event_count, c->from, c->to);
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t last = (i + 1 < c->count ? c->columns[i + 1].from : c->to) - 1;
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", c->columns[i].from);
        tide_write_bytes_at(w, "allocated", c->columns[i].allocated);
        tide_write_bytes_at(w, "reserved", c->columns[i].reserved);
        uint64_t us;
        tide_time_at(e->tape, last < played ? last : played, &us);
        if (e->tape->time_count && c->columns[i].from <= played) tide_write_bytes_at(w, "us", us);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_close(w, '}');
}

static bool play_columns(tide_replay *replay, const tide_recorded_play *e, const recorded_columns *c, uint32_t until,
                         tide_arena *arena) {
    tide_player p;
    tide_replay_config config = e->config;
    config.keeps_statistics = true;
    if (!tide_player_open(&p, &e->events.source, &config, arena) ||
        !tide_player_columns(&p, c->columns, c->count, c->to) || !tide_player_run(&p, until))
        return false;
    tide_player_close(&p);
    tide_arena_drop(arena, p.figures.block_bytes);
    *replay = p.figures;
    return true;
}

/* Warns about limits of this answer's accuracy. */
static void report_doubts(const tide_recording *r, const tide_tape *t, const tide_replay_config *config,
                          tide_diagnostics *diags) {
    tide_arena *arena = diags->arena;
    if (r->broken)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    tide_format(arena, "%s (at byte %llu); what comes before is played", r->broken,
                                (unsigned long long)r->broken_at),
                    r->remedy);
    if (t->older_block_count)
        tide_report(
            diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
            tide_format(
                arena,
                t->older_segment_count
                    ? "%u blocks are older than the recording: they are placed as in the snapshot, or with other "
                      "options one after the other"
                    : "%u blocks are older than the recording: they are allocated one after the other at its "
                      "beginning",
                (unsigned)t->older_block_count),
            "record from the start of the process, with more max_entries");
    if (t->doubled || t->unknown_frees || r->unreadable)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    tide_format(arena,
                                "%llu frees are missing, %llu are of unknown blocks, %llu records cannot be read",
                                (unsigned long long)t->doubled, (unsigned long long)t->unknown_frees,
                                (unsigned long long)r->unreadable),
                    NULL);
    if (!config->device_bytes && t->has_segments && t->release_count)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    "segments were released while there was room: assumed to be calls of empty_cache()", NULL);
}

bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                         tide_diagnostics *diags) {
    tide_recorded_play e;
    tide_replay replay, endless;
    live_group *live;
    uint32_t live_count;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    tide_replay_config without_limit = e.config;
    without_limit.device_bytes = 0;
    recorded_columns columns = make_columns(&e, 0, e.events.source.event_count, w->arena);
    if (!play_columns(&replay, &e, &columns, e.events.source.event_count, w->arena) ||
        !find_groups_at(&live, &live_count, &e, replay.peak_event, w->arena) ||
        !tide_replay_peaks(&endless, &e.events.source, &without_limit, w->arena))
        return false;
    write_source(w, &e);
    write_differences(w, r);
    write_recorded_figures(w, &replay);
    if (!write_recorded_verdict(w, &e, &replay, &endless)) return false;
    const char *played = gives_allocator(job) ? job->allocator : e.conf;
    tide_write_string_at(w, "allocator", played);
    if (!tide_write_options(w, &e.events.source, &e.config, &endless, played, tide_replay_runs(&replay), false))
        return false;
    write_live(w, r, live, live_count);
    write_recorded_columns(w, &e, &columns, replay.events);
    report_doubts(r, e.tape, &e.config, diags);
    tide_write_diagnostics(w, diags, false);
    return true;
}

bool tide_write_recorded_timeline(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                                  uint32_t to, tide_diagnostics *diags) {
    tide_recorded_play e;
    tide_replay replay;
    if (!tide_recorded_open(&e, r, job, device, diags)) return false;
    recorded_columns columns = make_columns(&e, from, to, w->arena);
    if (!play_columns(&replay, &e, &columns, columns.to, w->arena)) return false;
    write_recorded_columns(w, &e, &columns, replay.events);
    return true;
}

bool tide_write_recorded_events(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                const tide_window *window, tide_diagnostics *diags) {
    tide_recorded_play e;
    return tide_recorded_open(&e, r, job, device, diags) && tide_write_event_rows(w, &e.events, &e.config, window);
}

bool tide_write_recorded_state(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                               const tide_state_query *query, tide_diagnostics *diags) {
    tide_recorded_play e;
    return tide_recorded_open(&e, r, job, device, diags) && tide_write_state(w, &e.events, &e.config, query);
}
