/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a job as forward() reads them. */
#include "base/invariant.h"
#include "base/rounding.h"
#include "base/units.h"
#include "train/run.h"

#include <string.h>

static tide_value value_of(tide_machine *m, const tide_variable *v) {
    switch (v->kind) {
    case TIDE_VARIABLE_INT:
        return (tide_value){
            .kind = TIDE_VALUE_INT, .symbol = tide_symbol_name(m, tide_text_of(v->name)), .integer = v->integer};
    case TIDE_VARIABLE_BOOL:
        return tide_of_bool(v->is_true);
    case TIDE_VARIABLE_NUMBER:
        return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = v->number};
    case TIDE_VARIABLE_TEXT:
        break;
    }
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(v->text)};
}

/* Set by functions and trainers; NAME_is_read: set by library/attention.json when a model gets there. */
static const char *const unset[] = {"past_key_values",
                                    "router_logits",
                                    "given_positions",
                                    "layer_kwargs",
                                    "num_items",
                                    "autocast_dtype",
                                    "head_dtype",
                                    "state_is_fp32",
                                    "mask_is_full",
                                    "adapters_disabled",
                                    "dropout_is_disabled",
                                    "experts_are_batched",
                                    "experts_are_cut",
                                    "completion_length",
                                    "steps_per_generation",
                                    "has_old_logps",
                                    "accepts_positions",
                                    "image_encoder",
                                    "mm_encoder_outputs",
                                    "suppresses_images",
                                    "positions_of",
                                    "drops_token_types",
                                    "positions_from_one",
                                    "grad_is_placed_otherwise",
                                    "keeps_reference",
                                    "masks_off_policy",
                                    "has_entropy_bonus",
                                    "corrects_sampling",
                                    "keeps_sampling_logps",
                                    "paged_layers",
                                    "paged_full_mask",
                                    "paged_sliding_mask",
                                    "paged_rows",
                                    "paged_read",
                                    "packing_is_read",
                                    "flash_is_read",
                                    "ulysses_is_read",
                                    "router_experts",
                                    "router_top_k",
                                    "loss_types",
                                    "given_shift_labels",
                                    "weighs_tail",
                                    "f_divergence",
                                    "parameter_caches",
                                    "centers_rewards",
                                    "divergence",
                                    "head_is_cast",
                                    "given_loss_weights"};

static tide_setting_value number_of(tide_machine *m, const char *name, int64_t value) {
    tide_value number = {.kind = TIDE_VALUE_INT, .symbol = tide_symbol_name(m, tide_text_of(name)), .integer = value};
    return (tide_setting_value){.name = name, .value = number};
}

/* Without padding a batch is one row: the number of its sequences and tokens. */
static uint32_t add_rows(tide_machine *m, const tide_job *job, tide_setting_value *s, uint32_t n) {
    s[n++] = number_of(m, "sequences_of_row", tide_sequences_of_row(job));
    s[n++] = number_of(m, "row_tokens", job->batch * job->seq);
    s[n++] = number_of(m, "chosen_short", 0); /* out of seq: for preferences that are padded separately */
    s[n++] = number_of(m, "rejected_short", 0);
    for (uint32_t i = n - 3; i < n; i++) s[i].is_of_step = true;
    return n;
}

/* Ranks that share a sequence, by DeepSpeed's Ulysses or by ring attention of torch.distributed.tensor.experimental:
 * how many, which one this is, and how keys are rotated. */
static uint32_t add_sequence_ranks(tide_machine *m, const tide_job *job, tide_setting_value *s, uint32_t n) {
    bool is_ring = job->parallel_kind == TIDE_parallel_kind_native || tide_trainer_cuts_sequences(job);
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none;
    bool gathers = job->parallel_rotate == TIDE_parallel_rotate_allgather || tide_job_has_torchtitan_models(job);
    s[n++] = number_of(m, "ranks", is_alone ? 0 : tide_job_reduction_ranks(job));
    s[n++] = number_of(m, "sequence_parallel_size", job->parallel_sequence_parallel_size);
    s[n++] = number_of(m, "context_parallel", is_ring ? job->parallel_cp : 1);
    s[n++] = (tide_setting_value){.name = "is_math_kernel",
                                  .value = tide_of_bool(job->sdpa_backend == TIDE_sdpa_backend_math)};
    s[n++] = number_of(m, "tensor_parallel", job->parallel_kind == TIDE_parallel_kind_native ? job->parallel_tp : 1);
    bool cuts_experts = tide_job_cuts_torchtitan_experts(job);
    s[n++] = number_of(m, "expert_parallel", cuts_experts ? job->parallel_ep : 1);
    s[n++] = number_of(m, "expert_tensor_parallel", cuts_experts ? tide_job_expert_tensor_ranks(job) : 1);
    s[n++] = number_of(m, "context_rank", job->parallel_rank / job->parallel_tp % job->parallel_cp);
    s[n++] = (tide_setting_value){.name = "ring_gathers", .value = tide_of_bool(gathers)};
    return n;
}

/* Ulysses gives a rank its part of seq. */
static uint32_t add_variables(tide_machine *m, const tide_job *job, tide_setting_value *s, uint32_t n) {
    tide_variable *variables = TIDE_NEW(m->arena, tide_variable, TIDE_VARIABLES_MOST);
    uint32_t count = tide_job_variables(m->arena, job, variables);
    for (uint32_t i = 0; i < count; i++) {
        s[n] = (tide_setting_value){.name = variables[i].name,
                                    .value = value_of(m, &variables[i]),
                                    .is_of_step = variables[i].read == TIDE_READ_STEP};
        if (strcmp(s[n].name, "seq") == 0) s[n].value.integer /= job->parallel_sequence_parallel_size;
        n++;
    }
    return n;
}

/* LLaMA-Factory's image beside texts: its tokens are masked, and make_room_for_media() has a place for them. */
static uint32_t show_added_image(tide_machine *m, const tide_job *job, tide_setting_value *s, uint32_t n) {
    enum { SIDE = 64, PAD_TO_MULTIPLE_OF = 8 /* train/sft/workflow.py and others */ };
    const struct {
        const char *name;
        tide_value value;
    } seen[] = {{"images", tide_of_int(1)},
                {"image_height", tide_of_int(job->added_image.has_size ? SIDE : 0)},
                {"image_width", tide_of_int(job->added_image.has_size ? SIDE : 0)},
                {"padding", tide_of_bool(true)}};
    for (uint32_t i = 0; i < n && job->added_image.is_added; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(seen); k++)
            if (strcmp(s[i].name, seen[k].name) == 0) s[i].value = seen[k].value;
    s[n++] = (tide_setting_value){.name = "adds_image", .value = tide_of_bool(job->added_image.is_added)};
    s[n++] = number_of(m, "added_markers", job->added_image.markers);
    s[n++] = number_of(m, "added_multiple", PAD_TO_MULTIPLE_OF);
    return n;
}

static uint32_t add_unset(tide_setting_value *s, uint32_t n) {
    for (size_t i = 0; i < TIDE_COUNT_OF(unset); i++)
        s[n++] = (tide_setting_value){.name = unset[i], .value = tide_none()};
    return n;
}

static uint32_t add_quant(tide_machine *m, const tide_job *job, tide_setting_value *s, uint32_t n) {
    tide_dtype storage = tide_dtype_or(job->quant_storage, TIDE_UINT8),
               compute = tide_dtype_or(job->quant_compute_dtype, tide_dtype_or(job->dtype, TIDE_BF16));
    s[n++] = (tide_setting_value){.name = "quant_compute_dtype", .value = {.kind = TIDE_VALUE_DTYPE, .dtype = compute}};
    s[n++] = (tide_setting_value){.name = "quant_storage", .value = {.kind = TIDE_VALUE_DTYPE, .dtype = storage}};
    s[n++] = number_of(m, "quant_storage_bytes", tide_dtype_bytes(storage));
    s[n++] =
        (tide_setting_value){.name = "quant_is_float", .value = tide_of_bool(job->quant_type == TIDE_quant_type_float)};
    tide_text quant = tide_text_of(job->values[TIDE_SET_quant]);
    s[n++] = (tide_setting_value){.name = "quant_as", .value = {.kind = TIDE_VALUE_TEXT, .text = quant}};
    return n;
}

static tide_value config_value(const tide_json *config) {
    return config ? (tide_value){.kind = TIDE_VALUE_CONFIG, .config = config} : tide_none();
}

bool tide_copied_use_cache(const tide_job *job) {
    const tide_json *text = tide_json_at(job->config, "text_config"),
                    *cache = tide_json_at(text ? text : job->config, "use_cache");
    bool is_passed = !tide_job_has_trainer(job) && job->use_cache != TIDE_use_cache_default;
    return is_passed ? job->use_cache == TIDE_use_cache_true_ : !cache || cache->is_true;
}

/* torch.is_autocast_enabled(), in the model's forward(). */
static bool forward_is_autocast(const tide_run *run, const tide_job *job) {
    return tide_job_autocasts(job) || (tide_trainer_casts_to_bf16(job) && !run->model.leaves_autocast);
}

/* Processors make floats in fp32. LLaMA-Factory: data/collator.py, SFTDataCollatorWith4DAttentionMask. */
static tide_dtype processed_dtype(const tide_run *run, const tide_job *job) {
    if (!tide_trainer_is_of_factory(job) || job->trainer != TIDE_trainer_hf) return TIDE_FP32;
    return job->autocast.is_set ? job->autocast.dtype : run->model.state.dtype;
}

enum { MOST_SETTINGS = TIDE_VARIABLES_MOST + TIDE_COUNT_OF(unset) + 48 /* of functions here */ };

void tide_set_model_settings(tide_run *run, const tide_job *job, bool uses_cache) {
    tide_machine *m = &run->machine;
    tide_setting_value *s = TIDE_NEW(m->arena, tide_setting_value, MOST_SETTINGS);
    uint32_t n = 0;
#define NUMBER(name_, value_)                                                                                          \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = {                                                                                      \
            .kind = TIDE_VALUE_INT,                                                                                    \
            .symbol = tide_symbol_name(m, tide_text_of(name_)),                                                        \
            .integer = (value_)                                                                                        \
        }                                                                                                              \
    }
#define TRUTH(name_, value_)                                                                                           \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = tide_of_bool(value_)                                                                   \
    }
#define DTYPE(name_, value_)                                                                                           \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = {.kind = TIDE_VALUE_DTYPE, .dtype = (value_) }                                         \
    }
    n = show_added_image(m, job, s, add_variables(m, job, s, n));
    bool is_training = job->mode == TIDE_mode_train, keeps_cache = job->cache != TIDE_cache_none;
    TRUTH("training", is_training);
    TRUTH("labels", job->labels && is_training);
    NUMBER("cache_length", job->seq + job->decode);
    s[n - 1].is_of_step = true;
    NUMBER("logits_to_keep", is_training || !keeps_cache ? 0 : job->logits_to_keep);
    NUMBER("past_length", 0);
    NUMBER("transformers_version", tide_version_number(job->values[TIDE_SET_transformers])); /* 4.45 as 4045 */
    n = add_unset(s, n);
    TRUTH("loss_is_fused", false);
    TRUTH("loss_is_read", false); /* by functions of library/losses.json that know loss_function */
    TRUTH("use_cache", uses_cache);
    TRUTH("copied_use_cache", tide_copied_use_cache(job));
    TRUTH("checkpointing", run->model.state.is_checkpointing);
    TRUTH("reentrant", run->model.state.is_reentrant);
    TRUTH("autocast", forward_is_autocast(run, job));
    NUMBER("device_sms", m->device.sms);
    DTYPE("quant_dtype", run->model.state.dtype);
    n = add_quant(m, job, s, n);
    DTYPE("model_dtype", run->model.state.dtype);
    /* of pixels; of pixels and features, as a trainer's batches have them or as the model takes them */
    DTYPE("pixel_dtype", processed_dtype(run, job));
    DTYPE("input_dtype", tide_job_has_trainer(job) || forward_is_autocast(run, job) ? processed_dtype(run, job)
                                                                                    : run->model.state.dtype);
    n = add_rows(m, job, s, n);
    n = add_sequence_ranks(m, job, s, n);
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none;
    const tide_json *options = is_alone ? NULL : tide_job_object(m->arena, job, "parallel");
    s[n++] = (tide_setting_value){.name = "parallel_config", .value = config_value(options)};
    s[n++] = (tide_setting_value){.name = "preprocessor", .value = config_value(job->preprocessor)};
#undef NUMBER
#undef TRUTH
#undef DTYPE
    TIDE_INVARIANT(n <= MOST_SETTINGS);
    run->model.settings = s;
    run->model.setting_count = n;
    if (is_training) /* forward() makes a DynamicCache; generate() makes others */
        *tide_model_setting(&run->model, "cache") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = TIDE_TEXT("dynamic")};
}
