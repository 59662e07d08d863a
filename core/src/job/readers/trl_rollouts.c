/* SPDX-License-Identifier: Apache-2.0 */
/* What files say about rollouts: the number of generated rows, their lengths, and how they are scored
 * (trl/trainer/grpo_config.py, rloo_config.py; swift/rlhf_trainers/arguments.py). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

const char *tide_rollouts_key(const tide_claims *c) {
    static const tide_setting_id settings[] = {TIDE_SET_trainer_num_generations, TIDE_SET_trainer_num_iterations,
                                               TIDE_SET_trainer_steps_per_generation, TIDE_SET_trainer_use_vllm};
    static const tide_fact facts[] = {TIDE_FACT_rewards, TIDE_FACT_generation_batch};
    for (size_t i = 0; i < TIDE_COUNT_OF(settings); i++)
        if (c->settings[settings[i]] && c->settings[settings[i]]->key) return c->settings[settings[i]]->key;
    for (size_t i = 0; i < TIDE_COUNT_OF(facts); i++)
        if (c->facts[facts[i]]) return c->facts[facts[i]]->key;
    return NULL;
}

bool tide_has_grpo_key(const tide_claims *c) {
    for (unsigned id = TIDE_SET_trainer_importance_sampling_level; id <= TIDE_SET_trainer_multi_objective_aggregation;
         id++)
        if (id != TIDE_SET_trainer_mask_truncated_completions && c->settings[id] && c->settings[id]->key) return true;
    return false;
}

/* A reward is the name of a function, or the path of a model on the Hub. */
static void settle_rewards(tide_claims *c) {
    const char *names = tide_fact_of(c, TIDE_FACT_rewards);
    if (names && strchr(names, '/'))
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_rewards],
                   tide_format(c->arena,
                               "reward_funcs=%s scores with an additional reward model, which is not "
                               "described",
                               tide_shown(c->arena, tide_text_of(names))),
                   "run the program with `tidemark dry-run`, which needs no description");
    if (names) c->facts[TIDE_FACT_rewards]->effect = TIDE_KEY_USED;
}

/* GRPOConfig.__post_init__: generation_batch_size counts all ranks. */
static void settle_generation_batch(tide_claims *c) {
    int64_t rows = tide_fact_int(c, TIDE_FACT_generation_batch, 0), batch = 0;
    const tide_file_key *said = c->settings[TIDE_SET_batch];
    if (rows < 1 || !said || !tide_text_to_i64(&batch, tide_text_of(said->taken)) || batch < 1) return;
    if (rows % batch)
        tide_error(c->diags, TIDE_ERR_CONFLICT, c->fact_places[TIDE_FACT_generation_batch],
                   tide_format(c->arena,
                               "generation_batch_size=%" PRId64 " is not a multiple of the batch of %" PRId64
                               " rows; TRL refuses this too",
                               rows, batch),
                   NULL);
    else
        tide_settle(c, TIDE_FACT_generation_batch, TIDE_SET_trainer_steps_per_generation,
                    tide_format(c->arena, "%" PRId64, rows / batch));
}

/* Rows consist of a prompt and a completion. TRL 1.16 does not truncate prompts, and ms-swift's max_length applies to
 * them. */
static void settle_lengths(tide_claims *c) {
    const tide_file_key *seq = c->settings[TIDE_SET_seq];
    bool of_swift = tide_claims_have(c, TIDE_PROGRAM_ms_swift);
    const char *completion = tide_fact_of(c, TIDE_FACT_completion);
    c->settings[TIDE_SET_seq] = NULL;
    if (completion)
        tide_settle(c, TIDE_FACT_completion, TIDE_SET_trainer_max_completion_length, completion);
    else if (of_swift)
        tide_imply(c, TIDE_SET_trainer_max_completion_length, "512");
    if (tide_fact_of(c, TIDE_FACT_prompt)) {
        tide_settle(c, TIDE_FACT_prompt, TIDE_SET_trainer_prompt_length, tide_fact_of(c, TIDE_FACT_prompt));
    } else if (of_swift && seq) {
        tide_imply(c, TIDE_SET_trainer_prompt_length, seq->taken);
    } else if (!c->arguments->has_prompt) {
        tide_imply(c, TIDE_SET_trainer_prompt_length, "512");
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/trainer.prompt_length",
                    "the files do not give the length of prompts: 512 tokens are assumed",
                    "give the length of your longest prompt as trainer.prompt_length");
    }
}

void tide_rollouts_settle(tide_claims *c) {
    const char *key = tide_rollouts_key(c), *loss = tide_fact_of(c, TIDE_FACT_loss_type);
    if (key && !c->facts[TIDE_FACT_trl] && !c->arguments->asked_trainer && !loss && !tide_has_grpo_key(c))
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->first->place,
                    tide_format(c->arena, "%s belongs to TRL's GRPO and RLOO: the former is played", key),
                    "give trainer=rloo for the latter");
    if (tide_claims_have(c, TIDE_PROGRAM_ms_swift)) {
        tide_imply(c, TIDE_SET_trainer_beta, "0.1"); /* arguments/rlhf_args.py, _set_default */
        tide_imply(c, TIDE_SET_trainer_loss_type, "grpo");
        tide_imply(c, TIDE_SET_trainer_vllm_gpu_memory_utilization, "0.9");
    }
    settle_rewards(c);
    settle_generation_batch(c);
    settle_lengths(c);
}

/* OnlineDPOConfig: max_length counts prompt and completion, and longer prompts are truncated. */
void tide_pairs_settle(tide_claims *c) {
    enum { MAX_LENGTH = 512, MAX_NEW_TOKENS = 64 };
    const tide_file_key *seq = c->settings[TIDE_SET_seq],
                        *completion = c->settings[TIDE_SET_trainer_max_completion_length];
    int64_t length = MAX_LENGTH, tokens = MAX_NEW_TOKENS;
    if (seq) tide_text_to_i64(&length, tide_text_of(seq->taken));
    if (completion) tide_text_to_i64(&tokens, tide_text_of(completion->taken));
    c->settings[TIDE_SET_seq] = NULL;
    if (c->arguments->has_prompt || length <= tokens) return;
    tide_imply(c, TIDE_SET_trainer_prompt_length, tide_format(c->arena, "%" PRId64, length - tokens));
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/trainer.prompt_length",
                "the files do not give the length of prompts: what max_new_tokens leaves of max_length is assumed",
                "give the length of your longest prompt as trainer.prompt_length");
}
