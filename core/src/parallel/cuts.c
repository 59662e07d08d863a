/* SPDX-License-Identifier: Apache-2.0 */
/* "tp_plan" of descriptions and of the library. */
#include "parallel/cuts.h"

#include <string.h>

#include "base/units.h"
#include "lang/lang.h"

const tide_json *tide_cuts_of(tide_model *model, uint32_t scope) {
    return tide_description_rows(model->descriptions, model->scopes[scope].description, "tp_plan");
}

static bool is_pair(tide_text key, tide_text parent, tide_text name) {
    return key.length == parent.length + 1 + name.length && tide_text_starts(key, parent) &&
           key.at[parent.length] == '.' && memcmp(key.at + parent.length + 1, name.at, name.length) == 0;
}

static const tide_json *cut_row(const tide_model *model, const tide_json *cuts, uint32_t instance) {
    const tide_instance *of = &model->instances[instance], *parent = &model->instances[of->parent];
    for (const tide_json *row = cuts ? cuts->first : NULL; row; row = row->next) {
        bool is_named = tide_text_equal(row->key, of->name) ||
                        (of->parent && is_pair(row->key, parent->name, of->name)) ||
                        (of->parent && is_pair(row->key, parent->of->name, of->name));
        if (is_named && row->kind == TIDE_JSON_STRING) return row;
    }
    return NULL;
}

tide_cut tide_cut_of(const tide_model *model, const tide_json *cuts, uint32_t instance) {
    const tide_json *row = cut_row(model, cuts, instance);
    if (!row) return (tide_cut){0};
    const char *of = strstr(row->text.at, " of ");
    return (tide_cut){{row->text.at, of ? (size_t)(of - row->text.at) : row->text.length}, of ? of + 4 : NULL};
}

int tide_cut_dim(tide_model *model, const tide_parameter_row *row) {
    const tide_json *cuts = tide_cuts_of(model, 0);
    const char *dot = strrchr(row->name, '.');
    tide_text name = tide_text_of(dot ? dot + 1 : row->name), module = model->instances[row->module].name;
    for (const tide_json *at = cuts ? cuts->first : NULL; at; at = at->next)
        if (is_pair(at->key, module, name)) return tide_json_is_text(at, "row") ? 2 : 1;
    return 1;
}

/* ---- transformers' styles ---- */

static const char *style_of_row(const tide_json *row) {
    static const struct {
        const char *how, *style;
    } styles[] = {{"column", "colwise"},
                  {"row", "rowwise"},
                  {"packed column", "packed_colwise"},
                  {"experts", "moe_tp_experts"},
                  {"latent", "mla_kv_a_proj"}};
    /* init_parallel_plans() cuts the embedding */
    if (tide_text_is(row->text, "vocabulary"))
        return tide_text_is(row->key, "lm_head") ? "colwise_gather_output" : NULL;
    for (size_t i = 0; i < TIDE_COUNT_OF(styles); i++) {
        size_t length = strlen(styles[i].how);
        if (!tide_text_starts(row->text, tide_text_of(styles[i].how))) continue;
        if (row->text.length == length || strncmp(row->text.at + length, " of ", 4) == 0) return styles[i].style;
    }
    return NULL;
}

static void put_style(tide_arena *arena, tide_json *plan, tide_text key, const char *style) {
    tide_json *value = tide_json_new(arena, TIDE_JSON_STRING);
    value->text = tide_text_of(style);
    tide_json_put(arena, plan, key, value);
}

tide_styles tide_styles_of_cuts(tide_model *model, uint32_t scope) {
    tide_arena *arena = model->m->arena;
    const tide_json *cuts = tide_cuts_of(model, scope);
    tide_json *tp = tide_json_new(arena, TIDE_JSON_OBJECT), *ep = tide_json_new(arena, TIDE_JSON_OBJECT);
    for (const tide_json *row = cuts->first; row; row = row->next) {
        const char *style = style_of_row(row);
        if (style) put_style(arena, tp, row->key, style);
        if (!tide_text_is(row->text, "experts")) continue;
        for (const tide_json *part = cuts->first; part; part = part->next)
            if (part->key.length > row->key.length && tide_text_starts(part->key, row->key) &&
                part->key.at[row->key.length] == '.')
                put_style(arena, ep, part->key, "grouped_gemm");
        put_style(arena, ep, row->key, "ep_dispatch_experts");
    }
    return (tide_styles){tp, ep};
}
