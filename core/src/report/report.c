/* The report: peak, factors, parts and layers, the largest tensors, the timeline, assumptions. */
#include "report/report.h"

#include "base/units.h"
#include "report/curve.h"
#include "report/whatif.h"

#include <stdlib.h>
#include <string.h>

tide_replay_config tide_report_config(const tide_job *job) {
    return (tide_replay_config){.conf = job->allocator_conf, .fraction_ppm = job->memory_fraction_ppm};
}

static uint64_t context_of(const tide_job *job) {
    return job->has_gpu ? job->gpu.context_bytes : 0;
}

uint64_t tide_report_device_bytes(const tide_job *job, const tide_replay *r) {
    return r->reserved_peak + context_of(job);
}

/* With the card's limits. */
static tide_replay_config config_on_card(const tide_job *job) {
    tide_replay_config config = tide_report_config(job);
    config.device_bytes = job->device_bytes;
    config.outside_bytes = context_of(job);
    return config;
}

bool tide_report_on_card(tide_replay *on_card, const tide_run *run, const tide_job *job, const tide_replay *r) {
    *on_card = *r;
    if (!job->device_bytes || (tide_report_device_bytes(job, r) <= job->device_bytes && !job->memory_fraction_ppm))
        return true;
    tide_replay_config config = config_on_card(job);
    return tide_replay_timeline(on_card, &run->machine.timeline, &config, false);
}

static bool play_timeline(tide_what_if *trial, const void *timeline, const tide_replay_config *config) {
    tide_replay r;
    if (!tide_replay_timeline(&r, timeline, config, false)) return false;
    *trial = (tide_what_if){!r.is_oom, r.allocated_peak, r.reserved_peak, r.requested_peak, r.retries};
    return true;
}

/* ---- diagnostics ---- */

void tide_write_diagnostics(tide_writer *w, const tide_diagnostics *diags, bool with_assumptions) {
    static const char *const severities[] = {"error", "warning", "assumption"};
    tide_write_key(w, "diagnostics");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < diags->count; i++) {
        const tide_diagnostic *d = &diags->items[i];
        if (d->severity == TIDE_ASSUMPTION && !with_assumptions) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "severity", severities[d->severity]);
        if (d->status != TIDE_OK) tide_write_string_at(w, "code", tide_status_name(d->status));
        tide_write_string_at(w, "place", d->place);
        tide_write_string_at(w, "message", d->message);
        if (d->remedy) tide_write_string_at(w, "remedy", d->remedy);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* The value of the setting that an assumption is about, and its text. */
static void write_assumptions(tide_writer *w, const tide_job *job, const tide_diagnostics *diags) {
    tide_write_key(w, "assumptions");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < diags->count; i++) {
        const tide_diagnostic *d = &diags->items[i];
        if (d->severity != TIDE_ASSUMPTION) continue;
        tide_text place = tide_text_of(d->place);
        const char *setting = d->place;
        if (tide_text_starts(place, TIDE_TEXT("/settings/"))) setting += sizeof "/settings/" - 1;
        const char *value = "";
        for (uint32_t k = 0; k < job->row_count; k++)
            if (strcmp(job->rows[k].name, setting) == 0) value = job->rows[k].value;
        tide_write_open(w, '{');
        tide_write_string_at(w, "setting", setting);
        tide_write_string_at(w, "value", value);
        tide_write_string_at(w, "text", d->message);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* ---- model ---- */

static const char *title_of(const tide_run *run, const char *part) {
    const tide_json *titles = tide_description_at(run->model.scopes[0].description, "titles");
    const tide_json *found = tide_json_at(titles, part);
    if (found && found->kind == TIDE_JSON_STRING) return found->text.at;
    return *part ? part : "Outside of the model";
}

static uint32_t part_of(const tide_run *run, uint32_t module) {
    return module < run->model.instance_count ? run->model.instances[module].part : 0;
}

/* Parameters that the model's own class holds form a part under their name. */
static const char *part_name(const tide_run *run, const tide_parameter_row *p) {
    const char *part = run->model.parts[part_of(run, p->module)];
    if (*part) return part;
    const char *dot = strrchr(p->name, '.');
    return dot ? dot + 1 : p->name;
}

static void write_model(tide_writer *w, const tide_run *run, const tide_job *job) {
    const tide_model *model = &run->model;
    tide_write_key(w, "model");
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", job->model);
    if (job->model_title) tide_write_string_at(w, "title", job->model_title);
    tide_write_string_at(w, "architecture", model->scopes[0].description->name.at);
    if (job->model_source) tide_write_string_at(w, "source", job->model_source);
    tide_write_key(w, "parameters");
    tide_write_open(w, '{');
    tide_write_int_at(w, "total", run->parameters);
    tide_write_int_at(w, "trainable", run->trainable);
    tide_write_key(w, "parts");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < model->parameter_count;) {
        const char *part = part_name(run, &model->parameters[i]);
        bool is_first = true; /* parts are listed where they first appear */
        for (uint32_t k = 0; k < i && is_first; k++)
            is_first = strcmp(part_name(run, &model->parameters[k]), part) != 0;
        int64_t total = 0, trainable = 0;
        uint32_t next = i;
        for (uint32_t k = i; is_first && k < model->parameter_count; k++) {
            if (strcmp(part_name(run, &model->parameters[k]), part) != 0) continue;
            if (k == next) next = k + 1;
            total += tide_count(model->parameters[k].tensor);
            if (model->parameters[k].tensor->requires_grad) trainable += tide_count(model->parameters[k].tensor);
        }
        i = next > i ? next : i + 1;
        if (!is_first) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", part);
        tide_write_string_at(w, "title", title_of(run, part));
        tide_write_int_at(w, "total", total);
        tide_write_int_at(w, "trainable", trainable);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_close(w, '}');
    tide_write_close(w, '}');
}

/* ---- what is live at an event ---- */

static bool is_live(const tide_allocation *a, uint32_t event) {
    return a->born <= event && event < a->died;
}

void tide_report_factors(const tide_timeline *t, const tide_replay *r, uint32_t event, uint64_t *factors) {
    memset(factors, 0, sizeof *factors * TIDE_FACTOR_COUNT);
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (is_live(&t->allocations[i], event)) factors[t->allocations[i].factor] += r->block_bytes[i];
}

tide_part_bytes *tide_report_parts(uint32_t *count, const tide_run *run, const tide_replay *r, uint32_t event,
                                   tide_arena *arena) {
    const tide_timeline *t = &run->machine.timeline;
    const tide_model *model = &run->model;
    tide_part_bytes *sums = TIDE_NEW(arena, tide_part_bytes, model->part_count + 1),
                    *parts = TIDE_NEW(arena, tide_part_bytes, model->part_count + 1);
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = &t->allocations[i];
        if (!is_live(a, event)) continue;
        tide_part_bytes *of = &sums[a->module ? part_of(run, a->module) : 0];
        of->factors[a->factor] += r->block_bytes[i];
        of->part = "";
    }
    *count = 0;
    for (uint32_t i = 0; i < model->part_count; i++) {
        uint32_t part = i + 1 < model->part_count ? i + 1 : 0; /* what is outside of the model comes last */
        if (!sums[part].part) continue;
        sums[part].part = tide_text_copy(arena, tide_text_of(model->parts[part]));
        sums[part].title = tide_text_copy(arena, tide_text_of(title_of(run, model->parts[part])));
        parts[(*count)++] = sums[part];
    }
    return parts;
}

static void write_factor_list(tide_writer *w, const uint64_t *factors) {
    tide_write_key(w, "factors");
    tide_write_open(w, '[');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", tide_factor_names[i]);
        tide_write_bytes_at(w, "bytes", factors[i]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static uint64_t write_factor_map(tide_writer *w, const uint64_t *factors) {
    uint64_t sum = 0;
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) sum += factors[i];
    tide_write_bytes_at(w, "bytes", sum);
    tide_write_key(w, "factors");
    tide_write_open(w, '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++)
        if (factors[i]) tide_write_bytes_at(w, tide_factor_names[i], factors[i]);
    tide_write_close(w, '}');
    return sum;
}

typedef struct cell {
    uint32_t part, layer;
    uint64_t factors[TIDE_FACTOR_COUNT];
} cell;

/* part x layer x factor of what is live at the peak; its sum is the peak. */
static void write_breakdown(tide_writer *w, const tide_run *run, const tide_replay *r) {
    const tide_timeline *t = &run->machine.timeline;
    const tide_model *model = &run->model;
    uint32_t capacity = 0, count = 0;
    cell *cells = NULL;
    uint32_t *slots = TIDE_NEW(t->arena, uint32_t, (size_t)model->part_count * model->layer_count + 1); /* cell + 1 */
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = &t->allocations[i];
        if (!is_live(a, r->peak_event)) continue;
        const tide_instance *of = &model->instances[a->module < model->instance_count ? a->module : 0];
        uint32_t part = a->module ? of->part : 0, layer = a->module ? of->layer : 0;
        uint32_t *slot = &slots[part * model->layer_count + layer];
        if (!*slot) {
            TIDE_ROOM(t->arena, cells, count, capacity);
            cells[count] = (cell){.part = part, .layer = layer};
            *slot = ++count;
        }
        cells[*slot - 1].factors[a->factor] += r->block_bytes[i];
    }
    tide_write_key(w, "breakdown");
    tide_write_open(w, '[');
    for (uint32_t part = 0; part < model->part_count; part++) {
        uint32_t which = part + 1 < model->part_count ? part + 1 : 0; /* what is outside of the model comes last */
        uint64_t sums[TIDE_FACTOR_COUNT] = {0};
        bool has_any = false;
        for (uint32_t i = 0; i < count; i++) {
            if (cells[i].part != which) continue;
            has_any = true;
            for (int f = 0; f < TIDE_FACTOR_COUNT; f++) sums[f] += cells[i].factors[f];
        }
        if (!has_any) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "part", model->parts[which]);
        tide_write_string_at(w, "title", title_of(run, model->parts[which]));
        write_factor_map(w, sums);
        tide_write_key(w, "layers");
        tide_write_open(w, '[');
        for (uint32_t i = 0; i < count; i++) {
            if (cells[i].part != which) continue;
            tide_write_open(w, '{');
            tide_write_string_at(w, "name", model->layers[cells[i].layer]);
            write_factor_map(w, cells[i].factors);
            tide_write_close(w, '}');
        }
        tide_write_close(w, ']');
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* ---- the largest tensors: alike ones together ---- */

typedef struct group {
    uint64_t bytes, each;
    uint32_t count, example;
    uint32_t hash;
} group;

/* "model.layers.3.mlp" is "model.layers.*.mlp". */
static const char *module_pattern(tide_arena *arena, const char *path) {
    char *out = TIDE_NEW(arena, char, strlen(path) + 1), *at = out;
    for (const char *c = path; *c;) {
        bool starts = c == path || c[-1] == '.';
        const char *end = c;
        while (*end >= '0' && *end <= '9') end++;
        if (starts && end > c && (*end == '.' || !*end)) {
            *at++ = '*';
            c = end;
        } else {
            *at++ = *c++;
        }
    }
    *at = 0;
    return out;
}

static bool same_group(const tide_run *run, const tide_timeline *t, const tide_replay *r, uint32_t a, uint32_t b) {
    const tide_allocation *x = &t->allocations[a], *y = &t->allocations[b];
    return x->bytes == y->bytes && r->block_bytes[a] == r->block_bytes[b] && x->factor == y->factor &&
           x->statement == y->statement && strcmp(x->op, y->op) == 0 &&
           run->model.instances[x->module].of == run->model.instances[y->module].of &&
           part_of(run, x->module) == part_of(run, y->module);
}

static int by_bytes(const void *a, const void *b) {
    const group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->example < y->example ? -1 : x->example > y->example;
}

static bool is_or_any(const char *wanted, const char *there) {
    return !wanted || strcmp(wanted, there) == 0;
}

/* Whether an allocation is in the cell of the breakdown that is looked at. */
static bool is_in(const tide_run *run, const tide_allocation *a, const tide_filter *look) {
    const tide_model *model = &run->model;
    const tide_instance *of = &model->instances[a->module < model->instance_count ? a->module : 0];
    return is_or_any(look->factor, tide_factor_names[a->factor]) &&
           is_or_any(look->part, model->parts[a->module ? of->part : 0]) &&
           is_or_any(look->layer, model->layers[a->module ? of->layer : 0]);
}

static group *find_groups(const tide_run *run, const tide_replay *r, const tide_filter *look, uint32_t *count) {
    const tide_timeline *t = &run->machine.timeline;
    uint32_t slot_count = 256, capacity = 0;
    for (uint32_t live = 0, i = 0; i < t->allocation_count; i++)
        if (is_live(&t->allocations[i], look->event) && ++live * 2 > slot_count) slot_count *= 2;
    uint32_t *slots = TIDE_NEW(t->arena, uint32_t, slot_count);
    group *groups = NULL;
    *count = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = &t->allocations[i];
        if (!is_live(a, look->event) || !is_in(run, a, look)) continue;
        uint32_t hash =
            ((uint32_t)a->bytes ^ (uint32_t)(a->bytes >> 32)) * 2654435761u ^ a->statement * 40503u ^ a->factor;
        uint32_t at = hash & (slot_count - 1);
        while (slots[at] && !same_group(run, t, r, groups[slots[at] - 1].example, i)) at = (at + 1) & (slot_count - 1);
        if (!slots[at]) {
            TIDE_ROOM(t->arena, groups, *count, capacity);
            groups[*count] = (group){.each = r->block_bytes[i], .example = i};
            slots[at] = ++*count;
        }
        groups[slots[at] - 1].bytes += r->block_bytes[i];
        groups[slots[at] - 1].count++;
    }
    if (*count) qsort(groups, *count, sizeof *groups, by_bytes);
    return groups;
}

void tide_report_shape(tide_writer *w, tide_run *run, const tide_allocation *a) {
    const tide_timeline *t = &run->machine.timeline;
    tide_write_string_at(w, "dtype", tide_dtype_names[a->dtype]);
    tide_write_key(w, "shape");
    tide_write_open(w, '[');
    for (unsigned i = 0; i < a->dims; i++) {
        const tide_dim *d = &t->dims[a->shape + i];
        tide_write_open(w, '{');
        tide_write_int_at(w, "n", d->n);
        if (d->name) tide_write_string_at(w, "name", tide_symbol_text(&run->machine, d->name));
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

const char *tide_report_line(const tide_run *run, uint32_t statement) {
    if (!statement || statement >= run->descriptions.statement_capacity || !run->descriptions.statements[statement])
        return NULL;
    return run->descriptions.statements[statement]->text.at;
}

static void write_group(tide_writer *w, tide_run *run, const group *g) {
    const tide_allocation *a = &run->machine.timeline.allocations[g->example];
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "bytes", g->bytes);
    tide_write_int_at(w, "count", g->count);
    tide_write_bytes_at(w, "each", g->each);
    tide_write_bytes_at(w, "requested", a->bytes);
    tide_write_string_at(w, "factor", tide_factor_names[a->factor]);
    tide_write_string_at(w, "part", run->model.parts[part_of(run, a->module)]);
    const char *path = run->model.instances[a->module].path;
    tide_write_string_at(w, "module", g->count > 1 ? module_pattern(w->arena, path) : path);
    tide_write_string_at(w, "op", a->op);
    const char *line = tide_report_line(run, a->statement);
    if (line) tide_write_string_at(w, "line", line);
    tide_report_shape(w, run, a);
    tide_write_close(w, '}');
}

static void write_tensors(tide_writer *w, tide_run *run, const tide_replay *r, uint32_t limit) {
    uint32_t count;
    group *groups = find_groups(run, r, &(tide_filter){.event = r->peak_event}, &count);
    uint64_t rest = 0;
    tide_write_key(w, "tensors");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i < limit)
            write_group(w, run, &groups[i]);
        else
            rest += groups[i].bytes;
    }
    if (rest) {
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "rest", rest);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* ---- figures ---- */

static void write_steps(tide_writer *w, const tide_replay *r) {
    tide_write_key(w, "steps");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < r->step_count; i++) {
        const tide_step_figures *s = &r->steps[i];
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "before", s->before);
        if (s->peak_prefill) {
            tide_write_bytes_at(w, "peak_prefill", s->peak_prefill);
            tide_write_bytes_at(w, "after_prefill", s->after_prefill);
            if (s->peak_decode) {
                tide_write_bytes_at(w, "peak_decode", s->peak_decode);
                tide_write_bytes_at(w, "after_decode", s->after_decode);
            }
        } else {
            tide_write_bytes_at(w, "peak_forward", s->peak_forward);
            tide_write_bytes_at(w, "after_forward", s->after_forward);
            tide_write_bytes_at(w, "peak_backward", s->peak_backward);
            tide_write_bytes_at(w, "after_backward", s->after_backward);
            tide_write_bytes_at(w, "peak_optimizer", s->peak_optimizer);
        }
        tide_write_bytes_at(w, "after_step", s->after_step);
        tide_write_bytes_at(w, "allocated_peak", s->allocated_peak);
        tide_write_bytes_at(w, "reserved_peak", s->reserved_peak);
        tide_write_bytes_at(w, "reserved", s->reserved);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* The step and phase that an event belongs to: those of the mark behind it. */
static tide_mark phase_at(const tide_timeline *t, uint32_t event) {
    for (uint32_t i = 0; i < t->mark_count; i++)
        if (event < t->marks[i].event) return t->marks[i];
    return (tide_mark){0, 0, TIDE_PHASE_LOAD};
}

static void write_place(tide_writer *w, const tide_run *run, uint32_t event) {
    const tide_timeline *t = &run->machine.timeline;
    tide_mark mark = phase_at(t, event);
    bool is_of_none = !t->event_count || t->events[event] == TIDE_EMPTY_CACHE;
    const tide_allocation *a = is_of_none ? NULL : &t->allocations[t->events[event] & ~TIDE_FREE_BIT];
    tide_write_int_at(w, "step", mark.step);
    tide_write_string_at(w, "phase", tide_phase_names[mark.phase]);
    tide_write_string_at(w, "module", a ? run->model.instances[a->module].path : "");
    tide_write_string_at(w, "op", a ? a->op : "");
    const char *line = a ? tide_report_line(run, a->statement) : NULL;
    if (line) tide_write_string_at(w, "line", line);
    tide_write_int_at(w, "event", event);
}

/* Of a model without a description of its own: a quarter either way. */
static uint64_t either_way(const tide_run *run, uint64_t device) {
    return device / 100 * (uint64_t)run->stand_in_percent;
}

static const char *ranged(tide_arena *arena, const tide_run *run, uint64_t device) {
    if (!run->stand_in_of) return "";
    return tide_format(arena, ", between %s and %s as the model has no description of its own",
                       tide_gib(arena, device - either_way(run, device)),
                       tide_gib(arena, device + either_way(run, device)));
}

static void write_verdict(tide_writer *w, tide_run *run, const tide_job *job, const tide_replay *r,
                          const tide_replay *on_card) {
    tide_arena *arena = w->arena;
    uint64_t device = tide_report_device_bytes(job, r);
    tide_write_key(w, "verdict");
    tide_write_open(w, '{');
    tide_write_key(w, "fits");
    if (!job->device_bytes) {
        tide_write_null(w);
        tide_write_bytes_at(w, "device_bytes", device);
        const char *peak = tide_format(arena, "%s at the peak%s", tide_gib(arena, device), ranged(arena, run, device));
        tide_write_string_at(w, "sentence", tide_format(arena, "%s; choose a card to see whether it fits", peak));
        tide_write_close(w, '}');
        return;
    }
    bool fits = !on_card->is_oom;
    int64_t margin = (int64_t)job->device_bytes - (int64_t)device;
    const char *total = tide_gib(arena, job->device_bytes), *need = tide_gib(arena, device), *sentence;
    if (fits && margin >= 0)
        sentence = tide_format(arena, "%s of %s: fits, %s to spare", need, total, tide_gib(arena, (uint64_t)margin));
    else if (fits)
        sentence = tide_format(
            arena, "%s wanted of %s: runs, because the allocator gives cached memory back and retries %llu times", need,
            total, (unsigned long long)on_card->retries);
    else
        sentence = tide_format(arena, "%s needed, %s there: does not fit, %s short", need, total,
                               margin < 0 ? tide_gib(arena, (uint64_t)-margin) : "fragmented");
    tide_write_bool(w, fits);
    tide_write_bytes_at(w, "device_bytes", device);
    tide_write_bytes_at(w, "gpu_bytes", job->device_bytes);
    tide_write_int_at(w, "margin_bytes", margin);
    tide_write_int_at(w, "retries", (int64_t)on_card->retries);
    tide_write_string_at(w, "sentence", tide_format(arena, "%s%s", sentence, ranged(arena, run, device)));
    if (!fits) {
        tide_write_key(w, "oom");
        tide_write_open(w, '{');
        write_place(w, run, on_card->events);
        tide_write_bytes_at(w, "tried", on_card->oom.tried_bytes);
        tide_write_bytes_at(w, "free", on_card->oom.free_bytes);
        tide_write_bytes_at(w, "allocated", on_card->oom.allocated_bytes);
        tide_write_bytes_at(w, "unallocated", on_card->oom.unallocated_bytes);
        tide_write_close(w, '}');
    }
    tide_write_close(w, '}');
}

/* The smallest device, and what other options of the allocator would change. */
static bool write_options(tide_writer *w, const tide_timeline *t, const tide_job *job, const tide_replay *on_card) {
    tide_event_source what = {play_timeline, t};
    tide_replay_config config = config_on_card(job);
    uint64_t smallest;
    if (!tide_smallest_device(&smallest, &what, &config)) return false;
    tide_write_bytes_at(w, "smallest_device_bytes", smallest);
    return tide_write_options(w, &what, &config, job->allocator, !on_card->is_oom);
}

static void write_gpu(tide_writer *w, const tide_job *job) {
    tide_write_key(w, "gpu");
    if (!job->has_gpu) {
        tide_write_null(w);
        return;
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", job->gpu.name);
    tide_write_string_at(w, "title", job->gpu.title);
    tide_write_bytes_at(w, "bytes", job->gpu.bytes);
    tide_write_int_at(w, "capability", job->gpu.capability);
    tide_write_bytes_at(w, "context_bytes", job->gpu.context_bytes);
    tide_write_close(w, '}');
}

static void write_settings(tide_writer *w, const tide_job *job) {
    static const char *const origins[] = {"default", "recipe", "file", "user"};
    tide_write_string_at(w, "link", job->link);
    tide_write_key(w, "settings");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < job->row_count; i++) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", job->rows[i].name);
        tide_write_string_at(w, "value", job->rows[i].value);
        tide_write_string_at(w, "origin", origins[job->rows[i].origin]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void write_file_keys(tide_writer *w, const tide_file_summary *card, tide_key_effect effect, const char *name) {
    tide_write_key(w, name);
    tide_write_open(w, '[');
    for (const tide_file_key *entry = card->first; entry; entry = entry->next) {
        if (entry->effect != effect) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "key", entry->key);
        if (entry->value) tide_write_string_at(w, "value", entry->value);
        if (effect == TIDE_KEY_USED && entry->setting) {
            tide_write_string_at(w, "setting", entry->setting);
            tide_write_string_at(w, "taken", entry->taken);
        }
        if (entry->note) tide_write_string_at(w, "note", entry->note);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* Files that start training: what became of each key. */
static void write_files(tide_writer *w, const tide_job *job) {
    static const char *const names[TIDE_KEY_EFFECT_COUNT] = {"used", "ignored", "unsupported", "unknown", "overruled"};
    if (!job->files) return;
    tide_write_key(w, "files");
    tide_write_open(w, '[');
    for (const tide_file_summary *card = job->files; card; card = card->next) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", card->name);
        tide_write_string_at(w, "title", card->title);
        for (unsigned effect = 0; effect < TIDE_KEY_EFFECT_COUNT; effect++)
            write_file_keys(w, card, (tide_key_effect)effect, names[effect]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* What no verdict counts: NCCL's buffers, and what is offloaded to pinned memory of the host. */
static void write_besides(tide_writer *w, const tide_run *run, const tide_job *job) {
    int64_t communicators = 0, nccl = tide_nccl_bytes(job, &communicators);
    if (!nccl && !run->machine.host_pinned) return;
    tide_write_key(w, "besides");
    tide_write_open(w, '[');
    if (nccl) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", "nccl");
        tide_write_bytes_at(w, "bytes", (uint64_t)nccl);
        tide_write_int_at(w, "communicators", communicators);
        tide_write_string_at(w, "source",
                             "an estimate: 24 channels of a ring over NVLink, each with NCCL's buffers for its three "
                             "protocols (nccl src/init.cc, computeBuffSizes)");
        tide_write_close(w, '}');
    }
    if (run->machine.host_pinned) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", "host_pinned");
        tide_write_bytes_at(w, "bytes", run->machine.host_pinned);
        tide_write_string_at(w, "source",
                             "pinned memory of the host for what is offloaded, of this rank; PyTorch rounds each block "
                             "up to a power of two");
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void write_peak(tide_writer *w, tide_run *run, const tide_job *job, const tide_replay *r) {
    tide_write_key(w, "peak");
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "allocated", r->allocated_peak);
    tide_write_bytes_at(w, "reserved", r->reserved_peak);
    uint64_t device = tide_report_device_bytes(job, r);
    tide_write_bytes_at(w, "device", device);
    tide_write_bytes_at(w, "context", context_of(job));
    if (run->stand_in_of) { /* no description of its own */
        tide_write_key(w, "range");
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "low", device - either_way(run, device));
        tide_write_bytes_at(w, "high", device + either_way(run, device));
        tide_write_close(w, '}');
    }
    write_place(w, run, r->peak_event);
    if (tide_option_int(job, TIDE_OPTION_dp, 1) > 1)
        tide_write_int_at(w, "rank", tide_option_int(job, TIDE_OPTION_rank, 0));
    tide_write_close(w, '}');
}

bool tide_write_measure(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_replay r, on_card;
    tide_replay_config config = tide_report_config(job);
    if (!tide_replay_timeline(&r, &run->machine.timeline, &config, false) ||
        !tide_report_on_card(&on_card, run, job, &r))
        return false;
    write_peak(w, run, job, &r);
    write_verdict(w, run, job, &r, &on_card);
    return true;
}

bool tide_write_cell(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_replay r, on_card;
    tide_replay_config config = tide_report_config(job);
    if (!tide_replay_timeline(&r, &run->machine.timeline, &config, false)) return false;
    bool is_too_much = job->device_bytes && r.requested_peak > job->device_bytes; /* however it is laid out */
    if (is_too_much)
        on_card = (tide_replay){.is_oom = true};
    else if (!tide_report_on_card(&on_card, run, job, &r))
        return false;
    uint64_t device = tide_report_device_bytes(job, &r);
    tide_write_key(w, "peak");
    tide_write_open(w, '{');
    tide_write_bytes_at(w, "allocated", r.allocated_peak);
    tide_write_bytes_at(w, "reserved", r.reserved_peak);
    tide_write_bytes_at(w, "device", device);
    if (tide_option_int(job, TIDE_OPTION_dp, 1) > 1)
        tide_write_int_at(w, "rank", tide_option_int(job, TIDE_OPTION_rank, 0));
    tide_write_close(w, '}');
    tide_write_key(w, "verdict");
    tide_write_open(w, '{');
    tide_write_key(w, "fits");
    if (job->device_bytes)
        tide_write_bool(w, !on_card.is_oom);
    else
        tide_write_null(w);
    tide_write_bytes_at(w, "device_bytes", device);
    if (job->device_bytes) {
        tide_write_bytes_at(w, "gpu_bytes", job->device_bytes);
        tide_write_int_at(w, "margin_bytes", (int64_t)job->device_bytes - (int64_t)device);
    }
    tide_write_close(w, '}');
    return true;
}

/* A link that says what the job came to when it was made. */
static void warn_of_was(tide_arena *arena, const tide_job *job, uint64_t device, tide_diagnostics *diags) {
    const char *bar = job->was.length ? memchr(job->was.at, '_', job->was.length) : NULL,
               *now = tide_gib_digits(arena, device);
    if (!bar) return;
    tide_text gib = {job->was.at, (size_t)(bar - job->was.at)}, version = {bar + 1, job->was.length - gib.length - 1};
    if (tide_text_is(gib, now)) return;
    tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/link",
                tide_format(arena, "said %s GiB when it was made with %s; it is %s GiB now", tide_text_copy(arena, gib),
                            tide_text_copy(arena, version), now),
                "a rule or a default has changed since; the assumptions list the defaults");
}

bool tide_write_estimate(tide_writer *w, tide_run *run, const tide_job *job, tide_diagnostics *diags,
                         bool with_options) {
    tide_timeline *t = &run->machine.timeline;
    tide_replay r, on_card;
    tide_replay_config config = tide_report_config(job);
    tide_settle_factors(t);
    if (!tide_replay_timeline(&r, t, &config, true) || !tide_report_on_card(&on_card, run, job, &r)) return false;
    warn_of_was(w->arena, job, tide_report_device_bytes(job, &r), diags);
    write_settings(w, job);
    write_files(w, job);
    write_model(w, run, job);
    write_gpu(w, job);
    write_verdict(w, run, job, &r, &on_card);
    if (with_options && !write_options(w, t, job, &on_card)) return false;
    write_peak(w, run, job, &r);
    uint64_t factors[TIDE_FACTOR_COUNT];
    tide_report_factors(t, &r, r.peak_event, factors);
    write_factor_list(w, factors);
    tide_write_key(w, "outside");
    tide_write_open(w, '[');
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", "fragmentation");
    tide_write_bytes_at(w, "bytes", r.reserved_peak - r.allocated_peak);
    tide_write_string_at(w, "source", "reserved peak less allocated peak: cached blocks and the rounding of segments");
    tide_write_close(w, '}');
    if (job->has_gpu) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", "context");
        tide_write_bytes_at(w, "bytes", context_of(job));
        tide_write_string_at(w, "source", job->gpu.context_source);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    write_besides(w, run, job);
    write_breakdown(w, run, &r);
    write_tensors(w, run, &r, 20);
    tide_write_timeline(w, run, &r, 0, r.events);
    write_steps(w, &r);
    tide_write_key(w, "allocator");
    tide_write_open(w, '{');
    tide_write_int_at(w, "segments", (int64_t)(r.small_segments + r.large_segments));
    tide_write_int_at(w, "retries", (int64_t)r.retries);
    tide_write_int_at(w, "ooms", (int64_t)r.ooms);
    tide_write_string_at(w, "conf", job->allocator);
    tide_write_close(w, '}');
    write_assumptions(w, job, diags);
    tide_write_diagnostics(w, diags, false);
    return true;
}

bool tide_write_figures(tide_writer *w, tide_run *run, const tide_job *job) {
    tide_timeline *t = &run->machine.timeline;
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    config.device_bytes = job->device_bytes;
    tide_settle_factors(t);
    if (!tide_replay_timeline(&r, t, &config, false)) return false;
    tide_write_key(w, "parameters");
    tide_write_open(w, '{');
    tide_write_int_at(w, "total", run->parameters);
    tide_write_int_at(w, "trainable", run->trainable);
    tide_write_close(w, '}');
    tide_write_string_at(w, "outcome", r.is_oom ? "oom" : "ok");
    tide_write_int_at(w, "range_percent", run->stand_in_percent);
    tide_write_bytes_at(w, "allocated_peak", r.allocated_peak);
    tide_write_bytes_at(w, "reserved_peak", r.reserved_peak);
    write_steps(w, &r);
    uint64_t factors[TIDE_FACTOR_COUNT];
    tide_report_factors(t, &r, r.peak_event, factors);
    tide_write_key(w, "at_peak");
    tide_write_open(w, '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) tide_write_bytes_at(w, tide_factor_names[i], factors[i]);
    tide_write_close(w, '}');
    tide_write_key(w, "segments");
    tide_write_open(w, '{');
    tide_write_int_at(w, "small", (int64_t)r.small_segments);
    tide_write_int_at(w, "large", (int64_t)r.large_segments);
    tide_write_close(w, '}');
    tide_write_int_at(w, "retries", (int64_t)r.retries);
    tide_write_int_at(w, "ooms", (int64_t)r.ooms);
    return true;
}

bool tide_write_explanation(tide_writer *w, tide_run *run, const tide_job *job, const tide_filter *look) {
    tide_timeline *t = &run->machine.timeline;
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    tide_settle_factors(t);
    if (!tide_replay_timeline(&r, t, &config, true)) return false;
    tide_filter at = *look;
    if (at.event == TIDE_AT_PEAK || !r.events) at.event = r.peak_event;
    if (at.event >= r.events && r.events) at.event = r.events - 1;
    uint32_t count;
    group *groups = find_groups(run, &r, &at, &count);
    uint64_t sum = 0;
    tide_write_bytes_at(w, "allocated_peak", r.allocated_peak);
    tide_write_key(w, "at");
    tide_write_open(w, '{');
    write_place(w, run, at.event);
    if (r.events) tide_write_bytes_at(w, "allocated", r.allocated[at.event]);
    tide_write_close(w, '}');
    tide_write_key(w, "tensors");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        const tide_allocation *a = &t->allocations[groups[i].example];
        const char *path = run->model.instances[a->module].path;
        if (!tide_text_contains(tide_text_of(tide_factor_names[a->factor]), at.of) &&
            !tide_text_contains(tide_text_of(path), at.of) && !tide_text_contains(tide_text_of(a->op), at.of))
            continue;
        write_group(w, run, &groups[i]);
        sum += groups[i].bytes;
    }
    tide_write_close(w, ']');
    tide_write_bytes_at(w, "bytes", sum);
    return true;
}

bool tide_write_events(tide_writer *w, tide_run *run, const tide_job *job, uint32_t from, uint32_t to) {
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    tide_settle_factors(&run->machine.timeline);
    if (!tide_replay_timeline(&r, &run->machine.timeline, &config, true)) return false;
    if (to > r.events) to = r.events;
    if (from >= to) from = to ? to - 1 : 0;
    tide_write_timeline(w, run, &r, from, to);
    return true;
}
