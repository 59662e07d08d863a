/* A DeepSpeed configuration as settings: deepspeed/runtime/config.py, zero/config.py; "auto" as the HF Trainer fills it in
 * (transformers/integrations/deepspeed.py). */
#include "settings.h"

#include <inttypes.h>
#include <string.h>

typedef struct reader {
    tide_words *words;
    const char *place; /* of the file */
    bool is_auto;      /* a size is "auto" */
} reader;

static bool is_auto(const tide_json *value) {
    return value && value->kind == TIDE_JSON_STRING && tide_text_is(value->text, "auto");
}

static bool is_true(const tide_json *value) {
    return value && value->kind == TIDE_JSON_BOOL && value->is_true;
}

static void put(const reader *r, const char *setting, const char *value) {
    tide_setting_put(r->words, tide_text_of(setting), tide_text_of(value), TIDE_ORIGIN_FILE);
}

static void refuse(const reader *r, tide_status status, const char *at, const char *message, const char *remedy) {
    tide_error(r->words->diags, status, tide_format(r->words->arena, "%s/%s", r->place, at), message, remedy);
}

/* A number, truth or name under the name of a setting; "auto" and null are the default. */
static void put_value(const reader *r, const char *setting, const tide_json *value) {
    if (!value || is_auto(value) || value->kind == TIDE_JSON_NULL) return;
    const char *text = tide_word_value(r->words->arena, value);
    if (text) put(r, setting, text);
    else refuse(r, TIDE_ERR_FIELD_TYPE, value->key.at, tide_format(r->words->arena, "is %s; must be one value", tide_json_kind_name(value)), NULL);
}

/* Keys of zero_optimization by what becomes of them: settings of all stages, of stage 3, sizes that the Trainer fills in; without effect
 * on memory; and those that are refused where they are switched on. */
static const char *const shared[] = {"contiguous_gradients", "overlap_comm", "reduce_scatter", "reduce_bucket_size", "allgather_bucket_size",
                                     "allgather_partitions", "round_robin_gradients", "use_multi_rank_bucket_allreduce", NULL};
static const char *const of_stage_3[] = {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters",
                                         "stage3_max_reuse_distance", "sub_group_size", NULL};
static const char *const filled_in[] = {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", NULL};
static const char *const without_effect[] = {"stage", "load_from_fp32_weights", "elastic_checkpoint", "ignore_unused_parameters", "legacy_stage1",
                                             "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
                                             "gather_16bit_weights_on_model_save", "pipeline_loading_checkpoint", "override_module_apply",
                                             "log_trace_cache_warnings", "offload_optimizer", "offload_param", NULL};
static const char *const refused[] = {"zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients",
                                      "zero_quantized_nontrainable_weights", "mics_shard_size", "mics_hierarchical_params_gather", "zenflow",
                                      "stage3_use_all_reduce_for_fetch_params", "stage3_model_persistence_threshold",
                                      "stage3_module_granularity_threshold", "memory_efficient_linear", "cpu_offload", "cpu_offload_param",
                                      "cpu_offload_use_pin_memory", "leaf_module", NULL};

static bool is_among(tide_text key, const char *const *names) {
    for (; *names; names++)
        if (tide_text_is(key, *names)) return true;
    return false;
}

static bool is_switched_off(const tide_json *value) {
    return value->kind == TIDE_JSON_NULL || is_auto(value) || (value->kind == TIDE_JSON_BOOL && !value->is_true) ||
           (value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer <= 1);
}

static void read_offload(const reader *r, const char *setting, const tide_json *section) {
    if (section && section->kind == TIDE_JSON_OBJECT) put_value(r, setting, tide_json_at(section, "device"));
}

static void read_zero(reader *r, const tide_json *zero) {
    const tide_json *given = tide_json_at(zero, "stage");
    int64_t stage = given && given->kind == TIDE_JSON_NUMBER && given->is_integer ? given->integer : 0;
    if (stage < 0 || stage > 3 || (given && given->kind != TIDE_JSON_NUMBER)) {
        refuse(r, TIDE_ERR_FIELD_RANGE, "zero_optimization/stage", "must be 0, 1, 2 or 3", NULL);
        return;
    }
    put(r, "parallel.kind", tide_format(r->words->arena, "zero%" PRId64, stage));
    for (const tide_json *entry = zero ? zero->first : NULL; entry; entry = entry->next) {
        const char *setting = tide_format(r->words->arena, "parallel.%s", tide_shown(r->words->arena, entry->key)),
                   *at = tide_format(r->words->arena, "zero_optimization/%s", tide_shown(r->words->arena, entry->key));
        bool is_read = stage > 0 && (is_among(entry->key, shared) || (stage == 3 && is_among(entry->key, of_stage_3)));
        if (is_auto(entry) && is_among(entry->key, filled_in)) r->is_auto = true;
        if (is_read) put_value(r, setting, entry);
        else if (is_among(entry->key, refused) && !(tide_text_is(entry->key, "memory_efficient_linear") ? is_true(entry) : is_switched_off(entry)))
            refuse(r, TIDE_ERR_UNSUPPORTED, at, "is not described", "remove it");
        else if (!is_among(entry->key, shared) && !is_among(entry->key, of_stage_3) && !is_among(entry->key, without_effect) && !is_among(entry->key, refused))
            refuse(r, TIDE_ERR_FIELD_UNKNOWN, at, "is no key of zero_optimization; DeepSpeed says \"Extra inputs are not permitted\"", "remove it");
    }
    if (stage > 0) read_offload(r, "parallel.offload_optimizer", tide_json_at(zero, "offload_optimizer"));
    if (stage == 3) read_offload(r, "parallel.offload_param", tide_json_at(zero, "offload_param"));
    if (r->is_auto && stage > 0) put(r, "parallel.hf_auto", "true");
}

static int64_t integer_at(const tide_json *root, const char *key) {
    const tide_json *value = tide_json_at(root, key);
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0 && value->integer < INT32_MAX ? value->integer : 0;
}

/* DeepSpeedConfig._batch_assertion. */
static void read_sizes(const reader *r, const tide_json *root) {
    int64_t all = integer_at(root, "train_batch_size"), batch = integer_at(root, "train_micro_batch_size_per_gpu"),
            accumulated = integer_at(root, "gradient_accumulation_steps");
    put_value(r, "batch", tide_json_at(root, "train_micro_batch_size_per_gpu"));
    put_value(r, "grad_accum", tide_json_at(root, "gradient_accumulation_steps"));
    if (!all || !batch) return;
    if (!accumulated) accumulated = 1;
    if (all % (batch * accumulated))
        refuse(r, TIDE_ERR_CONFLICT, "train_batch_size",
               "DeepSpeed refuses it: \"train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size\"", "give a multiple");
    else put(r, "parallel.dp", tide_format(r->words->arena, "%" PRId64, all / (batch * accumulated)));
}

/* The engine's optimizers; the Trainer's own one is used where none is named. */
static void read_optimizer(const reader *r, const tide_json *optimizer) {
    const tide_json *type = tide_json_at(optimizer, "type"), *parameters = tide_json_at(optimizer, "params");
    if (!type || type->kind != TIDE_JSON_STRING) return;
    bool is_adam = tide_text_is(type->text, "Adam") || tide_text_is(type->text, "AdamW");
    if (!is_adam) {
        refuse(r, TIDE_ERR_UNSUPPORTED, "optimizer/type", tide_format(r->words->arena, "%s is not described", tide_shown(r->words->arena, type->text)), "leave the optimizer out, or use AdamW");
        return;
    }
    bool is_torch = is_true(tide_json_at(parameters, "torch_adam"));
    put(r, "optimizer", is_torch ? "adamw" : "adamw_fused"); /* FusedAdam: two states, nothing else */
}

void tide_deepspeed_read(tide_words *words, const tide_json *root, const char *place) {
    reader r = {.words = words, .place = place};
    const tide_json *bf16 = tide_json_at(tide_json_at(root, "bf16"), "enabled"), *fp16 = tide_json_at(tide_json_at(root, "fp16"), "enabled");
    const tide_json *clip = tide_json_at(root, "gradient_clipping");
    uint32_t errors = words->diags->error_count;
    read_zero(&r, tide_json_at(root, "zero_optimization"));
    if (words->diags->error_count != errors) return;
    bool is_half = is_true(bf16) || is_true(fp16);
    if (is_half) put(&r, "parallel.half", is_true(bf16) ? "bf16" : "fp16");
    else if (!is_auto(bf16) && !is_auto(fp16)) put(&r, "parallel.half", "none");
    read_sizes(&r, root);
    if (clip) put(&r, "clip", is_auto(clip) ? "1.0" : tide_word_value(words->arena, clip) ? tide_word_value(words->arena, clip) : "");
    put_value(&r, "parallel.communication_data_type", tide_json_at(root, "communication_data_type"));
    put_value(&r, "parallel.grad_accum_dtype", tide_json_at(tide_json_at(root, "data_types"), "grad_accum_dtype"));
    put_value(&r, "parallel.check_grad_overflow", tide_json_at(tide_json_at(root, "bf16"), "check_grad_overflow"));
    read_optimizer(&r, tide_json_at(root, "optimizer"));
}
