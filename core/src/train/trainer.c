/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of transformers' Trainer: trainer.py, _run_epoch and training_step. */
#include "train/trainer.h"

#include <string.h>

#include "base/units.h"
#include "train/evaluation.h"
#include "train/saving.h"
#include "train/trainer_run.h"

/* ---- get_batch_samples ---- */

static uint64_t first_of_step(const tide_trainer_run *t, unsigned step) {
    return (uint64_t)(step - 1) * (uint64_t)t->job->grad_accum;
}

static bool has_ulysses_batches(const tide_trainer_run *t) {
    return t->job->parallel_sequence_parallel_size > 1;
}

/* Gets the step's batches while those of the previous step are still alive: the last of them, `inputs`, for longest. */
static bool get_batch_samples(tide_trainer_run *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    int64_t count = t->job->grad_accum;
    tide_batch *batches = TIDE_NEW(m->arena, tide_batch, (size_t)count), *before = t->batch_samples;
    m->module = m->statement = 0;
    for (int64_t i = 0; i < count; i++) {
        tide_take_micro_batch(t->run, t->job, first_of_step(t, step) + (uint64_t)i);
        if (has_ulysses_batches(t)) tide_ulysses_next(t, first_of_step(t, step) + (uint64_t)i);
        if (has_ulysses_batches(t)) continue;
        if (!tide_trainer_batch(t, t->job, &batches[i])) return false;
    }
    tide_tensor *num_items = tide_count_items(t, batches, count);
    for (int64_t i = 0; before && i < count - 1; i++) tide_drop_batch(m, &before[i]);
    tide_del(m, "del num_items_in_batch", t->num_items);
    if (before) tide_drop_batch(m, &before[count - 1]);
    tide_set_num_items(t, num_items);
    t->batch_samples = batches;
    return !m->has_failed;
}

/* ---- training_step ---- */

/* GRPOTrainer's _entropy_window_stats: a sum and a count, until the last micro-batch of a step. */
static void keep_entropy_stats(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    tide_shape pair = {.dim = {{.size = 2}}, .dims = 1};
    tide_tensor *before = t->entropy_stats;
    if (!t->job->trainer_use_adaptive_entropy) return;
    m->op = "_entropy_window_stats";
    t->entropy_stats = t->wrapper.is_last ? NULL : tide_empty(m, &pair, TIDE_FP32);
    tide_del(m, "del _entropy_window_stats", before);
}

/* Owned by the caller. */
static tide_tensor *trl_loss(tide_trainer_run *t, unsigned step, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_value batch = tide_trainer_generates(t->job) ? tide_next_rollouts(t, step) : tide_list_of_batch(m, inputs);
    if (m->has_failed) return NULL;
    tide_tensor *loss = tide_compute_trl_loss(t, batch);
    tide_value_release(m, batch);
    keep_entropy_stats(t);
    return loss;
}

static void forget_given(tide_trainer_run *t) {
    static const char *const settings[] = {"given_positions", "given_shift_labels"};
    for (size_t i = 0; i < TIDE_COUNT_OF(settings) && has_ulysses_batches(t); i++)
        *tide_model_setting(&t->run->model, settings[i]) = tide_none();
}

/* del inputs: checkpoints still refer to the inputs from which their layers are recomputed. */
static void del_inputs(tide_trainer_run *t, tide_batch *batch) {
    tide_model *model = &t->run->model;
    if (!has_ulysses_batches(t)) return;
    tide_value_release(model->m, *tide_model_setting(model, "given_positions"));
    t->wrapper.labels = tide_none();
    tide_drop_batch(model->m, batch);
    if (!model->state.is_checkpointing) forget_given(t);
}

/* Accelerator.backward: divides the loss, except with DeepSpeed, whose engine updates after the last one of a step. */
static void accelerator_backward(tide_trainer_run *t, unsigned step, tide_tensor *loss) {
    tide_machine *m = &t->run->machine;
    bool has_engine = t->strategy->updates_in_backward;
    m->op = "div";                                            /* loss / self.gradient_accumulation_steps */
    bool is_mean = has_engine && !t->kind->pairs_completions; /* training_step() passes scale_wrt_gas=False */
    tide_tensor *divided = is_mean ? tide_retain(loss) : tide_scale(m, loss);
    tide_tensor *scaled = t->wrapper.scaler ? tide_scaler_scale(&t->run->model, t->wrapper.scaler, divided) : NULL;
    if (t->strategy->backward)
        t->strategy->backward(&t->wrapper, scaled ? scaled : divided);
    else
        tide_run_backward(m, scaled ? scaled : divided);
    if (t->offload) tide_offload_end_backward(m, t->offload);
    tide_del(m, "del scaled loss", scaled);
    tide_del(m, "del loss", divided);
    forget_given(t);
    if (t->strategy->after_backward && !m->has_failed) t->strategy->after_backward(&t->wrapper);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
    if (has_engine && t->wrapper.is_last && !m->has_failed) t->strategy->update(&t->wrapper);
}

/* Trainer._prepare_input: floating-point numbers in the engine's dtype. What it makes belongs to `made`. */
static tide_value prepared_input(tide_trainer_run *t, tide_value v, tide_list *made) {
    tide_machine *m = &t->run->machine;
    tide_value prepared = v;
    if (v.kind == TIDE_VALUE_LIST) {
        prepared.list = tide_list_new(m);
        for (uint32_t i = 0; i < v.list->count; i++)
            tide_list_push(m, prepared.list, tide_value_retain(prepared_input(t, v.list->items[i], made)));
    } else if (v.kind == TIDE_VALUE_TENSOR && v.tensor->dtype == TIDE_FP32) {
        prepared = tide_of_tensor(tide_to(m, v.tensor, t->job->parallel_half.dtype));
    } else {
        return v;
    }
    tide_list_push(m, made, prepared);
    return prepared;
}

/* With DeepSpeed, images and precomputed log-probabilities are cast to the engine's dtype. Returns what lives as long
 * as the inputs. */
static tide_value take_floats_to_half(tide_trainer_run *t, tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    m->op = "_prepare_input";
    if (tide_job_has_deepspeed(t->job) && t->job->parallel_half.is_set)
        for (uint32_t i = 0; i < inputs->count; i++)
            inputs->values[i] = prepared_input(t, inputs->values[i], made.list);
    return made;
}

/* The end of a training_step() that computes the loss itself: return loss.detach() / gradient_accumulation_steps. */
static tide_tensor *end_locals(tide_trainer_run *t, tide_batch *batch, tide_tensor *detached) {
    tide_machine *m = &t->run->machine;
    m->op = "div";
    tide_tensor *mean = tide_scale(m, detached);
    tide_release(m, detached);
    tide_drop_batch(m, batch);
    tide_value_release(m, t->locals);
    t->locals = tide_none();
    return mean;
}

static void forward_and_backward(tide_trainer_run *t, unsigned step, tide_batch *batch) {
    tide_machine *m = &t->run->machine;
    tide_trainer_context_begins(t, batch);
    if (has_ulysses_batches(t) && !tide_trainer_batch(t, t->job, batch)) return; /* _prepare_inputs */
    tide_batch prepared = *batch, *inputs = &prepared;
    for (uint32_t i = 0; i < batch->count && has_ulysses_batches(t); i++)
        if (strcmp(batch->names[i], "labels") == 0) t->wrapper.labels = batch->values[i];
    tide_value made = take_floats_to_half(t, inputs);
    int64_t empties = t->job->trainer_torch_empty_cache_steps;
    bool autocasts =
        tide_trainer_casts_to_bf16(t->job) && !t->kind->pairs_completions; /* compute_loss_context_manager */
    if (autocasts) tide_autocast_begin(m, tide_loss_dtype(t));
    tide_tensor *loss = t->compute_loss ? trl_loss(t, step, inputs) : tide_compute_loss(t, inputs, NULL);
    if (autocasts) tide_autocast_end(m);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_FORWARD);
    tide_value_release(m, made);
    del_inputs(t, batch);
    if (!loss || m->has_failed) return;
    if (empties && (step - 1) % empties == 0) tide_timeline_empty_cache(&m->timeline);
    /* The loss is not a sum over counted labels: loss / self.current_gradient_accumulation_steps. */
    if (!t->num_items && !t->kind->scales_loss) {
        m->op = "div";
        tide_tensor *mean = tide_scale(m, loss);
        tide_release(m, loss);
        loss = mean;
    }
    accelerator_backward(t, step, loss);
    tide_tensor *detached = tide_alias(m, loss);
    if (t->kind->pairs_completions) detached = end_locals(t, batch, detached);
    tide_trainer_context_ends(t);
    tide_release(m, loss);
    tide_del(m, "del tr_loss_step", t->loss);
    t->loss = detached;
    tide_value value = tide_of_tensor(detached);
    if (t->nan_inf_filter) tide_value_release(m, tide_model_run(&t->run->model, t->nan_inf_filter, &value, 1));
}

static void training_step(tide_trainer_run *t, unsigned step, tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    if (t->kind->has_teacher) tide_answer_prompts(t, step, inputs);
    if (t->kind->pairs_completions) tide_pair_completions(t, step, inputs);
    if (m->has_failed) return;
    tide_saved_tensors_hooks *before = t->offload ? tide_offload_enter(m, t->offload) : NULL;
    forward_and_backward(t, step, inputs);
    if (t->offload) tide_offload_exit(m, t->offload, before);
    if (t->kind->has_teacher) tide_trainer_put_row(t, t->job->trainer_prompt_length, t->job->seq);
}

/* ---- the end of a step ---- */

/* model.zero_grad(): in parameter order. */
static void trainer_zero_grad(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "zero_grad");
    m->module = m->statement = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) tide_release_at(m, &model->parameters[i].tensor->grad);
    tide_freeing_ends(m, before);
}

/* Whether or not gradients are clipped, the norm is computed (_get_grad_norm) and kept until the next one. */
static void clip_and_step(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    tide_del(m, "del grad_norm", t->wrapper.grad_norm);
    if (t->wrapper.scaler) tide_scaler_unscale(&t->run->model, t->wrapper.scaler, t->wrapper.optimizer);
    t->wrapper.grad_norm = tide_clip_grad_norm(t->wrapper.optimizer);
    tide_scaled_step(&t->run->model, t->wrapper.scaler, t->wrapper.optimizer);
    trainer_zero_grad(t);
}

static void trainer_update(tide_trainer_run *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    m->module = m->statement = 0;
    if (!t->strategy->update)
        clip_and_step(t);
    else if (!t->strategy->updates_in_backward)
        t->strategy->update(&t->wrapper);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}

/* ---- before the training ---- */

/* _load_optimizer_and_scheduler: states are copied to the device one by one, or all ranks read them there. */
static void load_checkpoint(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    m->op = "load_state_dict";
    bool is_loaded = !t->strategy->update && tide_optimizer_load_state(t->wrapper.optimizer);
    if (!is_loaded)
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/trainer.resume_from_checkpoint",
                    "how this optimizer's states are read is not described: the run is played from its beginning, with "
                    "the same peak but for where blocks lie",
                    NULL);
}

/* accelerate/accelerator.py: mixed precision in fp16 has a GradScaler, except with DeepSpeed, whose engine scales by
 * itself. clip_grad_norm_() unscales, whether or not it clips. */
static bool prepare_scaler(tide_trainer_run *t) {
    const tide_job *job = t->job;
    if (!job->autocast.is_set || job->autocast.dtype != TIDE_FP16 || tide_job_has_deepspeed(job)) return true;
    t->scaler.has_dtensors = job->parallel_kind == TIDE_parallel_kind_fsdp2;
    t->scaler.is_sharded = t->scaler.has_dtensors || job->parallel_kind == TIDE_parallel_kind_fsdp1;
    t->scaler.is_on_host = t->scaler.is_sharded && job->parallel_offload;
    t->wrapper.scaler = &t->scaler;
    return job->optimizer == TIDE_optimizer_none ||
           tide_scaler_takes(&t->run->model, &t->scaler, t->wrapper.optimizer, true);
}

/* accelerator.free_memory(), which collects garbage; create_optimizer(), accelerator.prepare() */
static bool prepare_for_training(tide_trainer_run *t) {
    if (t->reference_model && t->job->trainer_precompute_ref_log_probs) tide_reference_collect(t->reference_model);
    tide_timeline_empty_cache(&t->run->machine.timeline);
    if (!tide_trainer_is_of_factory(t->job)) tide_skip_layers(&t->run->model, t->job->every_n_layers); /* train() */
    t->strategy = tide_wrap_model(t->run, t->job, &t->wrapper);
    if (t->strategy && t->job->trainer_resume_from_checkpoint) load_checkpoint(t);
    return t->strategy && prepare_scaler(t);
}

/* ---- the steps ---- */

/* The micro-batches of a step. If a step has several generations, each is played. */
static void play_training_steps(tide_trainer_run *t, unsigned step) {
    const tide_job *job = t->job;
    tide_alike alike = {.run = t->run, .step = step, .count = (uint32_t)job->grad_accum};
    bool generates = tide_trainer_generates(job), has_lengths = tide_job_has_lengths(job),
         is_one = !generates ||
                  (t->micro % tide_steps_per_generation(job) == 0 && tide_steps_per_generation(job) >= job->grad_accum);
    /* keep_entropy_stats() and gradients that are reduced make the last one of a step another */
    bool last_is_alike = t->strategy == &tide_one_gpu && !generates;
    for (uint32_t i = 0; i < alike.count && !t->run->machine.has_failed; i++) {
        tide_alike_begins(&alike);
        tide_take_micro_batch(t->run, job, first_of_step(t, step) + i);
        t->wrapper.micro = i;
        t->wrapper.is_last = i + 1 == alike.count;
        training_step(t, step, &t->batch_samples[i]);
        uint32_t repeated = is_one && !has_lengths ? tide_alike_ends(&alike, i, last_is_alike) : 0;
        t->micro += generates ? repeated : 0;
        i += repeated;
    }
}

/* UlyssesSPDataLoaderAdapter: whether one of a step's micro-batches is the first of those that ranks share. */
static bool refills_in_step(const tide_job *job, unsigned step) {
    int64_t ranks = job->parallel_sequence_parallel_size, first = (int64_t)(step - 1) * job->grad_accum;
    return ranks > 1 && (first % ranks == 0 || first / ranks != (first + job->grad_accum - 1) / ranks);
}

/* How many steps after this one end in the same way, with nothing after them. */
static uint32_t steps_alike(const tide_job *job, unsigned step) {
    uint32_t left = 0;
    if (tide_trainer_completes(job) || tide_trainer_distils(job) || tide_job_has_lengths(job)) return 0;
    for (; step <= (unsigned)job->steps && !tide_evaluates_behind(job, step) && !tide_saves_behind(job, step) &&
           !refills_in_step(job, step);
         step++)
        left++;
    return left ? left - 1 : 0;
}

/* _maybe_log_save_evaluate() is called behind a step, and once more at the end of an epoch. */
static bool saves_first(const tide_job *job) {
    return job->trainer_eval_strategy == TIDE_trainer_eval_strategy_epoch &&
           job->trainer_save_strategy == TIDE_trainer_save_strategy_steps;
}

static void play_behind(tide_trainer_run *t, unsigned step, bool saves) {
    if (saves && tide_saves_behind(t->job, step)) tide_save_checkpoint(t, step);
    if (!saves && tide_evaluates_behind(t->job, step)) tide_evaluate(t, step);
}

static void play_steps(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    const tide_job *job = t->job;
    tide_alike steps = {.run = t->run, .count = (uint32_t)job->steps};
    for (unsigned step = 1; step <= steps.count && !m->has_failed; step++) {
        steps.step = step;
        tide_alike_begins(&steps);
        if (!get_batch_samples(t, step)) return;
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD); /* the start of the step */
        play_training_steps(t, step);
        if (!m->has_failed) trainer_update(t, step);
        for (int saves = 0; saves < 2 && !m->has_failed; saves++) play_behind(t, step, saves != saves_first(job));
        step += tide_alike_step_ends(&steps, steps_alike(job, step));
    }
}

enum { BATCHES_LIMIT = 10000 }; /* of a step, all alive at the same time */

bool tide_play_trainer(tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    if (job->grad_accum > BATCHES_LIMIT)
        return tide_error(m->diags, TIDE_ERR_LIMIT, "/settings/grad_accum",
                          tide_format(m->arena, "a step of %lld batches is more than tidemark holds (%d)",
                                      (long long)job->grad_accum, BATCHES_LIMIT),
                          "lower grad_accum: each batch more needs its input_ids, attention_mask and labels");
    tide_trainer_run t = {.run = run, .job = job, .kind = tide_trainer_kind(job)};
    m->module = m->statement = 0;
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    run->model.caller = &t;
    run->model.call_begins = tide_trainer_call_begins;
    run->model.call_ends = tide_trainer_call_ends;
    t.nan_inf_filter = tide_trainer_function(&t, "nan_inf_filter");
    *tide_model_setting(&run->model, "dropout_is_disabled") = tide_of_bool(tide_disables_dropout(job));
    if (job->offload_activations == TIDE_offload_activations_all) t.offload = tide_offload_new(m, true);
    if (t.kind->function && !tide_trl_init(&t)) return false;
    if (tide_trainer_is_of_factory(job)) tide_keep_barrier(&t); /* data/loader.py, get_dataset() */
    if (!prepare_for_training(&t)) return false;
    run->model.checkpoints_hold_given = has_ulysses_batches(&t);
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    m->op = "_tr_loss";
    tide_tensor *sum = tide_scalar(m, TIDE_FP32);
    play_steps(&t);
    tide_release(m, sum);
    return !m->has_failed;
}
