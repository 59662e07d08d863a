/* SPDX-License-Identifier: Apache-2.0 */
/* trl/trainer/utils.py, create_model_from_path(); trl/models/utils.py, prepare_deepspeed() and prepare_fsdp(). */
#include "train/reference.h"

#include "job/trainers.h"

/* Exchanges storage and dtype, and for views of a flat parameter their nodes. */
static void exchange(tide_tensor *one, tide_tensor *other) {
    const tide_tensor was = *one;
    one->storage = other->storage;
    one->dtype = other->dtype;
    one->node = other->node;
    one->requires_grad = other->requires_grad;
    one->is_leaf = other->is_leaf;
    one->is_view = other->is_view;
    other->storage = was.storage;
    other->dtype = was.dtype;
    other->node = was.node;
    other->requires_grad = was.requires_grad;
    other->is_leaf = was.is_leaf;
    other->is_view = was.is_view;
}

static tide_tensor *weight_at(const tide_model *model, uint32_t i) {
    return i < model->parameter_count ? model->parameters[i].tensor : model->buffers[i - model->parameter_count];
}

tide_hooks tide_exchange_hooks(tide_model *model, tide_hooks given) {
    tide_machine *m = model->m;
    const tide_hooks was = {.machine_wrapper = m->wrapper,
                            .before_forward = model->before_forward,
                            .after_forward = model->after_forward,
                            .read_parameter = model->read_parameter,
                            .linear = m->linear};
    m->wrapper = given.machine_wrapper;
    model->before_forward = given.before_forward;
    model->after_forward = given.after_forward;
    model->read_parameter = given.read_parameter;
    m->linear = given.linear;
    return was;
}

void tide_reference_swap(tide_reference *r) {
    tide_model *model = r->wrapper.model;
    for (uint32_t i = 0; i < r->count; i++) exchange(weight_at(model, i), r->weights[i]);
    for (uint32_t i = 0; i < r->state_count; i++) {
        tide_value state = r->states[i].other;
        r->states[i].other = *r->states[i].member;
        *r->states[i].member = state;
    }
    r->hooks = tide_exchange_hooks(model, r->hooks);
    model->is_reference = !model->is_reference;
    model->setting_changes++;
}

/* Makes weights without memory, in the dtypes that the policy was loaded in. */
static void make_weights(tide_reference *r) {
    tide_model *model = r->wrapper.model;
    tide_machine *m = model->m;
    bool is_frozen = tide_trainer_traits_of(r->wrapper.job)->freezes_reference;
    r->count = model->parameter_count + model->buffer_count;
    r->weights = TIDE_NEW(m->arena, tide_tensor *, r->count + 1);
    for (uint32_t i = 0; i < r->count; i++) {
        const tide_tensor *of = weight_at(model, i);
        bool is_upcast = i < model->parameter_count && model->parameters[i].is_upcast;
        r->weights[i] = tide_empty_host(m, of->shape, is_upcast ? model->state.dtype : (tide_dtype)of->dtype);
        r->weights[i]->requires_grad = of->requires_grad && !is_frozen;
        r->weights[i]->is_leaf = of->is_leaf;
    }
}

static void find_states(tide_reference *r) {
    tide_model *model = r->wrapper.model;
    tide_machine *m = model->m;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        for (uint32_t k = 0; k < of->of->member_count; k++) {
            tide_value *member = &of->slots[of->of->parameter_count + k];
            if (member->kind != TIDE_VALUE_LIST || member->list->count) continue;
            TIDE_ROOM(m->arena, r->states, r->state_count, r->state_capacity);
            r->states[r->state_count++] =
                (tide_kept_state){member, {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
        }
    }
}

void tide_name_kept_allocations(tide_machine *m, uint32_t first, const char *name) {
    for (uint32_t i = first; i < m->timeline.allocation_count; i++)
        if (*tide_timeline_died(&m->timeline, i) == TIDE_NEVER) tide_timeline_at(&m->timeline, i)->op = name;
}

tide_reference *tide_reference_new(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    tide_machine *m = &run->machine;
    const tide_strategy *strategy = run->strategy;
    tide_reference *r = TIDE_NEW(m->arena, tide_reference, 1);
    uint32_t first = m->timeline.allocation_count;
    bool is_on_meta = model->state.is_on_meta, is_on_host = m->makes_on_host;
    tide_dtype dtype = model->state.dtype;
    void (*made)(tide_model *, tide_tensor *) = model->parameter_made;
    r->wrapper = (tide_wrapper){.model = model,
                                .job = job,
                                .ranks = tide_job_reduction_ranks(job),
                                .rank = job->parallel_rank,
                                .has_trainer = true};
    make_weights(r);
    find_states(r);
    tide_reference_swap(r);
    m->makes_on_host = model->state.is_on_meta = false;
    model->parameter_made = NULL;
    if (strategy && strategy->load) strategy->load(model, job);
    model->state.is_on_meta = is_on_meta;
    tide_model_to_device(model);
    if (strategy && strategy->loaded) strategy->loaded(model, job);
    m->makes_on_host = is_on_host;
    if (strategy && strategy->prepare_reference) strategy->prepare_reference(&r->wrapper);
    tide_reference_swap(r);
    tide_name_kept_allocations(m, first, "reference model");
    model->state.is_on_meta = is_on_meta;
    m->makes_on_host = is_on_host;
    model->state.dtype = dtype;
    model->parameter_made = made;
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return m->has_failed ? NULL : r;
}

void tide_reference_collect(tide_reference *r) {
    const tide_model *model = r->wrapper.model;
    for (uint32_t i = model->parameter_count; i < r->count; i++) tide_drop_storage(model->m, r->weights[i]);
    for (uint32_t i = 0; i < r->state_count; i++) {
        tide_value_release(model->m, r->states[i].other);
        r->states[i].other = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(model->m)};
    }
}
