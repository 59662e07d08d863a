/* SPDX-License-Identifier: Apache-2.0 */
/* What files that start training or a server say about settings, one by one and together. Private to job/.
 *
 * Each key of a file is looked up in its reader's table. It claims a value for a setting, or states a fact if several
 * keys decide together; facts are settled after all files have been read. The first file to claim something takes
 * precedence; contradictions are reported. The file's summary has the effect of each key. */
#ifndef TIDE_JOB_READERS_CLAIMS_H
#define TIDE_JOB_READERS_CLAIMS_H

#include "job/readers/key_values.h"
#include "job/readers/readers.h"

/* What several keys decide together. */
typedef enum tide_fact {
    TIDE_FACT_NONE,
#define TIDE_FACT(name) TIDE_FACT_##name,
#define TIDE_FACT_SAID(name, remedy) TIDE_FACT_##name,
#include "job/readers/facts.def"
#undef TIDE_FACT_SAID
#undef TIDE_FACT
    TIDE_FACT_COUNT
} tide_fact;

/* ---- tables of keys ---- */

typedef enum tide_key_rule {
    TIDE_RULE_SETS,
    TIDE_RULE_SAYS,
    TIDE_RULE_NEUTRAL,
    TIDE_RULE_MATTERS,
    TIDE_RULE_REFUSED,
    TIDE_RULE_HOLDS
} tide_key_rule;

typedef struct tide_key_row {
    const char *key; /* keys separated by `|`; `*` matches any characters */
    tide_key_rule rule;
    tide_setting_id setting;
    tide_fact fact;
    const char *values, *matter;
    const char *near;     /* what is described and similar; NULL: nothing */
    bool is_of_model;     /* has no effect if the model is given otherwise */
    const char *trainers; /* trainers of TRL that have the key, separated by bars; NULL: others have it too */
    const struct tide_key_table *section;
} tide_key_row;

/* A setting, or a fact. values are `given=taken|...`: given in lower case, with `*` for any characters; taken empty: no
 * effect; `given~taken`: not described and treated as what is similar, which is reported. A value that is not listed is
 * taken as it is. */
#define KEY_SETS(key_, setting_, values_)                                                                              \
    { .key = key_, .rule = TIDE_RULE_SETS, .setting = TIDE_SET_##setting_, .values = values_ }
/* The same for a key that only these trainers of TRL have, separated by bars. */
#define KEY_SETS_OF(trainers_, key_, setting_, values_)                                                                \
    { .key = key_, .rule = TIDE_RULE_SETS, .setting = TIDE_SET_##setting_, .values = values_, .trainers = trainers_ }
#define KEY_SAYS(key_, fact_, values_)                                                                                 \
    { .key = key_, .rule = TIDE_RULE_SAYS, .fact = TIDE_FACT_##fact_, .values = values_ }
#define KEY_SAYS_OF(trainers_, key_, fact_, values_)                                                                   \
    { .key = key_, .rule = TIDE_RULE_SAYS, .fact = TIDE_FACT_##fact_, .values = values_, .trainers = trainers_ }
/* No effect on memory. */
#define KEY_NEUTRAL(key_)                                                                                              \
    { .key = key_, .rule = TIDE_RULE_NEUTRAL }
/* Not described if enabled; `matter` says what it does ("replaces kernels"), values are those that disable it, besides
 * false and none. */
#define KEY_MATTERS(key_, matter_, values_)                                                                            \
    { .key = key_, .rule = TIDE_RULE_MATTERS, .matter = matter_, .values = values_ }
/* The same for a key that only these trainers of TRL have, separated by bars. */
#define KEY_MATTERS_OF(trainers_, key_, matter_, values_)                                                              \
    { .key = key_, .rule = TIDE_RULE_MATTERS, .matter = matter_, .values = values_, .trainers = trainers_ }
/* The same, but no figure would be right: the file is refused. */
#define KEY_REFUSED(key_, matter_, values_)                                                                            \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .matter = matter_, .values = values_ }
#define KEY_REFUSED_NEAR(key_, matter_, values_, near_)                                                                \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .matter = matter_, .values = values_, .near = near_ }
/* The same about the model; has no effect if its configuration is given. */
#define KEY_OF_MODEL(key_, matter_, values_)                                                                           \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .is_of_model = true, .matter = matter_, .values = values_ }
/* An object with keys of its own, or the path of a file with them. */
#define KEY_HOLDS(key_, section_)                                                                                      \
    { .key = key_, .rule = TIDE_RULE_HOLDS, .section = &section_ }

/* The same; or a word, which is refused with `matter` unless it is one of the values. */
#define KEY_HOLDS_OR(key_, section_, values_, matter_)                                                                 \
    { .key = key_, .rule = TIDE_RULE_HOLDS, .section = &section_, .values = values_, .matter = matter_ }

/* The first matching row applies. */
typedef struct tide_key_table {
    const tide_key_row *rows;
    uint32_t count;
    const char *prefix;                /* optional prefix of each key; NULL: none */
    const struct tide_key_table *more; /* used if no row matches; NULL: none */
    /* Whether another file overrides this whole section, which is then reported. NULL: never. */
    bool (*is_overruled)(struct tide_claims *, const tide_json *section, const char *above);
} tide_key_table;

/* ---- the claims of a job's files ---- */

typedef struct tide_claims_file {
    const tide_reader *reader;
    const tide_json *root;
    const char *place;
    tide_file_summary *summary;
    struct tide_claims_file *next;
} tide_claims_file;

typedef struct tide_claims {
    tide_job_arguments *arguments;
    tide_inputs *inputs;
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_claims_file *first, *last;
    const tide_claims_file *at;                                       /* the file being read */
    tide_file_key *settings[TIDE_SET_COUNT], *facts[TIDE_FACT_COUNT]; /* the first claims */
    const char *setting_files[TIDE_SET_COUNT], *fact_places[TIDE_FACT_COUNT];
    const char *trainer;           /* the only trainer of TRL with some key in the files; NULL: no such key */
    tide_claims_file of_deepspeed; /* a file, or a section of another; root NULL: none */
} tide_claims;

/* Adds a file. There may be one for each reader, and one that trains; a second is an error. */
void tide_claims_add(tide_claims *c, const tide_reader *reader, const tide_json *root, const char *name,
                     const char *place);

/* resolve.c: reads all files, settles facts, and sets the arguments. */
void tide_claims_resolve(tide_claims *c);

bool tide_claims_have(const tide_claims *c, tide_program program); /* a file of it */
bool tide_claims_train(const tide_claims *c);                      /* whether a file says what to train */

/* trl.c: the trainer of TRL that the files are for; NULL: none. */
const char *tide_trl_kind(const tide_claims *c);
void tide_trl_settle(tide_claims *c);

/* preference_names.c: the last method of preference or reward training in a name; NULL: none, or a supervised one after
 * it. And whether the files are named after one, which is then an error, unless a trainer is requested. */
const char *tide_preference_word(tide_arena *arena, tide_text text);
bool tide_refuse_named_preferences(tide_claims *c);

/* Preference or reward training by a program with trainers of its own, in its terms: TRL's trainer if that is similar
 * and requested. */
void tide_own_trainer_settle(tide_claims *c, const char *said);

/* rl_programs.c: verl, OpenRLHF, NeMo-RL. */
void tide_rl_settle(tide_claims *c);
bool tide_is_of_rl(const tide_reader *reader);

/* trl_rollouts.c: a key that only TRL's generating trainers have; NULL: none. And what such a file says about rollouts.
 */
const char *tide_rollouts_key(const tide_claims *c);
/* Whether there is one that only GRPOConfig has. */
bool tide_has_grpo_key(const tide_claims *c);
void tide_rollouts_settle(tide_claims *c);
/* The same of online DPO, whose files give the length of both. */
void tide_pairs_settle(tide_claims *c);

/* keys.c: reads the keys of the file `at`, or of a section of it; `above` is the prefix of their names
 * ("fsdp_config/"). */
void tide_claims_read(tide_claims *c, const tide_key_table *table, const tide_json *object, const char *above);
const tide_key_row *tide_key_find(const tide_key_table *table, tide_text key);

/* Reports an error at a key of the file `at`; returns false. */
bool tide_claims_refuse(tide_claims *c, tide_status status, const char *key, const char *message, const char *remedy);
const char *tide_claims_place(const tide_claims *c, const char *key);

/* Adds a key to the summary of the file `at`. */
tide_file_key *tide_claims_note(tide_claims *c, const char *key, tide_key_effect effect, const char *value,
                                const char *note);

/* `key`, whose value is `given`, claims a value for a setting. */
void tide_claim(tide_claims *c, const char *key, const char *given, tide_setting_id setting, const char *value);

/* `key`, whose value is `given`, states a fact. */
void tide_claim_fact(tide_claims *c, const char *key, const char *given, tide_fact fact);

/* A framework's default, which no key states. */
void tide_imply(tide_claims *c, tide_setting_id setting, const char *value);
/* The requested value, or else the one from a file; NULL: neither. */
const char *tide_known_of(const tide_claims *c, tide_setting_id id);

/* The same, reported with the key of a fact. */
void tide_settle(tide_claims *c, tide_fact fact, tide_setting_id setting, const char *value);

/* A fact that no key states. */
void tide_imply_fact(tide_claims *c, tide_fact fact, const char *key, const char *value);

/* Whether a model is given, by name or by its configuration, besides the files that start something. */
bool tide_claims_have_model(const tide_claims *c);
/* Whether it is, or a file names one of the catalogue. */
bool tide_claims_know_model(const tide_claims *c);

/* The value of a fact; NULL: no file states it. */
const char *tide_fact_of(const tide_claims *c, tide_fact fact);
bool tide_fact_is(const tide_claims *c, tide_fact fact,
                  const char *value); /* given ignores case; value is in lower case */
int64_t tide_fact_int(const tide_claims *c, tide_fact fact, int64_t otherwise);

/* ---- stage_layout.c: layers of pipeline stages ---- */

/* Megatron-Core's pipeline_model_parallel_layout ("Ett|ttt|tL"), for so many pipeline ranks. */
void tide_megatron_settle_stages(tide_claims *c, int64_t ranks);
/* torchtitan's module_fqns_per_model_part. */
void tide_torchtitan_settle_stages(tide_claims *c, const tide_json *parts);
/* torchtitan's distribution of so many layers, with the embedding and the head counted as `first` and `last` more;
 * NULL: it refuses. */
const char *tide_torchtitan_even_stages(tide_arena *arena, int64_t layers, int64_t stages, int64_t first, int64_t last);

/* ---- training.c: what TrainingArguments, Accelerate and the programs over them say together ---- */

void tide_training_settle(tide_claims *c);
/* LLaMA-Factory's freeze (hparams/finetuning_args.py, FreezeArguments; v1: FreezeParams); place: of errors. */
void tide_freeze_tuning_settle(tide_claims *c, const char *place);

/* program_defaults.c: the program's defaults for missing keys; those of settings after the ones of adapters. */
void tide_default_facts(tide_claims *c);
void tide_default_settings(tide_claims *c);

/* axolotl.c: the same for what it derives from several keys. */
void tide_axolotl_facts(tide_claims *c);
void tide_axolotl_settings(tide_claims *c);

/* mixed_precision.c: the requested mixed precision: bf16, fp16, none; NULL: no file states it. And the fact that states
 * it. */
const char *tide_mixed_precision(const tide_claims *c);
tide_fact tide_mixed_precision_fact(const tide_claims *c);

/* published.c: uses the DeepSpeed configuration that the program publishes under that path; false: it publishes none.
 */
bool tide_published_take(tide_claims *c, const char *path);

/* deepspeed.c: c->of_deepspeed. */
void tide_deepspeed_read(tide_claims *c);

/* Tables and readers that others use. */
extern const tide_key_table tide_trainer_keys, tide_model_keys, tide_fsdp_keys, tide_deepspeed_plugin_keys,
    tide_accelerate_keys;
extern const tide_reader tide_axolotl_reader, tide_deepspeed_reader, tide_llama_factory_reader,
    tide_llama_factory_v1_reader, tide_ms_swift_reader, tide_trainer_reader, tide_megatron_reader,
    tide_megatron_bridge_reader, tide_nemo_reader, tide_torchtune_reader, tide_torchtitan_reader,
    tide_torchtitan_command_reader, tide_trl_command_reader, tide_launched_reader, tide_verl_reader,
    tide_openrlhf_reader, tide_nemo_rl_reader;

#endif
