/* SPDX-License-Identifier: Apache-2.0 */
/* Names of models on the Hub. */
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

/* Whether a word describes how weights are stored; it follows the model's own words. */
static bool tells_format(tide_text word) {
    return tide_text_is_among(
        word,
        "awq|gptq|bnb|fp8|gguf|ggml|exl2|exl3|mlx|nvfp4|mxfp4|fp4|hqq|aqlm|gptqmodel|"
        "autoround|quantized|dequantized|unquantized|dynamic|qat|onnx|marlin|unsloth|4bit|"
        "8bit|2bit|3bit|1x16|2x8|int4|int8|nf4|prequantized|linearized|w4a16|w8a8|w8a16|quantized.w4a16|quantized.w8a8|"
        "quantized.w8a16|q4_0|q4_k_m|q4_k_s|q5_k_m|q6_k|q8_0");
}

/* 8b, 0.5b, 135m: followed by `base`, it is not a size. */
static bool is_size(tide_text word) {
    if (word.length < 2 || (word.at[word.length - 1] != 'b' && word.at[word.length - 1] != 'm')) return false;
    for (size_t i = 0; i + 1 < word.length; i++)
        if ((word.at[i] < '0' || word.at[i] > '9') && word.at[i] != '.') return false;
    return true;
}

/* v3, r1, k2: four digits after it are a date as well. */
static bool is_release(tide_text word) {
    return word.length == 2 && strchr("vrk", word.at[0]) && word.at[1] >= '0' && word.at[1] <= '9';
}

static bool tells_tuning(tide_text word, bool is_sized) {
    return tide_text_is_among(word, "instruct|it|chat|sft|dpo|hf|pt|bf16|fp16|fp32") ||
           (is_sized && tide_text_is_among(word, "base|deduped|thinking|think"));
}

tide_hub_name tide_hub_name_read(tide_arena *arena, const char *name, uint32_t kept) {
    const char *slash = strrchr(name, '/');
    char *lowered = tide_lowered(arena, tide_text_of(slash ? slash + 1 : name));
    char *type = strstr(lowered, "-gguf:"); /* of the file */
    if (type) type[strlen("-gguf")] = 0;
    tide_text rest = tide_text_of(lowered), word;
    char *base = tide_arena_alloc(arena, rest.length + 1);
    size_t length = 0;
    tide_hub_name made = {.base = base};
    bool is_sized = false, is_version = false;
    if (tide_text_starts(rest, TIDE_TEXT("meta-llama-"))) tide_piece_next(&rest, '-', &word);
    while (tide_piece_next(&rest, '-', &word)) {
        bool tunes = length && tells_tuning(word, is_sized), dates = (is_sized || is_version) && is_date(word);
        bool is_kept = (tunes || dates) && kept > 0;
        if (is_kept) kept--;
        if (length && tells_format(word)) {
            made.format = tide_format(arena, made.format ? "%s-%.*s" : "%s%.*s", made.format ? made.format : "",
                                      (int)word.length, word.at);
        } else if (tunes && !is_kept) {
            made.is_tuned = true;
            made.is_whole = made.is_whole || tide_text_is_among(word, "bf16|fp16|fp32");
        } else if (dates && !is_kept) {
            made.is_dated = true;
        } else {
            if (length) base[length++] = '-';
            memcpy(base + length, word.at, word.length);
            length += word.length;
            is_sized = is_sized || is_size(word);
            is_version = is_release(word);
        }
    }
    base[length] = 0;
    return made;
}

static bool is_listed(const char *list, tide_text word) {
    return !*list || tide_text_is_among(word, list);
}

const char *tide_hub_quantization(const char *format, tide_text owner, tide_text type) {
    static const struct {
        const char *words, *owners, *types, *quantization;
    } rows[] = {
#define TIDE_HUB_FORMAT(words, owners, types, quantization) {words, owners, types, quantization},
#include "job/hub_formats.def"
#undef TIDE_HUB_FORMAT
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (tide_text_is_among(tide_text_of(format), rows[i].words) && is_listed(rows[i].owners, owner) &&
            is_listed(rows[i].types, type))
            return rows[i].quantization;
    return NULL;
}
