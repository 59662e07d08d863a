/* SPDX-License-Identifier: Apache-2.0 */
/* A backtracking matcher that works on the pattern's text: patterns and names are short, and steps are limited. */
#include "base/regex.h"

#include <string.h>

enum { REGEX_STEP_LIMIT = 1 << 17, REGEX_DEPTH_LIMIT = 200, REPEAT_LIMIT = 1000 };

/* What still has to match after a piece of the pattern. */
typedef struct rest {
    const char *at, *end;     /* the alternatives of a group */
    const struct rest *after; /* NULL: the end of the text */
    const struct repeat *loop;
} rest;

/* A repeated piece, matched `count` times so far. */
typedef struct repeat {
    const char *piece, *piece_end;
    int64_t least, most, count;
    bool is_lazy;
    const char *from; /* where the last repeat began: an empty repeat ends the repetition */
    const rest *after;
} repeat;

typedef struct regex_matcher {
    const char *start, *end;
    uint32_t steps;
    int depth;
    bool may_leave; /* some of the text after the match */
    bool is_wrong;
} regex_matcher;

static bool match_alternatives(regex_matcher *m, const char *at, const char *end, const char *text, const rest *after);
static bool match_rest(regex_matcher *m, const char *text, const rest *after);

/* The end of the piece that begins at `at`: one character, class or group. */
static const char *piece_end(regex_matcher *m, const char *at, const char *end) {
    int depth = 0;
    bool in_class = false;
    const char *class_from = at;
    for (; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (in_class)
            in_class = *at != ']' || at == class_from;
        else if (*at == '[')
            in_class = true, class_from = at + 1 + (at + 1 < end && at[1] == '^');
        else if (*at == '(')
            depth++;
        else if (*at == ')')
            depth--;
        if (!in_class && depth <= 0) break;
    }
    if (at < end && depth == 0) return at + 1;
    m->is_wrong = true;
    return end;
}

static bool in_shorthand(char kind, char c) {
    bool is_digit = c >= '0' && c <= '9', is_space = c == ' ' || (c >= '\t' && c <= '\r');
    bool is_word = is_digit || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
    switch (kind) {
    case 'd':
        return is_digit;
    case 'D':
        return !is_digit;
    case 'w':
        return is_word;
    case 'W':
        return !is_word;
    case 's':
        return is_space;
    case 'S':
        return !is_space;
    default:
        return c == kind;
    }
}

/* [...], without its brackets */
static bool in_class(const char *at, const char *end, char c) {
    bool is_not = at < end && *at == '^', found = false;
    for (at += is_not; at < end; at++) {
        if (*at == '\\' && at + 1 < end) {
            found = found || in_shorthand(*++at, c);
        } else if (at + 2 < end && at[1] == '-') {
            found = found || (c >= *at && c <= at[2]);
            at += 2;
        } else {
            found = found || c == *at;
        }
    }
    return found != is_not;
}

/* * + ? {m} {m,} {m,n} after a piece, and a following ? that makes it lazy. */
static const char *read_repeat(regex_matcher *m, const char *at, const char *end, repeat *r) {
    r->least = r->most = 1;
    if (at == end) return at;
    if (*at == '*')
        r->least = 0, r->most = REPEAT_LIMIT, at++;
    else if (*at == '+')
        r->most = REPEAT_LIMIT, at++;
    else if (*at == '?')
        r->least = 0, at++;
    else if (*at == '{') {
        const char *close = memchr(at, '}', (size_t)(end - at)),
                   *comma = close ? memchr(at, ',', (size_t)(close - at)) : NULL;
        const char *first_end = comma ? comma : close;
        bool ok = close && tide_text_to_i64(&r->least, (tide_text){at + 1, (size_t)(first_end - at) - 1});
        r->most = r->least;
        if (ok && comma && comma + 1 < close)
            ok = tide_text_to_i64(&r->most, (tide_text){comma + 1, (size_t)(close - comma) - 1});
        else if (ok && comma)
            r->most = REPEAT_LIMIT;
        if (!ok || r->least < 0 || r->most < r->least || r->most > REPEAT_LIMIT) m->is_wrong = true;
        at = close ? close + 1 : end;
    } else {
        return at;
    }
    if (at < end && *at == '?') r->is_lazy = true, at++;
    return at;
}

/* Matches a piece once, then `after`. */
static bool match_piece(regex_matcher *m, const char *at, const char *end, const char *text, const rest *after) {
    if (*at == '(') {
        const char *inside = at + 1, *close = end - 1;
        if (inside < close && *inside == '?') {
            char kind = inside + 1 < close ? inside[1] : 0;
            if (kind == '=' || kind == '!') {
                bool holds = match_alternatives(m, inside + 2, close, text, NULL);
                return !m->is_wrong && holds == (kind == '=') && match_rest(m, text, after);
            }
            const char *name_end = kind == 'P' ? memchr(inside, '>', (size_t)(close - inside)) : inside + 1;
            if ((kind != ':' && kind != 'P') || !name_end)
                m->is_wrong = true;
            else
                inside = name_end + 1;
        }
        return !m->is_wrong && match_alternatives(m, inside, close, text, after);
    }
    if (*at == '^') return text == m->start && match_rest(m, text, after);
    if (*at == '$') return text == m->end && match_rest(m, text, after);
    if (text == m->end) return false;
    bool fits = *at == '.'    ? *text != '\n'
                : *at == '['  ? in_class(at + 1, end - 1, *text)
                : *at == '\\' ? in_shorthand(at[1], *text)
                              : *at == *text;
    return fits && match_rest(m, text + 1, after);
}

static bool match_turn(regex_matcher *m, const repeat *r, const char *text) {
    repeat next = *r;
    next.count++;
    next.from = text;
    rest again = {.loop = &next};
    return match_piece(m, r->piece, r->piece_end, text, &again);
}

static bool match_repeat(regex_matcher *m, const repeat *r, const char *text) {
    bool may_end = r->count >= r->least, may_go_on = r->count < r->most && (r->count < r->least || text != r->from);
    if (r->is_lazy && may_end && match_rest(m, text, r->after)) return true;
    if (may_go_on && match_turn(m, r, text)) return true;
    return !r->is_lazy && may_end && match_rest(m, text, r->after);
}

/* Matches the pieces of one alternative, then `after`; NULL: in a lookahead, which needs nothing more. */
static bool match_sequence(regex_matcher *m, const char *at, const char *end, const char *text, const rest *after) {
    if (at == end) return !after || match_rest(m, text, after);
    repeat r = {.piece = at, .after = after};
    r.piece_end = piece_end(m, at, end);
    const char *next = read_repeat(m, r.piece_end, end, &r);
    if (m->is_wrong || strchr("*+?{)", *at)) {
        m->is_wrong = true;
        return false;
    }
    rest following = {next, end, after, NULL};
    r.after = &following;
    if (r.least == 1 && r.most == 1) return match_piece(m, r.piece, r.piece_end, text, &following);
    return match_repeat(m, &r, text);
}

static bool match_rest(regex_matcher *m, const char *text, const rest *after) {
    if (++m->steps > REGEX_STEP_LIMIT || m->depth > REGEX_DEPTH_LIMIT) m->is_wrong = true;
    if (m->is_wrong) return false;
    m->depth++;
    bool fits = after->loop ? match_repeat(m, after->loop, text)
                : after->at ? match_sequence(m, after->at, after->end, text, after->after)
                            : m->may_leave || text == m->end;
    m->depth--;
    return fits;
}

/* a|b|c */
static bool match_alternatives(regex_matcher *m, const char *at, const char *end, const char *text, const rest *after) {
    const char *from = at;
    while (!m->is_wrong) {
        while (at < end && *at != '|') at = piece_end(m, at, end);
        if (match_sequence(m, from, at, text, after)) return true;
        if (at == end) return false;
        from = ++at;
    }
    return false;
}

static tide_match match_from_start(tide_text pattern, tide_text text, bool may_leave) {
    regex_matcher m = {.start = text.at, .end = text.at + text.length, .may_leave = may_leave};
    rest whole = {NULL, NULL, NULL, NULL};
    bool fits = match_alternatives(&m, pattern.at, pattern.at + pattern.length, text.at, &whole);
    return m.is_wrong ? TIDE_MATCH_WRONG : fits ? TIDE_MATCH_YES : TIDE_MATCH_NO;
}

tide_match tide_regex_covers(tide_text pattern, tide_text text) {
    return match_from_start(pattern, text, false);
}

tide_match tide_regex_begins(tide_text pattern, tide_text text) {
    return match_from_start(pattern, text, true);
}
