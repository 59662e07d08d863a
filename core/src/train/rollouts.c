/* SPDX-License-Identifier: Apache-2.0 */
/* generate() of transformers with sampling (generation/utils.py, _sample), as called by trl/trainer/grpo_trainer.py in
 * _generate_single_turn: token by token, with library/generation.json. */
#include "train/rollouts.h"

#include "base/units.h"
#include "job/trainers.h"
#include "train/growing.h"

static tide_function *rollout_function(tide_run *run, const char *name) {
    tide_function *found = tide_function_find(run->model.descriptions, NULL, tide_text_of(name));
    if (!found) tide_fail(&run->machine, TIDE_ERR_DESCRIPTION, "there is no function %s", name);
    return found;
}

static void set_rollout_size(tide_model *model, const char *name, int64_t value) {
    tide_value of = {
        .kind = TIDE_VALUE_INT, .symbol = tide_symbol_name(model->m, tide_text_of(name)), .integer = value};
    *tide_model_setting(model, name) = of;
}

int64_t tide_rollout_prompt(tide_run *run, const tide_job *job) {
    if (job->trainer_prompt_length > 0) return job->trainer_prompt_length;
    return tide_model_setting(&run->model, "seq")->integer - job->trainer_max_completion_length;
}

/* Of a model that has a processor: what generate() asks its class for, and grpo_trainer.py's suppress_tokens. */
static void set_processor(tide_model *model, const tide_job *job) {
    static const struct {
        const char *method, *setting;
    } of_class[] = {{"get_image_features", "image_encoder"}, {"positions_for_generation", "positions_of"}};
    static const char *const stated[] = {"drops_token_types", "positions_from_one"}; /* by sizes of its description */
    bool has_processor = tide_trainer_generates(job) && tide_json_at(job->config, "vision_config");
    for (uint32_t i = 1; i < model->instance_count && has_processor; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(of_class); k++)
            if (tide_method_find(model->instances[i].of, tide_text_of(of_class[k].method)))
                *tide_model_setting(model, of_class[k].setting) = (tide_value){.kind = TIDE_VALUE_MODULE, .module = i};
    *tide_model_setting(model, "suppresses_images") = tide_of_bool(has_processor);
    for (size_t i = 0; i < TIDE_COUNT_OF(stated); i++)
        *tide_model_setting(model, stated[i]) =
            tide_of_bool(tide_size_find(model->descriptions, model->scopes[0].description, tide_text_of(stated[i])));
}

void tide_set_rollouts(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    int64_t completion = job->trainer_max_completion_length, prompt = tide_rollout_prompt(run, job);
    set_rollout_size(model, "prompt_length", prompt);
    set_rollout_size(model, "completion_length", completion);
    set_rollout_size(model, "seq", prompt + completion);
    set_rollout_size(model, "steps_per_generation", tide_steps_per_generation(job));
    *tide_model_setting(model, "accepts_positions") =
        tide_of_bool(!model->instances[model->root].of->is_without_positions);
    set_processor(model, job);
    *tide_model_setting(model, "has_old_logps") = tide_of_bool(tide_keeps_old_logps(job));
    *tide_model_setting(model, "keeps_sampling_logps") =
        tide_of_bool(tide_trainer_traits_of(job)->keeps_sampling_logps && job->trainer_use_vllm);
    *tide_model_setting(model, "corrects_sampling") = tide_of_bool(tide_corrects_sampling(job));
    *tide_model_setting(model, "keeps_reference") = tide_of_bool(tide_keeps_reference(job));
    *tide_model_setting(model, "masks_off_policy") =
        tide_of_bool(tide_job_sets(job, TIDE_SET_trainer_off_policy_mask_threshold));
    *tide_model_setting(model, "has_entropy_bonus") =
        tide_of_bool(job->trainer_entropy_coef != 0 || job->trainer_use_adaptive_entropy);
}

/* Keys and values, and other state of the tokens so far. */
static void mark_rollout_cache(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) tide_set_factor(m, v.tensor, TIDE_FACTOR_KV_CACHE);
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++) mark_rollout_cache(m, v.list->items[i]);
}

typedef struct rollouts {
    tide_run *run;
    const tide_job *job;
    const tide_generation *of;
    tide_function *token;
    int64_t prompt;
    tide_value state, past; /* of the loop, see library/generation.json; keys and values */
} rollouts;

static bool sample_token(rollouts *r, int64_t i) {
    tide_machine *m = &r->run->machine;
    tide_model *model = &r->run->model;
    const tide_value root = {.kind = TIDE_VALUE_MODULE, .module = r->of->root},
                     arguments[] = {root, r->state, tide_of_bool(i == 0), tide_of_bool(r->of->is_wrapped),
                                    tide_of_bool(r->of->keeps_cache)};
    *tide_model_setting(model, "experts_are_batched") = tide_of_bool(i > 0); /* _optimize_model_for_decode */
    if (r->of->keeps_cache) tide_model_setting(model, "past_length")->integer = i ? r->prompt + i - 1 : 0;
    tide_value_release(m, tide_model_run(model, r->token, arguments, TIDE_COUNT_OF(arguments)));
    mark_rollout_cache(m, r->past);
    return !m->has_failed;
}

/* Token i after the one that the prompt yields. */
static bool sample_next(void *user, int64_t i) {
    return sample_token(user, i + 1);
}

static uint32_t values_of_rollouts(void *user, tide_value *values) {
    rollouts *r = user;
    values[0] = r->state;
    values[1] = r->past;
    values[2] = *tide_model_setting(&r->run->model, "past_key_values");
    tide_tensor **passed_on = r->run->machine.passed_on;
    values[3] = passed_on && *passed_on ? tide_of_tensor(*passed_on) : tide_none();
    return 4;
}

static void exchange_rollouts(void *user, const tide_value *values) {
    rollouts *r = user;
    r->state = values[0];
    r->past = values[1];
    *tide_model_setting(&r->run->model, "past_key_values") = values[2];
    if (r->run->machine.passed_on)
        *r->run->machine.passed_on = values[3].kind == TIDE_VALUE_TENSOR ? values[3].tensor : NULL;
}

/* The loop of _sample(). No end token is ever sampled: every completion has the maximum length. */
static void sample_tokens(rollouts *r) {
    tide_machine *m = &r->run->machine;
    tide_model *model = &r->run->model;
    tide_value *kept = tide_model_setting(model, "past_key_values");
    const tide_growing_loop loop = {r->run, r, sample_next, values_of_rollouts, exchange_rollouts};
    if (r->of->keeps_cache) *kept = tide_value_retain(r->past);
    tide_value *autocast = tide_model_setting(model, "autocast"), outside = *autocast;
    if (!r->of->is_wrapped) *autocast = tide_of_bool(false);
    tide_model_setting(model, "logits_to_keep")->integer = 1;
    if (r->token && sample_token(r, 0)) tide_play_growing(&loop, r->job->trainer_max_completion_length - 1);
    tide_model_setting(model, "logits_to_keep")->integer = 0;
    tide_model_setting(model, "past_length")->integer = 0;
    *tide_model_setting(model, "experts_are_batched") = tide_none();
    *autocast = outside;
    tide_value_release(m, *kept);
    *kept = tide_none();
    model->setting_changes++;
}

tide_value tide_generate(tide_run *run, const tide_job *job, const tide_generation *of) {
    tide_machine *m = &run->machine;
    tide_model *model = &run->model;
    tide_function *begin = rollout_function(run, of->begins), *end = rollout_function(run, of->ends);
    bool checkpoints = model->state.is_checkpointing;
    tide_value answers = tide_none(), *use_cache = tide_model_setting(model, "use_cache"), given = *use_cache;
    tide_value *autocast = tide_model_setting(model, "autocast"), outside = *autocast;
    if (!begin || !end) return answers;
    *use_cache = tide_of_bool(false); /* a cache is passed to the model, or it makes none */
    m->state.grad_enabled = false;
    model->state.is_checkpointing = false;
    model->setting_changes++;
    *autocast = tide_of_bool(false);
    tide_value made = tide_model_run(model, begin, &of->given, 1);
    *autocast = outside;
    model->setting_changes++;
    if (made.kind == TIDE_VALUE_LIST) {
        tide_value past = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        tide_list_push(m, made.list, past);
        rollouts r = {run, job, of, rollout_function(run, "generate_token"), of->prompt, made.list->items[0], past};
        sample_tokens(&r);
        answers = tide_model_run(model, end, &made, 1);
    }
    m->state.grad_enabled = true;
    model->state.is_checkpointing = checkpoints;
    *use_cache = given;
    tide_value_release(m, made);
    m->module = m->statement = 0;
    return answers;
}

/* accelerate wraps the forward() of the trainer's model: with adapters that is peft's, whereas generate() is the
 * model's own, outside of autocast. */
void tide_generate_rollouts(tide_run *run, const tide_job *job, tide_value prompts) {
    const tide_generation of = {.root = run->model.root,
                                .is_wrapped = job->adapter == TIDE_adapter_none,
                                .keeps_cache = true,
                                .prompt = tide_model_setting(&run->model, "prompt_length")->integer,
                                .begins = "generate_begins",
                                .ends = "generate_ends",
                                .given = prompts};
    tide_value_release(&run->machine, tide_generate(run, job, &of));
}
