/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and comparisons of the language. */
#include "base/checked.h"
#include "lang/interpreter.h"

#include <math.h>

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

static tide_value joined(tide_machine *m, tide_list *a, tide_list *b) {
    if (a->count + (uint64_t)b->count > LOOP_LIMIT)
        return tide_nothing(m, TIDE_ERR_LIMIT, "a list of more than a million%s", "");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    m->op_count += (a->count + b->count) / 64; /* long texts and lists count as work */
    for (uint32_t i = 0; i < a->count; i++) tide_list_push(m, list.list, tide_value_retain(a->items[i]));
    for (uint32_t i = 0; i < b->count; i++) tide_list_push(m, list.list, tide_value_retain(b->items[i]));
    return list;
}

/* Python's
 *
 * and %; / of sizes must be exact. */
static bool divide_integers(tide_machine *m, char op, int64_t a, int64_t b, int64_t *made) {
    if (b == 0) return tide_fail(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes") != NULL;
    if (a == INT64_MIN || b == INT64_MIN)
        return tide_fail(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits") != NULL;
    int64_t quotient = a / b, rest = a % b;
    if (rest && (rest < 0) != (b < 0)) quotient--, rest += b;
    if (op == '/' && rest)
        return tide_fail(m, TIDE_ERR_FIELD_RANGE, "%lld does not divide by %lld", (long long)a, (long long)b) != NULL;
    *made = op == '%' ? rest : quotient;
    return true;
}

static tide_value of_integers(tide_machine *m, char op, tide_value a, tide_value b) {
    int64_t made = 0;
    bool fits = true;
    if (op == '+') fits = tide_add_i64(&made, a.integer, b.integer);
    if (op == '-') fits = tide_sub_i64(&made, a.integer, b.integer);
    if (op == '*') fits = tide_mul_i64(&made, a.integer, b.integer);
    if (!fits) return tide_nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
    bool divides = op == '/' || op == '|' || op == '%';
    if (divides && !divide_integers(m, op, a.integer, b.integer, &made)) return tide_none();
    tide_value value = tide_of_int(made);
    if (op != '%') value.symbol = tide_symbol_of(m, op == '|' ? '/' : op, a, b);
    return value;
}

static double as_double(tide_value v) {
    return v.kind == TIDE_VALUE_INT ? (double)v.integer : v.number;
}

static tide_value of_numbers(tide_machine *m, char op, double x, double y) {
    const double most = 9e15; /* below 2^53, so whole numbers are exact */
    double made = 0;
    if ((op == '/' || op == '|' || op == '%') && y == 0)
        return tide_nothing(m, TIDE_ERR_FIELD_RANGE, "a division by zero among the sizes%s", "");
    if (op == '+') made = x + y;
    if (op == '-') made = x - y;
    if (op == '*') made = x * y;
    if (op == '/') made = x / y;
    if (op == '|' || op == '%') {
        double quotient = x / y;
        if (quotient > most || quotient < -most)
            return tide_nothing(m, TIDE_ERR_OVERFLOW, "a size does not fit in 63 bits%s", "");
        made = fmod(x, y); /* CPython, float_divmod: 50 // (5 / 3) is 29 */
        if (made != 0 && (y < 0) != (made < 0)) made += y;
        if (op == '|') return tide_of_int((int64_t)nearbyint((x - made) / y));
    }
    return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = made};
}

static bool is_number(tide_value v) {
    return v.kind == TIDE_VALUE_INT || v.kind == TIDE_VALUE_FLOAT;
}

tide_value tide_arithmetic(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return tide_none();
    if (a.kind == TIDE_VALUE_LIST && b.kind == TIDE_VALUE_LIST && op == '+') return joined(m, a.list, b.list);
    if (a.kind == TIDE_VALUE_INT && b.kind == TIDE_VALUE_INT) return of_integers(m, op, a, b);
    if (is_number(a) && is_number(b)) return of_numbers(m, op, as_double(a), as_double(b));
    tide_fail(m, TIDE_ERR_DESCRIPTION, "%c between %s and %s", op == '|' ? '/' : op, tide_kind_name(a),
              tide_kind_name(b));
    return tide_none();
}

static bool equal_values(tide_value a, tide_value b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case TIDE_VALUE_TEXT:
        return tide_text_equal(a.text, b.text);
    case TIDE_VALUE_BOOL:
        return a.truth == b.truth;
    case TIDE_VALUE_DTYPE:
        return a.dtype == b.dtype;
    case TIDE_VALUE_TENSOR:
        return a.tensor == b.tensor;
    case TIDE_VALUE_LIST:
        return a.list == b.list;
    case TIDE_VALUE_MODULE:
        return a.module == b.module;
    default:
        return true;
    }
}

static bool compare_numbers(char op, double x, double y) {
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

bool tide_compare(tide_machine *m, char op, tide_value a, tide_value b) {
    if (m->has_failed) return false;
    if (is_number(a) && is_number(b)) return compare_numbers(op, as_double(a), as_double(b));
    if (op == '=' || op == '!') return equal_values(a, b) == (op == '=');
    tide_fail(m, TIDE_ERR_DESCRIPTION, "%s and %s have no order", tide_kind_name(a), tide_kind_name(b));
    return false;
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
