/* SPDX-License-Identifier: Apache-2.0 */
/* --moe-layer-freq where it is an expression of Python lists (training/arguments.py, moe_freq_type()): which layers
 * have experts. */
#include "job/readers/megatron.h"

enum { MOST_LAYERS = 4096, MOST_DEPTH = 16 };

typedef struct layer_list {
    int count;
    bool is_sparse[MOST_LAYERS];
} layer_list;

typedef struct expression {
    const char *at;
    layer_list *list; /* what is read so far */
    int depth;
    bool is_wrong;
} expression;

static bool takes(expression *e, char c) {
    while (*e->at == ' ') e->at++;
    if (*e->at != c) return false;
    e->at++;
    return true;
}

static int pattern_number(expression *e) {
    int value = 0;
    while (*e->at == ' ') e->at++;
    e->is_wrong |= *e->at < '0' || *e->at > '9';
    while (*e->at >= '0' && *e->at <= '9' && value <= MOST_LAYERS) value = 10 * value + (*e->at++ - '0');
    return value;
}

static void put_layer(expression *e, bool is_sparse) {
    e->is_wrong |= e->list->count >= MOST_LAYERS;
    if (!e->is_wrong) e->list->is_sparse[e->list->count++] = is_sparse;
}

static void read_sum(expression *e);

/* [0,1], or a sum in parentheses; each may be multiplied. */
static void read_product(expression *e) {
    int first = e->list->count;
    if (takes(e, '(') && ++e->depth < MOST_DEPTH) {
        read_sum(e);
        e->is_wrong |= !takes(e, ')');
        e->depth--;
    } else if (takes(e, '[')) {
        bool is_over = takes(e, ']');
        while (!is_over && !e->is_wrong) {
            int value = pattern_number(e);
            e->is_wrong |= value > 1;
            put_layer(e, value == 1);
            is_over = takes(e, ']');
            e->is_wrong |= !is_over && !takes(e, ',');
        }
    } else {
        e->is_wrong = true;
    }
    while (!e->is_wrong && takes(e, '*')) {
        int length = e->list->count - first, times = pattern_number(e);
        if (times == 0) e->list->count = first;
        for (int i = 0; i < length * (times - 1) && !e->is_wrong; i++) put_layer(e, e->list->is_sparse[first + i]);
    }
}

static void read_sum(expression *e) {
    read_product(e);
    while (!e->is_wrong && takes(e, '+')) read_product(e);
}

const char *tide_megatron_layer_pattern(tide_claims *c, const char *section, const tide_json *value) {
    const char *text = value->kind == TIDE_JSON_STRING ? value->text.at : tide_argument_json_text(c->arena, value);
    expression e = {.at = text, .list = TIDE_NEW(c->arena, layer_list, 1)};
    read_sum(&e);
    while (*e.at == ' ') e.at++;
    if (e.is_wrong || *e.at || !e.list->count) {
        tide_error(
            c->diags, TIDE_ERR_FIELD_TYPE, tide_claims_place(c, tide_format(c->arena, "%smoe_layer_freq", section)),
            tide_format(c->arena, "is \"%s\"; must be a list of 0 and 1", tide_shown(c->arena, tide_text_of(text))),
            "like ([0]*3+[1]*11)");
        return NULL;
    }
    char *made = TIDE_NEW(c->arena, char, 2 * (size_t)e.list->count + 2);
    for (int i = 0; i < e.list->count; i++) {
        made[2 * i] = i ? ',' : '[';
        made[2 * i + 1] = e.list->is_sparse[i] ? '1' : '0';
    }
    made[2 * e.list->count] = ']';
    return made;
}
