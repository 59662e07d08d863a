/* SPDX-License-Identifier: Apache-2.0 */
/* Peak, verdict, figures of steps, and memory beside them. */
#include "report/verdict.h"

#include <string.h>

#include "base/units.h"
#include "parallel/strategies.h"
#include "report/allocations.h"
#include "report/allocator_options.h"
#include "report/batches.h"
#include "report/members.h"
#include "report/serving.h"

/* Both bounds; or the distance from the middle, if rounding hides it. */
static const char *extent(const tide_job_report *r, uint64_t device) {
    tide_arena *arena = r->w->arena;
    uint64_t least = tide_range_low(r->run, r->job, device), most = tide_range_high(r->run, r->job, device);
    const char *low = tide_gib(arena, least), *high = tide_gib(arena, most);
    return strcmp(low, high) == 0 ? tide_format(arena, "give or take %s", tide_gib(arena, (most - least) / 2))
                                  : tide_format(arena, "between %s and %s", low, high);
}

/* What is needed, and its range with the reason of it. */
static const char *ranged(const tide_job_report *r, uint64_t device) {
    tide_arena *arena = r->w->arena;
    const char *reason = tide_range_reason(arena, r->run, r->job), *need = tide_gib(arena, device);
    return reason ? tide_format(arena, "%s (%s, as %s)", need, extent(r, device), reason) : need;
}

static void write_rank(tide_writer *w, const tide_job *job) {
    if (tide_job_world(job) > 1) tide_write_int_at(w, "rank", job->parallel_rank);
}

static int64_t layers_of_rank(const tide_stages *s, int64_t rank) {
    const uint32_t *of_rank = &s->of_rank[rank / s->apart % s->ranks * s->chunks];
    int64_t layers = 0;
    for (uint32_t chunk = 0; chunk < s->chunks; chunk++)
        for (uint32_t kind = 0; kind < s->kinds; kind++) layers += s->layers[of_rank[chunk] * s->kinds + kind];
    return layers;
}

/* A row for each kind of rank that was played; the worst is that of "peak". */
void tide_write_ranks(tide_job_report *r) {
    const tide_run *run = r->run;
    tide_writer *w = r->w;
    const tide_job *job = r->job;
    int64_t stage_ranks =
        job->parallel_kind == TIDE_parallel_kind_pp ? 1 : job->parallel_dp * job->parallel_tp * job->parallel_cp;
    if (!run->rank_need_count) return;
    tide_write_open_at(w, "ranks", '[');
    for (uint32_t i = 0; i < run->rank_need_count; i++) {
        const tide_rank_need *need = &run->rank_needs[i];
        tide_write_open(w, '{');
        tide_write_int_at(w, "rank", need->rank);
        tide_write_int_at(w, "stage", need->rank / stage_ranks % job->parallel_pp);
        if (run->stages.ranks) tide_write_int_at(w, "layers", layers_of_rank(&run->stages, need->rank));
        tide_write_bytes_at(w, "allocated", need->allocated);
        tide_write_bytes_at(w, "reserved", need->reserved);
        if (need->in_flight) tide_write_int_at(w, "in_flight", need->in_flight);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* The rank that allocates the most, if it is not the one that reserves the most. */
static void write_most_allocated(tide_writer *w, const tide_run *run, uint64_t of_this) {
    const tide_rank_need *most = NULL;
    for (uint32_t i = 0; i < run->rank_need_count; i++)
        if (run->rank_needs[i].allocated > (most ? most->allocated : of_this)) most = &run->rank_needs[i];
    if (!most) return;
    tide_write_open_at(w, "most_allocated", '{');
    tide_write_int_at(w, "rank", most->rank);
    tide_write_bytes_at(w, "allocated", most->allocated);
    tide_write_close(w, '}');
}

void tide_write_peak(tide_job_report *r, bool is_brief) {
    tide_writer *w = r->w;
    uint64_t device = tide_job_device_bytes(r->job, &r->replay);
    tide_write_open_at(w, "peak", '{');
    tide_write_bytes_at(w, "allocated", r->replay.allocated_peak);
    tide_write_bytes_at(w, "reserved", r->replay.reserved_peak);
    tide_write_bytes_at(w, "device", device);
    if (!is_brief) {
        tide_write_bytes_at(w, "context", tide_job_context(r->job));
        const char *reason = tide_range_reason(w->arena, r->run, r->job);
        if (reason) {
            tide_write_open_at(w, "range", '{');
            tide_write_bytes_at(w, "low", tide_range_low(r->run, r->job, device));
            tide_write_bytes_at(w, "high", tide_range_high(r->run, r->job, device));
            tide_write_string_at(w, "reason", reason);
            if (tide_range_percent(r->run, r->job))
                tide_write_string_at(w, "remedy",
                                     r->run->stand_in_of
                                         ? "run it with `tidemark dry-run`, or give the model a description of its own"
                                         : "run it with `tidemark dry-run`");
            tide_write_close(w, '}');
        }
        tide_write_event_place(r, r->replay.peak_event);
    }
    write_rank(w, r->job);
    write_most_allocated(w, r->run, r->replay.allocated_peak);
    tide_write_close(w, '}');
}

/* ---- the verdict ---- */

/* The most that a step allocates, if memory is exceeded (or, without a GPU, the peak is) while weights are loaded and
 * the steps need less; else 0. */
static uint64_t steps_beside_loading(const tide_job_report *r) {
    const tide_timeline *t = &r->run->machine.timeline;
    uint64_t limit = r->job->device_bytes ? r->job->device_bytes : r->replay.allocated_peak, most = 0;
    if (!t->mark_count || (r->job->device_bytes && !r->on_card.is_oom)) return 0;
    const tide_mark *end = tide_phase_end(t, r->job->device_bytes ? r->on_card.events : r->replay.peak_event);
    if (!end || end->step) return 0;
    for (uint32_t i = 0; i < r->replay.step_count; i++)
        if (r->replay.steps[i].allocated_peak > most) most = r->replay.steps[i].allocated_peak;
    return most + tide_job_context(r->job) < limit ? most : 0;
}

/* A setting that makes each rank load only its part, if there is one for this job and it is not set. */
static const char *setting_of_loading(const tide_job *job) {
    bool is_whole = !job->parallel_offload && job->adapter == TIDE_adapter_none; /* in fsdp2.c */
    tide_parallel_kind_choice kind = job->parallel_kind;
    bool takes_meta = kind == TIDE_parallel_kind_fsdp2 || kind == TIDE_parallel_kind_tp ||
                      kind == TIDE_parallel_kind_pp || kind == TIDE_parallel_kind_native;
    if (takes_meta && !tide_job_is_on_meta(job) && is_whole && tide_trainer_places_model(job))
        return "parallel.meta_init=true";
    bool takes_init = kind == TIDE_parallel_kind_zero3 && job->quant == TIDE_quant_none; /* in conflicts.c */
    return takes_init && !tide_job_has_zero_init(job) ? "parallel.zero_init=true" : NULL;
}

static const char *loading_sentence(const tide_job_report *r, uint64_t device, uint64_t steps) {
    tide_arena *arena = r->w->arena;
    const char *setting = setting_of_loading(r->job), *need = ranged(r, device), *of_steps = tide_gib(arena, steps);
    if (!r->job->device_bytes)
        return tide_format(arena, "%s to load%s%s%s, %s allocated in the steps; choose a GPU to see whether it fits",
                           need, setting ? " (less with " : "", setting ? setting : "", setting ? ")" : "", of_steps);
    return tide_format(arena, "%s to load, %s available: loading does not fit; %s%s", need,
                       tide_gib(arena, r->job->device_bytes), setting ? "set " : "the steps allocate ",
                       setting ? setting : of_steps);
}

static const char *left_out_sentence(const tide_job_report *r, uint64_t device) {
    tide_arena *arena = r->w->arena;
    const tide_job *job = r->job;
    const char *of = job->device_bytes ? tide_format(arena, "needed, %s there", tide_gib(arena, job->device_bytes))
                                       : "at the peak",
               *end = job->device_bytes ? "cannot tell whether it fits" : "choose a GPU";
    return tide_format(arena, "%s %s, without %s: %s", ranged(r, device), of, tide_left_out(arena, job), end);
}

/* Even if the lower bound exceeds the capacity, the allocator may release cached memory and continue. */
static const char *cannot_tell_sentence(const tide_job_report *r, uint64_t device) {
    tide_arena *arena = r->w->arena;
    const tide_job *job = r->job;
    const char *range = extent(r, device);
    bool is_narrow = strncmp(range, "between", 7) != 0,
         retries = tide_range_low(r->run, job, device) > job->device_bytes;
    if (is_narrow) range = tide_format(arena, "%s, %s%s", tide_gib(arena, device), range, retries ? "," : "");
    return tide_format(arena, "%s %s %s: cannot tell whether it %s, as %s", range, retries ? "wanted of" : "of",
                       tide_gib(arena, job->device_bytes), retries ? "runs by releasing cached memory" : "fits",
                       tide_range_reason(arena, r->run, job));
}

static const char *sentence_of(const tide_job_report *r, uint64_t device) {
    tide_arena *arena = r->w->arena;
    const tide_job *job = r->job;
    const char *total = tide_gib(arena, job->device_bytes), *need = ranged(r, device),
               *at_least = tide_range_reason(arena, r->run, job) ? "at least " : "";
    uint64_t least = tide_range_low(r->run, job, device), most = tide_range_high(r->run, job, device);
    if (tide_left_out(arena, job)) return left_out_sentence(r, device);
    if (job->device_bytes && tide_job_report_fit(r) == TIDE_CANNOT_TELL) return cannot_tell_sentence(r, device);
    uint64_t steps = steps_beside_loading(r);
    if (steps) return loading_sentence(r, device, steps);
    if (!job->device_bytes) return tide_format(arena, "%s at the peak; choose a GPU to see whether it fits", need);
    if (r->on_card.is_oom && least <= job->device_bytes)
        return tide_format(arena, "%s needed, %s available: does not fit, because of fragmentation", need, total);
    if (r->on_card.is_oom)
        return tide_format(arena, "%s needed, %s available: does not fit, %s%s short", need, total, at_least,
                           tide_gib(arena, least - job->device_bytes));
    if (device <= job->device_bytes)
        return tide_format(arena, "%s of %s: fits, %s%s to spare", need, total, at_least,
                           tide_gib(arena, job->device_bytes - most));
    return tide_format(arena,
                       "%s requested of %s: runs, because the allocator releases cached memory and retries %llu times",
                       need, total, (unsigned long long)r->on_card.retries);
}

/* "left_out": what the figures do not include. */
static void write_left_out(const tide_job_report *r) {
    const tide_name_list *of = &r->job->undescribed;
    if (!of->count) return;
    tide_write_open_at(r->w, "left_out", '[');
    for (uint32_t i = 0; i < of->count; i++) tide_write_string(r->w, of->names[i]);
    tide_write_close(r->w, ']');
}

/* For an inference server, which takes as much as it may, so that its memory says little. */
static void write_server_verdict(tide_job_report *r, bool is_brief) {
    tide_writer *w = r->w;
    const tide_serving *serving = r->run->serving;
    uint64_t held = tide_serving_bytes(serving), there = serving->device.total_bytes;
    tide_write_open_at(w, "verdict", '{');
    tide_write_fit_at(w, tide_job_report_verdict(r));
    tide_write_bytes_at(w, "device_bytes", held);
    tide_write_bytes_at(w, "gpu_bytes", there);
    tide_write_int_at(w, "margin_bytes", (int64_t)there - (int64_t)held);
    const char *sentence = tide_serving_sentence(serving, w->arena), *left_out = tide_left_out(w->arena, r->job);
    if (left_out) sentence = tide_format(w->arena, "%s; all without %s", sentence, left_out);
    if (!is_brief) {
        tide_write_string_at(w, "sentence", sentence);
        write_left_out(r);
    }
    tide_write_close(w, '}');
}

/* "loading": that loading alone fails, and what helps. */
static void write_loading(const tide_job_report *r) {
    uint64_t steps = steps_beside_loading(r);
    const char *setting = setting_of_loading(r->job);
    if (!steps) return;
    tide_write_open_at(r->w, "loading", '{');
    tide_write_bytes_at(r->w, "steps_allocated", steps);
    if (setting) tide_write_string_at(r->w, "setting", setting);
    tide_write_close(r->w, '}');
}

void tide_write_verdict(tide_job_report *r, bool is_brief) {
    tide_writer *w = r->w;
    if (r->run->serving) {
        write_server_verdict(r, is_brief);
        return;
    }
    const tide_job *job = r->job;
    uint64_t device = tide_job_device_bytes(job, &r->replay);
    bool has_card = job->device_bytes > 0;
    tide_write_open_at(w, "verdict", '{');
    tide_write_fit_at(w, has_card ? tide_job_report_verdict(r) : TIDE_CANNOT_TELL);
    tide_write_bytes_at(w, "device_bytes", device);
    if (has_card) {
        tide_write_bytes_at(w, "gpu_bytes", job->device_bytes);
        tide_write_int_at(w, "margin_bytes", (int64_t)job->device_bytes - (int64_t)device);
    }
    if (!is_brief) {
        if (has_card) tide_write_int_at(w, "retries", (int64_t)r->on_card.retries);
        tide_write_string_at(w, "sentence", sentence_of(r, device));
        write_loading(r);
        write_left_out(r);
    }
    if (!is_brief && has_card && r->on_card.is_oom) {
        tide_write_open_at(w, "oom", '{');
        tide_write_event_place(r, r->on_card.events);
        tide_write_oom(w, &r->on_card.oom);
        tide_write_close(w, '}');
    }
    tide_write_close(w, '}');
}

/* Events are played for each guess: for a long run only the highest is reported, and for one that takes about a second
 * nothing is played. */
enum { LONG_RUN = 2000000, LONGEST_RUN = 20000000 };

bool tide_write_card_options(tide_job_report *r, tide_diagnostics *diags) {
    tide_replay_config config = tide_job_config_on_card(r->job);
    uint64_t smallest;
    uint64_t need = tide_job_report_need(r), played = r->replay.events + r->replay.replayed;
    if (played > LONGEST_RUN) {
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/allocator",
                    tide_format(r->w->arena, "other options are not tried with %llu requests and frees",
                                (unsigned long long)played),
                    "allocator=expandable_segments:True plays the job with the option that saves most");
        return true;
    }
    bool is_long = tide_events_to_play(&r->source, &r->replay) > LONG_RUN;
    if (is_long && tide_range_high(r->run, r->job, need) > need) return true; /* in which options make no difference */
    if (is_long)
        return tide_write_options(r->w, &r->source, &config, &r->replay, r->job->allocator, !r->on_card.is_oom, true);
    if (!tide_smallest_device(&smallest, &r->source, &config, &r->replay, r->w->arena)) return false;
    tide_write_bytes_at(r->w, "smallest_device_bytes", smallest);
    return tide_write_options(r->w, &r->source, &config, &r->replay, r->job->allocator, !r->on_card.is_oom, false);
}

/* ---- outside of the peak ---- */

static void write_outside(tide_writer *w, const char *name, uint64_t bytes, const char *source) {
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name);
    tide_write_bytes_at(w, "bytes", bytes);
    tide_write_string_at(w, "source", source);
    tide_write_close(w, '}');
}

void tide_write_outside(tide_job_report *r) {
    const tide_replay *p = &r->replay;
    tide_write_open_at(r->w, "outside", '[');
    write_outside(r->w, "fragmentation", p->peak_reserved - p->allocated_peak,
                  "reserved minus allocated memory at the allocated peak: cached blocks and the rounding of segments");
    if (p->reserved_peak > p->peak_reserved)
        write_outside(r->w, "reserved_elsewhen", p->reserved_peak - p->peak_reserved,
                      "the reserved peak, at another event, minus what is reserved at the allocated peak");
    if (r->job->has_gpu) write_outside(r->w, "context", tide_job_context(r->job), r->job->gpu.context_source);
    tide_write_close(r->w, ']');
}

/* What no verdict includes: NCCL's buffers, and offloaded data in pinned host memory. */
void tide_write_besides(tide_job_report *r) {
    const tide_run *run = r->run;
    tide_writer *w = r->w;
    const tide_nccl nccl = tide_nccl_of(r->job);
    if (!nccl.communicators && !run->machine.host_pinned) return;
    tide_write_open_at(w, "besides", '[');
    if (nccl.communicators) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", "nccl");
        tide_write_bytes_at(w, "bytes", (uint64_t)nccl.bytes);
        tide_write_bytes_at(w, "least", (uint64_t)nccl.least);
        tide_write_bytes_at(w, "most", (uint64_t)nccl.most);
        tide_write_int_at(w, "communicators", nccl.communicators);
        tide_write_string_at(w, "source",
                             "an estimate: 24 channels of a ring over NVLink, each with NCCL's buffers for its three "
                             "protocols (nccl src/init.cc, computeBuffSizes); from 2 channels over PCIe to the 1.6 GB "
                             "of a communicator of eight GPUs and the 3.28 GB of an all-to-all among them that were "
                             "measured (github.com/NVIDIA/nccl, issues 864 and 1685)");
        tide_write_close(w, '}');
    }
    if (run->machine.host_pinned) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", "host_pinned");
        tide_write_bytes_at(w, "bytes", run->machine.host_pinned);
        tide_write_string_at(w, "source",
                             "pinned host memory of this rank for what is offloaded; PyTorch rounds each block up "
                             "to a power of two");
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}
