/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as given: key=value, "settings" of a job file, and values from other files. Private to job/. */
#ifndef TIDE_JOB_ARGUMENTS_H
#define TIDE_JOB_ARGUMENTS_H

#include "job/settings.h"

/* A replaced entry of the configuration. */
typedef struct tide_override {
    const char *path;
    const char *text; /* canonical */
    tide_json *value;
    tide_origin origin;
} tide_override;

typedef struct tide_job_arguments {
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *values[TIDE_SET_COUNT]; /* canonical; the default if not given */
    tide_origin origins[TIDE_SET_COUNT];
    bool is_given[TIDE_SET_COUNT];
    bool dp_is_world_size;             /* parallel.dp was given as the total number of GPUs */
    const char *asked_world_size;      /* looked ahead; NULL: not among the arguments */
    bool serves;                       /* mode=serve is among the arguments, at any place */
    const char *asked_trainer;         /* trainer=NAME among the arguments; NULL: none */
    const char *asked[TIDE_SET_COUNT]; /* looked ahead, as written; NULL: not among the arguments */
    bool is_spread;                    /* a setting of parallel is among them */
    bool has_prompt;                   /* seq or trainer.prompt_length is among them */
    bool has_vocabulary;               /* overrides.vocab_size is among them */
    const char *method;                /* of adapter, implied by a setting METHOD.KEY; NULL: none */
    tide_override *overrides;
    uint32_t override_count, override_capacity;
} tide_job_arguments;

void tide_arguments_init(tide_job_arguments *arguments, tide_arena *arena, tide_diagnostics *diags);

/* Looks ahead for mode, trainer, lengths and parallel among the words: the meaning of names, and of files, depends on
 * them. */
void tide_arguments_foresee(tide_job_arguments *arguments, const tide_text *words, uint32_t count);

/* "key=value"; the first may be just the name of a model. */
void tide_argument_read(tide_job_arguments *arguments, tide_text word, tide_origin origin, bool is_first);

/* Sets a setting, given by its name or an alias. An invalid value is an error. */
void tide_setting_put(tide_job_arguments *arguments, tide_text name, tide_text value, tide_origin origin);

/* What no rule describes leaves the job without a verdict (the setting `undescribed`): adds a key to the list. */
void tide_arguments_leave_undescribed(tide_job_arguments *arguments, const char *key);

/* "settings" of a job file: an object of values, or an array of "key=value". */
void tide_arguments_of_json(tide_job_arguments *arguments, const tide_json *settings, tide_origin origin);

/* Whether the name is not a setting itself, but stands for several (n=2x8, img=4x336x336), or for an override. */
bool tide_setting_is_form(tide_text name);

/* The name under which a setting is given: its own, or "gpus" for parallel.dp if all GPUs are counted. */
const char *tide_argument_name(const tide_job_arguments *arguments, tide_setting_id id);

/* The value of a setting: canonical text, or converted to its type. */
const char *tide_argument_text(const tide_job_arguments *arguments, tide_setting_id id);
bool tide_argument_is(const tide_job_arguments *arguments, tide_setting_id id, const char *value);
bool tide_argument_is_true(const tide_job_arguments *arguments, tide_setting_id id);
int64_t tide_argument_int(const tide_job_arguments *arguments, tide_setting_id id);  /* 0: not set */
int64_t tide_argument_pico(const tide_job_arguments *arguments, tide_setting_id id); /* of a decimal; 0: not set */
tide_name_list tide_argument_names(const tide_job_arguments *arguments, tide_setting_id id);

/* The adapter method: adapter=METHOD, or if it is not given the first that reads all adapter settings that are; "none".
 */
const char *tide_arguments_adapter(const tide_job_arguments *arguments);
bool tide_arguments_adapt(const tide_job_arguments *arguments);

/* A JSON value as the text of an argument; NULL if that is not possible (null, objects). */
const char *tide_argument_value(tide_arena *arena, const tide_json *value);
/* The same, with an object of numbers as a list of KEY=NUMBER. */
const char *tide_argument_value_or_map(tide_arena *arena, const tide_json *value);

/* config_values.c: JSON values in arguments, and replacing entries of a configuration. */
tide_json *tide_argument_json(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);
const char *tide_argument_json_text(tide_arena *arena, const tide_json *value);
bool tide_config_override(tide_arena *arena, tide_json *config, const tide_override *override, tide_diagnostics *diags);
void tide_config_dropout(tide_json *config, int64_t pico);

/* config_check.c: whether an entry of a configuration is a size, such as hidden_size. */
bool tide_config_is_size(tide_text key);

#endif
