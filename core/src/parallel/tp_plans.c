/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: tensor parallelism by the plan of a configuration (tp_plan="auto"), models/tp_plans.json,
 * and core_model_loading.py, which reads a checkpoint of which each rank takes its parts. */
#include <stdlib.h>
#include <string.h>

#include "lang/lang.h"
#include "parallel/tensor_parallel.h"

static bool has_type(const tide_json *row, tide_text model_type) {
    const tide_json *types = tide_json_at(row, "model_types");
    for (const tide_json *type = types ? types->first : NULL; type; type = type->next)
        if (tide_text_equal(type->text, model_type)) return true;
    return false;
}

const tide_json *tide_tp_plan_of(const tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_json *type = tide_json_at(w->job->config, "model_type");
    const tide_source source = tide_source_whole(m->arena, &tide_tp_plans_source);
    const tide_json *rows = tide_json_parse(m->arena, (tide_text){source.text, source.length}, "/tp_plans", m->diags);
    for (const tide_json *row = rows ? rows->first : NULL; row && tide_json_is(type, TIDE_JSON_STRING); row = row->next)
        if (has_type(row, type->text)) return tide_json_at(row, "tp_plan");
    tide_fail(m, TIDE_ERR_CONFLICT,
              "parallel.tp_plan: `tp_size=%lld` was requested, but %s has no `tp_plan` in transformers 5.23; use none",
              (long long)w->job->parallel_tp, w->model->instances[w->model->root].of->name.at);
    return NULL;
}

/* ---- loading ---- */

static bool is_key_digit(char c) {
    return c >= '0' && c <= '9';
}

/* dot_natural_key(): parts between dots, numbers by their value. */
static int by_key(const void *a, const void *b) {
    const char *x = (*(const tide_parameter_row *const *)a)->name, *y = (*(const tide_parameter_row *const *)b)->name;
    while (*x && *x == *y) x++, y++;
    if (is_key_digit(*x) && is_key_digit(*y)) {
        size_t of_x = 0, of_y = 0;
        while (is_key_digit(x[of_x])) of_x++;
        while (is_key_digit(y[of_y])) of_y++;
        if (of_x != of_y) return of_x < of_y ? -1 : 1;
    }
    /* a part ends before it goes on */
    int of_x = *x == '.' ? 1 : (unsigned char)*x, of_y = *y == '.' ? 1 : (unsigned char)*y;
    return of_x - of_y;
}

static void leave_empty(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    (void)model;
    (void)instance;
    (void)leaf;
}

void tide_read_parts(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    uint32_t count = model->parameter_count;
    const tide_parameter_row **rows = TIDE_NEW(m->arena, const tide_parameter_row *, count + 1);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = &model->parameters[i];
        bytes += tide_bytes(rows[i]->tensor);
    }
    qsort(rows, count, sizeof *rows, by_key);
    m->op = "caching_allocator_warmup";
    tide_alloc_and_free(m, bytes / 2 * 2);
    for (uint32_t i = 0; i < count; i++) tide_empty_param(model, rows[i]->module, rows[i]->tensor);
    tide_to_empty(model, leave_empty, NULL);
}
