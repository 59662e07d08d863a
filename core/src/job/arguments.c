/* SPDX-License-Identifier: Apache-2.0 */
/* Reads arguments (key=value) and job files into values of settings; duplicates, misspelt names and what cannot be
 * expressed are reported. */
#include "job/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"
#include "job/foreign_keys.h"

/* JOINED_LIMIT: longer than any valid value, so that text truncated here is refused. */
enum { OVERRIDE_LIMIT = 256, JOINED_LIMIT = 16384 };

void tide_arguments_init(tide_job_arguments *arguments, tide_arena *arena, tide_diagnostics *diags) {
    *arguments = (tide_job_arguments){.arena = arena, .diags = diags};
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) arguments->values[id] = tide_setting_default(id);
}

const char *tide_argument_name(const tide_job_arguments *arguments, tide_setting_id id) {
    return id == TIDE_SET_parallel_dp && arguments->dp_is_world_size ? "gpus" : tide_settings[id].name;
}

const char *tide_argument_text(const tide_job_arguments *arguments, tide_setting_id id) {
    return arguments->values[id];
}

bool tide_argument_is(const tide_job_arguments *arguments, tide_setting_id id, const char *value) {
    return strcmp(arguments->values[id], value) == 0;
}

bool tide_argument_is_true(const tide_job_arguments *arguments, tide_setting_id id) {
    return tide_argument_is(arguments, id, "true");
}

int64_t tide_argument_int(const tide_job_arguments *arguments, tide_setting_id id) {
    int64_t value = 0;
    tide_text_to_i64(&value, tide_text_of(arguments->values[id]));
    return value;
}

int64_t tide_argument_pico(const tide_job_arguments *arguments, tide_setting_id id) {
    int64_t pico = 0;
    tide_decimal_read(&pico, tide_text_of(arguments->values[id]));
    return pico;
}

tide_name_list tide_argument_names(const tide_job_arguments *arguments, tide_setting_id id) {
    return tide_names_of(arguments->arena, arguments->values[id]);
}

/* /settings/NAME with the JSON Pointer's escapes. */
static const char *argument_place(tide_arena *arena, tide_text name) {
    tide_text shown = tide_text_of(tide_shown(arena, name));
    char *place = tide_arena_alloc(arena, sizeof "/settings/" + shown.length * 2);
    size_t at = strlen("/settings/");
    memcpy(place, "/settings/", at);
    for (size_t i = 0; i < shown.length; i++) {
        char c = shown.at[i];
        if (c == '~' || c == '/') {
            place[at++] = '~';
            c = c == '~' ? '0' : '1';
        }
        place[at++] = c;
    }
    return place;
}

static void warn_twice(tide_job_arguments *arguments, const char *place) {
    tide_report(arguments->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, place,
                "is given more than once; the last value applies", "remove the others");
}

static tide_override *override_find(tide_job_arguments *arguments, tide_text path) {
    for (uint32_t i = 0; i < arguments->override_count; i++)
        if (tide_text_is(path, arguments->overrides[i].path)) return &arguments->overrides[i];
    return NULL;
}

static void override_add(tide_job_arguments *arguments, tide_text path, tide_json *value, const char *text,
                         tide_origin origin) {
    const char *place =
        argument_place(arguments->arena,
                       tide_text_of(tide_format(arguments->arena, "overrides.%s", tide_shown(arguments->arena, path))));
    if (memchr(path.at, '=', path.length)) {
        tide_error(arguments->diags, TIDE_ERR_FIELD_UNKNOWN, place, "has a `=` in its name",
                   "no configuration has a key like that");
        return;
    }
    tide_override *found = override_find(arguments, path);
    if (found && found->origin == origin) warn_twice(arguments, place);
    if (!found) {
        if (arguments->override_count == OVERRIDE_LIMIT) {
            tide_error(arguments->diags, TIDE_ERR_LIMIT, place, "more than 256 overrides", "give a configuration file");
            return;
        }
        TIDE_ROOM(arguments->arena, arguments->overrides, arguments->override_count, arguments->override_capacity);
        found = &arguments->overrides[arguments->override_count++];
        found->path = tide_text_copy(arguments->arena, path);
    }
    found->value = value;
    found->text = text;
    found->origin = origin;
}

static void override_read(tide_job_arguments *arguments, tide_text path, tide_text value, tide_origin origin) {
    const char *place =
        argument_place(arguments->arena,
                       tide_text_of(tide_format(arguments->arena, "overrides.%s", tide_shown(arguments->arena, path))));
    tide_json *json = tide_argument_json(arguments->arena, value, place, arguments->diags);
    if (json) override_add(arguments, path, json, tide_argument_json_text(arguments->arena, json), origin);
}

/* `v=1` ends a link. */
static void version_read(tide_job_arguments *arguments, tide_text value) {
    int64_t version;
    if (!tide_text_to_i64(&version, tide_trimmed(value)) || version < 1)
        tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, "/settings/v", "is not a link version",
                   "v=1 is the only one");
    else if (version > TIDE_LINK_VERSION)
        tide_error(
            arguments->diags, TIDE_ERR_UNSUPPORTED, "/settings/v",
            tide_format(arguments->arena, "is %" PRId64 ": made by a newer tidemark; this one reads v=1", version),
            "update tidemark");
}

/* max-model-len as max_model_len. */
static tide_text with_underscores(tide_arena *arena, tide_text name) {
    char *made = tide_text_copy(arena, name);
    for (char *c = made; *c; c++)
        if (*c == '-') *c = '_';
    return (tide_text){made, name.length};
}

/* --no-enable-prefix-caching. */
static const char *remedy_of_switch(tide_arena *arena, tide_text name) {
    if (!tide_text_starts(name, TIDE_TEXT("no_"))) return NULL;
    tide_setting_id id = tide_setting_find((tide_text){name.at + 3, name.length - 3});
    bool is_switch = id < TIDE_SET_COUNT && tide_settings[id].type == TIDE_SETTING_BOOL;
    return is_switch ? tide_format(arena, "write %s=false", tide_settings[id].name) : NULL;
}

/* What to write in place of an unknown GROUP.KEY. */
static const char *remedy_in_group(tide_arena *arena, tide_text group, tide_text key) {
    const char *near = tide_setting_nearest(arena, group, key);
    if (!near && tide_text_is(group, "trainer")) near = tide_setting_nearest(arena, (tide_text){"", 0}, key);
    const char *word = near && tide_text_is(key, near) ? NULL : tide_word_remedy(key);
    if (word) return word;
    if (!near) return tide_format(arena, "`describe settings` lists those of %s", tide_shown(arena, group));
    const char *full = tide_format(arena, "%s.%s", tide_shown(arena, group), near);
    bool is_key = tide_setting_find(tide_text_of(full)) < TIDE_SET_COUNT;
    return tide_format(arena, "did you mean %s?", is_key ? full : near);
}

/* For a library whose version cannot be chosen. */
static const char *remedy_of_library(tide_arena *arena, tide_text name) {
    tide_library library = tide_library_of_package(name);
    return library.title ? tide_format(arena,
                                       "leave it out: the figures are those of %s %s, with which a requirements.txt "
                                       "among the job's files is compared",
                                       library.title, library.version)
                         : NULL;
}

/* ---- keys of other programs ---- */

/* Reports a key that has no effect, or one of something that is not described, which leaves the job without a verdict;
 * false: it is neither. */
static bool foreign_report(tide_job_arguments *arguments, tide_text key, tide_text value) {
    const tide_foreign_key *row = tide_foreign_find(key);
    const char *place = argument_place(arguments->arena, key);
    bool has_word = tide_word_remedy(key) != NULL;
    if (!row) return false;
    if (tide_foreign_is_off(arguments->arena, row, value) || (row->is_neutral && !has_word)) {
        tide_report(arguments->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, place, "has no effect on memory", NULL);
        return true;
    }
    if (!row->matter || row->is_refused || has_word) return false;
    tide_report(arguments->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, place,
                tide_format(arguments->arena, "is not described and may matter: it %s", row->matter),
                "leave it out for the figures without it");
    tide_arguments_leave_undescribed(arguments, tide_text_copy(arguments->arena, key));
    return true;
}

/* "trainer.beta" for "beta"; NULL: no group has such a setting. */
static const char *setting_in_group(tide_arena *arena, tide_text key) {
    static const char *const groups[] = {"trainer", "adapter", "quant", "parallel"};
    for (size_t i = 0; i < TIDE_COUNT_OF(groups); i++) {
        const char *name = tide_format(arena, "%s.%.*s", groups[i], (int)key.length, key.at);
        tide_setting_id id = tide_setting_find_own(tide_text_of(name), false);
        if (id < TIDE_SET_COUNT && strcmp(tide_settings[id].name, name) == 0) return name;
    }
    return NULL;
}

/* What to write in place of a key that sets nothing by itself; NULL: no program has it. */
static const char *remedy_of_foreign(tide_arena *arena, tide_text key) {
    const tide_foreign_key *row = tide_foreign_find(key);
    const char *setting = setting_in_group(arena, key);
    if (!row) return NULL;
    if (setting) return tide_format(arena, "write %s=VALUE", setting);
    if (tide_foreign_remedy(row)) return tide_foreign_remedy(row);
    return row->matter ? tide_format(arena, "leave it out: it %s, which is not described", row->matter)
                       : "give the file, or the whole command, that has it: its keys are read together";
}

/* value: empty if it is not a single one. */
static void unknown_read(tide_job_arguments *arguments, tide_text name, tide_text value) {
    tide_arena *arena = arguments->arena;
    if (!remedy_of_library(arena, name) && foreign_report(arguments, with_underscores(arena, name), value)) return;
    tide_text key = name, group;
    tide_piece_next(&key, '.', &group);
    bool is_dotted = key.at != NULL, is_of_group = is_dotted && tide_setting_is_object(group);
    const char *remedy = remedy_of_switch(arena, is_of_group ? key : name);
    if (!remedy) remedy = tide_word_remedy(name);
    if (!remedy) remedy = remedy_of_library(arena, name);
    if (!remedy && is_of_group)
        remedy = remedy_in_group(arena, tide_setting_method(name).length ? TIDE_TEXT("adapter") : group, key);
    if (!remedy) remedy = remedy_of_foreign(arena, with_underscores(arena, name));
    if (!remedy && is_dotted && (tide_text_is(group, "config") || tide_text_is(group, "model")))
        remedy = tide_format(arena, "write overrides.%s, with the key that config.json has", tide_shown(arena, key));
    if (!remedy) {
        const char *near = tide_setting_nearest(arena, (tide_text){"", 0}, is_dotted ? group : name);
        const char *tail = is_dotted && near && strcmp(near, "overrides") == 0 ? ".KEY" : "";
        remedy = near ? tide_format(arena, "did you mean %s%s?", near, tail) : "`describe` lists the settings";
    }
    tide_error(arguments->diags, TIDE_ERR_FIELD_UNKNOWN, argument_place(arena, name),
               tide_format(arena, "\"%s\" is not a setting", tide_shown(arena, name)), remedy);
}

/* ---- forms: one word for several settings ---- */

/* n=2x8: nodes x GPUs; their product as text, NULL: it is neither. */
static const char *all_of_nodes(tide_arena *arena, tide_text value) {
    tide_text rest = value, nodes, gpus;
    int64_t of_nodes = 0, of_gpus = 1, all = 0;
    bool is_pair = tide_piece_next(&rest, 'x', &nodes) && (!rest.at || tide_piece_next(&rest, 'x', &gpus)) && !rest.at;
    is_pair = is_pair && tide_text_to_i64(&of_nodes, tide_trimmed(nodes)) &&
              (nodes.length == value.length || tide_text_to_i64(&of_gpus, tide_trimmed(gpus)));
    bool is_known = is_pair && of_nodes > 0 && of_gpus > 0 && tide_mul_i64(&all, of_nodes, of_gpus);
    return is_known ? tide_format(arena, "%" PRId64, all) : NULL;
}

static void nodes_read(tide_job_arguments *arguments, tide_text value, tide_origin origin) {
    const char *all = all_of_nodes(arguments->arena, value);
    if (all)
        tide_setting_put(arguments, TIDE_TEXT("world_size"), tide_text_of(all), origin);
    else
        tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, "/settings/n",
                   tide_format(arguments->arena, "is \"%s\"; must be nodes x GPUs, such as 2x8",
                               tide_shown(arguments->arena, value)),
                   NULL);
}

/* img=4x336x336: images per sample, and their size. */
static void images_read(tide_job_arguments *arguments, tide_text value, tide_origin origin) {
    tide_text rest = value, count;
    if (tide_piece_next(&rest, 'x', &count) && count.length)
        tide_setting_put(arguments, TIDE_TEXT("images"), count, origin);
    if (rest.at) tide_setting_put(arguments, TIDE_TEXT("image_size"), rest, origin);
}

static const struct {
    const char *name;
    void (*read)(tide_job_arguments *arguments, tide_text value, tide_origin origin);
} forms[] = {{"n", nodes_read}, {"img", images_read}};

enum { FORMS = TIDE_COUNT_OF(forms) };

bool tide_setting_is_form(tide_text name) {
    for (int i = 0; i < FORMS; i++)
        if (tide_text_is(name, forms[i].name)) return true;
    return tide_text_starts(name, TIDE_TEXT("overrides."));
}

/* The value of another program's key as that of a setting; false: it says nothing. */
static bool foreign_read(tide_job_arguments *arguments, tide_text key, tide_setting_id id, tide_text *value) {
    bool is_near;
    const char *place = argument_place(arguments->arena, key);
    tide_text given = *value;
    *value = tide_foreign_value(arguments->arena, key, given, &is_near);
    if (is_near) {
        tide_report(arguments->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, place,
                    tide_format(arguments->arena, "%s is not described: treated as %s=%s, which is similar",
                                tide_shown(arguments->arena, given), tide_settings[id].name,
                                tide_text_copy(arguments->arena, *value)),
                    NULL);
        tide_arguments_leave_undescribed(arguments, tide_text_copy(arguments->arena, key));
    }
    if (!value->length) foreign_report(arguments, key, given);
    return value->length > 0;
}

/* "8k" tokens as 8192, which is said. */
static tide_text length_read(tide_job_arguments *arguments, tide_setting_id id, tide_text value) {
    int64_t tokens = tide_setting_tokens(id, value);
    if (!tokens) return value;
    const char *text = tide_format(arguments->arena, "%" PRId64, tokens);
    tide_report(arguments->diags, TIDE_ASSUMPTION, TIDE_OK,
                tide_format(arguments->arena, "/settings/%s", tide_settings[id].name),
                tide_format(arguments->arena, "\"%s\" is read as %s", tide_shown(arguments->arena, value), text), NULL);
    return tide_text_of(text);
}

void tide_setting_put(tide_job_arguments *arguments, tide_text name, tide_text value, tide_origin origin) {
    static const char prefix[] = "overrides.";
    if (name.length == 1 && name.at[0] == 'v') {
        version_read(arguments, value);
        return;
    }
    for (int i = 0; i < FORMS; i++)
        if (tide_text_is(name, forms[i].name)) {
            forms[i].read(arguments, value, origin);
            return;
        }
    if (tide_text_starts(name, TIDE_TEXT(prefix))) {
        override_read(arguments, (tide_text){name.at + sizeof prefix - 1, name.length - sizeof prefix + 1}, value,
                      origin);
        return;
    }
    tide_setting_id id = tide_setting_find_own(name, arguments->serves);
    tide_text key = with_underscores(arguments->arena, name);
    if (id == TIDE_SET_COUNT) id = tide_setting_find_own(key, arguments->serves);
    if (id == TIDE_SET_COUNT) {
        id = tide_foreign_setting(key);
        if (id < TIDE_SET_COUNT && !foreign_read(arguments, key, id, &value)) return;
    }
    if (id == TIDE_SET_COUNT) {
        unknown_read(arguments, name, value);
        return;
    }
    if (origin == TIDE_ORIGIN_RECIPE && arguments->is_given[id]) return;
    tide_text method = tide_setting_method(name);
    if (method.length) arguments->method = tide_text_copy(arguments->arena, method);
    if (origin != TIDE_ORIGIN_FILE) value = length_read(arguments, id, value);
    const char *text = tide_setting_read(arguments->arena, id, value, arguments->diags);
    if (arguments->is_given[id] && arguments->origins[id] == origin)
        warn_twice(arguments, tide_format(arguments->arena, "/settings/%s", tide_settings[id].name));
    arguments->is_given[id] = true;
    arguments->origins[id] = origin;
    arguments->values[id] = text ? text : tide_setting_default(id);
    if (id == TIDE_SET_parallel_dp) arguments->dp_is_world_size = tide_setting_is_world_size(key);
    if (id == TIDE_SET_mode) arguments->serves = tide_argument_is(arguments, id, "serve");
}

void tide_arguments_leave_undescribed(tide_job_arguments *arguments, const char *key) {
    const char *listed = tide_argument_text(arguments, TIDE_SET_undescribed);
    arguments->is_given[TIDE_SET_undescribed] = false; /* so that it may be put again */
    tide_setting_put(arguments, TIDE_TEXT("undescribed"),
                     tide_text_of(*listed ? tide_format(arguments->arena, "%s,%s", listed, key) : key),
                     TIDE_ORIGIN_FILE);
}

static tide_text asked_value(tide_job_arguments *arguments, tide_text name, tide_text value) {
    bool is_near, is_own = tide_setting_find_own(name, false) < TIDE_SET_COUNT;
    return is_own ? value : tide_foreign_value(arguments->arena, name, value, &is_near);
}

void tide_arguments_foresee(tide_job_arguments *arguments, const tide_text *words, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        tide_text value = words[i], name;
        if (!tide_piece_next(&value, '=', &name) || !value.at) {
            if (!i && name.length) arguments->asked[TIDE_SET_model] = tide_text_copy(arguments->arena, name);
            continue;
        }
        tide_setting_id id = tide_setting_find(tide_trimmed(name));
        value = tide_trimmed(value);
        if (id == TIDE_SET_parallel_dp && tide_setting_is_world_size(tide_trimmed(name)))
            arguments->asked_world_size = tide_text_copy(arguments->arena, value);
        else if (id < TIDE_SET_COUNT)
            arguments->asked[id] = tide_text_copy(arguments->arena, asked_value(arguments, tide_trimmed(name), value));
        if (tide_text_is(tide_trimmed(name), "n")) arguments->asked_world_size = all_of_nodes(arguments->arena, value);
        if (tide_text_is(tide_trimmed(name), "mode"))
            arguments->serves = tide_text_is(tide_setting_choice_of(&tide_settings[TIDE_SET_mode], value), "serve");
        if (id == TIDE_SET_trainer)
            arguments->asked_trainer =
                tide_text_copy(arguments->arena, tide_setting_choice_of(&tide_settings[id], value));
        if (id == TIDE_SET_seq || id == TIDE_SET_trainer_prompt_length) arguments->has_prompt = true;
        if (tide_text_is(tide_trimmed(name), "overrides.vocab_size")) arguments->has_vocabulary = true;
        if (id >= TIDE_SET_parallel_kind && id < TIDE_SET_COUNT && !tide_text_is(value, "none"))
            arguments->is_spread = true;
    }
}

void tide_argument_read(tide_job_arguments *arguments, tide_text word, tide_origin origin, bool is_first) {
    if (word.length == 0) return;
    if (memchr(word.at, 0, word.length)) {
        tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, "/settings",
                   "a word contains a zero byte, so it is not "
                   "text",
                   "write key=value");
        return;
    }
    const char *equals = memchr(word.at, '=', word.length);
    if (equals) {
        size_t length = (size_t)(equals - word.at);
        tide_setting_put(arguments, tide_trimmed((tide_text){word.at, length}),
                         (tide_text){equals + 1, word.length - length - 1}, origin);
    } else if (is_first) {
        tide_setting_put(arguments, TIDE_TEXT("model"), word, origin);
    } else {
        tide_setting_id id = tide_setting_find(tide_trimmed(word));
        tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, argument_place(arguments->arena, word),
                   tide_format(arguments->arena, "\"%s\" has no value", tide_shown(arguments->arena, word)),
                   id == TIDE_SET_COUNT ? "write key=value; only the first word may be a model's name"
                                        : tide_format(arguments->arena, "write %s=VALUE", tide_settings[id].name));
    }
}

/* ---- JSON ---- */

/* Elements joined by commas; NULL if one of them is not a scalar. */
static const char *joined_text(tide_arena *arena, const tide_json *array) {
    const char *text = "";
    for (const tide_json *child = array->first; child && strlen(text) < JOINED_LIMIT; child = child->next) {
        if (child->kind == TIDE_JSON_ARRAY) return NULL;
        const char *piece = tide_argument_value(arena, child);
        if (!piece) return NULL;
        text = child == array->first ? piece : tide_format(arena, "%s,%s", text, piece);
    }
    return text;
}

const char *tide_argument_value(tide_arena *arena, const tide_json *value) {
    switch (value->kind) {
    case TIDE_JSON_STRING:
        return value->text.at;
    case TIDE_JSON_BOOL:
        return value->is_true ? "true" : "false";
    case TIDE_JSON_NUMBER:
        return tide_argument_json_text(arena, value);
    case TIDE_JSON_ARRAY:
        return value->count > 1024 ? NULL : joined_text(arena, value);
    default:
        return NULL;
    }
}

/* {"^model.layers.0.": 8} as ^model.layers.0.=8; NULL if it cannot be written like that. */
static const char *map_text(tide_arena *arena, const tide_json *object) {
    enum { LIMIT = 8000 };
    const char *text = "";
    for (const tide_json *entry = object->first; entry; entry = entry->next) {
        if (entry->kind != TIDE_JSON_NUMBER || memchr(entry->key.at, ',', entry->key.length) || strlen(text) > LIMIT)
            return NULL;
        text =
            tide_format(arena, "%s%s%s=%s", text, *text ? "," : "", entry->key.at, tide_argument_value(arena, entry));
    }
    return text;
}

const char *tide_argument_value_or_map(tide_arena *arena, const tide_json *value) {
    return value->kind == TIDE_JSON_OBJECT ? map_text(arena, value) : tide_argument_value(arena, value);
}

static void overrides_of_json(tide_job_arguments *arguments, const tide_json *entries, tide_origin origin) {
    for (const tide_json *entry = entries->first; entry; entry = entry->next) {
        tide_json *value = tide_json_clone(arguments->arena, entry);
        override_add(arguments, entry->key, value, tide_argument_json_text(arguments->arena, value), origin);
    }
}

const char *tide_arguments_adapter(const tide_job_arguments *arguments) {
    if (arguments->is_given[TIDE_SET_adapter]) return arguments->values[TIDE_SET_adapter];
    if (arguments->method) return arguments->method;
    for (unsigned id = TIDE_SET_adapter_r; id <= TIDE_SET_adapter_merged; id++) {
        tide_text kinds = tide_text_of(tide_setting_wants(&tide_settings[id])), first, choice;
        if (!arguments->is_given[id] || !tide_piece_next(&kinds, '|', &first)) continue;
        for (uint32_t i = 0; (choice = tide_setting_choice(&tide_settings[TIDE_SET_adapter], i)).length; i++)
            if (tide_text_starts(choice, first)) return tide_text_copy(arguments->arena, choice);
    }
    return "none";
}

bool tide_arguments_adapt(const tide_job_arguments *arguments) {
    return strcmp(tide_arguments_adapter(arguments), "none") != 0;
}

/* {"lora": {"r": 8}} is lora.r=8 */
static void object_of_json(tide_job_arguments *arguments, const tide_json *object, tide_origin origin) {
    for (const tide_json *entry = object->first; entry; entry = entry->next) {
        const char *name = tide_format(arguments->arena, "%s.%s", object->key.at, entry->key.at);
        const char *text = tide_argument_value_or_map(arguments->arena, entry);
        if (entry->kind == TIDE_JSON_NULL) continue;
        if (text)
            tide_setting_put(arguments, tide_text_of(name), tide_text_of(text), origin);
        else
            tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, argument_place(arguments->arena, tide_text_of(name)),
                       "must be a value or a list of values", NULL);
    }
}

void tide_arguments_of_json(tide_job_arguments *arguments, const tide_json *settings, tide_origin origin) {
    bool is_first = true;
    for (const tide_json *child = settings->first; child; child = child->next, is_first = false) {
        if (settings->kind == TIDE_JSON_ARRAY) {
            if (child->kind == TIDE_JSON_STRING)
                tide_argument_read(arguments, child->text, origin, is_first);
            else
                tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, "/settings", "contains something that is not a value",
                           "write \"key=value\"");
            continue;
        }
        if (child->kind == TIDE_JSON_NULL) continue;
        if (child->kind == TIDE_JSON_OBJECT && tide_text_is(child->key, "overrides")) {
            overrides_of_json(arguments, child, origin);
            continue;
        }
        if (child->kind == TIDE_JSON_OBJECT && tide_setting_is_object(child->key)) {
            object_of_json(arguments, child, origin);
            continue;
        }
        if (tide_text_starts(child->key, TIDE_TEXT("overrides."))) {
            size_t skip = strlen("overrides.");
            tide_json *value = tide_json_clone(arguments->arena, child);
            override_add(arguments, (tide_text){child->key.at + skip, child->key.length - skip}, value,
                         tide_argument_json_text(arguments->arena, value), origin);
            continue;
        }
        const char *text = tide_argument_value(arguments->arena, child);
        if (text)
            tide_setting_put(arguments, child->key, tide_text_of(text), origin);
        else if (tide_setting_find(child->key) == TIDE_SET_COUNT)
            unknown_read(arguments, child->key, TIDE_TEXT("true"));
        else
            tide_error(arguments->diags, TIDE_ERR_FIELD_TYPE, argument_place(arguments->arena, child->key),
                       tide_format(arguments->arena, "is %s; must be a single value", tide_json_kind_name(child)),
                       NULL);
    }
}
