/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-Bridge's ConfigContainer as YAML: run_config.yaml or the output of ConfigContainer.to_yaml(), and overrides
 * of a recipe (src/megatron/bridge/training/config.py, models/gpt_provider.py, training/mixed_precision.py,
 * training/comm_overlap.py). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/megatron.h"

#define FIELDS_OF_GPT                                                                                                  \
    "num_layers|hidden_size|ffn_hidden_size|num_attention_heads|num_query_groups|kv_channels|vocab_size|"              \
    "normalization|gated_linear_unit|activation_func|num_moe_experts|position_embedding_type|add_bias_linear|"         \
    "add_qkv_bias|share_embeddings_and_output_weights|hidden_dropout|attention_dropout"

static const tide_key_row bridge_model_rows[] = {
    KEY_NEUTRAL(FIELDS_OF_GPT),
    KEY_NEUTRAL(TIDE_GPT_FIELDS),
    KEY_SETS("seq_length", seq, ""),
    KEY_SETS("overlap_p2p_comm", parallel_overlap_p2p, ""),
    KEY_REFUSED("transformer_impl", "builds layers without Transformer Engine", "transformer_engine"),
    KEY_REFUSED("teacher|kd_config", "trains with an additional model", ""),
    KEY_SETS("make_vocab_size_divisible_by", parallel_make_vocab_size_divisible_by, ""),
    KEY_NEUTRAL("_target_|should_pad_vocab|parallel_output|scatter_embedding_sequence_parallel|generation_config"),
    KEY_NEUTRAL("transformer_layer_spec|hf_model_id|hf_model_revision|use_arbitrary_attention_mask|_pg_collection"),
};

static const tide_key_row bridge_train_rows[] = {
    KEY_SETS("micro_batch_size", batch, ""),
    KEY_SAYS("global_batch_size", generation_batch, ""),
    KEY_REFUSED("skip_train", "evaluates and does not train", ""),
    KEY_SETS("empty_unused_memory_level", parallel_empty_unused_memory_level, ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_optimizer_rows[] = {
    KEY_SETS("optimizer", optimizer, "adam=adamw|sgd=sgd_momentum"),
    KEY_SETS("clip_grad", clip, ""),
    KEY_SETS("use_precision_aware_optimizer", parallel_precision_aware, ""),
    KEY_SETS("main_grads_dtype", parallel_main_grads_dtype, "torch.float32=fp32|torch.bfloat16=bf16"),
    KEY_SETS("main_params_dtype", parallel_main_params_dtype, "torch.float32=fp32|torch.float16=fp16"),
    KEY_SETS("exp_avg_dtype", parallel_exp_avg_dtype,
             "torch.float32=fp32|torch.float16=fp16|torch.bfloat16=bf16|torch.uint8=fp8"),
    KEY_SETS("exp_avg_sq_dtype", parallel_exp_avg_sq_dtype,
             "torch.float32=fp32|torch.float16=fp16|torch.bfloat16=bf16|torch.uint8=fp8"),
    KEY_SETS("optimizer_offload_fraction", parallel_offload_fraction, ""),
    KEY_SETS("decoupled_lr", parallel_decoupled_lr, ""),
    KEY_REFUSED("overlap_param_gather_with_optimizer_step", "gathers parameters during the optimizer step", ""),
    KEY_MATTERS("store_param_remainders", "keeps whole fp32 parameters", "true"),
    KEY_MATTERS("log_num_zeros_in_grad", "copies what it looks at", ""),
    KEY_MATTERS("loss_scale", "scales the loss by a constant", "0|0.0"),
    KEY_REFUSED("optimizer_cuda_graph", "captures CUDA graphs", ""),
    KEY_REFUSED("use_layer_wise_distributed_optimizer", "shards states by layers", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_ddp_rows[] = {
    KEY_SETS("use_distributed_optimizer", parallel_distributed_optimizer, ""),
    KEY_SETS("grad_reduce_in_fp32", parallel_grad_reduce_in_fp32, ""),
    KEY_SETS("overlap_grad_reduce", parallel_overlap_grad_reduce, ""),
    KEY_SETS("overlap_param_gather", parallel_overlap_param_gather, ""),
    KEY_SETS("bucket_size", parallel_bucket_size, ""),
    KEY_REFUSED("use_megatron_fsdp|use_custom_fsdp", "shards the parameters", ""),
    KEY_SETS("num_distributed_optimizer_instances", parallel_optimizer_instances, ""),
    KEY_REFUSED("nccl_ub|reduce_scatter_with_fp32_accumulation|pad_buckets_for_high_nccl_busbw|num_buckets|"
                "param_name_patterns_for_fp32_local_accumulation|delay_wgrad_compute",
                "reduces in another way", ""),
    KEY_REFUSED("fp8_param_gather|fp4_param_gather|reuse_grad_buf_for_mxfp8_param_ag", "gathers in fp8 or fp4", ""),
    KEY_NEUTRAL("*"),
};

/* PackedSequenceSpecs: settle_packing() */
static const tide_key_row bridge_packing_rows[] = {
    KEY_REFUSED("pad_cu_seqlens", "pads the list of lengths for CUDA graphs", ""),
    KEY_REFUSED("pad_seq_to_mult", "pads each sequence, which needs cuDNN's attention", "0|1"),
    KEY_NEUTRAL("*"),
};

static const tide_key_table bridge_packing_keys = {.rows = bridge_packing_rows,
                                                   .count = TIDE_COUNT_OF(bridge_packing_rows)};

/* megatron/bridge/peft/lora.py, LoRA */
static const tide_key_row bridge_peft_rows[] = {
    KEY_REFUSED("_target_", "adapts by another method", "megatron.bridge.peft.lora.lora"),
    KEY_SETS("dim", adapter_r, ""),
    KEY_SETS("alpha", adapter_alpha, ""),
    KEY_SETS("dropout", adapter_dropout, ""),
    KEY_SETS("target_modules", adapter_target_modules, ""),
    KEY_REFUSED("exclude_modules", "adapts all layers but those", "[]"),
    KEY_REFUSED("dropout_position", "drops what adapters made", "pre"),
    KEY_REFUSED("a2a_experimental", "exchanges parts of adapters", ""),
    KEY_REFUSED("lora_dtype", "makes adapters of another type", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_table bridge_peft_keys = {.rows = bridge_peft_rows, .count = TIDE_COUNT_OF(bridge_peft_rows)};

static const tide_key_row bridge_dataset_rows[] = {
    KEY_SETS("seq_length", seq, ""),
    KEY_SETS("sequence_length", seq, ""),
    KEY_SETS("skip_getting_attention_mask_from_dataset", parallel_attention_mask, "true=false|false=true"),
    KEY_HOLDS("packed_sequence_specs", bridge_packing_keys),
    KEY_REFUSED("enable_in_batch_packing|enable_offline_packing|packing_buffer_size", "packs sequences as they come",
                ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_precision_rows[] = {
    KEY_SETS("bf16", dtype, "true=bf16|false="),
    KEY_SETS("fp16", dtype, "true=fp16|false="),
    KEY_SETS("grad_reduce_in_fp32", parallel_grad_reduce_in_fp32, ""),
#include "job/readers/keys/fp8.def"
    KEY_MATTERS("loss_scale", "scales the loss by a constant", "0|0.0"),
    KEY_REFUSED("autocast_enabled", "computes in another type", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_overlap_rows[] = {
    KEY_SETS("overlap_grad_reduce", parallel_overlap_grad_reduce, ""),
    KEY_SETS("overlap_param_gather", parallel_overlap_param_gather, ""),
    KEY_SETS("bucket_size", parallel_bucket_size, ""),
    KEY_SETS("overlap_p2p_comm", parallel_overlap_p2p, ""),
    KEY_REFUSED("overlap_param_gather_with_optimizer_step", "gathers parameters during the optimizer step", ""),
    KEY_REFUSED("overlap_moe_expert_parallel_comm", "runs experts differently", ""),
    KEY_MATTERS("tp_comm_overlap|defer_embedding_wgrad_compute|delay_wgrad_compute", "keeps buffers of its own", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_dist_rows[] = {
    KEY_SETS("disable_jit_fuser", parallel_jit, "true=false|false="),
    KEY_REFUSED("use_megatron_fsdp|use_torch_fsdp2", "shards the parameters", ""),
    KEY_NEUTRAL("*"),
};

static const tide_key_row bridge_logger_rows[] = {
    KEY_MATTERS("log_params_norm", "copies what it looks at", ""),
    KEY_NEUTRAL("*"),
};

#define SECTION(name, more_)                                                                                           \
    static const tide_key_table bridge_##name##_keys = {                                                               \
        .rows = bridge_##name##_rows, .count = TIDE_COUNT_OF(bridge_##name##_rows), .more = more_}
SECTION(model, &tide_transformer_keys);
SECTION(train, NULL);
SECTION(optimizer, NULL);
SECTION(ddp, NULL);
SECTION(dataset, NULL);
SECTION(precision, NULL);
SECTION(overlap, NULL);
SECTION(dist, NULL);
SECTION(logger, NULL);
#undef SECTION

static const tide_key_row bridge_rows[] = {
    KEY_HOLDS("model", bridge_model_keys),
    KEY_HOLDS("train", bridge_train_keys),
    KEY_HOLDS("optimizer", bridge_optimizer_keys),
    KEY_HOLDS("ddp", bridge_ddp_keys),
    KEY_HOLDS("dataset", bridge_dataset_keys),
    KEY_HOLDS("mixed_precision", bridge_precision_keys),
    KEY_HOLDS("comm_overlap", bridge_overlap_keys),
    KEY_HOLDS("dist", bridge_dist_keys),
    KEY_HOLDS("logger", bridge_logger_keys),
    KEY_HOLDS("peft", bridge_peft_keys),
    KEY_REFUSED("tensor_inspect", "records tensors", ""),
    KEY_NEUTRAL("_target_|checkpoint|env_vars|ft|inprocess_restart|nvrx_straggler|profiling|rng|scheduler"),
    KEY_NEUTRAL("optimizer_config_override_provider|rerun_state_machine|straggler|tokenizer|validation"),
};

static const tide_key_table bridge_keys = {.rows = bridge_rows, .count = TIDE_COUNT_OF(bridge_rows)};

/* ---- values as YAML has them ---- */

/* megatron/training/config/yaml_utils.py writes functions, types and enumerations as {_target_, _call_} or {_target_,
 * _args_: [number]}: replaces them by the name or the number. */
static void make_plain(tide_json *node) {
    for (tide_json *entry = node->first; entry; entry = entry->next) {
        const tide_json *target = tide_json_at(entry, "_target_"), *args = tide_json_at(entry, "_args_");
        bool is_value = tide_json_at(entry, "_call_") || tide_json_at(entry, "_partial_"),
             is_counted = tide_json_is(args, TIDE_JSON_ARRAY) && tide_json_is(args->first, TIDE_JSON_NUMBER);
        if (!tide_json_is(target, TIDE_JSON_STRING) || !is_value) {
            make_plain(entry);
            continue;
        }
        tide_json plain = is_counted ? *args->first : *target;
        plain.key = entry->key;
        plain.next = entry->next;
        plain.parent = entry->parent;
        *entry = plain;
    }
}

static tide_json *section_of(tide_arena *arena, tide_json *root, const char *name) {
    for (tide_json *entry = root->first; entry; entry = entry->next)
        if (tide_text_is(entry->key, name) && entry->kind == TIDE_JSON_OBJECT) return entry;
    if (tide_json_at(root, name)) return NULL;
    tide_json *made = tide_json_new(arena, TIDE_JSON_OBJECT);
    tide_json_put(arena, root, tide_text_of(name), made);
    return made;
}

static void put_value(tide_arena *arena, tide_json *object, const char *key, const tide_json *value) {
    if (!object || !value || value->kind == TIDE_JSON_NULL) return;
    tide_json_put(arena, object, tide_text_of(key), tide_json_clone(arena, value));
}

static tide_json *truth_new(tide_arena *arena, bool is_true) {
    tide_json *truth = tide_json_new(arena, TIDE_JSON_BOOL);
    truth->is_true = is_true;
    return truth;
}

/* mixed_precision.py: the settings of its named recipes. */
static const struct {
    const char *name, *fp8, *recipe, *history;
    bool is_fp16, keeps_fp8;
} bridge_recipes[] = {
    {"bf16_mixed", NULL, NULL, NULL, false, false},
    {"fp16_mixed", NULL, NULL, NULL, true, false},
    {"bf16_with_fp8_delayed_scaling_mixed", "hybrid", "delayed", "1024", false, true},
    {"fp16_with_fp8_delayed_scaling_mixed", "hybrid", "delayed", "1024", true, true},
    {"bf16_with_fp8_current_scaling_mixed", "hybrid", "tensorwise", NULL, false, true},
    {"fp16_with_fp8_current_scaling_mixed", "hybrid", "tensorwise", NULL, true, true},
    {"bf16_with_fp8_subchannel_scaling_mixed", "hybrid", "blockwise", NULL, false, false},
    {"fp16_with_fp8_subchannel_scaling_mixed", "hybrid", "blockwise", NULL, true, false},
    {"bf16_with_mxfp8_mixed", "e4m3", "mxfp8", NULL, false, true},
    {"fp16_with_mxfp8_mixed", "e4m3", "mxfp8", NULL, true, true},
};

/* Names are written with underscores or dashes. */
static bool is_recipe(tide_text said, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < length && i < said.length; i++)
        if (said.at[i] != name[i] && !(said.at[i] == '-' && name[i] == '_')) return false;
    return said.length == length;
}

static tide_json *word_new(tide_arena *arena, const char *word) {
    tide_json *made = tide_json_new(arena, TIDE_JSON_STRING);
    made->text = tide_text_of(word);
    return made;
}

/* An unknown recipe is refused like a custom one. */
static void name_recipe(tide_arena *arena, tide_json *root) {
    const tide_json *said = tide_json_at(root, "mixed_precision");
    if (!tide_json_is(said, TIDE_JSON_STRING)) return;
    tide_json *recipe = tide_json_new(arena, TIDE_JSON_OBJECT);
    uint32_t at = 0, count = TIDE_COUNT_OF(bridge_recipes);
    while (at < count && !is_recipe(said->text, bridge_recipes[at].name)) at++;
    if (at == count) {
        tide_json_put(arena, recipe, TIDE_TEXT("autocast_enabled"), tide_json_clone(arena, said));
    } else {
        bool is_fp16 = bridge_recipes[at].is_fp16;
        tide_json_put(arena, recipe, tide_text_of(is_fp16 ? "fp16" : "bf16"), truth_new(arena, true));
        tide_json_put(arena, recipe, TIDE_TEXT("grad_reduce_in_fp32"), truth_new(arena, !is_fp16));
        const char *const values[] = {bridge_recipes[at].fp8, bridge_recipes[at].recipe, bridge_recipes[at].history};
        static const char *const keys[] = {"fp8", "fp8_recipe", "fp8_amax_history_len"};
        for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
            if (values[i]) tide_json_put(arena, recipe, tide_text_of(keys[i]), word_new(arena, values[i]));
        if (bridge_recipes[at].keeps_fp8)
            tide_json_put(arena, recipe, TIDE_TEXT("fp8_param_gather"), truth_new(arena, true));
    }
    tide_json_put(arena, root, TIDE_TEXT("mixed_precision"), recipe);
}

/* MixedPrecisionConfig.setup(): its fields override those of the model and of DDP. */
static void apply_precision(tide_arena *arena, tide_json *root) {
    name_recipe(arena, root);
    const tide_json *precision = tide_json_at(root, "mixed_precision");
    if (!tide_json_is(precision, TIDE_JSON_OBJECT)) return;
    tide_json *model = section_of(arena, root, "model"), *ddp = section_of(arena, root, "ddp");
    put_value(arena, model, "bf16", tide_json_at(precision, "bf16"));
    put_value(arena, model, "fp16", tide_json_at(precision, "fp16"));
    put_value(arena, ddp, "grad_reduce_in_fp32", tide_json_at(precision, "grad_reduce_in_fp32"));
}

/* Sizes as a provider and configurations of Hugging Face call them. */
static const struct {
    const char *provider, *config;
} bridge_sizes[] = {{"num_layers", "num_hidden_layers"},
                    {"hidden_size", "hidden_size"},
                    {"ffn_hidden_size", "intermediate_size"},
                    {"num_attention_heads", "num_attention_heads"},
                    {"num_query_groups", "num_key_value_heads"},
                    {"q_lora_rank", "q_lora_rank"},
                    {"kv_lora_rank", "kv_lora_rank"},
                    {"num_moe_experts", "num_local_experts|n_routed_experts|num_experts"},
                    {"moe_ffn_hidden_size", "moe_intermediate_size|intermediate_size"},
                    {"vocab_size", "vocab_size"}};

static int64_t size_of_config(const tide_json *config, const char *names) {
    tide_text rest = tide_text_of(names), name;
    while (tide_piece_next(&rest, '|', &name)) {
        const tide_json *value = tide_json_find(config, name);
        if (tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer) return value->integer;
    }
    return 0;
}

/* AutoBridge.to_megatron_provider() notes the configuration that a provider is made of: it is the model if the
 * catalogue has it, and its sizes have not been changed. */
static void name_model(tide_reading *r, const tide_json *root) {
    const tide_json *model = tide_json_at(root, "model"), *id = tide_json_at(model, "hf_model_id");
    if (!tide_json_is(id, TIDE_JSON_STRING) || tide_claims_have_model(r->claims)) return;
    const tide_json *config = tide_catalogue_config(r->arena, id->text.at, r->diags);
    if (!config) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(bridge_sizes); i++) {
        int64_t size = tide_option_size(model, bridge_sizes[i].provider, 0);
        if (size && size != size_of_config(config, bridge_sizes[i].config)) return;
    }
    r->inputs->asked_model = id->text.at;
    r->inputs->asked_place = tide_format(r->arena, "%s/model/hf_model_id", r->place);
}

static void read_bridge(tide_reading *r, tide_json *root) {
    make_plain(root);
    name_model(r, root);
    apply_precision(r->arena, root);
    tide_claims_add(r->claims, &tide_megatron_bridge_reader, root, r->name, r->place);
}

/* ---- what sections say together ---- */

/* GPTModelProvider over TransformerConfig. */
static void make_model_of_provider(tide_claims *c, const tide_claims_file *file) {
    const tide_json *model = tide_json_at(file->root, "model");
    const char *activation = tide_option_word(model, "activation_func", "torch.nn.functional.gelu");
    bool is_gated = tide_option_is_on(model, "gated_linear_unit", false);
    if (tide_claims_know_model(c) || !tide_option_size(model, "num_layers", 0)) return;
    const char *squared = "megatron.core.activations.squared_relu";
    if (!tide_option_is_one_of(c, "model/activation_func", activation,
                               is_gated ? "torch.nn.functional.silu"
                                        : tide_format(c->arena, "torch.nn.functional.gelu|%s", squared)))
        return;
    tide_gpt gpt = tide_gpt_of_options(c, model);
    gpt.keys = FIELDS_OF_GPT;
    gpt.vocabulary = tide_option_size(model, "vocab_size", 0);
    gpt.is_gated = is_gated;
    gpt.activation = is_gated ? "silu" : strcmp(activation, squared) == 0 ? "squared_relu" : "gelu";
    gpt.has_bias = tide_option_is_on(model, "add_bias_linear", true);
    gpt.has_qkv_bias = tide_option_is_on(model, "add_qkv_bias", false);
    gpt.norm = tide_option_word(model, "normalization", "LayerNorm");
    tide_gpt_make(c, file, &gpt);
}

/* Options that are described with one value only. */
static void check_provider(tide_claims *c, const tide_json *model) {
    static const struct {
        const char *key, *what;
    } rows[] = {{"parallel_output", "gathers the logits"},
                {"scatter_embedding_sequence_parallel", "keeps whole embeddings"},
                {"clone_scatter_output_in_embedding", "keeps embeddings as they are scattered"}};
    bool matters[] = {true, true, tide_option_is_on(model, "sequence_parallel", false)};
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (!tide_option_is_on(model, rows[i].key, true) && matters[i])
            tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, tide_format(c->arena, "model/%s", rows[i].key),
                               tide_format(c->arena, "%s=false %s, which is not described", rows[i].key, rows[i].what),
                               NULL);
}

/* GPTModelProvider.provide(): the vocabulary is only padded with should_pad_vocab. */
static void settle_vocabulary(tide_claims *c, const tide_json *model) {
    int64_t vocabulary = tide_option_size(model, "vocab_size", 0),
            ranks = tide_option_size(model, "tensor_model_parallel_size", 1);
    if (tide_option_is_on(model, "should_pad_vocab", true)) return;
    tide_megatron_mark_used(c, "model/should_pad_vocab");
    tide_megatron_force(c, TIDE_SET_parallel_make_vocab_size_divisible_by, "1");
    if (vocabulary % ranks)
        tide_claims_refuse(c, TIDE_ERR_CONFLICT, "model/vocab_size",
                           tide_format(c->arena, "\"%" PRId64 " is not divisible by %" PRId64 "\"", vocabulary, ranks),
                           "give a divisor as tensor_model_parallel_size, or should_pad_vocab: true");
}

/* data/datasets/packed_sequence.py: rows of packed_sequence_size tokens; seq_length is what samples are cut to. How
 * many there are in a row depends on the data. */
static void settle_packing(tide_claims *c, const tide_json *dataset) {
    enum { SEQUENCES = 8 };
    int64_t size = tide_option_size(tide_json_at(dataset, "packed_sequence_specs"), "packed_sequence_size", 0);
    int64_t sequences = SEQUENCES;
    if (size <= 0) return;
    while (size % sequences) sequences /= 2;
    tide_megatron_mark_used(c, "dataset/packed_sequence_specs/packed_sequence_size");
    tide_megatron_force(c, TIDE_SET_seq, tide_format(c->arena, "%" PRId64, size));
    if (c->arguments->asked[TIDE_SET_parallel_packed_sequences]) return;
    tide_imply(c, TIDE_SET_parallel_packed_sequences, tide_format(c->arena, "%" PRId64, sequences));
    tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.packed_sequences",
                tide_format(c->arena, "%" PRId64 " sequences of one length in each packed row", sequences),
                "with more of them attention takes more scratch in backward, 128 rows each");
}

/* LoRA's defaults. */
static void settle_peft(tide_claims *c, const tide_json *peft) {
    if (!tide_json_is(peft, TIDE_JSON_OBJECT)) return;
    tide_imply(c, TIDE_SET_adapter, "lora");
    tide_imply(c, TIDE_SET_adapter_r, "32");
    tide_imply(c, TIDE_SET_adapter_alpha, "32");
}

/* Types of parameters and of what stages send; MixedPrecisionConfig.setup() overrides those of the model. */
static void check_types(tide_claims *c, const tide_json *root) {
    static const char *const keys[] = {"params_dtype", "pipeline_dtype"};
    const tide_json *model = tide_json_at(root, "model"), *precision = tide_json_at(root, "mixed_precision");
    const char *half = tide_option_is_on(model, "bf16", false)   ? "torch.bfloat16"
                       : tide_option_is_on(model, "fp16", false) ? "torch.float16"
                                                                 : NULL;
    bool is_precise = tide_json_is(precision, TIDE_JSON_OBJECT);
    for (size_t i = 0; half && i < TIDE_COUNT_OF(keys); i++) {
        const char *said = tide_option_word(is_precise ? precision : model, keys[i], half);
        if (strcmp(said, half) != 0)
            tide_claims_refuse(
                c, TIDE_ERR_UNSUPPORTED,
                tide_format(c->arena, "%s/%s", is_precise ? "mixed_precision" : "model", keys[i]),
                tide_format(c->arena, "%s=%s is not described where the model is %s", keys[i], said, half), NULL);
    }
}

/* CommOverlapConfig: fields that are not given are decided by the ranks (_get_model_comm_overlap_cfgs,
 * _get_optimizer_overlap_cfgs), overriding the model and DDP. */
static void settle_overlap(tide_claims *c, const tide_json *root) {
    static const struct {
        const char *key;
        tide_setting_id setting;
        const char *value;
    } rows[] = {{"overlap_grad_reduce", TIDE_SET_parallel_overlap_grad_reduce, "true"},
                {"overlap_param_gather", TIDE_SET_parallel_overlap_param_gather, "true"},
                {"bucket_size", TIDE_SET_parallel_bucket_size, "134217728"}};
    const tide_json *overlap = tide_json_at(root, "comm_overlap"), *model = tide_json_at(root, "model"), *said;
    const tide_file_key *ranks = c->settings[TIDE_SET_parallel_dp];
    bool interleaves = tide_option_size(model, "virtual_pipeline_model_parallel_size", 1) > 1;
    if (!tide_json_is(overlap, TIDE_JSON_OBJECT)) return;
    said = tide_json_at(overlap, "overlap_p2p_comm");
    bool overlaps = tide_json_is(said, TIDE_JSON_BOOL) ? said->is_true : interleaves;
    tide_megatron_force(c, TIDE_SET_parallel_overlap_p2p, overlaps ? "true" : "false");
    if (!tide_option_is_on(tide_json_at(root, "ddp"), "use_distributed_optimizer", true)) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        said = tide_json_at(overlap, rows[i].key);
        const char *value = said && said->kind != TIDE_JSON_NULL ? tide_argument_value(c->arena, said) : NULL;
        if (!value && (!ranks || strcmp(ranks->taken, "1") == 0))
            value = i < 2 ? "false" : NULL;
        else if (!value)
            value = rows[i].value;
        if (value) tide_megatron_force(c, rows[i].setting, value);
    }
}

/* Recipes of Megatron-Bridge, for fields missing in an override. */
static void settle_override(tide_claims *c, const tide_json *root) {
    if (tide_json_at(tide_json_at(root, "model"), "_target_")) return;
    tide_imply(c, TIDE_SET_dtype, "bf16");
    if (!tide_json_at(root, "mixed_precision")) tide_megatron_force(c, TIDE_SET_parallel_grad_reduce_in_fp32, "true");
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, tide_claims_place(c, "model"),
                tide_format(c->arena,
                            "%s overrides a recipe that it does not name: for everything else, bf16_mixed, the "
                            "distributed optimizer and fused kernels are assumed",
                            c->at->summary->name),
                "give the run_config.yaml of the run, which is complete");
}

static void settle_bridge(tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && file->reader != &tide_megatron_bridge_reader) file = file->next;
    if (!file) return;
    c->at = file;
    const tide_json *root = file->root, *optimizer = tide_json_at(root, "optimizer");
    make_model_of_provider(c, file);
    check_provider(c, tide_json_at(root, "model"));
    check_types(c, root);
    settle_vocabulary(c, tide_json_at(root, "model"));
    settle_packing(c, tide_json_at(root, "dataset"));
    settle_peft(c, tide_json_at(root, "peft"));
    tide_megatron_settle_momentum(c, optimizer);
    tide_megatron_mark_used(c, "model/cross_entropy_loss_fusion");
    if (c->inputs->asked_model) tide_megatron_mark_used(c, "model/hf_model_id");
    if (tide_option_is_on(optimizer, "optimizer_cpu_offload", false))
        tide_megatron_mark_used(c, "optimizer/optimizer_cpu_offload");
    tide_megatron_settle_layout(c);
    settle_override(c, root);
    settle_overlap(c, root);
    tide_imply(c, TIDE_SET_dtype, "fp32");
    tide_imply(c, TIDE_SET_clip, "1.0");
    tide_imply(c, TIDE_SET_parallel_attention_mask, "false");
    if (!tide_json_at(tide_json_at(root, "model"), "cross_entropy_loss_fusion"))
        tide_imply_fact(c, TIDE_FACT_loss_type, "model/cross_entropy_loss_fusion", "native");
    tide_megatron_settle_loss(c);
    bool is_mixed = tide_json_is(tide_json_at(root, "mixed_precision"), TIDE_JSON_OBJECT);
    tide_megatron_settle_fp8(c, is_mixed ? "tensorwise" : "delayed");
    tide_megatron_settle_offload(c, tide_option_is_on(optimizer, "optimizer_cpu_offload", false), "0");
}

static bool is_of_bridge(const tide_json *root) {
    const tide_json *target = tide_json_at(root, "_target_"), *model = tide_json_at(root, "model"),
                    *train = tide_json_at(root, "train");
    if (tide_json_is(target, TIDE_JSON_STRING) && strstr(target->text.at, "ConfigContainer")) return true;
    return tide_json_is(model, TIDE_JSON_OBJECT) && tide_json_is(train, TIDE_JSON_OBJECT) &&
           tide_json_at(train, "micro_batch_size") && !tide_json_at(root, "trainer");
}

const tide_reader tide_megatron_bridge_reader = {.title = "a ConfigContainer of Megatron-Bridge",
                                                 .recognises = is_of_bridge,
                                                 .read = read_bridge,
                                                 .keys = &bridge_keys,
                                                 .trains = true,
                                                 .precedence = 2,
                                                 .settle = settle_bridge};
