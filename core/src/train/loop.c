/* SPDX-License-Identifier: Apache-2.0 */
/* The usual training loop, call by call. */
#include "train/run.h"

#include <string.h>

#include "memo/memo.h"
#include "tensor/offload.h"
#include "train/ema.h"
#include "train/main_grads.h"
#include "train/trainer.h"

/* ---- one step ---- */

typedef struct loop {
    tide_run *run;
    const tide_job *job;
    tide_batch batch;
    tide_optimizer *optimizer;
    tide_scaler scaler;
    tide_main_grads *main_grads; /* NULL: gradients are those of the weights */
    tide_ema *ema;               /* NULL: none */
    tide_offload *offload;       /* NULL: saved tensors stay on the device */
    tide_value held;
    tide_tensor *loss;
    const tide_strategy *strategy;
    tide_wrapper wrapper;
    tide_micro_batch_memo repeats;
    uint64_t op_count; /* before the step */
    bool has_lengths;  /* batches may all differ */
} loop;

/* Owned by the caller. */
static tide_tensor *divided(loop *l) {
    l->run->machine.op = "div";
    return l->job->grad_accum > 1 ? tide_scale(&l->run->machine, l->loss) : tide_retain(l->loss);
}

/* Trainable parameters that are in no module: they have gradients once backward has run. */
static void make_extra_grads(tide_model *model) {
    tide_machine *m = model->m;
    m->op = "AccumulateGrad";
    m->state.factor = TIDE_FACTOR_GRADIENT;
    for (uint32_t i = 0; i < model->extra_count; i++) {
        tide_tensor *t = model->extra[i].tensor;
        if (t->requires_grad && !t->grad) t->grad = tide_empty_like(m, t, t->dtype);
    }
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

static void backward_of(loop *l, tide_tensor *loss) {
    tide_machine *m = &l->run->machine;
    tide_tensor *scaled = l->wrapper.scaler ? tide_scaler_scale(&l->run->model, l->wrapper.scaler, loss) : NULL;
    tide_run_backward(m, scaled ? scaled : loss);
    tide_del(m, "del scaled loss", scaled);
}

static void backward(loop *l) {
    tide_machine *m = &l->run->machine;
    if (l->strategy->backward) {
        l->strategy->backward(&l->wrapper, l->loss);
    } else if (l->strategy != &tide_one_gpu) {
        tide_tensor *loss = divided(l); /* the undivided one lives on */
        backward_of(l, loss);
        tide_del(m, "del loss", loss);
    } else {
        backward_of(l, l->loss);
    }
    if (l->strategy == &tide_one_gpu) make_extra_grads(&l->run->model);
}

static bool zeroes_at(const loop *l, tide_zero_grad_at_choice where) {
    return l->wrapper.micro == 0 && l->optimizer && !l->main_grads && l->strategy == &tide_one_gpu &&
           l->job->zero_grad_at == where;
}

static void zero_grad(loop *l) {
    tide_zero_grad(l->optimizer, l->job->zero_grad == TIDE_zero_grad_none);
}

static void del_loss(loop *l) {
    tide_tensor *loss = l->loss;
    l->loss = NULL;
    tide_del(&l->run->machine, "del loss", loss);
}

static void del_outputs(tide_machine *m, tide_value outputs) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "del outputs");
    tide_value_release(m, outputs);
    tide_freeing_ends(m, before);
}

/* model(**batch), without labels if the strategy computes the loss. */
static tide_value call_model(loop *l) {
    tide_batch given = {.count = 0};
    for (uint32_t i = 0; i < l->batch.count; i++) {
        if (l->wrapper.computes_loss && strcmp(l->batch.names[i], "labels") == 0) continue;
        given.names[given.count] = l->batch.names[i];
        given.values[given.count++] = l->batch.values[i];
    }
    return tide_model_forward(&l->run->model, given.names, given.values, given.count);
}

static void take_inputs(loop *l) {
    for (uint32_t i = 0; i < l->batch.count; i++) {
        if (strcmp(l->batch.names[i], "labels") == 0) l->wrapper.labels = l->batch.values[i];
        if (strcmp(l->batch.names[i], "input_ids") == 0) l->wrapper.input_ids = l->batch.values[i];
    }
}

static void micro_batch(loop *l, unsigned step) {
    tide_run *run = l->run;
    tide_machine *m = &run->machine;
    if (l->strategy->before_forward) l->strategy->before_forward(&l->wrapper);
    bool autocasts = tide_job_autocasts(l->job);
    if (autocasts) tide_autocast_begin(m, l->job->autocast.dtype);
    tide_saved_tensors_hooks *hooks = l->offload ? tide_offload_enter(m, l->offload) : NULL;
    tide_value output = call_model(l);
    if (m->has_failed) return;
    m->module = m->statement = 0; /* from here on it is the loop */
    if (l->strategy->after_forward) l->strategy->after_forward(&l->wrapper, &output);
    tide_tensor *loss = tide_loss_of(m, output);
    tide_del(m, "del loss", l->loss);
    l->loss = loss;
    if (l->offload) tide_offload_exit(m, l->offload, hooks);
    if (autocasts) tide_autocast_end(m);
    if (l->job->hold_outputs) {
        del_outputs(m, l->held);
        bool is_apart = run->model.instances[run->model.root].of->loss_is_apart && output.kind == TIDE_VALUE_LIST &&
                        output.list->count > 1;
        l->held = tide_value_retain(is_apart ? output.list->items[1] : output);
    }
    del_outputs(m, output);
    if (l->strategy == &tide_one_gpu && l->loss) {
        loss = divided(l);
        tide_del(m, "del loss", l->loss);
        l->loss = loss;
    }
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_FORWARD);
    tide_micro_batch_forward_ends(&l->repeats, &run->model);
    if (!l->loss || m->has_failed) return;
    if (zeroes_at(l, TIDE_zero_grad_at_before_backward)) zero_grad(l);
    backward(l);
    if (l->strategy != &tide_one_gpu) del_loss(l);
    if (l->strategy->after_backward) l->strategy->after_backward(&l->wrapper);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_BACKWARD);
}

static void update(loop *l, unsigned step) {
    tide_run *run = l->run;
    tide_machine *m = &run->machine;
    m->module = m->statement = 0;
    if (l->strategy->update) {
        l->strategy->update(&l->wrapper);
    } else if (l->main_grads) {
        tide_main_grads_step(l->main_grads, l->job->clip > 0);
    } else if (l->job->optimizer != TIDE_optimizer_none && run->trainable > 0) {
        tide_scaler *scaler = l->wrapper.scaler;
        if (scaler && l->job->clip > 0) tide_scaler_unscale(&run->model, scaler, l->optimizer);
        if (l->job->clip > 0) tide_release(m, tide_clip_grad_norm(l->optimizer));
        tide_scaled_step(&run->model, scaler, l->optimizer);
        if (l->job->zero_grad_at == TIDE_zero_grad_at_after_step) zero_grad(l);
    }
    tide_ema_update(l->ema);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_OPTIMIZER);
}

/* What strategies and held outputs refer to is not examined. */
static bool may_be_replayed(const loop *l) {
    return l->strategy == &tide_one_gpu && !l->job->hold_outputs && !l->run->plays_all && !l->offload &&
           !zeroes_at(l, TIDE_zero_grad_at_before_backward);
}

static uint64_t key_of(const loop *l) {
    tide_value of_scaler[TIDE_SCALER_VALUES];
    tide_scaler_values(&l->scaler, of_scaler);
    return tide_micro_batch_key(&l->repeats, &l->run->model, of_scaler, TIDE_SCALER_VALUES, l->loss);
}

/* Plays a micro-batch, or replays one that started from the same state. */
static void next_micro_batch(loop *l, unsigned step) {
    tide_model *model = &l->run->model;
    if (!may_be_replayed(l)) {
        micro_batch(l, step);
        return;
    }
    uint64_t key = key_of(l);
    if (tide_micro_batch_replay(&l->repeats, model, key, step, &l->loss)) {
        l->run->repeated++;
        return;
    }
    tide_micro_batch_begin(&l->repeats, model, key, l->loss);
    micro_batch(l, step);
    tide_micro_batch_end(&l->repeats, model, l->loss);
}

enum { STEPS_PLAYED = 4 }; /* of those that repeat one another */

/* After some micro-batches of the first step: whether all of them are too many to play. Then they are likely to repeat,
 * and are examined although they have not yet. */
static bool is_too_long(const loop *l, uint32_t played) {
    tide_machine *m = &l->run->machine;
    if (m->has_failed || (played <= TIDE_MICRO_BATCHES_KEPT && l->job->grad_accum > TIDE_MICRO_BATCHES_KEPT))
        return false;
    uint64_t each = (m->op_count - l->op_count) / played, steps = (uint64_t)l->job->steps,
             all =
                 each * (uint64_t)l->job->grad_accum * (steps > STEPS_PLAYED && !l->has_lengths ? STEPS_PLAYED : steps);
    if (all <= m->op_limit) return false;
    tide_error(m->diags, TIDE_ERR_LIMIT, l->job->grad_accum > 1 ? "/settings/grad_accum" : "/settings/steps",
               tide_format(m->arena,
                           "%lld micro-batches in each of %lld steps are more than tidemark plays (%llu statements of "
                           "the model's description)",
                           (long long)l->job->grad_accum, (long long)l->job->steps, (unsigned long long)m->op_limit),
               "lower grad_accum: each micro-batch from the second on needs the same memory");
    m->has_failed = true;
    return true;
}

/* Whether a micro-batch ends in the state in which it started, apart from what a strategy or the loop refers to. */
static bool leaves_state(const loop *l, uint64_t key) {
    return may_be_replayed(l) && key_of(l) == key;
}

/* for batch in loader: the previous one lives until the next is there. */
static bool next_batch(loop *l, uint64_t index) {
    tide_run *run = l->run;
    tide_batch before = l->batch;
    l->batch = (tide_batch){.count = 0};
    run->machine.module = run->machine.statement = 0;
    tide_take_micro_batch(run, l->job, index);
    if (!tide_make_batch(run, l->job, &l->batch, run->machine.diags)) return false;
    tide_freeing freeing = tide_freeing_begins(&run->machine, TIDE_FREED_BY_LOOP, "next batch");
    for (uint32_t i = 0; i < before.count; i++) tide_value_release(&run->machine, before.values[i]);
    tide_freeing_ends(&run->machine, freeing);
    take_inputs(l);
    return true;
}

/* A step's micro-batches: those that repeat the one before are folded (micro_batches.c). With a strategy the last one
 * differs, because gradients are reduced after it. */
static void play_micro_batches(loop *l, unsigned step) {
    tide_alike alike = {.run = l->run, .step = step, .count = (uint32_t)l->job->grad_accum};
    for (uint32_t i = 0; i < alike.count && !l->run->machine.has_failed; i++) {
        uint32_t left = alike.count - 1 - i;
        uint64_t key = left && !l->has_lengths && may_be_replayed(l) ? key_of(l) : 0;
        tide_alike_begins(&alike);
        l->wrapper.micro = i;
        l->wrapper.is_last = left == 0;
        if (l->has_lengths && !next_batch(l, (uint64_t)(step - 1) * alike.count + i)) return;
        if (zeroes_at(l, TIDE_zero_grad_at_before_forward)) zero_grad(l);
        next_micro_batch(l, step);
        uint32_t repeated = l->has_lengths ? 0 : tide_alike_ends(&alike, i, left && leaves_state(l, key));
        i += repeated;
        if (!repeated && (i == 0 || i == TIDE_MICRO_BATCHES_KEPT) && is_too_long(l, i + 1)) return;
    }
}

static void play_step(loop *l, unsigned step) {
    tide_machine *m = &l->run->machine;
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD); /* the start of the step */
    if (l->strategy->step) {
        l->strategy->step(&l->wrapper, step);
        return;
    }
    l->op_count = m->op_count;
    play_micro_batches(l, step);
    if (m->has_failed) return;
    update(l, step);
    del_loss(l);
}

static bool play(loop *l) {
    tide_machine *m = &l->run->machine;
    tide_alike steps = {.run = l->run, .count = (uint32_t)l->job->steps};
    for (unsigned step = 1; step <= steps.count && !m->has_failed; step++) {
        steps.step = step;
        tide_alike_begins(&steps);
        play_step(l, step);
        if (!l->has_lengths) step += tide_alike_step_ends(&steps, steps.count - step);
    }
    return !m->has_failed;
}

bool tide_play_loop(tide_run *run, const tide_job *job) {
    tide_machine *m = &run->machine;
    bool is_training = job->mode == TIDE_mode_train;
    loop l = {.run = run, .job = job};
    bool has_trainer = is_training && tide_job_has_trainer(job);
    l.has_lengths = tide_job_has_lengths(job);
    if (!has_trainer) l.strategy = tide_wrap_model(run, job, &l.wrapper);
    if (!has_trainer && !l.strategy) return false;
    bool has_batch = !l.has_lengths && !has_trainer && job->trainer == TIDE_trainer_none;
    if (has_batch && !tide_make_batch(run, job, &l.batch, m->diags)) return false;
    if (tide_prepares_kbit(job)) tide_model_setting(&run->model, "model_dtype")->dtype = TIDE_FP32; /* self.dtype */
    if (has_trainer) return tide_play_trainer(run, job);
    if (is_training && job->trainer == TIDE_trainer_llama_factory_v1)
        return tide_play_llama_factory_v1(run, job, l.strategy, &l.wrapper);
    l.optimizer = l.wrapper.optimizer;
    take_inputs(&l);
    if (l.strategy->batch_made) l.strategy->batch_made(&l.wrapper);
    if (!is_training) return tide_infer(run, job, &l.batch);
    m->module = m->statement = 0;
    if (!l.optimizer) tide_optimizer_construct(l.optimizer = tide_optimizer_new(&run->model, job));
    if (job->main_grads != TIDE_main_grads_none && run->trainable > 0)
        l.main_grads = tide_main_grads_new(&run->model, l.optimizer);
    if (job->offload_activations == TIDE_offload_activations_all) l.offload = tide_offload_new(m, false);
    l.ema = tide_ema_new(&run->model, job->ema);
    if (job->scaler && job->optimizer != TIDE_optimizer_none &&
        !tide_scaler_takes(&run->model, &l.scaler, l.optimizer, job->clip > 0))
        return false;
    if (job->scaler) l.wrapper.scaler = &l.scaler;
    l.scaler.has_dtensors = job->parallel_kind == TIDE_parallel_kind_fsdp2;
    tide_timeline_mark(&m->timeline, 0, TIDE_PHASE_LOAD);
    return play(&l);
}
