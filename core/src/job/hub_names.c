/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models as the Hub has them. */
#include "job/hub_names.h"

#include <string.h>

#include "base/units.h"

/* 2407, 240705 or 20240705. */
static bool is_date(tide_text word) {
    if (word.length != 4 && word.length != 6 && word.length != 8) return false;
    for (size_t i = 0; i < word.length; i++)
        if (word.at[i] < '0' || word.at[i] > '9') return false;
    return true;
}

static const struct {
    const char *words, *quantization;
} formats[] = {
    {"awq", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":true,\"version\":\"gemm\"}"},
    {"gptq", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":false,\"sym\":true}"},
    {"bnb", "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"load_in_8bit\":false,\"bnb_4bit_quant_type\":"
            "\"nf4\",\"bnb_4bit_use_double_quant\":true,\"bnb_4bit_compute_dtype\":\"bfloat16\"}"},
    {"fp8|gguf|w4a16|w8a8|w8a16|exl2|mlx|nvfp4|mxfp4|quantized|dynamic|gptqmodel|hqq|aqlm|8bit|int8", NULL},
};

/* 8b, 0.5b, 135m: behind it `base` is no size. */
static bool is_size(tide_text word) {
    if (word.length < 2 || (word.at[word.length - 1] != 'b' && word.at[word.length - 1] != 'm')) return false;
    for (size_t i = 0; i + 1 < word.length; i++)
        if ((word.at[i] < '0' || word.at[i] > '9') && word.at[i] != '.') return false;
    return true;
}

/* v3, r1: behind it four digits are a date too. */
static bool is_release(tide_text word) {
    return word.length == 2 && (word.at[0] == 'v' || word.at[0] == 'r') && word.at[1] >= '0' && word.at[1] <= '9';
}

/* How many bits there are besides the method's own word. */
static bool is_width(tide_text word) {
    return tide_text_is_among(word, "4bit|int4|nf4|unsloth");
}

static bool tells_tuning(tide_text word, bool is_sized) {
    return tide_text_is_among(word, "instruct|it|chat|hf|pt|bf16|fp16|fp32") ||
           (is_sized && tide_text_is_among(word, "base|deduped|thinking|think"));
}

tide_hub_name tide_hub_name_read(tide_arena *arena, const char *name, uint32_t kept) {
    const char *slash = strrchr(name, '/');
    tide_text rest = tide_text_of(tide_lowered(arena, tide_text_of(slash ? slash + 1 : name))), word;
    char *base = tide_arena_alloc(arena, rest.length + 1);
    size_t length = 0;
    tide_hub_name made = {.base = base};
    bool is_several = false, is_sized = false, is_version = false;
    if (tide_text_starts(rest, TIDE_TEXT("meta-llama-"))) tide_piece_next(&rest, '-', &word);
    while (tide_piece_next(&rest, '-', &word)) {
        size_t format = 0;
        while (format < TIDE_COUNT_OF(formats) && !tide_text_is_among(word, formats[format].words)) format++;
        bool tunes = length && tells_tuning(word, is_sized), dates = (is_sized || is_version) && is_date(word);
        bool is_kept = (tunes || dates) && kept > 0;
        if (is_kept) kept--;
        if (length && format < TIDE_COUNT_OF(formats)) {
            is_several = is_several || !formats[format].quantization;
            made.is_quantised = true;
            made.quantization = formats[format].quantization;
        } else if (tunes && !is_kept) {
            made.is_tuned = true;
        } else if (dates && !is_kept) {
            made.is_dated = true;
        } else if (length && is_width(word)) {
            made.is_quantised = true;
        } else {
            if (length) base[length++] = '-';
            memcpy(base + length, word.at, word.length);
            length += word.length;
            is_sized = is_sized || is_size(word);
            is_version = is_release(word);
        }
    }
    base[length] = 0;
    if (is_several) made.quantization = NULL;
    return made;
}
