/* Expressions and statements. */
#include "lang/interpreter.h"

#include <string.h>

/* ---- expressions ---- */

static tide_value shape_value(tide_frame *f, const tide_tensor *t) {
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(f->model->m)};
    for (int i = 0; i < t->shape->dims; i++)
        tide_list_push(f->model->m, list.list,
                       (tide_value){.kind = TIDE_VALUE_INT, .symbol = t->shape->name[i], .integer = t->shape->size[i]});
    return list;
}

/* The module that answers for a name: itself, or what it delegates to (peft: BaseTunerLayer's properties). */
static uint32_t delegated(const tide_model *model, uint32_t module, tide_text name) {
    for (int depth = 0; depth < 4; depth++) {
        const tide_instance *of = &model->instances[module];
        if (!of->of->delegate.length || tide_attribute_slot(of->of, name) != UINT32_MAX ||
            tide_method_find(of->of, name))
            break;
        uint32_t slot = tide_attribute_slot(of->of, of->of->delegate);
        if (slot == UINT32_MAX || of->slots[slot].kind != TIDE_VALUE_MODULE) break;
        module = of->slots[slot].module;
    }
    return module;
}

static tide_value eval_member(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR) {
        if (e->slot == MEMBER_SHAPE)
            made = shape_value(f, a.tensor);
        else if (e->slot == MEMBER_DTYPE)
            made = (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)a.tensor->dtype};
        else if (e->slot == MEMBER_REQUIRES_GRAD)
            made = tide_of_bool(a.tensor->requires_grad);
        else
            tide_fail(m, TIDE_ERR_DESCRIPTION, "a tensor has no '%s'", tide_terminated(m, e->text));
    } else if (a.kind == TIDE_VALUE_MODULE) {
        const tide_instance *of = &f->model->instances[delegated(f->model, a.module, e->text)];
        uint32_t slot = tide_attribute_slot(of->of, e->text);
        if (slot != UINT32_MAX) of->of->read |= tide_slot_bit(slot);
        if (slot == UINT32_MAX)
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no '%s'", tide_terminated(m, of->of->name),
                      tide_terminated(m, e->text));
        else
            made = tide_value_retain(of->slots[slot]);
        if (f->model->read_parameter && a.module != f->instance && made.kind == TIDE_VALUE_TENSOR &&
            made.tensor->is_parameter)
            f->model->read_parameter(f->model, f->instance, made.tensor);
    } else if (!tide_is_aborting(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' of %s", tide_terminated(m, e->text), tide_kind_name(a));
    }
    tide_value_release(m, a);
    return made;
}

/* x[a, :, b:c, ..., none, [i, j], tensor]: tensors, and lists that become tensors, stand side by side. */
static tide_value index_tensor(tide_frame *f, tide_expr *e, tide_tensor *x) {
    tide_machine *m = f->model->m;
    tide_tensor *at = tide_retain(x);
    int named = 0, dim = 0;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->items[i]->kind != TIDE_EXPR_ELLIPSIS && e->items[i]->kind != TIDE_EXPR_NONE) named++;
    bool has_changed = false;
    int from = 0;
    tide_value indices = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < e->count && !tide_is_aborting(m); i++) {
        tide_expr *item = e->items[i];
        tide_tensor *made = NULL;
        if (item->kind == TIDE_EXPR_ELLIPSIS) {
            dim += x->shape->dims - named > 0 ? x->shape->dims - named : 0;
            continue;
        }
        if (item->kind == TIDE_EXPR_NONE) {
            made = tide_unsqueeze(m, at, dim++);
        } else if (item->kind == TIDE_EXPR_SLICE) {
            tide_value start = item->a ? tide_eval(f, item->a) : tide_of_int(0),
                       stop = item->b ? tide_eval(f, item->b) : tide_of_int(INT64_MAX);
            if (dim >= at->shape->dims) {
                tide_fail(m, TIDE_ERR_SHAPE, "more indices than dimensions of %s", tide_shape_text(m, at->shape));
                break;
            }
            if (item->c) {
                tide_value step = tide_eval(f, item->c);
                m->op = "slice";
                made = tide_every(m, at, dim++, tide_arg_int(m, start), tide_arg_int(m, step));
                tide_release(m, at);
                at = made;
                has_changed = true;
                continue;
            }
            int64_t size = at->shape->size[dim], first = tide_arg_int(m, start), last = tide_arg_int(m, stop);
            bool is_full = first == 0 && last >= size;
            if (is_full && e->count > 1) { /* a full range changes nothing */
                dim++;
                continue;
            }
            if (is_full) first = -size; /* x[a:b] alone is a slice even then: applySlice, disable_slice_optimization */
            m->op = "slice";
            made = tide_slice(m, at, dim++, (tide_dim){first, start.symbol}, (tide_dim){last, stop.symbol});
        } else {
            tide_value index = tide_eval(f, item);
            if (index.kind == TIDE_VALUE_LIST) { /* sequenceToVariable: numbers reach the device as int64 */
                m->op = "index";
                tide_shape shape = tide_shape1((tide_dim){index.list->count, 0});
                tide_value_release(m, index);
                index = tide_of_tensor(tide_empty(m, &shape, TIDE_INT64));
            }
            if (index.kind == TIDE_VALUE_TENSOR) {
                if (indices.list->count == 0)
                    from = dim;
                else if (from + (int)indices.list->count != dim)
                    tide_fail(m, TIDE_ERR_DESCRIPTION, "tensors that index stand side by side");
                tide_list_push(m, indices.list, index);
                dim++;
                continue;
            }
            m->op = "select";
            made = tide_select(m, at, dim, tide_arg_int(m, index));
        }
        tide_release(m, at);
        at = made;
        has_changed = true;
    }
    if (indices.list->count && !tide_is_aborting(m)) {
        tide_value arguments[3] = {tide_of_tensor(at), indices, tide_of_int(from)};
        tide_value made = tide_run_operation(m, tide_op_find(TIDE_TEXT("index")), arguments, 3);
        tide_value_release(m, indices);
        tide_release(m, at);
        return made;
    }
    tide_value_release(m, indices);
    if (!has_changed && !tide_is_aborting(m)) { /* at::alias */
        tide_tensor *made = tide_slice(m, at, 0, (tide_dim){0, 0}, (tide_dim){INT64_MAX, 0});
        tide_release(m, at);
        at = made;
    }
    return tide_of_tensor(at);
}

static tide_value index_list(tide_frame *f, tide_expr *e, tide_list *list) {
    tide_machine *m = f->model->m;
    list->is_read = true;
    tide_expr *item = e->items[0];
    if (item->kind == TIDE_EXPR_SLICE) {
        int64_t count = list->count;
        tide_value start = item->a ? tide_eval(f, item->a) : tide_of_int(0),
                   stop = item->b ? tide_eval(f, item->b) : tide_of_int(count);
        int64_t from = tide_arg_int(m, start), to = tide_arg_int(m, stop);
        from = from < 0 ? (from + count > 0 ? from + count : 0) : from;
        to = to < 0 ? to + count : to > count ? count : to;
        tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (int64_t i = from; i < to; i++) tide_list_push(m, made.list, tide_value_retain(list->items[i]));
        return made;
    }
    tide_value index = tide_eval(f, item);
    int64_t i = tide_arg_int(m, index);
    if (i < 0) i += list->count;
    if (i < 0 || i >= (int64_t)list->count || e->count != 1) {
        if (!tide_is_aborting(m))
            tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a list of %u", (long long)i, list->count);
        return tide_none();
    }
    return tide_value_retain(list->items[i]);
}

/* A letter of a text. */
static tide_value index_text(tide_frame *f, tide_expr *e, tide_text text) {
    tide_machine *m = f->model->m;
    int64_t i = tide_arg_int(m, tide_eval(f, e->items[0]));
    if (i >= 0 && i < (int64_t)text.length && e->count == 1)
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = {text.at + i, 1}};
    if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a text of %u letters", (long long)i, (unsigned)text.length);
    return tide_none();
}

/* x.shape[i], without a list for x.shape. */
static tide_value one_size(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value x = tide_eval(f, e->a->a), made = tide_none();
    int64_t i = e->items[0]->kind == TIDE_EXPR_NEGATE ? -e->items[0]->a->integer : e->items[0]->integer;
    if (x.kind != TIDE_VALUE_TENSOR) {
        if (!tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'shape' of %s", tide_kind_name(x));
    } else if (i >= x.tensor->shape->dims || i < -x.tensor->shape->dims) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a shape of %d", (long long)i, x.tensor->shape->dims);
    } else {
        tide_dim dim = tide_dim_of(x.tensor, (int)(i < 0 ? i + x.tensor->shape->dims : i));
        made = (tide_value){.kind = TIDE_VALUE_INT, .symbol = dim.name, .integer = dim.n};
    }
    tide_value_release(m, x);
    return made;
}

static bool is_literal(const tide_expr *e) {
    return e->kind == TIDE_EXPR_INT || (e->kind == TIDE_EXPR_NEGATE && e->a->kind == TIDE_EXPR_INT);
}

static tide_value eval_index(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->a->kind == TIDE_EXPR_MEMBER && e->a->slot == MEMBER_SHAPE && e->count == 1 && is_literal(e->items[0]))
        return one_size(f, e);
    tide_value a = tide_eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR)
        made = index_tensor(f, e, a.tensor);
    else if (a.kind == TIDE_VALUE_LIST)
        made = index_list(f, e, a.list);
    else if (a.kind == TIDE_VALUE_TEXT)
        made = index_text(f, e, a.text);
    else if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "an index into %s", tide_kind_name(a));
    tide_value_release(m, a);
    return made;
}

/* Evaluates the arguments of a call: positional ones first in `values`, then those with keywords. */
uint32_t tide_eval_arguments(tide_frame *f, tide_expr *e, tide_value *positional, tide_text *keywords,
                             tide_value *named, uint32_t *named_count) {
    uint32_t count = 0;
    *named_count = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        tide_value v = tide_eval(f, e->items[i]);
        if (e->keywords[i].length) {
            keywords[*named_count] = e->keywords[i];
            named[(*named_count)++] = v;
        } else {
            positional[count++] = v;
        }
    }
    return count;
}

void tide_release_all(tide_machine *m, const tide_value *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, values[i]);
}
static tide_value call_value(tide_frame *f, tide_expr *e, tide_value callee, tide_function *method) {
    tide_machine *m = f->model->m;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    tide_text keywords[ARGUMENT_LIMIT];
    uint32_t named_count, count = tide_eval_arguments(f, e, positional, keywords, named, &named_count);
    tide_value made = tide_none();
    if (!tide_is_aborting(m))
        made = tide_call_module(f->model, callee.module, method, positional, count, keywords, named, named_count);
    tide_release_all(m, positional, count);
    tide_release_all(m, named, named_count);
    return made;
}

static tide_value list_pop(tide_machine *m, tide_list *list, bool is_first) {
    if (!list->count) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "pop from an empty list%s", "");
    uint32_t at = is_first ? 0 : list->count - 1;
    tide_value made = list->items[at];
    list->is_read = true;
    list->pops++;
    memmove(&list->items[at], &list->items[at + 1], (--list->count - at) * sizeof *list->items);
    return made;
}

/* object.name(...): an operation on a tensor, a method or member of a module, append to and pop from a list. */
static tide_value call_member(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value object = tide_eval(f, e->a->a), made = tide_none();
    if (object.kind == TIDE_VALUE_TENSOR) {
        if (!e->target || !e->b) {
            const tide_op *op = tide_op_find(e->a->text);
            if (!op)
                tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' is no operation", tide_terminated(m, e->a->text));
            else
                tide_bind_operation_call(f->model, e, op, 1);
        }
        if (!tide_is_aborting(m)) made = tide_call_operation(f, e, e->target, &object);
    } else if (object.kind == TIDE_VALUE_MODULE) {
        object.module = delegated(f->model, object.module, e->a->text);
        const tide_instance *of = &f->model->instances[object.module];
        tide_function *method = tide_method_find(of->of, e->a->text);
        uint32_t slot = method ? UINT32_MAX : tide_attribute_slot(of->of, e->a->text);
        if (method)
            made = call_value(f, e, object, method);
        else if (slot != UINT32_MAX && of->slots[slot].kind == TIDE_VALUE_MODULE)
            made = call_value(f, e, of->slots[slot], NULL);
        else
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no function '%s'", tide_terminated(m, of->of->name),
                      tide_terminated(m, e->a->text));
    } else if (object.kind == TIDE_VALUE_LIST && tide_text_is(e->a->text, "append") && e->count == 1) {
        tide_value v = tide_eval(f, e->items[0]);
        if (object.list->count >= LOOP_LIMIT) tide_fail(m, TIDE_ERR_LIMIT, "a list of more than a million");
        tide_list_push(m, object.list, v);
    } else if (object.kind == TIDE_VALUE_LIST && tide_text_is(e->a->text, "pop") && e->count < 2) {
        made = list_pop(m, object.list, e->count == 1); /* pop() or pop(0) */
    } else if (!tide_is_aborting(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' called on %s", tide_terminated(m, e->a->text), tide_kind_name(object));
    }
    tide_value_release(m, object);
    return made;
}

static tide_value eval_callee(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->a->kind == TIDE_EXPR_MEMBER) return call_member(f, e);
    if (e->a->kind != TIDE_EXPR_NAME) {
        tide_value callee = tide_eval(f, e->a);
        tide_value made = tide_none();
        if (callee.kind == TIDE_VALUE_MODULE)
            made = call_value(f, e, callee, NULL);
        else if (!tide_is_aborting(m))
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s cannot be called", tide_kind_name(callee));
        return made;
    }
    tide_expr *name = e->a;
    if (name->meaning == TIDE_OPERATION) return tide_call_operation(f, e, name->target, NULL);
    if (name->meaning == TIDE_CLASS || (name->meaning == TIDE_BUILTIN && name->slot >= BUILTIN_PARAMETER))
        return tide_construct(f, e);
    if (name->meaning == TIDE_BUILTIN) {
        tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
        tide_text keywords[ARGUMENT_LIMIT];
        uint32_t named_count, count = tide_eval_arguments(f, e, positional, keywords, named, &named_count);
        tide_value made = m->has_failed                   ? tide_none()
                          : tide_calls_others(name->slot) ? tide_call_others(f, name->slot, positional, count)
                                                          : tide_call_builtin(m, name->slot, positional, count);
        tide_release_all(m, positional, count);
        tide_release_all(m, named, named_count);
        return made;
    }
    if (name->meaning == TIDE_FUNCTION || name->meaning == TIDE_METHOD) {
        tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
        tide_text keywords[ARGUMENT_LIMIT];
        uint32_t named_count, count = tide_eval_arguments(f, e, positional, keywords, named, &named_count);
        uint32_t statement = m->statement;
        tide_function *function = (tide_function *)name->target;
        tide_value made = tide_call_function(f->model, function, f->instance, f->scope, positional, count, keywords,
                                             named, named_count);
        m->statement = statement;
        return made;
    }
    tide_value callee = tide_eval(f, name);
    if (callee.kind == TIDE_VALUE_MODULE) return call_value(f, e, callee, NULL);
    if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' is %s and cannot be called", tide_terminated(m, name->text),
                  tide_kind_name(callee));
    tide_value_release(m, callee);
    return tide_none();
}

static tide_value eval_call(tide_frame *f, tide_expr *e) {
    tide_model *model = f->model;
    if (model->nesting >= NESTING_LIMIT) {
        tide_fail(model->m, TIDE_ERR_LIMIT, "calls nested deeper than %d", NESTING_LIMIT);
        return tide_none();
    }
    model->nesting++;
    tide_value made = eval_callee(f, e);
    model->nesting--;
    return made;
}

static tide_value eval_binary(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = tide_eval(f, e->a), b = tide_eval(f, e->b), made = tide_none();
    if (tide_is_aborting(m)) {
        made = tide_none();
    } else if (a.kind == TIDE_VALUE_TENSOR || b.kind == TIDE_VALUE_TENSOR) {
        bool is_none_test = e->kind == TIDE_EXPR_COMPARE && (a.kind == TIDE_VALUE_NONE || b.kind == TIDE_VALUE_NONE);
        if (is_none_test) {
            made = tide_of_bool(e->op == '!');
        } else if (e->target) {
            tide_value both[2] = {tide_value_retain(a), tide_value_retain(b)};
            made = tide_run_operation(m, e->target, both, 2);
            tide_release_all(m, both, 2);
        } else {
            tide_fail(m, TIDE_ERR_DESCRIPTION, "tensors have no %%");
        }
    } else {
        made =
            e->kind == TIDE_EXPR_BINARY ? tide_arithmetic(m, e->op, a, b) : tide_of_bool(tide_compare(m, e->op, a, b));
    }
    tide_value_release(m, a);
    tide_value_release(m, b);
    return made;
}

static tide_value comprehension(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
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

static tide_value eval_name(tide_frame *f, tide_expr *e) {
    tide_model *model = f->model;
    switch (e->meaning) {
    case TIDE_LOCAL:
        return tide_value_retain(f->locals[e->slot]);
    case TIDE_ATTRIBUTE:
        return tide_value_retain(model->instances[f->instance].slots[e->slot]);
    case TIDE_SIZE:
        return tide_scope_size(model, f->scope, e->slot);
    case TIDE_SETTING:
        if (model->settings[e->slot].value.kind >= TIDE_VALUE_TENSOR) model->setting_changes++; /* it may */
        return tide_setting(model, e->slot);
    case TIDE_CONFIGURATION:
        return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = model->scopes[f->scope].config};
    case TIDE_DTYPE_NAME:
        return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)e->slot};
    default:
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "'%s' is a function: it wants arguments",
                            tide_terminated(model->m, e->text));
    }
}

tide_value tide_eval_any(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a, made;
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
        return eval_call(f, e);
    case TIDE_EXPR_MEMBER:
        return eval_member(f, e);
    case TIDE_EXPR_INDEX:
        return eval_index(f, e);
    case TIDE_EXPR_NEGATE:
        a = tide_eval(f, e->a);
        if (a.kind == TIDE_VALUE_TENSOR)
            made = tide_run_operation(m, e->target, &a, 1);
        else
            made = tide_arithmetic(m, '-', tide_of_int(0), a);
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_NOT:
        a = tide_eval(f, e->a);
        made = tide_of_bool(!tide_is_true(m, a));
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
        a = tide_eval(f, e->a);
        if (tide_is_true(m, a) == (e->kind == TIDE_EXPR_OR)) return a;
        tide_value_release(m, a);
        return tide_eval(f, e->b);
    case TIDE_EXPR_COALESCE:
        a = tide_eval(f, e->a);
        return a.kind == TIDE_VALUE_NONE ? tide_eval(f, e->b) : a;
    case TIDE_EXPR_CHOICE:
        a = tide_eval(f, e->b);
        made = tide_is_true(m, a) ? tide_eval(f, e->a) : tide_eval(f, e->c);
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_BINARY:
    case TIDE_EXPR_COMPARE:
        return eval_binary(f, e);
    case TIDE_EXPR_LIST:
        if (e->count == 1 && e->items[0]->kind == TIDE_EXPR_COMPREHENSION) return comprehension(f, e->items[0]);
        made = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        made.list->is_output = e->integer;
        for (uint32_t i = 0; i < e->count; i++) tide_list_push(m, made.list, tide_eval(f, e->items[i]));
        return made;
    case TIDE_EXPR_COMPREHENSION:
        return comprehension(f, e);
    case TIDE_EXPR_SLICE:
    case TIDE_EXPR_ELLIPSIS:
        break;
    }
    return tide_nothing(m, TIDE_ERR_DESCRIPTION, "'%s' stands only in an index", ":");
}
/* ---- statements ---- */

void tide_set_local(tide_frame *f, uint32_t slot, tide_value v) {
    tide_value old = f->locals[slot];
    f->locals[slot] = v;
    tide_value_release(f->model->m, old);
}

static void assign(tide_frame *f, tide_statement *s, tide_value v) {
    tide_machine *m = f->model->m;
    if (s->target_count == 1) {
        tide_set_local(f, s->slots[0], v);
        return;
    }
    tide_value_is_read(v);
    if (v.kind == TIDE_VALUE_LIST && v.list->count == s->target_count) {
        for (uint32_t i = 0; i < s->target_count; i++)
            tide_set_local(f, s->slots[i], tide_value_retain(v.list->items[i]));
    } else if (!tide_is_aborting(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%u names for %s of %u", s->target_count, tide_kind_name(v),
                  v.kind == TIDE_VALUE_LIST ? v.list->count : 0);
    }
    tide_value_release(m, v);
}

static tide_outcome run_for(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    tide_value over = tide_eval(f, s->expr);
    tide_outcome out = GOES_ON;
    if (over.kind != TIDE_VALUE_LIST && !tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'for' over %s", tide_kind_name(over));
    tide_value_is_read(over);
    for (uint32_t i = 0; over.kind == TIDE_VALUE_LIST && i < over.list->count && out == GOES_ON && !tide_is_aborting(m);
         i++) {
        assign(f, s, tide_value_retain(over.list->items[i]));
        out = tide_run_block(f, s->body, result);
    }
    tide_value_release(m, over);
    return out;
}

tide_outcome tide_run_block(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    for (; s && !tide_is_aborting(m); s = s->next) {
        tide_outcome out = GOES_ON;
        m->statement = s->number;
        if (++m->op_count > m->op_limit)
            tide_fail(m, TIDE_ERR_LIMIT, "more statements than tidemark plays for one job");
        switch (s->kind) {
        case TIDE_STATEMENT_ASSIGN:
            assign(f, s, tide_eval(f, s->expr));
            break;
        case TIDE_STATEMENT_ADD: {
            tide_value old = tide_value_retain(f->locals[s->slots[0]]), by = tide_eval(f, s->expr), made = tide_none();
            if (tide_is_aborting(m))
                made = tide_none();
            else if (old.kind == TIDE_VALUE_TENSOR)
                made = tide_operate(f, "add_", old, by);
            else if (by.kind == TIDE_VALUE_TENSOR)
                made = tide_operate(f, "add", old, by); /* number += tensor */
            else
                made = tide_arithmetic(m, '+', old, by);
            tide_value_release(m, by);
            tide_value_release(m, old);
            tide_set_local(f, s->slots[0], made);
            break;
        }
        case TIDE_STATEMENT_EXPR:
            tide_value_release(m, tide_eval(f, s->expr));
            break;
        case TIDE_STATEMENT_RETURN:
            *result = s->expr ? tide_eval(f, s->expr) : tide_none();
            return RETURNED;
        case TIDE_STATEMENT_DELETE:
            for (uint32_t i = 0; i < s->target_count; i++) tide_set_local(f, s->slots[i], tide_none());
            break;
        case TIDE_STATEMENT_FOR:
            out = run_for(f, s, result);
            break;
        case TIDE_STATEMENT_IF: {
            tide_value condition = tide_eval(f, s->expr);
            bool holds = tide_is_true(m, condition);
            tide_value_release(m, condition);
            out = tide_run_block(f, holds ? s->body : s->otherwise, result);
            break;
        }
        case TIDE_STATEMENT_NO_GRAD:
        case TIDE_STATEMENT_NO_AUTOCAST: {
            bool *setting = s->kind == TIDE_STATEMENT_NO_GRAD ? &m->state.grad_enabled : &m->state.autocast_enabled,
                 before = *setting;
            *setting = false;
            out = tide_run_block(f, s->body, result);
            *setting = before;
            break;
        }
        }
        if (out == RETURNED) return RETURNED;
    }
    return GOES_ON;
}
