/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/trainer_seq2seq.py, prediction_step: generate() of an encoder-decoder, greedy (_sample) or with beams
 * (_beam_search), both in library/generation.json. No end token is ever generated: every prediction has the maximum
 * length. */
#include "train/predictions.h"

#include <string.h>

#include "base/units.h"
#include "train/growing.h"

enum { DEFAULT_MAX_LENGTH = 20 }; /* GenerationConfig._get_default_generation_params: shorter predictions are padded */

bool tide_check_predictions(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    if (!t->job->trainer_predict_with_generate) return true;
    tide_report(model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/trainer.predict_with_generate",
                "predictions have the maximum length; other options of a generation_config (min_length, "
                "no_repeat_ngram_size) are left out",
                NULL);
    return tide_method_find(model->instances[model->root].of, TIDE_TEXT("encode")) ||
           tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer.predict_with_generate",
                      "is described for models with an encoder, such as T5 and BART",
                      "leave it out: then predictions are logits");
}

static tide_value batch_value(const tide_batch *inputs, const char *name) {
    for (uint32_t i = 0; i < inputs->count; i++)
        if (strcmp(inputs->names[i], name) == 0) return inputs->values[i];
    return tide_none();
}

/* Keys and values of generated tokens and of the encoder's output. */
static void mark_generated(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) tide_set_factor(m, v.tensor, TIDE_FACTOR_KV_CACHE);
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++) mark_generated(m, v.list->items[i]);
}

typedef struct generated {
    tide_trainer_run *t;
    tide_function *token;
    tide_value state, past; /* of the loop, see library/generation.json; keys and values */
} generated;

static bool generate_next(void *user, int64_t i) {
    generated *g = user;
    tide_model *model = &g->t->run->model;
    const tide_value arguments[] = {{.kind = TIDE_VALUE_MODULE, .module = model->root},
                                    g->state,
                                    g->past,
                                    tide_of_bool(g->t->job->adapter == TIDE_adapter_none),
                                    tide_of_int(g->t->job->trainer_generation_num_beams)};
    tide_model_setting(model, "past_length")->integer = i;
    uint32_t count = g->t->job->trainer_generation_num_beams > 1 ? 5 : 4;
    tide_value_release(model->m, tide_model_run(model, g->token, arguments, count));
    mark_generated(model->m, g->past);
    return !model->m->has_failed;
}

static uint32_t values_of_generated(void *user, tide_value *values) {
    generated *g = user;
    values[0] = g->state;
    values[1] = g->past;
    values[2] = *tide_model_setting(&g->t->run->model, "past_key_values");
    return 3;
}

static void exchange_generated(void *user, const tide_value *values) {
    generated *g = user;
    g->state = values[0];
    g->past = values[1];
    *tide_model_setting(&g->t->run->model, "past_key_values") = values[2];
}

/* The first token differs: it also computes the encoder's keys and values. */
static void generate_tokens(generated *g, int64_t tokens) {
    tide_run *run = g->t->run;
    tide_value *kept = tide_model_setting(&run->model, "past_key_values");
    const tide_growing_loop loop = {run, g, generate_next, values_of_generated, exchange_generated};
    *kept = tide_value_retain(g->past);
    tide_play_growing(&loop, tokens);
    tide_model_setting(&run->model, "past_length")->integer = 0;
    tide_value_release(&run->machine, *kept);
    *kept = tide_none();
    run->model.setting_changes++;
}

static tide_value padded_to_default(tide_trainer_run *t, const char *name, tide_value of, tide_value beams) {
    tide_function *function = tide_trainer_function(t, name);
    const tide_value arguments[] = {of, beams, tide_of_int(DEFAULT_MAX_LENGTH)},
                     of_labels[] = {of, tide_of_int(DEFAULT_MAX_LENGTH)};
    bool is_of_labels = beams.kind == TIDE_VALUE_NONE;
    if (!function) return tide_none();
    return tide_model_run(&t->run->model, function, is_of_labels ? of_labels : arguments, is_of_labels ? 2 : 3);
}

tide_value tide_pad_labels(tide_trainer_run *t, tide_value labels) {
    if (labels.kind != TIDE_VALUE_TENSOR) return labels;
    tide_value made = padded_to_default(t, "padded_labels", labels, tide_none());
    tide_value_release(&t->run->machine, labels);
    return made;
}

tide_value tide_generate_predictions(tide_trainer_run *t, const tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    int64_t length = t->job->trainer_generation_max_length;
    tide_value beams = tide_of_int(t->job->trainer_generation_num_beams), tokens = tide_none();
    const tide_value arguments[] = {{.kind = TIDE_VALUE_MODULE, .module = model->root},
                                    batch_value(inputs, "input_ids"),
                                    batch_value(inputs, "attention_mask"),
                                    beams,
                                    tide_of_int(length)};
    tide_function *begin = tide_trainer_function(t, "evaluated_begins"),
                  *token = tide_trainer_function(t, beams.integer > 1 ? "beam_token" : "greedy_token");
    if (!begin || !token) return tide_none();
    tide_value *autocast = tide_model_setting(model, "autocast"), outside = *autocast;
    if (t->job->adapter != TIDE_adapter_none) *autocast = tide_of_bool(false);
    tide_value made = tide_model_run(model, begin, arguments, TIDE_COUNT_OF(arguments));
    if (made.kind == TIDE_VALUE_LIST && !m->has_failed) {
        generated g = {t, token, made.list->items[0], {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
        generate_tokens(&g, length - 1);
        if (!m->has_failed) tokens = padded_to_default(t, "evaluated_ends", g.state, beams);
        tide_value_release(m, g.past);
    }
    *autocast = outside;
    tide_value_release(m, made);
    m->module = m->statement = 0;
    return tokens;
}
