/* Statements and expressions: a lexer by hand and a parser by precedence. */
#include "lang/language.h"

#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 40, TEXT_LIMIT = 4000, ITEM_LIMIT = 64, STATEMENT_LIMIT = 20000 };

typedef enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_INT, TOKEN_FLOAT, TOKEN_TEXT, TOKEN_MARK } token_kind;

/* Marks of one character are their own code. */
enum {
    MARK_ELLIPSIS = 256,
    MARK_COALESCE,
    MARK_QUOTIENT,
    MARK_EQUAL,
    MARK_UNEQUAL,
    MARK_AT_MOST,
    MARK_AT_LEAST,
    MARK_ADD
};

static const struct {
    char text[4];
    uint8_t length;
    uint16_t code;
} long_marks[] = {{"...", 3, MARK_ELLIPSIS}, {"??", 2, MARK_COALESCE}, {"//", 2, MARK_QUOTIENT}, {"==", 2, MARK_EQUAL},
                  {"!=", 2, MARK_UNEQUAL},   {"<=", 2, MARK_AT_MOST},  {">=", 2, MARK_AT_LEAST}, {"+=", 2, MARK_ADD}};

enum {
    NO_WORD,
    WORD_IF,
    WORD_ELSE,
    WORD_ELIF,
    WORD_FOR,
    WORD_IN,
    WORD_AND,
    WORD_OR,
    WORD_NOT,
    WORD_RETURN,
    WORD_DEL,
    WORD_WITH,
    WORD_IS,
    WORD_COUNT
};

static const tide_text words[WORD_COUNT] = {{"", 0},    {"if", 2},   {"else", 4}, {"elif", 4}, {"for", 3},
                                            {"in", 2},  {"and", 3},  {"or", 2},   {"not", 3},  {"return", 6},
                                            {"del", 3}, {"with", 4}, {"is", 2}};

typedef struct parser {
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place;
    tide_text text;
    size_t at;    /* behind the current token */
    size_t start; /* of the current token */
    token_kind kind;
    int code; /* of a mark or a keyword */
    tide_text token;
    int64_t integer;
    double number;
    bool failed;
    int depth;
} parser;

static void *fail(parser *p, const char *message) {
    if (!p->failed) {
        p->failed = true;
        tide_error(p->diags, TIDE_ERR_DESCRIPTION, p->place,
                   tide_format(p->arena, "column %u of '%.*s': %s", (unsigned)p->start + 1,
                               (int)(p->text.length < 120 ? p->text.length : 120), p->text.at, message),
                   "see the grammar of descriptions in the README");
    }
    p->kind = TOKEN_END;
    return NULL;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void read_number(parser *p) {
    size_t end = p->at;
    bool is_float = false;
    while (end < p->text.length && (is_digit(p->text.at[end]) || p->text.at[end] == '.' || p->text.at[end] == 'e' ||
                                    (p->text.at[end] == '-' && p->text.at[end - 1] == 'e'))) {
        if (!is_digit(p->text.at[end])) is_float = true;
        end++;
    }
    p->token = (tide_text){p->text.at + p->start, end - p->start};
    p->at = end;
    if (!is_float) {
        p->kind = TOKEN_INT;
        if (!tide_text_to_i64(&p->integer, p->token)) fail(p, "the number does not fit in 63 bits");
        return;
    }
    char digits[40], *stop;
    if (p->token.length >= sizeof digits) {
        fail(p, "the number is too long");
        return;
    }
    memcpy(digits, p->token.at, p->token.length);
    digits[p->token.length] = 0;
    p->number = strtod(digits, &stop);
    p->kind = TOKEN_FLOAT;
    if (*stop || !isfinite(p->number)) fail(p, "no number");
}

static void next(parser *p) {
    if (p->failed) return;
    while (p->at < p->text.length && p->text.at[p->at] == ' ') p->at++;
    p->start = p->at;
    if (p->at >= p->text.length) {
        p->kind = TOKEN_END;
        p->token = (tide_text){"", 0};
        return;
    }
    const char *c = p->text.at + p->at;
    size_t left = p->text.length - p->at;
    if (is_letter(*c)) {
        size_t length = 1;
        while (length < left && (is_letter(c[length]) || is_digit(c[length]))) length++;
        p->kind = TOKEN_NAME;
        p->token = (tide_text){c, length};
        p->at += length;
        for (p->code = WORD_COUNT - 1; p->code != NO_WORD; p->code--)
            if (words[p->code].length == length && words[p->code].at[0] == *c &&
                tide_text_equal(p->token, words[p->code]))
                break;
    } else if (is_digit(*c)) {
        read_number(p);
    } else if (*c == '\'' || *c == '"') {
        size_t length = 1;
        while (length < left && c[length] != *c) length++;
        if (length == left) {
            fail(p, "the text is not closed");
            return;
        }
        p->kind = TOKEN_TEXT;
        p->token = (tide_text){c + 1, length - 1};
        p->at += length + 1;
    } else {
        size_t length = 1;
        p->code = (unsigned char)*c;
        for (size_t i = 0; i < TIDE_COUNT_OF(long_marks); i++) {
            if (*c != long_marks[i].text[0] || left < long_marks[i].length ||
                memcmp(c, long_marks[i].text, long_marks[i].length) != 0)
                continue;
            length = long_marks[i].length;
            p->code = long_marks[i].code;
            break;
        }
        p->kind = TOKEN_MARK;
        p->token = (tide_text){c, length};
        p->at += length;
    }
}

static bool is_mark(const parser *p, int mark) {
    return p->kind == TOKEN_MARK && p->code == mark;
}

static bool take_mark(parser *p, int mark) {
    if (!is_mark(p, mark)) return false;
    next(p);
    return true;
}

static bool take_word(parser *p, int word) {
    if (p->kind != TOKEN_NAME || p->code != word) return false;
    next(p);
    return true;
}

/* A name, not a keyword. */
static bool is_name(const parser *p) {
    return p->kind == TOKEN_NAME && p->code == NO_WORD;
}

static tide_expr *make(parser *p, tide_expr_kind kind, tide_expr *a, tide_expr *b) {
    tide_expr *e = TIDE_NEW(p->arena, tide_expr, 1);
    e->kind = kind;
    e->a = a;
    e->b = b;
    e->column = (uint32_t)p->start + 1;
    return e;
}

static tide_expr *expression(parser *p);

/* Room for one more in an array that has `count`: places for 4, 8, 16 ... are taken at a time. */
static void *with_room(parser *p, void *array, uint32_t count, size_t size) {
    if (count && (count < 4 || count & (count - 1))) return array;
    void *wider = tide_arena_alloc(p->arena, size * (count ? count * 2u : 4u));
    return count ? memcpy(wider, array, size * count) : wider;
}

static void add_item(parser *p, tide_expr *list, tide_expr *item, tide_text keyword) {
    if (list->count == ITEM_LIMIT) {
        fail(p, "more than 64 items");
        return;
    }
    list->items = with_room(p, list->items, list->count, sizeof *list->items);
    list->keywords = with_room(p, list->keywords, list->count, sizeof *list->keywords);
    list->keywords[list->count] = keyword;
    list->items[list->count++] = item;
}

static tide_expr *atom(parser *p) {
    tide_expr *e;
    if (p->kind == TOKEN_INT) {
        e = make(p, TIDE_EXPR_INT, NULL, NULL);
        e->integer = p->integer;
        next(p);
    } else if (p->kind == TOKEN_FLOAT) {
        e = make(p, TIDE_EXPR_FLOAT, NULL, NULL);
        e->number = p->number;
        next(p);
    } else if (p->kind == TOKEN_TEXT) {
        e = make(p, TIDE_EXPR_TEXT, NULL, NULL);
        e->text = p->token;
        next(p);
    } else if (p->kind == TOKEN_NAME) {
        if (p->code != NO_WORD) return fail(p, "a value is missing here");
        bool is_true = tide_text_is(p->token, "true");
        e = make(p,
                 is_true || tide_text_is(p->token, "false") ? TIDE_EXPR_BOOL
                 : tide_text_is(p->token, "none")           ? TIDE_EXPR_NONE
                                                            : TIDE_EXPR_NAME,
                 NULL, NULL);
        e->integer = is_true;
        e->text = p->token;
        next(p);
    } else if (take_mark(p, '(')) {
        e = expression(p);
        if (is_mark(p, ',')) {
            tide_expr *list = make(p, TIDE_EXPR_LIST, NULL, NULL);
            list->integer = true; /* see tide_list */
            add_item(p, list, e, (tide_text){"", 0});
            while (take_mark(p, ',') && !is_mark(p, ')')) add_item(p, list, expression(p), (tide_text){"", 0});
            e = list;
        }
        if (!take_mark(p, ')')) return fail(p, "')' is missing");
    } else if (take_mark(p, '[')) {
        e = make(p, TIDE_EXPR_LIST, NULL, NULL);
        while (!p->failed && !is_mark(p, ']')) {
            add_item(p, e, expression(p), (tide_text){"", 0});
            if (!take_mark(p, ',')) break;
        }
        if (!take_mark(p, ']')) return fail(p, "']' is missing");
    } else {
        return fail(p, "a value is missing here");
    }
    return e;
}

static tide_expr *call(parser *p, tide_expr *callee) {
    tide_expr *e = make(p, TIDE_EXPR_CALL, callee, NULL);
    while (!p->failed && !is_mark(p, ')')) {
        tide_text keyword = {"", 0};
        parser ahead = *p;
        if (p->kind == TOKEN_NAME) {
            tide_text name = p->token;
            next(&ahead);
            if (is_mark(&ahead, '=')) {
                keyword = name;
                next(p);
                next(p);
            }
        }
        add_item(p, e, expression(p), keyword);
        if (!take_mark(p, ',')) break;
    }
    if (!take_mark(p, ')')) return fail(p, "')' is missing");
    return e;
}

static tide_expr *index_item(parser *p) {
    if (is_mark(p, MARK_ELLIPSIS)) {
        tide_expr *e = make(p, TIDE_EXPR_ELLIPSIS, NULL, NULL);
        next(p);
        return e;
    }
    tide_expr *start = is_mark(p, ':') ? NULL : expression(p);
    if (!is_mark(p, ':')) return start;
    next(p);
    tide_expr *stop = is_mark(p, ',') || is_mark(p, ']') || is_mark(p, ':') ? NULL : expression(p);
    tide_expr *slice = make(p, TIDE_EXPR_SLICE, start, stop);
    if (take_mark(p, ':')) slice->c = expression(p);
    return slice;
}

static tide_expr *postfix(parser *p) {
    tide_expr *e = atom(p);
    while (!p->failed) {
        if (take_mark(p, '(')) {
            e = call(p, e);
        } else if (take_mark(p, '.')) {
            if (p->kind != TOKEN_NAME) return fail(p, "a name is missing after '.'");
            e = make(p, TIDE_EXPR_MEMBER, e, NULL);
            e->text = p->token;
            next(p);
        } else if (take_mark(p, '[')) {
            e = make(p, TIDE_EXPR_INDEX, e, NULL);
            do add_item(p, e, index_item(p), (tide_text){"", 0});
            while (!p->failed && take_mark(p, ','));
            if (!take_mark(p, ']')) return fail(p, "']' is missing");
        } else {
            break;
        }
    }
    return e;
}

static tide_expr *unary(parser *p) {
    if (p->depth >= DEPTH_LIMIT) return fail(p, "nested too deeply");
    p->depth++;
    tide_expr *e;
    if (is_mark(p, '-')) {
        next(p);
        e = make(p, TIDE_EXPR_NEGATE, unary(p), NULL);
    } else {
        e = postfix(p);
    }
    p->depth--;
    return e;
}

/* From the weakest to the strongest. */
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

static tide_expr *binary(parser *p, int rank) {
    if (rank == LEVEL_COUNT) return unary(p);
    tide_expr *e = binary(p, rank + 1);
    for (size_t i = 0; p->kind == TOKEN_MARK && i < TIDE_COUNT_OF(operators); i++) {
        if (operators[i].level != rank || operators[i].mark != p->code) continue;
        next(p);
        e = make(p, operators[i].kind, e, binary(p, rank + 1));
        e->op = operators[i].op;
        i = (size_t)-1;
    }
    return e;
}

static tide_expr *negation(parser *p) {
    if (p->depth >= DEPTH_LIMIT) return fail(p, "nested too deeply");
    if (!take_word(p, WORD_NOT)) return binary(p, 0);
    p->depth++;
    tide_expr *e = make(p, TIDE_EXPR_NOT, negation(p), NULL);
    p->depth--;
    return e;
}

static tide_expr *conjunction(parser *p) {
    tide_expr *e = negation(p);
    while (!p->failed && take_word(p, WORD_AND)) e = make(p, TIDE_EXPR_AND, e, negation(p));
    return e;
}

static tide_expr *disjunction(parser *p) {
    tide_expr *e = conjunction(p);
    while (!p->failed && take_word(p, WORD_OR)) e = make(p, TIDE_EXPR_OR, e, conjunction(p));
    return e;
}

static tide_expr *choice(parser *p) {
    if (p->depth >= DEPTH_LIMIT) return fail(p, "nested too deeply");
    p->depth++;
    tide_expr *e = disjunction(p);
    if (take_word(p, WORD_IF)) {
        tide_expr *condition = disjunction(p);
        if (!take_word(p, WORD_ELSE)) return fail(p, "'else' is missing");
        e = make(p, TIDE_EXPR_CHOICE, e, condition);
        e->c = choice(p);
    }
    p->depth--;
    return e;
}

static tide_expr *expression(parser *p) {
    tide_expr *e = choice(p);
    if (take_word(p, WORD_FOR)) {
        if (p->kind != TOKEN_NAME) return fail(p, "a name is missing after 'for'");
        tide_text name = p->token;
        next(p);
        if (!take_word(p, WORD_IN)) return fail(p, "'in' is missing");
        e = make(p, TIDE_EXPR_COMPREHENSION, e, disjunction(p));
        e->text = name;
    }
    return e;
}

static bool open(parser *p, tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    *p = (parser){.arena = arena, .diags = diags, .place = place, .text = text};
    if (text.length > TEXT_LIMIT) {
        fail(p, "longer than 4000 characters");
        return false;
    }
    next(p);
    return !p->failed;
}

static bool closes(parser *p) {
    if (!p->failed && p->kind != TOKEN_END) fail(p, "nothing more is expected here");
    return !p->failed;
}

tide_expr *tide_parse_expr(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags) {
    parser p;
    if (!open(&p, arena, text, place, diags)) return NULL;
    tide_expr *e = expression(&p);
    return closes(&p) ? e : NULL;
}

bool tide_parse_head(tide_arena *arena, tide_text text, const char *place, tide_text *name, tide_parameter **parameters,
                     uint32_t *count, tide_diagnostics *diags) {
    parser p;
    *count = 0;
    *parameters = NULL;
    if (!open(&p, arena, text, place, diags)) return false;
    if (!is_name(&p)) return fail(&p, "a name is missing") != NULL;
    *name = p.token;
    next(&p);
    if (take_mark(&p, '(')) {
        while (!p.failed && !is_mark(&p, ')')) {
            if (!is_name(&p)) return fail(&p, "a parameter's name is missing") != NULL;
            if (*count == ITEM_LIMIT) return fail(&p, "more than 64 parameters") != NULL;
            *parameters = with_room(&p, *parameters, *count, sizeof **parameters);
            tide_parameter *parameter = &(*parameters)[(*count)++];
            parameter->name = p.token;
            next(&p);
            if (take_mark(&p, '=')) parameter->otherwise = expression(&p);
            if (!take_mark(&p, ',')) break;
        }
        if (!take_mark(&p, ')')) return fail(&p, "')' is missing") != NULL;
    }
    return closes(&p);
}

/* ---- statements ---- */

static void add_target(parser *p, tide_statement *s, tide_text name) {
    if (s->target_count == ITEM_LIMIT) {
        fail(p, "more than 64 names");
        return;
    }
    s->targets = with_room(p, s->targets, s->target_count, sizeof *s->targets);
    s->slots = with_room(p, s->slots, s->target_count, sizeof *s->slots);
    s->targets[s->target_count++] = name;
}

/* One or more names, joined by commas. */
static bool add_targets(parser *p, tide_statement *s, const char *missing) {
    do {
        if (p->kind != TOKEN_NAME) return fail(p, missing) != NULL;
        add_target(p, s, p->token);
        next(p);
    } while (take_mark(p, ','));
    return true;
}

/* One expression, or several joined by commas: a list. */
static tide_expr *tuple(parser *p) {
    tide_expr *e = expression(p);
    if (!is_mark(p, ',')) return e;
    tide_expr *list = make(p, TIDE_EXPR_LIST, NULL, NULL);
    list->integer = true; /* see tide_list */
    add_item(p, list, e, (tide_text){"", 0});
    while (take_mark(p, ',')) add_item(p, list, expression(p), (tide_text){"", 0});
    return list;
}

/* "a, b = e" looks like an expression until the '='. */
static bool assignment(parser *p, tide_statement *s) {
    parser ahead = *p;
    do {
        if (!is_name(&ahead)) return false;
        next(&ahead);
    } while (take_mark(&ahead, ','));
    if (!is_mark(&ahead, '=') && !is_mark(&ahead, MARK_ADD)) return false;
    do {
        add_target(p, s, p->token);
        next(p);
    } while (take_mark(p, ','));
    s->kind = is_mark(p, '=') ? TIDE_STATEMENT_ASSIGN : TIDE_STATEMENT_ADD;
    next(p);
    s->expr = tuple(p);
    return true;
}

/* True if the statement wants a block. */
static bool statement(parser *p, tide_statement *s) {
    if (take_word(p, WORD_RETURN)) {
        s->kind = TIDE_STATEMENT_RETURN;
        if (p->kind == TOKEN_END) return false;
        s->expr = tuple(p);
        return false;
    }
    if (take_word(p, WORD_DEL)) {
        s->kind = TIDE_STATEMENT_DELETE;
        add_targets(p, s, "a name is missing after 'del'");
        return false;
    }
    if (take_word(p, WORD_FOR)) {
        s->kind = TIDE_STATEMENT_FOR;
        if (!add_targets(p, s, "a name is missing after 'for'")) return false;
        if (!take_word(p, WORD_IN)) return fail(p, "'in' is missing") != NULL;
        s->expr = expression(p);
    } else if (take_word(p, WORD_IF) || take_word(p, WORD_ELIF)) {
        s->kind = TIDE_STATEMENT_IF;
        s->expr = expression(p);
    } else if (take_word(p, WORD_WITH)) {
        bool is_grad = p->kind == TOKEN_NAME && tide_text_is(p->token, "no_grad");
        if (!is_grad && (p->kind != TOKEN_NAME || !tide_text_is(p->token, "no_autocast")))
            return fail(p, "only 'with no_grad:' and 'with no_autocast:' are known") != NULL;
        s->kind = is_grad ? TIDE_STATEMENT_NO_GRAD : TIDE_STATEMENT_NO_AUTOCAST;
        next(p);
    } else {
        if (assignment(p, s)) return false;
        s->kind = TIDE_STATEMENT_EXPR;
        s->expr = expression(p);
        return false;
    }
    if (!take_mark(p, ':')) fail(p, "':' is missing");
    return true;
}

static bool parse_block(tide_arena *arena, const tide_json *block, const char *place, uint32_t *number,
                        tide_statement **statements, tide_diagnostics *diags, int depth) {
    if (!block || block->kind != TIDE_JSON_ARRAY || depth > 8)
        return tide_error(diags, TIDE_ERR_DESCRIPTION, place, "a block is an array of statements, at most 8 deep",
                          NULL);
    tide_statement **link = statements, *last_if = NULL;
    for (const tide_json *item = block->first; item; item = item->next) {
        const char *at = tide_json_place(arena, item, place);
        if (item->kind != TIDE_JSON_STRING)
            return tide_error(diags, TIDE_ERR_DESCRIPTION, at, "a block without 'for', 'if' or 'with' before it", NULL);
        if (*number >= STATEMENT_LIMIT)
            return tide_error(diags, TIDE_ERR_LIMIT, at, "more than 20000 statements", NULL);
        bool is_else = tide_text_is(item->text, "else:");
        bool is_elif = tide_text_starts(item->text, TIDE_TEXT("elif "));
        if ((is_else || is_elif) && !last_if)
            return tide_error(diags, TIDE_ERR_DESCRIPTION, at, "'else' without 'if'", NULL);
        tide_statement *s = TIDE_NEW(arena, tide_statement, 1);
        s->number = (*number)++;
        s->text = item->text;
        bool wants_block = true;
        if (!is_else) {
            parser p;
            if (!open(&p, arena, item->text, at, diags)) return false;
            wants_block = statement(&p, s);
            if (!closes(&p)) return false;
        }
        tide_statement *body = NULL;
        if (wants_block) {
            item = item->next;
            if (!item) return tide_error(diags, TIDE_ERR_DESCRIPTION, at, "its block, an array, is missing", NULL);
            if (!parse_block(arena, item, place, number, &body, diags, depth + 1)) return false;
        }
        if (is_else) {
            last_if->otherwise = body;
            last_if = NULL;
            continue;
        }
        s->body = body;
        if (is_elif) {
            last_if->otherwise = s;
            last_if = s;
            continue;
        }
        *link = s;
        link = &s->next;
        last_if = s->kind == TIDE_STATEMENT_IF ? s : NULL;
    }
    return true;
}

bool tide_parse_block(tide_arena *arena, const tide_json *block, const char *place, uint32_t *number,
                      tide_statement **statements, tide_diagnostics *diags) {
    *statements = NULL;
    return parse_block(arena, block, place, number, statements, diags, 0);
}
