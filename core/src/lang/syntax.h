/* SPDX-License-Identifier: Apache-2.0 */
/* The statements and expressions of descriptions as trees. models/README.md has their grammar. */
#ifndef TIDE_LANG_SYNTAX_H
#define TIDE_LANG_SYNTAX_H

#include "base/json_read.h"

#define TIDE_GRAMMAR_REMEDY "see the grammar of descriptions in models/README.md"

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

/* The meaning of a name, set when a function is bound. */
typedef enum tide_meaning {
    TIDE_UNBOUND,   /* in a size, check or note: looked up in the configuration when it is read */
    TIDE_LOCAL,     /* index of the frame's slot */
    TIDE_ATTRIBUTE, /* index of the module instance's slot */
    TIDE_SIZE,      /* index of the size */
    TIDE_SETTING,
    TIDE_CONFIGURATION,
    TIDE_DTYPE_NAME,
    TIDE_OPERATION,
    TIDE_FUNCTION,
    TIDE_METHOD,
    TIDE_CLASS,
    TIDE_BUILTIN
} tide_meaning;

struct tide_bound_call;

typedef struct tide_expr {
    tide_expr_kind kind;
    char op;
    bool may_miss; /* left operand of ??: none if the configuration lacks the key */
    tide_meaning meaning;
    uint32_t slot;
    const void *target; /* operation, function or builtin */
    tide_text text;     /* name, member or text */
    int64_t integer;
    double number;
    uint32_t column; /* in the statement, from 1 */
    struct tide_expr *a, *b, *c;
    struct tide_expr **items;
    tide_text *keywords; /* of a call, for each item; length 0: positional */
    uint32_t count;
    struct tide_bound_call *bound; /* of a call of an operation: the parameters of its arguments */
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
    TIDE_STATEMENT_ENABLE_GRAD,
    TIDE_STATEMENT_NO_AUTOCAST,
    TIDE_STATEMENT_AUTOCAST /* torch.autocast around forward(), as the job has it */
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
    tide_expr *otherwise; /* NULL: required */
} tide_parameter;

/* "name(a, b=1)": the name and the parameters. False after an error. */
bool tide_parse_head(tide_arena *arena, tide_text text, const char *place, tide_text *name, tide_parameter **parameters,
                     uint32_t *count, tide_diagnostics *diags);

/* NULL after an error. */
tide_expr *tide_parse_expr(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);

/* Allows the value of an expression to be missing in the configuration, as on the left of ??. */
void tide_expr_may_miss(tide_expr *e);

/* Parses an array of statements, numbered by *number. False after an error. */
bool tide_parse_block(tide_arena *arena, const tide_json *block, const char *place, uint32_t *number,
                      tide_statement **statements, tide_diagnostics *diags);

#endif
