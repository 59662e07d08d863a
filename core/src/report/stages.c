/* SPDX-License-Identifier: Apache-2.0 */
/* The stages as tables. */
#include "report/stages.h"

#include <string.h>

#include "base/units.h"
#include "report/allocations.h"
#include "report/job_events.h"
#include "report/job_report.h"

const char tide_stage_names[] = "job, modules, parameters, events, blocks";

typedef struct stage_table {
    tide_writer *w;
    tide_run *run;
    const tide_job *job;
    tide_text filter;
} stage_table;

static bool passes(const stage_table *t, const char *text) {
    return tide_text_contains(tide_text_of(text), t->filter);
}

/* Opens a row if one of its texts passes the filter. */
static bool write_row_of(const stage_table *t, const char *a, const char *b, const char *c) {
    if (!passes(t, a) && !passes(t, b) && !passes(t, c)) return false;
    tide_write_open(t->w, '[');
    return true;
}

static const char *const job_columns[] = {"setting", "value", "origin", NULL};

static bool write_job(const stage_table *t) {
    static const char *const origins[] = {"default", "recipe", "file", "given"};
    for (uint32_t i = 0; i < t->job->row_count; i++) {
        const tide_setting_row *r = &t->job->rows[i];
        if (!write_row_of(t, r->name, r->value, origins[r->origin])) continue;
        tide_write_string(t->w, r->name);
        tide_write_string(t->w, r->value);
        tide_write_string(t->w, origins[r->origin]);
        tide_write_close(t->w, ']');
    }
    return true;
}

static const char *const module_columns[] = {"module", "class", "description", "part", "layer", NULL};

static bool write_modules(const stage_table *t) {
    const tide_model *model = &t->run->model;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        const char *name = tide_text_copy(t->w->arena, of->of->name);
        if (!write_row_of(t, of->path, name, model->parts[of->part])) continue;
        tide_write_string(t->w, of->path);
        tide_write_string(t->w, name);
        tide_write_string(t->w, of->of->home->name.at);
        tide_write_string(t->w, model->parts[of->part]);
        tide_write_string(t->w, model->layers[of->layer]);
        tide_write_close(t->w, ']');
    }
    return true;
}

/* "4096 hidden x 11008 inner" */
static const char *shape_of(const stage_table *t, const tide_dim *dims, unsigned count) {
    const char *text = "";
    for (unsigned i = 0; i < count; i++)
        text = tide_format(t->w->arena, "%s%s%lld%s%s", text, i ? " x " : "", (long long)dims[i].size,
                           dims[i].name ? " " : "", tide_symbol_text(&t->run->machine, dims[i].name));
    return text;
}

static const char *const parameter_columns[] = {"parameter", "shape", "dtype", "bytes", "trains", NULL};

static bool write_parameters(const stage_table *t) {
    const tide_model *model = &t->run->model;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_tensor *p = model->parameters[i].tensor;
        if (!write_row_of(t, model->parameters[i].name, tide_dtype_names[p->dtype],
                          p->requires_grad ? "trains" : "frozen"))
            continue;
        tide_write_string(t->w, model->parameters[i].name);
        tide_write_string(t->w, shape_of(t, p->shape->dim, (unsigned)p->shape->dims));
        tide_write_string(t->w, tide_dtype_names[p->dtype]);
        tide_write_int(t->w, tide_bytes(p));
        tide_write_string(t->w, p->requires_grad ? "trains" : "frozen");
        tide_write_close(t->w, ']');
    }
    return true;
}

static const char *const event_columns[] = {"event", "step",   "phase",     "bytes",  "allocated", "reserved", "shape",
                                            "dtype", "factor", "operation", "module", "line",      NULL};

static void write_event_row(const stage_table *t, const tide_player *p, uint32_t number) {
    const tide_timeline *timeline = &t->run->machine.timeline;
    const tide_mark *end = tide_phase_end(timeline, number);
    uint32_t event = timeline->events[number], which = event & ~TIDE_FREE_BIT;
    if (event == TIDE_EMPTY_CACHE) return;
    const tide_allocation *a = tide_timeline_at(timeline, which);
    if (!write_row_of(t, tide_factor_names[a->factor], tide_module_path(t->run, a), a->op)) return;
    int64_t bytes = (int64_t)p->figures.block_bytes[which];
    const char *line = tide_statement_line(t->run, a->statement);
    tide_write_int(t->w, number);
    tide_write_int(t->w, end ? end->step : 0);
    tide_write_string(t->w, end ? tide_phase_names[end->phase] : "");
    tide_write_int(t->w, event & TIDE_FREE_BIT ? -bytes : bytes);
    tide_write_int(t->w, (int64_t)p->figures.allocated);
    tide_write_int(t->w, (int64_t)p->figures.reserved);
    tide_write_string(t->w, shape_of(t, &timeline->dims[a->shape], a->dims));
    tide_write_string(t->w, tide_dtype_names[a->dtype]);
    tide_write_string(t->w, tide_factor_names[a->factor]);
    tide_write_string(t->w, a->op);
    tide_write_string(t->w, tide_module_path(t->run, a));
    tide_write_string(t->w, line ? line : "");
    tide_write_close(t->w, ']');
}

static bool write_events(const stage_table *t) {
    tide_event_source source = tide_job_events(t->run).source;
    tide_replay_config config = tide_job_config(t->job);
    tide_player p;
    if (!tide_player_open(&p, &source, &config, t->w->arena)) return false;
    for (uint32_t i = 0; i < source.event_count; i++) {
        if (!tide_player_run(&p, i + 1)) return false;
        if (p.figures.is_oom) break;
        write_event_row(t, &p, i);
    }
    tide_player_close(&p);
    return true;
}

/* ---- the allocator at the peak ---- */

static const char *const block_columns[] = {"segment", "offset",    "bytes",  "requested", "state",
                                            "factor",  "operation", "module", NULL};

static void write_block(const stage_table *t, const tide_segment_info *s, const tide_block_info *b,
                        const uint32_t *slots) {
    static const char *const states[] = {"free", "live", "pending"};
    const tide_allocation *a =
        b->state == TIDE_BLOCK_LIVE ? tide_timeline_at(&t->run->machine.timeline, slots[b->block] - 1) : NULL;
    if (!write_row_of(t, states[b->state], a ? tide_factor_names[a->factor] : "", a ? tide_module_path(t->run, a) : ""))
        return;
    tide_write_string(t->w, tide_format(t->w->arena, "%s %#llx", s->is_small ? "small" : "large",
                                        (unsigned long long)(s->address - TIDE_DEVICE_BASE)));
    tide_write_int(t->w, (int64_t)(b->address - s->address));
    tide_write_int(t->w, (int64_t)b->bytes);
    tide_write_int(t->w, a ? (int64_t)a->bytes : 0);
    tide_write_string(t->w, states[b->state]);
    tide_write_string(t->w, a ? tide_factor_names[a->factor] : "");
    tide_write_string(t->w, a ? a->op : "");
    tide_write_string(t->w, a ? tide_module_path(t->run, a) : "");
    tide_write_close(t->w, ']');
}

static bool write_blocks(const stage_table *t) {
    tide_event_source source = tide_job_events(t->run).source;
    tide_replay_config config = tide_job_config(t->job);
    tide_replay whole;
    tide_player p;
    if (!tide_replay_peaks(&whole, &source, &config, t->w->arena) ||
        !tide_player_open(&p, &source, &config, t->w->arena) ||
        !tide_player_run_to(&p, whole.peak_event + 1, whole.peak_iteration, whole.peak_outer))
        return false;
    uint32_t block_count, *slots = tide_player_slots(&p, &block_count, t->w->arena);
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    tide_block_info block;
    while (tide_caching_next_segment(p.allocator, &cursor, &segment))
        while (tide_caching_next_block(p.allocator, &cursor, &block)) write_block(t, &segment, &block, slots);
    tide_player_close(&p);
    return true;
}

static const struct {
    const char *name;
    const char *const *columns;
    bool (*write)(const stage_table *t);
} stages[] = {{"job", job_columns, write_job},
              {"modules", module_columns, write_modules},
              {"parameters", parameter_columns, write_parameters},
              {"events", event_columns, write_events},
              {"blocks", block_columns, write_blocks}};

bool tide_write_stage(tide_writer *w, tide_run *run, const tide_job *job, tide_text stage, tide_text filter,
                      bool *is_known) {
    stage_table t = {w, run, job, filter};
    size_t i = 0, count = TIDE_COUNT_OF(stages);
    while (i < count && !tide_text_is(stage, stages[i].name)) i++;
    *is_known = i < count;
    if (!*is_known) return true;
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
