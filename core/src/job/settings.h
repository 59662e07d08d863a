/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as a table, and their values as canonical text. Private to job/. */
#ifndef TIDE_JOB_SETTINGS_H
#define TIDE_JOB_SETTINGS_H

#include "base/decimal.h"
#include "job/job.h"

typedef enum tide_setting_type {
    TIDE_SETTING_INT,
    TIDE_SETTING_NUMBER,
    TIDE_SETTING_BOOL,
    TIDE_SETTING_CHOICE,
    TIDE_SETTING_DTYPE,
    TIDE_SETTING_TEXT,
    TIDE_SETTING_LIST,
    TIDE_SETTING_SIZE,
    TIDE_SETTING_LENGTHS,
    TIDE_SETTING_COUNTS,
    TIDE_SETTING_NAME,
    TIDE_SETTING_RECIPE,
    TIDE_SETTING_OVERRIDES
} tide_setting_type;

/* A row of settings.def, which documents the fields. */
typedef struct tide_setting {
    const char *name;
    tide_setting_type type;
    const char *const *choices; /* NULL: there are none, or they are elsewhere */
    uint32_t choice_count;
    const char *title, *group, *unit, *default_value, *aliases, *synonyms; /* NULL: not given */
    const char *when, *variable, *same_as;
    int64_t least, most, otherwise;
    tide_read read;
    size_t offset; /* of its field in tide_job; 0: it has none */
} tide_setting;

extern const tide_setting tide_settings[TIDE_SET_COUNT];

/* The help of each, in a separate table because the page loads it later. */
extern const char *const tide_setting_help[TIDE_SET_COUNT];

/* The setting with this name or alias, or that a key of another program sets; TIDE_SET_COUNT if there is none.
 * METHOD.KEY is adapter.KEY, and trainer.KEY is KEY unless trainers have an option of their own with this name:
 * trainer.packing. */
tide_setting_id tide_setting_find(tide_text name);

/* The same; an alias of several settings is that of the server if it serves: tp, gpus, rank. */
tide_setting_id tide_setting_find_for(tide_text name, bool serves);

/* The same, without keys of other programs (foreign_keys.h). */
tide_setting_id tide_setting_find_own(tide_text name, bool serves);

/* Names of parallel.dp that stand for the number of all GPUs, which tensor, pipeline and context parallel ranks divide:
 * torch.distributed's world size. */
/* tide_job_has_trainer(), as a row's .when. */
#define TIDE_WITH_TRAINER "trainer=hf|sft|dpo|kto|reward|orpo|cpo|grpo|rloo|online_dpo|gkd"
#define TIDE_WORLD_SIZE_NAMES "world_size|gpus|num_gpus|n_gpus|world"

/* Whether the name is one of those. */
bool tide_setting_is_world_size(tide_text name);

/* Whether it only belongs to an inference server: a row of settings/serve.def. */
bool tide_setting_is_of_server(tide_setting_id id);

/* Whether an inference server reads it. */
bool tide_setting_serves(tide_setting_id id);

/* Whether this engine reads it, or all engines do. */
bool tide_setting_is_of_engine(tide_setting_id id, const char *engine);

/* The text of the default; "": it is not set. */
const char *tide_setting_default(tide_setting_id id);

/* The method of peft at the beginning of a name METHOD.KEY, canonical; empty if it has none. */
tide_text tide_setting_method(tide_text name);

/* Whether there are settings `name.KEY`. */
bool tide_setting_is_object(tide_text name);

/* The known name most similar to a misspelt one, or NULL; for the KEY of an unknown GROUP.KEY, a key or an alias of
 * that group's settings. */
const char *tide_setting_nearest(tide_arena *arena, tide_text group, tide_text key);

/* What to write instead of a word from another program (words.def); NULL for others. */
const char *tide_word_remedy(tide_text word);

/* The settings that such a word stands for next to a model, "quant=nf4 adapter=lora" or "seq="; NULL: none. */
const char *tide_word_meaning(tide_text word);

/* Whether its value is one of a list; and choice number `index`, empty past the last. */
bool tide_setting_chooses(const tide_setting *setting);
tide_text tide_setting_choice(const tide_setting *setting, uint32_t index);

/* The choice for a value, ignoring case: the value itself, or the choice that it is a synonym of; empty if it is
 * neither. */
tide_text tide_setting_choice_of(const tide_setting *setting, tide_text value);

bool tide_setting_has_choice(const tide_setting *setting, tide_text value);

/* A value as canonical text, or NULL after an error at /settings/NAME. */
const char *tide_setting_read(tide_arena *arena, tide_setting_id id, tide_text value, tide_diagnostics *diags);

/* 8192 for "8k", as people write lengths in tokens; 0: the setting is not one, or the value another. */
int64_t tide_setting_tokens(tide_setting_id id, tide_text value);

/* Numbers separated by commas, canonical. */
tide_counts tide_counts_of(tide_arena *arena, tide_text list);

/* Names separated by commas. */
tide_name_list tide_names_of(tide_arena *arena, const char *list);

/* The setting in .when, and the prefixes of its choices separated by `|`, or of excluded ones; TIDE_SET_COUNT if a row
 * has no .when. */
tide_setting_id tide_setting_needs(const tide_setting *setting, tide_text *choices, bool *is_excluded);

/* The prefixes of choices that .when requires, separated by `|`; "": any, or all but one. */
const char *tide_setting_wants(const tide_setting *setting);

/* Whether it is read if the setting in .when has this value; true without .when. */
bool tide_setting_is_of(const tide_setting *setting, const char *choice);

#endif
