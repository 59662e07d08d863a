/* The settings, the catalogue and the cards, as forms and completions need them. */
#include "job/settings.h"

#include "base/units.h"
#include "lang/embedded_models.h"

static const char *const type_names[] = {
    [TIDE_SETTING_INT] = "int",       [TIDE_SETTING_NUMBER] = "number",       [TIDE_SETTING_BOOL] = "bool",
    [TIDE_SETTING_CHOICE] = "choice", [TIDE_SETTING_TEXT] = "text",           [TIDE_SETTING_LIST] = "list",
    [TIDE_SETTING_SIZE] = "size",     [TIDE_SETTING_OVERRIDES] = "overrides",
};

static void write_pieces(tide_writer *writer, const char *key, const char *joined) {
    tide_text rest = tide_text_of(joined), piece;
    tide_write_key(writer, key);
    tide_write_open(writer, '[');
    while (tide_piece_next(&rest, '|', &piece))
        if (piece.length) tide_write_text(writer, piece);
    tide_write_close(writer, ']');
}

static void write_choices(tide_writer *writer, const tide_setting *setting) {
    tide_text choice;
    if (setting->type != TIDE_SETTING_CHOICE) return;
    tide_write_key(writer, "choices");
    tide_write_open(writer, '[');
    for (uint32_t i = 0; (choice = tide_setting_choice(setting, i)).length; i++) tide_write_text(writer, choice);
    tide_write_close(writer, ']');
}

static void write_help(tide_writer *writer, tide_setting_id id) {
    tide_write_string_at(writer, "help", tide_setting_help[id]);
}

static void write_setting(tide_writer *writer, tide_setting_id id, bool with_help) {
    const tide_setting *setting = &tide_settings[id];
    tide_write_open(writer, '{');
    tide_write_string_at(writer, "name", setting->name);
    tide_write_string_at(writer, "type", type_names[setting->type]);
    tide_write_string_at(writer, "default", setting->default_value);
    write_choices(writer, setting);
    if (setting->type == TIDE_SETTING_INT) {
        tide_write_int_at(writer, "least", setting->least);
        tide_write_int_at(writer, "most", setting->most);
    }
    if (setting->unit[0]) tide_write_string_at(writer, "unit", setting->unit);
    tide_write_string_at(writer, "group", setting->group);
    if (with_help) write_help(writer, id);
    write_pieces(writer, "aliases", setting->aliases);
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
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) write_setting(writer, (tide_setting_id)id, !is_form);
    tide_write_close(writer, ']');
    if (!is_form) write_models(arena, writer);
    write_gpus(arena, writer);
}
