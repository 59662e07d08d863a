/* SPDX-License-Identifier: Apache-2.0 */
/* Calls under a checkpoint, and what the checkpoint keeps in order to repeat them. */
#include "lang/interpreter.h"
#include "tensor/checkpoint.h"

/* What a trainer passes as keywords, which layers get too: given_NAME. */
static const char *const given_settings[] = {"given_positions", "given_shift_labels", "given_loss_weights"};
enum { TIDE_GIVEN = sizeof given_settings / sizeof *given_settings };

/* What a checkpoint calls again: a module with its keyword arguments. */
typedef struct tide_closure {
    tide_model *model;
    uint32_t instance;
    tide_function *method;
    uint32_t named_count;
    tide_text *keywords;
    tide_value *named;
    tide_value given[TIDE_GIVEN]; /* keyword arguments that are settings here: see keep_given() */
} tide_closure;

/* They are released by the time the layers run again. */
static void keep_given(tide_closure *c) {
    if (!c->model->checkpoints_hold_given) return;
    c->model->setting_changes++; /* prevents a memo, which could not capture them */
    for (int i = 0; i < TIDE_GIVEN; i++)
        c->given[i] = tide_value_retain(*tide_model_setting(c->model, given_settings[i]));
}

tide_value tide_call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count) {
    tide_closure *c = function;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) positional[i] = tide_value_retain(inputs[i]);
    for (uint32_t i = 0; i < c->named_count; i++) named[i] = tide_value_retain(c->named[i]);
    uint32_t module = m->module;
    m->module = c->instance;
    uint32_t scope = c->model->instances[c->instance].scope;
    const tide_call_arguments call = {c->model, c->method,   c->instance, scope,         positional,
                                      named,    c->keywords, count,       c->named_count};
    tide_value made = tide_call_by_hook(&call);
    m->module = module;
    return made;
}

void tide_closure_free(tide_machine *m, void *function) {
    tide_closure *c = function;
    for (uint32_t i = 0; i < c->named_count; i++) tide_value_release(m, c->named[i]);
    for (int i = 0; i < TIDE_GIVEN; i++) tide_value_release(m, c->given[i]);
    tide_pool_free(m, c->named, (c->named_count + 1) * sizeof *c->named);
    tide_pool_free(m, c->keywords, (c->named_count + 1) * sizeof *c->keywords);
    tide_pool_free(m, c, sizeof *c);
}

tide_value tide_call_checkpointed(tide_model *model, uint32_t instance, tide_function *method,
                                  const tide_value *positional, uint32_t count, const tide_text *keywords,
                                  const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    tide_closure *c = tide_pool_alloc(m, sizeof *c);
    *c = (tide_closure){.model = model, .instance = instance, .method = method, .named_count = named_count};
    c->keywords = tide_pool_alloc(m, (named_count + 1) * sizeof *c->keywords);
    c->named = tide_pool_alloc(m, (named_count + 1) * sizeof *c->named);
    for (uint32_t i = 0; i < named_count; i++) {
        c->keywords[i] = keywords[i];
        c->named[i] = tide_value_retain(named[i]);
    }
    keep_given(c);
    tide_value inputs[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) inputs[i] = positional[i];
    return tide_checkpoint_call(m, model->state.is_reentrant && !model->instances[instance].of->is_never_reentrant, c,
                                inputs, count);
}

/* The closure of a method of this module, or else of a function. */
static tide_closure *closure_named(tide_frame *f, tide_text name) {
    tide_model *model = f->model;
    const tide_class *of = model->instances[f->instance].of;
    tide_function *method = of ? tide_method_find(of, name) : NULL;
    if (!method) method = tide_function_find(model->descriptions, model->scopes[f->scope].description, name);
    if (!method) {
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "a checkpoint of '%s', which is no function",
                  tide_terminated(model->m, name));
        return NULL;
    }
    tide_closure *c = tide_pool_alloc(model->m, sizeof *c);
    *c = (tide_closure){.model = model, .instance = f->instance, .method = method};
    c->keywords = tide_pool_alloc(model->m, sizeof *c->keywords);
    c->named = tide_pool_alloc(model->m, sizeof *c->named);
    return c;
}

/* The arguments from `first` on. */
static tide_closure *begin_checkpoint(tide_frame *f, const tide_value *a, uint32_t count, uint32_t first,
                                      tide_value *inputs) {
    tide_machine *m = f->model->m;
    bool is_right = a[0].kind == TIDE_VALUE_TEXT && (first == 1 || a[1].kind == TIDE_VALUE_INT);
    tide_closure *c = is_right ? closure_named(f, a[0].text) : NULL;
    if (!is_right) tide_fail(m, TIDE_ERR_DESCRIPTION, "a checkpoint wants a function's name");
    if (!c) return NULL;
    f->model->setting_changes++; /* prevents a memo, which cannot capture frames */
    for (uint32_t i = first; i < count; i++) inputs[i - first] = a[i];
    return c;
}

/* checkpoint('function', parts, inputs...): Megatron-Core's. */
tide_value tide_builtin_checkpoint(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_value inputs[ARGUMENT_LIMIT];
    tide_closure *c = begin_checkpoint(f, a, count, 2, inputs);
    return c ? tide_checkpoint_distributed(f->model->m, a[1].integer, c, inputs, count - 2) : tide_none();
}

/* checkpoint_without_output('function', inputs...), whose output discard_output() releases. */
tide_value tide_builtin_checkpoint_without_output(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_value inputs[ARGUMENT_LIMIT];
    tide_closure *c = begin_checkpoint(f, a, count, 1, inputs);
    return c ? tide_checkpoint_without_output(f->model->m, c, inputs, count - 1) : tide_none();
}

/* discard_output(output, hook): until the gradient of `hook` arrives. */
tide_value tide_builtin_discard_output(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    if (a[0].kind == TIDE_VALUE_TENSOR && a[1].kind == TIDE_VALUE_TENSOR)
        tide_checkpoint_discard(f->model->m, a[0].tensor, a[1].tensor);
    else
        tide_fail(f->model->m, TIDE_ERR_DESCRIPTION, "discard_output(output, hook) wants two tensors");
    return tide_none();
}
