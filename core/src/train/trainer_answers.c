/* SPDX-License-Identifier: Apache-2.0 */
/* What training_step() of GKDTrainer and OnlineDPOTrainer generates before it computes a loss: trl/experimental/gkd,
 * trl/experimental/online_dpo. */
#include "train/rollouts.h"

#include "base/decimal.h"
#include "train/trainer_run.h"

/* Whether GKDTrainer's training_step() learns from generated answers, and whether these are the teacher's. */
static bool answers_itself(const tide_job *job, unsigned step) {
    return job->trainer_lmbda >= TIDE_PICO || (job->trainer_lmbda > 0 && step % 2 == 1);
}

void tide_trainer_put_row(tide_trainer_run *t, int64_t prompt, int64_t seq) {
    tide_put_size(t->run, "prompt_length", prompt);
    tide_put_size(t->run, "seq", seq);
    tide_model_forget_step_sizes(&t->run->model);
    t->run->model.setting_changes++;
}

/* generate() in a training step, by the functions `of` names. Owned by the caller. */
static tide_value generate_in_step(tide_trainer_run *t, unsigned step, tide_wrapper *wrapper, tide_generation of) {
    tide_machine *m = &t->run->machine;
    of.root = t->run->model.root;
    /* use_cache = not args.gradient_checkpointing, which prepare_peft_model() sets to False where it has enabled it */
    of.keeps_cache =
        t->job->checkpointing == TIDE_checkpointing_none || (t->kind->pairs_completions && tide_prepares_kbit(t->job));
    bool is_spread = wrapper->state || wrapper == &t->wrapper;
    if (t->strategy->generation_begins && is_spread) t->strategy->generation_begins(wrapper, NULL, 0);
    tide_value made = tide_generate(t->run, t->job, &of);
    bool is_in_context = t->kind->has_teacher; /* generate_on_policy_outputs() returns before the context ends */
    if (is_in_context) tide_timeline_mark(&m->timeline, step, TIDE_PHASE_GENERATE);
    if (t->strategy->generation_ends && is_spread) t->strategy->generation_ends(wrapper);
    if (!is_in_context) tide_timeline_mark(&m->timeline, step, TIDE_PHASE_GENERATE);
    return made;
}

/* GKDTrainer.generate_on_policy_outputs(): answers take the place of the data's in the batch. */
void tide_answer_prompts(tide_trainer_run *t, unsigned step, tide_batch *batch) {
    enum { REPLACED = 3 }; /* input_ids, attention_mask, labels */
    const tide_job *job = t->job;
    tide_machine *m = &t->run->machine;
    bool is_own = answers_itself(job, step);
    int64_t prompt = job->trainer_prompt_length;
    if (!is_own && !job->trainer_seq_kd) return;
    tide_trainer_put_row(t, prompt, prompt + job->trainer_max_completion_length);
    tide_value given = tide_list_of_batch(m, batch);
    if (!is_own) tide_teacher_exchange(&t->teacher, &t->run->model);
    const tide_generation of = {.is_wrapped = !is_own || job->adapter == TIDE_adapter_none,
                                .prompt = prompt,
                                .begins = "answer_begins",
                                .ends = "answer_ends",
                                .given = given};
    tide_value made = generate_in_step(t, step, is_own ? &t->wrapper : &t->teacher.wrapper, of);
    if (!is_own) tide_teacher_exchange(&t->teacher, &t->run->model);
    tide_value_release(m, given);
    for (uint32_t i = 0; i < REPLACED && made.kind == TIDE_VALUE_LIST; i++) {
        tide_value_release(m, batch->values[i]);
        batch->values[i] = tide_value_retain(made.list->items[i]);
    }
    tide_value_release(m, made);
    m->module = m->statement = 0;
}

/* OnlineDPOTrainer._generate(): the batch is made of prompts and completions, which live until the step ends. */
void tide_pair_completions(tide_trainer_run *t, unsigned step, tide_batch *batch) {
    tide_machine *m = &t->run->machine;
    const tide_generation of = {.is_wrapped = t->job->adapter == TIDE_adapter_none,
                                .prompt = tide_rollout_prompt(t->run, t->job),
                                .begins = "pairs_begin",
                                .ends = "pairs_end",
                                .given = tide_none()};
    tide_value made = generate_in_step(t, step, &t->wrapper, of);
    for (uint32_t i = 0; made.kind == TIDE_VALUE_LIST && i < made.list->count; i++) {
        batch->names[batch->count] = "";
        batch->values[batch->count++] = tide_value_retain(made.list->items[i]);
    }
    tide_value_release(m, made);
    m->module = m->statement = 0;
}
