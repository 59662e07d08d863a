/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF file of a model with a config.json at a file type: names as in convert_hf_to_gguf.py (conversion/ and
 * gguf-py/gguf/tensor_mapping.py of llama.cpp), types as llama-quantize chooses them. Shapes are those of transformers'
 * parameters. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "serve/config.h"
#include "serve/llama_quant.h"
#include "train/train.h"

/* model_type, and general.architecture. */
static const char *const converted[][2] = {
    {"llama", "llama"},     {"mistral", "llama"},      {"mixtral", "llama"},    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},     {"qwen2_moe", "qwen2moe"}, {"gemma", "gemma"},      {"qwen3_moe", "qwen3moe"},
    {"gemma2", "gemma2"},   {"gemma3_text", "gemma3"}, {"phi3", "phi3"},        {"olmo2", "olmo2"},
    {"granite", "granite"}, {"smollm3", "smollm3"},    {"seed_oss", "seed_oss"}};

/* What follows "model.layers.N.", or the full name; "%" is the layer. The halves of an experts' gate_up_proj are
 * separate tensors. */
static const struct {
    const char *from, *to, *second;
} gguf_names[] = {{"model.embed_tokens.weight", "token_embd.weight", NULL},
                  {"model.norm.weight", "output_norm.weight", NULL},
                  {"lm_head.weight", "output.weight", NULL},
                  {"input_layernorm.weight", "attn_norm.weight", NULL},
                  {"post_attention_layernorm.weight", "ffn_norm.weight", NULL},
                  {"pre_feedforward_layernorm.weight", "pre_ffw_norm.weight", NULL},
                  {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", NULL},
                  {"self_attn.q_proj.weight", "attn_q.weight", NULL},
                  {"self_attn.k_proj.weight", "attn_k.weight", NULL},
                  {"self_attn.v_proj.weight", "attn_v.weight", NULL},
                  {"self_attn.o_proj.weight", "attn_output.weight", NULL},
                  {"self_attn.qkv_proj.weight", "attn_qkv.weight", NULL},
                  {"self_attn.q_proj.bias", "attn_q.bias", NULL},
                  {"self_attn.k_proj.bias", "attn_k.bias", NULL},
                  {"self_attn.v_proj.bias", "attn_v.bias", NULL},
                  {"self_attn.o_proj.bias", "attn_output.bias", NULL},
                  {"self_attn.q_norm.weight", "attn_q_norm.weight", NULL},
                  {"self_attn.k_norm.weight", "attn_k_norm.weight", NULL},
                  {"mlp.gate_proj.weight", "ffn_gate.weight", NULL},
                  {"mlp.up_proj.weight", "ffn_up.weight", NULL},
                  {"mlp.down_proj.weight", "ffn_down.weight", NULL},
                  {"mlp.gate_up_proj.weight", "ffn_up.weight", NULL},
                  {"mlp.gate.weight", "ffn_gate_inp.weight", NULL},
                  {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", "ffn_up_exps.weight"},
                  {"mlp.experts.down_proj", "ffn_down_exps.weight", NULL},
                  {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", NULL},
                  {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", NULL},
                  {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", NULL},
                  {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", NULL}};

typedef struct conversion {
    tide_arena *arena;
    tide_diagnostics *diags;
    const tide_json *config;
    const char *architecture;
    tide_llama_mix mix;
    tide_json *metadata, *tensors;
    int64_t data_bytes;
} conversion;

static bool is_not_described(const conversion *c, const char *message) {
    return tide_error(c->diags, TIDE_ERR_UNSUPPORTED, "/config.json", message,
                      "give the GGUF file itself, whose header is read");
}

/* ---- tensors ---- */

static tide_json *number_node(tide_arena *arena, int64_t value) {
    tide_json *node = tide_json_new(arena, TIDE_JSON_NUMBER);
    node->is_integer = true;
    node->integer = value;
    node->number = (double)value;
    return node;
}

static bool add_tensor(conversion *c, const char *name, int64_t layer, const int64_t *sizes, int dims) {
    tide_json *entry = tide_json_new(c->arena, TIDE_JSON_ARRAY), *type = tide_json_new(c->arena, TIDE_JSON_STRING);
    tide_text key = tide_text_of(layer < 0 ? name : tide_format(c->arena, "blk.%" PRId64 ".%s", layer, name));
    const tide_ggml_type *chosen = tide_llama_type_of(&c->mix, key, layer, sizes[0], dims, dims > 2 ? sizes[2] : 1);
    int64_t bytes, count = 1;
    for (int i = 0; i < dims; i++) count *= sizes[i];
    if (!chosen || !tide_ggml_bytes(&bytes, chosen, sizes[0], count))
        return is_not_described(c, tide_format(c->arena, "%s has no whole blocks", name));
    type->text = tide_text_of(chosen->name);
    entry->first = type;
    entry->count = (uint32_t)dims + 1;
    for (int i = 0; i < dims; i++, type = type->next) type->next = number_node(c->arena, sizes[i]);
    if (tide_json_find(c->tensors, key)) return is_not_described(c, "has two parameters of one name in GGUF");
    tide_json_put(c->arena, c->tensors, key, entry);
    c->data_bytes += TIDE_ROUND_UP(bytes, TIDE_GGUF_ALIGNMENT);
    return true;
}

/* "model.layers.12.mlp.up_proj.weight": 12, and the rest; otherwise -1 and the full name. */
static int64_t layer_and_rest(const char *name, const char **rest) {
    static const char beginning[] = "model.layers.";
    int64_t layer = 0;
    *rest = name;
    if (strncmp(name, beginning, sizeof beginning - 1) != 0) return -1;
    for (name += sizeof beginning - 1; *name >= '0' && *name <= '9' && layer < TIDE_LLAMA_LAYERS_MOST; name++)
        layer = layer * 10 + (*name - '0');
    *rest = *name == '.' ? name + 1 : name;
    return layer;
}

static bool add_parameter(conversion *c, const tide_parameter_row *p) {
    const char *rest;
    int64_t layer = layer_and_rest(p->name, &rest), sizes[3] = {1, 1, 1};
    int dims = p->tensor->shape->dims;
    size_t row = 0;
    while (row < TIDE_COUNT_OF(gguf_names) && strcmp(gguf_names[row].from, rest) != 0) row++;
    if (row == TIDE_COUNT_OF(gguf_names) || dims > 3)
        return is_not_described(c, tide_format(c->arena, "what %s is called in a GGUF file is not described",
                                               tide_shown(c->arena, tide_text_of(p->name))));
    for (int i = 0; i < dims; i++) sizes[dims - 1 - i] = tide_dim_of(p->tensor, i).size;
    if (dims == 2 && sizes[1] == 1) dims = 1; /* squeezed */
    if (layer == 0 && strcmp(gguf_names[row].to, "attn_qkv.weight") == 0)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/ftype",
                    "llama-quantize of other versions gives attn_qkv other types",
                    "give the GGUF file itself, whose header is read");
    if (gguf_names[row].second) sizes[1] /= 2;
    return add_tensor(c, gguf_names[row].to, layer, sizes, dims) &&
           (!gguf_names[row].second || add_tensor(c, gguf_names[row].second, layer, sizes, dims));
}

/* rope_freqs for Llama 3's scaling, factors for LongRoPE: generate_extra_tensors. */
static bool add_rope_factors(conversion *c, int64_t head) {
    const tide_json *text = tide_serve_text_config(c->config), *rope = tide_json_at(text, "rope_parameters");
    if (!rope || rope->kind != TIDE_JSON_OBJECT) rope = tide_json_at(text, "rope_scaling");
    const tide_json *type = tide_json_at(rope, "rope_type");
    int64_t half = head / 2;
    if (!type) type = tide_json_at(rope, "type");
    if (tide_json_is_text(type, "llama3")) return add_tensor(c, "rope_freqs.weight", -1, &half, 1);
    if (!tide_json_is_text(type, "longrope") && !tide_json_is_text(type, "su")) return true;
    return add_tensor(c, "rope_factors_long.weight", -1, &half, 1) &&
           add_tensor(c, "rope_factors_short.weight", -1, &half, 1);
}

/* ---- metadata ---- */

static void put_gguf_number(conversion *c, const char *key, int64_t value) {
    if (value)
        tide_json_put(c->arena, c->metadata, tide_text_of(tide_format(c->arena, "%s.%s", c->architecture, key)),
                      number_node(c->arena, value));
}

static void put_metadata(conversion *c) {
    const tide_json *config = c->config;
    tide_json *name = tide_json_new(c->arena, TIDE_JSON_STRING);
    name->text = tide_text_of(c->architecture);
    tide_json_put(c->arena, c->metadata, TIDE_TEXT("general.architecture"), name);
    int64_t heads = TIDE_SERVE_NUMBER(config, 0, "num_attention_heads"),
            hidden = TIDE_SERVE_NUMBER(config, 0, "hidden_size"), layers = tide_serve_layers(config);
    int64_t kv_heads = TIDE_SERVE_NUMBER(config, heads, "num_key_value_heads");
    int64_t head = TIDE_SERVE_NUMBER(config, heads ? hidden / heads : 0, "head_dim");
    put_gguf_number(c, "block_count", layers);
    put_gguf_number(c, "embedding_length", hidden);
    put_gguf_number(c, "context_length", TIDE_SERVE_NUMBER(config, 0, "max_position_embeddings"));
    put_gguf_number(c, "feed_forward_length", TIDE_SERVE_NUMBER(config, 0, "intermediate_size"));
    put_gguf_number(c, "attention.head_count", heads);
    put_gguf_number(c, "attention.head_count_kv", kv_heads);
    put_gguf_number(c, "attention.key_length", head);
    put_gguf_number(c, "attention.value_length", head);
    put_gguf_number(c, "attention.sliding_window", TIDE_SERVE_NUMBER(config, 0, "sliding_window"));
    put_gguf_number(c, "expert_count", c->mix.experts);
    put_gguf_number(c, "expert_used_count", TIDE_SERVE_NUMBER(config, 0, "num_experts_per_tok"));
    put_gguf_number(c, "expert_feed_forward_length", TIDE_SERVE_NUMBER(config, 0, "moe_intermediate_size"));
    c->mix.group = kv_heads ? heads / kv_heads : 0;
    c->mix.layers = layers;
    bool counts_70b = strcmp(c->architecture, "llama") == 0 ? heads != kv_heads : strcmp(c->architecture, "qwen2") == 0;
    c->mix.is_70b = layers == 80 && counts_70b; /* LLM_TYPE_70B: src/models */
}

/* ---- the whole ---- */

static bool find_gguf_architecture(conversion *c) {
    const tide_json *type = tide_json_at(c->config, "model_type");
    for (size_t i = 0; i < TIDE_COUNT_OF(converted); i++)
        if (tide_json_is_text(type, converted[i][0])) c->architecture = converted[i][1];
    if (c->architecture && !tide_json_at(c->config, "quantization_config")) return true;
    return is_not_described(c, c->architecture
                                   ? "is of quantised weights, which are not converted"
                                   : "what convert_hf_to_gguf.py makes of this model_type is not described");
}

const tide_json *tide_llama_convert(const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    conversion c = {.arena = arena, .diags = diags, .config = job->config};
    tide_job loaded = *job;
    tide_run *run = TIDE_NEW(arena, tide_run, 1);
    tide_json *header = tide_json_new(arena, TIDE_JSON_OBJECT);
    c.metadata = tide_json_new(arena, TIDE_JSON_OBJECT);
    c.tensors = tide_json_new(arena, TIDE_JSON_OBJECT);
    c.mix = (tide_llama_mix){.ftype = job->values[TIDE_SET_ftype],
                             .has_imatrix = job->imatrix,
                             .experts = TIDE_SERVE_NUMBER(job->config, 0, "num_local_experts", "num_experts"),
                             .is_tied = true};
    loaded.mode = TIDE_mode_infer;
    if (!find_gguf_architecture(&c) || !tide_load(run, &loaded, arena, diags)) return NULL;
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const char *name = run->model.parameters[i].name;
        if (strcmp(name, "lm_head.weight") == 0) c.mix.is_tied = false;
        if (strstr(name, "self_attn.v_proj.weight") || strstr(name, "self_attn.qkv_proj.weight")) c.mix.values++;
    }
    put_metadata(&c);
    for (uint32_t i = 0; i < run->model.parameter_count; i++)
        if (!add_parameter(&c, &run->model.parameters[i])) return NULL;
    int64_t heads = TIDE_SERVE_NUMBER(job->config, 1, "num_attention_heads");
    if (!add_rope_factors(
            &c, TIDE_SERVE_NUMBER(job->config, TIDE_SERVE_NUMBER(job->config, 0, "hidden_size") / heads, "head_dim")))
        return NULL;
    tide_json_put(arena, header, TIDE_TEXT("metadata"), c.metadata);
    tide_json_put(arena, header, TIDE_TEXT("data_bytes"), number_node(arena, c.data_bytes));
    tide_json_put(arena, header, TIDE_TEXT("tensors"), c.tensors);
    return header;
}
