/* SPDX-License-Identifier: Apache-2.0 */
/* The usual greedy loop around a causal language model, call by call; transformers: generation/utils.py. */
#include "train/growing.h"

#include "memo/memo.h"

#include "base/units.h"

#include <string.h>

typedef struct generation {
    tide_run *run;
    const tide_job *job;
    const char *token_name;
    tide_batch batch; /* the loop's dictionary; owns its values */
    tide_value output;
    tide_tensor *logits, *token;
    tide_value past; /* the keys and values of the tokens, and other state */
    int64_t prompt;  /* tokens */
} generation;

/* Inputs of the first pass only. */
static bool is_of_prompt(const char *name) {
    static const char *const names[] = {"pixel_values",      "image_grid_thw",    "image_sizes",
                                        "mm_token_type_ids", "token_type_ids",    "pixel_attention_mask",
                                        "aspect_ratio_ids",  "aspect_ratio_mask", "position_ids"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* The first input of a decoder whose encoder has read the prompt: the description's decoder_start(), or one token. */
static tide_tensor *decoder_start(generation *g) {
    tide_machine *m = &g->run->machine;
    tide_value start = tide_model_method(&g->run->model, TIDE_TEXT("decoder_start"), NULL, NULL, 0);
    if (start.kind == TIDE_VALUE_TENSOR && start.tensor->shape->dims == 2) return start.tensor;
    if (start.kind != TIDE_VALUE_NONE)
        tide_fail(m, TIDE_ERR_DESCRIPTION, "decoder_start() returned no ids of (batch, tokens)");
    tide_value_release(m, start);
    tide_shape one = {.dim = {{g->job->batch, tide_symbol_name(m, TIDE_TEXT("batch"))}, {1, 0}}, .dims = 2};
    m->op = "zeros";
    return tide_empty(m, &one, TIDE_INT64);
}

/* Releases the prompt, which the encoder has read. Returns the number of the decoder's first tokens. */
static int64_t take_encoded(generation *g, tide_value encoded) {
    tide_machine *m = &g->run->machine;
    tide_batch batch = {.count = 0};
    for (uint32_t i = 0; i < g->batch.count; i++) {
        if (strcmp(g->batch.names[i], "attention_mask") == 0) {
            batch.names[batch.count] = g->batch.names[i];
            batch.values[batch.count++] = tide_value_retain(g->batch.values[i]);
        }
    }
    batch.names[batch.count] = "encoder_outputs";
    batch.values[batch.count++] = encoded;
    tide_tensor *start = decoder_start(g);
    batch.names[batch.count] = g->token_name = "decoder_input_ids";
    batch.values[batch.count++] = tide_of_tensor(start);
    for (uint32_t i = 0; i < g->batch.count; i++) tide_value_release(m, g->batch.values[i]);
    g->batch = batch;
    return start->shape->dim[1].size;
}

/* batch["input_ids"] = token */
static void feed_token(generation *g) {
    tide_machine *m = &g->run->machine;
    for (uint32_t i = 0; i < g->batch.count; i++) {
        if (is_of_prompt(g->batch.names[i])) {
            tide_value_release(m, g->batch.values[i]);
            g->batch.count--;
            g->batch.names[i] = g->batch.names[g->batch.count];
            g->batch.values[i--] = g->batch.values[g->batch.count];
        } else if (strcmp(g->batch.names[i], g->token_name) == 0) {
            tide_value_release(m, g->batch.values[i]);
            g->batch.values[i] = tide_of_tensor(tide_retain(g->token));
        }
    }
}

static tide_tensor *logits_of(tide_value output) {
    uint32_t count = output.kind == TIDE_VALUE_LIST ? output.list->count : 0;
    for (uint32_t i = 0; i < count; i++)
        if (output.list->items[i].kind == TIDE_VALUE_TENSOR) return output.list->items[i].tensor;
    return output.kind == TIDE_VALUE_TENSOR ? output.tensor : NULL;
}

/* out = model(**batch): releases the previous value of the name afterwards. */
static bool run_model(generation *g) {
    tide_machine *m = &g->run->machine;
    tide_value output = tide_model_forward(&g->run->model, g->batch.names, g->batch.values, g->batch.count),
               old = g->output;
    m->module = m->statement = 0;
    g->output = output;
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, "del outputs");
    tide_value_release(m, old);
    tide_freeing_ends(m, before);
    return !m->has_failed;
}

/* logits[:, -1, :].to(copy=True, dtype=float32), and its argmax. */
static void choose_token(generation *g) {
    tide_machine *m = &g->run->machine;
    const tide_tensor *all = logits_of(g->output);
    if (!all || all->shape->dims != 3) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "forward() returned no logits of (batch, tokens, vocabulary)");
        return;
    }
    tide_shape last = {.dim = {all->shape->dim[0], all->shape->dim[2]}, .dims = 2};
    m->op = "logits";
    tide_tensor *logits = tide_empty(m, &last, TIDE_FP32), *old = g->logits;
    g->logits = logits;
    tide_del(m, "del logits", old);
    m->op = "argmax";
    tide_value arguments[3] = {tide_of_tensor(logits), tide_of_int(-1), tide_of_bool(true)};
    tide_value token = tide_op_find(TIDE_TEXT("argmax"))->run(m, arguments);
    old = g->token;
    g->token = token.tensor;
    tide_del(m, "del token", old);
}

static void mark_cache(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) tide_set_factor(m, v.tensor, TIDE_FACTOR_KV_CACHE);
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++) mark_cache(m, v.list->items[i]);
}

/* Token i after the prompt. */
static bool next_token(void *user, int64_t i) {
    generation *g = user;
    feed_token(g);
    tide_model_setting(&g->run->model, "past_length")->integer = g->prompt + i;
    if (!run_model(g)) return false;
    choose_token(g);
    mark_cache(&g->run->machine, g->past);
    return !g->run->machine.has_failed;
}

enum { OF_GENERATION = 5 }; /* values besides the batch */

static uint32_t values_between(void *user, tide_value *values) {
    generation *g = user;
    const tide_value own[OF_GENERATION] = {g->past, *tide_model_setting(&g->run->model, "past_key_values"), g->output,
                                           tide_of_tensor(g->logits), tide_of_tensor(g->token)};
    memcpy(values, own, sizeof own);
    memcpy(values + OF_GENERATION, g->batch.values, g->batch.count * sizeof *values);
    return OF_GENERATION + g->batch.count;
}

static void exchange_values(void *user, const tide_value *values) {
    generation *g = user;
    g->past = values[0];
    *tide_model_setting(&g->run->model, "past_key_values") = values[1];
    g->output = values[2];
    g->logits = values[3].tensor;
    g->token = values[4].tensor;
    memcpy(g->batch.values, values + OF_GENERATION, g->batch.count * sizeof *values);
}

static void decode(generation *g, unsigned step) {
    tide_machine *m = &g->run->machine;
    const tide_growing_loop loop = {g->run, g, next_token, values_between, exchange_values};
    uint32_t before = m->timeline.repetition_count;
    tide_play_growing(&loop, g->job->decode);
    if (step > 1 || m->timeline.repetition_count == before) return;
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/decode",
                "tokens that differ only in the length of the cache are shown once, by the last of them", NULL);
}

static void greedy(generation *g, unsigned step, const tide_batch *batch) {
    tide_machine *m = &g->run->machine;
    tide_model *model = &g->run->model;
    bool has_generate = !g->run->is_base_model && !model->instances[model->root].of->never_generates,
         generates = has_generate && g->job->cache != TIDE_cache_none;
    int64_t prompt = tide_model_setting(model, "seq")->integer;
    g->past = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    g->batch = *batch;
    for (uint32_t i = 0; i < batch->count; i++) tide_value_retain(batch->values[i]);
    g->token_name = "input_ids";
    if (!generates)
        *tide_model_setting(model, "cache") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = TIDE_TEXT("dynamic")};
    if (generates && tide_method_find(model->instances[model->root].of, TIDE_TEXT("encode"))) {
        prompt = take_encoded(
            g, tide_model_method(model, TIDE_TEXT("encode"), g->batch.names, g->batch.values, g->batch.count));
        *tide_model_setting(model, "cache") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = TIDE_TEXT("dynamic")};
    }
    tide_value *kept = tide_model_setting(model, "past_key_values"); /* the model may replace it */
    if (generates) *kept = tide_value_retain(g->past);
    tide_value *length = tide_model_setting(model, "past_length");
    length->integer = 0;
    run_model(g);
    generates = generates && g->past.list->count && !m->has_failed;
    if (generates) {
        mark_cache(m, g->past);
        choose_token(g);
    }
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_PREFILL);
    g->prompt = prompt;
    if (generates) decode(g, step);
    g->run->has_decoded = generates;
    if (generates) tide_timeline_mark(&m->timeline, step, TIDE_PHASE_DECODE);
    tide_value_release(m, *kept);
    *kept = tide_none();
    for (uint32_t i = 0; i < g->batch.count; i++) tide_value_release(m, g->batch.values[i]);
    tide_value_release(m, g->output);
    tide_value_release(m, g->past);
    tide_release(m, g->logits);
    tide_release(m, g->token);
}

/* Whether the remaining steps do what this one did: it left nothing behind, and the model unchanged. */
static bool repeats(const tide_run *run, tide_timeline_place from, uint64_t key) {
    const tide_timeline *t = &run->machine.timeline;
    return !run->plays_all && !t->repetition_count && t->event_count - from.event > TIDE_KEPT_EVENTS &&
           tide_model_key(&run->model) == key && tide_timeline_is_closed(t, from);
}

bool tide_infer(tide_run *run, const tide_job *job, const tide_batch *batch) {
    tide_machine *m = &run->machine;
    m->state.grad_enabled = false;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) run->model.parameters[i].tensor->requires_grad = false;
    run->trainable = 0;
    for (unsigned step = 1; step <= (unsigned)job->steps && !m->has_failed; step++) {
        generation g = {.run = run, .job = job};
        tide_timeline_place from = tide_timeline_here(&m->timeline);
        tide_model_setting(&run->model, "past_length")->integer = 0;
        uint64_t key = tide_model_key(&run->model);
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_LOAD);
        if (job->autocast.is_set) tide_autocast_begin(m, job->autocast.dtype);
        greedy(&g, step, batch);
        if (job->autocast.is_set) tide_autocast_end(m);
        tide_timeline_mark(&m->timeline, step, TIDE_PHASE_END);
        tide_model_setting(&run->model, "past_length")->integer = 0;
        unsigned left = (unsigned)job->steps - step;
        if (!left || m->has_failed || !repeats(run, from, key)) continue;
        tide_repeat_step(run, from, step, left);
        break;
    }
    return !m->has_failed;
}
