/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of Megatron-LM's pretrain_gpt.py, of a command line or as keys of a file: the layout, and the model that
 * they make (megatron/training/arguments.py; transformer/transformer_config.py). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

static const tide_key_row megatron_rows[] = {
    KEY_NEUTRAL("num_layers|hidden_size|ffn_hidden_size|num_attention_heads|group_query_attention|num_query_groups"),
    KEY_NEUTRAL("kv_channels|max_position_embeddings|vocab_size|padded_vocab_size|normalization|swiglu|num_experts"),
    KEY_NEUTRAL("position_embedding_type|untie_embeddings_and_output_weights|disable_bias_linear|add_qkv_bias"),
    KEY_NEUTRAL("qk_layernorm|hidden_dropout|attention_dropout|moe_router_topk|moe_ffn_hidden_size"),
#include "job/readers/keys/megatron.def"
};

enum { SHAPE_ROWS = 4 }; /* the first: what makes the model */

static const tide_key_table megatron_keys = {.rows = megatron_rows, .count = TIDE_COUNT_OF(megatron_rows)};

/* ---- the model ---- */

static bool option_is_on(const tide_json *root, const char *key) {
    const tide_json *value = tide_json_at(root, key);
    return value && value->kind == TIDE_JSON_BOOL && value->is_true;
}

static int64_t option_size(const tide_json *root, const char *key, int64_t otherwise) {
    const tide_json *value = tide_json_at(root, key);
    bool is_size = value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0;
    return is_size && value->integer <= INT32_MAX ? value->integer : otherwise;
}

static const char *option_word(const tide_json *root, const char *key, const char *otherwise) {
    const tide_json *value = tide_json_at(root, key);
    return tide_json_is(value, TIDE_JSON_STRING) ? value->text.at : otherwise;
}

static const char *option_number(const tide_claims *c, const tide_json *root, const char *key, const char *otherwise) {
    const tide_json *value = tide_json_at(root, key);
    return value && value->kind == TIDE_JSON_NUMBER ? tide_argument_value(c->arena, value) : otherwise;
}

/* A choice of words; another is an error. */
static bool is_one_of_two(tide_claims *c, const char *key, const char *word, const char *first, const char *second) {
    if (strcmp(word, first) == 0 || strcmp(word, second) == 0) return true;
    return tide_claims_refuse(
        c, TIDE_ERR_UNSUPPORTED, key,
        tide_format(c->arena, "%s=%s is not described", key, tide_shown(c->arena, tide_text_of(word))),
        tide_format(c->arena, "%s and %s are", first, second));
}

/* The configuration that Megatron-Core's GPTModel gets: a Llama's or a Mixtral's keys, and what differs by the names of
 * TransformerConfig, as models/architectures/megatron/gpt.json reads them. */
static const char *gpt_config(tide_claims *c, const tide_json *root) {
    int64_t layers = option_size(root, "num_layers", 0), hidden = option_size(root, "hidden_size", 0),
            heads = option_size(root, "num_attention_heads", 0), experts = option_size(root, "num_experts", 0),
            vocabulary = option_size(root, "vocab_size", option_size(root, "padded_vocab_size", 0));
    bool is_gated = option_is_on(root, "swiglu"), has_bias = !option_is_on(root, "disable_bias_linear");
    const char *norm = option_word(root, "normalization", "LayerNorm"),
               *positions =
                   option_word(root, "position_embedding_type",
                               option_is_on(root, "use_rotary_position_embeddings") ? "rope" : "learned_absolute");
    if (!layers || !hidden || !heads) return NULL;
    if (!is_one_of_two(c, "normalization", norm, "LayerNorm", "RMSNorm") ||
        !is_one_of_two(c, "position_embedding_type", positions, "rope", "learned_absolute"))
        return NULL;
    int64_t gated = hidden * 8 / 3 / 64 * 64,
            inner = option_size(root, "ffn_hidden_size", is_gated ? gated : 4 * hidden),
            groups = option_is_on(root, "group_query_attention") ? option_size(root, "num_query_groups", 1) : heads;
    const char *text = tide_format(
        c->arena,
        "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"num_hidden_layers\":%" PRId64 ",\"hidden_size\":%" PRId64
        ",\"num_attention_heads\":%" PRId64 ",\"num_key_value_heads\":%" PRId64 ",\"intermediate_size\":%" PRId64
        ",\"head_dim\":%" PRId64 ",\"max_position_embeddings\":%" PRId64 ",\"tie_word_embeddings\":%s",
        experts ? "MixtralForCausalLM" : "LlamaForCausalLM", experts ? "mixtral" : "llama", layers, hidden, heads,
        groups, inner, option_size(root, "kv_channels", hidden / heads),
        option_size(root, "max_position_embeddings", 2048),
        option_is_on(root, "untie_embeddings_and_output_weights") ? "false" : "true");
    text = tide_format(
        c->arena,
        "%s,\"normalization\":\"%s\",\"gated_linear_unit\":%s,\"activation\":\"%s\",\"add_bias_linear\":%s"
        ",\"add_qkv_bias\":%s,\"qk_layernorm\":%s,\"position_embedding_type\":\"%s\",\"hidden_dropout\":%s"
        ",\"attention_dropout\":%s",
        text, norm, is_gated ? "true" : "false", is_gated ? "silu" : "gelu", has_bias ? "true" : "false",
        option_is_on(root, "add_qkv_bias") ? "true" : "false", option_is_on(root, "qk_layernorm") ? "true" : "false",
        positions, option_number(c, root, "hidden_dropout", "0.1"), option_number(c, root, "attention_dropout", "0.1"));
    if (experts)
        text = tide_format(c->arena,
                           "%s,\"num_local_experts\":%" PRId64 ",\"num_experts_per_tok\":%" PRId64
                           ",\"moe_intermediate_size\":%" PRId64,
                           text, experts, option_size(root, "moe_router_topk", 2),
                           option_size(root, "moe_ffn_hidden_size", inner));
    if (vocabulary) text = tide_format(c->arena, "%s,\"vocab_size\":%" PRId64, text, vocabulary);
    return tide_format(c->arena, "%s}", text);
}

static bool is_of_gpt(const char *key) {
    for (size_t i = 0; i < SHAPE_ROWS; i++) {
        tide_text rest = tide_text_of(megatron_rows[i].key), one;
        while (tide_piece_next(&rest, '|', &one))
            if (tide_text_is(one, key)) return true;
    }
    return false;
}

static void make_gpt(tide_claims *c, const tide_claims_file *file) {
    const char *text = c->inputs->config ? NULL : gpt_config(c, file->root);
    if (!text) return;
    for (tide_file_key *entry = file->summary->first; entry; entry = entry->next)
        if (is_of_gpt(entry->key)) entry->effect = TIDE_KEY_USED;
    if (!strstr(text, "\"vocab_size\""))
        tide_error(c->diags, TIDE_ERR_FIELD_MISSING, tide_claims_place(c, "vocab_size"),
                   tide_format(c->arena, "%s does not say vocab_size, which the tokenizer has", file->summary->name),
                   "add --vocab-size to it, or give the model's config.json");
    c->inputs->config_text = tide_text_of(text);
    c->inputs->config = tide_json_parse(c->arena, c->inputs->config_text, file->place, c->diags);
    c->inputs->config_file = c->inputs->source = file->summary->name;
    c->inputs->config_name = c->inputs->title = "GPT of Megatron-Core";
}

/* ---- the layout ---- */

static int64_t claimed_size(const tide_claims *c, tide_setting_id setting) {
    int64_t value = 0;
    const tide_file_key *said = c->settings[setting];
    return said && tide_text_to_i64(&value, tide_text_of(said->taken)) && value > 0 ? value : 1;
}

static void imply_count(tide_claims *c, tide_setting_id setting, int64_t size) {
    tide_imply(c, setting, tide_format(c->arena, "%" PRId64, size));
}

/* Data parallel is what tensor, pipeline and context parallel leave of the processes that the launcher starts. */
static void settle_data_parallel(tide_claims *c) {
    int64_t others = claimed_size(c, TIDE_SET_parallel_tp) * claimed_size(c, TIDE_SET_parallel_pp) *
                     claimed_size(c, TIDE_SET_parallel_cp),
            processes = tide_fact_int(c, TIDE_FACT_processes, 0), ranks = 1, rows = claimed_size(c, TIDE_SET_batch),
            step = tide_fact_int(c, TIDE_FACT_generation_batch, 0);
    if (processes > 0 && others > 0 && processes % others)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_processes],
                   tide_format(c->arena,
                               "%" PRId64 " processes are not divided by %" PRId64
                               ", which is tensor times pipeline times context parallel",
                               processes, others),
                   NULL);
    else if (processes > 0 && others > 0)
        ranks = processes / others;
    else
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/parallel.dp",
                    "the files do not say how many processes there are: parallel.dp=1 is taken", "give parallel.dp");
    imply_count(c, TIDE_SET_parallel_dp, ranks);
    if (c->facts[TIDE_FACT_processes]) c->facts[TIDE_FACT_processes]->effect = TIDE_KEY_USED;
    if (step > 0 && step % (rows * ranks) == 0)
        tide_settle(c, TIDE_FACT_generation_batch, TIDE_SET_parallel_microbatches,
                    tide_format(c->arena, "%" PRId64, step / (rows * ranks)));
    else if (step > 0)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_generation_batch],
                   tide_format(c->arena,
                               "global_batch_size=%" PRId64 " is not a multiple of micro_batch_size times %" PRId64
                               " data parallel ranks",
                               step, ranks),
                   NULL);
    else
        tide_imply(c, TIDE_SET_parallel_microbatches, "1");
}

/* What the script's arguments are where they are not given, which settings of this program are not. */
static void settle_arguments(tide_claims *c, const tide_json *root) {
    bool is_bf16 = option_is_on(root, "bf16");
    int64_t chunk = option_size(root, "num_layers_per_virtual_pipeline_stage", 0),
            stage = option_size(root, "num_layers", 0) / claimed_size(c, TIDE_SET_parallel_pp);
    if (chunk && stage >= chunk) imply_count(c, TIDE_SET_parallel_virtual_stages, stage / chunk);
    tide_imply(c, TIDE_SET_parallel_kind, "megatron");
    tide_imply(c, TIDE_SET_dtype, "fp32");
    tide_imply(c, TIDE_SET_clip, "1.0");
    tide_imply(c, TIDE_SET_parallel_distributed_optimizer, "false");
    if (is_bf16) c->settings[TIDE_SET_parallel_grad_reduce_in_fp32] = NULL; /* set by validate_args() */
    tide_imply(c, TIDE_SET_parallel_grad_reduce_in_fp32, is_bf16 ? "true" : "false");
    tide_imply(c, TIDE_SET_parallel_attention_mask, "true");
    if (option_size(root, "num_experts", 0)) {
        tide_imply(c, TIDE_SET_parallel_grouped_gemm, "false");
        tide_imply(c, TIDE_SET_parallel_dispatcher, "allgather");
    }
    if (!c->facts[TIDE_FACT_loss_type]) {
        c->settings[TIDE_SET_parallel_cross_entropy_fusion] = NULL;
    } else {
        tide_imply(c, TIDE_SET_parallel_cross_entropy_fusion, "native");
        c->facts[TIDE_FACT_loss_type]->effect = TIDE_KEY_USED;
    }
}

static void settle_megatron(tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_megatron_reader) file = file->next;
    if (!file) return;
    c->at = file;
    make_gpt(c, file);
    settle_data_parallel(c);
    settle_arguments(c, file->root);
}

const tide_reader tide_megatron_reader = {.title = "arguments of Megatron-LM's pretrain_gpt.py",
                                          .marks = "tensor_model_parallel_size|pipeline_model_parallel_size",
                                          .keys = &megatron_keys,
                                          .trains = true,
                                          .precedence = 2,
                                          .settle = settle_megatron};
