/* SPDX-License-Identifier: Apache-2.0 */
/* Modules made on the meta device, of which only a rank's parts are allocated (torch/nn/modules/module.py: to_empty).
 */
#include "parallel/parallel.h"

void tide_load_on_meta(tide_model *model, const tide_job *job) {
    model->state.is_on_meta = tide_job_is_on_meta(job);
}

void tide_to_empty(tide_model *model, void (*parameter_empty)(tide_model *, uint32_t, tide_tensor *),
                   void (*module_empty)(tide_model *, uint32_t)) {
    model->m->makes_on_host = model->state.is_on_meta = false;
    model->parameter_empty = parameter_empty;
    model->module_empty = module_empty;
    tide_model_to_device(model);
    model->parameter_empty = NULL;
    model->module_empty = NULL;
}

void tide_empty_param(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_machine *m = model->m;
    m->module = instance;
    m->op = "to_empty";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    tide_tensor *made = tide_empty(m, leaf->shape, (tide_dtype)leaf->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_set_data(m, leaf, made);
    tide_release(m, made);
}
