/* SPDX-License-Identifier: Apache-2.0 */
/* trl/trainer/grpo_trainer.py and rloo_trainer.py: _generate_and_score_completions, by functions of
 * library/rewards.json. */
#include "train/rollouts.h"

#include "base/units.h"
#include "train/trainer_run.h"

/* unwrap_model_for_generation(). Returns what generate() is given, in which a strategy may have replaced images. */
static tide_value begin_generation(tide_trainer_run *t, tide_value prompts) {
    tide_machine *m = &t->run->machine;
    tide_value media[TIDE_INPUT_LIMIT], given = prompts, *inputs = NULL;
    uint32_t count = 0;
    if (prompts.kind == TIDE_VALUE_LIST) { /* token ids, mask and labels, and names and values in turn */
        const tide_list *last = prompts.list->items[prompts.list->count - 1].list;
        for (uint32_t i = 1; i < last->count && count < TIDE_INPUT_LIMIT; i += 2)
            media[count++] = tide_value_retain(last->items[i]);
        inputs = media;
    }
    if (t->strategy->generation_begins) t->strategy->generation_begins(&t->wrapper, inputs, count);
    if (!inputs) return given;
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    given.list = tide_list_new(m);
    for (uint32_t i = 0; i < count; i++) {
        tide_list_push(m, list.list, prompts.list->items[prompts.list->count - 1].list->items[2 * i]);
        tide_list_push(m, list.list, media[i]);
    }
    for (uint32_t i = 0; i + 1 < prompts.list->count; i++)
        tide_list_push(m, given.list, tide_value_retain(prompts.list->items[i]));
    tide_list_push(m, given.list, list);
    return given;
}

/* _generate_single_turn */
static void generate(tide_trainer_run *t, unsigned step) {
    if (t->job->trainer_use_vllm) {
        tide_vllm_generate(&t->vllm, t->run, &t->wrapper, t->strategy, step);
        return;
    }
    tide_machine *m = &t->run->machine;
    int64_t rows = t->job->batch * tide_steps_per_generation(t->job), prompt = tide_rollout_prompt(t->run, t->job);
    bool has_images = tide_has_images(t);
    tide_value prompts = has_images ? tide_trainer_prompts(t, rows) : tide_of_int(rows),
               given = begin_generation(t, prompts);
    if (has_images) tide_trainer_put_rows(t, rows, prompt);
    tide_generate_rollouts(t->run, t->job, given);
    if (has_images) tide_trainer_put_rows(t, t->job->batch, prompt + t->job->trainer_max_completion_length);
    tide_value_release(m, given);
    tide_value_release(m, prompts);
    if (t->strategy->generation_ends && !m->has_failed) t->strategy->generation_ends(&t->wrapper);
}

/* forward_kwargs: names and values of what the processor makes of the prompts once more, which lives as long. */
static void give_images(tide_trainer_run *t, tide_value batch, int64_t rows) {
    tide_machine *m = &t->run->machine;
    tide_value prompts = tide_trainer_prompts(t, rows);
    tide_function *of = tide_trainer_function(t, "forward_kwargs");
    m->state.factor = TIDE_FACTOR_INPUT;
    if (batch.kind == TIDE_VALUE_LIST && !m->has_failed)
        tide_list_push(m, batch.list, tide_model_run(&t->run->model, of, &prompts, 1));
    tide_value_release(m, prompts);
}

/* _generate_and_score_completions: one generation, and the inputs of its micro-batches. */
static void generate_and_score(tide_trainer_run *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    tide_model *model = &t->run->model;
    const char *kind = t->kind->function;
    const tide_value of_batch[] = {tide_of_int(t->job->batch * tide_steps_per_generation(t->job)),
                                   tide_of_bool(t->kind->scales_loss)};
    tide_value old = tide_none(), reference = tide_none();
    tide_function *old_logps = tide_trainer_function(t, tide_format(m->arena, "%s_old", kind)),
                  *scored_of = tide_trainer_function(t, tide_format(m->arena, "%s_scored", kind)),
                  *buffer = tide_trainer_function(t, "buffered_inputs"),
                  *batch_of = tide_trainer_function(t, "generation_batch");
    generate(t, step);
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_GENERATE);
    if (m->has_failed) return;
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value batch = tide_model_run(model, batch_of, of_batch, 2);
    if (tide_has_images(t)) give_images(t, batch, of_batch[0].integer);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_accelerator_autocast_begin(t);
    if (tide_keeps_old_logps(t->job)) old = tide_call_without_grad(t, old_logps, batch, tide_none());
    if (tide_keeps_reference(t->job)) reference = tide_call_reference(t, batch, tide_none());
    tide_accelerator_autocast_end(t);
    const tide_value arguments[] = {batch, old, reference};
    tide_value scored = tide_model_run(model, scored_of, arguments, TIDE_COUNT_OF(arguments));
    for (size_t i = 0; i < TIDE_COUNT_OF(arguments); i++) tide_value_release(m, arguments[i]);
    m->module = m->statement = 0;
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_SCORE);
    m->state.factor = TIDE_FACTOR_INPUT;
    tide_value made = tide_model_run(model, buffer, &scored, 1);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_value_release(m, scored);
    tide_value_release(m, t->buffered);
    t->buffered = made;
    m->module = m->statement = 0;
}

tide_value tide_next_rollouts(tide_trainer_run *t, unsigned step) {
    int64_t steps = tide_steps_per_generation(t->job);
    if (t->micro % (steps * t->job->trainer_num_iterations) == 0) generate_and_score(t, step);
    const tide_value *items = t->buffered.kind == TIDE_VALUE_LIST ? t->buffered.list->items : NULL;
    return items ? tide_value_retain(items[t->micro++ % steps]) : tide_none();
}
