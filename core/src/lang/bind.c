/* Names get their meanings, and calls of operations their arguments, when a function is first called. What is made for
 * that lives as long as the descriptions, which may be longer than the model. */
#include "lang/interpreter.h"

/* ---- binding: what a name means ---- */

const char *const tide_builtin_names[BUILTIN_COUNT] = {"range",
                                                       "len",
                                                       "is_list",
                                                       "is_view",
                                                       "min",
                                                       "max",
                                                       "isqrt",
                                                       "root",
                                                       "contains",
                                                       "error",
                                                       "deepcopy",
                                                       "apply",
                                                       "checkpoint",
                                                       "checkpoint_without_output",
                                                       "discard_output",
                                                       "save_for_backward",
                                                       "set_setting",
                                                       "Parameter",
                                                       "Buffer",
                                                       "AutoModel"};

uint32_t tide_add_local(tide_model *model, tide_function *function, tide_text name) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], name)) return i;
    TIDE_ROOM(model->descriptions->arena, function->locals, function->local_count, function->local_capacity);
    function->locals[function->local_count] = name;
    return function->local_count++;
}

void tide_collect_expr(tide_model *model, tide_function *function, const tide_expr *e) {
    if (!e) return;
    if (e->kind == TIDE_EXPR_COMPREHENSION) tide_add_local(model, function, e->text);
    tide_collect_expr(model, function, e->a);
    tide_collect_expr(model, function, e->b);
    tide_collect_expr(model, function, e->c);
    for (uint32_t i = 0; i < e->count; i++) tide_collect_expr(model, function, e->items[i]);
}

static void collect_locals(tide_model *model, tide_function *function, tide_statement *s) {
    for (; s; s = s->next) {
        for (uint32_t i = 0; i < s->target_count; i++) s->slots[i] = tide_add_local(model, function, s->targets[i]);
        tide_collect_expr(model, function, s->expr);
        collect_locals(model, function, s->body);
        collect_locals(model, function, s->otherwise);
    }
}

static bool size_is_defined(const tide_model *model, tide_text name) {
    for (const tide_description *d = model->descriptions->first; d; d = d->next)
        for (const tide_size *s = d->sizes; s; s = s->next)
            if (tide_text_equal(s->name, name)) return true;
    return false;
}

/* The slot of a member, or else of a constructor argument. */
uint32_t tide_attribute_slot(const tide_class *of, tide_text name) {
    for (uint32_t i = 0; i < of->member_count; i++)
        if (tide_text_equal(of->members[i].name, name)) return of->parameter_count + i;
    for (uint32_t i = 0; i < of->parameter_count; i++)
        if (tide_text_equal(of->parameters[i].name, name)) return i;
    return UINT32_MAX;
}

/* What is called is no number: sizes and settings of the same name do not hide a function. */
static bool bind_name(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e,
                      bool is_called) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], e->text)) {
            e->meaning = TIDE_LOCAL;
            e->slot = i;
            return true;
        }
    tide_class *of = function->of;
    if (of && (e->slot = tide_attribute_slot(of, e->text)) != UINT32_MAX) {
        e->meaning = TIDE_ATTRIBUTE;
        if (function != of->constructor) of->read |= tide_slot_bit(e->slot);
        return true;
    }
    if (tide_text_is(e->text, "config")) {
        e->meaning = TIDE_CONFIGURATION;
        return true;
    }
    if (of && (e->target = tide_method_find(of, e->text))) {
        e->meaning = TIDE_METHOD;
        return true;
    }
    tide_dtype dtype;
    if (tide_dtype_named(e->text, &dtype)) {
        e->meaning = TIDE_DTYPE_NAME;
        e->slot = dtype;
        return true;
    }
    for (uint32_t i = 0; i < model->setting_count && !is_called; i++)
        if (tide_text_is(e->text, model->settings[i].name)) {
            e->meaning = TIDE_SETTING;
            e->slot = i;
            return true;
        }
    if (!is_called && size_is_defined(model, e->text)) {
        e->meaning = TIDE_SIZE;
        e->slot = tide_name(&model->size_names, e->text);
        return true;
    }
    if ((e->target = tide_function_find(model->descriptions, from, e->text))) {
        e->meaning = TIDE_FUNCTION;
        return true;
    }
    for (uint32_t i = 0; i < BUILTIN_COUNT; i++)
        if (tide_text_is(e->text, tide_builtin_names[i])) {
            e->meaning = TIDE_BUILTIN;
            e->slot = i;
            return true;
        }
    if ((e->target = tide_op_find(e->text))) {
        e->meaning = TIDE_OPERATION;
        return true;
    }
    if (tide_class_find(model->descriptions, from,
                        e->text)) { /* found anew where it is used: a description may override it */
        e->meaning = TIDE_CLASS;
        return true;
    }
    return false;
}

static tide_value default_value(tide_text text) {
    int64_t integer;
    if (tide_text_is(text, "none")) return tide_none();
    if (tide_text_is(text, "true") || tide_text_is(text, "false")) return tide_of_bool(text.at[0] == 't');
    if (tide_text_to_i64(&integer, text)) return tide_of_int(integer);
    if (text.length >= 2) text = (tide_text){text.at + 1, text.length - 2};
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = text};
}

static void read_signature(tide_signature *s, const char *text) {
    *s = (tide_signature){.variadic = -1};
    while (*text && s->count < 12) {
        while (*text == ' ' || *text == ',') text++;
        if (*text == '*') {
            s->variadic = (int32_t)s->count;
            text++;
        }
        const char *end = text;
        while (*end && *end != ',' && *end != '=') end++;
        s->names[s->count] = (tide_text){text, (size_t)(end - text)};
        if (*end == '=') {
            const char *value = end + 1;
            for (end = value; *end && *end != ',';) end++;
            s->defaults[s->count] = default_value((tide_text){value, (size_t)(end - value)});
            s->has_default[s->count] = true;
        }
        s->count++;
        text = end;
    }
}

bool tide_bind_operation_call(tide_model *model, tide_expr *e, const tide_op *op, uint32_t given) {
    tide_bound_call *bound = TIDE_NEW(model->descriptions->arena, tide_bound_call, 1);
    read_signature(&bound->s, op->signature);
    e->order = TIDE_NEW(model->descriptions->arena, uint32_t, e->count + 1);
    uint32_t next = given;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->keywords[i].length == 0) {
            e->order[i] = next;
            if ((int32_t)next != bound->s.variadic) next++;
            if (e->order[i] >= bound->s.count) {
                tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments (%s)", op->name, bound->s.count,
                          op->signature);
                return false;
            }
            continue;
        }
        uint32_t at = 0;
        while (at < bound->s.count && !tide_text_equal(bound->s.names[at], e->keywords[i])) at++;
        if (at == bound->s.count) {
            tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has no argument '%s' (%s)", op->name,
                      tide_terminated(model->m, e->keywords[i]), op->signature);
            return false;
        }
        e->order[i] = at;
    }
    e->target = op;
    e->b = (tide_expr *)(void *)bound; /* free in a call */
    return true;
}

/* The operation that an operator stands for on tensors; NULL: none. */
static const char *operator_name(const tide_expr *e) {
    if (e->kind == TIDE_EXPR_NEGATE) return "neg";
    if (e->kind == TIDE_EXPR_COMPARE) return "eq";
    if (e->kind != TIDE_EXPR_BINARY) return NULL;
    return e->op == '+'   ? "add"
           : e->op == '-' ? "sub"
           : e->op == '*' ? "mul"
           : e->op == '/' ? "div"
           : e->op == '|' ? "floor_divide"
                          : NULL;
}

static bool bind_named(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e,
                       bool is_called) {
    if (e && e->kind == TIDE_EXPR_NAME) {
        if (bind_name(model, function, from, e, is_called)) return true;
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "'%s' in '%s' is no name, size, setting, function or operation",
                  tide_terminated(model->m, e->text), tide_terminated(model->m, function->name));
        return false;
    }
    return tide_bind_expr(model, function, from, e);
}

bool tide_bind_expr(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e) {
    if (!e) return true;
    if (e->kind == TIDE_EXPR_NAME) return bind_named(model, function, from, e, false);
    if (!bind_named(model, function, from, e->a, e->kind == TIDE_EXPR_CALL)) return false;
    if (e->kind != TIDE_EXPR_CALL && !tide_bind_expr(model, function, from, e->b)) return false;
    if (!tide_bind_expr(model, function, from, e->c)) return false;
    for (uint32_t i = 0; i < e->count; i++)
        if (!tide_bind_expr(model, function, from, e->items[i])) return false;
    if (e->kind == TIDE_EXPR_COMPREHENSION) e->slot = tide_add_local(model, function, e->text);
    if (e->kind == TIDE_EXPR_MEMBER)
        e->slot = tide_text_is(e->text, "shape")           ? MEMBER_SHAPE
                  : tide_text_is(e->text, "dtype")         ? MEMBER_DTYPE
                  : tide_text_is(e->text, "requires_grad") ? MEMBER_REQUIRES_GRAD
                                                           : MEMBER_NONE;
    const char *operator= operator_name(e);
    if (operator) e->target = tide_op_find(tide_text_of(operator));
    if (e->kind == TIDE_EXPR_CALL && e->a->kind == TIDE_EXPR_NAME && e->a->meaning == TIDE_OPERATION)
        return tide_bind_operation_call(model, e, e->a->target, 0);
    return true;
}

static bool bind_block(tide_model *model, tide_function *function, const tide_description *from, tide_statement *s) {
    for (; s; s = s->next)
        if (!tide_bind_expr(model, function, from, s->expr) || !bind_block(model, function, from, s->body) ||
            !bind_block(model, function, from, s->otherwise))
            return false;
    return true;
}

bool tide_bind_function(tide_model *model, tide_function *function, const tide_description *from) {
    if (function->is_bound) return true;
    function->is_bound = true;
    if (!tide_function_read(model->descriptions, function)) {
        model->m->has_failed = true;
        return false;
    }
    for (uint32_t i = 0; i < function->parameter_count; i++)
        tide_add_local(model, function, function->parameters[i].name);
    for (uint32_t i = 0; i < function->parameter_count; i++)
        if (!tide_bind_expr(model, function, from, function->parameters[i].otherwise)) return false;
    collect_locals(model, function, function->body);
    return bind_block(model, function, from, function->body);
}

/* Gives the names in a class's members their meanings, once. */
bool tide_bind_members(tide_model *model, tide_class *of, const tide_description *from) {
    if (of->constructor) return true;
    tide_function *made = of->constructor = TIDE_NEW(model->descriptions->arena, tide_function, 1);
    made->name = of->name;
    made->parameters = of->parameters;
    made->parameter_count = of->parameter_count;
    made->of = of;
    made->description = of->description;
    bool ok = true;
    for (uint32_t i = 0; i < of->parameter_count; i++) tide_add_local(model, made, of->parameters[i].name);
    for (uint32_t i = 0; i < of->member_count; i++) tide_collect_expr(model, made, of->members[i].expr);
    for (uint32_t i = 0; i < of->parameter_count; i++)
        ok = tide_bind_expr(model, made, from, of->parameters[i].otherwise) && ok;
    uint32_t members = of->member_count;
    for (uint32_t i = 0; i < members; i++) { /* a member sees those before it: its own name is a size */
        of->member_count = i;
        ok = tide_bind_expr(model, made, from, of->members[i].expr) && ok;
    }
    of->member_count = members;
    made->is_bound = true;
    return ok;
}

bool tide_model_lint(tide_model *model, tide_description *from, tide_class *of, tide_function *function) {
    tide_machine *m = model->m;
    bool ok = function ? tide_bind_function(model, function, from)
                       : tide_class_find(model->descriptions, from, of->name) && tide_bind_members(model, of, from);
    m->has_failed = false;
    return ok;
}
