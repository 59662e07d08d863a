/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences shared by several ranks, in a trainer: trainer.py, _prepare_context_parallel_inputs(), and accelerate's
 * maybe_context_parallel() around a micro-batch; deepspeed/runtime/sequence_parallel/ulysses_sp.py. */
#include <string.h>

#include "base/units.h"
#include "train/trainer_run.h"

static tide_value *input_named(tide_batch *inputs, const char *name) {
    for (uint32_t i = 0; i < inputs->count + inputs->kept; i++)
        if (strcmp(inputs->names[i], name) == 0 && inputs->values[i].kind == TIDE_VALUE_TENSOR)
            return &inputs->values[i];
    return NULL;
}

static void keep_input(tide_batch *inputs, const char *name, tide_value value) {
    uint32_t at = inputs->count + inputs->kept++;
    inputs->names[at] = name;
    inputs->values[at] = tide_value_retain(value);
}

static void add_inputs(tide_trainer_run *t, tide_batch *inputs) {
    tide_machine *m = &t->run->machine;
    const tide_value *ids = input_named(inputs, "input_ids"), *labels = input_named(inputs, "labels");
    const tide_value given[] = {*ids, labels ? *labels : tide_none()};
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value made = tide_model_run(&t->run->model, tide_trainer_function(t, "context_parallel_inputs"), given, 2);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    if (made.kind == TIDE_VALUE_LIST) {
        keep_input(inputs, "shift_labels", made.list->items[0]);
        keep_input(inputs, "position_ids", made.list->items[1]);
    }
    tide_value_release(m, made);
    m->module = m->statement = 0;
}

static void set_given(tide_trainer_run *t, const char *setting, const tide_value *value) {
    tide_value *given = tide_model_setting(&t->run->model, setting);
    tide_value_release(&t->run->machine, *given);
    *given = value ? tide_value_retain(*value) : tide_none();
}

void tide_trainer_context_begins(tide_trainer_run *t, tide_batch *inputs) {
    static const char *const names_of_buffers[TIDE_CONTEXT_BUFFERS] = {"input_ids", "labels", "shift_labels",
                                                                       "attention_mask", "position_ids"};
    tide_machine *m = &t->run->machine;
    tide_tensor *buffers[TIDE_CONTEXT_BUFFERS];
    tide_value *of[TIDE_CONTEXT_BUFFERS];
    uint32_t count = 0;
    if (!tide_trainer_cuts_sequences(t->job)) return;
    m->module = m->statement = 0;
    if (!input_named(inputs, "input_ids")) {
        tide_fail_setting(m, TIDE_ERR_UNSUPPORTED, "parallel.cp",
                          "the trainer makes positions along input_ids, which this model does not take; use 1");
        return;
    }
    add_inputs(t, inputs);
    for (size_t i = 0; i < TIDE_CONTEXT_BUFFERS; i++) {
        of[count] = input_named(inputs, names_of_buffers[i]);
        if (of[count]) buffers[count] = of[count]->tensor, count++;
    }
    tide_context_parallel_begins(m, &t->context, t->job->parallel_cp, buffers, count);
    for (uint32_t i = 0; i < count; i++) of[i]->tensor = buffers[i];
    set_given(t, "given_shift_labels", input_named(inputs, "shift_labels"));
    set_given(t, "given_positions", input_named(inputs, "position_ids"));
}

void tide_trainer_context_ends(tide_trainer_run *t) {
    if (!tide_trainer_cuts_sequences(t->job)) return;
    set_given(t, "given_shift_labels", NULL);
    set_given(t, "given_positions", NULL);
    tide_context_parallel_ends(&t->run->machine, &t->context);
}

void tide_ulysses_next(tide_trainer_run *t, uint64_t index) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    if (index % (uint64_t)t->job->parallel_sequence_parallel_size != 0) return;
    m->module = m->statement = 0;
    tide_value_release(m, t->whole_batch);
    m->state.factor = TIDE_FACTOR_INPUT;
    t->whole_batch = tide_model_run(model, tide_trainer_function(t, "ulysses_batch"), NULL, 0);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_value_release(m, tide_model_run(model, tide_trainer_function(t, "ulysses_refill"), &t->whole_batch, 1));
    m->module = m->statement = 0;
}
