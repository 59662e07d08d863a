/* The table of settings, and values turned into canonical text. */
#include "job/settings.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
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

enum { LIST_LIMIT = 256, SHOWN_LIMIT = 60, NEAR_LIMIT = 4 };

/* ---- text ---- */

static bool text_is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

tide_text tide_trimmed(tide_text text) {
    while (text.length && text_is_blank(text.at[0])) text.at++, text.length--;
    while (text.length && text_is_blank(text.at[text.length - 1])) text.length--;
    return text;
}

static char text_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool text_same(tide_text a, tide_text b) {
    if (a.length != b.length) return false;
    for (size_t i = 0; i < a.length; i++)
        if (text_lower(a.at[i]) != text_lower(b.at[i])) return false;
    return true;
}

char *tide_lowered(tide_arena *arena, tide_text text) {
    char *copy = tide_text_copy(arena, text);
    for (size_t i = 0; i < text.length; i++) copy[i] = text_lower(copy[i]);
    return copy;
}

const char *tide_shown(tide_arena *arena, tide_text text) {
    bool is_cut = text.length > SHOWN_LIMIT;
    if (is_cut) {
        text.length = SHOWN_LIMIT - 3;
        while (text.length && ((unsigned char)text.at[text.length] & 0xc0) == 0x80) text.length--;
    }
    char *copy = tide_arena_alloc(arena, text.length + 4);
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.at[i];
        copy[i] = c < 0x20 || c == 0x7f ? '.' : (char)c;
    }
    if (is_cut) memcpy(copy + text.length, "...", 3);
    return copy;
}

bool tide_piece_next(tide_text *rest, char separator, tide_text *piece) {
    if (!rest->at) return false;
    const char *end = rest->length ? memchr(rest->at, separator, rest->length) : NULL;
    *piece = (tide_text){rest->at, end ? (size_t)(end - rest->at) : rest->length};
    *rest = end ? (tide_text){end + 1, rest->length - piece->length - 1} : (tide_text){NULL, 0};
    return true;
}

const char *tide_near_names(tide_arena *arena, tide_text name, const char **candidates, uint32_t count) {
    const char *found[NEAR_LIMIT];
    uint32_t found_count = 0;
    tide_text lowered = tide_text_of(tide_lowered(arena, name));
    if (lowered.length == 0) return NULL;
    for (uint32_t i = 0; i < count && found_count < NEAR_LIMIT; i++)
        if (tide_text_starts(tide_text_of(candidates[i]), lowered)) found[found_count++] = candidates[i];
    const char **rest = TIDE_NEW(arena, const char *, count + 1);
    memcpy(rest, candidates, count * sizeof *rest);
    for (uint32_t had = found_count; found_count < NEAR_LIMIT && had == 0;) {
        const char *near = tide_nearest(lowered, rest, count);
        if (!near) near = tide_nearest_beginning(lowered, rest, count);
        if (!near) break;
        found[found_count++] = near;
        for (uint32_t i = 0; i < count; i++)
            if (rest[i] == near) rest[i] = "";
    }
    if (found_count == 0) return NULL;
    const char *line = found[0];
    for (uint32_t i = 1; i < found_count; i++)
        line = tide_format(arena, "%s%s%s", line, i + 1 == found_count ? " or " : ", ", found[i]);
    return line;
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

/* ---- decimals ---- */

/* Digits with one point and an exponent, read exactly; 12 decimals are kept. */
tide_decimal tide_decimal_read(int64_t *pico, tide_text text) {
    size_t i = 0;
    bool is_negative = false, has_point = false, has_digit = false;
    int64_t mantissa = 0, exponent = 12, stated = 0;
    if (i < text.length && (text.at[i] == '-' || text.at[i] == '+')) is_negative = text.at[i++] == '-';
    for (; i < text.length; i++) {
        char c = text.at[i];
        if (c == '.' && !has_point) {
            has_point = true;
        } else if (c >= '0' && c <= '9') {
            has_digit = true;
            if (mantissa > (INT64_MAX - 9) / 10) {
                if (c != '0' || !has_point) return has_point ? TIDE_DECIMAL_FINE : TIDE_DECIMAL_LARGE;
                continue;
            }
            mantissa = mantissa * 10 + (c - '0');
            if (has_point) exponent--;
        } else {
            break;
        }
    }
    if (!has_digit) return TIDE_DECIMAL_NONE;
    if (i < text.length) {
        if (text.at[i] != 'e' && text.at[i] != 'E') return TIDE_DECIMAL_NONE;
        if (!tide_text_to_i64(&stated, (tide_text){text.at + i + 1, text.length - i - 1})) return TIDE_DECIMAL_NONE;
        if (stated > 100) stated = 100;
        if (stated < -100) stated = -100;
    }
    exponent += stated;
    for (; exponent > 0 && mantissa; exponent--)
        if (!tide_mul_i64(&mantissa, mantissa, 10)) return TIDE_DECIMAL_LARGE;
    for (; exponent < 0 && mantissa; exponent++) {
        if (mantissa % 10) return TIDE_DECIMAL_FINE;
        mantissa /= 10;
    }
    *pico = is_negative ? -mantissa : mantissa;
    return TIDE_DECIMAL_OK;
}

const char *tide_decimal_text(tide_arena *arena, int64_t pico) {
    const char *sign = pico < 0 ? "-" : "";
    uint64_t size = pico < 0 ? 0 - (uint64_t)pico : (uint64_t)pico;
    char *text =
        tide_format(arena, "%s%" PRIu64 ".%012" PRIu64, sign, size / (uint64_t)TIDE_PICO, size % (uint64_t)TIDE_PICO);
    size_t length = strlen(text);
    while (text[length - 1] == '0') text[--length] = 0;
    if (text[length - 1] == '.') text[--length] = 0;
    return text;
}

/* ---- the table ---- */

static bool is_alias(const tide_setting *setting, tide_text name) {
    tide_text rest = tide_text_of(setting->aliases), alias;
    while (tide_piece_next(&rest, '|', &alias))
        if (alias.length && tide_text_equal(name, alias)) return true;
    return false;
}

/* What a value is called: itself, if it is a choice, or the choice that it is a synonym of; empty if it is neither. */
static tide_text choice_of(const tide_setting *setting, tide_text value) {
    tide_text rest = tide_text_of(setting->synonyms), synonym, from, choice;
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++)
        if (text_same(value, choice)) return choice;
    while (tide_piece_next(&rest, '|', &synonym))
        if (tide_piece_next(&synonym, '=', &from) && synonym.at && text_same(value, from)) return synonym;
    return (tide_text){"", 0};
}

tide_text tide_setting_method(tide_text name) {
    tide_text rest = name, first;
    tide_piece_next(&rest, '.', &first);
    tide_text method = rest.at ? choice_of(&tide_settings[TIDE_SET_adapter], first) : rest;
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

bool tide_beginning_listed(const char *list, const char *text) {
    tide_text rest = tide_text_of(list), piece;
    if (!rest.length) return true;
    while (tide_piece_next(&rest, '|', &piece))
        if (tide_text_starts(tide_text_of(text), piece)) return true;
    return false;
}

bool tide_setting_is_of(const tide_setting *setting, const char *choice) {
    return tide_beginning_listed(setting->kinds, choice);
}

bool tide_setting_is_object(tide_text name) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_text known = tide_text_of(tide_settings[id].name);
        if (known.length > name.length && known.at[name.length] == '.' && tide_text_starts(known, name)) return true;
    }
    return choice_of(&tide_settings[TIDE_SET_adapter], name).length > 0;
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

/* ---- values ---- */

typedef struct value_reader {
    tide_arena *arena;
    tide_diagnostics *diags;
    const tide_setting *setting;
    tide_text given; /* trimmed */
} value_reader;

/* Reports `is "...", but rule` at the setting; returns NULL. */
static const char *value_refuse(const value_reader *r, tide_status status, const char *rule, const char *remedy) {
    const char *place = tide_format(r->arena, "/settings/%s", r->setting->name);
    const char *message = r->given.length ? tide_format(r->arena, "is \"%s\"; %s", tide_shown(r->arena, r->given), rule)
                                          : tide_format(r->arena, "is empty; %s", rule);
    tide_error(r->diags, status, place, message, remedy);
    return NULL;
}

static bool value_is_unset(const value_reader *r) {
    return r->given.length == 0 || text_same(r->given, TIDE_TEXT("none")) || text_same(r->given, TIDE_TEXT("default"));
}

static const char *value_int(const value_reader *r) {
    const tide_setting *s = r->setting;
    const char *rule = tide_format(r->arena, "must be a whole number from %" PRId64 " to %" PRId64, s->least, s->most);
    int64_t value;
    if (s->default_value[0] == 0 && value_is_unset(r)) return "";
    if (!tide_text_to_i64(&value, r->given)) {
        bool is_digits = r->given.length > 0;
        for (size_t i = 0; i < r->given.length; i++)
            is_digits = is_digits && r->given.at[i] >= '0' && r->given.at[i] <= '9';
        return value_refuse(r, is_digits ? TIDE_ERR_FIELD_RANGE : TIDE_ERR_FIELD_TYPE, rule, NULL);
    }
    if (value < s->least || value > s->most) return value_refuse(r, TIDE_ERR_FIELD_RANGE, rule, NULL);
    return tide_format(r->arena, "%" PRId64, value);
}

/* 90, or 9.0 as the vendor writes it. */
static const char *value_capability(const value_reader *r) {
    int64_t pico;
    if (!memchr(r->given.at, '.', r->given.length)) return value_int(r);
    if (tide_decimal_read(&pico, r->given) != TIDE_DECIMAL_OK || pico % (TIDE_PICO / 10))
        return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be a compute capability, as 90 or 9.0", NULL);
    value_reader whole = *r;
    whole.given = tide_text_of(tide_format(r->arena, "%" PRId64, pico / (TIDE_PICO / 10)));
    return value_int(&whole);
}

static const char *value_number(const value_reader *r) {
    const tide_setting *s = r->setting;
    bool is_clip = s == &tide_settings[TIDE_SET_clip];
    int64_t pico = 0;
    if (value_is_unset(r) || (is_clip && text_same(r->given, TIDE_TEXT("false")))) return "";
    tide_decimal state = tide_decimal_read(&pico, r->given);
    const char *rule = tide_format(r->arena, "must be a number from %s to %s", tide_decimal_text(r->arena, s->least),
                                   tide_decimal_text(r->arena, s->most));
    if (state == TIDE_DECIMAL_NONE) return value_refuse(r, TIDE_ERR_FIELD_TYPE, rule, NULL);
    if (state == TIDE_DECIMAL_LARGE || (state == TIDE_DECIMAL_OK && (pico < s->least || pico > s->most)))
        return value_refuse(r, TIDE_ERR_FIELD_RANGE, rule, NULL);
    bool is_fraction = s == &tide_settings[TIDE_SET_memory_fraction];
    if (state == TIDE_DECIMAL_FINE || (is_fraction && pico % (TIDE_PICO / 1000000)))
        return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                            is_fraction ? "must have at most 6 decimals" : "must have at most 12 decimals", "round it");
    if (is_clip && pico == 0) return ""; /* a norm of 0 is false in Python: no clipping */
    return tide_decimal_text(r->arena, pico);
}

static const char *value_bool(const value_reader *r) {
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no", "off"};
    for (unsigned i = 0; i < 4; i++) {
        if (text_same(r->given, tide_text_of(yes[i]))) return "true";
        if (text_same(r->given, tide_text_of(no[i]))) return "false";
    }
    return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be true or false", NULL);
}

static const char *value_choice(const value_reader *r) {
    enum { CHOICE_LIMIT = 128 };
    const char *names[CHOICE_LIMIT], *list = NULL;
    uint32_t count = 0;
    tide_text choice = choice_of(r->setting, r->given);
    if (choice.length) return tide_text_copy(r->arena, choice);
    for (; count < CHOICE_LIMIT && (choice = tide_setting_choice(r->setting, count)).length; count++) {
        names[count] = tide_text_copy(r->arena, choice);
        list = list ? tide_format(r->arena, "%s, %s", list, names[count]) : names[count];
    }
    const char *near = tide_nearest(tide_text_of(tide_lowered(r->arena, r->given)), names, count);
    return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                        tide_format(r->arena, count > 1 ? "must be one of %s" : "must be %s", list ? list : ""),
                        near ? tide_format(r->arena, "did you mean %s?", near) : NULL);
}

static bool value_is_plain(tide_text text) {
    for (size_t i = 0; i < text.length; i++)
        if ((unsigned char)text.at[i] < 0x20 || text.at[i] == 0x7f) return false;
    return true;
}

static bool value_fits(const value_reader *r) {
    if (r->given.length > (size_t)r->setting->most) {
        value_refuse(r, TIDE_ERR_FIELD_RANGE,
                     tide_format(r->arena, "must be at most %" PRId64 " bytes long", r->setting->most), NULL);
        return false;
    }
    if (!value_is_plain(r->given)) {
        value_refuse(r, TIDE_ERR_FIELD_TYPE, "must hold no control characters", NULL);
        return false;
    }
    return true;
}

static const char *value_text(const value_reader *r) {
    if (!value_fits(r)) return NULL;
    if (r->setting == &tide_settings[TIDE_SET_gpu] && text_same(r->given, TIDE_TEXT("none"))) return "";
    return tide_text_copy(r->arena, r->given);
}

static bool value_list_has(tide_text list, tide_text name) {
    tide_text piece;
    while (tide_piece_next(&list, ',', &piece))
        if (tide_text_equal(piece, name)) return true;
    return false;
}

/* Names without blanks around them, each once. */
static const char *value_list(const value_reader *r) {
    if (!value_fits(r)) return NULL;
    char *out = tide_arena_alloc(r->arena, r->given.length + 1);
    size_t length = 0;
    uint32_t count = 0;
    tide_text rest = r->given, piece;
    while (tide_piece_next(&rest, ',', &piece)) {
        piece = tide_trimmed(piece);
        if (piece.length == 0 || value_list_has((tide_text){out, length}, piece)) continue;
        if (++count > LIST_LIMIT) return value_refuse(r, TIDE_ERR_FIELD_RANGE, "must hold at most 256 names", NULL);
        if (length) out[length++] = ',';
        memcpy(out + length, piece.at, piece.length);
        length += piece.length;
    }
    return out;
}

static const char *value_size(const value_reader *r) {
    const tide_setting *s = r->setting;
    if (value_is_unset(r)) return "";
    bool has_frames = strncmp(s->unit, "frames", 6) == 0;
    tide_text rest = r->given, part;
    int64_t frames = 0;
    if (has_frames) {
        if (!tide_piece_next(&rest, 'x', &part) || !rest.at || !tide_text_to_i64(&frames, tide_trimmed(part)))
            return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be frames x height x width, as 16x336x448", NULL);
        if (frames < 1 || frames > 100000)
            return value_refuse(r, TIDE_ERR_FIELD_RANGE, "must have from 1 to 100000 frames", NULL);
    }
    size_t cross = 0;
    while (cross < rest.length && text_lower(rest.at[cross]) != 'x') cross++;
    tide_text high = {rest.at, cross}, wide = high;
    if (cross < rest.length) wide = (tide_text){rest.at + cross + 1, rest.length - cross - 1};
    int64_t height, width;
    if (!tide_text_to_i64(&height, tide_trimmed(high)) || !tide_text_to_i64(&width, tide_trimmed(wide)))
        return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be height x width in pixels, as 336x336", NULL);
    if (height < s->least || height > s->most || width < s->least || width > s->most)
        return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                            tide_format(r->arena, "must have sides from %" PRId64 " to %" PRId64, s->least, s->most),
                            NULL);
    if (has_frames) return tide_format(r->arena, "%" PRId64 "x%" PRId64 "x%" PRId64, frames, height, width);
    return tide_format(r->arena, "%" PRId64 "x%" PRId64, height, width);
}

const char *tide_setting_read(tide_arena *arena, tide_setting_id id, tide_text value, tide_diagnostics *diags) {
    value_reader r = {arena, diags, &tide_settings[id], tide_trimmed(value)};
    if (strcmp(r.setting->unit, "seconds") == 0 && r.given.length > 1 && r.given.at[r.given.length - 1] == 's')
        r.given.length--;
    if (id == TIDE_SET_capability) return value_capability(&r);
    switch (r.setting->type) {
    case TIDE_SETTING_INT:
        return value_int(&r);
    case TIDE_SETTING_NUMBER:
        return value_number(&r);
    case TIDE_SETTING_BOOL:
        return value_bool(&r);
    case TIDE_SETTING_CHOICE:
        return value_choice(&r);
    case TIDE_SETTING_TEXT:
        return value_text(&r);
    case TIDE_SETTING_LIST:
        return value_list(&r);
    case TIDE_SETTING_SIZE:
        return value_size(&r);
    case TIDE_SETTING_OVERRIDES:
        break;
    }
    return value_refuse(&r, TIDE_ERR_FIELD_TYPE, "needs a path", "write overrides.num_hidden_layers=4");
}
