/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluating expressions: those of statements, whose names are bound, and those of sizes, whose names are looked up in
 * the configuration (config_expressions.c). */
#include "lang/interpreter.h"

void tide_release_all(tide_machine *m, const tide_value *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, values[i]);
}

/* ---- members ---- */

static tide_value shape_value(tide_frame *f, const tide_tensor *t) {
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(f->model->m)};
    for (int i = 0; i < t->shape->dims; i++)
        tide_list_push(
            f->model->m, list.list,
            (tide_value){.kind = TIDE_VALUE_INT, .symbol = t->shape->dim[i].name, .integer = t->shape->dim[i].size});
    return list;
}

static tide_value member_of_tensor(tide_frame *f, const tide_expr *e, const tide_tensor *t) {
    switch (e->slot) {
    case MEMBER_SHAPE:
        return shape_value(f, t);
    case MEMBER_DTYPE:
        return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)t->dtype};
    case MEMBER_REQUIRES_GRAD:
        return tide_of_bool(t->requires_grad);
    default:
        return tide_nothing(f->model->m, TIDE_ERR_DESCRIPTION, "a tensor has no '%s'",
                            tide_terminated(f->model->m, e->text));
    }
}

uint32_t tide_member_slot(tide_model *model, uint32_t *module, tide_text name) {
    *module = tide_delegated(model, *module, name);
    const tide_class *of = model->instances[*module].of;
    uint32_t slot = tide_attribute_slot(of, name);
    if (slot == UINT32_MAX && !model->m->has_failed)
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has no '%s'", tide_terminated(model->m, of->name),
                  tide_terminated(model->m, name));
    return slot;
}

tide_value tide_member_of_module(tide_frame *f, uint32_t module, tide_text name) {
    tide_model *model = f->model;
    uint32_t owner = module, slot = tide_member_slot(model, &owner, name);
    if (slot == UINT32_MAX) return tide_none();
    const tide_instance *of = &model->instances[owner];
    of->of->read |= tide_slot_bit(slot);
    tide_value made = tide_value_retain(of->slots[slot]);
    bool is_read = model->read_parameter && module != f->instance && made.kind == TIDE_VALUE_TENSOR;
    tide_tensor *other =
        is_read && made.tensor->is_parameter ? model->read_parameter(model, f->instance, made.tensor) : NULL;
    if (!other) return made;
    tide_value_release(model->m, made);
    return tide_of_tensor(other);
}

static tide_value eval_member(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR)
        made = member_of_tensor(f, e, a.tensor);
    else if (a.kind == TIDE_VALUE_MODULE)
        made = tide_member_of_module(f, a.module, e->text);
    else if (a.kind == TIDE_VALUE_CONFIG || !f->function)
        made = tide_config_member(f, e, a.kind == TIDE_VALUE_CONFIG ? a.config : NULL);
    else if (!tide_is_aborting(m) &&
             a.kind == TIDE_VALUE_LIST) /* the error message of Python for a function's result */
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'tuple' object has no attribute '%s'", tide_terminated(m, e->text));
    else if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' of %s", tide_terminated(m, e->text), tide_kind_name(a));
    tide_value_release(m, a);
    return made;
}

/* ---- operators ---- */

static tide_value binary_of_tensors(tide_frame *f, const tide_expr *e, tide_value a, tide_value b) {
    tide_machine *m = f->model->m;
    bool is_none_test = e->kind == TIDE_EXPR_COMPARE && (a.kind == TIDE_VALUE_NONE || b.kind == TIDE_VALUE_NONE);
    if (is_none_test) return tide_of_bool(e->op == '!');
    if (!e->target) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "tensors have no operators in %s", "sizes");
    tide_value both[2] = {tide_value_retain(a), tide_value_retain(b)};
    tide_value made = tide_run_operation(m, e->target, both, 2);
    tide_release_all(m, both, 2);
    return made;
}

static tide_value eval_binary(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a), b = tide_eval(f, e->b), made;
    if (tide_is_aborting(m))
        made = tide_none();
    else if (a.kind == TIDE_VALUE_TENSOR || b.kind == TIDE_VALUE_TENSOR)
        made = binary_of_tensors(f, e, a, b);
    else if (e->kind == TIDE_EXPR_BINARY)
        made = tide_arithmetic(m, e->op, a, b);
    else
        made = tide_of_bool(tide_compare(m, e->op, a, b));
    tide_value_release(m, a);
    tide_value_release(m, b);
    return made;
}

static tide_value eval_negate(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a);
    tide_value made = a.kind == TIDE_VALUE_TENSOR ? tide_run_operation(m, e->target, &a, 1)
                                                  : tide_arithmetic(m, '-', tide_of_int(0), a);
    tide_value_release(m, a);
    return made;
}

/* not, and, or: the last two return one of their operands, as in Python. */
static tide_value eval_logical(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a);
    bool is_true = tide_is_true(m, a);
    if (e->kind != TIDE_EXPR_NOT && is_true == (e->kind == TIDE_EXPR_OR)) return a;
    tide_value_release(m, a);
    return e->kind == TIDE_EXPR_NOT ? tide_of_bool(!is_true) : tide_eval(f, e->b);
}

static tide_value eval_choice(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value condition = tide_eval(f, e->b);
    tide_value made = tide_eval(f, tide_is_true(m, condition) ? e->a : e->c);
    tide_value_release(m, condition);
    return made;
}

/* ---- lists ---- */

static tide_value eval_comprehension(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (!f->function) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "'for' stands in modules and functions%s", "");
    tide_value over = tide_eval(f, e->b), made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (over.kind != TIDE_VALUE_LIST && !tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'for' over %s", tide_kind_name(over));
    tide_value_is_read(over);
    for (uint32_t i = 0; over.kind == TIDE_VALUE_LIST && i < over.list->count && !tide_is_aborting(m); i++) {
        tide_value_release(m, f->locals[e->slot]);
        f->locals[e->slot] = tide_value_retain(over.list->items[i]);
        if (++m->op_count > m->op_limit)
            tide_fail(m, TIDE_ERR_LIMIT, "more statements than tidemark plays for one job");
        tide_list_push(m, made.list, tide_eval(f, e->a));
    }
    tide_value_release(m, f->locals[e->slot]);
    f->locals[e->slot] = tide_none();
    tide_value_release(m, over);
    return made;
}

static tide_value eval_list(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->count == 1 && e->items[0]->kind == TIDE_EXPR_COMPREHENSION) return eval_comprehension(f, e->items[0]);
    tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    made.list->is_output = e->integer;
    for (uint32_t i = 0; i < e->count; i++) tide_list_push(m, made.list, tide_eval(f, e->items[i]));
    return made;
}

/* ---- names ---- */

static tide_value eval_name(tide_frame *f, tide_expr *e) {
    tide_model *model = f->model;
    switch (e->meaning) {
    case TIDE_UNBOUND:
        return tide_config_name(f, e);
    case TIDE_LOCAL:
        return tide_value_retain(f->locals[e->slot]);
    case TIDE_ATTRIBUTE:
        return tide_value_retain(model->instances[f->instance].slots[e->slot]);
    case TIDE_SIZE:
        return tide_scope_size(model, f->scope, e->slot);
    case TIDE_SETTING:
        if (model->settings[e->slot].value.kind >= TIDE_VALUE_TENSOR) model->setting_changes++; /* it may be changed */
        return tide_eval_setting(model, e->slot);
    case TIDE_CONFIGURATION:
        return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = model->scopes[f->scope].config};
    case TIDE_DTYPE_NAME:
        return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)e->slot};
    case TIDE_CLASS:
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = e->text};
    default:
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "'%s' is a function: it wants arguments",
                            tide_terminated(model->m, e->text));
    }
}

tide_value tide_eval_any(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (tide_is_aborting(m)) return tide_none();
    switch (e->kind) {
    case TIDE_EXPR_NONE:
    case TIDE_EXPR_BOOL:
    case TIDE_EXPR_INT:
    case TIDE_EXPR_FLOAT:
    case TIDE_EXPR_TEXT:
        return tide_literal(e);
    case TIDE_EXPR_NAME:
        return eval_name(f, e);
    case TIDE_EXPR_CALL:
        return tide_eval_call(f, e);
    case TIDE_EXPR_MEMBER:
        return eval_member(f, e);
    case TIDE_EXPR_INDEX:
        return tide_eval_index(f, e);
    case TIDE_EXPR_NEGATE:
        return eval_negate(f, e);
    case TIDE_EXPR_NOT:
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
        return eval_logical(f, e);
    case TIDE_EXPR_COALESCE: {
        tide_value a = tide_eval(f, e->a);
        return a.kind == TIDE_VALUE_NONE ? tide_eval(f, e->b) : a;
    }
    case TIDE_EXPR_CHOICE:
        return eval_choice(f, e);
    case TIDE_EXPR_BINARY:
    case TIDE_EXPR_COMPARE:
        return eval_binary(f, e);
    case TIDE_EXPR_LIST:
        return eval_list(f, e);
    case TIDE_EXPR_COMPREHENSION:
        return eval_comprehension(f, e);
    case TIDE_EXPR_SLICE:
    case TIDE_EXPR_ELLIPSIS:
        break;
    }
    return tide_nothing(m, TIDE_ERR_DESCRIPTION, "'%s' stands only in an index", ":");
}
