/* SPDX-License-Identifier: Apache-2.0 */
/* Which of TRL's trainers a file of arguments is for, and the defaults of that trainer's configuration. No key names
 * the trainer, because each has a command of its own; but some keys and losses belong to only one. */
#include "job/readers/claims.h"

#include <string.h>

#include "base/units.h"
#include "job/trainers.h"

enum { TRANSFORMERS_5 = 5000 }; /* as returned by tide_version_number() */

static bool has_trl_file(const tide_claims *c) {
    return tide_claims_have(c, TIDE_PROGRAM_transformers) || tide_claims_have(c, TIDE_PROGRAM_trl);
}

/* DPO may have several losses. */
static const char *kind_of_loss(const char *losses) {
    tide_text rest = tide_text_of(losses), one;
    const char *kind = NULL;
    while (!kind && tide_piece_next(&rest, ',', &one)) kind = tide_trainer_of_loss(one);
    return kind || !strchr(losses, ',') ? kind : "dpo";
}

static bool is_spread(const tide_claims *c) {
    return c->arguments->is_spread || c->settings[TIDE_SET_parallel_kind] || c->of_deepspeed.root ||
           c->facts[TIDE_FACT_deepspeed] || c->facts[TIDE_FACT_fsdp] ||
           (c->facts[TIDE_FACT_distributed] && !tide_fact_is(c, TIDE_FACT_distributed, "no"));
}

/* parallel.kind as requested, or as it will be settled. */
static const char *strategy_of(const tide_claims *c) {
    const char *asked = c->arguments->asked[TIDE_SET_parallel_kind];
    const tide_json *stage = tide_json_at(tide_json_at(c->of_deepspeed.root, "zero_optimization"), "stage");
    int64_t of_plugin = tide_fact_int(c, TIDE_FACT_zero_stage, 2);
    bool of_trainer = c->facts[TIDE_FACT_fsdp] && !tide_fact_is(c, TIDE_FACT_fsdp, "false"),
         is_two = tide_fact_int(c, TIDE_FACT_fsdp_version, of_trainer ? 2 : 1) == 2,
         has_fsdp = of_trainer || tide_fact_is(c, TIDE_FACT_distributed, "fsdp") || c->facts[TIDE_FACT_fsdp_version] ||
                    c->facts[TIDE_FACT_fsdp_policy];
    if (asked) return asked;
    if (c->of_deepspeed.root)
        return tide_format(c->arena, "zero%lld", stage && stage->is_integer ? (long long)stage->integer : 0LL);
    if (has_fsdp) return is_two ? "fsdp2" : "fsdp1";
    return tide_fact_is(c, TIDE_FACT_distributed, "deepspeed") ? tide_format(c->arena, "zero%lld", (long long)of_plugin)
                                                               : "ddp";
}

/* Whether trainers are described with what a supervised file requests on several GPUs (job/conflicts.c lists what they
 * are not described with); files that request more are played as a plain loop. */
static bool has_described_strategy(const tide_claims *c) {
    static const char *const described[] = {"ddp", "zero0", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
    const char *kind = strategy_of(c), *offload = tide_known_of(c, TIDE_SET_parallel_offload);
    bool is_described = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(described); i++) is_described |= strcmp(kind, described[i]) == 0;
    return is_described && !(offload && strcmp(offload, "true") == 0 && strcmp(kind, "fsdp2") == 0);
}

/* Played as a plain loop, which supports every strategy. */
static bool leaves_trainer(const tide_claims *c) {
    return is_spread(c) && !has_described_strategy(c);
}

static bool is_supervised(const tide_claims *c) {
    return tide_fact_is(c, TIDE_FACT_trl, "sft") || (c->trainer && strcmp(c->trainer, "sft") == 0);
}

const char *tide_trl_kind(const tide_claims *c) {
    const char *loss = tide_fact_of(c, TIDE_FACT_loss_type), *kind = tide_fact_of(c, TIDE_FACT_trl);
    if (!has_trl_file(c)) return NULL; /* of programs with trainers of their own */
    const char *asked = c->arguments->asked_trainer;
    if (asked) return strcmp(asked, "none") == 0 || strcmp(asked, "hf") == 0 ? NULL : asked;
    if (!kind && loss) kind = kind_of_loss(loss);
    if (!kind) kind = c->trainer;
    if (!kind && (c->settings[TIDE_SET_trainer_lmbda] || c->settings[TIDE_SET_trainer_seq_kd])) kind = "gkd";
    if (!kind && (tide_has_grpo_key(c) || tide_rollouts_key(c))) kind = "grpo";
    return kind && strcmp(kind, "sft") == 0 && leaves_trainer(c) ? NULL : kind;
}

/* Preference training is not supervised training: if TRL's file leaves the trainer open, or another program has such
 * keys, nothing is played. */
static void refuse_unknown(tide_claims *c) {
    static const tide_fact facts[] = {TIDE_FACT_precomputes,   TIDE_FACT_beta,       TIDE_FACT_loss_type,
                                      TIDE_FACT_trl,           TIDE_FACT_completion, TIDE_FACT_preference,
                                      TIDE_FACT_own_preference};
    bool is_of_trl = has_trl_file(c);
    if (is_supervised(c)) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(facts); i++) {
        const tide_file_key *key = c->facts[facts[i]];
        const char *kind = facts[i] == TIDE_FACT_loss_type && key ? kind_of_loss(key->value) : NULL;
        bool is_of_sft = (!is_of_trl && facts[i] == TIDE_FACT_loss_type) || (kind && strcmp(kind, "sft") == 0);
        bool is_of_others = !is_of_trl && facts[i] == TIDE_FACT_preference; /* they have keys of that name */
        if (!key || is_of_sft || is_of_others) continue;
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, c->fact_places[facts[i]],
                   tide_format(c->arena, "%s=%s trains by preferences%s", key->key, key->value,
                               is_of_trl ? ", by one of TRL's trainers, which the file does not name"
                                         : " or rewards, which is not described of this program"),
                   is_of_trl ? "say trainer=dpo, kto, orpo, cpo, grpo, rloo, online_dpo or gkd" : NULL);
        return;
    }
    if (is_of_trl) tide_refuse_named_preferences(c);
}

/* How programs based on TRL's trainers differ from them; trainer NULL: nothing is similar. */
typedef struct own_trainer {
    tide_program program;
    const char *said, *trainer, *why;
} own_trainer;

#define ALL_LOGITS "computes the logits of every position (axolotl 0.19 has TRL 1.9)"
#define ALL_IN_FP32 "converts the logits of every position to fp32, in a loss of its own"
#define VALUE_HEAD "has a value head and a loss of its own"
#define WORKERS "trains with workers of its own, which alternate with the inference engine"
#define BEFORE_1 "uses TRL before 1.0, with losses of its own"

static const own_trainer *own_trainer_of(const tide_claims *c, const char *said) {
    static const own_trainer rows[] = {
        /* core/trainers/trl.py; trl/experimental/orpo, cpo and trainer/reward_trainer.py are the same in TRL 1.9
           and 1.16 */
        {TIDE_PROGRAM_axolotl, "orpo", "orpo", NULL},
        {TIDE_PROGRAM_axolotl, "simpo", "cpo", NULL},
        {TIDE_PROGRAM_axolotl, "reward", "reward", NULL},
        {TIDE_PROGRAM_axolotl, "dpo", "dpo", NULL},
        {TIDE_PROGRAM_axolotl, "ipo", "dpo", NULL},
        {TIDE_PROGRAM_axolotl, "kto", "kto", NULL},
        {TIDE_PROGRAM_axolotl, "grpo", "grpo", ALL_LOGITS},
        {TIDE_PROGRAM_axolotl, "gdpo", "grpo", ALL_LOGITS}, /* whose rewards are normalised one by one */
        /* train/dpo/trainer.py, train/kto/trainer.py, train/rm/trainer.py */
        {TIDE_PROGRAM_llama_factory, "dpo", "dpo", NULL},
        {TIDE_PROGRAM_llama_factory, "kto", "kto", NULL},
        {TIDE_PROGRAM_llama_factory, "rm", "reward", NULL},
        /* swift/rlhf_trainers, requirements.txt */
        {TIDE_PROGRAM_ms_swift, "dpo", "dpo", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "kto", "kto", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "orpo", "orpo", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "cpo", "cpo", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "simpo", "cpo", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "rm", "reward", BEFORE_1},
        {TIDE_PROGRAM_ms_swift, "grpo", "grpo", BEFORE_1},
        /* verl/workers/fsdp_workers.py; openrlhf/trainer; nemo_rl/models/policy */
        {TIDE_PROGRAM_verl, "grpo", "grpo", WORKERS},
        {TIDE_PROGRAM_verl, "rloo", "rloo", WORKERS},
        {TIDE_PROGRAM_verl, "reinforce", "grpo", WORKERS},
        {TIDE_PROGRAM_openrlhf, "dpo", "dpo", ALL_IN_FP32},
        {TIDE_PROGRAM_openrlhf, "kto", "kto", ALL_IN_FP32},
        {TIDE_PROGRAM_openrlhf, "rm", "reward", VALUE_HEAD},
        {TIDE_PROGRAM_openrlhf, "grpo", "grpo", WORKERS},
        {TIDE_PROGRAM_openrlhf, "reinforce", "grpo", WORKERS},
        {TIDE_PROGRAM_openrlhf, "rloo", "rloo", WORKERS},
        {TIDE_PROGRAM_nemo_rl, "dpo", "dpo", ALL_IN_FP32},
        {TIDE_PROGRAM_nemo_rl, "rm", "reward", "uses both rows of a pair in a loss of its own"},
        {TIDE_PROGRAM_nemo_rl, "grpo", "grpo", WORKERS},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (tide_claims_have(c, rows[i].program) && strcmp(rows[i].said, said) == 0) return &rows[i];
    return NULL;
}

/* Preference or reward training by a program based on TRL: one of TRL's trainers, or an error and NULL. */
static const char *own_kind(tide_claims *c, const char *said) {
    const own_trainer *own = own_trainer_of(c, said);
    const tide_file_key *key = c->facts[TIDE_FACT_trl];
    const char *asked = c->arguments->asked_trainer, *place = c->fact_places[TIDE_FACT_trl],
               *what = tide_format(c->arena, "%s=%s", key->key, said);
    if (!own) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, place,
                   tide_format(c->arena,
                               "%s trains on preferences or rewards, with additional models and losses, which is "
                               "not described",
                               what),
                   "run the program with `tidemark dry-run`, which needs no description");
    } else if (own->why && asked && strcmp(asked, own->trainer) == 0) {
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, place,
                    tide_format(c->arena, "%s %s: TRL 1.16's trainer=%s is played", what, own->why, asked), NULL);
        return own->trainer;
    } else if (own->why) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, place,
                   tide_format(c->arena, "%s %s, which is not described", what, own->why),
                   tide_format(c->arena,
                               "give trainer=%s for the figures of TRL 1.16, or run the program with `tidemark "
                               "dry-run`",
                               own->trainer));
    } else {
        return own->trainer;
    }
    return NULL;
}

/* axolotl 0.19: the metadata of its wheel; core/trainers/dpo/trainer.py, training_step(). */
static void settle_axolotl(tide_claims *c, const char *kind) {
    bool is_dpo = strcmp(kind, "dpo") == 0;
    if (is_dpo || strcmp(kind, "kto") == 0) tide_imply(c, TIDE_SET_trl, "1.9");
    if (is_dpo)
        tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, c->fact_places[TIDE_FACT_trl],
                    "axolotl empties the cache after each micro-batch, which is not played: less is reserved", NULL);
}

/* A key as text; NULL if it is not there, or 0. */
static const char *text_of_key(const tide_claims *c, const tide_claims_file *file, const char *key) {
    const tide_json *value = tide_json_at(file->root, key);
    bool is_there = value && value->kind != TIDE_JSON_NULL && !(value->kind == TIDE_JSON_NUMBER && value->number == 0);
    return is_there ? tide_argument_value(c->arena, value) : NULL;
}

/* LLaMA-Factory: hparams/finetuning_args.py (RLHFArguments); train/dpo/trainer.py, compute_preference_loss(). */
static void settle_factory(tide_claims *c, const char *kind) {
    static const char *const of_dpo[] = {"pref_bco_weight", "ld_alpha", NULL}, *const of_kto[] = {"pref_ftx", NULL};
    bool is_dpo = strcmp(kind, "dpo") == 0, is_kto = strcmp(kind, "kto") == 0;
    const tide_claims_file *file = c->first;
    while (file->reader->program != TIDE_PROGRAM_llama_factory) file = file->next;
    const char *loss = text_of_key(c, file, "pref_loss"), *ftx = text_of_key(c, file, "pref_ftx");
    tide_imply(c, TIDE_SET_trainer_program, "llama_factory");
    if (!is_dpo && !is_kto) return;
    if (is_dpo && loss) tide_settle(c, TIDE_FACT_own_preference, TIDE_SET_trainer_loss_type, loss);
    if (is_dpo && ftx) tide_settle(c, TIDE_FACT_own_preference, TIDE_SET_trainer_pref_ftx, ftx);
    for (const char *const *other = is_dpo ? of_dpo : of_kto; *other; other++) {
        const char *text = text_of_key(c, file, *other);
        if (!text) continue;
        tide_error(
            c->diags, TIDE_ERR_UNSUPPORTED, tide_format(c->arena, "%s/%s", file->place, *other),
            tide_format(c->arena, "%s=%s changes LLaMA-Factory's loss in a way which is not described", *other, text),
            "leave it out, or run the program with `tidemark dry-run`");
        return;
    }
}

void tide_own_trainer_settle(tide_claims *c, const char *said) {
    const char *kind = own_kind(c, said);
    for (unsigned id = TIDE_SET_trainer_prompt_length; !kind && id <= TIDE_SET_trainer_batch_eval_metrics; id++)
        c->settings[id] = NULL;
    if (!kind) return;
    tide_settle(c, TIDE_FACT_trl, TIDE_SET_trainer, kind);
    if (strcmp(said, "simpo") == 0 || strcmp(said, "ipo") == 0)
        tide_settle(c, TIDE_FACT_trl, TIDE_SET_trainer_loss_type, said);
    if (tide_claims_have(c, TIDE_PROGRAM_axolotl)) settle_axolotl(c, kind);
    if (tide_claims_have(c, TIDE_PROGRAM_llama_factory)) settle_factory(c, kind);
    if (strcmp(kind, "grpo") == 0 || strcmp(kind, "rloo") == 0) tide_rollouts_settle(c);
}

/* The dtype that from_pretrained() loads if a script gives none: the model's own since transformers 5, before that
 * fp32; modeling_utils.py. */
static void settle_loaded_dtype(tide_claims *c) {
    const char *version = tide_known_of(c, TIDE_SET_transformers);
    int number = tide_version_number(version ? version : "");
    if (!tide_claims_have(c, TIDE_PROGRAM_transformers)) return;
    tide_imply(c, TIDE_SET_dtype, number && number < TRANSFORMERS_5 ? "fp32" : "auto");
}

/* Supervised training, or preference training by an unnamed trainer. */
static void settle_plain(tide_claims *c) {
    refuse_unknown(c);
    settle_loaded_dtype(c);
    if (!leaves_trainer(c) && !c->arguments->asked_trainer) tide_imply(c, TIDE_SET_trainer, "hf");
    tide_fact named = c->facts[TIDE_FACT_trl] ? TIDE_FACT_trl : TIDE_FACT_assistant_only;
    if (has_trl_file(c) && is_supervised(c) && !c->arguments->asked_trainer)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[named],
                    tide_format(c->arena, "TRL's SFTTrainer is not described with %s of these: a plain loop is played",
                                strategy_of(c)),
                    "it is described with ddp, zero0 to zero3, fsdp1, and fsdp2 without offloading");
}

static void settle_kind(tide_claims *c, const char *kind) {
    if (tide_fact_is(c, TIDE_FACT_trl, kind))
        tide_settle(c, TIDE_FACT_trl, TIDE_SET_trainer, kind);
    else if (!c->arguments->asked_trainer)
        tide_imply(c, TIDE_SET_trainer, kind);
    if (c->facts[TIDE_FACT_precomputes])
        tide_settle(c, TIDE_FACT_precomputes, TIDE_SET_trainer_precompute_ref_log_probs, "true");
    if (strcmp(kind, "grpo") == 0 || strcmp(kind, "rloo") == 0)
        tide_rollouts_settle(c);
    else if (strcmp(kind, "online_dpo") == 0)
        tide_pairs_settle(c);
    else
        tide_imply(c, TIDE_SET_seq, "1024"); /* max_length of SFTConfig and others */
    if (c->facts[TIDE_FACT_loss_type])
        tide_settle(c, TIDE_FACT_loss_type, TIDE_SET_trainer_loss_type, tide_fact_of(c, TIDE_FACT_loss_type));
    if (tide_fact_is(c, TIDE_FACT_assistant_only, "true"))
        tide_settle(c, TIDE_FACT_assistant_only, TIDE_SET_trainer_assistant_only_loss, "true");
    if (c->facts[TIDE_FACT_beta])
        tide_settle(c, TIDE_FACT_beta, TIDE_SET_trainer_beta, tide_fact_of(c, TIDE_FACT_beta));
    if (c->facts[TIDE_FACT_model]) tide_imply(c, TIDE_SET_dtype, "fp32"); /* trl/trainer/model_config.py */
}

/* torch_empty_cache_steps, which the Trainer's loop has. */
static void settle_empty_cache(tide_claims *c) {
    const tide_file_key *trainer = c->settings[TIDE_SET_trainer];
    const char *steps = tide_fact_of(c, TIDE_FACT_empties), *asked = c->arguments->asked_trainer;
    if (!steps) return;
    if (asked ? strcmp(asked, "none") != 0 : trainer != NULL)
        tide_settle(c, TIDE_FACT_empties, TIDE_SET_trainer_torch_empty_cache_steps, steps);
    else
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_empties],
                    "torch_empty_cache_steps empties the cache, which is described with trainer=hf and TRL's "
                    "trainers: less is reserved",
                    NULL);
}

/* Trainer.evaluate between steps. eval_steps may be a fraction of the run. */
static void settle_evaluation(tide_claims *c, const char *kind) {
    static const tide_setting_id of_evaluation[] = {
        TIDE_SET_trainer_per_device_eval_batch_size, TIDE_SET_trainer_max_eval_samples,
        TIDE_SET_trainer_eval_accumulation_steps,    TIDE_SET_trainer_prediction_loss_only,
        TIDE_SET_trainer_batch_eval_metrics,         TIDE_SET_trainer_predict_with_generate,
        TIDE_SET_trainer_generation_max_length,      TIDE_SET_trainer_generation_num_beams};
    const char *strategy = tide_fact_of(c, TIDE_FACT_evaluates), *asked = c->arguments->asked_trainer,
               *every = tide_fact_of(c, TIDE_FACT_eval_steps), *played = asked ? asked : kind;
    bool has_loop = played ? strcmp(played, "none") != 0 : c->settings[TIDE_SET_trainer] != NULL,
         generates = played && tide_text_is_among(tide_text_of(played), "grpo|rloo|online_dpo");
    if (strategy && has_loop && !generates && !leaves_trainer(c)) {
        const tide_file_key *predicts = c->settings[TIDE_SET_trainer_predict_with_generate];
        tide_settle(c, TIDE_FACT_evaluates, TIDE_SET_trainer_eval_strategy, strategy);
        if (predicts && strcmp(predicts->taken, "true") == 0) /* if the script has it for that purpose */
            tide_imply(c, TIDE_SET_trainer_compute_metrics, "true");
        bool is_count = every && strcmp(strategy, "steps") == 0 && strcmp(every, "1.0") != 0 &&
                        strspn(every, "0123456789") == strlen(every);
        if (is_count) tide_settle(c, TIDE_FACT_eval_steps, TIDE_SET_trainer_eval_steps, every);
        return;
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(of_evaluation); i++) {
        tide_file_key *entry = c->settings[of_evaluation[i]];
        if (entry) entry->effect = TIDE_KEY_IGNORED;
        c->settings[of_evaluation[i]] = NULL;
    }
    if (strategy)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_evaluates],
                    "evaluates between steps, which is described with trainer=hf and TRL's trainers that do not "
                    "generate: larger batches than in training, or predictions that are kept, may need more",
                    NULL);
}

/* Checkpoints, which only gather what is sharded. */
static void settle_saving(tide_claims *c) {
    const char *saves = tide_fact_of(c, TIDE_FACT_saves), *every = tide_fact_of(c, TIDE_FACT_save_steps),
               *kind = is_spread(c) ? strategy_of(c) : "none", *asked = c->arguments->asked_trainer;
    bool has_loop = asked ? strcmp(asked, "none") != 0 : c->settings[TIDE_SET_trainer] != NULL,
         is_cut = strcmp(kind, "zero3") == 0 || strncmp(kind, "fsdp", 4) == 0,
         is_known = saves && (strcmp(saves, "steps") == 0 || strcmp(saves, "epoch") == 0);
    bool is_sharded = tide_fact_is(c, TIDE_FACT_state_dict_type, "sharded_state_dict");
    if (!is_known || !has_loop || !is_cut) return;
    if (is_sharded && strcmp(kind, "fsdp1") == 0) {
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[TIDE_FACT_saves],
                    "checkpoints of each rank's parts are not described with fsdp1: only the training is played",
                    "a full state_dict_type is described");
        return;
    }
    tide_settle(c, TIDE_FACT_saves, TIDE_SET_trainer_save_strategy, saves);
    if (strcmp(saves, "steps") == 0 && every && strcmp(every, "0") != 0 && strspn(every, "0123456789") == strlen(every))
        tide_settle(c, TIDE_FACT_save_steps, TIDE_SET_trainer_save_steps, every);
    if (strcmp(kind, "fsdp2") == 0 && is_sharded)
        tide_settle(c, TIDE_FACT_state_dict_type, TIDE_SET_parallel_state_dict_type, "sharded");
}

/* Of the optimizers of TrainingArguments, these two allocate memory for it. */
static void settle_weight_decay(tide_claims *c) {
    const tide_file_key *optimizer = c->settings[TIDE_SET_optimizer], *trainer = c->settings[TIDE_SET_trainer];
    const char *decay = tide_fact_of(c, TIDE_FACT_weight_decay);
    bool is_read = optimizer && (strcmp(optimizer->taken, "sgd") == 0 || strcmp(optimizer->taken, "rmsprop") == 0);
    if (decay && is_read && (trainer || c->arguments->asked_trainer))
        tide_settle(c, TIDE_FACT_weight_decay, TIDE_SET_trainer_weight_decay, decay);
}

/* Rows of several sequences are an option of SFTTrainer; if the file says so their attention is flash-attn's, otherwise
 * a mask separates them. */
static void settle_rows(tide_claims *c, const char *kind) {
    static const struct {
        tide_fact fact;
        tide_setting_id setting;
    } rows[] = {{TIDE_FACT_packing, TIDE_SET_packing}, {TIDE_FACT_padding_free, TIDE_SET_trainer_padding_free}};
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        if (!tide_fact_is(c, rows[i].fact, "true")) continue;
        tide_file_key *attention = c->settings[TIDE_SET_attention];
        if (!kind || strcmp(kind, "sft") != 0) {
            tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, c->fact_places[rows[i].fact],
                        "is described with trainer=sft: rows of seq tokens are played", NULL);
            continue;
        }
        tide_settle(c, rows[i].fact, rows[i].setting, "true");
        if (attention && strncmp(attention->value, "flash", strlen("flash")) == 0)
            attention->taken = "flash_attention_2";
    }
}

/* DistillationConfig and others have a teacher too. */
static bool refuse_teacher(tide_claims *c, const char *kind) {
    const tide_file_key *teacher = c->settings[TIDE_SET_trainer_teacher];
    bool is_gkd = kind && strcmp(kind, "gkd") == 0 && !c->facts[TIDE_FACT_completion]; /* which GOLDConfig has */
    if (!teacher || c->arguments->asked_trainer || is_gkd) return false;
    c->settings[TIDE_SET_trainer_teacher] = NULL;
    tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_format(c->arena, "%s/%s", c->first->place, teacher->key),
               tide_format(c->arena,
                           "%s=%s distils from a teacher, by one of TRL's trainers, which the file does not name",
                           teacher->key, teacher->value),
               "give trainer=gkd if it is GKDTrainer: DistillationTrainer, GOLD and MiniLLM are not described");
    return true;
}

void tide_trl_settle(tide_claims *c) {
    const char *kind = tide_trl_kind(c), *said = tide_fact_of(c, TIDE_FACT_trl);
    if (refuse_teacher(c, kind)) return;
    settle_rows(c, kind);
    if (said && !has_trl_file(c) && strcmp(said, "sft") != 0)
        tide_own_trainer_settle(c, said);
    else if (kind)
        settle_kind(c, kind);
    else
        settle_plain(c);
    if (c->facts[TIDE_FACT_resumes] && c->settings[TIDE_SET_trainer])
        tide_settle(c, TIDE_FACT_resumes, TIDE_SET_trainer_resume_from_checkpoint, "true");
    settle_empty_cache(c);
    settle_weight_decay(c);
    settle_evaluation(c, kind);
    settle_saving(c);
}
