/* SPDX-License-Identifier: Apache-2.0 */
/* Call expressions: the callee and its arguments. */
#include <string.h>

#include "lang/interpreter.h"

/* ---- arguments ---- */

/* **list: names and values in turn. */
static void add_named(tide_machine *m, tide_value list, tide_arguments *given) {
    bool is_list = list.kind == TIDE_VALUE_LIST && list.list->count % 2 == 0;
    for (uint32_t i = 0; is_list && i < list.list->count; i += 2) {
        if (list.list->items[i].kind != TIDE_VALUE_TEXT || given->named_count == ARGUMENT_LIMIT) {
            is_list = false;
            break;
        }
        given->keywords[given->named_count] = list.list->items[i].text;
        given->named[given->named_count++] = tide_value_retain(list.list->items[i + 1]);
    }
    if (!is_list && !tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "** wants a list of names and values");
    tide_value_release(m, list);
}

void tide_eval_arguments(tide_frame *f, tide_expr *e, tide_arguments *given) {
    given->count = given->named_count = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        tide_value v = tide_eval(f, e->items[i]);
        if (tide_text_is(e->keywords[i], "**")) {
            add_named(f->model->m, v, given);
        } else if (e->keywords[i].length) {
            given->keywords[given->named_count] = e->keywords[i];
            given->named[given->named_count++] = v;
        } else {
            given->positional[given->count++] = v;
        }
    }
}

void tide_release_arguments(tide_machine *m, const tide_arguments *given) {
    tide_release_all(m, given->positional, given->count);
    tide_release_all(m, given->named, given->named_count);
}

/* ---- modules ---- */

static tide_value call_module(tide_frame *f, tide_expr *e, uint32_t module, tide_function *method) {
    tide_machine *m = f->model->m;
    tide_arguments given;
    tide_eval_arguments(f, e, &given);
    tide_value made = tide_none();
    if (!tide_is_aborting(m))
        made = tide_call_module(f->model, module, method, given.positional, given.count, given.keywords, given.named,
                                given.named_count);
    tide_release_arguments(m, &given);
    return made;
}

/* A member that is none returns its argument, as torch.nn.Identity does. */
static tide_value call_identity(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_arguments given;
    tide_eval_arguments(f, e, &given);
    tide_value made = given.count ? tide_value_retain(given.positional[0]) : tide_none();
    if (!given.count && !tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "none called without an argument");
    tide_release_arguments(m, &given);
    return made;
}

/* Calls the value of a name or member: a module, the name of one, or none. */
static tide_value call_held(tide_frame *f, tide_expr *e, tide_value callee, bool is_member) {
    tide_machine *m = f->model->m;
    if (callee.kind == TIDE_VALUE_MODULE) return call_module(f, e, callee.module, NULL);
    if (callee.kind == TIDE_VALUE_NONE && is_member) return call_identity(f, e);
    if (callee.kind == TIDE_VALUE_TEXT) {
        tide_arguments given;
        tide_eval_arguments(f, e, &given);
        return tide_construct(f, callee.text, &given);
    }
    if (!tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s cannot be called", tide_kind_name(callee));
    return tide_none();
}

static tide_value call_value(tide_frame *f, tide_expr *e, tide_expr *callee) {
    tide_value held = tide_eval(f, callee);
    tide_value made = call_held(f, e, held, callee->kind == TIDE_EXPR_NAME && callee->meaning == TIDE_ATTRIBUTE);
    tide_value_release(f->model->m, held);
    return made;
}

/* ---- object.name(...) ---- */

static tide_value pop_item(tide_machine *m, tide_list *list, bool is_first) {
    if (!list->count) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "pop from an empty list%s", "");
    uint32_t at = is_first ? 0 : list->count - 1;
    tide_value made = list->items[at];
    list->is_read = true;
    list->pops++;
    memmove(&list->items[at], &list->items[at + 1], (--list->count - at) * sizeof *list->items);
    return made;
}

static tide_value call_on_tensor(tide_frame *f, tide_expr *e, const tide_value *object) {
    tide_machine *m = f->model->m;
    if (!e->bound) {
        const tide_op *op = tide_op_find(e->a->text);
        if (!op)
            tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' is no operation", tide_terminated(m, e->a->text));
        else
            tide_bind_operation_call(f->model, e, op, 1);
    }
    return tide_is_aborting(m) ? tide_none() : tide_call_operation(f, e, e->target, object);
}

static tide_value call_on_module(tide_frame *f, tide_expr *e, uint32_t module) {
    tide_model *model = f->model;
    module = tide_delegated(model, module, e->a->text);
    const tide_instance *of = &model->instances[module];
    tide_function *method = tide_method_find(of->of, e->a->text);
    if (method) return call_module(f, e, module, method);
    uint32_t slot = tide_attribute_slot(of->of, e->a->text);
    if (slot != UINT32_MAX && (of->slots[slot].kind == TIDE_VALUE_MODULE || of->slots[slot].kind == TIDE_VALUE_NONE))
        return call_held(f, e, of->slots[slot], true);
    tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has no function '%s'", tide_terminated(model->m, of->of->name),
              tide_terminated(model->m, e->a->text));
    return tide_none();
}

/* append(v), pop(), pop(0) */
static tide_value call_on_list(tide_frame *f, tide_expr *e, tide_list *list) {
    tide_machine *m = f->model->m;
    if (tide_text_is(e->a->text, "pop") && e->count < 2) return pop_item(m, list, e->count == 1);
    if (tide_text_is(e->a->text, "append") && e->count == 1) {
        tide_value v = tide_eval(f, e->items[0]);
        if (list->count >= LOOP_LIMIT) tide_fail(m, TIDE_ERR_LIMIT, "a list of more than a million");
        tide_list_push(m, list, v);
        return tide_none();
    }
    return tide_nothing(m, TIDE_ERR_DESCRIPTION, "'%s' called on a list", tide_terminated(m, e->a->text));
}

static tide_value call_on_object(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value object = tide_eval(f, e->a->a), made = tide_none();
    if (object.kind == TIDE_VALUE_TENSOR)
        made = call_on_tensor(f, e, &object);
    else if (object.kind == TIDE_VALUE_MODULE)
        made = call_on_module(f, e, object.module);
    else if (object.kind == TIDE_VALUE_LIST)
        made = call_on_list(f, e, object.list);
    else if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' called on %s", tide_terminated(m, e->a->text), tide_kind_name(object));
    tide_value_release(m, object);
    return made;
}

/* ---- name(...) ---- */

static tide_value call_by_function(tide_frame *f, tide_expr *e, tide_function *function) {
    tide_machine *m = f->model->m;
    tide_arguments given;
    tide_eval_arguments(f, e, &given);
    uint32_t statement = m->statement;
    const tide_call_arguments call = {f->model,    function,       f->instance, f->scope,         given.positional,
                                      given.named, given.keywords, given.count, given.named_count};
    tide_value made = tide_call_function(&call);
    m->statement = statement;
    return made;
}

static tide_value call_builtin(tide_frame *f, tide_expr *e, const tide_builtin *builtin) {
    tide_arguments given;
    tide_eval_arguments(f, e, &given);
    return tide_run_builtin(f, builtin, &given);
}

/* A call in a size. */
static tide_value call_unbound(tide_frame *f, tide_expr *e) {
    tide_model *model = f->model;
    const tide_builtin *builtin = tide_builtin_find(e->a->text);
    if (builtin && builtin->run) return call_builtin(f, e, builtin);
    tide_function *function = tide_function_find(model->descriptions, model->scopes[f->scope].description, e->a->text);
    if (function) return call_by_function(f, e, function);
    return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "a size calls '%s', which is no function",
                        tide_terminated(model->m, e->a->text));
}

static tide_value call_by_name(tide_frame *f, tide_expr *e) {
    tide_expr *name = e->a;
    switch (name->meaning) {
    case TIDE_UNBOUND:
        return call_unbound(f, e);
    case TIDE_OPERATION:
        return tide_call_operation(f, e, name->target, NULL);
    case TIDE_BUILTIN:
        return call_builtin(f, e, name->target);
    case TIDE_FUNCTION:
    case TIDE_METHOD:
        return call_by_function(f, e, (tide_function *)name->target);
    default:
        break;
    }
    return call_value(f, e, name);
}

tide_value tide_eval_call(tide_frame *f, tide_expr *e) {
    tide_model *model = f->model;
    if (model->nesting >= NESTING_LIMIT) {
        tide_fail(model->m, TIDE_ERR_LIMIT, "calls nested deeper than %d", NESTING_LIMIT);
        return tide_none();
    }
    model->nesting++;
    tide_value made;
    if (e->a->kind == TIDE_EXPR_MEMBER)
        made = call_on_object(f, e);
    else if (e->a->kind == TIDE_EXPR_NAME)
        made = call_by_name(f, e);
    else
        made = call_value(f, e, e->a);
    model->nesting--;
    return made;
}
