/* Arithmetic, comparisons and the functions of the language. */
#include "lang/interpreter.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"

/* ---- numbers ---- */

const char *tide_kind_name(tide_value v) {
    static const char *const names[] = {"none",    "a boolean", "an integer", "a number", "text",
                                        "a dtype", "a tensor",  "a list",     "a module", "a configuration"};
    return names[v.kind];
}

tide_value tide_literal(const tide_expr *e) {
    switch (e->kind) {
    case TIDE_EXPR_BOOL:
        return tide_of_bool(e->integer != 0);
    case TIDE_EXPR_INT:
        return tide_of_int(e->integer);
    case TIDE_EXPR_FLOAT:
        return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = e->number};
    case TIDE_EXPR_TEXT:
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = e->text};
    default:
        return tide_none();
    }
}

tide_value tide_arithmetic(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return tide_none();
    if (a.kind == TIDE_VALUE_LIST && b.kind == TIDE_VALUE_LIST && op == '+') {
        if (a.list->count + (uint64_t)b.list->count > LOOP_LIMIT)
            return tide_nothing(m, TIDE_ERR_LIMIT, "a list of more than a million%s", "");
        tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        m->op_count += (a.list->count + b.list->count) / 64; /* what is long counts, in lists too */
        for (uint32_t i = 0; i < a.list->count; i++) tide_list_push(m, list.list, tide_value_retain(a.list->items[i]));
        for (uint32_t i = 0; i < b.list->count; i++) tide_list_push(m, list.list, tide_value_retain(b.list->items[i]));
        return list;
    }
    bool a_number = a.kind == TIDE_VALUE_INT || a.kind == TIDE_VALUE_FLOAT,
         b_number = b.kind == TIDE_VALUE_INT || b.kind == TIDE_VALUE_FLOAT;
    if (!a_number || !b_number) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%c between %s and %s", op == '|' ? '/' : op, tide_kind_name(a),
                  tide_kind_name(b));
        return tide_none();
    }
    if (a.kind == TIDE_VALUE_INT && b.kind == TIDE_VALUE_INT) {
        int64_t made = 0;
        bool fits = true;
        if (op == '+') fits = tide_add_i64(&made, a.integer, b.integer);
        if (op == '-') fits = tide_sub_i64(&made, a.integer, b.integer);
        if (op == '*') fits = tide_mul_i64(&made, a.integer, b.integer);
        if (op == '/' || op == '|' || op == '%') {
            if (b.integer == 0)
                return tide_nothing(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes%s", "");
            if (a.integer == INT64_MIN || b.integer == INT64_MIN)
                return tide_nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
            int64_t quotient = a.integer / b.integer, rest = a.integer % b.integer;
            if (rest && (rest < 0) != (b.integer < 0)) quotient--, rest += b.integer;
            if (op == '/' && rest) {
                tide_fail(m, TIDE_ERR_FIELD_RANGE, "%lld does not divide by %lld", (long long)a.integer,
                          (long long)b.integer);
                return tide_none();
            }
            made = op == '%' ? rest : quotient;
        }
        if (!fits) return tide_nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
        tide_value value = tide_of_int(made);
        if (op != '%') value.symbol = tide_symbol_of(m, op == '|' ? '/' : op, a, b);
        return value;
    }
    double x = a.kind == TIDE_VALUE_INT ? (double)a.integer : a.number,
           y = b.kind == TIDE_VALUE_INT ? (double)b.integer : b.number, made = 0;
    if ((op == '/' || op == '|' || op == '%') && y == 0)
        return tide_nothing(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes%s", "");
    if (op == '+') made = x + y;
    if (op == '-') made = x - y;
    if (op == '*') made = x * y;
    if (op == '/') made = x / y;
    if (op == '|' || op == '%') {
        double quotient = x / y;
        if (quotient > 9e15 || quotient < -9e15)
            return tide_nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
        int64_t whole = (int64_t)quotient;
        if ((double)whole > quotient) whole--;
        return op == '|' ? tide_of_int(whole) : (tide_value){.kind = TIDE_VALUE_FLOAT, .number = x - (double)whole * y};
    }
    return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = made};
}

int tide_compare(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return 0;
    bool a_number = a.kind == TIDE_VALUE_INT || a.kind == TIDE_VALUE_FLOAT,
         b_number = b.kind == TIDE_VALUE_INT || b.kind == TIDE_VALUE_FLOAT;
    if (a_number && b_number) {
        double x = a.kind == TIDE_VALUE_INT ? (double)a.integer : a.number,
               y = b.kind == TIDE_VALUE_INT ? (double)b.integer : b.number;
        switch (op) {
        case '=':
            return x == y;
        case '!':
            return x != y;
        case '<':
            return x < y;
        case '>':
            return x > y;
        case 'l':
            return x <= y;
        default:
            return x >= y;
        }
    }
    if (op != '=' && op != '!') {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%s and %s have no order", tide_kind_name(a), tide_kind_name(b));
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

bool tide_is_true(tide_machine *m, tide_value v) {
    tide_value_is_read(v);
    switch (v.kind) {
    case TIDE_VALUE_NONE:
        return false;
    case TIDE_VALUE_BOOL:
        return v.truth;
    case TIDE_VALUE_INT:
        return v.integer != 0;
    case TIDE_VALUE_FLOAT:
        return v.number != 0;
    case TIDE_VALUE_TEXT:
        return v.text.length > 0;
    case TIDE_VALUE_LIST:
        return v.list->count > 0;
    case TIDE_VALUE_TENSOR:
        tide_fail(m, TIDE_ERR_DESCRIPTION, "a tensor has no truth here: its values are not computed");
        return false;
    default:
        return true;
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
    tide_error(m->diags, TIDE_ERR_UNSUPPORTED, place,
               tide_format(m->arena, "%s%s%s", text + length + 2, *about ? ": " : "", about), NULL);
    m->has_failed = true;
}

tide_value tide_call_builtin(tide_machine *m, uint32_t which, tide_value *a, uint32_t count) {
    if (count == 0) return tide_nothing(m, TIDE_ERR_DESCRIPTION, "%s without arguments", tide_builtin_names[which]);
    for (uint32_t i = 0; i < count; i++)
        if (which != BUILTIN_IS_LIST && which != BUILTIN_SET_SETTING) tide_value_is_read(a[i]);
    if (which == BUILTIN_ERROR) {
        tide_text text = a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
        const char *about = count > 1 && a[1].kind == TIDE_VALUE_TEXT ? tide_terminated(m, a[1].text)
                            : count > 1 && a[1].kind == TIDE_VALUE_INT
                                ? tide_format(m->arena, "%lld", (long long)a[1].integer)
                                : "";
        say_error(m, tide_terminated(m, text), about);
        return tide_none();
    }
    if (which == BUILTIN_SAVE_FOR_BACKWARD) {
        for (uint32_t i = 0; i < count; i++)
            if (a[i].kind == TIDE_VALUE_TENSOR)
                tide_save(m, ((tide_model *)m->interpreter)->state.applied, a[i].tensor);
        return tide_none();
    }
    if (which == BUILTIN_SET_SETTING) { /* what forward() finds under this name from now on; the caller sets it back */
        tide_value *setting = count == 2 && a[0].kind == TIDE_VALUE_TEXT
                                  ? tide_model_setting(m->interpreter, tide_terminated(m, a[0].text))
                                  : NULL;
        if (!setting)
            return tide_nothing(m, TIDE_ERR_DESCRIPTION, "set_setting('name', value) of %s", tide_kind_name(a[0]));
        tide_value old = *setting;
        *setting = tide_value_retain(a[1]);
        ((tide_model *)m->interpreter)->setting_changes++;
        tide_value_release(m, old);
        return tide_none();
    }
    if (which == BUILTIN_DEEPCOPY) return tide_deepcopy(m->interpreter, a[0], 0);
    if (which == BUILTIN_IS_LIST) return tide_of_bool(a[0].kind == TIDE_VALUE_LIST);
    if (which == BUILTIN_IS_VIEW) return tide_of_bool(a[0].kind == TIDE_VALUE_TENSOR && a[0].tensor->is_view);
    if (which == BUILTIN_LEN) {
        if (a[0].kind == TIDE_VALUE_LIST) return tide_of_int(a[0].list->count);
        if (a[0].kind == TIDE_VALUE_CONFIG) return tide_of_int(a[0].config->count);
        if (a[0].kind == TIDE_VALUE_TEXT) return tide_of_int((int64_t)a[0].text.length);
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "len of %s", tide_kind_name(a[0]));
    }
    if (which == BUILTIN_CONTAINS) {
        if (count == 2 && a[0].kind == TIDE_VALUE_CONFIG && a[1].kind == TIDE_VALUE_TEXT)
            return tide_of_bool(tide_json_find(a[0].config, a[1].text) != NULL);
        if (count != 2 || a[0].kind != TIDE_VALUE_LIST)
            return tide_nothing(m, TIDE_ERR_DESCRIPTION, "contains(list, item) of %s", tide_kind_name(a[0]));
        for (uint32_t i = 0; i < a[0].list->count; i++)
            if (tide_compare(m, '=', a[0].list->items[i], a[1])) return tide_of_bool(true);
        return tide_of_bool(false);
    }
    if (which == BUILTIN_MIN || which == BUILTIN_MAX) {
        tide_value best = a[0];
        for (uint32_t i = 1; i < count; i++)
            if (tide_compare(m, which == BUILTIN_MIN ? '<' : '>', a[i], best)) best = a[i];
        return tide_value_retain(best);
    }
    if (which == BUILTIN_ROOT) { /* of a number, as math.sqrt */
        double x = tide_arg_number(m, a[0]);
        return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = x > 0 ? sqrt(x) : 0};
    }
    for (uint32_t i = 0; i < count; i++)
        if (a[i].kind != TIDE_VALUE_INT)
            return tide_nothing(m, TIDE_ERR_DESCRIPTION, "an integer is wanted, not %s", tide_kind_name(a[i]));
    if (which == BUILTIN_SQRT) {
        int64_t root = 0;
        for (int64_t bit = INT64_C(1) << 31; bit;
             bit >>= 1) /* (2^32 - 1)^2 does not fit: 3037000499 is the largest root */
            if (root + bit <= 3037000499 && (root + bit) * (root + bit) <= a[0].integer) root += bit;
        return tide_of_int(root);
    }
    int64_t from = count > 1 ? a[0].integer : 0, to = count > 1 ? a[1].integer : a[0].integer;
    if (to > from && (uint64_t)to - (uint64_t)from > LOOP_LIMIT)
        return tide_nothing(m, TIDE_ERR_LIMIT, "a range of more than a million%s", "");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (to > from) m->op_count += (uint64_t)(to - from) / 64;
    for (int64_t i = from; i < to; i++) tide_list_push(m, list.list, tide_of_int(i));
    return list;
}
