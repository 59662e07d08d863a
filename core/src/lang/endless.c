/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a description that call themselves unconditionally. */
#include "lang/interpreter.h"

typedef struct path {
    const tide_function *first, **seen;
    uint32_t count;
} path;

static bool reaches(path *p, const tide_function *f);

static bool expr_reaches(path *p, const tide_expr *e);

/* Calls that are made in any case: not in the second operand of and, or and ??, nor in branches of if, nor for each
 * item. */
static bool operands_reach(path *p, const tide_expr *e) {
    switch (e->kind) {
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
    case TIDE_EXPR_COALESCE:
        return expr_reaches(p, e->a);
    case TIDE_EXPR_CHOICE:
    case TIDE_EXPR_COMPREHENSION:
        return expr_reaches(p, e->b);
    default:
        break;
    }
    for (uint32_t i = 0; i < e->count; i++)
        if (expr_reaches(p, e->items[i])) return true;
    return expr_reaches(p, e->a) || expr_reaches(p, e->b) || expr_reaches(p, e->c);
}

static bool expr_reaches(path *p, const tide_expr *e) {
    if (!e) return false;
    const tide_expr *callee = e->kind == TIDE_EXPR_CALL ? e->a : NULL;
    bool is_function = callee && (callee->meaning == TIDE_FUNCTION || callee->meaning == TIDE_METHOD);
    return (is_function && reaches(p, callee->target)) || operands_reach(p, e);
}

/* Up to the first statement that may return; bodies of if and for are skipped. */
static bool block_reaches(path *p, const tide_statement *s) {
    for (; s; s = s->next) {
        if (expr_reaches(p, s->expr)) return true;
        if (s->kind == TIDE_STATEMENT_IF || s->kind == TIDE_STATEMENT_FOR || s->kind == TIDE_STATEMENT_RETURN)
            return false;
        if (s->body) return block_reaches(p, s->body);
    }
    return false;
}

static bool reaches(path *p, const tide_function *f) {
    if (f == p->first && p->count) return true;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->seen[i] == f) return false;
    if (!f->is_bound || p->count == CALL_DEPTH) return false;
    p->seen[p->count++] = f;
    return block_reaches(p, f->body);
}

bool tide_function_is_endless(const tide_function *function) {
    const tide_function *seen[CALL_DEPTH];
    path p = {.first = function, .seen = seen};
    return reaches(&p, function);
}
