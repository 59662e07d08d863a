/* SPDX-License-Identifier: Apache-2.0 */
/* YAML of NeMo 1 (examples/nlp/language_modeling/conf/megatron_gpt_config.yaml), whose models are those of
 * Megatron-Core with mcore_gpt (nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py,
 * megatron_base_model.py). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/megatron.h"

#define NEMO_KEYS_OF_GPT                                                                                               \
    "num_layers|hidden_size|ffn_hidden_size|num_attention_heads|num_query_groups|kv_channels|normalization|"           \
    "activation|num_moe_experts|position_embedding_type|bias|qkv_bias|share_embeddings_and_output_weights|"            \
    "hidden_dropout|attention_dropout|max_position_embeddings|override_vocab_size"

static const tide_key_row nemo_optim_rows[] = {
    KEY_SETS("name", parallel_distributed_optimizer,
             "mcore_distributed_optim=true|distributed_fused_adam~true|fused_adam~false|adam~false|adamw~false"),
    KEY_SETS("grad_sync_dtype", parallel_grad_reduce_in_fp32, "fp32=true|bf16=false|fp16=false"),
    KEY_SETS("overlap_grad_sync", parallel_overlap_grad_reduce, ""),
    KEY_SETS("overlap_param_sync", parallel_overlap_param_gather, ""),
    KEY_SETS("ddp_bucket_size", parallel_bucket_size, ""),
    KEY_SETS("num_distributed_optimizer_instances", parallel_optimizer_instances, ""),
    KEY_REFUSED("overlap_param_gather_with_optimizer_step", "gathers parameters during the optimizer step", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row nemo_data_rows[] = {
    KEY_REFUSED("reset_position_ids|reset_attention_mask", "attends in another way", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row nemo_peft_rows[] = {
    KEY_REFUSED("peft_scheme", "trains adapters", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row nemo_trainer_rows[] = {
    KEY_SETS("precision", dtype, "bf16*=bf16|16*=fp16|32*=fp32"),
    KEY_SETS("gradient_clip_val", clip, ""),
    KEY_NEUTRAL("*"),
};

#define SECTION(name, more_)                                                                                           \
    static const tide_key_table nemo_##name##_keys = {                                                                 \
        .rows = nemo_##name##_rows, .count = TIDE_COUNT_OF(nemo_##name##_rows), .more = more_}
SECTION(optim, NULL);
SECTION(data, NULL);
SECTION(peft, NULL);
SECTION(trainer, NULL);

static const tide_key_row nemo_model_rows[] = {
    KEY_NEUTRAL(NEMO_KEYS_OF_GPT),
    KEY_NEUTRAL(TIDE_GPT_FIELDS),
    KEY_HOLDS("optim", nemo_optim_keys),
    KEY_HOLDS("data", nemo_data_keys),
    KEY_HOLDS("peft", nemo_peft_keys),
    KEY_SETS("micro_batch_size", batch, ""),
    KEY_SAYS("global_batch_size", generation_batch, ""),
    KEY_SETS("encoder_seq_length", seq, ""),
    KEY_SETS("bias_dropout_add_fusion", parallel_bias_dropout_fusion, ""),
    KEY_SETS("activations_checkpoint_granularity", parallel_recompute, ""),
    KEY_SETS("activations_checkpoint_method", parallel_recompute_method, ""),
    KEY_SETS("activations_checkpoint_num_layers", parallel_recompute_layers, ""),
    KEY_SETS("overlap_p2p_comm", parallel_overlap_p2p, ""),
    KEY_SETS("transformer_engine", parallel_impl, "true=te|false=local"),
    KEY_SETS("get_attention_mask_from_fusion", parallel_attention_mask, "true=false|false=true"),
    KEY_REFUSED("fsdp", "shards the parameters", ""),
    KEY_REFUSED("drop_layers|headscale|transformer_block_type|openai_gelu|scale_positional_embedding|onnx_safe|"
                "mcore_customization_config",
                "has other layers", "pre_ln"),
    KEY_SETS("make_vocab_size_divisible_by", parallel_make_vocab_size_divisible_by, ""),
    KEY_MATTERS("fp8_params", "gathers in fp8", ""),
    KEY_NEUTRAL("fp8_e4m3|fp8_hybrid|distribute_saved_activations"),
    KEY_NEUTRAL("mcore_gpt|megatron_amp_O2|tokenizer|fsdp_*|rampup_batch_size|skip_train"),
    KEY_NEUTRAL("restore_from_path|restore_from_ckpt|use_scaled_init_method|ffn_dropout|do_layer_norm_weight_decay"),
    KEY_NEUTRAL("pre_process|post_process|normalize_attention_scores|attention_type|reset_lr*|native_amp_*|hysteresis"),
    KEY_NEUTRAL(
        "grad_allreduce_chunk_size_mb|grad_div_ar_fusion|seed|resume_from_checkpoint|apex_transformer_log_level"),
    KEY_NEUTRAL("gradient_as_bucket_view|sync_batch_comm|nccl_communicator_config_path|validation_param_sync_overlap"),
    KEY_NEUTRAL("dist_ckpt_*|reduce_amax|use_emha|ub_tp_comm_overlap_cfg|use_flash_attention|sharp|*megatron_timer*"),
    KEY_NEUTRAL("nsys_profile|memory_profile|gc_interval|name|target|precision|answer_only_loss|nemo_version"),
};
SECTION(model, &tide_transformer_keys);
#undef SECTION

static const tide_key_row nemo_rows[] = {
    KEY_HOLDS("model", nemo_model_keys),
    KEY_HOLDS("trainer", nemo_trainer_keys),
    KEY_NEUTRAL("defaults|name|exp_manager|s3_checkpointing|run|hydra|restore_from_path|inference"),
};

static const tide_key_table nemo_keys = {.rows = nemo_rows, .count = TIDE_COUNT_OF(nemo_rows)};

/* ---- what sections say together ---- */

static void make_model_of_nemo(tide_claims *c, const tide_claims_file *file) {
    const tide_json *model = tide_json_at(file->root, "model");
    const char *activation = tide_option_word(model, "activation", "gelu"),
               *norm = tide_lowered(c->arena, tide_text_of(tide_option_word(model, "normalization", "layernorm")));
    if (tide_claims_have_model(c) || !tide_option_size(model, "num_layers", 0)) return;
    if (!tide_option_is_one_of(c, "model/activation", activation, "gelu|swiglu|fast-swiglu") ||
        !tide_option_is_one_of(c, "model/normalization", norm, "layernorm|layernorm1p|rmsnorm"))
        return;
    tide_gpt gpt = tide_gpt_of_options(c, model);
    gpt.keys = NEMO_KEYS_OF_GPT;
    gpt.positions = tide_option_size(model, "max_position_embeddings", 0);
    gpt.vocabulary = tide_option_size(model, "override_vocab_size", 0);
    gpt.is_gated = tide_text_ends(tide_text_of(activation), TIDE_TEXT("swiglu"));
    gpt.activation = gpt.is_gated ? "silu" : "gelu";
    gpt.has_bias = tide_option_is_on(model, "bias", true);
    gpt.has_qkv_bias = tide_option_is_on(model, "qkv_bias", false);
    gpt.norm = strcmp(norm, "rmsnorm") == 0 ? "RMSNorm" : "LayerNorm";
    tide_gpt_make(c, file, &gpt);
}

/* Options that are described with one value only. */
static void check_nemo_model(tide_claims *c, const tide_json *model) {
    if (!tide_option_is_on(model, "mcore_gpt", false))
        tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, "model/mcore_gpt", "NeMo's own GPT is not described",
                           "mcore_gpt: True, of Megatron-Core, is");
    if (!tide_option_is_on(model, "megatron_amp_O2", false))
        tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, "model/megatron_amp_O2",
                           "fp32 parameters under autocast are not described", "megatron_amp_O2: True is");
}

/* build_transformer_config(): attention_softmax_in_fp32 is not read, and scaling by layers only with fp16. */
static bool scales_by_layer(const tide_claims *c, const tide_json *model) {
    const tide_file_key *dtype = c->settings[TIDE_SET_dtype];
    return tide_option_is_on(model, "apply_query_key_layer_scaling", false) && dtype &&
           strcmp(dtype->taken, "fp16") == 0;
}

static void settle_nemo(tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_nemo_reader) file = file->next;
    if (!file) return;
    c->at = file;
    const tide_json *model = tide_json_at(file->root, "model"), *trainer = tide_json_at(file->root, "trainer");
    int64_t devices = tide_option_size(trainer, "devices", 0), nodes = tide_option_size(trainer, "num_nodes", 1);
    make_model_of_nemo(c, file);
    check_nemo_model(c, model);
    tide_megatron_mark_used(c, "trainer/devices");
    tide_megatron_mark_used(c, "trainer/num_nodes");
    if (devices)
        tide_imply_fact(c, TIDE_FACT_processes, "trainer/devices", tide_format(c->arena, "%" PRId64, devices * nodes));
    tide_megatron_settle_layout(c);
    tide_imply(c, TIDE_SET_dtype, "fp32");
    tide_imply(c, TIDE_SET_parallel_impl, "local");
    tide_imply(c, TIDE_SET_parallel_rope_fusion, "false");
    if (!tide_option_is_on(model, "transformer_engine", false)) tide_imply(c, TIDE_SET_parallel_softmax_fp32, "false");
    if (scales_by_layer(c, model)) tide_imply(c, TIDE_SET_parallel_query_key_layer_scaling, "true");
    tide_imply(c, TIDE_SET_parallel_wgrad_fusion, "false");
    tide_imply(c, TIDE_SET_parallel_overlap_p2p, "false");
    tide_imply(c, TIDE_SET_parallel_wrap_on_side_stream, "false");
    tide_imply(c, TIDE_SET_parallel_grouped_gemm, "false");
    tide_megatron_settle_loss(c);
    tide_megatron_settle_fp8(c, "delayed");
}

static bool is_of_nemo(const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model");
    return tide_json_is(tide_json_at(root, "trainer"), TIDE_JSON_OBJECT) &&
           (tide_json_at(model, "tensor_model_parallel_size") || tide_json_at(model, "mcore_gpt") ||
            tide_json_at(model, "megatron_amp_O2"));
}

const tide_reader tide_nemo_reader = {.title = "a configuration of NeMo 1",
                                      .recognises = is_of_nemo,
                                      .interpolates = true,
                                      .keys = &nemo_keys,
                                      .trains = true,
                                      .precedence = 2,
                                      .settle = settle_nemo};
