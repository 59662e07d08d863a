/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: numbers and words computed from the configuration. expressions.c evaluates them in a frame without a function,
 * whose names are looked up here. */
#include <string.h>

#include "lang/interpreter.h"

static tide_value value_of_json(tide_machine *m, const tide_json *json) {
    switch (json->kind) {
    case TIDE_JSON_NULL:
        return tide_none();
    case TIDE_JSON_BOOL:
        return tide_of_bool(json->is_true);
    case TIDE_JSON_NUMBER:
        return json->is_integer ? tide_of_int(json->integer)
                                : (tide_value){.kind = TIDE_VALUE_FLOAT, .number = json->number};
    case TIDE_JSON_STRING:
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = json->text};
    case TIDE_JSON_OBJECT:
        return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = json};
    case TIDE_JSON_ARRAY:
        break;
    }
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (const tide_json *item = json->first; item; item = item->next)
        tide_list_push(m, list.list, value_of_json(m, item));
    return list;
}

static void make_room_for_size(tide_model *model, tide_scope *s, uint32_t number) {
    enum { MORE = 64 };
    uint32_t wider = number + MORE;
    tide_value *values = TIDE_NEW(model->m->arena, tide_value, wider);
    uint8_t *states = TIDE_NEW(model->m->arena, uint8_t, wider);
    if (s->capacity) {
        memcpy(values, s->values, s->capacity * sizeof *values);
        memcpy(states, s->states, s->capacity);
    }
    s->values = values;
    s->states = states;
    s->capacity = wider;
}

tide_value tide_scope_size(tide_model *model, uint32_t scope, uint32_t number) {
    tide_machine *m = model->m;
    tide_scope *s = &model->scopes[scope];
    if (number >= s->capacity) make_room_for_size(model, s, number);
    if (s->states[number] == TIDE_SIZE_OF_STEP) model->step_reads++;
    if (s->states[number] >= TIDE_SIZE_KNOWN) return tide_value_retain(s->values[number]);
    tide_text name = model->size_names.names[number];
    const tide_size *size = tide_size_find(model->descriptions, s->description, name);
    if (!size)
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "the size '%s' is not defined in this description",
                            tide_terminated(m, name));
    if (s->states[number] == TIDE_SIZE_COMPUTED)
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "the size '%s' depends on itself", tide_terminated(m, name));
    if (model->nesting >= NESTING_LIMIT) return tide_nothing(m, TIDE_ERR_LIMIT, "sizes nested too deeply%s", "");
    s->states[number] = TIDE_SIZE_COMPUTED;
    uint32_t reads = model->step_reads;
    uint64_t op_count = m->op_count;
    tide_frame f = {.model = model, .scope = scope, .self = name};
    model->nesting++;
    tide_value value = tide_eval(&f, size->expr);
    model->nesting--;
    /* Evaluated once, wherever it is first read: its work counts separately, not for the call that reads it. */
    model->size_op_count += m->op_count - op_count;
    m->op_count = op_count;
    if (model->size_op_count > m->op_limit)
        tide_fail(m, TIDE_ERR_LIMIT, "sizes of more operations than tidemark plays for one job%s", "");
    if (value.kind == TIDE_VALUE_INT) value.symbol = tide_symbol_name(m, name);
    s = &model->scopes[scope];
    s->values[number] = value;
    s->states[number] = model->step_reads == reads ? TIDE_SIZE_KNOWN : TIDE_SIZE_OF_STEP;
    return tide_value_retain(value);
}

tide_value tide_eval_config(tide_model *model, uint32_t scope, tide_expr *e) {
    tide_frame f = {.model = model, .scope = scope};
    return tide_eval(&f, e);
}

static void missing_key(tide_model *model, const tide_scope *s, tide_text name) {
    tide_machine *m = model->m;
    const char **keys = TIDE_NEW(m->arena, const char *, s->config ? s->config->count + 1 : 1);
    uint32_t count = 0;
    for (const tide_json *key = s->config ? s->config->first : NULL; key; key = key->next) keys[count++] = key->key.at;
    const char *near = tide_nearest(name, keys, count), *place = "/config.json";
    if (s->config) place = tide_json_place(m->arena, s->config, place);
    const char *key = tide_terminated(m, name), *described = s->description->name.at;
    m->has_failed = true;
    place = tide_format(m->arena, "%s/%s", place, key);
    if (near && tide_text_is(name, near))
        tide_error(m->diags, TIDE_ERR_FIELD_MISSING, place,
                   tide_format(m->arena, "'%s' is null, and the description '%s' reads it", key, described),
                   "give its value");
    else
        tide_error(
            m->diags, TIDE_ERR_FIELD_MISSING, place,
            tide_format(m->arena, "the configuration has no '%s', which the description '%s' reads", key, described),
            near ? tide_format(m->arena, "did you mean %s? Else add the key, or check that model_type is right", near)
                 : "add the key, or check that model_type is right");
}

tide_value tide_config_name(tide_frame *f, const tide_expr *e) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    const tide_scope *s = &model->scopes[f->scope];
    if (!tide_text_equal(e->text, f->self) && tide_size_is_defined(s->description, e->text))
        return tide_scope_size(model, f->scope, tide_name(&model->size_names, e->text));
    const tide_json *found = tide_json_find(s->config, e->text);
    if (found && (found->kind != TIDE_JSON_NULL || e->may_miss))
        return value_of_json(m, found); /* null means not given */
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (tide_text_is(e->text, model->settings[i].name)) return tide_eval_setting(model, i);
    tide_dtype dtype;
    if (tide_dtype_named(e->text, &dtype)) return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = dtype};
    if (tide_text_is(e->text, "config")) return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = s->config};
    if (tide_class_find(model->descriptions, s->description, e->text))
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = e->text};
    if (!e->may_miss && !m->has_failed) missing_key(model, s, e->text);
    return tide_none();
}

tide_value tide_config_member(tide_frame *f, const tide_expr *e, const tide_json *config) {
    const tide_json *found = tide_json_find(config, e->text);
    if (found) return value_of_json(f->model->m, found);
    if (e->may_miss) return tide_none();
    return tide_nothing(f->model->m, TIDE_ERR_FIELD_MISSING, "the configuration has no nested '%s'",
                        tide_terminated(f->model->m, e->text));
}
