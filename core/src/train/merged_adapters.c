/* SPDX-License-Identifier: Apache-2.0 */
/* Merges adapters into the layers under them. */
#include "train/adapters.h"

static bool merges(const tide_model *model, uint32_t instance) {
    return tide_method_find(model->instances[instance].of, TIDE_TEXT("merge")) != NULL;
}

/* PeftModel.merge_and_unload(): module by module; nested wrappers together (lora/layer.py,
 * ParamWrapper.unload_and_optionally_merge_module). */
void tide_merge_adapters(tide_model *model) {
    uint32_t count, *modules = tide_model_modules(model, &count);
    for (uint32_t i = 0, end; i < count && !model->m->has_failed; i = end) {
        for (end = i; end < count && merges(model, modules[end]); end++) {
            if (end > i && model->instances[modules[end]].parent != modules[end - 1]) break;
            tide_model_call(model, modules[end], TIDE_TEXT("merge"), TIDE_FACTOR_PARAMETER);
        }
        for (uint32_t k = i; k < end; k++) tide_model_unwrap(model, modules[k]);
        end += end == i;
    }
    tide_model_list_parameters(model);
}
