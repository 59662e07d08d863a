/* SPDX-License-Identifier: Apache-2.0 */
/* torch.autograd.Function: apply(). */
#include "lang/interpreter.h"

/* apply('Name', inputs...) calls Name_forward(ctx, inputs...) without gradients; the tensor or list of tensors that it
 * returns are the node's outputs. Backward calls Name_backward(ctx, grads..., saved tensors...), which returns the
 * gradient of the first input, or a list with one for each. A list as the last argument counts as one input per tensor.
 * Anything else on ctx lives as long as the node. */
enum { SAVED_LIMIT = 16, FUNCTION_OUTPUT_LIMIT = 4, INPUT_LIMIT = 1024 };

static void applied_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_applied *f = (tide_applied *)node->held;
    tide_value arguments[1 + FUNCTION_OUTPUT_LIMIT + SAVED_LIMIT] = {tide_value_retain(f->context)};
    uint32_t count = 1;
    /* python_function.cpp: PyNode::apply materializes undefined gradients as zeros */
    for (unsigned i = 0; i < node->output_count; i++) {
        if (!grads[i] && !node->of.applied.skips_zeros)
            grads[i] = tide_empty(m, node->outputs[i].shape, (tide_dtype)node->outputs[i].dtype);
        arguments[count++] = grads[i] ? tide_of_tensor(tide_retain(grads[i])) : tide_none();
    }
    for (int i = 0; i < node->saved_count; i++) {
        bool is_saved = node->saved[i].tensor || node->saved[i].packed_by;
        arguments[count++] = is_saved ? tide_of_tensor(tide_saved_at(m, node, i)) : tide_none();
    }
    const tide_call_arguments call = {.model = m->interpreter,
                                      .function = f->backward,
                                      .instance = f->instance,
                                      .scope = f->scope,
                                      .positional = arguments,
                                      .count = count};
    tide_value made = tide_call_function(&call);
    for (unsigned i = 0; i < node->edge_count; i++) {
        tide_value v = made.kind == TIDE_VALUE_LIST ? (i < made.list->count ? made.list->items[i] : tide_none())
                       : i                          ? tide_none()
                                                    : made;
        if (v.kind == TIDE_VALUE_TENSOR && tide_needs_input_grad(node, (int)i)) results[i] = tide_retain(v.tensor);
    }
    tide_value_release(m, made);
    for (unsigned i = 0; i < node->output_count; i++)
        tide_release_at(m, &grads[i]); /* python_function.cpp: PyNode::apply passes them on; those of other nodes live
                                          until their results are validated */
}

static void applied_drop(tide_machine *m, tide_held *held) {
    tide_applied *f = (tide_applied *)held;
    tide_value_release(m, f->context);
    tide_pool_free(m, f, sizeof *f);
}

static const tide_backward applied_backward = {"FunctionBackward", applied_run};

tide_applied *tide_applied_of(const tide_node *node) {
    return node->backward == &applied_backward ? (tide_applied *)node->held : NULL;
}

void tide_apply_again(tide_machine *m, tide_node *node, tide_applied held) {
    tide_applied *kept = tide_pool_alloc(m, sizeof *kept);
    *kept = held;
    node->held = &kept->held;
}

static tide_function *half_of(tide_frame *f, tide_text name, const char *half) {
    tide_model *model = f->model;
    const char *text = tide_format(model->m->arena, "%.*s_%s", (int)name.length, name.at, half);
    return tide_function_find(model->descriptions, model->scopes[f->scope].description, tide_text_of(text));
}

/* custom_function.cpp: _process_backward_mode_ad: an input that is returned becomes a view of itself. */
static void give_output(tide_machine *m, tide_node *node, tide_value *output, tide_tensor *const *inputs,
                        uint32_t count) {
    if (output->kind != TIDE_VALUE_TENSOR) return;
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] != output->tensor) continue;
        tide_tensor *view = tide_view_as(m, output->tensor, output->tensor->layout);
        tide_release(m, output->tensor);
        output->tensor = view;
        break;
    }
    if (tide_dtype_is_float((tide_dtype)output->tensor->dtype)) tide_set_grad_fn(m, node, output->tensor);
}

/* python_function.cpp: _save_variables, after forward returned. An output is saved without its node, to avoid a
 * reference cycle. */
static void save_variables(tide_machine *m, tide_node *node) {
    for (unsigned i = 0; i < node->saved_count && !tide_is_aborting(m); i++) {
        tide_tensor *t = node->saved[i].tensor;
        if (!t || (!m->state.saved_tensors_hooks && t->node != node)) continue;
        node->saved[i].tensor = NULL;
        if (m->state.saved_tensors_hooks)
            tide_slot_save(m, &node->saved[i], t);
        else
            node->saved[i].tensor = tide_alias(m, t);
        tide_release(m, t);
    }
}

/* The inputs after the name, with the items of a final list; returns their number, of which up to `limit` are stored.
 */
static uint32_t inputs_of(const tide_value *a, uint32_t count, tide_tensor **inputs, uint32_t limit) {
    tide_list *last = count > 1 && a[count - 1].kind == TIDE_VALUE_LIST ? a[count - 1].list : NULL;
    uint32_t before = last ? count - 2 : count - 1, all = before + (last ? last->count : 0);
    if (last) last->is_read = true;
    for (uint32_t i = 0; i < all && i < limit; i++) {
        const tide_value *v = i < before ? &a[i + 1] : &last->items[i - before];
        inputs[i] = v->kind == TIDE_VALUE_TENSOR ? v->tensor : NULL;
    }
    return all;
}

tide_value tide_apply(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    tide_text name = count && a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
    tide_function *forward = half_of(f, name, "forward"), *backward = half_of(f, name, "backward");
    if (!forward || !backward)
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "there are no functions %s_forward and _backward",
                            tide_terminated(m, name));
    tide_tensor *inputs[INPUT_LIMIT];
    uint32_t input_count = inputs_of(a, count, inputs, INPUT_LIMIT);
    if (input_count > INPUT_LIMIT)
        return tide_nothing(m, TIDE_ERR_LIMIT, "%s has more inputs than the 1024 that are followed",
                            tide_terminated(m, name));
    tide_value arguments[ARGUMENT_LIMIT] = {{.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
    for (uint32_t i = 1; i < count; i++) arguments[i] = tide_value_retain(a[i]);
    const int edges = (int)input_count;
    tide_node *node = tide_node_with(m, &applied_backward, inputs, edges, FUNCTION_OUTPUT_LIMIT, SAVED_LIMIT),
              *outer = model->state.applied;
    tide_value context = tide_value_retain(arguments[0]);
    bool grad_enabled = m->state.grad_enabled;
    tide_saved_tensors_hooks *hooks = m->state.saved_tensors_hooks, *around = m->hooks_around_function;
    m->state.grad_enabled = false;
    m->state.saved_tensors_hooks = NULL;
    m->hooks_around_function = hooks ? hooks : around;
    model->state.applied = node;
    const tide_call_arguments call = {.model = model,
                                      .function = forward,
                                      .instance = f->instance,
                                      .scope = f->scope,
                                      .positional = arguments,
                                      .count = count};
    tide_value made = tide_call_function(&call);
    model->state.applied = outer;
    m->state.grad_enabled = grad_enabled;
    m->state.saved_tensors_hooks = hooks;
    m->hooks_around_function = around;
    tide_value *outputs = made.kind == TIDE_VALUE_LIST ? made.list->items : &made;
    uint32_t output_count = made.kind == TIDE_VALUE_LIST ? made.list->count : 1;
    if (node) tide_apply_again(m, node, (tide_applied){{NULL, applied_drop}, backward, f->instance, f->scope, context});
    for (uint32_t i = 0; i < output_count; i++) give_output(m, node, &outputs[i], inputs, input_count);
    if (node) save_variables(m, node);
    if (!node) tide_value_release(m, context);
    if (node && !node->output_count) tide_node_release(m, node);
    return made;
}
