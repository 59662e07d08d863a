/* What forward() finds of the job. */
#include "train/run.h"

#include <string.h>

#include "base/units.h"
#include "job/settings.h"

tide_dtype tide_dtype_or_bf16(const char *name) {
    tide_dtype dtype;
    return tide_dtype_named(tide_text_of(name), &dtype) ? dtype : TIDE_BF16;
}

bool tide_is_of_step(const char *name) {
    static const char *const names[] = {"batch",           "seq",      "target_seq", "grad_accum", "steps",
                                        "memory_fraction", "allocator"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The options parallel.KEY as an object, for sizes of descriptions: parallel_config.tp. What is not set, or none, is
 * null. */
static const tide_json *options_of(const tide_job *job, tide_arena *arena) {
    tide_json *object = TIDE_NEW(arena, tide_json, 1), **last = &object->first;
    object->kind = TIDE_JSON_OBJECT;
    for (size_t i = 0; i < TIDE_OPTION_COUNT; i++) {
        const tide_setting *setting = &tide_settings[TIDE_SET_parallel_kind + i];
        tide_json *entry = *last = TIDE_NEW(arena, tide_json, 1);
        tide_text text = tide_text_of(job->options[i] ? job->options[i] : "");
        entry->key = tide_text_of(setting->name + strlen("parallel."));
        entry->parent = object;
        object->count++;
        last = &entry->next;
        entry->kind = TIDE_JSON_NULL;
        if (!text.length || tide_text_is(text, "none")) continue;
        entry->text = text;
        entry->kind = TIDE_JSON_STRING;
        int64_t pico;
        if (setting->type == TIDE_SETTING_INT && tide_text_to_i64(&entry->integer, text)) {
            entry->kind = TIDE_JSON_NUMBER;
            entry->is_integer = true;
            entry->number = (double)entry->integer;
        } else if (setting->type == TIDE_SETTING_NUMBER && tide_decimal_read(&pico, text) == TIDE_DECIMAL_OK) {
            entry->kind = TIDE_JSON_NUMBER;
            entry->number = (double)pico / (double)TIDE_PICO;
        } else if (setting->type == TIDE_SETTING_BOOL) {
            entry->kind = TIDE_JSON_BOOL;
            entry->is_true = tide_text_is(text, "true");
        } else if (setting->type == TIDE_SETTING_LIST) {
            tide_json **item = &entry->first;
            tide_text piece;
            for (entry->kind = TIDE_JSON_ARRAY; tide_piece_next(&text, ',', &piece); item = &(*item)->next) {
                *item = TIDE_NEW(arena, tide_json, 1);
                **item = (tide_json){.kind = TIDE_JSON_STRING, .text = piece, .parent = entry};
                entry->count++;
            }
        }
    }
    return object;
}

void tide_set_model_settings(tide_run *run, const tide_job *job, bool uses_cache) {
    tide_machine *m = &run->machine;
    tide_setting_value *s = TIDE_NEW(m->arena, tide_setting_value, 64);
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
#define WORD(name_, value_)                                                                                            \
    s[n++] = (tide_setting_value) {                                                                                    \
        .name = name_, .value = {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(value_) }                               \
    }
    NUMBER("batch", job->batch);
    NUMBER("seq", job->seq);
    NUMBER("target_seq", job->target_seq); /* 0: not set */
    NUMBER("images", job->images);
    NUMBER("image_height", job->image_height);
    NUMBER("image_width", job->image_width);
    NUMBER("video_frames", job->video_frames);
    NUMBER("video_height", job->video_height);
    NUMBER("video_width", job->video_width);
    NUMBER("audio_seconds", job->audio_seconds);
    bool is_training = strcmp(job->mode, "train") == 0;
    TRUTH("training", is_training);
    TRUTH("labels", job->labels && is_training);
    WORD("cache", job->cache);
    NUMBER("cache_length", job->seq + job->decode);
    NUMBER("logits_to_keep", is_training || strcmp(job->cache, "none") == 0 ? 0 : job->logits_to_keep);
    NUMBER("past_length", 0);
    s[n++] = (tide_setting_value){.name = "past_key_values", .value = tide_none()};
    s[n++] = (tide_setting_value){.name = "router_logits", .value = tide_none()};
    WORD("loss_function", job->loss);
    TRUTH("loss_is_fused", false);
    TRUTH("loss_is_read", false); /* by the functions of library/losses.json that know loss_function */
    TRUTH("padding", job->padding);
    TRUTH("packing", job->packing);
    TRUTH("packing_is_read", false); /* by library/attention.json, where a model's position_ids come from it */
    s[n++] = (tide_setting_value){.name = "given_positions", .value = tide_none()};
    TRUTH("use_cache", uses_cache);
    TRUTH("checkpointing", run->model.state.is_checkpointing);
    TRUTH("autocast", job->autocast != NULL);
    WORD("attention", job->attention);
    NUMBER("capability", job->capability);
    NUMBER("device_sms", m->device.sms);
    NUMBER("quant_blocksize", job->quant_blocksize);
    NUMBER("quant_bits", job->quant_bits);
    NUMBER("quant_group_size", job->quant_group_size);
    TRUTH("quant_zero_point", job->quant_zero_point);
    TRUTH("quant_is_float", job->quant_is_float);
    TRUTH("quant_double", job->quant_double);
    s[n++] = (tide_setting_value){.name = "quant_dtype",
                                  .value = {.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype}};
    s[n++] = (tide_setting_value){
        .name = "quant_compute_dtype",
        .value = {.kind = TIDE_VALUE_DTYPE, .dtype = tide_dtype_or_bf16(job->quant_compute_dtype)}};
    TRUTH("lora_is_dora", job->adapter.dora);
    TRUTH("lora_has_bias", job->adapter.lora_bias);
    s[n++] = (tide_setting_value){.name = "lora_dropout_p",
                                  .value = {.kind = TIDE_VALUE_FLOAT, .number = job->adapter.dropout}};
    s[n++] = (tide_setting_value){.name = "model_dtype",
                                  .value = {.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype}};
    s[n++] = (tide_setting_value){.name = "parallel_config",
                                  .value = {.kind = TIDE_VALUE_CONFIG, .config = options_of(job, m->arena)}};
    if (job->preprocessor)
        s[n++] = (tide_setting_value){.name = "preprocessor",
                                      .value = {.kind = TIDE_VALUE_CONFIG, .config = job->preprocessor}};
    else
        s[n++] = (tide_setting_value){.name = "preprocessor", .value = tide_none()};
#undef NUMBER
#undef TRUTH
#undef WORD
    for (uint32_t i = 0; i < n; i++)
        s[i].is_of_step = tide_is_of_step(s[i].name) || strcmp(s[i].name, "cache_length") == 0;
    run->model.settings = s;
    run->model.setting_count = n;
}
