/* SPDX-License-Identifier: Apache-2.0 */
/* llamafactory/v1/plugins/trainer_plugins/distributed/fsdp2.py: FSDP2Engine.prepare_model(). */
#include "parallel/fsdp2.h"

#include <string.h>

static bool v1_has_children(const tide_model *model, uint32_t instance) {
    for (uint32_t i = instance + 1; i < model->instance_count; i++)
        if (model->instances[i].parent == instance) return true;
    return false;
}

static bool v1_trains(const tide_model *model, uint32_t instance) {
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (model->parameters[i].module == instance && model->parameters[i].tensor->requires_grad) return true;
    return false;
}

/* get_transformer_layer_cls(): classes of the first module of every list named layers or blocks. */
static bool v1_is_layer(const tide_model *model, uint32_t instance) {
    static const char *const lists[] = {"layers.0", "blocks.0"};
    for (uint32_t i = 1; i < model->instance_count; i++)
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
            if (tide_text_is(model->instances[i].name, lists[k]) &&
                model->instances[i].of == model->instances[instance].of)
                return true;
    return false;
}

static bool v1_finds_layers(const tide_model *model) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (v1_is_layer(model, i)) return true;
    return false;
}

bool tide_fsdp2_llama_factory_v1_states(fsdp2 *f) {
    tide_model *model = f->w->model;
    uint32_t embeddings = tide_embeddings_of(model, false), head = tide_embeddings_of(model, true);
    bool is_tied = embeddings && head && tide_shares_parameter(model, embeddings, head);
    if (!v1_finds_layers(model)) {
        tide_fail_setting(
            model->m, TIDE_ERR_UNSUPPORTED, "parallel.kind",
            "the trainer's units are described for models with lists named layers or blocks; use one GPU");
        return false;
    }
    for (uint32_t i = 1; i < model->instance_count && f->w->job->adapter != TIDE_adapter_none; i++)
        if (!v1_has_children(model, i) && v1_trains(model, i)) {
            f->states[f->state_count].is_read_outside = true; /* x.to(lora_A.weight.dtype), peft/tuners/lora/layer.py */
            fsdp2_add_module(f, f->state_count++, i);
        }
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (v1_is_layer(model, i) || (i == embeddings && !is_tied)) fsdp2_add_module(f, f->state_count++, i);
    return true;
}
