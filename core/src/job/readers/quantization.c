/* SPDX-License-Identifier: Apache-2.0 */
/* "quantization_config" of a config.json: how that checkpoint stores its weights.
 * transformers/utils/quantization_config.py */
#include "job/readers/readers.h"

#include <string.h>

typedef struct quantization {
    tide_job_arguments *arguments;
    const tide_json *from;
} quantization;

/* A given setting overrides the configuration. */
static void put_quant_setting(const quantization *q, tide_setting_id id, const char *value) {
    if (!q->arguments->is_given[id])
        tide_setting_put(q->arguments, tide_text_of(tide_settings[id].name), tide_text_of(value), TIDE_ORIGIN_FILE);
}

static void put_quant_value(const quantization *q, tide_setting_id id, const tide_json *value) {
    const char *text = value && value->kind != TIDE_JSON_NULL ? tide_argument_value(q->arguments->arena, value) : NULL;
    if (text && *text) put_quant_setting(q, id, text);
}

static void put_key(const quantization *q, tide_setting_id id, const char *key) {
    put_quant_value(q, id, tide_json_at(q->from, key));
}

static bool is_whole(const tide_json *value, int64_t least) {
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer >= least;
}

static bool is_given(const tide_json *value) {
    return value && value->kind != TIDE_JSON_NULL;
}

/* -1 is one scale per row. */
static void put_group(const quantization *q, const tide_json *value) {
    bool is_number = value && value->kind == TIDE_JSON_NUMBER && value->is_integer;
    if (is_number && value->integer == -1)
        put_quant_setting(q, TIDE_SET_quant_group_size, "0");
    else
        put_quant_value(q, TIDE_SET_quant_group_size, value);
}

static bool read_bitsandbytes(const quantization *q) {
    bool is_8bit = tide_json_is_true(tide_json_at(q->from, "load_in_8bit"));
    put_quant_setting(q, TIDE_SET_quant,
                      is_8bit                                                                  ? "int8"
                      : tide_json_is_text(tide_json_at(q->from, "bnb_4bit_quant_type"), "nf4") ? "nf4"
                                                                                               : "fp4");
    put_key(q, TIDE_SET_quant_skip, "llm_int8_skip_modules");
    if (is_8bit) return true;
    put_quant_setting(q, TIDE_SET_quant_double,
                      tide_json_is_true(tide_json_at(q->from, "bnb_4bit_use_double_quant")) ? "true" : "false");
    put_key(q, TIDE_SET_quant_compute_dtype, "bnb_4bit_compute_dtype");
    put_key(q, TIDE_SET_quant_storage, "bnb_4bit_quant_storage");
    return true;
}

static bool read_packed(const quantization *q, const char *method) {
    put_quant_setting(q, TIDE_SET_quant, method);
    put_key(q, TIDE_SET_quant_bits, "bits");
    put_group(q, tide_json_at(q->from, "group_size"));
    put_key(q, TIDE_SET_quant_zero_point, "zero_point");
    put_key(q, TIDE_SET_quant_skip, "modules_to_not_convert");
    return true;
}

/* A pair of equal sides; null is one scale per weight. */
static bool read_fp8(const quantization *q) {
    const tide_json *block = tide_json_at(q->from, "weight_block_size");
    put_quant_setting(q, TIDE_SET_quant, "fp8");
    if (!is_given(block))
        put_quant_setting(q, TIDE_SET_quant_group_size, "0");
    else if (block->first->integer == block->first->next->integer)
        put_group(q, block->first);
    else
        return false;
    put_key(q, TIDE_SET_quant_skip, "modules_to_not_convert");
    return true;
}

/* A single group of layers, as in published checkpoints. */
static bool read_compressed(const quantization *q) {
    const tide_json *groups = tide_json_at(q->from, "config_groups"),
                    *group = groups && groups->kind == TIDE_JSON_OBJECT ? groups->first : NULL;
    const tide_json *weights = tide_json_at(group, "weights");
    if (!groups || !weights || weights->kind != TIDE_JSON_OBJECT || groups->count != 1) return false;
    put_quant_setting(q, TIDE_SET_quant, "compressed_tensors");
    put_quant_value(q, TIDE_SET_quant_bits, tide_json_at(weights, "num_bits"));
    put_quant_setting(q, TIDE_SET_quant_type,
                      tide_json_is_text(tide_json_at(weights, "type"), "float") ? "float" : "int");
    put_quant_setting(q, TIDE_SET_quant_zero_point,
                      tide_json_is_true(tide_json_at(weights, "symmetric")) ? "false" : "true");
    const tide_json *size = tide_json_at(weights, "group_size");
    if (size && size->kind == TIDE_JSON_NUMBER)
        put_group(q, size);
    else
        put_quant_setting(q, TIDE_SET_quant_group_size, "0");
    put_key(q, TIDE_SET_quant_skip, "ignore");
    return true;
}

/* ---- what is no configuration ---- */

/* GPTQConfig.post_init, the base of AwqConfig. */
static const char *fault_of_packed(const tide_json *from, const char **key) {
    const tide_json *group = tide_json_at(from, "group_size");
    bool is_row = is_whole(group, -1) && group->integer == -1;
    *key = "group_size";
    return is_given(group) && !is_row && !is_whole(group, 1) ? "must be greater than 0, or -1 for a whole row" : NULL;
}

/* FineGrainedFP8Config.post_init */
static const char *fault_of_fp8(const tide_json *from, const char **key) {
    const tide_json *block = tide_json_at(from, "weight_block_size");
    *key = "weight_block_size";
    if (!is_given(block)) return NULL;
    bool is_pair = block->kind == TIDE_JSON_ARRAY && block->count == 2;
    return is_pair && is_whole(block->first, 1) && is_whole(block->first->next, 1)
               ? NULL
               : "must be two positive integers, or null for one scale per weight";
}

/* compressed_tensors/quantization/quant_args.py, validate_group */
static const char *fault_of_compressed(const tide_json *from, const char **key) {
    const tide_json *groups = tide_json_at(from, "config_groups");
    *key = "config_groups";
    for (const tide_json *g = groups && groups->kind == TIDE_JSON_OBJECT ? groups->first : NULL; g; g = g->next) {
        const tide_json *size = tide_json_at(tide_json_at(g, "weights"), "group_size");
        bool is_row = is_whole(size, -1) && size->integer == -1;
        if (is_given(size) && !is_row && !is_whole(size, 1))
            return "group_size must be greater than 0, or -1 for a whole row";
    }
    return NULL;
}

const char *tide_quantization_fault(const tide_json *from, const char **key) {
    const tide_json *method = tide_json_at(from, "quant_method");
    if (tide_json_is_text(method, "gptq") || tide_json_is_text(method, "awq")) return fault_of_packed(from, key);
    if (tide_json_is_text(method, "fp8")) return fault_of_fp8(from, key);
    return tide_json_is_text(method, "compressed-tensors") ? fault_of_compressed(from, key) : NULL;
}

bool tide_quantization_read(tide_job_arguments *arguments, const tide_json *from) {
    quantization q = {arguments, from};
    if (from->kind != TIDE_JSON_OBJECT) return false;
    if (tide_json_is_text(tide_json_at(from, "quant_method"), "bitsandbytes") ||
        tide_json_is_true(tide_json_at(from, "load_in_4bit")) || tide_json_is_true(tide_json_at(from, "load_in_8bit")))
        return read_bitsandbytes(&q);
    if (tide_json_is_text(tide_json_at(from, "quant_method"), "gptq")) return read_packed(&q, "gptq");
    if (tide_json_is_text(tide_json_at(from, "quant_method"), "awq")) return read_packed(&q, "awq");
    if (tide_json_is_text(tide_json_at(from, "quant_method"), "fp8")) return read_fp8(&q);
    if (tide_json_is_text(tide_json_at(from, "quant_method"), "compressed-tensors")) return read_compressed(&q);
    return false;
}
