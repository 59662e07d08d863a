/* Files that start training, as settings: TrainingArguments, Accelerate, LLaMA-Factory, axolotl, DeepSpeed; private to
 * job/. */
#ifndef TIDE_LAUNCH_H
#define TIDE_LAUNCH_H

#include "job/settings.h"

/* The letters of launch_keys.def; those of sections have no files of their own. */
typedef enum tide_trainer_config_file {
    TIDE_LAUNCH_NONE = 0,
    TIDE_LAUNCH_TRAINER = 'T',
    TIDE_LAUNCH_FACTORY = 'L',
    TIDE_LAUNCH_AXOLOTL = 'X',
    TIDE_LAUNCH_ACCELERATE = 'A',
    TIDE_LAUNCH_FSDP = 'F',
    TIDE_LAUNCH_DEEPSPEED = 'Z'
} tide_trainer_config_file;

/* What several keys decide together. */
typedef enum tide_fact {
    TIDE_FACT_distributed,
    TIDE_FACT_processes,
    TIDE_FACT_machines,
    TIDE_FACT_mixed,
    TIDE_FACT_bf16,
    TIDE_FACT_fp16,
    TIDE_FACT_pure,
    TIDE_FACT_checkpointing,
    TIDE_FACT_reentrant,
    TIDE_FACT_clip,
    TIDE_FACT_model,
    TIDE_FACT_finetuning,
    TIDE_FACT_quant_type,
    TIDE_FACT_deepspeed,
    TIDE_FACT_zero_stage,
    TIDE_FACT_zero_clip,
    TIDE_FACT_fsdp,
    TIDE_FACT_fsdp_version,
    TIDE_FACT_fsdp_strategy,
    TIDE_FACT_fsdp_reshard,
    TIDE_FACT_fsdp_policy,
    TIDE_FACT_fsdp_checkpointing,
    TIDE_FACT_COUNT
} tide_fact;

typedef struct tide_trainer_config_source {
    tide_trainer_config_file kind;
    const tide_json *root;
    const char *place;
    tide_file_summary *card;
} tide_trainer_config_source;

enum { TIDE_LAUNCH_LIMIT = 16 };

typedef struct tide_trainer_config {
    tide_arguments *words;
    tide_inputs *given;
    tide_trainer_config_source sources[TIDE_LAUNCH_LIMIT];
    uint32_t count;
    const tide_trainer_config_source *at;                             /* the one that is read */
    tide_file_key *settings[TIDE_SET_COUNT], *facts[TIDE_FACT_COUNT]; /* what said so first */
    const char *setting_files[TIDE_SET_COUNT], *fact_places[TIDE_FACT_COUNT];
    tide_trainer_config_source of_deepspeed; /* root NULL: none */
    bool has_trainer;
} tide_trainer_config;

/* What kind of file an object is, TIDE_LAUNCH_NONE where it is none of them, and what it is called. */
tide_trainer_config_file tide_trainer_config_kind_of(const tide_json *root);
const char *tide_trainer_config_title(tide_trainer_config_file kind);

void tide_trainer_config_add(tide_trainer_config *l, tide_trainer_config_file kind, const tide_json *root,
                             const char *name, const char *place);

/* Reads all files and puts their settings into the words. */
void tide_trainer_config_resolve(tide_trainer_config *l);

/* ---- for readers of one kind of file ---- */

/* Puts a key on the card of the file that is read. */
tide_file_key *tide_trainer_config_note(tide_trainer_config *l, const char *key, tide_key_effect effect,
                                        const char *value, const char *note);

/* `key`, which has the value `given`, says that a setting has this value. The first file that says so holds; a later
 * one that says otherwise is reported. */
void tide_trainer_config_claim(tide_trainer_config *l, const char *key, const char *given, const char *setting,
                               const char *value);

/* A default of a framework that no key says; and the same, shown with the key of a fact. */
void tide_trainer_config_imply(tide_trainer_config *l, const char *setting, const char *value);
void tide_trainer_config_settle(tide_trainer_config *l, tide_fact fact, const char *setting, const char *value);

/* What a fact is; NULL: no file says. */
const char *tide_trainer_config_fact(const tide_trainer_config *l, tide_fact fact);
bool tide_trainer_config_is(const tide_trainer_config *l, tide_fact fact, const char *value);

/* The mixed precision that Trainer or Accelerate asks for: bf16, fp16, none; NULL: neither has a file here. */
const char *tide_trainer_config_precision(const tide_trainer_config *l);
tide_fact tide_trainer_config_precision_fact(const tide_trainer_config *l);

/* deepspeed.c: l->of_deepspeed. */
void tide_deepspeed_read(tide_trainer_config *l);

#endif
