/* Settings as a table, their values as canonical text; private to job/. */
#ifndef TIDE_SETTINGS_H
#define TIDE_SETTINGS_H

#include "base/decimal.h"
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

/* The method of peft that a name METHOD.KEY begins with, canonical; empty if it is no such name. */
tide_text tide_setting_method(tide_text name);

/* Whether there are settings `name.KEY`. */
bool tide_setting_is_object(tide_text name);

/* The known name nearest to a misspelt one, or NULL. */
const char *tide_setting_nearest(tide_arena *arena, tide_text name);

/* The choice number `index`, or an empty text past the last. */
tide_text tide_setting_choice(const tide_setting *setting, uint32_t index);

/* The choice that a value is, or is a synonym of, in any case; empty if it is neither. */
tide_text tide_setting_choice_of(const tide_setting *setting, tide_text value);

bool tide_setting_has_choice(const tide_setting *setting, tide_text value);

/* A value as canonical text, or NULL after an error at /settings/NAME. */
const char *tide_setting_read(tide_arena *arena, tide_setting_id id, tide_text value, tide_diagnostics *diags);

/* Names joined by commas. */
tide_name_list tide_names_of(tide_arena *arena, const char *list);

/* Whether the choice of OBJECT reads a setting OBJECT.KEY. */
bool tide_setting_is_of(const tide_setting *setting, const char *choice);

#endif
