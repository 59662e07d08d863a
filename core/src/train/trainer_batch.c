/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of transformers' Trainer and of TRL's trainers, as their collators make them. */
#include <string.h>

#include "base/rounding.h"
#include "train/rollouts.h"
#include "train/trainer_run.h"

/* The collator's mask, all ones without padding. */
static void add_mask(tide_trainer_run *t, tide_batch *b) {
    tide_machine *m = &t->run->machine;
    const tide_value *ids = NULL;
    for (uint32_t i = 0; i < b->count; i++) {
        if (strcmp(b->names[i], "attention_mask") == 0) return;
        if (strcmp(b->names[i], "input_ids") == 0) ids = &b->values[i];
    }
    if (!ids || ids->kind != TIDE_VALUE_TENSOR || b->count == TIDE_INPUT_LIMIT ||
        !tide_model_takes(&t->run->model, "attention_mask"))
        return;
    m->state.factor = TIDE_FACTOR_INPUT;
    m->op = "inputs";
    b->names[b->count] = "attention_mask";
    b->values[b->count++] = tide_of_tensor(tide_empty_like(m, ids->tensor, TIDE_INT64));
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

bool tide_has_images(const tide_trainer_run *t) {
    return tide_json_at(tide_described_inputs(&t->run->model), "pixel_values") &&
           (t->job->images != 0 || t->job->video.frames || t->job->added_image.is_added);
}

static const char *const columns[] = {"input_ids", "attention_mask", "labels"}; /* or "completion_mask" */

/* The columns of a list, owned by the batch. */
static void take_columns(tide_trainer_run *t, tide_batch *b, tide_value of) {
    for (uint32_t i = 0; of.kind == TIDE_VALUE_LIST && i < of.list->count && i < TIDE_INPUT_LIMIT; i++) {
        b->names[i] = t->kind->counts_labels && i < TIDE_COUNT_OF(columns) ? columns[i] : "";
        b->values[b->count++] = tide_value_retain(of.list->items[i]);
    }
    tide_value_release(t->run->model.m, of);
}

/* A list of the columns, NULL where there are none, and as the last item names and values of the other inputs. */
static bool make_columns_of_images(tide_trainer_run *t, const tide_job *job, tide_value *whole) {
    tide_machine *m = &t->run->machine;
    tide_batch made = {0};
    tide_value media = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    *whole = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (!tide_make_batch(t->run, job, &made, m->diags)) return false;
    add_mask(t, &made);
    for (uint32_t i = 0; i < TIDE_COUNT_OF(columns); i++) tide_list_push(m, whole->list, tide_none());
    for (uint32_t i = 0; i < made.count; i++) {
        uint32_t column = 0;
        while (column < TIDE_COUNT_OF(columns) && strcmp(made.names[i], columns[column]) != 0) column++;
        if (column < TIDE_COUNT_OF(columns)) {
            whole->list->items[column] = made.values[i];
            continue;
        }
        tide_list_push(m, media.list, (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(made.names[i])});
        tide_list_push(m, media.list, made.values[i]);
    }
    tide_list_push(m, whole->list, media);
    return true;
}

/* DataCollatorForVisionLanguageModeling (trl/trainer/sft_trainer.py); DataCollatorForVisionPreference
 * (trl/trainer/dpo_trainer.py), whose rows are chosen and rejected ones with the same images. NAME_batch_of_images() of
 * library/trainers.json adds columns. */
static bool make_batch_of_images(tide_trainer_run *t, const tide_job *job, tide_batch *b) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    tide_value whole;
    if (t->kind->joins_pairs) tide_put_size(t->run, "batch", 2 * job->batch);
    if (!make_columns_of_images(t, job, &whole)) return false;
    tide_text name = tide_text_of(tide_format(m->arena, "%s_batch_of_images", t->kind->function));
    tide_function *more = tide_function_find(model->descriptions, NULL, name);
    if (more) {
        m->state.factor = TIDE_FACTOR_INPUT;
        tide_value longer = tide_model_run(model, more, &whole, 1);
        m->state.factor = TIDE_FACTOR_TEMPORARY;
        tide_value_release(m, whole);
        whole = longer;
    }
    take_columns(t, b, whole);
    return !m->has_failed;
}

void tide_trainer_put_rows(tide_trainer_run *t, int64_t rows, int64_t seq) {
    tide_put_size(t->run, "batch", rows);
    tide_put_size(t->run, "seq", seq);
    tide_model_forget_step_sizes(&t->run->model);
    t->run->model.setting_changes++;
}

/* Trainer._prepare_input of what is on the host: floating-point numbers in the dtype of DeepSpeed's engine. */
static void move_to_device(tide_trainer_run *t, tide_value *v) {
    tide_machine *m = &t->run->machine;
    if (v->kind != TIDE_VALUE_TENSOR) return;
    tide_tensor *host = v->tensor;
    bool is_cast = host->dtype == TIDE_FP32 && tide_job_has_deepspeed(t->job) && t->job->parallel_half.is_set;
    v->tensor = tide_empty_like(m, host, is_cast ? t->job->parallel_half.dtype : (tide_dtype)host->dtype);
    tide_release(m, host);
}

tide_value tide_trainer_prompts(tide_trainer_run *t, int64_t rows) {
    tide_machine *m = &t->run->machine;
    tide_value *labels = tide_model_setting(&t->run->model, "labels"), before = *labels, made;
    int64_t prompt = tide_rollout_prompt(t->run, t->job);
    bool is_on_host = m->makes_on_host;
    tide_trainer_put_rows(t, rows, prompt);
    *labels = tide_of_bool(false);
    m->makes_on_host = true;
    bool is_made = make_columns_of_images(t, t->job, &made);
    m->makes_on_host = is_on_host;
    *labels = before;
    tide_trainer_put_rows(t, t->job->batch, prompt + t->job->trainer_max_completion_length);
    if (!is_made) return tide_none();
    m->state.factor = TIDE_FACTOR_INPUT;
    m->op = "inputs";
    tide_list *media = made.list->items[TIDE_COUNT_OF(columns)].list;
    for (uint32_t i = 0; i < TIDE_COUNT_OF(columns); i++) move_to_device(t, &made.list->items[i]);
    for (uint32_t i = 1; i < media->count; i += 2) move_to_device(t, &media->items[i]);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->module = m->statement = 0;
    return made;
}

bool tide_trainer_batch(tide_trainer_run *t, const tide_job *job, tide_batch *b) {
    tide_machine *m = &t->run->machine;
    const tide_trainer_traits *kind = t->kind;
    if (!kind->function) {
        if (!tide_make_batch(t->run, job, b, m->diags)) return false;
        add_mask(t, b);
        return true;
    }
    if (tide_trainer_generates(t->job)) return true; /* prompts, which are texts */
    if (kind->sees_images && tide_has_images(t)) return make_batch_of_images(t, job, b);
    tide_function *make = tide_trainer_function(t, tide_format(m->arena, "%s_batch", kind->function));
    if (!make) return false;
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value made = tide_model_run(&t->run->model, make, NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    take_columns(t, b, made);
    return !m->has_failed;
}

static tide_tensor *labels_of(const tide_batch *b) {
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->names[i], "labels") == 0 && b->values[i].kind == TIDE_VALUE_TENSOR) return b->values[i].tensor;
    return NULL;
}

/* Trainer's model_accepts_loss_kwargs: a few classes of transformers have an attribute that denies it. */
static bool accepts_loss_kwargs(tide_model *model) {
    bool is_given = tide_size_find(model->descriptions, model->scopes[0].description, TIDE_TEXT("accepts_loss_kwargs"));
    return !is_given || tide_model_size(model, "accepts_loss_kwargs").truth;
}

tide_tensor *tide_count_items(tide_trainer_run *t, const tide_batch *batches, int64_t number) {
    tide_machine *m = &t->run->machine;
    tide_function *count = tide_trainer_function(t, "count_items");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}, made = tide_none();
    for (int64_t i = 0; i < number; i++) {
        tide_tensor *labels = labels_of(&batches[i]);
        if (labels) tide_list_push(m, list.list, tide_of_tensor(tide_retain(labels)));
    }
    const tide_model *model = &t->run->model;
    tide_text name = model->instances[model->root].of->name;
    const tide_json *encodes = tide_json_at(t->job->config, "is_encoder_decoder");
    bool generates = tide_text_contains(name, TIDE_TEXT("ForConditionalGeneration")) && !(encodes && encodes->is_true);
    /* ForCausalLMLoss shifts, according to the LOSS_MAPPING of the class */
    const tide_value arguments[] = {list,
                                    tide_of_bool(generates || tide_text_contains(name, TIDE_TEXT("ForCausalLM")))};
    if (list.list->count && count && accepts_loss_kwargs(&t->run->model))
        made = tide_model_run(&t->run->model, count, arguments, 2);
    tide_value_release(m, list);
    return made.kind == TIDE_VALUE_TENSOR ? made.tensor : NULL;
}

void tide_drop_batch(tide_machine *m, tide_batch *b) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "next batch");
    for (uint32_t i = 0; i < b->count + b->kept; i++) tide_value_release(m, b->values[i]);
    b->count = b->kept = 0;
    tide_freeing_ends(m, before);
}

void tide_set_num_items(tide_trainer_run *t, tide_tensor *num_items) {
    t->num_items = num_items;
    tide_model_setting(&t->run->model, "num_items")->kind = TIDE_VALUE_NONE;
    if (num_items) *tide_model_setting(&t->run->model, "num_items") = tide_of_tensor(num_items);
}

tide_value tide_list_of_batch(tide_machine *m, const tide_batch *inputs) {
    tide_value batch = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < inputs->count; i++) tide_list_push(m, batch.list, tide_value_retain(inputs->values[i]));
    return batch;
}
