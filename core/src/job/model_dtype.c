/* SPDX-License-Identifier: Apache-2.0 */
/* The dtype in which a model is loaded by default: from_pretrained(dtype="auto"); modeling_utils.py, _get_dtype(). */
#include "base/units.h"
#include "job/job.h"

/* The first floating-point tensor. */
static tide_text dtype_of_checkpoint(const tide_checkpoint *checkpoint) {
    static const struct {
        const char *stored, *name;
    } types[] = {{"F32", "float32"}, {"F16", "float16"}, {"BF16", "bfloat16"}};
    for (uint32_t i = 0; checkpoint && i < checkpoint->count; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(types); k++)
            if (tide_text_is(checkpoint->tensors[i].dtype, types[k].stored)) return tide_text_of(types[k].name);
    return TIDE_TEXT("");
}

tide_text tide_model_dtype(const tide_json *config, const tide_checkpoint *checkpoint) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *given = tide_json_at(config, keys[i]);
        if (tide_json_is(given, TIDE_JSON_STRING)) return given->text;
    }
    return dtype_of_checkpoint(checkpoint);
}
