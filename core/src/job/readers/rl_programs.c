/* SPDX-License-Identifier: Apache-2.0 */
/* verl (trainer/config), OpenRLHF (openrlhf/cli) and NeMo-RL (examples/configs): training loops of their own with
 * transformers' models. Supervised training is played as a plain loop, without their losses, which are not described;
 * preference and reward training as TRL's trainer if that is requested. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/rl_programs.h"

bool tide_rl_is_off(tide_claims *c, const tide_json *section, const char *above) {
    const tide_json *given = tide_json_at(section, "enabled");
    const char *name = given ? "enabled" : "enable";
    if (!given) given = tide_json_at(section, name);
    if (tide_json_is_true(given)) return false;
    tide_claims_note(c, tide_format(c->arena, "%s%s", above, name), TIDE_KEY_IGNORED, "false", NULL);
    return true;
}

/* ---- what they say together ---- */

static int64_t rl_number_at(const tide_json *root, const char *section, const char *key, int64_t otherwise) {
    const tide_json *value = tide_json_at(section ? tide_json_at(root, section) : root, key);
    bool is_count = tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer && value->integer > 0;
    return is_count && value->integer <= INT32_MAX ? value->integer : otherwise;
}

static const tide_json *rl_at(const tide_json *root, const char *section, const char *key) {
    return tide_json_at(tide_json_at(root, section), key);
}

static const char *rl_word(const tide_json *at, const char *otherwise) {
    return tide_json_is(at, TIDE_JSON_STRING) ? at->text.at : otherwise;
}

/* Rows per step over all ranks, and GPUs; 0: not given. */
typedef struct rl_sizes {
    int64_t step_rows, generation_rows, gpus;
} rl_sizes;

enum { RL_GPUS = 8 }; /* where neither the file nor the job gives their number */

static rl_sizes verl_sizes(const tide_json *root) {
    const tide_json *roles = tide_json_at(root, "actor_rollout_ref");
    int64_t copies = rl_number_at(roles, "rollout", "n", 1), rows = rl_number_at(root, "data", "train_batch_size", 0);
    return (rl_sizes){.gpus = rl_number_at(root, "trainer", "n_gpus_per_node", 0) *
                              rl_number_at(root, "trainer", "nnodes", 1),
                      .step_rows = roles ? rl_number_at(roles, "actor", "ppo_mini_batch_size", 0) * copies : rows,
                      .generation_rows = rows * copies};
}

/* In sections, or plain. */
static int64_t openrlhf_number(const tide_json *root, const char *section, const char *key, const char *plain,
                               int64_t otherwise) {
    return rl_number_at(root, section, key, rl_number_at(root, NULL, plain, otherwise));
}

static rl_sizes openrlhf_sizes(const tide_json *root) {
    int64_t copies = openrlhf_number(root, "rollout", "n_samples_per_prompt", "n_samples_per_prompt", 1);
    return (rl_sizes){.gpus = openrlhf_number(root, "actor", "num_gpus_per_node", "actor_num_gpus_per_node", 0) *
                              openrlhf_number(root, "actor", "num_nodes", "actor_num_nodes", 1),
                      .step_rows = openrlhf_number(root, "train", "batch_size", "train_batch_size", 0),
                      .generation_rows =
                          openrlhf_number(root, "rollout", "batch_size", "rollout_batch_size", 0) * copies};
}

static rl_sizes nemo_rl_sizes(const tide_json *root) {
    return (rl_sizes){.gpus = rl_number_at(root, "cluster", "gpus_per_node", 0) *
                              rl_number_at(root, "cluster", "num_nodes", 1),
                      .step_rows = rl_number_at(root, "policy", "train_global_batch_size", 0),
                      .generation_rows = rl_number_at(root, "grpo", "num_prompts_per_step", 0) *
                                         rl_number_at(root, "grpo", "num_generations_per_prompt", 1)};
}

static rl_sizes rl_sizes_of(const tide_claims *c, const tide_json *root) {
    rl_sizes s = tide_claims_have(c, TIDE_PROGRAM_verl)       ? verl_sizes(root)
                 : tide_claims_have(c, TIDE_PROGRAM_openrlhf) ? openrlhf_sizes(root)
                                                              : nemo_rl_sizes(root);
    const char *asked = c->arguments->asked[TIDE_SET_parallel_dp];
    if (asked) tide_text_to_i64(&s.gpus, tide_text_of(asked));
    if (!s.gpus) s.gpus = tide_fact_int(c, TIDE_FACT_processes, 0); /* from its launcher */
    return s;
}

static void imply_number(tide_claims *c, tide_setting_id id, int64_t number) {
    tide_imply(c, id, tide_format(c->arena, "%" PRId64, number));
}

static void settle_rl_sizes(tide_claims *c, const rl_sizes *s, bool generates) {
    const char *known = tide_known_of(c, TIDE_SET_batch);
    int64_t batch = 1, ranks = s->gpus ? s->gpus : RL_GPUS;
    if (known) tide_text_to_i64(&batch, tide_text_of(known));
    if (batch < 1) return;
    if (s->step_rows >= batch * ranks) imply_number(c, TIDE_SET_grad_accum, s->step_rows / (batch * ranks));
    if (generates && s->generation_rows >= batch * ranks)
        imply_number(c, TIDE_SET_trainer_steps_per_generation, s->generation_rows / (batch * ranks));
}

/* openrlhf/utils/deepspeed */
static void settle_rl_deepspeed(tide_claims *c) {
    const tide_file_key *dtype = c->settings[TIDE_SET_dtype];
    tide_imply(c, TIDE_SET_parallel_half, dtype ? dtype->taken : "bf16");
    tide_imply(c, TIDE_SET_dtype, "bf16");
    tide_imply(c, TIDE_SET_parallel_kind,
               tide_format(c->arena, "zero%" PRId64, tide_fact_int(c, TIDE_FACT_zero_stage, 2)));
    if (c->facts[TIDE_FACT_zero_stage]) c->facts[TIDE_FACT_zero_stage]->effect = TIDE_KEY_USED;
}

/* sft_trainer.yaml, engine/fsdp.yaml and actor/dp_actor.yaml have different defaults. */
static const char *verl_strategy(const tide_json *root) {
    const tide_json *roles = tide_json_at(root, "actor_rollout_ref");
    bool is_older = rl_at(root, "model", "partial_pretrain") != NULL;
    const char *said = roles      ? rl_word(rl_at(roles, "actor", "strategy"), "fsdp")
                       : is_older ? rl_word(rl_at(root, "model", "strategy"), "fsdp2")
                                  : rl_word(rl_at(root, "engine", "strategy"), "fsdp");
    return strcmp(said, "fsdp2") == 0 ? "fsdp2" : "fsdp1";
}

/* FSDP with fp32 weights gathered in bf16, under autocast (verl/workers/engine/fsdp/transformer_impl.py,
 * nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py); TRL's trainers are described with FSDP2 only. */
static void settle_rl_fsdp(tide_claims *c, const tide_json *root, bool is_alone) {
    const char *kind = tide_claims_have(c, TIDE_PROGRAM_verl) ? verl_strategy(root) : "fsdp2";
    const tide_file_key *asked = c->settings[TIDE_SET_parallel_param_dtype];
    const char *param_dtype = asked ? asked->taken : "bf16";
    bool is_first = strcmp(kind, "fsdp1") == 0;
    tide_imply(c, TIDE_SET_dtype, "fp32");
    tide_imply(c, TIDE_SET_autocast, strcmp(param_dtype, "fp32") == 0 ? "none" : param_dtype);
    if (is_alone) return;
    if (is_first && c->arguments->asked_trainer) {
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->at->place,
                    "TRL's trainers are not described with FSDP1: FSDP2, which is similar, is played", NULL);
        is_first = false;
    }
    tide_imply(c, TIDE_SET_parallel_kind, is_first ? "fsdp1" : "fsdp2");
    tide_imply(c, TIDE_SET_parallel_param_dtype, param_dtype);
    tide_imply(c, TIDE_SET_parallel_reduce_dtype, "fp32");
    if (is_first) tide_imply(c, TIDE_SET_parallel_buffer_dtype, "fp32");
    if (is_first) tide_imply(c, TIDE_SET_parallel_use_orig_params, "false");
}

static void settle_rl_ranks(tide_claims *c, const tide_json *root, const rl_sizes *s) {
    bool has_deepspeed = tide_claims_have(c, TIDE_PROGRAM_openrlhf), is_alone = s->gpus == 1 && !has_deepspeed;
    if (!s->gpus && !c->arguments->is_spread)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_MISSING, "/settings/parallel.dp",
                    tide_format(c->arena, "the file does not give the number of GPUs: %d is assumed", RL_GPUS),
                    "give parallel.dp");
    if (has_deepspeed)
        settle_rl_deepspeed(c);
    else
        settle_rl_fsdp(c, root, is_alone);
    if (!is_alone) imply_number(c, TIDE_SET_parallel_dp, s->gpus ? s->gpus : RL_GPUS);
}

static const tide_claims_file *rl_file(const tide_claims *c) {
    const tide_claims_file *file = c->first;
    while (file && !tide_is_of_rl(file->reader)) file = file->next;
    return file;
}

/* What is trained, from a section, a key or the command; NULL after an error. */
static const char *kind_of_sections(tide_claims *c, const tide_json *root) {
    static const char *const sections[][2] = {
        {"actor_rollout_ref", "ppo"},     {"grpo", "grpo"}, {"dpo", "dpo"},  {"rm", "rm"}, {"ppo", "ppo"},
        {"distillation", "distillation"}, {"sft", "sft"},   {"model", "sft"}};
    for (size_t i = 0; i < TIDE_COUNT_OF(sections); i++)
        if (tide_json_is(tide_json_at(root, sections[i][0]), TIDE_JSON_OBJECT))
            tide_imply_fact(c, TIDE_FACT_trl, sections[i][0], sections[i][1]); /* unless a key says so */
    const char *kind = tide_fact_of(c, TIDE_FACT_trl);
    if (!kind)
        tide_error(c->diags, TIDE_ERR_FIELD_MISSING, c->at->place,
                   tide_format(c->arena, "%s does not say which algorithm it trains with", c->at->summary->name),
                   "give the section of the algorithm: sft, dpo, rm or grpo");
    return kind;
}

/* openrlhf/cli/train_*.py; verl/trainer/config; nemo_rl/models/automodel/setup.py; for keys that are missing. */
static void settle_rl_defaults(tide_claims *c, const tide_json *root, const char *kind) {
    static const struct {
        tide_program program;
        const char *kind;
        tide_setting_id setting;
        const char *value;
    } rows[] = {
        {TIDE_PROGRAM_openrlhf, "sft", TIDE_SET_batch, "8"},
        {TIDE_PROGRAM_openrlhf, "sft", TIDE_SET_seq, "2048"},
        {TIDE_PROGRAM_openrlhf, "dpo", TIDE_SET_batch, "8"},
        {TIDE_PROGRAM_openrlhf, "dpo", TIDE_SET_seq, "512"},
        {TIDE_PROGRAM_openrlhf, "rm", TIDE_SET_batch, "1"},
        {TIDE_PROGRAM_openrlhf, "rm", TIDE_SET_seq, "512"},
        {TIDE_PROGRAM_openrlhf, "*", TIDE_SET_optimizer, "adamw_fused"},
        {TIDE_PROGRAM_verl, "sft", TIDE_SET_batch, "4"},
        {TIDE_PROGRAM_verl, "sft", TIDE_SET_seq, "1024"},
        {TIDE_PROGRAM_verl, "*", TIDE_SET_checkpointing, "full"},
        {TIDE_PROGRAM_nemo_rl, "*", TIDE_SET_parallel_output_dtype, "fp32"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (tide_claims_have(c, rows[i].program) && tide_text_matches(tide_text_of(kind), tide_text_of(rows[i].kind)))
            tide_imply(c, rows[i].setting, rows[i].value);
    tide_imply(c, TIDE_SET_optimizer, "adamw");
    tide_imply(c, TIDE_SET_clip, "1.0");
    tide_imply(c, TIDE_SET_use_cache, "false");
    bool packs = tide_claims_have(c, TIDE_PROGRAM_verl) && strcmp(kind, "sft") == 0 && rl_at(root, "model", "path") &&
                 !rl_at(root, "data", "use_dynamic_bsz");
    if (packs) tide_claims_note(c, "data/use_dynamic_bsz", TIDE_KEY_UNSUPPORTED, "true", "packs rows, by default");
}

/* verl/trainer/config/rollout/rollout.yaml, data/legacy_data.yaml; by default a colocated engine sleeps. */
static void settle_rl_generation(tide_claims *c) {
    if (tide_claims_have(c, TIDE_PROGRAM_verl)) {
        tide_imply_fact(c, TIDE_FACT_prompt, "data/max_prompt_length", "512");
        tide_imply_fact(c, TIDE_FACT_completion, "data/max_response_length", "512");
        tide_imply(c, TIDE_SET_trainer_use_vllm, "true");
        tide_imply(c, TIDE_SET_trainer_vllm_gpu_memory_utilization, "0.5");
        tide_imply(c, TIDE_SET_trainer_vllm_tensor_parallel_size, "2");
        tide_imply(c, TIDE_SET_trainer_num_generations, "1");
    }
    if (!tide_claims_have(c, TIDE_PROGRAM_openrlhf)) tide_imply(c, TIDE_SET_trainer_vllm_enable_sleep_mode, "true");
}

/* openrlhf/models/actor.py; verl/trainer/config/model/hf_model.yaml */
static void settle_rl_adapter(tide_claims *c) {
    static const tide_setting_id of_adapter[] = {TIDE_SET_adapter_alpha, TIDE_SET_adapter_target_modules,
                                                 TIDE_SET_adapter_dropout, TIDE_SET_adapter_exclude_modules};
    const tide_file_key *rank = c->settings[TIDE_SET_adapter_r];
    if (rank && rank->key) {
        tide_imply(c, TIDE_SET_adapter, "lora");
        tide_imply(c, TIDE_SET_adapter_alpha, "16");
        tide_imply(c, TIDE_SET_adapter_target_modules, "all-linear");
        return;
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(of_adapter); i++) {
        if (c->settings[of_adapter[i]]) c->settings[of_adapter[i]]->effect = TIDE_KEY_IGNORED;
        c->settings[of_adapter[i]] = NULL;
    }
}

void tide_rl_settle(tide_claims *c) {
    const tide_claims_file *file = rl_file(c);
    c->at = file;
    const char *kind = kind_of_sections(c, file->root);
    if (!kind) return;
    rl_sizes s = rl_sizes_of(c, file->root);
    bool is_supervised = strcmp(kind, "sft") == 0,
         generates = !is_supervised && strcmp(kind, "dpo") != 0 && strcmp(kind, "rm") != 0;
    c->inputs->asked_model = tide_fact_of(c, TIDE_FACT_model);
    c->inputs->asked_place = c->fact_places[TIDE_FACT_model];
    if (c->facts[TIDE_FACT_model]) c->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
    c->facts[TIDE_FACT_trl]->effect = TIDE_KEY_USED;
    settle_rl_adapter(c);
    settle_rl_defaults(c, file->root, kind);
    if (generates) settle_rl_generation(c);
    if (!is_supervised) tide_own_trainer_settle(c, kind);
    if (!is_supervised && !c->arguments->asked_trainer) return;
    settle_rl_sizes(c, &s, generates);
    settle_rl_ranks(c, file->root, &s);
    tide_claims_note(c, is_supervised ? "loss" : "workers", TIDE_KEY_UNSUPPORTED, NULL,
                     is_supervised ? "computes the loss outside of the model" : "trains with workers of its own");
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, file->place,
                is_supervised ? tide_format(c->arena,
                                            "the loss of %s is not described: the model's own, over all positions, is "
                                            "played in a plain loop",
                                            file->reader->title)
                              : tide_format(c->arena, "what the workers of %s do besides the trainer is not described",
                                            file->reader->title),
                NULL);
}

bool tide_is_of_rl(const tide_reader *reader) {
    return reader->program == TIDE_PROGRAM_verl || reader->program == TIDE_PROGRAM_openrlhf ||
           reader->program == TIDE_PROGRAM_nemo_rl;
}
