/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing statements, and expressions by precedence, from the tokens of lexer.c. */
#include "base/units.h"
#include "lang/lexer.h"

#include <string.h>

enum { DEPTH_LIMIT = 40, ITEM_LIMIT = 64, STATEMENT_LIMIT = 20000, BLOCK_DEPTH_LIMIT = 8 };

static tide_expr *expr_new(tide_lexer *p, tide_expr_kind kind, tide_expr *a, tide_expr *b) {
    tide_expr *e = TIDE_NEW(p->arena, tide_expr, 1);
    e->kind = kind;
    e->a = a;
    e->b = b;
    e->column = (uint32_t)p->start + 1;
    return e;
}

static tide_expr *parse_expression(tide_lexer *p);

/* Makes room for one more item in an array of `count`; it grows to 4, 8, 16 ... items. */
static void *items_room(tide_lexer *p, void *array, uint32_t count, size_t size) {
    if (count && (count < 4 || count & (count - 1))) return array;
    void *wider = tide_arena_alloc(p->arena, size * (count ? count * 2u : 4u));
    return count ? memcpy(wider, array, size * count) : wider;
}

static void add_item(tide_lexer *p, tide_expr *list, tide_expr *item, tide_text keyword) {
    if (list->count == ITEM_LIMIT) {
        tide_lexer_fail(p, "more than 64 items");
        return;
    }
    list->items = items_room(p, list->items, list->count, sizeof *list->items);
    list->keywords = items_room(p, list->keywords, list->count, sizeof *list->keywords);
    list->keywords[list->count] = keyword;
    list->items[list->count++] = item;
}

static bool is_literal_word(tide_text text) {
    return tide_text_is(text, "true") || tide_text_is(text, "false") || tide_text_is(text, "none");
}

/* none, true, false or a name. */
static tide_expr *parse_name(tide_lexer *p) {
    if (p->code != NO_WORD) return tide_lexer_fail(p, "a value is missing here");
    tide_expr *e = expr_new(p, TIDE_EXPR_NAME, NULL, NULL);
    if (is_literal_word(p->token)) e->kind = tide_text_is(p->token, "none") ? TIDE_EXPR_NONE : TIDE_EXPR_BOOL;
    e->integer = tide_text_is(p->token, "true");
    e->text = p->token;
    tide_lex(p);
    return e;
}

/* A literal, whose token is consumed. */
static tide_expr *parse_literal(tide_lexer *p, tide_expr_kind kind) {
    tide_expr *e = expr_new(p, kind, NULL, NULL);
    e->integer = p->integer;
    e->number = p->number;
    e->text = p->token;
    tide_lex(p);
    return e;
}

/* The items after the first of several expressions separated by commas, up to a closing ')' if there is one. */
static tide_expr *parse_tuple_after(tide_lexer *p, tide_expr *first, bool is_closed) {
    tide_expr *list = expr_new(p, TIDE_EXPR_LIST, NULL, NULL);
    list->integer = true; /* see tide_list.is_output */
    add_item(p, list, first, (tide_text){"", 0});
    while (tide_take_mark(p, ',') && !(is_closed && tide_is_mark(p, ')')))
        add_item(p, list, parse_expression(p), (tide_text){"", 0});
    return list;
}

static tide_expr *parse_parenthesis(tide_lexer *p) {
    tide_expr *e = parse_expression(p);
    if (tide_is_mark(p, ',')) e = parse_tuple_after(p, e, true);
    if (!tide_take_mark(p, ')')) return tide_lexer_fail(p, "')' is missing");
    return e;
}

static tide_expr *parse_list(tide_lexer *p) {
    tide_expr *e = expr_new(p, TIDE_EXPR_LIST, NULL, NULL);
    while (!p->failed && !tide_is_mark(p, ']')) {
        add_item(p, e, parse_expression(p), (tide_text){"", 0});
        if (!tide_take_mark(p, ',')) break;
    }
    if (!tide_take_mark(p, ']')) return tide_lexer_fail(p, "']' is missing");
    return e;
}

static tide_expr *parse_atom(tide_lexer *p) {
    if (p->kind == TOKEN_INT) return parse_literal(p, TIDE_EXPR_INT);
    if (p->kind == TOKEN_FLOAT) return parse_literal(p, TIDE_EXPR_FLOAT);
    if (p->kind == TOKEN_TEXT) return parse_literal(p, TIDE_EXPR_TEXT);
    if (p->kind == TOKEN_NAME) return parse_name(p);
    if (tide_take_mark(p, '(')) return parse_parenthesis(p);
    if (tide_take_mark(p, '[')) return parse_list(p);
    return tide_lexer_fail(p, "a value is missing here");
}

static tide_expr *parse_call(tide_lexer *p, tide_expr *callee) {
    tide_expr *e = expr_new(p, TIDE_EXPR_CALL, callee, NULL);
    while (!p->failed && !tide_is_mark(p, ')')) {
        tide_text keyword = {"", 0};
        tide_lexer ahead = *p;
        if (p->kind == TOKEN_NAME) {
            tide_text name = p->token;
            tide_lex(&ahead);
            if (tide_is_mark(&ahead, '=')) {
                keyword = name;
                tide_lex(p);
                tide_lex(p);
            }
        }
        if (tide_is_mark(p, '*')) {
            tide_lex(p);
            if (!tide_take_mark(p, '*')) return tide_lexer_fail(p, "'**' is missing a '*'");
            keyword = TIDE_TEXT("**");
        }
        add_item(p, e, parse_expression(p), keyword);
        if (!tide_take_mark(p, ',')) break;
    }
    if (!tide_take_mark(p, ')')) return tide_lexer_fail(p, "')' is missing");
    return e;
}

static tide_expr *parse_index_item(tide_lexer *p) {
    if (tide_is_mark(p, MARK_ELLIPSIS)) {
        tide_expr *e = expr_new(p, TIDE_EXPR_ELLIPSIS, NULL, NULL);
        tide_lex(p);
        return e;
    }
    tide_expr *start = tide_is_mark(p, ':') ? NULL : parse_expression(p);
    if (!tide_is_mark(p, ':')) return start;
    tide_lex(p);
    tide_expr *stop = tide_is_mark(p, ',') || tide_is_mark(p, ']') || tide_is_mark(p, ':') ? NULL : parse_expression(p);
    tide_expr *slice = expr_new(p, TIDE_EXPR_SLICE, start, stop);
    if (tide_take_mark(p, ':')) slice->c = parse_expression(p);
    return slice;
}

static tide_expr *parse_postfix(tide_lexer *p) {
    tide_expr *e = parse_atom(p);
    while (!p->failed) {
        if (tide_take_mark(p, '(')) {
            e = parse_call(p, e);
        } else if (tide_take_mark(p, '.')) {
            if (p->kind != TOKEN_NAME) return tide_lexer_fail(p, "a name is missing after '.'");
            e = expr_new(p, TIDE_EXPR_MEMBER, e, NULL);
            e->text = p->token;
            tide_lex(p);
        } else if (tide_take_mark(p, '[')) {
            e = expr_new(p, TIDE_EXPR_INDEX, e, NULL);
            do add_item(p, e, parse_index_item(p), (tide_text){"", 0});
            while (!p->failed && tide_take_mark(p, ','));
            if (!tide_take_mark(p, ']')) return tide_lexer_fail(p, "']' is missing");
        } else {
            break;
        }
    }
    return e;
}

static tide_expr *parse_unary(tide_lexer *p) {
    if (p->depth >= DEPTH_LIMIT) return tide_lexer_fail(p, "nested too deeply");
    p->depth++;
    tide_expr *e;
    if (tide_is_mark(p, '-')) {
        tide_lex(p);
        e = expr_new(p, TIDE_EXPR_NEGATE, parse_unary(p), NULL);
    } else {
        e = parse_postfix(p);
    }
    p->depth--;
    return e;
}

/* From the lowest to the highest precedence. */
enum { LEVEL_COMPARE, LEVEL_COALESCE, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_COUNT };

static const struct {
    uint8_t level, kind;
    uint16_t mark;
    char op;
} operators[] = {{LEVEL_COMPARE, TIDE_EXPR_COMPARE, MARK_EQUAL, '='},
                 {LEVEL_COMPARE, TIDE_EXPR_COMPARE, MARK_UNEQUAL, '!'},
                 {LEVEL_COMPARE, TIDE_EXPR_COMPARE, MARK_AT_MOST, 'l'},
                 {LEVEL_COMPARE, TIDE_EXPR_COMPARE, MARK_AT_LEAST, 'g'},
                 {LEVEL_COMPARE, TIDE_EXPR_COMPARE, '<', '<'},
                 {LEVEL_COMPARE, TIDE_EXPR_COMPARE, '>', '>'},
                 {LEVEL_COALESCE, TIDE_EXPR_COALESCE, MARK_COALESCE, '?'},
                 {LEVEL_SUM, TIDE_EXPR_BINARY, '+', '+'},
                 {LEVEL_SUM, TIDE_EXPR_BINARY, '-', '-'},
                 {LEVEL_PRODUCT, TIDE_EXPR_BINARY, '*', '*'},
                 {LEVEL_PRODUCT, TIDE_EXPR_BINARY, '/', '/'},
                 {LEVEL_PRODUCT, TIDE_EXPR_BINARY, MARK_QUOTIENT, '|'},
                 {LEVEL_PRODUCT, TIDE_EXPR_BINARY, '%', '%'}};

void tide_expr_may_miss(tide_expr *e) {
    if (!e) return;
    e->may_miss = true;
    if (e->kind == TIDE_EXPR_MEMBER || e->kind == TIDE_EXPR_INDEX || e->kind == TIDE_EXPR_CHOICE)
        tide_expr_may_miss(e->a);
    if (e->kind == TIDE_EXPR_COALESCE) tide_expr_may_miss(e->b); /* the left operand may be missing already */
    if (e->kind == TIDE_EXPR_CHOICE) tide_expr_may_miss(e->c);
}

static tide_expr *parse_binary(tide_lexer *p, int rank) {
    if (rank == LEVEL_COUNT) return parse_unary(p);
    tide_expr *e = parse_binary(p, rank + 1);
    for (size_t i = 0; p->kind == TOKEN_MARK && i < TIDE_COUNT_OF(operators); i++) {
        if (operators[i].level != rank || operators[i].mark != p->code) continue;
        tide_lex(p);
        e = expr_new(p, operators[i].kind, e, parse_binary(p, rank + 1));
        e->op = operators[i].op;
        bool divides = e->kind == TIDE_EXPR_BINARY && (e->op == '/' || e->op == '|' || e->op == '%');
        if (divides && e->b &&
            ((e->b->kind == TIDE_EXPR_INT && e->b->integer == 0) ||
             (e->b->kind == TIDE_EXPR_FLOAT && e->b->number == 0)))
            return tide_lexer_fail(p, "a division by zero");
        if (e->kind == TIDE_EXPR_COALESCE) tide_expr_may_miss(e->a);
        i = (size_t)-1;
    }
    return e;
}

static tide_expr *parse_negation(tide_lexer *p) {
    if (p->depth >= DEPTH_LIMIT) return tide_lexer_fail(p, "nested too deeply");
    if (!tide_take_word(p, WORD_NOT)) return parse_binary(p, 0);
    p->depth++;
    tide_expr *e = expr_new(p, TIDE_EXPR_NOT, parse_negation(p), NULL);
    p->depth--;
    return e;
}

static tide_expr *parse_conjunction(tide_lexer *p) {
    tide_expr *e = parse_negation(p);
    while (!p->failed && tide_take_word(p, WORD_AND)) e = expr_new(p, TIDE_EXPR_AND, e, parse_negation(p));
    return e;
}

static tide_expr *parse_disjunction(tide_lexer *p) {
    tide_expr *e = parse_conjunction(p);
    while (!p->failed && tide_take_word(p, WORD_OR)) e = expr_new(p, TIDE_EXPR_OR, e, parse_conjunction(p));
    return e;
}

static tide_expr *parse_choice(tide_lexer *p) {
    if (p->depth >= DEPTH_LIMIT) return tide_lexer_fail(p, "nested too deeply");
    p->depth++;
    tide_expr *e = parse_disjunction(p);
    if (tide_take_word(p, WORD_IF)) {
        tide_expr *condition = parse_disjunction(p);
        if (!tide_take_word(p, WORD_ELSE)) return tide_lexer_fail(p, "'else' is missing");
        e = expr_new(p, TIDE_EXPR_CHOICE, e, condition);
        e->c = parse_choice(p);
    }
    p->depth--;
    return e;
}

static tide_expr *parse_expression(tide_lexer *p) {
    tide_expr *e = parse_choice(p);
    if (tide_take_word(p, WORD_FOR)) {
        if (p->kind != TOKEN_NAME) return tide_lexer_fail(p, "a name is missing after 'for'");
        tide_text name = p->token;
        tide_lex(p);
        if (!tide_take_word(p, WORD_IN)) return tide_lexer_fail(p, "'in' is missing");
        e = expr_new(p, TIDE_EXPR_COMPREHENSION, e, parse_disjunction(p));
        e->text = name;
    }
    return e;
}

tide_expr *tide_parse_expr(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    tide_lexer p;
    if (!tide_lexer_open(&p, arena, text, place, diags)) return NULL;
    tide_expr *e = parse_expression(&p);
    return tide_lexer_close(&p) ? e : NULL;
}

bool tide_parse_head(tide_arena *arena, tide_text text, const char *place, tide_text *name, tide_parameter **parameters,
                     uint32_t *count, tide_diagnostics *diags) {
    tide_lexer p;
    *count = 0;
    *parameters = NULL;
    if (!tide_lexer_open(&p, arena, text, place, diags)) return false;
    if (!tide_is_name(&p)) return tide_lexer_fail(&p, "a name is missing") != NULL;
    *name = p.token;
    tide_lex(&p);
    if (tide_take_mark(&p, '(')) {
        while (!p.failed && !tide_is_mark(&p, ')')) {
            if (!tide_is_name(&p)) return tide_lexer_fail(&p, "a parameter's name is missing") != NULL;
            if (*count == ITEM_LIMIT) return tide_lexer_fail(&p, "more than 64 parameters") != NULL;
            *parameters = items_room(&p, *parameters, *count, sizeof **parameters);
            tide_parameter *parameter = &(*parameters)[(*count)++];
            parameter->name = p.token;
            tide_lex(&p);
            if (tide_take_mark(&p, '=')) parameter->otherwise = parse_expression(&p);
            if (!tide_take_mark(&p, ',')) break;
        }
        if (!tide_take_mark(&p, ')')) return tide_lexer_fail(&p, "')' is missing") != NULL;
    }
    return tide_lexer_close(&p);
}

/* ---- statements ---- */

static void add_target(tide_lexer *p, tide_statement *s, tide_text name) {
    if (s->target_count == ITEM_LIMIT) {
        tide_lexer_fail(p, "more than 64 names");
        return;
    }
    s->targets = items_room(p, s->targets, s->target_count, sizeof *s->targets);
    s->slots = items_room(p, s->slots, s->target_count, sizeof *s->slots);
    s->targets[s->target_count++] = name;
}

/* One or more names separated by commas. */
static bool add_targets(tide_lexer *p, tide_statement *s, const char *missing) {
    do {
        if (p->kind != TOKEN_NAME) return tide_lexer_fail(p, missing) != NULL;
        add_target(p, s, p->token);
        tide_lex(p);
    } while (tide_take_mark(p, ','));
    return true;
}

/* One expression, or several separated by commas: a list. */
static tide_expr *parse_tuple(tide_lexer *p) {
    tide_expr *e = parse_expression(p);
    return tide_is_mark(p, ',') ? parse_tuple_after(p, e, false) : e;
}

/* "a, b = e" looks like an expression up to the '='. */
static bool parse_assignment(tide_lexer *p, tide_statement *s) {
    tide_lexer ahead = *p;
    do {
        if (!tide_is_name(&ahead)) return false;
        tide_lex(&ahead);
    } while (tide_take_mark(&ahead, ','));
    if (!tide_is_mark(&ahead, '=') && !tide_is_mark(&ahead, MARK_ADD)) return false;
    do {
        add_target(p, s, p->token);
        tide_lex(p);
    } while (tide_take_mark(p, ','));
    s->kind = tide_is_mark(p, '=') ? TIDE_STATEMENT_ASSIGN : TIDE_STATEMENT_ADD;
    tide_lex(p);
    s->expr = parse_tuple(p);
    return true;
}

/* What follows "with". */
static bool parse_context(tide_lexer *p, tide_statement *s) {
    static const struct {
        const char *name;
        tide_statement_kind kind;
    } contexts[] = {{"no_grad", TIDE_STATEMENT_NO_GRAD},
                    {"enable_grad", TIDE_STATEMENT_ENABLE_GRAD},
                    {"no_autocast", TIDE_STATEMENT_NO_AUTOCAST},
                    {"autocast", TIDE_STATEMENT_AUTOCAST}};
    for (size_t i = 0; i < TIDE_COUNT_OF(contexts); i++) {
        if (p->kind != TOKEN_NAME || !tide_text_is(p->token, contexts[i].name)) continue;
        s->kind = contexts[i].kind;
        tide_lex(p);
        return true;
    }
    return tide_lexer_fail(p, "after 'with': no_grad, enable_grad, autocast or no_autocast") != NULL;
}

/* True if a block must follow. */
static bool parse_statement(tide_lexer *p, tide_statement *s) {
    if (tide_take_word(p, WORD_RETURN)) {
        s->kind = TIDE_STATEMENT_RETURN;
        if (p->kind == TOKEN_END) return false;
        s->expr = parse_tuple(p);
        return false;
    }
    if (tide_take_word(p, WORD_DEL)) {
        s->kind = TIDE_STATEMENT_DELETE;
        add_targets(p, s, "a name is missing after 'del'");
        return false;
    }
    if (tide_take_word(p, WORD_FOR)) {
        s->kind = TIDE_STATEMENT_FOR;
        if (!add_targets(p, s, "a name is missing after 'for'")) return false;
        if (!tide_take_word(p, WORD_IN)) return tide_lexer_fail(p, "'in' is missing") != NULL;
        s->expr = parse_expression(p);
    } else if (tide_take_word(p, WORD_IF) || tide_take_word(p, WORD_ELIF)) {
        s->kind = TIDE_STATEMENT_IF;
        s->expr = parse_expression(p);
    } else if (tide_take_word(p, WORD_WITH)) {
        if (!parse_context(p, s)) return false;
    } else {
        if (parse_assignment(p, s)) return false;
        s->kind = TIDE_STATEMENT_EXPR;
        s->expr = parse_expression(p);
        return false;
    }
    if (!tide_take_mark(p, ':')) tide_lexer_fail(p, "':' is missing");
    return true;
}

typedef struct block_parser {
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place;
    uint32_t *number;
} block_parser;

static bool block_fails(const block_parser *b, const char *place, const char *message) {
    return tide_error(b->diags, TIDE_ERR_DESCRIPTION, place, message, TIDE_GRAMMAR_REMEDY);
}

static bool parse_block(const block_parser *b, const tide_json *block, tide_statement **statements, int depth);

/* A statement with the block after it; advances *item. NULL after an error. */
static tide_statement *parse_item(const block_parser *b, const tide_json **item, bool is_else, int depth) {
    const char *at = tide_json_place(b->arena, *item, b->place);
    tide_statement *s = TIDE_NEW(b->arena, tide_statement, 1);
    s->number = (*b->number)++;
    s->text = (*item)->text;
    bool wants_block = true;
    if (!is_else) {
        tide_lexer p;
        if (!tide_lexer_open(&p, b->arena, s->text, at, b->diags)) return NULL;
        wants_block = parse_statement(&p, s);
        if (!tide_lexer_close(&p)) return NULL;
    }
    if (!wants_block) return s;
    *item = (*item)->next;
    if (!*item) return block_fails(b, at, "its block, an array, is missing") ? s : NULL;
    return parse_block(b, *item, &s->body, depth + 1) ? s : NULL;
}

static bool parse_block(const block_parser *b, const tide_json *block, tide_statement **statements, int depth) {
    if (!block || block->kind != TIDE_JSON_ARRAY || depth > BLOCK_DEPTH_LIMIT)
        return block_fails(b, b->place, "a block is an array of statements, at most 8 deep");
    tide_statement **link = statements, *last_if = NULL;
    for (const tide_json *item = block->first; item; item = item->next) {
        const char *at = tide_json_place(b->arena, item, b->place);
        if (item->kind != TIDE_JSON_STRING)
            return block_fails(b, at, "a block without 'for', 'if' or 'with' before it");
        if (*b->number >= STATEMENT_LIMIT)
            return tide_error(b->diags, TIDE_ERR_LIMIT, at, "more than 20000 statements", NULL);
        bool is_else = tide_text_is(item->text, "else:"), is_elif = tide_text_starts(item->text, TIDE_TEXT("elif "));
        if ((is_else || is_elif) && !last_if) return block_fails(b, at, "'else' without 'if'");
        tide_statement *s = parse_item(b, &item, is_else, depth);
        if (!s) return false;
        if (is_else) {
            last_if->otherwise = s->body;
            last_if = NULL;
        } else if (is_elif) {
            last_if->otherwise = s;
            last_if = s;
        } else {
            *link = s;
            link = &s->next;
            last_if = s->kind == TIDE_STATEMENT_IF ? s : NULL;
        }
    }
    return true;
}

bool tide_parse_block(tide_arena *arena, const tide_json *block, const char *place, uint32_t *number,
                      tide_statement **statements, tide_diagnostics *diags) {
    const block_parser b = {arena, diags, place, number};
    *statements = NULL;
    return parse_block(&b, block, statements, 0);
}
