/* The interpreter: instances, names, Python's lifetimes.
 *
 * Note [Lifetimes]: a name lives until it is rebound or its function returns; the value of an expression until the
 * operation that takes it has returned. The arguments of a module stay alive until its call returns, because
 * Module._call_impl(*args, **kwargs) holds them; those of a plain function belong to its own names. */
#include "module.h"

#include <math.h>
#include <string.h>

#include "../base/checked.h"

/* Depths keep the host's stack below 512 KiB, which is what the WebAssembly module has. */
enum { CALL_DEPTH = 32, NESTING_LIMIT = 64, ARGUMENT_LIMIT = 64, INSTANCE_LIMIT = 1 << 20, LOOP_LIMIT = 1 << 20 };

typedef struct frame {
    tide_model *model;
    uint32_t instance, scope;
    tide_function *function;
    tide_value *locals;
} frame;

static tide_value eval_any(frame *f, tide_expr *e);
/* Most expressions are names of locals. */
static inline tide_value eval(frame *f, tide_expr *e) {
    return e->kind == TIDE_EXPR_NAME && e->meaning == TIDE_LOCAL ? tide_value_retain(f->locals[e->slot]) : eval_any(f, e);
}
static tide_value call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional, uint32_t count,
                              const tide_text *keywords, const tide_value *named, uint32_t named_count);

static tide_value nothing(tide_machine *m, tide_status status, const char *format, const char *what) {
    tide_fail(m, status, format, what);
    return tide_none();
}

static const char *terminated(tide_machine *m, tide_text text) {
    return tide_text_copy(m->arena, text);
}

/* ---- binding: what a name means ---- */

static const struct {
    const char *name;
    tide_dtype dtype;
} dtype_words[] = {{"fp32", TIDE_FP32}, {"fp16", TIDE_FP16}, {"bf16", TIDE_BF16}, {"int64", TIDE_INT64},
                   {"int32", TIDE_INT32}, {"uint8", TIDE_UINT8}, {"int8", TIDE_INT8}, {"bool", TIDE_BOOL}, {"fp64", TIDE_FP64}, {"complex64", TIDE_COMPLEX64}};

typedef enum builtin { BUILTIN_RANGE, BUILTIN_LEN, BUILTIN_IS_LIST, BUILTIN_MIN, BUILTIN_MAX, BUILTIN_SQRT, BUILTIN_ROOT, BUILTIN_CONTAINS, BUILTIN_ERROR, BUILTIN_DEEPCOPY, BUILTIN_APPLY, BUILTIN_PARAMETER,
                       BUILTIN_BUFFER, BUILTIN_AUTO_MODEL, BUILTIN_COUNT } builtin;
static const char *const builtin_names[BUILTIN_COUNT] = {"range", "len", "is_list", "min", "max", "isqrt", "root", "contains", "error", "deepcopy", "apply", "Parameter", "Buffer", "AutoModel"};

/* What a tensor answers to, see bind_expr. */
enum { MEMBER_NONE, MEMBER_SHAPE, MEMBER_DTYPE, MEMBER_REQUIRES_GRAD };

static uint32_t add_local(tide_model *model, tide_function *function, tide_text name) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], name)) return i;
    TIDE_ROOM(model->m->arena, function->locals, function->local_count, function->local_capacity);
    function->locals[function->local_count] = name;
    return function->local_count++;
}

static void collect_expr(tide_model *model, tide_function *function, const tide_expr *e) {
    if (!e) return;
    if (e->kind == TIDE_EXPR_COMPREHENSION) add_local(model, function, e->text);
    collect_expr(model, function, e->a);
    collect_expr(model, function, e->b);
    collect_expr(model, function, e->c);
    for (uint32_t i = 0; i < e->count; i++) collect_expr(model, function, e->items[i]);
}

static void collect_locals(tide_model *model, tide_function *function, tide_statement *s) {
    for (; s; s = s->next) {
        for (uint32_t i = 0; i < s->target_count; i++) s->slots[i] = add_local(model, function, s->targets[i]);
        collect_expr(model, function, s->expr);
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
static uint32_t attribute_slot(const tide_class *of, tide_text name) {
    for (uint32_t i = 0; i < of->member_count; i++)
        if (tide_text_equal(of->members[i].name, name)) return of->parameter_count + i;
    for (uint32_t i = 0; i < of->parameter_count; i++)
        if (tide_text_equal(of->parameters[i].name, name)) return i;
    return UINT32_MAX;
}

/* What is called is no number: sizes and settings of the same name do not hide a function. */
static bool bind_name(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e, bool is_called) {
    for (uint32_t i = 0; i < function->local_count; i++)
        if (tide_text_equal(function->locals[i], e->text)) {
            e->meaning = TIDE_LOCAL;
            e->slot = i;
            return true;
        }
    tide_class *of = function->of;
    if (of && (e->slot = attribute_slot(of, e->text)) != UINT32_MAX) {
        e->meaning = TIDE_ATTRIBUTE;
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
    for (size_t i = 0; i < sizeof dtype_words / sizeof *dtype_words; i++)
        if (tide_text_is(e->text, dtype_words[i].name)) {
            e->meaning = TIDE_DTYPE_NAME;
            e->slot = dtype_words[i].dtype;
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
        if (tide_text_is(e->text, builtin_names[i])) {
            e->meaning = TIDE_BUILTIN;
            e->slot = i;
            return true;
        }
    if ((e->target = tide_op_find(e->text))) {
        e->meaning = TIDE_OPERATION;
        return true;
    }
    if (tide_class_find(model->descriptions, from, e->text)) { /* found anew where it is used: a description may override it */
        e->meaning = TIDE_CLASS;
        return true;
    }
    return false;
}

/* ---- signatures of operations ---- */

typedef struct signature {
    tide_text names[12];
    tide_value defaults[12];
    bool has_default[12];
    uint32_t count;
    int32_t variadic;
} signature;

static tide_value default_value(tide_text text) {
    int64_t integer;
    if (tide_text_is(text, "none")) return tide_none();
    if (tide_text_is(text, "true") || tide_text_is(text, "false")) return tide_of_bool(text.at[0] == 't');
    if (tide_text_to_i64(&integer, text)) return tide_of_int(integer);
    if (text.length >= 2) text = (tide_text){text.at + 1, text.length - 2};
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = text};
}

static void read_signature(signature *s, const char *text) {
    *s = (signature){.variadic = -1};
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

/* An operation's signature is read once per call in the source; `order` says where each argument goes. */
typedef struct bound_call {
    signature s;
} bound_call;

static bool bind_operation_call(tide_model *model, tide_expr *e, const tide_op *op, uint32_t given) {
    bound_call *bound = TIDE_NEW(model->m->arena, bound_call, 1);
    read_signature(&bound->s, op->signature);
    e->order = TIDE_NEW(model->m->arena, uint32_t, e->count + 1);
    uint32_t next = given;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->keywords[i].length == 0) {
            e->order[i] = next;
            if ((int32_t)next != bound->s.variadic) next++;
            if (e->order[i] >= bound->s.count) {
                tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments (%s)", op->name, bound->s.count, op->signature);
                return false;
            }
            continue;
        }
        uint32_t at = 0;
        while (at < bound->s.count && !tide_text_equal(bound->s.names[at], e->keywords[i])) at++;
        if (at == bound->s.count) {
            tide_fail(model->m, TIDE_ERR_DESCRIPTION, "%s has no argument '%s' (%s)", op->name, terminated(model->m, e->keywords[i]), op->signature);
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
    return e->op == '+' ? "add" : e->op == '-' ? "sub" : e->op == '*' ? "mul" : e->op == '/' ? "div" : e->op == '|' ? "floor_divide" : NULL;
}

static bool bind_expr(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e);

static bool bind_named(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e, bool is_called) {
    if (e && e->kind == TIDE_EXPR_NAME) {
        if (bind_name(model, function, from, e, is_called)) return true;
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "'%s' in '%s' is no name, size, setting, function or operation",
                  terminated(model->m, e->text), terminated(model->m, function->name));
        return false;
    }
    return bind_expr(model, function, from, e);
}

static bool bind_expr(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e) {
    if (!e) return true;
    if (e->kind == TIDE_EXPR_NAME) return bind_named(model, function, from, e, false);
    if (!bind_named(model, function, from, e->a, e->kind == TIDE_EXPR_CALL)) return false;
    if (e->kind != TIDE_EXPR_CALL && !bind_expr(model, function, from, e->b)) return false;
    if (!bind_expr(model, function, from, e->c)) return false;
    for (uint32_t i = 0; i < e->count; i++)
        if (!bind_expr(model, function, from, e->items[i])) return false;
    if (e->kind == TIDE_EXPR_COMPREHENSION) e->slot = add_local(model, function, e->text);
    if (e->kind == TIDE_EXPR_MEMBER)
        e->slot = tide_text_is(e->text, "shape")           ? MEMBER_SHAPE
                  : tide_text_is(e->text, "dtype")         ? MEMBER_DTYPE
                  : tide_text_is(e->text, "requires_grad") ? MEMBER_REQUIRES_GRAD
                                                           : MEMBER_NONE;
    const char *operator= operator_name(e);
    if (operator) e->target = tide_op_find(tide_text_of(operator));
    if (e->kind == TIDE_EXPR_CALL && e->a->kind == TIDE_EXPR_NAME && e->a->meaning == TIDE_OPERATION)
        return bind_operation_call(model, e, e->a->target, 0);
    return true;
}

static bool bind_block(tide_model *model, tide_function *function, const tide_description *from, tide_statement *s) {
    for (; s; s = s->next)
        if (!bind_expr(model, function, from, s->expr) || !bind_block(model, function, from, s->body) ||
            !bind_block(model, function, from, s->otherwise))
            return false;
    return true;
}

static bool bind_function(tide_model *model, tide_function *function, const tide_description *from) {
    if (function->is_bound) return true;
    function->is_bound = true;
    if (!tide_function_read(model->descriptions, function)) {
        model->m->has_failed = true;
        return false;
    }
    if (!function->of) function->backward = tide_function_find(model->descriptions, from, tide_text_of(tide_format(model->m->arena, "%s_backward", terminated(model->m, function->name))));
    for (uint32_t i = 0; i < function->parameter_count; i++) add_local(model, function, function->parameters[i].name);
    for (uint32_t i = 0; i < function->parameter_count; i++)
        if (!bind_expr(model, function, from, function->parameters[i].otherwise)) return false;
    collect_locals(model, function, function->body);
    return bind_block(model, function, from, function->body);
}

/* ---- sizes: numbers from the configuration ---- */

static tide_value from_json(tide_machine *m, const tide_json *json) {
    switch (json->kind) {
    case TIDE_JSON_NULL: return tide_none();
    case TIDE_JSON_BOOL: return tide_of_bool(json->is_true);
    case TIDE_JSON_NUMBER:
        return json->is_integer ? tide_of_int(json->integer) : (tide_value){.kind = TIDE_VALUE_FLOAT, .number = json->number};
    case TIDE_JSON_STRING: return (tide_value){.kind = TIDE_VALUE_TEXT, .text = json->text};
    case TIDE_JSON_OBJECT: return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = json};
    case TIDE_JSON_ARRAY: break;
    }
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (const tide_json *item = json->first; item; item = item->next) tide_list_push(m, list.list, from_json(m, item));
    return list;
}

/* Names in a size: another size, then a key of the configuration, then a setting, then a function of the language. */
static tide_value eval_size(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss, int depth);

static tide_value scope_size(tide_model *model, uint32_t scope, uint32_t number) {
    tide_scope *s = &model->scopes[scope];
    if (number >= s->capacity) {
        uint32_t wider = number + 64;
        tide_value *values = TIDE_NEW(model->m->arena, tide_value, wider);
        uint8_t *states = TIDE_NEW(model->m->arena, uint8_t, wider);
        if (s->capacity) {
            memcpy(values, s->values, s->capacity * sizeof *values);
            memcpy(states, s->states, s->capacity);
        }
        s->values = values;
        s->states = states;
        s->capacity = wider;
    }
    if (s->states[number] == 2) return tide_value_retain(s->values[number]);
    tide_text name = model->size_names.names[number];
    const tide_size *size = tide_size_find(s->description, name);
    if (!size) return nothing(model->m, TIDE_ERR_DESCRIPTION, "the size '%s' is not defined in this description", terminated(model->m, name));
    if (s->states[number] == 1) return nothing(model->m, TIDE_ERR_DESCRIPTION, "the size '%s' depends on itself", terminated(model->m, name));
    s->states[number] = 1;
    tide_value value = eval_size(model, scope, size->expr, name, false, 0);
    if (value.kind == TIDE_VALUE_INT) value.symbol = tide_symbol_name(model->m, name);
    s = &model->scopes[scope];
    s->values[number] = value;
    s->states[number] = 2;
    return tide_value_retain(value);
}

static tide_value arithmetic(tide_machine *m, char op, tide_value a, tide_value b);
static int compare(tide_machine *m, char op, tide_value a, tide_value b);
static bool is_true(tide_machine *m, tide_value v);
static tide_value call_builtin(tide_machine *m, uint32_t which, tide_value *a, uint32_t count);
static tide_value deepcopy(tide_model *model, tide_value v, int depth);
static tide_value apply(tide_model *model, const tide_value *a, uint32_t count);
static tide_value call_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope, const tide_value *positional,
                                uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count);

static tide_value size_name(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss) {
    tide_scope *s = &model->scopes[scope];
    if (!tide_text_equal(e->text, self) && tide_size_find(s->description, e->text))
        return scope_size(model, scope, tide_name(&model->size_names, e->text));
    const tide_json *found = tide_json_find(s->config, e->text);
    if (found && (found->kind != TIDE_JSON_NULL || may_miss)) return from_json(model->m, found); /* null: not given */
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (tide_text_is(e->text, model->settings[i].name)) return tide_value_retain(model->settings[i].value);
    for (size_t i = 0; i < sizeof dtype_words / sizeof *dtype_words; i++)
        if (tide_text_is(e->text, dtype_words[i].name)) return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = dtype_words[i].dtype};
    if (may_miss) return tide_none();
    tide_machine *m = model->m;
    if (!m->has_failed) {
        m->has_failed = true;
        tide_error(m->diags, TIDE_ERR_FIELD_MISSING, tide_format(m->arena, "%s/%s", tide_json_place(m->arena, s->config, "/config.json"), terminated(m, e->text)),
                   tide_format(m->arena, "the configuration has no '%s', which the description '%s' reads", terminated(m, e->text), s->description->name.at),
                   "add the key, or check that model_type is right");
    }
    return tide_none();
}

static tide_value eval_size(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss, int depth) {
    tide_machine *m = model->m;
    if (m->has_failed || depth > 50) return depth > 50 ? nothing(m, TIDE_ERR_LIMIT, "sizes nested too deeply%s", "") : tide_none();
    tide_value a, b, made;
    switch (e->kind) {
    case TIDE_EXPR_NONE: return tide_none();
    case TIDE_EXPR_BOOL: return tide_of_bool(e->integer != 0);
    case TIDE_EXPR_INT: return tide_of_int(e->integer);
    case TIDE_EXPR_FLOAT: return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = e->number};
    case TIDE_EXPR_TEXT: return (tide_value){.kind = TIDE_VALUE_TEXT, .text = e->text};
    case TIDE_EXPR_NAME: return size_name(model, scope, e, self, may_miss);
    case TIDE_EXPR_MEMBER:
        a = eval_size(model, scope, e->a, self, may_miss, depth + 1);
        if (a.kind == TIDE_VALUE_CONFIG) {
            const tide_json *found = tide_json_find(a.config, e->text);
            if (found) return from_json(m, found);
        }
        tide_value_release(m, a);
        return may_miss ? tide_none() : nothing(m, TIDE_ERR_FIELD_MISSING, "the configuration has no nested '%s'", terminated(m, e->text));
    case TIDE_EXPR_COALESCE:
        a = eval_size(model, scope, e->a, self, true, depth + 1);
        return a.kind == TIDE_VALUE_NONE ? eval_size(model, scope, e->b, self, may_miss, depth + 1) : a;
    case TIDE_EXPR_CHOICE:
        a = eval_size(model, scope, e->b, self, false, depth + 1);
        return eval_size(model, scope, is_true(m, a) ? e->a : e->c, self, may_miss, depth + 1);
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
        a = eval_size(model, scope, e->a, self, false, depth + 1);
        if (is_true(m, a) == (e->kind == TIDE_EXPR_OR)) return a;
        tide_value_release(m, a);
        return eval_size(model, scope, e->b, self, false, depth + 1);
    case TIDE_EXPR_NOT:
        a = eval_size(model, scope, e->a, self, false, depth + 1);
        made = tide_of_bool(!is_true(m, a));
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_NEGATE:
        return arithmetic(m, '-', tide_of_int(0), eval_size(model, scope, e->a, self, false, depth + 1));
    case TIDE_EXPR_BINARY:
    case TIDE_EXPR_COMPARE:
        a = eval_size(model, scope, e->a, self, false, depth + 1);
        b = eval_size(model, scope, e->b, self, false, depth + 1);
        made = e->kind == TIDE_EXPR_BINARY ? arithmetic(m, e->op, a, b) : tide_of_bool(compare(m, e->op, a, b));
        tide_value_release(m, a);
        tide_value_release(m, b);
        return made;
    case TIDE_EXPR_INDEX:
        a = eval_size(model, scope, e->a, self, may_miss, depth + 1);
        b = e->count == 1 ? eval_size(model, scope, e->items[0], self, false, depth + 1) : tide_none();
        made = tide_none();
        if (a.kind == TIDE_VALUE_LIST && b.kind == TIDE_VALUE_INT && b.integer >= -(int64_t)a.list->count && b.integer < (int64_t)a.list->count)
            made = tide_value_retain(a.list->items[b.integer < 0 ? b.integer + a.list->count : b.integer]);
        else if (!m->has_failed) nothing(m, TIDE_ERR_FIELD_TYPE, "a size takes an item of what is no list, or beyond its end%s", "");
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_LIST:
        made = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (uint32_t i = 0; i < e->count; i++) tide_list_push(m, made.list, eval_size(model, scope, e->items[i], self, false, depth + 1));
        return made;
    case TIDE_EXPR_CALL:
        if (e->a->kind == TIDE_EXPR_NAME && e->count <= 8)
            for (uint32_t i = 0; i < BUILTIN_PARAMETER; i++) {
                if (!tide_text_is(e->a->text, builtin_names[i])) continue;
                tide_value arguments[8];
                for (uint32_t k = 0; k < e->count; k++) arguments[k] = eval_size(model, scope, e->items[k], self, false, depth + 1);
                made = m->has_failed ? tide_none() : call_builtin(m, i, arguments, e->count);
                for (uint32_t k = 0; k < e->count; k++) tide_value_release(m, arguments[k]);
                return made;
            }
        if (e->a->kind == TIDE_EXPR_NAME && e->count <= 8) {
            tide_function *function = tide_function_find(model->descriptions, model->scopes[scope].description, e->a->text);
            tide_value arguments[8];
            if (!function) return nothing(m, TIDE_ERR_DESCRIPTION, "a size calls '%s', which is no function", terminated(m, e->a->text));
            for (uint32_t k = 0; k < e->count; k++) arguments[k] = eval_size(model, scope, e->items[k], self, false, depth + 1);
            uint32_t statement = m->statement;
            made = call_function(model, function, 0, scope, arguments, e->count, NULL, NULL, 0);
            m->statement = statement;
            return made;
        }
        return nothing(m, TIDE_ERR_DESCRIPTION, "a size calls what is no function%s", "");
    default: return nothing(m, TIDE_ERR_DESCRIPTION, "a size uses what only statements may%s", "");
    }
}

/* ---- checks: what sizes and settings must keep to ---- */

/* A text of a check with {expression} as its value. */
static const char *check_text(tide_model *model, uint32_t scope, tide_text text, const char *place) {
    tide_machine *m = model->m;
    const char *out = "";
    while (text.length) {
        const char *open = memchr(text.at, '{', text.length), *end = text.at + text.length;
        const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
        size_t plain = close ? (size_t)(open - text.at) : text.length;
        out = tide_format(m->arena, "%s%.*s", out, (int)plain, text.at);
        text = (tide_text){text.at + plain, text.length - plain};
        if (!close) break;
        tide_expr *expr = tide_parse_expr(m->arena, (tide_text){open + 1, (size_t)(close - open) - 1}, place, m->diags);
        tide_value value = expr ? eval_size(model, scope, expr, TIDE_TEXT(""), true, 0) : tide_none();
        if (value.kind == TIDE_VALUE_INT) out = tide_format(m->arena, "%s%lld", out, (long long)value.integer);
        tide_value_release(m, value);
        text = (tide_text){close + 1, (size_t)(end - close) - 1};
    }
    return out;
}

/* One pair of "checks": an expression that must hold, and "key: what is wrong; what to do". A setting that nobody gave is
 * warned of, so that a model can be asked for by its name alone. */
static bool run_check(tide_model *model, uint32_t scope, const tide_json *check, const char *place) {
    tide_machine *m = model->m;
    const char *colon = check->kind == TIDE_JSON_STRING ? strstr(check->text.at, ": ") : NULL;
    if (!colon) {
        tide_error(m->diags, TIDE_ERR_DESCRIPTION, place, "a check is \"expression\": \"key: what is wrong; what to do\"", NULL);
        return false;
    }
    tide_expr *expr = tide_parse_expr(m->arena, check->key, place, m->diags);
    if (!expr) return false;
    tide_value holds = eval_size(model, scope, expr, TIDE_TEXT(""), false, 0);
    bool is_kept = is_true(m, holds), is_default = false;
    tide_value_release(m, holds);
    if (m->has_failed) return false;
    if (is_kept) return true;
    tide_text key = {check->text.at, (size_t)(colon - check->text.at)};
    const char *at = model->find_place(model->user, model->scopes[scope].config, key, &is_default);
    const char *wrong = check_text(model, scope, (tide_text){colon + 2, check->text.length - key.length - 2}, place);
    const char *semicolon = strstr(wrong, "; ");
    for (uint32_t i = 0; i < m->diags->count; i++) /* two modules may share a configuration */
        if (is_default && m->diags->items[i].severity == TIDE_WARNING && strcmp(m->diags->items[i].place, at) == 0) return true;
    tide_report(m->diags, is_default ? TIDE_WARNING : TIDE_ERROR, TIDE_ERR_FIELD_RANGE, at,
                semicolon ? tide_text_copy(m->arena, (tide_text){wrong, (size_t)(semicolon - wrong)}) : wrong, semicolon ? semicolon + 2 : NULL);
    return is_default;
}

/* The checks of a description and of what it extends, over one configuration. */
static void run_checks(tide_model *model, uint32_t scope) {
    tide_machine *m = model->m;
    if (!model->find_place) return;
    for (const tide_description *d = model->scopes[scope].description; d && !m->has_failed; d = d->parent) {
        const tide_json *checks = tide_json_at(d->json, "checks");
        for (const tide_json *check = checks ? checks->first : NULL; check; check = check->next)
            if (!run_check(model, scope, check, tide_format(m->arena, "/%s/checks", d->name.at))) m->has_failed = true;
    }
}

/* ---- numbers ---- */

static const char *kind_name(tide_value v) {
    static const char *const names[] = {"none", "a boolean", "an integer", "a number", "text", "a dtype", "a tensor", "a list", "a module", "a configuration"};
    return names[v.kind];
}

static tide_value arithmetic(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return tide_none();
    if (a.kind == TIDE_VALUE_LIST && b.kind == TIDE_VALUE_LIST && op == '+') {
        if (a.list->count + (uint64_t)b.list->count > LOOP_LIMIT) return nothing(m, TIDE_ERR_LIMIT, "a list of more than a million%s", "");
        tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        m->op_count += (a.list->count + b.list->count) / 64; /* what is long counts, in lists too */
        for (uint32_t i = 0; i < a.list->count; i++) tide_list_push(m, list.list, tide_value_retain(a.list->items[i]));
        for (uint32_t i = 0; i < b.list->count; i++) tide_list_push(m, list.list, tide_value_retain(b.list->items[i]));
        return list;
    }
    bool a_number = a.kind == TIDE_VALUE_INT || a.kind == TIDE_VALUE_FLOAT, b_number = b.kind == TIDE_VALUE_INT || b.kind == TIDE_VALUE_FLOAT;
    if (!a_number || !b_number) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%c between %s and %s", op == '|' ? '/' : op, kind_name(a), kind_name(b));
        return tide_none();
    }
    if (a.kind == TIDE_VALUE_INT && b.kind == TIDE_VALUE_INT) {
        int64_t made = 0;
        bool fits = true;
        if (op == '+') fits = tide_add_i64(&made, a.integer, b.integer);
        if (op == '-') fits = tide_sub_i64(&made, a.integer, b.integer);
        if (op == '*') fits = tide_mul_i64(&made, a.integer, b.integer);
        if (op == '/' || op == '|' || op == '%') {
            if (b.integer == 0) return nothing(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes%s", "");
            if (a.integer == INT64_MIN || b.integer == INT64_MIN) return nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
            int64_t quotient = a.integer / b.integer, rest = a.integer % b.integer;
            if (rest && (rest < 0) != (b.integer < 0)) quotient--, rest += b.integer;
            if (op == '/' && rest) {
                tide_fail(m, TIDE_ERR_FIELD_RANGE, "%lld does not divide by %lld", (long long)a.integer, (long long)b.integer);
                return tide_none();
            }
            made = op == '%' ? rest : quotient;
        }
        if (!fits) return nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
        tide_value value = tide_of_int(made);
        if (op != '%') value.symbol = tide_symbol_of(m, op == '|' ? '/' : op, a, b);
        return value;
    }
    double x = a.kind == TIDE_VALUE_INT ? (double)a.integer : a.number, y = b.kind == TIDE_VALUE_INT ? (double)b.integer : b.number, made = 0;
    if ((op == '/' || op == '|' || op == '%') && y == 0) return nothing(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes%s", "");
    if (op == '+') made = x + y;
    if (op == '-') made = x - y;
    if (op == '*') made = x * y;
    if (op == '/') made = x / y;
    if (op == '|' || op == '%') {
        double quotient = x / y;
        if (quotient > 9e15 || quotient < -9e15) return nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
        int64_t whole = (int64_t)quotient;
        if ((double)whole > quotient) whole--;
        return op == '|' ? tide_of_int(whole) : (tide_value){.kind = TIDE_VALUE_FLOAT, .number = x - (double)whole * y};
    }
    return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = made};
}

static int compare(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return 0;
    bool a_number = a.kind == TIDE_VALUE_INT || a.kind == TIDE_VALUE_FLOAT, b_number = b.kind == TIDE_VALUE_INT || b.kind == TIDE_VALUE_FLOAT;
    if (a_number && b_number) {
        double x = a.kind == TIDE_VALUE_INT ? (double)a.integer : a.number, y = b.kind == TIDE_VALUE_INT ? (double)b.integer : b.number;
        switch (op) {
        case '=': return x == y;
        case '!': return x != y;
        case '<': return x < y;
        case '>': return x > y;
        case 'l': return x <= y;
        default: return x >= y;
        }
    }
    if (op != '=' && op != '!') {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%s and %s have no order", kind_name(a), kind_name(b));
        return 0;
    }
    bool equal = a.kind == b.kind;
    if (equal && a.kind == TIDE_VALUE_TEXT) equal = tide_text_equal(a.text, b.text);
    if (equal && a.kind == TIDE_VALUE_BOOL) equal = a.truth == b.truth;
    if (equal && a.kind == TIDE_VALUE_DTYPE) equal = a.dtype == b.dtype;
    if (equal && a.kind == TIDE_VALUE_TENSOR) equal = a.tensor == b.tensor;
    if (equal && a.kind == TIDE_VALUE_LIST) equal = a.list == b.list;
    if (equal && a.kind == TIDE_VALUE_MODULE) equal = a.module == b.module;
    return equal == (op == '=');
}

static bool is_true(tide_machine *m, tide_value v) {
    switch (v.kind) {
    case TIDE_VALUE_NONE: return false;
    case TIDE_VALUE_BOOL: return v.truth;
    case TIDE_VALUE_INT: return v.integer != 0;
    case TIDE_VALUE_FLOAT: return v.number != 0;
    case TIDE_VALUE_TEXT: return v.text.length > 0;
    case TIDE_VALUE_LIST: return v.list->count > 0;
    case TIDE_VALUE_TENSOR: tide_fail(m, TIDE_ERR_DESCRIPTION, "a tensor has no truth here: its values are not computed"); return false;
    default: return true;
    }
}

/* error('key: text', value): at the place of the key where it names one, else where the model stands. */
static void say_error(tide_machine *m, const char *text, const char *about) {
    const tide_model *model = m->interpreter;
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    bool is_default = false, has_key = length && text[length] == ':' && text[length + 1] == ' ';
    if (m->has_failed) return;
    if (!has_key || !model->find_place) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "%s%s%s%s", text, *about ? ": '" : "", about, *about ? "'" : "");
        return;
    }
    const char *place = model->find_place(model->user, model->scopes[0].config, (tide_text){text, length}, &is_default);
    tide_error(m->diags, TIDE_ERR_UNSUPPORTED, place, tide_format(m->arena, "%s%s%s", text + length + 2, *about ? ": " : "", about), NULL);
    m->has_failed = true;
}

static tide_value call_builtin(tide_machine *m, uint32_t which, tide_value *a, uint32_t count) {
    if (count == 0) return nothing(m, TIDE_ERR_DESCRIPTION, "%s without arguments", builtin_names[which]);
    if (which == BUILTIN_ERROR) {
        tide_text text = a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
        const char *about = count > 1 && a[1].kind == TIDE_VALUE_TEXT  ? terminated(m, a[1].text)
                            : count > 1 && a[1].kind == TIDE_VALUE_INT ? tide_format(m->arena, "%lld", (long long)a[1].integer)
                                                                       : "";
        say_error(m, terminated(m, text), about);
        return tide_none();
    }
    if (which == BUILTIN_APPLY) return apply(m->interpreter, a, count);
    if (which == BUILTIN_DEEPCOPY) return deepcopy(m->interpreter, a[0], 0);
    if (which == BUILTIN_IS_LIST) return tide_of_bool(a[0].kind == TIDE_VALUE_LIST);
    if (which == BUILTIN_LEN) {
        if (a[0].kind == TIDE_VALUE_LIST) return tide_of_int(a[0].list->count);
        if (a[0].kind == TIDE_VALUE_CONFIG) return tide_of_int(a[0].config->count);
        return nothing(m, TIDE_ERR_DESCRIPTION, "len of %s", kind_name(a[0]));
    }
    if (which == BUILTIN_CONTAINS) {
        if (count != 2 || a[0].kind != TIDE_VALUE_LIST) return nothing(m, TIDE_ERR_DESCRIPTION, "contains(list, item) of %s", kind_name(a[0]));
        for (uint32_t i = 0; i < a[0].list->count; i++)
            if (compare(m, '=', a[0].list->items[i], a[1])) return tide_of_bool(true);
        return tide_of_bool(false);
    }
    if (which == BUILTIN_MIN || which == BUILTIN_MAX) {
        tide_value best = a[0];
        for (uint32_t i = 1; i < count; i++)
            if (compare(m, which == BUILTIN_MIN ? '<' : '>', a[i], best)) best = a[i];
        return tide_value_retain(best);
    }
    if (which == BUILTIN_ROOT) { /* of a number, as math.sqrt */
        double x = tide_arg_number(m, a[0]);
        return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = x > 0 ? sqrt(x) : 0};
    }
    for (uint32_t i = 0; i < count; i++)
        if (a[i].kind != TIDE_VALUE_INT) return nothing(m, TIDE_ERR_DESCRIPTION, "an integer is wanted, not %s", kind_name(a[i]));
    if (which == BUILTIN_SQRT) {
        int64_t root = 0;
        for (int64_t bit = INT64_C(1) << 31; bit; bit >>= 1) /* (2^32 - 1)^2 does not fit: 3037000499 is the largest root */
            if (root + bit <= 3037000499 && (root + bit) * (root + bit) <= a[0].integer) root += bit;
        return tide_of_int(root);
    }
    int64_t from = count > 1 ? a[0].integer : 0, to = count > 1 ? a[1].integer : a[0].integer;
    if (to > from && (uint64_t)to - (uint64_t)from > LOOP_LIMIT) return nothing(m, TIDE_ERR_LIMIT, "a range of more than a million%s", "");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (to > from) m->op_count += (uint64_t)(to - from) / 64;
    for (int64_t i = from; i < to; i++) tide_list_push(m, list.list, tide_of_int(i));
    return list;
}

/* ---- calls of operations ---- */

static tide_value run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count) {
    if (tide_is_winding_down(m)) return tide_none();
    if (++m->op_count > m->op_limit) return nothing(m, TIDE_ERR_LIMIT, "more operations than tidemark plays for one job%s", "");
    m->op = op->name;
    if (op->cast == TIDE_CAST_NONE || !m->autocast_enabled) return op->run(m, a);
    tide_value cast[12];
    memcpy(cast, a, count * sizeof *a);
    for (uint32_t i = count; i-- > 0;) { /* C++ evaluates arguments from the right; the caller holds the uncast ones */
        if (a[i].kind != TIDE_VALUE_TENSOR) continue;
        cast[i].tensor = op->cast == TIDE_CAST_LOWER ? tide_autocast_lower(m, a[i].tensor) : tide_autocast_fp32(m, a[i].tensor);
    }
    bool enabled = m->autocast_enabled;
    m->autocast_enabled = false;
    tide_value made = op->run(m, cast);
    m->autocast_enabled = enabled;
    for (uint32_t i = count; i-- > 0;)
        if (a[i].kind == TIDE_VALUE_TENSOR) tide_release(m, cast[i].tensor);
    return made;
}

static tide_value call_operation(frame *f, tide_expr *e, const tide_op *op, const tide_value *self) {
    tide_machine *m = f->model->m;
    const signature *s = &((bound_call *)(void *)e->b)->s;
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
        tide_value v = eval(f, e->items[i]);
        if ((int32_t)e->order[i] == s->variadic) {
            tide_list_push(m, a[s->variadic].list, v);
        } else {
            if (given[e->order[i]]) tide_value_release(m, a[e->order[i]]);
            a[e->order[i]] = v;
            given[e->order[i]] = true;
        }
    }
    tide_value made = tide_none();
    for (uint32_t i = 0; i < s->count && !tide_is_winding_down(m); i++)
        if (!given[i] && !s->has_default[i]) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s lacks an argument (%s)", op->name, op->signature);
    if (!tide_is_winding_down(m)) made = run_operation(m, op, a, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        if (given[i]) tide_value_release(m, a[i]);
    return made;
}

/* An operator of the language on tensors. */
static tide_value operate(frame *f, const char *name, tide_value a, tide_value b) {
    tide_machine *m = f->model->m;
    const tide_op *op = tide_op_find(tide_text_of(name));
    tide_value both[2] = {a, b};
    return run_operation(m, op, both, 2);
}

/* ---- functions ---- */

typedef enum outcome { GOES_ON, RETURNED } outcome;

static outcome run_block(frame *f, tide_statement *s, tide_value *result);

/* Runs a bound function; takes the arguments over. */
static tide_value run_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope, tide_value *arguments, uint32_t count) {
    tide_machine *m = model->m;
    tide_value result = tide_none();
    if (model->depth >= CALL_DEPTH) tide_fail(m, TIDE_ERR_LIMIT, "calls nested deeper than %d", CALL_DEPTH);
    if (!tide_is_winding_down(m)) bind_function(model, function, model->scopes[scope].description);
    uint32_t slots = function->local_count > count ? function->local_count : count;
    tide_value *locals = tide_take(m, (slots + 1) * sizeof *locals);
    for (uint32_t i = 0; i < count; i++) locals[i] = arguments[i];
    frame f = {model, instance, scope, function, locals};
    model->depth++;
    if (!tide_is_winding_down(m)) run_block(&f, function->body, &result);
    model->depth--;
    for (uint32_t i = 0; i < slots; i++) tide_value_release(m, locals[i]);
    tide_give(m, locals, (slots + 1) * sizeof *locals);
    return result;
}

/* Arranges given arguments by a function's parameters; takes them over. */
static bool arrange(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope, const tide_value *positional, uint32_t count,
                    const tide_text *keywords, const tide_value *named, uint32_t named_count, tide_value *arranged) {
    tide_machine *m = model->m;
    uint64_t given = 0; /* a bit for each parameter */
    bool ok = true;
    if (!bind_function(model, function, model->scopes[scope].description)) ok = false;
    for (uint32_t i = 0; i < count; i++) {
        if (i < function->parameter_count) {
            arranged[i] = positional[i];
            given |= UINT64_C(1) << i;
        } else {
            tide_value_release(m, positional[i]);
            if (ok) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s takes %u arguments", terminated(m, function->name), function->parameter_count);
            ok = false;
        }
    }
    for (uint32_t i = 0; i < named_count; i++) {
        uint32_t at = 0;
        while (at < function->parameter_count && !tide_text_equal(function->parameters[at].name, keywords[i])) at++;
        if (at == function->parameter_count || given >> at & 1) {
            tide_value_release(m, named[i]);
            if (ok) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no free parameter '%s'", terminated(m, function->name), terminated(m, keywords[i]));
            ok = false;
            continue;
        }
        arranged[at] = named[i];
        given |= UINT64_C(1) << at;
    }
    frame f = {model, instance, scope, function, arranged};
    for (uint32_t i = 0; i < function->parameter_count; i++) {
        if (given >> i & 1) continue;
        arranged[i] = tide_none();
        if (function->parameters[i].otherwise) arranged[i] = eval(&f, function->parameters[i].otherwise);
        else if (ok && !tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s lacks '%s'", terminated(m, function->name), terminated(m, function->parameters[i].name));
    }
    return ok && !tide_is_winding_down(m);
}

static tide_value call_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope, const tide_value *positional,
                                uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_value arranged[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < function->parameter_count; i++) arranged[i] = tide_none();
    if (arrange(model, function, instance, scope, positional, count, keywords, named, named_count, arranged))
        return run_function(model, function, instance, scope, arranged, function->parameter_count);
    for (uint32_t i = 0; i < function->parameter_count; i++) tide_value_release(model->m, arranged[i]);
    return tide_none();
}

/* ---- torch.autograd.Function ---- */

/* apply('Name', inputs...) calls Name_forward(ctx, inputs...) without gradients; backward calls Name_backward(ctx, grad),
 * which returns the gradient of the first input, or a list with one for each. What ctx holds lives as long as the node. */
typedef struct applied {
    tide_held held;
    tide_function *backward;
    tide_value context;
} applied;

static void applied_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    applied *f = (applied *)node->held;
    tide_value arguments[2] = {tide_value_retain(f->context), tide_of_tensor(tide_retain(grads[0]))};
    tide_value made = call_function(m->interpreter, f->backward, 0, 0, arguments, 2, NULL, NULL, 0);
    for (unsigned i = 0; i < node->edge_count; i++) {
        tide_value v = made.kind == TIDE_VALUE_LIST ? (i < made.list->count ? made.list->items[i] : tide_none()) : i ? tide_none() : made;
        if (v.kind == TIDE_VALUE_TENSOR) results[i] = tide_retain(v.tensor);
    }
    tide_value_release(m, made);
}

static void applied_drop(tide_machine *m, tide_held *held) {
    applied *f = (applied *)held;
    tide_value_release(m, f->context);
    tide_give(m, f, sizeof *f);
}

static const tide_backward applied_backward = {"FunctionBackward", applied_run};

static tide_value apply(tide_model *model, const tide_value *a, uint32_t count) {
    tide_machine *m = model->m;
    tide_text name = a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
    tide_function *forward = tide_function_find(model->descriptions, NULL, tide_text_of(tide_format(m->arena, "%.*s_forward", (int)name.length, name.at)));
    tide_function *backward = tide_function_find(model->descriptions, NULL, tide_text_of(tide_format(m->arena, "%.*s_backward", (int)name.length, name.at)));
    if (!forward || !backward) return nothing(m, TIDE_ERR_DESCRIPTION, "the library has no functions %s_forward and _backward", terminated(m, name));
    tide_tensor *inputs[ARGUMENT_LIMIT];
    tide_value arguments[ARGUMENT_LIMIT] = {{.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)}};
    for (uint32_t i = 1; i < count; i++) {
        inputs[i - 1] = a[i].kind == TIDE_VALUE_TENSOR ? a[i].tensor : NULL;
        arguments[i] = tide_value_retain(a[i]);
    }
    tide_node *node = tide_node_new(m, &applied_backward, inputs, (int)count - 1);
    tide_value context = tide_value_retain(arguments[0]);
    bool grad_enabled = m->grad_enabled;
    m->grad_enabled = false;
    tide_value made = call_function(model, forward, 0, 0, arguments, count, NULL, NULL, 0);
    m->grad_enabled = grad_enabled;
    if (node && made.kind == TIDE_VALUE_TENSOR) {
        applied *f = tide_take(m, sizeof *f);
        *f = (applied){{NULL, applied_drop}, backward, context};
        node->held = &f->held;
        tide_made_by(m, node, made.tensor);
        return made;
    }
    tide_value_release(m, context);
    if (node) tide_node_release(m, node);
    return made;
}

/* ---- modules ---- */

/* What a checkpoint calls again: a module with its keyword arguments. */
typedef struct closure {
    tide_model *model;
    uint32_t instance;
    tide_function *method;
    uint32_t named_count;
    tide_text *keywords;
    tide_value *named;
} closure;

static tide_value call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count) {
    closure *c = function;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) positional[i] = tide_value_retain(inputs[i]);
    for (uint32_t i = 0; i < c->named_count; i++) named[i] = tide_value_retain(c->named[i]);
    uint32_t module = m->module;
    m->module = c->instance;
    tide_value made = call_function(c->model, c->method, c->instance, c->model->instances[c->instance].scope, positional, count, c->keywords, named, c->named_count);
    m->module = module;
    return made;
}

static void closure_free(tide_machine *m, void *function) {
    closure *c = function;
    for (uint32_t i = 0; i < c->named_count; i++) tide_value_release(m, c->named[i]);
    tide_give(m, c->named, (c->named_count + 1) * sizeof *c->named);
    tide_give(m, c->keywords, (c->named_count + 1) * sizeof *c->keywords);
    tide_give(m, c, sizeof *c);
}

static tide_value checkpointed(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional, uint32_t count,
                               const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    closure *c = tide_take(m, sizeof *c);
    *c = (closure){model, instance, method, named_count, NULL, NULL};
    c->keywords = tide_take(m, (named_count + 1) * sizeof *c->keywords);
    c->named = tide_take(m, (named_count + 1) * sizeof *c->named);
    for (uint32_t i = 0; i < named_count; i++) {
        c->keywords[i] = keywords[i];
        c->named[i] = tide_value_retain(named[i]);
    }
    tide_value inputs[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) inputs[i] = positional[i];
    return tide_checkpoint_call(m, model->is_reentrant, c, inputs, count);
}

/* A method, under a checkpoint where the module is one; the arguments are borrowed. */
static tide_value call_method(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional, uint32_t count,
                              const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    const tide_instance *of = &model->instances[instance];
    tide_value kept[ARGUMENT_LIMIT], kept_named[ARGUMENT_LIMIT];
    if (of->of->is_checkpointed && model->is_checkpointing)
        return checkpointed(model, instance, method, positional, count, keywords, named, named_count);
    for (uint32_t i = 0; i < count; i++) kept[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) kept_named[i] = tide_value_retain(named[i]);
    model->m->module = instance;
    tide_value made = call_function(model, method, instance, of->scope, kept, count, keywords, kept_named, named_count);
    if (of->makes_grad && made.kind == TIDE_VALUE_TENSOR && model->m->grad_enabled)
        made.tensor->requires_grad = true; /* output.requires_grad_(True): a leaf where nothing before it trains */
    return made;
}

/* nn.Module.__call__ with the hooks of a wrapper, whose replacements of the arguments live as long as the call. */
static tide_value call_hooked(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional, uint32_t count,
                              const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    tide_value given[ARGUMENT_LIMIT], given_named[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) given[i] = tide_value_retain(positional[i]);
    for (uint32_t i = 0; i < named_count; i++) given_named[i] = tide_value_retain(named[i]);
    model->before_forward(model, instance, given, count, given_named, named_count);
    tide_value made = call_method(model, instance, method, given, count, keywords, given_named, named_count);
    if (!tide_is_winding_down(m)) model->after_forward(model, instance, &made);
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, given[i]);
    for (uint32_t i = 0; i < named_count; i++) tide_value_release(m, given_named[i]);
    return made;
}

/* Calls a method of a module, or without one the module; the arguments are borrowed and so outlive the call. */
static tide_value call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional, uint32_t count,
                              const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    bool is_hooked = !method && model->before_forward && !tide_is_winding_down(m);
    if (!method) method = of->of->forward;
    if (!method) return nothing(m, TIDE_ERR_DESCRIPTION, "%s has no forward()", terminated(m, of->of->name));
    uint32_t module = m->module, statement = m->statement;
    tide_value made = (is_hooked ? call_hooked : call_method)(model, instance, method, positional, count, keywords, named, named_count);
    m->module = module;
    m->statement = statement;
    return made;
}

/* ---- expressions ---- */

static tide_value shape_value(frame *f, const tide_tensor *t) {
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(f->model->m)};
    for (int i = 0; i < t->shape->dims; i++)
        tide_list_push(f->model->m, list.list, (tide_value){.kind = TIDE_VALUE_INT, .symbol = t->shape->name[i], .integer = t->shape->size[i]});
    return list;
}

/* The module that answers for a name: itself, or what it delegates to (peft: BaseTunerLayer's properties). */
static uint32_t delegated(const tide_model *model, uint32_t module, tide_text name) {
    for (int depth = 0; depth < 4; depth++) {
        const tide_instance *of = &model->instances[module];
        if (!of->of->delegate.length || attribute_slot(of->of, name) != UINT32_MAX || tide_method_find(of->of, name)) break;
        uint32_t slot = attribute_slot(of->of, of->of->delegate);
        if (slot == UINT32_MAX || of->slots[slot].kind != TIDE_VALUE_MODULE) break;
        module = of->slots[slot].module;
    }
    return module;
}

static tide_value eval_member(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR) {
        if (e->slot == MEMBER_SHAPE) made = shape_value(f, a.tensor);
        else if (e->slot == MEMBER_DTYPE) made = (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)a.tensor->dtype};
        else if (e->slot == MEMBER_REQUIRES_GRAD) made = tide_of_bool(a.tensor->requires_grad);
        else tide_fail(m, TIDE_ERR_DESCRIPTION, "a tensor has no '%s'", terminated(m, e->text));
    } else if (a.kind == TIDE_VALUE_MODULE) {
        const tide_instance *of = &f->model->instances[delegated(f->model, a.module, e->text)];
        uint32_t slot = attribute_slot(of->of, e->text);
        if (slot == UINT32_MAX) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no '%s'", terminated(m, of->of->name), terminated(m, e->text));
        else made = tide_value_retain(of->slots[slot]);
        if (f->model->read_parameter && a.module != f->instance && made.kind == TIDE_VALUE_TENSOR && made.tensor->is_parameter)
            f->model->read_parameter(f->model, f->instance, made.tensor);
    } else if (!tide_is_winding_down(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' of %s", terminated(m, e->text), kind_name(a));
    }
    tide_value_release(m, a);
    return made;
}

/* x[a, :, b:c, ..., none, [i, j], tensor]: tensors, and lists that become tensors, stand side by side. */
static tide_value index_tensor(frame *f, tide_expr *e, tide_tensor *x) {
    tide_machine *m = f->model->m;
    tide_tensor *at = tide_retain(x);
    int named = 0, dim = 0;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->items[i]->kind != TIDE_EXPR_ELLIPSIS && e->items[i]->kind != TIDE_EXPR_NONE) named++;
    bool has_changed = false;
    int from = 0;
    tide_value indices = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 0; i < e->count && !tide_is_winding_down(m); i++) {
        tide_expr *item = e->items[i];
        tide_tensor *made = NULL;
        if (item->kind == TIDE_EXPR_ELLIPSIS) {
            dim += x->shape->dims - named > 0 ? x->shape->dims - named : 0;
            continue;
        }
        if (item->kind == TIDE_EXPR_NONE) {
            made = tide_unsqueeze(m, at, dim++);
        } else if (item->kind == TIDE_EXPR_SLICE) {
            tide_value start = item->a ? eval(f, item->a) : tide_of_int(0), stop = item->b ? eval(f, item->b) : tide_of_int(INT64_MAX);
            if (dim >= at->shape->dims) {
                tide_fail(m, TIDE_ERR_SHAPE, "more indices than dimensions of %s", tide_shape_text(m, at->shape));
                break;
            }
            if (item->c) {
                tide_value step = eval(f, item->c);
                m->op = "slice";
                made = tide_every(m, at, dim++, tide_arg_int(m, start), tide_arg_int(m, step));
                tide_release(m, at);
                at = made;
                has_changed = true;
                continue;
            }
            int64_t size = at->shape->size[dim], first = tide_arg_int(m, start), last = tide_arg_int(m, stop);
            if (first == 0 && last >= size) { /* a full range changes nothing */
                dim++;
                continue;
            }
            m->op = "slice";
            made = tide_slice(m, at, dim++, (tide_dim){first, start.symbol}, (tide_dim){last, stop.symbol});
        } else {
            tide_value index = eval(f, item);
            if (index.kind == TIDE_VALUE_LIST) { /* sequenceToVariable: numbers reach the device as int64 */
                tide_shape shape = tide_shape1((tide_dim){index.list->count, 0});
                tide_value_release(m, index);
                index = tide_of_tensor(tide_empty(m, &shape, TIDE_INT64));
            }
            if (index.kind == TIDE_VALUE_TENSOR) {
                if (indices.list->count == 0) from = dim;
                else if (from + (int)indices.list->count != dim) tide_fail(m, TIDE_ERR_DESCRIPTION, "tensors that index stand side by side");
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
    if (indices.list->count && !tide_is_winding_down(m)) {
        tide_value arguments[3] = {tide_of_tensor(at), indices, tide_of_int(from)};
        tide_value made = run_operation(m, tide_op_find(TIDE_TEXT("index")), arguments, 3);
        tide_value_release(m, indices);
        tide_release(m, at);
        return made;
    }
    tide_value_release(m, indices);
    if (!has_changed && !tide_is_winding_down(m)) { /* at::alias */
        tide_tensor *made = tide_slice(m, at, 0, (tide_dim){0, 0}, (tide_dim){INT64_MAX, 0});
        tide_release(m, at);
        at = made;
    }
    return tide_of_tensor(at);
}

static tide_value index_list(frame *f, tide_expr *e, tide_list *list) {
    tide_machine *m = f->model->m;
    tide_expr *item = e->items[0];
    if (item->kind == TIDE_EXPR_SLICE) {
        int64_t count = list->count;
        tide_value start = item->a ? eval(f, item->a) : tide_of_int(0), stop = item->b ? eval(f, item->b) : tide_of_int(count);
        int64_t from = tide_arg_int(m, start), to = tide_arg_int(m, stop);
        from = from < 0 ? (from + count > 0 ? from + count : 0) : from;
        to = to < 0 ? to + count : to > count ? count : to;
        tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (int64_t i = from; i < to; i++) tide_list_push(m, made.list, tide_value_retain(list->items[i]));
        return made;
    }
    tide_value index = eval(f, item);
    int64_t i = tide_arg_int(m, index);
    if (i < 0) i += list->count;
    if (i < 0 || i >= (int64_t)list->count || e->count != 1) {
        if (!tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a list of %u", (long long)i, list->count);
        return tide_none();
    }
    return tide_value_retain(list->items[i]);
}

/* x.shape[i], without a list for x.shape. */
static tide_value one_size(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value x = eval(f, e->a->a), made = tide_none();
    int64_t i = e->items[0]->kind == TIDE_EXPR_NEGATE ? -e->items[0]->a->integer : e->items[0]->integer;
    if (x.kind != TIDE_VALUE_TENSOR) {
        if (!tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'shape' of %s", kind_name(x));
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

static tide_value eval_index(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->a->kind == TIDE_EXPR_MEMBER && e->a->slot == MEMBER_SHAPE && e->count == 1 && is_literal(e->items[0])) return one_size(f, e);
    tide_value a = eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR) made = index_tensor(f, e, a.tensor);
    else if (a.kind == TIDE_VALUE_LIST) made = index_list(f, e, a.list);
    else if (!tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "an index into %s", kind_name(a));
    tide_value_release(m, a);
    return made;
}

/* Evaluates the arguments of a call: positional ones first in `values`, then those with keywords. */
static uint32_t eval_arguments(frame *f, tide_expr *e, tide_value *positional, tide_text *keywords, tide_value *named, uint32_t *named_count) {
    uint32_t count = 0;
    *named_count = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        tide_value v = eval(f, e->items[i]);
        if (e->keywords[i].length) {
            keywords[*named_count] = e->keywords[i];
            named[(*named_count)++] = v;
        } else {
            positional[count++] = v;
        }
    }
    return count;
}

static void release_all(tide_machine *m, const tide_value *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tide_value_release(m, values[i]);
}

static tide_value construct(frame *f, tide_expr *e);

/* ---- torch.autograd.Function: a function f beside which the description has f_backward(the tensors of f..., grad) ---- */

static void function_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_value arguments[ARGUMENT_LIMIT];
    uint32_t count = 0;
    for (; count < node->edge_count; count++) arguments[count] = tide_of_tensor(tide_saved_at(m, node, (int)count));
    arguments[count++] = tide_of_tensor(tide_retain(grads[0]));
    tide_function *backward = (tide_function *)(intptr_t)node->attribute[0];
    tide_value made = call_function(m->interpreter, backward, (uint32_t)node->attribute[1], (uint32_t)node->attribute[2], arguments, count, NULL, NULL, 0);
    uint32_t made_count = made.kind == TIDE_VALUE_LIST ? made.list->count : 1;
    for (uint32_t i = 0; i < node->edge_count && i < made_count; i++) {
        tide_value v = made.kind == TIDE_VALUE_LIST ? made.list->items[i] : made;
        if (v.kind == TIDE_VALUE_TENSOR && tide_wants(node, (int)i)) results[i] = tide_retain(v.tensor);
    }
    tide_value_release(m, made);
}
static const tide_backward function_backward = {"PythonFunction", function_run};

static tide_value call_autograd_function(frame *f, tide_function *function, tide_function *backward, const tide_value *arguments, uint32_t count) {
    tide_machine *m = f->model->m;
    tide_tensor *tensors[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count; i++) tensors[i] = arguments[i].kind == TIDE_VALUE_TENSOR ? arguments[i].tensor : NULL;
    tide_node *node = tide_node_with(m, &function_backward, tensors, (int)count, 1, (int)count);
    bool enabled = m->grad_enabled;
    m->grad_enabled = false;
    if (node) {
        node->attribute[0] = (intptr_t)backward;
        node->attribute[1] = f->instance;
        node->attribute[2] = f->scope;
        for (uint32_t i = 0; i < count; i++) tide_save(m, node, tensors[i]);
    }
    tide_value made = call_function(f->model, function, f->instance, f->scope, arguments, count, NULL, NULL, 0);
    m->grad_enabled = enabled;
    if (made.kind == TIDE_VALUE_TENSOR) tide_made_by(m, node, made.tensor);
    else if (node) tide_node_release(m, node);
    return made;
}

static tide_value call_value(frame *f, tide_expr *e, tide_value callee, tide_function *method) {
    tide_machine *m = f->model->m;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    tide_text keywords[ARGUMENT_LIMIT];
    uint32_t named_count, count = eval_arguments(f, e, positional, keywords, named, &named_count);
    tide_value made = tide_none();
    if (!tide_is_winding_down(m)) made = call_module(f->model, callee.module, method, positional, count, keywords, named, named_count);
    release_all(m, positional, count);
    release_all(m, named, named_count);
    return made;
}

static tide_value list_pop(tide_machine *m, tide_list *list, bool is_first) {
    if (!list->count) return nothing(m, TIDE_ERR_DESCRIPTION, "pop from an empty list%s", "");
    uint32_t at = is_first ? 0 : list->count - 1;
    tide_value made = list->items[at];
    memmove(&list->items[at], &list->items[at + 1], (--list->count - at) * sizeof *list->items);
    return made;
}

/* object.name(...): an operation on a tensor, a method or member of a module, append to and pop from a list. */
static tide_value call_member(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value object = eval(f, e->a->a), made = tide_none();
    if (object.kind == TIDE_VALUE_TENSOR) {
        if (!e->target || !e->b) {
            const tide_op *op = tide_op_find(e->a->text);
            if (!op) tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' is no operation", terminated(m, e->a->text));
            else bind_operation_call(f->model, e, op, 1);
        }
        if (!tide_is_winding_down(m)) made = call_operation(f, e, e->target, &object);
    } else if (object.kind == TIDE_VALUE_MODULE) {
        object.module = delegated(f->model, object.module, e->a->text);
        const tide_instance *of = &f->model->instances[object.module];
        tide_function *method = tide_method_find(of->of, e->a->text);
        uint32_t slot = method ? UINT32_MAX : attribute_slot(of->of, e->a->text);
        if (method) made = call_value(f, e, object, method);
        else if (slot != UINT32_MAX && of->slots[slot].kind == TIDE_VALUE_MODULE) made = call_value(f, e, of->slots[slot], NULL);
        else tide_fail(m, TIDE_ERR_DESCRIPTION, "%s has no function '%s'", terminated(m, of->of->name), terminated(m, e->a->text));
    } else if (object.kind == TIDE_VALUE_LIST && tide_text_is(e->a->text, "append") && e->count == 1) {
        tide_value v = eval(f, e->items[0]);
        if (object.list->count >= LOOP_LIMIT) tide_fail(m, TIDE_ERR_LIMIT, "a list of more than a million");
        tide_list_push(m, object.list, v);
    } else if (object.kind == TIDE_VALUE_LIST && tide_text_is(e->a->text, "pop") && e->count < 2) {
        made = list_pop(m, object.list, e->count == 1); /* pop() or pop(0) */
    } else if (!tide_is_winding_down(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' called on %s", terminated(m, e->a->text), kind_name(object));
    }
    tide_value_release(m, object);
    return made;
}

static tide_value eval_callee(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->a->kind == TIDE_EXPR_MEMBER) return call_member(f, e);
    if (e->a->kind != TIDE_EXPR_NAME) {
        tide_value callee = eval(f, e->a);
        tide_value made = tide_none();
        if (callee.kind == TIDE_VALUE_MODULE) made = call_value(f, e, callee, NULL);
        else if (!tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "%s cannot be called", kind_name(callee));
        return made;
    }
    tide_expr *name = e->a;
    if (name->meaning == TIDE_OPERATION) return call_operation(f, e, name->target, NULL);
    if (name->meaning == TIDE_CLASS || (name->meaning == TIDE_BUILTIN && name->slot >= BUILTIN_PARAMETER)) return construct(f, e);
    if (name->meaning == TIDE_BUILTIN) {
        tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
        tide_text keywords[ARGUMENT_LIMIT];
        uint32_t named_count, count = eval_arguments(f, e, positional, keywords, named, &named_count);
        tide_value made = m->has_failed ? tide_none() : call_builtin(m, name->slot, positional, count);
        release_all(m, positional, count);
        release_all(m, named, named_count);
        return made;
    }
    if (name->meaning == TIDE_FUNCTION || name->meaning == TIDE_METHOD) {
        tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
        tide_text keywords[ARGUMENT_LIMIT];
        uint32_t named_count, count = eval_arguments(f, e, positional, keywords, named, &named_count);
        uint32_t statement = m->statement;
        tide_function *function = (tide_function *)name->target;
        if (!tide_is_winding_down(m)) bind_function(f->model, function, f->model->scopes[f->scope].description);
        tide_value made = function->backward && !named_count && !m->has_failed
                              ? call_autograd_function(f, function, function->backward, positional, count)
                              : call_function(f->model, function, f->instance, f->scope, positional, count, keywords, named, named_count);
        m->statement = statement;
        return made;
    }
    tide_value callee = eval(f, name);
    if (callee.kind == TIDE_VALUE_MODULE) return call_value(f, e, callee, NULL);
    if (!tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'%s' is %s and cannot be called", terminated(m, name->text), kind_name(callee));
    tide_value_release(m, callee);
    return tide_none();
}

static tide_value eval_call(frame *f, tide_expr *e) {
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

static tide_value eval_binary(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a = eval(f, e->a), b = eval(f, e->b), made = tide_none();
    if (tide_is_winding_down(m)) {
        made = tide_none();
    } else if (a.kind == TIDE_VALUE_TENSOR || b.kind == TIDE_VALUE_TENSOR) {
        bool is_none_test = e->kind == TIDE_EXPR_COMPARE && (a.kind == TIDE_VALUE_NONE || b.kind == TIDE_VALUE_NONE);
        if (is_none_test) {
            made = tide_of_bool(e->op == '!');
        } else if (e->target) {
            tide_value both[2] = {tide_value_retain(a), tide_value_retain(b)};
            made = run_operation(m, e->target, both, 2);
            release_all(m, both, 2);
        } else {
            tide_fail(m, TIDE_ERR_DESCRIPTION, "tensors have no %%");
        }
    } else {
        made = e->kind == TIDE_EXPR_BINARY ? arithmetic(m, e->op, a, b) : tide_of_bool(compare(m, e->op, a, b));
    }
    tide_value_release(m, a);
    tide_value_release(m, b);
    return made;
}

static tide_value comprehension(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value over = eval(f, e->b), made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (over.kind != TIDE_VALUE_LIST && !tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'for' over %s", kind_name(over));
    for (uint32_t i = 0; over.kind == TIDE_VALUE_LIST && i < over.list->count && !tide_is_winding_down(m); i++) {
        tide_value_release(m, f->locals[e->slot]);
        f->locals[e->slot] = tide_value_retain(over.list->items[i]);
        if (++m->op_count > m->op_limit) tide_fail(m, TIDE_ERR_LIMIT, "more statements than tidemark plays for one job");
        tide_list_push(m, made.list, eval(f, e->a));
    }
    tide_value_release(m, f->locals[e->slot]);
    f->locals[e->slot] = tide_none();
    tide_value_release(m, over);
    return made;
}

static tide_value eval_name(frame *f, tide_expr *e) {
    tide_model *model = f->model;
    switch (e->meaning) {
    case TIDE_LOCAL: return tide_value_retain(f->locals[e->slot]);
    case TIDE_ATTRIBUTE: return tide_value_retain(model->instances[f->instance].slots[e->slot]);
    case TIDE_SIZE: return scope_size(model, f->scope, e->slot);
    case TIDE_SETTING: return tide_value_retain(model->settings[e->slot].value);
    case TIDE_CONFIGURATION: return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = model->scopes[f->scope].config};
    case TIDE_DTYPE_NAME: return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = (tide_dtype)e->slot};
    default: return nothing(model->m, TIDE_ERR_DESCRIPTION, "'%s' is a function: it wants arguments", terminated(model->m, e->text));
    }
}

static tide_value eval_any(frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value a, made;
    if (tide_is_winding_down(m)) return tide_none();
    switch (e->kind) {
    case TIDE_EXPR_NONE: return tide_none();
    case TIDE_EXPR_BOOL: return tide_of_bool(e->integer != 0);
    case TIDE_EXPR_INT: return tide_of_int(e->integer);
    case TIDE_EXPR_FLOAT: return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = e->number};
    case TIDE_EXPR_TEXT: return (tide_value){.kind = TIDE_VALUE_TEXT, .text = e->text};
    case TIDE_EXPR_NAME: return eval_name(f, e);
    case TIDE_EXPR_CALL: return eval_call(f, e);
    case TIDE_EXPR_MEMBER: return eval_member(f, e);
    case TIDE_EXPR_INDEX: return eval_index(f, e);
    case TIDE_EXPR_NEGATE:
        a = eval(f, e->a);
        if (a.kind == TIDE_VALUE_TENSOR) made = run_operation(m, e->target, &a, 1);
        else made = arithmetic(m, '-', tide_of_int(0), a);
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_NOT:
        a = eval(f, e->a);
        made = tide_of_bool(!is_true(m, a));
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
        a = eval(f, e->a);
        if (is_true(m, a) == (e->kind == TIDE_EXPR_OR)) return a;
        tide_value_release(m, a);
        return eval(f, e->b);
    case TIDE_EXPR_COALESCE:
        a = eval(f, e->a);
        return a.kind == TIDE_VALUE_NONE ? eval(f, e->b) : a;
    case TIDE_EXPR_CHOICE:
        a = eval(f, e->b);
        made = is_true(m, a) ? eval(f, e->a) : eval(f, e->c);
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_BINARY:
    case TIDE_EXPR_COMPARE: return eval_binary(f, e);
    case TIDE_EXPR_LIST:
        if (e->count == 1 && e->items[0]->kind == TIDE_EXPR_COMPREHENSION) return comprehension(f, e->items[0]);
        made = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (uint32_t i = 0; i < e->count; i++) tide_list_push(m, made.list, eval(f, e->items[i]));
        return made;
    case TIDE_EXPR_COMPREHENSION: return comprehension(f, e);
    case TIDE_EXPR_SLICE:
    case TIDE_EXPR_ELLIPSIS: break;
    }
    return nothing(m, TIDE_ERR_DESCRIPTION, "'%s' stands only in an index", ":");
}

/* ---- statements ---- */

static void set_local(frame *f, uint32_t slot, tide_value v) {
    tide_value old = f->locals[slot];
    f->locals[slot] = v;
    tide_value_release(f->model->m, old);
}

static void assign(frame *f, tide_statement *s, tide_value v) {
    tide_machine *m = f->model->m;
    if (s->target_count == 1) {
        set_local(f, s->slots[0], v);
        return;
    }
    if (v.kind == TIDE_VALUE_LIST && v.list->count == s->target_count) {
        for (uint32_t i = 0; i < s->target_count; i++) set_local(f, s->slots[i], tide_value_retain(v.list->items[i]));
    } else if (!tide_is_winding_down(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%u names for %s of %u", s->target_count, kind_name(v), v.kind == TIDE_VALUE_LIST ? v.list->count : 0);
    }
    tide_value_release(m, v);
}

static outcome run_for(frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    tide_value over = eval(f, s->expr);
    outcome out = GOES_ON;
    if (over.kind != TIDE_VALUE_LIST && !tide_is_winding_down(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'for' over %s", kind_name(over));
    for (uint32_t i = 0; over.kind == TIDE_VALUE_LIST && i < over.list->count && out == GOES_ON && !tide_is_winding_down(m); i++) {
        assign(f, s, tide_value_retain(over.list->items[i]));
        out = run_block(f, s->body, result);
    }
    tide_value_release(m, over);
    return out;
}

static outcome run_block(frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    for (; s && !tide_is_winding_down(m); s = s->next) {
        outcome out = GOES_ON;
        m->statement = s->number;
        if (++m->op_count > m->op_limit) tide_fail(m, TIDE_ERR_LIMIT, "more statements than tidemark plays for one job");
        switch (s->kind) {
        case TIDE_STATEMENT_ASSIGN: assign(f, s, eval(f, s->expr)); break;
        case TIDE_STATEMENT_ADD: {
            tide_value old = tide_value_retain(f->locals[s->slots[0]]), by = eval(f, s->expr), made = tide_none();
            if (tide_is_winding_down(m)) made = tide_none();
            else if (old.kind == TIDE_VALUE_TENSOR) made = operate(f, "add_", old, by);
            else if (by.kind == TIDE_VALUE_TENSOR) made = operate(f, "add", old, by); /* number += tensor */
            else made = arithmetic(m, '+', old, by);
            tide_value_release(m, by);
            tide_value_release(m, old);
            set_local(f, s->slots[0], made);
            break;
        }
        case TIDE_STATEMENT_EXPR: tide_value_release(m, eval(f, s->expr)); break;
        case TIDE_STATEMENT_RETURN:
            *result = s->expr ? eval(f, s->expr) : tide_none();
            return RETURNED;
        case TIDE_STATEMENT_DELETE:
            for (uint32_t i = 0; i < s->target_count; i++) set_local(f, s->slots[i], tide_none());
            break;
        case TIDE_STATEMENT_FOR: out = run_for(f, s, result); break;
        case TIDE_STATEMENT_IF: {
            tide_value condition = eval(f, s->expr);
            bool holds = is_true(m, condition);
            tide_value_release(m, condition);
            out = run_block(f, holds ? s->body : s->otherwise, result);
            break;
        }
        case TIDE_STATEMENT_NO_GRAD: {
            bool enabled = m->grad_enabled;
            m->grad_enabled = false;
            out = run_block(f, s->body, result);
            m->grad_enabled = enabled;
            break;
        }
        }
        if (out == RETURNED) return RETURNED;
    }
    return GOES_ON;
}

/* ---- construction ---- */

static uint32_t scope_new(tide_model *model, tide_description *description, const tide_json *config) {
    TIDE_ROOM(model->m->arena, model->scopes, model->scope_count, model->scope_capacity);
    model->scopes[model->scope_count] = (tide_scope){.description = description, .config = config};
    return model->scope_count++;
}

static uint32_t intern(tide_arena *arena, const char ***list, uint32_t *count, uint32_t *capacity, tide_text text) {
    for (uint32_t i = *count; i-- > 0;) /* siblings share theirs: most often it is the newest */
        if (tide_text_is(text, (*list)[i])) return i;
    if (*count == *capacity) {
        size_t wider = *capacity ? *capacity * 2u : 16u;
        *list = tide_arena_grow(arena, *list, *capacity * sizeof **list, wider * sizeof **list);
        *capacity = (uint32_t)wider;
    }
    (*list)[*count] = tide_text_copy(arena, text);
    return (*count)++;
}

static bool is_number(tide_text text) {
    for (size_t i = 0; i < text.length; i++)
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    return text.length > 0;
}

/* The part is the first component of the path, base models left out; the layer is what follows up to a number. */
static void place_instance(tide_model *model, tide_instance *of) {
    tide_text path = tide_text_of(of->path);
    while (tide_text_starts(path, TIDE_TEXT("model.")) || tide_text_starts(path, TIDE_TEXT("base_model."))) {
        size_t skip = path.at[0] == 'm' ? 6 : 11;
        path = (tide_text){path.at + skip, path.length - skip};
    }
    size_t end = 0;
    while (end < path.length && path.at[end] != '.') end++;
    tide_text part = {path.at, end}, rest = {path.at + end, path.length - end};
    if (tide_text_is(part, "model") || tide_text_is(part, "base_model")) part.length = 0;
    of->part = intern(model->m->arena, &model->parts, &model->part_count, &model->part_capacity, part);
    if (rest.length) rest = (tide_text){rest.at + 1, rest.length - 1};
    size_t stop = 0;
    while (stop < rest.length) {
        size_t dot = stop;
        while (dot < rest.length && rest.at[dot] != '.') dot++;
        if (is_number((tide_text){rest.at + stop, dot - stop})) {
            stop = dot;
            break;
        }
        if (dot == rest.length) {
            size_t first = 0; /* no number: the first component */
            while (first < rest.length && rest.at[first] != '.') first++;
            stop = first;
            break;
        }
        stop = dot + 1;
    }
    of->layer = intern(model->m->arena, &model->layers, &model->layer_count, &model->layer_capacity, (tide_text){rest.at, stop});
}

static uint32_t instance_new(tide_model *model, tide_class *of, uint32_t scope) {
    if (model->instance_count >= INSTANCE_LIMIT) {
        tide_fail(model->m, TIDE_ERR_LIMIT, "more than a million modules");
        return 0;
    }
    TIDE_ROOM(model->m->arena, model->instances, model->instance_count, model->instance_capacity);
    model->instances[model->instance_count] = (tide_instance){.of = of, .scope = scope, .path = ""};
    model->instances[model->instance_count].slots = TIDE_NEW(model->m->arena, tide_value, of->parameter_count + of->member_count + 1);
    return model->instance_count++;
}

/* Runs a class's members in order; arguments are taken over. */
static uint32_t instantiate(tide_model *model, tide_class *of, uint32_t scope, const tide_value *positional, uint32_t count,
                            const tide_text *keywords, const tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    if (!of->constructor) {
        of->constructor = TIDE_NEW(m->arena, tide_function, 1);
        of->constructor->name = of->name;
        of->constructor->parameters = of->parameters;
        of->constructor->parameter_count = of->parameter_count;
        of->constructor->of = of;
        of->constructor->description = of->description;
        for (uint32_t i = 0; i < of->parameter_count; i++) add_local(model, of->constructor, of->parameters[i].name);
        for (uint32_t i = 0; i < of->member_count; i++) collect_expr(model, of->constructor, of->members[i].expr);
        for (uint32_t i = 0; i < of->parameter_count; i++) bind_expr(model, of->constructor, model->scopes[scope].description, of->parameters[i].otherwise);
        uint32_t members = of->member_count;
        for (uint32_t i = 0; i < members; i++) { /* a member sees those before it: its own name is a size */
            of->member_count = i;
            bind_expr(model, of->constructor, model->scopes[scope].description, of->members[i].expr);
        }
        of->member_count = members;
        of->constructor->is_bound = true;
    }
    uint32_t made = instance_new(model, of, scope);
    if (!made || m->has_failed) return 0;
    uint32_t slots = of->constructor->local_count;
    tide_value locals[ARGUMENT_LIMIT];
    if (slots > ARGUMENT_LIMIT) {
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d names in a constructor", ARGUMENT_LIMIT);
        return 0;
    }
    for (uint32_t i = 0; i < slots; i++) locals[i] = tide_none();
    arrange(model, of->constructor, made, scope, positional, count, keywords, named, named_count, locals);
    for (uint32_t i = 0; i < of->parameter_count; i++) model->instances[made].slots[i] = tide_value_retain(locals[i]);
    frame f = {model, made, scope, of->constructor, locals};
    for (uint32_t i = 0; i < of->member_count && !m->has_failed; i++) {
        if (model->depth >= CALL_DEPTH) tide_fail(m, TIDE_ERR_LIMIT, "modules nested deeper than %d", CALL_DEPTH);
        model->depth++;
        tide_value v = eval(&f, of->members[i].expr);
        model->depth--;
        model->instances[made].slots[of->parameter_count + i] = v;
    }
    for (uint32_t i = 0; i < slots; i++) tide_value_release(m, locals[i]);
    return made;
}

static tide_value make_parameter(frame *f, const tide_value *positional, uint32_t count, const tide_text *keywords, const tide_value *named,
                                 uint32_t named_count, bool is_buffer) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    tide_shape shape = {.dims = 0};
    tide_dtype dtype = model->dtype;
    bool trains = !is_buffer;
    for (uint32_t i = 0; i < count; i++)
        if (!tide_arg_shape(m, positional[i], &shape)) return tide_none();
    for (uint32_t i = 0; i < named_count; i++) {
        if (tide_text_is(keywords[i], "dtype") && named[i].kind == TIDE_VALUE_DTYPE) dtype = named[i].dtype;
        else if (tide_text_is(keywords[i], "requires_grad") && named[i].kind == TIDE_VALUE_BOOL) trains = trains && named[i].truth;
        else return nothing(m, TIDE_ERR_DESCRIPTION, "Parameter has no '%s'", terminated(m, keywords[i]));
    }
    for (int i = 0; i < shape.dims; i++)
        if (shape.size[i] <= 0 || shape.size[i] > INT64_C(1) << 40) {
            tide_fail(m, TIDE_ERR_FIELD_RANGE, "%s has a parameter of %s: every size must be positive", terminated(m, f->function->name), tide_shape_text(m, &shape));
            return tide_none();
        }
    tide_tensor *t = tide_empty_host(m, &shape, dtype);
    t->is_parameter = !is_buffer;
    t->requires_grad = trains && tide_dtype_is_float(dtype);
    return tide_of_tensor(t);
}

static tide_value construct(frame *f, tide_expr *e) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT], made = tide_none();
    tide_text keywords[ARGUMENT_LIMIT];
    uint32_t named_count, count = eval_arguments(f, e, positional, keywords, named, &named_count);
    uint32_t scope = f->scope;
    const tide_json *config = NULL;
    bool with_head = false; /* AutoModel(config=..., head=true): the first of the description's roots, as AutoModelForCausalLM */
    tide_text type = {"", 0}; /* AutoModel(config=..., model_type='...'): where the configuration does not say it */
    for (uint32_t i = 0; i < named_count;) {
        bool is_type = e->a->slot == BUILTIN_AUTO_MODEL && e->a->meaning == TIDE_BUILTIN && tide_text_is(keywords[i], "model_type");
        bool is_headed = e->a->slot == BUILTIN_AUTO_MODEL && e->a->meaning == TIDE_BUILTIN && tide_text_is(keywords[i], "head");
        if (!is_type && !is_headed && !tide_text_is(keywords[i], "config")) {
            i++;
            continue;
        }
        if (is_headed && named[i].kind == TIDE_VALUE_BOOL) with_head = named[i].truth;
        else if (is_type && named[i].kind == TIDE_VALUE_TEXT) type = named[i].text;
        else if (!is_type && !is_headed && named[i].kind == TIDE_VALUE_CONFIG) config = named[i].config;
        else tide_fail(m, TIDE_ERR_FIELD_MISSING, "%s wants a configuration, not %s", terminated(m, e->a->text), kind_name(named[i]));
        keywords[i] = keywords[named_count - 1];
        named[i] = named[--named_count];
    }
    if (m->has_failed) {
        release_all(m, positional, count);
        release_all(m, named, named_count);
        return made;
    }
    if (e->a->meaning == TIDE_BUILTIN && e->a->slot != BUILTIN_AUTO_MODEL) {
        made = make_parameter(f, positional, count, keywords, named, named_count, e->a->slot == BUILTIN_BUFFER);
        release_all(m, positional, count);
        release_all(m, named, named_count);
        return made;
    }
    tide_text class_name = e->a->text;
    tide_description *description = model->scopes[scope].description;
    if (e->a->meaning == TIDE_BUILTIN) {
        const tide_json *own = tide_json_at(config, "model_type");
        tide_text found;
        if (!type.length && own && own->kind == TIDE_JSON_STRING) type = own->text;
        if (!type.length || !model->find_model(model->user, type, &found, &class_name)) {
            tide_fail(m, TIDE_ERR_MODEL_UNKNOWN, "no description covers model_type '%s'", terminated(m, type));
        } else {
            description = tide_description_load(model->descriptions, found);
            if (!description) m->has_failed = true;
            const tide_json *roots = description && with_head ? tide_description_at(description, "roots") : NULL;
            if (roots && roots->first && roots->first->kind == TIDE_JSON_STRING) class_name = roots->first->text;
        }
    }
    if (config && !m->has_failed) {
        scope = scope_new(model, description, config);
        run_checks(model, scope);
    }
    tide_class *of = m->has_failed ? NULL : tide_class_find(model->descriptions, description, class_name);
    if (!of && !m->has_failed) tide_fail(m, TIDE_ERR_DESCRIPTION, "no module '%s'", terminated(m, class_name));
    if (!of) {
        release_all(m, positional, count);
        release_all(m, named, named_count);
        return made;
    }
    uint32_t instance = instantiate(model, of, scope, positional, count, keywords, named, named_count);
    return instance ? (tide_value){.kind = TIDE_VALUE_MODULE, .module = instance} : tide_none();
}

/* ---- the whole model ---- */

static const char *where(tide_machine *m) {
    const tide_model *model = m->interpreter;
    const char *path = m->module && m->module < model->instance_count ? model->instances[m->module].path : "";
    tide_statement *s = m->statement && m->statement < model->descriptions->statement_capacity ? model->descriptions->statements[m->statement] : NULL;
    if (!s) return path;
    return tide_format(m->arena, "%s%s'%.*s'", path, *path ? ", " : "", (int)(s->text.length < 160 ? s->text.length : 160), s->text.at);
}

void tide_model_init(tide_model *model, tide_machine *m, tide_descriptions *descriptions) {
    *model = (tide_model){.m = m, .descriptions = descriptions};
    tide_names_init(&model->size_names, m->arena);
    m->interpreter = model;
    m->call_again = call_again;
    m->function_free = closure_free;
    m->where = where;
    TIDE_ROOM(m->arena, model->instances, model->instance_count, model->instance_capacity);
    model->instance_count = 1;
    model->instances[0].path = "";
    intern(m->arena, &model->parts, &model->part_count, &model->part_capacity, TIDE_TEXT(""));
    intern(m->arena, &model->layers, &model->layer_count, &model->layer_capacity, TIDE_TEXT(""));
}

static void name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name, int depth);

static void name_value(tide_model *model, tide_value v, uint32_t parent, tide_text name, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) name_instance(model, v.module, parent, name, depth);
    if (v.kind != TIDE_VALUE_LIST) return;
    for (uint32_t i = 0; i < v.list->count && depth <= CALL_DEPTH; i++) {
        char digits[TIDE_DIGITS];
        const char *item = tide_dotted(model->m->arena, name, (tide_text){digits, tide_digits(digits, i)});
        name_value(model, v.list->items[i], parent, tide_text_of(item), depth + 1);
    }
}

static void name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name, int depth) {
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH || (parent && *of->path)) return;
    const char *above = model->instances[parent].path;
    of->parent = parent;
    of->name = name;
    of->path = parent ? tide_dotted(model->m->arena, tide_text_of(above), name) : "";
    place_instance(model, of);
    for (uint32_t i = 0; i < of->of->member_count; i++)
        name_value(model, of->slots[of->of->parameter_count + i], instance, of->of->members[i].name, depth + 1);
}

/* The slot that a dotted path names, below an instance. */
static tide_value *slot_at(tide_model *model, uint32_t instance, tide_text path) {
    for (;;) {
        size_t dot = 0;
        while (dot < path.length && path.at[dot] != '.') dot++;
        const tide_instance *of = &model->instances[instance];
        uint32_t slot = attribute_slot(of->of, (tide_text){path.at, dot});
        if (slot == UINT32_MAX) return NULL;
        if (dot == path.length) return &of->slots[slot];
        if (of->slots[slot].kind != TIDE_VALUE_MODULE) return NULL;
        instance = of->slots[slot].module;
        path = (tide_text){path.at + dot + 1, path.length - dot - 1};
    }
}

static void tie_parameters(tide_model *model, uint32_t instance) {
    tide_machine *m = model->m;
    const tide_class *of = model->instances[instance].of;
    if (!of->ties || m->has_failed) return;
    if (of->tie_condition) {
        tide_value holds = eval_size(model, model->instances[instance].scope, of->tie_condition, TIDE_TEXT(""), false, 0);
        bool ties = is_true(m, holds);
        tide_value_release(m, holds);
        if (!ties) return;
    }
    for (const tide_statement *tie = of->ties; tie; tie = tie->next) {
        tide_value *to = slot_at(model, instance, tie->targets[0]), *from = slot_at(model, instance, tie->targets[1]);
        if (!to || !from || from->kind != TIDE_VALUE_TENSOR) {
            tide_fail(m, TIDE_ERR_DESCRIPTION, "the tie of '%s' to '%s' names no parameters", terminated(m, tie->targets[0]), terminated(m, tie->targets[1]));
            return;
        }
        tide_value_release(m, *to);
        *to = tide_value_retain(*from);
    }
}

static void list_parameters(tide_model *model, uint32_t instance, int depth);

/* A module, or a list of modules and lists. */
static void list_within(tide_model *model, tide_value v, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) list_parameters(model, v.module, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth <= CALL_DEPTH && k < v.list->count; k++) list_within(model, v.list->items[k], depth + 1);
}

static void list_parameters(tide_model *model, uint32_t instance, int depth) {
    tide_machine *m = model->m;
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH) return;
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind != TIDE_VALUE_TENSOR) continue;
        if (!v.tensor->is_parameter) {
            TIDE_ROOM(m->arena, model->buffers, model->buffer_count, model->buffer_capacity);
            model->buffers[model->buffer_count++] = v.tensor;
            continue;
        }
        bool is_listed = v.tensor->offset == -1; /* marks a parameter that is listed already */
        if (is_listed) continue;
        v.tensor->offset = -1;
        TIDE_ROOM(m->arena, model->parameters, model->parameter_count, model->parameter_capacity);
        model->parameters[model->parameter_count++] = (tide_parameter_row){
            v.tensor, instance, tide_dotted(m->arena, tide_text_of(of->path), of->of->members[i].name)};
    }
    for (uint32_t i = 0; i < of->of->member_count; i++) list_within(model, of->slots[of->of->parameter_count + i], depth + 1);
}

bool tide_model_build(tide_model *model, tide_description *description, tide_text class_name, const tide_json *config) {
    tide_machine *m = model->m;
    uint32_t scope = scope_new(model, description, config);
    tide_class *of = tide_class_find(model->descriptions, description, class_name);
    if (!of) {
        tide_fail(m, TIDE_ERR_MODEL_UNKNOWN, "the description '%s' has no module '%s'", description->name.at, terminated(m, class_name));
        return false;
    }
    run_checks(model, scope);
    if (m->has_failed) return false;
    model->root = instantiate(model, of, scope, NULL, 0, NULL, NULL, 0);
    if (!model->root || m->has_failed) return false;
    name_instance(model, model->root, 0, TIDE_TEXT(""), 0);
    for (uint32_t i = 1; i < model->instance_count; i++) tie_parameters(model, i);
    tide_model_list_parameters(model);
    return !m->has_failed;
}

void tide_model_list_parameters(tide_model *model) {
    model->parameter_count = 0;
    list_parameters(model, model->root, 0);
    for (uint32_t i = 0; i < model->parameter_count; i++) model->parameters[i].tensor->offset = 0;
}

/* ---- changing a model: what peft and bitsandbytes do to its tree ---- */

static void list_modules(tide_model *model, tide_value v, uint32_t *list, uint32_t *count, int depth) {
    if (v.kind == TIDE_VALUE_LIST)
        for (uint32_t i = 0; i < v.list->count; i++) list_modules(model, v.list->items[i], list, count, depth);
    if (v.kind != TIDE_VALUE_MODULE || depth > CALL_DEPTH || *count >= model->instance_count) return;
    const tide_instance *of = &model->instances[v.module];
    if (of->is_listed) return;
    model->instances[v.module].is_listed = true;
    list[(*count)++] = v.module;
    for (uint32_t i = 0; i < of->of->member_count; i++) list_modules(model, of->slots[of->of->parameter_count + i], list, count, depth + 1);
}

uint32_t *tide_model_modules(tide_model *model, uint32_t *count) {
    uint32_t *list = TIDE_NEW(model->m->arena, uint32_t, model->instance_count);
    *count = 0;
    list_modules(model, (tide_value){.kind = TIDE_VALUE_MODULE, .module = model->root}, list, count, 0);
    for (uint32_t i = 0; i < *count; i++) model->instances[list[i]].is_listed = false;
    return list;
}

uint32_t tide_model_find(tide_model *model, tide_text path) {
    const tide_value *found = path.length ? slot_at(model, model->root, path) : NULL;
    return found && found->kind == TIDE_VALUE_MODULE ? found->module : 0;
}

/* Puts a module where another one is, in a member or a list of their parent. */
static void take_place(tide_value *v, uint32_t old, uint32_t made) {
    if (v->kind == TIDE_VALUE_MODULE && v->module == old) v->module = made;
    for (uint32_t i = 0; v->kind == TIDE_VALUE_LIST && i < v->list->count; i++) take_place(&v->list->items[i], old, made);
}

uint32_t tide_model_wrap(tide_model *model, uint32_t instance, tide_text class_name, const tide_value *more, uint32_t more_count) {
    tide_machine *m = model->m;
    tide_value arguments[ARGUMENT_LIMIT] = {{.kind = TIDE_VALUE_MODULE, .module = instance}};
    tide_instance old = model->instances[instance];
    tide_class *of = tide_class_find(model->descriptions, model->scopes[old.scope].description, class_name);
    if (!of) tide_fail(m, TIDE_ERR_DESCRIPTION, "no module '%s'", terminated(m, class_name));
    if (!of || !old.parent) return 0;
    for (uint32_t i = 0; i < more_count; i++) arguments[i + 1] = tide_value_retain(more[i]);
    model->instances[instance].path = ""; /* named anew, below what is made */
    uint32_t made = instantiate(model, of, old.scope, arguments, more_count + 1, NULL, NULL, 0);
    if (!made || m->has_failed) return 0;
    tide_instance *parent = &model->instances[old.parent];
    for (uint32_t i = 0; i < parent->of->member_count; i++) take_place(&parent->slots[parent->of->parameter_count + i], instance, made);
    name_instance(model, made, old.parent, old.name, 0);
    return made;
}

static void claim(tide_machine *m, tide_value v, tide_factor factor) {
    if (v.kind == TIDE_VALUE_TENSOR) tide_set_factor(m, v.tensor, factor);
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++) claim(m, v.list->items[i], factor);
}

void tide_model_call(tide_model *model, uint32_t instance, tide_text method, tide_factor factor) {
    tide_machine *m = model->m;
    tide_function *function = tide_method_find(model->instances[instance].of, method);
    if (!function || m->has_failed) return;
    bool grad_enabled = m->grad_enabled;
    m->grad_enabled = false;
    tide_value_release(m, call_module(model, instance, function, NULL, 0, NULL, NULL, 0));
    m->grad_enabled = grad_enabled;
    const tide_instance *of = &model->instances[instance];
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind == TIDE_VALUE_LIST) claim(m, v, factor);
    }
}

int64_t tide_model_count(tide_model *model, const tide_parameter_row *parameter) {
    tide_function *numel = parameter->tensor->dtype == TIDE_UINT8 ? tide_method_find(model->instances[parameter->module].of, TIDE_TEXT("numel")) : NULL;
    tide_value made = numel ? call_module(model, parameter->module, numel, NULL, 0, NULL, NULL, 0) : tide_none();
    return made.kind == TIDE_VALUE_INT ? made.integer : tide_count(parameter->tensor);
}

/* copy.deepcopy: a module's parameters and buffers are cloned, in the order of its attributes. */
static tide_value deepcopy(tide_model *model, tide_value v, int depth) {
    tide_machine *m = model->m;
    if (v.kind == TIDE_VALUE_TENSOR) {
        bool is_host = v.tensor->storage->is_silent;
        tide_tensor *made = is_host ? tide_empty_host(m, v.tensor->shape, v.tensor->dtype) : tide_empty_like(m, v.tensor, v.tensor->dtype);
        made->is_parameter = v.tensor->is_parameter;
        made->requires_grad = v.tensor->requires_grad;
        tide_set_factor(m, made, made->is_parameter ? TIDE_FACTOR_PARAMETER : TIDE_FACTOR_BUFFER);
        return tide_of_tensor(made);
    }
    if (v.kind == TIDE_VALUE_LIST) {
        tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (uint32_t i = 0; i < v.list->count; i++) tide_list_push(m, made.list, deepcopy(model, v.list->items[i], depth));
        return made;
    }
    if (v.kind != TIDE_VALUE_MODULE || depth > CALL_DEPTH) return tide_value_retain(v);
    const tide_class *of = model->instances[v.module].of;
    uint32_t made = instance_new(model, model->instances[v.module].of, model->instances[v.module].scope);
    if (!made) return tide_none();
    for (uint32_t i = 0; i < of->parameter_count; i++) model->instances[made].slots[i] = tide_value_retain(model->instances[v.module].slots[i]);
    for (uint32_t pass = 0; pass < 2; pass++) /* Module.__dict__: _parameters and _buffers stand before _modules */
        for (uint32_t i = of->parameter_count; i < of->parameter_count + of->member_count; i++) {
            tide_value old = model->instances[v.module].slots[i];
            if ((old.kind != TIDE_VALUE_TENSOR) != pass) continue;
            tide_value copied = deepcopy(model, old, depth + 1);
            model->instances[made].slots[i] = copied;
        }
    return (tide_value){.kind = TIDE_VALUE_MODULE, .module = made};
}

static void give_storage(tide_model *model, uint32_t instance, tide_tensor *t, tide_factor factor) {
    tide_machine *m = model->m;
    if (!t->storage->is_silent || tide_count(t) == 0) return; /* shared with one that is there already */
    m->module = instance;
    m->factor = factor;
    m->op = "to";
    tide_tensor *made = tide_empty(m, t->shape, t->dtype);
    m->factor = TIDE_FACTOR_TEMPORARY;
    tide_storage *old = t->storage;
    t->storage = made->storage;
    made->storage = old;
    tide_release(m, made);
}

static void to_device(tide_model *model, uint32_t instance, int depth);

static void move_within(tide_model *model, tide_value v, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) to_device(model, v.module, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth <= CALL_DEPTH && k < v.list->count; k++) move_within(model, v.list->items[k], depth + 1);
}

static void to_device(tide_model *model, uint32_t instance, int depth) {
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH || model->m->has_failed) return;
    uint32_t first = of->of->parameter_count, end = first + of->of->member_count;
    for (uint32_t i = first; i < end; i++) move_within(model, of->slots[i], depth + 1);
    if (tide_method_find(of->of, TIDE_TEXT("cuda"))) { /* quantised as it moves */
        tide_model_call(model, instance, TIDE_TEXT("cuda"), TIDE_FACTOR_PARAMETER);
        return;
    }
    for (uint32_t i = first; i < end; i++)
        if (of->slots[i].kind == TIDE_VALUE_TENSOR && of->slots[i].tensor->is_parameter) give_storage(model, instance, of->slots[i].tensor, TIDE_FACTOR_PARAMETER);
    for (uint32_t i = first; i < end; i++)
        if (of->slots[i].kind == TIDE_VALUE_TENSOR && !of->slots[i].tensor->is_parameter) {
            give_storage(model, instance, of->slots[i].tensor, TIDE_FACTOR_BUFFER);
            model->buffer_bytes += (uint64_t)tide_bytes(of->slots[i].tensor);
        }
}

void tide_model_require_input_grads(tide_model *model) {
    for (uint32_t i = 1; i < model->instance_count; i++) {
        tide_text path = model->instances[i].of->input_embeddings;
        tide_value *found = path.length ? slot_at(model, i, path) : NULL;
        if (found && found->kind == TIDE_VALUE_MODULE) model->instances[found->module].makes_grad = true;
    }
}

void tide_model_to_device(tide_model *model) {
    to_device(model, model->root, 0);
    model->m->module = 0;
}

tide_value *tide_model_setting(tide_model *model, const char *name) {
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (strcmp(model->settings[i].name, name) == 0) return &model->settings[i].value;
    return NULL;
}

/* A root's method of this name, or the call of the root itself if NULL. */
static tide_value call_root(tide_model *model, tide_function *method, const char *const *names, const tide_value *values, uint32_t count) {
    tide_text keywords[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count && i < ARGUMENT_LIMIT; i++) keywords[i] = tide_text_of(names[i]);
    return call_module(model, model->root, method, NULL, 0, keywords, values, count);
}

tide_value tide_model_method(tide_model *model, tide_text name, const char *const *names, const tide_value *values, uint32_t count) {
    tide_function *method = tide_method_find(model->instances[model->root].of, name);
    return method ? call_root(model, method, names, values, count) : tide_none();
}

tide_value tide_model_forward(tide_model *model, const char *const *names, const tide_value *values, uint32_t count) {
    if (!model->instances[model->root].of->forward) return nothing(model->m, TIDE_ERR_DESCRIPTION, "the model has no forward()%s", "");
    return call_root(model, NULL, names, values, count);
}

tide_value tide_model_evaluate(tide_model *model, tide_expr *expr) {
    tide_function function = {.name = TIDE_TEXT("inputs"), .description = model->scopes[0].description};
    tide_value locals[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < ARGUMENT_LIMIT; i++) locals[i] = tide_none();
    collect_expr(model, &function, expr);
    if (!bind_expr(model, &function, model->scopes[0].description, expr)) return tide_none();
    if (function.local_count > ARGUMENT_LIMIT) return nothing(model->m, TIDE_ERR_LIMIT, "too many names%s", "");
    frame f = {model, model->root, 0, &function, locals};
    return eval(&f, expr);
}

void tide_model_loop(tide_model *model, tide_function *function, uint32_t turns,
                     void (*next)(void *user, uint32_t turn, tide_value *arguments), void *user) {
    tide_machine *m = model->m;
    if (tide_is_winding_down(m) || !bind_function(model, function, function->description)) return;
    tide_value arguments[ARGUMENT_LIMIT], result = tide_none(), *locals = tide_take(m, (function->local_count + 1) * sizeof *locals);
    frame f = {model, 0, 0, function, locals};
    for (uint32_t turn = 0; turn < turns && !tide_is_winding_down(m); turn++) {
        next(user, turn, arguments);
        for (uint32_t i = 0; i < function->parameter_count; i++) set_local(&f, i, arguments[i]);
        run_block(&f, function->body, &result);
        tide_value_release(m, result);
        result = tide_none();
    }
    for (uint32_t i = 0; i < function->local_count; i++) tide_value_release(m, locals[i]);
    tide_give(m, locals, (function->local_count + 1) * sizeof *locals);
}

tide_value tide_model_run(tide_model *model, tide_function *function, const tide_value *arguments, uint32_t count) {
    if (!model->scope_count) scope_new(model, function->description, NULL);
    tide_value kept[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count && i < ARGUMENT_LIMIT; i++) kept[i] = tide_value_retain(arguments[i]);
    return call_function(model, function, 0, 0, kept, count, NULL, NULL, 0);
}
