/* The report of a recording. */
#include "report/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "report/play.h"
#include "report/report.h"
#include "report/whatif.h"
#include "tensor/ops/ops.h"

enum { COLUMNS = 400, GROUPS = 20, FRAMES = 12 };

/* ---- what is played on what ---- */

static const tide_tape *choose_tape(tide_recording *r, int64_t device, uint32_t *number) {
    *number = 0;
    for (uint32_t i = 0; i < r->device_count; i++)
        if (device == (int64_t)i || (device < 0 && r->tapes[i].event_count > r->tapes[*number].event_count))
            *number = i;
    bool has_it = r->device_count && (device < 0 || *number == (uint32_t)device);
    return has_it && (r->tapes[*number].event_count || r->tapes[*number].older_block_count) ? &r->tapes[*number] : NULL;
}

/* Settles who gave memory back, as far as the facts say; see Note [Who released segments]. */
static bool settle_give_backs(const tide_tape *t, const tide_recording *r, const tide_replay_config *recorded) {
    tide_play play;
    for (uint32_t i = 0; i < t->release_count; i++) {
        if (recorded->conf.garbage_collection_threshold > 0 && t->releases[i].need)
            t->releases[i].need = UINT64_MAX;
        else if (r->never_retried)
            t->releases[i].need = 0;
    }
    return !t->release_count ||
           tide_play_tape(&play, t, recorded, &(tide_play_wants){.stop = UINT32_MAX, .settles = true});
}

/* The room that the allocator had: as the recording says, or as its failures show. 0: without limit. */
static uint64_t recorded_device(const tide_tape *t, const tide_recording *r) {
    if (r->device_bytes) return r->device_bytes;
    if (t->is_limited) return (t->reserved_peak ? t->reserved_peak : 1) + r->outside_bytes;
    if (t->oom_room) return t->oom_room + r->outside_bytes;
    for (uint32_t i = 0; i < t->release_count; i++)
        if (t->releases[i].need > t->reserved_peak && t->releases[i].need != UINT64_MAX)
            return t->reserved_peak + r->outside_bytes;
    return 0;
}

static const char *conf_of(const tide_recording *r) {
    return r->allocator ? r->allocator : "";
}

static bool gives_allocator(const tide_job *job) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (strcmp(job->rows[i].name, "allocator") == 0) return true;
    return false;
}

tide_replay_config tide_recorded_config(const tide_tape *t, const tide_recording *r, const tide_job *job,
                                        const tide_alloc_conf *recorded) {
    tide_replay_config config = {.conf = *recorded,
                                 .device_bytes = recorded_device(t, r),
                                 .outside_bytes = r->outside_bytes,
                                 .fraction_ppm = r->memory_fraction_ppm};
    if (gives_allocator(job)) config.conf = job->allocator_conf;
    if (job->memory_fraction_ppm) config.fraction_ppm = job->memory_fraction_ppm;
    if (job->device_bytes) {
        config.device_bytes = job->device_bytes;
        config.outside_bytes = job->has_gpu ? job->gpu.context_bytes : r->outside_bytes;
    }
    return config;
}

/* Also a failure that the recorded program survived is one. */
static bool runs(const tide_play *play) {
    return !play->is_oom && !play->ooms;
}

static bool play_tape(tide_what_if *trial, const void *of, const tide_replay_config *config) {
    tide_play play;
    if (!tide_play_tape(&play, of, config, NULL)) return false;
    *trial = (tide_what_if){runs(&play), play.allocated_peak, play.reserved_peak, play.requested_peak, play.retries};
    return true;
}

/* ---- what is live at the peak ---- */

typedef struct live_group {
    uint64_t bytes, requested;
    uint32_t stack, frame, count;
} live_group;

typedef struct live_list {
    const tide_recording *r;
    live_group *groups; /* room for all slots: nothing is allocated while an allocator lives */
    uint32_t count;
} live_list;

uint32_t tide_recorded_frame(const tide_recording *r, uint32_t stack) {
    uint32_t outermost = 0;
    for (; stack; stack = r->stacks[stack].parent) {
        tide_text text = r->names.names[r->stacks[stack].frame];
        bool is_torch = tide_text_contains(text, TIDE_TEXT("/torch/")) || tide_text_starts(text, TIDE_TEXT("torch/"));
        bool is_python = tide_text_contains(text, TIDE_TEXT(".py:")) || tide_text_contains(text, TIDE_TEXT(".py("));
        if (!tide_text_contains(text, TIDE_TEXT("??")))
            outermost = r->stacks[stack].frame; /* else a symbol that was not found */
        if (is_python && !is_torch) break;
    }
    return outermost;
}

static void add_live(void *user, const tide_call_site *site, uint64_t block_bytes) {
    live_list *list = user;
    list->groups[list->count++] =
        (live_group){block_bytes, site->bytes, site->stack, tide_recorded_frame(list->r, site->stack), 1};
}

static int by_site(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
    return x->requested < y->requested ? -1 : x->requested > y->requested;
}

/* The same order everywhere: the first stack of a group is the one that is shown. */
static int by_site_and_stack(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    int order = by_site(a, b);
    if (order || x->stack == y->stack) return order;
    return x->stack < y->stack ? -1 : 1;
}

static int by_bytes(const void *a, const void *b) {
    const live_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return by_site(a, b);
}

static void join_groups(live_list *list) {
    uint32_t joined = 0;
    if (!list->count) return;
    qsort(list->groups, list->count, sizeof *list->groups, by_site_and_stack);
    for (uint32_t i = 1; i < list->count; i++) {
        if (by_site(&list->groups[joined], &list->groups[i]) != 0) {
            list->groups[++joined] = list->groups[i];
        } else {
            list->groups[joined].bytes += list->groups[i].bytes;
            list->groups[joined].count++;
        }
    }
    list->count = joined + 1;
    qsort(list->groups, list->count, sizeof *list->groups, by_bytes);
}

static void write_frames(tide_writer *w, const tide_recording *r, uint32_t stack) {
    tide_write_key(w, "frames");
    tide_write_open(w, '[');
    for (int i = 0; stack && i < FRAMES; i++, stack = r->stacks[stack].parent)
        tide_write_text(w, r->names.names[r->stacks[stack].frame]);
    tide_write_close(w, ']');
}

static void write_live(tide_writer *w, const tide_recording *r, live_list *list) {
    uint64_t rest = 0;
    join_groups(list);
    tide_write_key(w, "live_at_peak");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < list->count; i++) {
        const live_group *g = &list->groups[i];
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
        write_frames(w, r, g->stack);
        tide_write_close(w, '}');
    }
    if (rest) {
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "rest", rest);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* ---- the parts of the answer ---- */

static void write_source(tide_writer *w, const tide_recording *r, const tide_tape *t, uint32_t device,
                         const char *conf) {
    tide_write_key(w, "recording");
    tide_write_open(w, '{');
    tide_write_string_at(w, "format", r->format);
    if (r->source) tide_write_string_at(w, "source", r->source);
    tide_write_bool_at(w, "is_whole", !r->broken);
    tide_write_bool_at(w, "is_estimate", r->is_cpu);
    tide_write_int_at(w, "devices", r->device_count);
    tide_write_int_at(w, "device", device);
    tide_write_int_at(w, "requests", (int64_t)t->requests);
    tide_write_int_at(w, "frees", (int64_t)t->frees);
    tide_write_int_at(w, "before", t->older_block_count);
    tide_write_string_at(w, "allocator", conf);
    if (t->has_segments) tide_write_bytes_at(w, "reserved_peak", t->reserved_peak);
    if (r->has_stats) {
        tide_write_key(w, "said");
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "allocated_peak", r->stats.allocated_peak);
        tide_write_bytes_at(w, "reserved_peak", r->stats.reserved_peak);
        tide_write_bytes_at(w, "allocated", r->stats.allocated);
        tide_write_bytes_at(w, "reserved", r->stats.reserved);
        tide_write_int_at(w, "retries", (int64_t)r->stats.retries);
        tide_write_int_at(w, "ooms", (int64_t)r->stats.ooms);
        tide_write_close(w, '}');
    }
    tide_write_close(w, '}');
}

/* What an estimate of a run without a GPU puts right, and what it cannot. */
static void write_differences(tide_writer *w, const tide_recording *r) {
    if (!r->is_cpu) return;
    tide_write_key(w, "differences");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < r->note_count; i++) tide_write_string(w, r->notes[i]);
    tide_write_close(w, ']');
}

/* The card's own size of cuBLAS's workspace. */
static void settle_workspaces(const tide_tape *t, const tide_job *job) {
    if (t->workspace_site) t->sites[t->workspace_site - 1].bytes = (uint64_t)tide_cublas_workspace(job->capability);
}

static void write_figures(tide_writer *w, const tide_play *p) {
    tide_write_string_at(w, "outcome", runs(p) ? "ok" : "oom");
    tide_write_bytes_at(w, "allocated_peak", p->allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", p->reserved_peak);
    tide_write_bytes_at(w, "allocated", p->allocated);
    tide_write_bytes_at(w, "reserved", p->reserved);
    tide_write_int_at(w, "retries", (int64_t)p->retries);
    tide_write_int_at(w, "ooms", (int64_t)p->ooms);
    tide_write_int_at(w, "peak_event", p->peak_event);
    tide_write_key(w, "fragmentation");
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "bytes", p->reserved_peak - p->allocated_peak);
    tide_write_bytes_at(w, "allocated_at_reserved_peak", p->allocated_then);
    tide_write_bytes_at(w, "cached_in_used_segments", p->split_then);
    tide_write_close(w, '}');
}

/* Columns for the events [from, to): at most COLUMNS, of equally many events each. */
static tide_play_wants wants_columns(tide_arena *arena, uint32_t from, uint32_t to) {
    uint32_t events = to - from, count = events < COLUMNS ? events : COLUMNS;
    tide_column *columns = TIDE_NEW(arena, tide_column, count + 1);
    for (uint32_t i = 0; i < count; i++)
        columns[i].from = from + (uint32_t)(((uint64_t)i * events + count - 1) / count);
    return (tide_play_wants){.stop = to, .columns = columns, .column_count = count, .from = from, .to = to};
}

static void write_timeline(tide_writer *w, const tide_tape *t, const tide_play_wants *wants) {
    const tide_column *columns = wants->columns;
    uint32_t count = wants->column_count;
    tide_write_key(w, "timeline");
    tide_write_open(w, '{');
    tide_write_int_at(w, "events", t->event_count);
    if (wants->from > 0 || wants->to < t->event_count) {
        tide_write_int_at(w, "from", wants->from);
        tide_write_int_at(w, "to", wants->to);
    }
    tide_write_key(w, "columns");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        tide_write_open(w, '{');
        tide_write_int_at(w, "from", columns[i].from);
        tide_write_bytes_at(w, "allocated", columns[i].allocated);
        tide_write_bytes_at(w, "reserved", columns[i].reserved);
        if (t->time_count) tide_write_bytes_at(w, "us", columns[i].microseconds - t->times[0].microseconds);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_close(w, '}');
}

static bool write_verdict(tide_writer *w, const tide_tape *t, const tide_recording *r, const tide_replay_config *config,
                          const tide_play *p) {
    tide_event_source what = {play_tape, t};
    uint64_t smallest;
    if (!tide_smallest_device(&smallest, &what, config)) return false;
    tide_write_key(w, "verdict");
    tide_write_open(w, '{');
    tide_write_key(w, "fits");
    if (config->device_bytes)
        tide_write_bool(w, runs(p));
    else
        tide_write_null(w);
    tide_write_bytes_at(w, "gpu_bytes", config->device_bytes);
    tide_write_bytes_at(w, "outside_bytes", config->outside_bytes);
    tide_write_bytes_at(w, "smallest_device_bytes", smallest);
    if (p->is_oom) {
        tide_write_key(w, "oom");
        tide_write_open(w, '{');
        tide_write_int_at(w, "event", p->events);
        tide_write_bytes_at(w, "requested", p->oom.requested_bytes);
        tide_write_bytes_at(w, "tried", p->oom.tried_bytes);
        tide_write_bytes_at(w, "free", p->oom.free_bytes);
        tide_write_bytes_at(w, "allocated", p->oom.allocated_bytes);
        tide_write_bytes_at(w, "unallocated", p->oom.unallocated_bytes);
        write_frames(w, r, p->oom_stack);
        tide_write_close(w, '}');
    }
    tide_write_close(w, '}');
    return true;
}

/* What a reader should know of how much this answer is worth. */
static void report_doubts(const tide_recording *r, const tide_tape *t, const tide_replay_config *config,
                          tide_diagnostics *diags) {
    tide_arena *arena = diags->arena;
    if (r->broken)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    tide_format(arena, "%s (at byte %llu); what stands before is played", r->broken,
                                (unsigned long long)r->broken_at),
                    r->remedy);
    if (t->older_block_count)
        tide_report(
            diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
            tide_format(
                arena,
                t->older_segment_count
                    ? "%u blocks are older than the recording: they are where the snapshot shows them, and with other "
                      "options one behind the other"
                    : "%u blocks are older than the recording: they are taken in one after another at its beginning",
                (unsigned)t->older_block_count),
            "record from the start of the process, with more max_entries");
    if (t->doubled || t->unknown_frees || r->unreadable)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    tide_format(arena,
                                "%llu frees are missing, %llu are of unknown blocks, %llu records are not readable",
                                (unsigned long long)t->doubled, (unsigned long long)t->unknown_frees,
                                (unsigned long long)r->unreadable),
                    NULL);
    if (!config->device_bytes && t->has_segments && t->release_count)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_RECORDING, "/recording",
                    "segments were released while there was room: taken for calls of empty_cache()", NULL);
}

const tide_tape *tide_recorded_tape(tide_replay_config *config, tide_recording *r, const tide_job *job, int64_t device,
                                    uint32_t *number, tide_diagnostics *diags) {
    const tide_tape *t = choose_tape(r, device, number);
    if (!t) {
        tide_error(diags, TIDE_ERR_RECORDING, "/recording",
                   r->broken
                       ? tide_format(diags->arena, "%s (at byte %llu)", r->broken, (unsigned long long)r->broken_at)
                   : device >= 0 ? "nothing was recorded on this device"
                                 : "holds no request for memory",
                   r->remedy     ? r->remedy
                   : device >= 0 ? "without a device, the busiest one is played"
                                 : "torch.cuda.memory._record_memory_history(), or profile_memory=True, records them");
        return NULL;
    }
    const char *conf = conf_of(r);
    *config = (tide_replay_config){.device_bytes = recorded_device(t, r),
                                   .outside_bytes = r->outside_bytes,
                                   .fraction_ppm = r->memory_fraction_ppm};
    if (!tide_alloc_conf_parse(&config->conf, TIDE_ALLOC_TORCH_MAIN, conf, strlen(conf), NULL)) r->unreadable++;
    settle_workspaces(t, job);
    return settle_give_backs(t, r, config) ? t : NULL;
}

bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                         tide_diagnostics *diags) {
    uint32_t number;
    tide_replay_config config;
    const char *conf = conf_of(r);
    const tide_tape *t = tide_recorded_tape(&config, r, job, device, &number, diags);
    if (!t) return false;
    tide_alloc_conf recorded = config.conf;
    config = tide_recorded_config(t, r, job, &recorded);
    tide_play_wants wants = wants_columns(w->arena, 0, t->event_count);
    tide_play play, again;
    if (!tide_play_tape(&play, t, &config, &wants)) return false;
    live_list live = {.r = r, .groups = TIDE_NEW(w->arena, live_group, t->slot_count + 1)};
    if (!tide_play_tape(&again, t, &config,
                        &(tide_play_wants){.stop = play.peak_event + 1, .on_live = add_live, .user = &live}))
        return false;
    write_source(w, r, t, number, conf);
    write_differences(w, r);
    write_figures(w, &play);
    if (!write_verdict(w, t, r, &config, &play)) return false;
    const char *played = gives_allocator(job) ? job->allocator : conf;
    tide_event_source what = {play_tape, t};
    tide_write_string_at(w, "allocator", played);
    if (!tide_write_options(w, &what, &config, played, runs(&play))) return false;
    write_live(w, r, &live);
    write_timeline(w, t, &wants);
    report_doubts(r, t, &config, diags);
    tide_write_diagnostics(w, diags, false);
    return true;
}

bool tide_write_recorded_timeline(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t from,
                                  uint32_t to, tide_diagnostics *diags) {
    uint32_t number;
    tide_replay_config config;
    tide_play play;
    const tide_tape *t = tide_recorded_tape(&config, r, job, device, &number, diags);
    if (!t) return false;
    config = tide_recorded_config(t, r, job, &config.conf);
    if (to > t->event_count) to = t->event_count;
    if (from > to) from = to;
    tide_play_wants wants = wants_columns(w->arena, from, to);
    if (!tide_play_tape(&play, t, &config, &wants)) return false;
    write_timeline(w, t, &wants);
    return true;
}
