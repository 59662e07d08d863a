/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/trainer.py, evaluation_loop and prediction_step; TRL's trainers override prediction_step. */
#include "train/evaluation.h"

#include "base/units.h"
#include "train/predictions.h"

enum { BATCHES_ALIKE = 3 }; /* after so many, an evaluation that only computes the loss repeats itself */

/* The local state of evaluation_loop(). */
typedef struct evaluation {
    tide_trainer_run *t;
    tide_job job; /* for the evaluated batch */
    int64_t samples, ranks;
    bool keeps_predictions;
    tide_batch inputs;
    tide_value losses, logits, labels;             /* of the previous batch */
    tide_value all_losses, all_logits, all_labels; /* EvalLoopContainer */
} evaluation;

bool tide_evaluates_behind(const tide_job *job, unsigned step) {
    int64_t every = job->trainer_eval_steps;
    if (job->trainer_eval_strategy == TIDE_trainer_eval_strategy_no) return false;
    bool is_regular = job->trainer_eval_strategy == TIDE_trainer_eval_strategy_steps && every && every <= job->steps;
    return step == (unsigned)job->steps || (is_regular && step % every == 0);
}

/* ---- containers ---- */

static void drop_kept(evaluation *e, tide_value *value) {
    tide_machine *m = &e->t->run->machine;
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "evaluation_loop");
    tide_value_release(m, *value);
    *value = tide_none();
    tide_freeing_ends(m, before);
}

/* nested_concat(); owned by the caller. */
static tide_value concatenated(evaluation *e, tide_value kept, tide_value added) {
    tide_machine *m = &e->t->run->machine;
    if (kept.kind != TIDE_VALUE_LIST || added.kind != TIDE_VALUE_LIST) {
        const tide_value arguments[] = {kept, added};
        tide_function *concatenate = tide_trainer_function(e->t, "pad_and_concatenate");
        return concatenate ? tide_model_run(&e->t->run->model, concatenate, arguments, 2) : tide_none();
    }
    tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < kept.list->count && i < added.list->count; i++)
        tide_list_push(m, made.list, concatenated(e, kept.list->items[i], added.list->items[i]));
    return made;
}

static void add_to(evaluation *e, tide_value *all, tide_value added) {
    if (all->kind == TIDE_VALUE_NONE) {
        *all = tide_value_retain(added);
        return;
    }
    tide_value made = concatenated(e, *all, added);
    drop_kept(e, all);
    *all = made;
}

/* ---- several ranks ---- */

/* The most columns on any rank in batch `index`; if all batches are alike, those of this one. */
static int64_t most_columns(const evaluation *e, int64_t index, int64_t own) {
    if (!tide_job_has_lengths(e->t->job)) return own;
    for (int64_t rank = 0; rank < e->ranks; rank++) {
        tide_micro_batch of = tide_job_evaluated(e->t->job, e->samples, index, rank);
        if (of.seq > own) own = of.seq;
    }
    return own;
}

/* recursively_apply() makes a tuple of its own: the tensors of the one before live until all are done. */
typedef struct replaced_tensors {
    tide_tensor *tensors[TIDE_INPUT_LIMIT];
    uint32_t count;
} replaced_tensors;

static void replace_tensor(tide_machine *m, replaced_tensors *r, tide_value *v, tide_tensor *made) {
    if (r->count < TIDE_INPUT_LIMIT)
        r->tensors[r->count++] = v->tensor;
    else
        tide_release(m, v->tensor);
    v->tensor = made;
}

static void drop_replaced(tide_machine *m, replaced_tensors *r) {
    while (r->count) tide_release(m, r->tensors[--r->count]);
}

/* accelerate/utils/operations.py, _pad_across_processes: shapes are compared on the device. A tensor with fewer columns
 * than another rank's is copied into a padded one. */
static void pad_each(evaluation *e, tide_value *v, int64_t index, replaced_tensors *replaced) {
    tide_machine *m = &e->t->run->machine;
    for (uint32_t i = 0; v->kind == TIDE_VALUE_LIST && i < v->list->count; i++)
        pad_each(e, &v->list->items[i], index, replaced);
    if (v->kind != TIDE_VALUE_TENSOR || v->tensor->shape->dims < 2) return;
    m->op = "pad_across_processes";
    tide_shape shape = {.dim = {{v->tensor->shape->dims, 0}}, .dims = 1};
    tide_tensor *size = tide_empty(m, &shape, TIDE_INT64);
    if (e->ranks > 1) tide_alloc_and_free(m, tide_bytes(size) * e->ranks);
    tide_release(m, size);
    shape = *v->tensor->shape;
    int64_t columns = most_columns(e, index, shape.dim[1].size);
    if (e->ranks == 1 || columns == shape.dim[1].size) return;
    shape.dim[1] = (tide_dim){columns, 0};
    tide_tensor *zeros = tide_empty(m, &shape, (tide_dtype)v->tensor->dtype),
                *padded = tide_empty(m, &shape, (tide_dtype)v->tensor->dtype);
    tide_release(m, zeros);
    replace_tensor(m, replaced, v, padded);
}

static void pad_across_processes(evaluation *e, tide_value *v, int64_t index) {
    replaced_tensors replaced = {.count = 0};
    pad_each(e, v, index, &replaced);
    drop_replaced(&e->t->run->machine, &replaced);
}

/* gather_for_metrics(): what all ranks have, on each rank; duplicated rows of the last batches are excluded by a view.
 */
static void gather_each(evaluation *e, tide_value *v, int64_t index, replaced_tensors *replaced) {
    tide_machine *m = &e->t->run->machine;
    int64_t all = e->ranks * e->t->job->trainer_per_device_eval_batch_size, left = e->samples - index * all;
    for (uint32_t i = 0; v->kind == TIDE_VALUE_LIST && i < v->list->count; i++)
        gather_each(e, &v->list->items[i], index, replaced);
    if (v->kind != TIDE_VALUE_TENSOR || e->ranks == 1) return;
    tide_shape shape = *v->tensor->shape;
    shape.dim[0] = (tide_dim){shape.dim[0].size * e->ranks, 0};
    m->op = "gather";
    tide_tensor *gathered = tide_empty(m, &shape, (tide_dtype)v->tensor->dtype);
    replace_tensor(m, replaced, v, gathered);
    tide_function *first_rows = left < all ? tide_trainer_function(e->t, "first_rows") : NULL;
    const tide_value arguments[] = {*v, tide_of_int(left)};
    if (!first_rows) return;
    tide_value rows = tide_model_run(&e->t->run->model, first_rows, arguments, 2);
    tide_value_release(m, *v);
    *v = rows;
}

static void gather_for_metrics(evaluation *e, tide_value *v, int64_t index) {
    replaced_tensors replaced = {.count = 0};
    gather_each(e, v, index, &replaced);
    drop_replaced(&e->t->run->machine, &replaced);
}

/* ---- one batch ---- */

static void take_rows(evaluation *e, int64_t rows, int64_t index) {
    tide_run *run = e->t->run;
    const tide_job *job = e->t->job;
    e->job.batch = rows;
    tide_put_size(run, "batch", rows);
    tide_put_size(run, "sequences_of_row", tide_sequences_of_row(&e->job));
    tide_put_size(run, "row_tokens", rows * e->job.seq);
    run->model.setting_changes++;
    tide_model_forget_step_sizes(&run->model);
    if (!tide_job_has_lengths(job)) return;
    tide_micro_batch of = tide_job_evaluated(job, e->samples, index, e->ranks > 1 ? job->parallel_rank : 0);
    tide_take_samples(run, job, &of);
}

/* past_key_values, a list of one item per layer: keys_to_ignore_at_inference. */
static bool is_cache(tide_value v) {
    return v.kind == TIDE_VALUE_LIST && (!v.list->count || v.list->items[0].kind == TIDE_VALUE_LIST);
}

/* outputs without "loss"; a list if there are several. */
static tide_value predictions_of(tide_machine *m, tide_value outputs) {
    tide_value found = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    bool has_loss = false;
    for (uint32_t i = 0; outputs.kind == TIDE_VALUE_LIST && i < outputs.list->count; i++) {
        tide_value item = outputs.list->items[i];
        bool is_loss = !has_loss && item.kind == TIDE_VALUE_TENSOR && item.tensor->shape->dims == 0;
        has_loss = has_loss || is_loss;
        if (is_loss || is_cache(item) || (item.kind != TIDE_VALUE_TENSOR && item.kind != TIDE_VALUE_LIST)) continue;
        tide_list_push(m, found.list, tide_value_retain(item));
    }
    if (found.list->count != 1) return found;
    tide_value only = tide_value_retain(found.list->items[0]);
    tide_value_release(m, found);
    return only;
}

static tide_value labels_of_inputs(const evaluation *e) {
    for (uint32_t i = 0; i < e->inputs.count; i++)
        if (tide_text_is(tide_text_of(e->inputs.names[i]), "labels")) return tide_value_retain(e->inputs.values[i]);
    return tide_none();
}

/* loss.detach().mean(); takes ownership of the loss. */
static tide_value mean_of(tide_trainer_run *t, tide_tensor *loss) {
    tide_machine *m = &t->run->machine;
    tide_function *mean = tide_trainer_function(t, "mean_of_loss");
    tide_value of = tide_of_tensor(loss), made = tide_none();
    if (loss && mean && !m->has_failed) made = tide_model_run(&t->run->model, mean, &of, 1);
    tide_release(m, loss);
    return made;
}

/* Trainer.prediction_step; the caller owns the loss. */
static tide_value prediction_step(evaluation *e, tide_value *logits, tide_value *labels) {
    tide_trainer_run *t = e->t;
    tide_machine *m = &t->run->machine;
    tide_value outputs = tide_none();
    bool generates = e->keeps_predictions && t->job->trainer_predict_with_generate;
    tide_value tokens = generates ? tide_generate_predictions(t, &e->inputs) : tide_none();
    tide_tensor *of_training = t->num_items, *num_items = generates ? NULL : tide_count_items(t, &e->inputs, 1);
    tide_set_num_items(t, num_items);
    tide_tensor *loss = tide_compute_loss(t, &e->inputs, &outputs);
    tide_set_num_items(t, of_training);
    tide_value made = mean_of(t, loss);
    if (e->keeps_predictions && !m->has_failed) {
        *logits = generates ? tokens : predictions_of(m, outputs);
        *labels = generates ? tide_pad_labels(t, labels_of_inputs(e)) : labels_of_inputs(e);
    }
    tide_del(m, "del num_items_in_batch", num_items);
    drop_kept(e, &outputs);
    return made;
}

/* The same for TRL's trainers, except RewardTrainer, which uses Trainer's. */
static tide_value predict_trl(evaluation *e) {
    tide_trainer_run *t = e->t;
    tide_machine *m = &t->run->machine;
    bool autocasts = tide_trainer_casts_to_bf16(t->job);
    tide_tensor *of_training = t->num_items;
    tide_value batch = tide_list_of_batch(m, &e->inputs);
    tide_set_num_items(t, NULL);
    if (autocasts) tide_autocast_begin(m, tide_loss_dtype(t));
    tide_tensor *loss = tide_compute_trl_loss(t, batch);
    if (autocasts) tide_autocast_end(m);
    tide_set_num_items(t, of_training);
    tide_value_release(m, batch);
    if (t->kind->scores_rows) return mean_of(t, loss);
    return loss ? tide_of_tensor(loss) : tide_none();
}

/* preprocess_logits_for_metrics(), as in transformers' examples: for several outputs, of the first one. */
static void preprocess_logits(evaluation *e) {
    bool is_list = e->logits.kind == TIDE_VALUE_LIST && e->logits.list->count;
    tide_value of = is_list ? e->logits.list->items[0] : e->logits;
    if (e->t->job->trainer_preprocess_logits_for_metrics == TIDE_trainer_preprocess_logits_for_metrics_none) return;
    tide_function *argmax = of.kind == TIDE_VALUE_TENSOR ? tide_trainer_function(e->t, "argmax_of_logits") : NULL;
    if (!argmax) return;
    tide_value made = tide_model_run(&e->t->run->model, argmax, &of, 1);
    drop_kept(e, &e->logits);
    e->logits = made;
}

/* losses.repeat(batch_size), the size of a full batch. */
static void keep_losses(evaluation *e, int64_t index) {
    tide_function *repeat = tide_trainer_function(e->t, "repeated_loss");
    const tide_value arguments[] = {e->losses, tide_of_int(e->t->job->trainer_per_device_eval_batch_size)};
    if (!repeat) return;
    tide_value repeated = tide_model_run(&e->t->run->model, repeat, arguments, 2);
    gather_for_metrics(e, &repeated, index);
    drop_kept(e, &e->losses);
    e->losses = repeated;
    add_to(e, &e->all_losses, repeated);
}

static void drop_containers(evaluation *e) {
    drop_kept(e, &e->all_losses);
    drop_kept(e, &e->all_logits);
    drop_kept(e, &e->all_labels);
}

static void drop_outputs(evaluation *e) {
    drop_kept(e, &e->losses);
    drop_kept(e, &e->logits);
    drop_kept(e, &e->labels);
}

/* del losses, logits, labels, inputs */
static void drop_batch_of(evaluation *e) {
    drop_outputs(e);
    tide_drop_batch(&e->t->run->machine, &e->inputs);
}

static void evaluate_batch(evaluation *e, int64_t index) {
    tide_trainer_run *t = e->t;
    tide_machine *m = &t->run->machine;
    const tide_job *job = t->job;
    int64_t most = job->trainer_per_device_eval_batch_size, left = e->samples - index * most,
            every = job->trainer_eval_accumulation_steps;
    tide_batch next = {0};
    take_rows(e, e->ranks == 1 && left < most ? left : most, index);
    if (!tide_trainer_batch(t, &e->job, &next)) return;
    tide_drop_batch(m, &e->inputs);
    e->inputs = next;
    tide_value logits = tide_none(), labels = tide_none(),
               losses = t->compute_loss ? predict_trl(e) : prediction_step(e, &logits, &labels);
    m->module = m->statement = 0;
    drop_outputs(e);
    e->losses = losses;
    e->logits = logits;
    e->labels = labels;
    if (m->has_failed) return;
    keep_losses(e, index);
    bool is_apart = job->trainer_batch_eval_metrics;
    pad_across_processes(e, &e->labels, index);
    pad_across_processes(e, &e->logits, index);
    if (e->keeps_predictions) preprocess_logits(e);
    gather_for_metrics(e, &e->logits, index);
    if (!is_apart && e->keeps_predictions) add_to(e, &e->all_logits, e->logits);
    gather_for_metrics(e, &e->labels, index);
    if (!is_apart && e->keeps_predictions) add_to(e, &e->all_labels, e->labels);
    bool goes_to_host = !is_apart && every && (index + 1) % every == 0;
    if (goes_to_host) drop_containers(e);
    if (!is_apart && !goes_to_host) return;
    drop_batch_of(e);
    tide_timeline_empty_cache(&m->timeline);
}

/* ---- all of it ---- */

/* Settings that depend on the size of the batch. */
static const char *const of_a_batch[] = {"batch",   "seq",          "row_tokens", "sequences_of_row", "scored",
                                         "padding", "mask_is_full", "training",   "loss_function",    "use_cache"};

typedef struct batch_settings {
    tide_value values[TIDE_COUNT_OF(of_a_batch)];
} batch_settings;

static batch_settings settings_of_training(tide_model *model) {
    batch_settings of;
    for (size_t i = 0; i < TIDE_COUNT_OF(of_a_batch); i++) of.values[i] = *tide_model_setting(model, of_a_batch[i]);
    return of;
}

static void restore_settings(tide_model *model, const batch_settings *of) {
    for (size_t i = 0; i < TIDE_COUNT_OF(of_a_batch); i++) *tide_model_setting(model, of_a_batch[i]) = of->values[i];
    model->setting_changes++;
    tide_model_forget_step_sizes(model);
}

/* model.eval() and torch.no_grad() */
static void evaluate_all(evaluation *e) {
    tide_model *model = &e->t->run->model;
    int64_t most = e->t->job->trainer_per_device_eval_batch_size;
    batch_settings of_training = settings_of_training(model);
    bool checkpoints = model->state.is_checkpointing;
    tide_value *loss = tide_model_setting(model, "loss_function");
    if (e->keeps_predictions && tide_text_is(loss->text, "liger")) loss->text = TIDE_TEXT("default"); /* skip_logits */
    *tide_model_setting(model, "training") = tide_of_bool(false);
    if (e->t->job->trainer == TIDE_trainer_hf && tide_json_at(e->t->job->config, "text_config"))
        *tide_model_setting(model, "use_cache") = tide_of_bool(tide_copied_use_cache(e->t->job));
    model->state.is_checkpointing = false;
    model->m->state.grad_enabled = false;
    for (int64_t i = 0; i * most * e->ranks < e->samples && !model->m->has_failed; i++) evaluate_batch(e, i);
    model->m->state.grad_enabled = true;
    model->state.is_checkpointing = checkpoints;
    restore_settings(model, &of_training);
}

void tide_with_evaluated_rows(tide_trainer_run *t, void (*run)(tide_trainer_run *t, const tide_job *job)) {
    evaluation e = {.t = t, .job = *t->job, .ranks = 1, .samples = INT64_MAX};
    batch_settings of_training = settings_of_training(&t->run->model);
    take_rows(&e, t->job->trainer_per_device_eval_batch_size, 0);
    run(t, &e.job);
    restore_settings(&t->run->model, &of_training);
}

void tide_evaluate(tide_trainer_run *t, unsigned step) {
    const tide_job *job = t->job;
    tide_machine *m = &t->run->machine;
    evaluation e = {.t = t, .job = *job, .samples = job->trainer_max_eval_samples, .ranks = 1};
    if (job->parallel_kind != TIDE_parallel_kind_none) e.ranks = job->parallel_dp;
    if (!e.samples) e.samples = BATCHES_ALIKE * job->trainer_per_device_eval_batch_size * e.ranks;
    e.keeps_predictions = job->trainer_compute_metrics && !job->trainer_prediction_loss_only;
    m->module = m->statement = 0;
    if (!tide_check_predictions(t)) {
        m->has_failed = true;
        return;
    }
    t->evaluates_bare_model = t->strategy && t->strategy->trains_a_copy;
    evaluate_all(&e);
    t->evaluates_bare_model = false;
    m->module = m->statement = 0;
    drop_containers(&e);
    drop_batch_of(&e);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_EVALUATE);
}
