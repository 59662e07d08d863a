/* The stages as tables. */
#include "report/stages.h"

#include "base/units.h"

#include <string.h>

const char tide_stage_names[] = "job, modules, parameters, events, blocks";

typedef struct table {
    tide_writer *w;
    tide_run *run;
    const tide_job *job;
    tide_text filter;
} table;

static bool passes(const table *t, const char *text) {
    return tide_text_contains(tide_text_of(text), t->filter);
}

/* Opens a row if one of its texts passes the filter. */
static bool row(const table *t, const char *a, const char *b, const char *c) {
    if (!passes(t, a) && !passes(t, b) && !passes(t, c)) return false;
    tide_write_open(t->w, '[');
    return true;
}

static const char *const job_columns[] = {"setting", "value", "origin", NULL};

static bool write_job(const table *t) {
    static const char *const origins[] = {"default", "recipe", "file", "given"};
    for (uint32_t i = 0; i < t->job->row_count; i++) {
        const tide_setting_row *r = &t->job->rows[i];
        if (!row(t, r->name, r->value, origins[r->origin])) continue;
        tide_write_string(t->w, r->name);
        tide_write_string(t->w, r->value);
        tide_write_string(t->w, origins[r->origin]);
        tide_write_close(t->w, ']');
    }
    return true;
}

static const char *const module_columns[] = {"module", "class", "description", "part", "layer", NULL};

static bool write_modules(const table *t) {
    const tide_model *model = &t->run->model;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        const char *name = tide_text_copy(t->w->arena, of->of->name);
        if (!row(t, of->path, name, model->parts[of->part])) continue;
        tide_write_string(t->w, of->path);
        tide_write_string(t->w, name);
        tide_write_string(t->w, of->of->description->name.at);
        tide_write_string(t->w, model->parts[of->part]);
        tide_write_string(t->w, model->layers[of->layer]);
        tide_write_close(t->w, ']');
    }
    return true;
}

/* "4096 hidden x 11008 inner" */
static const char *shape_of(const table *t, const tide_dim *dims, unsigned count) {
    const char *text = "";
    for (unsigned i = 0; i < count; i++)
        text = tide_format(t->w->arena, "%s%s%lld%s%s", text, i ? " x " : "", (long long)dims[i].n,
                           dims[i].name ? " " : "", tide_symbol_text(&t->run->machine, dims[i].name));
    return text;
}

static const char *const parameter_columns[] = {"parameter", "shape", "dtype", "bytes", "trains", NULL};

static bool write_parameters(const table *t) {
    const tide_model *model = &t->run->model;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_tensor *p = model->parameters[i].tensor;
        tide_dim dims[TIDE_MAX_DIMS];
        for (int d = 0; d < p->shape->dims; d++) dims[d] = tide_dim_of(p, d);
        if (!row(t, model->parameters[i].name, tide_dtype_names[p->dtype], p->requires_grad ? "trains" : "frozen"))
            continue;
        tide_write_string(t->w, model->parameters[i].name);
        tide_write_string(t->w, shape_of(t, dims, (unsigned)p->shape->dims));
        tide_write_string(t->w, tide_dtype_names[p->dtype]);
        tide_write_int(t->w, tide_bytes(p));
        tide_write_string(t->w, p->requires_grad ? "trains" : "frozen");
        tide_write_close(t->w, ']');
    }
    return true;
}

static const char *module_of(const table *t, const tide_allocation *a) {
    return a->module < t->run->model.instance_count ? t->run->model.instances[a->module].path : "";
}

static const char *const event_columns[] = {"event", "step",   "phase",     "bytes",  "allocated", "reserved", "shape",
                                            "dtype", "factor", "operation", "module", "line",      NULL};

static bool write_events(const table *t) {
    const tide_timeline *timeline = &t->run->machine.timeline;
    tide_replay r;
    tide_replay_config config = tide_report_config(t->job);
    if (!tide_replay_timeline(&r, timeline, &config, true)) return false;
    uint32_t mark = 0;
    for (uint32_t i = 0; i < r.events; i++) {
        while (mark < timeline->mark_count && timeline->marks[mark].event <= i) mark++;
        if (timeline->events[i] == TIDE_EMPTY_CACHE) continue;
        uint32_t which = timeline->events[i] & ~TIDE_FREE_BIT;
        const tide_allocation *a = &timeline->allocations[which];
        if (!row(t, tide_factor_names[a->factor], module_of(t, a), a->op)) continue;
        int64_t bytes = (int64_t)r.block_bytes[which];
        tide_write_int(t->w, i);
        tide_write_int(t->w, mark < timeline->mark_count ? timeline->marks[mark].step : 0);
        tide_write_string(t->w, mark < timeline->mark_count ? tide_phase_names[timeline->marks[mark].phase] : "");
        tide_write_int(t->w, timeline->events[i] & TIDE_FREE_BIT ? -bytes : bytes);
        tide_write_int(t->w, (int64_t)r.allocated[i]);
        tide_write_int(t->w, (int64_t)r.reserved[i]);
        tide_write_string(t->w, shape_of(t, &timeline->dims[a->shape], a->dims));
        tide_write_string(t->w, tide_dtype_names[a->dtype]);
        tide_write_string(t->w, tide_factor_names[a->factor]);
        tide_write_string(t->w, a->op);
        tide_write_string(t->w, module_of(t, a));
        const char *line = tide_report_line(t->run, a->statement);
        tide_write_string(t->w, line ? line : "");
        tide_write_close(t->w, ']');
    }
    return true;
}

/* ---- the allocator at the peak ---- */

static const char *const block_columns[] = {"segment", "offset",    "bytes",  "requested", "state",
                                            "factor",  "operation", "module", NULL};

static void write_block(const table *t, const tide_segment_info *s, const tide_block_info *b, const uint32_t *holder) {
    static const char *const states[] = {"free", "live", "pending"};
    const tide_allocation *a =
        b->state == TIDE_BLOCK_LIVE ? &t->run->machine.timeline.allocations[holder[b->block]] : NULL;
    if (!row(t, states[b->state], a ? tide_factor_names[a->factor] : "", a ? module_of(t, a) : "")) return;
    tide_write_string(t->w, tide_format(t->w->arena, "%s %#llx", s->is_small ? "small" : "large",
                                        (unsigned long long)(s->address - TIDE_DEVICE_BASE)));
    tide_write_int(t->w, (int64_t)(b->address - s->address));
    tide_write_int(t->w, (int64_t)b->bytes);
    tide_write_int(t->w, a ? (int64_t)a->bytes : 0);
    tide_write_string(t->w, states[b->state]);
    tide_write_string(t->w, a ? tide_factor_names[a->factor] : "");
    tide_write_string(t->w, a ? a->op : "");
    tide_write_string(t->w, a ? module_of(t, a) : "");
    tide_write_close(t->w, ']');
}

static bool write_blocks(const table *t) {
    const tide_timeline *timeline = &t->run->machine.timeline;
    tide_arena *arena = t->w->arena;
    tide_replay r;
    tide_replay_config config = tide_report_config(t->job);
    tide_caching_allocator *allocator;
    if (!tide_replay_timeline(&r, timeline, &config, false) ||
        !tide_replay_allocator(&allocator, tide_arena_memory(arena), &config, true))
        return false;
    tide_block *blocks = TIDE_NEW(arena, tide_block, timeline->allocation_count + 1);
    bool ok = tide_replay_span(allocator, timeline, 0, r.peak_event, blocks);
    uint32_t highest = 0;
    for (uint32_t i = 0; i < timeline->allocation_count; i++) highest = blocks[i] > highest ? blocks[i] : highest;
    uint32_t *holder = TIDE_NEW(arena, uint32_t, highest + 1u); /* block to allocation: the latest of each */
    for (uint32_t i = 0; i < timeline->allocation_count; i++) holder[blocks[i]] = i;
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    tide_block_info block;
    while (ok && tide_caching_next_segment(allocator, &cursor, &segment))
        while (tide_caching_next_block(allocator, &cursor, &block)) write_block(t, &segment, &block, holder);
    tide_caching_destroy(allocator);
    return ok;
}

static const struct {
    const char *name;
    const char *const *columns;
    bool (*write)(const table *t);
} stages[] = {{"job", job_columns, write_job},
              {"modules", module_columns, write_modules},
              {"parameters", parameter_columns, write_parameters},
              {"events", event_columns, write_events},
              {"blocks", block_columns, write_blocks}};

bool tide_write_stage(tide_writer *w, tide_run *run, const tide_job *job, tide_text stage, tide_text filter,
                      bool *is_known) {
    table t = {w, run, job, filter};
    size_t i = 0, count = TIDE_COUNT_OF(stages);
    while (i < count && !tide_text_is(stage, stages[i].name)) i++;
    *is_known = i < count;
    if (!*is_known) return true;
    tide_settle_factors(&run->machine.timeline);
    tide_write_string_at(w, "stage", stages[i].name);
    tide_write_key(w, "columns");
    tide_write_open(w, '[');
    for (const char *const *column = stages[i].columns; *column; column++) tide_write_string(w, *column);
    tide_write_close(w, ']');
    tide_write_key(w, "rows");
    tide_write_open(w, '[');
    bool ok = stages[i].write(&t);
    tide_write_close(w, ']');
    return ok;
}
