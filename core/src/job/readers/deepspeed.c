/* SPDX-License-Identifier: Apache-2.0 */
/* A DeepSpeed configuration as settings: deepspeed/runtime/config.py, zero/config.py; "auto" as the HF Trainer fills it
 * in (transformers/integrations/deepspeed.py). */
#include "job/readers/claims.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"

typedef struct deepspeed_reader {
    tide_claims *claims;
    tide_arena *arena;
    bool is_auto; /* a size is "auto" */
} deepspeed_reader;

static bool is_auto(const tide_json *value) {
    return tide_json_is_text(value, "auto");
}

static void put_claimed(const deepspeed_reader *r, const char *at, const tide_json *given, tide_setting_id setting,
                        const char *value) {
    tide_claim(r->claims, at, given ? tide_argument_value(r->arena, given) : NULL, setting, value);
}

static void refuse_key(const deepspeed_reader *r, tide_status status, const char *at, const char *message,
                       const char *remedy) {
    tide_claims_refuse(r->claims, status, at, message, remedy);
}

/* A number, boolean or name for a setting; "auto" and null stand for the default. */
static void put_claimed_value(const deepspeed_reader *r, const char *at, tide_setting_id setting,
                              const tide_json *value) {
    if (!value || is_auto(value) || value->kind == TIDE_JSON_NULL) return;
    const char *text = tide_argument_value(r->arena, value);
    if (text)
        put_claimed(r, at, value, setting, text);
    else
        refuse_key(r, TIDE_ERR_FIELD_TYPE, at,
                   tide_format(r->arena, "is %s; must be a single value", tide_json_kind_name(value)), NULL);
}

/* A section must be an object: DeepSpeed passes it as keyword arguments (get_zero_config, get_bfloat16_config). */
static void check_section(const deepspeed_reader *r, const char *at, const tide_json *section, const char *remedy) {
    if (!section || section->kind == TIDE_JSON_OBJECT) return;
    refuse_key(r, TIDE_ERR_FIELD_TYPE, at,
               tide_format(r->arena, "is %s; must be an object", tide_json_kind_name(section)), remedy);
}

static void check_sections(const deepspeed_reader *r, const tide_json *root) {
    static const char *const sections[][2] = {
        {"zero_optimization", "write {\"stage\": 3}, with the intended stage"},
        {"bf16", "write {\"enabled\": true}"},
        {"fp16", "write {\"enabled\": true}"},
        {"data_types", "write {\"grad_accum_dtype\": \"fp32\"}, or leave it out"},
        {"optimizer", "write {\"type\": \"AdamW\"}, or leave it out"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(sections); i++)
        check_section(r, sections[i][0], tide_json_at(root, sections[i][0]), sections[i][1]);
}

/* How a key of zero_optimization is treated. */
typedef enum zero_rule {
    ZERO_ALL,     /* a setting of stages 1 to 3 */
    ZERO_3,       /* a setting of stage 3 */
    ZERO_NEUTRAL, /* no effect on memory */
    ZERO_REFUSED, /* not described if enabled */
    ZERO_SECTION  /* read elsewhere */
} zero_rule;

typedef struct zero_key {
    const char *key;
    zero_rule rule;
    tide_setting_id setting;
    bool is_filled_in; /* filled in by the Trainer for "auto": then DeepSpeed's own default must be given if the key is
                          missing */
} zero_key;

static const zero_key zero_keys[] = {
    {"stage", ZERO_SECTION, 0, false},
    {"offload_optimizer", ZERO_SECTION, 0, false},
    {"offload_param", ZERO_SECTION, 0, false},
    {"contiguous_gradients", ZERO_ALL, TIDE_SET_parallel_contiguous_gradients, false},
    {"overlap_comm", ZERO_ALL, TIDE_SET_parallel_overlap_comm, false},
    {"reduce_scatter", ZERO_ALL, TIDE_SET_parallel_reduce_scatter, false},
    {"reduce_bucket_size", ZERO_ALL, TIDE_SET_parallel_reduce_bucket_size, true},
    {"allgather_bucket_size", ZERO_ALL, TIDE_SET_parallel_allgather_bucket_size, false},
    {"allgather_partitions", ZERO_ALL, TIDE_SET_parallel_allgather_partitions, false},
    {"round_robin_gradients", ZERO_ALL, TIDE_SET_parallel_round_robin_gradients, false},
    {"use_multi_rank_bucket_allreduce", ZERO_ALL, TIDE_SET_parallel_use_multi_rank_bucket_allreduce, false},
    {"stage3_prefetch_bucket_size", ZERO_3, TIDE_SET_parallel_stage3_prefetch_bucket_size, true},
    {"stage3_param_persistence_threshold", ZERO_3, TIDE_SET_parallel_stage3_param_persistence_threshold, true},
    {"stage3_max_live_parameters", ZERO_3, TIDE_SET_parallel_stage3_max_live_parameters, false},
    {"stage3_max_reuse_distance", ZERO_3, TIDE_SET_parallel_stage3_max_reuse_distance, false},
    {"prefetch_bucket_size", ZERO_3, TIDE_SET_parallel_stage3_prefetch_bucket_size, false}, /* populate_by_name */
    {"param_persistence_threshold", ZERO_3, TIDE_SET_parallel_stage3_param_persistence_threshold, false},
    {"max_live_parameters", ZERO_3, TIDE_SET_parallel_stage3_max_live_parameters, false},
    {"max_reuse_distance", ZERO_3, TIDE_SET_parallel_stage3_max_reuse_distance, false},
    {"sub_group_size", ZERO_3, TIDE_SET_parallel_sub_group_size, false},
    {"zero_hpz_partition_size", ZERO_3, TIDE_SET_parallel_zero_hpz_partition_size, false},
    {"load_from_fp32_weights", ZERO_NEUTRAL, 0, false},
    {"elastic_checkpoint", ZERO_NEUTRAL, 0, false},
    {"ignore_unused_parameters", ZERO_NEUTRAL, 0, false},
    {"legacy_stage1", ZERO_NEUTRAL, 0, false},
    {"stage3_gather_16bit_weights_on_model_save", ZERO_3, TIDE_SET_parallel_stage3_gather_16bit_weights_on_model_save,
     false},
    {"gather_16bit_weights_on_model_save", ZERO_3, TIDE_SET_parallel_stage3_gather_16bit_weights_on_model_save, false},
    {"stage3_gather_fp16_weights_on_model_save", ZERO_NEUTRAL, 0, false},
    {"pipeline_loading_checkpoint", ZERO_NEUTRAL, 0, false},
    {"override_module_apply", ZERO_NEUTRAL, 0, false},
    {"log_trace_cache_warnings", ZERO_NEUTRAL, 0, false},
    {"zero_quantized_weights", ZERO_REFUSED, 0, false},
    {"zero_quantized_gradients", ZERO_REFUSED, 0, false},
    {"zero_quantized_nontrainable_weights", ZERO_REFUSED, 0, false},
    {"mics_shard_size", ZERO_REFUSED, 0, false},
    {"mics_hierarchical_params_gather", ZERO_REFUSED, 0, false},
    {"zenflow", ZERO_REFUSED, 0, false},
    {"stage3_use_all_reduce_for_fetch_params", ZERO_REFUSED, 0, false},
    {"stage3_model_persistence_threshold", ZERO_REFUSED, 0, false},
    {"stage3_module_granularity_threshold", ZERO_REFUSED, 0, false},
    {"stage3_allgather_sequential", ZERO_REFUSED, 0, false},
    {"use_all_reduce_for_fetch_params", ZERO_REFUSED, 0, false},
    {"model_persistence_threshold", ZERO_REFUSED, 0, false},
    {"module_granularity_threshold", ZERO_REFUSED, 0, false},
    {"allgather_sequential", ZERO_REFUSED, 0, false},
    {"memory_efficient_linear", ZERO_REFUSED, 0, false},
    {"cpu_offload", ZERO_REFUSED, 0, false},
    {"cpu_offload_param", ZERO_REFUSED, 0, false},
    {"cpu_offload_use_pin_memory", ZERO_REFUSED, 0, false},
    {"leaf_module", ZERO_REFUSED, 0, false},
};

static const zero_key *zero_key_find(tide_text key) {
    for (size_t i = 0; i < TIDE_COUNT_OF(zero_keys); i++)
        if (tide_text_is(key, zero_keys[i].key)) return &zero_keys[i];
    return NULL;
}

static bool is_among(tide_text key, const char *const *names) {
    for (; *names; names++)
        if (tide_text_is(key, *names)) return true;
    return false;
}

static bool is_switched_off(const tide_json *value) {
    return value->kind == TIDE_JSON_NULL || is_auto(value) || (value->kind == TIDE_JSON_BOOL && !value->is_true) ||
           (value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer <= 1);
}

/* DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig; nvme goes through pinned buffers on the host.
 */
static void read_offload(const deepspeed_reader *r, const char *name, tide_setting_id setting,
                         const tide_json *section) {
    const tide_json *device = tide_json_at(section, "device"), *pin = tide_json_at(section, "pin_memory");
    const char *at = tide_format(r->arena, "zero_optimization/%s", name);
    if (!section || section->kind == TIDE_JSON_NULL) return;
    check_section(r, at, section, "write {\"device\": \"cpu\"}, or leave it out");
    if (device && device->kind == TIDE_JSON_STRING && tide_text_is(device->text, "nvme"))
        refuse_key(r, TIDE_ERR_UNSUPPORTED, tide_format(r->arena, "%s/device", at), "nvme is not described",
                   "cpu needs the same GPU memory");
    else
        put_claimed_value(r, tide_format(r->arena, "%s/device", at), setting, device);
    const tide_json *ratio = tide_json_at(section, "ratio");
    if (ratio && !(ratio->kind == TIDE_JSON_NUMBER && ratio->number == 1))
        refuse_key(r, TIDE_ERR_UNSUPPORTED, tide_format(r->arena, "%s/ratio", at),
                   "partial offloading is not described", "give 1");
    if (pin && device && device->kind == TIDE_JSON_STRING && tide_text_is(device->text, "cpu"))
        put_claimed_value(r, tide_format(r->arena, "%s/pin_memory", at), TIDE_SET_parallel_pin_memory, pin);
}

/* A key as a stage reads it; if one size is "auto", missing ones have DeepSpeed's defaults. */
static void read_zero_key(deepspeed_reader *r, const tide_json *entry, int64_t stage) {
    const char *at = tide_format(r->arena, "zero_optimization/%s", tide_shown(r->arena, entry->key)),
               *given = tide_argument_value(r->arena, entry);
    const zero_key *row = zero_key_find(entry->key);
    bool is_of_zero = row && (row->rule == ZERO_ALL || row->rule == ZERO_3);
    bool is_read = is_of_zero && stage > 0 && (stage == 3 || row->rule == ZERO_ALL);
    bool is_off =
        tide_text_is(entry->key, "memory_efficient_linear") ? tide_json_is_true(entry) : is_switched_off(entry);
    bool is_zero = entry->kind == TIDE_JSON_NUMBER && entry->number == 0;
    if (row && row->is_filled_in && is_auto(entry)) r->is_auto = true;
    if (!row)
        refuse_key(r, TIDE_ERR_FIELD_UNKNOWN, at,
                   "is not a key of zero_optimization; DeepSpeed says \"Extra inputs are not permitted\"", "remove it");
    else if (is_read && is_auto(entry))
        tide_claims_note(r->claims, at, TIDE_KEY_USED, given, "as the Trainer fills it in");
    else if (is_read && row->setting == TIDE_SET_parallel_sub_group_size && is_zero)
        put_claimed(r, at, entry, row->setting,
                    "1"); /* _create_fp16_sub_groups: with 0, each parameter is a sub-group */
    else if (is_read)
        put_claimed_value(r, at, row->setting, entry);
    else if (row->rule == ZERO_REFUSED && !is_off)
        refuse_key(r, TIDE_ERR_UNSUPPORTED, at, "is not described", "remove it");
    else if (row->rule != ZERO_SECTION)
        tide_claims_note(r->claims, at, TIDE_KEY_IGNORED, given, NULL);
}

static void fill_defaults(const deepspeed_reader *r, const tide_json *zero, int64_t stage) {
    if (!r->is_auto || stage < 1) return;
    tide_imply(r->claims, TIDE_SET_parallel_hf_auto, "true");
    for (size_t i = 0; i < TIDE_COUNT_OF(zero_keys); i++) {
        const zero_key *row = &zero_keys[i];
        if (row->is_filled_in && (row->rule == ZERO_ALL || stage == 3) && !tide_json_at(zero, row->key))
            tide_imply(r->claims, row->setting,
                       tide_format(r->arena, "%" PRId64, tide_settings[row->setting].otherwise));
    }
}

static void read_zero(deepspeed_reader *r, const tide_json *zero) {
    const tide_json *given = tide_json_at(zero, "stage"),
                    *operation = tide_json_at(r->claims->of_deepspeed.root, "gradient_allreduce_op");
    int64_t stage = given && given->kind == TIDE_JSON_NUMBER && given->is_integer ? given->integer : 0;
    if (stage < 0 || stage > 3 || (given && given->kind != TIDE_JSON_NUMBER)) {
        refuse_key(r, TIDE_ERR_FIELD_RANGE, "zero_optimization/stage", "must be 0, 1, 2 or 3", NULL);
        return;
    }
    if (stage == 3 && operation && operation->kind == TIDE_JSON_STRING && tide_text_is(operation->text, "sum"))
        refuse_key(r, TIDE_ERR_CONFLICT, "gradient_allreduce_op",
                   "DeepSpeed refuses it: \"gradient_allreduce_op='sum' is not supported with ZeRO stage 3\"",
                   "use another stage");
    put_claimed(r, "zero_optimization/stage", given, TIDE_SET_parallel_kind,
                tide_format(r->arena, "zero%" PRId64, stage));
    for (const tide_json *entry = zero ? zero->first : NULL; entry; entry = entry->next) read_zero_key(r, entry, stage);
    fill_defaults(r, zero, stage);
    if (stage > 0)
        read_offload(r, "offload_optimizer", TIDE_SET_parallel_offload_optimizer,
                     tide_json_at(zero, "offload_optimizer"));
    if (stage == 3)
        read_offload(r, "offload_param", TIDE_SET_parallel_offload_param, tide_json_at(zero, "offload_param"));
    bool is_launched = tide_mixed_precision(r->claims) != NULL;
    if (stage == 3 && is_launched)
        tide_imply(r->claims, TIDE_SET_parallel_zero_init,
                   "true"); /* HfTrainerDeepSpeedConfig: from_pretrained under zero.Init */
}

static int64_t integer_at(const tide_json *root, const char *key) {
    const tide_json *value = tide_json_at(root, key);
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0 &&
                   value->integer < INT32_MAX
               ? value->integer
               : 0;
}

/* DeepSpeedConfig._batch_assertion. */
static void read_sizes(const deepspeed_reader *r, const tide_json *root) {
    static const char message[] = "DeepSpeed refuses it: \"train_batch_size is not equal to micro_batch_per_gpu * "
                                  "gradient_acc_step * world_size\"";
    int64_t all = integer_at(root, "train_batch_size"), batch = integer_at(root, "train_micro_batch_size_per_gpu"),
            accumulated = integer_at(root, "gradient_accumulation_steps"), ranks = 0;
    const tide_file_key *said = r->claims->settings[TIDE_SET_parallel_dp];
    put_claimed_value(r, "train_micro_batch_size_per_gpu", TIDE_SET_batch,
                      tide_json_at(root, "train_micro_batch_size_per_gpu"));
    put_claimed_value(r, "gradient_accumulation_steps", TIDE_SET_grad_accum,
                      tide_json_at(root, "gradient_accumulation_steps"));
    if (!all || !batch) return;
    if (!accumulated) accumulated = 1;
    if (said) tide_text_to_i64(&ranks, tide_text_of(said->taken));
    if (all % (batch * accumulated) || (ranks && all / (batch * accumulated) != ranks))
        refuse_key(r, TIDE_ERR_CONFLICT, "train_batch_size", message, "give a multiple");
    else
        put_claimed(r, "train_batch_size", tide_json_at(root, "train_batch_size"), TIDE_SET_parallel_dp,
                    tide_format(r->arena, "%" PRId64, all / (batch * accumulated)));
}

/* HfTrainerDeepSpeedConfig.fill_match: values other than "auto" must match TrainingArguments. */
static void check_match(const deepspeed_reader *r, const char *at, const tide_json *value, const char *of_trainer,
                        const char *key) {
    if (!value || is_auto(value) || value->kind == TIDE_JSON_NULL || !tide_claims_train(r->claims) || !of_trainer)
        return;
    const char *given = tide_argument_value(r->arena, value);
    int64_t a = 0, b = 0;
    bool are_numbers = given && tide_decimal_read(&a, tide_text_of(given)) == TIDE_DECIMAL_OK &&
                       tide_decimal_read(&b, tide_text_of(of_trainer)) == TIDE_DECIMAL_OK;
    if (given && (are_numbers ? a == b : strcmp(given, of_trainer) == 0)) return;
    refuse_key(
        r, TIDE_ERR_CONFLICT, at,
        tide_format(r->arena,
                    "the Trainer refuses it: \"Please correct the following DeepSpeed config values that mismatch "
                    "TrainingArguments values: - ds %s=%s vs hf %s=%s\"",
                    at, given ? given : "...", key, of_trainer),
        "write \"auto\"");
}

static void check_matches(const deepspeed_reader *r, const tide_json *root) {
    const tide_file_key *batch = r->claims->settings[TIDE_SET_batch],
                        *accumulated = r->claims->settings[TIDE_SET_grad_accum];
    const char *clip = tide_fact_of(r->claims, TIDE_FACT_clip);
    check_match(r, "train_micro_batch_size_per_gpu", tide_json_at(root, "train_micro_batch_size_per_gpu"),
                batch ? batch->taken : NULL, "per_device_train_batch_size");
    check_match(r, "gradient_accumulation_steps", tide_json_at(root, "gradient_accumulation_steps"),
                accumulated ? accumulated->taken : "1", "gradient_accumulation_steps");
    check_match(r, "gradient_clipping", tide_json_at(root, "gradient_clipping"), clip ? clip : "1.0", "max_grad_norm");
    check_match(r, "bf16/enabled", tide_json_at(tide_json_at(root, "bf16"), "enabled"),
                tide_fact_is(r->claims, TIDE_FACT_bf16, "true") ? "true" : "false", "bf16|bf16_full_eval");
    check_match(r, "fp16/enabled", tide_json_at(tide_json_at(root, "fp16"), "enabled"),
                tide_fact_is(r->claims, TIDE_FACT_fp16, "true") ? "true" : "false", "fp16|fp16_full_eval");
}

/* The engine's optimizers; without one, the Trainer's own is used. */
static void read_optimizer(const deepspeed_reader *r, const tide_json *optimizer) {
    const tide_json *type = tide_json_at(optimizer, "type"), *parameters = tide_json_at(optimizer, "params");
    if (!type || type->kind != TIDE_JSON_STRING) return;
    if (tide_json_at(parameters, "max_grad_norm")) {
        refuse_key(r, TIDE_ERR_CONFLICT, "optimizer/params/max_grad_norm",
                   "DeepSpeed refuses it: \"'max_grad_norm' is not supported as an optimizer parameter\"",
                   "use gradient_clipping");
        return;
    }
    bool is_adam = tide_text_is(type->text, "Adam") || tide_text_is(type->text, "AdamW");
    if (!is_adam) {
        refuse_key(r, TIDE_ERR_UNSUPPORTED, "optimizer/type",
                   tide_format(r->arena, "%s is not described", tide_shown(r->arena, type->text)),
                   "leave the optimizer out, or use AdamW");
        return;
    }
    bool is_torch = tide_json_is_true(tide_json_at(parameters, "torch_adam"));
    r->claims->settings[TIDE_SET_optimizer] = NULL; /* the Trainer creates a DummyOptim */
    put_claimed(r, "optimizer/type", type, TIDE_SET_optimizer,
                is_torch ? "adamw" : "adamw_fused"); /* FusedAdam: only two states */
}

/* The engine's dtype: from its own file, or for "auto" from the launcher. */
static void read_precision(const deepspeed_reader *r, const tide_json *root) {
    const tide_json *bf16 = tide_json_at(tide_json_at(root, "bf16"), "enabled"),
                    *fp16 = tide_json_at(tide_json_at(root, "fp16"), "enabled");
    const char *launched = tide_mixed_precision(r->claims);
    static const char *const narrow[] = {"bf16_master_weights_and_grads", "bf16_optimizer_states",
                                         "fp16_master_weights_and_grads", NULL};
    for (unsigned i = 0; i < 2; i++) {
        const tide_json *section = tide_json_at(root, i ? "fp16" : "bf16");
        for (const tide_json *entry = section ? section->first : NULL; entry; entry = entry->next)
            if (is_among(entry->key, narrow) && tide_json_is_true(entry))
                refuse_key(r, TIDE_ERR_UNSUPPORTED,
                           tide_format(r->arena, "%s/%s", i ? "fp16" : "bf16", tide_shown(r->arena, entry->key)),
                           "is not described", "remove it");
    }
    if (tide_json_is_true(bf16) && tide_json_is_true(fp16))
        refuse_key(r, TIDE_ERR_CONFLICT, "fp16/enabled",
                   "DeepSpeed refuses it: \"bfloat16 and fp16 modes cannot be simultaneously enabled\"",
                   "enable one of the two");
    bool is_open = (!bf16 || is_auto(bf16)) && (!fp16 || is_auto(fp16));
    if (tide_json_is_true(bf16))
        put_claimed(r, "bf16/enabled", bf16, TIDE_SET_parallel_half, "bf16");
    else if (tide_json_is_true(fp16))
        put_claimed(r, "fp16/enabled", fp16, TIDE_SET_parallel_half, "fp16");
    else if (is_open && launched && (strcmp(launched, "bf16") == 0 || strcmp(launched, "fp16") == 0))
        tide_settle(r->claims, tide_mixed_precision_fact(r->claims), TIDE_SET_parallel_half, launched);
    else if ((!is_auto(bf16) && !is_auto(fp16)) || launched)
        tide_imply(r->claims, TIDE_SET_parallel_half, "none");
}

/* tensor_parallel: AutoTP for layers that transformers' plan shards. */
static void put_tensor_parallel(const deepspeed_reader *r, const tide_json *section) {
    for (const tide_json *entry = section->first; entry; entry = entry->next) {
        const char *at = tide_format(r->arena, "tensor_parallel/%s", tide_shown(r->arena, entry->key));
        if (tide_text_is(entry->key, "autotp_size"))
            put_claimed_value(r, at, TIDE_SET_parallel_tp, entry);
        else if (!is_switched_off(entry))
            refuse_key(r, TIDE_ERR_UNSUPPORTED, at, "is not described: layers are cut by transformers' plan",
                       "leave it out");
    }
}

/* Only runtime/pipe/engine.py reads the section: it has no effect unless the model is a PipelineModule. */
static void refuse_pipeline(const deepspeed_reader *r, const tide_json *section) {
    tide_claims_note(r->claims, "pipeline", TIDE_KEY_UNSUPPORTED, tide_argument_value(r->arena, section),
                     "is not described");
    tide_error(r->claims->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(r->claims, "pipeline"),
               "belongs to DeepSpeed's PipelineEngine, which runs a PipelineModule, made of layers written for it: no "
               "model of transformers is one",
               "leave it out for a model of transformers, as deepspeed.initialize() ignores it; similar: "
               "parallel.kind=native with parallel.pp and parallel.dp");
}

/* Other top-level keys. */
static void note_rest(const deepspeed_reader *r, const tide_json *root) {
    static const char *const read[] = {"zero_optimization",
                                       "train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "bf16",
                                       "fp16",
                                       "communication_data_type",
                                       "seq_parallel_communication_data_type",
                                       "sequence_parallel_size",
                                       "data_types",
                                       "optimizer",
                                       NULL};
    static const char *const matter[] = {
        "amp", "compression_training", "sparse_attention", "curriculum_learning", "hybrid_engine", "compile", NULL};
    for (const tide_json *entry = root->first; entry; entry = entry->next) {
        const char *key = tide_shown(r->arena, entry->key), *value = tide_argument_value(r->arena, entry);
        bool may_matter = is_among(entry->key, matter) && !is_switched_off(entry);
        if (is_among(entry->key, read)) continue;
        if (tide_text_is(entry->key, "pipeline")) {
            refuse_pipeline(r, entry);
            continue;
        }
        if (tide_text_is(entry->key, "tensor_parallel")) {
            put_tensor_parallel(r, entry);
            continue;
        }
        tide_claims_note(r->claims, key, may_matter ? TIDE_KEY_UNSUPPORTED : TIDE_KEY_IGNORED, value,
                         may_matter ? "is not described" : NULL);
        if (may_matter)
            tide_report(r->claims->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(r->claims, key),
                        "is not described and may matter", NULL);
    }
}

void tide_deepspeed_read(tide_claims *c) {
    const tide_json *root = c->of_deepspeed.root;
    deepspeed_reader r = {.claims = c, .arena = c->arena};
    const char *clipped = tide_fact_of(c, TIDE_FACT_clip);
    const tide_json *clip = tide_json_at(root, "gradient_clipping");
    uint32_t errors = c->diags->error_count;
    c->at = &c->of_deepspeed;
    check_sections(&r, root);
    check_matches(&r, root);
    read_zero(&r, tide_json_at(root, "zero_optimization"));
    if (c->diags->error_count != errors) return;
    read_precision(&r, root);
    read_sizes(&r, root);
    if (is_auto(clip))
        put_claimed(&r, "gradient_clipping", clip, TIDE_SET_clip, clipped ? clipped : "1.0");
    else if (clip && !(clip->kind == TIDE_JSON_NUMBER && clip->number == 0))
        put_claimed_value(&r, "gradient_clipping", TIDE_SET_clip, clip);
    put_claimed_value(&r, "communication_data_type", TIDE_SET_parallel_communication_data_type,
                      tide_json_at(root, "communication_data_type"));
    put_claimed_value(&r, "sequence_parallel_size", TIDE_SET_parallel_sequence_parallel_size,
                      tide_json_at(root, "sequence_parallel_size"));
    put_claimed_value(&r, "seq_parallel_communication_data_type",
                      TIDE_SET_parallel_seq_parallel_communication_data_type,
                      tide_json_at(root, "seq_parallel_communication_data_type"));
    put_claimed_value(&r, "data_types/grad_accum_dtype", TIDE_SET_parallel_grad_accum_dtype,
                      tide_json_at(tide_json_at(root, "data_types"), "grad_accum_dtype"));
    put_claimed_value(&r, "bf16/check_grad_overflow", TIDE_SET_parallel_check_grad_overflow,
                      tide_json_at(tide_json_at(root, "bf16"), "check_grad_overflow"));
    read_optimizer(&r, tide_json_at(root, "optimizer"));
    note_rest(&r, root);
}

const tide_reader tide_deepspeed_reader = {.title = "a DeepSpeed configuration",
                                           .marks = "zero_optimization|train_micro_batch_size_per_gpu",
                                           .program = TIDE_PROGRAM_deepspeed};
