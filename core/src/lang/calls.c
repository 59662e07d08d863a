/* SPDX-License-Identifier: Apache-2.0 */
/* Calling operations, functions and modules. */
#include <string.h>

#include "lang/interpreter.h"

/* ---- operations ---- */

/* An operation on DTensors returns DTensors, and waits for pending collectives. */
static bool takes_dtensor(tide_machine *m, const tide_value *a, uint32_t count) {
    bool takes = false;
    for (uint32_t i = 0; i < count; i++) {
        if (a[i].kind == TIDE_VALUE_TENSOR) tide_wait_tensor(m, a[i].tensor);
        if (a[i].kind == TIDE_VALUE_TENSOR) takes = takes || a[i].tensor->is_dtensor;
        if (a[i].kind == TIDE_VALUE_LIST) takes = takes_dtensor(m, a[i].list->items, a[i].list->count) || takes;
    }
    return takes;
}

static void make_dtensor(tide_value made) {
    if (made.kind == TIDE_VALUE_LIST)
        for (uint32_t i = 0; i < made.list->count; i++) make_dtensor(made.list->items[i]);
    if (made.kind != TIDE_VALUE_TENSOR) return;
    made.tensor->is_dtensor = true;
    if (made.tensor->node) made.tensor->node->outputs[made.tensor->output].is_dtensor = true;
}

static tide_value run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count) {
    if (++m->op_count > m->op_limit)
        return tide_nothing(m, TIDE_ERR_LIMIT, "more operations than tidemark plays for one job%s", "");
    m->op = op->name;
    if (op->cast == TIDE_CAST_NONE || !m->state.autocast_enabled) return op->run(m, a);
    tide_value cast[OPERATION_ARGUMENTS];
    memcpy(cast, a, count * sizeof *a);
    for (uint32_t k = 0; k < count; k++) { /* the caller still refers to the uncast ones */
        /* C++ evaluates arguments from right to left */
        uint32_t i = op->cast == TIDE_CAST_LOWER_IN_ORDER ? k : count - 1 - k;
        if (a[i].kind != TIDE_VALUE_TENSOR) continue;
        cast[i].tensor =
            op->cast == TIDE_CAST_FP32 ? tide_autocast_fp32(m, a[i].tensor) : tide_autocast_lower(m, a[i].tensor);
    }
    bool enabled = m->state.autocast_enabled;
    m->state.autocast_enabled = false;
    tide_value made = op->run(m, cast);
    m->state.autocast_enabled = enabled;
    for (uint32_t i = 0; i < count; i++)
        if (a[i].kind == TIDE_VALUE_TENSOR) tide_release(m, cast[i].tensor);
    return made;
}

tide_value tide_run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count) {
    if (tide_is_aborting(m)) return tide_none();
    bool is_dtensor = m->has_dtensors && takes_dtensor(m, a, count);
    tide_value made = run_operation(m, op, a, count);
    if (is_dtensor) make_dtensor(made);
    return made;
}

tide_value tide_call_operation(tide_frame *f, tide_expr *e, const tide_op *op, const tide_value *self) {
    tide_machine *m = f->model->m;
    const tide_signature *s = &e->bound->signature;
    const uint32_t *order = e->bound->order;
    tide_value a[OPERATION_ARGUMENTS];
    bool given[OPERATION_ARGUMENTS] = {false};
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
        if ((int32_t)order[i] == s->variadic) {
            tide_list_push(m, a[s->variadic].list, v);
        } else {
            if (given[order[i]]) tide_value_release(m, a[order[i]]);
            a[order[i]] = v;
            given[order[i]] = true;
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

/* ---- functions ---- */

/* Runs a bound function; takes ownership of the arguments, which are in the order of its parameters. */
static tide_value run_function(const tide_call_arguments *call, const tide_value *arguments, uint32_t count) {
    tide_model *model = call->model;
    tide_machine *m = model->m;
    tide_function *function = call->function;
    tide_value result = tide_none();
    if (model->depth >= CALL_DEPTH) tide_fail(m, TIDE_ERR_LIMIT, "calls nested deeper than %d", CALL_DEPTH);
    uint32_t slots = function->local_count > count ? function->local_count : count;
    tide_value *locals = tide_pool_alloc(m, (slots + 1) * sizeof *locals);
    for (uint32_t i = 0; i < count; i++) locals[i] = arguments[i];
    tide_frame f = {
        .model = model, .instance = call->instance, .scope = call->scope, .function = function, .locals = locals};
    tide_freed_by freeing = m->freeing;
    model->depth++;
    m->freeing = TIDE_FREED_BY_OPERATION;
    if (!tide_is_aborting(m)) tide_run_block(&f, function->body, &result);
    model->depth--;
    m->freeing = TIDE_FREED_BY_RETURN;
    for (uint32_t i = 0; i < slots; i++) tide_value_release(m, locals[i]);
    m->freeing = freeing;
    tide_pool_free(m, locals, (slots + 1) * sizeof *locals);
    return result;
}

/* The parameters that already have an argument, one bit each. */
typedef struct arranging {
    const tide_call_arguments *call;
    tide_value *arranged;
    uint64_t given;
    bool ok;
} arranging;

static void arrange_positional(arranging *x) {
    const tide_function *function = x->call->function;
    tide_machine *m = x->call->model->m;
    for (uint32_t i = 0; i < x->call->count; i++) {
        if (i < function->parameter_count) {
            x->arranged[i] = x->call->positional[i];
            x->given |= UINT64_C(1) << i;
            continue;
        }
        tide_value_release(m, x->call->positional[i]);
        if (x->ok)
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments", tide_terminated(m, function->name),
                      function->parameter_count);
        x->ok = false;
    }
}

static void arrange_named(arranging *x) {
    const tide_function *function = x->call->function;
    tide_machine *m = x->call->model->m;
    for (uint32_t i = 0; i < x->call->named_count; i++) {
        tide_text keyword = x->call->keywords[i];
        uint32_t at = 0;
        while (at < function->parameter_count && !tide_text_equal(function->parameters[at].name, keyword)) at++;
        if (at < function->parameter_count && !(x->given >> at & 1)) {
            x->arranged[at] = x->call->named[i];
            x->given |= UINT64_C(1) << at;
            continue;
        }
        tide_value_release(m, x->call->named[i]);
        if (x->ok)
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no free parameter '%s'", tide_terminated(m, function->name),
                      tide_terminated(m, keyword));
        x->ok = false;
    }
}

static void arrange_defaults(arranging *x) {
    const tide_call_arguments *call = x->call;
    tide_function *function = call->function;
    tide_machine *m = call->model->m;
    tide_frame f = {.model = call->model,
                    .instance = call->instance,
                    .scope = call->scope,
                    .function = function,
                    .locals = x->arranged};
    for (uint32_t i = 0; i < function->parameter_count; i++) {
        if (x->given >> i & 1) continue;
        x->arranged[i] = tide_none();
        if (function->parameters[i].otherwise)
            x->arranged[i] = tide_eval(&f, function->parameters[i].otherwise);
        else if (x->ok && !tide_is_aborting(m))
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s lacks '%s'", tide_terminated(m, function->name),
                      tide_terminated(m, function->parameters[i].name));
    }
}

bool tide_arrange(const tide_call_arguments *call, tide_value *arranged) {
    arranging x = {.call = call, .arranged = arranged, .ok = tide_bind_function(call->model, call->function)};
    arrange_positional(&x);
    arrange_named(&x);
    arrange_defaults(&x);
    return x.ok && !tide_is_aborting(call->model->m);
}

tide_value tide_call_function(const tide_call_arguments *call) {
    tide_value arranged[ARGUMENT_LIMIT];
    if (tide_arrange(call, arranged)) return run_function(call, arranged, call->function->parameter_count);
    for (uint32_t i = 0; i < call->function->parameter_count; i++) tide_value_release(call->model->m, arranged[i]);
    return tide_none();
}

tide_value tide_call_by_hook(const tide_call_arguments *call) {
    return call->model->call ? call->model->call(call) : tide_call_function(call);
}

/* ---- modules ---- */

/* The first tensor of floats among the arguments becomes one that requires gradients. */
static void require_first_grad(const tide_value *positional, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (positional[i].kind != TIDE_VALUE_TENSOR || !tide_dtype_is_float(positional[i].tensor->dtype)) continue;
        positional[i].tensor->requires_grad = true;
        return;
    }
}

/* Calls a method, under a checkpoint if the module is checkpointed; borrows the arguments. */
static tide_value call_method(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                              uint32_t count, const tide_text *keywords, const tide_value *named,
                              uint32_t named_count) {
    const tide_instance *of = &model->instances[instance];
    tide_value kept[ARGUMENT_LIMIT], kept_named[ARGUMENT_LIMIT];
    bool is_checkpointed = of->of->is_checkpointed && model->state.is_checkpointing && !of->skips_checkpoint;
    if (is_checkpointed && of->makes_input_grad && !model->is_reference) require_first_grad(positional, count);
    if (is_checkpointed)
        return tide_call_checkpointed(model, instance, method, positional, count, keywords, named, named_count);
    for (uint32_t i = 0; i < count; i++) kept[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) kept_named[i] = tide_value_retain(named[i]);
    model->m->module = instance;
    const tide_call_arguments call = {model,      method,   instance, of->scope,  kept,
                                      kept_named, keywords, count,    named_count};
    tide_value made = tide_call_by_hook(&call);
    if (of->makes_grad && made.kind == TIDE_VALUE_TENSOR && !tide_dtype_is_float(made.tensor->dtype) &&
        !model->m->has_failed)
        tide_fail(model->m, TIDE_ERR_UNSUPPORTED,
                  "%s gives integers, whose gradients enable_input_require_grads() asks for: \"only Tensors of "
                  "floating point dtype can require gradients\"; name it in quant.skip, beside lm_head",
                  tide_terminated(model->m, of->of->name));
    if (of->makes_grad && !model->is_reference && made.kind == TIDE_VALUE_TENSOR)
        /* output.requires_grad_(True): a leaf if nothing before it requires gradients, and without gradients */
        made.tensor->requires_grad = true;
    if (of->makes_grad && made.kind == TIDE_VALUE_LIST && model->has_peft && !model->m->has_failed)
        tide_fail(
            model->m, TIDE_ERR_UNSUPPORTED,
            "transformers refuses checkpointing beside adapters: \"AttributeError: 'tuple' object has no attribute "
            "'requires_grad_'\", in enable_input_require_grads()");
    return made;
}

/* nn.Module.__call__ with the hooks of a wrapper; arguments that hooks replace live as long as the call. */
static tide_value call_hooked(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                              uint32_t count, const tide_text *keywords, const tide_value *named,
                              uint32_t named_count) {
    tide_machine *m = model->m;
    tide_value given[ARGUMENT_LIMIT], given_named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) given[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) given_named[i] = tide_value_retain(named[i]);
    model->before_forward(model, instance, given, count, given_named, named_count);
    tide_value made = call_method(model, instance, method, given, count, keywords, given_named, named_count);
    bool is_unfinished = model->wraps_forward && instance == model->root;
    if (!tide_is_aborting(m) && !is_unfinished) model->after_forward(model, instance, &made);
    if (model->makes_grad_last && model->instances[instance].makes_grad && made.kind == TIDE_VALUE_TENSOR)
        made.tensor->requires_grad = true;
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, given[i]);
    for (uint32_t i = 0; i < named_count; i++) tide_value_release(m, given_named[i]);
    return made;
}

tide_value tide_call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                            uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    bool is_method = method != NULL, is_hooked = !is_method && model->before_forward && !tide_is_aborting(m);
    if (!method) method = of->of->forward;
    if (!method) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "%s has no forward()", tide_terminated(m, of->of->name));
    uint32_t module = m->module, statement = m->statement;
    tide_value made = (is_hooked ? call_hooked : call_method)(model, instance, method, positional, count, keywords,
                                                              named, named_count);
    if (!is_method) tide_capture_hidden_states(model, instance, positional, count, made);
    m->module = module;
    m->statement = statement;
    return made;
}
