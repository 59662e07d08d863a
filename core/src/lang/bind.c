/* SPDX-License-Identifier: Apache-2.0 */
/* Binding: when a function is first called, its names get their meanings and its calls of operations their arguments.
 * The results live as long as the descriptions, which may be longer than the model. */
#include <assert.h>

#include "lang/inherit.h"
#include "lang/interpreter.h"

/* ---- locals ---- */

static uint32_t add_local(tide_model *model, tide_function *function, tide_text name) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], name)) return i;
    TIDE_ROOM(model->descriptions->arena, function->locals, function->local_count, function->local_capacity);
    function->locals[function->local_count] = name;
    return function->local_count++;
}

static void collect_expr_locals(tide_model *model, tide_function *function, const tide_expr *e) {
    if (!e) return;
    if (e->kind == TIDE_EXPR_COMPREHENSION) add_local(model, function, e->text);
    collect_expr_locals(model, function, e->a);
    collect_expr_locals(model, function, e->b);
    collect_expr_locals(model, function, e->c);
    for (uint32_t i = 0; i < e->count; i++) collect_expr_locals(model, function, e->items[i]);
}

static void collect_locals(tide_model *model, tide_function *function, tide_statement *s) {
    for (; s; s = s->next) {
        for (uint32_t i = 0; i < s->target_count; i++) s->slots[i] = add_local(model, function, s->targets[i]);
        collect_expr_locals(model, function, s->expr);
        collect_locals(model, function, s->body);
        collect_locals(model, function, s->otherwise);
    }
}

/* ---- what a name means ---- */

uint32_t tide_attribute_slot(const tide_class *of, tide_text name) {
    for (uint32_t i = 0; i < of->member_count; i++)
        if (tide_text_equal(of->members[i].name, name)) return of->parameter_count + i;
    for (uint32_t i = 0; i < of->parameter_count; i++)
        if (tide_text_equal(of->parameters[i].name, name)) return i;
    return UINT32_MAX;
}

static bool mean(tide_expr *e, tide_meaning meaning, uint32_t slot, const void *target) {
    e->meaning = meaning;
    e->slot = slot;
    e->target = target;
    return true;
}

/* A name of the function itself, or of its module. */
static bool bind_inner_name(tide_function *function, tide_expr *e) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], e->text)) return mean(e, TIDE_LOCAL, i, NULL);
    tide_class *of = function->of;
    uint32_t slot = of ? tide_attribute_slot(of, e->text) : UINT32_MAX;
    if (slot != UINT32_MAX) {
        if (function != of->constructor) of->read |= tide_slot_bit(slot);
        return mean(e, TIDE_ATTRIBUTE, slot, NULL);
    }
    if (tide_text_is(e->text, "config")) return mean(e, TIDE_CONFIGURATION, 0, NULL);
    const tide_function *method = of ? tide_method_find(of, e->text) : NULL;
    return method && mean(e, TIDE_METHOD, 0, method);
}

static bool bind_number(tide_model *model, const tide_function *function, tide_expr *e) {
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (tide_text_is(e->text, model->settings[i].name)) return mean(e, TIDE_SETTING, i, NULL);
    return tide_size_is_defined(function->description, e->text) &&
           mean(e, TIDE_SIZE, tide_name(&model->size_names, e->text), NULL);
}

/* A callee is not a number: sizes and settings do not hide a function of the same name, but a size may name a module.
 */
static bool bind_name(tide_model *model, tide_function *function, tide_expr *e, bool is_called) {
    tide_dtype dtype;
    const void *target;
    if (bind_inner_name(function, e)) return true;
    if (tide_dtype_named(e->text, &dtype)) return mean(e, TIDE_DTYPE_NAME, dtype, NULL);
    if (!is_called && bind_number(model, function, e)) return true;
    if ((target = tide_function_find(model->descriptions, function->description, e->text)))
        return mean(e, TIDE_FUNCTION, 0, target);
    if ((target = tide_builtin_find(e->text))) return mean(e, TIDE_BUILTIN, 0, target);
    if ((target = tide_op_find(e->text))) return mean(e, TIDE_OPERATION, 0, target);
    if (tide_class_find(model->descriptions, function->description, e->text)) return mean(e, TIDE_CLASS, 0, NULL);
    return is_called && bind_number(model, function, e);
}

/* ---- "did you mean" ---- */

typedef struct candidates {
    tide_arena *arena;
    const char **names;
    uint32_t count, capacity;
} candidates;

static void add_candidate(candidates *c, tide_text name) {
    TIDE_ROOM(c->arena, c->names, c->count, c->capacity);
    c->names[c->count++] = tide_text_copy(c->arena, name);
}

static void add_of_class(candidates *c, const tide_class *of) {
    for (uint32_t i = 0; i < of->member_count; i++) add_candidate(c, of->members[i].name);
    for (uint32_t i = 0; i < of->parameter_count; i++) add_candidate(c, of->parameters[i].name);
    for (const tide_function *f = of->methods; f; f = f->next) add_candidate(c, f->name);
}

/* The closest of all names that are valid here; NULL: none is close. */
static const char *near_name(const tide_model *model, const tide_function *function, tide_text name) {
    candidates c = {.arena = model->m->arena};
    for (uint32_t i = 0; i < function->local_count; i++)
        if (!tide_text_equal(function->locals[i], name)) add_candidate(&c, function->locals[i]);
    if (function->of) add_of_class(&c, function->of);
    for (uint32_t i = 0; i < model->setting_count; i++) add_candidate(&c, tide_text_of(model->settings[i].name));
    const tide_description *d;
    for (uint32_t at = 0; (d = tide_description_in_order(model->descriptions, function->description, at)); at++) {
        for (uint32_t i = 0; i < d->size_count; i++) add_candidate(&c, d->sizes[i].name);
        for (uint32_t i = 0; i < d->function_count; i++) add_candidate(&c, d->functions[i].name);
        for (uint32_t i = 0; i < d->module_count; i++) add_candidate(&c, d->modules[i].name);
    }
    for (uint32_t i = 0; i < tide_builtin_count; i++) add_candidate(&c, tide_text_of(tide_builtins[i].name));
    for (uint32_t i = 0; i < TIDE_OP_TABLES; i++)
        for (uint32_t k = 0; k < tide_op_tables[i]->count; k++)
            add_candidate(&c, tide_text_of(tide_op_tables[i]->ops[k].name));
    return tide_nearest(name, c.names, c.count);
}

static bool unknown_name(tide_model *model, const tide_function *function, const tide_expr *e) {
    tide_machine *m = model->m;
    if (tide_is_aborting(m)) return false;
    const char *near = near_name(model, function, e->text);
    tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' in '%s' is no name, size, setting, function or operation%s%s%s",
              tide_terminated(m, e->text), tide_terminated(m, function->name), near ? "; did you mean '" : "",
              near ? near : "", near ? "'?" : "");
    return false;
}

/* ---- calls of operations ---- */

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
    while (*text) {
        assert(s->count < OPERATION_ARGUMENTS);
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
    const tide_signature *s = &bound->signature;
    read_signature(&bound->signature, op->signature);
    bound->order = TIDE_NEW(model->descriptions->arena, uint32_t, e->count + 1);
    uint32_t next = given;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->keywords[i].length == 0) {
            bound->order[i] = next;
            if ((int32_t)next != s->variadic) next++;
            if (bound->order[i] < s->count) continue;
            tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments (%s)", op->name, s->count, op->signature);
            return false;
        }
        uint32_t at = 0;
        while (at < s->count && !tide_text_equal(s->names[at], e->keywords[i])) at++;
        if (at == s->count) {
            tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has no argument '%s' (%s)", op->name,
                      tide_terminated(model->m, e->keywords[i]), op->signature);
            return false;
        }
        bound->order[i] = at;
    }
    e->target = op;
    e->bound = bound;
    return true;
}

/* The operation that implements an operator on tensors; NULL: none. */
static const char *operator_name(const tide_expr *e) {
    if (e->kind == TIDE_EXPR_NEGATE) return "neg";
    if (e->kind == TIDE_EXPR_COMPARE) return "eq";
    if (e->kind != TIDE_EXPR_BINARY) return NULL;
    return e->op == '+'   ? "add"
           : e->op == '-' ? "sub"
           : e->op == '*' ? "mul"
           : e->op == '/' ? "div"
           : e->op == '|' ? "floor_divide"
           : e->op == '%' ? "remainder"
                          : NULL;
}

/* ---- expressions and functions ---- */

static bool bind_expr(tide_model *model, tide_function *function, tide_expr *e);

static bool bind_named(tide_model *model, tide_function *function, tide_expr *e, bool is_called) {
    if (!e || e->kind != TIDE_EXPR_NAME) return bind_expr(model, function, e);
    return bind_name(model, function, e, is_called) || unknown_name(model, function, e);
}

static bool bind_expr(tide_model *model, tide_function *function, tide_expr *e) {
    if (!e) return true;
    if (e->kind == TIDE_EXPR_NAME) return bind_named(model, function, e, false);
    if (!bind_named(model, function, e->a, e->kind == TIDE_EXPR_CALL) || !bind_expr(model, function, e->b) ||
        !bind_expr(model, function, e->c))
        return false;
    for (uint32_t i = 0; i < e->count; i++)
        if (!bind_expr(model, function, e->items[i])) return false;
    if (e->kind == TIDE_EXPR_COMPREHENSION) e->slot = add_local(model, function, e->text);
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

static bool bind_block(tide_model *model, tide_function *function, tide_statement *s) {
    for (; s; s = s->next)
        if (!bind_expr(model, function, s->expr) || !bind_block(model, function, s->body) ||
            !bind_block(model, function, s->otherwise))
            return false;
    return true;
}

bool tide_bind_function(tide_model *model, tide_function *function) {
    if (function->is_bound) return true;
    function->is_bound = true;
    if (!tide_function_read(model->descriptions, function)) {
        model->m->has_failed = true;
        return false;
    }
    for (uint32_t i = 0; i < function->parameter_count; i++) add_local(model, function, function->parameters[i].name);
    for (uint32_t i = 0; i < function->parameter_count; i++)
        if (!bind_expr(model, function, function->parameters[i].otherwise)) return false;
    if (function->local_count != function->parameter_count) { /* exactly one slot each: tide_call_function */
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has two parameters of one name, or a default with 'for'",
                  tide_terminated(model->m, function->name));
        return false;
    }
    collect_locals(model, function, function->body);
    return bind_block(model, function, function->body);
}

bool tide_bind_members(tide_model *model, tide_class *of) {
    if (of->constructor) return true;
    tide_function *made = of->constructor = TIDE_NEW(model->descriptions->arena, tide_function, 1);
    made->name = of->name;
    made->parameters = of->parameters;
    made->parameter_count = of->parameter_count;
    made->of = of;
    made->description = of->description;
    made->home = of->home;
    bool ok = true;
    for (uint32_t i = 0; i < of->parameter_count; i++) add_local(model, made, of->parameters[i].name);
    for (uint32_t i = 0; i < of->member_count; i++) collect_expr_locals(model, made, of->members[i].expr);
    for (uint32_t i = 0; i < of->parameter_count; i++) ok = bind_expr(model, made, of->parameters[i].otherwise) && ok;
    uint32_t members = of->member_count;
    for (uint32_t i = 0; i < members; i++) { /* a member sees those before it: its own name refers to a size */
        of->member_count = i;
        ok = bind_expr(model, made, of->members[i].expr) && ok;
    }
    of->member_count = members;
    made->is_bound = true;
    return ok;
}

bool tide_bind_alone(tide_model *model, tide_function *function, tide_expr *e) {
    collect_expr_locals(model, function, e);
    return bind_expr(model, function, e);
}

bool tide_model_check(tide_model *model, tide_class *of, tide_function *function) {
    bool ok = function ? tide_bind_function(model, function) : tide_bind_members(model, of);
    model->m->has_failed = false;
    return ok;
}
