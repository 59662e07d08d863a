/* Values of settings as fields of the job. */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"

void tide_read_allocator(tide_job_builder *b) {
    tide_job *job = b->job;
    tide_alloc_conf_error error;
    job->allocator = tide_argument_text(&b->arguments, TIDE_SET_allocator);
    if (!tide_alloc_conf_parse(&job->allocator_conf, TIDE_ALLOC_TORCH_MAIN, job->allocator, strlen(job->allocator),
                               &error)) {
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/allocator",
                   tide_format(b->arena, "PyTorch refuses it at character %u: %s", (unsigned)error.offset + 1,
                               tide_text_copy(b->arena, tide_text_of(error.message))),
                   "write key:value pairs, as expandable_segments:True,max_split_size_mb:128");
        return;
    }
    static const struct {
        unsigned bit;
        const char *message;
    } warnings[] = {
        {TIDE_ALLOC_CONF_ASYNC_IGNORES, "cudaMallocAsync ignores the native allocator's options"},
        {TIDE_ALLOC_CONF_NOT_MODELLED, "holds an option that has no effect on the answer"},
        {TIDE_ALLOC_CONF_TRAILING_TEXT, "PyTorch reads the digits of a number and drops what follows them"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(warnings); i++)
        if (job->allocator_conf.warnings & warnings[i].bit)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/allocator", warnings[i].message, NULL);
    if (job->allocator_conf.is_approximate)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/allocator",
                    "cudaMallocAsync grows by the driver's own rules: reserved memory is an estimate", NULL);
}

/* dtype=auto: what the configuration says, or else fp32; modeling_utils.py. */
static void choose_dtype(tide_job_builder *b) {
    const tide_json *stated = tide_json_at(b->inputs.config, "dtype");
    if (!tide_argument_is(&b->arguments, TIDE_SET_dtype, "auto")) return;
    if (!stated || stated->kind != TIDE_JSON_STRING) stated = tide_json_at(b->inputs.config, "torch_dtype");
    bool is_text = stated && stated->kind == TIDE_JSON_STRING;
    b->arguments.values[TIDE_SET_dtype] = is_text && tide_text_is(stated->text, "bfloat16")  ? "bf16"
                                          : is_text && tide_text_is(stated->text, "float16") ? "fp16"
                                                                                             : "fp32";
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_dtype),
                tide_format(b->arena, "%s weights, as the configuration says",
                            tide_argument_text(&b->arguments, TIDE_SET_dtype)),
                NULL);
}

/* "336x448" as numbers; a setting that was read before. */
static void read_sides(const char *text, int64_t *const *sides, int count) {
    tide_text rest = tide_text_of(text), part;
    for (int i = 0; i < count && tide_piece_next(&rest, 'x', &part); i++) tide_text_to_i64(sides[i], part);
}

void tide_fill_values(tide_job_builder *b) {
    tide_job *job = b->job;
    choose_dtype(b);
    job->mode = tide_argument_text(&b->arguments, TIDE_SET_mode);
    job->decode = tide_argument_int(&b->arguments, TIDE_SET_decode);
    job->logits_to_keep = tide_argument_int(&b->arguments, TIDE_SET_logits_to_keep);
    job->cache = tide_argument_text(&b->arguments, TIDE_SET_cache);
    job->batch = tide_argument_int(&b->arguments, TIDE_SET_batch);
    job->seq = tide_argument_int(&b->arguments, TIDE_SET_seq);
    job->target_seq = tide_argument_int(&b->arguments, TIDE_SET_target_seq);
    job->images = tide_argument_int(&b->arguments, TIDE_SET_images);
    int64_t *const image[] = {&job->image_height, &job->image_width};
    int64_t *const video[] = {&job->video_frames, &job->video_height, &job->video_width};
    job->audio_seconds = tide_argument_int(&b->arguments, TIDE_SET_audio);
    read_sides(tide_argument_text(&b->arguments, TIDE_SET_image_size), image, 2);
    read_sides(tide_argument_text(&b->arguments, TIDE_SET_video), video, 3);
    job->dtype = tide_argument_text(&b->arguments, TIDE_SET_dtype);
    job->autocast = tide_argument_is(&b->arguments, TIDE_SET_autocast, "none")
                        ? NULL
                        : tide_argument_text(&b->arguments, TIDE_SET_autocast);
    job->scaler = tide_argument_is(&b->arguments, TIDE_SET_scaler, "true");
    job->optimizer = tide_argument_text(&b->arguments, TIDE_SET_optimizer);
    job->param_groups = tide_argument_text(&b->arguments, TIDE_SET_param_groups);
    job->freeze = tide_argument_names(&b->arguments, TIDE_SET_freeze);
    job->train_only = tide_argument_names(&b->arguments, TIDE_SET_train_only);
    job->quant = tide_argument_text(&b->arguments, TIDE_SET_quant);
    job->quant_bits = tide_argument_int(&b->arguments, TIDE_SET_quant_bits);
    job->quant_group_size = tide_argument_int(&b->arguments, TIDE_SET_quant_group_size);
    job->quant_zero_point = tide_argument_is(&b->arguments, TIDE_SET_quant_zero_point, "true");
    job->quant_is_float = tide_argument_is(&b->arguments, TIDE_SET_quant_type, "float");
    job->quant_double = tide_argument_is(&b->arguments, TIDE_SET_quant_double, "true");
    job->quant_compute_dtype = tide_argument_is(&b->arguments, TIDE_SET_quant_compute_dtype, "default")
                                   ? job->dtype
                                   : tide_argument_text(&b->arguments, TIDE_SET_quant_compute_dtype);
    job->quant_blocksize = tide_argument_int(&b->arguments, TIDE_SET_quant_blocksize);
    job->quant_skip = tide_argument_names(&b->arguments, TIDE_SET_quant_skip);
    job->quant_loaded = tide_argument_is(&b->arguments, TIDE_SET_quant_from_pretrained, "true");
    job->kbit_prepare = tide_argument_is(&b->arguments, TIDE_SET_kbit_prepare, "true");
    tide_adapter_fill(&b->arguments, &job->adapter);
    job->checkpointing = tide_argument_text(&b->arguments, TIDE_SET_checkpointing);
    job->attention = tide_argument_text(&b->arguments, TIDE_SET_attention);
    job->sdpa_backend = tide_argument_text(&b->arguments, TIDE_SET_sdpa_backend);
    job->grad_accum = tide_argument_int(&b->arguments, TIDE_SET_grad_accum);
    job->zero_grad = tide_argument_text(&b->arguments, TIDE_SET_zero_grad);
    job->zero_grad_at = tide_argument_text(&b->arguments, TIDE_SET_zero_grad_at);
    job->has_main_grads = tide_argument_is(&b->arguments, TIDE_SET_main_grads, "fp32");
    job->ema = tide_argument_text(&b->arguments, TIDE_SET_ema);
    job->clips = tide_argument_text(&b->arguments, TIDE_SET_clip)[0] != 0;
    job->labels = tide_argument_is(&b->arguments, TIDE_SET_labels, "true");
    job->loss = tide_argument_text(&b->arguments, TIDE_SET_loss);
    job->padding = tide_argument_is(&b->arguments, TIDE_SET_padding, "true");
    job->packing = tide_argument_is(&b->arguments, TIDE_SET_packing, "true");
    job->use_cache = tide_argument_is(&b->arguments, TIDE_SET_use_cache, "default")
                         ? -1
                         : tide_argument_is(&b->arguments, TIDE_SET_use_cache, "true");
    job->hold_outputs = tide_argument_is(&b->arguments, TIDE_SET_hold_outputs, "true");
    job->load = tide_argument_text(&b->arguments, TIDE_SET_load);
    job->keeps_workspaces = tide_argument_is(&b->arguments, TIDE_SET_gemm_workspace, "kept");
    job->steps = tide_argument_int(&b->arguments, TIDE_SET_steps);
}

void tide_fill_options(tide_job_builder *b) {
    for (unsigned i = 0; i < TIDE_OPTION_COUNT; i++)
        b->job->options[i] = tide_argument_text(&b->arguments, (tide_setting_id)(TIDE_SET_parallel_kind + i));
}

int64_t tide_option_int(const tide_job *job, tide_option option, int64_t otherwise) {
    int64_t value = otherwise;
    if (job->options[option][0]) tide_text_to_i64(&value, tide_text_of(job->options[option]));
    return value;
}

bool tide_option_is(const tide_job *job, tide_option option, const char *value) {
    return strcmp(job->options[option], value) == 0;
}

bool tide_option_true(const tide_job *job, tide_option option, bool otherwise) {
    return job->options[option][0] ? tide_option_is(job, option, "true") : otherwise;
}
