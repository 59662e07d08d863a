/* The table of settings, and its names. */
#include "job/settings.h"

#include <string.h>

#include "lang/embedded_models.h"

const tide_setting tide_settings[TIDE_SET_COUNT] = {
#define TIDE_SETTING(name, type, value, choices, synonyms, unit, group, aliases, least, most, help)                    \
    {#name, TIDE_SETTING_##type, value, choices, synonyms, unit, group, aliases, least, most, ""},
#define TIDE_SETTING_IN(object, kinds, key, type, value, choices, synonyms, unit, group, aliases, least, most, help)   \
    {#object "." #key, TIDE_SETTING_##type, value, choices, synonyms, unit, group, aliases, least, most, kinds},
#define TIDE_OPTION(key, kinds, type, value, choices, synonyms, unit, aliases, least, most, help)                      \
    {"parallel." #key, TIDE_SETTING_##type, value, choices, synonyms, unit, "parallel", aliases, least, most, kinds},
#include "job/settings.def"
#undef TIDE_OPTION
#undef TIDE_SETTING_IN
#undef TIDE_SETTING
};

const char *const tide_setting_help[TIDE_SET_COUNT] = {
#define TIDE_SETTING(name, type, value, choices, synonyms, unit, group, aliases, least, most, help) help,
#define TIDE_SETTING_IN(object, kinds, key, type, value, choices, synonyms, unit, group, aliases, least, most, help)   \
    help,
#define TIDE_OPTION(key, kinds, type, value, choices, synonyms, unit, aliases, least, most, help) help,
#include "job/settings.def"
#undef TIDE_OPTION
#undef TIDE_SETTING_IN
#undef TIDE_SETTING
};

tide_name_list tide_names_of(tide_arena *arena, const char *list) {
    tide_text rest = tide_text_of(list), piece;
    uint32_t n = 1;
    for (const char *c = list; *c; c++) n += *c == ',';
    tide_name_list names = {TIDE_NEW(arena, const char *, n), 0};
    while (tide_piece_next(&rest, ',', &piece))
        if (piece.length) names.names[names.count++] = tide_text_copy(arena, piece);
    return names;
}

static bool is_alias(const tide_setting *setting, tide_text name) {
    tide_text rest = tide_text_of(setting->aliases), alias;
    while (tide_piece_next(&rest, '|', &alias))
        if (alias.length && tide_text_equal(name, alias)) return true;
    return false;
}

/* What a value is called: itself, if it is a choice, or the choice that it is a synonym of; empty if it is neither. */
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

/* adapter.KEY, by its key or one of its aliases. */
static tide_setting_id find_of_adapter(tide_text key) {
    static const char prefix[] = "adapter.";
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (strncmp(tide_settings[id].name, prefix, sizeof prefix - 1) == 0 &&
            (tide_text_is(key, tide_settings[id].name + sizeof prefix - 1) || is_alias(&tide_settings[id], key)))
            return (tide_setting_id)id;
    return TIDE_SET_COUNT;
}

tide_setting_id tide_setting_find(tide_text name) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (tide_text_is(name, tide_settings[id].name)) return (tide_setting_id)id;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (is_alias(&tide_settings[id], name)) return (tide_setting_id)id;
    tide_text key = name, first;
    tide_piece_next(&key, '.', &first);
    if (key.at && (tide_text_is(first, "adapter") || tide_setting_method(name).length)) return find_of_adapter(key);
    return TIDE_SET_COUNT;
}

bool tide_setting_is_of(const tide_setting *setting, const char *choice) {
    return tide_beginning_listed(setting->kinds, choice);
}

bool tide_setting_is_object(tide_text name) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_text known = tide_text_of(tide_settings[id].name);
        if (known.length > name.length && known.at[name.length] == '.' && tide_text_starts(known, name)) return true;
    }
    return tide_setting_choice_of(&tide_settings[TIDE_SET_adapter], name).length > 0;
}

const char *tide_setting_nearest(tide_arena *arena, tide_text name) {
    enum { NAMES_LIMIT = 256 };
    const char *names[NAMES_LIMIT];
    uint32_t count = 0;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) names[count++] = tide_settings[id].name;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_text rest = tide_text_of(tide_settings[id].aliases), alias;
        while (tide_piece_next(&rest, '|', &alias))
            if (alias.length && count < NAMES_LIMIT) names[count++] = tide_text_copy(arena, alias);
    }
    return tide_nearest(tide_text_of(tide_lowered(arena, name)), names, count);
}

tide_text tide_setting_choice(const tide_setting *setting, uint32_t index) {
    if (setting == &tide_settings[TIDE_SET_optimizer])
        return tide_text_of(index < tide_optimizer_name_count ? tide_optimizer_names[index] : NULL);
    if (setting == &tide_settings[TIDE_SET_recipe] && index)
        return tide_text_of(index <= tide_recipe_source_count ? tide_recipe_sources[index - 1].name : NULL);
    tide_text rest = tide_text_of(setting->choices), choice;
    for (uint32_t i = 0; tide_piece_next(&rest, '|', &choice); i++)
        if (i == index) return choice;
    return (tide_text){"", 0};
}

bool tide_setting_has_choice(const tide_setting *setting, tide_text value) {
    tide_text choice;
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++)
        if (tide_text_equal(choice, value)) return true;
    return false;
}
