/* SPDX-License-Identifier: Apache-2.0 */
/* __init__() of TRL's trainers: functions, reference model and teacher, what the model is told, and log-probabilities
 * that are computed before the training. */
#include "train/trainer_run.h"

#include <stdlib.h>

#include "base/decimal.h"
#include "base/units.h"
#include "job/trainers.h"
#include "train/evaluation.h"
#include "train/fp32_head.h"
#include "train/rollouts.h"

/* disable_dropout of DPOConfig and others, for torch.nn.Dropout only. */
bool tide_disables_dropout(const tide_job *job) {
    if (job->trainer_disable_dropout != TIDE_trainer_disable_dropout_default)
        return job->trainer_disable_dropout == TIDE_trainer_disable_dropout_true_;
    return tide_trainer_is_of_trl(job) && !tide_trainer_traits_of(job)->keeps_dropout &&
           !tide_trainer_has_value_head(job);
}

/* _precompute_ref_logps over the data set, all of whose batches are alike; from the third on the allocator's state
 * recurs. A batch is on the device before its name is rebound to it. */
static void precompute(tide_trainer_run *t, const tide_job *job) {
    tide_machine *m = &t->run->machine;
    tide_batch last = {0};
    for (int i = 0; i < 3 && !m->has_failed; i++) {
        tide_batch padded = {0};
        if (!tide_trainer_batch(t, job, &padded)) return;
        tide_drop_batch(m, &last);
        last = padded;
        tide_value batch = tide_list_of_batch(m, &padded);
        tide_accelerator_autocast_begin(t);
        tide_value_release(m, tide_call_reference(t, batch, tide_none()));
        tide_accelerator_autocast_end(t);
        tide_value_release(m, batch);
        m->module = m->statement = 0;
    }
    tide_drop_batch(m, &last);
}

/* prepare_deepspeed(self.model): an engine without an optimizer casts and moves what the training engine gets later. */
static void prepare_for_precomputing(tide_trainer_run *t) {
    const tide_strategy *strategy = t->run->strategy;
    if (!tide_job_has_deepspeed(t->job) || !strategy->prepare_reference) return;
    tide_wrapper *w = TIDE_NEW(t->run->machine.arena, tide_wrapper, 1);
    *w = (tide_wrapper){
        .model = &t->run->model, .job = t->job, .ranks = tide_job_reduction_ranks(t->job), .has_trainer = true};
    strategy->prepare_reference(w);
    t->wrapper.precomputed = w->state;
}

/* aux_loss_enabled of sft_trainer.py and others: if the configuration has router_aux_loss_coef, the router's
 * load-balancing loss is added. False after an error. */
static bool add_aux_loss(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    if (tide_trainer_is_of_factory(job)) return true; /* it does not ask the model for a loss */
    bool builds_logits = tide_trl_builds_logits(job) || tide_trainer_distils(job),
         balances = tide_trl_fuses_head(job) || builds_logits;
    for (uint32_t i = 0; i < model->scope_count && balances; i++) {
        if (!tide_size_find(model->descriptions, model->scopes[i].description, TIDE_TEXT("balances"))) continue;
        const tide_json *coefficient = tide_json_at(model->scopes[i].config, "router_aux_loss_coef");
        tide_value experts = tide_size_in(model, i, "experts");
        bool has_router = experts.kind == TIDE_VALUE_INT && experts.integer > 0;
        if (!has_router || (coefficient && coefficient->number == 0)) continue;
        if (tide_size_find(model->descriptions, model->scopes[i].description, TIDE_TEXT("lacks_num_experts")))
            return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                              "\"AttributeError: object has no attribute 'num_experts'\": TRL asks the configuration "
                              "for it, for the router's load-balancing loss",
                              "write overrides.router_aux_loss_coef=0");
        if (tide_trainer_distils(job))
            return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                              "the router's load-balancing loss is not described with gkd",
                              "write overrides.router_aux_loss_coef=0");
        if (builds_logits)
            return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trl",
                              "the router's load-balancing loss is not described with a TRL that builds the logits",
                              "give trl=1.16 for the figures of that release");
        *tide_model_setting(model, "router_experts") = experts;
        *tide_model_setting(model, "router_top_k") = tide_size_in(model, i, "top_k");
        break;
    }
    return true;
}

/* dpo_trainer.py: the limit of the alpha-divergence at 1 is the reverse KL. */
static tide_value f_divergence(const tide_job *job) {
    bool is_limit = llabs(job->trainer_f_alpha_divergence_coef - TIDE_PICO) < TIDE_PICO / 1000000,
         is_alpha = job->trainer_f_divergence_type == TIDE_trainer_f_divergence_type_alpha_divergence;
    const char *name = is_alpha && is_limit ? "reverse_kl" : job->values[TIDE_SET_trainer_f_divergence_type];
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(name)};
}

/* GKDTrainer.generalized_jsd_loss() */
static tide_value divergence_of(const tide_job *job) {
    const char *beta = job->values[TIDE_SET_trainer_beta];
    bool is_given = beta && beta[0];
    tide_text name = !is_given                        ? TIDE_TEXT("jsd")
                     : job->trainer_beta == 0         ? TIDE_TEXT("forward_kl")
                     : job->trainer_beta >= TIDE_PICO ? TIDE_TEXT("reverse_kl")
                                                      : TIDE_TEXT("jsd");
    return (tide_value){.kind = TIDE_VALUE_TEXT, .text = name};
}

/* loss_type of DPOConfig, which may be several, and how it scores. */
static void set_loss_types(tide_trainer_run *t) {
    tide_machine *m = &t->run->machine;
    const char *given = t->job->trainer_loss_type;
    tide_text rest = tide_text_of(given && given[0] ? given : "sigmoid"), one;
    tide_value types = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    while (tide_piece_next(&rest, ',', &one))
        tide_list_push(m, types.list, (tide_value){.kind = TIDE_VALUE_TEXT, .text = one});
    *tide_model_setting(&t->run->model, "loss_types") = types;
    *tide_model_setting(&t->run->model, "weighs_tail") = tide_of_bool(tide_job_sets(t->job, TIDE_SET_trainer_ld_alpha));
    *tide_model_setting(&t->run->model, "f_divergence") = f_divergence(t->job);
    *tide_model_setting(&t->run->model, "divergence") = divergence_of(t->job);
    *tide_model_setting(&t->run->model, "centers_rewards") =
        tide_of_bool(tide_job_sets(t->job, TIDE_SET_trainer_center_rewards_coefficient));
}

bool tide_trl_init(tide_trainer_run *t) {
    const tide_trainer_traits *kind = t->kind;
    tide_arena *arena = t->run->machine.arena;
    bool is_mapped = !tide_trainer_completes(t->job) && !tide_trainer_distils(t->job) && !tide_has_images(t);
    if (is_mapped || t->job->trainer_use_vllm) tide_keep_barrier(t); /* by the trainer */
    if (!tide_replace_head(t) || !tide_find_parts(t) || !add_aux_loss(t->run, t->job)) return false;
    set_loss_types(t);
    const char *variant = tide_trainer_is_of_factory(t->job) ? "_factory"
                          : tide_trl_builds_logits(t->job)   ? "_logits"
                                                             : "",
               *name = tide_format(arena, "%s%s", kind->function, variant);
    t->policy = tide_trainer_function(t, tide_format(arena, "%s_policy", name));
    t->compute_loss = tide_trainer_function(t, tide_format(arena, "%s_loss", name));
    if (kind->has_teacher) t->teacher.logits = tide_trainer_function(t, tide_format(arena, "%s_teacher", name));
    if (kind->has_teacher && !tide_teacher_load(&t->teacher, t->run, t->job)) return false;
    if (kind->has_reference) t->reference = tide_trainer_function(t, tide_format(arena, "%s_reference", name));
    int64_t sequences = tide_sequences_of_row(t->job);
    if (sequences) /* masking_utils.py: find_packed_sequence_indices() is None for a single one */
        *tide_model_setting(&t->run->model, "packing") = tide_of_bool(sequences > 1);
    bool generates = tide_trainer_generates(t->job), precomputes = t->job->trainer_precompute_ref_log_probs,
         is_fsdp1 = t->job->parallel_kind == TIDE_parallel_kind_fsdp1,
         keeps_reference = generates ? tide_keeps_reference(t->job) : kind->has_reference && (!precomputes || is_fsdp1);
    if (tide_trainer_completes(t->job) || kind->has_teacher) tide_set_rollouts(t->run, t->job);
    if (kind->has_teacher) tide_trainer_put_row(t, t->job->trainer_prompt_length, t->job->seq);
    if (keeps_reference && t->job->adapter == TIDE_adapter_none)
        t->reference_model = tide_reference_new(t->run, t->job);
    tide_cast_head(t);
    if (generates && t->job->trainer_use_vllm && !tide_vllm_init(&t->vllm, t->run, t->job)) return false;
    bool evaluates = t->job->trainer_eval_strategy != TIDE_trainer_eval_strategy_no;
    if (kind->has_reference && precomputes) prepare_for_precomputing(t);
    if (kind->has_reference && precomputes) precompute(t, t->job);
    if (kind->has_reference && precomputes && evaluates) tide_with_evaluated_rows(t, precompute);
    return !t->run->machine.has_failed;
}
