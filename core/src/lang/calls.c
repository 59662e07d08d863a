/* Calls: of operations, functions, autograd functions and modules. */
#include "lang/interpreter.h"

#include <string.h>

/* ---- calls of operations ---- */

tide_value tide_run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count) {
    if (tide_is_aborting(m)) return tide_none();
    if (++m->op_count > m->op_limit)
        return tide_nothing(m, TIDE_ERR_LIMIT, "more operations than tidemark plays for one job%s", "");
    m->op = op->name;
    if (op->cast == TIDE_CAST_NONE || !m->state.autocast_enabled) return op->run(m, a);
    tide_value cast[12];
    memcpy(cast, a, count * sizeof *a);
    for (uint32_t i = count; i-- > 0;) { /* C++ evaluates arguments from the right; the caller holds the uncast ones */
        if (a[i].kind != TIDE_VALUE_TENSOR) continue;
        cast[i].tensor =
            op->cast == TIDE_CAST_LOWER ? tide_autocast_lower(m, a[i].tensor) : tide_autocast_fp32(m, a[i].tensor);
    }
    bool enabled = m->state.autocast_enabled;
    m->state.autocast_enabled = false;
    tide_value made = op->run(m, cast);
    m->state.autocast_enabled = enabled;
    for (uint32_t i = 0; i < count; i++)
        if (a[i].kind == TIDE_VALUE_TENSOR) tide_release(m, cast[i].tensor);
    return made;
}

tide_value tide_call_operation(tide_frame *f, tide_expr *e, const tide_op *op, const tide_value *self) {
    tide_machine *m = f->model->m;
    const tide_signature *s = &((tide_bound_call *)(void *)e->b)->s;
    tide_value a[12];
    bool given[12] = {false};
    memcpy(a, s->defaults, s->count * sizeof *a);
    if (self) {
        a[0] = tide_value_retain(*self);
        given[0] = true;
    }
    if (s->variadic >= 0) {
        a[s->variadic] = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        given[s->variadic] = true;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        tide_value v = tide_eval(f, e->items[i]);
        tide_value_is_read(v);
        if ((int32_t)e->order[i] == s->variadic) {
            tide_list_push(m, a[s->variadic].list, v);
        } else {
            if (given[e->order[i]]) tide_value_release(m, a[e->order[i]]);
            a[e->order[i]] = v;
            given[e->order[i]] = true;
        }
    }
    tide_value made = tide_none();
    for (uint32_t i = 0; i < s->count && !tide_is_aborting(m); i++)
        if (!given[i] && !s->has_default[i])
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s lacks an argument (%s)", op->name, op->signature);
    if (!tide_is_aborting(m)) made = tide_run_operation(m, op, a, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        if (given[i]) tide_value_release(m, a[i]);
    return made;
}

/* An operator of the language on tensors. */
tide_value tide_operate(tide_frame *f, const char *name, tide_value a, tide_value b) {
    tide_machine *m = f->model->m;
    const tide_op *op = tide_op_find(tide_text_of(name));
    tide_value both[2] = {a, b};
    return tide_run_operation(m, op, both, 2);
}

/* Runs a bound function; takes the arguments over. */
static tide_value run_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                               tide_value *arguments, uint32_t count) {
    tide_machine *m = model->m;
    tide_value result = tide_none();
    if (model->depth >= CALL_DEPTH) tide_fail(m, TIDE_ERR_LIMIT, "calls nested deeper than %d", CALL_DEPTH);
    if (!tide_is_aborting(m)) tide_bind_function(model, function, model->scopes[scope].description);
    uint32_t slots = function->local_count > count ? function->local_count : count;
    tide_value *locals = tide_pool_alloc(m, (slots + 1) * sizeof *locals);
    for (uint32_t i = 0; i < count; i++) locals[i] = arguments[i];
    tide_frame f = {model, instance, scope, function, locals};
    model->depth++;
    if (!tide_is_aborting(m)) tide_run_block(&f, function->body, &result);
    model->depth--;
    for (uint32_t i = 0; i < slots; i++) tide_value_release(m, locals[i]);
    tide_pool_free(m, locals, (slots + 1) * sizeof *locals);
    return result;
}

/* Arranges given arguments by a function's parameters; takes them over. */
bool tide_arrange(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                  const tide_value *positional, uint32_t count, const tide_text *keywords, const tide_value *named,
                  uint32_t named_count, tide_value *arranged) {
    tide_machine *m = model->m;
    uint64_t given = 0; /* a bit for each parameter */
    bool ok = true;
    if (!tide_bind_function(model, function, model->scopes[scope].description)) ok = false;
    for (uint32_t i = 0; i < count; i++) {
        if (i < function->parameter_count) {
            arranged[i] = positional[i];
            given |= UINT64_C(1) << i;
        } else {
            tide_value_release(m, positional[i]);
            if (ok)
                tide_fail(m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments", tide_terminated(m, function->name),
                          function->parameter_count);
            ok = false;
        }
    }
    for (uint32_t i = 0; i < named_count; i++) {
        uint32_t at = 0;
        while (at < function->parameter_count && !tide_text_equal(function->parameters[at].name, keywords[i])) at++;
        if (at == function->parameter_count || given >> at & 1) {
            tide_value_release(m, named[i]);
            if (ok)
                tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no free parameter '%s'", tide_terminated(m, function->name),
                          tide_terminated(m, keywords[i]));
            ok = false;
            continue;
        }
        arranged[at] = named[i];
        given |= UINT64_C(1) << at;
    }
    tide_frame f = {model, instance, scope, function, arranged};
    for (uint32_t i = 0; i < function->parameter_count; i++) {
        if (given >> i & 1) continue;
        arranged[i] = tide_none();
        if (function->parameters[i].otherwise)
            arranged[i] = tide_eval(&f, function->parameters[i].otherwise);
        else if (ok && !tide_is_aborting(m))
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s lacks '%s'", tide_terminated(m, function->name),
                      tide_terminated(m, function->parameters[i].name));
    }
    return ok && !tide_is_aborting(m);
}

tide_value tide_call_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                              const tide_value *positional, uint32_t count, const tide_text *keywords,
                              const tide_value *named, uint32_t named_count) {
    tide_value arranged[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < function->parameter_count; i++) arranged[i] = tide_none();
    if (tide_arrange(model, function, instance, scope, positional, count, keywords, named, named_count, arranged))
        return run_function(model, function, instance, scope, arranged, function->parameter_count);
    for (uint32_t i = 0; i < function->parameter_count; i++) tide_value_release(model->m, arranged[i]);
    return tide_none();
}
/* ---- torch.autograd.Function ---- */

/* apply('Name', inputs...) calls Name_forward(ctx, inputs...) without gradients; what it returns, a tensor or a list of
 * them, are the node's outputs. Backward calls Name_backward(ctx, grads..., what save_for_backward() was given...),
 * which returns the gradient of the first input, or a list with one for each. What ctx holds otherwise lives as long as
 * the node. */
enum { SAVED_LIMIT = 16, OUTPUT_LIMIT = 4 };

static void applied_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_applied *f = (tide_applied *)node->held;
    tide_value arguments[1 + OUTPUT_LIMIT + SAVED_LIMIT] = {tide_value_retain(f->context)};
    uint32_t count = 1;
    for (unsigned i = 0; i < node->output_count; i++) { /* python_function.cpp: PyNode::apply makes zeros of nothing */
        if (!grads[i]) grads[i] = tide_empty(m, node->outputs[i].shape, (tide_dtype)node->outputs[i].dtype);
        arguments[count++] = tide_of_tensor(tide_retain(grads[i]));
    }
    for (int i = 0; i < node->saved_count; i++) arguments[count++] = tide_of_tensor(tide_saved_at(m, node, i));
    tide_value made =
        tide_call_function(m->interpreter, f->backward, f->instance, f->scope, arguments, count, NULL, NULL, 0);
    for (unsigned i = 0; i < node->edge_count; i++) {
        tide_value v = made.kind == TIDE_VALUE_LIST ? (i < made.list->count ? made.list->items[i] : tide_none())
                       : i                          ? tide_none()
                                                    : made;
        if (v.kind == TIDE_VALUE_TENSOR && tide_needs_input_grad(node, (int)i)) results[i] = tide_retain(v.tensor);
    }
    tide_value_release(m, made);
    for (unsigned i = 0; i < node->output_count; i++)
        tide_release_at(m, &grads[i]); /* python_function.cpp: PyNode::apply hands them on; those of other nodes outlive
                                          the check of their results */
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

static tide_value apply(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    tide_text name = count && a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
    tide_function *forward = half_of(f, name, "forward"), *backward = half_of(f, name, "backward");
    if (!forward || !backward)
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "there are no functions %s_forward and _backward",
                            tide_terminated(m, name));
    tide_tensor *inputs[ARGUMENT_LIMIT];
    tide_value arguments[ARGUMENT_LIMIT] = {{.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
    for (uint32_t i = 1; i < count; i++) {
        inputs[i - 1] = a[i].kind == TIDE_VALUE_TENSOR ? a[i].tensor : NULL;
        arguments[i] = tide_value_retain(a[i]);
    }
    tide_node *node = tide_node_with(m, &applied_backward, inputs, (int)count - 1, OUTPUT_LIMIT, SAVED_LIMIT),
              *outer = model->state.applied;
    tide_value context = tide_value_retain(arguments[0]);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    model->state.applied = node;
    tide_value made = tide_call_function(model, forward, f->instance, f->scope, arguments, count, NULL, NULL, 0);
    model->state.applied = outer;
    m->state.grad_enabled = grad_enabled;
    tide_value *outputs = made.kind == TIDE_VALUE_LIST ? made.list->items : &made;
    uint32_t output_count = made.kind == TIDE_VALUE_LIST ? made.list->count : 1;
    if (node) tide_apply_again(m, node, (tide_applied){{NULL, applied_drop}, backward, f->instance, f->scope, context});
    for (uint32_t i = 0; i < output_count; i++) give_output(m, node, &outputs[i], inputs, count - 1);
    if (!node) tide_value_release(m, context);
    if (node && !node->output_count) tide_node_release(m, node);
    return made;
}

/* ---- checkpoints ---- */

/* What a checkpoint calls again: a module with its keyword arguments. */
typedef struct closure {
    tide_model *model;
    uint32_t instance;
    tide_function *method;
    uint32_t named_count;
    tide_text *keywords;
    tide_value *named;
} closure;

tide_value tide_call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count) {
    closure *c = function;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) positional[i] = tide_value_retain(inputs[i]);
    for (uint32_t i = 0; i < c->named_count; i++) named[i] = tide_value_retain(c->named[i]);
    uint32_t module = m->module;
    m->module = c->instance;
    tide_value made = tide_call_memoized(c->model, c->method, c->instance, c->model->instances[c->instance].scope,
                                         positional, count, c->keywords, named, c->named_count);
    m->module = module;
    return made;
}

void tide_closure_free(tide_machine *m, void *function) {
    closure *c = function;
    for (uint32_t i = 0; i < c->named_count; i++) tide_value_release(m, c->named[i]);
    tide_pool_free(m, c->named, (c->named_count + 1) * sizeof *c->named);
    tide_pool_free(m, c->keywords, (c->named_count + 1) * sizeof *c->keywords);
    tide_pool_free(m, c, sizeof *c);
}

static tide_value checkpointed(tide_model *model, uint32_t instance, tide_function *method,
                               const tide_value *positional, uint32_t count, const tide_text *keywords,
                               const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    closure *c = tide_pool_alloc(m, sizeof *c);
    *c = (closure){model, instance, method, named_count, NULL, NULL};
    c->keywords = tide_pool_alloc(m, (named_count + 1) * sizeof *c->keywords);
    c->named = tide_pool_alloc(m, (named_count + 1) * sizeof *c->named);
    for (uint32_t i = 0; i < named_count; i++) {
        c->keywords[i] = keywords[i];
        c->named[i] = tide_value_retain(named[i]);
    }
    tide_value inputs[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) inputs[i] = positional[i];
    return tide_checkpoint_call(m, model->state.is_reentrant && !model->instances[instance].of->is_never_reentrant, c,
                                inputs, count);
}

/* A method of this module, or else a function, as what a checkpoint calls again. */
static closure *closure_named(tide_frame *f, tide_text name) {
    tide_model *model = f->model;
    const tide_class *of = model->instances[f->instance].of;
    tide_function *method = of ? tide_method_find(of, name) : NULL;
    if (!method) method = tide_function_find(model->descriptions, model->scopes[f->scope].description, name);
    if (!method) {
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "a checkpoint of '%s', which is no function",
                  tide_terminated(model->m, name));
        return NULL;
    }
    closure *c = tide_pool_alloc(model->m, sizeof *c);
    *c = (closure){model, f->instance, method, 0, NULL, NULL};
    c->keywords = tide_pool_alloc(model->m, sizeof *c->keywords);
    c->named = tide_pool_alloc(model->m, sizeof *c->named);
    return c;
}

/* checkpoint('function', parts, inputs...): Megatron-Core's; checkpoint_without_output('function', inputs...), whose
 * output discard_output(output, hook) lets go of until the gradient of `hook` is there. */
static tide_value call_checkpoint(tide_frame *f, uint32_t builtin, const tide_value *a, uint32_t count) {
    tide_machine *m = f->model->m;
    uint32_t first = builtin == BUILTIN_CHECKPOINT ? 2 : 1;
    bool is_right = count >= first && a[0].kind == TIDE_VALUE_TEXT && (first == 1 || a[1].kind == TIDE_VALUE_INT);
    if (!is_right) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "%s wants a function's name", "a checkpoint");
    closure *c = closure_named(f, a[0].text);
    if (!c) return tide_none();
    f->model->setting_changes++; /* no memo: frames are not captured */
    tide_value inputs[ARGUMENT_LIMIT];
    for (uint32_t i = first; i < count; i++) inputs[i - first] = a[i];
    return builtin == BUILTIN_CHECKPOINT ? tide_checkpoint_distributed(m, a[1].integer, c, inputs, count - first)
                                         : tide_checkpoint_without_output(m, c, inputs, count - first);
}

bool tide_calls_others(uint32_t builtin) {
    return builtin >= BUILTIN_APPLY && builtin <= BUILTIN_DISCARD_OUTPUT;
}

tide_value tide_call_others(tide_frame *f, uint32_t builtin, const tide_value *a, uint32_t count) {
    if (builtin == BUILTIN_APPLY) return apply(f, a, count);
    if (builtin != BUILTIN_DISCARD_OUTPUT) return call_checkpoint(f, builtin, a, count);
    if (count == 2 && a[0].kind == TIDE_VALUE_TENSOR && a[1].kind == TIDE_VALUE_TENSOR)
        tide_checkpoint_discard(f->model->m, a[0].tensor, a[1].tensor);
    else
        tide_fail(f->model->m, TIDE_ERR_DESCRIPTION, "discard_output(output, hook) wants two tensors");
    return tide_none();
}

/* ---- modules ---- */

/* A method, under a checkpoint where the module is one; the arguments are borrowed. */
static tide_value call_method(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                              uint32_t count, const tide_text *keywords, const tide_value *named,
                              uint32_t named_count) {
    const tide_instance *of = &model->instances[instance];
    tide_value kept[ARGUMENT_LIMIT], kept_named[ARGUMENT_LIMIT];
    if (of->of->is_checkpointed && model->state.is_checkpointing)
        return checkpointed(model, instance, method, positional, count, keywords, named, named_count);
    for (uint32_t i = 0; i < count; i++) kept[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) kept_named[i] = tide_value_retain(named[i]);
    model->m->module = instance;
    tide_value made =
        tide_call_memoized(model, method, instance, of->scope, kept, count, keywords, kept_named, named_count);
    if (of->makes_grad && made.kind == TIDE_VALUE_TENSOR && model->m->state.grad_enabled)
        made.tensor->requires_grad = true; /* output.requires_grad_(True): a leaf where nothing before it trains */
    return made;
}

/* nn.Module.__call__ with the hooks of a wrapper, whose replacements of the arguments live as long as the call. */
static tide_value call_hooked(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                              uint32_t count, const tide_text *keywords, const tide_value *named,
                              uint32_t named_count) {
    tide_machine *m = model->m;
    tide_value given[ARGUMENT_LIMIT], given_named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) given[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) given_named[i] = tide_value_retain(named[i]);
    model->before_forward(model, instance, given, count, given_named, named_count);
    tide_value made = call_method(model, instance, method, given, count, keywords, given_named, named_count);
    if (!tide_is_aborting(m)) model->after_forward(model, instance, &made);
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, given[i]);
    for (uint32_t i = 0; i < named_count; i++) tide_value_release(m, given_named[i]);
    return made;
}

/* Calls a method of a module, or without one the module; the arguments are borrowed and so outlive the call. */
tide_value tide_call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                            uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    bool is_hooked = !method && model->before_forward && !tide_is_aborting(m);
    if (!method) method = of->of->forward;
    if (!method) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "%s has no forward()", tide_terminated(m, of->of->name));
    uint32_t module = m->module, statement = m->statement;
    tide_value made = (is_hooked ? call_hooked : call_method)(model, instance, method, positional, count, keywords,
                                                              named, named_count);
    m->module = module;
    m->statement = statement;
    return made;
}
