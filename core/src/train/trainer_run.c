/* SPDX-License-Identifier: Apache-2.0 */
/* How transformers' Trainer and TRL's trainers call the model and compute the loss. */
#include "train/trainer_run.h"

#include "base/rounding.h"

const tide_trainer_traits *tide_trainer_kind(const tide_job *job) {
    static const tide_trainer_traits pairwise = {.function = "pairwise",
                                                 .scores_rows = true,
                                                 .builds_logits = true}, /* train/rm/trainer.py */
        odds = {.function = "odds", .sees_images = true};                /* train/dpo/trainer.py */
    if (tide_trainer_has_odds(job)) return &odds;
    return tide_trainer_has_value_head(job) ? &pairwise : tide_trainer_traits_of(job);
}

tide_function *tide_trainer_function(tide_trainer_run *t, const char *name) {
    tide_function *found = tide_function_find(t->run->model.descriptions, NULL, tide_text_of(name));
    if (!found) tide_fail(&t->run->machine, TIDE_ERR_DESCRIPTION, "there is no function %s", name);
    return found;
}

void tide_keep_barrier(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    if (t->job->parallel_kind == TIDE_parallel_kind_none || t->run->has_barrier) return;
    t->run->has_barrier = true;
    bool is_on_host = m->makes_on_host;
    m->makes_on_host = false;
    m->op = "barrier";
    m->state.factor = TIDE_FACTOR_COMMUNICATION;
    tide_scalar(m, TIDE_FP32); /* lives as long as the run */
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->makes_on_host = is_on_host;
}

typedef struct cast_outputs {
    tide_tensor *before[TIDE_INPUT_LIMIT];
    uint32_t count;
} cast_outputs;

/* Outputs of parts are converted too; a cache, a list of lists here, is an object. */
static void convert_items(tide_machine *m, tide_value *items, uint32_t count, cast_outputs *c) {
    for (uint32_t i = 0; i < count && c->count < TIDE_INPUT_LIMIT; i++) {
        bool is_list = items[i].kind == TIDE_VALUE_LIST && items[i].list->count,
             is_cache = is_list && items[i].list->items[0].kind == TIDE_VALUE_LIST;
        if (is_list && !is_cache) convert_items(m, items[i].list->items, items[i].list->count, c);
        bool is_tensor = items[i].kind == TIDE_VALUE_TENSOR;
        if (!is_tensor || (items[i].tensor->dtype != TIDE_BF16 && items[i].tensor->dtype != TIDE_FP16)) continue;
        c->before[c->count++] = items[i].tensor;
        items[i].tensor = tide_to(m, items[i].tensor, TIDE_FP32);
    }
}

/* accelerate/utils/operations.py, convert_to_fp32: for outputs of forward() under autocast. */
static void convert_to_fp32(tide_machine *m, tide_value *output) {
    bool is_list = output->kind == TIDE_VALUE_LIST;
    cast_outputs c = {.count = 0};
    m->op = "convert_to_fp32";
    convert_items(m, is_list ? output->list->items : output, is_list ? output->list->count : 1, &c);
    for (uint32_t i = 0; i < c.count; i++) tide_release(m, c.before[i]);
}

void tide_trainer_call_begins(tide_model *model, bool replaced, tide_value *inputs, uint32_t count) {
    tide_trainer_run *t = model->caller;
    tide_machine *m = model->m;
    uint32_t module = m->module, statement = m->statement;
    m->module = m->statement = 0;
    bool is_wrapped = t->strategy && !t->calls_bare_model && !t->evaluates_bare_model;
    if (is_wrapped && t->strategy->before_forward) t->strategy->before_forward(&t->wrapper);
    if (replaced && model->before_forward) model->before_forward(model, model->root, NULL, 0, inputs, count);
    model->wraps_forward = !replaced && model->autocasts; /* accelerator.prepare(): by convert_outputs_to_fp32() */
    m->module = module;
    m->statement = statement;
}

void tide_trainer_call_ends(tide_model *model, tide_value *outputs, bool replaced) {
    tide_trainer_run *t = model->caller;
    tide_machine *m = model->m;
    uint32_t module = m->module, statement = m->statement;
    m->module = m->statement = 0;
    if ((replaced || model->wraps_forward) && model->after_forward) model->after_forward(model, model->root, outputs);
    model->wraps_forward = false;
    bool is_wrapped = t->strategy && !t->calls_bare_model && !t->evaluates_bare_model;
    if (is_wrapped && t->strategy->after_forward) t->strategy->after_forward(&t->wrapper, outputs);
    m->module = module;
    m->statement = statement;
}

/* Calls the model as accelerate wraps its forward(). */
static tide_value trainer_call_model(tide_trainer_run *t, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    tide_trainer_call_begins(model, false, NULL, 0);
    if (model->autocasts) tide_autocast_begin(m, model->autocast_dtype);
    tide_value output = tide_model_forward(model, inputs->names, inputs->values, inputs->count);
    if (model->autocasts) tide_autocast_end(m);
    if (model->autocasts) convert_to_fp32(m, &output);
    if (!m->has_failed) tide_trainer_call_ends(model, &output, false);
    return output;
}

/* Trainer.compute_loss with the model's own loss. average_tokens_across_devices multiplies it in place by the number of
 * processes. Owned by the caller. */
tide_tensor *tide_compute_loss(tide_trainer_run *t, const tide_batch *inputs, tide_value *outputs) {
    tide_machine *m = &t->run->machine;
    tide_value output = trainer_call_model(t, inputs);
    m->module = m->statement = 0;
    tide_tensor *loss = m->has_failed ? NULL : tide_loss_of(m, output);
    if (loss && t->num_items) {
        tide_value arguments[2] = {tide_of_tensor(loss), tide_of_int(1)};
        m->op = "mul_";
        tide_value made = tide_op_find(TIDE_TEXT("mul_"))->run(m, arguments);
        tide_release(m, loss);
        loss = made.kind == TIDE_VALUE_TENSOR ? made.tensor : NULL;
    }
    if (outputs) {
        *outputs = output;
        return loss;
    }
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "del outputs");
    tide_value_release(m, output);
    tide_freeing_ends(m, before);
    return loss;
}

/* trl/models/utils.py, disable_gradient_checkpointing: afterwards every_n_layers is an argument of the checkpoints, and
 * is passed on to layers, except by reentrant ones. */
static bool check_enabled_again(tide_trainer_run *t) {
    bool is_refused = t->strategy && t->job->every_n_layers > 1 && t->run->model.state.is_checkpointing &&
                      t->run->model.state.is_reentrant;
    if (is_refused)
        tide_fail_setting(t->run->model.m, TIDE_ERR_CONFLICT, "every_n_layers",
                          "TRL enables reentrant checkpoints anew after the reference model, and passes it to them: "
                          "\"Unexpected keyword arguments: every_n_layers\"; leave it out, or use checkpointing=full");
    return !is_refused;
}

tide_value tide_call_without_grad(tide_trainer_run *t, tide_function *function, tide_value batch, tide_value policy) {
    tide_model *model = &t->run->model;
    bool checkpoints = model->state.is_checkpointing, has_grad = model->m->state.grad_enabled;
    const tide_value arguments[] = {t->base_model, t->lm_head, batch, policy};
    if (!check_enabled_again(t)) return tide_none();
    model->setting_changes++;
    model->state.is_checkpointing = false;
    model->m->state.grad_enabled = false;
    tide_value made = tide_model_run(model, function, arguments, TIDE_COUNT_OF(arguments));
    model->m->state.grad_enabled = has_grad;
    model->state.is_checkpointing = checkpoints;
    model->setting_changes++;
    if (tide_trainer_is_of_factory(t->job)) return made;
    model->makes_grad_last |= checkpoints;
    tide_skip_layers(
        model, 1); /* trl/models/utils.py, disable_gradient_checkpointing: afterwards it is enabled for every layer */
    return made;
}

tide_value tide_call_reference(tide_trainer_run *t, tide_value batch, tide_value policy) {
    tide_model *model = &t->run->model;
    tide_value *training = tide_model_setting(model, "training"),
               *disabled = tide_model_setting(model, "adapters_disabled");
    bool has_adapters = t->job->adapter != TIDE_adapter_none;
    tide_value mode = *training;
    *training = tide_of_bool(has_adapters && mode.truth);
    *disabled = tide_of_bool(has_adapters);
    t->calls_bare_model = t->reference_model || (t->strategy && t->strategy->trains_a_copy);
    if (t->reference_model) tide_reference_swap(t->reference_model);
    tide_value made = tide_call_without_grad(t, t->reference, batch, policy);
    if (t->reference_model) tide_reference_swap(t->reference_model);
    t->calls_bare_model = false;
    *training = mode;
    *disabled = tide_none();
    return made;
}

tide_dtype tide_loss_dtype(const tide_trainer_run *t) {
    return t->job->parallel_kind == TIDE_parallel_kind_fsdp2 ? TIDE_FP16 : t->run->model.autocast_dtype;
}

static bool is_mixed_unwrapped(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_fsdp2 && job->autocast.is_set && !tide_trl_builds_logits(job);
}

void tide_accelerator_autocast_begin(tide_trainer_run *t) {
    if (!is_mixed_unwrapped(t->job)) return;
    *tide_model_setting(&t->run->model, "head_dtype") =
        (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = t->job->autocast.dtype};
    tide_autocast_begin(&t->run->machine, t->job->autocast.dtype);
}

/* If the head's backward follows, it computes in the dtype of its forward. */
void tide_accelerator_autocast_end(tide_trainer_run *t) {
    if (!is_mixed_unwrapped(t->job)) return;
    if (!tide_trainer_generates(t->job)) *tide_model_setting(&t->run->model, "head_dtype") = tide_none();
    tide_autocast_end(&t->run->machine);
}

/* trl/models/utils.py, prepare_fsdp(): accelerate does not wrap the forward() of a reference model that is sharded, so
 * it runs in the dtype of its mixed precision, outside of autocast. */
static tide_value call_reference_outside(tide_trainer_run *t, tide_value batch, tide_value policy) {
    static const char *const of_autocast[] = {"autocast", "autocast_dtype", "head_dtype"};
    tide_model *model = &t->run->model;
    tide_value before[TIDE_COUNT_OF(of_autocast)];
    bool is_bare = t->reference_model && t->job->parallel_kind == TIDE_parallel_kind_fsdp1,
         autocasts = model->autocasts;
    if (!is_bare || !autocasts) return tide_call_reference(t, batch, policy);
    for (size_t i = 0; i < TIDE_COUNT_OF(of_autocast); i++) {
        before[i] = *tide_model_setting(model, of_autocast[i]);
        *tide_model_setting(model, of_autocast[i]) = i ? tide_none() : tide_of_bool(false);
    }
    model->autocasts = false;
    tide_value made = tide_call_reference(t, batch, policy);
    model->autocasts = autocasts;
    for (size_t i = 0; i < TIDE_COUNT_OF(of_autocast); i++) *tide_model_setting(model, of_autocast[i]) = before[i];
    model->setting_changes++;
    return made;
}

tide_tensor *tide_compute_trl_loss(tide_trainer_run *t, tide_value batch) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    bool generates = tide_trainer_generates(t->job);
    if (m->has_failed) return NULL;
    const tide_value given[] = {t->base_model, t->lm_head, batch};
    if (generates) tide_accelerator_autocast_begin(t);
    tide_value policy = tide_model_run(model, t->policy, given, TIDE_COUNT_OF(given));
    if (generates) tide_accelerator_autocast_end(t);
    tide_value reference = t->reference && !generates && !t->job->trainer_precompute_ref_log_probs
                               ? call_reference_outside(t, batch, policy)
                               : tide_none();
    if (t->kind->has_teacher) {
        t->calls_bare_model = true;
        reference = tide_teacher_call(&t->teacher, t->run, batch);
        t->calls_bare_model = false;
    }
    tide_value owned[] = {tide_value_retain(batch), policy, reference}; /* the first locals of compute_loss() */
    const tide_call_arguments call = {
        .model = model, .function = t->compute_loss, .positional = owned, .count = TIDE_COUNT_OF(owned)};
    tide_value loss = tide_call_function(&call);
    m->module = m->statement = 0;
    if (loss.kind == TIDE_VALUE_LIST && loss.list->count) {
        t->locals = loss;
        loss = tide_value_retain(loss.list->items[0]);
    }
    return loss.kind == TIDE_VALUE_TENSOR ? loss.tensor : NULL;
}
