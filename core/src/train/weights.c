/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a checkpoint with the model. "Stored" refers to what is in the file. */
#include "train/weights.h"

#include <stdlib.h>
#include <string.h>

/* The last components of a stored tensor's name. */
typedef struct name_end {
    tide_text name;
    uint32_t id;
} name_end;

typedef struct matcher {
    tide_model *model;
    const tide_job *job;
    const tide_checkpoint *stored;
    int32_t *stored_of; /* by parameter; -1: none */
    bool *is_taken;     /* by stored tensor */
    const char *text;   /* a few names */
    uint32_t named;
} matcher;

enum { NAMES_SHOWN = 3, CUT_LIMIT = 3 };

static bool has_shape(const tide_stored *s, const tide_tensor *t) {
    bool is_same = (int)s->dims == t->shape->dims;
    for (int i = 0; is_same && i < t->shape->dims; i++) is_same = s->shape[i] == t->shape->dim[i].size;
    return is_same;
}

static const char *shape_text(tide_arena *arena, const tide_stored *s) {
    const char *text = "";
    for (uint32_t i = 0; i < s->dims; i++)
        text = tide_format(arena, "%s%s%lld", text, i ? ", " : "", (long long)s->shape[i]);
    return text;
}

static const char *tensor_text(tide_arena *arena, const tide_tensor *t) {
    const char *text = "";
    for (int i = 0; i < t->shape->dims; i++)
        text = tide_format(arena, "%s%s%lld", text, i ? ", " : "", (long long)t->shape->dim[i].size);
    return text;
}

static const char *cut(tide_text name) {
    const char *dot = memchr(name.at, '.', name.length);
    return dot ? dot + 1 : NULL;
}

static int by_module_name(const void *a, const void *b) {
    const name_end *x = a, *y = b;
    int order = memcmp(x->name.at, y->name.at, x->name.length < y->name.length ? x->name.length : y->name.length);
    return order ? order : (x->name.length > y->name.length) - (x->name.length < y->name.length);
}

/* The names of stored tensors that are still unmatched, without their first `cuts` components; sorted. */
static uint32_t list_ends(const matcher *m, name_end *ends, unsigned cuts) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->stored->count; i++) {
        tide_text name = m->stored->tensors[i].name;
        for (unsigned k = 0; k < cuts && name.at; k++) {
            const char *rest = cut(name);
            name = rest ? (tide_text){rest, name.length - (size_t)(rest - name.at)} : (tide_text){NULL, 0};
        }
        if (name.at && !m->is_taken[i]) ends[count++] = (name_end){name, i};
    }
    qsort(ends, count, sizeof *ends, by_module_name);
    return count;
}

/* Matches a stored tensor that ends in this name, and has the same shape unless is_exact. */
static bool take_match(matcher *m, uint32_t parameter, const name_end *ends, uint32_t count, tide_text name,
                       bool is_exact) {
    uint32_t low = 0, high = count;
    name_end key = {name, 0};
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (by_module_name(&ends[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && tide_text_equal(ends[low].name, name); low++) {
        uint32_t id = ends[low].id;
        if (m->is_taken[id] ||
            (!is_exact && !has_shape(&m->stored->tensors[id], m->model->parameters[parameter].tensor)))
            continue;
        m->is_taken[id] = true;
        m->stored_of[parameter] = (int32_t)id;
        return true;
    }
    return false;
}

/* First by full names, then with leading components such as "model.language_model." and "language_model.model."
 * removed: the longest common ending wins. */
static void match_names(matcher *m) {
    tide_arena *arena = m->model->m->arena;
    name_end *ends = TIDE_NEW(arena, name_end, m->stored->count + 1);
    for (unsigned all = 0; all <= 2 * CUT_LIMIT; all++)
        for (unsigned cuts = 0; cuts <= all && cuts <= CUT_LIMIT; cuts++) {
            if (all - cuts > CUT_LIMIT) continue;
            uint32_t count = list_ends(m, ends, cuts);
            for (uint32_t i = 0; i < m->model->parameter_count && count; i++) {
                tide_text name = tide_text_of(m->model->parameters[i].name);
                if (m->stored_of[i] >= 0) continue;
                for (unsigned k = 0; k < all - cuts && name.at; k++) {
                    const char *rest = cut(name);
                    name = rest ? (tide_text){rest, name.length - (size_t)(rest - name.at)} : (tide_text){NULL, 0};
                }
                if (name.at) take_match(m, i, ends, count, name, all == 0);
            }
        }
}

/* Matches the rest by shape alone: the names of another library. */
static void match_shapes(matcher *m) {
    for (uint32_t i = 0; i < m->model->parameter_count; i++)
        for (uint32_t k = 0; k < m->stored->count && m->stored_of[i] < 0; k++)
            if (!m->is_taken[k] && has_shape(&m->stored->tensors[k], m->model->parameters[i].tensor)) {
                m->is_taken[k] = true;
                m->stored_of[i] = (int32_t)k;
            }
}

/* ---- what is said ---- */

static void name_one(matcher *m, const char *text) {
    if (m->named < NAMES_SHOWN)
        m->text = tide_format(m->model->m->arena, "%s%s%s", m->text, m->named ? ", " : "", text);
    if (m->named == NAMES_SHOWN) m->text = tide_format(m->model->m->arena, "%s, ...", m->text);
    m->named++;
}

static void begin_names(matcher *m) {
    m->text = "";
    m->named = 0;
}

static void say(const matcher *m, tide_severity severity, const char *what, const char *remedy) {
    tide_machine *machine = m->model->m;
    tide_report(machine->diags, severity, severity == TIDE_ASSUMPTION ? TIDE_OK : TIDE_ERR_CONFLICT, "/checkpoint",
                tide_format(machine->arena, "%s (%u): %s", what, m->named, m->text), remedy);
}

/* The number of elements of a quantised weight. */
static bool is_packed(const tide_stored *s) {
    return tide_text_is(s->dtype, "U8") || tide_text_is(s->dtype, "I8") || tide_text_is(s->dtype, "I32") ||
           tide_text_starts(s->dtype, TIDE_TEXT("F8_"));
}

/* from_pretrained refuses weights of another size. */
static bool check_shapes(matcher *m) {
    tide_machine *machine = m->model->m;
    begin_names(m);
    for (uint32_t i = 0; i < m->model->parameter_count; i++) {
        const tide_parameter_row *p = &m->model->parameters[i];
        if (m->stored_of[i] < 0) continue;
        const tide_stored *s = &m->stored->tensors[m->stored_of[i]];
        if (!is_packed(s) && !has_shape(s, p->tensor))
            name_one(m, tide_format(machine->arena, "%s is [%s] in the checkpoint and [%s] by the configuration",
                                    p->name, shape_text(machine->arena, s), tensor_text(machine->arena, p->tensor)));
    }
    if (!m->named) return true;
    machine->has_failed = true;
    return tide_error(machine->diags, TIDE_ERR_CONFLICT, "/checkpoint",
                      tide_format(machine->arena, "of another shape (%u): %s", m->named, m->text),
                      "give the config.json that lies beside the checkpoint; overrides.KEY=VALUE changes it");
}

/* Several stored tensors may form one parameter, or the other way round (experts, fused projections): then both sides
 * have the same number of elements left. */
static bool differs(const matcher *m) {
    int64_t ours = 0, theirs = 0;
    for (uint32_t i = 0; i < m->model->parameter_count; i++)
        if (m->stored_of[i] < 0) ours += tide_model_count(m->model, &m->model->parameters[i]);
    for (uint32_t i = 0; i < m->stored->count; i++)
        if (!m->is_taken[i]) theirs += m->stored->tensors[i].count;
    return ours != theirs;
}

static bool is_tied_copy(const matcher *m, const tide_stored *s) {
    tide_text rest = s->name, path = {s->name.at, 0};
    for (size_t i = 0; i < s->name.length; i++)
        if (s->name.at[i] == '.') path.length = i; /* "lm_head" of "lm_head.weight" */
    for (unsigned k = 0; rest.at && k < CUT_LIMIT; k++) {
        uint32_t at = tide_model_find(m->model, path);
        if (at) return true; /* the module exists: its parameter is listed under another name */
        const char *next = cut(path);
        if (!next) break;
        path = (tide_text){next, path.length - (size_t)(next - path.at)};
    }
    return false;
}

static void say_missing(matcher *m) {
    begin_names(m);
    for (uint32_t i = 0; i < m->model->parameter_count; i++)
        if (m->stored_of[i] < 0) name_one(m, m->model->parameters[i].name);
    if (m->named) say(m, TIDE_WARNING, "not in the checkpoint, and made anew", NULL);
}

static void say_extra(matcher *m) {
    begin_names(m);
    for (uint32_t i = 0; i < m->stored->count; i++) {
        const tide_stored *s = &m->stored->tensors[i];
        if (!m->is_taken[i] && !is_tied_copy(m, s))
            name_one(m, tide_format(m->model->m->arena, "%s [%s]", tide_text_copy(m->model->m->arena, s->name),
                                    shape_text(m->model->m->arena, s)));
    }
    if (m->named) say(m, TIDE_WARNING, "in the checkpoint and not in the model, so not loaded", NULL);
}

static tide_text dtype_stored(tide_dtype dtype) {
    return dtype == TIDE_BF16   ? TIDE_TEXT("BF16")
           : dtype == TIDE_FP16 ? TIDE_TEXT("F16")
           : dtype == TIDE_FP32 ? TIDE_TEXT("F32")
                                : TIDE_TEXT("");
}

static void say_dtypes(matcher *m) {
    tide_text wanted = dtype_stored(m->model->state.dtype), found = {"", 0};
    uint32_t others = 0;
    for (uint32_t i = 0; i < m->stored->count; i++) {
        if (tide_text_equal(m->stored->tensors[i].dtype, wanted)) continue;
        found = m->stored->tensors[i].dtype;
        others++;
    }
    if (others)
        tide_report(m->model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/checkpoint",
                    tide_format(m->model->m->arena,
                                "%u of %u tensors are stored in another type than dtype=%s, as %s: loading casts them",
                                others, m->stored->count, m->job->values[TIDE_SET_dtype],
                                tide_text_copy(m->model->m->arena, found)),
                    NULL);
}

/* ---- a stand-in's parameters made those of the checkpoint ---- */

static tide_tensor *stored_tensor(tide_model *model, const tide_stored *s) {
    tide_shape shape = {.dims = (int)s->dims};
    for (uint32_t i = 0; i < s->dims; i++) shape.dim[i].size = s->shape[i];
    tide_tensor *t = tide_empty_host(model->m, &shape, model->state.dtype);
    t->is_parameter = t->requires_grad = true;
    return t;
}

/* What the checkpoint lacks takes no memory; what it has in addition is loaded and trains, but is used in no product.
 */
static void take_over(matcher *m) {
    tide_model *model = m->model;
    uint32_t absent = 0, extra = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        if (m->stored_of[i] >= 0) continue;
        model->parameters[i].tensor->is_absent = true;
        model->parameters[i].tensor->requires_grad = false;
        absent++;
    }
    model->extra = TIDE_NEW(model->m->arena, tide_parameter_row, m->stored->count + 1);
    for (uint32_t i = 0; i < m->stored->count; i++) {
        const tide_stored *s = &m->stored->tensors[i];
        if (m->is_taken[i] || !s->count) continue;
        model->extra[model->extra_count++] = (tide_parameter_row){
            .tensor = stored_tensor(model, s), .module = model->root, .name = tide_text_copy(model->m->arena, s->name)};
        extra++;
    }
    tide_model_list_parameters(model);
    if (absent || extra)
        tide_report(
            model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/checkpoint",
            tide_format(
                model->m->arena,
                "parameters are those of the checkpoint; of the family that was played instead left out: %u, added: %u",
                absent, extra),
            NULL);
}

/* ---- an index without headers: names alone ---- */

static bool index_has(const tide_checkpoint *c, tide_text name) {
    for (const tide_json *entry = c->index->first; entry; entry = entry->next)
        if (tide_text_equal(entry->key, name)) return true;
    return false;
}

static void say_index(const tide_checkpoint *c, tide_model *model, const tide_job *job) {
    int64_t bytes = 0;
    uint32_t missing = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        bytes += tide_bytes(model->parameters[i].tensor);
        if (c->index->count <= 4096 && !index_has(c, tide_text_of(model->parameters[i].name))) missing++;
    }
    if (c->total_size && c->total_size != bytes)
        tide_report(
            model->m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/checkpoint",
            tide_format(model->m->arena,
                        "%s tells of %lld bytes in %u tensors; the model has %lld bytes in %u parameters in dtype=%s",
                        c->index_file, (long long)c->total_size, c->index->count, (long long)bytes,
                        model->parameter_count, job->values[TIDE_SET_dtype]),
            "give the headers of its files: they have the shapes");
    else
        tide_report(model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/checkpoint",
                    tide_format(model->m->arena, "%s agrees in bytes; %u of %u parameters have another name in it",
                                c->index_file, missing, model->parameter_count),
                    NULL);
}

bool tide_compare_weights(tide_model *model, const tide_job *job, bool is_stand_in) {
    const tide_checkpoint *c = job->checkpoint;
    if (!c) return true;
    if (!c->count) {
        if (c->index) say_index(c, model, job);
        return true;
    }
    matcher m = {.model = model, .job = job, .stored = c, .text = ""};
    m.stored_of = TIDE_NEW(model->m->arena, int32_t, model->parameter_count + 1);
    m.is_taken = TIDE_NEW(model->m->arena, bool, c->count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) m.stored_of[i] = -1;
    match_names(&m);
    if (!is_stand_in && !check_shapes(&m)) return false;
    if (is_stand_in) {
        match_shapes(&m);
        take_over(&m);
    } else if (job->quant == TIDE_quant_none && differs(&m)) {
        say_missing(&m);
        say_extra(&m);
    } else {
        tide_report(model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/checkpoint",
                    tide_format(model->m->arena, "agrees with the model: %u tensors of %lld bytes in %u file%s",
                                c->count, (long long)c->bytes, c->file_count, c->file_count > 1 ? "s" : ""),
                    NULL);
    }
    say_dtypes(&m);
    return true;
}
