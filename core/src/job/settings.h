/* Settings as a table, their values as canonical text; private to job/. */
#ifndef TIDE_SETTINGS_H
#define TIDE_SETTINGS_H

#include "job/job.h"

typedef enum tide_setting_type {
    TIDE_SETTING_INT,
    TIDE_SETTING_NUMBER, /* a decimal, not set when empty */
    TIDE_SETTING_BOOL,
    TIDE_SETTING_CHOICE,
    TIDE_SETTING_TEXT,
    TIDE_SETTING_LIST, /* comma */
    TIDE_SETTING_SIZE, /* HxW */
    TIDE_SETTING_OVERRIDES
} tide_setting_type;

typedef struct tide_setting {
    const char *name;
    tide_setting_type type;
    const char *default_value, *choices, *synonyms, *unit, *group, *aliases;
    int64_t least, most;
    const char *kinds; /* of OBJECT.KEY: the choices of OBJECT that read it, beginnings joined by `|`; "": all */
} tide_setting;

typedef enum tide_setting_id {
#define TIDE_SETTING(name, type, value, choices, synonyms, unit, group, aliases, least, most, help) TIDE_SET_##name,
#define TIDE_SETTING_IN(object, kinds, key, type, value, choices, synonyms, unit, group, aliases, least, most, help)   \
    TIDE_SET_##object##_##key,
#define TIDE_OPTION(key, kinds, type, value, choices, synonyms, unit, aliases, least, most, help)                      \
    TIDE_SET_parallel_##key,
#include "job/settings.def"
#undef TIDE_OPTION
#undef TIDE_SETTING_IN
#undef TIDE_SETTING
    TIDE_SET_COUNT
} tide_setting_id;

extern const tide_setting tide_settings[TIDE_SET_COUNT];

/* What each means: apart, because the page has them later. */
extern const char *const tide_setting_help[TIDE_SET_COUNT];

/* training/optimizer.c: the choices of `optimizer`. */
extern const char *const tide_optimizer_names[];
extern const uint32_t tide_optimizer_name_count;

/* The number of the setting of this name or alias; TIDE_SET_COUNT if there is none. METHOD.KEY is adapter.KEY. */
tide_setting_id tide_setting_find(tide_text name);

/* Whether the name is no setting of its own, but stands for several (n=2x8, img=4x336x336), or for an override. */
bool tide_setting_is_form(tide_text name);

/* The method of peft that a name METHOD.KEY begins with, canonical; empty if it is no such name. */
tide_text tide_setting_method(tide_text name);

/* Whether there are settings `name.KEY`. */
bool tide_setting_is_object(tide_text name);

/* The known name nearest to a misspelt one, or NULL. */
const char *tide_setting_nearest(tide_arena *arena, tide_text name);

/* Takes the next piece off a text joined by `separator`; false at the end. */
bool tide_piece_next(tide_text *rest, char separator, tide_text *piece);

/* The choice number `index`, or an empty text past the last. */
tide_text tide_setting_choice(const tide_setting *setting, uint32_t index);

bool tide_setting_has_choice(const tide_setting *setting, tide_text value);

/* A value as canonical text, or NULL after an error at /settings/NAME. */
const char *tide_setting_read(tide_arena *arena, tide_setting_id id, tide_text value, tide_diagnostics *diags);

/* A decimal in units of 10^-12. */
typedef enum tide_decimal { TIDE_DECIMAL_OK, TIDE_DECIMAL_NONE, TIDE_DECIMAL_FINE, TIDE_DECIMAL_LARGE } tide_decimal;
#define TIDE_PICO INT64_C(1000000000000)
tide_decimal tide_decimal_read(int64_t *pico, tide_text text);
const char *tide_decimal_text(tide_arena *arena, int64_t pico);

/* A terminated copy for a message: at most 60 bytes, control characters as dots, "..." where it was
 * cut. */
const char *tide_shown(tide_arena *arena, tide_text text);
tide_text tide_trimmed(tide_text text);
char *tide_lowered(tide_arena *arena, tide_text text);

/* Up to four candidates near to a misspelt name: "a, b or c"; NULL if none is. Those that begin
 * with it come first. */
const char *tide_near_names(tide_arena *arena, tide_text name, const char **candidates, uint32_t count);

/* Words as they come in. */
typedef struct tide_override {
    const char *path;
    const char *text; /* canonical */
    tide_json *value;
    tide_origin origin;
} tide_override;

typedef struct tide_arguments {
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *values[TIDE_SET_COUNT]; /* canonical; the default where nothing was given */
    tide_origin origins[TIDE_SET_COUNT];
    bool is_given[TIDE_SET_COUNT];
    const char *method; /* of adapter, by a setting METHOD.KEY; NULL: none was given so */
    tide_override *overrides;
    uint32_t override_count, override_capacity;
} tide_arguments;

void tide_arguments_init(tide_arguments *words, tide_arena *arena, tide_diagnostics *diags);
void tide_argument_read(tide_arguments *words, tide_text word, tide_origin origin, bool is_first);
void tide_setting_put(tide_arguments *words, tide_text name, tide_text value, tide_origin origin);
/* "settings" of a job file: an object of values, or an array of words. */
void tide_arguments_of_json(tide_arguments *words, const tide_json *settings, tide_origin origin);

/* A value of a JSON tree as the text of a word; NULL if a word cannot hold it (null, objects). */
const char *tide_argument_value(tide_arena *arena, const tide_json *value);
/* The same, and an object of numbers as a list of KEY=NUMBER. */
const char *tide_argument_value_or_map(tide_arena *arena, const tide_json *value);

/* configuration.c: JSON values in words, and what replaces entries of a configuration. */
tide_json *tide_argument_json(tide_arena *arena, tide_text text, const char *place, tide_diagnostics *diags);
const char *tide_argument_json_text(tide_arena *arena, const tide_json *value);
bool tide_config_override(tide_arena *arena, tide_json *config, const tide_override *override, tide_diagnostics *diags);
void tide_config_dropout(tide_json *config, int64_t pico);

/* Names joined by commas. */
tide_name_list tide_names_of(tide_arena *arena, const char *list);

/* Whether a text begins as one of those in `list`, joined by `|`; always with an empty list. */
bool tide_beginning_listed(const char *list, const char *text);

/* Whether the choice of OBJECT reads a setting OBJECT.KEY. */
bool tide_setting_is_of(const tide_setting *setting, const char *choice);

/* adapter.c: adapter_config.json, an object with "peft_type"; and the settings adapter.KEY of a job. */
void tide_adapter_read(tide_arguments *words, const tide_json *root, const char *place, const char *name);
void tide_adapter_fill(tide_arguments *words, tide_adapter *adapter);

/* quantization.c: "quantization_config" as settings; false if it is of a kind that is not expressed. */
bool tide_quantization_read(tide_arguments *words, const tide_json *from);

/* files.c: what the files are. */
typedef struct tide_inputs {
    tide_json *config;
    const char *config_name; /* of the model */
    const char *config_file;
    tide_json *preprocessor;
    const tide_json *description;
    tide_text description_text;
    tide_text config_text, preprocessor_text; /* of files */
    const char *title, *source;
    int64_t published_parameters;
    const char *asked_model, *asked_place; /* that a file which starts training names; NULL: none */
    tide_file_summary *cards, *last_card;
    tide_checkpoint checkpoint;
} tide_inputs;

/* Words of job files go to *words; the rest to *given. */
void tide_files_read(tide_inputs *given, tide_arguments *words, const tide_file *files, uint32_t count);
/* The members of a catalogue entry; false after an error. */
bool tide_entry_read(tide_inputs *given, tide_arena *arena, const tide_json *entry, const char *place,
                     tide_diagnostics *diags);

#endif
