/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/utils/output_capturing.py, capture_outputs(): what output_hidden_states keeps of a decoder. */
#include "lang/interpreter.h"

static tide_value first_output(tide_value made) {
    return made.kind == TIDE_VALUE_LIST && made.list->count ? made.list->items[0] : made;
}

/* The last one is replaced by last_hidden_state once the module that has the layers returns. */
static void end_of_layers(tide_model *model, tide_value made) {
    tide_list *states = model->hidden_states;
    tide_value before = states->items[states->count - 1];
    states->items[states->count - 1] = tide_value_retain(first_output(made));
    tide_value_release(model->m, before);
    model->hidden_states_of = 0;
}

void tide_capture_hidden_states(tide_model *model, uint32_t instance, const tide_value *positional, uint32_t count,
                                tide_value made) {
    tide_list *states = model->hidden_states;
    const tide_instance *of = &model->instances[instance];
    if (!states || tide_is_aborting(model->m)) return;
    if (instance == model->hidden_states_of) end_of_layers(model, made);
    if (!of->of->is_checkpointed) return;
    if (!states->count && count) tide_list_push(model->m, states, tide_value_retain(positional[0]));
    tide_list_push(model->m, states, tide_value_retain(first_output(made)));
    model->hidden_states_of = of->parent;
    model->setting_changes++; /* prevents a memo of what calls the layers */
}

/* capture_hidden_states(true); hidden_states = capture_hidden_states(false): those of the calls in between. */
tide_value tide_builtin_capture_hidden_states(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_model *model = f->model;
    tide_list *captured = model->hidden_states;
    (void)count;
    model->hidden_states = tide_is_true(model->m, a[0]) ? tide_list_new(model->m) : NULL;
    model->hidden_states_of = 0;
    model->setting_changes++;
    return captured ? (tide_value){.kind = TIDE_VALUE_LIST, .list = captured} : tide_none();
}
