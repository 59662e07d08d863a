/* SPDX-License-Identifier: Apache-2.0 */
/* How transformers' Trainer and TRL's trainers process a batch: inputs, the call of the model, the loss. */
#include <string.h>

#include "base/units.h"
#include "train/rollouts.h"
#include "train/trainer_run.h"

const tide_trl tide_trls[TIDE_trainer_COUNT] = {
    [TIDE_trainer_sft] = {.name = "sft", .counts_labels = true, .sees_images = true},
    [TIDE_trainer_dpo] = {.name = "dpo", .has_reference = true, .sees_images = true},
    [TIDE_trainer_kto] = {.name = "kto", .has_reference = true, .sees_images = true},
    [TIDE_trainer_orpo] = {.name = "orpo", .builds_logits = true},
    [TIDE_trainer_cpo] = {.name = "cpo", .builds_logits = true},
    [TIDE_trainer_reward] = {.name = "reward", .builds_logits = true},
    [TIDE_trainer_grpo] = {.name = "grpo", .has_reference = true, .sees_images = true, .scales_loss = true},
    [TIDE_trainer_gkd] = {.name = "gkd", .counts_labels = true, .has_teacher = true, .builds_logits = true},
    [TIDE_trainer_rloo] = {.name = "rloo", .has_reference = true, .sees_images = true},
};

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

/* ---- batches ---- */

/* Whether the model's forward() takes a mask. */
static bool takes_mask(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    tide_function *forward = tide_method_find(model->instances[model->root].of, TIDE_TEXT("forward"));
    if (!forward || !tide_function_read(model->descriptions, forward)) return false;
    for (uint32_t i = 0; i < forward->parameter_count; i++)
        if (tide_text_is(forward->parameters[i].name, "attention_mask")) return true;
    return false;
}

/* The collator's mask, all ones without padding. */
static void add_mask(tide_trainer_run *t, tide_batch *b) {
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

static const tide_json *described_inputs(const tide_model *model) {
    const tide_json *inputs = model->instances[model->root].of->inputs;
    return inputs ? inputs : tide_description_at(model->scopes[0].description, "inputs");
}

bool tide_has_images(const tide_trainer_run *t) {
    return tide_json_at(described_inputs(&t->run->model), "pixel_values") &&
           (t->job->images != 0 || t->job->video.frames);
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
    if (job->trainer == TIDE_trainer_dpo) tide_put_size(t->run, "batch", 2 * job->batch);
    if (!make_columns_of_images(t, job, &whole)) return false;
    tide_text name = tide_text_of(tide_format(m->arena, "%s_batch_of_images", t->kind->name));
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
    const tide_trl *kind = t->kind;
    if (!kind->name) {
        if (!tide_make_batch(t->run, job, b, m->diags)) return false;
        add_mask(t, b);
        return true;
    }
    if (tide_trainer_generates(t->job)) return true; /* prompts, which are texts */
    if (kind->sees_images && tide_has_images(t)) return make_batch_of_images(t, job, b);
    tide_function *make = tide_trainer_function(t, tide_format(m->arena, "%s_batch", kind->name));
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

/* ---- the model's call ---- */

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

tide_value tide_list_of_batch(tide_machine *m, const tide_batch *inputs) {
    tide_value batch = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < inputs->count; i++) tide_list_push(m, batch.list, tide_value_retain(inputs->values[i]));
    return batch;
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
    return loss.kind == TIDE_VALUE_TENSOR ? loss.tensor : NULL;
}

/* trl/trainer/sft_trainer.py and dpo_trainer.py, __init__ and torch_call() of their collators. */
static bool check_beside_images(tide_trainer_run *t) {
    const tide_job *job = t->job;
    bool pads = job->pad_to_multiple_of > 1 && !tide_trainer_generates(job),
         has_prompts = job->trainer != TIDE_trainer_sft || job->trainer_prompt_length;
    const struct {
        bool is_set;
        tide_status status;
        const char *setting, *what;
    } refused[] = {
        {job->packing, TIDE_ERR_CONFLICT, "packing", "TRL: \"Packing is not supported for vision datasets\""},
        {job->trainer_padding_free, TIDE_ERR_CONFLICT, "trainer.padding_free",
         "TRL: \"Padding-free training is yet not supported for vision datasets\""},
        {job->trainer_precompute_ref_log_probs, TIDE_ERR_CONFLICT, "trainer.precompute_ref_log_probs",
         "TRL: \"`precompute_ref_log_probs=True` is not supported for vision datasets\""},
        {pads && has_prompts, TIDE_ERR_CONFLICT, "pad_to_multiple_of",
         "TRL: \"Padding to a multiple of a value is not yet implemented for vision-language modeling and "
         "prompt-completion data\""},
        {tide_job_has_lengths(job), TIDE_ERR_UNSUPPORTED, "lengths",
         "a list of lengths is not described beside images"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].is_set)
            return tide_error(t->run->machine.diags, refused[i].status,
                              tide_format(t->run->machine.arena, "/settings/%s", refused[i].setting), refused[i].what,
                              "leave it out, or give images=0");
    return true;
}

/* Prompts of trainers that generate hold the tokens of their images. */
static bool check_prompts(tide_trainer_run *t) {
    tide_model *model = &t->run->model;
    bool has_size = tide_size_find(model->descriptions, model->scopes[0].description, TIDE_TEXT("media_tokens"));
    int64_t media = has_size ? tide_size_in(model, 0, "media_tokens").integer : 0,
            prompt = tide_rollout_prompt(t->run, t->job);
    if (tide_has_colocated_engine(t->job))
        return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/images",
                          "images that an engine of vLLM on the same GPU sees are not described",
                          "give images=0, or trainer.vllm_mode=server");
    if (t->job->parallel_kind == TIDE_parallel_kind_fsdp1 && t->job->autocast.is_set)
        return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/parallel.kind",
                          "generate() encodes images outside of FSDP1's root, whose weights are not cast there: \"mat1 "
                          "and mat2 must have the same dtype, but got Float and BFloat16\"",
                          "take parallel.kind=fsdp2, or give images=0");
    if (media <= prompt) return true;
    return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/trainer.prompt_length",
                      tide_format(model->m->arena, "%lld tokens do not hold the %lld of a sample's images",
                                  (long long)prompt, (long long)media),
                      "give a larger one, or images=0");
}

/* What the processor makes is passed on by name to _get_per_token_logps_and_entropies(). */
static bool check_scored_inputs(tide_trainer_run *t) {
    static const char *const taken[] = {
        "pixel_values",   "image_grid_thw",    "pixel_attention_mask", "spatial_shapes", "image_sizes",
        "token_type_ids", "mm_token_type_ids", "image_position_ids",   "input_ids",      "attention_mask",
        "labels",         "position_ids",      "rope_deltas"}; /* the last two: of other trainers */
    const tide_model *model = &t->run->model;
    const tide_json *inputs = described_inputs(model);
    for (const tide_json *item = inputs ? inputs->first : NULL; item; item = item->next) {
        bool is_taken = false;
        for (size_t i = 0; i < TIDE_COUNT_OF(taken); i++) is_taken |= strcmp(item->key.at, taken[i]) == 0;
        if (!is_taken)
            return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/trainer",
                              tide_format(model->m->arena,
                                          "TRL: \"_get_per_token_logps_and_entropies() got an unexpected keyword "
                                          "argument '%s'\", which the processor of this model makes of images",
                                          item->key.at),
                              "give images=0, or take trainer=sft");
    }
    return true;
}

/* For models that take other inputs as well, what is not described. */
static bool plays_media(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    const char *trainer = t->job->values[TIDE_SET_trainer];
    bool shows_video = t->job->video.frames > 0;
    if (!tide_has_images(t)) return true;
    bool is_of_factory = tide_trainer_is_of_factory(t->job),
         is_older = tide_trl_builds_logits(t->job) && !(is_of_factory && t->job->trainer == TIDE_trainer_dpo);
    if (t->kind->sees_images && !is_older && !shows_video)
        return check_beside_images(t) &&
               (!tide_trainer_generates(t->job) || (check_prompts(t) && check_scored_inputs(t)));
    return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, shows_video ? "/settings/video" : "/settings/images",
                      tide_format(model->m->arena, "%s that %s of TRL trains with are not described",
                                  shows_video ? "videos" : "images", trainer),
                      "images=0 plays texts alone; trainer=hf plays images, with the model's own loss");
}

/* model.base_model and get_output_embeddings(): the only modules of a causal language model. A reward model has one
 * score per row, and no output embeddings. */
bool tide_find_parts(tide_trainer_run *t) {
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
    if (!plays_media(t)) return false;
    const tide_json *inputs = described_inputs(model);
    bool is_decoder = tide_json_at(inputs, "input_ids") && !tide_json_at(inputs, "decoder_input_ids");
    tide_text path = root->of->output_embeddings;
    uint32_t head = tide_model_find(model, path.length ? path : TIDE_TEXT("lm_head")), base = 0, others = 0;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (model->instances[i].parent != model->root || i == model->root || i == head) continue;
        if (base) others++;
        if (!base) base = i;
    }
    if (!is_decoder || !base || others || !head)
        return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                          tide_format(model->m->arena, "%s of TRL is described for causal language models",
                                      t->job->values[TIDE_SET_trainer]),
                          "use trainer=hf");
    bool is_whole = t->kind->builds_logits || tide_trl_builds_logits(t->job);
    t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = is_whole ? model->root : base};
    t->lm_head = (tide_value){.kind = TIDE_VALUE_MODULE, .module = head};
    return true;
}
