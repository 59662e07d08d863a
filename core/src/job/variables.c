/* SPDX-License-Identifier: Apache-2.0 */
/* What model descriptions see of a job: settings with a .variable, and objects of settings. */
#include "job/settings.h"

#include <string.h>

static void add_variable(tide_variable *variables, uint32_t *count, tide_variable variable) {
    if (*count < TIDE_VARIABLES_MOST) variables[(*count)++] = variable;
}

static void add_int(tide_variable *variables, uint32_t *count, const tide_setting *setting, const char *name,
                    int64_t value) {
    add_variable(variables, count,
                 (tide_variable){.name = name, .kind = TIDE_VARIABLE_INT, .integer = value, .read = setting->read});
}

/* NAME_frames, NAME_height, NAME_width. */
static void add_pixels(tide_arena *arena, tide_variable *variables, uint32_t *count, const tide_setting *setting,
                       const tide_pixels *pixels) {
    bool has_frames = tide_text_starts(tide_text_of(setting->unit), TIDE_TEXT("frames"));
    const char *name = setting->variable;
    if (has_frames) add_int(variables, count, setting, tide_format(arena, "%s_frames", name), pixels->frames);
    add_int(variables, count, setting, tide_format(arena, "%s_height", name), pixels->height);
    add_int(variables, count, setting, tide_format(arena, "%s_width", name), pixels->width);
}

uint32_t tide_job_variables(tide_arena *arena, const tide_job *job, tide_variable *variables) {
    uint32_t count = 0;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        const tide_setting *setting = &tide_settings[id];
        const void *field = (const char *)job + setting->offset;
        tide_variable v = {.name = setting->variable, .read = setting->read, .text = job->values[id]};
        if (!setting->variable) continue;
        if (setting->type == TIDE_SETTING_SIZE) {
            add_pixels(arena, variables, &count, setting, field);
        } else if (setting->type == TIDE_SETTING_INT) {
            add_int(variables, &count, setting, v.name, *(const int64_t *)field);
        } else if (setting->type == TIDE_SETTING_BOOL) {
            v.kind = TIDE_VARIABLE_BOOL, v.is_true = *(const bool *)field;
            add_variable(variables, &count, v);
        } else if (setting->type == TIDE_SETTING_NUMBER) {
            v.kind = TIDE_VARIABLE_NUMBER, v.number = (double)*(const int64_t *)field / (double)TIDE_PICO;
            add_variable(variables, &count, v);
        } else {
            v.kind = TIDE_VARIABLE_TEXT;
            add_variable(variables, &count, v);
        }
    }
    return count;
}

/* ---- objects ---- */

/* Appends a child; `last` is the link to it, and then to the next one. */
static tide_json *append(tide_arena *arena, tide_json *parent, tide_json ***last, tide_json_kind kind) {
    tide_json *child = **last = tide_json_new(arena, kind);
    child->parent = parent;
    parent->count++;
    *last = &child->next;
    return child;
}

static void put_names(tide_arena *arena, tide_json *array, tide_text names) {
    tide_text name;
    tide_json **last = &array->first;
    array->kind = TIDE_JSON_ARRAY;
    while (tide_piece_next(&names, ',', &name)) append(arena, array, &last, TIDE_JSON_STRING)->text = name;
}

static void put_counts(tide_arena *arena, tide_json *array, tide_text list) {
    tide_counts counts = tide_counts_of(arena, list);
    tide_json **last = &array->first;
    array->kind = TIDE_JSON_ARRAY;
    for (uint32_t i = 0; i < counts.count; i++) {
        tide_json *item = append(arena, array, &last, TIDE_JSON_NUMBER);
        item->integer = counts.of[i];
        item->is_integer = true;
        item->number = (double)counts.of[i];
    }
}

static void put_member(tide_arena *arena, tide_json *item, const tide_setting *setting, tide_text text) {
    int64_t pico;
    item->kind = TIDE_JSON_STRING;
    item->text = text;
    if (setting->type == TIDE_SETTING_INT && tide_text_to_i64(&item->integer, text)) {
        item->kind = TIDE_JSON_NUMBER;
        item->is_integer = true;
        item->number = (double)item->integer;
    } else if (setting->type == TIDE_SETTING_NUMBER && tide_decimal_read(&pico, text) == TIDE_DECIMAL_OK) {
        item->kind = TIDE_JSON_NUMBER;
        item->number = (double)pico / (double)TIDE_PICO;
    } else if (setting->type == TIDE_SETTING_BOOL) {
        item->kind = TIDE_JSON_BOOL;
        item->is_true = tide_text_is(text, "true");
    } else if (setting->type == TIDE_SETTING_LIST) {
        put_names(arena, item, text);
    } else if (setting->type == TIDE_SETTING_COUNTS) {
        put_counts(arena, item, text);
    }
}

const tide_json *tide_job_object(tide_arena *arena, const tide_job *job, const char *object) {
    tide_json *root = tide_json_new(arena, TIDE_JSON_OBJECT), **last = &root->first;
    size_t length = strlen(object);
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        const tide_setting *setting = &tide_settings[id];
        if (strncmp(setting->name, object, length) != 0 || setting->name[length] != '.') continue;
        tide_json *item = append(arena, root, &last, TIDE_JSON_NULL);
        item->key = tide_text_of(setting->name + length + 1);
        tide_text text = tide_text_of(job->values[id]);
        if (text.length && !tide_text_is(text, "none")) put_member(arena, item, setting, text);
    }
    return root;
}
