/* SPDX-License-Identifier: Apache-2.0 */
/* Names of dimensions, with sums and products of them. */
#include "tensor/tensor.h"

#include <stdio.h>

static uint32_t symbol_hash(const tide_symbol *s) {
    uint32_t hash = 2166136261u ^ (uint32_t)s->operator;
    hash = (hash ^ s->left) * 16777619u;
    hash = (hash ^ s->right) * 16777619u;
    hash = (hash ^ (uint32_t)s->value) * 16777619u;
    for (size_t i = 0; i < s->name.length; i++) hash = (hash ^ (unsigned char)s->name.at[i]) * 16777619u;
    return hash;
}

static bool symbol_equal(const tide_symbol *a, const tide_symbol *b) {
    return a->operator== b->operator&& a->left == b->left && a->right == b->right && a->value == b->value &&
        tide_text_equal(a->name, b->name);
}

static uint32_t symbol_intern(tide_machine *m, tide_symbol symbol) {
    uint32_t mask = m->symbol_slot_count - 1;
    uint32_t at = symbol_hash(&symbol) & mask;
    for (; m->symbol_slots[at]; at = (at + 1) & mask)
        if (symbol_equal(&m->symbols[m->symbol_slots[at]], &symbol)) return m->symbol_slots[at];
    TIDE_ROOM(m->arena, m->symbols, m->symbol_count, m->symbol_capacity);
    m->symbols[m->symbol_count] = symbol;
    m->symbol_slots[at] = m->symbol_count++;
    if (m->symbol_count * 2 > m->symbol_slot_count) {
        m->symbol_slot_count *= 2;
        m->symbol_slots = TIDE_NEW(m->arena, uint32_t, m->symbol_slot_count);
        mask = m->symbol_slot_count - 1;
        for (uint32_t i = 1; i < m->symbol_count; i++) {
            uint32_t slot = symbol_hash(&m->symbols[i]) & mask;
            while (m->symbol_slots[slot]) slot = (slot + 1) & mask;
            m->symbol_slots[slot] = i;
        }
    }
    return m->symbol_count - 1;
}

uint32_t tide_symbol_name(tide_machine *m, tide_text name) {
    return symbol_intern(m, (tide_symbol){.operator= 'n', .name = name});
}

uint32_t tide_symbol_literal(tide_machine *m, int64_t value) {
    return symbol_intern(m, (tide_symbol){.operator= '#', .value = value});
}

uint32_t tide_symbol_of(tide_machine *m, char operator, tide_value left, tide_value right) {
    if (!left.symbol && !right.symbol) return 0;
    if (operator== '*' && !left.symbol && left.integer == 1) return right.symbol;
    if ((operator== '*' || operator== '/') && !right.symbol && right.integer == 1) return left.symbol;
    if ((operator== '+' || operator== '-') && !right.symbol && right.integer == 0) return left.symbol;
    uint32_t l = left.symbol ? left.symbol : tide_symbol_literal(m, left.integer);
    uint32_t r = right.symbol ? right.symbol : tide_symbol_literal(m, right.integer);
    const tide_symbol *of = &m->symbols[l]; /* multiplied and divided by the same, it is unchanged */
    if (operator== '*' && of->operator== '/' && of->right == r) return of->left;
    if (operator== '/' && of->operator== '*' && of->right == r) return of->left;
    if (operator== '/' && of->operator== '*' && of->left == r) return of->right;
    return symbol_intern(m, (tide_symbol){.operator= operator, .left = l, .right = r});
}

enum { SYMBOL_TEXT_LIMIT = 160 };

static void symbol_print(const tide_machine *m, uint32_t symbol, char outer, char *text, size_t *length, int depth) {
    const tide_symbol *s = &m->symbols[symbol];
    size_t left = SYMBOL_TEXT_LIMIT - *length;
    if (left < 32 || depth > 8) return;
    if (s->operator== 'n' || s->operator== '#') {
        int n = s->operator== 'n' ? snprintf(text + *length, left, "%.*s", (int)s->name.length, s->name.at)
                                  : snprintf(text + *length, left, "%lld", (long long)s->value);
        *length += n > 0 ? ((size_t)n < left ? (size_t)n : left - 1) : 0;
        return;
    }
    bool is_sum = s->operator== '+' || s->operator== '-';
    bool needs_brackets = (is_sum && (outer == '*' || outer == '/')) || outer == '/';
    if (needs_brackets) text[(*length)++] = '(';
    symbol_print(m, s->left, s->operator== '/' ? '*' : s->operator, text, length, depth + 1);
    text[(*length)++] = s->operator;
    symbol_print(m, s->right, s->operator== '-' ? '/' : s->operator, text, length, depth + 1);
    if (needs_brackets) text[(*length)++] = ')';
    text[*length] = 0;
}

const char *tide_symbol_text(tide_machine *m, uint32_t symbol) {
    char text[SYMBOL_TEXT_LIMIT + 8] = "";
    size_t length = 0;
    if (symbol) symbol_print(m, symbol, 0, text, &length, 0);
    return tide_text_copy(m->arena, (tide_text){text, length});
}
