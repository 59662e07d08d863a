/* SPDX-License-Identifier: Apache-2.0 */
/* What files that start something say of settings, one by one and together. Private to job/.
 *
 * Each key of a file is looked up in its reader's table. It claims a value for a setting, or says a fact where several
 * keys decide together; facts are settled when all files are read. The first file that says something holds; a later
 * one that says otherwise is reported. What became of each key stands in the file's summary. */
#ifndef TIDE_JOB_READERS_CLAIMS_H
#define TIDE_JOB_READERS_CLAIMS_H

#include "job/readers/readers.h"

/* What several keys decide together. */
typedef enum tide_fact {
    TIDE_FACT_NONE,
#define TIDE_FACT(name) TIDE_FACT_##name,
#include "job/readers/facts.def"
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
    const char *key; /* keys joined by `|`; `*` is any run of characters */
    tide_key_rule rule;
    tide_setting_id setting;
    tide_fact fact;
    const char *values, *matter;
    const char *near;     /* what is described and near to it; NULL: nothing is */
    bool is_of_model;     /* where the model is given besides, it says nothing */
    const char *trainers; /* of TRL, joined by bars, which alone have the key; NULL: others have it too */
    const struct tide_key_table *section;
} tide_key_row;

/* A setting, or a fact. values are `given=taken|...`: given in lower case, `*` any run of characters; taken empty: it
 * says nothing; `given~taken`: it is not described and taken as what is near, which is said. A value that is not there
 * is taken as it is. */
#define KEY_SETS(key_, setting_, values_)                                                                              \
    { .key = key_, .rule = TIDE_RULE_SETS, .setting = TIDE_SET_##setting_, .values = values_ }
/* The same of a key that only these trainers of TRL have, joined by bars. */
#define KEY_SETS_OF(trainers_, key_, setting_, values_)                                                                \
    { .key = key_, .rule = TIDE_RULE_SETS, .setting = TIDE_SET_##setting_, .values = values_, .trainers = trainers_ }
#define KEY_SAYS(key_, fact_, values_)                                                                                 \
    { .key = key_, .rule = TIDE_RULE_SAYS, .fact = TIDE_FACT_##fact_, .values = values_ }
/* Values of keys that several programs have. */
#define KEY_ATTENTION                                                                                                  \
    "flash_attention_*=sdpa|flash_attn*=sdpa|flash=sdpa|kernels-community/*=sdpa|flex_attention~sdpa|xformers~sdpa|"   \
    "sage~sdpa|fp8~sdpa|auto="
#define KEY_OPTIMIZERS                                                                                                 \
    "adamw_torch_8bit~adamw8bit|adamw_torch_4bit~adamw8bit|ao_adamw_8bit~adamw8bit|ao_adamw_4bit~adamw8bit|"           \
    "ao_adamw_fp8~adamw8bit|optimi_adamw~adamw_single|flash_adamw~adamw8bit"

/* No effect on memory. */
#define KEY_NEUTRAL(key_)                                                                                              \
    { .key = key_, .rule = TIDE_RULE_NEUTRAL }
/* Not described where it is switched on; `matter` is what it does ("replaces kernels"), values those that are off,
 * besides false and none. */
#define KEY_MATTERS(key_, matter_, values_)                                                                            \
    { .key = key_, .rule = TIDE_RULE_MATTERS, .matter = matter_, .values = values_ }
/* The same, where no figure would be right: the file is refused. */
#define KEY_REFUSED(key_, matter_, values_)                                                                            \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .matter = matter_, .values = values_ }
#define NEAR_RING_ATTENTION                                                                                            \
    "near to it: parallel.kind=fsdp2 with parallel.cp and trainer=hf or sft, ring attention as accelerate has it"
#define KEY_REFUSED_NEAR(key_, matter_, values_, near_)                                                                \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .matter = matter_, .values = values_, .near = near_ }
/* The same of the model, which its own configuration says where that is given. */
#define KEY_OF_MODEL(key_, matter_, values_)                                                                           \
    { .key = key_, .rule = TIDE_RULE_REFUSED, .is_of_model = true, .matter = matter_, .values = values_ }
/* An object with keys of its own, or the path of a file with them. */
#define KEY_HOLDS(key_, section_)                                                                                      \
    { .key = key_, .rule = TIDE_RULE_HOLDS, .section = &section_ }

/* The same; or a word, of which others than these values are refused, as `matter` says. */
#define KEY_HOLDS_OR(key_, section_, values_, matter_)                                                                 \
    { .key = key_, .rule = TIDE_RULE_HOLDS, .section = &section_, .values = values_, .matter = matter_ }

/* The first row that matches holds. */
typedef struct tide_key_table {
    const tide_key_row *rows;
    uint32_t count;
    const char *prefix;                /* that may stand before each key; NULL: none */
    const struct tide_key_table *more; /* where no row matches; NULL: none */
    /* Whether another file says all of this section, which is noted then. NULL: never. */
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
    const tide_claims_file *at;                                       /* the one that is read */
    tide_file_key *settings[TIDE_SET_COUNT], *facts[TIDE_FACT_COUNT]; /* what said so first */
    const char *setting_files[TIDE_SET_COUNT], *fact_places[TIDE_FACT_COUNT];
    const char *trainer;           /* of TRL, which alone has a key that is there; NULL: no key says */
    tide_claims_file of_deepspeed; /* a file, or a section of another; root NULL: none */
} tide_claims;

/* Takes a file. One of each reader, and one that trains; a second is an error. */
void tide_claims_add(tide_claims *c, const tide_reader *reader, const tide_json *root, const char *name,
                     const char *place);

/* resolve.c: reads all files, settles what they say together, and puts the settings into the arguments. */
void tide_claims_resolve(tide_claims *c);

bool tide_claims_have(const tide_claims *c, tide_program program); /* a file of it */
bool tide_claims_train(const tide_claims *c);                      /* whether a file says what trains */

/* trl.c: the choice of trainer that the files are for; NULL: none of TRL's. */
const char *tide_trl_kind(const tide_claims *c);
void tide_trl_settle(tide_claims *c);

/* preference_names.c: the last method of preferences or rewards that a name has; NULL: none, or a supervised one behind
 * it. And whether the files are named after one, which is an error then; not where a trainer is asked for. */
const char *tide_preference_word(tide_arena *arena, tide_text text);
bool tide_refuse_named_preferences(tide_claims *c);

/* Preferences or rewards by a program with trainers of its own, as it calls them: one of TRL's where that is near and
 * asked for. */
void tide_own_trainer_settle(tide_claims *c, const char *said);

/* rl_programs.c: verl, OpenRLHF, NeMo-RL. */
void tide_rl_settle(tide_claims *c);
bool tide_is_of_rl(const tide_reader *reader);

/* trl_rollouts.c: a key that only TRL's trainers which generate have; NULL: none. What such a file says of rollouts. */
const char *tide_rollouts_key(const tide_claims *c);
/* Whether one is of GRPOConfig alone. */
bool tide_has_grpo_key(const tide_claims *c);
void tide_rollouts_settle(tide_claims *c);

/* keys.c: the keys of the file `at`, or of a section of it; `above` is what stands before their names ("fsdp_config/").
 */
void tide_claims_read(tide_claims *c, const tide_key_table *table, const tide_json *object, const char *above);
const tide_key_row *tide_key_find(const tide_key_table *table, tide_text key);

/* An error at a key of the file `at`; false. */
bool tide_claims_refuse(tide_claims *c, tide_status status, const char *key, const char *message, const char *remedy);
const char *tide_claims_place(const tide_claims *c, const char *key);

/* Puts a key into the summary of the file `at`. */
tide_file_key *tide_claims_note(tide_claims *c, const char *key, tide_key_effect effect, const char *value,
                                const char *note);

/* `key`, which has the value `given`, says that a setting has this value. */
void tide_claim(tide_claims *c, const char *key, const char *given, tide_setting_id setting, const char *value);

/* `key`, which has the value `given`, says a fact. */
void tide_claim_fact(tide_claims *c, const char *key, const char *given, tide_fact fact);

/* A default of a framework that no key says. */
void tide_imply(tide_claims *c, tide_setting_id setting, const char *value);
/* What was asked for, or else what a file says; NULL: neither. */
const char *tide_known_of(const tide_claims *c, tide_setting_id id);

/* The same, shown with the key of a fact. */
void tide_settle(tide_claims *c, tide_fact fact, tide_setting_id setting, const char *value);

/* A fact that no key says. */
void tide_imply_fact(tide_claims *c, tide_fact fact, const char *key, const char *value);

/* Whether a model is given, by name or its configuration, besides the files that start something. */
bool tide_claims_have_model(const tide_claims *c);

/* What a fact is; NULL: no file says. */
const char *tide_fact_of(const tide_claims *c, tide_fact fact);
bool tide_fact_is(const tide_claims *c, tide_fact fact, const char *value); /* given in any case; value in lower case */
int64_t tide_fact_int(const tide_claims *c, tide_fact fact, int64_t otherwise);

/* ---- stage_layout.c: layers of pipeline stages ---- */

/* Megatron-Core's pipeline_model_parallel_layout ("Ett|ttt|tL"), of so many pipeline ranks. */
void tide_megatron_settle_stages(tide_claims *c, int64_t ranks);
/* torchtitan's module_fqns_per_model_part. */
void tide_torchtitan_settle_stages(tide_claims *c, const tide_json *parts);
/* What torchtitan makes of so many layers, the embedding and the head counted as one each; NULL: it refuses. */
const char *tide_torchtitan_even_stages(tide_arena *arena, int64_t layers, int64_t stages);

/* ---- training.c: what TrainingArguments, Accelerate and the programs over them say together ---- */

void tide_training_settle(tide_claims *c);

/* program_defaults.c: what the file's program takes where no key says; settings behind the adapters'. */
void tide_default_facts(tide_claims *c);
void tide_default_settings(tide_claims *c);

/* axolotl.c: the same of what it decides from several keys. */
void tide_axolotl_facts(tide_claims *c);
void tide_axolotl_settings(tide_claims *c);

/* mixed_precision.c: what is asked for: bf16, fp16, none; NULL: no file says. And the fact that says so. */
const char *tide_mixed_precision(const tide_claims *c);
tide_fact tide_mixed_precision_fact(const tide_claims *c);

/* published.c: takes a DeepSpeed configuration as the program publishes it under that path; false: it publishes none.
 */
bool tide_published_take(tide_claims *c, const char *path);

/* deepspeed.c: c->of_deepspeed. */
void tide_deepspeed_read(tide_claims *c);

/* Tables and readers that others refer to. */
extern const tide_key_table tide_trainer_keys, tide_model_keys, tide_fsdp_keys, tide_deepspeed_plugin_keys,
    tide_accelerate_keys;
extern const tide_reader tide_deepspeed_reader, tide_llama_factory_reader, tide_ms_swift_reader, tide_trainer_reader,
    tide_megatron_reader, tide_megatron_bridge_reader, tide_nemo_reader, tide_torchtune_reader, tide_torchtitan_reader,
    tide_trl_command_reader, tide_launched_reader, tide_verl_reader, tide_openrlhf_reader, tide_nemo_rl_reader;

#endif
