/* SPDX-License-Identifier: Apache-2.0 */
/* A head that shares the embedding's weight (tie_word_embeddings), when the two are sharded or on different ranks:
 * parallelize_module() or fully_shard() replaces the parameter of one module by its part, the other keeps the full one,
 * and from then on they are two parameters. */
#include "parallel/parallel.h"

/* With peft's modules_to_save that is the original module. */
static bool is_head(const tide_model *model, uint32_t instance) {
    const tide_instance *of = &model->instances[instance];
    if (tide_text_is(of->of->name, "ModulesToSaveWrapper")) return false;
    if (tide_text_is(of->name, "original_module")) of = &model->instances[of->parent];
    tide_text output = model->instances[model->root].of->output_embeddings;
    return of->parent == model->root && tide_text_equal(of->name, output.length ? output : TIDE_TEXT("lm_head"));
}

uint32_t tide_tied_head(const tide_model *model) {
    for (uint32_t i = 1; i < model->instance_count; i++) {
        bool has_parameter = false;
        if (!is_head(model, i)) continue;
        for (uint32_t k = 0; k < model->parameter_count; k++)
            has_parameter = has_parameter || model->parameters[k].module == i;
        if (!has_parameter) return i;
    }
    return 0;
}

tide_tensor *tide_tied_weight(const tide_model *model) {
    const tide_instance *head = &model->instances[tide_tied_head(model)];
    for (uint32_t i = 0; head != model->instances && i < head->of->member_count; i++) {
        const tide_value *slot = &head->slots[head->of->parameter_count + i];
        if (slot->kind == TIDE_VALUE_TENSOR && slot->tensor->is_parameter) return slot->tensor;
    }
    return NULL;
}

/* The optimizer has the head's weight after the others in the group of the embedding. */
static void add_member(tide_wrapper *w, const tide_tensor *embedding, tide_tensor *own, uint32_t head) {
    uint32_t count = tide_optimizer_members(w->optimizer, NULL), n = 0, group = UINT32_MAX;
    tide_optimized *members = TIDE_NEW(w->model->m->arena, tide_optimized, 2 * count + 1), *with = members + count;
    tide_optimizer_members(w->optimizer, members);
    for (uint32_t i = 0; i < count; i++)
        if (members[i].tensor == embedding) group = members[i].group;
    for (uint32_t i = 0; i < count; i++) {
        with[n++] = members[i];
        if (members[i].group == group && (i + 1 == count || members[i + 1].group != group))
            with[n++] = (tide_optimized){.tensor = own, .module = head, .group = group};
    }
    tide_optimizer_replace(w->optimizer, with, n);
}

/* In named_parameters() the head is last; Module.to() had moved the others in this order. */
static void add_to_order(tide_model *model) {
    const uint32_t *order = tide_children_first(model);
    uint32_t *with = TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 2);
    for (uint32_t i = 0; i < model->parameter_count; i++) with[i] = order[i];
    with[model->parameter_count] = model->parameter_count;
    model->children_first = with;
}

uint32_t tide_untie_head(tide_wrapper *w, bool is_head_last) {
    tide_model *model = w->model;
    uint32_t head = tide_tied_head(model);
    for (uint32_t i = 0; head && i < model->parameter_count; i++) {
        tide_tensor *tied = model->parameters[i].tensor;
        if (tied->shape->dims != 2) continue;
        add_to_order(model);
        tide_tensor *own = tide_model_untie(model, head, tied);
        if (!own) continue;
        if (is_head_last) {
            tide_storage *whole = tied->storage;
            tied->storage = own->storage;
            own->storage = whole;
        }
        add_member(w, tied, own, head);
        return head;
    }
    return 0;
}

uint32_t tide_embeddings_of(tide_model *model, bool is_output) {
    uint32_t first = 0;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_class *of = model->instances[i].of;
        uint32_t found = tide_model_below(model, i, is_output ? of->output_embeddings : of->input_embeddings);
        if (found && (is_output || tide_text_ends(model->instances[found].of->name, TIDE_TEXT("Embedding"))))
            return found;
        first = first ? first : found;
    }
    return is_output ? tide_model_find(model, TIDE_TEXT("lm_head")) : first;
}

bool tide_shares_parameter(const tide_model *model, uint32_t one, uint32_t other) {
    tide_text weight = TIDE_TEXT("weight");
    const tide_instance *a = &model->instances[tide_delegated(model, one, weight)],
                        *b = &model->instances[tide_delegated(model, other, weight)];
    for (uint32_t i = 0; i < a->of->parameter_count + a->of->member_count; i++)
        for (uint32_t k = 0; k < b->of->parameter_count + b->of->member_count; k++)
            if (a->slots[i].kind == TIDE_VALUE_TENSOR && b->slots[k].kind == TIDE_VALUE_TENSOR &&
                a->slots[i].tensor == b->slots[k].tensor)
                return true;
    return false;
}
