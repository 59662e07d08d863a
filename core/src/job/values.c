/* SPDX-License-Identifier: Apache-2.0 */
/* Converting values of settings to canonical text. */
#include "job/lengths.h"
#include "job/settings.h"

#include <inttypes.h>
#include <string.h>

enum { LIST_LIMIT = 256, COUNTS_LIMIT = 1024 };

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
    return r->given.length == 0 || tide_text_same(r->given, TIDE_TEXT("none")) ||
           tide_text_same(r->given, TIDE_TEXT("default"));
}

/* "8k" is 8192, "10GiB" a number of bytes; 0: it is neither, or more than the setting takes. */
static int64_t thousands_of(const tide_setting *setting, tide_text given) {
    static const char units[] = "kmgt";
    size_t digits = 0;
    while (digits < given.length && strchr("0123456789.", given.at[digits])) digits++;
    tide_text unit = {given.at + digits, given.length - digits};
    const char *letter = unit.length ? strchr(units, unit.at[0] | ' ') : NULL;
    bool is_unit =
        letter && (unit.length == 1 || tide_text_same((tide_text){unit.at + 1, unit.length - 1}, TIDE_TEXT("b")) ||
                   tide_text_same((tide_text){unit.at + 1, unit.length - 1}, TIDE_TEXT("ib")));
    int64_t pico;
    if (!is_unit || tide_decimal_read(&pico, (tide_text){given.at, digits}) != TIDE_DECIMAL_OK) return 0;
    int64_t size = INT64_C(1) << 10 * (letter - units + 1), whole = pico / TIDE_PICO;
    if (whole > setting->most / size) return 0;
    int64_t value = whole * size + pico % TIDE_PICO / 1000000 * size / (TIDE_PICO / 1000000);
    return value > setting->most ? 0 : value;
}

/* As a value the number must be written out, except where it is a length in tokens (tide_setting_tokens). */
static const char *remedy_of_thousands(const value_reader *r) {
    int64_t value = thousands_of(r->setting, r->given);
    return value ? tide_format(r->arena, "write %" PRId64, value) : NULL;
}

int64_t tide_setting_tokens(tide_setting_id id, tide_text value) {
    const tide_setting *setting = &tide_settings[id];
    value = tide_trimmed(value);
    bool is_length = setting->type == TIDE_SETTING_INT && tide_text_is(tide_text_of(setting->unit), "tokens");
    /* vLLM reads 8k as 8000 and 8K as 8192 */
    bool is_plain = value.length && (value.at[value.length - 1] | ' ') == 'k' && !tide_setting_is_of_server(id);
    return is_length && is_plain ? thousands_of(setting, value) : 0;
}

/* "2xl40s": a count and a GPU. */
static const char *remedy_of_cards(const value_reader *r) {
    int64_t count;
    tide_text rest = r->given, number;
    bool is_pair = tide_piece_next(&rest, 'x', &number) && rest.at && rest.length;
    if (!is_pair || !tide_text_to_i64(&count, tide_trimmed(number)) || count < 1) return NULL;
    if (rest.at[0] >= '0' && rest.at[0] <= '9') return NULL;
    return tide_format(r->arena, "write gpus=%" PRId64 " gpu=%s", count, tide_shown(r->arena, tide_trimmed(rest)));
}

/* "1024.0" or "1e3" */
static const char *remedy_of_decimal(const value_reader *r) {
    int64_t pico;
    bool is_whole = tide_decimal_read(&pico, r->given) == TIDE_DECIMAL_OK && pico % TIDE_PICO == 0;
    return is_whole ? tide_format(r->arena, "write %" PRId64, pico / TIDE_PICO) : NULL;
}

static const char *value_int(const value_reader *r) {
    const tide_setting *s = r->setting;
    const char *rule = tide_format(r->arena, "must be a whole number from %" PRId64 " to %" PRId64, s->least, s->most);
    int64_t value;
    if (!s->default_value && value_is_unset(r)) return "";
    tide_text synonym = tide_setting_choice_of(s, r->given);
    if (synonym.length) return tide_text_copy(r->arena, synonym);
    if (!tide_text_to_i64(&value, r->given)) {
        const char *thousands = remedy_of_thousands(r);
        bool is_digits = r->given.length > 0;
        for (size_t i = 0; i < r->given.length; i++)
            is_digits = is_digits && r->given.at[i] >= '0' && r->given.at[i] <= '9';
        const char *remedy = thousands ? thousands : is_digits ? NULL : remedy_of_decimal(r);
        return value_refuse(r, is_digits ? TIDE_ERR_FIELD_RANGE : TIDE_ERR_FIELD_TYPE, rule,
                            remedy ? remedy : remedy_of_cards(r));
    }
    if (value < s->least || value > s->most) return value_refuse(r, TIDE_ERR_FIELD_RANGE, rule, NULL);
    return tide_format(r->arena, "%" PRId64, value);
}

/* 90, or 9.0 as NVIDIA writes it. */
static const char *value_capability(const value_reader *r) {
    int64_t pico;
    if (!memchr(r->given.at, '.', r->given.length)) return value_int(r);
    if (tide_decimal_read(&pico, r->given) != TIDE_DECIMAL_OK || pico % (TIDE_PICO / 10))
        return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be a compute capability, such as 90 or 9.0", NULL);
    value_reader whole = *r;
    whole.given = tide_text_of(tide_format(r->arena, "%" PRId64, pico / (TIDE_PICO / 10)));
    return value_int(&whole);
}

/* "90%", or 90 where a fraction is meant. */
static const char *remedy_of_percent(const value_reader *r) {
    int64_t pico;
    tide_text number = r->given;
    if (number.length && number.at[number.length - 1] == '%') number.length--;
    if (r->setting->most != TIDE_PICO || tide_decimal_read(&pico, number) != TIDE_DECIMAL_OK) return NULL;
    if (number.length == r->given.length && pico < 2 * TIDE_PICO) return NULL;
    return pico > 0 && pico <= 100 * TIDE_PICO
               ? tide_format(r->arena, "write %s", tide_decimal_text(r->arena, pico / 100))
               : NULL;
}

/* "24GB" where a number of GiB is meant. */
static const char *remedy_of_gib(const value_reader *r) {
    int64_t pico;
    tide_text number = r->given;
    while (number.length && strchr("gGiIbB ", number.at[number.length - 1])) number.length--;
    bool is_size = tide_text_is(tide_text_of(r->setting->unit), "GiB") && number.length < r->given.length &&
                   tide_decimal_read(&pico, number) == TIDE_DECIMAL_OK;
    return is_size ? tide_format(r->arena, "write %s", tide_decimal_text(r->arena, pico)) : NULL;
}

static const char *read_number_value(const value_reader *r) {
    const tide_setting *s = r->setting;
    bool is_clip = s == &tide_settings[TIDE_SET_clip];
    int64_t pico = 0;
    if (value_is_unset(r) || (is_clip && tide_text_same(r->given, TIDE_TEXT("false")))) return "";
    tide_decimal state = tide_decimal_read(&pico, r->given);
    const char *rule = tide_format(r->arena, "must be a number from %s to %s", tide_decimal_text(r->arena, s->least),
                                   tide_decimal_text(r->arena, s->most));
    if (state == TIDE_DECIMAL_NONE) {
        const char *remedy = remedy_of_percent(r);
        return value_refuse(r, TIDE_ERR_FIELD_TYPE, rule, remedy ? remedy : remedy_of_gib(r));
    }
    if (state == TIDE_DECIMAL_LARGE || (state == TIDE_DECIMAL_OK && (pico < s->least || pico > s->most)))
        return value_refuse(r, TIDE_ERR_FIELD_RANGE, rule, remedy_of_percent(r));
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
        if (tide_text_same(r->given, tide_text_of(yes[i]))) return "true";
        if (tide_text_same(r->given, tide_text_of(no[i]))) return "false";
    }
    return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be true or false", NULL);
}

static const char *value_choice(const value_reader *r) {
    enum { CHOICE_LIMIT = 128 };
    const char *names[CHOICE_LIMIT], *list = NULL;
    uint32_t count = 0;
    tide_text choice = tide_setting_choice_of(r->setting, r->given);
    if (choice.length) return tide_text_copy(r->arena, choice);
    for (; count < CHOICE_LIMIT && (choice = tide_setting_choice(r->setting, count)).length; count++) {
        names[count] = tide_text_copy(r->arena, choice);
        list = list ? tide_format(r->arena, "%s, %s", list, names[count]) : names[count];
    }
    const char *word = tide_word_remedy(r->given);
    const char *near = tide_nearest(tide_text_of(tide_lowered(r->arena, r->given)), names, count);
    return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                        tide_format(r->arena, count > 1 ? "must be one of %s" : "must be %s", list ? list : ""),
                        word   ? word
                        : near ? tide_format(r->arena, "did you mean %s?", near)
                               : NULL);
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
        value_refuse(r, TIDE_ERR_FIELD_TYPE, "must not contain control characters", NULL);
        return false;
    }
    return true;
}

static const char *value_text(const value_reader *r) {
    if (!value_fits(r)) return NULL;
    if (r->setting == &tide_settings[TIDE_SET_gpu] && tide_text_same(r->given, TIDE_TEXT("none"))) return "";
    return tide_text_copy(r->arena, r->given);
}

static bool value_list_has(tide_text list, tide_text name) {
    tide_text piece;
    while (tide_piece_next(&list, ',', &piece))
        if (tide_text_equal(piece, name)) return true;
    return false;
}

/* Names without surrounding blanks or duplicates. */
static const char *value_list(const value_reader *r) {
    if (!value_fits(r)) return NULL;
    char *out = tide_arena_alloc(r->arena, r->given.length + 1);
    size_t length = 0;
    uint32_t count = 0;
    tide_text rest = r->given, piece;
    while (tide_piece_next(&rest, ',', &piece)) {
        piece = tide_trimmed(piece);
        if (piece.length == 0 || value_list_has((tide_text){out, length}, piece)) continue;
        if (++count > LIST_LIMIT) return value_refuse(r, TIDE_ERR_FIELD_RANGE, "must have at most 256 names", NULL);
        if (length) out[length++] = ',';
        memcpy(out + length, piece.at, piece.length);
        length += piece.length;
    }
    return out;
}

/* Integers without surrounding blanks. */
static const char *value_counts(const value_reader *r) {
    const tide_setting *s = r->setting;
    if (value_is_unset(r)) return "";
    tide_text rest = r->given, piece;
    const char *text = "";
    uint32_t count = 0;
    while (tide_piece_next(&rest, ',', &piece)) {
        int64_t number;
        if (++count > COUNTS_LIMIT || !tide_text_to_i64(&number, tide_trimmed(piece)) || number < s->least ||
            number > s->most)
            return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                                tide_format(r->arena,
                                            "must be at most %d whole numbers from %" PRId64 " to %" PRId64
                                            ", joined by commas",
                                            COUNTS_LIMIT, s->least, s->most),
                                NULL);
        text = tide_format(r->arena, "%s%s%" PRId64, text, *text ? "," : "", number);
    }
    return text;
}

static const char *value_size(const value_reader *r) {
    const tide_setting *s = r->setting;
    if (value_is_unset(r)) return "";
    bool has_frames = tide_text_starts(tide_text_of(s->unit), TIDE_TEXT("frames"));
    tide_text rest = r->given, part;
    int64_t frames = 0;
    if (has_frames) {
        if (!tide_piece_next(&rest, 'x', &part) || !rest.at || !tide_text_to_i64(&frames, tide_trimmed(part)))
            return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be frames x height x width, such as 16x336x448", NULL);
        if (frames < 1 || frames > 100000)
            return value_refuse(r, TIDE_ERR_FIELD_RANGE, "must have from 1 to 100000 frames", NULL);
    }
    size_t cross = 0;
    while (cross < rest.length && (rest.at[cross] | 0x20) != 'x' && rest.at[cross] != ',') cross++; /* or a list */
    tide_text high = {rest.at, cross}, wide = high;
    if (cross < rest.length) wide = (tide_text){rest.at + cross + 1, rest.length - cross - 1};
    int64_t height, width;
    if (!tide_text_to_i64(&height, tide_trimmed(high)) || !tide_text_to_i64(&width, tide_trimmed(wide)))
        return value_refuse(r, TIDE_ERR_FIELD_TYPE, "must be height x width in pixels, such as 336x336", NULL);
    if (height < s->least || height > s->most || width < s->least || width > s->most)
        return value_refuse(r, TIDE_ERR_FIELD_RANGE,
                            tide_format(r->arena, "must have sides from %" PRId64 " to %" PRId64, s->least, s->most),
                            NULL);
    if (has_frames) return tide_format(r->arena, "%" PRId64 "x%" PRId64 "x%" PRId64, frames, height, width);
    return tide_format(r->arena, "%" PRId64 "x%" PRId64, height, width);
}

static const char *value_lengths(const value_reader *r) {
    tide_lengths lengths;
    if (value_is_unset(r)) return "";
    if (!value_fits(r)) return NULL;
    const char *rule = tide_lengths_read(r->arena, r->given, &lengths);
    return rule ? value_refuse(r, TIDE_ERR_FIELD_RANGE, rule, NULL) : tide_lengths_text(r->arena, &lengths);
}

const char *tide_setting_read(tide_arena *arena, tide_setting_id id, tide_text value, tide_diagnostics *diags) {
    value_reader r = {arena, diags, &tide_settings[id], tide_trimmed(value)};
    bool is_time = tide_text_is(tide_text_of(r.setting->unit), "seconds");
    if (is_time && r.given.length > 1 && r.given.at[r.given.length - 1] == 's') r.given.length--;
    if (id == TIDE_SET_capability) return value_capability(&r);
    switch (r.setting->type) {
    case TIDE_SETTING_INT:
        return value_int(&r);
    case TIDE_SETTING_NUMBER:
        return read_number_value(&r);
    case TIDE_SETTING_BOOL:
        return value_bool(&r);
    case TIDE_SETTING_CHOICE:
    case TIDE_SETTING_DTYPE:
    case TIDE_SETTING_RECIPE:
        return value_choice(&r);
    case TIDE_SETTING_NAME:
    case TIDE_SETTING_TEXT:
        return value_text(&r);
    case TIDE_SETTING_LIST:
        return value_list(&r);
    case TIDE_SETTING_COUNTS:
        return value_counts(&r);
    case TIDE_SETTING_SIZE:
        return value_size(&r);
    case TIDE_SETTING_LENGTHS:
        return value_lengths(&r);
    case TIDE_SETTING_OVERRIDES:
        break;
    }
    return value_refuse(&r, TIDE_ERR_FIELD_TYPE, "needs a path", "write overrides.num_hidden_layers=4");
}
