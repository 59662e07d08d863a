/* Sizes: numbers and words from the configuration, and the checks that they must pass. */
#include "lang/interpreter.h"

#include <string.h>

/* ---- sizes: numbers from the configuration ---- */

static tide_value from_json(tide_machine *m, const tide_json *json) {
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
    for (const tide_json *item = json->first; item; item = item->next) tide_list_push(m, list.list, from_json(m, item));
    return list;
}

tide_value tide_scope_size(tide_model *model, uint32_t scope, uint32_t number) {
    tide_scope *s = &model->scopes[scope];
    if (number >= s->capacity) {
        uint32_t wider = number + 64;
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
    if (s->states[number] == TIDE_SIZE_OF_STEP) model->step_reads++;
    if (s->states[number] >= TIDE_SIZE_KNOWN) return tide_value_retain(s->values[number]);
    tide_text name = model->size_names.names[number];
    const tide_size *size = tide_size_find(s->description, name);
    if (!size)
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "the size '%s' is not defined in this description",
                            tide_terminated(model->m, name));
    if (s->states[number] == TIDE_SIZE_COMPUTED)
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "the size '%s' depends on itself",
                            tide_terminated(model->m, name));
    s->states[number] = TIDE_SIZE_COMPUTED;
    uint32_t reads = model->step_reads;
    tide_value value = tide_eval_size(model, scope, size->expr, name, false, 0);
    if (value.kind == TIDE_VALUE_INT) value.symbol = tide_symbol_name(model->m, name);
    s = &model->scopes[scope];
    s->values[number] = value;
    s->states[number] = model->step_reads == reads ? TIDE_SIZE_KNOWN : TIDE_SIZE_OF_STEP;
    return tide_value_retain(value);
}
tide_value tide_call_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                              const tide_value *positional, uint32_t count, const tide_text *keywords,
                              const tide_value *named, uint32_t named_count);

static tide_value size_name(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss) {
    tide_scope *s = &model->scopes[scope];
    if (!tide_text_equal(e->text, self) && tide_size_find(s->description, e->text))
        return tide_scope_size(model, scope, tide_name(&model->size_names, e->text));
    const tide_json *found = tide_json_find(s->config, e->text);
    if (found && (found->kind != TIDE_JSON_NULL || may_miss)) return from_json(model->m, found); /* null: not given */
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (tide_text_is(e->text, model->settings[i].name)) return tide_setting(model, i);
    tide_dtype dtype;
    if (tide_dtype_named(e->text, &dtype)) return (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = dtype};
    if (tide_text_is(e->text, "config")) return (tide_value){.kind = TIDE_VALUE_CONFIG, .config = s->config};
    if (may_miss) return tide_none();
    tide_machine *m = model->m;
    if (!m->has_failed) {
        m->has_failed = true;
        tide_error(m->diags, TIDE_ERR_FIELD_MISSING,
                   tide_format(m->arena, "%s/%s", tide_json_place(m->arena, s->config, "/config.json"),
                               tide_terminated(m, e->text)),
                   tide_format(m->arena, "the configuration has no '%s', which the description '%s' reads",
                               tide_terminated(m, e->text), s->description->name.at),
                   "add the key, or check that model_type is right");
    }
    return tide_none();
}

tide_value tide_eval_size(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss, int depth) {
    tide_machine *m = model->m;
    if (m->has_failed || depth > 50)
        return depth > 50 ? tide_nothing(m, TIDE_ERR_LIMIT, "sizes nested too deeply%s", "") : tide_none();
    tide_value a, b, made;
    switch (e->kind) {
    case TIDE_EXPR_NONE:
    case TIDE_EXPR_BOOL:
    case TIDE_EXPR_INT:
    case TIDE_EXPR_FLOAT:
    case TIDE_EXPR_TEXT:
        return tide_literal(e);
    case TIDE_EXPR_NAME:
        return size_name(model, scope, e, self, may_miss);
    case TIDE_EXPR_MEMBER:
        a = tide_eval_size(model, scope, e->a, self, may_miss, depth + 1);
        if (a.kind == TIDE_VALUE_CONFIG) {
            const tide_json *found = tide_json_find(a.config, e->text);
            if (found) return from_json(m, found);
        }
        tide_value_release(m, a);
        return may_miss ? tide_none()
                        : tide_nothing(m, TIDE_ERR_FIELD_MISSING, "the configuration has no nested '%s'",
                                       tide_terminated(m, e->text));
    case TIDE_EXPR_COALESCE:
        a = tide_eval_size(model, scope, e->a, self, true, depth + 1);
        return a.kind == TIDE_VALUE_NONE ? tide_eval_size(model, scope, e->b, self, may_miss, depth + 1) : a;
    case TIDE_EXPR_CHOICE:
        a = tide_eval_size(model, scope, e->b, self, false, depth + 1);
        return tide_eval_size(model, scope, tide_is_true(m, a) ? e->a : e->c, self, may_miss, depth + 1);
    case TIDE_EXPR_AND:
    case TIDE_EXPR_OR:
        a = tide_eval_size(model, scope, e->a, self, false, depth + 1);
        if (tide_is_true(m, a) == (e->kind == TIDE_EXPR_OR)) return a;
        tide_value_release(m, a);
        return tide_eval_size(model, scope, e->b, self, false, depth + 1);
    case TIDE_EXPR_NOT:
        a = tide_eval_size(model, scope, e->a, self, false, depth + 1);
        made = tide_of_bool(!tide_is_true(m, a));
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_NEGATE:
        return tide_arithmetic(m, '-', tide_of_int(0), tide_eval_size(model, scope, e->a, self, false, depth + 1));
    case TIDE_EXPR_BINARY:
    case TIDE_EXPR_COMPARE:
        a = tide_eval_size(model, scope, e->a, self, false, depth + 1);
        b = tide_eval_size(model, scope, e->b, self, false, depth + 1);
        made =
            e->kind == TIDE_EXPR_BINARY ? tide_arithmetic(m, e->op, a, b) : tide_of_bool(tide_compare(m, e->op, a, b));
        tide_value_release(m, a);
        tide_value_release(m, b);
        return made;
    case TIDE_EXPR_INDEX:
        a = tide_eval_size(model, scope, e->a, self, may_miss, depth + 1);
        b = e->count == 1 ? tide_eval_size(model, scope, e->items[0], self, false, depth + 1) : tide_none();
        made = tide_none();
        if (a.kind == TIDE_VALUE_LIST && b.kind == TIDE_VALUE_INT && b.integer >= -(int64_t)a.list->count &&
            b.integer < (int64_t)a.list->count)
            made = tide_value_retain(a.list->items[b.integer < 0 ? b.integer + a.list->count : b.integer]);
        else if (!m->has_failed)
            tide_nothing(m, TIDE_ERR_FIELD_TYPE, "a size takes an item of what is no list, or beyond its end%s", "");
        tide_value_release(m, a);
        return made;
    case TIDE_EXPR_LIST:
        made = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (uint32_t i = 0; i < e->count; i++)
            tide_list_push(m, made.list, tide_eval_size(model, scope, e->items[i], self, false, depth + 1));
        return made;
    case TIDE_EXPR_CALL:
        if (e->a->kind == TIDE_EXPR_NAME && e->count <= 8)
            for (uint32_t i = 0; i < BUILTIN_PARAMETER; i++) {
                if (!tide_text_is(e->a->text, tide_builtin_names[i])) continue;
                tide_value arguments[8];
                for (uint32_t k = 0; k < e->count; k++)
                    arguments[k] = tide_eval_size(model, scope, e->items[k], self, false, depth + 1);
                made = m->has_failed ? tide_none() : tide_call_builtin(m, i, arguments, e->count);
                for (uint32_t k = 0; k < e->count; k++) tide_value_release(m, arguments[k]);
                return made;
            }
        if (e->a->kind == TIDE_EXPR_NAME && e->count <= 8) {
            tide_function *function =
                tide_function_find(model->descriptions, model->scopes[scope].description, e->a->text);
            tide_value arguments[8];
            if (!function)
                return tide_nothing(m, TIDE_ERR_DESCRIPTION, "a size calls '%s', which is no function",
                                    tide_terminated(m, e->a->text));
            for (uint32_t k = 0; k < e->count; k++)
                arguments[k] = tide_eval_size(model, scope, e->items[k], self, false, depth + 1);
            uint32_t statement = m->statement;
            made = tide_call_function(model, function, 0, scope, arguments, e->count, NULL, NULL, 0);
            m->statement = statement;
            return made;
        }
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "a size calls what is no function%s", "");
    default:
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "a size uses what only statements may%s", "");
    }
}
/* ---- checks: what sizes and settings must keep to ---- */

/* A text of a check with {expression} as its value. */
static const char *check_text(tide_model *model, uint32_t scope, tide_text text, const char *place) {
    tide_machine *m = model->m;
    const char *out = "";
    while (text.length) {
        const char *open = memchr(text.at, '{', text.length), *end = text.at + text.length;
        const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
        size_t plain = close ? (size_t)(open - text.at) : text.length;
        out = tide_format(m->arena, "%s%.*s", out, (int)plain, text.at);
        text = (tide_text){text.at + plain, text.length - plain};
        if (!close) break;
        tide_expr *expr = tide_parse_expr(m->arena, (tide_text){open + 1, (size_t)(close - open) - 1}, place, m->diags);
        tide_value value = expr ? tide_eval_size(model, scope, expr, TIDE_TEXT(""), true, 0) : tide_none();
        if (value.kind == TIDE_VALUE_INT) out = tide_format(m->arena, "%s%lld", out, (long long)value.integer);
        if (value.kind == TIDE_VALUE_FLOAT) out = tide_format(m->arena, "%s%g", out, value.number);
        tide_value_release(m, value);
        text = (tide_text){close + 1, (size_t)(end - close) - 1};
    }
    return out;
}

/* One pair of "checks": an expression that must hold, and "key: what is wrong; what to do". A setting that nobody gave
 * is warned of, so that a model can be asked for by its name alone. */
static bool run_check(tide_model *model, uint32_t scope, const tide_json *check, const char *place) {
    tide_machine *m = model->m;
    const char *colon = check->kind == TIDE_JSON_STRING ? strstr(check->text.at, ": ") : NULL;
    if (!colon) {
        tide_error(m->diags, TIDE_ERR_DESCRIPTION, place,
                   "a check is \"expression\": \"key: what is wrong; what to do\"", NULL);
        return false;
    }
    tide_expr *expr = tide_parse_expr(m->arena, check->key, place, m->diags);
    if (!expr) return false;
    tide_value holds = tide_eval_size(model, scope, expr, TIDE_TEXT(""), false, 0);
    bool is_kept = tide_is_true(m, holds), is_default = false;
    tide_value_release(m, holds);
    if (m->has_failed) return false;
    if (is_kept) return true;
    tide_text key = {check->text.at, (size_t)(colon - check->text.at)};
    const char *at = model->find_place(model->user, model->scopes[scope].config, key, &is_default);
    const char *wrong = check_text(model, scope, (tide_text){colon + 2, check->text.length - key.length - 2}, place);
    const char *semicolon = strstr(wrong, "; ");
    for (uint32_t i = 0; i < m->diags->count; i++) /* two modules may share a configuration */
        if (is_default && m->diags->items[i].severity == TIDE_WARNING && strcmp(m->diags->items[i].place, at) == 0)
            return true;
    tide_report(m->diags, is_default ? TIDE_WARNING : TIDE_ERROR, TIDE_ERR_FIELD_RANGE, at,
                semicolon ? tide_text_copy(m->arena, (tide_text){wrong, (size_t)(semicolon - wrong)}) : wrong,
                semicolon ? semicolon + 2 : NULL);
    return is_default;
}

/* One pair of "notes": where an expression holds, what is to be known of a key. */
static void run_note(tide_model *model, uint32_t scope, const tide_json *note, const char *place) {
    tide_machine *m = model->m;
    const char *colon = note->kind == TIDE_JSON_STRING ? strstr(note->text.at, ": ") : NULL;
    tide_expr *expr = colon ? tide_parse_expr(m->arena, note->key, place, m->diags) : NULL;
    if (!colon) tide_fail(m, TIDE_ERR_DESCRIPTION, "a note is \"expression\": \"key: what is to be known\"");
    tide_value holds = expr ? tide_eval_size(model, scope, expr, TIDE_TEXT(""), false, 0) : tide_none();
    bool is_kept = expr && tide_is_true(m, holds), is_default = false;
    tide_value_release(m, holds);
    if (!is_kept || m->has_failed) return;
    tide_text key = {note->text.at, (size_t)(colon - note->text.at)};
    const char *at = model->find_place(model->user, model->scopes[scope].config, key, &is_default);
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, at,
                check_text(model, scope, (tide_text){colon + 2, note->text.length - key.length - 2}, place), NULL);
}

/* The checks of a description and of what it extends, over one configuration; the notes of the first that has any. */
void tide_run_checks(tide_model *model, uint32_t scope) {
    tide_machine *m = model->m;
    uint32_t reads = model->step_reads;
    if (!model->find_place) return;
    bool has_notes = false;
    for (const tide_description *d = model->scopes[scope].description; d && !m->has_failed; d = d->parent) {
        const tide_json *checks = tide_json_at(d->json, "checks"),
                        *notes = has_notes ? NULL : tide_json_at(d->json, "notes");
        for (const tide_json *check = checks ? checks->first : NULL; check; check = check->next)
            if (!run_check(model, scope, check, tide_format(m->arena, "/%s/checks", d->name.at))) m->has_failed = true;
        has_notes = has_notes || notes;
        bool is_root = model->instance_count <= 1; /* a nested part with the same configuration has said it already */
        for (const tide_json *note = notes && is_root && !m->has_failed ? notes->first : NULL; note; note = note->next)
            run_note(model, scope, note, tide_format(m->arena, "/%s/notes", d->name.at));
    }
    model->step_reads = reads;
}
