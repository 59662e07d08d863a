/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers for Megatron-Core's programs: Megatron-LM's arguments, Megatron-Bridge's ConfigContainer,
 * NeMo 1. */
#ifndef TIDE_JOB_READERS_MEGATRON_H
#define TIDE_JOB_READERS_MEGATRON_H

#include "job/readers/claims.h"

/* Fields of TransformerConfig and MLATransformerConfig that all programs call the same, with the same defaults. */
#define TIDE_GPT_FIELDS                                                                                                \
    "moe_router_topk|moe_ffn_hidden_size|moe_router_pre_softmax|moe_router_score_function|"                            \
    "moe_router_enable_expert_bias|moe_router_topk_scaling_factor|moe_z_loss_coeff|moe_layer_freq|"                    \
    "moe_shared_expert_intermediate_size|moe_shared_expert_gate|qk_layernorm|rotary_percent|rotary_interleaved|"       \
    "multi_latent_attention|q_lora_rank|kv_lora_rank|qk_head_dim|qk_pos_emb_head_dim|v_head_dim|rope_type|"            \
    "original_max_position_embeddings|mtp_num_layers"

/* A GPTModel in terms of TransformerConfig; a size of 0: the framework's default. */
typedef struct tide_gpt {
    int64_t layers, hidden, heads, groups, inner, head_size, positions, vocabulary, experts;
    bool is_gated, has_bias, has_qkv_bias, is_tied;
    const char *activation, *norm, *position, *hidden_dropout, *attention_dropout;
    const tide_json *fields; /* the object that has those of TIDE_GPT_FIELDS */
    const char *keys;        /* keys of the file that define it beside these, separated by `|`, below `section` */
    const char *section;
} tide_gpt;

/* Fields of TransformerConfig that do not define the model. */
extern const tide_key_table tide_transformer_keys;

/* Options of an object, if they have the requested kind. */
bool tide_option_is_on(const tide_json *object, const char *key, bool otherwise);
int64_t tide_option_size(const tide_json *object, const char *key, int64_t otherwise);
const char *tide_option_word(const tide_json *object, const char *key, const char *otherwise);
const char *tide_option_number(const tide_claims *c, const tide_json *object, const char *key, const char *otherwise);

/* A choice of words; others are an error. `choices` are separated by `|`. */
bool tide_option_is_one_of(tide_claims *c, const char *key, const char *word, const char *choices);

/* The GPTModel in a section `model`, by the names that NeMo and Megatron-Bridge share; keys, vocabulary, norm,
 * activation and biases have different names in each. */
tide_gpt tide_gpt_of_options(const tide_claims *c, const tide_json *model);

/* Makes the configuration of a GPTModel replace the model's own; does nothing if that is given or sizes are missing. */
void tide_gpt_make(tide_claims *c, const tide_claims_file *file, const tide_gpt *gpt);

/* layer_pattern.c: moe_layer_freq as a list of layers with experts (1) and without (0), like "([0]*3+[1]*11)", as JSON;
 * NULL: it is none, which is an error. */
const char *tide_megatron_layer_pattern(tide_claims *c, const char *section, const tide_json *value);

/* Data parallel ranks and micro-batches, from the number of processes and the global batch size. */
void tide_megatron_settle_layout(tide_claims *c);

/* Fused losses, FP8, and an offloaded optimizer, whose details are only read if they are enabled. */
void tide_megatron_settle_loss(tide_claims *c);
void tide_megatron_settle_fp8(tide_claims *c, const char *otherwise);
void tide_megatron_settle_offload(tide_claims *c, bool is_on, const char *otherwise);

/* FusedSGD keeps a buffer for each parameter, but not without momentum, which is not described. */
void tide_megatron_settle_momentum(tide_claims *c, const tide_json *options);

/* megatron_checks.c: arguments of Megatron-LM that contradict one another are refused in its words. */
void tide_megatron_check_arguments(tide_claims *c, const tide_json *root);

/* Marks a key of the file that is being settled as used. */
void tide_megatron_mark_used(tide_claims *c, const char *key);

/* Overrides the value that a key claimed for a setting. */
void tide_megatron_force(tide_claims *c, tide_setting_id setting, const char *value);

#endif
