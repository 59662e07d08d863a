/* SPDX-License-Identifier: Apache-2.0 */
/* trl/trainer/grpo_trainer.py, _cast_lm_head_to_fp32(). */
#include "train/fp32_head.h"

static bool refuse_head(tide_trainer_run *t, const char *why, const char *remedy) {
    t->run->machine.has_failed = true;
    return tide_error(t->run->machine.diags, TIDE_ERR_CONFLICT, "/settings/trainer.cast_lm_head_to_fp32", why, remedy);
}

static tide_tensor *weight_of(const tide_trainer_run *t, uint32_t instance) {
    const tide_instance *of = &t->run->model.instances[instance];
    uint32_t slot = instance ? tide_attribute_slot(of->of, TIDE_TEXT("weight")) : UINT32_MAX;
    return slot != UINT32_MAX && of->slots[slot].kind == TIDE_VALUE_TENSOR ? of->slots[slot].tensor : NULL;
}

static uint32_t wrapped(tide_trainer_run *t, uint32_t instance, const char *class_name, tide_dtype dtype) {
    const tide_value given = {.kind = TIDE_VALUE_DTYPE, .dtype = dtype};
    return tide_model_wrap(&t->run->model, instance, tide_text_of(class_name), &given, 1);
}

static bool is_shared(const tide_model *model, uint32_t head, const tide_tensor *weight) {
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (model->parameters[i].tensor == weight) return model->parameters[i].module != head;
    return false;
}

bool tide_replace_head(tide_trainer_run *t) {
    tide_model *model = &t->run->model;
    uint32_t head = tide_model_find(model, TIDE_TEXT("lm_head")),
             embedding = tide_model_find(model, TIDE_TEXT("model.embed_tokens"));
    tide_tensor *weight = weight_of(t, head);
    if (!t->job->trainer_cast_lm_head_to_fp32) return true;
    if (!head)
        return refuse_head(t, "TRL casts a module named lm_head, which this model does not have", "leave it out");
    if (!weight)
        return refuse_head(t, "TRL refuses it where the lm_head has an adapter",
                           "leave lm_head out of adapter.target_modules");
    bool is_tied = is_shared(model, head, weight), is_found = weight_of(t, embedding) == weight;
    if (is_tied && (!is_found || t->job->adapter != TIDE_adapter_none))
        return refuse_head(t,
                           is_found ? "TRL fails with an adapter where the embedding is tied to the head: it looks for "
                                      "model.embed_tokens in peft's wrapper"
                                    : "TRL looks for a tied embedding at model.embed_tokens, where this model has none",
                           "leave it out");
    t->fp32_head = weight;
    uint32_t made = wrapped(t, head, "HeadInFp32", TIDE_FP32);
    if (made && is_tied) made = wrapped(t, embedding, "CastEmbedding", (tide_dtype)weight->dtype);
    tide_model_list_parameters(model);
    *tide_model_setting(model, "head_is_cast") = tide_of_bool(true);
    return made && !model->m->has_failed;
}

static void cast_head_of_model(tide_trainer_run *t) {
    tide_value weight = tide_of_tensor(t->fp32_head);
    tide_function *cast = tide_trainer_function(t, "head_to_fp32");
    if (cast) tide_value_release(&t->run->machine, tide_model_run(&t->run->model, cast, &weight, 1));
}

void tide_cast_head(tide_trainer_run *t) {
    if (!t->fp32_head) return;
    cast_head_of_model(t);
    if (!t->reference_model) return;
    tide_reference_swap(t->reference_model);
    cast_head_of_model(t);
    tide_reference_swap(t->reference_model);
}
