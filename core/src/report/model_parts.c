/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the model: their parameters, and their share of the peak. */
#include "report/model_parts.h"

#include <stdlib.h>
#include <string.h>

#include "report/allocations.h"
#include "report/serving.h"

static const char *title_of(const tide_run *run, const char *part) {
    bool is_described = run->model.scope_count > 0;
    const char *title =
        is_described ? tide_description_title(run->model.scopes[0].description, tide_text_of(part)) : NULL;
    if (title) return title;
    return *part ? part : "Outside of the model";
}

/* Parameters of the model's own class form a part under their name. */
static const char *part_name(const tide_run *run, const tide_parameter_row *p) {
    const char *part = run->model.parts[tide_part_of(run, p->module)];
    if (*part) return part;
    const char *dot = strrchr(p->name, '.');
    return dot ? dot + 1 : p->name;
}

/* Writes one part, whose first parameter is number `i`. Returns the number of the first parameter after it. */
static uint32_t write_part_parameters(tide_writer *w, const tide_run *run, const char *part, uint32_t i) {
    const tide_model *model = &run->model;
    int64_t total = 0, trainable = 0;
    uint32_t next = i;
    for (uint32_t k = i; k < model->parameter_count; k++) {
        if (strcmp(part_name(run, &model->parameters[k]), part) != 0) continue;
        if (k == next) next = k + 1;
        total += model->parameters[k].count;
        if (!run->serving && model->parameters[k].tensor->requires_grad) trainable += model->parameters[k].count;
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", part);
    tide_write_string_at(w, "title", title_of(run, part));
    tide_write_int_at(w, "total", total);
    tide_write_int_at(w, "trainable", trainable);
    tide_write_close(w, '}');
    return next;
}

/* Parts are listed in the order of their first parameters. */
static void write_parts(tide_writer *w, const tide_run *run) {
    const tide_model *model = &run->model;
    tide_write_open_at(w, "parts", '[');
    for (uint32_t i = 0; i < model->parameter_count;) {
        const char *part = part_name(run, &model->parameters[i]);
        bool is_first = true;
        for (uint32_t k = 0; k < i && is_first; k++)
            is_first = strcmp(part_name(run, &model->parameters[k]), part) != 0;
        i = is_first ? write_part_parameters(w, run, part, i) : i + 1;
    }
    tide_write_close(w, ']');
}

void tide_write_model(tide_job_report *r) {
    tide_writer *w = r->w;
    const tide_job *job = r->job;
    tide_write_open_at(w, "model", '{');
    tide_write_string_at(w, "name", job->model);
    if (job->model_title) tide_write_string_at(w, "title", job->model_title);
    tide_write_string_at(w, "architecture",
                         r->run->serving ? tide_text_copy(w->arena, r->run->serving->run->architecture)
                                         : r->run->model.scopes[0].description->name.at);
    if (job->model_source) tide_write_string_at(w, "source", job->model_source);
    tide_write_open_at(w, "parameters", '{');
    tide_write_int_at(w, "total", r->run->parameters);
    tide_write_int_at(w, "trainable", r->run->trainable);
    if (r->run->strategy && r->run->strategy->dialect) tide_write_int_at(w, "rank", job->parallel_rank);
    write_parts(w, r->run);
    tide_write_close(w, '}');
    tide_write_close(w, '}');
}

/* ---- what is live at the peak ---- */

void tide_factors_at_peak(const tide_job_report *r, uint64_t *factors) {
    const tide_timeline *t = &r->run->machine.timeline;
    memset(factors, 0, sizeof *factors * TIDE_FACTOR_COUNT);
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (tide_is_live(t, i, r->replay.peak_event))
            factors[tide_timeline_at(t, i)->factor] += r->replay.block_bytes[i];
}

tide_part_bytes *tide_parts_at_peak(const tide_job_report *r, uint32_t *count, tide_arena *arena) {
    const tide_run *run = r->run;
    const tide_timeline *t = &run->machine.timeline;
    const tide_model *model = &run->model;
    tide_part_bytes *sums = TIDE_NEW(arena, tide_part_bytes, model->part_count + 1),
                    *parts = TIDE_NEW(arena, tide_part_bytes, model->part_count + 1);
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = tide_timeline_at(t, i);
        if (!tide_is_live(t, i, r->replay.peak_event)) continue;
        tide_part_bytes *of = &sums[tide_part_of(run, a->module)];
        of->factors[a->factor] += r->replay.block_bytes[i];
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

static void write_factor_map(tide_writer *w, const uint64_t *factors) {
    uint64_t sum = 0;
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++) sum += factors[i];
    tide_write_bytes_at(w, "bytes", sum);
    tide_write_open_at(w, "factors", '{');
    for (int i = 0; i < TIDE_FACTOR_COUNT; i++)
        if (factors[i]) tide_write_bytes_at(w, tide_factor_names[i], factors[i]);
    tide_write_close(w, '}');
}

/* The bytes of a layer of a part. */
typedef struct layer_bytes {
    uint32_t part, layer, module; /* its first module that holds something */
    uint64_t factors[TIDE_FACTOR_COUNT];
} layer_bytes;

static int by_module(const void *a, const void *b) {
    uint32_t left = ((const layer_bytes *)a)->module, right = ((const layer_bytes *)b)->module;
    return (left > right) - (left < right);
}

/* In the order of the model. */
static layer_bytes *find_layers(const tide_job_report *r, uint32_t *count) {
    const tide_timeline *t = &r->run->machine.timeline;
    const tide_model *model = &r->run->model;
    uint32_t capacity = 0;
    layer_bytes *layers = NULL;
    uint32_t *slots = TIDE_NEW(t->arena, uint32_t, (size_t)model->part_count * model->layer_count + 1); /* layer + 1 */
    *count = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = tide_timeline_at(t, i);
        if (!tide_is_live(t, i, r->replay.peak_event)) continue;
        const tide_instance *of = &model->instances[a->module < model->instance_count ? a->module : 0];
        uint32_t part = a->module ? of->part : 0, layer = a->module ? of->layer : 0;
        uint32_t *slot = &slots[part * model->layer_count + layer];
        if (!*slot) {
            TIDE_ROOM(t->arena, layers, *count, capacity);
            layers[*count] = (layer_bytes){.part = part, .layer = layer, .module = a->module};
            *slot = ++*count;
        }
        layer_bytes *into = &layers[*slot - 1];
        if (a->module < into->module) into->module = a->module;
        into->factors[a->factor] += r->replay.block_bytes[i];
    }
    if (*count) qsort(layers, *count, sizeof *layers, by_module);
    return layers;
}

static void write_part_layers(tide_job_report *r, uint32_t part, const layer_bytes *layers, uint32_t count) {
    const tide_model *model = &r->run->model;
    tide_writer *w = r->w;
    uint64_t sums[TIDE_FACTOR_COUNT] = {0};
    bool has_any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (layers[i].part != part) continue;
        has_any = true;
        for (int f = 0; f < TIDE_FACTOR_COUNT; f++) sums[f] += layers[i].factors[f];
    }
    if (!has_any) return;
    tide_write_open(w, '{');
    tide_write_string_at(w, "part", model->parts[part]);
    tide_write_string_at(w, "title", title_of(r->run, model->parts[part]));
    write_factor_map(w, sums);
    tide_write_open_at(w, "layers", '[');
    for (uint32_t i = 0; i < count; i++) {
        if (layers[i].part != part) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", model->layers[layers[i].layer]);
        write_factor_map(w, layers[i].factors);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_close(w, '}');
}

void tide_write_breakdown(tide_job_report *r) {
    uint32_t count, parts = r->run->model.part_count;
    const layer_bytes *layers = find_layers(r, &count);
    tide_write_open_at(r->w, "breakdown", '[');
    for (uint32_t i = 0; i < parts; i++) /* what is outside of the model comes last */
        write_part_layers(r, i + 1 < parts ? i + 1 : 0, layers, count);
    tide_write_close(r->w, ']');
}
