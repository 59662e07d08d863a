/* The statements of model descriptions: Python's spelling, without recursion, unbounded loops or access to the host.
 *
 *   statement   name = e | a, b = e | name += e | e | return e | del name
 *             | for x in e: BLOCK | if e: BLOCK [elif e: BLOCK]* [else: BLOCK] | with no_grad: BLOCK
 *             | with no_autocast: BLOCK
 *   expression  e if e else e | or, and, not | == != < <= > >= | ?? | + - * / // % | -e | e(args) | e.name | e[index]
 *             | (e, ...) | [e, ...] | e for x in e | number | 'text' | name | true | false | none
 *
 * A statement is a string; a block is the array of statements that follows it. */
#ifndef TIDE_LANGUAGE_H
#define TIDE_LANGUAGE_H

#include "base/json_read.h"

typedef enum tide_expr_kind {
    TIDE_EXPR_NONE,
    TIDE_EXPR_BOOL,
    TIDE_EXPR_INT,
    TIDE_EXPR_FLOAT,
    TIDE_EXPR_TEXT,
    TIDE_EXPR_NAME,
    TIDE_EXPR_CALL,   /* a: callee; items: arguments */
    TIDE_EXPR_MEMBER, /* a.text */
    TIDE_EXPR_INDEX,  /* a[items] */
    TIDE_EXPR_SLICE,  /* a:b:c inside an index; any may be NULL, b is where c is given */
    TIDE_EXPR_ELLIPSIS,
    TIDE_EXPR_NEGATE,
    TIDE_EXPR_NOT,
    TIDE_EXPR_BINARY,  /* op: + - * / % and '|' for // */
    TIDE_EXPR_COMPARE, /* op: = ! < > and 'l' for <=, 'g' for >= */
    TIDE_EXPR_AND,
    TIDE_EXPR_OR,
    TIDE_EXPR_COALESCE, /* a ?? b */
    TIDE_EXPR_CHOICE,   /* a if b else c */
    TIDE_EXPR_LIST,
    TIDE_EXPR_COMPREHENSION /* a for text in b */
} tide_expr_kind;

/* What a name means; filled in when a function is bound. */
typedef enum tide_meaning {
    TIDE_UNBOUND,
    TIDE_LOCAL,     /* slot of the frame */
    TIDE_ATTRIBUTE, /* slot of the module instance */
    TIDE_SIZE,      /* number of the size */
    TIDE_SETTING,
    TIDE_CONFIGURATION,
    TIDE_DTYPE_NAME,
    TIDE_OPERATION,
    TIDE_FUNCTION,
    TIDE_METHOD,
    TIDE_CLASS,
    TIDE_BUILTIN
} tide_meaning;

typedef struct tide_expr {
    tide_expr_kind kind;
    char op;
    tide_meaning meaning;
    uint32_t slot;
    const void *target; /* operation, function or class */
    tide_text text;     /* name, member or text */
    int64_t integer;
    double number;
    uint32_t column; /* from 1, in the statement */
    struct tide_expr *a, *b, *c;
    struct tide_expr **items;
    tide_text *keywords; /* of a call, beside items; length 0: positional */
    uint32_t count;
    uint32_t *order; /* of a call of an operation: where each argument goes */
} tide_expr;

typedef enum tide_statement_kind {
    TIDE_STATEMENT_ASSIGN, /* targets = expr */
    TIDE_STATEMENT_ADD,    /* targets[0] += expr */
    TIDE_STATEMENT_EXPR,
    TIDE_STATEMENT_RETURN,
    TIDE_STATEMENT_DELETE,
    TIDE_STATEMENT_FOR, /* targets[0] in expr: body */
    TIDE_STATEMENT_IF,  /* expr: body, otherwise */
    TIDE_STATEMENT_NO_GRAD,
    TIDE_STATEMENT_NO_AUTOCAST
} tide_statement_kind;

typedef struct tide_statement {
    tide_statement_kind kind;
    uint32_t number; /* in the table of all statements, for reports */
    tide_text text;
    tide_text *targets;
    uint32_t *slots; /* of the targets; filled in when bound */
    uint32_t target_count;
    tide_expr *expr;
    struct tide_statement *body, *otherwise;
    struct tide_statement *next;
} tide_statement;

typedef struct tide_parameter {
    tide_text name;
    tide_expr *otherwise; /* NULL: must be given */
} tide_parameter;

/* "name(a, b=1)": the name and parameters. False after an error. */
bool tide_parse_head(tide_arena *arena, tide_text text, const char *place, tide_text *name, tide_parameter **parameters,
                     uint32_t *count, tide_diagnostics *diags);

/* NULL after an error. */
tide_expr *tide_parse_expr(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);

/* An array of statements; *number counts them. False after an error. */
bool tide_parse_block(tide_arena *arena, const tide_json *block, const char *place, uint32_t *number,
                      tide_statement **statements, tide_diagnostics *diags);

#endif
