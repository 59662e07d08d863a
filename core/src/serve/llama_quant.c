/* SPDX-License-Identifier: Apache-2.0 */
/* llama-quantize: src/llama-quant.cpp of llama.cpp. */
#include "serve/llama_quant.h"

#include <string.h>

#include "base/units.h"

/* ---- file types, a bit each ---- */

enum {
#define FTYPE(name, type) NUMBER_##name,
#include "serve/llama_quant.def"
    FTYPES
};

#define FTYPE(name, type) static const uint64_t name = UINT64_C(1) << NUMBER_##name;
#include "serve/llama_quant.def"

static const struct {
    const char *name, *type;
} ftypes[FTYPES] = {
#define FTYPE(name, type) {#name, #type},
#include "serve/llama_quant.def"
};

#define ANY UINT64_MAX
#define LOW (IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ2_M)

/* ---- kinds: tensor_get_category ---- */

typedef enum kind {
    OUTPUT,
    TOKEN_EMBD,
    EXPERTS,
    EVERY,
    ATTN_V,
    ATTN_K,
    ATTN_Q,
    ATTN_OUTPUT,
    FFN_UP,
    FFN_GATE,
    FFN_DOWN,
    OTHER
} kind;

static kind kind_of(tide_text name) {
    static const struct {
        const char *part;
        kind kind;
    } parts[] = {{"attn_qkv.weight", ATTN_V}, {"attn_kv_b.weight", ATTN_V}, {"attn_v.weight", ATTN_V},
                 {"attn_k.weight", ATTN_K},   {"attn_q.weight", ATTN_Q},    {"attn_output.weight", ATTN_OUTPUT},
                 {"ffn_up", FFN_UP},          {"ffn_gate", FFN_GATE},       {"ffn_down", FFN_DOWN}};
    if (tide_text_is(name, "output.weight")) return OUTPUT;
    if (tide_text_is(name, "token_embd.weight") || tide_text_is(name, "per_layer_token_embd.weight")) return TOKEN_EMBD;
    for (size_t i = 0; i < TIDE_COUNT_OF(parts); i++)
        if (tide_text_contains(name, tide_text_of(parts[i].part))) return parts[i].kind;
    return OTHER;
}

/* tensor_allows_quantization, for the tensors that llama_convert.c makes. */
static bool is_quantised(tide_text name, int dims) {
    static const char *const left[] = {"_norm.weight", "ffn_gate_inp", "rope_f"};
    if (dims < 2 || name.length < 6 || memcmp(name.at + name.length - 6, "weight", 6) != 0) return false;
    for (size_t i = 0; i < TIDE_COUNT_OF(left); i++)
        if (tide_text_contains(name, tide_text_of(left[i]))) return false;
    return true;
}

/* ---- conditions ---- */

typedef enum mix_condition {
    ALWAYS,
    NO_WHOLE_BLOCKS,
    GROUPED,
    EXPERTS_4,
    EXPERTS_8,
    NOT_EXPERTS_8,
    NO_IMATRIX,
    FIRST_2,
    FIRST_4,
    FIRST_8TH,
    FIRST_16TH,
    FIRST_8TH_COUNTED,
    FIRST_8TH_IMATRIX,
    FIRST_8TH_NO_IMATRIX,
    MORE_BITS,
    MORE_BITS_EXPERTS_8,
    MIDDLE
} mix_condition;

/* use_more_bits */
static bool has_more_bits(int64_t layer, int64_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/* The index of a tensor among those of its kind, and their number: layer_info, i_attention_wv. */
typedef struct kind_place {
    int64_t number, of, counted; /* counted: not by expert */
    bool has_whole_blocks;
} kind_place;

static bool mix_holds(const tide_llama_mix *mix, mix_condition is, const kind_place *p) {
    bool is_first_8th = p->number < p->of / 8;
    switch (is) {
    case ALWAYS:
        return true;
    case NO_WHOLE_BLOCKS:
        return !p->has_whole_blocks;
    case GROUPED:
        return mix->group >= 4;
    case EXPERTS_4:
        return mix->experts >= 4;
    case EXPERTS_8:
        return mix->experts == 8;
    case NOT_EXPERTS_8:
        return mix->experts != 8;
    case NO_IMATRIX:
        return !mix->has_imatrix;
    case FIRST_2:
        return p->number < 2;
    case FIRST_4:
        return p->number < 4;
    case FIRST_8TH:
        return is_first_8th;
    case FIRST_16TH:
        return p->number < p->of / 16;
    case FIRST_8TH_COUNTED:
        return p->counted < p->of / 8;
    case FIRST_8TH_IMATRIX:
        return is_first_8th && mix->has_imatrix;
    case FIRST_8TH_NO_IMATRIX:
        return is_first_8th && !mix->has_imatrix;
    case MORE_BITS:
        return has_more_bits(p->number, p->of);
    case MORE_BITS_EXPERTS_8:
        return mix->experts == 8 && has_more_bits(p->number, p->of);
    case MIDDLE:
        return p->number >= p->of / 8 && p->number < 7 * p->of / 8;
    }
    return false;
}

/* ---- the choice ---- */

static const char *type_by_rows(const tide_llama_mix *mix, kind of, uint64_t ftype, const kind_place *p) {
#define MIX(row_kind, row_ftypes, row_condition, row_type)                                                             \
    if (of == (row_kind) && (ftype & (row_ftypes)) && mix_holds(mix, row_condition, p)) return #row_type;
#include "serve/llama_quant.def"
    return NULL;
}

static kind_place place_in_kind(tide_llama_mix *mix, kind of, int64_t layer) {
    int64_t *counter = of == ATTN_V     ? &mix->seen_values
                       : of == FFN_DOWN ? &mix->seen_downs
                       : of == FFN_UP   ? &mix->seen_ups
                       : of == FFN_GATE ? &mix->seen_gates
                                        : NULL;
    kind_place p = {.of = of == ATTN_V ? mix->values : mix->layers, .counted = counter ? *counter : 0};
    p.number = of != ATTN_V && mix->experts > 1 ? layer : p.counted;
    if (counter) ++*counter;
    return p;
}

/* tensor_type_fallback: for rows that are not whole blocks. */
static const char *fallback_of(const char *type) {
    static const char *const fallbacks[][2] = {
        {"IQ1_", "IQ4_NL"}, {"IQ2_", "IQ4_NL"}, {"IQ3_", "IQ4_NL"}, {"IQ4_XS", "IQ4_NL"}, {"Q2_K", "Q4_0"},
        {"Q3_K", "Q4_0"},   {"TQ", "Q4_0"},     {"Q4_K", "Q5_0"},   {"Q5_K", "Q5_1"},     {"Q6_K", "Q8_0"}};
    for (size_t i = 0; i < TIDE_COUNT_OF(fallbacks); i++)
        if (strncmp(type, fallbacks[i][0], strlen(fallbacks[i][0])) == 0) return fallbacks[i][1];
    return type;
}

static const char *mixed_type(const tide_llama_mix *mix, int number, const kind_place *p, kind of, int64_t matrices) {
    const char *type = ftypes[number].type, *chosen;
    uint64_t bit = UINT64_C(1) << number;
    bool is_output = of == OUTPUT || (of == TOKEN_EMBD && mix->is_tied);
    if (bit == MXFP4_MOE && !is_output) of = matrices > 1 ? EXPERTS : EVERY;
    chosen = type_by_rows(mix, is_output ? OUTPUT : of == FFN_GATE ? FFN_UP : of, bit, p);
    if (chosen) type = chosen;
    if (of != ATTN_V || (bit & LOW)) return type;
    if (mix->is_70b && (strcmp(type, "Q3_K") == 0 || strcmp(type, "Q4_K") == 0)) type = "Q5_K";
    return mix->experts == 8 ? "Q8_0" : type;
}

const tide_ggml_type *tide_llama_type_of(tide_llama_mix *mix, tide_text name, int64_t layer, int64_t columns, int dims,
                                         int64_t matrices) {
    int number = 0;
    while (number < FTYPES && strcmp(ftypes[number].name, mix->ftype) != 0) number++;
    if (number == FTYPES) return NULL;
    if (!is_quantised(name, dims)) return tide_ggml_type_named(TIDE_TEXT("F32"));
    const tide_ggml_type *base = tide_ggml_type_named(tide_text_of(ftypes[number].type));
    if (base->block_elements == 1) return base; /* as it was converted */
    kind of = kind_of(name);
    kind_place p = place_in_kind(mix, of, layer);
    p.has_whole_blocks = columns % base->block_elements == 0;
    const char *type = mixed_type(mix, number, &p, of, matrices);
    const tide_ggml_type *chosen = tide_ggml_type_named(tide_text_of(type));
    if (columns % chosen->block_elements == 0) return chosen;
    chosen = tide_ggml_type_named(tide_text_of(fallback_of(type)));
    return columns % chosen->block_elements == 0 ? chosen : tide_ggml_type_named(TIDE_TEXT("F16"));
}
