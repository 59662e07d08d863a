/* SPDX-License-Identifier: Apache-2.0 */
/* How the engine stores the weights of linear layers: model_executor/layers/quantization of vLLM 0.32.0, for formats
 * that models/architectures/vllm/layers.json describes. */
#include <string.h>

#include "base/units.h"

#include "serve/config.h"
#include "serve/serve.h"

static bool config_says(const tide_json *object, const char *key, const char *word) {
    const tide_json *found = tide_json_at(object, key);
    return tide_json_is(found, TIDE_JSON_STRING) && tide_text_is(found->text, word);
}

static bool asks_for(const tide_json *object, const char *key) {
    const tide_json *found = tide_json_at(object, key);
    return found && found->is_true;
}

static int64_t size_of(const tide_json *object, const char *key, const char *other) {
    return tide_serve_number(object, (const char *const[]){key, other, NULL}, 0);
}

/* Absent, or only the head, which is stored unquantised anyway. */
static bool leaves_only_head(const tide_json *object, const char *key) {
    const tide_json *names = tide_json_at(object, key), *name = names ? names->first : NULL;
    if (!name) return true;
    return names->kind == TIDE_JSON_ARRAY && !name->next && name->kind == TIDE_JSON_STRING &&
           tide_text_is(name->text, "lm_head");
}

/* fp8.py, is_layer_skipped: full names. Heads, embeddings and norms are unquantised anyway; gates may be excluded in
 * all layers. */
static bool leaves_gates(const tide_json *config, const tide_json *q, const char *key, tide_serve_weights *w) {
    const tide_json *names = tide_json_at(q, key);
    int64_t gates = 0;
    if (names && names->kind != TIDE_JSON_ARRAY && names->kind != TIDE_JSON_NULL) return false;
    for (const tide_json *name = names ? names->first : NULL; name; name = name->next) {
        if (name->kind != TIDE_JSON_STRING) return false;
        bool is_plain = tide_text_ends(name->text, TIDE_TEXT("norm")) || tide_text_is(name->text, "lm_head") ||
                        tide_text_ends(name->text, TIDE_TEXT("embed_tokens")) ||
                        tide_text_ends(name->text, TIDE_TEXT("e_score_correction_bias")) ||
                        tide_text_is(name->text, "visual") || tide_text_is(name->text, "gate");
        gates += tide_text_ends(name->text, TIDE_TEXT(".mlp.gate"));
        if (!is_plain && !tide_text_ends(name->text, TIDE_TEXT(".mlp.gate"))) return false;
    }
    w->keeps_gates = w->keeps_gates || gates > 0;
    return gates == 0 || gates == tide_serve_layers(config);
}

/* Group sizes that Marlin supports; Machete supports all of them but 32. */
static bool is_group_size(int64_t size) {
    return size == 32 || size == 64 || size == 128;
}

/* [128, 128] */
static bool is_block_of_128(const tide_json *block) {
    const tide_json *rows = block->kind == TIDE_JSON_ARRAY ? block->first : NULL, *columns = rows ? rows->next : NULL;
    return columns && !columns->next && rows->is_integer && rows->integer == 128 && columns->is_integer &&
           columns->integer == 128;
}

/* fp8.py: Fp8LinearMethod, for a checkpoint. Below capability 8.9 it is repacked for Marlin. */
static const char *fp8_format(const tide_json *config, const tide_json *q, tide_serve_weights *w, int capability) {
    const tide_json *block = tide_json_at(q, "weight_block_size");
    if (!leaves_gates(config, q, "modules_to_not_convert", w) || !leaves_gates(config, q, "ignored_layers", w) ||
        (capability != 89 && capability != 90))
        return NULL;
    w->has_cache_scales = true;
    if (block) return is_block_of_128(block) ? "fp8_block" : NULL;
    return config_says(q, "activation_scheme", "static") ? "fp8_static" : "fp8_dynamic";
}

/* A pattern of re.match for the gate of each layer: "-:.*mlp.gate", optionally followed by "$" or ".*". */
static bool matches_gates(tide_text pattern) {
    static const char *const gates[] = {"-:.*mlp\\.gate", "-:.*mlp.gate", "-:.*\\.mlp\\.gate", "-:.*.mlp.gate"};
    tide_text ends[] = {TIDE_TEXT("$"), TIDE_TEXT(".*")};
    for (size_t i = 0; i < TIDE_COUNT_OF(ends); i++)
        if (tide_text_ends(pattern, ends[i])) pattern.length -= ends[i].length;
    for (size_t i = 0; i < TIDE_COUNT_OF(gates); i++)
        if (tide_text_is(pattern, gates[i])) return true;
    return false;
}

/* auto_gptq.py, get_dynamic_override: patterns of excluded layers. None, or only gates of mixtures. */
static bool overrides_only_gates(const tide_json *q, tide_serve_weights *w) {
    const tide_json *patterns = tide_json_at(q, "dynamic");
    for (const tide_json *entry = patterns ? patterns->first : NULL; entry; entry = entry->next) {
        if (!matches_gates(entry->key)) return false;
        w->keeps_gates = true;
    }
    return true;
}

static const char *packed_format(const tide_json *config, const tide_json *q, tide_serve_weights *w) {
    bool is_awq = config_says(q, "quant_method", "awq");
    const tide_json *symmetric = tide_json_at(q, "sym"), *zeros = tide_json_at(q, "zero_point");
    w->bits = size_of(q, "bits", "w_bit");
    w->group_size = size_of(q, "group_size", "q_group_size");
    if (!is_group_size(w->group_size) || asks_for(q, "desc_act") || asks_for(q, "lm_head") ||
        !overrides_only_gates(q, w) || !leaves_gates(config, q, "modules_to_not_convert", w))
        return NULL;
    if (is_awq) return w->bits == 4 && (!zeros || zeros->is_true) ? "awq" : NULL;
    return (w->bits == 4 || w->bits == 8) && (!symmetric || symmetric->is_true) ? "gptq" : NULL;
}

/* compressed_tensors.py, _get_scheme_from_parts: one scheme for all linear layers. */
static const char *compressed_format(const tide_json *q, tide_serve_weights *w, int capability) {
    const tide_json *groups = tide_json_at(q, "config_groups"), *group = groups ? groups->first : NULL;
    const tide_json *weights = tide_json_at(group, "weights"), *inputs = tide_json_at(group, "input_activations");
    const tide_json *targets = tide_json_at(group, "targets"), *target = targets ? targets->first : NULL;
    if (!group || group->next || !target || target->next || !tide_json_is(target, TIDE_JSON_STRING) ||
        !tide_text_is(target->text, "Linear") || !leaves_only_head(q, "ignore") || !asks_for(weights, "symmetric"))
        return NULL;
    w->has_cache_scales = true;
    w->bits = size_of(weights, "num_bits", "num_bits");
    bool is_int = config_says(weights, "type", "int"), is_channel = config_says(weights, "strategy", "channel");
    if (!inputs || inputs->kind != TIDE_JSON_OBJECT) {
        w->group_size = size_of(weights, "group_size", "group_size");
        bool is_packed = is_int && config_says(weights, "strategy", "group") && (w->bits == 4 || w->bits == 8);
        return is_packed && is_group_size(w->group_size) && !tide_json_at(weights, "actorder") ? "wna16" : NULL;
    }
    if (w->bits != 8 || !is_channel || !asks_for(inputs, "dynamic") || !config_says(inputs, "strategy", "token"))
        return NULL;
    if (is_int) return capability >= 75 && capability <= 90 ? "int8_channel" : NULL;
    return capability == 89 || capability == 90 ? "fp8_channel" : NULL;
}

/* Qwen's vision towers: as they are in an AWQ checkpoint that excludes "visual" (auto_awq.py, is_layer_skipped). */
static bool keeps_tower(const tide_serve_run *run, const tide_json *q) {
    const tide_json *names = tide_json_at(q, "modules_to_not_convert"), *name = names ? names->first : NULL;
    return tide_text_contains(run->architecture, TIDE_TEXT("Qwen")) && config_says(q, "quant_method", "awq") && name &&
           !name->next && name->kind == TIDE_JSON_STRING && tide_text_is(name->text, "visual");
}

tide_serve_weights tide_serve_weights_of(const tide_serve_run *run) {
    const tide_json *config = run->job.config, *q = tide_json_at(config, "quantization_config");
    int capability = run->device.capability;
    tide_serve_weights w = {.bits = 8, .group_size = 128, .tower_format = "none"};
    const tide_engine_root *root = tide_engine_root_of("vllm", run->architecture);
    if (!q) q = tide_json_at(tide_serve_text_config(config), "quantization_config");
    if (q && q->kind == TIDE_JSON_NULL) q = NULL;
    if (!q && run->job.quantization == TIDE_quantization_none) {
        w.format = "none";
    } else if (!root || run->job.cpu_offload_gb || (tide_json_at(config, "vision_config") && !keeps_tower(run, q)) ||
               tide_json_at(config, "num_mel_bins")) { /* which parts of a tower are quantised is not described */
        w.format = NULL;
    } else if (!q) {
        bool is_fp8 = run->job.quantization == TIDE_quantization_fp8;
        w.format = is_fp8 && capability >= 80 ? "fp8" : NULL;
    } else if (config_says(q, "quant_method", "fp8")) {
        w.format = fp8_format(config, q, &w, capability);
    } else if (config_says(q, "quant_method", "gptq") || config_says(q, "quant_method", "awq")) {
        w.format = packed_format(config, q, &w);
    } else if (config_says(q, "quant_method", "mxfp4") &&
               tide_text_is(run->architecture, "GptOssForCausalLM")) { /* gpt_oss's experts, by Triton kernels */
        w.format = capability == 90 ? "mxfp4" : NULL;
    } else if (config_says(q, "quant_method", "compressed-tensors")) {
        w.format = compressed_format(q, &w, capability);
    }
    return w;
}
