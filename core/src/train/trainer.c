/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of transformers' Trainer: trainer.py, _run_epoch and training_step. */
#include "train/trainer.h"

#include <string.h>

#include "base/units.h"
#include "tensor/offload.h"
#include "train/rollouts.h"

/* Of TRL, by functions of library/trainers.json: NAME_batch() makes a batch, NAME_policy() calls the model,
 * NAME_reference() the reference model, and NAME_loss() is the rest of compute_loss(). */
typedef struct trl {
    const char *name;   /* NULL: Trainer's own, with what the model takes */
    bool counts_labels; /* the third column is "labels", which are counted */
    bool has_reference;
    bool builds_logits; /* calls the model as it is, without the fused head */
    bool scales_loss;   /* by itself, for the micro-batches of a step */
} trl;

static const trl kinds[TIDE_trainer_COUNT] = {
    [TIDE_trainer_sft] = {.name = "sft", .counts_labels = true},
    [TIDE_trainer_dpo] = {.name = "dpo", .has_reference = true},
    [TIDE_trainer_kto] = {.name = "kto", .has_reference = true},
    [TIDE_trainer_orpo] = {.name = "orpo", .builds_logits = true},
    [TIDE_trainer_cpo] = {.name = "cpo", .builds_logits = true},
    [TIDE_trainer_reward] = {.name = "reward", .builds_logits = true},
    [TIDE_trainer_grpo] = {.name = "grpo", .has_reference = true, .scales_loss = true},
    [TIDE_trainer_rloo] = {.name = "rloo", .has_reference = true},
};

typedef struct trainer {
    tide_run *run;
    const tide_job *job;
    const tide_strategy *strategy;
    tide_wrapper wrapper;
    tide_batch *batch_samples;                                         /* those of a step, which are fetched together */
    tide_tensor *num_items;                                            /* of their labels */
    tide_tensor *loss;                                                 /* tr_loss_step: of the micro-batch before */
    tide_function *nan_inf_filter, *policy, *reference, *compute_loss; /* NULL: Trainer's own, or none */
    tide_value buffered; /* of trainers that generate: what is left of one generation, by micro-batches */
    int64_t micro;       /* micro-batches so far */
    tide_value base_model, lm_head;
    bool scales; /* by scaler: mixed precision of fp16 (accelerate/accelerator.py) */
    tide_scaler scaler;
    tide_offload *offload; /* activation_offloading; NULL: none */
} trainer;

/* A function of library/trainers.json. */
static tide_function *library_function(trainer *t, const char *name) {
    tide_function *found = tide_function_find(t->run->model.descriptions, NULL, tide_text_of(name));
    if (!found) tide_fail(&t->run->machine, TIDE_ERR_DESCRIPTION, "there is no function %s", name);
    return found;
}

/* ---- get_batch_samples ---- */

/* Whether the model's forward() takes one. */
static bool takes_mask(trainer *t) {
    const tide_model *model = &t->run->model;
    tide_function *forward = tide_method_find(model->instances[model->root].of, TIDE_TEXT("forward"));
    if (!forward || !tide_function_read(model->descriptions, forward)) return false;
    for (uint32_t i = 0; i < forward->parameter_count; i++)
        if (tide_text_is(forward->parameters[i].name, "attention_mask")) return true;
    return false;
}

/* The mask that a collator makes, of ones where nothing is padded. */
static void add_mask(trainer *t, tide_batch *b) {
    tide_machine *m = &t->run->machine;
    const tide_value *ids = NULL;
    for (uint32_t i = 0; i < b->count; i++) {
        if (strcmp(b->names[i], "attention_mask") == 0) return;
        if (strcmp(b->names[i], "input_ids") == 0) ids = &b->values[i];
    }
    if (!ids || ids->kind != TIDE_VALUE_TENSOR || b->count == TIDE_INPUT_LIMIT || !takes_mask(t)) return;
    m->state.factor = TIDE_FACTOR_INPUT;
    m->op = "inputs";
    b->names[b->count] = "attention_mask";
    b->values[b->count++] = tide_of_tensor(tide_empty_like(m, ids->tensor, TIDE_INT64));
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

static bool make_batch(trainer *t, tide_batch *b) {
    tide_machine *m = &t->run->machine;
    const trl *kind = &kinds[t->job->trainer];
    if (!kind->name) {
        if (!tide_make_batch(t->run, t->job, b, m->diags)) return false;
        add_mask(t, b);
        return true;
    }
    if (tide_trainer_generates(t->job)) return true; /* prompts, which are texts */
    tide_function *make = library_function(t, tide_format(m->arena, "%s_batch", kind->name));
    if (!make) return false;
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value made = tide_model_run(&t->run->model, make, NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    for (uint32_t i = 0; made.kind == TIDE_VALUE_LIST && i < made.list->count; i++) {
        b->names[i] = i == 2 && kind->counts_labels ? "labels" : "";
        b->values[b->count++] = tide_value_retain(made.list->items[i]);
    }
    tide_value_release(m, made);
    return !m->has_failed;
}

static tide_tensor *labels_of(const tide_batch *b) {
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->names[i], "labels") == 0 && b->values[i].kind == TIDE_VALUE_TENSOR) return b->values[i].tensor;
    return NULL;
}

/* _get_num_items_in_batch; NULL: there is nothing to count. */
static tide_tensor *count_items(trainer *t, const tide_batch *batches) {
    tide_machine *m = &t->run->machine;
    tide_function *count = library_function(t, "count_items");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}, made = tide_none();
    for (int64_t i = 0; i < t->job->grad_accum; i++) {
        tide_tensor *labels = labels_of(&batches[i]);
        if (labels) tide_list_push(m, list.list, tide_of_tensor(tide_retain(labels)));
    }
    const tide_model *model = &t->run->model;
    tide_text name = model->instances[model->root].of->name; /* ForCausalLMLoss shifts, by LOSS_MAPPING of the class */
    const tide_value arguments[] = {list, tide_of_bool(tide_text_contains(name, TIDE_TEXT("ForCausalLM")))};
    if (list.list->count && count) made = tide_model_run(&t->run->model, count, arguments, 2);
    tide_value_release(m, list);
    return made.kind == TIDE_VALUE_TENSOR ? made.tensor : NULL;
}

static uint64_t first_of_step(const trainer *t, unsigned step) {
    return (uint64_t)(step - 1) * (uint64_t)t->job->grad_accum;
}

static void drop_batch(tide_machine *m, tide_batch *b) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "next batch");
    for (uint32_t i = 0; i < b->count; i++) tide_value_release(m, b->values[i]);
    b->count = 0;
    tide_freeing_ends(m, before);
}

/* The step's batches, while those of the step before are there still: the last of them, `inputs`, for longest. */
static bool get_batch_samples(trainer *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    int64_t count = t->job->grad_accum;
    tide_batch *batches = TIDE_NEW(m->arena, tide_batch, (size_t)count), *before = t->batch_samples;
    m->module = m->statement = 0;
    for (int64_t i = 0; i < count; i++) {
        tide_take_micro_batch(t->run, t->job, first_of_step(t, step) + (uint64_t)i);
        if (!make_batch(t, &batches[i])) return false;
    }
    tide_tensor *num_items = count_items(t, batches);
    for (int64_t i = 0; before && i < count - 1; i++) drop_batch(m, &before[i]);
    tide_del(m, "del num_items_in_batch", t->num_items);
    if (before) drop_batch(m, &before[count - 1]);
    t->num_items = num_items;
    t->batch_samples = batches;
    tide_model_setting(&t->run->model, "num_items")->kind = TIDE_VALUE_NONE;
    if (num_items) *tide_model_setting(&t->run->model, "num_items") = tide_of_tensor(num_items);
    return !m->has_failed;
}

/* ---- training_step ---- */

/* accelerate/utils/operations.py, convert_to_fp32: outputs of the model's forward under autocast. */
static void convert_to_fp32(tide_machine *m, tide_value *output) {
    bool is_list = output->kind == TIDE_VALUE_LIST;
    tide_value *items = is_list ? output->list->items : output;
    tide_tensor *before[TIDE_INPUT_LIMIT];
    uint32_t count = is_list ? output->list->count : 1, replaced = 0;
    m->op = "convert_to_fp32";
    for (uint32_t i = 0; i < count && replaced < TIDE_INPUT_LIMIT; i++) {
        bool is_tensor = items[i].kind == TIDE_VALUE_TENSOR;
        if (!is_tensor || (items[i].tensor->dtype != TIDE_BF16 && items[i].tensor->dtype != TIDE_FP16)) continue;
        before[replaced++] = items[i].tensor;
        items[i].tensor = tide_to(m, items[i].tensor, TIDE_FP32);
    }
    for (uint32_t i = 0; i < replaced; i++) tide_release(m, before[i]);
}

/* What strategies do around model(...). */
static void call_begins(tide_model *model, bool replaced) {
    trainer *t = model->caller;
    tide_machine *m = model->m;
    uint32_t module = m->module, statement = m->statement;
    m->module = m->statement = 0;
    if (t->strategy->before_forward) t->strategy->before_forward(&t->wrapper);
    if (replaced && model->before_forward) model->before_forward(model, model->root, NULL, 0, NULL, 0);
    m->module = module;
    m->statement = statement;
}

static void call_ends(tide_model *model, tide_value *outputs, bool replaced) {
    trainer *t = model->caller;
    tide_machine *m = model->m;
    uint32_t module = m->module, statement = m->statement;
    m->module = m->statement = 0;
    if (replaced && model->after_forward) model->after_forward(model, model->root, outputs);
    if (t->strategy->after_forward) t->strategy->after_forward(&t->wrapper, outputs);
    m->module = module;
    m->statement = statement;
}

/* The call of the model, as accelerate wraps its forward. */
static tide_value trainer_call_model(trainer *t, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    call_begins(model, false);
    if (model->autocasts) tide_autocast_begin(m, model->autocast_dtype);
    tide_value output = tide_model_forward(model, inputs->names, inputs->values, inputs->count);
    if (model->autocasts) tide_autocast_end(m);
    if (model->autocasts) convert_to_fp32(m, &output);
    if (!m->has_failed) call_ends(model, &output, false);
    return output;
}

/* Trainer.compute_loss: the model's own. With average_tokens_across_devices it is multiplied in place by the number of
 * processes. Owned by the caller. */
static tide_tensor *compute_loss(trainer *t, const tide_batch *inputs) {
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
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "del outputs");
    tide_value_release(m, output);
    tide_freeing_ends(m, before);
    return loss;
}

/* A pass without gradients and checkpointing. Owned by the caller. */
static tide_value call_without_grad(trainer *t, tide_function *function, tide_value batch, tide_value policy) {
    tide_model *model = &t->run->model;
    bool checkpoints = model->state.is_checkpointing;
    const tide_value arguments[] = {t->base_model, t->lm_head, batch, policy};
    model->setting_changes++;
    model->state.is_checkpointing = false;
    model->m->state.grad_enabled = false;
    tide_value made = tide_model_run(model, function, arguments, TIDE_COUNT_OF(arguments));
    model->m->state.grad_enabled = true;
    model->state.is_checkpointing = checkpoints;
    model->setting_changes++;
    return made;
}

/* The reference's pass, of the model itself without its adapters, or of its copy in eval mode, which allocates as the
 * model does. Owned by the caller. */
static tide_value call_reference(trainer *t, tide_value batch, tide_value policy) {
    tide_model *model = &t->run->model;
    tide_value *training = tide_model_setting(model, "training"),
               *disabled = tide_model_setting(model, "adapters_disabled");
    bool has_adapters = t->job->adapter != TIDE_adapter_none;
    *training = tide_of_bool(has_adapters);
    *disabled = tide_of_bool(has_adapters);
    tide_value made = call_without_grad(t, t->reference, batch, policy);
    *training = tide_of_bool(true);
    *disabled = tide_none();
    return made;
}

static tide_value list_of_batch(tide_machine *m, const tide_batch *inputs) {
    tide_value batch = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < inputs->count; i++) tide_list_push(m, batch.list, tide_value_retain(inputs->values[i]));
    return batch;
}

/* _generate_and_score_completions: a generation, and what its micro-batches are given. */
static void generate_and_score(trainer *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    const char *kind = kinds[t->job->trainer].name;
    const tide_value of_batch[] = {tide_of_int(t->job->batch * tide_steps_per_generation(t->job)),
                                   tide_of_bool(kinds[t->job->trainer].scales_loss)};
    tide_value old = tide_none(), reference = tide_none();
    tide_function *old_logps = library_function(t, tide_format(m->arena, "%s_old", kind)),
                  *scored_of = library_function(t, tide_format(m->arena, "%s_scored", kind)),
                  *buffer = library_function(t, "buffered_inputs"), *batch_of = library_function(t, "generation_batch");
    tide_generate_rollouts(t->run, t->job, step);
    if (m->has_failed) return;
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value batch = tide_model_run(model, batch_of, of_batch, 2);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    if (tide_keeps_old_logps(t->job)) old = call_without_grad(t, old_logps, batch, tide_none());
    if (tide_keeps_reference(t->job)) reference = call_reference(t, batch, tide_none());
    const tide_value arguments[] = {batch, old, reference};
    tide_value scored = tide_model_run(model, scored_of, arguments, TIDE_COUNT_OF(arguments));
    for (size_t i = 0; i < TIDE_COUNT_OF(arguments); i++) tide_value_release(m, arguments[i]);
    m->module = m->statement = 0;
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_SCORE);
    tide_value made = tide_model_run(model, buffer, &scored, 1);
    tide_value_release(m, scored);
    tide_value_release(m, t->buffered);
    t->buffered = made;
    m->module = m->statement = 0;
}

/* _prepare_inputs of trainers that generate. Owned by the caller. */
static tide_value next_rollouts(trainer *t, unsigned step) {
    int64_t steps = tide_steps_per_generation(t->job);
    if (t->micro % (steps * t->job->trainer_num_iterations) == 0) generate_and_score(t, step);
    const tide_value *items = t->buffered.kind == TIDE_VALUE_LIST ? t->buffered.list->items : NULL;
    return items ? tide_value_retain(items[t->micro++ % steps]) : tide_none();
}

/* compute_loss() of one of TRL's trainers. Owned by the caller. */
static tide_tensor *compute_trl_loss(trainer *t, unsigned step, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    bool generates = tide_trainer_generates(t->job);
    tide_value batch = generates ? next_rollouts(t, step) : list_of_batch(m, inputs);
    if (m->has_failed) return NULL;
    const tide_value given[] = {t->base_model, t->lm_head, batch};
    tide_value policy = tide_model_run(model, t->policy, given, TIDE_COUNT_OF(given));
    tide_value reference = t->reference && !generates && !t->job->trainer_precompute_ref_log_probs
                               ? call_reference(t, batch, policy)
                               : tide_none();
    const tide_value arguments[] = {batch, policy, reference};
    tide_value loss = tide_model_run(model, t->compute_loss, arguments, TIDE_COUNT_OF(arguments));
    tide_value_release(m, reference);
    tide_value_release(m, policy);
    tide_value_release(m, batch);
    m->module = m->statement = 0;
    return loss.kind == TIDE_VALUE_TENSOR ? loss.tensor : NULL;
}

/* Accelerator.backward: the loss is divided, but for DeepSpeed, whose engine updates behind the last of a step. */
static void accelerator_backward(trainer *t, unsigned step, tide_tensor *loss) {
    tide_machine *m = &t->run->machine;
    bool has_engine = t->strategy->updates_in_backward;
    m->op = "div"; /* loss / self.gradient_accumulation_steps */
    tide_tensor *divided = has_engine ? tide_retain(loss) : tide_scale(m, loss);
    if (t->strategy->backward) {
        t->strategy->backward(&t->wrapper, divided);
    } else if (t->scales) {
        tide_tensor *scaled = tide_scaler_scale(&t->run->model, &t->scaler, divided);
        tide_run_backward(m, scaled);
        tide_del(m, "del scaled loss", scaled);
    } else {
        tide_run_backward(m, divided);
    }
    tide_del(m, "del loss", divided);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
    if (has_engine && t->wrapper.is_last && !m->has_failed) t->strategy->update(&t->wrapper);
    if (t->strategy->after_backward && !m->has_failed) t->strategy->after_backward(&t->wrapper);
}

static void forward_and_backward(trainer *t, unsigned step, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    int64_t empties = t->job->trainer_torch_empty_cache_steps;
    bool autocasts = tide_trainer_casts_to_bf16(t->job); /* compute_loss_context_manager */
    if (autocasts) tide_autocast_begin(m, t->run->model.autocast_dtype);
    tide_tensor *loss = t->compute_loss ? compute_trl_loss(t, step, inputs) : compute_loss(t, inputs);
    if (autocasts) tide_autocast_end(m);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_FORWARD);
    if (!loss || m->has_failed) return;
    if (empties && (step - 1) % empties == 0) tide_timeline_empty_cache(&m->timeline);
    /* The loss is no sum over counted labels: loss / self.current_gradient_accumulation_steps. */
    if (!t->num_items && !kinds[t->job->trainer].scales_loss) {
        m->op = "div";
        tide_tensor *mean = tide_scale(m, loss);
        tide_release(m, loss);
        loss = mean;
    }
    accelerator_backward(t, step, loss);
    tide_tensor *detached = tide_alias(m, loss);
    tide_release(m, loss);
    tide_del(m, "del tr_loss_step", t->loss);
    t->loss = detached;
    tide_value value = tide_of_tensor(detached);
    if (t->nan_inf_filter) tide_value_release(m, tide_model_run(&t->run->model, t->nan_inf_filter, &value, 1));
}

static void training_step(trainer *t, unsigned step, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    if (!t->offload) {
        forward_and_backward(t, step, inputs);
        return;
    }
    tide_saved_tensors_hooks *before = tide_offload_enter(m, t->offload);
    forward_and_backward(t, step, inputs);
    tide_offload_exit(m, t->offload, before);
}

/* ---- the end of a step ---- */

/* model.zero_grad(): in the order of parameters. */
static void trainer_zero_grad(trainer *t) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "zero_grad");
    m->module = m->statement = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) tide_release_at(m, &model->parameters[i].tensor->grad);
    tide_freeing_ends(m, before);
}

/* Clipped or not, the norm is computed (_get_grad_norm), and kept until the next. */
static void clip_and_step(trainer *t) {
    tide_machine *m = &t->run->machine;
    tide_del(m, "del grad_norm", t->wrapper.grad_norm);
    if (t->scales && t->job->clip > 0) tide_scaler_unscale(&t->run->model, &t->scaler);
    t->wrapper.grad_norm = tide_clip_grad_norm(t->wrapper.optimizer);
    if (t->scales) {
        tide_scaler_step(&t->run->model, &t->scaler, t->wrapper.optimizer);
        tide_scaler_update(&t->run->model, &t->scaler);
    } else {
        tide_optimizer_step(t->wrapper.optimizer);
    }
    trainer_zero_grad(t);
}

static void trainer_update(trainer *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    m->module = m->statement = 0;
    if (!t->strategy->update)
        clip_and_step(t);
    else if (!t->strategy->updates_in_backward)
        t->strategy->update(&t->wrapper);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}

/* model.base_model and get_output_embeddings(): the only modules of a causal language model. A reward model has a score
 * for each row, and no output embeddings. */
static bool find_parts(trainer *t) {
    tide_model *model = &t->run->model;
    const tide_instance *root = &model->instances[model->root];
    if (t->job->trainer == TIDE_trainer_reward) {
        bool has_score = tide_text_contains(root->of->name, TIDE_TEXT("ForSequenceClassification")) &&
                         tide_model_find(model, TIDE_TEXT("score"));
        if (!has_score)
            return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                              "reward is described for decoders that classify sequences, by a head named score", NULL);
        t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = model->root};
        return true;
    }
    tide_text path = root->of->output_embeddings;
    uint32_t head = tide_model_find(model, path.length ? path : TIDE_TEXT("lm_head")), base = 0, others = 0;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (model->instances[i].parent != model->root || i == model->root || i == head) continue;
        if (base) others++;
        if (!base) base = i;
    }
    if (!base || others || !head)
        return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                          tide_format(model->m->arena, "%s of TRL is described for causal language models",
                                      t->job->values[TIDE_SET_trainer]),
                          "use trainer=hf");
    bool is_whole = kinds[t->job->trainer].builds_logits;
    t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = is_whole ? model->root : base};
    t->lm_head = (tide_value){.kind = TIDE_VALUE_MODULE, .module = head};
    return true;
}

/* ---- before the training ---- */

/* create_model_from_path: the reference is loaded as the model was, when no adapter can be taken off it. */
static void load_reference(trainer *t) {
    tide_machine *m = &t->run->machine;
    uint32_t count = m->timeline.allocation_count;
    m->op = "reference model";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    for (uint32_t i = 0; i < count; i++) {
        const tide_allocation a = m->timeline.allocations[i];
        bool is_of_model = a.factor == TIDE_FACTOR_PARAMETER || a.factor == TIDE_FACTOR_BUFFER;
        if (!is_of_model || a.died != TIDE_NEVER) continue;
        m->module = a.module;
        tide_scratch(m, (int64_t)a.bytes); /* lives as long as the run */
    }
    m->module = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* _precompute_ref_logps: over the data set, of which every batch is alike; those after the third find the allocator as
 * it left it. A batch is on the device before the name of the last one is bound to it. */
static void precompute(trainer *t) {
    tide_machine *m = &t->run->machine;
    tide_batch last = {0};
    for (int i = 0; i < 3 && !m->has_failed; i++) {
        tide_batch padded = {0};
        if (!make_batch(t, &padded)) return;
        drop_batch(m, &last);
        last = padded;
        tide_value batch = list_of_batch(m, &padded);
        tide_value_release(m, call_reference(t, batch, tide_none()));
        tide_value_release(m, batch);
        m->module = m->statement = 0;
    }
    drop_batch(m, &last);
}

/* The tensor of the last torch.distributed.barrier(), of PartialState().main_process_first() around the data set. Under
 * ZeRO-3 DeepSpeed has one of its own in its place. */
static void keep_barrier(trainer *t) {
    tide_machine *m = &t->run->machine;
    if (t->job->parallel_kind == TIDE_parallel_kind_none || t->job->parallel_kind == TIDE_parallel_kind_zero3) return;
    bool is_on_host = m->makes_on_host;
    m->makes_on_host = false;
    m->op = "barrier";
    m->state.factor = TIDE_FACTOR_COMMUNICATION;
    tide_scalar(m, TIDE_FP32); /* lives as long as the run */
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->makes_on_host = is_on_host;
}

static bool prepare_trl(trainer *t, const trl *kind) {
    tide_arena *arena = t->run->machine.arena;
    keep_barrier(t);
    if (!find_parts(t)) return false;
    t->policy = library_function(t, tide_format(arena, "%s_policy", kind->name));
    t->compute_loss = library_function(t, tide_format(arena, "%s_loss", kind->name));
    if (kind->has_reference) t->reference = library_function(t, tide_format(arena, "%s_reference", kind->name));
    if (tide_sequences_of_row(t->job)) *tide_model_setting(&t->run->model, "packing") = tide_of_bool(true);
    bool generates = tide_trainer_generates(t->job), precomputes = t->job->trainer_precompute_ref_log_probs,
         keeps_reference = generates ? tide_keeps_reference(t->job) : kind->has_reference && !precomputes;
    if (generates) tide_set_rollouts(t->run, t->job);
    if (keeps_reference && t->job->adapter == TIDE_adapter_none) load_reference(t);
    if (kind->has_reference && precomputes) precompute(t);
    return !t->run->machine.has_failed;
}

/* DPOConfig and its kin: disable_dropout, of torch.nn.Dropout alone. */
static bool disables_dropout(const tide_job *job) {
    if (job->trainer_disable_dropout != TIDE_trainer_disable_dropout_default)
        return job->trainer_disable_dropout == TIDE_trainer_disable_dropout_true_;
    return job->trainer > TIDE_trainer_sft && !tide_trainer_generates(job);
}

/* The micro-batches of a step. Where several generations are in one step, each is played. */
static void play_training_steps(trainer *t, unsigned step) {
    const tide_job *job = t->job;
    tide_alike alike = {.run = t->run, .step = step, .count = (uint32_t)job->grad_accum};
    bool generates = tide_trainer_generates(job), has_lengths = tide_job_has_lengths(job),
         is_one = !generates ||
                  (t->micro % tide_steps_per_generation(job) == 0 && tide_steps_per_generation(job) >= job->grad_accum);
    for (uint32_t i = 0; i < alike.count && !t->run->machine.has_failed; i++) {
        tide_alike_begins(&alike);
        tide_take_micro_batch(t->run, job, first_of_step(t, step) + i);
        t->wrapper.micro = i;
        t->wrapper.is_last = i + 1 == alike.count;
        training_step(t, step, &t->batch_samples[i]);
        uint32_t repeated = is_one && !has_lengths ? tide_alike_ends(&alike, i, false) : 0;
        t->micro += generates ? repeated : 0;
        i += repeated;
    }
}

enum { BATCHES_LIMIT = 10000 }; /* of a step, which are held together */

/* accelerator.free_memory(), create_optimizer(), accelerator.prepare() */
static bool prepare_for_training(trainer *t) {
    tide_timeline_empty_cache(&t->run->machine.timeline);
    t->strategy = tide_wrap_model(t->run, t->job, &t->wrapper);
    return t->strategy && (!t->scales || tide_scaler_takes(&t->run->model, t->wrapper.optimizer, t->job->clip > 0));
}

bool tide_play_trainer(tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    if (job->grad_accum > BATCHES_LIMIT)
        return tide_error(m->diags, TIDE_ERR_LIMIT, "/settings/grad_accum",
                          tide_format(m->arena, "a step of %lld batches is more than tidemark holds (%d)",
                                      (long long)job->grad_accum, BATCHES_LIMIT),
                          "lower grad_accum: each batch more needs its input_ids, attention_mask and labels");
    trainer t = {.run = run, .job = job};
    m->module = m->statement = 0;
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    t.scales = job->autocast.is_set && job->autocast.dtype == TIDE_FP16;
    t.nan_inf_filter = library_function(&t, "nan_inf_filter");
    const trl *kind = &kinds[job->trainer];
    *tide_model_setting(&run->model, "dropout_is_disabled") = tide_of_bool(disables_dropout(job));
    if (job->offload_activations == TIDE_offload_activations_all) t.offload = tide_offload_new(m, true);
    if (kind->name && !prepare_trl(&t, kind)) return false;
    if (!prepare_for_training(&t)) return false;
    run->model.caller = &t;
    run->model.call_begins = call_begins;
    run->model.call_ends = call_ends;
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    m->op = "_tr_loss";
    tide_tensor *sum = tide_scalar(m, TIDE_FP32);
    for (unsigned step = 1; step <= (unsigned)job->steps && !m->has_failed; step++) {
        if (!get_batch_samples(&t, step)) break;
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD); /* where the step begins */
        play_training_steps(&t, step);
        if (!m->has_failed) trainer_update(&t, step);
    }
    tide_release(m, sum);
    return !m->has_failed;
}
