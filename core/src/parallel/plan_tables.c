/* SPDX-License-Identifier: Apache-2.0 */
/* models/tp_plans.json: the tensor, expert and fully sharded plans of transformers' classes. */
#include "lang/lang.h"
#include "parallel/tensor_parallel.h"

static bool has_type(const tide_json *row, tide_text model_type) {
    const tide_json *types = tide_json_at(row, "model_types");
    for (const tide_json *type = types ? types->first : NULL; type; type = type->next)
        if (tide_text_equal(type->text, model_type)) return true;
    return false;
}

const tide_json *tide_plan_rows(tide_model *model) {
    const tide_source source = tide_source_whole(model->m->arena, &tide_tp_plans_source);
    return tide_json_parse(model->m->arena, (tide_text){source.text, source.length}, "/tp_plans", model->m->diags);
}

const tide_json *tide_plans_of_type(const tide_json *rows, const tide_json *type) {
    for (const tide_json *row = rows ? rows->first : NULL; row && tide_json_is(type, TIDE_JSON_STRING); row = row->next)
        if (has_type(row, type->text)) return row;
    return NULL;
}

bool tide_is_new_to_transformers(const tide_json *type) {
    return tide_json_is(type, TIDE_JSON_STRING) && !tide_model_type_of(type->text);
}
