/* SPDX-License-Identifier: Apache-2.0 */
/* What vLLM 0.32.0 refuses before it allocates anything, in its words: vllm/config and its checks. */
#include <string.h>

#include "serve/config.h"
#include "serve/engine_args.h"
#include "serve/serve.h"

static bool refuses(const tide_serve_run *run, const char *place, const char *message, const char *remedy) {
    return tide_error(run->machine.diags, TIDE_ERR_FIELD_RANGE, place, message, remedy);
}

static const tide_json *quantization_config(const tide_serve_run *run) {
    const tide_json *found = tide_json_at(run->job.config, "quantization_config");
    if (!found) found = tide_json_at(tide_serve_text_config(run->job.config), "quantization_config");
    return tide_json_is(found, TIDE_JSON_OBJECT) ? found : NULL;
}

static bool knows_architecture(const tide_serve_run *run) {
    static const struct {
        const char *architecture, *message;
    } refused[] = {
#define REFUSED(architecture, message) {architecture, message},
#include "serve/vllm_refused.def"
#undef REFUSED
    };
    const tide_text head = TIDE_TEXT("ForMaskedLM"), named = run->architecture;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!tide_text_is(named, refused[i].architecture)) continue;
        const char *message = refused[i].message, *at = strstr(message, "%s");
        tide_arena *arena = run->machine.arena;
        if (at) message = tide_format(arena, "%.*s%s%s", (int)(at - message), message, refused[i].architecture, at + 2);
        const char *body = tide_text_ends(named, head)
                               ? tide_format(arena,
                                             "embedding models are served as their body, %.*sModel, where "
                                             "vLLM has it",
                                             (int)(named.length - head.length), named.at)
                               : NULL;
        return refuses(run, "/config.json/architectures/0", message, body);
    }
    return named.length || refuses(run, "/config.json/architectures", "No model architectures are specified",
                                   "give a config.json of transformers': vLLM serves no models of timm and diffusers");
}

/* layers/quantization/__init__.py, QUANTIZATION_METHODS. */
#define QUANTIZATION_METHODS                                                                                           \
    "'awq', 'auto_awq', 'fp8', 'fbgemm_fp8', 'fp_quant', 'modelopt', 'modelopt_fp4', 'modelopt_mxfp8', "               \
    "'modelopt_mixed', 'auto_gptq', 'gptq', 'gptq_marlin', 'awq_marlin', 'humming', 'compressed-tensors', "            \
    "'experts_int8', 'quark', 'moe_wna16', 'torchao', 'inc', 'mxfp4', 'gpt_oss_mxfp4', 'deepseek_v4_fp8', "            \
    "'online', 'fp8_per_tensor', 'fp8_per_block', 'fp8_per_channel', 'int8_per_channel_weight_only', "                 \
    "'nvfp4_per_token', 'mxfp8'"

static bool knows_method(const tide_serve_run *run, const char *name, const char *place) {
    tide_arena *arena = run->machine.arena;
    return strstr(QUANTIZATION_METHODS, tide_format(arena, "'%s'", name)) ||
           refuses(
               run, place,
               tide_format(arena, "Unknown quantization method: %s. Must be one of [%s].", name, QUANTIZATION_METHODS),
               NULL);
}

/* config/model.py, _verify_quantization; and the configuration of a method that loads quantised checkpoints. */
static bool knows_quantization(const tide_serve_run *run) {
    tide_arena *arena = run->machine.arena;
    const tide_json *stored = quantization_config(run), *method = tide_json_at(stored, "quant_method");
    bool is_asked = run->job.quantization != TIDE_quantization_none && run->job.quantization != TIDE_quantization_fp8;
    const char *asked = run->job.quantization == TIDE_quantization_compressed_tensors
                            ? "compressed-tensors"
                            : run->job.values[TIDE_SET_quantization];
    if (is_asked && !knows_method(run, asked, "/settings/quantization")) return false;
    if (is_asked && !stored)
        return refuses(run, "/settings/quantization", tide_format(arena, "Cannot find the config file for %s", asked),
                       "give the config.json of a model whose weights are stored so");
    const tide_json *order = tide_json_at(stored, "desc_act");
    if (order && order->is_true && tide_json_is(method, TIDE_JSON_STRING) &&
        tide_text_is(method->text, "gptq")) /* layers/quantization/auto_gptq.py */
        return refuses(run, "/config.json/quantization_config/desc_act",
                       "GPTQ group activation ordering (desc_act=True) is no longer supported. Use a checkpoint with "
                       "static activation ordering or desc_act=False.",
                       NULL);
    return !tide_json_is(method, TIDE_JSON_STRING) ||
           knows_method(run, tide_shown(arena, method->text), "/config.json/quantization_config/quant_method");
}

/* config/model.py: _get_and_verify_max_len. Scaling factors of rope are floating-point. */
static bool takes_length(const tide_serve_run *run) {
    const tide_machine *m = &run->machine;
    const tide_json *text = tide_serve_text_config(run->job.config), *own = tide_json_at(text, "model_max_length");
    const char *key = NULL;
    int64_t derived = tide_serve_derived_length(run->job.config, &key), asked = run->job.max_model_len;
    bool is_none = asked == 0 && tide_job_sets(&run->job, TIDE_SET_max_model_len);
    if (is_none ||
        (asked == TIDE_SERVE_AUTO && derived == TIDE_ENDLESS)) /* without a limit in the model nothing is fitted */
        return refuses(run, "/settings/max_model_len",
                       tide_format(m->arena,
                                   "max_model_len must be a positive integer, got int: %lld. Example: "
                                   "max_model_len=2048",
                                   (long long)asked),
                       NULL);
    if (asked <= derived || (own && own->is_integer && asked <= own->integer)) return true;
    bool has_rope =
        tide_json_at(text, "rope_theta") || tide_json_at(text, "rope_parameters") || tide_json_at(text, "rope_scaling");
    return refuses(
        run, "/settings/max_model_len",
        tide_format(m->arena,
                    "User-specified max_model_len (%lld) is greater than the derived max_model_len "
                    "(%s=%lld%s or model_max_length=%s in model's config.json). To allow overriding this "
                    "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
                    (long long)asked, key, (long long)derived, has_rope ? ".0" : "",
                    own && own->is_integer ? tide_format(m->arena, "%lld", (long long)own->integer) : "None"),
        "give fewer, or a config.json whose rope_parameters make them");
}

/* config/model.py, _check_valid_dtype. */
static bool takes_dtype(const tide_serve_run *run) {
    const tide_json *type = tide_json_at(run->job.config, "model_type");
    if (run->model.state.dtype != TIDE_FP16 || !tide_serve_bars_fp16(run->job.config)) return true;
    return refuses(run, "/settings/dtype",
                   tide_format(run->machine.arena,
                               "The model type '%.*s' does not support float16. Reason: Numerical instability. Please "
                               "use bfloat16 or float32 instead.",
                               (int)type->text.length, type->text.at),
                   NULL);
}

/* config/scheduler.py: verify_max_model_len; the engine lowers its default, but not a given value. */
static bool holds_requests(const tide_serve_run *run) {
    int64_t tokens = run->job.max_num_batched_tokens, requests = run->asked_requests,
            length = run->figures.max_model_len;
    if (tokens < length && !tide_serve_chunks_prefill(run))
        return refuses(run, "/settings/max_num_batched_tokens",
                       tide_format(run->machine.arena,
                                   "max_num_batched_tokens (%lld) is smaller than max_model_len (%lld). This "
                                   "effectively limits the maximum sequence length to max_num_batched_tokens and "
                                   "makes vLLM reject longer sequences. Please increase max_num_batched_tokens or "
                                   "decrease max_model_len.",
                                   (long long)tokens, (long long)length),
                       NULL);
    return requests <= tokens ||
           refuses(run, "/settings/max_num_seqs",
                   tide_format(run->machine.arena,
                               "max_num_batched_tokens (%lld) must be greater than or equal to max_num_seqs (%lld).",
                               (long long)tokens, (long long)requests),
                   NULL);
}

/* config/speculative.py: verify_equal_vocab_size_if_draft_model, and that the number of draft tokens is given. */
static bool takes_drafts(const tide_serve_run *run) {
    const tide_machine *m = &run->machine;
    if (tide_job_sets(&run->job, TIDE_SET_speculative_config) && !run->drafts.tokens)
        return refuses(run, "/settings/speculative_config",
                       "num_speculative_tokens must be provided with speculative model unless the draft model config "
                       "contains an n_predict parameter.",
                       NULL);
    if (!run->drafts.config) return true;
    int64_t target = tide_serve_vocabulary(run->job.config), draft = tide_serve_vocabulary(run->drafts.config);
    return target == draft || refuses(run, "/settings/draft",
                                      tide_format(m->arena,
                                                  "Target and draft model should have the same vocabulary size. Target "
                                                  "model vocab_size=%lld. Draft model vocab_size=%lld.",
                                                  (long long)target, (long long)draft),
                                      "give a draft model with the target's tokenizer");
}

/* config/lora.py: MaxLoRARanks. */
static bool takes_rank(const tide_serve_run *run) {
    static const int64_t ranks[] = {1, 8, 16, 32, 64, 128, 256, 320, 512};
    if (!run->job.enable_lora) return true;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        if (run->job.max_lora_rank == ranks[i]) return true;
    return refuses(run, "/settings/max_lora_rank",
                   tide_format(run->machine.arena, "Input should be 1, 8, 16, 32, 64, 128, 256, 320 or 512: is %lld",
                               (long long)run->job.max_lora_rank),
                   NULL);
}

enum { VOCABULARY_PADDING = 64 }; /* layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE */

/* config/model.py: verify_with_parallel_config; distributed/utils.py: ensure_divisibility for the vocabulary. A stage
 * without layers has no cache, and does not start. */
static bool takes_ranks(const tide_serve_run *run) {
    const tide_machine *m = &run->machine;
    const tide_json *config = run->job.config;
    int64_t heads = TIDE_SERVE_NUMBER(config, 0, "num_attention_heads", "n_head"), layers = tide_serve_layers(config);
    int64_t experts =
                TIDE_SERVE_NUMBER(config, 0, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
            ranks = run->job.tensor_parallel_size, stages = run->job.pipeline_parallel_size;
    if (heads % ranks != 0)
        return refuses(run, "/settings/tensor_parallel_size",
                       tide_format(m->arena,
                                   "Total number of attention heads (%lld) must be divisible by tensor parallel size "
                                   "(%lld).",
                                   (long long)heads, (long long)ranks),
                       "give a divisor of the heads");
    int64_t rows = (tide_serve_vocabulary(config) + VOCABULARY_PADDING - 1) / VOCABULARY_PADDING * VOCABULARY_PADDING;
    if (rows % ranks != 0)
        return refuses(run, "/settings/tensor_parallel_size",
                       tide_format(m->arena, "%lld is not divisible by %lld", (long long)rows, (long long)ranks),
                       "give a divisor of the padded vocabulary");
    if (run->job.enable_expert_parallel && experts == 0)
        return refuses(run, "/settings/enable_expert_parallel",
                       "Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
                       NULL);
    return layers == 0 || stages <= layers ||
           refuses(run, "/settings/pipeline_parallel_size",
                   tide_format(m->arena, "%lld stages of %lld layers: a stage without a layer does not start",
                               (long long)stages, (long long)layers),
                   NULL);
}

/* platforms/cuda.py, get_attn_backend_cls: every backend supports multiples of 16. */
static bool takes_block(const tide_serve_run *run) {
    return run->job.block_size % 16 == 0 ||
           refuses(run, "/settings/block_size",
                   tide_format(run->machine.arena, "No valid attention backend found for cuda with block_size=%lld",
                               (long long)run->job.block_size),
                   "give a multiple of 16");
}

enum { FP8_CAPABILITY = 89 }; /* platforms/cuda.py, has_native_fp8 of Triton's kernels */

/* attention/backends/triton_attn.py, and what no backend for latent attention supports. */
static bool takes_cache_type(const tide_serve_run *run) {
    const tide_job *job = &run->job;
    int capability = run->device.capability;
    if (!tide_serve_scales_heads(job)) return true;
    if (tide_json_at(job->config, "kv_lora_rank"))
        return refuses(run, "/settings/kv_cache_dtype",
                       tide_format(run->machine.arena,
                                   "No valid attention backend found for cuda with use_mla=True, kv_cache_dtype=%s",
                                   job->values[TIDE_SET_kv_cache_dtype]),
                       "give fp8");
    return job->kv_cache_dtype != TIDE_kv_cache_dtype_fp8_per_token_head || capability >= FP8_CAPABILITY ||
           refuses(run, "/settings/kv_cache_dtype",
                   tide_format(run->machine.arena,
                               "FP8 KV cache is not supported by the Triton attention backend on %s (compute "
                               "capability %d.%d); native FP8 (fp8e4nv) requires SM89+. Re-run with "
                               "--kv-cache-dtype bfloat16.",
                               run->device.name, capability / 10, capability % 10),
                   "int8_per_token_head takes as much");
}

/* multimodal/processing/context.py, allowed_mm_limits: only for modalities of the model. */
static void say_unused_limits(const tide_serve_run *run) {
    const tide_json *config = run->job.config;
    bool has_media = tide_json_at(config, "vision_config") || tide_json_at(config, "num_mel_bins");
    if (run->limits && !has_media)
        tide_report(run->machine.diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/limit_mm_per_prompt",
                    "has no effect: the model takes text alone", NULL);
}

enum { LEAST_CAPABILITY = 75 }; /* of PyTorch's builds for CUDA 13 */

/* platforms/cuda.py, check_if_supports_dtype. */
static bool takes_gpu(const tide_serve_run *run) {
    tide_arena *arena = run->machine.arena;
    int capability = run->device.capability;
    if (capability < LEAST_CAPABILITY)
        return refuses(run, "/settings/gpu",
                       tide_format(arena, "compute capability %d.%d, not 7.5", capability / 10, capability % 10),
                       "PyTorch 2.13 for CUDA 13 has no kernels below 7.5");
    return capability >= 80 || run->model.state.dtype != TIDE_BF16 ||
           refuses(
               run, "/settings/dtype",
               tide_format(arena,
                           "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your %s GPU "
                           "has compute capability %d.%d. You can use float16 instead by explicitly setting the "
                           "`dtype` flag in CLI, for example: --dtype=half.",
                           run->device.name, capability / 10, capability % 10),
               NULL);
}

/* In the order of config/model.py, __post_init__, and what follows it: the first refusal is the engine's. */
bool tide_serve_check(const tide_serve_run *run) {
    say_unused_limits(run);
    return takes_gpu(run) && knows_architecture(run) && takes_dtype(run) && takes_length(run) &&
           knows_quantization(run) && holds_requests(run) && takes_rank(run) && takes_ranks(run) && takes_drafts(run) &&
           takes_block(run) && takes_cache_type(run);
}
