/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches of samples with different lengths: what forward() reads for the next one. */
#include "train/run.h"

void tide_put_size(tide_run *run, const char *name, int64_t value) {
    tide_value *setting = tide_model_setting(&run->model, name);
    *setting = (tide_value){.kind = TIDE_VALUE_INT, .symbol = setting->symbol, .integer = value};
}

void tide_take_micro_batch(tide_run *run, const tide_job *job, uint64_t index) {
    if (!tide_job_has_lengths(job)) return;
    tide_micro_batch of = tide_job_micro_batch(job, index);
    tide_take_samples(run, job, &of);
}

void tide_take_samples(tide_run *run, const tide_job *job, const tide_micro_batch *of) {
    bool is_flat = tide_sequences_of_row(job) > 0; /* concatenated, without padding */
    tide_put_size(run, "seq", of->seq);
    if (tide_trainer_generates(job)) tide_put_size(run, "prompt_length", of->seq - job->trainer_max_completion_length);
    tide_put_size(run, "row_tokens", of->tokens);
    tide_put_size(run, "scored", of->scored);
    tide_put_size(run, "chosen_short", of->seq - of->chosen);
    tide_put_size(run, "rejected_short", of->seq - of->rejected);
    *tide_model_setting(&run->model, "padding") = tide_of_bool(of->is_padded && !is_flat);
    *tide_model_setting(&run->model, "mask_is_full") = tide_of_bool(tide_job_has_trainer(job) && !of->is_padded);
    tide_model_forget_step_sizes(&run->model);
}
