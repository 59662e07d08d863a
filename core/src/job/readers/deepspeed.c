/* A DeepSpeed configuration as settings: deepspeed/runtime/config.py, zero/config.py; "auto" as the HF Trainer fills it
 * in (transformers/integrations/deepspeed.py). */
#include "job/readers/trainer_config.h"

#include <inttypes.h>
#include <string.h>

typedef struct reader {
    tide_trainer_config *launch;
    tide_arguments *words;
    const char *place; /* of the file */
    bool is_auto;      /* a size is "auto" */
} reader;

static bool is_auto(const tide_json *value) {
    return tide_json_is_text(value, "auto");
}

static void put(const reader *r, const char *at, const tide_json *given, const char *setting, const char *value) {
    tide_trainer_config_claim(r->launch, at, given ? tide_argument_value(r->words->arena, given) : NULL, setting,
                              value);
}

static void refuse(const reader *r, tide_status status, const char *at, const char *message, const char *remedy) {
    tide_error(r->words->diags, status, tide_format(r->words->arena, "%s/%s", r->place, at), message, remedy);
}

/* A number, truth or name under the name of a setting; "auto" and null are the default. */
static void put_value(const reader *r, const char *at, const char *setting, const tide_json *value) {
    if (!value || is_auto(value) || value->kind == TIDE_JSON_NULL) return;
    const char *text = tide_argument_value(r->words->arena, value);
    if (text)
        put(r, at, value, setting, text);
    else
        refuse(r, TIDE_ERR_FIELD_TYPE, at,
               tide_format(r->words->arena, "is %s; must be one value", tide_json_kind_name(value)), NULL);
}

/* Keys of zero_optimization by what becomes of them: settings of all stages, of stage 3, sizes that the Trainer fills
 * in; without effect on memory; and those that are refused where they are switched on. */
static const char *const shared[] = {"contiguous_gradients",
                                     "overlap_comm",
                                     "reduce_scatter",
                                     "reduce_bucket_size",
                                     "allgather_bucket_size",
                                     "allgather_partitions",
                                     "round_robin_gradients",
                                     "use_multi_rank_bucket_allreduce",
                                     NULL};
static const char *const of_stage_3[] = {"stage3_prefetch_bucket_size",
                                         "stage3_param_persistence_threshold",
                                         "stage3_max_live_parameters",
                                         "stage3_max_reuse_distance",
                                         "sub_group_size",
                                         "zero_hpz_partition_size",
                                         NULL};
static const char *const filled_in[] = {"reduce_bucket_size", "stage3_prefetch_bucket_size",
                                        "stage3_param_persistence_threshold", NULL};
static const char *const without_effect[] = {"load_from_fp32_weights",
                                             "elastic_checkpoint",
                                             "ignore_unused_parameters",
                                             "legacy_stage1",
                                             "stage3_gather_16bit_weights_on_model_save",
                                             "stage3_gather_fp16_weights_on_model_save",
                                             "gather_16bit_weights_on_model_save",
                                             "pipeline_loading_checkpoint",
                                             "override_module_apply",
                                             "log_trace_cache_warnings",
                                             NULL};
static const char *const refused[] = {"zero_quantized_weights",
                                      "zero_quantized_gradients",
                                      "zero_quantized_nontrainable_weights",
                                      "mics_shard_size",
                                      "mics_hierarchical_params_gather",
                                      "zenflow",
                                      "stage3_use_all_reduce_for_fetch_params",
                                      "stage3_model_persistence_threshold",
                                      "stage3_module_granularity_threshold",
                                      "memory_efficient_linear",
                                      "cpu_offload",
                                      "cpu_offload_param",
                                      "cpu_offload_use_pin_memory",
                                      "leaf_module",
                                      NULL};
static const char *const elsewhere[] = {"stage", "offload_optimizer", "offload_param", NULL};

static bool is_among(tide_text key, const char *const *names) {
    for (; *names; names++)
        if (tide_text_is(key, *names)) return true;
    return false;
}

static bool is_switched_off(const tide_json *value) {
    return value->kind == TIDE_JSON_NULL || is_auto(value) || (value->kind == TIDE_JSON_BOOL && !value->is_true) ||
           (value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer <= 1);
}

/* DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig; nvme passes through pinned buffers of the host.
 */
static void read_offload(const reader *r, const char *name, const tide_json *section) {
    const tide_json *device = tide_json_at(section, "device"), *pin = tide_json_at(section, "pin_memory");
    const char *at = tide_format(r->words->arena, "zero_optimization/%s", name);
    if (!section || section->kind != TIDE_JSON_OBJECT) return;
    if (device && device->kind == TIDE_JSON_STRING && tide_text_is(device->text, "nvme"))
        refuse(r, TIDE_ERR_UNSUPPORTED, tide_format(r->words->arena, "%s/device", at), "nvme is not described",
               "cpu needs as much of the GPU");
    else
        put_value(r, tide_format(r->words->arena, "%s/device", at), tide_format(r->words->arena, "parallel.%s", name),
                  device);
    const tide_json *ratio = tide_json_at(section, "ratio");
    if (ratio && !(ratio->kind == TIDE_JSON_NUMBER && ratio->number == 1))
        refuse(r, TIDE_ERR_UNSUPPORTED, tide_format(r->words->arena, "%s/ratio", at),
               "offloading in part is not described", "give 1");
    if (pin && device && device->kind == TIDE_JSON_STRING && tide_text_is(device->text, "cpu"))
        put_value(r, tide_format(r->words->arena, "%s/pin_memory", at), "parallel.pin_memory", pin);
}

/* What a stage reads of a key; where one size is "auto", those that are absent are DeepSpeed's own. */
static void read_zero_key(reader *r, const tide_json *entry, int64_t stage) {
    tide_arena *arena = r->words->arena;
    const char *key = tide_shown(arena, entry->key), *at = tide_format(arena, "zero_optimization/%s", key),
               *given = tide_argument_value(arena, entry);
    bool of_all = is_among(entry->key, shared), of_3 = is_among(entry->key, of_stage_3);
    bool is_read = stage > 0 && (of_all || (stage == 3 && of_3));
    bool is_off =
        tide_text_is(entry->key, "memory_efficient_linear") ? tide_json_is_true(entry) : is_switched_off(entry);
    if (is_auto(entry) && is_among(entry->key, filled_in)) r->is_auto = true;
    if (is_read && is_auto(entry))
        tide_trainer_config_note(r->launch, at, TIDE_KEY_USED, given, "as the Trainer fills it in");
    else if (is_read)
        put_value(r, at, tide_format(arena, "parallel.%s", key), entry);
    else if (is_among(entry->key, refused) && !is_off)
        refuse(r, TIDE_ERR_UNSUPPORTED, at, "is not described", "remove it");
    else if (of_all || of_3 || is_among(entry->key, without_effect) || is_among(entry->key, refused))
        tide_trainer_config_note(r->launch, at, TIDE_KEY_IGNORED, given, NULL);
    else if (!is_among(entry->key, elsewhere))
        refuse(r, TIDE_ERR_FIELD_UNKNOWN, at,
               "is no key of zero_optimization; DeepSpeed says \"Extra inputs are not permitted\"", "remove it");
}

static void fill_defaults(const reader *r, const tide_json *zero, int64_t stage) {
    static const char *const values[] = {"500000000", "50000000", "100000"};
    if (!r->is_auto || stage < 1) return;
    tide_trainer_config_imply(r->launch, "parallel.hf_auto", "true");
    for (unsigned i = 0; filled_in[i] && (i == 0 || stage == 3); i++)
        if (!tide_json_at(zero, filled_in[i]))
            tide_trainer_config_imply(r->launch, tide_format(r->words->arena, "parallel.%s", filled_in[i]), values[i]);
}

static void read_zero(reader *r, const tide_json *zero) {
    const tide_json *given = tide_json_at(zero, "stage"),
                    *operation = tide_json_at(r->launch->of_deepspeed.root, "gradient_allreduce_op");
    int64_t stage = given && given->kind == TIDE_JSON_NUMBER && given->is_integer ? given->integer : 0;
    if (stage < 0 || stage > 3 || (given && given->kind != TIDE_JSON_NUMBER)) {
        refuse(r, TIDE_ERR_FIELD_RANGE, "zero_optimization/stage", "must be 0, 1, 2 or 3", NULL);
        return;
    }
    if (stage == 3 && operation && operation->kind == TIDE_JSON_STRING && tide_text_is(operation->text, "sum"))
        refuse(r, TIDE_ERR_CONFLICT, "gradient_allreduce_op",
               "DeepSpeed refuses it: \"gradient_allreduce_op='sum' is not supported with ZeRO stage 3\"",
               "use another stage");
    put(r, "zero_optimization/stage", given, "parallel.kind", tide_format(r->words->arena, "zero%" PRId64, stage));
    for (const tide_json *entry = zero ? zero->first : NULL; entry; entry = entry->next) read_zero_key(r, entry, stage);
    fill_defaults(r, zero, stage);
    if (stage > 0) read_offload(r, "offload_optimizer", tide_json_at(zero, "offload_optimizer"));
    if (stage == 3) read_offload(r, "offload_param", tide_json_at(zero, "offload_param"));
    bool is_launched = tide_trainer_config_precision(r->launch) != NULL;
    if (stage == 3 && is_launched)
        tide_trainer_config_imply(r->launch, "parallel.zero_init",
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
static void read_sizes(const reader *r, const tide_json *root) {
    static const char message[] = "DeepSpeed refuses it: \"train_batch_size is not equal to micro_batch_per_gpu * "
                                  "gradient_acc_step * world_size\"";
    int64_t all = integer_at(root, "train_batch_size"), batch = integer_at(root, "train_micro_batch_size_per_gpu"),
            accumulated = integer_at(root, "gradient_accumulation_steps"), ranks = 0;
    const tide_file_key *said = r->launch->settings[TIDE_SET_parallel_dp];
    put_value(r, "train_micro_batch_size_per_gpu", "batch", tide_json_at(root, "train_micro_batch_size_per_gpu"));
    put_value(r, "gradient_accumulation_steps", "grad_accum", tide_json_at(root, "gradient_accumulation_steps"));
    if (!all || !batch) return;
    if (!accumulated) accumulated = 1;
    if (said) tide_text_to_i64(&ranks, tide_text_of(said->taken));
    if (all % (batch * accumulated) || (ranks && all / (batch * accumulated) != ranks))
        refuse(r, TIDE_ERR_CONFLICT, "train_batch_size", message, "give a multiple");
    else
        put(r, "train_batch_size", tide_json_at(root, "train_batch_size"), "parallel.dp",
            tide_format(r->words->arena, "%" PRId64, all / (batch * accumulated)));
}

/* HfTrainerDeepSpeedConfig.fill_match: values that are not "auto" must be those of TrainingArguments. */
static void check_match(const reader *r, const char *at, const tide_json *value, const char *of_trainer,
                        const char *key) {
    if (!value || is_auto(value) || value->kind == TIDE_JSON_NULL || !r->launch->has_trainer || !of_trainer) return;
    const char *given = tide_argument_value(r->words->arena, value);
    int64_t a = 0, b = 0;
    bool are_numbers = given && tide_decimal_read(&a, tide_text_of(given)) == TIDE_DECIMAL_OK &&
                       tide_decimal_read(&b, tide_text_of(of_trainer)) == TIDE_DECIMAL_OK;
    if (given && (are_numbers ? a == b : strcmp(given, of_trainer) == 0)) return;
    refuse(r, TIDE_ERR_CONFLICT, at,
           tide_format(r->words->arena,
                       "the Trainer refuses it: \"Please correct the following DeepSpeed config values that mismatch "
                       "TrainingArguments values: - ds %s=%s vs hf %s=%s\"",
                       at, given ? given : "...", key, of_trainer),
           "write \"auto\"");
}

static void check_matches(const reader *r, const tide_json *root) {
    const tide_file_key *batch = r->launch->settings[TIDE_SET_batch],
                        *accumulated = r->launch->settings[TIDE_SET_grad_accum];
    const char *clip = tide_trainer_config_fact(r->launch, TIDE_FACT_clip);
    check_match(r, "train_micro_batch_size_per_gpu", tide_json_at(root, "train_micro_batch_size_per_gpu"),
                batch ? batch->taken : NULL, "per_device_train_batch_size");
    check_match(r, "gradient_accumulation_steps", tide_json_at(root, "gradient_accumulation_steps"),
                accumulated ? accumulated->taken : "1", "gradient_accumulation_steps");
    check_match(r, "gradient_clipping", tide_json_at(root, "gradient_clipping"), clip ? clip : "1.0", "max_grad_norm");
    check_match(r, "bf16/enabled", tide_json_at(tide_json_at(root, "bf16"), "enabled"),
                tide_trainer_config_is(r->launch, TIDE_FACT_bf16, "true") ? "true" : "false", "bf16|bf16_full_eval");
    check_match(r, "fp16/enabled", tide_json_at(tide_json_at(root, "fp16"), "enabled"),
                tide_trainer_config_is(r->launch, TIDE_FACT_fp16, "true") ? "true" : "false", "fp16|fp16_full_eval");
}

/* The engine's optimizers; the Trainer's own one is used where none is named. */
static void read_optimizer(const reader *r, const tide_json *optimizer) {
    const tide_json *type = tide_json_at(optimizer, "type"), *parameters = tide_json_at(optimizer, "params");
    if (!type || type->kind != TIDE_JSON_STRING) return;
    if (tide_json_at(parameters, "max_grad_norm")) {
        refuse(r, TIDE_ERR_CONFLICT, "optimizer/params/max_grad_norm",
               "DeepSpeed refuses it: \"'max_grad_norm' is not supported as an optimizer parameter\"",
               "use gradient_clipping");
        return;
    }
    bool is_adam = tide_text_is(type->text, "Adam") || tide_text_is(type->text, "AdamW");
    if (!is_adam) {
        refuse(r, TIDE_ERR_UNSUPPORTED, "optimizer/type",
               tide_format(r->words->arena, "%s is not described", tide_shown(r->words->arena, type->text)),
               "leave the optimizer out, or use AdamW");
        return;
    }
    bool is_torch = tide_json_is_true(tide_json_at(parameters, "torch_adam"));
    r->launch->settings[TIDE_SET_optimizer] = NULL; /* the Trainer makes a DummyOptim */
    put(r, "optimizer/type", type, "optimizer",
        is_torch ? "adamw" : "adamw_fused"); /* FusedAdam: two states, nothing else */
}

/* The engine's type: its own file's, or for "auto" what the launcher asks for. */
static void read_precision(const reader *r, const tide_json *root) {
    const tide_json *bf16 = tide_json_at(tide_json_at(root, "bf16"), "enabled"),
                    *fp16 = tide_json_at(tide_json_at(root, "fp16"), "enabled");
    const char *launched = tide_trainer_config_precision(r->launch);
    static const char *const narrow[] = {"bf16_master_weights_and_grads", "bf16_optimizer_states",
                                         "fp16_master_weights_and_grads", NULL};
    for (unsigned i = 0; i < 2; i++) {
        const tide_json *section = tide_json_at(root, i ? "fp16" : "bf16");
        for (const tide_json *entry = section ? section->first : NULL; entry; entry = entry->next)
            if (is_among(entry->key, narrow) && tide_json_is_true(entry))
                refuse(
                    r, TIDE_ERR_UNSUPPORTED,
                    tide_format(r->words->arena, "%s/%s", i ? "fp16" : "bf16", tide_shown(r->words->arena, entry->key)),
                    "is not described", "remove it");
    }
    if (tide_json_is_true(bf16) && tide_json_is_true(fp16))
        refuse(r, TIDE_ERR_CONFLICT, "fp16/enabled",
               "DeepSpeed refuses it: \"bfloat16 and fp16 modes cannot be simultaneously enabled\"",
               "enable one of the two");
    bool is_open = (!bf16 || is_auto(bf16)) && (!fp16 || is_auto(fp16));
    if (tide_json_is_true(bf16))
        put(r, "bf16/enabled", bf16, "parallel.half", "bf16");
    else if (tide_json_is_true(fp16))
        put(r, "fp16/enabled", fp16, "parallel.half", "fp16");
    else if (is_open && launched && (strcmp(launched, "bf16") == 0 || strcmp(launched, "fp16") == 0))
        tide_trainer_config_settle(r->launch, tide_trainer_config_precision_fact(r->launch), "parallel.half", launched);
    else if ((!is_auto(bf16) && !is_auto(fp16)) || launched)
        tide_trainer_config_imply(r->launch, "parallel.half", "none");
}

/* Other keys at the top. */
static void note_rest(const reader *r, const tide_json *root) {
    static const char *const read[] = {"zero_optimization",
                                       "train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "bf16",
                                       "fp16",
                                       "communication_data_type",
                                       "data_types",
                                       "optimizer",
                                       NULL};
    static const char *const matter[] = {"amp",
                                         "tensor_parallel",
                                         "compression_training",
                                         "sparse_attention",
                                         "curriculum_learning",
                                         "sequence_parallel_size",
                                         "pipeline",
                                         "hybrid_engine",
                                         "compile",
                                         NULL};
    for (const tide_json *entry = root->first; entry; entry = entry->next) {
        const char *key = tide_shown(r->words->arena, entry->key), *value = tide_argument_value(r->words->arena, entry);
        bool may_matter = is_among(entry->key, matter) && !is_switched_off(entry);
        if (is_among(entry->key, read)) continue;
        tide_trainer_config_note(r->launch, key, may_matter ? TIDE_KEY_UNSUPPORTED : TIDE_KEY_IGNORED, value,
                                 may_matter ? "is not described" : NULL);
        if (may_matter)
            tide_report(r->words->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED,
                        tide_format(r->words->arena, "%s/%s", r->place, key), "is not described and may matter", NULL);
    }
}

void tide_deepspeed_read(tide_trainer_config *launch) {
    const tide_json *root = launch->of_deepspeed.root;
    reader r = {.launch = launch, .words = launch->words, .place = launch->of_deepspeed.place};
    const char *clipped = tide_trainer_config_fact(launch, TIDE_FACT_clip);
    const tide_json *clip = tide_json_at(root, "gradient_clipping");
    uint32_t errors = launch->words->diags->error_count;
    launch->at = &launch->of_deepspeed;
    check_matches(&r, root);
    read_zero(&r, tide_json_at(root, "zero_optimization"));
    if (launch->words->diags->error_count != errors) return;
    read_precision(&r, root);
    read_sizes(&r, root);
    if (is_auto(clip))
        put(&r, "gradient_clipping", clip, "clip", clipped ? clipped : "1.0");
    else if (clip && !(clip->kind == TIDE_JSON_NUMBER && clip->number == 0))
        put_value(&r, "gradient_clipping", "clip", clip);
    put_value(&r, "communication_data_type", "parallel.communication_data_type",
              tide_json_at(root, "communication_data_type"));
    put_value(&r, "data_types/grad_accum_dtype", "parallel.grad_accum_dtype",
              tide_json_at(tide_json_at(root, "data_types"), "grad_accum_dtype"));
    put_value(&r, "bf16/check_grad_overflow", "parallel.check_grad_overflow",
              tide_json_at(tide_json_at(root, "bf16"), "check_grad_overflow"));
    read_optimizer(&r, tide_json_at(root, "optimizer"));
    note_rest(&r, root);
}
