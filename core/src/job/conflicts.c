/* Settings checked against one another: what cannot be together, and what changes nothing. */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"

/* A file's option of a kind in whose place the user chose another. */
static bool was_replaced(const tide_job_builder *b, tide_setting_id id) {
    return b->arguments.origins[id] != TIDE_ORIGIN_USER && b->arguments.is_given[TIDE_SET_parallel_kind] &&
           b->arguments.origins[TIDE_SET_parallel_kind] == TIDE_ORIGIN_USER;
}

static void check_options(tide_job_builder *b) {
    const tide_job *job = b->job;
    const char *kind = job->options[TIDE_OPTION_kind];
    static const tide_option sizes[] = {TIDE_OPTION_tp, TIDE_OPTION_cp, TIDE_OPTION_pp};
    int64_t dp = tide_option_int(job, TIDE_OPTION_dp, 1), rank = tide_option_int(job, TIDE_OPTION_rank, 0), ranks = dp;
    for (size_t i = 0; i < TIDE_COUNT_OF(sizes); i++) ranks *= tide_option_int(job, sizes[i], 1);
    bool is_alone = strcmp(kind, "none") == 0;
    for (unsigned id = TIDE_SET_parallel_kind; id < TIDE_SET_COUNT; id++)
        if (b->arguments.is_given[id] && !tide_beginning_listed(tide_setting_wants(&tide_settings[id]), kind) &&
            !was_replaced(b, (tide_setting_id)id))
            tide_error(b->diags, TIDE_ERR_CONFLICT, tide_builder_place(b, (tide_setting_id)id),
                       tide_format(b->arena, "is no option of parallel.kind=%s", kind),
                       tide_format(b->arena, "leave it out, or choose a kind that has it (%s)",
                                   tide_setting_wants(&tide_settings[id])));
    if (rank >= ranks)
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/parallel.rank",
                   ranks == dp ? tide_format(b->arena, "is %lld; ranks of parallel.dp=%lld go from 0 to %lld",
                                             (long long)rank, (long long)dp, (long long)(dp - 1))
                               : tide_format(b->arena, "is %lld; %lld ranks go from 0 to %lld", (long long)rank,
                                             (long long)ranks, (long long)(ranks - 1)),
                   NULL);
    if (is_alone && dp > 1)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/parallel.dp", "several GPUs need a kind of parallelism",
                   "add parallel.kind=ddp, zero2, ...");
    if (!is_alone && (strcmp(job->optimizer, "muon") == 0 ||
                      tide_text_matches(tide_text_of(job->optimizer), TIDE_TEXT("*schedulefree*"))))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/optimizer",
                   tide_format(b->arena, "%s is not described with parallel.kind", job->optimizer),
                   "use another optimizer, or one GPU");
    if (!is_alone && job->scaler)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/scaler",
                   "a GradScaler is not described with parallel.kind", "use bf16");
}

/* What is described for one GPU alone, or for weights that are not quantised. */
static void check_copies(tide_job_builder *b) {
    const tide_job *job = b->job;
    bool is_alone = tide_argument_is(&b->arguments, TIDE_SET_parallel_kind, "none"),
         is_quantised = strcmp(job->quant, "none") != 0, averages = strcmp(job->ema, "none") != 0;
    if (!is_alone && averages)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/ema", "is not described with parallel.kind",
                   "use one GPU");
    if (!is_alone && job->has_main_grads)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/main_grads", "is not described with parallel.kind",
                   "use parallel.kind=zero1 with parallel.grad_accum_dtype=fp32, or one GPU");
    if (!is_alone && strcmp(job->zero_grad_at, "after_step") != 0)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/zero_grad_at",
                   tide_format(b->arena, "%s is not described with parallel.kind", job->zero_grad_at), "leave it out");
    if (is_quantised && averages)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/ema", "of quantised weights is not described",
                   "use quant=none");
    if (job->scaler && job->has_main_grads)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/main_grads",
                   "with a torch.amp.GradScaler is not described", "use bf16");
    if (job->has_main_grads && strcmp(job->optimizer, "none") == 0)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/main_grads", "needs an optimizer, which has the fp32 copies",
                   "name one");
}

/* Settings OBJECT.KEY, from first to last, that are given and that the choice of OBJECT does not read. */
static void check_unread(tide_job_builder *b, tide_setting_id object, tide_setting_id first, tide_setting_id last) {
    for (unsigned id = first; id <= last; id++)
        if (b->arguments.is_given[id] && strcmp(tide_argument_text(&b->arguments, id), tide_setting_default(id)) != 0 &&
            !tide_setting_is_of(&tide_settings[id], tide_argument_text(&b->arguments, object)))
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, tide_builder_place(b, id),
                        tide_format(b->arena, "changes nothing with %s=%s", tide_settings[object].name,
                                    tide_argument_text(&b->arguments, object)),
                        NULL);
}

void tide_check_conflicts(tide_job_builder *b) {
    check_options(b);
    check_copies(b);
    bool is_training = strcmp(b->job->mode, "train") == 0;
    if (!is_training && tide_setting_is_of(&tide_settings[TIDE_SET_adapter_num_virtual_tokens], b->job->adapter.method))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/adapter",
                   tide_format(b->arena, "inference with %s is not expressed", b->job->adapter.method),
                   "use mode=train, or leave it out and add its virtual tokens to seq");
    if (b->job->packing && b->job->padding)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/packing", "packed rows have no padding",
                   "leave one of packing and padding out");
    if (b->job->packing && !is_training)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/packing", "rows are packed for training",
                   "use mode=train, or leave it out");
    if (b->job->packing &&
        tide_setting_is_of(&tide_settings[TIDE_SET_adapter_num_virtual_tokens], b->job->adapter.method))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/packing",
                   tide_format(b->arena, "with %s is not expressed", b->job->adapter.method), "leave one out");
    bool is_packed = tide_setting_is_of(&tide_settings[TIDE_SET_quant_group_size], b->job->quant);
    if (is_packed && is_training)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/quant",
                   tide_format(b->arena, "training over %s is not expressed", b->job->quant),
                   "use mode=infer, or nf4, fp4 or int8");
    if (is_packed && strcmp(b->job->adapter.method, "none") != 0 && !b->job->adapter.merged)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/adapter",
                   tide_format(b->arena, "adapters over %s are not expressed", b->job->quant), "leave them out");
    if (is_packed && strcmp(b->job->quant, "fp8") != 0 && b->job->quant_bits != 2 && b->job->quant_bits != 3 &&
        b->job->quant_bits != 4 && b->job->quant_bits != 8)
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/quant.bits", "must be 2, 3, 4 or 8", NULL);
    if (is_training && b->job->adapter.merged)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/adapter.merged", "merged adapters do not train",
                   "use mode=infer, or adapter.merged=false");
    check_unread(b, TIDE_SET_quant, TIDE_SET_quant_bits, TIDE_SET_quant_from_pretrained);
    check_unread(b, TIDE_SET_adapter, TIDE_SET_adapter_r, TIDE_SET_adapter_merged);
    if (!is_training && !tide_argument_is(&b->arguments, TIDE_SET_parallel_kind, "none"))
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/parallel.kind", "inference on several GPUs is not expressed",
                   "use mode=train, or one GPU");
    if (b->job->steps == 1 && is_training)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/steps",
                    "is 1: optimizer state is made at its end, so later steps may need more", "use steps=2");
}
