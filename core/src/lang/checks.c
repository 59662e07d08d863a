/* SPDX-License-Identifier: Apache-2.0 */
/* Checks: constraints on sizes and settings, and notes about them. */
#include <string.h>

#include "base/units.h"
#include "lang/inherit.h"
#include "lang/interpreter.h"

/* The text of a check, with {expression} replaced by its value. */
static const char *check_text(tide_model *model, uint32_t scope, tide_text text, const char *place) {
    tide_machine *m = model->m;
    const char *out = "";
    while (text.length) {
        const char *open = memchr(text.at, '{', text.length), *end = text.at + text.length;
        const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
        size_t plain = close ? (size_t)(open - text.at) : text.length;
        out = tide_format(m->arena, "%s%.*s", out, (int)plain, text.at);
        if (!close) break;
        tide_expr *expr = tide_parse_expr(m->arena, (tide_text){open + 1, (size_t)(close - open) - 1}, place, m->diags);
        tide_expr_may_miss(expr);
        tide_value value = expr ? tide_eval_config(model, scope, expr) : tide_none();
        if (value.kind == TIDE_VALUE_INT) out = tide_format(m->arena, "%s%lld", out, (long long)value.integer);
        if (value.kind == TIDE_VALUE_FLOAT) out = tide_format(m->arena, "%s%g", out, value.number);
        tide_value_release(m, value);
        text = (tide_text){close + 1, (size_t)(end - close) - 1};
    }
    return out;
}

/* The place of the first of the keys, parted by "|", that somebody gave; of the first one if nobody gave any. */
static const char *place_of_keys(tide_model *model, uint32_t scope, tide_text keys, bool *is_default) {
    const char *first = NULL;
    for (tide_text key; tide_piece_next(&keys, '|', &key);) {
        const char *place = model->find_place(model->user, model->scopes[scope].config, key, is_default);
        if (!*is_default) return place;
        if (!first) first = place;
    }
    return first;
}

/* One pair of "checks": an expression that must be true, and "key: what is wrong; what to do". If nobody gave the
 * setting it is only a warning, so that a model can be described by its name alone. */
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
    tide_value holds = tide_eval_config(model, scope, expr);
    bool is_kept = tide_is_true(m, holds), is_default = false;
    tide_value_release(m, holds);
    if (m->has_failed) return false;
    if (is_kept) return true;
    tide_text key = {check->text.at, (size_t)(colon - check->text.at)};
    const char *at = place_of_keys(model, scope, key, &is_default);
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

/* One pair of "notes": if the expression is true, what to know about a key. */
static void run_note(tide_model *model, uint32_t scope, const tide_json *note, const char *place) {
    tide_machine *m = model->m;
    const char *colon = note->kind == TIDE_JSON_STRING ? strstr(note->text.at, ": ") : NULL;
    tide_expr *expr = colon ? tide_parse_expr(m->arena, note->key, place, m->diags) : NULL;
    if (!colon) tide_fail(m, TIDE_ERR_DESCRIPTION, "a note is \"expression\": \"key: what is to be known\"");
    tide_value holds = expr ? tide_eval_config(model, scope, expr) : tide_none();
    bool is_kept = expr && tide_is_true(m, holds), is_default = false;
    tide_value_release(m, holds);
    if (!is_kept || m->has_failed) return;
    tide_text key = {note->text.at, (size_t)(colon - note->text.at)};
    const char *at = model->find_place(model->user, model->scopes[scope].config, key, &is_default);
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, at,
                check_text(model, scope, (tide_text){colon + 2, note->text.length - key.length - 2}, place), NULL);
}

/* ---- which of them ---- */

static bool is_defined_size(const tide_description *from, tide_text word) {
    static const char *const others[] = {"and", "or", "not", "none", "true", "false", "is_list"};
    for (size_t i = 0; i < TIDE_COUNT_OF(others); i++)
        if (tide_text_is(word, others[i])) return true;
    return (word.at[0] >= '0' && word.at[0] <= '9') || tide_size_is_defined(from, word);
}

/* A check of the library applies to a description that has all sizes it reads, and no check of the same expression. */
static bool is_for(const tide_description *from, tide_text check) {
    for (uint32_t i = 0; i < from->order_count; i++)
        if (tide_json_find(tide_json_at(from->order[i]->json, "checks"), check)) return false;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    for (const char *at = check.at; *at;) {
        size_t length = strspn(at, letters);
        if (length && !is_defined_size(from, (tide_text){at, length})) return false;
        at += length ? length : 1;
    }
    return true;
}

void tide_run_checks(tide_model *model, uint32_t scope) {
    tide_machine *m = model->m;
    uint32_t reads = model->step_reads;
    const tide_description *from = model->scopes[scope].description;
    if (!model->find_place) return;
    bool has_notes = false;
    const tide_description *d;
    for (uint32_t i = 0; !m->has_failed && (d = tide_description_in_order(model->descriptions, from, i)); i++) {
        const tide_json *checks = tide_json_at(d->json, "checks"),
                        *notes = has_notes ? NULL : tide_json_at(d->json, "notes");
        for (const tide_json *check = checks ? checks->first : NULL; check; check = check->next)
            if ((!d->is_library || is_for(from, check->key)) &&
                !run_check(model, scope, check, tide_format(m->arena, "/%s/checks", d->name.at)))
                m->has_failed = true;
        has_notes = has_notes || notes;
        /* a nested part with the same configuration has reported it already */
        bool is_root = model->instance_count <= 1;
        for (const tide_json *note = notes && is_root && !m->has_failed ? notes->first : NULL; note; note = note->next)
            run_note(model, scope, note, tide_format(m->arena, "/%s/notes", d->name.at));
    }
    model->step_reads = reads;
}
