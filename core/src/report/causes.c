/* SPDX-License-Identifier: Apache-2.0 */
/* Causes of a peak other than layers: logits, a reference model, an evaluation. */
#include "report/causes.h"

#include <string.h>

#include "base/units.h"
#include "report/allocations.h"

enum { LOGITS_SHARE = 4, REFERENCE_SHARE = 8 }; /* a quarter of the peak, and an eighth */

/* Whether it has a value for each token and vocabulary entry, and is not a weight. */
static bool is_of_logits(const tide_run *run, const tide_allocation *a, uint32_t vocabulary) {
    const tide_dim *dims = &run->machine.timeline.dims[a->shape];
    return (a->factor == TIDE_FACTOR_ACTIVATION || a->factor == TIDE_FACTOR_TEMPORARY) && a->dims >= 2 &&
           dims[a->dims - 1].name == vocabulary;
}

/* How much of the peak belongs to logits, and to a reference model or a teacher. */
static void measure_causes(const tide_job_report *r, uint64_t *logits, uint64_t *reference) {
    const tide_timeline *t = &r->run->machine.timeline;
    uint32_t vocabulary = tide_symbol_name(&r->run->machine, TIDE_TEXT("vocab"));
    *logits = *reference = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = tide_timeline_at(t, i);
        if (!tide_is_live(t, i, r->replay.peak_event)) continue;
        if (is_of_logits(r->run, a, vocabulary)) *logits += r->replay.block_bytes[i];
        if (strcmp(a->op, "reference model") == 0 || strcmp(a->op, "teacher model") == 0)
            *reference += r->replay.block_bytes[i];
    }
}

static void report_logits(const tide_job_report *r, tide_diagnostics *diags, uint64_t bytes) {
    tide_arena *arena = r->w->arena;
    const tide_job *job = r->job;
    tide_parallel_kind_choice kind = job->parallel_kind;
    bool is_cut = kind == TIDE_parallel_kind_tp || kind == TIDE_parallel_kind_pp || kind == TIDE_parallel_kind_native ||
                  kind == TIDE_parallel_kind_megatron,
         has_own_loss = is_cut || tide_trainer_is_of_trl(job),
         checkpoints = job->checkpointing != TIDE_checkpointing_none;
    tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/loss",
                tide_format(arena,
                            "the peak is in the loss, not in the layers: %s of %s are logits and tensors computed "
                            "from them, with a value for each token and vocabulary entry%s",
                            tide_gib(arena, bytes), tide_gib(arena, r->replay.allocated_peak),
                            checkpoints ? ", which checkpointing does not reduce" : ""),
                has_own_loss ? "fewer tokens per batch need less"
                : job->trainer == TIDE_trainer_hf
                    ? "use_liger_kernel=true stores none of them; fewer tokens per batch need less"
                    : "loss=liger or loss=cut_cross_entropy stores none of them; fewer tokens per batch need less");
}

static void report_reference(const tide_job_report *r, tide_diagnostics *diags, uint64_t bytes) {
    const char *size = tide_gib(r->w->arena, bytes);
    if (r->job->trainer_precompute_ref_log_probs) /* of fsdp1: train/reference.h */
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/trainer.precompute_ref_log_probs",
                    tide_format(r->w->arena, "FSDP1's flat parameters outlive the reference model: %s stay", size),
                    "ddp, zero2 and fsdp2 free them before the training");
    else if (tide_trainer_distils(r->job))
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/trainer.teacher",
                    tide_format(r->w->arena, "the teacher takes %s in addition to the model that trains", size),
                    "trainer.teacher_quant=nf4 quantises it");
    else
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/trainer",
                    tide_format(r->w->arena, "a reference model takes %s in addition to the one that trains", size),
                    tide_trainer_generates(r->job)
                        ? "trainer.beta=0 needs none; adapter=lora uses the model without its adapters"
                        : "trainer.precompute_ref_log_probs=true computes its log-probabilities in advance; "
                          "adapter=lora uses the model without its adapters");
}

static void report_evaluation(const tide_job_report *r, tide_diagnostics *diags) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < r->replay.step_count; i++) {
        const tide_step_figures *s = &r->replay.steps[i];
        for (uint32_t k = TIDE_PHASE_FORWARD; k <= TIDE_PHASE_OPTIMIZER; k++)
            if (s->peak[k] > most) most = s->peak[k];
    }
    tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/trainer.eval_strategy",
                tide_format(r->w->arena, "the evaluation needs %s more than the training",
                            tide_gib(r->w->arena, r->replay.allocated_peak - most)),
                r->job->trainer_compute_metrics
                    ? "trainer.preprocess_logits_for_metrics=argmax keeps tokens instead of logits, "
                      "trainer.eval_accumulation_steps=1 moves predictions to the host after each batch, and "
                      "trainer.per_device_eval_batch_size=1 makes fewer at once"
                    : "trainer.per_device_eval_batch_size=1 evaluates one sample at a time");
}

/* If there is enough room, the cause does not matter. */
static bool leaves_room(const tide_job_report *r) {
    uint64_t there = r->job->device_bytes;
    return there && tide_leaves_spare(tide_job_device_bytes(r->job, &r->replay), there);
}

void tide_report_causes(const tide_job_report *r, tide_diagnostics *diags) {
    const tide_mark *end = tide_phase_end(&r->run->machine.timeline, r->replay.peak_event);
    uint64_t logits, reference, peak = r->replay.allocated_peak;
    if (r->run->serving || r->job->mode != TIDE_mode_train || !end || !r->replay.block_bytes || leaves_room(r)) return;
    measure_causes(r, &logits, &reference);
    if (end->phase == TIDE_PHASE_EVALUATE) report_evaluation(r, diags);
    if (logits >= peak / LOGITS_SHARE) report_logits(r, diags, logits);
    if (reference && reference >= peak / REFERENCE_SHARE) report_reference(r, diags, reference);
}
