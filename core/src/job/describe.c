/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the settings, the catalogue and the GPUs, for forms and completion. */
#include "job/settings.h"

#include "base/units.h"
#include "job/foreign_keys.h"
#include "lang/lang.h"

static const char *const type_names[] = {
    [TIDE_SETTING_INT] = "int",       [TIDE_SETTING_NUMBER] = "number",       [TIDE_SETTING_BOOL] = "bool",
    [TIDE_SETTING_CHOICE] = "choice", [TIDE_SETTING_DTYPE] = "choice",        [TIDE_SETTING_TEXT] = "text",
    [TIDE_SETTING_LIST] = "list",     [TIDE_SETTING_SIZE] = "size",           [TIDE_SETTING_LENGTHS] = "lengths",
    [TIDE_SETTING_NAME] = "text",     [TIDE_SETTING_OVERRIDES] = "overrides", [TIDE_SETTING_RECIPE] = "choice",
    [TIDE_SETTING_COUNTS] = "counts",
};

static const char *const read_names[] = {
    [TIDE_READ_LOAD] = "load", [TIDE_READ_PLAY] = "play", [TIDE_READ_STEP] = "step"};

/* Groups of forms, in order. */
static const struct {
    const char *name, *title;
} groups[] = {
    {"model", "Model"},         {"memory", "Memory"},         {"training", "Training"},
    {"batch", "Data"},          {"precision", "Precision"},   {"adapter", "Adapters and quantised weights"},
    {"attention", "Attention"}, {"inference", "Inference"},   {"serving", "Serving"},
    {"advanced", "Advanced"},   {"parallel", "Several GPUs"},
};

static void write_setting_groups(tide_writer *writer) {
    tide_write_key(writer, "groups");
    tide_write_open(writer, '[');
    for (size_t i = 0; i < TIDE_COUNT_OF(groups); i++) {
        tide_write_open(writer, '{');
        tide_write_string_at(writer, "name", groups[i].name);
        tide_write_string_at(writer, "title", groups[i].title);
        tide_write_close(writer, '}');
    }
    tide_write_close(writer, ']');
}

/* Its own, and keys of other programs. */
static void write_aliases(tide_writer *writer, tide_setting_id id) {
    tide_text rest = tide_text_of(tide_settings[id].aliases), name;
    uint32_t at = 0;
    tide_write_key(writer, "aliases");
    tide_write_open(writer, '[');
    while (tide_piece_next(&rest, '|', &name))
        if (name.length) tide_write_text(writer, name);
    while ((name = tide_foreign_key_of(id, &at)).length)
        if (tide_setting_find_own(name, false) == TIDE_SET_COUNT) tide_write_text(writer, name);
    tide_write_close(writer, ']');
}

/* "quant.group_size" becomes "Quant group size" if a row has no title. */
static void write_title(tide_arena *arena, tide_writer *writer, const tide_setting *setting) {
    char *title = tide_text_copy(arena, tide_text_of(setting->title ? setting->title : setting->name));
    for (char *c = title; *c && !setting->title; c++)
        if (*c == '_' || *c == '.') *c = ' ';
    if (*title >= 'a' && *title <= 'z') *title = (char)(*title - 'a' + 'A');
    tide_write_string_at(writer, "title", title);
}

static void write_choices(tide_writer *writer, const tide_setting *setting) {
    tide_text choice;
    if (!tide_setting_chooses(setting)) return;
    tide_write_key(writer, "choices");
    tide_write_open(writer, '[');
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++) tide_write_text(writer, choice);
    tide_write_close(writer, ']');
}

/* {"WORD": "CHOICE"} */
static void write_synonyms(tide_arena *arena, tide_writer *writer, const tide_setting *setting) {
    tide_text rest = tide_text_of(setting->synonyms), synonym, word;
    if (!setting->synonyms) return;
    tide_write_key(writer, "synonyms");
    tide_write_open(writer, '{');
    while (tide_piece_next(&rest, '|', &synonym))
        if (tide_piece_next(&synonym, '=', &word)) {
            tide_write_key(writer, tide_text_copy(arena, word));
            tide_write_text(writer, synonym);
        }
    tide_write_close(writer, '}');
}

/* Limits of integers, as text for decimals; the maximum length in bytes for names and texts. */
static void write_bounds(tide_arena *arena, tide_writer *writer, const tide_setting *setting) {
    bool is_number = setting->type == TIDE_SETTING_NUMBER, is_int = setting->type == TIDE_SETTING_INT;
    if (is_number) {
        tide_write_string_at(writer, "least", tide_decimal_text(arena, setting->least));
        tide_write_string_at(writer, "most", tide_decimal_text(arena, setting->most));
    } else if (is_int || setting->type == TIDE_SETTING_SIZE) {
        tide_write_int_at(writer, "least", setting->least);
        tide_write_int_at(writer, "most", setting->most);
    } else if (setting->most) {
        tide_write_int_at(writer, "most", setting->most);
    }
}

/* {"setting": NAME, "choices": [...]}: the setting is read if that one has one of these values. */
static void write_condition(tide_writer *writer, const tide_setting *setting) {
    tide_text list, choice;
    bool is_excluded;
    tide_setting_id needs = tide_setting_needs(setting, &list, &is_excluded);
    if (needs == TIDE_SET_COUNT) return;
    tide_write_key(writer, "when");
    tide_write_open(writer, '{');
    tide_write_string_at(writer, "setting", tide_settings[needs].name);
    tide_write_key(writer, "choices");
    tide_write_open(writer, '[');
    for (uint32_t i = 0; (choice = tide_setting_choice(&tide_settings[needs], i)).length; i++)
        if (tide_beginning_listed(list.at, tide_text_copy(writer->arena, choice)) != is_excluded)
            tide_write_text(writer, choice);
    tide_write_close(writer, ']');
    tide_write_close(writer, '}');
}

static const char *group_of(tide_arena *arena, const tide_setting *setting) {
    tide_text rest = tide_text_of(setting->name), object;
    tide_piece_next(&rest, '.', &object);
    return setting->group ? setting->group : tide_text_copy(arena, object);
}

static void write_help(tide_writer *writer, tide_setting_id id) {
    tide_write_string_at(writer, "help", tide_setting_help[id]);
}

static void write_setting(tide_arena *arena, tide_writer *writer, tide_setting_id id, bool with_help) {
    const tide_setting *setting = &tide_settings[id];
    tide_write_open(writer, '{');
    tide_write_string_at(writer, "name", setting->name);
    write_title(arena, writer, setting);
    tide_write_string_at(writer, "type", type_names[setting->type]);
    tide_write_string_at(writer, "default", tide_setting_default(id));
    if (!setting->default_value && setting->otherwise) tide_write_int_at(writer, "otherwise", setting->otherwise);
    write_choices(writer, setting);
    if (with_help) write_synonyms(arena, writer, setting);
    write_bounds(arena, writer, setting);
    if (setting->unit) tide_write_string_at(writer, "unit", setting->unit);
    tide_write_string_at(writer, "group", group_of(arena, setting));
    write_condition(writer, setting);
    tide_write_string_at(writer, "read", read_names[setting->read]);
    if (with_help && setting->variable) tide_write_string_at(writer, "variable", setting->variable);
    if (with_help) write_help(writer, id);
    write_aliases(writer, id);
    tide_write_close(writer, '}');
}

static void write_copied(tide_writer *writer, const tide_json *entry, const char *key) {
    const tide_json *value = tide_json_at(entry, key);
    if (!value) return;
    if (value->kind == TIDE_JSON_STRING) tide_write_string_at(writer, key, value->text.at);
    if (value->kind == TIDE_JSON_NUMBER && value->is_integer) tide_write_int_at(writer, key, value->integer);
}

static void write_members(tide_writer *writer, const tide_json *entry, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; i++) write_copied(writer, entry, keys[i]);
}

static tide_json *parse_source(tide_arena *arena, const tide_source *source) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const tide_source whole = tide_source_whole(arena, source);
    return tide_json_parse(arena, (tide_text){whole.text, whole.length}, "", &scratch);
}

static void write_models(tide_arena *arena, tide_writer *writer) {
    static const char *const keys[] = {"title", "parameters", "source"};
    tide_write_key(writer, "models");
    tide_write_open(writer, '[');
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++) {
        const tide_json *entry = parse_source(arena, &tide_catalogue_sources[i]);
        if (!entry) continue;
        tide_write_open(writer, '{');
        tide_write_string_at(writer, "name", tide_catalogue_sources[i].name);
        write_members(writer, entry, keys, TIDE_COUNT_OF(keys));
        const tide_json *type = tide_config_type(tide_json_at(entry, "config"));
        if (type && type->kind == TIDE_JSON_STRING) tide_write_string_at(writer, "model_type", type->text.at);
        tide_write_close(writer, '}');
    }
    tide_write_close(writer, ']');
}

static void write_gpus(tide_arena *arena, tide_writer *writer) {
    static const char *const keys[] = {"name", "title",          "bytes",        "capability",
                                       "sms",  "threads_per_sm", "context_bytes"};
    const tide_json *list = tide_json_at(parse_source(arena, &tide_gpu_source), "gpus");
    tide_write_key(writer, "gpus");
    tide_write_open(writer, '[');
    for (const tide_json *entry = list ? list->first : NULL; entry; entry = entry->next) {
        tide_write_open(writer, '{');
        write_members(writer, entry, keys, TIDE_COUNT_OF(keys));
        tide_write_close(writer, '}');
    }
    tide_write_close(writer, ']');
}

void tide_job_describe(tide_arena *arena, tide_writer *writer, bool is_form) {
    tide_write_key(writer, "settings");
    tide_write_open(writer, '[');
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) write_setting(arena, writer, (tide_setting_id)id, !is_form);
    tide_write_close(writer, ']');
    write_setting_groups(writer);
    if (!is_form) write_models(arena, writer);
    write_gpus(arena, writer);
}
