/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of a model, and the loss in its outputs. */
#include <string.h>

#include "train/run.h"

bool tide_model_takes(tide_model *model, const char *name) {
    tide_function *forward = tide_method_find(model->instances[model->root].of, TIDE_TEXT("forward"));
    if (!forward || !tide_function_read(model->descriptions, forward)) return false;
    for (uint32_t i = 0; i < forward->parameter_count; i++)
        if (tide_text_is(forward->parameters[i].name, name)) return true;
    return false;
}

const tide_json *tide_described_inputs(const tide_model *model) {
    const tide_json *inputs = model->instances[model->root].of->inputs;
    return inputs ? inputs : tide_description_at(model->scopes[0].description, "inputs");
}

bool tide_make_batch(tide_run *run, const tide_job *job, tide_batch *b, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    const tide_json *inputs = tide_described_inputs(&run->model);
    m->state.factor = TIDE_FACTOR_INPUT;
    m->op = "inputs";
    for (const tide_json *item = inputs ? inputs->first : NULL; item && b->count < TIDE_INPUT_LIMIT;
         item = item->next) {
        if (item->kind != TIDE_JSON_STRING)
            return tide_error(diags, TIDE_ERR_DESCRIPTION, "/inputs", "an input is an expression in quotes", NULL);
        if (strcmp(item->key.at, "labels") == 0 && !tide_model_takes(&run->model, "labels")) continue; /* no head */
        if (run->is_base_model && !tide_model_takes(&run->model, item->key.at))
            return tide_error(
                diags, TIDE_ERR_UNSUPPORTED, "/config.json/architectures/0",
                tide_format(m->arena, "is not described without a head, which computes its %s", item->key.at),
                "name the class with its head");
        tide_value value =
            tide_model_evaluate(&run->model, item->text, tide_format(m->arena, "/inputs/%s", item->key.at));
        if (m->has_failed) return false;
        if (value.kind == TIDE_VALUE_NONE) continue;
        b->names[b->count] = item->key.at;
        b->values[b->count++] = value;
    }
    if (job->packing || job->parallel_sequence_parallel_size > 1)
        tide_value_release(m, tide_model_evaluate(&run->model, TIDE_TEXT("lay_positions()"), "/inputs"));
    for (uint32_t i = 0; i < b->count && job->parallel_sequence_parallel_size > 1; i++) /* whose labels are shifted */
        if (strcmp(b->names[i], "labels") == 0) *tide_model_setting(&run->model, "given_shift_labels") = b->values[i];
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return true;
}

tide_tensor *tide_loss_of(tide_machine *m, tide_value output) {
    tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        tide_tensor *t = items[i].tensor;
        if (t->shape->dims == 0) return tide_retain(t);
        tide_value arguments[3] = {tide_of_tensor(t), tide_none(), tide_of_bool(false)};
        m->op = "mean";
        tide_value mean = tide_op_find(TIDE_TEXT("mean"))->run(m, arguments);
        return mean.kind == TIDE_VALUE_TENSOR ? mean.tensor : NULL;
    }
    tide_fail(m, TIDE_ERR_DESCRIPTION, "forward() returned no tensor");
    return NULL;
}
