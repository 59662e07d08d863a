/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's Ulysses around the model. Its attention is in models/architectures/library/ulysses.json. */
#include "parallel/ulysses.h"

#include <string.h>

tide_dtype tide_communication_dtype(const tide_job *job) {
    if (job->parallel_sequence_parallel_size > 1)
        return tide_dtype_or(job->parallel_seq_parallel_communication_data_type, TIDE_FP32);
    return tide_dtype_or(job->parallel_communication_data_type, tide_dtype_or(job->parallel_half, TIDE_FP32));
}

void tide_ulysses_before_forward(tide_wrapper *w) {
    tide_model *model = w->model;
    if (w->job->parallel_sequence_parallel_size == 1) return;
    const tide_size *size = tide_size_find(model->descriptions, model->scopes[0].description, TIDE_TEXT("kv_heads"));
    if (!size || !strstr(tide_text_copy(model->m->arena, size->item->text), "num_key_value_heads"))
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.sequence_parallel_size",
                          "DeepSpeed's Ulysses reads num_key_value_heads of the text configuration; it is described "
                          "for decoders whose configuration has them itself; use 1, or such a decoder, as llama");
}

void tide_ulysses_after_forward(tide_wrapper *w, tide_value *output) {
    tide_model *model = w->model;
    if (w->job->parallel_sequence_parallel_size == 1 || output->kind != TIDE_VALUE_LIST || !output->list->count) return;
    tide_function *weighted = tide_function_find(model->descriptions, NULL, TIDE_TEXT("loss_over_ranks"));
    tide_value names = tide_model_run(model, weighted, (tide_value[]){output->list->items[0], w->labels}, 2);
    if (names.kind != TIDE_VALUE_LIST) return;
    for (uint32_t i = 0; i < output->list->count; i++) { /* deepspeed_sp_compute_loss() returns the loss alone */
        tide_value_release(model->m, output->list->items[i]);
        output->list->items[i] = tide_none();
    }
    output->list->items[0] = names.list->items[0];
    tide_value_retain(output->list->items[0]);
    tide_value_release(model->m, names);
}
