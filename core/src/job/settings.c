/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and their names. */
#include "job/settings.h"

#include <stddef.h>
#include <string.h>

#include "base/units.h"
#include "job/foreign_keys.h"
#include "job/trainers.h"
#include "lang/lang.h"

/* ---- choices ---- */

/* A trailing `_` of a choice is not part of the word: see tide_setting_choice. */
#define TIDE_CHOICE_NAMES_NOTHING(name, ...)
#define TIDE_CHOICE_NAMES_ENUM(name, ...)                                                                              \
    static const char *const choices_of_##name[] = {TIDE_EACH(TIDE_CHOICE_NAME, name, __VA_ARGS__)};
#define TIDE_CHOICE_NAMES_WORDS TIDE_CHOICE_NAMES_ENUM
#define TIDE_CHOICE_NAME(name, choice) #choice,

#define TIDE_SETTING(name, type, ...) TIDE_CHOICES(TIDE_CHOICE_NAMES, name, TIDE_CHOICES_##type)
#include "job/settings.def"

static const char *const choices_of_optimizer[] = {
#define TIDE_OPTIMIZER(name, ...) #name,
#include "job/optimizers.def"
#undef TIDE_OPTIMIZER
};

static const char *const choices_of_trainer[] = {
#define TIDE_TRAINER(name, ...) #name,
#include "job/trainers.def"
#undef TIDE_TRAINER
};

static const char trainer_synonyms[] =
#define TIDE_TRAINER(name, synonyms, ...) synonyms
#include "job/trainers.def"
#undef TIDE_TRAINER
    ;
#define TIDE_TRAINER_SYNONYMS trainer_synonyms

/* ---- the table ---- */

#define TIDE_TYPE_INT TIDE_SETTING_INT
#define TIDE_TYPE_NUMBER TIDE_SETTING_NUMBER
#define TIDE_TYPE_BOOL TIDE_SETTING_BOOL
#define TIDE_TYPE_CHOICE(...) TIDE_SETTING_CHOICE
#define TIDE_TYPE_DTYPE(...) TIDE_SETTING_DTYPE
#define TIDE_TYPE_ROWS(of) TIDE_SETTING_CHOICE, TIDE_ROW_CHOICES(of)
#define TIDE_TYPE_TEXT TIDE_SETTING_TEXT
#define TIDE_TYPE_LIST TIDE_SETTING_LIST
#define TIDE_TYPE_SIZE TIDE_SETTING_SIZE
#define TIDE_TYPE_LENGTHS TIDE_SETTING_LENGTHS
#define TIDE_TYPE_COUNTS TIDE_SETTING_COUNTS
#define TIDE_TYPE_NAME TIDE_SETTING_NAME
#define TIDE_TYPE_RECIPE TIDE_SETTING_RECIPE
#define TIDE_TYPE_OVERRIDES TIDE_SETTING_OVERRIDES

#define TIDE_OFFSET_INT(id) offsetof(tide_job, id)
#define TIDE_OFFSET_NUMBER TIDE_OFFSET_INT
#define TIDE_OFFSET_BOOL TIDE_OFFSET_INT
#define TIDE_OFFSET_CHOICE(...) TIDE_OFFSET_INT
#define TIDE_OFFSET_DTYPE(...) TIDE_OFFSET_INT
#define TIDE_OFFSET_ROWS(of) TIDE_OFFSET_INT
#define TIDE_OFFSET_TEXT TIDE_OFFSET_INT
#define TIDE_OFFSET_LIST TIDE_OFFSET_INT
#define TIDE_OFFSET_SIZE TIDE_OFFSET_INT
#define TIDE_OFFSET_LENGTHS TIDE_OFFSET_INT
#define TIDE_OFFSET_COUNTS TIDE_OFFSET_INT
#define TIDE_OFFSET_NAME(id) 0
#define TIDE_OFFSET_RECIPE(id) 0
#define TIDE_OFFSET_OVERRIDES(id) 0

#define TIDE_ROW_CHOICES(id) .choices = choices_of_##id, .choice_count = TIDE_COUNT_OF(choices_of_##id)
#define TIDE_ROW_CHOICES_NOTHING(id, ...)
#define TIDE_ROW_CHOICES_ENUM(id, ...) TIDE_ROW_CHOICES(id),
#define TIDE_ROW_CHOICES_WORDS TIDE_ROW_CHOICES_ENUM

#define TIDE_ROW(name_, id, type_, ...)                                                                                \
    {.name = name_,                                                                                                    \
     .type = TIDE_TYPE_##type_,                                                                                        \
     .offset = TIDE_OFFSET_##type_(id),                                                                                \
     TIDE_CHOICES(TIDE_ROW_CHOICES, id, TIDE_CHOICES_##type_) __VA_ARGS__},

const tide_setting tide_settings[TIDE_SET_COUNT] = {
#define TIDE_SETTING(name, type, help, ...) TIDE_ROW(#name, name, type, __VA_ARGS__)
#define TIDE_SETTING_OF(object, key, type, help, ...) TIDE_ROW(#object "." #key, object##_##key, type, __VA_ARGS__)
#include "job/settings.def"
};

const char *const tide_setting_help[TIDE_SET_COUNT] = {
#define TIDE_SETTING(name, type, help, ...) help,
#include "job/settings.def"
};

const char *tide_setting_default(tide_setting_id id) {
    const char *text = tide_settings[id].default_value;
    return text ? text : "";
}

tide_read tide_setting_read_at(tide_setting_id id) {
    return id < TIDE_SET_COUNT ? tide_settings[id].read : TIDE_READ_LOAD;
}

tide_name_list tide_names_of(tide_arena *arena, const char *list) {
    tide_text rest = tide_text_of(list), piece;
    uint32_t n = 1;
    for (const char *c = list; *c; c++) n += *c == ',';
    tide_name_list names = {TIDE_NEW(arena, const char *, n), 0};
    while (tide_piece_next(&rest, ',', &piece))
        if (piece.length) names.names[names.count++] = tide_text_copy(arena, piece);
    return names;
}

tide_counts tide_counts_of(tide_arena *arena, tide_text list) {
    tide_text rest = list, piece;
    uint32_t count = list.length > 0;
    for (size_t i = 0; i < list.length; i++) count += list.at[i] == ',';
    int64_t *of = TIDE_NEW(arena, int64_t, count);
    for (uint32_t i = 0; i < count && tide_piece_next(&rest, ',', &piece); i++) tide_text_to_i64(&of[i], piece);
    return (tide_counts){of, count};
}

/* ---- names ---- */

static bool is_alias(const tide_setting *setting, tide_text name) {
    return name.length && tide_text_is_among(name, setting->aliases);
}

bool tide_setting_is_world_size(tide_text name) {
    return tide_text_is_among(name, TIDE_WORLD_SIZE_NAMES);
}

/* The choice for a value: the value itself, or the choice that it is a synonym of; empty if it is neither. */
tide_text tide_setting_choice_of(const tide_setting *setting, tide_text value) {
    tide_text rest = tide_text_of(setting->synonyms), synonym, from, choice;
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++)
        if (tide_text_same(value, choice)) return choice;
    while (tide_piece_next(&rest, '|', &synonym))
        if (tide_piece_next(&synonym, '=', &from) && synonym.at && tide_text_same(value, from)) return synonym;
    return (tide_text){"", 0};
}

tide_text tide_setting_method(tide_text name) {
    tide_text rest = name, first;
    tide_piece_next(&rest, '.', &first);
    tide_text method = rest.at ? tide_setting_choice_of(&tide_settings[TIDE_SET_adapter], first) : rest;
    return tide_text_is(method, "none") || !rest.at ? (tide_text){"", 0} : method;
}

/* adapter.KEY, by its key, an alias or peft's name in other programs: lora_alpha. */
static tide_setting_id find_of_adapter(tide_text key) {
    static const char prefix[] = "adapter.";
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (strncmp(tide_settings[id].name, prefix, sizeof prefix - 1) == 0 &&
            (tide_text_is(key, tide_settings[id].name + sizeof prefix - 1) || is_alias(&tide_settings[id], key)))
            return (tide_setting_id)id;
    tide_setting_id id = tide_foreign_setting(key);
    bool is_of_adapter = id < TIDE_SET_COUNT && strncmp(tide_settings[id].name, prefix, sizeof prefix - 1) == 0;
    return is_of_adapter ? id : TIDE_SET_COUNT;
}

bool tide_setting_is_of_server(tide_setting_id id) {
    return id >= TIDE_SET_engine && id <= TIDE_SET_worker_rank;
}

bool tide_setting_serves(tide_setting_id id) {
    static const tide_setting_id others[] = {TIDE_SET_model,   TIDE_SET_gpu,        TIDE_SET_mode,      TIDE_SET_dtype,
                                             TIDE_SET_gpu_gib, TIDE_SET_capability, TIDE_SET_overrides, TIDE_SET_title};
    for (size_t i = 0; i < TIDE_COUNT_OF(others); i++)
        if (others[i] == id) return true;
    return tide_setting_is_of_server(id);
}

bool tide_setting_is_of_engine(tide_setting_id id, const char *engine) {
    const char *when = tide_settings[id].when;
    return !when || strncmp(when, "engine=", strlen("engine=")) != 0 || tide_setting_is_of(&tide_settings[id], engine);
}

static tide_setting_id find_alias(tide_text name, bool of_server) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (tide_setting_is_of_server((tide_setting_id)id) == of_server && is_alias(&tide_settings[id], name))
            return (tide_setting_id)id;
    return TIDE_SET_COUNT;
}

tide_setting_id tide_setting_find_own(tide_text name, bool serves) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (tide_text_is(name, tide_settings[id].name)) return (tide_setting_id)id;
    tide_setting_id id = find_alias(name, serves);
    if (id == TIDE_SET_COUNT) id = find_alias(name, !serves);
    if (id < TIDE_SET_COUNT) return id;
    tide_text key = name, first;
    tide_piece_next(&key, '.', &first);
    if (key.at && tide_text_is(first, "trainer")) return tide_setting_find_own(key, serves);
    if (key.at && (tide_text_is(first, "adapter") || tide_setting_method(name).length)) return find_of_adapter(key);
    return TIDE_SET_COUNT;
}

tide_setting_id tide_setting_find_for(tide_text name, bool serves) {
    tide_setting_id id = tide_setting_find_own(name, serves);
    return id < TIDE_SET_COUNT ? id : tide_foreign_setting(name);
}

tide_setting_id tide_setting_find(tide_text name) {
    return tide_setting_find_for(name, false);
}

const char *tide_setting_named(tide_arena *arena, tide_text word) {
    tide_setting_id id = tide_setting_find(word);
    return id < TIDE_SET_COUNT ? tide_settings[id].name : tide_text_copy(arena, word);
}

tide_setting_id tide_setting_needs(const tide_setting *setting, tide_text *choices, bool *is_excluded) {
    tide_text rest = tide_text_of(setting->when), name;
    if (!rest.length) return TIDE_SET_COUNT;
    tide_piece_next(&rest, '=', &name);
    *choices = rest;
    *is_excluded = name.at[name.length - 1] == '!';
    if (*is_excluded) name.length--;
    return tide_setting_find(name);
}

bool tide_setting_is_of(const tide_setting *setting, const char *choice) {
    const char *equals = setting->when ? strchr(setting->when, '=') : NULL;
    return !equals || tide_beginning_listed(equals + 1, choice) == (equals[-1] != '!');
}

const char *tide_setting_wants(const tide_setting *setting) {
    const char *equals = setting->when ? strchr(setting->when, '=') : NULL;
    return equals && equals[-1] != '!' ? equals + 1 : "";
}

bool tide_setting_is_object(tide_text name) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_text known = tide_text_of(tide_settings[id].name);
        if (known.length > name.length && known.at[name.length] == '.' && tide_text_starts(known, name)) return true;
    }
    return tide_setting_choice_of(&tide_settings[TIDE_SET_adapter], name).length > 0;
}

/* Whether `name` is group.KEY; without a group, any name is. */
static bool is_of_group(tide_text group, const char *name) {
    return !group.length || (tide_text_starts(tide_text_of(name), group) && name[group.length] == '.');
}

const char *tide_setting_nearest(tide_arena *arena, tide_text group, tide_text key) {
    enum { NAMES_LIMIT = 1024 };
    const char *names[NAMES_LIMIT];
    uint32_t count = 0, prefix = group.length ? (uint32_t)group.length + 1 : 0;
    _Static_assert((int)TIDE_SET_COUNT < (int)NAMES_LIMIT, "all settings are among the names");
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (is_of_group(group, tide_settings[id].name)) names[count++] = tide_settings[id].name + prefix;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_text rest = tide_text_of(tide_settings[id].aliases), alias;
        uint32_t at = 0;
        if (!is_of_group(group, tide_settings[id].name)) continue;
        while (tide_piece_next(&rest, '|', &alias))
            if (alias.length && count < NAMES_LIMIT) names[count++] = tide_text_copy(arena, alias);
        while ((alias = tide_foreign_key_of((tide_setting_id)id, &at)).length && count < NAMES_LIMIT)
            names[count++] = tide_text_copy(arena, alias);
    }
    tide_text lowered = tide_text_of(tide_lowered(arena, key));
    const char *near = tide_nearest(lowered, names, count);
    return near || !group.length ? near : tide_nearest_beginning(lowered, names, count);
}

static const struct {
    const char *words, *means, *remedy;
} words[] = {
#define TIDE_WORD(words, means, remedy) {words, means, remedy},
#define TIDE_MEANS(words, means) {words, means, "write " means},
#include "job/words.def"
#undef TIDE_MEANS
#undef TIDE_WORD
};

const char *tide_word_remedy(tide_text word) {
    for (size_t i = 0; i < TIDE_COUNT_OF(words); i++)
        if (tide_text_is_among(word, words[i].words)) return words[i].remedy;
    return NULL;
}

const char *tide_word_meaning(tide_text word) {
    for (size_t i = 0; i < TIDE_COUNT_OF(words); i++)
        if (tide_text_is_among(word, words[i].words)) return words[i].means[0] ? words[i].means : NULL;
    return NULL;
}

bool tide_setting_chooses(const tide_setting *setting) {
    return setting->choices || setting->type == TIDE_SETTING_RECIPE;
}

tide_text tide_setting_choice(const tide_setting *setting, uint32_t index) {
    if (setting->type == TIDE_SETTING_RECIPE) {
        if (index == 0) return TIDE_TEXT("none");
        return tide_text_of(index <= tide_recipe_source_count ? tide_recipe_sources[index - 1].name : NULL);
    }
    if (index >= setting->choice_count) return TIDE_TEXT("");
    tide_text choice = tide_text_of(setting->choices[index]);
    if (choice.at[choice.length - 1] == '_') choice.length--;
    if (choice.length > 1 && choice.at[0] == '_' && choice.at[1] >= '0' && choice.at[1] <= '9') /* such as "1F1B" */
        choice = (tide_text){choice.at + 1, choice.length - 1};
    return choice;
}

bool tide_setting_has_choice(const tide_setting *setting, tide_text value) {
    tide_text choice;
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++)
        if (tide_text_equal(choice, value)) return true;
    return false;
}
