/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of Megatron-LM's pretrain_gpt.py, from a command line or as keys of a file: the layout, and the model that
 * they define (megatron/training/arguments.py; transformer/transformer_config.py). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/megatron.h"

#define ARGUMENTS_OF_GPT                                                                                               \
    "num_layers|hidden_size|ffn_hidden_size|num_attention_heads|group_query_attention|num_query_groups|kv_channels|"   \
    "max_position_embeddings|vocab_size|padded_vocab_size|normalization|swiglu|num_experts|position_embedding_type|"   \
    "untie_embeddings_and_output_weights|disable_bias_linear|add_qkv_bias|hidden_dropout|attention_dropout|"           \
    "squared_relu|use_rotary_position_embeddings"

enum { GPT2_VOCABULARY = 50257 };

static const tide_key_row megatron_rows[] = {
    KEY_NEUTRAL(ARGUMENTS_OF_GPT),
    KEY_NEUTRAL(TIDE_GPT_FIELDS),
#include "job/readers/keys/megatron.def"
};

static const tide_key_table megatron_keys = {
    .rows = megatron_rows, .count = TIDE_COUNT_OF(megatron_rows), .more = &tide_transformer_keys};

/* Without a size: that of the tokenizer, known of GPT-2's alone, which everybody's vocab.json is. */
static int64_t vocabulary_of(tide_claims *c, const tide_json *root) {
    int64_t size = tide_option_size(root, "vocab_size", tide_option_size(root, "padded_vocab_size", 0));
    bool is_gpt2 = strcmp(tide_option_word(root, "tokenizer_type", ""), "GPT2BPETokenizer") == 0;
    if (size || !is_gpt2 || c->arguments->has_vocabulary) return size;
    tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, tide_claims_place(c, "tokenizer_type"),
                "GPT2BPETokenizer: 50257 tokens, as in GPT-2's vocab.json",
                "give overrides.vocab_size if yours differs");
    return GPT2_VOCABULARY;
}

/* --kv-lora-rank is 32 if it is not given, unlike in MLATransformerConfig. */
static const tide_json *with_script_defaults(const tide_claims *c, const tide_json *root) {
    if (!tide_option_is_on(root, "multi_latent_attention", false) || tide_json_at(root, "kv_lora_rank")) return root;
    tide_json *given = tide_json_clone(c->arena, root),
              *rank = tide_argument_json(c->arena, TIDE_TEXT("32"), "", c->diags);
    tide_json_put(c->arena, given, TIDE_TEXT("kv_lora_rank"), rank);
    return given;
}

/* The TransformerConfig made from the arguments (core_transformer_config_from_args). */
static void make_model_of_arguments(tide_claims *c, const tide_claims_file *file) {
    const tide_json *root = file->root;
    bool has_rotary = tide_option_is_on(root, "use_rotary_position_embeddings", false),
         is_gated = tide_option_is_on(root, "swiglu", false),
         is_squared = tide_option_is_on(root, "squared_relu", false);
    tide_gpt_make(
        c, file,
        &(tide_gpt){
            .fields = with_script_defaults(c, root),
            .keys = ARGUMENTS_OF_GPT,
            .section = "",
            .layers = tide_option_size(root, "num_layers", 0),
            .hidden = tide_option_size(root, "hidden_size", 0),
            .heads = tide_option_size(root, "num_attention_heads", 0),
            .groups = tide_option_is_on(root, "group_query_attention", false)
                          ? tide_option_size(root, "num_query_groups", 1)
                          : 0,
            .inner = tide_option_size(root, "ffn_hidden_size", 0),
            .head_size = tide_option_size(root, "kv_channels", 0),
            .positions = tide_option_size(root, "max_position_embeddings", 0),
            .vocabulary = vocabulary_of(c, root),
            .experts = tide_option_size(root, "num_experts", 0),
            .is_gated = is_gated,
            .activation = is_gated     ? "silu"
                          : is_squared ? "squared_relu"
                                       : "gelu",
            .has_bias = !tide_option_is_on(root, "disable_bias_linear", false),
            .has_qkv_bias = tide_option_is_on(root, "add_qkv_bias", false),
            .is_tied = !tide_option_is_on(root, "untie_embeddings_and_output_weights", false),
            .norm = tide_option_word(root, "normalization", "LayerNorm"),
            .position = tide_option_word(root, "position_embedding_type", has_rotary ? "rope" : "learned_absolute"),
            .hidden_dropout = tide_option_number(c, root, "hidden_dropout", "0.1"),
            .attention_dropout = tide_option_number(c, root, "attention_dropout", "0.1"),
        });
}

/* validate_args(): gradients of bf16 parameters are accumulated in fp32, unless half precision is requested. */
static void settle_gradients(tide_claims *c, const tide_json *root) {
    bool is_half = tide_option_is_on(root, "grad_reduce_in_bf16", false) ||
                   strcmp(tide_option_word(root, "main_grads_dtype", "fp32"), "fp32") != 0;
    if (tide_option_is_on(root, "bf16", false) && !is_half)
        tide_megatron_force(c, TIDE_SET_parallel_grad_reduce_in_fp32, "true");
    tide_imply(c, TIDE_SET_parallel_grad_reduce_in_fp32, "false");
}

/* A fused activation has two switches, of which its own is read (core_transformer_config_from_args); GeLU is not fused
 * without a bias (validate_args). */
static void settle_activation(tide_claims *c, const tide_json *root) {
    bool is_gated = tide_option_is_on(root, "swiglu", false);
    const char *own = is_gated ? "no_bias_swiglu_fusion" : "no_bias_gelu_fusion";
    if (!is_gated && tide_option_is_on(root, "disable_bias_linear", false) && tide_json_at(root, "num_layers")) {
        tide_megatron_force(c, TIDE_SET_parallel_bias_activation_fusion, "false");
        return;
    }
    bool is_claimed = c->settings[TIDE_SET_parallel_bias_activation_fusion],
         says_model = tide_json_at(root, "num_layers");
    if (is_claimed && says_model && !tide_option_is_on(root, own, false))
        tide_megatron_force(c, TIDE_SET_parallel_bias_activation_fusion, "true");
}

static void settle_chunks(tide_claims *c, const tide_json *root) {
    int64_t chunk = tide_option_size(root, "num_layers_per_virtual_pipeline_stage", 0),
            stage = tide_option_size(root, "num_layers", 0) / tide_option_size(root, "pipeline_model_parallel_size", 1);
    if (chunk && stage / chunk > 1)
        tide_imply(c, TIDE_SET_parallel_virtual_stages, tide_format(c->arena, "%" PRId64, stage / chunk));
}

/* Defaults of the script's arguments that differ from those of settings. */
static void settle_arguments(tide_claims *c, const tide_json *root) {
    tide_imply(c, TIDE_SET_dtype, "fp32");
    if (!tide_option_is_on(root, "bf16", false) && !tide_option_is_on(root, "fp16", false))
        tide_imply(c, TIDE_SET_parallel_attention_backend, "unfused"); /* the choice of AttnBackend.auto for fp32 */
    tide_imply(c, TIDE_SET_clip, "1.0");
    tide_imply(c, TIDE_SET_parallel_distributed_optimizer, "false");
    tide_imply(c, TIDE_SET_parallel_attention_mask, "true");
    if (tide_option_size(root, "num_experts", 0)) {
        tide_imply(c, TIDE_SET_parallel_grouped_gemm, "false");
        tide_imply(c, TIDE_SET_parallel_dispatcher, "allgather");
        tide_imply(c, TIDE_SET_parallel_aux_loss_coeff, "0");
    }
    if (strcmp(tide_option_word(root, "transformer_impl", "transformer_engine"), "local") == 0)
        tide_imply(c, TIDE_SET_parallel_softmax_fp32, "false");
    settle_gradients(c, root);
    settle_activation(c, root);
    tide_megatron_settle_momentum(c, root);
    tide_megatron_settle_loss(c);
    tide_megatron_settle_fp8(c, "delayed");
    tide_megatron_settle_offload(c, tide_option_is_on(root, "optimizer_cpu_offload", false), "1");
}

static void settle_megatron(tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_megatron_reader) file = file->next;
    if (!file) return;
    c->at = file;
    make_model_of_arguments(c, file);
    settle_chunks(c, file->root);
    tide_megatron_check_arguments(c, file->root);
    tide_megatron_settle_layout(c);
    settle_arguments(c, file->root);
}

const tide_reader tide_megatron_reader = {.title = "arguments of Megatron-LM's pretrain_gpt.py",
                                          .program = TIDE_PROGRAM_megatron_lm,
                                          .marks = "tensor_model_parallel_size|pipeline_model_parallel_size",
                                          .keys = &megatron_keys,
                                          .trains = true,
                                          .precedence = 2,
                                          .settle = settle_megatron};
